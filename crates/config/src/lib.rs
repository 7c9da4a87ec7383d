//! The configuration of the driver, the service and the command line: found, read and checked.
//!
//! Each key is taken from its `TELECL_*` variable if that is set, otherwise from the first
//! `telecl.toml` of these that exists: the session directory (`TELECL_SESSION_DIR`), the path in
//! `TELECL_CONFIG`, `$XDG_CONFIG_HOME/telecl/`, `/etc/telecl/`. With nothing found the driver is
//! inert: it offers no platform.
//!
//! A file is right or wrong as a whole: an unknown key or a value of the wrong type is an error
//! that names the file, the line and the key, also where this process would not have used the key.
//! This crate opens no connection and prints nothing.
#![forbid(unsafe_code)]

mod credentials;
mod driver;
mod environment;
mod error;
mod file;
mod nearest;
mod serve;
mod settings;
mod value;
mod worker;

pub use credentials::{CredentialFiles, ServiceCredentialFiles};
pub use driver::DriverConfig;
pub use environment::Environment;
pub use error::ConfigError;
pub use file::{line_at, read_text};
pub use nearest::nearest;
pub use serve::{ServeConfig, StateDir};
pub use settings::{KEYS, Key, Source, in_file_order};
pub use value::{Audit, StreamCount, parse_duration, parse_grace, parse_metrics_address};
pub use worker::{Confine, WorkerMemory, WorkerUsers, parse_confine};

/// A service's address, as it stands in `services` and `listen`.
pub use telecl_net::Address;
/// The values of `compression`.
pub use telecl_net::Compression;

/// When a peer is taken for dead, and how long a session may be without a connection.
pub use telecl_net::Terms;

/// Set by the service for its workers: a driver that sees it offers nothing, so that a service never
/// serves the devices of another service, or its own.
pub const INSIDE_SERVICE: &str = "TELECL_INSIDE_SERVICE";

/// Names a directory, made by an orchestrator for one session, that holds a `telecl.toml`.
pub const SESSION_DIR: &str = "TELECL_SESSION_DIR";

/// Names a configuration file; it must exist.
pub const CONFIG: &str = "TELECL_CONFIG";

/// What was configured of `heartbeat` and `grace`, and otherwise the defaults.
fn terms(heartbeat: Option<value::Limit>, grace: Option<value::Limit>) -> Terms {
    let default = Terms::default();
    Terms {
        heartbeat: heartbeat.map_or(default.heartbeat, |limit| limit.0),
        grace: grace.map_or(default.grace, |limit| limit.0.unwrap_or_default()),
    }
}

/// Every `TELECL_*` variable that this version reads.
pub fn variables() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.variable).chain([INSIDE_SERVICE, SESSION_DIR, CONFIG])
}
