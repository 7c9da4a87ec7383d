//! Commands: transfers in parts, order, events.

use telecl_sys::*;
use telecl_wire::request::*;
use telecl_wire::{Ids, WireId};

use crate::client::{Broker, Command_, command, memory_arg};

pub(crate) const TESTS: &[crate::Test] = &[
    ("five_megabytes_there_and_back", five_megabytes_there_and_back),
    ("parts_out_of_order_are_one_command", parts_out_of_order_are_one_command),
    ("a_part_that_fails_fails_the_whole_once", a_part_that_fails_fails_the_whole_once),
    ("rectangles_are_cut_from_buffers", rectangles_are_cut_from_buffers),
    ("user_events_hold_commands_back", user_events_hold_commands_back),
    ("a_failed_user_event_fails_what_waits", a_failed_user_event_fails_what_waits),
    ("barriers_and_waits_order_an_out_of_order_queue", barriers_and_waits_order_an_out_of_order_queue),
    ("copies_fills_and_migrations", copies_fills_and_migrations),
    ("ten_thousand_small_commands", ten_thousand_small_commands),
    ("finish_waits_for_everything_and_blocks_nobody", finish_waits_for_everything_and_blocks_nobody),
    ("watched_events_report_that_they_run", watched_events_report_that_they_run),
];

const LARGE: usize = 5 << 20;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 249) as u8).collect()
}

fn write_in_parts(client: &mut crate::client::Client, queue: u64, event: u64, buffer: u64, data: &[u8]) {
    let count = data.len().div_ceil(1 << 20);
    for (index, part) in data.chunks(1 << 20).enumerate() {
        let (offset, last) = ((index << 20) as u64, index + 1 == count);
        client.send_with(&WriteBuffer { command: command(queue, event), buffer, offset, last }, part);
    }
}

fn five_megabytes_there_and_back() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(CL_QUEUE_PROFILING_ENABLE);
    let data = pattern(LARGE + 3);
    let buffer = client.buffer(context, data.len() as u64, &[]);
    let (write, read) = (client.id(), client.id());
    write_in_parts(&mut client, queue, write, buffer, &data);
    let size = data.len() as u64;
    client.send(&ReadBuffer { command: command(queue, read), buffer, offset: 0, size });
    let seen = client.linear(read, data.len());
    assert!(seen == data);
    assert_eq!(client.arrived.order, [write, read]);
    for event in [write, read] {
        let profile = client.completed(event).profile;
        assert!(profile[0] > 0 && profile.is_sorted(), "{profile:?}");
    }
    // A write that nobody asks about, and one of nothing.
    let (nothing, read) = (client.id(), client.id());
    write_in_parts(&mut client, queue, 0, buffer, &data[1..]);
    client.send(&WriteBuffer { command: command(queue, nothing), buffer, offset: 0, last: true });
    client.send(&ReadBuffer { command: command(queue, read), buffer, offset: 0, size: size - 1 });
    assert!(client.linear(read, data.len() - 1) == data[1..]);
    assert_eq!(client.completed(nothing).status, CL_COMPLETE);
}

fn parts_out_of_order_are_one_command() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let data = pattern(LARGE);
    let buffer = client.buffer(context, data.len() as u64, &[]);
    for _ in 0..3 {
        let (write, read, after) = (client.id(), client.id(), client.id());
        write_in_parts(&mut client, queue, write, buffer, &data);
        let waits = [WireId::new(write)];
        let waiting = Command_ { queue, event: read, seen: true, waits: Ids(&waits) };
        client.send(&ReadBuffer { command: waiting, buffer, offset: 0, size: LARGE as u64 });
        let waits = [WireId::new(read)];
        client.send(&Marker { command: Command_ { queue, event: after, seen: true, waits: Ids(&waits) } });
        assert_eq!(client.completed(after).status, CL_COMPLETE);
        assert!(client.arrived.completed.contains_key(&read), "reported before what waits for it");
        assert!(client.linear(read, LARGE) == data);
        assert!(client.arrived.order.ends_with(&[write, read, after]));
    }
}

fn a_part_that_fails_fails_the_whole_once() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let buffer = client.buffer(context, 100, &[]);
    let (write, after) = (client.id(), client.id());
    let part = |offset, last| WriteBuffer { command: command(queue, write), buffer, offset, last };
    client.send_with(&part(0, false), &[1; 50]);
    client.send_with(&part(80, false), &[1; 50]);
    client.send_with(&part(50, true), &[1; 50]);
    let waits = [WireId::new(write)];
    client.send(&Marker { command: Command_ { queue, event: after, seen: true, waits: Ids(&waits) } });
    assert_eq!(client.completed(write).status, CL_INVALID_VALUE);
    assert_eq!(client.completed(after).status, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    // Wrong from the start: still one completion.
    let write = client.id();
    let part = |last| WriteBuffer { command: command(5, write), buffer, offset: 0, last };
    client.send_with(&part(false), &[1; 50]);
    client.send_with(&part(true), &[1; 50]);
    assert_eq!(client.completed(write).status, CL_INVALID_COMMAND_QUEUE);
    client.finish(queue);
}

