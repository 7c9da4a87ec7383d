//! One connection to one service: the ordered stream out, completions and answers back in.
//!
//! Threads of the program append messages under the sender's lock. What comes back is taken by a thread that waits
//! for something, or by one of the session (`telecl-rx`) while none does: it completes events, wakes waiters and
//! puts data where the program asked for it. Callbacks of the program run on a thread of their own
//! (`telecl-callbacks`), so that they may call any API function.

mod account;
mod call;
mod callbacks;
mod connect;
mod home;
mod outbox;
mod receive;
mod streams;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use telecl_config::DriverConfig;
use telecl_net::{Bell, Compression, FrameReceiver, FrameSender, LearningSpin, Stream, Terms};
use telecl_sys::{CL_DEVICE_NOT_AVAILABLE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES, ClError, ClResult, cl_int};
use telecl_wire::region::Region;
use telecl_wire::request::{Kind, Message, ReadBuffer, Release, Stage};
use telecl_wire::{CHUNK, FIRST_DRIVER_ID};

pub(crate) use account::{Account, Charge, TooMuch};
pub(crate) use callbacks::{Callbacks, on_receiver_thread};
pub(crate) use connect::{
    Asking, InfoTable, Node, NodeDevice, NodePlatform, Place, connect, connect_again, connect_all,
};
pub(crate) use streams::Batch;

use self::outbox::Weight;
use self::receive::Inbox;
use self::streams::{Streams, Ticket};
use crate::api::{Context, Event, Memory};
use crate::host::{HostBox, Landing};
use crate::registry::lock;
use crate::{log, process};

/// A command that the worker will report about.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Whom to tell: its event, or the memory of a read that was asked for ahead.
    pub(crate) listener: Listener,
    /// Of a read: where the bytes go.
    pub(crate) target: Option<HostBox>,
    /// Memory objects whose destructor callbacks must not run before the command has ended.
    pub(crate) uses: Vec<Arc<Memory>>,
}

/// Who is told of a command's end.
#[derive(Debug)]
pub(crate) enum Listener {
    Event(Arc<Event>),
    Landing(Arc<Landing>),
}

impl Listener {
    fn event(&self) -> Option<&Arc<Event>> {
        match self {
            Listener::Event(event) => Some(event),
            Listener::Landing(_) => None,
        }
    }

    fn finish(&self, status: cl_int, profile: [u64; 5]) {
        match self {
            Listener::Event(event) => event.finish(status, profile),
            Listener::Landing(landing) => landing.end(status),
        }
    }
}

impl Pending {
    /// A read that was asked for ahead.
    pub(crate) fn landing(landing: &Arc<Landing>) -> Pending {
        let listener = Listener::Landing(Arc::clone(landing));
        Pending { listener, target: Some(landing.target()), uses: Vec::new() }
    }
}

/// The sessions of the process, by index of their node.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub(crate) by_node: HashMap<usize, Arc<Session>>,
}

/// Include files and trees that the service has.
#[derive(Debug, Default)]
struct ShippedFiles {
    files: HashSet<[u8; 32]>,
    trees: HashMap<[u8; 32], u64>,
}

/// A connection to a service.
///
/// Locks: `outbox`, `calls`, `pending`, `contexts` and `shipped` are each taken alone, for a few lines.
#[derive(Debug)]
pub(crate) struct Session {
    /// What the platform name and the log call it.
    address: String,
    outbox: outbox::Outbox,
    /// Held by whoever takes frames.
    receiver: Mutex<Inbox>,
    /// Wakes the receiver thread; there from the first context on.
    bell: OnceLock<Arc<Bell>>,
    /// The connection itself, and others for payloads of large transfers.
    streams: Streams,
    next_id: AtomicU64,
    chunk: AtomicUsize,
    calls: call::Calls,
    pending: Mutex<HashMap<u64, Pending>>,
    contexts: Mutex<HashMap<u64, Weak<Context>>>,
    shipped: Mutex<ShippedFiles>,
    /// Held while the threads are started.
    starting: Mutex<()>,
    /// Held while files and trees are sent, so that nobody names a tree before it is there.
    shipping: Mutex<()>,
    callbacks: OnceLock<Callbacks>,
    lost: AtomicBool,
    /// `telecl-rx` was woken while another thread had `receiver`: that one wakes it again.
    rang: AtomicBool,
    agreed: Agreed,
}

/// What driver and service have agreed on.
#[derive(Debug)]
pub(super) struct Agreed {
    compression: Compression,
    /// What the service wants of lines that outlast their connections.
    terms: Terms,
    limited: bool,
    account: Account,
}

