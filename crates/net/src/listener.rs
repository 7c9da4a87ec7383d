//! Sockets that wait for drivers, TCP and Unix alike.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::stream::connect_unix;
use crate::{Address, Security, Stream};

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
            Address::Tcp { host, port, .. } => TcpListener::bind((host.as_str(), *port)).map(Listener::Tcp),
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
                Ok(Address::Tcp { host: local.ip().to_string(), port: local.port(), security: Security::ByAddress })
            }
            Listener::Unix { path, .. } => Ok(Address::Unix(path.clone())),
        }
    }

    /// Whether other machines can connect.
    pub fn is_open(&self) -> bool {
        match self {
            Listener::Tcp(listener) => {
                listener.local_addr().is_ok_and(|local| !local.ip().to_canonical().is_loopback())
            }
            Listener::Unix { .. } => false,
        }
    }

    /// The next connection and who it is from.
    pub fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok((Stream::from_fd(stream.into()), peer.to_string()))
            }
            Listener::Unix { listener, path } => {
                // The system could name the process, but not one of another container: then its id is 0, for which
                // rustix has no value. Drivers tell theirs.
                let (stream, _) = listener.accept()?;
                Ok((Stream::from_fd(stream.into()), path.display().to_string()))
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
