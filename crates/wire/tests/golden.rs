//! The bytes of every message, as they are on disk: whoever changes the protocol does so on purpose.
//!
//! `golden/messages.hex` has two samples of each message and payload. *full* has two elements in every list, a value in
//! every option and 1, 2, 3, … in the fields; *empty* has none, none and zeros.
#![allow(clippy::unwrap_used, reason = "clippy takes only #[test] functions for tests")]

mod support;

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use telecl_wire::{Header, PROTOCOL_VERSION};
use zerocopy::IntoBytes;

use support::messages::{MESSAGES, PAYLOADS};
use support::{Draw, Pool, Tape};

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/messages.hex")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file as it would be written now.
fn current() -> String {
    let mut text = String::from(
        "# Made by `TELECL_BLESS=1 cargo test -p telecl-wire --test golden`. number, name, sample, bytes of the body.\n",
    );
    writeln!(text, "protocol {PROTOCOL_VERSION}").unwrap();
    writeln!(text, "header {}", hex(Header::new(0x0102, 0x0003_0405, 0x0006_0708).as_bytes())).unwrap();
    let pool = Pool::fixed();
    for facts in MESSAGES.iter().chain(PAYLOADS) {
        let number = if facts.number == 0 { "payload".to_owned() } else { facts.number.to_string() };
        for (sample, tape) in [("full", Tape::Counting), ("empty", Tape::Empty)] {
            let body = (facts.encode)(&Draw::new(&pool, tape));
            // Two payloads share their name with a request.
            writeln!(text, "{number} {}::{} {sample} {}", facts.set, facts.name, hex(&body)).unwrap();
        }
    }
    text
}

#[test]
fn the_protocol_has_not_changed() {
    let current = current();
    if std::env::var_os("TELECL_BLESS").is_some() {
        fs::write(file(), current).unwrap();
        return;
    }
    let golden = fs::read_to_string(file()).unwrap_or_default();
    let changed: Vec<&str> = current.lines().filter(|line| !golden.lines().any(|known| known == *line)).collect();
    let gone: Vec<&str> = golden.lines().filter(|line| !current.lines().any(|known| known == *line)).collect();
    assert!(
        golden == current,
        "the protocol has changed:\nnow    {}\nbefore {}\n\
         If that was meant: bump PROTOCOL_VERSION in crates/wire/src/lib.rs, describe the change in docs/protocol.md, \
         and regenerate with TELECL_BLESS=1 cargo test -p telecl-wire --test golden, all in one commit.",
        changed.join("\n       "),
        gone.join("\n       "),
    );
}
