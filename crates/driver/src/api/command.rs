//! What all commands have in common: a queue, a wait list, an event, and whether the call waits.

use std::cell::RefCell;
use std::sync::Arc;

use telecl_sys::*;
use telecl_wire::region::Region;
use telecl_wire::request::{self, Barrier, Marker, Message, Migrate};
use telecl_wire::{Ids, WireId};

use super::event::Event;
use super::memory::Memory;
use super::queue::Queue;
use crate::host::HostBox;
use crate::session::{Batch, Listener, Pending};

/// A command on its way into a queue.
#[derive(Debug)]
pub(crate) struct Submission<'a> {
    pub(crate) queue: &'a Arc<Queue>,
    waits: Vec<WireId>,
    /// Whether the program asked for the event.
    pub(crate) wants_event: bool,
    /// Objects of the command that have destructor callbacks.
    uses: RefCell<Vec<Arc<Memory>>>,
}

/// A part of a write.
#[derive(Debug)]
pub(super) struct Part<'s> {
    pub(super) source: &'s HostBox,
    pub(super) region: Region,
    /// Whether it closes the write.
    pub(super) last: bool,
    pub(super) batch: &'s Batch,
}

impl<'a> Submission<'a> {
    /// Checks the wait list.
    pub(crate) fn new(queue: &'a Arc<Queue>, waits: &[Arc<Event>], wants_event: bool) -> ClResult<Submission<'a>> {
        // CL_INVALID_COMMAND_QUEUE if command_queue is not a valid host command-queue.
        if queue.is_on_device() {
            return Err(ClError(CL_INVALID_COMMAND_QUEUE));
        }
        // CL_INVALID_CONTEXT if context associated with command_queue and events in event_wait_list
        // are not the same.
        if waits.iter().any(|event| event.context.id() != queue.context.id()) {
            return Err(ClError(CL_INVALID_CONTEXT));
        }
        let waits = waits.iter().map(|event| WireId::new(event.id())).collect();
        Ok(Submission { queue, waits, wants_event, uses: RefCell::default() })
    }

    /// Notes that the command uses a memory object. CL_INVALID_CONTEXT if the context associated with
    /// command_queue and the object are not the same.
    pub(super) fn uses(&self, memory: &Arc<Memory>) -> ClResult<()> {
        if memory.context.id() != self.queue.context.id() {
            return Err(ClError(CL_INVALID_CONTEXT));
        }
        if memory.has_destructors() {
            self.uses.borrow_mut().push(Arc::clone(memory));
        }
        Ok(())
    }

    /// Whether we must hear of the command's end: for the program, or for destructor callbacks.
    pub(super) fn needs_event(&self) -> bool {
        self.wants_event || !self.uses.borrow().is_empty()
    }

    pub(super) fn command(&self, event: Option<&Arc<Event>>) -> request::Command<'_> {
        request::Command {
            queue: self.queue.id(),
            event: event.map_or(0, |event| event.id()),
            seen: self.wants_event,
            waits: Ids(&self.waits),
        }
    }

    pub(super) fn has_waits(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Posts a command of one frame; makes its event if the program wants one.
    pub(super) fn post<'m, M: Message<'m>>(
        &'m self,
        kind: cl_command_type,
        message: impl FnOnce(request::Command<'m>) -> M,
    ) -> ClResult<Option<Arc<Event>>> {
        let event = self.needs_event().then(|| self.expect(kind, None));
        let _order = self.queue.hold();
        self.send(event.as_ref(), &message(self.command(event.as_ref())), &[])?;
        Ok(event.filter(|_| self.wants_event))
    }

    /// An event that the session will complete.
    pub(super) fn expect(&self, kind: cl_command_type, target: Option<HostBox>) -> Arc<Event> {
        let event = Event::of_command(self.queue, kind, !self.wants_event);
        event.submitted();
        self.queue.context.session.expect(
            event.id(),
            Pending { listener: Listener::Event(Arc::clone(&event)), target, uses: self.uses.take() },
        );
        event
    }

    /// Sends a frame of a command whose event, if any, is expected already.
    pub(super) fn send<'m, M: Message<'m>>(
        &self,
        event: Option<&Arc<Event>>,
        message: &M,
        payload: &[u8],
    ) -> ClResult<()> {
        self.sent(event, self.queue.context.session.post(message, payload))
    }

    /// As [`Submission::send`], with a part of a box as payload.
    pub(super) fn send_part<'m, M: Message<'m>>(
        &self,
        event: Option<&Arc<Event>>,
        message: &M,
        part: &Part<'_>,
    ) -> ClResult<()> {
        let session = &self.queue.context.session;
        self.sent(event, session.post_part(message, part.source, &part.region, part.last, part.batch))
    }

    /// As [`Submission::send`], for a call that is about to wait.
    pub(super) fn send_and_more<'m, M: Message<'m>>(&self, event: &Arc<Event>, message: &M) -> ClResult<()> {
        self.sent(Some(event), self.queue.context.session.post_and_more(message, &[]))
    }

    pub(super) fn sent(&self, event: Option<&Arc<Event>>, sent: ClResult<()>) -> ClResult<()> {
        let session = &self.queue.context.session;
        sent.inspect_err(|_| {
            if let Some(event) = event {
                session.forget(event.id());
            }
        })
    }

    /// Waits for a blocking command and says how it ended; also reports what failed before it.
    pub(super) fn wait(&self, event: &Event) -> ClResult<()> {
        let status = event.wait();
        self.queue.context.take_failure(self.queue.id())?;
        if status < 0 { Err(ClError(status)) } else { Ok(()) }
    }

    /// Waits for the vendor's own verdict on a command that we cannot judge.
    pub(super) fn verify(&self, event: &Event) -> ClResult<()> {
        let verdict =
            self.queue.context.session.call(|call| request::Check { call, kind: request::Kind::Event, id: event.id() });
        // The verdict is reported here, and need not be again by the next call that waits.
        verdict.map(drop).inspect_err(|_| {
            let _ = self.queue.context.take_failure(self.queue.id());
        })
    }

    /// `clEnqueueMarkerWithWaitList`.
    pub(crate) fn marker(&self) -> ClResult<Option<Arc<Event>>> {
        self.post(CL_COMMAND_MARKER, |command| Marker { command })
    }

    /// `clEnqueueBarrierWithWaitList`.
    pub(crate) fn barrier(&self) -> ClResult<Option<Arc<Event>>> {
        self.post(CL_COMMAND_BARRIER, |command| Barrier { command })
    }

    /// `clEnqueueMigrateMemObjects`.
    pub(crate) fn migrate(
        &self,
        objects: &[Arc<Memory>],
        flags: cl_mem_migration_flags,
    ) -> ClResult<Option<Arc<Event>>> {
        const KNOWN: u64 = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
        // CL_INVALID_VALUE if flags is not 0 or is not any of the values described.
        if flags & !KNOWN != 0 {
            return Err(ClError(CL_INVALID_VALUE));
        }
        for object in objects {
            self.uses(object)?;
        }
        let ids: Vec<WireId> = objects.iter().map(|object| WireId::new(object.id())).collect();
        let event = self.needs_event().then(|| self.expect(CL_COMMAND_MIGRATE_MEM_OBJECTS, None));
        let _order = self.queue.hold();
        let message = Migrate { command: self.command(event.as_ref()), objects: Ids(&ids), flags };
        self.send(event.as_ref(), &message, &[])?;
        Ok(event.filter(|_| self.wants_event))
    }
}
