//! Builds, compiles and links: beside the stream of requests, in threads of their own.

use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use telecl_opencl::{ClError, ClResult, Context, Device, Program};
use telecl_sys::*;
use telecl_wire::Ids;
use telecl_wire::request::{Build, Compile, Link};

use super::includes::Trees;
use super::link;
use super::program::ProgramSlot;
use super::report::{DeviceIds, build_report, is_nvidia};
use super::session::Session;
use super::start::guarded;

/// More builds at once than this are refused; each has a thread and a compiler.
const MOST_BUILDS: usize = 64;

/// Compilers recurse deeply, and expect the stack of a program's first thread.
const STACK: usize = 16 << 20;

static BUILDS: AtomicUsize = AtomicUsize::new(0);

/// What a build needs besides the program.
struct Job {
    name: &'static str,
    call: u64,
    slot: Arc<ProgramSlot>,
    ids: DeviceIds,
    /// (tree, directory) of the include trees in the options.
    trees: Trees,
    link: Arc<link::Link>,
    /// The program did not ask for argument information, so it is not to see what we asked for.
    hides_args: bool,
}

impl Session {
    pub(super) fn build(&mut self, request: &Build<'_>) {
        let prepared = || {
            let slot = Arc::clone(self.programs.get(request.program)?);
            let (options, trees) = self.options(request.options, CL_INVALID_BUILD_OPTIONS)?;
            let devices = self.devices_of(request.devices)?;
            let program = slot.program()?.clone();
            Ok((self.job("Build", request.call, request.devices, slot, trees), program, devices, options))
        };
        match prepared() {
            Ok((job, program, devices, options)) => {
                let ask = job.slot.is_from_source() && may_ask_for_args(&devices, &options);
                job.asked_for_args(ask).start(move || {
                    let built = asking_for_args(ask, &options, |options| program.build(&devices, options));
                    (status_of(built), Some(program))
                });
            }
            Err(error) => self.link.answer("Build", request.call, &Err(error)),
        }
    }

    pub(super) fn compile(&mut self, request: &Compile<'_>) {
        let prepared = || {
            let slot = Arc::clone(self.programs.get(request.program)?);
            let (options, trees) = self.options(request.options, CL_INVALID_COMPILER_OPTIONS)?;
            let devices = self.devices_of(request.devices)?;
            let headers: ClResult<Vec<(CString, Program)>> = request
                .headers
                .iter()
                .map(|header| {
                    let name = CString::new(header.name).map_err(|_| ClError(CL_INVALID_VALUE))?;
                    Ok((name, self.program(header.program)?.clone()))
                })
                .collect();
            let program = slot.program()?.clone();
            Ok((self.job("Compile", request.call, request.devices, slot, trees), program, devices, options, headers?))
        };
        match prepared() {
            Ok((job, program, devices, options, headers)) => {
                let ask = job.slot.is_from_source() && may_ask_for_args(&devices, &options);
                job.asked_for_args(ask).start(move || {
                    let headers: Vec<(&CStr, &Program)> =
                        headers.iter().map(|(name, program)| (name.as_c_str(), program)).collect();
                    let compiled =
                        asking_for_args(ask, &options, |options| program.compile(&devices, options, &headers));
                    (status_of(compiled), Some(program))
                });
            }
            Err(error) => self.link.answer("Compile", request.call, &Err(error)),
        }
    }

    pub(super) fn link(&mut self, request: &Link<'_>) {
        type Prepared = (Context, Vec<Device>, CString, Trees, Vec<Program>);
        let prepared = || -> ClResult<Prepared> {
            let context = self.context(request.context)?.clone();
            let (options, trees) = self.options(request.options, CL_INVALID_LINKER_OPTIONS)?;
            let devices = self.devices_of(request.devices)?;
            let inputs: ClResult<Vec<Program>> = request.inputs.iter().map(|id| self.program(id).cloned()).collect();
            Ok((context, devices, options, trees, inputs?))
        };
        match prepared() {
            Ok((context, devices, options, trees, inputs)) => {
                let slot = ProgramSlot::empty(request.context);
                self.programs.insert(request.id, Ok(Arc::clone(&slot)));
                self.job("Link", request.call, request.devices, slot, trees).start(move || {
                    let inputs: Vec<&Program> = inputs.iter().collect();
                    context.link_program(&devices, &options, &inputs)
                });
            }
            Err(error) => {
                self.programs.insert(request.id, Err(error));
                self.link.answer("Link", request.call, &Err(error));
            }
        }
    }

