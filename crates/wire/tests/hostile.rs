//! Bytes from anybody: no decoder panics, and none takes more memory than a small multiple of what it was given.
#![allow(clippy::unwrap_used, reason = "clippy takes only #[test] functions for tests")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use proptest::prelude::*;
use telecl_wire::info::{Device, Info, Inventory, Platform};
use telecl_wire::reply::{
    ArgKind, ArgReport, Binaries, BuildReport, DeviceBuild, FromWorker, KernelOnDevice, KernelReport,
};
use telecl_wire::request::{Arg, ArgForm, EmbeddedHeader, TreeFile};
use telecl_wire::{DecodeError, Header, MAX_BODY, Request, encode, handshake::Handshake};

use support::messages::{MESSAGES, MessageFacts, PAYLOADS};
use support::{Draw, Pool, Tape};

/// How much a decoder may ask for in all, per byte of input: lists grow by doubling, and their elements are up to five
/// times as large in memory as the fewest bytes they can come from.
const BYTES_PER_BYTE: usize = 32;
const BYTES_AT_LEAST: usize = 1024;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// Counts what each thread asks for; what it gives back is not deducted.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: usize) {
    // Fails only while a thread ends, when nothing is measured.
    let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + bytes));
}

// SAFETY: every call goes to `System` with the arguments it came with, so its guarantees are ours; counting neither
// allocates nor unwinds, because the thread-local is constant-initialised and has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller keeps the contract of `realloc`, and `old` came from `System`.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `old` came from `System`.
        unsafe { System.dealloc(old, layout) }
    }
}

/// Decodes, and checks what that cost.
fn decode_within_bounds(facts: &MessageFacts, body: &[u8]) -> Result<(), DecodeError> {
    let before = ALLOCATED.get();
    let decoded = (facts.decode)(body);
    let allocated = ALLOCATED.get() - before;
    let most = BYTES_PER_BYTE * body.len() + BYTES_AT_LEAST;
    assert!(allocated <= most, "{}: {allocated} bytes for a body of {}", facts.name, body.len());
    decoded
}

fn everything() -> impl Iterator<Item = &'static MessageFacts> {
    MESSAGES.iter().chain(PAYLOADS)
}

fn sample(facts: &MessageFacts) -> Vec<u8> {
    (facts.encode)(&Draw::new(&Pool::fixed(), Tape::Counting))
}

fn named(name: &str) -> &'static MessageFacts {
    everything().find(|facts| facts.name == name).unwrap()
}

#[test]
fn the_allocator_counts() {
    let before = ALLOCATED.get();
    drop(std::hint::black_box(vec![0u8; 100_000]));
    assert!(ALLOCATED.get() - before >= 100_000);
}

proptest! {
    #[test]
    fn random_bytes_are_an_error_or_a_message(body in prop::collection::vec(any::<u8>(), 0..600)) {
        for facts in everything() {
            let _ = decode_within_bounds(facts, &body);
        }
    }

    /// Mostly zeros and small numbers: such bytes get further into a decoder than random ones.
    #[test]
    fn plausible_bytes_are_an_error_or_a_message(
        body in prop::collection::vec(prop_oneof![6 => Just(0u8), 3 => 0u8..4, 1 => any::<u8>()], 0..600),
    ) {
        for facts in everything() {
            let _ = decode_within_bounds(facts, &body);
        }
    }

    #[test]
    fn flipped_bits_are_an_error_or_another_message(flips in prop::collection::vec(any::<(usize, u8)>(), 1..6)) {
        for facts in everything() {
            let mut body = sample(facts);
            for (place, bit) in &flips {
                let place = place % body.len().max(1);
                if let Some(byte) = body.get_mut(place) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            let _ = decode_within_bounds(facts, &body);
        }
    }

    #[test]
    fn unknown_numbers_are_an_error(opcode: u16, body in prop::collection::vec(any::<u8>(), 0..40)) {
        prop_assume!(MESSAGES.iter().all(|facts| facts.number != opcode));
        let unknown = DecodeError::UnknownOpcode(opcode);
        prop_assert_eq!(Handshake::decode(opcode, &body), Err(unknown));
        prop_assert_eq!(Request::decode(opcode, &body), Err(unknown));
        prop_assert_eq!(FromWorker::decode(opcode, &body), Err(unknown));
    }

    #[test]
    fn no_header_asks_for_more_than_the_limits(bytes: [u8; Header::LEN]) {
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert!(header.body_len() <= MAX_BODY && header.payload_len() <= telecl_wire::MAX_PAYLOAD);
        }
    }
}

