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
}

impl Environment<'static> {
    /// The variables of this process and `/etc/telecl/telecl.toml`.
    pub fn process() -> Self {
        Environment::new(|name| std::env::var_os(name))
    }
}

impl<'a> Environment<'a> {
    /// Variables as `lookup` knows them, and `/etc/telecl/telecl.toml`.
    pub fn new(lookup: impl Fn(&str) -> Option<OsString> + 'a) -> Self {
        Environment { lookup: Box::new(lookup), system_file: "/etc/telecl/telecl.toml".into(), given_file: None }
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
