//! Slots for bulk data: taken and filled by one side, sent as an index, given back by the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::mapping::{Area, SLOT, SLOTS};
use crate::ring::Corrupt;
use crate::segment::{Segment, Side};

/// The slots that one side fills.
#[derive(Clone, Debug)]
pub struct SlotPool {
    segment: Arc<Segment>,
    from: Side,
}

impl SlotPool {
    pub(crate) fn new(segment: Arc<Segment>, from: Side) -> SlotPool {
        SlotPool { segment, from }
    }

    /// All slots of both directions: where they begin, and how many bytes they have together. Valid as long as the
    /// pool; the peer may read and write them at any time.
    pub fn memory(&self) -> (*mut u8, usize) {
        (self.segment.mapping.slot(Side::Driver, 0).as_ptr(), 2 * SLOTS * SLOT)
    }

    /// A slot that neither we nor the peer use, if there is one.
    pub fn take(&self) -> Option<Slot> {
        (0..SLOTS).find_map(|index| {
            let (held, state) = (self.segment.held(self.from, index), self.segment.state(self.from, index));
            if held.swap(true, Ordering::Acquire) {
                return None;
            }
            if state.load(Ordering::Acquire) != 0 {
                held.store(false, Ordering::Release);
                return None;
            }
            state.store(1, Ordering::Relaxed);
            Some(Slot { segment: Arc::clone(&self.segment), from: self.from, index, sent: false })
        })
    }
}

/// A slot to fill and send. Dropped before, it is free again.
#[derive(Debug)]
pub struct Slot {
    segment: Arc<Segment>,
    from: Side,
    index: usize,
    sent: bool,
}

impl Slot {
    pub const LEN: usize = SLOT;

    pub fn index(&self) -> u32 {
        self.index as u32
    }

    /// `LEN` bytes, valid as long as the slot lives. The peer may read and write them meanwhile.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.segment.mapping.slot(self.from, self.index).as_ptr()
    }

    /// Copies as much of `bytes` as fits to the beginning of the slot, and returns how much.
    #[must_use]
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        self.segment.mapping.slot(self.from, self.index).copy_from(0, bytes)
    }

    /// Gives the slot to the peer, who will learn of the index from a frame that is published after this.
    #[must_use]
    pub fn send(mut self) -> u32 {
        self.sent = true;
        self.index()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.sent {
            self.segment.state(self.from, self.index).store(0, Ordering::Relaxed);
        }
        self.segment.held(self.from, self.index).store(false, Ordering::Release);
    }
}

/// A slot that the peer has filled. The peer has it back when this is dropped.
#[derive(Debug)]
pub struct ReceivedSlot {
    segment: Arc<Segment>,
    from: Side,
    index: usize,
}

impl ReceivedSlot {
    pub(crate) fn new(segment: Arc<Segment>, from: Side, index: u32) -> Option<ReceivedSlot> {
        let index = usize::try_from(index).ok().filter(|index| *index < SLOTS)?;
        Some(ReceivedSlot { segment, from, index })
    }

    /// `Slot::LEN` bytes, valid as long as this lives. The peer may write them meanwhile.
    pub fn as_ptr(&self) -> *const u8 {
        self.segment.mapping.slot(self.from, self.index).as_ptr()
    }

    /// Fills `target` with what lies behind `offset`. An error if the slot ends before: it was the peer who said how much
    /// there is.
    pub fn copy_to(&self, offset: usize, target: &mut [u8]) -> Result<(), Corrupt> {
        self.area_for(offset, target)?.copy_to(offset, target);
        Ok(())
    }

    /// As [`ReceivedSlot::copy_to`], past the cache: for memory that is not looked at soon.
    pub fn stream_to(&self, offset: usize, target: &mut [u8]) -> Result<(), Corrupt> {
        self.area_for(offset, target)?.stream_to(offset, target);
        Ok(())
    }

    /// The slot's bytes, if `target` can be filled from those behind `offset`.
    fn area_for(&self, offset: usize, target: &[u8]) -> Result<Area<'_>, Corrupt> {
        if offset > SLOT || target.len() > SLOT - offset {
            return Err(Corrupt);
        }
        Ok(self.segment.mapping.slot(self.from, self.index))
    }
}

