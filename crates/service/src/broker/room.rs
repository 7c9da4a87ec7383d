//! The waiting room: connections that have not said what they are.
//!
//! One thread watches all of them. None has a thread of its own before its first frame is here as a whole, or the first
//! record of a TLS handshake; what has come is only looked at and stays in the socket, so that whoever attends to the
//! connection reads it from the start. Connections that are attended to, and have still not introduced themselves, are
//! counted here too.
//!
//! There is always room for one more: the oldest of whoever has most leaves for it. Those who mean it introduce themselves
//! within a round trip, so whoever fills the room without a word drives out nobody but itself.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use telecl_net::Stream;
use telecl_wire::Header;
use tracing::{debug, warn};

use super::counters::Failure;
use super::greeting::LONGEST_HELLO;
use super::origin::{Origin, Paces};
use super::{Broker, session};

/// How many connections wait, and how many are attended to before they have introduced themselves; each of the latter costs a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seats {
    pub(crate) waiting: usize,
    pub(crate) attended: usize,
}

impl Seats {
    /// As many as we like to have, or a fitting share of the descriptors there are.
    pub(crate) fn for_descriptors(most: u64) -> Seats {
        let share = usize::try_from(most / 4).unwrap_or(usize::MAX);
        let waiting = share.clamp(32, 1024);
        Seats { waiting, attended: (waiting / 4).max(16) }
    }
}

/// How long to wait for the pace to allow more.
const TICK: Duration = Duration::from_millis(5);

/// The waiting room. Its lock is held for a few lines; sockets are shut down and looked at under it, none of which waits.
#[derive(Debug)]
pub(crate) struct Room {
    seats: Seats,
    watched: OwnedFd,
    /// Wakes the thread when somebody leaves who was attended to.
    bell: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// In the order of their arrival.
    waiting: BTreeMap<u64, Guest>,
    attended: BTreeMap<u64, Attended>,
    closed: bool,
}

#[derive(Debug)]
struct Guest {
    stream: Stream,
    peer: String,
    origin: Origin,
    arrived: Instant,
    /// Its first words are here.
    ready: bool,
}

#[derive(Debug)]
struct Attended {
    /// A handle on its socket, to end it.
    stream: Stream,
    origin: Origin,
}

/// A connection that is attended to and has not introduced itself. Drop it when it has.
#[derive(Debug)]
pub(crate) struct Stranger {
    broker: Arc<Broker>,
    number: u64,
    /// When it has to have introduced itself.
    deadline: Instant,
}

impl Stranger {
    pub(crate) fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// How long it may still take.
    pub(crate) fn patience(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let room = &self.broker.room;
        room.lock().attended.remove(&self.number);
        room.ring();
    }
}

/// What there is of a connection's first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    /// More is to come.
    Some,
    /// All of them, or something that is none of ours.
    All,
    /// The connection is closed.
    Closed,
}

