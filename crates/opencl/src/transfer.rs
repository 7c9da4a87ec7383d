//! The commands on buffers: read, write, copy, fill, map and migrate; and markers and barriers. Images are in `image.rs`.
//!
//! Those with a host pointer return before they are done, and are `unsafe` for that reason.

use std::ffi::c_void;
use std::ptr;

use telecl_sys::*;

use crate::handle::{count, pointer};
use crate::library::need;
use crate::{Event, Mem, Order, Queue};

/// Where a rectangular region lies on one side of a copy: in a buffer, or in host memory.
///
/// A pitch of zero means that rows, or slices, follow each other without a gap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RectSide {
    /// In bytes, rows and slices.
    pub origin: [usize; 3],
    pub row_pitch: usize,
    pub slice_pitch: usize,
}

/// Buffers.
impl Queue {
    /// `clEnqueueReadBuffer` that does not block.
    ///
    /// # Safety
    /// `to` is valid for `size` bytes, and nobody else uses them, until the command is complete.
    pub unsafe fn read_buffer(
        &self,
        buffer: &Mem,
        offset: usize,
        size: usize,
        to: *mut u8,
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        order.enqueue(self.library(), |num_waits, waits, event| {
            let read = self.library().clEnqueueReadBuffer;
            // SAFETY: the handles are valid, and so is `to` by this function's contract.
            unsafe {
                let to = to.cast();
                read(self.raw(), buffer.raw(), CL_FALSE, offset, size, to, num_waits, waits, event)
            }
        })
    }

    /// `clEnqueueReadBuffer` that blocks.
    pub fn read_buffer_blocking(&self, buffer: &Mem, offset: usize, to: &mut [u8]) -> ClResult<()> {
        // SAFETY: the handles are valid, and `to` is ours for the whole command, which is done on return.
        check(unsafe {
            (self.library().clEnqueueReadBuffer)(
                self.raw(),
                buffer.raw(),
                CL_TRUE,
                offset,
                to.len(),
                to.as_mut_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        })
    }

    /// `clEnqueueWriteBuffer` that does not block.
    ///
    /// # Safety
    /// `from` is valid for `size` bytes, and nobody changes them, until the command is complete.
    pub unsafe fn write_buffer(
        &self,
        buffer: &Mem,
        offset: usize,
        size: usize,
        from: *const u8,
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        order.enqueue(self.library(), |num_waits, waits, event| {
            let write = self.library().clEnqueueWriteBuffer;
            // SAFETY: the handles are valid, and so is `from` by this function's contract.
            unsafe {
                let from = from.cast();
                write(self.raw(), buffer.raw(), CL_FALSE, offset, size, from, num_waits, waits, event)
            }
        })
    }

    /// `clEnqueueWriteBuffer` that blocks until `from` has been copied.
    pub fn write_buffer_blocking(&self, buffer: &Mem, offset: usize, from: &[u8]) -> ClResult<()> {
        // SAFETY: the handles are valid, and `from` is not needed any more on return.
        check(unsafe {
            (self.library().clEnqueueWriteBuffer)(
                self.raw(),
                buffer.raw(),
                CL_TRUE,
                offset,
                from.len(),
                from.as_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        })
    }

    /// `clEnqueueReadBufferRect` that does not block.
    ///
    /// # Safety
    /// `to` is valid for all that `host` and `region` cover, and nobody else uses it, until the command is complete.
    pub unsafe fn read_buffer_rect(
        &self,
        buffer: &Mem,
        side: &RectSide,
        to: *mut u8,
        host: &RectSide,
        region: &[usize; 3],
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        let read = need(self.library().clEnqueueReadBufferRect)?;
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: the handles are valid, and so is `to` by this function's contract.
            unsafe {
                read(
                    self.raw(),
                    buffer.raw(),
                    CL_FALSE,
                    side.origin.as_ptr(),
                    host.origin.as_ptr(),
                    region.as_ptr(),
                    side.row_pitch,
                    side.slice_pitch,
                    host.row_pitch,
                    host.slice_pitch,
                    to.cast(),
                    num_waits,
                    waits,
                    event,
                )
            }
        })
    }

