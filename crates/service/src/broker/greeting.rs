//! The first frames of a connection, read without reading past them: what follows belongs to a worker.

use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use telecl_net::{Compression, FrameSender, Stream};
use telecl_wire::handshake::{EndSession, Hello, Inspect, Join, Lasting, MAGIC, Ping, Pong, Resume};
use telecl_wire::request::Message;
use telecl_wire::{DecodeError, Header, PROTOCOL_VERSION, decode};

/// A hello has two short texts; no stranger makes us take more memory than this.
const LONGEST_HELLO: usize = 16 << 10;

/// What a driver says about its program and itself.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) program: String,
    pub(crate) pid: u32,
    pub(crate) version: String,
    /// What it wishes.
    pub(crate) compression: Compression,
}

/// The first words on a connection.
#[derive(Debug)]
pub(crate) enum Introduction {
    /// It is to be a session.
    Hello(Caller),
    /// It is to be a stream of one.
    Join(Join),
    /// It takes the place of a connection that was lost.
    Resume(Resume),
    /// Somebody wants to know how the service is.
    Inspect,
    /// Somebody wants this session to end.
    EndSession(u64),
}

/// Why a connection does not become a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unwelcome {
    #[error("closed without a word")]
    Left,
    #[error("did not introduce itself in time")]
    Silent,
    #[error("is no telecl driver")]
    Stranger,
    #[error(
        "driver speaks protocol {0}, this service speaks {PROTOCOL_VERSION}; install the same version on both sides"
    )]
    Version(u32),
    #[error("sent a malformed hello: {0}")]
    Malformed(#[from] DecodeError),
    #[error("connection failed: {0}")]
    Io(io::Error),
}

impl From<io::Error> for Unwelcome {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Unwelcome::Silent,
            _ => Unwelcome::Io(error),
        }
    }
}

impl Unwelcome {
    /// Whether the peer can read a refusal.
    pub(crate) fn is_driver(&self) -> bool {
        matches!(self, Unwelcome::Version(_) | Unwelcome::Malformed(_))
    }
}

/// Reads exactly the first frame.
pub(crate) fn read_introduction(stream: &Stream, timeout: Duration) -> Result<Introduction, Unwelcome> {
    let deadline = Instant::now() + timeout;
    let mut header = [0; Header::LEN];
    match fill(stream, &mut header, deadline)? {
        Filled::All => {}
        Filled::Nothing => return Err(Unwelcome::Left),
        Filled::Some => return Err(Unwelcome::Stranger),
    }
    let header = Header::parse(&header).map_err(|_| Unwelcome::Stranger)?;
    let opcode = header.opcode.get();
    let known = [Hello::OPCODE, Join::OPCODE, Resume::OPCODE, Inspect::OPCODE, EndSession::OPCODE];
    let strange = !known.contains(&opcode) || header.payload_len() != 0;
    if strange || header.body_len() > LONGEST_HELLO {
        return Err(Unwelcome::Stranger);
    }
    let mut body = vec![0; header.body_len()];
    if !matches!(fill(stream, &mut body, deadline)?, Filled::All) {
        return Err(Unwelcome::Stranger);
    }
    parse(opcode, &body)
}

/// Magic and version come first in every version; only then may the rest be expected to have our form.
fn parse(opcode: u16, body: &[u8]) -> Result<Introduction, Unwelcome> {
    let rest = body.strip_prefix(&MAGIC).ok_or(Unwelcome::Stranger)?;
    let protocol = rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or(Unwelcome::Stranger)?;
    if protocol != PROTOCOL_VERSION {
        return Err(Unwelcome::Version(protocol));
    }
    match opcode {
        Join::OPCODE => return Ok(Introduction::Join(decode(body)?)),
        Resume::OPCODE => return Ok(Introduction::Resume(decode(body)?)),
        Inspect::OPCODE => return decode::<Inspect>(body).map(|_| Introduction::Inspect).map_err(Into::into),
        EndSession::OPCODE => return Ok(Introduction::EndSession(decode::<EndSession>(body)?.session)),
        _ => {}
    }
    let hello: Hello<'_> = decode(body)?;
    Ok(Introduction::Hello(Caller {
        program: printable(hello.program),
        pid: hello.pid,
        version: printable(hello.version),
        compression: hello.compression,
    }))
}

/// Text from outside goes to the log: short, and without control characters.
fn printable(text: &str) -> String {
    text.chars().take(128).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// What a welcomed driver did first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// Sent a request, which is still to be read.
    Request,
    /// Wants its session to outlast its connection, and said so in words that are still to be read.
    Lasting,
    Left,
}

