//! What happens to the further streams of a session: a join that fails costs speed and nothing else, and a stream that
//! ends, ends the session.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use system_tests::{Bench, Link, Running, SOON, Service, run};

/// A gibibyte goes there and back meanwhile, on a busy machine.
const A_WHILE: Duration = Duration::from_secs(60);

/// What a proxy does with a connection.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Pass,
    /// Passes so many bytes in both directions together, then ends it.
    Cut(usize),
    /// Closes it at once.
    Close,
    /// Says nothing.
    Silence,
    /// Answers with something else.
    Garbage,
}

/// Between drivers and a service; the first connection is passed on, and all others have this fate. Returns its address.
fn proxy(service: &Service, first: Fate, others: Fate) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, service) = (listener.local_addr().unwrap().to_string(), service.address().to_owned());
    thread::spawn(move || {
        let mut fate = first;
        for near in listener.incoming() {
            let (near, service, of_this) = (near.unwrap(), service.clone(), fate);
            thread::spawn(move || treat(near, &service, of_this));
            fate = others;
        }
    });
    address
}

fn treat(mut near: TcpStream, service: &str, fate: Fate) {
    let limit = match fate {
        Fate::Pass => usize::MAX,
        Fate::Cut(limit) => limit,
        Fate::Close => return,
        Fate::Silence => {
            // Until the driver has had enough.
            let _ = near.read_to_end(&mut Vec::new());
            return;
        }
        Fate::Garbage => {
            let _ = near.write_all(&[0x55; 4096]);
            return;
        }
    };
    let far = TcpStream::connect(service).unwrap();
    let passed = Arc::new(AtomicUsize::new(0));
    let ends = [(&near, &far), (&far, &near)];
    thread::scope(|scope| {
        for (from, to) in ends {
            let passed = Arc::clone(&passed);
            scope.spawn(move || {
                // Both directions end together, as those of a connection that is cut.
                let _ = pass(from, to, &passed, limit);
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    });
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, passed: &AtomicUsize, limit: usize) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 || passed.fetch_add(read, Ordering::Relaxed) + read > limit {
            return Ok(());
        }
        to.write_all(&buffer[..read])?;
    }
}

/// The client of the fault tests, about to run a case through whatever is at `address`, with so many streams.
fn command(bench: &Bench, address: &str, streams: u32, case: &str) -> Command {
    let mut command = bench.vendor.command_with_driver(&bench.client);
    command.env("TELECL_SERVICES", address).env("TELECL_SHARED_MEMORY", "0");
    // What happens to those that may come back is in `lost.rs`.
    command.env("TELECL_GRACE", "off");
    command.env("TELECL_STREAMS", streams.to_string()).arg(case);
    command
}

fn assert_works(bench: &Bench, service: &mut Service, address: &str) {
    let ended = run(command(bench, address, 3, "measure_transfers"), A_WHILE).unwrap();
    assert!(ended.success() && ended.stderr.is_empty(), "{ended}");
    bench.assert_serves(service);
}

#[test]
fn streams_join_through_a_proxy() {
    let bench = Bench::new();
    let mut service = bench.service();
    let address = proxy(&service, Fate::Pass, Fate::Pass);
    assert_works(&bench, &mut service, &address);
    assert_eq!(service.streams(), 3);
}

#[test]
fn a_join_that_fails_costs_nothing() {
    let bench = Bench::new();
    let mut service = bench.service();
    for fate in [Fate::Close, Fate::Silence, Fate::Garbage, Fate::Cut(30)] {
        let address = proxy(&service, Fate::Pass, fate);
        assert_works(&bench, &mut service, &address);
        assert_eq!(service.streams(), 0, "{fate:?}");
    }
}

#[test]
fn a_service_that_takes_no_more_connections_serves_a_session_without_streams() {
    let bench = Bench::new();
    let mut service = bench.service();
    // Takes one connection, and has room for few that wait.
    let listener =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&listener, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let listener = TcpListener::from(listener);
    let at = listener.local_addr().unwrap();
    let target = service.address().to_owned();
    thread::spawn(move || {
        let near = listener.accept().unwrap().0;
        // The rest is never accepted.
        let waiting: Vec<_> = (0..4).map(|_| TcpStream::connect_timeout(&at, Duration::from_millis(100))).collect();
        treat(near, &target, Fate::Pass);
        drop((waiting, listener));
    });
    assert_works(&bench, &mut service, &at.to_string());
    assert_eq!(service.streams(), 0);
}

/// The client, in the middle of transfers over streams, one of which will end soon.
fn in_the_middle(bench: &Bench, address: &str, case: &str, line: &str) -> Running {
    let mut client = Running::start(command(bench, address, 2, case)).unwrap();
    client.expect_line(line, SOON);
    client
}

#[test]
fn a_stream_that_ends_within_a_write_fails_the_write() {
    let bench = Bench::new();
    let mut service = bench.service();
    for limit in [5 << 20, 100 << 20] {
        let address = proxy(&service, Fate::Pass, Fate::Cut(limit));
        let ended = in_the_middle(&bench, &address, "write_gibibytes", "writing").end(SOON);
        assert!(ended.success() && ended.stdout.contains("clEnqueueWriteBuffer: CL_DEVICE_NOT_AVAILABLE"), "{ended}");
        service.wait_without_workers(SOON);
    }
    bench.assert_serves(&mut service);
}

#[test]
fn a_stream_that_ends_within_a_read_fails_the_read() {
    let bench = Bench::new();
    let mut service = bench.service();
    for limit in [5 << 20, 100 << 20] {
        let address = proxy(&service, Fate::Pass, Fate::Cut(limit));
        let ended = in_the_middle(&bench, &address, "read_gibibytes", "reading").end(SOON);
        assert!(ended.success() && ended.stdout.contains("clEnqueueReadBuffer: CL_DEVICE_NOT_AVAILABLE"), "{ended}");
        service.wait_without_workers(SOON);
    }
    bench.assert_serves(&mut service);
}

#[test]
fn a_session_that_ends_while_its_streams_are_busy_leaves_the_programs_memory_alone() {
    let bench = Bench::new();
    let mut service = bench.service();
    // The first connection carries no more than frames; the streams are cut at odd places.
    for (first, others) in
        [(Fate::Cut(30_000), Fate::Pass), (Fate::Pass, Fate::Cut(77_777_777)), (Fate::Pass, Fate::Cut(9_999_999))]
    {
        let address = proxy(&service, first, others);
        let ended = in_the_middle(&bench, &address, "read_until_lost_and_look", "reading").end(A_WHILE);
        assert!(ended.success() && ended.stdout.ends_with("left alone\n"), "{first:?} {others:?}: {ended}");
        service.wait_without_workers(SOON);
    }
    bench.assert_serves(&mut service);
}

#[test]
fn all_threads_hear_of_a_stream_that_ends() {
    let bench = Bench::new();
    let mut service = bench.service();
    let address = proxy(&service, Fate::Pass, Fate::Cut(200 << 20));
    let ended = in_the_middle(&bench, &address, "work_in_many_threads", "all at work").end(A_WHILE);
    assert!(ended.success() && ended.stdout.ends_with("all lost\n"), "{ended}");
    service.wait_without_workers(SOON);
    bench.assert_serves(&mut service);
}

#[test]
fn shared_memory_needs_no_streams() {
    let bench = Bench::new();
    let service = bench.service();
    let mut command = bench.command(&service, Link::SharedMemory, "measure_transfers");
    command.env("TELECL_STREAMS", "4");
    let ended = run(command, A_WHILE).unwrap();
    assert!(ended.success(), "{ended}");
    assert_eq!((service.check_link(ended.id, Link::SharedMemory), service.streams()), (Ok(1), 0));
}
