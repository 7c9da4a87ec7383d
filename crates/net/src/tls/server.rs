//! The service's side of a TLS handshake.

use std::sync::Arc;
use std::time::Instant;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
};

use super::{Authority, Certificate, Facts, PROTOCOL, TlsError, checks_signatures, export, no_suite, provider, shake};
use crate::Stream;
use crate::record::Crypt;

/// What a driver's certificate is worth.
#[derive(Debug)]
pub enum ClientCertificate {
    /// It has shown none.
    None,
    /// One of those who vouch for drivers has signed it.
    Valid(Certificate),
    /// It was signed by somebody else.
    UnknownAuthority,
    /// It is not right in some other way.
    Invalid(String),
}

/// How a service takes encrypted connections.
#[derive(Clone, Debug)]
pub struct TlsServer {
    pub(super) config: Arc<ServerConfig>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

/// An encrypted connection, and the driver's certificate.
#[derive(Debug)]
pub struct Accepted {
    pub stream: Stream,
    pub certificate: ClientCertificate,
}

impl TlsServer {
    /// Shows this certificate. Asks drivers for theirs if there is somebody who vouches for them.
    pub fn new(
        chain: Vec<Certificate>,
        key: PrivateKeyDer<'static>,
        clients: Option<&Authority>,
    ) -> Result<TlsServer, TlsError> {
        let provider = Arc::new(provider());
        let clients = clients.map(|authority| client_verifier(authority, &provider)).transpose()?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = match &clients {
            Some(_) => builder.with_client_cert_verifier(Arc::new(AskAll { provider })),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| TlsError::Setup(format!("certificate and key do not fit: {error}")))?;
        config.enable_secret_extraction = true;
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(TlsServer { config: Arc::new(config), clients })
    }

    /// Shakes hands until `deadline`. A certificate that is not right is no error here: the driver can be told.
    pub fn accept(&self, stream: Stream, deadline: Instant) -> Result<Accepted, TlsError> {
        let mut connection = ServerConnection::new(Arc::clone(&self.config))?;
        shake(&mut connection, &stream, deadline)?;
        let certificate = self.judge(connection.peer_certificates().unwrap_or_default());
        let [binding, theirs, ours] = export(&connection)?;
        let facts = Facts { binding, verified: true, again: None };
        let crypt = Crypt::new(&connection.dangerous_extract_secrets()?, ours, theirs);
        Ok(Accepted { stream: stream.encrypted(crypt.ok_or_else(no_suite)?, facts), certificate })
    }

    fn judge(&self, chain: &[CertificateDer<'_>]) -> ClientCertificate {
        let (Some(clients), [first, rest @ ..]) = (&self.clients, chain) else { return ClientCertificate::None };
        match clients.verify_client_cert(first, rest, UnixTime::now()) {
            Ok(_) => ClientCertificate::Valid(first.clone().into_owned()),
            Err(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => ClientCertificate::UnknownAuthority,
            Err(rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => ClientCertificate::Invalid("it has expired".to_owned()),
            Err(error) => ClientCertificate::Invalid(error.to_string()),
        }
    }
}

fn client_verifier(
    authority: &Authority,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = Arc::new(authority.roots()?);
    let built = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
    built.map_err(|error| TlsError::Setup(format!("{}: {error}", authority.file.display())))
}

/// Takes every certificate whose key the driver has. What it is worth is found out after the handshake, so that a driver
/// can be told more than an alert says.
#[derive(Debug)]
struct AskAll {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AskAll {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    checks_signatures!();
}
