//! A segment: made by one side, opened by the other, and where its parts are handed out.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, MemfdFlags, SealFlags};
use rustix::io::Errno;

use crate::mapping::{Mapping, SEGMENT, SLOTS};
use crate::{Consumer, Producer, ReceivedSlot, SlotPool};

/// "telecl", "S" for shared, and the version of the layout. In the byte order of the node, as all of the control words.
const MAGIC: u64 = u64::from_be_bytes(*b"teleclS\x01");

/// What `statfs` says of memfds, but for those of huge pages.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Who somebody is. A direction is named by the side that fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Driver,
    Worker,
}

impl Side {
    pub(crate) fn peer(self) -> Side {
        match self {
            Side::Driver => Side::Worker,
            Side::Worker => Side::Driver,
        }
    }
}

/// Why a descriptor is not a segment.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the descriptor is not a memfd of ordinary pages")]
    NotMemfd,
    #[error("the memfd is not sealed against shrinking and growing")]
    Unsealed,
    #[error("the memfd has {found} bytes, expected {expected}")]
    Size { found: u64, expected: u64 },
    #[error("the memfd begins with {found:#018x}, expected {MAGIC:#018x}")]
    Magic { found: u64 },
    #[error("cannot use the memfd: {0}")]
    System(io::Error),
}

impl From<Errno> for OpenError {
    fn from(cause: Errno) -> Self {
        OpenError::System(cause.into())
    }
}

/// The shared memory. All that is made from it keeps it mapped.
#[derive(Debug)]
pub struct Segment {
    pub(crate) mapping: Mapping,
    /// Sides whose endpoint exists, or has existed.
    endpoints: [AtomicBool; 2],
    /// Slots that some [`Slot`](crate::Slot) of this process owns, by filling side. Not shared, so the peer cannot clear them.
    pub(crate) held: [[AtomicBool; SLOTS]; 2],
}

impl Segment {
    /// A new segment, and the descriptor that the peer opens.
    pub fn create() -> io::Result<(Arc<Segment>, OwnedFd)> {
        let memfd = sealed_memfd(SEGMENT as u64)?;
        let segment = Segment::map(&memfd)?;
        segment.mapping.control().magic.0.store(MAGIC, Ordering::Release);
        Ok((Arc::new(segment), memfd))
    }

    /// The segment that the peer created.
    pub fn open(memfd: OwnedFd) -> Result<Arc<Segment>, OpenError> {
        check_memfd(&memfd, SEGMENT as u64)?;
        let segment = Segment::map(&memfd).map_err(OpenError::System)?;
        match segment.mapping.control().magic.0.load(Ordering::Acquire) {
            MAGIC => Ok(Arc::new(segment)),
            found => Err(OpenError::Magic { found }),
        }
    }

    fn map(memfd: &OwnedFd) -> io::Result<Segment> {
        let mapping = Mapping::new(memfd.as_fd())?;
        Ok(Segment { mapping, endpoints: Default::default(), held: Default::default() })
    }

    /// The two rings, as `side` uses them.
    ///
    /// # Panics
    /// If it is called again for the same side: the counters would start anew, in the middle of the stream.
    pub fn endpoint(self: &Arc<Self>, side: Side) -> (Producer, Consumer) {
        let again = self.endpoints[side as usize].swap(true, Ordering::Relaxed);
        assert!(!again, "the endpoint of this side was handed out before");
        (Producer::new(Arc::clone(self), side), Consumer::new(Arc::clone(self), side.peer()))
    }

    /// The slots that `side` fills. All pools of one `Segment` hand out the same slots, each to one owner.
    pub fn slots(self: &Arc<Self>, side: Side) -> SlotPool {
        SlotPool::new(Arc::clone(self), side)
    }

    /// The slot that the peer of `side` says it has sent, or none if it cannot exist.
    pub fn received_slot(self: &Arc<Self>, side: Side, index: u32) -> Option<ReceivedSlot> {
        ReceivedSlot::new(Arc::clone(self), side.peer(), index)
    }
}

/// New memory of a size that nobody can change.
pub(crate) fn sealed_memfd(size: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Without NOEXEC_SEAL newer kernels grumble into the system's log, or refuse if so configured; older ones, before
    // Linux 6.3, do not know it.
    let memfd = match fs::memfd_create(c"telecl", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => fs::memfd_create(c"telecl", flags)?,
        made => made?,
    };
    fs::ftruncate(&memfd, size)?;
    fs::fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memfd)
}

