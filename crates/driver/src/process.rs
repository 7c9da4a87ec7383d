//! What belongs to the process: all live objects, and what fork and exit do to them.
//!
//! Everything mutable hangs off one [`State`]. After a fork the child has none of our threads and may
//! have inherited a locked mutex, so it gets a fresh state and the old one is never touched again:
//! handles from before the fork answer CL_INVALID_*, platforms and devices stay valid and connect
//! anew when they are used. Once exit has begun, releases succeed, creates fail, nothing waits.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::Mutex;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use crate::api::{Context, Device, Event, Kernel, Memory, Program, Queue, Sampler};
use crate::registry::Registry;
use crate::session::Sessions;

/// All live objects of one process generation.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) sessions: Mutex<Sessions>,
    pub(crate) contexts: Registry<Context>,
    pub(crate) queues: Registry<Queue>,
    pub(crate) memory: Registry<Memory>,
    pub(crate) samplers: Registry<Sampler>,
    pub(crate) programs: Registry<Program>,
    pub(crate) kernels: Registry<Kernel>,
    pub(crate) events: Registry<Event>,
    pub(crate) devices: Registry<Device>,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
static EXITING: AtomicBool = AtomicBool::new(false);

/// Sockets that a forked child must close, so that the worker notices the end of the parent.
/// Lock-free, because the fork handler may take no lock.
static SOCKETS: [AtomicI32; 256] = [const { AtomicI32::new(-1) }; 256];

/// The objects of this process.
pub(crate) fn state() -> &'static State {
    static INSTALL: Once = Once::new();
    let state = STATE.load(Ordering::Acquire);
    if state.is_null() {
        INSTALL.call_once(|| {
            renew_state();
            install_handlers();
        });
        return state_after_install();
    }
    // SAFETY: non-null pointers in STATE come from `Box::leak` and are never freed.
    unsafe { &*state }
}

fn state_after_install() -> &'static State {
    // SAFETY: `renew_state` has run, so the pointer is non-null and comes from `Box::leak`.
    unsafe { &*STATE.load(Ordering::Acquire) }
}

/// Whether the process has begun to exit.
pub(crate) fn is_exiting() -> bool {
    EXITING.load(Ordering::Relaxed)
}

/// Remembers a session's socket for [`after_fork_in_child`].
pub(crate) fn remember_socket(socket: impl AsFd) {
    let raw = socket.as_fd().as_raw_fd();
    for slot in &SOCKETS {
        if slot.compare_exchange(-1, raw, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Forgets a socket that is about to be closed.
pub(crate) fn forget_socket(socket: impl AsFd) {
    let raw = socket.as_fd().as_raw_fd();
    for slot in &SOCKETS {
        if slot.compare_exchange(raw, -1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

fn renew_state() {
    STATE.store(Box::leak(Box::default()), Ordering::Release);
}

fn install_handlers() {
    // SAFETY: both handlers are `extern "C"` functions without arguments that do not unwind, and
    // this library is never unloaded (linked with -z nodelete).
    unsafe {
        libc::pthread_atfork(None, None, Some(after_fork_in_child));
        libc::atexit(at_exit);
    }
}

extern "C" fn after_fork_in_child() {
    for slot in &SOCKETS {
        let raw = slot.swap(-1, Ordering::Relaxed);
        if raw >= 0 {
            // SAFETY: the descriptor belongs to a session of the old state, which nobody uses any more.
            unsafe { libc::close(raw) };
        }
    }
    // glibc's allocator is usable in the child of a multi-threaded process.
    renew_state();
}

extern "C" fn at_exit() {
    EXITING.store(true, Ordering::Relaxed);
    // Whoever has the list is in the middle of a handshake; then the workers notice the end by themselves, a little later.
    if let Ok(sessions) = state_after_install().sessions.try_lock() {
        sessions.by_node.values().for_each(|session| session.say_bye());
    }
}
