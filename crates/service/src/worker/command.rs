//! Commands without host memory: kernels, copies, fills, markers. Each is one of the vendor's commands.

use std::sync::Arc;

use telecl_opencl::{ClError, ClResult, Event, ImageRegion, Mem, NdRange, Order, Queue, RectSide};
use telecl_sys::*;
use telecl_wire::request::*;

use super::bounds::check_pattern;
use super::completion::{Report, Token};
use super::ends::Weight;
use super::event::EventEntry;
use super::link::About;
use super::memory::{MemoryEntry, to_usize, to_usizes, within};
use super::pace::Likeness;
use super::session::Session;
use super::vendor;

impl Session {
    /// Enqueues a command, and reports its end if the driver named an event.
    ///
    /// `enqueue` makes the vendor's call. `all` says that the command waits for everything before it in its queue.
    pub(super) fn enqueue(
        &mut self,
        about: (u16, &'static str),
        command: &Command<'_>,
        all: bool,
        enqueue: impl FnOnce(&Session, &Queue, &Order<'_>) -> ClResult<Option<Event>>,
    ) {
        self.enqueue_like(about, command, Likeness::of(about.0.into(), 0), all, enqueue);
    }

    /// As [`Session::enqueue`], for a command that takes as long as others like it.
    fn enqueue_like(
        &mut self,
        about: (u16, &'static str),
        command: &Command<'_>,
        like: Likeness,
        all: bool,
        enqueue: impl FnOnce(&Session, &Queue, &Order<'_>) -> ClResult<Option<Event>>,
    ) {
        if let Err(error) = self.try_enqueue(command, like, all, enqueue) {
            self.command_failed(about, command, error);
        }
    }

    fn try_enqueue(
        &mut self,
        command: &Command<'_>,
        like: Likeness,
        all: bool,
        enqueue: impl FnOnce(&Session, &Queue, &Order<'_>) -> ClResult<Option<Event>>,
    ) -> ClResult<()> {
        self.make_way(command);
        let pass = self.pass(command, like, all)?;
        let entry = self.queues.get(command.queue)?;
        let (mut order, mut after) = self.order_after(command)?;
        // Its own event is noticed sooner than that of a marker behind it. NVIDIA's driver (580) takes as long for either.
        let last = self.is_last && !self.candid && entry.ends.is_in_order();
        // Without one nobody knows whether a kernel is running.
        let watched = self.limits.longest_kernel.is_some();
        if command.event != 0 || last || pass.with_event || watched {
            order = order.with_event();
        }
        let event = enqueue(self, &entry.queue, &order)?.map(Arc::new);
        drop(order);
        entry.ends.note_command();
        after.extend(entry.before(all));
        match &event {
            Some(event) if command.event != 0 => self.report_end(command, Arc::clone(event), after, all),
            Some(event) => entry.ends.on_end(event, Weight::Silent, |_, _| {}),
            None if command.event != 0 => return Err(ClError(CL_OUT_OF_RESOURCES)),
            None => {}
        }
        self.passed(pass, event.as_ref());
        self.enqueued(command.queue);
        Ok(())
    }

    /// Has the end of a command reported, once all of `after` have been. `all` says that these are all before it.
    fn report_end(&mut self, command: &Command<'_>, event: Arc<Event>, after: Vec<Token>, all: bool) {
        let Ok(entry) = self.queues.get_mut(command.queue) else { return };
        let report = Report::Completed { event: command.event, profiling: command.seen && entry.profiling };
        let group = self.completion.begin(report, 1, after);
        group.set_ends(event.clone(), event.clone());
        self.completion.watch(&entry.ends, &group, &event);
        self.note_command(command, event, group.token());
        if all && let Ok(entry) = self.queues.get_mut(command.queue) {
            entry.note_all(group.token());
        }
    }

    /// Puts a command's event where later commands find it.
    pub(super) fn note_command(&mut self, command: &Command<'_>, event: Arc<Event>, token: Token) {
        /// Beyond this many commands of an out-of-order queue, those that have ended are forgotten.
        const MANY: usize = 256;
        self.events
            .insert(command.event, Ok(EventEntry { event, queue: command.queue, token: Some(token), watched: 0 }));
        if let Ok(entry) = self.queues.get_mut(command.queue) {
            entry.note(token);
            if entry.reported.len() > MANY {
                self.completion.prune(&mut entry.reported);
            }
        }
    }

    /// The queue has something to flush.
    pub(super) fn enqueued(&mut self, queue: u64) {
        if let Ok(entry) = self.queues.get_mut(queue) {
            entry.unflushed = true;
            self.unflushed = true;
        }
    }

    /// A command that never came to be: the driver is told, and what waits for it will fail.
    pub(super) fn command_failed(&mut self, about: (u16, &'static str), command: &Command<'_>, error: ClError) {
        let (opcode, name) = about;
        let context = self.queues.get(command.queue).map_or(0, |entry| entry.context);
        let about = About { opcode, name, context, queue: command.queue, object: command.event };
        self.link.failed(about, error, command.event);
        if command.event != 0 {
            self.events.insert(command.event, Err(error));
        }
    }

    pub(super) fn run_kernel(&mut self, request: &RunKernel<'_>) {
        let about = (RunKernel::OPCODE, "RunKernel");
        if let Err(error) = self.try_set_args(request.kernel, &request.args) {
            return self.command_failed(about, &request.command, error);
        }
        let size = request.global.iter().fold(1, |size: u64, items| size.wrapping_mul(*items));
        let like = Likeness::of(request.kernel, size);
        self.enqueue_like(about, &request.command, like, false, |session, queue, order| {
            let kernel = session.kernels.get(request.kernel)?.runnable()?;
            let dimensions = request.dimensions as usize;
            // CL_INVALID_WORK_DIMENSION if work_dim is not a valid value (i.e. a value between 1 and 3).
            if !(1..=3).contains(&dimensions) {
                return Err(ClError(CL_INVALID_WORK_DIMENSION));
            }
            let global = to_usizes(request.global)?;
            let offset = request.offset.map(to_usizes).transpose()?;
            let local = request.local.map(to_usizes).transpose()?;
            let range = NdRange {
                offset: offset.as_ref().map(|offset| &offset[..dimensions]),
                global: &global[..dimensions],
                local: local.as_ref().map(|local| &local[..dimensions]),
            };
            vendor::run_kernel(queue, kernel, &range, order)
        });
    }

    pub(super) fn copy_buffer(&mut self, request: &CopyBuffer<'_>) {
        self.enqueue((CopyBuffer::OPCODE, "CopyBuffer"), &request.command, false, |session, queue, order| {
            let (from, from_size) = session.buffer(request.from)?;
            let (to, to_size) = session.buffer(request.to)?;
            within(request.from_offset, request.size, from_size)?;
            within(request.to_offset, request.size, to_size)?;
            let (from_offset, to_offset) = (to_usize(request.from_offset)?, to_usize(request.to_offset)?);
            queue.copy_buffer(&from, from_offset, &to, to_offset, to_usize(request.size)?, order)
        });
    }

    pub(super) fn copy_rect(&mut self, request: &CopyRect<'_>) {
        self.enqueue((CopyRect::OPCODE, "CopyRect"), &request.command, false, |session, queue, order| {
            let region = to_usizes(request.region)?;
            let (from, from_size) = session.buffer(request.from)?;
            let (to, to_size) = session.buffer(request.to)?;
            let from_side = Rect {
                origin: request.from_origin,
                region: request.region,
                row_pitch: request.from_row_pitch,
                slice_pitch: request.from_slice_pitch,
            };
            let to_side = Rect {
                origin: request.to_origin,
                region: request.region,
                row_pitch: request.to_row_pitch,
                slice_pitch: request.to_slice_pitch,
            };
            let (from_side, to_side) = (from_side.side_within(from_size)?, to_side.side_within(to_size)?);
            queue.copy_buffer_rect(&from, &from_side, &to, &to_side, &region, order)
        });
    }

    pub(super) fn copy_image(&mut self, request: &CopyImage<'_>) {
        self.enqueue((CopyImage::OPCODE, "CopyImage"), &request.command, false, |session, queue, order| {
            let (from, from_part, _) = session.image_part(request.from, request.from_origin, request.region)?;
            let (to, to_part, _) = session.image_part(request.to, request.to_origin, request.region)?;
            queue.copy_image(&from, &from_part.origin, &to, &to_part.origin, &from_part.region, order)
        });
    }

    pub(super) fn copy_image_to_buffer(&mut self, request: &CopyImageToBuffer<'_>) {
        let about = (CopyImageToBuffer::OPCODE, "CopyImageToBuffer");
        self.enqueue(about, &request.command, false, |session, queue, order| {
            let (from, part, element) = session.image_part(request.from, request.origin, request.region)?;
            let (to, size) = session.buffer(request.to)?;
            within(request.to_offset, bytes_of(&request.region, element)?, size)?;
            queue.copy_image_to_buffer(&from, &part, &to, to_usize(request.to_offset)?, order)
        });
    }

    pub(super) fn copy_buffer_to_image(&mut self, request: &CopyBufferToImage<'_>) {
        let about = (CopyBufferToImage::OPCODE, "CopyBufferToImage");
        self.enqueue(about, &request.command, false, |session, queue, order| {
            let (from, size) = session.buffer(request.from)?;
            let (to, part, element) = session.image_part(request.to, request.origin, request.region)?;
            within(request.from_offset, bytes_of(&request.region, element)?, size)?;
            queue.copy_buffer_to_image(&from, to_usize(request.from_offset)?, &to, &part, order)
        });
    }

    pub(super) fn fill_buffer(&mut self, request: &FillBuffer<'_>) {
        self.enqueue((FillBuffer::OPCODE, "FillBuffer"), &request.command, false, |session, queue, order| {
            let (buffer, size) = session.buffer(request.buffer)?;
            within(request.offset, request.size, size)?;
            check_pattern(request.pattern)?;
            queue.fill_buffer(&buffer, request.pattern, to_usize(request.offset)?, to_usize(request.size)?, order)
        });
    }

    pub(super) fn fill_image(&mut self, request: &FillImage<'_>) {
        self.enqueue((FillImage::OPCODE, "FillImage"), &request.command, false, |session, queue, order| {
            let (image, part, _) = session.image_part(request.image, request.origin, request.region)?;
            let mut color = [0; 4];
            for (word, bytes) in color.iter_mut().zip(request.color.chunks_exact(4)) {
                *word = u32::from_ne_bytes(bytes.try_into().map_err(|_| ClError(CL_INVALID_VALUE))?);
            }
            queue.fill_image(&image, &color, &part, order)
        });
    }

    pub(super) fn migrate(&mut self, request: &Migrate<'_>) {
        self.enqueue((Migrate::OPCODE, "Migrate"), &request.command, false, |session, queue, order| {
            let objects: ClResult<Vec<_>> =
                request.objects.iter().map(|id| session.memory.get(id).and_then(MemoryEntry::mem)).collect();
            let objects = objects?;
            let objects: Vec<&Mem> = objects.iter().map(|object| &**object).collect();
            queue.migrate(&objects, request.flags, order)
        });
    }

    pub(super) fn marker(&mut self, request: &Marker<'_>) {
        self.enqueue_marker((Marker::OPCODE, "Marker"), &request.command);
    }

    /// Enqueues something that does nothing but wait, for everything before it if no events are named.
    pub(super) fn enqueue_marker(&mut self, about: (u16, &'static str), command: &Command<'_>) {
        self.enqueue(about, command, command.waits.is_empty(), |_, queue, order| queue.marker(order));
    }

    pub(super) fn barrier(&mut self, request: &Barrier<'_>) {
        let command = &request.command;
        let all = command.waits.is_empty();
        self.enqueue((Barrier::OPCODE, "Barrier"), command, all, |_, queue, order| queue.barrier(order));
        // Later commands come after the barrier, or, if nobody asked for its end, after what it waits for.
        let own = self.events.get(command.event).ok().and_then(|entry| entry.token);
        let waits: Vec<Token> =
            command.waits.iter().filter_map(|id| self.events.get(id).ok().and_then(|entry| entry.token)).collect();
        if let Ok(entry) = self.queues.get_mut(command.queue) {
            if let (true, Some(token)) = (command.event != 0, own) {
                entry.fence = vec![token];
            } else if all {
                entry.fence = entry.reported.clone();
            } else {
                entry.fence.extend(waits);
            }
            self.completion.prune(&mut entry.fence);
            if entry.out_of_order {
                entry.blockers.extend(&self.last_blockers);
                entry.blockers.sort_unstable();
                entry.blockers.dedup();
            }
        }
    }
}

/// A box in a buffer, as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rect {
    pub(crate) origin: [u64; 3],
    pub(crate) region: [u64; 3],
    pub(crate) row_pitch: u64,
    pub(crate) slice_pitch: u64,
}

impl Rect {
    /// The box with its pitches made explicit, if it lies within a buffer of `size` bytes.
    pub(crate) fn side_within(&self, size: u64) -> ClResult<RectSide> {
        let invalid = ClError(CL_INVALID_VALUE);
        let [width, height, depth] = self.region;
        if width == 0 || height == 0 || depth == 0 {
            return Err(invalid);
        }
        let row_pitch = if self.row_pitch == 0 { width } else { self.row_pitch };
        let packed = row_pitch.checked_mul(height).ok_or(invalid)?;
        let slice_pitch = if self.slice_pitch == 0 { packed } else { self.slice_pitch };
        // CL_INVALID_VALUE if buffer_row_pitch is not 0 and is less than region[0], likewise for slices.
        if row_pitch < width || slice_pitch < packed {
            return Err(invalid);
        }
        let at =
            |x: u64, y: u64, z: u64| z.checked_mul(slice_pitch)?.checked_add(y.checked_mul(row_pitch)?)?.checked_add(x);
        let [x, y, z] = self.origin;
        let last = |start: u64, count: u64| start.checked_add(count - 1);
        let end = last(y, height).zip(last(z, depth)).and_then(|(y, z)| at(x.checked_add(width)?, y, z));
        if end.is_none_or(|end| end > size) {
            return Err(invalid);
        }
        let (row_pitch, slice_pitch) = (to_usize(row_pitch)?, to_usize(slice_pitch)?);
        Ok(RectSide { origin: to_usizes(self.origin)?, row_pitch, slice_pitch })
    }
}

/// The bytes of so many pixels.
fn bytes_of(region: &[u64; 3], element: usize) -> ClResult<u64> {
    let bytes = region.iter().try_fold(element as u64, |bytes, side| bytes.checked_mul(*side));
    bytes.ok_or(ClError(CL_INVALID_VALUE))
}

/// A part of an image; vendors check it against the image, but some add origin and region without looking.
pub(crate) fn image_region(origin: [u64; 3], region: [u64; 3]) -> ClResult<ImageRegion> {
    for axis in 0..3 {
        within(origin[axis], region[axis], u64::from(u32::MAX))?;
    }
    Ok(ImageRegion { origin: to_usizes(origin)?, region: to_usizes(region)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOX: Rect = Rect { origin: [4, 1, 1], region: [4, 2, 2], row_pitch: 16, slice_pitch: 64 };

    #[test]
    fn a_box_must_lie_within_its_buffer() {
        // Its last byte is in slice 2, row 2, column 7.
        assert!(BOX.side_within(2 * 64 + 2 * 16 + 8).is_ok());
        assert!(BOX.side_within(2 * 64 + 2 * 16 + 7).is_err());
    }

    #[test]
    fn pitches_of_zero_mean_no_gaps() {
        let side = Rect { row_pitch: 0, slice_pitch: 0, origin: [0; 3], ..BOX }.side_within(16).unwrap();
        assert_eq!((side.row_pitch, side.slice_pitch), (4, 8));
    }

    #[test]
    fn hostile_boxes_are_refused() {
        for rect in [
            Rect { region: [0, 1, 1], ..BOX },
            Rect { row_pitch: 3, ..BOX },
            Rect { slice_pitch: 31, ..BOX },
            Rect { origin: [u64::MAX, 0, 0], ..BOX },
            Rect { origin: [0, u64::MAX, 0], ..BOX },
            Rect { origin: [0, 0, u64::MAX / 2], ..BOX },
            Rect { region: [1, u64::MAX, u64::MAX], row_pitch: 0, slice_pitch: 0, ..BOX },
            Rect { row_pitch: u64::MAX, slice_pitch: u64::MAX, ..BOX },
        ] {
            assert_eq!(rect.side_within(u64::MAX), Err(ClError(CL_INVALID_VALUE)), "{rect:?}");
        }
        assert!(image_region([u64::MAX, 0, 0], [2, 1, 1]).is_err());
    }
}
