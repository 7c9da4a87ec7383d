//! Memory of the program (or our own mapped memory) that transfers read and fill.

use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use telecl_sys::{CL_DEVICE_NOT_AVAILABLE, cl_int};
use telecl_wire::region::Region;

use crate::arrival::Arrival;

/// Start of memory that a call names. What lies behind it follows from the call's sizes and pitches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostPointer(NonNull<u8>);

// SAFETY: an address; it is only dereferenced through `HostBox`, whose maker vouches for the memory.
unsafe impl Send for HostPointer {}
// SAFETY: as above.
unsafe impl Sync for HostPointer {}

impl HostPointer {
    pub(crate) fn new(pointer: *mut u8) -> Option<HostPointer> {
        NonNull::new(pointer).map(HostPointer)
    }

    pub(crate) fn address(self) -> usize {
        self.0.as_ptr() as usize
    }

    /// The address `bytes` further on.
    pub(crate) fn offset(self, bytes: u64) -> HostPointer {
        let moved = self.0.as_ptr().wrapping_add(bytes as usize);
        HostPointer(NonNull::new(moved).unwrap_or(self.0))
    }
}

/// What keeps memory alive.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// A box of units in memory, with pitches.
#[derive(Clone, Debug)]
pub(crate) struct HostBox {
    start: HostPointer,
    /// Units per row, rows, slices.
    size: [u64; 3],
    /// Bytes of a unit: 1 for buffers, a pixel for images.
    unit: u64,
    row_pitch: u64,
    slice_pitch: u64,
    /// Keeps memory of our own alive until a read has filled it.
    _owner: Option<Owner>,
}

impl HostBox {
    /// # Safety
    /// From `start`, all rows of the box with these pitches are readable; if the box is the target of
    /// a read, they are writable, and stay so until the command has ended. Rows do not overlap.
    pub(crate) unsafe fn new(
        start: HostPointer,
        size: [u64; 3],
        unit: u64,
        row_pitch: u64,
        slice_pitch: u64,
        owner: Option<Owner>,
    ) -> HostBox {
        HostBox { start, size, unit, row_pitch, slice_pitch, _owner: owner }
    }

    /// Bytes in a row, to be read.
    ///
    /// # Safety
    /// Neither the box nor a clone of it is used after the borrow has ended, nor as the target of a read.
    pub(crate) unsafe fn of_bytes(bytes: &[u8]) -> HostBox {
        let start = HostPointer(NonNull::from(bytes).cast());
        let len = bytes.len() as u64;
        HostBox { start, size: [len, 1, 1], unit: 1, row_pitch: len, slice_pitch: len, _owner: None }
    }

    pub(crate) fn size(&self) -> [u64; 3] {
        self.size
    }

