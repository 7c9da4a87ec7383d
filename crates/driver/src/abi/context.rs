//! Contexts.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use telecl_sys::*;

use super::{create_object, pointer, status, write_info};
use crate::api::{Context, Device, Notify, find_device, find_platform, platforms};
use crate::registry::{lookup, release, retain};

/// Something of the program's, passed back to it as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserData(pub(super) *mut c_void);

// SAFETY: never dereferenced here; OpenCL lets callbacks run on any thread.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

impl UserData {
    /// Through a method, so that closures capture the whole and not the bare pointer.
    pub(super) fn get(self) -> *mut c_void {
        self.0
    }
}

fn notify(function: Option<ContextNotify>, data: *mut c_void) -> ClResult<Option<Notify>> {
    // CL_INVALID_VALUE if pfn_notify is NULL but user_data is not NULL.
    let Some(function) = function else {
        return if data.is_null() { Ok(None) } else { Err(ClError(CL_INVALID_VALUE)) };
    };
    let data = UserData(data);
    Ok(Some(Arc::new(move |message: &str, private_info: &[u8]| {
        let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the program promised that its function may be called, on any thread.
        unsafe { function(message.as_ptr(), private_info.as_ptr().cast(), private_info.len(), data.get()) };
    })))
}

/// What a context's property list says.
struct Properties {
    list: Vec<isize>,
    platform: Option<usize>,
}

/// # Safety
/// `list` is null or a property list that ends with a zero.
unsafe fn properties(list: *const cl_context_properties) -> ClResult<Properties> {
    // SAFETY: by this function's contract.
    let list = unsafe { pairs(list) };
    let mut platform = None;
    let mut seen = Vec::new();
    for pair in list.chunks_exact(2) {
        // CL_INVALID_PROPERTY if the same property name is specified more than once.
        if seen.contains(&pair[0]) {
            return Err(ClError(CL_INVALID_PROPERTY));
        }
        seen.push(pair[0]);
        match pair[0] {
            CL_CONTEXT_PLATFORM => platform = Some(find_platform(pair[1] as usize)?.address()),
            CL_CONTEXT_INTEROP_USER_SYNC if matches!(pair[1], 0 | 1) => {}
            // CL_INVALID_PROPERTY if context property name in properties is not a supported property
            // name, or if the value specified for a supported property name is not valid.
            _ => return Err(ClError(CL_INVALID_PROPERTY)),
        }
    }
    Ok(Properties { list, platform })
}

/// # Safety
/// `list` is null or a list of pairs that ends with a zero name.
unsafe fn pairs(list: *const isize) -> Vec<isize> {
    // SAFETY: isize and u64-like values have the same size here; by this function's contract.
    unsafe { pointer::zero_terminated_pairs(list.cast::<i64>()) }
        .unwrap_or_default()
        .into_iter()
        .map(|value| value as isize)
        .collect()
}

pub(super) unsafe extern "C" fn clCreateContext(
    list: *const cl_context_properties,
    count: cl_uint,
    devices: *const cl_device_id,
    function: Option<ContextNotify>,
    data: *mut c_void,
    error: *mut cl_int,
) -> cl_context {
    // SAFETY: the caller's arguments are as OpenCL demands.
    unsafe {
        create_object(error, || {
            // CL_INVALID_VALUE if devices is NULL or if num_devices is equal to zero.
            if devices.is_null() || count == 0 {
                return Err(ClError(CL_INVALID_VALUE));
            }
            let properties = properties(list)?;
            let notify = notify(function, data)?;
            let devices: Vec<Arc<Device>> = pointer::list(devices, count as usize)
                .iter()
                .map(|&device| find_device(device as usize))
                .collect::<ClResult<_>>()?;
            if properties
                .platform
                .is_some_and(|platform| devices.iter().any(|device| device.platform().address() != platform))
            {
                return Err(ClError(CL_INVALID_DEVICE));
            }
            Context::new(without_repeats(devices), properties.list, notify)
        })
    }
}

/// Duplicate devices specified in devices are ignored.
fn without_repeats(devices: Vec<Arc<Device>>) -> Vec<Arc<Device>> {
    let mut unique: Vec<Arc<Device>> = Vec::new();
    for device in devices {
        if !unique.iter().any(|known| known.id() == device.id()) {
            unique.push(device);
        }
    }
    unique
}

pub(super) unsafe extern "C" fn clCreateContextFromType(
    list: *const cl_context_properties,
    kind: cl_device_type,
    function: Option<ContextNotify>,
    data: *mut c_void,
    error: *mut cl_int,
) -> cl_context {
    // SAFETY: the caller's arguments are as OpenCL demands.
    unsafe {
        create_object(error, || {
            let properties = properties(list)?;
            let notify = notify(function, data)?;
            let platform = match properties.platform {
                Some(address) => find_platform(address)?,
                None => platforms().first().ok_or(ClError(CL_INVALID_PLATFORM))?,
            };
            Context::new(platform.devices_of_type(kind)?, properties.list, notify)
        })
    }
}

pub(super) unsafe extern "C" fn clRetainContext(context: cl_context) -> cl_int {
    status(|| retain::<Context>(context as usize))
}

pub(super) unsafe extern "C" fn clReleaseContext(context: cl_context) -> cl_int {
    status(|| release::<Context>(context as usize))
}

pub(super) unsafe extern "C" fn clGetContextInfo(
    context: cl_context,
    param: cl_context_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let context: Arc<Context> = lookup(context as usize)?;
        let answer = context.info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}

pub(super) unsafe extern "C" fn clSetContextDestructorCallback(
    context: cl_context,
    function: Option<ContextDestructor>,
    data: *mut c_void,
) -> cl_int {
    status(|| {
        let object: Arc<Context> = lookup(context as usize)?;
        // CL_INVALID_VALUE if pfn_notify is NULL.
        let function = function.ok_or(ClError(CL_INVALID_VALUE))?;
        let (handle, data) = (context as usize, UserData(data));
        // SAFETY: the program promised that its function may be called.
        object.on_destruction(Box::new(move || unsafe { function(handle as cl_context, data.get()) }));
        Ok(())
    })
}
