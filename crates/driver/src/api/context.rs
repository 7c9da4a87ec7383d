//! Contexts.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use telecl_sys::*;
use telecl_wire::reply::ImageFormats;
use telecl_wire::request::{self, Check, CreateContext, Kind};
use telecl_wire::{Ids, WireId, decode};

use super::device::Device;
use super::info::{InfoValue, value};
use crate::process::state;
use crate::registry::{Base, Object, Registry, lock};
use crate::session::{Charge, Session, TooMuch, on_receiver_thread};

/// Tells the program about errors: a text and bytes for the vendor's own use.
pub(crate) type Notify = Arc<dyn Fn(&str, &[u8]) + Send + Sync>;

/// Something of the program's that runs when an object is gone.
pub(crate) type Destructor = Box<dyn FnOnce() + Send>;

/// Image formats by flags and kind of image, as far as they were asked for.
type FormatLists = HashMap<(cl_mem_flags, cl_mem_object_type), Arc<Vec<cl_image_format>>>;

/// Devices, and everything that is shared between them. All of a context is on one service.
pub(crate) struct Context {
    base: Base<Context>,
    pub(crate) session: Arc<Session>,
    pub(crate) devices: Vec<Arc<Device>>,
    /// The root devices that its memory objects are on.
    roots: Vec<u64>,
    /// As the program gave them, with the final zero; empty if it gave none.
    properties: Vec<isize>,
    notify: Option<Notify>,
    destructors: Mutex<Vec<Destructor>>,
    /// First failure of a one-way command, by queue (0: none in particular), not yet reported.
    failures: Mutex<HashMap<u64, cl_int>>,
    formats: Mutex<FormatLists>,
    /// How many queues it has been given.
    queues_made: AtomicU32,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("id", &self.base.id).finish_non_exhaustive()
    }
}

impl Object for Context {
    const INVALID: cl_int = CL_INVALID_CONTEXT;
    const KIND: Kind = Kind::Context;

    fn registry() -> &'static Registry<Self> {
        &state().contexts
    }

    fn base(&self) -> &Base<Self> {
        &self.base
    }
}

impl Context {
    /// It has one more queue.
    pub(super) fn note_queue(&self) {
        self.queues_made.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn queues_made(&self) -> u32 {
        self.queues_made.load(Ordering::Relaxed)
    }

    /// `clCreateContext`; `properties` are as the program gave them.
    pub(crate) fn new(
        devices: Vec<Arc<Device>>,
        properties: Vec<isize>,
        notify: Option<Notify>,
    ) -> ClResult<Arc<Context>> {
        let first = devices.first().ok_or(ClError(CL_INVALID_VALUE))?;
        let platform = first.platform();
        // CL_INVALID_DEVICE if a device is not associated with the specified platform.
        if devices.iter().any(|device| device.platform().address() != platform.address()) {
            return Err(ClError(CL_INVALID_DEVICE));
        }
        let session = first.session()?;
        let roots = devices.iter().map(|device| device.root_id()).collect();
        let context = Arc::new(Context {
            base: Base::new(&session),
            session: Arc::clone(&session),
            devices,
            roots,
            properties,
            notify,
            destructors: Mutex::default(),
            failures: Mutex::default(),
            formats: Mutex::default(),
            queues_made: AtomicU32::new(0),
        });
        session.add_context(context.id(), Arc::downgrade(&context));
        let ids = context.device_ids(&context.devices);
        session.post(&CreateContext { id: context.id(), platform: platform.index, devices: Ids(&ids) }, &[])?;
        // CL_DEVICE_NOT_AVAILABLE if a device in devices is currently not available even though the device was returned by
        // clGetDeviceIDs: there may be no room for one more session, which only the service knows.
        if session.is_limited() {
            context.verify(Kind::Context, context.id())?;
        } else {
            context.check(Kind::Context, context.id())?;
        }
        Ok(context)
    }

    pub(crate) fn id(&self) -> u64 {
        self.base.id
    }

    pub(crate) fn address(&self) -> usize {
        self.base.address()
    }

    /// With the `strict` setting, waits until the service has made what was just posted.
    pub(crate) fn check(&self, kind: Kind, id: u64) -> ClResult<()> {
        if self.devices[0].platform().node.strict() { self.verify(kind, id) } else { Ok(()) }
    }

    /// Waits until the service has made what was just posted, and says how that went.
    pub(crate) fn verify(&self, kind: Kind, id: u64) -> ClResult<()> {
        self.session.call(|call| Check { call, kind, id }).map(drop)
    }

    /// As [`Context::check`], for a memory object that takes memory: others may have taken that meanwhile.
    pub(super) fn check_memory(&self, id: u64) -> ClResult<()> {
        let shared = self.roots.iter().any(|root| self.session.account().is_shared(*root));
        if shared { self.verify(Kind::Memory, id) } else { self.check(Kind::Memory, id) }
    }

    /// Memory of all its devices for an object.
    pub(super) fn take_memory(&self, bytes: u64) -> ClResult<Charge> {
        self.session.take_memory(&self.roots, bytes).map_err(|TooMuch { device, most, used }| {
            self.notify(
                &format!(
                    "this session may use {most} bytes of device {device}, has {used}, and wants {bytes} more; release \
                     something, or ask whoever runs the service for more"
                ),
                &[],
            );
            // CL_MEM_OBJECT_ALLOCATION_FAILURE if there is a failure to allocate memory for buffer object.
            ClError(CL_MEM_OBJECT_ALLOCATION_FAILURE)
        })
    }

    /// CL_DEVICE_MAX_MEM_ALLOC_SIZE of the device that has the largest.
    pub(super) fn max_alloc(&self) -> u64 {
        self.most(|device| device.limits.max_alloc.min(self.session.account().most(device.root_id())))
    }

    pub(crate) fn device_ids(&self, devices: &[Arc<Device>]) -> Vec<WireId> {
        devices.iter().map(|device| WireId::new(device.id())).collect()
    }

    pub(crate) fn has_device(&self, device: &Device) -> bool {
        self.devices.iter().any(|own| own.id() == device.id())
    }

    /// The largest value that any of the devices has for a limit.
    pub(crate) fn most(&self, limit: impl Fn(&Device) -> u64) -> u64 {
        self.devices.iter().map(|device| limit(device)).max().unwrap_or(0)
    }

    pub(crate) fn has_images(&self) -> bool {
        self.devices.iter().any(|device| device.limits.images)
    }

    /// `clGetContextInfo`.
    pub(crate) fn info(&self, param: cl_context_info) -> ClResult<InfoValue<'_>> {
        Ok(match param {
            CL_CONTEXT_REFERENCE_COUNT => value(self.base.references()),
            CL_CONTEXT_NUM_DEVICES => value(self.devices.len() as u32),
            CL_CONTEXT_DEVICES => {
                let handles: Vec<usize> = self.devices.iter().map(|device| device.address()).collect();
                value(handles.as_slice())
            }
            CL_CONTEXT_PROPERTIES => value(self.properties.as_slice()),
            _ => return Err(ClError(CL_INVALID_VALUE)),
        })
    }

