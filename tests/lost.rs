//! Links that are lost and found: a program whose connections are cut, stalled or refused notices only time, and one that
//! cannot come back is told so, in every call and every callback.
//!
//! `TELECL_LOST_CUTS` (40) says how often links are cut, `TELECL_LOST_KILLS` (10) how many workers are killed:
//!
//! ```sh
//! TELECL_LOST_CUTS=200 TELECL_LOST_KILLS=200 cargo test --release -p telecl-system-tests --test lost -- --nocapture
//! ```
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use system_tests::{Bench, Cut, Programs, Proxy, Running, SOON, Service, run, wait_until};
use tempfile::TempDir;

/// What many sessions do on two processors.
const A_WHILE: Duration = Duration::from_secs(120);

/// Buffers of which parts go on further streams, and such as many programs can have.
const LARGE: u32 = 3 << 20;
const SMALL: u32 = 64 << 10;

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}")))
}

/// Numbers without a pattern, and the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

fn kill(process: u32) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// Everything that a test needs: a service, and a proxy before it.
struct Stage {
    bench: Bench,
    service: Service,
    proxy: Proxy,
    directory: TempDir,
    /// By which programs and service know each other, if they speak TLS.
    secret: Option<PathBuf>,
}

impl Stage {
    fn new(variables: &[(&str, &str)]) -> Stage {
        let bench = Bench::new();
        let service = bench.service_at("127.0.0.1:0", variables);
        let proxy = Proxy::start(service.address());
        Stage { bench, service, proxy, directory: TempDir::with_prefix("telecl-lost-").unwrap(), secret: None }
    }

    /// Whose connections are encrypted, as they are between machines.
    fn over_tls() -> Stage {
        let (bench, directory) = (Bench::new(), TempDir::with_prefix("telecl-lost-").unwrap());
        let secret = directory.path().join("secret");
        let mut command = bench.vendor.command_direct(&bench.artifacts.telecl);
        command.args(["secret", "create"]).arg(&secret);
        assert!(run(command, SOON).unwrap().success());
        let service = bench.service_at("127.0.0.1:0", &[("TELECL_SERVE_SECRET", secret.to_str().unwrap())]);
        let proxy = Proxy::start(service.address());
        Stage { bench, service, proxy, directory, secret: Some(secret) }
    }

    /// A program that sees the service through the proxy.
    fn through_proxy(&self, program: &Path, streams: u32) -> Command {
        let mut command = self.bench.vendor.command_with_driver(program);
        command.env("TELECL_SERVICES", self.proxy.address()).env("TELECL_SHARED_MEMORY", "0");
        if let Some(secret) = &self.secret {
            command.env("TELECL_SERVICES", format!("tls://{}", self.proxy.address())).env("TELECL_SECRET", secret);
        }
        command.env("TELECL_STREAMS", streams.to_string());
        command
    }

    fn client(&self, streams: u32, case: &str) -> Command {
        let mut command = self.through_proxy(&lost_client(), streams);
        command.arg(case);
        command
    }

    fn stop_file(&self) -> PathBuf {
        self.directory.path().join("stop")
    }

    /// Computes and compares until it is told to stop, with buffers of this size.
    fn computing(&self, streams: u32, size: u32) -> Running {
        let mut command = self.client(streams, "compute_and_compare");
        command.env("TEST_STOP_FILE", self.stop_file()).env("TEST_SIZE", size.to_string());
        let mut client = Running::start(command).unwrap();
        client.expect_line("computing", SOON);
        client
    }

    fn assert_right(&self, client: Running) {
        fs::write(self.stop_file(), "").unwrap();
        let ended = client.end(A_WHILE);
        assert!(ended.success() && ended.stdout.ends_with("all right\n"), "{ended}\n{}", self.service.log());
        println!("{}", ended.stderr.trim_end());
        fs::remove_file(self.stop_file()).unwrap();
        // A program that ends in order leaves nothing behind, and nobody waits for it.
        self.service.wait_without_workers(Duration::from_secs(4));
    }
}

fn lost_client() -> PathBuf {
    Programs::build().unwrap_or_else(|reason| panic!("{reason}")).path("lost_client")
}

