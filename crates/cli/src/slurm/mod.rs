//! `telecl slurm`: services and programs as jobs of one user, with nothing installed by an administrator.
//!
//! A service is the body of a batch script (`service`): it starts one broker on each node of its job (`node`), and keeps a
//! directory that only the job's user can read, with a secret and a `telecl.toml` (`place`). That file is written last, so
//! whoever finds it finds everything. Programs in other jobs of the user wait for it and run (`run`). Slurm is asked, and told,
//! by its own commands (`job`).

mod containers;
mod job;
mod node;
mod place;
mod run;
mod script;
mod service;
mod start;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::exit::Outcome;

pub(crate) use containers::{ContainerArgs, container_args};
use job::JobId;

/// Offer and use accelerators in Slurm jobs
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl slurm start --nodes 2 --gres gpu:2           submit a service, wait until it is ready, print its job's number
  telecl slurm run --service 4711 -- ./program        run a program on its devices, in any other job of yours
  telecl slurm stop 4711                              let its sessions end, and end it
  telecl slurm het --gres gpu:1 -- ./program          print a batch script that does both in one job
  telecl slurm pod-snippet 4711                       what a pod's specification needs (HPK)

docs/hpc.md is the guide, also for containers, for administrators, and for Kubernetes pods that run as Slurm jobs.")]
pub(crate) struct SlurmArgs {
    #[command(subcommand)]
    command: SlurmCommand,
}

#[derive(Debug, Subcommand)]
enum SlurmCommand {
    Service(ServiceArgs),
    Start(StartArgs),
    Run(SlurmRunArgs),
    Stop(StopArgs),
    Het(HetArgs),
    PodSnippet(PodSnippetArgs),
    /// One node's service, started by `telecl slurm service`.
    #[command(hide = true)]
    Node(NodeArgs),
}

/// Be the service of a job: the body of a batch script
///
/// Starts one service on each node of the job, on a free port, for this user alone. Takes the devices that Slurm gave the job.
/// When all are ready, their addresses are in ~/.telecl/jobs/JOBID/telecl.toml, which is where `telecl slurm run` looks. SIGUSR1
/// (the time limit comes near) lets sessions end first; SIGTERM (scancel, preemption) ends them, and their programs are told. The
/// directory is removed at the end. Use exec, so that Slurm's signals reach it.
#[derive(Debug, Args)]
#[command(after_help = "\
A batch script:
  #!/bin/sh
  #SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:2 --time=4:00:00 --signal=B:USR1@90
  exec telecl slurm service")]
struct ServiceArgs {
    /// How long sessions may go on after SIGUSR1: 30s, 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = telecl_config::parse_duration)]
    drain: Duration,
    /// How long the services of all nodes may take to start
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = telecl_config::parse_duration)]
    ready_within: Duration,
    #[command(flatten)]
    offer: OfferArgs,
}

/// Which devices a service offers.
#[derive(Clone, Debug, Args)]
struct OfferArgs {
    /// Offer only platforms whose name contains this; may be repeated
    #[arg(long = "platform", value_name = "NAME")]
    platforms: Vec<String>,
    /// Offer only devices whose name contains this; may be repeated
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
    /// Offer the node's GPUs also where Slurm gave the job none, because the site does not count them
    #[arg(long)]
    all_gpus: bool,
}

/// Submit a service, and wait until it is ready
///
/// Prints the number of the job to stdout, and what happens meanwhile to stderr. The job goes on if this command is interrupted.
#[derive(Debug, Args)]
struct StartArgs {
    #[command(flatten)]
    resources: ResourceArgs,
    /// How long to wait until it is ready; 0s does not wait
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = telecl_config::parse_grace)]
    wait: Duration,
    /// How long sessions may go on when the time limit comes near
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = telecl_config::parse_duration)]
    drain: Duration,
    /// Print the batch script instead
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    offer: OfferArgs,
    /// Further options for sbatch, after --
    #[arg(last = true, value_name = "SBATCH OPTION")]
    options: Vec<String>,
}

/// What a service's job asks Slurm for.
#[derive(Debug, Args)]
struct ResourceArgs {
    /// Nodes with accelerators
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Accelerators of each node, as for sbatch: gpu:2
    #[arg(long, value_name = "GRES")]
    gres: Option<String>,
    /// The partition of those nodes
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// The time limit, as for sbatch: 4:00:00
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
}

/// Run a program on the devices of a service job
///
/// Waits until the service is ready, says what it waits for, and becomes the program.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes are those of telecl run; 3 if the service cannot be used, 2 if there is no such job.")]
struct SlurmRunArgs {
    /// The service's job
    #[arg(long, value_name = "JOBID")]
    service: JobId,
    /// How long to wait for it
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = telecl_config::parse_grace)]
    wait: Duration,
    /// The driver's library [default: as for telecl run]
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Let the sessions of a service job end, and end it
#[derive(Debug, Args)]
struct StopArgs {
    #[arg(value_name = "JOBID")]
    service: JobId,
}

/// Print a batch script for one job that is both service and program
///
/// A heterogeneous job: one part on the nodes with accelerators, one where the program runs. Both start and end together. The
/// script is yours to change; give it to sbatch.
#[derive(Debug, Args)]
struct HetArgs {
    #[command(flatten)]
    resources: ResourceArgs,
    /// Nodes for the program
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    program_nodes: u32,
    /// Their partition
    #[arg(long, value_name = "NAME")]
    program_partition: Option<String>,
    /// Copies of the program
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    ntasks: u32,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

/// Print what a pod's specification needs to use a service job's devices (HPK)
#[derive(Debug, Args)]
struct PodSnippetArgs {
    /// The service's job, which must be ready
    #[arg(value_name = "JOBID")]
    service: JobId,
}

#[derive(Debug, Args)]
struct NodeArgs {
    /// The job's directory
    #[arg(long)]
    place: PathBuf,
    /// This node's directory; without it, makes one and starts itself again
    #[arg(long)]
    private: Option<PathBuf>,
    #[command(flatten)]
    offer: OfferArgs,
}

pub(crate) fn slurm(args: SlurmArgs) -> Outcome {
    match args.command {
        SlurmCommand::Service(args) => service::service(&args),
        SlurmCommand::Start(args) => start::start(&args),
        SlurmCommand::Run(args) => run::run(&args),
        SlurmCommand::Stop(args) => start::stop(args.service),
        SlurmCommand::Het(args) => script::het(&args),
        SlurmCommand::PodSnippet(args) => containers::pod_snippet(args.service),
        SlurmCommand::Node(args) => node::node(args),
    }
}

impl OfferArgs {
    /// The same, as flags for another process.
    fn flags(&self) -> Vec<String> {
        let named = |flag: &str, names: &[String]| -> Vec<String> {
            names.iter().flat_map(|name| [flag.to_owned(), name.clone()]).collect()
        };
        let mut flags = named("--platform", &self.platforms);
        flags.extend(named("--device", &self.devices));
        flags.extend(self.all_gpus.then(|| "--all-gpus".to_owned()));
        flags
    }
}
