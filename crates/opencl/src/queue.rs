//! Command queues. The commands themselves are in `transfer.rs` and `kernel.rs`.

use telecl_sys::*;

use crate::handle::{created, handle};
use crate::library::need;
use crate::{Context, Device, info};

handle! {
    /// A command queue of one device.
    ///
    /// Dropping the last reference flushes it, but does not wait for its commands.
    Queue(cl_command_queue), clRetainCommandQueue, clReleaseCommandQueue
}

impl Context {
    /// `clCreateCommandQueue`: a queue on the host side with a classic bit field.
    pub fn create_queue(&self, device: &Device, properties: cl_command_queue_properties) -> ClResult<Queue> {
        let create = need(self.library().clCreateCommandQueue)?;
        let mut status = CL_SUCCESS;
        // SAFETY: context and device are valid, and the status is ours.
        let raw = unsafe { create(self.raw(), device.raw(), properties, &raw mut status) };
        // SAFETY: the new queue's only reference is ours.
        Ok(unsafe { Queue::from_raw(self.library(), created(raw, status)?) })
    }

    /// `clCreateCommandQueueWithProperties`. The list needs no zero at its end.
    pub fn create_queue_with_properties(&self, device: &Device, properties: &[cl_queue_properties]) -> ClResult<Queue> {
        let create = need(self.library().clCreateCommandQueueWithProperties)?;
        let list = [properties, &[0]].concat();
        let mut status = CL_SUCCESS;
        // SAFETY: context and device are valid, the list ends with zero, and the status is ours.
        let raw = unsafe { create(self.raw(), device.raw(), list.as_ptr(), &raw mut status) };
        // SAFETY: the new queue's only reference is ours.
        Ok(unsafe { Queue::from_raw(self.library(), created(raw, status)?) })
    }
}

impl Queue {
    /// `clGetCommandQueueInfo`.
    pub fn info(&self, param: cl_command_queue_info) -> ClResult<Vec<u8>> {
        // SAFETY: the queue is valid, and `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe {
            (self.library.clGetCommandQueueInfo)(self.raw, param, size, value, size_ret)
        })
    }

    /// `clFlush`: the device gets to see all commands so far.
    pub fn flush(&self) -> ClResult<()> {
        // SAFETY: the queue is valid.
        check(unsafe { (self.library.clFlush)(self.raw) })
    }

    /// `clFinish`: blocks until all commands so far are complete.
    pub fn finish(&self) -> ClResult<()> {
        // SAFETY: the queue is valid.
        check(unsafe { (self.library.clFinish)(self.raw) })
    }

    /// `clSetDefaultDeviceCommandQueue`: makes this on-device queue the one that kernels get by default.
    pub fn make_device_default(&self, context: &Context, device: &Device) -> ClResult<()> {
        let set = need(self.library.clSetDefaultDeviceCommandQueue)?;
        // SAFETY: all three handles are valid.
        check(unsafe { set(context.raw(), device.raw(), self.raw) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_queue_has_the_properties_it_was_made_with() {
        let Some((context, device)) = testing::context() else {
            return;
        };
        let profiling = CL_QUEUE_PROFILING_ENABLE;
        let queue = context.create_queue(&device, profiling).unwrap();
        assert_eq!(info::number(&queue.info(CL_QUEUE_PROPERTIES).unwrap()), Some(profiling));
        let list = [CL_QUEUE_PROPERTIES.into(), profiling];
        let queue = context.create_queue_with_properties(&device, &list).unwrap();
        assert_eq!(info::number(&queue.info(CL_QUEUE_PROPERTIES).unwrap()), Some(profiling));
        queue.flush().unwrap();
        queue.finish().unwrap();
    }
}
