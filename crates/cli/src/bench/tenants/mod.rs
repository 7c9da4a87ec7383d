//! `telecl bench tenants`: how fairly two tenants share a device, against the bars that the project has set itself.
//!
//! `pair.rs` makes two tenants, `load.rs` is what each of them does, and `report.rs` has the figures.

mod args;
mod load;
mod pair;
mod report;

use std::path::Path as FilePath;
use std::thread;
use std::time::Duration;

use self::load::{Latencies, Progress as Done};
use self::pair::Pair;
use self::report::{Measure, Report, Row};
use super::child::{DeviceFacts, Reply, Request, Wanted};
use super::machine::{self, Machine};
use super::path::Path;
use super::progress::Progress;
use super::talk::Talk;
use crate::exit::{Exit, Failure, Outcome, print};

pub(crate) use self::args::TenantsArgs;
pub(crate) use self::load::{Task, run};

/// Kernels in the queue of a tenant that saturates a device, and of one that floods it.
const FULL: u32 = 64;
const FLOOD: u32 = 10_000;
/// For so long, in seconds, tenants load the device before and after they are measured.
const LEAD: f64 = 1.0;
const TAIL: f64 = 0.3;
/// A first build on a device may start its compiler.
const OPEN: Duration = Duration::from_secs(120);
/// Between two tests: what was in the queues of the last one goes with its workers.
const PAUSE: Duration = Duration::from_millis(500);

/// What is measured, with kernels of one length.
#[derive(Clone, Copy, Debug)]
struct Test {
    name: &'static str,
    kind: Kind,
    /// How long a kernel takes.
    kernel: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Weights,
    Flood,
    Cap,
}

const TESTS: [Test; 8] = [
    Test { name: "weights-100us", kind: Kind::Weights, kernel: 1e-4 },
    Test { name: "weights-1ms", kind: Kind::Weights, kernel: 1e-3 },
    Test { name: "weights-10ms", kind: Kind::Weights, kernel: 1e-2 },
    Test { name: "flood-200us", kind: Kind::Flood, kernel: 2e-4 },
    Test { name: "flood-1ms", kind: Kind::Flood, kernel: 1e-3 },
    Test { name: "cap-100us", kind: Kind::Cap, kernel: 1e-4 },
    Test { name: "cap-1ms", kind: Kind::Cap, kernel: 1e-3 },
    Test { name: "cap-10ms", kind: Kind::Cap, kernel: 1e-2 },
];

impl Kind {
    /// The rules of the two tenants.
    fn rules(self) -> [&'static str; 2] {
        match self {
            Kind::Weights => ["weight = 1", "weight = 3"],
            Kind::Flood => ["weight = 1", "weight = 1"],
            Kind::Cap => ["cap = \"20 %\"", "weight = 1"],
        }
    }

    fn seconds(self) -> f64 {
        if self == Kind::Weights { 20.0 } else { 10.0 }
    }
}

impl Test {
    /// Its bars, without figures.
    fn rows(&self) -> Vec<Row> {
        match self.kind {
            Kind::Weights => {
                let about = "device time of a tenant with weight 1 beside one with weight 3, both saturating";
                vec![Row::new(self.name, about, Measure::Part, Some(0.22), 0.28)]
            }
            Kind::Flood => {
                let about = "p99 of one kernel at a time beside 10,000 in flight, to twice its median alone";
                let longest = "the longest that such a kernel ever took";
                let wait = format!("{}-longest", self.name);
                vec![
                    Row::new(self.name, about, Measure::Times, None, 3.0),
                    Row::new(&wait, longest, Measure::Seconds, None, 0.25),
                ]
            }
            Kind::Cap => {
                let about = "device time of a tenant with a cap of 20 %, saturating, alone";
                vec![Row::new(self.name, about, Measure::Part, Some(0.18), 0.22)]
            }
        }
    }
}

pub(crate) fn tenants(args: &TenantsArgs) -> Outcome {
    let tests = select(&args.only)?;
    let mut report = Report {
        telecl: env!("CARGO_PKG_VERSION"),
        date: machine::now(),
        machine: Machine::this(),
        device: None,
        tenants: String::new(),
        results: Vec::new(),
        notes: Vec::new(),
    };
    let wanted = args.device.as_ref().map_or(Wanted::Any, |part| Wanted::NameContains(part.clone()));
    let mut progress = Progress::new(tests.len() as u32);
    let mut pair: Option<(Kind, Pair)> = None;
    for test in tests {
        if pair.as_ref().is_none_or(|(kind, _)| *kind != test.kind) {
            pair = Some((test.kind, Pair::start(args.driver.as_deref(), test.kind.rules())?));
        }
        let Some((_, pair)) = &pair else { continue };
        report.tenants.clone_from(&pair.about);
        let seconds = args.seconds.map_or(test.kind.seconds(), f64::from);
        progress.say(test.name, &format!("{seconds} s"));
        match Stage::open(pair, &wanted) {
            Ok(mut stage) => {
                report.device = Some(stage.device.clone());
                let rows = test.rows();
                report.results.extend(stage.run(test, rows, seconds));
            }
            Err(reason) if report.device.is_none() => {
                progress.finish();
                let what = format!("nothing can be measured: {reason}");
                return Err(Failure::new(Exit::Unreachable, what, "Does clinfo list a device?"));
            }
            Err(reason) => report.results.extend(failed(test.rows(), &reason)),
        }
        progress.advance(1);
        thread::sleep(PAUSE);
    }
    progress.finish();
    write(args.json.as_deref(), &report)?;
    Ok(if report.has_failed() { Exit::Failed } else { Exit::Ok })
}

