//! Peers that misuse shared memory. Whatever they do: their session ends with a reason in the log, or is served; the
//! others compute on; no worker stays, and none panics.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use telecl_shm::{RING, SEGMENT, SLOT, SLOTS, Slot};
use telecl_sys::*;
use telecl_wire::handshake::{Ping, ShareMemory};
use telecl_wire::reply::{Closing, Completed, Data};
use telecl_wire::request::*;
use telecl_wire::{Header, Ids, WireId, decode};
use zerocopy::IntoBytes;

use crate::broker::until;
use crate::client::{Broker, Client, Link, choose, command, memory_arg};
use crate::peer::*;

pub(crate) const TESTS: &[crate::Test] = &[
    ("what_is_no_segment_is_refused_with_a_reason", what_is_no_segment_is_refused_with_a_reason),
    ("a_segment_cannot_be_cut_under_the_worker", a_segment_cannot_be_cut_under_the_worker),
    ("more_descriptors_than_one_do_not_stay_open", more_descriptors_than_one_do_not_stay_open),
    ("memory_is_shared_once", memory_is_shared_once),
    ("no_memory_is_shared_over_tcp", no_memory_is_shared_over_tcp),
    ("garbage_in_the_ring_ends_the_session", garbage_in_the_ring_ends_the_session),
    ("messages_with_garbage_in_them_hurt_nobody", messages_with_garbage_in_them_hurt_nobody),
    ("positions_that_cannot_be_end_the_session", positions_that_cannot_be_end_the_session),
    ("a_head_beyond_the_tail_ends_the_session", a_head_beyond_the_tail_ends_the_session),
    ("slots_that_cannot_be_end_the_session", slots_that_cannot_be_end_the_session),
    ("the_same_slot_twice_is_the_drivers_own_problem", the_same_slot_twice_is_the_drivers_own_problem),
    ("slots_that_never_come_back_make_a_read_slow_only", slots_that_never_come_back_make_a_read_slow_only),
    ("frames_may_change_while_they_are_read", frames_may_change_while_they_are_read),
    ("bells_without_end_are_bells", bells_without_end_are_bells),
    ("a_driver_that_dies_within_a_frame_leaves_no_worker", a_driver_that_dies_within_a_frame_leaves_no_worker),
    ("a_driver_that_does_not_read_and_dies_leaves_no_worker", a_driver_that_does_not_read_and_dies_leaves_no_worker),
    ("a_driver_that_does_not_read_can_be_closed", a_driver_that_does_not_read_can_be_closed),
    ("a_driver_that_does_not_read_does_not_keep_the_service", a_driver_that_does_not_read_does_not_keep_the_service),
];

/// A service with a session that is to notice nothing.
struct Scene {
    broker: Broker,
    neighbour: Client,
    queue: u64,
    kernel: u64,
    buffer: u64,
}

impl Scene {
    fn new() -> Scene {
        let broker = Broker::start_at_socket();
        choose(Link::SharedMemory);
        let mut neighbour = broker.client();
        choose(Link::Tcp);
        let (context, queue) = neighbour.context_and_queue(0);
        let source = "kernel void twice(global int *a) { a[get_global_id(0)] *= 2; }";
        let (program, status, _) = neighbour.program(context, source, b"");
        assert_eq!(status, CL_SUCCESS);
        let kernel = neighbour.kernel(program, "twice");
        let buffer = neighbour.buffer(context, 1 << 20, &[]);
        let mut scene = Scene { broker, neighbour, queue, kernel, buffer };
        scene.neighbour_computes();
        scene
    }

