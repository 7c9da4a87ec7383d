//! The report as a picture: for each test, how much longer it takes than direct, on a logarithmic scale.

use std::fmt::Write;

use super::catalog::Unit;
use super::number::{times, with_unit};
use super::path::Kind;
use super::report::{Cell, Line, Report};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 118.0;
const BAR: f64 = 13.0;
const GAP: f64 = 11.0;
/// For the paths in their order. Readable on white and on black, and by people who do not see all colours.
pub(crate) const COLOURS: [&str; 5] = ["#3b82c4", "#e08a1e", "#4c9f70", "#b0609f", "#8a8a8a"];

/// A self-contained SVG file that follows the light or dark mode of whoever looks at it.
pub(crate) fn svg(report: &Report) -> String {
    let reference = report.paths.iter().position(|path| path.kind == Kind::Direct).unwrap_or(0);
    let drawn: Vec<usize> = (0..report.paths.len()).filter(|path| *path != reference).collect();
    // Memory is no time.
    let lines: Vec<&Line> = report.results.iter().filter(|line| line.unit != Unit::Bytes).collect();
    let scale =
        Scale::for_costs(lines.iter().flat_map(|line| drawn.iter().filter_map(|path| cost(line, *path, reference))));
    let group = BAR * drawn.len() as f64 + GAP;
    let bottom = TOP + group * lines.len() as f64;
    let height = bottom + 44.0;

    let mut svg = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n{STYLE}\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    let of = escape(&report.paths[reference].name);
    let _ =
        writeln!(svg, "<text x=\"16\" y=\"28\" font-size=\"16\" font-weight=\"600\">Time compared with {of}</text>");
    let about = format!("{}; {}; telecl {}, {}", report.device.name, report.machine.cpu, report.telecl, report.date);
    let _ = writeln!(svg, "<text class=\"quiet\" x=\"16\" y=\"48\">{}</text>", escape(&about));
    legend(&mut svg, report, &drawn);
    for tick in scale.ticks() {
        let x = scale.x(tick);
        let class = if tick == 1.0 { "one" } else { "grid" };
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>",
            TOP - 8.0
        );
        for y in [TOP - 14.0, bottom + 16.0] {
            let _ =
                writeln!(svg, "<text class=\"quiet\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{tick}×</text>");
        }
    }
    for (number, line) in lines.iter().enumerate() {
        let y = TOP + group * number as f64;
        let middle = y + BAR * drawn.len() as f64 / 2.0 + 4.0;
        let _ =
            writeln!(svg, "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>", LEFT - 10.0, line.name);
        for (place, path) in drawn.iter().enumerate() {
            bar(&mut svg, &scale, line, *path, reference, y + BAR * place as f64, COLOURS[place % COLOURS.len()]);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Of all pictures.
pub(crate) const STYLE: &str = "<style>\
    .paper{fill:#fff}text{fill:#1b1f24}.quiet{fill:#626a73}.grid{stroke:#e3e6e9}.one{stroke:#626a73;stroke-width:1.5}\
    .limit{stroke:#1b1f24;stroke-width:2}.halo{paint-order:stroke;stroke:#fff;stroke-width:3}\
    @media(prefers-color-scheme:dark){.paper{fill:#14171b}text{fill:#e6e9ec}.quiet{fill:#9aa3ad}.grid{stroke:#2b3036}\
    .one{stroke:#9aa3ad}.limit{stroke:#e6e9ec}.halo{stroke:#14171b}}</style>\n";

fn legend(svg: &mut String, report: &Report, drawn: &[usize]) {
    let mut x = 16.0;
    for (place, path) in drawn.iter().enumerate() {
        let name = &report.paths[*path].name;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"62\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:.1}\" y=\"72\">{}</text>",
            COLOURS[place % COLOURS.len()],
            x + 18.0,
            escape(name)
        );
        x += 42.0 + 7.0 * name.chars().count() as f64;
    }
    let _ = writeln!(
        svg,
        "<line class=\"limit\" x1=\"{x:.1}\" y1=\"61\" x2=\"{x:.1}\" y2=\"75\"/>\
         <text class=\"quiet\" x=\"{:.1}\" y=\"72\">the bar; left of 1× is faster</text>",
        x + 8.0
    );
}

fn bar(svg: &mut String, scale: &Scale, line: &Line, path: usize, reference: usize, y: f64, colour: &str) {
    let cell = &line.cells[path];
    let text_y = y + BAR - 3.0;
    let Some(cost) = cost(line, path, reference) else {
        let what = if cell.error.is_some() { "failed" } else { "not measured" };
        let _ = writeln!(svg, "<text class=\"quiet\" x=\"{:.1}\" y=\"{text_y:.1}\">{what}</text>", scale.x(1.0) + 6.0);
        return;
    };
    let (one, end) = (scale.x(1.0), scale.x(cost));
    let (x, width) = (one.min(end), (end - one).abs().max(1.0));
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
        y + 1.0,
        BAR - 2.0
    );
    if let Some(limit) = limit_cost(line, cell, cost) {
        let at = scale.x(limit);
        let _ =
            writeln!(svg, "<line class=\"limit\" x1=\"{at:.1}\" y1=\"{y:.1}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>", y + BAR);
    }
    let mark = cell.bar.as_ref().map_or("", |bar| if bar.met { " ✓" } else { " ✗" });
    let value = cell.summary.as_ref().map_or(String::new(), |summary| with_unit(summary.median, line.unit));
    let x = WIDTH - RIGHT + 16.0;
    let _ =
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{text_y:.1}\" font-size=\"11\">{}, {value}{mark}</text>", times(cost));
}

