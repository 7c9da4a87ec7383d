//! The receiving half of an encrypted connection.

use std::io;
use std::ops::Range;

use ring::aead::Aad;

use super::{ALERT, APPLICATION_DATA, BATCH, FULL, HEAD, Key, LONGEST, MOST_EMPTY, NEXT_KEY, TAIL, broken};

/// What there is to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// So many bytes.
    Bytes(usize),
    /// Nothing before so many more bytes have come.
    Needs(usize),
    /// The peer has said that nothing follows.
    End,
}

/// The receiving half.
pub(crate) struct Opener {
    pub(super) key: Key,
    pub(super) buffer: Vec<u8>,
    /// Where plaintext is that nobody has taken yet.
    pub(super) plain: Range<usize>,
    /// Where records are, whole and not, that have not been opened.
    pub(super) raw: Range<usize>,
    pub(super) empty: u32,
    /// Whether large payloads come, so that as little as possible is to pass through the buffer.
    pub(super) bulk: bool,
    ended: bool,
    /// Why nothing more can be opened.
    failed: Option<(io::ErrorKind, String)>,
}

impl Opener {
    pub(super) fn new(key: Key) -> Opener {
        Opener { key, buffer: Vec::new(), plain: 0..0, raw: 0..0, empty: 0, bulk: false, ended: false, failed: None }
    }

    /// Whether what is received next is the beginning of a record, and nothing is known that comes before it.
    pub(super) fn is_clear(&self) -> bool {
        self.plain.is_empty() && self.raw.is_empty() && !self.ended && self.failed.is_none()
    }

    /// Whether something can be taken without receiving.
    pub(crate) fn has_some(&self) -> bool {
        let more = || self.ended || self.failed.is_some() || matches!(self.whole(), Ok(Ok(_)) | Err(_));
        !self.plain.is_empty() || more()
    }

    /// Takes what there is, up to the size of `target`.
    pub(crate) fn take(&mut self, target: &mut [u8]) -> io::Result<Opened> {
        let mut taken = 0;
        loop {
            let n = self.plain.len().min(target.len() - taken);
            target[taken..taken + n].copy_from_slice(&self.buffer[self.plain.start..self.plain.start + n]);
            (self.plain.start, taken) = (self.plain.start + n, taken + n);
            if taken == target.len() && taken > 0 {
                return Ok(Opened::Bytes(taken));
            }
            match self.advance() {
                Ok(Opened::Bytes(_)) => {}
                // What came before is not lost; the next to ask hears of this.
                _ if taken > 0 => return Ok(Opened::Bytes(taken)),
                other => return other,
            }
        }
    }

    /// The next record, if nothing has gone wrong before.
    fn advance(&mut self) -> io::Result<Opened> {
        if self.ended {
            return Ok(Opened::End);
        }
        if let Some((kind, reason)) = &self.failed {
            return Err(io::Error::new(*kind, reason.clone()));
        }
        let opened = self.open_next();
        self.noted(opened)
    }

    /// After a mistake of the peer nothing more is opened.
    pub(super) fn noted<T>(&mut self, opened: io::Result<T>) -> io::Result<T> {
        opened.inspect_err(|error| self.failed = Some((error.kind(), error.to_string())))
    }

    /// Room for what is received, from `least` to as much as there is.
    pub(crate) fn room(&mut self, least: usize) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer.resize(BATCH * FULL, 0);
        }
        if self.buffer.len() - self.raw.end < least || self.raw.is_empty() {
            // All plaintext has been taken before anybody asks for more.
            self.buffer.copy_within(self.raw.clone(), 0);
            (self.raw, self.plain) = (0..self.raw.len(), 0..0);
        }
        &mut self.buffer[self.raw.end..]
    }

    /// How much of it is to be filled, where the caller takes whatever comes.
    pub(crate) fn appetite(&self) -> usize {
        if self.bulk { FULL } else { usize::MAX }
    }

    /// The caller has taken what came, and that was so much.
    pub(crate) fn fed(&mut self, bytes: usize) {
        self.bulk &= bytes >= FULL;
    }

    /// So many bytes have been put there.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.raw.end += bytes;
    }

    /// How many bytes of records wait for more.
    pub(crate) fn waiting(&self) -> usize {
        self.raw.len()
    }

    /// Puts plaintext before what there is; `None` if records wait that have not been opened, or it is too much.
    pub(crate) fn put_back(&mut self, plain: &[u8]) -> Option<()> {
        let all = [plain, &self.buffer[self.plain.clone()]].concat();
        self.raw.is_empty().then(|| self.room(0))?.get_mut(..all.len())?.copy_from_slice(&all);
        (self.plain, self.raw) = (0..all.len(), all.len()..all.len());
        Some(())
    }

    /// How long the record is that comes next, or how much of it is missing.
    fn whole(&self) -> io::Result<Result<usize, usize>> {
        let raw = &self.buffer[self.raw.clone()];
        let Some(head) = raw.first_chunk::<HEAD>() else { return Ok(Err(HEAD - raw.len())) };
        let length = HEAD + usize::from(u16::from_be_bytes([head[3], head[4]]));
        if head[0] != APPLICATION_DATA || !(HEAD + TAIL..=LONGEST).contains(&length) {
            return Err(broken("the peer sent something that is no encrypted record"));
        }
        Ok(if raw.len() < length { Err(length - raw.len()) } else { Ok(length) })
    }

    /// Opens a record.
    fn open_next(&mut self) -> io::Result<Opened> {
        let length = match self.whole()? {
            Ok(length) => length,
            Err(missing) => return Ok(Opened::Needs(missing)),
        };
        let record = self.raw.start..self.raw.start + length;
        let (head, sealed) = self.buffer[record.clone()].split_at_mut(HEAD);
        let head: [u8; HEAD] = (&*head).try_into().map_err(io::Error::other)?;
        let nonce = self.key.nonce();
        let opened = self.key.aead.open_in_place(nonce, Aad::from(head), sealed).map_err(|_| changed())?.len();
        self.raw.start = record.end;
        self.accept(record.start + HEAD..record.start + HEAD + opened)
    }

    /// Has a look at what was in a record: content, behind it its type, and then as many zeros as the peer likes.
    pub(super) fn accept(&mut self, opened: Range<usize>) -> io::Result<Opened> {
        let end = self.buffer[opened.clone()].iter().rposition(|byte| *byte != 0);
        let end = opened.start + end.ok_or_else(|| broken("the peer sent a record without a type"))?;
        let (kind, content) = (self.buffer[end], opened.start..end);
        self.empty = if content.is_empty() { self.empty + 1 } else { 0 };
        match kind {
            APPLICATION_DATA if self.empty <= MOST_EMPTY => {
                self.plain = content;
                Ok(Opened::Bytes(self.plain.len()))
            }
            NEXT_KEY if content.is_empty() => {
                self.key.advance()?;
                self.empty = 0;
                Ok(Opened::Bytes(0))
            }
            ALERT => self.alert(content),
            _ => Err(broken("the peer sent a kind of record that is not expected here")),
        }
    }

    fn alert(&mut self, content: Range<usize>) -> io::Result<Opened> {
        match self.buffer[content] {
            [_, 0] => {
                self.ended = true;
                Ok(Opened::End)
            }
            [_, code] => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                format!("the peer ended the connection: {:?}", rustls::AlertDescription::from(code)),
            )),
            _ => Err(broken("the peer sent an alert of the wrong length")),
        }
    }
}

/// A record does not fit its tag.
pub(super) fn changed() -> io::Error {
    broken("a record of the peer was changed on its way, or is not the next one")
}
