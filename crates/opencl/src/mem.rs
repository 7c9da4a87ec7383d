//! Memory objects: buffers, sub-buffers, images and pipes.

use std::ffi::c_void;
use std::ptr;

use telecl_sys::*;

use crate::callback::{OnDestruction, mem_destruction};
use crate::handle::{created, handle};
use crate::library::need;
use crate::{Context, info};

handle! {
    /// A buffer, an image or a pipe.
    Mem(cl_mem), clRetainMemObject, clReleaseMemObject
}

impl Context {
    /// `clCreateBuffer`, or `clCreateBufferWithProperties` if there are any (without the zero at the end).
    ///
    /// `data` is copied, and must have at least `size` bytes. `CL_MEM_COPY_HOST_PTR` is implied by it, and
    /// `CL_MEM_USE_HOST_PTR` is refused: no memory of ours is lent to the driver.
    pub fn create_buffer(
        &self,
        flags: cl_mem_flags,
        size: usize,
        data: Option<&[u8]>,
        properties: &[cl_mem_properties],
    ) -> ClResult<Mem> {
        let (flags, host_ptr) = copied(flags, data, size)?;
        let mut status = CL_SUCCESS;
        let raw = if properties.is_empty() {
            // SAFETY: the context is valid; `host_ptr` is null or is read, for `size` bytes, during the call.
            unsafe {
                let create = self.library().clCreateBuffer;
                create(self.raw(), flags, size, host_ptr, &raw mut status)
            }
        } else {
            let create = need(self.library().clCreateBufferWithProperties)?;
            let list = [properties, &[0]].concat();
            // SAFETY: as above, and the list ends with zero.
            unsafe { create(self.raw(), list.as_ptr(), flags, size, host_ptr, &raw mut status) }
        };
        // SAFETY: the new buffer's only reference is ours.
        Ok(unsafe { Mem::from_raw(self.library(), created(raw, status)?) })
    }

    /// `clCreateBuffer` with `CL_MEM_USE_HOST_PTR`: a buffer that is made of memory of ours.
    ///
    /// # Safety
    /// From `start`, `size` bytes are readable and writable as long as the buffer lives.
    pub unsafe fn create_buffer_of(&self, flags: cl_mem_flags, start: ptr::NonNull<u8>, size: usize) -> ClResult<Mem> {
        let mut status = CL_SUCCESS;
        let flags = flags | CL_MEM_USE_HOST_PTR;
        // SAFETY: the context is valid, and so is the memory by this function's contract.
        let raw =
            unsafe { (self.library().clCreateBuffer)(self.raw(), flags, size, start.as_ptr().cast(), &raw mut status) };
        // SAFETY: the new buffer's only reference is ours.
        Ok(unsafe { Mem::from_raw(self.library(), created(raw, status)?) })
    }

    /// `clCreateImage`, or `clCreateImageWithProperties` if there are any (without the zero at the end).
    ///
    /// `parent` is the buffer or image that this image is made of, and replaces `desc.mem_object`. `data` is copied, as
    /// for a buffer, and must have [`image_data_size`] bytes.
    pub fn create_image(
        &self,
        flags: cl_mem_flags,
        format: &cl_image_format,
        desc: &cl_image_desc,
        parent: Option<&Mem>,
        data: Option<&[u8]>,
        properties: &[cl_mem_properties],
    ) -> ClResult<Mem> {
        let size = match data {
            Some(_) => image_data_size(format, desc).ok_or(ClError(CL_IMAGE_FORMAT_NOT_SUPPORTED))?,
            None => 0,
        };
        let (flags, host_ptr) = copied(flags, data, size)?;
        let desc = cl_image_desc { mem_object: parent.map_or(ptr::null_mut(), Mem::raw), ..*desc };
        let mut status = CL_SUCCESS;
        let raw = if properties.is_empty() {
            let create = need(self.library().clCreateImage)?;
            // SAFETY: the context and the parent are valid; `host_ptr` is null or is read during the call, for as many
            // bytes as the description says.
            unsafe { create(self.raw(), flags, format, &raw const desc, host_ptr, &raw mut status) }
        } else {
            let create = need(self.library().clCreateImageWithProperties)?;
            let list = [properties, &[0]].concat();
            let list = list.as_ptr();
            // SAFETY: as above, and the list ends with zero.
            unsafe { create(self.raw(), list, flags, format, &raw const desc, host_ptr, &raw mut status) }
        };
        // SAFETY: the new image's only reference is ours.
        Ok(unsafe { Mem::from_raw(self.library(), created(raw, status)?) })
    }

