//! `telecl devices`: what the configured services offer.

use std::time::Duration;

use serde_json::json;
use telecl_config::{Address, DriverConfig};

use crate::exit::{Exit, Failure, Outcome, print};
use crate::survey::{self, Answer, Device, Silence};
use crate::{DevicesArgs, human};

pub(crate) fn devices(args: &DevicesArgs) -> Outcome {
    let (services, timeout) = services(&args.on.services, args.timeout)?;
    let answers = survey::ask_all(&services, timeout);
    print(if args.json { as_json(&answers) } else { as_table(&answers) });
    let found = answers.iter().flatten().any(|answer| !answer.devices.is_empty());
    Ok(if found { Exit::Ok } else { Exit::Unreachable })
}

/// The services to ask: those of the command line, otherwise the configured ones.
fn services(on: &[Address], timeout: Option<Duration>) -> Result<(Vec<Address>, Duration), Failure> {
    let config = DriverConfig::load()?;
    let services = if on.is_empty() { config.services } else { on.to_vec() };
    if services.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "no service is configured",
            "Name one: telecl devices --on HOST:PORT, or set TELECL_SERVICES. To start one: telecl serve",
        ));
    }
    Ok((services, timeout.unwrap_or(config.connect_timeout)))
}

fn as_table(answers: &[Result<Answer, Silence>]) -> String {
    let mut rows = Vec::new();
    let mut notes = String::new();
    for answer in answers {
        match answer {
            Ok(answer) if answer.devices.is_empty() => notes.push_str(&format!(
                "{} ({}) offers no device. Does clinfo list any on that node? Does its [serve] table leave them out?\n",
                answer.address, answer.node
            )),
            Ok(answer) => rows.extend(answer.devices.iter().map(|device| {
                vec![
                    answer.node.clone(),
                    answer.address.to_string(),
                    device.platform.clone(),
                    device.name.clone(),
                    device.kind.to_owned(),
                    human::memory(device.memory),
                    device.compute_units.to_string(),
                    sessions(device),
                    human::time(answer.round_trip),
                    if answer.same_node { "yes" } else { "no" }.to_owned(),
                    answer.tenant.clone(),
                ]
            })),
            Err(silence) => {
                notes
                    .push_str(&format!("{} cannot be used: {}. {}\n", silence.address, silence.reason, silence.advice));
            }
        }
    }
    let header = [
        "NODE",
        "ADDRESS",
        "PLATFORM",
        "DEVICE",
        "TYPE",
        "MEMORY",
        "COMPUTE UNITS",
        "SESSIONS",
        "ROUND TRIP",
        "SAME NODE",
        "TENANT",
    ];
    let table = if rows.is_empty() { "No device can be reached.\n".to_owned() } else { human::table(&header, &rows) };
    if notes.is_empty() { table } else { format!("{table}\n{notes}") }
}

/// `3`, or `3 of 16` where there is a limit.
fn sessions(device: &Device) -> String {
    match device.most_sessions {
        Some(most) => format!("{} of {most}", device.sessions),
        None => device.sessions.to_string(),
    }
}

fn as_json(answers: &[Result<Answer, Silence>]) -> String {
    let devices: Vec<_> = answers
        .iter()
        .flatten()
        .flat_map(|answer| {
            answer.devices.iter().map(|device| {
                json!({
                    "node": answer.node,
                    "address": answer.address.to_string(),
                    "platform": device.platform,
                    "device": device.name,
                    "version": device.version,
                    "type": device.kind,
                    "memory_bytes": device.memory,
                    "compute_units": device.compute_units,
                    "sessions": device.sessions,
                    "sessions_limit": device.most_sessions,
                    "round_trip_ns": answer.round_trip.as_nanos() as u64,
                    "same_node": answer.same_node,
                    "tenant": answer.tenant,
                    "service_version": answer.version,
                })
            })
        })
        .collect();
    let unreachable: Vec<_> = answers
        .iter()
        .filter_map(|answer| answer.as_ref().err())
        .map(|silence| {
            json!({
                "address": silence.address.to_string(),
                "reason": silence.reason,
                "advice": silence.advice,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "devices": devices, "unreachable": unreachable }))
}
