//! A line that outlasts its connection.
//!
//! Over TCP bytes travel in records, each of which says how many bytes its sender has received. A sender keeps what the
//! peer has not said to have. When the connection breaks, the driver makes another, both sides say what they have, and what
//! is missing is sent again: whoever sends and receives on the line notices only time.
//!
//! What is kept is bounded: whoever is unsure about more than a window waits for the peer's word, and takes in meanwhile
//! what the peer sends, however much that is. So two ends that wait for each other's word get it: neither is ever stuck
//! because the other does not read.

mod heartbeat;
mod inbound;
mod outbound;
mod record;
mod resume;
mod terms;
#[cfg(test)]
mod tests;
mod transport;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use self::heartbeat::Noticed;
use self::inbound::{Inbound, Patience, Room};
use self::outbound::Outbound;
pub(crate) use self::outbound::WhenFull;
use self::record::broken;
pub use self::resume::answer_not_resumed;
pub use self::terms::Terms;
use self::transport::Side;
pub use self::transport::{Home, Transport};
use crate::{Bell, Stream};

/// After so many bytes the peer is told that they have come, if nothing is sent to it anyway.
const TELL_AFTER: u64 = 256 << 10;

/// A sender looks whether the peer has said something once it is unsure about so much.
const LOOK_AFTER: usize = 512 << 10;

/// How much a sender may be unsure about before it waits for the peer's word: at first, and on a line on which that takes
/// longer than [`SLOW`] at most.
const WINDOW: usize = 2 << 20;
const LARGEST_WINDOW: usize = 4 << 20;
const SLOW: Duration = Duration::from_millis(10);

/// How long it sleeps before it looks by itself.
const NAP: Duration = Duration::from_millis(1);

/// The number of a session's own line, where its further streams have theirs.
pub const MAIN_LINE: u32 = u32::MAX;

/// Why a line is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The peer's system closed the connection, without a farewell: most likely its process has been killed.
    Closed,
    /// Anything else.
    Lost,
}

/// How a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Whole,
    /// For so long.
    Broken(Duration, Cause),
    /// The peer has ended it on purpose.
    Left,
    /// The peer has broken the protocol.
    Abused(String),
    /// For ever, and why.
    Over(String),
}

#[derive(Debug)]
enum Phase {
    Whole,
    Broken { since: Instant, cause: Cause },
    Over { kind: io::ErrorKind, reason: String },
}

#[derive(Debug)]
struct State {
    /// The one at hand, or the last one.
    transport: Arc<Transport>,
    phase: Phase,
    /// What the peer had when it was resumed.
    peer_has: u64,
}

/// A line.
///
/// Locks: `inbound` and `outbound` are held while something is received and sent, however long that takes. While one of
/// them is held the other is only tried for. `state`, `noticed` and `bell` are held for a few lines; no other is taken
/// meanwhile. `resuming` comes before all others.
#[derive(Debug)]
pub struct Lasting {
    myself: Weak<Lasting>,
    side: Side,
    /// By which the two sides name it.
    number: u32,
    terms: Terms,
    outbound: Mutex<Outbound>,
    inbound: Mutex<Inbound>,
    state: Mutex<State>,
    changed: Condvar,
    /// The number of the transport in `state`.
    transport_number: AtomicU64,
    /// Bytes of data so far: given to be sent; which the peer has; received; which the peer was told of.
    sent: AtomicU64,
    acknowledged: AtomicU64,
    received: AtomicU64,
    told: AtomicU64,
    /// How often something came, and was said.
    heard: AtomicU64,
    said: AtomicU64,
    /// How much may be unsure, and whether somebody waits because more is.
    window: AtomicUsize,
    waits: AtomicBool,
    /// Nobody waits for another connection any more.
    hurried: AtomicBool,
    noticed: Mutex<Noticed>,
    resuming: Mutex<()>,
    bell: Mutex<Weak<Bell>>,
    /// Called when it has broken, or is whole again, or over.
    watcher: OnceLock<Watcher>,
}

