//! What happens when a part of the system breaks, lies or keeps silent: the right error within a bounded time, and the
//! service serves the next client.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use system_tests::{Bench, Link, SOON, Service, is_alive, wait_until};
use telecl_wire::handshake::{Compression, Credential, Hello, MAGIC, Refused};
use telecl_wire::request::{CreateProgramWithSource, Message};
use telecl_wire::{Header, PROTOCOL_VERSION, decode, encode};
use tempfile::TempDir;
use zerocopy::IntoBytes;

/// A gibibyte goes there or back meanwhile, on a busy machine.
const A_WHILE: Duration = Duration::from_secs(60);

const NO_PLATFORM: &str = "CL_PLATFORM_NOT_FOUND_KHR, 0 platforms\n";

/// An address at which nobody listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A service that does not wait for long for a program which has lost its connection, as one that was killed has.
fn impatient(bench: &Bench) -> Service {
    bench.service_at("127.0.0.1:0", &[("TELECL_SERVE_GRACE", "3s")])
}

fn kill(process: u32) {
    signal(process, Signal::KILL);
}

fn signal(process: u32, signal: Signal) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Stops all threads of a process, as Ctrl-Z does.
fn stop(process: u32) {
    signal(process, Signal::STOP);
    wait_until("the process stops", SOON, || {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let states = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
        states.into_iter().all(|stat| stat.rsplit_once(") ").unwrap().1.starts_with('T'))
    });
}

fn connect(service: &Service) -> TcpStream {
    let stream = TcpStream::connect(service.address()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

fn frame<'a, M: Message<'a>>(message: &M) -> Vec<u8> {
    let body = encode(message);
    let mut bytes = Header::new(M::OPCODE, body.len(), 0).as_bytes().to_vec();
    bytes.extend(body);
    bytes
}

fn hello(protocol: u32) -> Vec<u8> {
    let compression = Compression::Auto;
    frame(&Hello {
        magic: MAGIC,
        protocol,
        version: "0.0.0",
        program: "faults",
        pid: 1,
        compression,
        credential: Credential::NONE,
    })
}

/// Reads until the other side closes or resets; panics if it does neither in time.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the connection stays open"),
        _ => bytes,
    }
}

// ---- no service ------------------------------------------------------------------------------------------------------

#[test]
fn without_a_running_service_a_program_sees_no_platform_at_once_and_no_output() {
    let ended = Bench::new().count_platforms(&[("TELECL_SERVICES", &free_address())]);
    assert_eq!(ended.stdout, NO_PLATFORM, "{ended}");
    assert_eq!(ended.stderr, "");
    assert!(ended.took < Duration::from_secs(2), "a refused connection cost {:?}", ended.took);
}

#[test]
fn with_debug_on_the_missing_service_is_named_on_stderr() {
    let address = free_address();
    let ended = Bench::new().count_platforms(&[("TELECL_SERVICES", &address), ("TELECL_DEBUG", "1")]);
    assert_eq!(ended.stdout, NO_PLATFORM, "{ended}");
    assert!(ended.stderr.lines().all(|line| line.starts_with("telecl:")), "{ended}");
    assert!(ended.stderr.contains(&address), "{ended}");
}

#[test]
fn without_any_setting_the_driver_is_inert() {
    let ended = Bench::new().count_platforms(&[]);
    assert_eq!(ended.stdout, NO_PLATFORM, "{ended}");
    assert_eq!(ended.stderr, "");
    assert!(ended.took < Duration::from_secs(2), "an inert driver cost {:?}", ended.took);
}

#[test]
fn an_address_that_does_not_resolve_is_no_platform_within_the_timeout() {
    let variables = [("TELECL_SERVICES", "no-such-host.invalid:7701"), ("TELECL_CONNECT_TIMEOUT", "500ms")];
    let ended = Bench::new().count_platforms(&variables);
    assert_eq!(ended.stdout, NO_PLATFORM, "{ended}");
    assert!(ended.took < Duration::from_secs(5), "a wrong name cost {:?}", ended.took);
}

#[test]
fn a_dead_service_does_not_hide_a_living_one() {
    let bench = Bench::new();
    let service = impatient(&bench);
    let services = format!("{},{}", free_address(), service.address());
    let ended = bench.count_platforms(&[("TELECL_SERVICES", &services)]);
    assert_eq!(ended.stdout, "CL_SUCCESS, 1 platforms\n", "{ended}");
}

