//! A device, its sessions and their clock, simulated: what happens between a broker and its workers, without either.
//!
//! A session's worker asks for the device when it has something to run, submits while it has the device, at most
//! `ahead` of device time in advance, stops when its slice is used up or when it is told to, drains, and reports. Messages
//! take `hop`; the device runs one kernel after the other and takes `switch` to change to another session.
#![allow(dead_code)] // no test needs all of it

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use telecl_sched::{Decision, Rest, Scheduler, SessionId, Settings, Share, TenantId};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000_000_000;

/// Numbers from a seed (splitmix64): the same on every machine and with every version.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn from(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        range.start() + self.roll() % (range.end() - range.start() + 1)
    }
}

/// What a session does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Lengths of its kernels, in nanoseconds.
    pub(crate) kernel: (u64, u64),
    /// How long it thinks after a kernel before it wants the next; `None` if it never lacks work.
    pub(crate) think: Option<(u64, u64)>,
}

impl Work {
    pub(crate) fn flood(kernel: u64) -> Work {
        Work { kernel: (kernel, kernel), think: None }
    }

    pub(crate) fn one_at_a_time(kernel: u64, think: (u64, u64)) -> Work {
        Work { kernel: (kernel, kernel), think: Some(think) }
    }
}

/// How device time comes to the scheduler's knowledge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reports {
    /// All of it when the turn ends.
    AtTheEnd,
    /// With every kernel.
    InPieces,
    /// All of it, some time after the turn has ended.
    Late(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) hop: u64,
    pub(crate) switch: u64,
    /// Device time that a worker has in flight, but two commands at least.
    pub(crate) ahead: u64,
    pub(crate) reports: Reports,
}

/// As measured on a GPU: messages of 20 µs, 140 µs to change processes.
pub(crate) const GPU: Machine = Machine { hop: 20 * US, switch: 140 * US, ahead: 200 * US, reports: Reports::AtTheEnd };

/// Nothing but kernels takes time.
pub(crate) const IDEAL: Machine = Machine { hop: 0, switch: 0, ahead: 0, reports: Reports::AtTheEnd };

#[derive(Debug)]
struct Worker {
    tenant: u64,
    work: Work,
    dice: u64,
    /// When the command that it wants to run was asked for by its program.
    pending: Option<u64>,
    has_device: bool,
    slice: Option<u64>,
    stopping: bool,
    in_flight: VecDeque<u64>,
    measured: u64,
    reported: u64,
    /// When it began to wait for a turn.
    waiting: Option<u64>,
    gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Request(u64),
    Wants(u64),
    Done(u64, u64, bool),
    Charge(u64, u64),
    Grant(u64, Option<u64>),
    Limit(u64, u64),
    Stop(u64),
    Completed(u64, u64),
    Wake,
}

/// Everything, and what was seen of it.
pub(crate) struct Sim {
    pub(crate) scheduler: Scheduler,
    machine: Machine,
    origin: Instant,
    pub(crate) now: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    workers: BTreeMap<u64, Worker>,
    queue: VecDeque<(u64, u64)>,
    executing: Option<u64>,
    last: Option<u64>,
    idle_since: u64,
    /// Device time by tenant.
    pub(crate) used: BTreeMap<u64, u64>,
    /// From request to result, by session.
    pub(crate) latencies: BTreeMap<u64, Vec<u64>>,
    /// The longest that a session has waited for a turn, by tenant.
    pub(crate) longest_wait: BTreeMap<u64, u64>,
    /// Time in which the device did nothing although a session without a cap had something to run.
    pub(crate) wasted: u64,
    pub(crate) stops: u64,
    pub(crate) turns: u64,
    capped: BTreeMap<u64, bool>,
}

impl Sim {
    pub(crate) fn new(machine: Machine) -> Sim {
        Sim::with(machine, Settings::default())
    }

    pub(crate) fn with(machine: Machine, settings: Settings) -> Sim {
        let origin = Instant::now();
        Sim {
            scheduler: Scheduler::new(settings, origin),
            machine,
            origin,
            now: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            workers: BTreeMap::new(),
            queue: VecDeque::new(),
            executing: None,
            last: None,
            idle_since: 0,
            used: BTreeMap::new(),
            latencies: BTreeMap::new(),
            longest_wait: BTreeMap::new(),
            wasted: 0,
            stops: 0,
            turns: 0,
            capped: BTreeMap::new(),
        }
    }

