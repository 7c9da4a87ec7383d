//! What the session's objects take of each device's memory, counted where they are made.
//!
//! The count is on the board, so that the broker sees it at any time. The driver counts the same and refuses what is too
//! much by itself; but a driver may be anybody's, so nothing is allocated here that does not fit. Memory counts until the
//! vendor has let go of it: a buffer that was released while a command uses it is *leaving*, and takes its place until
//! then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use telecl_opencl::{ClError, ClResult, Mem};
use telecl_sys::*;
use telecl_wire::reply::ContextNotice;
use tracing::debug;

use super::broker::Broker;
use super::completion::{Completion, Note};
use super::session::Session;
use crate::board::{DeviceCount, SessionBoard};
use crate::channel::{MemoryLimit, MemoryWish};

/// How long a create waits for memory that is leaving. A program that keeps its commands from ending, by an event of its
/// own, waits in vain.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it sleeps between two looks.
const NAP: Duration = Duration::from_micros(100);

/// The memory of one session. Its counters are changed by any thread; the lock is held while a message is sent.
#[derive(Debug)]
pub(crate) struct Account {
    board: Arc<SessionBoard>,
    broker: Arc<Broker>,
    completion: Completion,
    /// By the devices' places on the board.
    devices: Vec<OnDevice>,
    /// That whoever gives back has told the broker before somebody asks for more.
    giving: Mutex<()>,
}

#[derive(Debug, Default)]
struct OnDevice {
    /// What the session may have; `None` if that is all there is.
    most: Option<u64>,
    /// Whether the broker is asked, because other sessions of the tenant take from the same.
    shared: bool,
    /// Bytes of what was released and is still there.
    leaving: AtomicU64,
    /// Bytes that the broker does not know to be free.
    owed: AtomicU64,
}

/// Why there is no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TooMuch(pub(crate) String);

impl Account {
    pub(crate) fn new(
        board: Arc<SessionBoard>,
        broker: Arc<Broker>,
        completion: Completion,
        limits: &[MemoryLimit],
    ) -> Arc<Account> {
        let on_device = |id: &u64| {
            let limit = limits.iter().find(|limit| limit.device == *id);
            let shared = limit.is_some_and(|limit| limit.together.is_some());
            OnDevice { most: limit.map(|limit| limit.most), shared, ..OnDevice::default() }
        };
        let devices = board.devices().iter().map(on_device).collect();
        Arc::new(Account { board, broker, completion, devices, giving: Mutex::new(()) })
    }

    /// What there is on a root device now.
    pub(crate) fn used(&self, device: u64) -> Option<u64> {
        self.board.place(device).map(|place| self.memory(place).load(Ordering::Relaxed))
    }

    /// Takes so many bytes on all of these devices, or on none.
    pub(crate) fn take(self: &Arc<Self>, devices: &[u64], bytes: u64) -> Result<Held, TooMuch> {
        let mut places: Vec<usize> = devices.iter().filter_map(|id| self.board.place(*id)).collect();
        places.sort_unstable();
        places.dedup();
        for (number, place) in places.iter().enumerate() {
            if let Err(too_much) = self.add(*place, bytes) {
                self.subtract(&places[..number], bytes);
                return Err(too_much);
            }
        }
        let shared: Vec<usize> = places.iter().copied().filter(|place| self.devices[*place].shared).collect();
        if !shared.is_empty() {
            // What is free by now is not to be missing.
            self.give_back();
            let wish = MemoryWish { bytes, devices: shared.iter().map(|place| self.board.devices()[*place]).collect() };
            if let Err(reason) = self.broker.reserve(&wish) {
                self.subtract(&places, bytes);
                return Err(TooMuch(reason));
            }
        }
        for place in &places {
            let used = self.memory(*place).load(Ordering::Relaxed);
            self.board.device(*place, DeviceCount::PeakMemory).fetch_max(used, Ordering::Relaxed);
        }
        let (account, is_leaving) = (Arc::clone(self), AtomicBool::new(false));
        Ok(Held(Arc::new(Bytes { account, places, bytes, is_leaving })))
    }

