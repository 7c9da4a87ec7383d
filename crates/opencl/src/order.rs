//! How a command is tied to other commands.

use std::marker::PhantomData;
use std::ptr;

use telecl_sys::*;

use crate::handle::{count, pointer};
use crate::{Event, Library};

/// What a command waits for, and whether it gets an event of its own. Every enqueue takes one.
///
/// Without [`with_event`](Self::with_event) the enqueue returns `None`, and the driver makes no event. An order without
/// waits allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct Order<'a> {
    waits: Vec<cl_event>,
    event: bool,
    /// Keeps the events of `waits` alive.
    events: PhantomData<&'a Event>,
}

// SAFETY: the handles in `waits` belong to `Event`s that are borrowed, and `Event` is `Sync`.
unsafe impl Send for Order<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Order<'_> {}

impl<'a> Order<'a> {
    /// Waits for nothing, and has no event.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for these events, and has no event of its own.
    pub fn after(events: impl IntoIterator<Item = &'a Event>) -> Self {
        Self { waits: events.into_iter().map(Event::raw).collect(), ..Self::default() }
    }

    /// Waits for one more event.
    pub fn push(&mut self, event: &'a Event) {
        self.waits.push(event.raw());
    }

    /// The same order, with an event for the command.
    #[must_use]
    pub fn with_event(mut self) -> Self {
        self.event = true;
        self
    }

    /// Blocks until all events are complete. With no events it returns at once.
    pub fn wait(&self, library: &'static Library) -> ClResult<()> {
        if self.waits.is_empty() {
            return Ok(());
        }
        // SAFETY: the handles are valid, because their `Event`s are borrowed.
        check(unsafe { (library.clWaitForEvents)(count(self.waits.len())?, self.waits.as_ptr()) })
    }

    /// Runs an enqueue function with the three arguments that all of them end with.
    pub(crate) fn enqueue(
        &self,
        library: &'static Library,
        call: impl FnOnce(cl_uint, *const cl_event, *mut cl_event) -> cl_int,
    ) -> ClResult<Option<Event>> {
        let mut raw: cl_event = ptr::null_mut();
        let slot = if self.event { &raw mut raw } else { ptr::null_mut() };
        check(call(count(self.waits.len())?, pointer(&self.waits), slot))?;
        if raw.is_null() {
            return Ok(None);
        }
        // SAFETY: the command's event, whose only reference the enqueue has just given to us.
        Ok(Some(unsafe { Event::from_raw(library, raw) }))
    }
}
