//! The built `telecl`, and a service that says what a test wants it to say.

use std::net::TcpListener;
use std::process::{Command, Output};
use std::thread;

use telecl_net::{FrameReceiver, FrameSender, Stream};
use telecl_sys::*;
use telecl_wire::handshake::{Compression, DeviceLoad, Handshake, Pong, Refused, Welcome};
use telecl_wire::info::{Device, Info, Platform};

/// `telecl` without the configuration of whoever runs the tests.
pub(crate) fn telecl(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_telecl"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TELECL_") {
            command.env_remove(name);
        }
    }
    // An empty file beats what may be in /etc.
    command.args(arguments).env("TELECL_CONFIG", "/dev/null").env_remove("OCL_ICD_VENDORS");
    // And a test leaves nothing in the cache of its user.
    command.env("TELECL_CACHE_DIR", "none");
    command
}

/// Runs `telecl` to its end.
pub(crate) fn output(arguments: &[&str]) -> Output {
    telecl(arguments).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// An error is one line, begins with `error: `, and has no backtrace below it.
pub(crate) fn assert_error(output: &Output, code: i32, part: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.starts_with("error: ") && text.contains(part), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// How a pretended service behaves. No test needs all of them.
#[allow(dead_code)]
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    /// Offers one device.
    Offers,
    /// Offers nothing.
    Empty,
    /// Speaks another protocol.
    Refuses,
    /// Answers in the words of another program.
    Babbles,
    /// Says nothing.
    Silent,
}

/// Starts a pretended service; its address.
pub(crate) fn pretend(manner: Manner) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = Stream::from_fd(stream.unwrap().into());
            // The connection ends with the test.
            thread::spawn(move || talk(stream, manner));
        }
    });
    address
}

fn talk(stream: Stream, manner: Manner) {
    let mut sender = FrameSender::new(stream.try_clone().unwrap());
    let mut receiver = FrameReceiver::new(stream);
    while let Ok(Some(frame)) = receiver.next_frame() {
        let sent = match (Handshake::decode(frame.opcode, frame.body).unwrap(), manner) {
            (_, Manner::Silent) => continue,
            (Handshake::Ping(ping), _) => sender.send(&Pong { number: ping.number }, &[]),
            (_, Manner::Refuses) => sender.send(&Refused { reason: "too old", protocol: 999 }, &[]),
            (_, Manner::Babbles) => {
                use rustix::net::{SendFlags, send};
                send(sender.stream().unwrap(), b"SSH-2.0-OpenSSH_9.2p1\r\n", SendFlags::NOSIGNAL).unwrap();
                return;
            }
            (_, Manner::Offers) => sender.send(&welcome(), &[]),
            (_, Manner::Empty) => sender.send(&Welcome { platforms: vec![], ..welcome() }, &[]),
        };
        if sent.is_err() {
            return;
        }
    }
}

fn welcome() -> Welcome<'static> {
    let info = |param, value| Info { param, status: CL_SUCCESS, value };
    let device = Device {
        id: 1,
        info: vec![
            info(CL_DEVICE_NAME, b"Pretended\x1b[31m Device\0"),
            info(CL_DEVICE_TYPE, &[4, 0, 0, 0, 0, 0, 0, 0]),
            info(CL_DEVICE_GLOBAL_MEM_SIZE, &[0, 0, 0, 0, 2, 0, 0, 0]),
            info(CL_DEVICE_MAX_COMPUTE_UNITS, &[132, 0, 0, 0]),
            info(CL_DEVICE_VERSION, b"OpenCL 3.0 pretended\0"),
        ],
    };
    Welcome {
        session: 1,
        secret: [0; 16],
        version: "0.0.0-test",
        node: "far-away",
        node_address: "",
        socket: "",
        instance: 1,
        boot_id: [7; 16],
        seen_at: "",
        took_ns: 0,
        compression: Compression::Auto,
        heartbeat_ms: 10_000,
        grace_ms: 30_000,
        tenant: "team-red",
        limited: false,
        by_load: false,
        loads: vec![DeviceLoad { device: 1, sessions: 3, most: 16 }],
        memory: Vec::new(),
        platforms: vec![Platform {
            index: 0,
            info: vec![info(CL_PLATFORM_NAME, b"Pretence\0")],
            devices: vec![device],
        }],
    }
}