    fn neighbour_computes(&mut self) {
        let Scene { neighbour, queue, kernel, buffer, .. } = self;
        let numbers: Vec<i32> = (0..1 << 18).collect();
        let bytes = |numbers: &[i32]| -> Vec<u8> { numbers.iter().flat_map(|number| number.to_le_bytes()).collect() };
        let (written, read) = (neighbour.id(), neighbour.id());
        for (index, part) in bytes(&numbers).chunks(Slot::LEN).enumerate() {
            let (offset, last) = ((index * Slot::LEN) as u64, index == 1);
            let write = WriteBuffer { command: command(*queue, written), buffer: *buffer, offset, last };
            neighbour.send_with(&write, part);
        }
        neighbour.run(command(*queue, 0), *kernel, vec![memory_arg(0, *buffer)], 1 << 18);
        neighbour.send(&ReadBuffer { command: command(*queue, read), buffer: *buffer, offset: 0, size: 1 << 20 });
        let doubled: Vec<i32> = numbers.iter().map(|number| number * 2).collect();
        assert!(neighbour.linear(read, 1 << 20) == bytes(&doubled), "the neighbour has other results");
    }

    /// The session is over, soon, and only it. Returns what the log says about it.
    fn assert_over(&mut self, session: u64) -> String {
        until("the session to end", || lines_of(&self.broker.log(), session).contains("session closed"));
        until("its worker to be gone", || self.broker.workers().len() == 1);
        self.neighbour_computes();
        let log = self.broker.log();
        assert!(!log.contains("panicked"), "a worker panicked:\n{log}");
        let lines = lines_of(&log, session);
        assert!(!lines.contains("killed by signal"), "a worker crashed:\n{lines}");
        lines
    }

    /// As [`Scene::assert_over`], with a reason.
    fn assert_broken(&mut self, session: u64, reason: &str) {
        let lines = self.assert_over(session);
        assert!(lines.contains(reason), "no word about {reason:?}:\n{lines}");
        assert!(lines.contains("driver broke the protocol"), "{lines}");
    }

    /// The peer is served after all; then it leaves.
    fn assert_serves(&mut self, mut peer: Peer) {
        assert!(peer.is_served(), "{}", lines_of(&self.broker.log(), peer.session));
        let session = peer.session;
        drop(peer);
        self.assert_over(session);
    }

    /// Descriptors of shared memory that the workers have open.
    fn open_memory(&self) -> usize {
        let open = |worker: u32| std::fs::read_dir(format!("/proc/{worker}/fd")).unwrap();
        let links =
            self.broker.workers().into_iter().flat_map(open).filter_map(|entry| entry.ok()?.path().read_link().ok());
        links.filter(|link| link.to_string_lossy().contains("memfd:")).count()
    }
}

fn lines_of(log: &str, session: u64) -> String {
    let name = format!("session={session}");
    let lines: Vec<&str> = log.lines().filter(|line| line.split(' ').any(|word| word == name)).collect();
    lines.join("\n")
}

fn memfd(size: usize, seals: SealFlags) -> OwnedFd {
    let memfd = rustix::fs::memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memfd, size as u64).unwrap();
    rustix::fs::fcntl_add_seals(&memfd, seals).unwrap();
    memfd
}

fn file_in(directory: &str) -> OwnedFd {
    let file = tempfile::tempfile_in(directory).unwrap();
    file.set_len(SEGMENT as u64).unwrap();
    file.into()
}

/// Numbers that are random enough (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

// ---- the offer -------------------------------------------------------------------------------------------------------

