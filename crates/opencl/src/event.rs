//! Events: of commands, and of users.

use std::ffi::c_void;

use telecl_sys::*;

use crate::callback::{OnStatus, event_status};
use crate::handle::{created, handle};
use crate::library::need;
use crate::{Context, info};

handle! {
    /// The state of a command, or a flag that a user sets.
    Event(cl_event), clRetainEvent, clReleaseEvent
}

impl Context {
    /// `clCreateUserEvent`.
    pub fn create_user_event(&self) -> ClResult<Event> {
        let create = need(self.library().clCreateUserEvent)?;
        let mut status = CL_SUCCESS;
        // SAFETY: the context is valid, and the status is ours.
        let raw = unsafe { create(self.raw(), &raw mut status) };
        // SAFETY: the new event's only reference is ours.
        Ok(unsafe { Event::from_raw(self.library(), created(raw, status)?) })
    }
}

impl Event {
    /// `clSetUserEventStatus`: `CL_COMPLETE`, or a negative code that fails what waits for it.
    pub fn set_status(&self, status: cl_int) -> ClResult<()> {
        let set = need(self.library.clSetUserEventStatus)?;
        // SAFETY: the event is valid; a driver refuses one that is not a user event.
        check(unsafe { set(self.raw, status) })
    }

    /// `clGetEventInfo`.
    pub fn info(&self, param: cl_event_info) -> ClResult<Vec<u8>> {
        // SAFETY: the event is valid, and `info::read` passes a value of `size` bytes or null.
        info::read(|size, value, size_ret| unsafe {
            (self.library.clGetEventInfo)(self.raw, param, size, value, size_ret)
        })
    }

    /// The command's execution status: `CL_QUEUED` down to `CL_COMPLETE`, or a negative code if it failed.
    pub fn status(&self) -> ClResult<cl_int> {
        // SAFETY: the event is valid, and `info::read_fixed` passes a value of `size` bytes.
        info::read_fixed(|size, value, size_ret| unsafe {
            let param = CL_EVENT_COMMAND_EXECUTION_STATUS;
            (self.library.clGetEventInfo)(self.raw, param, size, value, size_ret)
        })
    }

    /// `clGetEventProfilingInfo`: a time on the device's clock, in nanoseconds.
    pub fn profiling_info(&self, param: cl_profiling_info) -> ClResult<u64> {
        // SAFETY: the event is valid, and `info::read_fixed` passes a value of `size` bytes.
        info::read_fixed(|size, value, size_ret| unsafe {
            (self.library.clGetEventProfilingInfo)(self.raw, param, size, value, size_ret)
        })
    }

    /// Blocks until the command is complete.
    pub fn wait(&self) -> ClResult<()> {
        // SAFETY: one valid event.
        check(unsafe { (self.library.clWaitForEvents)(1, &raw const self.raw) })
    }

    /// `clSetEventCallback`: runs `on_status` once, on a thread of the driver, when the command has reached `status`,
    /// with the status itself or the negative code with which the command failed.
    ///
    /// A panic in it goes nowhere. It should be short: drivers call it where they do their own work.
    pub fn on_status(&self, status: cl_int, on_status: Box<dyn FnOnce(cl_int) + Send>) -> ClResult<()> {
        let set = need(self.library.clSetEventCallback)?;
        let user_data: *mut OnStatus = Box::into_raw(Box::new(on_status));
        // SAFETY: the event is valid, and `user_data` is what `event_status` expects; the driver calls it once.
        let result = check(unsafe { set(self.raw, status, Some(event_status), user_data.cast::<c_void>()) });
        if result.is_err() {
            // SAFETY: a registration that failed calls nothing, so the box is still ours.
            drop(unsafe { Box::from_raw(user_data) });
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::{Order, testing};

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn a_callback_fires_when_the_command_completes() {
        let Some((context, device)) = testing::context() else {
            return;
        };
        let queue = context.create_queue(&device, 0).unwrap();
        let gate = context.create_user_event().unwrap();
        let order = Order::after([&gate]).with_event();
        let marker = queue.marker(&order).unwrap().unwrap();
        let (sender, receiver) = mpsc::channel();
        let report = move |status| sender.send(status).unwrap();
        marker.on_status(CL_COMPLETE, Box::new(report)).unwrap();
        queue.flush().unwrap();
        assert!(marker.status().unwrap() > CL_COMPLETE);
        assert!(receiver.try_recv().is_err());
        gate.set_status(CL_COMPLETE).unwrap();
        assert_eq!(receiver.recv_timeout(SOON), Ok(CL_COMPLETE));
        marker.wait().unwrap();
        assert_eq!(marker.status(), Ok(CL_COMPLETE));
    }

    #[test]
    fn a_panic_in_a_callback_stays_there() {
        let Some((context, _)) = testing::context() else {
            return;
        };
        let event = context.create_user_event().unwrap();
        let (sender, receiver) = mpsc::channel::<()>();
        let fail = move |_| {
            let _sender = sender;
            std::panic::resume_unwind(Box::new("on purpose"));
        };
        event.on_status(CL_COMPLETE, Box::new(fail)).unwrap();
        event.set_status(CL_COMPLETE).unwrap();
        assert_eq!(receiver.recv_timeout(SOON), Err(mpsc::RecvTimeoutError::Disconnected));
    }

    #[test]
    fn a_refused_callback_is_freed() {
        let Some((context, _)) = testing::context() else {
            return;
        };
        let event = context.create_user_event().unwrap();
        let (sender, receiver) = mpsc::channel::<()>();
        let keep = move |_| drop(sender);
        assert!(event.on_status(77, Box::new(keep)).is_err());
        assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}
