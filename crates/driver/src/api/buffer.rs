//! Buffers and sub-buffers.

use std::sync::Arc;

use telecl_sys::*;
use telecl_wire::region::Region;
use telecl_wire::request::{CreateBuffer, CreateSubBuffer, Kind};
use telecl_wire::{Ids, WireId};

use super::context::Context;
use super::device::Device;
use super::memory::{
    HOST_POINTER_FLAGS, Memory, MemoryKind, Provision, check_flags, check_host_pointer, inherited_flags,
    with_default_access,
};
use crate::host::{HostBox, HostPointer};

/// What `clCreateBuffer` is asked for.
#[derive(Debug)]
pub(crate) struct BufferRequest {
    pub(crate) flags: cl_mem_flags,
    pub(crate) size: u64,
    /// Valid for `size` bytes, and with USE_HOST_PTR as long as the buffer lives.
    pub(crate) host: Option<HostPointer>,
    /// With the final zero.
    pub(crate) properties: Option<Vec<u64>>,
}

/// CL_INVALID_PROPERTY if a property name is not supported: only external memory has any, and memory
/// of this machine cannot be shared with a device of another.
pub(super) fn check_properties(properties: Option<&[u64]>) -> ClResult<()> {
    match properties {
        None | Some([] | [0]) => Ok(()),
        Some(_) => Err(ClError(CL_INVALID_PROPERTY)),
    }
}

impl Memory {
    /// `clCreateBuffer` and `…WithProperties`.
    pub(crate) fn buffer(context: &Arc<Context>, request: BufferRequest) -> ClResult<Arc<Memory>> {
        let BufferRequest { flags, size, host, properties } = request;
        check_properties(properties.as_deref())?;
        check_flags(flags)?;
        // CL_INVALID_BUFFER_SIZE if size is 0, or greater than CL_DEVICE_MAX_MEM_ALLOC_SIZE for all
        // devices in context.
        if size == 0 || size > context.max_alloc() {
            return Err(ClError(CL_INVALID_BUFFER_SIZE));
        }
        check_host_pointer(flags, host)?;
        let flags = with_default_access(flags);
        let charge = Some(context.take_memory(size)?);
        let provision = Provision { flags, size, host, properties, charge };
        let buffer = Memory::new(context, MemoryKind::Buffer, provision);
        let session = &context.session;
        let content = host.map(|start| {
            // SAFETY: the program's `host_ptr` is valid for `size` bytes, says `BufferRequest::host`.
            unsafe { HostBox::new(start, [size, 1, 1], 1, size, size, None) }
        });
        let mut scratch = Vec::new();
        let bytes = content.as_ref().map_or(&[][..], |content| content.packed(&Region::linear(0, size), &mut scratch));
        let (staged, payload) = session.stage(bytes)?;
        let create = CreateBuffer {
            id: buffer.id(),
            context: context.id(),
            flags: flags & !HOST_POINTER_FLAGS,
            size,
            staged,
            properties: Ids(&[] as &[WireId]),
        };
        session.post(&create, payload)?;
        context.check_memory(buffer.id())?;
        Ok(buffer)
    }

    /// `clCreateSubBuffer`.
    pub(crate) fn sub_buffer(self: &Arc<Self>, flags: cl_mem_flags, origin: u64, size: u64) -> ClResult<Arc<Memory>> {
        // CL_INVALID_MEM_OBJECT if buffer is not a valid buffer object or is a sub-buffer object.
        if !matches!(self.kind, MemoryKind::Buffer) {
            return Err(ClError(CL_INVALID_MEM_OBJECT));
        }
        check_flags(flags)?;
        let flags = inherited_flags(self.flags, flags)?;
        // CL_INVALID_VALUE if the region specified by (origin, size) is out of bounds in buffer.
        let end = origin.checked_add(size).ok_or(ClError(CL_INVALID_VALUE))?;
        if end > self.size {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // CL_INVALID_BUFFER_SIZE if size is 0.
        if size == 0 {
            return Err(ClError(CL_INVALID_BUFFER_SIZE));
        }
        // CL_MISALIGNED_SUB_BUFFER_OFFSET if there are no devices in context associated with buffer
        // for which the origin value is aligned to the CL_DEVICE_MEM_BASE_ADDR_ALIGN value.
        if !self.context.devices.iter().any(|device| origin.is_multiple_of(device.limits.base_alignment)) {
            return Err(ClError(CL_MISALIGNED_SUB_BUFFER_OFFSET));
        }
        let kind = MemoryKind::SubBuffer { parent: Arc::clone(self), origin };
        let provision = Provision { flags, size, ..Provision::default() };
        let part = Memory::new(&self.context, kind, provision);
        let create =
            CreateSubBuffer { id: part.id(), parent: self.id(), flags: flags & !HOST_POINTER_FLAGS, origin, size };
        self.context.session.post(&create, &[])?;
        self.context.check(Kind::Memory, part.id())?;
        Ok(part)
    }

    /// CL_MISALIGNED_SUB_BUFFER_OFFSET if buffer is a sub-buffer object and the offset specified when
    /// it was created is not aligned to CL_DEVICE_MEM_BASE_ADDR_ALIGN of the queue's device.
    pub(super) fn check_alignment(&self, device: &Device) -> ClResult<()> {
        match &self.kind {
            MemoryKind::SubBuffer { origin, .. } if origin % device.limits.base_alignment != 0 => {
                Err(ClError(CL_MISALIGNED_SUB_BUFFER_OFFSET))
            }
            _ => Ok(()),
        }
    }
}
