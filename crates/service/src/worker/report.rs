//! What a build came to: logs, kernels, and what is known about their arguments.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use telecl_opencl::{ClError, ClResult, Device, Kernel, Program, info};
use telecl_sys::*;
use telecl_wire::Ids;
use telecl_wire::reply::{ArgKind, ArgReport, BuildReport, DeviceBuild, KernelOnDevice, KernelReport, TreeDirectory};

use super::includes::Tree;
use super::vendor;

/// The driver's ids of the session's devices.
#[derive(Clone, Debug)]
pub(crate) struct DeviceIds(pub(crate) Vec<(u64, Device)>);

impl DeviceIds {
    /// Those of a request; all of them if it names none. (Which devices a program has is not asked of the vendor:
    /// PoCL 3.1 answers with the parents of sub-devices.)
    pub(crate) fn named(self, ids: Ids<'_>) -> DeviceIds {
        let named = |(id, _): &(u64, Device)| ids.is_empty() || ids.iter().any(|wanted| wanted == *id);
        DeviceIds(self.0.into_iter().filter(named).collect())
    }
}

/// Owns what a [`KernelReport`] refers to.
struct KernelFacts {
    name: Vec<u8>,
    attributes: Vec<u8>,
    args: Vec<ArgFacts>,
    devices: Vec<KernelOnDevice>,
}

/// Owns what an [`ArgReport`] refers to.
#[derive(Debug, Default)]
struct ArgFacts {
    size: u32,
    /// What trying it out has shown, where the vendor does not say.
    tried: Option<ArgKind>,
    info_status: i32,
    address_qualifier: u32,
    access_qualifier: u32,
    type_qualifier: u64,
    type_name: Vec<u8>,
    name: Vec<u8>,
}

/// What the worker itself remembers of an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    pub(crate) kind: ArgKind,
    /// Bytes of a plain value; 0 where that is not known.
    pub(crate) size: u32,
}

/// What a report says about arguments, as the worker remembers it.
pub(crate) fn params_of(report: &BuildReport<'_>) -> Params {
    let param = |arg: &ArgReport<'_>| Param { kind: arg.kind, size: arg.size };
    report.kernels.iter().map(|kernel| (kernel.name.to_vec(), kernel.args.iter().map(param).collect())).collect()
}

/// The arguments of a program's kernels, by kernel name.
pub(crate) type Params = HashMap<Vec<u8>, Arc<[Param]>>;

/// The encoded [`BuildReport`] of a program, and what its kernels' arguments are.
pub(crate) fn build_report(program: &Program, ids: &DeviceIds, trees: &[Tree], hides_args: bool) -> (Vec<u8>, Params) {
    let devices: Vec<&(u64, Device)> = ids.0.iter().collect();
    let logs: Vec<Vec<u8>> =
        devices.iter().map(|(_, device)| text(program.build_info(device, CL_PROGRAM_BUILD_LOG))).collect();
    let number = |device: &Device, param| program.build_info(device, param).ok().and_then(|value| info::number(&value));
    let builds: Vec<DeviceBuild<'_>> = devices
        .iter()
        .zip(&logs)
        .map(|((id, device), log)| DeviceBuild {
            device: *id,
            status: number(device, CL_PROGRAM_BUILD_STATUS).map_or(CL_BUILD_NONE, |status| status as u32 as i32),
            // Unknown before OpenCL 1.2, where whatever is built is an executable.
            binary_type: number(device, CL_PROGRAM_BINARY_TYPE)
                .map_or(CL_PROGRAM_BINARY_TYPE_EXECUTABLE, |kind| kind as u32),
            log,
            global_variables: number(device, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE).unwrap_or(0),
        })
        .collect();
    // Only an executable has kernels; Intel's runtime (2026) crashes when others are asked for them.
    let runs = |build: &DeviceBuild<'_>| {
        build.status == CL_BUILD_SUCCESS && build.binary_type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE
    };
    let built: Vec<_> =
        devices.iter().zip(&builds).filter(|(_, build)| runs(build)).map(|(device, _)| *device).collect();
    let kernels = if built.is_empty() { Vec::new() } else { kernels(program) };
    let facts: Vec<KernelFacts> = kernels.iter().map(|(name, kernel)| kernel_facts(name, kernel, &built)).collect();
    let report = BuildReport {
        devices: builds,
        kernels: facts.iter().map(|kernel| kernel.report(hides_args)).collect(),
        trees: tree_directories(trees),
    };
    (telecl_wire::encode(&report), params_of(&report))
}

