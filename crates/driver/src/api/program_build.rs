//! Building, compiling and linking programs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use telecl_sys::*;
use telecl_wire::reply::BuildReport;
use telecl_wire::request::{Build, Compile, EmbeddedHeader, Link, Message};
use telecl_wire::{Ids, WireId, decode};

use super::context::Context;
use super::device::Device;
use super::kernel::KernelFacts;
use super::program::{DeviceBuildState, Program, ProgramOrigin, ProgramState};
use crate::includes::{self, Scope, Shipped};
use crate::registry::lock;
use crate::session::Charge;

/// Called when an asynchronous build has ended.
pub(crate) type OnBuilt = Box<dyn FnOnce() + Send>;

/// What to do with a program.
#[derive(Debug)]
pub(crate) enum BuildTask {
    Build,
    /// With headers: the name under which source includes them, and their programs.
    Compile {
        headers: Vec<(Vec<u8>, Arc<Program>)>,
    },
    Link {
        inputs: Vec<Arc<Program>>,
    },
}

impl BuildTask {
    /// What the vendor answers when the program's text is at fault.
    fn failure(&self) -> cl_int {
        match self {
            BuildTask::Build => CL_BUILD_PROGRAM_FAILURE,
            BuildTask::Compile { .. } => CL_COMPILE_PROGRAM_FAILURE,
            BuildTask::Link { .. } => CL_LINK_PROGRAM_FAILURE,
        }
    }
}

