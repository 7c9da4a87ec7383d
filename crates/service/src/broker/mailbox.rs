//! What others have for a worker: put there by whichever thread, sent by the worker's own, so that a worker that does not
//! read keeps nobody else waiting.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// Readable while there is something in it. Its lock is held for one line.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    content: Mutex<VecDeque<T>>,
    wake: OwnedFd,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> io::Result<Mailbox<T>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { content: Mutex::new(VecDeque::new()), wake })
    }

    pub(crate) fn put(&self, item: T) {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).push_back(item);
        // Full means that it is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Everything that is in it.
    pub(crate) fn take(&self) -> VecDeque<T> {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut counter);
        std::mem::take(&mut *self.content.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
