//! Command queues, and when their commands are handed to the device.

use std::cell::Cell;
use std::sync::Arc;

use telecl_opencl::{ClError, ClResult, Order, Queue};
use telecl_sys::*;
use telecl_wire::request::{CreateQueue, Finish, Message, SetDefaultDeviceQueue};

use super::bounds::MOST_PUT_OFF;
use super::completion::{Report, Token};
use super::ends::{Ends, Weight};
use super::session::Session;
use super::staging::Pool;
use super::transfer::OpenRead;

/// A queue of the driver is a queue of the vendor, which orders the commands.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    pub(super) queue: Arc<Queue>,
    pub(super) context: u64,
    /// Host memory for its transfers.
    pub(super) pool: Pool,
    /// The last command, if it is a read whose parts have not all been enqueued.
    pub(super) open_read: Option<Box<OpenRead>>,
    /// Finishes that wait for it.
    pub(super) put_off: Vec<u64>,
    pub(super) out_of_order: bool,
    /// Whether a command may fail because of something outside of the queue that it waits for.
    pub(super) waits_for_others: Cell<bool>,
    pub(super) ends: Ends,
    pub(super) profiling: bool,
    /// Its device's place among the session's gates.
    pub(super) gate: usize,
    /// Events of the program that are not set, and that everything waits for which comes now.
    pub(super) blockers: Vec<u64>,
    /// Out of order: … that some command waits for.
    pub(super) loose_blockers: Vec<u64>,
    /// The last fill of new memory that its next command comes after.
    pub(super) cleared: u64,
    /// Has commands that were not flushed.
    pub(super) unflushed: bool,
    /// Out of order: all that may not have been reported.
    pub(super) reported: Vec<Token>,
    /// Out of order: what a barrier makes later commands wait for.
    pub(super) fence: Vec<Token>,
}

impl QueueEntry {
    /// What is reported before a command that comes now; `all` if the command waits for everything before it.
    pub(super) fn before(&self, all: bool) -> Vec<Token> {
        match (self.out_of_order, all) {
            // Reported in order anyway.
            (false, _) => Vec::new(),
            (true, true) => self.reported.clone(),
            (true, false) => self.fence.clone(),
        }
    }

    /// Notes that the command `token` has come, which is reported after all before it: whatever comes after it comes
    /// after those as well.
    pub(super) fn note_all(&mut self, token: Token) {
        if self.out_of_order {
            self.reported.clear();
            self.reported.push(token);
        }
    }

    /// Notes that the command `token` has come.
    pub(super) fn note(&mut self, token: Token) {
        if self.out_of_order {
            self.reported.push(token);
        }
    }
}

impl Session {
    pub(super) fn create_queue(&mut self, request: &CreateQueue<'_>) {
        // An id that is used again: what is behind it is not to be forgotten with its commands under way.
        self.release_queue(request.id);
        let made = self.make_queue(request);
        self.link.created(CreateQueue::OPCODE, "CreateQueue", request.context, request.id, &made);
        self.queues.insert(request.id, made);
    }

    fn make_queue(&self, request: &CreateQueue<'_>) -> ClResult<QueueEntry> {
        const CLASSIC: u64 = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
        let context = self.context(request.context)?;
        let device = self.devices.get(request.device)?;
        let properties: Vec<u64> = request.properties.iter().collect();
        let bits = properties.chunks_exact(2).find(|pair| pair[0] == u64::from(CL_QUEUE_PROPERTIES));
        let bits = bits.map_or(0, |pair| pair[1]);
        let only_bits =
            properties.is_empty() || (properties.len() == 2 && properties[0] == u64::from(CL_QUEUE_PROPERTIES));
        let queue = if only_bits && bits & !CLASSIC == 0 {
            context.create_queue(device, bits)?
        } else {
            context.create_queue_with_properties(device, &properties)?
        };
        let out_of_order = bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0;
        let root = self.root_of(request.device).ok_or(ClError(CL_INVALID_DEVICE))?;
        let gate = self.board.place(root).ok_or(ClError(CL_INVALID_DEVICE))?;
        Ok(QueueEntry {
            queue: Arc::new(queue),
            context: request.context,
            pool: self.contexts.get(request.context)?.pool.clone(),
            open_read: None,
            put_off: Vec::new(),
            out_of_order,
            waits_for_others: Cell::new(false),
            ends: self.completion.ends(out_of_order, self.candid, Arc::clone(&self.gates[gate].turns)),
            gate,
            blockers: Vec::new(),
            loose_blockers: Vec::new(),
            profiling: bits & CL_QUEUE_PROFILING_ENABLE != 0,
            cleared: 0,
            unflushed: false,
            reported: Vec::new(),
            fence: Vec::new(),
        })
    }

