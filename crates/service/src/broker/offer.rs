//! What the node has: asked of a child process once, narrowed to what the operator wants to offer.

use std::collections::HashSet;
use std::io::{self, Read};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use telecl_opencl::info::{number, string};
use telecl_policy::{DeviceFacts, Devices};
use telecl_sys::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_NAME, CL_DEVICE_PCI_BUS_ID_NV, CL_DEVICE_PCI_BUS_INFO_KHR,
    CL_DEVICE_PCI_DOMAIN_ID_NV, CL_DEVICE_PCI_SLOT_ID_NV, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU, CL_DEVICE_UUID_KHR,
    CL_PLATFORM_NAME, CL_SUCCESS,
};
use telecl_wire::info::{Info, Inventory, Platform};
use tracing::{info, warn};

use super::scratch::Scratch;
use super::{ServeSettings, confinement};
use crate::sensors::bus;

/// A vendor's driver that starts a GPU from cold may take its time; one that hangs must not take ours.
const PATIENCE: Duration = Duration::from_secs(60);

/// More than any node has; bounds what a broken driver can make us read.
const LONGEST: usize = 64 << 20;

/// What drivers are told about the node. Read once and kept for the life of the process.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    pub(crate) platforms: Vec<Platform<'static>>,
    known: Vec<Arc<Known>>,
}

/// What a policy, or whoever looks after the service, asks about a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) platform: String,
    pub(crate) uuid: Option<String>,
    /// Its place on the PCI bus.
    pub(crate) bus: Option<String>,
    /// In bytes.
    pub(crate) memory: u64,
    pub(crate) is_cpu: bool,
}

impl Offer {
    pub(crate) fn device_count(&self) -> usize {
        self.platforms.iter().map(|platform| platform.devices.len()).sum()
    }

    fn new(platforms: Vec<Platform<'static>>) -> Offer {
        let known = platforms.iter().flat_map(|platform| {
            platform.devices.iter().map(|device| {
                Arc::new(Known {
                    id: device.id,
                    name: name(&device.info, CL_DEVICE_NAME),
                    platform: name(&platform.info, CL_PLATFORM_NAME),
                    uuid: uuid(&device.info),
                    bus: place_on_bus(&device.info),
                    memory: value(&device.info, CL_DEVICE_GLOBAL_MEM_SIZE).and_then(number).unwrap_or_default(),
                    is_cpu: value(&device.info, CL_DEVICE_TYPE)
                        .and_then(number)
                        .is_some_and(|kind| kind & CL_DEVICE_TYPE_CPU != 0),
                })
            })
        });
        Offer { known: known.collect(), platforms }
    }

    /// All devices.
    pub(crate) fn known(&self) -> &[Arc<Known>] {
        &self.known
    }

    pub(crate) fn device(&self, id: u64) -> Option<&Known> {
        self.known.iter().find(|known| known.id == id).map(|known| &**known)
    }

    /// What a policy asks about one of the devices.
    pub(crate) fn facts(&self, id: u64) -> Option<DeviceFacts<'_>> {
        self.known.iter().find(|known| known.id == id).map(|known| known.facts())
    }

    /// The numbers of all devices.
    pub(crate) fn device_ids(&self) -> impl Iterator<Item = u64> {
        self.known.iter().map(|known| known.id)
    }

    /// Bytes of a device's memory, as far as that is known.
    pub(crate) fn memory(&self, id: u64) -> Option<u64> {
        self.known.iter().find(|known| known.id == id).map(|known| known.memory).filter(|memory| *memory > 0)
    }

    /// The numbers of the devices that a policy allows.
    pub(crate) fn allowed(&self, devices: &Devices) -> Vec<u64> {
        self.known.iter().filter(|known| devices.allow(&known.facts())).map(|known| known.id).collect()
    }

    /// What is offered, with these devices only. Numbers stay as they are.
    pub(crate) fn with_devices(&self, ids: &[u64]) -> Vec<Platform<'static>> {
        let mut platforms = self.platforms.clone();
        platforms.retain_mut(|platform| {
            platform.devices.retain(|device| ids.contains(&device.id));
            // A platform without devices helps nobody, and some programs fail on one.
            !platform.devices.is_empty()
        });
        platforms
    }
}

