//! The vendor's compiler at work: since when it has been running, in each thread that waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The runs that have not ended, by their numbers. Its lock is held for one line.
static RUNS: Mutex<Vec<(u64, Instant)>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Runs the compiler. To be put around the vendor's call and nothing else: what others take is not the session's doing.
pub(crate) fn run<T>(compile: impl FnOnce() -> T) -> T {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    lock().push((number, Instant::now()));
    let compiled = compile();
    // A panic meanwhile ends the process.
    lock().retain(|(other, _)| *other != number);
    compiled
}

/// For how long the compiler has run that was started first of those still running.
pub(crate) fn longest(now: Instant) -> Duration {
    let first = lock().iter().map(|(_, since)| *since).min();
    first.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
}

fn lock() -> MutexGuard<'static, Vec<(u64, Instant)>> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_while_the_compiler_runs_and_is_forgotten_then() {
        let later = || Instant::now() + Duration::from_secs(5);
        let compiled = run(|| {
            assert!(longest(later()) >= Duration::from_secs(5));
            // Another one that is done sooner takes nothing away.
            run(|| {});
            assert!(longest(later()) >= Duration::from_secs(5));
            7
        });
        assert_eq!((compiled, longest(later())), (7, Duration::ZERO));
    }
}
