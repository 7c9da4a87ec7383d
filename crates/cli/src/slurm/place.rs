//! The directory of a service job: `~/.telecl/jobs/JOBID`, for its user alone.
//!
//! | file | what it is |
//! |---|---|
//! | `secret` | what proves that somebody is this user; new at every start of the job |
//! | `nodes/NODE` | what the service of one node says about itself |
//! | `libtelecl.so`, `vendors*/telecl.icd` | the driver, for containers |
//! | `drain` | for how many seconds sessions may go on, when the service is told to end |
//! | `telecl.toml` | addresses and secret, for drivers. Written last: it is the sign that the service is ready |

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use telecl_config::{Address, ConfigError, DriverConfig, Environment, SESSION_DIR};

use super::job::{self, JobId};
use crate::exit::{Exit, Failure};

/// What the service of one node says about itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NodeFile {
    pub(super) node: String,
    pub(super) address: String,
    /// The step that it runs in.
    pub(super) step: String,
    /// Which GPUs of the node Slurm gave it, as Slurm numbers them.
    pub(super) gpus: Option<String>,
}

/// A job's directory.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
}

/// What a ready service says to drivers.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) services: Vec<Address>,
    pub(super) secret: PathBuf,
}

/// Why a directory cannot be used, or not yet.
#[derive(Debug)]
pub(super) enum NotReady {
    /// There is no directory, or not yet all that belongs in it.
    Missing,
    /// It will not get better by itself.
    Wrong(Failure),
}

impl Place {
    pub(super) fn of(job: &JobId) -> Result<Place, Failure> {
        Ok(Place { path: jobs_directory()?.join(job.to_string()) })
    }

    pub(super) fn at(path: &Path) -> Place {
        Place { path: path.to_owned() }
    }

    /// Makes it anew. What an earlier run of the same job has left (it was requeued) is removed first.
    pub(super) fn make(job: &JobId) -> Result<Place, Failure> {
        let place = Place::of(job)?;
        let failed = |error: io::Error| {
            let what = format!("cannot make {}: {error}", place.path.display());
            Failure::new(Exit::Failed, what, "Is your home directory writable on this node, and is there room?")
        };
        for directory in place.path.ancestors().skip(1).take(2).collect::<Vec<_>>().into_iter().rev() {
            private_directory(directory).map_err(failed)?;
        }
        place.remove().map_err(failed)?;
        private_directory(&place.path).map_err(failed)?;
        private_directory(&place.nodes()).map_err(failed)?;
        telecl_identity::pki::make_secret(&place.secret())?;
        Ok(place)
    }

    pub(super) fn secret(&self) -> PathBuf {
        self.path.join("secret")
    }

    pub(super) fn ready_mark(&self) -> PathBuf {
        self.path.join("telecl.toml")
    }

    pub(super) fn drain_file(&self) -> PathBuf {
        self.path.join("drain")
    }

    fn nodes(&self) -> PathBuf {
        self.path.join("nodes")
    }

