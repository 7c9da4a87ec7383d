//! `telecl-kube`: the controller, the agent beside each service, and the definitions of telecl's objects.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use telecl_kube::{agent, controller, definitions};
use tracing_subscriber::EnvFilter;

/// telecl in a Kubernetes cluster
#[derive(Parser)]
#[command(name = "telecl-kube", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Inject the driver into pods, keep certificates, make services outside the cluster findable
    Controller(Box<controller::Options>),
    /// Keep the policy of the service in the same pod, review tokens for it, report what it is used for
    Agent(agent::Options),
    /// Print the definitions of telecl's objects (YAML)
    Crds,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match arguments.command {
        Command::Controller(options) => controller::run(*options).await,
        Command::Agent(options) => agent::run(options).await,
        Command::Crds => {
            print!("{}", definitions::yaml()?);
            Ok(())
        }
    }
}
