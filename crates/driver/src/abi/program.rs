//! Programs.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use telecl_sys::*;

use super::context::UserData;
use super::{create_object, objects, pointer, status, write_info};
use crate::api::{BuildTask, Context, Device, OnBuilt, Program, find_device};
use crate::registry::{lookup, publish, release, retain};

pub(super) unsafe extern "C" fn clCreateProgramWithSource(
    context: cl_context,
    count: cl_uint,
    strings: *mut *const c_char,
    lengths: *const usize,
    error: *mut cl_int,
) -> cl_program {
    // SAFETY: the caller's arrays have `count` elements, its strings the lengths beside them.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            let strings = pointer::list(strings.cast_const(), count as usize);
            // CL_INVALID_VALUE if count is zero or if strings or any entry in strings is NULL.
            if strings.is_empty() || strings.iter().any(|string| string.is_null()) {
                return Err(ClError(CL_INVALID_VALUE));
            }
            let lengths = pointer::list(lengths, count as usize);
            let mut source = Vec::new();
            for (place, &string) in strings.iter().enumerate() {
                // A length of zero, like no length, means that the string ends with a NUL.
                match lengths.get(place) {
                    Some(&length) if length != 0 => {
                        source.extend_from_slice(pointer::list(string.cast::<u8>(), length))
                    }
                    _ => source.extend_from_slice(pointer::text(string)),
                }
            }
            Program::with_source(&context, source)
        })
    }
}

pub(super) unsafe extern "C" fn clCreateProgramWithIL(
    context: cl_context,
    il: *const c_void,
    length: usize,
    error: *mut cl_int,
) -> cl_program {
    // SAFETY: the caller's IL has this length; its out-parameter is valid.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            // CL_INVALID_VALUE if il is NULL or if length is zero.
            if il.is_null() || length == 0 {
                return Err(ClError(CL_INVALID_VALUE));
            }
            Program::with_il(&context, pointer::list(il.cast::<u8>(), length).to_vec())
        })
    }
}

pub(super) unsafe extern "C" fn clCreateProgramWithBinary(
    context: cl_context,
    count: cl_uint,
    devices: *const cl_device_id,
    lengths: *const usize,
    binaries: *mut *const u8,
    binary_status: *mut cl_int,
    error: *mut cl_int,
) -> cl_program {
    // SAFETY: the caller's arrays have `count` elements, its binaries the lengths beside them.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            let count = count as usize;
            let devices = device_list(&context, pointer::list(devices, count))?;
            let lengths = pointer::list(lengths, count);
            let binaries = pointer::list(binaries.cast_const(), count);
            // CL_INVALID_VALUE if device_list is NULL or num_devices is zero, if lengths or binaries is
            // NULL, or if any entry in lengths[i] is zero or binaries[i] is NULL.
            if devices.is_empty() || lengths.len() != count || binaries.len() != count {
                return Err(ClError(CL_INVALID_VALUE));
            }
            let bad = |(&length, &binary): (&usize, &*const u8)| length == 0 || binary.is_null();
            if lengths.iter().zip(binaries).any(bad) {
                let statuses =
                    lengths.iter().zip(binaries).map(|entry| if bad(entry) { CL_INVALID_VALUE } else { CL_SUCCESS });
                pointer::fill(binary_status, count, statuses);
                return Err(ClError(CL_INVALID_VALUE));
            }
            let contents: Vec<&[u8]> =
                binaries.iter().zip(lengths).map(|(&start, &length)| pointer::list(start, length)).collect();
            let (created, statuses) = Program::with_binaries(&context, devices, &contents);
            pointer::fill(binary_status, count, statuses.into_iter());
            created
        })
    }
}

pub(super) unsafe extern "C" fn clCreateProgramWithBuiltInKernels(
    context: cl_context,
    count: cl_uint,
    devices: *const cl_device_id,
    names: *const c_char,
    error: *mut cl_int,
) -> cl_program {
    // SAFETY: the caller's list has `count` elements; its string and out-parameter are valid.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            let devices = device_list(&context, pointer::list(devices, count as usize))?;
            // CL_INVALID_VALUE if device_list is NULL or num_devices is zero, or if kernel_names is NULL.
            if devices.is_empty() || names.is_null() {
                return Err(ClError(CL_INVALID_VALUE));
            }
            Program::with_built_in_kernels(&context, devices, pointer::text(names))
        })
    }
}

