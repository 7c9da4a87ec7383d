//! Programs come and go, some of them killed in the middle of work: nobody else notices, and the service is afterwards
//! as it was before.
//!
//! `TELECL_CHURN_RATE` (programs a second, 5), `TELECL_CHURN_SECONDS` (10) and `TELECL_CHURN_LIFE_MS` (how long a program
//! lives, 2000) make it the run whose figures are in `docs/performance.md`:
//!
//! ```sh
//! TELECL_CHURN_RATE=20 TELECL_CHURN_SECONDS=60 TELECL_CHURN_LIFE_MS=5000 \
//!     cargo test --release -p telecl-system-tests --test churn -- --nocapture
//! ```
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use system_tests::{Bench, Ended, Link, Running, Service, wait_until};
use tempfile::TempDir;

/// How long a program may take beyond its life: all of them start on two processors, perhaps.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every so many programs one is killed, or its worker.
const VICTIM: usize = 10;

/// What the service may have grown by at the end of all, in KiB: its allocator gives not everything back at once.
const GROWTH: u64 = 4096;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}")))
}

/// What becomes of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lives,
    IsKilled,
    /// Its worker is killed, and it is told so.
    LosesItsWorker,
}

impl Fate {
    fn of(number: usize) -> Fate {
        match number % (2 * VICTIM) {
            5 => Fate::IsKilled,
            number if number == VICTIM + 5 => Fate::LosesItsWorker,
            _ => Fate::Lives,
        }
    }
}

/// What a service has of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holdings {
    memory_kib: u64,
    descriptors: usize,
    threads: usize,
    children: usize,
    files: usize,
}

impl Holdings {
    fn of(service: &Service, temporary: &Path) -> Holdings {
        let process = format!("/proc/{}", service.id());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let entries = |what: &str| fs::read_dir(format!("{process}/{what}")).unwrap().count();
        Holdings {
            memory_kib: memory.trim().trim_end_matches(" kB").parse().unwrap(),
            descriptors: entries("fd"),
            threads: entries("task"),
            children: service.workers().len() + service.idle_workers().len(),
            files: count_files(temporary),
        }
    }

    fn is_as(&self, before: &Holdings) -> bool {
        let memory_kib = before.memory_kib;
        Holdings { memory_kib, ..*self } == *before && self.memory_kib <= memory_kib + GROWTH
    }
}

fn count_files(directory: &Path) -> usize {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    // What tenants' compilers keep is the service's, and has a bound of its own.
    let entries = entries.flatten().filter(|entry| entry.file_name() != "homes");
    entries.map(|entry| 1 + count_files(&entry.path())).sum()
}

/// What has come of all programs so far.
#[derive(Debug, Default)]
struct Tally {
    present: AtomicUsize,
    most: AtomicUsize,
    most_workers: AtomicUsize,
    served: AtomicUsize,
    killed: AtomicUsize,
    lost: AtomicUsize,
    wrong: Mutex<Vec<String>>,
    /// How long the programs that lived took until they had computed for the first time.
    first: Mutex<Vec<Duration>>,
}

/// Many programs, one after the other and beside each other.
struct Churn {
    bench: Bench,
    service: Service,
    temporary: TempDir,
    life: Duration,
    tally: Tally,
}

impl Churn {
    fn new(life: Duration) -> Churn {
        let (bench, temporary) = (Bench::new(), TempDir::new().unwrap());
        let path = temporary.path().display().to_string();
        // Which worker is whose is for developers.
        let log = ("RUST_LOG", "info,telecl_service::broker::launch=debug");
        let service = bench.service_at("127.0.0.1:0", &[("TMPDIR", &path), log]);
        Churn { bench, service, temporary, life, tally: Tally::default() }
    }

    /// So many programs, at equal intervals; returns when all have ended.
    fn go(&self, rate: u64, time: Duration) {
        let begin = Instant::now();
        let count = usize::try_from(rate * time.as_secs()).unwrap();
        thread::scope(|scope| {
            for number in 0..count {
                let due = begin + time.mul_f64(number as f64 / count as f64);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                scope.spawn(move || self.live(number));
                if (number as u64).is_multiple_of(rate) {
                    self.tally.most_workers.fetch_max(self.service.workers().len(), Ordering::Relaxed);
                }
            }
        });
        println!("{count} programs in {:.1?}", begin.elapsed());
        self.service.wait_without_workers(PATIENCE);
    }

