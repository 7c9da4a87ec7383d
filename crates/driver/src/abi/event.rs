//! Events.

use std::ffi::c_void;
use std::sync::Arc;

use telecl_sys::*;

use super::context::UserData;
use super::{create_object, objects, pointer, status, write_info};
use crate::api::{Context, Event, wait_for_all};
use crate::registry::{lookup, release, retain};

pub(super) unsafe extern "C" fn clWaitForEvents(count: cl_uint, list: *const cl_event) -> cl_int {
    status(|| {
        // CL_INVALID_VALUE if num_events is zero or event_list is NULL.
        if count == 0 || list.is_null() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // SAFETY: the caller's list. CL_INVALID_EVENT if event objects are not valid event objects.
        let events: Vec<Arc<Event>> = objects(unsafe { pointer::list(list, count as usize) })?;
        wait_for_all(&events)
    })
}

pub(super) unsafe extern "C" fn clCreateUserEvent(context: cl_context, error: *mut cl_int) -> cl_event {
    // SAFETY: the caller's out-parameter.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            Event::user(&context)
        })
    }
}

pub(super) unsafe extern "C" fn clSetUserEventStatus(event: cl_event, execution_status: cl_int) -> cl_int {
    status(|| lookup::<Event>(event as usize)?.set_user_status(execution_status))
}

pub(super) unsafe extern "C" fn clSetEventCallback(
    event: cl_event,
    at: cl_int,
    function: Option<EventNotify>,
    data: *mut c_void,
) -> cl_int {
    status(|| {
        let object: Arc<Event> = lookup(event as usize)?;
        // CL_INVALID_VALUE if pfn_event_notify is NULL.
        let function = function.ok_or(ClError(CL_INVALID_VALUE))?;
        let (handle, data) = (event as usize, UserData(data));
        // SAFETY: the program promised that its function may be called, on any thread.
        object.on_status(at, Box::new(move |reached| unsafe { function(handle as cl_event, reached, data.get()) }))
    })
}

pub(super) unsafe extern "C" fn clRetainEvent(event: cl_event) -> cl_int {
    status(|| retain::<Event>(event as usize))
}

pub(super) unsafe extern "C" fn clReleaseEvent(event: cl_event) -> cl_int {
    status(|| release::<Event>(event as usize))
}

pub(super) unsafe extern "C" fn clGetEventInfo(
    event: cl_event,
    param: cl_event_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let event: Arc<Event> = lookup(event as usize)?;
        let answer = event.info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

pub(super) unsafe extern "C" fn clGetEventProfilingInfo(
    event: cl_event,
    param: cl_profiling_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let event: Arc<Event> = lookup(event as usize)?;
        let answer = event.profiling_info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}
