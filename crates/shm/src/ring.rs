//! The stream of bytes of one direction.
//!
//! Counters run from 0 and only grow; positions in the ring are their lowest bits. A side takes the peer's counter only
//! from where it last was up to where its own counter allows it, so that what follows from it is always in the ring.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::mapping::{Direction, RING};
use crate::segment::{Segment, Side};

/// The consumer gives space back in pieces of this size, unless it has read everything: each time costs the producer
/// a cache miss.
const RELEASE: u64 = RING as u64 / 8;

/// The peer cannot be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer wrote nonsense into the shared memory")]
pub struct Corrupt;

/// Fills a ring.
#[derive(Debug)]
pub struct Producer {
    segment: Arc<Segment>,
    from: Side,
    /// Bytes ever written, published or not.
    tail: u64,
    /// Bytes ever published: what the consumer knows of.
    published: u64,
    /// The consumer's head when it was last looked at.
    head: u64,
}

impl Producer {
    pub(crate) fn new(segment: Arc<Segment>, from: Side) -> Producer {
        Producer { segment, from, tail: 0, published: 0, head: 0 }
    }

    /// How many bytes can be written now.
    pub fn free(&self) -> Result<usize, Corrupt> {
        Ok(self.free_after(self.load_head()?))
    }

    /// Copies as much of `bytes` as fits, and returns how much. The consumer sees it after [`publish`](Self::publish).
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Corrupt> {
        if self.free_after(self.head) < bytes.len() {
            self.head = self.load_head()?;
        }
        let len = bytes.len().min(self.free_after(self.head));
        self.segment.mapping.ring(self.from).copy_from(position(self.tail), &bytes[..len]);
        self.tail += len as u64;
        Ok(len)
    }

    /// Shows the consumer everything written so far.
    pub fn publish(&mut self) {
        self.published = self.tail;
        self.control().tail.0.store(self.tail, Ordering::Release);
    }

    /// Whether the consumer sleeps and the caller must wake it. To be asked after each [`publish`](Self::publish); true
    /// once for each sleep.
    #[must_use]
    pub fn needs_doorbell(&self) -> bool {
        let sleeping = &self.control().sleeping.0;
        // With the fence in `prepare_sleep`: either we see the flag, or the consumer sees the tail.
        fence(Ordering::SeqCst);
        sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::SeqCst) != 0
    }

    fn load_head(&self) -> Result<u64, Corrupt> {
        let head = self.control().head.0.load(Ordering::Acquire);
        if (self.head..=self.published).contains(&head) { Ok(head) } else { Err(Corrupt) }
    }

    /// `head` came from `load_head`, so it is not behind `self.head`, for which `write` kept the difference up to `RING`.
    fn free_after(&self, head: u64) -> usize {
        RING - (self.tail - head) as usize
    }

    fn control(&self) -> &Direction {
        self.segment.mapping.direction(self.from)
    }
}

/// Empties a ring.
#[derive(Debug)]
pub struct Consumer {
    segment: Arc<Segment>,
    from: Side,
    /// Bytes ever read.
    head: u64,
    /// Bytes whose space the producer knows to be free.
    released: u64,
    /// The producer's tail when it was last looked at.
    tail: u64,
}

impl Consumer {
    pub(crate) fn new(segment: Arc<Segment>, from: Side) -> Consumer {
        Consumer { segment, from, head: 0, released: 0, tail: 0 }
    }

    /// How many bytes can be read now.
    pub fn available(&self) -> Result<usize, Corrupt> {
        Ok(self.available_before(self.load_tail()?))
    }

    /// Copies what there is to `target`, up to its length, and returns how much. The space is the producer's again, at the
    /// latest when everything has been read.
    pub fn read(&mut self, target: &mut [u8]) -> Result<usize, Corrupt> {
        if self.available_before(self.tail) < target.len() {
            self.tail = self.load_tail()?;
        }
        let len = target.len().min(self.available_before(self.tail));
        self.segment.mapping.ring(self.from).copy_to(position(self.head), &mut target[..len]);
        self.head += len as u64;
        let unreleased = self.head - self.released;
        if unreleased >= RELEASE || (unreleased > 0 && self.head == self.tail) {
            self.released = self.head;
            self.control().head.0.store(self.head, Ordering::Release);
        }
        Ok(len)
    }

    /// Announces sleep. If it returns true the ring is empty, and the producer will ring the doorbell with the next
    /// bytes; if false there is something to read, and nothing was announced.
    pub fn prepare_sleep(&self) -> Result<bool, Corrupt> {
        self.control().sleeping.0.store(1, Ordering::SeqCst);
        // With the fence in `needs_doorbell`: either the producer sees the flag, or we see its tail.
        fence(Ordering::SeqCst);
        let available = self.available();
        if available != Ok(0) {
            self.cancel_sleep();
        }
        Ok(available? == 0)
    }