    /// Adds a session that begins its work now.
    pub(crate) fn add(&mut self, session: u64, tenant: u64, share: Share, work: Work) {
        self.scheduler.join(SessionId(session), TenantId(tenant), share, self.instant());
        self.capped.insert(tenant, share.cap.is_some());
        self.used.entry(tenant).or_default();
        let worker = Worker {
            tenant,
            work,
            dice: session.wrapping_mul(77) + 1,
            pending: None,
            has_device: false,
            slice: None,
            stopping: false,
            in_flight: VecDeque::new(),
            measured: 0,
            reported: 0,
            waiting: None,
            gone: false,
        };
        self.workers.insert(session, worker);
        self.at(self.now, Event::Request(session));
    }

    /// Gives a tenant another share.
    pub(crate) fn set_share(&mut self, tenant: u64, share: Share) {
        self.scheduler.set_share(TenantId(tenant), share, self.instant());
        self.capped.insert(tenant, share.cap.is_some());
        self.pump();
    }

    /// Ends a session as `kill -9` would, whatever it is doing.
    pub(crate) fn kill(&mut self, session: u64) {
        self.note_idle();
        if let Some(worker) = self.workers.get_mut(&session) {
            worker.gone = true;
            worker.pending = None;
        }
        self.queue.retain(|(owner, _)| *owner != session);
        self.scheduler.leave(SessionId(session), self.instant());
        self.pump();
    }

    /// Lets time pass.
    pub(crate) fn run_until(&mut self, end: u64) {
        while let Some(Reverse((time, _, _))) = self.events.peek() {
            if *time > end {
                break;
            }
            if let Some(Reverse((time, _, event))) = self.events.pop() {
                self.now = time;
                self.note_idle();
                self.happens(event);
            }
        }
        self.now = end;
        self.note_idle();
    }

    pub(crate) fn reset_figures(&mut self) {
        self.used.values_mut().for_each(|used| *used = 0);
        self.latencies.clear();
        self.longest_wait.clear();
    }

    /// The part of all device time that a tenant has had, in percent.
    pub(crate) fn share(&self, tenant: u64) -> f64 {
        let all: u64 = self.used.values().sum();
        100.0 * self.used[&tenant] as f64 / (all as f64).max(1.0)
    }