// ---- a process dies, or stops ----------------------------------------------------------------------------------------

/// Each of these faults over all links: `tcp::NAME`, `shared_memory::NAME` and `streams::NAME`.
macro_rules! over_all_links {
    ($($name:ident)*) => {
        mod tcp {
            $(#[test] fn $name() { super::$name(super::Link::Tcp) })*
        }
        mod shared_memory {
            $(#[test] fn $name() { super::$name(super::Link::SharedMemory) })*
        }
        mod streams {
            $(#[test] fn $name() { super::$name(super::Link::Streams(3)) })*
        }
    };
}

over_all_links! {
    a_service_killed_during_a_kernel_fails_the_blocked_call
    a_worker_killed_during_a_kernel_fails_the_blocked_call_and_nobody_elses
    callbacks_of_a_lost_session_are_called_with_an_error
    a_worker_killed_during_a_large_read_fails_the_read
    a_worker_killed_during_a_large_write_fails_the_write
    a_worker_killed_while_many_threads_work_fails_them_all
    a_client_killed_during_a_large_write_leaves_no_worker
    a_client_killed_during_a_large_read_leaves_no_worker
    a_client_killed_during_a_kernel_leaves_no_worker_although_the_kernel_never_ends
    a_client_killed_whose_child_lives_on_leaves_no_worker
    a_client_that_exits_while_its_threads_work_leaves_no_worker
    a_client_that_is_stopped_holds_up_nobody_and_goes_on_later
    a_client_that_is_stopped_does_not_keep_the_service
    a_stopped_service_ends_its_sessions_and_leaves_no_worker
}

/// One whose sessions end with it; others wait for it to be started again, see `restart.rs`.
fn a_service_killed_during_a_kernel_fails_the_blocked_call(link: Link) {
    let bench = Bench::new();
    let mut service = bench.service_at("127.0.0.1:0", &[("TELECL_ORPHAN_GRACE", "0s"), ("TELECL_SERVE_GRACE", "3s")]);
    let address = service.address().to_owned();
    let client = bench.client(&service, link, "run_endless_kernel", "running");
    let worker = service.only_worker();
    service.kill();
    let ended = client.end(SOON);
    assert!(ended.success() && ended.stdout.ends_with("left in order\n"), "{ended}");
    wait_until("the worker follows its broker", SOON, || !is_alive(worker));
    bench.assert_serves(&mut bench.service_at(&address, &[]));
}

fn a_worker_killed_during_a_kernel_fails_the_blocked_call_and_nobody_elses(link: Link) {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let client = bench.client(&service, link, "run_endless_kernel", "running");
    let worker = service.only_worker();
    bench.assert_serves(&mut service);
    kill(worker);
    let ended = client.end(SOON);
    assert!(ended.success() && ended.stdout.ends_with("left in order\n"), "{ended}");
    bench.assert_serves(&mut service);
    service.wait_without_workers(SOON);
    service.stop().unwrap();
}

fn callbacks_of_a_lost_session_are_called_with_an_error(link: Link) {
    let bench = Bench::new();
    let service = impatient(&bench);
    let client = bench.client(&service, link, "wait_for_callback_of_endless_kernel", "running");
    kill(service.only_worker());
    let ended = client.end(SOON);
    assert!(ended.success() && ended.stdout.ends_with("called back\n"), "{ended}");
}

fn a_worker_killed_during_a_large_read_fails_the_read(link: Link) {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let client = bench.client(&service, link, "read_gibibytes", "reading");
    kill(service.only_worker());
    let ended = client.end(SOON);
    assert!(ended.success(), "{ended}");
    bench.assert_serves(&mut service);
}

fn a_worker_killed_during_a_large_write_fails_the_write(link: Link) {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let mut client = bench.client(&service, link, "write_gibibytes", "writing");
    client.expect_line("writing", A_WHILE);
    kill(service.only_worker());
    let ended = client.end(SOON);
    assert!(ended.success() && ended.stdout.contains("clEnqueueWriteBuffer: CL_DEVICE_NOT_AVAILABLE"), "{ended}");
    bench.assert_serves(&mut service);
}

fn a_worker_killed_while_many_threads_work_fails_them_all(link: Link) {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let client = bench.client(&service, link, "work_in_many_threads", "all at work");
    kill(service.only_worker());
    let ended = client.end(SOON);
    assert!(ended.success() && ended.stdout.ends_with("all lost\n"), "{ended}");
    bench.assert_serves(&mut service);
}

fn a_client_killed_during_a_large_write_leaves_no_worker(link: Link) {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let mut client = bench.client(&service, link, "write_gibibytes", "writing");
    client.expect_line("writing", A_WHILE);
    client.kill();
    service.wait_without_workers(SOON);
    bench.assert_serves(&mut service);
    service.wait_without_workers(SOON);
    service.stop().unwrap();
}

fn a_client_killed_during_a_large_read_leaves_no_worker(link: Link) {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let mut client = bench.client(&service, link, "read_gibibytes", "reading");
    client.expect_line("reading", A_WHILE);
    client.kill();
    service.wait_without_workers(SOON);
    bench.assert_serves(&mut service);
}

fn a_client_killed_during_a_kernel_leaves_no_worker_although_the_kernel_never_ends(link: Link) {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let client = bench.client(&service, link, "run_endless_kernel", "running");
    assert_eq!(service.workers().len(), 1);
    client.kill();
    service.wait_without_workers(SOON);
    bench.assert_serves(&mut service);
}

/// A child has all descriptors of its parent, until it executes something else.
fn a_client_killed_whose_child_lives_on_leaves_no_worker(link: Link) {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let client = bench.client(&service, link, "fork_and_stay", "forked");
    kill(client.id());
    service.wait_without_workers(SOON);
    bench.assert_serves(&mut service);
    // Ends the child.
    drop(client.end(SOON));
}

fn a_client_that_exits_while_its_threads_work_leaves_no_worker(link: Link) {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let ended = bench.client(&service, link, "exit_while_threads_work", "all at work").end(SOON);
    assert!(ended.success() && ended.stdout.ends_with("leaving\n"), "{ended}");
    service.wait_without_workers(SOON);
    bench.assert_serves(&mut service);
}

fn a_client_that_is_stopped_holds_up_nobody_and_goes_on_later(link: Link) {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    for (case, line) in [("read_gibibytes", "reading"), ("write_gibibytes", "writing")] {
        let mut client = bench.client(&service, link, case, line);
        stop(client.id());
        bench.assert_serves(&mut service);
        signal(client.id(), Signal::CONT);
        client.expect_line(line, A_WHILE);
        client.kill();
        service.wait_without_workers(SOON);
    }
}

fn a_client_that_is_stopped_does_not_keep_the_service(link: Link) {
    let bench = Bench::new();
    let service = impatient(&bench);
    let client = bench.client(&service, link, "read_gibibytes", "reading");
    stop(client.id());
    service.stop().unwrap();
    signal(client.id(), Signal::CONT);
    let ended = client.end(SOON);
    assert!(ended.success(), "{ended}");
}

fn a_stopped_service_ends_its_sessions_and_leaves_no_worker(link: Link) {
    let bench = Bench::new();
    let service = impatient(&bench);
    let client = bench.client(&service, link, "run_endless_kernel", "running");
    service.stop().unwrap();
    let ended = client.end(SOON);
    assert!(ended.success() && ended.stdout.ends_with("left in order\n"), "{ended}");
}

#[test]
fn a_worker_killed_while_it_waits_for_a_session_is_not_missed() {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    for _ in 0..3 {
        wait_until("a worker waits", SOON, || service.idle_workers().len() == 1);
        kill(service.idle_workers()[0]);
        bench.assert_serves(&mut service);
    }
    service.wait_without_workers(SOON);
    service.stop().unwrap();
}

#[test]
fn a_service_killed_while_a_worker_waits_leaves_no_worker() {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    wait_until("a worker waits", SOON, || service.idle_workers().len() == 1);
    let worker = service.idle_workers()[0];
    service.kill();
    wait_until("the worker follows its broker", SOON, || !is_alive(worker));
}

// ---- a peer that is no driver ----------------------------------------------------------------------------------------

#[test]
fn a_peer_that_speaks_garbage_is_disconnected_and_the_next_is_served() {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let noise: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut monstrous = Header::new(1, 0, 0).as_bytes().to_vec();
    monstrous[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut strange_magic = hello(PROTOCOL_VERSION);
    strange_magic[Header::LEN] ^= 1;
    for garbage in [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), noise, vec![0; 64], monstrous, strange_magic] {
        let mut peer = connect(&service);
        // The service may have hung up in the middle of it.
        let _ = peer.write_all(&garbage);
        read_to_end(&mut peer);
    }
    bench.assert_serves(&mut service);
    service.wait_without_workers(SOON);
}

#[test]
fn a_driver_that_turns_to_garbage_after_its_hello_loses_its_session_only() {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let other = bench.client(&service, Link::Tcp, "run_endless_kernel", "running");
    let mut peer = connect(&service);
    peer.write_all(&hello(PROTOCOL_VERSION)).unwrap();
    let mut welcome = [0; Header::LEN];
    peer.read_exact(&mut welcome).unwrap();
    let _ = peer.write_all(&[0xff; 4096]);
    read_to_end(&mut peer);
    wait_until("the other session's worker alone", SOON, || service.workers().len() == 1);
    bench.assert_serves(&mut service);
    other.kill();
    service.wait_without_workers(SOON);
}

#[test]
fn a_driver_that_lies_about_a_compressed_payload_loses_its_session_and_the_log_says_why() {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    let body = encode(&CreateProgramWithSource { id: 1 << 16, context: 1 << 17, staged: 0 });
    // One literal, and then a copy of it that never ends within the length that was announced.
    let endless = [&[0x1f, b'x', 1, 0][..], &[0xff; 5000], &[0]].concat();
    let truncated = &endless[..3];
    for (payload, len) in [(&endless[..], 100_000), (truncated, 100_000), (&[0xff; 1000], 4 << 20)] {
        let told = service.log().matches("compressed payload is malformed").count();
        let mut peer = connect(&service);
        peer.write_all(&hello(PROTOCOL_VERSION)).unwrap();
        let header = Header::new(CreateProgramWithSource::OPCODE, body.len(), len).compressed(payload.len());
        peer.write_all(&[header.as_bytes(), &body, payload].concat()).unwrap();
        let answer = read_to_end(&mut peer);
        let reason = b"peer broke the protocol: compressed payload is malformed";
        assert!(answer.windows(reason.len()).any(|part| part == reason), "the driver was not told");
        let log = service.log();
        let line = log.lines().filter(|line| line.contains("compressed payload is malformed")).nth(told);
        assert!(
            line.is_some_and(|line| line.contains("WARN") && line.contains("the driver broke the protocol")),
            "{log}"
        );
    }
    service.wait_without_workers(SOON);
    bench.assert_serves(&mut service);
}

#[test]
fn a_peer_that_says_nothing_does_not_keep_others_waiting_and_is_sent_away() {
    let bench = Bench::new();
    let variables = [("TELECL_HANDSHAKE_TIMEOUT", "500ms")];
    let mut service = bench.service_at("127.0.0.1:0", &variables);
    let mut silent: Vec<TcpStream> = (0..20).map(|_| connect(&service)).collect();
    let greeting = hello(PROTOCOL_VERSION);
    silent[0].write_all(&greeting[..greeting.len() - 3]).unwrap();
    bench.assert_serves(&mut service);
    for peer in &mut silent {
        assert_eq!(read_to_end(peer), b"");
    }
    bench.assert_serves(&mut service);
}

#[test]
fn a_driver_of_another_protocol_version_is_told_so() {
    let bench = Bench::new();
    let mut service = impatient(&bench);
    for protocol in [0, PROTOCOL_VERSION + 1, u32::MAX] {
        let mut peer = connect(&service);
        peer.write_all(&hello(protocol)).unwrap();
        let answer = read_to_end(&mut peer);
        let (header, body) = answer.split_first_chunk().expect("an answer");
        let header = Header::parse(header).unwrap();
        assert_eq!(header.opcode.get(), Refused::OPCODE);
        let refused: Refused<'_> = decode(body).unwrap();
        assert_eq!(refused.protocol, PROTOCOL_VERSION);
        assert!(refused.reason.contains(&protocol.to_string()), "{}", refused.reason);
    }
    bench.assert_serves(&mut service);
}

// ---- a peer that is no service ---------------------------------------------------------------------------------------

/// Something that answers every connection with `bytes`, and then closes it or keeps it open.
fn false_service(bytes: Vec<u8>, then_close: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Ends with the test process.
    thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(&bytes);
            if !then_close {
                kept.push(stream);
            }
        }
    });
    address
}

