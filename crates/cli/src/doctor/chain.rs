//! What needs a service: reaching it, its devices, and a computation through the driver.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use telecl_config::Address;

use super::report::Report;
use crate::run::Place;
use crate::{human, probe, survey};

/// Longer than a driver would wait: the report should say that a service is slow, not that it is away.
const PATIENCE: Duration = Duration::from_secs(5);

/// A first build on a device may start its compiler.
const COMPUTATION: Duration = Duration::from_secs(120);

/// All of it; without services, over a private one.
pub(crate) fn check(report: &mut Report, driver: &Path, services: Vec<Address>) {
    let private = services.is_empty();
    let place = match Place::make(Some(driver), services) {
        Ok(place) => place,
        Err(failure) => return report.failed("services", failure.to_string(), ""),
    };
    if private {
        report.skipped("services", "none is configured: checking with a private one over this machine's own devices");
    }
    let offered = self::services(report, &place.services);
    if offered == 0 {
        return report.skipped("computation", "not tried: there is no device");
    }
    match probe::start(&["devices"], place.variables(), COMPUTATION) {
        Ok(findings) => computation(report, &findings, offered),
        Err(reason) => report.failed(
            "computation",
            format!("a vector addition through the driver: {reason}"),
            "Run it again with TELECL_DEBUG=1, and look at the log of the service",
        ),
    }
}

/// Asks every service; how many devices they offer.
pub(crate) fn services(report: &mut Report, services: &[Address]) -> usize {
    if services.is_empty() {
        report.skipped("services", "none is configured");
        return 0;
    }
    let mut offered = 0;
    let mut reached = 0;
    for answer in survey::ask_all(services, PATIENCE) {
        match answer {
            Ok(answer) => {
                let ours = env!("CARGO_PKG_VERSION");
                let version = if answer.version == ours {
                    format!("version {ours}, as here")
                } else {
                    format!("version {} (here: {ours})", answer.version)
                };
                let trip = human::time(answer.round_trip);
                report.ok("service", format!("{}: node {}, round trip {trip}, {version}", answer.address, answer.node));
                offered += answer.devices.len();
                reached += 1;
            }
            Err(silence) => {
                report.failed("service", format!("{}: {}", silence.address, silence.reason), silence.advice)
            }
        }
    }
    if offered > 0 {
        let (devices, services) = (human::count(offered, "device"), human::count(reached, "service"));
        report.ok("devices", format!("{devices} offered by {services}"));
    } else if reached > 0 {
        report.failed(
            "devices",
            "the services offer none",
            "Does clinfo list any on that node? Does its [serve] table leave them out?",
        );
    }
    offered
}

fn computation(report: &mut Report, findings: &[Value], offered: usize) {
    for finding in findings {
        let text = |key: &str| finding[key].as_str().unwrap_or_default();
        if let Some(error) = finding["error"].as_str() {
            return report.failed("computation", error, "Install an OpenCL loader: apt-get install ocl-icd-libopencl1");
        }
        let device = format!("{} ({})", text("device"), text("platform"));
        match finding["failure"].as_str() {
            None => {
                let took = finding["milliseconds"].as_f64().unwrap_or_default();
                report.ok("computation", format!("{device}: a vector addition is right, {took:.0} ms with its build"));
            }
            Some(failure) => report.failed(
                "computation",
                format!("{device}: {failure}"),
                "Run it again with TELECL_DEBUG=1, and look at the log of the service",
            ),
        }
    }
    if findings.len() < offered {
        report.failed(
            "computation",
            format!("the driver shows {} of {}", findings.len(), human::count(offered, "offered device")),
            "Run it again with TELECL_DEBUG=1 to see what the driver says",
        );
    }
}
