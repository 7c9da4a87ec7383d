//! Payloads that are shorter on the wire than in memory: LZ4 blocks.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use telecl_wire::{DecodeError, Header};
use zerocopy::IntoBytes;

use crate::decision::Decision;
use crate::{Compression, Line};

/// How much of a payload is compressed to see what that brings. Half of a small one.
const SAMPLE: usize = 64 << 10;

/// A link's pace is measured with at least so many bytes.
const STRETCH: usize = 256 << 10;

/// What a link takes without making the sender wait, while other streams could take it, needs no compression.
const UNHINDERED: usize = 8 << 20;

/// Sends large payloads over one socket, compressed where that pays. Every socket has its own.
pub struct Compressor {
    /// Whether it pays; `None` if it does not matter.
    decision: Option<Decision>,
    table: CompressTable,
    packed: Vec<u8>,
    flow: Flow,
    /// Bytes that went as they are since the link's pace was measured last.
    unhindered: usize,
}

impl Compressor {
    /// `None` if nothing is to be compressed: because that was agreed, or because nothing is gained between two programs of
    /// one machine.
    pub fn new(agreed: Compression, line: &Line) -> Option<Compressor> {
        let decision = match agreed {
            Compression::Off => return None,
            Compression::Auto if line.is_local() => return None,
            Compression::Auto => Some(Decision::new()),
            Compression::Always => None,
        };
        let (table, packed, flow) = (CompressTable::small(), Vec::new(), Flow::default());
        Some(Compressor { decision, table, packed, flow, unhindered: 0 })
    }

    /// Sends `head` and the payload of the last frame in it, whose header is at `start`, and which is not compressed yet.
    pub fn send(&mut self, line: &Line, head: &mut [u8], start: usize, payload: &[u8]) -> io::Result<()> {
        let begin = Instant::now();
        if self.decision.as_ref().is_some_and(Decision::wants_sample) {
            self.taste(payload);
        }
        match &mut self.decision {
            Some(decision) if !decision.is_on() => {
                if decision.wants_measure() {
                    self.unhindered += payload.len();
                    let unhindered = &mut self.unhindered;
                    self.flow.send(line, head, payload, |bytes, time| {
                        *unhindered = 0;
                        decision.link_took(bytes, time);
                    })?;
                } else {
                    self.flow.forget();
                    line.send_all(head, payload)?;
                }
                decision.sent_plain(payload.len());
                return Ok(());
            }
            _ => self.flow.forget(),
        }
        let len = self.pack(payload).min(payload.len());
        if len < payload.len() {
            let header = head.get_mut(start..).and_then(|head| head.first_chunk_mut::<{ Header::LEN }>());
            let header = header.ok_or(io::ErrorKind::InvalidInput)?;
            let plain = Header::parse(header).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            header.copy_from_slice(plain.compressed(len).as_bytes());
            line.send_all(head, &self.packed[..len])?;
        } else {
            line.send_all(head, payload)?;
        }
        if let Some(decision) = &mut self.decision {
            decision.sent_packed(payload.len(), len, begin.elapsed());
        }
        Ok(())
    }

    /// Whether a payload of `len` bytes may go on another stream, as it is; then it counts as sent.
    pub(crate) fn lets_go(&mut self, len: usize) -> bool {
        let Some(decision) = self.decision.as_mut().filter(|decision| !decision.is_on()) else { return false };
        if decision.wants_measure() {
            if self.unhindered < UNHINDERED {
                return false;
            }
            self.unhindered = 0;
            decision.give_up();
        }
        self.flow.forget();
        decision.sent_plain(len);
        true
    }

    /// Compresses a part from the middle: what data begins with is often special.
    fn taste(&mut self, payload: &[u8]) {
        let len = SAMPLE.min(payload.len() / 2);
        let sample = &payload[(payload.len() - len) / 2..][..len];
        // The first time it may have to wait for memory.
        self.pack(sample);
        let begin = Instant::now();
        let packed = self.pack(sample);
        if let Some(decision) = &mut self.decision {
            decision.sampled(len, packed, begin.elapsed());
        }
    }

    /// Compresses into `packed`, and says how long it is there.
    fn pack(&mut self, payload: &[u8]) -> usize {
        let room = get_maximum_output_size(payload.len());
        if self.packed.len() < room {
            self.packed.resize(room, 0);
        }
        // Fails only where there is too little room.
        compress_into_with_table(payload, &mut self.packed, &mut self.table).unwrap_or(usize::MAX)
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").field("decision", &self.decision).finish_non_exhaustive()
    }
}

/// Decompresses a payload that must fill `target` exactly.
pub(crate) fn unpack(packed: &[u8], target: &mut [u8]) -> Result<(), DecodeError> {
    match decompress_into(packed, target) {
        Ok(len) if len == target.len() => Ok(()),
        _ => Err(DecodeError::BadCompression),
    }
}

