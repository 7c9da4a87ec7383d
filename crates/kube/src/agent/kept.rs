//! What was found out about tokens: known by their hashes, for a minute at most, because a token is void as soon as its
//! pod is gone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// How long an answer is kept at most.
const LONGEST: Duration = Duration::from_secs(60);

/// How many are kept.
const MOST: usize = 4096;

type Hash = [u8; 32];

/// Answers about tokens. Nobody who reads this memory has the tokens.
#[derive(Debug)]
pub(super) struct Kept<T> {
    /// Each with the time up to which it holds.
    answers: Mutex<HashMap<Hash, (Instant, T)>>,
}

impl<T: Clone> Kept<T> {
    pub(super) fn new() -> Kept<T> {
        Kept { answers: Mutex::default() }
    }

    pub(super) fn find(&self, token: &str, now: Instant) -> Option<T> {
        let hash = hash(token);
        self.lock().get(&hash).filter(|(until, _)| *until > now).map(|(_, answer)| answer.clone())
    }

    /// Keeps an answer about a token that is good for so long. Where there are too many, it is not kept.
    pub(super) fn keep(&self, token: &str, answer: T, good_for: Duration, now: Instant) {
        let hash = hash(token);
        let mut answers = self.lock();
        if answers.len() >= MOST {
            answers.retain(|_, (until, _)| *until > now);
        }
        if answers.len() < MOST {
            answers.insert(hash, (now + good_for.min(LONGEST), answer));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Hash, (Instant, T)>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_answer_holds_as_long_as_its_token_but_no_longer_than_a_minute() {
        let (kept, now) = (Kept::new(), Instant::now());
        kept.keep("brief", 1, 10 * SECOND, now);
        kept.keep("lasting", 2, 3600 * SECOND, now);
        kept.keep("expired", 3, Duration::ZERO, now);
        assert_eq!((kept.find("brief", now), kept.find("lasting", now)), (Some(1), Some(2)));
        assert_eq!((kept.find("expired", now), kept.find("another", now)), (None, None));
        assert_eq!((kept.find("brief", now + 9 * SECOND), kept.find("brief", now + 10 * SECOND)), (Some(1), None));
        assert_eq!((kept.find("lasting", now + 59 * SECOND), kept.find("lasting", now + LONGEST)), (Some(2), None));
    }

    #[test]
    fn there_are_never_too_many_and_those_that_are_over_make_room() {
        let (kept, now) = (Kept::new(), Instant::now());
        for number in 0..MOST + 10 {
            kept.keep(&number.to_string(), number, if number < 5 { SECOND } else { LONGEST }, now);
        }
        let count = || kept.lock().len();
        assert_eq!((count(), kept.find(&MOST.to_string(), now)), (MOST, None));
        kept.keep("late", 7, LONGEST, now + 2 * SECOND);
        assert_eq!((count(), kept.find("late", now + 2 * SECOND)), (MOST - 4, Some(7)));
    }
}
