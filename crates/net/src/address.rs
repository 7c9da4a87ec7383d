//! Where a service is: `host`, `host:port`, `[v6]:port`, `unix:/path`; with `tls://` or `tcp://` before the host, whether
//! the connection is encrypted.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use telecl_wire::DEFAULT_PORT;

/// The address of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    Tcp { host: String, port: u16, security: Security },
    Unix(PathBuf),
}

/// Whether a connection is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Security {
    /// If it leaves the machine.
    #[default]
    ByAddress,
    /// `tls://`: in any case.
    Tls,
    /// `tcp://`: in no case.
    Plain,
}

impl Address {
    /// Of a host and a port, encrypted if the connection leaves the machine.
    pub fn tcp(host: impl Into<String>, port: u16) -> Address {
        Address::Tcp { host: host.into(), port, security: Security::ByAddress }
    }
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("address is empty; expected host:port, [ipv6]:port or unix:/path")]
    Empty,
    #[error("address {0:?} has no host before the port")]
    NoHost(String),
    #[error("address {0:?} has a port that is not a number from 0 to 65535")]
    BadPort(String),
    #[error("address {0:?} needs brackets around its IPv6 host, as in [::1]:7701")]
    BareIpv6(String),
    #[error("address {0:?} needs an absolute path of at most 100 bytes after unix:")]
    BadPath(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            // The kernel's limit is 107 bytes; leave room for a suffix of our own.
            return if path.starts_with('/') && path.len() <= 100 {
                Ok(Address::Unix(path.into()))
            } else {
                Err(AddressError::BadPath(text.to_owned()))
            };
        }
        let (text, security) = match (text.strip_prefix("tls://"), text.strip_prefix("tcp://")) {
            (Some(rest), _) => (rest, Security::Tls),
            (None, Some(rest)) => (rest, Security::Plain),
            (None, None) => (text.strip_prefix("tcp:").unwrap_or(text), Security::ByAddress),
        };
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or_else(|| AddressError::BareIpv6(text.to_owned()))?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(AddressError::BadPort(text.to_owned())),
            }
        } else {
            match text.matches(':').count() {
                0 => (text, None),
                1 => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
                _ => return Err(AddressError::BareIpv6(text.to_owned())),
            }
        };
        if host.is_empty() {
            return Err(AddressError::NoHost(text.to_owned()));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => port.parse().map_err(|_| AddressError::BadPort(text.to_owned()))?,
        };
        Ok(Address::Tcp { host: host.to_owned(), port, security })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port, security } => {
                f.write_str(match security {
                    Security::ByAddress => "",
                    Security::Tls => "tls://",
                    Security::Plain => "tcp://",
                })?;
                if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
            }
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_understood_and_printed_back() {
        for (text, printed) in [
            ("node7", "node7:7701"),
            ("node7:9", "node7:9"),
            ("tcp:node7:9", "node7:9"),
            ("tls://node7", "tls://node7:7701"),
            ("tcp://[::1]:9", "tcp://[::1]:9"),
            ("127.0.0.1:7701", "127.0.0.1:7701"),
            ("[::1]:80", "[::1]:80"),
            ("[fe80::1]", "[fe80::1]:7701"),
            ("unix:/run/telecl.sock", "unix:/run/telecl.sock"),
            (" node7 ", "node7:7701"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn a_wrong_address_says_what_is_wrong() {
        for (text, part) in [
            ("", "empty"),
            (":7701", "no host"),
            ("tls://:7701", "no host"),
            ("node7:port", "port"),
            ("node7:70000", "port"),
            ("::1", "brackets"),
            ("[::1", "brackets"),
            ("[::1]7701", "port"),
            ("unix:relative", "absolute path"),
        ] {
            let message = text.parse::<Address>().unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }
}
