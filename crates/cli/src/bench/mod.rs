//! `telecl bench`: what telecl costs on this machine, beside the vendor's driver used directly.
//!
//! For each path (the vendor's driver alone, a service over TCP, one over shared memory) there is a
//! child process that measures (`child.rs`, `measure.rs`). `rounds.rs` asks them in turn, `limits.rs`
//! measures what the machine itself can do, `bars.rs` knows what is expected, and `report.rs` puts it
//! together for `text.rs`, `markdown.rs` and `svg.rs`. `share/` and `tenants/` are
//! benches of their own.

mod args;
mod bars;
mod catalog;
mod child;
mod crowd;
mod fresh;
mod limits;
mod machine;
mod markdown;
mod measure;
mod number;
mod path;
mod progress;
mod report;
mod rounds;
mod share;
mod stats;
mod svg;
mod talk;
mod tenants;
mod text;

use std::fs;

use self::args::OtherBench;
use self::catalog::{Manner, TESTS, Test};
use self::child::Wanted;
use self::limits::Meter;
use self::machine::Machine;
use self::path::{Kind, Path};
use self::progress::Progress;
use self::report::Report;
use self::rounds::{Effort, Seat};
use crate::exit::{Exit, Failure, Outcome, print};

pub(crate) use self::args::BenchArgs;
pub(crate) use self::child::{BenchChildArgs, bench_child};
pub(crate) use self::share::{BenchCopyArgs, bench_copy};

pub(crate) fn bench(args: &BenchArgs) -> Outcome {
    match &args.other {
        Some(OtherBench::Share(args)) => share::share(args),
        Some(OtherBench::Tenants(args)) => tenants::tenants(args),
        None => cost(args),
    }
}

/// What telecl costs, on all paths.
fn cost(args: &BenchArgs) -> Outcome {
    let tests = tests(args)?;
    let effort = Effort { rounds: args.rounds.unwrap_or(if args.quick { 5 } else { 11 }), quick: args.quick };
    let mut notes = Vec::new();
    let paths = path::all(args.driver.as_deref(), &args.services, &mut notes)?;
    let mut seats = open_all(&paths, args.device.as_deref(), &mut notes)?;
    let date = machine::now();

    let mut meter = Meter::default();
    let mut progress = Progress::new(effort.rounds * tests.len() as u32);
    let mut measured = Vec::new();
    for test in tests {
        measured.push(rounds::run(test, effort, &mut seats, &mut meter, &mut progress));
    }
    let seconds = progress.finish().as_secs_f64();

    let Some(first) = seats.first() else { return Ok(Exit::Failed) };
    let used: Vec<&Path> = seats.iter().map(|seat| &seat.path).collect();
    let mut report = Report::new(Machine::this(), date, first.device.clone(), &used, effort, &measured);
    report.notes = notes.into_iter().chain(measured.into_iter().flat_map(|measured| measured.notes)).collect();
    report.seconds = seconds;
    write_all(args, &report)?;
    // Direct alone says nothing about telecl.
    let failed =
        used.iter().all(|path| path.kind == Kind::Direct) || report.cells().any(|(_, cell)| cell.error.is_some());
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

/// The tests that were asked for. The slowest is left out where there is little time and nobody asked for it.
fn tests(args: &BenchArgs) -> Result<Vec<&'static Test>, Failure> {
    let mut tests = catalog::select(&args.only).map_err(|unknown| {
        let names = TESTS.iter().map(|test| test.name).collect::<Vec<_>>().join(", ");
        Failure::new(Exit::Usage, format!("no test is named {unknown}"), format!("There are {names}"))
    })?;
    if args.quick && args.only.is_empty() {
        tests.retain(|test| test.manner != Manner::Crowd);
    }
    Ok(tests)
}

/// Gets all paths ready, with one device. Those that cannot be used are left out, with a note.
fn open_all(paths: &[Path], device: Option<&str>, notes: &mut Vec<String>) -> Result<Vec<Seat>, Failure> {
    let mut wanted = device.map_or(Wanted::Any, |part| Wanted::NameContains(part.to_owned()));
    let mut seats: Vec<Option<Seat>> = paths.iter().map(|_| None).collect();
    let mut reasons = Vec::new();
    // The services choose: a device that only this machine has cannot be compared with anything.
    let (services, direct): (Vec<usize>, Vec<usize>) = (0..paths.len()).partition(|i| paths[*i].kind != Kind::Direct);
    for index in services.into_iter().chain(direct) {
        match Seat::open(&paths[index], &wanted) {
            Ok(seat) => {
                wanted = Wanted::Named(seat.device.name.clone());
                seats[index] = Some(seat);
            }
            Err(reason) => reasons.push((&paths[index].name, reason)),
        }
    }
    let seats: Vec<Seat> = seats.into_iter().flatten().collect();
    if seats.is_empty() {
        let mut reasons: Vec<String> = reasons.into_iter().map(|(_, reason)| reason).collect();
        reasons.dedup();
        let what = format!("nothing can be measured: {}", reasons.join("; "));
        return Err(Failure::new(
            Exit::Unreachable,
            what,
            "Does clinfo list a device? telecl doctor checks every part",
        ));
    }
    notes.extend(reasons.into_iter().map(|(path, reason)| format!("{path} is left out: {reason}")));
    Ok(seats)
}

/// Writes the report in all forms that were asked for, and the tables unless JSON goes to stdout.
fn write_all(args: &BenchArgs, report: &Report) -> Result<(), Failure> {
    let json_to_stdout = args.json.as_deref().is_some_and(|file| file.as_os_str() == "-");
    if !json_to_stdout {
        print(text::text(report));
    }
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(report).unwrap_or_default() + "\n";
        if json_to_stdout { print(text) } else { write(file, &text)? }
    }
    if let Some(file) = &args.markdown {
        write(file, &markdown::markdown(report))?;
    }
    if let Some(file) = &args.svg {
        write(file, &svg::svg(report))?;
    }
    Ok(())
}

fn write(file: &std::path::Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("cannot write {}: {error}", file.display()),
            "Name a file that can be written",
        )
    })
}
