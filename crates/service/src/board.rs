//! What a worker tells its broker without a word: the session's counters, and whose turn it is on a device.
//!
//! A page of memory that the two share, made by the broker for one session. The worker counts; the broker reads at any
//! time, also after the worker was killed. The broker believes none of it more than it has to: a worker runs its tenant's
//! code, and can lie about its own session only.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use telecl_shm::{Board, OpenError, Shape};

use crate::turn::{Standing, TurnWord};

/// What is counted for a session as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Count {
    /// Bytes of frames and payloads from the driver.
    BytesIn,
    /// … and to the driver.
    BytesOut,
    /// Commands of the program.
    Commands,
    /// Requests and commands that failed.
    Failures,
    /// Programs that the compiler was asked for.
    Builds,
    /// Programs that came from the cache.
    CacheHits,
    /// Kernels that ran for longer than the policy allows.
    Overruns,
}

impl Count {
    pub(crate) const ALL: [Count; 7] = [
        Count::BytesIn,
        Count::BytesOut,
        Count::Commands,
        Count::Failures,
        Count::Builds,
        Count::CacheHits,
        Count::Overruns,
    ];
    pub(crate) const NUMBER: usize = Count::ALL.len();
}

/// What is counted for each device that the session may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum DeviceCount {
    /// Bytes of memory objects that exist now.
    Memory,
    /// The most that there ever were.
    PeakMemory,
    /// Nanoseconds in which the session had commands on the device, up to the last time that it had none.
    Busy,
    /// Since when it has had some, by the system's monotonic clock; 0 if it has none.
    BusySince,
    /// Nanoseconds in which it had something to run and waited for its turn.
    Waited,
    /// Nanoseconds of the present slice.
    Slice,
    /// Of `Waited`, as the broker knows and writes it: because its tenant's cap was reached.
    WaitedForCap,
    /// … because it was the turn of others of its level.
    WaitedForShare,
    /// … because others had a higher priority.
    WaitedForPriority,
    /// Of `Memory`: bytes that are in host memory, because others needed the device's.
    Parked,
    /// When the session last ended to be busy, by the system's monotonic clock.
    LastUsed,
}

impl DeviceCount {
    pub(crate) const ALL: [DeviceCount; 11] = [
        DeviceCount::Memory,
        DeviceCount::PeakMemory,
        DeviceCount::Busy,
        DeviceCount::BusySince,
        DeviceCount::Waited,
        DeviceCount::Slice,
        DeviceCount::WaitedForCap,
        DeviceCount::WaitedForShare,
        DeviceCount::WaitedForPriority,
        DeviceCount::Parked,
        DeviceCount::LastUsed,
    ];
    pub(crate) const NUMBER: usize = DeviceCount::ALL.len();

    /// Why a session waits for its turn, as metrics name it.
    pub(crate) const REASONS: [(DeviceCount, &str); 3] = [
        (DeviceCount::WaitedForCap, "cap"),
        (DeviceCount::WaitedForShare, "share"),
        (DeviceCount::WaitedForPriority, "priority"),
    ];

    /// Whether it is a time that only grows, and so never is longer than its session has lasted.
    pub(crate) fn is_time(self) -> bool {
        matches!(self, DeviceCount::Busy | DeviceCount::Waited)
            || Self::REASONS.iter().any(|(reason, _)| *reason == self)
    }
}

/// What the broker wants of the worker when it sends SIGTERM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Wish {
    /// The service is stopping.
    #[default]
    Stop,
    /// Somebody who may end any session has ended this one.
    EndedByOperator,
    /// Somebody of its own tenant has.
    EndedByTenant,
    /// The service takes no sessions any more, and this one has had its time.
    Drained,
}

impl Wish {
    /// What the log and the accounting say.
    pub(crate) fn how(self) -> &'static str {
        match self {
            Wish::Stop => "service stopped",
            Wish::EndedByOperator => "ended by an operator",
            Wish::EndedByTenant => "ended by somebody of its own tenant",
            Wish::Drained => "service drained",
        }
    }

    /// What the driver is told.
    pub(crate) fn reason(self) -> String {
        match self {
            Wish::Stop => "the service is stopping".to_owned(),
            Wish::Drained => "the service was drained, and the session did not end in time".to_owned(),
            _ => format!("{} (telecl sessions end); a new context begins another session", self.how()),
        }
    }
}

/// The board of one session.
#[derive(Debug)]
pub(crate) struct SessionBoard {
    board: Board,
    /// Numbers of the devices, in the order of their places on the board.
    devices: Vec<u64>,
}

impl SessionBoard {
    /// The broker's: a new board for a session with these devices, and the descriptor for its worker.
    pub(crate) fn create(devices: &[u64]) -> io::Result<(SessionBoard, OwnedFd)> {
        let (board, memfd) = Board::create(shape(devices.len()))?;
        Ok((SessionBoard { board, devices: devices.to_vec() }, memfd))
    }

    /// The worker's.
    pub(crate) fn open(memfd: &OwnedFd, devices: &[u64]) -> Result<SessionBoard, OpenError> {
        Ok(SessionBoard { board: Board::open(memfd, shape(devices.len()))?, devices: devices.to_vec() })
    }

    /// The broker's: says what it wants of the worker, before it sends SIGTERM.
    pub(crate) fn wish(&self, wish: Wish) {
        self.board.word(WISH).store(wish as u64, Ordering::Release);
    }

