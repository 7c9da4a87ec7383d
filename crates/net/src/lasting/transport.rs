//! The connections that a lasting line has, one after the other.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::Stream;

/// The side that makes connections.
pub trait Home: fmt::Debug + Send + Sync {
    /// Another connection to the same service.
    fn connect(&self, deadline: Instant) -> io::Result<Stream>;
    /// What names the session, and proves that it is ours.
    fn ticket(&self) -> (u64, [u8; 16]);
    /// Runs something in a thread of its own.
    fn spawn(&self, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;
    /// The line has this socket from now on.
    fn opened(&self, socket: BorrowedFd<'_>);
    /// It is about to be closed.
    fn closing(&self, socket: BorrowedFd<'_>);
}

/// Which end of a line this is.
#[derive(Clone, Debug)]
pub(super) enum Side {
    Driver(Arc<dyn Home>),
    Worker,
}

/// A connection that a line has, or had. Nobody but the line receives or sends there.
#[derive(Debug)]
pub struct Transport {
    pub(super) stream: Stream,
    /// They are counted from 1.
    pub(super) number: u64,
    side: Side,
}

impl Transport {
    pub(super) fn new(stream: Stream, number: u64, side: &Side) -> Arc<Transport> {
        if let Side::Driver(home) = side {
            home.opened(stream.as_fd());
        }
        Arc::new(Transport { stream, number, side: side.clone() })
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if let Side::Driver(home) = &self.side {
            home.closing(self.stream.as_fd());
        }
    }
}
