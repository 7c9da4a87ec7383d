//! The receiving half of a link.

use std::io;

use telecl_wire::{DecodeError, Header};

use crate::Stream;
use crate::idle::{Idle, Sleep};

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

#[derive(Debug)]
struct Input {
    stream: Stream,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes of the current payload that are still to come.
    unread: usize,
    idle: Box<dyn Idle>,
}

/// Whether to wait for bytes that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Wait,
    Look,
}

impl FrameReceiver {
    pub fn new(stream: Stream) -> FrameReceiver {
        let buffer = vec![0; READ_AHEAD].into_boxed_slice();
        let input = Input { stream, buffer, start: 0, end: 0, unread: 0, idle: Box::new(Sleep) };
        FrameReceiver { input, opcode: 0, body: Vec::new() }
    }

    /// Says what is done while there is nothing to receive, before the thread sleeps.
    pub fn set_idle(&mut self, idle: impl Idle + 'static) {
        self.input.idle = Box::new(idle);
    }

    pub fn stream(&self) -> &Stream {
        &self.input.stream
    }

    /// Whether the next frame may have to be waited for.
    pub fn is_drained(&self) -> bool {
        self.input.start == self.input.end
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
        if target.len() > self.0.unread {
            return Err(DecodeError::Truncated.into());
        }
        self.0.fill(target)?;
        self.0.unread -= target.len();
        Ok(())
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
            // Bulk data goes straight to where it belongs.
            let received = if target.len() >= READ_AHEAD {
                let n = receive(&self.stream, &mut *self.idle, target, Patience::Wait)?.unwrap_or(0);
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
        let received = receive(&self.stream, &mut *self.idle, &mut self.buffer[self.end..], patience)?;
        self.end += received.unwrap_or(0);
        Ok(received)
    }

    /// Skips what was not read of the payload; `false` if some of it has not arrived.
    fn skip_payload(&mut self, patience: Patience) -> io::Result<bool> {
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

/// Receives at least a byte; 0 at the end, `None` if nothing has arrived and that is not waited for.
fn receive(stream: &Stream, idle: &mut dyn Idle, target: &mut [u8], patience: Patience) -> io::Result<Option<usize>> {
    loop {
        if let Some(received) = stream.try_receive(target)? {
            idle.arrived();
            return Ok(Some(received));
        }
        if patience == Patience::Look {
            return Ok(None);
        }
        if !idle.turn() {
            break;
        }
    }
    stream.receive(target).map(Some)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use telecl_wire::request::{Flush, Message, Stage};

    use super::*;
    use crate::FrameSender;

    fn pair() -> (FrameSender, FrameReceiver) {
        let (a, b) = UnixStream::pair().unwrap();
        (FrameSender::new(Stream::from_fd(a.into())), FrameReceiver::new(Stream::from_fd(b.into())))
    }

    #[test]
    fn looking_does_not_wait_and_loses_nothing() {
        let (mut sender, mut receiver) = pair();
        assert_eq!(receiver.look().unwrap(), Progress::Nothing);
        sender.push(&Flush { queue: 7 }, &[]).unwrap();
        sender.push(&Stage { id: 8 }, b"payload").unwrap();
        sender.flush().unwrap();
        assert_eq!(receiver.look().unwrap(), Progress::Ready);
        assert_eq!(receiver.frame().opcode, Flush::OPCODE);
        assert_eq!(receiver.look().unwrap(), Progress::Ready);
        // The payload is not read, and must not be taken for a frame.
        assert_eq!(receiver.frame().payload.len(), 7);
        assert_eq!(receiver.look().unwrap(), Progress::Nothing);
        assert!(receiver.is_drained());
        drop(sender);
        assert_eq!(receiver.look().unwrap(), Progress::Closed);
    }

    #[test]
    fn half_a_frame_is_nothing_until_the_rest_comes() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut receiver = FrameReceiver::new(Stream::from_fd(b.into()));
        let mut bytes = Vec::new();
        telecl_wire::Field::put(&5u64, &mut bytes);
        let header = Header::new(Flush::OPCODE, bytes.len(), 0);
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