    /// The worker's, after SIGTERM.
    pub(crate) fn wished(&self) -> Wish {
        match self.board.word(WISH).load(Ordering::Acquire) {
            word if word == Wish::EndedByOperator as u64 => Wish::EndedByOperator,
            word if word == Wish::EndedByTenant as u64 => Wish::EndedByTenant,
            word if word == Wish::Drained as u64 => Wish::Drained,
            _ => Wish::Stop,
        }
    }

    /// The worker's: with what code its process is about to end.
    pub(crate) fn note_exit(&self, code: i32) {
        self.board.word(EXIT).store(1 + u64::from(code.unsigned_abs()), Ordering::Release);
    }

    /// The broker's, of a worker that is no child of its own: the code that it has ended with, if it had the time to say.
    pub(crate) fn exit(&self) -> Option<i32> {
        i32::try_from(self.board.word(EXIT).load(Ordering::Acquire).checked_sub(1)?).ok()
    }

    /// The devices of the session.
    pub(crate) fn devices(&self) -> &[u64] {
        &self.devices
    }

    /// The place of a root device; `None` if it is not the session's.
    pub(crate) fn place(&self, device: u64) -> Option<usize> {
        self.devices.iter().position(|id| *id == device)
    }

    /// A counter of the session.
    pub(crate) fn count(&self, count: Count) -> &AtomicU64 {
        self.board.word(COUNTS + count as usize)
    }

    /// A counter of the device at a place.
    pub(crate) fn device(&self, place: usize, count: DeviceCount) -> &AtomicU64 {
        self.board.word(DEVICE_COUNTS + place * DeviceCount::NUMBER + count as usize)
    }

    /// The word that says whose turn it is on the device at a place.
    pub(crate) fn turn(&self, place: usize) -> &AtomicU32 {
        assert!(place < self.devices.len());
        self.board.bell(place)
    }

    /// Wakes whoever sleeps until it is its turn, because there is something else to do.
    pub(crate) fn wake_all(&self) {
        (0..self.devices.len()).for_each(|place| TurnWord(self.turn(place)).wake());
    }

    /// The worker's: there is no broker that could give turns, so everybody who waits for one has it.
    pub(crate) fn free_turns(&self) {
        for place in 0..self.devices.len() {
            TurnWord(self.turn(place)).change(Standing::Nothing, Standing::Resting);
        }
        self.wake_all();
    }

    /// Adds to a counter of the session that only the calling thread writes, which takes no atomic addition.
    pub(crate) fn step(&self, count: Count, value: u64) {
        let word = self.count(count);
        word.store(word.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }

    /// How long the device at a place has been busy, with what is under way now. May be a little less than it was a moment
    /// ago, when that has just ended.
    pub(crate) fn busy(&self, place: usize) -> u64 {
        let ended = self.device(place, DeviceCount::Busy).load(Ordering::Acquire);
        match self.device(place, DeviceCount::BusySince).load(Ordering::Relaxed) {
            0 => ended,
            since => ended.saturating_add(now().saturating_sub(since)),
        }
    }

    /// Adds to a counter of the session.
    pub(crate) fn add(&self, count: Count, value: u64) {
        self.count(count).fetch_add(value, Ordering::Relaxed);
    }
}

/// The system's monotonic clock, which worker and broker have in common.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Where things stand on the board.
const WISH: usize = 0;
const EXIT: usize = WISH + 1;
const COUNTS: usize = EXIT + 1;
const DEVICE_COUNTS: usize = COUNTS + Count::NUMBER;

fn shape(devices: usize) -> Shape {
    Shape { bells: devices, words: DEVICE_COUNTS + devices * DeviceCount::NUMBER }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_in_the_order_of_their_numbers() {
        assert!(Count::ALL.iter().enumerate().all(|(number, count)| *count as usize == number));
        assert!(DeviceCount::ALL.iter().enumerate().all(|(number, count)| *count as usize == number));
    }

    #[test]
    fn every_counter_has_a_place_of_its_own() {
        let (broker, memfd) = SessionBoard::create(&[3, 9]).unwrap();
        let worker = SessionBoard::open(&memfd, &[3, 9]).unwrap();
        assert_eq!((worker.place(9), worker.place(4), worker.devices()), (Some(1), None, &[3, 9][..]));
        worker.add(Count::CacheHits, 5);
        worker.device(0, DeviceCount::Memory).store(6, Ordering::Relaxed);
        worker.device(1, DeviceCount::Slice).store(7, Ordering::Relaxed);
        worker.turn(1).store(8, Ordering::Relaxed);
        assert_eq!(broker.exit(), None);
        worker.note_exit(0);
        assert_eq!(broker.exit(), Some(0));
        assert_eq!(worker.wished(), Wish::Stop);
        broker.wish(Wish::EndedByOperator);
        assert_eq!(worker.wished(), Wish::EndedByOperator);
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        assert_eq!(read(broker.count(Count::CacheHits)), 5);
        assert_eq!(read(broker.device(0, DeviceCount::Memory)), 6);
        assert_eq!(read(broker.device(0, DeviceCount::Slice)), 0);
        assert_eq!(read(broker.device(1, DeviceCount::Slice)), 7);
        assert_eq!((broker.turn(0).load(Ordering::Relaxed), broker.turn(1).load(Ordering::Relaxed)), (0, 8));
    }
}
