//! Host memory between the link and a device.
//!
//! Each context has a pool. A device that is not the processor itself gets memory that its driver has pinned: it copies
//! from and to it by itself, while the executor goes on. Memory that is shared with the driver is pinned in place.
//! What a pool sets aside is bounded; whoever needs more waits a little for others to give theirs back, and gets more
//! only if nobody does: commands may be waiting for an event that is set by a request still to be read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use telecl_net::{Idle, ReceivedSlot, Slot, Spin};
use telecl_opencl::{ClError, ClResult, Context, Device, Queue};
use telecl_sys::{CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU, CL_OUT_OF_RESOURCES};
use telecl_wire::CHUNK;

use super::bounds::Lease;
use super::clear::Clearing;
use super::link::Link;
use super::vendor::{Pinned, PinnedPart};

/// Shorter chunks come from the allocator, which is good at them.
const POOLED: usize = 64 << 10;

/// How many chunks are set aside.
const SET_ASIDE: usize = 32;

/// Size and number of pinned pieces for short reads. To memory that is not pinned, NVIDIA's driver (580) reads 4 bytes in
/// twice the time.
const SHORT: usize = 4 << 10;
const SHORTS: usize = 256;

/// How long somebody waits for memory that others use.
const PATIENCE: Duration = Duration::from_millis(2);

/// The host memory of one context.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    link: Arc<Link>,
    /// For whom memory is pinned; none for processors, which need nothing of the kind.
    device: Option<(Context, Device)>,
    /// Where new memory is cleared; none if it need not be.
    clears: Option<(Context, Device)>,
    clearing_queue: OnceLock<Option<Queue>>,
    /// Whether the context has no other.
    single: bool,
    /// Whether chunks are pinned, and short ones; known once some were needed.
    pinned: OnceLock<bool>,
    pinned_shorts: OnceLock<bool>,
    /// What pins the memory of the link.
    slots: OnceLock<Option<Pinned>>,
    /// A queue for what need not stand in the program's own.
    side_queue: OnceLock<Option<Queue>>,
    state: Mutex<State>,
    /// Counts chunks that were given back, and what it was when nobody gave any back in time.
    returned: AtomicU64,
    stuck: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Chunks that were used before: their pages are in memory, and need not be cleared.
    free: Vec<Vec<u8>>,
    /// Chunks of pinned memory.
    pinned: Vec<PinnedPart>,
    pinned_shorts: Vec<PinnedPart>,
    in_use: usize,
}

/// A piece of host memory. It goes back to where it came from when it is dropped.
#[derive(Debug)]
pub(crate) struct Chunk {
    memory: Memory,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Own(OwnMemory),
    Pinned(PinnedMemory),
    /// Shared with the driver, to be sent to it.
    Outgoing(Slot),
    /// Shared with the driver, received from it.
    Incoming(ReceivedSlot),
}

#[derive(Debug)]
struct OwnMemory {
    /// Not a box: a device may be using the memory while this struct is moved, and moving a box says that nobody does.
    bytes: Vec<u8>,
    /// None of memory beyond what is set aside.
    pool: Option<Pool>,
    /// … which counts until it is dropped, if it is for a transfer.
    _lease: Option<Lease>,
}

#[derive(Debug)]
struct PinnedMemory {
    /// There until it is dropped.
    part: Option<PinnedPart>,
    pool: Pool,
}

impl Pool {
    /// A pool for a context with these devices.
    pub(crate) fn new(link: Arc<Link>, context: &Context, devices: &[Device], clearing: Clearing) -> Pool {
        let needs =
            |device: &&Device| device.info_number(CL_DEVICE_TYPE).is_ok_and(|kind| kind & CL_DEVICE_TYPE_CPU == 0);
        let with_context = |device: &Device| (context.clone(), device.clone());
        let device = devices.iter().find(needs).map(with_context);
        let clears = clearing.device(devices).map(with_context);
        Pool::with(link, device, clears, devices.len() == 1)
    }

    /// A pool without a context.
    pub(crate) fn plain(link: &Arc<Link>) -> Pool {
        Pool::with(Arc::clone(link), None, None, false)
    }

    fn with(
        link: Arc<Link>,
        device: Option<(Context, Device)>,
        clears: Option<(Context, Device)>,
        single: bool,
    ) -> Pool {
        Pool(Arc::new(Shared {
            link,
            device,
            clears,
            clearing_queue: OnceLock::new(),
            single,
            pinned: OnceLock::new(),
            pinned_shorts: OnceLock::new(),
            slots: OnceLock::new(),
            side_queue: OnceLock::new(),
            state: Mutex::default(),
            returned: AtomicU64::new(0),
            stuck: AtomicU64::new(u64::MAX),
        }))
    }

