//! How the command ends: its exit codes, and errors that say what to do.

use std::fmt::{self, Display};
use std::io::{self, Write};

/// The exit codes of `telecl`, as its `--help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    /// Work or a check failed.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// No service, or no device, could be reached.
    Unreachable = 3,
    /// `run` found the program but may not execute it.
    NotExecutable = 126,
    /// `run` did not find the program.
    NotFound = 127,
}

/// What a command that ran to its end, or failed, comes to.
pub(crate) type Outcome = Result<Exit, Failure>;

/// An error for people: what happened, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    what: String,
    advice: String,
}

impl Failure {
    /// `advice` says what to do next. It may be empty where `what` says it already.
    pub(crate) fn new(exit: Exit, what: impl Display, advice: impl Display) -> Failure {
        // `{:#}` joins an error with its causes on one line.
        Failure { exit, what: format!("{what:#}"), advice: advice.to_string() }
    }

    /// Writes `error: what. advice` to stderr.
    pub(crate) fn report(&self) {
        // When stderr is gone there is nobody left to tell; the exit code still says it.
        let _ = writeln!(io::stderr(), "error: {self}");
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.advice.as_str() {
            "" => f.write_str(&self.what),
            advice => write!(f, "{}. {advice}", self.what.trim_end_matches('.')),
        }
    }
}

impl From<telecl_config::ConfigError> for Failure {
    fn from(error: telecl_config::ConfigError) -> Failure {
        Failure::new(Exit::Usage, error, "docs/configuration.md lists every key and variable")
    }
}

/// Writes to stdout. A reader that has gone away (`telecl devices | head -1`) is no error.
pub(crate) fn print(text: impl Display) {
    let mut stdout = io::stdout().lock();
    let _ = write!(stdout, "{text}").and_then(|()| stdout.flush());
}
