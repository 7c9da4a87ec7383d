//! Events: those of commands, and those that the program sets.

use std::collections::HashSet;
use std::sync::Arc;

use telecl_opencl::{ClError, ClResult, Event, Order};
use telecl_sys::*;
use telecl_wire::request::{Command, CreateUserEvent, Message, SetUserEventStatus, WatchEvent};

use super::completion::{Note, Token};
use super::link::About;
use super::session::Session;

#[derive(Debug)]
pub(crate) struct EventEntry {
    pub(super) event: Arc<Event>,
    /// The queue of the command; 0 of a user event.
    pub(super) queue: u64,
    /// Of a command: what it is reported under. User events are not reported, the driver set them itself.
    pub(super) token: Option<Token>,
    /// The statuses that the vendor was asked to tell of, a bit each.
    pub(super) watched: u8,
}

impl Session {
    pub(super) fn create_user_event(&mut self, request: &CreateUserEvent) {
        if self.unset.contains_key(&request.id) {
            // Commands wait for it, which are known by its id.
            let about = About { opcode: CreateUserEvent::OPCODE, name: "CreateUserEvent", ..About::default() };
            return self.link.failed(about, ClError(CL_INVALID_EVENT), 0);
        }
        let made = self.context(request.context).and_then(|context| context.create_user_event());
        let made = made.map(|event| EventEntry { event: Arc::new(event), queue: 0, token: None, watched: 0 });
        self.link.created(CreateUserEvent::OPCODE, "CreateUserEvent", request.context, request.id, &made);
        if made.is_ok() {
            self.unset.insert(request.id, HashSet::new());
        }
        self.events.insert(request.id, made);
    }

    pub(super) fn set_user_event_status(&mut self, request: &SetUserEventStatus) {
        // Commands that wait for it may be in queues that were not flushed; a driver may run them right here.
        if self.unflushed {
            self.flush_queues();
        }
        self.pass_unblocked(request.event);
        let set = self.events.get(request.event).and_then(|entry| entry.event.set_status(request.status));
        if let Err(error) = set {
            let opcode = SetUserEventStatus::OPCODE;
            let about = About { opcode, name: "SetUserEventStatus", object: request.event, ..About::default() };
            // What waits for it does so on.
            return self.link.failed(about, error, 0);
        }
        self.unblock(request.event);
        if request.status < CL_COMPLETE {
            self.completion.lanes().note_failure();
            // Some drivers say nothing about what fails because of it.
            self.completion.note(Note::LookAround);
        }
    }

    /// A read that is not enqueued as a whole has no event yet, but it will have one that nobody wants.
    pub(super) fn release_event(&mut self, id: u64) {
        self.enqueue_open_read_of(id);
        self.events.remove(id);
        if !self.blocked_events.is_empty() {
            self.blocked_events.remove(&id);
        }
    }

    /// Asks the vendor to be told; a status that it never reports is no error, for the end comes anyway.
    pub(super) fn watch_event(&mut self, request: &WatchEvent) {
        self.enqueue_open_read_of(request.event);
        let Ok(entry) = self.events.get_mut(request.event) else { return };
        let (completion, event, status) = (self.completion.clone(), request.event, request.status);
        if !matches!(status, CL_SUBMITTED | CL_RUNNING) {
            return;
        }
        // Once is enough: the driver tells all who want to know.
        let bit = 1 << status;
        if entry.watched & bit != 0 {
            return;
        }
        entry.watched |= bit;
        let reached = move |reached: i32| {
            // A command that failed is completed, not running.
            if reached >= CL_COMPLETE {
                completion.note(Note::Reached { event, status });
            }
        };
        if let Err(error) = entry.event.on_status(status, Box::new(reached)) {
            tracing::debug!(session = self.link.session(), call = "WatchEvent", %error, "call failed");
        }
    }

    /// What a command with these waits has to wait for, and what is reported before it.
    ///
    /// An event that failed before it came to be fails whatever waits for it. Commands of one in-order queue are reported
    /// in order anyway, and run in order: the vendor need not be told, unless one fails and takes the others with it.
    pub(super) fn order_after(&self, command: &Command<'_>) -> ClResult<(Order<'_>, Vec<Token>)> {
        let mut order = Order::new();
        let mut tokens = Vec::new();
        if command.waits.is_empty() {
            return Ok((order, tokens));
        }
        let queue = self.queues.get(command.queue)?;
        if queue.ends.is_idle() {
            queue.waits_for_others.set(false);
        }
        for id in command.waits.iter() {
            match self.events.entry(id) {
                // PoCL 3.1 never ends a command whose wait list has failed already.
                Some(Ok(entry)) if !self.candid && entry.event.status().is_ok_and(|status| status < CL_COMPLETE) => {
                    return Err(ClError(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST));
                }
                Some(Ok(entry)) if entry.queue == command.queue && !queue.out_of_order => {
                    let can_fail = queue.waits_for_others.get() || self.completion.lanes().have_failed();
                    if can_fail || !self.candid {
                        order.push(&entry.event);
                    }
                }
                Some(Ok(entry)) => {
                    queue.waits_for_others.set(true);
                    order.push(&entry.event);
                    tokens.extend(entry.token);
                }
                Some(Err(_)) => return Err(ClError(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)),
                None => return Err(ClError(CL_INVALID_EVENT_WAIT_LIST)),
            }
        }
        Ok((order, tokens))
    }
}
