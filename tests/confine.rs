//! What a kernel can do to the machine that it runs on. On a CPU device it is native code: the one in
//! `c/confine_client.c` makes system calls of its own. Every attempt is also made at a service that does not confine its
//! workers, where it succeeds: nothing here holds because the attempt was wrong.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]
#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use seccompiler::{SeccompAction, SeccompFilter};
use system_tests::{Bench, Ended, Programs, Running, SOON, Service, is_alive, run, wait_until};
use tempfile::TempDir;

const EPERM: &str = "-1";
const EACCES: &str = "-13";
const ENOMEM: &str = "-12";

/// What a kernel takes that is compiled for the first time, on a busy machine.
const A_WHILE: Duration = Duration::from_secs(60);

/// Somebody who is not root and has no other process.
const SOMEBODY: u32 = 1_900_500_000;

/// As whom services are tested: root, if we are, and a user who is not.
fn users() -> Vec<Option<u32>> {
    if geteuid().is_root() { vec![None, Some(SOMEBODY)] } else { vec![None] }
}

/// A service, and what it has to keep.
struct Place {
    bench: Bench,
    service: Service,
    user: Option<u32>,
    directory: TempDir,
}

impl Place {
    fn new(user: Option<u32>, confine: &str) -> Place {
        Place::with(user, &[("TELECL_CONFINE", confine)])
    }

    fn with(user: Option<u32>, variables: &[(&str, &str)]) -> Place {
        let (bench, directory) = (Bench::new(), TempDir::new().unwrap());
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let service = Service::start_as(&bench.artifacts, &bench.vendor, "127.0.0.1:0", variables, user);
        let service = service.unwrap_or_else(|reason| panic!("{reason}"));
        Place { bench, service, user, directory }
    }

    /// A file that only the service's user may read.
    fn secret(&self) -> PathBuf {
        let path = self.directory.path().join("service.key");
        fs::write(&path, "the secret of the service").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        chown(&path, self.user, self.user).unwrap();
        path
    }

    fn command(&self, case: &str, target: &str) -> Command {
        let client = Programs::build().unwrap().path("confine_client");
        let mut command = self.bench.vendor.command_through(&client, &self.service);
        command.arg(case).env("TELECL_TEST_TARGET", target);
        command
    }

    /// What a kernel comes to.
    fn attempt(&self, case: &str, target: &str) -> Attempt {
        let ended = run(self.command(case, target), A_WHILE).unwrap();
        assert!(ended.success(), "{ended}\n{}", self.service.log());
        Attempt::new(&ended)
    }

    /// A session that stays.
    fn stays(&self, case: &str, line: &str) -> (Running, String) {
        let mut running = Running::start(self.command(case, "")).unwrap();
        let line = running.expect_line_with(line, A_WHILE);
        (running, line)
    }
}

/// The lines of an attempt by their names.
#[derive(Debug)]
struct Attempt(BTreeMap<String, String>);

impl Attempt {
    fn new(ended: &Ended) -> Attempt {
        let lines = ended.stdout.lines().filter_map(|line| line.split_once(": "));
        Attempt(lines.map(|(name, result)| (name.to_owned(), result.to_owned())).collect())
    }

    fn check(&self, expected: &[(&str, &str)]) {
        for (name, result) in expected {
            assert_eq!(self.0.get(*name).map(String::as_str), Some(*result), "{name} of {self:?}");
        }
    }
}

/// Another process of the service's user.
struct Bystander(Child);

