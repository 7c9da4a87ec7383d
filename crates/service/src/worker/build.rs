//! Builds, compiles and links: beside the stream of requests, in threads of their own.
//!
//! A program that another session has built comes from the broker's cache: the vendor makes it of its binary, and the
//! driver gets the report that the compiler's run gave. A program that is compiled and then linked is looked up twice.
//! Of its compilation only the report is kept: the compiler runs after all if the result of the link is not in the
//! cache, or if the program asks for what was compiled.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use telecl_opencl::{ClError, ClResult, Context, Device, Program, info};
use telecl_sys::*;
use telecl_wire::reply::BuildReport;
use telecl_wire::request::{Build, Compile, Link};
use telecl_wire::{FIRST_DRIVER_ID, Ids};
use tracing::debug;

use super::account::{Account, Held, TooMuch};
use super::broker::{Broker, Found, Permit};
use super::compiler;
use super::entry;
use super::includes::Trees;
use super::link;
use super::program::{Compiled, Offer, ProgramSlot};
use super::recipe::{Recipe, Step};
use super::report::{DeviceIds, Params, build_report, is_nvidia};
use super::session::Session;
use super::start::{VENDOR_STACK, guarded};
use crate::board::Count;
use crate::channel::Key;

/// More builds at once than this are refused; each has a thread and a compiler.
const MOST_BUILDS: usize = 64;

/// A program that keeps its binaries asks for them right after the build. Others who build the same program wait so long
/// for that, where the vendor asks nothing less of them than to compile it, too.
const GRACE: Duration = Duration::from_millis(250);

static BUILDS: AtomicUsize = AtomicUsize::new(0);

/// What a build needs besides the program.
struct Job {
    name: &'static str,
    call: u64,
    slot: Arc<ProgramSlot>,
    ids: DeviceIds,
    /// Those in the options.
    trees: Trees,
    link: Arc<link::Link>,
    broker: Arc<Broker>,
    account: Arc<Account>,
    /// The root device of each of `ids`.
    roots: HashMap<u64, u64>,
    /// The program did not ask for argument information, so it is not to see what we asked for.
    hides_args: bool,
    /// How the cache knows what is made, if it may.
    known: Option<Known>,
}

/// What the cache is asked for.
struct Known {
    key: Key,
    target: Target,
    /// With which a binary is made into a program.
    options: CString,
    /// For a compilation: how it can be made up for.
    pending: Option<Arc<PendingCompile>>,
    /// Whether there are include files.
    has_trees: bool,
    /// What is to be linked was not compiled in this session, but in another, which is going to link it, too.
    reluctant: bool,
}

/// The one device of a context. Programs for several devices are not kept.
#[derive(Clone)]
struct Target {
    id: u64,
    device: Device,
    context: Context,
}

/// A compilation whose report came from the cache.
#[derive(Debug)]
pub(crate) struct PendingCompile {
    devices: Vec<Device>,
    options: CString,
    asks_for_args: bool,
    headers: Vec<(CString, Program)>,
    /// Keeps the include files.
    _trees: Trees,
    done: OnceLock<i32>,
}

impl PendingCompile {
    /// Runs the compiler, once. Whoever comes second waits for the first.
    pub(crate) fn run(&self, program: &Program) -> ClResult<()> {
        check(*self.done.get_or_init(|| self.compile(program)))
    }

    fn compile(&self, program: &Program) -> i32 {
        let headers: Vec<(&CStr, &Program)> =
            self.headers.iter().map(|(name, program)| (name.as_c_str(), program)).collect();
        let compile = |options: &CStr| program.compile(&self.devices, options, &headers);
        status_of(compiler::run(|| asking_for_args(self.asks_for_args, &self.options, compile)))
    }
}

