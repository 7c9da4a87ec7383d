//! Handles that programs hold, and the objects behind them.
//!
//! A handle is the address of a [`Handle`], which a loader reads to find our functions. It is never
//! dereferenced to find our own state: a registry maps its address to the object, so that a stale or
//! foreign handle is an error and not a crash.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use telecl_sys::{ClError, ClResult, DispatchTable, cl_int};
use telecl_wire::request::Kind;

use crate::abi::DISPATCH;
use crate::session::Session;

/// What every OpenCL handle points to. Its layout is fixed by `cl_khr_icd`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Handle {
    /// Read by the loader on every call.
    dispatch: &'static DispatchTable,
}

impl Handle {
    pub(crate) fn new() -> Box<Handle> {
        Box::new(Handle { dispatch: &DISPATCH })
    }

    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}

/// A kind of object that programs hold handles of.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    /// What a wrong handle of this kind answers.
    const INVALID: cl_int;
    /// Which of the worker's tables it is in.
    const KIND: Kind;

    fn registry() -> &'static Registry<Self>;
    fn base(&self) -> &Base<Self>;
}

/// What every object has: its id, its handle and its reference count.
#[derive(Debug)]
pub(crate) struct Base<T: Object> {
    pub(crate) id: u64,
    /// Whom to tell of the end; root devices have none.
    session: Option<Arc<Session>>,
    handle: OnceLock<Box<Handle>>,
    /// The program's references; not `Arc`'s count, which also knows our own.
    references: AtomicU32,
    /// Keeps the object alive while the program has references.
    keeper: Mutex<Option<Arc<T>>>,
}

impl<T: Object> Base<T> {
    pub(crate) fn new(session: &Arc<Session>) -> Base<T> {
        Base::with_id(Some(session), session.next_id())
    }

    pub(crate) fn with_id(session: Option<&Arc<Session>>, id: u64) -> Base<T> {
        Base {
            id,
            session: session.cloned(),
            handle: OnceLock::new(),
            references: AtomicU32::new(0),
            keeper: Mutex::new(None),
        }
    }

    pub(crate) fn references(&self) -> u32 {
        self.references.load(Ordering::Relaxed)
    }

    /// The handle's address; 0 for an object that was never published.
    pub(crate) fn address(&self) -> usize {
        self.handle.get().map_or(0, |handle| handle.address())
    }
}

impl<T: Object> Drop for Base<T> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.get() {
            T::registry().remove(handle.address());
        }
        if let Some(session) = self.session.take() {
            session.release(T::KIND, self.id);
        }
    }
}

/// Gives the object a handle with one reference, for the program.
pub(crate) fn publish<T: Object>(object: &Arc<T>) -> usize {
    let base = object.base();
    let address = base.handle.get_or_init(Handle::new).address();
    base.references.store(1, Ordering::Relaxed);
    *lock(&base.keeper) = Some(Arc::clone(object));
    T::registry().insert(address, Arc::downgrade(object));
    address
}

/// The object behind a handle, or the error that a wrong handle of its kind answers.
pub(crate) fn lookup<T: Object>(address: usize) -> ClResult<Arc<T>> {
    T::registry().get(address).ok_or(ClError(T::INVALID))
}

/// `clRetain*`.
pub(crate) fn retain<T: Object>(address: usize) -> ClResult<()> {
    let object = lookup::<T>(address)?;
    let base = object.base();
    let mut keeper = lock(&base.keeper);
    base.references.fetch_add(1, Ordering::Relaxed);
    *keeper = Some(Arc::clone(&object));
    Ok(())
}

/// `clRelease*`. The object lives on while other objects need it.
pub(crate) fn release<T: Object>(address: usize) -> ClResult<()> {
    let object = match lookup::<T>(address) {
        // After exit has begun, or in a forked child, there is nothing left to release.
        Err(_) if crate::process::is_exiting() => return Ok(()),
        found => found?,
    };
    let base = object.base();
    let mut keeper = lock(&base.keeper);
    match base.references.load(Ordering::Relaxed) {
        0 => return Err(ClError(T::INVALID)),
        1 => {
            base.references.store(0, Ordering::Relaxed);
            let kept = keeper.take();
            drop(keeper);
            drop(kept);
        }
        n => base.references.store(n - 1, Ordering::Relaxed),
    }
    Ok(())
}

/// Finds objects by the address of their handle. Takes no other lock while its own is held.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    shards: [RwLock<Shard<T>>; SHARDS],
}

type Shard<T> = HashMap<usize, Weak<T>, BuildHasherDefault<AddressHasher>>;

/// So that threads which create and look up objects at once rarely meet.
const SHARDS: usize = 8;

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry { shards: std::array::from_fn(|_| RwLock::default()) }
    }
}

impl<T> Registry<T> {
    fn shard(&self, address: usize) -> &RwLock<Shard<T>> {
        // Handles are at least 16 bytes apart.
        &self.shards[(address >> 4) % SHARDS]
    }

    fn insert(&self, address: usize, object: Weak<T>) {
        self.shard(address).write().unwrap_or_else(PoisonError::into_inner).insert(address, object);
    }

    fn remove(&self, address: usize) {
        self.shard(address).write().unwrap_or_else(PoisonError::into_inner).remove(&address);
    }

    pub(crate) fn get(&self, address: usize) -> Option<Arc<T>> {
        self.shard(address).read().unwrap_or_else(PoisonError::into_inner).get(&address)?.upgrade()
    }
}

/// Addresses are spread well enough after one multiplication.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

/// Locks; a panic in another entry point was caught and must not spread.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
