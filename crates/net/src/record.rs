//! TLS 1.3 records (RFC 8446, section 5), once a handshake has made the keys.
//!
//! rustls makes the handshake, and then gives the keys away: a session's socket goes from one process to another, and both
//! directions are to run at full speed without a lock in common, which its own connection does not allow. So each
//! direction has its own half here, its own lock and its own buffer.
//!
//! One thing is ours: before a key has sealed so many records that AES-GCM would wear out, the sender says so in a record
//! of the type [`NEXT_KEY`], and both sides go on with the next key. TLS has a message for that too, but its next key
//! comes from a secret that rustls keeps for itself. Ours comes from the exporter of the same handshake.

mod direct;
mod open;
mod seal;

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ring::aead::{self, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use rustls::ConnectionTrafficSecrets;
use telecl_wire::{Field, Reader};

pub(crate) use open::{Opened, Opener};
pub(crate) use seal::Sealer;

/// The most plaintext in a record.
const PLAIN: usize = 16 << 10;

/// Type, version and length.
const HEAD: usize = 5;

/// What sealing adds behind the plaintext: its type, and the tag.
const TAIL: usize = 1 + 16;

/// The longest record that we take: peers may pad.
const LONGEST: usize = HEAD + PLAIN + 256;

/// What every record costs besides its plaintext.
pub(crate) const OVERHEAD: usize = HEAD + TAIL;

/// A record with as much plaintext as it can have, and no padding.
pub(crate) const FULL: usize = PLAIN + OVERHEAD;

/// Records that are sealed before a system call, and room for as many that are received by one.
const BATCH: usize = 8;

/// Types of content, RFC 8446, appendix B.1; the last one is ours.
const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;
const NEXT_KEY: u8 = 62;

/// A key seals so many records at most: 128 GiB. RFC 8446, section 5.5, allows AES-GCM 2^24.5.
const MOST_RECORDS: u64 = 1 << 23;

/// Empty records in a row. Nobody needs one.
const MOST_EMPTY: u32 = 16;

/// Which algorithm seals the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Suite {
    Aes128Gcm = 1,
    Aes256Gcm = 2,
    ChaCha20Poly1305 = 3,
}

impl Suite {
    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Suite::Aes128Gcm => &aead::AES_128_GCM,
            Suite::Aes256Gcm => &aead::AES_256_GCM,
            Suite::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    fn of_number(number: u8) -> Option<Suite> {
        [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305].into_iter().find(|suite| *suite as u8 == number)
    }
}

/// The key of one direction, and how often it was used.
struct Key {
    suite: Suite,
    bytes: Vec<u8>,
    iv: [u8; 12],
    sequence: u64,
    /// What the next key is made from.
    chain: [u8; 32],
    aead: LessSafeKey,
}

impl Key {
    fn new(suite: Suite, bytes: &[u8], iv: [u8; 12], sequence: u64, chain: [u8; 32]) -> Option<Key> {
        let aead = LessSafeKey::new(UnboundKey::new(suite.algorithm(), bytes).ok()?);
        Some(Key { suite, bytes: bytes.to_vec(), iv, sequence, chain, aead })
    }

    /// From what rustls gives away.
    fn of_secrets(sequence: u64, secrets: &ConnectionTrafficSecrets, chain: [u8; 32]) -> Option<Key> {
        let (suite, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Suite::Aes128Gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Suite::Aes256Gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Suite::ChaCha20Poly1305, key, iv),
            _ => return None,
        };
        Key::new(suite, key.as_ref(), iv.as_ref().try_into().ok()?, sequence, chain)
    }

    /// The nonce of the next record; each is used once.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Goes on with the next key. From it nobody can tell the one before.
    fn advance(&mut self) -> io::Result<()> {
        let chain = hmac::Key::new(hmac::HMAC_SHA256, &self.chain);
        let derive = |label: &[u8]| hmac::sign(&chain, label);
        let next: [u8; 32] = derive(b"telecl next").as_ref().try_into().map_err(io::Error::other)?;
        let iv: [u8; 12] = derive(b"telecl iv").as_ref()[..12].try_into().map_err(io::Error::other)?;
        let key = derive(b"telecl key");
        let bytes = &key.as_ref()[..self.suite.algorithm().key_len()];
        *self = Key::new(self.suite, bytes, iv, 0, next).ok_or_else(|| broken("there is no next key"))?;
        Ok(())
    }

    fn put(&self, state: &mut Vec<u8>) {
        (self.suite as u8).put(state);
        self.bytes.as_slice().put(state);
        self.iv.put(state);
        self.sequence.put(state);
        self.chain.put(state);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Key> {
        let suite = Suite::of_number(Field::take(reader).ok()?)?;
        let bytes: &[u8] = Field::take(reader).ok()?;
        let (iv, sequence, chain) = (Field::take(reader).ok()?, Field::take(reader).ok()?, Field::take(reader).ok()?);
        Key::new(suite, bytes, iv, sequence, chain)
    }
}

