//! The report as a picture of two parts: how long all copies take together, and how much sooner they end through telecl.

use std::fmt::Write;

use super::report::{Cell, Report};
use crate::bench::number::{three_digits, times};
use crate::bench::svg::{COLOURS, STYLE, escape};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 430.0;
const TOP: f64 = 140.0;
const BOTTOM: f64 = 380.0;
/// Where the two parts begin, and how wide each is.
const PARTS: [f64; 2] = [66.0, 506.0];
const PART: f64 = 340.0;
/// Direct's colour; the links through telecl have the first of the others.
const DIRECT: &str = COLOURS[4];

/// A self-contained SVG file that follows the light or dark mode of whoever looks at it.
pub(crate) fn svg(report: &Report) -> String {
    let mut svg = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n{STYLE}\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n"
    );
    let program = report.command.first().map_or("", |program| program.rsplit('/').next().unwrap_or(program));
    let title = format!("Several copies of {program} at once");
    let _ = writeln!(svg, "<text x=\"16\" y=\"28\" font-size=\"16\" font-weight=\"600\">{}</text>", escape(&title));
    let mut about = format!("{}; {}; telecl {}, {}", report.device, report.machine.cpu, report.telecl, report.date);
    if let Some(second) = &report.second {
        about += &format!("; beyond {}, through telecl: {second}", report.first);
    }
    let _ = writeln!(svg, "<text class=\"quiet\" x=\"16\" y=\"48\">{}</text>", escape(&about));
    legend(&mut svg, report);
    let all: Vec<usize> = (0..report.paths.len()).collect();
    let short = report.results.iter().flat_map(|line| &line.cells).all(|cell| cell.makespan.is_none_or(|m| m < 1.0));
    let (unit, factor) = if short { ("ms", 1e3) } else { ("s", 1.0) };
    let makespan = Part {
        left: PARTS[0],
        paths: &all,
        title: format!("Makespan in {unit} (lower is better)"),
        one: false,
        value: &|cell| cell.makespan.map(|makespan| makespan * factor),
        text: &three_digits,
    };
    makespan.draw(&mut svg, report);
    let speed_up = Part {
        left: PARTS[1],
        paths: all.get(1..).unwrap_or_default(),
        title: format!("Speed-up over {} (higher is better)", report.paths.first().map_or("direct", |path| path)),
        one: true,
        value: &|cell| cell.speed_up,
        text: &times,
    };
    speed_up.draw(&mut svg, report);
    svg.push_str("</svg>\n");
    svg
}

fn colour(path: usize) -> &'static str {
    path.checked_sub(1).map_or(DIRECT, |path| COLOURS[path % (COLOURS.len() - 1)])
}

fn legend(svg: &mut String, report: &Report) {
    let mut x = 16.0;
    for (path, name) in report.paths.iter().enumerate() {
        let name = if path == 0 { name.clone() } else { format!("telecl, {name}") };
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"62\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:.1}\" y=\"72\">{}</text>",
            colour(path),
            x + 18.0,
            escape(&name)
        );
        x += 42.0 + 7.0 * name.chars().count() as f64;
    }
}

/// Bars for each number of copies.
struct Part<'a> {
    left: f64,
    paths: &'a [usize],
    title: String,
    /// Has a line at 1.
    one: bool,
    value: &'a dyn Fn(&Cell) -> Option<f64>,
    text: &'a dyn Fn(f64) -> String,
}

impl Part<'_> {
    fn draw(&self, svg: &mut String, report: &Report) {
        let (left, right) = (self.left, self.left + PART);
        let _ =
            writeln!(svg, "<text x=\"{left:.1}\" y=\"{:.1}\" font-weight=\"600\">{}</text>", TOP - 34.0, self.title);
        let cells = report.results.iter().flat_map(|line| self.paths.iter().map(|path| &line.cells[*path]));
        let lowest = if self.one { 1.0 } else { 0.0 };
        let highest = cells.filter_map(self.value).fold(lowest, f64::max);
        let step = step(highest);
        let ticks = (highest / step).ceil().max(1.0);
        let y = |value: f64| BOTTOM - value / (ticks * step) * (BOTTOM - TOP);
        for tick in 0..=ticks as u32 {
            let value = f64::from(tick) * step;
            line(svg, "grid", left, right, y(value));
            let _ = writeln!(
                svg,
                "<text class=\"quiet\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                y(value) + 4.0,
                (value * 1e3).round() / 1e3
            );
        }
        if self.one {
            line(svg, "one", left, right, y(1.0));
        }
        let group = PART / report.results.len().max(1) as f64;
        for (place, line) in report.results.iter().enumerate() {
            let middle = left + group * (place as f64 + 0.5);
            self.bars(svg, &line.cells, middle, group, &y);
            let _ = writeln!(
                svg,
                "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 18.0,
                line.copies
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"quiet\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">copies at once</text>",
            left + PART / 2.0,
            BOTTOM + 36.0
        );
    }

    /// Those of one number of copies, around `middle`, with their values above them.
    fn bars(&self, svg: &mut String, cells: &[Cell], middle: f64, group: f64, y: &dyn Fn(f64) -> f64) {
        let bar = (group * 0.8 / self.paths.len().max(1) as f64).min(44.0);
        let start = middle - bar * self.paths.len() as f64 / 2.0;
        for (number, path) in self.paths.iter().enumerate() {
            let Some(value) = (self.value)(&cells[*path]) else { continue };
            let (x, at) = (start + bar * number as f64, y(value));
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{at:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>\
                 <text class=\"halo\" x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\" text-anchor=\"middle\">{}</text>",
                x + 1.0,
                bar - 2.0,
                (BOTTOM - at).max(1.0),
                colour(*path),
                x + bar / 2.0,
                at - 4.0,
                escape(&(self.text)(value))
            );
        }
    }
}

fn line(svg: &mut String, class: &str, left: f64, right: f64, y: f64) {
    let _ = writeln!(svg, "<line class=\"{class}\" x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\"/>");
}

/// 1, 2 or 5 times a power of ten, so that there are three to eight of them.
fn step(highest: f64) -> f64 {
    let rough = (highest / 5.0).max(1e-6);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|part| part * power).find(|step| *step >= rough).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::share::report::sample;
    use crate::bench::svg::assert_well_formed;

    #[test]
    fn the_picture_is_well_formed_and_has_both_parts() {
        let picture = svg(&sample());
        assert_well_formed(&picture);
        for part in [
            "Makespan",
            "Speed-up",
            ">6.00<",
            "1.20×",
            ">20.0<",
            "Makespan in s",
            "a &lt;b&gt; &amp; c",
            "copies at once",
        ] {
            assert!(picture.contains(part), "{part}\n{picture}");
        }
    }

    #[test]
    fn a_report_without_any_value_is_drawn_all_the_same() {
        let mut report = sample();
        for cell in report.results.iter_mut().flat_map(|line| &mut line.cells) {
            cell.rounds.clear();
        }
        report.sum_up();
        assert_well_formed(&svg(&report));
        report.results.clear();
        assert_well_formed(&svg(&report));
    }

    #[test]
    fn ticks_are_round_numbers() {
        for (highest, expected) in [(7.3, 2.0), (1.2, 0.5), (100.0, 20.0), (0.9, 0.2)] {
            assert!((step(highest) - expected).abs() < 1e-9, "{highest}: {}", step(highest));
        }
    }
}
