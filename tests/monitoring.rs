//! What a service says about its devices, tenants and sessions: to Prometheus, in its accounting, and to people.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use system_tests::{Bench, Ended, Link, Running, SOON, Service, get, metrics_address, run, wait_until};
use tempfile::TempDir;

/// Another user than the one who runs the tests.
const STRANGER: u32 = 54_321;

/// What `work_and_stay` in `c/fault_client.c` does.
const COMMANDS: u64 = 4 + 7 + 2;
const WRITTEN: u64 = 4 * (3 << 20);
const READ: u64 = 2 * (3 << 20);
/// No more than this are heads and bodies of frames.
const OVERHEAD: u64 = 64 << 10;

/// A service that keeps books.
struct Watched {
    bench: Bench,
    service: Service,
    directory: TempDir,
}

impl Watched {
    fn new() -> Watched {
        let (bench, directory) = (Bench::new(), TempDir::new().unwrap());
        let accounting = directory.path().join("accounting.jsonl").display().to_string();
        let variables = [("TELECL_METRICS", "127.0.0.1:0"), ("TELECL_ACCOUNTING", accounting.as_str())];
        let service = bench.service_at("127.0.0.1:0", &variables);
        Watched { bench, service, directory }
    }

    /// All samples of its page, by name and labels as they stand there.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let (head, text) = get(&metrics_address(&self.service), "/metrics");
        assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/openmetrics-text"), "{head}");
        let mut lines = text.lines();
        assert_eq!(lines.next_back(), Some("# EOF"));
        let mut family = String::new();
        let mut samples = BTreeMap::new();
        for line in lines {
            if let Some(named) = line.strip_prefix("# TYPE ") {
                family = named.split(' ').next().unwrap().to_owned();
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(name.starts_with(&family) && name.starts_with("telecl_"), "{line} is not of {family}");
                let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
                assert!(samples.insert(name.to_owned(), value).is_none(), "{line} is there twice");
            }
        }
        samples
    }

    /// What a tenant has of a metric; `rest` are further labels.
    fn of_tenant(&self, metric: &str, tenant: &str, rest: &str) -> u64 {
        let metrics = self.metrics();
        let key = format!("telecl_tenant_{metric}{{tenant=\"{tenant}\"{rest}}}");
        *metrics.get(&key).unwrap_or_else(|| panic!("no {key} in {metrics:#?}")) as u64
    }

    fn telecl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.bench.artifacts.telecl);
        command.args(args).env("TELECL_CONFIG", "/dev/null");
        command
    }

    fn socket(&self) -> PathBuf {
        let port = self.service.address().rsplit(':').next().unwrap();
        self.service.socket_directory().join(format!("{port}.sock"))
    }

    /// What `telecl sessions --json` says of the one service.
    fn sessions(&self) -> Value {
        json(&run(self.telecl(&["sessions", "--json", "--on", self.service.address()]), SOON).unwrap())
    }

    /// The number of a program's session that has a worker.
    fn session_of(&self, program: u32) -> u64 {
        let sessions = self.sessions();
        let of_program = |session: &&Value| session["pid"] == program && session["working"] == true;
        let found = sessions["services"][0]["sessions"].as_array().unwrap().iter().find(of_program).cloned();
        found.unwrap_or_else(|| panic!("no session of {program}: {sessions:#}"))["session"].as_u64().unwrap()
    }

    /// The lines of the accounting, when there are so many.
    fn accounting(&self, count: usize) -> Vec<Value> {
        let path = self.directory.path().join("accounting.jsonl");
        let lines = || fs::read_to_string(&path).unwrap_or_default().lines().map(ToOwned::to_owned).collect::<Vec<_>>();
        wait_until("accounting", SOON, || lines().len() >= count);
        assert_eq!(lines().len(), count);
        lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
}

fn kill(process: u32) {
    kill_process(Pid::from_raw(i32::try_from(process).unwrap()).unwrap(), Signal::KILL).unwrap();
}

fn tenant(link: Link) -> String {
    match link {
        Link::SharedMemory => format!("user:{}", user_name()),
        Link::Tcp | Link::Streams(_) => "anonymous".to_owned(),
    }
}

fn user_name() -> String {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid));
    line.and_then(|line| line.split(':').next()).unwrap().to_owned()
}

/// `low` or a little more.
fn assert_about(value: u64, low: u64, what: &str) {
    assert!((low..low + OVERHEAD).contains(&value), "{what}: {value} instead of {low}");
}

