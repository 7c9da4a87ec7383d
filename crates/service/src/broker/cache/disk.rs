//! The part of the cache that is in a directory.
//!
//! One file per program, written under a temporary name and renamed, so that a reader finds a whole file or none. A file
//! begins with what it must be, and ends with a hash of its content: one that does not check is removed and was never
//! there. Several services of one user may share the directory. Whatever goes wrong with it costs speed and nothing
//! else, and is named in the log once.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use tracing::{debug, info, warn};

use super::hex;
use crate::channel::{Key, MOST_CONTENT};

const MAGIC: &[u8; 16] = b"telecl program\r\n";
/// Changes with the form of the files; others are not ours to read.
const FORMAT: u32 = 1;
/// Magic, format, name, length of the content, hash of the content.
const HEAD: usize = MAGIC.len() + 4 + 32 + 8 + 32;

const SUFFIX: &str = ".program";
const UNFINISHED: &str = ".unfinished";

/// An unfinished file of this age was left by a service that was killed.
const ABANDONED: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(crate) struct Disk {
    directory: PathBuf,
    most_bytes: u64,
    /// What the directory holds, as far as this service knows; counted anew when it gets too much.
    bytes: AtomicU64,
    /// Whether something about the directory has been named in the log.
    named: AtomicBool,
    next_file: AtomicU64,
}

impl Disk {
    /// Makes the directory if need be. One that cannot be used is tried again by each program: it may come back.
    pub(crate) fn new(directory: &Path, most_bytes: u64) -> Disk {
        let (bytes, named, next_file) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
        let disk = Disk { directory: directory.to_owned(), most_bytes, bytes, named, next_file };
        match disk.prepare() {
            Ok(()) => {
                let bytes = disk.tidy_up();
                info!(directory = %directory.display(), bytes, "keeping built programs");
            }
            Err(error) => disk.complain(&error),
        }
        disk
    }

    pub(crate) fn read(&self, name: &Key) -> Option<Vec<u8>> {
        let path = self.path(name);
        // Neither follows a link nor waits for a pipe: the directory may be full of anything.
        let careful = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let mut file = match OpenOptions::new().read(true).custom_flags(careful).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return self.without(&error),
        };
        // Whoever may write here could make us run code of theirs.
        if let Err(error) = self.check_owner() {
            return self.without(&error);
        }
        match read_checked(&mut file, name) {
            Ok(content) => {
                // The time of its last use, by which the directory is kept small. Not ours to change: not used, then.
                let _ = file.set_modified(SystemTime::now());
                Some(content)
            }
            Err(error) => {
                // Whoever has it open keeps reading what it was.
                let _ = fs::remove_file(&path);
                self.without(&error)
            }
        }
    }

    pub(crate) fn write(&self, name: &Key, content: &[u8]) {
        let bytes = (HEAD + content.len()) as u64;
        if bytes > self.most_bytes {
            return;
        }
        let written = self.prepare().and_then(|()| self.write_new(name, content));
        if let Err(error) = written {
            return self.complain(&error);
        }
        let known = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if known > self.most_bytes {
            self.tidy_up();
        }
    }

    pub(crate) fn remove(&self, name: &Key) {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => self.complain(&error),
            _ => {}
        }
    }

    fn path(&self, name: &Key) -> PathBuf {
        self.directory.join(hex(name) + SUFFIX)
    }

    fn prepare(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        self.check_owner()
    }

    /// What is in the directory will be run as this user.
    fn check_owner(&self) -> io::Result<()> {
        let meta = fs::metadata(&self.directory)?;
        let ours = meta.uid() == rustix::process::geteuid().as_raw();
        if !ours || meta.mode() & 0o022 != 0 {
            return Err(io::Error::other("others may write to it: it must belong to this user, with mode 0700"));
        }
        Ok(())
    }

    fn write_new(&self, name: &Key, content: &[u8]) -> io::Result<()> {
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        let unfinished = format!("{}-{}-{number}{UNFINISHED}", hex(name), std::process::id());
        let unfinished = self.directory.join(unfinished);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished);
        let written = file.and_then(|mut file| {
            file.write_all(&head(name, content))?;
            file.write_all(content)?;
            fs::rename(&unfinished, self.path(name))
        });
        written.inspect_err(|_| {
            let _ = fs::remove_file(&unfinished);
        })
    }

    /// Counts what is there and removes what was not used for longest, until a tenth is free. Returns what is left.
    /// Files that have no name of ours are nobody's business here.
    fn tidy_up(&self) -> u64 {
        let mut programs = Vec::new();
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let (path, Ok(meta)) = (entry.path(), entry.metadata()) else { continue };
            let age = meta.modified().ok().and_then(|changed| changed.elapsed().ok()).unwrap_or_default();
            if is_unfinished(&entry.file_name()) {
                if age > ABANDONED {
                    let _ = fs::remove_file(path);
                }
            } else if meta.is_file() && is_program(&entry.file_name()) {
                programs.push((age, meta.len(), path));
            }
        }
        let mut bytes: u64 = programs.iter().map(|(_, bytes, _)| bytes).sum();
        if bytes > self.most_bytes {
            programs.sort_unstable();
            let enough = self.most_bytes - self.most_bytes / 10;
            while bytes > enough
                && let Some((_, size, oldest)) = programs.pop()
            {
                match fs::remove_file(&oldest) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => self.complain(&error),
                    _ => bytes -= size,
                }
            }
        }
        self.bytes.store(bytes, Ordering::Relaxed);
        bytes
    }

    fn without(&self, error: &io::Error) -> Option<Vec<u8>> {
        self.complain(error);
        None
    }

    /// Names what is wrong with the directory, once.
    fn complain(&self, error: &io::Error) {
        let directory = self.directory.display();
        if self.named.swap(true, Ordering::Relaxed) {
            debug!(%directory, %error, "something is still wrong with the directory of built programs");
        } else {
            warn!(%directory, %error, "something is wrong with the directory of built programs; some will be built again");
        }
    }
}

