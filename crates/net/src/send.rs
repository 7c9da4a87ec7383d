//! The sending half of a link.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use telecl_wire::Header;
use telecl_wire::request::Message;
use zerocopy::IntoBytes;

use telecl_shm::{SLOT, Slot, SlotPool};

use crate::shared::Outgoing;
use crate::{Compression, Compressor, Lasting, Line, Stream};

/// Frames up to this size are joined with their neighbours in one buffer; longer payloads leave
/// from where they are.
const JOIN_LIMIT: usize = 16 << 10;

/// Puts frames on a stream. Frames are first collected; [`FrameSender::flush`] sends them.
#[derive(Debug)]
pub struct FrameSender {
    sink: Sink,
    /// Of a socket: what has not been sent. Of shared memory: the frame at hand.
    pending: Vec<u8>,
    /// Bytes that the receiver has not been shown.
    unseen: usize,
    /// Bytes of all frames and payloads so far.
    total: u64,
    /// For large payloads over a socket.
    compressor: Option<Compressor>,
}

/// Where bytes go.
#[derive(Debug)]
enum Sink {
    Socket(Line),
    Shared(Outgoing),
}

impl FrameSender {
    pub fn new(line: impl Into<Line>) -> FrameSender {
        FrameSender::to_sink(Sink::Socket(line.into()))
    }

    pub(crate) fn shared(outgoing: Outgoing) -> FrameSender {
        FrameSender::to_sink(Sink::Shared(outgoing))
    }

    fn to_sink(sink: Sink) -> FrameSender {
        FrameSender { sink, pending: Vec::with_capacity(4096), unseen: 0, total: 0, compressor: None }
    }

    /// Compresses large payloads from now on, if that was agreed on and can be of use here: not in shared memory.
    pub fn set_compression(&mut self, agreed: Compression) {
        self.compressor = match &self.sink {
            Sink::Socket(line) => Compressor::new(agreed, line),
            Sink::Shared(_) => None,
        };
    }

    /// Whether payloads may be compressed.
    pub fn compresses(&self) -> bool {
        self.compressor.is_some()
    }

    /// Whether a payload of `len` bytes may go on another stream: not if it is to be compressed, or is needed to find out
    /// whether that pays. If so, it counts as sent.
    pub fn lets_go(&mut self, len: usize) -> bool {
        self.compressor.as_mut().is_none_or(|compressor| compressor.lets_go(len))
    }

