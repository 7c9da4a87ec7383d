//! Platforms: one for each platform of each service, nearest service first.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use telecl_config::{Address, DriverConfig};
use telecl_sys::*;
use telecl_wire::request::{Query, Target};

use super::device::Device;
use super::extensions::{offered_list, offered_text};
use super::info::{InfoValue, c_string};
use crate::registry::{Handle, lock};
use crate::session::{Asking, InfoTable, Node, NodePlatform, Place, Session, connect, connect_again, connect_all};
use crate::{log, process};

/// A vendor's platform on a service.
#[derive(Debug)]
pub(crate) struct Platform {
    handle: Box<Handle>,
    pub(crate) node: Arc<ServiceNode>,
    /// The service's number for it.
    pub(crate) index: u32,
    info: InfoTable,
    pub(crate) devices: Vec<Arc<Device>>,
}

/// A service that answered when the program enumerated platforms.
#[derive(Debug)]
pub(crate) struct ServiceNode {
    /// Its place among the nodes; names its session in the process state.
    place: usize,
    pub(crate) facts: Node,
    config: DriverConfig,
}

/// The platforms of all services that are configured and answer; found once per process.
pub(crate) fn platforms() -> &'static [Platform] {
    static PLATFORMS: OnceLock<Vec<Platform>> = OnceLock::new();
    PLATFORMS.get_or_init(discover)
}

pub(crate) fn find_platform(address: usize) -> ClResult<&'static Platform> {
    platforms().iter().find(|platform| platform.address() == address).ok_or(ClError(CL_INVALID_PLATFORM))
}

/// The device behind a handle: a root device, which lives as long as the process, or a sub-device.
pub(crate) fn find_device(address: usize) -> ClResult<Arc<Device>> {
    platforms()
        .iter()
        .flat_map(|platform| &platform.devices)
        .find(|device| device.address() == address)
        .cloned()
        .map_or_else(|| crate::registry::lookup(address), Ok)
}

fn discover() -> Vec<Platform> {
    let config = match DriverConfig::load() {
        Ok(config) => config,
        Err(error) => {
            log::error(format_args!("{error}; no remote devices are offered"));
            return Vec::new();
        }
    };
    log::enable_debug(config.debug);
    if config.services.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (address, result) in connect_all(&config.services, &Asking::of(&config)) {
        match result {
            Ok(node_and_session) => found.push(node_and_session),
            Err(error) if error.is_for_user() => log::error(format_args!("no service at {address}: {error}")),
            Err(error) => log::debug(format_args!("no service at {address}: {error}")),
        }
    }
    // Nearest first, then the one with least to do; the order of the configuration decides between equals.
    found.sort_by_key(|(node, _)| (!node.same_node, node.round_trip.as_micros() / 100, node.load));
    let mut platforms = Vec::new();
    for (place, (mut facts, session)) in found.into_iter().enumerate() {
        lock(&process::state().sessions).by_node.insert(place, Arc::clone(&session));
        let offered = std::mem::take(&mut facts.platforms);
        let node = Arc::new(ServiceNode { place, facts, config: config.clone() });
        for platform in offered {
            let number = platforms.len();
            let platform = Platform::new(number, &node, platform);
            platform.devices.iter().for_each(|device| device.adopt(&session));
            platforms.push(platform);
        }
    }
    platforms
}

