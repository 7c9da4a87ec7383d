//! Plays sessions over real sockets against a real broker, real workers and the node's own OpenCL.
//!
//! This executable is all three: `serve` and `worker` are how it starts itself.

#![allow(clippy::unwrap_used)] // Every line of this is a test.

mod bounds;
mod broker;
mod client;
mod commands;
mod hostile;
mod limits;
mod memory;
mod objects;
mod peer;
mod programs;
mod shared;
mod streams;
mod tenants;
mod turns;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use telecl_net::Address;
use telecl_service::{Clearing, ServeSettings, WorkerCommand, inventory_main, serve, worker_main};

use crate::client::Link;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("worker") => {
            log();
            let has = |name: &str| args.iter().any(|arg| arg == name);
            let clearing = if has("--clear") { Clearing::Everywhere } else { Clearing::WhereNeeded };
            if has("--inventory") { inventory_main() } else { worker_main(clearing) }
        }
        Some("serve") => {
            log();
            run_broker(&args[1..])
        }
        _ => run_tests(&args),
    }
}

fn log() {
    let filter = tracing_subscriber::EnvFilter::from_env("TELECL_LOG");
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

/// Serves at the first address; further arguments are parts of device names to offer.
fn run_broker(args: &[String]) -> ExitCode {
    let listen: Vec<Address> = vec![args[0].parse().unwrap()];
    let mut settings = ServeSettings::new(listen, WorkerCommand::current_executable().unwrap());
    settings.handshake_timeout = Duration::from_millis(500);
    settings.devices = args[1..].to_vec();
    settings.warm_workers = 1;
    if std::env::var_os("TELECL_TEST_CLEAR").is_some() {
        settings.worker.args.push("--clear".into());
    }
    settings.policy = std::env::var_os("TELECL_TEST_POLICY").map(Into::into);
    let ready = |addresses: &[Address]| {
        println!("{}", addresses[0]);
        std::io::stdout().flush().unwrap();
    };
    match serve(settings, ready) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Every test with its name, and the link of its clients.
fn all_tests() -> Vec<(String, Link, fn())> {
    let mut once = [broker::TESTS, shared::TESTS, streams::TESTS, tenants::TESTS].concat();
    once.extend([memory::TESTS, limits::TESTS, turns::TESTS, bounds::TESTS].concat());
    let once = once.into_iter().map(|(name, test)| (name.to_owned(), Link::Tcp, test));
    let over_all = [objects::TESTS, programs::TESTS, commands::TESTS, hostile::TESTS].concat();
    let links = [("tcp", Link::Tcp), ("shared_memory", Link::SharedMemory), ("streams", Link::Streams)];
    let over_all = links.into_iter().flat_map(|(prefix, link)| {
        over_all.iter().map(move |(name, test)| (format!("{prefix}::{name}"), link, *test)).collect::<Vec<_>>()
    });
    once.chain(over_all).collect()
}

fn run_tests(args: &[String]) -> ExitCode {
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let all = all_tests();
    if args.iter().any(|arg| arg == "--list") {
        all.iter().for_each(|(name, ..)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut failed = Vec::new();
    for (name, link, test) in &all {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let start = Instant::now();
        client::choose(*link);
        let passed = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {name} ... {} ({:?})", if passed { "ok" } else { "FAILED" }, start.elapsed());
        if !passed {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failed:?}");
    ExitCode::FAILURE
}
