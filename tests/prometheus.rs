//! What `deploy/` has for Prometheus and Grafana, against a real Prometheus that scrapes a real service.
#![forbid(unsafe_code)]
// clippy.toml allows it in tests, but does not see that all functions of this file are part of one.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use system_tests::{Bench, Ended, Link, Running, SOON, get, metrics_address, run, wait_until};
use tempfile::TempDir;

/// Only where a device has sensors.
const SENSORS: [&str; 5] = [
    "telecl_device_temperature_celsius",
    "telecl_device_power_watts",
    "telecl_device_clock_hertz",
    "telecl_device_utilization_ratio",
    "telecl_device_memory_occupied_bytes",
];

/// Debian keeps them in one package.
fn tool(program: &str, args: &[&str]) -> Ended {
    let mut command = Command::new(program);
    command.args(args);
    let ended = run(command, SOON);
    ended.unwrap_or_else(|error| panic!("cannot run {program}: {error}. Install Debian's package prometheus"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn rules() -> PathBuf {
    root().join("deploy/prometheus/telecl-rules.yml")
}

#[test]
fn the_alerts_are_right_and_fire_when_they_should() {
    let checked = tool("promtool", &["check", "rules", &rules().display().to_string()]);
    assert!(checked.success(), "{checked}");
    let tests = root().join("deploy/prometheus/telecl-rules.test.yml");
    let tested = tool("promtool", &["test", "rules", &tests.display().to_string()]);
    assert!(tested.success(), "{tested}");
    // None is left out.
    let text = fs::read_to_string(rules()).unwrap();
    let tests = fs::read_to_string(tests).unwrap();
    let alerts: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!alerts.is_empty());
    for alert in alerts {
        assert!(tests.contains(&format!("alertname: {alert}\n        exp_alerts:")), "{alert} has no test");
    }
}

/// A Prometheus that scrapes one address every second.
struct Prometheus {
    address: String,
    _process: Running,
    _directory: TempDir,
}

impl Prometheus {
    fn scraping(target: &str) -> Prometheus {
        let directory = TempDir::new().unwrap();
        let config = directory.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [\"{}\"]\nscrape_configs:\n  - job_name: \
             telecl\n    static_configs: [{{targets: [\"{target}\"]}}]\n",
            rules().display()
        );
        fs::write(&config, text).unwrap();
        // It cannot choose a port itself; this one was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"));
        let process = Running::start(command);
        let process = process.unwrap_or_else(|error| panic!("{error}. Install Debian's package prometheus"));
        let ready = || std::net::TcpStream::connect(&address).is_ok() && get(&address, "/-/ready").0.contains(" 200 ");
        wait_until("Prometheus", Duration::from_secs(60), ready);
        Prometheus { address, _process: process, _directory: directory }
    }

    fn ask(&self, path: &str) -> Value {
        let (head, body) = get(&self.address, path);
        // It may come in chunks, which have lines of their own.
        let json = body.find('{').zip(body.rfind('}')).map(|(begin, end)| &body[begin..=end]);
        let answer: Value =
            json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_else(|| panic!("{path}: {head}\n{body}"));
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    fn query(&self, expression: &str) -> Value {
        let escaped: String = expression
            .bytes()
            .map(
                |byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") },
            )
            .collect();
        self.ask(&format!("/api/v1/query?query={escaped}"))
    }

    /// All metrics that it has.
    fn names(&self) -> BTreeSet<String> {
        let names = self.ask("/api/v1/label/__name__/values");
        names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }
}

/// The metrics of ours that a text names.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("telecl_")
        .filter(|(at, _)| !text[..*at].ends_with(is_name))
        .map(|(at, _)| text[at..].chars().take_while(|c| is_name(*c)).collect())
        .collect()
}

/// Every string under a key, however deep.
fn all<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                match inner.as_str() {
                    Some(text) if name == key => found.push(text),
                    _ => all(inner, key, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| all(inner, key, found)),
        _ => {}
    }
}

#[test]
fn everything_that_the_dashboard_and_the_alerts_ask_for_is_there() {
    let bench = Bench::new();
    let service = bench.service_at("127.0.0.1:0", &[("TELECL_METRICS", "127.0.0.1:0")]);
    let _program = bench.client(&service, Link::Tcp, "work_and_stay", "worked");
    let prometheus = Prometheus::scraping(&metrics_address(&service));
    let scraped =
        || prometheus.query("telecl_tenant_commands_total")["result"].as_array().is_some_and(|r| !r.is_empty());
    wait_until("a scrape", SOON, scraped);
    let twice = || {
        prometheus.query("rate(telecl_tenant_commands_total[1m])")["result"].as_array().is_some_and(|r| !r.is_empty())
    };
    wait_until("two scrapes, so that there are rates", SOON, twice);
    assert_eq!(prometheus.query("up{job=\"telecl\"}")["result"][0]["value"][1], "1");
    let names = prometheus.names();

    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(root().join("deploy/grafana/telecl.json")).unwrap()).unwrap();
    let mut expressions = Vec::new();
    all(&dashboard["panels"], "expr", &mut expressions);
    assert!(expressions.len() > 20);
    for expression in &expressions {
        let expression =
            expression.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$tenant", ".*");
        assert!(!expression.contains('$'), "{expression}");
        let answer = prometheus.query(&expression);
        // Sums of what has not happened are there, too: an empty answer means that a label is wrong.
        let may_be_empty = expression.contains("> 0");
        let sensors = metrics_in(&expression).iter().all(|name| SENSORS.contains(&name.as_str()));
        let found = answer["result"].as_array().unwrap().len();
        assert!(found > 0 || may_be_empty || sensors, "nothing for {expression}");
    }
    let mut variables = Vec::new();
    all(&dashboard["templating"], "query", &mut variables);
    let rules = fs::read_to_string(rules()).unwrap();
    let named = expressions.iter().chain(&variables).map(|text| (*text).to_owned()).chain([rules.clone()]);
    for name in named.flat_map(|text| metrics_in(&text)) {
        assert!(names.contains(&name) || SENSORS.contains(&name.as_str()), "there is no {name} among {names:#?}");
    }
    // The alerts are loaded, and work with what is there.
    let groups = prometheus.ask("/api/v1/rules");
    let loaded = groups["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(loaded.len(), rules.matches("- alert:").count());
    wait_until("all alerts have been evaluated", SOON, || {
        let groups = prometheus.ask("/api/v1/rules");
        groups["groups"][0]["rules"].as_array().unwrap().iter().all(|rule| rule["health"] == "ok")
    });

    // What is documented is there, and what is there is documented.
    let page = fs::read_to_string(root().join("docs/monitoring.md")).unwrap();
    let documented = metrics_in(&page);
    // There are no pods here; tests/kube/agent is about those.
    let here = |name: &&String| !SENSORS.contains(&name.as_str()) && !name.starts_with("telecl_pod_");
    for name in documented.iter().filter(here) {
        let histogram = format!("{name}_bucket");
        assert!(names.contains(name) || names.contains(&histogram), "docs/monitoring.md names {name}");
    }
    for name in names.iter().filter(|name| name.starts_with("telecl_")) {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(documented.contains(family), "docs/monitoring.md does not name {name}");
    }
}
