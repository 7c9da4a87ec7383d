//! `docs/protocol.md` has every message, with its number, its fields and whether it is answered.
#![allow(clippy::unwrap_used, reason = "clippy takes only #[test] functions for tests")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use telecl_wire::{CHUNK, DEFAULT_PORT, FIRST_DRIVER_ID, MAX_BODY, MAX_PAYLOAD, MAX_STREAMS, PROTOCOL_VERSION};

use support::messages::MESSAGES;

fn page() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    fs::read_to_string(path).unwrap()
}

/// The cells of a table's row, without the spaces around them.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(row.split('|').map(str::trim).collect())
}

/// Words in back quotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_message_has_its_row() {
    let page = page();
    let rows: Vec<Vec<&str>> = page.lines().filter_map(cells).filter(|row| row[0].parse::<u16>().is_ok()).collect();
    for facts in MESSAGES {
        let number = facts.number.to_string();
        let matching: Vec<_> = rows.iter().filter(|row| row[0] == number).collect();
        let [row] = matching[..] else { panic!("{} rows for message {number}, {}", matching.len(), facts.name) };
        let [_, name, body, waits, _payload] = row[..] else { panic!("the row of message {number} has other cells") };
        assert_eq!(quoted(name), [facts.name], "name of message {number}");
        assert_eq!(quoted(body), facts.fields, "fields of {}", facts.name);
        let answered = match facts.set {
            "Request" => facts.fields.contains(&"call"),
            _ => matches!(
                facts.name,
                "Hello" | "Ping" | "Join" | "Resume" | "Inspect" | "EndSession" | "Challenge" | "Response" | "Drain"
            ),
        };
        assert_eq!(waits, if answered { "yes" } else { "no" }, "whether {} is answered", facts.name);
    }
    let known: BTreeSet<String> = MESSAGES.iter().map(|facts| facts.number.to_string()).collect();
    let unknown: Vec<_> = rows.iter().map(|row| row[0]).filter(|number| !known.contains(*number)).collect();
    assert!(unknown.is_empty(), "the page has messages that do not exist: {unknown:?}");
}

#[test]
fn the_page_has_the_real_limits() {
    let page = page();
    for (name, value) in [
        ("PROTOCOL_VERSION", u64::from(PROTOCOL_VERSION)),
        ("DEFAULT_PORT", u64::from(DEFAULT_PORT)),
        ("FIRST_DRIVER_ID", FIRST_DRIVER_ID),
        ("CHUNK", CHUNK as u64),
        ("MAX_BODY", MAX_BODY as u64),
        ("MAX_PAYLOAD", MAX_PAYLOAD as u64),
        ("MAX_STREAMS", MAX_STREAMS as u64),
    ] {
        let start = format!("| `{name}` | {value} |");
        assert!(page.lines().any(|line| line.starts_with(&start)), "the page has no line that starts with {start}");
    }
}
