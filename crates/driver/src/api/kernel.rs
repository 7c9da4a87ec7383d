//! Kernels, their arguments, and running them.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use telecl_sys::*;
use telecl_wire::reply::{ArgKind, KernelOnDevice, KernelReport};
use telecl_wire::request::{Arg, ArgForm, CloneKernel, CreateKernel, Kind, Query, RunKernel, SetArgs, Target};

use super::command::Submission;
use super::device::Device;
use super::event::Event;
use super::info::{InfoValue, c_string, value};
use super::memory::{Memory, MemoryKind};
use super::program::Program;
use super::queue::Queue;
use super::sampler::Sampler;
use crate::process::state;
use crate::registry::{Base, Object, Registry, lock};

/// What a build told about one kernel.
#[derive(Debug)]
pub(crate) struct KernelFacts {
    pub(crate) name: Vec<u8>,
    attributes: Vec<u8>,
    args: Vec<ArgFacts>,
    devices: Vec<KernelOnDevice>,
    /// Whether work-groups may have different sizes, once the vendor has been asked.
    non_uniform: OnceLock<bool>,
}

#[derive(Debug)]
struct ArgFacts {
    kind: ArgKind,
    /// 0: not known.
    size: u64,
    info: ClResult<ArgInfo>,
}

#[derive(Debug)]
struct ArgInfo {
    address_qualifier: u32,
    access_qualifier: u32,
    type_qualifier: u64,
    type_name: Vec<u8>,
    name: Vec<u8>,
}

/// A kernel object. As OpenCL says, its arguments may be set by one thread at a time only.
#[derive(Debug)]
pub(crate) struct Kernel {
    base: Base<Kernel>,
    pub(crate) program: Arc<Program>,
    facts: Arc<KernelFacts>,
    args: Mutex<Vec<Option<ArgState>>>,
}

#[derive(Clone, Debug)]
struct ArgState {
    value: ArgValue,
    size: u64,
    /// Not yet told to the worker.
    changed: bool,
}

/// Arguments do not keep their objects alive, as OpenCL says.
#[derive(Clone, Debug)]
enum ArgValue {
    Bytes(Vec<u8>),
    Local,
    NullMemory,
    Memory(Weak<Memory>),
    Sampler(Weak<Sampler>),
    Queue(Weak<Queue>),
    /// The vendor did not say what the argument is; these bytes are one of our handles.
    Guess {
        bytes: Vec<u8>,
        form: ArgForm,
        id: u64,
    },
}

/// What the program passed to `clSetKernelArg`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArgInput<'a> {
    pub(crate) index: u32,
    pub(crate) size: u64,
    /// `None` for a null pointer.
    pub(crate) value: Option<&'a [u8]>,
}

/// What to run: sizes are filled with 1, offsets with 0 up to three dimensions.
#[derive(Clone, Debug)]
pub(crate) struct NdRange {
    pub(crate) dimensions: u32,
    pub(crate) offset: Option<[u64; 3]>,
    pub(crate) global: Option<[u64; 3]>,
    pub(crate) local: Option<[u64; 3]>,
}

impl KernelFacts {
    pub(super) fn new(report: &KernelReport<'_>) -> KernelFacts {
        let args = report.args.iter().map(|arg| ArgFacts {
            kind: arg.kind,
            size: arg.size.into(),
            info: check(arg.info_status).map(|()| ArgInfo {
                address_qualifier: arg.address_qualifier,
                access_qualifier: arg.access_qualifier,
                type_qualifier: arg.type_qualifier,
                type_name: arg.type_name.to_vec(),
                name: arg.name.to_vec(),
            }),
        });
        KernelFacts {
            name: report.name.to_vec(),
            attributes: report.attributes.to_vec(),
            args: args.collect(),
            devices: report.devices.clone(),
            non_uniform: OnceLock::new(),
        }
    }

    fn on(&self, device: &Device) -> Option<&KernelOnDevice> {
        device.lineage().find_map(|device| self.devices.iter().find(|facts| facts.device == device.id()))
    }
}

impl Object for Kernel {
    const INVALID: cl_int = CL_INVALID_KERNEL;
    const KIND: Kind = Kind::Kernel;

    fn registry() -> &'static Registry<Self> {
        &state().kernels
    }

    fn base(&self) -> &Base<Self> {
        &self.base
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.program.detach_kernel();
    }
}

