//! Further streams of a session: who may join, what comes in which order, and what happens when one of them ends.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use telecl_sys::*;
use telecl_wire::handshake::{Join, Ping};
use telecl_wire::request::*;
use telecl_wire::{CHUNK, Header, MAX_STREAMS, encode};
use zerocopy::IntoBytes;

use crate::broker::until;
use crate::client::{Broker, Client, command, memory_arg};

pub(crate) const TESTS: &[crate::Test] = &[
    ("payloads_come_in_the_order_of_their_frames", payloads_come_in_the_order_of_their_frames),
    ("requests_wait_for_the_payload_before_them", requests_wait_for_the_payload_before_them),
    ("transfers_of_all_sizes_and_two_queues_keep_their_order", transfers_of_all_sizes_and_two_queues_keep_their_order),
    ("staged_content_may_come_on_streams", staged_content_may_come_on_streams),
    (
        "a_stream_that_joins_before_the_first_request_waits_for_it",
        a_stream_that_joins_before_the_first_request_waits_for_it,
    ),
    ("only_who_knows_the_secret_may_join", only_who_knows_the_secret_may_join),
    ("a_session_has_no_more_streams_than_it_may", a_session_has_no_more_streams_than_it_may),
    ("joins_that_come_to_nothing_hurt_nobody", joins_that_come_to_nothing_hurt_nobody),
    ("streams_that_have_not_joined_cannot_be_named", streams_that_have_not_joined_cannot_be_named),
    ("only_bulk_data_comes_on_streams", only_bulk_data_comes_on_streams),
    ("a_stream_cut_within_a_write_ends_the_session", a_stream_cut_within_a_write_ends_the_session),
    ("a_stream_cut_within_a_read_ends_the_session", a_stream_cut_within_a_read_ends_the_session),
    ("a_driver_that_dies_with_busy_streams_leaves_no_worker", a_driver_that_dies_with_busy_streams_leaves_no_worker),
    ("a_worker_that_dies_ends_its_streams", a_worker_that_dies_ends_its_streams),
    ("a_service_stops_while_streams_are_busy", a_service_stops_while_streams_are_busy),
];

/// A client with this many streams, a queue, and a buffer.
fn client(broker: &Broker, streams: usize, size: usize) -> (Client, u64, u64) {
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    client.join(streams);
    let buffer = client.buffer(context, size as u64, &[]);
    (client, queue, buffer)
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|place| ((place ^ (place >> 9)).wrapping_mul(31) + seed) as u8).collect()
}

fn read(client: &mut Client, queue: u64, buffer: u64, size: usize) -> Vec<u8> {
    let event = client.id();
    client.send(&ReadBuffer { command: command(queue, event), buffer, offset: 0, size: size as u64 });
    client.linear(event, size)
}

fn write(queue: u64, event: u64, buffer: u64, offset: usize) -> WriteBuffer<'static> {
    WriteBuffer { command: command(queue, event), buffer, offset: offset as u64, last: true }
}

fn payloads_come_in_the_order_of_their_frames() {
    const SIZE: usize = 24 << 20;
    let broker = Broker::start();
    for streams in [1, 3, MAX_STREAMS] {
        let (mut client, queue, buffer) = client(&broker, streams, SIZE);
        let data = pattern(SIZE, streams);
        let event = client.id();
        for (number, part) in data.chunks(CHUNK).enumerate() {
            let last = number + 1 == SIZE / CHUNK;
            client.send_with(&WriteBuffer { last, ..write(queue, event, buffer, number * CHUNK) }, part);
        }
        assert_eq!(client.streamed, SIZE / CHUNK);
        assert!(read(&mut client, queue, buffer, SIZE) == data, "other data came back over {streams} streams");
        assert_eq!(client.streamed, 2 * SIZE / CHUNK, "a large read comes on streams, too");
        assert_eq!(client.arrived.order[0], event);
    }
}

