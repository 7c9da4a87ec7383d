//! The channel to the broker: its cache of built programs, as a worker sees it, further streams of the session, room on
//! devices, and memory that a tenant's sessions share.
//!
//! A worker never touches the cache's files: it asks the broker over its channel. A build thread waits for the answer,
//! which may be that another session is building the same program. Whatever goes wrong here means that the compiler
//! runs.
//!
//! A session may outlive its broker (its *lease*, see [`Kind::Survive`]). Then it goes on alone: it has all turns, builds
//! without the cache, and whoever waits for room or for memory waits for the next broker, which comes to a socket that the
//! first one has made. To that one it tells what it has. A session that waits in vain ends.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use telecl_net::Stream;
use tracing::{debug, info};

use super::link::Link;
use super::start::guarded;
use crate::channel::{CHANNEL_VERSION, Channel, Head, Key, Kind, Lease, MOST_CONTENT, MemoryWish, Possessions};
use crate::process::{exit_as, exit_code, exit_now};

/// How long to wait for what another session builds. After that the program is built here as well: the other one may
/// hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to hope that a session which can build the program sooner begins to.
const RELUCTANCE: Duration = Duration::from_millis(250);

/// How long the next broker may take to introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(2);

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

/// The broker, as one session uses it. Its locks are held for a few lines, but for that of the line, under which messages
/// are sent; the others are taken meanwhile, but given back before that. So whoever reads takes them without waiting for the
/// broker, which may be sending itself; the line it takes only when there is no broker.
#[derive(Debug)]
pub(crate) struct Broker {
    line: Mutex<Line>,
    lookups: Mutex<Lookups>,
    /// Who waits for room.
    room: Mutex<Option<Question>>,
    wishes: Mutex<Wishes>,
    /// What the next broker has to know. What is less of it is told under the line's lock.
    has: Mutex<Possessions>,
    /// That the session is to be moved out.
    eviction: Eviction,
    reader: OnceLock<bool>,
    link: Arc<Link>,
    /// How the session goes on without a broker, if it does, and what the next one gets.
    survival: Option<(Lease, OwnedFd)>,
}

/// The way to the broker there is, if there is one.
#[derive(Debug)]
pub(super) struct Line {
    channel: Option<Arc<Channel>>,
    /// Counts brokers: each knows only what it was told itself.
    pub(super) era: u64,
}

impl Line {
    /// `false` if there is no broker.
    pub(super) fn send(&self, head: Head, content: &[u8]) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.send(head, content).is_ok())
    }
}

/// Whether the session may use these devices.
#[derive(Debug)]
struct Question {
    devices: Vec<u64>,
    answer: Sender<Result<(), String>>,
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
    waiting: HashMap<u64, Hope>,
}

