//! Stopping without haste: no new sessions, time for those that run, and then their end.
//!
//! SIGTERM does this, and so does whoever looks after the service (`telecl drain`). The thread that accepts connections
//! keeps the time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use telecl_net::FrameSender;
use telecl_wire::status::{DrainMode, DrainProgress};
use tracing::{info, warn};

use super::Broker;
use super::audit::Wanted;
use super::greeting::{Arrival, Shown};
use super::inspect::Viewer;
use super::session::refuse;
use super::stop::Told;
use crate::board::Wish;

/// How often to look whether sessions have ended.
const TICK: Duration = Duration::from_millis(50);

/// Whoever waits hears at least so often how far it is.
const REPORT: Duration = Duration::from_secs(1);

/// Whether, and until when. Its lock is held for a few lines.
#[derive(Debug)]
pub(crate) struct Drain {
    plan: Mutex<Option<Plan>>,
    /// Wakes the thread that keeps the time.
    wake: OwnedFd,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Then the sessions are ended that are left.
    until: Instant,
    /// Whether the service stops when none is left.
    stops: bool,
    /// It was a signal: whoever has sent it waits for the end of the process.
    by_signal: bool,
    /// Those that were left have been told to end.
    is_over: bool,
}

/// What the service does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Accepts connections, and looks again after a while, if there is one.
    Serve(Option<Duration>),
    /// Ends what is left of its sessions, and goes on.
    EndSessions,
    /// Ends what is left of its sessions, and itself.
    Stop,
    /// Ends itself, and leaves its sessions to the next service.
    Leave,
}