fn requests_wait_for_the_payload_before_them() {
    // More than a worker puts off.
    const PINGS: u64 = 700;
    let broker = Broker::start();
    let (mut client, queue, buffer) = client(&broker, 2, CHUNK);
    let (first, second) = (client.id(), client.id());
    client.announce(&write(queue, first, buffer, 0), 0, CHUNK);
    client.announce(&write(queue, second, buffer, 4), 1, 4);
    // The second payload is there long before the first.
    client.stream(1).send_payload(b"last").unwrap();
    for number in 0..PINGS {
        client.send(&Ping { number });
    }
    let (event, call) = (client.id(), client.id());
    client.send(&ReadBuffer { command: command(queue, event), buffer, offset: 0, size: 8 });
    client.send(&Finish { call, queue });
    std::thread::sleep(Duration::from_millis(50));
    client.stream(0).send_payload(&vec![b'x'; CHUNK / 2]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(client.is_quiet(), "something was answered before its turn");
    client.stream(0).send_payload(&vec![b'x'; CHUNK / 2]).unwrap();
    for number in 0..PINGS {
        assert_eq!(client.pong(), number);
    }
    assert_eq!(client.linear(event, 8), b"xxxxlast");
    assert_eq!(client.reply(call).0, CL_SUCCESS);
    assert_eq!(client.arrived.order, [first, second, event]);
}

fn transfers_of_all_sizes_and_two_queues_keep_their_order() {
    const SIZE: usize = 4 << 20;
    const SIZES: [usize; 8] = [1, 4096, 70_000, (512 << 10) - 1, 512 << 10, CHUNK - 1, CHUNK, CHUNK];
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    client.join(3);
    let other = client.queue(context, 0);
    let source = "kernel void add(global uchar *a, uchar b) { a[get_global_id(0)] += b; }";
    let (program, status, _) = client.program(context, source, b"");
    assert_eq!(status, CL_SUCCESS);
    let kernel = client.kernel(program, "add");
    let mut objects =
        [queue, other].map(|queue| (queue, client.buffer(context, SIZE as u64, &vec![0; SIZE]), vec![0; SIZE]));
    let mut random = 12345usize;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut reads = Vec::new();
    for round in 0..150 {
        let (queue, buffer, model) = &mut objects[draw(2)];
        let event = client.id();
        match draw(5) {
            0..3 => {
                let size = SIZES[draw(SIZES.len())];
                let offset = draw(SIZE - size + 1);
                let data = pattern(size, round);
                model[offset..offset + size].copy_from_slice(&data);
                client.send_with(&write(*queue, event, *buffer, offset), &data);
            }
            3 => {
                let one = [round as u8];
                model.iter_mut().for_each(|byte| *byte = byte.wrapping_add(one[0]));
                let args = vec![memory_arg(0, *buffer), crate::client::bytes_arg(1, &one)];
                client.run(command(*queue, event), kernel, args, SIZE as u64);
            }
            _ => {
                let size = 1 + draw(SIZE);
                client.send(&ReadBuffer {
                    command: command(*queue, event),
                    buffer: *buffer,
                    offset: 0,
                    size: size as u64,
                });
                reads.push((event, model[..size].to_vec()));
            }
        }
        if reads.len() == 4 {
            for (event, expected) in reads.drain(..) {
                assert!(client.linear(event, expected.len()) == expected, "round {round}: other data came back");
            }
        }
    }
    for (queue, buffer, model) in &objects {
        assert!(read(&mut client, *queue, *buffer, SIZE) == *model);
    }
    assert!(client.streamed > 100, "{} payloads came on streams", client.streamed);
}

fn staged_content_may_come_on_streams() {
    let broker = Broker::start();
    let (mut client, queue, _) = client(&broker, 2, 16);
    let (context, _) = client.context_and_queue(0);
    let data = pattern(3 * CHUNK + 5, 1);
    let (staged, id) = (client.id(), client.id());
    for part in data.chunks(CHUNK) {
        client.send_with(&Stage { id: staged }, part);
    }
    let size = data.len() as u64;
    let properties = telecl_wire::Ids(&[]);
    client.send(&CreateBuffer { id, context, flags: CL_MEM_READ_WRITE, size, staged, properties });
    let queue_there = client.queue(context, 0);
    assert!(read(&mut client, queue_there, id, data.len()) == data);
    client.finish(queue);
}

fn a_stream_that_joins_before_the_first_request_waits_for_it() {
    let broker = Broker::start();
    let client = broker.client();
    let joining = client.sender.stream().unwrap().connect_again(Instant::now() + Duration::from_secs(5)).unwrap();
    let ticket = client.ticket(0);
    std::thread::scope(|scope| {
        let joined = scope.spawn(|| telecl_net::join(&joining, &ticket));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!joined.is_finished() && broker.workers().is_empty(), "a join costs no worker");
        let mut client = client;
        client.context_and_queue(0);
        joined.join().unwrap().unwrap();
    });
}

