//! What Slurm offers plugins (`slurm/spank.h`), of which all releases since 20.11 have the same.

use std::ffi::{c_char, c_int, c_void};

/// Slurm's handle: nobody but Slurm looks behind it.
pub(crate) type Spank = *mut c_void;

/// Where a plugin runs: in srun.
pub(crate) const LOCAL: c_int = 1;
/// In slurmstepd.
pub(crate) const REMOTE: c_int = 2;
/// In sbatch and salloc.
pub(crate) const ALLOCATOR: c_int = 3;

/// An option of the command line.
#[repr(C)]
pub(crate) struct SpankOption {
    pub(crate) name: *const c_char,
    pub(crate) arginfo: *const c_char,
    pub(crate) usage: *const c_char,
    pub(crate) has_arg: c_int,
    pub(crate) val: c_int,
    pub(crate) callback: unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int,
}

unsafe extern "C" {
    pub(crate) fn spank_option_register(spank: Spank, option: *const SpankOption) -> c_int;
    pub(crate) fn spank_context() -> c_int;
    pub(crate) fn spank_setenv(spank: Spank, name: *const c_char, value: *const c_char, overwrite: c_int) -> c_int;
    pub(crate) fn spank_job_control_setenv(
        spank: Spank,
        name: *const c_char,
        value: *const c_char,
        overwrite: c_int,
    ) -> c_int;
}
