//! The two C functions that have no safe equivalent: leaving at once, and emptying C's output buffers.
#![allow(unsafe_code)]

/// Ends the process without running exit handlers or destructors: a vendor's driver may hang in them, and there is
/// nothing left to save.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}

/// Hands what C code has printed so far to the operating system.
pub(crate) fn flush_c_output() {
    // SAFETY: null means all output streams; C locks each of them itself.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}
