//! Programs, kernels and their arguments.

use sha2::{Digest, Sha256};
use telecl_sys::*;
use telecl_wire::reply::{ArgKind, Binaries, BinaryStatuses, BuildReport};
use telecl_wire::request::*;
use telecl_wire::{Ids, WireId};

use crate::client::{Broker, bytes_arg, command, memory_arg};

pub(crate) const TESTS: &[crate::Test] = &[
    ("two_vectors_are_added", two_vectors_are_added),
    ("a_build_reports_kernels_and_arguments", a_build_reports_kernels_and_arguments),
    ("a_wrong_program_has_a_log", a_wrong_program_has_a_log),
    ("include_trees_are_found_by_the_compiler", include_trees_are_found_by_the_compiler),
    ("programs_are_compiled_linked_and_loaded_again", programs_are_compiled_linked_and_loaded_again),
    ("what_kernels_print_arrives_before_their_end", what_kernels_print_arrives_before_their_end),
    ("arguments_are_checked", arguments_are_checked),
];

const ADD: &str = "
    __kernel void add(__global const int *a, __global const int *b, __global int *out, int more) {
        size_t i = get_global_id(0);
        out[i] = a[i] + b[i] + more;
    }";

fn two_vectors_are_added() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(CL_QUEUE_PROFILING_ENABLE);
    let numbers: Vec<u8> = (0..1000i32).flat_map(i32::to_le_bytes).collect();
    let a = client.buffer(context, 4000, &numbers);
    let b = client.buffer(context, 4000, &[]);
    let out = client.buffer(context, 4000, &[]);
    let (program, status, _) = client.program(context, ADD, b"");
    assert_eq!(status, CL_SUCCESS);
    let kernel = client.kernel(program, "add");
    let (write, run, read) = (client.id(), client.id(), client.id());
    client.send_with(&WriteBuffer { command: command(queue, write), buffer: b, offset: 0, last: true }, &numbers);
    let five = 5i32.to_le_bytes();
    let args = vec![memory_arg(0, a), memory_arg(1, b), memory_arg(2, out), bytes_arg(3, &five)];
    client.run(command(queue, run), kernel, args, 1000);
    client.send(&ReadBuffer { command: command(queue, read), buffer: out, offset: 0, size: 4000 });
    let bytes = client.linear(read, 4000);
    for (i, sum) in bytes.chunks_exact(4).enumerate() {
        assert_eq!(i32::from_le_bytes(sum.try_into().unwrap()), 2 * i as i32 + 5);
    }
    assert_eq!(client.arrived.order, [write, run, read], "reported in the order of the queue");
    let profile = client.completed(run).profile;
    assert!(profile[0] > 0 && profile.is_sorted(), "{profile:?}");
    // Arguments stay as they are; only changes are sent.
    let read = client.id();
    let six = 6i32.to_le_bytes();
    client.run(command(queue, 0), kernel, vec![bytes_arg(3, &six)], 1000);
    client.send(&ReadBuffer { command: command(queue, read), buffer: out, offset: 4, size: 4 });
    assert_eq!(client.linear(read, 4), 8i32.to_le_bytes());
    client.finish(queue);
    assert_eq!(client.arrived.failed, []);
}

fn a_build_reports_kernels_and_arguments() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, _) = client.context_and_queue(0);
    let source = "
        typedef struct { float x; char c; int y[3]; } thing;
        typedef unsigned int u32;
        __kernel void first(__global float *g, __constant int *c, __local float *l, float3 v, thing t, u32 u) {}
        __kernel __attribute__((reqd_work_group_size(4, 2, 1)))
        void second(read_only image2d_t i, sampler_t s) {}";
    let (_, status, report) = client.program(context, source, b"-cl-kernel-arg-info");
    assert_eq!(status, CL_SUCCESS);
    let report: BuildReport<'_> = telecl_wire::decode(&report).unwrap();
    assert_eq!(report.devices.len(), 1);
    assert_eq!((report.devices[0].device, report.devices[0].status), (1, CL_BUILD_SUCCESS));
    assert_eq!(report.devices[0].binary_type, CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    let kernel = |name: &[u8]| report.kernels.iter().find(|kernel| kernel.name == name).unwrap();
    let args: Vec<_> = kernel(b"first").args.iter().map(|arg| (arg.kind, arg.size)).collect();
    let expected = [(ArgKind::Buffer, 0), (ArgKind::Buffer, 0), (ArgKind::Local, 0), (ArgKind::Value, 16)];
    assert_eq!(args[..4], expected);
    // Types of the program: found by trial, where the vendor refuses wrong sizes. PoCL 3.1 does not.
    assert!([(ArgKind::Value, 20), (ArgKind::Value, 0)].contains(&args[4]), "{args:?}");
    assert!([(ArgKind::Value, 4), (ArgKind::Value, 0)].contains(&args[5]), "{args:?}");
    let first = &kernel(b"first").args[0];
    assert_eq!((first.name, first.type_name, first.info_status), (&b"g"[..], &b"float*"[..], CL_SUCCESS));
    let second = kernel(b"second");
    assert_eq!(second.args[0].kind, ArgKind::Image);
    assert_eq!(second.args[0].access_qualifier, CL_KERNEL_ARG_ACCESS_READ_ONLY);
    assert_eq!(second.args[1].kind, ArgKind::Sampler);
    assert_eq!(second.devices[0].compile_work_group_size, [4, 2, 1]);
    assert!(second.devices[0].work_group_size > 0);

    // A program that did not ask for the information does not see it; what arguments are is known all the same.
    let (_, _, report) = client.program(context, source, b"");
    let report: BuildReport<'_> = telecl_wire::decode(&report).unwrap();
    let kernel = report.kernels.iter().find(|kernel| kernel.name == b"first").unwrap();
    let hidden = &kernel.args[0];
    assert_eq!((hidden.kind, hidden.info_status), (ArgKind::Buffer, CL_KERNEL_ARG_INFO_NOT_AVAILABLE));
    assert_eq!((hidden.name, hidden.type_name), (&b""[..], &b""[..]));
}