    /// A chunk of `len` bytes with whatever content; at most a few times [`CHUNK`] is asked for at once.
    pub(crate) fn take(&self, len: usize) -> Chunk {
        if !(POOLED..=CHUNK).contains(&len) {
            return self.take_beyond(len);
        }
        self.wait_for(|| self.try_take(len)).unwrap_or_else(|| self.take_beyond(len))
    }

    /// As [`Pool::take`], for something that will be sent to the driver.
    pub(crate) fn take_outgoing(&self, len: usize) -> Chunk {
        if !(POOLED..=CHUNK).contains(&len) {
            return self.take_short(len).unwrap_or_else(|| self.take(len));
        }
        let found = self.wait_for(|| self.take_slot(len).or_else(|| self.try_take(len)));
        found.unwrap_or_else(|| self.take_beyond(len))
    }

    /// As [`Pool::take_outgoing`], but only of what is set aside and not in use.
    pub(crate) fn take_set_aside(&self, len: usize) -> Option<Chunk> {
        if !(POOLED..=CHUNK).contains(&len) {
            return Some(self.take_outgoing(len));
        }
        if self.0.link.shared_memory().is_some() && len <= Slot::LEN { self.take_slot(len) } else { self.try_take(len) }
    }

    /// The memory that a payload has come in.
    pub(crate) fn incoming(&self, slot: ReceivedSlot, len: usize) -> Chunk {
        self.pin_slots();
        Chunk { memory: Memory::Incoming(slot), len: len.min(Slot::LEN) }
    }

    fn take_slot(&self, len: usize) -> Option<Chunk> {
        let slot = if len <= Slot::LEN { self.0.link.take_slot()? } else { return None };
        self.pin_slots();
        Some(Chunk { memory: Memory::Outgoing(slot), len })
    }

    fn take_short(&self, len: usize) -> Option<Chunk> {
        if len > SHORT || !self.pins(&self.0.pinned_shorts, SHORTS, SHORT, |state| &mut state.pinned_shorts) {
            return None;
        }
        let part = self.lock().pinned_shorts.pop()?;
        Some(self.pinned_chunk(part, len))
    }

    fn pinned_chunk(&self, part: PinnedPart, len: usize) -> Chunk {
        Chunk { memory: Memory::Pinned(PinnedMemory { part: Some(part), pool: self.clone() }), len }
    }

    /// Memory that is set aside for chunks.
    fn try_take(&self, len: usize) -> Option<Chunk> {
        let pins = self.pins(&self.0.pinned, SET_ASIDE, CHUNK, |state| &mut state.pinned);
        let mut state = self.lock();
        if pins {
            let part = state.pinned.pop()?;
            return Some(self.pinned_chunk(part, len));
        }
        if state.in_use >= SET_ASIDE {
            return None;
        }
        state.in_use += 1;
        let reused = state.free.pop();
        drop(state);
        let bytes = reused.unwrap_or_else(|| vec![0; CHUNK]);
        Some(Chunk { memory: Memory::Own(OwnMemory { bytes, pool: Some(self.clone()), _lease: None }), len })
    }

    /// Memory beyond what is set aside, for a transfer. Whether there may be more of it, the link's
    /// [`HostMemory`](super::bounds::HostMemory) knows.
    pub(crate) fn take_beyond(&self, len: usize) -> Chunk {
        let lease = Some(self.0.link.host_memory().lease(len));
        Chunk { memory: Memory::Own(OwnMemory { bytes: vec![0; len], pool: None, _lease: lease }), len }
    }

    /// Memory for what is kept instead of a device.
    pub(crate) fn take_more(&self, len: usize) -> Chunk {
        Chunk { memory: Memory::Own(OwnMemory { bytes: vec![0; len], pool: None, _lease: None }), len }
    }

    /// Waits a little until `look` finds something; not at all if that was in vain and nothing has changed since.
    fn wait_for(&self, look: impl Fn() -> Option<Chunk>) -> Option<Chunk> {
        let mut patience = Spin::new(PATIENCE);
        loop {
            if let Some(chunk) = look() {
                return Some(chunk);
            }
            let returned = self.0.returned.load(Ordering::Relaxed);
            if self.0.stuck.load(Ordering::Relaxed) == returned {
                return None;
            }
            if !patience.turn() {
                self.0.stuck.store(returned, Ordering::Relaxed);
                return None;
            }
        }
    }

    /// Whether there is pinned memory in parts of `size`. Pins it when that is first asked.
    fn pins(
        &self,
        known: &OnceLock<bool>,
        count: usize,
        size: usize,
        home: impl Fn(&mut State) -> &mut Vec<PinnedPart>,
    ) -> bool {
        let Some((context, device)) = &self.0.device else { return false };
        *known.get_or_init(|| match PinnedPart::several(context, device, count, size) {
            Ok(parts) => {
                *home(&mut self.lock()) = parts;
                true
            }
            Err(error) => {
                self.not_pinned(error);
                false
            }
        })
    }

