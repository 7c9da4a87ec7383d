//! Programs: how they come to be. Builds are in `build.rs`.

use std::ffi::CString;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use telecl_opencl::{ClError, ClResult, Program};
use telecl_sys::*;
use telecl_wire::reply::{Binaries, BinaryStatuses};
use telecl_wire::request::*;

use super::account::Held;
use super::broker::{Broker, Permit};
use super::build::{PendingCompile, beside};
use super::compiler;
use super::entry;
use super::includes::reaches_out;
use super::memory::to_usize;
use super::report::{Param, Params};
use super::session::Session;
use crate::channel::Key;

/// A program. One that is being linked exists from the request on, but is empty until the linker is done.
#[derive(Debug, Default)]
pub(crate) struct ProgramSlot {
    /// The context it belongs to, which is told if something goes wrong with it.
    context: u64,
    /// What it was made from, if that was source: every build begins there.
    source: Option<Source>,
    state: Mutex<State>,
    /// Tells that the program asks for its binary.
    asked: Condvar,
    /// Held while the vendor is asked for binaries: PoCL 3.1 crashes if two threads ask at once.
    asking: Mutex<()>,
}

/// A program's source.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) program: Program,
    pub(crate) digest: [u8; 32],
    /// Includes files by their place on this machine.
    pub(crate) reaches_out: bool,
}

#[derive(Debug, Default)]
struct State {
    /// What requests use: made from source, by a linker, or of a binary from the cache.
    program: Option<Program>,
    /// Filled by each build.
    params: Params,
    /// What its global variables take of the devices' memory.
    memory: Option<Arc<[Held]>>,
    /// Counts builds, to tell what was there before one from what came after.
    generation: u64,
    /// What it was compiled from, so that linking it can be looked up.
    compiled: Option<Compiled>,
    /// Of a program from the cache: the binary, as the first session got it.
    binary: Option<Arc<[u8]>>,
    /// What the cache will get together with the binary, if the program asks for that.
    offer: Option<Offer>,
    /// Whether it has asked since the last build.
    has_asked: bool,
}

/// What is known of a program that can be kept, but for its binary.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) key: Key,
    pub(crate) general: Vec<u8>,
    /// Others may be waiting.
    pub(crate) permit: Option<Permit>,
}

/// A compilation that the cache knows.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) key: Key,
    pub(crate) options: CString,
    /// The compiler has not run in this session, because its report was in the cache. It runs if what it makes is needed.
    pub(crate) pending: Option<Arc<PendingCompile>>,
    /// Whether there were include files.
    pub(crate) has_trees: bool,
}

impl ProgramSlot {
    fn new(program: Program, context: u64) -> Arc<ProgramSlot> {
        let state = Mutex::new(State { program: Some(program), ..State::default() });
        Arc::new(ProgramSlot { context, state, ..ProgramSlot::default() })
    }

    fn from_source(source: Source, context: u64) -> Arc<ProgramSlot> {
        let state = Mutex::new(State { program: Some(source.program.clone()), ..State::default() });
        Arc::new(ProgramSlot { context, source: Some(source), state, ..ProgramSlot::default() })
    }

    /// A place for what a linker will make.
    pub(super) fn empty(context: u64) -> Arc<ProgramSlot> {
        Arc::new(ProgramSlot { context, ..ProgramSlot::default() })
    }

    pub(super) fn context(&self) -> u64 {
        self.context
    }

    pub(super) fn program(&self) -> ClResult<Program> {
        self.lock().program.clone().ok_or(ClError(CL_INVALID_PROGRAM))
    }

    pub(super) fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    /// A build begins: what the last one brought is gone. Returns the program to build.
    pub(super) fn begin(&self) -> ClResult<Program> {
        let mut state = self.lock();
        state.generation += 1;
        (state.compiled, state.binary, state.memory, state.has_asked) = (None, None, None, false);
        // Not dropped under the lock: that sends a message.
        let offer = state.offer.take();
        if let Some(source) = &self.source {
            state.program = Some(source.program.clone());
        }
        let program = state.program.clone().ok_or(ClError(CL_INVALID_PROGRAM));
        drop(state);
        drop(offer);
        program
    }

    pub(super) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// A build has ended with this program, which takes so much memory.
    pub(super) fn fill(&self, program: Program, params: Params, memory: Vec<Held>) {
        let mut state = self.lock();
        (state.program, state.params, state.memory) = (Some(program), params, Some(memory.into()));
    }

