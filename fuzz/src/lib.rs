//! What the fuzz targets share: an allocator that counts, streams of bytes, and samples of every message.

pub mod memory;
pub mod play;
#[path = "../../crates/wire/tests/support/mod.rs"]
mod support;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use support::messages::{MESSAGES, PAYLOADS};
use support::{Draw, Pool, Tape};

/// Body of a sample message, and what it is.
#[derive(Debug)]
pub struct Sample {
    /// `Handshake`, `Request`, `FromWorker`, or the module of a payload.
    pub set: &'static str,
    pub name: &'static str,
    /// 0 of a payload.
    pub number: u16,
    pub body: Vec<u8>,
}

/// Two samples of every message and payload: full ones and empty ones.
pub fn samples() -> Vec<Sample> {
    let pool = Pool::fixed();
    let mut samples = Vec::new();
    for facts in MESSAGES.iter().chain(PAYLOADS) {
        for tape in [Tape::Counting, Tape::Empty] {
            let body = (facts.encode)(&Draw::new(&pool, tape));
            samples.push(Sample { set: facts.set, name: facts.name, number: facts.number, body });
        }
    }
    samples
}

/// Everything that travels as a payload, by its place in the list: decodes it, and forgets what it means.
pub fn decode_payload(which: usize, body: &[u8]) -> bool {
    let facts = &PAYLOADS[which % PAYLOADS.len()];
    (facts.decode)(body).is_ok()
}

/// How many kinds of payloads there are.
pub fn payloads() -> usize {
    PAYLOADS.len()
}

/// A connection on which these bytes have come, and no more will. `None` for more than a socket holds at once.
pub fn connection(bytes: &[u8]) -> Option<OwnedFd> {
    /// Less than the smallest buffer that systems give a socket.
    const MOST: usize = 64 << 10;
    if bytes.len() > MOST {
        return None;
    }
    let (mut ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    ours.write_all(bytes).expect("room in the socket");
    Some(theirs.into())
}
