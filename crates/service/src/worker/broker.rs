//! The channel to the broker: its cache of built programs, as a worker sees it, further streams of the session, room on
//! devices, and memory that a tenant's sessions share.
//!
//! A worker never touches the cache's files: it asks the broker over its channel. A build thread waits for the answer,
//! which may be that another session is building the same program. Whatever goes wrong here means that the compiler
//! runs.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use telecl_net::Stream;
use tracing::debug;

use super::link::Link;
use super::start::guarded;
use crate::channel::{Channel, Head, Key, Kind, MOST_CONTENT, MemoryWish};

/// How long to wait for what another session builds. After that the program is built here as well: the other one may
/// hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to hope that a session which can build the program sooner begins to.
const RELUCTANCE: Duration = Duration::from_millis(250);

pub(super) const LOST: &str = "the worker cannot reach its broker";

/// What the cache has under a key.
#[derive(Debug)]
pub(crate) enum Found {
    Hit(Vec<u8>),
    /// Nothing, and others who ask wait for this session.
    Build(Permit),
    /// Nobody knows.
    Nothing,
}

/// The broker, as one session uses it. Its locks are held for a few lines, but for that of the channel, under which a
/// message is sent.
#[derive(Debug)]
pub(crate) struct Broker {
    channel: Channel,
    sending: Mutex<()>,
    lookups: Mutex<Lookups>,
    /// Who waits for room.
    room: Mutex<Option<Sender<Result<(), String>>>>,
    wishes: Mutex<Wishes>,
    /// That the session is to be moved out.
    eviction: Eviction,
    reader: OnceLock<bool>,
    link: Arc<Link>,
}

#[derive(Debug, Default)]
struct Lookups {
    next: u64,
    /// Who waits for an answer; `None` if nobody does any more.
    waiting: HashMap<u64, (Key, Option<Sender<Found>>)>,
}

/// Who waits to hear whether there is memory.
#[derive(Debug, Default)]
struct Wishes {
    next: u64,
    waiting: HashMap<u64, Sender<Result<(), String>>>,
}

/// A wish that was sent; it is answered once.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) number: u64,
    pub(crate) answered: Receiver<Result<(), String>>,
}

/// That the broker wants the session to be moved out. The executor looks; before it sleeps, it listens as well.
#[derive(Debug, Default)]
struct Eviction {
    asked: AtomicBool,
    /// Readable when it was asked; made when it is first needed.
    wake: OnceLock<Option<OwnedFd>>,
}

impl Eviction {
    fn wake(&self) -> Option<&OwnedFd> {
        let make = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        self.wake.get_or_init(make).as_ref()
    }
}

impl Broker {
    pub(crate) fn new(channel: Channel, link: Arc<Link>) -> Arc<Broker> {
        let (sending, lookups, room) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (wishes, eviction, reader) = (Mutex::default(), Eviction::default(), OnceLock::new());
        Arc::new(Broker { channel, sending, lookups, room, wishes, eviction, reader, link })
    }

