//! Ends the worker when there is nobody left to work for.

use std::io;
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
use crate::process::{exit_code, exit_now};

/// Starts the watcher: it needs nothing of the other threads, which may be deep in a vendor's driver.
pub(crate) fn start(stream: Stream, link: Arc<Link>) -> io::Result<()> {
    let (stop, signalled) = UnixStream::pair()?;
    pipe::register(SIGTERM, signalled)?;
    let watcher = thread::Builder::new().name("telecl-watch".into()).stack_size(128 << 10);
    watcher.spawn(move || watch(&stream, &stop, &link))?;
    Ok(())
}

fn watch(stream: &Stream, stop: &UnixStream, link: &Link) -> ! {
    loop {
        // Errors and hang-ups are reported unasked.
        let mut polled = [PollFd::new(stream, PollFlags::RDHUP), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut polled, None) {
            Err(Errno::INTR) => continue,
            Err(error) => debug!(session = link.session(), %error, "cannot watch the connection"),
            Ok(_) => {}
        }
        if !polled[1].revents().is_empty() {
            link.closing("the service is stopping");
            exit_now(exit_code::STOPPED);
        }
        exit_now(exit_code::CLOSED);
    }
}
