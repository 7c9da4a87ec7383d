//! Ends the worker when there is nobody left to work for, or a part of the connection is gone.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::pipe;
use telecl_net::Stream;
use tracing::debug;

use super::link::Link;
use crate::board::Wish;
use crate::process::{exit_code, exit_now};

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
    watcher.spawn(move || watch(&stream, &stop.0, &link))?;
    Ok(())
}

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
            match link.board().wished() {
                wish @ (Wish::Stop | Wish::Drained) => link.closing(&wish.reason()),
                wish => link.closing_by_policy(&wish.reason()),
            }
            exit_now(exit_code::STOPPED);
        }
        if polled[0].revents().is_empty() {
            link.stream_lost(&io::ErrorKind::UnexpectedEof.into());
        }
        exit_now(exit_code::CLOSED);
    }
}
