//! What the worker sends, from whichever thread.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use telecl_net::{FrameSender, Lasting, MAIN_LINE, Slot, SlotPool, Stream, answer_not_resumed};
use telecl_opencl::{ClError, ClResult};
use telecl_wire::reply::{Closing, Completed, Failed, Reply, ReplyPart};
use telecl_wire::request::Message;
use telecl_wire::{CHUNK, Field};
use tracing::{debug, warn};

use super::bounds::HostMemory;
use super::staging::Chunk;
use super::streams::Streams;
use crate::board::{Count, SessionBoard};
use crate::process::{exit_code, exit_now};

/// How long the last words may take.
const PATIENCE: Duration = Duration::from_millis(200);

/// The sending half of the session's link. Its lock is held while a frame is handed to the socket; that of the streams is
/// taken meanwhile, so that payloads are in the order of their frames.
///
/// Nothing here returns an error: a link that does not take our frames has no driver behind it any more, and without a
/// driver the process has no purpose.
#[derive(Debug)]
pub(crate) struct Link {
    sender: Mutex<FrameSender>,
    /// Memory that the driver shares, if it does.
    slots: Option<SlotPool>,
    streams: Streams,
    /// If the session outlasts its connection.
    lasting: Option<Arc<Lasting>>,
    chunk: usize,
    session: u64,
    /// What the broker gets to know.
    board: Arc<SessionBoard>,
    host: Arc<HostMemory>,
}

/// What a failed one-way request was about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About {
    pub(crate) opcode: u16,
    /// Its name, for people.
    pub(crate) name: &'static str,
    pub(crate) context: u64,
    pub(crate) queue: u64,
    pub(crate) object: u64,
}

impl Link {
    pub(crate) fn new(sender: FrameSender, session: u64, board: Arc<SessionBoard>) -> Link {
        let (slots, chunk) = (sender.slots().cloned(), sender.chunk());
        let lasting = sender.lasting().cloned();
        Link {
            sender: Mutex::new(sender),
            slots,
            streams: Streams::default(),
            lasting,
            chunk,
            session,
            board,
            host: HostMemory::new(),
        }
    }

    /// What the session takes up on the way to its devices and back.
    pub(crate) fn host_memory(&self) -> &Arc<HostMemory> {
        &self.host
    }

    pub(crate) fn board(&self) -> &SessionBoard {
        &self.board
    }

    /// How much of a large transfer goes into one frame.
    pub(crate) fn chunk(&self) -> usize {
        self.chunk
    }

    /// Shared memory from which a payload need not be copied, if there is some.
    pub(crate) fn take_slot(&self) -> Option<Slot> {
        self.slots.as_ref()?.take()
    }

    /// All the shared memory for payloads: where it begins, and its size.
    pub(crate) fn shared_memory(&self) -> Option<(*mut u8, usize)> {
        self.slots.as_ref().map(SlotPool::memory)
    }

