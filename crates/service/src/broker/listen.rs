//! The sockets drivers connect to, and the loop that accepts them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use telecl_net::{Address, Listener, Stream};
use tracing::{debug, warn};

use super::ServeError;
use super::stop::StopSignal;

/// Everything the service listens at.
#[derive(Debug)]
pub(crate) struct Listeners {
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
}

impl Listeners {
    pub(crate) fn bind(addresses: &[Address]) -> Result<Listeners, ServeError> {
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
            all.addresses.push(listener.address().map_err(failed)?);
            all.listeners.push(listener);
        }
        Ok(all)
    }

    /// Where it really listens: with the ports that the system chose.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Passes every connection to `begin` until `stop` is signalled.
    pub(crate) fn accept_until(&self, stop: &StopSignal, begin: impl Fn(Stream, String)) -> io::Result<()> {
        loop {
            let mut polled: Vec<PollFd<'_>> = vec![PollFd::new(stop, PollFlags::IN)];
            polled.extend(self.listeners.iter().map(|listener| PollFd::from_borrowed_fd(fd(listener), PollFlags::IN)));
            match poll(&mut polled, None) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
            if ready[0] {
                return Ok(());
            }
            for (listener, _) in self.listeners.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
                match listener.accept() {
                    Ok((stream, peer)) => begin(stream, peer),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if out_of_descriptors(&error) => {
                        warn!(%error, "cannot accept a connection");
                        // The connection stays in the backlog, so without a pause this would spin.
                        thread::sleep(Duration::from_millis(100));
                    }
                    Err(error) => debug!(%error, "a connection went away before it was accepted"),
                }
            }
        }
    }
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
        let first = Listeners::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let taken = first.addresses()[0].clone();
        let message = Listeners::bind(std::slice::from_ref(&taken)).unwrap_err().to_string();
        assert!(message.contains(&taken.to_string()) && message.contains("stop it"), "{message}");
    }

    #[test]
    fn no_address_is_an_error() {
        assert!(matches!(Listeners::bind(&[]), Err(ServeError::NoAddress)));
    }
}
