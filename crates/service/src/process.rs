//! How processes end, and the two C functions that have no safe equivalent: leaving at once, and emptying C's output.
#![allow(unsafe_code)]

/// With what a worker ends; the broker turns it into a sentence.
pub(crate) mod exit_code {
    /// The driver closed the connection.
    pub(crate) const CLOSED: i32 = 0;
    pub(crate) const BROKEN_PROTOCOL: i32 = 2;
    pub(crate) const NOT_STARTED: i32 = 3;
    /// The broker asked for it.
    pub(crate) const STOPPED: i32 = 4;
    pub(crate) const PANICKED: i32 = 70;
}

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
