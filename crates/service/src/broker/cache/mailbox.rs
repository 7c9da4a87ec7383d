//! What the cache has to say to a worker: put there by whichever thread, sent by the worker's own, so that a worker that
//! does not read keeps nobody else waiting.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// An answer to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Here it is.
    Hit(u64, Arc<[u8]>),
    /// It is yours to build.
    Build(u64),
}

/// Readable while there are answers in it. Its lock is held for one line.
#[derive(Debug)]
pub(crate) struct Mailbox {
    answers: Mutex<VecDeque<Answer>>,
    wake: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Mailbox> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { answers: Mutex::default(), wake })
    }

    pub(super) fn put(&self, answer: Answer) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push_back(answer);
        // Full means that it is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Everything that is in it.
    pub(crate) fn take(&self) -> VecDeque<Answer> {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut counter);
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
