//! The `telecl` command: serve, devices, run, top, sessions, drain, doctor, bench, policy, pki, token, secret,
//! slurm, container-args.
//!
//! Each subcommand is a module with a function of its name. All of them end in an [`exit::Outcome`];
//! only `main` turns it into a message and an exit code.
#![forbid(unsafe_code)]

mod bench;
mod credentials;
mod devices;
mod doctor;
mod drain;
mod exit;
mod keeper;
mod launch;
mod pki;
mod policy;
mod probe;
mod run;
mod serve;
mod sessions;
mod slurm;
mod survey;
mod top;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use telecl_config::{Address, Confine};
use telecl_human as human;

/// OpenCL at a distance: programs use accelerators of other machines as if they were their own.
#[derive(Debug, Parser)]
#[command(
    name = "telecl",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  telecl serve                             offer this machine's devices to programs on this machine
  telecl serve --listen 10.0.0.7:7701 ...  offer them to a network, with credentials (telecl serve --help)
  telecl devices --on node7,node8          what do these services offer, and how far away are they?
  telecl run --on node7 -- clinfo -l       run a program on the devices of node7
  telecl run -- hashcat -b -m 1400         run it over a private service on this machine
  telecl top                               watch devices, tenants and sessions
  telecl sessions end 17                   end a session
  telecl drain                             no new sessions; stop when the present ones have ended
  telecl doctor                            check the whole chain
  telecl bench                             measure what telecl costs on this machine
  telecl bench share -- hashcat ...        several copies of a program at once, directly and through telecl
  telecl bench tenants                     how fairly do tenants share a device?
  telecl policy check policy.toml          is this policy right, and what does a tenant get?
  telecl pki init --name node7             make a CA, a certificate for the service, and a key for tokens
  telecl token create --tenant red --for 8h  make a token for a tenant
  telecl slurm start --gres gpu:2          offer accelerators from a Slurm job (docs/hpc.md)

Connections to other machines are encrypted, and a service that they can reach wants to know who
connects: docs/credentials.md says how to set that up in five minutes.

Exit codes:
  0    all went well
  1    the work, or a check, failed
  2    the command line or the configuration is wrong
  3    no service, or no device, could be reached
  126  run: the program may not be executed
  127  run: the program was not found
  Otherwise `telecl run` ends as the program ends, with its exit code or its signal.

A configuration file and TELECL_* variables can say what flags say; see docs/configuration.md."
)]
struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    Serve(ServeArgs),
    Devices(DevicesArgs),
    Run(RunArgs),
    Top(top::TopArgs),
    Sessions(sessions::SessionsArgs),
    Drain(drain::DrainArgs),
    Doctor(DoctorArgs),
    Bench(Box<bench::BenchArgs>),
    Policy(policy::PolicyArgs),
    Pki(pki::PkiArgs),
    Token(pki::TokenArgs),
    Secret(pki::SecretArgs),
    Slurm(slurm::SlurmArgs),
    ContainerArgs(slurm::ContainerArgs),
    /// One session's OpenCL, started by `telecl serve`.
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// Looks after what a program needs, started by `telecl run` and the like.
    #[command(hide = true)]
    Keep(KeepArgs),
    /// One check, started by `telecl doctor`.
    #[command(hide = true, subcommand)]
    Probe(probe::Probe),
    /// The measurements of one path, started by `telecl bench`.
    #[command(hide = true)]
    BenchChild(bench::BenchChildArgs),
    /// One copy of a program, started by `telecl bench share`.
    #[command(hide = true)]
    BenchCopy(bench::BenchCopyArgs),
}

/// Offer this machine's OpenCL devices
///
/// Runs in the foreground until SIGTERM, which lets its sessions end first (drain_grace), or SIGINT, which does not; SIGHUP
/// makes it read its policy again. If it is killed, its sessions go on, and wait for it to be started again (orphan_grace). Prints one line `listening on ADDRESS` per address to stdout
/// when drivers can connect; logs go to stderr, filtered by RUST_LOG.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl serve
  telecl serve --listen 127.0.0.1:7701 --listen unix:/run/telecl.sock
  telecl serve --listen 127.0.0.1:0                  the system chooses a port
  telecl serve --platform NVIDIA --device H200       offer only these
  telecl serve --policy /etc/telecl/policy.toml      who may use how much
  telecl serve --metrics 127.0.0.1:9701              metrics for Prometheus

  telecl serve --listen 10.0.0.7:7701 --certificate service.pem --key service.key --token-keys token.pub
  telecl serve --listen 0.0.0.0:7701 --secret ~/.telecl-secret      for jobs of one user

