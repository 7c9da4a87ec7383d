//! Images of every kind.

use std::sync::Arc;

use telecl_sys::*;
use telecl_wire::region::Region;
use telecl_wire::reply::Format;
use telecl_wire::request::{CreateImage, ImageDesc, Kind};
use telecl_wire::{Ids, WireId};

use super::buffer::check_properties;
use super::context::Context;
use super::info::{InfoValue, value};
use super::memory::{
    DEVICE_ACCESS, HOST_POINTER_FLAGS, Memory, MemoryKind, Provision, check_flags, check_host_pointer, inherited_flags,
    with_default_access,
};
use crate::host::{HostBox, HostPointer};

/// `cl_image_desc` without its memory object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ImageShape {
    pub(crate) kind: cl_mem_object_type,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    pub(crate) array_size: u64,
    pub(crate) row_pitch: u64,
    pub(crate) slice_pitch: u64,
    pub(crate) mip_levels: u32,
    pub(crate) samples: u32,
}

/// What `clCreateImage` is asked for.
#[derive(Debug)]
pub(crate) struct ImageRequest {
    pub(crate) flags: cl_mem_flags,
    pub(crate) format: Option<cl_image_format>,
    pub(crate) shape: Option<ImageShape>,
    pub(crate) parent: Option<Arc<Memory>>,
    /// Valid for the whole image with its pitches, and with USE_HOST_PTR as long as the image lives.
    pub(crate) host: Option<HostPointer>,
    /// With the final zero.
    pub(crate) properties: Option<Vec<u64>>,
}

/// What makes a memory object an image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) format: cl_image_format,
    pub(crate) shape: ImageShape,
    pub(crate) element_size: u64,
    /// Of the image in local memory, as CL_IMAGE_ROW_PITCH and CL_IMAGE_SLICE_PITCH report them.
    pub(crate) row_pitch: u64,
    pub(crate) slice_pitch: u64,
    /// The buffer or image it was made from.
    pub(crate) parent: Option<Arc<Memory>>,
}

impl ImageShape {
    /// As the device is asked for it: the pitches are those of the program's memory.
    fn desc(&self) -> cl_image_desc {
        cl_image_desc {
            image_type: self.kind,
            image_width: self.width as usize,
            image_height: self.height as usize,
            image_depth: self.depth as usize,
            image_array_size: self.array_size as usize,
            ..cl_image_desc::default()
        }
    }

    /// Width, height and depth as transfers see them: array layers count along the last axis.
    pub(crate) fn extent(&self) -> [u64; 3] {
        match self.kind {
            CL_MEM_OBJECT_IMAGE1D_ARRAY => [self.width, self.array_size, 1],
            CL_MEM_OBJECT_IMAGE2D => [self.width, self.height, 1],
            CL_MEM_OBJECT_IMAGE2D_ARRAY => [self.width, self.height, self.array_size],
            CL_MEM_OBJECT_IMAGE3D => [self.width, self.height, self.depth],
            _ => [self.width, 1, 1],
        }
    }

    /// CL_INVALID_IMAGE_SIZE if image dimensions exceed the maximum image dimensions for all devices;
    /// CL_INVALID_IMAGE_DESCRIPTOR if the values are not valid.
    fn check(&self, context: &Context) -> ClResult<()> {
        if self.mip_levels != 0 || self.samples != 0 {
            return Err(ClError(CL_INVALID_IMAGE_DESCRIPTOR));
        }
        let limit = |of: fn(&super::device::Limits) -> u64| context.most(|device| of(&device.limits));
        let in_range = |value: u64, most: u64| if value > most { Err(ClError(CL_INVALID_IMAGE_SIZE)) } else { Ok(()) };
        let given = |value: u64| if value == 0 { Err(ClError(CL_INVALID_IMAGE_DESCRIPTOR)) } else { Ok(()) };
        given(self.width)?;
        match self.kind {
            CL_MEM_OBJECT_IMAGE1D => in_range(self.width, limit(|l| l.image2d[0])),
            CL_MEM_OBJECT_IMAGE1D_BUFFER => in_range(self.width, limit(|l| l.image_buffer)),
            CL_MEM_OBJECT_IMAGE1D_ARRAY => {
                given(self.array_size)?;
                in_range(self.width, limit(|l| l.image2d[0]))?;
                in_range(self.array_size, limit(|l| l.image_array))
            }
            CL_MEM_OBJECT_IMAGE2D => {
                given(self.height)?;
                in_range(self.width, limit(|l| l.image2d[0]))?;
                in_range(self.height, limit(|l| l.image2d[1]))
            }
            CL_MEM_OBJECT_IMAGE2D_ARRAY => {
                given(self.height)?;
                given(self.array_size)?;
                in_range(self.width, limit(|l| l.image2d[0]))?;
                in_range(self.height, limit(|l| l.image2d[1]))?;
                in_range(self.array_size, limit(|l| l.image_array))
            }
            CL_MEM_OBJECT_IMAGE3D => {
                given(self.height)?;
                given(self.depth)?;
                in_range(self.width, limit(|l| l.image3d[0]))?;
                in_range(self.height, limit(|l| l.image3d[1]))?;
                in_range(self.depth, limit(|l| l.image3d[2]))
            }
            _ => Err(ClError(CL_INVALID_IMAGE_DESCRIPTOR)),
        }
    }

