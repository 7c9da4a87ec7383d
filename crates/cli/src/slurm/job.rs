//! Slurm's jobs, by Slurm's own commands.

use std::fmt;
use std::process::{Command, Stdio};
use std::str::FromStr;

use crate::exit::{Exit, Failure};

/// The number of a job. Also one of an array (`17_3`) and a part of a heterogeneous job (`17+1`), as squeue prints them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobId(String);

impl FromStr for JobId {
    type Err = String;

    /// It becomes part of paths and command lines, so it has digits in it and nothing else that could be more.
    fn from_str(text: &str) -> Result<JobId, String> {
        let digits = |part: &str| !part.is_empty() && part.len() <= 10 && part.bytes().all(|b| b.is_ascii_digit());
        let good = match text.split_once(['_', '+']) {
            Some((job, part)) => digits(job) && digits(part),
            None => digits(text),
        };
        if good { Ok(JobId(text.to_owned())) } else { Err("is no job's number; squeue --me lists yours".to_owned()) }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JobId {
    /// The job that this process is in.
    pub(super) fn own() -> Option<JobId> {
        std::env::var("SLURM_JOB_ID").ok()?.parse().ok()
    }
}

/// What Slurm says about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// `RUNNING`, `PENDING`, …
    pub(super) state: String,
    /// Why it waits, if it does.
    pub(super) reason: String,
    pub(super) user: String,
}

impl Job {
    /// Whether it can still come to something.
    pub(super) fn is_alive(&self) -> bool {
        let gone = [
            "COMPLETED",
            "CANCELLED",
            "FAILED",
            "TIMEOUT",
            "NODE_FAIL",
            "PREEMPTED",
            "BOOT_FAIL",
            "DEADLINE",
            "OUT_OF_MEMORY",
            "REVOKED",
            "SPECIAL_EXIT",
            "STOPPED",
        ];
        !gone.contains(&self.state.as_str())
    }

    fn parse(line: &str) -> Option<Job> {
        let mut fields = line.trim().splitn(3, '|').map(str::to_owned);
        Some(Job { state: fields.next()?, user: fields.next()?, reason: fields.next()? })
    }
}

/// What asking Slurm came to.
#[derive(Debug)]
pub(super) enum Asked {
    Found(Job),
    /// Slurm knows no such job, or has forgotten it.
    Unknown,
    /// Slurm could not be asked: no command, or no answer. What it said.
    Silent(String),
}

/// Asks Slurm about a job.
pub(super) fn ask(job: &JobId) -> Asked {
    let jobs = format!("--jobs={job}");
    match output("squeue", &["--noheader", "--states=all", "--format=%T|%u|%r", &jobs]) {
        Ok(text) => text.lines().find_map(Job::parse).map_or(Asked::Unknown, Asked::Found),
        Err(message) if message.contains("Invalid job id") => Asked::Unknown,
        Err(message) => Asked::Silent(message),
    }
}

/// Those of this user's jobs that have not ended, as squeue numbers them; `None` if Slurm does not say.
pub(super) fn own_jobs() -> Option<Vec<String>> {
    let text = output("squeue", &["--noheader", "--me", "--format=%A %i"]).ok()?;
    Some(text.split_whitespace().map(str::to_owned).collect())
}

/// Sends a signal to a step of a job, or, without a step, to its batch script alone.
pub(super) fn signal(job: &JobId, step: Option<&str>, signal: &str) -> Result<(), String> {
    let signal = format!("--signal={signal}");
    let whom = step.map_or_else(|| job.to_string(), |step| format!("{job}.{step}"));
    let args = if step.is_some() { vec![signal.as_str(), &whom] } else { vec!["--batch", signal.as_str(), &whom] };
    output("scancel", &args).map(drop)
}

/// What one of Slurm's commands printed, or what it complained of.
pub(super) fn output(program: &str, args: &[&str]) -> Result<String, String> {
    let done = Command::new(program).args(args).stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("cannot run {program}: {error}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&done.stderr);
    Err(complaint.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; "))
}

/// For whoever names a job that is not there.
pub(super) fn no_such_job(job: &JobId) -> Failure {
    let what = format!("Slurm knows no job {job}, or has forgotten it");
    Failure::new(Exit::Usage, what, "squeue --me lists your jobs; telecl slurm start submits a service")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_a_number_and_cannot_be_a_path_or_an_option() {
        for good in ["17", "17_3", "17+1"] {
            assert_eq!(good.parse::<JobId>().unwrap().to_string(), good);
        }
        for bad in ["", "../17", "-17", "17_", "17/..", "all", "17 18", "99999999999"] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_squeue_says_is_read_and_reasons_may_hold_anything() {
        let job = Job::parse("PENDING|alice|(a|b)\n").unwrap();
        assert_eq!((job.state.as_str(), job.user.as_str(), job.reason.as_str()), ("PENDING", "alice", "(a|b)"));
        assert!(job.is_alive());
        assert!(!Job::parse("NODE_FAIL|alice|None").unwrap().is_alive());
        assert_eq!(Job::parse("nothing"), None);
    }
}
