//! Numbers and tables for people, the same in every command.

use std::fmt::Write;
use std::time::Duration;

/// `31.2 GiB`, `512 MiB`: three digits are enough.
pub fn memory(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    three_digits(value, units[unit])
}

/// `85 µs`, `1.25 ms`.
pub fn time(duration: Duration) -> String {
    let ns = duration.as_nanos() as f64;
    match duration.as_nanos() {
        0..1_000 => three_digits(ns, "ns"),
        1_000..1_000_000 => three_digits(ns / 1e3, "µs"),
        1_000_000..1_000_000_000 => three_digits(ns / 1e6, "ms"),
        _ => three_digits(ns / 1e9, "s"),
    }
}

fn three_digits(value: f64, unit: &str) -> String {
    let digits = if value >= 99.95 || value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.digits$} {unit}")
}

/// `97 %`; nothing if it is not known.
pub fn percent(ratio: Option<f64>) -> String {
    ratio.map(|ratio| format!("{:.0} %", ratio * 100.0)).unwrap_or_default()
}

/// `45 s`, `12:05`, `3:01:15`, `2 d 3 h`.
pub fn age(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes}:{:02}", seconds % 60),
        (0, _, _) => format!("{hours}:{:02}:{:02}", minutes % 60, seconds % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// `1 device`, `2 devices`.
pub fn count(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// Columns as wide as their widest cell, two spaces apart, the header first.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let header: Vec<String> = header.iter().map(ToString::to_string).collect();
    let mut text = String::new();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (cell, &width) in row.iter().zip(&widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_suits_them() {
        assert_eq!(memory(0), "0 B");
        assert_eq!(memory(1536), "1.5 KiB");
        assert_eq!(memory(512 << 20), "512 MiB");
        assert_eq!(memory(33_500_000_000), "31.2 GiB");
        assert_eq!(memory(149_300_000_000), "139 GiB");
        assert_eq!(memory(u64::MAX), "16384 PiB");
        assert_eq!(time(Duration::from_nanos(950)), "950 ns");
        assert_eq!(time(Duration::from_nanos(85_400)), "85.4 µs");
        assert_eq!(time(Duration::from_millis(250)), "250 ms");
        assert_eq!(time(Duration::from_secs(2)), "2 s");
        assert_eq!((percent(Some(0.974)), percent(None)), ("97 %".to_owned(), String::new()));
        assert_eq!([45.9, 725.0, 10_875.0, 183_600.0].map(age), ["45 s", "12:05", "3:01:15", "2 d 3 h"]);
    }

    #[test]
    fn columns_line_up_and_lines_do_not_end_in_spaces() {
        let rows = [vec!["node7".to_owned(), "µ".to_owned()], vec!["n".to_owned(), "two".to_owned()]];
        assert_eq!(table(&["NODE", "X"], &rows), "NODE   X\nnode7  µ\nn      two\n");
    }
}
