//! `kubectl telecl drain NODE`.

use std::process::ExitCode;

use anyhow::bail;

use crate::kubectl::Kubectl;
use crate::services::service_pods;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The node whose service is meant
    node: String,
    /// How long sessions may go on: 30s, 10m, 1h, or off; the chart's service.drainGrace unless given
    #[arg(long, value_name = "TIME")]
    grace: Option<String>,
    /// Take new sessions again
    #[arg(long, conflicts_with = "grace")]
    undo: bool,
}

/// The service goes on running, empty: its pod would only be replaced by another one.
pub(crate) fn drain(kubectl: &Kubectl, system: &str, options: &Options) -> anyhow::Result<ExitCode> {
    let pods = service_pods(kubectl, system)?;
    let here: Vec<_> = pods.iter().filter(|(_, node)| *node == options.node).map(|(pod, _)| pod).collect();
    if here.is_empty() {
        let mut nodes: Vec<&str> = pods.iter().map(|(_, node)| node.as_str()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let known =
            if nodes.is_empty() { "no node has one".to_owned() } else { format!("these have: {}", nodes.join(", ")) };
        bail!("no service runs on the node {:?}; {known}", options.node);
    }
    let mut all = true;
    for pod in here {
        let mut command = vec!["exec", "-n", system, pod, "-c", "service", "--", "telecl", "drain"];
        match (&options.grace, options.undo) {
            (_, true) => command.push("--undo"),
            (Some(grace), _) => command.extend(["--keep", "--grace", grace]),
            (None, _) => command.push("--keep"),
        }
        all &= kubectl.show(&command)?;
    }
    if all && !options.undo {
        println!(
            "The service on {} takes no new sessions. Undo: kubectl telecl drain {} --undo",
            options.node, options.node
        );
        println!("To take it away for good: kubectl label node {} telecl.dev/accelerator-", options.node);
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