#[test]
fn a_known_amount_of_work_is_counted_and_a_crash_loses_nothing_of_it() {
    for link in [Link::Tcp, Link::SharedMemory, Link::Streams(2)] {
        let watched = Watched::new();
        let program = watched.bench.client(&watched.service, link, "work_and_stay", "worked");
        let tenant = tenant(link);
        let check = |when: &str| {
            assert_eq!(watched.of_tenant("commands_total", &tenant, ""), COMMANDS, "{link}, {when}");
            assert_eq!(watched.of_tenant("builds_total", &tenant, ""), 2, "{link}, {when}");
            assert_eq!(watched.of_tenant("cache_hits_total", &tenant, ""), 0, "{link}, {when}");
            assert_eq!(watched.of_tenant("errors_total", &tenant, ""), 1, "{link}, {when}: the build that fails");
            let bytes =
                |way: &str| watched.of_tenant("transfer_bytes_total", &tenant, &format!(",direction=\"{way}\""));
            assert_about(bytes("in"), WRITTEN, &format!("{link}, {when}: in"));
            assert_about(bytes("out"), READ, &format!("{link}, {when}: out"));
            assert_eq!(watched.of_tenant("sessions_total", &tenant, ""), 1, "{link}, {when}");
        };
        check("while it runs");
        assert_eq!(watched.of_tenant("sessions_present", &tenant, ""), 1, "{link}");
        let session = watched.session_of(program.id());
        let on_device = |metrics: &BTreeMap<String, f64>| {
            let of_first = |(name, _): &(&String, &f64)| name.starts_with("telecl_device_sessions{device=\"1\"");
            *metrics.iter().find(of_first).unwrap().1
        };
        assert_eq!(on_device(&watched.metrics()), 1.0, "{link}");

        kill(watched.service.only_worker());
        let line = &watched.accounting(1)[0];
        check("after the crash");
        assert_eq!(watched.of_tenant("sessions_present", &tenant, ""), 0, "{link}");
        assert_eq!(watched.of_tenant("sessions_failed_total", &tenant, ""), 1, "{link}");
        assert_eq!(on_device(&watched.metrics()), 0.0, "{link}");
        assert_eq!((&line["tenant"], &line["pid"]), (&tenant.clone().into(), &program.id().into()), "{line}");
        assert_eq!((&line["session"], &line["ok"]), (&session.into(), &false.into()), "{line}");
        assert!(line["ended"].as_str().unwrap().contains("SIGKILL"), "{line}");
        assert_eq!((&line["commands"], &line["builds"], &line["failures"]), (&COMMANDS.into(), &2.into(), &1.into()));
        assert_about(line["bytes_in"].as_u64().unwrap(), WRITTEN, "accounting");
        assert_eq!((&line["devices"][0]["device"], line["devices"].as_array().unwrap().len()), (&1.into(), 1));
        assert!(line["begin"].as_str() < line["end"].as_str(), "{line}");
        let device_seconds = line["devices"][0]["device_seconds"].as_f64();
        assert!(device_seconds > Some(0.0) && device_seconds < line["seconds"].as_f64(), "{line}");
        drop(program);
        // A round trip is known of TCP only.
        let trips = watched.metrics()["telecl_session_round_trip_seconds_count"];
        assert_eq!(trips > 0.0, link != Link::SharedMemory, "{link}: {trips}");
    }
}

#[test]
fn who_only_looks_around_has_no_line_and_the_file_may_be_moved_away() {
    let watched = Watched::new();
    let once = |case: &str| run(watched.bench.command(&watched.service, Link::SharedMemory, case), SOON).unwrap();
    once("count_platforms");
    once("use_once");
    let first = &watched.accounting(1)[0];
    assert_eq!((&first["ended"], &first["user"]), (&"driver closed the connection".into(), &user_name().into()));
    let path = watched.directory.path().join("accounting.jsonl");
    fs::rename(&path, watched.directory.path().join("accounting.1")).unwrap();
    once("use_once");
    watched.accounting(1);
    // Where nothing can be written, there is one warning, and programs go on.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    for _ in 0..2 {
        assert_eq!(once("use_once").stdout, "served\n");
    }
    watched.service.wait_without_workers(SOON);
    fs::remove_dir(&path).unwrap();
    once("use_once");
    watched.accounting(1);
    assert_eq!(watched.service.log().matches("cannot write the accounting").count(), 1);
}