impl Session {
    /// A session over a connection whose handshake is done. Starts nothing yet.
    fn new(
        address: String,
        mut receiver: FrameReceiver,
        sender: FrameSender,
        main: Stream,
        ticket: Ticket,
        agreed: Agreed,
    ) -> std::io::Result<Arc<Session>> {
        let streams = Streams::new(main, ticket);
        receiver.set_idle(LearningSpin::new());
        for socket in [receiver.stream(), sender.stream()].into_iter().flatten() {
            process::remember_socket(socket);
        }
        Ok(Arc::new(Session {
            address,
            outbox: outbox::Outbox::new(sender),
            receiver: Mutex::new(Inbox::new(receiver)),
            bell: OnceLock::new(),
            starting: Mutex::default(),
            streams,
            next_id: AtomicU64::new(FIRST_DRIVER_ID),
            chunk: AtomicUsize::new(CHUNK),
            calls: call::Calls::default(),
            pending: Mutex::default(),
            contexts: Mutex::default(),
            shipped: Mutex::default(),
            shipping: Mutex::default(),
            callbacks: OnceLock::new(),
            lost: AtomicBool::new(false),
            rang: AtomicBool::new(false),
            agreed,
        }))
    }

    /// Starts the threads; called when the first context is made.
    pub(crate) fn start(self: &Arc<Self>, config: &DriverConfig) -> ClResult<()> {
        let _starting = lock(&self.starting);
        if self.is_started() {
            return Ok(());
        }
        if config.shared_memory {
            self.share_memory();
        }
        self.last(config.terms).map_err(|error| {
            self.lose(&error.to_string());
            ClError(CL_DEVICE_NOT_AVAILABLE)
        })?;
        if self.callbacks.get().is_none() {
            let callbacks = Callbacks::start().map_err(|_| ClError(CL_OUT_OF_HOST_MEMORY))?;
            let _ = self.callbacks.set(callbacks);
        }
        let started = lock(&self.receiver).frames.bell().and_then(|bell| {
            receive::start(self, Arc::clone(&bell))?;
            process::remember_socket(&*bell);
            bell.with_stream(|stream| process::remember_socket(stream));
            Ok(bell)
        });
        // What came before anybody listened is taken now; not while we hold what that takes.
        let rung = started.and_then(|bell| bell.ring_by_hand().map(|()| bell));
        let bell = rung.map_err(|error| {
            log::debug(format_args!("no thread for {}: {error}", self.address));
            ClError(CL_OUT_OF_HOST_MEMORY)
        })?;
        let _ = self.bell.set(bell);
        self.streams.permit(config.streams);
        Ok(())
    }

    pub(crate) fn is_started(&self) -> bool {
        self.bell.get().is_some()
    }

    /// Goes on through shared memory, if the connection allows it.
    fn share_memory(&self) {
        match telecl_net::share_memory(self.streams.main()) {
            Ok(Some((sender, mut receiver))) => {
                for socket in [receiver.stream(), sender.stream()].into_iter().flatten() {
                    process::remember_socket(socket);
                }
                receiver.set_idle(LearningSpin::new());
                self.chunk.store(sender.chunk(), Ordering::Relaxed);
                self.outbox.replace(sender);
                let old = std::mem::replace(&mut lock(&self.receiver).frames, receiver);
                old.stream().inspect(|socket| process::forget_socket(socket));
                log::debug(format_args!("session with {} goes through shared memory", self.address));
            }
            Ok(None) => {}
            Err(error) => log::debug(format_args!("no shared memory with {}: {error}", self.address)),
        }
    }

    /// Goes on over a line that outlasts its connection, if the connection is one that can be replaced.
    fn last(&self, ours: Terms) -> std::io::Result<()> {
        let Some(line) = self.streams.last(ours.and(self.agreed.terms))? else { return Ok(()) };
        let mut sender = FrameSender::new(Arc::clone(&line));
        sender.set_compression(self.agreed.compression);
        let mut receiver = FrameReceiver::new(line);
        receiver.set_idle(LearningSpin::new());
        self.outbox.replace(sender);
        let old = std::mem::replace(&mut lock(&self.receiver).frames, receiver);
        old.stream().inspect(|socket| process::forget_socket(socket));
        Ok(())
    }

    /// Tells the worker that the process exits, if that can be done at once.
    pub(crate) fn say_bye(&self) {
        self.streams.say_bye();
    }

    /// How much of a large transfer goes into one frame.
    pub(crate) fn chunk(&self) -> usize {
        self.chunk.load(Ordering::Relaxed)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Whether it can be used no more. Nobody looks after a session that has not started: a service that has too many of
    /// them closes the oldest, and whoever wants to use one finds that out here, and connects anew.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_lost() || (!self.is_started() && self.streams.main().is_closed())
    }

