//! The sending half of a link.

use std::io::{self, IoSlice};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use telecl_wire::Header;
use telecl_wire::request::Message;
use zerocopy::IntoBytes;

use crate::Stream;

/// Frames up to this size are joined with their neighbours in one buffer; longer payloads leave
/// from where they are.
const JOIN_LIMIT: usize = 16 << 10;

/// Puts frames on a stream. Frames are first collected; [`FrameSender::flush`] sends them.
#[derive(Debug)]
pub struct FrameSender {
    stream: Stream,
    pending: Vec<u8>,
}

impl FrameSender {
    pub fn new(stream: Stream) -> FrameSender {
        FrameSender { stream, pending: Vec::with_capacity(4096) }
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// How many bytes wait for [`FrameSender::flush`].
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds a frame; sends only if its payload is large or much is pending.
    pub fn push<'a, M: Message<'a>>(&mut self, message: &M, payload: &[u8]) -> io::Result<()> {
        let start = self.pending.len();
        self.pending.extend_from_slice(&[0; Header::LEN]);
        message.put(&mut self.pending);
        let body_len = self.pending.len() - start - Header::LEN;
        if body_len > telecl_wire::MAX_BODY || payload.len() > telecl_wire::MAX_PAYLOAD {
            self.pending.truncate(start);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "frame is longer than the protocol allows"));
        }
        let header = Header::new(M::OPCODE, body_len, payload.len());
        self.pending[start..start + Header::LEN].copy_from_slice(header.as_bytes());
        if payload.len() > JOIN_LIMIT {
            return self.transmit(payload);
        }
        self.pending.extend_from_slice(payload);
        if self.pending.len() > 4 * JOIN_LIMIT { self.flush() } else { Ok(()) }
    }

    /// Sends what is pending.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.transmit(&[])
    }

    /// A frame that leaves at once, together with what is pending.
    pub fn send<'a, M: Message<'a>>(&mut self, message: &M, payload: &[u8]) -> io::Result<()> {
        self.push(message, payload)?;
        self.flush()
    }

    fn transmit(&mut self, payload: &[u8]) -> io::Result<()> {
        let sent = send_all(&self.stream, &self.pending, payload);
        // After an error the stream is of no use any more; keeping the bytes would only hold memory.
        self.pending.clear();
        sent
    }
}

fn send_all(stream: &Stream, mut first: &[u8], mut second: &[u8]) -> io::Result<()> {
    while !first.is_empty() || !second.is_empty() {
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        let sent = match rustix::net::sendmsg(stream, &parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
        {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => sent,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let from_first = sent.min(first.len());
        first = &first[from_first..];
        second = &second[sent - from_first..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use telecl_wire::request::{Flush, Stage};

    use super::*;
    use crate::FrameReceiver;

    fn pair() -> (FrameSender, FrameReceiver) {
        let (a, b) = UnixStream::pair().unwrap();
        (FrameSender::new(Stream::from_fd(a.into())), FrameReceiver::new(Stream::from_fd(b.into())))
    }

    #[test]
    fn a_closed_peer_is_an_error_not_a_signal() {
        let (mut sender, receiver) = pair();
        drop(receiver);
        let error = sender.send(&Flush { queue: 1 }, &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn frames_arrive_in_order_with_their_payloads_even_when_larger_than_the_socket_buffer() {
        let (mut sender, mut receiver) = pair();
        let large: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8).collect();
        let copy = large.clone();
        let sending = thread::spawn(move || {
            sender.push(&Flush { queue: 1 }, &[]).unwrap();
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
        assert_eq!(seen, [(Flush::OPCODE, vec![]), (Stage::OPCODE, large), (Stage::OPCODE, b"small".to_vec())]);
        assert!(receiver.next_frame().unwrap().is_none(), "the stream ends cleanly between frames");
    }

    #[test]
    fn a_payload_that_nobody_read_is_skipped() {
        let (mut sender, mut receiver) = pair();
        sender.push(&Stage { id: 2 }, &[7; 5000]).unwrap();
        sender.send(&Flush { queue: 9 }, &[]).unwrap();
        assert_eq!(receiver.next_frame().unwrap().unwrap().opcode, Stage::OPCODE);
        let frame = receiver.next_frame().unwrap().unwrap();
        assert_eq!(telecl_wire::decode::<Flush>(frame.body), Ok(Flush { queue: 9 }));
    }
}
