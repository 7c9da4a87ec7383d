//! The private channel between the broker and one of its workers: a socket pair whose one end is the worker's standard
//! input.
//!
//! The broker gives the worker its session, with the session's sockets, and keeps built programs for it. Every message
//! is a head of [`HEAD`] bytes and as many bytes of content as the head says. The broker trusts nothing that it reads
//! here: a worker runs its tenant's code.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use telecl_net::{Compression, Stream, Terms};
use telecl_wire::{DecodeError, Field, Reader};

use crate::board::SessionBoard;

/// Names a program by everything that its binary depends on.
pub(crate) type Key = [u8; 32];

/// The longest content. A program whose binary is longer is not kept; hashcat's have a few megabytes.
pub(crate) const MOST_CONTENT: usize = 32 << 20;

/// Kind, number, key, length of the content.
const HEAD: usize = 1 + 8 + 32 + 4;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// From the worker: the vendor's OpenCL is loaded.
    Ready = 1,
    /// To the worker, together with a socket and a board: serve this session; `number` is the session's, the content is the rest of
    /// [`Begin`].
    Begin = 2,
    /// From the worker: the session is mine.
    Begun = 3,
    /// From the worker: is there a program under `key`? Answered by `Hit` or `Build` with the same `number`, if need be
    /// after another worker has built it.
    Lookup = 4,
    /// To the worker: the content is what was stored.
    Hit = 5,
    /// To the worker: build it, then `Store` it, or say `Failed` or `Unkept`; others may be waiting.
    Build = 6,
    /// From the worker: the content is the program under `key`.
    Store = 7,
    /// From the worker: it could not build the program; whoever waits may try.
    Failed = 8,
    /// From the worker: it has built the program and has nothing to store, or not soon; all who wait build it, too.
    Unkept = 9,
    /// From the worker: what is stored under `key` is of no use.
    Forget = 10,
    /// From the worker: as `Lookup`, but somebody else can build the program sooner. Answered when somebody has.
    Await = 11,
    /// To the worker, together with a socket: a further stream of the session; `number` is the stream's, the content is
    /// its encryption.
    Join = 12,
    /// From the worker: the session is about to make a context with these devices, whose numbers are the content.
    /// Answered by `Admitted` or `Refused` with the same `number`, if need be after others have left.
    Admit = 13,
    /// To the worker: there is room.
    Admitted = 14,
    /// To the worker: there is none, and the content says why.
    Refused = 15,
    /// From the worker: it has something to run on the device at place `number` of its board, and no turn.
    Wants = 16,
    /// From the worker: its turn on the device at place `number` has ended; the content is a [`Done`].
    Done = 17,
    /// From the worker: the session wants so much memory, [`MemoryWish`]. Answered by `Reserved` or `Denied` with the
    /// same `number`: at once, or, if sessions may be moved out, when others have been.
    Reserve = 18,
    /// To the worker: the memory is the session's.
    Reserved = 19,
    /// To the worker: the tenant's sessions have too much, and the content says how much they may have.
    Denied = 20,
    /// From the worker: the session has no use for so much of its memory any more.
    Unreserve = 21,
    /// To the worker: others need the memory. What the session has on devices is to go to host memory as soon as nothing
    /// of it is under way. Answered by `Moved`, or by `Stays` and perhaps `Moved` later.
    MoveOut = 22,
    /// From the worker: the session's memory objects are in host memory, after `number` nanoseconds. What is free comes
    /// with `Unreserve`.
    Moved = 23,
    /// From the worker: the program keeps the session from being moved out for the time being.
    Stays = 24,
    /// From the worker: does not wait any more for the memory that it wanted under `number`, and for an answer at once.
    Withdraw = 25,
    /// From the worker: does not want the turn any more that it has asked for on the device at place `number`, even if it
    /// has come meanwhile.
    WantsNot = 26,
    /// To the worker, together with a socket: a connection that takes the place of one which was lost. `number` is that of
    /// the stream, the content how many bytes the driver has received there.
    Resume = 27,
    /// To the worker, before `Begin`, together with a listening socket and the lock of its directory: its session may go on
    /// without this broker. `key` and `number` are
    /// those of its [`Lease`]; the next broker comes to the socket and says `Adopt`.
    Survive = 40,
    /// To the worker, from a broker that was started after the first one has gone: `key` is the lease's secret, `number` is
    /// [`CHANNEL_VERSION`].
    Adopt = 41,
    /// From the worker, together with its board: the content is [`Possessions`]. What it waits for is asked again.
    Adopted = 42,
}

