//! The receiving half of a link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use telecl_wire::{DecodeError, Header};

use telecl_shm::{Corrupt, ReceivedSlot, SLOT};

use crate::compress::unpack;
use crate::idle::{Idle, Sleep};
use crate::shared::{Incoming, corrupt};
use crate::{Bell, Line, Stream};

/// What is read ahead: room for hundreds of small frames per system call.
const READ_AHEAD: usize = 64 << 10;

/// Why no frame came.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("peer broke the protocol: {0}")]
    Protocol(#[from] DecodeError),
}

/// Whether there is a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// [`FrameReceiver::frame`] has it.
    Ready,
    /// Nothing has arrived, or not all of it.
    Nothing,
    /// The peer closed the connection between two frames.
    Closed,
}

/// Takes frames from a stream.
#[derive(Debug)]
pub struct FrameReceiver {
    input: Input,
    opcode: u16,
    body: Vec<u8>,
}

/// One frame. The body is complete; the payload is still on its way.
#[derive(Debug)]
pub struct Frame<'r> {
    pub opcode: u16,
    pub body: &'r [u8],
    pub payload: Payload<'r>,
}

/// The payload of the frame at hand. What is not read is skipped before the next frame.
#[derive(Debug)]
pub struct Payload<'r>(&'r mut Input);

/// Where bytes come from.
#[derive(Debug)]
enum Source {
    Socket(Line),
    Shared(Incoming),
}

#[derive(Debug)]
struct Input {
    source: Source,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Whether the last frame had bulk data. After it comes more of the same, which is to go straight to where it belongs,
    /// so no more is read than the head of the next frame.
    bulk: bool,
    /// Bytes of the current payload that have not been read.
    unread: usize,
    /// Where they are.
    place: Place,
    /// A compressed payload on its way from `place` to `place`: as it came, and as it was before.
    packed: Vec<u8>,
    unpacked: Vec<u8>,
    idle: Box<dyn Idle>,
    /// Rings for a thread that waits on behalf of others.
    bell: Option<Arc<Bell>>,
}

/// Where the rest of a payload is.
#[derive(Debug)]
enum Place {
    /// It follows.
    Stream,
    /// It follows in so many bytes, compressed.
    Packed(usize),
    /// In [`Input::unpacked`], of which so many bytes have been read.
    Unpacked(usize),
    /// In shared memory, of which so many bytes have been read.
    Slot(ReceivedSlot, usize),
    /// It comes on another stream.
    Elsewhere(usize),
}

/// Whether to wait for bytes that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Wait,
    Look,
    /// Makes no system call.
    Glance,
}

impl FrameReceiver {
    pub fn new(line: impl Into<Line>) -> FrameReceiver {
        FrameReceiver::from_source(Source::Socket(line.into()))
    }

    pub(crate) fn shared(incoming: Incoming) -> FrameReceiver {
        FrameReceiver::from_source(Source::Shared(incoming))
    }

    fn from_source(source: Source) -> FrameReceiver {
        let buffer = vec![0; READ_AHEAD].into_boxed_slice();
        let idle = Box::new(Sleep);
        let input = Input {
            source,
            buffer,
            start: 0,
            end: 0,
            bulk: false,
            unread: 0,
            place: Place::Stream,
            packed: Vec::new(),
            unpacked: Vec::new(),
            idle,
            bell: None,
        };
        FrameReceiver { input, opcode: 0, body: Vec::new() }
    }

