//! Which files have credentials. What is in them is not read here.

use std::path::PathBuf;

use crate::settings::Settings;

/// What a driver shows to services, and whom it trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFiles {
    /// Certificates of those who vouch for services.
    pub ca: Option<PathBuf>,
    /// The driver's own certificate, and its key.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// A signed token.
    pub token: Option<PathBuf>,
    /// A secret that the service has too.
    pub secret: Option<PathBuf>,
    /// Whether connections to other machines may be neither encrypted nor checked.
    pub insecure: bool,
    /// Which container of its pod the program is in, and which profile it wants: said beside a Kubernetes token.
    pub container: Option<String>,
    pub profile: Option<String>,
}

impl CredentialFiles {
    pub(crate) fn of(settings: &Settings) -> CredentialFiles {
        let path = |file: &Option<crate::value::CredentialFile>| file.as_ref().map(|file| file.0.clone());
        CredentialFiles {
            ca: path(&settings.ca),
            certificate: path(&settings.certificate),
            key: path(&settings.key),
            token: path(&settings.token),
            secret: path(&settings.secret),
            insecure: settings.insecure.unwrap_or(false),
            container: settings.container.as_ref().map(|name| name.0.clone()),
            profile: settings.profile.as_ref().map(|name| name.0.clone()),
        }
    }
}

/// What a service shows to drivers, and by what it knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceCredentialFiles {
    /// The service's own certificate, and its key.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Certificates of those who vouch for drivers.
    pub client_ca: Option<PathBuf>,
    /// Public keys, any of which may have signed a token.
    pub token_keys: Option<PathBuf>,
    /// Ids of tokens that are not taken any more.
    pub revoked: Option<PathBuf>,
    /// The socket of whoever reviews tokens of Kubernetes' service accounts.
    pub token_review: Option<PathBuf>,
    /// A secret that drivers have too, and the tenant that they are.
    pub secret: Option<PathBuf>,
    pub secret_tenant: Option<String>,
    /// Whether everybody over TCP must show a credential; if nobody says so, as soon as there is one to show.
    pub require: Option<bool>,
    /// Whether other machines may connect without encryption and credentials.
    pub insecure: bool,
}

impl ServiceCredentialFiles {
    pub(crate) fn of(settings: &Settings) -> ServiceCredentialFiles {
        let path = |file: &Option<crate::value::CredentialFile>| file.as_ref().map(|file| file.0.clone());
        ServiceCredentialFiles {
            certificate: path(&settings.serve_certificate),
            key: path(&settings.serve_key),
            client_ca: path(&settings.client_ca),
            token_keys: path(&settings.token_keys),
            revoked: path(&settings.revoked),
            token_review: path(&settings.token_review),
            secret: path(&settings.serve_secret),
            secret_tenant: settings.secret_tenant.as_ref().map(|name| name.0.clone()),
            require: settings.require_credentials,
            insecure: settings.serve_insecure.unwrap_or(false),
        }
    }

    /// Whether drivers can show something.
    pub fn any(&self) -> bool {
        let Self { client_ca, token_keys, token_review, secret, .. } = self;
        [client_ca, token_keys, token_review, secret].into_iter().any(Option::is_some)
    }
}
