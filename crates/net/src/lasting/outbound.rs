//! What goes out on a lasting line, and what is kept until the peer says that it has it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::record::{HEAD, Record};
use super::{Lasting, Transport, WINDOW};

/// What is kept of memory that is not needed at the moment.
const SPARE: usize = 4 << 20;

/// More than small frames come to.
const MUCH: usize = 256 << 10;

/// The sending half. Whoever has its lock is the only one who sends.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) transport: Arc<Transport>,
    /// Data that the peer may not have: its first byte is number `base` of the line.
    kept: VecDeque<u8>,
    base: u64,
    /// The number of the next byte.
    next: u64,
    /// The rest of a record without data, of which the system has taken a part.
    stub: Vec<u8>,
    /// Where heads are put before data.
    scratch: Vec<u8>,
}

/// Told when the system has no more room for what is being sent: what it has taken so far, what is left, and what it has
/// room for in all.
pub(crate) type WhenFull<'f> = &'f mut dyn FnMut(usize, usize, usize);

impl Outbound {
    pub(super) fn new(transport: Arc<Transport>) -> Outbound {
        Outbound { transport, kept: VecDeque::new(), base: 0, next: 0, stub: Vec::new(), scratch: Vec::new() }
    }

    /// How much the peer may not have.
    pub(super) fn unsure(&self) -> usize {
        self.kept.len()
    }

    /// Sends one after the other as one record, waiting until the system has taken all; if the line breaks meanwhile,
    /// goes on when it is whole again.
    pub(super) fn send(
        &mut self,
        line: &Lasting,
        head: &[u8],
        payload: &[u8],
        full: Option<WhenFull<'_>>,
    ) -> io::Result<()> {
        self.forget_until(line.acknowledged());
        let len = head.len() + payload.len();
        if !line.keeps() {
            self.next += len as u64;
            line.note_sent(self.next);
            let sent = self.transmit(line, head, payload, full);
            return sent.inspect_err(|error| line.broke(&self.transport, error));
        }
        self.make_room(len);
        self.kept.extend(head);
        let begin = self.next + head.len() as u64;
        self.next += len as u64;
        line.note_sent(self.next);
        let fresh = self.transport.number == line.transport_number();
        let sent =
            if fresh { self.transmit(line, head, payload, full) } else { Err(io::ErrorKind::NotConnected.into()) };
        if let Err(error) = sent {
            self.send_again(line, begin, payload, error)?;
        }
        // The caller's memory may change from now on.
        self.forget_until(line.acknowledged());
        let known = line.acknowledged().clamp(begin, self.next);
        if known > begin {
            self.base = known;
        }
        self.kept.extend(&payload[(known - begin) as usize..]);
        Ok(())
    }

    /// Sends all that the peer does not have, if that has not been done on the transport at hand.
    pub(super) fn catch_up(&mut self, line: &Lasting) -> io::Result<()> {
        if self.transport.number == line.transport_number() {
            return Ok(());
        }
        self.send_again(line, self.next, &[], io::ErrorKind::NotConnected.into())
    }

    /// Sends a record without data, if the system has room for it. Of one that does not fit, nothing is sent.
    pub(super) fn try_send_empty(&mut self, line: &Lasting, bye: bool) -> io::Result<bool> {
        if self.transport.number != line.transport_number() {
            return Ok(false);
        }
        if self.stub.is_empty() {
            self.stub.extend_from_slice(&Record { len: 0, bye, received: line.note_told() }.bytes());
            let whole = self.stub.len();
            let left = self.try_send_stub()?;
            if left == whole {
                self.stub.clear();
            }
            Ok(left < whole)
        } else {
            self.try_send_stub().map(|_| false)
        }
    }

    /// How much of it is left.
    fn try_send_stub(&mut self) -> io::Result<usize> {
        let mut rest = self.stub.as_slice();
        self.transport.stream.try_send(&mut rest, &mut &[][..])?;
        let left = rest.len();
        self.stub.drain(..self.stub.len() - left);
        Ok(left)
    }

    fn transmit(&mut self, line: &Lasting, head: &[u8], payload: &[u8], full: Option<WhenFull<'_>>) -> io::Result<()> {
        self.scratch.clear();
        self.scratch.append(&mut self.stub);
        self.put_head(line, head.len() + payload.len())?;
        self.scratch.extend_from_slice(head);
        let stream = &self.transport.stream;
        match full {
            None => stream.send_all(&self.scratch, payload),
            Some(full) => stream.send_watched(&self.scratch, payload, full),
        }
    }

    /// For much, at once what a window and one record need: to grow again and again would cost copies, and as much memory
    /// again.
    fn make_room(&mut self, more: usize) {
        let enough = self.kept.len() + more;
        if enough > self.kept.capacity() && enough > MUCH {
            self.kept.reserve_exact(enough.max(WINDOW + telecl_wire::CHUNK + MUCH) - self.kept.len());
        }
    }

    fn put_head(&mut self, line: &Lasting, len: usize) -> io::Result<()> {
        let len = u32::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.scratch.extend_from_slice(&Record { len, bye: false, received: line.note_told() }.bytes());
        Ok(())
    }

    /// The line broke, or had been broken: waits until it is whole, and sends what the peer has not got: of what is kept,
    /// and of the payload, whose first byte is number `begin`.
    fn send_again(&mut self, line: &Lasting, begin: u64, payload: &[u8], mut error: io::Error) -> io::Result<()> {
        loop {
            if self.transport.number == line.transport_number() {
                line.broke(&self.transport, &error);
            }
            let (transport, peer_has) = line.wait_for_transport(&self.transport)?;
            self.transport = transport;
            self.stub.clear();
            self.forget_until(peer_has);
            let payload = &payload[(peer_has.clamp(begin, begin + payload.len() as u64) - begin) as usize..];
            match self.transmit_kept(line, payload) {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
    }

    fn transmit_kept(&mut self, line: &Lasting, payload: &[u8]) -> io::Result<()> {
        let len = self.kept.len() + payload.len();
        if len == 0 {
            return Ok(());
        }
        self.scratch.clear();
        self.put_head(line, len)?;
        let stream = &self.transport.stream;
        let (first, second) = self.kept.as_slices();
        stream.send_all(&self.scratch[..HEAD], first)?;
        stream.send_all(second, payload)
    }

    /// The peer has everything before this byte.
    pub(super) fn forget_until(&mut self, number: u64) {
        let count = number.saturating_sub(self.base).min(self.kept.len() as u64);
        self.base += count;
        self.kept.drain(..count as usize);
        if self.kept.is_empty() && self.kept.capacity() > SPARE {
            self.kept = VecDeque::new();
        }
    }
}
