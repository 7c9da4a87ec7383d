//! TLS 1.3: the handshake of a driver and of a service, by rustls. What follows is in `record.rs`.
//!
//! There are no session tickets and no early data: a handshake that was recorded is worth nothing when it is played again,
//! and after it only records of application data follow, so that the keys can be given away at once.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::DerefMut;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, ConnectionCommon, DigitallySignedStruct, DistinguishedName,
    RootCertStore, ServerConfig, ServerConnection, SideData, SignatureScheme,
};

use crate::record::Crypt;
use crate::stream::{connect_any, connect_unix, wait_readable};
use crate::{Address, ConnectError, Security, Stream};

/// What a record of a handshake begins with; no frame does.
pub(crate) const HANDSHAKE: u8 = 22;

/// The longest record, without its head.
const LONGEST: usize = (16 << 10) + 256;

/// The protocol inside, so that no other service's certificate can be made to answer for this one.
const PROTOCOL: &[u8] = b"telecl";

/// Certificates, as a CA or a chain has them.
pub type Certificate = CertificateDer<'static>;

/// Why there is no encrypted connection.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Handshake(#[from] rustls::Error),
    #[error("{0}")]
    Service(String),
    #[error("{0}")]
    Setup(String),
}

impl TlsError {
    /// Whether the peer did not answer in time.
    pub fn is_timeout(&self) -> bool {
        matches!(self, TlsError::Io(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock))
    }
}

/// AES first where processors have instructions for it; 128 bits are as good as 256 for keys of one connection, and faster.
fn provider() -> CryptoProvider {
    use ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
    let aes = [TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384];
    let mut cipher_suites = aes.to_vec();
    let place = if has_aes() { cipher_suites.len() } else { 0 };
    cipher_suites.insert(place, TLS13_CHACHA20_POLY1305_SHA256);
    CryptoProvider { cipher_suites, ..ring::default_provider() }
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_aes() -> bool {
    true
}

/// What both sides of a handshake have found out.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) binding: [u8; 32],
    /// Whether the driver knows the service by its certificate.
    pub(crate) verified: bool,
    /// How to connect once more: to the same name, and, if nobody vouches for it, to the same certificate.
    again: Option<(Dialer, ServerName<'static>)>,
}

impl Facts {
    pub(crate) fn dial_again(&self, stream: Stream, deadline: Instant) -> Result<Stream, TlsError> {
        let unknown = || TlsError::Setup("this end cannot connect again".to_owned());
        let (dialer, name) = self.again.as_ref().ok_or_else(unknown)?;
        dialer.shake_hands(stream, name.clone(), deadline)
    }
}

/// Those who vouch for services.
#[derive(Clone)]
pub struct Authority {
    certificates: Vec<Certificate>,
    /// The file they come from, for people.
    file: PathBuf,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({})", self.file.display())
    }
}