/// CL_INVALID_DEVICE if any device in device_list is not in the list of devices associated with context.
fn device_list(context: &Context, handles: &[cl_device_id]) -> ClResult<Vec<Arc<Device>>> {
    let devices = handles.iter().map(|&handle| find_device(handle as usize)).collect::<ClResult<Vec<_>>>()?;
    if devices.iter().all(|device| context.has_device(device)) { Ok(devices) } else { Err(ClError(CL_INVALID_DEVICE)) }
}

/// The device list of a build: none means all.
///
/// # Safety
/// `list` is null or valid for `count` handles.
unsafe fn build_devices(count: cl_uint, list: *const cl_device_id) -> ClResult<Vec<Arc<Device>>> {
    // CL_INVALID_VALUE if device_list is NULL and num_devices is greater than zero, or if device_list is
    // not NULL and num_devices is zero.
    if (count == 0) != list.is_null() {
        return Err(ClError(CL_INVALID_VALUE));
    }
    // SAFETY: by this function's contract.
    unsafe { pointer::list(list, count as usize) }.iter().map(|&handle| find_device(handle as usize)).collect()
}

/// CL_INVALID_VALUE if pfn_notify is NULL but user_data is not NULL.
fn check_notify(function: Option<ProgramNotify>, data: *mut c_void) -> ClResult<()> {
    if function.is_none() && !data.is_null() { Err(ClError(CL_INVALID_VALUE)) } else { Ok(()) }
}

fn on_built(program: cl_program, function: Option<ProgramNotify>, data: *mut c_void) -> Option<OnBuilt> {
    let function = function?;
    let (handle, data) = (program as usize, UserData(data));
    // SAFETY: the program promised that its function may be called, on any thread.
    Some(Box::new(move || unsafe { function(handle as cl_program, data.get()) }))
}

pub(super) unsafe extern "C" fn clBuildProgram(
    program: cl_program,
    count: cl_uint,
    devices: *const cl_device_id,
    options: *const c_char,
    function: Option<ProgramNotify>,
    data: *mut c_void,
) -> cl_int {
    status(|| {
        let object: Arc<Program> = lookup(program as usize)?;
        check_notify(function, data)?;
        // SAFETY: the caller's list and string.
        let (devices, options) = unsafe { (build_devices(count, devices)?, pointer::text(options)) };
        object.build(BuildTask::Build, devices, options.to_vec(), on_built(program, function, data))
    })
}

pub(super) unsafe extern "C" fn clCompileProgram(
    program: cl_program,
    count: cl_uint,
    devices: *const cl_device_id,
    options: *const c_char,
    header_count: cl_uint,
    headers: *const cl_program,
    names: *mut *const c_char,
    function: Option<ProgramNotify>,
    data: *mut c_void,
) -> cl_int {
    status(|| {
        let object: Arc<Program> = lookup(program as usize)?;
        check_notify(function, data)?;
        // CL_INVALID_VALUE if num_input_headers is zero and header_include_names or input_headers are not
        // NULL, or if num_input_headers is not zero and one of them is NULL.
        if (header_count == 0) != headers.is_null() || (header_count == 0) != names.is_null() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // SAFETY: the caller's lists have the counts beside them; its strings end with NUL.
        let (devices, options, headers) = unsafe {
            let n = header_count as usize;
            let programs: Vec<Arc<Program>> = objects(pointer::list(headers, n))?;
            let names = pointer::list(names.cast_const(), n).iter().map(|&name| pointer::text(name).to_vec());
            (build_devices(count, devices)?, pointer::text(options), names.zip(programs).collect())
        };
        object.build(BuildTask::Compile { headers }, devices, options.to_vec(), on_built(program, function, data))
    })
}

