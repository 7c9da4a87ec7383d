//! Ends a session that does nothing for longer than its policy allows.
//!
//! Doing nothing means that the driver sends no request, none is being executed, no command or build is under way that
//! the driver will be told the end of. It is a broom for what was forgotten, not a fence: who wants to stay, stays.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tracing::info;

use super::build;
use super::completion::Completion;
use super::link::Link;
use crate::process::{exit_code, exit_now};

/// How often to look, at least and at most.
const OFTEN: Duration = Duration::from_millis(10);
const SELDOM: Duration = Duration::from_secs(60);

/// What the executor does: counts up when it begins and when it ends a request, so an odd number means work. Only the
/// executor writes.
#[derive(Debug, Default)]
pub(crate) struct Activity(AtomicU64);

impl Activity {
    pub(crate) fn begin(&self) {
        self.step(1);
    }

    pub(crate) fn end(&self) {
        self.step(0);
    }

    /// To the next number with this lowest bit.
    fn step(&self, odd: u64) {
        let count = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(count.wrapping_add((count ^ odd) & 1), Ordering::Relaxed);
    }

    fn is_busy(&self) -> bool {
        self.0.load(Ordering::Relaxed) & 1 == 1
    }
}

/// Since when nothing has happened.
#[derive(Debug)]
struct Stillness {
    since: Instant,
    seen: u64,
}

impl Stillness {
    /// Takes a look; returns for how long there was nothing.
    fn look(&mut self, now: Instant, activity: &Activity, under_way: bool) -> Duration {
        let count = activity.0.load(Ordering::Relaxed);
        if count != self.seen || activity.is_busy() || under_way {
            (self.seen, self.since) = (count, now);
        }
        now.saturating_duration_since(self.since)
    }
}

/// Starts the thread that looks.
pub(crate) fn start(
    longest: Duration,
    activity: Arc<Activity>,
    completion: Completion,
    link: Arc<Link>,
) -> io::Result<()> {
    let thread = thread::Builder::new().name("telecl-patience".into()).stack_size(128 << 10);
    thread.spawn(move || {
        let mut still = Stillness { since: Instant::now(), seen: 0 };
        loop {
            thread::sleep((longest / 16).clamp(OFTEN, SELDOM));
            let under_way = completion.is_under_way() || build::are_under_way();
            if still.look(Instant::now(), &activity, under_way) >= longest {
                info!(session = link.session(), ?longest, "the session does nothing; it ends");
                link.closing_by_policy(&format!(
                    "the session has done nothing for {longest:?}, and its policy allows no longer (longest_idle); \
                     a new context begins another session"
                ));
                exit_now(exit_code::IDLE);
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_still_only_while_nothing_comes_and_nothing_is_under_way() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let activity = Activity::default();
        let mut still = Stillness { since: begin, seen: 0 };
        assert_eq!(still.look(at(5), &activity, false), Duration::from_secs(5));
        activity.begin();
        assert_eq!(still.look(at(6), &activity, false), Duration::ZERO);
        // It is busy with it for long.
        assert_eq!(still.look(at(60), &activity, false), Duration::ZERO);
        activity.end();
        assert_eq!(still.look(at(61), &activity, false), Duration::ZERO);
        assert_eq!(still.look(at(63), &activity, false), Duration::from_secs(2));
        assert_eq!(still.look(at(64), &activity, true), Duration::ZERO);
        assert_eq!(still.look(at(66), &activity, false), Duration::from_secs(2));
        activity.begin();
        activity.end();
        assert_eq!(still.look(at(67), &activity, false), Duration::ZERO);
        // Whatever the order, begun is busy and ended is not.
        activity.end();
        assert!(!activity.is_busy());
        activity.begin();
        activity.begin();
        assert!(activity.is_busy());
    }
}
