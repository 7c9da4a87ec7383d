//! What can be wrong with a configuration. Every message is one line and names the place.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{origin} names {}, which does not exist", path.display())]
    Missing {
        /// The variable or flag that named the file.
        origin: &'static str,
        path: PathBuf,
    },
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{} is {what}, not a configuration file", path.display())]
    NotAFile { path: PathBuf, what: &'static str },
    #[error("{} is larger than {limit} bytes", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{}, line {line}: not valid TOML: {reason}", path.display())]
    Syntax { path: PathBuf, line: usize, reason: String },
    #[error("{}, line {line}: unknown key {key:?}{hint}", path.display())]
    UnknownKey {
        path: PathBuf,
        line: usize,
        /// With its table, as in `serve.listen`.
        key: String,
        /// Empty, or what was probably meant.
        hint: String,
    },
    #[error("{}, line {line}: {key}: {reason}", path.display())]
    Value { path: PathBuf, line: usize, key: String, reason: String },
    #[error("{variable}: {reason}")]
    Variable { variable: &'static str, reason: String },
}
