//! What the screen shows, and what keys do to it. No terminal and no network here.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::tables;
use crate::survey::Silence;
use crate::watch::{Service, Session};

/// In which order sessions stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Busy,
    Memory,
    Transfer,
    Age,
    Number,
}

impl Sort {
    const ALL: [Sort; 5] = [Sort::Busy, Sort::Memory, Sort::Transfer, Sort::Age, Sort::Number];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Sort::Busy => "busy",
            Sort::Memory => "memory",
            Sort::Transfer => "transfer",
            Sort::Age => "age",
            Sort::Number => "number",
        }
    }

    fn next(self) -> Sort {
        let place = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or_default();
        Sort::ALL[(place + 1) % Sort::ALL.len()]
    }
}

/// A session among those of several services: the service's place in the list, and its number.
pub(crate) type Which = (usize, u64);

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nothing,
    Leave,
    /// Ask the services now.
    Refresh,
    End(Which),
}

#[derive(Debug)]
pub(crate) struct State {
    answers: Vec<Result<Service, Silence>>,
    pub(crate) sort: Sort,
    selected: Option<Which>,
    /// The session that is to end, if the user says yes.
    asking: Option<Which>,
    /// The last line, until the next key.
    pub(crate) message: Option<String>,
}

impl State {
    pub(crate) fn new() -> State {
        State { answers: Vec::new(), sort: Sort::Busy, selected: None, asking: None, message: None }
    }

    /// Takes new answers, in the same order as those before.
    pub(crate) fn update(&mut self, mut answers: Vec<Result<Service, Silence>>) {
        for (now, before) in answers.iter_mut().zip(&self.answers) {
            if let (Ok(now), Ok(before)) = (now, before) {
                now.since(before);
            }
        }
        self.answers = answers;
        let order = self.order();
        // Who was selected and is gone leaves the selection to the first.
        if self.selected.is_none_or(|selected| !order.contains(&selected)) {
            self.selected = order.first().copied();
        }
        if self.asking.is_some_and(|asking| !order.contains(&asking)) {
            self.asking = None;
        }
    }

    pub(crate) fn services(&self) -> Vec<&Service> {
        self.answers.iter().flatten().collect()
    }

    pub(crate) fn silent(&self) -> impl Iterator<Item = &Silence> {
        self.answers.iter().filter_map(|answer| answer.as_ref().err())
    }

    /// Whether nobody has answered yet, one way or the other.
    pub(crate) fn is_new(&self) -> bool {
        self.answers.is_empty()
    }

    /// The sessions in the order in which they are shown.
    pub(crate) fn sessions(&self) -> Vec<(&Service, &Session)> {
        self.order().into_iter().filter_map(|which| self.find(which)).collect()
    }

    /// The place of the selected session in that order.
    pub(crate) fn selected(&self) -> Option<usize> {
        let selected = self.selected?;
        self.order().iter().position(|which| *which == selected)
    }

    /// The question that the user has to answer.
    pub(crate) fn question(&self) -> Option<String> {
        let (_, session) = self.find(self.asking?)?;
        let Session { session, program, pid, tenant, .. } = session;
        Some(format!("End session {session} of {program} (process {pid}, tenant {tenant})? y / n"))
    }