    /// How many bytes it holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.size.iter().product::<u64>() * self.unit
    }

    /// How many bytes a part of it holds.
    pub(crate) fn part_bytes(&self, part: &Region) -> usize {
        (part.size.iter().product::<u64>() * self.unit) as usize
    }

    pub(crate) fn unit(&self) -> u64 {
        self.unit
    }

    /// Where the rows of `part` are: (offset, length) each, adjacent rows joined. `None` if the part is
    /// not within the box.
    fn spans(&self, part: &Region) -> Option<Vec<(usize, usize)>> {
        if !Region::whole(self.size).contains(part) {
            return None;
        }
        let row = part.size[0] * self.unit;
        let rows_join = row == self.row_pitch || part.size[1] == 1;
        let slices_join = rows_join && (part.size[1] * row == self.slice_pitch || part.size[2] == 1);
        let at = |y: u64, z: u64| (part.origin[0] * self.unit + y * self.row_pitch + z * self.slice_pitch) as usize;
        let [_, y0, z0] = part.origin;
        let [_, rows, slices] = part.size;
        Some(if slices_join {
            vec![(at(y0, z0), (row * rows * slices) as usize)]
        } else if rows_join {
            (z0..z0 + slices).map(|z| (at(y0, z), (row * rows) as usize)).collect()
        } else {
            (z0..z0 + slices).flat_map(|z| (y0..y0 + rows).map(move |y| (at(y, z), row as usize))).collect()
        })
    }

    /// The memory of `part`, in packed order, to be filled with `len` bytes. `None` if the part is not
    /// within the box or does not have that many bytes.
    pub(crate) fn fill_target(&mut self, part: &Region, len: usize) -> Option<Vec<&mut [u8]>> {
        if part.volume()?.checked_mul(self.unit)? != len as u64 {
            return None;
        }
        let spans = self.spans(part)?;
        // SAFETY: the spans lie within the box, which is writable by the contract of `new`, and do not
        // overlap; `&mut self` makes the access exclusive, and so does the session's receiver: it has
        // parts received at the same time only if they do not overlap (`Backlog` in session/receive.rs).
        Some(
            spans
                .into_iter()
                .map(|(offset, len)| unsafe { std::slice::from_raw_parts_mut(self.start.0.as_ptr().add(offset), len) })
                .collect(),
        )
    }

    /// Has `part` filled with `len` bytes that `receive` brings: straight into memory where they lie together. `None` if
    /// the part is not within the box or does not have that many bytes.
    pub(crate) fn fill<E>(
        &mut self,
        part: &Region,
        len: usize,
        receive: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let mut spans = self.fill_target(part, len)?;
        if let [single] = &mut spans[..] {
            return Some(receive(single));
        }
        let mut scratch = vec![0; len];
        let received = receive(&mut scratch);
        if received.is_ok() {
            let mut rest = &scratch[..];
            for span in spans {
                let (bytes, after) = rest.split_at(span.len());
                span.copy_from_slice(bytes);
                rest = after;
            }
        }
        Some(received)
    }

    /// The addresses between which the bytes of `part` lie. `None` if the part is not within the box or does not have `len`
    /// bytes.
    pub(crate) fn range(&self, part: &Region, len: usize) -> Option<Range<usize>> {
        if part.volume()?.checked_mul(self.unit)? != len as u64 {
            return None;
        }
        let spans = self.spans(part)?;
        let start = self.start.address();
        let end = spans.last().map_or(0, |(offset, len)| offset + len);
        Some(start + spans.first().map_or(0, |(offset, _)| *offset)..start + end)
    }

    /// The bytes of `part`, packed: straight from memory where they lie together, else through `scratch`.
    pub(crate) fn packed<'s>(&'s self, part: &Region, scratch: &'s mut Vec<u8>) -> &'s [u8] {
        let spans = self.spans(part).unwrap_or_default();
        // SAFETY: the spans lie within the box, which is readable by the contract of `new`.
        let slice = |(offset, len): (usize, usize)| unsafe {
            std::slice::from_raw_parts(self.start.0.as_ptr().add(offset), len)
        };
        if let [single] = spans[..] {
            return slice(single);
        }
        scratch.clear();
        spans.into_iter().for_each(|span| scratch.extend_from_slice(slice(span)));
        scratch
    }
}

/// Memory of our own into which something is read, and how that went.
#[derive(Debug)]
pub(crate) struct Landing {
    /// Written only by the read, and read only after its end.
    start: HostPointer,
    len: usize,
    status: Arrival<cl_int>,
}

impl Landing {
    pub(crate) fn new(len: usize) -> Arc<Landing> {
        let bytes: Box<[u8]> = vec![0; len].into();
        // A box of no bytes has a pointer too.
        let start = HostPointer(NonNull::from(Box::leak(bytes)).cast());
        Arc::new(Landing { start, len, status: Arrival::default() })
    }

