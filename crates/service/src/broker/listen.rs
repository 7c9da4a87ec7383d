//! The sockets drivers connect to, and the loop that accepts them.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use telecl_net::{Address, Listener, Stream};
use tracing::{debug, info, warn};

use super::ServeError;
use super::credentials::Credentials;
use super::stop::{Signals, Told};

/// How often the policy's file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Everything the service listens at.
#[derive(Debug)]
pub(crate) struct Listeners {
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
}

impl Listeners {
    /// Listens at all of `addresses`; if there is no Unix socket among them and `local_socket` is set, at one more, if
    /// that is possible.
    pub(crate) fn bind(addresses: &[Address], local_socket: bool) -> Result<Listeners, ServeError> {
        if addresses.is_empty() {
            return Err(ServeError::NoAddress);
        }
        let mut all = Listeners { listeners: Vec::new(), addresses: Vec::new() };
        for address in addresses {
            let failed = |cause| ServeError::Listen { address: address.clone(), cause };
            let listener = Listener::bind(address).map_err(failed)?;
            // A connection that is gone again before it is accepted must not block the others.
            match &listener {
                Listener::Tcp(listener) => listener.set_nonblocking(true),
                Listener::Unix { listener, .. } => listener.set_nonblocking(true),
            }
            .map_err(failed)?;
            // The usual 128 are fewer than may connect while we do something else; one too many waits a second for its turn.
            rustix::net::listen(fd(&listener), BACKLOG).map_err(|error| failed(error.into()))?;
            all.addresses.push(listener.address().map_err(failed)?);
            all.listeners.push(listener);
        }
        if local_socket && all.socket().is_empty() {
            all.add_local_socket();
        }
        Ok(all)
    }

    /// An error if other machines can connect, and nothing protects what passes, or says who they are.
    pub(crate) fn check(&self, credentials: &Credentials) -> Result<(), ServeError> {
        let open = self.listeners.iter().zip(&self.addresses).filter(|(listener, _)| listener.is_open());
        for (_, address) in open {
            let missing = match (credentials.current().tls.is_some(), credentials.any()) {
                (true, true) if credentials.required() => continue,
                (true, true) => "credentials are not required there",
                (false, _) => "there is no certificate to encrypt with",
                (true, false) => "nothing says who may connect",
            };
            if !credentials.is_insecure() {
                return Err(ServeError::Open { address: address.clone(), missing });
            }
            warn!(%address, missing, "other machines can connect, and nothing keeps strangers out: --insecure says so");
        }
        Ok(())
    }

    /// The path of the Unix socket; empty if there is none.
    pub(crate) fn socket(&self) -> String {
        let mut paths = self.listeners.iter().filter_map(|listener| match listener {
            Listener::Unix { path, .. } => path.to_str(),
            Listener::Tcp(_) => None,
        });
        paths.next().unwrap_or_default().to_owned()
    }

    /// Programs on this node are served without it too, only slower.
    fn add_local_socket(&mut self) {
        let port = self.addresses.iter().find_map(|address| match address {
            Address::Tcp { port, .. } => Some(*port),
            Address::Unix(_) => None,
        });
        let (Some(port), Some(directory)) = (port, runtime_directory()) else { return };
        let path = directory.join(format!("{port}.sock"));
        let bound = fs::create_dir_all(&directory)
            .and_then(|()| Listener::bind(&Address::Unix(path.clone())))
            .and_then(|listener| {
                if let Listener::Unix { listener, .. } = &listener {
                    listener.set_nonblocking(true)?;
                    rustix::net::listen(listener, BACKLOG)?;
                }
                // Every user may connect who gets there, as to the TCP address beside it; a policy then knows them apart.
                fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
                Ok(listener)
            });
        match bound {
            Ok(listener) => self.listeners.push(listener),
            Err(error) => {
                let socket = path.display();
                info!(%socket, %error, "no Unix socket: programs on this node use TCP instead of shared memory");
            }
        }
    }

    /// Where it really listens: with the ports that the system chose.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Passes every connection to `begin` until `pace` says that it is enough: it is asked before each wait what the
    /// signals mean, and how long to wait. `make_room` is to free a descriptor. Calls `look` once a second, if there is
    /// something to look after, and with `true` when told to.
    pub(crate) fn accept_until(
        &self,
        signals: &Signals,
        wake: &impl AsFd,
        pace: impl Fn(Told) -> ControlFlow<(), Option<Duration>>,
        begin: impl Fn(Stream, String),
        make_room: impl Fn(),
        look: impl Fn(bool),
    ) -> io::Result<()> {
        let mut looked = Instant::now();
        loop {
            let ControlFlow::Continue(wait) = pace(signals.take_stop()) else { return Ok(()) };
            let mut polled = vec![PollFd::new(wake, PollFlags::IN)];
            polled.extend(signals.stop().map(|signal| PollFd::new(signal, PollFlags::IN)));
            let others = polled.len();
            polled.extend(self.listeners.iter().map(|listener| PollFd::from_borrowed_fd(fd(listener), PollFlags::IN)));
            polled.extend(signals.reload().map(|reload| PollFd::new(reload, PollFlags::IN)));
            let wait = wait.into_iter().chain(signals.reload().map(|_| LOOK)).min();
            let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
            match poll(&mut polled, wait.as_ref()) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
            if signals.reload().is_some() {
                let told = signals.take_reload();
                // Connections may come so fast that the wait never ends by itself.
                if told || looked.elapsed() >= LOOK {
                    looked = Instant::now();
                    look(told);
                }
            }
            for (listener, _) in self.listeners.iter().zip(&ready[others..]).filter(|(_, ready)| **ready) {
                match listener.accept() {
                    Ok((stream, peer)) => begin(stream, peer),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if out_of_descriptors(&error) => {
                        warn!(%error, "cannot accept a connection");
                        make_room();
                        // The connection stays in the backlog, so without a pause this would spin.
                        thread::sleep(Duration::from_millis(10));
                    }
                    Err(error) => debug!(%error, "a connection went away before it was accepted"),
                }
            }
        }
    }
}

/// Where a service keeps what lives as long as it runs.
pub(crate) fn runtime_directory() -> Option<PathBuf> {
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let of_system = || rustix::process::geteuid().is_root().then(|| PathBuf::from("/run"));
    of_user.or_else(of_system).map(|path| path.join("telecl"))
}

fn fd(listener: &Listener) -> BorrowedFd<'_> {
    match listener {
        Listener::Tcp(listener) => listener.as_fd(),
        Listener::Unix { listener, .. } => listener.as_fd(),
    }
}

fn out_of_descriptors(error: &io::Error) -> bool {
    let full = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| full.contains(&errno))
}

/// What somebody who wants to listen there can do.
pub(crate) fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "another process listens there: stop it, or choose another address",
        io::ErrorKind::AddrNotAvailable => "no network interface of this node has that address",
        io::ErrorKind::PermissionDenied => "choose a port above 1023, or a directory that you may write to",
        io::ErrorKind::NotFound => "the directory of the socket must exist",
        _ => "choose another address",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_is_named_together_with_what_to_do() {
        let first = Listeners::bind(&["127.0.0.1:0".parse().unwrap()], false).unwrap();
        let taken = first.addresses()[0].clone();
        let message = Listeners::bind(std::slice::from_ref(&taken), false).unwrap_err().to_string();
        assert!(message.contains(&taken.to_string()) && message.contains("stop it"), "{message}");
    }

    #[test]
    fn no_address_is_an_error() {
        assert!(matches!(Listeners::bind(&[], true), Err(ServeError::NoAddress)));
    }
}