/// How many times longer something takes on `path`; of rates the inverse.
fn cost(line: &Line, path: usize, reference: usize) -> Option<f64> {
    let median = |path: usize| line.cells.get(path)?.summary.as_ref().map(|summary| summary.median);
    let ratio = median(path)? / median(reference)?;
    let cost = if line.unit.more_is_better() { 1.0 / ratio } else { ratio };
    (cost.is_finite() && cost > 0.0).then_some(cost)
}

/// The same for the bar of a cell whose own cost is known.
fn limit_cost(line: &Line, cell: &Cell, cost: f64) -> Option<f64> {
    let ratio = cell.bar.as_ref()?.limit / cell.summary.as_ref()?.median;
    let limit = if line.unit.more_is_better() { cost / ratio } else { cost * ratio };
    (limit.is_finite() && limit > 0.0).then_some(limit)
}

/// From times to places.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn for_costs(costs: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = costs.fold((0.5, 2.0), |(low, high), cost| (cost.min(low), cost.max(high)));
        // Whole ticks, and not so many that nothing can be told apart.
        let low = steps().rfind(|step| *step <= low.max(0.01)).unwrap_or(0.01);
        let high = steps().find(|step| *step >= high.min(1000.0)).unwrap_or(1000.0);
        Scale { low, high }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let range = self.low..=self.high;
        steps().filter(move |step| range.contains(step))
    }

    fn x(&self, cost: f64) -> f64 {
        let part = (cost.clamp(self.low, self.high) / self.low).ln() / (self.high / self.low).ln();
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }
}

/// 0.01, 0.02, 0.05, 0.1 and so on to 1000.
fn steps() -> impl DoubleEndedIterator<Item = f64> {
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0].into_iter()
}

pub(crate) fn escape(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    clean.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Every tag is closed, in order, and no `<` or `&` stands alone.
#[cfg(test)]
pub(crate) fn assert_well_formed(xml: &str) {
    let mut open = Vec::new();
    for part in xml.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("no end: {part}"));
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        for entity in text.split('&').skip(1) {
            assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|known| entity.starts_with(known)), "{entity}");
        }
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{part}"),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split(' ').next().unwrap_or_default()),
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::sample;

    #[test]
    fn the_picture_is_well_formed_and_names_what_it_shows() {
        let picture = svg(&sample());
        assert_well_formed(&picture);
        for part in
            ["launch-finish", "tcp", "1.50×, 45.0 µs ✓", "failed", "prefers-color-scheme", "a &lt;b&gt; &amp; c"]
        {
            assert!(picture.contains(part), "{part}\n{picture}");
        }
    }

    #[test]
    fn a_report_without_direct_is_drawn_against_its_first_path() {
        let mut report = sample();
        report.paths.remove(0);
        for line in &mut report.results {
            line.cells.remove(0);
        }
        let picture = svg(&report);
        assert_well_formed(&picture);
        assert!(picture.contains("Time compared with tcp"));
    }

    #[test]
    fn the_scale_ends_at_ticks_and_has_one_in_it() {
        let scale = Scale::for_costs([0.07, 1.0, 6.0].into_iter());
        assert_eq!((scale.low, scale.high), (0.05, 10.0));
        assert_eq!(scale.ticks().count(), 8);
        assert!(scale.x(0.001) >= LEFT && scale.x(1e9) <= WIDTH - RIGHT);
        assert!(scale.x(0.5) < scale.x(1.0));
    }

    #[test]
    fn bars_are_drawn_on_the_right_side_of_their_values() {
        let report = sample();
        for (line, cell) in report.cells() {
            let Some(bar) = &cell.bar else { continue };
            let limit = limit_cost(line, cell, 1.0).unwrap();
            assert_eq!(limit >= 1.0, bar.met, "{}: {limit}", line.name);
        }
    }
}
