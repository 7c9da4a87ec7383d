//! What the service needs to know.

use std::path::PathBuf;
use std::time::Duration;

use telecl_net::{Address, Compression, Terms};

use crate::settings::Settings;
use crate::worker::{Confine, WorkerMemory, WorkerUsers};
use crate::{Audit, ConfigError, Environment, ServiceCredentialFiles, Source};

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
    /// What is shown to drivers, and by what they are known.
    pub credentials: ServiceCredentialFiles,
    /// Where a line goes for everybody who connects; `None` means nowhere.
    pub audit: Option<Audit>,
    /// Whether bulk data is compressed on its way.
    pub compression: Compression,
    /// Whether workers are confined; `None` if nobody says.
    pub confine: Option<Confine>,
    /// The users that workers become if the service is root.
    pub worker_uids: WorkerUsers,
    /// How much memory of its own a worker may have.
    pub worker_memory: WorkerMemory,
    /// What workers may read and execute beside what all may.
    pub worker_paths: Vec<PathBuf>,
    pub state_dir: StateDir,
    /// How long sessions wait for the next service when theirs was killed; zero ends them with it.
    pub orphan_grace: Duration,
    /// How long sessions may go on when the service is told to stop.
    pub drain_grace: Duration,
    /// When a driver is taken for dead, and how long a session is kept whose connection is lost.
    pub terms: Terms,
    /// What the node is called, and its address, where the system's own host name does not say it.
    pub node_name: Option<String>,
    pub node_address: Option<String>,
    pub source: Source,
}

/// Where the next service finds the sessions of one that was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateDir {
    /// By where the service listens.
    Derived,
    At(PathBuf),
    /// Nowhere: sessions end with their service.
    None,
}

impl Default for ServeConfig {
    /// All devices, on loopback, where nobody needs credentials. Without a place for files, which only an environment
    /// knows.
    fn default() -> Self {
        ServeConfig {
            listen: vec![Address::tcp("127.0.0.1", 7701)],
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
            credentials: ServiceCredentialFiles::default(),
            audit: None,
            compression: Compression::Auto,
            confine: None,
            worker_uids: WorkerUsers::Auto,
            worker_memory: WorkerMemory::Auto,
            worker_paths: Vec::new(),
            state_dir: StateDir::Derived,
            orphan_grace: Duration::from_secs(30),
            drain_grace: Duration::from_secs(30),
            terms: Terms::default(),
            node_name: None,
            node_address: None,
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
        let credentials = ServiceCredentialFiles::of(&settings);
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
            credentials,
            audit: settings.audit.map(|place| place.0),
            compression: settings.serve_compression.unwrap_or(default.compression),
            confine: settings.confine,
            worker_uids: settings.worker_uids.unwrap_or(default.worker_uids),
            worker_memory: settings.worker_memory.unwrap_or(default.worker_memory),
            worker_paths: settings.worker_paths.map_or(default.worker_paths, |paths| paths.0),
            state_dir: settings
                .state_dir
                .map_or(default.state_dir, |place| place.0.map_or(StateDir::None, StateDir::At)),
            orphan_grace: settings.orphan_grace.map_or(default.orphan_grace, |grace| grace.0.unwrap_or_default()),
            drain_grace: settings.drain_grace.map_or(default.drain_grace, |grace| grace.0.unwrap_or_default()),
            terms: crate::terms(settings.serve_heartbeat, settings.serve_grace),
            node_name: settings.serve_node_name.map(|name| name.0),
            node_address: settings.serve_node_address.map(|address| address.0),
            source: settings.source,
        })
    }
}
