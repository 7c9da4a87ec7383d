//! Devices: the service's own, and sub-devices made of them.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use telecl_sys::*;
use telecl_wire::WireId;
use telecl_wire::reply::{SubDevices, Timers};
use telecl_wire::request::{CreateSubDevices, DeviceTimers, Kind, Query, Target};
use telecl_wire::{Ids, decode};

use super::extensions::{offered_list, offered_text};
use super::info::{InfoValue, c_string, value};
use super::platform::{Platform, ServiceNode, platforms};
use crate::process::state;
use crate::registry::{Base, Object, Registry};
use crate::session::{InfoTable, NodeDevice, Session};

/// The extension whose queries tell where a device is; see `include/telecl.h`.
pub(crate) const TELECL_NODE_EXTENSION: &str = "cl_telecl_node";

const CL_DEVICE_TELECL_ADDRESS: cl_device_info = 0x54C0;
const CL_DEVICE_TELECL_PORT: cl_device_info = 0x54C1;
const CL_DEVICE_TELECL_ROUND_TRIP_NS: cl_device_info = 0x54C2;
const CL_DEVICE_TELECL_SAME_NODE: cl_device_info = 0x54C3;
const CL_DEVICE_TELECL_NODE_NAME: cl_device_info = 0x54C4;
const CL_DEVICE_TELECL_NODE_ADDRESS: cl_device_info = 0x54C6;

/// A device of a service.
#[derive(Debug)]
pub(crate) struct Device {
    base: Base<Device>,
    /// Number of the platform in [`platforms`].
    platform: usize,
    parent: Option<Arc<Device>>,
    info: InfoTable,
    pub(crate) limits: Limits,
    /// What the present session may use of its memory. Of a root device; changed when another session takes over.
    memory: AtomicU64,
}

/// What checks need of the device's information, read once.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) max_alloc: u64,
    pub(crate) max_work_group: u64,
    pub(crate) max_work_items: Vec<u64>,
    /// In bytes.
    pub(crate) base_alignment: u64,
    pub(crate) images: bool,
    pub(crate) image2d: [u64; 2],
    pub(crate) image3d: [u64; 3],
    pub(crate) image_array: u64,
    pub(crate) image_buffer: u64,
    /// Whether a 2D image can be made of a buffer.
    pub(crate) image_from_buffer: bool,
    pub(crate) queue_properties: u64,
    pub(crate) address_bits: u64,
    pub(crate) version: u32,
    pub(crate) compiler: bool,
    pub(crate) non_uniform_groups: bool,
}

impl Object for Device {
    const INVALID: cl_int = CL_INVALID_DEVICE;
    const KIND: Kind = Kind::Device;

    fn registry() -> &'static Registry<Self> {
        &state().devices
    }

    fn base(&self) -> &Base<Self> {
        &self.base
    }
}

impl Device {
    pub(super) fn root(platform: usize, node: &ServiceNode, offered: NodeDevice) -> Arc<Device> {
        let device = Arc::new(Device::new(Base::with_id(None, offered.id), platform, node, None, offered.info));
        crate::registry::publish(&device);
        device
    }

    fn new(
        base: Base<Device>,
        platform: usize,
        node: &ServiceNode,
        parent: Option<Arc<Device>>,
        mut info: InfoTable,
    ) -> Device {
        let mut set = |param, bytes: InfoValue<'_>| info.0.insert(param, Ok(bytes.into_owned()));
        let (host, port) = node.host_and_port();
        set(CL_DEVICE_TELECL_ADDRESS, value(host.as_str()));
        set(CL_DEVICE_TELECL_PORT, value(u32::from(port)));
        set(CL_DEVICE_TELECL_ROUND_TRIP_NS, value(u64::try_from(node.facts.round_trip.as_nanos()).unwrap_or(u64::MAX)));
        set(CL_DEVICE_TELECL_SAME_NODE, value(node.facts.same_node));
        set(CL_DEVICE_TELECL_NODE_NAME, value(node.facts.name.as_str()));
        set(CL_DEVICE_TELECL_NODE_ADDRESS, value(node.facts.node_address.as_str()));
        // Pointers of this process mean nothing to the device.
        set(CL_DEVICE_SVM_CAPABILITIES, value(0u64));
        let executes = info.number(CL_DEVICE_EXECUTION_CAPABILITIES) & !CL_EXEC_NATIVE_KERNEL;
        info.0.insert(CL_DEVICE_EXECUTION_CAPABILITIES, Ok(value(executes).into_owned()));
        let extensions = offered_text(&info.text(CL_DEVICE_EXTENSIONS), &[TELECL_NODE_EXTENSION]);
        info.0.insert(CL_DEVICE_EXTENSIONS, Ok(c_string(extensions.as_bytes()).into_owned()));
        if let Some(list) = info.bytes(CL_DEVICE_EXTENSIONS_WITH_VERSION) {
            let list = offered_list(list, &[TELECL_NODE_EXTENSION]);
            info.0.insert(CL_DEVICE_EXTENSIONS_WITH_VERSION, Ok(list));
        }
        let limits = Limits::read(&info);
        Device { base, platform, parent, info, limits, memory: AtomicU64::new(u64::MAX) }
    }

