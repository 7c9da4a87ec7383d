//! Contexts, and the image formats they support.

use std::rc::Rc;
use std::sync::Arc;

use telecl_opencl::{ClError, ClResult, Context, Device, Notify};
use telecl_sys::*;
use telecl_wire::Ids;
use telecl_wire::reply::{self, Format};
use telecl_wire::request::{CreateContext, ImageFormats, Message};

use super::backing::Home;
use super::completion::Note;
use super::session::Session;
use super::staging::Pool;

/// Longer messages of a vendor are cut; nobody reads them.
const LONGEST_NOTICE: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct ContextEntry {
    pub(super) context: Context,
    /// Host memory for the transfers of its queues.
    pub(super) pool: Pool,
    /// What its memory objects need of it, also if the program has released it.
    pub(super) home: Rc<Home>,
    /// The root devices that its memory objects are on.
    pub(super) roots: Arc<[u64]>,
}

impl Session {
    pub(super) fn create_context(&mut self, request: &CreateContext<'_>) {
        if let Err((error, reason)) = self.find_room(request) {
            self.link.refused(CreateContext::OPCODE, request.id, error, &reason);
            self.contexts.insert(request.id, Err(error));
            return;
        }
        // Those that are none are left to `make_context`.
        self.nearness.come_to(&self.devices_of(request.devices).unwrap_or_default());
        let made = self.make_context(request);
        self.link.created(CreateContext::OPCODE, "CreateContext", request.id, request.id, &made);
        self.contexts.insert(request.id, made);
    }

    /// Sees to it that the session counts for the context's devices, or says why it may not use them now. Devices that
    /// are none are left to [`Session::make_context`].
    fn find_room(&mut self, request: &CreateContext<'_>) -> Result<(), (ClError, String)> {
        let mut devices: Vec<u64> = request.devices.iter().filter_map(|id| self.root_of(id)).collect();
        devices.retain(|root| !self.admitted.contains(root));
        if devices.is_empty() {
            return Ok(());
        }
        // CL_DEVICE_NOT_AVAILABLE if a device in devices is currently not available even though the device was returned
        // by clGetDeviceIDs.
        self.broker.admit(&devices).map_err(|reason| (ClError(CL_DEVICE_NOT_AVAILABLE), reason))?;
        self.admitted.extend(devices);
        Ok(())
    }

    fn make_context(&self, request: &CreateContext<'_>) -> ClResult<ContextEntry> {
        let platform = self.platforms.get(request.platform as usize).and_then(Option::as_ref);
        let platform = platform.ok_or(ClError(CL_INVALID_PLATFORM))?;
        let devices = self.devices_of(request.devices)?;
        let (completion, id) = (self.completion.clone(), request.id);
        // Called on the vendor's threads, which must not wait for our link.
        let notify: Notify = Box::new(move |message, private_info| {
            let message = message.chars().take(LONGEST_NOTICE).collect();
            let private_info = private_info[..private_info.len().min(LONGEST_NOTICE)].to_vec();
            completion.note(Note::Notice { context: id, message, private_info });
        });
        let context = Context::new(platform, &devices, Some(notify))?;
        let pool = Pool::new(Arc::clone(&self.link), &context, &devices, self.clearing);
        let roots = request.devices.iter().filter_map(|id| self.root_of(id)).collect();
        let device = devices.first().ok_or(ClError(CL_INVALID_DEVICE))?;
        let home = Home::new(context.clone(), device.clone(), pool.clone());
        Ok(ContextEntry { context, pool, home, roots })
    }

    pub(super) fn context(&self, id: u64) -> ClResult<&Context> {
        Ok(&self.contexts.get(id)?.context)
    }

    /// The devices with these ids, in their order.
    pub(super) fn devices_of(&self, ids: Ids<'_>) -> ClResult<Vec<Device>> {
        ids.iter().map(|id| self.devices.get(id).cloned()).collect()
    }

    pub(super) fn image_formats(&self, request: &ImageFormats) {
        let formats = self.context(request.context).and_then(|context| {
            let formats = context.supported_image_formats(request.flags, request.kind)?;
            let format = |format: &cl_image_format| Format {
                order: format.image_channel_order,
                data_type: format.image_channel_data_type,
            };
            Ok(reply::ImageFormats { formats: formats.iter().map(format).collect() })
        });
        self.link.answer_with("ImageFormats", request.call, formats);
    }
}
