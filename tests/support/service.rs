//! A running `telecl serve`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{Artifacts, Link, Vendor, wait_until};

/// A service of the test's own, on a port of its own. Dropping it kills it.
#[derive(Debug)]
pub struct Service {
    child: Child,
    address: String,
    log: PathBuf,
    /// Where its Unix socket is.
    runtime: TempDir,
    /// Those it was started with.
    variables: Vec<(String, String)>,
    /// Who it is, if not the test.
    user: Option<u32>,
}

impl Service {
    pub fn start(artifacts: &Artifacts, vendor: &Vendor) -> Result<Service, String> {
        Service::start_at(artifacts, vendor, "127.0.0.1:0", &[])
    }

    /// Starts a service with further variables in its environment, and waits until it says where it listens.
    pub fn start_at(
        artifacts: &Artifacts,
        vendor: &Vendor,
        address: &str,
        variables: &[(&str, &str)],
    ) -> Result<Service, String> {
        Service::start_as(artifacts, vendor, address, variables, None)
    }

    /// As [`Service::start_at`], as another user.
    pub fn start_as(
        artifacts: &Artifacts,
        vendor: &Vendor,
        address: &str,
        variables: &[(&str, &str)],
        user: Option<u32>,
    ) -> Result<Service, String> {
        let log = tempfile::Builder::new().prefix("service-").suffix(".log").tempfile_in(&artifacts.scratch);
        let (_, log) = log.and_then(|log| log.keep().map_err(Into::into)).map_err(|error| error.to_string())?;
        // Several may write: workers may outlive the service, and it may be started again.
        let log_file = File::options().append(true).open(&log).map_err(|error| error.to_string())?;
        let runtime = TempDir::with_prefix("telecl-run-").map_err(|error| error.to_string())?;
        let variables: Vec<_> = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        if let Some(user) = user {
            chown(runtime.path(), Some(user), Some(user)).map_err(|error| error.to_string())?;
        }
        let child = spawn(artifacts, vendor, address, log_file, &runtime, &variables, user)?;
        let mut service = Service { child, address: String::new(), log, runtime, variables, user };
        service.await_address()?;
        Ok(service)
    }

    /// Starts it again, after its end, as it was started before: at the same address, with the same log.
    pub fn start_again(&mut self, artifacts: &Artifacts, vendor: &Vendor) -> Result<(), String> {
        let log = File::options().append(true).open(&self.log).map_err(|error| error.to_string())?;
        self.child = spawn(artifacts, vendor, &self.address, log, &self.runtime, &self.variables, self.user)?;
        self.await_address()
    }

    fn await_address(&mut self) -> Result<(), String> {
        match lines_of(&mut self.child).recv_timeout(Duration::from_secs(60)) {
            Ok(line) => match line.strip_prefix("listening on ") {
                Some(address) => self.address = address.trim_end().to_owned(),
                None => return Err(format!("the service said {line:?}\n{}", self.log())),
            },
            Err(_) => return Err(format!("the service did not say where it listens\n{}", self.log())),
        }
        Ok(())
    }

