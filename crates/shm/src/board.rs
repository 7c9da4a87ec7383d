//! A board: counters that two processes on one node share, and words at which one can sleep until the other wakes it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::segment::{OpenError, check_memfd, sealed_memfd};

/// What stands on a board: only atomics, since the peer may write all of it at any time.
///
/// First come the bells, then, on a page of their own, the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Words of 32 bits, at which the kernel lets somebody sleep (futex).
    pub bells: usize,
    /// Words of 64 bits.
    pub words: usize,
}

impl Shape {
    /// The most bytes of one of its parts.
    const MOST: usize = 16 << 20;

    fn words_start(self) -> usize {
        (self.bells * size_of::<AtomicU32>()).next_multiple_of(4096)
    }

    fn bytes(self) -> usize {
        self.words_start() + self.words * size_of::<AtomicU64>()
    }

    /// Whether it can be a board at all.
    fn check(self) -> io::Result<()> {
        let fits = self.bells <= Shape::MOST / 4 && (1..=Shape::MOST / 8).contains(&self.words);
        if fits { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

/// The shared memory; unmapped when dropped.
#[derive(Debug)]
pub struct Board {
    base: NonNull<u8>,
    shape: Shape,
}

// SAFETY: the memory belongs to no thread, and is accessed through atomics only.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    /// A new board, all of it zero, and the descriptor that the peer opens.
    pub fn create(shape: Shape) -> io::Result<(Board, OwnedFd)> {
        shape.check()?;
        let memfd = sealed_memfd(shape.bytes() as u64)?;
        Ok((Board::map(&memfd, shape)?, memfd))
    }

    /// The board that the peer has created, which must have this shape.
    pub fn open(memfd: &OwnedFd, shape: Shape) -> Result<Board, OpenError> {
        shape.check().map_err(OpenError::System)?;
        check_memfd(memfd, shape.bytes() as u64)?;
        Board::map(memfd, shape).map_err(OpenError::System)
    }

    fn map(memfd: &OwnedFd, shape: Shape) -> io::Result<Board> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe { mm::mmap(ptr::null_mut(), shape.bytes(), access, MapFlags::SHARED, memfd.as_fd(), 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let board = Board { base, shape };
        // SAFETY: the range is our own mapping; no child of these processes uses it.
        unsafe { mm::madvise(base.as_ptr().cast(), shape.bytes(), Advice::LinuxDontFork) }?;
        Ok(board)
    }

    /// A word at which one can sleep.
    ///
    /// # Panics
    /// If there is no such bell.
    pub fn bell(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.shape.bells, "the board has {} bells", self.shape.bells);
        // SAFETY: inside the mapping, by the line above, and aligned, as the mapping begins on a page. Any bytes are a
        // valid atomic, and all who know the memory access this word as one.
        unsafe { self.base.cast::<AtomicU32>().add(index).as_ref() }
    }

    /// A counter.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.shape.words, "the board has {} words", self.shape.words);
        // SAFETY: as for bells; the words begin on a page, too.
        unsafe { self.base.add(self.shape.words_start()).cast::<AtomicU64>().add(index).as_ref() }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the range was mapped in `map` and is unmapped once; no reference outlives `self`.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), self.shape.bytes()) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    const SHAPE: Shape = Shape { bells: 3, words: 5 };

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let (ours, memfd) = Board::create(SHAPE).unwrap();
        let theirs = Board::open(&memfd, SHAPE).unwrap();
        for index in 0..SHAPE.words {
            assert_eq!(theirs.word(index).load(Ordering::Relaxed), 0);
            ours.word(index).store(100 + index as u64, Ordering::Relaxed);
        }
        (0..SHAPE.bells).for_each(|index| ours.bell(index).store(7 + index as u32, Ordering::Relaxed));
        assert!((0..SHAPE.words).all(|index| theirs.word(index).load(Ordering::Relaxed) == 100 + index as u64));
        assert!((0..SHAPE.bells).all(|index| theirs.bell(index).load(Ordering::Relaxed) == 7 + index as u32));
    }

    #[test]
    fn a_board_of_another_shape_or_none_is_refused() {
        let (_ours, memfd) = Board::create(SHAPE).unwrap();
        let larger = Shape { words: 6, ..SHAPE };
        assert!(matches!(Board::open(&memfd, larger), Err(OpenError::Size { .. })));
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(Board::open(&file, SHAPE).is_err());
        for shape in
            [Shape { words: 0, ..SHAPE }, Shape { words: usize::MAX, ..SHAPE }, Shape { bells: 1 << 40, ..SHAPE }]
        {
            assert!(Board::create(shape).is_err());
        }
    }

    #[test]
    #[should_panic(expected = "5 words")]
    fn there_is_nothing_beyond_its_end() {
        let (board, _memfd) = Board::create(SHAPE).unwrap();
        board.word(5);
    }
}