    /// Where the read goes.
    pub(crate) fn target(self: &Arc<Self>) -> HostBox {
        let len = self.len as u64;
        // SAFETY: the memory has that many bytes, and the box keeps it alive. Nobody looks at it before the read has ended.
        unsafe { HostBox::new(self.start, [len, 1, 1], 1, len, len, Some(Arc::clone(self) as Owner)) }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.status.is_set()
    }

    pub(crate) fn end(&self, status: cl_int) {
        self.status.set(status);
    }

    /// Waits for the end of the read.
    pub(crate) fn wait(&self) -> cl_int {
        // Set by now, and never taken.
        self.status.wait().unwrap_or(CL_DEVICE_NOT_AVAILABLE)
    }

    /// Copies what was read to memory of the program.
    ///
    /// # Safety
    /// `to` is writable for as many bytes as were read.
    pub(crate) unsafe fn copy_to(&self, to: HostPointer) {
        if self.has_ended() {
            // SAFETY: by this function's contract; the read has ended, so nobody writes to our memory any more.
            unsafe { std::ptr::copy_nonoverlapping(self.start.0.as_ptr(), to.0.as_ptr(), self.len) };
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let bytes = NonNull::slice_from_raw_parts(self.start.0, self.len);
        // SAFETY: leaked in `new` with this length; the read's box, which keeps us alive, is gone.
        drop(unsafe { Box::from_raw(bytes.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn box_over(memory: &mut [u8], size: [u64; 3], row_pitch: u64, slice_pitch: u64) -> HostBox {
        let start = HostPointer::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the tests use boxes that fit the memory they are given.
        unsafe { HostBox::new(start, size, 1, row_pitch, slice_pitch, None) }
    }

    #[test]
    fn rows_with_gaps_are_packed_and_unpacked() {
        let mut memory: Vec<u8> = (0..24).collect();
        let mut host = box_over(&mut memory, [2, 2, 2], 4, 12);
        let whole = Region::whole([2, 2, 2]);
        assert_eq!(host.packed(&whole, &mut Vec::new()), [0, 1, 4, 5, 12, 13, 16, 17]);
        for (row, fill) in host.fill_target(&whole, 8).unwrap().into_iter().zip(100..) {
            row.fill(fill);
        }
        assert_eq!(memory[..8], [100, 100, 2, 3, 101, 101, 6, 7]);
    }

    #[test]
    fn bytes_that_come_in_one_piece_are_put_into_rows() {
        let mut memory: Vec<u8> = vec![9; 24];
        let mut host = box_over(&mut memory, [2, 2, 2], 4, 12);
        let part = Region { origin: [0, 0, 1], size: [2, 2, 1] };
        let received = host.fill(&part, 4, |bytes| {
            bytes.copy_from_slice(&[1, 2, 3, 4]);
            Ok::<(), ()>(())
        });
        assert_eq!(
            (received, host.range(&part, 4)),
            (Some(Ok(())), Some(memory.as_ptr() as usize + 12..memory.as_ptr() as usize + 18))
        );
        assert_eq!(memory[12..], [1, 2, 9, 9, 3, 4, 9, 9, 9, 9, 9, 9]);
        assert_eq!(host.fill(&part, 5, |_| Ok::<(), ()>(())), None);
        assert_eq!(host.range(&Region::whole([3, 2, 2]), 12), None);
    }

    #[test]
    fn rows_without_gaps_are_one_piece() {
        let mut memory = vec![0; 8];
        let mut host = box_over(&mut memory, [2, 2, 2], 2, 4);
        assert_eq!(host.fill_target(&Region::whole([2, 2, 2]), 8).unwrap().len(), 1);
    }

    #[test]
    fn a_part_outside_the_box_or_of_another_length_is_refused() {
        let mut memory = vec![0; 8];
        let mut host = box_over(&mut memory, [8, 1, 1], 8, 8);
        assert!(host.fill_target(&Region::linear(4, 5), 5).is_none());
        assert!(host.fill_target(&Region::linear(4, 4), 5).is_none());
    }
}
