//! The two ways in which a worker executable is started.

use std::env;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::stdio;
use telecl_net::FrameReceiver;
use telecl_opencl::Library;
use tracing::{debug, error, warn};

use super::broker::Broker;
use super::clear::Clearing;
use super::link::Link;
use super::output::Output;
use super::session::{Ended, Session};
use super::watch::StopSignal;
use super::{confine, inventory, watch};
use crate::board::SessionBoard;
use crate::channel::{Begin, Channel, Handed, Head, Kind};
use crate::environment;
use crate::process::{before_exit, exit_code, exit_now};

/// Writes the encoded [`telecl_wire::info::Inventory`] of this node to standard output.
pub fn inventory_main() -> ExitCode {
    let written = die_with_broker().and_then(|()| {
        confine::tell(&confine::confine()?);
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

/// Loads the vendor's OpenCL, waits for a session from the broker, whose channel is standard input, and serves it until
/// the driver closes it. Does not return: the process ends.
pub fn worker_main(clearing: Clearing) -> ExitCode {
    match start(clearing) {
        Ok(Some((link, receiver, session))) => exit_now(run(&link, receiver, session)),
        // The broker has no session for this worker.
        Ok(None) => exit_now(exit_code::CLOSED),
        Err(error) => {
            error!(%error, "cannot start the worker");
            exit_now(exit_code::NOT_STARTED)
        }
    }
}

fn start(clearing: Clearing) -> io::Result<Option<(Arc<Link>, FrameReceiver, Session)>> {
    die_with_broker()?;
    let channel = take_channel()?;
    let stop = StopSignal::install()?;
    // Before the vendor's libraries are loaded: some look at standard output only then.
    let printed = Output::capture()?;
    debug!(confined = %confine::confine()?, "worker confined");
    let scratch = env::var_os(environment::SCRATCH).map_or_else(env::temp_dir, PathBuf::from);
    // What takes long, and needs no session. If there is no OpenCL, the session says so.
    let _ = Library::load();
    be_called(c"telecl-idle");
    channel.send(Head::new(Kind::Ready), &[])?;
    stop.wait_for(channel.as_fd())?;
    let Some(Handed { begin, stream, board, memfd, lease }) = channel.take_over()? else { return Ok(None) };
    if lease.is_some() {
        outlive_broker()?;
    }
    let Begin { session: number, compression, terms, limits, memory, .. } = begin;
    be_called(c"telecl-worker");
    // From here on nobody else has the socket: what is read from it now, another worker would miss.
    let begun = channel.send(Head::new(Kind::Begun), &[]);
    if lease.is_none() {
        begun?;
    }
    let (mut sender, receiver) = telecl_net::accept(stream.try_clone()?, terms).unwrap_or_else(|error| {
        warn!(session = number, %error, "the driver broke the protocol");
        exit_now(exit_code::BROKEN_PROTOCOL)
    });
    sender.set_compression(compression);
    let (shared_memory, compresses, lasts) = (sender.is_shared(), sender.compresses(), sender.lasting().is_some());
    debug!(session = number, shared_memory, compresses, lasts, "connection taken over");
    let board = Arc::new(board);
    note_exit(&board);
    let link = Arc::new(Link::new(sender, number, Arc::clone(&board)));
    watch::start(stop, stream, Arc::clone(&link))?;
    let output = Output::start(printed, Arc::clone(&link))?;
    let survives = lease.is_some();
    let broker = Broker::new(channel, Arc::clone(&link), lease.map(|lease| (lease, memfd)));
    if !shared_memory || survives {
        // Streams may join, and another broker may come. Without the thread neither does.
        broker.listen();
    }
    let mut session = Session::new(Arc::clone(&link), output, broker, scratch, board, limits, &memory)?;
    session.clearing = clearing;
    session.keep_to_limits()?;
    Ok(Some((link, receiver, session)))
}

/// A broker that has not started this process cannot wait for it: it finds the exit code on the board.
fn note_exit(board: &Arc<SessionBoard>) {
    let board = Arc::clone(board);
    before_exit(Box::new(move |code| board.note_exit(code)));
}

/// What tools such as `ps` show, so that an operator can tell a worker with a session from one without.
fn be_called(name: &CStr) {
    // Nobody depends on it.
    let _ = rustix::thread::set_name(name);
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

/// The stack of threads that call the vendor's driver. Drivers expect that of a program's first thread: compilers recurse
/// deeply, and Intel's runtime (2026) has whoever waits for a kernel run some of it, with the kernel's private memory.
pub(crate) const VENDOR_STACK: usize = 16 << 20;

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

/// The channel arrives as standard input, and leaves that to `/dev/null`: no library may read from it.
fn take_channel() -> io::Result<Channel> {
    let channel = stdio::stdin().try_clone_to_owned()?;
    stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(Channel::from_fd(channel))
}

/// A worker without its broker would be accounted to nobody.
pub(super) fn die_with_broker() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let broker = env::var(environment::BROKER).ok().and_then(|text| text.parse::<i32>().ok());
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get());
    if broker.is_some() && broker != parent {
        return Err(io::Error::other("the broker that started this process is gone"));
    }
    Ok(())
}

/// A worker with a session waits for the next broker. To be called by the thread that has called [`die_with_broker`]: the
/// kernel keeps the signal for each thread.
fn outlive_broker() -> io::Result<()> {
    Ok(set_parent_process_death_signal(None)?)
}
