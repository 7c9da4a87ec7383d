//! What this crate's tests run on: the first device of the node's own OpenCL.

use std::io::{self, Write};

use telecl_sys::*;

use crate::{Context, Device, Library, Platform};

/// The node's OpenCL. A machine without the library cannot run these tests; with one, everything must work.
pub(crate) fn library() -> Option<&'static Library> {
    match Library::load() {
        Ok(library) => Some(library),
        Err(error) => {
            // Not `eprintln!`, which the test harness hides when a test passes.
            let _ = writeln!(io::stderr(), "SKIPPED, install pocl-opencl-icd to run this: {error}");
            None
        }
    }
}

pub(crate) fn device() -> Option<(Platform, Device)> {
    let library = library()?;
    for platform in library.platforms().unwrap() {
        if let Some(device) = platform.devices(CL_DEVICE_TYPE_ALL).unwrap().into_iter().next() {
            return Some((platform, device));
        }
    }
    panic!("there is an OpenCL library, but no device: install pocl-opencl-icd");
}

pub(crate) fn context() -> Option<(Context, Device)> {
    let (platform, device) = device()?;
    let context = Context::new(&platform, std::slice::from_ref(&device), None).unwrap();
    Some((context, device))
}
