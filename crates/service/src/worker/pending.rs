//! Noticing the end of the vendor's commands.
//!
//! Commands of an in-order queue end in order, so they stand in a [`Lane`] and only the first is looked at. While the
//! executor has nothing else to do it looks itself: a short command is reported without any thread being woken. Before
//! it sleeps, it hands the lanes over to their threads (`telecl-wait`), which wait with the vendor's own
//! clWaitForEvents. Callbacks would not do: NVIDIA's driver (580) gives them CL_COMPLETE where the event has failed, and
//! PoCL 3.1 does not always call.
//!
//! Commands of an out-of-order queue end in any order. For them there is the vendor's callback, but it cannot be the
//! only way: PoCL 3.1 never calls back for a command that failed because of its wait list (its events simply turn to
//! -1), and a driver may refuse to register a callback at all. So they are also on a list, and [`Pending::sweep`] looks
//! at the events themselves.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::Duration;

use telecl_opencl::{ClError, Event};
use telecl_sys::{CL_COMPLETE, CL_RUNNING, CL_SUBMITTED};

use super::link::Link;
use super::staging::Chunk;
use super::start::VENDOR_STACK;
use super::turns::Turns;

/// What happens with the event and its final status, once, when a command has ended.
type Ended = Box<dyn FnOnce(i32, &Arc<Event>) + Send>;

/// A command that is running, as far as its driver tells. `E` is an event.
#[derive(Clone, Debug)]
pub(crate) struct Running<E> {
    pub(crate) event: Arc<E>,
    /// Those that were enqueued later have higher ones.
    pub(crate) number: u64,
    /// NVIDIA's driver (580) never says that a command is running. One that is not certain has been submitted, has no
    /// other before it in its queue, and waits for no event of the program. It may wait for commands with lower numbers.
    pub(crate) certain: bool,
}

/// The next command's number. A worker has one session.
fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Notices the end of the commands of one queue.
#[derive(Clone, Debug)]
pub(crate) enum Ends {
    InOrder(Arc<Lane>),
    OutOfOrder(Loose),
}

/// How a command's end is to be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// What follows is short.
    Light,
    /// Much is to be sent: not by the executor, which has requests to read.
    Bulk,
    /// Nothing is to be said: good to know while somebody looks, not worth waking anybody.
    Silent,
}

impl Ends {
    /// Runs `ended` with the event and its final status, once, when it has ended. What `ended` owns stays alive until
    /// then. In an in-order queue it runs on a thread of ours; else on one of the vendor's.
    pub(crate) fn on_end(
        &self,
        event: &Arc<Event>,
        weight: Weight,
        ended: impl FnOnce(i32, &Arc<Event>) + Send + 'static,
    ) {
        match self {
            Ends::InOrder(lane) => {
                let place = lane.commands.load(Ordering::Relaxed);
                let number = next_number();
                lane.push(Turn { event: Arc::clone(event), weight, number, place, ended: Box::new(ended) });
            }
            Ends::OutOfOrder(loose) => loose.on_end(event, ended),
        }
    }

    /// Whether the end is noticed on a thread of ours.
    pub(crate) fn is_in_order(&self) -> bool {
        matches!(self, Ends::InOrder(_))
    }

    /// The queue has been given one more command; to be said before its end is waited for.
    pub(crate) fn note_command(&self) {
        if let Ends::InOrder(lane) = self {
            lane.commands.fetch_add(1, Ordering::SeqCst);
            lane.begin_if_free();
        }
    }

    /// What comes now waits for these events of the program, which are not set; or for none. In an in-order queue, what is
    /// before it must have an event.
    pub(crate) fn block(&self, blockers: &[u64]) {
        match self {
            Ends::InOrder(lane) if !blockers.is_empty() => lane.block(),
            Ends::InOrder(_) => {}
            Ends::OutOfOrder(loose) => loose.lock().next = blockers.to_vec(),
        }
    }

    /// An event of the program was set. `free` says that nothing in the queue waits for another.
    pub(crate) fn unblock(&self, event: u64, free: bool) {
        match self {
            Ends::InOrder(lane) if free => lane.unblock(),
            Ends::InOrder(_) => {}
            Ends::OutOfOrder(loose) => loose.unblock(event),
        }
    }