    fn add(&self, place: usize, bytes: u64) -> Result<(), TooMuch> {
        let most = self.devices[place].most.unwrap_or(u64::MAX);
        let sum = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= most);
        match self.memory(place).fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum) {
            Ok(_) => Ok(()),
            Err(used) => Err(TooMuch(format!(
                "the session may use {most} bytes of device {}, has {used}, and wants {bytes} more",
                self.board.devices()[place]
            ))),
        }
    }

    fn subtract(&self, places: &[usize], bytes: u64) {
        for place in places {
            self.memory(*place).fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn memory(&self, place: usize) -> &AtomicU64 {
        self.board.device(place, DeviceCount::Memory)
    }

    /// Whether some of the memory of these devices is about to be free.
    fn is_leaving(&self, devices: &[u64]) -> bool {
        let mut places = devices.iter().filter_map(|id| self.board.place(*id));
        places.any(|place| self.devices[place].leaving.load(Ordering::Acquire) > 0)
    }

    /// Tells the broker what is free. When this returns it knows, whoever has told it.
    pub(crate) fn give_back(&self) {
        if !self.devices.iter().any(|device| device.shared) {
            return;
        }
        let _turn = self.giving.lock().unwrap_or_else(PoisonError::into_inner);
        for (device, id) in self.devices.iter().zip(self.board.devices()) {
            let bytes = device.owed.swap(0, Ordering::AcqRel);
            if bytes > 0 {
                self.broker.unreserve(&MemoryWish { bytes, devices: vec![*id] });
            }
        }
    }
}

/// Memory that one or several objects of the driver stand for. When all of them are released, it is given back, as soon
/// as the vendor lets go of it.
#[derive(Debug)]
pub(crate) struct Held(Arc<Bytes>);

#[derive(Debug)]
struct Bytes {
    account: Arc<Account>,
    places: Vec<usize>,
    bytes: u64,
    /// Whether nobody but the vendor has it.
    is_leaving: AtomicBool,
}

impl Held {
    /// Is not given back before the vendor has destroyed this object.
    pub(crate) fn stays_with(&self, mem: &Mem) {
        let bytes = Arc::clone(&self.0);
        // A vendor that does not call back has let go of it when it is released, as far as can be known.
        if let Err(error) = mem.on_destruction(Box::new(move || drop(bytes))) {
            debug!(%error, "the end of a memory object will not be noticed");
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Bytes { account, places, bytes, is_leaving } = &*self.0;
        for place in places {
            account.devices[*place].leaving.fetch_add(*bytes, Ordering::Relaxed);
        }
        is_leaving.store(true, Ordering::Release);
    }
}

impl Drop for Bytes {
    /// On any thread, also on the vendor's, which must not wait.
    fn drop(&mut self) {
        let Bytes { account, places, bytes, is_leaving } = self;
        let on_devices = || places.iter().map(|place| &account.devices[*place]);
        let mut tell = false;
        for device in on_devices().filter(|device| device.shared) {
            tell |= device.owed.fetch_add(*bytes, Ordering::AcqRel) == 0;
        }
        account.subtract(places, *bytes);
        // Last: whoever finds nothing that is leaving finds all of it free.
        if *is_leaving.get_mut() {
            for device in on_devices() {
                device.leaving.fetch_sub(*bytes, Ordering::Release);
            }
        }
        if tell {
            account.completion.note(Note::MemoryFreed(Arc::clone(account)));
        }
    }
}

impl Session {
    /// Takes memory for an object of a context. Waits a while if enough is about to be free: the driver has counted what
    /// was released as free already.
    pub(super) fn take_memory(&mut self, context: u64, bytes: u64) -> ClResult<Held> {
        let roots = Arc::clone(&self.contexts.get(context)?.roots);
        let begin = Instant::now();
        loop {
            // Before: it may be gone by the time that this has failed.
            let is_leaving = self.account.is_leaving(&roots);
            match self.account.take(&roots, bytes) {
                Ok(held) => return Ok(held),
                Err(_) if is_leaving && begin.elapsed() < PATIENCE => {}
                Err(TooMuch(reason)) => {
                    debug!(session = self.link.session(), reason, "no memory");
                    self.link.push(&ContextNotice { context, message: &reason, private_info: &[] }, &[]);
                    // CL_MEM_OBJECT_ALLOCATION_FAILURE if there is a failure to allocate memory for buffer object.
                    return Err(ClError(CL_MEM_OBJECT_ALLOCATION_FAILURE));
                }
            }
            self.catch_up();
            self.completion.lanes().hand_over();
            thread::sleep(NAP);
        }
    }
}
