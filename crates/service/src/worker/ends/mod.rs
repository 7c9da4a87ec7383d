//! Noticing the end of the vendor's commands: in order ([`lane`]) and in any order ([`loose`]).

mod lane;
mod loose;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use telecl_opencl::Event;
use telecl_sys::{CL_RUNNING, CL_SUBMITTED};

pub(crate) use self::lane::{Lane, Lanes};
pub(crate) use self::loose::{Loose, Pending};
use super::staging::Chunk;

/// What happens with the event and its final status, once, when a command has ended.
type Ended = Box<dyn FnOnce(i32, &Arc<Event>) + Send>;

/// A command that is running, as far as its driver tells. `E` is an event.
#[derive(Clone, Debug)]
pub(crate) struct Running<E> {
    pub(crate) event: Arc<E>,
    /// Those that were enqueued later have higher ones.
    pub(crate) number: u64,
    /// NVIDIA's driver (580) never says that a command is running. One that is not certain has been submitted, has no
    /// other before it in its queue, and waits for no event of the program. It may wait for commands with lower numbers.
    pub(crate) certain: bool,
}

/// The next command's number. A worker has one session.
fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Notices the end of the commands of one queue.
#[derive(Clone, Debug)]
pub(crate) enum Ends {
    InOrder(Arc<Lane>),
    OutOfOrder(Loose),
}

/// How a command's end is to be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// What follows is short.
    Light,
    /// Much is to be sent: not by the executor, which has requests to read.
    Bulk,
    /// Nothing is to be said: good to know while somebody looks, not worth waking anybody.
    Silent,
}

impl Ends {
    /// Runs `ended` with the event and its final status, once, when it has ended. What `ended` owns stays alive until
    /// then. In an in-order queue it runs on a thread of ours; else on one of the vendor's.
    pub(crate) fn on_end(
        &self,
        event: &Arc<Event>,
        weight: Weight,
        ended: impl FnOnce(i32, &Arc<Event>) + Send + 'static,
    ) {
        match self {
            Ends::InOrder(lane) => lane.on_end(event, weight, Box::new(ended)),
            Ends::OutOfOrder(loose) => loose.on_end(event, ended),
        }
    }

    /// Whether the end is noticed on a thread of ours.
    pub(crate) fn is_in_order(&self) -> bool {
        matches!(self, Ends::InOrder(_))
    }

    /// The queue has been given one more command; to be said before its end is waited for.
    pub(crate) fn note_command(&self) {
        if let Ends::InOrder(lane) = self {
            lane.note_command();
        }
    }

    /// What comes now waits for these events of the program, which are not set; or for none. In an in-order queue, what is
    /// before it must have an event.
    pub(crate) fn block(&self, blockers: &[u64]) {
        match self {
            Ends::InOrder(lane) if !blockers.is_empty() => lane.block(),
            Ends::InOrder(_) => {}
            Ends::OutOfOrder(loose) => loose.block(blockers),
        }
    }

    /// An event of the program was set. `free` says that nothing in the queue waits for another.
    pub(crate) fn unblock(&self, event: u64, free: bool) {
        match self {
            Ends::InOrder(lane) if free => lane.unblock(),
            Ends::InOrder(_) => {}
            Ends::OutOfOrder(loose) => loose.unblock(event),
        }
    }

    /// Whether the last command has no event, so that its end would not be noticed.
    pub(crate) fn needs_seal(&self) -> bool {
        matches!(self, Ends::InOrder(lane) if lane.needs_seal())
    }

    /// Whether all commands of the queue are known to have ended, and have been reported.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Ends::InOrder(lane) if lane.is_idle())
    }

    /// The event of the queue's last command, if it has one and is not known to have ended.
    pub(crate) fn last_event(&self) -> Option<Arc<Event>> {
        match self {
            Ends::InOrder(lane) => lane.last_event(),
            Ends::OutOfOrder(_) => None,
        }
    }

    /// Keeps the memory of the last command, which has no event, until something after it has ended.
    pub(crate) fn keep(&self, chunk: Chunk) {
        match self {
            Ends::InOrder(lane) => lane.keep(chunk),
            // Nothing tells when it has ended. Not called: see `may_keep`.
            Ends::OutOfOrder(_) => std::mem::forget(chunk),
        }
    }

    /// Whether [`Ends::keep`] may be called. Not for ever: somebody has to find out what has ended.
    pub(crate) fn may_keep(&self) -> bool {
        matches!(self, Ends::InOrder(lane) if lane.may_keep())
    }

    /// Whether memory is kept, so that something after it must be waited for.
    pub(crate) fn keeps(&self) -> bool {
        matches!(self, Ends::InOrder(lane) if lane.keeps())
    }

    /// The queue is gone; its commands are still to end.
    pub(crate) fn close(&self) {
        if let Ends::InOrder(lane) = self {
            lane.close();
        }
    }
}

/// Whether a command with this status is certain to run; none if it does not. `may_run` says that one that was submitted
/// may.
fn is_certain(status: i32, may_run: bool) -> Option<bool> {
    match status {
        CL_RUNNING => Some(true),
        CL_SUBMITTED if may_run => Some(false),
        _ => None,
    }
}
