//! The receiving half of a link.

use std::io;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use telecl_wire::{DecodeError, Header};

use crate::Stream;

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

/// Takes frames from a stream.
#[derive(Debug)]
pub struct FrameReceiver {
    input: Input,
    body: Vec<u8>,
}

/// One frame. The body is complete; the payload is still on its way.
#[derive(Debug)]
pub struct Frame<'r> {
    pub opcode: u16,
    pub body: &'r [u8],
    pub payload: Payload<'r>,
}

/// The payload of the frame at hand. What is not read is skipped by the next `next_frame`.
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
}

impl FrameReceiver {
    pub fn new(stream: Stream) -> FrameReceiver {
        let buffer = vec![0; READ_AHEAD].into_boxed_slice();
        FrameReceiver { input: Input { stream, buffer, start: 0, end: 0, unread: 0 }, body: Vec::new() }
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
        self.input.skip_payload()?;
        let mut header = [0; Header::LEN];
        if !self.input.fill_or_end(&mut header)? {
            return Ok(None);
        }
        let header = Header::parse(&header)?;
        self.body.resize(header.body_len(), 0);
        self.input.fill(&mut self.body)?;
        self.input.unread = header.payload_len();
        Ok(Some(Frame { opcode: header.opcode.get(), body: &self.body, payload: Payload(&mut self.input) }))
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
    /// Fills `target`; `false` if the peer closed the connection before its first byte.
    fn fill_or_end(&mut self, target: &mut [u8]) -> io::Result<bool> {
        if self.start == self.end && self.refill()? == 0 {
            return Ok(false);
        }
        self.fill(target).map(|()| true)
    }

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
                let n = receive(&self.stream, target)?;
                target = &mut target[n..];
                n
            } else {
                self.refill()?
            };
            if received == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    fn refill(&mut self) -> io::Result<usize> {
        self.start = 0;
        self.end = 0;
        self.end = receive(&self.stream, &mut self.buffer)?;
        Ok(self.end)
    }

    fn skip_payload(&mut self) -> io::Result<()> {
        while self.unread > 0 {
            if self.start == self.end && self.refill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let n = self.unread.min(self.end - self.start);
            self.start += n;
            self.unread -= n;
        }
        Ok(())
    }
}

fn receive(stream: &Stream, target: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::net::recv(stream, &mut *target, RecvFlags::empty()) {
            Ok((_, n)) => return Ok(n),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
    }
}