    /// `clCreatePipe`.
    pub fn create_pipe(&self, flags: cl_mem_flags, packet_size: u32, max_packets: u32) -> ClResult<Mem> {
        let create = need(self.library().clCreatePipe)?;
        let mut status = CL_SUCCESS;
        // SAFETY: the context is valid; pipes have no properties, so the list is null.
        let raw = unsafe { create(self.raw(), flags, packet_size, max_packets, ptr::null(), &raw mut status) };
        // SAFETY: the new pipe's only reference is ours.
        Ok(unsafe { Mem::from_raw(self.library(), created(raw, status)?) })
    }
}

impl Mem {
    /// `clCreateSubBuffer`.
    pub fn create_sub_buffer(&self, flags: cl_mem_flags, origin: usize, size: usize) -> ClResult<Self> {
        let create = need(self.library.clCreateSubBuffer)?;
        let region = cl_buffer_region { origin, size };
        let mut status = CL_SUCCESS;
        // SAFETY: the buffer is valid, and a region is what `CL_BUFFER_CREATE_TYPE_REGION` reads.
        let raw = unsafe {
            create(self.raw, flags, CL_BUFFER_CREATE_TYPE_REGION, (&raw const region).cast(), &raw mut status)
        };
        // SAFETY: the new buffer's only reference is ours.
        Ok(unsafe { Self::from_raw(self.library, created(raw, status)?) })
    }

    /// `clSetMemObjectDestructorCallback`: runs `on_destruction` once, on whichever thread, when the driver needs the
    /// object no more: it was released, and the commands that use it have ended.
    pub fn on_destruction(&self, on_destruction: Box<dyn FnOnce() + Send>) -> ClResult<()> {
        let set = need(self.library.clSetMemObjectDestructorCallback)?;
        let user_data: *mut OnDestruction = Box::into_raw(Box::new(on_destruction));
        // SAFETY: the object is valid, and `user_data` is what `mem_destruction` expects; the driver calls it once.
        let result = check(unsafe { set(self.raw, Some(mem_destruction), user_data.cast::<c_void>()) });
        if result.is_err() {
            // SAFETY: a registration that failed calls nothing, so the box is still ours.
            drop(unsafe { Box::from_raw(user_data) });
        }
        result
    }

    /// `clGetMemObjectInfo`.
    pub fn info(&self, param: cl_mem_info) -> ClResult<Vec<u8>> {
        // SAFETY: the object is valid, and `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe {
            (self.library.clGetMemObjectInfo)(self.raw, param, size, value, size_ret)
        })
    }

    /// `clGetImageInfo`.
    pub fn image_info(&self, param: cl_image_info) -> ClResult<Vec<u8>> {
        // SAFETY: the object is valid, and `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe {
            (self.library.clGetImageInfo)(self.raw, param, size, value, size_ret)
        })
    }

    /// `clGetPipeInfo`.
    pub fn pipe_info(&self, param: cl_pipe_info) -> ClResult<Vec<u8>> {
        let get = need(self.library.clGetPipeInfo)?;
        // SAFETY: the object is valid, and `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe { get(self.raw, param, size, value, size_ret) })
    }
}

