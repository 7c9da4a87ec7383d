//! What a broker reads from a worker, which runs its tenant's code and may say anything.
#![no_main]

use fuzz::memory::{Counting, bounded};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|input: &[u8]| {
    if let Some(connection) = fuzz::connection(input) {
        bounded("channel", input.len(), 32, 4096, || telecl_service::fuzzing::worker_messages(connection));
    }
});
