//! The picture: three tables, a line on top and one at the bottom. Columns go where the terminal is narrow.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, TableState};

use super::state::State;
use super::tables::{self, Table};
use crate::human;
use crate::watch::Service;

const KEYS: &str = "q leave  ↑↓ select  s sort  k end session  r refresh";

pub(crate) fn draw(frame: &mut Frame<'_>, state: &State) {
    let services = state.services();
    let (mut devices, mut tenants) = (tables::devices(&services), tables::tenants(&services));
    let sessions = state.sessions();
    let mut listed = tables::sessions_in_order(&services, &sessions);
    let silent: Vec<String> = state.silent().map(|one| format!("{}: {}", one.address, one.reason)).collect();
    let area = frame.area();
    // A title, a header and the rows. Sessions get what is left, and at least a few lines.
    let height = |table: &Table, most: u16| u16::try_from(table.rows.len()).unwrap_or(most).min(most) + 2;
    let third = (area.height / 3).max(1);
    let [top, device_area, tenant_area, session_area, silent_area, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(height(&devices, third)),
        Constraint::Length(height(&tenants, third)),
        Constraint::Min(3),
        Constraint::Length(u16::try_from(silent.len()).unwrap_or(3).min(3)),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(title(state, &services)).style(Modifier::BOLD), top);
    table(frame, device_area, "Devices", &mut devices, None);
    table(frame, tenant_area, "Tenants", &mut tenants, None);
    let name = format!("Sessions by {} ({})", state.sort.name(), sessions.len());
    table(frame, session_area, &name, &mut listed, state.selected());
    frame.render_widget(Paragraph::new(silent.into_iter().map(Line::from).collect::<Vec<_>>()), silent_area);
    let last = state.question().or_else(|| state.message.clone()).unwrap_or_else(|| KEYS.to_owned());
    let style = if state.question().is_some() { Style::new().reversed() } else { Style::new() };
    frame.render_widget(Paragraph::new(last).style(style), bottom);
}

fn title(state: &State, services: &[&Service]) -> String {
    match services {
        [] if state.is_new() => "telecl top: asking …".to_owned(),
        [] => "telecl top: no service answers".to_owned(),
        [one] => {
            let sees = if one.operator { "all sessions" } else { "own sessions only" };
            let up = human::age(one.uptime_seconds);
            let Service { version, node, address, tenant, .. } = one;
            let draining = if one.draining { ", draining" } else { "" };
            format!("telecl {version} on {node} ({address}), up {up}{draining}; you are {tenant}: {sees}")
        }
        several => format!("telecl top: {} services", several.len()),
    }
}

fn table(frame: &mut Frame<'_>, area: Rect, title: &str, table: &mut Table, selected: Option<usize>) {
    table.fit(area.width.into());
    let widths = table.widths().into_iter().map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    let header = Row::new(table.header.iter().copied().map(Cell::from)).style(Modifier::DIM);
    let rows = table.rows.iter().map(|row| Row::new(row.iter().map(|cell| Cell::from(cell.as_str()))));
    let widget = ratatui::widgets::Table::new(rows, widths)
        .header(header)
        .column_spacing(2)
        .row_highlight_style(Modifier::REVERSED)
        .block(Block::new().borders(Borders::TOP).title(title));
    let mut place = TableState::new().with_selected(selected);
    frame.render_stateful_widget(widget, area, &mut place);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;
    use crate::watch::tests::example;

    fn picture(width: u16, height: u16, state: &State) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn it_is_drawn_at_every_size() {
        let mut state = State::new();
        picture(80, 24, &state);
        state.update(vec![Ok(example(10, 1, 30))]);
        state.update(vec![Ok(example(14, 3, 30))]);
        let wide = picture(160, 40, &state);
        for part in
            ["telecl 0.1.0 on node7", "100 %", "61 °C", "512 W", "35 GiB of 141 GiB", "team-red", "hash?cat", "4711"]
        {
            assert!(wide.contains(part), "{part}\n{wide}");
        }
        for (width, height) in [(1, 1), (5, 3), (20, 8), (40, 12), (80, 24), (300, 100), (80, 2)] {
            picture(width, height, &state);
        }
        let narrow = picture(40, 24, &state);
        assert!(narrow.contains("PROGRAM") && narrow.contains("hash?cat") && narrow.contains("100 %"), "{narrow}");
        // What is selected is in sight, and a question takes the last line.
        state.key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
        assert!(picture(80, 24, &state).contains("\"60  "), "{}", picture(80, 24, &state));
        state.key(KeyEvent::new(KeyCode::Char('k'), KeyModifiers::NONE));
        assert!(picture(80, 24, &state).contains("End session 60"));
    }
}
