//! What a service is used for, as its metrics say it, in the status of quotas and pools.
//!
//! Every agent writes its own service's part, and sums up what all have written; parts of services that have not been heard
//! of for long are left out. Nothing is written that says the same as before.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kube::{Api, Resource, ResourceExt};
use telecl_policy::{DeviceFacts, DevicePattern, parse_size};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::{Shared, condition, set_status};
use crate::events::Kind;
use crate::objects::{
    AcceleratorPool, AcceleratorQuota, PoolDevice, PoolMember, PoolStatus, QuotaSpec, QuotaStatus, ServiceUse, Used,
};
use crate::render::size;

/// How often the service is asked.
const INTERVAL: Duration = Duration::from_secs(5);

/// A quota of memory of which so much is used is as good as used up.
const NEARLY: f64 = 0.95;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// A part is written again after so many seconds, even if it says the same …
const REFRESH: i64 = 60;
/// … and left out when it is so old.
const STALE: i64 = 300;

/// A service has so many devices at most, and its metrics are no longer.
const LONGEST: u64 = 8 << 20;

/// Reports until the agent ends.
pub(super) async fn keep(shared: &Shared) {
    let mut before: Option<(Instant, Usage)> = None;
    loop {
        sleep(INTERVAL).await;
        let usage = match timeout(PATIENCE, metrics(&shared.options.metrics)).await {
            Ok(Ok(text)) => Usage::read(&text),
            Ok(Err(error)) => {
                debug!(%error, "the service says nothing of its use");
                continue;
            }
            Err(_) => continue,
        };
        let now = Instant::now();
        let spent = before.as_ref().map_or_else(BTreeMap::new, |(then, old)| usage.spent(old, now - *then));
        report(shared, &usage, &spent).await;
        let nothing = Usage::default();
        tell_of_quotas(shared, &usage, before.as_ref().map_or(&nothing, |(_, old)| old));
        before = Some((now, usage));
    }
}

async fn report(shared: &Shared, usage: &Usage, spent: &BTreeMap<String, u32>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let node = &shared.options.node;
    for quota in shared.stores.quotas.state() {
        let Some(namespace) = quota.namespace() else { continue };
        let use_of = usage.namespaces.get(&namespace).cloned().unwrap_or_default();
        let own = ServiceUse {
            node: node.clone(),
            sessions: use_of.sessions,
            memory_bytes: use_of.memory,
            device_percent: spent.get(&namespace).copied().unwrap_or(0),
            seen: now,
        };
        let before = quota.status.clone().unwrap_or_default();
        if let Some(mut status) = with_use(&before, own, now) {
            let message = "the services enforce it".to_owned();
            let condition = condition(&before.conditions, quota.metadata.generation, true, "InForce", message);
            status.conditions = vec![condition];
            let api: Api<AcceleratorQuota> = Api::namespaced(shared.client.clone(), &namespace);
            set_status(&api, &*quota, &status).await;
        }
    }
    let api: Api<AcceleratorPool> = Api::all(shared.client.clone());
    let labels = shared.labels();
    for pool in shared.stores.pools.state() {
        let here = pool.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        let devices = if here { usage.devices_of(&pool) } else { Vec::new() };
        let before = pool.status.clone().unwrap_or_default();
        let own = PoolMember { node: node.clone(), devices, seen: now };
        if let Some(status) = with_member(&before, own, now) {
            set_status(&api, &*pool, &status).await;
        }
    }
}

/// Events about quotas that are used up here.
fn tell_of_quotas(shared: &Shared, usage: &Usage, before: &Usage) {
    for quota in shared.stores.quotas.state() {
        let Some(namespace) = quota.namespace() else { continue };
        let Some(now) = usage.namespaces.get(&namespace) else { continue };
        let refused = before.namespaces.get(&namespace).is_some_and(|then| now.refusals > then.refusals);
        if let Some(note) = exhausted(&quota.spec, now, refused, &usage.devices) {
            let note = format!("{note}, at the service on {}", shared.options.node);
            shared.events.tell(quota.object_ref(&()), Kind::Warning, "QuotaExhausted", &note);
        }
    }
}

