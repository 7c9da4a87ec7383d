//! The broker is killed and started again while sessions run; it is told to stop, and lets them end.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use system_tests::{
    Bench, Link, Programs, Running, SOON, Service, get, is_alive, metric, metrics_address, run, wait_until,
};
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

    /// One that has no Unix socket.
    fn bench_serves_over_tcp(&mut self) {
        let ended = run(self.bench.command(&self.service, Link::Tcp, "use_once"), SOON).unwrap();
        assert_eq!(ended.stdout, "served\n", "{ended}\n{}", self.service.log());
    }

    fn sessions(&self) -> Value {
        let ended = run(self.telecl(&["sessions", "--json"]), SOON).unwrap();
        assert!(ended.success(), "{ended}");
        serde_json::from_str::<Value>(&ended.stdout).unwrap()["services"][0].take()
    }

    /// What sessions need while they are there: directories of workers, and what the next broker finds.
    fn left(&self) -> Vec<PathBuf> {
        let scratch = entries(&self.directory.path().join("tmp"));
        let workers = scratch.iter().flat_map(|broker| entries(broker));
        // Where tenants' compilers keep what they have made belongs to the service.
        let workers = workers.filter(|path| !path.ends_with("lock") && !path.ends_with("homes"));
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
    // They work until all is over, however long that takes here.
    let stop = node.directory.path().join("stop");
    let programs: Vec<Running> = (0..20)
        .map(|number| {
            let mut command = node.command(links[number % links.len()], "works_for_a_while", 0);
            command.env("TELECL_TEST_STOP", &stop);
            let bytes = [1 << 20, 2 << 20, 6 << 20][number % 3];
            command.env("TELECL_TEST_SEED", number.to_string()).env("TELECL_TEST_BYTES", bytes.to_string());
            Running::start(command).unwrap()
        })
        .collect();
    wait_until("all have workers", LONG, || node.service.workers().len() == 20);
    let workers = node.service.workers();
    // Other moments each time; the seed is for whoever wants the same ones again.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let mut random = u64::from(now.subsec_nanos());
    println!("seed {random}");
    for round in 0..6 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        thread::sleep(Duration::from_millis((random >> 33) % 2000));
        node.restart();
        let listed = node.sessions();
        let count = listed["sessions"].as_array().unwrap().len();
        assert_eq!(count, 20, "round {round}: {listed}\n{}", node.service.log());
        if round % 2 == 0 {
            node.bench.assert_serves_within(&mut node.service, LONG);
        }
    }
    assert!(workers.iter().all(|worker| is_alive(*worker)), "{}", node.service.log());
    fs::write(&stop, "").unwrap();
    for program in programs {
        let ended = program.end(LONG);
        assert!(ended.success() && ended.stdout.ends_with("right\n"), "{ended}\n{}", node.service.log());
    }
    wait_until("the workers end", SOON, || workers.iter().all(|worker| !is_alive(*worker)));
    wait_until("nothing is left", SOON, || node.left().len() <= node.service.idle_workers().len());
    wait_until("all sessions are closed", SOON, || node.sessions()["sessions"].as_array().unwrap().is_empty());
    let listed = node.sessions();
    assert_eq!(listed["devices"][0]["memory_used"], 0, "{listed}");
    node.service.stop().unwrap();
}

