//! Which files a process may use: the system's libraries and programs, devices, what the kernel says about itself and
//! about the process, and one directory that is its own.
//!
//! Everything else is closed to it, whoever the files belong to: homes, `/etc` but for what loaders read, `/var`, `/run`,
//! `/tmp`, shared memory, and other processes in `/proc`. Landlock also keeps it from other processes' memory, and, where
//! the kernel is new enough, from their signals, abstract sockets and TCP.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use crate::Plan;
use crate::report::{Level, Part};

const NAME: &str = "files";

/// What is asked for; an older kernel does what it can.
const WANTED: ABI = ABI::V6;

/// Libraries, and programs such as the linker that PoCL starts.
const SYSTEM: &[&str] = &[
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/sbin",
    "/usr",
    "/nix/store",
    "/run/opengl-driver",
    // Vendors' own places.
    "/opt/amdgpu",
    "/opt/intel",
    "/opt/nvidia",
    "/opt/rocm",
];

/// What loaders, C libraries and vendors' libraries look into.
const SETTINGS: &[&str] = &[
    "/etc/OpenCL",
    "/etc/alternatives",
    "/etc/debian_version",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/nvidia",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/redhat-release",
    "/proc/bus/pci",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/driver",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/stat",
    "/proc/sys",
    "/proc/uptime",
    "/proc/version",
    "/proc/vmstat",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices",
    "/sys/firmware",
    "/sys/fs/cgroup",
    "/sys/hypervisor",
    "/sys/kernel/mm",
    "/sys/module",
    "/dev/random",
    "/dev/urandom",
];

/// Read and written by everybody.
const EVERYBODYS: &[&str] = &["/dev/full", "/dev/null", "/dev/zero"];

/// How the names of accelerators below /dev begin.
const ACCELERATORS: &[&str] = &["accel", "dri", "dxg", "kfd", "mali", "nvidia", "nvgpu", "nvhost", "nvmap"];

/// The kernel knows a process's directory in /proc by an object that it may drop when nobody uses it.
static OWN: OnceLock<PathFd> = OnceLock::new();

/// The devices of this machine that a worker may need, and directories of such.
pub(crate) fn devices() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let wanted =
        |name: &OsString| name.to_str().is_some_and(|name| ACCELERATORS.iter().any(|start| name.starts_with(start)));
    entries.filter(|entry| wanted(&entry.file_name())).map(|entry| entry.path()).collect()
}

/// Applies to this thread and those that it starts.
pub(crate) fn confine(plan: &Plan) -> Part {
    match restrict(plan) {
        Ok(RestrictionStatus { ruleset: RulesetStatus::FullyEnforced, landlock, .. }) => {
            Part::new(NAME, Level::Enforced, version(landlock))
        }
        Ok(RestrictionStatus { ruleset: RulesetStatus::PartiallyEnforced, landlock, .. }) => {
            Part::new(NAME, Level::Partly, format!("{}; the filter of system calls does the rest", version(landlock)))
        }
        Ok(RestrictionStatus { landlock, .. }) => Part::new(NAME, Level::Missing, version(landlock)),
        Err(error) => Part::new(NAME, Level::Missing, format!("Landlock: {error}")),
    }
}

fn version(landlock: LandlockStatus) -> String {
    match landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            format!("Landlock {}", kernel_abi.unwrap_or(effective_abi as i32))
        }
        LandlockStatus::NotEnabled => {
            "Landlock is switched off: add it to lsm= of the kernel's command line".to_owned()
        }
        _ => "this kernel has no Landlock: Linux 5.13 has".to_owned(),
    }
}

fn restrict(plan: &Plan) -> Result<RestrictionStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let execute = read | AccessFs::Execute;
    let write = read | AccessFs::WriteFile | AccessFs::Truncate;
    let device = write | AccessFs::IoctlDev;
    let (nodes, further): (Vec<PathBuf>, Vec<PathBuf>) =
        plan.paths.iter().cloned().partition(|path| path.starts_with("/dev"));
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, execute))?
        .add_rules(path_beneath_rules(named_by_variables(), execute))?
        .add_rules(path_beneath_rules(further, execute))?
        .add_rules(path_beneath_rules(SETTINGS, read))?
        .add_rules(path_beneath_rules(env::current_exe(), read))?
        .add_rules(path_beneath_rules(EVERYBODYS, write))?
        .add_rules(path_beneath_rules(devices().into_iter().chain(nodes), device))?
        .add_rules(path_beneath_rules([&plan.scratch], own_directory()))?
        .add_rules(own_process(write))?;
    rules.restrict_self()
}