/// Cuts the connections at random moments, so many times, each for at most two seconds.
fn cut_at_random(proxy: &Proxy, cuts: usize, seed: u64, on: impl Fn() -> bool) {
    let mut dice = Dice(seed);
    for _ in 0..cuts {
        if !on() {
            return;
        }
        let how = if dice.below(2) == 0 { Cut::Fin } else { Cut::Reset };
        match dice.below(3) {
            0 => proxy.cut(how),
            // In the middle of whatever is on its way.
            1 => proxy.cut_after(dice.below(3 << 20) as usize, how),
            _ => {
                proxy.refuse(true);
                proxy.cut(how);
                thread::sleep(Duration::from_millis(dice.below(300)));
                proxy.refuse(false);
            }
        }
        thread::sleep(Duration::from_millis(20 + dice.below(150)));
    }
}

fn a_stream_of_commands_survives_cuts(stage: Stage, streams: u32) {
    let client = stage.computing(streams, LARGE);
    cut_at_random(&stage.proxy, setting("TELECL_LOST_CUTS", 40), 7 + u64::from(streams), || true);
    stage.assert_right(client);
    assert!(stage.proxy.cuts() > setting("TELECL_LOST_CUTS", 40) / 2, "cut {} times", stage.proxy.cuts());
    stage.service.stop().unwrap();
}

#[test]
fn a_stream_of_commands_survives_cuts_without_further_streams() {
    a_stream_of_commands_survives_cuts(Stage::new(&[]), 0);
}

#[test]
fn a_stream_of_commands_survives_cuts_with_further_streams() {
    a_stream_of_commands_survives_cuts(Stage::new(&[]), 3);
}

#[test]
fn a_stream_of_commands_survives_cuts_over_tls() {
    for streams in [0, 2] {
        a_stream_of_commands_survives_cuts(Stage::over_tls(), streams);
    }
}

#[test]
fn a_session_that_has_just_begun_survives_a_cut() {
    let stage = Stage::new(&[]);
    let use_once = |case: &str| {
        let mut command = stage.through_proxy(&stage.bench.client, 0);
        command.arg(case);
        run(command, SOON).unwrap()
    };
    assert!(use_once("count_platforms").success());
    let handshake = stage.proxy.passed();
    // From the end of the first words, by which a driver asks that its session may last.
    for bytes in (24..200).step_by(11).chain([300, 500, 1000, 2000]) {
        stage.proxy.cut_after(handshake + bytes, if bytes % 2 == 0 { Cut::Fin } else { Cut::Reset });
        let ended = use_once("use_once");
        assert_eq!(ended.stdout, "served\n", "cut after {bytes} bytes: {ended}\n{}", stage.service.log());
    }
    assert!(stage.proxy.cuts() > 10, "cut {} times", stage.proxy.cuts());
}

#[test]
fn a_silent_link_is_noticed_and_replaced() {
    let stage = Stage::new(&[("TELECL_SERVE_HEARTBEAT", "1s")]);
    let client = stage.computing(2, LARGE);
    for _ in 0..3 {
        // Nobody says that the connection is gone. New ones say nothing, too, for a while.
        stage.proxy.stall(true);
        thread::sleep(Duration::from_millis(2500));
        // What was on its way before is of no use any more.
        stage.proxy.cut(Cut::Reset);
        stage.proxy.stall(false);
        thread::sleep(Duration::from_millis(700));
    }
    stage.assert_right(client);
}

#[test]
fn what_a_stalled_link_delivers_late_does_no_harm() {
    let stage = Stage::new(&[("TELECL_SERVE_HEARTBEAT", "1s")]);
    let client = stage.computing(2, LARGE);
    for _ in 0..3 {
        stage.proxy.stall(true);
        thread::sleep(Duration::from_millis(2000));
        stage.proxy.stall(false);
        thread::sleep(Duration::from_millis(700));
    }
    stage.assert_right(client);
}

#[test]
fn a_slow_link_is_not_taken_for_a_dead_one() {
    let stage = Stage::new(&[("TELECL_SERVE_HEARTBEAT", "2s")]);
    let client = stage.computing(0, SMALL);
    stage.proxy.delay(Duration::from_millis(20));
    thread::sleep(Duration::from_secs(5));
    stage.proxy.delay(Duration::ZERO);
    stage.assert_right(client);
    assert!(!stage.service.log().contains("resume"), "{}", stage.service.log());
}