/// Programs that take turns with the device's memory, and are moved out to host memory in between.
#[test]
fn sessions_that_are_moved_out_and_in_finish_right_although_the_broker_is_killed() {
    let most = 16u64 << 20;
    let policy = "[defaults]\ndevice_memory = \"16 MiB\"\noversubscribe = true\n";
    let mut node = Node::new(policy, &[("TELECL_METRICS", "127.0.0.1:0")]);
    let program = Programs::build().unwrap().path("move_client");
    let start = |node: &Node, seed: u32| {
        let mut command = node.bench.vendor.command_over(Link::SharedMemory, &program, &node.service);
        command.arg("computes").env("TELECL_TEST_MOST", most.to_string());
        command.env("TELECL_TEST_ROUNDS", "250").env("TELECL_TEST_SEED", seed.to_string());
        Running::start(command).unwrap()
    };
    let mut programs: Vec<Running> = (1..=8).map(|seed| start(&node, seed)).collect();
    // They make nothing more from then on: what they have is in one place or in the other.
    programs.iter_mut().for_each(|program| program.expect_line("ready", LONG));
    let moves = |node: &Node| node.service.log().matches("session was moved out").count();
    for pause in [0, 150, 30] {
        let before = moves(&node);
        wait_until("sessions move", LONG, || moves(&node) > before + 2);
        thread::sleep(Duration::from_millis(pause));
        node.restart();
        // Who waited for memory was not given what others still have.
        let bytes = |name| metric(&node.service, name, &[]);
        let (all, parked) = (bytes("telecl_tenant_memory_bytes"), bytes("telecl_tenant_memory_parked_bytes"));
        assert!(all - parked <= most as f64, "{all} - {parked} of {most} bytes\n{}", node.service.log());
    }
    for program in programs {
        let ended = program.end(LONG);
        assert_eq!(ended.stdout, "ready\nright\n", "{ended}\n{}", node.service.log());
    }
    assert!(!node.service.log().contains("panicked"), "{}", node.service.log());
    wait_until("nothing is left", SOON, || node.left().len() <= node.service.idle_workers().len());
}

#[test]
fn programs_that_only_look_or_wait_do_not_notice_that_the_service_is_replaced() {
    let mut node = Node::new("", &[]);
    let cases = [(Link::SharedMemory, "looks_first"), (Link::Tcp, "looks_first"), (Link::Tcp, "computes_when_told")];
    let programs = cases.map(|(link, case)| node.start(link, case, 3));
    // As one does who installs another version.
    send(&node.service, Signal::USR1);
    await_end(&mut node.service);
    node.start_again();
    for (program, case) in programs.into_iter().zip(cases) {
        let ended = program.end(LONG);
        assert_eq!(ended.stdout, "ready\nright\n", "{case:?}: {ended}\n{}", node.service.log());
    }
    wait_until("nothing is left", SOON, || node.left().len() <= node.service.idle_workers().len());
}

#[test]
fn what_is_known_of_a_session_is_known_after_a_restart_and_it_can_be_ended() {
    let mut node = Node::new("[defaults]\nsession_memory = \"8 MiB\"\n", &[("TELECL_METRICS", "127.0.0.1:0")]);
    let program = node.start(Link::SharedMemory, "works_until_it_is_told", 0);
    let before = node.sessions()["sessions"][0].take();
    node.restart();
    let after = node.sessions();
    let session = &after["sessions"][0];
    for key in ["session", "tenant", "user", "peer", "program", "pid", "working"] {
        assert_eq!(session[key], before[key], "{key}: {after}");
    }
    let number = |value: &Value, key: &str| value[key].as_f64().unwrap();
    assert!(number(session, "age_seconds") >= number(&before, "age_seconds"), "{before} {after}");
    assert!(number(session, "commands") >= number(&before, "commands"), "{before} {after}");
    assert_eq!(session["devices"][0]["memory"], 4096, "{after}");
    assert_eq!(after["devices"][0]["sessions"], 1, "{after}");
    assert_eq!(after["devices"][0]["memory_used"], 4096, "{after}");
    let (_, page) = get(&metrics_address(&node.service), "/metrics");
    assert!(page.contains("telecl_service_draining 0.0"), "{page}");
    let used = page.lines().find(|line| line.starts_with("telecl_device_memory_used_bytes"));
    assert!(used.is_some_and(|line| line.ends_with(" 4096.0")), "{used:?}\n{page}");
    let id = session["session"].to_string();
    let ended = run(node.telecl(&["sessions", "end", &id]), SOON).unwrap();
    assert!(ended.success() && ended.stdout.contains("has ended"), "{ended}\n{}", node.service.log());
    let told = program.end(SOON);
    assert!(told.success() && told.stdout.contains("ended by an operator"), "{told}");
    assert!(node.sessions()["sessions"].as_array().unwrap().is_empty());
    // The next session is another one.
    let next = node.start(Link::Tcp, "works_until_it_is_told", 0);
    assert_ne!(node.sessions()["sessions"][0]["session"].to_string(), id);
    drop(next);
    wait_until("nothing is left", SOON, || node.left().len() <= node.service.idle_workers().len());
}

