//! Where frames and payloads go: a connection, or a line that outlasts its connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::lasting::WhenFull;
use crate::{Lasting, Stream};

/// Carries bytes in both directions.
#[derive(Debug)]
pub enum Line {
    /// Ends with its connection.
    Plain(Stream),
    Lasting(Arc<Lasting>),
}

impl From<Stream> for Line {
    fn from(stream: Stream) -> Line {
        Line::Plain(stream)
    }
}

impl From<Arc<Lasting>> for Line {
    fn from(line: Arc<Lasting>) -> Line {
        Line::Lasting(line)
    }
}

impl Line {
    /// Another handle on the same line.
    pub fn try_clone(&self) -> io::Result<Line> {
        match self {
            Line::Plain(stream) => stream.try_clone().map(Line::Plain),
            Line::Lasting(line) => Ok(Line::Lasting(Arc::clone(line))),
        }
    }

    /// The connection, if it is all there is.
    pub fn plain(&self) -> Option<&Stream> {
        match self {
            Line::Plain(stream) => Some(stream),
            Line::Lasting(_) => None,
        }
    }

    pub fn lasting(&self) -> Option<&Arc<Lasting>> {
        match self {
            Line::Plain(_) => None,
            Line::Lasting(line) => Some(line),
        }
    }

    /// Sends bytes that are no frame.
    pub fn send_payload(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_all(&[], bytes)
    }

    /// Receives bytes that are no frame; an error if the line ends before all of them have come.
    pub fn receive_payload(&self, target: &mut [u8]) -> io::Result<()> {
        if self.receive_all(target)? == target.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Sends wait no longer than this from now on.
    pub fn hurry(&self, limit: Duration) -> io::Result<()> {
        match self {
            Line::Plain(stream) => stream.set_send_timeout(Some(limit)),
            Line::Lasting(line) => {
                line.hurry(limit);
                Ok(())
            }
        }
    }

    /// Ends it; a thread that waits for it wakes up.
    pub fn shutdown(&self) {
        match self {
            Line::Plain(stream) => stream.shutdown(),
            Line::Lasting(line) => line.end(),
        }
    }

    /// Ends it on purpose, which the peer gets to know.
    pub fn leave(&self) {
        match self {
            Line::Plain(stream) => stream.shutdown(),
            Line::Lasting(line) => line.leave(),
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        match self {
            Line::Plain(stream) => stream.is_local(),
            Line::Lasting(line) => line.is_local(),
        }
    }

    /// Receives what there is, waiting for it; 0 at the end.
    pub(crate) fn receive(&self, target: &mut [u8]) -> io::Result<usize> {
        match self {
            Line::Plain(stream) => stream.receive(target),
            Line::Lasting(line) => line.receive(target),
        }
    }

    /// Fills `target`, waiting for all of it; less at the end.
    pub(crate) fn receive_all(&self, target: &mut [u8]) -> io::Result<usize> {
        match self {
            Line::Plain(stream) => stream.receive_all(target),
            Line::Lasting(line) => line.receive_all(target),
        }
    }

    /// Receives what there is; `None` if that is nothing.
    pub(crate) fn try_receive(&self, target: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Line::Plain(stream) => stream.try_receive(target),
            Line::Lasting(line) => line.try_receive(target),
        }
    }

    /// As [`Line::try_receive`], but only what can be had without a system call.
    pub(crate) fn glance(&self, target: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Line::Plain(stream) => stream.take_received(target),
            Line::Lasting(line) => line.glance(target),
        }
    }

    /// Whether something has been received that nobody has taken: whoever waits for more must take it first.
    pub(crate) fn has_received(&self) -> bool {
        match self {
            Line::Plain(stream) => stream.has_received(),
            Line::Lasting(line) => line.has_received(),
        }
    }

    /// Sends one after the other, waiting until all has been taken.
    pub(crate) fn send_all(&self, first: &[u8], second: &[u8]) -> io::Result<()> {
        match self {
            Line::Plain(stream) => stream.send_all(first, second),
            Line::Lasting(line) => line.send(first, second, None),
        }
    }

    /// As [`Line::send_all`]; says when the system has no more room.
    pub(crate) fn send_watched(&self, first: &[u8], second: &[u8], full: WhenFull<'_>) -> io::Result<()> {
        match self {
            Line::Plain(stream) => stream.send_watched(first, second, full),
            Line::Lasting(line) => line.send(first, second, Some(full)),
        }
    }

    /// How many bytes the system keeps for the peer until it has taken them; roughly, and it may change.
    pub(crate) fn send_buffer(&self) -> usize {
        match self {
            Line::Plain(stream) => stream.send_buffer(),
            Line::Lasting(line) => line.send_buffer(),
        }
    }
}
