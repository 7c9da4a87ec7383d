//! Further streams of a session, which carry payloads of large transfers.
//!
//! They are joined in the background when the first large transfer is seen, and only over TCP. Each has two threads: one
//! that joins and then receives (`telecl-receive`), and one that sends (`telecl-send`); both go straight to and from the
//! program's memory. A session whose streams could not join goes on without.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use telecl_config::StreamCount;
use telecl_net::{Coming, Lasting, Line, ReceiveError, Stream, StreamJobs, Terms, processors};
use telecl_sys::{CL_DEVICE_NOT_AVAILABLE, ClError, ClResult};
use telecl_wire::handshake::{Join, MAGIC};
use telecl_wire::region::Region;
use telecl_wire::{DecodeError, MAX_STREAMS, PROTOCOL_VERSION};

use super::callbacks::{ReceiverMark, spawn};
use super::home::AtService;
use crate::host::HostBox;
use crate::registry::lock;
use crate::{log, process};

/// Shorter payloads follow their frames: they are there sooner than another thread is awake.
const LEAST: usize = 512 << 10;

/// A transfer of this size, or so many bytes in all, are worth further streams.
const LARGE: u64 = 4 << 20;
const MUCH: u64 = 64 << 20;

/// How many streams are joined where nobody says how many: each keeps a thread busy on both sides. On loopback of a machine
/// with 16 processors, two moved 6 GB/s and four 10 GB/s; one alone gained nothing.
fn usual() -> usize {
    match processors() {
        0..4 => 0,
        4..12 => 2,
        12.. => 4,
    }
}

/// How long a stream may take to join.
const PATIENCE: Duration = Duration::from_secs(5);

/// What it takes to join a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub(super) session: u64,
    pub(super) secret: [u8; 16],
}

/// The further streams of a session.
#[derive(Debug)]
pub(super) struct Streams {
    shared: Arc<Shared>,
    /// How many are still to be joined, when that pays.
    wanted: AtomicUsize,
    /// Bytes of transfers so far.
    moved: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    /// The session's own. If a stream is lost, it is ended, which whoever receives from it will notice.
    main: Stream,
    /// What outlasts it.
    lasting: OnceLock<Arc<Lasting>>,
    /// The service; `None` if that is at a Unix socket.
    home: Option<Arc<AtService>>,
    sockets: [OnceLock<Line>; MAX_STREAMS],
    incoming: StreamJobs<Arriving>,
    outgoing: StreamJobs<Parcel>,
}

/// What a payload that was received came to.
pub(super) type Landed = Result<(), ReceiveError>;

/// A payload to be received.
#[derive(Debug)]
struct Arriving {
    /// Where it goes; `None` if nobody wants it.
    target: Option<(HostBox, Region)>,
    len: usize,
    landed: Sender<Landed>,
}

/// A payload to be sent.
#[derive(Debug)]
struct Parcel {
    /// There until it is dropped.
    source: Option<HostBox>,
    part: Region,
    sent: bool,
    batch: Arc<BatchState>,
}

impl Drop for Parcel {
    fn drop(&mut self) {
        // First, because the memory may be gone when the batch has ended.
        self.source = None;
        self.batch.end_one(self.sent);
    }
}

impl Streams {
    pub(super) fn new(main: Stream, ticket: Ticket) -> Streams {
        process::remember_socket(&main);
        let home = main.redial().ok().map(|redial| Arc::new(AtService { redial, ticket }));
        let shared = Shared {
            main,
            lasting: OnceLock::new(),
            home,
            sockets: [const { OnceLock::new() }; MAX_STREAMS],
            incoming: StreamJobs::default(),
            outgoing: StreamJobs::default(),
        };
        Streams { shared: Arc::new(shared), wanted: AtomicUsize::new(0), moved: AtomicU64::new(0) }
    }

    /// The session's own connection.
    pub(super) fn main(&self) -> &Stream {
        &self.shared.main
    }

    /// Has the session outlast its connection, if that is possible. It must not have been used for a request.
    pub(super) fn last(&self, terms: Terms) -> io::Result<Option<Arc<Lasting>>> {
        let Some(home) = self.shared.home.clone().filter(|_| !terms.is_nothing()) else { return Ok(None) };
        let line = telecl_net::begin_to_last(self.shared.main.try_clone()?, home, terms)?;
        Ok(Some(Arc::clone(self.shared.lasting.get_or_init(|| line))))
    }

    /// Ends the session's own connection.
    pub(super) fn end_main(&self) {
        self.shared.end_main();
    }

    /// Ends the session's own connection on purpose, which the worker gets to know, if that can be said at once.
    pub(super) fn leave(&self) {
        match self.shared.lasting.get() {
            Some(line) => line.leave(),
            None => self.shared.main.shutdown(),
        }
    }

    /// The process exits.
    pub(super) fn say_bye(&self) {
        self.shared.lasting.get().inspect(|line| line.say_bye());
    }

