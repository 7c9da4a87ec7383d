//! Users that workers become where the service is root: each its own, so that none can touch another's files, memory or
//! processes even where nothing else keeps it from them.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The numbers to choose from. The lock is held while one is chosen.
#[derive(Debug)]
pub(crate) struct Users {
    range: RangeInclusive<u32>,
    taken: Arc<Mutex<HashSet<u32>>>,
}

/// Nobody else's until it is dropped.
#[derive(Debug)]
pub(crate) struct User {
    id: u32,
    taken: Arc<Mutex<HashSet<u32>>>,
}

impl Users {
    pub(crate) fn new(range: RangeInclusive<u32>) -> Users {
        Users { range, taken: Arc::default() }
    }

    /// The first user that no worker of this service is, and no process of the machine: another service, or the one
    /// before this, may have the same range.
    pub(crate) fn take(&self) -> io::Result<User> {
        let mut taken = lock(&self.taken);
        let living = users_of_processes();
        let free = self.range.clone().find(|id| !taken.contains(id) && !living.contains(id));
        let Some(id) = free else {
            let (first, last) = (self.range.start(), self.range.end());
            return Err(io::Error::other(format!("all user ids from {first} to {last} are in use; widen worker_uids")));
        };
        taken.insert(id);
        Ok(User { id, taken: Arc::clone(&self.taken) })
    }
}

impl User {
    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for User {
    fn drop(&mut self) {
        lock(&self.taken).remove(&self.id);
    }
}

fn lock(taken: &Mutex<HashSet<u32>>) -> MutexGuard<'_, HashSet<u32>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

fn users_of_processes() -> HashSet<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes =
        entries.filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit));
    processes.filter_map(|process| process.metadata().ok()).map(|process| process.uid()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_nobody_elses_until_it_is_given_back() {
        let own = rustix::process::geteuid().as_raw();
        let users = Users::new(1_900_123_001..=1_900_123_002);
        let (one, two) = (users.take().unwrap(), users.take().unwrap());
        assert_eq!((one.id(), two.id()), (1_900_123_001, 1_900_123_002));
        assert!(users.take().unwrap_err().to_string().contains("widen worker_uids"));
        drop(one);
        assert_eq!(users.take().unwrap().id(), 1_900_123_001);
        assert!(Users::new(own..=own).take().is_err(), "a process of this user lives");
    }
}