/// Goes up whenever a worker of another version could misunderstand a broker, or the other way round: then a broker takes
/// no session over that another one has begun.
pub(crate) const CHANNEL_VERSION: u64 = 1;

impl Kind {
    const ALL: [Kind; 30] = [
        Kind::Ready,
        Kind::Begin,
        Kind::Begun,
        Kind::Lookup,
        Kind::Hit,
        Kind::Build,
        Kind::Store,
        Kind::Failed,
        Kind::Unkept,
        Kind::Forget,
        Kind::Await,
        Kind::Join,
        Kind::Admit,
        Kind::Admitted,
        Kind::Refused,
        Kind::Wants,
        Kind::Done,
        Kind::Reserve,
        Kind::Reserved,
        Kind::Denied,
        Kind::Unreserve,
        Kind::MoveOut,
        Kind::Moved,
        Kind::Stays,
        Kind::Withdraw,
        Kind::WantsNot,
        Kind::Resume,
        Kind::Survive,
        Kind::Adopt,
        Kind::Adopted,
    ];
}

/// One message without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) number: u64,
    pub(crate) key: Key,
    len: u32,
}

impl Head {
    pub(crate) fn new(kind: Kind) -> Head {
        Head { kind, number: 0, key: [0; 32], len: 0 }
    }

    pub(crate) fn number(self, number: u64) -> Head {
        Head { number, ..self }
    }

    pub(crate) fn key(self, key: Key) -> Head {
        Head { key, ..self }
    }

    fn bytes(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0] = self.kind as u8;
        bytes[1..9].copy_from_slice(&self.number.to_le_bytes());
        bytes[9..41].copy_from_slice(&self.key);
        bytes[41..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; HEAD]) -> io::Result<Head> {
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "a message that is none of ours");
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == bytes[0]).ok_or_else(broken)?;
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[1..9]);
        let mut key = [0; 32];
        key.copy_from_slice(&bytes[9..41]);
        let mut len = [0; 4];
        len.copy_from_slice(&bytes[41..]);
        let head = Head { kind, number: u64::from_le_bytes(number), key, len: u32::from_le_bytes(len) };
        if head.len as usize > MOST_CONTENT { Err(broken()) } else { Ok(head) }
    }
}

/// A message, its content, and the descriptors that came with it.
pub(crate) type WithDescriptors = (Head, Vec<u8>, Vec<OwnedFd>);

/// How much of a device's memory a session may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub(crate) device: u64,
    /// What the session may have at most.
    pub(crate) most: u64,
    /// What all sessions of its tenant may have, if they can come to more than that: then the broker is asked first.
    pub(crate) together: Option<u64>,
    /// Whether `together` is about what they have on the device at once: what the session has may be moved out to host
    /// memory meanwhile.
    pub(crate) moves: bool,
}

impl MemoryLimit {
    /// For no limit.
    const NONE: u64 = u64::MAX;

    fn words(&self) -> [u64; 4] {
        [self.device, self.most, self.together.unwrap_or(Self::NONE), self.moves.into()]
    }

    fn of_words([device, most, together, moves]: [u64; 4]) -> MemoryLimit {
        let together = Some(together).filter(|together| *together != Self::NONE);
        MemoryLimit { device, most, together, moves: moves != 0 }
    }
}

/// So many bytes on each of some devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryWish {
    /// Numbers of devices, and how much there; no device twice.
    pub(crate) amounts: Vec<(u64, u64)>,
}