/// The flags and the host pointer of a create call that copies `data`, of which it reads `size` bytes.
fn copied(flags: cl_mem_flags, data: Option<&[u8]>, size: usize) -> ClResult<(cl_mem_flags, *mut c_void)> {
    if flags & CL_MEM_USE_HOST_PTR != 0 {
        return Err(ClError(CL_INVALID_VALUE));
    }
    match data {
        None => Ok((flags, ptr::null_mut())),
        Some(data) if data.len() < size => Err(ClError(CL_INVALID_HOST_PTR)),
        // The driver only reads: without USE_HOST_PTR the memory is a source.
        Some(data) => Ok((flags | CL_MEM_COPY_HOST_PTR, data.as_ptr().cast_mut().cast())),
    }
}

/// Bytes of one pixel, for the formats of the specification.
#[must_use]
#[allow(non_upper_case_globals)] // The specification writes `CL_Rx` and `CL_sRGB`.
pub fn element_size(format: &cl_image_format) -> Option<usize> {
    let channels = match format.image_channel_order {
        CL_R | CL_A | CL_INTENSITY | CL_LUMINANCE | CL_DEPTH => 1,
        CL_RG | CL_RA | CL_Rx | CL_DEPTH_STENCIL => 2,
        CL_RGB | CL_RGx | CL_sRGB => 3,
        CL_RGBA | CL_BGRA | CL_ARGB | CL_ABGR | CL_RGBx | CL_sRGBx | CL_sRGBA | CL_sBGRA => 4,
        _ => return None,
    };
    Some(match format.image_channel_data_type {
        // All channels in one number.
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 => 2,
        CL_UNORM_INT_101010 | CL_UNORM_INT_101010_2 | CL_UNORM_INT24 => 4,
        CL_SNORM_INT8 | CL_UNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8 => channels,
        CL_SNORM_INT16 | CL_UNORM_INT16 | CL_SIGNED_INT16 | CL_UNSIGNED_INT16 | CL_HALF_FLOAT => 2 * channels,
        CL_SIGNED_INT32 | CL_UNSIGNED_INT32 | CL_FLOAT => 4 * channels,
        _ => return None,
    })
}

