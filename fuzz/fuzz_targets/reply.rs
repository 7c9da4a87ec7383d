//! What a driver reads: frames from a worker or a broker, with payloads as they are, compressed, in slots and on streams;
//! and the answers in their payloads.
#![no_main]

use fuzz::memory::{Counting, bounded};
use libfuzzer_sys::fuzz_target;
use telecl_net::{FrameReceiver, Stream};
use telecl_wire::MAX_PAYLOAD;
use telecl_wire::reply::FromWorker;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|input: &[u8]| {
    let Some((which, rest)) = input.split_first() else { return };
    if usize::from(*which) < 2 * fuzz::payloads() {
        bounded("payload", rest.len(), 32, 1024, || fuzz::decode_payload(usize::from(*which), rest));
        return;
    }
    if let Some(connection) = fuzz::connection(rest) {
        frames(FrameReceiver::new(Stream::from_fd(connection)), rest.len());
    }
});

fn frames(mut receiver: FrameReceiver, len: usize) {
    // A frame that says it was compressed may be as long as a payload, whatever it came from: that much is taken once.
    bounded("frames", len, 64, 2 * MAX_PAYLOAD + (128 << 10), || {
        let mut payload = Vec::new();
        while let Ok(Some(mut frame)) = receiver.next_frame() {
            if let Ok(message) = FromWorker::decode(frame.opcode, frame.body) {
                assert_eq!(message.body(), frame.body, "{} comes back as something else", message.name());
            }
            if frame.payload.take_stream().is_some() {
                continue;
            }
            payload.clear();
            let announced = frame.payload.len();
            if frame.payload.append_to(&mut payload).is_err() {
                break;
            }
            assert_eq!(payload.len(), announced);
        }
    });
}
