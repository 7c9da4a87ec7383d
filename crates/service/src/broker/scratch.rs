//! Directories for the workers' files, which go away whatever happens.
//!
//! A worker's directory is removed when it has ended. All are below one directory of the broker, which holds a
//! lock in it as long as it lives, as does each worker that may outlive it; what they have left behind is removed by the
//! next one.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use tracing::{debug, warn};

use super::confinement::Confinement;
use super::users::{User, Users};

const PREFIX: &str = "telecl-service-";
const LOCK: &str = "lock";

/// The directory of one broker.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: TempDir,
    /// Whose the workers' directories are; `None` if they are the service's own user's.
    users: Option<Users>,
    _lock: File,
}

/// The directory of one worker, and the user that it is.
#[derive(Debug)]
pub(crate) struct WorkerScratch {
    directory: TempDir,
    /// After the directory, so that no other worker can have been left files.
    user: Option<User>,
}

impl Scratch {
    pub(crate) fn new(confinement: &Confinement) -> io::Result<Scratch> {
        Scratch::below(&std::env::temp_dir(), confinement.users())
    }

    /// Whether workers can get users of their own; if not, they get none.
    pub(crate) fn try_users(&mut self) -> io::Result<()> {
        let tried = self.worker().map(drop);
        if tried.is_err() {
            self.users = None;
        }
        tried
    }

    fn below(base: &Path, users: Option<RangeInclusive<u32>>) -> io::Result<Scratch> {
        remove_abandoned(base);
        // Mode 0700, as all of its kind.
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(base)?;
        let lock = File::create(directory.path().join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockShared)?;
        if users.is_some() {
            // They find their own directory, and cannot list what there is.
            fs::set_permissions(directory.path(), Permissions::from_mode(0o711))?;
        }
        Ok(Scratch { directory, users: users.map(Users::new), _lock: lock })
    }

    pub(crate) fn worker(&self) -> io::Result<WorkerScratch> {
        let user = self.users.as_ref().map(Users::take).transpose()?;
        let directory = tempfile::Builder::new().prefix("worker-").tempdir_in(self.directory.path())?;
        let scratch = WorkerScratch { directory, user };
        fs::create_dir(scratch.home())?;
        if let Some(id) = scratch.user() {
            chown(scratch.home(), Some(id), Some(id))?;
            chown(scratch.path(), Some(id), Some(id))?;
        }
        Ok(scratch)
    }

    /// A directory for what tenants' compilers keep.
    pub(crate) fn homes(&self) -> io::Result<PathBuf> {
        let homes = self.directory.path().join("homes");
        DirBuilder::new().mode(0o700).create(&homes)?;
        Ok(homes)
    }

    /// A lock for somebody who may outlive this broker, and needs its own directory until then.
    pub(crate) fn lock(&self) -> io::Result<File> {
        // Opened once more: whoever shares ours could give it up for us.
        let lock = File::open(self.directory.path().join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockShared)?;
        Ok(lock)
    }

    /// Removes everything at the end of the service.
    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(self.directory.path()) {
            warn!(directory = %self.directory.path().display(), %error, "cannot remove the service's directory");
        }
    }
}

impl WorkerScratch {
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What is to be the worker's home directory.
    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// The user that the worker is to become.
    pub(crate) fn user(&self) -> Option<u32> {
        self.user.as_ref().map(User::id)
    }

    pub(crate) fn remove(self) -> io::Result<()> {
        self.directory.close()
    }
}

/// Removes a directory that a broker which no longer lives has made for a worker which no longer lives either, and with the
/// last of them that broker's own.
pub(crate) fn remove_left(worker: &Path) {
    let known =
        worker.parent().and_then(Path::file_name).is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    match fs::symlink_metadata(worker) {
        Ok(meta) if known && meta.is_dir() => {
            if let Err(error) = fs::remove_dir_all(worker) {
                warn!(directory = %worker.display(), %error, "cannot remove the worker's directory");
            }
        }
        _ => {}
    }
    if let Some(base) = worker.parent().and_then(Path::parent) {
        remove_abandoned(base);
    }
}

/// Removes the directories of brokers that no longer live.
fn remove_abandoned(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw());
        // Without a lock file it is being made just now.
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        if !ours || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => debug!(directory = %path.display(), "removed what a dead service has left"),
            Err(error) => warn!(directory = %path.display(), %error, "cannot remove what a dead service has left"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_leave_is_removed_and_the_living_are_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let living = Scratch::below(base.path(), None).unwrap();
        let worker = living.worker().unwrap();
        let dead = Scratch::below(base.path(), None).unwrap();
        let left = dead.directory.path().to_owned();
        fs::create_dir(left.join("worker-x")).unwrap();
        // As if killed: the lock goes, the directory stays.
        let survivor = dead.lock().unwrap();
        let Scratch { directory, _lock, .. } = dead;
        drop(_lock);
        let _ = directory.keep();
        drop(Scratch::below(base.path(), None).unwrap());
        assert!(left.exists(), "a worker of it lives");
        remove_left(&left.join("worker-x"));
        assert!(left.exists() && !left.join("worker-x").exists());
        drop(survivor);
        drop(Scratch::below(base.path(), None).unwrap());
        assert!(!left.exists());
        assert!(worker.path().is_dir());
        worker.remove().unwrap();
        drop(living);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
