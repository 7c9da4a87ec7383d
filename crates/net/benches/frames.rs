//! Instructions to put a small frame on its way and to take one that has arrived, without the system calls: over a
//! socket frames are collected and read ahead, and shared memory needs none while both sides are awake.
//!
//! The bodies are those of `crates/wire/benches/hot_path.rs`; what a case takes beyond them is the frame's.
#![allow(clippy::unwrap_used, reason = "a benchmark may fail like a test")]

#[path = "../../wire/benches/limits/mod.rs"]
mod limits;

use std::hint::black_box;
use std::mem::forget;
use std::os::unix::net::UnixStream;

use gungraun::prelude::*;
use telecl_net::{FrameReceiver, FrameSender, Progress, Stream, Terms, accept, share_memory};
use telecl_wire::Ids;
use telecl_wire::handshake::Ping;
use telecl_wire::reply::Completed;
use telecl_wire::request::{Arg, ArgForm, Command, Message, RunKernel, WriteBuffer};

const COMMAND: Command<'static> = Command { queue: 0x1_0001, event: 0x1_0002, seen: false, waits: Ids(&[]) };

/// With four arguments.
fn run_kernel() -> RunKernel<'static> {
    let object = Arg { index: 0, form: ArgForm::Memory, size: 8, object: 0x1_0003, value: &[] };
    let number = |index| Arg { index, form: ArgForm::Bytes, size: 4, object: 0, value: &[1, 2, 3, 4] };
    let args = vec![object, number(1), number(2), number(3)];
    let (global, local) = ([1024, 1, 1], Some([64, 1, 1]));
    RunKernel { command: COMMAND, kernel: 0x1_0004, args, dimensions: 1, offset: None, global, local }
}

/// With a payload of 64 bytes.
fn write_buffer() -> WriteBuffer<'static> {
    WriteBuffer { command: COMMAND, buffer: 0x1_0003, offset: 4096, last: true }
}

fn completed() -> Completed {
    Completed { event: 0x1_0002, status: 0, profile: [1, 2, 3, 4, 5] }
}

/// One side sends, the other receives. They are never dropped, as that would be counted.
type Pair = (&'static mut FrameSender, &'static mut FrameReceiver);

fn leak(sender: FrameSender, receiver: FrameReceiver) -> Pair {
    (Box::leak(Box::new(sender)), Box::leak(Box::new(receiver)))
}

fn streams() -> (Stream, Stream) {
    let (driver, worker) = UnixStream::pair().unwrap();
    (Stream::from_fd(driver.into()), Stream::from_fd(worker.into()))
}

fn socket() -> Pair {
    let (driver, worker) = streams();
    leak(FrameSender::new(driver), FrameReceiver::new(worker))
}

fn shared() -> Pair {
    let (driver, worker) = streams();
    let (sender, receiver) = share_memory(&driver).unwrap().unwrap();
    let (replies, requests) = accept(worker, Terms::default()).unwrap();
    // The other direction stays open.
    forget((driver, receiver, replies));
    leak(sender, requests)
}

/// A message, its payload, and a link on which a frame has been sent and received before.
struct ToSend<M: 'static>(&'static M, &'static [u8], &'static mut FrameSender);

fn to_send<M: Message<'static>>((sender, receiver): Pair, message: M, payload: &'static [u8]) -> ToSend<M> {
    sender.send(&message, payload).unwrap();
    assert_eq!(receiver.wait().unwrap(), Progress::Ready);
    ToSend(Box::leak(Box::new(message)), payload, sender)
}

/// A link with a frame that can be taken without a system call.
fn arrived<M: Message<'static>>((sender, receiver): Pair, message: M, payload: &[u8]) -> &'static mut FrameReceiver {
    sender.push(&message, payload).unwrap();
    sender.push(&message, payload).unwrap();
    sender.flush().unwrap();
    assert_eq!(receiver.wait().unwrap(), Progress::Ready);
    if sender.is_shared() {
        // What was read ahead is taken too, so that the next one comes from the memory.
        assert_eq!(receiver.wait().unwrap(), Progress::Ready);
        sender.send(&message, payload).unwrap();
    }
    receiver
}

fn worked(worked: bool) {
    assert!(worked, "a case that fails counts too little");
}

fn limit(case: &str) -> LibraryBenchmarkConfig {
    limits::within(include_str!("frames.limits"), case)
}

// Over a socket a frame is collected; sending it is a system call, and left out.
#[library_benchmark(teardown = worked)]
#[bench::run_kernel(args = (to_send(socket(), run_kernel(), &[])), config = limit("push::run_kernel"))]
#[bench::write(args = (to_send(socket(), write_buffer(), &[7; 64])), config = limit("push::write"))]
#[bench::ping(args = (to_send(socket(), Ping { number: 1 }, &[])), config = limit("push::ping"))]
#[bench::completed(args = (to_send(socket(), completed(), &[])), config = limit("push::completed"))]
fn push<M: Message<'static>>(ToSend(message, payload, sender): ToSend<M>) -> bool {
    black_box(sender.push(black_box(message), black_box(payload))).is_ok()
}

// Through shared memory it is also shown to the receiver.
#[library_benchmark(teardown = worked)]
#[bench::run_kernel(args = (to_send(shared(), run_kernel(), &[])), config = limit("send_shared::run_kernel"))]
#[bench::write(args = (to_send(shared(), write_buffer(), &[7; 64])), config = limit("send_shared::write"))]
#[bench::ping(args = (to_send(shared(), Ping { number: 1 }, &[])), config = limit("send_shared::ping"))]
#[bench::completed(args = (to_send(shared(), completed(), &[])), config = limit("send_shared::completed"))]
fn send_shared<M: Message<'static>>(ToSend(message, payload, sender): ToSend<M>) -> bool {
    black_box(sender.send(black_box(message), black_box(payload))).is_ok()
}

// Skips the payload of the frame before.
#[library_benchmark(teardown = worked)]
#[bench::socket_run_kernel(args = (arrived(socket(), run_kernel(), &[])), config = limit("receive::socket_run_kernel"))]
#[bench::socket_write(args = (arrived(socket(), write_buffer(), &[7; 64])), config = limit("receive::socket_write"))]
#[bench::socket_completed(args = (arrived(socket(), completed(), &[])), config = limit("receive::socket_completed"))]
#[bench::shared_run_kernel(args = (arrived(shared(), run_kernel(), &[])), config = limit("receive::shared_run_kernel"))]
#[bench::shared_write(args = (arrived(shared(), write_buffer(), &[7; 64])), config = limit("receive::shared_write"))]
#[bench::shared_completed(args = (arrived(shared(), completed(), &[])), config = limit("receive::shared_completed"))]
fn receive(receiver: &'static mut FrameReceiver) -> bool {
    black_box(receiver.glance()).is_ok_and(|progress| progress == Progress::Ready)
}

library_benchmark_group!(name = frames, benchmarks = [push, send_shared, receive]);
main!(library_benchmark_groups = frames);