    pub(crate) fn find(&self, (place, number): Which) -> Option<(&Service, &Session)> {
        let service = self.answers.get(place)?.as_ref().ok()?;
        service.sessions.iter().find(|session| session.session == number).map(|session| (service, session))
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> Wanted {
        if key.kind == KeyEventKind::Release {
            return Wanted::Nothing;
        }
        self.message = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if let Some(asking) = self.asking.take() {
            // Whatever is not yes is no.
            let yes = matches!(key.code, KeyCode::Char('y' | 'Y')) && !control;
            return if yes { Wanted::End(asking) } else { Wanted::Nothing };
        }
        match key.code {
            KeyCode::Char('c' | 'd') if control => return Wanted::Leave,
            KeyCode::Char('q') | KeyCode::Esc => return Wanted::Leave,
            KeyCode::Char('r') | KeyCode::Char(' ') => return Wanted::Refresh,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('k') | KeyCode::Delete => self.asking = self.selected,
            KeyCode::Up => self.move_by(-1),
            KeyCode::Down => self.move_by(1),
            KeyCode::PageUp => self.move_by(-10),
            KeyCode::PageDown => self.move_by(10),
            KeyCode::Home => self.move_by(isize::MIN),
            KeyCode::End => self.move_by(isize::MAX),
            _ => {}
        }
        Wanted::Nothing
    }

    fn move_by(&mut self, steps: isize) {
        let order = self.order();
        let last = order.len().saturating_sub(1);
        let place = self.selected().unwrap_or_default().saturating_add_signed(steps).min(last);
        self.selected = order.get(place).copied();
    }

    fn order(&self) -> Vec<Which> {
        let mut all: Vec<(Which, &Session)> = Vec::new();
        for (place, service) in self.answers.iter().enumerate() {
            let sessions = service.iter().flat_map(|service| &service.sessions);
            all.extend(sessions.map(|session| ((place, session.session), session)));
        }
        let most = |a: f64, b: f64| b.total_cmp(&a);
        all.sort_by(|(which, a), (other, b)| {
            let first = match self.sort {
                Sort::Busy => tables::busiest(&a.figures, &b.figures),
                Sort::Memory => b.figures.memory().cmp(&a.figures.memory()),
                Sort::Transfer => {
                    most(a.figures.bytes_per_second.unwrap_or_default(), b.figures.bytes_per_second.unwrap_or_default())
                }
                Sort::Age => most(a.age_seconds, b.age_seconds),
                Sort::Number => std::cmp::Ordering::Equal,
            };
            first.then(which.cmp(other))
        });
        all.into_iter().map(|(which, _)| which).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::example;

    fn press(state: &mut State, code: KeyCode) -> Wanted {
        state.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn state(sessions: u64) -> State {
        let mut state = State::new();
        state.update(vec![Ok(example(10, 1, sessions))]);
        state.update(vec![Ok(example(14, 3, sessions))]);
        state
    }

    #[test]
    fn a_session_is_ended_only_by_a_yes() {
        let mut state = state(2);
        press(&mut state, KeyCode::Down);
        assert_eq!(press(&mut state, KeyCode::Char('k')), Wanted::Nothing);
        assert!(state.question().unwrap().starts_with("End session 2 of hash?cat (process 4711, tenant team-blue)?"));
        assert_eq!(press(&mut state, KeyCode::Enter), Wanted::Nothing);
        assert_eq!(state.question(), None);
        press(&mut state, KeyCode::Char('k'));
        assert_eq!(press(&mut state, KeyCode::Char('y')), Wanted::End((0, 2)));
        // It has ended by itself before the user could answer.
        press(&mut state, KeyCode::Char('k'));
        state.update(vec![Ok(example(15, 3, 0))]);
        assert_eq!((state.question(), state.selected()), (None, None));
        assert_eq!(press(&mut state, KeyCode::Char('k')), Wanted::Nothing);
        assert_eq!(press(&mut state, KeyCode::Char('y')), Wanted::Nothing);
    }

    #[test]
    fn the_selection_stays_with_its_session() {
        let mut state = state(3);
        assert_eq!(state.selected(), Some(0));
        for (key, place) in
            [(KeyCode::Up, 0), (KeyCode::End, 5), (KeyCode::Down, 5), (KeyCode::PageUp, 0), (KeyCode::Down, 1)]
        {
            press(&mut state, key);
            assert_eq!(state.selected(), Some(place), "{key:?}");
        }
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(state.sort, Sort::Memory);
        state.update(vec![Ok(example(20, 5, 3))]);
        assert_eq!(state.sessions()[state.selected().unwrap()].1.session, 2);
        for _ in 0..4 {
            press(&mut state, KeyCode::Char('s'));
        }
        assert_eq!(state.sort, Sort::Busy);
        assert_eq!(press(&mut state, KeyCode::Char('q')), Wanted::Leave);
        assert_eq!(state.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Wanted::Leave);
    }
}
