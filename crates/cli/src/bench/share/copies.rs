//! Several copies of a program at once: started, waited for, timed, and ended if anything goes wrong.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, kill_process_group, pidfd_open, set_parent_process_death_signal,
};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::signals::Signals;
use crate::bench::path::Path;
use crate::exit::{Exit, Failure, Outcome};
use crate::run;

/// What is run, with places in its arguments for what differs from copy to copy.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// What every copy must print.
    pub(crate) expect: Vec<String>,
}

/// How long a batch took, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Took {
    /// From the first start to the last end.
    pub(crate) makespan: f64,
    /// Of each copy, from its own start.
    pub(crate) copies: Vec<f64>,
}

/// Why a batch has no time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Failed(String),
    /// Somebody wants the command to end.
    Interrupted,
}

/// Runs one copy on each of these paths, `at_once` at a time, all within `limit`. When it returns, all have ended.
pub(crate) fn run(
    template: &Template,
    paths: &[&Path],
    at_once: usize,
    limit: Duration,
    signals: &Signals,
) -> Result<Took, Trouble> {
    let begin = Instant::now();
    let mut waiting = paths.iter().zip(1..);
    let mut running: Vec<Copy> = Vec::new();
    let mut copies = vec![0.0; paths.len()];
    loop {
        // Whatever goes wrong, those that run are killed when they are dropped.
        while running.len() < at_once
            && let Some((path, number)) = waiting.next()
        {
            running.push(Copy::start(template, path, number).map_err(|error| {
                Trouble::Failed(format!("copy {number} of {} cannot be started: {error}", paths.len()))
            })?);
        }
        if running.is_empty() {
            return Ok(Took { makespan: begin.elapsed().as_secs_f64(), copies });
        }
        if signals.is_told() {
            return Err(Trouble::Interrupted);
        }
        let left = limit.saturating_sub(begin.elapsed());
        if left.is_zero() {
            let (one, seconds) = (running[0].number, limit.as_secs());
            return Err(Trouble::Failed(format!("copy {one} of {} has not ended within {seconds} s", paths.len())));
        }
        wait(&running, signals, left);
        for mut copy in std::mem::take(&mut running) {
            match copy.ended(template) {
                Ok(None) => running.push(copy),
                Ok(Some(seconds)) => copies[copy.number - 1] = seconds,
                Err(reason) => {
                    let (number, all) = (copy.number, paths.len());
                    return Err(Trouble::Failed(format!("copy {number} of {all} {reason}")));
                }
            }
        }
    }
}

/// Returns when one of them may have ended, or when it is time to look.
fn wait(running: &[Copy], signals: &Signals, left: Duration) {
    let processes = running.iter().filter_map(|copy| copy.process.as_ref());
    let mut sources: Vec<PollFd<'_>> = processes.map(|process| PollFd::new(process, PollFlags::IN)).collect();
    // Kernels before 5.3, and some sandboxes, have no pidfd.
    let longest = if sources.len() == running.len() { left } else { Duration::from_millis(2) };
    sources.push(PollFd::new(signals.told(), PollFlags::IN));
    if let Ok(timeout) = Timespec::try_from(longest.min(left)) {
        // Whatever it says, all are asked.
        let _ = poll(&mut sources, Some(&timeout));
    }
}

/// A copy that runs, in a process group of its own. Dropping it ends it.
#[derive(Debug)]
struct Copy {
    number: usize,
    child: Child,
    process: Option<OwnedFd>,
    started: Instant,
    /// Whether its exit code has been taken.
    over: bool,
    output: File,
    /// Its `{dir}`.
    _directory: TempDir,
}

impl Copy {
    fn start(template: &Template, path: &Path, number: usize) -> io::Result<Copy> {
        let directory = tempfile::Builder::new().prefix("telecl-copy-").tempdir()?;
        let output = tempfile::tempfile()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bench-copy").arg("--parent").arg(process::id().to_string()).arg("--").arg(&template.program);
        command.args(template.arguments.iter().map(|text| fill_in(text, number, directory.path().as_os_str())));
        path.lead(&mut command);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?).process_group(0);
        let started = Instant::now();
        let child = command.spawn()?;
        let process = pid(&child).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Copy { number, child, process, started, over: false, output, _directory: directory })
    }

    /// How long it took; `None` if it still runs. An error says what was wrong with it.
    fn ended(&mut self, template: &Template) -> Result<Option<f64>, String> {
        let Some(status) = self.child.try_wait().map_err(|error| format!("is lost: {error}"))? else {
            return Ok(None);
        };
        let seconds = self.started.elapsed().as_secs_f64();
        self.over = true;
        let mut output = Vec::new();
        // What cannot be read has nothing in it.
        let _ = self.output.rewind().and_then(|()| self.output.read_to_end(&mut output));
        let output = String::from_utf8_lossy(&output);
        let last = output.lines().rev().find(|line| !line.trim().is_empty());
        let said = last.map_or(String::new(), |last| format!("; it said: {}", last.trim()));
        if !status.success() {
            return Err(format!("ended with {status}{said}"));
        }
        match template.expect.iter().find(|text| !output.contains(text.as_str())) {
            Some(text) => Err(format!("did not print {text:?}{said}")),
            None => Ok(Some(seconds)),
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.over {
            // With all that it has started. It has not been waited for, so the number is still its own.
            if let Some(group) = pid(&self.child) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().try_into().ok().and_then(Pid::from_raw)
}

/// An argument with `{copy}` and `{dir}` replaced.
fn fill_in(argument: &OsStr, number: usize, directory: &OsStr) -> OsString {
    let mut filled = Vec::new();
    let mut rest = argument.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"{copy}") {
            filled.extend_from_slice(number.to_string().as_bytes());
            rest = after;
        } else if let Some(after) = rest.strip_prefix(b"{dir}") {
            filled.extend_from_slice(directory.as_bytes());
            rest = after;
        } else {
            filled.push(*byte);
            rest = after;
        }
    }
    OsString::from_vec(filled)
}

#[derive(Debug, Args)]
pub(crate) struct BenchCopyArgs {
    /// The process that must be alive
    #[arg(long)]
    parent: i32,
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// The hidden command `telecl bench-copy`: becomes a program that ends with its parent, however that ends.
pub(crate) fn bench_copy(args: &BenchCopyArgs) -> Outcome {
    let Some((program, arguments)) = args.command.split_first() else { return Ok(Exit::Usage) };
    // Where that cannot be asked for, the parent's own care has to be enough. It outlives the call of exec.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(args.parent) {
        return Err(Failure::new(Exit::Failed, "the process that started this one is gone", ""));
    }
    let error = Command::new(program).args(arguments).exec();
    Err(run::cannot_run(program, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_has_a_number_and_a_directory() {
        let fill = |text: &str| fill_in(OsStr::new(text), 7, OsStr::new("/tmp/x"));
        assert_eq!(fill("--session=s{copy}"), "--session=s7");
        assert_eq!(fill("{dir}/{copy}{copy}.pot"), "/tmp/x/77.pot");
        assert_eq!(fill("{}{dir"), "{}{dir");
    }
}
