//! Buffers, images and pipes.

use std::cell::Ref;
use std::rc::Rc;

use telecl_opencl::{ClError, ClResult, ImageRegion, Mem, info};
use telecl_sys::*;
use telecl_wire::Ids;
use telecl_wire::request::{CreateBuffer, CreateImage, CreatePipe, CreateSubBuffer, Message};

use super::backing::{Backing, Recipe};
use super::clear::{clear_buffer, clear_image};
use super::command::image_region;
use super::session::Session;

/// Flags that the vendor does not see. What they mean is the driver's part: the first three speak of the
/// program's memory, which is not here. With the last the vendor would refuse the reads that bring a map
/// for writing the bytes that the program leaves as they are.
const DRIVER_FLAGS: u64 = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR | CL_MEM_HOST_WRITE_ONLY;

/// A buffer's address seen by devices, of cl_ext_buffer_device_address.
const DEVICE_PRIVATE_ADDRESS: u64 = 0x5000;

/// Flags that would keep the worker from its objects' content, if it has to move them. The driver sees to it that the
/// program keeps to them.
const HOST_ACCESS: u64 = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;

#[derive(Debug)]
pub(crate) struct MemoryEntry {
    /// Kernels that have it as an argument hold weak references, so that they can tell when it is gone.
    pub(super) backing: Rc<Backing>,
    /// The context it belongs to, which is told if something goes wrong with it.
    pub(super) context: u64,
    /// Of a buffer: its length. Of an image: the bytes of a pixel, and how many there are along each axis.
    pub(super) shape: Shape,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Buffer { size: u64 },
    Image { element: usize, extent: [u64; 3] },
    Pipe,
}

impl MemoryEntry {
    /// The vendor's object, as long as the session is not moved out.
    pub(super) fn mem(&self) -> ClResult<Ref<'_, Mem>> {
        self.backing.mem()
    }
}

impl Session {
    pub(super) fn create_buffer(&mut self, request: &CreateBuffer<'_>, content: Option<&[u8]>) {
        let made = self.make_buffer(request, content);
        self.link.created(CreateBuffer::OPCODE, "CreateBuffer", request.context, request.id, &made);
        self.memory.insert(request.id, made);
    }

    fn make_buffer(&mut self, request: &CreateBuffer<'_>, content: Option<&[u8]>) -> ClResult<MemoryEntry> {
        let size = usize::try_from(request.size).map_err(|_| ClError(CL_INVALID_BUFFER_SIZE))?;
        if content.is_some_and(|content| content.len() != size) {
            return Err(ClError(CL_INVALID_HOST_PTR));
        }
        let properties = memory_properties(request.properties)?;
        let held = self.take_memory(request.context, request.size)?;
        let flags = self.vendor_flags(request.flags);
        let mem = self.make_cleared(
            request.context,
            (content, size),
            |context, content| context.create_buffer(flags, size, content, &properties),
            |queue, mem| clear_buffer(queue, mem, size),
        )?;
        let recipe = if properties.is_empty() { Recipe::Buffer { flags, size } } else { Recipe::Unique };
        let backing = Backing::new(mem, recipe, &self.contexts.get(request.context)?.home, held);
        Ok(self.entry(backing, request.context, Shape::Buffer { size: request.size }))
    }

    pub(super) fn create_sub_buffer(&mut self, request: &CreateSubBuffer) {
        let made = self.make_sub_buffer(request);
        let context = self.memory.get(request.parent).map_or(0, |parent| parent.context);
        self.link.created(CreateSubBuffer::OPCODE, "CreateSubBuffer", context, request.id, &made);
        self.memory.insert(request.id, made);
    }

    fn make_sub_buffer(&mut self, request: &CreateSubBuffer) -> ClResult<MemoryEntry> {
        self.be_resident()?;
        let entry = self.memory.get(request.parent)?;
        let (parent, parent_size) = self.buffer(request.parent)?;
        // CL_INVALID_VALUE if the region specified by (origin, size) is out of bounds in buffer.
        within(request.origin, request.size, parent_size)?;
        let (origin, size) = (to_usize(request.origin)?, to_usize(request.size)?);
        let flags = self.vendor_flags(request.flags);
        let mem = parent.create_sub_buffer(flags, origin, size)?;
        let (home, context) = (entry.backing.home(), entry.context);
        let backing = Backing::of(&entry.backing, mem, Recipe::SubBuffer { flags, origin, size }, home);
        drop(parent);
        Ok(self.entry(backing, context, Shape::Buffer { size: request.size }))
    }

    pub(super) fn create_image(&mut self, request: &CreateImage<'_>, content: Option<&[u8]>) {
        let made = self.make_image(request, content);
        self.link.created(CreateImage::OPCODE, "CreateImage", request.context, request.id, &made);
        self.memory.insert(request.id, made);
    }

