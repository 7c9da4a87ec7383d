//! Kernels and their arguments.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::CString;
use std::rc::{self, Rc};
use std::sync::{Arc, Weak};

use telecl_opencl::{ClError, ClResult, Kernel, Queue, Sampler};
use telecl_sys::*;
use telecl_wire::reply::ArgKind;
use telecl_wire::request::{Arg, ArgForm, CloneKernel, CreateKernel, Message, SetArgs};

use super::account::Held;
use super::backing::Backing;
use super::bounds::MOST_ARGS;
use super::link::About;
use super::memory::{Shape, to_usize};
use super::report::Param;
use super::session::Session;
use super::table::IdHash;
use super::vendor;

#[derive(Debug)]
pub(crate) struct KernelEntry {
    pub(super) kernel: Kernel,
    /// The context it belongs to, which is told if something goes wrong with it.
    context: u64,
    /// What the arguments must be, if the vendor said so.
    params: Option<Arc<[Param]>>,
    /// Objects among the arguments. Weak, because OpenCL's kernels do not keep their arguments alive either: a program
    /// that releases a buffer wants its memory back.
    objects: HashMap<u32, Object, IdHash>,
    /// Arguments that could not be set, and why. The driver believes that they are, and does not send them again.
    refused: HashMap<u32, ClError, IdHash>,
    /// Its program's, which lives as long as the kernel does.
    memory: Option<Arc<[Held]>>,
}

/// The generation of what is not set.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Debug)]
enum Object {
    /// With the generation of the vendor's object that is set.
    Memory(rc::Weak<Backing>, Cell<u64>),
    Sampler(Weak<Sampler>),
    Queue(Weak<Queue>),
}

impl Object {
    fn is_alive(&self) -> bool {
        match self {
            Object::Memory(backing, _) => backing.strong_count() > 0,
            Object::Sampler(sampler) => sampler.strong_count() > 0,
            Object::Queue(queue) => queue.strong_count() > 0,
        }
    }
}

impl KernelEntry {
    /// The kernel, if all its arguments are what the driver has said, and none has been released since: a vendor's driver
    /// would use a dead handle.
    pub(super) fn runnable(&self) -> ClResult<&Kernel> {
        if let Some(error) = self.refused.values().next() {
            return Err(*error);
        }
        if !self.objects.values().all(Object::is_alive) {
            return Err(ClError(CL_INVALID_KERNEL_ARGS));
        }
        self.set_moved()?;
        Ok(&self.kernel)
    }

    /// How many arguments there are, or may be if the vendor did not say.
    fn arg_count(&self) -> u32 {
        let known = self.params.as_ref().and_then(|params| u32::try_from(params.len()).ok());
        known.filter(|count| *count > 0).unwrap_or(MOST_ARGS)
    }

    /// Sets those arguments again that were made again since they were set.
    fn set_moved(&self) -> ClResult<()> {
        for (index, object) in &self.objects {
            let Object::Memory(backing, set) = object else { continue };
            let Some(backing) = backing.upgrade() else { continue };
            if backing.generation() != set.get() {
                self.kernel.set_arg_mem(*index, Some(&*backing.mem()?))?;
                set.set(backing.generation());
            }
        }
        Ok(())
    }

    /// Refuses bytes for an argument that is known to be something else, which a driver would take for a handle, and
    /// bytes of another size, of which it would read too many.
    fn accepts_bytes(&self, index: u32, len: usize) -> ClResult<()> {
        let Some(param) = self.params.as_ref().and_then(|params| params.get(index as usize)) else { return Ok(()) };
        let refusal = match param.kind {
            ArgKind::Unknown => return Ok(()),
            ArgKind::Value if param.size == 0 || param.size as usize == len => return Ok(()),
            ArgKind::Value => CL_INVALID_ARG_SIZE,
            ArgKind::Buffer | ArgKind::Image | ArgKind::Pipe => CL_INVALID_MEM_OBJECT,
            ArgKind::Sampler => CL_INVALID_SAMPLER,
            ArgKind::Queue => CL_INVALID_DEVICE_QUEUE,
            ArgKind::Local => CL_INVALID_ARG_VALUE,
        };
        Err(ClError(refusal))
    }