impl Drop for ReceivedSlot {
    fn drop(&mut self) {
        self.segment.state(self.from, self.index).store(0, Ordering::Release);
    }
}

impl Segment {
    /// Whether a [`Slot`] of this process owns the slot.
    fn held(&self, from: Side, index: usize) -> &AtomicBool {
        &self.held[from as usize][index]
    }

    fn state(&self, from: Side, index: usize) -> &AtomicU32 {
        &self.mapping.direction(from).slot_states[index].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Arc<Segment> {
        Segment::create().unwrap().0
    }

    fn take_all(pool: &SlotPool) -> Vec<Slot> {
        std::iter::from_fn(|| pool.take()).collect()
    }

    #[test]
    fn a_slot_carries_bytes_and_comes_back() {
        let (segment, memfd) = Segment::create().unwrap();
        let opened = Segment::open(memfd).unwrap();
        let (filler, receiver) = (Side::Worker, Side::Driver);
        let mut others = take_all(&segment.slots(receiver));
        let pool = segment.slots(filler);
        let mut slots = take_all(&pool);
        assert_eq!(slots.len(), SLOTS);
        for slot in &mut slots {
            assert_eq!(slot.fill(&vec![slot.index() as u8; SLOT + 5]), SLOT);
        }
        others.iter_mut().for_each(|slot| assert_eq!(slot.fill(&[99; SLOT]), SLOT));
        let sent: Vec<u32> = slots.into_iter().map(Slot::send).collect();
        assert!(pool.take().is_none(), "sent is not free");
        for index in sent {
            let mut bytes = vec![0; SLOT - 1];
            opened.received_slot(receiver, index).unwrap().copy_to(1, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| u32::from(*byte) == index));
            assert_eq!(pool.take().map(Slot::send), Some(index), "the one that came back");
        }
        assert!(segment.slots(receiver).take().is_none(), "the other direction still has its {} slots", others.len());
    }

    #[test]
    fn a_slot_dropped_unsent_is_free_again() {
        let pool = segment().slots(Side::Driver);
        let mut slots = take_all(&pool);
        let dropped = slots.remove(3).index();
        assert_eq!(pool.take().map(|slot| slot.index()), Some(dropped));
    }

    #[test]
    fn a_slot_freed_by_a_lying_peer_is_not_handed_out_while_held() {
        let segment = segment();
        let pool = segment.slots(Side::Driver);
        let slots = take_all(&pool);
        (0..SLOTS as u32).for_each(|index| drop(segment.received_slot(Side::Worker, index)));
        assert!(pool.take().is_none());
        assert!(segment.slots(Side::Driver).take().is_none(), "another pool, the same slots");
        drop(slots);
        assert!(pool.take().is_some());
    }

    #[test]
    fn what_the_peer_says_of_a_slot_is_checked() {
        let segment = segment();
        for index in [SLOTS as u32, u32::MAX] {
            assert!(segment.received_slot(Side::Worker, index).is_none());
        }
        let slot = segment.received_slot(Side::Worker, SLOTS as u32 - 1).unwrap();
        assert_eq!(slot.copy_to(SLOT - 2, &mut [0; 2]), Ok(()));
        assert_eq!(slot.copy_to(SLOT - 2, &mut [0; 3]), Err(Corrupt));
        assert_eq!(slot.copy_to(usize::MAX, &mut [0; 2]), Err(Corrupt));
    }

    #[test]
    fn threads_never_share_a_slot() {
        let segment = segment();
        let owned: [AtomicBool; SLOTS] = Default::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let pool = segment.slots(Side::Driver);
                    for round in 0..20_000 {
                        let Some(slot) = pool.take() else { continue };
                        assert!(!owned[slot.index].swap(true, Ordering::Relaxed));
                        owned[slot.index].store(false, Ordering::Relaxed);
                        if round % 2 == 0 {
                            drop(segment.received_slot(Side::Worker, slot.send()));
                        }
                    }
                });
            }
        });
    }
}
