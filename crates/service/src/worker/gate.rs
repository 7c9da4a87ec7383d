//! The gate that every command passes before it is submitted: the session must have its turn on the device, and not too
//! much in flight there.
//!
//! Commands that wait for an event which the program has yet to set do not pass it: they are not for the device yet, and
//! to wait for them here might be to wait for ever, because the program's word comes behind them in the same stream. They
//! pass when the event is set.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telecl_net::processors_are_few;
use telecl_opencl::{ClError, ClResult, Event, Order};
use telecl_sys::*;
use telecl_wire::request::Command;

use super::bounds::{MOST_BLOCKERS, at_most};
use super::ends::Weight;
use super::pace::{Likeness, Pacer, Step};
use super::session::Session;
use super::turns::Turns;
use crate::turn::Standing;

/// How much device time may be in flight while nobody else wants the device: whoever comes waits for so much.
const ALONE: Duration = Duration::from_millis(8);
/// … and while somebody does, or has done a moment ago.
const SHARED: Duration = Duration::from_micros(250);
const A_MOMENT: Duration = Duration::from_millis(100);
/// … of a session that rests now and then: it ends by itself, and nobody waits for more than its slice.
const BURST: Duration = Duration::from_millis(2);

/// So much of a turn is its beginning.
const BEGINNING: Duration = Duration::from_millis(1);

/// How long a device that others want is kept for the session's next command, as long as there is something left of the
/// slice: to change to another session and back takes longer.
const GRACE: Duration = Duration::from_micros(200);

/// How long to look before sleeping, where there are processors for that.
const LOOK: Duration = Duration::from_micros(50);
/// … if others want the device, and what is waited for is expected within that time: whoever has to be woken keeps the
/// device from the others meanwhile, and that may take a millisecond.
const LOOK_SHARED: Duration = Duration::from_millis(1);

/// How long to sleep before looking again, in case that nobody woke us.
const NAP: Duration = Duration::from_millis(100);
/// … if the session may be moved out.
const LEAVE: Duration = Duration::from_millis(20);

/// A device of the session, as its executor sees it.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(super) turns: Arc<Turns>,
    pacer: Pacer<Arc<Event>>,
    /// When somebody else last wanted the device, if that was a moment ago.
    contended: Option<Instant>,
    /// How long the session waited for its last turn; none before its first.
    waited: Option<Duration>,
}

impl Gate {
    pub(crate) fn new(turns: Turns) -> Gate {
        Gate { turns: Arc::new(turns), pacer: Pacer::new(), contended: None, waited: None }
    }

    /// How long to look before sleeping, if that is expected to be all after this time.
    fn look(&self, expected: Duration) -> Duration {
        if self.contended.is_some() && expected <= LOOK_SHARED { LOOK_SHARED } else { LOOK }
    }
}

/// Whether a command is to be a part of the present slice: at least half of it, if it takes as long as it is expected to.
/// The first always is.
fn fits(turns: &Turns, pacer: &Pacer<Arc<Event>>, like: Likeness) -> bool {
    turns.slice_left() > pacer.expected() + pacer.cost(like) / 2 || turns.used().is_zero()
}

/// What the gate wants to know of a command when it was submitted.
#[derive(Clone, Copy, Debug)]
#[must_use = "a command that was submitted is to be reported by `Session::passed`"]
pub(crate) struct Pass {
    gate: usize,
    like: Likeness,
    /// Whether its event is needed.
    pub(super) with_event: bool,
    /// Whether it is to be counted by itself, because the ends of others say nothing of its own.
    by_itself: bool,
    /// Whether it waits for an event of the program.
    blocked: bool,
}

/// A command that waits for events of the program, of a session that may have so many.
#[derive(Debug)]
pub(crate) struct Blocked {
    blockers: Vec<u64>,
    gate: usize,
    like: Likeness,
    event: Option<Arc<Event>>,
}

impl Session {
    /// Waits until the command may be submitted. `all` says that it waits for everything before it in its queue.
    pub(super) fn pass(&mut self, command: &Command<'_>, like: Likeness, all: bool) -> ClResult<Pass> {
        let entry = self.queues.get(command.queue)?;
        let (gate, out_of_order) = (entry.gate, entry.out_of_order);
        self.completion.check_room()?;
        self.gates[gate].turns.let_go();
        let by_itself = self.counts_commands() && (out_of_order || self.queues.len() > 1);
        loop {
            self.be_resident()?;
            if !self.unset.is_empty() && self.is_blocked(command, all)? {
                let with_event = out_of_order || self.counts_commands();
                return Ok(Pass { gate, like, with_event, by_itself, blocked: true });
            }
            match self.approach(gate, like, true) {
                Some(with_event) => {
                    let with_event = with_event || out_of_order || by_itself;
                    return Ok(Pass { gate, like, with_event, by_itself, blocked: false });
                }
                None => _ = self.leave_if_asked(),
            }
        }
    }

