//! A link through memory that both sides have: rings for frames, slots for bulk data, a socket to wake each other.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use telecl_shm::{Consumer, Corrupt, Producer, ReceivedSlot, Segment, Side, Slot, SlotPool};

use crate::Stream;
use crate::idle::{Idle, Spin};

/// How long a sender looks for space before it sleeps between two looks.
const SPIN: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(50);

/// How long a driver waits for a slot. A worker does not: its slots may be waiting for what it is about to send.
const PATIENCE: Duration = Duration::from_millis(2);

/// After so many naps the sender asks whether the receiver is still there.
const NAPS: u32 = 20;

/// Sends through shared memory.
#[derive(Debug)]
pub(crate) struct Outgoing {
    producer: Producer,
    slots: SlotPool,
    side: Side,
    bell: Stream,
}

/// Receives through shared memory.
#[derive(Debug)]
pub(crate) struct Incoming {
    consumer: Consumer,
    segment: Arc<Segment>,
    side: Side,
    bell: Stream,
}

/// Both halves of the link as `side` uses it.
pub(crate) fn halves(segment: &Arc<Segment>, side: Side, bell: &Stream) -> io::Result<(Outgoing, Incoming)> {
    let (producer, consumer) = segment.endpoint(side);
    let outgoing = Outgoing { producer, slots: segment.slots(side), side, bell: bell.try_clone()? };
    let incoming = Incoming { consumer, segment: Arc::clone(segment), side, bell: bell.try_clone()? };
    Ok((outgoing, incoming))
}

impl Outgoing {
    pub(crate) fn stream(&self) -> &Stream {
        &self.bell
    }

    pub(crate) fn slots(&self) -> &SlotPool {
        &self.slots
    }

    /// Puts bytes into the ring; they become visible with [`Outgoing::publish`], or when the ring is full.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.producer.write(bytes).map_err(corrupt)?;
            bytes = &bytes[written..];
            if written == 0 {
                self.publish()?;
                let Outgoing { producer, bell, .. } = self;
                wait_for(bell, || producer.free().map(|free| (free > 0).then_some(())).map_err(corrupt))?;
            }
        }
        Ok(())
    }

    /// A slot with these bytes, if there is one soon. All may be in use for as long as the program likes: a device that
    /// waits for a user event keeps what it will read.
    pub(crate) fn fill_slot(&mut self, bytes: &[u8]) -> io::Result<Option<Slot>> {
        let mut slot = self.slots.take();
        if slot.is_none() && self.side == Side::Driver {
            // The receiver frees slots only after it has seen what they hold.
            self.publish()?;
            let patience = Instant::now() + PATIENCE;
            slot = wait_for(&self.bell, || match self.slots.take() {
                None if Instant::now() < patience => Ok(None),
                found => Ok(Some(found)),
            })?;
        }
        if let Some(slot) = &mut slot {
            let _ = slot.fill(bytes);
        }
        Ok(slot)
    }

    /// Shows the receiver what was written, and wakes it if it sleeps.
    pub(crate) fn publish(&mut self) -> io::Result<()> {
        self.producer.publish();
        if self.producer.needs_doorbell() { self.bell.ring() } else { Ok(()) }
    }
}

impl Incoming {
    pub(crate) fn stream(&self) -> &Stream {
        &self.bell
    }

    /// What there is; `None` if that is nothing.
    pub(crate) fn try_receive(&mut self, target: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(Some(self.consumer.read(target).map_err(corrupt)?).filter(|&n| n > 0))
    }

    /// As [`Incoming::try_receive`], but hears the bell too; 0 at the end of the connection.
    pub(crate) fn look(&mut self, target: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            if let Some(received) = self.try_receive(target)? {
                return Ok(Some(received));
            }
            match self.bell.try_receive(&mut [0; 64])? {
                None => return Ok(None),
                // What was sent before the end is still to be received.
                Some(0) => return self.try_receive(target).map(|last| last.or(Some(0))),
                Some(_) => {}
            }
        }
    }

    /// Sleeps until there is something; 0 at the end of the connection.
    pub(crate) fn receive(&mut self, target: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(received) = self.try_receive(target)? {
                return Ok(received);
            }
            if self.sleep_announced()? && self.bell.receive(&mut [0; 64])? == 0 {
                return self.try_receive(target).map(Option::unwrap_or_default);
            }
        }
    }

    /// Has the sender ring for the next bytes; `false` if some are there already.
    pub(crate) fn sleep_announced(&self) -> io::Result<bool> {
        self.consumer.prepare_sleep().map_err(corrupt)
    }

    /// Has the sender not ring.
    pub(crate) fn cancel_sleep(&self) {
        self.consumer.cancel_sleep();
    }

    /// The slot that a frame names.
    pub(crate) fn slot(&self, index: u32) -> Option<ReceivedSlot> {
        self.segment.received_slot(self.side, index)
    }
}

/// Waits until the receiver has made room, but no longer than sending may take.
fn wait_for<T>(bell: &Stream, mut look: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let mut spin = Spin::new(SPIN);
    let begin = Instant::now();
    let mut naps = 0;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if naps > 0 || !spin.turn() {
            naps += 1;
            thread::sleep(NAP);
            if naps % NAPS == 0 {
                if bell.is_closed() {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                if bell.send_timeout()?.is_some_and(|limit| begin.elapsed() > limit) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
}

pub(crate) fn corrupt(corrupt: Corrupt) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, corrupt)
}