fn a_wrong_program_has_a_log() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, _) = client.context_and_queue(0);
    let (program, status, report) = client.program(context, "__kernel void f( { nonsense }", b"");
    assert_eq!(status, CL_BUILD_PROGRAM_FAILURE);
    let report: BuildReport<'_> = telecl_wire::decode(&report).unwrap();
    assert_eq!(report.devices[0].status, CL_BUILD_ERROR);
    assert!(String::from_utf8_lossy(report.devices[0].log).contains("error"));
    assert!(report.kernels.is_empty());
    let kernel = client.kernel(program, "f");
    assert_ne!(client.status_of(Kind::Kernel, kernel), CL_SUCCESS);
}

fn include_trees_are_found_by_the_compiler() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let header = b"#define VALUE 42\n";
    let hash: [u8; 32] = Sha256::digest(header).into();
    client.send_with(&StoreFile { hash, staged: 0 }, header);
    let files = vec![TreeFile { path: "inner/value.h", hash }];
    client.send(&MakeTree { tree: 3, files });
    let source = "
        #define STRING(x) #x
        #define PATH(x) STRING(x)
        #include PATH(WHERE/inner/value.h)
        __kernel void f(__global int *o) { o[0] = VALUE; }";
    let (program, status, report) = client.program(context, source, b"-D WHERE=\x013\x01 -w");
    let report: BuildReport<'_> = telecl_wire::decode(&report).unwrap();
    assert_eq!(status, CL_SUCCESS, "{}", String::from_utf8_lossy(report.devices[0].log));
    assert_eq!(report.trees[0].tree, 3);
    let out = client.buffer(context, 4, &[]);
    let kernel = client.kernel(program, "f");
    let read = client.id();
    client.run(command(queue, 0), kernel, vec![memory_arg(0, out)], 1);
    client.send(&ReadBuffer { command: command(queue, read), buffer: out, offset: 0, size: 4 });
    assert_eq!(client.linear(read, 4), 42i32.to_le_bytes());
    // What is not there, or would be somewhere else, is refused.
    client.send(&MakeTree { tree: 4, files: vec![TreeFile { path: "../value.h", hash }] });
    assert_eq!(client.status_of(Kind::Tree, 4), CL_INVALID_VALUE);
    assert_eq!(client.program(context, source, b"-I\x014\x01").1, CL_INVALID_BUILD_OPTIONS);
    client.send(&Release { kind: Kind::Tree, id: 3 });
    assert_eq!(client.status_of(Kind::Tree, 3), CL_INVALID_VALUE);
}

