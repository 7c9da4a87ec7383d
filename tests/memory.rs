//! Limits of device memory, seen from programs.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use system_tests::{Bench, Ended, Link, Programs, Running, SOON, Service, run, wait_until};
use tempfile::TempDir;

const LOCAL: [Link; 2] = [Link::Tcp, Link::SharedMemory];

const MIB: u64 = 1 << 20;

/// A service with a policy, and a program that may have so many bytes.
struct Limited {
    bench: Bench,
    service: Service,
    client: PathBuf,
    most: u64,
    _directory: TempDir,
}

impl Limited {
    fn by(policy: &str, most: u64) -> Limited {
        let (bench, directory) = (Bench::new(), TempDir::new().unwrap());
        let path = directory.path().join("policy.toml");
        std::fs::write(&path, policy).unwrap();
        let variables = [("TELECL_POLICY", path.to_str().unwrap()), ("RUST_LOG", "info,telecl_service=debug")];
        let service = bench.service_at("127.0.0.1:0", &variables);
        let client = Programs::build().unwrap().path("memory_client");
        Limited { bench, service, client, most, _directory: directory }
    }

    fn command(&self, link: Link, case: &str) -> Command {
        let mut command = self.bench.vendor.command_over(link, &self.client, &self.service);
        command.arg(case).env("TELECL_TEST_MOST", self.most.to_string()).env("TELECL_STREAMS", "0");
        command
    }

    fn run(&self, link: Link, case: &str) -> Ended {
        let ended = run(self.command(link, case), SOON).unwrap();
        assert!(ended.success(), "{link}: {ended}");
        ended
    }

    fn start(&self, link: Link, case: &str, line: &str) -> Running {
        let mut running = Running::start(self.command(link, case)).unwrap();
        running.expect_line(line, SOON);
        running
    }
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(process).unwrap()).unwrap(), signal).unwrap();
}

#[test]
fn a_program_is_told_what_it_may_use_and_gets_that_to_the_byte() {
    let limited = Limited::by("[defaults]\nsession_memory = \"3 MiB\"\n", 3 * MIB);
    for link in LOCAL {
        assert!(limited.run(link, "is_told_what_it_may_use").stdout.ends_with("told\n"));
        let all = limited.run(link, "uses_all_of_it");
        assert!(all.stdout.ends_with("all of it\n"), "{link}: {all}");
        let told = "this session may use 3145728 bytes of device 1, has 3145728, and wants 1 more";
        assert!(all.stderr.contains(told), "{link}: {all}");
    }
}

#[test]
fn a_program_is_refused_at_once_and_without_the_service() {
    let limited = Limited::by("[defaults]\nsession_memory = \"1 MiB\"\n", MIB);
    for link in LOCAL {
        let program = limited.start(link, "is_refused_without_the_service", "full");
        let worker = limited.service.only_worker();
        signal(worker, Signal::STOP);
        signal(program.id(), Signal::USR1);
        let ended = program.end(SOON);
        assert_eq!(ended.stdout, "full\nrefused\n", "{link}: {ended}");
        signal(worker, Signal::CONT);
        limited.service.wait_without_workers(SOON);
    }
}

#[test]
fn a_thousand_allocations_and_releases_leave_nothing_behind() {
    // On a device without a limit of its own, and on one that is shared.
    for policy in ["session_memory = \"4 MiB\"", "device_memory = \"4 MiB\""] {
        let limited = Limited::by(&format!("[defaults]\n{policy}\n"), 4 * MIB);
        for link in LOCAL {
            let ended = limited.run(link, "allocates_and_releases_a_thousand_times");
            assert_eq!(ended.stdout, "counted\n", "{link}: {ended}");
        }
        let ends = || {
            let log = limited.service.log();
            log.lines().filter(|line| line.contains("memory of the session") && line.contains("left=0")).count()
        };
        wait_until("both sessions ended without memory", SOON, || ends() == 2);
    }
}

#[test]
fn programs_of_a_tenant_share_its_memory_and_a_killed_one_gives_back() {
    for link in LOCAL {
        let limited = Limited::by("[defaults]\ndevice_memory = \"2 MiB\"\n", 2 * MIB);
        let holder = limited.start(link, "takes_it_and_holds_it", "CL_SUCCESS");
        let refused = limited.run(link, "takes_it");
        assert_eq!(refused.stdout, "CL_MEM_OBJECT_ALLOCATION_FAILURE\n", "{link}: {refused}");
        let told = "may use 2097152 bytes of device 1 together (device_memory), and have 2097152";
        assert!(refused.stderr.contains(told), "{link}: {refused}");
        // The program is killed, and then its worker.
        signal(holder.id(), Signal::KILL);
        limited.service.wait_without_workers(SOON);
        let holder = limited.start(link, "takes_it_and_holds_it", "CL_SUCCESS");
        assert_eq!(limited.run(link, "takes_it").stdout, "CL_MEM_OBJECT_ALLOCATION_FAILURE\n", "{link}");
        signal(limited.service.only_worker(), Signal::KILL);
        wait_until("it is free", SOON, || limited.run(link, "takes_it").stdout == "CL_SUCCESS\n");
        drop(holder);
    }
}

#[test]
fn a_tenant_with_one_session_has_its_memory_for_itself() {
    let limited = Limited::by("[defaults]\ndevice_memory = \"1 MiB\"\nsessions = 1\n", MIB);
    for link in LOCAL {
        assert!(limited.run(link, "uses_all_of_it").stdout.ends_with("all of it\n"), "{link}");
        limited.service.wait_without_workers(SOON);
    }
    assert!(!limited.service.log().contains("session refused memory"));
}