impl MemoryWish {
    /// As much on each of these devices.
    pub(crate) fn each(devices: impl IntoIterator<Item = u64>, bytes: u64) -> MemoryWish {
        MemoryWish { amounts: devices.into_iter().map(|device| (device, bytes)).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.amounts.is_empty()
    }

    /// This, and another one.
    pub(crate) fn add(&mut self, other: &MemoryWish) {
        for (device, bytes) in &other.amounts {
            match self.amounts.iter_mut().find(|(own, _)| own == device) {
                Some((_, sum)) => *sum = sum.saturating_add(*bytes),
                None => self.amounts.push((*device, *bytes)),
            }
        }
    }

    /// This, without another one.
    pub(crate) fn subtract(&mut self, other: &MemoryWish) {
        for (device, bytes) in &other.amounts {
            if let Some((_, sum)) = self.amounts.iter_mut().find(|(own, _)| own == device) {
                *sum = sum.saturating_sub(*bytes);
            }
        }
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        let words: Vec<[u64; 2]> = self.amounts.iter().map(|(device, bytes)| [*device, *bytes]).collect();
        telecl_wire::encode(&words)
    }

    pub(crate) fn parse(content: &[u8]) -> Result<MemoryWish, DecodeError> {
        let words: Vec<[u64; 2]> = telecl_wire::decode(content)?;
        let mut wish = MemoryWish::default();
        words.into_iter().for_each(|[device, bytes]| wish.add(&MemoryWish { amounts: vec![(device, bytes)] }));
        Ok(wish)
    }
}

/// The session that a worker gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) session: u64,
    /// What driver and service have agreed on.
    pub(crate) compression: Compression,
    /// What the service allows of lines that outlast their connections.
    pub(crate) terms: Terms,
    pub(crate) limits: Limits,
    /// The numbers of the root devices that it may use.
    pub(crate) devices: Vec<u64>,
    /// Of those whose memory is limited.
    pub(crate) memory: Vec<MemoryLimit>,
}

impl Begin {
    /// All but the session's number.
    pub(crate) fn content(&self) -> Vec<u8> {
        let mut content = Vec::new();
        self.compression.put(&mut content);
        let (heartbeat, grace) = self.terms.millis();
        heartbeat.put(&mut content);
        grace.put(&mut content);
        self.limits.put(&mut content);
        self.devices.put(&mut content);
        self.memory.iter().map(MemoryLimit::words).collect::<Vec<_>>().put(&mut content);
        content
    }

    pub(crate) fn parse(session: u64, reader: &mut Reader<'_>) -> Result<Begin, DecodeError> {
        let compression = Field::take(reader)?;
        let terms = Terms::from_millis(Field::take(reader)?, Field::take(reader)?);
        let limits = Limits::take(reader)?;
        let devices = Field::take(reader)?;
        let memory: Vec<[u64; 4]> = Field::take(reader)?;
        let memory = memory.into_iter().map(MemoryLimit::of_words).collect();
        Ok(Begin { session, compression, terms, limits, devices, memory })
    }
}

/// What the policy wants the worker to see to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// How long the session may do nothing.
    pub(crate) longest_idle: Option<Duration>,
    /// How many commands it may have under way.
    pub(crate) commands: u32,
    /// How long a build may take.
    pub(crate) longest_build: Option<Duration>,
    /// How long a kernel may run.
    pub(crate) longest_kernel: Option<Duration>,
    /// Whether the session ends if one runs longer.
    pub(crate) overrun_ends: bool,
}

impl Limits {
    /// There are none.
    #[cfg(test)]
    pub(crate) const NONE: Limits = Limits {
        longest_idle: None,
        commands: u32::MAX,
        longest_build: None,
        longest_kernel: None,
        overrun_ends: false,
    };

    fn put(&self, content: &mut Vec<u8>) {
        for time in [self.longest_idle, self.longest_build, self.longest_kernel] {
            // A day more or less makes no difference after half a billion years.
            time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).put(content);
        }
        self.commands.put(content);
        self.overrun_ends.put(content);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Limits, DecodeError> {
        let mut time = || <Option<u64> as Field>::take(reader).map(|time| time.map(Duration::from_millis));
        let (longest_idle, longest_build, longest_kernel) = (time()?, time()?, time()?);
        let (commands, overrun_ends) = (Field::take(reader)?, Field::take(reader)?);
        Ok(Limits { longest_idle, commands, longest_build, longest_kernel, overrun_ends })
    }
}

/// What a worker needs to go on without the broker that has started it.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Where the next broker comes to.
    pub(crate) listener: UnixListener,
    /// By which that broker is known.
    pub(crate) secret: Key,
    /// For how long the session waits for it.
    pub(crate) grace: Duration,
    /// Held as long as this process lives: nobody removes its directory.
    pub(crate) _lock: OwnedFd,
}

impl Lease {
    fn take(head: Head, descriptors: &mut Vec<OwnedFd>) -> io::Result<Lease> {
        let incomplete = || io::Error::new(io::ErrorKind::InvalidData, "a lease without its socket or its lock");
        let (Some(lock), Some(listener)) = (descriptors.pop(), descriptors.pop()) else { return Err(incomplete()) };
        let grace = Duration::from_millis(head.number);
        Ok(Lease { listener: listener.into(), secret: head.key, grace, _lock: lock })
    }
}

