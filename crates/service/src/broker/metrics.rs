//! What Prometheus gets: the text of all metrics, made anew for each scrape.
//!
//! Nothing is kept for it, so there are no series of tenants who are gone but those of their accounts. Labels have only
//! values that are ours or were checked: numbers and names of devices, tenants' names, and names of pods that are here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use telecl_wire::PROTOCOL_VERSION;
use telecl_wire::status::Sensors;

use super::Broker;
use super::accounts::{Account, Seen};
use super::overview::{DeviceView, Overview};
use crate::board::{Count, DeviceCount};

/// Whom the tenants are put together under that left long ago: no tenant can have this name.
const OTHERS: &str = "(other)";

/// More pods than this have no figures of their own.
const MOST_PODS: usize = 2000;

const NANOSECONDS: f64 = 1e-9;

/// All metrics of a broker.
pub(crate) fn registry(broker: &Arc<Broker>) -> Registry {
    let mut registry = Registry::default();
    registry.register_with_unit(
        "telecl_session_round_trip",
        "Round trip of sessions over TCP, as the kernel had measured it when their first request came",
        Unit::Seconds,
        broker.counters.round_trips.clone(),
    );
    registry.register_collector(Box::new(Metrics(Arc::clone(broker))));
    registry
}

/// As text in the format OpenMetrics.
pub(crate) fn text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Metrics(Arc<Broker>);

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let broker = &*self.0;
        broker.sensors.want();
        let overview = Overview::take(broker);
        let mut page = Page(encoder);
        service(&mut page, broker, &overview)?;
        devices(&mut page, &overview.devices)?;
        tenants(&mut page, &overview)?;
        pods(&mut page, &overview.sessions)
    }
}

