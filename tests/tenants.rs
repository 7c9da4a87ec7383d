//! What a policy does, seen from programs and from the command line.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use system_tests::{Bench, Ended, Link, Running, SOON, Service, metric, run, wait_until};
use tempfile::TempDir;

const LOCAL: [Link; 2] = [Link::Tcp, Link::SharedMemory];

/// Another user than the one who runs the tests.
const STRANGER: u32 = 54_321;

/// A service with a policy that can be changed.
struct Governed {
    bench: Bench,
    service: Service,
    directory: TempDir,
}

impl Governed {
    fn by(policy: &str) -> Governed {
        Governed::with(policy, &[])
    }

    fn with(policy: &str, variables: &[(&str, &str)]) -> Governed {
        let (bench, directory) = (Bench::new(), TempDir::new().unwrap());
        let path = directory.path().join("policy.toml");
        fs::write(&path, policy).unwrap();
        let path = path.display().to_string();
        let variables = [&[("TELECL_POLICY", path.as_str())], variables].concat();
        let service = bench.service_at("127.0.0.1:0", &variables);
        Governed { bench, service, directory }
    }

    fn command(&self, link: Link, case: &str) -> Command {
        let mut command = self.bench.command(&self.service, link, case);
        // Further streams play no part in this.
        command.env("TELECL_STREAMS", "0");
        command
    }

    fn run(&self, link: Link, case: &str) -> Ended {
        run(self.command(link, case), SOON).unwrap()
    }

    /// A program that has a device.
    fn holder(&self, link: Link) -> Running {
        self.bench.client(&self.service, link, "hold_device", "held")
    }

    /// The path of its Unix socket.
    fn socket(&self) -> PathBuf {
        let port = self.service.address().rsplit(':').next().unwrap();
        self.service.socket_directory().join(format!("{port}.sock"))
    }

    /// What `telecl devices` says, by somebody at the Unix socket or over TCP.
    fn devices(&self, address: &str) -> Value {
        let mut command = Command::new(&self.bench.artifacts.telecl);
        command.args(["devices", "--json", "--on", address]).env("TELECL_CONFIG", "/dev/null");
        let ended = run(command, SOON).unwrap();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
    }

    fn local_devices(&self) -> Value {
        self.devices(&format!("unix:{}", self.socket().display()))
    }

    /// Writes another policy and waits for a line of the log about it. Nobody sends a signal: it is noticed.
    fn change(&self, policy: &str, line: &str) {
        let before = self.service.log().matches(line).count();
        fs::write(self.directory.path().join("policy.toml"), policy).unwrap();
        wait_until(line, SOON, || self.service.log().matches(line).count() > before);
    }