    /// A build has ended with a program for which there is no memory: nobody is to use it.
    pub(super) fn empty_out(&self) {
        self.lock().program = None;
    }

    /// What its kernels keep as well.
    pub(super) fn memory(&self) -> Option<Arc<[Held]>> {
        self.lock().memory.clone()
    }

    pub(super) fn set_compiled(&self, compiled: Compiled) {
        self.lock().compiled = Some(compiled);
    }

    pub(super) fn compiled(&self) -> Option<Compiled> {
        self.lock().compiled.clone()
    }

    pub(super) fn set_binary(&self, binary: &[u8]) {
        self.lock().binary = Some(Arc::from(binary));
    }

    pub(super) fn set_offer(&self, offer: Offer) {
        self.lock().offer = Some(offer);
    }

    /// Waits for the program to ask for its binary, and does not let others wait longer than that.
    pub(super) fn wait_for_question(&self, generation: u64, grace: Duration) {
        let unasked = |state: &mut State| state.generation == generation && !state.has_asked;
        let waited = self.asked.wait_timeout_while(self.lock(), grace, unasked);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        let permit = state.offer.as_mut().filter(|_| waited.timed_out()).and_then(|offer| offer.permit.take());
        drop(state);
        if let Some(permit) = permit {
            permit.give_up();
        }
    }

    /// The vendor's binaries.
    pub(super) fn ask_for_binaries(&self, program: &Program) -> ClResult<Vec<Vec<u8>>> {
        let _turn = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        // PoCL compiles here.
        compiler::run(|| program.binaries())
    }

    /// What the arguments of a kernel must be, if the vendor said so after the last build.
    pub(super) fn params_of(&self, kernel: &[u8]) -> Option<Arc<[Param]>> {
        self.lock().params.get(kernel).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    pub(super) fn program(&self, id: u64) -> ClResult<Program> {
        self.programs.get(id)?.program()
    }

    pub(super) fn create_program_with_source(&mut self, request: &CreateProgramWithSource, source: &[u8]) {
        self.output.look_for_printf(source);
        let context = self.context(request.context);
        let made = context.and_then(|context| context.create_program_with_source(source)).map(|program| {
            let (digest, reaches_out) = (Sha256::digest(source).into(), reaches_out(source));
            ProgramSlot::from_source(Source { program, digest, reaches_out }, request.context)
        });
        let opcode = CreateProgramWithSource::OPCODE;
        self.link.created(opcode, "CreateProgramWithSource", request.context, request.id, &made);
        self.programs.insert(request.id, made);
    }

    pub(super) fn create_program_with_il(&mut self, request: &CreateProgramWithIl, il: &[u8]) {
        self.output.look_for_printf(il);
        let made = self.context(request.context).and_then(|context| context.create_program_with_il(il));
        let made = made.map(|program| ProgramSlot::new(program, request.context));
        let opcode = CreateProgramWithIl::OPCODE;
        self.link.created(opcode, "CreateProgramWithIl", request.context, request.id, &made);
        self.programs.insert(request.id, made);
    }

    pub(super) fn create_program_with_binaries(&mut self, request: &CreateProgramWithBinaries<'_>, bytes: &[u8]) {
        self.output.look_for_printf(bytes);
        let (made, statuses) = self.make_program_with_binaries(request, bytes);
        // The statuses are of interest above all where there is no program.
        let status = made.as_ref().err().map_or(CL_SUCCESS, |error| error.code());
        self.link.reply(request.call, status, &telecl_wire::encode(&BinaryStatuses { statuses }));
        self.programs.insert(request.id, made);
    }

    fn make_program_with_binaries(
        &self,
        request: &CreateProgramWithBinaries<'_>,
        bytes: &[u8],
    ) -> (ClResult<Arc<ProgramSlot>>, Vec<i32>) {
        let prepared = || {
            let context = self.context(request.context)?;
            let devices = self.devices_of(request.devices)?;
            Ok((context, devices, cut(bytes, request.lengths.iter())?))
        };
        match prepared() {
            Ok((context, devices, binaries)) => {
                let (made, statuses) = context.create_program_with_binary(&devices, &binaries);
                (made.map(|program| ProgramSlot::new(program, request.context)), statuses)
            }
            Err(error) => (Err(error), Vec::new()),
        }
    }

    pub(super) fn create_program_with_built_in_kernels(&mut self, request: &CreateProgramWithBuiltInKernels<'_>) {
        let make = || {
            let context = self.context(request.context)?;
            let devices = self.devices_of(request.devices)?;
            let names = CString::new(request.names).map_err(|_| ClError(CL_INVALID_VALUE))?;
            let program = context.create_program_with_built_in_kernels(&devices, &names)?;
            Ok(ProgramSlot::new(program, request.context))
        };
        let made = make();
        let answer = made.as_ref().map(|_| Vec::new()).map_err(|error| *error);
        self.link.answer("CreateProgramWithBuiltInKernels", request.call, &answer);
        self.programs.insert(request.id, made);
    }

    pub(super) fn set_specialization_constant(&self, request: &SetSpecializationConstant<'_>) {
        let program = self.program(request.program);
        let set = program.and_then(|program| program.set_specialization_constant(request.constant, request.value));
        self.link.answer("SetSpecializationConstant", request.call, &set.map(|()| Vec::new()));
    }

    /// Beside the stream of requests, because PoCL compiles here.
    pub(super) fn program_binaries(&self, request: &ProgramBinaries) {
        let (link, broker, call) = (Arc::clone(&self.link), Arc::clone(&self.broker), request.call);
        let slot = match self.programs.get(request.program) {
            Ok(slot) => Arc::clone(slot),
            Err(error) => return link.answer("ProgramBinaries", call, &Err(error)),
        };
        let generation = slot.begin_question();
        let asking = Arc::clone(&slot);
        let answering = Arc::clone(&link);
        let ask = move || {
            let binaries = binaries(&asking);
            let answer = binaries.as_ref().map_err(|error| *error).map(|binaries| {
                telecl_wire::encode(&Binaries { binaries: binaries.iter().map(Vec::as_slice).collect() })
            });
            answering.answer("ProgramBinaries", call, &answer);
            binaries
        };
        beside(&link, "ProgramBinaries", call, ask, move |binaries| {
            slot.redeem_offer(&broker, generation, &binaries.unwrap_or_default());
        });
    }
}

impl ProgramSlot {
    /// The program asks for its binary. Returns of which build.
    fn begin_question(&self) -> u64 {
        let mut state = self.lock();
        state.has_asked = true;
        self.asked.notify_all();
        state.generation
    }