fn head(name: &Key, content: &[u8]) -> Vec<u8> {
    let len = (content.len() as u64).to_le_bytes();
    [&MAGIC[..], &FORMAT.to_le_bytes(), name, &len, &Sha256::digest(content)].concat()
}

/// The content of a file that is whole, and is the program it is named after.
fn read_checked(file: &mut File, name: &Key) -> io::Result<Vec<u8>> {
    let damaged =
        || io::Error::new(io::ErrorKind::InvalidData, format!("the file of program {} is damaged", hex(name)));
    let mut found = [0; HEAD];
    file.read_exact(&mut found).map_err(|_| damaged())?;
    let mut content = Vec::new();
    // One byte more than there may be, to notice it.
    file.take(MOST_CONTENT as u64 + 1).read_to_end(&mut content)?;
    if head(name, &content) == found { Ok(content) } else { Err(damaged()) }
}

fn is_program(file: &OsStr) -> bool {
    let name = file.to_str().and_then(|file| file.strip_suffix(SUFFIX));
    name.is_some_and(|name| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_unfinished(file: &OsStr) -> bool {
    let name = file.to_str().and_then(|file| file.strip_suffix(UNFINISHED));
    name.is_some_and(|name| {
        name.len() > 64 && name.is_char_boundary(64) && name[..64].bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PLENTY: u64 = 1 << 20;

    fn disk(most_bytes: u64) -> (tempfile::TempDir, Disk) {
        let place = tempfile::tempdir().unwrap();
        let disk = Disk::new(&place.path().join("deep/er"), most_bytes);
        (place, disk)
    }

    fn files(disk: &Disk) -> usize {
        fs::read_dir(&disk.directory).unwrap().count()
    }

    #[test]
    fn what_was_written_is_read_also_by_the_next_service() {
        let (_place, disk) = disk(PLENTY);
        assert_eq!(disk.read(&[1; 32]), None);
        disk.write(&[1; 32], b"program");
        disk.write(&[2; 32], b"");
        let next = Disk::new(&disk.directory, PLENTY);
        for disk in [&disk, &next] {
            assert_eq!(disk.read(&[1; 32]).unwrap(), b"program");
            assert_eq!(disk.read(&[2; 32]).unwrap(), b"");
            assert!(!disk.named.load(Ordering::Relaxed));
        }
        assert_eq!(next.bytes.load(Ordering::Relaxed), 2 * HEAD as u64 + 7);
        assert_eq!(fs::metadata(&disk.directory).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(disk.path(&[1; 32])).unwrap().mode() & 0o777, 0o600);
        disk.remove(&[1; 32]);
        disk.remove(&[1; 32]);
        assert_eq!(disk.read(&[1; 32]), None);
        assert!(!disk.named.load(Ordering::Relaxed));
    }

    #[test]
    fn a_damaged_file_is_removed_and_was_never_there() {
        let content: Vec<u8> = (0..=255).collect();
        let whole = [head(&[1; 32], &content), content.clone()].concat();
        let damages: Vec<Vec<u8>> = (0..whole.len())
            .step_by(7)
            .map(|index| {
                let mut damaged = whole.clone();
                damaged[index] ^= 1;
                damaged
            })
            .chain([whole[..HEAD - 1].to_vec(), whole[..whole.len() - 1].to_vec(), [&whole[..], b"x"].concat()])
            .chain([Vec::new(), b"garbage".to_vec(), vec![0; 4096]])
            .collect();
        let (_place, disk) = disk(PLENTY);
        for damaged in damages {
            fs::write(disk.path(&[1; 32]), damaged).unwrap();
            assert_eq!(disk.read(&[1; 32]), None);
            assert_eq!(files(&disk), 0);
        }
        disk.write(&[1; 32], &content);
        assert_eq!(disk.read(&[1; 32]).unwrap(), content);
    }

    #[test]
    fn the_file_of_another_program_is_not_taken_for_this_one() {
        let (_place, disk) = disk(PLENTY);
        disk.write(&[1; 32], b"program");
        fs::rename(disk.path(&[1; 32]), disk.path(&[2; 32])).unwrap();
        assert_eq!(disk.read(&[2; 32]), None);
        assert_eq!(files(&disk), 0);
    }

    #[test]
    fn the_bound_is_kept_and_what_was_used_last_stays() {
        let size = 1000 - HEAD;
        let (_place, disk) = disk(10_000);
        let touch = |disk: &Disk, name: u8, seconds: u64| {
            let file = File::open(disk.path(&[name; 32])).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        for name in 0..10 {
            disk.write(&[name; 32], &vec![name; size]);
            touch(&disk, name, 100 - u64::from(name));
        }
        assert_eq!(files(&disk), 10);
        // The first is used again, and is not the oldest any more.
        assert!(disk.read(&[0; 32]).is_some());
        fs::write(disk.directory.join("somebody's file"), vec![0; 20_000]).unwrap();
        disk.write(&[77; 32], &vec![77; size]);
        assert_eq!(files(&disk), 9 + 1);
        assert!(disk.read(&[1; 32]).is_none() && disk.read(&[2; 32]).is_none());
        assert!(disk.read(&[0; 32]).is_some() && disk.read(&[3; 32]).is_some() && disk.read(&[77; 32]).is_some());
        disk.write(&[78; 32], &vec![0; 10_000]);
        assert!(disk.read(&[78; 32]).is_none());
        // What another service has put there is counted when the bound is met.
        let other = Disk::new(&disk.directory, 10_000);
        for name in 100..120 {
            other.write(&[name; 32], &vec![name; size]);
        }
        assert!(files(&disk) <= 10 + 1);
    }

    #[test]
    fn what_a_killed_service_left_unfinished_is_removed_in_time() {
        let (_place, disk) = disk(PLENTY);
        let left = disk.directory.join(format!("{}-1-2{UNFINISHED}", hex(&[1; 32])));
        fs::write(&left, b"half").unwrap();
        drop(Disk::new(&disk.directory, PLENTY));
        assert!(left.exists());
        File::open(&left).unwrap().set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
        drop(Disk::new(&disk.directory, PLENTY));
        assert!(!left.exists());
    }

    #[test]
    fn a_directory_that_cannot_be_used_costs_no_more_than_speed() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, b"").unwrap();
        // Not even root can make a directory there.
        let disk = Disk::new(&file.join("below"), PLENTY);
        assert!(disk.named.load(Ordering::Relaxed));
        disk.write(&[1; 32], b"program");
        assert_eq!(disk.read(&[1; 32]), None);
        disk.remove(&[1; 32]);
    }

    #[test]
    fn a_directory_may_become_read_only_and_come_back() {
        let (_place, disk) = disk(PLENTY);
        disk.write(&[1; 32], b"program");
        fs::set_permissions(&disk.directory, fs::Permissions::from_mode(0o500)).unwrap();
        disk.write(&[2; 32], b"other");
        // Root writes where it likes.
        let root = rustix::process::geteuid().is_root();
        assert_eq!(disk.read(&[2; 32]).is_some(), root);
        assert_eq!(disk.named.load(Ordering::Relaxed), !root);
        assert_eq!(disk.read(&[1; 32]).unwrap(), b"program");
        fs::set_permissions(&disk.directory, fs::Permissions::from_mode(0o700)).unwrap();
        disk.write(&[2; 32], b"other");
        assert_eq!(disk.read(&[2; 32]).unwrap(), b"other");
    }

    #[test]
    fn what_others_may_write_to_is_not_run() {
        let (_place, disk) = disk(PLENTY);
        disk.write(&[1; 32], b"program");
        for mode in [0o777, 0o720] {
            fs::set_permissions(&disk.directory, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(disk.read(&[1; 32]), None);
            disk.write(&[2; 32], b"other");
            assert!(!disk.path(&[2; 32]).exists());
        }
        fs::set_permissions(&disk.directory, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(disk.read(&[1; 32]).unwrap(), b"program");
    }
}