fn write(json: Option<&FilePath>, report: &Report) -> Result<(), Failure> {
    let as_json = || serde_json::to_string_pretty(report).unwrap_or_default() + "\n";
    match json {
        Some(file) if file.as_os_str() == "-" => print(as_json()),
        Some(file) => {
            print(report.text());
            super::write(file, &as_json())?;
        }
        None => print(report.text()),
    }
    Ok(())
}

/// The tests whose names begin as one of these does; all without any.
fn select(only: &[String]) -> Result<Vec<&'static Test>, Failure> {
    if let Some(unknown) = only.iter().find(|only| !TESTS.iter().any(|test| test.name.starts_with(only.as_str()))) {
        let names = TESTS.map(|test| test.name).join(", ");
        return Err(Failure::new(Exit::Usage, format!("no test is named {unknown}"), format!("There are {names}")));
    }
    let wanted = |test: &&Test| only.is_empty() || only.iter().any(|only| test.name.starts_with(only.as_str()));
    Ok(TESTS.iter().filter(wanted).collect())
}

fn failed(rows: Vec<Row>, reason: &str) -> Vec<Row> {
    rows.into_iter().map(|row| Row { error: Some(reason.to_owned()), ..row }).collect()
}

/// Both tenants, with a device each has ready.
#[derive(Debug)]
struct Stage {
    one: Talk,
    two: Talk,
    device: DeviceFacts,
}

impl Stage {
    fn open(pair: &Pair, wanted: &Wanted) -> Result<Stage, String> {
        let (one, device) = ready(&pair.one, wanted)?;
        let (two, _) = ready(&pair.two, &Wanted::Named(device.name.clone()))?;
        Ok(Stage { one, two, device })
    }

    fn run(&mut self, test: &Test, rows: Vec<Row>, seconds: f64) -> Vec<Row> {
        let figures = match test.kind {
            Kind::Weights => self.weights(test.kernel, seconds),
            Kind::Flood => self.flood(test.kernel, seconds),
            Kind::Cap => self.cap(test.kernel, seconds),
        };
        match figures {
            Ok(figures) => rows.into_iter().zip(&figures).map(|(row, (figure, of))| row.with(*figure, of)).collect(),
            Err(reason) => failed(rows, &reason),
        }
    }

    fn weights(&mut self, kernel: f64, seconds: f64) -> Result<Figures, String> {
        let (rounds, took) = self.calibrate(kernel)?;
        let task = saturate(rounds, took, seconds);
        tell(&mut self.one, &task)?;
        tell(&mut self.two, &task)?;
        let [one, two] = [&mut self.one, &mut self.two].map(|talk| hear(talk, seconds));
        let (one, two) = (Done::of(&one?), Done::of(&two?));
        let (from, to) = window(&[&one, &two], seconds)?;
        let [one, two] = [one, two].map(|done| done.between(from, to) * took);
        let share = one / (one + two);
        Ok(vec![(share, vec![("kernel", took), ("one", one), ("two", two), ("window", to - from)])])
    }

    fn flood(&mut self, kernel: f64, seconds: f64) -> Result<Figures, String> {
        let (rounds, took) = self.calibrate(kernel)?;
        let alone = Task::OneByOne { rounds, seconds: (seconds / 4.0).clamp(0.5, 3.0) };
        tell(&mut self.two, &alone)?;
        let alone = Latencies::of(&hear(&mut self.two, seconds)?)?;
        let flood = Task::Fill { rounds, depth: FLOOD, batch: FLOOD / 20, seconds: LEAD + seconds + TAIL };
        tell(&mut self.one, &flood)?;
        thread::sleep(Duration::from_secs_f64(LEAD));
        tell(&mut self.two, &Task::OneByOne { rounds, seconds })?;
        let beside = Latencies::of(&hear(&mut self.two, seconds)?)?;
        let flood = Done::of(&hear(&mut self.one, seconds)?);
        let begun = flood.span().is_some_and(|(begin, _)| begin < beside.begin);
        if !begun {
            return Err("the flood began too late".to_owned());
        }
        // Its share is one half.
        let adjusted = 2.0 * alone.median;
        let of = vec![
            ("kernel", took),
            ("alone_median", alone.median),
            ("alone_p99", alone.p99),
            ("median", beside.median),
            ("p99", beside.p99),
            ("count", beside.count),
            ("flooded", flood.between(beside.begin, beside.end)),
        ];
        Ok(vec![(beside.p99 / adjusted, of), (beside.longest, Vec::new())])
    }

