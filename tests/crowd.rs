//! Crowds that connect and mean nothing by it: whoever does mean something is served all the same.
//!
//! `TELECL_CROWD` (1000) is how many connections of each kind there are.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use system_tests::{Bench, Link, Running, SOON, Service, run, wait_until};
use telecl_wire::handshake::{Compression, Credential, Hello, MAGIC};
use telecl_wire::request::Message;
use telecl_wire::{Header, PROTOCOL_VERSION, encode};
use tempfile::TempDir;
use zerocopy::IntoBytes;

/// How long a client may take while the crowd is there. The bar is 1 s, and it takes a few milliseconds; twice the bar,
/// because tests of others run on the same two processors.
const BAR: Duration = Duration::from_secs(2);

fn crowd() -> usize {
    std::env::var("TELECL_CROWD").map_or(1000, |count| count.parse().unwrap())
}

fn hello() -> Vec<u8> {
    let hello = Hello {
        magic: MAGIC,
        protocol: PROTOCOL_VERSION,
        version: "0",
        program: "crowd",
        pid: 1,
        compression: Compression::Off,
        credential: Credential::NONE,
    };
    let body = encode(&hello);
    [Header::new(Hello::OPCODE, body.len(), 0).as_bytes(), &body].concat()
}

/// Connections cost descriptors here, too.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let enough = limit.maximum.is_none_or(|most| most as usize > 3 * crowd());
    assert!(enough, "{} connections need a limit on open files of more than {:?}", 3 * crowd(), limit.maximum);
}

/// What somebody in the crowd says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Nothing.
    Silent,
    /// Half a hello.
    Half,
    /// A hello, a byte a second.
    Slow,
    /// A hello of TLS, and no word after it.
    Whole,
}

/// Somebody who connects, and again whenever the service has had enough.
struct Pest {
    manner: Manner,
    stream: Option<TcpStream>,
    said: usize,
}

impl Pest {
    fn new(manner: Manner) -> Pest {
        Pest { manner, stream: None, said: 0 }
    }

    /// Whether it had to connect.
    fn go_on(&mut self, address: &str, hello: &[u8]) -> bool {
        let gone = self.stream.as_mut().is_none_or(|stream| match stream.read(&mut [0; 16 << 10]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        });
        if gone {
            self.stream = TcpStream::connect(address).ok();
            self.said = 0;
            if let Some(stream) = &self.stream {
                stream.set_nonblocking(true).unwrap();
            }
        }
        if let Some(stream) = &mut self.stream {
            let upto = match self.manner {
                Manner::Silent => 0,
                Manner::Half => hello.len() / 2,
                Manner::Slow => (self.said + 1).min(hello.len() - 1),
                Manner::Whole => hello.len(),
            };
            if upto > self.said && stream.write_all(&hello[self.said..upto]).is_ok() {
                self.said = upto;
            }
        }
        gone
    }
}

/// Keeps all of them there until told to stop; how often they have connected.
fn pester(address: &str, mut pests: Vec<Pest>, hello: &[u8], stop: &AtomicBool, connected: &AtomicUsize) {
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let again = pests.iter_mut().filter_map(|pest| pest.go_on(address, hello).then_some(())).count();
        connected.fetch_add(again, Ordering::Relaxed);
        thread::sleep(Duration::from_secs(1).saturating_sub(begin.elapsed()));
    }
}

/// What a service has of the system.
fn holdings(service: &Service) -> (usize, usize) {
    let entries = |what: &str| fs::read_dir(format!("/proc/{}/{what}", service.id())).unwrap().count();
    (entries("fd"), entries("task"))
}

/// A service, and those who mean what they say: with a secret over TLS, or without either.
struct Scene {
    bench: Bench,
    service: Service,
    place: TempDir,
    tls: bool,
}

impl Scene {
    fn new(tls: bool) -> Scene {
        let (bench, place) = (Bench::new(), TempDir::with_prefix("telecl-crowd-").unwrap());
        let secret = place.path().join("secret");
        let mut make = bench.vendor.command_direct(&bench.artifacts.telecl);
        make.args(["secret", "create"]).arg(&secret);
        assert!(run(make, SOON).unwrap().success());
        let variables = [("TELECL_SERVE_SECRET", secret.to_str().unwrap())];
        let service = bench.service_at("127.0.0.1:0", if tls { &variables } else { &[] });
        Scene { bench, service, place, tls }
    }

    /// A program that sees the service at this address.
    fn command(&self, program: &Path, address: &str) -> Command {
        let mut command = self.bench.vendor.command_with_driver(program);
        let scheme = if self.tls { "tls://" } else { "" };
        command.env("TELECL_CONFIG", "/dev/null").env("TELECL_SERVICES", format!("{scheme}{address}"));
        command.env("TELECL_SHARED_MEMORY", "0");
        if self.tls {
            command.env("TELECL_SECRET", self.place.path().join("secret"));
        }
        command
    }

    fn list_devices(&self) -> Command {
        let mut command = self.command(&self.bench.artifacts.telecl, self.service.address());
        command.args(["devices", "--json"]);
        command
    }

