//! `telecl bench share`: several copies of a program at once, on the vendor's driver and through telecl.
//!
//! `copies.rs` runs one batch, `report.rs` has what came of all of them, and `picture.rs` draws it.

mod args;
mod copies;
mod picture;
mod report;
mod signals;

use std::ffi::OsString;
use std::fs;
use std::path::Path as FilePath;
use std::thread;
use std::time::Duration;

use self::copies::{Template, Trouble};
use self::report::{Cell, Line, Report, copies_of};
use self::signals::Signals;
use super::machine::{self, Machine};
use super::path::{Path, Private};
use super::progress::Progress;
use crate::exit::{Exit, Failure, Outcome, print};
use crate::run;
use crate::survey::{self, Answer};

pub(crate) use self::args::ShareArgs;
pub(crate) use self::copies::{BenchCopyArgs, bench_copy};

/// Between two batches: workers and contexts of the last one take a moment to go.
const PAUSE: Duration = Duration::from_millis(300);

pub(crate) fn share(args: &ShareArgs) -> Outcome {
    let report = match &args.from {
        Some(file) => read(file)?,
        None => match measure(args)? {
            Some(report) => report,
            None => return Ok(Exit::Failed),
        },
    };
    let json_to_stdout = args.json.as_deref().is_some_and(|file| file.as_os_str() == "-");
    if !json_to_stdout {
        print(report.text());
    }
    keep(args, &report)?;
    if let Some(file) = &args.svg {
        super::write(file, &picture::svg(&report))?;
    }
    Ok(if report.has_failed() { Exit::Failed } else { Exit::Ok })
}

fn read(file: &FilePath) -> Result<Report, Failure> {
    let wrong = |reason: String| {
        let what = format!("cannot use {}: {reason}", file.display());
        Failure::new(Exit::Usage, what, "Name a file that telecl bench share --json has written")
    };
    let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let mut report: Report = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    report.sum_up();
    Ok(report)
}

fn keep(args: &ShareArgs, report: &Report) -> Result<(), Failure> {
    let Some(file) = &args.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(report).unwrap_or_default() + "\n";
    if file.as_os_str() == "-" {
        print(text);
        return Ok(());
    }
    super::write(file, &text)
}

/// A column of the table: where the first copies go, and where those beyond them go.
#[derive(Debug)]
struct Way {
    name: String,
    first: Path,
    beyond: Option<Path>,
    at_once: usize,
}

impl Way {
    /// The path of each of so many copies.
    fn paths(&self, copies: u16, first: u16) -> Vec<&Path> {
        let beyond = self.beyond.as_ref().unwrap_or(&self.first);
        (0..copies).map(|number| if number < first { &self.first } else { beyond }).collect()
    }
}

/// `None` if somebody wanted it to end.
fn measure(args: &ShareArgs) -> Result<Option<Report>, Failure> {
    let template = template(&args.command, &args.expect)?;
    let date = machine::now();
    let mut notes = Vec::new();
    let (ways, device, second) = ways(args, &mut notes)?;
    let signals = Signals::install()
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot watch for signals: {error}"), "Try again"))?;

    let mut progress = Progress::new(args.rounds * args.counts.len() as u32 * ways.len() as u32);
    // The first time of everything is slower: compilers run, and files are read.
    for way in &ways {
        let beyond = if args.counts.iter().any(|count| *count > args.first) { way.beyond.as_ref() } else { None };
        for path in [Some(&way.first), beyond].into_iter().flatten() {
            progress.say("warm-up", &path.name);
            match copies::run(&template, &[path], 1, args.timeout, &signals) {
                Ok(_) => thread::sleep(PAUSE),
                Err(Trouble::Failed(reason)) => {
                    progress.finish();
                    let what = format!("the program does not run ({}): {reason}", path.name);
                    return Err(Failure::new(Exit::Failed, what, "Run it alone, to see what it needs"));
                }
                Err(Trouble::Interrupted) => return Ok(interrupted(&signals)),
            }
        }
    }
    let mut report = Report {
        telecl: env!("CARGO_PKG_VERSION").to_owned(),
        date,
        machine: Machine::this(),
        command: args.command.iter().map(|part| part.to_string_lossy().into_owned()).collect(),
        device,
        second,
        first: args.first,
        replicas: args.replicas,
        rounds: args.rounds,
        paths: ways.iter().map(|way| way.name.clone()).collect(),
        results: args.counts.iter().map(|count| Line { copies: *count, cells: cells(&ways) }).collect(),
        notes,
    };
    for round in 0..args.rounds {
        for number in 0..args.counts.len() {
            // Each path is the first equally often.
            for place in 0..ways.len() {
                let index = (place + round as usize) % ways.len();
                let (way, count) = (&ways[index], args.counts[number]);
                progress.say(&copies_of(count), &format!("{}, round {} of {}", way.name, round + 1, args.rounds));
                progress.advance(1);
                let cell = &mut report.results[number].cells[index];
                if cell.error.is_some() {
                    continue;
                }
                match copies::run(&template, &way.paths(count, args.first), way.at_once, args.timeout, &signals) {
                    Ok(took) => cell.rounds.push(took),
                    Err(Trouble::Failed(reason)) => cell.error = Some(reason),
                    Err(Trouble::Interrupted) => return Ok(interrupted(&signals)),
                }
                thread::sleep(PAUSE);
            }
        }
        report.sum_up();
        if args.json.as_deref().is_some_and(|file| file.as_os_str() != "-") {
            // What takes hours is not lost if a later round is.
            keep(args, &report)?;
        }
    }
    progress.finish();
    Ok(Some(report))
}

fn interrupted(signals: &Signals) -> Option<Report> {
    signals.obey();
    None
}

