//! How often tokens were used that may be used so often.
//!
//! The count outlives the broker, in a file of its state directory. It is written before a session begins: a token that
//! may be used once is not used twice because the service was killed in between.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use telecl_identity::{Claims, TokenError, now};
use tracing::warn;

use super::records::write_whole;

/// What is longer is no such file.
const LONGEST: u64 = 16 << 20;

/// By a token's id.
type Uses = HashMap<String, Use>;

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct Use {
    times: u32,
    /// When the token does, in seconds since 1970: nobody takes it then.
    expires: u64,
}

#[derive(Debug, Default)]
pub(crate) struct TokenUses {
    /// Where they are kept, if anywhere.
    file: Option<PathBuf>,
    uses: Mutex<Uses>,
}

impl TokenUses {
    /// With what an earlier broker counted in this file.
    pub(crate) fn open(file: Option<PathBuf>) -> TokenUses {
        let uses = file.as_deref().map(read).unwrap_or_default();
        TokenUses { file, uses: Mutex::new(uses) }
    }

    /// Counts a session of this token; an error if it may not be used so often.
    pub(crate) fn use_once_more(&self, claims: &Claims) -> Result<(), TokenError> {
        let Some(most) = claims.sessions else { return Ok(()) };
        let mut uses = self.lock();
        let now = now();
        uses.retain(|_, used| used.expires > now);
        let used = uses.entry(claims.id.clone()).or_insert(Use { times: 0, expires: claims.expires });
        if used.times >= most {
            return Err(TokenError::Replayed);
        }
        used.times += 1;
        if let Some(file) = &self.file
            && let Err(error) = write(file, &uses)
        {
            warn!(file = %file.display(), %error, "a restart will forget which tokens were used");
        }
        Ok(())
    }

    /// Whether a token has been used as often as it may be.
    pub(crate) fn is_used_up(&self, claims: &Claims) -> bool {
        let times = self.lock().get(&claims.id).map_or(0, |used| used.times);
        claims.sessions.is_some_and(|most| times >= most)
    }

    fn lock(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(file: &Path) -> Uses {
    let found = match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Uses::new(),
        Err(error) => Err(error),
        Ok(facts) if facts.len() > LONGEST => Err(io::Error::other("it is too long")),
        Ok(_) => fs::read(file).and_then(|text| serde_json::from_slice(&text).map_err(io::Error::from)),
    };
    found.unwrap_or_else(|error| {
        warn!(file = %file.display(), %error, "it cannot be known how often tokens were used before");
        Uses::new()
    })
}

fn write(file: &Path, uses: &Uses) -> io::Result<()> {
    write_whole(file, &serde_json::to_vec(uses)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use telecl_policy::Tenant;

    use super::*;

    fn claims(sessions: Option<u32>) -> Claims {
        Claims { sessions, ..Claims::new(&Tenant::anonymous(), Duration::from_secs(60)).unwrap() }
    }

    #[test]
    fn a_token_is_used_as_often_as_it_may_be() {
        let uses = TokenUses::default();
        let (any, twice) = (claims(None), claims(Some(2)));
        assert!((0..100).all(|_| uses.use_once_more(&any).is_ok()) && !uses.is_used_up(&any));
        let used: Vec<_> = (0..3).map(|_| uses.use_once_more(&twice)).collect();
        assert_eq!(used, [Ok(()), Ok(()), Err(TokenError::Replayed)]);
        assert!(uses.is_used_up(&twice));
    }

    #[test]
    fn the_count_outlives_the_broker() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("uses");
        let (once, expired) = (claims(Some(1)), Claims { expires: 1, ..claims(Some(1)) });
        let uses = TokenUses::open(Some(file.clone()));
        assert_eq!((uses.use_once_more(&expired), uses.use_once_more(&once)), (Ok(()), Ok(())));
        let next = TokenUses::open(Some(file.clone()));
        assert_eq!(next.use_once_more(&once), Err(TokenError::Replayed));
        assert_eq!(next.lock().len(), 1, "what has expired is forgotten");
        for nonsense in ["", "{\"a\":1}", "[]"] {
            fs::write(&file, nonsense).unwrap();
            assert!(TokenUses::open(Some(file.clone())).lock().is_empty(), "{nonsense}");
        }
    }
}