    fn live(&self, number: usize) {
        let tally = &self.tally;
        let present = tally.present.fetch_add(1, Ordering::Relaxed) + 1;
        tally.most.fetch_max(present, Ordering::Relaxed);
        let link = if number % 4 == 3 { Link::Tcp } else { Link::SharedMemory };
        let mut command = self.bench.command(&self.service, link, "come_and_go");
        let fate = Fate::of(number);
        // Who is to be killed in the middle of work does not rest.
        let rest = if fate == Fate::Lives { self.life / 10 } else { Duration::ZERO };
        let variable = |time: Duration| time.as_millis().to_string();
        command.env("TEST_LIFE_MS", variable(self.life + PATIENCE / 2 * u32::from(fate != Fate::Lives)));
        command.env("TEST_REST_MS", variable(rest)).env("TELECL_STREAMS", "0");
        let begin = Instant::now();
        let mut program = Running::start(command).unwrap();
        let id = program.id();
        let at_work = program.await_line("at work", PATIENCE);
        let first = begin.elapsed();
        if at_work && fate != Fate::Lives {
            thread::sleep(Duration::from_millis(number as u64 * 37 % 300));
            match fate {
                Fate::LosesItsWorker => self.kill_worker_of(id),
                _ => {
                    program.kill();
                    tally.killed.fetch_add(1, Ordering::Relaxed);
                    tally.present.fetch_sub(1, Ordering::Relaxed);
                    return;
                }
            }
        }
        let ended = program.end(self.life + PATIENCE);
        tally.present.fetch_sub(1, Ordering::Relaxed);
        self.judge(fate, first, &ended);
    }

    fn judge(&self, fate: Fate, first: Duration, ended: &Ended) {
        let tally = &self.tally;
        match ended.stdout.lines().last() {
            Some("served") if ended.success() && fate == Fate::Lives => {
                tally.served.fetch_add(1, Ordering::Relaxed);
                tally.first.lock().unwrap().push(first);
            }
            Some("lost") if ended.success() && fate == Fate::LosesItsWorker => {
                tally.lost.fetch_add(1, Ordering::Relaxed);
            }
            _ => tally.wrong.lock().unwrap().push(format!("{fate:?}, after {:.1?}: {ended}", ended.took)),
        }
    }

    /// As the log has it: the program's session, and that session's worker.
    fn kill_worker_of(&self, program: u32) {
        let log = self.service.log();
        let field =
            |line: &str, name: &str| line.split(' ').find_map(|word| word.strip_prefix(name).map(str::to_owned));
        let of_program =
            |line: &&str| line.contains("session opened") && field(line, "pid=") == Some(program.to_string());
        let sessions: Vec<_> = log.lines().filter(of_program).filter_map(|line| field(line, "session=")).collect();
        let worker = log.lines().filter(|line| line.contains("worker gets the session")).find_map(|line| {
            let mine = field(line, "session=").is_some_and(|session| sessions.contains(&session));
            if mine { field(line, "worker=") } else { None }
        });
        let worker: i32 = worker.unwrap_or_else(|| panic!("no worker of {program} in {log}")).parse().unwrap();
        kill_process(Pid::from_raw(worker).unwrap(), Signal::KILL).unwrap();
    }

    /// When it has settled: as it was before, or after a while.
    fn holdings(&self, before: Option<&Holdings>) -> Holdings {
        let now = || Holdings::of(&self.service, self.temporary.path());
        let deadline = Instant::now() + Duration::from_secs(20);
        // One worker waits for the next session, always.
        wait_until("one idle worker", PATIENCE, || self.service.idle_workers().len() == 1);
        thread::sleep(Duration::from_secs(2));
        while before.is_some_and(|before| !now().is_as(before)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(100));
        }
        now()
    }
}

#[test]
fn programs_come_and_go_and_leave_nothing_behind() {
    let (rate, seconds) = (setting("TELECL_CHURN_RATE", 5), setting("TELECL_CHURN_SECONDS", 10));
    let churn = Churn::new(Duration::from_millis(setting("TELECL_CHURN_LIFE_MS", 2000)));
    // What is made once is made now.
    churn.go(rate, Duration::from_secs((seconds / 4).max(2)));
    let wrong = churn.tally.wrong.lock().unwrap().join("\n");
    assert!(wrong.is_empty(), "{wrong}");
    let before = churn.holdings(None);

    let churn = Churn { tally: Tally::default(), ..churn };
    churn.go(rate, Duration::from_secs(seconds));
    let after = churn.holdings(Some(&before));
    let Tally { most, most_workers, served, killed, lost, wrong, first, .. } = &churn.tally;
    let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let mut first = first.lock().unwrap().clone();
    first.sort_unstable();
    let (median, worst) = (first.get(first.len() / 2), first.last());
    println!(
        "{} served, {} killed, {} whose worker was killed, {} wrong; {} programs and {} workers at once; first result \
         after {:.0?} at the median and {:.0?} at most",
        count(served),
        count(killed),
        count(lost),
        wrong.lock().unwrap().len(),
        count(most),
        count(most_workers),
        median.copied().unwrap_or_default(),
        worst.copied().unwrap_or_default(),
    );
    println!("before: {before:?}\nafter:  {after:?}");
    assert!(wrong.lock().unwrap().is_empty(), "{}", wrong.lock().unwrap().join("\n"));
    assert_eq!((count(served) + count(killed) + count(lost)) as u64, rate * seconds);
    assert!(after.is_as(&before), "before: {before:?}\nafter:  {after:?}");
    churn.service.stop().unwrap();
}
