//! Connected sockets and listeners, TCP and Unix alike.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::Address;

/// A connected socket.
#[derive(Debug)]
pub struct Stream(OwnedFd);

/// Why a service could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot resolve {address}: {cause}")]
    Resolve { address: Address, cause: io::Error },
    #[error("cannot reach {address}: {cause}")]
    Unreachable { address: Address, cause: io::Error },
}

impl Stream {
    /// Connects until `deadline`, trying every address that a name stands for. Resolving a name may
    /// take longer than that; callers that cannot wait do it in a thread of its own.
    pub fn connect(address: &Address, deadline: Instant) -> Result<Stream, ConnectError> {
        match address {
            Address::Unix(path) => connect_unix(path, deadline)
                .map_err(|cause| ConnectError::Unreachable { address: address.clone(), cause }),
            Address::Tcp { host, port } => {
                let candidates = (host.as_str(), *port)
                    .to_socket_addrs()
                    .map_err(|cause| ConnectError::Resolve { address: address.clone(), cause })?;
                connect_any(candidates, deadline)
                    .map_err(|cause| ConnectError::Unreachable { address: address.clone(), cause })
            }
        }
    }

    /// Another connection to whomever this one leads to.
    pub fn connect_again(&self, deadline: Instant) -> io::Result<Stream> {
        Stream::connect_to(self.peer()?, deadline)
    }

    /// Whom this one leads to; known only as long as the connection lasts.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        let peer = net::getpeername(&self.0)?.ok_or(io::ErrorKind::NotConnected)?;
        Ok(SocketAddr::try_from(peer)?)
    }

    /// A connection to a [`Stream::peer`].
    pub fn connect_to(peer: SocketAddr, deadline: Instant) -> io::Result<Stream> {
        connect_any([peer].into_iter(), deadline)
    }

    /// Takes over a connected socket, for example one inherited from a parent process.
    pub fn from_fd(fd: OwnedFd) -> Stream {
        Stream(fd)
    }

    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Another handle on the same socket.
    pub fn try_clone(&self) -> io::Result<Stream> {
        self.0.try_clone().map(Stream)
    }

    /// Limits how long a receive may wait; `None` is for ever.
    pub fn set_receive_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.0, Timeout::Recv, timeout)?)
    }

    /// Limits how long a send may wait; `None` is for ever.
    pub fn set_send_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.0, Timeout::Send, timeout)?)
    }

    /// What was set with [`Stream::set_send_timeout`].
    pub(crate) fn send_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_timeout(&self.0, Timeout::Send)?)
    }

    /// Receives what there is, waiting for it; 0 at the end of the stream.
    pub(crate) fn receive(&self, target: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.0, &mut *target, RecvFlags::empty()) {
                Ok((_, n)) => return Ok(n),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Fills `target`, waiting for all of it; less at the end of the stream.
    pub(crate) fn receive_all(&self, target: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < target.len() {
            match rustix::net::recv(&self.0, &mut target[filled..], RecvFlags::WAITALL) {
                Ok((_, 0)) => break,
                Ok((_, n)) => filled += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
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
        loop {
            match rustix::net::recv(&self.0, &mut *target, RecvFlags::DONTWAIT) {
                Ok((_, n)) => return Ok(Some(n)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends one after the other, waiting until all has been taken.
    pub(crate) fn send_all(&self, mut first: &[u8], mut second: &[u8]) -> io::Result<()> {
        while !first.is_empty() || !second.is_empty() {
            let sent = self.send_some(&mut first, &mut second, SendFlags::empty())?;
            if sent == Some(0) {
                return Err(io::ErrorKind::WriteZero.into());
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

    /// Sends what there is room for, and shortens the two by it; `None` if that is nothing.
    pub(crate) fn try_send(&self, first: &mut &[u8], second: &mut &[u8]) -> io::Result<Option<usize>> {
        self.send_some(first, second, SendFlags::DONTWAIT)
    }

    fn send_some(&self, first: &mut &[u8], second: &mut &[u8], flags: SendFlags) -> io::Result<Option<usize>> {
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        let control = &mut SendAncillaryBuffer::default();
        let sent = loop {
            match net::sendmsg(&self.0, &parts, control, SendFlags::NOSIGNAL | flags) {
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
        sockopt::socket_send_buffer_size(&self.0).unwrap_or(0)
    }

    /// Sends a byte that wakes the peer. One that does not fit is not needed: others are on their way.
    pub(crate) fn ring(&self) -> io::Result<()> {
        match rustix::net::send(&self.0, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
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
        match rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)? {
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
            match rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut *target)], &mut control, flags) {
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
        sockopt::socket_domain(&self.0).is_ok_and(|domain| domain == AddressFamily::UNIX)
    }

    /// Whether both ends are on one machine, as far as their addresses tell.
    pub(crate) fn is_local(&self) -> bool {
        let ours = net::getsockname(&self.0).ok().and_then(|any| SocketAddr::try_from(any).ok());
        let peer = net::getpeername(&self.0).ok().flatten().and_then(|any| SocketAddr::try_from(any).ok());
        // A Unix socket has other addresses, or none.
        let (Some(ours), Some(peer)) = (ours, peer) else { return true };
        let peer = peer.ip().to_canonical();
        peer.is_loopback() || peer == ours.ip().to_canonical()
    }

    /// Whether the peer has closed the connection. Does not wait.
    pub fn is_closed(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::RDHUP)];
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
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit));
    }

    fn polled(&self, flags: PollFlags) -> PollFlags {
        let mut polled = [PollFd::new(&self.0, flags)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).map_or(PollFlags::empty(), |_| polled[0].revents())
    }

    /// Ends the connection in both directions; a thread that waits for it wakes up.
    pub fn shutdown(&self) {
        // Fails only where the peer was faster.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Not `UnixStream::connect`: where nobody accepts, and enough others wait already, that waits without end.
fn connect_unix(path: &Path, deadline: Instant) -> io::Result<Stream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let stream = Stream(socket);
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

fn connect_any(candidates: impl Iterator<Item = SocketAddr>, deadline: Instant) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name stands for no address");
    for candidate in candidates {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&candidate, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(Stream(stream.into()));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A socket that waits for drivers.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, path: PathBuf },
}

impl Listener {
    /// Listens at `address`. A Unix socket that nobody listens at any more is replaced.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp { host, port } => TcpListener::bind((host.as_str(), *port)).map(Listener::Tcp),
            Address::Unix(path) => {
                if is_stale_socket(path) {
                    fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                Ok(Listener::Unix { listener, path: path.clone() })
            }
        }
    }

    /// Where it listens: with the real port if the system chose one.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Tcp(listener) => {
                let local = listener.local_addr()?;
                Ok(Address::Tcp { host: local.ip().to_string(), port: local.port() })
            }
            Listener::Unix { path, .. } => Ok(Address::Unix(path.clone())),
        }
    }

    /// The next connection and who it is from.
    pub fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok((Stream(stream.into()), peer.to_string()))
            }
            Listener::Unix { listener, path } => {
                // The system could name the process, but not one of another container: then its id is 0, for which
                // rustix has no value. Drivers tell theirs.
                let (stream, _) = listener.accept()?;
                Ok((Stream(stream.into()), path.display().to_string()))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix { path, .. } = self {
            // Somebody may have removed it already.
            let _ = fs::remove_file(path);
        }
    }
}

fn is_stale_socket(path: &PathBuf) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        && connect_unix(path, Instant::now() + Duration::from_secs(1))
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
