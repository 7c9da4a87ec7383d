//! Programs that several sessions build: the compiler runs once, and nobody can tell.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};
use system_tests::{Artifacts, Programs, Running, Service, Vendor, run, wait_until};
use tempfile::TempDir;

/// How long anything may take, compilers included: two processors serve all tests at once.
const SOON: Duration = Duration::from_secs(120);

/// What the broker says about programs at level debug.
const BUILT: &str = "program will be built";
const STORED: &str = "program stored";
const FOUND: &str = "program found";
const ON_DISK: &str = "program found on disk";
const UNKEPT: &str = "program built, but not kept";
const WAITED: &str = "program is being built by another session";

/// And a worker.
const TAKEN: &str = "taken from the cache";

struct Bench {
    artifacts: Artifacts,
    vendor: Vendor,
    client: PathBuf,
    /// Has the headers, and the cache's files.
    place: TempDir,
    /// PoCL has a cache of its own, which must not know the programs of an earlier run.
    seed: String,
}

impl Bench {
    fn new() -> Bench {
        let artifacts = Artifacts::find().unwrap_or_else(|reason| panic!("{reason}"));
        let vendor = Vendor::select(&artifacts).unwrap_or_else(|reason| panic!("{reason}"));
        let client = Programs::build().unwrap_or_else(|reason| panic!("{reason}")).path("cache_client");
        let place = TempDir::new().unwrap();
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos() + std::process::id();
        let bench = Bench { artifacts, vendor, client, place, seed: (seed % 1_000_000_000).to_string() };
        bench.write_header("one", 100);
        bench
    }

    /// A directory of headers, of which there is one.
    fn write_header(&self, directory: &str, value: i32) {
        let directory = self.place.path().join(directory);
        fs::create_dir_all(&directory).unwrap();
        let text = format!("#ifndef FROM_HEADER\n#define FROM_HEADER {value}\n#endif\n");
        fs::write(directory.join("cache_client.h"), text).unwrap();
    }

    fn cache(&self) -> PathBuf {
        self.place.path().join("cache")
    }

    fn service(&self) -> Service {
        let cache = self.cache().display().to_string();
        let variables = [("RUST_LOG", "debug"), ("TELECL_CACHE_DIR", &cache)];
        let service = Service::start_at(&self.artifacts, &self.vendor, "127.0.0.1:0", &variables);
        service.unwrap_or_else(|reason| panic!("{reason}"))
    }

    fn command(&self, service: &Service, case: &str) -> Command {
        let mut command = self.vendor.command_through(&self.client, service);
        command.arg(case).env("SEED", &self.seed).env("HEADERS", self.place.path().join("one"));
        command
    }

    /// What the case prints in a session of its own.
    fn output(&self, service: &Service, case: &str) -> String {
        output_of(self.command(service, case))
    }

    /// Likewise; the session lasts until as many programs as it builds are in the cache.
    fn output_when_stored(&self, service: &Service, case: &str, programs: usize) -> String {
        let before = count(service, STORED);
        let mut command = self.command(service, case);
        command.env("STAY", "1");
        let mut client = Running::start(command).unwrap();
        client.expect_line("done", SOON);
        wait_until("all programs are stored", SOON, || count(service, STORED) == before + programs);
        client.end(Duration::ZERO).stdout
    }

