//! Bounds on what a process may use up.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::report::{Level, Part};

/// A vendor's driver holds a few files for each device and each queue; a session's include files are closed at once.
const MOST_FILES: u64 = 16 << 10;

/// Of one file. Compilers write megabytes.
const LONGEST_FILE: u64 = 16 << 30;

/// Processes and threads: a vendor's pool has one for each processor, and a build has a few.
const MOST_PROCESSES: u64 = 8 << 10;

/// Where memory runs out, a worker goes before its broker does, which looks after all others.
const GOES_FIRST: &str = "500";

/// `own_user`: nobody else's processes are counted with this one's.
pub(crate) fn apply(memory: Option<u64>, own_user: bool) -> Part {
    let mut limits = vec![(Resource::Core, 0), (Resource::Nofile, MOST_FILES), (Resource::Fsize, LONGEST_FILE)];
    limits.extend(own_user.then_some((Resource::Nproc, MOST_PROCESSES)));
    limits.extend(memory.map(|memory| (Resource::Data, memory)));
    // Root may lock memory without a limit, and some vendors' drivers need to. What it may have is bounded as it is.
    if own_user {
        let _ = setrlimit(Resource::Memlock, Rlimit { current: memory, maximum: memory });
    }
    // It helps where it can be done.
    let _ = fs::write("/proc/self/oom_score_adj", GOES_FIRST);
    let failed: Vec<String> = limits.into_iter().filter_map(|(resource, most)| lower(resource, most).err()).collect();
    match &failed[..] {
        [] => Part::new("limits", Level::Enforced, describe(memory, own_user)),
        failed => Part::new("limits", Level::Missing, failed.join(", ")),
    }
}

fn describe(memory: Option<u64>, own_user: bool) -> String {
    let memory = memory.map_or("no limit on memory".to_owned(), |bytes| format!("{} MiB of memory", bytes >> 20));
    let processes = if own_user { "processes" } else { "processes not counted without a user of its own" };
    format!("{memory}, files, {processes}")
}

/// Never raises a limit that is there.
fn lower(resource: Resource, most: u64) -> Result<(), String> {
    let maximum = getrlimit(resource).maximum.map_or(most, |now| now.min(most));
    let limit = Rlimit { current: Some(maximum), maximum: Some(maximum) };
    setrlimit(resource, limit).map_err(|error| format!("cannot limit {resource:?}: {error}"))
}
