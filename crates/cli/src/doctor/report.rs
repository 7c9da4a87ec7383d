//! The lines of a report, for people as they come, or for programs all at once.

use serde_json::{Value, json};

use crate::exit::print;
use crate::human;

#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    lines: Vec<Value>,
    failures: usize,
}

impl Report {
    pub(crate) fn new(json: bool) -> Report {
        Report { json, lines: Vec::new(), failures: 0 }
    }

    pub(crate) fn ok(&mut self, check: &str, detail: impl Into<String>) {
        self.line("ok", '✓', check, &detail.into(), "");
    }

    /// Something that was not checked, or need not be there.
    pub(crate) fn skipped(&mut self, check: &str, detail: impl Into<String>) {
        self.line("skipped", '–', check, &detail.into(), "");
    }

    /// Something that is wrong; `advice` says what to do.
    pub(crate) fn failed(&mut self, check: &str, detail: impl Into<String>, advice: impl Into<String>) {
        self.failures += 1;
        self.line("failed", '✗', check, &detail.into(), &advice.into());
    }

    fn line(&mut self, state: &str, mark: char, check: &str, detail: &str, advice: &str) {
        if self.json {
            self.lines.push(json!({ "check": check, "state": state, "detail": detail, "advice": advice }));
            return;
        }
        let arrow = if advice.is_empty() { "" } else { "\n                 → " };
        print(format_args!("{mark} {check:<14} {detail}{arrow}{advice}\n"));
    }

    /// Ends the report; whether nothing was wrong.
    pub(crate) fn finish(self) -> bool {
        let fine = self.failures == 0;
        if self.json {
            print(format_args!("{:#}\n", json!({ "ok": fine, "checks": self.lines })));
        } else if fine {
            print("\nAll is well.\n");
        } else {
            print(format_args!("\n{} found.\n", human::count(self.failures, "problem")));
        }
        fine
    }
}