fn only_who_knows_the_secret_may_join() {
    let broker = Broker::start();
    let (mut client, queue, buffer) = client(&broker, 1, CHUNK);
    let right = client.ticket(1);
    let mut secret = right.secret;
    secret[15] ^= 1;
    let unknown = "there is no such session, or it has another secret";
    for (join, reason) in [
        (Join { secret, ..right.clone() }, unknown),
        (Join { secret: [0; 16], ..right.clone() }, unknown),
        (Join { session: right.session + 1, ..right.clone() }, unknown),
        (Join { protocol: 999, ..right.clone() }, "driver speaks protocol 999"),
    ] {
        let refused = client.introduce(&join).1.unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
    until("the log to tell of them", || broker.log().contains("refused=3"));
    assert_eq!(read(&mut client, queue, buffer, CHUNK).len(), CHUNK);
    // Of a session that is over, there is nothing to join.
    let late = broker.client();
    drop(client);
    until("the session to end", || broker.log().contains("session closed"));
    let refused = late.introduce(&right).1.unwrap_err();
    assert!(refused.contains(unknown), "{refused}");
}

fn a_session_has_no_more_streams_than_it_may() {
    let broker = Broker::start();
    let (mut client, queue, buffer) = client(&broker, MAX_STREAMS, 9 * CHUNK);
    let refused = client.introduce(&client.ticket(MAX_STREAMS as u32)).1.unwrap_err();
    assert!(refused.contains("no more than 8 streams"), "{refused}");
    let refused = client.introduce(&client.ticket(3)).1.unwrap_err();
    assert!(refused.contains("has had a stream of this number"), "{refused}");
    assert!(client.introduce(&client.ticket(u32::MAX)).1.is_err());
    assert_eq!(read(&mut client, queue, buffer, 9 * CHUNK).len(), 9 * CHUNK);
}

fn joins_that_come_to_nothing_hurt_nobody() {
    let broker = Broker::start();
    let (mut client, queue, buffer) = client(&broker, 1, 3 * CHUNK);
    let address = broker.address.to_string();
    let body = encode(&client.ticket(1));
    let whole = [Header::new(Join::OPCODE, body.len(), 0).as_bytes(), &body].concat();
    // Killed while joining: before, within and right after the first words.
    for cut in [0, 5, Header::LEN, Header::LEN + 20, whole.len() - 1] {
        let mut socket = TcpStream::connect(&address).unwrap();
        socket.write_all(&whole[..cut]).unwrap();
    }
    assert!(read(&mut client, queue, buffer, 3 * CHUNK).len() == 3 * CHUNK);
    // A stream that has joined and then goes takes its session along.
    TcpStream::connect(&address).unwrap().write_all(&whole).unwrap();
    until("the worker to have the stream", || broker.log().contains("stream joined") || broker.workers().is_empty());
    drop(client);
    until("the session to end", || broker.workers().is_empty());
    let (mut next, queue, buffer) = self::client(&broker, 2, CHUNK);
    assert_eq!(read(&mut next, queue, buffer, CHUNK).len(), CHUNK);
}

/// The worker says why it ends, and does.
fn assert_broken(broker: &Broker, mut client: Client, reason: &str) {
    while client.receive() {}
    let closing = client.arrived.closing.clone().unwrap_or_default();
    assert!(closing.contains(reason), "{closing:?}");
    until("the worker to end", || broker.workers().is_empty());
    assert!(broker.log().contains("driver broke the protocol"), "{}", broker.log());
}

fn streams_that_have_not_joined_cannot_be_named() {
    let broker = Broker::start();
    for joined in [0, 2] {
        let (mut client, queue, buffer) = client(&broker, joined, CHUNK);
        client.announce(&write(queue, 0, buffer, 0), joined, 100);
        assert_broken(&broker, client, "frame header is not one of ours");
    }
}

fn only_bulk_data_comes_on_streams() {
    let broker = Broker::start();
    let properties = telecl_wire::Ids(&[]);
    let create = CreateBuffer { id: 99_999, context: 1, flags: 0, size: 8, staged: 0, properties };
    let (mut first, ..) = client(&broker, 1, CHUNK);
    first.announce(&create, 0, 8);
    assert_broken(&broker, first, "frame header is not one of ours");
    let (mut second, ..) = client(&broker, 1, CHUNK);
    second.announce(&Ping { number: 1 }, 0, 0);
    assert_broken(&broker, second, "unknown message number 4");
}

fn a_stream_cut_within_a_write_ends_the_session() {
    let broker = Broker::start();
    let (mut client, queue, buffer) = client(&broker, 2, 8 * CHUNK);
    let event = client.id();
    for part in 0..4 {
        client.announce(&write(queue, event + part, buffer, part as usize * CHUNK), part as usize % 2, CHUNK);
    }
    client.stream(1).send_payload(&[1; 1000]).unwrap();
    client.stream(1).shutdown();
    let start = Instant::now();
    while client.receive() {}
    assert!(start.elapsed() < Duration::from_secs(5));
    let closing = client.arrived.closing.clone();
    assert!(closing.is_none_or(|reason| reason.contains("a stream of the session was lost")));
    until("the worker to end", || broker.workers().is_empty());
}

fn a_stream_cut_within_a_read_ends_the_session() {
    let broker = Broker::start();
    let (mut client, queue, buffer) = client(&broker, 2, 64 * CHUNK);
    for event in 80_000..80_004 {
        client.send(&ReadBuffer { command: command(queue, event), buffer, offset: 0, size: 64 << 20 });
    }
    std::thread::sleep(Duration::from_millis(50));
    client.stream(0).shutdown();
    // What is on the other stream is not read: it need not come to an end before.
    until("the worker to end", || broker.workers().is_empty());
}

fn a_driver_that_dies_with_busy_streams_leaves_no_worker() {
    let broker = Broker::start();
    let (mut client, queue, buffer) = client(&broker, 3, 64 * CHUNK);
    client.send(&ReadBuffer { command: command(queue, 80_000), buffer, offset: 0, size: 64 << 20 });
    for stream in 0..3 {
        client.announce(&write(queue, 80_001 + stream as u64, buffer, 0), stream, CHUNK);
        client.stream(stream).send_payload(&[1; 1000]).unwrap();
    }
    drop(client);
    until("the worker to end", || broker.workers().is_empty());
    let (mut next, queue, buffer) = self::client(&broker, 1, CHUNK);
    assert_eq!(read(&mut next, queue, buffer, CHUNK).len(), CHUNK);
}

fn a_worker_that_dies_ends_its_streams() {
    let broker = Broker::start();
    let (mut client, queue, buffer) = client(&broker, 2, 64 * CHUNK);
    client.announce(&write(queue, 80_000, buffer, 0), 0, CHUNK);
    client.send(&ReadBuffer { command: command(queue, 80_001), buffer, offset: 0, size: 64 << 20 });
    let victim = broker.workers()[0];
    assert!(std::process::Command::new("kill").arg("-KILL").arg(victim.to_string()).status().unwrap().success());
    for stream in 0..2 {
        while client.stream(stream).receive_payload(&mut [0; 4096]).is_ok() {}
    }
    until("the worker to be gone", || broker.workers().is_empty());
}

fn a_service_stops_while_streams_are_busy() {
    let mut broker = Broker::start();
    let (mut client, queue, buffer) = client(&broker, 2, 64 * CHUNK);
    client.announce(&write(queue, 80_000, buffer, 0), 0, CHUNK);
    let late = client.ticket(5);
    let pid = rustix::process::Pid::from_child(&broker.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    // One that joins meanwhile is refused, closed, or not even accepted.
    let stream = client.sender.stream().unwrap().connect_again(Instant::now() + Duration::from_secs(1));
    if let Ok(stream) = &stream {
        let _ = telecl_net::join(stream, &late);
    }
    while client.receive() {}
    assert_eq!(client.arrived.closing.as_deref(), Some("the service is stopping"));
    assert!(broker.child.wait().unwrap().success());
}