#[test]
fn a_program_whose_session_is_ended_is_told_by_whom() {
    for link in [Link::Tcp, Link::SharedMemory] {
        let watched = Watched::new();
        let program = Running::start(watched.bench.command(&watched.service, link, "do_nothing_until_told")).unwrap();
        wait_until("a worker", SOON, || watched.service.workers().len() == 1);
        let number = watched.session_of(program.id());
        let session = number.to_string();
        let ended =
            run(watched.telecl(&["sessions", "end", &session, "--on", watched.service.address()]), SOON).unwrap();
        assert!(ended.success() && ended.stdout.starts_with(&format!("session {session} of fault_client")), "{ended}");
        let program = program.end(SOON);
        let told = program.stdout.lines().next().unwrap_or_default();
        assert!(told.starts_with("told: ") && told.contains("ended by an operator"), "{link}: {program}");
        assert!(program.stdout.ends_with("clFinish: CL_DEVICE_NOT_AVAILABLE\nbegun again\n"), "{link}: {program}");
        assert!(program.stderr.contains("ended by an operator (telecl sessions end)"), "{link}: {program}");
        assert_eq!(program.stderr.lines().count(), 1, "{link}: {program}");
        // The program's next session may be gone first.
        let lines = watched.accounting(2);
        let line = lines.iter().find(|line| line["session"] == number).unwrap();
        assert_eq!((&line["ok"], &line["ended"]), (&true.into(), &"ended by an operator".into()), "{line}");
        // It is not there any more.
        let again =
            run(watched.telecl(&["sessions", "end", &session, "--on", watched.service.address()]), SOON).unwrap();
        assert_eq!(again.status.and_then(|status| status.code()), Some(1), "{again}");
        assert!(again.stderr.contains(&format!("there is no session {session}")), "{again}");
    }
}

#[test]
fn top_shows_devices_tenants_and_sessions() {
    let watched = Watched::new();
    let program = watched.bench.client(&watched.service, Link::SharedMemory, "work_and_stay", "worked");
    let address = watched.service.address();
    let once = run(watched.telecl(&["top", "--once", "--on", address]), SOON).unwrap();
    assert!(once.success(), "{once}");
    for part in ["DEVICE", "TENANT", "fault_client", &program.id().to_string(), &tenant(Link::SharedMemory)] {
        assert!(once.stdout.contains(part), "{part}: {once}");
    }
    let answer = json(&run(watched.telecl(&["top", "--json", "--on", address]), SOON).unwrap());
    let service = &answer["services"][0];
    assert_eq!(service["operator"], true, "at the Unix socket, whatever address was given: {answer:#}");
    assert_eq!((&service["devices"][0]["sessions"], &service["devices"][0]["device"]), (&1.into(), &1.into()));
    assert!(service["devices"][0]["busy"].is_number() && service["devices"][0]["memory"].as_u64() > Some(0));
    let session = &service["sessions"][0];
    assert_eq!((&session["pid"], &session["commands"]), (&program.id().into(), &COMMANDS.into()), "{session}");
    assert_eq!(session["bytes_per_second"], 0.0, "{session}");
    let no_terminal = run(watched.telecl(&["top", "--on", address]), SOON).unwrap();
    assert_eq!(no_terminal.status.and_then(|status| status.code()), Some(2), "{no_terminal}");
    let nobody = run(watched.telecl(&["top", "--once", "--on", "127.0.0.1:1"]), SOON).unwrap();
    assert_eq!(nobody.status.and_then(|status| status.code()), Some(3), "{nobody}");
    assert!(nobody.stdout.contains("127.0.0.1:1 cannot be used"), "{nobody}");
}

#[test]
fn top_draws_on_a_terminal_and_gives_it_back() {
    let watched = Watched::new();
    let _program = watched.bench.client(&watched.service, Link::SharedMemory, "hold_device", "held");
    let telecl = watched.bench.artifacts.telecl.display();
    let line = format!("stty cols 100 rows 30; {telecl} top --interval 200ms --on {}", watched.service.address());
    // It has a terminal of its own there, and a key is pressed after a while.
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("(sleep 2; printf q) | script -qec '{line}' /dev/null"));
    command.env("TELECL_CONFIG", "/dev/null").env("TERM", "xterm");
    let ended = run(command, SOON).unwrap();
    if ended.stderr.contains("script: not found") {
        return eprintln!("skipped: no script(1) to make a terminal");
    }
    assert!(ended.success(), "{ended}");
    for part in ["\u{1b}[?1049h", "fault_client", "(1)───", "\u{1b}[?1049l"] {
        assert!(ended.stdout.contains(part), "{part:?}: {ended}");
    }
}

