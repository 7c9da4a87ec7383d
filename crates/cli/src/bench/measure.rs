//! The tests that run in a path's own process, over and over.

use std::hint::black_box;
use std::time::{Duration, Instant};

use telecl_opencl::{ClResult, Mem};
use telecl_probe::{CHUNK, PAGE, Rig};

/// What is moved by the tests of bulk transfers.
const BULK: usize = 64 << 20;

/// A round is cut short after this, where a round trip takes milliseconds.
const LONGEST: Duration = Duration::from_secs(2);

/// A device, and memory for what is moved to and from it.
#[derive(Debug)]
pub(crate) struct Bench {
    rig: Rig,
    /// On the device and on the host; made by the first test that needs them.
    bulk: Option<(Mem, Vec<u8>)>,
}

/// Why a test gave no value.
#[derive(Debug)]
pub(crate) enum Trouble {
    OpenCl(telecl_opencl::ClError),
    WrongData(&'static str),
    Unknown(String),
}

impl From<telecl_opencl::ClError> for Trouble {
    fn from(error: telecl_opencl::ClError) -> Trouble {
        Trouble::OpenCl(error)
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::OpenCl(error) => write!(f, "{error}"),
            Trouble::WrongData(what) => write!(f, "{what} came back wrong"),
            Trouble::Unknown(test) => write!(f, "no test is named {test}"),
        }
    }
}

impl Bench {
    pub(crate) fn new(rig: Rig) -> Bench {
        Bench { rig, bulk: None }
    }

    /// One round of a test; a value for each of its rows, in base units.
    pub(crate) fn run(&mut self, test: &str, count: u32) -> Result<Vec<f64>, Trouble> {
        let rig = &self.rig;
        // A round begins with an idle device.
        rig.finish()?;
        let value = match test {
            "launch-stream" => return launch_stream(rig, count),
            "launch-finish" => repeat(count, |_| rig.launch().and_then(|()| rig.finish()))?,
            "dependent" => dependent(rig, count)?,
            "wait-event" => repeat(count, |_| rig.launch_after(None)?.wait())?,
            "read-4" => repeat(count, |_| rig.read(&mut [0; 4]))?,
            "write-4" => {
                let alone = write(rig, count)?;
                return Ok(vec![alone, repeat(count, |number| rig.write(&number.to_ne_bytes()))?]);
            }
            "args-launch" => args_launch(rig, count)?,
            "chain" => chain(rig, count)?,
            "buffer-4K" => repeat(count, |_| rig.use_new_page())?,
            "write-64M" => self.write_bulk(count)?,
            "read-64M" => self.read_bulk(count)?,
            "stream-1M" => {
                let start = Instant::now();
                self.rig.stream(count)?;
                2.0 * CHUNK as f64 * f64::from(count) / start.elapsed().as_secs_f64()
            }
            other => return Err(Trouble::Unknown(other.to_owned())),
        };
        self.rig.finish()?;
        Ok(vec![value])
    }

    /// Kernels launched one at a time until the time is over: how many, and in how many seconds.
    pub(crate) fn launch_for(&self, time: Duration) -> ClResult<(u64, f64)> {
        let start = Instant::now();
        let mut launched = 0;
        while start.elapsed() < time {
            self.rig.launch()?;
            self.rig.finish()?;
            launched += 1;
        }
        Ok((launched, start.elapsed().as_secs_f64()))
    }

    fn write_bulk(&mut self, count: u32) -> ClResult<f64> {
        let (rig, device, host) = self.with_bulk()?;
        let time = repeat(count, |_| {
            rig.queue().write_buffer_blocking(device, 0, host)?;
            rig.finish()
        })?;
        Ok(BULK as f64 / time)
    }

    fn read_bulk(&mut self, count: u32) -> Result<f64, Trouble> {
        let (rig, device, host) = self.with_bulk()?;
        rig.queue().write_buffer_blocking(device, 0, host)?;
        // What is not written again by the reads is seen below.
        host.fill(0);
        let time = repeat(count, |_| rig.queue().read_buffer_blocking(device, 0, host))?;
        if !is_pattern(host) {
            return Err(Trouble::WrongData("64 MiB"));
        }
        Ok(BULK as f64 / time)
    }

