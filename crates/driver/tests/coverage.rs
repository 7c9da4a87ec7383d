//! `docs/opencl-coverage.md` says what the one list of entry points says.
#![allow(clippy::unwrap_used, reason = "clippy takes only #[test] functions for tests")]

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use telecl::abi::COVERAGE;
use telecl_sys::SLOTS;

/// Where each part of the dispatch table begins. The order of slots is that of the specification's history.
const PARTS: &[(&str, &str)] = &[
    ("clGetPlatformIDs", "OpenCL 1.0"),
    ("clCreateFromGLBuffer", "OpenCL 1.0: cl_khr_gl_sharing"),
    ("clGetDeviceIDsFromD3D10KHR", "OpenCL 1.0: cl_khr_d3d10_sharing"),
    ("clSetEventCallback", "OpenCL 1.1"),
    ("clCreateSubDevicesEXT", "OpenCL 1.1: cl_ext_device_fission"),
    ("clCreateEventFromGLsyncKHR", "OpenCL 1.1: cl_khr_gl_event"),
    ("clCreateSubDevices", "OpenCL 1.2"),
    ("clCreateFromGLTexture", "OpenCL 1.2: cl_khr_gl_sharing"),
    ("clGetDeviceIDsFromD3D11KHR", "OpenCL 1.2: cl_khr_d3d11_sharing and cl_khr_dx9_media_sharing"),
    ("clCreateFromEGLImageKHR", "OpenCL 1.2: cl_khr_egl_image and cl_khr_egl_event"),
    ("clCreateCommandQueueWithProperties", "OpenCL 2.0"),
    ("clGetKernelSubGroupInfoKHR", "OpenCL 2.0: cl_khr_subgroups"),
    ("clCloneKernel", "OpenCL 2.1"),
    ("clSetProgramReleaseCallback", "OpenCL 2.2"),
    ("clCreateBufferWithProperties", "OpenCL 3.0"),
];

struct Part {
    title: &'static str,
    entry_points: Vec<(&'static str, &'static str)>,
}

impl Part {
    fn refusing(&self) -> usize {
        self.entry_points.iter().filter(|(_, what)| refuses(what)).count()
    }
}

/// Whether an entry point only says that it cannot be had: it answers with an error, or with nothing.
fn refuses(what: &str) -> bool {
    ["CL_", "returns NULL", "does nothing"].iter().any(|start| what.starts_with(start))
}

fn parts() -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (name, what) in COVERAGE {
        if let Some((_, title)) = PARTS.iter().find(|(first, _)| first == name) {
            parts.push(Part { title, entry_points: Vec::new() });
        }
        parts.last_mut().unwrap().entry_points.push((name, what));
    }
    parts
}

/// The page as it would be written now.
fn page() -> String {
    let parts = parts();
    let all: usize = parts.iter().map(|part| part.entry_points.len()).sum();
    let refusing: usize = parts.iter().map(Part::refusing).sum();
    let mut page = String::from(
        "# OpenCL coverage\n\n\
         <!-- Made from the list of entry points in crates/driver/src/abi/table.rs. Do not edit; regenerate with:\n\
         TELECL_BLESS=1 cargo test -p telecl-driver --test coverage -->\n\n\
         What each slot of the dispatch table of OpenCL 3.0 does in telecl's driver. *Local* needs no message; *one-way* sends\n\
         one and does not wait; what *waits* costs a round trip. An entry point that *refuses* is one that no remote device can\n\
         serve, or that devices do not offer through telecl: it answers with an error of OpenCL (the two of SVM that return no code:\n\
         with NULL and with nothing). No slot is empty.\n\n",
    );
    writeln!(page, "Of {all} entry points {} work and {refusing} refuse.\n", all - refusing).unwrap();
    page.push_str("| part | entry points | work | refuse |\n|---|---:|---:|---:|\n");
    for part in &parts {
        let (count, refusing) = (part.entry_points.len(), part.refusing());
        writeln!(page, "| {} | {count} | {} | {refusing} |", part.title, count - refusing).unwrap();
    }
    for part in &parts {
        writeln!(page, "\n## {}\n\n| entry point | | what it does |\n|---|---|---|", part.title).unwrap();
        for (name, what) in &part.entry_points {
            let verdict = if refuses(what) { "refuses" } else { "works" };
            writeln!(page, "| `{name}` | {verdict} | {what} |").unwrap();
        }
    }
    page
}

#[test]
fn the_page_is_fresh() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/opencl-coverage.md");
    let page = page();
    if std::env::var_os("TELECL_BLESS").is_some() {
        fs::write(path, page).unwrap();
        return;
    }
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page,
        "docs/opencl-coverage.md does not say what crates/driver/src/abi/table.rs says; regenerate it with \
         TELECL_BLESS=1 cargo test -p telecl-driver --test coverage"
    );
}

#[test]
fn every_slot_is_in_one_part() {
    let names: Vec<&str> = parts().iter().flat_map(|part| &part.entry_points).map(|(name, _)| *name).collect();
    assert_eq!(names, SLOTS);
    assert_eq!(parts().len(), PARTS.len(), "a part begins with a name that is no slot");
}

#[test]
fn every_entry_point_says_what_it_does() {
    for (name, what) in COVERAGE {
        assert!(!what.trim().is_empty() && !what.contains(['|', '\n']), "{name}: {what:?}");
    }
}