/// Whether a descriptor from somebody else is such memory, of this size.
pub(crate) fn check_memfd(memfd: &OwnedFd, expected: u64) -> Result<(), OpenError> {
    let seals = match fs::fcntl_get_seals(memfd) {
        Err(Errno::INVAL) => return Err(OpenError::NotMemfd),
        seals => seals?,
    };
    // An access to huge pages can fail with SIGBUS when there are no more of them.
    if fs::fstatfs(memfd)?.f_type as u64 != TMPFS_MAGIC {
        return Err(OpenError::NotMemfd);
    }
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(OpenError::Unsealed);
    }
    // After the seals: before them, the size might still change.
    match fs::fstat(memfd)?.st_size as u64 {
        found if found == expected => Ok(()),
        found => Err(OpenError::Size { found, expected }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RING;

    fn memfd(size: usize, seals: SealFlags) -> OwnedFd {
        let memfd = fs::memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        fs::ftruncate(&memfd, size as u64).unwrap();
        fs::fcntl_add_seals(&memfd, seals).unwrap();
        memfd
    }

    #[test]
    fn a_segment_opened_a_second_time_is_the_same_memory() {
        let (segment, memfd) = Segment::create().unwrap();
        let opened = Segment::open(memfd.try_clone().unwrap()).unwrap();
        let (driver, worker) = (segment.endpoint(Side::Driver), opened.endpoint(Side::Worker));
        for (mut producer, mut consumer, bytes) in
            [(driver.0, worker.1, b"question"), (worker.0, driver.1, b"response")]
        {
            let mut read = [0; 16];
            assert_eq!(producer.write(bytes), Ok(8));
            producer.publish();
            assert_eq!((consumer.read(&mut read), &read[..8]), (Ok(8), &bytes[..]));
        }
    }

    #[test]
    fn everything_can_go_to_another_thread() {
        fn sendable<T: Send>() {}
        sendable::<(Arc<Segment>, Producer, Consumer, SlotPool, crate::Slot, ReceivedSlot)>();
    }

    #[test]
    fn the_memfd_can_be_neither_cut_nor_grown_nor_unsealed_later() {
        let (_segment, memfd) = Segment::create().unwrap();
        assert_eq!(fs::ftruncate(&memfd, 0), Err(Errno::PERM));
        assert_eq!(fs::ftruncate(&memfd, SEGMENT as u64 + 1), Err(Errno::PERM));
        assert_eq!(fs::fcntl_add_seals(&memfd, SealFlags::WRITE), Err(Errno::PERM));
        assert!(rustix::io::fcntl_getfd(&memfd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn what_might_shrink_or_is_no_segment_is_refused() {
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW] {
            let refused = Segment::open(memfd(SEGMENT, seals));
            assert!(matches!(refused, Err(OpenError::Unsealed)), "{seals:?}: {refused:?}");
        }
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        for size in [0, SEGMENT - 1, SEGMENT + 1] {
            let refused = Segment::open(memfd(size, sealed));
            assert!(
                matches!(refused, Err(OpenError::Size { found, .. }) if found == size as u64),
                "{size}: {refused:?}"
            );
        }
        let refused = Segment::open(memfd(SEGMENT, sealed));
        assert!(matches!(refused, Err(OpenError::Magic { found: 0 })), "{refused:?}");
        let refused = Segment::open(memfd(SEGMENT, sealed | SealFlags::WRITE));
        assert!(matches!(refused, Err(OpenError::System(_))), "{refused:?}");
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        for other in [file.into(), std::os::unix::net::UnixStream::pair().unwrap().0.into()] {
            let refused = Segment::open(other);
            assert!(matches!(refused, Err(OpenError::NotMemfd)), "{refused:?}");
        }
    }

    #[test]
    fn each_ring_is_mapped_twice_in_a_row_and_apart_from_the_other() {
        let (segment, _memfd) = Segment::create().unwrap();
        let mut read = [0; 2];
        for (side, bytes) in [(Side::Driver, [1, 2]), (Side::Worker, [3, 4]), (Side::Driver, [5, 6])] {
            let ring = segment.mapping.ring(side);
            assert_eq!(ring.copy_from(RING - 1, &bytes), 2);
            assert_eq!((ring.copy_to(2 * RING - 1, &mut read), ring.copy_to(0, &mut read[1..])), (1, 1));
            assert_eq!(read, bytes);
        }
        segment.mapping.ring(Side::Worker).copy_to(RING - 1, &mut read);
        assert_eq!(read, [3, 4]);
    }
}
