//! Who may use a service, and that nobody else can: tokens, certificates and secrets over TLS, with real services and real
//! programs. Every refusal has its own reason in the audit, and tells the user what to do.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use system_tests::{Bench, Ended, Running, SOON, Service, run, wait_until};
use tempfile::TempDir;

/// 64 MiB and more go there and back, on a busy machine.
const A_WHILE: Duration = Duration::from_secs(60);

/// Credentials of a service, and of those who use it.
struct Desk {
    bench: Bench,
    place: TempDir,
}

impl Desk {
    /// With a PKI for localhost, a secret, and a token for the tenant red.
    fn new() -> Desk {
        let desk = Desk { bench: Bench::new(), place: TempDir::with_prefix("telecl-identity-").unwrap() };
        desk.make(&["pki", "init", "--dir", &desk.path("pki"), "--name", "localhost,127.0.0.1"]);
        desk.make(&["secret", "create", &desk.path("secret")]);
        desk.token("red.token", &["--tenant", "red", "--for", "1h"]);
        desk
    }

    fn path(&self, name: &str) -> String {
        self.place.path().join(name).to_str().unwrap().to_owned()
    }

    fn telecl(&self, args: &[&str]) -> Ended {
        let mut command = self.bench.vendor.command_with_driver(&self.bench.artifacts.telecl);
        command.args(args);
        run(command, SOON).unwrap()
    }

    /// Has something made; it must be.
    fn make(&self, args: &[&str]) -> String {
        let ended = self.telecl(args);
        assert!(ended.success(), "{args:?}: {ended}");
        ended.stdout
    }

    /// Makes a token, and returns where it is.
    fn token(&self, name: &str, args: &[&str]) -> String {
        let (key, out) = (self.path("pki/token.key"), self.path(name));
        self.make(&[&["token", "create", "--key", &key, "--out", &out], args].concat());
        out
    }

    /// A service that takes everything there is.
    fn service(&self) -> Service {
        self.service_with(&[])
    }

    fn service_with(&self, more: &[(&str, &str)]) -> Service {
        let files = [
            ("TELECL_SERVE_CERTIFICATE", self.path("pki/service.pem")),
            ("TELECL_SERVE_KEY", self.path("pki/service.key")),
            ("TELECL_CLIENT_CA", self.path("pki/ca.pem")),
            ("TELECL_TOKEN_KEYS", self.path("pki/token.pub")),
            ("TELECL_REVOKED", self.path("revoked")),
            ("TELECL_SERVE_SECRET", self.path("secret")),
            ("TELECL_AUDIT", self.path("audit")),
        ];
        let variables: Vec<(&str, &str)> = files.iter().map(|(name, file)| (*name, file.as_str())).collect();
        self.bench.service_at("127.0.0.1:0", &[&variables, more].concat())
    }

    /// `telecl devices` over TLS, with these flags.
    fn devices(&self, service: &Service, flags: &[&str]) -> Ended {
        self.telecl(&[&["devices", "--timeout", "10s", "--on", &over_tls(service)], flags].concat())
    }

    /// A C program over TLS, with these variables and without shared memory.
    fn client(&self, service: &Service, case: &str, variables: &[(&str, &str)]) -> Command {
        let mut command = self.bench.vendor.command_with_driver(&self.bench.client);
        command.env("TELECL_SERVICES", over_tls(service)).env("TELECL_SHARED_MEMORY", "0");
        command.env("TELECL_CONNECT_TIMEOUT", "10s").envs(variables.iter().copied()).arg(case);
        command
    }

    /// The last line of the audit, when it has changed.
    fn audited(&self, before: usize) -> Value {
        wait_until("the audit has a line", SOON, || self.audit().len() > before);
        self.audit().pop().unwrap()
    }

    fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("audit")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Nobody is served with these flags: the audit has this reason, and the user is told this.
    #[track_caller]
    fn assert_refused(&self, service: &Service, flags: &[&str], reason: &str, told: &str) {
        let before = self.audit().len();
        let ended = self.devices(service, flags);
        assert!(!ended.success() && ended.stdout.contains(told), "{reason}: {ended}");
        let line = self.audited(before);
        assert_eq!((line["outcome"].as_str(), line["reason"].as_str()), (Some("refused"), Some(reason)), "{line}");
        assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:") && line["time"].is_string(), "{line}");
    }

    /// Somebody is served with these flags, as this tenant.
    #[track_caller]
    fn assert_served(&self, service: &Service, flags: &[&str], known_by: &str, tenant: &str) {
        let before = self.audit().len();
        let ended = self.devices(service, flags);
        assert!(ended.success() && ended.stdout.contains(tenant), "{ended}\n{}", service.log());
        let line = self.audited(before);
        let seen = (line["outcome"].as_str(), line["known_by"].as_str(), line["tenant"].as_str());
        assert_eq!(seen, (Some("accepted"), Some(known_by), Some(tenant)), "{line}");
        assert_eq!(line["link"], "tls");
        assert!(line["devices"][0]["device"].is_number() && line["session"].is_number(), "{line}");
    }
}

fn over_tls(service: &Service) -> String {
    format!("tls://localhost:{}", service.address().rsplit_once(':').unwrap().1)
}

