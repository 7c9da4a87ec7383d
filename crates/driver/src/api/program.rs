//! Programs: where they come from, and what is known about them. Building is in `program_build.rs`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};
use telecl_sys::*;
use telecl_wire::reply::{Binaries, BinaryStatuses};
use telecl_wire::request::{
    CreateProgramWithBinaries, CreateProgramWithBuiltInKernels, CreateProgramWithIl, CreateProgramWithSource, Kind,
    ProgramBinaries, Query, SetSpecializationConstant, Target,
};
use telecl_wire::{Ids, WireId, decode};

use super::context::{Context, Destructor};
use super::device::Device;
use super::info::{InfoValue, c_string, value};
use super::kernel::KernelFacts;
use crate::process::state;
use crate::registry::{Base, Object, Registry, lock};
use crate::session::Charge;

/// A program.
pub(crate) struct Program {
    base: Base<Program>,
    pub(crate) context: Arc<Context>,
    pub(crate) devices: Vec<Arc<Device>>,
    pub(crate) origin: ProgramOrigin,
    pub(super) state: Mutex<ProgramState>,
    /// Kernel objects of this program; while there are any it cannot be built again.
    pub(super) attached_kernels: AtomicUsize,
    destructors: Mutex<Vec<Destructor>>,
}

/// Where a program comes from.
#[derive(Debug)]
pub(crate) enum ProgramOrigin {
    Source(Vec<u8>),
    Il(Vec<u8>),
    Binaries,
    BuiltInKernels,
    Linked,
}

/// What building has brought so far.
#[derive(Debug, Default)]
pub(super) struct ProgramState {
    pub(super) builds: HashMap<u64, DeviceBuildState>,
    /// Of an executable.
    pub(super) kernels: Option<Vec<Arc<KernelFacts>>>,
    pub(super) in_progress: bool,
    /// What its global variables take of the devices' memory.
    pub(super) memory: Vec<Charge>,
}

/// `clGetProgramBuildInfo` of one device.
#[derive(Clone, Debug)]
pub(super) struct DeviceBuildState {
    pub(super) status: cl_build_status,
    pub(super) options: Vec<u8>,
    pub(super) log: Vec<u8>,
    pub(super) binary_type: cl_program_binary_type,
    pub(super) global_variables: u64,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("id", &self.base.id).finish_non_exhaustive()
    }
}

impl Object for Program {
    const INVALID: cl_int = CL_INVALID_PROGRAM;
    const KIND: Kind = Kind::Program;

    fn registry() -> &'static Registry<Self> {
        &state().programs
    }

    fn base(&self) -> &Base<Self> {
        &self.base
    }
}

impl Program {
    pub(super) fn new(context: &Arc<Context>, devices: Vec<Arc<Device>>, origin: ProgramOrigin) -> Arc<Program> {
        Arc::new(Program {
            base: Base::new(&context.session),
            context: Arc::clone(context),
            devices,
            origin,
            state: Mutex::default(),
            attached_kernels: AtomicUsize::new(0),
            destructors: Mutex::default(),
        })
    }

    /// `clCreateProgramWithSource`.
    pub(crate) fn with_source(context: &Arc<Context>, source: Vec<u8>) -> ClResult<Arc<Program>> {
        let (staged, payload) = context.session.stage(&source)?;
        let payload = payload.to_vec();
        let program = Program::new(context, context.devices.clone(), ProgramOrigin::Source(source));
        context.session.post(&CreateProgramWithSource { id: program.id(), context: context.id(), staged }, &payload)?;
        context.check(Kind::Program, program.id())?;
        Ok(program)
    }