    /// Hands everything to the devices; called before the executor waits for the driver.
    pub(super) fn flush_queues(&mut self) {
        self.unflushed = false;
        for (_, entry) in self.queues.iter_mut() {
            if std::mem::take(&mut entry.unflushed) {
                // What cannot be flushed fails in its own events.
                let _ = entry.queue.flush();
            }
        }
    }

    /// Replies when all commands so far have ended; nothing waits here.
    pub(super) fn finish(&mut self, request: &Finish) {
        if let Ok(entry) = self.queues.get_mut(request.queue)
            && entry.open_read.is_some()
        {
            if entry.put_off.len() >= MOST_PUT_OFF {
                return self.link.answer("Finish", request.call, &Err(ClError(CL_OUT_OF_RESOURCES)));
            }
            return entry.put_off.push(request.call);
        }
        if let Err(error) = self.begin_finish(request) {
            match self.queues.get(request.queue) {
                // A queue that takes no marker any more may call that something else in clFinish.
                Ok(entry) => self.completion.ask_vendor_to_finish(request.call, &entry.queue),
                Err(_) => self.link.answer("Finish", request.call, &Err(error)),
            }
        }
    }

    fn begin_finish(&mut self, request: &Finish) -> ClResult<()> {
        self.completion.check_room()?;
        let entry = self.queues.get_mut(request.queue)?;
        let vendor_has_a_say = self.output.is_expected() || self.completion.lanes().have_failed();
        if entry.ends.is_idle() && !vendor_has_a_say {
            self.link.reply(request.call, CL_SUCCESS, &[]);
            return Ok(());
        }
        let last = match entry.ends.last_event() {
            Some(last) => Some(last),
            None => {
                let marker = entry.queue.marker(&Order::new().with_event())?;
                entry.ends.block(&entry.loose_blockers);
                entry.ends.note_command();
                marker.map(Arc::new)
            }
        };
        entry.unflushed = false;
        entry.queue.flush()?;
        let report = Report::Finished { call: request.call, queue: Arc::clone(&entry.queue) };
        let group = self.completion.begin(report, 1, entry.before(true));
        entry.note_all(group.token());
        match last {
            Some(last) => {
                group.set_ends(last.clone(), last.clone());
                self.completion.watch(&entry.ends, &group, &last);
            }
            None => self.completion.settled(&group, 1, CL_COMPLETE),
        }
        Ok(())
    }

    /// The vendor's queue lives until its commands have ended, but releasing it promises that they are handed over.
    pub(super) fn release_queue(&mut self, id: u64) {
        self.enqueue_open_read(id);
        if let Ok(entry) = self.queues.get(id) {
            // Otherwise nobody would notice that the device is free.
            if (entry.ends.keeps() || entry.ends.needs_seal())
                && let Ok(Some(marker)) = entry.queue.marker(&Order::new().with_event())
            {
                entry.ends.note_command();
                entry.ends.on_end(&Arc::new(marker), Weight::Light, |_, _| {});
            }
            let _ = entry.queue.flush();
            entry.ends.close();
        }
        self.queues.remove(id);
    }

    pub(super) fn set_default_device_queue(&self, request: &SetDefaultDeviceQueue) {
        let set = || {
            let (context, device) = (self.context(request.context)?, self.devices.get(request.device)?);
            self.queues.get(request.queue)?.queue.make_device_default(context, device)?;
            Ok(Vec::new())
        };
        self.link.answer("SetDefaultDeviceQueue", request.call, &set());
    }
}
