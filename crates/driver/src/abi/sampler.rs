//! Samplers.

use std::ffi::c_void;
use std::sync::Arc;

use telecl_sys::*;

use super::{create_object, pointer, status, write_info};
use crate::api::{Context, Sampler, SamplerRequest};
use crate::registry::{lookup, release, retain};

pub(super) unsafe extern "C" fn clCreateSampler(
    context: cl_context,
    normalized: cl_bool,
    addressing: cl_addressing_mode,
    filter: cl_filter_mode,
    error: *mut cl_int,
) -> cl_sampler {
    // SAFETY: the caller's out-parameter.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            Sampler::new(&context, SamplerRequest { normalized, addressing, filter, list: None })
        })
    }
}

pub(super) unsafe extern "C" fn clCreateSamplerWithProperties(
    context: cl_context,
    list: *const cl_sampler_properties,
    error: *mut cl_int,
) -> cl_sampler {
    // SAFETY: the caller's list ends with a zero; its out-parameter is valid.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            let list = pointer::zero_terminated_pairs(list);
            let given = list.as_deref().map_or(&[][..], |list| &list[..list.len() - 1]);
            let request = SamplerRequest { list: list.clone(), ..SamplerRequest::parse(given)? };
            Sampler::new(&context, request)
        })
    }
}

pub(super) unsafe extern "C" fn clRetainSampler(sampler: cl_sampler) -> cl_int {
    status(|| retain::<Sampler>(sampler as usize))
}

pub(super) unsafe extern "C" fn clReleaseSampler(sampler: cl_sampler) -> cl_int {
    status(|| release::<Sampler>(sampler as usize))
}

pub(super) unsafe extern "C" fn clGetSamplerInfo(
    sampler: cl_sampler,
    param: cl_sampler_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    status(|| {
        let sampler: Arc<Sampler> = lookup(sampler as usize)?;
        let answer = sampler.info(param)?;
        // SAFETY: the caller's out-parameters.
        unsafe { write_info(&answer, size, value, size_ret) }
    })
}
