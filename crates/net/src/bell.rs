//! Waking a thread that waits for a link on behalf of others.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use crate::{Stream, Transport};

/// Rings when something arrives, unless it is muted. The thread that waits at it can be kept asleep by another that
/// takes what arrives itself: that spares a wake-up and a fight for the link.
#[derive(Debug)]
pub struct Bell {
    epoll: OwnedFd,
    ear: Mutex<Ear>,
    /// Rings without the link; made when it is first needed.
    hand: OnceLock<OwnedFd>,
}

#[derive(Debug)]
struct Ear {
    at: At,
    muted: bool,
}

/// Where a bell listens.
#[derive(Debug)]
enum At {
    Nothing,
    Stream(Stream),
    /// The connection that a lasting line has.
    Transport(Arc<Transport>),
}

impl At {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            At::Nothing => None,
            At::Stream(stream) => Some(stream.as_fd()),
            At::Transport(transport) => Some(transport.as_fd()),
        }
    }
}

impl Bell {
    /// A bell for `stream` that rings.
    pub fn new(stream: Stream) -> io::Result<Bell> {
        let bell = Bell::unattached()?;
        epoll::add(&bell.epoll, &stream, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        bell.lock().at = At::Stream(stream);
        Ok(bell)
    }

    /// One that listens nowhere yet.
    pub(crate) fn unattached() -> io::Result<Bell> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Bell { epoll, ear: Mutex::new(Ear { at: At::Nothing, muted: false }), hand: OnceLock::new() })
    }

    /// Listens at this connection from now on.
    pub(crate) fn attach(&self, transport: &Arc<Transport>) {
        self.detach();
        let mut ear = self.lock();
        let flags = if ear.muted { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        if epoll::add(&self.epoll, transport, epoll::EventData::new_u64(0), flags).is_err() {
            // For want of memory. Whoever wakes up looks for itself.
            let _ = self.ring_by_hand();
        }
        ear.at = At::Transport(Arc::clone(transport));
    }

    /// Listens nowhere: a connection that has ended would ring without end.
    pub(crate) fn detach(&self) {
        let at = std::mem::replace(&mut self.lock().at, At::Nothing);
        if let Some(socket) = at.socket() {
            let _ = epoll::delete(&self.epoll, socket);
        }
    }

    /// The connection, if it cannot be replaced by another.
    pub fn with_stream(&self, then: impl FnOnce(&Stream)) {
        if let At::Stream(stream) = &self.lock().at {
            then(stream);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ear> {
        self.ear.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to receive, or the connection has ended, but no longer than `limit`; whether it rang.
    pub fn wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut ring = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        let rang = loop {
            match epoll::wait(&self.epoll, &mut ring, limit.as_ref()) {
                Ok(count) => break count > 0,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        if let Some(hand) = self.hand.get() {
            // Empty if it was the link that rang.
            let _ = rustix::io::read(hand, &mut [0; 8]);
        }
        Ok(rang)
    }

    /// Rings once, muted or not, whatever the link does.
    pub fn ring_by_hand(&self) -> io::Result<()> {
        let hand = match self.hand.get() {
            Some(hand) => hand,
            None => {
                let hand = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                epoll::add(&self.epoll, &hand, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
                // If another was faster, it is his that rings.
                self.hand.get_or_init(|| hand)
            }
        };
        // Full means that it rings already.
        let _ = rustix::io::write(hand, &1u64.to_ne_bytes());
        Ok(())
    }

    /// Does not ring until [`Bell::unmute`], but for the end of the connection.
    pub fn mute(&self) {
        self.listen_for(epoll::EventFlags::empty(), true);
    }

    /// Rings again: at once, if something has arrived meanwhile.
    pub fn unmute(&self) {
        self.listen_for(epoll::EventFlags::IN, false);
    }

    fn listen_for(&self, flags: epoll::EventFlags, muted: bool) {
        let mut ear = self.lock();
        ear.muted = muted;
        if let Some(socket) = ear.at.socket() {
            // Fails for want of memory only, and not where an entry is changed.
            let _ = epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(0), flags);
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_bell_rung_by_hand_rings_once() {
        let (_peer, ours) = UnixStream::pair().unwrap();
        let bell = Arc::new(Bell::new(Stream::from_fd(ours.into())).unwrap());
        bell.mute();
        for _ in 0..2 {
            bell.ring_by_hand().unwrap();
            bell.wait(None).unwrap();
        }
        let (rang, heard) = mpsc::channel();
        let waiting = Arc::clone(&bell);
        thread::spawn(move || {
            waiting.wait(None).unwrap();
            rang.send(()).unwrap();
        });
        assert!(heard.recv_timeout(Duration::from_millis(50)).is_err());
        bell.ring_by_hand().unwrap();
        heard.recv_timeout(Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn a_muted_bell_rings_when_it_is_unmuted() {
        let (mut peer, ours) = UnixStream::pair().unwrap();
        let bell = Arc::new(Bell::new(Stream::from_fd(ours.into())).unwrap());
        bell.mute();
        let (rang, heard) = mpsc::channel();
        let waiting = Arc::clone(&bell);
        thread::spawn(move || {
            waiting.wait(None).unwrap();
            rang.send(()).unwrap();
        });
        peer.write_all(b"x").unwrap();
        assert!(heard.recv_timeout(Duration::from_millis(50)).is_err());
        bell.unmute();
        heard.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}
