//! How much of a device's time a session has in flight: enough that the device never waits for us, little enough that
//! whoever is next soon has it.
//!
//! OpenCL tells how long a command took only afterwards, and an event for each would cost more than a short command. So
//! commands are counted in *batches*, and only the last of a batch has an event. What commands take is learned: from
//! batches that were waited for, and from the time between two moments at which the device had nothing to do.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::table::IdHash;

/// Commands that are expected to take as long as each other: a kernel and its size, or a kind of transfer and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Likeness {
    key: u64,
    /// What they may take, before it is known.
    guess: Option<Duration>,
}

impl Likeness {
    pub(crate) fn of(what: u64, size: u64) -> Likeness {
        // Mixed, because ids and sizes are small numbers.
        let key = what.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ size.wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(31);
        Likeness { key, guess: None }
    }

    /// Transfers of a kind, of about so many bytes: at 5 GB/s, for a first guess.
    pub(crate) fn transfer(kind: u16, bytes: u64) -> Likeness {
        let bytes = bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
        let guess = Duration::from_micros(10) + Duration::from_nanos(bytes / 5);
        Likeness { guess: Some(guess), ..Likeness::of(kind.into(), bytes) }
    }
}

/// Beyond so many kinds of commands all is forgotten; that costs a few events.
const MOST_KNOWN: usize = 4096;

/// Nothing takes less: what was believed to take no time at all could never be found to take longer than its neighbours.
const LEAST: Duration = Duration::from_micros(1);

/// So many kinds of one batch are told apart; of the others nothing is learned.
const MOST_KINDS: usize = 8;

/// Whether a command may be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Not before the oldest batch has ended.
    Wait,
    Go {
        /// Its event is needed.
        with_event: bool,
    },
}

/// The commands in flight on one device. `E` is an event.
#[derive(Debug)]
pub(crate) struct Pacer<E> {
    known: HashMap<u64, LastTwo, IdHash>,
    /// Commands since the last event.
    open: Batch,
    closed: VecDeque<(Batch, E)>,
    /// What all of them are expected to take.
    expected: Duration,
    commands: u32,
    /// When a batch was last known to end.
    last_end: Option<Instant>,
    /// How much may be in flight, at the last question: device time, and commands.
    budget: Duration,
    most: u32,
}

/// What commands of a kind took, on average, in the last batch and in the one before it.
#[derive(Clone, Copy, Debug)]
struct LastTwo {
    last: Duration,
    before: Option<Duration>,
    /// A kernel's first run may take many milliseconds, because the vendor loads it then: that is not remembered.
    is_first: bool,
}

impl LastTwo {
    fn first(each: Duration) -> LastTwo {
        LastTwo { last: each, before: None, is_first: true }
    }

    fn then(self, each: Duration) -> LastTwo {
        LastTwo { last: each, before: (!self.is_first).then_some(self.last), is_first: false }
    }

    /// The longer of the two: a short batch among long ones is not believed.
    fn each(self) -> Duration {
        self.before.map_or(self.last, |before| before.max(self.last))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    count: u32,
    expected: Duration,
    /// Since when; none if it is empty.
    begun: Option<Instant>,
    /// What its commands are like, and how many are.
    kinds: [Option<(Likeness, u32)>; MOST_KINDS],
}

impl Batch {
    fn add(&mut self, like: Likeness, expected: Duration, now: impl FnOnce() -> Instant) {
        self.begun.get_or_insert_with(now);
        self.count_kind(like, 1);
        self.count += 1;
        self.expected += expected;
    }

    fn count_kind(&mut self, like: Likeness, count: u32) {
        let place = self.kinds.iter_mut().find(|kind| kind.is_none_or(|(other, _)| other == like));
        if let Some(kind) = place {
            kind.get_or_insert((like, 0)).1 += count;
        }
    }

    fn join(&mut self, other: &Batch) {
        self.begun = self.begun.or(other.begun);
        other.kinds.iter().flatten().for_each(|(like, count)| self.count_kind(*like, *count));
        self.count += other.count;
        self.expected += other.expected;
    }
}

impl<E> Pacer<E> {
    pub(crate) fn new() -> Pacer<E> {
        Pacer {
            known: HashMap::default(),
            open: Batch::default(),
            closed: VecDeque::new(),
            expected: Duration::ZERO,
            commands: 0,
            last_end: None,
            budget: Duration::ZERO,
            most: u32::MAX,
        }
    }

    /// What the commands in flight are expected to take.
    pub(crate) fn expected(&self) -> Duration {
        self.expected
    }