    /// `clEnqueueWriteBufferRect` that does not block.
    ///
    /// # Safety
    /// `from` is valid for all that `host` and `region` cover, and nobody changes it, until the command is complete.
    pub unsafe fn write_buffer_rect(
        &self,
        buffer: &Mem,
        side: &RectSide,
        from: *const u8,
        host: &RectSide,
        region: &[usize; 3],
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        let write = need(self.library().clEnqueueWriteBufferRect)?;
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: the handles are valid, and so is `from` by this function's contract.
            unsafe {
                write(
                    self.raw(),
                    buffer.raw(),
                    CL_FALSE,
                    side.origin.as_ptr(),
                    host.origin.as_ptr(),
                    region.as_ptr(),
                    side.row_pitch,
                    side.slice_pitch,
                    host.row_pitch,
                    host.slice_pitch,
                    from.cast(),
                    num_waits,
                    waits,
                    event,
                )
            }
        })
    }

    /// `clEnqueueCopyBuffer`.
    pub fn copy_buffer(
        &self,
        from: &Mem,
        from_offset: usize,
        to: &Mem,
        to_offset: usize,
        size: usize,
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        order.enqueue(self.library(), |num_waits, waits, event| {
            let copy = self.library().clEnqueueCopyBuffer;
            let (from, to) = (from.raw(), to.raw());
            // SAFETY: all handles are valid.
            unsafe { copy(self.raw(), from, to, from_offset, to_offset, size, num_waits, waits, event) }
        })
    }

    /// `clEnqueueCopyBufferRect`.
    pub fn copy_buffer_rect(
        &self,
        from: &Mem,
        from_side: &RectSide,
        to: &Mem,
        to_side: &RectSide,
        region: &[usize; 3],
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        let copy = need(self.library().clEnqueueCopyBufferRect)?;
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: all handles are valid, and the arrays have three elements.
            unsafe {
                copy(
                    self.raw(),
                    from.raw(),
                    to.raw(),
                    from_side.origin.as_ptr(),
                    to_side.origin.as_ptr(),
                    region.as_ptr(),
                    from_side.row_pitch,
                    from_side.slice_pitch,
                    to_side.row_pitch,
                    to_side.slice_pitch,
                    num_waits,
                    waits,
                    event,
                )
            }
        })
    }

    /// `clEnqueueFillBuffer`. The pattern is copied.
    pub fn fill_buffer(
        &self,
        buffer: &Mem,
        pattern: &[u8],
        offset: usize,
        size: usize,
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        let fill = need(self.library().clEnqueueFillBuffer)?;
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: the handles are valid; the pattern may go once the call returns, says the specification.
            unsafe {
                fill(
                    self.raw(),
                    buffer.raw(),
                    pattern.as_ptr().cast(),
                    pattern.len(),
                    offset,
                    size,
                    num_waits,
                    waits,
                    event,
                )
            }
        })
    }

    /// `clEnqueueMapBuffer` that blocks: the address of a buffer's part in the driver's host memory.
    ///
    /// The bytes may be used until [`unmap`](Self::unmap), which has to come before the buffer goes away. Meant for
    /// pinned staging memory (`CL_MEM_ALLOC_HOST_PTR`).
    pub fn map_buffer_blocking(
        &self,
        buffer: &Mem,
        flags: cl_map_flags,
        offset: usize,
        size: usize,
    ) -> ClResult<ptr::NonNull<u8>> {
        let mut status = CL_SUCCESS;
        // SAFETY: the handles are valid, and the status is ours.
        let mapped = unsafe {
            (self.library().clEnqueueMapBuffer)(
                self.raw(),
                buffer.raw(),
                CL_TRUE,
                flags,
                offset,
                size,
                0,
                ptr::null(),
                ptr::null_mut(),
                &raw mut status,
            )
        };
        check(status)?;
        ptr::NonNull::new(mapped.cast()).ok_or(ClError(CL_MAP_FAILURE))
    }

    /// `clEnqueueUnmapMemObject`.
    ///
    /// # Safety
    /// `mapped` came from a map of `mem` that has not been undone, and nobody uses the memory any more.
    pub unsafe fn unmap(&self, mem: &Mem, mapped: ptr::NonNull<u8>, order: &Order<'_>) -> ClResult<Option<Event>> {
        order.enqueue(self.library(), |num_waits, waits, event| {
            let unmap = self.library().clEnqueueUnmapMemObject;
            let mapped: *mut c_void = mapped.as_ptr().cast();
            // SAFETY: the handles are valid, and so is the mapping by this function's contract.
            unsafe { unmap(self.raw(), mem.raw(), mapped, num_waits, waits, event) }
        })
    }
}

