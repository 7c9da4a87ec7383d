//! What a program costs from its start: every round is a new process.

use std::time::Duration;

use super::path::Path;
use super::rounds::timed;
use super::talk::Talk;

const LIMIT: Duration = Duration::from_secs(120);

/// One round of `start`, `context` or `memory`.
pub(crate) fn run(test: &str, path: &Path, device: &str) -> Result<Vec<f64>, String> {
    let arguments = ["--once", test, "--device", device];
    let value = match test {
        // To its end.
        "start" => timed(|| Talk::start(path, &arguments)?.wait(LIMIT))?.1,
        // To its word that a kernel has run. The process is kept until then, not longer.
        "context" => timed(|| Talk::start(path, &arguments).and_then(|mut talk| talk.values(LIMIT).map(|_| talk)))?.1,
        _ => Talk::start(path, &arguments)?.values(LIMIT)?.first().copied().ok_or("an answer without a value")?,
    };
    Ok(vec![value])
}
