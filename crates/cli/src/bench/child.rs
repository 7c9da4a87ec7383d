//! The hidden command `telecl bench-child`: one path's measurements, in a process of its own.
//!
//! It reads requests and writes replies, one JSON object a line, and ends with its input. Its
//! environment says which OpenCL it sees, so that all paths run the same code.

use std::fs;
use std::io::{self, BufRead};
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use telecl_opencl::{Device, Library, Platform};
use telecl_probe::{Rig, Spinner};
use telecl_sys::*;

use super::measure::Bench;
use super::tenants::{self, Task};
use crate::exit::{Exit, Failure, Outcome, print};

#[derive(Debug, Args)]
pub(crate) struct BenchChildArgs {
    /// Does this once and ends, instead of answering requests
    #[arg(long, value_enum)]
    once: Option<Once>,
    /// The name of the device to use
    #[arg(long)]
    device: Option<String>,
}

/// What a new process is measured at.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Once {
    /// Lists all devices, as clinfo does.
    Start,
    /// Runs a first kernel.
    Context,
    /// Says how much memory a first kernel took.
    Memory,
}

/// What a parent asks for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Get a device ready. The answer is [`Reply::Ready`].
    Open(Wanted),
    /// One round of a test.
    Run { test: String, count: u32 },
    /// Launch and finish for so many milliseconds. The values are launches and seconds.
    LaunchFor { milliseconds: u64 },
    /// Get a device ready for what follows. The answer is [`Reply::Ready`].
    OpenLoad(Wanted),
    /// Load it.
    Load(Task),
}

/// Which device to use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Wanted {
    /// The first GPU, or else the first device.
    Any,
    NameContains(String),
    Named(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Ready(DeviceFacts),
    Values(Vec<f64>),
    Error(String),
}

/// What is said about the device that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceFacts {
    pub(crate) name: String,
    pub(crate) platform: String,
    pub(crate) vendor: String,
    /// Of the driver, and of OpenCL.
    pub(crate) driver: String,
    pub(crate) version: String,
    pub(crate) is_cpu: bool,
    /// NVIDIA's driver is measured by bars of its own.
    pub(crate) is_nvidia: bool,
}

pub(crate) fn bench_child(args: &BenchChildArgs) -> Outcome {
    // It must not outlive its parent, even while a driver hangs. Where that cannot be asked for, the end of the input
    // ends it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    match args.once {
        None => answer_all(),
        Some(once) => do_once(once, args.device.as_deref()),
    }
}

fn answer_all() -> Outcome {
    let mut desk = Desk::default();
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let reply = match serde_json::from_str(&line) {
            Ok(request) => answer(&mut desk, request).unwrap_or_else(Reply::Error),
            Err(error) => Reply::Error(format!("not a request: {error}")),
        };
        say(&reply);
    }
    Ok(Exit::Ok)
}

/// What has been got ready.
#[derive(Default)]
struct Desk {
    bench: Option<Bench>,
    load: Option<Spinner>,
}

fn answer(desk: &mut Desk, request: Request) -> Result<Reply, String> {
    const CLOSED: &str = "no device is open";
    match request {
        Request::Open(wanted) => {
            let (platform, device) = choose(&wanted)?;
            let rig = Rig::new(&platform, &device).map_err(|failure| failure.to_string())?;
            desk.bench = Some(Bench::new(rig));
            Ok(Reply::Ready(describe(&platform, &device)))
        }
        Request::Run { test, count } => {
            let bench = desk.bench.as_mut().ok_or(CLOSED)?;
            bench.run(&test, count).map(Reply::Values).map_err(|trouble| trouble.to_string())
        }
        Request::LaunchFor { milliseconds } => {
            let bench = desk.bench.as_mut().ok_or(CLOSED)?;
            let (launched, seconds) =
                bench.launch_for(Duration::from_millis(milliseconds)).map_err(|error| error.to_string())?;
            Ok(Reply::Values(vec![launched as f64, seconds]))
        }
        Request::OpenLoad(wanted) => {
            let (platform, device) = choose(&wanted)?;
            desk.load = Some(Spinner::new(&platform, &device).map_err(|failure| failure.to_string())?);
            Ok(Reply::Ready(describe(&platform, &device)))
        }
        Request::Load(task) => {
            let spinner = desk.load.as_ref().ok_or(CLOSED)?;
            tenants::run(spinner, &task).map(Reply::Values).map_err(|error| error.to_string())
        }
    }
}

fn do_once(once: Once, device: Option<&str>) -> Outcome {
    let wanted = device.map_or(Wanted::Any, |name| Wanted::Named(name.to_owned()));
    let done = match once {
        Once::Start => all_devices().map(|devices| vec![devices.len() as f64]),
        Once::Context => first_kernel(&wanted).map(|_| Vec::new()),
        Once::Memory => {
            let before = resident();
            first_kernel(&wanted).map(|_rig| vec![resident() - before])
        }
    };
    match done {
        Ok(values) => {
            say(&Reply::Values(values));
            Ok(Exit::Ok)
        }
        Err(reason) => {
            say(&Reply::Error(reason.clone()));
            Err(Failure::new(Exit::Failed, reason, ""))
        }
    }
}

/// The rig, so that what it holds counts.
fn first_kernel(wanted: &Wanted) -> Result<Rig, String> {
    let (platform, device) = choose(wanted)?;
    Rig::new(&platform, &device).map_err(|failure| failure.to_string())
}

fn say(reply: &Reply) {
    // Numbers, strings and lists: this cannot fail.
    let line = serde_json::to_string(reply).unwrap_or_default();
    print(format_args!("{line}\n"));
}

