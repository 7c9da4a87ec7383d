//! Reads and writes: commands with host memory, cut into parts that fit a frame.
//!
//! A part is one of the vendor's commands. The parts of a read are all enqueued at once, and each is sent as soon as it
//! is there; those of a write are enqueued as they arrive. To the driver they are one command with one event.

use std::sync::Arc;

use telecl_opencl::{ClError, ClResult, Event, Order, Queue};
use telecl_sys::*;
use telecl_wire::region::Region;
use telecl_wire::request::*;

use super::command::{Rect, image_region};
use super::completion::{Group, Note, Report};
use super::memory::{to_usize, to_usizes, within};
use super::pending::{Ends, Weight};
use super::session::Session;
use super::staging::Chunk;
use super::vendor::{self, InFlight};

/// Reads up to this size are sent by whoever notices their end.
const LIGHT: usize = 64 << 10;

/// A write of which more parts are to come.
#[derive(Debug, Default)]
pub(crate) struct OpenWrite {
    /// None if already its queue or its waits were wrong.
    group: Option<Arc<Group>>,
    /// Of the parts so far.
    events: Vec<Arc<Event>>,
    failed: Option<ClError>,
}

/// Reads.
impl Session {
    pub(super) fn read_buffer(&mut self, request: &ReadBuffer<'_>) {
        let about = (ReadBuffer::OPCODE, "ReadBuffer");
        let checked = self.buffer(request.buffer).and_then(|(_, all)| within(request.offset, request.size, all));
        let size = [request.size, 1, 1];
        self.read(about, &request.command, checked.map(|()| 1), size, |session, queue, part, chunk, order| {
            let (buffer, _) = session.buffer(request.buffer)?;
            let offset = to_usize(request.offset + part.origin[0])?;
            vendor::read_buffer(queue, buffer, offset, chunk, order)
        });
    }

    pub(super) fn read_rect(&mut self, request: &ReadRect<'_>) {
        let about = (ReadRect::OPCODE, "ReadRect");
        let rect = Rect {
            origin: request.origin,
            region: request.region,
            row_pitch: request.row_pitch,
            slice_pitch: request.slice_pitch,
        };
        let side = self.buffer(request.buffer).and_then(|(_, all)| rect.side_within(all));
        let unit = side.map(|_| 1);
        self.read(about, &request.command, unit, request.region, |session, queue, part, chunk, order| {
            let (buffer, _) = session.buffer(request.buffer)?;
            let mut side = side?;
            side.origin = to_usizes(sum(request.origin, part.origin)?)?;
            vendor::read_rect(queue, buffer, &side, &to_usizes(part.size)?, chunk, order)
        });
    }

    pub(super) fn read_image(&mut self, request: &ReadImage<'_>) {
        let about = (ReadImage::OPCODE, "ReadImage");
        let checked = image_region(request.origin, request.region);
        let element = checked.and_then(|_| self.image(request.image).map(|(_, element)| element));
        self.read(about, &request.command, element, request.region, |session, queue, part, chunk, order| {
            let (image, element) = session.image(request.image)?;
            let region = image_region(sum(request.origin, part.origin)?, part.size)?;
            vendor::read_image(queue, image, &region, element, chunk, order)
        });
    }

