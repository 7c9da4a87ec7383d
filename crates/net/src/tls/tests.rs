//! Both sides against each other, and against those of rustls.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use telecl_wire::handshake::Ping;
use telecl_wire::request::Stage;

use super::*;
use crate::{Address, ConnectError, FrameReceiver, FrameSender};

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