impl Kernel {
    fn new(program: &Arc<Program>, facts: Arc<KernelFacts>, args: Vec<Option<ArgState>>) -> Arc<Kernel> {
        program.attach_kernel();
        let base = Base::new(&program.context.session);
        Arc::new(Kernel { base, program: Arc::clone(program), facts, args: Mutex::new(args) })
    }

    /// `clCreateKernel`.
    pub(crate) fn create(program: &Arc<Program>, name: &[u8]) -> ClResult<Arc<Kernel>> {
        // CL_INVALID_KERNEL_NAME if kernel_name is not found in program.
        let kernels = program.kernels()?;
        let facts = kernels.iter().find(|facts| facts.name == name).ok_or(ClError(CL_INVALID_KERNEL_NAME))?;
        Kernel::from_facts(program, facts)
    }

    /// One of the kernels of `clCreateKernelsInProgram`.
    pub(crate) fn from_facts(program: &Arc<Program>, facts: &Arc<KernelFacts>) -> ClResult<Arc<Kernel>> {
        let args = facts.args.iter().map(|_| None).collect();
        let kernel = Kernel::new(program, Arc::clone(facts), args);
        let create = CreateKernel { id: kernel.id(), program: program.id(), name: &facts.name };
        program.context.session.post(&create, &[])?;
        program.context.check(Kind::Kernel, kernel.id())?;
        Ok(kernel)
    }

    /// `clCloneKernel`.
    pub(crate) fn duplicate(&self) -> ClResult<Arc<Kernel>> {
        let args = lock(&self.args).clone();
        let kernel = Kernel::new(&self.program, Arc::clone(&self.facts), args);
        // Arguments that the worker does not know yet are marked as changed in the clone too.
        self.program.context.session.post(&CloneKernel { id: kernel.id(), source: self.id() }, &[])?;
        self.program.context.check(Kind::Kernel, kernel.id())?;
        Ok(kernel)
    }

    pub(crate) fn id(&self) -> u64 {
        self.base.id
    }

    /// `clSetKernelArg`. Nothing travels until the kernel runs.
    pub(crate) fn set_arg(&self, input: ArgInput<'_>) -> ClResult<()> {
        // CL_INVALID_ARG_INDEX if arg_index is not a valid argument index.
        let facts = self.facts.args.get(input.index as usize).ok_or(ClError(CL_INVALID_ARG_INDEX))?;
        let mut args = lock(&self.args);
        let Some(slot) = args.get_mut(input.index as usize) else { return Err(ClError(CL_INVALID_ARG_INDEX)) };
        // Many programs set all arguments before each run, and few of them change.
        if let (ArgKind::Value, Some(ArgState { value: ArgValue::Bytes(old), .. }), Some(bytes)) =
            (facts.kind, &*slot, input.value)
            && old == bytes
        {
            return Ok(());
        }
        let value = arg_value(facts, input)?;
        if slot.as_ref().is_some_and(|old| old.size == input.size && old.value.is_same_object(&value)) {
            return Ok(());
        }
        *slot = Some(ArgState { value, size: input.size, changed: true });
        Ok(())
    }

    /// Tells the worker about arguments, for queries that depend on them.
    fn send_args(&self) -> ClResult<()> {
        let mut args = lock(&self.args);
        let message = SetArgs { kernel: self.id(), args: changed_args(&args)? };
        if !message.args.is_empty() {
            self.program.context.session.post(&message, &[])?;
        }
        drop(message);
        mark_known(&mut args);
        Ok(())
    }