impl Known {
    fn facts(&self) -> DeviceFacts<'_> {
        let Known { id, name, platform, uuid, .. } = self;
        DeviceFacts { number: *id, name, platform, uuid: uuid.as_deref() }
    }
}

/// Asks a child process what the node has. Nothing is not an error: the service starts, says so, and offers nothing.
pub(crate) fn take_inventory(settings: &ServeSettings, scratch: &Scratch) -> Offer {
    let bytes = match ask(settings, scratch) {
        Ok(bytes) => bytes,
        Err(error) => {
            warn!(%error, "cannot find out what this node has; offering nothing");
            return Offer::default();
        }
    };
    // Never freed: every welcome refers to it.
    let inventory: Inventory<'static> = match telecl_wire::decode(Vec::leak(bytes)) {
        Ok(inventory) => inventory,
        Err(error) => {
            warn!(%error, "the inventory of this node is unreadable; offering nothing");
            return Offer::default();
        }
    };
    if inventory.platforms.is_empty() {
        warn!(
            "no OpenCL platform on this node; offering nothing (is a vendor's OpenCL driver installed? see clinfo; if \
            it is in a place that workers may not read, name that in worker_paths, or try with confine = \"off\")"
        );
        return Offer::default();
    }
    let offer = select(inventory, &settings.platforms, &settings.devices);
    if offer.platforms.is_empty() {
        warn!("no device of this node matches the chosen platforms and devices; offering nothing");
    }
    for platform in &offer.platforms {
        for device in &platform.devices {
            let (platform, name) = (name(&platform.info, CL_PLATFORM_NAME), name(&device.info, CL_DEVICE_NAME));
            info!(device = device.id, name, platform, "offering device");
        }
    }
    offer
}

/// Confined as a worker is, so that what is offered is what workers find.
fn ask(settings: &ServeSettings, scratch: &Scratch) -> io::Result<Vec<u8>> {
    let scratch = scratch.worker()?;
    let mut command = confinement::command(settings, &scratch);
    command.arg("--inventory").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let answer = read_answer(&mut child, Instant::now() + PATIENCE);
    if answer.is_err() {
        // It may have ended by itself.
        let _ = child.kill();
    }
    let status = child.wait()?;
    match answer {
        Ok(_) if !status.success() => Err(io::Error::other(format!("the inventory process ended with {status}"))),
        other => other,
    }
}

fn read_answer(child: &mut Child, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "a vendor's driver does not answer")),
            Err(Errno::INTR) => continue,
            other => other?,
        };
        match output.read(&mut buffer)? {
            0 => return Ok(bytes),
            n => bytes.extend_from_slice(&buffer[..n]),
        }
        if bytes.len() > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the inventory is absurdly long"));
        }
    }
}

/// Keeps the devices whose name contains one of `devices`, on platforms whose name contains one of `platforms`.
fn select(inventory: Inventory<'static>, platforms: &[String], devices: &[String]) -> Offer {
    let mut unused: HashSet<&String> = platforms.iter().chain(devices).collect();
    let mut matches = |name: &str, wanted: &[String]| {
        let name = name.to_lowercase();
        let hits: Vec<_> = wanted.iter().filter(|part| name.contains(&part.to_lowercase())).collect();
        unused.retain(|part| !hits.contains(part));
        wanted.is_empty() || !hits.is_empty()
    };
    let mut chosen = inventory.platforms;
    chosen.retain_mut(|platform| {
        if !matches(&name(&platform.info, CL_PLATFORM_NAME), platforms) {
            return false;
        }
        platform.devices.retain(|device| matches(&name(&device.info, CL_DEVICE_NAME), devices));
        // A platform without devices helps nobody, and some programs fail on one.
        !platform.devices.is_empty()
    });
    for part in unused {
        warn!(name = part, "no platform or device of this node has a name like this");
    }
    Offer::new(chosen)
}

