//! The thread on which callbacks of the program run.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::thread;

/// Something to run; usually calls a function of the program.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Runs callbacks one after the other, in the order in which they became due.
#[derive(Debug)]
pub(crate) struct Callbacks {
    jobs: Sender<Job>,
}

impl Callbacks {
    pub(crate) fn start() -> io::Result<Callbacks> {
        let (jobs, due) = mpsc::channel::<Job>();
        // A callback is the program's own code, so it gets a stack of the usual size.
        spawn("telecl-callbacks", 2 << 20, move || {
            for job in due {
                // A callback that unwinds (Rust, C++) must not end the thread for the others.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        })?;
        Ok(Callbacks { jobs })
    }

    pub(crate) fn run(&self, job: Job) {
        // The thread ends only with this sender.
        let _ = self.jobs.send(job);
    }
}

/// Starts a thread that takes no signals: the program's handlers belong to its own threads.
pub(super) fn spawn(name: &str, stack: usize, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let blocked = block_signals();
    let spawned = thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn(body);
    restore_signals(&blocked);
    spawned.map(drop)
}

thread_local! {
    static RECEIVER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is taking frames, in which it must neither run the program's code nor wait for the sender.
pub(crate) fn on_receiver_thread() -> bool {
    RECEIVER.get()
}

/// Marks a thread that takes frames, until it is dropped.
#[derive(Debug)]
pub(super) struct ReceiverMark(());

impl ReceiverMark {
    pub(super) fn set() -> ReceiverMark {
        RECEIVER.set(true);
        ReceiverMark(())
    }
}

impl Drop for ReceiverMark {
    fn drop(&mut self) {
        RECEIVER.set(false);
    }
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are local and initialised by the calls before they are read; a zeroed
    // sigset_t is valid.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    }
}

fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: `old` was filled by pthread_sigmask in `block_signals`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old, std::ptr::null_mut()) };
}
