//! What is known in the end: every value beside direct's, with its bar. What all forms of output show.

use serde::Serialize;

use super::bars::{self, Bar, Facts};
use super::catalog::Unit;
use super::child::DeviceFacts;
use super::limits::Limit;
use super::machine::Machine;
use super::path::{Kind, Path};
use super::rounds::{Effort, Measured};
use super::stats::Summary;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) telecl: &'static str,
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) device: DeviceFacts,
    pub(crate) quick: bool,
    pub(crate) rounds: u32,
    pub(crate) paths: Vec<PathReport>,
    pub(crate) results: Vec<Line>,
    pub(crate) limits: Vec<LimitLine>,
    /// What was left out, and why.
    pub(crate) notes: Vec<String>,
    /// How long all of it took.
    pub(crate) seconds: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct PathReport {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) address: Option<String>,
}

/// One row, on all paths.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) unit: Unit,
    /// Repetitions in one round.
    pub(crate) count: u32,
    /// In the order of the paths.
    pub(crate) cells: Vec<Cell>,
}

/// One row on one path.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) path: String,
    #[serde(flatten)]
    pub(crate) summary: Option<Summary>,
    pub(crate) error: Option<String>,
    /// This value divided by direct's, and without it.
    pub(crate) ratio: Option<f64>,
    pub(crate) difference: Option<f64>,
    pub(crate) bar: Option<Bar>,
}

#[derive(Debug, Serialize)]
pub(crate) struct LimitLine {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    pub(crate) unit: Unit,
    #[serde(flatten)]
    pub(crate) summary: Summary,
}

impl Report {
    pub(crate) fn new(
        machine: Machine,
        date: String,
        device: DeviceFacts,
        paths: &[&Path],
        effort: Effort,
        measured: &[Measured],
    ) -> Report {
        Report {
            telecl: env!("CARGO_PKG_VERSION"),
            date,
            machine,
            quick: effort.quick,
            rounds: effort.rounds,
            paths: paths.iter().map(|path| PathReport::of(path)).collect(),
            results: measured.iter().flat_map(|measured| lines(measured, paths, &device)).collect(),
            limits: limits(measured),
            notes: Vec::new(),
            seconds: 0.0,
            device,
        }
    }

    /// All cells with their lines.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (&Line, &Cell)> {
        self.results.iter().flat_map(|line| line.cells.iter().map(move |cell| (line, cell)))
    }

    /// How many bars there are, and how many are met.
    pub(crate) fn bars(&self) -> (usize, usize) {
        let bars = || self.cells().filter_map(|(_, cell)| cell.bar.as_ref());
        (bars().count(), bars().filter(|bar| bar.met).count())
    }
}

impl PathReport {
    fn of(path: &Path) -> PathReport {
        let address = path.address.as_ref().map(ToString::to_string);
        PathReport { name: path.name.clone(), kind: path.kind, address }
    }
}

fn lines(measured: &Measured, paths: &[&Path], device: &DeviceFacts) -> Vec<Line> {
    // Of one path, one value for each row of the test.
    let medians: Vec<Vec<Option<Summary>>> = measured
        .paths
        .iter()
        .map(|rounds| {
            let rounds = rounds.as_deref().unwrap_or_default();
            let of_row = |row| rounds.iter().filter_map(|values| values.get(row).copied()).collect::<Vec<_>>();
            (0..measured.test.rows.len()).map(|row| Summary::of(&of_row(row))).collect()
        })
        .collect();
    let direct = paths.iter().position(|path| path.kind == Kind::Direct);
    let mut lines = Vec::new();
    for (row, what) in measured.test.rows.iter().enumerate() {
        let direct = direct.and_then(|direct| medians[direct][row].as_ref()).map(|summary| summary.median);
        let cells = paths.iter().enumerate().map(|(index, path)| {
            let summary = medians[index][row].clone();
            let best = medians[index]
                .iter()
                .flatten()
                .map(|summary| summary.median)
                .fold(None, |best, value| Some(best.map_or(value, |best: f64| best.max(value))));
            let facts = Facts {
                direct,
                round_trip: measured.limit(&trip(path)),
                stream: measured.limit(&Limit::TcpStream),
                best,
                count: measured.count,
            };
            let value = summary.as_ref().map(|summary| summary.median);
            let compared = direct.zip(value).filter(|_| path.kind != Kind::Direct);
            Cell {
                path: path.name.clone(),
                error: measured.paths[index].as_ref().err().cloned(),
                ratio: compared.map(|(direct, value)| value / direct).filter(|ratio| ratio.is_finite()),
                difference: compared.map(|(direct, value)| value - direct),
                bar: value.and_then(|value| bars::bar(what.name, what.unit, path.kind, device, facts, value)),
                summary,
            }
        });
        let cells = cells.collect();
        lines.push(Line { name: what.name, about: what.about, unit: what.unit, count: measured.count, cells });
    }
    lines
}