    /// Receives these bytes first.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.input.buffer[..bytes.len()].copy_from_slice(bytes);
        self.input.end = bytes.len();
    }

    /// A bell for a thread that waits while nobody has this receiver. It rings from now on.
    pub fn bell(&mut self) -> io::Result<Arc<Bell>> {
        let bell = match &self.input.source {
            Source::Socket(Line::Lasting(line)) => {
                let bell = Arc::new(Bell::unattached()?);
                line.set_bell(&bell);
                bell
            }
            Source::Socket(Line::Plain(stream)) => Arc::new(Bell::new(stream.try_clone()?)?),
            Source::Shared(incoming) => Arc::new(Bell::new(incoming.stream().try_clone()?)?),
        };
        self.input.bell = Some(Arc::clone(&bell));
        Ok(bell)
    }

    /// Keeps the bell from ringing: the caller takes what arrives.
    pub fn mute(&self) {
        match (&self.input.source, &self.input.bell) {
            (Source::Shared(incoming), _) => incoming.cancel_sleep(),
            (Source::Socket(_), Some(bell)) => bell.mute(),
            (Source::Socket(_), None) => {}
        }
    }

    /// Lets the bell ring for what arrives from now on; `false` if something has arrived that it would not ring for, and
    /// that is to be taken first.
    pub fn unmute(&self) -> io::Result<bool> {
        match (&self.input.source, &self.input.bell) {
            (Source::Shared(incoming), _) => incoming.sleep_announced(),
            (Source::Socket(stream), bell) => {
                bell.as_deref().inspect(|bell| bell.unmute());
                Ok(!stream.has_received())
            }
        }
    }

    /// Sleeps until there is something to receive, or `other` is readable, but no longer than `limit`. What was read ahead
    /// must have been taken.
    pub fn sleep_beside(&mut self, other: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> io::Result<()> {
        if self.stream().is_none() && self.input.bell.is_none() {
            self.bell()?;
        }
        if self.unmute()? {
            let own = match (&self.input.bell, self.stream()) {
                (_, Some(stream)) => stream.as_fd(),
                (Some(bell), None) => bell.as_fd(),
                (None, None) => return Ok(()),
            };
            let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
            // An error is noticed by whoever receives.
            let _ = match other {
                Some(other) => poll(&mut [readable(own), readable(other)], limit.as_ref()),
                None => poll(&mut [readable(own)], limit.as_ref()),
            };
        }
        if let (Some(bell), None) = (&self.input.bell, self.stream()) {
            // It may have been rung by hand.
            bell.wait(Some(Duration::ZERO))?;
        }
        self.mute();
        Ok(())
    }

    /// Says what is done while there is nothing to receive, before the thread sleeps.
    pub fn set_idle(&mut self, idle: impl Idle + 'static) {
        self.input.idle = Box::new(idle);
    }

    /// Its connection, if that cannot be replaced by another.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.input.source {
            Source::Socket(line) => line.plain(),
            Source::Shared(incoming) => Some(incoming.stream()),
        }
    }

    /// What comes behind the frame at hand, of whose payload nothing has been read, if that has arrived.
    pub fn next_opcode(&self) -> Option<u16> {
        let payload = match self.input.place {
            Place::Stream => self.input.unread,
            Place::Packed(len) => len,
            Place::Unpacked(_) | Place::Slot(..) | Place::Elsewhere(_) => 0,
        };
        let rest = self.input.buffer[self.input.start..self.input.end].get(payload..)?;
        Header::parse(rest.first_chunk()?).ok().map(|header| header.opcode.get())
    }

    /// Waits for the next frame; `None` if the peer closed the connection between two frames.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, ReceiveError> {
        Ok(match self.wait()? {
            Progress::Ready => Some(self.frame()),
            Progress::Nothing | Progress::Closed => None,
        })
    }

    /// Waits until there is a frame or the end; never [`Progress::Nothing`].
    pub fn wait(&mut self) -> Result<Progress, ReceiveError> {
        self.advance(Patience::Wait)
    }

    /// Takes what has arrived and says whether a frame is there.
    pub fn look(&mut self) -> Result<Progress, ReceiveError> {
        self.advance(Patience::Look)
    }

    /// As [`FrameReceiver::look`], but only at what can be had without a system call.
    pub fn glance(&mut self) -> Result<Progress, ReceiveError> {
        self.advance(Patience::Glance)
    }

    /// The cheapest way to find what has arrived: [`FrameReceiver::glance`], and a look where a glance cannot tell. The end
    /// of a connection may go unnoticed until somebody waits.
    pub fn poll(&mut self) -> Result<Progress, ReceiveError> {
        match self.glance()? {
            Progress::Nothing if matches!(self.input.source, Source::Socket(_)) => self.look(),
            progress => Ok(progress),
        }
    }

    /// The frame that [`FrameReceiver::wait`] or [`FrameReceiver::look`] found.
    pub fn frame(&mut self) -> Frame<'_> {
        Frame { opcode: self.opcode, body: &self.body, payload: Payload(&mut self.input) }
    }

    fn advance(&mut self, patience: Patience) -> Result<Progress, ReceiveError> {
        let input = &mut self.input;
        if !input.skip_payload(patience)? {
            return Ok(Progress::Nothing);
        }
        loop {
            let buffered = &input.buffer[input.start..input.end];
            if let Some((head, rest)) = buffered.split_first_chunk::<{ Header::LEN }>() {
                let header = Header::parse(head)?;
                let length = header.body_len();
                let whole = rest.get(..length);
                // A body longer than what is read ahead is rare, and on its way.
                if whole.is_some() || Header::LEN + length > READ_AHEAD {
                    self.body.clear();
                    self.opcode = header.opcode.get();
                    match whole {
                        Some(body) => {
                            self.body.extend_from_slice(body);
                            input.start += Header::LEN + length;
                        }
                        None => {
                            input.start += Header::LEN;
                            self.body.resize(length, 0);
                            input.fill(&mut self.body)?;
                        }
                    }
                    input.unread = header.payload_len();
                    input.bulk = input.unread >= READ_AHEAD;
                    // Otherwise it is `Place::Stream` since the payload before was skipped.
                    if !header.is_plain() {
                        input.place = input.find(&header)?;
                        input.unread = header.decompressed_len().unwrap_or(input.unread);
                        input.bulk &= header.stream().is_none();
                    }
                    return Ok(Progress::Ready);
                }
            }
            let at_frame_end = buffered.is_empty();
            match input.read_ahead(patience)? {
                None => return Ok(Progress::Nothing),
                Some(0) if at_frame_end => return Ok(Progress::Closed),
                Some(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Some(_) => {}
            }
        }
    }
}