fn programs_are_compiled_linked_and_loaded_again() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, _) = client.context_and_queue(0);
    let (header, part, linked) = (client.id(), client.id(), client.id());
    let with_source = |id| CreateProgramWithSource { id, context, staged: 0 };
    client.send_with(&with_source(header), b"#define VALUE 7\n");
    client.send_with(&with_source(part), b"#include \"v.h\"\n__kernel void f(__global int *o) { o[0] = VALUE; }");
    let call = client.id();
    let headers = vec![EmbeddedHeader { program: header, name: b"v.h" }];
    client.send(&Compile { call, program: part, devices: Ids(&[]), options: b"", headers });
    assert_eq!(client.reply(call).0, CL_SUCCESS);
    let call = client.id();
    let inputs = [WireId::new(part)];
    client.send(&Link { call, id: linked, context, devices: Ids(&[]), options: b"", inputs: Ids(&inputs) });
    let (status, report) = client.reply(call);
    assert_eq!(status, CL_SUCCESS);
    let report: BuildReport<'_> = telecl_wire::decode(&report).unwrap();
    assert_eq!(report.kernels[0].name, b"f");
    let kernel = client.kernel(linked, "f");
    assert_eq!(client.status_of(Kind::Kernel, kernel), CL_SUCCESS);
    // The binary makes the same program again.
    let call = client.id();
    client.send(&ProgramBinaries { call, program: linked });
    let (status, answer) = client.reply(call);
    assert_eq!(status, CL_SUCCESS);
    let binaries: Binaries<'_> = telecl_wire::decode(&answer).unwrap();
    let (call, again) = (client.id(), client.id());
    let (devices, lengths) = ([WireId::new(1)], [WireId::new(binaries.binaries[0].len() as u64)]);
    let (devices, lengths) = (Ids(&devices), Ids(&lengths));
    let load = CreateProgramWithBinaries { call, id: again, context, devices, lengths, staged: 0 };
    client.send_with(&load, binaries.binaries[0]);
    let (status, answer) = client.reply(call);
    assert_eq!(status, CL_SUCCESS);
    assert_eq!(telecl_wire::decode::<BinaryStatuses>(&answer).unwrap().statuses, [CL_SUCCESS]);
    let call = client.id();
    client.send(&Build { call, program: again, devices: Ids(&[]), options: b"" });
    assert_eq!(client.reply(call).0, CL_SUCCESS);
    let call = client.id();
    let load = CreateProgramWithBinaries { call, id: again, context, devices, lengths, staged: 0 };
    client.send_with(&load, b"shorter than announced");
    assert_eq!(client.reply(call).0, CL_INVALID_VALUE);
}

fn what_kernels_print_arrives_before_their_end() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let source = "__kernel void f(int n) { printf(\"hello %d from %d\\n\", n, (int)get_global_id(0)); }";
    let (program, status, _) = client.program(context, source, b"");
    assert_eq!(status, CL_SUCCESS);
    let kernel = client.kernel(program, "f");
    let event = client.id();
    let number = 9i32.to_le_bytes();
    client.run(command(queue, event), kernel, vec![bytes_arg(0, &number)], 3);
    assert_eq!(client.completed(event).status, CL_COMPLETE);
    let mut lines: Vec<String> = String::from_utf8_lossy(&client.arrived.output).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["hello 9 from 0", "hello 9 from 1", "hello 9 from 2"]);
    // Without an event the end of the queue is the end of the kernel.
    client.arrived.output.clear();
    client.run(command(queue, 0), kernel, vec![], 2000);
    client.finish(queue);
    assert_eq!(String::from_utf8_lossy(&client.arrived.output).lines().count(), 2000);
}

fn arguments_are_checked() {
    let broker = Broker::start();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    let (program, _, _) = client.program(context, ADD, b"");
    let kernel = client.kernel(program, "add");
    let buffer = client.buffer(context, 64, &[1; 64]);
    let mut status = |args: Vec<Arg<'_>>| {
        let event = client.id();
        client.run(command(queue, event), kernel, args, 1);
        client.completed(event).status
    };
    // Bytes where a buffer belongs would be taken for a handle.
    assert_eq!(status(vec![bytes_arg(0, &0x4141_4141u64.to_le_bytes())]), CL_INVALID_MEM_OBJECT);
    assert_eq!(status(vec![bytes_arg(3, &[0; 3])]), CL_INVALID_ARG_SIZE);
    assert_eq!(status(vec![bytes_arg(9, &[0; 4])]), CL_INVALID_ARG_INDEX);
    assert_eq!(status(vec![memory_arg(0, 5)]), CL_INVALID_MEM_OBJECT);
    let number = 1i32.to_le_bytes();
    let good = || vec![memory_arg(0, buffer), memory_arg(1, buffer), memory_arg(2, buffer), bytes_arg(3, &number)];
    assert_eq!(status(good()), CL_COMPLETE);
    // One that could not be set is missing until it is set: the old one would be another than the program believes.
    assert_eq!(status(vec![memory_arg(0, 5)]), CL_INVALID_MEM_OBJECT);
    assert_eq!(status(vec![]), CL_INVALID_MEM_OBJECT);
    assert_eq!(status(vec![memory_arg(0, buffer)]), CL_COMPLETE);
    // A guess that is not an object is a value.
    let guess = Arg { index: 3, form: ArgForm::GuessMemory, size: 4, object: buffer, value: &number };
    assert_eq!(status(vec![guess]), CL_COMPLETE);
    let guess = Arg { index: 0, form: ArgForm::GuessMemory, size: 8, object: buffer, value: &[0; 8] };
    assert_eq!(status(vec![guess]), CL_COMPLETE);
    // An argument that was released is no argument any more.
    client.send(&Release { kind: Kind::Memory, id: buffer });
    let event = client.id();
    client.run(command(queue, event), kernel, vec![], 1);
    assert_eq!(client.completed(event).status, CL_INVALID_KERNEL_ARGS);
    client.finish(queue);
}
