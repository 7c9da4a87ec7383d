//! Which machine this is.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;

use rustix::rand::GetRandomFlags;

/// The kernel's boot id: equal on both ends of a link means that they run on the same node, also
/// across containers. Zeros where the system has none; zeros are equal to nothing.
pub fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

/// A number that nobody else has.
pub fn random_number() -> u64 {
    // The keys of a hash table come from the system's random source.
    RandomState::new().hash_one(std::process::id())
}

/// What nobody can guess, from the system's random source.
pub fn random_secret() -> io::Result<[u8; 16]> {
    let mut secret = [0; 16];
    // So few bytes come at once or not at all.
    rustix::rand::getrandom(&mut secret, GetRandomFlags::empty())?;
    Ok(secret)
}

/// The node's host name, or `unknown`.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_str().unwrap_or("unknown").to_owned()
}