fn value<'i>(info: &'i [Info<'_>], param: u32) -> Option<&'i [u8]> {
    info.iter().find(|info| info.param == param && info.status == CL_SUCCESS).map(|info| info.value)
}

/// A name goes to logs, tables and metrics: without control characters.
fn name(info: &[Info<'_>], param: u32) -> String {
    let name = value(info, param).map(string).unwrap_or_default();
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn uuid(info: &[Info<'_>]) -> Option<String> {
    let uuid = value(info, CL_DEVICE_UUID_KHR)?;
    (uuid.len() == 16).then(|| uuid.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn place_on_bus(info: &[Info<'_>]) -> Option<String> {
    if let Some(place) = value(info, CL_DEVICE_PCI_BUS_INFO_KHR) {
        let mut words = place.chunks_exact(4).filter_map(|word| number(word)?.try_into().ok());
        return Some(bus(words.next()?, words.next()?, words.next()?));
    }
    let word = |param| value(info, param).and_then(number).and_then(|word| u32::try_from(word).ok());
    Some(bus(word(CL_DEVICE_PCI_DOMAIN_ID_NV)?, word(CL_DEVICE_PCI_BUS_ID_NV)?, word(CL_DEVICE_PCI_SLOT_ID_NV)?))
}

#[cfg(test)]
mod tests {
    use telecl_wire::info::Device;

    use super::*;

    fn named(param: u32, value: &'static [u8]) -> Vec<Info<'static>> {
        vec![Info { param, status: CL_SUCCESS, value }]
    }

    fn node() -> Inventory<'static> {
        let uuid = || Info { param: CL_DEVICE_UUID_KHR, status: CL_SUCCESS, value: b"0123456789abcdef" };
        const GPU: &[u8] = &[4, 0, 0, 0, 0, 0, 0, 0];
        // The default one, too.
        const CPU: &[u8] = &[3, 0, 0, 0, 0, 0, 0, 0];
        let device = |id, name, kind| Device {
            id,
            info: [named(CL_DEVICE_NAME, name), named(CL_DEVICE_TYPE, kind), vec![uuid()]].concat(),
        };
        Inventory {
            platforms: vec![
                Platform {
                    index: 0,
                    info: named(CL_PLATFORM_NAME, b"NVIDIA CUDA\0"),
                    devices: vec![device(1, b"H200\0", GPU), device(2, b"A100\0", GPU)],
                },
                Platform {
                    index: 1,
                    info: named(CL_PLATFORM_NAME, b"Portable Computing Language\0"),
                    devices: vec![device(3, b"cpu-haswell\0", CPU)],
                },
            ],
        }
    }

    fn chosen(platforms: &[&str], devices: &[&str]) -> String {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let offer = select(node(), &owned(platforms), &owned(devices));
        offer.known.iter().map(|known| known.id.to_string()).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn a_tenant_sees_what_its_policy_allows_under_the_same_numbers() {
        let offer = select(node(), &[], &[]);
        let seen = |devices: &str| {
            let policy = format!("[defaults]\ndevices = {devices}\n");
            let policy = telecl_policy::Policy::parse(std::path::Path::new("p"), &policy).unwrap();
            let ids = offer.allowed(&policy.for_tenant(&telecl_policy::Tenant::anonymous()).devices.value);
            let platforms = offer.with_devices(&ids);
            assert!(platforms.iter().flat_map(|platform| &platform.devices).map(|device| device.id).eq(ids));
            platforms.iter().map(|p| (p.index, p.devices.iter().map(|d| d.id).collect())).collect::<Vec<_>>()
        };
        assert_eq!(seen("[\"*\"]"), [(0, vec![1, 2]), (1, vec![3])]);
        assert_eq!(seen("[\"a100\", \"number:3\"]"), [(0, vec![2]), (1, vec![3])]);
        assert_eq!(seen("[\"platform:portable*\"]"), [(1, vec![3])]);
        assert_eq!(seen("[\"uuid:30313233-3435-3637-3839-616263646566\"]").len(), 2);
        assert_eq!(seen("[]"), []);
    }

    #[test]
    fn processors_are_told_from_other_devices() {
        let offer = select(node(), &[], &[]);
        assert_eq!(offer.known().iter().map(|known| known.is_cpu).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn everything_is_offered_unless_something_is_chosen() {
        assert_eq!(chosen(&[], &[]), "1,2,3");
        assert_eq!(chosen(&["nvidia"], &[]), "1,2");
        assert_eq!(chosen(&["nvidia", "portable"], &["h200", "CPU"]), "1,3");
        assert_eq!(chosen(&[], &["a100"]), "2");
        assert_eq!(chosen(&["amd"], &[]), "");
    }
}