fn rectangles_are_cut_from_buffers() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    // 3 slices of 1024 rows of 1024 bytes.
    let data = pattern(3 << 20);
    let buffer = client.buffer(context, data.len() as u64, &data);
    let read = client.id();
    let (origin, region) = ([1, 2, 0], [1000, 1000, 3]);
    let (row_pitch, slice_pitch) = (1024, 1 << 20);
    client.send(&ReadRect { command: command(queue, read), buffer, origin, region, row_pitch, slice_pitch });
    assert_eq!(client.completed(read).status, CL_COMPLETE);
    for (part, bytes) in client.arrived.data.remove(&read).unwrap() {
        let [x, y, z] = part.origin;
        for (row, bytes) in bytes.chunks_exact(part.size[0] as usize).enumerate() {
            let (row, slice) = (row as u64 % part.size[1], row as u64 / part.size[1]);
            let start = ((z + slice) << 20) + ((y + row + 2) << 10) + x + 1;
            assert!(bytes == &data[start as usize..][..bytes.len()]);
        }
    }
    let (write, read) = (client.id(), client.id());
    let rect = WriteRect {
        command: command(queue, write),
        buffer,
        origin: [0, 0, 2],
        region: [2, 2, 1],
        row_pitch,
        slice_pitch,
        last: true,
    };
    client.send_with(&rect, b"abcd");
    client.send(&ReadBuffer { command: command(queue, read), buffer, offset: (2 << 20) + 1024, size: 2 });
    assert_eq!(client.linear(read, 2), b"cd");
    let outside = client.id();
    let (origin, region) = ([0, 1023, 2], [1024, 2, 1]);
    client.send(&ReadRect { command: command(queue, outside), buffer, origin, region, row_pitch, slice_pitch });
    assert_eq!(client.completed(outside).status, CL_INVALID_VALUE);
}

fn user_events_hold_commands_back() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let buffer = client.buffer(context, 4, b"old!");
    let (gate, write, read) = (client.id(), client.id(), client.id());
    client.send(&CreateUserEvent { id: gate, context });
    let waits = [WireId::new(gate)];
    let waiting = Command_ { queue, event: write, seen: true, waits: Ids(&waits) };
    client.send_with(&WriteBuffer { command: waiting, buffer, offset: 0, last: true }, b"new!");
    client.send(&ReadBuffer { command: command(queue, read), buffer, offset: 0, size: 4 });
    // Other requests go on meanwhile.
    assert_eq!(client.status_of(Kind::Event, gate), CL_SUCCESS);
    assert!(client.arrived.completed.is_empty());
    client.send(&SetUserEventStatus { event: gate, status: CL_COMPLETE });
    assert_eq!(client.linear(read, 4), b"new!");
    assert_eq!(client.arrived.order, [write, read]);
    for id in [gate, write, read] {
        client.send(&Release { kind: Kind::Event, id });
    }
    assert_eq!(client.status_of(Kind::Event, write), CL_INVALID_EVENT);
}

fn a_failed_user_event_fails_what_waits() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let buffer = client.buffer(context, 4, b"old!");
    let (gate, read) = (client.id(), client.id());
    client.send(&CreateUserEvent { id: gate, context });
    let waits = [WireId::new(gate)];
    let waiting = Command_ { queue, event: read, seen: true, waits: Ids(&waits) };
    client.send(&ReadBuffer { command: waiting, buffer, offset: 0, size: 4 });
    client.send(&SetUserEventStatus { event: gate, status: -77 });
    assert!(client.completed(read).status < 0);
    assert!(client.arrived.data.is_empty(), "a failed read has no data");
    client.finish(queue);
}

fn barriers_and_waits_order_an_out_of_order_queue() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let source = "__kernel void slow(__global int *o) { int x = o[0]; for (int i = 0; i < 2000000; i++) x = x * 3 + 1; \
                  o[0] = x | 1; } __kernel void copy(__global int *a, __global int *b) { b[0] = a[0]; }";
    let (program, status, _) = client.program(context, source, b"");
    assert_eq!(status, CL_SUCCESS);
    let (slow, copy) = (client.kernel(program, "slow"), client.kernel(program, "copy"));
    let (a, b) = (client.buffer(context, 4, &[0; 4]), client.buffer(context, 4, &[0; 4]));
    let (first, barrier, second, read) = (client.id(), client.id(), client.id(), client.id());
    client.run(command(queue, first), slow, vec![memory_arg(0, a)], 1);
    client.send(&Barrier { command: command(queue, barrier) });
    client.run(command(queue, second), copy, vec![memory_arg(0, a), memory_arg(1, b)], 1);
    let waits = [WireId::new(second)];
    let waiting = Command_ { queue, event: read, seen: true, waits: Ids(&waits) };
    client.send(&ReadBuffer { command: waiting, buffer: b, offset: 0, size: 4 });
    assert_ne!(client.linear(read, 4), [0; 4]);
    assert_eq!(client.arrived.order, [first, barrier, second, read]);
}