impl Payload<'_> {
    /// How many bytes are still to be read.
    pub fn len(&self) -> usize {
        self.0.unread
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads as many bytes as `target` holds; asking for more than there are is an error.
    pub fn read_into(&mut self, target: &mut [u8]) -> Result<(), ReceiveError> {
        self.read(target, ReceivedSlot::copy_to)
    }

    /// As [`Payload::read_into`], for a part of something large.
    pub fn read_bulk_into(&mut self, target: &mut [u8]) -> Result<(), ReceiveError> {
        self.read(target, ReceivedSlot::stream_to)
    }

    fn read(
        &mut self,
        target: &mut [u8],
        copy: impl Fn(&ReceivedSlot, usize, &mut [u8]) -> Result<(), Corrupt>,
    ) -> Result<(), ReceiveError> {
        if target.len() > self.0.unread {
            return Err(DecodeError::Truncated.into());
        }
        if let Place::Packed(len) = self.0.place {
            self.0.unpack(len, target)?;
        } else {
            match &mut self.0.place {
                Place::Slot(slot, read) => {
                    copy(slot, *read, target).map_err(|error| ReceiveError::Io(corrupt(error)))?;
                    *read += target.len();
                }
                Place::Unpacked(read) => {
                    let rest = &self.0.unpacked[*read..];
                    target.copy_from_slice(&rest[..target.len()]);
                    *read += target.len();
                }
                Place::Elsewhere(_) => return Err(DecodeError::BadHeader.into()),
                Place::Stream | Place::Packed(_) => self.0.fill(target)?,
            }
        }
        self.0.unread -= target.len();
        Ok(())
    }

    /// The slot that has the payload, if it is in one and nothing of it has been read: to be used where it is.
    pub fn take_slot(&mut self) -> Option<ReceivedSlot> {
        let Place::Slot(_, 0) = self.0.place else { return None };
        self.0.unread = 0;
        match std::mem::replace(&mut self.0.place, Place::Stream) {
            Place::Slot(slot, _) => Some(slot),
            _ => None,
        }
    }

    /// The stream on which the payload comes and how many bytes it has, if it comes on another: whoever takes it reads it
    /// there. It cannot be read here, nor skipped.
    pub fn take_stream(&mut self) -> Option<(usize, usize)> {
        let Place::Elsewhere(stream) = self.0.place else { return None };
        self.0.place = Place::Stream;
        Some((stream, std::mem::take(&mut self.0.unread)))
    }

    /// All of the rest.
    pub fn read_to_vec(mut self) -> Result<Vec<u8>, ReceiveError> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes)?;
        Ok(bytes)
    }

    /// Adds the rest to `bytes`.
    pub fn append_to(&mut self, bytes: &mut Vec<u8>) -> Result<(), ReceiveError> {
        let old = bytes.len();
        bytes.resize(old + self.0.unread, 0);
        self.read_into(&mut bytes[old..])
    }
}