    /// Pitches of the image in host memory, with zeros filled in.
    fn pitches(&self, element: u64, host: bool, from_memory: bool) -> ClResult<(u64, u64)> {
        let invalid = ClError(CL_INVALID_IMAGE_DESCRIPTOR);
        // image_row_pitch and image_slice_pitch must be 0 if host_ptr is NULL.
        if !host && !from_memory && (self.row_pitch != 0 || self.slice_pitch != 0) {
            return Err(invalid);
        }
        let tight_row = self.width.checked_mul(element).ok_or(invalid)?;
        let row = if self.row_pitch == 0 { tight_row } else { self.row_pitch };
        // If image_row_pitch is not 0 it must be a multiple of the image element size in bytes, and at
        // least image_width × size of element in bytes.
        if row < tight_row || row % element != 0 {
            return Err(invalid);
        }
        let rows = match self.kind {
            CL_MEM_OBJECT_IMAGE1D_ARRAY => 1,
            CL_MEM_OBJECT_IMAGE2D_ARRAY | CL_MEM_OBJECT_IMAGE3D => self.height,
            _ => return Ok((row, 0)),
        };
        let tight_slice = row.checked_mul(rows).ok_or(invalid)?;
        let slice = if self.slice_pitch == 0 { tight_slice } else { self.slice_pitch };
        if slice < tight_slice || slice % row != 0 {
            return Err(invalid);
        }
        Ok((row, slice))
    }
}

impl Image {
    /// Distance in local memory of neighbours along the second and third axis of [`ImageShape::extent`].
    pub(super) fn box_pitches(&self) -> (u64, u64) {
        self.box_pitches_of(self.row_pitch, self.slice_pitch)
    }

    fn box_pitches_of(&self, row: u64, slice: u64) -> (u64, u64) {
        match self.shape.kind {
            // The second axis counts layers.
            CL_MEM_OBJECT_IMAGE1D_ARRAY => (slice, slice.saturating_mul(self.shape.array_size)),
            CL_MEM_OBJECT_IMAGE2D_ARRAY | CL_MEM_OBJECT_IMAGE3D => (row, slice),
            _ => (row, row.saturating_mul(self.shape.extent()[1])),
        }
    }

    /// Bytes that the whole image takes in local memory.
    pub(super) fn mapped_size(&self) -> u64 {
        let (_, slice) = self.box_pitches();
        slice.saturating_mul(self.shape.extent()[2])
    }

    /// CL_INVALID_VALUE if the region specified by origin and region is out of bounds, or if values in
    /// origin and region do not follow rules for the image type.
    pub(super) fn check_region(&self, origin: [u64; 3], region: [u64; 3]) -> ClResult<()> {
        let inside = Region::whole(self.shape.extent()).contains(&Region { origin, size: region });
        if inside && !region.contains(&0) { Ok(()) } else { Err(ClError(CL_INVALID_VALUE)) }
    }