/// All but devices and programs.
fn own_directory() -> BitFlags<AccessFs> {
    AccessFs::from_all(WANTED) & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

/// The process's own directory in /proc, which is kept open from now on.
fn own_process(access: BitFlags<AccessFs>) -> Option<Result<PathBeneath<&'static PathFd>, RulesetError>> {
    let opened = PathFd::new("/proc/self").ok()?;
    let kept = OWN.get_or_init(|| opened);
    Some(Ok(PathBeneath::new(kept, access)))
}

/// Where this process's environment says that vendors' libraries are.
fn named_by_variables() -> Vec<PathBuf> {
    let mut found = lists("LD_LIBRARY_PATH");
    found.extend(lists("LD_PRELOAD"));
    let variable = |name: &str| env::var_os(name).map(PathBuf::from);
    let vendors = variable("OCL_ICD_VENDORS").or_else(|| variable("OPENCL_VENDOR_PATH"));
    found.extend(vendors.clone());
    let libraries = icd_files(vendors.as_deref().unwrap_or(Path::new("/etc/OpenCL/vendors")));
    let libraries = libraries.into_iter().chain(lists("OCL_ICD_FILENAMES")).chain(variable("TELECL_OPENCL_LIBRARY"));
    found.extend(libraries.filter_map(|library| home_of(&library)));
    found.retain(|path| path.is_absolute() && path.parent().is_some());
    found
}

/// A variable with paths that have colons between them.
fn lists(name: &str) -> Vec<PathBuf> {
    env::var_os(name).map(|value| env::split_paths(&value).collect()).unwrap_or_default()
}

/// The libraries that ICD files name.
fn icd_files(place: &Path) -> Vec<PathBuf> {
    let files: Vec<PathBuf> = match fs::read_dir(place) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![place.to_owned()],
    };
    let files = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "icd"));
    files.filter_map(|file| fs::read_to_string(file).ok()).map(|text| PathBuf::from(text.trim())).collect()
}

/// What belongs to a library: its directory, or all of its package below /opt.
fn home_of(library: &Path) -> Option<PathBuf> {
    if let Ok(below) = library.strip_prefix("/opt") {
        return below.components().next().map(|package| Path::new("/opt").join(package));
    }
    // Loaders look at what a link leads to.
    let directories = [library.to_owned()].into_iter().chain(fs::canonicalize(library));
    directories.last().and_then(|file| file.parent().map(Path::to_owned))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::thread;

    use super::*;

    #[test]
    fn a_confined_thread_has_its_directory_and_the_system_and_no_more() {
        let (scratch, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = others.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        let plan = Plan { scratch: scratch.path().to_owned(), ..Plan::default() };
        let tried = thread::spawn(move || {
            assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
            assert_ne!(confine(&plan).level, Level::Missing);
            let denied =
                |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            denied(fs::read(&secret).map(drop));
            denied(fs::write(&secret, "changed"));
            denied(fs::remove_file(&secret));
            denied(fs::read_dir("/tmp").map(drop));
            denied(fs::read_dir("/proc").map(drop));
            denied(fs::read("/proc/1/status").map(drop));
            denied(fs::write("/usr/x", ""));
            let own = plan.scratch.join("own");
            fs::write(&own, "own").unwrap();
            fs::create_dir(plan.scratch.join("place")).unwrap();
            fs::rename(&own, plan.scratch.join("place/own")).unwrap();
            assert!(fs::read("/proc/self/status").is_ok() && fs::read("/proc/thread-self/stat").is_ok());
            assert!(fs::read("/proc/cpuinfo").is_ok() && fs::read_dir("/usr/lib").is_ok());
        });
        tried.join().unwrap();
    }

    #[test]
    fn what_belongs_to_a_library_is_known() {
        assert_eq!(home_of(Path::new("/opt/vendor/v2/lib/libcl.so")), Some("/opt/vendor".into()));
        assert_eq!(home_of(Path::new("/srv/vendor/libcl.so")), Some("/srv/vendor".into()));
        assert_eq!(home_of(Path::new("libcl.so")), Some("".into()));
    }
}
