//! Asking the services, and putting their sessions together with pods.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kubectl::Kubectl;

/// Which pods are services.
pub(crate) const SERVICES: &str = "app.kubernetes.io/name=telecl,app.kubernetes.io/component=service";
/// How many are asked at a time.
const AT_ONCE: usize = 16;

/// What `telecl top --json` says of one service; see `docs/monitoring.md`.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Service {
    #[serde(default)]
    pub(crate) draining: bool,
    #[serde(default)]
    pub(crate) version: String,
    pub(crate) devices: Vec<Device>,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) sessions: Vec<Session>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Device {
    pub(crate) device: u64,
    pub(crate) name: String,
    pub(crate) memory: u64,
    pub(crate) memory_used: u64,
    pub(crate) sessions: u32,
    pub(crate) busy: Option<f64>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Tenant {
    pub(crate) tenant: String,
    pub(crate) sessions: u32,
    pub(crate) refused: u64,
    pub(crate) devices: Vec<Use>,
    pub(crate) busy: Option<f64>,
    pub(crate) waiting: Option<f64>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Session {
    pub(crate) tenant: String,
    /// `pod` or `pod/container`.
    #[serde(default)]
    pub(crate) pod: Option<String>,
    pub(crate) peer: String,
    pub(crate) program: String,
    pub(crate) devices: Vec<Use>,
    pub(crate) busy: Option<f64>,
    pub(crate) waiting: Option<f64>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Use {
    pub(crate) device: u64,
    pub(crate) memory: u64,
}

/// A service and where it runs.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    pub(crate) node: String,
    pub(crate) pod: String,
    #[serde(flatten)]
    pub(crate) service: Service,
}

/// A pod that has the driver.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) phase: String,
    pub(crate) profile: String,
    pub(crate) sessions: u32,
    pub(crate) memory: u64,
    pub(crate) busy: f64,
    pub(crate) waiting: f64,
    /// The nodes whose services it uses.
    pub(crate) services: Vec<String>,
    #[serde(skip)]
    addresses: Vec<IpAddr>,
}

/// A pod of a service, and its node.
pub(crate) fn service_pods(kubectl: &Kubectl, system: &str) -> anyhow::Result<Vec<(String, String)>> {
    let pods = kubectl.items(&["pods", "-n", system, "-l", SERVICES])?;
    let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
    Ok(running.map(|pod| (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"))).collect())
}

/// What all services say, and what is wrong with those that do not.
pub(crate) fn ask_all(kubectl: &Kubectl, system: &str) -> anyhow::Result<(Vec<Answer>, Vec<String>)> {
    let pods = service_pods(kubectl, system)?;
    let next = AtomicUsize::new(0);
    let done = Mutex::new((Vec::new(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..pods.len().min(AT_ONCE) {
            scope.spawn(|| {
                while let Some((pod, node)) = pods.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = ask(kubectl, system, pod);
                    let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match answer {
                        Ok(service) => done.0.push(Answer { node: node.clone(), pod: pod.clone(), service }),
                        Err(cause) => done.1.push(format!("the service on {node} does not answer: {cause:#}")),
                    }
                }
            });
        }
    });
    let (mut answers, problems) = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    answers.sort_by(|a, b| (&a.node, &a.pod).cmp(&(&b.node, &b.pod)));
    Ok((answers, problems))
}

fn ask(kubectl: &Kubectl, system: &str, pod: &str) -> anyhow::Result<Service> {
    let mut said = kubectl.json(&["exec", "-n", system, pod, "-c", "service", "--", "telecl", "top", "--json"])?;
    let service = said["services"].get_mut(0).map(Value::take);
    let reason = || said["unreachable"][0]["reason"].as_str().unwrap_or("it said nothing").to_owned();
    Ok(serde_json::from_value(service.ok_or_else(|| anyhow::anyhow!(reason()))?)?)
}

pub(crate) fn as_json(answers: &[Answer]) -> Value {
    json!({ "services": answers })
}

/// Injected pods of a namespace, of the context's namespace, or of all.
pub(crate) fn pods(kubectl: &Kubectl, namespace: Option<&str>, all: bool) -> anyhow::Result<Vec<Pod>> {
    let mut arguments = vec!["pods", "-l", "telecl.dev/injected=true"];
    match namespace {
        Some(namespace) => arguments.extend(["-n", namespace]),
        None if all => arguments.push("-A"),
        None => {}
    }
    Ok(kubectl.items(&arguments)?.iter().map(pod).collect())
}

fn pod(pod: &Value) -> Pod {
    let addresses = pod["status"]["podIPs"].as_array().into_iter().flatten();
    Pod {
        namespace: text(pod, "/metadata/namespace"),
        name: text(pod, "/metadata/name"),
        phase: text(pod, "/status/phase"),
        profile: text(pod, "/metadata/labels/telecl.dev~1profile"),
        addresses: addresses.filter_map(|address| address["ip"].as_str()?.parse().ok()).collect(),
        ..Pod::default()
    }
}

/// Adds up what each pod's sessions use.
pub(crate) fn uses(mut pods: Vec<Pod>, answers: &[Answer]) -> Vec<Pod> {
    pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    for answer in answers {
        for session in &answer.service.sessions {
            let Some(pod) = pods.iter_mut().find(|pod| is_of(session, pod)) else { continue };
            pod.sessions += 1;
            pod.memory += session.devices.iter().map(|one| one.memory).sum::<u64>();
            pod.busy += session.busy.unwrap_or_default();
            pod.waiting += session.waiting.unwrap_or_default();
            if !pod.services.contains(&answer.node) {
                pod.services.push(answer.node.clone());
            }
        }
    }
    pods
}

/// The pod's token says which one it is. Without that, a session is a running pod's if it comes from its address.
fn is_of(session: &Session, pod: &Pod) -> bool {
    match &session.pod {
        Some(known) => {
            let namespace = session.tenant.split('/').next().unwrap_or_default();
            let name = known.split('/').next().unwrap_or_default();
            pod.namespace == namespace && pod.name == name
        }
        None => pod.phase == "Running" && peer(&session.peer).is_some_and(|peer| pod.addresses.contains(&peer)),
    }
}

/// The address of `10.0.0.7:4711`, `[fd00::7]:4711`, perhaps with a scheme.
fn peer(text: &str) -> Option<IpAddr> {
    let plain = text.rsplit("//").next().unwrap_or(text);
    let address = plain.parse::<std::net::SocketAddr>().map(|address| address.ip()).or_else(|_| plain.parse()).ok()?;
    Some(address.to_canonical())
}

pub(crate) fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(node: &str, peers: &[&str]) -> Answer {
        let session = |peer: &&str| {
            json!({"session": 1, "tenant": "red/default", "peer": peer, "program": "hashcat",
                "devices": [{"device": 1, "memory": 100}], "busy": 0.5, "waiting": 0.25})
        };
        let sessions: Vec<_> = peers.iter().map(session).collect();
        let service = json!({"devices": [], "tenants": [], "sessions": sessions});
        Answer { node: node.to_owned(), pod: "s".to_owned(), service: serde_json::from_value(service).unwrap() }
    }

    #[test]
    fn a_session_is_the_pods_that_its_token_names() {
        let one = |namespace: &str| {
            pod(&json!({"metadata": {"name": "train-0", "namespace": namespace}, "status": {"phase": "Running"}}))
        };
        let mut answer = answer("n1", &["10.1.0.2:5"]);
        answer.service.sessions[0].pod = Some("train-0/main".to_owned());
        let pods = uses(vec![one("red"), one("blue")], &[answer]);
        assert_eq!(
            pods.iter().map(|pod| (pod.namespace.as_str(), pod.sessions)).collect::<Vec<_>>(),
            [("blue", 0), ("red", 1)]
        );
    }

    #[test]
    fn a_session_is_the_pods_whose_address_it_comes_from() {
        let one = |name: &str, phase: &str, ip: &str| {
            pod(&json!({"metadata": {"name": name, "namespace": "red", "labels": {"telecl.dev/profile": "small"}},
                "status": {"phase": phase, "podIPs": [{"ip": ip}]}}))
        };
        // An address is given again when its pod has ended.
        let pods =
            vec![one("b", "Running", "10.1.0.2"), one("a", "Succeeded", "10.1.0.2"), one("c", "Running", "10.1.0.3")];
        let answers =
            [answer("n1", &["10.1.0.2:5", "[::ffff:10.1.0.2]:6", "10.9.9.9:1"]), answer("n2", &["10.1.0.2:7", "odd"])];
        let pods = uses(pods, &answers);
        assert_eq!(
            pods.iter().map(|pod| (pod.name.as_str(), pod.sessions)).collect::<Vec<_>>(),
            [("a", 0), ("b", 3), ("c", 0)]
        );
        assert_eq!((pods[1].memory, pods[1].busy, pods[1].waiting), (300, 1.5, 0.75));
        assert_eq!(pods[1].services, ["n1", "n2"]);
        assert_eq!(pods[1].profile, "small");
    }
}
