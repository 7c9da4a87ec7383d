//! Where and when the numbers were taken.

use std::fs;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    /// Those that this process may use.
    pub(crate) cores: usize,
    pub(crate) kernel: String,
}

impl Machine {
    pub(crate) fn this() -> Machine {
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Machine {
            cpu: model_name(&cpuinfo).unwrap_or_else(|| text(uname.machine())),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
        }
    }
}

/// Not all architectures name the model.
fn model_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// `2026-11-03 14:05 UTC`.
pub(crate) fn now() -> String {
    date(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

fn date(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut day) = (1970, days);
    let length = |year: u64| {
        if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) { 366 } else { 365 }
    };
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let february = length(year) - 337;
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02} {:02}:{:02} UTC", day + 1, time / 3600, time / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_825_599), "2000-02-29 11:59 UTC");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59 UTC");
    }

    #[test]
    fn the_cpu_is_named_where_the_system_names_it() {
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\nmodel name\t: other\n";
        assert_eq!(model_name(cpuinfo).unwrap(), "AMD EPYC 9654 96-Core Processor");
        assert_eq!(model_name("CPU implementer : 0x41\n"), None);
    }
}