#[test]
fn others_see_and_end_what_is_their_own() {
    if rustix::process::geteuid().as_raw() != 0 {
        return eprintln!("skipped: only root can run a program as another user");
    }
    let watched = Watched::new();
    let as_stranger = |mut command: Command| {
        command.uid(STRANGER).gid(STRANGER).current_dir("/");
        command
    };
    let client = |case: &str| as_stranger(watched.bench.command(&watched.service, Link::SharedMemory, case));
    // The directories of a test are its user's own.
    let vendors =
        client("").get_envs().find_map(|(name, value)| (name == "OCL_ICD_VENDORS").then_some(value?.to_owned()));
    let runtime = watched.service.socket_directory();
    for directory in [PathBuf::from(vendors.unwrap()).parent().unwrap(), runtime.parent().unwrap()] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let tried = run(client("count_platforms"), SOON);
    if !tried.as_ref().is_ok_and(|ended| ended.stdout.contains("1 platforms")) {
        return eprintln!("skipped: another user cannot run programs from here: {tried:?}");
    }
    let ours = watched.bench.client(&watched.service, Link::SharedMemory, "hold_device", "held");
    let remote = watched.bench.client(&watched.service, Link::Tcp, "hold_device", "held");
    let mut theirs = Running::start(client("do_nothing_until_told")).unwrap();
    wait_until("workers", SOON, || watched.service.workers().len() == 3);
    let (our_session, their_session) = (watched.session_of(ours.id()), watched.session_of(theirs.id()));
    let remote_session = watched.session_of(remote.id());

    let local = format!("unix:{}", watched.socket().display());
    let seen = |command: Command| {
        let answer = json(&run(command, SOON).unwrap());
        let service = answer["services"][0].clone();
        let list = |key: &str, field: &str| -> Vec<Value> {
            service[key].as_array().unwrap().iter().map(|one| one[field].clone()).collect()
        };
        (service["operator"].clone(), list("sessions", "session"), list("tenants", "tenant"), service)
    };
    // Root sees everybody; the stranger sees itself, and of the device what all do together.
    let (operator, sessions, ..) = seen(watched.telecl(&["sessions", "--json", "--on", &local]));
    assert_eq!((operator, sessions.len()), (true.into(), 3));
    let (operator, sessions, tenants, service) =
        seen(as_stranger(watched.telecl(&["sessions", "--json", "--on", &local])));
    assert_eq!((operator, sessions), (false.into(), vec![Value::from(their_session)]));
    assert_eq!(tenants, [Value::from(format!("uid:{STRANGER}"))]);
    assert_eq!(service["devices"][0]["sessions"], 3);
    assert!(!service.to_string().contains("anonymous") && !service.to_string().contains("user:root"), "{service:#}");

    let end = |session: u64| watched.telecl(&["sessions", "end", &session.to_string(), "--on", &local]);
    for others in [our_session, remote_session] {
        let refused = run(as_stranger(end(others)), SOON).unwrap();
        assert_eq!(refused.status.and_then(|status| status.code()), Some(1), "{refused}");
        assert!(
            refused.stderr.contains(&format!("there is no session {others} of tenant uid:{STRANGER}")),
            "{refused}"
        );
    }
    assert_eq!(watched.service.workers().len(), 3);
    let ended = run(as_stranger(end(their_session)), SOON).unwrap();
    assert!(ended.success(), "{ended}");
    theirs.expect_line("begun again", SOON);
    let theirs = theirs.end(SOON);
    assert!(theirs.stderr.contains("ended by somebody of its own tenant"), "{theirs}");
    // From afar one is anonymous, and sees those who are. A service that has no Unix socket cannot tell us better.
    let (bench, service) =
        (&watched.bench, watched.bench.service_at("127.0.0.1:0", &[("TELECL_LOCAL_SOCKET", "false")]));
    let far = bench.client(&service, Link::Tcp, "hold_device", "held");
    let (operator, sessions, tenants, _) = seen(watched.telecl(&["sessions", "--json", "--on", service.address()]));
    assert_eq!((operator, sessions.len(), tenants), (false.into(), 1, vec![Value::from("anonymous")]));
    drop(far);
}

#[test]
fn the_page_answers_what_it_knows_and_there_is_none_unless_it_is_wanted() {
    let watched = Watched::new();
    let address = metrics_address(&watched.service);
    assert_eq!(get(&address, "/healthz").1, "ok\n");
    assert!(get(&address, "/").0.starts_with("HTTP/1.1 404"));
    let protocol = telecl_wire::PROTOCOL_VERSION;
    let info = format!("telecl_service_info{{version=\"0.1.0\",protocol=\"{protocol}\"}}");
    assert_eq!(watched.metrics()[&info], 1.0);
    // Two who say nothing keep nobody waiting.
    let _silent: Vec<_> = (0..2).map(|_| std::net::TcpStream::connect(&address).unwrap()).collect();
    assert_eq!(get(&address, "/healthz").1, "ok\n");
    // Nonsense is counted where drivers connect.
    get(watched.service.address(), "/metrics");
    wait_until("a stranger", SOON, || watched.metrics()["telecl_handshake_failures_total{reason=\"stranger\"}"] >= 1.0);
    let taken = run(
        {
            let mut command = watched.bench.vendor.command_direct(&watched.bench.artifacts.telecl);
            command.args(["serve", "--listen", "127.0.0.1:0", "--metrics", &address]);
            command
        },
        SOON,
    )
    .unwrap();
    assert_eq!(taken.status.and_then(|status| status.code()), Some(1), "{taken}");
    assert!(taken.stderr.contains(&format!("cannot offer metrics at {address}")), "{taken}");
    watched.service.stop().unwrap();
    let bench = Bench::new();
    assert!(!bench.service().log().contains("metrics at"));
}
