//! Samplers.

use telecl_sys::*;

use crate::handle::{created, handle};
use crate::library::need;
use crate::{Context, info};

handle! {
    /// How a kernel reads an image.
    Sampler(cl_sampler), clRetainSampler, clReleaseSampler
}

impl Context {
    /// `clCreateSampler`.
    pub fn create_sampler(
        &self,
        normalized: bool,
        addressing: cl_addressing_mode,
        filter: cl_filter_mode,
    ) -> ClResult<Sampler> {
        let create = need(self.library().clCreateSampler)?;
        let mut status = CL_SUCCESS;
        // SAFETY: the context is valid, and the status is ours.
        let raw = unsafe { create(self.raw(), normalized.into(), addressing, filter, &raw mut status) };
        // SAFETY: the new sampler's only reference is ours.
        Ok(unsafe { Sampler::from_raw(self.library(), created(raw, status)?) })
    }

    /// `clCreateSamplerWithProperties`. The list needs no zero at its end.
    pub fn create_sampler_with_properties(&self, properties: &[cl_sampler_properties]) -> ClResult<Sampler> {
        let create = need(self.library().clCreateSamplerWithProperties)?;
        let list = [properties, &[0]].concat();
        let mut status = CL_SUCCESS;
        // SAFETY: the context is valid, the list ends with zero, and the status is ours.
        let raw = unsafe { create(self.raw(), list.as_ptr(), &raw mut status) };
        // SAFETY: the new sampler's only reference is ours.
        Ok(unsafe { Sampler::from_raw(self.library(), created(raw, status)?) })
    }
}

impl Sampler {
    /// `clGetSamplerInfo`.
    pub fn info(&self, param: cl_sampler_info) -> ClResult<Vec<u8>> {
        // SAFETY: the sampler is valid, and `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe {
            (self.library.clGetSamplerInfo)(self.raw, param, size, value, size_ret)
        })
    }
}