/// Both halves of an encrypted connection. Its two locks are never held together.
pub(crate) struct Crypt {
    sealer: Mutex<Sealer>,
    opener: Mutex<Opener>,
}

impl fmt::Debug for Crypt {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Crypt")
    }
}

impl Crypt {
    /// From what rustls gives away after a handshake: the keys to send and to receive with, and what the next ones are made
    /// from.
    pub(crate) fn new(secrets: &rustls::ExtractedSecrets, send: [u8; 32], receive: [u8; 32]) -> Option<Crypt> {
        let (sequence, key) = &secrets.tx;
        let sealer = Sealer::new(Key::of_secrets(*sequence, key, send)?);
        let (sequence, key) = &secrets.rx;
        let opener = Opener::new(Key::of_secrets(*sequence, key, receive)?);
        Some(Crypt { sealer: Mutex::new(sealer), opener: Mutex::new(opener) })
    }

    pub(crate) fn sealer(&self) -> MutexGuard<'_, Sealer> {
        self.sealer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn opener(&self) -> MutexGuard<'_, Opener> {
        self.opener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that another process needs to go on; `None` in the middle of a record.
    pub(crate) fn state(&self) -> Option<Vec<u8>> {
        let mut state = Vec::new();
        {
            let sealer = self.sealer();
            sealer.is_clear().then(|| sealer.key.put(&mut state))?;
        }
        let opener = self.opener();
        opener.raw.is_empty().then(|| opener.key.put(&mut state))?;
        let plain: &[u8] = &opener.buffer[opener.plain.clone()];
        plain.put(&mut state);
        Some(state)
    }

    /// As another process left it.
    pub(crate) fn of_state(state: &[u8]) -> Option<Crypt> {
        let mut reader = Reader::new(state);
        let sealer = Sealer::new(Key::take(&mut reader)?);
        let mut opener = Opener::new(Key::take(&mut reader)?);
        let plain: &[u8] = Field::take(&mut reader).ok()?;
        opener.put_back(plain)?;
        Some(Crypt { sealer: Mutex::new(sealer), opener: Mutex::new(opener) })
    }
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(suite: Suite) -> (Sealer, Opener) {
        let key = || Key::new(suite, &vec![7; suite.algorithm().key_len()], [3; 12], 0, [5; 32]).unwrap();
        (Sealer::new(key()), Opener::new(key()))
    }

    fn seal(sealer: &mut Sealer, mut bytes: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::new();
        while !bytes.is_empty() {
            sealer.seal(&mut bytes, &mut &[][..]).unwrap();
            sealed.extend_from_slice(sealer.unsent());
        }
        sealed
    }

    fn feed(opener: &mut Opener, mut bytes: &[u8], step: usize) -> io::Result<Vec<u8>> {
        let mut opened = Vec::new();
        let mut target = vec![0; 10_000];
        loop {
            match opener.take(&mut target)? {
                Opened::Bytes(n) => opened.extend_from_slice(&target[..n]),
                Opened::End => return Ok(opened),
                Opened::Needs(least) => {
                    if bytes.is_empty() {
                        return Ok(opened);
                    }
                    let room = opener.room(least);
                    let n = room.len().min(bytes.len()).min(step);
                    room[..n].copy_from_slice(&bytes[..n]);
                    opener.received(n);
                    bytes = &bytes[n..];
                }
            }
        }
    }

    #[test]
    fn what_is_sealed_is_opened_however_it_arrives() {
        let bytes: Vec<u8> = (0..500_000u32).map(|i| (i % 251) as u8).collect();
        for suite in [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305] {
            for step in [7, 1000, 16_406, usize::MAX] {
                let (mut sealer, mut opener) = pair(suite);
                let sealed = seal(&mut sealer, &bytes);
                assert_eq!(sealed.len(), bytes.len() + bytes.len().div_ceil(PLAIN) * OVERHEAD);
                assert_eq!(feed(&mut opener, &sealed, step).unwrap(), bytes, "{suite:?} {step}");
            }
        }
    }