/// Calls of all kinds wait; then this is done to the link. How long until all of them were told, at most.
fn everybody_is_told(stage: &Stage, limit: Duration, lose: impl FnOnce(&Proxy)) {
    let mut client = Running::start(stage.client(2, "wait_in_vain")).unwrap();
    client.expect_line("waiting", SOON);
    lose(&stage.proxy);
    let begin = Instant::now();
    let ended = client.end(A_WHILE);
    assert!(ended.success() && ended.stdout.ends_with("all told\n"), "{ended}");
    println!("{}", ended.stderr.trim_end());
    assert!(begin.elapsed() < limit + Duration::from_secs(5), "{:?}, where {limit:?} were agreed", begin.elapsed());
    // As long as a stalled proxy answers, the worker takes the program for stopped.
    stage.proxy.stall(false);
    stage.service.wait_without_workers(SOON);
}

#[test]
fn who_cannot_come_back_is_told_in_every_call_and_callback() {
    let stage = Stage::new(&[("TELECL_SERVE_HEARTBEAT", "1s"), ("TELECL_SERVE_GRACE", "2s")]);
    everybody_is_told(&stage, Duration::from_secs(2), |proxy| {
        proxy.refuse(true);
        proxy.cut(Cut::Reset);
    });
    stage.proxy.refuse(false);
    everybody_is_told(&stage, Duration::from_secs(3), |proxy| proxy.stall(true));
}

#[test]
fn a_service_that_is_gone_is_known_when_the_grace_ends() {
    // With a grace of its own a session outlives its service; `restart.rs` is about that.
    let mut stage = Stage::new(&[("TELECL_SERVE_GRACE", "2s"), ("TELECL_ORPHAN_GRACE", "0s")]);
    let mut client = Running::start(stage.client(0, "wait_in_vain")).unwrap();
    client.expect_line("waiting", SOON);
    stage.service.kill();
    let ended = client.end(SOON);
    assert!(ended.success() && ended.stdout.ends_with("all told\n"), "{ended}");
}

#[test]
fn without_grace_a_lost_link_ends_the_session_at_once() {
    let stage = Stage::new(&[("TELECL_SERVE_GRACE", "off")]);
    everybody_is_told(&stage, Duration::ZERO, |proxy| proxy.cut(Cut::Fin));
}

#[test]
fn a_program_that_was_killed_is_not_waited_for_as_long_as_a_link() {
    let stage = Stage::new(&[]);
    let mut client = Running::start(stage.client(2, "wait_in_vain")).unwrap();
    client.expect_line("waiting", SOON);
    client.kill();
    stage.service.wait_without_workers(SOON);
}

/// What a service has of the system: descriptors and children.
fn holdings(service: &Service) -> (usize, usize) {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", service.id())).unwrap().count();
    (descriptors, service.workers().len() + service.idle_workers().len())
}

#[test]
fn a_killed_worker_is_noticed_at_once_and_hurts_nobody_else() {
    const OTHERS: usize = 20;
    /// A second on a machine that has nothing else to do; here 22 processes share two processors.
    const AT_ONCE: Duration = Duration::from_secs(5);
    let stage = Stage::new(&[]);
    // So that there is a worker in waiting.
    wait_until("a worker waits", SOON, || stage.service.idle_workers().len() == 1);
    let before = holdings(&stage.service);
    let others: Vec<Running> = (0..OTHERS).map(|_| stage.computing(0, SMALL)).collect();
    let theirs = stage.service.workers();
    assert_eq!(theirs.len(), OTHERS);
    let mut dice = Dice(99);
    let mut told = Vec::new();
    for _ in 0..setting("TELECL_LOST_KILLS", 10) {
        let mut victim = Running::start(stage.client(0, "compute_until_lost")).unwrap();
        victim.expect_line("computing", A_WHILE);
        thread::sleep(Duration::from_millis(dice.below(200)));
        let worker = stage.service.workers().into_iter().find(|worker| !theirs.contains(worker)).unwrap();
        kill(worker);
        let begin = Instant::now();
        victim.expect_line("lost", A_WHILE);
        told.push(begin.elapsed());
        assert!(begin.elapsed() < AT_ONCE, "told after {:?}", begin.elapsed());
        assert!(victim.end(A_WHILE).success());
    }
    told.sort_unstable();
    let late = told.iter().filter(|after| **after > Duration::from_secs(1)).count();
    let (median, latest) = (told[told.len() / 2], told[told.len() - 1]);
    println!("told after {median:.1?} at the median and {latest:.1?} at the latest, {late} later than a second");
    fs::write(stage.stop_file(), "").unwrap();
    for other in others {
        let ended = other.end(A_WHILE);
        assert!(ended.success() && ended.stdout.ends_with("all right\n"), "{ended}");
    }
    stage.service.wait_without_workers(SOON);
    wait_until("the service has what it had before", SOON, || holdings(&stage.service) == before);
}

