//! Making a private CA, certificates for services and drivers, and keys for tokens.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use telecl_policy::Tenant;

use crate::certificate::{TENANT_URI, common_name_of};
use crate::file::{FileError, Privacy, certificates, read_text};
use crate::token::{KeyError, SigningKey};
use crate::{hex, random};

/// How long a CA and a service's certificate hold.
const CA_LIFETIME: Duration = Duration::from_secs(3650 * 86_400);
const SERVICE_LIFETIME: Duration = Duration::from_secs(825 * 86_400);

/// Clocks differ: certificates hold from a little before they are made.
const BEFORE: Duration = Duration::from_secs(3600);

/// The names of the files in a directory of a PKI.
pub const CA: &str = "ca.pem";
pub const CA_KEY: &str = "ca.key";
pub const SERVICE: &str = "service.pem";
pub const SERVICE_KEY: &str = "service.key";
pub const TOKEN_KEY: &str = "token.key";
pub const TOKEN_PUBLIC: &str = "token.pub";

/// Why nothing was made.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("{0} exists already and is not replaced")]
    Exists(PathBuf),
    #[error("cannot write {path}: {cause}")]
    Write { path: PathBuf, cause: io::Error },
    #[error("{0:?} cannot be a name in a certificate; write host names and addresses")]
    Name(String),
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{0}")]
    Random(#[from] io::Error),
}

/// Makes a CA, a certificate for a service of these names, and a key for tokens, in files of a directory. Replaces nothing.
pub fn init(directory: &Path, names: &[String]) -> Result<Vec<PathBuf>, PkiError> {
    let files = [CA, CA_KEY, SERVICE, SERVICE_KEY, TOKEN_KEY, TOKEN_PUBLIC].map(|name| directory.join(name));
    if let Some(there) = files.iter().find(|file| fs::symlink_metadata(file).is_ok()) {
        return Err(PkiError::Exists(there.clone()));
    }
    // Before anything is written.
    let service = service_params(names)?;
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
    made.map_err(|cause| PkiError::Write { path: directory.to_owned(), cause })?;
    let ca_key = KeyPair::generate()?;
    // Two CAs of different people are not to have the same name: messages about a wrong one would mislead.
    let ca_params = ca_params(&format!("telecl CA {}", hex(&random::<4>()?)))?;
    let ca = ca_params.self_signed(&ca_key)?;
    let service_key = KeyPair::generate()?;
    let certificate = service.signed_by(&service_key, &Issuer::from_params(&ca_params, &ca_key))?;
    let (token_key, token_public) = SigningKey::generate()?;
    let contents =
        [ca.pem(), ca_key.serialize_pem(), certificate.pem(), service_key.serialize_pem(), token_key, token_public];
    for (file, content) in files.iter().zip(contents) {
        write_new(file, &content, if is_private(file) { 0o600 } else { 0o644 })?;
    }
    Ok(files.to_vec())
}

fn is_private(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "key")
}

/// Makes a certificate for a tenant, signed by the CA in a directory. Replaces nothing.
pub fn issue(
    directory: &Path,
    tenant: &Tenant,
    lifetime: Duration,
    certificate: &Path,
    key: &Path,
) -> Result<(), PkiError> {
    for file in [certificate, key] {
        if fs::symlink_metadata(file).is_ok() {
            return Err(PkiError::Exists(file.to_owned()));
        }
    }
    let ca_key = KeyPair::from_pem(&read_text(&directory.join(CA_KEY), Privacy::Owner)?)?;
    let ca_params = params_of_ca(&directory.join(CA))?;
    let ca = Issuer::from_params(&ca_params, &ca_key);
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = named(tenant.as_str());
    let uri = format!("{TENANT_URI}{tenant}");
    params.subject_alt_names.push(SanType::URI(uri.as_str().try_into()?));
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    params.key_usages.push(KeyUsagePurpose::DigitalSignature);
    hold(&mut params, lifetime);
    let own_key = KeyPair::generate()?;
    let made = params.signed_by(&own_key, &ca)?;
    write_new(key, &own_key.serialize_pem(), 0o600)?;
    write_new(certificate, &made.pem(), 0o644)
}

/// A certificate that nobody has signed, for a service that proves itself by a secret; it lives as long as the process.
pub fn self_signed(name: &str) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), PkiError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = named(name);
    hold(&mut params, SERVICE_LIFETIME);
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|_| rcgen::Error::RemoteKeyError)?;
    Ok((vec![certificate.der().clone()], key))
}

/// Makes a secret. Replaces nothing.
pub fn make_secret(file: &Path) -> Result<(), PkiError> {
    write_new(file, &format!("{}\n", hex(&random::<32>()?)), 0o600)
}

/// Of a CA that [`init`] made: all that a signature needs of it is its name.
fn params_of_ca(path: &Path) -> Result<CertificateParams, PkiError> {
    let wrong = || FileError::content(path, "a CA of telecl pki init", "it has no common name");
    let certificates = certificates(path)?;
    let name = certificates.first().and_then(common_name_of).ok_or_else(wrong)?;
    ca_params(&name)
}

fn ca_params(name: &str) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    hold(&mut params, CA_LIFETIME);
    Ok(params)
}

fn service_params(names: &[String]) -> Result<CertificateParams, PkiError> {
    let wrong = |name: &String| PkiError::Name(name.clone());
    for name in names {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-.:*".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return Err(wrong(name));
        }
    }
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = named(names.first().map_or("telecl", String::as_str));
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    params.key_usages.push(KeyUsagePurpose::DigitalSignature);
    hold(&mut params, SERVICE_LIFETIME);
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn hold(params: &mut CertificateParams, lifetime: Duration) {
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + lifetime).into();
}

/// Writes a file that was not there.
pub fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::AlreadyExists => PkiError::Exists(path.to_owned()),
        _ => PkiError::Write { path: path.to_owned(), cause },
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::certificate::tenant_of_certificate;
    use crate::file::private_key;
    use crate::token::VerifyingKeys;

    #[test]
    fn everything_is_made_once_and_kept_well() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("pki");
        let files = init(&directory, &["node7".to_owned(), "10.0.0.7".to_owned()]).unwrap();
        for file in &files {
            let mode = fs::metadata(file).unwrap().mode() & 0o777;
            assert_eq!(mode, if is_private(file) { 0o600 } else { 0o644 }, "{}", file.display());
        }
        assert!(matches!(init(&directory, &["node7".to_owned()]), Err(PkiError::Exists(_))));
        certificates(&directory.join(SERVICE)).unwrap();
        private_key(&directory.join(SERVICE_KEY)).unwrap();
        SigningKey::load(&directory.join(TOKEN_KEY)).unwrap();
        VerifyingKeys::load(&directory.join(TOKEN_PUBLIC)).unwrap();
        let (own, key) = (place.path().join("red.pem"), place.path().join("red.key"));
        let tenant = Tenant::parse("team/red").unwrap();
        issue(&directory, &tenant, Duration::from_secs(60), &own, &key).unwrap();
        assert_eq!(tenant_of_certificate(&certificates(&own).unwrap()[0]), Some(tenant));
        let secret = place.path().join("secret");
        make_secret(&secret).unwrap();
        crate::Secret::load(&secret).unwrap();
        assert!(make_secret(&secret).is_err());
        self_signed("node7").unwrap();
    }

    #[test]
    fn a_wrong_name_leaves_nothing_behind() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("pki");
        for name in ["", "a b", "tls://node7"] {
            assert!(matches!(init(&directory, &[name.to_owned()]), Err(PkiError::Name(_))), "{name:?}");
        }
        assert!(!directory.exists());
    }
}
