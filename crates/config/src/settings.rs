//! Every key there is, and its value from the variables and the file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use telecl_net::Compression;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::Environment;
use crate::error::ConfigError;
use crate::file::{self, Found, line_at};
use crate::nearest::nearest;
use crate::value::{
    AccountingFile, AuditPlace, CacheDir, Count, CredentialFile, Limit, Listen, MetricsAddress, Name, Names,
    PolicyFile, Services, Size, StreamCount, Value, table,
};
use crate::worker::{Confine, WorkerMemory, WorkerPaths, WorkerUsers};

/// A key of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The table it stands in; empty for the top of the file.
    pub table: &'static str,
    pub name: &'static str,
    /// The variable that beats the file.
    pub variable: &'static str,
}

/// Where a configuration came from, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// The variables that were set.
    pub variables: Vec<&'static str>,
}

impl Source {
    /// Whether there was any configuration at all.
    pub fn is_none(&self) -> bool {
        self.file.is_none() && self.variables.is_empty()
    }
}

/// A key has the name of its field, unless that is said otherwise: the driver and the service may have keys of one name.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $name:literal) => {
        $name
    };
}

/// One list makes the fields, the reader of the file, the reader of the variables and [`KEYS`].
macro_rules! settings {
    ($($field:ident $(($name:literal))?: $kind:ty, $table:literal, $variable:literal;)*) => {
        /// What was configured; `None` leaves the default.
        #[derive(Debug, Default)]
        pub(crate) struct Settings {
            $(pub(crate) $field: Option<$kind>,)*
            pub(crate) source: Source,
        }

        /// Every key, in the order of the documentation.
        pub const KEYS: &[Key] =
            &[$(Key { table: $table, name: key!($field $($name)?), variable: $variable },)*];

        impl Settings {
            /// Takes the value of a key from the file; `false` if there is no such key.
            fn set(&mut self, table: &str, name: &str, value: &DeValue<'_>) -> Result<bool, String> {
                match (table, name) {
                    $(($table, key!($field $($name)?)) => self.$field = Some(Value::from_toml(value)?),)*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            fn read_variables(&mut self, environment: &Environment<'_>) -> Result<(), ConfigError> {
                $(if let Some(value) = from_variable(environment, $variable)? {
                    self.$field = Some(value);
                    self.source.variables.push($variable);
                })*
                Ok(())
            }
        }
    };
}

settings! {
    services: Services, "", "TELECL_SERVICES";
    connect_timeout: Duration, "", "TELECL_CONNECT_TIMEOUT";
    strict: bool, "", "TELECL_STRICT";
    plain_names: bool, "", "TELECL_PLAIN_NAMES";
    shared_memory: bool, "", "TELECL_SHARED_MEMORY";
    compression: Compression, "", "TELECL_COMPRESSION";
    streams: StreamCount, "", "TELECL_STREAMS";
    heartbeat: Limit, "", "TELECL_HEARTBEAT";
    grace: Limit, "", "TELECL_GRACE";
    ca: CredentialFile, "", "TELECL_CA";
    certificate: CredentialFile, "", "TELECL_CERTIFICATE";
    key: CredentialFile, "", "TELECL_KEY";
    token: CredentialFile, "", "TELECL_TOKEN";
    secret: CredentialFile, "", "TELECL_SECRET";
    insecure: bool, "", "TELECL_INSECURE";
    node_address: Name, "", "TELECL_NODE_ADDRESS";
    container: Name, "", "TELECL_CONTAINER";
    profile: Name, "", "TELECL_PROFILE";
    debug: bool, "", "TELECL_DEBUG";
    listen: Listen, "serve", "TELECL_LISTEN";
    local_socket: bool, "serve", "TELECL_LOCAL_SOCKET";
    platforms: Names, "serve", "TELECL_PLATFORMS";
    devices: Names, "serve", "TELECL_DEVICES";
    handshake_timeout: Duration, "serve", "TELECL_HANDSHAKE_TIMEOUT";
    warm_workers: Count, "serve", "TELECL_WARM_WORKERS";
    cache_dir: CacheDir, "serve", "TELECL_CACHE_DIR";
    cache_size: Size, "serve", "TELECL_CACHE_SIZE";
    policy: PolicyFile, "serve", "TELECL_POLICY";
    metrics: MetricsAddress, "serve", "TELECL_METRICS";
    accounting: AccountingFile, "serve", "TELECL_ACCOUNTING";
    serve_compression ("compression"): Compression, "serve", "TELECL_SERVE_COMPRESSION";
    serve_heartbeat ("heartbeat"): Limit, "serve", "TELECL_SERVE_HEARTBEAT";
    serve_grace ("grace"): Limit, "serve", "TELECL_SERVE_GRACE";
    confine: Confine, "serve", "TELECL_CONFINE";
    worker_uids: WorkerUsers, "serve", "TELECL_WORKER_UIDS";
    worker_memory: WorkerMemory, "serve", "TELECL_WORKER_MEMORY";
    worker_paths: WorkerPaths, "serve", "TELECL_WORKER_PATHS";
    state_dir: CacheDir, "serve", "TELECL_STATE_DIR";
    orphan_grace: Limit, "serve", "TELECL_ORPHAN_GRACE";
    drain_grace: Limit, "serve", "TELECL_DRAIN_GRACE";
    serve_certificate ("certificate"): CredentialFile, "serve", "TELECL_SERVE_CERTIFICATE";
    serve_key ("key"): CredentialFile, "serve", "TELECL_SERVE_KEY";
    client_ca: CredentialFile, "serve", "TELECL_CLIENT_CA";
    token_keys: CredentialFile, "serve", "TELECL_TOKEN_KEYS";
    revoked: CredentialFile, "serve", "TELECL_REVOKED";
    token_review: CredentialFile, "serve", "TELECL_TOKEN_REVIEW";
    serve_secret ("secret"): CredentialFile, "serve", "TELECL_SERVE_SECRET";
    secret_tenant: Name, "serve", "TELECL_SECRET_TENANT";
    require_credentials: bool, "serve", "TELECL_REQUIRE_CREDENTIALS";
    serve_insecure ("insecure"): bool, "serve", "TELECL_SERVE_INSECURE";
    audit: AuditPlace, "serve", "TELECL_AUDIT";
    serve_node_name ("node_name"): Name, "serve", "TELECL_NODE_NAME";
    serve_node_address ("node_address"): Name, "serve", "TELECL_NODE_ADDRESS";
}

impl Settings {
    /// Reads the first file that exists, then the variables.
    pub(crate) fn load(environment: &Environment<'_>) -> Result<Settings, ConfigError> {
        let mut settings = Settings::default();
        if let Some(found) = file::find(environment)? {
            settings.read_file(&found)?;
            settings.source.file = Some(found.path);
        }
        settings.read_variables(environment)?;
        Ok(settings)
    }

    fn read_file(&mut self, found: &Found) -> Result<(), ConfigError> {
        let top = DeTable::parse(&found.text).map_err(|error| ConfigError::Syntax {
            path: found.path.clone(),
            line: line_at(found.text.as_bytes(), error.span().map_or(0, |span| span.start)),
            // One line, as every other message.
            reason: error.message().replace('\n', ", "),
        })?;
        for (key, value) in in_file_order(top.get_ref()) {
            if key.get_ref() != "serve" {
                self.read_key(found, "", key, value)?;
                continue;
            }
            let serve = table(value.get_ref()).map_err(|reason| value_error(found, "serve", value, reason))?;
            for (key, value) in in_file_order(serve) {
                self.read_key(found, "serve", key, value)?;
            }
        }
        Ok(())
    }

    fn read_key(
        &mut self,
        found: &Found,
        table: &str,
        key: &Spanned<DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), ConfigError> {
        let name = key.get_ref().as_ref();
        let full = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
        match self.set(table, name, value.get_ref()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(ConfigError::UnknownKey {
                path: found.path.clone(),
                line: line_at(found.text.as_bytes(), key.span().start),
                hint: hint(table, name),
                key: full,
            }),
            Err(reason) => Err(value_error(found, &full, value, reason)),
        }
    }
}

fn value_error(found: &Found, key: &str, value: &Spanned<DeValue<'_>>, reason: String) -> ConfigError {
    let line = line_at(found.text.as_bytes(), value.span().start);
    ConfigError::Value { path: found.path.clone(), line, key: key.to_owned(), reason }
}

/// The entries of a table by their place in the file: the first mistake is the one to report, and the parser's map has no
/// order.
pub fn in_file_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Spanned<DeString<'i>>, &'t Spanned<DeValue<'i>>)> {
    let by_position: BTreeMap<usize, _> = table.iter().map(|(key, value)| (key.span().start, (key, value))).collect();
    by_position.into_values().collect()
}

/// What was probably meant by an unknown key.
fn hint(table: &str, name: &str) -> String {
    if let Some(key) = KEYS.iter().find(|key| key.name == name) {
        return match key.table {
            "" => format!(" ({name} stands at the top of the file, before any table)"),
            table => format!(" ({name} belongs to the table [{table}])"),
        };
    }
    let tables = ["serve"].into_iter().filter(|_| table.is_empty());
    let names = KEYS.iter().filter(|key| key.table == table).map(|key| key.name).chain(tables);
    match nearest(name, names) {
        Some(meant) => format!(" (did you mean {meant:?}?)"),
        None => String::new(),
    }
}

fn from_variable<T: Value>(environment: &Environment<'_>, variable: &'static str) -> Result<Option<T>, ConfigError> {
    let Some(value) = environment.variable(variable) else {
        return Ok(None);
    };
    let error = |reason| ConfigError::Variable { variable, reason };
    let text = value.to_str().ok_or_else(|| error("is not UTF-8".to_owned()))?;
    if text.trim().is_empty() && !T::EMPTY_COUNTS {
        return Ok(None);
    }
    T::from_text(text).map(Some).map_err(error)
}
