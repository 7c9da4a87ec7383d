//! What a key of the policy may hold. A reader says in one sentence what is wrong and what to write instead.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use toml::de::DeValue;

use crate::quantity::{Percent, parse_size, parse_time, show_size, show_time};
use crate::tenant::Tenant;

/// A value that can be read from the file and shown as it would stand there.
pub(crate) trait Value: Sized + Clone {
    /// From the file.
    fn read(value: &DeValue<'_>) -> Result<Self, String>;
    /// For people and programs.
    fn plain(&self) -> Plain;
}

/// A value as the file would have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plain {
    /// A text, also for quantities such as `4 GiB`, and `none` where there is no limit.
    Text(String),
    /// A whole number.
    Number(u64),
    /// `true` or `false`.
    Truth(bool),
    /// A list of texts.
    List(Vec<String>),
}

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Plain::Text(text) => f.write_str(text),
            Plain::Number(number) => write!(f, "{number}"),
            Plain::Truth(truth) => write!(f, "{truth}"),
            Plain::List(items) if items.is_empty() => f.write_str("[]"),
            Plain::List(items) => f.write_str(&items.join(", ")),
        }
    }
}

/// A limit of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// So many bytes.
    Bytes(u64),
    /// So much of the device's own memory.
    Part(Percent),
}

impl Memory {
    /// In bytes, on a device with so much memory: never more than it has.
    pub fn on_device(self, memory: u64) -> u64 {
        match self {
            Memory::Bytes(bytes) => bytes.min(memory),
            Memory::Part(part) => part.of(memory),
        }
    }

    /// Whether this is more than `other` on every device; `None` if that depends on the device.
    pub(crate) fn exceeds(self, other: Memory) -> Option<bool> {
        match (self, other) {
            (Memory::Bytes(one), Memory::Bytes(other)) => Some(one > other),
            (Memory::Part(one), Memory::Part(other)) => Some(one > other),
            _ => None,
        }
    }
}

impl Value for Memory {
    fn read(value: &DeValue<'_>) -> Result<Memory, String> {
        match value {
            DeValue::String(text) if text.contains('%') => Percent::parse(text).map(Memory::Part),
            DeValue::String(text) => parse_size(text).map(Memory::Bytes),
            other => Err(wrong(other, "a size such as \"4 GiB\", or a part of the device such as \"50 %\"")),
        }
    }

    fn plain(&self) -> Plain {
        Plain::Text(match self {
            Memory::Bytes(bytes) => show_size(*bytes),
            Memory::Part(part) => part.to_string(),
        })
    }
}

impl Value for Percent {
    fn read(value: &DeValue<'_>) -> Result<Percent, String> {
        match value {
            DeValue::String(text) => Percent::parse(text),
            other => Err(wrong(other, "a part of the device such as \"20 %\"")),
        }
    }

    fn plain(&self) -> Plain {
        Plain::Text(self.to_string())
    }
}

/// A whole number from 1 to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole<const MOST: u32>(pub(crate) NonZeroU32);

impl<const MOST: u32> Value for Whole<MOST> {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let expected = format!("a whole number from 1 to {MOST}, without quotes");
        let DeValue::Integer(number) = value else {
            return Err(wrong(value, &expected));
        };
        let read = u32::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| *number <= MOST);
        let read = read.and_then(NonZeroU32::new);
        read.map(Whole).ok_or_else(|| format!("{} is out of range; write {expected}", show(value)))
    }

    fn plain(&self) -> Plain {
        Plain::Number(self.0.get().into())
    }
}

impl Value for Duration {
    fn read(value: &DeValue<'_>) -> Result<Duration, String> {
        let DeValue::String(text) = value else {
            return Err(wrong(value, "a time such as \"30 s\" or \"5 m\""));
        };
        match parse_time(text)? {
            time if time.is_zero() => Err(format!("{text:?} is no time at all; write at least \"1 ms\"")),
            time => Ok(time),
        }
    }

