//! `telecl.toml`, as a driver and as a service read it, and the variables that stand for its settings.
#![no_main]

use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use fuzz::memory::{Counting, bounded};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, memfd_create};
use telecl_config::{DriverConfig, Environment, ServeConfig};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|input: &[u8]| {
    // One input in eight is the value of a variable, which the next byte names.
    match input {
        [0..32, which, value @ ..] => {
            let names: Vec<&str> = telecl_config::variables().collect();
            let name = names[usize::from(*which) % names.len()];
            let value = OsString::from_vec(value.to_vec());
            let lookup = |wanted: &str| (wanted == name).then(|| value.clone());
            load(&Environment::new(lookup), input.len());
        }
        _ => {
            let path = file_with(input);
            load(&Environment::new(|_| None).with_file(path), input.len());
        }
    }
});

fn load(environment: &Environment<'_>, len: usize) {
    // The parser keeps where everything stands, messages quote what is wrong, and a word that nobody knows is compared with
    // all that are known.
    bounded("configuration", len, 8 << 10, 256 << 10, || {
        let _ = DriverConfig::load_from(environment);
        let _ = ServeConfig::load_from(environment);
    });
}

/// The path of a file in memory with this content.
fn file_with(content: &[u8]) -> String {
    static FILE: OnceLock<Mutex<File>> = OnceLock::new();
    let file =
        FILE.get_or_init(|| Mutex::new(memfd_create(c"telecl.toml", MemfdFlags::CLOEXEC).expect("a file").into()));
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.set_len(0).expect("an empty file");
    file.seek(SeekFrom::Start(0)).expect("the start of a file");
    file.write_all(content).expect("room in memory");
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
