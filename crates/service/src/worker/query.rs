//! `clGet*Info` for what the driver does not know itself.

use telecl_opencl::{ClError, ClResult, Device};
use telecl_sys::*;
use telecl_wire::request::{Check, Kind, Query, Target};

use super::session::Session;

/// Bytes that the session has of the device's memory; see `include/telecl.h`.
const CL_DEVICE_TELECL_MEMORY_USED: u32 = 0x54C5;

impl Session {
    pub(super) fn query(&mut self, request: &Query<'_>) {
        if self.is_moved_out() && matches!(request.target, Target::Memory | Target::Image | Target::Pipe) {
            // If there is no room for it, that is the answer.
            let _ = self.be_resident();
        }
        self.link.answer("Query", request.call, &self.ask(request));
    }

    fn ask(&self, request: &Query<'_>) -> ClResult<Vec<u8>> {
        let Query { object, param, .. } = *request;
        if is_handle(request.target, param) {
            return Err(ClError(CL_INVALID_VALUE));
        }
        match request.target {
            Target::Platform => {
                let index = usize::try_from(object).ok();
                let platform = index.and_then(|index| self.platforms.get(index)).and_then(Option::as_ref);
                platform.ok_or(ClError(CL_INVALID_PLATFORM))?.info(param)
            }
            Target::Device if param == CL_DEVICE_TELECL_MEMORY_USED => {
                let used = self.root_of(object).and_then(|root| self.account.used(root));
                used.map(|used| used.to_ne_bytes().to_vec()).ok_or(ClError(CL_INVALID_DEVICE))
            }
            Target::Device => self.devices.get(object)?.info(param),
            Target::Context => self.context(object)?.info(param),
            Target::Queue => self.queues.get(object)?.queue.info(param),
            Target::Memory => self.memory.get(object)?.mem()?.info(param),
            Target::Image => self.memory.get(object)?.mem()?.image_info(param),
            Target::Pipe => self.memory.get(object)?.mem()?.pipe_info(param),
            Target::Sampler => self.samplers.get(object)?.info(param),
            Target::Program => self.program(object)?.info(param),
            Target::ProgramBuild => self.program(object)?.build_info(self.devices.get(request.device)?, param),
            Target::Kernel => self.kernels.get(object)?.kernel.info(param),
            Target::KernelArg => self.kernels.get(object)?.kernel.arg_info(request.index, param),
            Target::KernelWorkGroup => {
                self.kernels.get(object)?.kernel.work_group_info(self.device_or_none(request.device)?, param)
            }
            Target::KernelSubGroup => {
                // Sizes of up to three dimensions, or a count.
                const LONGEST: usize = 3 * size_of::<usize>();
                if request.input.len() > LONGEST || !request.input.len().is_multiple_of(size_of::<usize>()) {
                    return Err(ClError(CL_INVALID_VALUE));
                }
                let device = self.device_or_none(request.device)?;
                self.kernels.get(object)?.kernel.sub_group_info(device, param, request.input)
            }
            Target::Event => self.events.get(object)?.event.info(param),
        }
    }

    fn device_or_none(&self, id: u64) -> ClResult<Option<&Device>> {
        if id == 0 { Ok(None) } else { self.devices.get(id).map(Some) }
    }

    /// Whether a one-way create succeeded.
    pub(super) fn check(&self, request: &Check) {
        let id = request.id;
        let found = match request.kind {
            Kind::Context => self.contexts.get(id).map(|_| ()),
            Kind::Queue => self.queues.get(id).map(|_| ()),
            Kind::Memory => self.memory.get(id).map(|_| ()),
            Kind::Sampler => self.samplers.get(id).map(|_| ()),
            Kind::Program => self.program(id).map(|_| ()),
            Kind::Kernel => self.kernels.get(id).map(|_| ()),
            Kind::Event => self.events.get(id).map(|_| ()),
            Kind::Device => self.devices.get(id).map(|_| ()),
            Kind::Tree => self.includes.check_tree(id),
        };
        self.link.answer("Check", request.call, &found.map(|()| Vec::new()));
    }
}

/// Whether the answer has handles or pointers of this process in it. They mean nothing to a driver, which answers such
/// questions itself.
fn is_handle(target: Target, param: u32) -> bool {
    match target {
        Target::Platform | Target::ProgramBuild | Target::KernelArg => false,
        Target::KernelWorkGroup | Target::KernelSubGroup | Target::Pipe => false,
        Target::Device => {
            matches!(param, CL_DEVICE_PLATFORM | CL_DEVICE_PARENT_DEVICE | CL_DEVICE_PARENT_DEVICE_EXT)
        }
        Target::Context => matches!(param, CL_CONTEXT_DEVICES | CL_CONTEXT_PROPERTIES),
        Target::Queue => matches!(param, CL_QUEUE_CONTEXT | CL_QUEUE_DEVICE | CL_QUEUE_DEVICE_DEFAULT),
        Target::Memory => matches!(param, CL_MEM_CONTEXT | CL_MEM_ASSOCIATED_MEMOBJECT | CL_MEM_HOST_PTR),
        Target::Image => param == CL_IMAGE_BUFFER,
        Target::Sampler => param == CL_SAMPLER_CONTEXT,
        Target::Program => matches!(param, CL_PROGRAM_CONTEXT | CL_PROGRAM_DEVICES | CL_PROGRAM_BINARIES),
        Target::Kernel => matches!(param, CL_KERNEL_CONTEXT | CL_KERNEL_PROGRAM),
        Target::Event => matches!(param, CL_EVENT_CONTEXT | CL_EVENT_COMMAND_QUEUE),
    }
}