impl Input {
    /// Where a payload is that does not follow as it is. Only a peer that shares memory may name a slot, and no more than
    /// it holds; and such a peer has no reason to compress, nor other streams.
    fn find(&self, header: &Header) -> Result<Place, DecodeError> {
        match (&self.source, header.slot()) {
            (Source::Socket(_), None) => {
                Ok(header.stream().map_or(Place::Packed(header.payload_len()), Place::Elsewhere))
            }
            (Source::Shared(_), Some(_)) if header.payload_len() > SLOT => Err(DecodeError::TooLong),
            (Source::Shared(incoming), Some(index)) => {
                incoming.slot(index).map(|slot| Place::Slot(slot, 0)).ok_or(DecodeError::BadHeader)
            }
            (Source::Socket(_), Some(_)) | (Source::Shared(_), None) => Err(DecodeError::BadHeader),
        }
    }

    /// Fills `target` from the compressed payload of `len` bytes that follows. What is left over waits in memory. None is
    /// taken beyond what the header has announced.
    fn unpack(&mut self, len: usize, target: &mut [u8]) -> Result<(), ReceiveError> {
        let mut packed = std::mem::take(&mut self.packed);
        packed.resize(len, 0);
        self.fill(&mut packed)?;
        if target.len() == self.unread {
            unpack(&packed, target)?;
            // Nothing is left.
            self.place = Place::Stream;
        } else {
            self.unpacked.resize(self.unread, 0);
            unpack(&packed, &mut self.unpacked)?;
            target.copy_from_slice(&self.unpacked[..target.len()]);
            self.place = Place::Unpacked(target.len());
        }
        self.packed = packed;
        Ok(())
    }

    /// Fills `target`, waiting for it.
    fn fill(&mut self, mut target: &mut [u8]) -> io::Result<()> {
        while !target.is_empty() {
            let buffered = &self.buffer[self.start..self.end];
            if !buffered.is_empty() {
                let n = buffered.len().min(target.len());
                target[..n].copy_from_slice(&buffered[..n]);
                self.start += n;
                target = &mut target[n..];
                continue;
            }
            // Bulk data goes straight to where it belongs. Most of it is on its way: to look for it again and again would
            // only keep the system from delivering it.
            let received = if target.len() >= READ_AHEAD {
                let n = match &mut self.source {
                    Source::Socket(line) => {
                        self.idle.sleeping();
                        line.receive_all(target)?
                    }
                    source => {
                        let (idle, bell) = (&mut *self.idle, self.bell.as_deref());
                        source.receive(idle, bell, target, Patience::Wait)?.unwrap_or(0)
                    }
                };
                target = &mut target[n..];
                n
            } else {
                self.read_ahead(Patience::Wait)?.unwrap_or(0)
            };
            if received == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Adds to what is buffered; `None` if nothing has arrived, 0 at the end of the stream.
    fn read_ahead(&mut self, patience: Patience) -> io::Result<Option<usize>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let end = if self.bulk { self.head_end() } else { READ_AHEAD };
        let (idle, bell) = (&mut *self.idle, self.bell.as_deref());
        let received = self.source.receive(idle, bell, &mut self.buffer[self.end..end], patience)?;
        self.end += received.unwrap_or(0);
        Ok(received)
    }

    /// Where the head of a frame ends that begins with what is buffered, as far as that is known. Beyond what is buffered
    /// in any case.
    fn head_end(&self) -> usize {
        let buffered = &self.buffer[self.start..self.end];
        let body =
            buffered.first_chunk().and_then(|head| Header::parse(head).ok()).map_or(0, |header| header.body_len());
        (self.start + Header::LEN + body).clamp(self.end + 1, READ_AHEAD)
    }

    /// Skips what was not read of the payload; `false` if some of it has not arrived.
    fn skip_payload(&mut self, patience: Patience) -> io::Result<bool> {
        if !matches!(self.place, Place::Stream) {
            self.unread = match self.place {
                Place::Packed(len) => len,
                // What comes there would be taken for something else.
                Place::Elsewhere(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, DecodeError::BadHeader)),
                _ => 0,
            };
            self.place = Place::Stream;
        }
        while self.unread > 0 {
            if self.start == self.end {
                match self.read_ahead(patience)? {
                    None => return Ok(false),
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Some(_) => {}
                }
            }
            let n = self.unread.min(self.end - self.start);
            self.start += n;
            self.unread -= n;
        }
        Ok(true)
    }
}

