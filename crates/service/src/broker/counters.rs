//! What the service as a whole has met with: connections, and greetings that came to nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::greeting::Unwelcome;

/// Why a connection did not become a session, a stream or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Failure {
    /// Too many others had not introduced themselves.
    Crowded,
    /// Closed without a word, as health checks do.
    Left,
    Silent,
    Stranger,
    Version,
    Malformed,
    Connection,
    /// Its tenant may use nothing.
    NoDevice,
    /// It could not show who it is, or was not encrypted.
    Credential,
    /// There was no TLS handshake.
    Tls,
    /// A stream that may not join.
    Join,
    /// The service had no means left, or was stopping.
    Unable,
    /// The service takes no new sessions.
    Draining,
}

impl Failure {
    /// With the names that metrics have for them.
    pub(crate) const ALL: [(Failure, &str); 13] = [
        (Failure::Crowded, "crowded"),
        (Failure::Left, "left"),
        (Failure::Silent, "silent"),
        (Failure::Stranger, "stranger"),
        (Failure::Version, "version"),
        (Failure::Malformed, "malformed"),
        (Failure::Connection, "connection"),
        (Failure::NoDevice, "no_device"),
        (Failure::Credential, "credential"),
        (Failure::Tls, "tls"),
        (Failure::Join, "join"),
        (Failure::Unable, "unable"),
        (Failure::Draining, "draining"),
    ];
}

impl From<&Unwelcome> for Failure {
    fn from(reason: &Unwelcome) -> Failure {
        match reason {
            Unwelcome::Left => Failure::Left,
            Unwelcome::Silent => Failure::Silent,
            Unwelcome::Stranger => Failure::Stranger,
            Unwelcome::Version(_) => Failure::Version,
            Unwelcome::Malformed(_) => Failure::Malformed,
            Unwelcome::Io(_) => Failure::Connection,
            Unwelcome::NoTls | Unwelcome::Tls(_) => Failure::Tls,
        }
    }
}

/// Counters of the service. There is no lock but that of the histogram, which is the library's.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    failures: [AtomicU64; Failure::ALL.len()],
    /// Of sessions over TCP, as the kernel knew it when their first request came.
    pub(crate) round_trips: Histogram,
}

impl Default for Counters {
    fn default() -> Counters {
        // 10 µs to 1.3 s.
        let round_trips = Histogram::new(exponential_buckets(10e-6, 2.0, 18));
        Counters { connections: AtomicU64::new(0), failures: Default::default(), round_trips }
    }
}

impl Counters {
    /// How often that has happened now.
    pub(crate) fn failed(&self, failure: Failure) -> u64 {
        self.failures[failure as usize].fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Failure::ALL.iter().map(|(failure, name)| (*name, self.failures[*failure as usize].load(Ordering::Relaxed)))
    }

    pub(crate) fn round_trip(&self, time: Option<Duration>) {
        if let Some(time) = time {
            self.round_trips.observe(time.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_counted_under_its_own_name() {
        let counters = Counters::default();
        for (failure, name) in Failure::ALL {
            counters.failed(failure);
            assert!(counters.failures().any(|(counted, count)| counted == name && count == 1), "{name}");
        }
        assert_eq!(counters.failures().map(|(_, count)| count).sum::<u64>(), Failure::ALL.len() as u64);
    }
}
