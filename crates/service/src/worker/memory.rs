//! Buffers, images and pipes.

use std::sync::Arc;

use telecl_opencl::{ClError, ClResult, Mem, info};
use telecl_sys::*;
use telecl_wire::Ids;
use telecl_wire::request::{CreateBuffer, CreateImage, CreatePipe, CreateSubBuffer, Message};

use super::account::Held;
use super::clear::{clear_buffer, clear_image};
use super::session::Session;

/// Flags that the vendor does not see. What they mean is the driver's part: the first three speak of the
/// program's memory, which is not here. With the last the vendor would refuse the reads that bring a map
/// for writing the bytes that the program leaves as they are.
const DRIVER_FLAGS: u64 = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR | CL_MEM_HOST_WRITE_ONLY;

/// A buffer's address seen by devices, of cl_ext_buffer_device_address.
const DEVICE_PRIVATE_ADDRESS: u64 = 0x5000;

#[derive(Debug)]
pub(crate) struct MemoryEntry {
    /// Kernels that have it as an argument hold weak references, so that they can tell when it is gone.
    pub(super) mem: Arc<Mem>,
    /// The context it belongs to, which is told if something goes wrong with it.
    pub(super) context: u64,
    /// Of a buffer: its length. Of an image: the bytes of a pixel.
    pub(super) shape: Shape,
    /// What it takes of the devices' memory; what is made of another object keeps that one's. After the object, so that
    /// it is given back after it.
    held: Arc<Held>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Buffer { size: u64 },
    Image { element: usize },
    Pipe,
}

impl MemoryEntry {
    /// Of new memory.
    fn new(mem: Mem, context: u64, shape: Shape, held: Held) -> MemoryEntry {
        held.stays_with(&mem);
        MemoryEntry { mem: Arc::new(mem), context, shape, held: Arc::new(held) }
    }

    /// Made of another object.
    fn of(parent: &MemoryEntry, mem: Mem, context: u64, shape: Shape) -> MemoryEntry {
        MemoryEntry { mem: Arc::new(mem), context, shape, held: Arc::clone(&parent.held) }
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
        let flags = request.flags & !DRIVER_FLAGS;
        let mem = self.make_cleared(
            request.context,
            (content, size),
            |context, content| context.create_buffer(flags, size, content, &properties),
            |queue, mem| clear_buffer(queue, mem, size),
        )?;
        Ok(MemoryEntry::new(mem, request.context, Shape::Buffer { size: request.size }, held))
    }

    pub(super) fn create_sub_buffer(&mut self, request: &CreateSubBuffer) {
        let made = self.make_sub_buffer(request);
        let context = self.memory.get(request.parent).map_or(0, |parent| parent.context);
        self.link.created(CreateSubBuffer::OPCODE, "CreateSubBuffer", context, request.id, &made);
        self.memory.insert(request.id, made);
    }

    fn make_sub_buffer(&self, request: &CreateSubBuffer) -> ClResult<MemoryEntry> {
        let entry = self.memory.get(request.parent)?;
        let (parent, parent_size) = self.buffer(request.parent)?;
        // CL_INVALID_VALUE if the region specified by (origin, size) is out of bounds in buffer.
        within(request.origin, request.size, parent_size)?;
        let (origin, size) = (to_usize(request.origin)?, to_usize(request.size)?);
        let mem = parent.create_sub_buffer(request.flags & !DRIVER_FLAGS, origin, size)?;
        Ok(MemoryEntry::of(entry, mem, entry.context, Shape::Buffer { size: request.size }))
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
        let flags = request.flags & !DRIVER_FLAGS;
        let properties = memory_properties(request.properties)?;
        if wire.parent != 0 {
            let parent = self.memory.get(wire.parent)?;
            let context = self.context(request.context)?;
            let mem = context.create_image(flags, &format, &desc, Some(&parent.mem), content, &properties)?;
            let shape = image_shape(&mem)?;
            return Ok(MemoryEntry::of(parent, mem, request.context, shape));
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
        let shape = image_shape(&mem)?;
        Ok(MemoryEntry::new(mem, request.context, shape, held))
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
        let (context, flags) = (self.context(request.context)?, request.flags & !DRIVER_FLAGS);
        let mem = context.create_pipe(flags, request.packet_size, request.max_packets)?;
        Ok(MemoryEntry::new(mem, request.context, Shape::Pipe, held))
    }

    /// A buffer and its length; an image is not one.
    pub(super) fn buffer(&self, id: u64) -> ClResult<(&Mem, u64)> {
        let entry = self.memory.get(id)?;
        match entry.shape {
            Shape::Buffer { size } => Ok((&entry.mem, size)),
            Shape::Image { .. } | Shape::Pipe => Err(ClError(CL_INVALID_MEM_OBJECT)),
        }
    }

    /// An image and the bytes of its pixels.
    pub(super) fn image(&self, id: u64) -> ClResult<(&Mem, usize)> {
        let entry = self.memory.get(id)?;
        match entry.shape {
            Shape::Image { element } => Ok((&entry.mem, element)),
            Shape::Buffer { .. } | Shape::Pipe => Err(ClError(CL_INVALID_MEM_OBJECT)),
        }
    }
}

fn image_shape(mem: &Mem) -> ClResult<Shape> {
    let element = mem.image_info(CL_IMAGE_ELEMENT_SIZE).ok().and_then(|bytes| info::number(&bytes));
    let element = element.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
    // Without it no transfer could be checked.
    Ok(Shape::Image { element: element.ok_or(ClError(CL_IMAGE_FORMAT_NOT_SUPPORTED))? })
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
