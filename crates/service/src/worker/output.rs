//! What kernels print: caught where the vendor's driver puts it, sent to where the program runs.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::{fs, stdio};
use telecl_wire::reply;
use tracing::debug;

use super::link::Link;
use super::start::guarded;
use crate::process::flush_c_output;

/// Room for a large printf buffer, so that drivers rarely wait for us. The system may allow less.
const PIPE_SIZE: usize = 1 << 20;

/// The worker's standard output, which belongs to the kernels.
#[derive(Debug)]
pub(crate) struct Output {
    /// Does not block. Its lock is held while text is read and put on the link, so that text keeps its order.
    pipe: Mutex<OwnedFd>,
    /// A second handle, to wait for text without the lock.
    wake: OwnedFd,
    /// Whether some program of the session prints at all.
    expected: AtomicBool,
    link: Arc<Link>,
}

/// Standard output, before there is a session to send it to.
#[derive(Debug)]
pub(crate) struct Captured(OwnedFd);

impl Output {
    /// Replaces standard output by a pipe.
    pub(crate) fn capture() -> io::Result<Captured> {
        let (pipe, write_end) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only the reading end: a driver that prints must be able to wait.
        fs::fcntl_setfl(&pipe, fs::fcntl_getfl(&pipe)? | fs::OFlags::NONBLOCK)?;
        // Unprivileged processes may have a smaller limit; the usual 64 KiB will do.
        let _ = fcntl_setpipe_size(&write_end, PIPE_SIZE);
        stdio::dup2_stdout(&write_end)?;
        Ok(Captured(pipe))
    }

    /// Starts the thread that reads the pipe. What vendors' libraries have printed while they were loaded is no kernel's,
    /// and goes to the log.
    pub(crate) fn start(Captured(pipe): Captured, link: Arc<Link>) -> io::Result<Arc<Output>> {
        flush_c_output();
        let mut text = [0; 4 << 10];
        while let Ok(n @ 1..) = rustix::io::read(&pipe, &mut text) {
            debug!(session = link.session(), text = %String::from_utf8_lossy(&text[..n]), "printed at the start");
        }
        let wake = pipe.try_clone()?;
        let output = Arc::new(Output { pipe: Mutex::new(pipe), wake, expected: AtomicBool::new(false), link });
        let reading = Arc::clone(&output);
        let thread = thread::Builder::new().name("telecl-output".into()).stack_size(256 << 10);
        thread.spawn(move || guarded(&reading.link, "output", || reading.read_on()))?;
        Ok(output)
    }

    /// Looks for `printf` in something that becomes a program.
    pub(crate) fn look_for_printf(&self, code: &[u8]) {
        if !self.is_expected() && contains(code, b"printf") {
            self.expected.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_expected(&self) -> bool {
        self.expected.load(Ordering::Relaxed)
    }

    /// Puts all that was printed so far on the link, without flushing it. Sessions that never print pay nothing.
    pub(crate) fn drain(&self) {
        if self.is_expected() {
            flush_c_output();
            self.pass_on();
        }
    }

    fn read_on(&self) {
        loop {
            match poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            if !self.pass_on() {
                return;
            }
            self.link.flush();
        }
    }

    /// Passes on what is in the pipe; `false` at its end.
    fn pass_on(&self) -> bool {
        let pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = [0; 16 << 10];
        loop {
            match rustix::io::read(&*pipe, &mut text) {
                Ok(0) => return false,
                Ok(n) => self.link.push(&reply::Output {}, &text[..n]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }
}

fn contains(code: &[u8], word: &[u8]) -> bool {
    code.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printf_is_found_anywhere() {
        assert!(contains(b"kernel void f() { printf(\"x\"); }", b"printf"));
        assert!(!contains(b"print f", b"printf"));
        assert!(!contains(b"", b"printf"));
    }
}
