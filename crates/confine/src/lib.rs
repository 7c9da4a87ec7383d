//! What keeps a worker process away from everything that is not its own.
//!
//! A worker runs its tenant's kernels, and on a CPU device a kernel is native code that can make any system call. So a
//! worker gives up what it does not need before it loads a vendor's library, while it still has one thread: all threads
//! that come later, the vendor's among them, inherit it. [`apply`] does so for the calling process, in this order: limits,
//! a user of its own, no new privileges, files ([Landlock](https://docs.kernel.org/userspace-api/landlock.html)), system
//! calls (seccomp). Each is a [`Part`] of its own; where the system cannot do one, the others still hold, and the
//! [`Report`] says what is missing.
//!
//! [`survey`] finds out what this machine can do without changing the process. Nothing here logs, and nothing here is
//! unsafe.
#![forbid(unsafe_code)]

mod calls;
mod files;
mod limits;
mod report;
mod user;

use std::path::PathBuf;
use std::thread;

use serde::{Deserialize, Serialize};

pub use report::{Level, Part, Report};

/// Whether workers are confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    Off,
    /// As far as the system can.
    #[default]
    On,
    /// Fully, or not started at all.
    Require,
}

/// How one process is to be confined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub mode: Mode,
    /// The user to become, which nobody else is; `None` stays who it is.
    pub user: Option<u32>,
    /// The directory that it may write to.
    pub scratch: PathBuf,
    /// What it may read and execute beside what every worker may; below `/dev`, what it may use as a device.
    pub paths: Vec<PathBuf>,
    /// How many bytes of memory of its own it may have.
    pub memory: Option<u64>,
}

/// What was to be enforced and cannot be.
#[derive(Debug, thiserror::Error)]
#[error("a worker cannot be confined as `confine = \"require\"` wants it: {0}; `confine = \"on\"` goes without")]
pub struct Unconfined(String);

/// Confines this process for ever. To be called while it has one thread.
pub fn apply(plan: &Plan) -> Result<Report, Unconfined> {
    if plan.mode == Mode::Off {
        return Ok(Report::default());
    }
    let limits = limits::apply(plan.memory, plan.user.is_some());
    let user = user::become_it(plan.user);
    let privileges = user::gain_no_more();
    let files = files::confine(plan);
    if files.is_missing() {
        user::hide_memory();
    }
    let report = Report { parts: vec![files, calls::confine(), user, privileges, limits] };
    insist(plan.mode, report)
}

/// What this machine can enforce: tried in a thread, which ends.
pub fn survey() -> Report {
    let tried = thread::Builder::new().name("telecl-survey".into()).spawn(|| {
        let files = files::confine(&Plan::default());
        Report { parts: vec![files, calls::confine_thread(), user::survey()] }
    });
    tried.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
}

/// An error if something is missing that has to be there.
pub fn insist(mode: Mode, report: Report) -> Result<Report, Unconfined> {
    let missing = report.missing();
    if mode == Mode::Require && !missing.is_empty() { Err(Unconfined(missing)) } else { Ok(report) }
}
