//! A driver that has the socket and the shared memory in its own hands, to do with them what no driver does.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use telecl_net::Address;
use telecl_shm::{Consumer, Corrupt, Producer, RING, SLOT, SLOTS, Segment, Side};
use telecl_wire::handshake::{Ping, Pong, ShareMemory, Welcome};
use telecl_wire::request::Message;
use telecl_wire::{Header, decode, encode};
use zerocopy::IntoBytes;

use crate::client::{Broker, hello};

/// Where the parts of a segment are, as its documentation says: lines of 128 bytes, 64 KiB of control, rings, slots.
const LINE: u64 = 128;
const CONTROL: u64 = 64 << 10;
/// What the driver fills, and what the worker fills.
pub(crate) const TO_WORKER: u64 = 0;
pub(crate) const TO_DRIVER: u64 = 1;

pub(crate) fn tail(direction: u64) -> u64 {
    LINE + direction * (3 + SLOTS as u64) * LINE
}

pub(crate) fn head(direction: u64) -> u64 {
    tail(direction) + LINE
}

pub(crate) fn sleeping(direction: u64) -> u64 {
    tail(direction) + 2 * LINE
}

pub(crate) fn slot_state(direction: u64, slot: u64) -> u64 {
    tail(direction) + (3 + slot) * LINE
}

pub(crate) fn ring(direction: u64) -> u64 {
    CONTROL + direction * RING as u64
}

pub(crate) fn slot(direction: u64, slot: u64) -> u64 {
    CONTROL + 2 * RING as u64 + (direction * SLOTS as u64 + slot) * SLOT as u64
}

/// The frame of a message.
pub(crate) fn frame<'a, M: Message<'a>>(message: &M, payload: &[u8]) -> Vec<u8> {
    let body = encode(message);
    [Header::new(M::OPCODE, body.len(), payload.len()).as_bytes(), &body, payload].concat()
}

/// The frame of a message whose payload is said to be in a slot.
pub(crate) fn slot_frame<'a, M: Message<'a>>(message: &M, slot: u32, len: usize) -> Vec<u8> {
    let body = encode(message);
    [Header::new(M::OPCODE, body.len(), len).in_slot(slot).as_bytes(), &body].concat()
}

/// A connection that has been welcomed, and its session.
pub(crate) fn greet(broker: &Broker) -> (UnixStream, u64) {
    let Address::Unix(path) = &broker.address else { panic!("no Unix socket") };
    let mut socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(&frame(&hello(), &[])).unwrap();
    let mut header = [0; Header::LEN];
    socket.read_exact(&mut header).unwrap();
    let mut body = vec![0; Header::parse(&header).unwrap().body_len()];
    socket.read_exact(&mut body).unwrap();
    let session = decode::<Welcome<'_>>(&body).unwrap().session;
    (socket, session)
}

/// Sends `ShareMemory` with these descriptors.
pub(crate) fn offer(socket: &UnixStream, descriptors: &[BorrowedFd<'_>]) {
    let bytes = frame(&ShareMemory {}, &[]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()));
}

/// A session through shared memory.
pub(crate) struct Peer {
    pub(crate) session: u64,
    pub(crate) socket: UnixStream,
    /// The same memory, to be written at any place.
    pub(crate) memfd: File,
    pub(crate) segment: Arc<Segment>,
    producer: Producer,
    consumer: Consumer,
    received: Vec<u8>,
    pings: u64,
}

impl Peer {
    pub(crate) fn new(broker: &Broker) -> Peer {
        Peer::with(broker, |memfd| vec![memfd])
    }

    /// Offers what `descriptors` makes of the segment's.
    pub(crate) fn with<'a>(
        broker: &Broker,
        descriptors: impl for<'m> FnOnce(BorrowedFd<'m>) -> Vec<BorrowedFd<'m>> + 'a,
    ) -> Peer {
        let (socket, session) = greet(broker);
        let (segment, memfd) = Segment::create().unwrap();
        offer(&socket, &descriptors(memfd.as_fd()));
        let (producer, consumer) = segment.endpoint(Side::Driver);
        let (memfd, received) = (File::from(memfd), Vec::new());
        Peer { session, socket, memfd, segment, producer, consumer, received, pings: 0 }
    }

    /// Puts bytes into the ring as a driver would; whether all of them were taken before the worker was gone or had enough.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> bool {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !bytes.is_empty() {
            // A ring that was spoilt takes nothing more, which is what was wanted.
            let Ok(written) = self.producer.write(bytes) else { return false };
            bytes = &bytes[written..];
            self.producer.publish();
            if !self.ring() {
                return false;
            }
            if written == 0 {
                if Instant::now() > deadline {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        true
    }

    /// Wakes the worker, whether it sleeps or not; `false` if it is gone.
    pub(crate) fn ring(&self) -> bool {
        let rung = rustix::net::send(&self.socket, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        matches!(rung, Ok(_) | Err(rustix::io::Errno::AGAIN))
    }

    /// Writes into the segment behind everybody's back.
    pub(crate) fn poke(&self, at: u64, bytes: &[u8]) {
        self.memfd.write_all_at(bytes, at).unwrap();
    }

    pub(crate) fn peek(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        self.memfd.read_exact_at(&mut word, at).unwrap();
        u64::from_ne_bytes(word)
    }

    /// Whether the worker answers a ping. Everything else that it sends is dropped.
    pub(crate) fn is_served(&mut self) -> bool {
        self.pings += 1;
        let number = self.pings;
        self.write(&frame(&Ping { number }, &[])) && self.wait_for(|opcode, _| opcode == Pong::OPCODE)
    }

    /// Takes bytes, whatever they are; how many, or an error if the worker's positions are wrong.
    pub(crate) fn consume(&mut self, buffer: &mut [u8]) -> Result<usize, Corrupt> {
        self.consumer.read(buffer)
    }

    /// Takes frames until one is wanted; `false` if the connection ends before.
    pub(crate) fn wait_for(&mut self, mut wanted: impl FnMut(u16, &[u8]) -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut buffer = [0; 4096];
        loop {
            while let Some((opcode, body)) = self.next_frame() {
                if wanted(opcode, &body) {
                    return true;
                }
            }
            let read = self.consumer.read(&mut buffer).unwrap();
            self.received.extend_from_slice(&buffer[..read]);
            if read == 0 {
                if self.is_closed() {
                    return false;
                }
                assert!(Instant::now() < deadline, "the worker says nothing");
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// What has arrived as a whole: number and body. A payload in a slot is given back unread.
    fn next_frame(&mut self) -> Option<(u16, Vec<u8>)> {
        let header = Header::parse(self.received.first_chunk()?).unwrap();
        let payload = if header.slot().is_some() { 0 } else { header.payload_len() };
        let len = Header::LEN + header.body_len() + payload;
        if self.received.len() < len {
            return None;
        }
        if let Some(slot) = header.slot() {
            drop(self.segment.received_slot(Side::Driver, slot).unwrap());
        }
        let frame: Vec<u8> = self.received.drain(..len).collect();
        Some((header.opcode.get(), frame[Header::LEN..Header::LEN + header.body_len()].to_vec()))
    }

    /// Whether the worker has hung up. Takes the bells that have come.
    fn is_closed(&self) -> bool {
        let mut bells = [0; 64];
        loop {
            match rustix::net::recv(&self.socket, &mut bells[..], rustix::net::RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return true,
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
    }
}