    /// Whether the last command has no event, so that its end would not be noticed.
    pub(crate) fn needs_seal(&self) -> bool {
        let Ends::InOrder(lane) = self else { return false };
        let commands = lane.commands.load(Ordering::Relaxed);
        lane.under_way.load(Ordering::SeqCst)
            && lane.free_until.load(Ordering::Relaxed) == u64::MAX
            && lane.lock().turns.back().is_none_or(|turn| turn.place != commands)
    }

    /// Whether all commands of the queue are known to have ended, and have been reported.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Ends::InOrder(lane) => lane.ended.load(Ordering::Acquire) == lane.commands.load(Ordering::Relaxed),
            Ends::OutOfOrder(_) => false,
        }
    }

    /// The event of the queue's last command, if it has one and is not known to have ended.
    pub(crate) fn last_event(&self) -> Option<Arc<Event>> {
        let Ends::InOrder(lane) = self else { return None };
        let commands = lane.commands.load(Ordering::Relaxed);
        lane.lock().turns.back().filter(|turn| turn.place == commands).map(|turn| Arc::clone(&turn.event))
    }

    /// Keeps the memory of the last command, which has no event, until something after it has ended.
    pub(crate) fn keep(&self, chunk: Chunk) {
        match self {
            Ends::InOrder(lane) => {
                lane.lock().kept.push_back((lane.commands.load(Ordering::Relaxed), chunk));
                lane.keeps.store(true, Ordering::Release);
            }
            // Nothing tells when it has ended. Not called: see `may_keep`.
            Ends::OutOfOrder(_) => std::mem::forget(chunk),
        }
    }

    /// Whether [`Ends::keep`] may be called. Not for ever: somebody has to find out what has ended.
    pub(crate) fn may_keep(&self) -> bool {
        const MOST: usize = 64;
        matches!(self, Ends::InOrder(lane) if lane.lock().kept.len() < MOST)
    }

    /// Whether memory is kept, so that something after it must be waited for.
    pub(crate) fn keeps(&self) -> bool {
        matches!(self, Ends::InOrder(lane) if lane.keeps.load(Ordering::Acquire))
    }

    /// The queue is gone; its commands are still to end.
    pub(crate) fn close(&self) {
        if let Ends::InOrder(lane) = self {
            lane.lock().closed = true;
            lane.wake.notify_one();
        }
    }
}

/// The commands of an in-order queue that are to be reported.
#[derive(Debug)]
pub(crate) struct Lane {
    state: Mutex<LaneState>,
    wake: Condvar,
    lanes: Lanes,
    /// Whether an event's status tells of every failure: that of NVIDIA's driver. Intel's runtime (2026) tells of some only
    /// those who wait.
    candid: bool,
    /// How many turns have been taken: who looks twice and finds the same knows that nobody cares.
    taken: AtomicU64,
    /// How many commands the queue has been given, and how many of the first have ended and been reported, as far as
    /// that is known.
    commands: AtomicU64,
    ended: AtomicU64,
    /// How many of the first commands wait for no event of the program that is not set.
    free_until: AtomicU64,
    /// Whether some of those are under way, as far as that is known; then they count for the device.
    under_way: AtomicBool,
    turns: Arc<Turns>,
    /// Whether memory is kept.
    keeps: AtomicBool,
}

#[derive(Debug, Default)]
struct LaneState {
    turns: VecDeque<Turn>,
    /// Memory of commands without an event, with the place of each.
    kept: VecDeque<(u64, Chunk)>,
    walker: Walker,
    /// The command that the lane's thread waits for, its number and its place.
    awaited: Option<(Weak<Event>, u64, u64)>,
    closed: bool,
}

/// The thread of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Walker {
    #[default]
    None,
    Asleep,
    /// Takes the turns; nobody else does.
    Walking,
}

struct Turn {
    event: Arc<Event>,
    weight: Weight,
    number: u64,
    /// How many commands the queue had been given with this one.
    place: u64,
    /// May own memory that the device uses until then.
    ended: Ended,
}

impl Turn {
    /// How far the command is; an event that cannot be asked has failed.
    fn status(&self) -> i32 {
        self.event.status().unwrap_or_else(ClError::code)
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("event", &self.event).finish_non_exhaustive()
    }
}