    /// `clCreateProgramWithIL`.
    pub(crate) fn with_il(context: &Arc<Context>, il: Vec<u8>) -> ClResult<Arc<Program>> {
        // CL_INVALID_OPERATION if no devices in context support intermediate language programs.
        if context.devices.iter().all(|device| device.text(CL_DEVICE_IL_VERSION).is_empty()) {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        let (staged, payload) = context.session.stage(&il)?;
        let payload = payload.to_vec();
        let program = Program::new(context, context.devices.clone(), ProgramOrigin::Il(il));
        context.session.post(&CreateProgramWithIl { id: program.id(), context: context.id(), staged }, &payload)?;
        // CL_INVALID_VALUE if il does not point to well-formed intermediate language: the vendor knows.
        context.verify(Kind::Program, program.id())?;
        Ok(program)
    }

    /// `clCreateProgramWithBinary`; the statuses are those of the single binaries.
    pub(crate) fn with_binaries(
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        binaries: &[&[u8]],
    ) -> (ClResult<Arc<Program>>, Vec<cl_int>) {
        let mut statuses = vec![CL_SUCCESS; devices.len()];
        let mut plain = Vec::new();
        for ((device, binary), status) in devices.iter().zip(binaries).zip(&mut statuses) {
            match binary_for(device, binary) {
                Some(binary) => plain.push(binary),
                None => *status = CL_INVALID_BINARY,
            }
        }
        if plain.len() < devices.len() {
            return (Err(ClError(CL_INVALID_BINARY)), statuses);
        }
        let created = Program::send_binaries(context, devices, &plain).map(|(program, result, reported)| {
            if reported.len() == statuses.len() {
                statuses = reported;
            }
            result.map(|()| program)
        });
        (created.and_then(|created| created), statuses)
    }

    fn send_binaries(
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        binaries: &[&[u8]],
    ) -> ClResult<(Arc<Program>, ClResult<()>, Vec<cl_int>)> {
        let session = &context.session;
        let lengths: Vec<WireId> = binaries.iter().map(|binary| WireId::new(binary.len() as u64)).collect();
        let ids = context.device_ids(&devices);
        let joined = binaries.concat();
        let (staged, payload) = session.stage(&joined)?;
        let program = Program::new(context, devices, ProgramOrigin::Binaries);
        let (status, reply) = session.ask(payload, |call| CreateProgramWithBinaries {
            call,
            id: program.id(),
            context: context.id(),
            devices: Ids(&ids),
            lengths: Ids(&lengths),
            staged,
        })?;
        let statuses = decode::<BinaryStatuses>(&reply).map(|reply| reply.statuses).unwrap_or_default();
        Ok((program, check(status), statuses))
    }

    /// `clCreateProgramWithBuiltInKernels`.
    pub(crate) fn with_built_in_kernels(
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        names: &[u8],
    ) -> ClResult<Arc<Program>> {
        let ids = context.device_ids(&devices);
        let program = Program::new(context, devices, ProgramOrigin::BuiltInKernels);
        context.session.call(|call| CreateProgramWithBuiltInKernels {
            call,
            id: program.id(),
            context: context.id(),
            devices: Ids(&ids),
            names,
        })?;
        Ok(program)
    }

    pub(crate) fn id(&self) -> u64 {
        self.base.id
    }

    pub(crate) fn address(&self) -> usize {
        self.base.address()
    }

    /// `clSetProgramReleaseCallback`.
    pub(crate) fn on_destruction(&self, destructor: Destructor) -> ClResult<()> {
        // CL_INVALID_OPERATION if no devices in the context associated with program support Program
        // Initialization and Clean-Up Kernels: OpenCL 2.2 has them, later versions left them out.
        if !self.context.devices.iter().any(|device| device.limits.version == 22) {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        lock(&self.destructors).push(destructor);
        Ok(())
    }

    /// `clSetProgramSpecializationConstant`.
    pub(crate) fn set_specialization_constant(&self, constant: cl_uint, bytes: &[u8]) -> ClResult<()> {
        // CL_INVALID_OPERATION if no devices associated with program support intermediate language programs.
        if self.devices.iter().all(|device| device.text(CL_DEVICE_IL_VERSION).is_empty()) {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        // CL_INVALID_PROGRAM if program is not a valid program object created from an intermediate language.
        if !matches!(self.origin, ProgramOrigin::Il(_)) {
            return Err(ClError(CL_INVALID_PROGRAM));
        }
        let request = |call| SetSpecializationConstant { call, program: self.id(), constant, value: bytes };
        self.context.session.call(request).map(drop)
    }

    /// The kernels of an executable; CL_INVALID_PROGRAM_EXECUTABLE if there is none.
    pub(crate) fn kernels(&self) -> ClResult<Vec<Arc<KernelFacts>>> {
        let state = lock(&self.state);
        let built = state
            .builds
            .values()
            .any(|build| build.status == CL_BUILD_SUCCESS && build.binary_type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
        match &state.kernels {
            Some(kernels) if built => Ok(kernels.clone()),
            _ => Err(ClError(CL_INVALID_PROGRAM_EXECUTABLE)),
        }
    }

    /// If a program binary has not been built for a sub-device, the program binary associated with the
    /// parent device will be used.
    fn build_for(&self, device: &Device) -> Option<DeviceBuildState> {
        let state = lock(&self.state);
        device.lineage().find_map(|device| state.builds.get(&device.id())).cloned()
    }

    /// Whether kernels of the program can run on the device.
    pub(super) fn is_built_for(&self, device: &Device) -> bool {
        let state = lock(&self.state);
        let build = device.lineage().find_map(|device| state.builds.get(&device.id()));
        build.is_some_and(|build| build.status == CL_BUILD_SUCCESS)
    }

    /// The vendor's binaries, with a trailer that says which driver made them.
    pub(crate) fn binaries(&self) -> ClResult<Vec<Vec<u8>>> {
        let payload = self.context.session.call(|call| ProgramBinaries { call, program: self.id() })?;
        let report: Binaries<'_> = decode(&payload).map_err(|_| ClError(CL_OUT_OF_RESOURCES))?;
        Ok(self.devices.iter().zip(&report.binaries).map(|(device, binary)| with_trailer(device, binary)).collect())
    }

    /// `clGetProgramInfo`, but for CL_PROGRAM_BINARIES, whose value is a list of pointers.
    pub(crate) fn info(&self, param: cl_program_info) -> ClResult<InfoValue<'_>> {
        Ok(match param {
            CL_PROGRAM_REFERENCE_COUNT => value(self.base.references()),
            CL_PROGRAM_CONTEXT => value(self.context.address()),
            CL_PROGRAM_NUM_DEVICES => value(self.devices.len() as u32),
            CL_PROGRAM_DEVICES => {
                value(self.devices.iter().map(|device| device.address()).collect::<Vec<_>>().as_slice())
            }
            CL_PROGRAM_SOURCE => match &self.origin {
                ProgramOrigin::Source(source) => c_string(source),
                // A null string or nothing at all: vendors differ.
                _ => self.ask(param)?,
            },
            CL_PROGRAM_IL => match &self.origin {
                ProgramOrigin::Il(il) => InfoValue::Borrowed(il),
                _ => InfoValue::Borrowed(&[]),
            },
            CL_PROGRAM_BINARY_SIZES => {
                let sizes: Vec<usize> = self.binaries()?.iter().map(Vec::len).collect();
                value(sizes.as_slice())
            }
            CL_PROGRAM_NUM_KERNELS => value(self.kernels()?.len()),
            CL_PROGRAM_KERNEL_NAMES => {
                let kernels = self.kernels()?;
                let names: Vec<&[u8]> = kernels.iter().map(|kernel| kernel.name.as_slice()).collect();
                c_string(&names.join(&b';'))
            }
            _ => self.ask(param)?,
        })
    }

    fn ask(&self, param: cl_program_info) -> ClResult<InfoValue<'_>> {
        let object = self.id();
        let query = |call| Query { call, target: Target::Program, object, device: 0, index: 0, param, input: &[] };
        self.context.session.call(query).map(InfoValue::Owned)
    }

    /// `clGetProgramBuildInfo`.
    pub(crate) fn build_info(&self, device: &Device, param: cl_program_build_info) -> ClResult<InfoValue<'_>> {
        // CL_INVALID_DEVICE if device is not in the list of devices associated with program.
        if !self.devices.iter().any(|own| own.id() == device.id()) {
            return Err(ClError(CL_INVALID_DEVICE));
        }
        let build = self.build_for(device);
        match (param, build) {
            (CL_PROGRAM_BUILD_STATUS, build) => Ok(value(build.map_or(CL_BUILD_NONE, |build| build.status))),
            (CL_PROGRAM_BUILD_OPTIONS, build) => Ok(c_string(&build.map(|build| build.options).unwrap_or_default())),
            (CL_PROGRAM_BUILD_LOG, build) => Ok(c_string(&build.map(|build| build.log).unwrap_or_default())),
            (CL_PROGRAM_BINARY_TYPE, Some(build)) => Ok(value(build.binary_type)),
            (CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, Some(build)) => Ok(value(build.global_variables as usize)),
            _ => {
                let query = |call| Query {
                    call,
                    target: Target::ProgramBuild,
                    object: self.id(),
                    device: device.id(),
                    index: 0,
                    param,
                    input: &[],
                };
                self.context.session.call(query).map(InfoValue::Owned)
            }
        }
    }

    pub(super) fn attach_kernel(&self) {
        self.attached_kernels.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn detach_kernel(&self) {
        self.attached_kernels.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        Context::run_destructors(&self.context.session, &self.destructors);
    }
}

/// Ends every binary that a program gets from us: a mark and a hash of the driver that made it. At the
/// end and not in front, so that tools which look at a binary's head still know it.
const TRAILER_MARK: &[u8; 8] = b"telecl\0\x01";
const TRAILER_LEN: usize = TRAILER_MARK.len() + 16;

fn identity_hash(device: &Device) -> [u8; 16] {
    let digest = Sha256::digest(device.binary_identity());
    std::array::from_fn(|i| digest[i])
}

fn with_trailer(device: &Device, binary: &[u8]) -> Vec<u8> {
    if binary.is_empty() {
        return Vec::new();
    }
    [binary, &identity_hash(device), TRAILER_MARK].concat()
}

/// The vendor's binary without our trailer; `None` if another driver made it. Binaries without a
/// trailer come from the vendor's own driver, which will judge them.
fn binary_for<'b>(device: &Device, binary: &'b [u8]) -> Option<&'b [u8]> {
    let Some(split) = binary.len().checked_sub(TRAILER_LEN) else { return Some(binary) };
    let (plain, trailer) = binary.split_at(split);
    let (hash, mark) = trailer.split_at(16);
    if mark != TRAILER_MARK {
        return Some(binary);
    }
    (hash == identity_hash(device)).then_some(plain)
}
