//! Processes with a limit on their time.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// How a process ended, and all it printed.
#[derive(Debug)]
pub struct Ended {
    /// Its process id was this.
    pub id: u32,
    /// `None`: it ran past its limit and was killed.
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Ended {
    pub fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// "exit code 1", "killed by signal 11", "ran past its limit".
    pub fn how(&self) -> String {
        match self.status {
            None => format!("ran past its limit of {:.0?} and was killed", self.took),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("killed by signal {signal}"),
                (None, None) => status.to_string(),
            },
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.how())?;
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.is_empty() {
                writeln!(f, "---- {name} ----\n{}", text.trim_end())?;
            }
        }
        Ok(())
    }
}

/// Runs `command` to its end, or kills it after `limit`.
pub fn run(command: Command, limit: Duration) -> io::Result<Ended> {
    Running::start(command).map(|running| running.end(limit))
}

/// A process whose lines can be waited for. Dropping it kills it and what it started.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: String,
    stderr: Option<JoinHandle<String>>,
    started: Instant,
    /// Its end has been taken note of, and its process id may be another's.
    collected: bool,
}

impl Running {
    pub fn start(mut command: Command) -> io::Result<Running> {
        // A group of its own, so that a case's children end with it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let started = Instant::now();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(stdout.ok_or(io::ErrorKind::NotFound)?);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line)? > 0 {
                // Nobody may be interested any more.
                let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
                line.clear();
            }
            io::Result::Ok(())
        });
        let stderr = thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = stderr.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Running { child, lines, seen: String::new(), stderr: Some(stderr), started, collected: false })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process prints exactly this line; panics with what it printed instead.
    pub fn expect_line(&mut self, wanted: &str, limit: Duration) {
        assert!(self.await_line(wanted, limit), "no line {wanted:?} within {limit:?}; printed: {:?}", self.seen);
    }

    /// As [`Running::expect_line`], for a line that begins so.
    pub fn expect_beginning(&mut self, wanted: &str, limit: Duration) {
        let deadline = Instant::now() + limit;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.seen.push_str(&line);
            if line.starts_with(wanted) {
                return;
            }
        }
        panic!("no line that begins with {wanted:?} within {limit:?}; printed: {:?}", self.seen);
    }

    /// Waits until the process prints exactly this line; `false` if it ends before, or prints none for so long.
    pub fn await_line(&mut self, wanted: &str, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.seen.push_str(&line);
            if line.trim_end() == wanted {
                return true;
            }
        }
        false
    }

    /// Waits until the process prints a line that begins like this, and returns that.
    pub fn expect_line_with(&mut self, start: &str, limit: Duration) -> String {
        let deadline = Instant::now() + limit;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.seen.push_str(&line);
            if line.starts_with(start) {
                return line;
            }
        }
        panic!("no line that begins with {start:?} within {limit:?}; printed: {:?}", self.seen)
    }

    /// Kills it at once, as a crash or an impatient user would.
    pub fn kill(mut self) {
        self.kill_group();
    }

    /// Waits for its end, or kills it after `limit`.
    pub fn end(mut self, limit: Duration) -> Ended {
        let pid = Pid::from_child(&self.child);
        let in_time = pidfd_open(pid, PidfdFlags::empty()).is_ok_and(|pidfd| {
            let deadline = Instant::now() + limit;
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                let left = Timespec::try_from(left).unwrap_or_default();
                match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
                    Err(rustix::io::Errno::INTR) => continue,
                    ready => return ready.is_ok_and(|count| count > 0),
                }
            }
        });
        let took = self.started.elapsed();
        // Also after a good end: a child that it left behind would keep its output open.
        let status = self.kill_group().filter(|_| in_time);
        let mut stdout = std::mem::take(&mut self.seen);
        stdout.extend(self.lines.iter());
        let stderr = self.stderr.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        Ended { id: self.child.id(), status, stdout, stderr, took }
    }

    fn kill_group(&mut self) -> Option<ExitStatus> {
        self.collected = true;
        // The group may be gone already.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.child.wait().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.collected {
            self.kill_group();
        }
    }
}

/// Asks until `condition` holds; panics with `what` after `limit`. For facts of which nobody sends word, such as the
/// end of somebody else's child.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        thread::sleep(Duration::from_millis(5));
    }
}