    /// Reads a box of `size` units, each of `unit` bytes (or fails with what is there instead), part by part.
    fn read(
        &mut self,
        about: (u16, &'static str),
        command: &Command<'_>,
        unit: ClResult<usize>,
        size: [u64; 3],
        enqueue: impl Fn(&Session, &Queue, &Region, Chunk, &Order<'_>) -> ClResult<InFlight>,
    ) {
        let unit = match unit {
            Ok(unit) => unit as u64,
            Err(error) => return self.command_failed(about, command, error),
        };
        if command.event == 0 {
            // Nobody could tell what the data belongs to.
            return self.command_failed(about, command, ClError(CL_INVALID_VALUE));
        }
        if size.contains(&0) {
            // Nothing to read, but something to wait for.
            return self.enqueue(about, command, false, |_, queue, order| queue.marker(order));
        }
        match self.read_parts(command, unit, size, enqueue) {
            Ok((group, events, failed, guarded)) => self.close(about, command, &group, &events, failed, guarded),
            Err(error) => self.command_failed(about, command, error),
        }
    }

    #[allow(clippy::type_complexity)] // Used once, above.
    fn read_parts(
        &mut self,
        command: &Command<'_>,
        unit: u64,
        size: [u64; 3],
        enqueue: impl Fn(&Session, &Queue, &Region, Chunk, &Order<'_>) -> ClResult<InFlight>,
    ) -> ClResult<(Arc<Group>, Vec<Arc<Event>>, Option<ClError>, bool)> {
        let entry = self.queues.get(command.queue)?;
        let (order, mut after) = self.order_after(command.waits)?;
        after.extend(entry.before(false));
        let parts = Region::parts(size, unit, self.link.chunk() as u64);
        // With one part everything is known before it can end; with more, a guard keeps the group open until it is.
        let guarded = !parts.is_single();
        let report = Report::Completed { event: command.event, profiling: entry.profiling };
        let group = self.completion.begin(report, 1, after);
        let mut events = Vec::new();
        let mut failed = None;
        for part in parts {
            let bytes = part.volume().and_then(|volume| volume.checked_mul(unit)).map_or(Ok(0), to_usize);
            let part_bytes = bytes.unwrap_or(0);
            let enqueued = bytes.and_then(|bytes| {
                let chunk = self.pool.take_outgoing(bytes);
                enqueue(self, &entry.queue, &part, chunk, &order)
            });
            match enqueued {
                Ok(in_flight) => {
                    let event = Arc::clone(in_flight.event());
                    if guarded {
                        group.expect_one_more();
                    } else {
                        group.set_ends(event.clone(), event.clone());
                    }
                    events.push(event);
                    let group = Arc::clone(&group);
                    let weight = if part_bytes > LIGHT { Weight::Bulk } else { Weight::Light };
                    in_flight.then_report(&self.completion, &entry.ends, weight, move |status, event, chunk| {
                        let (event, data) = (Arc::clone(event), Some((part, chunk)));
                        Note::PartEnded { group, event, status, data }
                    });
                }
                Err(error) if events.is_empty() => {
                    self.completion.abandon(&group);
                    return Err(error);
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        Ok((group, events, failed, guarded))
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
            return self.enqueue(about, &request.command, false, |_, queue, order| queue.marker(order));
        }
        self.write(about, &request.command, request.last, |session, queue, order| {
            let (buffer, size) = session.buffer(request.buffer)?;
            within(request.offset, chunk.len() as u64, size)?;
            vendor::write_buffer(queue, buffer, to_usize(request.offset)?, chunk, order)
        });
    }

    pub(super) fn write_rect(&mut self, request: &WriteRect<'_>, chunk: Chunk) {
        self.write((WriteRect::OPCODE, "WriteRect"), &request.command, request.last, |session, queue, order| {
            let (buffer, size) = session.buffer(request.buffer)?;
            let rect = Rect {
                origin: request.origin,
                region: request.region,
                row_pitch: request.row_pitch,
                slice_pitch: request.slice_pitch,
            };
            let side = rect.side_within(size)?;
            vendor::write_rect(queue, buffer, &side, &to_usizes(request.region)?, chunk, order)
        });
    }

    pub(super) fn write_image(&mut self, request: &WriteImage<'_>, chunk: Chunk) {
        self.write((WriteImage::OPCODE, "WriteImage"), &request.command, request.last, |session, queue, order| {
            let (image, element) = session.image(request.image)?;
            let part = image_region(request.origin, request.region)?;
            vendor::write_image(queue, image, &part, element, chunk, order)
        });
    }

    /// Enqueues one part of a write; the `last` closes it.
    fn write(
        &mut self,
        about: (u16, &'static str),
        command: &Command<'_>,
        last: bool,
        enqueue: impl FnOnce(&Session, &Queue, &Order<'_>) -> ClResult<InFlight>,
    ) {
        let open = if command.event == 0 { None } else { self.open_writes.remove(&command.event) };
        let enqueued = self.enqueue_write(command, enqueue);
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
            self.open_writes.insert(command.event, open);
            return;
        }
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
        let (order, _) = self.order_after(command.waits)?;
        Ok((enqueue(self, &entry.queue, &order)?, entry.ends.clone()))
    }

    /// The first part of a write opens it.
    fn open_write(&self, command: &Command<'_>) -> OpenWrite {
        let group = || {
            let entry = self.queues.get(command.queue).ok()?;
            let (_, mut after) = self.order_after(command.waits).ok()?;
            after.extend(entry.before(false));
            let report = Report::Completed { event: command.event, profiling: entry.profiling };
            Some(self.completion.begin(report, 1, after))
        };
        OpenWrite { group: group(), ..OpenWrite::default() }
    }
}

fn sum(origin: [u64; 3], part: [u64; 3]) -> ClResult<[u64; 3]> {
    let mut sums = [0; 3];
    for axis in 0..3 {
        sums[axis] = origin[axis].checked_add(part[axis]).ok_or(ClError(CL_INVALID_VALUE))?;
    }
    Ok(sums)
}
