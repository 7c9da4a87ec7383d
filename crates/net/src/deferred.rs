//! Frames that are put off: one whose payload is being received on another stream, and those that came after it.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use crate::ReceiveError;

/// How many payloads may be on their way, and how many frames put off in all.
const MOST_COMING: usize = 16;
const MOST: usize = 256;

/// A payload that is being received on another stream. Who receives it sends a `T`, or is gone.
#[derive(Debug)]
pub struct Coming<T> {
    pub stream: usize,
    pub received: Receiver<T>,
}

/// A frame that need not be put off any longer: its number, its body, and what its payload came to, if it had one.
pub type Due<T> = (u16, Vec<u8>, Option<T>);

/// Frames in the order of their arrival.
#[derive(Debug)]
pub struct Deferred<T> {
    frames: VecDeque<PutOff<T>>,
    /// How many of them have a payload.
    coming: usize,
}

#[derive(Debug)]
struct PutOff<T> {
    opcode: u16,
    body: Vec<u8>,
    payload: Payload<T>,
}

#[derive(Debug)]
enum Payload<T> {
    Nothing,
    Coming(Coming<T>),
    Here(T),
}

impl<T> Default for Deferred<T> {
    fn default() -> Self {
        Deferred { frames: VecDeque::new(), coming: 0 }
    }
}

impl<T> Deferred<T> {
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether another frame may be put off.
    pub fn has_room(&self) -> bool {
        self.frames.len() < MOST && self.coming < MOST_COMING
    }

    /// How many frames have a payload.
    pub fn coming(&self) -> usize {
        self.coming
    }

    pub fn push(&mut self, opcode: u16, body: &[u8], coming: Option<Coming<T>>) {
        self.coming += usize::from(coming.is_some());
        let payload = coming.map_or(Payload::Nothing, Payload::Coming);
        self.frames.push_back(PutOff { opcode, body: body.to_vec(), payload });
    }

    /// The first frame, if its payload is here.
    pub fn pop(&mut self) -> Result<Option<Due<T>>, ReceiveError> {
        if !self.look()? {
            return Ok(None);
        }
        let Some(PutOff { opcode, body, payload }) = self.frames.pop_front() else { return Ok(None) };
        let received = match payload {
            Payload::Here(received) => {
                self.coming -= 1;
                Some(received)
            }
            Payload::Nothing | Payload::Coming(_) => None,
        };
        Ok(Some((opcode, body, received)))
    }

    /// The number of the first frame.
    pub fn next_opcode(&self) -> Option<u16> {
        self.frames.front().map(|frame| frame.opcode)
    }

    /// The stream whose payload the first frame waits for.
    pub fn waits_for(&mut self) -> Result<Option<usize>, ReceiveError> {
        self.look()?;
        Ok(match self.frames.front() {
            Some(PutOff { payload: Payload::Coming(coming), .. }) => Some(coming.stream),
            _ => None,
        })
    }

    /// Waits for the first frame's payload, but no longer than `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<(), ReceiveError> {
        let Some(PutOff { payload, .. }) = self.frames.front_mut() else { return Ok(()) };
        if let Payload::Coming(coming) = payload {
            match coming.received.recv_timeout(limit) {
                Ok(received) => *payload = Payload::Here(received),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(lost()),
            }
        }
        Ok(())
    }

    /// Whether the first frame need not be put off any longer.
    fn look(&mut self) -> Result<bool, ReceiveError> {
        let Some(PutOff { payload, .. }) = self.frames.front_mut() else { return Ok(false) };
        if let Payload::Coming(coming) = payload {
            match coming.received.try_recv() {
                Ok(received) => *payload = Payload::Here(received),
                Err(TryRecvError::Empty) => return Ok(false),
                Err(TryRecvError::Disconnected) => return Err(lost()),
            }
        }
        Ok(true)
    }
}

fn lost() -> ReceiveError {
    ReceiveError::Io(io::Error::new(io::ErrorKind::UnexpectedEof, "a stream of the session is lost"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn frames_wait_for_the_payload_of_the_first() {
        let mut deferred = Deferred::default();
        let (first, received) = mpsc::channel();
        deferred.push(1, b"one", Some(Coming { stream: 5, received }));
        deferred.push(2, b"two", None);
        assert_eq!(deferred.pop().unwrap(), None);
        assert_eq!(deferred.waits_for().unwrap(), Some(5));
        deferred.wait(Duration::from_millis(1)).unwrap();
        first.send('x').unwrap();
        assert_eq!((deferred.waits_for().unwrap(), deferred.coming()), (None, 1));
        assert_eq!(deferred.pop().unwrap(), Some((1, b"one".to_vec(), Some('x'))));
        assert_eq!(deferred.next_opcode(), Some(2));
        assert_eq!(deferred.pop().unwrap(), Some((2, b"two".to_vec(), None)));
        assert!(deferred.is_empty() && deferred.coming() == 0);
    }

    #[test]
    fn a_payload_that_will_not_come_is_an_error() {
        let mut deferred = Deferred::<()>::default();
        let (_, received) = mpsc::channel();
        deferred.push(1, &[], Some(Coming { stream: 0, received }));
        assert!(deferred.pop().is_err() && deferred.waits_for().is_err() && deferred.wait(Duration::ZERO).is_err());
    }

    #[test]
    fn what_is_put_off_is_bounded() {
        let mut deferred = Deferred::<()>::default();
        while deferred.has_room() {
            deferred.push(1, &[], None);
        }
        assert_eq!(deferred.frames.len(), MOST);
    }
}