    /// Whether the service may have no room for a context.
    pub(crate) fn is_limited(&self) -> bool {
        self.agreed.limited
    }

    /// What it may have of devices' memory, and has.
    pub(crate) fn account(&self) -> &Account {
        &self.agreed.account
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_ids(1)
    }

    /// The first of `count` consecutive new ids.
    pub(crate) fn next_ids(&self, count: u64) -> u64 {
        self.next_id.fetch_add(count, Ordering::Relaxed)
    }

    /// Puts a one-way message on the stream. It leaves at once, or with those that follow it closely.
    pub(crate) fn post<'a, M: Message<'a>>(&self, message: &M, payload: &[u8]) -> ClResult<()> {
        self.put(message, payload, outbox::Haste::WithOthers, Weight::Some).map(drop)
    }

    /// As [`Session::post`], for a caller that may have more to say before it waits and calls [`Session::push_out`].
    pub(crate) fn post_and_more<'a, M: Message<'a>>(&self, message: &M, payload: &[u8]) -> ClResult<()> {
        self.put(message, payload, outbox::Haste::WithNext, Weight::Some).map(drop)
    }

    /// As [`Session::post`], for a read that nobody has asked for yet: it leaves with what somebody waits for. Returns what
    /// [`Session::sent`] was when it took its place on the stream.
    pub(crate) fn post_ahead(&self, request: &ReadBuffer<'_>) -> ClResult<u64> {
        self.put(request, &[], outbox::Haste::WithNext, Weight::None)
    }

    /// How many requests have been put on the stream that can make a difference to what others bring.
    pub(crate) fn sent(&self) -> u64 {
        self.outbox.sent()
    }

    /// Sends what has been put on the stream and has not left; called before a thread waits.
    pub(crate) fn push_out(&self) -> ClResult<()> {
        if self.is_lost() {
            return Err(ClError(CL_DEVICE_NOT_AVAILABLE));
        }
        self.outbox.flush().map_err(|error| {
            self.sending_failed(&error);
            ClError(CL_DEVICE_NOT_AVAILABLE)
        })
    }

    fn put<'a, M: Message<'a>>(
        &self,
        message: &M,
        payload: &[u8],
        haste: outbox::Haste,
        weight: Weight,
    ) -> ClResult<u64> {
        self.check_alive()?;
        self.outbox.put(message, payload, haste, weight).map_err(|error| self.not_sent(&error))
    }

    fn check_alive(&self) -> ClResult<()> {
        if self.is_lost() || process::is_exiting() { Err(ClError(CL_DEVICE_NOT_AVAILABLE)) } else { Ok(()) }
    }

    fn not_sent(&self, error: &std::io::Error) -> ClError {
        if error.kind() == std::io::ErrorKind::InvalidInput {
            // Too long for a frame: nothing was sent, and the session goes on.
            return ClError(CL_OUT_OF_RESOURCES);
        }
        self.sending_failed(error);
        ClError(CL_DEVICE_NOT_AVAILABLE)
    }

    fn sending_failed(&self, error: &std::io::Error) {
        // Whoever receives sees the end too and fails everything that is pending.
        log::debug(format_args!("cannot send to {}: {error}", self.address));
        self.streams.end_main();
    }

