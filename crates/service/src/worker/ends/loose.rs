//! The commands of out-of-order queues.
//!
//! They end in any order. For them there is the vendor's callback, but it cannot be the only way: PoCL 3.1 never calls back
//! for a command that failed because of its wait list (its events simply turn to -1), and a driver may refuse to register a
//! callback at all. So they are also on a list, and [`Pending::sweep`] looks at the events themselves.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use telecl_opencl::Event;
use telecl_sys::CL_COMPLETE;

use super::{Ended, Running, is_certain, next_number};
use crate::worker::turns::Turns;

/// The commands of one out-of-order queue.
#[derive(Clone, Debug)]
pub(crate) struct Loose {
    pending: Pending,
    /// As that of [`Lane`](super::Lane).
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

    pub(super) fn on_end(&self, event: &Arc<Event>, ended: impl FnOnce(i32, &Arc<Event>) + Send + 'static) {
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

    pub(super) fn block(&self, blockers: &[u64]) {
        self.lock().next = blockers.to_vec();
    }

    pub(super) fn unblock(&self, event: u64) {
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