    /// `clGetKernelInfo`.
    pub(crate) fn info(&self, param: cl_kernel_info) -> ClResult<InfoValue<'_>> {
        Ok(match param {
            CL_KERNEL_FUNCTION_NAME => c_string(&self.facts.name),
            CL_KERNEL_NUM_ARGS => value(self.facts.args.len() as u32),
            CL_KERNEL_REFERENCE_COUNT => value(self.base.references()),
            CL_KERNEL_CONTEXT => value(self.program.context.address()),
            CL_KERNEL_PROGRAM => value(self.program.address()),
            CL_KERNEL_ATTRIBUTES => c_string(&self.facts.attributes),
            _ => {
                let query = |call| Query {
                    call,
                    target: Target::Kernel,
                    object: self.id(),
                    device: 0,
                    index: 0,
                    param,
                    input: &[],
                };
                InfoValue::Owned(self.program.context.session.call(query)?)
            }
        })
    }

    /// `clGetKernelArgInfo`.
    pub(crate) fn arg_info(&self, index: u32, param: cl_kernel_arg_info) -> ClResult<InfoValue<'_>> {
        let facts = self.facts.args.get(index as usize).ok_or(ClError(CL_INVALID_ARG_INDEX))?;
        let info = facts.info.as_ref().map_err(|error| *error)?;
        Ok(match param {
            CL_KERNEL_ARG_ADDRESS_QUALIFIER => value(info.address_qualifier),
            CL_KERNEL_ARG_ACCESS_QUALIFIER => value(info.access_qualifier),
            CL_KERNEL_ARG_TYPE_NAME => c_string(&info.type_name),
            CL_KERNEL_ARG_TYPE_QUALIFIER => value(info.type_qualifier),
            CL_KERNEL_ARG_NAME => c_string(&info.name),
            _ => return Err(ClError(CL_INVALID_VALUE)),
        })
    }

    /// The device that a query is about. CL_INVALID_DEVICE if device is not in the list of devices
    /// associated with kernel or if device is NULL but there is more than one device.
    fn device_for(&self, device: Option<Arc<Device>>) -> ClResult<Arc<Device>> {
        let devices = &self.program.devices;
        match device {
            Some(device) if devices.iter().any(|own| own.id() == device.id()) => Ok(device),
            None if devices.len() == 1 => Ok(Arc::clone(&devices[0])),
            _ => Err(ClError(CL_INVALID_DEVICE)),
        }
    }

    /// `clGetKernelWorkGroupInfo`.
    pub(crate) fn work_group_info(
        &self,
        device: Option<Arc<Device>>,
        param: cl_kernel_work_group_info,
    ) -> ClResult<InfoValue<'_>> {
        let device = self.device_for(device)?;
        match (param, self.facts.on(&device)) {
            (CL_KERNEL_WORK_GROUP_SIZE, Some(facts)) => Ok(value(facts.work_group_size as usize)),
            (CL_KERNEL_COMPILE_WORK_GROUP_SIZE, Some(facts)) => {
                Ok(value(facts.compile_work_group_size.map(|n| n as usize).as_slice()))
            }
            (CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, Some(facts)) => Ok(value(facts.preferred_multiple as usize)),
            _ => {
                // Local memory depends on the arguments.
                self.send_args()?;
                let query = |call| Query {
                    call,
                    target: Target::KernelWorkGroup,
                    object: self.id(),
                    device: device.id(),
                    index: 0,
                    param,
                    input: &[],
                };
                self.program.context.session.call(query).map(InfoValue::Owned)
            }
        }
    }

    /// `clGetKernelSubGroupInfo`.
    pub(crate) fn sub_group_info(
        &self,
        device: Option<Arc<Device>>,
        param: cl_kernel_sub_group_info,
        input: &[u8],
    ) -> ClResult<InfoValue<'_>> {
        let device = self.device_for(device)?;
        self.send_args()?;
        let query = |call| Query {
            call,
            target: Target::KernelSubGroup,
            object: self.id(),
            device: device.id(),
            index: 0,
            param,
            input,
        };
        self.program.context.session.call(query).map(InfoValue::Owned)
    }

    fn check_range(&self, device: &Device, range: &NdRange) -> ClResult<[u64; 3]> {
        let dimensions = range.dimensions as usize;
        // CL_INVALID_WORK_DIMENSION if work_dim is not a valid value (a value between 1 and 3).
        if !(1..=3).contains(&dimensions) {
            return Err(ClError(CL_INVALID_WORK_DIMENSION));
        }
        // CL_INVALID_GLOBAL_WORK_SIZE if global_work_size is NULL or if any of the values are 0; from
        // OpenCL 2.1 on, zero means that nothing runs.
        let global = range.global.ok_or(ClError(CL_INVALID_GLOBAL_WORK_SIZE))?;
        let zero = global[..dimensions].contains(&0);
        if zero && device.limits.version < 21 {
            return Err(ClError(CL_INVALID_GLOBAL_WORK_SIZE));
        }
        // CL_INVALID_GLOBAL_WORK_SIZE if the values exceed the range of size_t on the device;
        // CL_INVALID_GLOBAL_OFFSET if global_work_size + global_work_offset does.
        let most = if device.limits.address_bits == 32 { u64::from(u32::MAX) } else { u64::MAX };
        if global[..dimensions].iter().any(|&n| n > most) {
            return Err(ClError(CL_INVALID_GLOBAL_WORK_SIZE));
        }
        if let Some(offset) = range.offset {
            let fits = |axis: usize| global[axis].checked_add(offset[axis]).is_some_and(|end| end <= most);
            if !(0..dimensions).all(fits) {
                return Err(ClError(CL_INVALID_GLOBAL_OFFSET));
            }
        }
        self.check_local(device, dimensions, global, range.local)?;
        Ok(global)
    }

    fn check_local(
        &self,
        device: &Device,
        dimensions: usize,
        global: [u64; 3],
        local: Option<[u64; 3]>,
    ) -> ClResult<()> {
        let facts = self.facts.on(device);
        let required = facts.map(|facts| facts.compile_work_group_size).filter(|size| size[0] != 0);
        let Some(local) = local else {
            // CL_INVALID_WORK_GROUP_SIZE if the program was compiled with a required size that does not
            // divide the global size.
            let fits =
                |required: [u64; 3]| (0..dimensions).all(|axis| global[axis].is_multiple_of(required[axis].max(1)));
            return if required.is_none_or(fits) { Ok(()) } else { Err(ClError(CL_INVALID_WORK_GROUP_SIZE)) };
        };
        // What a size of zero means is not said; drivers differ, so the vendor's is asked.
        if local[..dimensions].contains(&0) {
            return Ok(());
        }
        // CL_INVALID_WORK_GROUP_SIZE if the total exceeds CL_KERNEL_WORK_GROUP_SIZE, if the required size
        // is another one, or if it does not divide the global size where it has to.
        let invalid = ClError(CL_INVALID_WORK_GROUP_SIZE);
        let most = facts.map_or(device.limits.max_work_group, |facts| facts.work_group_size);
        let total = local[..dimensions].iter().try_fold(1u64, |total, &n| total.checked_mul(n)).ok_or(invalid)?;
        if total > most {
            return Err(invalid);
        }
        // CL_INVALID_WORK_ITEM_SIZE if the number of work-items specified in any of local_work_size[] is
        // greater than the corresponding values of CL_DEVICE_MAX_WORK_ITEM_SIZES.
        let limits = &device.limits.max_work_items;
        if (0..dimensions).any(|axis| limits.get(axis).is_some_and(|&most| local[axis] > most)) {
            return Err(ClError(CL_INVALID_WORK_ITEM_SIZE));
        }
        if required.is_some_and(|required| (0..dimensions).any(|axis| required[axis] != local[axis])) {
            return Err(invalid);
        }
        if !device.limits.non_uniform_groups && !divides(dimensions, global, local) {
            return Err(invalid);
        }
        Ok(())
    }

    /// Whether only the vendor knows if these sizes are right: what a local size of zero means, and, until it
    /// has been asked once, whether the kernel may have work-groups of different sizes. The device may allow
    /// them; whether the program does depends on its language version and its options.
    fn needs_a_verdict(&self, range: &NdRange, global: [u64; 3]) -> ClResult<bool> {
        let dimensions = range.dimensions as usize;
        let Some(local) = range.local else { return Ok(false) };
        if local[..dimensions].contains(&0) {
            return Ok(true);
        }
        match (divides(dimensions, global, local), self.facts.non_uniform.get()) {
            (true, _) | (false, Some(true)) => Ok(false),
            (false, Some(false)) => Err(ClError(CL_INVALID_WORK_GROUP_SIZE)),
            (false, None) => Ok(true),
        }
    }

    /// Remembers what the vendor said about work-groups of different sizes.
    fn learn(&self, range: &NdRange, global: [u64; 3], verdict: ClResult<()>) -> ClResult<()> {
        let dimensions = range.dimensions as usize;
        let uneven = |local: [u64; 3]| !local[..dimensions].contains(&0) && !divides(dimensions, global, local);
        if range.local.is_some_and(uneven) && matches!(verdict, Ok(()) | Err(ClError(CL_INVALID_WORK_GROUP_SIZE))) {
            // Another thread may have learned the same.
            let _ = self.facts.non_uniform.set(verdict.is_ok());
        }
        verdict
    }
}

