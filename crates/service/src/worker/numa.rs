//! Keeps a worker on the processors next to its device, where the node has several groups of them (NUMA).
//!
//! Memory follows: unless it was told otherwise, the system takes it from where the thread runs that touches it first.
//! A worker whose session uses devices of several groups, or a CPU device, is left where it is, and one that was moved
//! before is put back. No thread is ever allowed more processors than it had.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use telecl_opencl::Device;
use telecl_sys::*;
use tracing::debug;

/// Where the worker is, and where its threads were before.
#[derive(Debug)]
pub(crate) struct Nearness {
    sys: PathBuf,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No context has been made yet.
    New,
    /// It keeps to one group.
    Kept(Box<Kept>),
    /// It is not to be moved any more.
    Free,
}

#[derive(Debug)]
struct Kept {
    group: u32,
    /// The processors that each thread had.
    before: HashMap<Pid, CpuSet>,
    /// Those that the thread had which makes contexts, and those it has now: threads that came later have them from it.
    had: CpuSet,
    has: CpuSet,
}

impl Nearness {
    pub(crate) fn new() -> Nearness {
        Nearness { sys: "/sys".into(), state: State::New }
    }

    /// A context is about to be made on these devices: before the vendor starts threads and takes memory for it.
    pub(crate) fn come_to(&mut self, devices: &[Device]) {
        if matches!(self.state, State::Free) {
            return;
        }
        let mut groups: Vec<Option<u32>> = devices.iter().map(|device| self.group_of(device)).collect();
        groups.dedup();
        match (groups.as_slice(), &self.state) {
            ([Some(group)], State::Kept(kept)) if *group == kept.group => {}
            ([Some(group)], State::New) => self.keep_to(*group),
            ([], _) => {}
            _ => self.go_back(),
        }
    }

    /// The group that a device is next to; `None` if that is not known, or if there is only one.
    fn group_of(&self, device: &Device) -> Option<u32> {
        // The processors of a CPU device are all it has.
        let kind = device.info_number(CL_DEVICE_TYPE).ok()?;
        if kind & CL_DEVICE_TYPE_CPU != 0 {
            return None;
        }
        group_at(&self.sys, &bus_address(|param| device.info(param).ok())?)
    }

    fn keep_to(&mut self, group: u32) {
        let Some(near) = processors_of(&self.sys, group) else { return };
        let Ok(had) = sched_getaffinity(None) else { return };
        let mut before = HashMap::new();
        // A thread that starts another while this looks is moved before it, or with it.
        while keep(&threads(), &near, &mut before) > 0 {}
        let Ok(has) = sched_getaffinity(None) else { return };
        debug!(group, threads = before.len(), "the worker keeps to the processors next to its device");
        self.state = State::Kept(Box::new(Kept { group, before, had, has }));
    }

    fn go_back(&mut self) {
        if let State::Kept(kept) = &self.state {
            let Kept { before, had, has, .. } = &**kept;
            for thread in threads() {
                // One that came later, and is somewhere else, was put there by the vendor.
                let inherited = || sched_getaffinity(Some(thread)).is_ok_and(|now| now == *has);
                if let Some(mask) = before.get(&thread).or_else(|| inherited().then_some(had)) {
                    // One that has ended needs nothing.
                    let _ = sched_setaffinity(Some(thread), mask);
                }
            }
            debug!("the worker keeps to no processors any more: its devices are not next to the same ones");
        }
        self.state = State::Free;
    }
}

/// All threads of this process.
fn threads() -> Vec<Pid> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw);
    entries.filter_map(number).collect()
}

/// Lets threads that are not in `before` run on those of their processors only that are among `near`, and notes there what
/// they had; one that has none of them is left alone. How many it noted.
fn keep(threads: &[Pid], near: &[usize], before: &mut HashMap<Pid, CpuSet>) -> usize {
    let noted = before.len();
    for thread in threads {
        if before.contains_key(thread) {
            continue;
        }
        let Ok(had) = sched_getaffinity(Some(*thread)) else { continue };
        if let Some(narrow) = narrowed(&had, near) {
            // One that has ended, or may not be moved, stays.
            let _ = sched_setaffinity(Some(*thread), &narrow);
        }
        before.insert(*thread, had);
    }
    before.len() - noted
}