    pub(crate) fn id(&self) -> u64 {
        self.base.id
    }

    pub(crate) fn address(&self) -> usize {
        self.base.address()
    }

    pub(crate) fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// The device, the device it is a part of, and so on.
    pub(super) fn lineage(&self) -> impl Iterator<Item = &Device> {
        std::iter::successors(Some(self), |device| device.parent.as_deref())
    }

    pub(crate) fn root_id(&self) -> u64 {
        self.lineage().last().map_or(self.id(), Device::id)
    }

    /// A session with the device's service has begun, and says how much of the memory may be used.
    pub(super) fn adopt(&self, session: &Session) {
        self.memory.store(session.account().most(self.id()), Ordering::Relaxed);
    }

    fn memory_limit(&self) -> u64 {
        self.lineage().last().map_or(u64::MAX, |root| root.memory.load(Ordering::Relaxed))
    }

    pub(crate) fn platform(&self) -> &'static Platform {
        &platforms()[self.platform]
    }

    pub(crate) fn session(&self) -> ClResult<Arc<Session>> {
        self.platform().node.session()
    }

    pub(crate) fn kind(&self) -> cl_device_type {
        self.info.number(CL_DEVICE_TYPE)
    }

    pub(crate) fn name(&self) -> String {
        self.info.text(CL_DEVICE_NAME)
    }

    pub(crate) fn number(&self, param: cl_device_info) -> u64 {
        self.info.number(param)
    }

    pub(crate) fn text(&self, param: cl_device_info) -> String {
        self.info.text(param)
    }

    /// What tells drivers apart whose program binaries do not fit each other.
    pub(crate) fn binary_identity(&self) -> String {
        [CL_DEVICE_VENDOR, CL_DEVICE_NAME, CL_DEVICE_VERSION, CL_DRIVER_VERSION]
            .map(|param| self.text(param))
            .join("\n")
    }

    /// `clGetDeviceInfo`.
    pub(crate) fn info(&self, param: cl_device_info) -> ClResult<InfoValue<'_>> {
        match param {
            CL_DEVICE_PLATFORM => Ok(value(self.platform().address())),
            CL_DEVICE_PARENT_DEVICE => Ok(value(self.parent.as_ref().map_or(0, |parent| parent.address()))),
            CL_DEVICE_REFERENCE_COUNT => Ok(value(self.base.references())),
            _ => match self.info.0.get(&param) {
                Some(Ok(bytes)) => Ok(self.within_limit(param, bytes)),
                Some(Err(status)) => Err(ClError(*status)),
                None => {
                    let query = |call| Query {
                        call,
                        target: Target::Device,
                        object: self.id(),
                        device: 0,
                        index: 0,
                        param,
                        input: &[],
                    };
                    self.session()?.call(query).map(Cow::Owned)
                }
            },
        }
    }

    /// An answer about memory, as the policy has it: a program is not told of memory that it cannot get.
    fn within_limit<'a>(&self, param: cl_device_info, bytes: &'a [u8]) -> InfoValue<'a> {
        let most = match param {
            CL_DEVICE_GLOBAL_MEM_SIZE
            | CL_DEVICE_MAX_MEM_ALLOC_SIZE
            | CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE
            | CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE
            | CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE
            // In pixels, which have a byte at least.
            | CL_DEVICE_IMAGE_MAX_BUFFER_SIZE => self.memory_limit(),
            // In KiB, and the largest piece of it.
            CL_DEVICE_GLOBAL_FREE_MEMORY_AMD => self.memory_left() / 1024,
            _ => return Cow::Borrowed(bytes),
        };
        let (words, rest) = bytes.as_chunks::<8>();
        let limited = |word: &[u8; 8]| u64::from_le_bytes(*word).min(most).to_le_bytes();
        if rest.is_empty() && words.iter().any(|word| limited(word) != *word) {
            Cow::Owned(words.iter().flat_map(limited).collect())
        } else {
            Cow::Borrowed(bytes)
        }
    }

    /// What the session may still take, as far as is known here.
    fn memory_left(&self) -> u64 {
        let session = self.platform().node.present_session();
        session.map_or(self.memory_limit(), |session| session.account().left(self.root_id()))
    }

    /// `clCreateSubDevices`; with no `room` it only counts.
    pub(crate) fn partition(self: &Arc<Self>, properties: &[isize], room: Option<usize>) -> ClResult<SubDeviceList> {
        let session = self.session()?;
        // CL_INVALID_VALUE if values specified in properties are not valid.
        if properties.is_empty() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let values: Vec<WireId> = properties.iter().map(|&p| WireId::new(p as u64)).collect();
        // A device cannot be cut into more parts than it has compute units.
        let most = self.number(CL_DEVICE_MAX_COMPUTE_UNITS).max(1);
        let first_id = session.next_ids(most);
        let payload = session.call(|call| CreateSubDevices {
            call,
            device: self.id(),
            properties: Ids(&values),
            first_id,
            room: u32::try_from(most).unwrap_or(u32::MAX),
        })?;
        let report: SubDevices<'_> = decode(&payload).map_err(|_| ClError(CL_OUT_OF_RESOURCES))?;
        let node = &self.platform().node;
        let devices: Vec<_> = report
            .devices
            .iter()
            .map(|device| {
                let base = Base::with_id(Some(&session), device.id);
                Arc::new(Device::new(base, self.platform, node, Some(Arc::clone(self)), InfoTable::new(&device.info)))
            })
            .collect();
        let count = devices.len();
        // CL_INVALID_VALUE if out_devices is not NULL and num_devices is less than the number of
        // sub-devices created by the partition scheme.
        if room.is_some_and(|room| room < count) {
            return Err(ClError(CL_INVALID_VALUE));
        }
        Ok(SubDeviceList { devices, count })
    }

    /// `clGetHostTimer`.
    pub(crate) fn host_timer(&self) -> ClResult<u64> {
        // CL_INVALID_OPERATION if the platform associated with device does not support device and host timers.
        if self.platform().number(CL_PLATFORM_HOST_TIMER_RESOLUTION) == 0 {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        Ok(host_timer())
    }

    /// `clGetDeviceAndHostTimer`: the device's clock, and ours at (nearly) the same moment.
    pub(crate) fn timers(&self) -> ClResult<(u64, u64)> {
        let session = self.session()?;
        let before = host_timer();
        let payload = session.call(|call| DeviceTimers { call, device: self.id() })?;
        let after = host_timer();
        let timers: Timers = decode(&payload).map_err(|_| ClError(CL_OUT_OF_RESOURCES))?;
        Ok((timers.device_ns, before + (after - before) / 2))
    }
}