impl Session {
    pub(super) fn build(&mut self, request: &Build<'_>) {
        let prepared = || {
            let slot = Arc::clone(self.programs.get(request.program)?);
            let (options, trees) = self.options(request.options, CL_INVALID_BUILD_OPTIONS)?;
            let devices = self.devices_of(request.devices)?;
            let program = slot.begin()?;
            let ask = slot.source().is_some() && may_ask_for_args(&devices, &options);
            let mut job = self.job("Build", request.call, request.devices, slot, trees);
            job.hides_args = ask;
            job.known = self.target(job.slot.context(), request.devices).and_then(|target| {
                let key = source_key(Step::Build, &target, &job, request.options, &[])?;
                let has_trees = !job.trees.is_empty();
                Some(Known { key, target, options: options.clone(), pending: None, has_trees, reluctant: false })
            });
            Ok((job, program, devices, options, ask))
        };
        match prepared() {
            Ok((job, program, devices, options, ask)) => job.start(move || {
                let build = |options: &CStr| program.build(&devices, options);
                let built = compiler::run(|| asking_for_args(ask, &options, build));
                (status_of(built), Some(program))
            }),
            Err(error) => self.link.answer("Build", request.call, &Err(error)),
        }
    }

    pub(super) fn compile(&mut self, request: &Compile<'_>) {
        let prepared = || {
            let slot = Arc::clone(self.programs.get(request.program)?);
            let (options, trees) = self.options(request.options, CL_INVALID_COMPILER_OPTIONS)?;
            let devices = self.devices_of(request.devices)?;
            let mut headers = Vec::new();
            let mut sources = Vec::new();
            for header in &request.headers {
                let name = CString::new(header.name).map_err(|_| ClError(CL_INVALID_VALUE))?;
                let slot = self.programs.get(header.program)?;
                sources.push((header.name, Arc::clone(slot)));
                headers.push((name, slot.program()?));
            }
            let program = slot.begin()?;
            let ask = slot.source().is_some() && may_ask_for_args(&devices, &options);
            let pending = Arc::new(PendingCompile {
                devices,
                options: options.clone(),
                asks_for_args: ask,
                headers,
                _trees: trees.clone(),
                done: OnceLock::new(),
            });
            let mut job = self.job("Compile", request.call, request.devices, slot, trees);
            job.hides_args = ask;
            job.known = self.target(job.slot.context(), request.devices).and_then(|target| {
                let key = source_key(Step::Compile, &target, &job, request.options, &sources)?;
                let has_trees = !job.trees.is_empty();
                Some(Known { key, target, options, pending: Some(Arc::clone(&pending)), has_trees, reluctant: false })
            });
            Ok((job, program, pending))
        };
        match prepared() {
            Ok((job, program, pending)) => job.start(move || (pending.compile(&program), Some(program))),
            Err(error) => self.link.answer("Compile", request.call, &Err(error)),
        }
    }