/// What a namespace has used up, if somebody was refused for it or hardly anything is left.
fn exhausted(
    quota: &QuotaSpec,
    now: &NamespaceUse,
    refused: bool,
    devices: &BTreeMap<u64, (String, u64)>,
) -> Option<String> {
    if let Some(most) = quota.sessions
        && refused
        && now.sessions >= most
    {
        return Some(format!("all {most} sessions are in use, and another one was refused"));
    }
    let written = quota.device_memory.as_deref()?;
    now.devices.iter().find_map(|(number, used)| {
        let (name, memory) = devices.get(number)?;
        let limit = memory_limit(written, *memory)?;
        let full = *used as f64 >= limit as f64 * NEARLY;
        full.then(|| format!("{} of {written} of the memory of {name} are in use", human(*used)))
    })
}

/// What a size, or a part of the device, comes to.
fn memory_limit(written: &str, device: u64) -> Option<u64> {
    match written.trim().strip_suffix('%') {
        Some(percent) => Some((device as f64 * percent.trim().parse::<f64>().ok()? / 100.0) as u64),
        None => parse_size(&size(written)).ok(),
    }
}

/// The quota's status with what this service says; `None` if that is what it says already.
fn with_use(before: &QuotaStatus, own: ServiceUse, now: i64) -> Option<QuotaStatus> {
    let there = before.services.iter().find(|one| one.node == own.node);
    let uses = own.sessions > 0 || own.memory_bytes > 0;
    let changed = match there {
        None => uses || before.conditions.is_empty(),
        Some(there) => {
            let (more, less) =
                (there.device_percent.max(own.device_percent), there.device_percent.min(own.device_percent));
            !uses
                || (there.sessions, there.memory_bytes) != (own.sessions, own.memory_bytes)
                || more - less >= 5
                || now - there.seen >= REFRESH
        }
    };
    let stale = before.services.iter().any(|one| now - one.seen > STALE);
    if !changed && !stale {
        return None;
    }
    let mut services: Vec<ServiceUse> =
        before.services.iter().filter(|one| one.node != own.node && now - one.seen <= STALE).cloned().collect();
    if uses {
        services.push(own);
    }
    services.sort_by(|a, b| a.node.cmp(&b.node));
    let memory_bytes = services.iter().map(|one| one.memory_bytes).sum();
    let used = Used {
        sessions: services.iter().map(|one| one.sessions).sum(),
        memory: human(memory_bytes),
        memory_bytes,
        device_percent: services.iter().map(|one| one.device_percent).sum(),
    };
    Some(QuotaStatus { used, services, conditions: before.conditions.clone() })
}

/// The pool's status with what this service has; `None` if that is what it says already.
fn with_member(before: &PoolStatus, own: PoolMember, now: i64) -> Option<PoolStatus> {
    let there = before.members.iter().find(|one| one.node == own.node);
    let changed = match there {
        None => !own.devices.is_empty(),
        Some(there) => there.devices != own.devices || now - there.seen >= STALE / 2,
    };
    if !changed {
        return None;
    }
    let mut members: Vec<PoolMember> =
        before.members.iter().filter(|one| one.node != own.node && now - one.seen <= STALE).cloned().collect();
    if !own.devices.is_empty() {
        members.push(own);
    }
    members.sort_by(|a, b| a.node.cmp(&b.node));
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let devices = members.iter().map(|one| one.devices.len()).sum();
    Some(PoolStatus {
        services: count(members.len()),
        devices: count(devices),
        members,
        conditions: before.conditions.clone(),
    })
}

/// `1.5 GiB`.
fn human(bytes: u64) -> String {
    let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let found = units.into_iter().find(|(_, unit)| bytes >= *unit);
    found.map_or_else(|| bytes.to_string(), |(name, unit)| format!("{:.1} {name}", bytes as f64 / unit as f64))
}