    /// Its connection, if that cannot be replaced by another.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.sink {
            Sink::Socket(line) => line.plain(),
            Sink::Shared(outgoing) => Some(outgoing.stream()),
        }
    }

    /// The line that outlasts its connection, if it is one.
    pub fn lasting(&self) -> Option<&Arc<Lasting>> {
        match &self.sink {
            Sink::Socket(line) => line.lasting(),
            Sink::Shared(_) => None,
        }
    }

    /// For last words: sends wait no longer than this from now on.
    pub fn hurry(&self, limit: Duration) -> io::Result<()> {
        match &self.sink {
            Sink::Socket(line) => line.hurry(limit),
            Sink::Shared(outgoing) => outgoing.stream().set_send_timeout(Some(limit)),
        }
    }

    /// Whether frames go through shared memory, where each can be shown at once for nothing.
    pub fn is_shared(&self) -> bool {
        matches!(self.sink, Sink::Shared(_))
    }

    /// How much of a large transfer goes into one frame.
    pub fn chunk(&self) -> usize {
        if self.is_shared() { SLOT } else { telecl_wire::CHUNK }
    }

    /// Slots to fill in place, if memory is shared.
    pub fn slots(&self) -> Option<&SlotPool> {
        match &self.sink {
            Sink::Socket(_) => None,
            Sink::Shared(outgoing) => Some(outgoing.slots()),
        }
    }

    /// How many bytes wait for [`FrameSender::flush`].
    pub fn pending(&self) -> usize {
        self.unseen
    }

    pub fn is_empty(&self) -> bool {
        self.unseen == 0
    }

    /// Bytes of all frames so far, with their payloads: as they were before they were compressed, and wherever they go.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds a frame; sends only if its payload is large or much is pending.
    pub fn push<'a, M: Message<'a>>(&mut self, message: &M, payload: &[u8]) -> io::Result<()> {
        let start = self.begin(message, payload.len())?;
        if let Sink::Shared(outgoing) = &mut self.sink
            && (JOIN_LIMIT + 1..=SLOT).contains(&payload.len())
            && let Some(slot) = outgoing.fill_slot(payload)?
        {
            return self.put_in_slot(start, slot);
        }
        match &mut self.sink {
            Sink::Socket(_) if payload.len() > JOIN_LIMIT => self.transmit_bulk(start, payload),
            Sink::Socket(_) => {
                self.pending.extend_from_slice(payload);
                self.unseen = self.pending.len();
                if self.unseen > 4 * JOIN_LIMIT { self.flush() } else { Ok(()) }
            }
            Sink::Shared(outgoing) => {
                self.unseen += self.pending.len() + payload.len();
                let written = outgoing.write(&self.pending).and_then(|()| outgoing.write(payload));
                self.pending.clear();
                written
            }
        }
    }

    /// As [`FrameSender::push`], with the first `len` bytes of a slot as payload. The slot comes from
    /// [`FrameSender::slots`].
    pub fn push_slot<'a, M: Message<'a>>(&mut self, message: &M, slot: Slot, len: usize) -> io::Result<()> {
        let start = self.begin(message, len.min(SLOT))?;
        self.put_in_slot(start, slot)
    }

    /// As [`FrameSender::push`], of a frame whose payload of `len` bytes comes on another stream.
    pub fn push_on_stream<'a, M: Message<'a>>(&mut self, message: &M, stream: usize, len: usize) -> io::Result<()> {
        let start = self.begin(message, len)?;
        let header = self.header(start).on_stream(stream);
        self.put_header(start, header);
        self.unseen = self.pending.len();
        Ok(())
    }

    /// Sends what is pending.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.unseen == 0 {
            return Ok(());
        }
        self.unseen = 0;
        match &mut self.sink {
            Sink::Socket(_) => self.transmit(&[]),
            Sink::Shared(outgoing) => outgoing.publish(),
        }
    }

    /// A frame that leaves at once, together with what is pending.
    pub fn send<'a, M: Message<'a>>(&mut self, message: &M, payload: &[u8]) -> io::Result<()> {
        self.push(message, payload)?;
        self.flush()
    }

    /// Puts header and body behind what is pending, and says where.
    fn begin<'a, M: Message<'a>>(&mut self, message: &M, payload_len: usize) -> io::Result<usize> {
        let start = self.pending.len();
        self.pending.extend_from_slice(&[0; Header::LEN]);
        message.put(&mut self.pending);
        let body_len = self.pending.len() - start - Header::LEN;
        if body_len > telecl_wire::MAX_BODY || payload_len > telecl_wire::MAX_PAYLOAD {
            self.pending.truncate(start);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "frame is longer than the protocol allows"));
        }
        self.put_header(start, Header::new(M::OPCODE, body_len, payload_len));
        self.total += (Header::LEN + body_len + payload_len) as u64;
        Ok(start)
    }

    /// What [`FrameSender::begin`] has put there.
    fn header(&self, start: usize) -> Header {
        self.pending[start..].first_chunk().and_then(|head| Header::parse(head).ok()).unwrap_or_default()
    }

    fn put_header(&mut self, start: usize, header: Header) {
        self.pending[start..start + Header::LEN].copy_from_slice(header.as_bytes());
    }

    fn put_in_slot(&mut self, start: usize, slot: Slot) -> io::Result<()> {
        let header = self.header(start).in_slot(slot.index());
        self.put_header(start, header);
        let Sink::Shared(outgoing) = &mut self.sink else { return Err(io::ErrorKind::InvalidInput.into()) };
        self.unseen += self.pending.len();
        let written = outgoing.write(&self.pending);
        self.pending.clear();
        if written.is_ok() {
            // From here on it is the receiver's to free.
            let _ = slot.send();
        }
        written
    }

    fn transmit(&mut self, payload: &[u8]) -> io::Result<()> {
        let Sink::Socket(line) = &self.sink else { return Err(io::ErrorKind::InvalidInput.into()) };
        let sent = line.send_all(&self.pending, payload);
        self.transmitted(sent)
    }

    /// Sends what is pending, which ends with the head of a frame, and the frame's payload.
    fn transmit_bulk(&mut self, start: usize, payload: &[u8]) -> io::Result<()> {
        match (&self.sink, &mut self.compressor) {
            (Sink::Socket(line), Some(compressor)) => {
                let sent = compressor.send(line, &mut self.pending, start, payload);
                self.transmitted(sent)
            }
            _ => self.transmit(payload),
        }
    }

    fn transmitted(&mut self, sent: io::Result<()>) -> io::Result<()> {
        // After an error the stream is of no use any more; keeping the bytes would only hold memory.
        self.pending.clear();
        self.unseen = 0;
        sent
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use telecl_wire::handshake::Ping;
    use telecl_wire::request::Stage;

    use super::*;
    use crate::testing::pair;

    #[test]
    fn a_closed_peer_is_an_error_not_a_signal() {
        let (mut sender, receiver) = pair();
        drop(receiver);
        let error = sender.send(&Ping { number: 1 }, &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn frames_arrive_in_order_with_their_payloads_even_when_larger_than_the_socket_buffer() {
        let (mut sender, mut receiver) = pair();
        let large: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8).collect();
        let copy = large.clone();
        let sending = thread::spawn(move || {
            sender.push(&Ping { number: 1 }, &[]).unwrap();
            sender.push(&Stage { id: 2 }, &copy).unwrap();
            sender.push(&Stage { id: 3 }, b"small").unwrap();
            sender.flush().unwrap();
        });
        let mut seen = Vec::new();
        for _ in 0..3 {
            let frame = receiver.next_frame().unwrap().unwrap();
            let opcode = frame.opcode;
            seen.push((opcode, frame.payload.read_to_vec().unwrap()));
        }
        sending.join().unwrap();
        assert_eq!(seen, [(Ping::OPCODE, vec![]), (Stage::OPCODE, large), (Stage::OPCODE, b"small".to_vec())]);
        assert!(receiver.next_frame().unwrap().is_none(), "the stream ends cleanly between frames");
    }

    #[test]
    fn a_payload_on_another_stream_does_not_follow_its_frame() {
        let (mut sender, mut receiver) = pair();
        sender.push_on_stream(&Stage { id: 2 }, 3, 1 << 20).unwrap();
        sender.send(&Ping { number: 9 }, &[]).unwrap();
        assert_eq!(sender.total(), (1 << 20) + 2 * (Header::LEN as u64 + 8));
        let mut frame = receiver.next_frame().unwrap().unwrap();
        assert_eq!((frame.opcode, frame.payload.len()), (Stage::OPCODE, 1 << 20));
        assert!(frame.payload.read_into(&mut [0; 7]).is_err(), "it cannot be read here");
        assert_eq!(frame.payload.take_stream(), Some((3, 1 << 20)));
        assert_eq!(frame.payload.take_stream(), None);
        assert_eq!(receiver.next_frame().unwrap().unwrap().opcode, Ping::OPCODE);
    }

    #[test]
    fn a_payload_on_another_stream_cannot_be_skipped() {
        let (mut sender, mut receiver) = pair();
        sender.push_on_stream(&Stage { id: 2 }, 3, 5).unwrap();
        sender.send(&Ping { number: 9 }, &[]).unwrap();
        assert_eq!(receiver.next_frame().unwrap().unwrap().opcode, Stage::OPCODE);
        assert!(receiver.next_frame().is_err());
    }

    #[test]
    fn a_payload_that_nobody_read_is_skipped() {
        let (mut sender, mut receiver) = pair();
        sender.push(&Stage { id: 2 }, &[7; 5000]).unwrap();
        sender.send(&Ping { number: 9 }, &[]).unwrap();
        assert_eq!(receiver.next_frame().unwrap().unwrap().opcode, Stage::OPCODE);
        let frame = receiver.next_frame().unwrap().unwrap();
        assert_eq!(telecl_wire::decode::<Ping>(frame.body), Ok(Ping { number: 9 }));
    }
}
