//! Values that say how workers are confined.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use toml::de::DeValue;

use crate::value::{Value, parse_size, split, texts, wrong_type};

/// Whether workers are confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confine {
    /// As far as the system can; the log says what it cannot.
    On,
    Off,
    /// Fully, or the service does not start.
    Require,
}

/// The users that workers become if the service is root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerUsers {
    /// Those that nobody else uses.
    Auto,
    /// Workers stay root.
    None,
    Ids(RangeInclusive<u32>),
}

/// How much memory of its own a worker may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerMemory {
    /// As much as the machine has.
    Auto,
    Unlimited,
    Bytes(u64),
}

/// What workers may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerPaths(pub(crate) Vec<PathBuf>);

/// Reads `on`, `off` or `require`.
pub fn parse_confine(text: &str) -> Result<Confine, String> {
    match text.trim() {
        "on" => Ok(Confine::On),
        "off" => Ok(Confine::Off),
        "require" => Ok(Confine::Require),
        other => Err(format!("{other:?} is none of on, off and require")),
    }
}

impl Value for Confine {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_confine(text)
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => parse_confine(text),
            other => Err(wrong_type(other, "one of the texts \"on\", \"off\" and \"require\"")),
        }
    }
}

impl Value for WorkerUsers {
    fn from_text(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let bad =
            || format!("\"{text}\" is none of \"auto\", \"none\" and a range of user ids such as \"200000-200999\"");
        match text {
            "auto" => return Ok(WorkerUsers::Auto),
            "none" => return Ok(WorkerUsers::None),
            _ => {}
        }
        let (first, last) = text.split_once('-').ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| bad());
        let (first, last) = (number(first)?, number(last)?);
        // Root is who they are not to be; the last number means nobody to the kernel.
        if first == 0 || last < first || last == u32::MAX {
            return Err(bad());
        }
        Ok(WorkerUsers::Ids(first..=last))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => WorkerUsers::from_text(text),
            other => Err(wrong_type(other, "\"auto\", \"none\" or a range such as \"200000-200999\"")),
        }
    }
}

impl Value for WorkerMemory {
    fn from_text(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(WorkerMemory::Auto),
            "none" => Ok(WorkerMemory::Unlimited),
            size => match parse_size(size)? {
                // Libraries of some vendors take that much before they do anything.
                bytes if bytes < SMALLEST => {
                    Err(format!("\"{size}\" is too little for any worker; write at least 256MiB"))
                }
                bytes => Ok(WorkerMemory::Bytes(bytes)),
            },
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => WorkerMemory::from_text(text),
            other => Err(wrong_type(other, "\"auto\", \"none\" or a size such as \"16GiB\"")),
        }
    }
}

const SMALLEST: u64 = 256 << 20;

impl Value for WorkerPaths {
    const EMPTY_COUNTS: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        paths(split(text))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        paths(texts(value, r#"["/opt/vendor"]"#)?.into_iter())
    }
}

fn paths<'t>(texts: impl Iterator<Item = &'t str>) -> Result<WorkerPaths, String> {
    let path = |text: &str| match text.trim() {
        path if !path.starts_with('/') => Err(format!("\"{path}\" is not an absolute path")),
        "/" => Err("\"/\" would open everything to workers; write confine = \"off\" if you mean it".to_owned()),
        path => Ok(path.into()),
    };
    texts.map(path).collect::<Result<_, _>>().map(WorkerPaths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confinement_is_on_off_or_required() {
        let parsed = ["on", " off", "require"].map(Confine::from_text);
        assert_eq!(parsed, [Ok(Confine::On), Ok(Confine::Off), Ok(Confine::Require)]);
        assert!(["", "true", "On"].iter().all(|text| Confine::from_text(text).is_err()));
    }

    #[test]
    fn users_of_workers_are_a_range_without_root() {
        assert_eq!(WorkerUsers::from_text("auto"), Ok(WorkerUsers::Auto));
        assert_eq!(WorkerUsers::from_text("none"), Ok(WorkerUsers::None));
        assert_eq!(WorkerUsers::from_text("200000 - 200999"), Ok(WorkerUsers::Ids(200_000..=200_999)));
        for wrong in ["", "7", "0-7", "8-7", "1-4294967295", "-1-5", "a-b"] {
            assert!(WorkerUsers::from_text(wrong).unwrap_err().contains("range of user ids"), "{wrong}");
        }
    }

    #[test]
    fn memory_of_workers_is_a_size_that_is_of_use() {
        assert_eq!(WorkerMemory::from_text("auto"), Ok(WorkerMemory::Auto));
        assert_eq!(WorkerMemory::from_text("none"), Ok(WorkerMemory::Unlimited));
        assert_eq!(WorkerMemory::from_text("16GiB"), Ok(WorkerMemory::Bytes(16 << 30)));
        for wrong in ["", "16", "1MiB"] {
            assert!(WorkerMemory::from_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_of_workers_are_absolute_and_not_everything() {
        assert_eq!(WorkerPaths::from_text("/opt/a, /dev/b"), Ok(WorkerPaths(vec!["/opt/a".into(), "/dev/b".into()])));
        assert_eq!(WorkerPaths::from_text(""), Ok(WorkerPaths(Vec::new())));
        for wrong in ["opt", "/", "/opt,,"] {
            assert!(WorkerPaths::from_text(wrong).is_err(), "{wrong}");
        }
    }
}
