//! Commands that move data.

use std::ffi::c_void;
use std::sync::Arc;

use telecl_sys::*;

use super::{enqueue, pointer, wait_list};
use crate::api::{Blocking, Memory, Queue, RectCopy, RectTransfer, Submission};
use crate::registry::{lookup, publish};

fn memory(handle: cl_mem) -> ClResult<Arc<Memory>> {
    lookup(handle as usize)
}

fn blocking(flag: cl_bool) -> Blocking {
    if flag == CL_FALSE { Blocking::Return } else { Blocking::Wait }
}

pub(super) unsafe extern "C" fn clEnqueueReadBuffer(
    queue: cl_command_queue,
    buffer: cl_mem,
    wait: cl_bool,
    offset: usize,
    size: usize,
    host: *mut c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            submission.read_buffer(&memory(buffer)?, blocking(wait), offset as u64, size as u64, pointer::host(host))
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueWriteBuffer(
    queue: cl_command_queue,
    buffer: cl_mem,
    wait: cl_bool,
    offset: usize,
    size: usize,
    host: *const c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            submission.write_buffer(&memory(buffer)?, blocking(wait), offset as u64, size as u64, pointer::host(host))
        })
    }
}

/// # Safety
/// The origins and the region are null or have three values.
unsafe fn rect(
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row_pitch: usize,
    buffer_slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
) -> ClResult<RectTransfer> {
    // SAFETY: by this function's contract.
    unsafe {
        Ok(RectTransfer {
            buffer_origin: pointer::triple(buffer_origin)?,
            host_origin: pointer::triple(host_origin)?,
            region: pointer::triple(region)?,
            buffer_row_pitch: buffer_row_pitch as u64,
            buffer_slice_pitch: buffer_slice_pitch as u64,
            host_row_pitch: host_row_pitch as u64,
            host_slice_pitch: host_slice_pitch as u64,
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueReadBufferRect(
    queue: cl_command_queue,
    buffer: cl_mem,
    wait: cl_bool,
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row_pitch: usize,
    buffer_slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    host: *mut c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's arrays, wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let rect = rect(
                buffer_origin,
                host_origin,
                region,
                buffer_row_pitch,
                buffer_slice_pitch,
                host_row_pitch,
                host_slice_pitch,
            )?;
            submission.read_rect(&memory(buffer)?, blocking(wait), &rect, pointer::host(host))
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueWriteBufferRect(
    queue: cl_command_queue,
    buffer: cl_mem,
    wait: cl_bool,
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row_pitch: usize,
    buffer_slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    host: *const c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's arrays, wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let rect = rect(
                buffer_origin,
                host_origin,
                region,
                buffer_row_pitch,
                buffer_slice_pitch,
                host_row_pitch,
                host_slice_pitch,
            )?;
            submission.write_rect(&memory(buffer)?, blocking(wait), &rect, pointer::host(host))
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueCopyBuffer(
    queue: cl_command_queue,
    from: cl_mem,
    to: cl_mem,
    from_offset: usize,
    to_offset: usize,
    size: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            submission.copy_buffer(&memory(from)?, &memory(to)?, from_offset as u64, to_offset as u64, size as u64)
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueCopyBufferRect(
    queue: cl_command_queue,
    from: cl_mem,
    to: cl_mem,
    from_origin: *const usize,
    to_origin: *const usize,
    region: *const usize,
    from_row_pitch: usize,
    from_slice_pitch: usize,
    to_row_pitch: usize,
    to_slice_pitch: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's arrays, wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let rect = RectCopy {
                from_origin: pointer::triple(from_origin)?,
                to_origin: pointer::triple(to_origin)?,
                region: pointer::triple(region)?,
                from_row_pitch: from_row_pitch as u64,
                from_slice_pitch: from_slice_pitch as u64,
                to_row_pitch: to_row_pitch as u64,
                to_slice_pitch: to_slice_pitch as u64,
            };
            submission.copy_rect(&memory(from)?, &memory(to)?, &rect)
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueFillBuffer(
    queue: cl_command_queue,
    buffer: cl_mem,
    pattern: *const c_void,
    pattern_size: usize,
    offset: usize,
    size: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's pattern, wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let pattern = pointer::list(pattern.cast::<u8>(), pattern_size);
            submission.fill_buffer(&memory(buffer)?, pattern, offset as u64, size as u64)
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueReadImage(
    queue: cl_command_queue,
    image: cl_mem,
    wait: cl_bool,
    origin: *const usize,
    region: *const usize,
    row_pitch: usize,
    slice_pitch: usize,
    host: *mut c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's arrays, wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let image = memory(image)?;
            let (origin, region) = (pointer::triple(origin)?, pointer::triple(region)?);
            submission.read_image(
                &image,
                blocking(wait),
                origin,
                region,
                row_pitch as u64,
                slice_pitch as u64,
                pointer::host(host),
            )
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueWriteImage(
    queue: cl_command_queue,
    image: cl_mem,
    wait: cl_bool,
    origin: *const usize,
    region: *const usize,
    row_pitch: usize,
    slice_pitch: usize,
    host: *const c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's arrays, wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let image = memory(image)?;
            let (origin, region) = (pointer::triple(origin)?, pointer::triple(region)?);
            submission.write_image(
                &image,
                blocking(wait),
                origin,
                region,
                row_pitch as u64,
                slice_pitch as u64,
                pointer::host(host),
            )
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueFillImage(
    queue: cl_command_queue,
    image: cl_mem,
    color: *const c_void,
    origin: *const usize,
    region: *const usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's color (four components of 32 bits), arrays, wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let image = memory(image)?;
            // CL_INVALID_VALUE if fill_color is NULL. A depth image takes one component only.
            let components = if image.is_depth_image() { 4 } else { 16 };
            let given = pointer::list(color.cast::<u8>(), components);
            if given.is_empty() {
                return Err(ClError(CL_INVALID_VALUE));
            }
            let mut color = [0; 16];
            color[..components].copy_from_slice(given);
            submission.fill_image(&image, color, pointer::triple(origin)?, pointer::triple(region)?)
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueCopyImage(
    queue: cl_command_queue,
    from: cl_mem,
    to: cl_mem,
    from_origin: *const usize,
    to_origin: *const usize,
    region: *const usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's arrays, wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let (from, to) = (memory(from)?, memory(to)?);
            submission.copy_image(
                &from,
                &to,
                pointer::triple(from_origin)?,
                pointer::triple(to_origin)?,
                pointer::triple(region)?,
            )
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueCopyImageToBuffer(
    queue: cl_command_queue,
    from: cl_mem,
    to: cl_mem,
    origin: *const usize,
    region: *const usize,
    to_offset: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's arrays, wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let (from, to) = (memory(from)?, memory(to)?);
            submission.copy_image_to_buffer(
                &from,
                &to,
                pointer::triple(origin)?,
                pointer::triple(region)?,
                to_offset as u64,
            )
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueCopyBufferToImage(
    queue: cl_command_queue,
    from: cl_mem,
    to: cl_mem,
    from_offset: usize,
    origin: *const usize,
    region: *const usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's arrays, wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let (from, to) = (memory(from)?, memory(to)?);
            submission.copy_buffer_to_image(
                &from,
                &to,
                from_offset as u64,
                pointer::triple(origin)?,
                pointer::triple(region)?,
            )
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueMapBuffer(
    queue: cl_command_queue,
    buffer: cl_mem,
    wait: cl_bool,
    flags: cl_map_flags,
    offset: usize,
    size: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
    error: *mut cl_int,
) -> *mut c_void {
    // SAFETY: the caller's wait list and out-parameters.
    unsafe {
        super::create(error, || {
            let queue: Arc<Queue> = lookup(queue as usize)?;
            let waits = wait_list(count, waits)?;
            let submission = Submission::new(&queue, &waits, !event.is_null())?;
            let (start, made) =
                submission.map_buffer(&memory(buffer)?, blocking(wait), flags, offset as u64, size as u64)?;
            if let Some(made) = made {
                pointer::store(event, publish(&made) as cl_event);
            }
            Ok(start.address())
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueMapImage(
    queue: cl_command_queue,
    image: cl_mem,
    wait: cl_bool,
    flags: cl_map_flags,
    origin: *const usize,
    region: *const usize,
    row_pitch: *mut usize,
    slice_pitch: *mut usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
    error: *mut cl_int,
) -> *mut c_void {
    // SAFETY: the caller's arrays, wait list and out-parameters.
    unsafe {
        super::create(error, || {
            let queue: Arc<Queue> = lookup(queue as usize)?;
            let waits = wait_list(count, waits)?;
            let submission = Submission::new(&queue, &waits, !event.is_null())?;
            let memory = memory(image)?;
            let (origin, region) = (pointer::triple(origin)?, pointer::triple(region)?);
            // CL_INVALID_VALUE if image_row_pitch is NULL, or if image_slice_pitch is NULL for a 3D image
            // or an image array.
            if row_pitch.is_null() || (slice_pitch.is_null() && memory.as_image()?.slice_pitch != 0) {
                return Err(ClError(CL_INVALID_VALUE));
            }
            let (mapped, made) = submission.map_image(&memory, blocking(wait), flags, origin, region)?;
            pointer::store(row_pitch, mapped.row_pitch as usize);
            pointer::store(slice_pitch, mapped.slice_pitch as usize);
            if let Some(made) = made {
                pointer::store(event, publish(&made) as cl_event);
            }
            Ok(mapped.pointer.address())
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueUnmapMemObject(
    queue: cl_command_queue,
    object: cl_mem,
    mapped: *mut c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| submission.unmap(&memory(object)?, pointer::host(mapped)))
    }
}