/// All lanes of the session.
#[derive(Clone, Debug)]
pub(crate) struct Lanes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    lanes: Mutex<Vec<Arc<Lane>>>,
    link: Arc<Link>,
    /// Whether there may be a turn at all. Spares the locks where nothing is reported.
    any: AtomicBool,
    /// Whether a command of the session has failed.
    failures: AtomicBool,
}

impl Lanes {
    pub(crate) fn new(link: Arc<Link>) -> Lanes {
        Lanes(Arc::new(Shared {
            lanes: Mutex::default(),
            link,
            any: AtomicBool::new(false),
            failures: AtomicBool::new(false),
        }))
    }

    /// A lane for a new queue.
    pub(crate) fn add(&self, candid: bool, turns: Arc<Turns>) -> Arc<Lane> {
        let lane = Arc::new(Lane {
            state: Mutex::default(),
            wake: Condvar::new(),
            lanes: self.clone(),
            candid,
            taken: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            free_until: AtomicU64::new(u64::MAX),
            under_way: AtomicBool::new(false),
            turns,
            keeps: AtomicBool::new(false),
        });
        let mut lanes = self.lock();
        // Those whose queue is gone and whose commands have ended.
        lanes.retain(|lane| !lane.is_over());
        lanes.push(Arc::clone(&lane));
        drop(lanes);
        lane
    }

    /// Ends what has ended; `true` if there was something. The link is to be flushed afterwards.
    pub(crate) fn look(&self) -> bool {
        if !self.may_be_open() {
            return false;
        }
        let mut found = false;
        let mut open = false;
        self.each(|lane| {
            found |= lane.look();
            open |= lane.is_open();
        });
        if !open {
            self.0.any.store(false, Ordering::Release);
            // A turn may have come in between.
            self.each(|lane| open |= lane.is_open());
            if open {
                self.0.any.store(true, Ordering::Release);
            }
        }
        found
    }

    /// Leaves all turns to the lanes' threads, but for those that are not worth waking anybody.
    pub(crate) fn hand_over(&self) {
        if self.may_be_open() {
            self.each(|lane| lane.hand_over(false));
        }
    }

    /// Leaves all turns to the lanes' threads: somebody waits for the device.
    pub(crate) fn hand_over_all(&self) {
        if self.may_be_open() {
            self.each(|lane| lane.hand_over(true));
        }
    }

    /// From now on every command is asked how it has ended.
    pub(crate) fn note_failure(&self) {
        self.0.failures.store(true, Ordering::Relaxed);
    }

