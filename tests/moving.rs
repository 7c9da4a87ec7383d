//! More programs than fit: sessions that are moved out to host memory, seen from programs.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use system_tests::{Bench, Link, Programs, Running, SOON, Service, run, wait_until};
use tempfile::TempDir;

const LOCAL: [Link; 2] = [Link::Tcp, Link::SharedMemory];

const MIB: u64 = 1 << 20;

/// Programs that take turns with the device's memory need more time than others.
const LONG: Duration = Duration::from_secs(90);

/// A service whose tenants may have more than fits, and what fits.
struct Small {
    bench: Bench,
    service: Service,
    client: PathBuf,
    most: u64,
    _directory: TempDir,
}

impl Small {
    fn of(mib: u64) -> Small {
        let (bench, directory) = (Bench::new(), TempDir::new().unwrap());
        let path = directory.path().join("policy.toml");
        let policy = format!("[defaults]\ndevice_memory = \"{mib} MiB\"\noversubscribe = true\n");
        std::fs::write(&path, policy).unwrap();
        let variables = [("TELECL_POLICY", path.to_str().unwrap()), ("RUST_LOG", "info,telecl_service=debug")];
        let service = bench.service_at("127.0.0.1:0", &variables);
        let client = Programs::build().unwrap().path("move_client");
        Small { bench, service, client, most: mib * MIB, _directory: directory }
    }

    fn command(&self, link: Link, case: &str) -> Command {
        let mut command = self.bench.vendor.command_over(link, &self.client, &self.service);
        command.arg(case).env("TELECL_TEST_MOST", self.most.to_string());
        command
    }

    fn start(&self, link: Link, case: &str, seed: u32) -> Running {
        self.start_for(link, case, seed, 40)
    }

    /// A program that computes so many rounds.
    fn start_for(&self, link: Link, case: &str, seed: u32, rounds: u32) -> Running {
        let mut command = self.command(link, case);
        command.env("TELECL_TEST_ROUNDS", rounds.to_string()).env("TELECL_TEST_SEED", seed.to_string());
        Running::start(command).unwrap()
    }

    /// How often sessions were moved out so far.
    fn moves(&self) -> usize {
        self.service.log().matches("session was moved out").count()
    }
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(process).unwrap()).unwrap(), signal).unwrap();
}

#[test]
fn two_programs_that_do_not_fit_together_alternate_and_keep_everything() {
    for link in LOCAL {
        let small = Small::of(32);
        let programs = [1, 2].map(|seed| small.start(link, "keeps_everything", seed));
        for program in programs {
            let ended = program.end(LONG);
            assert!(ended.success() && ended.stdout.ends_with("kept\n"), "{link}: {ended}\n{}", small.service.log());
        }
        assert!(small.moves() >= 4, "{link}: only {} moves\n{}", small.moves(), small.service.log());
        small.service.wait_without_workers(SOON);
    }
}

#[test]
fn eight_programs_on_room_for_four_all_have_right_results() {
    for link in LOCAL {
        let small = Small::of(16);
        let programs: Vec<Running> = (1..=8).map(|seed| small.start(link, "computes", seed)).collect();
        for program in programs {
            let ended = program.end(LONG);
            assert_eq!(ended.stdout, "ready\nright\n", "{link}: {ended}\n{}", small.service.log());
        }
        assert!(small.moves() >= 4, "{link}: only {} moves\n{}", small.moves(), small.service.log());
    }
}

#[test]
fn one_that_is_killed_while_sessions_move_is_missed_by_nobody() {
    let small = Small::of(16);
    let start = |seed| small.start_for(Link::SharedMemory, "computes", seed, 100 + 20 * seed);
    let programs: Vec<Running> = (1..=8).map(start).collect();
    let mut programs = programs.into_iter();
    for killed in programs.by_ref().take(3) {
        let before = small.moves();
        wait_until("sessions move", SOON, || small.moves() > before);
        signal(killed.id(), Signal::KILL);
        drop(killed);
    }
    for program in programs {
        let ended = program.end(LONG);
        assert_eq!(ended.stdout, "ready\nright\n", "{ended}\n{}", small.service.log());
    }
    small.service.wait_without_workers(SOON);
}

#[test]
fn a_session_whose_commands_wait_for_the_program_stays_and_others_wait_or_are_refused() {
    for link in LOCAL {
        let small = Small::of(8);
        let mut holder = small.start(link, "waits_for_its_event", 1);
        holder.expect_line("waiting", SOON);
        let refused = run(small.command(link, "wants_the_same"), LONG).unwrap();
        let log = small.service.log();
        assert!(refused.stdout.contains("CL_MEM_OBJECT_ALLOCATION_FAILURE"), "{link}: {refused}\n{log}");
        assert!(small.service.log().contains("none of them can be moved out"), "{link}");
        assert_eq!(small.moves(), 0, "{link}");
        // Who comes just before the event is set waits for that, and then gets it.
        let waits = Running::start(small.command(link, "wants_the_same")).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        signal(holder.id(), Signal::USR1);
        holder.expect_line("set", SOON);
        let ended = waits.end(LONG);
        assert_eq!(ended.stdout, "CL_SUCCESS\n", "{link}: {ended}\n{}", small.service.log());
        assert_eq!(small.moves(), 1, "{link}");
        signal(holder.id(), Signal::USR1);
        let kept = holder.end(SOON);
        assert!(kept.success() && kept.stdout.ends_with("kept\n"), "{link}: {kept}");
    }
}