fn copies_fills_and_migrations() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let (a, b) = (client.buffer(context, 16, &[0; 16]), client.buffer(context, 16, &[9; 16]));
    let part = client.id();
    let fill = FillBuffer { command: command(queue, 0), buffer: a, pattern: &[1, 2], offset: 4, size: 8 };
    client.send(&fill);
    let copy = CopyBuffer { command: command(queue, 0), from: a, to: b, from_offset: 4, to_offset: 0, size: 4 };
    client.send(&copy);
    let objects = [WireId::new(a), WireId::new(b)];
    client.send(&Migrate { command: command(queue, 0), objects: Ids(&objects), flags: 0 });
    client.send(&CopyRect {
        command: command(queue, 0),
        from: a,
        to: b,
        from_origin: [0, 1, 0],
        to_origin: [2, 2, 0],
        region: [2, 2, 1],
        from_row_pitch: 4,
        from_slice_pitch: 0,
        to_row_pitch: 4,
        to_slice_pitch: 0,
    });
    let read = client.id();
    client.send(&ReadBuffer { command: command(queue, read), buffer: b, offset: 0, size: 16 });
    assert_eq!(client.linear(read, 16), [1, 2, 1, 2, 9, 9, 9, 9, 9, 9, 1, 2, 9, 9, 1, 2]);
    assert_eq!(client.arrived.failed, []);
    // A sub-buffer that is not aligned, or not within its parent, is refused.
    client.send(&CreateSubBuffer { id: part, parent: a, flags: 0, origin: 8, size: 16 });
    assert_eq!(client.status_of(Kind::Memory, part), CL_INVALID_VALUE);
    let outside = CopyBuffer { command: command(queue, 0), from: a, to: b, from_offset: 8, to_offset: 0, size: 9 };
    client.send(&outside);
    client.finish(queue);
    let last = client.arrived.failed.last().unwrap();
    assert_eq!((last.0, last.1), (CopyBuffer::OPCODE, CL_INVALID_VALUE));
}

fn ten_thousand_small_commands() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let (program, _, _) = client.program(context, "__kernel void inc(__global int *o) { o[0]++; }", b"");
    let kernel = client.kernel(program, "inc");
    let buffer = client.buffer(context, 4, &[0; 4]);
    let mut events = Vec::new();
    for index in 0..10_000 {
        let event = if index % 10 == 0 { client.id() } else { 0 };
        let args = if index == 0 { vec![memory_arg(0, buffer)] } else { vec![] };
        let request = RunKernel {
            command: command(queue, event),
            kernel,
            args,
            dimensions: 1,
            offset: None,
            global: [1, 0, 0],
            local: None,
        };
        client.sender.push(&request, &[]).unwrap();
        if event != 0 {
            events.push(event);
            client.sender.push(&Release { kind: Kind::Event, id: event }, &[]).unwrap();
        }
    }
    let read = client.id();
    client.send(&ReadBuffer { command: command(queue, read), buffer, offset: 0, size: 4 });
    assert_eq!(client.linear(read, 4), 10_000i32.to_le_bytes());
    events.push(read);
    assert_eq!(client.arrived.order, events);
}

fn finish_waits_for_everything_and_blocks_nobody() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let (gate, finish) = (client.id(), client.id());
    client.send(&CreateUserEvent { id: gate, context });
    let waits = [WireId::new(gate)];
    client.send(&Marker { command: Command_ { queue, event: 0, seen: true, waits: Ids(&waits) } });
    client.send(&Finish { call: finish, queue });
    assert_eq!(client.status_of(Kind::Context, context), CL_SUCCESS);
    assert!(!client.arrived.replies.contains_key(&finish));
    client.send(&SetUserEventStatus { event: gate, status: CL_COMPLETE });
    assert_eq!(client.reply(finish).0, CL_SUCCESS);
    let call = client.id();
    client.send(&Finish { call, queue: 5 });
    assert_eq!(client.reply(call).0, CL_INVALID_COMMAND_QUEUE);
}

fn watched_events_report_that_they_run() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let (gate, marker) = (client.id(), client.id());
    client.send(&CreateUserEvent { id: gate, context });
    let waits = [WireId::new(gate)];
    client.send(&Marker { command: Command_ { queue, event: marker, seen: true, waits: Ids(&waits) } });
    client.send(&WatchEvent { event: marker, status: CL_RUNNING });
    client.send(&WatchEvent { event: marker, status: 17 });
    client.send(&SetUserEventStatus { event: gate, status: CL_COMPLETE });
    assert_eq!(client.completed(marker).status, CL_COMPLETE);
    client.finish(queue);
    // Nobody waits for it, so it may come last.
    while client.arrived.reached.is_empty() {
        assert!(client.receive());
    }
    assert_eq!(client.arrived.reached, [(marker, CL_RUNNING)]);
}