impl ServiceNode {
    /// The live session with the service. Connects anew after a fork, or if the last one was lost.
    pub(crate) fn session(&self) -> ClResult<Arc<Session>> {
        let mut sessions = lock(&process::state().sessions);
        if let Some(session) = sessions.by_node.get(&self.place).filter(|session| !session.is_gone()) {
            if session.is_started() {
                return Ok(Arc::clone(session));
            }
            let session = self.nearer(session, self.facts.instance);
            session.start(&self.config)?;
            self.adopt(&session);
            sessions.by_node.insert(self.place, Arc::clone(&session));
            return Ok(session);
        }
        if process::is_exiting() {
            return Err(ClError(CL_DEVICE_NOT_AVAILABLE));
        }
        let (now, session) = connect_again(&self.facts, &Asking::of(&self.config)).map_err(|error| {
            let say = if error.is_for_user() { log::error } else { log::debug };
            say(format_args!("no service at {}: {error}", self.facts.address));
            ClError(CL_DEVICE_NOT_AVAILABLE)
        })?;
        if !has_all(&now, &offered_by(self)) {
            log::debug(format_args!("the service at {} no longer offers the same devices", self.facts.address));
            return Err(ClError(CL_DEVICE_NOT_AVAILABLE));
        }
        let session = self.nearer(&session, now.instance);
        session.start(&self.config)?;
        self.adopt(&session);
        sessions.by_node.insert(self.place, Arc::clone(&session));
        Ok(session)
    }

    /// A session with the same run of the service through its Unix socket, if it is on this node and can be reached there; else the
    /// one there is.
    fn nearer(&self, session: &Arc<Session>, instance: u64) -> Arc<Session> {
        let Node { same_node, socket, address, .. } = &self.facts;
        let local = Address::Unix(socket.into());
        let possible = self.config.shared_memory && *same_node && !socket.is_empty() && *address != local;
        // In another container the path may be missing, or stand for another service.
        let found = if possible && Path::new(socket).exists() {
            connect(&Place::from(&local), &Asking::of(&self.config)).ok()
        } else {
            None
        };
        match found {
            // There the program is its user, whom a policy may allow less than those who come over the network.
            Some((node, nearer)) if node.instance == instance => {
                // Who has shown who it is stays that.
                let same = self.facts.tenant == "anonymous" || self.facts.tenant == node.tenant;
                if same && has_all(&node, &offered_by(self)) {
                    return nearer;
                }
                if !same {
                    let (ours, theirs) = (&self.facts.tenant, &node.tenant);
                    log::debug(format_args!(
                        "{local} knows this program as {theirs}, not as {ours}: {address} is used"
                    ));
                    return Arc::clone(session);
                }
                log::debug(format_args!("{local} does not offer all devices of {address}, which is used instead"));
                Arc::clone(session)
            }
            _ => Arc::clone(session),
        }
    }

    /// The session there is, lost or not.
    pub(super) fn present_session(&self) -> Option<Arc<Session>> {
        lock(&process::state().sessions).by_node.get(&self.place).cloned()
    }

    /// This session is the one from now on: its tenant may be another, with other limits.
    fn adopt(&self, session: &Session) {
        let own = platforms().iter().filter(|platform| platform.node.place == self.place);
        own.flat_map(|platform| &platform.devices).for_each(|device| device.adopt(session));
    }

    pub(crate) fn strict(&self) -> bool {
        self.config.strict
    }

    /// The host and the port, or a socket's path and 0.
    pub(crate) fn host_and_port(&self) -> (String, u16) {
        match &self.facts.address {
            telecl_net::Address::Tcp { host, port, .. } => (host.clone(), *port),
            telecl_net::Address::Unix(path) => (path.display().to_string(), 0),
        }
    }
}

/// What makes devices the same: their number, id and name.
fn devices_of(node: &Node) -> Vec<(u32, u64, String)> {
    let devices = |platform: &NodePlatform| -> Vec<(u32, u64, String)> {
        platform.devices.iter().map(|device| (platform.index, device.id, device.info.text(CL_DEVICE_NAME))).collect()
    };
    node.platforms.iter().flat_map(devices).collect()
}

/// Whether a service still has all the devices that the program knows; it may have more.
fn has_all(node: &Node, known: &[(u32, u64, String)]) -> bool {
    let offered = devices_of(node);
    known.iter().all(|device| offered.contains(device))
}

fn offered_by(node: &ServiceNode) -> Vec<(u32, u64, String)> {
    platforms()
        .iter()
        .filter(|platform| platform.node.place == node.place)
        .flat_map(|platform| platform.devices.iter().map(|device| (platform.index, device.id(), device.name())))
        .collect()
}

