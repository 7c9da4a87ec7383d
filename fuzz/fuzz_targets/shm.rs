//! Shared memory whose other side writes anything anywhere at any time: rings, control words and slots.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use telecl_shm::{Consumer, Producer, RING, SLOT, Segment, Side};

/// What either side does next.
#[derive(Arbitrary, Debug)]
enum Step {
    /// The hostile side writes a word somewhere among the control words, or near an edge of the ring.
    Poke {
        at: u16,
        word: u64,
    },
    PokeSmall {
        at: u8,
        word: u16,
    },
    /// Our side goes on as it should.
    Write {
        len: u16,
    },
    Publish,
    Read {
        len: u16,
    },
    Sleep,
    Wake,
    Doorbell,
    TakeSlot,
    SendSlot,
    DropSlot,
    /// A frame names a slot.
    Receive {
        index: u32,
        offset: u32,
        len: u16,
    },
    DropReceived,
}

struct Ours {
    producer: Producer,
    consumer: Consumer,
    buffer: Vec<u8>,
    taken: Vec<telecl_shm::Slot>,
    received: Vec<telecl_shm::ReceivedSlot>,
}

fuzz_target!(|steps: Vec<Step>| {
    let (segment, memfd) = Segment::create().expect("memory");
    let memory = File::from(memfd);
    let (producer, consumer) = segment.endpoint(Side::Worker);
    let mut ours = Ours { producer, consumer, buffer: vec![7; 1 << 16], taken: Vec::new(), received: Vec::new() };
    for step in steps.iter().take(256) {
        ours.take(&segment, &memory, step);
    }
});

impl Ours {
    /// Whatever the other side wrote: no panic, no more than there is, and no access outside of the memory.
    fn take(&mut self, segment: &Arc<Segment>, memory: &File, step: &Step) {
        match *step {
            Step::Poke { at, word } => poke(memory, u64::from(at) * 8, word),
            // Words stand in lines of 128 bytes.
            Step::PokeSmall { at, word } => poke(memory, u64::from(at % 32) * 128, word.into()),
            Step::Write { len } => {
                let len = seldom_long(len);
                let written = self.producer.write(&self.buffer[..len.into()]);
                assert!(written.is_ok_and(|written| written <= len.into()) || written.is_err());
            }
            Step::Publish => self.producer.publish(),
            Step::Read { len } => {
                let len = seldom_long(len);
                if let Ok(available) = self.consumer.available() {
                    assert!(available <= RING);
                }
                let read = self.consumer.read(&mut self.buffer[..len.into()]);
                assert!(read.is_ok_and(|read| read <= len.into()) || read.is_err());
            }
            Step::Sleep => _ = self.consumer.prepare_sleep(),
            Step::Wake => self.consumer.cancel_sleep(),
            Step::Doorbell => _ = self.producer.needs_doorbell(),
            Step::TakeSlot => self.taken.extend(segment.slots(Side::Worker).take()),
            Step::SendSlot => _ = self.taken.pop().map(telecl_shm::Slot::send),
            Step::DropSlot => _ = self.taken.pop(),
            Step::Receive { index, offset, len } => {
                let Some(slot) = segment.received_slot(Side::Worker, index) else { return };
                let copied = slot.copy_to(offset as usize, &mut self.buffer[..len.into()]);
                let fits = (offset as usize).checked_add(len.into()).is_some_and(|end| end <= SLOT);
                assert_eq!(copied.is_ok(), fits, "{offset} {len}");
                self.received.push(slot);
            }
            Step::DropReceived => _ = self.received.pop(),
        }
    }
}

/// Long copies find nothing that short ones do not, but for those that go round the ring.
fn seldom_long(len: u16) -> u16 {
    if len >= 0xF000 { len } else { len % 512 }
}

fn poke(memory: &File, at: u64, word: u64) {
    memory.write_all_at(&word.to_ne_bytes(), at).expect("memory that does not shrink");
}