fn divides(dimensions: usize, global: [u64; 3], local: [u64; 3]) -> bool {
    (0..dimensions).all(|axis| global[axis].is_multiple_of(local[axis]))
}

impl Submission<'_> {
    /// `clEnqueueNDRangeKernel` and `clEnqueueTask`.
    pub(crate) fn run_kernel(
        &self,
        kernel: &Kernel,
        range: &NdRange,
        kind: cl_command_type,
    ) -> ClResult<Option<Arc<Event>>> {
        // CL_INVALID_CONTEXT if context associated with command_queue and kernel are not the same.
        if kernel.program.context.id() != self.queue.context.id() {
            return Err(ClError(CL_INVALID_CONTEXT));
        }
        let device = &self.queue.device;
        // CL_INVALID_PROGRAM_EXECUTABLE if there is no successfully built program executable available
        // for device associated with command_queue.
        if !kernel.program.is_built_for(device) {
            return Err(ClError(CL_INVALID_PROGRAM_EXECUTABLE));
        }
        let global = kernel.check_range(device, range)?;
        let mut args = lock(&kernel.args);
        // CL_INVALID_KERNEL_ARGS if the kernel argument values have not been specified.
        if args.iter().any(Option::is_none) {
            return Err(ClError(CL_INVALID_KERNEL_ARGS));
        }
        for memory in args.iter().flatten().filter_map(|arg| arg.value.memory()) {
            self.uses(&memory)?;
            memory.check_alignment(device)?;
        }
        let doubtful = kernel.needs_a_verdict(range, global)?;
        self.queue.note_kernel(kernel.id());
        let event = (self.needs_event() || doubtful).then(|| self.expect(kind, None));
        let message = RunKernel {
            command: self.command(event.as_ref()),
            kernel: kernel.id(),
            args: changed_args(&args)?,
            dimensions: range.dimensions,
            offset: range.offset,
            global,
            local: range.local,
        };
        {
            let _order = self.queue.hold();
            self.send(event.as_ref(), &message, &[])?;
        }
        drop(message);
        mark_known(&mut args);
        drop(args);
        match &event {
            Some(event) if doubtful => kernel.learn(range, global, self.verify(event))?,
            _ => {}
        }
        Ok(event.filter(|_| self.wants_event))
    }
}

