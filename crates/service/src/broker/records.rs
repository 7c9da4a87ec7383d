//! What a broker leaves for the next one: a directory that outlives it, with a record and a socket for each session that
//! has a worker.
//!
//! A record says what the next broker has to know of a session and its worker cannot be asked, because it runs its
//! tenant's code: whose it is, what it may have, by which secrets it is known. Only the service's own user can read and
//! write here. Records are written as a whole, by renaming, and removed when the session has ended.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, thread};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use telecl_net::Address;
use telecl_policy::Tenant;
use tracing::{debug, warn};

use super::accounts::Who;
use super::listen::runtime_directory;
use super::offer::{Known, Offer};
use super::peer::User;
use super::review::Pod;
use crate::board;
use crate::channel::{CHANNEL_VERSION, Key, MemoryLimit};

/// Of the form of a record.
const VERSION: u32 = 1;

/// A record is short; what is longer is none.
const LONGEST: u64 = 1 << 20;

const LOCK: &str = "lock";
const RECORD: &str = "json";
const SOCKET: &str = "sock";
const TOKEN_USES: &str = "token-uses";

/// How long the directory of a service that has just been killed may still be held.
const PATIENCE: Duration = Duration::from_secs(2);

/// The directory of a service, which it has for itself.
#[derive(Debug)]
pub(crate) struct Records {
    directory: PathBuf,
    _lock: File,
}

/// A session, for the next broker.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Record {
    version: u32,
    /// Of the messages between the session's worker and its broker.
    channel: u64,
    boot_id: [u8; 16],
    pub(crate) session: u64,
    /// By which further streams are known.
    pub(crate) secret: [u8; 16],
    /// By which the worker knows the next broker.
    pub(crate) lease: Key,
    pub(crate) tenant: String,
    user: Option<(u32, Option<String>)>,
    #[serde(default)]
    pod: Option<Pod>,
    peer: String,
    pub(crate) program: String,
    pid: u32,
    /// Nanoseconds since 1970, and of the system's monotonic clock.
    begun: u64,
    since: u64,
    devices: Vec<DeviceRecord>,
    memory: Vec<MemoryRecord>,
    pub(crate) worker: Process,
    /// The worker's directory.
    pub(crate) scratch: PathBuf,
}

/// What a session may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted<'a> {
    pub(crate) offer: &'a Offer,
    pub(crate) devices: &'a [u64],
    pub(crate) memory: &'a [MemoryLimit],
}

/// What tells a device from all others, as far as anything does.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct DeviceRecord {
    id: u64,
    name: String,
    platform: String,
    uuid: Option<String>,
    bus: Option<String>,
}

impl DeviceRecord {
    fn of(known: &Known) -> DeviceRecord {
        let Known { id, name, platform, uuid, bus, .. } = known.clone();
        DeviceRecord { id, name, platform, uuid, bus }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct MemoryRecord {
    device: u64,
    most: u64,
    together: Option<u64>,
    moves: bool,
}

/// A process, told from one that has its number later.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// When it was started, in the system's ticks since its boot.
    pub(crate) started: u64,
}

impl Process {
    /// One that exists.
    pub(crate) fn find(pid: u32) -> io::Result<Process> {
        Ok(Process { pid, started: start_time(pid)? })
    }

    /// Whether it is still that one.
    pub(crate) fn is_there(self) -> bool {
        start_time(self.pid).is_ok_and(|started| started == self.started)
    }
}

/// The 22nd field of a living process's `stat`. The second one, its name, stands in brackets and may hold anything.
fn start_time(pid: u32) -> io::Result<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "the system says nothing of its start");
    let name_ends = stat.iter().rposition(|byte| *byte == b')').ok_or_else(broken)?;
    let rest = std::str::from_utf8(&stat[name_ends + 1..]).map_err(|_| broken())?;
    let mut fields = rest.split_ascii_whitespace();
    // One that has ended, and that nobody has waited for.
    if matches!(fields.next(), Some("Z" | "X")) {
        return Err(io::ErrorKind::NotFound.into());
    }
    fields.nth(18).and_then(|field| field.parse().ok()).ok_or_else(broken)
}

