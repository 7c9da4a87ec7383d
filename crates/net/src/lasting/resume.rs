//! How a broken line becomes whole.
//!
//! The driver connects anew and says [`Resume`]; the broker passes the connection on to the worker, which answers
//! [`Resumed`]. Both then send what the other has not got.

use std::io;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use telecl_wire::handshake::{Handshake, MAGIC, NotResumed, Resume, Resumed};
use telecl_wire::request::Message;
use telecl_wire::{DecodeError, Header, PROTOCOL_VERSION, encode};
use zerocopy::IntoBytes;

use super::{Cause, Home, Lasting, Phase, Side, Transport, lock};
use crate::link::read_answer;
use crate::{ReceiveError, Stream};

/// How long the first attempt may take, and the longest.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(10);

/// The pause after the first attempt that failed, and the longest.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why an attempt failed.
enum Failed {
    /// Another may not.
    Now(String),
    /// All will.
    ForEver(String),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed::Now(error.to_string())
    }
}

impl Lasting {
    /// Sees to it that there is another transport, if that is this side's to do.
    pub(super) fn seek_another(&self) {
        let Side::Driver(home) = &self.side else { return };
        let Some(line) = self.myself.upgrade() else { return };
        let at_home = Arc::clone(home);
        let spawned = home.spawn(Box::new(move || line.seek(&*at_home)));
        if let Err(error) = spawned {
            self.over(io::ErrorKind::NotConnected, &format!("no thread to connect anew: {error}"));
        }
    }

    fn seek(&self, home: &dyn Home) {
        let Some(deadline) = self.broken_since().map(|since| since + self.terms.grace) else { return };
        let (mut pause, mut patience) = (PAUSE, FIRST);
        let mut last = "the service cannot be reached".to_owned();
        while Instant::now() < deadline {
            match self.attempt(home, deadline.min(Instant::now() + patience)) {
                Ok(()) => return self.send_what_is_missing(),
                Err(Failed::ForEver(reason)) => return self.over(io::ErrorKind::NotConnected, &reason),
                Err(Failed::Now(reason)) => last = reason,
            }
            if !self.rest(pause.min(deadline.saturating_duration_since(Instant::now()))) {
                return;
            }
            (pause, patience) = ((pause * 2).min(LONGEST_PAUSE), (patience * 2).min(LONGEST));
        }
        let reason = format!("the connection was lost, and could not be resumed within {:?}: {last}", self.terms.grace);
        self.over(io::ErrorKind::TimedOut, &reason);
    }

    fn broken_since(&self) -> Option<Instant> {
        match self.lock_state().phase {
            Phase::Broken { since, .. } => Some(since),
            Phase::Whole | Phase::Over { .. } => None,
        }
    }

    /// Waits a while; `false` if the line is not broken any more.
    fn rest(&self, pause: Duration) -> bool {
        let state = self.lock_state();
        let broken = |state: &mut super::State| matches!(state.phase, Phase::Broken { .. });
        let waited = self.changed.wait_timeout_while(state, pause, broken);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        broken(&mut state)
    }

    fn attempt(&self, home: &dyn Home, deadline: Instant) -> Result<(), Failed> {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let stream = home.connect(deadline)?;
        let (session, secret) = home.ticket();
        // Whoever received has noticed by now: nothing comes from the old connection any more.
        let received = self.stop_receiving();
        stream.set_receive_timeout(Some(left(deadline)))?;
        stream.set_send_timeout(Some(left(deadline)))?;
        let words = Resume { magic: MAGIC, protocol: PROTOCOL_VERSION, session, secret, stream: self.number, received };
        send_message(&stream, &words)?;
        let peer_has = read_received(&stream)?;
        stream.set_receive_timeout(None)?;
        stream.set_send_timeout(None)?;
        self.install(stream, peer_has)
            .map_err(|_| Failed::ForEver("the service has forgotten what it had received".to_owned()))
    }

