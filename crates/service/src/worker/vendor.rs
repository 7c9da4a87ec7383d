//! The calls into the vendor's OpenCL that Rust cannot check, each behind a function that makes it safe or says why the
//! worker may make it.
#![allow(unsafe_code)]

use std::mem;
use std::sync::Arc;

use telecl_opencl::{ClError, ClResult, Event, ImageRegion, Kernel, Mem, NdRange, Order, Queue, RectSide};
use telecl_sys::{CL_INVALID_VALUE, CL_OUT_OF_RESOURCES};

use super::completion::{Completion, Note};
use super::pending::{Ends, Weight};
use super::staging::Chunk;

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
