//! One tenant's load, in a process of its own.

use std::collections::VecDeque;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use telecl_opencl::{ClResult, Event};
use telecl_probe::Spinner;

/// What a tenant does. All times are in seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Find out how long kernels have to be. The values are rounds, and the time that they take.
    Calibrate { seconds: f64 },
    /// Keep `depth` kernels in the queue, and look after them `batch` by `batch`. The values are pairs: a time, and how many
    /// had ended then.
    Fill { rounds: u32, depth: u32, batch: u32, seconds: f64 },
    /// Run one kernel at a time. The values are those of [`Latencies`].
    OneByOne { rounds: u32, seconds: f64 },
}

/// Every so often it is noted how many kernels have ended.
const NOTE: f64 = 0.005;

pub(crate) fn run(spinner: &Spinner, task: &Task) -> ClResult<Vec<f64>> {
    match *task {
        Task::Calibrate { seconds } => spinner.calibrate(seconds).map(|(rounds, took)| vec![f64::from(rounds), took]),
        Task::Fill { rounds, depth, batch, seconds } => {
            spinner.set_rounds(rounds)?;
            fill(spinner, depth, batch.max(1), seconds)
        }
        Task::OneByOne { rounds, seconds } => {
            spinner.set_rounds(rounds)?;
            one_by_one(spinner, seconds)
        }
    }
}

fn fill(spinner: &Spinner, depth: u32, batch: u32, seconds: f64) -> ClResult<Vec<f64>> {
    let begin = now();
    let mut notes = vec![begin, 0.0];
    let mut noted = begin;
    let mut under_way: VecDeque<Event> = VecDeque::new();
    let mut done = 0.0;
    loop {
        while (under_way.len() as u32 + 1) * batch <= depth.max(batch) {
            for _ in 1..batch {
                spinner.spin()?;
            }
            under_way.push_back(spinner.spin_with_event()?);
        }
        spinner.flush()?;
        if let Some(oldest) = under_way.pop_front() {
            oldest.wait()?;
        }
        done += f64::from(batch);
        let time = now();
        let over = time - begin > seconds;
        if over || time - noted > NOTE {
            notes.extend([time, done]);
            noted = time;
        }
        if over {
            // What is still in the queue is left to the end of the process: it may be many seconds' worth.
            return Ok(notes);
        }
    }
}

fn one_by_one(spinner: &Spinner, seconds: f64) -> ClResult<Vec<f64>> {
    let begin = now();
    let mut times = Vec::new();
    while now() - begin < seconds || times.is_empty() {
        let start = Instant::now();
        spinner.spin()?;
        spinner.finish()?;
        times.push(start.elapsed().as_secs_f64());
    }
    let end = now();
    times.sort_by(f64::total_cmp);
    // The highest of which at most one in a hundred is higher.
    let part = |part: f64| times[((times.len() as f64 * part).ceil() as usize).clamp(1, times.len()) - 1];
    Ok(vec![begin, end, times.len() as f64, part(0.5), part(0.99), part(1.0)])
}

/// The same clock in all processes.
fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What [`Task::OneByOne`] found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latencies {
    pub(crate) begin: f64,
    pub(crate) end: f64,
    pub(crate) count: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) longest: f64,
}

impl Latencies {
    pub(crate) fn of(values: &[f64]) -> Result<Latencies, String> {
        match *values {
            [begin, end, count, median, p99, longest] => Ok(Latencies { begin, end, count, median, p99, longest }),
            _ => Err(format!("an answer of {} values", values.len())),
        }
    }
}

/// What [`Task::Fill`] found: how many kernels had ended at which times.
#[derive(Debug)]
pub(crate) struct Progress(Vec<(f64, f64)>);

impl Progress {
    pub(crate) fn of(values: &[f64]) -> Progress {
        Progress(values.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }

    /// From when to when it is known.
    pub(crate) fn span(&self) -> Option<(f64, f64)> {
        self.0.first().zip(self.0.last()).map(|(first, last)| (first.0, last.0))
    }

    /// How many ended between two times, as exactly as the notes tell.
    pub(crate) fn between(&self, from: f64, to: f64) -> f64 {
        self.at(to) - self.at(from)
    }

    fn at(&self, time: f64) -> f64 {
        let next = self.0.partition_point(|note| note.0 <= time);
        match (next.checked_sub(1).and_then(|last| self.0.get(last)), self.0.get(next)) {
            (Some(last), Some(next)) => last.1 + (next.1 - last.1) * (time - last.0) / (next.0 - last.0),
            (Some(last), None) => last.1,
            (None, _) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_notes_kernels_end_evenly() {
        let progress = Progress::of(&[10.0, 0.0, 11.0, 100.0, 13.0, 140.0]);
        assert_eq!(progress.span(), Some((10.0, 13.0)));
        assert_eq!(progress.between(10.0, 13.0), 140.0);
        assert_eq!(progress.between(10.5, 12.0), 70.0);
        assert_eq!(progress.between(0.0, 99.0), 140.0);
        assert_eq!(Progress::of(&[]).between(0.0, 1.0), 0.0);
    }

    #[test]
    fn clocks_of_processes_can_be_compared() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        // Suspended time is the difference.
        assert!(now() > 0.0 && now() < uptime + 5.0);
    }
}
