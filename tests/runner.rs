//! Runs every C case twice, on the vendor's driver and through telecl, and demands the same output and exit code.
//!
//!     cargo test -p telecl-system-tests --test system [FILTER]
//!
//! `TELECL_TEST_ICD` names the vendor's .icd file (PoCL's by default). A case asserts what the specification demands,
//! so it fails on its own where the vendor is wrong; with `TELECL_TEST_PARITY_ONLY=1`, for vendors whose deviations are
//! not noted in the cases, only the difference between the two runs counts.
#![forbid(unsafe_code)]

use std::env;
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use system_tests::{Artifacts, Ended, Programs, Service, Vendor, diff, run};

/// Cases in which telecl may differ from the vendor's driver, `program::case`, each with the reason. A case that no
/// longer differs must leave the table.
const EXPECTED_DIFFERENCES: &[(&str, &str)] = &[];

/// How long one run of a case may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The exit code of a case that is not possible on this device.
const SKIPPED: i32 = 77;

/// The clients of `faults.rs` and `cache.rs`; their cases do not stand alone.
const NOT_CASES: &[&str] = &["fault_client", "cache_client"];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let bench = Arc::new(Bench::default());
    let trials = match trials(&bench) {
        Ok(trials) => trials,
        Err(reason) => return failure(&reason),
    };
    let conclusion = libtest_mimic::run(&arguments, trials);
    match Arc::into_inner(bench).and_then(Bench::close) {
        Some(reason) => failure(&reason),
        None => conclusion.exit_code(),
    }
}

fn failure(reason: &str) -> ExitCode {
    eprintln!("error: {reason}");
    ExitCode::FAILURE
}

fn trials(bench: &Arc<Bench>) -> Result<Vec<Trial>, String> {
    let programs = Programs::build()?;
    let mut trials = Vec::new();
    for program in programs.names().iter().filter(|name| !NOT_CASES.contains(&name.as_str())) {
        for (case, telecl_only) in programs.cases(program)? {
            let (bench, path, name) = (Arc::clone(bench), programs.path(program), format!("{program}::{case}"));
            let full_name = name.clone();
            trials.push(Trial::test(name, move || {
                let setup = bench.setup()?;
                let mut through = setup.vendor.command_through(&path, &setup.service);
                through.arg(&case);
                if telecl_only {
                    return judge_alone(through);
                }
                let mut direct = setup.vendor.command_direct(&path);
                direct.arg(&case);
                judge_pair(&full_name, direct, through)
            }));
        }
    }
    Ok(trials)
}

/// A case about telecl itself must be right by its own account.
fn judge_alone(through: Command) -> Result<(), Failed> {
    let ended = run(through, LIMIT)?;
    let quiet = ended.stderr.is_empty();
    if (ended.success() || is_skip(&ended)) && quiet { Ok(()) } else { Err(format!("through telecl: {ended}").into()) }
}

fn judge_pair(name: &str, direct: Command, through: Command) -> Result<(), Failed> {
    let direct = run(direct, LIMIT)?;
    let through = run(through, LIMIT)?;
    let difference = difference(&direct, &through);
    let expected = EXPECTED_DIFFERENCES.iter().find(|(case, _)| *case == name);
    match (difference, expected) {
        (Some(_), Some(_)) => Ok(()),
        (Some(difference), None) => Err(difference.into()),
        (None, Some((_, reason))) => {
            Err(format!("no longer differs; remove it from EXPECTED_DIFFERENCES (there because: {reason})").into())
        }
        (None, None) if direct.success() || is_skip(&direct) || env::var_os("TELECL_TEST_PARITY_ONLY").is_some() => {
            Ok(())
        }
        (None, None) => Err(format!("the same on both sides, and wrong on both:\n{direct}").into()),
    }
}

/// In what the two runs differ, for a reader.
fn difference(direct: &Ended, through: &Ended) -> Option<String> {
    let mut parts = Vec::new();
    if direct.status != through.status || through.status.is_none() {
        parts.push(format!("direct: {}\nthrough telecl: {}", direct.how(), through.how()));
    }
    parts.extend(diff(&direct.stdout, &through.stdout));
    // The driver is a guest in the program's process and prints nothing of its own.
    if !through.stderr.is_empty() {
        parts.push(format!("stderr through telecl:\n{}", through.stderr.trim_end()));
    }
    if parts.is_empty() { None } else { Some(parts.join("\n")) }
}

fn is_skip(ended: &Ended) -> bool {
    ended.status.and_then(|status| status.code()) == Some(SKIPPED)
}

/// What all cases share, made when the first one runs.
#[derive(Default)]
struct Bench(OnceLock<Result<Setup, String>>);

struct Setup {
    vendor: Vendor,
    service: Service,
}

impl Bench {
    fn setup(&self) -> Result<&Setup, Failed> {
        let made = self.0.get_or_init(|| {
            let artifacts = Artifacts::find()?;
            let vendor = Vendor::select(&artifacts)?;
            let service = Service::start(&artifacts, &vendor)?;
            Ok(Setup { vendor, service })
        });
        made.as_ref().map_err(Failed::from)
    }

    /// Stops the service; says what was wrong with it. After the last case no worker may remain.
    fn close(self) -> Option<String> {
        let Setup { mut service, .. } = self.0.into_inner()?.ok()?;
        if service.ended().is_none() {
            service.wait_without_workers(Duration::from_secs(20));
        }
        service.stop().err()
    }
}
