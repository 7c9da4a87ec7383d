//! Creating images.

use std::ffi::c_void;
use std::sync::Arc;

use telecl_sys::*;

use super::{create_object, pointer, status};
use crate::api::{Context, ImageRequest, ImageShape, Memory};
use crate::registry::lookup;

pub(super) unsafe extern "C" fn clCreateImage(
    context: cl_context,
    flags: cl_mem_flags,
    format: *const cl_image_format,
    desc: *const cl_image_desc,
    host: *mut c_void,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's arguments are as OpenCL demands.
    unsafe { clCreateImageWithProperties(context, std::ptr::null(), flags, format, desc, host, error) }
}

pub(super) unsafe extern "C" fn clCreateImageWithProperties(
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: cl_mem_flags,
    format: *const cl_image_format,
    desc: *const cl_image_desc,
    host: *mut c_void,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's list ends with a zero, its structs are valid or null, its out-parameter too.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            let desc = desc.as_ref();
            let parent_handle = desc.map_or(0, |desc| desc.mem_object as usize);
            // CL_INVALID_IMAGE_DESCRIPTOR if values specified in image_desc are not valid.
            let parent = match parent_handle {
                0 => None,
                handle => Some(lookup::<Memory>(handle).map_err(|_| ClError(CL_INVALID_IMAGE_DESCRIPTOR))?),
            };
            let shape = desc.map(|desc| ImageShape {
                kind: desc.image_type,
                width: desc.image_width as u64,
                height: desc.image_height as u64,
                depth: desc.image_depth as u64,
                array_size: desc.image_array_size as u64,
                row_pitch: desc.image_row_pitch as u64,
                slice_pitch: desc.image_slice_pitch as u64,
                mip_levels: desc.num_mip_levels,
                samples: desc.num_samples,
            });
            let request = ImageRequest {
                flags,
                format: format.as_ref().copied(),
                shape,
                parent,
                host: pointer::host(host),
                properties: pointer::zero_terminated_pairs(properties),
            };
            Memory::image(&context, request)
        })
    }
}

pub(super) unsafe extern "C" fn clCreateImage2D(
    context: cl_context,
    flags: cl_mem_flags,
    format: *const cl_image_format,
    width: usize,
    height: usize,
    row_pitch: usize,
    host: *mut c_void,
    error: *mut cl_int,
) -> cl_mem {
    let shape = ImageShape {
        kind: CL_MEM_OBJECT_IMAGE2D,
        width: width as u64,
        height: height as u64,
        row_pitch: row_pitch as u64,
        ..ImageShape::default()
    };
    // SAFETY: the caller's arguments are as OpenCL demands.
    unsafe { classic_image(context, flags, format, shape, host, error) }
}

pub(super) unsafe extern "C" fn clCreateImage3D(
    context: cl_context,
    flags: cl_mem_flags,
    format: *const cl_image_format,
    width: usize,
    height: usize,
    depth: usize,
    row_pitch: usize,
    slice_pitch: usize,
    host: *mut c_void,
    error: *mut cl_int,
) -> cl_mem {
    let shape = ImageShape {
        kind: CL_MEM_OBJECT_IMAGE3D,
        width: width as u64,
        height: height as u64,
        depth: depth as u64,
        row_pitch: row_pitch as u64,
        slice_pitch: slice_pitch as u64,
        ..ImageShape::default()
    };
    // SAFETY: the caller's arguments are as OpenCL demands.
    unsafe { classic_image(context, flags, format, shape, host, error) }
}

/// The functions of OpenCL 1.0, which answer CL_INVALID_IMAGE_SIZE where later ones speak of descriptors.
///
/// # Safety
/// As `clCreateImage`.
unsafe fn classic_image(
    context: cl_context,
    flags: cl_mem_flags,
    format: *const cl_image_format,
    shape: ImageShape,
    host: *mut c_void,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: by this function's contract.
    unsafe {
        create_object(error, || {
            let context: Arc<Context> = lookup(context as usize)?;
            let format = format.as_ref().copied();
            let request = ImageRequest {
                flags,
                format,
                shape: Some(shape),
                parent: None,
                host: pointer::host(host),
                properties: None,
            };
            Memory::image(&context, request).map_err(|error| match error {
                ClError(CL_INVALID_IMAGE_DESCRIPTOR) => ClError(CL_INVALID_IMAGE_SIZE),
                other => other,
            })
        })
    }
}

pub(super) unsafe extern "C" fn clGetSupportedImageFormats(
    context: cl_context,
    flags: cl_mem_flags,
    kind: cl_mem_object_type,
    entries: cl_uint,
    out: *mut cl_image_format,
    count: *mut cl_uint,
) -> cl_int {
    status(|| {
        let context: Arc<Context> = lookup(context as usize)?;
        // CL_INVALID_VALUE if flags or image_type are not valid, or if num_entries is 0 and
        // image_formats is not NULL.
        if entries == 0 && !out.is_null() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let formats = context.image_formats(flags, kind)?;
        // SAFETY: the caller's out-parameters.
        unsafe {
            pointer::store(count, formats.len() as cl_uint);
            pointer::fill(out, entries as usize, formats.iter().copied());
        }
        Ok(())
    })
}