#[test]
fn a_body_that_is_cut_off_or_too_long_is_refused() {
    for facts in everything() {
        let mut body = sample(facts);
        for end in 0..body.len() {
            assert!(decode_within_bounds(facts, &body[..end]).is_err(), "{} cut off at {end}", facts.name);
        }
        assert_eq!(decode_within_bounds(facts, &body), Ok(()), "{}", facts.name);
        body.push(0);
        assert_eq!(decode_within_bounds(facts, &body), Err(DecodeError::TrailingBytes), "{}", facts.name);
    }
}

#[test]
fn false_counts_cost_nothing() {
    for facts in everything() {
        // Room behind the sample, so that many counts can be true as far as anybody knows at that point.
        let mut body = sample(facts);
        let places = body.len();
        body.resize(places + 1024, 0);
        for place in 0..places {
            let kept: [u8; 4] = body[place..place + 4].try_into().unwrap();
            let left = (body.len() - place - 4) as u32;
            for count in [u32::MAX, i32::MAX as u32, left, left / 4, left / 8, left / 12, left / 16, left / 33, 3] {
                body[place..place + 4].copy_from_slice(&count.to_le_bytes());
                let _ = decode_within_bounds(facts, &body);
            }
            body[place..place + 4].copy_from_slice(&kept);
        }
        for byte in [0, 1, 2, 4, 0xFF] {
            let _ = decode_within_bounds(facts, &vec![byte; 100_000]);
        }
    }
}

/// The largest bodies that the smallest elements can fill, so that memory per byte is as high as it gets.
#[test]
fn the_worst_lists_stay_within_bounds() {
    const BYTES: &[u8] = &[];
    fn fill<T: Clone>(element: &T, bytes: usize) -> Vec<T> {
        vec![element.clone(); (MAX_BODY - 64) / bytes]
    }
    let info = Info { param: 0, status: 0, value: BYTES };
    let device = Device { id: 1, info: vec![info.clone()] };
    let platform = Platform { index: 0, info: vec![info.clone()], devices: vec![device.clone()] };
    let bare = Platform { index: 0, info: vec![], devices: vec![] };
    let inventories = [
        fill(&platform, 48),
        fill(&bare, 12),
        vec![Platform { devices: fill(&device, 24), ..bare.clone() }],
        vec![Platform { info: fill(&info, 12), ..bare }],
    ];
    for platforms in inventories {
        let body = encode(&Inventory { platforms });
        assert_eq!(decode_within_bounds(named("Inventory"), &body), Ok(()));
    }

    let arg = ArgReport {
        kind: ArgKind::Unknown,
        size: 0,
        info_status: 0,
        address_qualifier: 0,
        access_qualifier: 0,
        type_qualifier: 0,
        type_name: BYTES,
        name: BYTES,
    };
    let on_device = KernelOnDevice {
        device: 0,
        work_group_size: 0,
        compile_work_group_size: [0; 3],
        preferred_multiple: 0,
        local_mem_size: 0,
        private_mem_size: 0,
    };
    let kernel = KernelReport { name: BYTES, attributes: BYTES, args: vec![], devices: vec![] };
    let nested = KernelReport { args: vec![arg], devices: vec![on_device], ..kernel.clone() };
    let build = DeviceBuild { device: 0, status: 0, binary_type: 0, log: BYTES, global_variables: 0 };
    let reports = [
        BuildReport { devices: vec![], kernels: fill(&kernel, 16), trees: vec![] },
        BuildReport { devices: vec![], kernels: fill(&nested, 113), trees: vec![] },
        BuildReport { devices: fill(&build, 28), kernels: vec![], trees: vec![] },
    ];
    for report in reports {
        assert_eq!(decode_within_bounds(named("BuildReport"), &encode(&report)), Ok(()));
    }
    let binaries = Binaries { binaries: fill(&BYTES, 4) };
    assert_eq!(decode_within_bounds(named("Binaries"), &encode(&binaries)), Ok(()));

    let arg = Arg { index: 0, form: ArgForm::Local, size: 0, object: 0, value: BYTES };
    let set_args = telecl_wire::request::SetArgs { kernel: 0, args: fill(&arg, 25) };
    assert_eq!(decode_within_bounds(named("SetArgs"), &encode(&set_args)), Ok(()));
    let tree = telecl_wire::request::MakeTree { tree: 0, files: fill(&TreeFile { path: "", hash: [0; 32] }, 36) };
    assert_eq!(decode_within_bounds(named("MakeTree"), &encode(&tree)), Ok(()));
    let compile = telecl_wire::request::Compile {
        call: 0,
        program: 0,
        devices: telecl_wire::Ids(&[]),
        options: BYTES,
        headers: fill(&EmbeddedHeader { program: 0, name: BYTES }, 12),
    };
    assert_eq!(decode_within_bounds(named("Compile"), &encode(&compile)), Ok(()));
}
