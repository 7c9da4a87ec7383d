//! What came of each test: its figure, its bar, and whether it is met.

use serde::Serialize;

use crate::bench::catalog::Unit;
use crate::bench::child::DeviceFacts;
use crate::bench::machine::Machine;
use crate::bench::number::{self, three_digits, times, with_unit};
use crate::human;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) telecl: &'static str,
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) device: Option<DeviceFacts>,
    /// Who the two tenants are.
    pub(crate) tenants: String,
    pub(crate) results: Vec<Row>,
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) measure: Measure,
    pub(crate) figure: Option<f64>,
    /// The bar: not less, and not more.
    pub(crate) low: Option<f64>,
    pub(crate) high: f64,
    pub(crate) met: Option<bool>,
    pub(crate) error: Option<String>,
    /// What the figure was made of, in base units.
    pub(crate) details: Vec<(&'static str, f64)>,
}

/// What a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    /// Of the device's time, 1 is all.
    Part,
    /// Of something else.
    Times,
    Seconds,
}

impl Measure {
    fn text(self, value: f64) -> String {
        match self {
            Measure::Part => format!("{} %", three_digits(value * 100.0)),
            Measure::Times => times(value),
            Measure::Seconds => with_unit(value, Unit::Seconds),
        }
    }

    /// Of a number that was chosen.
    fn round(self, value: f64) -> String {
        match self {
            Measure::Part => format!("{} %", (value * 1e4).round() / 1e2),
            Measure::Times => format!("{value}×"),
            Measure::Seconds => number::round(value, Unit::Seconds),
        }
    }
}

impl Row {
    /// A figure that must lie between two numbers.
    pub(crate) fn new(name: &str, about: &str, measure: Measure, low: Option<f64>, high: f64) -> Row {
        let (name, about, details) = (name.to_owned(), about.to_owned(), Vec::new());
        Row { name, about, measure, figure: None, low, high, met: None, error: None, details }
    }

    pub(crate) fn with(mut self, figure: f64, details: &[(&'static str, f64)]) -> Row {
        self.figure = Some(figure);
        self.met = Some(figure <= self.high && self.low.is_none_or(|low| figure >= low));
        self.details = details.to_vec();
        self
    }

    fn bar(&self) -> String {
        let high = self.measure.round(self.high);
        match self.low {
            Some(low) => format!("{} to {high}", self.measure.round(low)),
            None => format!("at most {high}"),
        }
    }

    fn cells(&self) -> Vec<String> {
        let figure = match (self.figure, &self.error) {
            (Some(figure), _) => self.measure.text(figure),
            (None, Some(_)) => "failed".to_owned(),
            (None, None) => "–".to_owned(),
        };
        let mark = self.met.map_or("", |met| if met { "✓" } else { "✗" });
        vec![self.name.clone(), figure, self.bar(), mark.to_owned(), self.about.clone()]
    }
}

impl Report {
    pub(crate) fn has_failed(&self) -> bool {
        self.results.iter().any(|row| row.error.is_some())
    }

    pub(crate) fn text(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "telecl   {}, {}\nmachine  {}, {}, {}\n",
            self.telecl,
            self.date,
            machine.cpu,
            human::count(machine.cores, "core"),
            machine.kernel
        );
        if let Some(device) = &self.device {
            text += &format!("device   {} ({}), driver {}\n", device.name, device.version, device.driver);
        }
        text += &format!("tenants  {}\n\n", self.tenants);
        let rows: Vec<Vec<String>> = self.results.iter().map(Row::cells).collect();
        text += &human::table(&["TEST", "FIGURE", "BAR", "", ""], &rows);
        let met = self.results.iter().filter(|row| row.met == Some(true)).count();
        text += &match self.results.len() {
            all if all == met => format!("\n✓ All bars are met: {all} of {all}.\n"),
            all => format!("\n{met} of {all} bars are met.\n"),
        };
        for row in &self.results {
            if let Some(error) = &row.error {
                text += &format!("! {}: {error}\n", row.name);
            }
        }
        text + &self.notes.iter().map(|note| format!("– {note}\n")).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_compared_with_both_ends_of_its_bar() {
        let row = |figure| Row::new("cap", "", Measure::Part, Some(0.18), 0.22).with(figure, &[]);
        for (figure, met) in [(0.179, false), (0.18, true), (0.22, true), (0.221, false)] {
            assert_eq!(row(figure).met, Some(met), "{figure}");
        }
        assert_eq!(row(0.2).cells()[1..4], ["20.0 %", "18 % to 22 %", "✓"]);
        let row = Row::new("flood", "", Measure::Times, None, 3.0).with(3.2, &[]);
        assert_eq!(row.cells()[1..4], ["3.20×", "at most 3×", "✗"]);
        let mut row = Row::new("wait", "", Measure::Seconds, None, 0.25);
        assert_eq!(row.cells()[1..4], ["–", "at most 250 ms", ""]);
        row.error = Some("lost".to_owned());
        assert_eq!(row.cells()[1], "failed");
    }
}
