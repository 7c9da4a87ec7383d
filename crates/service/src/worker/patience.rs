//! Ends, or reports, what takes longer than the session's policy allows: to do nothing, to compile, to run a kernel.
//!
//! Doing nothing means that the driver sends no request, none is being executed, no command or build is under way that
//! the driver will be told the end of. It is a broom for what was forgotten, not a fence: who wants to stay, stays.
//!
//! Neither a compiler nor a kernel can be interrupted, and a compiler may hold locks that everything else in the process
//! needs. So what ends is the process.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use telecl_opencl::{Event, info};
use telecl_sys::*;
use tracing::{info, warn};

use super::completion::Completion;
use super::ends::Running;
use super::link::Link;
use super::start::VENDOR_STACK;
use super::{build, compiler};
use crate::board::Count;
use crate::channel::Limits;
use crate::process::{exit_as, exit_code, exit_now};

/// How often to look, at least and at most.
const OFTEN: Duration = Duration::from_millis(10);
const SELDOM: Duration = Duration::from_secs(60);
/// … at what runs.
const WATCHFUL: Duration = Duration::from_secs(1);

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

/// Kernels that were running when somebody looked. `E` is an event.
#[derive(Debug)]
struct Runs<E>(Vec<Run<E>>);

#[derive(Debug)]
struct Run<E> {
    /// Keeps its place in memory, so that no other event is taken for it, and not the event.
    event: Weak<E>,
    number: u64,
    since: Instant,
    reported: bool,
}

impl<E> Run<E> {
    fn is_of(&self, running: &Running<E>) -> bool {
        std::ptr::eq(self.event.as_ptr(), Arc::as_ptr(&running.event))
    }
}

impl<E> Runs<E> {
    /// These are running now. Returns for how long those have been that run for longer than `longest`, once for each.
    fn look(&mut self, now: Instant, running: &[Running<E>], longest: Duration) -> Vec<Duration> {
        let has_ended = |run: &&Run<E>| !running.iter().any(|one| run.is_of(one));
        let first_ended = self.0.iter().filter(has_ended).map(|run| run.number).min();
        self.0.retain(|run| running.iter().any(|one| run.is_of(one)));
        let mut overruns = Vec::new();
        for one in running {
            let Some(run) = self.0.iter_mut().find(|run| run.is_of(one)) else {
                let Running { event, number, .. } = one;
                self.0.push(Run { event: Arc::downgrade(event), number: *number, since: now, reported: false });
                continue;
            };
            // What came before it may have been what it waited for.
            if !one.certain && first_ended.is_some_and(|first| first < run.number) {
                run.since = now;
            }
            let runs = now.saturating_duration_since(run.since);
            if runs > longest && !run.reported {
                run.reported = true;
                overruns.push(runs);
            }
        }
        overruns
    }
}

/// The thread that looks.
#[derive(Debug)]
pub(crate) struct Patience {
    pub(crate) limits: Limits,
    pub(crate) activity: Arc<Activity>,
    pub(crate) completion: Completion,
    pub(crate) link: Arc<Link>,
}

impl Patience {
    /// Starts it, if there is something to look for.
    pub(crate) fn start(self) -> io::Result<()> {
        let Some(rhythm) = rhythm(&self.limits) else { return Ok(()) };
        // It asks the vendor how far commands are.
        let thread = thread::Builder::new().name("telecl-patience".into()).stack_size(VENDOR_STACK);
        thread.spawn(move || self.run(rhythm))?;
        Ok(())
    }

    fn run(self, rhythm: Duration) {
        let mut still = Stillness { since: Instant::now(), seen: 0 };
        let mut runs = Runs(Vec::new());
        loop {
            thread::sleep(rhythm);
            let now = Instant::now();
            if let Some(longest) = self.limits.longest_idle {
                let under_way = self.completion.is_under_way() || build::are_under_way();
                if still.look(now, &self.activity, under_way) >= longest {
                    let what = format!("the session has done nothing for {longest:?}");
                    self.end(&what, "longest_idle", exit_code::IDLE);
                }
            }
            if let Some(longest) = self.limits.longest_build
                && compiler::longest(now) > longest
            {
                let what = format!("building a program has taken longer than {longest:?}");
                self.end(&what, "longest_build", exit_code::BUILD_TOO_LONG);
            }
            if let Some(longest) = self.limits.longest_kernel {
                let mut running = self.completion.running();
                running.retain(|one| is_kernel(&one.event));
                for ran in runs.look(now, &running, longest) {
                    self.report(ran, longest);
                }
            }
        }
    }