impl Platform {
    fn new(number: usize, node: &Arc<ServiceNode>, offered: NodePlatform) -> Platform {
        let mut info = offered.info;
        if !node.config.plain_names {
            let name = format!("{} @ {}", info.text(CL_PLATFORM_NAME), node.facts.address);
            info.0.insert(CL_PLATFORM_NAME, Ok(c_string(name.as_bytes()).into_owned()));
        }
        // The loader demands cl_khr_icd; programs find our queries by cl_telecl_node.
        let added = ["cl_khr_icd", super::TELECL_NODE_EXTENSION];
        let extensions = offered_text(&info.text(CL_PLATFORM_EXTENSIONS), &added);
        info.0.insert(CL_PLATFORM_EXTENSIONS, Ok(c_string(extensions.as_bytes()).into_owned()));
        if let Some(list) = info.bytes(CL_PLATFORM_EXTENSIONS_WITH_VERSION) {
            let list = offered_list(list, &added);
            info.0.insert(CL_PLATFORM_EXTENSIONS_WITH_VERSION, Ok(list));
        }
        // Loaders skip a driver without a suffix.
        if info.text(CL_PLATFORM_ICD_SUFFIX_KHR).is_empty() {
            info.0.insert(CL_PLATFORM_ICD_SUFFIX_KHR, Ok(b"TELECL\0".to_vec()));
        }
        let devices = offered.devices.into_iter().map(|device| Device::root(number, node, device)).collect();
        Platform { handle: Handle::new(), node: Arc::clone(node), index: offered.index, info, devices }
    }

    pub(crate) fn address(&self) -> usize {
        self.handle.address()
    }

    pub(crate) fn number(&self, param: cl_platform_info) -> u64 {
        self.info.number(param)
    }

    /// `clGetPlatformInfo`.
    pub(crate) fn info(&self, param: u32) -> ClResult<InfoValue<'_>> {
        match self.info.0.get(&param) {
            Some(Ok(value)) => Ok(Cow::Borrowed(value)),
            Some(Err(status)) => Err(ClError(*status)),
            None => {
                let query = |call| Query {
                    call,
                    target: Target::Platform,
                    object: self.index.into(),
                    device: 0,
                    index: 0,
                    param,
                    input: &[],
                };
                self.node.session()?.call(query).map(Cow::Owned)
            }
        }
    }

    /// `clGetDeviceIDs`.
    pub(crate) fn devices_of_type(&self, wanted: cl_device_type) -> ClResult<Vec<Arc<Device>>> {
        const KNOWN: cl_device_type = CL_DEVICE_TYPE_DEFAULT
            | CL_DEVICE_TYPE_CPU
            | CL_DEVICE_TYPE_GPU
            | CL_DEVICE_TYPE_ACCELERATOR
            | CL_DEVICE_TYPE_CUSTOM;
        // CL_INVALID_DEVICE_TYPE if device_type is not a valid value.
        if wanted != CL_DEVICE_TYPE_ALL && (wanted == 0 || wanted & !KNOWN != 0) {
            return Err(ClError(CL_INVALID_DEVICE_TYPE));
        }
        let matches = |device: &&Arc<Device>| {
            let kind = device.kind();
            if wanted == CL_DEVICE_TYPE_ALL {
                // All but custom devices, which are only found by their own type.
                kind & CL_DEVICE_TYPE_CUSTOM == 0
            } else {
                kind & wanted != 0
            }
        };
        let mut devices: Vec<_> = self.devices.iter().filter(matches).cloned().collect();
        if devices.is_empty() && wanted & CL_DEVICE_TYPE_DEFAULT != 0 {
            devices.extend(self.devices.first().cloned());
        }
        // CL_DEVICE_NOT_FOUND if no OpenCL devices that matched device_type were found.
        if devices.is_empty() { Err(ClError(CL_DEVICE_NOT_FOUND)) } else { Ok(devices) }
    }
}
