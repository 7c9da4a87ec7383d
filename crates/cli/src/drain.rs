//! `telecl drain`: a service that takes no new sessions, and lets the present ones end.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use telecl_wire::status::DrainMode;

use crate::exit::{Exit, Failure, Outcome, print};
use crate::watch::{self, Progress, Service};
use crate::{OnServices, sessions};

/// Let a service's sessions end, and stop it
///
/// The service takes no new sessions from now on: drivers that know several services use another. Sessions that run have
/// a grace period to end in; those that are left then are ended, and their programs are told so. Then the service stops,
/// as it does on SIGTERM. What this command prints is how far it is; the service goes on draining if it is interrupted.
///
/// Only root and the user who runs the service may drain it, on its own node.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl drain                     the service on this machine
  telecl drain --grace 10m         give its sessions ten minutes
  telecl drain --keep              empty it, but let it run: maintenance of a device, for instance
  telecl drain --undo              take new sessions again

Exit codes: 0 if the service has drained, or takes sessions again, 1 if it did not want to, 2 if it is not clear which
one is meant, 3 if it could not be reached.")]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    on: OnServices,
    /// How long sessions may go on: 30s, 10m, 1h, or off [default: the service's drain_grace, 30s]
    #[arg(long, value_name = "TIME", value_parser = telecl_config::parse_grace)]
    grace: Option<Duration>,
    /// Do not stop the service
    #[arg(long)]
    keep: bool,
    /// Take new sessions again
    #[arg(long, conflicts_with_all = ["keep", "grace"])]
    undo: bool,
    /// Print a line of JSON whenever something has changed
    #[arg(long)]
    json: bool,
    /// How long to wait for a service: 500ms, 2s, 1m [default: connect_timeout, 2s]
    #[arg(long, value_name = "TIME", value_parser = telecl_config::parse_duration)]
    timeout: Option<Duration>,
}

pub(crate) fn drain(args: &DrainArgs) -> Outcome {
    let (addresses, timeout) = watch::services(&args.on.services, args.timeout)?;
    if addresses.len() > 1 {
        let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let what = format!("several services are configured: {}", names.join(", "));
        return Err(Failure::new(Exit::Usage, what, "Name one with --on"));
    }
    let answers = watch::ask_all(&addresses, timeout);
    let Some(service) = answers.iter().flatten().next() else {
        return Err(Failure::new(Exit::Unreachable, sessions::complaints(&answers).trim_end(), ""));
    };
    let mode = match (args.undo, args.keep) {
        (true, _) => DrainMode::Undo,
        (_, true) => DrainMode::Keep,
        _ => DrainMode::Stop,
    };
    let mut before = None;
    let drained = watch::drain(&service.address, mode, args.grace, timeout, |progress| {
        // The time that is left is told every second, to nobody's use.
        if args.json || before.replace(progress.sessions) != Some(progress.sessions) || progress.done {
            print(if args.json { as_json(service, &progress) } else { as_text(service, &progress, mode) });
        }
    });
    match drained {
        Ok(()) => Ok(Exit::Ok),
        Err(silence) => {
            let what = format!("{} was not drained: {}", service.node, silence.reason);
            Err(Failure::new(Exit::Failed, what, "Run this on its node, as root or as the user who runs it"))
        }
    }
}

fn as_text(service: &Service, progress: &Progress, mode: DrainMode) -> String {
    let node = &service.node;
    let sessions = match progress.sessions {
        1 => "1 session".to_owned(),
        count => format!("{count} sessions"),
    };
    match (progress.done, progress.draining, mode) {
        (_, false, _) => format!("{node} takes new sessions; {sessions} there\n"),
        (true, _, DrainMode::Stop) => format!("{node} has drained, and stops\n"),
        (true, ..) => format!("{node} has drained, and takes no new sessions (telecl drain --undo)\n"),
        _ => format!("{node} is draining: {sessions} left, at most {:.0} s\n", progress.left.as_secs_f64()),
    }
}

fn as_json(service: &Service, progress: &Progress) -> String {
    let Progress { sessions, left, draining, done } = *progress;
    let line = json!({
        "node": service.node,
        "address": service.address.to_string(),
        "sessions": sessions,
        "seconds_left": left.as_secs_f64(),
        "draining": draining,
        "done": done,
    });
    format!("{line}\n")
}