/// A secret for a worker and the next broker.
pub(crate) fn new_lease() -> io::Result<Key> {
    let mut lease = [0; 32];
    lease[..16].copy_from_slice(&telecl_net::random_secret()?);
    lease[16..].copy_from_slice(&telecl_net::random_secret()?);
    Ok(lease)
}

/// Why a session is not taken over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotOurs {
    /// Its worker has ended.
    Ended,
    /// It goes on by itself until it ends, or nobody has come for too long.
    Different(String),
}

impl fmt::Display for NotOurs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotOurs::Ended => "its worker has ended",
            NotOurs::Different(what) => what,
        })
    }
}

impl Record {
    pub(crate) fn new(
        who: &Who,
        secret: [u8; 16],
        lease: Key,
        grant: Granted<'_>,
        worker: Process,
        scratch: &Path,
    ) -> Record {
        let Granted { offer, devices, memory } = grant;
        let begun = who.begun.duration_since(UNIX_EPOCH).unwrap_or_default();
        let record = |limit: &MemoryLimit| {
            let MemoryLimit { device, most, together, moves } = *limit;
            MemoryRecord { device, most, together, moves }
        };
        Record {
            version: VERSION,
            channel: CHANNEL_VERSION,
            boot_id: telecl_net::boot_id(),
            session: who.session,
            secret,
            lease,
            tenant: who.tenant.to_string(),
            user: who.user.as_ref().map(|user| (user.id, user.name.clone())),
            pod: who.pod.clone(),
            peer: who.peer.clone(),
            program: who.program.clone(),
            pid: who.pid,
            begun: u64::try_from(begun.as_nanos()).unwrap_or(u64::MAX),
            since: board::now().saturating_sub(u64::try_from(who.since.elapsed().as_nanos()).unwrap_or(u64::MAX)),
            devices: devices.iter().filter_map(|id| offer.device(*id)).map(DeviceRecord::of).collect(),
            memory: memory.iter().map(record).collect(),
            worker,
            scratch: scratch.to_owned(),
        }
    }

    /// Whether this broker can look after the session.
    pub(crate) fn check(&self, offer: &Offer) -> Result<Tenant, NotOurs> {
        if self.boot_id != telecl_net::boot_id() || !self.worker.is_there() {
            return Err(NotOurs::Ended);
        }
        let different = |what: &str| Err(NotOurs::Different(what.to_owned()));
        if self.version != VERSION || self.channel != CHANNEL_VERSION {
            return different("it was begun by another version of the service");
        }
        let is_same = |device: &DeviceRecord| offer.device(device.id).map(DeviceRecord::of).as_ref() == Some(device);
        if !self.devices.iter().all(is_same) {
            return different("this node has other devices now, or they have other numbers");
        }
        Tenant::parse(&self.tenant).or_else(|_| different("its tenant has no name that can be one"))
    }

    pub(crate) fn devices(&self) -> Vec<u64> {
        self.devices.iter().map(|device| device.id).collect()
    }

    pub(crate) fn memory(&self) -> Vec<MemoryLimit> {
        let limit = |record: &MemoryRecord| {
            let MemoryRecord { device, most, together, moves } = *record;
            MemoryLimit { device, most, together, moves }
        };
        self.memory.iter().map(limit).collect()
    }

    /// Whether it is known by a Kubernetes token.
    pub(crate) fn is_of_pod(&self) -> bool {
        self.pod.is_some()
    }

    /// Who it is, as the broker knew that has written this.
    pub(crate) fn who(&self, tenant: Tenant) -> Who {
        let age = Duration::from_nanos(board::now().saturating_sub(self.since));
        let now = Instant::now();
        Who {
            session: self.session,
            tenant,
            user: self.user.clone().map(|(id, name)| User { id, name }),
            pod: self.pod.clone(),
            peer: self.peer.clone(),
            program: self.program.clone(),
            pid: self.pid,
            begun: UNIX_EPOCH.checked_add(Duration::from_nanos(self.begun)).unwrap_or_else(SystemTime::now),
            since: now.checked_sub(age).unwrap_or(now),
        }
    }
}

