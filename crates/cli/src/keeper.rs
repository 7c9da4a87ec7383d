//! The keeper: a process that looks after what a program run by `telecl run`, or `telecl bench`, needs, until it ends.
//!
//! `telecl run` becomes the program (it calls `exec`), so that signals, exit codes and job control
//! are the program's own. Somebody else must then remove the private directory and stop the private
//! service: the keeper. It is no child of the program, which may wait for "all children", and it is in
//! a process group of its own, so that Ctrl-C reaches the program and not its devices.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open};
use telecl_config::{Address, Confine, ServeConfig};
use telecl_service::ServeSettings;
use tempfile::TempDir;

use crate::exit::{Exit, Failure, Outcome};
use crate::{KeepArgs, LogFormat, launch, serve};

/// What a keeper says on its stdout once everything is in place.
const READY: &str = "ready";

/// What a keeper does besides removing the directory.
#[derive(Clone, Debug)]
pub(crate) enum Duty {
    Directory,
    /// Serves this machine's own devices at the directory's private address.
    Service(Serving),
}

/// How a private service differs from the simplest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Serving {
    /// Where it listens besides its private address.
    pub(crate) listen: Vec<Address>,
    pub(crate) policy: Option<PathBuf>,
    /// With a secret it speaks TLS too; nobody has to know it.
    pub(crate) secret: Option<PathBuf>,
    /// Starts workers ahead, as `telecl serve` does: it is for several programs.
    pub(crate) warm: bool,
}

/// What a keeper looks after.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) directory: PathBuf,
    /// Where its service listens besides the directory's private address: those asked for, with their real ports.
    pub(crate) addresses: Vec<Address>,
}

/// Starts a keeper for this process (and the program that it becomes), and waits until it is ready.
/// From then on the directory is the keeper's.
pub(crate) fn start(directory: TempDir, duty: Duty) -> Result<Kept, Failure> {
    let pid = process::id().try_into().unwrap_or_default();
    let serve = matches!(duty, Duty::Service(_));
    let Serving { listen, policy, secret, warm } = match duty {
        Duty::Directory => Serving::default(),
        Duty::Service(serving) => serving,
    };
    let (directory_path, detached) = (directory.path().to_owned(), false);
    let args = KeepArgs { pid, directory: directory_path, serve, listen, policy, secret, warm, detached };
    let mut command = keep_command(&args)?;
    let failed =
        |error: io::Error| Failure::new(Exit::Failed, format!("cannot start the keeper process: {error}"), "Try again");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
    }
    // The process that was started leaves at once; the keeper is its child.
    child.wait().map_err(failed)?;
    match line.trim() {
        ready if ready.split(' ').next() == Some(READY) => {
            let addresses = ready.split(' ').skip(1).filter_map(|address| address.parse().ok()).collect();
            Ok(Kept { directory: directory.keep(), addresses })
        }
        "" => Err(Failure::new(
            Exit::Failed,
            "the keeper process ended before it was ready",
            "Its message stands above; telecl doctor checks the parts one by one",
        )),
        reason => Err(Failure::new(Exit::Failed, reason, "")),
    }
}

/// The hidden command `telecl keep`.
pub(crate) fn keep(args: &KeepArgs) -> Outcome {
    if !args.detached {
        return detach(args);
    }
    let outcome = match Pid::from_raw(args.pid) {
        Some(pid) if args.serve => keep_service(pid, args),
        Some(pid) => {
            say(READY);
            wait_for_end(pid);
            Ok(Exit::Ok)
        }
        None => Err(Failure::new(Exit::Usage, "--pid is not a process id", "This command is for telecl run only")),
    };
    // Whoever removed it first did the work.
    let _ = std::fs::remove_dir_all(&args.directory);
    outcome
}

/// Starts the real keeper and leaves, so that it becomes nobody's child.
fn detach(args: &KeepArgs) -> Outcome {
    let mut command = keep_command(args)?;
    match command.arg("--detached").process_group(0).current_dir("/").stdin(Stdio::null()).spawn() {
        Ok(_) => Ok(Exit::Ok),
        Err(error) => Err(Failure::new(Exit::Failed, format!("cannot start the keeper process: {error}"), "")),
    }
}

