//! Which link a driver takes: shared memory where it can be had, TCP where it cannot, and what either costs in memory.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{Pid, Signal, kill_process};
use system_tests::{Bench, Ended, Link, Running, SOON, Service, run, wait_until};
use telecl_wire::handshake::{Refused, Welcome};
use telecl_wire::region::Region;
use telecl_wire::reply::{Completed, Data};
use telecl_wire::request::Message;
use telecl_wire::{Header, PROTOCOL_VERSION, decode, encode};
use tempfile::TempDir;
use zerocopy::IntoBytes;

// ---- a socket that is not the service's ------------------------------------------------------------------------------

/// A way to a real service on which `Welcome` is changed.
struct Disguise {
    address: String,
}

/// What is said about the service's Unix socket.
#[derive(Clone)]
struct Said {
    socket: PathBuf,
    /// The service's own if none.
    instance: Option<u64>,
}

impl Disguise {
    /// Over TCP; ends with the test process.
    fn of(service: &Service, said: Said) -> Disguise {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, real) = (listener.local_addr().unwrap().to_string(), service.address().to_owned());
        thread::spawn(move || {
            for driver in listener.incoming().flatten() {
                let (real, said) = (real.clone(), said.clone());
                // The driver may leave at any time.
                thread::spawn(move || pass_on(driver, &real, &said));
            }
        });
        Disguise { address }
    }
}

fn pass_on(mut driver: TcpStream, real: &str, said: &Said) -> io::Result<()> {
    let mut service = TcpStream::connect(real)?;
    driver.set_nodelay(true)?;
    service.set_nodelay(true)?;
    service.write_all(&read_frame(&mut driver)?)?;
    driver.write_all(&changed(&read_frame(&mut service)?, said))?;
    let (mut from, mut to) = (driver.try_clone()?, service.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let copied = io::copy(&mut service, &mut driver);
    let _ = driver.shutdown(Shutdown::Both);
    copied.map(drop)
}

/// The bytes of one frame without payload.
fn read_frame(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut header = [0; Header::LEN];
    stream.read_exact(&mut header)?;
    let mut frame = header.to_vec();
    frame.resize(Header::LEN + Header::parse(&header).unwrap().body_len(), 0);
    stream.read_exact(&mut frame[Header::LEN..])?;
    Ok(frame)
}

fn frame<'a, M: Message<'a>>(message: &M) -> Vec<u8> {
    let body = encode(message);
    [Header::new(M::OPCODE, body.len(), 0).as_bytes(), &body].concat()
}

fn changed(welcome: &[u8], said: &Said) -> Vec<u8> {
    let mut welcome: Welcome<'_> = decode(&welcome[Header::LEN..]).unwrap();
    welcome.socket = said.socket.to_str().unwrap();
    welcome.instance = said.instance.unwrap_or(welcome.instance);
    frame(&welcome)
}

/// Something that does `answer` with every connection to a Unix socket; ends with the test process.
fn listen_at(path: &Path, answer: impl Fn(UnixStream) -> io::Result<()> + Send + 'static) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = answer(stream);
        }
    });
}

/// Runs a program that meets a service in disguise.
fn meet(bench: &Bench, disguise: &Disguise) -> Ended {
    let mut command = bench.vendor.command_with_driver(&bench.client);
    command.arg("use_or_lose").env("TELECL_SERVICES", &disguise.address).env("TELECL_CONNECT_TIMEOUT", "1s");
    run(command, SOON).unwrap()
}

/// Where `make` puts something at the socket's path, the program is served over TCP all the same.
fn assert_falls_back(make: impl FnOnce(&Path)) {
    let (bench, place) = (Bench::new(), TempDir::new().unwrap());
    let service = bench.service();
    let socket = place.path().join("service.sock");
    make(&socket);
    let ended = meet(&bench, &Disguise::of(&service, Said { socket, instance: None }));
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("served\n", ""), "{ended}");
    assert!(ended.success(), "{ended}");
    assert_eq!(service.check_link(ended.id, Link::Tcp), Ok(1));
    service.wait_without_workers(SOON);
}

#[test]
fn a_path_with_nothing_there_is_passed_over() {
    assert_falls_back(|_| {});
}

#[test]
fn a_path_that_is_no_socket_is_passed_over() {
    assert_falls_back(|path| fs::write(path, b"text").unwrap());
    assert_falls_back(|path| fs::create_dir(path).unwrap());
    assert_falls_back(|path| std::os::unix::fs::symlink("/dev/null", path).unwrap());
}

