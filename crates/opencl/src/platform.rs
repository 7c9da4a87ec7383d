//! Platforms: the vendors' OpenCL implementations behind the loader.

use std::fmt;
use std::ptr;

use telecl_sys::*;

use crate::handle::count;
use crate::library::need;
use crate::{Device, Library, info};

/// One vendor's OpenCL. Platforms have no reference count; they live as long as the library.
#[derive(Clone, Copy)]
pub struct Platform {
    raw: cl_platform_id,
    library: &'static Library,
}

// SAFETY: platform handles are constants of the process, and the calls on them are thread-safe.
unsafe impl Send for Platform {}
// SAFETY: as for `Send`.
unsafe impl Sync for Platform {}

impl Library {
    /// All platforms of the node; none is not an error.
    pub fn platforms(&'static self) -> ClResult<Vec<Platform>> {
        let mut available = 0;
        // SAFETY: no array is given, and the count is ours.
        match check(unsafe { (self.clGetPlatformIDs)(0, ptr::null_mut(), &raw mut available) }) {
            Err(ClError(CL_PLATFORM_NOT_FOUND_KHR)) => return Ok(Vec::new()),
            other => other?,
        }
        if available == 0 {
            return Ok(Vec::new());
        }
        let mut handles = vec![ptr::null_mut(); available as usize];
        let mut found = available;
        // SAFETY: the array has room for `available` handles.
        check(unsafe { (self.clGetPlatformIDs)(available, handles.as_mut_ptr(), &raw mut found) })?;
        handles.truncate(found as usize);
        Ok(handles.into_iter().map(|raw| Platform { raw, library: self }).collect())
    }
}

impl Platform {
    /// The vendor's handle.
    pub fn raw(&self) -> cl_platform_id {
        self.raw
    }

    /// The OpenCL that this platform was found in.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// `clGetPlatformInfo`.
    pub fn info(&self, param: cl_platform_info) -> ClResult<Vec<u8>> {
        // SAFETY: `info::read` passes a value of `size` bytes or null; the handle lives for ever.
        info::read(|size, value, size_ret| unsafe {
            (self.library.clGetPlatformInfo)(self.raw, param, size, value, size_ret)
        })
    }

    /// `clGetPlatformInfo` of something that is text.
    pub fn info_string(&self, param: cl_platform_info) -> ClResult<String> {
        Ok(info::string(&self.info(param)?))
    }

    /// The root devices of these types; none is not an error.
    pub fn devices(&self, types: cl_device_type) -> ClResult<Vec<Device>> {
        let mut available = 0;
        // SAFETY: the platform is valid, no array is given, and the count is ours.
        match check(unsafe { (self.library.clGetDeviceIDs)(self.raw, types, 0, ptr::null_mut(), &raw mut available) }) {
            Err(ClError(CL_DEVICE_NOT_FOUND)) => return Ok(Vec::new()),
            other => other?,
        }
        let mut handles = vec![ptr::null_mut(); available as usize];
        if handles.is_empty() {
            return Ok(Vec::new());
        }
        // SAFETY: the array has room for as many handles as are asked for.
        check(unsafe {
            (self.library.clGetDeviceIDs)(self.raw, types, count(handles.len())?, handles.as_mut_ptr(), ptr::null_mut())
        })?;
        // SAFETY: these are root devices, which live as long as the platform.
        Ok(handles.into_iter().map(|raw| unsafe { Device::root(self.library, raw) }).collect())
    }

    /// `clUnloadPlatformCompiler`: a hint that no build follows soon.
    pub fn unload_compiler(&self) -> ClResult<()> {
        let unload = need(self.library.clUnloadPlatformCompiler)?;
        // SAFETY: the platform is valid.
        check(unsafe { unload(self.raw) })
    }
}

impl PartialEq for Platform {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Eq for Platform {}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Platform({:p})", self.raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_platform_has_a_name_and_devices() {
        let Some(library) = testing::library() else {
            return;
        };
        for platform in library.platforms().unwrap() {
            assert!(!platform.info_string(CL_PLATFORM_NAME).unwrap().is_empty());
            for device in platform.devices(CL_DEVICE_TYPE_ALL).unwrap() {
                assert!(!device.info_string(CL_DEVICE_NAME).unwrap().is_empty());
                let platform_of_device = info::number(&device.info(CL_DEVICE_PLATFORM).unwrap());
                assert_eq!(platform_of_device, Some(platform.raw() as u64));
            }
        }
        let (_, device) = testing::device().unwrap();
        assert_eq!(device.info(0xFFFF_FFFF), Err(ClError(CL_INVALID_VALUE)));
    }

    #[test]
    fn a_type_without_devices_is_an_empty_list() {
        let Some((platform, _)) = testing::device() else {
            return;
        };
        assert_eq!(platform.devices(CL_DEVICE_TYPE_CUSTOM), Ok(Vec::new()));
    }
}