/// The driver meets `address` and must do without it, quickly; returns its debug output.
fn assert_no_platform_at(address: &str) -> String {
    let variables = [("TELECL_SERVICES", address), ("TELECL_CONNECT_TIMEOUT", "500ms"), ("TELECL_DEBUG", "1")];
    let ended = Bench::new().count_platforms(&variables);
    assert_eq!(ended.stdout, NO_PLATFORM, "{ended}");
    assert!(ended.success(), "{ended}");
    assert!(ended.took < Duration::from_secs(5), "a false service cost {:?}", ended.took);
    assert!(ended.stderr.contains(address), "the log does not name the service: {ended}");
    ended.stderr
}

#[test]
fn a_service_that_speaks_garbage_is_no_platform() {
    assert_no_platform_at(&false_service(b"220 mail.example.org ESMTP Postfix\r\n".to_vec(), false));
    assert_no_platform_at(&false_service(vec![0xff; 1 << 16], false));
    assert_no_platform_at(&false_service(Header::new(2, 1 << 20, 0).as_bytes().to_vec(), true));
}

#[test]
fn a_service_that_is_silent_is_no_platform_within_the_timeout() {
    assert_no_platform_at(&false_service(Vec::new(), false));
}

#[test]
fn a_service_that_hangs_up_is_no_platform() {
    assert_no_platform_at(&false_service(Vec::new(), true));
}