#[test]
fn a_socket_that_nobody_listens_at_is_passed_over() {
    assert_falls_back(|path| drop(UnixListener::bind(path).unwrap()));
}

#[test]
fn a_socket_that_closes_at_once_is_passed_over() {
    assert_falls_back(|path| listen_at(path, |_| Ok(())));
}

#[test]
fn a_socket_that_closes_after_the_greeting_is_passed_over() {
    assert_falls_back(|path| listen_at(path, |mut stream| read_frame(&mut stream).map(drop)));
}

#[test]
fn a_socket_that_refuses_is_passed_over() {
    let refusal = frame(&Refused { reason: "not you", protocol: PROTOCOL_VERSION });
    assert_falls_back(|path| listen_at(path, move |mut stream| stream.write_all(&refusal)));
}

#[test]
fn a_socket_that_speaks_garbage_is_passed_over() {
    assert_falls_back(|path| listen_at(path, |mut stream| stream.write_all(&[0xff; 100_000])));
}

#[test]
fn a_socket_that_is_silent_is_passed_over() {
    assert_falls_back(|path| {
        listen_at(path, |stream| {
            // Kept open for the rest of the test.
            std::mem::forget(stream);
            Ok(())
        });
    });
}

#[test]
fn a_socket_that_takes_no_connections_is_passed_over() {
    assert_falls_back(|path| {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
        let address = SocketAddrUnix::new(path).unwrap();
        let socket = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        let listener = socket();
        bind(&listener, &address).unwrap();
        listen(&listener, 0).unwrap();
        let mut waiting = vec![listener];
        loop {
            let next = socket();
            match connect(&next, &address) {
                Ok(()) => waiting.push(next),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => panic!("{error}"),
            }
        }
        std::mem::forget(waiting);
    });
}

#[test]
fn the_socket_of_another_service_is_passed_over() {
    let bench = Bench::new();
    let (service, other) = (bench.service(), bench.service());
    let files = fs::read_dir(other.socket_directory()).unwrap().map(|entry| entry.unwrap().path());
    // Beside it is the directory for the next service.
    let sockets: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|found| found == "sock")).collect();
    let [socket] = <[PathBuf; 1]>::try_from(sockets).unwrap();
    let ended = meet(&bench, &Disguise::of(&service, Said { socket, instance: None }));
    assert_eq!(ended.stdout, "served\n", "{ended}");
    assert_eq!(service.check_link(ended.id, Link::Tcp), Ok(1));
    assert_eq!(other.check_link(ended.id, Link::Tcp), Ok(0), "the other service was used");
}

/// A Unix socket that greets as the service would, with the number that the service was said to have, and then does
/// something with the connection.
fn assert_loses(then: impl Fn(&mut UnixStream) -> io::Result<()> + Send + 'static) {
    let (bench, place) = (Bench::new(), TempDir::new().unwrap());
    let mut service = bench.service();
    let said = Said { socket: place.path().join("service.sock"), instance: Some(4711) };
    let (real, repeated) = (service.address().to_owned(), said.clone());
    listen_at(&said.socket, move |mut driver| {
        let mut service = TcpStream::connect(&real)?;
        service.write_all(&read_frame(&mut driver)?)?;
        driver.write_all(&changed(&read_frame(&mut service)?, &repeated))?;
        then(&mut driver)
    });
    let ended = meet(&bench, &Disguise::of(&service, said));
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("lost\n", ""), "{ended}");
    assert!(ended.success(), "{ended}");
    bench.assert_serves(&mut service);
}

#[test]
fn a_service_that_hangs_up_before_memory_is_shared_is_lost() {
    assert_loses(|_| Ok(()));
}

#[test]
fn a_service_that_hangs_up_after_memory_was_shared_is_lost() {
    assert_loses(|driver| {
        driver.read_exact(&mut [0; Header::LEN])?;
        // Bells, before the end.
        driver.write_all(&[7; 1000])
    });
}

/// Where the worker's part of the shared memory is (`crates/shm`): its position, the driver's, and its ring.
const TAIL: u64 = 1024;
const HEAD: u64 = TAIL + 128;
const RING: u64 = (64 << 10) + (2 << 20);