/// Commands about order and place.
impl Queue {
    /// `clEnqueueMigrateMemObjects`.
    pub fn migrate(
        &self,
        objects: &[&Mem],
        flags: cl_mem_migration_flags,
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        let migrate = need(self.library().clEnqueueMigrateMemObjects)?;
        let objects: Vec<cl_mem> = objects.iter().map(|object| object.raw()).collect();
        let (number, objects) = (count(objects.len())?, pointer(&objects));
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: all handles are valid.
            unsafe { migrate(self.raw(), number, objects, flags, num_waits, waits, event) }
        })
    }

    /// `clEnqueueMarkerWithWaitList`: complete when the waits are, or, without any, all commands before it.
    pub fn marker(&self, order: &Order<'_>) -> ClResult<Option<Event>> {
        let marker = need(self.library().clEnqueueMarkerWithWaitList)?;
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: all handles are valid.
            unsafe { marker(self.raw(), num_waits, waits, event) }
        })
    }

    /// `clEnqueueBarrierWithWaitList`: a marker that later commands of the queue wait for.
    pub fn barrier(&self, order: &Order<'_>) -> ClResult<Option<Event>> {
        let barrier = need(self.library().clEnqueueBarrierWithWaitList)?;
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: all handles are valid.
            unsafe { barrier(self.raw(), num_waits, waits, event) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, testing};

    fn buffer(context: &Context, data: &[u8]) -> Mem {
        context.create_buffer(CL_MEM_READ_WRITE, data.len(), Some(data), &[]).unwrap()
    }

    fn contents(queue: &Queue, buffer: &Mem, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        queue.read_buffer_blocking(buffer, 0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn parts_are_filled_and_copied() {
        let Some((context, device)) = testing::context() else { return };
        let queue = context.create_queue(&device, 0).unwrap();
        let (a, b) = (buffer(&context, &[0; 16]), buffer(&context, &[9; 16]));
        queue.fill_buffer(&a, &[1, 2], 4, 8, &Order::new()).unwrap();
        queue.copy_buffer(&a, 4, &b, 0, 4, &Order::new()).unwrap();
        queue.migrate(&[&a, &b], 0, &Order::new()).unwrap();
        assert_eq!(contents(&queue, &a, 16), [0, 0, 0, 0, 1, 2, 1, 2, 1, 2, 1, 2, 0, 0, 0, 0]);
        assert_eq!(contents(&queue, &b, 6), [1, 2, 1, 2, 9, 9]);
        let beyond = queue.copy_buffer(&a, 0, &b, 8, 16, &Order::new());
        assert_eq!(beyond, Err(ClError(CL_INVALID_VALUE)));
    }

    #[test]
    fn rectangles_keep_their_shape() {
        let Some((context, device)) = testing::context() else { return };
        let queue = context.create_queue(&device, 0).unwrap();
        let data: Vec<u8> = (0..16).collect();
        let (a, b) = (buffer(&context, &data), buffer(&context, &[0; 16]));
        let wide = |origin| RectSide { origin, row_pitch: 4, slice_pitch: 0 };
        let region = [2, 2, 1];
        let mut part = [0u8; 4];
        // SAFETY: four bytes without a gap, and the queue is finished before they are used.
        unsafe {
            let (side, host) = (wide([1, 1, 0]), RectSide::default());
            queue.read_buffer_rect(&a, &side, part.as_mut_ptr(), &host, &region, &Order::new())
        }
        .unwrap();
        queue.finish().unwrap();
        assert_eq!(part, [5, 6, 9, 10]);
        let (from, to) = (wide([2, 2, 0]), wide([0, 0, 0]));
        queue.copy_buffer_rect(&a, &from, &b, &to, &region, &Order::new()).unwrap();
        // SAFETY: as above.
        unsafe {
            let (side, host) = (wide([2, 2, 0]), RectSide::default());
            queue.write_buffer_rect(&b, &side, part.as_ptr(), &host, &region, &Order::new())
        }
        .unwrap();
        queue.finish().unwrap();
        let expected = [10, 11, 0, 0, 14, 15, 0, 0, 0, 0, 5, 6, 0, 0, 9, 10];
        assert_eq!(contents(&queue, &b, 16), expected);
    }

    #[test]
    fn a_failed_wait_fails_what_depends_on_it() {
        let Some((context, device)) = testing::context() else { return };
        let queue = context.create_queue(&device, 0).unwrap();
        let gate = context.create_user_event().unwrap();
        let mut order = Order::new().with_event();
        order.push(&gate);
        let barrier = queue.barrier(&order).unwrap().unwrap();
        gate.set_status(-5).unwrap();
        assert!(barrier.wait().is_err());
        assert!(barrier.status().unwrap() < 0);
    }

    #[test]
    fn mapped_memory_is_the_buffer() {
        let Some((context, device)) = testing::context() else { return };
        let queue = context.create_queue(&device, 0).unwrap();
        let staging = context.create_buffer(CL_MEM_ALLOC_HOST_PTR, 8, None, &[]).unwrap();
        let mapped = queue.map_buffer_blocking(&staging, CL_MAP_WRITE, 0, 8).unwrap();
        // SAFETY: eight mapped bytes, used by nobody else, and not after the unmap.
        unsafe {
            mapped.as_ptr().write_bytes(3, 8);
            queue.unmap(&staging, mapped, &Order::new()).unwrap();
        }
        assert_eq!(contents(&queue, &staging, 8), [3; 8]);
    }
}