/// All devices of this path, with their names.
fn all_devices() -> Result<Vec<(Platform, Device, String)>, String> {
    let library = Library::load().map_err(|error| {
        format!("{:#}. Install an OpenCL loader: apt-get install ocl-icd-libopencl1", anyhow::Error::new(error))
    })?;
    // A path through telecl would be another one if it used what a loader adds to it, and so would direct.
    let through_telecl = through_telecl();
    let is_telecl = |platform: &Platform| {
        platform.info_string(CL_PLATFORM_EXTENSIONS).is_ok_and(|list| list.contains("cl_telecl_node"))
    };
    let platforms = library.platforms().map_err(|error| error.to_string())?;
    if through_telecl && !platforms.is_empty() && !platforms.iter().any(is_telecl) {
        return Err(format!(
            "the OpenCL loader {} finds other drivers, but not telecl's: it does not obey OCL_ICD_VENDORS. \
             Name one that does (ocl-icd, Khronos) in TELECL_OPENCL_LIBRARY or by LD_LIBRARY_PATH",
            library.name().display()
        ));
    }
    let mut found = Vec::new();
    for platform in platforms.into_iter().filter(|platform| is_telecl(platform) == through_telecl) {
        for device in platform.devices(CL_DEVICE_TYPE_ALL).unwrap_or_default() {
            let name = device.info_string(CL_DEVICE_NAME).unwrap_or_default().trim().to_owned();
            found.push((platform, device, name));
        }
    }
    Ok(found)
}

/// Only direct's environment silences telecl's driver.
fn through_telecl() -> bool {
    std::env::var_os(telecl_config::INSIDE_SERVICE).is_none()
}

fn choose(wanted: &Wanted) -> Result<(Platform, Device), String> {
    let devices = all_devices()?;
    let fits = |name: &str| match wanted {
        Wanted::Any => true,
        Wanted::NameContains(part) => name.to_lowercase().contains(&part.to_lowercase()),
        Wanted::Named(whole) => name == whole,
    };
    let is_gpu = |device: &Device| device.info_number(CL_DEVICE_TYPE).is_ok_and(|kind| kind & CL_DEVICE_TYPE_GPU != 0);
    let fitting = || devices.iter().filter(|(_, _, name)| fits(name));
    let chosen = fitting().find(|(_, device, _)| is_gpu(device)).or_else(|| fitting().next());
    chosen.map(|(platform, device, _)| (*platform, device.clone())).ok_or_else(|| {
        let names: Vec<&str> = devices.iter().map(|(_, _, name)| name.as_str()).collect();
        match (wanted, names.as_slice()) {
            (_, []) if through_telecl() => {
                "telecl's driver shows no device. telecl doctor checks every part".to_owned()
            }
            (_, []) => "no OpenCL device is found on this machine".to_owned(),
            (Wanted::NameContains(name) | Wanted::Named(name), names) => {
                format!("no device is named {name}; there is {}", names.join(", "))
            }
            (Wanted::Any, _) => "no OpenCL device can be used".to_owned(),
        }
    })
}

fn describe(platform: &Platform, device: &Device) -> DeviceFacts {
    let text = |param| device.info_string(param).unwrap_or_default().trim().to_owned();
    let vendor = text(CL_DEVICE_VENDOR);
    DeviceFacts {
        name: text(CL_DEVICE_NAME),
        platform: platform.info_string(CL_PLATFORM_NAME).unwrap_or_default().trim().to_owned(),
        driver: text(CL_DRIVER_VERSION),
        version: text(CL_DEVICE_VERSION),
        is_cpu: device.info_number(CL_DEVICE_TYPE).is_ok_and(|kind| kind & CL_DEVICE_TYPE_CPU != 0),
        is_nvidia: vendor.contains("NVIDIA"),
        vendor,
    }
}

/// Bytes of memory that are this process's own or shared, but not those of files.
///
/// Counted page by page, unlike RssAnon and RssShmem in `/proc/self/status`: of those each core keeps a part for itself,
/// and what is left out grows with the number of cores (here: 24 of 140 KiB, with two).
fn resident() -> f64 {
    resident_in(&fs::read_to_string("/proc/self/smaps").unwrap_or_default())
}

/// Anonymous pages of all mappings, and all pages of shared memory.
fn resident_in(smaps: &str) -> f64 {
    let mut shared = false;
    let mut kibibytes = 0.0;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let Some(key) = first.strip_suffix(':') else {
            // The head of a mapping; its sixth word is the file, if there is one.
            let file = words.nth(4).unwrap_or_default();
            shared = ["/memfd:", "/dev/shm/", "/SYSV", "/dev/zero"].iter().any(|start| file.starts_with(start));
            continue;
        };
        if key == if shared { "Rss" } else { "Anonymous" } {
            kibibytes += words.next().and_then(|number| number.parse::<f64>().ok()).unwrap_or_default();
        }
    }
    kibibytes * 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_is_our_own_or_shared_and_no_file() {
        let smaps = "\
5581c0a00000-5581c0b00000 r-xp 00000000 08:01 77                         /usr/bin/telecl
Rss:                1000 kB
Anonymous:             8 kB
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
Rss:                 200 kB
Anonymous:           200 kB
7f0000200000-7f0000300000 rw-s 00000000 00:01 12                         /memfd:telecl (deleted)
Rss:                  64 kB
Anonymous:             0 kB
";
        assert_eq!(resident_in(smaps), 272.0 * 1024.0);
        assert!(resident() > 0.0);
    }
}
