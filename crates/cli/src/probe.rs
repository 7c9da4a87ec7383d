//! The hidden command `telecl probe`: one check in a process of its own, its findings as JSON lines.
//!
//! A library that crashes while it is opened, or a driver that hangs, then costs `telecl doctor` a
//! line of its report and nothing more.

use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Subcommand;
use serde_json::{Value, json};
use telecl_opencl::Library;
use telecl_sys::{CL_DEVICE_NAME, CL_DEVICE_TYPE_ALL, CL_PLATFORM_NAME};

use crate::exit::{Exit, Outcome, print};
use crate::serve;

#[derive(Debug, Subcommand)]
pub(crate) enum Probe {
    /// Opens a library.
    Library {
        name: String,
        /// Functions that it should have.
        #[arg(long = "function")]
        functions: Vec<String>,
    },
    /// Adds two vectors on every device that the loader finds.
    Devices,
}

/// Tries something out and prints what came of it.
pub(crate) fn probe(what: &Probe) -> Outcome {
    match what {
        Probe::Library { name, functions } => library(name, functions),
        Probe::Devices => devices(),
    }
    Ok(Exit::Ok)
}

fn finding(value: &Value) {
    print(format_args!("{value}\n"));
}

fn library(name: &str, functions: &[String]) {
    let opened = match telecl_probe::open(name) {
        Ok(opened) => opened,
        Err(telecl_probe::OpenError(reason)) => return finding(&json!({ "error": reason })),
    };
    let missing: Vec<_> = functions.iter().filter(|function| !opened.exports(function)).collect();
    let file = functions.first().and_then(|function| opened.file_of(function));
    let loader = opened.loader().unwrap_or_default();
    finding(&json!({
        "file": file.map(|path| path.display().to_string()),
        "missing": missing,
        "loader": loader.name,
        "version": loader.version,
        "vendor": loader.vendor,
    }));
    // Closing it would run foreign code once more, for nothing.
    std::mem::forget(opened);
}

fn devices() {
    let library = match Library::load() {
        Ok(library) => library,
        Err(error) => return finding(&json!({ "error": format!("{:#}", anyhow::Error::new(error)) })),
    };
    for platform in library.platforms().unwrap_or_default() {
        let platform_name = platform.info_string(CL_PLATFORM_NAME).unwrap_or_default();
        for device in platform.devices(CL_DEVICE_TYPE_ALL).unwrap_or_default() {
            let start = Instant::now();
            let outcome = telecl_probe::add_vectors(&platform, &device);
            finding(&json!({
                "platform": platform_name,
                "device": device.info_string(CL_DEVICE_NAME).unwrap_or_default(),
                "milliseconds": start.elapsed().as_secs_f64() * 1e3,
                "failure": outcome.err().map(|failure| failure.to_string()),
            }));
        }
    }
}

/// Runs `telecl probe` with `arguments` and these variables, and returns its findings.
pub(crate) fn start(
    arguments: &[&str],
    variables: Vec<(&'static str, std::ffi::OsString)>,
    limit: Duration,
) -> Result<Vec<Value>, String> {
    let program = serve::this_executable().map_err(|failure| failure.to_string())?;
    // A file and not a pipe: a child that writes much cannot get stuck, and one that hangs can be given up.
    let mut output = tempfile::tempfile().map_err(|error| error.to_string())?;
    let stdout = output.try_clone().map_err(|error| error.to_string())?;
    let mut child = Command::new(program)
        .arg("probe")
        .args(arguments)
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(stdout)
        .spawn()
        .map_err(|error| error.to_string())?;
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                // It may have ended in this moment.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no end within {limit:?}"));
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    let mut text = String::new();
    output.rewind().and_then(|()| output.read_to_string(&mut text)).map_err(|error| error.to_string())?;
    // A vendor's library may print as well; only our lines are JSON objects.
    let findings: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if status.success() { Ok(findings) } else { Err(format!("the process that tried it ended with {status}")) }
}