    /// A file, whole or not at all.
    pub(super) fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Two nodes never write one file, so the name is nobody else's.
        let new = path.with_file_name(format!(".{name}.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    }

    pub(super) fn write_node(&self, node: &NodeFile) -> io::Result<()> {
        self.write(&self.nodes().join(&node.node), &serde_json::to_string(node)?)
    }

    pub(super) fn remove_node(&self, node: &str) {
        // The whole directory may be gone.
        let _ = fs::remove_file(self.nodes().join(node));
    }

    /// Those nodes that are ready, by name.
    pub(super) fn nodes_ready(&self) -> Vec<NodeFile> {
        let entries = fs::read_dir(self.nodes()).into_iter().flatten().flatten();
        let named = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
        let texts = named.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        let mut nodes: Vec<NodeFile> = texts.filter_map(|text| serde_json::from_str(&text).ok()).collect();
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        nodes
    }

    /// Tells everybody where the services are.
    pub(super) fn mark_ready(&self, job: &JobId, nodes: &[NodeFile]) -> io::Result<()> {
        let list = nodes.iter().map(|node| format!("{:?}", node.address)).collect::<Vec<_>>().join(", ");
        let secret = self.secret();
        let text = format!("# The service of Slurm job {job}.\nservices = [{list}]\nsecret = {secret:?}\n");
        self.write(&self.ready_mark(), &text)
    }

    /// Nobody is to begin with this service any more.
    pub(super) fn unmark(&self) {
        // It may never have been ready.
        let _ = fs::remove_file(self.ready_mark());
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        self.unmark();
        // A node may take its file away at the same moment, and the file system may be slow to say so.
        for _ in 0..10 {
            match fs::remove_dir_all(&self.path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if !self.path.exists() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Err(error) => return Err(error),
            }
        }
        fs::remove_dir_all(&self.path)
    }

    /// What drivers are told, if the service is ready and nobody else could have written it.
    pub(super) fn read(&self) -> Result<Ready, NotReady> {
        let meta = match fs::metadata(&self.path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NotReady::Missing),
            Err(error) => {
                return Err(wrong(format!("cannot look at {}: {error}", self.path.display()), "Is it yours?"));
            }
        };
        let own = rustix::process::geteuid().as_raw();
        if meta.uid() != own && meta.uid() != 0 {
            let what = format!("{} belongs to another user ({})", self.path.display(), meta.uid());
            return Err(wrong(what, "A service can be used by its own user only: telecl slurm start"));
        }
        if meta.mode() & 0o077 != 0 {
            let what = format!("{} is open to others (mode {:04o})", self.path.display(), meta.mode() & 0o7777);
            return Err(wrong(what, format!("Say: chmod 700 {}", self.path.display())));
        }
        if !self.ready_mark().exists() {
            return Err(NotReady::Missing);
        }
        let directory = self.path.clone();
        let environment = Environment::new(move |name| (name == SESSION_DIR).then(|| directory.clone().into()));
        let config = DriverConfig::load_from(&environment).map_err(|error| self.unreadable(&error))?;
        if config.services.is_empty() {
            return Err(wrong(format!("{} names no service", self.ready_mark().display()), self.start_anew()));
        }
        // Where it is now, which in a container is not where it was made.
        let secret = self.secret();
        telecl_identity::Secret::load(&secret).map_err(|error| wrong(error.to_string(), ""))?;
        Ok(Ready { services: config.services, secret })
    }

    fn unreadable(&self, error: &ConfigError) -> NotReady {
        // It has gone between two looks.
        if !self.ready_mark().exists() {
            return NotReady::Missing;
        }
        wrong(error.to_string(), self.start_anew())
    }

    pub(super) fn start_anew(&self) -> String {
        format!("Remove it and start another service: rm -r {}; telecl slurm start", self.path.display())
    }
}

fn wrong(what: impl std::fmt::Display, advice: impl std::fmt::Display) -> NotReady {
    NotReady::Wrong(Failure::new(Exit::Usage, what, advice))
}

/// Makes a directory for its owner alone, or takes one that is there.
pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let meta = fs::metadata(path)?;
            if meta.uid() != rustix::process::geteuid().as_raw() {
                return Err(io::Error::other(format!("{} belongs to another user", path.display())));
            }
            if meta.mode() & 0o022 != 0 {
                fs::set_permissions(path, Permissions::from_mode(0o700))?;
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// What telecl keeps for this user: `~/.telecl`.
pub(super) fn home_directory() -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.map(|home| home.join(".telecl")).ok_or_else(|| {
        Failure::new(Exit::Usage, "HOME names no directory", "Set it to a directory that all nodes of the job see")
    })
}

fn jobs_directory() -> Result<PathBuf, Failure> {
    Ok(home_directory()?.join("jobs"))
}

/// Removes the directories of jobs that are no more: of one whose node lost power, for instance. Does nothing if Slurm does not
/// say which jobs there are.
pub(super) fn remove_stale(own: &JobId) {
    let Ok(jobs) = jobs_directory() else { return };
    let Some(alive) = job::own_jobs() else { return };
    for entry in fs::read_dir(jobs).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(job) = name.parse::<JobId>() else { continue };
        if job != *own && !alive.contains(&name) {
            // Somebody else may be doing the same.
            let _ = Place { path: entry.path() }.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, Place) {
        let home = tempfile::tempdir().unwrap();
        let place = Place { path: home.path().join("17") };
        private_directory(&place.path).unwrap();
        private_directory(&place.nodes()).unwrap();
        telecl_identity::pki::make_secret(&place.secret()).unwrap();
        (home, place)
    }

    fn node(name: &str, address: &str) -> NodeFile {
        NodeFile { node: name.to_owned(), address: address.to_owned(), step: "0".to_owned(), gpus: None }
    }

    fn why(place: &Place) -> String {
        match place.read() {
            Err(NotReady::Wrong(failure)) => failure.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_ready_can_be_read_and_what_is_not_is_missing() {
        let (_home, place) = place();
        assert!(matches!(place.read(), Err(NotReady::Missing)));
        place.write_node(&node("b", "10.0.0.2:4000")).unwrap();
        place.write_node(&node("a", "10.0.0.1:4000")).unwrap();
        let nodes = place.nodes_ready();
        assert_eq!(nodes.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        place.mark_ready(&"17".parse().unwrap(), &nodes).unwrap();
        let ready = place.read().unwrap();
        assert_eq!(
            ready.services.iter().map(Address::to_string).collect::<Vec<_>>(),
            ["10.0.0.1:4000", "10.0.0.2:4000"]
        );
        place.unmark();
        assert!(matches!(place.read(), Err(NotReady::Missing)));
        place.remove().unwrap();
        assert!(matches!(place.read(), Err(NotReady::Missing)));
    }

    #[test]
    fn what_others_could_have_written_is_refused_and_named() {
        let (_home, place) = place();
        place.mark_ready(&"17".parse().unwrap(), &[node("a", "10.0.0.1:4000")]).unwrap();
        fs::set_permissions(&place.path, Permissions::from_mode(0o755)).unwrap();
        assert!(why(&place).contains("chmod 700"), "{}", why(&place));
        fs::set_permissions(&place.path, Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(place.secret(), Permissions::from_mode(0o644)).unwrap();
        assert!(why(&place).contains("chmod 600"), "{}", why(&place));
        fs::set_permissions(place.secret(), Permissions::from_mode(0o600)).unwrap();
        fs::write(place.ready_mark(), "services = 7\n").unwrap();
        assert!(why(&place).contains("telecl.toml"), "{}", why(&place));
    }
}
