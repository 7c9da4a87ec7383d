//! Copies and fills, which happen on the device.

use std::sync::Arc;

use telecl_sys::*;
use telecl_wire::request::{
    CopyBuffer, CopyBufferToImage, CopyImage, CopyImageToBuffer, CopyRect, FillBuffer, FillImage,
};

use super::command::Submission;
use super::event::Event;
use super::memory::{Memory, MemoryKind};
use super::transfer::{box_range, checked_pitches};

/// The boxes of `clEnqueueCopyBufferRect`; pitches of 0 mean "without gaps".
#[derive(Clone, Debug)]
pub(crate) struct RectCopy {
    pub(crate) from_origin: [u64; 3],
    pub(crate) to_origin: [u64; 3],
    pub(crate) region: [u64; 3],
    pub(crate) from_row_pitch: u64,
    pub(crate) from_slice_pitch: u64,
    pub(crate) to_row_pitch: u64,
    pub(crate) to_slice_pitch: u64,
}

/// Where a buffer's bytes really are: the buffer itself or its parent, and the offset in it.
fn storage(memory: &Memory) -> (u64, u64) {
    match &memory.kind {
        MemoryKind::SubBuffer { parent, origin } => (parent.id(), *origin),
        _ => (memory.id(), 0),
    }
}

