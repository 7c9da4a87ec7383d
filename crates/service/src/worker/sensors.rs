//! The process that asks NVIDIA's management library (NVML) how its devices are, and tells the broker.
//!
//! A process of its own, as everything that loads a vendor's library. It prints one line each time, and ends when nobody
//! reads them.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use rustix::stdio;
use tracing::debug;

use super::start::die_with_broker;
use crate::process::{exit_code, exit_now};
use crate::sensors::{Reading, bus};

/// How often.
const RHYTHM: Duration = Duration::from_secs(5);

/// Prints what the sensors say until nobody listens. Where there is no NVML it ends at once.
pub fn sensors_main() -> ExitCode {
    let said = die_with_broker().and_then(|()| {
        // What the library prints goes to the log.
        let lines = stdio::stdout().try_clone_to_owned()?;
        stdio::dup2_stdout(stdio::stderr())?;
        tell(std::fs::File::from(lines))
    });
    if let Err(error) = said {
        debug!(%error, "no more readings of sensors");
    }
    exit_now(exit_code::CLOSED)
}

fn tell(mut lines: impl Write) -> io::Result<()> {
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        Err(error) => {
            debug!(%error, "no NVML on this node: temperatures, power and clocks are not known");
            exit_now(exit_code::NOTHING);
        }
    };
    loop {
        lines.write_all(format!("{}\n", serde_json::to_string(&readings(&nvml))?).as_bytes())?;
        thread::sleep(RHYTHM);
    }
}

fn readings(nvml: &Nvml) -> Vec<Reading> {
    let count = nvml.device_count().unwrap_or_default();
    (0..count).filter_map(|index| nvml.device_by_index(index).ok()).map(|device| read(&device)).collect()
}

/// A device may refuse any of these.
fn read(device: &nvml_wrapper::Device<'_>) -> Reading {
    // "GPU-01234567-89ab-…"
    let uuid = device.uuid().unwrap_or_default();
    let digits = uuid.strip_prefix("GPU-").unwrap_or_default().replace('-', "").to_lowercase();
    Reading {
        uuid: digits,
        bus: device.pci_info().map(|pci| bus(pci.domain, pci.bus, pci.device)).unwrap_or_default(),
        celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        milliwatts: device.power_usage().ok(),
        core_mhz: device.clock_info(Clock::SM).ok(),
        memory_mhz: device.clock_info(Clock::Memory).ok(),
        busy_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
        memory_used: device.memory_info().ok().map(|memory| memory.used),
    }
}