/// What a session has that only a broker can give, as its worker tells the next broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Possessions {
    /// Memory that was reserved for it.
    pub(crate) reserved: MemoryWish,
    /// Its memory objects are in host memory.
    pub(crate) is_out: bool,
    /// It was asked to move out, and has not yet.
    pub(crate) asked_out: bool,
    /// It has said that it cannot.
    pub(crate) stays: bool,
    /// The devices on which it has been given room.
    pub(crate) devices: Vec<u64>,
}

impl Possessions {
    pub(crate) fn content(&self) -> Vec<u8> {
        let mut content = Vec::new();
        self.reserved.content().put(&mut content);
        self.is_out.put(&mut content);
        self.asked_out.put(&mut content);
        self.stays.put(&mut content);
        self.devices.put(&mut content);
        content
    }

    pub(crate) fn parse(content: &[u8]) -> Result<Possessions, DecodeError> {
        let mut reader = Reader::new(content);
        let reserved: Vec<u8> = Field::take(&mut reader)?;
        let (is_out, asked_out) = (Field::take(&mut reader)?, Field::take(&mut reader)?);
        let (stays, devices) = (Field::take(&mut reader)?, Field::take(&mut reader)?);
        Ok(Possessions { reserved: MemoryWish::parse(&reserved)?, is_out, asked_out, stays, devices })
    }
}

/// A session that a worker has got.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) begin: Begin,
    pub(crate) stream: Stream,
    pub(crate) board: SessionBoard,
    /// The board as the next broker gets it.
    pub(crate) memfd: OwnedFd,
    /// `None` if the session ends with its broker.
    pub(crate) lease: Option<Lease>,
}

/// How a turn on a device has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// How long the session had commands on the device.
    pub(crate) used: Duration,
    /// Whether it has more to run, and waits for its next turn.
    pub(crate) more: bool,
    /// Whether it runs one command at a time, with pauses in between.
    pub(crate) brief: bool,
}

impl Done {
    pub(crate) fn content(self) -> Vec<u8> {
        let mut content = Vec::new();
        u64::try_from(self.used.as_nanos()).unwrap_or(u64::MAX).put(&mut content);
        self.more.put(&mut content);
        self.brief.put(&mut content);
        content
    }

    pub(crate) fn parse(content: &[u8]) -> Result<Done, DecodeError> {
        let mut reader = Reader::new(content);
        let used: u64 = Field::take(&mut reader)?;
        let (more, brief) = (Field::take(&mut reader)?, Field::take(&mut reader)?);
        Ok(Done { used: Duration::from_nanos(used), more, brief })
    }
}

/// One end of the channel. Whoever sends from several threads needs a lock of their own.
#[derive(Debug)]
pub(crate) struct Channel(UnixStream);

