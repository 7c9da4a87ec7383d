//! The first frames of a connection, read without reading past them: what follows belongs to a worker.

use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use telecl_identity::NONCE;
use telecl_net::{Accepted, ClientCertificate, Compression, FrameSender, Stream, TlsError, TlsServer};
use telecl_wire::handshake::{
    Credential, CredentialKind, Drain, EndSession, Hello, Inspect, Join, Lasting, MAGIC, Ping, Pong, Response, Resume,
};
use telecl_wire::request::Message;
use telecl_wire::status::DrainMode;
use telecl_wire::{DecodeError, Header, PROTOCOL_VERSION, decode};

/// A hello has two short texts; no stranger makes us take more memory than this.
pub(crate) const LONGEST_HELLO: usize = 16 << 10;

/// What a driver says about its program and itself.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) program: String,
    pub(crate) pid: u32,
    pub(crate) version: String,
    /// What it wishes.
    pub(crate) compression: Compression,
}

/// A connection, encrypted if it has to be.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) stream: Stream,
    pub(crate) certificate: ClientCertificate,
}

impl Arrival {
    /// How it came.
    pub(crate) fn link(&self) -> &'static str {
        match (self.stream.is_unix(), self.stream.is_encrypted()) {
            (true, _) => "unix",
            (false, true) => "tls",
            (false, false) => "tcp",
        }
    }
}

/// By what somebody wants to be known, besides the connection.
#[derive(Debug)]
pub(crate) enum Shown {
    None,
    Token(String),
    /// A secret, which is to be proven for this number.
    Secret([u8; NONCE]),
}

impl Shown {
    fn of(credential: &Credential<'_>) -> Shown {
        match credential.kind {
            CredentialKind::None => Shown::None,
            CredentialKind::Token => Shown::Token(credential.token.to_owned()),
            CredentialKind::Secret => Shown::Secret(credential.nonce),
        }
    }
}

/// Shakes hands with whoever begins with TLS. Everybody else is left as they came.
pub(crate) fn secure(tls: Option<&TlsServer>, stream: Stream, deadline: Instant) -> Result<Arrival, Unwelcome> {
    if stream.is_unix() {
        return Ok(Arrival { stream, certificate: ClientCertificate::None });
    }
    match stream.begins_handshake(deadline)? {
        None => Err(Unwelcome::Left),
        Some(false) => Ok(Arrival { stream, certificate: ClientCertificate::None }),
        Some(true) => {
            let Accepted { stream, certificate } = tls.ok_or(Unwelcome::NoTls)?.accept(stream, deadline)?;
            Ok(Arrival { stream, certificate })
        }
    }
}

/// The first words on a connection.
#[derive(Debug)]
pub(crate) enum Introduction {
    /// It is to be a session.
    Hello(Caller, Shown),
    /// It is to be a stream of one.
    Join(Join),
    /// It takes the place of a connection that was lost.
    Resume(Resume),
    /// Somebody wants to know how the service is.
    Inspect(Shown),
    /// Somebody wants this session to end.
    EndSession(u64, Shown),
    /// Somebody wants the service to take no new sessions, or to take some again.
    Drain(DrainMode, Option<Duration>),
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
    #[error("wants TLS, for which this service has no certificate")]
    NoTls,
    #[error("no TLS: {0}")]
    Tls(TlsError),
}

impl From<TlsError> for Unwelcome {
    fn from(error: TlsError) -> Self {
        if error.is_timeout() { Unwelcome::Silent } else { Unwelcome::Tls(error) }
    }
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
    /// For the audit.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Unwelcome::Left => "left",
            Unwelcome::Silent => "silent",
            Unwelcome::Stranger => "stranger",
            Unwelcome::Version(_) => "version",
            Unwelcome::Malformed(_) => "malformed",
            Unwelcome::Io(_) => "connection",
            Unwelcome::NoTls => "no_tls",
            Unwelcome::Tls(error) => error.code(),
        }
    }

    /// Whether the peer can read a refusal.
    pub(crate) fn is_driver(&self) -> bool {
        matches!(self, Unwelcome::Version(_) | Unwelcome::Malformed(_))
    }
}