impl Room {
    pub(crate) fn new(seats: Seats) -> io::Result<Room> {
        let watched = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&watched, &bell, epoll::EventData::new_u64(u64::MAX), epoll::EventFlags::IN)?;
        Ok(Room { seats, watched, bell, state: Mutex::default() })
    }

    /// How many are here, waiting or attended to.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.waiting.len() + state.attended.len()
    }

    /// A connection has come.
    pub(crate) fn enter(&self, broker: &Broker, stream: Stream, peer: String) {
        broker.counters.connections.fetch_add(1, Ordering::Relaxed);
        let origin = Origin::of(&stream, &peer);
        let mut state = self.lock();
        if state.closed {
            return;
        }
        if state.waiting.len() >= self.seats.waiting {
            state.send_away(broker);
        }
        let number = state.next;
        state.next += 1;
        // Edges: whoever sends one byte at a time wakes us once for each, and not as long as it is unread.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        match epoll::add(&self.watched, &stream, epoll::EventData::new_u64(number), flags) {
            Ok(()) => {
                let guest = Guest { stream, peer, origin, arrived: Instant::now(), ready: false };
                state.waiting.insert(number, guest);
            }
            Err(error) => {
                broker.counters.failed(Failure::Unable);
                warn!(peer, %error, "cannot watch a connection");
            }
        }
    }

    /// There are no descriptors left: the longest silent leaves.
    pub(crate) fn make_room(&self, broker: &Broker) {
        self.lock().send_away(broker);
    }

    /// Nobody comes in any more, and who is here leaves.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.clear();
        state.attended.values().for_each(|attended| attended.stream.shutdown());
        drop(state);
        self.ring();
    }

    fn ring(&self) {
        // Fails only where it has been rung before.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The oldest of whoever has most leaves. Those whose words are here only wait for us, and stay if they can.
    fn send_away(&mut self, broker: &Broker) {
        let silent =
            || self.waiting.iter().filter(|(_, guest)| !guest.ready).map(|(number, guest)| (*number, guest.origin));
        let all = || self.waiting.iter().map(|(number, guest)| (*number, guest.origin));
        let Some(number) = oldest_of_most(silent).or_else(|| oldest_of_most(all)) else { return };
        if let Some(guest) = self.waiting.remove(&number) {
            broker.counters.failed(Failure::Crowded);
            debug!(peer = guest.peer, waited = ?guest.arrived.elapsed(), "connection closed: others came who may have more to say");
        }
    }

    /// As [`State::send_away`], for one that is attended to.
    fn cut_off(&mut self, broker: &Broker) {
        let all = || self.attended.iter().map(|(number, attended)| (*number, attended.origin));
        if let Some(attended) = oldest_of_most(all).and_then(|number| self.attended.remove(&number)) {
            broker.counters.failed(Failure::Crowded);
            // Its thread notices.
            attended.stream.shutdown();
        }
    }

    /// Drops those who have not introduced themselves in time; when the next one is due.
    fn expire(&mut self, broker: &Broker, now: Instant) -> Option<Duration> {
        let patience = broker.settings.handshake_timeout;
        while let Some((_, first)) = self.waiting.first_key_value() {
            let waited = now.saturating_duration_since(first.arrived);
            if waited < patience {
                return Some(patience - waited);
            }
            if let Some((_, guest)) = self.waiting.pop_first() {
                broker.counters.failed(Failure::Silent);
                debug!(peer = guest.peer, "connection closed: it did not introduce itself in time");
            }
        }
        None
    }

    /// The first of those whose words are here and who may begin, by the pace.
    fn next_ready(&mut self, paces: &mut Paces, now: Instant) -> Option<(u64, Guest)> {
        let ready = self.waiting.iter().filter(|(_, guest)| guest.ready);
        let number =
            ready.map(|(number, guest)| (*number, guest.origin)).find(|(_, origin)| paces.begin(*origin, now))?.0;
        self.waiting.remove(&number).map(|guest| (number, guest))
    }
}

/// Of those from wherever most come from, the oldest.
fn oldest_of_most<I: Iterator<Item = (u64, Origin)>>(all: impl Fn() -> I) -> Option<u64> {
    let mut counts: HashMap<Origin, usize> = HashMap::new();
    all().for_each(|(_, origin)| *counts.entry(origin).or_default() += 1);
    let most = counts.values().copied().max()?;
    all().find(|(_, origin)| counts.get(origin) == Some(&most)).map(|(number, _)| number)
}

/// Starts the thread that watches the room.
pub(crate) fn start(broker: &Arc<Broker>) -> io::Result<()> {
    let broker = Arc::clone(broker);
    let thread = thread::Builder::new().name("telecl-room".into()).stack_size(256 << 10);
    thread.spawn(move || watch(&broker)).map(drop)
}

fn watch(broker: &Arc<Broker>) {
    let room = &broker.room;
    let mut paces = Paces::new(Instant::now());
    let mut events = Vec::with_capacity(256);
    loop {
        let Some(patience) = attend_to_ready(broker, &mut paces) else { return };
        let patience = patience.and_then(|left| Timespec::try_from(left).ok());
        events.clear();
        match epoll::wait(&room.watched, rustix::buffer::spare_capacity(&mut events), patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                warn!(%error, "cannot watch connections");
                thread::sleep(TICK);
            }
        }
        for event in &events {
            let number = event.data.u64();
            if number == u64::MAX {
                let _ = rustix::io::read(&room.bell, &mut [MaybeUninit::<u8>::uninit(); 8]);
            } else {
                look_at(broker, number);
            }
        }
    }
}

/// Something has come from a guest.
fn look_at(broker: &Broker, number: u64) {
    let mut state = broker.room.lock();
    let Some(guest) = state.waiting.get_mut(&number) else { return };
    match words(&guest.stream) {
        Words::Some => {}
        Words::All => guest.ready = true,
        Words::Closed => {
            let guest = state.waiting.remove(&number);
            drop(state);
            // Health checks and port scans do this all day.
            broker.counters.failed(Failure::Left);
            debug!(peer = guest.map(|guest| guest.peer), "connection closed without a word");
        }
    }
}

