//! A SPANK plugin: `--remote-accel=N[,mem=SIZE]` for srun, sbatch and salloc.
//!
//! It checks the option and hands it on: to the site's prolog and epilog (`SPANK_REMOTE_ACCEL`), which give the job a credential
//! and take it back, to the controller's `job_submit.lua`, which asks for licenses, and to the job (`TELECL_REMOTE_ACCEL`). It opens
//! no file and no connection. The functions that it calls are those of the program that loads it.

mod accel;
mod api;

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use accel::Accel;
use api::{Spank, SpankOption};

/// What Slurm takes for success, and for failure.
const DONE: c_int = 0;
const WRONG: c_int = -1;

/// Slurm loads plugins of its own release only.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static plugin_version: c_uint = release();
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static plugin_name: [u8; 7] = *b"telecl\0";
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static plugin_type: [u8; 6] = *b"spank\0";
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static spank_plugin_version: c_uint = 1;

/// What was asked for, in this process. Held for a line.
static ASKED: Mutex<Option<Accel>> = Mutex::new(None);

/// The number that the build script found.
const fn release() -> c_uint {
    let digits = env!("TELECL_SLURM_VERSION_NUMBER").as_bytes();
    let (mut number, mut at) = (0, 0);
    while at < digits.len() {
        number = number * 10 + (digits[at] - b'0') as c_uint;
        at += 1;
    }
    number
}

/// Slurm must never see an unwind because of us.
fn guarded(body: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(WRONG)
}

/// Registers the option, wherever the plugin is loaded.
///
/// # Safety
/// Slurm calls it, with its own handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init(spank: Spank, _count: c_int, _arguments: *mut *mut c_char) -> c_int {
    guarded(|| {
        let option = SpankOption {
            name: c"remote-accel".as_ptr(),
            arginfo: c"N[,mem=SIZE]".as_ptr(),
            usage: c"use N accelerators of other nodes (telecl), with SIZE of memory each".as_ptr(),
            has_arg: 1,
            val: 0,
            callback: take_option,
        };
        // SAFETY: `spank` is the handle that Slurm gave us; it copies the option, whose texts live for ever.
        unsafe { api::spank_option_register(spank, &option) }
    })
}

/// Slurm has found the option; `remote` where it hands over what was checked before.
unsafe extern "C" fn take_option(_val: c_int, argument: *const c_char, _remote: c_int) -> c_int {
    guarded(|| {
        if argument.is_null() {
            return WRONG;
        }
        // SAFETY: Slurm's argument is a text that ends with a zero, and it is not null.
        let text = unsafe { CStr::from_ptr(argument) }.to_string_lossy();
        match text.parse::<Accel>() {
            Ok(accel) => {
                *ASKED.lock().unwrap_or_else(PoisonError::into_inner) = Some(accel);
                DONE
            }
            Err(reason) => {
                eprintln!("error: --remote-accel={text}: {reason}");
                WRONG
            }
        }
    })
}

/// All options are known: hands ours on.
///
/// # Safety
/// Slurm calls it, with its own handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init_post_opt(spank: Spank, _count: c_int, _arguments: *mut *mut c_char) -> c_int {
    guarded(|| {
        let Some(accel) = *ASKED.lock().unwrap_or_else(PoisonError::into_inner) else { return DONE };
        let Ok(value) = CString::new(accel.to_string()) else { return WRONG };
        // SAFETY: it takes nothing.
        match unsafe { api::spank_context() } {
            // SAFETY: `spank` is Slurm's handle, both texts end with a zero and are copied.
            api::LOCAL | api::ALLOCATOR => unsafe {
                api::spank_job_control_setenv(spank, c"REMOTE_ACCEL".as_ptr(), value.as_ptr(), 1)
            },
            // SAFETY: as above; this is the environment of the job's tasks.
            api::REMOTE => unsafe { api::spank_setenv(spank, c"TELECL_REMOTE_ACCEL".as_ptr(), value.as_ptr(), 1) },
            _ => DONE,
        }
    })
}