/// The memory that a driver offers.
fn take_memory(driver: &UnixStream) -> io::Result<File> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut header = [0; Header::LEN];
    rustix::net::recvmsg(driver, &mut [IoSliceMut::new(&mut header)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let memory = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    memory.map(File::from).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// A worker that puts these bytes into its ring, shows the driver so many of them, and then has its position elsewhere. It
/// stays there, so that the driver must notice by itself.
fn assert_notices(bytes: Vec<u8>, harmless: u64, position: u64) {
    assert_loses(move |driver| {
        let memory = take_memory(driver)?;
        memory.write_all_at(&bytes, RING)?;
        memory.write_all_at(&harmless.to_ne_bytes(), TAIL)?;
        driver.write_all(&[0])?;
        wait_until("the driver has read what is harmless", SOON, || {
            let mut head = [0; 8];
            memory.read_exact_at(&mut head, HEAD).is_ok() && u64::from_ne_bytes(head) == harmless
        });
        memory.write_all_at(&position.to_ne_bytes(), TAIL)?;
        driver.write_all(&[0])?;
        std::mem::forget((memory, driver.try_clone()?));
        Ok(())
    });
}

#[test]
fn a_worker_that_writes_garbage_is_lost() {
    assert_notices((0..2 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect(), 0, 10_000);
}

#[test]
fn a_worker_at_a_position_that_cannot_be_is_lost() {
    let harmless = frame(&Completed { event: 1, status: 0, profile: [0; 5] });
    assert_eq!(harmless.len(), 68);
    for position in [(2 << 20) + 69, 67, 0, u64::MAX] {
        assert_notices(harmless.clone(), 68, position);
    }
    assert_notices(harmless, 0, u64::MAX);
}

#[test]
fn a_worker_with_slots_that_cannot_be_is_lost() {
    let body = encode(&Data { event: 1, region: Region::linear(0, 100) });
    for header in [
        Header::new(Data::OPCODE, body.len(), 100).in_slot(99),
        Header::new(Data::OPCODE, body.len(), (1 << 20) + 1).in_slot(0),
        // Nobody compresses in memory.
        Header::new(Data::OPCODE, body.len(), 100).compressed(50),
    ] {
        assert_notices([header.as_bytes(), &body].concat(), 0, 100);
    }
}

// ---- compression -----------------------------------------------------------------------------------------------------

/// A way to a real service on which bytes are counted, and compressed payloads of the worker may be damaged.
#[derive(Clone)]
struct Toll {
    real: String,
    damaged: bool,
    from_driver: Arc<AtomicU64>,
    from_service: Arc<AtomicU64>,
}

/// Counts what is read.
struct Counted<'a, R>(R, &'a AtomicU64);

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Toll {
    fn on(service: &Service, damaged: bool) -> (String, Toll) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let toll = Toll {
            real: service.address().to_owned(),
            damaged,
            from_driver: Arc::default(),
            from_service: Arc::default(),
        };
        let for_all = toll.clone();
        thread::spawn(move || {
            for driver in listener.incoming().flatten() {
                let toll = for_all.clone();
                thread::spawn(move || toll.pass_on(driver));
            }
        });
        (address, toll)
    }

    fn pass_on(&self, driver: TcpStream) -> io::Result<()> {
        let service = TcpStream::connect(&self.real)?;
        driver.set_nodelay(true)?;
        service.set_nodelay(true)?;
        let (from, to, toll) = (driver.try_clone()?, service.try_clone()?, self.clone());
        thread::spawn(move || {
            let _ = io::copy(&mut Counted(&from, &toll.from_driver), &mut &to);
            let _ = to.shutdown(Shutdown::Both);
        });
        let mut from = Counted(&service, &self.from_service);
        let copied =
            if self.damaged { damage(&mut from, &driver) } else { io::copy(&mut from, &mut &driver).map(drop) };
        let _ = driver.shutdown(Shutdown::Both);
        copied
    }
}

fn damage(from: &mut impl Read, mut to: impl Write) -> io::Result<()> {
    loop {
        let mut frame = read_frame(from)?;
        let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
        let payload = frame.len();
        frame.resize(payload + header.payload_len(), 0);
        from.read_exact(&mut frame[payload..])?;
        if header.decompressed_len().is_some() {
            frame[payload] ^= 0xff;
        }
        to.write_all(&frame)?;
    }
}

/// How many KiB go each way for a program that writes and reads a MiB of the same number.
fn tolls(driver: &str, serve: &str) -> (u64, u64) {
    let bench = Bench::new();
    let service = bench.service_at("127.0.0.1:0", &[("TELECL_SERVE_COMPRESSION", serve)]);
    let (address, toll) = Toll::on(&service, false);
    let mut command = bench.command(&service, Link::Tcp, "use_or_lose");
    command.env("TELECL_SERVICES", address).env("TELECL_COMPRESSION", driver);
    let ended = run(command, SOON).unwrap();
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("served\n", ""), "{ended}");
    service.wait_without_workers(SOON);
    (toll.from_driver.load(Ordering::Relaxed) >> 10, toll.from_service.load(Ordering::Relaxed) >> 10)
}

