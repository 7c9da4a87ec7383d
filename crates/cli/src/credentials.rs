//! Who this command is to services, as the driver would be: by the configuration, or by flags, which come first.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::Args;
use telecl_config::{Address, CredentialFiles, DriverConfig};
use telecl_identity::Credentials;

use crate::exit::{Exit, Failure};
use crate::survey::{self, Silence};

/// Flags for what says who we are, and who vouches for services.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Credentials (files; docs/credentials.md)")]
pub(crate) struct CredentialArgs {
    /// The CA that vouches for the service [default: ca]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Our certificate [default: certificate]
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its key [default: key]
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// A file with a token [default: token]
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// A file with a secret that the service has too [default: secret]
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Neither encrypt nor check whom we talk to where that is not possible
    #[arg(long)]
    insecure: bool,
}

/// Those of this command.
static FLAGS: OnceLock<CredentialArgs> = OnceLock::new();

impl CredentialArgs {
    /// Whoever has this secret.
    pub(crate) fn of_secret(file: &Path) -> CredentialArgs {
        CredentialArgs { secret: Some(file.to_owned()), ..CredentialArgs::default() }
    }

    /// Has everything that follows use these.
    pub(crate) fn apply(&self) -> Result<(), Failure> {
        let mut flags = self.clone();
        for file in flags.files().into_iter().flatten() {
            // The program that `telecl run` starts may go elsewhere.
            *file = std::path::absolute(&*file).map_err(|error| {
                Failure::new(Exit::Usage, format!("{}: {error}", file.display()), "Name a file with its whole path")
            })?;
        }
        // There is one command in a process.
        let _ = FLAGS.set(flags);
        Ok(())
    }

    fn files(&mut self) -> [Option<&mut PathBuf>; 5] {
        let CredentialArgs { ca, certificate, key, token, secret, .. } = self;
        [ca, certificate, key, token, secret].map(Option::as_mut)
    }
}

/// What the driver of a program is to find in its environment.
pub(crate) fn variables() -> Vec<(&'static str, OsString)> {
    let mut flags = FLAGS.get().cloned().unwrap_or_default();
    let insecure = flags.insecure.then(|| ("TELECL_INSECURE", "1".into()));
    let names = ["TELECL_CA", "TELECL_CERTIFICATE", "TELECL_KEY", "TELECL_TOKEN", "TELECL_SECRET"];
    let files = names.into_iter().zip(flags.files());
    files.filter_map(|(name, file)| file.map(|file| (name, file.clone().into()))).chain(insecure).collect()
}

/// Reads the credentials; what is wrong with them is said of the service for which they are wanted.
pub(crate) fn load(address: &Address) -> Result<Credentials, Silence> {
    let wrong = |reason: String| survey::silence(address, reason, "docs/credentials.md says how to make credentials");
    let configured = DriverConfig::load().map_err(|error| wrong(error.to_string()))?.credentials;
    let flags = FLAGS.get().cloned().unwrap_or_default();
    let files = CredentialFiles {
        ca: flags.ca.or(configured.ca),
        certificate: flags.certificate.or(configured.certificate),
        key: flags.key.or(configured.key),
        token: flags.token.or(configured.token),
        secret: flags.secret.or(configured.secret),
        insecure: flags.insecure || configured.insecure,
        container: configured.container,
        profile: configured.profile,
    };
    Credentials::load(&files).map_err(|error| wrong(format!("credentials cannot be used: {error}")))
}