    /// Whether a command may be submitted, if `budget` may be in flight, or `least` commands if these take longer, and
    /// `most` commands.
    pub(crate) fn next(&mut self, like: Likeness, budget: Duration, least: u32, most: u32) -> Step {
        (self.budget, self.most) = (budget, most);
        let cost = self.cost(like);
        let full = (self.commands >= least && self.expected + cost > budget) || self.commands >= most;
        if full && !self.closed.is_empty() {
            return Step::Wait;
        }
        // Half of it, so that the device runs one half while we wait for the other.
        let with_event = self.open.expected + cost >= budget / 2 || self.open.count + 1 >= most.div_ceil(2);
        Step::Go { with_event }
    }

    /// The command was submitted.
    pub(crate) fn submitted(&mut self, like: Likeness, event: Option<E>, now: impl FnOnce() -> Instant) {
        self.add(like, now);
        // An event that is there anyway is good for a batch, too, if that is worth it.
        if let Some(event) = event
            && (self.open.expected >= self.budget / 4 || self.open.count >= self.most.div_ceil(2).min(64))
        {
            self.closed.push_back((std::mem::take(&mut self.open), event));
        }
    }

    /// As [`Pacer::submitted`], if the ends of others say nothing of this one's: it is a batch of its own.
    pub(crate) fn submitted_by_itself(&mut self, like: Likeness, event: E, now: impl FnOnce() -> Instant) {
        self.add(like, now);
        self.closed.push_back((std::mem::take(&mut self.open), event));
    }

    fn add(&mut self, like: Likeness, now: impl FnOnce() -> Instant) {
        let cost = self.cost(like);
        self.open.add(like, cost, now);
        self.expected += cost;
        self.commands += 1;
    }

    /// The event of the oldest batch.
    pub(crate) fn oldest(&self) -> Option<&E> {
        self.closed.front().map(|(_, event)| event)
    }

    /// The oldest batch has ended: at `end`, if that is known.
    pub(crate) fn ended(&mut self, end: Option<Instant>) {
        let Some((batch, _)) = self.closed.pop_front() else { return };
        self.expected = self.expected.saturating_sub(batch.expected);
        self.commands = self.commands.saturating_sub(batch.count);
        if let (Some(end), Some(begun)) = (end, batch.begun) {
            let since = self.last_end.map_or(begun, |last| last.max(begun));
            self.learn(&batch, end.saturating_duration_since(since));
        }
        self.last_end = end;
    }

    /// Nothing is in flight any more. What was, took `busy`, if that is known.
    pub(crate) fn drained(&mut self, busy: Option<Duration>) {
        if self.commands == 0 {
            return;
        }
        let mut all = std::mem::take(&mut self.open);
        while let Some((batch, _)) = self.closed.pop_front() {
            all.join(&batch);
        }
        (self.expected, self.commands, self.last_end) = (Duration::ZERO, 0, None);
        if let Some(busy) = busy {
            self.learn(&all, busy);
        }
    }

    /// Commands of several kinds took as long as they were expected to, in proportion.
    fn learn(&mut self, batch: &Batch, took: Duration) {
        if self.known.len() + MOST_KINDS > MOST_KNOWN {
            self.known.clear();
        }
        let kinds = batch.kinds.iter().flatten();
        let expected: Duration = kinds.clone().map(|(like, count)| self.cost(*like) * *count).sum();
        let factor = took.as_secs_f64() / expected.max(LEAST).as_secs_f64();
        for (like, _) in kinds {
            let each = self.cost(*like).mul_f64(factor).max(LEAST);
            let known = self.known.entry(like.key);
            known.and_modify(|known| *known = known.then(each)).or_insert_with(|| LastTwo::first(each));
        }
    }