fn write_private(path: &str, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn everybody_is_known_by_what_they_show() {
    let desk = Desk::new();
    let service = desk.service();
    let (ca, token, secret) = (desk.path("pki/ca.pem"), desk.path("red.token"), desk.path("secret"));
    desk.make(&["pki", "issue", "--dir", &desk.path("pki"), "--tenant", "team/blue", "--out", &desk.path("blue.pem")]);
    let (certificate, key) = (desk.path("blue.pem"), desk.path("blue.key"));
    desk.assert_served(&service, &["--ca", &ca, "--token", &token], "token", "red");
    desk.assert_served(
        &service,
        &["--ca", &ca, "--certificate", &certificate, "--key", &key],
        "certificate",
        "team/blue",
    );
    // A secret needs no CA: both sides prove it, for this connection.
    let owner = if rustix::process::geteuid().is_root() { "user:root" } else { "user:" };
    let ended = desk.devices(&service, &["--secret", &secret]);
    assert!(ended.success() && ended.stdout.contains(owner), "{ended}");
    service.stop().unwrap();
}

#[test]
fn tokens_that_are_wrong_are_refused_each_for_its_own_reason() {
    let desk = Desk::new();
    let service = desk.service();
    let ca = desk.path("pki/ca.pem");
    let refused = |token: &str, reason: &str, told: &str| {
        desk.assert_refused(&service, &["--ca", &ca, "--token", token], reason, told);
    };
    // Wrong: no token at all.
    write_private(&desk.path("wrong"), "this is no token\n");
    refused(&desk.path("wrong"), "token_malformed", "use the whole line");
    // Expired.
    let short = desk.token("short.token", &["--tenant", "red", "--for", "1s"]);
    thread::sleep(Duration::from_millis(2100));
    refused(&short, "token_expired", "the token has expired");
    // Forged: signed by another key, or changed by hand.
    desk.make(&["pki", "init", "--dir", &desk.path("other"), "--name", "localhost"]);
    let forged = desk.path("forged.token");
    let (key, hour) = (desk.path("other/token.key"), ["--tenant", "red", "--for", "1h"]);
    desk.make(&[&["token", "create", "--key", &key, "--out", &forged], &hour[..]].concat());
    refused(&forged, "token_forged", "not signed by a key that this service knows");
    let token = fs::read_to_string(desk.path("red.token")).unwrap();
    let mut bytes = token.into_bytes();
    bytes[20] = if bytes[20] == b'A' { b'B' } else { b'A' };
    write_private(&desk.path("changed.token"), std::str::from_utf8(&bytes).unwrap());
    refused(&desk.path("changed.token"), "token_forged", "or was changed");
    // For other services, and for devices that are not here.
    let elsewhere = desk.token("elsewhere.token", &["--tenant", "red", "--for", "1h", "--service", "no-such-node"]);
    refused(&elsewhere, "token_elsewhere", "no-such-node");
    let at = desk.token("at.token", &["--tenant", "red", "--for", "1h", "--at", "no-such-node=number:1"]);
    refused(&at, "token_elsewhere", "no-such-node");
    let none = desk.token("none.token", &["--tenant", "red", "--for", "1h", "--at", "*=number:99"]);
    refused(&none, "no_device", "(devices, token)");
    let nothing = desk.token("nothing.token", &["--tenant", "red", "--for", "1h", "--devices", "no such device"]);
    refused(&nothing, "no_device", "(devices, token)");
    // Nothing at all.
    desk.assert_refused(&service, &["--ca", &ca], "no_credential", "wants to know who you are");
    // Revoked, while the service runs.
    desk.assert_served(&service, &["--ca", &ca, "--token", &desk.path("red.token")], "token", "red");
    desk.make(&["token", "revoke", "--list", &desk.path("revoked"), &desk.path("red.token")]);
    wait_until("the list is read", SOON, || service.log().contains("credentials read again"));
    refused(&desk.path("red.token"), "token_revoked", "the token was revoked");
    service.stop().unwrap();
}

#[test]
fn a_token_for_one_session_is_good_for_one() {
    let desk = Desk::new();
    let mut service = desk.service();
    let (ca, once) = (desk.path("pki/ca.pem"), desk.token("once.token", &["--tenant", "ci", "--for", "1h", "--once"]));
    let variables = [("TELECL_CA", ca.as_str()), ("TELECL_TOKEN", once.as_str())];
    // Those who only look use nothing up.
    desk.assert_served(&service, &["--ca", &ca, "--token", &once], "token", "ci");
    let ended = run(desk.client(&service, "use_once", &variables), SOON).unwrap();
    assert!(ended.success() && ended.stdout == "served\n", "{ended}\n{}", service.log());
    // Whoever has copied it comes too late.
    desk.assert_refused(&service, &["--ca", &ca, "--token", &once], "token_replayed", "used as often as it may be");
    let ended = run(desk.client(&service, "use_once", &variables), SOON).unwrap();
    assert!(!ended.success() && ended.stderr.contains("used as often as it may be"), "{ended}");
    // The next service knows it, too.
    service.kill();
    service.start_again(&desk.bench.artifacts, &desk.bench.vendor).unwrap();
    desk.assert_refused(&service, &["--ca", &ca, "--token", &once], "token_replayed", "used as often as it may be");
    service.stop().unwrap();
}

#[test]
fn certificates_of_another_ca_are_refused_on_both_sides() {
    let desk = Desk::new();
    let service = desk.service();
    desk.make(&["pki", "init", "--dir", &desk.path("other"), "--name", "localhost"]);
    desk.make(&["pki", "issue", "--dir", &desk.path("other"), "--tenant", "red", "--out", &desk.path("red.pem")]);
    let (ca, other) = (desk.path("pki/ca.pem"), desk.path("other/ca.pem"));
    let (certificate, key) = (desk.path("red.pem"), desk.path("red.key"));
    let flags = ["--ca", &ca, "--certificate", &certificate, "--key", &key];
    desk.assert_refused(&service, &flags, "certificate_unknown_ca", "signed by a CA that this service does not know");
    // The driver does not know the service, and tells it nothing.
    let token = desk.path("red.token");
    let flags = ["--ca", &other, "--token", &token];
    desk.assert_refused(&service, &flags, "tls_ended_by_driver", "was not signed by the CA in");
    // Nor does one that has nothing to know it by.
    let before = desk.audit().len();
    let ended = desk.devices(&service, &["--token", &token]);
    assert!(!ended.success() && ended.stdout.contains("set ca to a file"), "{ended}");
    assert!(desk.audit()[before..].iter().all(|line| line["outcome"] == "refused"));
    service.stop().unwrap();
}

#[test]
fn a_secret_of_somebody_else_opens_nothing() {
    let desk = Desk::new();
    let service = desk.service();
    desk.make(&["secret", "create", &desk.path("theirs")]);
    let told = "it does not have our secret";
    desk.assert_refused(&service, &["--secret", &desk.path("theirs")], "secret_wrong", told);
    // A file that others can read is not used at all.
    let open = desk.path("open");
    fs::copy(desk.path("secret"), &open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = desk.devices(&service, &["--secret", &open]);
    assert!(!ended.success() && ended.stdout.contains("chmod 600"), "{ended}");
    if rustix::process::geteuid().is_root() {
        // Nor one of another user.
        let foreign = desk.path("foreign");
        fs::copy(desk.path("secret"), &foreign).unwrap();
        std::os::unix::fs::chown(&foreign, Some(12345), None).unwrap();
        fs::set_permissions(&foreign, fs::Permissions::from_mode(0o600)).unwrap();
        let ended = desk.devices(&service, &["--secret", &foreign]);
        assert!(!ended.success() && ended.stdout.contains("belongs to another user (12345)"), "{ended}");
    }
    service.stop().unwrap();
}

/// Passes one connection on, and keeps what the near side has sent.
fn recorder(service: &Service) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (far, recorded) = (service.address().to_owned(), Arc::new(Mutex::new(Vec::new())));
    let record = Arc::clone(&recorded);
    thread::spawn(move || {
        let (mut near, mut far) = (listener.accept().unwrap().0, TcpStream::connect(far).unwrap());
        let (mut back_near, mut back_far) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut back_far, &mut back_near));
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = near.read(&mut bytes) {
            record.lock().unwrap().extend_from_slice(&bytes[..read]);
            far.write_all(&bytes[..read]).unwrap();
        }
        let _ = far.shutdown(std::net::Shutdown::Write);
    });
    (format!("tls://localhost:{port}"), recorded)
}

