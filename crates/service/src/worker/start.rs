//! The two ways in which a worker executable is started.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::stdio;
use telecl_net::{FrameReceiver, Stream};
use tracing::{debug, error, warn};

use super::link::Link;
use super::output::Output;
use super::session::{Ended, Session};
use super::{inventory, watch};
use crate::environment;
use crate::process::{exit_code, exit_now};

/// Writes the encoded [`telecl_wire::info::Inventory`] of this node to standard output.
pub fn inventory_main() -> ExitCode {
    let written = die_with_broker().and_then(|()| {
        // Vendors' drivers print to standard output; what they say goes to the log instead.
        let answer = stdio::stdout().try_clone_to_owned()?;
        stdio::dup2_stdout(stdio::stderr())?;
        File::from(answer).write_all(&inventory::encoded())
    });
    match written {
        // Drivers' exit handlers have been seen to hang.
        Ok(()) => exit_now(exit_code::CLOSED),
        Err(error) => {
            error!(%error, "cannot report the inventory");
            exit_now(exit_code::NOT_STARTED)
        }
    }
}

/// Serves the session whose socket is standard input, until the driver closes it. Does not return: the process ends.
pub fn worker_main() -> ExitCode {
    match start() {
        Ok((link, receiver, session)) => exit_now(run(&link, receiver, session)),
        Err(error) => {
            error!(%error, "cannot start the worker");
            exit_now(exit_code::NOT_STARTED)
        }
    }
}

fn start() -> io::Result<(Arc<Link>, FrameReceiver, Session)> {
    die_with_broker()?;
    let stream = take_socket()?;
    let number = env::var(environment::SESSION).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let scratch = env::var_os(environment::SCRATCH).map_or_else(env::temp_dir, PathBuf::from);
    let offered = env::var(environment::OFFERED).unwrap_or_default();
    let offered: Vec<u64> = offered.split(',').filter_map(|id| id.parse().ok()).collect();
    let (sender, receiver) = telecl_net::accept(stream.try_clone()?).map_err(io::Error::other)?;
    debug!(session = number, shared_memory = sender.is_shared(), "connection taken over");
    let link = Arc::new(Link::new(sender, number));
    watch::start(stream.try_clone()?, Arc::clone(&link))?;
    // Before the vendor's libraries are loaded: some look at standard output only then.
    let output = Output::capture(Arc::clone(&link))?;
    let session = Session::new(Arc::clone(&link), output, scratch, &offered)?;
    Ok((link, receiver, session))
}

fn run(link: &Link, receiver: FrameReceiver, session: Session) -> i32 {
    let ended = catch_unwind(AssertUnwindSafe(|| session.run(receiver)));
    match ended {
        Ok(Ended::Closed) => exit_code::CLOSED,
        Ok(Ended::Broken(reason)) => {
            warn!(session = link.session(), reason, "the driver broke the protocol");
            link.closing(&reason);
            exit_code::BROKEN_PROTOCOL
        }
        Err(_) => {
            panicked(link, "executor");
            exit_code::PANICKED
        }
    }
}

/// Runs the body of a worker's thread; a panic there ends the session rather than leave the driver waiting for ever.
pub(crate) fn guarded(link: &Link, thread: &'static str, body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        panicked(link, thread);
        exit_now(exit_code::PANICKED);
    }
}

fn panicked(link: &Link, thread: &str) {
    error!(session = link.session(), thread, "the worker panicked; the session ends");
    link.closing("the service has an internal error; its log says more");
}

/// The socket arrives as standard input, and leaves that to `/dev/null`: no library may read from the session.
fn take_socket() -> io::Result<Stream> {
    let socket: OwnedFd = stdio::stdin().try_clone_to_owned()?;
    stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(Stream::from_fd(socket))
}

/// A worker without its broker would be accounted to nobody.
fn die_with_broker() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let broker = env::var(environment::BROKER).ok().and_then(|text| text.parse::<i32>().ok());
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get());
    if broker.is_some() && broker != parent {
        return Err(io::Error::other("the broker that started this process is gone"));
    }
    Ok(())
}
