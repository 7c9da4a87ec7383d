//! The calls into the vendor's OpenCL that Rust cannot check, each behind a function that makes it safe or says why the
//! worker may make it.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use telecl_opencl::{
    ClError, ClResult, Context, Device, Event, ImageRegion, Kernel, Mem, NdRange, Order, Queue, RectSide,
};
use telecl_sys::*;

use super::completion::{Completion, Note};
use super::ends::{Ends, Weight};
use super::link::Link;
use super::staging::Chunk;

/// Host memory that the vendor's driver knows of, so that its device can reach it by itself. As long as this lives.
#[derive(Debug)]
pub(crate) struct Pinned {
    queue: Queue,
    buffer: Mem,
    start: NonNull<u8>,
    /// What is pinned, if it is ours alone. After the buffer, so that it is freed after it.
    memory: Option<Pages>,
}

// SAFETY: the memory belongs to the process, and OpenCL handles may be used from any thread.
unsafe impl Send for Pinned {}
// SAFETY: as above; nothing here gives access to the memory but by raw pointers.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// New memory.
    pub(crate) fn new(context: &Context, device: &Device, size: usize) -> ClResult<Pinned> {
        let pages = Pages::new(size).ok_or(ClError(CL_OUT_OF_HOST_MEMORY))?;
        // SAFETY: the pages live as long as the result.
        unsafe { Pinned::of(context, device, pages.start, size, Some(pages)) }
    }

    /// The memory that is shared with the driver, if there is some.
    pub(crate) fn of_link(context: &Context, device: &Device, link: &Link) -> ClResult<Option<Pinned>> {
        let Some((start, size)) = link.shared_memory() else { return Ok(None) };
        let start = NonNull::new(start).ok_or(ClError(CL_OUT_OF_HOST_MEMORY))?;
        // SAFETY: the link of a session lives as long as the process.
        unsafe { Pinned::of(context, device, start, size, None) }.map(Some)
    }

    /// # Safety
    /// From `start`, `size` bytes are readable and writable as long as `memory`, or if that is none, for ever.
    unsafe fn of(
        context: &Context,
        device: &Device,
        start: NonNull<u8>,
        size: usize,
        memory: Option<Pages>,
    ) -> ClResult<Pinned> {
        // A queue of its own: to map is to wait for what is in the queue.
        let queue = context.create_queue(device, 0)?;
        // SAFETY: by this function's contract, and because the buffer is dropped before the memory.
        let buffer = unsafe { context.create_buffer_of(CL_MEM_READ_WRITE, start, size) }?;
        let pinned = Pinned { queue, buffer, start, memory };
        // As long as it is mapped it is host memory; that is what makes drivers pin it.
        let mapped = pinned.queue.map_buffer_blocking(&pinned.buffer, CL_MAP_READ | CL_MAP_WRITE, 0, size)?;
        if mapped == start { Ok(pinned) } else { Err(ClError(CL_MAP_FAILURE)) }
    }
}

/// An equal part of new pinned memory.
#[derive(Debug)]
pub(crate) struct PinnedPart {
    pinned: Arc<Pinned>,
    /// Where it is, and how large: nobody else has this part.
    start: usize,
    size: usize,
}