    /// The command was submitted.
    pub(super) fn passed(&mut self, pass: Pass, event: Option<&Arc<Event>>) {
        let Pass { gate, like, by_itself, blocked, .. } = pass;
        let Gate { turns, pacer, .. } = &mut self.gates[gate];
        turns.let_go();
        let event = event.cloned();
        match event {
            Some(event) if by_itself && !blocked => pacer.submitted_by_itself(like, event, Instant::now),
            event if !blocked => pacer.submitted(like, event, Instant::now),
            event if self.counts_commands() => {
                self.blocked.push(Blocked { blockers: self.last_blockers.clone(), gate, like, event });
            }
            _ => {}
        }
    }

    /// Whether the session may have so many commands and no more.
    pub(super) fn counts_commands(&self) -> bool {
        self.limits.commands < u32::MAX
    }

    /// Waits until something may be submitted to a device; says whether its event is needed.
    pub(super) fn wait_at(&mut self, gate: usize, like: Likeness) -> bool {
        self.approach(gate, like, false).unwrap_or(true)
    }

    /// As [`Session::wait_at`]. With `leaves`, does not wait if the session is to be moved out and can be; then there is no
    /// answer.
    fn approach(&mut self, gate: usize, like: Likeness, leaves: bool) -> Option<bool> {
        // Those that wait count, too. One goes at any rate: it may be what the program waits for before it sets its event.
        let blocked = u32::try_from(self.blocked.len()).unwrap_or(u32::MAX);
        let most = self.limits.commands.saturating_sub(blocked).max(1);
        loop {
            if leaves && self.broker.wants_it_out() && self.may_leave() {
                return None;
            }
            let Gate { turns, pacer, contended, .. } = &mut self.gates[gate];
            turns.wake_up();
            if !turns.is_active() {
                pacer.drained(turns.last_busy());
            }
            let standing = turns.standing();
            if standing != Standing::Nothing {
                turns.notice_turn();
            }
            let is_alone = match standing {
                Standing::Alone => true,
                Standing::Resting if turns.take_up() => true,
                Standing::Slice if fits(turns, pacer, like) => false,
                Standing::Slice | Standing::Stop => {
                    self.give_back(gate);
                    continue;
                }
                Standing::Nothing | Standing::Resting => {
                    self.wait_for_turn(gate, leaves);
                    continue;
                }
            };
            *contended = if is_alone { contended.filter(|at| at.elapsed() < A_MOMENT) } else { Some(Instant::now()) };
            // While we wait for one, the device has the other. But who runs one command at a time wants the device again
            // soon after our turn has begun, and shall not find two of ours there.
            let (budget, least) = match contended {
                None => (ALONE, 2),
                Some(_) if turns.is_brief() => (BURST, 2),
                Some(_) => (SHARED, if turns.used() < BEGINNING { 1 } else { 2 }),
            };
            match pacer.next(like, budget, least, most) {
                Step::Go { with_event } => return Some(with_event),
                Step::Wait => self.wait_for_oldest(gate),
            }
        }
    }

    /// Somebody else wants the device, or the slice is used up: drains, and says so.
    fn give_back(&mut self, gate: usize) {
        self.gates[gate].contended = Some(Instant::now());
        let turns = Arc::clone(&self.gates[gate].turns);
        turns.want();
        self.seal(gate);
        let look = self.gates[gate].look(self.gates[gate].pacer.expected());
        self.wait_while(look, || turns.is_active(), || _ = turns.wait_until_drained(NAP));
        // A slice may become a stop meanwhile. What comes after one has gone back is the next turn.
        while let standing @ (Standing::Slice | Standing::Stop) = turns.standing() {
            if turns.give_back(standing) {
                break;
            }
        }
    }

    /// Nothing more is to be submitted for a while: waits for what is under way, and leaves the device to others.
    pub(super) fn drain(&mut self, gate: usize) {
        let turns = Arc::clone(&self.gates[gate].turns);
        self.seal(gate);
        self.wait_while(LOOK, || turns.is_active(), || _ = turns.wait_until_drained(NAP));
        turns.decline();
        turns.fall_asleep();
        turns.wake_up();
    }