/// Somebody who waits for memory.
#[derive(Debug)]
struct Hope {
    wish: MemoryWish,
    answer: Sender<Result<(), String>>,
    /// Does not wait any longer than the broker needs to say so.
    withdrawn: bool,
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
    /// `survival` is for a session that may outlive its broker, with its board for the next one.
    pub(crate) fn new(channel: Channel, link: Arc<Link>, survival: Option<(Lease, OwnedFd)>) -> Arc<Broker> {
        let line = Line { channel: Some(Arc::new(channel)), era: 1 };
        let (lookups, room, wishes, has) = Default::default();
        let (line, eviction, reader) = (Mutex::new(line), Eviction::default(), OnceLock::new());
        Arc::new(Broker { line, lookups, room, wishes, has, eviction, reader, link, survival })
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
        let asked = {
            let line = self.line();
            // Not if its broker has gone meanwhile: the next one's answer would find nobody, who is to build it then.
            let waits = self.lock().waiting.contains_key(&number);
            waits && line.send(Head::new(Kind::Lookup).number(number).key(key), &[])
        };
        if !asked {
            self.lock().waiting.remove(&number);
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
        if !self.listen() {
            return Err(LOST.to_owned());
        }
        let (answer, answered) = mpsc::channel();
        {
            let line = self.line();
            // Before: the answer may be quick.
            *self.room() = Some(Question { devices: devices.to_vec(), answer });
            // Without a broker, it is the next one's question.
            if !line.send(Head::new(Kind::Admit), &telecl_wire::encode(&devices.to_vec())) && self.survival.is_none() {
                return Err(LOST.to_owned());
            }
        }
        answered.recv().unwrap_or_else(|_| Err(LOST.to_owned()))
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
        let line = self.line();
        let number = {
            let mut wishes = self.wishes();
            wishes.next += 1;
            let number = wishes.next;
            wishes.waiting.insert(number, Hope { wish: wish.clone(), answer, withdrawn: false });
            number
        };
        // Without a broker, it is a wish to the next one.
        if !line.send(Head::new(Kind::Reserve).number(number), &wish.content()) && self.survival.is_none() {
            self.wishes().waiting.remove(&number);
            return Err(LOST.to_owned());
        }
        Ok(Asked { number, answered })
    }

    /// Does not want to wait any longer. Whether it got the memory is what the answer says, which comes at once.
    pub(crate) fn withdraw(&self, asked: &Asked) -> Result<(), String> {
        {
            let line = self.line();
            let waits = self.wishes().waiting.get_mut(&asked.number).map(|hope| hope.withdrawn = true).is_some();
            if waits && !line.send(Head::new(Kind::Withdraw).number(asked.number), &[]) {
                self.wishes().waiting.remove(&asked.number);
            }
        }
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
        let line = self.line();
        {
            let mut has = self.has();
            (has.is_out, has.stays) = (true, false);
        }
        line.send(Head::new(Kind::Moved).number(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)), &[]);
    }

    /// The program keeps it from being moved out. It is moved as soon as that has changed, if it is still needed.
    pub(crate) fn stays(&self) {
        let line = self.line();
        self.has().stays = true;
        line.send(Head::new(Kind::Stays), &[]);
    }

    /// Needs some of it no more.
    pub(crate) fn unreserve(&self, wish: &MemoryWish) {
        let line = self.line();
        self.has().reserved.subtract(wish);
        line.send(Head::new(Kind::Unreserve), &wish.content());
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

    fn send(&self, head: Head, content: &[u8]) -> bool {
        self.line().send(head, content)
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
            let Some(channel) = self.line().channel.clone() else { return };
            let ended = self.hear(&channel);
            debug!(session = self.link.session(), ?ended, "the broker's channel is closed");
            self.go_on_alone();
            let Some((lease, board)) = &self.survival else {
                // Those who wait see that nobody answers any more.
                *self.room() = None;
                self.wishes().waiting.clear();
                return;
            };
            info!(session = self.link.session(), at_most = ?lease.grace, "the broker is gone; the session waits for the next");
            if !self.await_broker(lease, board) {
                self.end(lease.grace);
            }
            info!(session = self.link.session(), "the session has a broker again");
        }
    }