    fn plain(&self) -> Plain {
        Plain::Text(show_time(*self))
    }
}

/// A time to wait, which may be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait(pub(crate) Duration);

impl Value for Wait {
    fn read(value: &DeValue<'_>) -> Result<Wait, String> {
        match value {
            DeValue::String(text) => parse_time(text).map(Wait),
            other => Err(wrong(other, "a time such as \"30 s\", or \"0 s\" to refuse at once")),
        }
    }

    fn plain(&self) -> Plain {
        Plain::Text(show_time(self.0))
    }
}

impl Value for bool {
    fn read(value: &DeValue<'_>) -> Result<bool, String> {
        match value {
            DeValue::Boolean(truth) => Ok(*truth),
            other => Err(wrong(other, "true or false, without quotes")),
        }
    }

    fn plain(&self) -> Plain {
        Plain::Truth(*self)
    }
}

impl Value for Tenant {
    fn read(value: &DeValue<'_>) -> Result<Tenant, String> {
        match value {
            DeValue::String(text) => Tenant::parse(text)
                .map_err(|error| format!("{text:?} is none: {error}; write \"team-red\" or the like")),
            other => Err(wrong(other, "a name such as \"team-red\"")),
        }
    }

    fn plain(&self) -> Plain {
        Plain::Text(self.as_str().to_owned())
    }
}

/// A limit: `"none"` takes away what the defaults say.
impl<T: Value> Value for Option<T> {
    fn read(value: &DeValue<'_>) -> Result<Option<T>, String> {
        match value {
            DeValue::String(text) if text.trim() == "none" => Ok(None),
            other => T::read(other).map(Some).map_err(|reason| format!("{reason}, or \"none\"")),
        }
    }

    fn plain(&self) -> Plain {
        self.as_ref().map_or_else(|| Plain::Text("none".to_owned()), T::plain)
    }
}

/// One of a few words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$word_doc])* $variant,)*
        }

        impl $name {
            const WORDS: &[(&str, $name)] = &[$(($word, $name::$variant),)*];
        }

        impl Value for $name {
            fn read(value: &DeValue<'_>) -> Result<$name, String> {
                read_word(value, $name::WORDS)
            }

            fn plain(&self) -> Plain {
                let word = $name::WORDS.iter().find(|(_, variant)| variant == self).map(|(word, _)| *word);
                Plain::Text(word.unwrap_or_default().to_owned())
            }
        }
    };
}

words! {
    /// Who goes first on a device.
    Priority {
        /// After all others, but never without a turn for long.
        Low = "low",
        /// As most do.
        Normal = "normal",
        /// Before all others.
        High = "high",
    }
}

words! {
    /// What happens to a session whose kernel takes longer than its tenant's kernels may.
    Overrun {
        /// It is reported in the log and counted.
        Report = "report",
        /// Its session is ended, too.
        End = "end",
    }
}

words! {
    /// In which order a service lists the devices of a platform.
    DeviceOrder {
        /// As the vendor does.
        Number = "number",
        /// Those first that fewest sessions use.
        Load = "load",
    }
}

fn read_word<T: Copy>(value: &DeValue<'_>, words: &[(&str, T)]) -> Result<T, String> {
    let list: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    let expected = list.join(" or ");
    let DeValue::String(text) = value else {
        return Err(wrong(value, &expected));
    };
    match words.iter().find(|(word, _)| *word == text.as_ref()) {
        Some((_, found)) => Ok(*found),
        None => Err(format!("{text:?} is not known; write {expected}")),
    }
}

/// Says that a value is of the wrong kind, and what to write.
pub(crate) fn wrong(value: &DeValue<'_>, expected: &str) -> String {
    let kind = match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a truth value",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => return format!("is a list; write {expected}"),
        DeValue::Table(_) => return format!("is a table; write {expected}"),
    };
    format!("{} is {kind}; write {expected}", show(value))
}

/// A value as it stands in the file, if that is short.
fn show(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => "this".to_owned(),
    }
}
