//! TLS 1.3: the handshake of a driver and of a service, by rustls. What follows is in `record.rs`.
//!
//! There are no session tickets and no early data: a handshake that was recorded is worth nothing when it is played again,
//! and after it only records of application data follow, so that the keys can be given away at once.

mod client;
mod server;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read, Write};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ConnectionCommon, RootCertStore, SideData};

use crate::Stream;
use crate::stream::wait_readable;

pub use client::Dialer;
pub use server::{Accepted, ClientCertificate, TlsServer};

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

    /// Why a service has no encrypted connection with a driver, in a word.
    pub fn code(&self) -> &'static str {
        use rustls::PeerIncompatible::{SupportedVersionsExtensionRequired, Tls12NotOfferedOrEnabled};
        match self {
            TlsError::Handshake(rustls::Error::PeerIncompatible(
                SupportedVersionsExtensionRequired | Tls12NotOfferedOrEnabled,
            )) => "tls_downgrade",
            TlsError::Handshake(rustls::Error::AlertReceived(_)) => "tls_ended_by_driver",
            TlsError::Handshake(rustls::Error::NoApplicationProtocol) => "tls_other_protocol",
            // What was recorded, or changed on its way, does not fit the keys of this handshake.
            TlsError::Handshake(rustls::Error::DecryptError) => "tls_replayed",
            _ => "tls",
        }
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

    /// As rustls wants them.
    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in &self.certificates {
            let wrong =
                |error| TlsError::Setup(format!("{} has a certificate that is none: {error}", self.file.display()));
            roots.add(certificate.clone()).map_err(wrong)?;
        }
        Ok(roots)
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

use checks_signatures;

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
                // The peer is to know why, after what it is to know anyway; if it has left, it does.
                while connection.wants_write() && connection.write_tls(&mut wire).is_ok() {}
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
    C: Deref<Target = ConnectionCommon<D>>,
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