    /// What the program has asked for is there for the cache as well.
    fn redeem_offer(&self, broker: &Broker, generation: u64, binaries: &[Vec<u8>]) {
        let mut state = self.lock();
        // Otherwise it was built anew meanwhile.
        let offer = if state.generation == generation { state.offer.take() } else { None };
        let program = state.program.clone();
        drop(state);
        if let (Some(Offer { key, general, permit }), Some(program)) = (offer, program)
            && let Some(entry) = entry::executable(&general, &program, binaries)
        {
            match permit {
                Some(permit) => permit.store(&entry),
                None => broker.store(key, &entry),
            }
        }
    }
}

fn binaries(slot: &ProgramSlot) -> ClResult<Vec<Vec<u8>>> {
    let (binary, compiled) = {
        let state = slot.lock();
        (state.binary.clone(), state.compiled.clone())
    };
    if let Some(binary) = binary {
        return Ok(vec![binary.to_vec()]);
    }
    let program = slot.program()?;
    if let Some(pending) = compiled.and_then(|compiled| compiled.pending) {
        pending.run(&program)?;
    }
    slot.ask_for_binaries(&program)
}

/// Cuts `bytes` into pieces of the given lengths, which must use all of it.
fn cut(bytes: &[u8], lengths: impl Iterator<Item = u64>) -> ClResult<Vec<&[u8]>> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for length in lengths {
        let (piece, after) = rest.split_at_checked(to_usize(length)?).ok_or(ClError(CL_INVALID_VALUE))?;
        pieces.push(piece);
        rest = after;
    }
    if rest.is_empty() { Ok(pieces) } else { Err(ClError(CL_INVALID_VALUE)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_must_have_the_lengths_that_were_announced() {
        assert_eq!(cut(b"abcde", [2, 3].into_iter()).unwrap(), [&b"ab"[..], b"cde"]);
        assert!(cut(b"abcde", [2, 4].into_iter()).is_err());
        assert!(cut(b"abcde", [2, 2].into_iter()).is_err());
        assert!(cut(b"abcde", [2, u64::MAX].into_iter()).is_err());
    }
}
