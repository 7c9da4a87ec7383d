//! Host memory between the link and a device.

use std::sync::{Arc, Mutex, PoisonError};

use telecl_wire::CHUNK;

/// Shorter chunks come from the allocator, which is good at them.
const POOLED: usize = 64 << 10;

/// How many unused chunks are kept.
const KEPT: usize = 32;

/// Chunks that were used before: their pages are in memory, and need not be cleared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

/// A piece of host memory. It goes back to its pool when it is dropped.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Not a box: a device may be using the memory while this struct is moved, and moving a box says that nobody does.
    bytes: Vec<u8>,
    len: usize,
    pool: Pool,
}

impl Pool {
    /// A chunk of `len` bytes with whatever content; at most a few times [`CHUNK`] is asked for at once.
    pub(crate) fn take(&self, len: usize) -> Chunk {
        let pooled = (POOLED..=CHUNK).contains(&len);
        let reused = if pooled { self.0.lock().unwrap_or_else(PoisonError::into_inner).pop() } else { None };
        let bytes = reused.unwrap_or_else(|| vec![0; if pooled { CHUNK } else { len }]);
        Chunk { bytes, len, pool: self.clone() }
    }
}

impl Chunk {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.bytes.len() == CHUNK {
            let mut free = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
            if free.len() < KEPT {
                free.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_chunks_are_used_again() {
        let pool = Pool::default();
        let mut first = pool.take(CHUNK - 1);
        first.bytes_mut().fill(7);
        drop(first);
        let second = pool.take(POOLED);
        assert_eq!(second.len(), POOLED);
        assert!(second.bytes().iter().all(|&byte| byte == 7));
        assert_eq!(pool.take(3).bytes(), [0; 3]);
    }
}