Where other machines can connect, everything is encrypted (TLS 1.3), and everybody has to show a
credential. telecl pki init makes what is needed; docs/credentials.md explains it.")]
struct ServeArgs {
    /// Where to listen: host:port, [ipv6]:port or unix:/path; may be repeated [default: 127.0.0.1:7701]
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    listen: Vec<Address>,
    /// Offer only platforms whose name contains this; may be repeated
    #[arg(long = "platform", value_name = "NAME")]
    platforms: Vec<String>,
    /// Offer only devices whose name contains this; may be repeated
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
    /// Who may use how much: a file, read again when it changes [default: everybody may use everything]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Offer metrics for Prometheus there, at /metrics: host:port [default: nowhere]
    #[arg(long, value_name = "ADDR", value_parser = telecl_config::parse_metrics_address)]
    metrics: Option<Address>,
    /// Keep workers from everything that is not theirs: on (as far as the system can), off or require [default: on]
    #[arg(long, value_name = "HOW", value_parser = telecl_config::parse_confine)]
    confine: Option<Confine>,
    #[command(flatten)]
    credentials: serve::CredentialArgs,
    /// How log lines look
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Use this configuration file and no other
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ServeArgs {
    /// A service at these addresses, and otherwise as it is configured.
    fn listening(listen: Vec<Address>) -> ServeArgs {
        ServeArgs {
            listen,
            platforms: Vec::new(),
            devices: Vec::new(),
            policy: None,
            metrics: None,
            confine: None,
            credentials: serve::CredentialArgs::default(),
            log_format: LogFormat::Text,
            config: None,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// List the devices of all services, and how far away they are
///
/// Asks every service directly, without the driver. The round trip is the shortest of several.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl devices                        the configured services
  telecl devices --on node7,node8:7702  these services
  telecl devices --json | jq -r '.devices[].device'

Exit codes: 0 if there is a device, 3 if none can be reached, 2 if no service is configured.")]
struct DevicesArgs {
    #[command(flatten)]
    on: OnServices,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How long to wait for a service: 500ms, 2s, 1m [default: connect_timeout, 2s]
    #[arg(long, value_name = "TIME", value_parser = telecl_config::parse_duration)]
    timeout: Option<Duration>,
}

#[derive(Debug, Args)]
struct OnServices {
    /// Services to use instead of the configured ones: host, host:port, [ipv6]:port, tls://host:port or unix:/path
    #[arg(long = "on", value_name = "ADDR,...", value_delimiter = ',')]
    services: Vec<Address>,
    #[command(flatten)]
    credentials: credentials::CredentialArgs,
}

/// Run a program with the driver in place
///
/// Changes nothing on the system: the program's environment points its OpenCL loader at a private directory that
/// names only telecl's driver. Without --on and without a configured service, a private service offers this
/// machine's own devices for as long as the program runs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl run --on node7 -- clinfo -l
  telecl run --on node7,unix:/run/telecl.sock -- hashcat -b -m 1400
  telecl run -- ./my-program --its-own --flags

`telecl run` becomes the program: its exit code and signals are the program's own. Exit codes of its
own: 2 wrong usage or configuration, 3 no device, 126 may not be executed, 127 not found.")]
struct RunArgs {
    #[command(flatten)]
    on: OnServices,
    /// The driver's library [default: libtelecl.so beside this executable, in ../lib/telecl, or in /usr/lib/telecl]
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Check everything between a program and its devices
///
/// Loader, ICD file, driver, configuration, services, devices, and a vector addition through all of it. Every line
/// that is not right says what to do.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl doctor                 with the configured services, or with a private one
  telecl doctor --on node7      with this service
  telecl doctor --json          for programs

Exit codes: 0 if nothing is wrong, 1 if something is.")]
struct DoctorArgs {
    #[command(flatten)]
    on: OnServices,
    /// The driver's library [default: as for telecl run]
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct WorkerArgs {
    /// Lists platforms and devices instead, and ends
    #[arg(long)]
    inventory: bool,
    /// Says again and again what the devices' sensors say instead
    #[arg(long)]
    sensors: bool,
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
    #[arg(long, default_value = "info")]
    log_level: String,
}

#[derive(Debug, Args)]
struct KeepArgs {
    /// The process to outlive
    #[arg(long)]
    pid: i32,
    /// The directory to remove in the end
    #[arg(long)]
    directory: PathBuf,
    /// Also serve this machine's devices
    #[arg(long)]
    serve: bool,
    /// Where the service listens besides its private address
    #[arg(long)]
    listen: Vec<Address>,
    /// The service's policy
    #[arg(long)]
    policy: Option<PathBuf>,
    /// The service's secret
    #[arg(long)]
    secret: Option<PathBuf>,
    /// Start workers ahead
    #[arg(long)]
    warm: bool,
    /// Stay; without it, starts another process that stays
    #[arg(long)]
    detached: bool,
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let applied = on(&command).map_or(Ok(()), |on| on.credentials.apply());
    if let Err(failure) = applied {
        failure.report();
        return ExitCode::from(failure.exit as u8);
    }
    let outcome = match command {
        Subcommands::Serve(args) => serve::serve(args),
        Subcommands::Devices(args) => devices::devices(&args),
        Subcommands::Run(args) => run::run(&args),
        Subcommands::Top(args) => top::top(&args),
        Subcommands::Sessions(args) => sessions::sessions(&args),
        Subcommands::Drain(args) => drain::drain(&args),
        Subcommands::Doctor(args) => doctor::doctor(&args),
        Subcommands::Bench(args) => bench::bench(&args),
        Subcommands::Policy(args) => policy::policy(&args),
        Subcommands::Pki(args) => pki::pki(&args),
        Subcommands::Token(args) => pki::token(&args),
        Subcommands::Secret(args) => pki::secret(&args),
        Subcommands::Slurm(args) => slurm::slurm(args),
        Subcommands::ContainerArgs(args) => slurm::container_args(&args),
        Subcommands::Worker(args) => return serve::worker(&args),
        Subcommands::Keep(args) => keeper::keep(&args),
        Subcommands::Probe(what) => probe::probe(&what),
        Subcommands::BenchChild(args) => bench::bench_child(&args),
        Subcommands::BenchCopy(args) => bench::bench_copy(&args),
    };
    let exit = outcome.unwrap_or_else(|failure| {
        failure.report();
        failure.exit
    });
    ExitCode::from(exit as u8)
}

/// The services that a command is about, and who it is to them.
fn on(command: &Subcommands) -> Option<&OnServices> {
    match command {
        Subcommands::Devices(args) => Some(&args.on),
        Subcommands::Run(args) => Some(&args.on),
        Subcommands::Top(args) => Some(args.on()),
        Subcommands::Sessions(args) => Some(args.on()),
        Subcommands::Doctor(args) => Some(&args.on),
        _ => None,
    }
}