#[test]
fn a_place_that_is_taken_stays_taken_after_a_restart() {
    let mut node = Node::new("[service]\nsessions_per_device = 1\n", &[]);
    let holder = node.start(Link::SharedMemory, "works_until_it_is_told", 0);
    node.restart();
    let mut command = node.bench.command(&node.service, Link::SharedMemory, "use_or_be_told");
    let refused = run(command, SOON).unwrap();
    assert!(refused.stdout.contains("sessions_per_device"), "{refused}\n{}", node.service.log());
    // One that waits for the place while there is no broker gets it from the next.
    node.service.kill();
    drop(holder);
    node.start_again();
    command = node.bench.command(&node.service, Link::Tcp, "use_or_be_told");
    let served = run(command, SOON).unwrap();
    assert!(served.stdout.ends_with("served\n"), "{served}\n{}", node.service.log());
}

#[test]
fn a_session_that_waits_in_vain_for_the_next_broker_ends_and_says_so() {
    let place = TempDir::new().unwrap();
    let book = place.path().join("sessions.jsonl");
    let mut node = Node::new("", &[("TELECL_ORPHAN_GRACE", "1s"), ("TELECL_ACCOUNTING", book.to_str().unwrap())]);
    let program = node.start(Link::SharedMemory, "works_until_it_is_told", 0);
    let worker = node.service.only_worker();
    node.service.kill();
    let told = program.end(SOON);
    let reason = "the service was stopped, and was not started again within 1s";
    assert!(told.success() && told.stdout.contains(reason), "{told}\n{}", node.service.log());
    wait_until("the worker ends", SOON, || !is_alive(worker));
    assert!(!node.left().is_empty(), "there was nobody to remove it");
    node.start_again();
    wait_until("nothing is left", SOON, || node.left().len() <= node.service.idle_workers().len());
    wait_until("the session is accounted for", SOON, || book.exists());
    let line: Value = serde_json::from_str(fs::read_to_string(&book).unwrap().lines().next().unwrap()).unwrap();
    assert!(line["ended"].as_str().unwrap().contains("while no service looked after it"), "{line}");
    node.bench.assert_serves(&mut node.service);
}

#[test]
fn a_session_of_another_version_is_left_alone_and_ends_soon() {
    let mut node = Node::new("", &[("TELECL_ORPHAN_GRACE", "3s")]);
    let program = node.start(Link::Tcp, "works_until_it_is_told", 0);
    node.service.kill();
    let record = node.left().into_iter().find(|path| path.extension().is_some_and(|found| found == "json")).unwrap();
    let mut content: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    content["channel"] = 99.into();
    fs::write(&record, content.to_string()).unwrap();
    node.start_again();
    assert!(node.service.log().contains("begun by another version"), "{}", node.service.log());
    assert!(node.sessions()["sessions"].as_array().unwrap().is_empty());
    node.bench.assert_serves(&mut node.service);
    let told = program.end(SOON);
    assert!(told.success() && told.stdout.contains("was not started again within 3s"), "{told}");
    wait_until("nothing is left", SOON, || node.left().len() <= node.service.idle_workers().len());
}

// ---- draining --------------------------------------------------------------------------------------------------------

fn send(service: &Service, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(service.id()).unwrap()).unwrap(), signal).unwrap();
}

fn await_end(service: &mut Service) {
    let mut ended = None;
    wait_until("the service stops", SOON, || {
        ended = service.ended();
        ended.is_some()
    });
    assert!(ended.unwrap().success(), "{}", service.log());
}

