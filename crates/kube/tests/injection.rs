//! Pods as an API server (1.36) has them when it asks a webhook, recorded there, and what becomes of them.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use telecl_kube::inject::{CA_ANNOTATION, Change, DEFAULT_FILES, INIT_CONTAINER, Injection};

const CA: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
const PODS: [&str; 10] =
    ["bare", "deployment", "init", "job", "opt-out", "read-only", "same-volume", "sidecar", "statefulset", "windows"];

fn injection() -> Injection {
    Injection {
        image: "telecl-driver:test".to_owned(),
        pull_policy: Some("IfNotPresent".to_owned()),
        services: "telecl-services.telecl-system.svc:7701".to_owned(),
        ca: CA.to_owned(),
        files: DEFAULT_FILES.iter().map(|file| file.parse().unwrap()).collect(),
    }
}

fn pod(name: &str) -> Value {
    let path = format!("{}/tests/pods/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The pod as it is stored, and what its owner is told.
fn injected(pod: &Value) -> (Value, Vec<String>) {
    let Change { patch, warnings } = injection().change(pod).unwrap();
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(patch)).unwrap();
    let mut new = pod.clone();
    json_patch::patch(&mut new, &patch).unwrap();
    (new, warnings)
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

fn mounts(container: &Value) -> Vec<&str> {
    container["volumeMounts"].as_array().unwrap().iter().map(|mount| mount["mountPath"].as_str().unwrap()).collect()
}

fn variable<'a>(container: &'a Value, name: &str) -> &'a Value {
    let all: Vec<_> = container["env"].as_array().unwrap().iter().filter(|variable| variable["name"] == name).collect();
    assert_eq!(all.len(), 1, "{name} is there once");
    all[0]
}

#[test]
fn a_pod_of_a_deployment_gets_everything_and_keeps_what_it_has() {
    let before = pod("deployment");
    let (after, warnings) = injected(&before);
    assert_eq!(warnings, [""; 0]);
    assert_eq!(after["metadata"]["labels"]["telecl.dev/injected"], "true");
    assert_eq!(after["metadata"]["labels"]["app"], "render");
    assert_eq!(after["metadata"]["annotations"][CA_ANNOTATION], CA);
    assert_eq!(names(&after["spec"]["volumes"])[1..], ["telecl-driver", "telecl-identity"]);
    assert_eq!(after["spec"]["volumes"][0], before["spec"]["volumes"][0]);
    assert_eq!(names(&after["spec"]["initContainers"]), [INIT_CONTAINER]);
    assert_eq!(after["spec"]["fieldOfALaterVersion"], before["spec"]["fieldOfALaterVersion"]);
    let container = &after["spec"]["containers"][0];
    for path in
        ["/opt/telecl", "/var/run/secrets/telecl", "/etc/OpenCL/vendors/telecl.icd", "/lib/x86_64/libOpenCL.so.1"]
    {
        assert!(mounts(container).contains(&path), "{path}");
    }
    let all_read_only = container["volumeMounts"].as_array().unwrap().iter().all(|mount| mount["readOnly"] == true);
    assert!(all_read_only, "containers cannot change the driver");
    assert_eq!(variable(container, "TELECL_SERVICES")["value"], "telecl-services.telecl-system.svc:7701");
    assert_eq!(variable(container, "TELECL_CA")["value"], "/var/run/secrets/telecl/ca.pem");
    assert_eq!(variable(container, "TELECL_TOKEN")["value"], "/var/run/secrets/telecl/token");
    assert_eq!(variable(container, "TELECL_NODE_ADDRESS")["valueFrom"]["fieldRef"]["fieldPath"], "status.hostIP");
    assert_eq!(container["command"], before["spec"]["containers"][0]["command"]);
}

#[test]
fn the_init_container_is_within_pod_security_restricted() {
    let (after, _) = injected(&pod("deployment"));
    let init = &after["spec"]["initContainers"][0];
    let security = &init["securityContext"];
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(security["runAsNonRoot"], true);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(security.get("runAsUser"), None, "the image says it, or the platform");
    assert_eq!(init["command"], json!(["/telecl/install", "/opt/telecl"]));
    assert_eq!(init["imagePullPolicy"], "IfNotPresent");
}

#[test]
fn a_pod_that_runs_as_root_does_not_make_the_init_container_root() {
    let (after, _) = injected(&pod("statefulset"));
    let init = &after["spec"]["initContainers"][0];
    assert_eq!(init["securityContext"]["runAsUser"], 65532);
    assert_eq!(names(&after["spec"]["volumes"])[0], "data");
    assert_eq!(mounts(&after["spec"]["containers"][0])[0], "/data");
}

