//! Waiting for the end of the vendor's commands.
//!
//! Commands of an in-order queue end in order, so one thread waits for them one after the other: that is as fast as
//! the vendor's own clWaitForEvents. Callbacks would not do: NVIDIA's driver (580) gives them
//! CL_COMPLETE where the event has failed, and PoCL 3.1 does not always call.
//!
//! Commands of an out-of-order queue end in any order. For them there is the vendor's callback, but it cannot be the
//! only way: PoCL 3.1 never calls back for a command that failed because of its wait list (its events simply turn to
//! -1), and a driver may refuse to register a callback at all. So they are also on a list, and [`Pending::sweep`] looks
//! at the events themselves.

use std::fmt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use telecl_opencl::{ClError, Event};
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
pub(crate) struct Wait {
    event: Event,
    /// Taken by whoever notices first. It may own memory that the device uses until then.
    ended: Mutex<Option<Ended>>,
}

/// Notices the end of the commands of one queue.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pending: Pending,
    /// The thread of an in-order queue; it ends when the queue is gone and its last command has ended.
    lane: Option<Sender<Arc<Wait>>>,
}

impl Ends {
    pub(crate) fn of_queue(pending: &Pending, out_of_order: bool) -> Ends {
        let lane = if out_of_order { None } else { start_lane() };
        Ends { pending: pending.clone(), lane }
    }

    /// Runs `ended` with the event and its final status, once, when it has ended. What `ended` owns stays alive until then.
    pub(crate) fn on_end(&self, event: &Event, ended: impl FnOnce(i32, &Event) + Send + 'static) {
        match &self.lane {
            Some(lane) => {
                // The thread lives as long as this sender.
                let _ = lane.send(Wait::new(event, ended));
            }
            None => self.pending.on_end(event, ended),
        }
    }
}

/// The thread that waits for the commands of an in-order queue; without one, callbacks have to do.
fn start_lane() -> Option<Sender<Arc<Wait>>> {
    let (lane, waits) = mpsc::channel();
    let thread = thread::Builder::new().name("telecl-wait".into()).stack_size(256 << 10);
    match thread.spawn(move || walk(&waits)) {
        Ok(_) => Some(lane),
        Err(error) => {
            tracing::warn!(%error, "no thread to wait for a queue; its commands are noticed later");
            None
        }
    }
}

fn walk(waits: &Receiver<Arc<Wait>>) {
    for wait in waits {
        // Fails where the command does; the event itself says with what. Intel's runtime (2026) says so only here.
        let failure = wait.event.wait().err();
        let status = loop {
            match wait.event.status() {
                Ok(CL_COMPLETE) => break failure.map_or(CL_COMPLETE, ClError::code),
                Ok(status) if status < CL_COMPLETE => break status,
                // A driver whose wait returned too early: its event is looked at until it has ended.
                Ok(_) => thread::sleep(Duration::from_millis(1)),
                Err(ClError(code)) => break code,
            }
        };
        wait.end(status);
    }
}

impl Pending {
    /// Runs `ended` with the event and its final status, once, when it has ended. What `ended` owns stays alive until then.
    fn on_end(&self, event: &Event, ended: impl FnOnce(i32, &Event) + Send + 'static) {
        let wait = Wait::new(event, ended);
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
    fn new(event: &Event, ended: impl FnOnce(i32, &Event) + Send + 'static) -> Arc<Wait> {
        Arc::new(Wait { event: event.clone(), ended: Mutex::new(Some(Box::new(ended))) })
    }

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
