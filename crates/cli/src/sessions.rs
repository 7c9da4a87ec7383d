//! `telecl sessions`: who is here; and `telecl sessions end`: who is to leave.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::exit::{Exit, Failure, Outcome, print};
use crate::survey::Silence;
use crate::top::tables;
use crate::watch::{self, Service};
use crate::{OnServices, human};

/// List the sessions of services, or end one
///
/// On the service's own node, root and the user who runs the service see every session. Everybody else sees those of
/// their own tenant; over the network that is the tenant "anonymous".
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  telecl sessions                  of the configured services, or of the one on this machine
  telecl sessions --on node7       of this service
  telecl sessions --json | jq '.services[].sessions[] | select(.working)'
  telecl sessions end 17           end session 17; its program is told so

Exit codes: 0 if a service answered, 3 if none did."
)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    command: Option<SessionsCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    on: OnServices,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How long to wait for a service: 500ms, 2s, 1m [default: connect_timeout, 2s]
    #[arg(long, value_name = "TIME", value_parser = telecl_config::parse_duration)]
    timeout: Option<Duration>,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    End(EndArgs),
}

/// End a session
///
/// Its program is told who ended it: in one line on its stderr, in its contexts' error callbacks, and by
/// CL_DEVICE_NOT_AVAILABLE. A new context begins another session.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 if the session is gone, 1 if it is not there or would not end, 2 if it is not clear which one is meant,
3 if no service could be reached.")]
struct EndArgs {
    /// The session's number, as telecl sessions and telecl top show it
    #[arg(value_name = "ID")]
    session: u64,
    #[command(flatten)]
    on: OnServices,
    /// How long to wait for a service: 500ms, 2s, 1m [default: connect_timeout, 2s]
    #[arg(long, value_name = "TIME", value_parser = telecl_config::parse_duration)]
    timeout: Option<Duration>,
}

impl SessionsArgs {
    pub(crate) fn on(&self) -> &OnServices {
        match &self.command {
            Some(SessionsCommand::End(args)) => &args.on,
            None => &self.list.on,
        }
    }
}

pub(crate) fn sessions(args: &SessionsArgs) -> Outcome {
    match &args.command {
        None => list(&args.list),
        Some(SessionsCommand::End(args)) => end(args),
    }
}

fn list(args: &ListArgs) -> Outcome {
    let (addresses, timeout) = watch::services(&args.on.services, args.timeout)?;
    let answers = watch::ask_all(&addresses, timeout);
    print(if args.json { as_json(&answers) } else { as_text(&answers) });
    Ok(if answers.iter().any(Result::is_ok) { Exit::Ok } else { Exit::Unreachable })
}

/// Everything, for programs.
pub(crate) fn as_json(answers: &[Result<Service, Silence>]) -> String {
    let services: Vec<&Service> = answers.iter().flatten().collect();
    let unreachable: Vec<_> = silent(answers)
        .map(|one| json!({ "address": one.address.to_string(), "reason": one.reason, "advice": one.advice }))
        .collect();
    format!("{:#}\n", json!({ "services": services, "unreachable": unreachable }))
}

fn as_text(answers: &[Result<Service, Silence>]) -> String {
    let services: Vec<&Service> = answers.iter().flatten().collect();
    let table = tables::sessions(&services);
    let mut text = match (services.is_empty(), table.rows.is_empty()) {
        (true, _) => String::new(),
        (_, true) => "No session that you may see.\n".to_owned(),
        _ => human::table(&table.header, &table.rows),
    };
    for service in services.iter().filter(|service| service.draining) {
        text.push_str(&format!("{} is draining: it takes no new sessions.\n", service.node));
    }
    for service in services.iter().filter(|service| service.left_out > 0) {
        text.push_str(&format!("{} has {} more, which did not fit.\n", service.node, service.left_out));
    }
    text + &complaints(answers)
}

/// A line for each service that did not answer.
pub(crate) fn complaints(answers: &[Result<Service, Silence>]) -> String {
    silent(answers).map(|one| format!("{} cannot be used: {}. {}\n", one.address, one.reason, one.advice)).collect()
}

fn silent(answers: &[Result<Service, Silence>]) -> impl Iterator<Item = &Silence> {
    answers.iter().filter_map(|answer| answer.as_ref().err())
}

fn end(args: &EndArgs) -> Outcome {
    let (addresses, timeout) = watch::services(&args.on.services, args.timeout)?;
    let answers = watch::ask_all(&addresses, timeout);
    let services: Vec<&Service> = answers.iter().flatten().collect();
    if services.is_empty() {
        return Err(Failure::new(Exit::Unreachable, complaints(&answers).trim_end(), ""));
    }
    let session = args.session;
    let has = |service: &&&Service| service.sessions.iter().any(|one| one.session == session);
    let found: Vec<&&Service> = services.iter().filter(has).collect();
    let service = match (&found[..], &services[..]) {
        ([one], _) => one,
        // It may be one of those that did not fit into the answer.
        ([], [one]) => one,
        ([], _) => {
            return Err(Failure::new(
                Exit::Failed,
                format!("no service has a session {session} that you may end"),
                "telecl sessions lists them",
            ));
        }
        (several, _) => {
            let names: Vec<String> = several.iter().map(|service| service.address.to_string()).collect();
            let what = format!("several services have a session {session}: {}", names.join(", "));
            return Err(Failure::new(Exit::Usage, what, "Name one with --on"));
        }
    };
    match watch::end(&service.address, session, timeout) {
        Ok(()) => {
            let of = service.sessions.iter().find(|one| one.session == session);
            let of = of.map(|one| format!(" of {} (process {}, tenant {})", one.program, one.pid, one.tenant));
            print(format_args!("session {session}{} has ended\n", of.unwrap_or_default()));
            Ok(Exit::Ok)
        }
        Err(silence) => {
            let what = format!("session {session} was not ended: {}", silence.reason);
            Err(Failure::new(Exit::Failed, what, "telecl sessions lists those that you may end"))
        }
    }
}