struct Watcher(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

impl Lasting {
    /// The driver's end of a line over a connection on which nothing but records travels from now on.
    pub fn at_driver(stream: Stream, home: Arc<dyn Home>, number: u32, terms: Terms) -> Arc<Lasting> {
        Lasting::new(stream, Side::Driver(home), number, terms)
    }

    /// The worker's end.
    pub fn at_worker(stream: Stream, number: u32, terms: Terms) -> Arc<Lasting> {
        Lasting::new(stream, Side::Worker, number, terms)
    }

    fn new(stream: Stream, side: Side, number: u32, terms: Terms) -> Arc<Lasting> {
        let transport = Transport::new(stream, 1, &side);
        Arc::new_cyclic(|myself| Lasting {
            myself: Weak::clone(myself),
            side,
            number,
            terms,
            outbound: Mutex::new(Outbound::new(Arc::clone(&transport))),
            inbound: Mutex::new(Inbound::new(Arc::clone(&transport))),
            state: Mutex::new(State { transport, phase: Phase::Whole, peer_has: 0 }),
            changed: Condvar::new(),
            transport_number: AtomicU64::new(1),
            sent: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            received: AtomicU64::new(0),
            told: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            said: AtomicU64::new(0),
            window: AtomicUsize::new(WINDOW),
            waits: AtomicBool::new(false),
            hurried: AtomicBool::new(false),
            noticed: Mutex::new(Noticed::new()),
            resuming: Mutex::default(),
            bell: Mutex::default(),
            watcher: OnceLock::new(),
        })
    }

    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// Has this called when the line has broken, is whole again, or over. It must not wait for anything.
    pub fn watch(&self, changed: impl Fn() + Send + Sync + 'static) {
        let _ = self.watcher.set(Watcher(Box::new(changed)));
    }

    /// Whether the peer has ever said something.
    pub fn has_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed) > 0
    }

    pub fn health(&self) -> Health {
        match &self.lock_state().phase {
            Phase::Over { kind: io::ErrorKind::ConnectionAborted, .. } => Health::Left,
            Phase::Over { kind: io::ErrorKind::InvalidData, reason } => Health::Abused(reason.clone()),
            Phase::Over { reason, .. } => Health::Over(reason.clone()),
            Phase::Broken { since, cause } => Health::Broken(since.elapsed(), *cause),
            Phase::Whole => Health::Whole,
        }
    }

    /// The socket it has, if it is whole: to be watched, and for nothing else.
    pub fn socket(&self) -> Option<Arc<Transport>> {
        let state = self.lock_state();
        matches!(state.phase, Phase::Whole).then(|| Arc::clone(&state.transport))
    }

    // ---- sending ----

    /// Sends one after the other, waiting until all has been taken.
    pub(crate) fn send(&self, head: &[u8], payload: &[u8], full: Option<WhenFull<'_>>) -> io::Result<()> {
        let mut outbound = lock(&self.outbound);
        if outbound.unsure() > LOOK_AFTER {
            self.look(Room::Fixed);
            outbound.forget_until(self.acknowledged());
            let much = outbound.unsure() > self.window.load(Ordering::Relaxed);
            // Last words do not wait.
            if much && !self.hurried.load(Ordering::Relaxed) {
                drop(outbound);
                outbound = self.wait_for_word()?;
            }
        }
        outbound.send(self, head, payload, full)
    }

    /// Waits while the peer leaves us unsure about too much. Others may send meanwhile, if they need not wait.
    fn wait_for_word(&self) -> io::Result<MutexGuard<'_, Outbound>> {
        let begin = Instant::now();
        loop {
            self.waits.store(true, Ordering::SeqCst);
            self.look(Room::AsMuchAsComes);
            let mut outbound = lock(&self.outbound);
            outbound.forget_until(self.acknowledged());
            if outbound.unsure() <= self.window.load(Ordering::Relaxed) {
                if begin.elapsed() > SLOW {
                    // It is far away, and needs more on its way.
                    let _ = self.window.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |window| {
                        Some((2 * window).min(LARGEST_WINDOW))
                    });
                }
                return Ok(outbound);
            }
            drop(outbound);
            if let Some(end) = self.end_of_line() {
                return Err(end);
            }
            self.nap();
        }
    }

    /// Sleeps until something has come, or somebody else has heard something; not for long.
    fn nap(&self) {
        // Where there is a bell, somebody hears at once what comes, and a look at the socket would miss it.
        let alone = self.bell().is_none() && try_lock(&self.inbound).is_some();
        let state = self.lock_state();
        if alone && matches!(state.phase, Phase::Whole) {
            let transport = Arc::clone(&state.transport);
            drop(state);
            transport.stream.wait_for_something(NAP);
        } else {
            drop(self.changed.wait_timeout(state, NAP));
        }
    }

    /// Tells the peer that we are there, and what we have, if that can be done at once.
    pub fn say_hello(&self) {
        self.say_something(false);
    }

    fn say_something(&self, bye: bool) -> bool {
        let Some(mut outbound) = try_lock(&self.outbound) else { return false };
        match outbound.try_send_empty(self, bye) {
            Ok(said) => said,
            Err(error) => {
                let transport = Arc::clone(&outbound.transport);
                drop(outbound);
                self.broke(&transport, &error);
                false
            }
        }
    }

    /// Ends the line on purpose, which the peer is told if that can be done at once.
    pub fn leave(&self) {
        self.say_something(true);
        self.end();
    }

    /// As [`Lasting::leave`], from a process that is about to exit: touches nothing but the socket.
    pub fn say_bye(&self) {
        self.say_something(true);
    }

    /// Sends wait no longer than this from now on, and not at all for another connection.
    pub(crate) fn hurry(&self, limit: Duration) {
        self.hurried.store(true, Ordering::Release);
        let _ = self.lock_state().transport.stream.set_send_timeout(Some(limit));
        self.changed.notify_all();
    }

    // ---- receiving ----

    /// Takes what there is, waiting for it; 0 after the peer's farewell.
    pub(crate) fn receive(&self, target: &mut [u8]) -> io::Result<usize> {
        Ok(self.take(target, Patience::Wait)?.unwrap_or(0))
    }

    /// Takes what there is; `None` if that is nothing.
    pub(crate) fn try_receive(&self, target: &mut [u8]) -> io::Result<Option<usize>> {
        self.take(target, Patience::Look)
    }

    /// Fills `target`; less after the peer's farewell.
    pub(crate) fn receive_all(&self, target: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < target.len() {
            match self.receive(&mut target[filled..])? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }

    /// As [`Lasting::try_receive`], but only what can be had without a system call.
    pub(crate) fn glance(&self, target: &mut [u8]) -> io::Result<Option<usize>> {
        self.take(target, Patience::Glance)
    }

    /// Whether data has been read ahead that nobody has taken. Whoever has the lock sees to it that it is noticed.
    pub(crate) fn has_received(&self) -> bool {
        try_lock(&self.inbound)
            .is_some_and(|inbound| inbound.whole && (inbound.has_data() || inbound.transport.stream.has_received()))
    }

    fn take(&self, target: &mut [u8], patience: Patience) -> io::Result<Option<usize>> {
        if target.is_empty() {
            return Ok(None);
        }
        loop {
            let mut inbound = lock(&self.inbound);
            if inbound.whole {
                match inbound.take(self, target, patience) {
                    Ok(Some(0)) => {
                        drop(inbound);
                        self.over(io::ErrorKind::ConnectionAborted, "the peer has ended the session");
                        return Ok(Some(0));
                    }
                    Ok(taken) => {
                        drop(inbound);
                        self.tell_if_due();
                        return Ok(taken);
                    }
                    Err(error) => self.receiving_failed(&mut inbound, &error),
                }
            }
            let transport = Arc::clone(&inbound.transport);
            drop(inbound);
            match (self.end_of_line(), patience) {
                (Some(end), _) if end.kind() == io::ErrorKind::ConnectionAborted => return Ok(Some(0)),
                (Some(end), _) => return Err(end),
                (None, Patience::Look | Patience::Glance) => return Ok(None),
                (None, Patience::Wait) => match self.wait_for_transport(&transport) {
                    Err(end) if end.kind() == io::ErrorKind::ConnectionAborted => return Ok(Some(0)),
                    waited => waited.map(drop)?,
                },
            }
        }
    }

    fn receiving_failed(&self, inbound: &mut Inbound, error: &io::Error) {
        inbound.give_up();
        if error.kind() == io::ErrorKind::InvalidData {
            self.over(error.kind(), &error.to_string());
        } else {
            self.broke(&inbound.transport, error);
        }
    }

    /// Waits until the peer has said something, but no longer than `limit`; whether it has.
    pub fn wait_until_heard(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.has_heard() && Instant::now() < deadline {
            let state = self.lock_state();
            match &state.phase {
                Phase::Over { .. } => return false,
                Phase::Broken { .. } => {
                    let waited = self.changed.wait_timeout(state, Duration::from_millis(100));
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                }
                Phase::Whole => {
                    let transport = Arc::clone(&state.transport);
                    drop(state);
                    transport.stream.wait_for_something(Duration::from_millis(100));
                    self.look(Room::Fixed);
                }
            }
        }
        self.has_heard()
    }

    /// Takes in what has come, if nobody else does: what the peer says about itself is heard, and data is left for whoever
    /// receives.
    fn look(&self, room: Room) {
        let Some(mut inbound) = try_lock(&self.inbound) else { return };
        if !inbound.whole {
            return;
        }
        if let Err(error) = inbound.look(self, room) {
            return self.receiving_failed(&mut inbound, &error);
        }
        let (data, bye) = (inbound.has_data(), inbound.has_bye());
        drop(inbound);
        if bye {
            self.over(io::ErrorKind::ConnectionAborted, "the peer has ended the session");
        } else if data && let Some(bell) = self.bell() {
            // It rings for the socket, from which that has been taken.
            let _ = bell.ring_by_hand();
        }
    }

    fn tell_if_due(&self) {
        let (received, told) = (self.received.load(Ordering::Relaxed), self.told.load(Ordering::Relaxed));
        if received - told >= TELL_AFTER {
            // Whoever sends at the moment tells it, too.
            self.say_something(false);
        }
    }

    // ---- what the halves tell ----

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    fn note_sent(&self, sent: u64) {
        self.sent.store(sent, Ordering::Release);
        self.said.fetch_add(1, Ordering::Relaxed);
    }

    /// What the peer is told that we have.
    fn note_told(&self) -> u64 {
        let received = self.received.load(Ordering::Acquire);
        self.told.store(received, Ordering::Relaxed);
        self.said.fetch_add(1, Ordering::Relaxed);
        received
    }

    fn note_heard(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    fn count_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// The peer has so many bytes.
    fn acknowledge(&self, received: u64) -> io::Result<()> {
        if received > self.sent.load(Ordering::Acquire) {
            return Err(broken("the peer has received what nobody has sent"));
        }
        let before = self.acknowledged.fetch_max(received, Ordering::AcqRel);
        if received > before {
            if self.waits.swap(false, Ordering::SeqCst) {
                self.changed.notify_all();
            } else if received > before + TELL_AFTER
                && let Some(mut outbound) = try_lock(&self.outbound)
            {
                outbound.forget_until(received);
            }
        }
        Ok(())
    }

    /// Whether anything is ever sent again.
    fn keeps(&self) -> bool {
        !self.terms.grace.is_zero()
    }

    fn transport_number(&self) -> u64 {
        self.transport_number.load(Ordering::Acquire)
    }

    // ---- broken, whole again, over ----

    /// The transport is of no use any more. Whoever notices first sees to the next.
    fn broke(&self, transport: &Arc<Transport>, error: &io::Error) {
        let cause = match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => Cause::Closed,
            _ => Cause::Lost,
        };
        self.part_with(transport, cause, error);
    }

    fn part_with(&self, transport: &Arc<Transport>, cause: Cause, error: &io::Error) {
        let mut state = self.lock_state();
        if state.transport.number != transport.number || !matches!(state.phase, Phase::Whole) {
            return;
        }
        state.phase = Phase::Broken { since: Instant::now(), cause };
        drop(state);
        // Whoever is at it wakes up.
        transport.stream.shutdown();
        if let Some(bell) = self.bell() {
            bell.detach();
        }
        if self.terms.grace.is_zero() {
            return self.over(error.kind(), &error.to_string());
        }
        self.tell_all();
        self.seek_another();
    }

    /// Ends it for ever, without a word.
    pub fn end(&self) {
        self.over(io::ErrorKind::NotConnected, "the session has ended");
    }

    fn over(&self, kind: io::ErrorKind, reason: &str) {
        let mut state = self.lock_state();
        if matches!(state.phase, Phase::Over { .. }) {
            return;
        }
        state.phase = Phase::Over { kind, reason: reason.to_owned() };
        let transport = Arc::clone(&state.transport);
        drop(state);
        transport.stream.shutdown();
        self.tell_all();
    }

    fn tell_all(&self) {
        self.changed.notify_all();
        if let Some(bell) = self.bell() {
            let _ = bell.ring_by_hand();
        }
        if let Some(watcher) = self.watcher.get() {
            (watcher.0)();
        }
    }

    /// Waits for a transport after this one; returns it, and what the peer had then.
    fn wait_for_transport(&self, last: &Transport) -> io::Result<(Arc<Transport>, u64)> {
        let mut state = self.lock_state();
        loop {
            match &state.phase {
                Phase::Over { kind, reason } => return Err(io::Error::new(*kind, reason.clone())),
                Phase::Whole if state.transport.number != last.number => {
                    return Ok((Arc::clone(&state.transport), state.peer_has));
                }
                Phase::Whole | Phase::Broken { .. } if self.hurried.load(Ordering::Acquire) => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Phase::Whole | Phase::Broken { .. } => {}
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Why it is over, if it is.
    fn end_of_line(&self) -> Option<io::Error> {
        match &self.lock_state().phase {
            Phase::Over { kind, reason } => Some(io::Error::new(*kind, reason.clone())),
            Phase::Whole | Phase::Broken { .. } => None,
        }
    }

    // ---- the bell ----

    pub(crate) fn set_bell(&self, bell: &Arc<Bell>) {
        *lock(&self.bell) = Arc::downgrade(bell);
        let state = self.lock_state();
        let transport = matches!(state.phase, Phase::Whole).then(|| Arc::clone(&state.transport));
        drop(state);
        match transport {
            Some(transport) => bell.attach(&transport),
            None => {
                let _ = bell.ring_by_hand();
            }
        }
    }

    fn bell(&self) -> Option<Arc<Bell>> {
        lock(&self.bell).upgrade()
    }

    pub(crate) fn is_local(&self) -> bool {
        self.transport().stream.is_local()
    }

    pub(crate) fn send_buffer(&self) -> usize {
        self.transport().stream.send_buffer()
    }

    /// The one at hand, or the last one.
    fn transport(&self) -> Arc<Transport> {
        Arc::clone(&self.lock_state().transport)
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
