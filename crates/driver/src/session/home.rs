//! How a session that has lost its connection gets another.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use telecl_net::{Home, Redial, Stream};

use super::callbacks::spawn;
use super::streams::Ticket;
use crate::process;

/// Where the session's service is, and what it takes to be known there.
#[derive(Debug)]
pub(super) struct AtService {
    pub(super) redial: Redial,
    pub(super) ticket: Ticket,
}

impl Home for AtService {
    fn connect(&self, deadline: Instant) -> io::Result<Stream> {
        self.redial.connect(deadline)
    }

    fn ticket(&self) -> (u64, [u8; 16]) {
        (self.ticket.session, self.ticket.secret)
    }

    fn spawn(&self, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        spawn("telecl-resume", 128 << 10, body)
    }

    fn opened(&self, socket: BorrowedFd<'_>) {
        process::remember_socket(socket);
    }

    fn closing(&self, socket: BorrowedFd<'_>) {
        process::forget_socket(socket);
    }
}