/// What a service's metrics say.
#[derive(Clone, Debug, Default, PartialEq)]
struct Usage {
    devices: BTreeMap<u64, (String, u64)>,
    namespaces: BTreeMap<String, NamespaceUse>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct NamespaceUse {
    sessions: u32,
    memory: u64,
    /// Memory by device.
    devices: BTreeMap<u64, u64>,
    device_seconds: f64,
    refusals: u64,
}

impl Usage {
    /// Lines that are not understood are left out.
    fn read(text: &str) -> Usage {
        let mut usage = Usage::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, labels, value)) = sample(line) else { continue };
            let device = || labels.get("device").and_then(|number| number.parse().ok());
            let namespace =
                labels.get("tenant").and_then(|tenant| tenant.split_once('/')).map(|(name, _)| name.to_owned());
            match (name, namespace) {
                ("telecl_device_memory_bytes", _) => {
                    if let (Some(number), Some(name)) = (device(), labels.get("name")) {
                        usage.devices.insert(number, (name.clone(), value as u64));
                    }
                }
                ("telecl_tenant_sessions_present", Some(namespace)) => {
                    usage.namespaces.entry(namespace).or_default().sessions += value as u32;
                }
                ("telecl_tenant_memory_bytes", Some(namespace)) => {
                    let own = usage.namespaces.entry(namespace).or_default();
                    own.memory += value as u64;
                    if let Some(number) = device() {
                        *own.devices.entry(number).or_default() += value as u64;
                    }
                }
                ("telecl_tenant_refusals_total", Some(namespace)) => {
                    usage.namespaces.entry(namespace).or_default().refusals += value as u64;
                }
                ("telecl_tenant_device_seconds_total", Some(namespace)) => {
                    usage.namespaces.entry(namespace).or_default().device_seconds += value;
                }
                _ => {}
            }
        }
        usage
    }

    /// How much of one device's time each namespace has had, in percent.
    fn spent(&self, before: &Usage, passed: Duration) -> BTreeMap<String, u32> {
        let part = |(namespace, now): (&String, &NamespaceUse)| {
            let then = before.namespaces.get(namespace).map_or(0.0, |then| then.device_seconds);
            let percent = (now.device_seconds - then).max(0.0) * 100.0 / passed.as_secs_f64().max(0.001);
            (namespace.clone(), percent.round() as u32)
        };
        self.namespaces.iter().map(part).collect()
    }

    /// The devices that belong to a pool. Metrics know their names and numbers only.
    fn devices_of(&self, pool: &AcceleratorPool) -> Vec<PoolDevice> {
        let patterns: Vec<DevicePattern> =
            pool.spec.devices.iter().filter_map(|text| DevicePattern::parse(text).ok()).collect();
        let belongs = |(number, (name, _)): &(&u64, &(String, u64))| {
            let facts = DeviceFacts { number: **number, name, platform: "", uuid: None };
            pool.spec.devices.is_empty() || patterns.iter().any(|pattern| pattern.matches(&facts))
        };
        let device = |(number, (name, memory)): (&u64, &(String, u64))| PoolDevice {
            number: *number,
            name: name.clone(),
            memory: *memory,
        };
        self.devices.iter().filter(belongs).map(device).collect()
    }
}

/// The name, the labels and the value of a line.
fn sample(line: &str) -> Option<(&str, BTreeMap<String, String>, f64)> {
    let (head, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, rest)) = head.split_once('{') else { return Some((head, BTreeMap::new(), value)) };
    let mut labels = BTreeMap::new();
    let mut rest = rest.strip_suffix('}')?;
    while let Some((key, after)) = rest.split_once("=\"") {
        let mut text = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next()? {
                (_, '\\') => match characters.next()?.1 {
                    'n' => text.push('\n'),
                    other => text.push(other),
                },
                (at, '"') => break at,
                (_, other) => text.push(other),
            }
        };
        labels.insert(key.trim_start_matches(',').to_owned(), text);
        rest = &after[end + 1..];
    }
    Some((name, labels, value))
}

