//! Objects, queries and what becomes of requests that fail.

use telecl_sys::*;
use telecl_wire::reply::*;
use telecl_wire::request::{self, *};
use telecl_wire::{Ids, WireId};

use crate::client::{Broker, Client, command, flat};

pub(crate) const TESTS: &[crate::Test] = &[
    ("a_failed_create_is_told_and_remembered", a_failed_create_is_told_and_remembered),
    ("queries_answer_and_never_leak_handles", queries_answer_and_never_leak_handles),
    ("sub_devices_are_described_and_usable", sub_devices_are_described_and_usable),
    ("images_travel_packed", images_travel_packed),
    ("unknown_ids_have_their_proper_status", unknown_ids_have_their_proper_status),
    ("staged_content_fills_a_buffer", staged_content_fills_a_buffer),
];

fn a_failed_create_is_told_and_remembered() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let buffer = client.buffer(context, 0, &[]);
    assert_eq!(client.status_of(Kind::Memory, buffer), CL_INVALID_BUFFER_SIZE);
    assert_eq!(client.arrived.failed, [(CreateBuffer::OPCODE, CL_INVALID_BUFFER_SIZE, buffer)]);
    let short = client.buffer(context, 16, b"too short");
    assert_eq!(client.status_of(Kind::Memory, short), CL_INVALID_HOST_PTR);
    // Its use fails with the same status, and what depends on that use fails because of it.
    let (first, second) = (client.id(), client.id());
    let fill = |event, buffer, waits| FillBuffer {
        command: telecl_wire::request::Command { queue, event, seen: true, waits },
        buffer,
        pattern: b"x",
        offset: 0,
        size: 1,
    };
    let good = client.buffer(context, 16, &[]);
    client.send(&fill(first, buffer, Ids(&[])));
    client.send(&fill(second, good, Ids(&[WireId::new(first)])));
    assert_eq!(client.completed(first).status, CL_INVALID_BUFFER_SIZE);
    assert_eq!(client.completed(second).status, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    client.finish(queue);
}

fn query(client: &mut Client, target: Target, object: u64, param: u32) -> (i32, Vec<u8>) {
    let call = client.id();
    client.send(&Query { call, target, object, device: 0, index: 0, param, input: &[] });
    client.reply(call)
}

fn queries_answer_and_never_leak_handles() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(CL_QUEUE_PROFILING_ENABLE);
    let buffer = client.buffer(context, 64, &[]);
    assert_eq!(query(&mut client, Target::Memory, buffer, CL_MEM_SIZE), (0, 64u64.to_le_bytes().to_vec()));
    assert_eq!(query(&mut client, Target::Queue, queue, CL_QUEUE_PROPERTIES), (0, 2u64.to_le_bytes().to_vec()));
    assert_eq!(query(&mut client, Target::Context, context, CL_CONTEXT_NUM_DEVICES), (0, 1u32.to_le_bytes().to_vec()));
    for (target, object, param) in [
        (Target::Queue, queue, CL_QUEUE_CONTEXT),
        (Target::Queue, queue, CL_QUEUE_DEVICE),
        (Target::Context, context, CL_CONTEXT_DEVICES),
        (Target::Memory, buffer, CL_MEM_CONTEXT),
        (Target::Device, 1, CL_DEVICE_PLATFORM),
        (Target::Device, 1, 0xFFFF),
    ] {
        assert_eq!(query(&mut client, target, object, param), (CL_INVALID_VALUE, vec![]), "{target:?} {param:#x}");
    }
    let call = client.id();
    client.send(&request::ImageFormats { call, context, flags: CL_MEM_READ_ONLY, kind: CL_MEM_OBJECT_IMAGE2D });
    let (status, answer) = client.reply(call);
    assert_eq!(status, CL_SUCCESS);
    let formats: telecl_wire::reply::ImageFormats = telecl_wire::decode(&answer).unwrap();
    assert!(formats.formats.contains(&Format { order: CL_RGBA, data_type: CL_UNORM_INT8 }));
    let call = client.id();
    client.send(&DeviceTimers { call, device: 1 });
    let (status, answer) = client.reply(call);
    if status == CL_SUCCESS {
        assert!(telecl_wire::decode::<Timers>(&answer).unwrap().host_ns > 0);
    }
}

fn sub_devices_are_described_and_usable() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (call, first_id) = (client.id(), 1 << 20);
    let properties = [CL_DEVICE_PARTITION_BY_COUNTS, 1, CL_DEVICE_PARTITION_BY_COUNTS_LIST_END];
    let properties: Vec<WireId> = properties.iter().map(|value| WireId::new(*value as u64)).collect();
    client.send(&CreateSubDevices { call, device: 1, properties: Ids(&properties), first_id, room: 8 });
    let (status, answer) = client.reply(call);
    let (_, most) = query(&mut client, Target::Device, 1, CL_DEVICE_PARTITION_MAX_SUB_DEVICES);
    if u32::from_le_bytes(most.try_into().unwrap()) < 2 {
        return assert!(status < 0, "a device that cannot be parted");
    }
    assert_eq!(status, CL_SUCCESS);
    let made: SubDevices<'_> = telecl_wire::decode(&answer).unwrap();
    assert_eq!(made.devices.len(), 1);
    assert_eq!(made.devices[0].id, first_id);
    let units = made.devices[0].info.iter().find(|info| info.param == CL_DEVICE_MAX_COMPUTE_UNITS).unwrap();
    assert_eq!(units.value, 1u32.to_le_bytes());
    let context = client.id();
    let device = [WireId::new(first_id)];
    client.send(&CreateContext { id: context, platform: 0, devices: Ids(&device) });
    assert_eq!(client.status_of(Kind::Context, context), CL_SUCCESS);
    client.send(&Release { kind: Kind::Device, id: first_id });
    client.send(&Release { kind: Kind::Device, id: 1 });
    assert_eq!(client.status_of(Kind::Device, first_id), CL_INVALID_DEVICE);
    assert_eq!(client.status_of(Kind::Device, 1), CL_SUCCESS, "root devices stay");
}