    /// Returns without a turn if the session may leave and is to be moved out.
    fn wait_for_turn(&mut self, gate: usize, leaves: bool) {
        let turns = Arc::clone(&self.gates[gate].turns);
        let broker = Arc::clone(&self.broker);
        // Nobody wakes those who were just about to sleep.
        let (leaves, nap) = if leaves && self.may_leave() { (true, LEAVE) } else { (false, NAP) };
        let begin = Instant::now();
        if self.gates[gate].waited.is_some() {
            // Whoever rested may have lost the device to somebody without being asked.
            self.gates[gate].contended = Some(begin);
        }
        turns.want();
        turns.ask();
        // Other devices of the session must not wait for this one.
        self.gates
            .iter()
            .filter(|other| !Arc::ptr_eq(&other.turns, &turns))
            .for_each(|other| other.turns.fall_asleep());
        let waits = || turns.standing() == Standing::Nothing && !(leaves && broker.wants_it_out());
        let look = self.gates[gate].look(self.gates[gate].waited.unwrap_or_default());
        self.wait_while(look, waits, || {
            turns.await_turn(nap);
            if turns.standing() == Standing::Nothing {
                // There may be another broker by now.
                turns.ask();
            }
        });
        self.gates.iter().for_each(|other| other.turns.wake_up());
        if turns.standing() != Standing::Nothing {
            let waited = begin.elapsed();
            self.gates[gate].waited = Some(waited);
            turns.begin_turn(waited);
        }
    }

    fn wait_for_oldest(&mut self, gate: usize) {
        let Some(oldest) = self.gates[gate].pacer.oldest().cloned() else { return };
        let has_ended = || oldest.status().is_ok_and(|status| status <= CL_COMPLETE);
        if has_ended() {
            return self.gates[gate].pacer.ended(None);
        }
        self.gates[gate].turns.hold();
        // Fails where the command does; that is told elsewhere.
        let look = self.gates[gate].look(self.gates[gate].pacer.expected());
        self.wait_while(look, || !has_ended(), || _ = oldest.wait());
        self.gates[gate].pacer.ended(Some(Instant::now()));
    }

