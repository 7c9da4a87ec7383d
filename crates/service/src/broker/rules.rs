//! The policy in force: read at the start, and again when its file changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use telecl_policy::{Policy, PolicyError};
use tracing::{info, warn};

/// The policy in force. Its lock is held for a few lines; the file is read without it.
#[derive(Debug)]
pub(crate) struct Rules {
    /// `None`: nobody has written one, and everybody may do everything.
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    policy: Arc<Policy>,
    /// Of the file that was read last, whether it was right or not.
    stamp: Option<Stamp>,
}

/// By what one content of a file is told from the next: device, inode, length, and two times in seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp([u64; 3], [i64; 4]);

impl Stamp {
    /// `None` if there is no such file.
    pub(crate) fn of(path: &Path) -> Option<Stamp> {
        let meta = fs::metadata(path).ok()?;
        let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
        Some(Stamp([meta.dev(), meta.ino(), meta.len()], times))
    }
}

impl Rules {
    /// Reads the policy. One that is wrong is an error: at the start there is none before it that could stay in force.
    pub(crate) fn load(path: Option<PathBuf>) -> Result<Rules, PolicyError> {
        // Before reading: what is written meanwhile is then read again.
        let stamp = path.as_deref().and_then(Stamp::of);
        let policy = match &path {
            Some(path) => Policy::load(path)?,
            None => Policy::default(),
        };
        if let Some(path) = &path {
            warn_of(&policy);
            info!(policy = %path.display(), "policy in force");
        }
        Ok(Rules { path, state: Mutex::new(State { policy: Arc::new(policy), stamp }) })
    }

    /// One that does not change.
    #[cfg(test)]
    pub(crate) fn fixed(policy: Policy) -> Rules {
        Rules { path: None, state: Mutex::new(State { policy: Arc::new(policy), stamp: None }) }
    }

    /// What holds now.
    pub(crate) fn current(&self) -> Arc<Policy> {
        Arc::clone(&self.lock().policy)
    }

    /// Whether there is a file that may change.
    pub(crate) fn has_file(&self) -> bool {
        self.path.is_some()
    }

    /// Reads the file again if it has changed, or if told to. `true` if another policy is in force now; a wrong one is
    /// logged, and the one before it stays.
    pub(crate) fn look(&self, anyway: bool) -> bool {
        let Some(path) = &self.path else { return false };
        let stamp = Stamp::of(path);
        if !anyway && stamp == self.lock().stamp {
            return false;
        }
        let read = Policy::load(path);
        let mut state = self.lock();
        state.stamp = stamp;
        match read {
            Ok(policy) => {
                state.policy = Arc::new(policy);
                let policy = Arc::clone(&state.policy);
                drop(state);
                warn_of(&policy);
                info!(policy = %path.display(), "policy read again: new sessions are under it, running ones go on");
                true
            }
            Err(error) => {
                drop(state);
                // One line of the log for each line of the file that is wrong.
                for reason in error.to_string().lines() {
                    warn!(policy = %path.display(), reason, "the policy is wrong; the one before it stays in force");
                }
                false
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn warn_of(policy: &Policy) {
    for problem in policy.warnings() {
        warn!(%problem, "the policy has something that is probably not meant");
    }
}

#[cfg(test)]
mod tests {
    use telecl_policy::Tenant;

    use super::*;

    fn sessions(rules: &Rules) -> Option<u32> {
        rules.current().for_tenant(&Tenant::anonymous()).sessions.value.map(u32::from)
    }

    #[test]
    fn a_policy_is_replaced_by_one_that_is_right_and_by_no_other() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("policy.toml");
        assert!(Rules::load(Some(path.clone())).unwrap_err().to_string().contains("policy.toml"));
        fs::write(&path, "[defaults]\nsessions = 1\n").unwrap();
        let rules = Rules::load(Some(path.clone())).unwrap();
        assert_eq!(sessions(&rules), Some(1));
        assert!(!rules.look(false) && rules.look(true));
        fs::write(&path, "[defaults]\nsessions = 22\n").unwrap();
        assert!(rules.look(false) && !rules.look(false));
        assert_eq!(sessions(&rules), Some(22));
        for wrong in ["[defaults]\nsesions = 3\n", "nonsense"] {
            fs::write(&path, wrong).unwrap();
            assert!(!rules.look(false));
            assert_eq!(sessions(&rules), Some(22));
        }
        fs::remove_file(&path).unwrap();
        assert!(!rules.look(false));
        assert_eq!(sessions(&rules), Some(22));
        // As editors do it.
        fs::write(place.path().join("new"), "[defaults]\nsessions = 3\n").unwrap();
        fs::rename(place.path().join("new"), &path).unwrap();
        assert!(rules.look(false));
        assert_eq!(sessions(&rules), Some(3));
    }

    #[test]
    fn without_a_file_everything_is_allowed() {
        let rules = Rules::load(None).unwrap();
        assert!(!rules.has_file() && !rules.look(true));
        assert_eq!(sessions(&rules), None);
    }
}
