//! Devices, root and partitioned, and their timers.

use std::fmt;
use std::ptr;

use telecl_sys::*;

use crate::handle::count;
use crate::library::need;
use crate::{Library, info};

/// A device. A sub-device is retained and released; a root device lives as long as its platform.
pub struct Device {
    raw: cl_device_id,
    library: &'static Library,
    /// Made by [`Device::create_sub_devices`], so that there is a reference to give back.
    counted: bool,
}

// SAFETY: device handles belong to the process, and all calls on them are thread-safe.
unsafe impl Send for Device {}
// SAFETY: as for `Send`.
unsafe impl Sync for Device {}

impl Device {
    /// # Safety
    /// `raw` is a root device of `library`.
    pub(crate) unsafe fn root(library: &'static Library, raw: cl_device_id) -> Self {
        Self { raw, library, counted: false }
    }

    /// The vendor's handle. It is valid as long as `self`.
    pub fn raw(&self) -> cl_device_id {
        self.raw
    }

    /// The OpenCL that this device belongs to.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// Whether this is a part of another device.
    pub fn is_sub_device(&self) -> bool {
        self.counted
    }

    /// `clGetDeviceInfo`.
    pub fn info(&self, param: cl_device_info) -> ClResult<Vec<u8>> {
        // SAFETY: the device is valid, and `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe {
            (self.library.clGetDeviceInfo)(self.raw, param, size, value, size_ret)
        })
    }

    /// `clGetDeviceInfo` of something that is text.
    pub fn info_string(&self, param: cl_device_info) -> ClResult<String> {
        Ok(info::string(&self.info(param)?))
    }

    /// `clGetDeviceInfo` of a `cl_uint`, `cl_bool`, `cl_ulong`, bit field or `size_t`.
    pub fn info_number(&self, param: cl_device_info) -> ClResult<u64> {
        info::number(&self.info(param)?).ok_or(ClError(CL_INVALID_VALUE))
    }

    /// `clCreateSubDevices`. The list needs no zero at its end.
    pub fn create_sub_devices(&self, properties: &[cl_device_partition_property]) -> ClResult<Vec<Self>> {
        let create = need(self.library.clCreateSubDevices)?;
        // Two: a list of counts has an end of its own before the end of the properties.
        let list = [properties, &[0, 0]].concat();
        let mut available = 0;
        // SAFETY: the list ends with zeros, no array is given, and the count is ours.
        check(unsafe { create(self.raw, list.as_ptr(), 0, ptr::null_mut(), &raw mut available) })?;
        let mut handles = vec![ptr::null_mut(); available as usize];
        let mut made = available;
        // SAFETY: the list ends with zeros, and the array has room for as many handles as are asked for.
        check(unsafe { create(self.raw, list.as_ptr(), count(handles.len())?, handles.as_mut_ptr(), &raw mut made) })?;
        handles.truncate(made as usize);
        Ok(handles.into_iter().map(|raw| Self { raw, library: self.library, counted: true }).collect())
    }

    /// `clGetDeviceAndHostTimer`: the device's and the host's clock at one moment, in nanoseconds.
    pub fn device_and_host_timer(&self) -> ClResult<(u64, u64)> {
        let timer = need(self.library.clGetDeviceAndHostTimer)?;
        let (mut device, mut host) = (0, 0);
        // SAFETY: the device is valid, and both places are ours.
        check(unsafe { timer(self.raw, &raw mut device, &raw mut host) })?;
        Ok((device, host))
    }

    /// `clGetHostTimer`: the host's clock as this device's platform sees it, in nanoseconds.
    pub fn host_timer(&self) -> ClResult<u64> {
        let timer = need(self.library.clGetHostTimer)?;
        let mut host = 0;
        // SAFETY: the device is valid, and the place is ours.
        check(unsafe { timer(self.raw, &raw mut host) })?;
        Ok(host)
    }
}

impl Clone for Device {
    fn clone(&self) -> Self {
        if let (true, Some(retain)) = (self.counted, self.library.clRetainDevice) {
            // SAFETY: `self` holds a reference to the sub-device, so its handle is valid.
            unsafe { retain(self.raw) };
        }
        Self { ..*self }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let (true, Some(release)) = (self.counted, self.library.clReleaseDevice) {
            // SAFETY: gives back the reference that `self` holds; nothing uses the handle after this.
            unsafe { release(self.raw) };
        }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({:p})", self.raw)
    }
}

/// The handles of some devices, side by side as OpenCL takes them.
pub(crate) fn handles(devices: &[Device]) -> Vec<cl_device_id> {
    devices.iter().map(Device::raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_partition_makes_sub_devices_of_the_sizes_asked_for() {
        let Some((_, device)) = testing::device() else {
            return;
        };
        let units = device.info_number(CL_DEVICE_MAX_COMPUTE_UNITS).unwrap();
        let parts = device.info_number(CL_DEVICE_PARTITION_MAX_SUB_DEVICES).unwrap();
        if units < 2 || parts < 2 {
            return;
        }
        let made = device.create_sub_devices(&[CL_DEVICE_PARTITION_BY_COUNTS, 1, 1]).unwrap();
        assert_eq!(made.len(), 2);
        for part in made.clone() {
            assert!(part.is_sub_device());
            assert_eq!(part.info_number(CL_DEVICE_MAX_COMPUTE_UNITS).unwrap(), 1);
        }
    }

    #[test]
    fn clocks_advance_or_are_refused() {
        let Some((_, device)) = testing::device() else {
            return;
        };
        match device.host_timer() {
            Ok(before) => assert!(device.device_and_host_timer().unwrap().1 >= before),
            Err(error) => assert_eq!(error, ClError(CL_INVALID_OPERATION)),
        }
    }
}