impl Source {
    /// Receives at least a byte; 0 at the end, `None` if nothing has arrived and that is not waited for.
    fn receive(
        &mut self,
        idle: &mut dyn Idle,
        bell: Option<&Bell>,
        target: &mut [u8],
        patience: Patience,
    ) -> io::Result<Option<usize>> {
        loop {
            let received = match (&mut *self, patience) {
                (Source::Socket(line), Patience::Glance) => line.glance(target)?,
                (Source::Socket(line), _) => line.try_receive(target)?,
                (Source::Shared(incoming), Patience::Look) => incoming.look(target)?,
                (Source::Shared(incoming), _) => incoming.try_receive(target)?,
            };
            if received.is_some() {
                idle.arrived();
                return Ok(received);
            }
            if patience != Patience::Wait {
                return Ok(None);
            }
            if !idle.turn() {
                break;
            }
        }
        idle.sleeping();
        let received = match self {
            Source::Socket(line) => line.receive(target).map(Some),
            Source::Shared(incoming) => {
                // What rings for us is not meant for the thread that waits on behalf of others.
                bell.inspect(|bell| bell.mute());
                let received = incoming.receive(target);
                incoming.cancel_sleep();
                bell.inspect(|bell| bell.unmute());
                received.map(Some)
            }
        };
        idle.arrived();
        received
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use telecl_wire::handshake::Ping;
    use telecl_wire::request::{Finish, Message, Stage};

    use super::*;
    use crate::testing::pair;

    #[test]
    fn looking_does_not_wait_and_loses_nothing() {
        let (mut sender, mut receiver) = pair();
        assert_eq!(receiver.look().unwrap(), Progress::Nothing);
        sender.push(&Ping { number: 7 }, &[]).unwrap();
        sender.push(&Stage { id: 8 }, b"payload").unwrap();
        sender.flush().unwrap();
        assert_eq!(receiver.look().unwrap(), Progress::Ready);
        assert_eq!(receiver.frame().opcode, Ping::OPCODE);
        assert_eq!(receiver.look().unwrap(), Progress::Ready);
        // The payload is not read, and must not be taken for a frame.
        assert_eq!(receiver.frame().payload.len(), 7);
        assert_eq!(receiver.look().unwrap(), Progress::Nothing);
        drop(sender);
        assert_eq!(receiver.look().unwrap(), Progress::Closed);
    }

    #[test]
    fn what_comes_next_is_seen_behind_a_payload() {
        let (mut sender, mut receiver) = pair();
        sender.push(&Stage { id: 8 }, b"payload").unwrap();
        sender.push(&Stage { id: 9 }, &[]).unwrap();
        sender.push(&Finish { call: 1, queue: 7 }, &[]).unwrap();
        sender.flush().unwrap();
        let mut seen = Vec::new();
        while receiver.look().unwrap() == Progress::Ready {
            seen.push(receiver.next_opcode());
        }
        assert_eq!(seen, [Some(Stage::OPCODE), Some(Finish::OPCODE), None]);
    }

    #[test]
    fn half_a_frame_is_nothing_until_the_rest_comes() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut receiver = FrameReceiver::new(Stream::from_fd(b.into()));
        let mut bytes = Vec::new();
        telecl_wire::Field::put(&5u64, &mut bytes);
        let header = Header::new(Ping::OPCODE, bytes.len(), 0);
        let frame = [zerocopy::IntoBytes::as_bytes(&header), &bytes].concat();
        for byte in &frame[..frame.len() - 1] {
            std::io::Write::write_all(&mut &a, &[*byte]).unwrap();
            assert_eq!(receiver.look().unwrap(), Progress::Nothing);
        }
        std::io::Write::write_all(&mut &a, &frame[frame.len() - 1..]).unwrap();
        assert_eq!(receiver.look().unwrap(), Progress::Ready);
        assert_eq!(receiver.frame().body, bytes);
    }
}