    fn cap(&mut self, kernel: f64, seconds: f64) -> Result<Figures, String> {
        // By the other tenant, whom nothing holds back.
        let (rounds, took) = self.calibrate(kernel)?;
        tell(&mut self.one, &saturate(rounds, took, seconds))?;
        let done = Done::of(&hear(&mut self.one, seconds)?);
        let (from, to) = window(&[&done], seconds)?;
        let used = done.between(from, to) * took;
        Ok(vec![(used / (to - from), vec![("kernel", took), ("used", used), ("window", to - from)])])
    }

    /// How many rounds a kernel needs, and what it takes with them.
    fn calibrate(&mut self, seconds: f64) -> Result<(u32, f64), String> {
        tell(&mut self.two, &Task::Calibrate { seconds })?;
        match hear(&mut self.two, 0.0)?.as_slice() {
            [rounds, took] if *took > 0.0 => Ok((*rounds as u32, *took)),
            other => Err(format!("an answer of {} values", other.len())),
        }
    }
}

/// For each row its figure, and what that is made of.
type Figures = Vec<(f64, Vec<(&'static str, f64)>)>;

fn ready(path: &Path, wanted: &Wanted) -> Result<(Talk, DeviceFacts), String> {
    let mut talk = Talk::start(path, &[])?;
    match talk.ask(&Request::OpenLoad(wanted.clone()), OPEN)? {
        Reply::Ready(device) => Ok((talk, device)),
        other => Err(format!("an answer that is none: {other:?}")),
    }
}

fn tell(talk: &mut Talk, task: &Task) -> Result<(), String> {
    talk.send(&Request::Load(task.clone()))
}

fn hear(talk: &mut Talk, seconds: f64) -> Result<Vec<f64>, String> {
    talk.values(Duration::from_secs_f64(seconds + LEAD + TAIL) + Duration::from_secs(60))
}

/// Keeps the queue full, and looks after kernels so rarely that it costs nothing.
fn saturate(rounds: u32, kernel: f64, seconds: f64) -> Task {
    let batch = (2e-3 / kernel).clamp(1.0, f64::from(FULL / 4)) as u32;
    Task::Fill { rounds, depth: FULL, batch, seconds: LEAD + seconds + TAIL }
}

/// A time in which all of them load the device, `seconds` long at most.
fn window(all: &[&Done], seconds: f64) -> Result<(f64, f64), String> {
    let spans = all.iter().map(|done| done.span()).collect::<Option<Vec<_>>>().ok_or("an answer without values")?;
    let from = spans.iter().map(|span| span.0).fold(f64::NEG_INFINITY, f64::max) + LEAD;
    let to = spans.iter().map(|span| span.1).fold(f64::INFINITY, f64::min).min(from + seconds);
    if to - from < seconds / 2.0 {
        return Err("the tenants were not there at the same time".to_owned());
    }
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_where_all_are() {
        let done = |from: f64, to: f64| Done::of(&[from, 0.0, to, 100.0]);
        let (one, two) = (done(10.0, 31.0), done(10.5, 31.6));
        assert_eq!(window(&[&one, &two], 19.0), Ok((11.5, 30.5)));
        assert_eq!(window(&[&one, &two], 30.0), Ok((11.5, 31.0)));
        assert!(window(&[&one, &done(30.0, 40.0)], 10.0).is_err());
        assert!(window(&[&Done::of(&[])], 10.0).is_err());
    }

    #[test]
    fn tests_are_named_by_how_they_begin() {
        let names = |only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            select(&only).unwrap().iter().map(|test| test.name).collect()
        };
        assert_eq!(names(&[]).len(), TESTS.len());
        assert_eq!(names(&["cap"]), ["cap-100us", "cap-1ms", "cap-10ms"]);
        assert_eq!(names(&["flood-1ms", "weights-10ms"]), ["weights-10ms", "flood-1ms"]);
        assert!(select(&["caps".to_owned()]).is_err());
    }

    #[test]
    fn every_policy_of_a_test_can_be_read() {
        for test in TESTS {
            for rule in test.kind.rules() {
                let text = format!("[[tenant]]\nmatch = \"x\"\n{rule}\n");
                let policy = telecl_policy::Policy::parse(FilePath::new("p"), &text);
                assert!(policy.is_ok_and(|policy| policy.warnings().is_empty()), "{rule}");
            }
        }
    }
}
