//! What vendors' compilers keep for the next time, each tenant's by itself.
//!
//! PoCL keeps compiled kernels below the home directory, and so does NVIDIA's driver; without them, programs are compiled
//! again in every session. It is code that others would run, so workers cannot share a directory. Each has a home of its
//! own; the broker fills it when the worker gets a session, with what the last session of the same tenant has left, and
//! takes what this one leaves. Neither is trusted: nothing but plain files and directories is copied, links are not
//! followed, and there is a bound on all of it. It ends with the service.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid, fchown, mkdirat, openat, statat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tracing::debug;

use super::scratch::WorkerScratch;

/// A tenant that leaves more begins anew: compilers' caches do not shrink by themselves.
const MOST: Bounds = Bounds { files: 8 << 10, bytes: 128 << 20, depth: 12 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    files: u64,
    bytes: u64,
    depth: u32,
}

/// What tenants' sessions have left. The lock is held for a few lines.
#[derive(Debug)]
pub(crate) struct Homes {
    /// Below it, a directory for each; `None` where workers use the home of the service's user.
    directory: Option<PathBuf>,
    /// What is left of each bound, as a mark of what is there, and how often it was replaced.
    known: Mutex<HashMap<String, (Bounds, u64)>>,
}

impl Homes {
    pub(crate) fn new(directory: Option<PathBuf>) -> Homes {
        Homes { directory, known: Mutex::default() }
    }

    /// Fills the home of a worker that gets a session of this tenant. Without it, compilers have more to do.
    pub(crate) fn fill(&self, tenant: &str, scratch: &WorkerScratch) {
        let Some((_, generation)) = self.lock().get(tenant).copied() else { return };
        let Some(from) = self.place(tenant, generation) else { return };
        if let Err(error) = copy(&from, &scratch.home(), scratch.user()) {
            debug!(tenant, %error, "cannot give a worker what its tenant's compilers have kept");
        }
    }

    /// Takes what is in the home of a worker that has ended.
    pub(crate) fn keep(&self, tenant: &str, scratch: &WorkerScratch) {
        if let Err(error) = self.try_keep(tenant, scratch) {
            debug!(tenant, %error, "cannot keep what a tenant's compilers have left");
        }
    }

    fn try_keep(&self, tenant: &str, scratch: &WorkerScratch) -> io::Result<()> {
        let left = measure(&open(CWD, &scratch.home())?)?;
        let before = self.lock().get(tenant).copied();
        if left == MOST || before.is_some_and(|(known, _)| known == left) {
            return Ok(());
        }
        let generation = before.map_or(0, |(_, generation)| generation) + 1;
        let Some(place) = self.place(tenant, generation) else { return Ok(()) };
        // Another session of the tenant may be doing the same; the first one does it.
        std::fs::create_dir(&place)?;
        copy(&scratch.home(), &place, None)?;
        self.lock().insert(tenant.to_owned(), (left, generation));
        match before.and_then(|(_, generation)| self.place(tenant, generation)) {
            // A worker that is being filled from it gets a part: what is missing is compiled.
            Some(old) => std::fs::remove_dir_all(old),
            None => Ok(()),
        }
    }

    fn place(&self, tenant: &str, generation: u64) -> Option<PathBuf> {
        // Tenants' names may hold anything.
        let name: String = Sha256::digest(tenant)[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Some(self.directory.as_ref()?.join(format!("{name}-{generation}")))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Bounds, u64)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(place: impl rustix::fd::AsFd, path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(place, path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// How much of the bounds a tree leaves.
fn measure(tree: &OwnedFd) -> io::Result<Bounds> {
    let mut left = MOST;
    walk(tree, None, &mut left)?;
    Ok(Bounds { depth: MOST.depth, ..left })
}

fn copy(from: &Path, to: &Path, owner: Option<u32>) -> io::Result<()> {
    let (from, to) = (open(CWD, from)?, open(CWD, to)?);
    walk(&from, Some((&to, owner)), &mut { MOST })
}

/// Goes through a tree, and copies it if there is somewhere to; an error if it is larger than `left`.
fn walk(from: &OwnedFd, to: Option<(&OwnedFd, Option<u32>)>, left: &mut Bounds) -> io::Result<()> {
    let too_much = || io::Error::other("there is too much of it");
    left.depth = left.depth.checked_sub(1).ok_or_else(too_much)?;
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        left.files = left.files.checked_sub(1).ok_or_else(too_much)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let below = openat(from, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
                let Some((to, owner)) = to else {
                    walk(&below, None, left)?;
                    continue;
                };
                // A vendor's library has begun to fill the home already.
                match mkdirat(to, name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                let made = openat(to, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
                give(&made, owner)?;
                walk(&below, Some((&made, owner)), left)?;
            }
            FileType::RegularFile => {
                let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                left.bytes = left.bytes.checked_sub(size).ok_or_else(too_much)?;
                if let Some((to, owner)) = to.filter(|(to, _)| statat(to, name, AtFlags::SYMLINK_NOFOLLOW).is_err()) {
                    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                    let file = File::from(openat(from, name, OFlags::RDONLY | flags, Mode::empty())?);
                    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | flags;
                    let made = openat(to, name, create, Mode::RUSR | Mode::WUSR)?;
                    give(&made, owner)?;
                    io::copy(&mut file.take(size), &mut File::from(made))?;
                }
            }
            _ => {}
        }
    }
    left.depth += 1;
    Ok(())
}

fn give(file: &OwnedFd, owner: Option<u32>) -> io::Result<()> {
    if let Some(owner) = owner {
        fchown(file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::broker::confinement::Confinement;
    use crate::broker::scratch::Scratch;

    #[test]
    fn a_tenant_finds_what_its_last_session_has_left_and_nobody_elses() {
        let (base, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = base.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        let scratch = Scratch::new(&Confinement { users: None, ..Confinement::default() }).unwrap();
        let homes = Homes::new(Some(store.path().to_owned()));
        let first = scratch.worker().unwrap();
        homes.fill("a", &first);
        homes.keep("a", &first);
        assert_eq!(fs::read_dir(store.path()).unwrap().count(), 0, "nothing was left");
        fs::create_dir_all(first.home().join(".cache/pocl")).unwrap();
        fs::write(first.home().join(".cache/pocl/kernel.so"), "code").unwrap();
        symlink(&secret, first.home().join("link")).unwrap();
        symlink("/", first.home().join(".cache/root")).unwrap();
        homes.keep("a", &first);
        for (tenant, expected) in [("a", Some("code")), ("b", None)] {
            let next = scratch.worker().unwrap();
            fs::create_dir_all(next.home().join(".cache/pocl")).unwrap();
            homes.fill(tenant, &next);
            let found = fs::read_to_string(next.home().join(".cache/pocl/kernel.so")).ok();
            assert_eq!(found.as_deref(), expected);
            assert!(fs::symlink_metadata(next.home().join("link")).is_err());
            // The same again changes nothing.
            homes.keep(tenant, &next);
        }
        let large = scratch.worker().unwrap();
        File::create(large.home().join("large")).unwrap().set_len(MOST.bytes + 1).unwrap();
        homes.keep("a", &large);
        let next = scratch.worker().unwrap();
        homes.fill("a", &next);
        assert!(next.home().join(".cache").exists() && !next.home().join("large").exists());
        scratch.remove();
    }
}
