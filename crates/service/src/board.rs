//! What a worker tells its broker without a word: the session's counters, and whose turn it is on a device.
//!
//! A page of memory that the two share, made by the broker for one session. The worker counts; the broker reads at any
//! time, also after the worker was killed. The broker believes none of it more than it has to: a worker runs its tenant's
//! code, and can lie about its own session only.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use telecl_shm::{Board, OpenError, Shape};

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
}

impl Count {
    const NUMBER: usize = Count::CacheHits as usize + 1;
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
}

impl DeviceCount {
    const NUMBER: usize = DeviceCount::Slice as usize + 1;
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
        self.board.word(count as usize)
    }

    /// A counter of the device at a place.
    pub(crate) fn device(&self, place: usize, count: DeviceCount) -> &AtomicU64 {
        self.board.word(Count::NUMBER + place * DeviceCount::NUMBER + count as usize)
    }

    /// The word that says whose turn it is on the device at a place.
    pub(crate) fn turn(&self, place: usize) -> &AtomicU32 {
        assert!(place < self.devices.len());
        self.board.bell(place)
    }

    /// Adds to a counter of the session.
    pub(crate) fn add(&self, count: Count, value: u64) {
        self.count(count).fetch_add(value, Ordering::Relaxed);
    }
}

fn shape(devices: usize) -> Shape {
    Shape { bells: devices, words: Count::NUMBER + devices * DeviceCount::NUMBER }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_place_of_its_own() {
        let (broker, memfd) = SessionBoard::create(&[3, 9]).unwrap();
        let worker = SessionBoard::open(&memfd, &[3, 9]).unwrap();
        assert_eq!((worker.place(9), worker.place(4), worker.devices()), (Some(1), None, &[3, 9][..]));
        worker.add(Count::CacheHits, 5);
        worker.device(0, DeviceCount::Memory).store(6, Ordering::Relaxed);
        worker.device(1, DeviceCount::Slice).store(7, Ordering::Relaxed);
        worker.turn(1).store(8, Ordering::Relaxed);
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        assert_eq!(read(broker.count(Count::CacheHits)), 5);
        assert_eq!(read(broker.device(0, DeviceCount::Memory)), 6);
        assert_eq!(read(broker.device(0, DeviceCount::Slice)), 0);
        assert_eq!(read(broker.device(1, DeviceCount::Slice)), 7);
        assert_eq!((broker.turn(0).load(Ordering::Relaxed), broker.turn(1).load(Ordering::Relaxed)), (0, 8));
    }
}