/// Gives those a thread whose words are here. How long there is nothing to do then; `None` if the room is closed.
fn attend_to_ready(broker: &Arc<Broker>, paces: &mut Paces) -> Option<Option<Duration>> {
    let room = &broker.room;
    loop {
        let now = Instant::now();
        let mut state = room.lock();
        if state.closed {
            return None;
        }
        let due = state.expire(broker, now);
        let Some((number, guest)) = state.next_ready(paces, now) else {
            let held_up = state.waiting.values().any(|guest| guest.ready);
            let tick = held_up.then_some(TICK);
            return Some(due.into_iter().chain(tick).min());
        };
        if state.attended.len() >= room.seats.attended {
            state.cut_off(broker);
        }
        let Guest { stream, peer, origin, arrived, .. } = guest;
        let handle = stream.try_clone();
        if let Ok(stream) = handle {
            state.attended.insert(number, Attended { stream, origin });
        }
        drop(state);
        // Those who attend to it wait in their own way.
        let _ = epoll::delete(&room.watched, &stream);
        let deadline = arrived + broker.settings.handshake_timeout;
        session::begin(Stranger { broker: Arc::clone(broker), number, deadline }, stream, peer);
    }
}

/// Whether the first frame is here, or the first record of TLS. Reads nothing.
fn words(stream: &Stream) -> Words {
    let mut head = [0; Header::LEN];
    let received = match rustix::net::recv(stream, &mut head[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, 0)) => return Words::Closed,
        Ok((_, received)) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Words::Some,
        Err(_) => return Words::Closed,
    };
    let Some(needed) = needed(&head[..received]) else { return Words::All };
    match rustix::io::ioctl_fionread(stream) {
        Ok(there) if there < needed as u64 => Words::Some,
        _ => Words::All,
    }
}

/// How many bytes the first words have, as far as their beginning tells; `None` if whoever reads them will find out that
/// they are none.
fn needed(head: &[u8]) -> Option<usize> {
    /// A TLS handshake record: its kind, two bytes of version, its length.
    const HANDSHAKE: u8 = 22;
    if let [HANDSHAKE, 3, rest @ ..] = head {
        let [_, high, low, ..] = rest else { return Some(5) };
        return Some(5 + usize::from(u16::from_be_bytes([*high, *low])).min(LONGEST_HELLO));
    }
    let Some(head) = head.first_chunk() else { return Some(Header::LEN) };
    let header = Header::parse(head).ok()?;
    (header.body_len() <= LONGEST_HELLO).then_some(Header::LEN + header.body_len())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::Ipv4Addr;
    use std::os::unix::net::UnixStream;

    use telecl_wire::handshake::{Inspect, MAGIC};
    use telecl_wire::request::Message;
    use zerocopy::IntoBytes;

    use super::*;

    fn place(last: u8) -> Origin {
        Origin::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    #[test]
    fn whoever_has_most_makes_room() {
        let guests = [(1, place(1)), (2, place(2)), (3, place(2)), (4, place(1)), (5, place(2))];
        assert_eq!(oldest_of_most(|| guests.into_iter()), Some(2));
        assert_eq!(oldest_of_most(|| guests[..2].iter().copied()), Some(1), "among equals the oldest");
        assert_eq!(oldest_of_most(|| guests[..0].iter().copied()), None);
    }

    #[test]
    fn words_are_complete_when_all_of_them_are_here() {
        let (mut peer, ours) = UnixStream::pair().unwrap();
        let ours = Stream::from_fd(ours.into());
        assert_eq!(words(&ours), Words::Some);
        let body = telecl_wire::encode(&Inspect {
            magic: MAGIC,
            protocol: telecl_wire::PROTOCOL_VERSION,
            credential: telecl_wire::handshake::Credential::NONE,
        });
        let frame = [Header::new(Inspect::OPCODE, body.len(), 0).as_bytes(), &body].concat();
        for byte in &frame[..frame.len() - 1] {
            peer.write_all(&[*byte]).unwrap();
            assert_eq!(words(&ours), Words::Some);
        }
        peer.write_all(&frame[frame.len() - 1..]).unwrap();
        assert_eq!(words(&ours), Words::All);
        let (peer, ours) = UnixStream::pair().unwrap();
        drop(peer);
        assert_eq!(words(&Stream::from_fd(ours.into())), Words::Closed);
    }

    #[test]
    fn what_is_none_of_ours_does_not_wait() {
        assert_eq!(needed(b"GET / HTTP/1.1\r\n"), None);
        assert_eq!(needed(b"G"), Some(Header::LEN));
        assert_eq!(needed(&[22, 3, 1, 2, 0, 1]), Some(5 + 512));
        assert_eq!(needed(&[22, 3]), Some(5));
        let long = Header::new(1, LONGEST_HELLO + 1, 0);
        assert_eq!(needed(long.as_bytes()), None);
    }

    #[test]
    fn few_descriptors_make_few_seats() {
        assert_eq!(Seats::for_descriptors(1 << 20), Seats { waiting: 1024, attended: 256 });
        assert_eq!(Seats::for_descriptors(1024), Seats { waiting: 256, attended: 64 });
        assert!(Seats::for_descriptors(0).waiting > 0);
    }
}
