//! Reads that the program is about to ask for.
//!
//! Many programs wait for a kernel and then read a few bytes of what it made, again and again, and each such read is a
//! round trip. What a program has done a few times after the same step it will do again: so when it begins to wait, the
//! reads that will probably follow are asked for along with it, and their data comes back with what it waits for.
//!
//! Nobody can tell the difference. The reads stand in the same in-order queue, at the very place where the program's own
//! would stand; what they brought is used only if not a single request was sent meanwhile, and only in a context with one
//! queue, where nothing else can have changed the memory. A habit that does not hold is forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use telecl_sys::CL_COMPLETE;
use telecl_wire::Ids;
use telecl_wire::request::{Command, ReadBuffer};

use super::memory::Memory;
use super::queue::Queue;
use crate::host::Landing;
use crate::registry::lock;
use crate::session::Pending;

/// Longer reads are worth their own round trip.
const LONGEST: u64 = 4 << 10;

/// How many reads are asked for ahead.
const FURTHEST: usize = 4;

/// A habit is followed from this trust on; it gains by one and loses by one.
const TRUSTED: u8 = 2;
const MOST_TRUSTED: u8 = 4;

/// So many habits of one queue are remembered.
const HABITS: usize = 64;

/// Something the program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// A wait for an event or a finish, after a run of this kernel.
    Wait {
        kernel: u64,
    },
    Read(Span),
}

/// A part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Span {
    pub(super) buffer: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// What a queue knows of its program.
#[derive(Debug, Default)]
pub(super) struct Foresight(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The last step, and how many requests had been sent then.
    last: Option<(Step, u64)>,
    habits: HashMap<Step, Habit>,
    /// Reads that were asked for ahead, in their order.
    ahead: VecDeque<Ahead>,
}

/// What has followed a step.
#[derive(Debug)]
struct Habit {
    next: Span,
    buffer: Weak<Memory>,
    trust: u8,
}

/// A read that was asked for ahead.
#[derive(Debug)]
struct Ahead {
    after: Step,
    span: Span,
    /// How many requests stand before it on the stream.
    sent: u64,
    landing: Arc<Landing>,
}

impl State {
    /// What was asked for ahead has come to nothing.
    fn discard_ahead(&mut self) {
        for Ahead { after, .. } in self.ahead.drain(..) {
            if let Some(habit) = self.habits.get_mut(&after) {
                habit.trust = habit.trust.saturating_sub(1);
            }
        }
    }

    /// Notes that `span` was read after the last step, if nothing came in between.
    fn learn(&mut self, span: Span, buffer: Weak<Memory>, sent: u64) {
        let Some((step, _)) = self.last.filter(|(_, then)| *then == sent) else { return };
        if self.habits.len() >= HABITS && !self.habits.contains_key(&step) {
            self.habits.clear();
        }
        match self.habits.get_mut(&step) {
            Some(habit) if habit.next == span => habit.trust = (habit.trust + 1).min(MOST_TRUSTED),
            Some(habit) if habit.trust > 0 => habit.trust -= 1,
            _ => {
                self.habits.insert(step, Habit { next: span, buffer, trust: 1 });
            }
        }
    }
}

impl Queue {
    /// Whether nothing but this queue's commands, in their order, can change a buffer.
    fn is_foreseeable(&self) -> bool {
        self.is_in_order() && self.context.queues_made() == 1
    }

    /// The program waits for what is in the queue: asks for what it will probably read then.
    pub(super) fn foresee_wait(&self) {
        if self.is_foreseeable() {
            let step = Step::Wait { kernel: self.last_kernel() };
            let mut state = lock(&self.foresight.0);
            state.discard_ahead();
            self.take_step(&mut state, step);
        }
    }

