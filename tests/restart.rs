//! The broker is killed and started again while sessions run; it is told to stop, and lets them end.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use system_tests::{Bench, Link, Programs, Running, SOON, Service, is_alive, run, wait_until};
use tempfile::TempDir;

/// Twenty programs on two processors.
const LONG: Duration = Duration::from_secs(180);

/// A service that can be started again, and a program that computes.
struct Node {
    bench: Bench,
    service: Service,
    program: PathBuf,
    directory: TempDir,
}

impl Node {
    fn new(policy: &str, variables: &[(&str, &str)]) -> Node {
        let (bench, directory) = (Bench::new(), TempDir::new().unwrap());
        let (path, scratch) = (directory.path().join("policy.toml"), directory.path().join("tmp"));
        fs::write(&path, policy).unwrap();
        fs::create_dir(&scratch).unwrap();
        let mut all = vec![
            ("TELECL_POLICY", path.to_str().unwrap()),
            ("TMPDIR", scratch.to_str().unwrap()),
            ("RUST_LOG", "info,telecl_service=debug"),
        ];
        all.extend(variables);
        let service = bench.service_at("127.0.0.1:0", &all);
        let program = Programs::build().unwrap().path("restart_client");
        Node { bench, service, program, directory }
    }

    fn command(&self, link: Link, case: &str, seconds: u64) -> Command {
        let mut command = self.bench.vendor.command_over(link, &self.program, &self.service);
        command.arg(case).env("TELECL_TEST_SECONDS", seconds.to_string());
        command
    }

    fn start(&self, link: Link, case: &str, seconds: u64) -> Running {
        let mut program = Running::start(self.command(link, case, seconds)).unwrap();
        program.expect_line("ready", SOON);
        program
    }

    fn restart(&mut self) {
        self.service.kill();
        self.start_again();
    }

    fn start_again(&mut self) {
        self.service.start_again(&self.bench.artifacts, &self.bench.vendor).unwrap();
    }

    /// A command of `telecl` at this service, as one of its operators.
    fn telecl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.bench.artifacts.telecl);
        command.args(args).args(["--on", self.service.address()]);
        command
    }

    fn sessions(&self) -> Value {
        let ended = run(self.telecl(&["sessions", "--json"]), SOON).unwrap();
        assert!(ended.success(), "{ended}");
        serde_json::from_str::<Value>(&ended.stdout).unwrap()["services"][0].take()
    }

    /// What sessions need while they are there: directories of workers, and what the next broker finds.
    fn left(&self) -> Vec<PathBuf> {
        let scratch = entries(&self.directory.path().join("tmp"));
        let workers = scratch.iter().flat_map(|broker| entries(broker)).filter(|path| !path.ends_with("lock"));
        let states = entries(&self.service.socket_directory());
        let states = states.iter().filter(|path| path.is_dir()).flat_map(|state| entries(state));
        workers.chain(states.filter(|path| !path.ends_with("lock"))).collect()
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[test]
fn a_session_goes_on_when_the_broker_is_killed_and_started_again() {
    for link in Link::ALL {
        let mut node = Node::new("", &[]);
        let program = node.start(link, "works_for_a_while", 5);
        let worker = node.service.only_worker();
        node.service.kill();
        thread::sleep(Duration::from_millis(500));
        assert!(is_alive(worker), "{link}: {}", node.service.log());
        node.start_again();
        let listed = node.sessions();
        assert_eq!(listed["sessions"][0]["pid"], program.id(), "{link}: {listed}");
        let ended = program.end(LONG);
        assert_eq!(ended.stdout, "ready\nright\n", "{link}: {ended}\n{}", node.service.log());
        wait_until("the worker ends", SOON, || !is_alive(worker));
        wait_until("nothing is left", SOON, || node.left().len() <= node.service.idle_workers().len());
    }
}

/// What the twenty programs below use of it comes to 33 MiB of one tenant, and 6 MiB of one session.
const POLICY: &str = "\
[defaults]
device_memory = \"34 MiB\"
session_memory = \"6 MiB\"
sessions = 40
commands = 64
longest_kernel = \"60 s\"
[[tenant]]
match = \"anonymous\"
weight = 3
";

#[test]
fn twenty_sessions_finish_right_although_the_broker_is_killed_again_and_again() {
    let mut node = Node::new(POLICY, &[]);
    let links = [Link::SharedMemory, Link::Tcp, Link::Streams(3), Link::SharedMemory];
    let programs: Vec<Running> = (0..20)
        .map(|number| {
            let mut command = node.command(links[number % links.len()], "works_for_a_while", 25);
            let bytes = [1 << 20, 2 << 20, 6 << 20][number % 3];
            command.env("TELECL_TEST_SEED", number.to_string()).env("TELECL_TEST_BYTES", bytes.to_string());
            Running::start(command).unwrap()
        })
        .collect();
    wait_until("all have workers", LONG, || node.service.workers().len() == 20);
    let workers = node.service.workers();
    // Moments that no clock of the service's own knows.
    for (round, pause) in [1700, 300, 2900, 40, 1100].into_iter().enumerate() {
        thread::sleep(Duration::from_millis(pause));
        node.restart();
        let listed = node.sessions();
        let count = listed["sessions"].as_array().unwrap().len();
        assert_eq!(count, 20, "round {round}: {listed}\n{}", node.service.log());
        if round % 2 == 0 {
            node.bench.assert_serves(&mut node.service);
        }
    }
    assert!(workers.iter().all(|worker| is_alive(*worker)), "{}", node.service.log());
    for program in programs {
        let ended = program.end(LONG);
        assert!(ended.success() && ended.stdout.ends_with("right\n"), "{ended}\n{}", node.service.log());
    }
    wait_until("the workers end", SOON, || workers.iter().all(|worker| !is_alive(*worker)));
    wait_until("nothing is left", SOON, || node.left().len() <= node.service.idle_workers().len());
    let listed = node.sessions();
    assert_eq!(listed["devices"][0]["memory_used"], 0, "{listed}");
    node.service.stop().unwrap();
}
