//! What the broker does: welcomes, refuses, starts and ends workers.

use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use telecl_net::{FrameReceiver, FrameSender};
use telecl_sys::*;
use telecl_wire::PROTOCOL_VERSION;
use telecl_wire::handshake::*;
use telecl_wire::request::{CreateUserEvent, Message, Stage};

use crate::client::{Broker, hello};

pub(crate) const TESTS: &[crate::Test] = &[
    ("welcome_lists_devices_and_pings_cost_no_worker", welcome_lists_devices_and_pings_cost_no_worker),
    ("a_foreign_version_is_refused_with_a_reason", a_foreign_version_is_refused_with_a_reason),
    ("garbage_and_silence_hurt_nobody", garbage_and_silence_hurt_nobody),
    ("a_driver_that_dies_takes_its_worker_along", a_driver_that_dies_takes_its_worker_along),
    ("a_worker_that_dies_ends_only_its_session", a_worker_that_dies_ends_only_its_session),
    ("a_kernel_that_crashes_ends_only_its_session", a_kernel_that_crashes_ends_only_its_session),
    ("a_broken_protocol_ends_with_a_reason", a_broken_protocol_ends_with_a_reason),
    ("a_stopped_service_says_so", a_stopped_service_says_so),
    ("only_chosen_devices_are_offered", only_chosen_devices_are_offered),
    ("a_unix_socket_serves_as_well", a_unix_socket_serves_as_well),
    ("a_worker_waits_for_the_next_session", a_worker_waits_for_the_next_session),
    ("an_idle_worker_that_dies_is_replaced", an_idle_worker_that_dies_is_replaced),
];

pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn welcome_lists_devices_and_pings_cost_no_worker() {
    let broker = Broker::start();
    let stream = broker.connect();
    let mut sender = FrameSender::new(stream.try_clone().unwrap());
    let mut receiver = FrameReceiver::new(stream);
    sender.push(&hello(), &[]).unwrap();
    // In the same segment: the broker must not read past the hello.
    sender.push(&Ping { number: 5 }, &[]).unwrap();
    sender.flush().unwrap();
    let frame = receiver.next_frame().unwrap().unwrap();
    let welcome: Welcome<'_> = telecl_wire::decode(frame.body).unwrap();
    assert!(welcome.session > 0 && !welcome.node.is_empty());
    let device = &welcome.platforms[0].devices[0];
    let name = device.info.iter().find(|info| info.param == CL_DEVICE_NAME).unwrap();
    assert!(!name.value.is_empty());
    for number in [5, 6] {
        let frame = receiver.next_frame().unwrap().unwrap();
        assert_eq!(frame.opcode, Pong::OPCODE);
        assert_eq!(telecl_wire::decode::<Pong>(frame.body).unwrap().number, number);
        sender.send(&Ping { number: number + 1 }, &[]).unwrap();
    }
    assert!(broker.workers().is_empty());
    // The first request starts one, which answers pings as well.
    sender.send(&Stage { id: 1 }, &[]).unwrap();
    sender.send(&Ping { number: 8 }, &[]).unwrap();
    let mut pongs = Vec::new();
    while pongs.len() < 2 {
        let frame = receiver.next_frame().unwrap().unwrap();
        if frame.opcode == Pong::OPCODE {
            pongs.push(telecl_wire::decode::<Pong>(frame.body).unwrap().number);
        }
    }
    assert_eq!(pongs, [7, 8]);
    assert_eq!(broker.workers().len(), 1);
}

fn a_foreign_version_is_refused_with_a_reason() {
    let broker = Broker::start();
    let stream = broker.connect();
    let mut sender = FrameSender::new(stream.try_clone().unwrap());
    let mut receiver = FrameReceiver::new(stream);
    sender.send(&Hello { protocol: 999, ..hello() }, &[]).unwrap();
    let frame = receiver.next_frame().unwrap().unwrap();
    assert_eq!(frame.opcode, Refused::OPCODE);
    let refused: Refused<'_> = telecl_wire::decode(frame.body).unwrap();
    assert_eq!(refused.protocol, PROTOCOL_VERSION);
    assert!(refused.reason.contains("999"), "{}", refused.reason);
    assert!(receiver.next_frame().unwrap().is_none());
}

fn garbage_and_silence_hurt_nobody() {
    let broker = Broker::start();
    let address = broker.address.to_string();
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut garbage = TcpStream::connect(&address).unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\nHost: telecl\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // A reset is as good as an end.
    let _ = garbage.read_to_end(&mut answer);
    assert_eq!(answer, b"");
    let start = Instant::now();
    drop(broker.client());
    assert!(start.elapsed() < Duration::from_millis(400), "others were kept waiting");
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "silent peers are closed after the timeout");
    }
}

