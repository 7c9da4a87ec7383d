//! Lines for the user on stderr, written only when asked for (`TELECL_DEBUG`) or when the
//! configuration itself is wrong.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

static DEBUG: AtomicBool = AtomicBool::new(false);

/// Turns [`debug`] lines on.
pub(crate) fn enable_debug(on: bool) {
    DEBUG.store(on, Ordering::Relaxed);
}

/// A line for somebody who looks for a fault.
pub(crate) fn debug(message: fmt::Arguments<'_>) {
    if DEBUG.load(Ordering::Relaxed) {
        error(message);
    }
}

/// A line that the user must see.
pub(crate) fn error(message: fmt::Arguments<'_>) {
    // Not eprintln!: that panics when stderr is closed.
    let line = format!("telecl: {message}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}
