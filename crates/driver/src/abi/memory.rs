//! Memory objects: buffers, sub-buffers, pipes, and what all of them have.

use std::ffi::c_void;
use std::sync::Arc;

use telecl_sys::*;

use super::context::UserData;
use super::{create_object, pointer, status, write_info};
use crate::api::{BufferRequest, Context, Memory};
use crate::registry::{lookup, release, retain};

pub(super) unsafe extern "C" fn clCreateBuffer(
    context: cl_context,
    flags: cl_mem_flags,
    size: usize,
    host: *mut c_void,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's `host_ptr` is valid for `size` bytes; its out-parameter is valid.
    unsafe { clCreateBufferWithProperties(context, std::ptr::null(), flags, size, host, error) }
}

pub(super) unsafe extern "C" fn clCreateBufferWithProperties(
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: cl_mem_flags,
    size: usize,
    host: *mut c_void,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's list ends with a zero; its out-parameter is valid.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            let properties = pointer::zero_terminated_pairs(properties);
            Memory::buffer(&context, BufferRequest { flags, size: size as u64, host: pointer::host(host), properties })
        })
    }
}

pub(super) unsafe extern "C" fn clCreateSubBuffer(
    buffer: cl_mem,
    flags: cl_mem_flags,
    kind: cl_buffer_create_type,
    info: *const c_void,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's info is a region where the kind says so; its out-parameter is valid.
    unsafe {
        create_object(error, || {
            let buffer: Arc<Memory> = lookup(buffer as usize)?;
            // CL_INVALID_VALUE if the value specified in buffer_create_type is not valid, or if
            // buffer_create_info is NULL.
            if kind != CL_BUFFER_CREATE_TYPE_REGION {
                return Err(ClError(CL_INVALID_VALUE));
            }
            let region = info.cast::<cl_buffer_region>().as_ref().ok_or(ClError(CL_INVALID_VALUE))?;
            buffer.sub_buffer(flags, region.origin as u64, region.size as u64)
        })
    }
}

pub(super) unsafe extern "C" fn clCreatePipe(
    context: cl_context,
    flags: cl_mem_flags,
    packet_size: cl_uint,
    max_packets: cl_uint,
    properties: *const cl_pipe_properties,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            // CL_INVALID_VALUE if properties is not NULL: OpenCL defines none.
            if !properties.is_null() {
                return Err(ClError(CL_INVALID_VALUE));
            }
            Memory::pipe(&context, flags, packet_size, max_packets)
        })
    }
}

pub(super) unsafe extern "C" fn clRetainMemObject(memory: cl_mem) -> cl_int {
    status(|| retain::<Memory>(memory as usize))
}

pub(super) unsafe extern "C" fn clReleaseMemObject(memory: cl_mem) -> cl_int {
    status(|| release::<Memory>(memory as usize))
}

pub(super) unsafe extern "C" fn clSetMemObjectDestructorCallback(
    memory: cl_mem,
    function: Option<MemDestructor>,
    data: *mut c_void,
) -> cl_int {
    status(|| {
        let object: Arc<Memory> = lookup(memory as usize)?;
        // CL_INVALID_VALUE if pfn_notify is NULL.
        let function = function.ok_or(ClError(CL_INVALID_VALUE))?;
        let (handle, data) = (memory as usize, UserData(data));
        // SAFETY: the program promised that its function may be called.
        object.on_destruction(Box::new(move || unsafe { function(handle as cl_mem, data.get()) }));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn clGetMemObjectInfo(
    memory: cl_mem,
    param: cl_mem_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let memory: Arc<Memory> = lookup(memory as usize)?;
        let answer = memory.info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

pub(super) unsafe extern "C" fn clGetImageInfo(
    memory: cl_mem,
    param: cl_image_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let memory: Arc<Memory> = lookup(memory as usize)?;
        let answer = memory.as_image()?.info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

pub(super) unsafe extern "C" fn clGetPipeInfo(
    memory: cl_mem,
    param: cl_pipe_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let memory: Arc<Memory> = lookup(memory as usize)?;
        let answer = memory.as_pipe()?.info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}
