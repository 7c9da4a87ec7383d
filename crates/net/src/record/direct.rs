//! Records that are received and opened where their content belongs.
//!
//! A large payload comes in full records, one behind the other. So it is known where each part of each will lie before it
//! comes, and one system call can put the contents in their places and the few bytes between them elsewhere. A record
//! that turns out to be another goes the usual way, through the buffer.
//!
//! Until a record has been opened, its place has bytes that nobody vouches for. They are not reported as received, and
//! what was not received in the end is an error for whoever wanted it.

use std::io::{self, IoSliceMut};

use ring::aead::{Aad, Tag};

use super::open::changed;
use super::{APPLICATION_DATA, BATCH, FULL, HEAD, Opener, PLAIN, TAIL};

/// What lies between two contents: the type and the tag of the one before, and the head of the next.
const BETWEEN: usize = TAIL + HEAD;

/// Where the contents are not. The first has only a head, the last only a type and a tag.
type Margins = [[u8; BETWEEN]; BATCH + 1];

impl Opener {
    /// Has full records received by one call of `receive`, and opens them: how much of `target` they have filled, 0 at the
    /// end of the connection. `None` if nothing can be said, and the usual way is to be gone.
    pub(crate) fn open_directly(
        &mut self,
        target: &mut [u8],
        receive: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        // Behind the last content there must be room for its type.
        let count = (target.len().saturating_sub(1) / PLAIN).min(BATCH);
        if count == 0 || !self.is_clear() {
            return Ok(None);
        }
        let mut margins: Margins = [[0; BETWEEN]; BATCH + 1];
        let received = receive(&mut places(target, &mut margins, count))?;
        if received == 0 {
            return Ok(Some(0));
        }
        self.bulk = true;
        let mut opened = 0;
        while opened < received / FULL && is_full(head(&margins, opened)) {
            let tail = margins[opened + 1].first_chunk().copied().unwrap_or([0; TAIL]);
            let outcome = self.open_at(&mut target[opened * PLAIN..][..PLAIN + 1], head(&margins, opened), tail);
            let kind = match self.noted(outcome) {
                Ok(kind) => kind,
                // What came before is not lost; the next to ask hears of this.
                Err(_) if opened > 0 => return Ok(Some(opened * PLAIN)),
                Err(error) => return Err(error),
            };
            if kind != APPLICATION_DATA {
                self.room(PLAIN + 1)[..PLAIN].copy_from_slice(&target[opened * PLAIN..][..PLAIN]);
                self.buffer[PLAIN] = kind;
                self.put_aside(target, &margins, opened + 1, received, PLAIN + 1);
                let accepted = self.accept(0..PLAIN + 1);
                let accepted = self.noted(accepted);
                return if opened > 0 { Ok(Some(opened * PLAIN)) } else { accepted.map(|_| None) };
            }
            self.empty = 0;
            opened += 1;
        }
        if received > opened * FULL {
            self.room(received - opened * FULL);
            self.put_aside(target, &margins, opened, received, 0);
        }
        Ok((opened > 0).then_some(opened * PLAIN))
    }

    /// Opens a full record whose content lies in all of `place` but for its last byte, which is another's. Returns the
    /// record's type, or 0 if it is padded.
    fn open_at(&mut self, place: &mut [u8], head: [u8; HEAD], tail: [u8; TAIL]) -> io::Result<u8> {
        let (kind, tag) = (tail[0], Tag::try_from(&tail[1..]).map_err(|_| changed())?);
        let others = std::mem::replace(&mut place[PLAIN], kind);
        let nonce = self.key.nonce();
        let opened = self.key.aead.open_in_place_separate_tag(nonce, Aad::from(head), tag, place, 0..);
        let opened = opened.map(|_| ()).map_err(|_| changed());
        let kind = std::mem::replace(&mut place[PLAIN], others);
        opened.map(|()| kind)
    }

    /// Puts what was received from record `first` on where the usual way finds it, behind so many bytes of the buffer.
    fn put_aside(&mut self, target: &[u8], margins: &Margins, first: usize, received: usize, start: usize) {
        let (mut end, mut left) = (start, received - first * FULL);
        for number in first..received.div_ceil(FULL) {
            let content = &target[number * PLAIN..][..PLAIN];
            for part in [&head(margins, number)[..], content, &margins[number + 1][..TAIL]] {
                let n = part.len().min(left);
                self.buffer[end..end + n].copy_from_slice(&part[..n]);
                (end, left) = (end + n, left - n);
            }
        }
        (self.plain, self.raw) = (0..0, start..end);
    }
}

/// Where the bytes of `count` full records go, in the order in which they come.
fn places<'b>(target: &'b mut [u8], margins: &'b mut Margins, count: usize) -> Vec<IoSliceMut<'b>> {
    let mut places = Vec::with_capacity(2 * count + 1);
    let mut contents = target.chunks_exact_mut(PLAIN);
    for (number, margin) in margins[..=count].iter_mut().enumerate() {
        let start = if number == 0 { TAIL } else { 0 };
        let end = if number == count { TAIL } else { BETWEEN };
        places.push(IoSliceMut::new(&mut margin[start..end]));
        if number < count {
            places.extend(contents.next().map(IoSliceMut::new));
        }
    }
    places
}

/// The head of a record.
fn head(margins: &Margins, number: usize) -> [u8; HEAD] {
    margins[number].last_chunk().copied().unwrap_or_default()
}

fn is_full([kind, _, _, high, low]: [u8; HEAD]) -> bool {
    kind == APPLICATION_DATA && usize::from(u16::from_be_bytes([high, low])) == PLAIN + TAIL
}
