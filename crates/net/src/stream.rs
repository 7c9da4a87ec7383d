//! Connected sockets, TCP and Unix alike.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::Address;
use crate::record::{Crypt, OVERHEAD, Opened, Opener, Sealer};
use crate::tls::{Dialer, Facts, HANDSHAKE, TlsError};

/// A connected socket, encrypted or not. Clones share the encryption.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    crypt: Option<Arc<Crypt>>,
    /// What the handshake has found out.
    facts: Option<Arc<Facts>>,
}

/// How to connect once more to where a connection led, encrypted if that was. Not by a name, which may stand for another
/// service by now.
#[derive(Clone, Debug)]
pub struct Redial {
    peer: SocketAddr,
    facts: Option<Arc<Facts>>,
}

impl Redial {
    pub fn connect(&self, deadline: Instant) -> io::Result<Stream> {
        let stream = connect_any([self.peer].into_iter(), deadline)?;
        match &self.facts {
            Some(facts) => facts.dial_again(stream, deadline).map_err(io::Error::other),
            None => Ok(stream),
        }
    }
}

/// Why a service could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot resolve {address}: {cause}")]
    Resolve { address: Address, cause: io::Error },
    #[error("cannot reach {address}: {cause}")]
    Unreachable { address: Address, cause: io::Error },
    /// Its messages say what to do.
    #[error("cannot talk to {address} over TLS: {cause}")]
    Tls { address: Address, cause: TlsError },
    #[error(
        "{address} asks for a connection without encryption, to another machine: everybody on the way could read and \
         change what passes. Write tls:// instead, or, where you trust the network, set insecure = true"
    )]
    Plain { address: Address },
}

impl Stream {
    /// Connects without credentials; see [`Dialer::connect`].
    pub fn connect(address: &Address, deadline: Instant) -> Result<Stream, ConnectError> {
        Dialer::default().connect(address, deadline)
    }

    /// Another connection to whomever this one leads to, encrypted if this one is.
    pub fn connect_again(&self, deadline: Instant) -> io::Result<Stream> {
        self.redial()?.connect(deadline)
    }

    /// How to connect to the same peer again; known only as long as the connection lasts.
    pub fn redial(&self) -> io::Result<Redial> {
        Ok(Redial { peer: self.peer()?, facts: self.facts.clone() })
    }