/// What the service's page of metrics has.
async fn metrics(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).await?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PAGE: &str = r#"# HELP telecl_device_memory_bytes x
telecl_device_memory_bytes{device="1",name="NVIDIA \"H200\""} 1000
telecl_device_memory_bytes{device="2",name="pthread"} 500
telecl_tenant_sessions_present{tenant="red/default"} 2
telecl_tenant_sessions_present{tenant="red/runner@small"} 1
telecl_tenant_sessions_present{tenant="user:root"} 7
telecl_tenant_memory_bytes{tenant="red/default",device="1"} 100
telecl_tenant_memory_bytes{tenant="red/default",device="2"} 11
telecl_tenant_device_seconds_total{tenant="red/default",device="1"} 2.5
telecl_tenant_refusals_total{tenant="red/default"} 4
nonsense
telecl_tenant_memory_bytes{tenant="blue/x 4
"#;

    #[test]
    fn metrics_are_summed_up_by_namespace() {
        let usage = Usage::read(PAGE);
        let devices = BTreeMap::from([(1, 100), (2, 11)]);
        let red = NamespaceUse { sessions: 3, memory: 111, devices, device_seconds: 2.5, refusals: 4 };
        assert_eq!(usage.namespaces, BTreeMap::from([("red".to_owned(), red)]));
        let mut later = usage.clone();
        later.namespaces.get_mut("red").unwrap().device_seconds = 5.0;
        assert_eq!(later.spent(&usage, Duration::from_secs(5))["red"], 50);
        let pool = |devices| AcceleratorPool::new("p", serde_json::from_value(json!({"devices": devices})).unwrap());
        assert_eq!(usage.devices_of(&pool(json!(["*h200*"])))[0].memory, 1000);
        assert_eq!(usage.devices_of(&pool(json!([]))).len(), 2);
        assert_eq!(usage.devices_of(&pool(json!(["number:2"])))[0].name, "pthread");
    }

    #[test]
    fn a_quota_is_used_up_when_somebody_was_refused_or_hardly_any_memory_is_left() {
        let usage = Usage::read(PAGE);
        let red = &usage.namespaces["red"];
        let quota = |value| serde_json::from_value::<QuotaSpec>(value).unwrap();
        let found = |value, refused| exhausted(&quota(value), red, refused, &usage.devices);
        assert_eq!(found(json!({"sessions": 3}), false), None);
        assert_eq!(found(json!({"sessions": 4}), true), None);
        assert!(found(json!({"sessions": 3}), true).unwrap().contains("all 3 sessions"));
        assert_eq!(found(json!({"deviceMemory": "1Gi"}), true), None);
        assert_eq!(found(json!({"deviceMemory": "20 %"}), true), None);
        let text = found(json!({"deviceMemory": "10 %"}), false).unwrap();
        assert_eq!(text, "100 of 10 % of the memory of NVIDIA \"H200\" are in use");
    }

    fn uses(node: &str, sessions: u32, seen: i64) -> ServiceUse {
        ServiceUse {
            node: node.to_owned(),
            sessions,
            memory_bytes: u64::from(sessions) << 30,
            device_percent: 10,
            seen,
        }
    }

    #[test]
    fn a_status_is_the_sum_of_what_all_say_and_is_written_only_if_it_changes() {
        let before = QuotaStatus::default();
        let first = with_use(&before, uses("a", 1, 100), 100).unwrap();
        assert_eq!((first.used.sessions, first.used.memory.as_str()), (1, "1.0 GiB"));
        let mut second = with_use(&first, uses("b", 2, 101), 101).unwrap();
        assert_eq!((second.used.sessions, second.used.device_percent), (3, 20));
        assert_eq!(with_use(&second, uses("b", 2, 110), 110), None);
        assert!(with_use(&second, uses("b", 2, 101 + REFRESH), 101 + REFRESH).is_some());
        // One that has gone is left out, and so is one that has nothing any more.
        let third = with_use(&second, uses("b", 0, 120), 120).unwrap();
        assert_eq!(third.used.sessions, 1);
        second.services[0].seen = 101 - STALE - 10;
        assert_eq!(with_use(&second, uses("b", 2, 110), 110).unwrap().used.sessions, 2);
        // Nobody who uses nothing writes again and again.
        let conditions = vec![condition(&[], None, true, "InForce", String::new())];
        let quiet = QuotaStatus { conditions, ..QuotaStatus::default() };
        assert_eq!(with_use(&quiet, uses("c", 0, 1), 1), None);
    }

    #[test]
    fn a_pool_has_the_devices_of_all_its_services() {
        let device = PoolDevice { number: 1, name: "x".to_owned(), memory: 5 };
        let member = |node: &str, devices: usize, seen| PoolMember {
            node: node.to_owned(),
            devices: vec![device.clone(); devices],
            seen,
        };
        let one = with_member(&PoolStatus::default(), member("a", 2, 1), 1).unwrap();
        let two = with_member(&one, member("b", 1, 2), 2).unwrap();
        assert_eq!((two.services, two.devices), (2, 3));
        assert_eq!(with_member(&two, member("b", 1, 9), 9), None);
        assert_eq!(with_member(&two, member("c", 0, 9), 9), None);
        let left = with_member(&two, member("a", 0, 9), 9).unwrap();
        assert_eq!((left.services, left.devices), (1, 1));
    }
}
