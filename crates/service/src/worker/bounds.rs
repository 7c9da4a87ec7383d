//! How much of the worker a session may take up. The driver of a program never comes near any of these: they are for
//! drivers that are somebody's own work.
//!
//! What a single message may ask for is bounded by its length; here is what many messages come to. A session that goes
//! too far ends, and learns why, where its stream makes no sense without what was refused; otherwise the request fails.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use telecl_net::ReceiveError;
use telecl_opencl::{ClError, ClResult};
use telecl_sys::{CL_INVALID_VALUE, CL_OUT_OF_RESOURCES};

/// Objects of one kind, with ids whose creation has failed.
pub(crate) const MOST_OBJECTS: usize = 1 << 20;

/// Parts of writes that are not complete. A write has one for each MiB.
pub(crate) const MOST_OPEN_PARTS: usize = 1 << 18;

/// Finishes that wait for one read.
pub(crate) const MOST_PUT_OFF: usize = 1 << 16;

/// The highest number of a kernel's argument, where the vendor does not say how many there are.
pub(crate) const MOST_ARGS: u32 = 1 << 13;

/// Events of the program that one command waits for, itself or with what comes before it.
pub(crate) const MOST_BLOCKERS: usize = 4096;

/// Commands that are to be reported and have not been, and what they are to be reported after, all together.
pub(crate) const MOST_UNREPORTED: usize = 1 << 18;
pub(crate) const MOST_ORDERED: usize = 1 << 23;

/// Threads that wait in the vendor's `clFinish`.
pub(crate) const MOST_FINISHES: usize = 256;

/// The longest pattern of a fill.
const LONGEST_PATTERN: usize = 128;

/// Host memory beyond what the devices have: programs, and transfers that are under way.
const HOST_MEMORY: u64 = 256 << 20;

/// Why a session ends that has gone too far.
pub(crate) fn too_far(what: &str) -> ReceiveError {
    io::Error::new(io::ErrorKind::InvalidData, format!("the session may have no more than {what}")).into()
}

/// CL_INVALID_VALUE if pattern is NULL or if pattern_size is 0 or if pattern_size is not one of { 1, 2, 4, 8, 16, 32, 64,
/// 128 }.
pub(crate) fn check_pattern(pattern: &[u8]) -> ClResult<()> {
    let valid = pattern.len().is_power_of_two() && pattern.len() <= LONGEST_PATTERN;
    if valid { Ok(()) } else { Err(ClError(CL_INVALID_VALUE)) }
}

/// An error if something has too many of its kind.
pub(crate) fn at_most(count: usize, most: usize) -> ClResult<()> {
    if count <= most { Ok(()) } else { Err(ClError(CL_OUT_OF_RESOURCES)) }
}

/// The host memory that a session takes up by what it sends ahead, and by what it does not receive.
#[derive(Debug)]
pub(crate) struct HostMemory {
    most: AtomicU64,
    used: AtomicU64,
}

/// Some of it, given back when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    of: Arc<HostMemory>,
    bytes: u64,
}

impl HostMemory {
    pub(crate) fn new() -> Arc<HostMemory> {
        Arc::new(HostMemory { most: AtomicU64::new(HOST_MEMORY), used: AtomicU64::new(0) })
    }

    /// The session may use so much of its devices: it may have as much on the way there.
    pub(crate) fn set_device_memory(&self, bytes: u64) {
        self.most.store(bytes.saturating_add(HOST_MEMORY), Ordering::Relaxed);
    }

    /// Whether there is so much more.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        used.saturating_add(bytes as u64) <= self.most.load(Ordering::Relaxed)
    }

    /// The end of the session if there is not so much more.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), ReceiveError> {
        if self.has_room(bytes) {
            return Ok(());
        }
        let most = self.most.load(Ordering::Relaxed);
        Err(too_far(&format!("{most} bytes of data on their way to its devices")))
    }

    /// Counts so much more, whether there is room or not.
    pub(crate) fn lease(self: &Arc<Self>, bytes: usize) -> Lease {
        let bytes = bytes as u64;
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Lease { of: Arc::clone(self), bytes }
    }
}

impl Lease {
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.of.used.fetch_add(bytes as u64, Ordering::Relaxed);
        self.bytes += bytes as u64;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_given_back() {
        let memory = HostMemory::new();
        memory.set_device_memory(1 << 20);
        let all = usize::try_from(HOST_MEMORY).unwrap() + (1 << 20);
        let mut lease = memory.lease(all - 10);
        lease.grow(5);
        assert!(memory.has_room(5) && !memory.has_room(6) && !memory.has_room(usize::MAX));
        let reason = memory.check(6).unwrap_err().to_string();
        assert!(reason.contains("no more than 269484032 bytes"), "{reason}");
        drop(lease);
        assert!(memory.check(all).is_ok());
    }

    #[test]
    fn a_pattern_is_as_long_as_a_vector() {
        assert!([1, 2, 4, 64, 128].iter().all(|length| check_pattern(&vec![0; *length]).is_ok()));
        assert!([0, 3, 129, 256].iter().all(|length| check_pattern(&vec![0; *length]).is_err()));
    }
}
