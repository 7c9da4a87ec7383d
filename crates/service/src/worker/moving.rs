//! Moving the session out to host memory, when others need the devices' memory, and back before its next command.
//!
//! All memory objects move together. They leave when nothing of the session is under way: when it is told to stop, or
//! rests, or waits for its turn or for more memory. What keeps them is the program's: a pipe, a buffer whose address it
//! knows, commands that wait for an event which it has not set. The program notices nothing but time.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use telecl_net::{FrameReceiver, Progress, ReceiveError};
use telecl_opencl::{ClError, ClResult};
use telecl_sys::*;
use tracing::debug;

use super::account::{Held, TooMuch};
use super::broker::LOST;
use super::session::Session;
use crate::channel::MemoryWish;

/// How long to wait for memory before turns are given back.
const SOON: Duration = Duration::from_millis(1);

/// How long to wait for memory before looking whether the session has to leave itself.
const LOOK: Duration = Duration::from_millis(5);

/// How long the executor sleeps while the session is to be moved out and commands are under way.
const UNDER_WAY: Duration = Duration::from_millis(2);

/// Where the session's memory objects are, and what the broker was told.
#[derive(Debug, Default)]
pub(crate) struct Residence {
    moved_out: bool,
    /// Whether the broker knows that the session cannot leave now.
    said_no: bool,
    /// The vendor did not let it leave: it is not tried again.
    stuck: bool,
}

/// What has come of a wish for memory.
enum Outcome {
    Granted,
    /// The session was moved out instead, and wants more now.
    MovedOut,
    Denied(String),
}

impl Session {
    pub(super) fn is_moved_out(&self) -> bool {
        self.residence.moved_out
    }

    /// Sees to it that the session's memory objects are on their devices.
    pub(super) fn be_resident(&mut self) -> ClResult<()> {
        if !self.residence.moved_out {
            return Ok(());
        }
        self.come_in(&MemoryWish::default()).map_err(|too_much| {
            let contexts: Vec<u64> = self.contexts.iter().map(|(id, _)| id).collect();
            contexts.into_iter().for_each(|context| self.tell_no_memory(context, &too_much));
            ClError(CL_MEM_OBJECT_ALLOCATION_FAILURE)
        })
    }

    /// Sees to it that there is room for a new object, and that all others are there.
    pub(super) fn find_room_for(&mut self, held: &Held) -> Result<(), TooMuch> {
        // What is free by now is not to be missing.
        self.account.give_back();
        self.come_in(&held.wish())?;
        held.arrive();
        Ok(())
    }

    /// Takes memory for all objects that are moved out, and for something new, and has them back.
    fn come_in(&mut self, new: &MemoryWish) -> Result<(), TooMuch> {
        loop {
            let mut wish = new.clone();
            if self.residence.moved_out {
                self.backings.for_each_held(|held| wish.add(&held.wish()));
            }
            if !wish.is_empty() {
                match self.reserve_or_leave(&wish) {
                    Outcome::Granted => {}
                    Outcome::MovedOut => continue,
                    Outcome::Denied(reason) => return Err(TooMuch(reason)),
                }
            }
            if !self.residence.moved_out {
                return Ok(());
            }
            let begin = Instant::now();
            self.leave_turns();
            let came = self.backings.come_back();
            self.take_turns_back();
            return match came {
                Ok(()) => {
                    self.residence.moved_out = false;
                    debug!(session = self.link.session(), took = ?begin.elapsed(), "session came back");
                    Ok(())
                }
                Err(error) => {
                    self.broker.unreserve(&wish);
                    Err(TooMuch(format!("the session cannot come back from host memory: {error}")))
                }
            };
        }
    }