#[test]
fn what_repeats_itself_is_short_on_the_wire_both_ways_if_either_side_insists() {
    for (driver, serve) in [("always", "auto"), ("auto", "always"), ("always", "always")] {
        let (there, back) = tolls(driver, serve);
        assert!(there < 32 && back < 64, "{driver}, {serve}: {there} KiB and {back} KiB");
    }
}

#[test]
fn nothing_is_compressed_within_one_machine_or_against_one_sides_will() {
    for (driver, serve) in [("auto", "auto"), ("off", "always"), ("always", "off")] {
        let (there, back) = tolls(driver, serve);
        assert!(there >= 1024 && back >= 1024, "{driver}, {serve}: {there} KiB and {back} KiB");
    }
}

#[test]
fn a_worker_that_lies_about_a_compressed_payload_is_lost_and_the_log_says_why() {
    let bench = Bench::new();
    let mut service = bench.service();
    let (address, _) = Toll::on(&service, true);
    let mut command = bench.command(&service, Link::Tcp, "use_or_lose");
    command.env("TELECL_SERVICES", address).env("TELECL_COMPRESSION", "always").env("TELECL_DEBUG", "1");
    // Between records the liar would not find frames.
    command.env("TELECL_HEARTBEAT", "off").env("TELECL_GRACE", "off");
    let ended = run(command, SOON).unwrap();
    assert_eq!(ended.stdout, "lost\n", "{ended}");
    assert!(ended.stderr.contains("is lost: peer broke the protocol: compressed payload is malformed"), "{ended}");
    service.wait_without_workers(SOON);
    bench.assert_serves(&mut service);
}

// ---- containers ------------------------------------------------------------------------------------------------------

/// `command` in namespaces of its own, after `script` has run there; `None`, and a word about it, if that is not
/// permitted here.
fn unshared(flags: &[&str], script: &str, command: &Command) -> Option<Command> {
    let mut wrapped = Command::new("unshare");
    wrapped.args(flags).args(["sh", "-e", "-c", &format!("{script}\nexec \"$@\""), "sh"]);
    let mut tried = Command::new("unshare");
    let tried = tried.args(flags).args(["sh", "-c", "! [ \"$1\" ] || mount -t tmpfs none /mnt", "sh"]);
    let tried = tried.arg(if flags.contains(&"--mount") { "mount" } else { "" }).output();
    match tried {
        Ok(output) if output.status.success() => {}
        failed => {
            eprintln!("skipped: no namespaces here (unshare {}): {failed:?}", flags.join(" "));
            return None;
        }
    }
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    Some(wrapped)
}

fn assert_served(bench: &Bench, service: &Service, link: Link, flags: &[&str], script: &str) {
    let command = bench.command(service, Link::SharedMemory, "use_or_lose");
    let Some(command) = unshared(flags, script, &command) else { return };
    let ended = run(command, SOON).unwrap();
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("served\n", ""), "{ended}");
    assert_eq!(service.check_link(ended.id, link), Ok(1));
}

#[test]
fn a_container_that_does_not_have_the_socket_uses_tcp() {
    let bench = Bench::new();
    let service = bench.service();
    let hide = format!("mount -t tmpfs none {}", service.socket_directory().display());
    assert_served(&bench, &service, Link::Tcp, &["--mount"], &hide);
    // The same program outside of it.
    assert_served(&bench, &service, Link::SharedMemory, &["--mount"], "");
}

#[test]
fn a_container_that_has_the_sockets_directory_at_its_path_shares_memory() {
    let (bench, aside) = (Bench::new(), TempDir::new().unwrap());
    let service = bench.service();
    let (directory, aside) = (service.socket_directory(), aside.path().display().to_string());
    let parent = directory.parent().unwrap().display().to_string();
    let directory = directory.display();
    // All but that directory is the container's own.
    let script = format!(
        "mount --bind {directory} {aside}\nmount -t tmpfs none {parent}\nmkdir {directory}\nmount --bind {aside} {directory}"
    );
    assert_served(&bench, &service, Link::SharedMemory, &["--mount"], &script);
}

