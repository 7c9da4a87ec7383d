//! Kernels.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use telecl_sys::*;

use super::{create_object, enqueue, pointer, status, write_info};
use crate::api::{ArgInput, Device, Kernel, NdRange, Program, find_device};
use crate::registry::{lookup, publish, release, retain};

pub(super) unsafe extern "C" fn clCreateKernel(
    program: cl_program,
    name: *const c_char,
    error: *mut cl_int,
) -> cl_kernel {
    // SAFETY: the caller's string and out-parameter.
    unsafe {
        create_object(error, || {
            let program: Arc<Program> = lookup(program as usize)?;
            // CL_INVALID_VALUE if kernel_name is NULL.
            if name.is_null() {
                return Err(ClError(CL_INVALID_VALUE));
            }
            Kernel::create(&program, pointer::text(name))
        })
    }
}

pub(super) unsafe extern "C" fn clCreateKernelsInProgram(
    program: cl_program,
    entries: cl_uint,
    out: *mut cl_kernel,
    count: *mut cl_uint,
) -> cl_int {
    status(|| {
        let program: Arc<Program> = lookup(program as usize)?;
        let facts = program.kernels()?;
        // CL_INVALID_VALUE if kernels is not NULL and num_kernels is less than the number of kernels in
        // program.
        if !out.is_null() && (entries as usize) < facts.len() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // SAFETY: the caller's out-parameter.
        unsafe { pointer::store(count, facts.len() as cl_uint) };
        if !out.is_null() {
            let kernels =
                facts.iter().map(|facts| Kernel::from_facts(&program, facts)).collect::<ClResult<Vec<_>>>()?;
            // SAFETY: the caller's array, checked to be long enough.
            unsafe { pointer::fill(out, entries as usize, kernels.iter().map(|kernel| publish(kernel) as cl_kernel)) };
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn clCloneKernel(source: cl_kernel, error: *mut cl_int) -> cl_kernel {
    // SAFETY: the caller's out-parameter.
    unsafe { create_object(error, || lookup::<Kernel>(source as usize)?.duplicate()) }
}

pub(super) unsafe extern "C" fn clRetainKernel(kernel: cl_kernel) -> cl_int {
    status(|| retain::<Kernel>(kernel as usize))
}

pub(super) unsafe extern "C" fn clReleaseKernel(kernel: cl_kernel) -> cl_int {
    status(|| release::<Kernel>(kernel as usize))
}

pub(super) unsafe extern "C" fn clSetKernelArg(
    kernel: cl_kernel,
    index: cl_uint,
    size: usize,
    value: *const c_void,
) -> cl_int {
    status(|| {
        let kernel: Arc<Kernel> = lookup(kernel as usize)?;
        // SAFETY: the caller's value is valid for `size` bytes.
        let bytes = (!value.is_null()).then(|| unsafe { pointer::list(value.cast::<u8>(), size) });
        kernel.set_arg(ArgInput { index, size: size as u64, value: bytes })
    })
}

pub(super) unsafe extern "C" fn clGetKernelInfo(
    kernel: cl_kernel,
    param: cl_kernel_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let kernel: Arc<Kernel> = lookup(kernel as usize)?;
        let answer = kernel.info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

pub(super) unsafe extern "C" fn clGetKernelArgInfo(
    kernel: cl_kernel,
    index: cl_uint,
    param: cl_kernel_arg_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let kernel: Arc<Kernel> = lookup(kernel as usize)?;
        let answer = kernel.arg_info(index, param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

fn optional_device(device: cl_device_id) -> ClResult<Option<Arc<Device>>> {
    if device.is_null() { Ok(None) } else { find_device(device as usize).map(Some) }
}

pub(super) unsafe extern "C" fn clGetKernelWorkGroupInfo(
    kernel: cl_kernel,
    device: cl_device_id,
    param: cl_kernel_work_group_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let kernel: Arc<Kernel> = lookup(kernel as usize)?;
        let answer = kernel.work_group_info(optional_device(device)?, param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

pub(super) unsafe extern "C" fn clGetKernelSubGroupInfo(
    kernel: cl_kernel,
    device: cl_device_id,
    param: cl_kernel_sub_group_info,
    input_size: usize,
    input: *const c_void,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let kernel: Arc<Kernel> = lookup(kernel as usize)?;
        // SAFETY: the caller's input is valid for its size.
        let input = unsafe { pointer::list(input.cast::<u8>(), input_size) };
        let answer = kernel.sub_group_info(optional_device(device)?, param, input)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

pub(super) unsafe extern "C" fn clEnqueueNDRangeKernel(
    queue: cl_command_queue,
    kernel: cl_kernel,
    dimensions: cl_uint,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's arrays have `dimensions` elements; its wait list and out-parameter are valid.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let kernel: Arc<Kernel> = lookup(kernel as usize)?;
            let n = dimensions as usize;
            let range = NdRange {
                dimensions,
                offset: pointer::sizes(offset, n, 0),
                global: pointer::sizes(global, n, 1),
                local: pointer::sizes(local, n, 1),
            };
            submission.run_kernel(&kernel, &range, CL_COMMAND_NDRANGE_KERNEL)
        })
    }
}

pub(super) unsafe extern "C" fn clEnqueueTask(
    queue: cl_command_queue,
    kernel: cl_kernel,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: the caller's wait list and out-parameter.
    unsafe {
        enqueue(queue, count, waits, event, |submission| {
            let kernel: Arc<Kernel> = lookup(kernel as usize)?;
            let range = NdRange { dimensions: 1, offset: None, global: Some([1; 3]), local: Some([1; 3]) };
            submission.run_kernel(&kernel, &range, CL_COMMAND_TASK)
        })
    }
}
