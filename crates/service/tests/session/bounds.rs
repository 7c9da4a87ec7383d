//! What many messages come to: a driver that stages, opens or names things without end is refused, or told why it has to
//! go, long before the worker has no memory left.

use telecl_sys::*;
use telecl_wire::reply::Format;
use telecl_wire::request::*;
use telecl_wire::{Ids, WireId};

use crate::client::{Broker, Client, Command_, command, flat};

pub(crate) const TESTS: &[crate::Test] = &[
    ("what_is_staged_and_never_used_has_a_limit", what_is_staged_and_never_used_has_a_limit),
    ("what_was_staged_and_used_counts_no_more", what_was_staged_and_used_counts_no_more),
    ("parts_of_an_image_lie_within_it", parts_of_an_image_lie_within_it),
    ("an_argument_that_no_kernel_has_is_forgotten", an_argument_that_no_kernel_has_is_forgotten),
    ("a_queue_may_get_the_id_of_another", a_queue_may_get_the_id_of_another),
    ("markers_behind_much_that_waits_cost_little", markers_behind_much_that_waits_cost_little),
    ("an_event_is_watched_once_for_each_status", an_event_is_watched_once_for_each_status),
];

/// A session may have this of its device, and 256 MiB more on the way there.
const POLICY: &str = "[defaults]\nsession_memory = \"16 MiB\"\n";
const MIB: usize = 1 << 20;

fn what_is_staged_and_never_used_has_a_limit() {
    let broker = Broker::start_with_policy(POLICY);
    for pieces_of_one in [true, false] {
        let mut client = broker.client();
        let piece = vec![7; MIB];
        let mut staged = 0;
        while client.try_send_with(&Stage { id: if pieces_of_one { 1 } else { staged } }, &piece) && staged < 1000 {
            staged += 1;
        }
        assert!((260..1000).contains(&staged), "the worker took {staged} MiB");
        while client.receive() {}
        let reason = client.arrived.closing.clone().unwrap_or_default();
        assert!(reason.contains("no more than 285212672 bytes of data on their way"), "{reason:?}");
    }
}

fn what_was_staged_and_used_counts_no_more() {
    let broker = Broker::start_with_policy(POLICY);
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let piece = vec![7; MIB];
    for _ in 0..50 {
        let (staged, id) = (client.id(), client.id());
        (0..8).for_each(|_| client.send_with(&Stage { id: staged }, &piece));
        let (size, flags) = (8 * MIB as u64, CL_MEM_READ_WRITE);
        client.send(&CreateBuffer { id, context, flags, size, staged, properties: Ids(&[]) });
        assert_eq!(client.status_of(Kind::Memory, id), CL_SUCCESS);
        client.send(&Release { kind: Kind::Memory, id });
    }
    client.finish(queue);
}

fn parts_of_an_image_lie_within_it() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let desc = flat(4, 2);
    let format = Format { order: CL_RGBA, data_type: CL_UNSIGNED_INT8 };
    let image = client.id();
    client.send(&CreateImage { id: image, context, flags: 0, format, desc, staged: 0, properties: Ids(&[]) });
    let buffer = client.buffer(context, 32, &[0; 32]);
    let end = |client: &mut Client, send: &dyn Fn(&mut Client, Command_<'static>)| {
        let event = client.id();
        send(client, command(queue, event));
        client.completed(event).status
    };
    for (origin, region, good) in [
        ([0, 0, 0], [4, 2, 1], true),
        ([1, 0, 0], [4, 2, 1], false),
        ([0, 0, 1], [4, 2, 1], false),
        ([0, 0, 0], [4, 3, 1], false),
        ([3, 1, 0], [1, 1, 1], true),
    ] {
        let copied = end(&mut client, &|client, command| {
            client.send(&CopyImageToBuffer { command, from: image, to: buffer, origin, region, to_offset: 0 });
        });
        let filled = end(&mut client, &|client, command| {
            client.send(&FillImage { command, image, color: [1; 16], origin, region });
        });
        assert_eq!((copied == CL_COMPLETE, filled == CL_COMPLETE), (good, good), "{origin:?} {region:?}");
    }
    let beyond = end(&mut client, &|client, command| {
        let (origin, region) = ([0; 3], [4, 2, 1]);
        client.send(&CopyBufferToImage { command, from: buffer, to: image, from_offset: 1, origin, region });
    });
    assert_eq!(beyond, CL_INVALID_VALUE, "the buffer has a byte less than the image from there");
}

fn an_argument_that_no_kernel_has_is_forgotten() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let (program, _, _) = client.program(context, "kernel void f(global int *a) { *a = 7; }", b"");
    let kernel = client.kernel(program, "f");
    let buffer = client.buffer(context, 4, &[0; 4]);
    for index in (1..1000).chain([u32::MAX]) {
        // Neither is there such a buffer.
        let arg = Arg { index, form: ArgForm::Memory, size: 8, object: 1, value: &[] };
        client.send(&SetArgs { kernel, args: vec![arg] });
    }
    let event = client.id();
    client.run(command(queue, event), kernel, vec![crate::client::memory_arg(0, buffer)], 1);
    assert_eq!(client.completed(event).status, CL_COMPLETE, "what was refused was no argument of the kernel");
}

fn a_queue_may_get_the_id_of_another() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let device = client.welcome().platforms[0].devices[0].id;
    let buffer = client.buffer(context, 4096, &[3; 4096]);
    for _ in 0..200 {
        let event = client.id();
        client.send(&ReadBuffer { command: command(queue, event), buffer, offset: 0, size: 4096 });
        client.send(&CreateQueue { id: queue, context, device, properties: Ids(&[]) });
        assert_eq!(client.linear(event, 4096), [3; 4096]);
    }
    client.finish(queue);
}

fn markers_behind_much_that_waits_cost_little() {
    const MANY: usize = 400;
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let gate = client.id();
    client.send(&CreateUserEvent { id: gate, context });
    let waits = [WireId::new(gate)];
    let mut last = 0;
    for _ in 0..MANY {
        let (behind, event) = (client.id(), client.id());
        client.send(&Marker { command: Command_ { queue, event: behind, seen: false, waits: Ids(&waits) } });
        client.send(&Marker { command: command(queue, event) });
        last = event;
    }
    client.send(&SetUserEventStatus { event: gate, status: CL_COMPLETE });
    assert_eq!(client.completed(last).status, CL_COMPLETE);
    client.finish(queue);
}

fn an_event_is_watched_once_for_each_status() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let gate = client.id();
    client.send(&CreateUserEvent { id: gate, context });
    let waits = [WireId::new(gate)];
    let event = client.id();
    client.send(&Marker { command: Command_ { queue, event, seen: true, waits: Ids(&waits) } });
    for _ in 0..100 {
        client.send(&WatchEvent { event, status: CL_RUNNING });
    }
    client.send(&SetUserEventStatus { event: gate, status: CL_COMPLETE });
    client.finish(queue);
    assert!(client.arrived.reached.len() <= 1, "{:?}", client.arrived.reached);
}
