//! Waking a thread that waits for a link on behalf of others.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::Stream;

/// Rings when something arrives, unless it is muted. The thread that waits at it can be kept asleep by another that
/// takes what arrives itself: that spares a wake-up and a fight for the link.
#[derive(Debug)]
pub struct Bell {
    epoll: OwnedFd,
    stream: Stream,
    /// Rings without the link; made when it is first needed.
    hand: OnceLock<OwnedFd>,
}

impl Bell {
    /// A bell for `stream` that rings.
    pub fn new(stream: Stream) -> io::Result<Bell> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &stream, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Bell { epoll, stream, hand: OnceLock::new() })
    }

    /// Its own handle on the connection.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Waits until there is something to receive, or the connection has ended.
    pub fn wait(&self) -> io::Result<()> {
        let mut ring = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        loop {
            match epoll::wait(&self.epoll, &mut ring, None) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(hand) = self.hand.get() {
            // Empty if it was the link that rang.
            let _ = rustix::io::read(hand, &mut [0; 8]);
        }
        Ok(())
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
        self.listen_for(epoll::EventFlags::empty());
    }

    /// Rings again: at once, if something has arrived meanwhile.
    pub fn unmute(&self) {
        self.listen_for(epoll::EventFlags::IN);
    }

    fn listen_for(&self, flags: epoll::EventFlags) {
        // Fails for want of memory only, and not where an entry is changed.
        let _ = epoll::modify(&self.epoll, &self.stream, epoll::EventData::new_u64(0), flags);
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
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bell_rung_by_hand_rings_once() {
        let (_peer, ours) = UnixStream::pair().unwrap();
        let bell = Arc::new(Bell::new(Stream::from_fd(ours.into())).unwrap());
        bell.mute();
        for _ in 0..2 {
            bell.ring_by_hand().unwrap();
            bell.wait().unwrap();
        }
        let (rang, heard) = mpsc::channel();
        let waiting = Arc::clone(&bell);
        thread::spawn(move || {
            waiting.wait().unwrap();
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
            waiting.wait().unwrap();
            rang.send(()).unwrap();
        });
        peer.write_all(b"x").unwrap();
        assert!(heard.recv_timeout(Duration::from_millis(50)).is_err());
        bell.unmute();
        heard.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}
