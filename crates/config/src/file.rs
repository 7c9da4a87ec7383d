//! Which file holds the configuration, and its text.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::{CONFIG, ConfigError, Environment, SESSION_DIR};

/// Far more than every key takes; keeps a driver from reading a device or a disk image to its end.
const MAX_LEN: u64 = 1 << 20;

/// A configuration file that was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// The first file that exists, or `None` where there is none and none was asked for.
pub(crate) fn find(environment: &Environment<'_>) -> Result<Option<Found>, ConfigError> {
    if let Some(path) = &environment.given_file {
        return must_exist("--config", path.clone()).map(Some);
    }
    if let Some(directory) = environment.path(SESSION_DIR) {
        let path = directory.join("telecl.toml");
        if let Some(metadata) = exists(&path)? {
            return read(path, &metadata).map(Some);
        }
    }
    if let Some(path) = environment.path(CONFIG) {
        return must_exist(CONFIG, path).map(Some);
    }
    for path in user_file(environment).into_iter().chain([environment.system_file.clone()]) {
        // Nobody named these places. A directory that this user may not enter (HOME of somebody else, left
        // over from sudo) holds no configuration of this user, so that error is passed over.
        if let Ok(Some(metadata)) = exists(&path) {
            return read(path, &metadata).map(Some);
        }
    }
    Ok(None)
}

/// `$XDG_CONFIG_HOME/telecl/telecl.toml`, or the same below `~/.config`.
fn user_file(environment: &Environment<'_>) -> Option<PathBuf> {
    environment
        .path("XDG_CONFIG_HOME")
        // The XDG specification: relative paths are invalid and to be ignored.
        .filter(|path| path.is_absolute())
        .or_else(|| environment.path("HOME").filter(|path| path.is_absolute()).map(|home| home.join(".config")))
        .map(|directory| directory.join("telecl/telecl.toml"))
}

fn must_exist(origin: &'static str, path: PathBuf) -> Result<Found, ConfigError> {
    match exists(&path)? {
        Some(metadata) => read(path, &metadata),
        None => Err(ConfigError::Missing { origin, path }),
    }
}

/// The text of a file that must exist, read as carefully as a configuration.
pub fn read_text(path: &Path) -> Result<String, ConfigError> {
    let metadata = fs::metadata(path).map_err(|cause| ConfigError::Unreadable { path: path.to_owned(), cause })?;
    read(path.to_owned(), &metadata).map(|found| found.text)
}

fn exists(path: &Path) -> Result<Option<Metadata>, ConfigError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(cause) => Err(ConfigError::Unreadable { path: path.to_owned(), cause }),
    }
}

fn read(path: PathBuf, metadata: &Metadata) -> Result<Found, ConfigError> {
    let kind = metadata.file_type();
    // A pipe would make every OpenCL program wait for its writer. `/dev/null` is a way to say "none".
    if kind.is_dir() {
        return Err(ConfigError::NotAFile { path, what: "a directory" });
    }
    if kind.is_fifo() || kind.is_socket() || kind.is_block_device() {
        return Err(ConfigError::NotAFile { path, what: "a pipe, socket or disk" });
    }
    let mut bytes = Vec::new();
    let outcome = File::open(&path).and_then(|file| file.take(MAX_LEN + 1).read_to_end(&mut bytes));
    if let Err(cause) = outcome {
        return Err(ConfigError::Unreadable { path, cause });
    }
    if bytes.len() as u64 > MAX_LEN {
        return Err(ConfigError::TooLarge { path, limit: MAX_LEN });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Found { path, text }),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let line = line_at(&error.as_bytes()[..good], good);
            Err(ConfigError::Syntax { path, line, reason: "the text is not UTF-8".to_owned() })
        }
    }
}

/// The line, counted from 1, that byte `offset` of `text` is on.
pub fn line_at(text: &[u8], offset: usize) -> usize {
    1 + text.iter().take(offset).filter(|byte| **byte == b'\n').count()
}
