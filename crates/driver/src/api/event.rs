//! Events: what the program knows about a command, and who waits for it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use telecl_sys::*;
use telecl_wire::request::{CreateUserEvent, Kind, SetUserEventStatus, WatchEvent};

use super::context::Context;
use super::info::{InfoValue, value};
use super::queue::Queue;
use crate::process::{self, state};
use crate::registry::{Base, Object, Registry, lock};

/// Called with the status that was reached.
pub(crate) type EventCallback = Box<dyn FnOnce(cl_int) + Send>;

/// A command's event, or a user event.
#[derive(Debug)]
pub(crate) struct Event {
    base: Base<Event>,
    pub(crate) context: Arc<Context>,
    /// `None` for user events.
    pub(crate) queue: Option<Arc<Queue>>,
    command: cl_command_type,
    /// Whether the program will never see it.
    hidden: bool,
    /// Taken for a few lines; callbacks are handed over after it is given back.
    progress: Mutex<Progress>,
    changed: Condvar,
}

struct Progress {
    /// CL_QUEUED, CL_SUBMITTED, CL_RUNNING, CL_COMPLETE or an error; only ever sinks.
    status: cl_int,
    /// CL_PROFILING_COMMAND_QUEUED, SUBMIT, START, END, COMPLETE.
    profile: [u64; 5],
    callbacks: Vec<(cl_int, EventCallback)>,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Object for Event {
    const INVALID: cl_int = CL_INVALID_EVENT;
    const KIND: Kind = Kind::Event;

    fn registry() -> &'static Registry<Self> {
        &state().events
    }

    fn base(&self) -> &Base<Self> {
        &self.base
    }
}

impl Event {
    /// The event of a command that is about to be posted.
    pub(super) fn of_command(queue: &Arc<Queue>, command: cl_command_type, hidden: bool) -> Arc<Event> {
        Event::new(&queue.context, Some(Arc::clone(queue)), command, CL_QUEUED, hidden)
    }

    /// `clCreateUserEvent`.
    pub(crate) fn user(context: &Arc<Context>) -> ClResult<Arc<Event>> {
        let event = Event::new(context, None, CL_COMMAND_USER, CL_SUBMITTED, false);
        context.session.post(&CreateUserEvent { id: event.id(), context: context.id() }, &[])?;
        context.check(Kind::Event, event.id())?;
        Ok(event)
    }