    /// As [`feed`], where everything that is wanted is known beforehand, as of a large payload.
    fn feed_directly(opener: &mut Opener, mut bytes: &[u8], target: &mut [u8], step: usize) -> io::Result<usize> {
        let mut filled = 0;
        while filled < target.len() {
            let direct = opener.open_directly(&mut target[filled..], |places| {
                let mut received = 0;
                for place in places {
                    let n = place.len().min(bytes.len()).min(step - received);
                    place[..n].copy_from_slice(&bytes[..n]);
                    (bytes, received) = (&bytes[n..], received + n);
                }
                Ok(received)
            })?;
            match direct {
                Some(0) => break,
                Some(n) => filled += n,
                None => match opener.take(&mut target[filled..])? {
                    Opened::Bytes(n) => filled += n,
                    Opened::End => break,
                    Opened::Needs(_) if bytes.is_empty() => break,
                    Opened::Needs(least) => {
                        let room = opener.room(least);
                        let n = least.min(bytes.len());
                        room[..n].copy_from_slice(&bytes[..n]);
                        opener.received(n);
                        bytes = &bytes[n..];
                    }
                },
            }
        }
        Ok(filled)
    }

    #[test]
    fn what_is_wanted_is_opened_where_it_belongs_however_it_arrives() {
        let bytes: Vec<u8> = (0..500_000u32).map(|i| (i % 251) as u8).collect();
        for suite in [Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
            for step in [3, 1000, HEAD, FULL - 1, FULL, FULL + HEAD, 3 * FULL + 20_000, usize::MAX / 2] {
                for first in [0, 1, 40, PLAIN - 1, PLAIN] {
                    let (mut sealer, mut opener) = pair(suite);
                    sealer.most_records = 20;
                    let sealed = [seal(&mut sealer, &bytes[..first]), seal(&mut sealer, &bytes[first..])].concat();
                    let mut target = vec![0; bytes.len()];
                    assert_eq!(feed_directly(&mut opener, &sealed, &mut target, step).unwrap(), bytes.len());
                    assert!(target == bytes, "{suite:?} {step} {first}");
                }
            }
        }
    }

    #[test]
    fn records_that_are_not_as_expected_are_understood_where_content_was_to_be() {
        let full = |kind: u8, len: usize| {
            let (mut sealer, _) = pair(Suite::Aes128Gcm);
            sealer.seal_record(APPLICATION_DATA, &[1; PLAIN], &[]).unwrap();
            // As long as a full one, but padded.
            let content = [&vec![2; len][..], &[kind], &vec![0; PLAIN - 1 - len]].concat();
            sealer.seal_record(0, &content, &[]).unwrap();
            sealer.seal_record(APPLICATION_DATA, &[3; PLAIN], &[]).unwrap();
            sealer.unsent().to_vec()
        };
        for len in [0, 1, 1000, PLAIN - 1] {
            let (_, mut opener) = pair(Suite::Aes128Gcm);
            let mut target = vec![9; 2 * PLAIN + len];
            let filled = feed_directly(&mut opener, &full(APPLICATION_DATA, len), &mut target, usize::MAX / 2);
            assert_eq!(filled.unwrap(), target.len());
            assert!(target == [vec![1; PLAIN], vec![2; len], vec![3; PLAIN]].concat(), "{len}");
        }
        let mut target = vec![9; 4 * PLAIN];
        let (_, mut opener) = pair(Suite::Aes128Gcm);
        let error = feed_directly(&mut opener, &full(ALERT, 2), &mut target, usize::MAX / 2).unwrap_err();
        assert!(error.to_string().contains("ended the connection"), "{error}");
        assert!(target[..PLAIN] == [1; PLAIN]);
        let (_, mut opener) = pair(Suite::Aes128Gcm);
        assert!(feed_directly(&mut opener, &full(22, 5), &mut target, usize::MAX / 2).is_err());
        assert!(opener.take(&mut target).is_err(), "nothing comes after a mistake");
    }

    #[test]
    fn a_record_that_was_changed_is_noticed_where_it_belongs() {
        let (mut sealer, _) = pair(Suite::Aes256Gcm);
        let sealed = seal(&mut sealer, &[7; 3 * PLAIN]);
        for at in [0, 3, 4, HEAD, HEAD + PLAIN, FULL - 1, FULL, FULL + HEAD, FULL + 9000, 2 * FULL - 17, 2 * FULL - 1] {
            let (_, mut opener) = pair(Suite::Aes256Gcm);
            let (mut changed, mut target) = (sealed.clone(), vec![0; 4 * PLAIN]);
            changed[at] ^= 1;
            let good = at / FULL * PLAIN;
            let filled = feed_directly(&mut opener, &changed, &mut target, usize::MAX / 2);
            assert!(filled.as_ref().map_or(true, |filled| *filled == good), "{at}: {filled:?}");
            // A longer record waits for more that never comes.
            let wrong_length = at % FULL == 3 || at % FULL == 4;
            assert!(filled.is_err() || wrong_length, "{at}");
        }
    }

