//! What is measured: every test with its rows, its size, and the limits that it is compared with.

use super::limits::Limit;

/// One measurement, of which every round gives a value for each of its rows.
#[derive(Debug)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) rows: &'static [Row],
    /// How often it is done in one round.
    pub(crate) count: u32,
    pub(crate) quick_count: u32,
    /// What is measured beside it, in the same rounds.
    pub(crate) limits: &'static [Limit],
    pub(crate) manner: Manner,
}

/// One line of the report.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// What is done, in a few words.
    pub(crate) about: &'static str,
    pub(crate) unit: Unit,
}

/// How a test is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Over and over, in a process that has everything ready.
    Resident,
    /// Once, with a process from its start to its end.
    Fresh,
    /// In many processes at once.
    Crowd,
}

/// The base units of all values, and which of them are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Seconds,
    BytesPerSecond,
    LaunchesPerSecond,
    Bytes,
}

impl Unit {
    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Unit::BytesPerSecond | Unit::LaunchesPerSecond)
    }
}

/// How many processes launch at once.
pub(crate) const CROWDS: [usize; 6] = [1, 2, 4, 8, 16, 32];

const TIME: Unit = Unit::Seconds;
const RATE: Unit = Unit::LaunchesPerSecond;
const TRIPS: &[Limit] = &[Limit::TcpPing, Limit::FutexPing];
const ALL_TRIPS: &[Limit] = &[Limit::TcpPing, Limit::TcpSpin, Limit::UnixPing, Limit::FutexPing];
const BULK: &[Limit] = &[Limit::TcpStream, Limit::CopyLarge, Limit::CopyCached];

macro_rules! tests {
    ($($name:literal: $about:literal, $manner:ident, $count:literal / $quick:literal, $limits:expr,
       [$($row:literal $unit:expr $(=> $row_about:literal)?),+];)+) => {
        &[$(Test {
            name: $name,
            // A row without words of its own has those of the test.
            rows: &[$(Row { name: $row, about: [$($row_about,)? $about][0], unit: $unit }),+],
            count: $count,
            quick_count: $quick,
            limits: $limits,
            manner: Manner::$manner,
        }),+]
    };
}

#[rustfmt::skip]
pub(crate) static TESTS: &[Test] = tests! {
    "launch-stream": "empty kernels enqueued in a row, then clFinish",
        Resident, 10_000 / 2_000, &[],
        ["launch-stream" TIME, "enqueue-call" TIME => "the enqueue call alone, in the same run"];
    "launch-finish": "an empty kernel and clFinish, one at a time",
        Resident, 500 / 200, ALL_TRIPS, ["launch-finish" TIME];
    "dependent": "kernels that wait for the event of the one before, then clFinish",
        Resident, 1_000 / 1_000, TRIPS, ["dependent" TIME];
    "wait-event": "an empty kernel with an event, clWaitForEvents and its release",
        Resident, 500 / 200, TRIPS, ["wait-event" TIME];
    "read-4": "a blocking read of 4 bytes",
        Resident, 500 / 200, TRIPS, ["read-4" TIME];
    "write-4": "a blocking write of 4 bytes to an idle device, the call alone",
        Resident, 500 / 200, &[], ["write-4" TIME, "write-4-row" TIME => "the same, many in a row"];
    "args-launch": "four changing arguments and a kernel, in a row, then clFinish",
        Resident, 2_000 / 1_000, &[], ["args-launch" TIME];
    "chain": "a write of 4 KiB, four arguments, a kernel and a blocking read of 4 KiB",
        Resident, 500 / 200, TRIPS, ["chain" TIME];
    "buffer-4K": "a new buffer of 4 KiB, a blocking write of all of it, clFinish, its release",
        Resident, 500 / 200, TRIPS, ["buffer-4K" TIME];
    "write-64M": "a blocking write of 64 MiB and clFinish",
        Resident, 4 / 1, BULK, ["write-64M" Unit::BytesPerSecond];
    "read-64M": "a blocking read of 64 MiB",
        Resident, 4 / 1, BULK, ["read-64M" Unit::BytesPerSecond];
    "stream-1M": "write, kernel and read of 1 MiB each, none of which waits; both directions count",
        Resident, 500 / 100, &[Limit::TcpStream], ["stream-1M" Unit::BytesPerSecond];
    "sessions": "launch-finish in so many processes at once, all together",
        Crowd, 1 / 1, &[],
        ["sessions-1" RATE, "sessions-2" RATE, "sessions-4" RATE, "sessions-8" RATE, "sessions-16" RATE, "sessions-32" RATE];
    "start": "a process that lists all devices, from its start to its end",
        Fresh, 1 / 1, &[], ["start" TIME];
    "context": "a process from its start to its first finished kernel",
        Fresh, 1 / 1, &[], ["context" TIME];
    "memory": "what a first kernel adds to a process's memory, without that of files",
        Fresh, 1 / 1, &[], ["memory" Unit::Bytes];
};

impl Test {
    pub(crate) fn count(&self, quick: bool) -> u32 {
        if quick { self.quick_count } else { self.count }
    }
}

/// The tests of these names (of tests or of their rows); all if there are none. An unknown name is the error.
pub(crate) fn select(names: &[String]) -> Result<Vec<&'static Test>, String> {
    let has = |test: &Test, name: &String| test.name == name || test.rows.iter().any(|row| row.name == name);
    if let Some(unknown) = names.iter().find(|name| !TESTS.iter().any(|test| has(test, name))) {
        return Err(unknown.clone());
    }
    Ok(TESTS.iter().filter(|test| names.is_empty() || names.iter().any(|name| has(test, name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_chosen_by_their_names_and_by_those_of_their_rows() {
        assert_eq!(select(&[]).unwrap().len(), TESTS.len());
        let chosen = select(&["read-4".to_owned(), "enqueue-call".to_owned()]).unwrap();
        assert_eq!(chosen.iter().map(|test| test.name).collect::<Vec<_>>(), ["launch-stream", "read-4"]);
        assert_eq!(select(&["dance".to_owned()]).unwrap_err(), "dance");
    }

    #[test]
    fn no_two_rows_have_one_name() {
        let mut names: Vec<_> = TESTS.iter().flat_map(|test| test.rows).map(|row| row.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
