//! Where the configuration is looked for: a set of variables and one system-wide file.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

type Lookup<'a> = Box<dyn Fn(&str) -> Option<OsString> + 'a>;

/// The surroundings of a process. Tests make their own; the real one is [`Environment::process`].
pub struct Environment<'a> {
    lookup: Lookup<'a>,
    pub(crate) system_file: PathBuf,
    pub(crate) given_file: Option<PathBuf>,
    root: bool,
}

impl Environment<'static> {
    /// The variables of this process and `/etc/telecl/telecl.toml`.
    pub fn process() -> Self {
        let root = rustix::process::geteuid().is_root();
        Environment { root, ..Environment::new(|name| std::env::var_os(name)) }
    }
}

impl<'a> Environment<'a> {
    /// Variables as `lookup` knows them, of a user who is not root, and `/etc/telecl/telecl.toml`.
    pub fn new(lookup: impl Fn(&str) -> Option<OsString> + 'a) -> Self {
        let system_file = "/etc/telecl/telecl.toml".into();
        Environment { lookup: Box::new(lookup), system_file, given_file: None, root: false }
    }

    /// Uses `path` in place of `/etc/telecl/telecl.toml`.
    pub fn with_system_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.system_file = path.into();
        self
    }

    /// Uses the file at `path`, which must exist, and looks for no other: `--config` on the command line.
    pub fn with_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.given_file = Some(path.into());
        self
    }

    /// The variable `name`, if it is set, also if it is empty.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name)
    }

    /// Where telecl keeps what can be made again: `$XDG_CACHE_HOME/telecl`, or the same below `~/.cache`; root keeps it
    /// where the system does. `None` for a user without a home.
    pub(crate) fn cache_dir(&self) -> Option<PathBuf> {
        if self.root {
            return Some("/var/cache/telecl".into());
        }
        // The XDG specification: relative paths are invalid and to be ignored.
        let absolute = |name| self.path(name).filter(|path| path.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
        Some(base.join("telecl"))
    }

    /// The path in variable `name`; an empty variable is as good as none.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }
}

impl fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("system_file", &self.system_file)
            .field("given_file", &self.given_file)
            .finish_non_exhaustive()
    }
}
