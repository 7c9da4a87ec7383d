//! What is known in the end: every batch, its median and the speed-up. This is what JSON keeps and pictures are drawn from.

use serde::{Deserialize, Serialize};

use super::copies::Took;
use crate::bench::catalog::Unit;
use crate::bench::machine::Machine;
use crate::bench::number::{spread, times, with_unit};
use crate::bench::stats::Summary;
use crate::human;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) telecl: String,
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) command: Vec<String>,
    /// What the first copies have.
    pub(crate) device: String,
    /// What those beyond them have through telecl, if that is another.
    pub(crate) second: Option<String>,
    /// How many are the first.
    pub(crate) first: u16,
    /// How many run at once directly, if that is limited.
    pub(crate) replicas: Option<u16>,
    pub(crate) rounds: u32,
    /// Direct, and then the links through telecl.
    pub(crate) paths: Vec<String>,
    pub(crate) results: Vec<Line>,
    pub(crate) notes: Vec<String>,
}

/// So many copies, on all paths.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) copies: u16,
    /// In the order of the paths.
    pub(crate) cells: Vec<Cell>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) path: String,
    pub(crate) rounds: Vec<Took>,
    pub(crate) error: Option<String>,
    /// The median makespan, in seconds.
    pub(crate) makespan: Option<f64>,
    /// Direct's divided by this.
    pub(crate) speed_up: Option<f64>,
}

impl Cell {
    pub(crate) fn summary(&self) -> Option<Summary> {
        Summary::of(&self.rounds.iter().map(|round| round.makespan).collect::<Vec<_>>())
    }

    /// The median of what single copies took.
    fn each(&self) -> Option<f64> {
        let all: Vec<f64> = self.rounds.iter().flat_map(|round| round.copies.iter().copied()).collect();
        Summary::of(&all).map(|summary| summary.median)
    }
}

impl Report {
    /// Medians and speed-ups of all that was measured so far.
    pub(crate) fn sum_up(&mut self) {
        for line in &mut self.results {
            let median = |cell: &Cell| cell.summary().map(|summary| summary.median);
            let direct = line.cells.first().and_then(median);
            for (place, cell) in line.cells.iter_mut().enumerate() {
                cell.makespan = median(cell);
                let both = direct.zip(cell.makespan).filter(|_| place > 0);
                cell.speed_up = both.map(|(direct, own)| direct / own).filter(|ratio| ratio.is_finite());
            }
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.results.iter().flat_map(|line| &line.cells).any(|cell| cell.error.is_some())
    }

    /// Where the numbers come from, and the table.
    pub(crate) fn text(&self) -> String {
        let machine = &self.machine;
        let mut lines = vec![
            format!("telecl   {}, {}", self.telecl, self.date),
            format!("machine  {}, {}, {}", machine.cpu, human::count(machine.cores, "core"), machine.kernel),
            format!("device   {}", self.device),
        ];
        if let Some(second) = &self.second {
            lines.push(format!("second   {second}, through telecl, for copies beyond the first {}", self.first));
        }
        lines.push(format!("command  {}", self.command.join(" ")));
        lines.push(format!("rounds   {}; medians, and how far the rounds lie from them", self.rounds));
        if let Some(replicas) = self.replicas {
            lines.push(format!("direct   {replicas} at once, the others after them"));
        }
        lines.push(String::new());
        let mut text = lines.join("\n") + "\n" + &self.table();
        let cells = self.results.iter().flat_map(|line| line.cells.iter().map(move |cell| (line.copies, cell)));
        for (copies, cell) in cells {
            if let Some(error) = &cell.error {
                text += &format!("! {}, {}: {error}\n", copies_of(copies), cell.path);
            }
        }
        text + &self.notes.iter().map(|note| format!("– {note}\n")).collect::<String>()
    }

    fn table(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|path| path.to_uppercase()).collect();
        let mut header = vec!["COPIES"];
        for (place, name) in names.iter().enumerate() {
            header.extend([name, "", "EACH"]);
            if place > 0 {
                header.push("SPEED-UP");
            }
        }
        let row = |line: &Line| {
            let mut row = vec![line.copies.to_string()];
            for (place, cell) in line.cells.iter().enumerate() {
                let seconds = |value: Option<f64>| value.map(|value| with_unit(value, Unit::Seconds));
                let missing = if cell.error.is_some() { "failed" } else { "–" };
                row.push(seconds(cell.makespan).unwrap_or_else(|| missing.to_owned()));
                row.push(cell.summary().map_or(String::new(), |summary| spread(summary.spread())));
                row.push(seconds(cell.each()).unwrap_or_default());
                if place > 0 {
                    row.push(cell.speed_up.map_or(String::new(), times));
                }
            }
            row
        };
        human::table(&header, &self.results.iter().map(row).collect::<Vec<_>>())
    }
}

/// `1 copy`, `2 copies`.
pub(crate) fn copies_of(number: u16) -> String {
    if number == 1 { "1 copy".to_owned() } else { format!("{number} copies") }
}

/// Two paths, of which the second fails with four copies.
#[cfg(test)]
pub(crate) fn sample() -> Report {
    let text = |text: &str| text.to_owned();
    let took = |makespan: f64| Took { makespan, copies: vec![makespan / 2.0, makespan] };
    let cell = |path: &str, rounds: &[f64]| Cell {
        path: text(path),
        rounds: rounds.iter().map(|makespan| took(*makespan)).collect(),
        ..Cell::default()
    };
    let mut report = Report {
        telecl: text("0.1.0"),
        date: text("today"),
        machine: Machine { cpu: text("CPU"), cores: 2, kernel: text("Linux 6") },
        command: vec![text("a"), text("<b>")],
        device: text("a <b> & c"),
        second: Some(text("another")),
        first: 2,
        replicas: None,
        rounds: 3,
        paths: vec![text("direct"), text("shared memory")],
        results: vec![
            Line { copies: 1, cells: vec![cell("direct", &[6.0, 5.0, 7.0]), cell("shared memory", &[5.0, 4.0, 9.0])] },
            Line { copies: 4, cells: vec![cell("direct", &[20.0]), cell("shared memory", &[])] },
        ],
        notes: vec![text("a note")],
    };
    report.results[1].cells[1].error = Some(text("copy 3 of 4 ended with exit status: 1"));
    report.sum_up();
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_ups_are_those_of_the_medians() {
        let report = sample();
        let cells = &report.results[0].cells;
        assert_eq!((cells[0].makespan, cells[0].speed_up), (Some(6.0), None));
        assert_eq!((cells[1].makespan, cells[1].speed_up), (Some(5.0), Some(1.2)));
        assert_eq!(report.results[1].cells[1].speed_up, None);
        assert!(report.has_failed());
    }

    #[test]
    fn what_json_keeps_is_what_was_measured() {
        let report = sample();
        let kept = serde_json::to_string(&report).unwrap();
        let mut again: Report = serde_json::from_str(&kept).unwrap();
        again.sum_up();
        assert_eq!(again.text(), report.text());
        let text = report.text();
        for part in ["COPIES  DIRECT", "6.00 s", "1.20×", "failed", "! 4 copies, shared memory: copy 3", "– a note"]
        {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
