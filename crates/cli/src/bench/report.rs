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
        lines.push(Line { name: what.name, about: measured.test.about, unit: what.unit, count: measured.count, cells });
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
