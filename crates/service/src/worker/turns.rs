//! The session's turns on one device: what is under way there, since when, and what the broker allows.
//!
//! Only the executor submits commands; it asks before each (`gate.rs`). Their ends are noticed by several threads, and
//! whoever notices that nothing is under way any more gives the device back, if somebody else wants it. A session that is
//! alone on its device reads one word before each command, and writes it when it begins and when it ends to be busy.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::broker::{Broker, Line};
use crate::board::{DeviceCount, SessionBoard, now};
use crate::channel::{Done, Head, Kind};
use crate::turn::{Standing, TurnWord};

/// Who had nothing to run at a moment so short ago, in nanoseconds, runs one command at a time.
const BRIEF: u64 = 2_000_000;

/// One device of the session.
#[derive(Debug)]
pub(crate) struct Turns {
    board: Arc<SessionBoard>,
    place: usize,
    broker: Arc<Broker>,
    /// Queues and loose commands that have something under way.
    active: AtomicUsize,
    meter: Mutex<Meter>,
    drained: Condvar,
    /// Whether the executor sleeps until the driver has something to say, so that others must look after the turn.
    asleep: AtomicBool,
    /// Whether it sleeps for a moment only, and keeps what is left of a slice meanwhile.
    napping: AtomicBool,
    /// Whether the executor has a command that waits for the next turn.
    wanting: AtomicBool,
    /// Whether it has one that waits for the end of another of the session: it would be wrong to say that the device rests
    /// when that has ended.
    holding: AtomicBool,
    /// The era of the broker that knows that; 0 if none does.
    asked: AtomicU64,
    /// When the executor last had nothing to run, in its turn.
    rested: AtomicU64,
    /// That the broker hears of the end of a turn before it hears that the next one is wanted, whichever threads say so.
    /// Held while a message is sent.
    telling: Mutex<()>,
}

/// How long the device was busy for the session. Its lock is held for a few lines.
#[derive(Debug, Default)]
struct Meter {
    /// In nanoseconds, like all times here.
    total: u64,
    since: Option<u64>,
    /// The total when the present turn began.
    turn: u64,
    /// What the last time of being busy took, until it is asked for.
    last: Option<u64>,
    /// When that was over, or the present turn began, whichever was later.
    idle_since: u64,
}

impl Meter {
    fn total(&self, now: u64) -> u64 {
        self.total + self.since.map_or(0, |since| now.saturating_sub(since))
    }
}

impl Turns {
    pub(crate) fn new(board: Arc<SessionBoard>, place: usize, broker: Arc<Broker>) -> Turns {
        Turns {
            board,
            place,
            broker,
            active: AtomicUsize::new(0),
            meter: Mutex::default(),
            drained: Condvar::new(),
            asleep: AtomicBool::new(false),
            napping: AtomicBool::new(false),
            wanting: AtomicBool::new(false),
            holding: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            rested: AtomicU64::new(0),
            telling: Mutex::default(),
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        self.word().get()
    }

    /// A queue, or a loose command, has something under way.
    pub(crate) fn begin(&self) {
        if self.active.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        let mut meter = self.lock();
        // The last may have ended meanwhile.
        if self.is_active() && meter.since.is_none() {
            let now = now();
            meter.since = Some(now);
            self.board.device(self.place, DeviceCount::BusySince).store(now, Ordering::Relaxed);
        }
        drop(meter);
        self.word().change(Standing::Resting, Standing::Alone);
    }

    /// A queue, or a loose command, has nothing under way any more.
    pub(crate) fn end(&self) {
        if self.active.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let mut meter = self.lock();
        if self.is_active() {
            return;
        }
        if let Some(since) = meter.since.take() {
            let now = now();
            let busy = now.saturating_sub(since);
            self.board.device(self.place, DeviceCount::LastUsed).store(now, Ordering::Relaxed);
            meter.total += busy;
            meter.last = Some(busy);
            meter.idle_since = now;
            // In this order: whoever reads meanwhile sees too little for a moment, and never the same time twice.
            self.board.device(self.place, DeviceCount::BusySince).store(0, Ordering::Relaxed);
            self.board.device(self.place, DeviceCount::Busy).store(meter.total, Ordering::Release);
        }
        drop(meter);
        self.drained.notify_all();
        self.rest();
    }

    /// Whether something is under way.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::SeqCst) > 0
    }

    /// Waits until nothing is under way, but not for ever; `true` if it is so.
    pub(crate) fn wait_until_drained(&self, at_most: Duration) -> bool {
        let meter = self.lock();
        let waited = self.drained.wait_timeout_while(meter, at_most, |_| self.is_active());
        drop(waited);
        !self.is_active()
    }

    /// How long the device was last busy, if that is over and was not asked before.
    pub(crate) fn last_busy(&self) -> Option<Duration> {
        self.lock().last.take().map(Duration::from_nanos)
    }

    /// For how long nothing has been under way in the present turn, if nothing is.
    pub(crate) fn idle(&self) -> Duration {
        Duration::from_nanos(now().saturating_sub(self.lock().idle_since))
    }

    /// What is left of the present slice.
    pub(crate) fn slice_left(&self) -> Duration {
        let slice = self.board.device(self.place, DeviceCount::Slice).load(Ordering::Acquire);
        Duration::from_nanos(slice).saturating_sub(self.used())
    }

    /// A command may be submitted now, by a session that has been alone; `false` if it is not any more.
    pub(crate) fn take_up(&self) -> bool {
        self.word().change(Standing::Resting, Standing::Alone)
    }