    pub(super) fn link(&mut self, request: &Link<'_>) {
        let prepared = || {
            let context = self.context(request.context)?.clone();
            let (options, trees) = self.options(request.options, CL_INVALID_LINKER_OPTIONS)?;
            let devices = self.devices_of(request.devices)?;
            let inputs: ClResult<Vec<Arc<ProgramSlot>>> =
                request.inputs.iter().map(|id| self.programs.get(id).cloned()).collect();
            let inputs = inputs?;
            let programs: ClResult<Vec<Program>> = inputs.iter().map(|input| input.program()).collect();
            Ok((context, devices, options, trees, inputs, programs?))
        };
        match prepared() {
            Ok((context, devices, options, trees, inputs, programs)) => {
                let slot = ProgramSlot::empty(request.context);
                self.programs.insert(request.id, Ok(Arc::clone(&slot)));
                let mut job = self.job("Link", request.call, request.devices, slot, trees);
                job.known = self
                    .target(request.context, request.devices)
                    .and_then(|target| known_link(target, &inputs, request.options));
                let broker = Arc::clone(&self.broker);
                job.start(move || {
                    for (input, program) in inputs.iter().zip(&programs) {
                        if let Some(Compiled { key, pending: Some(pending), .. }) = input.compiled()
                            && pending.run(program).is_err()
                        {
                            // The compiler has refused what it took before.
                            broker.forget(key);
                            return (CL_LINK_PROGRAM_FAILURE, None);
                        }
                    }
                    let programs: Vec<&Program> = programs.iter().collect();
                    compiler::run(|| context.link_program(&devices, &options, &programs))
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
        let (link, broker, account) = (Arc::clone(&self.link), Arc::clone(&self.broker), Arc::clone(&self.account));
        let roots = ids.0.iter().filter_map(|(id, _)| Some((*id, self.root_of(*id)?))).collect();
        Job { name, call, slot, ids, trees, link, broker, account, roots, hides_args: false, known: None }
    }

    /// The device of a context that has one, if that is what is built for. Sub-devices do not count.
    fn target(&self, context: u64, devices: Ids<'_>) -> Option<Target> {
        let context = self.context(context).ok()?.clone();
        let handle = info::number(&context.info(CL_CONTEXT_DEVICES).ok()?)?;
        let (id, device) = self.devices.iter().find(|(_, device)| device.raw() as u64 == handle)?;
        let meant = devices.is_empty() || devices.iter().eq([id]);
        (meant && id < FIRST_DRIVER_ID).then(|| Target { id, device: device.clone(), context })
    }

    /// The options as the vendor gets them, and the include trees they name.
    fn options(&self, options: &[u8], invalid: i32) -> ClResult<(CString, Trees)> {
        let invalid = ClError(invalid);
        let (options, trees) = self.includes.expand(options).ok_or(invalid)?;
        Ok((CString::new(options).map_err(|_| invalid)?, trees))
    }
}

/// What a program has of each root device; parts of one device share what it has there.
fn global_variables(report: &[u8], roots: &HashMap<u64, u64>) -> Vec<(u64, u64)> {
    let mut needs: HashMap<u64, u64> = HashMap::new();
    let report: Option<BuildReport<'_>> = telecl_wire::decode(report).ok();
    for build in report.iter().flat_map(|report| &report.devices).filter(|build| build.global_variables > 0) {
        if let Some(root) = roots.get(&build.device) {
            let most = needs.entry(*root).or_default();
            *most = build.global_variables.max(*most);
        }
    }
    needs.into_iter().collect()
}

/// What a program is known by that is made from source; `None` if it depends on what we cannot see.
fn source_key(
    step: Step,
    target: &Target,
    job: &Job,
    options: &[u8],
    headers: &[(&[u8], Arc<ProgramSlot>)],
) -> Option<Key> {
    let mut recipe = Recipe::new(step, &target.device);
    let mut plain = recipe.add_options(options, &job.trees);
    recipe.add(&[u8::from(job.hides_args)]);
    let mut add = |slot: &ProgramSlot| {
        let source = slot.source()?;
        plain &= !source.reaches_out;
        recipe.add(&source.digest);
        Some(())
    };
    add(&job.slot)?;
    for (_, slot) in headers {
        add(slot)?;
    }
    headers.iter().for_each(|(name, _)| recipe.add(name));
    plain.then(|| recipe.key())
}

/// What the result of a link is known by: one compiled program becomes an executable. (Of several, a vendor might need
/// the options of each to make their binary a program again.)
fn known_link(target: Target, inputs: &[Arc<ProgramSlot>], options: &[u8]) -> Option<Known> {
    let [input] = inputs else { return None };
    let compiled = input.compiled()?;
    let mut recipe = Recipe::new(Step::Link, &target.device);
    recipe.add(&compiled.key);
    if !recipe.add_options(options, &[]) {
        return None;
    }
    // Options for code generation are given to the compiler, and NVIDIA heeds them when it loads a binary.
    let options = [compiled.options.to_bytes(), b" ", options].concat();
    let options = CString::new(options).ok()?;
    let reluctant = compiled.pending.is_some_and(|pending| pending.done.get().is_none());
    Some(Known { key: recipe.key(), target, options, pending: None, has_trees: compiled.has_trees, reluctant })
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

/// Whether some thread builds, or waits for another session's build.
pub(crate) fn are_under_way() -> bool {
    BUILDS.load(Ordering::Relaxed) > 0
}

/// Runs `work` beside the session, if there are not too many already; otherwise answers with an error. `after` gets what
/// `work` returns, and is nothing that anybody waits for.
pub(crate) fn beside<T>(
    link: &Arc<link::Link>,
    name: &'static str,
    call: u64,
    work: impl FnOnce() -> T + Send + 'static,
    after: impl FnOnce(T) + Send + 'static,
) {
    if BUILDS.fetch_add(1, Ordering::Relaxed) >= MOST_BUILDS {
        BUILDS.fetch_sub(1, Ordering::Relaxed);
        return link.answer(name, call, &Err(ClError(CL_OUT_OF_RESOURCES)));
    }
    let thread = thread::Builder::new().name("telecl-build".into()).stack_size(VENDOR_STACK);
    let guard = Arc::clone(link);
    let started = thread.spawn(move || {
        guarded(&guard, "build", || {
            let done = work();
            BUILDS.fetch_sub(1, Ordering::Relaxed);
            after(done);
        });
    });
    if started.is_err() {
        BUILDS.fetch_sub(1, Ordering::Relaxed);
        link.answer(name, call, &Err(ClError(CL_OUT_OF_HOST_MEMORY)));
    }
}

/// What came from the cache.
struct Loaded {
    program: Program,
    report: Vec<u8>,
    params: Params,
    /// Of an executable.
    binary: Option<Vec<u8>>,
}

impl Job {
    /// Runs `work` beside the session, unless its result is in the cache, and replies with its report. `work` returns a
    /// status and the program, if any.
    fn start(self, work: impl FnOnce() -> (i32, Option<Program>) + Send + 'static) {
        let (link, name, call) = (Arc::clone(&self.link), self.name, self.call);
        let work = move || match self.find() {
            Ok(loaded) => {
                self.link.board().add(Count::CacheHits, 1);
                self.finish_with(loaded);
                None
            }
            Err(permit) => {
                self.link.board().add(Count::Builds, 1);
                let (status, program) = work();
                self.finish(status, program, permit)
            }
        };
        beside(&link, name, call, work, |keeper| {
            if let Some(keeper) = keeper {
                keeper.keep();
            }
        });
    }

    /// Looks in the cache. What is there may be of no use; then it is built, and kept instead.
    fn find(&self) -> Result<Loaded, Option<Permit>> {
        let Some(known) = &self.known else { return Err(None) };
        for _ in 0..2 {
            match self.broker.lookup(known.key, known.reluctant) {
                Found::Hit(entry) => match self.load(known, &entry) {
                    Some(loaded) => return Ok(loaded),
                    None => {
                        debug!(session = self.link.session(), call = self.name, "what was kept is of no use");
                        self.broker.forget(known.key);
                    }
                },
                Found::Build(permit) => return Err(Some(permit)),
                Found::Nothing => break,
            }
        }
        Err(None)
    }

    fn load(&self, known: &Known, kept: &[u8]) -> Option<Loaded> {
        let Known { target, options, pending, .. } = known;
        let (general, binary) = if pending.is_some() { (kept, None) } else { entry::parts(kept)? };
        let (report, params) = entry::special(general, target.id, &self.trees)?;
        let program = match binary {
            Some(binary) => entry::load(&target.context, &target.device, options, general, binary)?,
            None => self.slot.program().ok()?,
        };
        Some(Loaded { program, report, params, binary: binary.map(<[u8]>::to_vec) })
    }

    fn finish_with(self, loaded: Loaded) {
        let Loaded { program, report, params, binary } = loaded;
        debug!(session = self.link.session(), call = self.name, "taken from the cache");
        let Some(memory) = self.take_memory(&report) else { return };
        self.slot.fill(program, params, memory);
        if let Some(binary) = binary {
            self.slot.set_binary(&binary);
        }
        if let Some(Known { key, options, pending: Some(pending), has_trees, .. }) = self.known {
            self.slot.set_compiled(Compiled { key, options, pending: Some(pending), has_trees });
        }
        self.link.reply(self.call, CL_SUCCESS, &report);
    }

    /// Takes what the program needs of each device for its global variables, as far as the vendor says. If that is too
    /// much, the build has failed, and the driver is told so.
    fn take_memory(&self, report: &[u8]) -> Option<Vec<Held>> {
        let take = |(root, bytes): (u64, u64)| self.account.take(&[root], bytes);
        match global_variables(report, &self.roots).into_iter().map(take).collect() {
            Ok(held) => Some(held),
            Err(TooMuch(reason)) => {
                debug!(session = self.link.session(), call = self.name, reason, "no memory for global variables");
                self.slot.empty_out();
                // CL_OUT_OF_RESOURCES if there is a failure to allocate resources required by the OpenCL implementation
                // on the device.
                self.link.answer(self.name, self.call, &Err(ClError(CL_OUT_OF_RESOURCES)));
                None
            }
        }
    }

    /// Replies; what is left to do is for others.
    fn finish(self, status: i32, program: Option<Program>, permit: Option<Permit>) -> Option<Keeper> {
        if status != CL_SUCCESS {
            debug!(session = self.link.session(), call = self.name, error = %ClError(status), "call failed");
        }
        let report = match &program {
            Some(program) => {
                let (report, params) = build_report(program, &self.ids, &self.trees, self.hides_args);
                let memory = self.take_memory(&report)?;
                // A program that was linked becomes known before the driver hears of it.
                self.slot.fill(program.clone(), params, memory);
                report
            }
            None => Vec::new(),
        };
        let known = self.known.filter(|_| status == CL_SUCCESS);
        if let Some(Known { key, options, pending: Some(_), has_trees, .. }) = &known {
            let (key, options, has_trees) = (*key, options.clone(), *has_trees);
            self.slot.set_compiled(Compiled { key, options, pending: None, has_trees });
        }
        let keeper = match (known, program, permit) {
            (Some(known), Some(program), Some(permit)) => entry::general(&report, &self.trees)
                .map(|general| Keeper::new(Arc::clone(&self.slot), &known, program, permit, general)),
            _ => None,
        };
        self.link.reply(self.call, status, &report);
        keeper
    }
}

/// Keeps a program that was just built.
struct Keeper {
    slot: Arc<ProgramSlot>,
    generation: u64,
    way: Way,
}

/// How a program is kept.
enum Way {
    /// Of a compilation, the report is all there is.
    Report(Permit, Vec<u8>),
    Binary(Permit, Program, Vec<u8>),
    /// With its binary, if the program asks for that; others wait so long.
    Offer(Duration),
}

impl Keeper {
    fn new(slot: Arc<ProgramSlot>, known: &Known, program: Program, permit: Permit, general: Vec<u8>) -> Keeper {
        let generation = slot.generation();
        let way = if known.pending.is_some() {
            Way::Report(permit, general)
        } else if entry::is_left_to_program(&known.target.device) {
            // It may ask as soon as it hears of the build.
            slot.set_offer(Offer { key: known.key, general, permit: Some(permit) });
            // The vendor's own cache does not know a program again whose include files are in another directory.
            Way::Offer(if known.has_trees { GRACE } else { Duration::ZERO })
        } else {
            Way::Binary(permit, program, general)
        };
        Keeper { slot, generation, way }
    }

    fn keep(self) {
        let Keeper { slot, generation, way } = self;
        match way {
            Way::Report(permit, general) => permit.store(&general),
            Way::Binary(permit, program, general) => {
                let binaries = slot.ask_for_binaries(&program).unwrap_or_default();
                // If it was built anew meanwhile, they may be of the new build.
                if slot.generation() == generation
                    && let Some(entry) = entry::executable(&general, &program, &binaries)
                {
                    permit.store(&entry);
                }
            }
            Way::Offer(grace) => slot.wait_for_question(generation, grace),
        }
    }
}

#[cfg(test)]
mod tests {
    use telecl_wire::reply::DeviceBuild;

    use super::*;

    #[test]
    fn global_variables_count_once_on_each_root_device() {
        let build = |device, global_variables| DeviceBuild {
            device,
            status: CL_BUILD_SUCCESS,
            binary_type: CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
            log: b"",
            global_variables,
        };
        let part = FIRST_DRIVER_ID;
        // Two parts of device 1, a device that is none of ours, and one that needs nothing.
        let devices = vec![build(part, 10), build(part + 1, 30), build(9, 50), build(2, 0)];
        let report = telecl_wire::encode(&BuildReport { devices, kernels: Vec::new(), trees: Vec::new() });
        let roots = HashMap::from([(part, 1), (part + 1, 1), (2, 2)]);
        assert_eq!(global_variables(&report, &roots), [(1, 30)]);
        assert_eq!(global_variables(b"nonsense", &roots), []);
    }
}