impl Measured {
    fn limit(&self, limit: &Limit) -> Option<f64> {
        let (_, rounds) = self.limits.iter().find(|(measured, _)| measured == limit)?;
        Summary::of(rounds).map(|summary| summary.median)
    }
}

/// The round trip that a path cannot do without.
fn trip(path: &Path) -> Limit {
    match (path.kind, &path.address) {
        (Kind::Remote, Some(address)) => Limit::Service(address.clone()),
        (Kind::SharedMemory, _) => Limit::FutexPing,
        _ => Limit::TcpPing,
    }
}

/// Each limit once, with the rounds of all tests.
fn limits(measured: &[Measured]) -> Vec<LimitLine> {
    let mut all: Vec<(&Limit, Vec<f64>)> = Vec::new();
    for (limit, rounds) in measured.iter().flat_map(|measured| &measured.limits) {
        match all.iter_mut().find(|(known, _)| *known == limit) {
            Some((_, known)) => known.extend(rounds),
            None => all.push((limit, rounds.clone())),
        }
    }
    let line = |(limit, rounds): (&Limit, Vec<f64>)| {
        let summary = Summary::of(&rounds)?;
        Some(LimitLine { name: limit.name(), about: limit.about(), unit: limit.unit(), summary })
    };
    all.into_iter().filter_map(line).collect()
}

/// A report of three paths with bars that are met, bars that are missed, a failure and a note.
#[cfg(test)]
pub(crate) fn sample() -> Report {
    let paths = Path::samples();
    let test = |name: &str| super::catalog::TESTS.iter().find(|test| test.name == name).unwrap();
    let rounds = |values: &[f64]| Ok(values.iter().map(|value| vec![*value]).collect());
    let measured = [
        Measured {
            test: test("launch-finish"),
            count: 500,
            paths: vec![rounds(&[29e-6, 30e-6, 31e-6]), rounds(&[45e-6, 50e-6, 44e-6]), Err("a | b".to_owned())],
            limits: vec![(Limit::TcpPing, vec![10e-6, 12e-6]), (Limit::FutexPing, vec![3e-6])],
            notes: Vec::new(),
        },
        Measured {
            test: test("write-4"),
            count: 500,
            paths: [20e-6, 9e-6, 2e-6].map(|value| Ok(vec![vec![value, value / 2.0]])).to_vec(),
            limits: Vec::new(),
            notes: Vec::new(),
        },
        Measured {
            test: test("write-64M"),
            count: 4,
            paths: vec![rounds(&[8e9]), rounds(&[1e9]), rounds(&[7e9])],
            limits: vec![(Limit::TcpStream, vec![4e9])],
            notes: Vec::new(),
        },
        Measured {
            test: test("memory"),
            count: 1,
            paths: vec![rounds(&[14e6]), rounds(&[1e6]), Ok(Vec::new())],
            limits: Vec::new(),
            notes: Vec::new(),
        },
    ];
    let text = |text: &str| text.to_owned();
    let device = DeviceFacts {
        name: text("a <b> & c"),
        platform: text("p"),
        vendor: text("v"),
        driver: text("1"),
        version: text("OpenCL 3.0"),
        is_cpu: true,
        is_nvidia: false,
    };
    let machine = Machine { cpu: text("CPU"), cores: 2, kernel: text("Linux 6") };
    let paths: Vec<&Path> = paths.iter().collect();
    let effort = Effort { rounds: 3, quick: true };
    let mut report = Report::new(machine, text("today"), device, &paths, effort, &measured);
    report.notes.push(text("node9 is left out: it is away"));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_with_direct_s_of_the_same_rounds() {
        let report = sample();
        let cell = |line: usize, path: usize| &report.results[line].cells[path];
        assert_eq!((cell(0, 0).ratio, cell(0, 0).bar.as_ref()), (None, None), "direct is the measure");
        let tcp = cell(0, 1);
        assert!((tcp.ratio.unwrap() - 1.5).abs() < 1e-9 && (tcp.difference.unwrap() - 15e-6).abs() < 1e-9);
        assert!((tcp.bar.as_ref().unwrap().limit - 56e-6).abs() < 1e-9, "30 + 11 + 15 µs");
        assert_eq!(cell(0, 2).error.as_deref(), Some("a | b"));
        assert_eq!(report.bars(), (6, 4));
        assert_eq!(report.limits.len(), 3);
    }

    #[test]
    fn programs_find_every_round_in_the_json() {
        let json: serde_json::Value = serde_json::to_value(sample()).unwrap();
        assert_eq!(json["results"][0]["name"], "launch-finish");
        assert_eq!(json["results"][0]["unit"], "seconds");
        assert_eq!(json["results"][0]["cells"][1]["rounds"], serde_json::json!([45e-6, 50e-6, 44e-6]));
        assert_eq!(json["results"][0]["cells"][1]["median"], 45e-6);
        assert_eq!(json["results"][0]["cells"][1]["bar"]["met"], true);
        assert_eq!(json["results"][0]["cells"][2]["error"], "a | b");
        assert_eq!(json["limits"][0]["name"], "tcp round trip");
    }
}