    /// Puts data on the stream that a later message uses: as its payload if that is small enough
    /// (then the number is 0), else in stages under the number returned.
    pub(crate) fn stage<'d>(&self, data: &'d [u8]) -> ClResult<(u64, &'d [u8])> {
        if data.len() <= CHUNK {
            return Ok((0, data));
        }
        let id = self.next_id();
        let batch = self.batch(data.len() as u64);
        // SAFETY: it is only sent, and the batch waits for that before this returns, however it does.
        let source = unsafe { HostBox::of_bytes(data) };
        for part in Region::parts(source.size(), source.unit(), self.chunk() as u64) {
            self.post_part(&Stage { id }, &source, &part, false, &batch)?;
        }
        batch.wait()?;
        Ok((id, &[]))
    }

    /// For the parts of a transfer of this size.
    pub(crate) fn batch(&self, bytes: u64) -> Batch {
        self.note_transfer(bytes);
        Batch::default()
    }

    /// A transfer of this size begins.
    pub(crate) fn note_transfer(&self, bytes: u64) {
        self.streams.note(bytes);
    }

    /// As [`Session::post`], with a part of a box as payload. A large one may go on another stream: `batch` knows when it
    /// has left the program's memory. Of the `last`, this thread may as well send it itself.
    pub(crate) fn post_part<'a, M: Message<'a>>(
        &self,
        message: &M,
        source: &HostBox,
        part: &Region,
        last: bool,
        batch: &Batch,
    ) -> ClResult<()> {
        let len = source.part_bytes(part);
        let Some(stream) = self.streams.for_payload(len, || self.outbox.lets_go(len)) else {
            return self.post(message, source.packed(part, &mut batch.scratch.borrow_mut()));
        };
        self.check_alive()?;
        let queue = || self.streams.put(stream, source, part, batch, last);
        let put = self.outbox.put_on_stream(message, stream, len, queue);
        put.map_err(|error| self.not_sent(&error))?;
        if last {
            self.streams.send_now(stream);
        }
        Ok(())
    }

    /// Remembers who waits for a command, before the command is posted.
    pub(crate) fn expect(&self, event: u64, pending: Pending) {
        lock(&self.pending).insert(event, pending);
        // A session that was lost meanwhile has already failed what was pending then.
        if self.is_lost() {
            self.fail_pending();
        }
    }

    /// Forgets a command that could not be posted.
    pub(crate) fn forget(&self, event: u64) {
        // Dropped after the lock: it may be the last to hold an object with destructor callbacks.
        let forgotten = lock(&self.pending).remove(&event);
        drop(forgotten);
    }

    /// Tells the worker that an object is gone.
    pub(crate) fn release(self: Arc<Self>, kind: Kind, id: u64) {
        // What holds no device memory can go with whatever comes next.
        let small = matches!(kind, Kind::Event | Kind::Kernel | Kind::Sampler);
        let haste = if small { outbox::Haste::WithNext } else { outbox::Haste::WithOthers };
        // Fails only where the session is lost, and then there is no worker to tell.
        let post = move |session: &Session| {
            let _ = session.put(&Release { kind, id }, &[], haste, if small { Weight::None } else { Weight::Some });
        };
        if on_receiver_thread() {
            // The receiver must never wait for the sending half: the worker may wait for us to receive.
            let session = Arc::clone(&self);
            self.run_callback(move || post(&session));
        } else {
            post(&self);
        }
    }

    /// Keeps other builds from sending include files until the guard is gone.
    pub(crate) fn shipping(&self) -> MutexGuard<'_, ()> {
        lock(&self.shipping)
    }

    /// Notes that a file with this hash is on the service from now on; `false` if it was already.
    pub(crate) fn remember_file(&self, hash: [u8; 32]) -> bool {
        lock(&self.shipped).files.insert(hash)
    }

    /// The number of the include tree with this hash, and whether it is new to the service. Trees live
    /// as long as the session.
    pub(crate) fn tree(&self, hash: [u8; 32]) -> (u64, bool) {
        match lock(&self.shipped).trees.entry(hash) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(fresh) => (*fresh.insert(self.next_id()), true),
        }
    }

    pub(crate) fn add_context(&self, id: u64, context: Weak<Context>) {
        lock(&self.contexts).insert(id, context);
    }

    pub(crate) fn remove_context(&self, id: u64) {
        lock(&self.contexts).remove(&id);
    }

    fn context(&self, id: u64) -> Option<Arc<Context>> {
        lock(&self.contexts).get(&id)?.upgrade()
    }

    /// Runs `job` on the callback thread.
    pub(crate) fn run_callback(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(callbacks) = self.callbacks.get() {
            callbacks.run(Box::new(job));
        }
    }

    /// The connection is gone: everything that waits gets its error.
    fn lose(&self, reason: &str) {
        self.end(reason, log::debug);
    }

    /// As [`Session::lose`], because the service's policy wants it so: the user must be told, for nothing is broken.
    fn expel(&self, reason: &str) {
        self.end(reason, log::error);
    }

    fn end(&self, reason: &str, log: impl FnOnce(std::fmt::Arguments<'_>)) {
        if self.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        log(format_args!("session with {} is lost: {reason}", self.address));
        self.streams.end_main();
        // The program may free its memory when it hears of the end, by whatever way.
        self.streams.stop();
        // Before the calls fail: a context whose creation fails is gone then, and its program is to hear why.
        let contexts: Vec<_> = lock(&self.contexts).values().filter_map(Weak::upgrade).collect();
        for context in &contexts {
            context.notify(&format!("telecl: session with {} is lost: {reason}", self.address), &[]);
        }
        self.fail_calls();
        self.fail_pending();
    }

    fn fail_pending(&self) {
        // Whoever expects something of a lost session may be here before the one who lost it has stopped them.
        self.streams.stop();
        let pending: Vec<_> = lock(&self.pending).drain().collect();
        for (_, pending) in pending {
            pending.listener.finish(CL_DEVICE_NOT_AVAILABLE, [0; 5]);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.streams.leave();
        self.outbox.close();
        let inbox = self.receiver.get_mut().unwrap_or_else(PoisonError::into_inner);
        inbox.frames.stream().inspect(|socket| process::forget_socket(socket));
    }
}