    /// Whether a command of the session has failed.
    pub(crate) fn have_failed(&self) -> bool {
        self.0.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn may_be_open(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// How many turns have been taken in all.
    pub(crate) fn taken(&self) -> u64 {
        self.lock().iter().map(|lane| lane.taken.load(Ordering::Relaxed)).sum()
    }

    /// The commands that are running: one of each lane at most.
    pub(crate) fn running(&self) -> Vec<Running<Event>> {
        let mut running = Vec::new();
        self.each(|lane| running.extend(lane.running()));
        running
    }

    /// Visits the lanes without holding the lock meanwhile.
    fn each(&self, mut visit: impl FnMut(&Arc<Lane>)) {
        let mut place = 0;
        while let Some(lane) = { self.lock().get(place).cloned() } {
            visit(&lane);
            place += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Lane>>> {
        self.0.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn push(self: &Arc<Self>, turn: Turn) {
        let bulk = turn.weight == Weight::Bulk;
        self.lock().turns.push_back(turn);
        self.lanes.0.any.store(true, Ordering::Release);
        if bulk {
            self.hand_over(false);
        }
    }

    /// Takes turns as long as their commands have ended; `true` if there was one.
    fn look(self: &Arc<Self>) -> bool {
        let mut found = false;
        loop {
            let (turns, status) = {
                let mut state = match self.state.try_lock() {
                    Ok(state) => state,
                    Err(TryLockError::Poisoned(state)) => state.into_inner(),
                    Err(TryLockError::WouldBlock) => return found,
                };
                if state.walker == Walker::Walking {
                    return found;
                }
                // Under the lock, so that nobody takes these turns meanwhile; asking for a status does not wait.
                let (count, status) = self.ended(&state.turns);
                if count == 0 {
                    return found;
                }
                (state.turns.drain(..count).collect::<Vec<_>>(), status)
            };
            found = true;
            turns.into_iter().for_each(|turn| self.take(turn, status));
        }
    }

    /// The first command that has not ended, if it is running.
    fn running(&self) -> Option<Running<Event>> {
        let status = |event: &Arc<Event>| event.status().unwrap_or_else(ClError::code);
        let awaited = self.lock().awaited.clone();
        let awaited = awaited.and_then(|(event, number, place)| Some((event.upgrade()?, number, place)));
        // Not known is not ended, but not running either.
        let first = awaited.filter(|(event, ..)| status(event) > CL_COMPLETE).or_else(|| {
            let state = self.lock();
            let turn = state.turns.iter().find(|turn| turn.status() > CL_COMPLETE)?;
            Some((Arc::clone(&turn.event), turn.number, turn.place))
        });
        let (event, number, place) = first?;
        let is_free = place <= self.free_until.load(Ordering::SeqCst);
        let certain = is_certain(status(&event), self.candid && is_free)?;
        Some(Running { event, number, certain })
    }

    /// How many of the first turns have ended with the status that goes with it.
    ///
    /// Each question costs as much as a short command, so later turns are asked first: if one has ended well, so have all
    /// before it. The very last may just be running. Where a driver hides failures, or there has been one, every turn is
    /// asked.
    fn ended(&self, turns: &VecDeque<Turn>) -> (usize, i32) {
        const AT_ONCE: usize = 32;
        let count = turns.len().min(AT_ONCE);
        if count > 1 && self.candid && !self.lanes.have_failed() {
            for ahead in [count, count - 1, count / 2] {
                if ahead > 1 && turns[ahead - 1].status() == CL_COMPLETE {
                    return (ahead, CL_COMPLETE);
                }
            }
        }
        match turns.front().map(Turn::status) {
            Some(status) if status <= CL_COMPLETE => (1, status),
            _ => (0, CL_COMPLETE),
        }
    }

    /// The command has ended with `status`, as far as its event tells.
    fn take(&self, turn: Turn, status: i32) {
        let told = self.candid || status < CL_COMPLETE || turn.weight == Weight::Silent;
        let hidden = if told { None } else { turn.event.wait().err() };
        self.taken.fetch_add(1, Ordering::Relaxed);
        (turn.ended)(hidden.map_or(status, ClError::code), &turn.event);
        // Not back: the lane's thread may be further already.
        self.ended.fetch_max(turn.place, Ordering::SeqCst);
        self.end_if_idle();
        if self.keeps.load(Ordering::Acquire) {
            self.free_kept(turn.place);
        }
    }

    /// Whether commands are under way that wait for nothing but the device.
    fn is_under_way(&self) -> bool {
        let free = self.commands.load(Ordering::SeqCst).min(self.free_until.load(Ordering::SeqCst));
        self.ended.load(Ordering::SeqCst) < free
    }

    fn begin_if_free(&self) {
        if !self.under_way.load(Ordering::SeqCst) && self.is_under_way() && !self.under_way.swap(true, Ordering::SeqCst)
        {
            self.turns.begin();
        }
    }

    fn end_if_idle(&self) {
        if !self.is_under_way() && self.under_way.swap(false, Ordering::SeqCst) {
            self.turns.end();
            // A command may have come in between.
            self.begin_if_free();
        }
    }

    /// Later commands wait for an event of the program.
    fn block(&self) {
        let commands = self.commands.load(Ordering::SeqCst);
        self.free_until.fetch_min(commands, Ordering::SeqCst);
    }

    fn unblock(&self) {
        self.free_until.store(u64::MAX, Ordering::SeqCst);
        self.begin_if_free();
    }

    /// Frees the memory of commands up to `place`.
    fn free_kept(&self, place: u64) {
        let freed: Vec<_> = {
            let mut state = self.lock();
            let count = state.kept.partition_point(|(kept, _)| *kept <= place);
            let freed = state.kept.drain(..count).collect();
            self.keeps.store(!state.kept.is_empty(), Ordering::Release);
            freed
        };
        // Not under the lock: it goes back to a pool, which has its own.
        drop(freed);
    }

    fn hand_over(self: &Arc<Self>, also_silent: bool) {
        let mut state = self.lock();
        if state.turns.iter().all(|turn| turn.weight == Weight::Silent && !also_silent) {
            return;
        }
        match state.walker {
            Walker::Walking => {}
            Walker::Asleep => {
                state.walker = Walker::Walking;
                self.wake.notify_one();
            }
            Walker::None => {
                let lane = Arc::clone(self);
                let thread = thread::Builder::new().name("telecl-wait".into()).stack_size(VENDOR_STACK);
                match thread.spawn(move || lane.walk()) {
                    Ok(_) => state.walker = Walker::Walking,
                    // The completion thread looks now and then.
                    Err(error) => {
                        tracing::warn!(%error, "no thread to wait for a queue; its commands are noticed later")
                    }
                }
            }
        }
    }

    /// The lane's thread: takes turns while there are any, then sleeps until it is needed again.
    fn walk(&self) {
        let link = &self.lanes.0.link;
        let mut state = self.lock();
        loop {
            let Some(turn) = state.turns.pop_front() else {
                state.walker = Walker::Asleep;
                drop(state);
                link.flush();
                state = self.lock();
                while state.walker == Walker::Asleep {
                    if state.closed && state.turns.is_empty() {
                        return;
                    }
                    state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                continue;
            };
            state.awaited = Some((Arc::downgrade(&turn.event), turn.number, turn.place));
            drop(state);
            let mut status = turn.status();
            while status > CL_COMPLETE {
                // What was said so far need not wait for it.
                link.flush();
                // Fails where the command does; the event itself says with what.
                let _ = turn.event.wait();
                status = turn.status();
                if status > CL_COMPLETE {
                    // A driver whose wait returned too early.
                    thread::sleep(Duration::from_millis(1));
                }
            }
            self.take(turn, status);
            state = self.lock();
        }
    }

    fn is_open(&self) -> bool {
        !self.lock().turns.is_empty()
    }

    fn is_over(&self) -> bool {
        let state = self.lock();
        state.closed && state.turns.is_empty() && state.walker != Walker::Walking
    }

    fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Nothing has told that the device is done with it.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(std::mem::take(&mut state.kept));
    }
}

/// Whether a command with this status is certain to run; none if it does not. `may_run` says that one that was submitted
/// may.
fn is_certain(status: i32, may_run: bool) -> Option<bool> {
    match status {
        CL_RUNNING => Some(true),
        CL_SUBMITTED if may_run => Some(false),
        _ => None,
    }
}

/// The commands of one out-of-order queue.
#[derive(Clone, Debug)]
pub(crate) struct Loose {
    pending: Pending,
    /// As that of [`Lane`].
    candid: bool,
    turns: Arc<Turns>,
    /// Its lock is held for a few lines, and that of the device's turns is taken meanwhile.
    blocked: Arc<Mutex<Blocked>>,
}

/// Commands that wait for events of the program, which are not set.
#[derive(Debug, Default)]
struct Blocked {
    /// What commands that come now wait for.
    next: Vec<u64>,
    commands: Vec<(Vec<u64>, Arc<AtomicBool>)>,
}

impl Loose {
    pub(crate) fn new(pending: Pending, candid: bool, turns: Arc<Turns>) -> Loose {
        Loose { pending, candid, turns, blocked: Arc::default() }
    }

    fn on_end(&self, event: &Arc<Event>, ended: impl FnOnce(i32, &Arc<Event>) + Send + 'static) {
        let counts = Arc::new(AtomicBool::new(false));
        {
            let mut blocked = self.lock();
            let blockers = blocked.next.clone();
            if blockers.is_empty() {
                counts.store(true, Ordering::SeqCst);
                self.turns.begin();
            } else {
                blocked.commands.push((blockers, Arc::clone(&counts)));
            }
        }
        let loose = self.clone();
        let may_run = self.candid.then(|| Arc::clone(&counts));
        self.pending.on_end(event, may_run, move |status, event| {
            ended(status, event);
            loose.end(&counts);
        });
    }

    /// A command has ended; one that was never free has failed with what it waited for.
    fn end(&self, counts: &Arc<AtomicBool>) {
        let mut blocked = self.lock();
        blocked.commands.retain(|(_, other)| !Arc::ptr_eq(other, counts));
        if counts.swap(false, Ordering::SeqCst) {
            drop(blocked);
            self.turns.end();
        }
    }

    fn unblock(&self, event: u64) {
        let mut blocked = self.lock();
        blocked.next.retain(|blocker| *blocker != event);
        blocked.commands.retain_mut(|(blockers, counts)| {
            blockers.retain(|blocker| *blocker != event);
            if blockers.is_empty() {
                counts.store(true, Ordering::SeqCst);
                self.turns.begin();
            }
            !blockers.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, Blocked> {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The commands of out-of-order queues that are waited for. Cheap to clone; its lock is held for a few lines and no
/// other is taken meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    /// Dead once their end was noticed.
    waits: Vec<Weak<Wait>>,
    /// Length at which the dead are removed next.
    full: usize,
    /// Waits without a callback, which only the list keeps alive.
    unregistered: Vec<Arc<Wait>>,
}

/// One command, and what to do when it has ended.
struct Wait {
    event: Arc<Event>,
    number: u64,
    /// Of a driver that never says that a command is running: whether it waits for no event of the program.
    may_run: Option<Arc<AtomicBool>>,
    /// Taken by whoever notices first. It may own memory that the device uses until then.
    ended: Mutex<Option<Ended>>,
}

impl Pending {
    fn on_end(
        &self,
        event: &Arc<Event>,
        may_run: Option<Arc<AtomicBool>>,
        ended: impl FnOnce(i32, &Arc<Event>) + Send + 'static,
    ) {
        let ended: Mutex<Option<Ended>> = Mutex::new(Some(Box::new(ended)));
        let wait = Arc::new(Wait { event: Arc::clone(event), number: next_number(), may_run, ended });
        self.lock().add(Arc::downgrade(&wait));
        let called = Arc::clone(&wait);
        if event.on_status(CL_COMPLETE, Box::new(move |status| called.end(status))).is_err() {
            self.lock().unregistered.push(wait);
        }
    }

    /// Looks at all events and ends what the vendor has not told us about. Returns whether anything is still open.
    pub(crate) fn sweep(&self) -> bool {
        let waits: Vec<Arc<Wait>> = {
            let mut list = self.lock();
            list.waits.retain(|wait| wait.strong_count() > 0);
            list.waits.iter().filter_map(Weak::upgrade).collect()
        };
        let mut open = false;
        for wait in &waits {
            match wait.event.status() {
                Ok(status) if status <= CL_COMPLETE => wait.end(status),
                // Not known is not ended: the device may still use the memory.
                Ok(_) | Err(_) => open |= !wait.is_over(),
            }
        }
        self.lock().unregistered.retain(|wait| !wait.is_over());
        open
    }

    /// The commands that are running.
    pub(crate) fn running(&self) -> Vec<Running<Event>> {
        let waits: Vec<Arc<Wait>> = self.lock().waits.iter().filter_map(Weak::upgrade).collect();
        waits.iter().filter_map(|wait| wait.running()).collect()
    }

    /// Whether there is something to sweep, as far as that is known without looking.
    pub(crate) fn may_be_open(&self) -> bool {
        !self.lock().waits.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    fn add(&mut self, wait: Weak<Wait>) {
        if self.waits.len() >= self.full {
            self.waits.retain(|wait| wait.strong_count() > 0);
            self.full = 2 * self.waits.len() + 64;
        }
        self.waits.push(wait);
    }
}

impl Wait {
    fn end(&self, status: i32) {
        // Not under the lock: what is done may take its time.
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended {
            ended(status, &self.event);
        }
    }

    fn running(&self) -> Option<Running<Event>> {
        let may_run = self.may_run.as_ref().is_some_and(|may_run| may_run.load(Ordering::SeqCst));
        let certain = is_certain(self.event.status().ok()?, may_run)?;
        Some(Running { event: Arc::clone(&self.event), number: self.number, certain })
    }

    fn is_over(&self) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("event", &self.event).finish_non_exhaustive()
    }
}
