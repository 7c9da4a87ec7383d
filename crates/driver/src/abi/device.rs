//! Platforms and devices.

use std::ffi::c_void;

use telecl_sys::*;

use super::{pointer, status, write_info};
use crate::api::{Device, find_device, find_platform, platforms};
use crate::registry::{publish, release, retain};

pub(super) unsafe extern "C" fn clGetPlatformIDs(
    entries: cl_uint,
    out: *mut cl_platform_id,
    count: *mut cl_uint,
) -> cl_int {
    status(|| {
        // CL_INVALID_VALUE if num_entries is equal to zero and platforms is not NULL or if both
        // num_platforms and platforms are NULL.
        if (entries == 0 && !out.is_null()) || (out.is_null() && count.is_null()) {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let found = platforms();
        // SAFETY: the caller's out-parameters.
        unsafe {
            pointer::store(count, found.len() as cl_uint);
            pointer::fill(out, entries as usize, found.iter().map(|platform| platform.address() as cl_platform_id));
        }
        // cl_khr_icd: CL_PLATFORM_NOT_FOUND_KHR if zero platforms are available.
        if found.is_empty() { Err(ClError(CL_PLATFORM_NOT_FOUND_KHR)) } else { Ok(()) }
    })
}

pub(super) unsafe extern "C" fn clGetPlatformInfo(
    platform: cl_platform_id,
    param: cl_platform_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let answer = find_platform(platform as usize)?.info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

pub(super) unsafe extern "C" fn clUnloadPlatformCompiler(platform: cl_platform_id) -> cl_int {
    // The service's compiler serves others too; the call is only a hint.
    status(|| find_platform(platform as usize).map(drop))
}

pub(super) unsafe extern "C" fn clUnloadCompiler() -> cl_int {
    CL_SUCCESS
}

pub(super) unsafe extern "C" fn clGetDeviceIDs(
    platform: cl_platform_id,
    kind: cl_device_type,
    entries: cl_uint,
    out: *mut cl_device_id,
    count: *mut cl_uint,
) -> cl_int {
    status(|| {
        let platform = find_platform(platform as usize)?;
        // CL_INVALID_VALUE if num_entries is equal to zero and devices is not NULL or if both
        // num_devices and devices are NULL.
        if (entries == 0 && !out.is_null()) || (out.is_null() && count.is_null()) {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let found = platform.devices_of_type(kind)?;
        // SAFETY: the caller's out-parameters.
        unsafe {
            pointer::store(count, found.len() as cl_uint);
            pointer::fill(out, entries as usize, found.iter().map(|device| device.address() as cl_device_id));
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn clGetDeviceInfo(
    device: cl_device_id,
    param: cl_device_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let device = find_device(device as usize)?;
        let answer = device.info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

pub(super) unsafe extern "C" fn clCreateSubDevices(
    device: cl_device_id,
    properties: *const cl_device_partition_property,
    entries: cl_uint,
    out: *mut cl_device_id,
    count: *mut cl_uint,
) -> cl_int {
    status(|| {
        let device = find_device(device as usize)?;
        // SAFETY: the caller's list ends with a zero.
        let properties = unsafe { pointer::partition_list(properties) };
        let made = device.partition(&properties, (!out.is_null()).then_some(entries as usize))?;
        // SAFETY: the caller's out-parameters.
        unsafe { pointer::store(count, made.count as cl_uint) };
        if !out.is_null() {
            // SAFETY: the caller's array; `partition` checked that all fit.
            unsafe {
                pointer::fill(out, entries as usize, made.devices.iter().map(|part| publish(part) as cl_device_id))
            };
        }
        Ok(())
    })
}

/// cl_ext_device_fission is not offered.
pub(super) unsafe extern "C" fn clCreateSubDevicesEXT(
    _device: cl_device_id,
    _properties: *const cl_device_partition_property_ext,
    _entries: cl_uint,
    _out: *mut cl_device_id,
    _count: *mut cl_uint,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clRetainDevice(device: cl_device_id) -> cl_int {
    // Root devices are not counted.
    status(|| if find_device(device as usize)?.is_root() { Ok(()) } else { retain::<Device>(device as usize) })
}

pub(super) unsafe extern "C" fn clReleaseDevice(device: cl_device_id) -> cl_int {
    status(|| if find_device(device as usize)?.is_root() { Ok(()) } else { release::<Device>(device as usize) })
}

pub(super) unsafe extern "C" fn clGetDeviceAndHostTimer(
    device: cl_device_id,
    device_ns: *mut cl_ulong,
    host_ns: *mut cl_ulong,
) -> cl_int {
    status(|| {
        let device = find_device(device as usize)?;
        // CL_INVALID_VALUE if host_timestamp or device_timestamp is NULL.
        if device_ns.is_null() || host_ns.is_null() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let (on_device, here) = device.timers()?;
        // SAFETY: the caller's out-parameters.
        unsafe {
            pointer::store(device_ns, on_device);
            pointer::store(host_ns, here);
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn clGetHostTimer(device: cl_device_id, host_ns: *mut cl_ulong) -> cl_int {
    status(|| {
        let device = find_device(device as usize)?;
        // CL_INVALID_VALUE if host_timestamp is NULL.
        if host_ns.is_null() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let now = device.host_timer()?;
        // SAFETY: the caller's out-parameter.
        unsafe { pointer::store(host_ns, now) };
        Ok(())
    })
}
