//! What a policy does to a session that compiles or computes for too long, or has too much under way.

use std::fmt::Write;
use std::time::{Duration, Instant};

use telecl_sys::*;
use telecl_wire::request::{
    Build, CreateProgramWithSource, CreateUserEvent, Marker, SetUserEventStatus, WatchEvent, WriteBuffer,
};
use telecl_wire::{Ids, WireId};

use crate::broker::until;
use crate::client::{Broker, Client, Command_, bytes_arg, command, memory_arg};

pub(crate) const TESTS: &[crate::Test] = &[
    ("a_build_that_takes_too_long_ends_its_session", a_build_that_takes_too_long_ends_its_session),
    ("a_kernel_that_runs_too_long_is_reported_once", a_kernel_that_runs_too_long_is_reported_once),
    ("a_command_that_waits_is_not_running", a_command_that_waits_is_not_running),
    ("a_kernel_that_runs_too_long_ends_its_session", a_kernel_that_runs_too_long_ends_its_session),
    ("so_many_commands_are_under_way_and_no_more", so_many_commands_are_under_way_and_no_more),
    ("commands_that_wait_for_the_program_count", commands_that_wait_for_the_program_count),
];

/// Takes so many steps of a nanosecond or two.
pub(crate) const STEPS: &str =
    "kernel void steps(global volatile ulong *a, ulong n) { for (ulong i = 0; i < n; i++) *a += i; }";

/// A client with a context, a queue, and a kernel that takes its time.
pub(crate) struct Worker {
    pub(crate) client: Client,
    pub(crate) context: u64,
    pub(crate) queue: u64,
    pub(crate) kernel: u64,
    pub(crate) buffer: u64,
}

impl Worker {
    pub(crate) fn new(mut client: Client, bits: u64) -> Worker {
        let (context, queue) = client.context_and_queue(bits);
        let (program, status, _) = client.program(context, STEPS, b"");
        assert_eq!(status, CL_SUCCESS);
        let kernel = client.kernel(program, "steps");
        let buffer = client.buffer(context, 8, &[0; 8]);
        // The vendor compiles it only now, perhaps.
        let mut worker = Worker { client, context, queue, kernel, buffer };
        worker.run(1, 0, &[]);
        worker.client.finish(queue);
        worker
    }

    /// Enqueues the kernel; an event of 0 is none.
    pub(crate) fn run(&mut self, steps: u64, event: u64, waits: &[u64]) {
        let waits: Vec<WireId> = waits.iter().map(|id| WireId::new(*id)).collect();
        let command = Command_ { queue: self.queue, event, seen: event != 0, waits: Ids(&waits) };
        let steps = steps.to_le_bytes();
        self.client.run(command, self.kernel, vec![memory_arg(0, self.buffer), bytes_arg(1, &steps)], 1);
    }

    pub(crate) fn user_event(&mut self) -> u64 {
        let id = self.client.id();
        self.client.send(&CreateUserEvent { id, context: self.context });
        id
    }

    pub(crate) fn set(&mut self, event: u64) {
        self.client.send(&SetUserEventStatus { event, status: CL_COMPLETE });
    }

    /// How many steps the device takes in this time, if nobody else uses its processors.
    pub(crate) fn steps_in(&mut self, time: Duration) -> u64 {
        const SAMPLE: u64 = 4_000_000;
        let sample = |worker: &mut Worker| {
            let (event, begin) = (worker.client.id(), Instant::now());
            worker.run(SAMPLE, event, &[]);
            assert_eq!(worker.client.completed(event).status, CL_COMPLETE);
            begin.elapsed()
        };
        let best = (0..5).map(|_| sample(self)).min().unwrap_or_default();
        (SAMPLE as f64 * time.as_secs_f64() / best.as_secs_f64()) as u64 + 1
    }
}

const OVERRUN: &str = "a kernel runs for longer than its policy allows";

/// A program that takes a while to compile, and that nobody has built before.
fn large_source() -> String {
    let mut source = String::new();
    let unique = format!("{}_{:?}", std::process::id(), std::time::SystemTime::now());
    writeln!(source, "// {unique}").unwrap();
    for number in 0..300 {
        writeln!(
            source,
            "kernel void k{number}(global float4 *a, int n) {{ for (int i = 0; i < n; i++) a[i] = sin(a[i]) * {number}.5f + \
             pow(cos(a[i + 1]), exp(a[n])); }}"
        )
        .unwrap();
    }
    source
}