#[test]
fn what_was_recorded_is_worth_nothing() {
    let desk = Desk::new();
    let service = desk.service();
    for flags in [
        ["--secret", &desk.path("secret"), "--timeout", "10s"],
        ["--ca", &desk.path("pki/ca.pem"), "--token", &desk.path("red.token")],
    ] {
        let (address, recorded) = recorder(&service);
        let ended = desk.telecl(&[&["devices", "--on", &address], &flags[..]].concat());
        assert!(ended.success(), "{ended}");
        let recorded = recorded.lock().unwrap().clone();
        assert!(!String::from_utf8_lossy(&recorded).contains("telecl1."), "the token was to be seen on the way");
        let before = desk.audit().len();
        let mut replayed = TcpStream::connect(service.address()).unwrap();
        replayed.set_read_timeout(Some(SOON)).unwrap();
        replayed.write_all(&recorded).unwrap();
        let _ = replayed.read_to_end(&mut Vec::new());
        let line = desk.audited(before);
        let seen = (line["outcome"].as_str(), line["reason"].as_str());
        assert_eq!(seen, (Some("refused"), Some("tls_replayed")), "{line}");
    }
    service.stop().unwrap();
}

/// The first words of somebody who speaks TLS 1.2 and nothing newer.
fn old_hello() -> Vec<u8> {
    let suites = [0xC0, 0x2F, 0xC0, 0x30];
    let extensions = [
        // Groups: x25519. Signatures: ECDSA and RSA-PSS with SHA-256.
        &[0, 10, 0, 4, 0, 2, 0, 29][..],
        &[0, 13, 0, 6, 0, 4, 4, 3, 8, 4],
    ]
    .concat();
    let hello =
        [&[3, 3][..], &[7; 32], &[0], &[0, 4], &suites, &[1, 0], &[0, extensions.len() as u8], &extensions].concat();
    let message = [&[1, 0, 0, hello.len() as u8][..], &hello].concat();
    [&[22, 3, 1, 0, message.len() as u8][..], &message].concat()
}

