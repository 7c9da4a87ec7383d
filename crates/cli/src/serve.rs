//! `telecl serve`: the service, in the foreground.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use telecl_config::{
    Address, Audit, Confine, Environment, ServeConfig, ServiceCredentialFiles, StateDir, WorkerMemory, WorkerUsers,
};
use telecl_service::{Confinement, Mode, ServeError, ServeSettings, Survival, WorkerCommand};
use tracing_subscriber::EnvFilter;

use crate::exit::{Exit, Failure, Outcome, print};
use crate::{LogFormat, ServeArgs, WorkerArgs};

/// Flags for what the service shows, and by what it knows drivers.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Credentials (files, read again when they change; docs/credentials.md)")]
pub(crate) struct CredentialArgs {
    /// The service's certificate, for TLS
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The CA that vouches for drivers with certificates
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Public keys of those who sign tokens
    #[arg(long, value_name = "FILE")]
    token_keys: Option<PathBuf>,
    /// Ids of tokens that are not taken any more
    #[arg(long, value_name = "FILE")]
    revoked: Option<PathBuf>,
    /// The Unix socket of whoever reviews tokens of Kubernetes' service accounts (telecl-kube agent)
    #[arg(long, value_name = "SOCKET")]
    token_review: Option<PathBuf>,
    /// A secret that drivers have too
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Write a line of JSON for everybody who connects to this file, or to stderr
    #[arg(long, value_name = "FILE|stderr")]
    audit: Option<PathBuf>,
    /// Let other machines connect without encryption and credentials: on a network where you trust everybody
    #[arg(long)]
    insecure: bool,
}

impl CredentialArgs {
    /// Drivers are known by this secret.
    pub(crate) fn use_secret(&mut self, file: PathBuf) {
        self.secret = Some(file);
    }

    /// Those of the command line, otherwise the configured ones.
    fn or(self, configured: ServiceCredentialFiles) -> Result<ServiceCredentialFiles, Failure> {
        Ok(ServiceCredentialFiles {
            certificate: absolute("--certificate", self.certificate)?.or(configured.certificate),
            key: absolute("--key", self.key)?.or(configured.key),
            client_ca: absolute("--client-ca", self.client_ca)?.or(configured.client_ca),
            token_keys: absolute("--token-keys", self.token_keys)?.or(configured.token_keys),
            revoked: absolute("--revoked", self.revoked)?.or(configured.revoked),
            token_review: absolute("--token-review", self.token_review)?.or(configured.token_review),
            secret: absolute("--secret", self.secret)?.or(configured.secret),
            insecure: self.insecure || configured.insecure,
            ..configured
        })
    }
}

fn audit(given: Option<PathBuf>, configured: Option<Audit>) -> Result<Option<Audit>, Failure> {
    match given {
        None => Ok(configured),
        Some(place) if place.as_os_str() == "stderr" => Ok(Some(Audit::Stderr)),
        Some(place) => Ok(absolute("--audit", Some(place))?.map(Audit::File)),
    }
}

pub(crate) fn serve(args: ServeArgs) -> Outcome {
    run(settings(args)?, |addresses| {
        for address in addresses {
            print(format_args!("listening on {address}\n"));
        }
    })
}

/// What the command line and the configuration come to. Logs go to stderr from now on.
pub(crate) fn settings(args: ServeArgs) -> Result<ServeSettings, Failure> {
    let mut environment = Environment::process();
    if let Some(file) = &args.config {
        environment = environment.with_file(file);
    }
    let config = ServeConfig::load_from(&environment)?;
    let given_or = |given: Vec<String>, configured| if given.is_empty() { configured } else { given };
    log_to_stderr(args.log_format, "info");
    let confinement = confinement(args.confine.or(config.confine).unwrap_or(Confine::On), &config);
    Ok(ServeSettings {
        listen: if args.listen.is_empty() { config.listen } else { args.listen },
        local_socket: config.local_socket,
        platforms: given_or(args.platforms, config.platforms),
        devices: given_or(args.devices, config.devices),
        handshake_timeout: config.handshake_timeout,
        warm_workers: config.warm_workers,
        cache_dir: config.cache_dir,
        cache_size: config.cache_size,
        policy: absolute("--policy", args.policy.or(config.policy))?,
        metrics: args.metrics.or(config.metrics),
        accounting: config.accounting,
        audit: audit(args.credentials.audit.clone(), config.audit)?,
        credentials: args.credentials.or(config.credentials)?,
        compression: config.compression,
        confinement,
        survival: survival(config.state_dir, config.orphan_grace),
        drain_grace: config.drain_grace,
        terms: config.terms,
        node_name: config.node_name,
        node_address: config.node_address,
        worker: worker_command(args.log_format, "info")?,
    })
}

