//! Command queues.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use telecl_sys::*;
use telecl_wire::request::{CreateQueue, Finish, Kind, Query, SetDefaultDeviceQueue, Target};
use telecl_wire::{Ids, WireId};

use super::context::Context;
use super::device::Device;
use super::foresight::Foresight;
use super::info::{InfoValue, value};
use crate::process::state;
use crate::registry::{Base, Object, Registry, lock};

/// A command queue; the worker has one of its own for each.
#[derive(Debug)]
pub(crate) struct Queue {
    base: Base<Queue>,
    pub(crate) context: Arc<Context>,
    pub(crate) device: Arc<Device>,
    pub(crate) properties: QueueProperties,
    /// Held while a command goes out in several frames, so that none of another thread comes between.
    order: Mutex<()>,
    /// The kernel that was run last.
    last_kernel: AtomicU64,
    pub(super) foresight: Foresight,
}

/// How a queue was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueProperties {
    pub(crate) bits: cl_command_queue_properties,
    pub(crate) size: Option<cl_uint>,
    /// The list given to `clCreateCommandQueueWithProperties`, with its final zero; `None` for the
    /// function of OpenCL 1.0 and for a null list.
    pub(crate) list: Option<Vec<u64>>,
    /// Whether the list has names that only the vendor may know.
    pub(crate) has_vendor_names: bool,
}

impl Object for Queue {
    const INVALID: cl_int = CL_INVALID_COMMAND_QUEUE;
    const KIND: Kind = Kind::Queue;

    fn registry() -> &'static Registry<Self> {
        &state().queues
    }

    fn base(&self) -> &Base<Self> {
        &self.base
    }
}

impl QueueProperties {
    /// Reads a property list without its final zero.
    pub(crate) fn parse(list: &[u64]) -> ClResult<QueueProperties> {
        let mut properties = QueueProperties::default();
        for pair in list.chunks(2) {
            let &[name, value] = pair else { return Err(ClError(CL_INVALID_VALUE)) };
            match u32::try_from(name).unwrap_or(0) {
                CL_QUEUE_PROPERTIES => properties.bits = value,
                CL_QUEUE_SIZE => properties.size = Some(value as cl_uint),
                // Extensions: priority and throttle hints and the like. The vendor decides.
                _ => properties.has_vendor_names = true,
            }
        }
        Ok(properties)
    }
}

