//! The C programs in `tests/c`, compiled when they are older than their sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::SystemTime;

use crate::Artifacts;

/// All compiled programs.
#[derive(Clone, Debug)]
pub struct Programs {
    directory: PathBuf,
    names: Vec<String>,
}

impl Programs {
    /// Compiles what has changed, once in the life of a test executable.
    pub fn build() -> Result<Programs, String> {
        static BUILT: OnceLock<Result<Programs, String>> = OnceLock::new();
        BUILT.get_or_init(Programs::build_now).clone()
    }

    fn build_now() -> Result<Programs, String> {
        let directory = Artifacts::scratch()?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
        let mut files: Vec<PathBuf> = fs::read_dir(&sources)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .map_err(|error| format!("cannot list {}: {error}", sources.display()))?;
        files.sort();
        let (headers, programs): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| has_extension(file, "h"));
        let headers_changed = headers.iter().filter_map(|header| changed(header)).max();
        let programs: Vec<_> = programs.into_iter().filter(|file| has_extension(file, "c")).collect();
        let names = programs.iter().map(|file| stem(file)).collect();
        let outdated = programs.into_iter().filter(|source| {
            let newest_source = changed(source).max(headers_changed);
            changed(&directory.join(stem(source))) <= newest_source
        });
        compile_all(outdated.collect(), &directory)?;
        Ok(Programs { directory, names })
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The cases of a program, each with whether it is for telecl only.
    pub fn cases(&self, name: &str) -> Result<Vec<(String, bool)>, String> {
        let output = Command::new(self.path(name)).arg("--list").output();
        let output = output.map_err(|error| format!("cannot run {name} --list: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text
            .lines()
            .map(|line| match line.split_once(' ') {
                Some((case, _)) => (case.to_owned(), true),
                None => (line.to_owned(), false),
            })
            .collect())
    }
}

/// As many at once as there are processors.
fn compile_all(sources: Vec<PathBuf>, directory: &Path) -> Result<(), String> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let (queue, failures) = (Mutex::new(sources), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(source) = locked(&queue, Vec::pop) {
                    if let Err(failure) = compile(&source, directory) {
                        locked(&failures, |failures| failures.push(failure));
                    }
                }
            });
        }
    });
    let failures = locked(&failures, std::mem::take);
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn locked<T, R>(mutex: &Mutex<T>, body: impl FnOnce(&mut T) -> R) -> R {
    body(&mut mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// Two test executables may compile at the same time, so a program appears under its name only when it is whole.
fn compile(source: &Path, directory: &Path) -> Result<(), String> {
    let program = directory.join(stem(source));
    let unfinished = program.with_extension(std::process::id().to_string());
    let output = Command::new("cc")
        .args(["-O1", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&unfinished)
        .arg(source)
        // By its full name: the development link may not be installed.
        .args(["-l:libOpenCL.so.1", "-ldl", "-lrt"])
        .output()
        .map_err(|error| format!("cannot run cc: {error}. Is a C compiler installed?"))?;
    if !output.status.success() {
        return Err(format!("{} does not compile:\n{}", source.display(), String::from_utf8_lossy(&output.stderr)));
    }
    fs::rename(&unfinished, &program).map_err(|error| format!("cannot write {}: {error}", program.display()))
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

fn has_extension(file: &Path, wanted: &str) -> bool {
    file.extension().is_some_and(|extension| extension == wanted)
}

fn stem(file: &Path) -> String {
    file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
