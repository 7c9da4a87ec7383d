//! The commands of in-order queues.
//!
//! They end in order, so they stand in a [`Lane`] and only the first is looked at. While the executor has nothing else to
//! do it looks itself: a short command is reported without any thread being woken. Before it sleeps, it hands the lanes
//! over to their threads (`telecl-wait`), which wait with the vendor's own clWaitForEvents. Callbacks would not do:
//! NVIDIA's driver (580) gives them CL_COMPLETE where the event has failed, and PoCL 3.1 does not always call.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::Duration;

use telecl_opencl::{ClError, Event};
use telecl_sys::CL_COMPLETE;

use super::{Ended, Running, Weight, is_certain, next_number};
use crate::worker::link::Link;
use crate::worker::staging::Chunk;
use crate::worker::start::VENDOR_STACK;
use crate::worker::turns::Turns;

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
    pub(super) fn on_end(self: &Arc<Self>, event: &Arc<Event>, weight: Weight, ended: Ended) {
        let place = self.commands.load(Ordering::Relaxed);
        self.push(Turn { event: Arc::clone(event), weight, number: next_number(), place, ended });
    }

    pub(super) fn note_command(&self) {
        self.commands.fetch_add(1, Ordering::SeqCst);
        self.begin_if_free();
    }

    pub(super) fn needs_seal(&self) -> bool {
        let commands = self.commands.load(Ordering::Relaxed);
        self.under_way.load(Ordering::SeqCst)
            && self.free_until.load(Ordering::Relaxed) == u64::MAX
            && self.lock().turns.back().is_none_or(|turn| turn.place != commands)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ended.load(Ordering::Acquire) == self.commands.load(Ordering::Relaxed)
    }

    pub(super) fn last_event(&self) -> Option<Arc<Event>> {
        let commands = self.commands.load(Ordering::Relaxed);
        self.lock().turns.back().filter(|turn| turn.place == commands).map(|turn| Arc::clone(&turn.event))
    }

    pub(super) fn keep(&self, chunk: Chunk) {
        self.lock().kept.push_back((self.commands.load(Ordering::Relaxed), chunk));
        self.keeps.store(true, Ordering::Release);
    }

    pub(super) fn may_keep(&self) -> bool {
        const MOST: usize = 64;
        self.lock().kept.len() < MOST
    }

    pub(super) fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

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
    pub(super) fn block(&self) {
        let commands = self.commands.load(Ordering::SeqCst);
        self.free_until.fetch_min(commands, Ordering::SeqCst);
    }

    pub(super) fn unblock(&self) {
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
