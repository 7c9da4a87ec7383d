//! Reads and writes: commands with host memory, cut into parts that fit a frame.
//!
//! A part is one of the vendor's commands. The parts of a read are enqueued as memory for them is set free, and each is
//! sent as soon as it is there; those of a write are enqueued as they arrive. To the driver they are one command with one
//! event. A read that is not enqueued as a whole is *open*: whatever is to come after it has the rest enqueued first.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::{Duration, Instant};

use telecl_opencl::{ClError, ClResult, Event, Mem, Order, Queue, RectSide};
use telecl_sys::*;
use telecl_wire::Ids;
use telecl_wire::region::{Parts, Region};
use telecl_wire::reply::{Completed, Data};
use telecl_wire::request::*;

use super::command::{Rect, image_region};
use super::completion::{Group, Note, Report};
use super::ends::{Ends, Weight};
use super::memory::{to_usize, to_usizes, within};
use super::pace::Likeness;
use super::session::Session;
use super::staging::Chunk;
use super::vendor::{self, InFlight};

/// Reads up to this size are sent by whoever notices their end.
const LIGHT: usize = 64 << 10;

/// So few bytes are not worth much ado.
const FEW: usize = 4 << 10;

/// A write of which more parts are to come.
#[derive(Debug, Default)]
pub(crate) struct OpenWrite {
    /// None if already its queue or its waits were wrong.
    group: Option<Arc<Group>>,
    /// Of the parts so far.
    events: Vec<Arc<Event>>,
    /// How many came, with those that failed.
    parts: usize,
    failed: Option<ClError>,
}

/// A read, of which the first parts have been enqueued.
#[derive(Debug)]
pub(crate) struct OpenRead {
    about: (u16, &'static str),
    /// The driver's number of its event.
    event: u64,
    source: ReadSource,
    /// Bytes of a unit.
    unit: u64,
    parts: Peekable<Parts>,
    /// What it reads, which the program may release before it is enqueued as a whole.
    mem: Mem,
    /// What all parts wait for.
    waits: Vec<Arc<Event>>,
    /// Events of the program among what they wait for, if they were not set when the read came.
    blockers: Vec<u64>,
    group: Arc<Group>,
    /// Of the parts so far.
    events: Vec<Arc<Event>>,
    failed: Option<ClError>,
    /// Keeps the group open until all parts have been enqueued.
    guarded: bool,
    /// Since when nothing that is set aside was free.
    starving: Option<Instant>,
}

/// What is read, and from where on.
#[derive(Clone, Copy, Debug)]
enum ReadSource {
    Buffer { buffer: u64, offset: u64 },
    Rect { buffer: u64, origin: [u64; 3], side: RectSide },
    Image { image: u64, origin: [u64; 3] },
}

impl ReadSource {
    fn id(self) -> u64 {
        match self {
            ReadSource::Buffer { buffer, .. } | ReadSource::Rect { buffer, .. } => buffer,
            ReadSource::Image { image, .. } => image,
        }
    }
}

/// After so long a read that has nothing under way takes memory beyond what is set aside. All of that may be in commands
/// that wait for the program, and the program for this read.
const STARVED: Duration = Duration::from_millis(5);

/// How long a read that cannot be put off waits for the driver to receive what was read before.
const UNRECEIVED: Duration = Duration::from_secs(10);

impl OpenRead {
    /// Whether it would wait for others for ever, as far as can be told.
    fn is_starved(&self) -> bool {
        self.group.is_waiting_for_parts() && self.starving.is_some_and(|since| since.elapsed() >= STARVED)
    }
}

/// Where the memory of a read comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    /// From what is set aside for transfers; parts for which there is none are enqueued later. One part at a time may have
    /// other memory, so that it does not starve.
    SetAside,
    /// From anywhere: a command that comes after must not overtake it.
    Anywhere,
}

/// Reads.
impl Session {
    pub(super) fn read_buffer(&mut self, request: &ReadBuffer<'_>) {
        let about = (ReadBuffer::OPCODE, "ReadBuffer");
        let checked = self.buffer_size(request.buffer).and_then(|all| within(request.offset, request.size, all));
        let source = ReadSource::Buffer { buffer: request.buffer, offset: request.offset };
        self.read(about, &request.command, checked.map(|()| (source, 1)), [request.size, 1, 1]);
    }