    fn with_bulk(&mut self) -> ClResult<(&Rig, &Mem, &mut Vec<u8>)> {
        let rig = &self.rig;
        let (device, host) = match &mut self.bulk {
            Some(bulk) => bulk,
            empty => empty.insert((rig.create(BULK)?, pattern())),
        };
        Ok((rig, device, host))
    }
}

/// Seconds for each of `count` repetitions, or of as many as the time allows.
fn repeat(count: u32, mut once: impl FnMut(u32) -> ClResult<()>) -> ClResult<f64> {
    let start = Instant::now();
    let mut done = 0;
    while done < count {
        once(done)?;
        done += 1;
        // Asking for the time costs as much as some of the calls.
        if (done % 16 == 0 || count < 16) && start.elapsed() > LONGEST {
            break;
        }
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(done.max(1)))
}

/// A blocking write to an idle device: it finishes each of them outside of the time.
fn write(rig: &Rig, count: u32) -> ClResult<f64> {
    let (mut time, mut done) = (Duration::ZERO, 0);
    repeat(count, |number| {
        let start = Instant::now();
        rig.write(&number.to_ne_bytes())?;
        time += start.elapsed();
        done += 1;
        rig.finish()
    })?;
    Ok(time.as_secs_f64() / f64::from(done))
}

fn launch_stream(rig: &Rig, count: u32) -> Result<Vec<f64>, Trouble> {
    let start = Instant::now();
    for _ in 0..count {
        rig.launch()?;
    }
    let enqueued = start.elapsed();
    rig.finish()?;
    Ok([start.elapsed(), enqueued].map(|time| time.as_secs_f64() / f64::from(count)).to_vec())
}

fn dependent(rig: &Rig, count: u32) -> ClResult<f64> {
    // One alone is over in a few milliseconds.
    const SERIES: u32 = 5;
    let start = Instant::now();
    for _ in 0..SERIES {
        let mut last = None;
        for _ in 0..count {
            last = Some(rig.launch_after(last.as_ref())?);
        }
        rig.finish()?;
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(SERIES * count))
}

fn args_launch(rig: &Rig, count: u32) -> Result<f64, Trouble> {
    let start = Instant::now();
    for number in 0..count {
        let number = number as i32;
        rig.launch_sum([number, number + 1, number + 2])?;
    }
    rig.finish()?;
    let time = start.elapsed().as_secs_f64() / f64::from(count);
    let mut sum = [0; 4];
    rig.read(&mut sum)?;
    let last = count as i32 - 1;
    if count > 0 && i32::from_ne_bytes(sum) != 3 * last + 3 {
        return Err(Trouble::WrongData("a sum"));
    }
    Ok(time)
}

fn chain(rig: &Rig, count: u32) -> Result<f64, Trouble> {
    let mut page = [0; PAGE];
    let mut wrong = false;
    let time = repeat(count, |number| {
        let number = number as i32;
        rig.write_page_later()?;
        rig.launch_sum([number, 1, 1])?;
        rig.read(black_box(&mut page))?;
        wrong |= page[..4] != (number + 2).to_ne_bytes();
        Ok(())
    })?;
    if wrong { Err(Trouble::WrongData("a sum")) } else { Ok(time) }
}

/// Bytes that differ from page to page, in memory that the system has really given. LZ4 makes nothing of them, so that
/// what is measured over a network is the network.
fn pattern() -> Vec<u8> {
    (0..BULK).map(byte_at).collect()
}

fn is_pattern(bytes: &[u8]) -> bool {
    // One byte of each page: all of them would take longer than the transfer.
    bytes.iter().enumerate().step_by(1021).all(|(place, byte)| *byte == byte_at(place))
}

fn byte_at(place: usize) -> u8 {
    let mixed = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 56) as u8 | 1
}