    /// How often [`Streams::tend`] is to be called.
    pub(super) fn tend_every(&self) -> Option<Duration> {
        self.shared.lasting.get()?.terms().interval()
    }

    /// Says on all lines that we are there, and looks whether the worker is.
    pub(super) fn tend(&self) {
        let further = self.shared.sockets.iter().filter_map(|socket| socket.get()?.lasting());
        for line in self.shared.lasting.get().into_iter().chain(further) {
            let silent = line.tend();
            // A service is never stopped, as a program may be by its user: who says nothing is not there.
            if line.terms().heartbeat.is_some_and(|limit| silent >= limit) {
                log::debug(format_args!("the service has said nothing for {silent:?}"));
                line.give_up_connection();
            }
        }
    }

    /// Says how many there may be. Those that were asked for by number join at once.
    pub(super) fn permit(&self, count: StreamCount) {
        if self.shared.main.is_unix() {
            return;
        }
        match count {
            StreamCount::Auto => self.wanted.store(usual(), Ordering::Relaxed),
            StreamCount::Exactly(count) => {
                self.wanted.store(count.min(MAX_STREAMS), Ordering::Relaxed);
                self.join_all();
            }
        }
    }

    /// A transfer of this size begins: has streams join if that pays.
    pub(super) fn note(&self, bytes: u64) {
        if self.wanted.load(Ordering::Relaxed) == 0 || bytes < LEAST as u64 {
            return;
        }
        let moved = self.moved.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if bytes >= LARGE || moved >= MUCH {
            self.join_all();
        }
    }

    /// In the background. Those that fail are not tried again.
    fn join_all(&self) {
        for number in 0..self.wanted.swap(0, Ordering::AcqRel) {
            let shared = Arc::clone(&self.shared);
            let spawned = spawn("telecl-receive", 128 << 10, move || {
                let _mark = ReceiverMark::set();
                match Shared::join(&shared, number) {
                    Ok(()) => shared.incoming.work(number, |job| shared.receive(number, job)),
                    Err(error) => {
                        shared.incoming.withdraw(number);
                        log::debug(format_args!("stream {number} could not join its session: {error}"));
                    }
                }
            });
            if let Err(error) = spawned {
                log::debug(format_args!("no thread for a stream: {error}"));
            }
        }
    }

    /// A stream for a payload of `len` bytes, if it is worth that, and it `may`; waits until one has little to do.
    pub(super) fn for_payload(&self, len: usize, may: impl FnOnce() -> bool) -> Option<usize> {
        let outgoing = &self.shared.outgoing;
        if len >= LEAST && outgoing.any() && may() { outgoing.wait_for_room() } else { None }
    }

    /// Sends a part of a write on a stream, after what was given to it before. With `now`, [`Streams::send_now`] follows.
    pub(super) fn put(&self, stream: usize, source: &HostBox, part: &Region, batch: &Batch, now: bool) -> bool {
        let parcel = batch.parcel(source, part);
        let outgoing = &self.shared.outgoing;
        if now { outgoing.put_quietly(stream, parcel).is_ok() } else { outgoing.put(stream, parcel).is_ok() }
    }

    /// Sends the stream's next payload here, if nobody does.
    pub(super) fn send_now(&self, stream: usize) {
        self.shared.outgoing.help(stream, |parcel| {
            self.shared.send(stream, parcel);
        });
    }

    /// Has the next payload on the stream received: into a part of a box, or into nothing.
    pub(super) fn expect(
        &self,
        stream: usize,
        target: Option<(HostBox, Region)>,
        len: usize,
    ) -> Result<Coming<Landed>, DecodeError> {
        let (landed, received) = mpsc::channel();
        // A worker names streams that have joined, or are about to.
        let arriving = Arriving { target, len, landed };
        self.shared.incoming.put(stream, arriving).map_err(|_| DecodeError::BadHeader)?;
        Ok(Coming { stream, received })
    }

    /// Receives the stream's next payload here, if nobody has begun to.
    pub(super) fn receive_now(&self, stream: usize) -> bool {
        self.shared.incoming.help(stream, |job| {
            self.shared.receive(stream, job);
        })
    }

