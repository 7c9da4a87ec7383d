//! What this machine itself can do, measured between the rounds of the tests: round trips without
//! OpenCL, and how fast bytes move.

use std::hint::{black_box, spin_loop};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, futex, sched_getaffinity, sched_setaffinity};
use telecl_config::Address;

use super::catalog::Unit;
use crate::survey;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Two threads that block on a TCP connection.
    TcpPing,
    /// The same, but they ask again and again instead of blocking.
    TcpSpin,
    UnixPing,
    FutexPing,
    TcpStream,
    /// Copying what fits no cache, and what does.
    CopyLarge,
    CopyCached,
    /// A round trip to a service.
    Service(Address),
}

impl Limit {
    pub(crate) fn name(&self) -> String {
        match self {
            Limit::TcpPing => "tcp round trip".to_owned(),
            Limit::TcpSpin => "tcp round trip, spinning".to_owned(),
            Limit::UnixPing => "unix socket round trip".to_owned(),
            Limit::FutexPing => "futex round trip".to_owned(),
            Limit::TcpStream => "tcp stream".to_owned(),
            Limit::CopyLarge => "memcpy 64 MiB".to_owned(),
            Limit::CopyCached => "memcpy 1 MiB".to_owned(),
            Limit::Service(address) => format!("ping {address}"),
        }
    }

    pub(crate) fn about(&self) -> &'static str {
        match self {
            Limit::TcpPing => "64 bytes there and back on loopback, two threads that block",
            Limit::TcpSpin => "the same, two threads that never sleep",
            Limit::UnixPing => "64 bytes there and back, two threads that block",
            Limit::FutexPing => "two threads that wake each other",
            Limit::TcpStream => "one direction on loopback, 1 MiB at a time",
            Limit::CopyLarge => "one core, memory to memory",
            Limit::CopyCached => "one core, within its cache",
            Limit::Service(_) => "a message to the service and back",
        }
    }

    pub(crate) fn unit(&self) -> Unit {
        match self {
            Limit::TcpStream | Limit::CopyLarge | Limit::CopyCached => Unit::BytesPerSecond,
            _ => Unit::Seconds,
        }
    }
}

const PINGS: u32 = 200;
const MESSAGE: usize = 64;
const CHUNK: usize = 1 << 20;
const LARGE: usize = 64 << 20;

/// Measures limits; keeps the memory that it copies, so that it is there when the time is taken.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    large: Option<(Vec<u8>, Vec<u8>)>,
}

impl Meter {
    /// One round.
    pub(crate) fn measure(&mut self, limit: &Limit) -> Result<f64, String> {
        let measured = match limit {
            Limit::TcpPing => tcp_pair().and_then(|(a, b)| ping_pong(a, b)),
            Limit::TcpSpin => tcp_pair().and_then(|(a, b)| {
                a.set_nonblocking(true)?;
                b.set_nonblocking(true)?;
                let [here, there] = two_cores();
                on_core(here, || ping_pong_on(there, Spinning(a), Spinning(b)))
            }),
            Limit::UnixPing => UnixStream::pair().and_then(|(a, b)| ping_pong(a, b)),
            Limit::FutexPing => futex_ping_pong(),
            Limit::TcpStream => tcp_stream(128),
            Limit::CopyLarge => {
                let (from, to) = self.large.get_or_insert_with(|| (vec![1; LARGE], vec![2; LARGE]));
                Ok(copy(from, to, 2))
            }
            Limit::CopyCached => Ok(copy(&vec![1; CHUNK], &mut vec![2; CHUNK], 256)),
            Limit::Service(address) => {
                return survey::round_trip(address, 50, Duration::from_secs(5))
                    .map(|time| time.as_secs_f64())
                    .map_err(|silence| silence.reason);
            }
        };
        measured.map_err(|error| error.to_string())
    }
}

fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    one.set_nodelay(true)?;
    other.set_nodelay(true)?;
    Ok((one, other))
}

/// Seconds for a message to a thread and back.
fn ping_pong<S: Read + Write + Send>(near: S, far: S) -> io::Result<f64> {
    ping_pong_on(None, near, far)
}