/// Bytes that a create call reads from the host memory of an image, pitches included; `None` for a format or kind that
/// is not in the specification, or a size beyond all memory.
#[must_use]
pub fn image_data_size(format: &cl_image_format, desc: &cl_image_desc) -> Option<usize> {
    let (rows, slices, layered_rows) = match desc.image_type {
        CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_BUFFER => (1, 1, false),
        // Each row is a slice of its own.
        CL_MEM_OBJECT_IMAGE1D_ARRAY => (1, desc.image_array_size, true),
        CL_MEM_OBJECT_IMAGE2D => (desc.image_height, 1, false),
        CL_MEM_OBJECT_IMAGE2D_ARRAY => (desc.image_height, desc.image_array_size, false),
        CL_MEM_OBJECT_IMAGE3D => (desc.image_height, desc.image_depth, false),
        _ => return None,
    };
    let row = desc.image_row_pitch.max(desc.image_width.checked_mul(element_size(format)?)?);
    let slice = desc.image_slice_pitch.max(row.checked_mul(rows)?);
    if layered_rows || slices > 1 { slice.checked_mul(slices) } else { row.checked_mul(rows) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const RGBA8: cl_image_format =
        cl_image_format { image_channel_order: CL_RGBA, image_channel_data_type: CL_UNORM_INT8 };

    #[test]
    fn a_buffer_starts_with_the_data_given() {
        let Some((context, device)) = testing::context() else {
            return;
        };
        let queue = context.create_queue(&device, 0).unwrap();
        let buffer = context.create_buffer(CL_MEM_READ_ONLY, 4, Some(b"data"), &[]).unwrap();
        let mut read = [0; 4];
        queue.read_buffer_blocking(&buffer, 0, &mut read).unwrap();
        assert_eq!(&read, b"data");
        assert_eq!(info::number(&buffer.info(CL_MEM_SIZE).unwrap()), Some(4));
    }

    #[test]
    fn data_that_is_too_short_is_refused() {
        let Some((context, _)) = testing::context() else {
            return;
        };
        let refused = context.create_buffer(0, 5, Some(b"data"), &[]);
        assert_eq!(refused, Err(ClError(CL_INVALID_HOST_PTR)));
        let lent = context.create_buffer(CL_MEM_USE_HOST_PTR, 4, Some(b"data"), &[]);
        assert_eq!(lent, Err(ClError(CL_INVALID_VALUE)));
        let desc =
            cl_image_desc { image_type: CL_MEM_OBJECT_IMAGE2D, image_width: 2, image_height: 2, ..Default::default() };
        let refused = context.create_image(0, &RGBA8, &desc, None, Some(&[0; 15]), &[]);
        assert_eq!(refused, Err(ClError(CL_INVALID_HOST_PTR)));
    }

    #[test]
    fn a_sub_buffer_keeps_its_buffer_alive() {
        let Some((context, device)) = testing::context() else {
            return;
        };
        let queue = context.create_queue(&device, 0).unwrap();
        let data: Vec<u8> = (0..=255).cycle().take(4096).collect();
        let buffer = context.create_buffer(0, data.len(), Some(&data), &[]).unwrap();
        let part = buffer.create_sub_buffer(0, 1024, 16).unwrap();
        drop(buffer);
        let mut read = [0; 16];
        queue.read_buffer_blocking(&part, 0, &mut read).unwrap();
        assert_eq!(read, data[1024..1040]);
    }

    #[test]
    fn the_end_of_a_buffer_is_told_when_the_last_command_that_uses_it_has_ended() {
        let Some((context, device)) = testing::context() else {
            return;
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        let buffer = context.create_buffer(0, 16, None, &[]).unwrap();
        let told = sender.clone();
        buffer.on_destruction(Box::new(move || told.send(1).unwrap())).unwrap();
        drop(buffer);
        assert_eq!(receiver.recv_timeout(std::time::Duration::from_secs(20)), Ok(1));
        let queue = context.create_queue(&device, 0).unwrap();
        let (buffer, gate) = (context.create_buffer(0, 16, None, &[]).unwrap(), context.create_user_event().unwrap());
        buffer.on_destruction(Box::new(move || sender.send(2).unwrap())).unwrap();
        queue.fill_buffer(&buffer, &[1], 0, 16, &crate::Order::after([&gate])).unwrap();
        queue.flush().unwrap();
        drop(buffer);
        assert!(receiver.try_recv().is_err());
        gate.set_status(CL_COMPLETE).unwrap();
        queue.finish().unwrap();
        assert_eq!(receiver.recv_timeout(std::time::Duration::from_secs(20)), Ok(2));
    }

    #[test]
    fn image_data_covers_pitches_and_layers() {
        let mut desc = cl_image_desc {
            image_type: CL_MEM_OBJECT_IMAGE2D,
            image_width: 3,
            image_height: 5,
            image_depth: 7,
            image_array_size: 9,
            ..Default::default()
        };
        assert_eq!(image_data_size(&RGBA8, &desc), Some(60));
        desc.image_row_pitch = 16;
        assert_eq!(image_data_size(&RGBA8, &desc), Some(80));
        desc.image_type = CL_MEM_OBJECT_IMAGE3D;
        assert_eq!(image_data_size(&RGBA8, &desc), Some(560));
        desc.image_slice_pitch = 100;
        assert_eq!(image_data_size(&RGBA8, &desc), Some(700));
        desc.image_type = CL_MEM_OBJECT_IMAGE1D_ARRAY;
        assert_eq!(image_data_size(&RGBA8, &desc), Some(900));
        desc.image_width = usize::MAX;
        assert_eq!(image_data_size(&RGBA8, &desc), None);
    }
}
