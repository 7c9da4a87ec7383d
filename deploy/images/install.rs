//! Copies the driver out of its image: `install [DIRECTORY]` puts everything that stands beside the program into the directory,
//! `/opt/telecl` unless named. It is what the init container of an injected pod runs, and all that its image has: one static program.
//!
//! It may be run again over what an earlier run left. The ICD file comes last, so that no loader finds a driver that is half there.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{env, fs, io, process};

const DEFAULT: &str = "/opt/telecl";
const LAST: &str = "telecl.icd";

fn main() {
    if let Err(reason) = install() {
        eprintln!("error: {reason}");
        process::exit(1);
    }
}

fn install() -> Result<(), String> {
    let program = env::current_exe().map_err(|error| format!("cannot find this program's own directory: {error}"))?;
    let from = program.parent().ok_or("this program stands in no directory")?;
    let to = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| DEFAULT.into()));
    copy_directory(from, &to, &program)?;
    copy_file(&from.join(LAST), &to.join(LAST))?;
    println!("the driver is in {}", to.display());
    Ok(())
}

fn copy_directory(from: &Path, to: &Path, program: &Path) -> Result<(), String> {
    fs::create_dir_all(to).map_err(|error| told("make", to, &error))?;
    for entry in fs::read_dir(from).map_err(|error| told("read", from, &error))? {
        let entry = entry.map_err(|error| told("read", from, &error))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(|error| told("read", &source, &error))?;
        if source == program || entry.file_name() == LAST {
            continue;
        } else if kind.is_dir() {
            copy_directory(&source, &target, program)?;
        } else if kind.is_symlink() {
            copy_link(&source, &target)?;
        } else {
            copy_file(&source, &target)?;
        }
    }
    Ok(())
}

fn copy_link(from: &Path, to: &Path) -> Result<(), String> {
    let goal = fs::read_link(from).map_err(|error| told("read", from, &error))?;
    remove(to)?;
    symlink(goal, to).map_err(|error| told("write", to, &error))
}

/// Copies to another name first: a program that has the old file mapped keeps it.
fn copy_file(from: &Path, to: &Path) -> Result<(), String> {
    let mut half = to.as_os_str().to_owned();
    half.push(".new");
    let half = PathBuf::from(half);
    fs::copy(from, &half).map_err(|error| told("write", &half, &error))?;
    // Whatever user the containers run as must be able to read and map it.
    fs::set_permissions(&half, fs::Permissions::from_mode(0o755)).map_err(|error| told("change", &half, &error))?;
    fs::rename(&half, to).map_err(|error| told("write", to, &error))
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(told("replace", path, &error)),
        _ => Ok(()),
    }
}

fn told(what: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