#[test]
fn a_container_that_has_another_services_socket_at_that_path_uses_tcp() {
    let (bench, place) = (Bench::new(), TempDir::new().unwrap());
    let service = bench.service();
    let port = service.address().rsplit(':').next().unwrap().to_owned();
    let other = bench.service_at(&format!("unix:{}", place.path().join(format!("{port}.sock")).display()), &[]);
    let script = format!("mount --bind {} {}", place.path().display(), service.socket_directory().display());
    assert_served(&bench, &service, Link::Tcp, &["--mount"], &script);
    assert!(other.workers().is_empty());
}

#[test]
fn a_container_without_any_network_shares_memory_at_a_unix_address() {
    let (bench, place) = (Bench::new(), TempDir::new().unwrap());
    let service = bench.service_at(&format!("unix:{}", place.path().join("service.sock").display()), &[]);
    assert_served(&bench, &service, Link::SharedMemory, &["--net"], "");
}

#[test]
fn a_container_with_processes_of_its_own_shares_memory() {
    let bench = Bench::new();
    let service = bench.service();
    let command = bench.command(&service, Link::SharedMemory, "use_or_lose");
    let Some(command) = unshared(&["--pid", "--fork"], "", &command) else { return };
    let ended = run(command, SOON).unwrap();
    assert_eq!(ended.stdout, "served\n", "{ended}");
    // It is the first process there.
    assert_eq!(service.check_link(1, Link::SharedMemory), Ok(1));
}

/// The kernel cannot name the program to a service that does not see it.
#[test]
fn a_service_in_a_container_with_processes_of_its_own_shares_memory() {
    let (bench, place) = (Bench::new(), TempDir::new().unwrap());
    let address = format!("unix:{}", place.path().join("service.sock").display());
    let mut command = bench.vendor.command_direct(&bench.artifacts.telecl);
    command.args(["serve", "--listen", &address]).env("TELECL_CACHE_DIR", "none").env("RUST_LOG", "debug");
    let Some(command) = unshared(&["--pid", "--fork", "--kill-child", "--mount-proc"], "", &command) else { return };
    let mut service = Running::start(command).unwrap();
    service.expect_line(&format!("listening on {address}"), Duration::from_secs(60));
    for _ in 0..3 {
        let mut program = bench.vendor.command_with_driver(&bench.client);
        program.arg("use_or_lose").env("TELECL_SERVICES", &address);
        let ended = run(program, SOON).unwrap();
        assert_eq!(ended.stdout, "served\n", "{ended}");
    }
    let log = service.end(Duration::ZERO).stderr;
    assert_eq!(log.matches("shared_memory=true").count(), 3, "{log}");
}

// ---- memory ----------------------------------------------------------------------------------------------------------

const MIB: u64 = 1 << 20;

#[test]
fn a_program_needs_little_memory_beyond_its_own() {
    let bench = Bench::new();
    let service = bench.service();
    for link in Link::ALL.into_iter().chain(Link::STREAMS) {
        let ended = run(bench.command(&service, link, "measure_transfers"), Duration::from_secs(60)).unwrap();
        assert!(ended.success(), "{link}: {ended}");
        assert_eq!(service.check_link(ended.id, link), Ok(1));
        println!("{link}: {}", ended.stdout.trim_end());
    }
}

/// A value of /proc/PID/status in bytes.
fn status(process: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_worker_needs_little_memory_for_a_large_read() {
    let bench = Bench::new();
    let service = bench.service();
    for link in Link::ALL.into_iter().chain(Link::STREAMS) {
        let mut client = bench.client(&service, link, "read_a_gibibyte_when_told", "ready");
        let worker = service.only_worker();
        // Resets the peak.
        fs::write(format!("/proc/{worker}/clear_refs"), "5").unwrap();
        let before = status(worker, "VmRSS:");
        let tell = |program: u32| {
            let pid = i32::try_from(program).ok().and_then(Pid::from_raw).unwrap();
            kill_process(pid, Signal::USR1).unwrap();
        };
        tell(client.id());
        client.expect_line("read", Duration::from_secs(60));
        let grown = status(worker, "VmHWM:").saturating_sub(before);
        println!("{link}: the worker grew by {} MiB", grown / MIB);
        assert!(grown < 128 * MIB, "{link}: the worker grew by {} MiB", grown / MIB);
        tell(client.id());
        let ended = client.end(SOON);
        assert!(ended.success(), "{ended}");
        service.wait_without_workers(SOON);
    }
}