    /// What a command is expected to take; of one that is not known, two make half of the budget.
    pub(crate) fn cost(&self, like: Likeness) -> Duration {
        self.known.get(&like.key).map(|known| known.each()).or(like.guess).unwrap_or(self.budget / 4).max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const KERNEL: Likeness = Likeness { key: 1, guess: None };
    const OTHER: Likeness = Likeness { key: 2, guess: None };

    /// Submits as long as it may; returns how many commands had no event, and how many had one.
    fn fill(pacer: &mut Pacer<u32>, like: Likeness, budget: Duration, most: u32, now: Instant) -> (u32, u32) {
        let mut counts = (0, 0);
        loop {
            match pacer.next(like, budget, 2, most) {
                Step::Wait => return counts,
                Step::Go { with_event } => {
                    pacer.submitted(like, with_event.then_some(0), || now);
                    if with_event { counts.1 += 1 } else { counts.0 += 1 }
                }
            }
        }
    }

    #[test]
    fn what_is_in_flight_stays_within_the_budget_once_it_is_known() {
        let mut now = Instant::now();
        let mut pacer = Pacer::new();
        // Four of the unknown.
        assert_eq!(fill(&mut pacer, KERNEL, 8 * MS, u32::MAX, now), (2, 2));
        now += 2 * MS;
        pacer.ended(Some(now));
        // They took a millisecond each, so eight of them are the budget, two of which are in flight.
        assert_eq!(pacer.expected(), 4 * MS);
        for _ in 0..20 {
            now += MS;
            let before = pacer.commands;
            fill(&mut pacer, KERNEL, 8 * MS, u32::MAX, now);
            assert!(pacer.commands <= 8 + 2 && pacer.commands >= before);
            let count = pacer.closed.front().unwrap().0.count;
            now += MS * count;
            pacer.ended(Some(now));
        }
        assert!(pacer.known[&KERNEL.key].each() <= 2 * MS);
        // With less to spend, fewer are in flight.
        while pacer.oldest().is_some() {
            pacer.ended(None);
        }
        pacer.drained(None);
        let (without, with) = fill(&mut pacer, KERNEL, MS, u32::MAX, now);
        assert_eq!((without, with), (0, 2));
    }

    #[test]
    fn short_commands_cost_few_events() {
        let now = Instant::now();
        let mut pacer: Pacer<u32> = Pacer::new();
        pacer.budget = 8 * MS;
        pacer.submitted(KERNEL, None, || now);
        pacer.drained(Some(Duration::from_micros(4)));
        let (without, with) = fill(&mut pacer, KERNEL, 8 * MS, u32::MAX, now);
        assert!(without > 1900 && with <= 3, "{without} {with}");
    }

    #[test]
    fn a_limit_of_commands_holds_whatever_they_take() {
        let now = Instant::now();
        for most in [1, 2, 3, 10, 1000] {
            let mut pacer: Pacer<u32> = Pacer::new();
            pacer.submitted(KERNEL, None, || now);
            pacer.drained(Some(Duration::ZERO));
            for _ in 0..5 {
                fill(&mut pacer, KERNEL, MS, most, now);
                assert!(pacer.commands <= most, "{} of {most}", pacer.commands);
                pacer.ended(Some(now));
            }
        }
    }

    #[test]
    fn batches_of_several_kinds_teach_in_proportion() {
        let now = Instant::now();
        let mut pacer: Pacer<u32> = Pacer::new();
        pacer.next(KERNEL, 8 * MS, 2, u32::MAX);
        pacer.submitted(KERNEL, None, || now);
        pacer.drained(None);
        assert!(pacer.known.is_empty());
        pacer.submitted(KERNEL, None, || now);
        pacer.submitted(OTHER, None, || now);
        pacer.drained(Some(5 * MS));
        assert_eq!((pacer.known[&KERNEL.key].each(), pacer.known[&OTHER.key].each()), (5 * MS / 2, 5 * MS / 2));
        // By itself it takes longer, so the other one takes less.
        pacer.submitted(OTHER, None, || now);
        pacer.drained(Some(4 * MS));
        assert_eq!(pacer.known[&OTHER.key].each(), 4 * MS);
        for _ in 0..100 {
            pacer.submitted(KERNEL, None, || now);
            pacer.submitted(OTHER, None, || now);
            pacer.drained(Some(5 * MS));
            pacer.submitted(OTHER, None, || now);
            pacer.drained(Some(4 * MS));
        }
        assert!(pacer.known[&KERNEL.key].each() < 3 * MS / 2, "{:?}", pacer.known);
        assert_eq!((pacer.expected(), pacer.commands), (Duration::ZERO, 0));
    }

    #[test]
    fn a_few_bytes_are_not_expected_to_take_long() {
        let now = Instant::now();
        let mut pacer: Pacer<u32> = Pacer::new();
        let read = Likeness::transfer(7, 4);
        // A kernel and what is read after it are in flight together, also if nothing is known of them.
        for like in [KERNEL, read, read, read, read] {
            assert!(matches!(pacer.next(like, 8 * MS, 2, u32::MAX), Step::Go { .. }));
            pacer.submitted(like, None, || now);
        }
        pacer.drained(Some(MS / 5));
        let kernel = pacer.known[&KERNEL.key].each();
        assert!((MS / 6..=MS / 5).contains(&kernel), "{kernel:?}");
    }

    #[test]
    fn it_learns_quickly_that_something_takes_long() {
        let now = Instant::now();
        let mut pacer: Pacer<u32> = Pacer::new();
        pacer.budget = 8 * MS;
        for took in [1, 100, 100] {
            pacer.submitted(KERNEL, None, || now);
            pacer.drained(Some(took * MS));
        }
        assert_eq!(pacer.known[&KERNEL.key].each(), 100 * MS);
        // Longer than the budget: one at a time, with another behind it.
        assert_eq!(fill(&mut pacer, KERNEL, 8 * MS, u32::MAX, now), (0, 2));
        pacer.drained(None);
        assert_eq!(pacer.next(KERNEL, 8 * MS, 1, u32::MAX), Step::Go { with_event: true });
        pacer.submitted(KERNEL, Some(0), || now);
        assert_eq!(pacer.next(KERNEL, 8 * MS, 1, u32::MAX), Step::Wait);
    }
}