    /// Waits, with what is to be reported meanwhile reported: looks for a while, where there are processors for that, then
    /// sleeps.
    pub(super) fn wait_while(&mut self, look: Duration, mut waits: impl FnMut() -> bool, mut sleep: impl FnMut()) {
        if self.unflushed {
            self.flush_queues();
        }
        let lanes = self.completion.lanes().clone();
        let begin = Instant::now();
        while waits() {
            if lanes.look() {
                self.link.flush();
            } else if processors_are_few() || begin.elapsed() > look {
                self.link.flush();
                lanes.hand_over_all();
                sleep();
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Sees to it that the end of what is under way will be noticed.
    fn seal(&mut self, gate: usize) {
        for (_, entry) in self.queues.iter_mut().filter(|(_, entry)| entry.gate == gate) {
            if entry.ends.needs_seal() {
                entry.seal();
                self.unflushed = true;
            }
        }
    }

    /// The executor has nothing to do at the moment. A turn that others wait for goes back, if the next command does not
    /// come soon.
    pub(super) fn look_after_turns(&mut self) {
        for gate in 0..self.gates.len() {
            let turns = &self.gates[gate].turns;
            let standing = turns.standing();
            if standing != Standing::Nothing && !turns.is_active() {
                turns.note_rest();
            }
            if !matches!(standing, Standing::Slice | Standing::Stop) {
                continue;
            }
            if self.gates[gate].turns.is_active() {
                self.seal(gate);
                if self.unflushed {
                    self.flush_queues();
                }
                continue;
            }
            let turns = &self.gates[gate].turns;
            if standing == Standing::Stop || turns.slice_left().is_zero() || turns.idle() > GRACE {
                turns.give_back(standing);
            }
        }
    }

    /// How long the executor may sleep before it has to look after a slice again; none if it has none, or one that is
    /// used up: that ends with what is under way, and others notice it.
    pub(super) fn keeps_slice_for(&self) -> Option<Duration> {
        let turns = self.gates.iter().map(|gate| &gate.turns);
        let slices = turns.filter(|turns| turns.standing() == Standing::Slice && !turns.slice_left().is_zero());
        slices.map(|turns| if turns.is_active() { GRACE } else { GRACE.saturating_sub(turns.idle()) }).min()
    }

    /// The executor may be about to sleep: sees to it that others will notice the end of everything.
    pub(super) fn seal_all(&mut self) {
        for gate in 0..self.gates.len() {
            if self.gates[gate].turns.is_active() {
                self.seal(gate);
            }
        }
        if self.unflushed {
            self.flush_queues();
        }
    }

    /// The executor is about to sleep: from now on others look after the turns.
    pub(super) fn leave_turns(&self) {
        self.gates.iter().for_each(|gate| gate.turns.fall_asleep());
    }

    /// The executor is about to sleep for a moment, and keeps its slices.
    pub(super) fn keep_turns(&self) {
        self.gates.iter().for_each(|gate| gate.turns.nap());
    }

    pub(super) fn take_turns_back(&self) {
        self.gates.iter().for_each(|gate| gate.turns.wake_up());
    }
}

/// Events that the program sets.
impl Session {
    /// Whether a command waits for an event that the program has not set; notes it, so that what comes after the command
    /// is known to wait, too. `all` says that it waits for everything before it in its queue.
    fn is_blocked(&mut self, command: &Command<'_>, all: bool) -> ClResult<bool> {
        let entry = self.queues.get(command.queue)?;
        let mut blockers = entry.blockers.clone();
        if all {
            blockers.extend(&entry.loose_blockers);
        }
        for id in command.waits.iter() {
            if self.unset.contains_key(&id) {
                blockers.push(id);
            } else if let Some(theirs) = self.blocked_events.get(&id) {
                blockers.extend(theirs.iter().filter(|id| self.unset.contains_key(id)));
            }
        }
        blockers.sort_unstable();
        blockers.dedup();
        at_most(blockers.len(), MOST_BLOCKERS)?;
        self.last_blockers.clone_from(&blockers);
        if blockers.is_empty() {
            entry.ends.block(&[]);
            return Ok(false);
        }
        // Who waits here would wait for ever: the program's word comes behind the command.
        if self.blocked.len() >= self.limits.commands as usize {
            return Err(ClError(CL_OUT_OF_RESOURCES));
        }
        let entry = self.queues.get_mut(command.queue)?;
        if entry.ends.needs_seal() {
            entry.seal();
        }
        entry.ends.block(&blockers);
        for blocker in &blockers {
            self.unset.entry(*blocker).or_default().insert(entry.gate);
        }
        if entry.out_of_order {
            // Only a barrier makes later commands wait.
            entry.loose_blockers.extend(&blockers);
            entry.loose_blockers.sort_unstable();
            entry.loose_blockers.dedup();
        } else {
            entry.blockers.clone_from(&blockers);
        }
        if command.event != 0 {
            self.blocked_events.insert(command.event, blockers);
        }
        Ok(true)
    }

    /// An event of the program is about to be set: waits for the turns of what has waited for it.
    pub(super) fn pass_unblocked(&mut self, event: u64) {
        for gate in self.unset.get(&event).cloned().unwrap_or_default() {
            self.wait_at(gate, Likeness::of(event, 0));
        }
    }

    /// … and was set.
    pub(super) fn unblock(&mut self, event: u64) {
        self.unset.remove(&event);
        for (_, entry) in self.queues.iter_mut() {
            entry.blockers.retain(|blocker| *blocker != event);
            entry.loose_blockers.retain(|blocker| *blocker != event);
            entry.ends.unblock(event, entry.blockers.is_empty());
        }
        self.last_blockers.retain(|blocker| *blocker != event);
        for mut command in std::mem::take(&mut self.blocked) {
            command.blockers.retain(|blocker| *blocker != event);
            let pacer = &mut self.gates[command.gate].pacer;
            match command.event {
                _ if !command.blockers.is_empty() => self.blocked.push(command),
                Some(event) => pacer.submitted_by_itself(command.like, event, Instant::now),
                None => pacer.submitted(command.like, None, Instant::now),
            }
        }
        if self.unset.is_empty() {
            self.blocked_events.clear();
        }
    }
}

impl super::queue::QueueEntry {
    /// Puts an event behind what has none.
    pub(super) fn seal(&mut self) -> Option<Arc<Event>> {
        let marker = Arc::new(self.queue.marker(&Order::new().with_event()).ok()??);
        self.ends.note_command();
        self.ends.on_end(&marker, Weight::Light, |_, _| {});
        self.unflushed = true;
        Some(marker)
    }
}