    /// Distances in the program's memory along the second and third axis, from the pitches of a call.
    /// CL_INVALID_VALUE if a pitch is not 0 and less than what it separates.
    pub(super) fn host_pitches(&self, region: [u64; 3], row_pitch: u64, slice_pitch: u64) -> ClResult<(u64, u64)> {
        let invalid = ClError(CL_INVALID_VALUE);
        let tight_row = region[0] * self.element_size;
        let row = if row_pitch == 0 { tight_row } else { row_pitch };
        if row < tight_row {
            return Err(invalid);
        }
        let rows = if self.shape.kind == CL_MEM_OBJECT_IMAGE1D_ARRAY { 1 } else { region[1] };
        let tight_slice = row.checked_mul(rows).ok_or(invalid)?;
        // slice_pitch must be 0 if image is a 1D or 2D image.
        if slice_pitch != 0
            && matches!(self.shape.kind, CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_BUFFER | CL_MEM_OBJECT_IMAGE2D)
        {
            return Err(invalid);
        }
        let slice = if slice_pitch == 0 { tight_slice } else { slice_pitch };
        if slice < tight_slice {
            return Err(invalid);
        }
        Ok(if self.shape.kind == CL_MEM_OBJECT_IMAGE1D_ARRAY {
            (slice, slice.saturating_mul(region[1]))
        } else {
            (row, slice)
        })
    }

    /// `clGetImageInfo`.
    pub(crate) fn info(&self, param: cl_image_info) -> ClResult<InfoValue<'_>> {
        let size = |value: u64| value as usize;
        let shape = &self.shape;
        let is = |kinds: &[u32]| kinds.contains(&shape.kind);
        let with_height = is(&[CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D]);
        let arrays = is(&[CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE2D_ARRAY]);
        Ok(match param {
            CL_IMAGE_FORMAT => value([self.format.image_channel_order, self.format.image_channel_data_type].as_slice()),
            CL_IMAGE_ELEMENT_SIZE => value(size(self.element_size)),
            CL_IMAGE_ROW_PITCH => value(size(self.row_pitch)),
            CL_IMAGE_SLICE_PITCH => value(size(self.slice_pitch)),
            CL_IMAGE_WIDTH => value(size(shape.width)),
            CL_IMAGE_HEIGHT => value(if with_height { size(shape.height) } else { 0 }),
            CL_IMAGE_DEPTH => value(if is(&[CL_MEM_OBJECT_IMAGE3D]) { size(shape.depth) } else { 0 }),
            CL_IMAGE_ARRAY_SIZE => value(if arrays { size(shape.array_size) } else { 0 }),
            CL_IMAGE_BUFFER => value(self.parent.as_ref().map_or(0, |parent| parent.address())),
            CL_IMAGE_NUM_MIP_LEVELS => value(shape.mip_levels),
            CL_IMAGE_NUM_SAMPLES => value(shape.samples),
            _ => return Err(ClError(CL_INVALID_VALUE)),
        })
    }
}