/// Answers pings until something else arrives.
pub(crate) fn wait_for_request(stream: &Stream, sender: &mut FrameSender, timeout: Duration) -> io::Result<First> {
    loop {
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let mut opcode = [0; 2];
        let deadline = Instant::now() + timeout;
        loop {
            match receive(stream, &mut opcode, RecvFlags::PEEK)? {
                0 => return Ok(First::Left),
                2 => break,
                // Half an opcode: poll would return at once, as there is something to read.
                _ if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
                _ => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        match u16::from_le_bytes(opcode) {
            Ping::OPCODE => {}
            Lasting::OPCODE => return Ok(First::Lasting),
            _ => return Ok(First::Request),
        }
        let number = read_ping(stream, deadline)?;
        sender.send(&Pong { number }, &[])?;
    }
}

fn read_ping(stream: &Stream, deadline: Instant) -> io::Result<u64> {
    const BODY: usize = 8;
    let broken = |error: DecodeError| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut frame = [0; Header::LEN + BODY];
    if !matches!(fill(stream, &mut frame, deadline)?, Filled::All) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (header, body) = frame.split_first_chunk().ok_or(io::ErrorKind::InvalidData)?;
    let header = Header::parse(header).map_err(broken)?;
    if header.body_len() != BODY || header.payload_len() != 0 {
        return Err(broken(DecodeError::BadHeader));
    }
    Ok(decode::<Ping>(body).map_err(broken)?.number)
}

enum Filled {
    All,
    /// The peer closed the connection at the start.
    Nothing,
    /// … or somewhere in the middle.
    Some,
}

/// Reads exactly as much as `target` holds. The deadline is for all of it, so that a peer which sends one byte at a
/// time gains nothing.
fn fill(stream: &Stream, target: &mut [u8], deadline: Instant) -> io::Result<Filled> {
    let mut filled = 0;
    while filled < target.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&left)) {
            Ok(0) | Err(Errno::INTR) => continue,
            other => other?,
        };
        match receive(stream, &mut target[filled..], RecvFlags::empty())? {
            0 if filled == 0 => return Ok(Filled::Nothing),
            0 => return Ok(Filled::Some),
            n => filled += n,
        }
    }
    Ok(Filled::All)
}

fn receive(stream: impl AsFd, target: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    loop {
        match rustix::net::recv(&stream, &mut *target, flags) {
            Ok((_, n)) => return Ok(n),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use telecl_wire::request::Stage;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    fn pair() -> (UnixStream, Stream) {
        let (peer, ours) = UnixStream::pair().unwrap();
        (peer, Stream::from_fd(ours.into()))
    }

    fn hello(protocol: u32) -> Hello<'static> {
        let compression = Compression::Always;
        Hello { magic: MAGIC, protocol, version: "0.1.0", program: "evil\nname", pid: 7, compression }
    }

    #[test]
    fn a_hello_is_read_and_nothing_after_it() {
        let (peer, ours) = pair();
        let mut sender = FrameSender::new(Stream::from_fd(peer.into()));
        sender.push(&hello(PROTOCOL_VERSION), &[]).unwrap();
        sender.push(&Ping { number: 3 }, &[]).unwrap();
        sender.push(&Stage { id: 1 }, &[]).unwrap();
        sender.flush().unwrap();
        let Introduction::Hello(caller) = read_introduction(&ours, SOON).unwrap() else { panic!("no hello") };
        assert_eq!((caller.program.as_str(), caller.pid), ("evil?name", 7));
        assert_eq!(caller.compression, Compression::Always);
        let mut answers = FrameSender::new(ours.try_clone().unwrap());
        assert_eq!(wait_for_request(&ours, &mut answers, SOON).unwrap(), First::Request);
        let mut receiver = telecl_net::FrameReceiver::new(ours);
        assert_eq!(receiver.next_frame().unwrap().unwrap().opcode, Stage::OPCODE);
    }

    #[test]
    fn another_version_is_told_so_even_if_its_hello_has_another_form() {
        let mut body = telecl_wire::encode(&hello(PROTOCOL_VERSION + 1));
        body.extend_from_slice(b"fields of the future");
        let refusal = parse(Hello::OPCODE, &body).unwrap_err();
        assert!(refusal.is_driver() && matches!(refusal, Unwelcome::Version(_)), "{refusal}");
        body[8..12].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        assert!(matches!(parse(Hello::OPCODE, &body), Err(Unwelcome::Malformed(_))));
        body[0] = b'T';
        assert!(matches!(parse(Hello::OPCODE, &body), Err(Unwelcome::Stranger)));
    }

    #[test]
    fn strangers_and_silent_peers_are_told_apart() {
        let (mut peer, ours) = pair();
        peer.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(matches!(read_introduction(&ours, SOON), Err(Unwelcome::Stranger)));
        let (peer, ours) = pair();
        assert!(matches!(read_introduction(&ours, Duration::from_millis(20)), Err(Unwelcome::Silent)));
        drop(peer);
        assert!(matches!(read_introduction(&ours, SOON), Err(Unwelcome::Left)));
    }
}
