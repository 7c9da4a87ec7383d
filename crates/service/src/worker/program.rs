//! Programs: how they come to be. Builds are in `build.rs`.

use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use telecl_opencl::{ClError, ClResult, Program};
use telecl_sys::*;
use telecl_wire::reply::{Binaries, BinaryStatuses};
use telecl_wire::request::*;

use super::memory::to_usize;
use super::report::{Param, Params};
use super::session::Session;

/// A program. One that is being linked exists from the request on, but is empty until the linker is done.
#[derive(Debug, Default)]
pub(crate) struct ProgramSlot {
    program: OnceLock<Program>,
    /// The context it belongs to, which is told if something goes wrong with it.
    context: u64,
    /// Filled by each build.
    params: Mutex<Params>,
    /// Made from source, so that the compiler can be asked for argument information.
    from_source: bool,
}

impl ProgramSlot {
    fn new(program: Program, context: u64, from_source: bool) -> Arc<ProgramSlot> {
        Arc::new(ProgramSlot { program: program.into(), context, from_source, ..ProgramSlot::default() })
    }

    /// A place for what a linker will make.
    pub(super) fn empty(context: u64) -> Arc<ProgramSlot> {
        Arc::new(ProgramSlot { context, ..ProgramSlot::default() })
    }

    pub(super) fn context(&self) -> u64 {
        self.context
    }

    pub(super) fn program(&self) -> ClResult<&Program> {
        self.program.get().ok_or(ClError(CL_INVALID_PROGRAM))
    }

    /// The linker is done.
    pub(super) fn fill(&self, program: Program) {
        // A second program for the same id has nowhere to go.
        let _ = self.program.set(program);
    }

    pub(super) fn is_from_source(&self) -> bool {
        self.from_source
    }

    pub(super) fn set_params(&self, params: Params) {
        *self.params.lock().unwrap_or_else(PoisonError::into_inner) = params;
    }

    /// What the arguments of a kernel must be, if the vendor said so after the last build.
    pub(super) fn params_of(&self, kernel: &[u8]) -> Option<Arc<[Param]>> {
        self.params.lock().unwrap_or_else(PoisonError::into_inner).get(kernel).cloned()
    }
}

impl Session {
    pub(super) fn program(&self, id: u64) -> ClResult<&Program> {
        self.programs.get(id)?.program()
    }

    pub(super) fn create_program_with_source(&mut self, request: &CreateProgramWithSource, source: &[u8]) {
        self.output.look_for_printf(source);
        let context = self.context(request.context);
        let made = context.and_then(|context| context.create_program_with_source(source));
        let made = made.map(|program| ProgramSlot::new(program, request.context, true));
        let opcode = CreateProgramWithSource::OPCODE;
        self.link.created(opcode, "CreateProgramWithSource", request.context, request.id, &made);
        self.programs.insert(request.id, made);
    }

    pub(super) fn create_program_with_il(&mut self, request: &CreateProgramWithIl, il: &[u8]) {
        self.output.look_for_printf(il);
        let made = self.context(request.context).and_then(|context| context.create_program_with_il(il));
        let made = made.map(|program| ProgramSlot::new(program, request.context, false));
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
                (made.map(|program| ProgramSlot::new(program, request.context, false)), statuses)
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
            Ok(ProgramSlot::new(program, request.context, false))
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

    pub(super) fn program_binaries(&self, request: &ProgramBinaries) {
        let binaries = self.program(request.program).and_then(Program::binaries);
        let answer = binaries
            .map(|binaries| telecl_wire::encode(&Binaries { binaries: binaries.iter().map(Vec::as_slice).collect() }));
        self.link.answer("ProgramBinaries", request.call, &answer);
    }
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
