//! How far the bench is: a bar on a terminal, otherwise a line for each test. On stderr.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const WIDTH: usize = 24;

#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    done: u32,
    all: u32,
    /// The test of the last line.
    last: String,
    start: Instant,
}

impl Progress {
    /// `all` is the number of steps.
    pub(crate) fn new(all: u32) -> Progress {
        Progress { terminal: io::stderr().is_terminal(), done: 0, all, last: String::new(), start: Instant::now() }
    }

    /// Says what is being done.
    pub(crate) fn say(&mut self, test: &str, detail: &str) {
        if self.terminal {
            let line = bar(self.done, self.all, self.start.elapsed());
            self.write(&format!("\r{line}  {test}, {detail}\x1b[K"));
        } else if self.last != test {
            self.write(&format!("measuring {test}\n"));
        }
        test.clone_into(&mut self.last);
    }

    pub(crate) fn advance(&mut self, steps: u32) {
        self.done += steps;
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) -> Duration {
        if self.terminal {
            self.write("\r\x1b[K");
        }
        self.start.elapsed()
    }

    fn write(&self, text: &str) {
        let mut stderr = io::stderr().lock();
        // Whoever closed stderr does not want to know.
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

fn bar(done: u32, all: u32, time: Duration) -> String {
    let part = f64::from(done.min(all)) / f64::from(all.max(1));
    let full = (part * WIDTH as f64) as usize;
    format!("{}{} {:3.0} %  {} s", "█".repeat(full), "░".repeat(WIDTH - full), part * 100.0, time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_empty_at_first_and_full_in_the_end() {
        let time = Duration::from_secs(7);
        assert_eq!(bar(0, 4, time), format!("{}   0 %  7 s", "░".repeat(WIDTH)));
        assert_eq!(bar(9, 4, time), format!("{} 100 %  7 s", "█".repeat(WIDTH)));
        assert_eq!(bar(0, 0, time).chars().filter(|c| *c == '█').count(), 0);
    }
}