impl Records {
    /// The directory that a service has by its configuration, or by where it listens; `None` if there is no place for one.
    pub(crate) fn place(configured: Option<&Path>, listening: &[Address]) -> Option<PathBuf> {
        if let Some(place) = configured {
            return Some(place.to_owned());
        }
        let name = match listening.first()? {
            Address::Tcp { host, port, .. } => {
                let host: String =
                    host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
                format!("{host}-{port}.state")
            }
            Address::Unix(path) => {
                let hash = Sha256::digest(path.as_os_str().as_encoded_bytes());
                let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                format!("{hash}.state")
            }
        };
        Some(runtime_directory()?.join(name))
    }

    /// Makes the directory this service's own, or finds it again.
    pub(crate) fn open(directory: &Path) -> io::Result<Records> {
        // What is above is for others, too: the service's socket may be there.
        directory.parent().map_or(Ok(()), fs::create_dir_all)?;
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let meta = fs::symlink_metadata(directory)?;
        if !meta.is_dir() || meta.uid() != geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a directory of the service's user"));
        }
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).mode(0o600).open(directory.join(LOCK))?;
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if Instant::now() >= deadline {
                return Err(match error {
                    rustix::io::Errno::WOULDBLOCK => {
                        io::Error::new(io::ErrorKind::ResourceBusy, "another service that runs uses it")
                    }
                    error => error.into(),
                });
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(Records { directory: directory.to_owned(), _lock: lock })
    }

    /// A socket at which the next broker finds the session's worker.
    pub(crate) fn listen(&self, session: u64) -> io::Result<UnixListener> {
        let path = self.socket(session);
        remove(&path)?;
        UnixListener::bind(path)
    }

    pub(crate) fn socket(&self, session: u64) -> PathBuf {
        self.path(session, SOCKET)
    }

    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        write_whole(&self.path(record.session, RECORD), &serde_json::to_vec(record)?)
    }

    /// Where it stands how often tokens were used.
    pub(crate) fn token_uses(&self) -> PathBuf {
        self.directory.join(TOKEN_USES)
    }

    /// The session is over.
    pub(crate) fn remove(&self, session: u64) {
        for extension in [RECORD, SOCKET] {
            let path = self.path(session, extension);
            if let Err(error) = remove(&path) {
                warn!(path = %path.display(), %error, "cannot remove what was kept of a session");
            }
        }
    }

    /// What the broker before has left. Files that are no records are removed.
    pub(crate) fn read_all(&self) -> Vec<Record> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut records = Vec::new();
        for path in entries.map(|entry| entry.path()) {
            let is = |extension: &str| path.extension().is_some_and(|found| found == extension);
            if is("new") {
                let _ = remove(&path);
            }
            if !is(RECORD) {
                continue;
            }
            match read(&path) {
                Ok(record) => records.push(record),
                Err(error) => {
                    warn!(path = %path.display(), %error, "what was kept of a session cannot be read, and is removed");
                    let _ = remove(&path);
                    let _ = remove(&path.with_extension(SOCKET));
                }
            }
        }
        records.sort_by_key(|record| record.session);
        records
    }

    /// Removes the directory at the end of the service, unless something is left in it.
    pub(crate) fn leave(&self) {
        let left = fs::read_dir(&self.directory).map_or(0, Iterator::count);
        if left > 1 {
            return debug!(directory = %self.directory.display(), left, "something is left for the next service");
        }
        let _ = fs::remove_file(self.directory.join(LOCK));
        let _ = fs::remove_dir(&self.directory);
    }

    fn path(&self, session: u64, extension: &str) -> PathBuf {
        self.directory.join(format!("{session}.{extension}"))
    }
}