impl PinnedPart {
    /// Pins memory for `count` parts of `size` bytes.
    pub(crate) fn several(context: &Context, device: &Device, count: usize, size: usize) -> ClResult<Vec<PinnedPart>> {
        let pinned = Arc::new(Pinned::new(context, device, count * size)?);
        let part = |index| PinnedPart { pinned: Arc::clone(&pinned), start: index * size, size };
        Ok((0..count).map(part).collect())
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        // SAFETY: the part lies within the memory.
        unsafe { self.pinned.start.add(self.start).as_ptr() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the part lies within the memory, which was cleared when it was allocated, and only we have it. A
        // device that uses it does so on behalf of an `InFlight`, which has this value.
        unsafe { std::slice::from_raw_parts(self.pinned.start.add(self.start).as_ptr(), self.size) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`.
        unsafe { std::slice::from_raw_parts_mut(self.pinned.start.add(self.start).as_ptr(), self.size) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: mapped in `of`; if that failed, the vendor refuses.
        let unmapped = unsafe { self.queue.unmap(&self.buffer, self.start, &Order::new()) };
        if unmapped.is_err() || self.queue.finish().is_err() {
            // Who knows what the device still does with it.
            mem::forget(self.memory.take());
        }
    }
}

/// Memory in whole pages.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    fn new(size: usize) -> Option<Pages> {
        const PAGE: usize = 4096;
        let layout = Layout::from_size_align(size.max(1), PAGE).ok()?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Pages { start, layout })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A transfer that was enqueued, and the host memory it uses.
#[derive(Debug)]
#[must_use = "its memory is freed when somebody waits for its end"]
pub(crate) struct InFlight {
    event: Arc<Event>,
    chunk: Option<Chunk>,
}

impl InFlight {
    /// Runs `enqueue` with the chunk's address.
    fn new(
        mut chunk: Chunk,
        order: &Order<'_>,
        enqueue: impl FnOnce(*mut u8, &Order<'_>) -> ClResult<Option<Event>>,
    ) -> ClResult<InFlight> {
        let order = order.clone().with_event();
        let event = enqueue(chunk.as_mut_ptr(), &order)?;
        let Some(event) = event else {
            // A driver that succeeds without an event gives us no way to know when the memory is free again.
            mem::forget(chunk);
            return Err(ClError(CL_OUT_OF_RESOURCES));
        };
        Ok(InFlight { event: Arc::new(event), chunk: Some(chunk) })
    }

    pub(crate) fn event(&self) -> &Arc<Event> {
        &self.event
    }

    /// Waits for the end of the transfer.
    pub(crate) fn wait(mut self) -> ClResult<Chunk> {
        let waited = self.event.wait();
        if waited.is_err() && !self.event.status().is_ok_and(|status| status < CL_COMPLETE) {
            // Who knows what the device still does with the memory.
            return Err(waited.err().unwrap_or(ClError(CL_OUT_OF_RESOURCES)));
        }
        let chunk = self.chunk.take();
        waited.and_then(|()| chunk.ok_or(ClError(CL_OUT_OF_RESOURCES)))
    }

    /// Frees the memory when the transfer has ended.
    pub(crate) fn then_free(mut self, ends: &Ends) {
        if let Some(chunk) = self.chunk.take() {
            ends.on_end(&self.event, Weight::Light, move |_, _| drop(chunk));
        }
    }

    /// Reports what `note` makes of the status, the event and the memory when the transfer has ended.
    pub(crate) fn then_report(
        mut self,
        completion: &Completion,
        ends: &Ends,
        weight: Weight,
        note: impl FnOnce(i32, &Arc<Event>, Chunk) -> Note + Send + 'static,
    ) {
        if let Some(chunk) = self.chunk.take() {
            completion.on_end(ends, &self.event, weight, move |status, event| note(status, event, chunk));
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // Nobody waits for the end, so the memory may be in use for ever.
        mem::forget(self.chunk.take());
    }
}

pub(crate) fn read_buffer(
    queue: &Queue,
    buffer: &Mem,
    offset: usize,
    chunk: Chunk,
    order: &Order<'_>,
) -> ClResult<InFlight> {
    let size = chunk.len();
    // SAFETY: the chunk has `size` bytes and is kept until the command has ended.
    InFlight::new(chunk, order, |to, order| unsafe { queue.read_buffer(buffer, offset, size, to, order) })
}

pub(crate) fn write_buffer(
    queue: &Queue,
    buffer: &Mem,
    offset: usize,
    chunk: Chunk,
    order: &Order<'_>,
) -> ClResult<InFlight> {
    let size = chunk.len();
    // SAFETY: the chunk has `size` bytes and is kept until the command has ended.
    InFlight::new(chunk, order, |from, order| unsafe { queue.write_buffer(buffer, offset, size, from, order) })
}

/// Writes a chunk without an event. `ends`, which belongs to the queue, keeps it until the queue is known to be further.
pub(crate) fn write_buffer_unwatched(
    queue: &Queue,
    ends: &Ends,
    buffer: &Mem,
    offset: usize,
    mut chunk: Chunk,
    order: &Order<'_>,
) -> ClResult<()> {
    let size = chunk.len();
    // SAFETY: the chunk has `size` bytes and is kept until the command has ended; a command that failed here uses nothing.
    unsafe { queue.write_buffer(buffer, offset, size, chunk.as_mut_ptr(), order) }?;
    ends.note_command();
    ends.keep(chunk);
    Ok(())
}

/// Reads a box of a buffer; the chunk has its rows without gaps.
pub(crate) fn read_rect(
    queue: &Queue,
    buffer: &Mem,
    side: &RectSide,
    region: &[usize; 3],
    chunk: Chunk,
    order: &Order<'_>,
) -> ClResult<InFlight> {
    let host = packed(region, 1, chunk.len())?;
    // SAFETY: `packed` has checked that the box fills the chunk, which is kept until the command has ended.
    InFlight::new(chunk, order, |to, order| unsafe { queue.read_buffer_rect(buffer, side, to, &host, region, order) })
}

/// Writes a box of a buffer; the chunk has its rows without gaps.
pub(crate) fn write_rect(
    queue: &Queue,
    buffer: &Mem,
    side: &RectSide,
    region: &[usize; 3],
    chunk: Chunk,
    order: &Order<'_>,
) -> ClResult<InFlight> {
    let host = packed(region, 1, chunk.len())?;
    InFlight::new(chunk, order, |from, order| {
        // SAFETY: `packed` has checked that the box fills the chunk, which is kept until the command has ended.
        unsafe { queue.write_buffer_rect(buffer, side, from, &host, region, order) }
    })
}

/// Reads a part of an image whose pixels have `element` bytes; the chunk has them without gaps.
pub(crate) fn read_image(
    queue: &Queue,
    image: &Mem,
    part: &ImageRegion,
    element: usize,
    chunk: Chunk,
    order: &Order<'_>,
) -> ClResult<InFlight> {
    packed(&part.region, element, chunk.len())?;
    // SAFETY: `packed` has checked that the pixels fill the chunk, which is kept until the command has ended; pitches
    // of zero mean that there are no gaps.
    InFlight::new(chunk, order, |to, order| unsafe { queue.read_image(image, part, to, 0, 0, order) })
}

/// Writes a part of an image whose pixels have `element` bytes; the chunk has them without gaps.
pub(crate) fn write_image(
    queue: &Queue,
    image: &Mem,
    part: &ImageRegion,
    element: usize,
    chunk: Chunk,
    order: &Order<'_>,
) -> ClResult<InFlight> {
    packed(&part.region, element, chunk.len())?;
    // SAFETY: as for `read_image`.
    InFlight::new(chunk, order, |from, order| unsafe { queue.write_image(image, part, from, 0, 0, order) })
}

/// The host side of a box without gaps, if it has exactly `len` bytes.
fn packed(region: &[usize; 3], element: usize, len: usize) -> ClResult<RectSide> {
    let row = region[0].checked_mul(element);
    let slice = row.and_then(|row| row.checked_mul(region[1]));
    let all = slice.and_then(|slice| slice.checked_mul(region[2]));
    match (row, slice, all) {
        (Some(row), Some(slice), Some(all)) if all == len && all > 0 => {
            Ok(RectSide { origin: [0; 3], row_pitch: row, slice_pitch: slice })
        }
        _ => Err(ClError(CL_INVALID_VALUE)),
    }
}

/// Sets an argument by value.
///
/// Callers pass no bytes for an argument that is known to be an object. Where the vendor does not say what an argument
/// is, a driver may take eight bytes for a handle; whoever sends them could as well run a kernel that reads any address
/// of this process, which holds nothing but that session.
pub(crate) fn set_arg_bytes(kernel: &Kernel, index: u32, value: &[u8]) -> ClResult<()> {
    // SAFETY: not an object as far as anybody knows; see above for the rest.
    unsafe { kernel.set_arg_bytes(index, value) }
}

/// Runs a kernel whose object arguments the caller has found to be alive.
pub(crate) fn run_kernel(
    queue: &Queue,
    kernel: &Kernel,
    range: &NdRange<'_>,
    order: &Order<'_>,
) -> ClResult<Option<Event>> {
    // SAFETY: the arguments are alive, and running a tenant's code is what this process is for.
    unsafe { queue.enqueue_kernel(kernel, range, order) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_must_fill_its_memory_exactly() {
        assert_eq!(packed(&[4, 3, 2], 4, 96).unwrap(), RectSide { origin: [0; 3], row_pitch: 16, slice_pitch: 48 });
        for (region, len) in [([4, 3, 2], 95), ([4, 3, 2], 97), ([4, 0, 2], 0), ([usize::MAX, 2, 1], 4)] {
            assert_eq!(packed(&region, 4, len), Err(ClError(CL_INVALID_VALUE)));
        }
    }
}