impl Queue {
    /// `clCreateCommandQueue` and `…WithProperties`.
    pub(crate) fn new(
        context: &Arc<Context>,
        device: Arc<Device>,
        properties: QueueProperties,
    ) -> ClResult<Arc<Queue>> {
        const HOST_BITS: u64 = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
        const DEVICE_BITS: u64 = CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT;
        // CL_INVALID_DEVICE if device is not a valid device or is not associated with context.
        if !context.has_device(&device) {
            return Err(ClError(CL_INVALID_DEVICE));
        }
        let bits = properties.bits;
        // CL_INVALID_VALUE if values specified in properties are not valid.
        if bits & !(HOST_BITS | DEVICE_BITS) != 0
            || (bits & CL_QUEUE_ON_DEVICE_DEFAULT != 0 && bits & CL_QUEUE_ON_DEVICE == 0)
            || (bits & CL_QUEUE_ON_DEVICE != 0 && bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0)
            || (properties.size.is_some() && bits & CL_QUEUE_ON_DEVICE == 0)
        {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // CL_INVALID_QUEUE_PROPERTIES if values specified in properties are valid but are not
        // supported by the device.
        let supported = if bits & CL_QUEUE_ON_DEVICE != 0 {
            device.number(CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES) | DEVICE_BITS
        } else {
            device.limits.queue_properties
        };
        if bits & !supported != 0
            || (bits & CL_QUEUE_ON_DEVICE != 0 && device.number(CL_DEVICE_MAX_ON_DEVICE_QUEUES) == 0)
        {
            return Err(ClError(CL_INVALID_QUEUE_PROPERTIES));
        }
        let queue = Arc::new(Queue {
            base: Base::new(&context.session),
            context: Arc::clone(context),
            device,
            properties,
            order: Mutex::default(),
            last_kernel: AtomicU64::new(0),
            foresight: Foresight::default(),
        });
        context.note_queue();
        let list: Vec<WireId> = match &queue.properties.list {
            Some(list) => list.iter().take(list.len().saturating_sub(1)).map(|&v| WireId::new(v)).collect(),
            None => [u64::from(CL_QUEUE_PROPERTIES), bits].map(WireId::new).to_vec(),
        };
        let create =
            CreateQueue { id: queue.id(), context: context.id(), device: queue.device.id(), properties: Ids(&list) };
        context.session.post(&create, &[])?;
        if queue.properties.has_vendor_names {
            context.verify(Kind::Queue, queue.id())?;
        } else {
            context.check(Kind::Queue, queue.id())?;
        }
        Ok(queue)
    }

    pub(crate) fn id(&self) -> u64 {
        self.base.id
    }

    pub(crate) fn address(&self) -> usize {
        self.base.address()
    }

    pub(crate) fn has_profiling(&self) -> bool {
        self.properties.bits & CL_QUEUE_PROFILING_ENABLE != 0
    }

    pub(crate) fn is_on_device(&self) -> bool {
        self.properties.bits & CL_QUEUE_ON_DEVICE != 0
    }

    pub(super) fn is_in_order(&self) -> bool {
        self.properties.bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0
    }

    pub(super) fn last_kernel(&self) -> u64 {
        self.last_kernel.load(Ordering::Relaxed)
    }

    pub(super) fn note_kernel(&self, kernel: u64) {
        self.last_kernel.store(kernel, Ordering::Relaxed);
    }

    /// Keeps other threads from posting to this queue until the guard is gone.
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.order)
    }

    /// `clFlush`.
    pub(crate) fn flush(&self) -> ClResult<()> {
        // The worker hands everything to the device as soon as it has read what there is.
        self.context.session.push_out()
    }

    /// `clFinish`; reports what failed since the last call that waited.
    pub(crate) fn finish(&self) -> ClResult<()> {
        self.context.session.call_then(|call| Finish { call, queue: self.id() }, || self.foresee_wait())?;
        self.context.take_failure(self.id())
    }

    /// `clGetCommandQueueInfo`.
    pub(crate) fn info(&self, param: cl_command_queue_info) -> ClResult<InfoValue<'_>> {
        Ok(match param {
            CL_QUEUE_CONTEXT => value(self.context.address()),
            CL_QUEUE_DEVICE => value(self.device.address()),
            CL_QUEUE_REFERENCE_COUNT => value(self.base.references()),
            CL_QUEUE_PROPERTIES => value(self.properties.bits),
            CL_QUEUE_PROPERTIES_ARRAY => value(self.properties.list.as_deref().unwrap_or_default()),
            // CL_INVALID_COMMAND_QUEUE if command_queue is not a valid command-queue for param_name.
            CL_QUEUE_SIZE if !self.is_on_device() => return Err(ClError(CL_INVALID_COMMAND_QUEUE)),
            CL_QUEUE_DEVICE_DEFAULT => value(0usize),
            _ => {
                let query = |call| Query {
                    call,
                    target: Target::Queue,
                    object: self.id(),
                    device: 0,
                    index: 0,
                    param,
                    input: &[],
                };
                InfoValue::Owned(self.context.session.call(query)?)
            }
        })
    }

    /// `clSetDefaultDeviceCommandQueue`.
    pub(crate) fn make_device_default(&self, context: &Context, device: &Device) -> ClResult<()> {
        // CL_INVALID_COMMAND_QUEUE if command_queue is not a valid command-queue for device.
        if !self.is_on_device() || self.context.id() != context.id() || self.device.id() != device.id() {
            return Err(ClError(CL_INVALID_COMMAND_QUEUE));
        }
        let request =
            |call| SetDefaultDeviceQueue { call, context: context.id(), device: device.id(), queue: self.id() };
        context.session.call(request).map(drop)
    }
}
