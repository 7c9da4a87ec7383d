//! By what the service is known, and knows its drivers: read at the start, and again when one of the files changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use telecl_config::ServiceCredentialFiles;
use telecl_identity::{FileError, RevokedList, Secret, VerifyingKeys, certificates, pki, private_key};
use telecl_net::{Authority, TlsServer};
use telecl_policy::Tenant;
use tracing::{info, warn};

use super::rules::Stamp;

/// What was read from the files.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) tls: Option<TlsServer>,
    pub(crate) token_keys: Option<VerifyingKeys>,
    pub(crate) revoked: RevokedList,
    pub(crate) secret: Option<Secret>,
}

/// The credentials in force. Its locks are held for a few lines; files are read without them.
#[derive(Debug)]
pub(crate) struct Credentials {
    files: ServiceCredentialFiles,
    /// Whose sessions those are that know the secret.
    pub(crate) secret_tenant: Tenant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    known: Arc<Known>,
    /// Of the files that were read last, whether they were right or not.
    stamps: Vec<Option<Stamp>>,
}

impl Credentials {
    /// Reads all files. One that is wrong is an error: at the start there is none before it that could stay in force.
    pub(crate) fn load(files: ServiceCredentialFiles, owner: Tenant) -> Result<Credentials, String> {
        let secret_tenant = match &files.secret_tenant {
            Some(name) => Tenant::parse(name).map_err(|error| format!("secret_tenant: {error}"))?,
            None => owner,
        };
        // Before reading: what is written meanwhile is then read again.
        let stamps = stamps(&files);
        let known = Arc::new(read(&files, None)?);
        let state = Mutex::new(State { known, stamps });
        Ok(Credentials { files, secret_tenant, state })
    }

    /// What holds now.
    pub(crate) fn current(&self) -> Arc<Known> {
        Arc::clone(&self.lock().known)
    }

    /// Whether there are files that may change.
    pub(crate) fn has_files(&self) -> bool {
        paths(&self.files).next().is_some()
    }

    /// Whether drivers can show something.
    pub(crate) fn any(&self) -> bool {
        self.files.any()
    }

    /// Whether everybody over TCP must be known.
    pub(crate) fn required(&self) -> bool {
        self.files.require.unwrap_or(self.files.any())
    }

    /// The socket of whoever reviews tokens of Kubernetes.
    pub(crate) fn reviewer(&self) -> Option<&Path> {
        self.files.token_review.as_deref()
    }

    pub(crate) fn is_insecure(&self) -> bool {
        self.files.insecure
    }

    /// Reads the files again if one has changed, or if told to. Wrong ones are logged, and those before them stay.
    pub(crate) fn look(&self, anyway: bool) {
        let stamps = stamps(&self.files);
        let before = {
            let state = self.lock();
            if !self.has_files() || (!anyway && stamps == state.stamps) {
                return;
            }
            Arc::clone(&state.known)
        };
        let read = read(&self.files, before.tls.as_ref());
        let mut state = self.lock();
        state.stamps = stamps;
        match read {
            Ok(known) => {
                state.known = Arc::new(known);
                drop(state);
                info!("credentials read again: new connections are under them, running sessions go on");
            }
            Err(reason) => {
                drop(state);
                warn!(reason, "the credentials are wrong; those before them stay in force");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn paths(files: &ServiceCredentialFiles) -> impl Iterator<Item = &PathBuf> {
    let ServiceCredentialFiles { certificate, key, client_ca, token_keys, revoked, secret, .. } = files;
    [certificate, key, client_ca, token_keys, revoked, secret].into_iter().flatten()
}

fn stamps(files: &ServiceCredentialFiles) -> Vec<Option<Stamp>> {
    paths(files).map(|path| Stamp::of(path)).collect()
}

/// Reads what there is. A certificate of our own making is kept: drivers may know it.
fn read(files: &ServiceCredentialFiles, before: Option<&TlsServer>) -> Result<Known, String> {
    let text = |error: FileError| error.to_string();
    let authority = |path: &PathBuf| certificates(path).map(|found| Authority::new(found, path.clone()));
    let clients = files.client_ca.as_ref().map(authority).transpose().map_err(text)?;
    let secret = files.secret.as_deref().map(Secret::load).transpose().map_err(|error| error.to_string())?;
    let tls = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            let made = TlsServer::new(
                certificates(certificate).map_err(text)?,
                private_key(key).map_err(text)?,
                clients.as_ref(),
            );
            Some(made.map_err(|error| format!("{} and {}: {error}", certificate.display(), key.display()))?)
        }
        (Some(_), None) => return Err("certificate is set, and key is not: a certificate needs its key".to_owned()),
        (None, Some(_)) => return Err("key is set, and certificate is not: a key needs its certificate".to_owned()),
        (None, None) => match (before, &secret) {
            (Some(before), _) => Some(before.clone()),
            // Drivers with the secret take any certificate.
            (None, Some(_)) => {
                let (chain, key) = pki::self_signed(&telecl_net::host_name()).map_err(|error| error.to_string())?;
                Some(TlsServer::new(chain, key, clients.as_ref()).map_err(|error| error.to_string())?)
            }
            (None, None) => None,
        },
    };
    let token_keys = files.token_keys.as_deref().map(VerifyingKeys::load).transpose();
    Ok(Known {
        tls,
        token_keys: token_keys.map_err(|error| error.to_string())?,
        revoked: files.revoked.as_deref().map(revoked).transpose()?.unwrap_or_default(),
        secret,
    })
}

/// Nobody has been revoked as long as there is no file.
fn revoked(path: &Path) -> Result<RevokedList, String> {
    if !path.exists() {
        return Ok(RevokedList::default());
    }
    RevokedList::load(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn files_are_read_again_and_wrong_ones_change_nothing() {
        let place = tempfile::tempdir().unwrap();
        let secret = place.path().join("secret");
        let files = ServiceCredentialFiles { secret: Some(secret.clone()), ..ServiceCredentialFiles::default() };
        let load = || Credentials::load(files.clone(), Tenant::anonymous());
        assert!(load().unwrap_err().contains("cannot read"));
        write(&secret, &"a".repeat(40));
        let credentials = load().unwrap();
        assert!(credentials.required() && credentials.current().tls.is_some());
        let proof = |credentials: &Credentials| {
            credentials.current().secret.as_ref().unwrap().prove_driver(&[1; 32], &[2; 32], &[3; 32])
        };
        let first = proof(&credentials);
        write(&secret, "short");
        credentials.look(false);
        assert_eq!(proof(&credentials), first);
        write(&secret, &"b".repeat(40));
        credentials.look(false);
        assert_ne!(proof(&credentials), first);
    }

    #[test]
    fn without_files_nobody_has_to_show_anything() {
        let credentials = Credentials::load(ServiceCredentialFiles::default(), Tenant::anonymous()).unwrap();
        assert!(!credentials.required() && !credentials.has_files());
    }
}