    pub(super) fn read_rect(&mut self, request: &ReadRect<'_>) {
        let about = (ReadRect::OPCODE, "ReadRect");
        let ReadRect { buffer, origin, region, row_pitch, slice_pitch, .. } = *request;
        let rect = Rect { origin, region, row_pitch, slice_pitch };
        let side = self.buffer_size(buffer).and_then(|all| rect.side_within(all));
        let source = side.map(|side| (ReadSource::Rect { buffer, origin, side }, 1));
        self.read(about, &request.command, source, region);
    }

    pub(super) fn read_image(&mut self, request: &ReadImage<'_>) {
        let about = (ReadImage::OPCODE, "ReadImage");
        let ReadImage { image, origin, region, .. } = *request;
        let checked = self.check_image_part(image, origin, region);
        let source = checked.map(|(_, element)| (ReadSource::Image { image, origin }, element as u64));
        self.read(about, &request.command, source, region);
    }

    /// Reads a box of `size` units of a source, with the bytes of a unit (or fails with what is there instead).
    fn read(
        &mut self,
        about: (u16, &'static str),
        command: &Command<'_>,
        source: ClResult<(ReadSource, u64)>,
        size: [u64; 3],
    ) {
        let (source, unit) = match source {
            Ok(source) => source,
            Err(error) => return self.command_failed(about, command, error),
        };
        if command.event == 0 {
            // Nobody could tell what the data belongs to.
            return self.command_failed(about, command, ClError(CL_INVALID_VALUE));
        }
        if size.contains(&0) {
            // Nothing to read, but something to wait for.
            return self.enqueue_marker(about, command);
        }
        self.make_way_for_reads(command);
        // What is longer is enqueued part by part, and others come in between.
        let like = Likeness::transfer(about.0, volume(size, unit).min(self.link.chunk() as u64));
        let pass = match self.pass(command, like, false) {
            Ok(pass) => pass,
            Err(error) => return self.command_failed(about, command, error),
        };
        if let ReadSource::Buffer { buffer, offset } = source
            && self.read_now(command, buffer, offset, size[0])
        {
            return;
        }
        // Not before: what is read now comes after the clears by itself.
        self.come_after_clears(command.queue);
        match self.open_read(about, command, source, unit, size) {
            Ok(mut read) => match self.enqueue_parts(command.queue, &mut read, Supply::SetAside) {
                Ok(()) => {
                    self.passed(pass, read.events.last());
                    self.close_or_leave_open(command.queue, read);
                }
                Err(error) => {
                    self.completion.abandon(&read.group);
                    self.command_failed(about, command, error);
                }
            },
            Err(error) => self.command_failed(about, command, error),
        }
    }

    /// Reads a few bytes here and now, if the queue has nothing else to do and only the driver will know of it. `false` if
    /// that is not so, or went wrong: then it goes the usual way, which tells what is wrong.
    ///
    /// NVIDIA's driver (580) does this in half the time of a command in a queue with profiling.
    fn read_now(&self, command: &Command<'_>, buffer: u64, offset: u64, size: u64) -> bool {
        let mut bytes = [0; FEW];
        let Some(bytes) = usize::try_from(size).ok().and_then(|size| bytes.get_mut(..size)) else { return false };
        let Ok(entry) = self.queues.get(command.queue) else { return false };
        if command.seen || !command.waits.is_empty() || !entry.ends.is_idle() || self.output.is_expected() {
            return false;
        }
        let (Some(side), Ok((buffer, _)), Ok(offset)) =
            (entry.pool.side_queue(), self.buffer(buffer), to_usize(offset))
        else {
            return false;
        };
        if side.read_buffer_blocking(&buffer, offset, bytes).is_err() {
            return false;
        }
        self.link.push(&Data { event: command.event, region: Region::linear(0, size) }, bytes);
        self.link.push(&Completed { event: command.event, status: CL_COMPLETE, profile: [0; 5] }, &[]);
        true
    }

    fn open_read(
        &self,
        about: (u16, &'static str),
        command: &Command<'_>,
        source: ReadSource,
        unit: u64,
        size: [u64; 3],
    ) -> ClResult<OpenRead> {
        let entry = self.queues.get(command.queue)?;
        let mem = self.memory.get(source.id())?.mem()?.clone();
        let (_, mut after) = self.order_after(command)?;
        let waits = command.waits.iter().filter_map(|id| self.events.get(id).ok());
        let waits = waits.map(|entry| Arc::clone(&entry.event)).collect();
        after.extend(entry.before(false));
        let parts = Region::parts(size, unit, self.link.chunk() as u64);
        // With one part everything is known before it can end; with more, a guard keeps the group open until it is.
        let guarded = !parts.is_single();
        let report = Report::Completed { event: command.event, profiling: command.seen && entry.profiling };
        let group = self.completion.begin(report, 1, after);
        let (parts, events) = (parts.peekable(), Vec::new());
        let (event, failed, starving, blockers) = (command.event, None, None, self.last_blockers.clone());
        Ok(OpenRead {
            about,
            event,
            source,
            unit,
            parts,
            mem,
            waits,
            blockers,
            group,
            events,
            failed,
            guarded,
            starving,
        })
    }

    /// Enqueues parts as long as there is memory for them. An error if already the first fails.
    fn enqueue_parts(&self, queue: u64, read: &mut OpenRead, supply: Supply) -> ClResult<()> {
        let entry = self.queues.get(queue)?;
        let order = Order::after(read.waits.iter().map(|event| &**event));
        while let Some(part) = read.parts.peek().cloned() {
            let bytes = part.volume().and_then(|volume| volume.checked_mul(read.unit)).map_or(Ok(0), to_usize)?;
            let chunk = match supply {
                Supply::SetAside => match entry.pool.take_set_aside(bytes) {
                    None if read.is_starved() && self.link.host_memory().has_room(bytes) => {
                        Some(entry.pool.take_beyond(bytes))
                    }
                    found => {
                        read.starving =
                            if found.is_none() { read.starving.or_else(|| Some(Instant::now())) } else { None };
                        found
                    }
                },
                Supply::Anywhere if self.await_host_memory(bytes) => Some(entry.pool.take_outgoing(bytes)),
                Supply::Anywhere => {
                    read.failed = Some(ClError(CL_OUT_OF_HOST_MEMORY));
                    while read.parts.next().is_some() {}
                    return Ok(());
                }
            };
            let Some(chunk) = chunk else { return Ok(()) };
            read.parts.next();
            match self.enqueue_part(&entry.queue, read, &part, chunk, &order) {
                Ok(in_flight) => {
                    entry.ends.note_command();
                    let event = Arc::clone(in_flight.event());
                    if read.guarded {
                        read.group.expect_one_more();
                    } else {
                        read.group.set_ends(Arc::clone(&event), Arc::clone(&event));
                    }
                    read.events.push(event);
                    let group = Arc::clone(&read.group);
                    let weight = if bytes > LIGHT { Weight::Bulk } else { Weight::Light };
                    in_flight.then_report(&self.completion, &entry.ends, weight, move |status, event, chunk| {
                        let (event, data) = (Arc::clone(event), Some((part, chunk)));
                        Note::PartEnded { group, event, status, data }
                    });
                }
                Err(error) if read.events.is_empty() => return Err(error),
                Err(error) => {
                    read.failed = Some(error);
                    while read.parts.next().is_some() {}
                }
            }
        }
        Ok(())
    }

    /// Waits until there is host memory for a part that must be enqueued now: what was read before goes to the driver
    /// meanwhile. `false` if that takes none of it.
    fn await_host_memory(&self, bytes: usize) -> bool {
        let host = self.link.host_memory();
        if host.has_room(bytes) {
            return true;
        }
        self.queues.iter().for_each(|(_, entry)| _ = entry.queue.flush());
        self.completion.lanes().hand_over_all();
        self.link.flush();
        let begin = Instant::now();
        while !host.has_room(bytes) && begin.elapsed() < UNRECEIVED {
            std::thread::sleep(Duration::from_micros(200));
        }
        host.has_room(bytes)
    }

    fn enqueue_part(
        &self,
        queue: &Queue,
        read: &OpenRead,
        part: &Region,
        chunk: Chunk,
        order: &Order<'_>,
    ) -> ClResult<InFlight> {
        match read.source {
            ReadSource::Buffer { offset, .. } => {
                vendor::read_buffer(queue, &read.mem, to_usize(offset + part.origin[0])?, chunk, order)
            }
            ReadSource::Rect { origin, side, .. } => {
                let side = RectSide { origin: to_usizes(sum(origin, part.origin)?)?, ..side };
                vendor::read_rect(queue, &read.mem, &side, &to_usizes(part.size)?, chunk, order)
            }
            ReadSource::Image { origin, .. } => {
                let region = image_region(sum(origin, part.origin)?, part.size)?;
                vendor::read_image(queue, &read.mem, &region, to_usize(read.unit)?, chunk, order)
            }
        }
    }

    /// Closes a read that has been enqueued as a whole; any other waits for memory.
    fn close_or_leave_open(&mut self, queue: u64, mut read: OpenRead) {
        if read.parts.peek().is_none() {
            return self.close_read(queue, read);
        }
        self.enqueued(queue);
        if let Ok(entry) = self.queues.get_mut(queue) {
            entry.open_read = Some(Box::new(read));
            self.open_reads.push(queue);
        }
    }

    fn close_read(&mut self, queue: u64, read: OpenRead) {
        let OpenRead { about, event, group, events, failed, guarded, .. } = read;
        let command = Command { queue, event, seen: false, waits: Ids(&[]) };
        self.close(about, &command, &group, &events, failed, guarded);
        let put_off = self.queues.get_mut(queue).map(|entry| std::mem::take(&mut entry.put_off));
        for call in put_off.unwrap_or_default() {
            self.finish(&Finish { call, queue });
        }
    }

    /// Enqueues more parts of reads that have waited for memory; `found` becomes true if there was some. Returns whether
    /// reads are still open.
    pub(super) fn go_on_reading(&mut self, found: &mut bool) -> bool {
        for queue in std::mem::take(&mut self.open_reads) {
            let Some(mut read) = self.queues.get_mut(queue).ok().and_then(|entry| entry.open_read.take()) else {
                continue;
            };
            let before = read.events.len();
            self.pass_again(queue, &mut read);
            // Its first part was enqueued before, so what fails now is told in its event.
            let _ = self.enqueue_parts(queue, &mut read, Supply::SetAside);
            *found |= read.events.len() > before;
            self.close_or_leave_open(queue, *read);
        }
        !self.open_reads.is_empty()
    }

    /// More parts of a read are about to be enqueued: waits until they may be, unless they wait for the program anyway.
    fn pass_again(&mut self, queue: u64, read: &mut OpenRead) {
        let Ok(entry) = self.queues.get(queue) else { return };
        read.blockers.retain(|blocker| self.unset.contains_key(blocker));
        entry.ends.block(&read.blockers);
        if read.blockers.is_empty() {
            self.wait_at(entry.gate, Likeness::transfer(read.about.0, self.link.chunk() as u64));
        }
    }

    /// Enqueues what is left of the queue's open read, so that something can come after it.
    pub(super) fn enqueue_open_read(&mut self, queue: u64) {
        if self.open_reads.is_empty() {
            return;
        }
        let Some(mut read) = self.queues.get_mut(queue).ok().and_then(|entry| entry.open_read.take()) else { return };
        self.open_reads.retain(|open| *open != queue);
        self.pass_again(queue, &mut read);
        let _ = self.enqueue_parts(queue, &mut read, Supply::Anywhere);
        self.close_read(queue, *read);
    }

    /// Enqueues what is left of all open reads.
    pub(super) fn enqueue_open_reads(&mut self) {
        while let Some(queue) = self.open_reads.last().copied() {
            self.enqueue_open_read(queue);
            // Also of a queue that is gone.
            self.open_reads.retain(|open| *open != queue);
        }
    }

    /// As [`Session::enqueue_open_read`], for the queue whose open read has this event.
    pub(super) fn enqueue_open_read_of(&mut self, event: u64) {
        let queue = self.open_reads.iter().copied().find(|&queue| {
            let read = self.queues.get(queue).ok().and_then(|entry| entry.open_read.as_ref());
            read.is_some_and(|read| read.event == event)
        });
        if let Some(queue) = queue {
            self.enqueue_open_read(queue);
        }
    }

    /// To be called before a command is enqueued: what it comes after must be there.
    pub(super) fn make_way(&mut self, command: &Command<'_>) {
        self.make_way_for_reads(command);
        self.come_after_clears(command.queue);
    }

    fn make_way_for_reads(&mut self, command: &Command<'_>) {
        if !self.open_reads.is_empty() {
            self.enqueue_open_read(command.queue);
            command.waits.iter().for_each(|event| self.enqueue_open_read_of(event));
        }
    }

    /// New memory that commands of the queue may use is cleared before they do.
    fn come_after_clears(&mut self, queue: u64) {
        if self.clears.are_under_way()
            && let Ok(entry) = self.queues.get_mut(queue)
        {
            self.clears.come_before(entry.context, &mut entry.cleared, &entry.queue);
        }
    }

    /// All parts of a command have been enqueued, or one has failed: makes its event.
    fn close(
        &mut self,
        about: (u16, &'static str),
        command: &Command<'_>,
        group: &Arc<Group>,
        events: &[Arc<Event>],
        failed: Option<ClError>,
        guarded: bool,
    ) {
        self.enqueued(command.queue);
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        let mut whole = last.clone();
        let mut failed = failed;
        let entry = self.queues.get(command.queue);
        if let (true, Ok(entry)) = (events.len() > 1, entry)
            && entry.out_of_order
        {
            // The last part may end first, so something has to wait for them all.
            entry.ends.note_command();
            match entry.queue.marker(&Order::after(events.iter().map(|event| &**event)).with_event()) {
                Ok(Some(marker)) => {
                    let marker = Arc::new(marker);
                    group.expect_one_more();
                    self.completion.watch(&entry.ends, group, &marker);
                    whole = marker;
                }
                Ok(None) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let token = group.token();
        if guarded {
            group.set_ends(first.clone(), whole.clone());
        }
        self.note_command(command, whole, token);
        if let Some(error) = failed {
            self.part_failed(about, command, error);
            self.events.insert(command.event, Err(error));
        }
        if guarded {
            let status = failed.map_or(CL_COMPLETE, ClError::code);
            self.completion.settled(group, 1, status);
        }
    }

    /// Says that a part failed; the end of the whole is told by the completion thread, after that of the other parts.
    fn part_failed(&self, (opcode, name): (u16, &'static str), command: &Command<'_>, error: ClError) {
        let context = self.queues.get(command.queue).map_or(0, |entry| entry.context);
        let about = super::link::About { opcode, name, context, queue: command.queue, object: command.event };
        self.link.failed(about, error, 0);
    }
}

/// Writes.
impl Session {
    pub(super) fn write_buffer(&mut self, request: &WriteBuffer<'_>, chunk: Chunk) {
        let about = (WriteBuffer::OPCODE, "WriteBuffer");
        if chunk.len() == 0 && request.last && !self.open_writes.contains_key(&request.command.event) {
            // Nothing to write, but something to wait for.
            return self.enqueue_marker(about, &request.command);
        }
        if request.command.event == 0 && chunk.len() <= FEW && self.goes_unwatched(request.command.queue) {
            if let Err(error) = self.write_unwatched(request, chunk) {
                self.command_failed(about, &request.command, error);
            }
            return;
        }
        self.write(about, &request.command, request.last, chunk.len(), |session, queue, order| {
            let (buffer, size) = session.buffer(request.buffer)?;
            within(request.offset, chunk.len() as u64, size)?;
            vendor::write_buffer(queue, &buffer, to_usize(request.offset)?, chunk, order)
        });
    }

    /// Whether a few bytes may be written without an event.
    ///
    /// In a queue with profiling it would cost NVIDIA's driver (580) as much as the write. To others it costs little, and
    /// saves a marker where the write is waited for.
    fn goes_unwatched(&self, queue: u64) -> bool {
        (self.candid || !self.is_last) && self.queues.get(queue).is_ok_and(|entry| entry.ends.may_keep())
    }

    /// Writes a few bytes, of whose end nobody needs to know.
    fn write_unwatched(&mut self, request: &WriteBuffer<'_>, chunk: Chunk) -> ClResult<()> {
        let command = &request.command;
        self.make_way(command);
        let pass = self.pass(command, Likeness::transfer(WriteBuffer::OPCODE, chunk.len() as u64), false)?;
        let entry = self.queues.get(command.queue)?;
        let (order, _) = self.order_after(command)?;
        let (buffer, size) = self.buffer(request.buffer)?;
        within(request.offset, chunk.len() as u64, size)?;
        let offset = to_usize(request.offset)?;
        vendor::write_buffer_unwatched(&entry.queue, &entry.ends, &buffer, offset, chunk, &order)?;
        drop((order, buffer));
        // Otherwise the next command's event will do.
        let counted = pass.with_event && self.counts_commands();
        let event = if counted { self.queues.get_mut(command.queue)?.seal() } else { None };
        self.passed(pass, event.as_ref());
        self.enqueued(command.queue);
        Ok(())
    }

    pub(super) fn write_rect(&mut self, request: &WriteRect<'_>, chunk: Chunk) {
        let about = (WriteRect::OPCODE, "WriteRect");
        self.write(about, &request.command, request.last, chunk.len(), |session, queue, order| {
            let (buffer, size) = session.buffer(request.buffer)?;
            let rect = Rect {
                origin: request.origin,
                region: request.region,
                row_pitch: request.row_pitch,
                slice_pitch: request.slice_pitch,
            };
            let side = rect.side_within(size)?;
            vendor::write_rect(queue, &buffer, &side, &to_usizes(request.region)?, chunk, order)
        });
    }

    pub(super) fn write_image(&mut self, request: &WriteImage<'_>, chunk: Chunk) {
        let about = (WriteImage::OPCODE, "WriteImage");
        self.write(about, &request.command, request.last, chunk.len(), |session, queue, order| {
            let (image, part, element) = session.image_part(request.image, request.origin, request.region)?;
            vendor::write_image(queue, &image, &part, element, chunk, order)
        });
    }

    /// Enqueues one part of a write; the `last` closes it.
    fn write(
        &mut self,
        about: (u16, &'static str),
        command: &Command<'_>,
        last: bool,
        len: usize,
        enqueue: impl FnOnce(&Session, &Queue, &Order<'_>) -> ClResult<InFlight>,
    ) {
        self.make_way(command);
        let open = if command.event == 0 { None } else { self.open_writes.remove(&command.event) };
        let like = Likeness::transfer(about.0, len as u64);
        let pass = self.pass(command, like, false);
        let enqueued = pass.and_then(|pass| {
            let (in_flight, ends) = self.enqueue_write(command, enqueue)?;
            self.passed(pass, Some(in_flight.event()));
            Ok((in_flight, ends))
        });
        if enqueued.is_ok() {
            self.enqueued(command.queue);
        }
        if command.event == 0 {
            match enqueued {
                Ok((in_flight, ends)) => in_flight.then_free(&ends),
                Err(error) => self.command_failed(about, command, error),
            }
            return;
        }
        let mut open = open.unwrap_or_else(|| self.open_write(command));
        let single = last && open.events.is_empty() && open.failed.is_none();
        match (enqueued, &open.group) {
            (Ok((in_flight, ends)), Some(group)) => {
                let event = Arc::clone(in_flight.event());
                if single {
                    group.set_ends(event.clone(), event.clone());
                } else {
                    group.expect_one_more();
                }
                open.events.push(event);
                let group = Arc::clone(group);
                in_flight.then_report(&self.completion, &ends, Weight::Light, move |status, event, chunk| {
                    // First the memory, then the news: the driver may answer it with the next write.
                    drop(chunk);
                    Note::PartEnded { group, event: Arc::clone(event), status, data: None }
                });
            }
            (Ok((in_flight, ends)), None) => in_flight.then_free(&ends),
            (Err(error), _) => open.failed = open.failed.or(Some(error)),
        }
        if !last {
            (self.open_parts, open.parts) = (self.open_parts + 1, open.parts + 1);
            self.open_writes.insert(command.event, open);
            return;
        }
        self.open_parts = self.open_parts.saturating_sub(open.parts);
        match &open.group {
            Some(group) if !open.events.is_empty() => {
                self.close(about, command, group, &open.events, open.failed, !single);
            }
            group => {
                if let Some(group) = group {
                    self.completion.abandon(group);
                }
                self.command_failed(about, command, open.failed.unwrap_or(ClError(CL_INVALID_VALUE)));
            }
        }
    }

    fn enqueue_write(
        &self,
        command: &Command<'_>,
        enqueue: impl FnOnce(&Session, &Queue, &Order<'_>) -> ClResult<InFlight>,
    ) -> ClResult<(InFlight, Ends)> {
        let entry = self.queues.get(command.queue)?;
        let (order, _) = self.order_after(command)?;
        let in_flight = enqueue(self, &entry.queue, &order)?;
        entry.ends.note_command();
        Ok((in_flight, entry.ends.clone()))
    }

    /// The first part of a write opens it.
    fn open_write(&self, command: &Command<'_>) -> OpenWrite {
        let group = || {
            let entry = self.queues.get(command.queue).ok()?;
            let (_, mut after) = self.order_after(command).ok()?;
            after.extend(entry.before(false));
            let report = Report::Completed { event: command.event, profiling: command.seen && entry.profiling };
            Some(self.completion.begin(report, 1, after))
        };
        OpenWrite { group: group(), ..OpenWrite::default() }
    }
}

/// The bytes of a box.
fn volume(size: [u64; 3], unit: u64) -> u64 {
    size.iter().fold(unit, |bytes, side| bytes.saturating_mul(*side))
}

fn sum(origin: [u64; 3], part: [u64; 3]) -> ClResult<[u64; 3]> {
    let mut sums = [0; 3];
    for axis in 0..3 {
        sums[axis] = origin[axis].checked_add(part[axis]).ok_or(ClError(CL_INVALID_VALUE))?;
    }
    Ok(sums)
}
