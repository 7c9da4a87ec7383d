//! The `(size, value, size_ret)` queries, read as bytes, and the few ways to look at such bytes.

use std::ffi::c_void;
use std::ptr;

use telecl_sys::*;

/// A query's answer as text: up to its NUL, with what is not UTF-8 replaced.
#[must_use]
pub fn string(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A query's answer as an unsigned number, if it has the size of a `cl_uint` or of a `cl_ulong` or `size_t`.
#[must_use]
pub fn number(bytes: &[u8]) -> Option<u64> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(u32::from_ne_bytes(bytes).into());
    }
    <[u8; 8]>::try_from(bytes).ok().map(u64::from_ne_bytes)
}

/// Asks for the size, then for the value.
///
/// The buffer starts as zeros, so that a query that follows pointers in it (`CL_PROGRAM_BINARIES`) finds null. `call`
/// gets `(size, value, size_ret)`, where `value` is null or aligned to 8 and valid for `size` bytes.
pub(crate) fn read(call: impl Fn(usize, *mut c_void, *mut usize) -> cl_int) -> ClResult<Vec<u8>> {
    let mut size = 0;
    check(call(0, ptr::null_mut(), &raw mut size))?;
    if size == 0 {
        return Ok(Vec::new());
    }
    // Words, because drivers store through `cl_ulong *`, and the bytes of a `Vec<u8>` may lie anywhere.
    let mut words = vec![0u64; size.div_ceil(8)];
    let mut written = size;
    check(call(size, words.as_mut_ptr().cast(), &raw mut written))?;
    // Some drivers promise more than they write (a log without its padding), and a few report nothing here.
    let len = written.min(size);
    Ok(words.iter().flat_map(|word| word.to_ne_bytes()).take(len).collect())
}

/// Asks for a value whose size is known, with one call.
pub(crate) fn read_fixed<T: Plain>(call: impl FnOnce(usize, *mut c_void, *mut usize) -> cl_int) -> ClResult<T> {
    let mut value = T::default();
    check(call(size_of::<T>(), (&raw mut value).cast(), ptr::null_mut()))?;
    Ok(value)
}

/// Numbers, for which any bytes that a driver writes are a value.
pub(crate) trait Plain: Default {}
impl Plain for i32 {}
impl Plain for u32 {}
impl Plain for u64 {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver that promises `promised` bytes and then writes `"abc\0"`.
    fn answer(promised: usize, reported: usize) -> ClResult<Vec<u8>> {
        read(|size, value, size_ret| {
            if value.is_null() {
                // SAFETY: `read` passes the address of its own size.
                unsafe { size_ret.write(promised) };
            } else {
                assert!(size >= 4);
                // SAFETY: `read` passes at least `size` bytes, and the address of its own size.
                unsafe {
                    value.cast::<[u8; 4]>().write(*b"abc\0");
                    size_ret.write(reported);
                }
            }
            CL_SUCCESS
        })
    }

    #[test]
    fn an_answer_may_be_shorter_than_promised() {
        assert_eq!(answer(4, 4).unwrap(), b"abc\0");
        assert_eq!(answer(100, 4).unwrap(), b"abc\0");
    }

    #[test]
    fn an_answer_is_never_longer_than_its_buffer() {
        assert_eq!(answer(4, 1000).unwrap(), b"abc\0");
    }

    #[test]
    fn a_refused_query_is_an_error() {
        assert_eq!(read(|_, _, _| CL_INVALID_VALUE), Err(ClError(CL_INVALID_VALUE)));
    }

    #[test]
    fn bytes_are_read_as_text_and_numbers() {
        assert_eq!(string(b"pocl\0junk"), "pocl");
        assert_eq!(string(b"no end"), "no end");
        assert_eq!(number(&7u32.to_ne_bytes()), Some(7));
        assert_eq!(number(&7u64.to_ne_bytes()), Some(7));
        assert_eq!(number(b"abc"), None);
    }
}
