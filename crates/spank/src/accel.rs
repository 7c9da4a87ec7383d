//! What a job asks for: `2`, or `2,mem=4GiB`.

use std::fmt;
use std::str::FromStr;

/// More is a mistake.
const MOST: u32 = 1024;

/// A number of accelerators, and how much memory of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accel {
    count: u32,
    /// In MiB.
    memory: Option<u64>,
}

impl FromStr for Accel {
    type Err = String;

    fn from_str(text: &str) -> Result<Accel, String> {
        let mut parts = text.split(',');
        let count = parts.next().unwrap_or_default();
        let count = count.parse().ok().filter(|count| (1..=MOST).contains(count));
        let count = count.ok_or_else(|| format!("needs a number from 1 to {MOST}, as in --remote-accel=2,mem=4GiB"))?;
        let mut memory = None;
        for part in parts {
            let size = part.strip_prefix("mem=").ok_or_else(|| format!("knows no {part:?}; there is mem=SIZE"))?;
            memory = Some(mebibytes(size).ok_or_else(|| format!("{size:?} is no size; write 512MiB or 4GiB"))?);
        }
        Ok(Accel { count, memory })
    }
}

impl fmt::Display for Accel {
    /// In one form, for scripts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        self.memory.map_or(Ok(()), |memory| write!(f, ",mem={memory}MiB"))
    }
}

/// `512MiB`, `4GiB`, or as Slurm writes it, `512M`, `4G`.
fn mebibytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "M" | "MiB" => 1,
        "G" | "GiB" => 1 << 10,
        "T" | "TiB" => 1 << 20,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_handed_on_in_one_form() {
        for (text, meant) in [("1", "1"), ("2,mem=4GiB", "2,mem=4096MiB"), ("3,mem=512M", "3,mem=512MiB")] {
            assert_eq!(text.parse::<Accel>().unwrap().to_string(), meant);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for bad in [
            "",
            "0",
            "-1",
            "2000",
            "x",
            "1,",
            "1,mem=",
            "1,mem=4",
            "1,mem=0G",
            "1,cpu=2",
            "1,mem=99999999999999T",
            "1,mem=4GiB;x",
        ] {
            assert!(bad.parse::<Accel>().is_err(), "{bad}");
        }
    }
}