    /// The sum of what its metrics say under this name with these labels; the service was told to have some.
    fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        metric(&self.service, name, labels)
    }

    /// Its log has a line with all of these.
    fn expect_log(&self, parts: &[&str]) {
        wait_until(&parts.join(", "), SOON, || {
            self.service.log().lines().any(|line| parts.iter().all(|part| line.contains(part)))
        });
    }
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn kill(process: u32) {
    kill_process(Pid::from_raw(i32::try_from(process).unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_service_with_a_wrong_policy_does_not_start_and_says_why() {
    let (bench, place) = (Bench::new(), TempDir::new().unwrap());
    let path = place.path().join("policy.toml");
    let serve = || {
        let mut command = bench.vendor.command_direct(&bench.artifacts.telecl);
        // Relative, as somebody would type it.
        command.args(["serve", "--listen", "127.0.0.1:0", "--policy", "policy.toml"]).current_dir(place.path());
        run(command, SOON).unwrap()
    };
    let missing = serve();
    assert_eq!(missing.status.and_then(|status| status.code()), Some(2), "{missing}");
    assert!(missing.stderr.contains(&path.display().to_string()), "{missing}");
    fs::write(&path, "[defaults]\nsessions = \"many\"\n[[tenant]]\nmatch = \"a\"\nwieght = 3\n").unwrap();
    let wrong = serve();
    assert_eq!(wrong.status.and_then(|status| status.code()), Some(2), "{wrong}");
    assert_eq!(wrong.stdout, "");
    for part in ["line 2: defaults.sessions: ", "line 5: unknown key \"tenant.wieght\"", "did you mean \"weight\"?"] {
        assert!(wrong.stderr.contains(part), "{part}: {wrong}");
    }
}

#[test]
fn programs_that_take_the_first_device_spread_over_all() {
    let policy = "[service]\norder = \"load\"\nsessions_per_device = 2\n";
    let service = Governed::with(policy, &[("POCL_DEVICES", "pthread basic")]);
    let mut holders: Vec<Running> = (0..4).map(|number| service.holder(LOCAL[number % 2])).collect();
    let sessions = || -> Vec<(u64, u64)> {
        let listed = service.local_devices();
        let devices = listed["devices"].as_array().unwrap().iter();
        devices
            .map(|device| (device["sessions"].as_u64().unwrap(), device["sessions_limit"].as_u64().unwrap()))
            .collect()
    };
    if sessions().len() != 2 {
        eprintln!("skipped: two devices are needed");
        return;
    }
    assert_eq!(sessions(), [(2, 2), (2, 2)], "{}", service.service.log());
    holders.remove(0).kill();
    // The one with room is listed first, whichever it is.
    wait_until("one has left", SOON, || sessions() == [(1, 2), (2, 2)]);
    let next = service.holder(LOCAL[0]);
    assert_eq!(sessions(), [(2, 2), (2, 2)], "{}", service.service.log());
    drop((holders, next));
}

#[test]
fn a_tenant_sees_its_devices_only() {
    let policy = |devices: &str| {
        let me = me();
        format!("[users]\n{me} = \"me\"\n[defaults]\ndevices = []\n[[tenant]]\nmatch = \"me\"\ndevices = {devices}\n")
    };
    let service = Governed::with(&policy("[\"*\"]"), &[("POCL_DEVICES", "pthread basic")]);
    let all = service.local_devices();
    let all = all["devices"].as_array().unwrap();
    assert!(!all.is_empty() && all.iter().all(|device| device["tenant"] == "me"), "{all:?}");
    service.change(&policy("[\"number:1\"]"), "policy read again");
    let some = service.local_devices();
    assert_eq!(some["devices"].as_array().unwrap().len(), 1);
    assert_eq!(some["devices"][0]["device"], all[0]["device"]);
    // Over TCP nobody is known, and the policy has nothing for those.
    let none = service.devices(service.service.address());
    let reason = none["unreachable"][0]["reason"].as_str().unwrap();
    for part in ["tenant anonymous may use no device", "[defaults], line 4", &service.socket().display().to_string()] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    // A program there sees nothing, and is told why if it asks.
    let mut command = service.bench.vendor.command_through(&service.bench.client, &service.service);
    command.arg("count_platforms").env("TELECL_DEBUG", "1");
    let ended = run(command, SOON).unwrap();
    assert_eq!(ended.stdout, "CL_PLATFORM_NOT_FOUND_KHR, 0 platforms\n", "{ended}");
    assert!(ended.stderr.contains("tenant anonymous may use no device"), "{ended}");
    service.service.stop().unwrap();
}

#[test]
fn a_program_on_the_same_node_is_its_user_whatever_address_it_was_given() {
    let service = Governed::by(&format!("[users]\n{} = \"team-red\"\n", me()));
    let local = service.run(Link::SharedMemory, "use_once");
    assert_eq!(local.stdout, "served\n", "{local}");
    service.expect_log(&["session closed", "tenant=team-red", "driver closed the connection"]);
    let remote = service.run(Link::Tcp, "use_once");
    assert_eq!(remote.stdout, "served\n", "{remote}");
    service.expect_log(&["session opened", "tenant=anonymous", &format!("pid={}", remote.id)]);
    let log = service.service.log();
    let of_remote = |line: &&str| line.contains("session opened") && line.contains(&format!("pid={} ", remote.id));
    assert!(log.lines().filter(of_remote).all(|line| line.contains("tenant=anonymous")), "{log}");
}

#[test]
fn a_program_too_many_is_told_why_and_the_next_one_has_room() {
    for link in LOCAL {
        let service = Governed::by("[defaults]\nsessions = 1\n");
        let holder = service.holder(link);
        // Looking around takes no room.
        assert_eq!(service.run(link, "count_platforms").stdout, "CL_SUCCESS, 1 platforms\n");
        let refused = service.run(link, "use_or_be_told");
        let reason = "has all the sessions it may have at once: 1 (sessions, policy: [defaults], line 2)";
        assert!(refused.stdout.contains("clCreateContext: CL_DEVICE_NOT_AVAILABLE\n"), "{link}: {refused}");
        assert!(refused.stdout.contains("told: ") && refused.stdout.contains(reason), "{link}: {refused}");
        // One clear line, unasked.
        assert_eq!(refused.stderr.lines().count(), 1, "{link}: {refused}");
        assert!(refused.stderr.starts_with("telecl: ") && refused.stderr.contains(reason), "{link}: {refused}");
        assert!(refused.took < Duration::from_secs(10), "{link}: {refused}");
        // However the program ends.
        kill(holder.id());
        service.service.wait_without_workers(SOON);
        let next = service.run(link, "use_or_be_told");
        assert!(next.stdout.ends_with("served\n"), "{link}: {next}");
        // … and when its worker is what dies.
        let holder = service.holder(link);
        kill(service.service.only_worker());
        service.service.wait_without_workers(SOON);
        let next = service.run(link, "use_or_be_told");
        assert!(next.stdout.ends_with("served\n"), "{link}: {next}");
        drop(holder);
    }
}

#[test]
fn a_program_waits_for_its_turn() {
    for link in LOCAL {
        let service = Governed::by("[service]\nadmission_wait = \"1 m\"\n[defaults]\nsessions = 1\n");
        let holder = service.holder(link);
        let second = Running::start(service.command(link, "use_or_be_told")).unwrap();
        service.expect_log(&["session waits for room"]);
        kill(holder.id());
        let ended = second.end(SOON);
        assert_eq!(ended.stdout, "clCreateContext: CL_SUCCESS\nserved\n", "{link}: {ended}");
        assert_eq!(ended.stderr, "", "{link}");
    }
}

#[test]
fn a_program_waits_no_longer_than_the_policy_says() {
    let service = Governed::by("[service]\nadmission_wait = \"1 s\"\nsessions_per_device = 1\n");
    let _holder = service.holder(Link::SharedMemory);
    let begin = Instant::now();
    let ended = service.run(Link::SharedMemory, "use_or_be_told");
    assert!(begin.elapsed() >= Duration::from_secs(1), "{ended}");
    let reason = "(sessions_per_device, policy: [service], line 3), and none ended within 1s; use another device";
    assert!(ended.stdout.contains("clCreateContext: CL_DEVICE_NOT_AVAILABLE\n"), "{ended}");
    assert!(ended.stdout.contains(reason) && ended.stderr.contains(reason), "{ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
}

#[test]
fn a_policy_is_changed_while_programs_run() {
    let service = Governed::by("[defaults]\nsessions = 1\n");
    let holder = service.holder(Link::SharedMemory);
    let waits = "[service]\nadmission_wait = \"1 m\"\n[defaults]\nsessions = 1\n";
    service.change(waits, "policy read again");
    let second = Running::start(service.command(Link::SharedMemory, "use_or_be_told")).unwrap();
    service.expect_log(&["session waits for room"]);
    // A wrong one changes nothing and is named by its line; a right one lets the program in that waits.
    service.change("[defaults]\nsessions = 2\nsession = 1\n", "the policy is wrong");
    service.expect_log(&["the policy is wrong", "stays in force", "line 3: unknown key"]);
    assert_eq!(service.service.workers().len(), 1);
    service.change("[defaults]\nsessions = 2\n", "policy read again");
    let ended = second.end(SOON);
    assert_eq!(ended.stdout, "clCreateContext: CL_SUCCESS\nserved\n", "{ended}");
    // The worker of a program that has ended takes a moment to go.
    wait_until("one worker is left", SOON, || service.service.workers().len() == 1);
    assert!(system_tests::is_alive(holder.id()));
}

#[test]
fn a_session_that_does_nothing_is_ended_and_the_program_may_begin_another() {
    for link in LOCAL {
        let service = Governed::by("[defaults]\nlongest_idle = \"700 ms\"\n");
        let ended = service.run(link, "do_nothing_until_told");
        let told = ended.stdout.lines().next().unwrap_or_default();
        assert!(told.starts_with("told: ") && told.contains("nothing for 700ms"), "{link}: {ended}");
        assert!(ended.stdout.ends_with("clFinish: CL_DEVICE_NOT_AVAILABLE\nbegun again\n"), "{link}: {ended}");
        assert!(ended.stderr.contains("longest_idle") && ended.stderr.lines().count() == 1, "{link}: {ended}");
    }
}

#[test]
fn a_session_whose_kernel_runs_too_long_is_ended_and_counted() {
    let policy = "[defaults]\nlongest_kernel = \"300 ms\"\nkernel_overrun = \"end\"\n";
    for link in LOCAL {
        let place = TempDir::new().unwrap();
        let accounting = place.path().join("accounting.jsonl");
        let path = accounting.display().to_string();
        let variables = [("TELECL_METRICS", "127.0.0.1:0"), ("TELECL_ACCOUNTING", path.as_str())];
        let service = Governed::with(policy, &variables);
        let ended = service.run(link, "run_endless_kernel");
        assert!(ended.stdout.contains("clFinish: CL_DEVICE_NOT_AVAILABLE\n"), "{link}: {ended}");
        assert!(ended.success() && ended.stdout.ends_with("left in order\n"), "{link}: {ended}");
        assert!(ended.stderr.contains("(longest_kernel)") && ended.stderr.lines().count() == 1, "{link}: {ended}");
        wait_until("accounting", SOON, || fs::read_to_string(&accounting).is_ok_and(|text| text.ends_with('\n')));
        let line: Value = serde_json::from_str(&fs::read_to_string(&accounting).unwrap()).unwrap();
        let how = "a kernel ran for longer than its policy allows";
        assert_eq!((&line["ended"], &line["ok"], &line["overruns"]), (&how.into(), &true.into(), &1.into()), "{line}");
        assert_eq!(service.metric("telecl_tenant_overruns_total", &[]), 1.0);
        service.expect_log(&["WARN", "a kernel runs for longer", "longest=300ms"]);
        // The next one has a device.
        assert_eq!(service.run(link, "use_once").stdout, "served\n", "{link}");
    }
}

#[test]
fn a_session_whose_build_takes_too_long_is_ended() {
    // No compiler is so quick, and a program that is kept needs none.
    let service = Governed::by("[defaults]\nlongest_build = \"1 ms\"\n");
    let ended = service.run(Link::SharedMemory, "use_once");
    assert!(!ended.success() && ended.stdout.contains("CL_DEVICE_NOT_AVAILABLE"), "{ended}");
    assert!(ended.stderr.contains("(longest_build)") && ended.stderr.lines().count() == 1, "{ended}");
    service.expect_log(&["session closed", "a build took longer than its policy allows"]);
}

#[test]
fn what_a_cap_keeps_from_a_tenant_is_told() {
    let service = Governed::with("[defaults]\ncap = \"20 %\"\n", &[("TELECL_METRICS", "127.0.0.1:0")]);
    let ended = service.run(Link::SharedMemory, "compute_for_two_seconds");
    assert_eq!(ended.stdout, "computed\n", "{ended}");
    service.service.wait_without_workers(SOON);
    let of = |name: &str, labels: &[&str]| service.metric(&format!("telecl_tenant_{name}_seconds_total"), labels);
    let throttled = |reason: &str| of("throttled", &[&format!("reason=\"{reason}\"")]);
    let (used, waited) = (of("device", &[]), of("queue_wait", &[]));
    println!("used {used:.3} s, waited {waited:.3} s, for its cap {:.3} s", throttled("cap"));
    // A kernel or a session may begin within what is saved, so it is a little more than the fifth of two seconds.
    assert!((0.2..0.8).contains(&used), "{used} s of 2 s used");
    assert!(throttled("cap") > 1.0 && throttled("cap") <= waited + 0.01, "{} s of {waited} s", throttled("cap"));
    assert!(throttled("priority") == 0.0 && throttled("share") < 0.2, "{} s", throttled("share"));
}

#[test]
fn users_are_told_apart_at_the_unix_socket() {
    if me() != 0 {
        return eprintln!("skipped: only root can run a program as another user");
    }
    let service =
        Governed::by(&format!("[users]\n{STRANGER} = \"guest\"\n[[tenant]]\nmatch = \"guest\"\nsessions = 1\n"));
    let as_stranger = |case: &str| {
        let mut command = service.command(Link::SharedMemory, case);
        command.uid(STRANGER).gid(STRANGER).current_dir("/");
        command
    };
    // The directories of a test are its user's own.
    let vendors =
        as_stranger("").get_envs().find_map(|(name, value)| (name == "OCL_ICD_VENDORS").then_some(value?.to_owned()));
    let vendors = PathBuf::from(vendors.unwrap());
    let runtime = service.service.socket_directory();
    for directory in [vendors.parent().unwrap(), runtime.parent().unwrap()] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let tried = run(as_stranger("count_platforms"), SOON);
    if !tried.as_ref().is_ok_and(|ended| ended.stdout.contains("1 platforms")) {
        return eprintln!("skipped: another user cannot run programs from here: {tried:?}");
    }
    let mut holder = Running::start(as_stranger("hold_device")).unwrap();
    holder.expect_line("held", SOON);
    service.expect_log(&["session opened", "tenant=guest", &format!("pid={}", holder.id())]);
    let refused = run(as_stranger("use_or_be_told"), SOON).unwrap();
    assert!(refused.stderr.contains("tenant guest has all the sessions"), "{refused}");
    // Whoever else comes has nothing to do with it.
    let other = service.run(Link::SharedMemory, "use_or_be_told");
    assert_eq!(other.stdout, "clCreateContext: CL_SUCCESS\nserved\n", "{other}");
    service.expect_log(&["session closed", "tenant=user:root"]);
}

#[test]
fn a_peer_that_has_no_process_id_here_is_a_user_all_the_same() {
    let (bench, place) = (Bench::new(), TempDir::new().unwrap());
    let policy = place.path().join("policy.toml");
    fs::write(&policy, format!("[users]\n{} = \"team-red\"\n", me())).unwrap();
    let address = format!("unix:{}", place.path().join("telecl.sock").display());
    // Whoever is outside of the service's process namespace has the process id 0 there.
    let mut serve = Command::new("unshare");
    serve.args(["--pid", "--fork", "--kill-child"]).arg(&bench.artifacts.telecl).args(["serve", "--listen", &address]);
    serve.arg("--policy").arg(&policy).env("TELECL_CACHE_DIR", "none");
    let direct = bench.vendor.command_direct(&bench.artifacts.telecl);
    serve.envs(direct.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let tried = Command::new("unshare").args(["--pid", "--fork", "true"]).status();
    if !tried.as_ref().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no process namespaces here: {tried:?}");
    }
    let mut service = Running::start(serve).unwrap();
    service.expect_line(&format!("listening on {address}"), SOON);
    let mut command = Command::new(&bench.artifacts.telecl);
    command.args(["devices", "--json", "--on", &address]).env("TELECL_CONFIG", "/dev/null");
    let ended = run(command, SOON).unwrap();
    let json: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(json["devices"][0]["tenant"], "team-red", "{ended}");
}