/// Reads exactly the first frame.
pub(crate) fn read_introduction(stream: &Stream, deadline: Instant) -> Result<Introduction, Unwelcome> {
    let mut header = [0; Header::LEN];
    match fill(stream, &mut header, deadline)? {
        Filled::All => {}
        Filled::Nothing => return Err(Unwelcome::Left),
        Filled::Some => return Err(Unwelcome::Stranger),
    }
    let header = Header::parse(&header).map_err(|_| Unwelcome::Stranger)?;
    let opcode = header.opcode.get();
    let known = [Hello::OPCODE, Join::OPCODE, Resume::OPCODE, Inspect::OPCODE, EndSession::OPCODE, Drain::OPCODE];
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

/// Whether a connection introduces itself properly, for a fuzz target.
#[cfg(feature = "fuzzing")]
pub(crate) fn introduce(stream: &Stream, timeout: Duration) -> bool {
    read_introduction(stream, Instant::now() + timeout).is_ok()
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
        Inspect::OPCODE => return Ok(Introduction::Inspect(Shown::of(&decode::<Inspect<'_>>(body)?.credential))),
        EndSession::OPCODE => {
            let EndSession { session, credential, .. } = decode(body)?;
            return Ok(Introduction::EndSession(session, Shown::of(&credential)));
        }
        Drain::OPCODE => {
            let Drain { mode, grace_ms, .. } = decode(body)?;
            return Ok(Introduction::Drain(mode, grace_ms.map(Duration::from_millis)));
        }
        _ => {}
    }
    let hello: Hello<'_> = decode(body)?;
    let caller = Caller {
        program: printable(hello.program),
        pid: hello.pid,
        version: printable(hello.version),
        compression: hello.compression,
    };
    Ok(Introduction::Hello(caller, Shown::of(&hello.credential)))
}

/// Reads the answer to a challenge; `None` if there is none.
pub(crate) fn read_response(stream: &Stream, deadline: Instant) -> io::Result<Option<Response>> {
    let mut frame = [0; Header::LEN + 32];
    match fill(stream, &mut frame, deadline) {
        Ok(Filled::All) => {}
        Ok(Filled::Nothing | Filled::Some) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        Err(error) => return Err(error),
    }
    let (header, body) = frame.split_first_chunk().ok_or(io::ErrorKind::InvalidData)?;
    let header = Header::parse(header).map_err(io::Error::other)?;
    let fits = header.opcode.get() == Response::OPCODE && header.body_len() == body.len() && header.payload_len() == 0;
    let response = if fits { decode(body).ok() } else { None };
    response.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is no answer to a challenge"))
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
        if !stream.has_received() {
            match poll(&mut [PollFd::new(stream, PollFlags::IN)], None) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
        }
        let deadline = Instant::now() + timeout;
        let opcode = if stream.is_encrypted() { look_ahead(stream, deadline)? } else { peek(stream, deadline)? };
        match opcode {
            None => return Ok(First::Left),
            Some(Ping::OPCODE) => {}
            Some(Lasting::OPCODE) => return Ok(First::Lasting),
            Some(_) => return Ok(First::Request),
        }
        let number = read_ping(stream, deadline)?;
        sender.send(&Pong { number }, &[])?;
    }
}

/// What comes next, which stays in the socket; `None` at the end.
fn peek(stream: &Stream, deadline: Instant) -> io::Result<Option<u16>> {
    let mut opcode = [0; 2];
    loop {
        match receive(stream, &mut opcode, RecvFlags::PEEK)? {
            0 => return Ok(None),
            2 => return Ok(Some(u16::from_le_bytes(opcode))),
            // Half an opcode: poll would return at once, as there is something to read.
            _ if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
            _ => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// As [`peek`]: what has been decrypted goes to the worker with the connection.
fn look_ahead(stream: &Stream, deadline: Instant) -> io::Result<Option<u16>> {
    let mut opcode = [0; 2];
    match fill(stream, &mut opcode, deadline)? {
        Filled::Nothing => return Ok(None),
        Filled::Some => return Err(io::ErrorKind::UnexpectedEof.into()),
        Filled::All => {}
    }
    stream.put_back(&opcode)?;
    Ok(Some(u16::from_le_bytes(opcode)))
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
    Ok(match stream.receive_until(target, deadline)? {
        0 => Filled::Nothing,
        filled if filled < target.len() => Filled::Some,
        _ => Filled::All,
    })
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

    fn read(stream: &Stream) -> Result<Introduction, Unwelcome> {
        read_introduction(stream, Instant::now() + SOON)
    }

    fn pair() -> (UnixStream, Stream) {
        let (peer, ours) = UnixStream::pair().unwrap();
        (peer, Stream::from_fd(ours.into()))
    }

    fn hello(protocol: u32) -> Hello<'static> {
        let compression = Compression::Always;
        Hello {
            magic: MAGIC,
            protocol,
            version: "0.1.0",
            program: "evil\nname",
            pid: 7,
            compression,
            credential: Credential::NONE,
        }
    }

    #[test]
    fn a_hello_is_read_and_nothing_after_it() {
        let (peer, ours) = pair();
        let mut sender = FrameSender::new(Stream::from_fd(peer.into()));
        sender.push(&hello(PROTOCOL_VERSION), &[]).unwrap();
        sender.push(&Ping { number: 3 }, &[]).unwrap();
        sender.push(&Stage { id: 1 }, &[]).unwrap();
        sender.flush().unwrap();
        let Introduction::Hello(caller, Shown::None) = read(&ours).unwrap() else { panic!("no hello") };
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
        assert!(matches!(read(&ours), Err(Unwelcome::Stranger)));
        let (peer, ours) = pair();
        assert!(matches!(read_introduction(&ours, Instant::now() + Duration::from_millis(20)), Err(Unwelcome::Silent)));
        drop(peer);
        assert!(matches!(read(&ours), Err(Unwelcome::Left)));
    }
}
