//! Contexts.

use std::ptr;

use telecl_sys::*;

use crate::callback::context_notify;
use crate::handle::{count, created, handle};
use crate::{Device, Platform, device, info};

/// Told what a driver has to say about a context: a message, and bytes that only the vendor can read.
///
/// Called on any thread of the driver.
pub type Notify = Box<dyn Fn(&str, &[u8]) + Send + Sync>;

handle! {
    /// A context: some devices of one platform, and all that is made for them.
    Context(cl_context), clRetainContext, clReleaseContext
}

impl Context {
    /// `clCreateContext`.
    ///
    /// `notify` is never freed: a driver may still call it while the context is going away.
    pub fn new(platform: &Platform, devices: &[Device], notify: Option<Notify>) -> ClResult<Self> {
        let library = platform.library();
        let properties = [CL_CONTEXT_PLATFORM, platform.raw() as cl_context_properties, 0];
        let devices = device::handles(devices);
        let (function, user_data): (Option<ContextNotify>, _) = match notify {
            Some(notify) => (Some(context_notify), Box::into_raw(Box::new(notify)).cast()),
            None => (None, ptr::null_mut()),
        };
        let mut status = CL_SUCCESS;
        // SAFETY: properties end with zero, devices are valid, and `user_data` is what `context_notify` expects, leaked.
        let raw = unsafe {
            (library.clCreateContext)(
                properties.as_ptr(),
                count(devices.len())?,
                devices.as_ptr(),
                function,
                user_data,
                &raw mut status,
            )
        };
        // SAFETY: the new context's only reference is ours.
        Ok(unsafe { Self::from_raw(library, created(raw, status)?) })
    }

    /// `clGetContextInfo`.
    pub fn info(&self, param: cl_context_info) -> ClResult<Vec<u8>> {
        // SAFETY: the context is valid, and `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe {
            (self.library.clGetContextInfo)(self.raw, param, size, value, size_ret)
        })
    }

    /// `clGetSupportedImageFormats`.
    pub fn supported_image_formats(
        &self,
        flags: cl_mem_flags,
        image_type: cl_mem_object_type,
    ) -> ClResult<Vec<cl_image_format>> {
        let ask = self.library.clGetSupportedImageFormats;
        let mut available = 0;
        // SAFETY: the context is valid, no array is given, and the count is ours.
        check(unsafe { ask(self.raw, flags, image_type, 0, ptr::null_mut(), &raw mut available) })?;
        if available == 0 {
            return Ok(Vec::new());
        }
        let mut formats = vec![cl_image_format::default(); available as usize];
        // SAFETY: the array has room for `available` formats.
        check(unsafe { ask(self.raw, flags, image_type, available, formats.as_mut_ptr(), ptr::null_mut()) })?;
        Ok(formats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_context_knows_its_devices_and_counts_its_references() {
        let Some((platform, device)) = testing::device() else {
            return;
        };
        let context = Context::new(&platform, &[device], Some(Box::new(|_message, _private| ()))).unwrap();
        let references = |context: &Context| info::number(&context.info(CL_CONTEXT_REFERENCE_COUNT).unwrap());
        let before = references(&context).unwrap();
        let second = context.clone();
        assert_eq!(references(&context), Some(before + 1));
        drop(second);
        assert_eq!(references(&context), Some(before));
        let number = info::number(&context.info(CL_CONTEXT_NUM_DEVICES).unwrap());
        assert_eq!(number, Some(1));
    }

    #[test]
    fn a_context_without_devices_is_refused() {
        let Some((platform, _)) = testing::device() else {
            return;
        };
        assert!(Context::new(&platform, &[], None).is_err());
    }
}