    /// Transfers go on without, only slower.
    fn not_pinned(&self, error: ClError) {
        tracing::debug!(session = self.0.link.session(), %error, "no pinned memory");
    }

    /// A queue of our own to clear new memory, if it has to be. The side queue, if there is one: what is read there comes
    /// after the fills.
    pub(crate) fn clearing_queue(&self) -> Option<ClResult<&Queue>> {
        let (context, device) = self.0.clears.as_ref()?;
        let own = || self.0.clearing_queue.get_or_init(|| context.create_queue(device, 0).ok()).as_ref();
        Some(self.side_queue().or_else(own).ok_or(ClError(CL_OUT_OF_RESOURCES)))
    }

    /// A queue of our own on the context's only device, if that is not the processor itself.
    pub(crate) fn side_queue(&self) -> Option<&Queue> {
        let (context, device) = self.0.device.as_ref().filter(|_| self.0.single)?;
        self.0.side_queue.get_or_init(|| context.create_queue(device, 0).ok()).as_ref()
    }

    fn pin_slots(&self) {
        if let Some((context, device)) = &self.0.device {
            let pin = || {
                let pinned = Pinned::of_link(context, device, &self.0.link);
                pinned.inspect_err(|error| self.not_pinned(*error)).ok().flatten()
            };
            self.0.slots.get_or_init(pin);
        }
    }

    fn give_back(&self, give: impl FnOnce(&mut State)) {
        give(&mut self.lock());
        self.0.returned.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chunk {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes, if nobody else can change them; none of what is shared with the driver.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(own) => &own.bytes[..self.len],
            Memory::Pinned(pinned) => pinned.part.as_ref().map_or(&[], |part| &part.bytes()[..self.len]),
            Memory::Outgoing(_) | Memory::Incoming(_) => &[],
        }
    }

    /// As [`Chunk::bytes`].
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Own(own) => &mut own.bytes[..self.len],
            Memory::Pinned(pinned) => pinned.part.as_mut().map_or(&mut [], |part| &mut part.bytes_mut()[..self.len]),
            Memory::Outgoing(_) | Memory::Incoming(_) => &mut [],
        }
    }

    /// `len` bytes for a device. The driver may change those that it shares; it can only spoil its own data.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        match &mut self.memory {
            Memory::Own(own) => own.bytes.as_mut_ptr(),
            Memory::Pinned(pinned) => pinned.part.as_mut().map_or(std::ptr::null_mut(), PinnedPart::as_mut_ptr),
            Memory::Outgoing(slot) => slot.as_mut_ptr(),
            Memory::Incoming(slot) => slot.as_ptr().cast_mut(),
        }
    }

    /// The slot and how much of it, if the chunk can be sent without being copied.
    pub(crate) fn into_slot(self) -> Result<(Slot, usize), Chunk> {
        match self.memory {
            Memory::Outgoing(slot) => Ok((slot, self.len)),
            memory => Err(Chunk { memory, len: self.len }),
        }
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            let bytes = std::mem::take(&mut self.bytes);
            pool.give_back(|state| {
                state.in_use -= 1;
                state.free.push(bytes);
            });
        }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let Some(part) = self.part.take() else { return };
        self.pool.give_back(|state| {
            if part.size() == SHORT { state.pinned_shorts.push(part) } else { state.pinned.push(part) }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use telecl_net::{FrameSender, Stream};

    use super::*;
    use crate::board::SessionBoard;

    fn pool() -> Pool {
        let (socket, _peer) = UnixStream::pair().unwrap();
        let (board, _memfd) = SessionBoard::create(&[]).unwrap();
        Pool::plain(&Arc::new(Link::new(FrameSender::new(Stream::from_fd(socket.into())), 1, Arc::new(board))))
    }

    #[test]
    fn large_chunks_are_used_again() {
        let pool = pool();
        let mut first = pool.take(CHUNK - 1);
        first.bytes_mut().fill(7);
        drop(first);
        let second = pool.take_outgoing(POOLED);
        assert_eq!(second.len(), POOLED);
        assert!(second.bytes().iter().all(|&byte| byte == 7));
        assert_eq!(pool.take(3).bytes(), [0; 3]);
    }

    #[test]
    fn what_is_set_aside_is_bounded_and_the_rest_is_not_refused() {
        let pool = pool();
        let mut chunks: Vec<Chunk> = (0..SET_ASIDE).map(|_| pool.take(CHUNK)).collect();
        assert!(pool.take_set_aside(CHUNK).is_none());
        assert_eq!(pool.take(CHUNK).len(), CHUNK);
        chunks.pop();
        assert!(pool.take_set_aside(CHUNK).is_some());
    }
}