#[test]
fn a_service_of_another_protocol_version_is_no_platform_and_the_log_says_why() {
    let refused = Refused { reason: "driver speaks another protocol", protocol: PROTOCOL_VERSION + 1 };
    let log = assert_no_platform_at(&false_service(frame(&refused), true));
    assert!(log.contains("protocol"), "{log}");
}

// ---- wrong configuration ---------------------------------------------------------------------------------------------

/// A configuration that is wrong: one line on stderr that says where, and no platform.
fn assert_refused_configuration(variables: &[(&str, &str)], named: &[&str]) {
    let ended = Bench::new().count_platforms(variables);
    assert_eq!(ended.stdout, NO_PLATFORM, "{ended}");
    assert!(ended.success(), "{ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    assert!(ended.stderr.starts_with("telecl: "), "{ended}");
    for name in named {
        assert!(ended.stderr.contains(name), "the line does not name {name}: {ended}");
    }
}

fn configuration(text: &str) -> (TempDir, String) {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("telecl.toml");
    fs::write(&file, text).unwrap();
    (directory, file.to_string_lossy().into_owned())
}

#[test]
fn a_directory_is_no_configuration() {
    assert_refused_configuration(&[("TELECL_CONFIG", "/tmp")], &["/tmp"]);
}

#[test]
fn a_configuration_that_is_missing_is_named() {
    assert_refused_configuration(&[("TELECL_CONFIG", "/no/such/telecl.toml")], &["/no/such/telecl.toml"]);
}

#[test]
fn bad_toml_is_named_with_its_line() {
    let (_directory, file) = configuration("strict = false\nservices = [\"a:1\"\n");
    assert_refused_configuration(&[("TELECL_CONFIG", &file)], &[&file, "line"]);
}

#[test]
fn an_unknown_key_is_named() {
    let (_directory, file) = configuration("serivces = [\"127.0.0.1:7701\"]\n");
    assert_refused_configuration(&[("TELECL_CONFIG", &file)], &[&file, "serivces"]);
}

#[test]
fn a_value_of_the_wrong_kind_is_named() {
    let (_directory, file) = configuration("connect_timeout = true\n");
    assert_refused_configuration(&[("TELECL_CONFIG", &file)], &[&file, "connect_timeout"]);
    assert_refused_configuration(&[("TELECL_CONNECT_TIMEOUT", "soon")], &["TELECL_CONNECT_TIMEOUT"]);
}

#[test]
fn a_right_configuration_reaches_the_service() {
    let bench = Bench::new();
    let service = impatient(&bench);
    let text =
        format!("services = [\"{}\"]\nconnect_timeout = \"2s\"\nstrict = false\ndebug = false\n", service.address());
    let (_directory, file) = configuration(&text);
    let ended = bench.count_platforms(&[("TELECL_CONFIG", &file)]);
    assert_eq!(ended.stdout, "CL_SUCCESS, 1 platforms\n", "{ended}");
    assert_eq!(ended.stderr, "");
}