/// How workers are confined.
pub(crate) fn confinement(confine: Confine, config: &ServeConfig) -> Confinement {
    let default = Confinement::default();
    Confinement {
        mode: match confine {
            Confine::On => Mode::On,
            Confine::Off => Mode::Off,
            Confine::Require => Mode::Require,
        },
        users: match &config.worker_uids {
            WorkerUsers::Auto => default.users,
            WorkerUsers::None => None,
            WorkerUsers::Ids(range) => Some(range.clone()),
        },
        memory: match config.worker_memory {
            WorkerMemory::Auto => default.memory,
            WorkerMemory::Unlimited => None,
            WorkerMemory::Bytes(bytes) => Some(bytes),
        },
        paths: config.worker_paths.clone(),
    }
}

/// How sessions outlive the service, if they are to.
fn survival(state_dir: StateDir, grace: Duration) -> Option<Survival> {
    let state_dir = match state_dir {
        StateDir::None => return None,
        StateDir::Derived => None,
        StateDir::At(directory) => Some(directory),
    };
    (!grace.is_zero()).then_some(Survival { state_dir, grace })
}

/// A path has to hold for as long as the service runs, which looks at it again and again.
fn absolute(flag: &str, path: Option<PathBuf>) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = path else { return Ok(None) };
    match std::path::absolute(&path) {
        Ok(path) => Ok(Some(path)),
        Err(error) => {
            let what = format!("{} has no absolute path: {error}", path.display());
            Err(Failure::new(Exit::Usage, what, format!("Name a file with its whole path: {flag} /etc/telecl/...")))
        }
    }
}

/// Serves until it is told to stop.
pub(crate) fn run(settings: ServeSettings, ready: impl FnOnce(&[Address])) -> Outcome {
    match telecl_service::serve(settings, ready) {
        Ok(()) => Ok(Exit::Ok),
        Err(ServeError::Policy(error)) => Err(Failure::new(Exit::Usage, error, "Check it: telecl policy check FILE")),
        Err(error @ (ServeError::Open { .. } | ServeError::Credentials(_))) => {
            Err(Failure::new(Exit::Usage, error, ""))
        }
        // Its messages end with what to do.
        Err(error) => Err(Failure::new(Exit::Failed, error, "")),
    }
}

/// Workers are this executable, so that broker and worker are of one version. They log as their broker does.
pub(crate) fn worker_command(format: LogFormat, level: &str) -> Result<WorkerCommand, Failure> {
    let format = match format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    let args = ["worker", "--log-format", format, "--log-level", level].map(Into::into).to_vec();
    Ok(WorkerCommand { program: this_executable()?, args })
}

/// The path of this executable, to start it again in another role.
pub(crate) fn this_executable() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        let what = format!("cannot find the path of this executable: {error}");
        Failure::new(Exit::Failed, what, "Is /proc mounted?")
    })
}

/// The hidden command `telecl worker`.
pub(crate) fn worker(args: &WorkerArgs) -> ExitCode {
    log_to_stderr(args.log_format, &args.log_level);
    match (args.inventory, args.sensors) {
        (true, _) => telecl_service::inventory_main(),
        (_, true) => telecl_service::sensors_main(),
        _ => telecl_service::worker_main(telecl_service::Clearing::WhereNeeded),
    }
}

/// Logs go to stderr, filtered by `RUST_LOG` or else at `level`.
pub(crate) fn log_to_stderr(format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    match format {
        LogFormat::Text => log.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => log.json().init(),
    }
}