impl Bystander {
    fn new(user: Option<u32>) -> Bystander {
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::null());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        Bystander(command.spawn().unwrap())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_kernel_cannot_read_or_change_the_services_files() {
    for user in users() {
        let open = Place::new(user, "off");
        let secret = open.secret();
        let secret = secret.to_str().unwrap();
        open.attempt("reads_a_file", secret).check(&[("file", "the secret of the service")]);
        open.attempt("lists_a_directory", "/tmp").check(&[("list", "0")]);
        open.attempt("changes_a_file", secret).check(&[("write", "0"), ("chmod", "0")]);

        let confined = Place::new(user, "on");
        let secret = confined.secret();
        let path = secret.to_str().unwrap();
        confined.attempt("reads_a_file", path).check(&[("file", EACCES)]);
        for place in ["/tmp", "/etc", "/root", "/home", "/var", "/run", "/proc", "/dev/shm"] {
            confined.attempt("lists_a_directory", place).check(&[("list", EACCES)]);
        }
        let changed = confined.attempt("changes_a_file", path);
        changed.check(&[("write", EACCES), ("chmod", EPERM), ("unlink", EACCES)]);
        assert_eq!(fs::read_to_string(&secret).unwrap(), "the secret of the service");
        // What everybody may read, a vendor's library may.
        let version = confined.attempt("reads_a_file", "/proc/sys/kernel/ostype");
        version.check(&[("file", "Linux")]);
    }
}

#[test]
fn a_kernel_has_no_network() {
    for user in users() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // At its own service's socket a worker would be whoever the service is.
        let target = |place: &Place| {
            let sockets = fs::read_dir(place.service.socket_directory()).unwrap().flatten();
            let socket =
                sockets.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|ext| ext == "sock"));
            format!("{port} {}", socket.unwrap().display())
        };
        let place = Place::new(user, "off");
        let open = place.attempt("uses_the_network", &target(&place));
        open.check(&[("inet", "0"), ("unix", "0"), ("netlink", "0"), ("connect", "0"), ("service", "0")]);
        let place = Place::new(user, "on");
        let confined = place.attempt("uses_the_network", &target(&place));
        let all = ["inet", "inet6", "unix", "netlink", "connect", "service"];
        confined.check(&all.map(|family| (family, EPERM)));
        confined.check(&[("turned", "0")]);
    }
}

#[test]
fn a_kernel_can_signal_its_own_process_only() {
    for user in users() {
        let bystander = Bystander::new(user);
        let process = bystander.0.id().to_string();
        let all = ["kill", "tgkill", "pidfd", "prlimit"];
        Place::new(user, "off").attempt("signals_a_process", &process).check(&all.map(|call| (call, "0")));
        let place = Place::new(user, "on");
        for process in [process, place.service.id().to_string()] {
            let confined = place.attempt("signals_a_process", &process);
            confined.check(&all.map(|call| (call, EPERM)));
            confined.check(&[("itself", "0")]);
        }
    }
}

#[test]
fn a_kernel_cannot_read_the_memory_or_the_files_of_another_session() {
    const SECRET: &str = "the secret of a session";
    for user in users() {
        for (confine, memory) in [("off", SECRET), ("on", "denied")] {
            let place = Place::new(user, confine);
            let (_victim, line) = place.stays("has_a_secret", "secret: ");
            let target = line.trim_start_matches("secret: ").trim();
            let (process, _) = target.split_once(' ').unwrap();
            let attempt = place.attempt("reads_anothers_memory", target);
            attempt.check(&[("process_vm_readv", memory), ("mem", memory)]);
            let scratch = scratch_of(process);
            let files = place.attempt("lists_a_directory", scratch.to_str().unwrap());
            if confine == "off" {
                attempt.check(&[("environ", "0"), ("ptrace", "0")]);
                files.check(&[("list", "0")]);
            } else {
                attempt.check(&[("environ", EACCES), ("ptrace", EPERM)]);
                files.check(&[("list", EACCES)]);
            }
        }
    }
}

