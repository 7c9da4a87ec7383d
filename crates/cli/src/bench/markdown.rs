//! The report as Markdown, for a page of documentation.

use std::fmt::Write;

use super::number::{spread, times, with_unit};
use super::report::{Cell, Line, Report};
use super::text;

/// All of it.
pub(crate) fn markdown(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    for (name, value) in text::head(report) {
        let _ = writeln!(page, "- {name}: {}", escape(&value));
    }
    page.push('\n');
    let header = ["test".to_owned(), "what is measured".to_owned()];
    let header = header.into_iter().chain(report.paths.iter().map(|path| path.name.clone()));
    table(&mut page, &header.collect::<Vec<_>>());
    for line in &report.results {
        let cells = line.cells.iter().map(|cell| self::cell(line, cell));
        row(&mut page, [line.name.to_owned(), line.about.to_owned()].into_iter().chain(cells));
    }
    if !report.limits.is_empty() {
        page.push('\n');
        table(&mut page, &["without OpenCL", "what is measured", ""].map(str::to_owned));
        for limit in &report.limits {
            let value = join([with_unit(limit.summary.median, limit.unit), spread(limit.summary.spread())]);
            row(&mut page, [limit.name.clone(), limit.about.to_owned(), value]);
        }
    }
    let _ = write!(page, "\n{}", text::verdict(report));
    let troubles = text::troubles(report);
    if !troubles.is_empty() {
        page.push('\n');
    }
    for trouble in troubles {
        let _ = writeln!(page, "- {}", escape(&trouble));
    }
    page
}

fn cell(line: &Line, cell: &Cell) -> String {
    let Some(summary) = &cell.summary else {
        return if cell.error.is_some() { "failed".to_owned() } else { "–".to_owned() };
    };
    let mark = cell.bar.as_ref().map_or("", |bar| if bar.met { "✓" } else { "✗" });
    let compared = join([cell.ratio.map_or(String::new(), times), mark.to_owned()]);
    let value = join([with_unit(summary.median, line.unit), spread(summary.spread())]);
    if compared.is_empty() { value } else { format!("{value}, {compared}") }
}

fn join<const N: usize>(parts: [String; N]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

fn table(page: &mut String, header: &[String]) {
    row(page, header.iter().cloned());
    row(page, header.iter().map(|_| "---".to_owned()));
}

fn row(page: &mut String, cells: impl IntoIterator<Item = String>) {
    let cells = cells.into_iter().map(|cell| escape(&cell)).collect::<Vec<_>>().join(" | ");
    let _ = writeln!(page, "| {cells} |");
}

/// A bar would end a cell, and a line break its row.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::sample;

    #[test]
    fn all_rows_of_a_table_have_as_many_cells() {
        let page = markdown(&sample());
        let widths: Vec<usize> = page
            .lines()
            .filter(|line| line.starts_with('|') && line.contains("round trip") == line.contains("there and back"))
            .map(|line| line.replace("\\|", "").matches('|').count())
            .collect();
        assert!(widths.len() > 6, "{page}");
        assert!(widths.iter().all(|width| *width == 6 || *width == 4), "{page}");
        assert!(page.contains("| 45.0 µs ±11 %, 1.50× ✓ |"), "{page}");
        assert!(page.contains("| failed |"), "{page}");
        assert!(page.contains("a \\| b"), "{page}");
    }
}