type Labels = Vec<(&'static str, String)>;

/// One metric.
struct Named {
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
}

/// A metric, and where its value comes from.
type Of<T> = (Named, fn(&T) -> f64);

const fn named(name: &'static str, unit: Option<Unit>, help: &'static str) -> Named {
    Named { name, unit, help }
}

struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn counters(&mut self, metric: &Named, samples: impl IntoIterator<Item = (Labels, f64)>) -> fmt::Result {
        self.family(metric, MetricType::Counter, samples, ConstCounter::new)
    }

    fn gauges(&mut self, metric: &Named, samples: impl IntoIterator<Item = (Labels, f64)>) -> fmt::Result {
        self.family(metric, MetricType::Gauge, samples, ConstGauge::new)
    }

    /// A family without samples is left out.
    fn family<M: EncodeMetric>(
        &mut self,
        metric: &Named,
        kind: MetricType,
        samples: impl IntoIterator<Item = (Labels, f64)>,
        make: impl Fn(f64) -> M,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let help = format!("{}.", metric.help);
        let mut family = self.0.encode_descriptor(metric.name, &help, metric.unit.as_ref(), kind)?;
        for (labels, value) in samples {
            if labels.is_empty() {
                return make(value).encode(family);
            }
            make(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn service(page: &mut Page<'_>, broker: &Broker, overview: &Overview) -> fmt::Result {
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned()), ("protocol", PROTOCOL_VERSION.to_string())];
    page.0.encode_descriptor("telecl_service", "What runs.", None, MetricType::Info)?.encode_info(&version)?;
    let uptime = named("telecl_service_uptime", Some(Unit::Seconds), "For how long the service has run");
    page.gauges(&uptime, [(Labels::new(), broker.started.elapsed().as_secs_f64())])?;
    let draining = named("telecl_service_draining", None, "Whether the service takes no new sessions");
    page.gauges(&draining, [(Labels::new(), f64::from(u8::from(broker.drain.is_on())))])?;
    let connections = named("telecl_connections", None, "Connections that were accepted");
    page.counters(&connections, [(Labels::new(), broker.counters.connections.load(Ordering::Relaxed) as f64)])?;
    let open =
        named("telecl_open_connections", None, "Connections of sessions, and those that have not said what they are");
    let strangers = broker.room.len();
    page.gauges(&open, [(Labels::new(), (strangers + overview.sessions.len()) as f64)])?;
    let failures = named("telecl_handshake_failures", None, "Connections that came to nothing, by reason");
    let reason = |(reason, count): (&'static str, u64)| (vec![("reason", reason.to_owned())], count as f64);
    page.counters(&failures, broker.counters.failures().map(reason))
}

fn devices(page: &mut Page<'_>, devices: &[DeviceView]) -> fmt::Result {
    let labels = |view: &DeviceView| -> Labels {
        vec![("device", view.device.id.to_string()), ("name", view.device.name.clone())]
    };
    let each = |value: fn(&DeviceView) -> f64| devices.iter().map(move |view| (labels(view), value(view)));
    let busy = "Time in which sessions had commands on the device, of all sessions together";
    page.counters(
        &named("telecl_device_busy", Some(Unit::Seconds), busy),
        each(|view| view.busy_ns as f64 * NANOSECONDS),
    )?;
    let gauges: [Of<DeviceView>; 4] = [
        (named("telecl_device_memory", Some(Unit::Bytes), "All the memory it has"), |view| view.device.memory as f64),
        (named("telecl_device_memory_used", Some(Unit::Bytes), "Memory objects of all sessions"), |view| {
            view.used as f64
        }),
        (
            named(
                "telecl_device_memory_promised",
                Some(Unit::Bytes),
                "What the sessions there may use by their policy",
            ),
            |view| view.promised as f64,
        ),
        (named("telecl_device_sessions", None, "Sessions that use it"), |view| f64::from(view.sessions)),
    ];
    for (metric, value) in gauges {
        page.gauges(&metric, each(value))?;
    }
    sensors(page, devices, labels)
}

fn sensors(page: &mut Page<'_>, devices: &[DeviceView], labels: impl Fn(&DeviceView) -> Labels + Copy) -> fmt::Result {
    let each = |value: fn(&Sensors) -> Option<f64>| {
        devices.iter().filter_map(move |view| Some((labels(view), view.sensors.as_ref().and_then(value)?)))
    };
    let celsius = named("telecl_device_temperature", Some(Unit::Celsius), "Temperature, by its own sensor");
    page.gauges(&celsius, each(|sensors| sensors.celsius.map(f64::from)))?;
    let watts = named("telecl_device_power", Some(Unit::Other("watts".to_owned())), "Power that it takes");
    page.gauges(&watts, each(|sensors| sensors.milliwatts.map(|power| f64::from(power) / 1000.0)))?;
    let clock = |clock: &'static str, value: fn(&Sensors) -> Option<u32>| {
        devices.iter().filter_map(move |view| {
            let mhz = view.sensors.as_ref().and_then(value)?;
            Some(([labels(view), vec![("clock", clock.to_owned())]].concat(), f64::from(mhz) * 1e6))
        })
    };
    let hertz = named("telecl_device_clock", Some(Unit::Other("hertz".to_owned())), "How fast it runs");
    page.gauges(&hertz, clock("core", |s| s.core_mhz).chain(clock("memory", |s| s.memory_mhz)))?;
    let ratio = named(
        "telecl_device_utilization",
        Some(Unit::Other("ratio".to_owned())),
        "Of the last moments, how much something ran",
    );
    page.gauges(&ratio, each(|sensors| sensors.busy_percent.map(|percent| f64::from(percent) / 100.0)))?;
    let used =
        named("telecl_device_memory_occupied", Some(Unit::Bytes), "Memory in use, by its own word and by whomever");
    page.gauges(&used, each(|sensors| sensors.memory_used.map(|bytes| bytes as f64)))
}

fn tenants(page: &mut Page<'_>, overview: &Overview) -> fmt::Result {
    let accounts = || {
        let known = overview.tenants.iter().map(|(tenant, account)| (tenant.as_str(), account));
        known.chain(overview.others.iter().map(|account| (OTHERS, account)))
    };
    let tenant = |name: &str| -> Labels { vec![("tenant", name.to_owned())] };
    let each = |value: fn(&Account) -> f64| accounts().map(move |(name, account)| (tenant(name), value(account)));
    page.gauges(
        &named("telecl_tenant_sessions_present", None, "Sessions that are here"),
        each(|a| f64::from(a.present)),
    )?;
    let counters: [Of<Account>; 9] = [
        (named("telecl_tenant_sessions", None, "Sessions that have had a worker"), |a| a.sessions as f64),
        (named("telecl_tenant_sessions_failed", None, "… and that ended as none should"), |a| a.ended_badly as f64),
        (named("telecl_tenant_refusals", None, "Sessions and contexts that found no room"), |a| a.refused as f64),
        (named("telecl_tenant_admission_wait", Some(Unit::Seconds), "Time for which they waited for room"), |a| {
            a.admission_wait.as_secs_f64()
        }),
        (named("telecl_tenant_commands", None, "Commands"), |a| a.figures.get(Count::Commands) as f64),
        (named("telecl_tenant_errors", None, "Requests and commands that failed"), |a| {
            a.figures.get(Count::Failures) as f64
        }),
        (named("telecl_tenant_builds", None, "Programs that the compiler was asked for"), |a| {
            a.figures.get(Count::Builds) as f64
        }),
        (named("telecl_tenant_cache_hits", None, "Programs that came from the cache"), |a| {
            a.figures.get(Count::CacheHits) as f64
        }),
        (named("telecl_tenant_overruns", None, "Kernels that ran for longer than its policy allows"), |a| {
            a.figures.get(Count::Overruns) as f64
        }),
    ];
    for (metric, value) in counters {
        page.counters(&metric, each(value))?;
    }
    let bytes = named("telecl_tenant_transfer", Some(Unit::Bytes), "Bytes of frames and payloads, before compression");
    let both = [(Count::BytesIn, "in"), (Count::BytesOut, "out")];
    page.counters(
        &bytes,
        accounts().flat_map(|(name, account)| {
            both.map(|(count, direction)| {
                (
                    vec![("tenant", name.to_owned()), ("direction", direction.to_owned())],
                    account.figures.get(count) as f64,
                )
            })
        }),
    )?;
    on_devices(page, accounts().collect())
}

/// What the sessions of pods come to that are here: their names come and go, and so do these figures.
fn pods(page: &mut Page<'_>, sessions: &[Seen]) -> fmt::Result {
    let mut found: BTreeMap<(&str, &str, &str), (u32, u64, u64)> = BTreeMap::new();
    for seen in sessions {
        let Some(pod) = &seen.who.pod else { continue };
        let key = (seen.who.tenant.as_str(), pod.name.as_str(), pod.container.as_deref().unwrap_or_default());
        if found.len() >= MOST_PODS && !found.contains_key(&key) {
            continue;
        }
        let (sessions, memory, busy) = found.entry(key).or_default();
        *sessions += 1;
        for (_, figures) in seen.figures.devices() {
            *memory = memory.saturating_add(figures.get(DeviceCount::Memory));
            *busy = busy.saturating_add(figures.get(DeviceCount::Busy));
        }
    }
    // Most services are in no cluster.
    if found.is_empty() {
        return Ok(());
    }
    let labels = |(tenant, pod, container): (&str, &str, &str)| -> Labels {
        [("tenant", tenant), ("pod", pod), ("container", container)]
            .map(|(name, value)| (name, value.to_owned()))
            .into()
    };
    let each = |value: fn(&(u32, u64, u64)) -> f64| found.iter().map(move |(key, all)| (labels(*key), value(all)));
    page.gauges(&named("telecl_pod_sessions", None, "Sessions of a pod that are here"), each(|all| f64::from(all.0)))?;
    let memory = named("telecl_pod_memory", Some(Unit::Bytes), "Memory objects of these sessions");
    page.gauges(&memory, each(|all| all.1 as f64))?;
    let busy = named("telecl_pod_device", Some(Unit::Seconds), "Time in which these sessions had commands on devices");
    page.gauges(&busy, each(|all| all.2 as f64 * NANOSECONDS))
}

fn on_devices(page: &mut Page<'_>, accounts: Vec<(&str, &Account)>) -> fmt::Result {
    let each = |count: DeviceCount, factor: f64| {
        accounts.iter().flat_map(move |(name, account)| {
            account.figures.devices().map(move |(id, figures)| {
                let labels = vec![("tenant", (*name).to_owned()), ("device", id.to_string())];
                (labels, figures.get(count) as f64 * factor)
            })
        })
    };
    let seconds = || Some(Unit::Seconds);
    let busy = named("telecl_tenant_device", seconds(), "Time in which its sessions had commands on the device");
    page.counters(&busy, each(DeviceCount::Busy, NANOSECONDS))?;
    let wait = named("telecl_tenant_queue_wait", seconds(), "Time in which its sessions waited for their turn");
    page.counters(&wait, each(DeviceCount::Waited, NANOSECONDS))?;
    let throttled =
        named("telecl_tenant_throttled", seconds(), "Of that, time in which its policy kept them waiting, by reason");
    page.counters(
        &throttled,
        DeviceCount::REASONS.into_iter().flat_map(|(count, reason)| {
            each(count, NANOSECONDS)
                .map(move |(labels, value)| ([labels, vec![("reason", reason.to_owned())]].concat(), value))
        }),
    )?;
    let memory = named("telecl_tenant_memory", Some(Unit::Bytes), "Memory objects of its sessions");
    page.gauges(&memory, each(DeviceCount::Memory, 1.0))?;
    let parked =
        named("telecl_tenant_memory_parked", Some(Unit::Bytes), "Of that, what is in host memory while others run");
    page.gauges(&parked, each(DeviceCount::Parked, 1.0))
}

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime};

    use telecl_policy::Tenant;

    use super::*;
    use crate::broker::accounts::Who;
    use crate::broker::figures::Figures;
    use crate::broker::offer::Known;
    use crate::broker::review::Pod;

    #[derive(Debug)]
    struct Cluster(Vec<Seen>);

    impl Collector for Cluster {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            pods(&mut Page(encoder), &self.0)
        }
    }

    /// A session of this pod; of none if it has no name.
    fn session(pod: &str) -> Seen {
        let pod = Pod { name: pod.to_owned(), uid: "77-ab".to_owned(), container: Some("main".to_owned()) };
        let who = Who {
            session: 7,
            tenant: Tenant::parse("red/default").unwrap(),
            user: None,
            pod: Some(pod).filter(|pod| !pod.name.is_empty()),
            peer: "10.0.0.1:99".to_owned(),
            program: "hashcat".to_owned(),
            pid: 12,
            begun: SystemTime::now(),
            since: Instant::now(),
        };
        Seen { who: Arc::new(who), works: true, devices: vec![1], figures: Figures::default() }
    }

    fn page_of_pods(sessions: Vec<Seen>) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Cluster(sessions)));
        text(&registry).unwrap()
    }

    #[test]
    fn pods_have_figures_as_long_as_they_are_here_and_not_too_many_of_them() {
        let page = page_of_pods(vec![session("train-0"), session(""), session("train-0")]);
        let line = "telecl_pod_sessions{tenant=\"red/default\",pod=\"train-0\",container=\"main\"} 2.0\n";
        assert!(page.contains(line) && page.matches("\ntelecl_pod_").count() == 3, "{page}");
        assert!(!page_of_pods(vec![session("")]).contains("telecl_pod"));
        let many = page_of_pods((0..MOST_PODS + 5).map(|number| session(&format!("train-{number}"))).collect());
        assert_eq!(many.matches("\ntelecl_pod_sessions{").count(), MOST_PODS);
    }

    #[derive(Debug)]
    struct Node(Vec<DeviceView>);

    impl Collector for Node {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            devices(&mut Page(encoder), &self.0)
        }
    }

    fn page(sensors: Option<Sensors>) -> String {
        let device = Known { id: 1, name: "an \"H200\"".to_owned(), memory: 1 << 30, ..Known::default() };
        let (used, promised, sessions, busy_ns) = (1 << 20, 2 << 20, 3, 1_500_000_000);
        let view = DeviceView { device: Arc::new(device), used, promised, sessions, busy_ns, sensors };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Node(vec![view])));
        text(&registry).unwrap()
    }

    #[test]
    fn a_device_has_its_figures_in_base_units() {
        let page = page(None);
        let labels = "{device=\"1\",name=\"an \\\"H200\\\"\"}";
        for (name, value) in [
            ("busy_seconds_total", "1.5"),
            ("memory_bytes", "1073741824.0"),
            ("memory_used_bytes", "1048576.0"),
            ("memory_promised_bytes", "2097152.0"),
            ("sessions", "3.0"),
        ] {
            let line = format!("telecl_device_{name}{labels} {value}\n");
            assert!(page.contains(&line), "{line}{page}");
        }
        assert!(!page.contains("celsius") && page.ends_with("# EOF\n"));
    }

    #[test]
    fn what_sensors_say_is_there_and_what_they_do_not_is_not() {
        let sensors = Sensors {
            celsius: Some(61),
            milliwatts: Some(512_250),
            core_mhz: Some(1980),
            memory_mhz: None,
            busy_percent: Some(97),
            memory_used: Some(5),
        };
        let page = page(Some(sensors));
        for (name, value) in [
            ("temperature_celsius{device=\"1\"", "61.0"),
            ("power_watts{device=\"1\"", "512.25"),
            ("clock_hertz{device=\"1\"", "1980000000.0"),
            ("utilization_ratio{device=\"1\"", "0.97"),
            ("memory_occupied_bytes{device=\"1\"", "5.0"),
        ] {
            let name = format!("telecl_device_{name}");
            let line = page.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("{name}\n{page}"));
            assert!(line.ends_with(value), "{line}");
        }
        assert!(page.contains("clock=\"core\"") && !page.contains("clock=\"memory\""));
    }
}
