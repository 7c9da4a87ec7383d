//! `telecl top`: devices, tenants and sessions, live.

mod screen;
mod state;
pub(crate) mod tables;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGTERM};
use telecl_net::Address;

use self::state::{State, Wanted};
use crate::exit::{Exit, Failure, Outcome, print};
use crate::survey::Silence;
use crate::watch::{self, Service};
use crate::{OnServices, human, sessions};

/// How long to wait for a key before looking for other news.
const LOOK: Duration = Duration::from_millis(100);

/// Between the two looks of `--once` and `--json`, from which they work out what is going on.
const ONCE: Duration = Duration::from_secs(1);

/// Watch devices, tenants and sessions
///
/// A live screen. On the service's own node, root and the user who runs the service see everything; everybody else sees
/// all devices, and the sessions of their own tenant.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  telecl top                       of the configured services, or of the one on this machine
  telecl top --on node7,node8
  telecl top --once                plain tables, of one second
  telecl top --json | jq '.services[].devices[] | {name, busy}'

Keys: q leaves, arrows select a session, s sorts, k ends the selected session after a question, r asks again now.

Exit codes: 0 if a service answered, 3 if none did.")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    on: OnServices,
    /// Print plain tables, and end
    #[arg(long)]
    once: bool,
    /// Print JSON, and end
    #[arg(long)]
    json: bool,
    /// How often to ask: 500ms, 2s, 1m
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = telecl_config::parse_duration)]
    interval: Duration,
    /// How long to wait for a service: 500ms, 2s, 1m [default: connect_timeout, 2s]
    #[arg(long, value_name = "TIME", value_parser = telecl_config::parse_duration)]
    timeout: Option<Duration>,
}

impl TopArgs {
    pub(crate) fn on(&self) -> &OnServices {
        &self.on
    }
}

pub(crate) fn top(args: &TopArgs) -> Outcome {
    let (addresses, timeout) = watch::services(&args.on.services, args.timeout)?;
    if args.once || args.json {
        return Ok(once(&addresses, timeout, args.json));
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, "this is no terminal", "For plain tables: telecl top --once"));
    }
    live(addresses, timeout, args.interval)
}

type Answers = Vec<Result<Service, Silence>>;

fn once(addresses: &[Address], timeout: Duration, json: bool) -> Exit {
    let mut state = State::new();
    let mut answers = watch::ask_all(addresses, timeout);
    if answers.iter().any(Result::is_ok) {
        let before = answers;
        thread::sleep(ONCE);
        answers = watch::ask_all(addresses, timeout);
        for (now, before) in answers.iter_mut().zip(&before) {
            if let (Ok(now), Ok(before)) = (now, before) {
                now.since(before);
            }
        }
    }
    let found = answers.iter().any(Result::is_ok);
    if json {
        print(sessions::as_json(&answers));
    } else {
        let complaints = sessions::complaints(&answers);
        state.update(answers);
        let services = state.services();
        for table in [
            tables::devices(&services),
            tables::tenants(&services),
            tables::sessions_in_order(&services, &state.sessions()),
        ] {
            if !table.rows.is_empty() {
                print(format_args!("{}\n", human::table(&table.header, &table.rows)));
            }
        }
        print(complaints);
    }
    if found { Exit::Ok } else { Exit::Unreachable }
}

/// What other threads have for the screen.
enum News {
    Answers(Answers),
    Message(String),
}

fn live(addresses: Vec<Address>, timeout: Duration, interval: Duration) -> Outcome {
    // The terminal is given back also when the process is told to end.
    let told = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        let failed = |error| Failure::new(Exit::Failed, format!("cannot watch for signals: {error}"), "");
        signal_hook::flag::register(signal, Arc::clone(&told)).map_err(failed)?;
    }
    let (sender, news) = mpsc::channel();
    let (refresh, refreshed) = mpsc::channel();
    let asks = sender.clone();
    let asker = thread::Builder::new().name("telecl-ask".into());
    let started = asker.spawn(move || keep_asking(&addresses, timeout, interval, &asks, &refreshed));
    started.map_err(|error| Failure::new(Exit::Failed, format!("cannot start a thread: {error}"), "Try again"))?;
    // Also gives the terminal back when something panics.
    let mut terminal = ratatui::try_init()
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot use the terminal: {error}"), "Try --once"))?;
    let shown = show(&mut terminal, &news, &sender, &refresh, &told, timeout);
    ratatui::restore();
    shown.map_err(|error| Failure::new(Exit::Failed, format!("the terminal is gone: {error}"), ""))?;
    Ok(Exit::Ok)
}

fn keep_asking(
    addresses: &[Address],
    timeout: Duration,
    interval: Duration,
    news: &Sender<News>,
    refreshed: &Receiver<()>,
) {
    loop {
        if news.send(News::Answers(watch::ask_all(addresses, timeout))).is_err() {
            return;
        }
        if let Err(mpsc::RecvTimeoutError::Disconnected) = refreshed.recv_timeout(interval) {
            return;
        }
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    news: &Receiver<News>,
    sender: &Sender<News>,
    refresh: &Sender<()>,
    told: &AtomicBool,
    timeout: Duration,
) -> io::Result<()> {
    let mut state = State::new();
    let mut changed = true;
    while !told.load(Ordering::Relaxed) {
        for item in news.try_iter() {
            changed = true;
            match item {
                News::Answers(answers) => state.update(answers),
                News::Message(text) => state.message = Some(text),
            }
        }
        if changed {
            terminal.draw(|frame| screen::draw(frame, &state))?;
            changed = false;
        }
        if !event::poll(LOOK)? {
            continue;
        }
        // Also a new size of the terminal is drawn.
        changed = true;
        let Event::Key(key) = event::read()? else { continue };
        match state.key(key) {
            Wanted::Nothing => {}
            Wanted::Leave => return Ok(()),
            Wanted::Refresh => drop(refresh.send(())),
            Wanted::End(which) => {
                if let Some((service, session)) = state.find(which) {
                    let (address, number) = (service.address.clone(), session.session);
                    state.message = Some(format!("Ending session {number} …"));
                    let (sender, refresh) = (sender.clone(), refresh.clone());
                    thread::spawn(move || {
                        let text = match watch::end(&address, number, timeout) {
                            Ok(()) => format!("Session {number} has ended."),
                            Err(silence) => format!("Session {number} was not ended: {}", silence.reason),
                        };
                        // The screen may be gone.
                        let _ = sender.send(News::Message(text));
                        let _ = refresh.send(());
                    });
                }
            }
        }
    }
    Ok(())
}