#[test]
fn a_browser_is_refused() {
    let desk = Desk::new();
    let service = desk.service();
    let mut browser = Command::new("openssl");
    browser.args(["s_client", "-connect", service.address(), "-alpn", "h2,http/1.1"]);
    let ended = run(browser, SOON).unwrap();
    // A fatal alert: no protocol in common.
    assert!(ended.stderr.contains("alert number 120"), "{ended}");
    let line = desk.audited(0);
    let seen = (line["outcome"].as_str(), line["reason"].as_str());
    assert_eq!(seen, (Some("refused"), Some("tls_other_protocol")), "{line}");
    service.stop().unwrap();
}

#[test]
fn an_older_tls_is_refused() {
    let desk = Desk::new();
    let service = desk.service();
    let mut old = TcpStream::connect(service.address()).unwrap();
    old.set_read_timeout(Some(SOON)).unwrap();
    old.write_all(&old_hello()).unwrap();
    let mut answer = Vec::new();
    let _ = old.read_to_end(&mut answer);
    // A fatal alert: the version is not taken.
    assert!(answer.ends_with(&[2, 70]), "{answer:?}");
    let line = desk.audited(0);
    assert_eq!((line["outcome"].as_str(), line["reason"].as_str()), (Some("refused"), Some("tls_downgrade")), "{line}");
    service.stop().unwrap();
}

/// A program in a network of its own, which has a second address. `None` where that is not allowed.
fn in_own_network(script: &str) -> Option<Ended> {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &format!("ip link set lo up && ip addr add 192.0.2.7/32 dev lo && {script}")]);
    if !rustix::process::geteuid().is_root() || Command::new("ip").arg("-V").output().is_err() {
        eprintln!("not checked: networks of one's own need root and the command ip");
        return None;
    }
    Some(run(command, A_WHILE).unwrap())
}

#[test]
fn a_service_that_others_can_reach_wants_credentials() {
    let desk = Desk::new();
    let service = |flags: &[&str]| {
        let mut command = desk.bench.vendor.command_direct(&desk.bench.artifacts.telecl);
        command.args(["serve", "--listen", "0.0.0.0:0"]).args(flags).env("TELECL_CACHE_DIR", "none");
        command
    };
    let (certificate, key) = (desk.path("pki/service.pem"), desk.path("pki/service.key"));
    let certified = ["--certificate", certificate.as_str(), "--key", key.as_str()];
    for (flags, told) in [(&[][..], "no certificate"), (&certified[..], "nothing says who may connect")] {
        let ended = run(service(flags), SOON).unwrap();
        let told =
            [told, "telecl pki init", "--insecure", "docs/credentials.md"].map(|part| ended.stderr.contains(part));
        assert!(ended.status.is_some_and(|status| status.code() == Some(2)) && told == [true; 4], "{ended}");
    }
    for flags in [&["--insecure"][..], &["--secret", &desk.path("secret")]] {
        let mut running = Running::start(service(flags)).unwrap();
        running.expect_beginning("listening on 0.0.0.0:", SOON);
    }
    // A key that others can read is refused, too.
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = run(service(&certified), SOON).unwrap();
    assert!(!ended.success() && ended.stderr.contains("chmod 640"), "{ended}");
}

