//! The parent's side of `telecl bench-child`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::child::{Reply, Request};
use super::path::Path;

/// A child process. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Talk {
    child: Child,
    input: Option<ChildStdin>,
    replies: Receiver<Reply>,
    /// What it and its driver complain about.
    complaints: File,
}

impl Talk {
    /// Starts a child on `path`.
    pub(crate) fn start(path: &Path, arguments: &[&str]) -> Result<Talk, String> {
        let start = || -> io::Result<Talk> {
            let complaints = tempfile::tempfile()?;
            let mut command = path.command()?;
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints.try_clone()?);
            let mut child = command.spawn()?;
            let (sender, replies) = mpsc::channel();
            if let Some(output) = child.stdout.take() {
                let read = move || {
                    // A vendor's library may print as well; only our lines are replies.
                    let lines = BufReader::new(output).lines().map_while(Result::ok);
                    for reply in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                        if sender.send(reply).is_err() {
                            break;
                        }
                    }
                };
                thread::Builder::new().name("telecl-bench".into()).spawn(read)?;
            }
            Ok(Talk { input: child.stdin.take(), child, replies, complaints })
        };
        start().map_err(|error| format!("cannot start a process: {error}"))
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, String> {
        self.send(request)?;
        self.receive(limit)
    }

    /// Asks without waiting.
    pub(crate) fn send(&mut self, request: &Request) -> Result<(), String> {
        let mut line = serde_json::to_string(request).map_err(|error| error.to_string())?;
        line.push('\n');
        let sent = self.input.as_mut().map(|input| input.write_all(line.as_bytes()));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(self.ended()),
        }
    }

    /// Waits for the next answer.
    pub(crate) fn receive(&mut self, limit: Duration) -> Result<Reply, String> {
        match self.replies.recv_timeout(limit) {
            Ok(Reply::Error(reason)) => Err(reason),
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => Err(format!("no answer within {} s", limit.as_secs())),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    /// The values of a request that has some.
    pub(crate) fn values(&mut self, limit: Duration) -> Result<Vec<f64>, String> {
        match self.receive(limit)? {
            Reply::Values(values) => Ok(values),
            other => Err(format!("an answer without values: {other:?}")),
        }
    }

    /// Waits until the process has closed its output and ended.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<(), String> {
        self.input = None;
        loop {
            match self.replies.recv_timeout(limit) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Err(format!("no end within {} s", limit.as_secs())),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(self.ended()),
        }
    }

    /// How the process ended, in its own last words if it had any.
    fn ended(&mut self) -> String {
        self.input = None;
        let deadline = Instant::now() + Duration::from_secs(2);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break format!("the process ended: {status}"),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                Ok(None) => break "the process closed its output, and stays".to_owned(),
                Err(error) => break format!("the process is lost: {error}"),
            }
        };
        let mut text = String::new();
        // Without its words there is still its status.
        let _ = self.complaints.rewind().and_then(|()| self.complaints.read_to_string(&mut text));
        match text.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(last) => format!("{status}; it said: {}", last.trim()),
            None => status,
        }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.input = None;
        // Nothing of it is needed any more, and a driver that hangs would never end by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