/// Writes a file that only the service's user can read: all of it, or nothing.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    remove(&unfinished)?;
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&unfinished)?;
    file.write_all(content)?;
    fs::rename(&unfinished, path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A version that has other fields has another form, but says so in the same place.
fn read(path: &Path) -> io::Result<Record> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_file() || meta.uid() != geteuid().as_raw() || meta.len() > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not written by this service"));
    }
    let record: Record = serde_json::from_slice(&fs::read(path)?)?;
    let named = path.file_stem().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
    if named != Some(record.session) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is about another session than its name says"));
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(session: u64) -> Record {
        let who = Who {
            session,
            tenant: Tenant::parse("a").unwrap(),
            user: Some(User { id: 5, name: None }),
            pod: None,
            peer: "10.0.0.1:5".to_owned(),
            program: "test".to_owned(),
            pid: 7,
            begun: SystemTime::now(),
            since: Instant::now(),
        };
        let memory = [MemoryLimit { device: 1, most: 5, together: Some(9), moves: true }];
        let own = Process::find(std::process::id()).unwrap();
        let grant = Granted { offer: &Offer::default(), devices: &[1], memory: &memory };
        Record::new(&who, [1; 16], [2; 32], grant, own, Path::new("/nowhere"))
    }

    #[test]
    fn what_was_written_is_read_again_and_nonsense_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/7701.state");
        let records = Records::open(&directory).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        for session in [12, 3] {
            records.write(&record(session)).unwrap();
        }
        assert_eq!(fs::metadata(directory.join("3.json")).unwrap().mode() & 0o777, 0o600);
        fs::copy(directory.join("3.json"), directory.join("4.json")).unwrap();
        fs::write(directory.join("5.json"), "{").unwrap();
        fs::write(directory.join("6.new"), "{").unwrap();
        let read = records.read_all();
        assert_eq!(read.iter().map(|record| record.session).collect::<Vec<_>>(), [3, 12]);
        assert_eq!(read[0].memory(), record(3).memory());
        assert_eq!(read[0].who(Tenant::anonymous()).user, Some(User { id: 5, name: None }));
        let left: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 3, "{left:?}");
        records.remove(3);
        records.leave();
        assert!(directory.exists(), "somebody is left");
        records.remove(12);
        records.leave();
        assert!(!directory.exists());
    }

    #[test]
    fn a_directory_belongs_to_one_service_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let first = Records::open(place.path()).unwrap();
        let error = Records::open(place.path()).unwrap_err();
        assert!(error.to_string().contains("another service"), "{error}");
        drop(first);
        Records::open(place.path()).unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Records::open(&file).is_err());
    }

    #[test]
    fn only_a_session_that_lives_and_is_understood_is_taken_over() {
        let offer = Offer::default();
        assert_eq!(record(1).check(&offer).unwrap().as_str(), "a");
        let reused = Process { started: 1, ..record(1).worker };
        assert_eq!(Record { worker: reused, ..record(1) }.check(&offer), Err(NotOurs::Ended));
        assert_eq!(Record { boot_id: [9; 16], ..record(1) }.check(&offer), Err(NotOurs::Ended));
        let other = Record { channel: CHANNEL_VERSION + 1, ..record(1) };
        assert!(matches!(other.check(&offer), Err(NotOurs::Different(_))));
        let (name, platform) = ("H200".to_owned(), "NVIDIA".to_owned());
        let gone = DeviceRecord { id: 1, name, platform, uuid: None, bus: None };
        let elsewhere = Record { devices: vec![gone], ..record(1) };
        assert!(elsewhere.check(&offer).unwrap_err().to_string().contains("other devices"));
    }

    #[test]
    fn the_place_follows_from_where_the_service_listens() {
        let addresses = ["127.0.0.1:7701", "unix:/run/a.sock"].map(|text| text.parse().unwrap());
        let configured = Records::place(Some(Path::new("/var/lib/telecl")), &addresses).unwrap();
        assert_eq!(configured, Path::new("/var/lib/telecl"));
        if let Some(derived) = Records::place(None, &addresses) {
            assert!(derived.ends_with("telecl/127.0.0.1-7701.state"), "{}", derived.display());
            let other = Records::place(None, &addresses[1..]).unwrap();
            assert!(other.extension().is_some_and(|found| found == "state") && other != derived);
        }
    }
}