fn what_is_no_segment_is_refused_with_a_reason() {
    let mut scene = Scene::new();
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    let offers: [(Option<OwnedFd>, &str); 9] = [
        (None, "unknown message number 6"),
        // Files in memory have seals, those on a disk have none.
        (Some(file_in("/var/tmp")), "memfd"),
        (Some(file_in("/dev/shm")), "not sealed"),
        (Some(UnixStream::pair().unwrap().0.into()), "not a memfd"),
        (Some(memfd(SEGMENT, SealFlags::empty())), "not sealed"),
        (Some(memfd(SEGMENT, SealFlags::SHRINK)), "not sealed"),
        (Some(memfd(SEGMENT - 1, sealed)), "has 12648447 bytes"),
        (Some(memfd(SEGMENT + 4096, sealed)), "expected 12648448"),
        (Some(memfd(SEGMENT, sealed)), "begins with"),
    ];
    for (offered, reason) in offers {
        let (socket, session) = greet(&scene.broker);
        offer(&socket, &offered.iter().map(AsFd::as_fd).collect::<Vec<BorrowedFd<'_>>>());
        scene.assert_broken(session, reason);
        drop(socket);
    }
    assert_eq!(scene.open_memory(), 0);
}

fn a_segment_cannot_be_cut_under_the_worker() {
    let mut scene = Scene::new();
    let mut peer = Peer::new(&scene.broker);
    assert!(peer.is_served());
    for size in [0, 4096, SEGMENT as u64 - 1, SEGMENT as u64 + 1] {
        assert_eq!(rustix::fs::ftruncate(&peer.memfd, size), Err(Errno::PERM));
    }
    let reopened = File::options().write(true).open(format!("/proc/self/fd/{}", raw(&peer.memfd))).unwrap();
    assert_eq!(rustix::fs::ftruncate(reopened, 0), Err(Errno::PERM));
    assert!(rustix::fs::fcntl_add_seals(&peer.memfd, SealFlags::FUTURE_WRITE).is_err());
    scene.assert_serves(peer);
}

fn raw(file: &File) -> i32 {
    use std::os::fd::AsRawFd;
    file.as_raw_fd()
}

fn more_descriptors_than_one_do_not_stay_open() {
    let mut scene = Scene::new();
    for count in [2, 3, 8] {
        let mut peer = Peer::with(&scene.broker, |memfd| vec![memfd; count]);
        assert!(peer.is_served(), "{count}");
        assert_eq!(scene.open_memory(), 0, "{count} descriptors");
        scene.assert_serves(peer);
    }
    // The first counts, whatever comes after it.
    let other = memfd(SEGMENT, SealFlags::empty());
    let (socket, session) = greet(&scene.broker);
    offer(&socket, &[other.as_fd(), memfd(SEGMENT, SealFlags::SHRINK | SealFlags::GROW).as_fd()]);
    scene.assert_broken(session, "not sealed");
}

fn memory_is_shared_once() {
    let mut scene = Scene::new();
    // Through the ring it is a message like any other, and unknown.
    let mut peer = Peer::new(&scene.broker);
    assert!(peer.is_served());
    peer.write(&frame(&ShareMemory {}, &[]));
    scene.assert_broken(peer.session, "unknown message number 6");
    // At the socket there are only bells by now.
    let peer = Peer::new(&scene.broker);
    let other = memfd(SEGMENT, SealFlags::SHRINK | SealFlags::GROW);
    for _ in 0..10 {
        offer(&peer.socket, &[other.as_fd(), other.as_fd()]);
    }
    let mut peer = peer;
    assert!(peer.is_served());
    assert_eq!(scene.open_memory(), 0);
    scene.assert_serves(peer);
}

fn no_memory_is_shared_over_tcp() {
    let broker = Broker::start();
    let mut neighbour = broker.client();
    let (_, queue) = neighbour.context_and_queue(0);
    for attack in [frame(&ShareMemory {}, &[]), slot_frame(&Stage { id: 1 }, 0, 100)] {
        for first in [true, false] {
            let mut client = broker.client();
            if !first {
                client.context_and_queue(0);
            }
            assert_eq!(rustix::io::write(client.sender.stream().unwrap(), &attack), Ok(attack.len()));
            while client.receive() {}
            assert!(client.arrived.closing.is_some());
            neighbour.finish(queue);
        }
    }
    until("the workers to end", || broker.workers().len() == 1);
    until("a reason for each", || broker.log().matches("ended=\"driver broke the protocol\"").count() == 4);
    let log = broker.log();
    assert!(log.contains("unknown message number 6") && log.contains("header is not one of ours"), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

// ---- what is in the rings --------------------------------------------------------------------------------------------

fn garbage_in_the_ring_ends_the_session() {
    let mut scene = Scene::new();
    for seed in 1..=10 {
        let mut peer = Peer::new(&scene.broker);
        let served = seed % 2 == 0;
        assert!(!served || peer.is_served());
        peer.write(&Random(seed).bytes(10_000 * seed as usize));
        scene.assert_broken(peer.session, "broke the protocol: ");
    }
}

/// Right headers, and anything behind them.
fn messages_with_garbage_in_them_hurt_nobody() {
    let mut scene = Scene::new();
    let mut random = Random(7);
    for opcode in (1000..=1017).chain(1100..=1113).chain(1200..=1218) {
        let mut peer = Peer::new(&scene.broker);
        let (body, payload) = (random.next() as usize % 200, random.next() as usize % 200);
        let header = Header::new(opcode, body, payload);
        let frame = [header.as_bytes(), &random.bytes(body), &random.bytes(payload)].concat();
        // The second one is met by a worker that has begun to work.
        peer.write(&frame);
        peer.write(&frame);
        peer.is_served();
        let session = peer.session;
        drop(peer);
        let lines = scene.assert_over(session);
        let ended = ["driver broke the protocol", "driver closed the connection"];
        assert!(ended.iter().any(|ended| lines.contains(ended)), "{opcode}: {lines}");
    }
}

fn positions_that_cannot_be_end_the_session() {
    let mut scene = Scene::new();
    let ring = RING as u64;
    type Lie = fn(u64, u64) -> u64;
    let lies: [Lie; 5] = [|now, ring| now + ring + 1, |_, _| u64::MAX, |_, _| 1 << 63, |now, _| now - 1, |_, _| 0];
    for lie in lies {
        for asleep in [false, true] {
            let mut peer = Peer::new(&scene.broker);
            assert!(peer.is_served());
            if asleep {
                until("the worker to sleep", || peer.peek(sleeping(TO_WORKER)) & 1 == 1);
            }
            let now = peer.peek(tail(TO_WORKER));
            peer.poke(tail(TO_WORKER), &lie(now, ring).to_ne_bytes());
            peer.ring();
            scene.assert_broken(peer.session, "nonsense");
        }
    }
}

fn a_head_beyond_the_tail_ends_the_session() {
    let mut scene = Scene::new();
    for head_now in [u64::MAX, 1 << 63, 1 << 40] {
        let mut peer = Peer::new(&scene.broker);
        assert!(peer.is_served());
        peer.poke(head(TO_DRIVER), &head_now.to_ne_bytes());
        // The worker looks there when its ring is full: 24 bytes for each pong.
        let pings: Vec<u8> = (0..1000).flat_map(|number| frame(&Ping { number }, &[])).collect();
        for _ in 0..RING / 24_000 + 2 {
            if !peer.write(&pings) {
                break;
            }
        }
        scene.assert_broken(peer.session, "nonsense");
    }
}

// ---- slots -----------------------------------------------------------------------------------------------------------

fn slots_that_cannot_be_end_the_session() {
    let mut scene = Scene::new();
    for (slot, len, reason) in [
        (99, 100, "header is not one of ours"),
        (SLOTS as u32, 100, "header is not one of ours"),
        (u32::MAX, 100, "header is not one of ours"),
        (0, SLOT + 1, "longer than allowed"),
        (0, 4 << 20, "longer than allowed"),
    ] {
        let mut peer = Peer::new(&scene.broker);
        peer.write(&slot_frame(&Stage { id: 1 }, slot, len));
        scene.assert_broken(peer.session, reason);
    }
    // A slot that nobody has sent has some content, and a message with a slot but no use for it leaves it alone.
    let mut peer = Peer::new(&scene.broker);
    peer.write(&slot_frame(&Stage { id: 1 }, SLOTS as u32 - 1, SLOT));
    peer.write(&slot_frame(&Ping { number: 1 }, 3, 0));
    scene.assert_serves(peer);
}

/// A context with the first device, its queue and a buffer, made through the ring; ids 70000, 70001 and 70002.
fn set_up(scene: &Scene, peer: &mut Peer, size: u64) -> (u64, u64) {
    let (platform, device) = {
        let welcome = scene.neighbour.welcome();
        (welcome.platforms[0].index, welcome.platforms[0].devices[0].id)
    };
    let (context, queue, buffer) = (70_000, 70_001, 70_002);
    peer.write(&frame(&CreateContext { id: context, platform, devices: Ids(&[WireId::new(device)]) }, &[]));
    peer.write(&frame(&CreateQueue { id: queue, context, device, properties: Ids(&[]) }, &[]));
    let create = CreateBuffer { id: buffer, context, flags: CL_MEM_READ_WRITE, size, staged: 0, properties: Ids(&[]) };
    peer.write(&frame(&create, &[]));
    (queue, buffer)
}

fn read(queue: u64, event: u64, buffer: u64, size: u64) -> Vec<u8> {
    frame(&ReadBuffer { command: command(queue, event), buffer, offset: 0, size }, &[])
}

/// Waits until the command of `event` has ended well; returns how many bytes of data have come for it.
fn bytes_of(peer: &mut Peer, event: u64) -> u64 {
    let mut bytes = 0;
    let ended = peer.wait_for(|opcode, body| match opcode {
        Data::OPCODE => {
            let data: Data = decode(body).unwrap();
            bytes += if data.event == event { data.region.size[0] } else { 0 };
            false
        }
        Completed::OPCODE => {
            let completed: Completed = decode(body).unwrap();
            assert_eq!(completed.status, CL_COMPLETE);
            completed.event == event
        }
        _ => false,
    });
    assert!(ended);
    bytes
}

fn the_same_slot_twice_is_the_drivers_own_problem() {
    let mut scene = Scene::new();
    let mut peer = Peer::new(&scene.broker);
    let (queue, buffer) = set_up(&scene, &mut peer, 1 << 20);
    peer.poke(slot(TO_WORKER, 0), &[5; 1000]);
    for event in 80_000..80_100 {
        let command = command(queue, event);
        peer.write(&slot_frame(&WriteBuffer { command, buffer, offset: 0, last: true }, 0, SLOT));
        peer.poke(slot_state(TO_WORKER, 0), &[0; 4]);
    }
    peer.write(&read(queue, 90_000, buffer, 1 << 20));
    assert_eq!(bytes_of(&mut peer, 90_000), 1 << 20);
    scene.assert_serves(peer);
}

fn slots_that_never_come_back_make_a_read_slow_only() {
    let mut scene = Scene::new();
    let mut peer = Peer::new(&scene.broker);
    let (queue, buffer) = set_up(&scene, &mut peer, 64 << 20);
    (0..8).for_each(|slot| peer.poke(slot_state(TO_DRIVER, slot), &[1]));
    peer.write(&read(queue, 90_000, buffer, 16 << 20));
    assert_eq!(bytes_of(&mut peer, 90_000), 16 << 20);
    scene.assert_serves(peer);
}

// ---- while it is read ------------------------------------------------------------------------------------------------

/// Most sessions end after a few frames, so there are many. Every second one has its positions and states changed, too.
fn frames_may_change_while_they_are_read() {
    let mut scene = Scene::new();
    let (begin, mut seed, mut frames) = (Instant::now(), 0, 0);
    while begin.elapsed() < Duration::from_secs(4) {
        seed += 1;
        let mut peer = Peer::new(&scene.broker);
        let (queue, buffer) = set_up(&scene, &mut peer, 1 << 20);
        let (done, memfd) = (AtomicBool::new(false), peer.memfd.try_clone().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(seed);
                while !done.load(Ordering::Relaxed) {
                    let at = match random.next() % 100 {
                        // Behind the magic number, which is only looked at once.
                        0 if seed % 2 == 0 => 8 + random.next() % 4000,
                        1..10 => ring(TO_WORKER) + random.next() % RING as u64,
                        _ => slot(TO_WORKER, 0) + random.next() % SLOT as u64,
                    };
                    memfd.write_all_at(&[random.next() as u8], at).unwrap();
                }
            });
            let end = Instant::now() + Duration::from_millis(300);
            for event in (80_000..).step_by(3) {
                let write = |event| WriteBuffer { command: command(queue, event), buffer, offset: 7, last: true };
                let messages = [
                    slot_frame(&write(event), 0, SLOT - 7),
                    frame(&Ping { number: event }, &[]),
                    frame(&write(event + 1), &[1; 9000]),
                    read(queue, event + 2, buffer, 4096),
                ];
                if !peer.write(&messages.concat()) || !drain(&mut peer) || Instant::now() > end {
                    break;
                }
                frames += messages.len();
            }
            done.store(true, Ordering::Relaxed);
        });
        let session = peer.session;
        drop(peer);
        scene.assert_over(session);
    }
    assert!(frames > 1000, "{seed} sessions had {frames} frames only");
}