/// What [`Device::partition`] made; dropped devices are released again.
#[derive(Debug)]
pub(crate) struct SubDeviceList {
    pub(crate) devices: Vec<Arc<Device>>,
    pub(crate) count: usize,
}

/// Nanoseconds of this machine's monotonic clock.
fn host_timer() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Limits {
    fn read(info: &InfoTable) -> Limits {
        let number = |param| info.number(param);
        let sizes = info.bytes(CL_DEVICE_MAX_WORK_ITEM_SIZES).unwrap_or_default();
        let (words, _) = sizes.as_chunks::<8>();
        Limits {
            max_alloc: number(CL_DEVICE_MAX_MEM_ALLOC_SIZE),
            max_work_group: number(CL_DEVICE_MAX_WORK_GROUP_SIZE),
            max_work_items: words.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect(),
            base_alignment: (number(CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8).max(1),
            images: number(CL_DEVICE_IMAGE_SUPPORT) != 0,
            image2d: [number(CL_DEVICE_IMAGE2D_MAX_WIDTH), number(CL_DEVICE_IMAGE2D_MAX_HEIGHT)],
            image3d: [
                number(CL_DEVICE_IMAGE3D_MAX_WIDTH),
                number(CL_DEVICE_IMAGE3D_MAX_HEIGHT),
                number(CL_DEVICE_IMAGE3D_MAX_DEPTH),
            ],
            image_array: number(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE),
            image_buffer: number(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE),
            // OpenCL 2.x has it always, 1.2 by an extension, 3.0 where there is an alignment.
            image_from_buffer: number(CL_DEVICE_IMAGE_PITCH_ALIGNMENT) != 0
                || info.text(CL_DEVICE_EXTENSIONS).contains("cl_khr_image2d_from_buffer")
                || (20..30).contains(&version_number(&info.text(CL_DEVICE_VERSION))),
            queue_properties: number(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES),
            address_bits: number(CL_DEVICE_ADDRESS_BITS),
            version: version_number(&info.text(CL_DEVICE_VERSION)),
            compiler: number(CL_DEVICE_COMPILER_AVAILABLE) != 0,
            non_uniform_groups: info
                .bytes(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT)
                .is_some_and(|b| b.first() == Some(&1))
                || (20..30).contains(&version_number(&info.text(CL_DEVICE_VERSION))),
        }
    }
}

/// `OpenCL 1.2 …` is 12.
fn version_number(text: &str) -> u32 {
    let digits = text.strip_prefix("OpenCL ").unwrap_or(text);
    let mut parts = digits.split(['.', ' ']).map(|part| part.parse::<u32>().unwrap_or(0));
    parts.next().unwrap_or(1) * 10 + parts.next().unwrap_or(0)
}