    /// As [`Link::push`], with a chunk as payload.
    pub(crate) fn push_chunk<'a>(&self, message: &impl Message<'a>, chunk: Chunk) {
        let pushed = match chunk.into_slot() {
            Ok((slot, len)) => self.with_sender(|sender| sender.push_slot(message, slot, len)),
            Err(chunk) => match self.streams.for_payload(chunk.len(), || self.lock().lets_go(chunk.len())) {
                Some(stream) => self.push_on_stream(message, stream, chunk),
                None => self.with_sender(|sender| sender.push(message, chunk.bytes())),
            },
        };
        self.must(pushed);
    }

    /// Sends the frame at once: the stream gets on only if the driver knows what comes there.
    fn push_on_stream<'a>(&self, message: &impl Message<'a>, stream: usize, chunk: Chunk) -> io::Result<()> {
        self.with_sender(|sender| {
            sender.push_on_stream(message, stream, chunk.len())?;
            self.streams.put(stream, chunk);
            sender.flush()
        })
    }

    /// The session's own line, if it outlasts its connection.
    pub(crate) fn lasting(&self) -> Option<&Arc<Lasting>> {
        self.lasting.as_ref()
    }

    /// Goes on with a connection that takes the place of one which was lost: that of the session, or of a stream. Its
    /// driver has received so much.
    pub(crate) fn resume(&self, number: u64, socket: Stream, received: u64) {
        let line = match usize::try_from(number) {
            _ if number == u64::from(MAIN_LINE) => self.lasting(),
            Ok(stream) => self.streams.lasting(stream),
            Err(_) => None,
        };
        let Some(line) = line else {
            return answer_not_resumed(&socket, "the session has no such stream", false);
        };
        match line.resume(socket, received) {
            Ok(()) => debug!(session = self.session, line = number, "connection resumed"),
            Err(error) => debug!(session = self.session, line = number, %error, "connection not resumed"),
        }
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Without one of its streams a session cannot go on.
    pub(super) fn stream_lost(&self, error: &io::Error) -> ! {
        debug!(session = self.session, %error, "a stream is lost");
        self.closing(&format!("a stream of the session was lost: {error}"));
        exit_now(exit_code::CLOSED)
    }

    /// The session's number, for the log.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// Adds a frame to those that leave with the next flush.
    pub(crate) fn push<'a>(&self, message: &impl Message<'a>, payload: &[u8]) {
        let pushed = self.with_sender(|sender| sender.push(message, payload));
        self.must(pushed);
    }

    pub(crate) fn flush(&self) {
        let flushed = self.lock().flush();
        self.must(flushed);
    }

    /// A frame that leaves at once.
    pub(crate) fn send<'a>(&self, message: &impl Message<'a>, payload: &[u8]) {
        let sent = self.with_sender(|sender| sender.send(message, payload));
        self.must(sent);
    }

    /// Answers a request; a long answer goes in pieces, between which others may send.
    pub(crate) fn reply(&self, call: u64, status: i32, answer: &[u8]) {
        if status < 0 {
            self.board.add(Count::Failures, 1);
        }
        let mut rest = answer;
        while rest.len() > CHUNK {
            let (part, after) = rest.split_at(CHUNK);
            self.send(&ReplyPart { call }, part);
            rest = after;
        }
        self.send(&Reply { call, status }, rest);
    }

    /// Answers a request with what it came to.
    pub(crate) fn answer(&self, name: &'static str, call: u64, result: &ClResult<Vec<u8>>) {
        match result {
            Ok(answer) => self.reply(call, 0, answer),
            Err(error) => {
                debug!(session = self.session, call = name, %error, "call failed");
                self.reply(call, error.code(), &[]);
            }
        }
    }

    /// As [`Link::answer`], for answers that are a struct.
    pub(crate) fn answer_with<'a>(&self, name: &'static str, call: u64, result: ClResult<impl Field<'a>>) {
        self.answer(name, call, &result.map(|value| telecl_wire::encode(&value)));
    }

    /// Says that a one-way request failed. With an `event`, that its command has ended with it.
    pub(crate) fn failed(&self, about: About, error: ClError, event: u64) {
        let About { opcode, name, context, queue, object } = about;
        debug!(session = self.session, call = name, %error, object, queue, "call failed");
        self.board.add(Count::Failures, 1);
        let message = format!("{name} failed: {error}");
        let status = error.code();
        self.push(&Failed { opcode, status, context, queue, object, message: &message }, &[]);
        if event != 0 {
            self.push(&Completed { event, status, profile: [0; 5] }, &[]);
        }
        self.flush();
    }

    /// Says so if a one-way create failed.
    pub(crate) fn created<T>(&self, opcode: u16, name: &'static str, context: u64, object: u64, made: &ClResult<T>) {
        if let Err(error) = made {
            self.failed(About { opcode, name, context, queue: 0, object }, *error, 0);
        }
    }

    /// Says that there is no room for a context, and why.
    pub(crate) fn refused(&self, opcode: u16, context: u64, error: ClError, reason: &str) {
        debug!(session = self.session, reason, "context refused");
        self.board.add(Count::Failures, 1);
        let failed = Failed { opcode, status: error.code(), context, queue: 0, object: context, message: reason };
        self.send(&failed, &[]);
    }

    /// Tells the driver why the session ends, if it still listens; never waits for long.
    pub(crate) fn closing(&self, reason: &str) {
        self.end(reason, false);
    }

    /// As [`Link::closing`], because a policy wants it so.
    pub(crate) fn closing_by_policy(&self, reason: &str) {
        self.end(reason, true);
    }

    fn end(&self, reason: &str, policy: bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut sender = loop {
            match self.sender.try_lock() {
                Ok(sender) => break sender,
                Err(TryLockError::Poisoned(sender)) => break sender.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
                // Somebody is stuck in the middle of a frame; nothing may be put there.
                Err(TryLockError::WouldBlock) => return,
            }
        };
        let _ = sender.hurry(PATIENCE);
        let _ = sender.send(&Closing { reason, policy }, &[]);
        self.lasting().inspect(|line| line.say_bye());
    }

    fn must(&self, sent: io::Result<()>) {
        match sent {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                // Ours to avoid: every sender cuts what it sends.
                panic!("a frame was too long: {error}");
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                warn!(session = self.session, reason = %error, "the driver broke the protocol");
                exit_now(exit_code::BROKEN_PROTOCOL);
            }
            Err(error) => {
                debug!(session = self.session, %error, "the driver is gone");
                exit_now(exit_code::CLOSED);
            }
        }
    }

    /// Has frames put on the link, and counts their bytes. Only whoever has the lock writes that counter.
    fn with_sender<R>(&self, put: impl FnOnce(&mut FrameSender) -> R) -> R {
        let mut sender = self.lock();
        let put = put(&mut sender);
        self.board.count(Count::BytesOut).store(sender.total(), Ordering::Relaxed);
        put
    }

    fn lock(&self) -> MutexGuard<'_, FrameSender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