/// Takes what has come; `false` if that is nonsense, of which there is enough.
fn drain(peer: &mut Peer) -> bool {
    let mut buffer = [0; 65536];
    while let Ok(read) = peer.consume(&mut buffer) {
        if read == 0 {
            return true;
        }
    }
    false
}

fn bells_without_end_are_bells() {
    let mut scene = Scene::new();
    let peer = Peer::new(&scene.broker);
    for _ in 0..200 {
        // Some do not fit.
        let _ = rustix::net::send(
            &peer.socket,
            &[9; 5000],
            rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL,
        );
    }
    scene.assert_serves(peer);
}

// ---- the end ---------------------------------------------------------------------------------------------------------

fn a_driver_that_dies_within_a_frame_leaves_no_worker() {
    let mut scene = Scene::new();
    let whole = frame(&Stage { id: 1 }, &[1; 100_000]);
    for cut in [1, Header::LEN - 1, Header::LEN, Header::LEN + 5, Header::LEN + 8, 70_000, whole.len() - 1] {
        let mut peer = Peer::new(&scene.broker);
        assert!(peer.is_served());
        peer.write(&whole[..cut]);
        let session = peer.session;
        drop(peer);
        let lines = scene.assert_over(session);
        assert!(lines.contains("driver closed the connection"), "{lines}");
    }
    // Already within the offer.
    let (mut socket, session) = greet(&scene.broker);
    socket.write_all(&frame(&ShareMemory {}, &[])[..5]).unwrap();
    drop(socket);
    scene.assert_over(session);
}

