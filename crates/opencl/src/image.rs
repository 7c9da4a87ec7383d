//! The commands on images: read, write, copy and fill. Images are made in `mem.rs`.
//!
//! Those with a host pointer return before they are done, and are `unsafe` for that reason.

use telecl_sys::*;

use crate::library::need;
use crate::{Event, Mem, Order, Queue};

/// A part of an image, in pixels, rows and slices or array elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageRegion {
    pub origin: [usize; 3],
    pub region: [usize; 3],
}

impl Queue {
    /// `clEnqueueReadImage` that does not block.
    ///
    /// # Safety
    /// `to` is valid for all that `part` and the pitches cover, and nobody else uses it, until the command is complete.
    pub unsafe fn read_image(
        &self,
        image: &Mem,
        part: &ImageRegion,
        to: *mut u8,
        row_pitch: usize,
        slice_pitch: usize,
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: the handles are valid, and so is `to` by this function's contract.
            unsafe {
                (self.library().clEnqueueReadImage)(
                    self.raw(),
                    image.raw(),
                    CL_FALSE,
                    part.origin.as_ptr(),
                    part.region.as_ptr(),
                    row_pitch,
                    slice_pitch,
                    to.cast(),
                    num_waits,
                    waits,
                    event,
                )
            }
        })
    }

    /// `clEnqueueWriteImage` that does not block.
    ///
    /// # Safety
    /// `from` is valid for all that `part` and the pitches cover, and nobody changes it, until the command is complete.
    pub unsafe fn write_image(
        &self,
        image: &Mem,
        part: &ImageRegion,
        from: *const u8,
        row_pitch: usize,
        slice_pitch: usize,
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: the handles are valid, and so is `from` by this function's contract.
            unsafe {
                (self.library().clEnqueueWriteImage)(
                    self.raw(),
                    image.raw(),
                    CL_FALSE,
                    part.origin.as_ptr(),
                    part.region.as_ptr(),
                    row_pitch,
                    slice_pitch,
                    from.cast(),
                    num_waits,
                    waits,
                    event,
                )
            }
        })
    }

    /// `clEnqueueCopyImage`.
    pub fn copy_image(
        &self,
        from: &Mem,
        from_origin: &[usize; 3],
        to: &Mem,
        to_origin: &[usize; 3],
        region: &[usize; 3],
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: all handles are valid, and the arrays have three elements.
            unsafe {
                (self.library().clEnqueueCopyImage)(
                    self.raw(),
                    from.raw(),
                    to.raw(),
                    from_origin.as_ptr(),
                    to_origin.as_ptr(),
                    region.as_ptr(),
                    num_waits,
                    waits,
                    event,
                )
            }
        })
    }

    /// `clEnqueueCopyImageToBuffer`.
    pub fn copy_image_to_buffer(
        &self,
        image: &Mem,
        part: &ImageRegion,
        buffer: &Mem,
        offset: usize,
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: all handles are valid, and the arrays have three elements.
            unsafe {
                (self.library().clEnqueueCopyImageToBuffer)(
                    self.raw(),
                    image.raw(),
                    buffer.raw(),
                    part.origin.as_ptr(),
                    part.region.as_ptr(),
                    offset,
                    num_waits,
                    waits,
                    event,
                )
            }
        })
    }

    /// `clEnqueueCopyBufferToImage`.
    pub fn copy_buffer_to_image(
        &self,
        buffer: &Mem,
        offset: usize,
        image: &Mem,
        part: &ImageRegion,
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: all handles are valid, and the arrays have three elements.
            unsafe {
                (self.library().clEnqueueCopyBufferToImage)(
                    self.raw(),
                    buffer.raw(),
                    image.raw(),
                    offset,
                    part.origin.as_ptr(),
                    part.region.as_ptr(),
                    num_waits,
                    waits,
                    event,
                )
            }
        })
    }

    /// `clEnqueueFillImage`. The colour is four floats, ints or unsigned ints, as the image's format has it.
    pub fn fill_image(
        &self,
        image: &Mem,
        color: &[u32; 4],
        part: &ImageRegion,
        order: &Order<'_>,
    ) -> ClResult<Option<Event>> {
        let fill = need(self.library().clEnqueueFillImage)?;
        order.enqueue(self.library(), |num_waits, waits, event| {
            // SAFETY: the handles are valid; the colour has the four words that any format reads, and is copied.
            unsafe {
                fill(
                    self.raw(),
                    image.raw(),
                    color.as_ptr().cast(),
                    part.origin.as_ptr(),
                    part.region.as_ptr(),
                    num_waits,
                    waits,
                    event,
                )
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn pixels_travel_through_images() {
        let Some((context, device)) = testing::context() else { return };
        if device.info_number(CL_DEVICE_IMAGE_SUPPORT) != Ok(1) {
            return;
        }
        let queue = context.create_queue(&device, 0).unwrap();
        let format = cl_image_format { image_channel_order: CL_RGBA, image_channel_data_type: CL_UNSIGNED_INT8 };
        let formats = context.supported_image_formats(CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D).unwrap();
        assert!(formats.contains(&format));
        let desc =
            cl_image_desc { image_type: CL_MEM_OBJECT_IMAGE2D, image_width: 2, image_height: 2, ..Default::default() };
        let data: Vec<u8> = (0..16).collect();
        let image = context.create_image(0, &format, &desc, None, Some(&data), &[]).unwrap();
        let width = image.image_info(CL_IMAGE_WIDTH).unwrap();
        assert_eq!(crate::info::number(&width), Some(2));
        let other = context.create_image(0, &format, &desc, None, None, &[]).unwrap();
        let (all, none) = (ImageRegion { origin: [0; 3], region: [2, 2, 1] }, Order::new());
        let pixel = ImageRegion { origin: [1, 1, 0], region: [1, 1, 1] };
        queue.copy_image(&image, &[0; 3], &other, &[0; 3], &all.region, &none).unwrap();
        queue.fill_image(&other, &[7, 7, 7, 7], &pixel, &none).unwrap();
        let out = context.create_buffer(CL_MEM_READ_WRITE, 16, None, &[]).unwrap();
        let mut copied = [0u8; 16];
        queue.copy_image_to_buffer(&other, &all, &out, 0, &none).unwrap();
        let mut expected = data.clone();
        expected[12..].fill(7);
        queue.read_buffer_blocking(&out, 0, &mut copied).unwrap();
        assert_eq!(copied, *expected);
        queue.copy_buffer_to_image(&out, 12, &image, &pixel, &none).unwrap();
        let mut read = [0u8; 16];
        // SAFETY: the whole image has 16 bytes, and the queue is finished before they are used.
        unsafe {
            queue.write_image(&other, &all, data.as_ptr(), 0, 0, &none).unwrap();
            queue.read_image(&image, &all, read.as_mut_ptr(), 0, 0, &none).unwrap();
        }
        queue.finish().unwrap();
        assert_eq!(read, *expected);
    }
}