/// Measures how fast a link takes bytes.
///
/// The system takes what it has room for at once. Only between two moments at which it had none, it has passed on exactly
/// what it got, but for what its room has grown by. That was the link's pace, if it did not run dry meanwhile because the
/// sender had something else to do.
#[derive(Debug, Default)]
struct Flow {
    full: Option<Full>,
}

/// A moment at which the system had no room.
#[derive(Clone, Copy, Debug)]
struct Full {
    at: Instant,
    /// All the room there was.
    capacity: usize,
    /// What was sent since then.
    bytes: usize,
    /// What it took at once, after what had to wait.
    taken: usize,
}

impl Flow {
    fn forget(&mut self) {
        self.full = None;
    }

    /// As [`Line::send_all`]; tells `took` of bytes that the link has taken, and in what time.
    fn send(&mut self, line: &Line, head: &[u8], payload: &[u8], took: impl FnOnce(usize, Duration)) -> io::Result<()> {
        let mut stuck = None;
        line.send_watched(head, payload, &mut |taken, left, capacity| {
            stuck = Some((Instant::now(), taken, left, capacity));
        })?;
        match stuck {
            None => self.accept(head.len() + payload.len(), || line.send_buffer()),
            Some((at, taken, left, capacity)) => {
                self.accept(taken, || capacity);
                if let Some((bytes, time)) = self.fill(at, capacity, left) {
                    took(bytes, time);
                }
            }
        }
        Ok(())
    }

    /// There was room for so many bytes. If it was for half of what the system keeps, the rest may have been nothing.
    fn accept(&mut self, bytes: usize, capacity: impl FnOnce() -> usize) {
        self.full = self.full.and_then(|full| {
            let full = Full { bytes: full.bytes + bytes, taken: full.taken + bytes, ..full };
            (full.taken <= capacity() / 2).then_some(full)
        });
    }