/// What is left of a set; `None` if that is nothing, or all of it.
fn narrowed(had: &CpuSet, near: &[usize]) -> Option<CpuSet> {
    let mut narrow = CpuSet::new();
    for cpu in near.iter().copied().filter(|cpu| *cpu < CpuSet::MAX_CPU && had.is_set(*cpu)) {
        narrow.set(cpu);
    }
    (narrow.count() > 0 && narrow != *had).then_some(narrow)
}

/// Where a device is on the PCI bus, as the system writes it: `0000:3b:00.0`.
fn bus_address(ask: impl Fn(u32) -> Option<Vec<u8>>) -> Option<String> {
    let word =
        |bytes: &[u8], place: usize| bytes.get(4 * place..4 * place + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let number = |param| ask(param).and_then(|bytes| word(&bytes, 0));
    let (domain, bus, device, function) = if let Some(info) = ask(CL_DEVICE_PCI_BUS_INFO_KHR) {
        (word(&info, 0)?, word(&info, 1)?, word(&info, 2)?, word(&info, 3)?)
    } else if let Some(bus) = number(CL_DEVICE_PCI_BUS_ID_NV) {
        // The slot has the function in its low bits.
        let slot = number(CL_DEVICE_PCI_SLOT_ID_NV)?;
        (number(CL_DEVICE_PCI_DOMAIN_ID_NV).unwrap_or(0), bus, slot >> 3, slot & 7)
    } else {
        // A kind, 17 bytes of nothing, and three bytes.
        let topology =
            ask(CL_DEVICE_TOPOLOGY_AMD).filter(|bytes| word(bytes, 0) == Some(CL_DEVICE_TOPOLOGY_TYPE_PCIE_AMD))?;
        let byte = |place: usize| topology.get(place).copied().map(u32::from);
        (0, byte(21)?, byte(22)?, byte(23)?)
    };
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
}

/// The group that a place on the bus belongs to; `None` if the system does not know, or has one group only.
fn group_at(sys: &Path, address: &str) -> Option<u32> {
    let nodes = sys.join("devices/system/node");
    let groups = fs::read_dir(nodes).ok()?.flatten().filter(|entry| is_group(&entry.file_name().to_string_lossy()));
    if groups.count() < 2 {
        return None;
    }
    // -1 where the firmware does not say.
    read(&sys.join("bus/pci/devices").join(address).join("numa_node"))?.parse().ok()
}

fn is_group(name: &str) -> bool {
    name.strip_prefix("node").is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn processors_of(sys: &Path, group: u32) -> Option<Vec<usize>> {
    let list = read(&sys.join(format!("devices/system/node/node{group}/cpulist")))?;
    parse_list(&list).filter(|processors| !processors.is_empty())
}

/// `0-3,8,10-11`.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        all.extend(first..=last.min(CpuSet::MAX_CPU));
    }
    Some(all)
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `/sys` with two groups of processors, and a device next to the second.
    fn sys() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("devices/system/node/online", "0-1\n");
        write("devices/system/node/node0/cpulist", "0-3,8-11\n");
        write("devices/system/node/node1/cpulist", "4-7,12-15\n");
        write("bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
        write("bus/pci/devices/0000:5e:00.0/numa_node", "-1\n");
        sys
    }

    fn set(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.into_iter().for_each(|cpu| set.set(cpu));
        set
    }

    #[test]
    fn a_device_is_next_to_the_processors_that_the_system_names() {
        let sys = sys();
        assert_eq!(group_at(sys.path(), "0000:3b:00.0"), Some(1));
        assert_eq!(processors_of(sys.path(), 1).unwrap(), [4, 5, 6, 7, 12, 13, 14, 15]);
        assert_eq!(group_at(sys.path(), "0000:5e:00.0"), None, "not known");
        assert_eq!(group_at(sys.path(), "0000:ff:00.0"), None, "no such device");
        assert_eq!(processors_of(sys.path(), 7), None);
        fs::remove_dir_all(sys.path().join("devices/system/node/node0")).unwrap();
        assert_eq!(group_at(sys.path(), "0000:3b:00.0"), None, "one group is no choice");
        assert_eq!(parse_list("0-1,5"), Some(vec![0, 1, 5]));
        assert_eq!(parse_list(""), Some(Vec::new()));
        assert_eq!(parse_list("a-b"), None);
    }

    #[test]
    fn every_vendor_says_in_its_own_way_where_a_device_is() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let khronos = |param| (param == CL_DEVICE_PCI_BUS_INFO_KHR).then(|| words(&[1, 0x3b, 0, 2]));
        assert_eq!(bus_address(khronos).as_deref(), Some("0001:3b:00.2"));
        let nvidia = |param| match param {
            CL_DEVICE_PCI_BUS_ID_NV => Some(words(&[0xe4])),
            CL_DEVICE_PCI_SLOT_ID_NV => Some(words(&[1 << 3])),
            CL_DEVICE_PCI_DOMAIN_ID_NV => Some(words(&[0])),
            _ => None,
        };
        assert_eq!(bus_address(nvidia).as_deref(), Some("0000:e4:01.0"));
        let mut topology = words(&[CL_DEVICE_TOPOLOGY_TYPE_PCIE_AMD, 0, 0, 0, 0, 0]);
        topology[21..].copy_from_slice(&[0x83, 0, 1]);
        let amd = |param| (param == CL_DEVICE_TOPOLOGY_AMD).then(|| topology.clone());
        assert_eq!(bus_address(amd).as_deref(), Some("0000:83:00.1"));
        assert_eq!(bus_address(|_| None), None);
        assert_eq!(bus_address(|_| Some(Vec::new())), None, "an answer too short");
    }

    #[test]
    fn nobody_gets_processors_that_it_did_not_have() {
        assert_eq!(narrowed(&set(0..16), &[4, 5, 12]), Some(set([4, 5, 12])));
        assert_eq!(narrowed(&set([2, 5]), &[4, 5, 12]), Some(set([5])));
        assert_eq!(narrowed(&set([2, 3]), &[4, 5]), None, "none is left");
        assert_eq!(narrowed(&set([4]), &[4, 5]), None, "nothing would change");
        assert_eq!(narrowed(&set([1]), &[99_999]), None);
    }

    #[test]
    fn a_thread_is_kept_near_and_put_back() {
        let all = sched_getaffinity(None).unwrap();
        let Some(one) = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).filter(|_| all.count() > 1) else { return };
        // Another thread than those of other tests.
        std::thread::spawn(move || {
            let me = rustix::thread::gettid();
            let mut before = HashMap::new();
            assert_eq!(keep(&[me], &[one], &mut before), 1);
            assert_eq!(before.get(&me), Some(&all));
            assert_eq!(keep(&[me], &[one], &mut before), 0, "once is enough");
            assert_eq!(sched_getaffinity(None).unwrap(), set([one]));
            let child = std::thread::spawn(|| sched_getaffinity(None).unwrap()).join().unwrap();
            assert_eq!(child, set([one]), "threads that come later are near as well");
            sched_setaffinity(Some(me), &all).unwrap();
            assert_eq!(keep(&[me], &[], &mut HashMap::new()), 1);
            assert_eq!(sched_getaffinity(None).unwrap(), all, "nothing near is no reason to stop");
            assert!(threads().contains(&me));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_worker_that_was_put_back_is_not_moved_again() {
        let mut near = Nearness { sys: sys().path().to_owned(), state: State::New };
        near.come_to(&[]);
        assert!(matches!(near.state, State::New));
        near.go_back();
        assert!(matches!(near.state, State::Free));
        near.come_to(&[]);
        assert!(matches!(near.state, State::Free));
    }
}