fn a_build_that_takes_too_long_ends_its_session() {
    let broker = Broker::start_with_policy("[defaults]\nlongest_build = \"50 ms\"\n");
    let mut client = broker.client();
    let (context, _) = client.context_and_queue(0);
    let (program, call) = (client.id(), client.id());
    client.send_with(&CreateProgramWithSource { id: program, context, staged: 0 }, large_source().as_bytes());
    client.send(&Build { call, program, devices: Ids(&[]), options: b"" });
    while client.receive() {}
    let reason = client.arrived.closing.unwrap();
    assert!(client.arrived.by_policy, "{reason}");
    for part in ["longer than 50ms", "(longest_build)", "begins another session"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    until("the log says so", || broker.log().contains("a build took longer than its policy allows"));
    // Others go on.
    broker.client().context_and_queue(0);
}

fn a_kernel_that_runs_too_long_is_reported_once() {
    let broker = Broker::start_with_policy("[defaults]\nlongest_kernel = \"200 ms\"\n");
    let mut overruns = 0;
    for bits in [0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
        let mut worker = Worker::new(broker.client(), bits);
        let second = worker.steps_in(Duration::from_secs(1));
        // With and without an event that the driver wants.
        for event in [worker.client.id(), 0] {
            worker.run(second, event, &[]);
            worker.run(1, 0, &[]);
            worker.client.finish(worker.queue);
            overruns += 1;
            assert_eq!(broker.log().matches(OVERRUN).count(), overruns, "queue {bits}, event {event}");
        }
        // Many short ones are none.
        for _ in 0..100 {
            worker.run(second / 200, 0, &[]);
        }
        worker.client.finish(worker.queue);
        assert_eq!(broker.log().matches(OVERRUN).count(), overruns, "queue {bits}");
    }
}

fn a_command_that_waits_is_not_running() {
    let broker = Broker::start_with_policy("[defaults]\nlongest_kernel = \"200 ms\"\n");
    for bits in [0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
        let mut worker = Worker::new(broker.client(), bits);
        let (gate, kernel, after) = (worker.user_event(), worker.client.id(), worker.client.id());
        worker.run(1, kernel, &[gate]);
        let waits = [WireId::new(kernel)];
        let command = Command_ { queue: worker.queue, event: after, seen: true, waits: Ids(&waits) };
        worker.client.send(&Marker { command });
        std::thread::sleep(Duration::from_millis(600));
        worker.set(gate);
        assert_eq!(worker.client.completed(after).status, CL_COMPLETE);
    }
    assert!(!broker.log().contains(OVERRUN), "{}", broker.log());
}

fn a_kernel_that_runs_too_long_ends_its_session() {
    let broker = Broker::start_with_policy("[defaults]\nlongest_kernel = \"200 ms\"\nkernel_overrun = \"end\"\n");
    let mut worker = Worker::new(broker.client(), 0);
    let steps = worker.steps_in(Duration::from_secs(30));
    let begin = Instant::now();
    worker.run(steps, 0, &[]);
    let mut client = worker.client;
    while client.receive() {}
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    let reason = client.arrived.closing.unwrap();
    assert!(client.arrived.by_policy, "{reason}");
    for part in ["a kernel has run for longer than 200ms", "(longest_kernel)", "begins another session"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    until("the log says so", || broker.log().contains("a kernel ran for longer than its policy allows"));
    broker.client().context_and_queue(0);
}

/// How many commands were with the vendor at the same time, at most: from when they were queued to their end.
fn most_at_once(client: &mut Client, events: &[u64]) -> usize {
    let mut moments = Vec::new();
    for event in events {
        let [queued, .., end, _] = client.completed(*event).profile;
        assert!(queued > 0 && queued <= end);
        moments.extend([(queued, 1), (end, -1)]);
    }
    // What ends in the same moment has ended first.
    moments.sort_unstable();
    let mut now = 0;
    let counts = moments.into_iter().map(|(_, step)| {
        now += step;
        now
    });
    counts.max().unwrap_or_default() as usize
}

fn so_many_commands_are_under_way_and_no_more() {
    const COMMANDS: usize = 500;
    const AHEAD: usize = 128;
    for (policy, limit) in [("[defaults]\ncommands = 8\n", 8), ("", usize::MAX)] {
        let broker = Broker::start_with_policy(policy);
        let mut largest = 0;
        for (bits, queues) in [(0, 1), (0, 2), (CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 1)] {
            let bits = bits | CL_QUEUE_PROFILING_ENABLE;
            let mut worker = Worker::new(broker.client(), bits);
            let steps = worker.steps_in(Duration::from_micros(200));
            let mut queues = vec![worker.queue; queues];
            if let [_, second] = &mut queues[..] {
                *second = worker.client.queue(worker.context, bits);
            }
            let mut events = Vec::new();
            for number in 0..COMMANDS {
                // Ten to each, so that some wait while others do not.
                worker.queue = queues[number / 10 % queues.len()];
                let (write, run) = (worker.client.id(), worker.client.id());
                let write_command =
                    WriteBuffer { command: command(worker.queue, write), buffer: worker.buffer, offset: 0, last: true };
                worker.client.send_with(&write_command, &[0; 8]);
                worker.run(steps, run, &[]);
                events.extend([write, run]);
                // Whoever only sends, to somebody who sends, waits for ever.
                if events.len() > AHEAD {
                    worker.client.completed(events[events.len() - AHEAD]);
                }
            }
            queues.iter().for_each(|queue| worker.client.finish(*queue));
            let most = most_at_once(&mut worker.client, &events);
            println!("{policy:?}, {} queues {bits}: {most} at once", queues.len());
            assert!(most <= limit, "{most} at once, {} queues {bits}", queues.len());
            largest = largest.max(most);
        }
        // Otherwise this test would show nothing.
        assert!(limit < usize::MAX || largest > 8, "{largest} at once without a limit");
        // Those that the driver wants to know nothing of.
        let mut worker = Worker::new(broker.client(), CL_QUEUE_PROFILING_ENABLE);
        for _ in 0..COMMANDS {
            let write = WriteBuffer { command: command(worker.queue, 0), buffer: worker.buffer, offset: 0, last: true };
            worker.client.send_with(&write, &[0; 8]);
            worker.run(1, 0, &[]);
        }
        worker.client.finish(worker.queue);
    }
}

fn commands_that_wait_for_the_program_count() {
    const LIMIT: usize = 8;
    let broker = Broker::start_with_policy(&format!("[defaults]\ncommands = {LIMIT}\n"));
    for bits in [0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
        let mut worker = Worker::new(broker.client(), bits | CL_QUEUE_PROFILING_ENABLE);
        // There is always an event that is not set: what waited for others has ended all the same.
        let mut next = worker.user_event();
        for round in 0..5 {
            let gate = std::mem::replace(&mut next, worker.user_event());
            let held: Vec<u64> = (0..LIMIT + 3).map(|_| worker.client.id()).collect();
            for event in &held {
                worker.run(1, *event, &[gate]);
            }
            for event in &held[LIMIT..] {
                assert_eq!(worker.client.completed(*event).status, CL_OUT_OF_RESOURCES, "round {round}");
            }
            let mut free = Vec::new();
            if bits != 0 {
                // Others get by, one at a time.
                for _ in 0..20 {
                    free.push(worker.client.id());
                    worker.run(1000, free[free.len() - 1], &[]);
                }
                let last = free[free.len() - 1];
                assert_eq!(worker.client.completed(last).status, CL_COMPLETE);
            }
            assert!(!held[..LIMIT].iter().any(|event| worker.client.arrived.completed.contains_key(event)));
            worker.set(gate);
            for event in &held[..LIMIT] {
                assert_eq!(worker.client.completed(*event).status, CL_COMPLETE, "round {round}");
            }
            worker.client.finish(worker.queue);
            let most = most_at_once(&mut worker.client, &[&held[..LIMIT], &free].concat());
            assert!(most <= LIMIT + 1, "{most} in round {round}");
        }
        let watched = worker.client.id();
        worker.run(1, watched, &[]);
        worker.client.send(&WatchEvent { event: watched, status: CL_RUNNING });
        assert_eq!(worker.client.completed(watched).status, CL_COMPLETE);
    }
}