    fn new(
        context: &Arc<Context>,
        queue: Option<Arc<Queue>>,
        command: cl_command_type,
        status: cl_int,
        hidden: bool,
    ) -> Arc<Event> {
        Arc::new(Event {
            base: Base::new(&context.session),
            context: Arc::clone(context),
            queue,
            command,
            hidden,
            progress: Mutex::new(Progress { status, profile: [0; 5], callbacks: Vec::new() }),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.base.id
    }

    pub(crate) fn status(&self) -> cl_int {
        lock(&self.progress).status
    }

    /// The command is on its way to the service.
    pub(super) fn submitted(&self) {
        let mut progress = lock(&self.progress);
        progress.status = progress.status.min(CL_SUBMITTED);
    }

    /// The command reached a status on its way; the last one comes through [`Event::finish`].
    pub(crate) fn reach(self: &Arc<Self>, status: cl_int) {
        self.advance(status, None);
    }

    /// A command failed whose event the program does not have: the next call that waits says so.
    pub(crate) fn note_hidden_failure(&self, status: cl_int) {
        // What merely follows from another failure is not told again.
        if status < 0
            && status != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
            && self.hidden
            && let Some(queue) = &self.queue
        {
            self.context.remember_failure(queue.id(), status);
        }
    }

    /// The command has ended.
    pub(crate) fn finish(self: &Arc<Self>, status: cl_int, profile: [u64; 5]) {
        self.advance(status.min(CL_COMPLETE), Some(profile));
    }

    fn advance(self: &Arc<Self>, status: cl_int, profile: Option<[u64; 5]>) {
        let due: Vec<_> = {
            let mut progress = lock(&self.progress);
            if progress.status <= CL_COMPLETE || status >= progress.status && profile.is_none() {
                return;
            }
            progress.status = status;
            progress.profile = profile.unwrap_or_default();
            let (due, later) = std::mem::take(&mut progress.callbacks).into_iter().partition(|(at, _)| status <= *at);
            progress.callbacks = later;
            due
        };
        if status <= CL_COMPLETE {
            self.changed.notify_all();
        }
        self.run(due, status);
    }

    /// Hands callbacks over in the order of the statuses they wait for.
    fn run(self: &Arc<Self>, mut due: Vec<(cl_int, EventCallback)>, status: cl_int) {
        if due.is_empty() {
            return;
        }
        due.sort_by_key(|(at, _)| -at);
        let event = Arc::clone(self);
        self.context.session.run_callback(move || {
            for (at, callback) in due {
                // An error is told to all; otherwise each hears of the status it asked for.
                callback(if status < 0 { status } else { at });
            }
            drop(event);
        });
    }

    /// `clSetEventCallback`.
    pub(crate) fn on_status(self: &Arc<Self>, at: cl_int, callback: EventCallback) -> ClResult<()> {
        // CL_INVALID_VALUE if command_exec_callback_type is not CL_SUBMITTED, CL_RUNNING or CL_COMPLETE.
        if !matches!(at, CL_SUBMITTED | CL_RUNNING | CL_COMPLETE) {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let status = {
            let mut progress = lock(&self.progress);
            if progress.status > at || (at != CL_COMPLETE && self.queue.is_some() && progress.status > CL_COMPLETE) {
                progress.callbacks.push((at, callback));
                drop(progress);
                if at != CL_COMPLETE && self.queue.is_some() {
                    self.context.session.post(&WatchEvent { event: self.id(), status: at }, &[])?;
                }
                return Ok(());
            }
            progress.status
        };
        self.run(vec![(at, callback)], status);
        Ok(())
    }

    /// Waits until the command has ended.
    pub(crate) fn wait(&self) -> cl_int {
        let session = &self.context.session;
        // A session that is lost has failed its events already.
        let _ = session.push_out();
        // A user event is set by another thread, not by something that arrives.
        if self.queue.is_some() {
            session.receive_until(|| self.status() <= CL_COMPLETE);
        }
        let mut progress = lock(&self.progress);
        while progress.status > CL_COMPLETE {
            if process::is_exiting() {
                return CL_DEVICE_NOT_AVAILABLE;
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        progress.status
    }

    /// `clSetUserEventStatus`.
    pub(crate) fn set_user_status(self: &Arc<Self>, status: cl_int) -> ClResult<()> {
        // CL_INVALID_EVENT if event is not a valid user event object.
        if self.queue.is_some() {
            return Err(ClError(CL_INVALID_EVENT));
        }
        // CL_INVALID_VALUE if the execution_status is not CL_COMPLETE or a negative integer value.
        if status > CL_COMPLETE {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // CL_INVALID_OPERATION if the execution_status for event has already been changed.
        if self.status() <= CL_COMPLETE {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        self.context.session.post(&SetUserEventStatus { event: self.id(), status }, &[])?;
        self.finish(status, [0; 5]);
        Ok(())
    }

    /// `clGetEventInfo`.
    pub(crate) fn info(&self, param: cl_event_info) -> ClResult<InfoValue<'_>> {
        Ok(match param {
            CL_EVENT_COMMAND_QUEUE => value(self.queue.as_ref().map_or(0, |queue| queue.address())),
            CL_EVENT_COMMAND_TYPE => value(self.command),
            CL_EVENT_COMMAND_EXECUTION_STATUS => value(self.status()),
            CL_EVENT_REFERENCE_COUNT => value(self.base.references()),
            CL_EVENT_CONTEXT => value(self.context.address()),
            _ => return Err(ClError(CL_INVALID_VALUE)),
        })
    }

    /// `clGetEventProfilingInfo`.
    pub(crate) fn profiling_info(&self, param: cl_profiling_info) -> ClResult<InfoValue<'_>> {
        let place = match param {
            CL_PROFILING_COMMAND_QUEUED => 0,
            CL_PROFILING_COMMAND_SUBMIT => 1,
            CL_PROFILING_COMMAND_START => 2,
            CL_PROFILING_COMMAND_END => 3,
            CL_PROFILING_COMMAND_COMPLETE => 4,
            _ => return Err(ClError(CL_INVALID_VALUE)),
        };
        // CL_PROFILING_INFO_NOT_AVAILABLE if the CL_QUEUE_PROFILING_ENABLE flag is not set for the
        // command-queue, if the execution status of the command identified by event is not
        // CL_COMPLETE or if event is a user event object.
        let progress = lock(&self.progress);
        let profiled = self.queue.as_ref().is_some_and(|queue| queue.has_profiling());
        if !profiled || progress.status != CL_COMPLETE {
            return Err(ClError(CL_PROFILING_INFO_NOT_AVAILABLE));
        }
        Ok(value(progress.profile[place]))
    }
}

/// `clWaitForEvents`.
pub(crate) fn wait_for_all(events: &[Arc<Event>]) -> ClResult<()> {
    // CL_INVALID_CONTEXT if events specified in event_list do not belong to the same context.
    if events.windows(2).any(|pair| pair[0].context.id() != pair[1].context.id()) {
        return Err(ClError(CL_INVALID_CONTEXT));
    }
    // What is waited for is mostly the last command of its queue, and is followed by a look at what it made.
    if let Some(event) = events.last().filter(|event| event.status() > CL_COMPLETE)
        && let Some(queue) = &event.queue
    {
        queue.foresee_wait();
    }
    let mut failed = false;
    for event in events {
        failed |= event.wait() < 0;
    }
    // CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST if the execution status of any of the events in
    // event_list is a negative integer value.
    if failed { Err(ClError(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)) } else { Ok(()) }
}