fn keep_command(args: &KeepArgs) -> Result<Command, Failure> {
    let mut command = Command::new(serve::this_executable()?);
    command.arg("keep").arg("--pid").arg(args.pid.to_string()).arg("--directory").arg(&args.directory);
    if args.serve {
        command.arg("--serve");
    }
    for address in &args.listen {
        command.arg("--listen").arg(address.to_string());
    }
    if let Some(policy) = &args.policy {
        command.arg("--policy").arg(policy);
    }
    if let Some(secret) = &args.secret {
        command.arg("--secret").arg(secret);
    }
    if args.warm {
        command.arg("--warm");
    }
    Ok(command)
}

fn keep_service(pid: Pid, args: &KeepArgs) -> Outcome {
    // A private service is nobody's business unless something is wrong; that it cannot keep programs is not.
    let level = "warn,telecl_service::broker::cache=error";
    serve::log_to_stderr(LogFormat::Text, level);
    let worker = serve::worker_command(LogFormat::Text, level)?;
    let private = launch::private_address(&args.directory);
    let listen = [std::slice::from_ref(&private), &args.listen].concat();
    // What is built is kept for the next time.
    let config = ServeConfig::load()?;
    let mut settings = ServeSettings::new(listen, worker);
    // Nobody is kept from anything here: the program that it serves has all of its user's rights.
    settings.confinement = serve::confinement(config.confine.unwrap_or(Confine::Off), &config);
    let ServeConfig { cache_dir, cache_size, compression, terms, warm_workers, .. } = config;
    (settings.cache_dir, settings.cache_size, settings.compression) = (cache_dir, cache_size, compression);
    settings.terms = terms;
    settings.policy.clone_from(&args.policy);
    settings.credentials.secret.clone_from(&args.secret);
    settings.credentials.require = Some(false);
    if args.warm {
        // Otherwise there is one program and one session: no worker is started ahead for a second.
        settings.warm_workers = warm_workers;
    }
    let watch = move || {
        wait_for_end(pid);
        // The service stops cleanly on SIGTERM, whoever sends it.
        let _ = kill_process(getpid(), Signal::TERM);
    };
    // Started once the service watches for signals: before that, SIGTERM would end the keeper alone.
    let outcome = serve::run(settings, |addresses| {
        let others = addresses.iter().filter(|address| **address != private).map(Address::to_string);
        let ready = [READY.to_owned()].into_iter().chain(others).collect::<Vec<_>>().join(" ");
        match thread::Builder::new().name("telecl-keep".into()).spawn(watch) {
            Ok(_) => say(&ready),
            Err(error) => say(&format!("cannot start a thread: {error}")),
        }
    });
    outcome.or_else(|failure| {
        // `telecl run` reports it.
        say(&failure.to_string());
        Ok(Exit::Failed)
    })
}

/// Tells whoever started the keeper, who reads one line.
fn say(line: &str) {
    // If it is gone, the keeper finds out in a moment.
    let _ = writeln!(io::stdout(), "{}", line.replace('\n', " "));
}

/// Returns when the process has ended, also if nobody has collected its exit code yet.
fn wait_for_end(pid: Pid) {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => while let Err(Errno::INTR) = poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {},
        Err(Errno::SRCH) => {}
        // Kernels before 5.3, and some sandboxes, have no pidfd.
        Err(_) => {
            while is_alive(pid) {
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The state follows the name, which may hold spaces and brackets of its own.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_process_is_noticed_before_it_is_collected() {
        let mut child = Command::new("sleep").arg("0.2").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        assert!(is_alive(pid));
        wait_for_end(pid);
        assert!(!is_alive(pid), "a zombie counts as ended");
        child.wait().unwrap();
        assert!(!is_alive(pid));
        wait_for_end(pid);
    }
}