/// Where a worker has its files.
fn scratch_of(process: &str) -> PathBuf {
    let environment = fs::read(Path::new("/proc").join(process).join("environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    let place = environment.split('\0').find_map(|variable| variable.strip_prefix("TELECL_SCRATCH="));
    PathBuf::from(place.unwrap())
}

#[test]
fn a_worker_has_bounds() {
    for user in users() {
        let open = Place::new(user, "off").attempt("tells_who_it_is", "");
        open.check(&[("unshare", "0"), ("socketpair", "0"), ("3 GiB", "0")]);
        let place = Place::with(user, &[("TELECL_CONFINE", "require"), ("TELECL_WORKER_MEMORY", "2GiB")]);
        let confined = place.attempt("tells_who_it_is", "");
        confined.check(&[("unshare", EPERM), ("socketpair", EPERM), ("3 GiB", ENOMEM)]);
    }
}

#[test]
fn what_a_kernel_starts_ends_with_its_session() {
    for user in users() {
        for (confine, stays) in [("off", true), ("on", false)] {
            let place = Place::new(user, confine);
            let (session, line) = place.stays("leaves_a_process_behind", "child: ");
            let child: i32 = line.trim_start_matches("child: ").trim().parse().unwrap();
            assert!(is_alive(child.unsigned_abs()));
            drop(session);
            place.service.wait_without_workers(SOON);
            if stays {
                assert!(is_alive(child.unsigned_abs()));
                kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
            } else {
                wait_until("the process is gone", SOON, || !is_alive(child.unsigned_abs()));
            }
        }
    }
}

#[test]
fn workers_of_a_service_of_root_are_users_of_their_own() {
    if !geteuid().is_root() {
        return println!("not root: nothing to test");
    }
    let variables = [("TELECL_CONFINE", "require"), ("TELECL_WORKER_UIDS", "1900600000-1900600099")];
    let place = Place::with(None, &variables);
    let (_one, _) = place.stays("has_a_secret", "secret: ");
    let (_two, _) = place.stays("has_a_secret", "secret: ");
    let users: Vec<u32> = place.service.workers().into_iter().map(user_of).collect();
    assert!(users.len() == 2 && users[0] != users[1], "{users:?}");
    assert!(users.iter().all(|user| (1_900_600_000..=1_900_600_099).contains(user)), "{users:?}");
    place.attempt("tells_who_it_is", "");
    let open = Place::with(None, &[("TELECL_CONFINE", "on"), ("TELECL_WORKER_UIDS", "none")]);
    open.attempt("tells_who_it_is", "").check(&[("user", "0"), ("unshare", EPERM)]);
    // Where users cannot be had, it is said, and done without, or not.
    let bystander = Bystander::new(Some(1_900_600_200));
    let taken = [("TELECL_CONFINE", "require"), ("TELECL_WORKER_UIDS", "1900600200-1900600200")];
    let bench = Bench::new();
    let refused = Service::start_as(&bench.artifacts, &bench.vendor, "127.0.0.1:0", &taken, None).unwrap_err();
    assert!(refused.contains("workers cannot get users of their own: all user ids"), "{refused}");
    drop(bystander);
}

fn user_of(process: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn what_the_system_cannot_enforce_is_logged_or_refused() {
    for user in users() {
        let landlock = without(SYS_LANDLOCK, user, "on").unwrap();
        let log = landlock.service.log();
        assert!(log.contains("not fully confined") && log.contains("this kernel has no Landlock"), "{log}");
        // The others still hold: the processes of one user are closed to each other, and root's workers are others.
        let (_victim, line) = landlock.stays("has_a_secret", "secret: ");
        let target = line.trim_start_matches("secret: ").trim();
        landlock.attempt("reads_anothers_memory", target).check(&[("process_vm_readv", "denied"), ("mem", "denied")]);
        landlock.attempt("uses_the_network", "1").check(&[("inet", EPERM)]);
        if geteuid().is_root() && user.is_none() {
            let secret = landlock.secret();
            landlock.attempt("reads_a_file", secret.to_str().unwrap()).check(&[("file", EACCES)]);
        }
        let seccomp = without(SYS_SECCOMP, user, "on").unwrap();
        let log = seccomp.service.log();
        assert!(log.contains("not fully confined") && log.contains("no seccomp filter"), "{log}");
        let secret = seccomp.secret();
        seccomp.attempt("reads_a_file", secret.to_str().unwrap()).check(&[("file", EACCES)]);
        for call in [SYS_LANDLOCK, SYS_SECCOMP] {
            let refused = without(call, user, "require").err().unwrap();
            assert!(refused.contains("cannot be confined as `confine = \"require\"` wants it"), "{refused}");
        }
    }
}

const SYS_LANDLOCK: i64 = 444;
const SYS_SECCOMP: i64 = 317;

/// A service whose kernel does not have a system call.
fn without(call: i64, user: Option<u32>, confine: &'static str) -> Result<Place, String> {
    let start = move || {
        let (bench, directory) = (Bench::new(), TempDir::new().unwrap());
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let rules = [(call, Vec::new())].into_iter().collect();
        let missing = SeccompAction::Errno(38);
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, missing, arch).unwrap();
        let filter: seccompiler::BpfProgram = filter.try_into().unwrap();
        // Of this thread only, and of what it starts.
        seccompiler::apply_filter(&filter).unwrap();
        let variables = [("TELECL_CONFINE", confine)];
        let service = Service::start_as(&bench.artifacts, &bench.vendor, "127.0.0.1:0", &variables, user)?;
        Ok(Place { bench, service, user, directory })
    };
    thread::spawn(start).join().unwrap()
}