#[test]
fn sigterm_takes_no_new_sessions_and_lets_running_ones_finish() {
    let mut node = Node::new("", &[("TELECL_DRAIN_GRACE", "2m")]);
    let program = node.start(Link::SharedMemory, "works_for_a_while", 3);
    send(&node.service, Signal::TERM);
    wait_until("the service drains", SOON, || node.sessions()["draining"] == true);
    let mut command = node.bench.command(&node.service, Link::Tcp, "count_platforms");
    command.env("TELECL_DEBUG", "1");
    let refused = run(command, SOON).unwrap();
    assert!(refused.stdout.contains("0 platforms"), "{refused}");
    assert!(refused.stderr.contains("this service is draining: it takes no new sessions"), "{refused}");
    assert!(node.service.ended().is_none(), "{}", node.service.log());
    let ended = program.end(LONG);
    assert_eq!(ended.stdout, "ready\nright\n", "{ended}\n{}", node.service.log());
    await_end(&mut node.service);
    assert!(node.left().is_empty(), "{:?}", node.left());
}

#[test]
fn a_session_that_outstays_the_grace_is_ended_and_so_is_one_at_the_second_sigterm() {
    for (grace, twice) in [("1s", false), ("10m", true)] {
        let mut node = Node::new("", &[("TELECL_DRAIN_GRACE", grace)]);
        let program = node.start(Link::Tcp, "works_until_it_is_told", 0);
        send(&node.service, Signal::TERM);
        if twice {
            wait_until("the service drains", SOON, || node.sessions()["draining"] == true);
            send(&node.service, Signal::TERM);
        }
        let told = program.end(SOON);
        assert!(told.success() && told.stdout.contains("the service is stopping"), "{grace}: {told}");
        await_end(&mut node.service);
    }
}

#[test]
fn telecl_drain_empties_a_service_and_says_how_far_it_is() {
    let mut node = Node::new("", &[("TELECL_DRAIN_GRACE", "10m")]);
    let program = node.start(Link::SharedMemory, "works_until_it_is_told", 0);
    // It stays, and takes sessions again.
    let kept = run(node.telecl(&["drain", "--keep", "--grace", "500ms"]), SOON).unwrap();
    assert!(kept.success() && kept.stdout.contains("is draining: 1 session left"), "{kept}\n{}", node.service.log());
    assert!(kept.stdout.contains("has drained, and takes no new sessions"), "{kept}");
    let told = program.end(SOON);
    assert!(told.stdout.contains("the service was drained, and the session did not end in time"), "{told}");
    let refused = run(node.bench.command(&node.service, Link::Tcp, "count_platforms"), SOON).unwrap();
    assert!(refused.stdout.contains("0 platforms"), "{refused}");
    let listed = run(node.telecl(&["sessions"]), SOON).unwrap();
    assert!(listed.stdout.contains("is draining: it takes no new sessions"), "{listed}");
    let undone = run(node.telecl(&["drain", "--undo"]), SOON).unwrap();
    assert!(undone.success() && undone.stdout.contains("takes new sessions"), "{undone}");
    node.bench.assert_serves(&mut node.service);
    // It stops when the last one has ended.
    let program = node.start(Link::SharedMemory, "works_for_a_while", 2);
    let drained = run(node.telecl(&["drain", "--json"]), LONG).unwrap();
    assert!(drained.success(), "{drained}\n{}", node.service.log());
    let lines: Vec<Value> = drained.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["sessions"], &lines[0]["done"]), (&Value::from(1), &Value::from(false)), "{drained}");
    assert_eq!(lines.last().unwrap()["done"], true, "{drained}");
    let ended = program.end(SOON);
    assert_eq!(ended.stdout, "ready\nright\n", "{ended}");
    await_end(&mut node.service);
    let gone = run(node.telecl(&["drain"]), SOON).unwrap();
    assert!(gone.stderr.contains("error: "), "{gone}");
}

#[test]
fn who_is_not_an_operator_may_not_drain_a_service() {
    let mut node = Node::new("", &[("TELECL_LOCAL_SOCKET", "false")]);
    let refused = run(node.telecl(&["drain"]), SOON).unwrap();
    assert!(!refused.success() && refused.stderr.contains("only root and the user who runs the service"), "{refused}");
    node.bench_serves_over_tcp();
}