    /// Asks for a program; waits while another session builds it. With `reluctant`, gives others a moment to begin.
    pub(crate) fn lookup(self: &Arc<Self>, key: Key, reluctant: bool) -> Found {
        if !self.listen() {
            return Found::Nothing;
        }
        let (answer, answered) = mpsc::channel();
        let number = {
            let mut lookups = self.lock();
            lookups.next += 1;
            let number = lookups.next;
            lookups.waiting.insert(number, (key, Some(answer)));
            number
        };
        if reluctant {
            self.send(Head::new(Kind::Await).number(number).key(key), &[]);
            if let Ok(found) = answered.recv_timeout(RELUCTANCE) {
                return found;
            }
        }
        if !self.send(Head::new(Kind::Lookup).number(number).key(key), &[]) {
            return Found::Nothing;
        }
        answered.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            debug!(session = self.link.session(), "no answer from the cache; building without it");
            if let Some((_, answer)) = self.lock().waiting.get_mut(&number) {
                *answer = None;
            }
            // It may have come just now.
            answered.try_recv().unwrap_or(Found::Nothing)
        })
    }

    /// Asks whether the session may use these devices, and waits while they are full, as long as the policy says. If not,
    /// says why. Only the executor asks.
    pub(crate) fn admit(self: &Arc<Self>, devices: &[u64]) -> Result<(), String> {
        let lost = || "the worker cannot reach its broker".to_owned();
        if !self.listen() {
            return Err(lost());
        }
        let (answer, answered) = mpsc::channel();
        *self.room() = Some(answer);
        if !self.send(Head::new(Kind::Admit), &telecl_wire::encode(&devices.to_vec())) {
            return Err(lost());
        }
        answered.recv().unwrap_or_else(|_| Err(lost()))
    }

    /// Asks for memory that sessions share, and waits for it; if there is none, says why.
    pub(crate) fn reserve(self: &Arc<Self>, wish: &MemoryWish) -> Result<(), String> {
        self.ask_for(wish)?.answered.recv().unwrap_or_else(|_| Err(LOST.to_owned()))
    }

    /// Asks for memory that sessions share.
    pub(crate) fn ask_for(self: &Arc<Self>, wish: &MemoryWish) -> Result<Asked, String> {
        if !self.listen() {
            return Err(LOST.to_owned());
        }
        let (answer, answered) = mpsc::channel();
        let number = {
            let mut wishes = self.wishes();
            wishes.next += 1;
            let number = wishes.next;
            wishes.waiting.insert(number, answer);
            number
        };
        if self.send(Head::new(Kind::Reserve).number(number), &wish.content()) {
            Ok(Asked { number, answered })
        } else {
            Err(LOST.to_owned())
        }
    }

    /// Does not want to wait any longer. Whether it got the memory is what the answer says, which comes at once.
    pub(crate) fn withdraw(&self, asked: &Asked) -> Result<(), String> {
        self.send(Head::new(Kind::Withdraw).number(asked.number), &[]);
        asked.answered.recv().unwrap_or_else(|_| Err(LOST.to_owned()))
    }

    /// Whether the session is to be moved out.
    pub(crate) fn wants_it_out(&self) -> bool {
        self.eviction.asked.load(Ordering::Acquire)
    }

    /// Readable when the session is to be moved out, and perhaps once more.
    pub(crate) fn eviction(&self) -> Option<BorrowedFd<'_>> {
        self.eviction.wake().map(AsFd::as_fd)
    }

    /// The executor has heard.
    pub(crate) fn hear_eviction(&self) {
        if let Some(wake) = self.eviction.wake() {
            // Empty if it was something else that woke the executor.
            let _ = rustix::io::read(wake, &mut [0; 8]);
        }
    }

    /// The session's memory objects are in host memory; it took so long.
    pub(crate) fn moved(&self, took: Duration) {
        self.eviction.asked.store(false, Ordering::Release);
        self.send(Head::new(Kind::Moved).number(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)), &[]);
    }

    /// The program keeps it from being moved out. It is moved as soon as that has changed, if it is still needed.
    pub(crate) fn stays(&self) {
        self.send(Head::new(Kind::Stays), &[]);
    }

    /// Needs some of it no more.
    pub(crate) fn unreserve(&self, wish: &MemoryWish) {
        self.send(Head::new(Kind::Unreserve), &wish.content());
    }

    /// Keeps a program, unless somebody else does.
    pub(crate) fn store(&self, key: Key, content: &[u8]) {
        if content.len() <= MOST_CONTENT {
            self.send(Head::new(Kind::Store).key(key), content);
        }
    }

    /// What is kept under a key is of no use.
    pub(crate) fn forget(&self, key: Key) {
        self.send(Head::new(Kind::Forget).key(key), &[]);
    }

    pub(super) fn send(&self, head: Head, content: &[u8]) -> bool {
        let _turn = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        match self.channel.send(head, content) {
            Ok(()) => true,
            Err(error) => {
                debug!(session = self.link.session(), %error, "cannot reach the broker");
                false
            }
        }
    }

    /// Sees to it that what the broker says is heard; `false` if that cannot be.
    pub(crate) fn listen(self: &Arc<Self>) -> bool {
        *self.reader.get_or_init(|| self.start_reader())
    }

    fn start_reader(self: &Arc<Self>) -> bool {
        let broker = Arc::clone(self);
        let thread = thread::Builder::new().name("telecl-broker".into()).stack_size(256 << 10);
        thread.spawn(move || guarded(&broker.link, "broker", || broker.read_on())).is_ok()
    }

    fn read_on(self: &Arc<Self>) {
        loop {
            let (head, content, mut descriptors) = match self.channel.receive_with() {
                Ok(Some(message)) => message,
                other => {
                    debug!(session = self.link.session(), ?other, "the broker's channel is closed");
                    // Those who wait see that nobody answers any more.
                    self.lock().waiting.clear();
                    *self.room() = None;
                    self.wishes().waiting.clear();
                    return;
                }
            };
            match head.kind {
                Kind::Hit => self.answer(head.number, |_| Found::Hit(content)),
                Kind::Build => self.answer(head.number, |key| Found::Build(Permit::new(self, key))),
                Kind::Admitted => self.answer_room(Ok(())),
                Kind::Refused => self.answer_room(Err(String::from_utf8_lossy(&content).into_owned())),
                Kind::Reserved => self.answer_wish(head.number, Ok(())),
                Kind::Denied => self.answer_wish(head.number, Err(String::from_utf8_lossy(&content).into_owned())),
                Kind::MoveOut => {
                    self.eviction.asked.store(true, Ordering::Release);
                    if let Some(wake) = self.eviction.wake() {
                        // Full means that it is readable already.
                        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
                    }
                    self.link.board().wake_all();
                }
                Kind::Join => {
                    let joined = descriptors
                        .pop()
                        .map(|socket| self.link.streams().add(&self.link, head.number, Stream::from_fd(socket)));
                    if let Some(Err(error)) = joined {
                        debug!(session = self.link.session(), stream = head.number, %error, "no further stream");
                    }
                }
                Kind::Resume => self.resume(head.number, &content, descriptors.pop()),
                other => debug!(session = self.link.session(), ?other, "the broker says nothing of the kind"),
            }
        }
    }

    /// A connection that takes the place of one which was lost. Not here: whoever used that one has to notice first.
    fn resume(self: &Arc<Self>, number: u64, received: &[u8], socket: Option<OwnedFd>) {
        let (Some(socket), Ok(received)) = (socket, telecl_wire::decode(received)) else { return };
        let broker = Arc::clone(self);
        let thread = thread::Builder::new().name("telecl-resume".into()).stack_size(128 << 10);
        let resume = move || broker.link.resume(number, Stream::from_fd(socket), received);
        if let Err(error) = thread.spawn(resume) {
            debug!(session = self.link.session(), %error, "no thread for a connection");
        }
    }

    fn answer(&self, number: u64, found: impl FnOnce(Key) -> Found) {
        let waiting = self.lock().waiting.remove(&number);
        if let Some((key, answer)) = waiting {
            // A permit that nobody waits for is given back when it is dropped here.
            let found = found(key);
            if let Some(answer) = answer {
                let _ = answer.send(found);
            }
        }
    }

    fn answer_room(&self, answer: Result<(), String>) {
        if let Some(waits) = self.room().take() {
            let _ = waits.send(answer);
        }
    }

    fn answer_wish(&self, number: u64, answer: Result<(), String>) {
        if let Some(waits) = self.wishes().waiting.remove(&number) {
            let _ = waits.send(answer);
        }
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self) -> MutexGuard<'_, Option<Sender<Result<(), String>>>> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Lookups> {
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That this session builds a program for all who ask for it. Dropping it lets the next one try.
#[derive(Debug)]
pub(crate) struct Permit {
    broker: Arc<Broker>,
    key: Key,
    used: bool,
}

impl Permit {
    fn new(broker: &Arc<Broker>, key: Key) -> Permit {
        Permit { broker: Arc::clone(broker), key, used: false }
    }

    pub(crate) fn store(mut self, content: &[u8]) {
        if content.len() <= MOST_CONTENT {
            self.used = self.broker.send(Head::new(Kind::Store).key(self.key), content);
        }
    }

    /// The program was built, but there is nothing to store, or not soon: nobody is to wait for it.
    pub(crate) fn give_up(mut self) {
        self.used = self.broker.send(Head::new(Kind::Unkept).key(self.key), &[]);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.used {
            self.broker.send(Head::new(Kind::Failed).key(self.key), &[]);
        }
    }
}