    /// The cache's files.
    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.cache().join("programs")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

fn output_of(command: Command) -> String {
    let ended = run(command, SOON).unwrap();
    assert!(ended.success() && ended.stderr.is_empty(), "{ended}");
    ended.stdout
}

/// How often the service has said something.
fn count(service: &Service, what: &str) -> usize {
    service.log().lines().filter(|line| line.contains(what)).count()
}

/// No compiler makes the same bytes twice.
fn without_binary(output: &str) -> Vec<&str> {
    output.lines().filter(|line| !line.starts_with("binary")).collect()
}

fn kill(process: u32) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn a_second_session_sees_what_the_first_saw_and_compiles_nothing() {
    let bench = Bench::new();
    let service = bench.service();
    let first = bench.output_when_stored(&service, "build", 1);
    assert!(first.contains("to be seen in the log") && first.contains("computed: 1121"), "{first}");
    let second = bench.output(&service, "build");
    assert_eq!(first, second, "{}", service.log());
    assert_eq!((count(&service, BUILT), count(&service, FOUND)), (1, 1), "{}", service.log());
}

#[test]
fn a_program_that_is_built_anew_is_what_it_was_built_from_last() {
    let bench = Bench::new();
    let service = bench.service();
    let sums = |output: &str| -> Vec<String> {
        output.lines().filter(|line| line.starts_with("computed")).map(str::to_owned).collect()
    };
    let first = bench.output(&service, "build_again");
    assert_eq!(sums(&first)[..2], sums(&first)[2..], "{first}");
    assert!(sums(&first)[1].starts_with("computed: 6021 "), "{first}");
    for _ in 0..2 {
        let again = bench.output(&service, "build_again");
        assert_eq!(sums(&again), sums(&first), "{again}");
    }
}

#[test]
fn arguments_that_were_not_asked_for_are_not_seen() {
    let bench = Bench::new();
    let service = bench.service();
    let first = bench.output_when_stored(&service, "build_without_arguments", 1);
    assert!(first.contains("0: CL_KERNEL_ARG_INFO_NOT_AVAILABLE"), "{first}");
    assert_eq!(first, bench.output(&service, "build_without_arguments"));
    assert_eq!((count(&service, BUILT), count(&service, FOUND)), (1, 1), "{}", service.log());
    // With the information it is another program.
    assert!(bench.output(&service, "build").contains("0: int* out"));
}

#[test]
fn what_is_compiled_and_linked_is_found_as_well() {
    let bench = Bench::new();
    let service = bench.service();
    let first = bench.output_when_stored(&service, "compile_and_link", 2);
    assert_eq!(first, bench.output(&service, "compile_and_link"), "{}", service.log());
    assert_eq!((count(&service, BUILT), count(&service, FOUND)), (2, 2), "{}", service.log());
}

#[test]
fn the_compiler_runs_after_all_where_its_result_is_needed() {
    let bench = Bench::new();
    let service = bench.service();
    // Two compilations; a link of several is not kept.
    let first = bench.output_when_stored(&service, "link_twice", 2);
    assert_eq!(first, "42\n42\ndone\n");
    assert_eq!(bench.output(&service, "link_twice"), first);
    assert_eq!((count(&service, BUILT), count(&service, FOUND)), (2, 2), "{}", service.log());
}

#[test]
fn other_headers_make_another_program() {
    let bench = Bench::new();
    let service = bench.service();
    let first = bench.output_when_stored(&service, "build_without_arguments", 1);
    // The same files in another place are the same program.
    bench.write_header("two", 100);
    let mut command = bench.command(&service, "build_without_arguments");
    command.env("HEADERS", bench.place.path().join("two"));
    assert_eq!(output_of(command), first);
    assert_eq!(count(&service, BUILT), 1, "{}", service.log());
    bench.write_header("one", 200);
    let changed = bench.output(&service, "build_without_arguments");
    assert!(first.contains("computed: 1121") && changed.contains("computed: 1221"), "{first}\n{changed}");
    assert_eq!(count(&service, BUILT), 2);
}

/// Three sessions that build the same program at once.
fn build_together(ask: bool) -> Service {
    let bench = Bench::new();
    let service = bench.service();
    let start = || {
        let mut command = bench.command(&service, "build_slowly");
        command.env("STAY", "1").envs(ask.then_some(("ASK", "1")));
        Running::start(command).unwrap()
    };
    let mut clients: Vec<Running> = (0..3).map(|_| start()).collect();
    for client in &mut clients {
        client.expect_line("done", SOON);
    }
    for client in clients {
        assert_eq!(client.end(Duration::ZERO).stdout, "building\n42\ndone\n", "{}", service.log());
    }
    assert_eq!((count(&service, BUILT), count(&service, WAITED)), (1, 2), "{}", service.log());
    service
}

#[test]
fn sessions_that_build_at_once_compile_once() {
    let service = build_together(true);
    assert_eq!((count(&service, STORED), count(&service, UNKEPT)), (1, 0), "{}", service.log());
    assert_eq!(count(&service, TAKEN), 2, "{}", service.log());
}

#[test]
fn sessions_do_not_wait_for_a_binary_that_is_not_taken() {
    let service = build_together(false);
    // PoCL is not asked for it behind the program's back.
    assert_eq!(count(&service, STORED) + count(&service, UNKEPT), 1, "{}", service.log());
}

#[test]
fn a_builder_that_dies_is_followed_by_who_waits() {
    let bench = Bench::new();
    let service = bench.service();
    let mut first = Running::start(bench.command(&service, "build_slowly")).unwrap();
    first.expect_line("building", SOON);
    wait_until("the build begins", SOON, || count(&service, BUILT) == 1);
    let builder = service.only_worker();
    let second = Running::start(bench.command(&service, "build_slowly")).unwrap();
    wait_until("the other waits", SOON, || count(&service, WAITED) == 1);
    kill(builder);
    let ended = second.end(SOON);
    assert_eq!(ended.stdout, "building\n42\ndone\n", "{ended}\n{}", service.log());
    assert!(!first.end(SOON).success());
}

#[test]
fn the_next_service_finds_what_the_last_one_built() {
    let bench = Bench::new();
    let service = bench.service();
    let first = bench.output_when_stored(&service, "build_without_arguments", 1);
    service.stop().unwrap();
    let service = bench.service();
    assert_eq!(bench.output(&service, "build_without_arguments"), first);
    assert_eq!((count(&service, BUILT), count(&service, ON_DISK)), (0, 1), "{}", service.log());
}

/// Damages the only file of the cache; the next session must be right all the same.
fn assert_right_after(damage: impl Fn(&Path)) {
    let bench = Bench::new();
    let service = bench.service();
    let first = bench.output_when_stored(&service, "build_without_arguments", 1);
    service.stop().unwrap();
    let files = bench.files();
    assert_eq!(files.len(), 1);
    damage(&files[0]);
    let service = bench.service();
    let again = bench.output_when_stored(&service, "build_without_arguments", 1);
    assert_eq!(without_binary(&again), without_binary(&first), "{}", service.log());
    assert_eq!(count(&service, BUILT), 1, "{}", service.log());
    // And it is whole again.
    service.stop().unwrap();
    let service = bench.service();
    assert_eq!(bench.output(&service, "build_without_arguments"), again);
    assert_eq!(count(&service, ON_DISK), 1, "{}", service.log());
}

#[test]
fn a_damaged_file_does_no_harm() {
    assert_right_after(|file| {
        let mut bytes = fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(file, bytes).unwrap();
    });
}

#[test]
fn a_binary_that_the_vendor_refuses_does_no_harm() {
    /// What a file begins with: magic, format, name, length, and then the hash of the content.
    const HEAD: usize = 16 + 4 + 32 + 8 + 32;
    assert_right_after(|file| {
        let mut bytes = fs::read(file).unwrap();
        // Two parts, each after its length: the report and the binary.
        let content = &mut bytes[HEAD..];
        let report = u32::from_le_bytes(content[4..8].try_into().unwrap()) as usize;
        content[8 + report + 4..].fill(0x5a);
        let hash = Sha256::digest(&bytes[HEAD..]);
        bytes[HEAD - 32..HEAD].copy_from_slice(&hash);
        fs::write(file, bytes).unwrap();
    });
}

#[test]
fn without_a_place_for_files_programs_are_shared_all_the_same() {
    let bench = Bench::new();
    // Where the directory should be is a file.
    fs::write(bench.cache(), b"").unwrap();
    let service = bench.service();
    let first = bench.output_when_stored(&service, "build_without_arguments", 1);
    assert_eq!(bench.output(&service, "build_without_arguments"), first);
    assert_eq!((count(&service, BUILT), count(&service, FOUND)), (1, 1), "{}", service.log());
    let warnings = service.log().lines().filter(|line| line.contains("WARN")).count();
    assert_eq!(warnings, 1, "{}", service.log());
}
