//! Nonsense, well-formed: whatever ids and numbers a driver sends, the worker answers or refuses, and goes on.

use telecl_sys::*;
use telecl_wire::reply::Format;
use telecl_wire::request::*;
use telecl_wire::{Ids, WireId};

use crate::client::{Broker, Client, Command_, flat};

pub(crate) const TESTS: &[crate::Test] =
    &[("random_requests_never_break_the_worker", random_requests_never_break_the_worker)];

/// Numbers from a seed; the same ones every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll() as usize % from.len()]
    }

    /// Sizes and offsets: small, at the edges, and absurd.
    fn number(&mut self) -> u64 {
        self.pick(&[0, 1, 2, 4, 16, 63, 64, 65, 4096, 1 << 20, 1 << 32, u64::MAX / 2, u64::MAX - 1, u64::MAX])
    }

    fn triple(&mut self) -> [u64; 3] {
        [self.number(), self.number(), self.number()]
    }

    /// Mostly harmless, so that some requests get through.
    fn small(&mut self) -> [u64; 3] {
        [self.pick(&[1, 2, 4]), self.pick(&[1, 2]), 1]
    }
}

fn random_requests_never_break_the_worker() {
    let broker = Broker::start();
    for seed in 0..4 {
        let mut client = broker.client();
        play(&mut client, &mut Dice(seed), 1500);
        assert_eq!(client.arrived.closing, None);
    }
}