    fn job(&self, name: &'static str, call: u64, devices: Ids<'_>, slot: Arc<ProgramSlot>, trees: Trees) -> Job {
        let ids = self.device_ids().named(devices);
        Job { name, call, slot, ids, trees, link: Arc::clone(&self.link), hides_args: false }
    }

    /// The options as the vendor gets them, and the include trees they name.
    fn options(&self, options: &[u8], invalid: i32) -> ClResult<(CString, Trees)> {
        let invalid = ClError(invalid);
        let (options, trees) = self.includes.expand(options).ok_or(invalid)?;
        Ok((CString::new(options).map_err(|_| invalid)?, trees))
    }
}

/// The option without which many compilers forget what a kernel's arguments are; known since OpenCL 1.2.
const ARG_INFO: &[u8] = b"-cl-kernel-arg-info";

/// Whether we may add [`ARG_INFO`] to what the program wants. With it, NVIDIA's compiler (driver 580) makes invalid
/// PTX of kernels without arguments.
fn may_ask_for_args(devices: &[Device], options: &CStr) -> bool {
    let asked = options.to_bytes().windows(ARG_INFO.len()).any(|window| window == ARG_INFO);
    !asked && !devices.iter().any(is_nvidia)
}

/// Compiles with [`ARG_INFO`]; a compiler that refuses it is asked again as the program wanted.
fn asking_for_args(ask: bool, options: &CStr, compile: impl Fn(&CStr) -> ClResult<()>) -> ClResult<()> {
    let plain = options.to_bytes();
    if !ask {
        return compile(options);
    }
    let more = [plain, b" ", ARG_INFO].concat();
    match CString::new(more).map(|more| compile(&more)) {
        Ok(Err(ClError(CL_INVALID_BUILD_OPTIONS | CL_INVALID_COMPILER_OPTIONS))) | Err(_) => compile(options),
        Ok(other) => other,
    }
}

fn status_of(result: ClResult<()>) -> i32 {
    result.map_or_else(ClError::code, |()| CL_SUCCESS)
}

impl Job {
    fn asked_for_args(self, hides_args: bool) -> Job {
        Job { hides_args, ..self }
    }

    /// Runs `work` beside the session and replies with its report. `work` returns a status and the program, if any.
    fn start(self, work: impl FnOnce() -> (i32, Option<Program>) + Send + 'static) {
        let (link, call) = (Arc::clone(&self.link), self.call);
        if BUILDS.fetch_add(1, Ordering::Relaxed) >= MOST_BUILDS {
            BUILDS.fetch_sub(1, Ordering::Relaxed);
            return link.answer(self.name, call, &Err(ClError(CL_OUT_OF_RESOURCES)));
        }
        let thread = thread::Builder::new().name("telecl-build".into()).stack_size(STACK);
        let started = thread.spawn(move || {
            let link = Arc::clone(&self.link);
            guarded(&link, "build", || {
                let (status, program) = work();
                self.finish(status, program);
            });
            BUILDS.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            BUILDS.fetch_sub(1, Ordering::Relaxed);
            link.answer("Build", call, &Err(ClError(CL_OUT_OF_HOST_MEMORY)));
        }
    }

    fn finish(self, status: i32, program: Option<Program>) {
        if status != CL_SUCCESS {
            tracing::debug!(session = self.link.session(), call = self.name, error = %ClError(status), "call failed");
        }
        let report = match &program {
            Some(program) => {
                let (report, params) = build_report(program, &self.ids, &self.trees, self.hides_args);
                self.slot.set_params(params);
                report
            }
            None => Vec::new(),
        };
        // A program that was linked becomes known before the driver hears of it.
        if let Some(program) = program {
            self.slot.fill(program);
        }
        self.link.reply(self.call, status, &report);
    }
}
