//! Host memory between the link and a device.

use std::sync::{Arc, Mutex, PoisonError};

use telecl_net::{ReceivedSlot, Slot};
use telecl_wire::CHUNK;

use super::link::Link;

/// Shorter chunks come from the allocator, which is good at them.
const POOLED: usize = 64 << 10;

/// How many unused chunks are kept.
const KEPT: usize = 32;

/// Chunks that were used before: their pages are in memory, and need not be cleared.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
    link: Arc<Link>,
}

/// A piece of host memory. It goes back to where it came from when it is dropped.
#[derive(Debug)]
pub(crate) struct Chunk {
    memory: Memory,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Own(OwnMemory),
    /// Shared with the driver, to be sent to it.
    Outgoing(Slot),
    /// Shared with the driver, received from it.
    Incoming(ReceivedSlot),
}

#[derive(Debug)]
struct OwnMemory {
    /// Not a box: a device may be using the memory while this struct is moved, and moving a box says that nobody does.
    bytes: Vec<u8>,
    pool: Pool,
}

impl Pool {
    pub(crate) fn new(link: Arc<Link>) -> Pool {
        Pool { free: Arc::default(), link }
    }

    /// A chunk of `len` bytes with whatever content; at most a few times [`CHUNK`] is asked for at once.
    pub(crate) fn take(&self, len: usize) -> Chunk {
        let pooled = (POOLED..=CHUNK).contains(&len);
        let reused = if pooled { self.lock().pop() } else { None };
        let bytes = reused.unwrap_or_else(|| vec![0; if pooled { CHUNK } else { len }]);
        Chunk { memory: Memory::Own(OwnMemory { bytes, pool: self.clone() }), len }
    }

    /// As [`Pool::take`], for something that will be sent to the driver.
    pub(crate) fn take_outgoing(&self, len: usize) -> Chunk {
        let slot = if (POOLED..=Slot::LEN).contains(&len) { self.link.take_slot() } else { None };
        match slot {
            Some(slot) => Chunk { memory: Memory::Outgoing(slot), len },
            None => self.take(len),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chunk {
    /// The first `len` bytes of what the driver has put there.
    pub(crate) fn incoming(slot: ReceivedSlot, len: usize) -> Chunk {
        Chunk { memory: Memory::Incoming(slot), len: len.min(Slot::LEN) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes, if nobody else can change them; none of what is shared with the driver.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(own) => &own.bytes[..self.len],
            Memory::Outgoing(_) | Memory::Incoming(_) => &[],
        }
    }

    /// As [`Chunk::bytes`].
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Own(own) => &mut own.bytes[..self.len],
            Memory::Outgoing(_) | Memory::Incoming(_) => &mut [],
        }
    }

    /// `len` bytes for a device. The driver may change those that it shares; it can only spoil its own data.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        match &mut self.memory {
            Memory::Own(own) => own.bytes.as_mut_ptr(),
            Memory::Outgoing(slot) => slot.as_mut_ptr(),
            Memory::Incoming(slot) => slot.as_ptr().cast_mut(),
        }
    }

    /// The slot and how much of it, if the chunk can be sent without being copied.
    pub(crate) fn into_slot(self) -> Result<(Slot, usize), Chunk> {
        match self.memory {
            Memory::Outgoing(slot) => Ok((slot, self.len)),
            memory => Err(Chunk { memory, len: self.len }),
        }
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        if self.bytes.len() == CHUNK {
            let mut free = self.pool.lock();
            if free.len() < KEPT {
                free.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use telecl_net::{FrameSender, Stream};

    use super::*;

    #[test]
    fn large_chunks_are_used_again() {
        let (socket, _peer) = UnixStream::pair().unwrap();
        let link = Link::new(FrameSender::new(Stream::from_fd(socket.into())), 1);
        let pool = Pool::new(Arc::new(link));
        let mut first = pool.take(CHUNK - 1);
        first.bytes_mut().fill(7);
        drop(first);
        let second = pool.take_outgoing(POOLED);
        assert_eq!(second.len(), POOLED);
        assert!(second.bytes().iter().all(|&byte| byte == 7));
        assert_eq!(pool.take(3).bytes(), [0; 3]);
    }
}