fn play(client: &mut Client, dice: &mut Dice, requests: usize) {
    let (context, queue) = client.context_and_queue(CL_QUEUE_PROFILING_ENABLE);
    let (_, unordered) = client.context_and_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let source = "__kernel void f(__global int *a, int b, __local int *c) { a[0] = b; }";
    let (program, _, _) = client.program(context, source, b"");
    let kernel = client.kernel(program, "f");
    let buffers = [client.buffer(context, 64, &[1; 64]), client.buffer(context, 4096, &[])];
    let mut ids = vec![0, 1, u64::MAX, context, queue, unordered, program, kernel, buffers[0], buffers[1]];
    let mut events = vec![0, 7];
    let mut calls = Vec::new();
    for _ in 0..requests {
        let (id, call, event) = (client.id(), client.id(), client.id());
        let waits = [WireId::new(dice.pick(&events))];
        let waits = Ids(if dice.roll().is_multiple_of(3) { &waits } else { &[] });
        let any = dice.pick(&ids);
        let queue = dice.pick(&[queue, unordered, queue, unordered, any]);
        let event = dice.pick(&[0, event, event, event]);
        let command = || Command_ { queue, event, seen: true, waits };
        let (a, any) = (dice.pick(&ids), dice.pick(&ids));
        let b = dice.pick(&[buffers[0], buffers[1], any]);
        match dice.roll() % 22 {
            0 => client.buffer(a, dice.pick(&[1, 64, 4096]), &[]),
            1 => {
                client.send(&CreateSubBuffer { id, parent: b, flags: 0, origin: dice.number(), size: dice.number() });
                id
            }
            2 => {
                let kind = dice.pick(&[CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE3D, 0, u32::MAX]);
                let (width, height) = (dice.pick(&[0, 4, 64]), dice.pick(&[0, 4, 64]));
                let desc = ImageDesc { kind, depth: dice.pick(&[0, 2]), ..flat(width, height) };
                let format = Format { order: CL_RGBA, data_type: CL_UNSIGNED_INT8 };
                client.send(&CreateImage { id, context, flags: 0, format, desc, staged: 0, properties: Ids(&[]) });
                id
            }
            3 => {
                client.send(&ReadBuffer { command: command(), buffer: b, offset: dice.number(), size: dice.number() });
                0
            }
            4 => {
                let (origin, region) = (dice.triple(), dice.triple());
                let (row_pitch, slice_pitch) = (dice.number(), dice.number());
                let rect = ReadRect { command: command(), buffer: b, origin, region, row_pitch, slice_pitch };
                client.send(&rect);
                0
            }
            5 => {
                let (origin, region) = (dice.triple(), dice.triple());
                client.send(&ReadImage { command: command(), image: a, origin, region });
                0
            }
            6 => {
                let offset = dice.number();
                let write = WriteBuffer { command: command(), buffer: b, offset, last: !dice.roll().is_multiple_of(4) };
                client.send_with(&write, &[3; 40]);
                0
            }
            7 => {
                let (origin, region) = (dice.small(), dice.small());
                let write = WriteImage { command: command(), image: a, origin, region, last: true };
                client.send_with(&write, &[3; 16]);
                0
            }
            8 => {
                let (from_offset, to_offset, size) = (dice.number(), dice.number(), dice.number());
                client.send(&CopyBuffer { command: command(), from: a, to: b, from_offset, to_offset, size });
                0
            }
            9 => {
                let pattern = dice.pick(&[&b"x"[..], b"xyz", b"", &[0; 200]]);
                let (offset, size) = (dice.number(), dice.number());
                client.send(&FillBuffer { command: command(), buffer: b, pattern, offset, size });
                0
            }
            10 => {
                let number = 5i32.to_le_bytes();
                let form = dice.pick(ArgForm::ALL);
                let value = dice.pick(&[&number[..], &[], &[0; 8], &[1; 100]]);
                let size = dice.pick(&[value.len() as u64, 8, 64, u64::MAX]);
                let index = dice.pick(&[0, 1, 2, 3, u32::MAX]);
                // A size of local memory that no device has is found out when the kernel runs.
                client.send(&SetArgs {
                    kernel: dice.pick(&[kernel, a]),
                    args: vec![Arg { index, form, size, object: b, value }],
                });
                0
            }
            11 => {
                let args = vec![
                    Arg { index: 0, form: ArgForm::Memory, size: 8, object: b, value: &[] },
                    Arg { index: 1, form: ArgForm::Bytes, size: 4, object: 0, value: &[0; 4] },
                    Arg { index: 2, form: ArgForm::Local, size: 64, object: 0, value: &[] },
                ];
                let run = RunKernel {
                    command: command(),
                    kernel: dice.pick(&[kernel, a]),
                    args,
                    dimensions: dice.pick(&[0, 1, 2, 3, 4, u32::MAX]),
                    offset: None,
                    global: dice.small(),
                    local: dice.pick(&[None, Some([1, 1, 1])]),
                };
                client.send(&run);
                0
            }
            12 => {
                client.send(&Marker { command: command() });
                0
            }
            13 => {
                client.send(&Barrier { command: command() });
                0
            }
            14 => {
                client.send(&CreateUserEvent { id, context: a });
                // Set at once, so that nothing waits for ever.
                client.send(&SetUserEventStatus { event: id, status: dice.pick(&[0, 0, -1, 3, i32::MIN]) });
                events.push(id);
                0
            }
            15 => {
                let target = dice.pick(Target::ALL);
                let param = dice.pick(&[0x1030, 0x1100, 0x1101, 0x1160, 0x11B0, 0x1190, 0x11D2, 0, u32::MAX]);
                client.send(&Query {
                    call,
                    target,
                    object: a,
                    device: dice.pick(&[0, 1]),
                    index: 0,
                    param,
                    input: &[],
                });
                calls.push(call);
                0
            }
            16 => {
                client.send(&Release {
                    kind: dice.pick(&[Kind::Event, Kind::Sampler, Kind::Tree]),
                    id: dice.pick(&events),
                });
                0
            }
            17 => {
                client.send(&CreateKernel { id, program: a, name: dice.pick(&[&b"f"[..], b"", b"\0"]) });
                id
            }
            18 => {
                let objects = [WireId::new(a), WireId::new(b)];
                client.send(&Migrate {
                    command: command(),
                    objects: Ids(&objects),
                    flags: dice.pick(&[0, 2, u64::MAX]),
                });
                0
            }
            19 => {
                client.send(&Check { call, kind: dice.pick(Kind::ALL), id: a });
                calls.push(call);
                0
            }
            20 => {
                client.send(&Finish { call, queue });
                calls.push(call);
                0
            }
            _ => {
                client.send(&WatchEvent { event: dice.pick(&events), status: dice.pick(&[1, 2, 0, 99]) });
                0
            }
        };
        ids.push(id);
        events.push(event);
    }
    for call in calls {
        client.reply(call);
    }
    client.finish(queue);
    client.finish(unordered);
}
