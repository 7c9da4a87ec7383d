//! Every request body, as a worker reads it. The first two bytes say which.
#![no_main]

use fuzz::memory::{Counting, bounded};
use libfuzzer_sys::fuzz_target;
use telecl_wire::Request;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|input: &[u8]| {
    let Some((opcode, body)) = input.split_first_chunk() else { return };
    let opcode = u16::from_le_bytes(*opcode);
    // Half of all numbers mean something.
    let opcode = Request::OPCODES.get(usize::from(opcode) % (Request::OPCODES.len() * 2)).copied().unwrap_or(opcode);
    bounded("request", body.len(), 34, 1024, || {
        if let Ok(request) = Request::decode(opcode, body) {
            assert_eq!(request.body(), body, "{} comes back as something else", request.name());
        }
    });
});