fn images_travel_packed() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    // 1500 rows of 2000 bytes: more than two frames.
    let (width, height) = (500u64, 1500u64);
    let pixels: Vec<u8> = (0..width * height * 4).map(|i| (i % 251) as u8).collect();
    let (staged, image) = (client.id(), client.id());
    for part in pixels.chunks(1 << 20) {
        client.send_with(&Stage { id: staged }, part);
    }
    let desc = flat(width, height);
    let format = Format { order: CL_RGBA, data_type: CL_UNSIGNED_INT8 };
    let create =
        CreateImage { id: image, context, flags: CL_MEM_READ_WRITE, format, desc, staged, properties: Ids(&[]) };
    client.send(&create);
    assert_eq!(client.status_of(Kind::Memory, image), CL_SUCCESS);
    // A written rectangle, then everything back.
    let (written, read) = (client.id(), client.id());
    let (origin, region) = ([10, 20, 0], [2, 3, 1]);
    client.send_with(&WriteImage { command: command(queue, written), image, origin, region, last: true }, &[255; 24]);
    let (all, zero) = ([width, height, 1], [0; 3]);
    client.send(&ReadImage { command: command(queue, read), image, origin: zero, region: all });
    assert_eq!(client.completed(written).status, CL_COMPLETE);
    assert_eq!(client.completed(read).status, CL_COMPLETE);
    let mut expected = pixels;
    for y in 20..23 {
        let start = (y * 500 + 10) * 4;
        expected[start..start + 8].fill(255);
    }
    let parts = client.arrived.data.remove(&read).unwrap();
    assert!(parts.len() > 2);
    let mut seen = vec![0; expected.len()];
    for (part, bytes) in parts {
        assert_eq!((part.origin[0], part.size[0]), (0, width));
        let start = (part.origin[1] * width * 4) as usize;
        seen[start..start + bytes.len()].copy_from_slice(&bytes);
    }
    assert!(seen == expected);
    // Too little data for the region is refused before the vendor sees it.
    let event = client.id();
    client.send_with(&WriteImage { command: command(queue, event), image, origin, region, last: true }, &[0; 23]);
    assert_eq!(client.completed(event).status, CL_INVALID_VALUE);
    let event = client.id();
    client.send(&ReadImage { command: command(queue, event), image, origin: [u64::MAX, 0, 0], region });
    assert_eq!(client.completed(event).status, CL_INVALID_VALUE);
}

fn unknown_ids_have_their_proper_status() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    for (kind, status) in [
        (Kind::Context, CL_INVALID_CONTEXT),
        (Kind::Queue, CL_INVALID_COMMAND_QUEUE),
        (Kind::Memory, CL_INVALID_MEM_OBJECT),
        (Kind::Sampler, CL_INVALID_SAMPLER),
        (Kind::Program, CL_INVALID_PROGRAM),
        (Kind::Kernel, CL_INVALID_KERNEL),
        (Kind::Event, CL_INVALID_EVENT),
        (Kind::Device, CL_INVALID_DEVICE),
    ] {
        assert_eq!(client.status_of(kind, 77_777_777), status, "{kind:?}");
        client.send(&Release { kind, id: 77_777_777 });
    }
    let buffer = client.buffer(context, 16, &[]);
    let read = |queue, event, buffer, waits| ReadBuffer {
        command: telecl_wire::request::Command { queue, event, seen: true, waits },
        buffer,
        offset: 0,
        size: 16,
    };
    let events = [client.id(), client.id(), client.id()];
    client.send(&read(5, events[0], buffer, Ids(&[])));
    client.send(&read(queue, events[1], 5, Ids(&[])));
    client.send(&read(queue, events[2], buffer, Ids(&[WireId::new(5)])));
    let statuses: Vec<i32> = events.iter().map(|event| client.completed(*event).status).collect();
    assert_eq!(statuses, [CL_INVALID_COMMAND_QUEUE, CL_INVALID_MEM_OBJECT, CL_INVALID_EVENT_WAIT_LIST]);
    client.finish(queue);
}

fn staged_content_fills_a_buffer() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let content: Vec<u8> = (0..3 << 20).map(|i: u32| (i % 253) as u8).collect();
    let (staged, buffer, event) = (client.id(), client.id(), client.id());
    for part in content.chunks(1 << 20) {
        client.send_with(&Stage { id: staged }, part);
    }
    let size = content.len() as u64;
    let flags = CL_MEM_READ_ONLY;
    client.send(&CreateBuffer { id: buffer, context, flags, size, staged, properties: Ids(&[]) });
    client.send(&ReadBuffer { command: command(queue, event), buffer, offset: 0, size });
    assert!(client.linear(event, content.len()) == content);
}
