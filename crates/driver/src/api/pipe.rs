//! Pipes, for devices that have them.

use std::sync::Arc;

use telecl_sys::*;
use telecl_wire::request::CreatePipe;

use super::context::Context;
use super::info::{InfoValue, value};
use super::memory::{Memory, MemoryKind, Provision};

/// What makes a memory object a pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    packet_size: cl_uint,
    max_packets: cl_uint,
}

impl Pipe {
    /// `clGetPipeInfo`.
    pub(crate) fn info(&self, param: cl_pipe_info) -> ClResult<InfoValue<'_>> {
        Ok(match param {
            CL_PIPE_PACKET_SIZE => value(self.packet_size),
            CL_PIPE_MAX_PACKETS => value(self.max_packets),
            // No property is defined, so the list is empty.
            CL_PIPE_PROPERTIES => value(&[] as &[u64]),
            _ => return Err(ClError(CL_INVALID_VALUE)),
        })
    }
}

impl Memory {
    /// `clCreatePipe`.
    pub(crate) fn pipe(
        context: &Arc<Context>,
        flags: cl_mem_flags,
        packet_size: cl_uint,
        max_packets: cl_uint,
    ) -> ClResult<Arc<Memory>> {
        // CL_INVALID_OPERATION if no devices in context support pipes.
        let support = |device: &super::Device| {
            device.number(CL_DEVICE_PIPE_SUPPORT) + u64::from((20..30).contains(&device.limits.version))
        };
        if context.most(support) == 0 {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        // CL_INVALID_VALUE if values specified in flags are not as defined.
        if flags & !(CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS) != 0 {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // CL_INVALID_PIPE_SIZE if pipe_packet_size is 0 or exceeds CL_DEVICE_PIPE_MAX_PACKET_SIZE for all
        // devices, or if pipe_max_packets is 0.
        let most = context.most(|device| device.number(CL_DEVICE_PIPE_MAX_PACKET_SIZE));
        if packet_size == 0 || max_packets == 0 || u64::from(packet_size) > most {
            return Err(ClError(CL_INVALID_PIPE_SIZE));
        }
        let flags = CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS;
        let size = u64::from(packet_size) * u64::from(max_packets);
        let charge = Some(context.take_memory(size)?);
        let provision = Provision { flags, size, charge, ..Provision::default() };
        let pipe = Memory::new(context, MemoryKind::Pipe(Pipe { packet_size, max_packets }), provision);
        context
            .session
            .post(&CreatePipe { id: pipe.id(), context: context.id(), flags, packet_size, max_packets }, &[])?;
        context.check_memory(pipe.id())?;
        Ok(pipe)
    }
}
