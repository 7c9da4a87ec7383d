//! Command queues, and commands without data.

use std::ffi::c_void;
use std::sync::Arc;

use telecl_sys::*;

use super::{create_object, enqueue, objects, pointer, status, wait_list, write_info};
use crate::api::{Context, Queue, QueueProperties, Submission, find_device};
use crate::registry::{lookup, release, retain};

pub(super) unsafe extern "C" fn clCreateCommandQueue(
    context: cl_context,
    device: cl_device_id,
    bits: cl_command_queue_properties,
    error: *mut cl_int,
) -> cl_command_queue {
    // SAFETY: the caller's out-parameter.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            let device = find_device(device as usize)?;
            // Queues on the device came with another function.
            if bits & (CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT) != 0 {
                return Err(ClError(CL_INVALID_VALUE));
            }
            Queue::new(&context, device, QueueProperties { bits, ..QueueProperties::default() })
        })
    }
}

pub(super) unsafe extern "C" fn clCreateCommandQueueWithProperties(
    context: cl_context,
    device: cl_device_id,
    list: *const cl_queue_properties,
    error: *mut cl_int,
) -> cl_command_queue {
    // SAFETY: the caller's list ends with a zero; its out-parameter is valid.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            let device = find_device(device as usize)?;
            let list = pointer::zero_terminated_pairs(list);
            let mut properties = match &list {
                Some(list) => QueueProperties::parse(&list[..list.len() - 1])?,
                None => QueueProperties::default(),
            };
            properties.list = list;
            Queue::new(&context, device, properties)
        })
    }
}

pub(super) unsafe extern "C" fn clRetainCommandQueue(queue: cl_command_queue) -> cl_int {
    status(|| retain::<Queue>(queue as usize))
}

pub(super) unsafe extern "C" fn clReleaseCommandQueue(queue: cl_command_queue) -> cl_int {
    status(|| {
        // An implicit flush: what was enqueued will run.
        if let Ok(queue) = lookup::<Queue>(queue as usize) {
            let _ = queue.flush();
        }
        release::<Queue>(queue as usize)
    })
}

pub(super) unsafe extern "C" fn clGetCommandQueueInfo(
    queue: cl_command_queue,
    param: cl_command_queue_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let queue: Arc<Queue> = lookup(queue as usize)?;
        let answer = queue.info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

/// Deprecated since OpenCL 1.1; properties of a queue do not change any more.
pub(super) unsafe extern "C" fn clSetCommandQueueProperty(
    queue: cl_command_queue,
    _properties: cl_command_queue_properties,
    _enable: cl_bool,
    _old: *mut cl_command_queue_properties,
) -> cl_int {
    status(|| {
        lookup::<Queue>(queue as usize)?;
        Err(ClError(CL_INVALID_OPERATION))
    })
}

pub(super) unsafe extern "C" fn clSetDefaultDeviceCommandQueue(
    context: cl_context,
    device: cl_device_id,
    queue: cl_command_queue,
) -> cl_int {
    status(|| {
        let context: Arc<Context> = lookup(context as usize)?;
        let device = find_device(device as usize)?;
        // CL_INVALID_OPERATION if device does not support On-Device Queues, whatever the queue is.
        if device.number(CL_DEVICE_MAX_ON_DEVICE_QUEUES) == 0 {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        let queue: Arc<Queue> = lookup(queue as usize)?;
        queue.make_device_default(&context, &device)
    })
}

pub(super) unsafe extern "C" fn clFlush(queue: cl_command_queue) -> cl_int {
    status(|| lookup::<Queue>(queue as usize)?.flush())
}

pub(super) unsafe extern "C" fn clFinish(queue: cl_command_queue) -> cl_int {
    status(|| lookup::<Queue>(queue as usize)?.finish())
}

pub(super) unsafe extern "C" fn clEnqueueMarkerWithWaitList(
    queue: cl_command_queue,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's wait list and out-parameter.
    unsafe { enqueue(queue, count, waits, event, |submission| submission.marker()) }
}

pub(super) unsafe extern "C" fn clEnqueueBarrierWithWaitList(
    queue: cl_command_queue,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's wait list and out-parameter.
    unsafe { enqueue(queue, count, waits, event, |submission| submission.barrier()) }
}

pub(super) unsafe extern "C" fn clEnqueueMarker(queue: cl_command_queue, event: *mut cl_event) -> cl_int {
    // CL_INVALID_VALUE if event is a NULL value.
    if event.is_null() {
        return CL_INVALID_VALUE;
    }
    // SAFETY: the caller's out-parameter; no wait list.
    unsafe { enqueue(queue, 0, std::ptr::null(), event, |submission| submission.marker()) }
}

pub(super) unsafe extern "C" fn clEnqueueBarrier(queue: cl_command_queue) -> cl_int {
    // SAFETY: no wait list, no event.
    unsafe { enqueue(queue, 0, std::ptr::null(), std::ptr::null_mut(), |submission| submission.barrier()) }
}

pub(super) unsafe extern "C" fn clEnqueueWaitForEvents(
    queue: cl_command_queue,
    count: cl_uint,
    waits: *const cl_event,
) -> cl_int {
    status(|| {
        let queue: Arc<Queue> = lookup(queue as usize)?;
        // CL_INVALID_VALUE if num_events is equal to zero or event_list is NULL.
        if count == 0 || waits.is_null() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // SAFETY: the caller's list. CL_INVALID_EVENT if event objects are not valid events.
        let waits = unsafe { wait_list(count, waits) }.map_err(|_| ClError(CL_INVALID_EVENT))?;
        Submission::new(&queue, &waits, false)?.barrier().map(drop)
    })
}

pub(super) unsafe extern "C" fn clEnqueueMigrateMemObjects(
    queue: cl_command_queue,
    object_count: cl_uint,
    memory: *const cl_mem,
    flags: cl_mem_migration_flags,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's lists and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            // CL_INVALID_VALUE if num_mem_objects is zero or if mem_objects is NULL.
            if object_count == 0 || memory.is_null() {
                return Err(ClError(CL_INVALID_VALUE));
            }
            submission.migrate(&objects(pointer::list(memory, object_count as usize))?, flags)
        })
    }
}
