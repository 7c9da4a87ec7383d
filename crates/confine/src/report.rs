//! What came of it, for people.

use std::fmt;

/// How far a part is enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Level {
    Enforced,
    /// The rest is left to another part.
    Partly,
    Missing,
    /// Nobody wants it here.
    Unneeded,
}

/// One of the things that confine a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub name: &'static str,
    pub level: Level,
    /// By what, or why not.
    pub detail: String,
}

impl Part {
    pub(crate) fn new(name: &'static str, level: Level, detail: impl Into<String>) -> Part {
        Part { name, level, detail: detail.into() }
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.level == Level::Missing
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Enforced => "enforced",
            Level::Partly => "partly",
            Level::Missing => "missing",
            Level::Unneeded => "not needed",
        };
        write!(f, "{}: {level} ({})", self.name, self.detail)
    }
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub parts: Vec<Part>,
}

impl Report {
    /// What is missing and why; empty if nothing is.
    pub fn missing(&self) -> String {
        let parts = self.parts.iter().filter(|part| part.is_missing());
        parts.map(|part| format!("{}: {}", part.name, part.detail)).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.parts.iter().map(Part::to_string).collect();
        f.write_str(&parts.join(", "))
    }
}