impl Program {
    /// `clBuildProgram` and `clCompileProgram`. Waits, unless `on_built` is given.
    pub(crate) fn build(
        self: &Arc<Self>,
        task: BuildTask,
        devices: Vec<Arc<Device>>,
        options: Vec<u8>,
        on_built: Option<OnBuilt>,
    ) -> ClResult<()> {
        // CL_INVALID_DEVICE if any device in device_list is not in the list of devices associated with program.
        let known = |device: &Arc<Device>| self.devices.iter().any(|own| own.id() == device.id());
        if !devices.iter().all(known) {
            return Err(ClError(CL_INVALID_DEVICE));
        }
        let devices = if devices.is_empty() { self.devices.clone() } else { devices };
        // CL_INVALID_OPERATION if program was not created with source or IL (for compiling).
        if matches!(task, BuildTask::Compile { .. })
            && !matches!(self.origin, ProgramOrigin::Source(_) | ProgramOrigin::Il(_))
        {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        // CL_COMPILER_NOT_AVAILABLE if program is created from source and a compiler is not available.
        if matches!(self.origin, ProgramOrigin::Source(_)) && devices.iter().any(|device| !device.limits.compiler) {
            return Err(ClError(CL_COMPILER_NOT_AVAILABLE));
        }
        // CL_INVALID_OPERATION if there are kernel objects attached to program.
        if self.attached_kernels.load(Ordering::Relaxed) > 0 {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        self.begin(&devices, &options)?;
        self.run(Arc::new(task), devices, options, Scope::Mentioned, on_built)
    }

    /// `clLinkProgram`; a program comes back also when linking failed, to be asked for its log.
    pub(crate) fn link(
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        options: Vec<u8>,
        inputs: Vec<Arc<Program>>,
        on_built: Option<Box<dyn FnOnce(Arc<Program>) + Send>>,
    ) -> (cl_int, Option<Arc<Program>>) {
        let devices = if devices.is_empty() { context.devices.clone() } else { devices };
        // CL_INVALID_DEVICE if a device is not in the list of devices associated with context.
        if !devices.iter().all(|device| context.has_device(device)) {
            return (CL_INVALID_DEVICE, None);
        }
        if inputs.iter().any(|input| input.context.id() != context.id()) {
            return (CL_INVALID_PROGRAM, None);
        }
        // CL_INVALID_OPERATION if the rules for devices containing compiled binaries or libraries as described
        // in the input_programs argument are not followed.
        if !inputs.iter().all(|input| input.can_be_linked(&devices)) {
            return (CL_INVALID_OPERATION, None);
        }
        let program = Program::new(context, devices.clone(), ProgramOrigin::Linked);
        let linked = Arc::clone(&program);
        let on_built = on_built.map(|notify| Box::new(move || notify(linked)) as OnBuilt);
        let result = program.begin(&devices, &options).and_then(|()| {
            program.run(Arc::new(BuildTask::Link { inputs }), devices, options, Scope::Mentioned, on_built)
        });
        match result {
            Ok(()) => (CL_SUCCESS, Some(program)),
            Err(ClError(CL_LINK_PROGRAM_FAILURE)) => (CL_LINK_PROGRAM_FAILURE, Some(program)),
            Err(ClError(status)) => (status, None),
        }
    }

    /// Whether there is something compiled of the program; of binaries only the vendor knows.
    fn can_be_linked(&self, devices: &[Arc<Device>]) -> bool {
        let compiled = || devices.iter().all(|device| self.is_built_for(device));
        !matches!(self.origin, ProgramOrigin::Source(_) | ProgramOrigin::Il(_)) || compiled()
    }

    /// Marks the devices as being built for.
    fn begin(&self, devices: &[Arc<Device>], options: &[u8]) -> ClResult<()> {
        let mut state = lock(&self.state);
        // CL_INVALID_OPERATION if the build of a program for any of the devices by a previous call has
        // not completed.
        if state.in_progress {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        state.in_progress = true;
        state.kernels = None;
        state.memory.clear();
        for device in devices {
            let fresh = DeviceBuildState {
                status: CL_BUILD_IN_PROGRESS,
                options: options.to_vec(),
                log: Vec::new(),
                binary_type: CL_PROGRAM_BINARY_TYPE_NONE,
                global_variables: 0,
            };
            state.builds.insert(device.id(), fresh);
        }
        Ok(())
    }

    fn run(
        self: &Arc<Self>,
        task: Arc<BuildTask>,
        devices: Vec<Arc<Device>>,
        options: Vec<u8>,
        scope: Scope,
        on_built: Option<OnBuilt>,
    ) -> ClResult<()> {
        let shipped = self.ship(&task, &options, scope).inspect_err(|_| self.abandon())?;
        let ids = self.context.device_ids(&devices);
        let devices_field = Ids(&ids);
        let request_options = shipped.options.clone();
        let program = Arc::clone(self);
        let finish = {
            let task = Arc::clone(&task);
            move |(status, payload): (cl_int, Vec<u8>), on_built: Option<OnBuilt>| -> ClResult<()> {
                program.apply(status, &payload, &shipped);
                // A header may have been named in a way that the search did not see.
                if status == task.failure()
                    && scope == Scope::Mentioned
                    && shipped.has_more
                    && program.misses_a_header()
                {
                    return program.run(task, devices, options, Scope::Everything, on_built);
                }
                lock(&program.state).in_progress = false;
                if let Some(on_built) = on_built {
                    on_built();
                }
                check(status)
            }
        };
        let sent = match &*task {
            BuildTask::Build => {
                let request =
                    |call| Build { call, program: self.id(), devices: devices_field, options: &request_options };
                self.ask_or_call_later(request, on_built, finish)
            }
            BuildTask::Compile { headers } => {
                let headers =
                    headers.iter().map(|(name, header)| EmbeddedHeader { program: header.id(), name }).collect();
                let request = |call| Compile {
                    call,
                    program: self.id(),
                    devices: devices_field,
                    options: &request_options,
                    headers,
                };
                self.ask_or_call_later(request, on_built, finish)
            }
            BuildTask::Link { inputs } => {
                let inputs: Vec<_> = inputs.iter().map(|input| WireId::new(input.id())).collect();
                let (id, context, options) = (self.id(), self.context.id(), request_options.as_slice());
                let request = |call| Link { call, id, context, devices: devices_field, options, inputs: Ids(&inputs) };
                self.ask_or_call_later(request, on_built, finish)
            }
        };
        sent.inspect_err(|_| self.abandon())
    }

    /// Waits for the answer and finishes, or leaves both to the callback thread.
    fn ask_or_call_later<'m, M: Message<'m>>(
        &self,
        request: impl FnOnce(u64) -> M,
        on_built: Option<OnBuilt>,
        finish: impl FnOnce((cl_int, Vec<u8>), Option<OnBuilt>) -> ClResult<()> + Send + 'static,
    ) -> ClResult<()> {
        let session = &self.context.session;
        if on_built.is_none() {
            return finish(session.ask(&[], request)?, None);
        }
        session.call_later(request, move |answer| {
            // The program asks for the build's status; its callback has been told already.
            let _ = finish(answer, on_built);
        })
    }

    /// Sends the include files that the program's text may need.
    fn ship(&self, task: &BuildTask, options: &[u8], scope: Scope) -> ClResult<Shipped> {
        let mut texts: Vec<&[u8]> = Vec::new();
        let source_of = |program: &'_ Arc<Program>| match &program.origin {
            ProgramOrigin::Source(source) => source.clone(),
            _ => Vec::new(),
        };
        let mut header_texts = Vec::new();
        if let ProgramOrigin::Source(source) = &self.origin {
            texts.push(source);
        }
        if let BuildTask::Compile { headers } = task {
            header_texts.extend(headers.iter().map(|(_, header)| source_of(header)));
        }
        texts.extend(header_texts.iter().map(Vec::as_slice));
        includes::ship(&self.context.session, options, &texts, scope)
    }

    /// The build could not even be asked for.
    fn abandon(&self) {
        let mut state = lock(&self.state);
        state.in_progress = false;
        for build in state.builds.values_mut().filter(|build| build.status == CL_BUILD_IN_PROGRESS) {
            build.status = CL_BUILD_ERROR;
        }
    }

    /// Takes over what the service reports.
    fn apply(&self, status: cl_int, payload: &[u8], shipped: &Shipped) {
        let mut state = lock(&self.state);
        let Ok(report) = decode::<BuildReport<'_>>(payload) else {
            for build in state.builds.values_mut().filter(|build| build.status == CL_BUILD_IN_PROGRESS) {
                build.status = if status == CL_SUCCESS { CL_BUILD_NONE } else { CL_BUILD_ERROR };
            }
            return;
        };
        for device in &report.devices {
            if let Some(build) = state.builds.get_mut(&device.device) {
                build.status = device.status;
                build.binary_type = device.binary_type;
                build.log = shipped.restore_paths(device.log, &report.trees);
                build.global_variables = device.global_variables;
            }
        }
        set_kernels(&mut state, &report);
        state.memory = self.note_memory(&report);
    }

    /// Counts what the service has given for global variables; parts of one device share what it has there.
    fn note_memory(&self, report: &BuildReport<'_>) -> Vec<Charge> {
        let mut needs: HashMap<u64, u64> = HashMap::new();
        for build in report.devices.iter().filter(|build| build.global_variables > 0) {
            if let Some(device) = self.devices.iter().find(|device| device.id() == build.device) {
                let most = needs.entry(device.root_id()).or_default();
                *most = build.global_variables.max(*most);
            }
        }
        needs.into_iter().map(|(root, bytes)| self.context.session.note_memory(root, bytes)).collect()
    }

    fn misses_a_header(&self) -> bool {
        let state = lock(&self.state);
        state.builds.values().any(|build| {
            let log = String::from_utf8_lossy(&build.log).to_ascii_lowercase();
            log.contains("not found") || log.contains("no such file") || log.contains("cannot open")
        })
    }
}

fn set_kernels(state: &mut ProgramState, report: &BuildReport<'_>) {
    let executable = report
        .devices
        .iter()
        .any(|device| device.status == CL_BUILD_SUCCESS && device.binary_type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    state.kernels =
        executable.then(|| report.kernels.iter().map(|kernel| Arc::new(KernelFacts::new(kernel))).collect());
}