/// The same, with the other thread on a core of its own if there is one.
fn ping_pong_on<S: Read + Write + Send>(core: Option<usize>, mut near: S, mut far: S) -> io::Result<f64> {
    thread::scope(|scope| {
        let echo = scope.spawn(move || -> io::Result<()> {
            if let Some(core) = core {
                // A wish: without it the threads meet on whatever core they get.
                let _ = sched_setaffinity(None, &only(core));
            }
            let mut message = [0; MESSAGE];
            for _ in 0..=PINGS {
                far.read_exact(&mut message)?;
                far.write_all(&message)?;
            }
            Ok(())
        });
        let mut message = [1; MESSAGE];
        let mut trip = || near.write_all(&message.clone()).and_then(|()| near.read_exact(&mut message));
        // The first waits for the thread to start.
        trip()?;
        let start = Instant::now();
        for _ in 0..PINGS {
            trip()?;
        }
        let time = start.elapsed().as_secs_f64() / f64::from(PINGS);
        echo.join().map_err(|_| io::Error::other("the echo failed"))??;
        Ok(time)
    })
}

/// Two of the cores that this thread may use. Threads that never sleep would stay on one for a whole round.
fn two_cores() -> [Option<usize>; 2] {
    let Ok(allowed) = sched_getaffinity(None) else { return [None; 2] };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    match (cores.next(), cores.next()) {
        (Some(one), Some(other)) => [Some(one), Some(other)],
        _ => [None; 2],
    }
}

/// Works on this core, and afterwards where it could before.
fn on_core<T>(core: Option<usize>, work: impl FnOnce() -> T) -> T {
    let before = core.and_then(|core| {
        let before = sched_getaffinity(None).ok()?;
        sched_setaffinity(None, &only(core)).ok()?;
        Some(before)
    });
    let done = work();
    if let Some(before) = before {
        // What was allowed a moment ago still is.
        let _ = sched_setaffinity(None, &before);
    }
    done
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

/// A socket that is asked until it has something.
struct Spinning(TcpStream);

impl Read for Spinning {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        for turn in 1u32.. {
            match self.0.read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => spin_loop(),
                other => return other,
            }
            // The other thread may be waiting for this very core.
            if turn % 64 == 0 {
                thread::yield_now();
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Write for Spinning {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Seconds for a thread to wake another and be woken by it.
fn futex_ping_pong() -> io::Result<f64> {
    // Whose turn it is: even numbers are ours.
    let turn = AtomicU32::new(0);
    let rounds = 2 * (PINGS + 1);
    let play = |mine: u32| {
        let mut now = mine;
        while now < rounds {
            loop {
                let seen = turn.load(Ordering::Acquire);
                if seen >= now {
                    break;
                }
                // It returns for other reasons too; what counts is the number.
                let _ = futex::wait(&turn, futex::Flags::PRIVATE, seen, None);
            }
            turn.store(now + 1, Ordering::Release);
            let _ = futex::wake(&turn, futex::Flags::PRIVATE, 1);
            now += 2;
        }
    };
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| play(1));
        play(0);
    });
    Ok(start.elapsed().as_secs_f64() / f64::from(PINGS + 1))
}

/// Bytes per second from a thread to another, over TCP.
fn tcp_stream(chunks: usize) -> io::Result<f64> {
    let (mut near, mut far) = tcp_pair()?;
    let from = vec![1; CHUNK];
    let mut to = vec![2; CHUNK];
    thread::scope(|scope| {
        let sender = scope.spawn(move || -> io::Result<()> {
            for _ in 0..=chunks {
                near.write_all(&from)?;
            }
            Ok(())
        });
        // The first waits for the thread to start.
        far.read_exact(&mut to)?;
        let start = Instant::now();
        let mut left = chunks * CHUNK;
        while left > 0 {
            match far.read(&mut to)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                received => left = left.saturating_sub(received),
            }
        }
        let time = start.elapsed().as_secs_f64();
        sender.join().map_err(|_| io::Error::other("the sender failed"))??;
        Ok((chunks * CHUNK) as f64 / time)
    })
}

/// Bytes per second of a copy; the first one is not counted.
fn copy(from: &[u8], to: &mut [u8], times: u32) -> f64 {
    to.copy_from_slice(black_box(from));
    let start = Instant::now();
    for _ in 0..times {
        black_box(&mut *to).copy_from_slice(black_box(from));
    }
    f64::from(times) * from.len() as f64 / start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_can_be_measured() {
        let mut meter = Meter::default();
        for limit in [Limit::TcpPing, Limit::TcpSpin, Limit::UnixPing, Limit::FutexPing, Limit::CopyCached] {
            let value = meter.measure(&limit).unwrap();
            assert!(value.is_finite() && value > 0.0, "{limit:?}: {value}");
        }
        assert!(tcp_stream(2).unwrap() > 0.0);
    }

    #[test]
    fn a_service_that_is_away_is_an_error_with_its_reason() {
        let away = Limit::Service("unix:/nowhere/service.sock".parse().unwrap());
        assert!(Meter::default().measure(&away).unwrap_err().contains("No such file"));
    }
}
