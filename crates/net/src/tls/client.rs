//! The driver's side of a TLS handshake.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Instant;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

use super::{Authority, Certificate, Facts, PROTOCOL, TlsError, checks_signatures, export, no_suite, provider, shake};
use crate::record::Crypt;
use crate::stream::{connect_any, connect_unix};
use crate::{Address, ConnectError, Security, Stream};

/// How a driver reaches services.
#[derive(Debug, Default)]
pub struct Dialer {
    authority: Option<Authority>,
    /// The driver's own certificates and key.
    own: Option<(Vec<Certificate>, PrivateKeyDer<'static>)>,
    /// Whether a service that nobody vouches for will prove otherwise who it is.
    proves_itself: bool,
    /// Whether nothing is checked, and nothing need be encrypted.
    insecure: bool,
    /// This certificate and no other.
    pinned: Option<Certificate>,
}

impl Clone for Dialer {
    fn clone(&self) -> Dialer {
        let own = self.own.as_ref().map(|(chain, key)| (chain.clone(), key.clone_key()));
        let (authority, pinned) = (self.authority.clone(), self.pinned.clone());
        Dialer { authority, own, pinned, proves_itself: self.proves_itself, insecure: self.insecure }
    }
}

impl Dialer {
    /// Takes services at their certificates, if one of these has signed them.
    pub fn trust(&mut self, authority: Authority) {
        self.authority = Some(authority);
    }

    /// Shows this certificate to services that ask for one.
    pub fn show(&mut self, chain: Vec<Certificate>, key: PrivateKeyDer<'static>) {
        self.own = Some((chain, key));
    }

    /// Connects to a service that nobody vouches for: the caller has it prove who it is, and that it is the other end of
    /// this very connection ([`Stream::binding`]), before it tells it anything.
    pub fn await_proof(&mut self) {
        self.proves_itself = true;
    }

    /// Checks nothing.
    pub fn be_insecure(&mut self) {
        self.insecure = true;
    }

    pub fn is_insecure(&self) -> bool {
        self.insecure
    }

    /// Connects until `deadline`, trying every address that a name stands for, and shakes hands. Resolving a name may take
    /// longer than that; callers that cannot wait do it in a thread of its own.
    pub fn connect(&self, address: &Address, deadline: Instant) -> Result<Stream, ConnectError> {
        self.connect_as(address, None, deadline)
    }

    /// As [`Dialer::connect`], to a service whose certificate is to be for this name, whatever its address is.
    pub fn connect_as(
        &self,
        address: &Address,
        known_as: Option<&str>,
        deadline: Instant,
    ) -> Result<Stream, ConnectError> {
        let unreachable = |cause| ConnectError::Unreachable { address: address.clone(), cause };
        let (host, port, security) = match address {
            Address::Unix(path) => return connect_unix(path, deadline).map_err(unreachable),
            Address::Tcp { host, port, security } => (host, *port, *security),
        };
        let candidates: Vec<SocketAddr> = (host.as_str(), port)
            .to_socket_addrs()
            .map_err(|cause| ConnectError::Resolve { address: address.clone(), cause })?
            .collect();
        let stays = candidates.iter().all(|candidate| candidate.ip().to_canonical().is_loopback());
        if security == Security::Plain && !stays && !self.insecure {
            return Err(ConnectError::Plain { address: address.clone() });
        }
        let stream = connect_any(candidates.into_iter(), deadline).map_err(unreachable)?;
        let encrypted = match security {
            Security::Tls => true,
            Security::Plain => false,
            Security::ByAddress => !stream.is_loopback(),
        };
        if !encrypted {
            return Ok(stream);
        }
        let shaken = || {
            let host = known_as.unwrap_or(host);
            let name = match host.parse::<IpAddr>() {
                Ok(address) => ServerName::from(address),
                Err(_) => ServerName::try_from(host.to_owned())
                    .map_err(|_| TlsError::Setup(format!("{host} cannot be the name in a certificate")))?,
            };
            self.shake_hands(stream, name, deadline)
        };
        shaken().map_err(|cause| ConnectError::Tls { address: address.clone(), cause })
    }

