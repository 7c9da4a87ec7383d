//! Further streams of the session, which carry payloads only. Each has two threads: one that receives into the memory it
//! is given, and one that sends.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::event::epoll;
use telecl_net::{Coming, FrameSender, Lasting, Line, Stream, StreamJobs};
use telecl_wire::handshake::Joined;
use telecl_wire::{DecodeError, MAX_STREAMS};
use tracing::debug;

use super::link::Link;
use super::staging::Chunk;
use super::start::guarded;

/// Shorter payloads follow their frames: they are there sooner than another thread is awake.
const LEAST: usize = 512 << 10;

/// How long the driver may take to use a stream that has joined, beside the time for which it may have lost it.
const UNHEARD: Duration = Duration::from_secs(10);

/// The streams of a session. They live as long as the process.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    sockets: [OnceLock<Line>; MAX_STREAMS],
    /// Readable when the driver has closed one of them.
    ends: OnceLock<OwnedFd>,
    incoming: StreamJobs<(Chunk, Sender<Chunk>)>,
    outgoing: StreamJobs<Chunk>,
}

impl Streams {
    /// What is readable when the driver has closed one of the streams that join from now on.
    pub(super) fn ends(&self) -> io::Result<&OwnedFd> {
        if let Some(ends) = self.ends.get() {
            return Ok(ends);
        }
        let ends = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(self.ends.get_or_init(|| ends))
    }

    /// Takes a connection that has joined the session. If that fails, the driver sees its end and goes on without.
    pub(crate) fn add(&self, link: &Arc<Link>, number: u64, stream: Stream) -> io::Result<()> {
        let number = usize::try_from(number).map_err(io::Error::other)?;
        let place = self.sockets.get(number).ok_or(io::ErrorKind::InvalidInput)?;
        if place.get().is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let joined = stream.try_clone()?;
        let line = match link.lasting() {
            Some(main) => Line::from(Lasting::at_worker(stream, number as u32, main.terms())),
            None => {
                epoll::add(self.ends()?, &stream, epoll::EventData::new_u64(0), epoll::EventFlags::RDHUP)?;
                Line::from(stream)
            }
        };
        let lasts = line.lasting().is_some();
        // Nobody else adds streams.
        let _ = place.set(line);
        start(link, "telecl-receive", move |link| {
            let streams = link.streams();
            streams.incoming.work(number, |job| streams.receive(link, number, job));
        })?;
        start(link, "telecl-send", move |link| {
            let streams = link.streams();
            if lasts && !streams.wait_for_driver(number) {
                return debug!(session = link.session(), stream = number, "the driver does not know of its stream");
            }
            if lasts {
                streams.outgoing.open(number);
            }
            streams.outgoing.work(number, |chunk| streams.send(link, number, &chunk));
        })?;
        self.incoming.open(number);
        FrameSender::new(joined).send(&Joined { stream: number as u32 }, &[])?;
        // Not before: what is sent now comes after these words. A driver that may have lost them is waited for.
        if !lasts {
            self.outgoing.open(number);
        }
        debug!(session = link.session(), stream = number, "stream joined");
        Ok(())
    }

    /// The line of a stream, if it outlasts its connection.
    pub(super) fn lasting(&self, number: usize) -> Option<&Arc<Lasting>> {
        self.sockets.get(number)?.get()?.lasting()
    }

    /// Those of all streams of which the driver knows.
    pub(super) fn all_lasting(&self) -> impl Iterator<Item = &Arc<Lasting>> {
        (0..MAX_STREAMS).filter_map(|number| self.lasting(number)).filter(|line| line.has_heard())
    }

    /// Waits until the driver has said something on the stream. Before that it may not know of it: the connection may have
    /// been lost while it joined, and nobody would resume it.
    fn wait_for_driver(&self, number: usize) -> bool {
        self.lasting(number).is_some_and(|line| line.wait_until_heard(line.terms().grace + UNHEARD))
    }

    /// A stream for a payload of `len` bytes, if it is worth that, and it `may`; waits until one has little to do.
    pub(super) fn for_payload(&self, len: usize, may: impl FnOnce() -> bool) -> Option<usize> {
        if len >= LEAST && self.outgoing.any() && may() { self.outgoing.wait_for_room() } else { None }
    }

    /// Sends a chunk on a stream, after those that were given to it before.
    pub(super) fn put(&self, stream: usize, chunk: Chunk) {
        // Streams stay open until the process ends.
        let _ = self.outgoing.put(stream, chunk);
    }

    /// Has a chunk filled with what comes next on the stream.
    pub(super) fn expect(&self, stream: usize, chunk: Chunk) -> Result<Coming<Chunk>, DecodeError> {
        let (ready, received) = mpsc::channel();
        // A driver names streams that have joined.
        self.incoming.put(stream, (chunk, ready)).map_err(|_| DecodeError::BadHeader)?;
        Ok(Coming { stream, received })
    }

    /// Receives the stream's next payload here, if nobody has begun to.
    pub(super) fn help(&self, link: &Link, stream: usize) -> bool {
        self.incoming.help(stream, |job| {
            self.receive(link, stream, job);
        })
    }

    fn receive(&self, link: &Link, number: usize, (mut chunk, ready): (Chunk, Sender<Chunk>)) -> bool {
        self.must(link, number, |stream| stream.receive_payload(chunk.bytes_mut()));
        // The executor waits for it, or has ended.
        ready.send(chunk).is_ok()
    }

    fn send(&self, link: &Link, number: usize, chunk: &Chunk) -> bool {
        self.must(link, number, |stream| stream.send_payload(chunk.bytes()));
        true
    }

    fn must(&self, link: &Link, number: usize, transfer: impl FnOnce(&Line) -> io::Result<()>) {
        let Some(stream) = self.sockets[number].get() else { return };
        if let Err(error) = transfer(stream) {
            link.stream_lost(&error);
        }
    }
}

fn start(link: &Arc<Link>, name: &'static str, body: impl FnOnce(&Link) + Send + 'static) -> io::Result<()> {
    let link = Arc::clone(link);
    let thread = thread::Builder::new().name(name.into()).stack_size(128 << 10);
    thread.spawn(move || guarded(&link, name, || body(&link))).map(drop)
}