impl Submission<'_> {
    fn check_copy(&self, from: &Arc<Memory>, to: &Arc<Memory>) -> ClResult<()> {
        self.uses(from)?;
        self.uses(to)?;
        from.check_alignment(&self.queue.device)?;
        to.check_alignment(&self.queue.device)
    }

    /// `clEnqueueCopyBuffer`.
    pub(crate) fn copy_buffer(
        &self,
        from: &Arc<Memory>,
        to: &Arc<Memory>,
        from_offset: u64,
        to_offset: u64,
        size: u64,
    ) -> ClResult<Option<Arc<Event>>> {
        from.as_buffer()?;
        to.as_buffer()?;
        self.check_copy(from, to)?;
        // CL_INVALID_VALUE if src_offset, dst_offset, size, src_offset + size or dst_offset + size
        // require accessing elements outside the buffers.
        let inside = |memory: &Memory, offset: u64| offset.checked_add(size).is_some_and(|end| end <= memory.size);
        if size == 0 || !inside(from, from_offset) || !inside(to, to_offset) {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // CL_MEM_COPY_OVERLAP if src_buffer and dst_buffer are the same buffer or sub-buffer object, or
        // different sub-buffers of the same buffer, and the regions overlap.
        let ((from_store, from_base), (to_store, to_base)) = (storage(from), storage(to));
        let (a, b) = (from_base + from_offset, to_base + to_offset);
        if from_store == to_store && a < b.saturating_add(size) && b < a.saturating_add(size) {
            return Err(ClError(CL_MEM_COPY_OVERLAP));
        }
        self.post(CL_COMMAND_COPY_BUFFER, |command| CopyBuffer {
            command,
            from: from.id(),
            to: to.id(),
            from_offset,
            to_offset,
            size,
        })
    }

    /// `clEnqueueCopyBufferRect`.
    pub(crate) fn copy_rect(
        &self,
        from: &Arc<Memory>,
        to: &Arc<Memory>,
        rect: &RectCopy,
    ) -> ClResult<Option<Arc<Event>>> {
        from.as_buffer()?;
        to.as_buffer()?;
        self.check_copy(from, to)?;
        let invalid = ClError(CL_INVALID_VALUE);
        // CL_INVALID_VALUE if any region array element is 0.
        if rect.region.contains(&0) {
            return Err(invalid);
        }
        let (from_row, from_slice) = checked_pitches(rect.region, rect.from_row_pitch, rect.from_slice_pitch)?;
        let (to_row, to_slice) = checked_pitches(rect.region, rect.to_row_pitch, rect.to_slice_pitch)?;
        // CL_INVALID_VALUE if src_buffer and dst_buffer are the same buffer object and the pitches differ.
        if from.id() == to.id() && (from_row, from_slice) != (to_row, to_slice) {
            return Err(invalid);
        }
        // CL_INVALID_VALUE if a region is out of bounds.
        let from_range = box_range(rect.from_origin, rect.region, from_row, from_slice).ok_or(invalid)?;
        let to_range = box_range(rect.to_origin, rect.region, to_row, to_slice).ok_or(invalid)?;
        if from_range.1 > from.size || to_range.1 > to.size {
            return Err(invalid);
        }
        // CL_MEM_COPY_OVERLAP if they are the same buffer and the regions overlap.
        if from.id() == to.id() && boxes_overlap(rect, from_row, from_slice) {
            return Err(ClError(CL_MEM_COPY_OVERLAP));
        }
        self.post(CL_COMMAND_COPY_BUFFER_RECT, |command| CopyRect {
            command,
            from: from.id(),
            to: to.id(),
            from_origin: rect.from_origin,
            to_origin: rect.to_origin,
            region: rect.region,
            from_row_pitch: from_row,
            from_slice_pitch: from_slice,
            to_row_pitch: to_row,
            to_slice_pitch: to_slice,
        })
    }

    /// `clEnqueueCopyImage`.
    pub(crate) fn copy_image(
        &self,
        from: &Arc<Memory>,
        to: &Arc<Memory>,
        from_origin: [u64; 3],
        to_origin: [u64; 3],
        region: [u64; 3],
    ) -> ClResult<Option<Arc<Event>>> {
        let (source, target) = (from.as_image()?, to.as_image()?);
        self.check_copy(from, to)?;
        // CL_IMAGE_FORMAT_MISMATCH if src_image and dst_image do not use the same image format.
        let format =
            |image: &super::image::Image| (image.format.image_channel_order, image.format.image_channel_data_type);
        if format(source) != format(target) {
            return Err(ClError(CL_IMAGE_FORMAT_MISMATCH));
        }
        source.check_region(from_origin, region)?;
        target.check_region(to_origin, region)?;
        // CL_MEM_COPY_OVERLAP if src_image and dst_image are the same image object and the regions overlap.
        let overlap = |axis: usize| {
            from_origin[axis] < to_origin[axis] + region[axis] && to_origin[axis] < from_origin[axis] + region[axis]
        };
        if from.id() == to.id() && (0..3).all(overlap) {
            return Err(ClError(CL_MEM_COPY_OVERLAP));
        }
        self.post(CL_COMMAND_COPY_IMAGE, |command| CopyImage {
            command,
            from: from.id(),
            to: to.id(),
            from_origin,
            to_origin,
            region,
        })
    }

    /// `clEnqueueCopyImageToBuffer`.
    pub(crate) fn copy_image_to_buffer(
        &self,
        from: &Arc<Memory>,
        to: &Arc<Memory>,
        origin: [u64; 3],
        region: [u64; 3],
        to_offset: u64,
    ) -> ClResult<Option<Arc<Event>>> {
        let image = from.as_image()?;
        to.as_buffer()?;
        self.check_copy(from, to)?;
        image.check_region(origin, region)?;
        check_linear_side(to, to_offset, region, image.element_size)?;
        self.post(CL_COMMAND_COPY_IMAGE_TO_BUFFER, |command| CopyImageToBuffer {
            command,
            from: from.id(),
            to: to.id(),
            origin,
            region,
            to_offset,
        })
    }

    /// `clEnqueueCopyBufferToImage`.
    pub(crate) fn copy_buffer_to_image(
        &self,
        from: &Arc<Memory>,
        to: &Arc<Memory>,
        from_offset: u64,
        origin: [u64; 3],
        region: [u64; 3],
    ) -> ClResult<Option<Arc<Event>>> {
        from.as_buffer()?;
        let image = to.as_image()?;
        self.check_copy(from, to)?;
        image.check_region(origin, region)?;
        check_linear_side(from, from_offset, region, image.element_size)?;
        self.post(CL_COMMAND_COPY_BUFFER_TO_IMAGE, |command| CopyBufferToImage {
            command,
            from: from.id(),
            to: to.id(),
            from_offset,
            origin,
            region,
        })
    }

    /// `clEnqueueFillBuffer`.
    pub(crate) fn fill_buffer(
        &self,
        buffer: &Arc<Memory>,
        pattern: &[u8],
        offset: u64,
        size: u64,
    ) -> ClResult<Option<Arc<Event>>> {
        buffer.as_buffer()?;
        self.uses(buffer)?;
        let invalid = ClError(CL_INVALID_VALUE);
        // CL_INVALID_VALUE if offset or offset + size require accessing elements outside the buffer.
        if offset.checked_add(size).is_none_or(|end| end > buffer.size) {
            return Err(invalid);
        }
        // CL_INVALID_VALUE if pattern is NULL or if pattern_size is 0 or if pattern_size is not one of
        // {1, 2, 4, 8, 16, 32, 64, 128}.
        let pattern_size = pattern.len() as u64;
        if !matches!(pattern_size, 1 | 2 | 4 | 8 | 16 | 32 | 64 | 128) {
            return Err(invalid);
        }
        // CL_INVALID_VALUE if offset and size are not a multiple of pattern_size.
        if !offset.is_multiple_of(pattern_size) || !size.is_multiple_of(pattern_size) {
            return Err(invalid);
        }
        buffer.check_alignment(&self.queue.device)?;
        self.post(CL_COMMAND_FILL_BUFFER, |command| FillBuffer { command, buffer: buffer.id(), pattern, offset, size })
    }

    /// `clEnqueueFillImage`.
    pub(crate) fn fill_image(
        &self,
        memory: &Arc<Memory>,
        color: [u8; 16],
        origin: [u64; 3],
        region: [u64; 3],
    ) -> ClResult<Option<Arc<Event>>> {
        let image = memory.as_image()?;
        self.uses(memory)?;
        image.check_region(origin, region)?;
        self.post(CL_COMMAND_FILL_IMAGE, |command| FillImage { command, image: memory.id(), color, origin, region })
    }
}

