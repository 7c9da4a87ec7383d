//! What stands before data on a lasting line.

use std::io;

/// How many bytes a head has.
pub(super) const HEAD: usize = 16;

/// The head of a record: so many bytes of data follow, and so many have been received from the peer so far.
///
/// A record without data says that the sender is there, and what it has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) len: u32,
    /// Nothing follows, ever: the sender ends on purpose.
    pub(super) bye: bool,
    pub(super) received: u64,
}

impl Record {
    pub(super) fn bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4] = self.bye.into();
        bytes[8..].copy_from_slice(&self.received.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; HEAD]) -> io::Result<Record> {
        let [a, b, c, d, bye, 0, 0, 0, received @ ..] = *bytes else { return Err(broken("a record is malformed")) };
        let (len, received) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(received));
        match bye {
            0 => Ok(Record { len, bye: false, received }),
            1 if len == 0 => Ok(Record { len, bye: true, received }),
            _ => Err(broken("a record is malformed")),
        }
    }
}

/// The peer does not keep to the rules.
pub(super) fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_what_it_was_and_nonsense_is_refused() {
        for record in [
            Record { len: 0, bye: false, received: 0 },
            Record { len: u32::MAX, bye: false, received: u64::MAX },
            Record { len: 0, bye: true, received: 1 << 40 },
        ] {
            assert_eq!(Record::parse(&record.bytes()).unwrap(), record);
        }
        let mut bytes = Record { len: 1, bye: true, received: 0 }.bytes();
        assert!(Record::parse(&bytes).is_err(), "a farewell has no data");
        bytes = Record { len: 1, bye: false, received: 0 }.bytes();
        for place in 4..8 {
            let mut wrong = bytes;
            wrong[place] = 2;
            assert!(Record::parse(&wrong).is_err());
        }
    }
}
