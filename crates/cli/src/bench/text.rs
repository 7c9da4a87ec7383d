//! The report as tables: for people at a terminal.

use std::fmt::Write;

use super::number::{self, spread, times, with_unit};
use super::path::Kind;
use super::report::{Cell, Line, Report};
use crate::human;

/// All of it.
pub(crate) fn text(report: &Report) -> String {
    let mut text = String::new();
    for (name, value) in head(report) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<8} {value}");
    }
    let _ = write!(text, "\n{}", results(report));
    if !report.limits.is_empty() {
        let _ = write!(text, "\n{}", limits(report));
    }
    let _ = write!(text, "\n{}", verdict(report));
    for line in troubles(report) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Where the numbers come from.
pub(crate) fn head(report: &Report) -> Vec<(&'static str, String)> {
    let device = &report.device;
    let rounds = format!(
        "{}; medians, and how far the rounds lie from them{}",
        report.rounds,
        if report.quick { "; quick, so less certain" } else { "" }
    );
    vec![
        ("telecl", format!("{}, {}", report.telecl, report.date)),
        (
            "machine",
            format!(
                "{}, {}, {}",
                report.machine.cpu,
                human::count(report.machine.cores, "core"),
                report.machine.kernel
            ),
        ),
        ("device", format!("{} ({}), driver {}", device.name, device.version, device.driver)),
        ("paths", report.paths.iter().map(|path| path.name.as_str()).collect::<Vec<_>>().join(", ")),
        ("rounds", rounds),
    ]
}

fn results(report: &Report) -> String {
    // An address stays as it is.
    let head = |name: &String| if name.contains(':') { name.clone() } else { name.to_uppercase() };
    let names: Vec<String> = report.paths.iter().map(|path| head(&path.name)).collect();
    let mut header = vec!["TEST"];
    for (path, name) in report.paths.iter().zip(&names) {
        header.push(name);
        header.push("");
        if path.kind != Kind::Direct {
            header.extend(["", ""]);
        }
    }
    let rows: Vec<Vec<String>> = report.results.iter().map(|line| row(report, line)).collect();
    human::table(&header, &rows)
}

fn row(report: &Report, line: &Line) -> Vec<String> {
    let mut row = vec![line.name.to_owned()];
    for (path, cell) in report.paths.iter().zip(&line.cells) {
        let [value, spread, ratio, mark] = parts(line, cell);
        row.extend([value, spread]);
        if path.kind != Kind::Direct {
            row.extend([ratio, mark]);
        }
    }
    row
}

/// Value, spread, ratio and mark of a cell.
fn parts(line: &Line, cell: &Cell) -> [String; 4] {
    let value = match (&cell.summary, &cell.error) {
        (Some(summary), _) => with_unit(summary.median, line.unit),
        (None, Some(_)) => "failed".to_owned(),
        (None, None) => "–".to_owned(),
    };
    let mark = cell.bar.as_ref().map_or("", |bar| if bar.met { "✓" } else { "✗" });
    let spread = cell.summary.as_ref().map_or(String::new(), |summary| spread(summary.spread()));
    [value, spread, cell.ratio.map_or(String::new(), times), mark.to_owned()]
}

fn limits(report: &Report) -> String {
    let row = |limit: &super::report::LimitLine| {
        let summary = &limit.summary;
        let value = with_unit(summary.median, limit.unit);
        vec![limit.name.clone(), value, spread(summary.spread()), limit.about.to_owned()]
    };
    let rows: Vec<Vec<String>> = report.limits.iter().map(row).collect();
    human::table(&["WITHOUT OPENCL", "", "", ""], &rows)
}

/// `9 of 10 bars are met`.
pub(crate) fn verdict(report: &Report) -> String {
    match report.bars() {
        (0, _) => String::new(),
        (all, met) if all == met => format!("✓ All bars are met: {all} of {all}.\n"),
        (all, met) => format!("{met} of {all} bars are met.\n"),
    }
}

/// Bars that are missed, tests that failed, and what was left out.
pub(crate) fn troubles(report: &Report) -> Vec<String> {
    let mut troubles = Vec::new();
    for (line, cell) in report.cells() {
        if let Some(error) = &cell.error {
            troubles.push(format!("! {}, {}: {error}", line.name, cell.path));
        }
        let Some((bar, summary)) = cell.bar.as_ref().zip(cell.summary.as_ref()).filter(|(bar, _)| !bar.met) else {
            continue;
        };
        let at = if line.unit.more_is_better() { "at least" } else { "at most" };
        let (value, limit) = (with_unit(summary.median, line.unit), with_unit(bar.limit, line.unit));
        let chosen = number::round(bar.limit, line.unit);
        let limit = if bar.rule == chosen { chosen } else { format!("{limit} ({})", bar.rule) };
        troubles.push(format!("✗ {}, {}: {value}; the bar is {at} {limit}", line.name, cell.path));
    }
    troubles.extend(report.notes.iter().map(|note| format!("– {note}")));
    troubles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::sample;

    #[test]
    fn values_stand_under_their_paths_and_misses_are_explained() {
        let text = text(&sample());
        let at = |part: &str| {
            let line = text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}\n{text}"));
            line.split(part).next().map(|before| before.chars().count())
        };
        assert_eq!(at("45.0 µs"), at("TCP"), "{text}");
        assert_eq!(at("failed"), at("SHARED MEMORY"), "{text}");
        for part in [
            "device   a <b> & c",
            "1.50×  ✓",
            "4 of 6 bars are met.",
            "✗ write-4, tcp: 9.00 µs; the bar is at most 5 µs\n",
            "✗ write-64M, tcp: 1.00 GB/s; the bar is at least 3.60 GB/s (0.9 × tcp stream)",
            "! launch-finish, shared memory: a | b",
            "– node9 is left out",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