impl ArgValue {
    fn is_same_object(&self, other: &ArgValue) -> bool {
        match (self, other) {
            (ArgValue::Memory(old), ArgValue::Memory(new)) => old.ptr_eq(new),
            (ArgValue::Sampler(old), ArgValue::Sampler(new)) => old.ptr_eq(new),
            (ArgValue::Local, ArgValue::Local) | (ArgValue::NullMemory, ArgValue::NullMemory) => true,
            _ => false,
        }
    }

    fn memory(&self) -> Option<Arc<Memory>> {
        match self {
            ArgValue::Memory(memory) => memory.upgrade(),
            _ => None,
        }
    }
}

/// What has to be told to the worker. CL_INVALID_KERNEL_ARGS if an object is gone.
fn changed_args(args: &[Option<ArgState>]) -> ClResult<Vec<Arg<'_>>> {
    let changed =
        args.iter().zip(0u32..).filter_map(|(arg, index)| Some((index, arg.as_ref().filter(|arg| arg.changed)?)));
    changed
        .map(|(index, arg)| {
            let gone = ClError(CL_INVALID_KERNEL_ARGS);
            let (form, object, bytes): (ArgForm, u64, &[u8]) = match &arg.value {
                ArgValue::Bytes(bytes) => (ArgForm::Bytes, 0, bytes),
                ArgValue::Local => (ArgForm::Local, 0, &[]),
                ArgValue::NullMemory => (ArgForm::NullMemory, 0, &[]),
                ArgValue::Memory(memory) => (ArgForm::Memory, memory.upgrade().ok_or(gone)?.id(), &[]),
                ArgValue::Sampler(sampler) => (ArgForm::Sampler, sampler.upgrade().ok_or(gone)?.id(), &[]),
                ArgValue::Queue(queue) => (ArgForm::Queue, queue.upgrade().ok_or(gone)?.id(), &[]),
                ArgValue::Guess { bytes, form, id } => (*form, *id, bytes),
            };
            Ok(Arg { index, form, size: arg.size, object, value: bytes })
        })
        .collect()
}

fn mark_known(args: &mut [Option<ArgState>]) {
    args.iter_mut().flatten().for_each(|arg| arg.changed = false);
}