pub(crate) fn tree_directories(trees: &[Tree]) -> Vec<TreeDirectory<'_>> {
    trees.iter().map(|tree| TreeDirectory { tree: tree.id, directory: &tree.directory.0 }).collect()
}

/// The kernels of an executable, in the vendor's order.
fn kernels(program: &Program) -> Vec<(Vec<u8>, Kernel)> {
    let Ok(names) = kernel_names(program) else {
        // Before OpenCL 1.2.
        let kernels = program.create_kernels().unwrap_or_default();
        return kernels.into_iter().map(|kernel| (text(kernel.info(CL_KERNEL_FUNCTION_NAME)), kernel)).collect();
    };
    names
        .into_iter()
        .filter_map(|name| {
            let kernel = program.create_kernel(&CString::new(name.clone()).ok()?).ok()?;
            Some((name, kernel))
        })
        .collect()
}

/// The names of an executable's kernels, in the vendor's order.
pub(crate) fn kernel_names(program: &Program) -> ClResult<Vec<Vec<u8>>> {
    let names = text(Ok(program.info(CL_PROGRAM_KERNEL_NAMES)?));
    Ok(names.split(|&byte| byte == b';').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// `kernel` is a throw-away: its arguments are tried out.
fn kernel_facts(name: &[u8], kernel: &Kernel, devices: &[&(u64, Device)]) -> KernelFacts {
    let count = kernel.info(CL_KERNEL_NUM_ARGS).ok().and_then(|value| info::number(&value)).unwrap_or(0);
    let count = u32::try_from(count).unwrap_or(0);
    let tells_handles_apart = devices.iter().any(|(_, device)| is_nvidia(device));
    KernelFacts {
        name: name.to_vec(),
        attributes: text(kernel.info(CL_KERNEL_ATTRIBUTES)),
        args: (0..count).map(|index| arg_facts(kernel, index, tells_handles_apart)).collect(),
        devices: devices.iter().map(|(id, device)| on_device(kernel, *id, device)).collect(),
    }
}

fn on_device(kernel: &Kernel, id: u64, device: &Device) -> KernelOnDevice {
    let ask = |param| kernel.work_group_info(Some(device), param).unwrap_or_default();
    let number = |param| info::number(&ask(param)).unwrap_or(0);
    let mut compile_work_group_size = [0; 3];
    let sizes = ask(CL_KERNEL_COMPILE_WORK_GROUP_SIZE);
    for (size, bytes) in compile_work_group_size.iter_mut().zip(sizes.chunks_exact(size_of::<usize>())) {
        *size = info::number(bytes).unwrap_or(0);
    }
    KernelOnDevice {
        device: id,
        work_group_size: number(CL_KERNEL_WORK_GROUP_SIZE),
        compile_work_group_size,
        preferred_multiple: number(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE),
        local_mem_size: number(CL_KERNEL_LOCAL_MEM_SIZE),
        private_mem_size: number(CL_KERNEL_PRIVATE_MEM_SIZE),
    }
}

fn arg_facts(kernel: &Kernel, index: u32, tells_handles_apart: bool) -> ArgFacts {
    let ask = || -> ClResult<ArgFacts> {
        let number = |param| kernel.arg_info(index, param).map(|value| info::number(&value).unwrap_or(0));
        Ok(ArgFacts {
            size: 0,
            tried: None,
            info_status: CL_SUCCESS,
            address_qualifier: number(CL_KERNEL_ARG_ADDRESS_QUALIFIER)? as u32,
            access_qualifier: number(CL_KERNEL_ARG_ACCESS_QUALIFIER)? as u32,
            type_qualifier: number(CL_KERNEL_ARG_TYPE_QUALIFIER)?,
            type_name: text(Ok(kernel.arg_info(index, CL_KERNEL_ARG_TYPE_NAME)?)),
            name: text(Ok(kernel.arg_info(index, CL_KERNEL_ARG_NAME)?)),
        })
    };
    let mut facts = match ask() {
        Ok(facts) => facts,
        Err(error) => {
            let (tried, size) = tried_kind(kernel, index, tells_handles_apart);
            return ArgFacts { info_status: error.code(), tried, size, ..ArgFacts::default() };
        }
    };
    if facts.kind() == ArgKind::Value {
        facts.size = builtin_size(&facts.type_name).unwrap_or_else(|| tried_size(kernel, index));
    }
    facts
}

impl KernelFacts {
    fn report(&self, hides_args: bool) -> KernelReport<'_> {
        let mut args: Vec<_> = self.args.iter().map(ArgFacts::report).collect();
        if hides_args {
            for arg in &mut args {
                (arg.info_status, arg.type_name, arg.name) = (CL_KERNEL_ARG_INFO_NOT_AVAILABLE, &[], &[]);
            }
        }
        KernelReport { name: &self.name, attributes: &self.attributes, args, devices: self.devices.clone() }
    }
}

impl ArgFacts {
    fn kind(&self) -> ArgKind {
        if self.info_status != CL_SUCCESS {
            return self.tried.unwrap_or(ArgKind::Unknown);
        }
        arg_kind(self.address_qualifier, self.type_qualifier, &self.type_name)
    }

    fn report(&self) -> ArgReport<'_> {
        ArgReport {
            kind: self.kind(),
            size: self.size,
            info_status: self.info_status,
            address_qualifier: self.address_qualifier,
            access_qualifier: self.access_qualifier,
            type_qualifier: self.type_qualifier,
            type_name: &self.type_name,
            name: &self.name,
        }
    }
}