    #[test]
    fn keys_are_changed_before_they_wear_out_and_both_sides_go_on() {
        let (mut sealer, mut opener) = pair(Suite::Aes128Gcm);
        sealer.most_records = 3;
        let bytes: Vec<u8> = (0..400_000u32).map(|i| (i % 241) as u8).collect();
        let sealed = seal(&mut sealer, &bytes);
        assert_eq!(feed(&mut opener, &sealed, 5000).unwrap(), bytes);
        assert_ne!(opener.key.chain, [5; 32]);
        assert_eq!(opener.key.chain, sealer.key.chain);
    }

    #[test]
    fn a_changed_repeated_or_left_out_record_is_noticed() {
        let sealed = |count: usize| {
            let (mut sealer, _) = pair(Suite::Aes256Gcm);
            (0..count).map(|i| seal(&mut sealer, &[i as u8; 100])).collect::<Vec<_>>()
        };
        let records = sealed(3);
        for at in 0..records[0].len() {
            let (_, mut opener) = pair(Suite::Aes256Gcm);
            let mut changed = records[0].clone();
            changed[at] ^= 1;
            // A longer record waits for more that never comes.
            let opened = feed(&mut opener, &changed, usize::MAX);
            assert!(opened.as_ref().map_or(true, Vec::is_empty), "{at}: {opened:?}");
        }
        for order in [[0, 0], [1, 0], [0, 2]] {
            let (_, mut opener) = pair(Suite::Aes256Gcm);
            let bytes = order.map(|i| records[i].clone()).concat();
            let mut all = Vec::new();
            let failed = loop {
                match feed(&mut opener, if all.is_empty() { &bytes } else { &[] }, usize::MAX) {
                    Ok(opened) if opened.is_empty() => break false,
                    Ok(opened) => all.extend(opened),
                    Err(_) => break true,
                }
            };
            assert!(failed, "{order:?}");
        }
    }

    #[test]
    fn the_state_of_a_connection_goes_on_elsewhere() {
        let crypt = || {
            let (sealer, opener) = pair(Suite::Aes128Gcm);
            Crypt { sealer: Mutex::new(sealer), opener: Mutex::new(opener) }
        };
        let (here, peer) = (crypt(), crypt());
        let first = seal(&mut peer.sealer(), b"already here, and more");
        peer.sealer().advance(first.len());
        {
            let mut opener = here.opener();
            opener.room(1)[..first.len()].copy_from_slice(&first);
            opener.received(first.len());
            assert_eq!(opener.take(&mut [0; 7]).unwrap(), Opened::Bytes(7));
        }
        let state = here.state().unwrap();
        let there = Crypt::of_state(&state).unwrap();
        let mut rest = [0; 100];
        assert!(there.opener().has_some());
        assert_eq!(there.opener().take(&mut rest).unwrap(), Opened::Bytes(15));
        assert_eq!(&rest[..15], b" here, and more");
        let second = seal(&mut peer.sealer(), b"next");
        assert_eq!(feed(&mut there.opener(), &second, 3).unwrap(), b"next");
        let mut back = &b"back"[..];
        there.sealer().seal(&mut back, &mut &[][..]).unwrap();
        assert_eq!(here.state(), Some(state), "what another does with it changes nothing here");
        assert!(there.state().is_none(), "something has not left");
        assert!(Crypt::of_state(&[1, 2, 3]).is_none() && Crypt::of_state(&[]).is_none());
    }

    #[test]
    fn empty_records_and_unknown_kinds_end_the_connection() {
        let (mut sealer, mut opener) = pair(Suite::Aes128Gcm);
        for _ in 0..=MOST_EMPTY {
            sealer.seal_record(APPLICATION_DATA, &[], &[]).unwrap();
        }
        assert!(feed(&mut opener, sealer.unsent(), usize::MAX).is_err());
        let (mut sealer, mut opener) = pair(Suite::Aes128Gcm);
        // A key update of TLS.
        sealer.seal_record(22, &[24, 0, 0, 1, 0], &[]).unwrap();
        assert!(feed(&mut opener, sealer.unsent(), usize::MAX).is_err());
        let (mut sealer, mut opener) = pair(Suite::Aes128Gcm);
        sealer.seal_record(ALERT, &[2, 48], &[]).unwrap();
        let error = feed(&mut opener, sealer.unsent(), usize::MAX).unwrap_err().to_string();
        assert!(error.contains("UnknownCA"), "{error}");
    }
}
