//! What the session's objects take of each device's memory, counted where they are made.
//!
//! The count is on the board, so that the broker sees it at any time. The driver counts the same and refuses what is too
//! much by itself; but a driver may be anybody's, so nothing is allocated here that does not fit. Memory counts until the
//! vendor has let go of it: a buffer that was released while a command uses it is *leaving*, and takes its place until
//! then.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
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
    /// Whether the session may be moved out to host memory.
    moves: bool,
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
        let moves = limits.iter().any(|limit| limit.moves);
        Arc::new(Account { board, broker, completion, devices, moves, giving: Mutex::new(()) })
    }

    /// Whether the session may be moved out to host memory.
    pub(crate) fn moves(&self) -> bool {
        self.moves
    }

    /// What there is on a root device now.
    pub(crate) fn used(&self, device: u64) -> Option<u64> {
        self.board.place(device).map(|place| self.memory(place).load(Ordering::Relaxed))
    }

    /// Takes so many bytes on all of these devices, or on none.
    pub(crate) fn take(self: &Arc<Self>, devices: &[u64], bytes: u64) -> Result<Held, TooMuch> {
        let held = self.count(devices, bytes)?;
        let wish = held.wish();
        if !wish.is_empty() {
            // What is free by now is not to be missing.
            self.give_back();
            self.broker.reserve(&wish).map_err(TooMuch)?;
        }
        held.arrive();
        Ok(held)
    }

    /// Counts so many bytes on all of these devices, if the session may have so much; they are on none yet.
    pub(crate) fn count(self: &Arc<Self>, devices: &[u64], bytes: u64) -> Result<Held, TooMuch> {
        let mut places: Vec<usize> = devices.iter().filter_map(|id| self.board.place(*id)).collect();
        places.sort_unstable();
        places.dedup();
        for (number, place) in places.iter().enumerate() {
            if let Err(too_much) = self.add(*place, bytes) {
                self.subtract(&places[..number], bytes);
                return Err(too_much);
            }
        }
        let (account, is_leaving) = (Arc::clone(self), AtomicBool::new(false));
        Ok(Held(Arc::new(Bytes { account, places, bytes, is_leaving, place: AtomicU8::new(NOWHERE) })))
    }

    fn add(&self, place: usize, bytes: u64) -> Result<(), TooMuch> {
        // Where the broker is asked it says so, by a limit that may have changed. Who can be moved out must fit by itself.
        let asks = self.devices[place].shared && !self.moves;
        let most = self.devices[place].most.filter(|_| !asks).unwrap_or(u64::MAX);
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
                self.broker.unreserve(&MemoryWish { amounts: vec![(*id, bytes)] });
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
    /// Where it is.
    place: AtomicU8,
}

/// Where memory can be: not yet anywhere, on its devices, or moved out to host memory.
const NOWHERE: u8 = 0;
const RESIDENT: u8 = 1;
const PARKED: u8 = 2;

impl Bytes {
    fn shared(&self) -> impl Iterator<Item = usize> {
        self.places.iter().copied().filter(|place| self.account.devices[*place].shared)
    }

    /// The vendor has let go of it: the broker is to know. On any thread, also on the vendor's, which must not wait.
    fn free(&self) {
        let mut tell = false;
        for place in self.shared() {
            tell |= self.account.devices[place].owed.fetch_add(self.bytes, Ordering::AcqRel) == 0;
        }
        if tell {
            self.account.completion.note(Note::MemoryFreed(Arc::clone(&self.account)));
        }
    }

    fn parked(&self, change: impl Fn(&AtomicU64)) {
        let Bytes { account, places, .. } = self;
        places.iter().for_each(|place| change(account.board.device(*place, DeviceCount::Parked)));
    }
}

/// Memory that was moved out, as long as the vendor still has it.
#[derive(Debug)]
struct Departing(Arc<Bytes>);

impl Drop for Departing {
    fn drop(&mut self) {
        self.0.free();
    }
}