#[test]
fn beyond_loopback_nothing_goes_unencrypted() {
    let desk = Desk::new();
    let telecl = desk.bench.artifacts.telecl.display();
    let (dir, audit) = (desk.place.path().display(), desk.path("audit"));
    desk.make(&["pki", "init", "--dir", &desk.path("net"), "--name", "192.0.2.7"]);
    // One after the other: encrypted without being asked to; a downgrade that the driver refuses; one that the service
    // refuses; and the same with a service that does not mind.
    let script = format!(
        "export TELECL_CACHE_DIR=none RUST_LOG=warn XDG_RUNTIME_DIR={dir}; cd {dir}
         {telecl} serve --listen 192.0.2.7:7701 --certificate net/service.pem --key net/service.key \
           --token-keys pki/token.pub --audit {audit} > up & service=$!
         until grep -q listening up; do sleep 0.05; done
         echo first; {telecl} devices --on 192.0.2.7 --ca net/ca.pem --token red.token
         echo second; {telecl} devices --on tcp://192.0.2.7 --ca net/ca.pem --token red.token
         echo third; {telecl} devices --on tcp://192.0.2.7 --insecure --token red.token
         kill $service; wait $service"
    );
    let Some(ended) = in_own_network(&script) else { return };
    let (_, rest) = ended.stdout.split_once("first\n").unwrap();
    let (first, rest) = rest.split_once("second\n").unwrap();
    let (second, third) = rest.split_once("third\n").unwrap();
    assert!(first.contains("192.0.2.7:7701") && first.contains("red"), "{ended}");
    assert!(second.contains("Write tls:// instead"), "{ended}");
    assert!(third.contains("this service speaks TLS"), "{ended}");
    let lines = desk.audit();
    let seen: Vec<_> = lines.iter().map(|line| (line["link"].as_str().unwrap(), line["reason"].as_str())).collect();
    assert_eq!(seen, [("tls", None), ("tcp", Some("plain_refused"))], "{lines:?}");
}

#[test]
fn a_program_computes_over_tls_and_its_streams_are_encrypted_too() {
    let desk = Desk::new();
    let mut service = desk.service();
    let (ca, token, secret) = (desk.path("pki/ca.pem"), desk.path("red.token"), desk.path("secret"));
    for variables in
        [&[("TELECL_CA", ca.as_str()), ("TELECL_TOKEN", token.as_str())][..], &[("TELECL_SECRET", &secret)]]
    {
        for streams in ["0", "3"] {
            let before = service.streams();
            let variables = [variables, &[("TELECL_STREAMS", streams)]].concat();
            let ended = run(desk.client(&service, "measure_transfers", &variables), A_WHILE).unwrap();
            assert!(ended.success() && ended.stderr.is_empty(), "{ended}\n{}", service.log());
            assert_eq!(service.streams() - before, streams.parse::<usize>().unwrap());
        }
    }
    // And with the whole of a program that checks every byte.
    let programs = system_tests::Programs::build().unwrap();
    let case = "a_buffer_is_written_and_read";
    let mut direct = desk.bench.vendor.command_direct(&programs.path("bulk"));
    direct.arg(case);
    let expected = run(direct, A_WHILE).unwrap();
    assert!(expected.success() && expected.stdout.contains("digest"), "{expected}");
    for (streams, compression) in [("0", "off"), ("2", "off"), ("0", "always")] {
        let mut command = desk.bench.vendor.command_with_driver(&programs.path("bulk"));
        command.env("TELECL_SERVICES", over_tls(&service)).env("TELECL_SHARED_MEMORY", "0").arg(case);
        command.env("TELECL_STREAMS", streams).env("TELECL_COMPRESSION", compression);
        command.env("TELECL_CA", &ca).env("TELECL_TOKEN", &token);
        let ended = run(command, A_WHILE).unwrap();
        assert!(ended.success() && ended.stdout == expected.stdout, "{ended}\n{}", service.log());
    }
    assert!(service.ended().is_none());
    service.stop().unwrap();
}

#[test]
fn a_tenant_sees_its_own_sessions_and_a_token_narrows_what_it_gets() {
    let desk = Desk::new();
    let service = desk.service();
    let ca = desk.path("pki/ca.pem");
    let blue = desk.token("blue.token", &["--tenant", "blue", "--for", "1h", "--memory", "1MiB"]);
    let red = desk.path("red.token");
    let variables = [("TELECL_CA", ca.as_str()), ("TELECL_TOKEN", blue.as_str())];
    let ended = run(desk.client(&service, "measure_transfers", &variables), A_WHILE).unwrap();
    let all = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!ended.success() && all.contains("CL_INVALID_BUFFER_SIZE"), "more than the token allows: {ended}");
    let variables = [("TELECL_CA", ca.as_str()), ("TELECL_TOKEN", red.as_str())];
    let mut client = Running::start(desk.client(&service, "work_and_stay", &variables)).unwrap();
    client.expect_line("worked", SOON);
    // The Unix socket would know us as who we are.
    fs::remove_dir_all(service.socket_directory()).unwrap();
    for (token, sees) in [(&red, true), (&blue, false)] {
        let flags = ["sessions", "--json", "--on", &over_tls(&service), "--ca", &ca, "--token", token];
        let ended = desk.telecl(&flags);
        assert_eq!(ended.stdout.contains("fault_client"), sees, "{ended}");
    }
    let ended = desk.telecl(&["sessions", "--on", &over_tls(&service), "--ca", &ca]);
    assert!(
        !ended.success() && format!("{}{}", ended.stdout, ended.stderr).contains("wants to know who you are"),
        "{ended}"
    );
    drop(client);
    service.stop().unwrap();
}

