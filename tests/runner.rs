//! Runs every C case on the vendor's driver and through telecl, there over TCP and through shared memory, and demands
//! the same output and exit code each time. Cases with large transfers also run over further streams and with compression.
//!
//!     cargo test -p telecl-system-tests --test system [FILTER]
//!
//! `TELECL_TEST_ICD` names the vendor's .icd file (PoCL's by default). A case asserts what the specification demands,
//! so it fails on its own where the vendor is wrong; with `TELECL_TEST_PARITY_ONLY=1`, for vendors whose deviations are
//! not noted in the cases, only the difference between the runs counts.
#![forbid(unsafe_code)]

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use system_tests::{Artifacts, Ended, Link, Programs, Service, Vendor, diff, run};

/// Cases in which telecl may differ from the vendor's driver, `program::case`, each with the reason. A case that no
/// longer differs must leave the table.
const EXPECTED_DIFFERENCES: &[(&str, &str)] = &[];

/// How long one run of a case may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The exit code of a case that is not possible on this device.
const SKIPPED: i32 = 77;

/// The clients of `faults.rs`, `cache.rs` and others; their cases do not stand alone.
const NOT_CASES: &[&str] = &[
    "fault_client",
    "cache_client",
    "memory_client",
    "move_client",
    "confine_client",
    "restart_client",
    "lost_client",
];

/// Programs whose transfers are large enough for further streams.
const STREAMED: &[&str] = &["buffer_transfer", "transfer_mixed", "transfer_order"];
/// Cases, or whole programs, that are worth another run with everything compressed that can be.
const COMPRESSED: &[&str] = &[
    "bulk",
    "buffer_transfer::forty_eight_mebibytes_arrive_whole_and_come_back_whole",
    "buffer_map::a_large_map_carries_every_byte_both_ways",
    "transfer_order::a_rectangle_has_what_was_there_before_the_kernel_behind_it",
    "transfer_order::reads_and_writes_at_the_same_time_do_not_hold_each_other_up",
];

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
            let mut links = Link::ALL.to_vec();
            if STREAMED.contains(&program.as_str()) {
                links.extend(Link::STREAMS);
            }
            let full_name = name.clone();
            let compressed = COMPRESSED.contains(&program.as_str()) || COMPRESSED.contains(&name.as_str());
            trials.push(Trial::test(name, move || {
                let setup = bench.setup()?;
                if telecl_only {
                    return links.into_iter().try_for_each(|link| judge_alone(&setup.through(&path, &case, link)?));
                }
                let mut direct = setup.vendor.command_direct(&path);
                direct.arg(&case);
                let direct = run(direct, LIMIT)?;
                for link in links {
                    judge_pair(&full_name, &direct, &setup.through(&path, &case, link)?)
                        .map_err(|failed| format!("{link}: {}", failed.message().unwrap_or_default()))?;
                }
                if compressed {
                    judge_pair(&full_name, &direct, &setup.compressed(&path, &case)?)
                        .map_err(|failed| format!("compressed: {}", failed.message().unwrap_or_default()))?;
                }
                Ok(())
            }));
        }
    }
    Ok(trials)
}

/// A case about telecl itself must be right by its own account.
fn judge_alone(through: &Ended) -> Result<(), Failed> {
    let quiet = through.stderr.is_empty();
    let right = through.success() || is_skip(through);
    if right && quiet { Ok(()) } else { Err(format!("through telecl: {through}").into()) }
}

fn judge_pair(name: &str, direct: &Ended, through: &Ended) -> Result<(), Failed> {
    let difference = difference(direct, through);
    let expected = EXPECTED_DIFFERENCES.iter().find(|(case, _)| *case == name);
    match (difference, expected) {
        (Some(_), Some(_)) => Ok(()),
        (Some(difference), None) => Err(difference.into()),
        (None, Some((_, reason))) => {
            Err(format!("no longer differs; remove it from EXPECTED_DIFFERENCES (there because: {reason})").into())
        }
        (None, None) if direct.success() || is_skip(direct) || env::var_os("TELECL_TEST_PARITY_ONLY").is_some() => {
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
    /// One for each link, so that also what a case has started can be told apart.
    services: Vec<(Link, Service)>,
}

impl Setup {
    /// Runs a case through telecl; an error if it went over another link than this.
    fn through(&self, program: &Path, case: &str, link: Link) -> Result<Ended, Failed> {
        let service = self.service(link)?;
        let mut command = self.vendor.command_over(link, program, service);
        command.arg(case);
        let ended = run(command, LIMIT)?;
        service.check_link(ended.id, link)?;
        Ok(ended)
    }

    /// As [`Setup::through`], over TCP and with compression.
    fn compressed(&self, program: &Path, case: &str) -> Result<Ended, Failed> {
        let service = self.service(Link::Tcp)?;
        let mut command = self.vendor.command_over(Link::Tcp, program, service);
        command.arg(case).env("TELECL_COMPRESSION", "always");
        let ended = run(command, LIMIT)?;
        service.check_compression(ended.id, true)?;
        Ok(ended)
    }

    fn service(&self, link: Link) -> Result<&Service, Failed> {
        let found = self.services.iter().find(|(of, _)| *of == link);
        found.map(|(_, service)| service).ok_or_else(|| "no such service".into())
    }
}

impl Bench {
    fn setup(&self) -> Result<&Setup, Failed> {
        let made = self.0.get_or_init(|| {
            let artifacts = Artifacts::find()?;
            let vendor = Vendor::select(&artifacts)?;
            let start = |link| Service::start(&artifacts, &vendor).map(|service| (link, service));
            let services = Link::ALL.into_iter().chain(Link::STREAMS).map(start).collect::<Result<_, _>>()?;
            Ok(Setup { vendor, services })
        });
        made.as_ref().map_err(Failed::from)
    }

    /// Stops the services; says what was wrong with them. After the last case no worker may remain.
    fn close(self) -> Option<String> {
        let Setup { services, .. } = self.0.into_inner()?.ok()?;
        let stopped = services.into_iter().map(|(link, mut service)| {
            if service.ended().is_none() {
                service.wait_without_workers(Duration::from_secs(20));
            }
            service.check_all_links(link)?;
            if let Link::Streams(_) = link
                && service.log().contains("connection taken over")
                && service.streams() == 0
            {
                return Err(format!("no stream has ever joined\n{}", service.log()));
            }
            service.stop()
        });
        stopped.collect::<Result<(), String>>().err()
    }
}
