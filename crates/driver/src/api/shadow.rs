//! Memory of ours that stands for a memory object while it is mapped.

use std::ptr;

use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use telecl_sys::{CL_MAP_FAILURE, ClError, ClResult};

use crate::host::HostPointer;

/// Anonymous memory of the size of a memory object. Pages cost nothing until they are touched.
#[derive(Debug)]
pub(super) struct Shadow {
    start: HostPointer,
    size: usize,
}

impl Shadow {
    pub(super) fn new(size: u64) -> ClResult<Shadow> {
        let size = usize::try_from(size).map_err(|_| ClError(CL_MAP_FAILURE))?.max(1);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice disturbs nothing.
        let mapped = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let start = mapped.ok().and_then(|start| HostPointer::new(start.cast())).ok_or(ClError(CL_MAP_FAILURE))?;
        Ok(Shadow { start, size })
    }

    pub(super) fn start(&self) -> HostPointer {
        self.start
    }

    /// Gives the pages back; the next mapping fetches its content anew.
    pub(super) fn discard(&self) {
        // SAFETY: the range is our own mapping, and nothing of it is mapped by the program any more.
        let advised = unsafe { mm::madvise(self.start.address() as *mut _, self.size, Advice::LinuxDontNeed) };
        // Keeping the pages is the worst that can happen.
        let _ = advised;
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: the range was mapped in `new` and is unmapped once.
        let unmapped = unsafe { mm::munmap(self.start.address() as *mut _, self.size) };
        debug_assert!(unmapped.is_ok());
    }
}
