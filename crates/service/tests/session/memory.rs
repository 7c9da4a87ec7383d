//! Device memory: what counts, what is too much, and when it is given back. The client here refuses nothing by itself.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use telecl_sys::*;
use telecl_wire::reply::Format;
use telecl_wire::request::*;
use telecl_wire::{Ids, WireId};

use crate::broker::until;
use crate::client::{Broker, Client, Command_, command, flat, memory_arg};

pub(crate) const TESTS: &[crate::Test] = &[
    ("a_session_gets_what_it_may_have_and_not_a_byte_more", a_session_gets_what_it_may_have),
    ("what_is_made_of_other_memory_takes_none_and_keeps_that", what_is_made_of_other_memory_takes_none),
    ("a_thousand_allocations_and_releases_are_counted_to_the_byte", a_thousand_allocations_and_releases),
    ("memory_counts_until_the_last_command_has_ended", memory_counts_until_the_last_command_has_ended),
    ("sessions_of_a_tenant_share_its_memory_however_they_end", sessions_of_a_tenant_share_its_memory),
    ("another_policy_limits_new_sessions_and_counts_what_others_have", another_policy_limits_new_sessions),
    ("new_memory_is_all_zeros_before_any_command_sees_it", new_memory_is_all_zeros),
    ("parts_of_a_device_have_its_memory", parts_of_a_device_have_its_memory),
];

/// Bytes of the first device's memory that the session has, as the worker tells the broker.
fn used(client: &mut Client) -> u64 {
    let (call, device) = (client.id(), client.welcome().platforms[0].devices[0].id);
    let param = 0x54C5;
    client.send(&Query { call, target: Target::Device, object: device, device: 0, index: 0, param, input: &[] });
    let (status, answer) = client.reply(call);
    assert_eq!(status, CL_SUCCESS);
    u64::from_ne_bytes(answer.try_into().unwrap())
}

/// The session has so much now, or as soon as the vendor has said what is gone: NVIDIA's driver (580) does so a moment
/// later, on another thread.
fn expect_used(client: &mut Client, bytes: u64) {
    let begin = Instant::now();
    loop {
        match used(client) {
            now if now == bytes => return,
            now => assert!(begin.elapsed() < Duration::from_secs(5), "{now} bytes are used, not {bytes}"),
        }
    }
}

/// A buffer, or why there is none.
fn buffer(client: &mut Client, context: u64, size: u64) -> Result<u64, i32> {
    let id = client.buffer(context, size, &[]);
    match client.status_of(Kind::Memory, id) {
        CL_SUCCESS => Ok(id),
        status => Err(status),
    }
}

fn image(client: &mut Client, context: u64, desc: ImageDesc) -> u64 {
    let format = Format { order: CL_RGBA, data_type: CL_UNSIGNED_INT8 };
    let (id, flags) = (client.id(), CL_MEM_READ_WRITE);
    client.send(&CreateImage { id, context, flags, format, desc, staged: 0, properties: Ids(&[]) });
    id
}

fn release(client: &mut Client, id: u64) {
    client.send(&Release { kind: Kind::Memory, id });
}