    pub(super) fn shake_hands(
        &self,
        stream: Stream,
        name: ServerName<'static>,
        deadline: Instant,
    ) -> Result<Stream, TlsError> {
        let verifier = Arc::new(self.verifier()?);
        let config = self.config(Arc::clone(&verifier))?;
        let mut connection = ClientConnection::new(config, name.clone())?;
        shake(&mut connection, &stream, deadline).map_err(|error| self.explain(error, &name))?;
        let [binding, ours, theirs] = export(&connection)?;
        let mut again = self.clone();
        if verifier.inner.is_none() {
            again.pinned = connection.peer_certificates().and_then(|chain| chain.first()).cloned();
        }
        let facts = Facts { binding, verified: verifier.inner.is_some(), again: Some((again, name)) };
        let crypt = Crypt::new(&connection.dangerous_extract_secrets()?, ours, theirs);
        Ok(stream.encrypted(crypt.ok_or_else(no_suite)?, facts))
    }

    pub(super) fn verifier(&self) -> Result<ServiceVerifier, TlsError> {
        let provider = Arc::new(provider());
        let inner = match &self.authority {
            Some(authority) => {
                let roots = Arc::new(authority.roots()?);
                let built = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
                Some(built.map_err(|error| TlsError::Setup(format!("{}: {error}", authority.file.display())))?)
            }
            None if self.proves_itself || self.insecure || self.pinned.is_some() => None,
            None => {
                return Err(TlsError::Setup(
                    "nothing says how to know the service; set ca to a file with the certificate of the CA that signed its \
                     own (ca.pem of telecl pki init), or secret to a file that the service has too"
                        .to_owned(),
                ));
            }
        };
        Ok(ServiceVerifier { inner, pinned: self.pinned.clone(), provider })
    }

    pub(super) fn config(&self, verifier: Arc<ServiceVerifier>) -> Result<Arc<ClientConfig>, TlsError> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&verifier.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.own {
            Some((chain, key)) => builder
                .with_client_auth_cert(chain.clone(), key.clone_key())
                .map_err(|error| TlsError::Setup(format!("certificate and key do not fit: {error}")))?,
            None => builder.with_no_client_auth(),
        };
        config.enable_secret_extraction = true;
        config.resumption = rustls::client::Resumption::disabled();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Arc::new(config))
    }

    /// Says what is wrong with a service's certificate, and what to do.
    fn explain(&self, error: TlsError, name: &ServerName<'_>) -> TlsError {
        let TlsError::Handshake(rustls::Error::InvalidCertificate(reason)) = &error else { return error };
        let file = self.authority.as_ref().map(|authority| authority.file.display().to_string()).unwrap_or_default();
        let name = name.to_str();
        TlsError::Service(match reason {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                "its certificate was not signed by the CA in {file} (ca): somebody else may be answering, or the service \
                 has a certificate of another CA; ask whoever runs it for its ca.pem"
            ),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
                "its certificate is not for {name}: use a name that it has, or have one made for this name \
                 (telecl pki init --name {name})"
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired: whoever runs it has to make a new one".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet: is the clock of this machine right?".to_owned()
            }
            CertificateError::ApplicationVerificationFailure => {
                "it has another certificate than a moment ago".to_owned()
            }
            other => format!("its certificate is not right: {other}"),
        })
    }
}

/// Checks a service's certificate: against an authority, or against one that was seen before, or, where the service proves
/// itself later, only that it has the key.
#[derive(Debug)]
pub(super) struct ServiceVerifier {
    inner: Option<Arc<WebPkiServerVerifier>>,
    pinned: Option<Certificate>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ServiceVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.pinned.as_ref().is_some_and(|pinned| pinned.as_ref() != end_entity.as_ref()) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        match &self.inner {
            Some(inner) => inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now),
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    checks_signatures!();
}
