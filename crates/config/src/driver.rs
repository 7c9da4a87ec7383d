//! What the driver needs to know.

use std::time::Duration;

use telecl_net::{Address, Compression, Terms};

use crate::settings::Settings;
use crate::{ConfigError, CredentialFiles, Environment, INSIDE_SERVICE, Source, StreamCount};

/// The driver's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverConfig {
    /// The services whose devices the program sees, in this order. None: the driver is inert.
    pub services: Vec<Address>,
    /// How long the driver waits for a service to answer before it does without it.
    pub connect_timeout: Duration,
    /// Whether creates wait for the vendor's own answer, instead of reporting its errors later.
    pub strict: bool,
    /// Whether platforms keep the vendor's names, without the address of their service: some programs compare them.
    pub plain_names: bool,
    /// Whether a service on the same node is used through shared memory, if it can be.
    pub shared_memory: bool,
    /// Whether bulk data is compressed on its way.
    pub compression: Compression,
    /// How many further streams a session over TCP has for large transfers.
    pub streams: StreamCount,
    /// What is shown to services, and who vouches for them.
    pub credentials: CredentialFiles,
    /// The address of the node that the program runs on, where it is known: a service that says the same is on that node.
    pub node_address: Option<String>,
    /// When a service is taken for dead, and how long a session may be without a connection.
    pub terms: Terms,
    /// Whether the driver writes what it does to stderr.
    pub debug: bool,
    pub source: Source,
}

impl Default for DriverConfig {
    /// Inert.
    fn default() -> Self {
        DriverConfig {
            services: Vec::new(),
            connect_timeout: Duration::from_secs(2),
            strict: false,
            plain_names: false,
            shared_memory: true,
            compression: Compression::Auto,
            streams: StreamCount::Auto,
            credentials: CredentialFiles::default(),
            node_address: None,
            terms: Terms::default(),
            debug: false,
            source: Source::default(),
        }
    }
}

impl DriverConfig {
    /// The configuration of this process.
    pub fn load() -> Result<DriverConfig, ConfigError> {
        DriverConfig::load_from(&Environment::process())
    }

    /// The configuration in `environment`; inert inside a service, whatever else it says.
    pub fn load_from(environment: &Environment<'_>) -> Result<DriverConfig, ConfigError> {
        let inert = DriverConfig::default();
        if environment.variable(INSIDE_SERVICE).is_some() {
            return Ok(inert);
        }
        let settings = Settings::load(environment)?;
        let credentials = CredentialFiles::of(&settings);
        Ok(DriverConfig {
            services: settings.services.map_or(inert.services, |services| services.0),
            connect_timeout: settings.connect_timeout.unwrap_or(inert.connect_timeout),
            strict: settings.strict.unwrap_or(inert.strict),
            plain_names: settings.plain_names.unwrap_or(inert.plain_names),
            shared_memory: settings.shared_memory.unwrap_or(inert.shared_memory),
            compression: settings.compression.unwrap_or(inert.compression),
            streams: settings.streams.unwrap_or(inert.streams),
            credentials,
            node_address: settings.node_address.map(|address| address.0),
            terms: crate::terms(settings.heartbeat, settings.grace),
            debug: settings.debug.unwrap_or(inert.debug),
            source: settings.source,
        })
    }

    /// Whether there is no service to ask: the driver then offers no platform.
    pub fn is_inert(&self) -> bool {
        self.services.is_empty()
    }
}
