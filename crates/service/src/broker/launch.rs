//! Starting a worker and waiting for its end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use telecl_net::{FrameSender, Stream};
use telecl_wire::reply::Closing;
use tracing::{debug, warn};

use super::scratch::SessionScratch;
use super::{Broker, WorkerCommand};
use crate::environment;
use crate::process::exit_code;

/// A child process that cannot come back to us as a driver.
pub(crate) fn command(worker: &WorkerCommand) -> Command {
    let mut command = Command::new(&worker.program);
    command
        .args(&worker.args)
        .env(environment::INSIDE, "1")
        .env(environment::BROKER, std::process::id().to_string())
        .env_remove(environment::SERVICES);
    command
}

/// Runs the session's worker to its end, however it ends; says how.
pub(crate) fn work(broker: &Broker, session: u64, stream: Stream) -> Result<String, String> {
    let scratch = match broker.scratch.session(session) {
        Ok(scratch) => scratch,
        Err(error) => return Err(give_up(stream, &format!("cannot make a directory for the session: {error}"))),
    };
    let backup = stream.try_clone().map_err(|error| error.to_string())?;
    broker.sessions.hand_over(session);
    let child = match spawn(broker, session, stream, &scratch) {
        Ok(child) => child,
        Err(error) => {
            let program = broker.settings.worker.program.display();
            return Err(give_up(backup, &format!("cannot start the worker {program}: {error}")));
        }
    };
    // From here on the worker holds the only handle on the socket: when it ends, so does the connection.
    drop(backup);
    debug!(session, worker = child.id(), "worker started");
    let ended = wait(broker, session, child);
    if let Err(error) = scratch.remove() {
        warn!(session, %error, "cannot remove the session's directory");
    }
    match ended {
        Ok(status) => describe(status),
        Err(error) => Err(format!("cannot wait for the worker: {error}")),
    }
}

/// The socket becomes the worker's standard input: the one descriptor that needs no unsafe code to be passed on. All
/// others of this process are close-on-exec.
fn spawn(broker: &Broker, session: u64, stream: Stream, scratch: &SessionScratch) -> io::Result<Child> {
    command(&broker.settings.worker)
        .env(environment::SESSION, session.to_string())
        .env(environment::SCRATCH, scratch.path())
        .env(environment::OFFERED, broker.offer.device_ids())
        // Compilers leave files behind when they are killed.
        .env("TMPDIR", scratch.path())
        .stdin(Stdio::from(stream.into_fd()))
        .stdout(Stdio::null())
        .spawn()
}

fn wait(broker: &Broker, session: u64, mut child: Child) -> io::Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    broker.sessions.work(session, pid);
    // Waits without reaping, so that the process id cannot be another's while the registry still has it.
    while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {}
    broker.sessions.hand_over(session);
    child.wait()
}

fn describe(status: ExitStatus) -> Result<String, String> {
    match (status.code(), status.signal()) {
        (Some(exit_code::CLOSED), _) => Ok("driver closed the connection".to_owned()),
        (Some(exit_code::STOPPED), _) => Ok("service stopped".to_owned()),
        (Some(exit_code::BROKEN_PROTOCOL), _) => Err("driver broke the protocol".to_owned()),
        (Some(exit_code::NOT_STARTED), _) => Err("worker could not start".to_owned()),
        (Some(exit_code::PANICKED), _) => Err("worker panicked".to_owned()),
        (Some(code), _) => Err(format!("worker ended with exit code {code}")),
        (None, Some(signal)) => Err(format!("worker was killed by signal {signal}{}", signal_name(signal))),
        (None, None) => Err(status.to_string()),
    }
}

fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map(|name| format!(" ({name})")).unwrap_or_default()
}

/// Tells the driver why there is no worker, and returns the reason.
fn give_up(stream: Stream, reason: &str) -> String {
    // The driver may have left meanwhile.
    let _ = FrameSender::new(stream).send(&Closing { reason }, &[]);
    reason.to_owned()
}
