//! What is encoded is what is decoded, for every message and every payload.

mod support;

use std::collections::HashSet;

use proptest::prelude::*;
use telecl_wire::handshake::Handshake;
use telecl_wire::reply::FromWorker;
use telecl_wire::{Header, MAX_BODY, MAX_PAYLOAD, Request, WireId};
use zerocopy::IntoBytes;

use support::messages::{MESSAGES, PAYLOADS};
use support::{Draw, Pool, Tape};

fn pools() -> impl Strategy<Value = Pool> {
    let ids = prop::collection::vec(any::<u64>().prop_map(WireId::new), 0..8);
    (prop::collection::vec(any::<u8>(), 0..64), "\\PC{0,16}", ids).prop_map(|(bytes, text, ids)| Pool {
        bytes,
        text,
        ids,
    })
}

proptest! {
    #[test]
    fn every_value_survives_its_bytes(pool in pools(), tape in prop::collection::vec(any::<u64>(), 0..200)) {
        for facts in MESSAGES.iter().chain(PAYLOADS) {
            let came_back = (facts.round_trip)(&Draw::new(&pool, Tape::Given(&tape)));
            prop_assert!(came_back.is_ok(), "{}: {}", facts.name, came_back.unwrap_err());
        }
    }

    #[test]
    fn every_header_survives_its_bytes(opcode: u16, body in 0..=MAX_BODY, payload in 0..=MAX_PAYLOAD) {
        let header = Header::new(opcode, body, payload);
        let bytes: [u8; Header::LEN] = header.as_bytes().try_into().unwrap();
        prop_assert_eq!(Header::parse(&bytes), Ok(header));
    }
}

#[test]
fn extreme_values_survive_their_bytes() {
    let pool = Pool::fixed();
    for tape in [Tape::Empty, Tape::Counting, Tape::Given(&[u64::MAX; 300])] {
        for facts in MESSAGES.iter().chain(PAYLOADS) {
            assert_eq!((facts.round_trip)(&Draw::new(&pool, tape)), Ok(()), "{}", facts.name);
        }
    }
}

/// `FrameSender` takes the number from the type, the receiver finds the type by the number.
#[test]
fn every_number_stands_for_one_message() {
    let listed = |set: &str| -> Vec<u16> {
        MESSAGES.iter().filter(|facts| facts.set == set).map(|facts| facts.number).collect()
    };
    assert_eq!(listed("Handshake"), Handshake::OPCODES);
    assert_eq!(listed("Request"), Request::OPCODES);
    assert_eq!(listed("FromWorker"), FromWorker::OPCODES);
    // Pings may arrive among requests, so the sets must not overlap either.
    let different: HashSet<u16> = MESSAGES.iter().map(|facts| facts.number).collect();
    assert_eq!(different.len(), MESSAGES.len(), "two messages have the same number");
}

#[test]
fn the_frames_of_a_message_are_within_the_limits() {
    let pool = Pool::fixed();
    for facts in MESSAGES {
        let body = (facts.encode)(&Draw::new(&pool, Tape::Counting));
        let header = Header::new(facts.number, body.len(), 0);
        let bytes: [u8; Header::LEN] = header.as_bytes().try_into().unwrap();
        let parsed = Header::parse(&bytes).unwrap();
        assert_eq!((parsed.opcode.get(), parsed.body_len(), parsed.payload_len()), (facts.number, body.len(), 0));
    }
}