    /// Takes the announcement back: from now on nobody rings, though a doorbell may be on its way.
    pub fn cancel_sleep(&self) {
        self.control().sleeping.0.store(0, Ordering::SeqCst);
    }

    fn load_tail(&self) -> Result<u64, Corrupt> {
        let tail = self.control().tail.0.load(Ordering::Acquire);
        if (self.tail..=self.head + RING as u64).contains(&tail) { Ok(tail) } else { Err(Corrupt) }
    }

    /// `tail` came from `load_tail`, so it is not behind `self.tail`, which `read` never passed.
    fn available_before(&self, tail: u64) -> usize {
        (tail - self.head) as usize
    }

    fn control(&self) -> &Direction {
        self.segment.mapping.direction(self.from)
    }
}

fn position(counter: u64) -> usize {
    counter as usize & (RING - 1)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::time::Duration;
    use std::{hint, thread};

    use super::*;

    fn ring() -> (Producer, Consumer, Arc<Segment>) {
        let (segment, _memfd) = Segment::create().unwrap();
        let (producer, _) = segment.endpoint(Side::Driver);
        let (_, consumer) = segment.endpoint(Side::Worker);
        (producer, consumer, segment)
    }

    /// Numbers that are random enough (xorshift).
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 8) as usize % limit
        }

        fn bytes(&mut self, len: usize) -> Vec<u8> {
            (0..len).map(|_| self.below(256) as u8).collect()
        }
    }

    #[test]
    fn a_stream_arrives_as_it_was_written() {
        let (mut producer, mut consumer, _segment) = ring();
        let content = Random(1).bytes(40 * RING + 12345);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut random, mut done) = (Random(2), 0);
                while done < content.len() {
                    let limit = [100, RING][random.below(2)];
                    let end = content.len().min(done + random.below(limit));
                    done += producer.write(&content[done..end]).unwrap();
                    producer.publish();
                    thread::yield_now();
                }
            });
            let (mut random, mut done, mut buffer) = (Random(3), 0, vec![0; 2 * RING]);
            while done < content.len() {
                let len = random.below(buffer.len());
                let read = consumer.read(&mut buffer[..len]).unwrap();
                assert!(buffer[..read] == content[done..done + read], "differs after byte {done}");
                done += read;
                thread::yield_now();
            }
        });
        assert_eq!((producer.free(), consumer.available()), (Ok(RING), Ok(0)));
    }

    #[test]
    fn a_full_ring_takes_no_more_and_a_drained_one_everything() {
        let (mut producer, mut consumer, _segment) = ring();
        let (content, mut buffer) = (Random(1).bytes(RING + 10), vec![0; RING]);
        // Each round begins elsewhere in the ring.
        for _ in 0..5 {
            assert_eq!((producer.write(&content), producer.write(&[1]), producer.free()), (Ok(RING), Ok(0), Ok(0)));
            assert_eq!((consumer.available(), consumer.read(&mut buffer)), (Ok(0), Ok(0)), "not published yet");
            producer.publish();
            assert_eq!((consumer.available(), consumer.read(&mut buffer)), (Ok(RING), Ok(RING)));
            assert!(buffer == content[..RING]);
            assert_eq!((producer.free(), producer.write(&content[..77])), (Ok(RING), Ok(77)));
            producer.publish();
            assert_eq!(consumer.read(&mut buffer), Ok(77));
            assert_eq!((producer.free(), &buffer[..77]), (Ok(RING), &content[..77]));
        }
    }

    #[test]
    fn counters_that_cannot_be_are_corrupt() {
        let (mut producer, mut consumer, segment) = ring();
        let control = segment.mapping.direction(Side::Driver);
        let mut buffer = vec![0; RING];
        assert_eq!(producer.write(&buffer[..1000]), Ok(1000));
        producer.publish();
        assert_eq!((consumer.read(&mut buffer), producer.write(&buffer)), (Ok(1000), Ok(RING)));

        // Behind what the ring can hold; written, but not published; beyond all.
        for head in [0, 999, 1001, 1000 + RING as u64, 1001 + RING as u64, u64::MAX] {
            control.head.0.store(head, Ordering::Relaxed);
            assert_eq!((producer.free(), producer.write(&[1])), (Err(Corrupt), Err(Corrupt)), "{head}");
        }
        for tail in [0, 999, 1001 + RING as u64, u64::MAX, 1 << 63] {
            control.tail.0.store(tail, Ordering::Relaxed);
            assert_eq!((consumer.available(), consumer.read(&mut buffer)), (Err(Corrupt), Err(Corrupt)), "{tail}");
            assert_eq!((consumer.prepare_sleep(), producer.needs_doorbell()), (Err(Corrupt), false));
        }
    }

    #[test]
    fn no_counters_make_a_side_panic_or_leave_the_ring() {
        let (mut producer, mut consumer, segment) = ring();
        let control = segment.mapping.direction(Side::Driver);
        let (mut random, mut moved, mut buffer) = (Random(4), [0; 2], vec![0; RING]);
        for _ in 0..100_000 {
            // Near the truth, so that many pass.
            let mut lie = |truth: u64| truth.wrapping_add(random.below(RING) as u64).wrapping_sub(RING as u64 / 2);
            control.head.0.store(lie(producer.published), Ordering::Relaxed);
            control.tail.0.store(lie(consumer.head), Ordering::Relaxed);
            let len = random.below(1000);
            moved[0] += producer.write(&buffer[..len]).unwrap_or(0);
            moved[1] += consumer.read(&mut buffer[..len]).unwrap_or(0);
            assert!(producer.free().unwrap_or(0) <= RING && consumer.available().unwrap_or(0) <= RING);
            if random.below(2) == 0 {
                producer.publish();
            }
        }
        assert!(moved[0] > 10 * RING && moved[1] > 10 * RING, "{moved:?}");
    }

    #[test]
    fn a_sleeper_is_rung_once() {
        let (mut producer, mut consumer, _segment) = ring();
        assert_eq!((producer.needs_doorbell(), consumer.prepare_sleep()), (false, Ok(true)));
        assert_eq!(producer.write(b"x"), Ok(1));
        producer.publish();
        assert_eq!((producer.needs_doorbell(), producer.needs_doorbell()), (true, false));
        assert_eq!((consumer.prepare_sleep(), producer.needs_doorbell()), (Ok(false), false));
        assert_eq!((consumer.read(&mut [0; 8]), consumer.prepare_sleep()), (Ok(1), Ok(true)));
        consumer.cancel_sleep();
        assert!(!producer.needs_doorbell());
    }

    /// One publishes in the very moment in which the other falls asleep, again and again. (Without the producer's
    /// fence thousands of the rounds fail on x86.)
    #[test]
    fn who_falls_asleep_sees_the_bytes_or_is_rung() {
        const ROUNDS: u32 = 100_000;
        let (mut producer, mut consumer, _segment) = ring();
        let (arrived, rung) = (AtomicU32::new(0), AtomicBool::new(false));
        let meet = |meeting: u32, random: &mut Random| {
            arrived.fetch_add(1, Ordering::AcqRel);
            let mut spins = 0u32;
            while arrived.load(Ordering::Acquire) < 2 * meeting {
                spins += 1;
                if spins.is_multiple_of(1024) { thread::yield_now() } else { hint::spin_loop() }
            }
            (0..random.below(8)).for_each(|_| hint::spin_loop());
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(1);
                for round in 0..ROUNDS {
                    meet(2 * round + 1, &mut random);
                    let written = producer.write(b"x");
                    producer.publish();
                    rung.store(producer.needs_doorbell() && written == Ok(1), Ordering::Relaxed);
                    meet(2 * round + 2, &mut random);
                }
            });
            let (mut random, mut lost, mut unread) = (Random(2), 0, 0);
            for round in 0..ROUNDS {
                meet(2 * round + 1, &mut random);
                let sleeps = consumer.prepare_sleep() == Ok(true);
                meet(2 * round + 2, &mut random);
                lost += u32::from(sleeps && !rung.load(Ordering::Relaxed));
                consumer.cancel_sleep();
                unread += u32::from(consumer.read(&mut [0; 2]) != Ok(1));
            }
            assert_eq!((lost, unread), (0, 0));
        });
    }

    /// Two sides that answer each other byte by byte, and sleep in between: a wake-up that is lost leaves both asleep.
    #[test]
    fn no_wake_up_is_lost() {
        fn play(ends: (Producer, Consumer), mut bell: UnixStream, rounds: u32) -> u32 {
            let ((mut producer, mut consumer), mut random, mut sleeps) = (ends, Random(u64::from(rounds)), 0);
            bell.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            for _ in 0..rounds {
                assert_eq!(producer.write(b"x"), Ok(1));
                producer.publish();
                if producer.needs_doorbell() {
                    bell.write_all(&[1]).unwrap();
                }
                (0..random.below(300)).for_each(|_| hint::spin_loop());
                while consumer.read(&mut [0]).unwrap() == 0 {
                    if consumer.prepare_sleep().unwrap() {
                        bell.read_exact(&mut [0]).expect("a wake-up was lost");
                        sleeps += 1;
                    }
                }
            }
            sleeps
        }
        let (segment, _memfd) = Segment::create().unwrap();
        let (driver_bell, worker_bell) = UnixStream::pair().unwrap();
        let (driver, worker) = (segment.endpoint(Side::Driver), segment.endpoint(Side::Worker));
        thread::scope(|scope| {
            let worker = scope.spawn(|| play(worker, worker_bell, 10_000));
            let sleeps = play(driver, driver_bell, 10_000) + worker.join().unwrap();
            assert!(sleeps > 100, "slept {sleeps} times only");
        });
    }
}