#[test]
fn the_class_of_service_stays() {
    let resources = |name| injected(&pod(name)).0["spec"]["initContainers"][0]["resources"].clone();
    // Guaranteed: limits are requests, and what is neither processor nor memory is not taken twice.
    let guaranteed = json!({"cpu": "1", "memory": "256Mi"});
    assert_eq!(resources("read-only"), json!({"requests": guaranteed, "limits": guaranteed}));
    assert_eq!(
        resources("deployment"),
        json!({"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}})
    );
    assert_eq!(resources("sidecar"), json!({}), "BestEffort");
}

#[test]
fn what_a_job_says_itself_counts() {
    let (after, _) = injected(&pod("job"));
    let container = &after["spec"]["containers"][0];
    assert_eq!(variable(container, "TELECL_SERVICES")["value"], "node7:7701");
    assert_eq!(variable(container, "TELECL_PROFILE")["value"], "small");
    assert_eq!(variable(container, "TELECL_CONTAINER")["value"], "hashcat");
    assert_eq!(after["spec"]["restartPolicy"], "Never");
}

#[test]
fn a_pod_without_volumes_labels_or_token_is_no_exception() {
    let (after, _) = injected(&pod("bare"));
    assert_eq!(names(&after["spec"]["volumes"]), ["telecl-driver", "telecl-identity"]);
    assert_eq!(after["spec"]["automountServiceAccountToken"], false);
    let token = &after["spec"]["volumes"][1]["projected"]["sources"][0]["serviceAccountToken"];
    assert_eq!(*token, json!({"audience": "telecl", "expirationSeconds": 3600, "path": "token"}));
}

#[test]
fn init_containers_have_the_driver_too_and_ours_is_first() {
    let (after, _) = injected(&pod("init"));
    let inits = &after["spec"]["initContainers"];
    assert_eq!(names(inits), [INIT_CONTAINER, "warm-up", "second"]);
    for container in &inits.as_array().unwrap()[1..] {
        assert!(mounts(container).contains(&"/opt/telecl"));
        variable(container, "TELECL_TOKEN");
    }
    assert_eq!(mounts(&inits[0]), ["/opt/telecl"], "the one that copies has no token");
}

#[test]
fn sidecars_have_the_driver_too() {
    let (after, _) = injected(&pod("sidecar"));
    let inits = &after["spec"]["initContainers"];
    assert_eq!(names(inits), [INIT_CONTAINER, "proxy"]);
    assert_eq!(inits[1]["restartPolicy"], "Always");
    assert!(mounts(&inits[1]).contains(&"/etc/OpenCL/vendors/telecl.icd"));
    for container in after["spec"]["containers"].as_array().unwrap() {
        assert!(mounts(container).contains(&"/etc/OpenCL/vendors/telecl.icd"));
    }
}

#[test]
fn read_only_roots_stay_read_only() {
    let (after, warnings) = injected(&pod("read-only"));
    assert_eq!(
        after["spec"]["containers"][0]["securityContext"],
        pod("read-only")["spec"]["containers"][0]["securityContext"]
    );
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn volumes_of_the_same_name_are_left_alone() {
    let before = pod("same-volume");
    let (after, warnings) = injected(&before);
    let all = names(&after["spec"]["volumes"]);
    assert_eq!(all[3..], ["telecl-driver-2", "telecl-identity-2"]);
    assert_eq!(after["spec"]["volumes"][0], before["spec"]["volumes"][0]);
    assert_eq!(after["spec"]["initContainers"][0]["volumeMounts"][0]["name"], "telecl-driver-2");
    let container = &after["spec"]["containers"][0];
    assert!(!mounts(container).contains(&"/etc/OpenCL/vendors/telecl.icd"), "it could not be made in a ConfigMap");
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("container main mounts something at /etc/OpenCL/vendors"), "{warnings:?}");
}

#[test]
fn who_wants_none_gets_none() {
    for name in ["opt-out", "windows"] {
        assert_eq!(injection().change(&pod(name)).unwrap(), Change::default(), "{name}");
    }
}

#[test]
fn an_injected_pod_is_not_changed_again() {
    for name in PODS {
        let (once, _) = injected(&pod(name));
        assert_eq!(injection().change(&once).unwrap().patch, Vec::<Value>::new(), "{name}");
    }
}

#[test]
fn a_container_that_came_later_is_equipped_when_asked_again() {
    let (mut once, _) = injected(&pod("deployment"));
    let later = json!({"name": "later", "image": "debian:12"});
    once["spec"]["containers"].as_array_mut().unwrap().push(later);
    let (twice, _) = injected(&once);
    assert_eq!(names(&twice["spec"]["initContainers"]), [INIT_CONTAINER]);
    // The driver, the identity, and each file.
    assert_eq!(mounts(&twice["spec"]["containers"][1]).len(), 2 + DEFAULT_FILES.len());
    assert_eq!(twice["spec"]["containers"][0], once["spec"]["containers"][0]);
}

#[test]
fn nonsense_is_an_error_and_no_panic() {
    for pod in [
        json!(null),
        json!({}),
        json!({"metadata": {}, "spec": {"containers": "none"}}),
        json!({"metadata": [], "spec": {}}),
    ] {
        assert!(injection().change(&pod).is_err(), "{pod}");
    }
    let odd =
        json!({"metadata": {"labels": null}, "spec": {"containers": [{}], "volumes": [7], "initContainers": null}});
    injection().change(&odd).unwrap();
}

#[test]
fn files_are_named_inside_the_driver_and_placed_absolutely() {
    use telecl_kube::inject::File;
    assert!("a=/b".parse::<File>().is_ok());
    for wrong in ["", "a", "=/b", "a=b", "/a=/b", "../a=/b", "a=/b/../c"] {
        assert!(wrong.parse::<File>().is_err(), "{wrong}");
    }
}
