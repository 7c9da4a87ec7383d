//! Reads and writes of buffers and images.

use std::sync::Arc;

use telecl_sys::*;
use telecl_wire::region::Region;
use telecl_wire::request::{Command, ReadBuffer, ReadImage, ReadRect, WriteBuffer, WriteImage, WriteRect};

use super::command::{Part, Submission};
use super::event::Event;
use super::foresight::Span;
use super::memory::Memory;
use crate::host::{HostBox, HostPointer};

/// Whether a call returns before its command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    Wait,
    Return,
}

/// A box of a buffer and one of host memory, as `clEnqueueReadBufferRect` and its sister take them.
/// Pitches may be 0 for "without gaps" until [`RectTransfer::check`].
#[derive(Clone, Debug)]
pub(crate) struct RectTransfer {
    pub(crate) buffer_origin: [u64; 3],
    pub(crate) host_origin: [u64; 3],
    pub(crate) region: [u64; 3],
    pub(crate) buffer_row_pitch: u64,
    pub(crate) buffer_slice_pitch: u64,
    pub(crate) host_row_pitch: u64,
    pub(crate) host_slice_pitch: u64,
}

/// Pitches with zeros filled in. CL_INVALID_VALUE if a pitch is not 0 and is less than what it
/// separates, or is not a multiple where it has to be.
pub(super) fn checked_pitches(region: [u64; 3], row_pitch: u64, slice_pitch: u64) -> ClResult<(u64, u64)> {
    let invalid = ClError(CL_INVALID_VALUE);
    let row = if row_pitch == 0 { region[0] } else { row_pitch };
    if row < region[0] {
        return Err(invalid);
    }
    let least = row.checked_mul(region[1]).ok_or(invalid)?;
    let slice = if slice_pitch == 0 { least } else { slice_pitch };
    if slice < least || (slice_pitch != 0 && slice % row != 0) {
        return Err(invalid);
    }
    Ok((row, slice))
}

/// Offset of a box's first byte, and the end of its last; `None` if that overflows.
pub(super) fn box_range(origin: [u64; 3], region: [u64; 3], row: u64, slice: u64) -> Option<(u64, u64)> {
    let at = |x: u64, y: u64, z: u64| z.checked_mul(slice)?.checked_add(y.checked_mul(row)?)?.checked_add(x);
    let start = at(origin[0], origin[1], origin[2])?;
    let last_row = at(
        origin[0],
        origin[1].checked_add(region[1].checked_sub(1)?)?,
        origin[2].checked_add(region[2].checked_sub(1)?)?,
    )?;
    Some((start, last_row.checked_add(region[0])?))
}

impl RectTransfer {
    fn check(&self, buffer: &Memory) -> ClResult<RectTransfer> {
        let invalid = ClError(CL_INVALID_VALUE);
        // CL_INVALID_VALUE if any region array element is 0.
        if self.region.contains(&0) {
            return Err(invalid);
        }
        let (buffer_row_pitch, buffer_slice_pitch) =
            checked_pitches(self.region, self.buffer_row_pitch, self.buffer_slice_pitch)?;
        let (host_row_pitch, host_slice_pitch) =
            checked_pitches(self.region, self.host_row_pitch, self.host_slice_pitch)?;
        // CL_INVALID_VALUE if the region being read or written is out of bounds.
        let range = box_range(self.buffer_origin, self.region, buffer_row_pitch, buffer_slice_pitch);
        if range.is_none_or(|(_, end)| end > buffer.size) {
            return Err(invalid);
        }
        box_range(self.host_origin, self.region, host_row_pitch, host_slice_pitch).ok_or(invalid)?;
        Ok(RectTransfer { buffer_row_pitch, buffer_slice_pitch, host_row_pitch, host_slice_pitch, ..self.clone() })
    }

    fn host_box(&self, host: HostPointer) -> HostBox {
        let (start, _) =
            box_range(self.host_origin, self.region, self.host_row_pitch, self.host_slice_pitch).unwrap_or((0, 0));
        // SAFETY: the program's pointer is valid for the region and pitches of its call; the checks
        // in `check` keep rows from overlapping.
        unsafe { HostBox::new(host.offset(start), self.region, 1, self.host_row_pitch, self.host_slice_pitch, None) }
    }
}