/// A session whose worker has more to say than the ring holds, and cannot.
fn stuck(scene: &Scene) -> Peer {
    let mut peer = Peer::new(&scene.broker);
    let (queue, buffer) = set_up(scene, &mut peer, 16 << 20);
    for event in 80_000..80_004 {
        peer.write(&read(queue, event, buffer, 16 << 20));
    }
    until("the ring to be full", || peer.peek(tail(TO_DRIVER)) == RING as u64);
    peer
}

fn a_driver_that_does_not_read_and_dies_leaves_no_worker() {
    let mut scene = Scene::new();
    let peer = stuck(&scene);
    scene.neighbour_computes();
    let session = peer.session;
    drop(peer);
    let lines = scene.assert_over(session);
    assert!(lines.contains("driver closed the connection"), "{lines}");
}

fn a_driver_that_does_not_read_can_be_closed() {
    const PONG: usize = Header::LEN + 8;
    let mut scene = Scene::new();
    let mut peer = Peer::new(&scene.broker);
    let fitting = RING / PONG;
    let pings: Vec<u8> = (0..fitting as u64).flat_map(|number| frame(&Ping { number }, &[])).collect();
    assert!(peer.write(&pings));
    until("the ring to be full", || peer.peek(tail(TO_DRIVER)) == (fitting * PONG) as u64);
    // There is no room for a last word.
    peer.write(&frame(&Closing { reason: "no driver says so", policy: false }, &[]));
    scene.assert_broken(peer.session, "unknown message number 108");
}

fn a_driver_that_does_not_read_does_not_keep_the_service() {
    let scene = Scene::new();
    let peer = stuck(&scene);
    let pid = rustix::process::Pid::from_child(&scene.broker.child);
    let workers = scene.broker.workers();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    until("the service to stop", || scene.broker.log().contains("stopped"));
    until("all workers to be gone", || workers.iter().all(|worker| !alive(*worker)));
    drop(peer);
}

fn alive(process: u32) -> bool {
    std::path::Path::new(&format!("/proc/{process}")).exists()
}
