//! `kubectl telecl doctor`: everything that an injected pod depends on, from the outside in.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::kubectl::Kubectl;
use crate::services::{self, SERVICES, text};

/// What was found, and what to do if it is not good.
struct Finding {
    good: bool,
    what: String,
    advice: String,
}

fn good(what: impl Into<String>) -> Finding {
    Finding { good: true, what: what.into(), advice: String::new() }
}

fn bad(what: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { good: false, what: what.into(), advice: advice.into() }
}

type Check = fn(&Kubectl, &str) -> anyhow::Result<Vec<Finding>>;

const CHECKS: [(&str, Check); 6] = [
    ("objects", definitions),
    ("controller", controller),
    ("webhook", webhook),
    ("services", daemon_sets),
    ("devices", devices),
    ("pods", pods),
];

pub(crate) fn doctor(kubectl: &Kubectl, system: &str, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut found = Vec::new();
    for (name, check) in CHECKS {
        let findings = check(kubectl, system).unwrap_or_else(|cause| vec![bad(format!("{cause:#}"), "")]);
        found.extend(findings.into_iter().map(|finding| (name, finding)));
    }
    let all = found.iter().all(|(_, finding)| finding.good);
    if as_json {
        let list: Vec<_> = found
            .iter()
            .map(|(name, one)| json!({"check": name, "ok": one.good, "what": one.what, "advice": one.advice}))
            .collect();
        println!("{:#}", json!({"ok": all, "findings": list}));
    } else {
        for (name, finding) in &found {
            println!("{}  {name:10}  {}", if finding.good { "ok " } else { "BAD" }, finding.what);
            if !finding.advice.is_empty() {
                println!("                 {}", finding.advice);
            }
        }
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn definitions(kubectl: &Kubectl, _: &str) -> anyhow::Result<Vec<Finding>> {
    let names =
        ["acceleratorpolicies", "acceleratorpools", "acceleratorquotas"].map(|name| format!("{name}.telecl.dev"));
    let there = kubectl.items(&["customresourcedefinitions"])?;
    let missing: Vec<_> =
        names.iter().filter(|name| !there.iter().any(|one| text(one, "/metadata/name") == **name)).collect();
    Ok(vec![if missing.is_empty() {
        good("pools, policies and quotas are defined")
    } else {
        bad(format!("not defined: {missing:?}"), "helm upgrade telecl with crds.install=true")
    }])
}

fn controller(kubectl: &Kubectl, system: &str) -> anyhow::Result<Vec<Finding>> {
    let Some(deployment) = kubectl.find(&["deployment", "telecl-controller", "-n", system])? else {
        let advice = format!("install the chart, or name its namespace: --system-namespace (now {system})");
        return Ok(vec![bad("there is no controller", advice)]);
    };
    let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let (wanted, ready) = (number("/spec/replicas"), number("/status/readyReplicas"));
    let what = format!("{ready} of {wanted} replicas are ready");
    let advice = format!("kubectl -n {system} describe pods -l app.kubernetes.io/component=controller");
    Ok(vec![if ready == wanted && wanted > 0 { good(what) } else { bad(what, advice) }])
}

fn webhook(kubectl: &Kubectl, system: &str) -> anyhow::Result<Vec<Finding>> {
    let Some(found) = kubectl.find(&["mutatingwebhookconfiguration", "telecl"])? else {
        return Ok(vec![bad("nobody asks the webhook: its configuration is missing", "install the chart again")]);
    };
    let hooks = found["webhooks"].as_array().cloned().unwrap_or_default();
    let knows_ca = |hook: &Value| !text(hook, "/clientConfig/caBundle").is_empty();
    let mut findings = vec![if hooks.iter().all(knows_ca) {
        good("the API server knows the webhook's CA")
    } else {
        let advice = format!("the controller writes it: kubectl -n {system} logs deployment/telecl-controller");
        bad("the API server does not know the webhook's CA", advice)
    }];
    let selector = "kubernetes.io/service-name=telecl-webhook";
    let slices = kubectl.items(&["endpointslices", "-n", system, "-l", selector])?;
    let ready = slices.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
    let ready = ready.filter(|endpoint| endpoint["conditions"]["ready"] == true).count();
    findings.push(if ready > 0 {
        good(format!("the webhook answers at {ready} addresses"))
    } else {
        bad("the webhook answers nowhere: labelled pods wait", "see the controller above")
    });
    Ok(findings)
}

fn daemon_sets(kubectl: &Kubectl, system: &str) -> anyhow::Result<Vec<Finding>> {
    let sets = kubectl.items(&["daemonsets", "-n", system, "-l", SERVICES])?;
    let number = |set: &Value, name: &str| set["status"][name].as_u64().unwrap_or(0);
    let mut findings = Vec::new();
    for set in &sets {
        let name = text(set, "/metadata/name");
        let (wanted, ready) = (number(set, "desiredNumberScheduled"), number(set, "numberReady"));
        let what = format!("{name}: {ready} of {wanted} services are ready");
        let advice = format!("kubectl -n {system} describe pods -l {SERVICES}");
        findings.push(if ready == wanted { good(what) } else { bad(what, advice) });
    }
    if sets.iter().all(|set| number(set, "desiredNumberScheduled") == 0) {
        findings.push(bad("no node has a service", "kubectl label node NODE telecl.dev/accelerator=true"));
    }
    Ok(findings)
}

fn devices(kubectl: &Kubectl, system: &str) -> anyhow::Result<Vec<Finding>> {
    let (answers, problems) = services::ask_all(kubectl, system)?;
    let mut findings: Vec<_> = problems.into_iter().map(|problem| bad(problem, "")).collect();
    for answer in &answers {
        let count = answer.service.devices.len();
        let what = format!("{}: {count} devices, telecl {}", answer.node, answer.service.version);
        let advice =
            format!("kubectl -n {system} logs {} -c service: does the image have the vendor's OpenCL?", answer.pod);
        findings.push(match (count, answer.service.draining) {
            (0, _) => bad(what, advice),
            (_, true) => bad(format!("{what}, draining"), format!("kubectl telecl drain {} --undo", answer.node)),
            _ => good(what),
        });
    }
    Ok(findings)
}

/// Labelled namespaces, and what keeps their pods from starting.
fn pods(kubectl: &Kubectl, _: &str) -> anyhow::Result<Vec<Finding>> {
    let labelled = kubectl.items(&["namespaces", "-l", "telecl.dev/inject=enabled"])?;
    let injected = kubectl.items(&["pods", "-A", "-l", "telecl.dev/injected=true"])?;
    let mut findings =
        vec![good(format!("{} namespaces are labelled, {} pods have the driver", labelled.len(), injected.len()))];
    for pod in &injected {
        let name = format!("{}/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        let states = pod["status"]["initContainerStatuses"].as_array().cloned().unwrap_or_default();
        let ours = states.iter().find(|state| state["name"] == "telecl-driver");
        let reason = ours.map(|state| text(state, "/state/waiting/reason")).unwrap_or_default();
        if ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "CrashLoopBackOff"].contains(&reason.as_str()) {
            let message = ours.map(|state| text(state, "/state/waiting/message")).unwrap_or_default();
            findings.push(bad(format!("{name}: the driver's container does not start: {reason}"), message));
        }
    }
    for event in kubectl.items(&["events", "-A", "--field-selector", "reason=FailedCreate"])? {
        let message = text(&event, "/message");
        if message.contains("inject.telecl.dev") {
            let name =
                format!("{}/{}", text(&event, "/involvedObject/namespace"), text(&event, "/involvedObject/name"));
            findings.push(bad(
                format!("{name} could not make a pod: {message}"),
                "see the webhook above; it is tried again",
            ));
        }
    }
    Ok(findings)
}
