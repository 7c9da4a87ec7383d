//! What is kept of a built program: the report that its build gave, and its binary.
//!
//! The report is kept because a binary does not say everything: argument information and the build log are lost in it.
//! Where a report names what differs between sessions, the device's id and the directories of include trees, it is kept
//! with marks in their place.

use std::ffi::CStr;

use telecl_opencl::{ClResult, Context, Device, Program};
use telecl_sys::*;
use telecl_wire::reply::BuildReport;
use telecl_wire::request::TREE_MARK;

use super::compiler;
use super::includes::Tree;
use super::report::{Params, kernel_names, params_of, tree_directories};

const MARK: u8 = TREE_MARK as u8;

/// A report without what belongs to one session; `None` if it cannot be made again from that.
pub(crate) fn general(report: &[u8], trees: &[Tree]) -> Option<Vec<u8>> {
    let mut report: BuildReport<'_> = telecl_wire::decode(report).ok()?;
    let [build] = report.devices.as_mut_slice() else { return None };
    if build.status != CL_BUILD_SUCCESS {
        return None;
    }
    let log = marked(build.log, trees)?;
    (build.device, build.log) = (0, &log);
    for kernel in &mut report.kernels {
        kernel.devices.iter_mut().for_each(|device| device.device = 0);
    }
    report.trees.clear();
    Some(telecl_wire::encode(&report))
}

/// The report as this session's driver gets it, and what it says about arguments.
pub(crate) fn special(general: &[u8], device: u64, trees: &[Tree]) -> Option<(Vec<u8>, Params)> {
    let mut report: BuildReport<'_> = telecl_wire::decode(general).ok()?;
    let [build] = report.devices.as_mut_slice() else { return None };
    let log = unmarked(build.log, trees)?;
    (build.device, build.log) = (device, &log);
    for kernel in &mut report.kernels {
        kernel.devices.iter_mut().for_each(|on| on.device = device);
    }
    report.trees = tree_directories(trees);
    Some((telecl_wire::encode(&report), params_of(&report)))
}

/// What is kept of an executable with these binaries; `None` if it cannot be kept.
pub(crate) fn executable(general: &[u8], program: &Program, binaries: &[Vec<u8>]) -> Option<Vec<u8>> {
    let report: BuildReport<'_> = telecl_wire::decode(general).ok()?;
    if report.devices.first()?.binary_type != CL_PROGRAM_BINARY_TYPE_EXECUTABLE || !has_kernels_of(program, &report) {
        return None;
    }
    match binaries {
        [binary] if !binary.is_empty() => Some(telecl_wire::encode(&vec![general, binary])),
        _ => None,
    }
}

/// The general report and the binary of what was kept of an executable.
pub(crate) fn parts(entry: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    match telecl_wire::decode::<Vec<&[u8]>>(entry).ok()?.as_slice() {
        [general, binary] => Some((general, Some(binary))),
        _ => None,
    }
}

/// Whether nobody but the program should ask for its binary.
///
/// PoCL makes it only then: it compiles every kernel once more (hashcat's six kernels: 3 s, after a build of 10 s), and
/// holds a lock meanwhile without which no kernel starts. PoCL 3.1 even ends the process if a kernel with a required
/// work-group size is running.
pub(crate) fn is_left_to_program(device: &Device) -> bool {
    device.info_string(CL_DEVICE_VERSION).is_ok_and(|version| version.contains("PoCL"))
}

/// Makes an executable of its binary; `None` if the vendor refuses it, or makes something else of it.
pub(crate) fn load(
    context: &Context,
    device: &Device,
    options: &CStr,
    general: &[u8],
    binary: &[u8],
) -> Option<Program> {
    let devices = std::slice::from_ref(device);
    let made = || -> ClResult<Program> {
        let program = context.create_program_with_binary(devices, &[binary]).0?;
        compiler::run(|| program.build(devices, options))?;
        Ok(program)
    };
    let program = made().ok()?;
    let report: BuildReport<'_> = telecl_wire::decode(general).ok()?;
    has_kernels_of(&program, &report).then_some(program)
}

fn has_kernels_of(program: &Program, report: &BuildReport<'_>) -> bool {
    let Ok(mut names) = kernel_names(program) else { return false };
    let mut wanted: Vec<&[u8]> = report.kernels.iter().map(|kernel| kernel.name).collect();
    names.sort_unstable();
    wanted.sort_unstable();
    names == wanted
}