/// How long a worker may keep its broker waiting within a message.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Channel {
    /// Both ends; neither is inherited by a child unless it is given to it.
    pub(crate) fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        // Whoever runs a tenant's code may stop in the middle of a message. The broker only reads when there is one.
        ours.set_read_timeout(Some(LONGEST_PAUSE))?;
        ours.set_write_timeout(Some(LONGEST_PAUSE))?;
        Ok((Channel(ours), theirs.into()))
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> Channel {
        Channel(fd.into())
    }

    pub(crate) fn send(&self, head: Head, content: &[u8]) -> io::Result<()> {
        let len = u32::try_from(content.len()).ok().filter(|len| *len as usize <= MOST_CONTENT);
        let head = Head { len: len.ok_or(io::ErrorKind::InvalidInput)?, ..head };
        (&self.0).write_all(&head.bytes())?;
        (&self.0).write_all(content)
    }

    /// The next message and its content; `None` at the end.
    pub(crate) fn receive(&self) -> io::Result<Option<(Head, Vec<u8>)>> {
        let mut bytes = [0; HEAD];
        if (&self.0).read(&mut bytes[..1])? == 0 {
            return Ok(None);
        }
        (&self.0).read_exact(&mut bytes[1..])?;
        let head = Head::parse(&bytes)?;
        Ok(Some((head, self.content(head)?)))
    }

    /// Gives the other side a session, its connection and its board.
    pub(crate) fn hand_over(&self, begin: &Begin, stream: &Stream, board: BorrowedFd<'_>) -> io::Result<()> {
        let mut content = begin.content();
        stream.encryption()?.as_slice().put(&mut content);
        self.send_with(Head::new(Kind::Begin).number(begin.session), &content, &[stream.as_fd(), board])
    }

    /// As [`Channel::send`], with descriptors; the content is short.
    pub(crate) fn send_with(&self, head: Head, content: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let head = Head { len: content.len() as u32, ..head };
        let bytes = [&head.bytes()[..], content].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent = loop {
            match rustix::net::sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => continue,
                other => break other?,
            }
        };
        // They have left with the first byte.
        (&self.0).write_all(&bytes[sent..])
    }

    /// Waits for a session, its connection and its board; `None` if the other side has none and is gone.
    pub(crate) fn take_over(&self) -> io::Result<Option<Handed>> {
        let incomplete = || io::Error::new(io::ErrorKind::InvalidData, "a session without its socket or its board");
        let mut lease = None;
        let (head, content, mut descriptors) = loop {
            let Some((head, content, mut descriptors)) = self.receive_with()? else { return Ok(None) };
            if head.kind != Kind::Survive {
                break (head, content, descriptors);
            }
            lease = Some(Lease::take(head, &mut descriptors)?);
        };
        let (Kind::Begin, Some(memfd), Some(socket)) = (head.kind, descriptors.pop(), descriptors.pop()) else {
            return Err(incomplete());
        };
        let mut reader = Reader::new(&content);
        let begin = Begin::parse(head.number, &mut reader).map_err(io::Error::other)?;
        let encryption: &[u8] = Field::take(&mut reader).map_err(io::Error::other)?;
        let stream = Stream::with_encryption(socket, encryption)?;
        let board = SessionBoard::open(&memfd, &begin.devices).map_err(io::Error::other)?;
        Ok(Some(Handed { begin, stream, board, memfd, lease }))
    }

    /// Lets the other side go on without us.
    pub(crate) fn let_survive(
        &self,
        secret: Key,
        grace: Duration,
        listener: BorrowedFd<'_>,
        lock: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.send_with(Head::new(Kind::Survive).number(grace).key(secret), &[], &[listener, lock])
    }

    /// As [`Channel::receive`], together with the descriptors that come with the message, two at most. For workers, and
    /// once for each session that is taken over: who sends descriptors to a broker wants to fill its table.
    pub(crate) fn receive_with(&self) -> io::Result<Option<WithDescriptors>> {
        let mut bytes = [0; HEAD];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            match rustix::net::recvmsg(&self.0, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => continue,
                other => break other?.bytes,
            }
        };
        if received == 0 {
            return Ok(None);
        }
        // They have come with the first byte.
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        (&self.0).read_exact(&mut bytes[received..])?;
        let head = Head::parse(&bytes)?;
        Ok(Some((head, self.content(head)?, descriptors)))
    }

    fn content(&self, head: Head) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        // Grows with what arrives: a length alone takes no memory.
        (&self.0).take(head.len.into()).read_to_end(&mut content)?;
        if content.len() < head.len as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(content)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::board::Count;

    fn pair() -> (Channel, Channel) {
        let (ours, theirs) = Channel::pair().unwrap();
        (ours, Channel::from_fd(theirs))
    }

    #[test]
    fn a_message_arrives_with_its_content() {
        let (ours, theirs) = pair();
        let key = [7; 32];
        ours.send(Head::new(Kind::Store).number(u64::MAX).key(key), b"program").unwrap();
        ours.send(Head::new(Kind::Failed).key(key), &[]).unwrap();
        drop(ours);
        let (head, content) = theirs.receive().unwrap().unwrap();
        assert_eq!((head.kind, head.number, head.key, &content[..]), (Kind::Store, u64::MAX, key, &b"program"[..]));
        assert_eq!(theirs.receive().unwrap().unwrap().0, Head::new(Kind::Failed).key(key));
        assert!(theirs.receive().unwrap().is_none());
    }

    #[test]
    fn a_session_arrives_with_its_socket_and_its_board() {
        let (ours, theirs) = pair();
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let limits = Limits {
            longest_idle: Some(Duration::from_secs(90)),
            commands: 7,
            longest_kernel: Some(Duration::from_millis(1)),
            overrun_ends: true,
            ..Limits::NONE
        };
        let devices = vec![1, u64::MAX];
        let memory = [(1, Some(9)), (u64::MAX, None)];
        let memory =
            memory.map(|(device, together)| MemoryLimit { device, most: 7, together, moves: device == 1 }).to_vec();
        let terms = Terms { heartbeat: None, grace: Duration::from_secs(7) };
        let begin = Begin { session: 42, compression: Compression::Always, terms, limits, devices, memory };
        let (board, memfd) = SessionBoard::create(&begin.devices).unwrap();
        ours.hand_over(&begin, &Stream::from_fd(socket.into()), memfd.as_fd()).unwrap();
        let Handed { begin: taken, stream: socket, board: theirs_board, lease, .. } =
            theirs.take_over().unwrap().unwrap();
        assert_eq!(taken, begin);
        assert!(lease.is_none());
        theirs_board.add(Count::Commands, 3);
        assert_eq!(board.count(Count::Commands).load(Ordering::Relaxed), 3);
        let mut socket = UnixStream::from(socket.into_fd());
        socket.write_all(b"x").unwrap();
        let mut byte = [0];
        peer.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        drop(ours);
        assert!(theirs.take_over().unwrap().is_none());
    }

    #[test]
    fn a_lease_comes_before_the_session() {
        let (ours, theirs) = pair();
        let (_peer, socket) = UnixStream::pair().unwrap();
        let (compression, devices, memory) = (Compression::Off, vec![1], Vec::new());
        let begin = Begin { session: 1, compression, terms: Terms::default(), limits: Limits::NONE, devices, memory };
        let (_board, memfd) = SessionBoard::create(&begin.devices).unwrap();
        let place = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(place.path().join("s")).unwrap();
        ours.let_survive([9; 32], Duration::from_secs(30), listener.as_fd(), memfd.as_fd()).unwrap();
        ours.hand_over(&begin, &Stream::from_fd(socket.into()), memfd.as_fd()).unwrap();
        let lease = theirs.take_over().unwrap().unwrap().lease.unwrap();
        assert_eq!((lease.secret, lease.grace), ([9; 32], Duration::from_secs(30)));
        assert_eq!(lease.listener.local_addr().unwrap().as_pathname(), Some(&*place.path().join("s")));
        ours.send(Head::new(Kind::Survive), &[]).unwrap();
        assert!(theirs.take_over().is_err());
    }

    #[test]
    fn what_a_session_has_is_told_to_the_next_broker() {
        let reserved = MemoryWish { amounts: vec![(1, 100), (7, u64::MAX)] };
        let has = Possessions { reserved, is_out: true, asked_out: false, stays: true, devices: vec![1, 7] };
        assert_eq!(Possessions::parse(&has.content()).unwrap(), has);
        let content = has.content();
        for len in 0..content.len() {
            assert!(Possessions::parse(&content[..len]).is_err(), "{len}");
        }
        let mut reserved = has.reserved;
        reserved.subtract(&MemoryWish { amounts: vec![(1, 30), (2, 5)] });
        assert_eq!(reserved.amounts, [(1, 70), (7, u64::MAX)]);
    }

    #[test]
    fn a_socket_comes_with_its_message_and_no_other() {
        let (ours, theirs) = pair();
        let (_peer, socket) = UnixStream::pair().unwrap();
        ours.send(Head::new(Kind::Hit).number(1), b"program").unwrap();
        ours.send_with(Head::new(Kind::Join).number(2), &[], &[socket.as_fd()]).unwrap();
        ours.send(Head::new(Kind::Build).number(3), &[]).unwrap();
        for (number, has_socket) in [(1, false), (2, true), (3, false)] {
            let (head, _, descriptors) = theirs.receive_with().unwrap().unwrap();
            assert_eq!((head.number, descriptors.len()), (number, usize::from(has_socket)));
        }
    }

    #[test]
    fn nonsense_is_refused_and_takes_no_memory() {
        for bytes in [&[0; HEAD][..], &[99; HEAD], &[Kind::Store as u8; HEAD], &[Kind::Hit as u8]] {
            let (ours, theirs) = pair();
            (&ours.0).write_all(bytes).unwrap();
            drop(ours);
            assert!(theirs.receive().is_err(), "{bytes:?}");
        }
        let (ours, theirs) = pair();
        ours.send(Head::new(Kind::Begin), &[]).unwrap();
        assert!(theirs.take_over().is_err());
        assert!(ours.send(Head::new(Kind::Store), &vec![0; MOST_CONTENT + 1]).is_err());
    }
}
