//! Whose turn it is on a device: one word on a session's board, which broker and worker both change.
//!
//! ```text
//!                 the broker gives a turn                 the broker wants it back
//!   Nothing ──────────────────────────────► Slice ───────────────────────────────► Stop
//!      ▲  │                                   │ the worker has drained, and says so  │
//!      │  │                                   ▼                                      ▼
//!      │  │                                Nothing ◄─────────────────────────────────┘
//!      │  │      nobody else wants the device                                        ▲
//!      │  └───────────────────────────────► Alone ───────────────────────────────────┘
//!      │                                     │  ▲   the broker wants it back
//!      │            nothing is under way     ▼  │  the next command
//!      └──────────────────────────────────  Resting
//!        the broker takes it
//! ```
//!
//! A worker that is alone tells nobody when it runs something and when not: it only marks what it has as *resting*, and
//! the broker can take that away without asking. So a session that is alone sends no message at all.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

/// What a session may do on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Standing {
    /// It has no turn: commands must wait.
    Nothing = 0,
    /// As alone, and there is nothing under way.
    Resting = 1,
    /// Nobody else wants the device, or it serves all who do at once.
    Alone = 2,
    /// It has the device for the time that is on its board.
    Slice = 3,
    /// It is to submit no more, to drain, and to say so.
    Stop = 4,
}

impl Standing {
    fn of(word: u32) -> Standing {
        match word {
            1 => Standing::Resting,
            2 => Standing::Alone,
            3 => Standing::Slice,
            4 => Standing::Stop,
            // Also what no side of ours has written.
            _ => Standing::Nothing,
        }
    }
}

/// The word as both sides see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnWord<'b>(pub(crate) &'b AtomicU32);

impl TurnWord<'_> {
    pub(crate) fn get(self) -> Standing {
        Standing::of(self.0.load(Ordering::SeqCst))
    }

    /// From one standing to another; `false` if the word is at neither.
    pub(crate) fn change(self, from: Standing, to: Standing) -> bool {
        self.0.compare_exchange(from as u32, to as u32, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Sets it, and wakes whoever sleeps at it.
    pub(crate) fn give(self, standing: Standing) {
        self.0.store(standing as u32, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes whoever sleeps at it.
    pub(crate) fn wake(self) {
        // Nobody may be asleep.
        let _ = futex::wake(self.0, futex::Flags::empty(), u32::MAX);
    }

    /// Sleeps until it is no more at `seen`, or somebody wakes us anyway, or so long.
    pub(crate) fn sleep(self, seen: Standing, at_most: Duration) {
        let at_most = Timespec::try_from(at_most).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match futex::wait(self.0, futex::Flags::empty(), seen as u32, Some(&at_most)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            // A kernel that cannot do this: look again soon.
            Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_standing_changes_only_from_where_it_was_thought_to_be() {
        let word = AtomicU32::new(0);
        let word = TurnWord(&word);
        assert_eq!(word.get(), Standing::Nothing);
        assert!(!word.change(Standing::Alone, Standing::Resting));
        word.give(Standing::Alone);
        assert!(word.change(Standing::Alone, Standing::Resting));
        assert_eq!(word.get(), Standing::Resting);
        for nonsense in [5, 77, u32::MAX] {
            word.0.store(nonsense, Ordering::Relaxed);
            assert_eq!(word.get(), Standing::Nothing);
        }
    }

    #[test]
    fn who_sleeps_is_woken() {
        let word = AtomicU32::new(0);
        let begin = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                while TurnWord(&word).get() == Standing::Nothing {
                    TurnWord(&word).sleep(Standing::Nothing, Duration::from_secs(10));
                }
            });
            thread::sleep(Duration::from_millis(20));
            TurnWord(&word).give(Standing::Slice);
        });
        assert!(begin.elapsed() < Duration::from_secs(5));
        // What has changed before is not slept for.
        TurnWord(&word).sleep(Standing::Nothing, Duration::from_secs(10));
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}