    /// The broker's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The directory that has its Unix socket, unless it was told to listen at one.
    pub fn socket_directory(&self) -> PathBuf {
        self.runtime.path().join("telecl")
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_else(|error| format!("cannot read {}: {error}", self.log.display()))
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// An error unless every worker that this program has had so far used this link. The program has ended, or has
    /// done something that only a worker can do. Returns how many there were.
    pub fn check_link(&self, program: u32, link: Link) -> Result<usize, String> {
        let mut log = String::new();
        wait_until("every session has a worker or is over", Duration::from_secs(20), || {
            log = self.log();
            let sessions = sessions_of(&log, Some(program));
            sessions.iter().all(|session| is_over(&log, session) || link_of(&log, session).is_some())
        });
        let sessions = sessions_of(&log, Some(program));
        let used: Vec<Link> = sessions.iter().filter_map(|session| link_of(&log, session)).collect();
        if used.iter().all(|used| *used == link.first()) {
            return Ok(used.len());
        }
        let of_program = |line: &&str| field(line, "session=").is_some_and(|session| sessions.contains(&session));
        let lines: Vec<&str> = log.lines().filter(of_program).collect();
        Err(format!("the program was not served {link}:\n{}", lines.join("\n")))
    }

    /// An error unless the workers of this program, which has ended, had leave to compress what they send, or had not.
    pub fn check_compression(&self, program: u32, expected: bool) -> Result<(), String> {
        let log = self.log();
        let sessions = sessions_of(&log, Some(program));
        let taken = log.lines().filter(|line| line.contains("connection taken over"));
        let mut taken = taken.filter(|line| field(line, "session=").is_some_and(|session| sessions.contains(&session)));
        match taken.find(|line| field(line, "compresses=") != Some(if expected { "true" } else { "false" })) {
            Some(line) => Err(format!("the worker was to compress ({expected}), but said: {line}")),
            None => Ok(()),
        }
    }

    /// As [`Service::check_link`], of all programs there have been.
    pub fn check_all_links(&self, link: Link) -> Result<(), String> {
        let log = self.log();
        match sessions_of(&log, None)
            .iter()
            .find(|session| link_of(&log, session).is_some_and(|used| used != link.first()))
        {
            Some(session) => Err(format!("session {session} was not served {link}\n{log}")),
            None => Ok(()),
        }
    }

    /// How many streams have joined sessions so far.
    pub fn streams(&self) -> usize {
        self.log().matches("stream joined").count()
    }

    /// The process ids of the workers that have a session.
    pub fn workers(&self) -> Vec<u32> {
        children_of(self.child.id(), Some("telecl-worker"))
    }

    /// The process ids of the workers that wait for a session.
    pub fn idle_workers(&self) -> Vec<u32> {
        children_of(self.child.id(), Some("telecl-idle"))
    }

    /// Waits until its only session has a worker, and returns that worker's process id.
    pub fn only_worker(&self) -> u32 {
        wait_until("one worker", Duration::from_secs(20), || self.workers().len() == 1);
        self.workers()[0]
    }

    /// Waits until all sessions have ended; panics if a worker stays.
    pub fn wait_without_workers(&self, limit: Duration) {
        wait_until("all workers gone", limit, || self.workers().is_empty());
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        // It may be dead already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it as an init system would. It must be alive before, and end well, leaving no worker.
    pub fn stop(mut self) -> Result<(), String> {
        if let Some(status) = self.ended() {
            return Err(format!("the service died by itself ({status})\n{}", self.log()));
        }
        let workers = children_of(self.child.id(), None);
        let signalled = kill_process(Pid::from_child(&self.child), Signal::TERM);
        signalled.map_err(|error| format!("cannot stop the service: {error}"))?;
        let mut ended = None;
        wait_until("the service stops on SIGTERM", Duration::from_secs(20), || {
            ended = self.ended();
            ended.is_some()
        });
        if !ended.is_some_and(|status| status.success()) {
            return Err(format!("the service ended with {ended:?}\n{}", self.log()));
        }
        match workers.into_iter().find(|&worker| is_alive(worker)) {
            Some(worker) => Err(format!("worker {worker} outlived its service\n{}", self.log())),
            None => Ok(()),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
        // The log is worth keeping only when something was wrong.
        if !thread::panicking() {
            let _ = fs::remove_file(&self.log);
        }
    }
}

fn spawn(
    artifacts: &Artifacts,
    vendor: &Vendor,
    address: &str,
    log: File,
    runtime: &TempDir,
    variables: &[(String, String)],
    user: Option<u32>,
) -> Result<Child, String> {
    let mut command = service_command(artifacts, vendor, address, log);
    command.env("XDG_RUNTIME_DIR", runtime.path()).envs(variables.iter().map(|(name, value)| (name, value)));
    if let Some(user) = user {
        command.uid(user).gid(user).env("HOME", runtime.path());
    }
    command.spawn().map_err(|error| format!("cannot start {}: {error}", artifacts.telecl.display()))
}

/// The sessions that a program has opened, or all.
fn sessions_of(log: &str, program: Option<u32>) -> Vec<&str> {
    let wanted = program.map(|id| id.to_string());
    let opened = log.lines().filter(|line| line.contains("session opened"));
    let opened = opened.filter(|line| wanted.is_none() || field(line, "pid=") == wanted.as_deref());
    opened.filter_map(|line| field(line, "session=")).collect()
}

/// What the session's worker has said about its link, if there was one.
fn link_of(log: &str, session: &str) -> Option<Link> {
    let mut lines = log.lines().filter(|line| line.contains("connection taken over"));
    let line = lines.find(|line| field(line, "session=") == Some(session))?;
    Some(if field(line, "shared_memory=") == Some("true") { Link::SharedMemory } else { Link::Tcp })
}

fn is_over(log: &str, session: &str) -> bool {
    log.lines().any(|line| line.contains("session closed") && field(line, "session=") == Some(session))
}

/// The value of `name=` in a line of the log.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name))
}

/// Whether a process exists and is not merely waiting to be collected.
pub fn is_alive(process: u32) -> bool {
    stat(process).is_some_and(|stat| stat.state != "Z" && stat.state != "X")
}

/// Those with this name, or all.
fn children_of(parent: u32, name: Option<&str>) -> Vec<u32> {
    let wanted = |stat: Stat| stat.parent == parent && stat.state != "Z" && name.is_none_or(|name| stat.name == name);
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&process| stat(process).is_some_and(wanted))
        .collect()
}

struct Stat {
    name: String,
    state: String,
    parent: u32,
}

/// What the system says about a process. Its name, which stands in brackets, may hold anything.
fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (name, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let name = name.split_once('(')?.1.to_owned();
    Some(Stat { name, state: fields.next()?.to_owned(), parent: fields.next()?.parse().ok()? })
}

fn service_command(artifacts: &Artifacts, vendor: &Vendor, address: &str, log: File) -> Command {
    let mut command = vendor.command_direct(&artifacts.telecl);
    // Workers say which link they have at the level for developers.
    command.env("RUST_LOG", "info,telecl_service::worker::start=debug,telecl_service::worker::streams=debug");
    command.args(["serve", "--listen", address]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    // A test that wants files names a directory of its own.
    command.env("TELECL_CACHE_DIR", "none");
    // A test that is about to stop a service does not want to wait for its sessions.
    command.env("TELECL_DRAIN_GRACE", "0s");
    command
}

/// Its lines of output, read to the end so that it never blocks on writing them.
fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Nobody reads past the first line.
                let _ = sender.send(line);
            }
        });
    }
    lines
}