/// What an argument is. Compilers give images and pipes any address space, so their type comes first.
fn arg_kind(address_qualifier: u32, type_qualifier: u64, type_name: &[u8]) -> ArgKind {
    let is_pointer = type_name.ends_with(b"*");
    if type_qualifier & CL_KERNEL_ARG_TYPE_PIPE != 0 {
        return ArgKind::Pipe;
    }
    if !is_pointer {
        match type_name {
            b"sampler_t" => return ArgKind::Sampler,
            b"queue_t" => return ArgKind::Queue,
            name if name.starts_with(b"image") && name.ends_with(b"_t") => return ArgKind::Image,
            _ => {}
        }
    }
    match address_qualifier {
        CL_KERNEL_ARG_ADDRESS_LOCAL => ArgKind::Local,
        CL_KERNEL_ARG_ADDRESS_GLOBAL | CL_KERNEL_ARG_ADDRESS_CONSTANT => ArgKind::Buffer,
        CL_KERNEL_ARG_ADDRESS_PRIVATE => ArgKind::Value,
        _ => ArgKind::Unknown,
    }
}

/// Bytes of a type of OpenCL C; `None` for types of the program, and for those whose size is the device's.
fn builtin_size(type_name: &[u8]) -> Option<u32> {
    let name = std::str::from_utf8(type_name).ok()?;
    let (name, unsigned) = match name.strip_prefix("unsigned ") {
        Some(rest) => (rest, true),
        None => (name, false),
    };
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (base, width) = name.split_at(name.len() - digits);
    let size = match (base, unsigned) {
        ("char", _) | ("uchar", false) => 1,
        ("short", _) | ("ushort" | "half", false) => 2,
        ("int", _) | ("uint" | "float", false) => 4,
        ("long", _) | ("ulong" | "double", false) => 8,
        _ => return None,
    };
    let width = match width {
        "" => 1,
        "2" => 2,
        // Has the size and the alignment of four.
        "3" | "4" => 4,
        "8" => 8,
        "16" => 16,
        _ => return None,
    };
    Some(size * width)
}