    /// Calls the program's error callback, if it has one.
    pub(crate) fn notify(&self, message: &str, private_info: &[u8]) {
        if let Some(notify) = self.notify.clone() {
            let (message, private_info) = (message.to_owned(), private_info.to_vec());
            self.session.run_callback(move || notify(&message, &private_info));
        }
    }

    /// A one-way command failed on the service; the next call that waits for the queue says so.
    pub(crate) fn remember_failure(&self, queue: u64, status: cl_int) {
        if queue != 0 {
            lock(&self.failures).entry(queue).or_insert(status);
        }
    }

    /// The failure that a waiting call has to report, once.
    pub(crate) fn take_failure(&self, queue: u64) -> ClResult<()> {
        match lock(&self.failures).remove(&queue) {
            Some(status) => Err(ClError(status)),
            None => Ok(()),
        }
    }

    /// `clSetContextDestructorCallback`.
    pub(crate) fn on_destruction(&self, destructor: Destructor) {
        lock(&self.destructors).push(destructor);
    }

    /// `clGetSupportedImageFormats`, asked once for each kind of image.
    pub(crate) fn image_formats(
        &self,
        flags: cl_mem_flags,
        kind: cl_mem_object_type,
    ) -> ClResult<Arc<Vec<cl_image_format>>> {
        if let Some(known) = lock(&self.formats).get(&(flags, kind)) {
            return Ok(Arc::clone(known));
        }
        let payload = self.session.call(|call| request::ImageFormats { call, context: self.id(), flags, kind })?;
        let report: ImageFormats = decode(&payload).map_err(|_| ClError(CL_OUT_OF_RESOURCES))?;
        let formats = report
            .formats
            .iter()
            .map(|format| cl_image_format {
                image_channel_order: format.order,
                image_channel_data_type: format.data_type,
            })
            .collect();
        let formats = Arc::new(formats);
        lock(&self.formats).insert((flags, kind), Arc::clone(&formats));
        Ok(formats)
    }

    /// Runs destructor callbacks, last registered first, never on the receiver thread.
    pub(crate) fn run_destructors(session: &Session, destructors: &Mutex<Vec<Destructor>>) {
        let mut destructors = std::mem::take(&mut *lock(destructors));
        destructors.reverse();
        if destructors.is_empty() {
            return;
        }
        let run = move || destructors.into_iter().for_each(|destructor| destructor());
        if on_receiver_thread() { session.run_callback(run) } else { run() }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.session.remove_context(self.base.id);
        Context::run_destructors(&self.session, &self.destructors);
    }
}