    /// There is no more room, and so many bytes are to wait. Returns what the link has taken since there was none before,
    /// and the time.
    fn fill(&mut self, now: Instant, capacity: usize, waiting: usize) -> Option<(usize, Duration)> {
        let passed_on = |full: &Full| full.bytes.saturating_sub(capacity.saturating_sub(full.capacity));
        match &mut self.full {
            Some(full) if passed_on(full) < STRETCH => {
                (full.bytes, full.taken) = (full.bytes + waiting, 0);
                None
            }
            full => {
                let before = full.replace(Full { at: now, capacity, bytes: waiting, taken: 0 });
                before.map(|full| (passed_on(&full), now.saturating_duration_since(full.at)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use telecl_wire::handshake::Ping;
    use telecl_wire::request::{Message, Stage};

    use super::*;
    use crate::{FrameReceiver, FrameSender, Progress, ReceiveError, Stream};

    const MIB: usize = 1 << 20;

    /// Two ends of a connection over loopback.
    fn sockets() -> (Stream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        (Stream::from_fd(near.into()), Stream::from_fd(far.into()))
    }

    #[test]
    fn payloads_go_on_other_streams_when_it_is_clear_that_they_are_not_compressed() {
        let (near, _far) = sockets();
        let decision = Some(Decision::new());
        let near = Line::from(near);
        let compressor = || Compressor::new(Compression::Always, &near).unwrap();
        assert!(!compressor().lets_go(MIB), "always compressed");
        let mut compressor = Compressor { decision, ..compressor() };
        assert!(!compressor.lets_go(MIB), "nothing is known about the link");
        // A link that never makes the sender wait.
        compressor.unhindered = UNHINDERED;
        let gone = (0..100).take_while(|_| compressor.lets_go(MIB)).count();
        assert!((8..16).contains(&gone), "after {gone} MiB the link is measured again");
        // One of 1 Gbit/s, on which a sample promises much.
        let decision = compressor.decision.as_mut().unwrap();
        for _ in 0..16 {
            decision.link_took(MIB, Duration::from_millis(9));
            decision.sent_plain(MIB);
        }
        assert!(decision.wants_sample());
        decision.sampled(SAMPLE, SAMPLE / 2, Duration::from_micros(100));
        compressor.unhindered = UNHINDERED;
        assert!(!compressor.lets_go(MIB));
    }

    fn link() -> (FrameSender, FrameReceiver) {
        let (near, far) = sockets();
        let mut sender = FrameSender::new(near);
        sender.set_compression(Compression::Always);
        assert!(sender.compresses());
        (sender, FrameReceiver::new(far))
    }

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|i| b"what is said twice, is said for nothing. "[i % 41] ^ u8::from(i % 1000 == 7)).collect()
    }

    /// Has nothing that could be said more shortly.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..len).map(|_| (next() >> 32) as u8).collect()
    }

    fn packed(plain: &[u8]) -> Vec<u8> {
        lz4_flex::block::compress(plain)
    }

    #[test]
    fn what_is_packed_is_unpacked_and_nothing_else() {
        let plain = text(100_000);
        let good = packed(&plain);
        assert!(good.len() < plain.len() / 10);
        let mut target = vec![0; plain.len()];
        assert_eq!(unpack(&good, &mut target), Ok(()));
        assert_eq!(target, plain);
        let bad = Err(DecodeError::BadCompression);
        assert_eq!(unpack(&good, &mut vec![0; plain.len() - 1]), bad, "longer than announced");
        assert_eq!(unpack(&good, &mut vec![0; plain.len() + 1]), bad, "shorter than announced");
        assert_eq!(unpack(&good[..good.len() - 1], &mut target), bad, "truncated");
        assert_eq!(unpack(&[], &mut target), bad);
        assert_eq!(unpack(&[0xff; 100], &mut target), bad);
        assert_eq!(unpack(&vec![0xff; 4 << 20], &mut target), bad);
        assert_eq!(unpack(&noise(5000), &mut target), bad);
        // A match that begins before the beginning.
        assert_eq!(unpack(&[0x1f, b'x', 0xff, 0xff, 0xff, 0x00], &mut target), bad);
    }

    #[test]
    fn no_damage_makes_it_panic() {
        let plain = [text(3000), noise(1000), vec![0; 3000]].concat();
        let good = packed(&plain);
        let damage = noise(20_000);
        for round in damage.chunks_exact(4) {
            let mut bad = good.clone();
            let place = usize::from(u16::from_le_bytes([round[0], round[1]])) % bad.len();
            bad[place] = round[2];
            bad.truncate(bad.len() - usize::from(round[3] % 4));
            // It may be lucky.
            let _ = unpack(&bad, &mut vec![0; plain.len()]);
        }
    }

    #[test]
    fn payloads_arrive_as_they_were_however_they_are_read() {
        let (mut sender, mut receiver) = link();
        let sent = [text(1 << 20), noise(1 << 20), vec![0; 4 << 20], text(20_000), text(100), noise(20_000)];
        let payloads = sent.clone();
        let sending = thread::spawn(move || {
            for _ in 0..4 {
                for (id, payload) in (0..).zip(&payloads) {
                    sender.push(&Stage { id }, payload).unwrap();
                    sender.push(&Ping { number: 7 }, &[]).unwrap();
                }
            }
            sender.flush().unwrap();
        });
        for way in 0..4 {
            for (id, payload) in (0..).zip(&sent) {
                let mut frame = receiver.next_frame().unwrap().unwrap();
                assert_eq!(telecl_wire::decode::<Stage>(frame.body), Ok(Stage { id }));
                assert_eq!(frame.payload.len(), payload.len());
                match way {
                    0 => assert!(frame.payload.read_to_vec().unwrap() == *payload),
                    1 => {
                        let mut rows = vec![0; payload.len()];
                        rows.chunks_mut(777).for_each(|row| frame.payload.read_into(row).unwrap());
                        assert!(frame.payload.is_empty() && rows == *payload);
                        let beyond = frame.payload.read_into(&mut [0]).unwrap_err();
                        assert!(matches!(beyond, ReceiveError::Protocol(DecodeError::Truncated)), "{beyond}");
                    }
                    2 => {
                        // Half of it, and the rest is skipped.
                        let mut half = vec![0; payload.len() / 2];
                        frame.payload.read_bulk_into(&mut half).unwrap();
                        assert!(half == payload[..half.len()]);
                    }
                    _ => {}
                }
                assert_eq!(receiver.next_frame().unwrap().unwrap().opcode, Ping::OPCODE);
            }
        }
        sending.join().unwrap();
    }

    #[test]
    fn a_compressed_payload_that_nobody_reads_is_skipped_as_it_arrives() {
        let (mut sender, mut receiver) = link();
        sender.push(&Stage { id: 1 }, &text(1 << 20)).unwrap();
        assert_eq!(receiver.wait().unwrap(), Progress::Ready);
        sender.send(&Ping { number: 7 }, &[]).unwrap();
        assert_eq!(receiver.wait().unwrap(), Progress::Ready);
        assert_eq!(receiver.frame().opcode, Ping::OPCODE);
        assert_eq!(receiver.look().unwrap(), Progress::Nothing);
    }

    #[test]
    fn what_does_not_get_shorter_goes_as_it_is() {
        for (payload, shorter) in [(noise(100_000), false), (text(100_000), true), (text(1000), false)] {
            let (near, far) = sockets();
            let mut sender = FrameSender::new(near);
            sender.set_compression(Compression::Always);
            sender.send(&Stage { id: 1 }, &payload).unwrap();
            let mut header = [0; Header::LEN];
            far.receive_all(&mut header).unwrap();
            let header = Header::parse(&header).unwrap();
            let raw = header.decompressed_len();
            assert_eq!((raw, header.payload_len() < payload.len()), (shorter.then_some(payload.len()), shorter));
        }
    }

    #[test]
    fn a_peer_that_lies_about_a_compressed_payload_breaks_the_protocol() {
        let plain = text(100_000);
        let good = packed(&plain);
        let (len, raw) = (good.len(), plain.len());
        let mut garbage = noise(len);
        garbage[0] = 0xff;
        // What is sent, how long that is said to be, and how long what it stands for.
        for (bytes, said, raw) in
            [(&good, len, raw + 1), (&good, len, raw - 1), (&good, len - 1, raw), (&garbage, len, raw)]
        {
            for whole in [true, false] {
                let (near, far) = sockets();
                let mut receiver = FrameReceiver::new(far);
                let body = telecl_wire::encode(&Stage { id: 1 });
                let header = Header::new(Stage::OPCODE, body.len(), raw).compressed(said);
                near.send_all(header.as_bytes(), &body).unwrap();
                near.send_all(bytes, &[]).unwrap();
                let mut frame = receiver.next_frame().unwrap().unwrap();
                assert_eq!(frame.payload.len(), raw);
                let mut target = vec![0; if whole { raw } else { 10 }];
                let error = frame.payload.read_into(&mut target).unwrap_err();
                assert_eq!(error.to_string(), "peer broke the protocol: compressed payload is malformed");
            }
        }
    }

    #[test]
    fn a_peer_that_ends_within_a_compressed_payload_is_gone() {
        let (near, far) = sockets();
        let mut receiver = FrameReceiver::new(far);
        let body = telecl_wire::encode(&Stage { id: 1 });
        let header = Header::new(Stage::OPCODE, body.len(), 1 << 20).compressed(1 << 19);
        near.send_all(header.as_bytes(), &body).unwrap();
        near.send_all(&[0; 1000], &[]).unwrap();
        drop(near);
        let error = receiver.next_frame().unwrap().unwrap().payload.read_to_vec().unwrap_err();
        assert!(matches!(error, ReceiveError::Io(ref io) if io.kind() == io::ErrorKind::UnexpectedEof), "{error}");
    }

    #[test]
    fn nothing_is_compressed_on_one_machine_unless_somebody_insists() {
        let (near, _far) = sockets();
        assert!(near.is_local());
        let near = Line::from(near);
        assert!(Compressor::new(Compression::Auto, &near).is_none());
        assert!(Compressor::new(Compression::Off, &near).is_none());
        assert!(Compressor::new(Compression::Always, &near).is_some());
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Stream::from_fd(unix.into()).is_local());
    }

    #[test]
    fn a_link_is_measured_between_two_moments_without_room() {
        const MIB: usize = 1 << 20;
        let (start, mut flow) = (Instant::now(), Flow::default());
        let at = |ms| start + Duration::from_millis(ms);
        flow.accept(MIB, || MIB);
        assert_eq!(flow.fill(at(0), MIB, MIB), None, "nothing is known about the time before");
        flow.accept(MIB / 4, || MIB);
        assert_eq!(flow.fill(at(10), MIB, MIB / 2), Some((MIB + MIB / 4, Duration::from_millis(10))));
        // Small ones are joined.
        flow.forget();
        assert_eq!(flow.fill(at(20), MIB, MIB / 16), None);
        assert_eq!(flow.fill(at(21), MIB, MIB / 16), None);
        assert_eq!(flow.fill(at(22), MIB, MIB / 4), None);
        assert_eq!(flow.fill(at(25), MIB, MIB), Some((MIB * 3 / 8, Duration::from_millis(5))));
        // Half of it is only in a larger room.
        assert_eq!(flow.fill(at(30), MIB + MIB / 2, 0), Some((MIB / 2, Duration::from_millis(5))));
    }

    #[test]
    fn a_link_that_may_have_run_dry_is_not_measured() {
        const MIB: usize = 1 << 20;
        let (start, mut flow) = (Instant::now(), Flow::default());
        assert_eq!(flow.fill(start, MIB, MIB), None);
        flow.accept(MIB / 3, || MIB);
        flow.accept(MIB / 3, || MIB);
        assert_eq!(flow.fill(start + Duration::from_secs(1), MIB, MIB), None);
        assert!(flow.fill(start + Duration::from_secs(2), MIB, MIB).is_some());
    }
}
