//! The sixteen bytes in front of every frame.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{DecodeError, MAX_STREAMS};

/// The longest body a frame may have: room for the information about hundreds of devices.
pub const MAX_BODY: usize = 4 << 20;

/// The longest payload a frame may have. Senders cut at [`crate::CHUNK`]; the rest is tolerance.
pub const MAX_PAYLOAD: usize = 4 << 20;

/// Stands before every frame; `body_len` and `payload_len` bytes follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    pub opcode: U16,
    /// [`IN_SLOT`], [`COMPRESSED`], [`ON_STREAM`] or zero.
    pub flags: U16,
    pub body_len: U32,
    /// Bytes on the wire, or in the slot.
    pub payload_len: U32,
    /// Which slot has the payload, if it is in one; its length when it is decompressed, if it is compressed; in the highest
    /// byte the stream on which it comes, if it comes on one; else zero.
    pub slot: U32,
}

/// The payload does not follow: it is in a slot of the memory that both sides share.
const IN_SLOT: U16 = U16::new(1);

/// The payload is an LZ4 block.
const COMPRESSED: U16 = U16::new(2);

/// The payload does not follow: it comes on another stream of the session.
const ON_STREAM: U16 = U16::new(4);

/// Where the stream stands in `slot`.
const STREAM_SHIFT: u32 = 24;

const _: () = assert!(size_of::<Header>() == Header::LEN);

impl Header {
    pub const LEN: usize = 16;

    /// The header of a frame whose parts are within the limits; senders guarantee that they are.
    pub fn new(opcode: u16, body_len: usize, payload_len: usize) -> Header {
        debug_assert!(body_len <= MAX_BODY && payload_len <= MAX_PAYLOAD);
        Header {
            opcode: U16::new(opcode),
            flags: U16::ZERO,
            body_len: U32::new(body_len as u32),
            payload_len: U32::new(payload_len as u32),
            slot: U32::ZERO,
        }
    }

    /// The same header, of a frame whose payload is in this slot.
    #[must_use]
    pub fn in_slot(self, slot: u32) -> Header {
        Header { flags: IN_SLOT, slot: U32::new(slot), ..self }
    }

    /// The same header, of a frame whose payload has been compressed to `len` bytes, which are fewer than it had.
    #[must_use]
    pub fn compressed(self, len: usize) -> Header {
        debug_assert!(self.flags == U16::ZERO && (1..self.payload_len()).contains(&len));
        Header { flags: COMPRESSED, payload_len: U32::new(len as u32), slot: self.payload_len, ..self }
    }

    /// The same header, of a frame whose payload comes on this stream, one of [`MAX_STREAMS`].
    #[must_use]
    pub fn on_stream(self, stream: usize) -> Header {
        debug_assert!(stream < MAX_STREAMS);
        Header { flags: ON_STREAM, slot: U32::new((stream as u32) << STREAM_SHIFT), ..self }
    }

    /// Reads a header and refuses one whose lengths nobody may ask memory for.
    pub fn parse(bytes: &[u8; Header::LEN]) -> Result<Header, DecodeError> {
        let header = Header::read_from_bytes(bytes).map_err(|_| DecodeError::Truncated)?;
        if header.flags != IN_SLOT && (header.flags, header.slot) != (U16::ZERO, U32::ZERO) {
            header.check_flags()?;
        }
        if header.body_len() > MAX_BODY || header.payload_len() > MAX_PAYLOAD {
            return Err(DecodeError::TooLong);
        }
        Ok(header)
    }

    #[cold]
    fn check_flags(&self) -> Result<(), DecodeError> {
        match self.flags {
            COMPRESSED => self.check_compressed(),
            ON_STREAM => self.check_stream(),
            _ => Err(DecodeError::BadHeader),
        }
    }

    /// A compressed payload has something in it, and is shorter than what it stands for.
    fn check_compressed(&self) -> Result<(), DecodeError> {
        let raw = self.slot.get() as usize;
        if !(1..raw).contains(&self.payload_len()) {
            return Err(DecodeError::BadHeader);
        }
        if raw > MAX_PAYLOAD { Err(DecodeError::TooLong) } else { Ok(()) }
    }

    fn check_stream(&self) -> Result<(), DecodeError> {
        let (streams, slot) = (0..(MAX_STREAMS as u32) << STREAM_SHIFT, self.slot.get());
        let is_one = streams.contains(&slot) && slot.trailing_zeros() >= STREAM_SHIFT;
        if is_one { Ok(()) } else { Err(DecodeError::BadHeader) }
    }

    pub fn body_len(&self) -> usize {
        self.body_len.get() as usize
    }

    pub fn payload_len(&self) -> usize {
        self.payload_len.get() as usize
    }

    /// Whether the payload follows as it is.
    pub fn is_plain(&self) -> bool {
        self.flags == U16::ZERO
    }