impl Memory {
    /// `clCreateImage`, `…WithProperties`, `clCreateImage2D` and `clCreateImage3D`.
    pub(crate) fn image(context: &Arc<Context>, request: ImageRequest) -> ClResult<Arc<Memory>> {
        let ImageRequest { flags, format, shape, parent, host, properties } = request;
        check_properties(properties.as_deref())?;
        check_flags(flags)?;
        // CL_INVALID_IMAGE_FORMAT_DESCRIPTOR if values specified in image_format are not valid or NULL.
        let format = format.ok_or(ClError(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR))?;
        let element = pixel_size(&format).ok_or(ClError(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR))?;
        // CL_INVALID_IMAGE_DESCRIPTOR if values specified in image_desc are not valid or NULL.
        let shape = shape.ok_or(ClError(CL_INVALID_IMAGE_DESCRIPTOR))?;
        // CL_INVALID_OPERATION if there are no devices in context that support images.
        if !context.has_images() {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        shape.check(context)?;
        let takes_memory = matches!(shape.kind, CL_MEM_OBJECT_IMAGE1D_BUFFER | CL_MEM_OBJECT_IMAGE2D);
        if parent.is_some() != (shape.kind == CL_MEM_OBJECT_IMAGE1D_BUFFER) && !(takes_memory && parent.is_some()) {
            return Err(ClError(CL_INVALID_IMAGE_DESCRIPTOR));
        }
        // CL_INVALID_OPERATION if no devices in context support creating a 2D image from a buffer.
        if shape.kind == CL_MEM_OBJECT_IMAGE2D
            && parent.as_ref().is_some_and(|parent| parent.as_buffer().is_ok())
            && !context.devices.iter().any(|device| device.limits.image_from_buffer)
        {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        let flags = match &parent {
            Some(parent) => inherited_flags(parent.flags, flags)?,
            None => {
                check_host_pointer(flags, host)?;
                with_default_access(flags)
            }
        };
        let (row_pitch, slice_pitch) = shape.pitches(element, host.is_some(), parent.is_some())?;
        let image = Image { format, shape, element_size: element, row_pitch, slice_pitch, parent };
        if let Some(parent) = &image.parent {
            // CL_INVALID_IMAGE_DESCRIPTOR if the image does not fit the buffer.
            if parent.as_buffer().is_ok() && image.mapped_size() > parent.size {
                return Err(ClError(CL_INVALID_IMAGE_DESCRIPTOR));
            }
        }
        // CL_IMAGE_FORMAT_NOT_SUPPORTED if there are no devices in context that support image_format. How the host
        // gets at the image has no say in that, and NVIDIA's driver (580) refuses the question.
        let supported = context.image_formats(flags & DEVICE_ACCESS, shape.kind)?;
        let same = |f: &cl_image_format| {
            f.image_channel_order == format.image_channel_order
                && f.image_channel_data_type == format.image_channel_data_type
        };
        if !supported.iter().any(same) {
            return Err(ClError(CL_IMAGE_FORMAT_NOT_SUPPORTED));
        }
        Memory::post_image(context, image, flags, host, properties)
    }

    fn post_image(
        context: &Arc<Context>,
        image: Image,
        flags: cl_mem_flags,
        host: Option<HostPointer>,
        properties: Option<Vec<u64>>,
    ) -> ClResult<Arc<Memory>> {
        let extent = image.shape.extent();
        let shape = image.shape;
        let from_memory = image.parent.is_some();
        // Counted by its pixels; what is made of other memory takes none.
        let charge = match image_size(&image.format, &shape.desc()) {
            _ if from_memory => None,
            Some(bytes) => Some(context.take_memory(bytes)?),
            None => return Err(ClError(CL_INVALID_IMAGE_SIZE)),
        };
        let (row, slice) = image.box_pitches();
        let content = host.map(|start| {
            // SAFETY: the program's `host_ptr` holds the whole image, says `ImageRequest::host`.
            unsafe { HostBox::new(start, extent, image.element_size, row, slice, None) }
        });
        let create = |id, staged| CreateImage {
            id,
            context: context.id(),
            flags: flags & !HOST_POINTER_FLAGS,
            format: Format { order: image.format.image_channel_order, data_type: image.format.image_channel_data_type },
            desc: ImageDesc {
                kind: shape.kind,
                width: shape.width,
                height: shape.height,
                depth: shape.depth,
                array_size: shape.array_size,
                // Initial content travels without gaps; only an image of a buffer has the program's pitch.
                row_pitch: if from_memory { shape.row_pitch } else { 0 },
                slice_pitch: 0,
                mip_levels: 0,
                samples: 0,
                parent: image.parent.as_ref().map_or(0, |parent| parent.id()),
            },
            staged,
            properties: Ids(&[] as &[WireId]),
        };
        let session = &context.session;
        let mut scratch = Vec::new();
        let bytes = content.as_ref().map_or(&[][..], |content| content.packed(&Region::whole(extent), &mut scratch));
        let (staged, payload) = session.stage(bytes)?;
        let id = session.next_id();
        session.post(&create(id, staged), payload)?;
        let size = if matches!(shape.kind, CL_MEM_OBJECT_IMAGE1D_BUFFER) {
            shape.width * image.element_size
        } else {
            image.mapped_size()
        };
        let provision = Provision { flags, size, host, properties, charge };
        let memory = Memory::with_id(context, id, MemoryKind::Image(image), provision);
        if from_memory {
            context.check(Kind::Memory, id)?;
        } else {
            context.check_memory(id)?;
        }
        Ok(memory)
    }
}
