//! The audit: a line of JSON for everybody who wanted something of the service, whether they got it or not.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use telecl_config::Audit as Target;
use tracing::{info, warn};

use super::accounting::rfc3339;
use super::offer::Offer;
use super::peer::{Identity, Refusal};

/// Lines about refusals in a second: strangers are not to fill a disk. What is left out is counted.
const MOST_REFUSALS: u32 = 100;

/// What somebody wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It is not known: they did not get so far.
    Unknown,
    Session,
    Stream,
    Status,
    EndSession(u64),
    Drain,
}

impl Wanted {
    fn name(self) -> &'static str {
        match self {
            Wanted::Unknown => "connection",
            Wanted::Session => "session",
            Wanted::Stream => "stream",
            Wanted::Status => "status",
            Wanted::EndSession(_) => "end_session",
            Wanted::Drain => "drain",
        }
    }
}

/// Who wanted something, as far as that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) peer: &'a str,
    /// `unix`, `tcp` or `tls`.
    pub(crate) link: &'static str,
    pub(crate) identity: Option<&'a Identity>,
    /// What a driver says about its program.
    pub(crate) program: Option<(&'a str, u32)>,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome<'a> {
    Accepted { session: Option<u64>, devices: &'a [u64] },
    Refused(&'a Refusal),
}

/// Where the lines go. A file is opened for each, so that it may be renamed or removed at any time.
#[derive(Debug)]
pub(crate) struct Audit {
    target: Option<Target>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Whether the last line could not be written.
    failing: bool,
    /// When the second began in which refusals are counted, how many there were, and how many were left out.
    second: Instant,
    refusals: u32,
    left_out: u64,
}

impl Audit {
    pub(crate) fn new(target: Option<Target>) -> Audit {
        let state = State { failing: false, second: Instant::now(), refusals: 0, left_out: 0 };
        Audit { target, state: Mutex::new(state) }
    }

    /// Writes down who wanted what, and what came of it. A failure is logged once, until it works again.
    pub(crate) fn write(&self, wanted: Wanted, subject: &Subject<'_>, outcome: Outcome<'_>, offer: &Offer) {
        let Some(target) = &self.target else { return };
        // Held while a line is written, so that lines are whole also where a file system does not see to that.
        let mut state = self.lock();
        let Some(left_out) = state.admit(matches!(outcome, Outcome::Refused(_)), Instant::now()) else { return };
        let mut line = line(wanted, subject, outcome, offer);
        if left_out > 0 {
            line["refusals_left_out_before"] = left_out.into();
        }
        let written = append(target, &format!("{line}\n"));
        let failed_before = std::mem::replace(&mut state.failing, written.is_err());
        drop(state);
        match written {
            Ok(()) if failed_before => info!("the audit is written again"),
            Err(error) if !failed_before => {
                warn!(?target, %error, "cannot write the audit; the service goes on without")
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `None` if a line is too many; else how many were before it.
    fn admit(&mut self, refusal: bool, now: Instant) -> Option<u64> {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.refusals) = (now, 0);
        }
        self.refusals += u32::from(refusal);
        if refusal && self.refusals > MOST_REFUSALS {
            self.left_out += 1;
            return None;
        }
        Some(std::mem::take(&mut self.left_out))
    }
}

fn append(target: &Target, line: &str) -> io::Result<()> {
    match target {
        Target::Stderr => io::stderr().write_all(line.as_bytes()),
        Target::File(path) => OpenOptions::new().append(true).create(true).open(path)?.write_all(line.as_bytes()),
    }
}

fn line(wanted: Wanted, subject: &Subject<'_>, outcome: Outcome<'_>, offer: &Offer) -> Value {
    let identity = subject.identity;
    let device = |id: &u64| json!({ "device": id, "name": offer.device(*id).map(|device| device.name.clone()) });
    let mut line = json!({
        "time": rfc3339(SystemTime::now()),
        "wanted": wanted.name(),
        "peer": subject.peer,
        "link": subject.link,
        "known_by": identity.map(|identity| identity.kind.name()),
        "tenant": identity.map(|identity| identity.tenant.as_str()),
        "subject": identity.and_then(|identity| identity.subject.clone()),
        "pod": identity.and_then(|identity| identity.pod.as_ref()).map(|pod| json!(pod)),
        "program": subject.program.map(|(name, _)| name),
        "pid": subject.program.map(|(_, pid)| pid),
    });
    match outcome {
        Outcome::Accepted { session, devices } => {
            line["outcome"] = "accepted".into();
            line["session"] = session.into();
            line["devices"] = devices.iter().map(device).collect();
        }
        Outcome::Refused(refusal) => {
            line["outcome"] = "refused".into();
            line["reason"] = refusal.code.into();
            line["message"] = refusal.text.as_str().into();
        }
    }
    if let Wanted::EndSession(session) = wanted {
        line["session"] = session.into();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_wanted_what_and_what_came_of_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("audit.jsonl");
        let audit = Audit::new(Some(Target::File(path.clone())));
        let identity = Identity::anonymous();
        let subject =
            Subject { peer: "10.0.0.1:9", link: "tls", identity: Some(&identity), program: Some(("say \"hi\"", 7)) };
        let write = |outcome| audit.write(Wanted::Session, &subject, outcome, &Offer::default());
        write(Outcome::Accepted { session: Some(5), devices: &[1] });
        let refusal = Refusal { code: "token_expired", text: "too late".to_owned() };
        for _ in 0..MOST_REFUSALS + 10 {
            write(Outcome::Refused(&refusal));
        }
        write(Outcome::Accepted { session: Some(6), devices: &[] });
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["outcome"], &lines[0]["tenant"]), (&json!("accepted"), &json!("anonymous")));
        assert_eq!((&lines[0]["program"], &lines[0]["devices"][0]["device"]), (&json!("say \"hi\""), &json!(1)));
        assert_eq!((&lines[1]["reason"], &lines[1]["message"]), (&json!("token_expired"), &json!("too late")));
        assert_eq!(lines.len() as u32, MOST_REFUSALS + 2);
        assert_eq!(lines[lines.len() - 1]["refusals_left_out_before"], 10);
    }
}