fn a_session_gets_what_it_may_have() {
    let most = 1 << 20;
    let broker = Broker::start_with_policy("[defaults]\nsession_memory = \"1 MiB\"\n");
    let mut client = broker.client();
    let limits = client.welcome().memory;
    let devices: Vec<u64> =
        client.welcome().platforms.iter().flat_map(|p| p.devices.iter().map(|device| device.id)).collect();
    assert!(limits.iter().map(|limit| limit.device).eq(devices), "{limits:?}");
    assert!(limits.iter().all(|limit| limit.most == most && !limit.shared), "{limits:?}");
    let (context, _) = client.context_and_queue(0);
    let half = buffer(&mut client, context, most / 2).unwrap();
    let rest = buffer(&mut client, context, most / 2 - 1).unwrap();
    assert_eq!(buffer(&mut client, context, 2), Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
    let picture = image(&mut client, context, flat(16, 16));
    assert_eq!(client.status_of(Kind::Memory, picture), CL_MEM_OBJECT_ALLOCATION_FAILURE);
    let pipe = client.id();
    client.send(&CreatePipe {
        id: pipe,
        context,
        flags: CL_MEM_READ_WRITE,
        packet_size: u32::MAX,
        max_packets: u32::MAX,
    });
    assert_eq!(client.status_of(Kind::Memory, pipe), CL_MEM_OBJECT_ALLOCATION_FAILURE);
    expect_used(&mut client, most - 1);
    let last = buffer(&mut client, context, 1).unwrap();
    expect_used(&mut client, most);
    // What is refused takes nothing, and what is released makes room; so does a create that the vendor refuses.
    release(&mut client, half);
    release(&mut client, half);
    expect_used(&mut client, most / 2);
    assert_eq!(buffer(&mut client, context, u64::MAX), Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
    let nothing = buffer(&mut client, context, 0);
    assert!(nothing.is_err(), "{nothing:?}");
    expect_used(&mut client, most / 2);
    let picture = image(&mut client, context, flat(256, 512));
    assert_eq!(client.status_of(Kind::Memory, picture), CL_SUCCESS);
    expect_used(&mut client, most);
    let unknown = Format { order: 1, data_type: 1 };
    let id = client.id();
    let (desc, properties) = (flat(1, 1), Ids(&[]));
    client.send(&CreateImage { id, context, flags: 0, format: unknown, desc, staged: 0, properties });
    assert_eq!(client.status_of(Kind::Memory, id), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    for id in [rest, last, picture] {
        release(&mut client, id);
    }
    expect_used(&mut client, 0);
    // An object that takes the place of another under the same id.
    let id = buffer(&mut client, context, 1000).unwrap();
    let request = CreateBuffer { id, context, flags: 0, size: 500, staged: 0, properties: Ids(&[]) };
    client.send(&request);
    expect_used(&mut client, 500);
}

fn what_is_made_of_other_memory_takes_none() {
    let broker = Broker::start_with_policy("[defaults]\nsession_memory = \"1 MiB\"\n");
    let mut client = broker.client();
    let (context, _) = client.context_and_queue(0);
    let whole = buffer(&mut client, context, 1 << 20).unwrap();
    let part = client.id();
    client.send(&CreateSubBuffer { id: part, parent: whole, flags: CL_MEM_READ_WRITE, origin: 4096, size: 4096 });
    assert_eq!(client.status_of(Kind::Memory, part), CL_SUCCESS);
    let desc = ImageDesc { kind: CL_MEM_OBJECT_IMAGE1D_BUFFER, height: 0, parent: whole, ..flat(1024, 0) };
    let view = image(&mut client, context, desc);
    assert_eq!(client.status_of(Kind::Memory, view), CL_SUCCESS);
    expect_used(&mut client, 1 << 20);
    // The vendor keeps the buffer for them, so it counts until they are gone.
    release(&mut client, whole);
    assert_eq!(buffer(&mut client, context, (1 << 20) + 1), Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
    release(&mut client, part);
    expect_used(&mut client, 1 << 20);
    release(&mut client, view);
    expect_used(&mut client, 0);
}

/// Numbers that look random, and are the same in each run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn a_thousand_allocations_and_releases() {
    const MOST: u64 = 4 << 20;
    let broker = Broker::start_with_policy("[defaults]\nsession_memory = \"4 MiB\"\n");
    let mut client = broker.client();
    let (context, _) = client.context_and_queue(0);
    let (mut draw, mut live, mut refused) = (Draw(0x5EED), Vec::new(), 0);
    let mut counted = 0;
    for step in 0..1000 {
        if !live.is_empty() && draw.below(5) < 2 {
            let (id, size) = live.swap_remove(draw.below(live.len() as u64) as usize);
            release(&mut client, id);
            counted -= size;
        } else {
            let (id, size) = if draw.below(4) == 0 {
                let (width, height) = (1 + draw.below(255), 1 + draw.below(255));
                (image(&mut client, context, flat(width, height)), width * height * 4)
            } else {
                let size = 1 + draw.below(200_000);
                (client.buffer(context, size, &[]), size)
            };
            let fits = counted + size <= MOST;
            let status = client.status_of(Kind::Memory, id);
            assert_eq!(status, if fits { CL_SUCCESS } else { CL_MEM_OBJECT_ALLOCATION_FAILURE }, "step {step}");
            if fits {
                counted += size;
                live.push((id, size));
            } else {
                refused += 1;
            }
        }
        expect_used(&mut client, counted);
    }
    assert!(refused > 10 && live.len() > 10, "{refused} refused, {} live", live.len());
    for (id, _) in live {
        release(&mut client, id);
    }
    expect_used(&mut client, 0);
}

fn memory_counts_until_the_last_command_has_ended() {
    let broker = Broker::start_with_policy("[defaults]\nsession_memory = \"1 MiB\"\n");
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    // A session cannot make room by hiding memory in commands that wait.
    let size = 600 << 10;
    let hidden = buffer(&mut client, context, size).unwrap();
    let (gate, filled) = (client.id(), client.id());
    client.send(&CreateUserEvent { id: gate, context });
    let waits = [WireId::new(gate)];
    let command = Command_ { queue, event: filled, seen: true, waits: Ids(&waits) };
    client.send(&FillBuffer { command, buffer: hidden, pattern: &[7], offset: 0, size });
    release(&mut client, hidden);
    expect_used(&mut client, size);
    client.send(&SetUserEventStatus { event: gate, status: CL_COMPLETE });
    assert_eq!(client.completed(filled).status, CL_COMPLETE);
    expect_used(&mut client, 0);
    // A create waits for what is about to be free: the driver has counted that as free.
    let source = "kernel void spin(global volatile int *a) { for (int i = 0; i < 100000000; i++) a[0] += i; }";
    let (program, status, _) = client.program(context, source, b"");
    assert_eq!(status, CL_SUCCESS);
    let kernel = client.kernel(program, "spin");
    let (busy, ran) = (buffer(&mut client, context, size).unwrap(), client.id());
    let command = Command_ { queue, event: ran, seen: true, waits: Ids(&[]) };
    client.run(command, kernel, vec![memory_arg(0, busy)], 1);
    release(&mut client, busy);
    buffer(&mut client, context, size).unwrap();
    assert_eq!(client.completed(ran).status, CL_COMPLETE);
    expect_used(&mut client, size);
}

fn kill_workers(broker: &Broker) {
    for worker in broker.workers() {
        kill_process(Pid::from_raw(i32::try_from(worker).unwrap()).unwrap(), Signal::KILL).unwrap();
    }
}

fn sessions_of_a_tenant_share_its_memory() {
    let policy = "[defaults]\ndevice_memory = \"1 MiB\"\nsession_memory = \"768 KiB\"\n";
    let broker = Broker::start_with_policy(policy);
    let (mut first, mut second) = (broker.client(), broker.client());
    assert!(first.welcome().memory.iter().all(|limit| limit.most == 768 << 10 && limit.shared));
    let ((one, _), (two, _)) = (first.context_and_queue(0), second.context_and_queue(0));
    let held = buffer(&mut first, one, 700 << 10).unwrap();
    assert_eq!(buffer(&mut second, two, (324 << 10) + 1), Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
    let reason = |client: &Client| client.arrived.notices.last().cloned().unwrap_or_default();
    let said = reason(&second);
    assert!(said.contains("may use 1048576 bytes") && said.contains("have 716800"), "{said}");
    let rest = buffer(&mut second, two, 324 << 10).unwrap();
    assert_eq!(buffer(&mut first, one, 1), Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
    // Each has its own limit as well.
    release(&mut second, rest);
    expect_used(&mut second, 0);
    assert_eq!(buffer(&mut first, one, (68 << 10) + 1), Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
    assert!(reason(&first).contains("the session may use 786432 bytes"), "{}", reason(&first));
    // What one gives back, the other can have, in the order in which they say so.
    for _ in 0..100 {
        let id = buffer(&mut second, two, 324 << 10).unwrap();
        release(&mut second, id);
    }
    release(&mut first, held);
    expect_used(&mut first, 0);
    until("the other has it", || buffer(&mut second, two, 768 << 10).is_ok());
    // However a session ends.
    kill_workers(&broker);
    while first.receive() {}
    while second.receive() {}
    until("the workers are gone", || broker.log().matches("worker was killed").count() == 2);
    let mut third = broker.client();
    let (context, _) = third.context_and_queue(0);
    buffer(&mut third, context, 768 << 10).unwrap();
    drop(third);
    until("the worker is gone", || broker.log().contains("driver closed the connection"));
    let mut last = broker.client();
    let (context, _) = last.context_and_queue(0);
    buffer(&mut last, context, 768 << 10).unwrap();
}

fn another_policy_limits_new_sessions() {
    let broker = Broker::start_with_policy("");
    let mut old = broker.client();
    assert!(old.welcome().memory.is_empty());
    let (context, _) = old.context_and_queue(0);
    buffer(&mut old, context, 600 << 10).unwrap();
    broker.change_policy("[defaults]\ndevice_memory = \"1 MiB\"\n");
    let mut new = broker.client();
    let (other, _) = new.context_and_queue(0);
    assert_eq!(buffer(&mut new, other, (424 << 10) + 1), Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
    buffer(&mut new, other, 424 << 10).unwrap();
    // The one that runs keeps what it was told.
    buffer(&mut old, context, 8 << 20).unwrap();
    assert_eq!(buffer(&mut new, other, 1), Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
}

fn new_memory_is_all_zeros() {
    const SIZE: u64 = 300_000;
    let broker = Broker::start_that_clears();
    let mut client = broker.client();
    let (context, first) = client.context_and_queue(0);
    let queues = [first, client.queue(context, 0), client.queue(context, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)];
    let is_clear = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    // The allocator gives what was released before, with everything that is in it.
    for (round, queue) in queues.into_iter().cycle().take(60).enumerate() {
        let (id, read) = (client.buffer(context, SIZE, &[]), client.id());
        client.send(&ReadBuffer { command: command(queue, read), buffer: id, offset: 0, size: SIZE });
        assert!(is_clear(&client.linear(read, SIZE as usize)), "round {round}");
        let filled = client.id();
        client.send(&FillBuffer { command: command(queue, filled), buffer: id, pattern: &[7], offset: 0, size: SIZE });
        client.finish(queue);
        release(&mut client, id);
        let (picture, seen) = (image(&mut client, context, flat(250, 300)), client.id());
        let (origin, region) = ([0; 3], [250, 300, 1]);
        client.send(&ReadImage { command: command(queue, seen), image: picture, origin, region });
        assert_eq!(client.completed(seen).status, CL_COMPLETE, "{:?}", client.arrived.failed);
        let pixels = client.arrived.data.remove(&seen).unwrap();
        assert!(pixels.iter().all(|(_, part)| is_clear(part)), "round {round}");
        let (filled, color) = (client.id(), [9; 16]);
        client.send(&FillImage { command: command(queue, filled), image: picture, color, origin, region });
        client.finish(queue);
        release(&mut client, picture);
    }
    // What comes with content keeps it.
    let (id, read) = (client.buffer(context, 4, b"data"), client.id());
    client.send(&ReadBuffer { command: command(first, read), buffer: id, offset: 0, size: 4 });
    assert_eq!(client.linear(read, 4), b"data");
}

fn parts_of_a_device_have_its_memory() {
    let broker = Broker::start_with_policy("[defaults]\nsession_memory = \"1 MiB\"\n");
    let mut client = broker.client();
    let (platform, device) = {
        let welcome = client.welcome();
        (welcome.platforms[0].index, welcome.platforms[0].devices[0].id)
    };
    let (call, first_id) = (client.id(), client.id() + 1000);
    let properties = [CL_DEVICE_PARTITION_EQUALLY as u64, 1, 0].map(WireId::new);
    client.send(&CreateSubDevices { call, device, first_id, room: 64, properties: Ids(&properties) });
    if client.reply(call).0 != CL_SUCCESS {
        return println!("skipped: the device cannot be divided");
    }
    let context = client.id();
    // A part and the whole are one device.
    let ids = [first_id, device].map(WireId::new);
    client.send(&CreateContext { id: context, platform, devices: Ids(&ids) });
    if client.status_of(Kind::Context, context) != CL_SUCCESS {
        client.send(&CreateContext { id: context, platform, devices: Ids(&ids[..1]) });
        assert_eq!(client.status_of(Kind::Context, context), CL_SUCCESS);
    }
    buffer(&mut client, context, 1 << 20).unwrap();
    expect_used(&mut client, 1 << 20);
    let (whole, _) = client.context_and_queue(0);
    assert_eq!(buffer(&mut client, whole, 1), Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
}