    /// The program reads: what was asked for ahead, if that is it. Otherwise the caller asks for it, and then calls
    /// [`Queue::foresee_read`].
    pub(super) fn foreseen(&self, span: Span, buffer: &Arc<Memory>) -> Option<Arc<Landing>> {
        if !(1..=LONGEST).contains(&span.size) || !self.is_foreseeable() {
            return None;
        }
        let sent = self.context.session.sent();
        let landing = {
            let mut state = lock(&self.foresight.0);
            state.learn(span, Arc::downgrade(buffer), sent);
            let valid = state.ahead.front().is_some_and(|ahead| ahead.span == span && ahead.sent == sent);
            if !valid {
                state.discard_ahead();
                return None;
            }
            let ahead = state.ahead.pop_front()?;
            if state.ahead.is_empty() {
                self.take_step(&mut state, Step::Read(span));
            } else {
                state.last = Some((Step::Read(span), sent));
            }
            ahead.landing
        };
        let session = &self.context.session;
        // What was asked for along with this read is on its way before anybody waits.
        let _ = session.push_out();
        session.receive_until(|| landing.has_ended());
        (landing.wait() == CL_COMPLETE).then_some(landing)
    }

    /// The program's own read is on its way: asks for what it will probably read next.
    pub(super) fn foresee_read(&self, span: Span) {
        if (1..=LONGEST).contains(&span.size) && self.is_foreseeable() {
            self.take_step(&mut lock(&self.foresight.0), Step::Read(span));
        }
    }

    /// Remembers the step and follows the habits from there.
    fn take_step(&self, state: &mut State, step: Step) {
        let session = &self.context.session;
        let mut after = step;
        while state.ahead.len() < FURTHEST {
            let Some(habit) = state.habits.get(&after).filter(|habit| habit.trust >= TRUSTED) else { break };
            let (span, buffer) = (habit.next, habit.buffer.upgrade());
            // To read the same again brings nothing new.
            if after == Step::Read(span) || step == Step::Read(span) || state.ahead.iter().any(|a| a.span == span) {
                break;
            }
            let Some(buffer) = buffer.filter(|buffer| !buffer.has_destructors()) else { break };
            let landing = Landing::new(span.size as usize);
            let event = session.next_id();
            session.expect(event, Pending::landing(&landing));
            let command = Command { queue: self.id(), event, seen: false, waits: Ids(&[]) };
            let request = ReadBuffer { command, buffer: span.buffer, offset: span.offset, size: span.size };
            let Ok(sent) = session.post_ahead(&request) else {
                session.forget(event);
                break;
            };
            drop(buffer);
            state.ahead.push_back(Ahead { after, span, sent, landing });
            after = Step::Read(span);
        }
        state.last = Some((step, session.sent()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Span = Span { buffer: 1, offset: 0, size: 4 };
    const SECOND: Span = Span { buffer: 2, offset: 8, size: 4 };

    const STEP: Step = Step::Wait { kernel: 7 };

    /// The program does `span` after [`STEP`]. No test looks at the buffer.
    fn follow(state: &mut State, span: Span) {
        state.last = Some((STEP, 1));
        state.learn(span, Weak::new(), 1);
    }

    #[test]
    fn a_habit_is_followed_after_two_times_and_changed_by_another() {
        let mut state = State::default();
        follow(&mut state, FIRST);
        assert!(state.habits[&STEP].trust < TRUSTED);
        follow(&mut state, FIRST);
        assert!(state.habits[&STEP].trust >= TRUSTED);
        (0..3).for_each(|_| follow(&mut state, SECOND));
        assert_eq!((state.habits[&STEP].next, state.habits[&STEP].trust), (SECOND, 1));
    }

    #[test]
    fn what_comes_after_another_request_is_no_habit() {
        let mut state = State { last: Some((STEP, 1)), ..State::default() };
        state.learn(FIRST, Weak::new(), 2);
        assert!(state.habits.is_empty());
    }

    #[test]
    fn what_was_asked_for_in_vain_costs_trust() {
        let mut state = State::default();
        (0..10).for_each(|_| follow(&mut state, FIRST));
        assert_eq!(state.habits[&STEP].trust, MOST_TRUSTED);
        for _ in 0..3 {
            state.ahead.push_back(Ahead { after: STEP, span: FIRST, sent: 0, landing: Landing::new(4) });
            state.ahead.push_back(Ahead { after: Step::Read(FIRST), span: SECOND, sent: 0, landing: Landing::new(4) });
            state.discard_ahead();
        }
        assert!(state.ahead.is_empty());
        assert!(state.habits[&STEP].trust < TRUSTED);
    }
}
