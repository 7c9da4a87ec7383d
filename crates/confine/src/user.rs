//! Who a process is, and that it cannot become more.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid};
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, clear_ambient_capability_set, remove_capability_from_bounding_set, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::files;
use crate::report::{Level, Part};

const NAME: &str = "user";

/// Becomes a user and a group of this number, with the groups that devices belong to. The process has one thread.
pub(crate) fn become_it(number: Option<u32>) -> Part {
    let Some(number) = number else { return stays() };
    if number == u32::MAX {
        return Part::new(NAME, Level::Missing, "no user has the number 4294967295");
    }
    match change(number) {
        Ok(()) => Part::new(NAME, Level::Enforced, format!("user id {number}")),
        Err(error) => Part::new(NAME, Level::Missing, format!("cannot become user {number}: {error}")),
    }
}

fn stays() -> Part {
    if geteuid().is_root() {
        return Part::new(NAME, Level::Unneeded, "worker_uids = \"none\": workers stay root");
    }
    Part::new(NAME, Level::Unneeded, "the service is not root: workers are its user")
}

fn change(number: u32) -> rustix::io::Result<()> {
    let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
    // Nothing that it may execute gives them back.
    for capability in CapabilitySet::all().iter() {
        // Kernels do not know all of them.
        let _ = remove_capability_from_bounding_set(capability);
    }
    let _ = clear_ambient_capability_set();
    set_thread_groups(&device_groups())?;
    set_thread_res_gid(group, group, group)?;
    // The last: with it go all capabilities.
    set_thread_res_uid(user, user, user)?;
    // Otherwise its own entries in /proc would be root's. Nobody else is this user.
    set_dumpable_behavior(DumpableBehavior::Dumpable)
}

/// Those that have access to devices because they are in a group, such as `render`.
fn device_groups() -> Vec<Gid> {
    let mut groups: Vec<Gid> =
        files::devices().iter().flat_map(|path| nodes(path)).filter_map(|path| group(&path)).collect();
    groups.sort_unstable_by_key(|group| group.as_raw());
    groups.dedup();
    groups
}

/// The path, or what is in it.
fn nodes(path: &Path) -> Vec<PathBuf> {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path.to_owned()],
    }
}

/// The group of a device that it may read and write. Not root's, which has more.
fn group(path: &Path) -> Option<Gid> {
    let node = fs::metadata(path).ok()?;
    let theirs = node.file_type().is_char_device() && node.mode() & 0o060 == 0o060 && node.gid() != 0;
    theirs.then(|| Gid::from_raw(node.gid()))
}

/// No program that it executes has more rights than it has.
pub(crate) fn gain_no_more() -> Part {
    match set_no_new_privs(true) {
        Ok(()) => Part::new("privileges", Level::Enforced, "no_new_privs"),
        Err(error) => Part::new("privileges", Level::Missing, error.to_string()),
    }
}

/// Where Landlock does not keep processes of one user from each other's memory in /proc, this does.
pub(crate) fn hide_memory() {
    // The part that is missing has been noted already.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

pub(crate) fn survey() -> Part {
    if geteuid().is_root() {
        Part::new(NAME, Level::Enforced, "a service of root gives each worker a user id of its own")
    } else {
        stays()
    }
}