    /// The executor has nothing to do, and may sleep. It looks after the turn itself until this is called.
    pub(crate) fn fall_asleep(&self) {
        self.lie_down(&self.asleep);
    }

    /// The executor has nothing to do, and sleeps for a moment: a slice that is not used up is kept so long.
    pub(crate) fn nap(&self) {
        self.lie_down(&self.napping);
    }

    fn lie_down(&self, sleeps: &AtomicBool) {
        self.let_go();
        sleeps.store(true, Ordering::SeqCst);
        if !self.is_active() {
            self.note_rest();
            self.rest();
        }
    }

    /// The executor looks after the turn again.
    pub(crate) fn wake_up(&self) {
        for sleeps in [&self.asleep, &self.napping] {
            if sleeps.load(Ordering::Relaxed) {
                sleeps.store(false, Ordering::SeqCst);
            }
        }
    }

    /// The executor has a command that is to go as soon as another one has ended.
    pub(crate) fn hold(&self) {
        self.holding.store(true, Ordering::SeqCst);
    }

    /// … and has it no more.
    pub(crate) fn let_go(&self) {
        if self.holding.load(Ordering::Relaxed) {
            self.holding.store(false, Ordering::SeqCst);
        }
    }

    /// Nothing is under way: what is not needed goes back.
    fn rest(&self) {
        loop {
            let changed = match self.standing() {
                Standing::Alone if self.holding.load(Ordering::SeqCst) => return,
                Standing::Alone => self.word().change(Standing::Alone, Standing::Resting),
                standing @ (Standing::Slice | Standing::Stop) if self.is_for_others_to_end(standing) => {
                    self.give_back(standing)
                }
                // The executor is about to submit, or to see that it has nothing more.
                _ => return,
            };
            // The broker may have been faster.
            if changed {
                return;
            }
        }
    }

    /// Whether the executor sleeps, so that a turn in which nothing is under way ends without it.
    fn is_for_others_to_end(&self, standing: Standing) -> bool {
        let is_over = || standing == Standing::Stop || self.slice_left().is_zero();
        self.asleep.load(Ordering::SeqCst) || self.napping.load(Ordering::SeqCst) && is_over()
    }

    /// Ends the turn, unless its standing has changed meanwhile. To be called when nothing is under way.
    pub(crate) fn give_back(&self, standing: Standing) -> bool {
        let used = self.used();
        let _telling = self.telling();
        if !self.word().change(standing, Standing::Nothing) {
            return false;
        }
        let more = self.wanting.load(Ordering::SeqCst);
        let brief = self.is_brief();
        let line = self.broker.line();
        self.asked.store(if more { line.era } else { 0 }, Ordering::SeqCst);
        self.tell(&line, Kind::Done, &Done { used, more, brief }.content());
        true
    }

    /// Whether the session runs a few commands at a time, with rests in between.
    pub(crate) fn is_brief(&self) -> bool {
        now().saturating_sub(self.rested.load(Ordering::Relaxed)) < BRIEF
    }

    /// The executor has nothing to run, and nothing is under way.
    pub(crate) fn note_rest(&self) {
        self.rested.store(now(), Ordering::Relaxed);
    }

    /// From now on the executor waits with a command.
    pub(crate) fn want(&self) {
        self.wanting.store(true, Ordering::SeqCst);
    }

    /// Asks for a turn, if the present broker was not asked yet.
    pub(crate) fn ask(&self) {
        let _telling = self.telling();
        let line = self.broker.line();
        if self.asked.swap(line.era, Ordering::SeqCst) != line.era {
            self.tell(&line, Kind::Wants, &[]);
        }
    }

    /// The executor waits for something else first: does not want the turn that it may have asked for.
    pub(crate) fn decline(&self) {
        let _telling = self.telling();
        self.wanting.store(false, Ordering::SeqCst);
        let line = self.broker.line();
        if self.asked.swap(0, Ordering::SeqCst) != 0 {
            self.tell(&line, Kind::WantsNot, &[]);
        }
    }

    /// Sleeps until there is a turn, but not for ever.
    pub(crate) fn await_turn(&self, at_most: Duration) {
        self.word().sleep(Standing::Nothing, at_most);
    }

    /// There is a turn, which may have come without anybody waiting for it: right after the last one was given back, for
    /// instance. Who did not note that would never ask for another.
    pub(crate) fn notice_turn(&self) {
        if self.asked.load(Ordering::SeqCst) != 0 {
            self.begin_turn(Duration::ZERO);
        }
    }

    /// There is a turn, after a wait of so long.
    pub(crate) fn begin_turn(&self, waited: Duration) {
        self.wanting.store(false, Ordering::SeqCst);
        self.asked.store(0, Ordering::SeqCst);
        let mut meter = self.lock();
        let now = now();
        meter.turn = meter.total(now);
        meter.idle_since = now;
        drop(meter);
        let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.board.device(self.place, DeviceCount::Waited).fetch_add(waited, Ordering::Relaxed);
    }

    /// How long the device was busy in this turn.
    pub(crate) fn used(&self) -> Duration {
        let meter = self.lock();
        Duration::from_nanos(meter.total(now()).saturating_sub(meter.turn))
    }

    fn tell(&self, line: &Line, kind: Kind, content: &[u8]) {
        if !line.send(Head::new(kind).number(self.place as u64), content) {
            // Without a broker there is nobody to wait for.
            self.word().change(Standing::Nothing, Standing::Resting);
        }
    }

    fn telling(&self) -> MutexGuard<'_, ()> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self) -> TurnWord<'_> {
        TurnWord(self.board.turn(self.place))
    }

    fn lock(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
