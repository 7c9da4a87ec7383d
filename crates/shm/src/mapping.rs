//! Where everything lies in the memfd and in our address space, and the only code that touches it.
//!
//! All `unsafe` of this crate is here. What is offered to the other modules is safe whatever they pass.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::segment::Side;
use crate::stream;

/// Bytes in the ring of one direction; a power of two.
pub const RING: usize = 2 << 20;
/// Slots of one direction.
pub const SLOTS: usize = 4;
/// Bytes in one slot. Devices take longer to begin a transfer than to move half of this.
pub const SLOT: usize = 1 << 20;
/// Bytes in the memfd.
pub const SEGMENT: usize = CONTROL + 2 * RING + 2 * SLOTS * SLOT;

/// More than the counters need: what follows must begin on a page, and some machines have pages of 64 KiB.
const CONTROL: usize = 64 << 10;
/// Bytes of address space: both rings are there twice.
const MAPPED: usize = SEGMENT + 2 * RING;
const SLOTS_START: usize = CONTROL + 4 * RING;

/// Offset in our address space, offset in the memfd, length.
const PARTS: [(usize, usize, usize); 6] = [
    (0, 0, CONTROL),
    (CONTROL, CONTROL, RING),
    (CONTROL + RING, CONTROL, RING),
    (CONTROL + 2 * RING, CONTROL + RING, RING),
    (CONTROL + 3 * RING, CONTROL + RING, RING),
    (SLOTS_START, CONTROL + 2 * RING, 2 * SLOTS * SLOT),
];

const _: () = assert!(RING.is_power_of_two() && RING.is_multiple_of(CONTROL) && SLOT.is_multiple_of(CONTROL));
const _: () = assert!(size_of::<Control>() <= CONTROL);
const _: () = assert!(SLOTS_START + 2 * SLOTS * SLOT == MAPPED);

/// A cache line of its own. 128 bytes, because x86 fetches lines in pairs and some ARM lines are that long.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// The beginning of the memfd. Only atomics, since the peer may write all of it at any time.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control {
    pub(crate) magic: Line<AtomicU64>,
    directions: [Direction; 2],
}

/// The control words of one direction.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Direction {
    /// Bytes ever published; the producer stores it.
    pub(crate) tail: Line<AtomicU64>,
    /// Bytes ever consumed; the consumer stores it.
    pub(crate) head: Line<AtomicU64>,
    /// 1 if the consumer sleeps: it sets it, and whoever wakes it clears it.
    pub(crate) sleeping: Line<AtomicU32>,
    /// 0 if the slot is free: the producer sets 1, the consumer sets 0.
    pub(crate) slot_states: [Line<AtomicU32>; SLOTS],
}

/// The memfd in our address space; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
}

// SAFETY: the memory belongs to no thread, and is accessed through atomics and raw copies only.
unsafe impl Send for Mapping {}
// SAFETY: as above. Threads that copy at the same time do what the peer may do anyway; see `Area`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a memfd that is known to have `SEGMENT` bytes and to keep them.
    pub(crate) fn new(memfd: BorrowedFd<'_>) -> io::Result<Mapping> {
        let reserve = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice disturbs nothing.
        let reserved = unsafe { mm::mmap_anonymous(ptr::null_mut(), MAPPED, ProtFlags::empty(), reserve) }?;
        let base = NonNull::new(reserved.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { base };
        for (start, offset, len) in PARTS {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: every part lies in the `MAPPED` bytes just reserved, of which nobody else knows yet.
            unsafe {
                let start = base.as_ptr().add(start).cast();
                mm::mmap(start, len, access, MapFlags::SHARED | MapFlags::FIXED, memfd, offset as u64)?;
            }
        }
        // SAFETY: the range is our own mapping; a child that has it no more is told so in this crate's rules.
        unsafe { mm::madvise(base.as_ptr().cast(), MAPPED, Advice::LinuxDontFork) }?;
        Ok(mapping)
    }

    pub(crate) fn control(&self) -> &Control {
        // SAFETY: `base` is page-aligned and mapped for `CONTROL` bytes as long as `self` lives; any bytes are a valid
        // `Control`, and all of it is atomic, so that the peer may write it while the reference lives.
        unsafe { self.base.cast::<Control>().as_ref() }
    }

    /// The control words of what `from` fills.
    pub(crate) fn direction(&self, from: Side) -> &Direction {
        &self.control().directions[from as usize]
    }

    /// The ring that `from` fills, twice.
    pub(crate) fn ring(&self, from: Side) -> Area<'_> {
        self.area(CONTROL + from as usize * 2 * RING, 2 * RING)
    }

    /// A slot that `from` fills.
    pub(crate) fn slot(&self, from: Side, index: usize) -> Area<'_> {
        assert!(index < SLOTS);
        self.area(SLOTS_START + (from as usize * SLOTS + index) * SLOT, SLOT)
    }

    fn area(&self, start: usize, len: usize) -> Area<'_> {
        assert!(start <= MAPPED && len <= MAPPED - start);
        // SAFETY: `start` is inside the mapping, or at its end, by the line above.
        Area { start: unsafe { self.base.add(start) }, len, mapping: PhantomData }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped in `new` and is unmapped once; no `Area` or reference outlives `self`.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), MAPPED) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A run of shared bytes. `start` is valid for `len` bytes as long as the mapping is borrowed.
///
/// There is never a reference to these bytes, because the peer may write them at any time and a reference promises
/// that nobody does. They are copied through raw pointers. A copy that races with the peer has unspecified bytes, which
/// is no more than a hostile peer can have without a race.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area<'a> {
    start: NonNull<u8>,
    len: usize,
    mapping: PhantomData<&'a Mapping>,
}

impl Area<'_> {
    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Copies as much of `source` as fits behind `offset`, and returns how much.
    pub(crate) fn copy_from(self, offset: usize, source: &[u8]) -> usize {
        let len = source.len().min(self.len.saturating_sub(offset));
        if len > 0 {
            // SAFETY: `offset + len <= self.len`, for which `start` is valid. `source` is private memory: no safe code has
            // a slice of the mapping.
            unsafe { ptr::copy_nonoverlapping(source.as_ptr(), self.start.as_ptr().add(offset), len) };
        }
        len
    }

    /// Copies what lies behind `offset` to `target`, as much as there is, and returns how much.
    pub(crate) fn copy_to(self, offset: usize, target: &mut [u8]) -> usize {
        self.copy_with(offset, target, ptr::copy_nonoverlapping)
    }

    /// As [`Area::copy_to`], past the cache.
    pub(crate) fn stream_to(self, offset: usize, target: &mut [u8]) -> usize {
        self.copy_with(offset, target, stream::copy)
    }

    fn copy_with(self, offset: usize, target: &mut [u8], copy: unsafe fn(*const u8, *mut u8, usize)) -> usize {
        let len = target.len().min(self.len.saturating_sub(offset));
        if len > 0 {
            // SAFETY: as in `copy_from`, the other way; both ways to copy ask for no more.
            unsafe { copy(self.start.as_ptr().add(offset), target.as_mut_ptr(), len) };
        }
        // Without this the compiler, which believes that nobody else writes, may take a later copy of `target` from the
        // shared bytes instead, after `target` has been checked.
        compiler_fence(Ordering::SeqCst);
        len
    }
}
