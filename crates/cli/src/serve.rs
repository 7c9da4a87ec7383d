//! `telecl serve`: the service, in the foreground.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use telecl_config::{Address, Environment, ServeConfig};
use telecl_service::{ServeError, ServeSettings, WorkerCommand};
use tracing_subscriber::EnvFilter;

use crate::exit::{Exit, Failure, Outcome, print};
use crate::{LogFormat, ServeArgs, WorkerArgs};

pub(crate) fn serve(args: ServeArgs) -> Outcome {
    let mut environment = Environment::process();
    if let Some(file) = &args.config {
        environment = environment.with_file(file);
    }
    let config = ServeConfig::load_from(&environment)?;
    let given_or = |given: Vec<String>, configured| if given.is_empty() { configured } else { given };
    log_to_stderr(args.log_format, "info");
    let settings = ServeSettings {
        listen: if args.listen.is_empty() { config.listen } else { args.listen },
        local_socket: config.local_socket,
        platforms: given_or(args.platforms, config.platforms),
        devices: given_or(args.devices, config.devices),
        handshake_timeout: config.handshake_timeout,
        warm_workers: config.warm_workers,
        cache_dir: config.cache_dir,
        cache_size: config.cache_size,
        policy: policy(args.policy, config.policy)?,
        metrics: args.metrics.or(config.metrics),
        accounting: config.accounting,
        compression: config.compression,
        terms: config.terms,
        worker: worker_command(args.log_format, "info")?,
    };
    run(settings, |addresses| {
        for address in addresses {
            print(format_args!("listening on {address}\n"));
        }
    })
}

/// The policy's file: that of the command line, otherwise the configured one. Its path has to hold for as long as the
/// service runs, which looks at it again and again.
fn policy(given: Option<PathBuf>, configured: Option<PathBuf>) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = given.or(configured) else { return Ok(None) };
    match std::path::absolute(&path) {
        Ok(path) => Ok(Some(path)),
        Err(error) => {
            let what = format!("the policy {} has no absolute path: {error}", path.display());
            Err(Failure::new(Exit::Usage, what, "Name one: --policy /etc/telecl/policy.toml"))
        }
    }
}

/// Serves until it is told to stop.
pub(crate) fn run(settings: ServeSettings, ready: impl FnOnce(&[Address])) -> Outcome {
    match telecl_service::serve(settings, ready) {
        Ok(()) => Ok(Exit::Ok),
        Err(ServeError::Policy(error)) => Err(Failure::new(Exit::Usage, error, "Check it: telecl policy check FILE")),
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