    /// Refuses an object where the argument is known to be something else: a driver would take its handle for one of
    /// another kind.
    fn accepts(&self, index: u32, form: ArgForm, shape: Option<Shape>) -> ClResult<()> {
        let Some(param) = self.params.as_ref().and_then(|params| params.get(index as usize)) else { return Ok(()) };
        let fits = match (param.kind, form) {
            (ArgKind::Unknown, _) => true,
            (ArgKind::Buffer, ArgForm::Memory | ArgForm::GuessMemory) => matches!(shape, Some(Shape::Buffer { .. })),
            (ArgKind::Image, ArgForm::Memory | ArgForm::GuessMemory) => matches!(shape, Some(Shape::Image { .. })),
            (ArgKind::Pipe, ArgForm::Memory | ArgForm::GuessMemory) => matches!(shape, Some(Shape::Pipe)),
            (ArgKind::Buffer, ArgForm::NullMemory) => true,
            (ArgKind::Sampler, form) => matches!(form, ArgForm::Sampler | ArgForm::GuessSampler),
            (ArgKind::Queue, form) => matches!(form, ArgForm::Queue | ArgForm::GuessQueue),
            (ArgKind::Local, form) => form == ArgForm::Local,
            _ => false,
        };
        let refusal = match param.kind {
            ArgKind::Buffer | ArgKind::Image | ArgKind::Pipe => CL_INVALID_MEM_OBJECT,
            ArgKind::Sampler => CL_INVALID_SAMPLER,
            ArgKind::Queue => CL_INVALID_DEVICE_QUEUE,
            ArgKind::Unknown | ArgKind::Value | ArgKind::Local => CL_INVALID_ARG_VALUE,
        };
        if fits { Ok(()) } else { Err(ClError(refusal)) }
    }

    fn set_bytes(&mut self, arg: &Arg<'_>) -> ClResult<()> {
        // CL_INVALID_ARG_SIZE if arg_size does not match the size of the data type.
        if arg.size != arg.value.len() as u64 {
            return Err(ClError(CL_INVALID_ARG_SIZE));
        }
        self.accepts_bytes(arg.index, arg.value.len())?;
        vendor::set_arg_bytes(&self.kernel, arg.index, arg.value)?;
        self.objects.remove(&arg.index);
        Ok(())
    }

    fn set_object(&mut self, arg: &Arg<'_>, target: &Target) -> ClResult<()> {
        // CL_INVALID_ARG_SIZE if the argument is a memory object and arg_size is not sizeof(cl_mem), likewise others.
        if arg.size != size_of::<cl_mem>() as u64 {
            return Err(ClError(CL_INVALID_ARG_SIZE));
        }
        match target {
            Target::Memory(backing) => self.kernel.set_arg_mem(arg.index, Some(&*backing.mem()?))?,
            Target::Sampler(sampler) => self.kernel.set_arg_sampler(arg.index, sampler)?,
            Target::Queue(queue) => self.kernel.set_arg_queue(arg.index, queue)?,
        }
        let object = match target {
            Target::Memory(backing) => Object::Memory(Rc::downgrade(backing), Cell::new(backing.generation())),
            Target::Sampler(sampler) => Object::Sampler(Arc::downgrade(sampler)),
            Target::Queue(queue) => Object::Queue(Arc::downgrade(queue)),
        };
        self.objects.insert(arg.index, object);
        Ok(())
    }

    /// The vendor did not say what the argument is: what it refuses as an object is a value.
    fn set_guess(&mut self, arg: &Arg<'_>, target: ClResult<Target>) -> ClResult<()> {
        match target.and_then(|target| self.set_object(arg, &target)) {
            Err(ClError(
                CL_INVALID_ARG_SIZE
                | CL_INVALID_ARG_VALUE
                | CL_INVALID_MEM_OBJECT
                | CL_INVALID_SAMPLER
                | CL_INVALID_DEVICE_QUEUE,
            )) => self.set_bytes(arg),
            other => other,
        }
    }
}

/// An object that becomes an argument.
enum Target {
    Memory(Rc<Backing>),
    Sampler(Arc<Sampler>),
    Queue(Arc<Queue>),
}

impl Session {
    pub(super) fn create_kernel(&mut self, request: &CreateKernel<'_>) {
        let make = || {
            let slot = self.programs.get(request.program)?;
            let name = CString::new(request.name).map_err(|_| ClError(CL_INVALID_KERNEL_NAME))?;
            let kernel = slot.program()?.create_kernel(&name)?;
            let (context, params, memory) = (slot.context(), slot.params_of(request.name), slot.memory());
            let (objects, refused) = (HashMap::default(), HashMap::default());
            Ok(KernelEntry { kernel, context, params, objects, refused, memory })
        };
        let made = make();
        let context = self.programs.get(request.program).map_or(0, |slot| slot.context());
        self.link.created(CreateKernel::OPCODE, "CreateKernel", context, request.id, &made);
        self.kernels.insert(request.id, made);
    }

