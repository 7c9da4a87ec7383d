//! The sixteen bytes in front of every frame.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// The longest body a frame may have: room for the information about hundreds of devices.
pub const MAX_BODY: usize = 4 << 20;

/// The longest payload a frame may have. Senders cut at [`crate::CHUNK`]; the rest is tolerance.
pub const MAX_PAYLOAD: usize = 4 << 20;

/// Stands before every frame; `body_len` and `payload_len` bytes follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    pub opcode: U16,
    /// [`IN_SLOT`] or zero.
    pub flags: U16,
    pub body_len: U32,
    pub payload_len: U32,
    /// Which slot has the payload, if it is in one; else zero.
    pub slot: U32,
}

/// The payload does not follow: it is in a slot of the memory that both sides share.
const IN_SLOT: U16 = U16::new(1);

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

    /// Reads a header and refuses one whose lengths nobody may ask memory for.
    pub fn parse(bytes: &[u8; Header::LEN]) -> Result<Header, DecodeError> {
        let header = Header::read_from_bytes(bytes).map_err(|_| DecodeError::Truncated)?;
        if header.flags != IN_SLOT && (header.flags, header.slot) != (U16::ZERO, U32::ZERO) {
            return Err(DecodeError::BadHeader);
        }
        if header.body_len() > MAX_BODY || header.payload_len() > MAX_PAYLOAD {
            return Err(DecodeError::TooLong);
        }
        Ok(header)
    }

    pub fn body_len(&self) -> usize {
        self.body_len.get() as usize
    }

    pub fn payload_len(&self) -> usize {
        self.payload_len.get() as usize
    }

    /// The slot that has the payload, if it does not follow.
    pub fn slot(&self) -> Option<u32> {
        (self.flags == IN_SLOT).then(|| self.slot.get())
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
    }

    #[test]
    fn flags_without_meaning_are_refused() {
        let mut bytes: [u8; Header::LEN] = Header::new(7, 12, 4096).as_bytes().try_into().unwrap();
        bytes[12] = 1;
        assert_eq!(Header::parse(&bytes), Err(DecodeError::BadHeader), "a slot, but not the flag");
        bytes[2] = 2;
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