/// Finds out by trial what an argument is, and the size of a plain value. Seen on NVIDIA (driver 580), which forgets
/// what arguments are unless the program asked to know, but tells wrong ones apart: a local argument takes no value, a
/// buffer takes a null pointer, and a null handle is an error for images and samplers only.
fn tried_kind(kernel: &Kernel, index: u32, tells_handles_apart: bool) -> (Option<ArgKind>, u32) {
    const HANDLE: usize = size_of::<usize>();
    let refusal = |tried: ClResult<()>| tried.err().map(ClError::code);
    if refusal(vendor::set_arg_bytes(kernel, index, &[0])) == Some(CL_INVALID_ARG_VALUE) {
        return (Some(ArgKind::Local), 0);
    }
    if kernel.set_arg_local(index, HANDLE).is_ok() {
        return (Some(ArgKind::Buffer), 0);
    }
    match refusal(vendor::set_arg_bytes(kernel, index, &[0; HANDLE])) {
        Some(CL_INVALID_MEM_OBJECT) => (Some(ArgKind::Image), 0),
        Some(CL_INVALID_SAMPLER) => (Some(ArgKind::Sampler), 0),
        Some(CL_INVALID_ARG_SIZE) => (Some(ArgKind::Value), tried_size(kernel, index)),
        // Of the size of a handle: a number only where handles are told apart, and PoCL 3.1 does not.
        None if tells_handles_apart => (Some(ArgKind::Value), tried_size(kernel, index)),
        _ => (None, 0),
    }
}

/// Whether the device is one of NVIDIA, for what only their driver does.
pub(crate) fn is_nvidia(device: &Device) -> bool {
    device.info_string(CL_DEVICE_VENDOR).is_ok_and(|vendor| vendor.contains("NVIDIA"))
}

/// Finds the size of a value by trial: the only one that the vendor takes. 0 if it takes any, or none.
fn tried_size(kernel: &Kernel, index: u32) -> u32 {
    const LARGEST: usize = 1024;
    let zeros = [0; LARGEST + 1];
    let takes = |size: usize| vendor::set_arg_bytes(kernel, index, &zeros[..size]).is_ok();
    match (1..=LARGEST).find(|&size| takes(size)) {
        Some(size) if !takes(size + 1) => size as u32,
        _ => 0,
    }
}

/// An answer that is text, without its NUL.
fn text(answer: ClResult<Vec<u8>>) -> Vec<u8> {
    let mut text = answer.unwrap_or_default();
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_builtin_types_are_those_of_the_specification() {
        for (name, size) in [
            ("char", 1),
            ("uchar", 1),
            ("unsigned char", 1),
            ("short3", 8),
            ("half", 2),
            ("int", 4),
            ("uint4", 16),
            ("float3", 16),
            ("float16", 64),
            ("long", 8),
            ("ulong2", 16),
            ("double8", 64),
            ("unsigned int", 4),
        ] {
            assert_eq!(builtin_size(name.as_bytes()), Some(size), "{name}");
        }
        for name in ["bool", "size_t", "struct s", "u32", "float5", "float*", "int32", "unsigned float", "", "3"] {
            assert_eq!(builtin_size(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn kinds_follow_the_type_and_then_the_address_space() {
        let (private, global) = (CL_KERNEL_ARG_ADDRESS_PRIVATE, CL_KERNEL_ARG_ADDRESS_GLOBAL);
        for (address, name, kind) in [
            (global, "float*", ArgKind::Buffer),
            (CL_KERNEL_ARG_ADDRESS_CONSTANT, "int*", ArgKind::Buffer),
            (CL_KERNEL_ARG_ADDRESS_LOCAL, "float*", ArgKind::Local),
            (global, "image2d_t", ArgKind::Image),
            (private, "image2d_array_msaa_depth_t", ArgKind::Image),
            (private, "sampler_t", ArgKind::Sampler),
            (private, "queue_t", ArgKind::Queue),
            (private, "struct s", ArgKind::Value),
            (global, "image_like_t*", ArgKind::Buffer),
            (77, "int", ArgKind::Unknown),
        ] {
            assert_eq!(arg_kind(address, 0, name.as_bytes()), kind, "{name}");
        }
        assert_eq!(arg_kind(global, CL_KERNEL_ARG_TYPE_PIPE, b"int"), ArgKind::Pipe);
    }
}
