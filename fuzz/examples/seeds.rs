//! Writes what the targets start from to `corpus/`: real messages, and the files of the documentation's examples.
//!
//! `cargo run --release --example seeds`, after a change of the protocol. Names are what the files are of.

use std::fs;
use std::path::Path;

use telecl_wire::Header;
use telecl_wire::handshake::Handshake;
use telecl_wire::reply::Output;
use telecl_wire::request::{Message, Request};
use zerocopy::IntoBytes;

fn write(target: &str, name: &str, bytes: &[u8]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&directory).expect("a directory");
    fs::write(directory.join(name), bytes).expect("a file");
}

/// The frame of a body.
fn frame(number: u16, body: &[u8], payload: &[u8]) -> Vec<u8> {
    [Header::new(number, body.len(), payload.len()).as_bytes(), body, payload].concat()
}

/// Two bytes that the target takes for this number.
fn choice(opcodes: &[u16], number: u16) -> Vec<u8> {
    let place = opcodes.iter().position(|known| *known == number).expect("a number of this set");
    u16::try_from(place).expect("a short list").to_le_bytes().to_vec()
}

fn main() {
    let samples = fuzz::samples();
    let payloads: Vec<&str> = {
        let mut names: Vec<&str> =
            samples.iter().filter(|sample| sample.number == 0).map(|sample| sample.name).collect();
        names.dedup();
        names
    };
    for (count, sample) in samples.iter().enumerate() {
        let name = format!("{}-{}", sample.name, if count % 2 == 0 { "full" } else { "empty" });
        match sample.set {
            "Handshake" => {
                write("handshake", &name, &frame(sample.number, &sample.body, &[]));
                let body = [choice(Handshake::OPCODES, sample.number), sample.body.clone()].concat();
                write("handshake", &format!("{name}-body"), &body);
            }
            "Request" => {
                let body = [choice(Request::OPCODES, sample.number), sample.body.clone()].concat();
                write("request", &name, &body);
            }
            "FromWorker" => {
                let bytes = [
                    vec![255],
                    frame(sample.number, &sample.body, b"payload"),
                    frame(sample.number, &sample.body, &[]),
                ];
                write("reply", &name, &bytes.concat());
            }
            _ => {
                let which = payloads.iter().position(|known| *known == sample.name).expect("a payload");
                let which = u8::try_from(which).expect("few payloads");
                write("reply", &format!("payload-{name}"), &[&[which], &sample.body[..]].concat());
            }
        }
    }
    // A payload that was compressed.
    let (compressed, output) = (lz4(), Output::OPCODE);
    let mut header = [0; Header::LEN];
    header[..2].copy_from_slice(&u16::to_le_bytes(output));
    header[2] = 2;
    header[8..12].copy_from_slice(&u32::try_from(compressed.len()).expect("short").to_le_bytes());
    header[12..].copy_from_slice(&4096u32.to_le_bytes());
    write("reply", "compressed", &[&[255], &header[..], &compressed].concat());
    for (count, bytes) in telecl_service::fuzzing::sample_worker_messages().iter().enumerate() {
        write("channel", &format!("message-{count}"), bytes);
    }
    write("channel", "several", &telecl_service::fuzzing::sample_worker_messages().concat());
    for (target, page) in [("config", "configuration.md"), ("policy", "policy.md")] {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
        let page = fs::read_to_string(page).expect("a page of the documentation");
        let examples = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        for (count, example) in examples.enumerate() {
            write(target, &format!("example-{count}"), example.as_bytes());
        }
    }
    for (count, name) in telecl_config::variables().enumerate() {
        let which = u8::try_from(count).expect("few variables");
        for (number, value) in ["1", "127.0.0.1:7701", "5s", "off", "64MiB", "/tmp"].iter().enumerate() {
            if count % 6 == number {
                write(
                    "config",
                    &format!("variable-{}", name.to_lowercase()),
                    &[&[0, which], value.as_bytes()].concat(),
                );
            }
        }
    }
    let claims =
        r#""tenant":"team-red","id":"0123456789abcdef0123456789abcdef","issued":1789999000,"expires":1790009000"#;
    let limits = r#""memory":4294967296,"devices":["name:NVIDIA*","number:2"],"services":["node*"],"sessions":1"#;
    write("token", "plain", format!("{{{claims}}}").as_bytes());
    write("token", "limits", format!("{{{claims},{limits}}}").as_bytes());
    write("token", "expired", format!("{{{claims}}}").replace("1790009000", "1").as_bytes());
    write("token", "later", format!("{{{claims}}}").replace("1789999000", "18446744073709551615").as_bytes());
    write("token", "text", b"telecl1.eyJ0ZW5hbnQiOiJhIn0.AAAA");
    for seed in 0..24u8 {
        // Numbers that make lists of steps; libFuzzer does the rest.
        let bytes: Vec<u8> =
            (0..=255u8).map(|place| place.wrapping_mul(seed.wrapping_mul(2) + 1) ^ (seed << 3)).collect();
        write("shm", &format!("steps-{seed}"), &bytes);
        write("worker", &format!("steps-{seed}"), &bytes.repeat(4));
    }
}

/// An LZ4 block of 4096 equal bytes: a literal, and a match that is as long as it has to be.
fn lz4() -> Vec<u8> {
    let mut block = vec![0x1F, b'x', 1, 0];
    let mut left = 4096 - 1 - 5 - 19;
    while left >= 255 {
        block.push(255);
        left -= 255;
    }
    block.push(u8::try_from(left).expect("a byte"));
    block.extend([0x50, b'x', b'x', b'x', b'x', b'x']);
    block
}
