//! What comes in on a lasting line.

use std::io;
use std::sync::Arc;

use super::record::{HEAD, Record, broken};
use super::{Lasting, Transport};

/// What is read ahead. Larger pieces go straight to where they belong.
const AHEAD: usize = 64 << 10;

/// The receiving half. Whoever has its lock is the only one who receives; it is given back while the line is broken.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) transport: Arc<Transport>,
    /// Whether the transport is of use.
    pub(super) whole: bool,
    ahead: Vec<u8>,
    start: usize,
    end: usize,
    /// Data of the record at hand that has not been taken.
    left: usize,
    bye: bool,
}

/// How much may be read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Fixed,
    /// For one who sends, and must not wait for those who receive.
    AsMuchAsComes,
}

/// What a peer may send ahead at most: it waits for our word as we do for its.
const MOST_AHEAD: usize = 64 << 20;

/// Whether to wait for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Wait,
    Look,
    /// Only at what was read ahead.
    Glance,
}

impl Inbound {
    pub(super) fn new(transport: Arc<Transport>) -> Inbound {
        let ahead = vec![0; AHEAD];
        Inbound { transport, whole: true, ahead, start: 0, end: 0, left: 0, bye: false }
    }

    /// Goes on with another transport: what was read ahead comes again.
    pub(super) fn replace(&mut self, transport: Arc<Transport>) {
        self.transport = transport;
        self.give_up();
        self.whole = true;
    }

    /// The transport is of no use any more.
    pub(super) fn give_up(&mut self) {
        self.whole = false;
        (self.start, self.end, self.left) = (0, 0, 0);
    }

    /// Whether data has been read ahead.
    pub(super) fn has_data(&self) -> bool {
        self.left > 0 && self.start < self.end
    }

    pub(super) fn has_bye(&self) -> bool {
        self.bye
    }

    /// Takes what there is, at least a byte; 0 after the peer's farewell, `None` if there is nothing and that is not
    /// waited for. An error is one of the transport, or the peer's.
    pub(super) fn take(&mut self, line: &Lasting, target: &mut [u8], patience: Patience) -> io::Result<Option<usize>> {
        let mut taken = 0;
        loop {
            while taken < target.len() && self.next_head(line)? && self.start < self.end {
                let ahead = &self.ahead[self.start..self.end];
                let n = ahead.len().min(self.left).min(target.len() - taken);
                target[taken..taken + n].copy_from_slice(&ahead[..n]);
                self.start += n;
                self.left -= n;
                taken += n;
            }
            if taken > 0 {
                line.count_received(taken);
                return Ok(Some(taken));
            }
            if self.bye {
                return Ok(Some(0));
            }
            let direct = self.left.min(target.len());
            if self.left > 0 && direct >= AHEAD && patience == Patience::Wait {
                return self.take_directly(line, &mut target[..direct]).map(Some);
            }
            // No more than is asked for: what follows a payload goes straight to its place.
            let room = if self.left > 0 { direct } else { HEAD + target.len() };
            if !self.read_ahead(line, room, patience)? {
                return Ok(None);
            }
        }
    }

    /// Takes in what has arrived, without waiting, and hears what is said there; data is left to whoever receives.
    pub(super) fn look(&mut self, line: &Lasting, room: Room) -> io::Result<()> {
        loop {
            self.next_head(line)?;
            if self.bye || (self.left > 0 && self.start < self.end && room == Room::Fixed) {
                return Ok(());
            }
            if self.end - self.start == self.ahead.len() {
                if self.ahead.len() >= MOST_AHEAD {
                    return Err(broken("the peer sends without end, and hears nothing"));
                }
                self.ahead.resize(2 * self.ahead.len(), 0);
            }
            if !self.read_ahead(line, self.ahead.len(), Patience::Look)? {
                break;
            }
        }
        self.hear_ahead(line)
    }

    /// Hears what is said between data that nobody has taken.
    fn hear_ahead(&self, line: &Lasting) -> io::Result<()> {
        let mut place = self.start + self.left;
        while let Some(head) = self.ahead[..self.end].get(place..).and_then(|rest| rest.first_chunk::<HEAD>()) {
            let record = Record::parse(head)?;
            line.acknowledge(record.received)?;
            place += HEAD + record.len as usize;
        }
        Ok(())
    }

    /// Goes to the data of the next record; `false` if its head has not come.
    fn next_head(&mut self, line: &Lasting) -> io::Result<bool> {
        while self.left == 0 && !self.bye {
            let Some(head) = self.ahead[self.start..self.end].first_chunk::<HEAD>() else { return Ok(false) };
            let record = Record::parse(head)?;
            self.start += HEAD;
            self.left = record.len as usize;
            self.bye = record.bye;
            line.acknowledge(record.received)?;
        }
        Ok(!self.bye)
    }

    /// Fills `target` with data of the record at hand; less only if the transport ends.
    fn take_directly(&mut self, line: &Lasting, target: &mut [u8]) -> io::Result<usize> {
        let received = self.transport.stream.receive_all(target)?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= received;
        line.note_heard();
        line.count_received(received);
        Ok(received)
    }

    fn read_ahead(&mut self, line: &Lasting, room: usize, patience: Patience) -> io::Result<bool> {
        if self.start > 0 {
            self.ahead.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == 0 && self.ahead.len() > AHEAD && room < 2 * AHEAD {
            // Somebody had to make room.
            self.ahead = vec![0; AHEAD];
        }
        let most = self.ahead.len();
        let room = &mut self.ahead[self.end..most.min(self.end.saturating_add(room))];
        let received = match patience {
            Patience::Wait => Some(self.transport.stream.receive(room)?),
            Patience::Look => self.transport.stream.try_receive(room)?,
            Patience::Glance => self.transport.stream.take_received(room)?,
        };
        match received {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(n) => {
                self.end += n;
                line.note_heard();
                Ok(true)
            }
            None => Ok(false),
        }
    }
}
