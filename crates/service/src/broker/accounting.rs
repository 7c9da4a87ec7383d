//! The book of sessions that have ended: a line of JSON for each, appended to a file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tracing::{info, warn};

use super::accounts::Seen;
use super::offer::Offer;
use crate::board::{Count, DeviceCount};

/// Where the lines go. The file is opened for each, so that it may be renamed or removed at any time.
#[derive(Debug)]
pub(crate) struct Accounting {
    path: Option<PathBuf>,
    /// Whether the last line could not be written.
    failing: AtomicBool,
    /// Held while a line is written, so that lines are whole also where a file system does not see to that.
    writing: Mutex<()>,
}

impl Accounting {
    pub(crate) fn new(path: Option<PathBuf>) -> Accounting {
        Accounting { path, failing: AtomicBool::new(false), writing: Mutex::default() }
    }

    /// Writes down what a session came to. A failure is logged once, until it works again; sessions go on.
    pub(crate) fn write(&self, seen: &Seen, offer: &Offer, end: SystemTime, ended: &Result<String, String>) {
        let Some(path) = &self.path else { return };
        let line = format!("{}\n", line(seen, offer, end, ended));
        let written = {
            let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            append(path, &line)
        };
        let path = path.display();
        match written {
            Ok(()) if self.failing.swap(false, Ordering::Relaxed) => info!(%path, "accounting is written again"),
            Ok(()) => {}
            Err(error) if !self.failing.swap(true, Ordering::Relaxed) => {
                warn!(%path, %error, "cannot write the accounting of sessions; they go on without");
            }
            Err(_) => {}
        }
    }
}

fn append(path: &PathBuf, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(line.as_bytes())
}

fn line(seen: &Seen, offer: &Offer, end: SystemTime, ended: &Result<String, String>) -> Value {
    let who = &seen.who;
    let (program, job) = telecl_wire::split_job(&who.program);
    let count = |count| seen.figures.get(count);
    let devices: Vec<Value> = seen
        .figures
        .devices()
        .map(|(id, figures)| {
            let seconds = |count| figures.get(count) as f64 / 1e9;
            json!({
                "device": id,
                "name": offer.device(id).map(|device| device.name.clone()),
                "device_seconds": seconds(DeviceCount::Busy),
                "waited_seconds": seconds(DeviceCount::Waited),
                "peak_memory": figures.get(DeviceCount::PeakMemory),
            })
        })
        .collect();
    let (ok, how) = match ended {
        Ok(how) => (true, how),
        Err(how) => (false, how),
    };
    json!({
        "session": who.session,
        "tenant": who.tenant.as_str(),
        "user": who.user_name(),
        "pod": who.pod,
        "peer": who.peer,
        "program": program,
        "job": job,
        "pid": who.pid,
        "begin": rfc3339(who.begun),
        "end": rfc3339(end),
        "seconds": who.since.elapsed().as_secs_f64(),
        "ok": ok,
        "ended": how,
        "devices": devices,
        "bytes_in": count(Count::BytesIn),
        "bytes_out": count(Count::BytesOut),
        "commands": count(Count::Commands),
        "failures": count(Count::Failures),
        "builds": count(Count::Builds),
        "cache_hits": count(Count::CacheHits),
        "overruns": count(Count::Overruns),
    })
}

/// `2026-03-01T12:00:00.250Z`.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Howard Hinnant's days_from_civil, backwards; years begin in March, so that leap days come last.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use telecl_policy::Tenant;

    use super::*;
    use crate::broker::accounts::Who;
    use crate::broker::figures::Figures;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds: u64, millis: u32| rfc3339(UNIX_EPOCH + Duration::new(seconds, millis * 1_000_000));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399, 5), "2000-02-28T23:59:59.005Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_709_210_096, 789), "2024-02-29T12:34:56.789Z");
        assert_eq!(at(4_107_542_399, 0), "2100-02-28T23:59:59.000Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn lines_are_appended_whatever_happens_to_the_file_and_a_failure_ends_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("accounting.jsonl");
        let who = Who {
            session: 7,
            tenant: Tenant::parse("team-red").unwrap(),
            user: None,
            pod: None,
            peer: "10.0.0.1:99".to_owned(),
            program: "say \"hi\"".to_owned(),
            pid: 12,
            begun: SystemTime::now(),
            since: Instant::now(),
        };
        let mut figures = Figures::default();
        figures.uses(&[1]);
        let seen = Seen { who: Arc::new(who), works: true, devices: vec![1], figures };
        let book = Accounting::new(Some(path.clone()));
        let write = || book.write(&seen, &Offer::default(), SystemTime::now(), &Err("killed".to_owned()));
        write();
        write();
        std::fs::rename(&path, place.path().join("old")).unwrap();
        write();
        let lines = |name: &str| -> Vec<Value> {
            let text = std::fs::read_to_string(place.path().join(name)).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        assert_eq!((lines("old").len(), lines("accounting.jsonl").len()), (2, 1));
        let line = &lines("old")[0];
        assert_eq!(
            (&line["tenant"], &line["ended"], &line["ok"]),
            (&json!("team-red"), &json!("killed"), &json!(false))
        );
        assert_eq!(line["devices"][0]["device"], 1);
        drop(place);
        write();
        assert!(book.failing.load(Ordering::Relaxed));
        Accounting::new(None).write(&seen, &Offer::default(), SystemTime::now(), &Ok(String::new()));
    }
}