impl Authority {
    pub fn new(certificates: Vec<Certificate>, file: PathBuf) -> Authority {
        Authority { certificates, file }
    }
}

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

    fn shake_hands(&self, stream: Stream, name: ServerName<'static>, deadline: Instant) -> Result<Stream, TlsError> {
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

    fn verifier(&self) -> Result<ServiceVerifier, TlsError> {
        let provider = Arc::new(provider());
        let inner = match &self.authority {
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                for certificate in &authority.certificates {
                    let wrong = |error| {
                        TlsError::Setup(format!("{} has a certificate that is none: {error}", authority.file.display()))
                    };
                    roots.add(certificate.clone()).map_err(wrong)?;
                }
                let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
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

    fn config(&self, verifier: Arc<ServiceVerifier>) -> Result<Arc<ClientConfig>, TlsError> {
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

/// What both verifiers have in common: whoever shows a certificate must have its key, and speak TLS 1.3.
macro_rules! checks_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

/// Checks a service's certificate: against an authority, or against one that was seen before, or, where the service proves
/// itself later, only that it has the key.
#[derive(Debug)]
struct ServiceVerifier {
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
    config: Arc<ServerConfig>,
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
    let file = authority.file.display();
    let mut roots = RootCertStore::empty();
    for certificate in &authority.certificates {
        let wrong = |error| TlsError::Setup(format!("{file} has a certificate that is none: {error}"));
        roots.add(certificate.clone()).map_err(wrong)?;
    }
    let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    built.map_err(|error| TlsError::Setup(format!("{file}: {error}")))
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

/// Goes through a handshake, reading one record at a time: whatever follows the last is for whoever has the keys.
fn shake<C, D: SideData>(connection: &mut C, stream: &Stream, deadline: Instant) -> Result<(), TlsError>
where
    C: DerefMut<Target = ConnectionCommon<D>>,
{
    let mut record = Vec::new();
    loop {
        let mut wire = Wire { stream, deadline };
        while connection.wants_write() {
            connection.write_tls(&mut wire)?;
        }
        if !connection.is_handshaking() {
            return Ok(());
        }
        record.resize(5, 0);
        wire.read_exact(&mut record)?;
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        if length > LONGEST {
            return Err(rustls::Error::from(rustls::InvalidMessage::MessageTooLarge).into());
        }
        record.resize(5 + length, 0);
        wire.read_exact(&mut record[5..])?;
        let mut rest = &record[..];
        while !rest.is_empty() {
            connection.read_tls(&mut rest)?;
            if let Err(error) = connection.process_new_packets() {
                // The peer is to know why; if it has left, it does.
                let _ = connection.write_tls(&mut wire);
                return Err(error.into());
            }
        }
    }
}

/// A socket with a deadline.
struct Wire<'s> {
    stream: &'s Stream,
    deadline: Instant,
}

impl Read for Wire<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        wait_readable(self.stream, self.deadline)?;
        self.stream.receive(target)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let before = self.stream.send_timeout()?;
        self.stream.set_send_timeout(Some(left))?;
        let sent = self.stream.send_payload(bytes);
        self.stream.set_send_timeout(before)?;
        sent.map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the connection is told by from others, and what the keys after the first ones are made from: the driver's and the
/// service's.
fn export<C, D: SideData>(connection: &C) -> Result<[[u8; 32]; 3], TlsError>
where
    C: std::ops::Deref<Target = ConnectionCommon<D>>,
{
    let mut exported = [[0; 32]; 3];
    let labels: [&[u8]; 3] = [b"EXPORTER-telecl-binding", b"EXPORTER-telecl-driver", b"EXPORTER-telecl-service"];
    for (target, label) in exported.iter_mut().zip(labels) {
        connection.export_keying_material(target, label, None)?;
    }
    Ok(exported)
}

fn no_suite() -> TlsError {
    TlsError::Setup("the peers have agreed on a cipher that is not known here".to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::StreamOwned;
    use telecl_wire::handshake::Ping;
    use telecl_wire::request::Stage;

    use super::*;
    use crate::{FrameReceiver, FrameSender};

    /// A CA of its own, and what it has signed.
    struct Pki {
        issuer: CertifiedIssuer<'static, KeyPair>,
    }

    impl Pki {
        fn new() -> Pki {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            Pki { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
        }

        fn sign(&self, name: &str) -> (Vec<Certificate>, PrivateKeyDer<'static>) {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        }

        fn authority(&self) -> Authority {
            Authority::new(vec![self.issuer.der().clone()], "ca.pem".into())
        }

        fn server(&self) -> TlsServer {
            let (chain, key) = self.sign("localhost");
            TlsServer::new(chain, key, Some(&self.authority())).unwrap()
        }

        fn dialer(&self) -> Dialer {
            let mut dialer = Dialer::default();
            dialer.trust(self.authority());
            dialer
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn listen() -> (TcpListener, Address) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, format!("tls://localhost:{port}").parse().unwrap())
    }

    /// Has `dialer` connect, and `server` accept.
    fn meet(dialer: &Dialer, server: TlsServer) -> (Result<Stream, ConnectError>, Result<Accepted, TlsError>) {
        let (listener, address) = listen();
        let accepting = thread::spawn(move || {
            let stream = Stream::from_fd(listener.accept().unwrap().0.into());
            assert_ne!(stream.begins_handshake(soon()).unwrap(), Some(false));
            server.accept(stream, soon())
        });
        let connected = dialer.connect(&address, soon());
        (connected, accepting.join().unwrap())
    }

    #[test]
    fn frames_pass_in_both_directions_and_go_on_in_another_process() {
        let pki = Pki::new();
        let (near, far) = meet(&pki.dialer(), pki.server());
        let (near, far) = (near.unwrap(), far.unwrap().stream);
        assert!(near.is_encrypted() && far.is_encrypted() && near.is_verified());
        assert!(near.binding() == far.binding() && near.binding() != [0; 32]);
        let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut sender = FrameSender::new(near.try_clone().unwrap());
        sender.push(&Ping { number: 1 }, &[]).unwrap();
        sender.push(&Ping { number: 2 }, &[]).unwrap();
        sender.flush().unwrap();
        // The first process takes the first frame, which came in one record with the second.
        let mut first = [0; telecl_wire::Header::LEN + 8];
        assert_eq!(far.receive_until(&mut first, soon()).unwrap(), first.len());
        assert!(far.has_received());
        let state = far.encryption().unwrap();
        let far = Stream::with_encryption(far.into_fd(), &state).unwrap();
        let copy = bytes.clone();
        let sending = thread::spawn(move || sender.send(&Stage { id: 3 }, &copy).unwrap());
        let mut receiver = FrameReceiver::new(far.try_clone().unwrap());
        let frame = receiver.next_frame().unwrap().unwrap();
        assert_eq!(telecl_wire::decode::<Ping>(frame.body), Ok(Ping { number: 2 }));
        let frame = receiver.next_frame().unwrap().unwrap();
        assert!(frame.payload.read_to_vec().unwrap() == bytes);
        sending.join().unwrap();
        let copy = bytes.clone();
        let sending = thread::spawn(move || far.send_payload(&copy).unwrap());
        let mut back = vec![0; bytes.len()];
        near.receive_payload(&mut back).unwrap();
        sending.join().unwrap();
        assert!(back == bytes);
    }

    #[test]
    fn what_is_left_over_is_heard_of_by_whoever_wants_to_sleep() {
        let pki = Pki::new();
        let (near, far) = meet(&pki.dialer(), pki.server());
        let (near, far) = (near.unwrap(), far.unwrap().stream);
        near.send_payload(&[7; 100]).unwrap();
        assert_eq!(far.receive(&mut [0; 60]).unwrap(), 60);
        let receiver = FrameReceiver::new(far.try_clone().unwrap());
        assert!(!receiver.unmute().unwrap());
        assert_eq!(far.take_received(&mut [0; 60]).unwrap(), Some(40));
        assert!(receiver.unmute().unwrap());
        assert_eq!(far.take_received(&mut [0; 60]).unwrap(), None);
        assert_eq!(far.try_receive(&mut [0; 60]).unwrap(), None);
        near.shutdown();
        assert_eq!(far.receive(&mut [0; 60]).unwrap(), 0);
    }

    #[test]
    fn a_further_connection_is_encrypted_too() {
        let pki = Pki::new();
        let mut dialer = Dialer::default();
        dialer.await_proof();
        let (listener, address) = listen();
        let (server, other) = (pki.server(), Pki::new().server());
        let accepting = thread::spawn(move || {
            for server in [&server, &server, &other] {
                let stream = Stream::from_fd(listener.accept().unwrap().0.into());
                let _ = server.accept(stream, soon());
            }
        });
        let near = dialer.connect(&address, soon()).unwrap();
        assert!(!near.is_verified());
        assert!(near.connect_again(soon()).unwrap().is_encrypted());
        // Nobody vouches for the service: it must at least be the same.
        let error = near.connect_again(soon()).unwrap_err().to_string();
        assert!(error.contains("another certificate"), "{error}");
        accepting.join().unwrap();
    }

    #[test]
    fn a_service_that_nobody_vouches_for_is_refused_and_so_is_a_wrong_name() {
        let (pki, other) = (Pki::new(), Pki::new());
        let (near, far) = meet(&other.dialer(), pki.server());
        let message = near.unwrap_err().to_string();
        assert!(message.contains("not signed by the CA in ca.pem"), "{message}");
        assert!(far.unwrap_err().to_string().contains("received fatal alert"));
        let (near, _) = meet(&Dialer::default(), pki.server());
        let message = near.unwrap_err().to_string();
        assert!(message.contains("set ca to a file"), "{message}");
        let (chain, key) = pki.sign("elsewhere");
        let (near, _) = meet(&pki.dialer(), TlsServer::new(chain, key, None).unwrap());
        let message = near.unwrap_err().to_string();
        assert!(message.contains("not for localhost"), "{message}");
    }

    #[test]
    fn the_certificate_of_a_driver_is_judged_and_the_driver_can_be_told() {
        let (pki, other) = (Pki::new(), Pki::new());
        for (signer, valid) in [(&pki, true), (&other, false)] {
            let mut dialer = pki.dialer();
            let (chain, key) = signer.sign("me");
            dialer.show(chain, key);
            let (near, far) = meet(&dialer, pki.server());
            let (near, far) = (near.unwrap(), far.unwrap());
            let is_valid = matches!(far.certificate, ClientCertificate::Valid(_));
            assert_eq!(is_valid, valid, "{:?}", far.certificate);
            assert!(valid || matches!(far.certificate, ClientCertificate::UnknownAuthority));
            far.stream.send_payload(b"told").unwrap();
            near.receive_payload(&mut [0; 4]).unwrap();
        }
    }

    #[test]
    fn plain_connections_stay_on_the_machine() {
        let address: Address = "tcp://192.0.2.1:7701".parse().unwrap();
        let error = Dialer::default().connect(&address, soon()).unwrap_err();
        assert!(matches!(error, ConnectError::Plain { .. }), "{error}");
        assert!(error.to_string().contains("insecure = true"));
    }

    #[test]
    fn our_records_are_those_of_tls_to_a_driver_of_rustls() {
        let pki = Pki::new();
        let (listener, address) = listen();
        let Address::Tcp { port, .. } = address else { unreachable!() };
        let config = pki.dialer().config(Arc::new(pki.dialer().verifier().unwrap())).unwrap();
        let peer = thread::spawn(move || {
            let connection = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
            let mut tls = StreamOwned::new(connection, TcpStream::connect(("127.0.0.1", port)).unwrap());
            let mut bytes = vec![0; 100_000];
            tls.write_all(&[5; 100_000]).unwrap();
            tls.read_exact(&mut bytes).unwrap();
            tls.conn.send_close_notify();
            tls.flush().unwrap();
            bytes
        });
        let stream = Stream::from_fd(listener.accept().unwrap().0.into());
        let stream = pki.server().accept(stream, soon()).unwrap().stream;
        let mut bytes = vec![0; 100_000];
        stream.receive_payload(&mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 5));
        stream.send_payload(&[6; 100_000]).unwrap();
        assert!(peer.join().unwrap().iter().all(|byte| *byte == 6));
        assert_eq!(stream.receive(&mut bytes).unwrap(), 0, "the word that nothing follows is understood");
    }

    #[test]
    fn our_records_are_those_of_tls_to_a_service_of_rustls() {
        let pki = Pki::new();
        let (listener, address) = listen();
        let config = Arc::clone(&pki.server().config);
        let peer = thread::spawn(move || {
            let connection = ServerConnection::new(config).unwrap();
            let mut tls = StreamOwned::new(connection, listener.accept().unwrap().0);
            let mut bytes = vec![0; 100_000];
            tls.read_exact(&mut bytes).unwrap();
            tls.write_all(&bytes).unwrap();
        });
        let stream = pki.dialer().connect(&address, soon()).unwrap();
        let sent: Vec<u8> = (0..100_000u32).map(|i| (i % 253) as u8).collect();
        stream.send_payload(&sent).unwrap();
        let mut back = vec![0; 100_000];
        stream.receive_payload(&mut back).unwrap();
        assert!(sent == back);
        peer.join().unwrap();
    }
}