    /// Does what the broker says, until it says no more.
    fn hear(self: &Arc<Self>, channel: &Channel) -> io::Result<()> {
        while let Some((head, content, mut descriptors)) = channel.receive_with()? {
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
                    let joined = descriptors.pop().map(|socket| {
                        let stream = Stream::with_encryption(socket, &content)?;
                        self.link.streams().add(&self.link, head.number, stream)
                    });
                    if let Some(Err(error)) = joined {
                        debug!(session = self.link.session(), stream = head.number, %error, "no further stream");
                    }
                }
                Kind::Resume => self.resume(head.number, &content, descriptors.pop()),
                other => debug!(session = self.link.session(), ?other, "the broker says nothing of the kind"),
            }
        }
        Ok(())
    }

    /// There is no broker any more: whoever waits for a turn has it, and builds go on without the cache.
    fn go_on_alone(&self) {
        let mut line = self.line();
        line.channel = None;
        self.link.board().free_turns();
        self.lock().waiting.clear();
        self.wishes().waiting.retain(|_, hope| !hope.withdrawn);
    }

    /// Waits for the next broker, and tells it what it has to know; `false` if there is none for too long.
    fn await_broker(&self, lease: &Lease, board: &OwnedFd) -> bool {
        let deadline = Instant::now().checked_add(lease.grace);
        let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        while wait_readable(&lease.listener, left()) {
            let Ok((socket, _)) = lease.listener.accept() else { continue };
            if !wait_readable(&socket, Some(INTRODUCTION)) {
                continue;
            }
            let channel = Channel::from_fd(socket.into());
            let introduced = channel.receive_with();
            let is_ours =
                |head: &Head| (head.kind, head.number, head.key) == (Kind::Adopt, CHANNEL_VERSION, lease.secret);
            match introduced {
                Ok(Some((head, ..))) if is_ours(&head) => {}
                other => {
                    debug!(session = self.link.session(), ?other, "somebody came who is not the next broker");
                    continue;
                }
            }
            if self.tell_all(channel, board) {
                return true;
            }
        }
        false
    }

    /// Tells a new broker what the session has, and what it waits for. From then on the broker decides again.
    fn tell_all(&self, channel: Channel, board: &OwnedFd) -> bool {
        let mut line = self.line();
        let asked_out = self.eviction.asked.load(Ordering::Acquire);
        let has = Possessions { asked_out, ..self.has().clone() };
        if channel.send_with(Head::new(Kind::Adopted), &has.content(), &[board.as_fd()]).is_err() {
            return false;
        }
        line.channel = Some(Arc::new(channel));
        line.era += 1;
        // Only this thread takes answers, so nobody waits for these locks.
        if let Some(Question { devices, .. }) = &*self.room() {
            line.send(Head::new(Kind::Admit), &telecl_wire::encode(devices));
        }
        for (number, hope) in &self.wishes().waiting {
            line.send(Head::new(Kind::Reserve).number(*number), &hope.wish.content());
        }
        true
    }

    fn end(&self, grace: Duration) -> ! {
        info!(session = self.link.session(), "there is no broker any more; the session ends");
        // The driver may be gone as soon as it hears of it, which others notice.
        exit_as(exit_code::STOPPED);
        self.link.closing(&format!("the service was stopped, and was not started again within {grace:?}"));
        exit_now(exit_code::STOPPED)
    }

    /// A connection that takes the place of one which was lost. Not here: whoever used that one has to notice first.
    /// The content is how many bytes the driver has received, and how the connection is encrypted.
    fn resume(self: &Arc<Self>, number: u64, content: &[u8], socket: Option<OwnedFd>) {
        let Some((received, encryption)) = content.split_first_chunk() else { return };
        let received = u64::from_le_bytes(*received);
        let Some(Ok(stream)) = socket.map(|socket| Stream::with_encryption(socket, encryption)) else { return };
        let broker = Arc::clone(self);
        let thread = thread::Builder::new().name("telecl-resume".into()).stack_size(128 << 10);
        let resume = move || broker.link.resume(number, stream, received);
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

    fn answer_room(&self, result: Result<(), String>) {
        let Some(Question { devices, answer }) = self.room().take() else { return };
        if result.is_ok() {
            self.has().devices.extend(devices);
        }
        let _ = answer.send(result);
    }

    fn answer_wish(&self, number: u64, result: Result<(), String>) {
        let Some(Hope { wish, answer, .. }) = self.wishes().waiting.remove(&number) else { return };
        if result.is_ok() {
            let mut has = self.has();
            has.reserved.add(&wish);
            has.is_out = false;
        }
        let _ = answer.send(result);
    }

    /// For whoever has several things to say at once, or has to know whether they were heard.
    pub(super) fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self) -> MutexGuard<'_, Possessions> {
        self.has.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self) -> MutexGuard<'_, Option<Question>> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Lookups> {
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until there is something to read, but not for ever; `false` if there is nothing.
fn wait_readable(source: impl AsFd, at_most: Option<Duration>) -> bool {
    let deadline = at_most.and_then(|time| Instant::now().checked_add(time));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&source, PollFlags::IN)], left.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|count| count > 0),
        }
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