    /// The worker's side: goes on with this connection, whose driver has received so much. Returns when the driver has been
    /// told; what it misses is sent by a thread of its own.
    pub fn resume(self: &Arc<Self>, stream: Stream, peer_has: u64) -> io::Result<()> {
        let _turn = lock(&self.resuming);
        // The driver may have noticed before us.
        let old = self.transport();
        self.part_with(&old, Cause::Lost, &io::ErrorKind::ConnectionReset.into());
        let received = self.stop_receiving();
        if !self.can_be(peer_has) {
            // The words of an earlier attempt, that were on their way for long.
            answer_not_resumed(&stream, "the connection has been resumed since", true);
            return Err(io::Error::other("a driver that has received less than it once had"));
        }
        stream.set_send_timeout(Some(FIRST))?;
        send_message(&stream, &Resumed { received })?;
        stream.set_send_timeout(None)?;
        self.install(stream, peer_has)?;
        let line = Arc::clone(self);
        let thread = thread::Builder::new().name("telecl-resume".into()).stack_size(128 << 10);
        thread.spawn(move || line.send_what_is_missing()).map(drop)
    }

    /// Waits until nobody receives from the old connection, and returns what came there.
    fn stop_receiving(&self) -> u64 {
        let mut inbound = lock(&self.inbound);
        inbound.give_up();
        self.received.load(Ordering::Acquire)
    }

    fn can_be(&self, peer_has: u64) -> bool {
        (self.acknowledged()..=self.sent.load(Ordering::Acquire)).contains(&peer_has)
    }

    fn install(&self, stream: Stream, peer_has: u64) -> io::Result<()> {
        if !self.can_be(peer_has) {
            return Err(super::broken("the peer has received what nobody has sent"));
        }
        self.acknowledged.fetch_max(peer_has, Ordering::AcqRel);
        let transport = Transport::new(stream, self.transport_number() + 1, &self.side);
        // Held until all know of the transport: whoever finds it broken says so, and must be believed.
        let mut inbound = lock(&self.inbound);
        let mut state = self.lock_state();
        if !matches!(state.phase, Phase::Broken { .. }) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.transport_number.store(transport.number, Ordering::Release);
        state.transport = Arc::clone(&transport);
        (state.phase, state.peer_has) = (Phase::Whole, peer_has);
        drop(state);
        inbound.replace(Arc::clone(&transport));
        drop(inbound);
        self.heard.fetch_add(1, Ordering::Relaxed);
        if let Some(bell) = self.bell() {
            bell.attach(&transport);
        }
        self.tell_all();
        Ok(())
    }

    /// Unless somebody who sends does so.
    fn send_what_is_missing(&self) {
        // An error ends the line, which everybody notices.
        let _ = lock(&self.outbound).catch_up(self);
    }
}

fn send_message<'a, M: Message<'a>>(stream: &Stream, message: &M) -> io::Result<()> {
    let body = encode(message);
    stream.send_payload(&[Header::new(M::OPCODE, body.len(), 0).as_bytes(), &body].concat())
}

/// Says on a connection which was to resume a session that it does not, and whether it may later.
pub fn answer_not_resumed(stream: &Stream, reason: &str, again: bool) {
    let _ = stream.set_send_timeout(Some(FIRST));
    // One that does not arrive changes nothing.
    let _ = send_message(stream, &NotResumed { reason, again });
}

/// What the worker has received. What follows the answer are records.
fn read_received(stream: &Stream) -> Result<u64, Failed> {
    let now = |error: ReceiveError| Failed::Now(error.to_string());
    let (opcode, body) = read_answer(stream).map_err(now)?;
    match Handshake::decode(opcode, &body).map_err(|error| now(error.into()))? {
        Handshake::Resumed(resumed) => Ok(resumed.received),
        Handshake::NotResumed(refused) if refused.again => Err(Failed::Now(refused.reason.to_owned())),
        Handshake::NotResumed(refused) => Err(Failed::ForEver(refused.reason.to_owned())),
        // A crowded service, for one.
        Handshake::Refused(refused) => Err(Failed::Now(refused.reason.to_owned())),
        _ => Err(now(DecodeError::BadValue.into())),
    }
}