fn a_driver_that_dies_takes_its_worker_along() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    // The queue is stuck behind an event that nobody will ever set.
    let (gate, event) = (client.id(), client.id());
    client.send(&CreateUserEvent { id: gate, context });
    let waits = [telecl_wire::WireId::new(gate)];
    let mut marker = crate::client::command(queue, event);
    marker.waits = telecl_wire::Ids(&waits);
    client.send(&telecl_wire::request::Marker { command: marker });
    let workers = broker.workers();
    assert_eq!(workers.len(), 1);
    let environment = std::fs::read(format!("/proc/{}/environ", workers[0])).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let variable = |name: &str| {
        let start = format!("{name}=");
        environment.split('\0').find_map(|entry| entry.strip_prefix(&start).map(str::to_owned))
    };
    assert_eq!(variable("TELECL_INSIDE_SERVICE").as_deref(), Some("1"));
    let scratch = variable("TELECL_SCRATCH").unwrap();
    assert!(std::path::Path::new(&scratch).is_dir());
    drop(client);
    until("the worker to end", || broker.workers().is_empty());
    until("its directory to go", || !std::path::Path::new(&scratch).exists());
}

fn a_worker_that_dies_ends_only_its_session() {
    let broker = Broker::start();
    let mut first = broker.client();
    first.context_and_queue(0);
    let victim = broker.workers()[0];
    let mut second = broker.client();
    let (_, queue) = second.context_and_queue(0);
    assert!(std::process::Command::new("kill").arg("-KILL").arg(victim.to_string()).status().unwrap().success());
    while first.receive() {}
    second.finish(queue);
    until("the dead worker to be gone", || broker.workers().len() == 1);
}

fn a_kernel_that_crashes_ends_only_its_session() {
    let broker = Broker::start();
    let mut victim = broker.client();
    let (context, queue) = victim.context_and_queue(0);
    let source = "__kernel void f(ulong where) { *(volatile __global int *)where = 1; }";
    let (program, status, _) = victim.program(context, source, b"");
    assert_eq!(status, CL_SUCCESS);
    let kernel = victim.kernel(program, "f");
    let (event, address) = (victim.id(), 8u64.to_le_bytes());
    let mut other = broker.client();
    let (_, other_queue) = other.context_and_queue(0);
    victim.run(crate::client::command(queue, event), kernel, vec![crate::client::bytes_arg(0, &address)], 1);
    // Only on a device that shares the worker's memory; a GPU reports an error instead.
    while !victim.arrived.completed.contains_key(&event) && victim.receive() {}
    other.finish(other_queue);
}

fn a_broken_protocol_ends_with_a_reason() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (_, queue) = client.context_and_queue(0);
    client.finish(queue);
    // A pong is nothing that a driver sends.
    client.send(&Pong { number: 1 });
    while client.receive() {}
    assert!(
        client.arrived.closing.as_ref().unwrap().contains("unknown message number 5"),
        "{:?}",
        client.arrived.closing
    );
    drop(broker.client());
}

fn a_stopped_service_says_so() {
    let mut broker = Broker::start();
    let mut client = broker.client();
    client.context_and_queue(0);
    let mut idle = broker.client();
    let pid = broker.child.id().to_string();
    assert!(std::process::Command::new("kill").arg("-TERM").arg(pid).status().unwrap().success());
    while client.receive() {}
    assert_eq!(client.arrived.closing.as_deref(), Some("the service is stopping"));
    assert!(!idle.receive());
    assert!(broker.child.wait().unwrap().success());
}

fn only_chosen_devices_are_offered() {
    let broker = Broker::start_with("127.0.0.1:0", &["no device has this name"]);
    assert!(broker.client().welcome().platforms.is_empty());
    // The worker knows it too.
    let mut client = broker.client();
    let context = client.id();
    let device = [telecl_wire::WireId::new(1)];
    client.send(&telecl_wire::request::CreateContext { id: context, platform: 0, devices: telecl_wire::Ids(&device) });
    assert_eq!(client.status_of(telecl_wire::request::Kind::Context, context), CL_INVALID_PLATFORM);
}

fn a_unix_socket_serves_as_well() {
    let broker = Broker::start_at_socket();
    let mut client = broker.client();
    let (_, queue) = client.context_and_queue(0);
    client.finish(queue);
}

fn a_worker_waits_for_the_next_session() {
    let broker = Broker::start();
    until("a worker to wait", || broker.idle_workers().len() == 1);
    let waiting = broker.idle_workers();
    let mut client = broker.client();
    assert_eq!(broker.idle_workers(), waiting, "a greeting costs no worker");
    let (_, queue) = client.context_and_queue(0);
    assert_eq!(broker.workers(), waiting);
    until("the next one to wait", || broker.idle_workers().len() == 1);
    client.finish(queue);
    drop(client);
    until("the worker to end", || broker.workers().is_empty());
    assert_eq!(broker.idle_workers().len(), 1);
}

fn an_idle_worker_that_dies_is_replaced() {
    let broker = Broker::start();
    for _ in 0..5 {
        until("a worker to wait", || broker.idle_workers().len() == 1);
        let victim = broker.idle_workers()[0];
        assert!(std::process::Command::new("kill").arg("-KILL").arg(victim.to_string()).status().unwrap().success());
        // At once: perhaps nobody has noticed yet.
        let mut client = broker.client();
        let (_, queue) = client.context_and_queue(0);
        client.finish(queue);
        assert_ne!(broker.workers(), [victim]);
    }
}