    pub(crate) fn percentile(&self, session: u64, percent: usize) -> u64 {
        let mut all = self.latencies.get(&session).cloned().unwrap_or_default();
        all.sort_unstable();
        all.get((all.len() * percent / 100).min(all.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Request(id) => {
                let now = self.now;
                if let Some(worker) = self.workers.get_mut(&id).filter(|worker| !worker.gone) {
                    worker.pending = Some(now);
                    if !worker.has_device && worker.waiting.is_none() {
                        worker.waiting = Some(now);
                        self.at(now + self.machine.hop, Event::Wants(id));
                    }
                    self.submit(id);
                }
            }
            Event::Wants(id) => {
                self.scheduler.wants(SessionId(id), self.instant());
                self.pump();
            }
            Event::Done(id, used, more) => {
                let rest = if more { Rest::More } else { Rest::Nothing };
                self.scheduler.done(SessionId(id), Duration::from_nanos(used), rest, self.instant());
                self.pump();
            }
            Event::Charge(id, used) => {
                self.scheduler.charge(SessionId(id), Duration::from_nanos(used));
                self.pump();
            }
            Event::Grant(id, slice) => {
                let now = self.now;
                if let Some(worker) = self.workers.get_mut(&id).filter(|worker| !worker.gone) {
                    worker.has_device = true;
                    worker.slice = slice;
                    worker.stopping = false;
                    worker.measured = 0;
                    worker.reported = 0;
                    let waited = worker.waiting.take().map_or(0, |since| now - since);
                    let longest = self.longest_wait.entry(worker.tenant).or_default();
                    *longest = (*longest).max(waited);
                    self.submit(id);
                }
            }
            Event::Limit(id, slice) => {
                if let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.has_device) {
                    worker.slice = Some(slice);
                    self.submit(id);
                }
            }
            Event::Stop(id) => {
                if let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.has_device) {
                    worker.stopping = true;
                    self.submit(id);
                }
            }
            Event::Completed(id, length) => self.completed(id, length),
            Event::Wake => self.pump(),
        }
    }

    fn completed(&mut self, id: u64, length: u64) {
        self.executing = None;
        self.idle_since = self.now;
        if let Some(worker) = self.workers.get_mut(&id).filter(|worker| !worker.gone) {
            worker.measured += length;
            *self.used.entry(worker.tenant).or_default() += length;
            let asked = worker.in_flight.pop_front().unwrap_or(self.now);
            let (hop, now) = (self.machine.hop, self.now);
            self.latencies.entry(id).or_default().push(now - asked);
            let mut dice = Dice(worker.dice);
            if let Some((least, most)) = worker.work.think {
                let thinks = dice.from(least..=most);
                worker.dice = dice.0;
                self.at(now + thinks, Event::Request(id));
            }
            if self.machine.reports == Reports::InPieces {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.reported += length;
                }
                self.at(now + hop, Event::Charge(id, length));
            }
        }
        self.start_next();
        self.submit(id);
    }

    /// A worker submits what it may, or reports when its turn is over.
    fn submit(&mut self, id: u64) {
        let (most, now, hop) = (self.machine.ahead, self.now, self.machine.hop);
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.has_device && !worker.gone) else {
            return;
        };
        let mut dice = Dice(worker.dice);
        while let Some(asked) = worker.pending {
            // It does not know how long the next kernels will take, but how long they took so far.
            let typical = (worker.work.kernel.0 + worker.work.kernel.1) / 2;
            let ahead = typical * worker.in_flight.len() as u64;
            let full = worker.in_flight.len() >= 2 && ahead >= most;
            if worker.stopping || full || worker.slice.is_some_and(|slice| worker.measured + ahead >= slice) {
                break;
            }
            let length = dice.from(worker.work.kernel.0..=worker.work.kernel.1);
            worker.in_flight.push_back(asked);
            worker.pending = worker.work.think.is_none().then_some(now);
            self.queue.push_back((id, length));
        }
        worker.dice = dice.0;
        let over = worker.stopping || worker.slice.is_some_and(|slice| worker.measured >= slice);
        let empty = worker.pending.is_none() && worker.slice.is_some();
        if worker.in_flight.is_empty() && (over || empty) {
            worker.has_device = false;
            let more = worker.pending.is_some();
            if more {
                worker.waiting = Some(now);
            }
            let rest = worker.measured - worker.reported;
            match self.machine.reports {
                Reports::Late(delay) => {
                    self.at(now + hop, Event::Done(id, 0, more));
                    self.at(now + hop + delay, Event::Charge(id, rest));
                }
                _ => self.at(now + hop, Event::Done(id, rest, more)),
            }
        }
        self.start_next();
    }

    fn start_next(&mut self) {
        if self.executing.is_some() {
            return;
        }
        if let Some((id, length)) = self.queue.pop_front() {
            self.note_idle();
            let switch = if self.last.is_some_and(|last| last != id) { self.machine.switch } else { 0 };
            self.last = Some(id);
            self.executing = Some(id);
            self.at(self.now + switch + length, Event::Completed(id, length));
        }
    }

    /// The broker does what the scheduler says, until there is nothing to do.
    fn pump(&mut self) {
        loop {
            let decision = self.scheduler.next(self.instant());
            let (now, hop) = (self.now, self.machine.hop);
            match decision {
                Decision::Run { session, slice } => {
                    self.turns += 1;
                    self.at(now + hop, Event::Grant(session.0, Some(u64::try_from(slice.as_nanos()).unwrap())));
                }
                Decision::Alone { session } => {
                    self.turns += 1;
                    self.at(now + hop, Event::Grant(session.0, None));
                }
                Decision::Limit { session, slice } => {
                    let slice = u64::try_from(slice.as_nanos()).unwrap();
                    self.at(now + hop, Event::Limit(session.0, slice));
                }
                Decision::Stop { session } => {
                    self.stops += 1;
                    self.at(now + hop, Event::Stop(session.0));
                }
                Decision::Busy { until: Some(time) } | Decision::WaitUntil(time) => {
                    let at = u64::try_from(time.saturating_duration_since(self.origin).as_nanos()).unwrap();
                    assert!(at > now, "asked to come back in the past: {decision:?}");
                    return self.at(at, Event::Wake);
                }
                Decision::Busy { until: None } | Decision::Idle => return,
            }
        }
    }

    /// Adds up the time in which the device could have worked and did not.
    fn note_idle(&mut self) {
        if self.executing.is_none() {
            let wanted = |worker: &Worker| worker.pending.is_some() && !worker.gone && !self.capped[&worker.tenant];
            if self.workers.values().any(wanted) {
                self.wasted += self.now - self.idle_since;
            }
            self.idle_since = self.now;
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn instant(&self) -> Instant {
        self.origin + Duration::from_nanos(self.now)
    }
}

/// A share by weight alone.
pub(crate) fn weight(weight: u32) -> Share {
    Share { weight: weight.try_into().unwrap(), ..Share::default() }
}
