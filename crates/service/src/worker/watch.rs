//! Ends the worker when there is nobody left to work for, or a part of the connection is gone.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::pipe;
use telecl_net::{Cause, Health, Lasting, Stream};
use tracing::{debug, warn};

use super::link::Link;
use crate::board::Wish;
use crate::process::{exit_code, exit_now, is_unanswered};

/// Readable when the broker has sent SIGTERM.
#[derive(Debug)]
pub(crate) struct StopSignal(UnixStream);

impl StopSignal {
    /// To be called before a vendor's library is loaded: LLVM takes SIGTERM for itself, and in the end passes it on to
    /// whoever had it before.
    pub(crate) fn install() -> io::Result<StopSignal> {
        let (stop, signalled) = UnixStream::pair()?;
        pipe::register(SIGTERM, signalled)?;
        Ok(StopSignal(stop))
    }

    /// Waits until there is something to read, or the end; ends the process at SIGTERM.
    pub(crate) fn wait_for(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            let mut polled = [PollFd::from_borrowed_fd(source, PollFlags::IN), PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut polled, None) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            if !polled[1].revents().is_empty() {
                exit_now(exit_code::STOPPED);
            }
            return Ok(());
        }
    }
}

/// Starts the watcher: it needs nothing of the other threads, which may be deep in a vendor's driver.
pub(crate) fn start(stop: StopSignal, stream: Stream, link: Arc<Link>) -> io::Result<()> {
    link.streams().ends()?;
    let watcher = thread::Builder::new().name("telecl-watch".into()).stack_size(128 << 10);
    if link.lasting().is_some() {
        // The line has its own handle on this connection, and may part with it.
        drop(stream);
        let keeper = Keeper::new(stop, link)?;
        watcher.spawn(move || keeper.keep())?;
    } else {
        watcher.spawn(move || watch(&stream, &stop.0, &link))?;
    }
    Ok(())
}

/// How long to wait for what the broker may be about to say.
const A_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

fn watch(stream: &Stream, stop: &UnixStream, link: &Link) -> ! {
    loop {
        // Errors and hang-ups are reported unasked.
        let mut polled = vec![PollFd::new(stream, PollFlags::RDHUP), PollFd::new(stop, PollFlags::IN)];
        polled.extend(link.streams().ends().ok().map(|ends| PollFd::new(ends, PollFlags::IN)));
        match poll(&mut polled, None) {
            Err(Errno::INTR) => continue,
            Err(error) => debug!(session = link.session(), %error, "cannot watch the connection"),
            Ok(_) => {}
        }
        if !polled[1].revents().is_empty() {
            stopped(link);
        }
        if polled[0].revents().is_empty() {
            // A broker that stops closes what is just joining, perhaps before it has told us.
            if poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&A_MOMENT)).is_ok_and(|told| told > 0) {
                stopped(link);
            }
            link.stream_lost(&io::ErrorKind::UnexpectedEof.into());
        }
        exit_now(exit_code::CLOSED);
    }
}

/// The broker wants the session to end.
fn stopped(link: &Link) -> ! {
    match link.board().wished() {
        wish @ Wish::Stop => link.closing(&wish.reason()),
        wish => link.closing_by_policy(&wish.reason()),
    }
    exit_now(exit_code::STOPPED)
}

/// How long a driver may be gone that has closed its connection without a word, as a program does that was killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// The watcher of a session that outlasts its connections: tells the driver that the worker is there, whatever the others
/// do, and ends the process when the driver has ended, or has been gone for too long.
struct Keeper {
    stop: StopSignal,
    link: Arc<Link>,
    /// Readable when a line has changed.
    changed: Arc<OwnedFd>,
}

impl Keeper {
    fn new(stop: StopSignal, link: Arc<Link>) -> io::Result<Keeper> {
        let changed = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        if let Some(line) = link.lasting() {
            let wake = Arc::clone(&changed);
            line.watch(move || {
                // Full means that it is readable already.
                let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
            });
        }
        Ok(Keeper { stop, link, changed })
    }

    fn lines(&self) -> impl Iterator<Item = &Arc<Lasting>> {
        self.link.lasting().into_iter().chain(self.link.streams().all_lasting())
    }

    fn keep(&self) -> ! {
        let mut tended = Instant::now();
        loop {
            let lines: Vec<_> = self.lines().collect();
            let every = lines.first().and_then(|line| line.terms().interval());
            self.wait(&lines, every.map(|every| every.saturating_sub(tended.elapsed())));
            if every.is_some_and(|every| tended.elapsed() >= every) {
                tended = Instant::now();
                lines.iter().for_each(|line| self.tend(line));
            }
            lines.iter().for_each(|line| self.judge(line));
        }
    }

    /// Waits until something has happened, or may have to.
    fn wait(&self, lines: &[&Arc<Lasting>], limit: Option<Duration>) {
        let sockets: Vec<_> = lines.iter().filter_map(|line| Some((*line, line.socket()?))).collect();
        let mut polled = vec![PollFd::new(&self.stop.0, PollFlags::IN), PollFd::new(&*self.changed, PollFlags::IN)];
        // Errors and hang-ups are reported unasked.
        polled.extend(sockets.iter().map(|(_, socket)| PollFd::new(&**socket, PollFlags::RDHUP)));
        let limit = lines.iter().filter_map(|line| patience_with(line)).chain(limit).min();
        let limit = limit.map(|limit| Timespec::try_from(limit).unwrap_or_default());
        match poll(&mut polled, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                debug!(session = self.link.session(), %error, "cannot watch the connection");
                exit_now(exit_code::CLOSED);
            }
        }
        if !polled[0].revents().is_empty() {
            stopped(&self.link);
        }
        // Empty if it was something else.
        let _ = rustix::io::read(&*self.changed, &mut [0; 8]);
        for ((line, _), polled) in sockets.iter().zip(&polled[2..]) {
            if !polled.revents().is_empty() && !line.hung_up() {
                // Whoever receives is about to notice.
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// A program that was stopped, by its user or by a debugger, says nothing; but its system still answers.
    fn tend(&self, line: &Lasting) {
        let silent = line.tend();
        if line.terms().heartbeat.is_some_and(|limit| silent >= limit)
            && let Some(socket) = line.socket()
            && is_unanswered(&*socket)
        {
            debug!(session = self.link.session(), ?silent, "the driver's node does not answer");
            line.give_up_connection();
        }
    }

    /// Ends the process if a line has ended.
    fn judge(&self, line: &Lasting) {
        let session = self.link.session();
        match line.health() {
            Health::Whole => {}
            Health::Broken(..) if patience_with(line) != Some(Duration::ZERO) => {}
            Health::Broken(time, cause) => {
                debug!(session, ?time, ?cause, "the driver has not come back");
                exit_now(exit_code::GONE);
            }
            Health::Abused(reason) => {
                warn!(session, reason, "the driver broke the protocol");
                exit_now(exit_code::BROKEN_PROTOCOL);
            }
            Health::Left | Health::Over(_) => exit_now(exit_code::CLOSED),
        }
    }
}

/// How long a line may still be broken, if it is.
fn patience_with(line: &Lasting) -> Option<Duration> {
    let grace = line.terms().grace;
    match line.health() {
        Health::Broken(time, Cause::Closed) => Some(grace.min(PATIENCE).saturating_sub(time)),
        Health::Broken(time, Cause::Lost) => Some(grace.saturating_sub(time)),
        Health::Whole | Health::Left | Health::Abused(_) | Health::Over(_) => None,
    }
}
