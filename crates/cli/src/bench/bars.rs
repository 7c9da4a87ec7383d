//! What is expected of each path, and whether it is so.

use serde::Serialize;

use super::catalog::Unit;
use super::child::DeviceFacts;
use super::number;
use super::path::Kind;

/// What a value is compared with, and whether it passes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Bar {
    /// The value that must not be passed, in the unit of the row.
    pub(crate) limit: f64,
    /// Where it comes from: `direct + 1 round trip + 15 µs`.
    pub(crate) rule: String,
    pub(crate) met: bool,
}

/// What a bar is made of: medians of the same rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) direct: Option<f64>,
    /// To the service of this path, without OpenCL.
    pub(crate) round_trip: Option<f64>,
    /// What TCP carries on this machine, in one direction.
    pub(crate) stream: Option<f64>,
    /// The best value of the same path in rows like this one.
    pub(crate) best: Option<f64>,
    /// How often the test repeats what its value is the mean of.
    pub(crate) count: u32,
}

/// How a bar is found.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    TimesDirect(f64),
    /// Direct's time, so many round trips for the whole test or for each repetition, and so many seconds for each.
    DirectPlus {
        trips: f64,
        of: Share,
        seconds: f64,
    },
    AtMost(f64),
    /// A part of what TCP carries, or of direct where that is slower.
    PartOfStream(f64),
    PartOfDirect(f64),
    PartOfBest(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Share {
    Each,
    Whole,
}

/// The bar of a row on a path; `None` if there is none, or if what it is made of was not measured.
pub(crate) fn bar(row: &str, unit: Unit, kind: Kind, device: &DeviceFacts, facts: Facts, value: f64) -> Option<Bar> {
    let rule = rule(row, kind, device)?;
    let (limit, rule) = match rule {
        Rule::TimesDirect(times) => (facts.direct? * times, format!("{times} × direct")),
        Rule::DirectPlus { trips, of, seconds } => {
            let shared = if of == Share::Whole { f64::from(facts.count.max(1)) } else { 1.0 };
            let trip = if trips > 0.0 { facts.round_trip? * trips / shared } else { 0.0 };
            let each = number::round(seconds, Unit::Seconds);
            let text = match (trips, of) {
                (0.0, _) => format!("direct + {each}"),
                (1.0, _) => format!("direct + 1 round trip + {each}"),
                (_, Share::Each) => format!("direct + {trips} round trips + {each}"),
                (_, Share::Whole) => format!("direct + {trips} round trips for all + {each} for each"),
            };
            (facts.direct? + trip + seconds, text)
        }
        Rule::AtMost(limit) => (limit, number::round(limit, unit)),
        Rule::PartOfStream(part) => {
            let stream = facts.stream?;
            match facts.direct {
                Some(direct) if direct < stream => {
                    (direct * part, format!("{part} × direct, which is slower than TCP"))
                }
                _ => (stream * part, format!("{part} × tcp stream")),
            }
        }
        Rule::PartOfDirect(part) => (facts.direct? * part, format!("{part} × direct")),
        Rule::PartOfBest(part) => (facts.best? * part, format!("{part} × the best number of processes")),
    };
    let met = if unit.more_is_better() { value >= limit } else { value <= limit };
    Some(Bar { limit, rule, met })
}

/// The project's own measures, for each kind of path.
fn rule(row: &str, kind: Kind, device: &DeviceFacts) -> Option<Rule> {
    const MARGIN: f64 = 15e-6;
    let shared = match kind {
        Kind::Direct => return None,
        Kind::SharedMemory => true,
        Kind::Tcp | Kind::Tls | Kind::Remote => false,
    };
    let choose = |tcp: f64, memory: f64| if shared { memory } else { tcp };
    let one_trip = Rule::DirectPlus { trips: choose(1.0, 0.0), of: Share::Each, seconds: MARGIN };
    Some(match row {
        "launch-stream" if device.is_nvidia => Rule::TimesDirect(choose(1.15, 1.1)),
        "launch-stream" => Rule::TimesDirect(choose(1.5, 1.3)),
        "enqueue-call" if device.is_nvidia => Rule::TimesDirect(0.5),
        "launch-finish" | "read-4" | "buffer-4K" | "chain" => one_trip,
        "dependent" => Rule::DirectPlus { trips: 2.0, of: Share::Whole, seconds: 1e-6 },
        "write-4" => Rule::AtMost(choose(5e-6, 3e-6)),
        "args-launch" => Rule::TimesDirect(choose(1.2, 1.1)),
        "write-64M" | "read-64M" if shared => Rule::PartOfDirect(if device.is_cpu { 0.8 } else { 0.9 }),
        "stream-1M" if shared => Rule::PartOfDirect(0.8),
        "write-64M" | "read-64M" if kind == Kind::Tcp => Rule::PartOfStream(0.9),
        // Half of what is wanted without encryption.
        "write-64M" | "read-64M" if kind == Kind::Tls => Rule::PartOfStream(0.45),
        "stream-1M" if kind == Kind::Tcp => Rule::PartOfStream(0.85),
        "sessions-32" => Rule::PartOfBest(0.9),
        "memory" => Rule::AtMost(f64::from(8 << 20)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(is_nvidia: bool) -> DeviceFacts {
        let text = String::new;
        let is_cpu = !is_nvidia;
        DeviceFacts {
            name: text(),
            platform: text(),
            vendor: text(),
            driver: text(),
            version: text(),
            is_cpu,
            is_nvidia,
        }
    }

    fn facts() -> Facts {
        Facts { direct: Some(10e-6), round_trip: Some(20e-6), stream: Some(4e9), best: Some(100.0), count: 1000 }
    }

    /// The limit, rounded to nanoseconds.
    fn limit(row: &str, kind: Kind, nvidia: bool) -> Option<f64> {
        let bar = bar(row, Unit::Seconds, kind, &device(nvidia), facts(), 0.0)?;
        assert!(bar.met, "nothing is faster than no time");
        Some((bar.limit * 1e9).round())
    }

    #[test]
    fn direct_is_the_measure_and_has_no_bar() {
        for row in ["launch-stream", "read-4", "memory", "sessions-32"] {
            assert_eq!(limit(row, Kind::Direct, true), None);
        }
    }

    #[test]
    fn bars_depend_on_the_device_and_on_the_path() {
        assert_eq!(limit("launch-stream", Kind::Tcp, true), Some(11_500.0));
        assert_eq!(limit("launch-stream", Kind::Tcp, false), Some(15_000.0));
        assert_eq!(limit("launch-stream", Kind::SharedMemory, false), Some(13_000.0));
        assert_eq!(limit("enqueue-call", Kind::Tcp, false), None);
        assert_eq!(limit("enqueue-call", Kind::Tcp, true), Some(5_000.0));
        assert_eq!(limit("launch-finish", Kind::Tcp, false), Some(45_000.0));
        assert_eq!(limit("launch-finish", Kind::SharedMemory, false), Some(25_000.0));
        assert_eq!(limit("dependent", Kind::Tcp, false), Some(11_040.0), "two trips among a thousand kernels");
        assert_eq!(limit("wait-event", Kind::Tcp, false), None);
    }

    #[test]
    fn rates_must_be_high_and_times_low() {
        let rates = Facts { direct: Some(8e9), ..facts() };
        let rate = |value, facts| {
            bar("write-64M", Unit::BytesPerSecond, Kind::Tcp, &device(false), facts, value)
                .map(|bar| (bar.limit, bar.met))
        };
        assert_eq!(rate(3.7e9, rates), Some((3.6e9, true)));
        assert_eq!(rate(3.5e9, rates), Some((3.6e9, false)));
        let slow = Facts { direct: Some(1e9), ..facts() };
        assert_eq!(rate(0.95e9, slow), Some((0.9e9, true)), "no path is faster than the device");
        let unmeasured = Facts { stream: None, ..rates };
        assert_eq!(rate(1.0, unmeasured), None);
        let late = bar("write-4", Unit::Seconds, Kind::Tcp, &device(false), facts(), 6e-6).unwrap();
        assert!(!late.met);
        assert_eq!(late.rule, "5 µs");
    }

    #[test]
    fn without_direct_there_is_nothing_to_compare_with() {
        let alone = Facts { direct: None, ..facts() };
        assert_eq!(bar("read-4", Unit::Seconds, Kind::Remote, &device(false), alone, 1.0), None);
    }
}
