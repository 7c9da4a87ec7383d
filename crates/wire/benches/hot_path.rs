//! Instructions to write and to read the messages that a program in full flow sends and receives.
//!
//! Instructions are the same on a busy machine as on a quiet one, so these can guard every change: `make guard`.

mod limits;

use std::hint::black_box;

use gungraun::prelude::*;
use telecl_wire::region::Region;
use telecl_wire::reply::{Completed, Data, FromWorker, Reply};
use telecl_wire::request::{Arg, ArgForm, Command, Finish, Kind, Message, ReadBuffer, Release, RunKernel, WriteBuffer};
use telecl_wire::{DecodeError, Ids, Request, WireId, encode as body};

const QUEUE: u64 = 0x1_0001;
const EVENT: u64 = 0x1_0002;
const BUFFER: u64 = 0x1_0003;
const KERNEL: u64 = 0x1_0004;
static ONE_EVENT: [WireId; 1] = [WireId::new(EVENT - 1)];

fn command(waits: &'static [WireId]) -> Command<'static> {
    Command { queue: QUEUE, event: EVENT, seen: false, waits: Ids(waits) }
}

/// A memory object and numbers, as many arguments as `count` in all.
fn run_kernel(count: u32, waits: &'static [WireId]) -> RunKernel<'static> {
    let object = Arg { index: 0, form: ArgForm::Memory, size: 8, object: BUFFER, value: &[] };
    let number = |index| Arg { index, form: ArgForm::Bytes, size: 4, object: 0, value: &[1, 2, 3, 4] };
    let args = (0..count).map(|index| if index == 0 { object.clone() } else { number(index) }).collect();
    let (global, local) = ([1024, 1, 1], Some([64, 1, 1]));
    RunKernel { command: command(waits), kernel: KERNEL, args, dimensions: 1, offset: None, global, local }
}

fn write_buffer() -> WriteBuffer<'static> {
    WriteBuffer { command: command(&[]), buffer: BUFFER, offset: 4096, last: true }
}

fn read_buffer() -> ReadBuffer<'static> {
    ReadBuffer { command: command(&[]), buffer: BUFFER, offset: 4096, size: 65536 }
}

fn release() -> Release {
    Release { kind: Kind::Event, id: EVENT }
}

fn finish() -> Finish {
    Finish { call: 7, queue: QUEUE }
}

fn completed() -> Completed {
    Completed { event: EVENT, status: 0, profile: [1, 2, 3, 4, 5] }
}

fn reply() -> Reply {
    Reply { call: 7, status: 0 }
}

fn data() -> Data {
    Data { event: EVENT, region: Region::linear(0, 65536) }
}

/// A message, and where it goes: as a sender's buffer does, that has room.
fn to_send<M>(message: M) -> (&'static M, &'static mut Vec<u8>) {
    (Box::leak(Box::new(message)), Box::leak(Box::new(Vec::with_capacity(4096))))
}

/// A message as it arrives. It has been decoded before, so that the allocator knows the sizes it will be asked for:
/// how it gets memory for the first time is not ours to guard.
fn arrived<M: Message<'static>>(message: M) -> (u16, &'static [u8]) {
    let body: &'static [u8] = body(&message).leak();
    drop(black_box(Request::decode(M::OPCODE, body)));
    (M::OPCODE, body)
}

fn decoded<M>(message: Result<M, DecodeError>) {
    assert!(message.is_ok(), "a case that fails counts too little");
}

fn limit(case: &str) -> LibraryBenchmarkConfig {
    limits::within(include_str!("hot_path.limits"), case)
}

#[library_benchmark]
#[bench::run_kernel(args = (to_send(run_kernel(0, &[]))), config = limit("encode::run_kernel"))]
#[bench::run_kernel_4_args(args = (to_send(run_kernel(4, &[]))), config = limit("encode::run_kernel_4_args"))]
#[bench::run_kernel_1_wait(args = (to_send(run_kernel(0, &ONE_EVENT))), config = limit("encode::run_kernel_1_wait"))]
#[bench::write_buffer(args = (to_send(write_buffer())), config = limit("encode::write_buffer"))]
#[bench::read_buffer(args = (to_send(read_buffer())), config = limit("encode::read_buffer"))]
#[bench::release(args = (to_send(release())), config = limit("encode::release"))]
#[bench::finish(args = (to_send(finish())), config = limit("encode::finish"))]
#[bench::completed(args = (to_send(completed())), config = limit("encode::completed"))]
#[bench::reply(args = (to_send(reply())), config = limit("encode::reply"))]
#[bench::data(args = (to_send(data())), config = limit("encode::data"))]
fn encode<M: Message<'static>>((message, out): (&'static M, &'static mut Vec<u8>)) {
    black_box(message).put(black_box(out));
}

#[library_benchmark(teardown = decoded)]
#[bench::run_kernel(args = (arrived(run_kernel(0, &[]))), config = limit("decode::run_kernel"))]
#[bench::run_kernel_4_args(args = (arrived(run_kernel(4, &[]))), config = limit("decode::run_kernel_4_args"))]
#[bench::run_kernel_1_wait(args = (arrived(run_kernel(0, &ONE_EVENT))), config = limit("decode::run_kernel_1_wait"))]
#[bench::write_buffer(args = (arrived(write_buffer())), config = limit("decode::write_buffer"))]
#[bench::read_buffer(args = (arrived(read_buffer())), config = limit("decode::read_buffer"))]
#[bench::release(args = (arrived(release())), config = limit("decode::release"))]
#[bench::finish(args = (arrived(finish())), config = limit("decode::finish"))]
fn decode((opcode, body): (u16, &'static [u8])) -> Result<Request<'static>, DecodeError> {
    black_box(Request::decode(black_box(opcode), black_box(body)))
}

#[library_benchmark(teardown = decoded)]
#[bench::completed(args = (arrived(completed())), config = limit("decode_reply::completed"))]
#[bench::reply(args = (arrived(reply())), config = limit("decode_reply::reply"))]
#[bench::data(args = (arrived(data())), config = limit("decode_reply::data"))]
fn decode_reply((opcode, body): (u16, &'static [u8])) -> Result<FromWorker<'static>, DecodeError> {
    black_box(FromWorker::decode(black_box(opcode), black_box(body)))
}

library_benchmark_group!(name = codec, benchmarks = [encode, decode, decode_reply]);
main!(library_benchmark_groups = codec);
