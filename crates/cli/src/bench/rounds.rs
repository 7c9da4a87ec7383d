//! Running tests: round by round, each round on all paths one after the other, so that whatever else
//! the machine does disturbs all of them alike. Every round has a new process: where the system happens to put one, and its
//! worker, makes a difference of a tenth and more that lasts as long as they do.

use std::time::{Duration, Instant};

use super::catalog::{Manner, Test};
use super::child::{DeviceFacts, Reply, Request, Wanted};
use super::limits::{Limit, Meter};
use super::path::{Kind, Path};
use super::progress::Progress;
use super::talk::Talk;
use super::{crowd, fresh};

/// A first build on a device may start its compiler.
const OPEN: Duration = Duration::from_secs(120);
/// For one round of one test.
const ROUND: Duration = Duration::from_secs(60);
/// A round that would take longer than this is made shorter.
const LONG: f64 = 8.0;

/// What came of a test.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) test: &'static Test,
    pub(crate) count: u32,
    /// For each path: rounds of a value for each row, or why there are none.
    pub(crate) paths: Vec<Result<Vec<Vec<f64>>, String>>,
    pub(crate) limits: Vec<(Limit, Vec<f64>)>,
    /// What should be known about the values.
    pub(crate) notes: Vec<String>,
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: u32,
    pub(crate) quick: bool,
}

/// A path and the process that measures it.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) path: Path,
    pub(crate) device: DeviceFacts,
    talk: Option<Talk>,
    /// Why the path is not tried any more.
    dead: Option<String>,
}

impl Seat {
    /// Starts the process and gets its device ready.
    pub(crate) fn open(path: &Path, wanted: &Wanted) -> Result<Seat, String> {
        let (talk, device) = open(path, wanted)?;
        Ok(Seat { path: path.clone(), device, talk: Some(talk), dead: None })
    }

    /// A round in a new process, or in the one that there is if there is little time.
    fn round(&mut self, test: &str, count: u32, quick: bool) -> Result<Vec<f64>, String> {
        if !quick {
            self.talk = None;
            self.run(test, (count / 2).max(1))?;
        }
        self.run(test, count)
    }

    fn run(&mut self, test: &str, count: u32) -> Result<Vec<f64>, String> {
        let talk = self.talk()?;
        let request = Request::Run { test: test.to_owned(), count };
        let values = talk.send(&request).and_then(|()| talk.values(ROUND));
        if values.is_err() {
            // Whatever state it is in, the next test gets another.
            self.talk = None;
        }
        values
    }

    /// The process; another one if the last one failed.
    fn talk(&mut self) -> Result<&mut Talk, String> {
        if let Some(reason) = &self.dead {
            return Err(reason.clone());
        }
        if self.talk.is_none() {
            match open(&self.path, &Wanted::Named(self.device.name.clone())) {
                Ok((talk, _)) => self.talk = Some(talk),
                Err(reason) => {
                    let reason = format!("not tried any more: {reason}");
                    self.dead = Some(reason.clone());
                    return Err(reason);
                }
            }
        }
        self.talk.as_mut().ok_or_else(|| "no process".to_owned())
    }
}

/// A process with a device that is ready.
pub(crate) fn open(path: &Path, wanted: &Wanted) -> Result<(Talk, DeviceFacts), String> {
    let mut talk = Talk::start(path, &[])?;
    match talk.ask(&Request::Open(wanted.clone()), OPEN)? {
        Reply::Ready(device) => Ok((talk, device)),
        other => Err(format!("an answer that is none: {other:?}")),
    }
}

/// Runs one test on all paths.
pub(crate) fn run(
    test: &'static Test,
    effort: Effort,
    seats: &mut [Seat],
    meter: &mut Meter,
    progress: &mut Progress,
) -> Measured {
    let count = test.count(effort.quick);
    let mut measured = Measured {
        test,
        count,
        paths: seats.iter().map(|_| Ok(Vec::new())).collect(),
        limits: limits(test, seats).into_iter().map(|limit| (limit, Vec::new())).collect(),
        notes: Vec::new(),
    };
    if test.manner == Manner::Crowd {
        for (seat, path) in seats.iter_mut().zip(&mut measured.paths) {
            progress.say(test.name, &format!("{}, {} processes", seat.path.name, super::catalog::CROWDS[0]));
            *path = crowd::run(&seat.path, &seat.device.name, effort, |crowd| {
                progress.say(test.name, &format!("{}, {crowd} processes", seat.path.name));
            });
        }
        progress.advance(effort.rounds);
        return measured;
    }
    let mut counts = vec![count; seats.len()];
    if test.manner == Manner::Resident {
        for (index, seat) in seats.iter_mut().enumerate() {
            match warm_up(test, count, seat) {
                Ok(affordable) => counts[index] = affordable,
                Err(reason) => measured.paths[index] = Err(reason),
            }
            if counts[index] < count {
                let (name, fewer) = (&seat.path.name, counts[index]);
                measured.notes.push(format!("{}, {name}: {fewer} repetitions in a round, not {count}", test.name));
            }
        }
    }
    for round in 0..effort.rounds {
        progress.say(test.name, &format!("round {} of {}", round + 1, effort.rounds));
        // Each path is the first, the second and so on equally often.
        for place in 0..seats.len() {
            let index = (place + round as usize) % seats.len();
            let (seat, results) = (&mut seats[index], &mut measured.paths[index]);
            let Ok(values) = results else { continue };
            let outcome = match test.manner {
                Manner::Fresh => fresh::run(test.name, &seat.path, &seat.device.name),
                _ => seat.round(test.name, counts[index], effort.quick),
            };
            match outcome {
                Ok(row) => values.push(row),
                Err(reason) => *results = Err(reason),
            }
        }
        for (limit, values) in &mut measured.limits {
            // One that cannot be measured is not shown, and has no bar.
            values.extend(meter.measure(limit));
        }
        progress.advance(1);
    }
    measured
}

/// The first time of everything is slower, and not what is asked. How many repetitions a round can afford.
fn warm_up(test: &Test, count: u32, seat: &mut Seat) -> Result<u32, String> {
    let some = (count / 10).max(1);
    let (_, seconds) = timed(|| seat.run(test.name, some))?;
    let affordable = LONG / (seconds / f64::from(some));
    Ok(if affordable < f64::from(count) { (affordable as u32).max(1) } else { count })
}

/// What is measured beside a test: its own limits, and the way to each service on another machine.
fn limits(test: &Test, seats: &[Seat]) -> Vec<Limit> {
    let mut limits = test.limits.to_vec();
    if limits.contains(&Limit::TcpPing) {
        let remote = seats.iter().filter(|seat| seat.path.kind == Kind::Remote);
        limits.extend(remote.filter_map(|seat| seat.path.address.clone()).map(Limit::Service));
    }
    limits
}

/// How long something took, in seconds.
pub(crate) fn timed<T>(work: impl FnOnce() -> Result<T, String>) -> Result<(T, f64), String> {
    let start = Instant::now();
    work().map(|value| (value, start.elapsed().as_secs_f64()))
}