/// CL_INVALID_VALUE if the region in the buffer is out of bounds.
fn check_linear_side(buffer: &Memory, offset: u64, region: [u64; 3], element: u64) -> ClResult<()> {
    let bytes = region.iter().try_fold(element, |bytes, &n| bytes.checked_mul(n));
    match bytes.and_then(|bytes| offset.checked_add(bytes)) {
        Some(end) if end <= buffer.size => Ok(()),
        _ => Err(ClError(CL_INVALID_VALUE)),
    }
}

/// Whether two boxes of one buffer share a byte, by the test of the specification (appendix E).
fn boxes_overlap(rect: &RectCopy, row: u64, slice: u64) -> bool {
    let (from, to, region) = (rect.from_origin, rect.to_origin, rect.region);
    let slice_len = (region[1] - 1) * row + region[0];
    let box_len = (region[2] - 1) * slice + slice_len;
    let start = |origin: [u64; 3]| origin[2] * slice + origin[1] * row + origin[0];
    // One ends before the other starts.
    if start(to) + box_len <= start(from) || start(from) + box_len <= start(to) {
        return false;
    }
    // Or one lies in the gaps that the other leaves, between rows or between slices.
    let fits_gap = |a: u64, b: u64, len: u64, pitch: u64| a >= b + len && a + len <= b + pitch;
    let apart = |a: u64, b: u64, len: u64, pitch: u64| fits_gap(a, b, len, pitch) || fits_gap(b, a, len, pitch);
    let within_slice = |origin: [u64; 3]| (origin[1] * row + origin[0]) % slice;
    !apart(from[0] % row, to[0] % row, region[0], row) && !apart(within_slice(from), within_slice(to), slice_len, slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(from_origin: [u64; 3], to_origin: [u64; 3], region: [u64; 3]) -> RectCopy {
        let (from_row_pitch, from_slice_pitch, to_row_pitch, to_slice_pitch) = (8, 32, 8, 32);
        RectCopy { from_origin, to_origin, region, from_row_pitch, from_slice_pitch, to_row_pitch, to_slice_pitch }
    }

    #[test]
    fn boxes_overlap_exactly_where_they_share_a_byte() {
        let bytes = |origin: [u64; 3], region: [u64; 3]| -> Vec<u64> {
            let mut all = Vec::new();
            for z in 0..region[2] {
                for y in 0..region[1] {
                    all.extend((0..region[0]).map(|x| (origin[2] + z) * 32 + (origin[1] + y) * 8 + origin[0] + x));
                }
            }
            all
        };
        let region = [3, 2, 2];
        for to in (0..3).flat_map(|z| (0..4).flat_map(move |y| (0..6).map(move |x| [x, y, z]))) {
            let from = [2, 1, 1];
            let shared = bytes(from, region).iter().any(|byte| bytes(to, region).contains(byte));
            assert_eq!(boxes_overlap(&copy(from, to, region), 8, 32), shared, "to {to:?}");
        }
    }
}