    /// The first record of a handshake, as a driver sends it.
    fn hello_of_tls(&self) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut command = self.command(&self.bench.artifacts.telecl, &listener.local_addr().unwrap().to_string());
        command.arg("devices");
        let _driver = Running::start(command).unwrap();
        let mut stream = listener.accept().unwrap().0;
        let mut record = vec![0; 5];
        stream.read_exact(&mut record).unwrap();
        record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
        stream.read_exact(&mut record[5..]).unwrap();
        record
    }
}

/// So many of each manner connect again and again, and say what there is of this hello; clients are served all the same, and the service has no more
/// threads than so many more.
fn beside_a_crowd(scene: &Scene, manners: &[(Manner, usize)], hello: &[u8], more_threads: usize) {
    let service = &scene.service;
    assert!(run(scene.list_devices(), SOON).unwrap().success());
    thread::sleep(Duration::from_millis(500));
    let before = holdings(service);
    let pests = |(manner, count): &(Manner, usize)| (0..*count).map(|_| Pest::new(*manner)).collect::<Vec<_>>();
    let pests: Vec<Pest> = manners.iter().flat_map(pests).collect();
    let all = pests.len();
    let (stop, connected) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| pester(service.address(), pests, hello, &stop, &connected));
        wait_until("the crowd is there", SOON, || connected.load(Ordering::Relaxed) >= all * 9 / 10);
        let mut took = Vec::new();
        for _ in 0..20 {
            let ended = run(scene.list_devices(), SOON).unwrap();
            assert!(ended.success(), "{ended}\n{}", service.log());
            took.push(ended.took);
            thread::sleep(Duration::from_millis(200));
        }
        took.sort_unstable();
        let mut command = scene.command(&scene.bench.client, service.address());
        command.arg("use_once");
        let used = run(command, SOON).unwrap();
        let (descriptors, threads) = holdings(service);
        stop.store(true, Ordering::Relaxed);
        let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
        println!(
            "beside {} connections that mean nothing: devices listed within {median:.0?} at the median and {worst:.0?} at \
             most, first result after {:.0?}; the service had {descriptors} descriptors and {threads} threads",
            connected.load(Ordering::Relaxed),
            used.took,
        );
        assert_eq!(used.stdout, "served\n", "{used}\n{}", service.log());
        assert!(worst <= BAR, "{took:?}");
        assert!(threads <= before.1 + more_threads, "{threads} threads, and {} before", before.1);
    });
    // Within the time for a handshake all are gone.
    wait_until("the service is as it was", Duration::from_secs(20), || {
        let (descriptors, threads) = holdings(service);
        descriptors <= before.0 + 2 && threads <= before.1 + 2
    });
}

#[test]
fn a_crowd_that_never_introduces_itself_keeps_nobody_out() {
    raise_descriptors();
    let scene = Scene::new(false);
    let manners = [(Manner::Silent, crowd()), (Manner::Half, crowd()), (Manner::Slow, crowd() / 10)];
    beside_a_crowd(&scene, &manners, &hello(), 32);
    scene.service.stop().unwrap();
}

#[test]
fn a_crowd_that_never_finishes_its_handshake_keeps_nobody_out() {
    raise_descriptors();
    let scene = Scene::new(true);
    let hello = scene.hello_of_tls();
    // Whoever has sent a whole first record has a thread of its own, and there are no more than this.
    const ATTENDED: usize = 256;
    beside_a_crowd(&scene, &[(Manner::Whole, crowd()), (Manner::Half, crowd() / 2)], &hello, ATTENDED + 32);
    scene.service.stop().unwrap();
}

#[test]
fn a_crowd_that_was_welcomed_and_asks_for_nothing_is_bounded_and_who_sat_among_it_computes() {
    raise_descriptors();
    let bench = Bench::new();
    let service = bench.service();
    let mut patient = Running::start(bench.command(&service, Link::Tcp, "list_then_use")).unwrap();
    patient.expect_line("listed", SOON);
    let hello = hello();
    let welcomed: Vec<TcpStream> = (0..crowd())
        .map(|_| {
            let mut stream = TcpStream::connect(service.address()).unwrap();
            stream.write_all(&hello).unwrap();
            let mut header = [0; Header::LEN];
            stream.read_exact(&mut header).unwrap();
            stream
        })
        .collect();
    let (_, threads) = holdings(&service);
    assert!(threads < 700, "{threads} threads for {} sessions that ask for nothing", welcomed.len());
    wait_until("the first was closed for the others", SOON, || service.log().contains("session closed to make room"));
    let id = patient.id();
    kill_process(Pid::from_raw(id.cast_signed()).unwrap(), Signal::USR1).unwrap();
    let ended = patient.end(SOON);
    assert_eq!(ended.stdout, "listed\nserved\n", "{ended}\n{}", service.log());
    let opened = service
        .log()
        .lines()
        .filter(|line| line.contains("session opened") && line.contains(&format!("pid={id} ")))
        .count();
    assert_eq!(opened, 2, "it was among those that were closed, and connected anew");
    drop(welcomed);
    service.stop().unwrap();
}
