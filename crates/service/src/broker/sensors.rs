//! What devices' own sensors say: asked by a child process, which is started when somebody first wants to know.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{ChildStdout, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use telecl_wire::status::Sensors;
use tracing::{debug, warn};

use super::offer::{Known, Offer};
use super::{WorkerCommand, launch};
use crate::process::exit_code;
use crate::sensors::Reading;

/// What is older than this is not known any more.
const OLDEST: Duration = Duration::from_secs(30);

/// The longest line: a node has no more than a few dozen devices.
const LONGEST: u64 = 64 << 10;

/// How long to wait before the process is started again.
const PAUSE: Duration = Duration::from_secs(60);

/// The last readings. The lock is held for a few lines.
#[derive(Debug)]
pub(crate) struct Readings {
    /// How the process is started; `None` where no device has sensors that we know of.
    command: Option<WorkerCommand>,
    started: OnceLock<()>,
    latest: Mutex<Option<(Instant, Vec<Reading>)>>,
}

impl Readings {
    pub(crate) fn new(command: &WorkerCommand, offer: &Offer) -> Readings {
        let any = offer.known().iter().any(|device| device.platform.contains("NVIDIA"));
        Readings { command: any.then(|| command.clone()), started: OnceLock::new(), latest: Mutex::default() }
    }

    /// Has the sensors read from now on.
    pub(crate) fn want(self: &std::sync::Arc<Self>) {
        let Some(command) = &self.command else { return };
        self.started.get_or_init(|| {
            let (readings, command) = (std::sync::Arc::clone(self), command.clone());
            // Lives as long as the broker: the process's death signal is tied to the thread that started it.
            let thread = thread::Builder::new().name("telecl-sensors".into()).stack_size(128 << 10);
            if let Err(error) = thread.spawn(move || readings.keep_reading(&command)) {
                warn!(%error, "cannot start a thread for sensors");
            }
        });
    }

    /// What is known of a device.
    pub(crate) fn of(&self, device: &Known) -> Option<Sensors> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, readings) = latest.as_ref().filter(|(at, _)| at.elapsed() < OLDEST)?;
        let same = |reading: &&Reading| {
            device.uuid.as_ref().is_some_and(|uuid| *uuid == reading.uuid)
                || device.bus.as_ref().is_some_and(|bus| *bus == reading.bus)
        };
        let Reading { celsius, milliwatts, core_mhz, memory_mhz, busy_percent, memory_used, .. } =
            readings.iter().find(same)?.clone();
        Some(Sensors { celsius, milliwatts, core_mhz, memory_mhz, busy_percent, memory_used })
    }

    fn keep_reading(&self, command: &WorkerCommand) {
        loop {
            match self.read(command) {
                // There is no library to ask.
                Ok(Some(code)) if code == exit_code::NOTHING => return debug!("no sensors on this node"),
                ended => debug!(?ended, "the process that reads sensors has ended"),
            }
            thread::sleep(PAUSE);
        }
    }

    /// Runs the process to its end; its exit code.
    fn read(&self, command: &WorkerCommand) -> io::Result<Option<i32>> {
        let mut child =
            launch::command(command).arg("--sensors").stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let read = self.take_lines(lines);
        if read.is_err() {
            let _ = child.kill();
        }
        let status = child.wait()?;
        read.map(|()| status.code())
    }

    fn take_lines(&self, lines: ChildStdout) -> io::Result<()> {
        let mut lines = BufReader::new(lines);
        let mut line = String::new();
        while lines.by_ref().take(LONGEST).read_line(&mut line)? > 0 {
            let readings: Vec<Reading> = serde_json::from_str(&line)?;
            *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), readings));
            line.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensors::bus;

    #[test]
    fn a_device_is_known_by_its_uuid_or_its_place_on_the_bus() {
        let command = WorkerCommand { program: "true".into(), args: Vec::new() };
        let readings = Readings::new(&command, &Offer::default());
        let known = |uuid: Option<&str>, bus: Option<String>| Known {
            uuid: uuid.map(ToOwned::to_owned),
            bus,
            ..Known::default()
        };
        assert_eq!(readings.of(&known(Some("ab"), None)), None);
        let line = "[{\"uuid\":\"ab\",\"bus\":\"0:3b:0\",\"celsius\":41,\"milliwatts\":null,\"core_mhz\":1980,\
                    \"memory_mhz\":null,\"busy_percent\":7,\"memory_used\":1}]";
        *readings.latest.lock().unwrap() = Some((Instant::now(), serde_json::from_str(line).unwrap()));
        for device in [known(Some("ab"), None), known(None, Some(bus(0, 0x3b, 0)))] {
            let sensors = readings.of(&device).unwrap();
            assert_eq!((sensors.celsius, sensors.milliwatts, sensors.core_mhz), (Some(41), None, Some(1980)));
        }
        assert_eq!(readings.of(&known(Some("cd"), Some(bus(1, 0x3b, 0)))), None);
        assert_eq!(readings.of(&known(None, None)), None);
    }
}
