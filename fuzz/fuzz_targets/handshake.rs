//! The first frames of a connection: as the broker reads them from anybody, and as the driver reads the answer.
#![no_main]

use fuzz::memory::{Counting, bounded};
use libfuzzer_sys::fuzz_target;
use telecl_wire::Header;
use telecl_wire::handshake::Handshake;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|input: &[u8]| {
    // As a frame on a connection.
    if let Some(connection) = fuzz::connection(input) {
        bounded("introduction", input.len(), 4, 32 << 10, || telecl_service::fuzzing::introduction(connection));
    }
    // As a body, of the message that the first two bytes name.
    let Some((opcode, body)) = input.split_first_chunk() else { return };
    decode(u16::from_le_bytes(*opcode), body);
    if let Some((header, body)) = input.split_first_chunk()
        && let Ok(header) = Header::parse(header)
    {
        decode(header.opcode.get(), body.get(..header.body_len()).unwrap_or(body));
    }
});

fn decode(opcode: u16, body: &[u8]) {
    let opcode =
        Handshake::OPCODES.get(usize::from(opcode) % (Handshake::OPCODES.len() * 2)).copied().unwrap_or(opcode);
    bounded("handshake", body.len(), 32, 1024, || {
        if let Ok(message) = Handshake::decode(opcode, body) {
            // What is encoded counts, too.
            assert_eq!(message.body(), body, "{} comes back as something else", message.name());
        }
    });
}
