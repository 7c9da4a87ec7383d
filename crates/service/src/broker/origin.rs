//! Where connections come from, as far as limits go, and how many handshakes each place may begin.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use telecl_net::Stream;

use crate::process::peer_user;

/// Who shares a limit. Whoever has one IPv6 address has all of its /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    V4(Ipv4Addr),
    V6([u8; 8]),
    /// A user of this node.
    User(u32),
    Unknown,
}

impl Origin {
    /// Of a connection from `peer`, as its listener has named it.
    pub(crate) fn of(stream: &Stream, peer: &str) -> Origin {
        if stream.is_unix() {
            return peer_user(stream).map_or(Origin::Unknown, Origin::User);
        }
        peer.parse::<SocketAddr>().map_or(Origin::Unknown, |peer| Origin::of_address(peer.ip()))
    }

    fn of_address(address: IpAddr) -> Origin {
        match address.to_canonical() {
            IpAddr::V4(address) => Origin::V4(address),
            IpAddr::V6(address) => {
                let mut network = [0; 8];
                network.copy_from_slice(&address.octets()[..8]);
                Origin::V6(network)
            }
        }
    }
}

/// So many handshakes a second, and so many at once after a quiet time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) per_second: u32,
    pub(crate) at_once: u32,
}

/// One place may begin so many. A job that starts a thousand programs on one node at once waits for none of them.
pub(crate) const OF_ONE: Pace = Pace { per_second: 500, at_once: 2000 };
/// … and all together.
pub(crate) const OF_ALL: Pace = Pace { per_second: 2000, at_once: 8000 };

/// Counts what may still be begun.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// In thousandths, so that short times count.
    tokens: u64,
    filled: Instant,
}

impl Bucket {
    const ONE: u64 = 1000;

    fn full(pace: Pace, now: Instant) -> Bucket {
        Bucket { tokens: u64::from(pace.at_once) * Bucket::ONE, filled: now }
    }

    fn fill(&mut self, pace: Pace, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX).min(3_600_000);
        if passed > 0 {
            let most = u64::from(pace.at_once) * Bucket::ONE;
            self.tokens = (self.tokens + passed * u64::from(pace.per_second)).min(most);
            self.filled = now;
        }
    }

    fn has_one(&self) -> bool {
        self.tokens >= Bucket::ONE
    }

    fn take(&mut self) {
        self.tokens -= Bucket::ONE;
    }
}

/// How fast handshakes may begin. Takes time as an argument, and has no lock: it belongs to one thread.
#[derive(Debug)]
pub(crate) struct Paces {
    all: Bucket,
    each: HashMap<Origin, Bucket>,
}

impl Paces {
    /// So many places are remembered. Who comes when there are more finds what those have who have been quiet for longest.
    const MOST_ORIGINS: usize = 4096;
    /// After so long a bucket is full again.
    const FORGET: Duration = Duration::from_secs(10);

    pub(crate) fn new(now: Instant) -> Paces {
        Paces { all: Bucket::full(OF_ALL, now), each: HashMap::new() }
    }

    /// Whether a handshake from there may begin now; it counts if so.
    pub(crate) fn begin(&mut self, origin: Origin, now: Instant) -> bool {
        self.all.fill(OF_ALL, now);
        if self.each.len() >= Paces::MOST_ORIGINS && !self.each.contains_key(&origin) {
            self.each.retain(|_, bucket| now.saturating_duration_since(bucket.filled) < Paces::FORGET);
            if self.each.len() >= Paces::MOST_ORIGINS {
                // Only the limit on all is left to them.
                self.each.clear();
            }
        }
        let own = self.each.entry(origin).or_insert_with(|| Bucket::full(OF_ONE, now));
        own.fill(OF_ONE, now);
        let may = own.has_one() && self.all.has_one();
        if may {
            own.take();
            self.all.take();
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Origin {
        Origin::of_address(address.parse().unwrap())
    }

    #[test]
    fn who_has_many_addresses_of_one_network_is_one() {
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.7"), of("10.0.0.7"));
        assert_ne!(of("10.0.0.7"), of("10.0.0.8"));
    }

    #[test]
    fn handshakes_are_counted_by_place_and_come_back_with_time() {
        let start = Instant::now();
        let mut paces = Paces::new(start);
        let (one, other) = (of("10.0.0.7"), of("10.0.0.8"));
        let begun = (0..10_000).filter(|_| paces.begin(one, start)).count();
        assert_eq!(begun, OF_ONE.at_once as usize);
        assert!(paces.begin(other, start), "another place has its own");
        let later = start + Duration::from_millis(100);
        let begun = (0..10_000).filter(|_| paces.begin(one, later)).count();
        assert_eq!(begun, OF_ONE.per_second as usize / 10);
    }

    #[test]
    fn all_together_are_limited_too_and_places_without_end_take_no_memory() {
        let start = Instant::now();
        let mut paces = Paces::new(start);
        let origins = (0..100_000).map(|number: u32| Origin::V4(Ipv4Addr::from(number)));
        let begun = origins.filter(|origin| paces.begin(*origin, start)).count();
        assert_eq!(begun, OF_ALL.at_once as usize);
        assert!(paces.each.len() <= Paces::MOST_ORIGINS);
    }
}