/// A log with marks in place of directories.
fn marked(log: &[u8], trees: &[Tree]) -> Option<Vec<u8>> {
    if log.contains(&MARK) {
        return None;
    }
    let mut places: Vec<(usize, &[u8])> = trees.iter().map(|tree| tree.directory.0.as_bytes()).enumerate().collect();
    // One may be the beginning of another.
    places.sort_by_key(|(_, directory)| std::cmp::Reverse(directory.len()));
    let mut marked = Vec::with_capacity(log.len());
    let mut rest = log;
    while let Some((&first, after)) = rest.split_first() {
        match places.iter().find(|(_, directory)| !directory.is_empty() && rest.starts_with(directory)) {
            Some((index, directory)) => {
                marked.extend_from_slice(format!("{TREE_MARK}{index}{TREE_MARK}").as_bytes());
                rest = &rest[directory.len()..];
            }
            None => {
                marked.push(first);
                rest = after;
            }
        }
    }
    Some(marked)
}

fn unmarked(log: &[u8], trees: &[Tree]) -> Option<Vec<u8>> {
    let mut unmarked = Vec::with_capacity(log.len());
    for (number, piece) in log.split(|&byte| byte == MARK).enumerate() {
        // Every second piece stands between two marks.
        if number % 2 == 0 {
            unmarked.extend_from_slice(piece);
        } else {
            let index: usize = std::str::from_utf8(piece).ok()?.parse().ok()?;
            unmarked.extend_from_slice(trees.get(index)?.directory.0.as_bytes());
        }
    }
    Some(unmarked)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use telecl_wire::reply::{ArgKind, ArgReport, DeviceBuild, KernelOnDevice, KernelReport};

    use super::super::includes::TreeDirectory;
    use super::*;

    fn tree(id: u64, directory: &str) -> Tree {
        Tree { id, directory: Arc::new(TreeDirectory(directory.to_owned())), digest: None, _counted: None }
    }

    fn report<'a>(device: u64, log: &'a [u8], trees: &'a [Tree]) -> BuildReport<'a> {
        let on = KernelOnDevice {
            device,
            work_group_size: 1,
            compile_work_group_size: [1, 2, 3],
            preferred_multiple: 4,
            local_mem_size: 5,
            private_mem_size: 6,
        };
        let arg = ArgReport {
            kind: ArgKind::Value,
            size: 16,
            info_status: CL_KERNEL_ARG_INFO_NOT_AVAILABLE,
            address_qualifier: 1,
            access_qualifier: 2,
            type_qualifier: 3,
            type_name: b"",
            name: b"",
        };
        BuildReport {
            devices: vec![DeviceBuild {
                device,
                status: CL_BUILD_SUCCESS,
                binary_type: CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
                log,
                global_variables: 7,
            }],
            kernels: vec![KernelReport { name: b"f", attributes: b"a", args: vec![arg], devices: vec![on] }],
            trees: tree_directories(trees),
        }
    }

    #[test]
    fn a_report_is_the_same_in_another_session_but_for_what_is_its_own() {
        let here = [tree(7, "/no/such/a/tree-7"), tree(77, "/no/such/a/tree-77")];
        let there = [tree(9, "/no/such/b/tree-9"), tree(8, "/no/such/b/tree-8")];
        let log = b"/no/such/a/tree-77/x.h: warning /no/such/a/tree-7/y.h and /no/such/a/tree-7";
        let general = general(&telecl_wire::encode(&report(3, log, &here)), &here).unwrap();
        let (special, params) = special(&general, 5, &there).unwrap();
        let log = b"/no/such/b/tree-8/x.h: warning /no/such/b/tree-9/y.h and /no/such/b/tree-9";
        assert_eq!(special, telecl_wire::encode(&report(5, log, &there)));
        assert_eq!((params[&b"f"[..]][0].kind, params[&b"f"[..]][0].size), (ArgKind::Value, 16));
    }

    #[test]
    fn what_cannot_be_made_again_is_not_kept() {
        let encoded = |report: &BuildReport<'_>| telecl_wire::encode(report);
        assert_eq!(general(&encoded(&report(1, b"\x01", &[])), &[]), None);
        let mut failed = report(1, b"", &[]);
        failed.devices[0].status = CL_BUILD_ERROR;
        assert_eq!(general(&encoded(&failed), &[]), None);
        let mut two = report(1, b"", &[]);
        two.devices.push(two.devices[0].clone());
        assert_eq!(general(&encoded(&two), &[]), None);
        assert_eq!(general(b"nonsense", &[]), None);
        // And what was kept may be nonsense, too.
        for nonsense in [&b""[..], b"nonsense", &encoded(&report(1, b"\x019\x01", &[]))] {
            assert!(special(nonsense, 1, &[]).is_none());
        }
        assert_eq!(parts(b"nonsense"), None);
    }
}