impl Held {
    /// What the broker is asked for before it can be on its devices.
    pub(crate) fn wish(&self) -> MemoryWish {
        let Bytes { account, bytes, .. } = &*self.0;
        MemoryWish::each(self.0.shared().map(|place| account.board.devices()[place]), *bytes)
    }

    /// The broker has agreed, and it is on its devices.
    pub(crate) fn arrive(&self) {
        let Bytes { account, places, bytes, place, .. } = &*self.0;
        if place.swap(RESIDENT, Ordering::AcqRel) == PARKED {
            self.0.parked(|parked| _ = parked.fetch_sub(*bytes, Ordering::Relaxed));
        }
        for place in places {
            let used = account.memory(*place).load(Ordering::Relaxed);
            account.board.device(*place, DeviceCount::PeakMemory).fetch_max(used, Ordering::Relaxed);
        }
    }

    /// It is moved out: this object is about to be released. What it had is free when the vendor has destroyed it.
    pub(crate) fn leave(&self, mem: &Mem) {
        self.0.place.store(PARKED, Ordering::Release);
        self.0.parked(|parked| _ = parked.fetch_add(self.0.bytes, Ordering::Relaxed));
        let departing = Departing(Arc::clone(&self.0));
        if let Err(error) = mem.on_destruction(Box::new(move || drop(departing))) {
            debug!(%error, "the end of a memory object will not be noticed");
        }
    }

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
        let Bytes { account, places, bytes, is_leaving, .. } = &*self.0;
        for place in places {
            account.devices[*place].leaving.fetch_add(*bytes, Ordering::Relaxed);
        }
        is_leaving.store(true, Ordering::Release);
    }
}

impl Drop for Bytes {
    /// On any thread, also on the vendor's, which must not wait.
    fn drop(&mut self) {
        match *self.place.get_mut() {
            RESIDENT => self.free(),
            PARKED => self.parked(|parked| _ = parked.fetch_sub(self.bytes, Ordering::Relaxed)),
            _ => {}
        }
        let Bytes { account, places, bytes, is_leaving, .. } = self;
        account.subtract(places, *bytes);
        // Last: whoever finds nothing that is leaving finds all of it free.
        if *is_leaving.get_mut() {
            for place in places {
                account.devices[*place].leaving.fetch_sub(*bytes, Ordering::Release);
            }
        }
    }
}

impl Session {
    /// Takes memory for an object of a context. Waits a while if enough is about to be free: the driver has counted what
    /// was released as free already. If the session may be moved, also for others to be moved out.
    pub(super) fn take_memory(&mut self, context: u64, bytes: u64) -> ClResult<Held> {
        let roots = Arc::clone(&self.contexts.get(context)?.roots);
        let begin = Instant::now();
        loop {
            // Before: it may be gone by the time that this has failed.
            let is_leaving = self.account.is_leaving(&roots);
            let taken = if self.account.moves() {
                let counted = self.account.count(&roots, bytes);
                counted.and_then(|held| self.find_room_for(&held).map(|()| held))
            } else {
                self.account.take(&roots, bytes)
            };
            match taken {
                Ok(held) => return Ok(held),
                Err(_) if is_leaving && begin.elapsed() < PATIENCE => {}
                Err(too_much) => {
                    self.tell_no_memory(context, &too_much);
                    // CL_MEM_OBJECT_ALLOCATION_FAILURE if there is a failure to allocate memory for buffer object.
                    return Err(ClError(CL_MEM_OBJECT_ALLOCATION_FAILURE));
                }
            }
            self.catch_up();
            self.completion.lanes().hand_over();
            thread::sleep(NAP);
        }
    }

    pub(super) fn tell_no_memory(&self, context: u64, TooMuch(reason): &TooMuch) {
        debug!(session = self.link.session(), reason, "no memory");
        self.link.push(&ContextNotice { context, message: reason, private_info: &[] }, &[]);
    }
}