/// Checks a value against what is known about the argument.
fn arg_value(facts: &ArgFacts, input: ArgInput<'_>) -> ClResult<ArgValue> {
    const HANDLE: u64 = size_of::<usize>() as u64;
    // The handle that the value points to, for arguments that must be one.
    let handle = || -> ClResult<usize> {
        // CL_INVALID_ARG_SIZE if arg_size does not match the size of the data type for an argument that
        // is not a memory object, or if it is a memory object and arg_size != sizeof(cl_mem).
        if input.size != HANDLE {
            return Err(ClError(CL_INVALID_ARG_SIZE));
        }
        Ok(input.value.and_then(|bytes| bytes.try_into().ok()).map_or(0, usize::from_ne_bytes))
    };
    match facts.kind {
        ArgKind::Buffer => match handle()? {
            0 => Ok(ArgValue::NullMemory),
            address => memory_arg(address, |_| true),
        },
        ArgKind::Image => match handle()? {
            0 => Err(ClError(CL_INVALID_MEM_OBJECT)),
            address => memory_arg(address, |kind| matches!(kind, MemoryKind::Image(_))),
        },
        ArgKind::Pipe => match handle()? {
            0 => Err(ClError(CL_INVALID_MEM_OBJECT)),
            address => memory_arg(address, |kind| matches!(kind, MemoryKind::Pipe(_))),
        },
        ArgKind::Sampler => {
            let sampler = Sampler::registry().get(handle()?).ok_or(ClError(CL_INVALID_SAMPLER))?;
            Ok(ArgValue::Sampler(Arc::downgrade(&sampler)))
        }
        ArgKind::Queue => {
            let queue = Queue::registry().get(handle()?).ok_or(ClError(CL_INVALID_DEVICE_QUEUE))?;
            Ok(ArgValue::Queue(Arc::downgrade(&queue)))
        }
        ArgKind::Local => {
            // CL_INVALID_ARG_VALUE if arg_value is not NULL for an argument declared with __local.
            if input.value.is_some() {
                return Err(ClError(CL_INVALID_ARG_VALUE));
            }
            // CL_INVALID_ARG_SIZE if arg_size is zero and the argument is declared with __local.
            if input.size == 0 { Err(ClError(CL_INVALID_ARG_SIZE)) } else { Ok(ArgValue::Local) }
        }
        ArgKind::Value => {
            if facts.size != 0 && input.size != facts.size {
                return Err(ClError(CL_INVALID_ARG_SIZE));
            }
            // CL_INVALID_ARG_VALUE if arg_value specified is not a valid value.
            input.value.map(|bytes| ArgValue::Bytes(bytes.to_vec())).ok_or(ClError(CL_INVALID_ARG_VALUE))
        }
        ArgKind::Unknown => Ok(match input.value {
            // A null pointer is a size of local memory, or a null buffer: the vendor knows.
            None => ArgValue::Local,
            Some(bytes) => guess(bytes),
        }),
    }
}

fn memory_arg(address: usize, fits: impl Fn(&MemoryKind) -> bool) -> ClResult<ArgValue> {
    // CL_INVALID_MEM_OBJECT for an argument declared to be a memory object when arg_value is not one.
    let memory = Memory::registry().get(address).ok_or(ClError(CL_INVALID_MEM_OBJECT))?;
    if fits(&memory.kind) { Ok(ArgValue::Memory(Arc::downgrade(&memory))) } else { Err(ClError(CL_INVALID_MEM_OBJECT)) }
}

/// Bytes for an argument of unknown kind: one of our handles, or just bytes. The worker finds out.
fn guess(bytes: &[u8]) -> ArgValue {
    let Ok(word) = <[u8; size_of::<usize>()]>::try_from(bytes) else { return ArgValue::Bytes(bytes.to_vec()) };
    let address = usize::from_ne_bytes(word);
    let found = Memory::registry()
        .get(address)
        .map(|memory| (ArgForm::GuessMemory, memory.id()))
        .or_else(|| Sampler::registry().get(address).map(|sampler| (ArgForm::GuessSampler, sampler.id())))
        .or_else(|| Queue::registry().get(address).map(|queue| (ArgForm::GuessQueue, queue.id())));
    match found {
        Some((form, id)) => ArgValue::Guess { bytes: bytes.to_vec(), form, id },
        None => ArgValue::Bytes(bytes.to_vec()),
    }
}