pub(super) unsafe extern "C" fn clLinkProgram(
    context: cl_context,
    count: cl_uint,
    devices: *const cl_device_id,
    options: *const c_char,
    input_count: cl_uint,
    inputs: *const cl_program,
    function: Option<ProgramNotify>,
    data: *mut c_void,
    error: *mut cl_int,
) -> cl_program {
    let mut made = 0;
    let code = status(|| {
        let context: Arc<Context> = lookup(context as usize)?;
        check_notify(function, data)?;
        // CL_INVALID_VALUE if num_input_programs is zero or input_programs is NULL.
        if input_count == 0 || inputs.is_null() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // SAFETY: the caller's lists have the counts beside them; its string ends with NUL.
        let (devices, options, inputs) = unsafe {
            (
                build_devices(count, devices)?,
                pointer::text(options).to_vec(),
                objects(pointer::list(inputs, input_count as usize))?,
            )
        };
        let notify = function.map(|function| {
            let data = UserData(data);
            Box::new(move |linked: Arc<Program>| {
                // SAFETY: the program promised that its function may be called, on any thread.
                unsafe { function(linked.address() as cl_program, data.get()) }
            }) as Box<dyn FnOnce(Arc<Program>) + Send>
        });
        let (code, linked) = Program::link(&context, devices, options, inputs, notify);
        made = linked.map_or(0, |linked| publish(&linked));
        check(code)
    });
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, code) };
    made as cl_program
}

pub(super) unsafe extern "C" fn clRetainProgram(program: cl_program) -> cl_int {
    status(|| retain::<Program>(program as usize))
}

pub(super) unsafe extern "C" fn clReleaseProgram(program: cl_program) -> cl_int {
    status(|| release::<Program>(program as usize))
}

pub(super) unsafe extern "C" fn clSetProgramReleaseCallback(
    program: cl_program,
    function: Option<ProgramNotify>,
    data: *mut c_void,
) -> cl_int {
    status(|| {
        let object: Arc<Program> = lookup(program as usize)?;
        // CL_INVALID_VALUE if pfn_notify is NULL.
        let call = on_built(program, function, data).ok_or(ClError(CL_INVALID_VALUE))?;
        object.on_destruction(call)
    })
}

pub(super) unsafe extern "C" fn clSetProgramSpecializationConstant(
    program: cl_program,
    constant: cl_uint,
    size: usize,
    value: *const c_void,
) -> cl_int {
    status(|| {
        let program: Arc<Program> = lookup(program as usize)?;
        // CL_INVALID_VALUE if spec_value is NULL.
        if value.is_null() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // SAFETY: the caller's value is valid for `size` bytes.
        program.set_specialization_constant(constant, unsafe { pointer::list(value.cast::<u8>(), size) })
    })
}

pub(super) unsafe extern "C" fn clGetProgramInfo(
    program: cl_program,
    param: cl_program_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let program: Arc<Program> = lookup(program as usize)?;
        if param == CL_PROGRAM_BINARIES {
            // SAFETY: the caller's out-parameters.
            return unsafe { write_binaries(&program, size, value, size_ret) };
        }
        let answer = program.info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

/// CL_PROGRAM_BINARIES: `value` is an array of pointers to memory for each binary, or null.
///
/// # Safety
/// As `clGetProgramInfo`; the memory was sized by CL_PROGRAM_BINARY_SIZES.
unsafe fn write_binaries(program: &Program, size: usize, value: *mut c_void, size_ret: *mut usize) -> ClResult<()> {
    let needed = program.devices.len() * size_of::<*mut u8>();
    if !value.is_null() {
        if size < needed {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let binaries = program.binaries()?;
        // SAFETY: `value` holds one pointer for each device, by this function's contract.
        let targets = unsafe { pointer::list(value.cast::<*mut u8>(), program.devices.len()) };
        for (&target, binary) in targets.iter().zip(&binaries).filter(|(target, _)| !target.is_null()) {
            // SAFETY: the program sized the memory by CL_PROGRAM_BINARY_SIZES.
            unsafe { std::ptr::copy_nonoverlapping(binary.as_ptr(), target, binary.len()) };
        }
    }
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(size_ret, needed) };
    Ok(())
}

pub(super) unsafe extern "C" fn clGetProgramBuildInfo(
    program: cl_program,
    device: cl_device_id,
    param: cl_program_build_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let program: Arc<Program> = lookup(program as usize)?;
        let device = find_device(device as usize)?;
        let answer = program.build_info(&device, param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}
