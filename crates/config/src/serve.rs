//! What the service needs to know.

use std::path::PathBuf;
use std::time::Duration;

use telecl_net::{Address, Compression, Terms};

use crate::settings::Settings;
use crate::{ConfigError, Environment, Source};

/// The service's configuration: the table `[serve]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeConfig {
    pub listen: Vec<Address>,
    /// Whether to listen at a Unix socket too, for programs on the same node.
    pub local_socket: bool,
    /// Parts of the names of the platforms to offer; none means all.
    pub platforms: Vec<String>,
    /// Parts of the names of the devices to offer; none means all.
    pub devices: Vec<String>,
    /// How long a new connection may take to introduce itself.
    pub handshake_timeout: Duration,
    /// How many workers are started ahead.
    pub warm_workers: usize,
    /// Where built programs are kept; `None` means nowhere.
    pub cache_dir: Option<PathBuf>,
    /// How many bytes of them.
    pub cache_size: u64,
    /// The file that says who may use how much; `None` lets everybody use everything.
    pub policy: Option<PathBuf>,
    /// Where metrics are offered; `None` means nowhere.
    pub metrics: Option<Address>,
    /// The file that gets a line for each session; `None` means none.
    pub accounting: Option<PathBuf>,
    /// Whether bulk data is compressed on its way.
    pub compression: Compression,
    /// When a driver is taken for dead, and how long a session is kept whose connection is lost.
    pub terms: Terms,
    pub source: Source,
}

impl Default for ServeConfig {
    /// All devices, on loopback: there is no authentication yet. Without a place for files, which only an environment
    /// knows.
    fn default() -> Self {
        ServeConfig {
            listen: vec![Address::Tcp { host: "127.0.0.1".to_owned(), port: 7701 }],
            local_socket: true,
            platforms: Vec::new(),
            devices: Vec::new(),
            handshake_timeout: Duration::from_secs(5),
            warm_workers: 1,
            cache_dir: None,
            cache_size: 1 << 30,
            policy: None,
            metrics: None,
            accounting: None,
            compression: Compression::Auto,
            terms: Terms::default(),
            source: Source::default(),
        }
    }
}

impl ServeConfig {
    /// The configuration of this process.
    pub fn load() -> Result<ServeConfig, ConfigError> {
        ServeConfig::load_from(&Environment::process())
    }

    /// The configuration in `environment`.
    pub fn load_from(environment: &Environment<'_>) -> Result<ServeConfig, ConfigError> {
        let settings = Settings::load(environment)?;
        let default = ServeConfig::default();
        Ok(ServeConfig {
            listen: settings.listen.map_or(default.listen, |listen| listen.0),
            local_socket: settings.local_socket.unwrap_or(default.local_socket),
            platforms: settings.platforms.map_or(default.platforms, |names| names.0),
            devices: settings.devices.map_or(default.devices, |names| names.0),
            handshake_timeout: settings.handshake_timeout.unwrap_or(default.handshake_timeout),
            warm_workers: settings.warm_workers.map_or(default.warm_workers, |count| count.0),
            cache_dir: settings.cache_dir.map_or_else(|| environment.cache_dir(), |place| place.0),
            cache_size: settings.cache_size.map_or(default.cache_size, |size| size.0),
            policy: settings.policy.map(|file| file.0),
            metrics: settings.metrics.map(|address| address.0),
            accounting: settings.accounting.map(|file| file.0),
            compression: settings.serve_compression.unwrap_or(default.compression),
            terms: crate::terms(settings.serve_heartbeat, settings.serve_grace),
            source: settings.source,
        })
    }
}