    fn make_image(&mut self, request: &CreateImage<'_>, content: Option<&[u8]>) -> ClResult<MemoryEntry> {
        let wire = &request.desc;
        let format = cl_image_format {
            image_channel_order: request.format.order,
            image_channel_data_type: request.format.data_type,
        };
        let mut desc = cl_image_desc {
            image_type: wire.kind,
            image_width: to_usize(wire.width)?,
            image_height: to_usize(wire.height)?,
            image_depth: to_usize(wire.depth)?,
            image_array_size: to_usize(wire.array_size)?,
            image_row_pitch: to_usize(wire.row_pitch)?,
            image_slice_pitch: to_usize(wire.slice_pitch)?,
            num_mip_levels: wire.mip_levels,
            num_samples: wire.samples,
            ..cl_image_desc::default()
        };
        if content.is_some() {
            // Packed, whatever pitches the program's memory had.
            (desc.image_row_pitch, desc.image_slice_pitch) = (0, 0);
        }
        let flags = self.vendor_flags(request.flags);
        let properties = memory_properties(request.properties)?;
        if wire.parent != 0 {
            self.be_resident()?;
            let parent = self.memory.get(wire.parent)?;
            let home = &self.contexts.get(request.context)?.home;
            let mem = home.context.create_image(flags, &format, &desc, Some(&*parent.mem()?), content, &properties)?;
            let (shape, _) = image_shape(&mem, extent_of(&mem, &desc)?)?;
            let recipe = if properties.is_empty() { Recipe::ImageOf { flags, format, desc } } else { Recipe::Unique };
            let backing = Backing::of(&parent.backing, mem, recipe, home);
            return Ok(self.entry(backing, request.context, shape));
        }
        // What cannot be counted is not made.
        let size = image_size(&format, &desc).ok_or(ClError(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR))?;
        let extent = image_extent(&desc).ok_or(ClError(CL_INVALID_IMAGE_DESCRIPTOR))?;
        let held = self.take_memory(request.context, size)?;
        let mem = self.make_cleared(
            request.context,
            (content, to_usize(size)?),
            |context, content| context.create_image(flags, &format, &desc, None, content, &properties),
            |queue, mem| clear_image(queue, mem, extent),
        )?;
        let (shape, element) = image_shape(&mem, limits_of(&desc, extent))?;
        let recipe = match properties.is_empty() {
            true => Recipe::Image { flags, format, desc, extent, element },
            false => Recipe::Unique,
        };
        let backing = Backing::new(mem, recipe, &self.contexts.get(request.context)?.home, held);
        Ok(self.entry(backing, request.context, shape))
    }

    pub(super) fn create_pipe(&mut self, request: &CreatePipe) {
        let made = self.make_pipe(request);
        self.link.created(CreatePipe::OPCODE, "CreatePipe", request.context, request.id, &made);
        self.memory.insert(request.id, made);
    }

    /// Of a pipe kernels read only what kernels have written.
    fn make_pipe(&mut self, request: &CreatePipe) -> ClResult<MemoryEntry> {
        let size = u64::from(request.packet_size) * u64::from(request.max_packets);
        let held = self.take_memory(request.context, size)?;
        let (home, flags) = (&self.contexts.get(request.context)?.home, request.flags & !DRIVER_FLAGS);
        let mem = home.context.create_pipe(flags, request.packet_size, request.max_packets)?;
        let backing = Backing::new(mem, Recipe::Unique, home, held);
        Ok(self.entry(backing, request.context, Shape::Pipe))
    }

    fn vendor_flags(&self, flags: u64) -> u64 {
        flags & !DRIVER_FLAGS & !(if self.account.moves() { HOST_ACCESS } else { 0 })
    }

    fn entry(&mut self, backing: Rc<Backing>, context: u64, shape: Shape) -> MemoryEntry {
        if self.account.moves() {
            self.backings.add(&backing);
        }
        MemoryEntry { backing, context, shape }
    }

    /// A buffer and its length; an image is not one.
    pub(super) fn buffer(&self, id: u64) -> ClResult<(Ref<'_, Mem>, u64)> {
        let size = self.buffer_size(id)?;
        Ok((self.memory.get(id)?.mem()?, size))
    }

    /// An image, a part of it, and the bytes of its pixels.
    pub(super) fn image_part(
        &self,
        id: u64,
        origin: [u64; 3],
        region: [u64; 3],
    ) -> ClResult<(Ref<'_, Mem>, ImageRegion, usize)> {
        let (part, element) = self.check_image_part(id, origin, region)?;
        Ok((self.memory.get(id)?.mem()?, part, element))
    }

    /// As [`Session::buffer`], also while the session is moved out.
    pub(super) fn buffer_size(&self, id: u64) -> ClResult<u64> {
        match self.memory.get(id)?.shape {
            Shape::Buffer { size } => Ok(size),
            Shape::Image { .. } | Shape::Pipe => Err(ClError(CL_INVALID_MEM_OBJECT)),
        }
    }

