//! `kubectl telecl`: what the cluster's accelerators do, for whom, and whether all is well.
//!
//! It asks through `kubectl`, and so has the same cluster, the same user and the same rights: pods are listed, and in the
//! services' pods `telecl` is asked. It has no way of its own into the cluster.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

mod doctor;
mod drain;
mod kubectl;
mod services;
mod table;

use kubectl::Kubectl;

/// See and steer the accelerators that telecl shares in a Kubernetes cluster
#[derive(Parser)]
#[command(name = "kubectl telecl", bin_name = "kubectl telecl", version)]
struct Arguments {
    #[command(flatten)]
    cluster: Cluster,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Clone, Debug)]
struct Cluster {
    /// The kubeconfig's context to use
    #[arg(long, global = true)]
    context: Option<String>,
    /// The kubeconfig to use
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// The namespace that telecl is installed in
    #[arg(long, global = true, default_value = "telecl-system", value_name = "NAME")]
    system_namespace: String,
}

#[derive(Subcommand)]
enum Command {
    /// List the devices of all services, and what they do
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List injected pods with what they use, and for how much of the time they wait for their turn
    Pods {
        #[command(flatten)]
        scope: Scope,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show devices, tenants and pods, again and again
    Top {
        /// Print them once
        #[arg(long)]
        once: bool,
        /// How many seconds lie between two looks
        #[arg(long, default_value_t = 2, value_name = "SECONDS")]
        interval: u64,
    },
    /// Let a node's service take no new sessions, and wait until the present ones have ended
    Drain(drain::Options),
    /// Check everything that injected pods depend on, and say what to do
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct Scope {
    /// The pods of this namespace; those of the context's namespace unless given
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// The pods of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let kubectl = Kubectl::new(&arguments.cluster);
    match run(&arguments, &kubectl) {
        Ok(code) => code,
        Err(cause) => {
            eprintln!("error: {cause:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments, kubectl: &Kubectl) -> anyhow::Result<ExitCode> {
    let system = &arguments.cluster.system_namespace;
    match &arguments.command {
        Command::Devices { json } => {
            let (answers, problems) = services::ask_all(kubectl, system)?;
            if *json {
                print_json(&services::as_json(&answers))
            } else {
                print!("{}", table::devices(&answers))
            }
            Ok(complain(&problems))
        }
        Command::Pods { scope, json } => {
            let pods = services::pods(kubectl, scope.namespace.as_deref(), scope.all_namespaces)?;
            let (answers, problems) = services::ask_all(kubectl, system)?;
            let pods = services::uses(pods, &answers);
            if *json {
                print_json(&serde_json::to_value(&pods)?)
            } else {
                print!("{}", table::pods(&pods))
            }
            Ok(complain(&problems))
        }
        Command::Top { once, interval } => loop {
            let pods = services::pods(kubectl, None, true)?;
            let (answers, problems) = services::ask_all(kubectl, system)?;
            let pods: Vec<_> = services::uses(pods, &answers).into_iter().filter(|pod| pod.sessions > 0).collect();
            if !once {
                // Home, and clear to the end: nothing flickers.
                print!("\x1b[H\x1b[J");
            }
            print!("{}\n{}\n{}", table::devices(&answers), table::tenants(&answers), table::pods(&pods));
            let code = complain(&problems);
            if *once {
                return Ok(code);
            }
            std::thread::sleep(Duration::from_secs(*interval));
        },
        Command::Drain(options) => drain::drain(kubectl, system, options),
        Command::Doctor { json } => doctor::doctor(kubectl, system, *json),
    }
}

fn print_json(value: &serde_json::Value) {
    println!("{value:#}");
}

/// Services that did not answer are told apart from the answers of the others.
fn complain(problems: &[String]) -> ExitCode {
    for problem in problems {
        eprintln!("{problem}");
    }
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