    /// The slot that has the payload, if it does not follow.
    pub fn slot(&self) -> Option<u32> {
        (self.flags == IN_SLOT).then(|| self.slot.get())
    }

    /// The stream on which the payload comes, if it does not follow.
    pub fn stream(&self) -> Option<usize> {
        (self.flags == ON_STREAM).then(|| (self.slot.get() >> STREAM_SHIFT) as usize)
    }

    /// How many bytes a compressed payload stands for.
    pub fn decompressed_len(&self) -> Option<usize> {
        (self.flags == COMPRESSED).then(|| self.slot.get() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_its_bytes() {
        let header = Header::new(7, 12, 4096);
        let bytes: [u8; Header::LEN] = header.as_bytes().try_into().unwrap();
        assert_eq!(Header::parse(&bytes), Ok(header));
        assert_eq!(header.slot(), None);
        let header = header.in_slot(3);
        let bytes: [u8; Header::LEN] = header.as_bytes().try_into().unwrap();
        assert_eq!(Header::parse(&bytes).map(|header| header.slot()), Ok(Some(3)));
        assert_eq!(header.decompressed_len(), None);
    }

    #[test]
    fn a_compressed_payload_has_two_lengths() {
        let header = Header::new(7, 12, 4096).compressed(100);
        assert_eq!((header.payload_len(), header.decompressed_len(), header.slot()), (100, Some(4096), None));
        let bytes: [u8; Header::LEN] = header.as_bytes().try_into().unwrap();
        assert_eq!(Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn a_compressed_payload_is_shorter_than_what_it_stands_for_and_that_is_bounded() {
        let most = MAX_PAYLOAD as u32;
        for (flags, wire, raw, verdict) in [
            (2, 1, 2, None),
            (2, most - 1, most, None),
            (2, 0, 0, Some(DecodeError::BadHeader)),
            (2, 0, 100, Some(DecodeError::BadHeader)),
            (2, 100, 0, Some(DecodeError::BadHeader)),
            (2, 100, 100, Some(DecodeError::BadHeader)),
            (2, 101, 100, Some(DecodeError::BadHeader)),
            (2, 100, most + 1, Some(DecodeError::TooLong)),
            (2, most + 1, most + 2, Some(DecodeError::TooLong)),
            (2, 100, u32::MAX, Some(DecodeError::TooLong)),
            // In a slot and compressed.
            (3, 100, 200, Some(DecodeError::BadHeader)),
            // On a stream that cannot be, and on one and compressed.
            (4, 100, 200, Some(DecodeError::BadHeader)),
            (6, 100, 200, Some(DecodeError::BadHeader)),
        ] {
            let mut bytes = [0; Header::LEN];
            bytes[2..4].copy_from_slice(&u16::to_le_bytes(flags));
            bytes[8..12].copy_from_slice(&u32::to_le_bytes(wire));
            bytes[12..].copy_from_slice(&u32::to_le_bytes(raw));
            assert_eq!(Header::parse(&bytes).err(), verdict, "{flags} {wire} {raw}");
        }
    }

    #[test]
    fn a_payload_may_come_on_another_stream() {
        for stream in 0..MAX_STREAMS {
            let header = Header::new(7, 12, 4096).on_stream(stream);
            let bytes: [u8; Header::LEN] = header.as_bytes().try_into().unwrap();
            let parsed = Header::parse(&bytes).unwrap();
            assert_eq!((parsed.stream(), parsed.slot(), parsed.payload_len()), (Some(stream), None, 4096));
        }
        assert_eq!(Header::new(7, 12, 4096).in_slot(1).stream(), None);
        for slot in [(MAX_STREAMS as u32) << 24, 1, (1 << 24) + 1, u32::MAX] {
            let mut bytes: [u8; Header::LEN] = Header::new(7, 12, 4096).on_stream(1).as_bytes().try_into().unwrap();
            bytes[12..].copy_from_slice(&slot.to_le_bytes());
            assert_eq!(Header::parse(&bytes), Err(DecodeError::BadHeader), "{slot:#x}");
        }
    }

    #[test]
    fn flags_without_meaning_are_refused() {
        let mut bytes: [u8; Header::LEN] = Header::new(7, 12, 4096).as_bytes().try_into().unwrap();
        bytes[12] = 1;
        assert_eq!(Header::parse(&bytes), Err(DecodeError::BadHeader), "a slot, but not the flag");
        bytes[2] = 4;
        assert_eq!(Header::parse(&bytes), Err(DecodeError::BadHeader));
    }

    #[test]
    fn lengths_beyond_the_limits_are_refused() {
        let mut bytes = [0u8; Header::LEN];
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Header::parse(&bytes), Err(DecodeError::TooLong));
    }

    #[test]
    fn text_of_another_protocol_is_refused() {
        assert_eq!(Header::parse(b"GET / HTTP/1.1\r\n"), Err(DecodeError::BadHeader));
    }
}