    /// As [`Session::image_part`], also while the session is moved out.
    pub(super) fn check_image_part(
        &self,
        id: u64,
        origin: [u64; 3],
        region: [u64; 3],
    ) -> ClResult<(ImageRegion, usize)> {
        let Shape::Image { element, extent } = self.memory.get(id)?.shape else {
            return Err(ClError(CL_INVALID_MEM_OBJECT));
        };
        let part = image_region(origin, region)?;
        // CL_INVALID_VALUE if the region specified by origin and region is out of bounds.
        for axis in 0..3 {
            within(origin[axis], region[axis], extent[axis])?;
        }
        Ok((part, element))
    }
}

/// How large an image is that was made of another object: the vendor knows what the description leaves open.
fn extent_of(mem: &Mem, desc: &cl_image_desc) -> ClResult<[u64; 3]> {
    let number = |param| {
        let value = mem.image_info(param).ok().and_then(|bytes| info::number(&bytes));
        value.and_then(|value| usize::try_from(value).ok()).ok_or(ClError(CL_INVALID_IMAGE_DESCRIPTOR))
    };
    let made = cl_image_desc {
        image_width: number(CL_IMAGE_WIDTH)?,
        image_height: number(CL_IMAGE_HEIGHT)?,
        image_depth: number(CL_IMAGE_DEPTH)?,
        image_array_size: number(CL_IMAGE_ARRAY_SIZE)?,
        ..*desc
    };
    let extent = image_extent(&made).ok_or(ClError(CL_INVALID_IMAGE_DESCRIPTOR))?;
    Ok(limits_of(desc, extent))
}

/// How far a part may go. With mip levels one of the axes says which, and what is on it only the vendor knows.
fn limits_of(desc: &cl_image_desc, extent: [usize; 3]) -> [u64; 3] {
    if desc.num_mip_levels > 1 { [u64::MAX; 3] } else { extent.map(|side| side as u64) }
}

/// With the bytes of a pixel.
fn image_shape(mem: &Mem, extent: [u64; 3]) -> ClResult<(Shape, usize)> {
    let element = mem.image_info(CL_IMAGE_ELEMENT_SIZE).ok().and_then(|bytes| info::number(&bytes));
    let element = element.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
    // Without it no transfer could be checked.
    let element = element.ok_or(ClError(CL_IMAGE_FORMAT_NOT_SUPPORTED))?;
    Ok((Shape::Image { element, extent }, element))
}

/// Properties that may go to the vendor. Most others import memory by a handle of this process.
fn memory_properties(properties: Ids<'_>) -> ClResult<Vec<u64>> {
    let properties: Vec<u64> = properties.iter().take_while(|&name| name != 0).collect();
    if properties.chunks(2).all(|pair| pair.len() == 2 && pair[0] == DEVICE_PRIVATE_ADDRESS) {
        Ok(properties)
    } else {
        Err(ClError(CL_INVALID_PROPERTY))
    }
}

/// Whether `size` bytes from `offset` lie within `all`.
pub(crate) fn within(offset: u64, size: u64, all: u64) -> ClResult<()> {
    match offset.checked_add(size) {
        Some(end) if end <= all => Ok(()),
        _ => Err(ClError(CL_INVALID_VALUE)),
    }
}

pub(crate) fn to_usize(value: u64) -> ClResult<usize> {
    usize::try_from(value).map_err(|_| ClError(CL_INVALID_VALUE))
}

pub(crate) fn to_usizes(values: [u64; 3]) -> ClResult<[usize; 3]> {
    Ok([to_usize(values[0])?, to_usize(values[1])?, to_usize(values[2])?])
}

#[cfg(test)]
mod tests {
    use telecl_wire::WireId;

    use super::*;

    #[test]
    fn ranges_that_overflow_are_outside() {
        assert_eq!(within(4, 4, 8), Ok(()));
        assert_eq!(within(5, 4, 8), Err(ClError(CL_INVALID_VALUE)));
        assert_eq!(within(u64::MAX, 2, 8), Err(ClError(CL_INVALID_VALUE)));
    }

    #[test]
    fn no_property_brings_in_foreign_memory() {
        let list = |values: &[u64]| values.iter().map(|&value| WireId::new(value)).collect::<Vec<_>>();
        assert_eq!(memory_properties(Ids(&list(&[]))), Ok(vec![]));
        assert_eq!(memory_properties(Ids(&list(&[0x5000, 1, 0]))), Ok(vec![0x5000, 1]));
        // CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR and a descriptor.
        assert_eq!(memory_properties(Ids(&list(&[0x2060, 3]))), Err(ClError(CL_INVALID_PROPERTY)));
        assert_eq!(memory_properties(Ids(&list(&[0x5000]))), Err(ClError(CL_INVALID_PROPERTY)));
    }
}
