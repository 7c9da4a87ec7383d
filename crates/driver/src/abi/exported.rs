//! The three names a loader looks up with `dlsym`. They only forward: a table entry taken from an
//! exported name would be resolved by the dynamic linker and might land in libOpenCL.

#![allow(unreachable_pub, reason = "reached by dlsym, not by Rust")]

use std::ffi::{c_char, c_void};

use telecl_sys::*;

use super::{device, table};

/// Finds `clIcdGetPlatformIDsKHR` and the functions of extensions.
///
/// # Safety
/// `name` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's string.
    unsafe { table::extension_function(name) }
}

/// Lists the platforms, for the loader.
///
/// # Safety
/// As `clGetPlatformIDs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clIcdGetPlatformIDsKHR(
    entries: cl_uint,
    platforms: *mut cl_platform_id,
    count: *mut cl_uint,
) -> cl_int {
    // SAFETY: the caller's out-parameters.
    unsafe { device::clGetPlatformIDs(entries, platforms, count) }
}

/// `clGetPlatformInfo`, for the loader.
///
/// # Safety
/// As `clGetPlatformInfo`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetPlatformInfo(
    platform: cl_platform_id,
    param: cl_platform_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    // SAFETY: the caller's out-parameters.
    unsafe { device::clGetPlatformInfo(platform, param, size, value, size_ret) }
}