    /// Where the peer is, over TCP.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        let peer = net::getpeername(&self.fd)?.ok_or(io::ErrorKind::NotConnected)?;
        Ok(SocketAddr::try_from(peer)?)
    }

    /// Whether it never leaves this machine's loopback, where the peer sees us at `seen_at`: nobody stands between, who may
    /// be cut off from one of us.
    pub fn is_within_loopback(&self, seen_at: &str) -> bool {
        let Ok(here) = net::getsockname(&self.fd).and_then(SocketAddr::try_from) else { return false };
        let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        let same = seen_at.parse().is_ok_and(|there| canonical(there) == canonical(here));
        same && here.ip().to_canonical().is_loopback()
    }

    /// Takes over a connected socket, for example one inherited from a parent process.
    pub fn from_fd(fd: OwnedFd) -> Stream {
        Stream { fd, crypt: None, facts: None }
    }

    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// The same socket, of which everything from now on is encrypted.
    pub(crate) fn encrypted(self, crypt: Crypt, facts: Facts) -> Stream {
        Stream { fd: self.fd, crypt: Some(Arc::new(crypt)), facts: Some(Arc::new(facts)) }
    }

    /// What another process needs besides the socket to go on with it: nothing if it is not encrypted. Whoever has given it
    /// away sends and receives no more.
    pub fn encryption(&self) -> io::Result<Vec<u8>> {
        let unfinished = || io::Error::new(io::ErrorKind::InvalidData, "a record is under way");
        self.crypt.as_ref().map_or(Ok(Vec::new()), |crypt| crypt.state().ok_or_else(unfinished))
    }

    /// Takes over a socket with what [`Stream::encryption`] gave.
    pub fn with_encryption(fd: OwnedFd, state: &[u8]) -> io::Result<Stream> {
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "unknown encryption");
        let crypt = if state.is_empty() { None } else { Some(Arc::new(Crypt::of_state(state).ok_or_else(unknown)?)) };
        Ok(Stream { fd, crypt, facts: None })
    }

    pub fn is_encrypted(&self) -> bool {
        self.crypt.is_some()
    }

    /// What both ends of this encrypted connection know, and nobody else does; zeros if it is not encrypted. A proof that
    /// has it in it is worth nothing on another connection.
    pub fn binding(&self) -> [u8; 32] {
        self.facts.as_ref().map_or([0; 32], |facts| facts.binding)
    }

    /// Whether the driver has checked who the service is. If not, something else must, before anything is entrusted to it.
    pub fn is_verified(&self) -> bool {
        self.facts.as_ref().is_none_or(|facts| facts.verified)
    }

    /// Another handle on the same socket.
    pub fn try_clone(&self) -> io::Result<Stream> {
        Ok(Stream { fd: self.fd.try_clone()?, crypt: self.crypt.clone(), facts: self.facts.clone() })
    }

    /// Limits how long a receive may wait; `None` is for ever.
    pub fn set_receive_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.fd, Timeout::Recv, timeout)?)
    }

    /// Limits how long a send may wait; `None` is for ever.
    pub fn set_send_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.fd, Timeout::Send, timeout)?)
    }

    /// What was set with [`Stream::set_send_timeout`].
    pub(crate) fn send_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_timeout(&self.fd, Timeout::Send)?)
    }

    /// Receives what there is, waiting for it; 0 at the end of the stream.
    pub(crate) fn receive(&self, target: &mut [u8]) -> io::Result<usize> {
        match &self.crypt {
            Some(crypt) => self.open(&mut crypt.opener(), target, Fetch::Some).map(Option::unwrap_or_default),
            None => receive_some(&self.fd, target, RecvFlags::empty()),
        }
    }

    /// Fills `target`, waiting for all of it; less at the end of the stream.
    pub(crate) fn receive_all(&self, target: &mut [u8]) -> io::Result<usize> {
        let mut opener = self.crypt.as_ref().map(|crypt| crypt.opener());
        let mut filled = 0;
        while filled < target.len() {
            let rest = &mut target[filled..];
            let n = match &mut opener {
                Some(opener) => self.open(opener, rest, Fetch::All)?.unwrap_or_default(),
                None => receive_some(&self.fd, rest, RecvFlags::WAITALL)?,
            };
            if n == 0 {
                break;
            }
            filled += n;
        }
        Ok(filled)
    }

    /// Fills `target` until `deadline`, and takes nothing from the socket that comes after what `target` holds, but for the
    /// rest of an encrypted record; less at the end of the stream.
    pub fn receive_until(&self, target: &mut [u8], deadline: Instant) -> io::Result<usize> {
        let mut filled = 0;
        while filled < target.len() {
            let rest = &mut target[filled..];
            let n = match &self.crypt {
                Some(crypt) => self.open(&mut crypt.opener(), rest, Fetch::Until(deadline))?.unwrap_or_default(),
                None => {
                    wait_readable(&self.fd, deadline)?;
                    receive_some(&self.fd, rest, RecvFlags::empty())?
                }
            };
            if n == 0 {
                break;
            }
            filled += n;
        }
        Ok(filled)
    }

    /// Whether the peer begins with a TLS handshake; waits for its first byte, and does not take it. `None` if it closes the
    /// connection instead.
    pub fn begins_handshake(&self, deadline: Instant) -> io::Result<Option<bool>> {
        wait_readable(&self.fd, deadline)?;
        let mut first = [0];
        let peeked = receive_some(&self.fd, &mut first, RecvFlags::PEEK)?;
        Ok((peeked > 0).then_some(first == [HANDSHAKE]))
    }

    /// Whether something was received that nobody has taken: nothing that waits for the socket would notice.
    pub fn has_received(&self) -> bool {
        self.crypt.as_ref().is_some_and(|crypt| crypt.opener().has_some())
    }

    /// Gives back what was just taken from an encrypted connection by [`Stream::receive_until`]: it comes next.
    pub fn put_back(&self, bytes: &[u8]) -> io::Result<()> {
        let taken = self.crypt.as_ref().and_then(|crypt| crypt.opener().put_back(bytes));
        taken.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Takes what [`Stream::has_received`] found, without a system call; `None` if that is nothing.
    pub(crate) fn take_received(&self, target: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(crypt) = &self.crypt else { return Ok(None) };
        match crypt.opener().take(target)? {
            Opened::Bytes(n) => Ok(Some(n)),
            Opened::End => Ok(Some(0)),
            Opened::Needs(_) => Ok(None),
        }
    }

    /// Receives records until there is something for `target`; 0 at the end, `None` if there is nothing and that is not
    /// waited for.
    fn open(&self, opener: &mut Opener, target: &mut [u8], fetch: Fetch) -> io::Result<Option<usize>> {
        loop {
            if fetch == Fetch::All
                && let Some(n) = opener.open_directly(target, |places| self.receive_into(places))?
            {
                return Ok(Some(n));
            }
            let missing = match opener.take(target)? {
                Opened::Bytes(n) => return Ok(Some(n)),
                Opened::End => return Ok(Some(0)),
                Opened::Needs(missing) => missing,
            };
            let (waiting, appetite) = (opener.waiting(), opener.appetite().max(missing));
            let room = opener.room(missing);
            let (most, flags) = match fetch {
                Fetch::Some => (appetite, RecvFlags::empty()),
                Fetch::Now => (appetite, RecvFlags::DONTWAIT),
                // Records of so much plaintext are not shorter than this, so all of it will come.
                Fetch::All => ((target.len() + OVERHEAD).saturating_sub(waiting).max(missing), RecvFlags::WAITALL),
                Fetch::Until(deadline) => {
                    wait_readable(&self.fd, deadline)?;
                    (missing, RecvFlags::empty())
                }
            };
            let most = most.min(room.len());
            match receive_some(&self.fd, &mut room[..most], flags) {
                // Without the word that nothing follows; the frames say whether something is missing.
                Ok(0) => return Ok(Some(0)),
                Ok(n) => {
                    if matches!(fetch, Fetch::Some | Fetch::Now) {
                        opener.fed(n);
                    }
                    opener.received(n);
                }
                Err(error) if fetch == Fetch::Now && error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Fills all places, waiting for it; less at the end of the stream, or if something comes between.
    ///
    /// Looks for a while before it sleeps: the sender, who seals, is the slower of the two, and would have to wake us with
    /// every packet.
    fn receive_into(&self, places: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let wanted = places.iter().map(|place| place.len() as u64).sum();
        let begin = Instant::now();
        while rustix::io::ioctl_fionread(&self.fd).is_ok_and(|there| there < wanted) && begin.elapsed() < SOON {
            // Whoever needs the processor has it.
            thread::yield_now();
        }
        loop {
            match net::recvmsg(&self.fd, places, &mut RecvAncillaryBuffer::default(), RecvFlags::WAITALL) {
                Ok(received) => return Ok(received.bytes),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends bytes that are no frame.
    pub fn send_payload(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_all(bytes, &[])
    }

    /// Receives bytes that are no frame; an error if the connection ends before all of them have come.
    pub fn receive_payload(&self, target: &mut [u8]) -> io::Result<()> {
        if self.receive_all(target)? == target.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Receives what there is; `None` if that is nothing.
    pub(crate) fn try_receive(&self, target: &mut [u8]) -> io::Result<Option<usize>> {
        if let Some(crypt) = &self.crypt {
            return self.open(&mut crypt.opener(), target, Fetch::Now);
        }
        match receive_some(&self.fd, target, RecvFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        }
    }

    /// Sends one after the other, waiting until all has been taken.
    pub(crate) fn send_all(&self, mut first: &[u8], mut second: &[u8]) -> io::Result<()> {
        if let Some(crypt) = &self.crypt {
            let mut sealer = crypt.sealer();
            self.send_sealed(&mut sealer)?;
            while !first.is_empty() || !second.is_empty() {
                sealer.seal(&mut first, &mut second)?;
                self.send_sealed(&mut sealer)?;
            }
            return Ok(());
        }
        while !first.is_empty() || !second.is_empty() {
            let sent = self.send_some(&mut first, &mut second, SendFlags::empty())?;
            if sent == Some(0) {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Sends what was sealed, waiting until all has been taken.
    fn send_sealed(&self, sealer: &mut Sealer) -> io::Result<()> {
        while !sealer.is_clear() {
            match self.send_some(&mut sealer.unsent(), &mut &[][..], SendFlags::empty())? {
                Some(0) | None => return Err(io::ErrorKind::WriteZero.into()),
                Some(sent) => sealer.advance(sent),
            }
        }
        Ok(())
    }

    /// As [`Stream::send_all`]; tells `full` when the system has no more room: what it has taken so far, what is left, and
    /// what it has room for in all.
    pub(crate) fn send_watched(
        &self,
        mut first: &[u8],
        mut second: &[u8],
        full: &mut dyn FnMut(usize, usize, usize),
    ) -> io::Result<()> {
        let mut taken = 0;
        while !(first.is_empty() && second.is_empty()) {
            match self.try_send(&mut first, &mut second)? {
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                Some(sent) => taken += sent,
                None => {
                    full(taken, first.len() + second.len(), self.send_buffer());
                    return self.send_all(first, second);
                }
            }
        }
        Ok(())
    }

    /// Sends what there is room for, and shortens the two by it; `None` if that is nothing. Of an encrypted connection,
    /// whole records: where the system takes a part of one, the rest is to follow, and the last is waited for.
    pub(crate) fn try_send(&self, first: &mut &[u8], second: &mut &[u8]) -> io::Result<Option<usize>> {
        let Some(crypt) = &self.crypt else { return self.send_some(first, second, SendFlags::DONTWAIT) };
        let mut sealer = crypt.sealer();
        while !sealer.is_clear() {
            match self.send_some(&mut sealer.unsent(), &mut &[][..], SendFlags::DONTWAIT)? {
                None => return Ok(None),
                Some(sent) => sealer.advance(sent),
            }
        }
        let sealed = sealer.seal(first, second)?;
        if let Some(sent) = self.send_some(&mut sealer.unsent(), &mut &[][..], SendFlags::DONTWAIT)? {
            sealer.advance(sent);
        }
        if first.is_empty() && second.is_empty() {
            self.send_sealed(&mut sealer)?;
        }
        Ok(Some(sealed))
    }

    fn send_some(&self, first: &mut &[u8], second: &mut &[u8], flags: SendFlags) -> io::Result<Option<usize>> {
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        let control = &mut SendAncillaryBuffer::default();
        let sent = loop {
            match net::sendmsg(&self.fd, &parts, control, SendFlags::NOSIGNAL | flags) {
                Ok(sent) => break sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if flags == SendFlags::DONTWAIT => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        let from_first = sent.min(first.len());
        *first = &first[from_first..];
        *second = &second[sent - from_first..];
        Ok(Some(sent))
    }

    /// How many bytes the system keeps for the peer until it has taken them; roughly, and it may change.
    pub(crate) fn send_buffer(&self) -> usize {
        sockopt::socket_send_buffer_size(&self.fd).unwrap_or(0)
    }

    /// Sends a byte that wakes the peer. One that does not fit is not needed: others are on their way.
    pub(crate) fn ring(&self) -> io::Result<()> {
        match rustix::net::send(&self.fd, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends `bytes`, which must be few, and a descriptor with them.
    pub(crate) fn send_descriptor(&self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let descriptors = [descriptor];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        match rustix::net::sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)? {
            sent if sent == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Receives bytes, and a descriptor if there is one with them.
    pub(crate) fn receive_descriptor(&self, target: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            match rustix::net::recvmsg(&self.fd, &mut [IoSliceMut::new(&mut *target)], &mut control, flags) {
                Err(Errno::INTR) => {}
                received => break received?,
            }
        };
        // More descriptors than there is space for are closed by the system.
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        Ok((received.bytes, descriptor))
    }

    /// Whether descriptors can be sent with bytes.
    pub fn is_unix(&self) -> bool {
        sockopt::socket_domain(&self.fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
    }

    /// Whether the peer's address is one that only this machine has; a Unix socket counts too.
    pub fn is_loopback(&self) -> bool {
        let peer = net::getpeername(&self.fd).ok().flatten().and_then(|any| SocketAddr::try_from(any).ok());
        peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// Whether both ends are on one machine, as far as their addresses tell.
    pub(crate) fn is_local(&self) -> bool {
        let ours = net::getsockname(&self.fd).ok().and_then(|any| SocketAddr::try_from(any).ok());
        let peer = net::getpeername(&self.fd).ok().flatten().and_then(|any| SocketAddr::try_from(any).ok());
        // A Unix socket has other addresses, or none.
        let (Some(ours), Some(peer)) = (ours, peer) else { return true };
        let peer = peer.ip().to_canonical();
        peer.is_loopback() || peer == ours.ip().to_canonical()
    }

    /// Whether the peer has closed the connection. Does not wait.
    pub fn is_closed(&self) -> bool {
        let mut polled = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Whether something can be received without waiting, be it the end.
    pub(crate) fn has_something(&self) -> bool {
        self.polled(PollFlags::IN).contains(PollFlags::IN)
    }

    /// Whether the connection has ended by an error, and not in order.
    pub(crate) fn was_reset(&self) -> bool {
        self.polled(PollFlags::empty()).contains(PollFlags::ERR)
    }

    /// Waits until something can be received, be it the end, but no longer than `limit`.
    pub(crate) fn wait_for_something(&self, limit: Duration) {
        let limit = Timespec::try_from(limit).unwrap_or_default();
        let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&limit));
    }

    fn polled(&self, flags: PollFlags) -> PollFlags {
        let mut polled = [PollFd::new(&self.fd, flags)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).map_or(PollFlags::empty(), |_| polled[0].revents())
    }

    /// Ends the connection in both directions; a thread that waits for it wakes up.
    pub fn shutdown(&self) {
        // Fails only where the peer was faster.
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How an encrypted connection is received from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fetch {
    /// As much as there is, and something at least.
    Some,
    /// What there is, be it nothing.
    Now,
    /// Everything that is wanted, with as few system calls as possible.
    All,
    /// No more than a record, and not after this.
    Until(Instant),
}

/// How long the next records of a large payload may take to come; as many are sealed in half of that.
const SOON: Duration = Duration::from_micros(60);

fn receive_some(fd: &OwnedFd, target: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    loop {
        match net::recv(fd, &mut *target, flags) {
            Ok((_, n)) => return Ok(n),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until there is something to receive, or the end.
pub(crate) fn wait_readable(fd: impl AsFd, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Not `UnixStream::connect`: where nobody accepts, and enough others wait already, that waits without end.
pub(crate) fn connect_unix(path: &Path, deadline: Instant) -> io::Result<Stream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let stream = Stream::from_fd(socket);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_send_timeout(Some(left.max(Duration::from_millis(1))))?;
        match net::connect(&stream, &address) {
            Ok(()) => break,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    stream.set_send_timeout(None)?;
    Ok(stream)
}

pub(crate) fn connect_any(candidates: impl Iterator<Item = SocketAddr>, deadline: Instant) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name stands for no address");
    for candidate in candidates {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&candidate, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(Stream::from_fd(stream.into()));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_within_loopback_is_one_that_nobody_passes_on() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = Stream::from_fd(listener.accept().unwrap().0.into());
        let (seen_at, near) = (far.peer().unwrap(), Stream::from_fd(near.into()));
        assert!(near.is_within_loopback(&seen_at.to_string()));
        assert!(near.is_within_loopback(&format!("[::ffff:127.0.0.1]:{}", seen_at.port())), "by a listener for both");
        assert!(!near.is_within_loopback(&format!("127.0.0.1:{}", seen_at.port() ^ 1)), "a proxy");
        assert!(!near.is_within_loopback(&format!("10.0.0.7:{}", seen_at.port())));
        assert!(!near.is_within_loopback("") && !near.is_within_loopback("nonsense"));
    }
}
