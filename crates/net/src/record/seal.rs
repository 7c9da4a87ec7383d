//! The sending half of an encrypted connection.

use std::io;

use ring::aead::Aad;

use super::{APPLICATION_DATA, BATCH, Key, MOST_RECORDS, NEXT_KEY, PLAIN, TAIL, broken};

/// The sending half.
pub(crate) struct Sealer {
    pub(super) key: Key,
    pub(super) most_records: u64,
    /// Records that are ready, of which the first `sent` bytes have left.
    ready: Vec<u8>,
    sent: usize,
}

impl Sealer {
    pub(super) fn new(key: Key) -> Sealer {
        Sealer { key, most_records: MOST_RECORDS, ready: Vec::new(), sent: 0 }
    }

    /// Whether everything that was sealed has left.
    pub(crate) fn is_clear(&self) -> bool {
        self.sent == self.ready.len()
    }

    /// What is still to leave.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.ready[self.sent..]
    }

    /// So much of it has left.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Seals some of the two, and shortens them by it. Everything before must have left.
    pub(crate) fn seal(&mut self, first: &mut &[u8], second: &mut &[u8]) -> io::Result<usize> {
        self.ready.clear();
        self.sent = 0;
        let mut sealed = 0;
        for _ in 0..BATCH {
            if first.is_empty() && second.is_empty() {
                break;
            }
            if self.key.sequence >= self.most_records {
                self.seal_record(NEXT_KEY, &[], &[])?;
                self.key.advance()?;
            }
            let head = first.len().min(PLAIN);
            let tail = second.len().min(PLAIN - head);
            self.seal_record(APPLICATION_DATA, &first[..head], &second[..tail])?;
            (*first, *second) = (&first[head..], &second[tail..]);
            sealed += head + tail;
        }
        Ok(sealed)
    }

    pub(super) fn seal_record(&mut self, kind: u8, first: &[u8], second: &[u8]) -> io::Result<()> {
        let length = u16::try_from(first.len() + second.len() + TAIL).map_err(io::Error::other)?;
        let [high, low] = length.to_be_bytes();
        let head = [APPLICATION_DATA, 3, 3, high, low];
        self.ready.extend_from_slice(&head);
        let start = self.ready.len();
        self.ready.extend_from_slice(first);
        self.ready.extend_from_slice(second);
        self.ready.push(kind);
        let nonce = self.key.nonce();
        let tag = self.key.aead.seal_in_place_separate_tag(nonce, Aad::from(head), &mut self.ready[start..]);
        let tag = tag.map_err(|_| broken("a record could not be sealed"))?;
        self.ready.extend_from_slice(tag.as_ref());
        Ok(())
    }
}