    /// A kernel has run for too long.
    fn report(&self, ran: Duration, longest: Duration) {
        let ends = self.limits.overrun_ends;
        self.link.board().add(Count::Overruns, 1);
        warn!(session = self.link.session(), ?ran, ?longest, ends, "a kernel runs for longer than its policy allows");
        if ends {
            let what = format!("a kernel has run for longer than {longest:?}");
            self.end(&what, "longest_kernel", exit_code::KERNEL_TOO_LONG);
        }
    }

    fn end(&self, what: &str, key: &str, code: i32) -> ! {
        info!(session = self.link.session(), limit = key, "{what}; the session ends");
        // The driver may be gone as soon as it hears of it, which others notice.
        exit_as(code);
        self.link.closing_by_policy(&format!(
            "{what}, and its policy allows no longer ({key}); a new context begins another session"
        ));
        exit_now(code)
    }
}

/// How often to look: often enough that every limit is kept to a sixteenth.
fn rhythm(limits: &Limits) -> Option<Duration> {
    let Limits { longest_idle, longest_build, longest_kernel, .. } = *limits;
    let times = [(longest_idle, SELDOM), (longest_build, WATCHFUL), (longest_kernel, WATCHFUL)];
    times.into_iter().filter_map(|(limit, most)| Some((limit? / 16).clamp(OFTEN, most))).min()
}

/// Whether it is the event of a kernel. Some drivers have markers run while they wait.
fn is_kernel(event: &Event) -> bool {
    let kind = event.info(CL_EVENT_COMMAND_TYPE).ok().and_then(|kind| info::number(&kind));
    kind.is_some_and(|kind| kind == u64::from(CL_COMMAND_NDRANGE_KERNEL) || kind == u64::from(CL_COMMAND_TASK))
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

    #[test]
    fn a_kernel_that_runs_too_long_is_reported_once_and_short_ones_never() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let longest = Duration::from_secs(3);
        let mut runs = Runs(Vec::new());
        let certain = |number, event: &Arc<u32>| Running { event: Arc::clone(event), number, certain: true };
        let long = Arc::new(1);
        for second in 0..=3 {
            // Another short one each time, perhaps where the last one was.
            let short = Arc::new(2);
            assert!(runs.look(at(second), &[certain(5, &long), certain(second, &short)], longest).is_empty());
        }
        assert_eq!(runs.look(at(4), &[certain(5, &long)], longest), [Duration::from_secs(4)]);
        assert!(runs.look(at(5), &[certain(5, &long)], longest).is_empty());
        assert!(runs.look(at(6), &[], longest).is_empty() && runs.0.is_empty());
        // It is another run now.
        assert!(runs.look(at(7), &[certain(5, &long)], longest).is_empty());
    }

    #[test]
    fn a_kernel_that_may_have_waited_for_another_began_when_that_ended() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let longest = Duration::from_secs(3);
        let mut runs = Runs(Vec::new());
        let uncertain = |number, event: &Arc<u32>| Running { event: Arc::clone(event), number, certain: false };
        let (first, second, later) = (Arc::new(1), Arc::new(2), Arc::new(3));
        let mut look = |seconds, running: &[_]| runs.look(at(seconds), running, longest);
        assert!(look(0, &[uncertain(1, &first), uncertain(2, &second)]).is_empty());
        assert!(look(2, &[uncertain(1, &first), uncertain(2, &second), uncertain(3, &later)]).is_empty());
        // The second may have begun now. That the third ends says nothing of it.
        assert!(look(3, &[uncertain(2, &second), uncertain(3, &later)]).is_empty());
        assert!(look(5, &[uncertain(2, &second)]).is_empty());
        assert_eq!(look(7, &[uncertain(2, &second)]), [Duration::from_secs(4)]);
    }

    #[test]
    fn the_shortest_limit_sets_the_rhythm() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(rhythm(&Limits::NONE), None);
        let idle = Limits { longest_idle: seconds(160), ..Limits::NONE };
        assert_eq!(rhythm(&idle), seconds(10));
        assert_eq!(rhythm(&Limits { longest_build: seconds(600), ..idle }), seconds(1));
        let kernel = Limits { longest_kernel: Some(Duration::from_millis(1)), ..idle };
        assert_eq!(rhythm(&kernel), Some(OFTEN));
    }
}
