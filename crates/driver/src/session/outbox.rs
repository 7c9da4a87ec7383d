//! What is on its way to the worker.
//!
//! A message that comes alone leaves at once. Those that follow within [`PAUSE`] are collected, and leave together when
//! the pause is over, when there are many of them, or when somebody waits for an answer. So a program that enqueues ten
//! thousand kernels makes a few hundred system calls. The thread `telecl-tx` sees to it that the last ones of a series
//! do not stay behind; it sleeps while there is no series.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use telecl_net::FrameSender;
use telecl_wire::request::Message;

use super::callbacks::spawn;
use crate::process;
use crate::registry::lock;

/// Messages that are closer to each other than this are a series. About what two system calls cost the two sides.
const PAUSE: Duration = Duration::from_micros(20);

/// So many bytes leave without waiting for the end of the pause.
const MANY: usize = 8 << 10;

/// How often `telecl-tx` looks, and how often in vain before it sleeps.
const ROUND: Duration = Duration::from_micros(50);
const ROUNDS: u32 = 20;

/// Whether a message may wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    WithOthers,
    /// Leaves with the next message, however late that is.
    WithNext,
}

/// Whether a message can make a difference to what others bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Some,
    None,
}

/// The sending half of a session.
#[derive(Debug)]
pub(super) struct Outbox {
    shared: Arc<Shared>,
    /// `telecl-tx`, once there was a series; `None` if it could not be started.
    sweeper: OnceLock<Option<Thread>>,
}

#[derive(Debug)]
struct Shared {
    stream: Mutex<Sending>,
    /// How many messages of some weight are on the stream. Changed under the stream's lock.
    sent: AtomicU64,
    /// Whether `telecl-tx` is looking.
    sweeping: AtomicBool,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Sending {
    sender: FrameSender,
    /// When something left last.
    left: Instant,
}

impl Outbox {
    pub(super) fn new(sender: FrameSender) -> Outbox {
        let stream = Mutex::new(Sending { sender, left: Instant::now() });
        let shared = Shared {
            stream,
            sent: AtomicU64::new(0),
            sweeping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        };
        Outbox { shared: Arc::new(shared), sweeper: OnceLock::new() }
    }

    /// Puts a message on the stream, and returns how many of some weight are there now.
    pub(super) fn put<'a>(
        &self,
        message: &impl Message<'a>,
        payload: &[u8],
        haste: Haste,
        weight: Weight,
    ) -> io::Result<u64> {
        let mut sending = lock(&self.shared.stream);
        sending.sender.push(message, payload)?;
        let sent = self.sent() + u64::from(weight == Weight::Some);
        self.shared.sent.store(sent, Ordering::Release);
        if sending.sender.is_empty() {
            // A large payload has taken everything with it.
            sending.left = Instant::now();
            return Ok(sent);
        }
        let many = sending.sender.pending() >= MANY;
        if haste == Haste::WithNext && !many {
            return Ok(sent);
        }
        if many || sending.sender.is_shared() || sending.left.elapsed() >= PAUSE {
            return sending.flush().map(|()| sent);
        }
        drop(sending);
        if !self.has_sweeper() {
            self.flush()?;
        }
        Ok(sent)
    }

    /// Whether a payload may go on another stream, as far as this one is concerned.
    pub(super) fn lets_go(&self, len: usize) -> bool {
        lock(&self.shared.stream).sender.lets_go(len)
    }

    /// Puts a message on the stream whose payload of `len` bytes comes on another. `queue` gives it to that one, so that
    /// payloads are in the order of their frames; `false` if it cannot.
    pub(super) fn put_on_stream<'a>(
        &self,
        message: &impl Message<'a>,
        stream: usize,
        len: usize,
        queue: impl FnOnce() -> bool,
    ) -> io::Result<u64> {
        let mut sending = lock(&self.shared.stream);
        sending.sender.push_on_stream(message, stream, len)?;
        let sent = self.sent() + 1;
        self.shared.sent.store(sent, Ordering::Release);
        if !queue() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        // The stream gets on only if the worker knows what comes there.
        sending.flush().map(|()| sent)
    }

    /// How many messages of some weight are on the stream.
    pub(super) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Acquire)
    }

    /// Goes on through another link.
    pub(super) fn replace(&self, sender: FrameSender) {
        let mut sending = lock(&self.shared.stream);
        let old = std::mem::replace(&mut sending.sender, sender);
        old.stream().inspect(|socket| process::forget_socket(socket));
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        lock(&self.shared.stream).flush()
    }

    /// Whether somebody will send what stays behind.
    fn has_sweeper(&self) -> bool {
        if self.shared.sweeping.load(Ordering::Acquire) {
            return true;
        }
        let sweeper = self.sweeper.get_or_init(|| start(&self.shared).ok());
        if let Some(sweeper) = sweeper
            && !self.shared.sweeping.swap(true, Ordering::AcqRel)
        {
            sweeper.unpark();
        }
        sweeper.is_some()
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        if let Some(Some(sweeper)) = self.sweeper.get() {
            sweeper.unpark();
        }
        lock(&self.shared.stream).sender.stream().inspect(|socket| process::forget_socket(socket));
    }
}

impl Sending {
    fn flush(&mut self) -> io::Result<()> {
        if self.sender.is_empty() {
            return Ok(());
        }
        self.left = Instant::now();
        self.sender.flush()
    }
}

fn start(shared: &Arc<Shared>) -> io::Result<Thread> {
    let shared = Arc::clone(shared);
    let (started, handle) = std::sync::mpsc::channel();
    spawn("telecl-tx", 128 << 10, move || {
        let _ = started.send(thread::current());
        while !shared.closed.load(Ordering::Acquire) {
            if shared.sweeping.load(Ordering::Acquire) {
                shared.sweep();
            } else {
                thread::park();
            }
        }
    })?;
    handle.recv().map_err(io::Error::other)
}

impl Shared {
    /// Sends what stays behind, until nothing does any more.
    fn sweep(&self) {
        let mut in_vain = 0;
        while in_vain < ROUNDS {
            thread::sleep(ROUND);
            in_vain += 1;
            let mut sending = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
            if !sending.sender.is_empty() {
                in_vain = 0;
                // An error ends the connection, which is noticed where its end is received.
                let _ = sending.flush();
            }
        }
        self.sweeping.store(false, Ordering::Release);
        // Something may have been left to us just before.
        let _ = lock(&self.stream).flush();
    }
}
