//! Pointers of the program, turned into slices and values. The only place that reads through them.

use std::ffi::{CStr, c_char, c_void};

use telecl_sys::{CL_DEVICE_PARTITION_BY_COUNTS, CL_INVALID_VALUE, ClError, ClResult, cl_device_partition_property};

use crate::host::HostPointer;

/// Writes an out-parameter unless it is null.
///
/// # Safety
/// `target` is null or valid for a write.
pub(super) unsafe fn store<T>(target: *mut T, value: T) {
    if !target.is_null() {
        // SAFETY: non-null, so valid by this function's contract.
        unsafe { target.write(value) };
    }
}

/// The elements of an array; none for a null pointer.
///
/// # Safety
/// `start` is null or valid for `count` elements, which do not change while the slice is used.
pub(super) unsafe fn list<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// The array to be filled, for `clGet*IDs`-like functions; none for a null pointer.
///
/// # Safety
/// `start` is null or valid for writes of `count` elements.
pub(super) unsafe fn fill<T: Copy>(start: *mut T, count: usize, values: impl Iterator<Item = T>) {
    if start.is_null() {
        return;
    }
    for (place, value) in values.take(count).enumerate() {
        // SAFETY: `place < count` elements are valid for writes.
        unsafe { start.add(place).write(value) };
    }
}

/// A list that ends with a zero, which is kept; `None` for a null pointer.
///
/// # Safety
/// `start` is null or points to a list that ends with a zero. Lists of pairs end at a zero *name*.
pub(super) unsafe fn zero_terminated_pairs<T: Copy + PartialEq + From<u8>>(start: *const T) -> Option<Vec<T>> {
    if start.is_null() {
        return None;
    }
    let zero = T::from(0);
    let mut values = Vec::new();
    let mut at = start;
    loop {
        // SAFETY: the list has not ended before `at`, by this function's contract.
        let name = unsafe { at.read() };
        values.push(name);
        if name == zero {
            return Some(values);
        }
        // SAFETY: a name is followed by its value.
        values.push(unsafe { at.add(1).read() });
        // SAFETY: and that by the next name or the end.
        at = unsafe { at.add(2) };
    }
}

/// How a device is to be partitioned, without the final zero. The counts of CL_DEVICE_PARTITION_BY_COUNTS
/// have an end of their own, which is zero too and is kept.
///
/// # Safety
/// `start` is null or points to a list that ends with a zero.
pub(super) unsafe fn partition_list(start: *const cl_device_partition_property) -> Vec<cl_device_partition_property> {
    let mut values = Vec::new();
    let mut at = start;
    while !at.is_null() {
        // SAFETY: the list has not ended before `at`, by this function's contract.
        let value = unsafe { at.read() };
        let counts = values.first() == Some(&CL_DEVICE_PARTITION_BY_COUNTS);
        if value != 0 || counts {
            values.push(value);
        }
        if value == 0 {
            break;
        }
        // SAFETY: the list goes on behind a value that is not its end.
        at = unsafe { at.add(1) };
    }
    values
}

/// A C string without its NUL; empty for a null pointer.
///
/// # Safety
/// `text` is null or a NUL-terminated string.
pub(super) unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// Three sizes; CL_INVALID_VALUE for a null pointer.
///
/// # Safety
/// `start` is null or valid for three values.
pub(super) unsafe fn triple(start: *const usize) -> ClResult<[u64; 3]> {
    // SAFETY: by this function's contract.
    match unsafe { list(start, 3) } {
        &[x, y, z] => Ok([x as u64, y as u64, z as u64]),
        _ => Err(ClError(CL_INVALID_VALUE)),
    }
}

/// Up to three sizes of a range, filled up; `None` for a null pointer.
///
/// # Safety
/// `start` is null or valid for `count` values.
pub(super) unsafe fn sizes(start: *const usize, count: usize, filler: u64) -> Option<[u64; 3]> {
    if start.is_null() {
        return None;
    }
    // SAFETY: by this function's contract; more than three are never read.
    let given = unsafe { list(start, count.min(3)) };
    let mut sizes = [filler; 3];
    for (size, &value) in sizes.iter_mut().zip(given) {
        *size = value as u64;
    }
    Some(sizes)
}

/// Memory that a transfer reads or fills.
pub(super) fn host(start: *const c_void) -> Option<HostPointer> {
    HostPointer::new(start.cast_mut().cast())
}
