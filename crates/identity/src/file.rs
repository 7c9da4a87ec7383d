//! Reading files with credentials, and refusing those that are not kept well.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// No credential is longer.
const LONGEST: u64 = 1 << 20;

/// Who may be able to read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privacy {
    /// Anybody: certificates and public keys.
    Public,
    /// Its owner, and a group that may only read: mode 0640 or less. Keys and tokens, which a service may get from its
    /// group.
    Group,
    /// Its owner alone: mode 0600 or less. Secrets.
    Owner,
    /// Anybody may read it who gets to it, and nobody but its owner may change it: mode 0644 or less. Tokens that a
    /// kubelet has put into a container, which nobody else gets to.
    Mounted,
}

/// Why a file with a credential is not used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {path}: {cause}")]
    Read { path: PathBuf, cause: io::Error },
    #[error("{path} is no file")]
    NoFile { path: PathBuf },
    #[error("{path} is too long for a credential")]
    TooLong { path: PathBuf },
    #[error("{path} may be read or changed by others (mode {mode:04o}); say: chmod {wanted} {path}")]
    Open { path: PathBuf, mode: u32, wanted: &'static str },
    #[error("{path} belongs to another user ({owner}): use a file of your own")]
    Foreign { path: PathBuf, owner: u32 },
    #[error("{path} is not {what}: {reason}")]
    Content { path: PathBuf, what: &'static str, reason: String },
}

impl FileError {
    pub(crate) fn content(path: &Path, what: &'static str, reason: impl ToString) -> FileError {
        FileError::Content { path: path.to_owned(), what, reason: reason.to_string() }
    }
}

/// Reads a file, if it is kept as it should be.
pub fn read(path: &Path, privacy: Privacy) -> Result<Vec<u8>, FileError> {
    let failed = |cause| FileError::Read { path: path.to_owned(), cause };
    // Of the file that is read, not of one that stands in its place a moment later.
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(FileError::NoFile { path: path.to_owned() });
    }
    let (forbidden, wanted) = match privacy {
        Privacy::Public => (0, ""),
        Privacy::Group => (0o027, "640"),
        Privacy::Mounted => (0o022, "644"),
        Privacy::Owner => (0o077, "600"),
    };
    if meta.mode() & forbidden != 0 {
        return Err(FileError::Open { path: path.to_owned(), mode: meta.mode() & 0o7777, wanted });
    }
    let own = [0, rustix::process::geteuid().as_raw()];
    if privacy != Privacy::Public && !own.contains(&meta.uid()) {
        return Err(FileError::Foreign { path: path.to_owned(), owner: meta.uid() });
    }
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LONGEST {
        return Err(FileError::TooLong { path: path.to_owned() });
    }
    Ok(bytes)
}

/// As [`read`], of a text.
pub fn read_text(path: &Path, privacy: Privacy) -> Result<String, FileError> {
    String::from_utf8(read(path, privacy)?).map_err(|_| FileError::content(path, "text", "it is not UTF-8"))
}

/// All certificates of a PEM file; one at least.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let what = "a file of certificates in PEM form";
    let bytes = read(path, Privacy::Public)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| FileError::content(path, what, error))?;
    if found.is_empty() { Err(FileError::content(path, what, "it has none")) } else { Ok(found) }
}

/// The private key of a PEM file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let bytes = read(path, Privacy::Group)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| FileError::content(path, "a private key in PEM form", error))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_refused_by_what_it_is_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("secret");
        fs::write(&path, "x").unwrap();
        for (mode, public, group, owner) in [
            (0o600, true, true, true),
            (0o640, true, true, false),
            (0o644, true, false, false),
            (0o620, true, false, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let taken = |privacy| read(&path, privacy).is_ok();
            let all = [taken(Privacy::Public), taken(Privacy::Group), taken(Privacy::Owner)];
            assert_eq!(all, [public, group, owner], "{mode:o}");
        }
        let message = read(&path, Privacy::Owner).unwrap_err().to_string();
        assert!(message.contains("mode 0620") && message.contains("chmod 600"), "{message}");
        assert!(read(place.path(), Privacy::Public).is_err());
        assert!(read(&place.path().join("none"), Privacy::Public).unwrap_err().to_string().contains("none"));
        assert!(certificates(&path).unwrap_err().to_string().contains("it has none"));
    }
}