impl Submission<'_> {
    fn check_buffer(&self, buffer: &Arc<Memory>) -> ClResult<()> {
        buffer.as_buffer()?;
        self.uses(buffer)?;
        buffer.check_alignment(&self.queue.device)
    }

    fn check_range(&self, buffer: &Memory, offset: u64, size: u64) -> ClResult<()> {
        // CL_INVALID_VALUE if the region specified by (offset, size) is out of bounds.
        match offset.checked_add(size) {
            Some(end) if end <= buffer.size => Ok(()),
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }

    /// `clEnqueueReadBuffer`.
    pub(crate) fn read_buffer(
        &self,
        buffer: &Arc<Memory>,
        blocking: Blocking,
        offset: u64,
        size: u64,
        host: Option<HostPointer>,
    ) -> ClResult<Option<Arc<Event>>> {
        self.check_buffer(buffer)?;
        self.check_range(buffer, offset, size)?;
        let host = host.ok_or(ClError(CL_INVALID_VALUE))?;
        buffer.check_host_access(true, false)?;
        let span = Span { buffer: buffer.id(), offset, size };
        let plain = blocking == Blocking::Wait && !self.wants_event && !self.has_waits() && !buffer.has_destructors();
        if plain && let Some(landing) = self.queue.foreseen(span, buffer) {
            self.queue.context.take_failure(self.queue.id())?;
            // SAFETY: the program's pointer is valid for the size of its call, which is that of the landing.
            unsafe { landing.copy_to(host) };
            return Ok(None);
        }
        // SAFETY: the program's pointer is valid for the size of its call until the command ends.
        let target = unsafe { HostBox::new(host, [size, 1, 1], 1, size, size, None) };
        let next = || {
            if plain {
                self.queue.foresee_read(span)
            }
        };
        self.fetch_then(
            CL_COMMAND_READ_BUFFER,
            blocking,
            target,
            |command| ReadBuffer { command, buffer: buffer.id(), offset, size },
            next,
        )
    }

    /// `clEnqueueWriteBuffer`.
    pub(crate) fn write_buffer(
        &self,
        buffer: &Arc<Memory>,
        blocking: Blocking,
        offset: u64,
        size: u64,
        host: Option<HostPointer>,
    ) -> ClResult<Option<Arc<Event>>> {
        self.check_buffer(buffer)?;
        self.check_range(buffer, offset, size)?;
        let host = host.ok_or(ClError(CL_INVALID_VALUE))?;
        buffer.check_host_access(false, true)?;
        // SAFETY: the program's pointer is valid for the size of its call.
        let source = unsafe { HostBox::new(host, [size, 1, 1], 1, size, size, None) };
        self.store_linear(CL_COMMAND_WRITE_BUFFER, blocking, buffer, offset, &source)
    }

    /// `clEnqueueReadBufferRect`.
    pub(crate) fn read_rect(
        &self,
        buffer: &Arc<Memory>,
        blocking: Blocking,
        rect: &RectTransfer,
        host: Option<HostPointer>,
    ) -> ClResult<Option<Arc<Event>>> {
        self.check_buffer(buffer)?;
        let host = host.ok_or(ClError(CL_INVALID_VALUE))?;
        let rect = rect.check(buffer)?;
        buffer.check_host_access(true, false)?;
        self.fetch(CL_COMMAND_READ_BUFFER_RECT, blocking, rect.host_box(host), |command| ReadRect {
            command,
            buffer: buffer.id(),
            origin: rect.buffer_origin,
            region: rect.region,
            row_pitch: rect.buffer_row_pitch,
            slice_pitch: rect.buffer_slice_pitch,
        })
    }

    /// `clEnqueueWriteBufferRect`.
    pub(crate) fn write_rect(
        &self,
        buffer: &Arc<Memory>,
        blocking: Blocking,
        rect: &RectTransfer,
        host: Option<HostPointer>,
    ) -> ClResult<Option<Arc<Event>>> {
        self.check_buffer(buffer)?;
        let host = host.ok_or(ClError(CL_INVALID_VALUE))?;
        let rect = rect.check(buffer)?;
        buffer.check_host_access(false, true)?;
        self.store(CL_COMMAND_WRITE_BUFFER_RECT, blocking, &rect.host_box(host), |submission, event, part| {
            let message = WriteRect {
                command: submission.command(event),
                buffer: buffer.id(),
                origin: add(rect.buffer_origin, part.region.origin),
                region: part.region.size,
                row_pitch: rect.buffer_row_pitch,
                slice_pitch: rect.buffer_slice_pitch,
                last: part.last,
            };
            submission.send_part(event, &message, part)
        })
    }

    /// `clEnqueueReadImage`; pitches of 0 mean "without gaps".
    #[expect(clippy::too_many_arguments, reason = "the arguments of the OpenCL function")]
    pub(crate) fn read_image(
        &self,
        memory: &Arc<Memory>,
        blocking: Blocking,
        origin: [u64; 3],
        region: [u64; 3],
        row_pitch: u64,
        slice_pitch: u64,
        host: Option<HostPointer>,
    ) -> ClResult<Option<Arc<Event>>> {
        let (host, row_pitch, slice_pitch, unit) =
            self.check_image_transfer(memory, origin, region, row_pitch, slice_pitch, host)?;
        memory.check_host_access(true, false)?;
        // SAFETY: the program's pointer is valid for the region and pitches of its call until the
        // command ends; pitches were checked.
        let target = unsafe { HostBox::new(host, region, unit, row_pitch, slice_pitch, None) };
        self.fetch(CL_COMMAND_READ_IMAGE, blocking, target, |command| ReadImage {
            command,
            image: memory.id(),
            origin,
            region,
        })
    }

    /// `clEnqueueWriteImage`.
    #[expect(clippy::too_many_arguments, reason = "the arguments of the OpenCL function")]
    pub(crate) fn write_image(
        &self,
        memory: &Arc<Memory>,
        blocking: Blocking,
        origin: [u64; 3],
        region: [u64; 3],
        row_pitch: u64,
        slice_pitch: u64,
        host: Option<HostPointer>,
    ) -> ClResult<Option<Arc<Event>>> {
        let (host, row_pitch, slice_pitch, unit) =
            self.check_image_transfer(memory, origin, region, row_pitch, slice_pitch, host)?;
        memory.check_host_access(false, true)?;
        // SAFETY: the program's pointer is valid for the region and pitches of its call.
        let source = unsafe { HostBox::new(host, region, unit, row_pitch, slice_pitch, None) };
        self.store_image(CL_COMMAND_WRITE_IMAGE, blocking, memory, origin, &source)
    }

    fn check_image_transfer(
        &self,
        memory: &Arc<Memory>,
        origin: [u64; 3],
        region: [u64; 3],
        row_pitch: u64,
        slice_pitch: u64,
        host: Option<HostPointer>,
    ) -> ClResult<(HostPointer, u64, u64, u64)> {
        let image = memory.as_image()?;
        self.uses(memory)?;
        let host = host.ok_or(ClError(CL_INVALID_VALUE))?;
        image.check_region(origin, region)?;
        let (row_pitch, slice_pitch) = image.host_pitches(region, row_pitch, slice_pitch)?;
        Ok((host, row_pitch, slice_pitch, image.element_size))
    }

    /// Posts a read whose data goes to `target`.
    pub(super) fn fetch<'m, M: telecl_wire::request::Message<'m>>(
        &'m self,
        kind: cl_command_type,
        blocking: Blocking,
        target: HostBox,
        message: impl FnOnce(Command<'m>) -> M,
    ) -> ClResult<Option<Arc<Event>>> {
        self.fetch_then(kind, blocking, target, message, || {})
    }

    /// As [`Submission::fetch`]; `then` may send more before it waits.
    fn fetch_then<'m, M: telecl_wire::request::Message<'m>>(
        &'m self,
        kind: cl_command_type,
        blocking: Blocking,
        target: HostBox,
        message: impl FnOnce(Command<'m>) -> M,
        then: impl FnOnce(),
    ) -> ClResult<Option<Arc<Event>>> {
        self.queue.context.session.note_transfer(target.bytes());
        let event = self.expect(kind, Some(target));
        let message = message(self.command(Some(&event)));
        {
            let _order = self.queue.hold();
            match blocking {
                Blocking::Wait => self.send_and_more(&event, &message)?,
                Blocking::Return => self.send(Some(&event), &message, &[])?,
            }
        }
        then();
        if blocking == Blocking::Wait {
            self.wait(&event)?;
        }
        Ok(self.wants_event.then_some(event))
    }

    pub(super) fn store_linear(
        &self,
        kind: cl_command_type,
        blocking: Blocking,
        buffer: &Memory,
        offset: u64,
        source: &HostBox,
    ) -> ClResult<Option<Arc<Event>>> {
        self.store(kind, blocking, source, |submission, event, part| {
            let command = submission.command(event);
            let offset = offset + part.region.origin[0];
            submission.send_part(event, &WriteBuffer { command, buffer: buffer.id(), offset, last: part.last }, part)
        })
    }

    pub(super) fn store_image(
        &self,
        kind: cl_command_type,
        blocking: Blocking,
        memory: &Memory,
        origin: [u64; 3],
        source: &HostBox,
    ) -> ClResult<Option<Arc<Event>>> {
        self.store(kind, blocking, source, |submission, event, part| {
            let command = submission.command(event);
            let (origin, region) = (add(origin, part.region.origin), part.region.size);
            let message = WriteImage { command, image: memory.id(), origin, region, last: part.last };
            submission.send_part(event, &message, part)
        })
    }

    /// Posts a write in frames of the link's size. When this returns, the program may change
    /// the source: all of it has been handed to the system. So a blocking write need not wait for the
    /// device, unless something it depends on may have failed.
    fn store(
        &self,
        kind: cl_command_type,
        blocking: Blocking,
        source: &HostBox,
        send_part: impl Fn(&Self, Option<&Arc<Event>>, &Part<'_>) -> ClResult<()>,
    ) -> ClResult<Option<Arc<Event>>> {
        let waits_matter = blocking == Blocking::Wait && self.has_waits();
        let event = (self.needs_event() || waits_matter).then(|| self.expect(kind, None));
        let session = &self.queue.context.session;
        let batch = session.batch(source.bytes());
        {
            let _order = self.queue.hold();
            let mut parts = Region::parts(source.size(), source.unit(), session.chunk() as u64).peekable();
            // A write of nothing has one part of nothing.
            let mut next = parts.next().or(Some(Region::whole([0; 3])));
            while let Some(region) = next {
                next = parts.next();
                let part = Part { source, region, last: next.is_none(), batch: &batch };
                send_part(self, event.as_ref(), &part)?;
            }
        }
        self.sent(event.as_ref(), batch.wait())?;
        match &event {
            Some(event) if waits_matter => self.wait(event)?,
            _ => {}
        }
        Ok(event.filter(|_| self.wants_event))
    }
}

fn add(a: [u64; 3], b: [u64; 3]) -> [u64; 3] {
    std::array::from_fn(|axis| a[axis] + b[axis])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitches_default_to_no_gaps_and_are_checked() {
        assert_eq!(checked_pitches([4, 3, 2], 0, 0), Ok((4, 12)));
        assert_eq!(checked_pitches([4, 3, 2], 8, 0), Ok((8, 24)));
        assert_eq!(checked_pitches([4, 3, 2], 3, 0), Err(ClError(CL_INVALID_VALUE)));
        assert_eq!(checked_pitches([4, 3, 2], 8, 23), Err(ClError(CL_INVALID_VALUE)));
        assert_eq!(checked_pitches([4, 3, 2], 8, 25), Err(ClError(CL_INVALID_VALUE)));
    }

    #[test]
    fn a_box_ends_with_its_last_row() {
        assert_eq!(box_range([1, 1, 1], [2, 2, 2], 10, 100), Some((111, 223)));
        assert_eq!(box_range([u64::MAX, 0, 0], [2, 1, 1], 10, 100), None);
    }
}
