//! How workers are confined, and how those are started that will be. They do it themselves, before they load a
//! vendor's library: see [`telecl_confine`].

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use rustix::system::sysinfo;
use telecl_confine::{Mode, Plan};
use tracing::{debug, warn};

use super::homes::Homes;
use super::offer::Offer;
use super::scratch::{Scratch, WorkerScratch};
use super::{ServeError, ServeSettings, launch};
use crate::environment;

/// No distribution, and none of the programs that make user namespaces, gives these to anybody.
const NOBODYS: RangeInclusive<u32> = 1_900_000_000..=1_900_009_999;

/// Caches of vendors that would be looked for elsewhere than below HOME.
const VENDORS_CACHES: &[&str] = &["POCL_CACHE_DIR", "CUDA_CACHE_PATH", "NEO_CACHE_DIR", "SYCL_CACHE_DIR"];

/// What a service is told about the confinement of its workers.
#[derive(Clone, Debug)]
pub struct Confinement {
    pub mode: Mode,
    /// The users that workers become if the service is root; `None` leaves them root.
    pub users: Option<RangeInclusive<u32>>,
    /// How many bytes of memory of its own each may have.
    pub memory: Option<u64>,
    /// What they may read and execute beside what all may.
    pub paths: Vec<PathBuf>,
}

impl Default for Confinement {
    /// As far as the system can, and no further vendors' paths.
    fn default() -> Self {
        Confinement { mode: Mode::On, users: Some(NOBODYS), memory: Some(Confinement::all_memory()), paths: Vec::new() }
    }
}

impl Confinement {
    /// All the memory of this machine, in bytes.
    pub fn all_memory() -> u64 {
        let machine = sysinfo();
        let unit = u64::from(machine.mem_unit).max(1);
        (machine.totalram as u64).saturating_add(machine.totalswap as u64).saturating_mul(unit)
    }

    /// The users to choose from, if workers get others than the service has.
    pub(crate) fn users(&self) -> Option<RangeInclusive<u32>> {
        self.users.clone().filter(|_| self.mode != Mode::Off && geteuid().is_root())
    }
}

/// Whether workers can be confined as they have to be. What merely would be better is logged.
pub(crate) fn check(confinement: &Confinement, scratch: &mut Scratch) -> Result<(), ServeError> {
    if confinement.mode == Mode::Require {
        telecl_confine::insist(Mode::Require, telecl_confine::survey())?;
    }
    match scratch.try_users() {
        Err(error) if confinement.mode == Mode::Require => return Err(ServeError::Users(error)),
        Err(error) => warn!(%error, "workers stay root; set worker_uids to ids that there are here and nobody uses"),
        Ok(()) => {}
    }
    Ok(())
}

/// What tenants' compilers keep, where they do not keep it in one place.
pub(crate) fn homes(confinement: &Confinement, scratch: &Scratch) -> io::Result<Homes> {
    Ok(Homes::new(if confinement.mode == Mode::Off { None } else { Some(scratch.homes()?) }))
}

/// A process that confines itself before it loads a vendor's library. All that it starts is in a process group with it.
pub(crate) fn command(settings: &ServeSettings, scratch: &WorkerScratch) -> Command {
    let Confinement { mode, memory, paths, .. } = settings.confinement.clone();
    let place = scratch.path();
    let plan = Plan { mode, user: scratch.user(), scratch: place.to_owned(), paths, memory };
    let mut command = launch::command(&settings.worker);
    command
        .env(environment::SCRATCH, place)
        // Compilers leave files behind when they are killed.
        .env("TMPDIR", place)
        .env(environment::PLAN, serde_json::to_string(&plan).unwrap_or_default())
        .process_group(0);
    if mode != Mode::Off {
        // What a compiler keeps for the next time is code that would be run by others: see `homes.rs`.
        let home = scratch.home();
        command.env("XDG_CACHE_HOME", home.join(".cache")).env("HOME", home).env_remove("XDG_RUNTIME_DIR");
        for name in VENDORS_CACHES {
            command.env_remove(name);
        }
    }
    command
}

/// Says so if devices are missing that ought to be there: a confined process may not have found what its driver needs.
pub(crate) fn look_for_missing(settings: &ServeSettings, offer: &Offer) {
    let all_wanted = settings.platforms.is_empty() && settings.devices.is_empty();
    let has_nvidia = || offer.known().iter().any(|device| device.platform.contains("NVIDIA"));
    if settings.confinement.mode != Mode::Off && all_wanted && Path::new("/dev/nvidiactl").exists() && !has_nvidia() {
        warn!(
            "there is an NVIDIA driver here, but no device of it: if clinfo shows one, start with --confine off, and if that \
             helps, name what workers need in worker_paths (docs/trust.md)"
        );
    }
}

/// NVIDIA's libraries have a privileged helper make device files that are not there yet. Workers cannot.
pub(crate) fn make_device_files(confinement: &Confinement) {
    let needed = confinement.mode != Mode::Off
        && Path::new("/proc/driver/nvidia").exists()
        && fs::metadata("/dev/nvidia-uvm").is_err();
    if needed {
        let helper = Command::new("nvidia-modprobe").args(["-u", "-c=0"]).stdin(Stdio::null()).status();
        debug!(?helper, "asked nvidia-modprobe to make /dev/nvidia-uvm");
    }
}