impl Drain {
    pub(crate) fn new() -> io::Result<Drain> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Drain { plan: Mutex::default(), wake })
    }

    /// Takes no new sessions from now on. If that is so already, the earlier end counts, and a wish to stop.
    fn begin(&self, grace: Duration, stops: bool, by_signal: bool, now: Instant) {
        let until = now.checked_add(grace).unwrap_or(now);
        let mut plan = self.lock();
        let before = plan.as_ref().filter(|before| by_signal && !before.is_over);
        let until = before.map_or(until, |before| before.until.min(until));
        *plan = Some(Plan { until, stops, by_signal, is_over: false });
        drop(plan);
        // Full means that it is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Takes new sessions again; an error if it is too late for that.
    fn undo(&self) -> Result<(), &'static str> {
        let mut plan = self.lock();
        if plan.is_some_and(|plan| plan.by_signal) {
            return Err("the service was told to stop by a signal, and does");
        }
        *plan = None;
        Ok(())
    }

    pub(crate) fn is_on(&self) -> bool {
        self.lock().is_some()
    }

    /// Why there are no new sessions, if there are none.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        match self.lock().as_ref()?.stops {
            true => Some(
                "this service is draining: it takes no new sessions, and stops when the present ones have ended; use \
                 another service, or try again later",
            ),
            false => Some(
                "this service is draining: it takes no new sessions until whoever runs it says so; use another \
                 service, or try again later",
            ),
        }
    }

    /// How long the sessions still have; `None` if they have all the time.
    fn left(&self) -> Option<Duration> {
        self.lock().map(|plan| plan.until.saturating_duration_since(Instant::now()))
    }

    /// What to do, with so many sessions that run, after such signals.
    pub(crate) fn next(&self, told: Told, grace: Duration, running: impl FnOnce() -> usize) -> Next {
        // What woke us is looked at below.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        let now = Instant::now();
        match told {
            Told::Nothing => {}
            Told::StopNow => return Next::Stop,
            Told::Leave => return Next::Leave,
            Told::Stop if self.lock().is_some_and(|plan| plan.by_signal) => return Next::Stop,
            Told::Stop => self.begin(grace, true, true, now),
        }
        let mut plan = self.lock();
        let Some(plan) = &mut *plan else { return Next::Serve(None) };
        match (plan.stops, now >= plan.until) {
            (true, true) => Next::Stop,
            (true, false) if running() == 0 => Next::Stop,
            (false, true) if plan.is_over => Next::Serve(None),
            (false, true) => {
                plan.is_over = true;
                Next::EndSessions
            }
            (_, false) => Next::Serve(Some(TICK)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Plan>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Drain {
    /// Readable when there is something new to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Ends the sessions that have had their time, in a thread of its own: some may take theirs.
pub(crate) fn end_sessions(broker: &Arc<Broker>) {
    let left = broker.sessions.running_ids();
    info!(sessions = left.len(), "draining: sessions that did not end in time are ended");
    let broker = Arc::clone(broker);
    let thread = thread::Builder::new().name("telecl-drain".into()).stack_size(256 << 10);
    let started = thread.spawn(move || {
        for session in left {
            let board = broker.accounts.find(session).and_then(|(_, board)| board);
            if !broker.sessions.end(session, Wish::Drained, board.as_deref()) {
                warn!(session, "the session does not end");
            }
        }
    });
    if let Err(error) = started {
        warn!(%error, "cannot start a thread to end sessions");
    }
}

/// Somebody wants the service to drain, or to take sessions again.
pub(crate) fn attend(broker: &Arc<Broker>, arrival: Arrival, peer: &str, mode: DrainMode, grace: Option<Duration>) {
    let timeout = broker.settings.handshake_timeout;
    let found = Viewer::find(broker, arrival, peer, &Shown::None, Wanted::Drain);
    let Some((viewer, stream)) = found else { return };
    if !viewer.operator {
        let reason = "only root and the user who runs the service may drain it, at its Unix socket";
        return refuse(stream, reason, timeout);
    }
    let by = viewer.name();
    if mode == DrainMode::Undo {
        if let Err(reason) = broker.drain.undo() {
            return refuse(stream, reason, timeout);
        }
        info!(by, "the service takes new sessions again");
    } else {
        let grace = grace.unwrap_or(broker.settings.drain_grace);
        let stops = mode == DrainMode::Stop;
        info!(by, ?grace, stops, sessions = broker.sessions.running_ids().len(), "the service is draining");
        broker.drain.begin(grace, stops, false, Instant::now());
    }
    let _ = stream.set_send_timeout(Some(timeout));
    // Whoever has left needs no answer; the service drains all the same.
    let _ = report(broker, &mut FrameSender::new(stream));
}

/// Says how far it is, until nothing is left.
fn report(broker: &Broker, sender: &mut FrameSender) -> io::Result<()> {
    let mut last: Option<(usize, Instant)> = None;
    loop {
        let (left, time) = (broker.sessions.running_ids().len(), broker.drain.left());
        let is_done = time.is_none() || left == 0;
        if is_done || last.is_none_or(|(before, at)| before != left || at.elapsed() >= REPORT) {
            last = Some((left, Instant::now()));
            let sessions = u32::try_from(left).unwrap_or(u32::MAX);
            let left_ms = u64::try_from(time.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
            sender.send(&DrainProgress { sessions, left_ms, draining: time.is_some(), done: is_done }, &[])?;
        }
        if is_done {
            return Ok(());
        }
        thread::sleep(TICK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(3600);

    #[test]
    fn a_signal_lets_sessions_end_and_a_second_one_does_not() {
        let drain = Drain::new().unwrap();
        assert_eq!(drain.next(Told::Nothing, GRACE, || 3), Next::Serve(None));
        assert!(!drain.is_on() && drain.refusal().is_none());
        assert_eq!(drain.next(Told::Stop, GRACE, || 3), Next::Serve(Some(TICK)));
        assert!(drain.refusal().unwrap().contains("draining"));
        assert!(drain.undo().unwrap_err().contains("signal"));
        assert_eq!(drain.next(Told::Nothing, GRACE, || 0), Next::Stop);
        assert_eq!(drain.next(Told::Stop, GRACE, || 3), Next::Stop);
        let other = Drain::new().unwrap();
        assert_eq!(other.next(Told::Stop, Duration::ZERO, || 3), Next::Stop, "no grace");
        assert_eq!(Drain::new().unwrap().next(Told::StopNow, GRACE, || 3), Next::Stop);
        assert_eq!(Drain::new().unwrap().next(Told::Leave, GRACE, || 3), Next::Leave);
    }

    #[test]
    fn a_service_that_is_kept_ends_its_sessions_once_and_can_be_opened_again() {
        let drain = Drain::new().unwrap();
        drain.begin(GRACE, false, false, Instant::now());
        assert_eq!(drain.next(Told::Nothing, GRACE, || 0), Next::Serve(Some(TICK)));
        drain.begin(Duration::ZERO, false, false, Instant::now());
        assert_eq!(drain.next(Told::Nothing, GRACE, || 1), Next::EndSessions);
        assert_eq!(drain.next(Told::Nothing, GRACE, || 1), Next::Serve(None));
        drain.undo().unwrap();
        assert!(!drain.is_on());
        // A signal has its own grace, but never more than there was.
        drain.begin(Duration::ZERO, false, false, Instant::now());
        assert_eq!(drain.next(Told::Stop, GRACE, || 1), Next::Stop);
    }
}
