//! How processes end, and the C functions that have no safe equivalent: leaving at once, emptying C's output, and asking
//! who is at the other end of a Unix socket, and how far away the other end of a TCP connection is.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// With what a worker ends; the broker turns it into a sentence.
pub(crate) mod exit_code {
    /// The driver closed the connection.
    pub(crate) const CLOSED: i32 = 0;
    pub(crate) const BROKEN_PROTOCOL: i32 = 2;
    pub(crate) const NOT_STARTED: i32 = 3;
    /// The broker asked for it.
    pub(crate) const STOPPED: i32 = 4;
    /// The session did nothing for too long.
    pub(crate) const IDLE: i32 = 5;
    /// There are no sensors to read.
    pub(crate) const NOTHING: i32 = 6;
    /// A compiler or a kernel ran for longer than the policy allows.
    pub(crate) const BUILD_TOO_LONG: i32 = 7;
    pub(crate) const KERNEL_TOO_LONG: i32 = 8;
    /// The driver lost its connection, and did not come back.
    pub(crate) const GONE: i32 = 9;
    pub(crate) const PANICKED: i32 = 70;
}

/// What was decided by [`exit_as`]; 0 if nothing was.
static DECIDED: AtomicI32 = AtomicI32::new(0);

/// From now on the process ends with this code, whoever ends it: several threads may notice the end, and the first reason
/// is the right one.
pub(crate) fn exit_as(code: i32) {
    // Another may have come first.
    let _ = DECIDED.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
}

type LastWords = Box<dyn Fn(i32) + Send + Sync>;

/// What is done with the code before the process ends by [`exit_now`].
static LAST_WORDS: OnceLock<LastWords> = OnceLock::new();

/// Has this called with its code when the process ends by itself. The first one counts.
pub(crate) fn before_exit(last_words: LastWords) {
    let _ = LAST_WORDS.set(last_words);
}

/// Ends the process without running exit handlers or destructors: a vendor's driver may hang in them, and there is
/// nothing left to save.
pub(crate) fn exit_now(code: i32) -> ! {
    exit_as(code);
    let code = DECIDED.load(Ordering::Relaxed);
    if let Some(last_words) = LAST_WORDS.get() {
        last_words(code);
    }
    // SAFETY: `_exit` has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}

/// Hands what C code has printed so far to the operating system.
pub(crate) fn flush_c_output() {
    // SAFETY: null means all output streams; C locks each of them itself.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// The user at the other end of a Unix socket, as this process's user namespace knows them.
///
/// Not rustix's `socket_peercred`: that has the peer's process id in a type that cannot be 0, and the kernel says 0 for a
/// peer in another process namespace, such as a container.
pub(crate) fn peer_user(socket: impl AsFd) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: `peer` is valid for writes of `len` bytes, any of which make a `ucred`, and outlives the call; the
    // descriptor is open as long as it is borrowed.
    let status =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // All ones is the kernel's word for nobody: the socket has no peer.
    if len as usize != size_of::<libc::ucred>() || peer.uid == u32::MAX {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(peer.uid)
}

/// The round trip of a TCP connection, as the kernel has measured it so far; `None` for other sockets.
pub(crate) fn round_trip(socket: impl AsFd) -> Option<Duration> {
    let info = tcp_info(socket)?;
    (info.tcpi_rtt > 0).then(|| Duration::from_micros(info.tcpi_rtt.into()))
}

/// Whether the kernel has sent something to the other end of a TCP connection, more than once, and had no answer. The
/// kernel there answers even if the program is stopped, and takes nothing.
pub(crate) fn is_unanswered(socket: impl AsFd) -> bool {
    tcp_info(socket).is_some_and(|info| info.tcpi_retransmits >= 2 || info.tcpi_probes >= 2)
}

/// What the kernel knows about a TCP connection; `None` for other sockets.
fn tcp_info(socket: impl AsFd) -> Option<libc::tcp_info> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: `info` is valid for writes of `len` bytes and outlives the call; the descriptor is open as long as it is
    // borrowed.
    let status =
        unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len) };
    // SAFETY: all of it was zero, or was written by the kernel, and it has only integers.
    let info = unsafe { info.assume_init() };
    (status == 0).then_some(info)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    #[test]
    fn the_user_at_the_other_end_is_known_and_of_other_sockets_nobody() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(peer_user(&ours).unwrap(), rustix::process::geteuid().as_raw());
        assert_eq!(round_trip(&ours), None);
        assert!(peer_user(UnixDatagram::unbound().unwrap()).is_err());
        assert!(peer_user(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn the_round_trip_of_a_connection_is_known() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(round_trip(&ours).is_some_and(|time| time < Duration::from_secs(1)));
    }
}