    /// Ends all streams. When this returns, none of them touches the program's memory any more.
    pub(super) fn stop(&self) {
        let Shared { sockets, incoming, outgoing, .. } = &*self.shared;
        incoming.close();
        outgoing.close();
        sockets.iter().filter_map(OnceLock::get).for_each(Line::shutdown);
        incoming.wait_for_end();
        outgoing.wait_for_end();
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn end_main(&self) {
        match self.lasting.get() {
            Some(line) => line.end(),
            None => self.main.shutdown(),
        }
    }

    fn join(shared: &Arc<Shared>, number: usize) -> Result<(), ReceiveError> {
        let deadline = Instant::now() + PATIENCE;
        // The worker may use it before we have heard that it may.
        if !shared.incoming.announce(number) {
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        }
        let home = shared.home.clone().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        let Ticket { session, secret } = home.ticket;
        let stream = home.redial.connect(deadline)?;
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_receive_timeout(Some(left))?;
        let protocol = PROTOCOL_VERSION;
        telecl_net::join(&stream, &Join { magic: MAGIC, protocol, session, secret, stream: number as u32 })?;
        stream.set_receive_timeout(None)?;
        let line = match shared.lasting.get() {
            Some(main) => Line::from(Lasting::at_driver(stream, home, number as u32, main.terms())),
            None => {
                process::remember_socket(&stream);
                Line::from(stream)
            }
        };
        // Nobody else has this number.
        let line = shared.sockets[number].get_or_init(|| line);
        // The worker uses it as soon as it knows that we do.
        line.lasting().inspect(|line| line.say_hello());
        if !shared.incoming.open(number) {
            // The session has ended meanwhile.
            line.shutdown();
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        }
        let sender = Arc::clone(shared);
        let started = spawn("telecl-send", 128 << 10, move || {
            sender.outgoing.work(number, |parcel| sender.send(number, parcel));
        });
        match started {
            Ok(()) => {
                shared.outgoing.open(number);
                log::debug(format_args!("stream {number} has joined its session"));
            }
            Err(error) => log::debug(format_args!("no thread to send on stream {number}: {error}")),
        }
        Ok(())
    }

    /// Receives a payload; `false` if the stream is lost.
    fn receive(&self, number: usize, Arriving { target, len, landed }: Arriving) -> bool {
        let socket = self.sockets[number].get().ok_or(io::ErrorKind::NotConnected);
        let received = socket.map_err(|error| ReceiveError::Io(error.into())).and_then(|socket| match target {
            Some((mut target, part)) => {
                let filled = target.fill(&part, len, |bytes| socket.receive_payload(bytes));
                filled.ok_or(DecodeError::BadValue)?.map_err(ReceiveError::Io)
            }
            None => skip(socket, len).map_err(ReceiveError::Io),
        });
        let on = received.is_ok();
        if !on {
            self.end_main();
        }
        // Whoever takes frames waits for it, or the session is lost.
        let _ = landed.send(received);
        on
    }

    /// Sends a payload; `false` if the stream is lost.
    fn send(&self, number: usize, mut parcel: Parcel) -> bool {
        let (Some(socket), Some(source)) = (self.sockets[number].get(), &parcel.source) else { return false };
        let sent = socket.send_payload(source.packed(&parcel.part, &mut Vec::new()));
        if let Err(error) = &sent {
            log::debug(format_args!("cannot send on stream {number}: {error}"));
            // Whoever receives sees the end and fails everything that is pending.
            self.end_main();
        }
        parcel.sent = sent.is_ok();
        parcel.sent
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let sockets = self.sockets.iter().filter_map(|socket| socket.get()?.plain());
        sockets.chain([&self.main]).for_each(process::forget_socket);
    }
}

/// Receives what nobody wants.
fn skip(socket: &Line, mut len: usize) -> io::Result<()> {
    let mut scratch = vec![0; len.min(64 << 10)];
    while len > 0 {
        let n = len.min(scratch.len());
        socket.receive_payload(&mut scratch[..n])?;
        len -= n;
    }
    Ok(())
}

/// The payloads of one command that streams send from the program's memory, which must not change or go away meanwhile: so
/// dropping this waits until they have been sent.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Made with the first of them.
    state: OnceCell<Arc<BatchState>>,
    /// For rows that are sent here and do not lie together.
    pub(super) scratch: RefCell<Vec<u8>>,
}

#[derive(Debug, Default)]
struct BatchState {
    progress: Mutex<BatchProgress>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct BatchProgress {
    left: usize,
    failed: bool,
}

impl Batch {
    fn parcel(&self, source: &HostBox, part: &Region) -> Parcel {
        let batch = Arc::clone(self.state.get_or_init(Arc::default));
        lock(&batch.progress).left += 1;
        let (source, part) = (Some(source.clone()), part.clone());
        Parcel { source, part, sent: false, batch }
    }

    /// Waits until all have been handed to the system, or never will be.
    pub(crate) fn wait(&self) -> ClResult<()> {
        let Some(state) = self.state.get() else { return Ok(()) };
        let progress = lock(&state.progress);
        let waited = state.ended.wait_while(progress, |progress| progress.left > 0);
        let failed = waited.unwrap_or_else(PoisonError::into_inner).failed;
        if failed { Err(ClError(CL_DEVICE_NOT_AVAILABLE)) } else { Ok(()) }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // Who wants to know how it went has waited before.
        let _ = self.wait();
    }
}

impl BatchState {
    fn end_one(&self, sent: bool) {
        let mut progress = lock(&self.progress);
        progress.left -= 1;
        progress.failed |= !sent;
        let over = progress.left == 0;
        drop(progress);
        if over {
            self.ended.notify_all();
        }
    }
}
