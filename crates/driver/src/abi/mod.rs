//! The C boundary: every function that a loader or a program can reach.
//!
//! Functions here only translate: pointers and counts of the program become slices, handles become
//! objects, results become codes. What OpenCL demands of its caller (pointers valid for the counts
//! and sizes beside them, callbacks that may be called) is the safety contract of all of them; the
//! SAFETY lines that say "the caller's …" refer to it. No panic leaves this module.
#![allow(non_snake_case, reason = "entry points have their C names")]

mod context;
mod device;
mod event;
mod exported;
mod image;
mod kernel;
mod memory;
mod pointer;
mod program;
mod queue;
mod sampler;
mod table;
mod transfer;
mod unsupported;

pub use table::{COVERAGE, DISPATCH};

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use telecl_sys::*;

use crate::api::{Event, InfoValue, Queue, Submission};
use crate::registry::{Object, lookup, publish};

/// Runs `body` and returns its OpenCL status. A panic becomes CL_OUT_OF_HOST_MEMORY: the program must
/// never see an unwind or an abort because of us.
fn status(body: impl FnOnce() -> ClResult<()>) -> cl_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => CL_SUCCESS,
        Ok(Err(ClError(code))) => code,
        Err(_) => CL_OUT_OF_HOST_MEMORY,
    }
}

/// Runs `body`, which makes something, and returns it or null; the status goes to `error`.
///
/// # Safety
/// `error` is null or valid for a write.
unsafe fn create<H>(error: *mut cl_int, body: impl FnOnce() -> ClResult<usize>) -> *mut H {
    let mut made = 0;
    let code = status(|| {
        made = body()?;
        Ok(())
    });
    // SAFETY: by this function's contract.
    unsafe { pointer::store(error, code) };
    made as *mut H
}

/// As [`create`], for objects with handles.
///
/// # Safety
/// `error` is null or valid for a write.
unsafe fn create_object<H, T: Object>(error: *mut cl_int, body: impl FnOnce() -> ClResult<Arc<T>>) -> *mut H {
    // SAFETY: by this function's contract.
    unsafe { create(error, || body().map(|object| publish(&object))) }
}

/// Fills the `(size, value, size_ret)` triple that every `clGet*Info` function takes.
///
/// # Safety
/// `value` is null or valid for `size` bytes; `size_ret` is null or valid for a write.
unsafe fn write_info(answer: &InfoValue<'_>, size: usize, value: *mut c_void, size_ret: *mut usize) -> ClResult<()> {
    if !value.is_null() {
        // CL_INVALID_VALUE if size in bytes specified by param_value_size is < size of return type and
        // param_value is not NULL.
        if size < answer.len() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // SAFETY: `value` is valid for `size >= answer.len()` bytes by this function's contract, and
        // cannot overlap memory of ours.
        unsafe { std::ptr::copy_nonoverlapping(answer.as_ptr(), value.cast::<u8>(), answer.len()) };
    }
    // SAFETY: by this function's contract.
    unsafe { pointer::store(size_ret, answer.len()) };
    Ok(())
}

/// The objects of a list of handles.
fn objects<T: Object, H>(handles: &[*mut H]) -> ClResult<Vec<Arc<T>>> {
    handles.iter().map(|&handle| lookup(handle as usize)).collect()
}

/// The events of a wait list.
///
/// # Safety
/// `list` is null or valid for `count` handles.
unsafe fn wait_list(count: cl_uint, list: *const cl_event) -> ClResult<Vec<Arc<Event>>> {
    // CL_INVALID_EVENT_WAIT_LIST if event_wait_list is NULL and num_events_in_wait_list > 0, or
    // event_wait_list is not NULL and num_events_in_wait_list is 0, or if event objects in it are not
    // valid events.
    if (count == 0) != list.is_null() {
        return Err(ClError(CL_INVALID_EVENT_WAIT_LIST));
    }
    // SAFETY: by this function's contract.
    let handles = unsafe { pointer::list(list, count as usize) };
    objects(handles).map_err(|_| ClError(CL_INVALID_EVENT_WAIT_LIST))
}

/// What every `clEnqueue*` function does around its own work.
///
/// # Safety
/// `list` is null or valid for `count` handles; `event` is null or valid for a write.
unsafe fn enqueue(
    queue: cl_command_queue,
    count: cl_uint,
    list: *const cl_event,
    event: *mut cl_event,
    body: impl FnOnce(&Submission<'_>) -> ClResult<Option<Arc<Event>>>,
) -> cl_int {
    status(|| {
        let queue: Arc<Queue> = lookup(queue as usize)?;
        // SAFETY: by this function's contract.
        let waits = unsafe { wait_list(count, list)? };
        let submission = Submission::new(&queue, &waits, !event.is_null())?;
        if let Some(made) = body(&submission)? {
            // SAFETY: by this function's contract.
            unsafe { pointer::store(event, publish(&made) as cl_event) };
        }
        Ok(())
    })
}
