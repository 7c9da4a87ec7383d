//! Waiting for the end of the vendor's commands without a thread for each.
//!
//! The vendor's callback is the fast way. It cannot be the only one: PoCL 3.1 never calls back for a command that failed
//! because of its wait list (its events simply turn to -1), and a driver may refuse to register a callback at all. So
//! everything that is waited for is also on a list, and [`Pending::sweep`] looks at the events themselves.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use telecl_opencl::Event;
use telecl_sys::CL_COMPLETE;

/// The commands that are waited for. Cheap to clone; its lock is held for a few lines and no other is taken meanwhile.
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

type Ended = Box<dyn FnOnce(i32, &Event) + Send>;

/// One command, and what to do when it has ended.
struct Wait {
    event: Event,
    /// Taken by whoever notices first. It may own memory that the device uses until then.
    ended: Mutex<Option<Ended>>,
}

impl Pending {
    /// Runs `ended` with the event and its final status, once, when it has ended. What `ended` owns stays alive until then.
    pub(crate) fn on_end(&self, event: &Event, ended: impl FnOnce(i32, &Event) + Send + 'static) {
        let wait = Arc::new(Wait { event: event.clone(), ended: Mutex::new(Some(Box::new(ended))) });
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

    fn is_over(&self) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("event", &self.event).finish_non_exhaustive()
    }
}