    /// Asks for memory, and waits as long as it takes others to leave. If it is this session that has to leave, it does.
    fn reserve_or_leave(&mut self, wish: &MemoryWish) -> Outcome {
        let asked = match self.broker.ask_for(wish) {
            Ok(asked) => asked,
            Err(reason) => return Outcome::Denied(reason),
        };
        let outcome = |answer: Result<(), String>| answer.map_or_else(Outcome::Denied, |()| Outcome::Granted);
        match asked.answered.recv_timeout(SOON) {
            Ok(answer) => return outcome(answer),
            Err(RecvTimeoutError::Disconnected) => return Outcome::Denied(LOST.to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let begin = Instant::now();
        self.enqueue_open_reads();
        // Turns are for those who can use them.
        self.leave_turns();
        let outcome = loop {
            let broker = Arc::clone(&self.broker);
            let (said_no, came) = (self.residence.said_no, RefCell::new(None));
            let waits = || came.borrow().is_none() && (said_no || !broker.wants_it_out());
            // Somebody else has to make room first: that takes long.
            self.wait_while(Duration::ZERO, waits, || match asked.answered.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                answer => _ = came.replace(Some(answer.unwrap_or_else(|_| Err(LOST.to_owned())))),
            });
            if let Some(answer) = came.into_inner() {
                break outcome(answer);
            }
            if self.may_leave() {
                if let Ok(()) = self.broker.withdraw(&asked) {
                    // It has come after all; who wants this session out gets it later.
                    break Outcome::Granted;
                }
                self.leave_if_asked();
                break Outcome::MovedOut;
            }
            self.say_no();
        };
        self.take_turns_back();
        debug!(session = self.link.session(), waited = ?begin.elapsed(), "session waited for memory");
        outcome
    }

    /// Whether nothing of what the program does keeps the session from leaving.
    pub(super) fn may_leave(&self) -> bool {
        !self.residence.stuck
            && self.open_reads.is_empty()
            && self.unset.values().all(|gates| gates.is_empty())
            && self.backings.can_leave()
    }

    fn say_no(&mut self) {
        if !self.residence.said_no {
            self.residence.said_no = true;
            self.broker.stays();
        }
    }

    /// If others need its memory, waits for what is under way, and moves the session out; `true` if it was.
    pub(super) fn leave_if_asked(&mut self) -> bool {
        if !self.broker.wants_it_out() {
            return false;
        }
        if self.residence.moved_out {
            self.broker.moved(Duration::ZERO);
            return true;
        }
        if !self.may_leave() {
            self.say_no();
            return false;
        }
        (0..self.gates.len()).for_each(|gate| self.drain(gate));
        let begin = Instant::now();
        self.clears.finish();
        self.leave_turns();
        let left = self.backings.leave();
        self.take_turns_back();
        match left {
            Ok(()) => {
                self.residence = Residence { moved_out: true, ..Residence::default() };
                debug!(session = self.link.session(), took = ?begin.elapsed(), "session was moved out");
                // Before what is free by now: that it has left is not to be noticed before it has said so.
                self.broker.moved(begin.elapsed());
                self.account.give_back();
                true
            }
            Err(error) => {
                debug!(session = self.link.session(), %error, "the session cannot be moved out");
                self.residence.stuck = true;
                self.say_no();
                false
            }
        }
    }

    /// As [`Session::leave_if_asked`], but does not wait: for an executor that has nothing to do.
    pub(super) fn leave_if_resting(&mut self) {
        if self.broker.wants_it_out() && !self.gates.iter().any(|gate| gate.turns.is_active()) {
            self.leave_if_asked();
        }
    }

    /// Sleeps until there is something to receive, or the session is to be moved out, or a slice to be looked after.
    pub(super) fn sleep(&mut self, receiver: &mut FrameReceiver) -> Result<Progress, ReceiveError> {
        let broker = Arc::clone(&self.broker);
        let eviction = broker.eviction().filter(|_| self.account.moves());
        // What the program keeps from ending, only the program can change.
        let leaves = eviction.is_some() && broker.wants_it_out() && self.may_leave();
        let keeps = self.keeps_slice_for();
        let limit = [keeps, leaves.then_some(UNDER_WAY)].into_iter().flatten().min();
        match keeps {
            Some(_) => self.keep_turns(),
            None => self.leave_turns(),
        }
        let progress = if eviction.is_none() && limit.is_none() {
            receiver.wait()
        } else {
            receiver.sleep_beside(eviction, limit).map_err(ReceiveError::from).and_then(|()| receiver.look())
        };
        if eviction.is_some() {
            broker.hear_eviction();
        }
        self.take_turns_back();
        progress
    }
}
