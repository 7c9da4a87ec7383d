//! Numbers with a unit: parts of a whole, bytes, times.

use std::fmt;
use std::time::Duration;

/// A part of a whole, more than nothing and up to all of it, to a hundredth of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u16);

impl Percent {
    /// In ten-thousandths: 2,000 is 20 %.
    pub fn ten_thousandths(self) -> u16 {
        self.0
    }

    /// So much of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        let part = u128::from(whole) * u128::from(self.0) / 10_000;
        u64::try_from(part).unwrap_or(whole)
    }

    /// Reads `20 %` or `12.5%`; says what to write instead of what is none.
    pub(crate) fn parse(text: &str) -> Result<Percent, String> {
        let advice = "write more than \"0 %\" and at most \"100 %\"";
        let bad = || format!("{text:?} is not a part of a whole; write a number and %, as in \"20 %\"");
        let number = text.trim().strip_suffix('%').ok_or_else(bad)?.trim_end();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 2 {
            return Err(bad());
        }
        let hundredths = format!("{whole}{fraction:0<2}").parse::<u32>().unwrap_or(u32::MAX);
        match u16::try_from(hundredths) {
            Ok(0) => Err(format!("{text:?} is nothing at all; {advice}")),
            Ok(hundredths @ 1..=10_000) => Ok(Percent(hundredths)),
            _ => Err(format!("{text:?} is more than the whole; {advice}")),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole} %"),
            (whole, part) if part % 10 == 0 => write!(f, "{whole}.{} %", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02} %"),
        }
    }
}

const SIZES: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Reads `4 GiB` or `512MiB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a size; write a whole number and KiB, MiB, GiB or TiB, as in \"4 GiB\"");
    let (number, unit) = split(text).ok_or_else(bad)?;
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
    let size = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*bytes)).ok_or_else(bad)?;
    if size == 0 {
        return Err(format!("{text:?} is no memory at all; write at least \"1 KiB\""));
    }
    Ok(size)
}

/// `4 GiB`: with the largest unit that needs no fraction.
pub fn show_size(bytes: u64) -> String {
    match SIZES.iter().find(|(_, unit)| bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The longest time that a policy can name.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// Reads `500 ms`, `2s`, `5 m`, `1 h` or `7 d`; also zero.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a time; write a whole number and ms, s, m, h or d, as in \"30 s\"");
    let (number, unit) = split(text).ok_or_else(bad)?;
    let (_, milliseconds) = TIMES.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
    let time = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*milliseconds));
    let time = time.map(Duration::from_millis).filter(|time| *time <= LONGEST);
    time.ok_or_else(|| format!("{text:?} is too long; write \"30 d\" at most"))
}

/// `90 s`, `5 m`: with the largest unit that needs no fraction.
pub(crate) fn show_time(time: Duration) -> String {
    let all = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    if all == 0 {
        return "0 s".to_owned();
    }
    let unit = TIMES.iter().find(|(_, unit)| all.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{all} ms"), |(name, unit)| format!("{} {name}", all / unit))
}

/// The digits and the unit of a text. One or more spaces may be between them.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    (!number.is_empty()).then_some((number, unit.trim_start_matches(' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_shown_alike() {
        for (text, shown) in [("20%", "20 %"), (" 12.5 % ", "12.5 %"), ("0.01%", "0.01 %"), ("100 %", "100 %")] {
            assert_eq!(Percent::parse(text).unwrap().to_string(), shown);
        }
        for (text, shown) in [("4GiB", "4 GiB"), ("1536 MiB", "1536 MiB"), ("2048 GiB", "2 TiB")] {
            assert_eq!(show_size(parse_size(text).unwrap()), shown);
        }
        for (text, shown) in [("90s", "90 s"), ("120 s", "2 m"), ("24h", "1 d"), ("0 m", "0 s"), ("1500ms", "1500 ms")]
        {
            assert_eq!(show_time(parse_time(text).unwrap()), shown);
        }
    }

    #[test]
    fn what_is_wrong_is_refused_with_advice() {
        for text in ["", "%", "20", "twenty %", "1,5 %", "-1 %", "1.234 %", ".5 %", "5. %", "0 %", "0.00 %", "101 %"] {
            assert!(Percent::parse(text).unwrap_err().contains("; write "), "{text}");
        }
        for text in ["", "4", "GiB", "4 GB", "4 gib", "-4 GiB", "1.5 GiB", "0 MiB", "99999999999 TiB"] {
            assert!(parse_size(text).unwrap_err().contains("; write "), "{text}");
        }
        for text in ["", "4", "s", "4 min", "-4 s", "1.5 s", "31 d", "99999999999999999999 s"] {
            assert!(parse_time(text).unwrap_err().contains("; write "), "{text}");
        }
    }

    #[test]
    fn a_part_of_a_whole_is_rounded_down() {
        assert_eq!(Percent::parse("50 %").unwrap().of(7), 3);
        assert_eq!(Percent::parse("100 %").unwrap().of(u64::MAX), u64::MAX);
    }
}