    pub(super) fn clone_kernel(&mut self, request: &CloneKernel) {
        let resident = self.be_resident();
        let made = resident.and_then(|()| self.kernels.get(request.source)).and_then(|source| {
            let kernel = source.runnable()?.duplicate()?;
            let (params, objects) = (source.params.clone(), source.objects.clone());
            let (refused, memory) = (HashMap::default(), source.memory.clone());
            Ok(KernelEntry { kernel, context: source.context, params, objects, refused, memory })
        });
        let context = self.kernels.get(request.source).map_or(0, |source| source.context);
        self.link.created(CloneKernel::OPCODE, "CloneKernel", context, request.id, &made);
        self.kernels.insert(request.id, made);
    }

    pub(super) fn set_args(&mut self, request: &SetArgs<'_>) {
        if let Err(error) = self.try_set_args(request.kernel, &request.args) {
            let context = self.kernels.get(request.kernel).map_or(0, |entry| entry.context);
            let about = About { opcode: SetArgs::OPCODE, name: "SetArgs", context, queue: 0, object: request.kernel };
            self.link.failed(about, error, 0);
        }
    }

    /// Sets all arguments that can be set, as separate calls would, and says what went wrong first.
    pub(super) fn try_set_args(&mut self, kernel: u64, args: &[Arg<'_>]) -> ClResult<()> {
        if self.is_moved_out() && args.iter().any(|arg| matches!(arg.form, ArgForm::Memory | ArgForm::GuessMemory)) {
            // If there is no room now, those that are known to be memory are set when there is, before a run.
            let _ = self.be_resident();
        }
        let mut first = self.kernels.get(kernel).map(|_| ());
        for arg in args {
            let set = self.set_arg(kernel, arg);
            if let Ok(entry) = self.kernels.get_mut(kernel) {
                match set {
                    Ok(()) if entry.refused.is_empty() => None,
                    Ok(()) => entry.refused.remove(&arg.index),
                    // There is no such argument, so nothing is missing.
                    Err(ClError(CL_INVALID_ARG_INDEX)) => None,
                    Err(error) => entry.refused.insert(arg.index, error),
                };
            }
            first = first.and(set);
        }
        first
    }

    fn set_arg(&mut self, kernel: u64, arg: &Arg<'_>) -> ClResult<()> {
        // CL_INVALID_ARG_INDEX if arg_index is not a valid argument index.
        if arg.index >= self.kernels.get(kernel)?.arg_count() {
            return Err(ClError(CL_INVALID_ARG_INDEX));
        }
        let target = match arg.form {
            ArgForm::Memory | ArgForm::GuessMemory => {
                Some(self.memory.get(arg.object).map(|entry| Target::Memory(Rc::clone(&entry.backing))))
            }
            ArgForm::Sampler | ArgForm::GuessSampler => {
                Some(self.samplers.get(arg.object).map(|sampler| Target::Sampler(Arc::clone(sampler))))
            }
            ArgForm::Queue | ArgForm::GuessQueue => {
                Some(self.queues.get(arg.object).map(|entry| Target::Queue(Arc::clone(&entry.queue))))
            }
            ArgForm::Bytes | ArgForm::Local | ArgForm::NullMemory => None,
        };
        let shape = match &target {
            Some(Ok(Target::Memory(_))) => self.memory.get(arg.object).ok().map(|entry| entry.shape),
            _ => None,
        };
        let entry = self.kernels.get_mut(kernel)?;
        let accepted = if arg.form == ArgForm::Bytes { Ok(()) } else { entry.accepts(arg.index, arg.form, shape) };
        let target = target.map(|target| target.and_then(|target| accepted.map(|()| target)));
        match (arg.form, target) {
            (ArgForm::GuessMemory | ArgForm::GuessSampler | ArgForm::GuessQueue, Some(target)) => {
                entry.set_guess(arg, target)
            }
            (ArgForm::Memory, Some(Ok(Target::Memory(backing)))) if backing.mem().is_err() => {
                entry.objects.insert(arg.index, Object::Memory(Rc::downgrade(&backing), Cell::new(NEVER)));
                Ok(())
            }
            (_, Some(target)) => entry.set_object(arg, &target?),
            (ArgForm::Local | ArgForm::NullMemory, None) if accepted.is_err() => accepted,
            (ArgForm::Local, None) => {
                entry.kernel.set_arg_local(arg.index, to_usize(arg.size)?)?;
                entry.objects.remove(&arg.index);
                Ok(())
            }
            (ArgForm::NullMemory, None) => {
                entry.kernel.set_arg_mem(arg.index, None)?;
                entry.objects.remove(&arg.index);
                Ok(())
            }
            (_, None) => entry.set_bytes(arg),
        }
    }
}
