//! The C functions that drivers call back, and the closures behind them. None lets a panic into the driver.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use telecl_sys::*;

use crate::context::Notify;

/// What runs when an event reaches a status; boxed twice, because a C pointer is thin.
pub(crate) type OnStatus = Box<dyn FnOnce(cl_int) + Send>;

/// `pfn_notify` of `clSetEventCallback`.
///
/// # Safety
/// `user_data` is a `Box<OnStatus>` as a raw pointer, and this is called once with it.
pub(crate) unsafe extern "C" fn event_status(_event: cl_event, status: cl_int, user_data: *mut c_void) {
    // SAFETY: the pointer was a box, and a callback is called once for each registration, so it is freed once.
    let on_status = unsafe { Box::from_raw(user_data.cast::<OnStatus>()) };
    drop(catch_unwind(AssertUnwindSafe(move || on_status(status))));
}

/// What runs when a memory object is gone; boxed twice, as above.
pub(crate) type OnDestruction = Box<dyn FnOnce() + Send>;

/// `pfn_notify` of `clSetMemObjectDestructorCallback`.
///
/// # Safety
/// `user_data` is a `Box<OnDestruction>` as a raw pointer, and this is called once with it.
pub(crate) unsafe extern "C" fn mem_destruction(_mem: cl_mem, user_data: *mut c_void) {
    // SAFETY: the pointer was a box, and a callback is called once for each registration, so it is freed once.
    let on_destruction = unsafe { Box::from_raw(user_data.cast::<OnDestruction>()) };
    drop(catch_unwind(AssertUnwindSafe(on_destruction)));
}

/// `pfn_notify` of `clCreateContext`.
///
/// # Safety
/// `user_data` points to a [`Notify`] that lives for ever; the other pointers are the driver's, valid for this call.
pub(crate) unsafe extern "C" fn context_notify(
    message: *const c_char,
    private: *const c_void,
    private_size: usize,
    user_data: *mut c_void,
) {
    // SAFETY: points to a leaked `Notify`, which may be shared because it is `Sync`.
    let notify = unsafe { &*user_data.cast::<Notify>() };
    let message = if message.is_null() {
        c""
    } else {
        // SAFETY: not null, so a NUL-terminated string by the specification of `clCreateContext`.
        unsafe { CStr::from_ptr(message) }
    };
    let private = if private.is_null() || private_size == 0 {
        &[]
    } else {
        // SAFETY: `private_info` is valid for `cb` bytes by the specification of `clCreateContext`.
        unsafe { slice::from_raw_parts(private.cast::<u8>(), private_size) }
    };
    drop(catch_unwind(AssertUnwindSafe(|| notify(&message.to_string_lossy(), private))));
}