#[test]
fn credentials_are_read_again_when_they_change_and_wrong_ones_are_not_taken() {
    let desk = Desk::new();
    let service = desk.service();
    let token = desk.path("red.token");
    desk.make(&["pki", "init", "--dir", &desk.path("new"), "--name", "localhost"]);
    let replace = |name: &str, from: &Path| {
        let staged = desk.path("staged");
        fs::copy(from, &staged).unwrap();
        fs::rename(&staged, desk.path(&format!("pki/{name}"))).unwrap();
    };
    let read = |line: &str, count: usize| {
        wait_until(line, SOON, || service.log().matches(line).count() >= count);
    };
    desk.assert_served(&service, &["--ca", &desk.path("pki/ca.pem"), "--token", &token], "token", "red");
    // A certificate without its key stays out of force.
    let new = |name: &str| PathBuf::from(desk.path(&format!("new/{name}")));
    replace("service.pem", &new("service.pem"));
    read("those before them stay in force", 1);
    desk.assert_served(&service, &["--ca", &desk.path("pki/ca.pem"), "--token", &token], "token", "red");
    replace("service.key", &new("service.key"));
    read("credentials read again", 1);
    desk.assert_served(&service, &["--ca", &desk.path("new/ca.pem"), "--token", &token], "token", "red");
    // Another key for tokens: the old ones are worth nothing any more.
    replace("token.pub", &new("token.pub"));
    read("credentials read again", 2);
    desk.assert_refused(&service, &["--ca", &desk.path("new/ca.pem"), "--token", &token], "token_forged", "not signed");
    service.stop().unwrap();
}

#[test]
fn users_at_the_unix_socket_need_no_credentials() {
    let desk = Desk::new();
    let mut service = desk.service();
    let mut entries = fs::read_dir(service.socket_directory()).unwrap().map(|entry| entry.unwrap().path());
    let socket = entries.find(|path| path.extension().is_some_and(|ending| ending == "sock")).unwrap();
    let address = format!("unix:{}", socket.display());
    let ended = desk.telecl(&["devices", "--on", &address]);
    assert!(ended.success(), "{ended}");
    let line = desk.audited(0);
    assert_eq!((line["link"].as_str(), line["known_by"].as_str()), (Some("unix"), Some("user")), "{line}");
    // Who shows a token there is who it says.
    let ended = desk.telecl(&["devices", "--on", &address, "--token", &desk.path("red.token")]);
    assert!(ended.success() && ended.stdout.contains("red"), "{ended}");
    // The same program over TLS and through shared memory: one service, both kinds of links.
    let (ca, token) = (desk.path("pki/ca.pem"), desk.path("red.token"));
    let variables = [("TELECL_CA", ca.as_str()), ("TELECL_TOKEN", token.as_str())];
    let ended = run(desk.client(&service, "use_once", &variables), SOON).unwrap();
    assert_eq!(ended.stdout, "served\n", "{ended}");
    let mut command = desk.bench.vendor.command_with_driver(&desk.bench.client);
    command.env("TELECL_SERVICES", &address).arg("use_once");
    let ended = run(command, SOON).unwrap();
    assert_eq!(ended.stdout, "served\n", "{ended}");
    assert!(service.ended().is_none());
    service.stop().unwrap();
}