fn cells(ways: &[Way]) -> Vec<Cell> {
    ways.iter().map(|way| Cell { path: way.name.clone(), ..Cell::default() }).collect()
}

fn template(command: &[OsString], expect: &[String]) -> Result<Template, Failure> {
    let (name, arguments) = command.split_first().ok_or_else(|| {
        Failure::new(Exit::Usage, "no program was named", "Try: telecl bench share --counts 1,2 -- clinfo")
    })?;
    Ok(Template { program: run::find_program(name)?, arguments: arguments.to_vec(), expect: expect.to_vec() })
}

/// Direct, and the links through telecl, with the names of what the first copies and the others use.
fn ways(args: &ShareArgs, notes: &mut Vec<String>) -> Result<(Vec<Way>, String, Option<String>), Failure> {
    let driver = args.driver.as_deref();
    let policy = match &args.policy {
        Some(file) => Some(fs::read_to_string(file).map_err(|error| {
            let what = format!("cannot read the policy {}: {error}", file.display());
            Failure::new(Exit::Usage, what, "telecl policy check FILE says whether one is right")
        })?),
        None => args.device.as_deref().map(only),
    };
    let mut private = Private::start(driver, policy.as_deref(), true)?;
    let mut offered = ask(private.socket())?;
    let crowded = args.counts.iter().any(|count| *count > args.first);
    let mut other = None;
    let mut second = None;
    if let Some(address) = &args.also {
        let answer = ask(address)?;
        second = Some(format!("{} at {address}", names(&answer)));
        other = Some((private.elsewhere(&answer), None));
    } else if crowded
        && args.policy.is_none()
        && let Some(chosen) = second_device(args, &offered)
    {
        if args.device.is_none() {
            // Each is to see one device only. The first service goes on, with nothing to do.
            let first = offered.devices.iter().find(|device| device.kind == "GPU").or(offered.devices.first());
            let number = first.map_or(1, |device| device.number);
            private = Private::start(driver, Some(&only(&format!("number:{number}"))), true)?;
            offered = ask(private.socket())?;
        }
        let further = Private::start(driver, Some(&only(&chosen)), true)?;
        second = Some(names(&ask(further.socket())?));
        other = Some((further.shared_memory(), further.over_tcp()));
    } else if crowded {
        notes.push(format!("there is no second device: copies beyond the first {} share the first", args.first));
    }
    let shared = private.shared_memory();
    let direct = Path::direct();
    let at_once = args.replicas.map_or(usize::MAX, usize::from);
    let mut ways = vec![Way { name: direct.name.clone(), first: direct, beyond: None, at_once }];
    let beyond = other.as_ref().map(|(path, _)| path.clone());
    ways.push(Way { name: shared.name.clone(), first: shared, beyond, at_once: usize::MAX });
    if args.tcp
        && let Some(tcp) = private.over_tcp()
    {
        let beyond = other.map(|(path, tcp)| tcp.unwrap_or(path));
        ways.push(Way { name: tcp.name.clone(), first: tcp, beyond, at_once: usize::MAX });
    }
    Ok((ways, names(&offered), second))
}

/// The pattern of the device for the copies beyond the first: the one that was named, or the second GPU.
fn second_device(args: &ShareArgs, offered: &Answer) -> Option<String> {
    let gpu = || offered.devices.iter().filter(|device| device.kind == "GPU").nth(1);
    args.second.clone().or_else(|| gpu().map(|device| format!("number:{}", device.number)))
}

/// A policy under which nobody sees another device.
fn only(pattern: &str) -> String {
    // JSON's strings are strings of TOML as well.
    format!("[defaults]\ndevices = [{}]\n", serde_json::Value::from(pattern))
}

fn names(answer: &Answer) -> String {
    let names: Vec<&str> = answer.devices.iter().map(|device| device.name.as_str()).collect();
    names.join(", ")
}

fn ask(address: &telecl_config::Address) -> Result<Answer, Failure> {
    let answer = survey::ask_all(std::slice::from_ref(address), Duration::from_secs(10)).pop();
    match answer {
        Some(Ok(answer)) if answer.devices.is_empty() => Err(Failure::new(
            Exit::Unreachable,
            format!("{address} offers no device that can be used"),
            "Does clinfo list a device? telecl doctor checks every part",
        )),
        Some(Ok(answer)) => Ok(answer),
        Some(Err(silence)) => {
            let what = format!("{address} cannot be used: {}", silence.reason);
            Err(Failure::new(Exit::Unreachable, what, silence.advice))
        }
        None => Err(Failure::new(Exit::Failed, format!("{address} was not asked"), "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_beyond_the_first_have_a_path_of_their_own_if_there_is_one() {
        let [direct, tcp, shared]: [Path; 3] = Path::samples().try_into().unwrap();
        let mut way = Way { name: "x".to_owned(), first: tcp, beyond: Some(shared), at_once: 1 };
        let names = |way: &Way| way.paths(3, 2).iter().map(|path| path.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&way), ["tcp", "tcp", "shared memory"]);
        way.beyond = None;
        way.first = direct;
        assert_eq!(names(&way), ["direct"; 3]);
    }

    #[test]
    fn a_pattern_becomes_a_policy_that_can_be_read() {
        for pattern in ["number:2", "*\"H\\200\"*"] {
            let policy = telecl_policy::Policy::parse(FilePath::new("p"), &only(pattern)).unwrap();
            let device = telecl_policy::DeviceFacts { number: 2, name: "x", platform: "y", uuid: None };
            let devices = policy.for_tenant(&telecl_policy::Tenant::anonymous()).devices.value;
            assert_eq!(devices.allow(&device), pattern == "number:2");
        }
    }
}