/// The words, and the hashes of some of them.
fn hashcat_files(directory: &Path) -> (PathBuf, PathBuf, Vec<String>) {
    use sha2::{Digest, Sha256};
    let mut dice = Dice(4711);
    let letters = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut word = || -> String { (0..8).map(|_| char::from(letters[dice.below(36) as usize])).collect() };
    let words: Vec<String> = (0..60_000).map(|_| word()).collect();
    // A salt each, so that there is a kernel for each.
    let hash = |(number, word): (usize, &&String)| -> String {
        let digest = Sha256::digest(format!("{word}salt{number}").as_bytes());
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{digits}:salt{number}")
    };
    let chosen: Vec<&String> = words.iter().step_by(59).collect();
    let hashes: Vec<String> = chosen.iter().enumerate().map(hash).collect();
    let mut found: Vec<String> = chosen.iter().zip(&hashes).map(|(word, hash)| format!("{hash}:{word}")).collect();
    found.sort();
    let (word_file, hash_file) = (directory.join("words"), directory.join("hashes"));
    fs::write(&word_file, words.join("\n") + "\n").unwrap();
    fs::write(&hash_file, hashes.join("\n") + "\n").unwrap();
    (word_file, hash_file, found)
}

#[test]
fn hashcat_finds_everything_although_its_link_is_cut() {
    let program = Path::new("/usr/bin/hashcat");
    if !program.exists() {
        // `make packages` installs it.
        return println!("skipped: there is no {}", program.display());
    }
    let stage = Stage::new(&[]);
    let directory = stage.directory.path();
    let (words, hashes, expected) = hashcat_files(directory);
    let found = directory.join("found");
    let mut cuts = 0;
    let wanted = setting("TELECL_LOST_CUTS", 20);
    // It may be done before it was cut often enough.
    for attack in 0.. {
        let _ = fs::remove_file(&found);
        let mut command = stage.through_proxy(program, 0);
        command.env("HOME", directory).current_dir(directory);
        command.args(["--force", "--potfile-disable", "--logfile-disable", "--restore-disable", "--quiet"]);
        command.args(["-D", "1,2,3", "--backend-ignore-cuda", "--backend-ignore-hip", "-m", "1410", "-a", "0"]);
        command.arg("--outfile").arg(&found).args([&hashes, &words]);
        let running = AtomicBool::new(true);
        let on = || running.load(Ordering::Relaxed);
        let ended = thread::scope(|scope| {
            // Not while it begins: a session that has no worker yet is not resumed.
            scope.spawn(|| {
                while on() && stage.service.workers().is_empty() {
                    thread::sleep(Duration::from_millis(20));
                }
                thread::sleep(Duration::from_millis(300));
                cut_at_random(&stage.proxy, 400, 5 + attack, on);
            });
            let ended = run(command, Duration::from_secs(300)).unwrap();
            running.store(false, Ordering::Relaxed);
            ended
        });
        stage.proxy.refuse(false);
        let mut got: Vec<String> = fs::read_to_string(&found).unwrap_or_default().lines().map(str::to_owned).collect();
        got.sort();
        assert!(got == expected, "{} of {} found: {ended}\n{}", got.len(), expected.len(), stage.service.log());
        cuts = stage.proxy.cuts().max(cuts);
        if cuts >= wanted {
            break;
        }
        assert!(attack < 50, "cut only {cuts} times");
    }
    println!("hashcat was cut {cuts} times");
}
