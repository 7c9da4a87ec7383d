//! What an injected pod looks like: a pod goes in, a JSON patch comes out.
//!
//! An init container copies the driver into a volume, which every container sees at [`DRIVER_DIR`]; single files of it appear
//! where OpenCL loaders and the dynamic linker look ([`File`]). A second volume holds what the driver shows to a service (the pod's
//! token) and what a service must show (the CA). Nothing of this needs a privilege, an object in the pod's namespace, or a
//! change of the image.
//!
//! The function adds what is missing and touches nothing else. So it can be applied twice, and again after somebody else's
//! webhook has added a container. Where the pod has something of its own in the place, that stays, and a warning says so.
//!
//! It works on JSON and not on `k8s_openapi`'s types: a field that this program does not know yet must survive.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::objects::AUDIENCE;

/// Where containers see the driver.
pub const DRIVER_DIR: &str = "/opt/telecl";
/// Where containers see the token and the CA.
pub const IDENTITY_DIR: &str = "/var/run/secrets/telecl";
/// The label that asks for injection, or refuses it.
pub const INJECT_LABEL: &str = "telecl.dev/inject";
/// The label that names a profile, a share of memory and compute.
pub const PROFILE_LABEL: &str = "telecl.dev/profile";
/// The label that an injected pod gets, so that it can be found.
pub const INJECTED_LABEL: &str = "telecl.dev/injected";
/// The annotation that carries the CA into the pod.
pub const CA_ANNOTATION: &str = "telecl.dev/ca";
/// The init container's name.
pub const INIT_CONTAINER: &str = "telecl-driver";

const DRIVER_VOLUME: &str = "telecl-driver";
const IDENTITY_VOLUME: &str = "telecl-identity";
/// Driver and loaders are a tenth of it.
const DRIVER_VOLUME_SIZE: &str = "256Mi";
/// The kubelet renews the token when four fifths of this are over.
const TOKEN_SECONDS: u32 = 3600;

/// A file of the driver that containers see in a second place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path below [`DRIVER_DIR`].
    pub name: String,
    /// The absolute path at which containers see it.
    pub at: String,
}

impl std::str::FromStr for File {
    type Err = String;

    /// Reads `NAME=/ABSOLUTE/PATH`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is not NAME=/ABSOLUTE/PATH");
        let (name, at) = text.split_once('=').ok_or_else(wrong)?;
        let outside = |path: &str| path.split('/').any(|part| part == "..");
        if name.is_empty() || name.starts_with('/') || outside(name) || !at.starts_with('/') || outside(at) {
            return Err(wrong());
        }
        Ok(Self { name: name.to_owned(), at: at.to_owned() })
    }
}

/// Where the files of the driver's image go by default.
///
/// The loader is a last resort: glibc looks into these directories only after its cache, in which an image's own loader is. No image
/// has anything there, so nothing is hidden. The first two are for glibc 2.33 and later, the others for older ones. musl has no
/// such place, but a file that lists where it looks: ours has a directory with a loader for musl after musl's own ones.
pub const DEFAULT_FILES: [&str; 6] = [
    "telecl.icd=/etc/OpenCL/vendors/telecl.icd",
    "musl/search.path=/etc/ld-musl-x86_64.path",
    "loader/libOpenCL.so.1=/lib/glibc-hwcaps/x86-64-v2/libOpenCL.so.1",
    "loader/libOpenCL.so.1=/lib64/glibc-hwcaps/x86-64-v2/libOpenCL.so.1",
    "loader/libOpenCL.so.1=/lib/x86_64/libOpenCL.so.1",
    "loader/libOpenCL.so.1=/lib64/x86_64/libOpenCL.so.1",
];

/// What is injected: the same for all pods of a cluster.
#[derive(Clone, Debug)]
pub struct Injection {
    /// The driver's image.
    pub image: String,
    /// When the kubelet pulls it: `Always`, `IfNotPresent`, `Never`; its own choice if none.
    pub pull_policy: Option<String>,
    /// Where drivers find services.
    pub services: String,
    /// The certificates of those who vouch for services (PEM).
    pub ca: String,
    pub files: Vec<File>,
}

/// What to do with a pod.
#[derive(Debug, Default, PartialEq)]
pub struct Change {
    /// Operations of a JSON patch (RFC 6902); none if the pod stays as it is.
    pub patch: Vec<Value>,
    /// For whoever makes the pod.
    pub warnings: Vec<String>,
}

/// A pod that cannot be read. The API server sends none.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot inject telecl's driver: {} of the pod is not what it should be", self.0)
    }
}

impl std::error::Error for Malformed {}

impl Injection {
    /// What is missing in this pod.
    pub fn change(&self, pod: &Value) -> Result<Change, Malformed> {
        if is_out(pod) {
            return Ok(Change::default());
        }
        let mut new = pod.clone();
        let warnings = self.inject(&mut new)?;
        Ok(Change { patch: difference(pod, &new), warnings })
    }

    fn inject(&self, pod: &mut Value) -> Result<Vec<String>, Malformed> {
        let metadata = map(pod, "metadata")?;
        let labels = map_in(metadata, "labels")?;
        labels.insert(INJECTED_LABEL.to_owned(), json!("true"));
        let profile = labels.get(PROFILE_LABEL).and_then(Value::as_str).map(str::to_owned);
        map_in(metadata, "annotations")?.insert(CA_ANNOTATION.to_owned(), json!(self.ca));

        let spec = map(pod, "spec")?;
        let volumes = list(spec, "volumes")?;
        let driver = volume(volumes, DRIVER_VOLUME, is_driver_volume, driver_volume());
        let identity = volume(volumes, IDENTITY_VOLUME, is_identity_volume, identity_volume());

        let init = self.init_container(spec, &driver);
        let inits = list(spec, "initContainers")?;
        if !inits.iter().any(is_ours) {
            inits.insert(0, init);
        }
        let places = Places { driver: &driver, identity: &identity, profile: profile.as_deref() };
        let mut warnings = Vec::new();
        for kind in ["initContainers", "containers"] {
            for container in list(spec, kind)?.iter_mut().filter(|container| !is_ours(container)) {
                self.equip(container, &places, &mut warnings)?;
            }
        }
        Ok(warnings)
    }

    /// The container that copies the driver, within what Pod Security calls `restricted`.
    fn init_container(&self, spec: &Map<String, Value>, driver: &str) -> Value {
        let mut security = json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        });
        // The image says which user it is, and a platform may want to choose. Only root may not be inherited from the pod.
        let inherited = spec.get("securityContext").and_then(|security| security.get("runAsUser"));
        if inherited.and_then(Value::as_i64) == Some(0) {
            security["runAsUser"] = json!(65532);
            security["runAsGroup"] = json!(65532);
        }
        let mut container = json!({
            "name": INIT_CONTAINER,
            "image": self.image,
            "command": ["/telecl/install", DRIVER_DIR],
            "resources": resources(spec),
            "securityContext": security,
            "volumeMounts": [{"name": driver, "mountPath": DRIVER_DIR}],
        });
        if let Some(policy) = &self.pull_policy {
            container["imagePullPolicy"] = json!(policy);
        }
        container
    }

    /// Gives a container the mounts and variables that it has not.
    fn equip(&self, container: &mut Value, places: &Places<'_>, warnings: &mut Vec<String>) -> Result<(), Malformed> {
        let name = container.get("name").and_then(Value::as_str).unwrap_or("?").to_owned();
        let container = container.as_object_mut().ok_or_else(|| Malformed("a container".to_owned()))?;
        let mounts = list(container, "volumeMounts")?;
        let whole = |volume: &str, at: &str| json!({"name": volume, "mountPath": at, "readOnly": true});
        let driver = places.driver;
        let mut wanted = vec![whole(driver, DRIVER_DIR), whole(places.identity, IDENTITY_DIR)];
        wanted.extend(
            self.files
                .iter()
                .map(|file| json!({"name": driver, "mountPath": file.at, "subPath": file.name, "readOnly": true})),
        );
        for mount in wanted {
            match obstacle(mounts, &mount) {
                None => mounts.push(mount),
                Some(Obstacle::Ours) => {}
                Some(Obstacle::Mount(path)) => warnings.push(format!(
                    "telecl: container {name} mounts something at {path}, so {} is not put there; see docs/kubernetes.md",
                    text(&mount, "mountPath")
                )),
            }
        }
        let variables = list(container, "env")?;
        for variable in self.variables(&name, places.profile) {
            if !variables.iter().any(|there| there["name"] == variable["name"]) {
                variables.push(variable);
            }
        }
        Ok(())
    }

    fn variables(&self, container: &str, profile: Option<&str>) -> Vec<Value> {
        let value = |name: &str, value: &str| json!({"name": name, "value": value});
        let mut all = vec![
            value("TELECL_SERVICES", &self.services),
            value("TELECL_CA", &format!("{IDENTITY_DIR}/ca.pem")),
            value("TELECL_TOKEN", &format!("{IDENTITY_DIR}/token")),
            json!({"name": "TELECL_NODE_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}),
            value("TELECL_CONTAINER", container),
        ];
        all.extend(profile.map(|profile| value("TELECL_PROFILE", profile)));
        all
    }
}

/// What containers of one pod are given.
struct Places<'a> {
    /// The volumes' names.
    driver: &'a str,
    identity: &'a str,
    profile: Option<&'a str>,
}

/// Whether the pod wants no injection, or could not use it.
fn is_out(pod: &Value) -> bool {
    let label = pod.pointer("/metadata/labels").and_then(|labels| labels.get(INJECT_LABEL));
    let windows = pod.pointer("/spec/os/name").and_then(Value::as_str) == Some("windows");
    label.and_then(Value::as_str) == Some("false") || windows
}

fn is_ours(container: &Value) -> bool {
    text(container, "name") == INIT_CONTAINER && container.pointer("/command/0") == Some(&json!("/telecl/install"))
}

/// Processor and memory of the pod's first container.
///
/// The init container runs alone and before it, so the pod needs no more than it did, fits where it fitted, and keeps its class of service.
fn resources(spec: &Map<String, Value>) -> Value {
    let first = spec.get("containers").and_then(|containers| containers.get(0));
    let mut own = Map::new();
    for kind in ["requests", "limits"] {
        let all = first.and_then(|first| first.get("resources")?.get(kind)?.as_object());
        let kept: Map<_, _> = all
            .into_iter()
            .flatten()
            .filter(|(name, _)| ["cpu", "memory"].contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !kept.is_empty() {
            own.insert(kind.to_owned(), Value::Object(kept));
        }
    }
    Value::Object(own)
}

fn driver_volume() -> Value {
    json!({"emptyDir": {"sizeLimit": DRIVER_VOLUME_SIZE}})
}

fn is_driver_volume(volume: &Value) -> bool {
    volume.pointer("/emptyDir/sizeLimit") == Some(&json!(DRIVER_VOLUME_SIZE))
}

fn identity_volume() -> Value {
    let ca = format!("metadata.annotations['{CA_ANNOTATION}']");
    json!({"projected": {"sources": [
        {"serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"downwardAPI": {"items": [{"path": "ca.pem", "fieldRef": {"fieldPath": ca}}]}},
    ]}})
}

fn is_identity_volume(volume: &Value) -> bool {
    let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
    sources.is_some_and(|sources| {
        let audience = |source: &Value| source.pointer("/serviceAccountToken/audience") == Some(&json!(AUDIENCE));
        let ca = |source: &Value| source.pointer("/downwardAPI/items/0/path") == Some(&json!("ca.pem"));
        sources.iter().any(audience) && sources.iter().any(ca)
    })
}

/// The name of our volume. If the pod has one of that name for something else, ours gets a number.
fn volume(volumes: &mut Vec<Value>, name: &str, is_it: fn(&Value) -> bool, mut content: Value) -> String {
    let names = std::iter::once(name.to_owned()).chain((2..).map(|number| format!("{name}-{number}")));
    for name in names {
        match volumes.iter().find(|volume| text(volume, "name") == name) {
            Some(there) if is_it(there) => return name,
            Some(_) => {}
            None => {
                content["name"] = json!(name);
                volumes.push(content);
                return name;
            }
        }
    }
    unreachable!("a pod has fewer volumes than there are numbers")
}

/// What keeps a mount out.
enum Obstacle {
    /// It is there already.
    Ours,
    /// The container mounts something else there or above, at this path.
    Mount(String),
}

/// A mount point cannot be made inside somebody else's volume, which may be read-only: the container would not start.
fn obstacle(mounts: &[Value], wanted: &Value) -> Option<Obstacle> {
    let at = text(wanted, "mountPath");
    mounts.iter().find_map(|mount| {
        let path = text(mount, "mountPath").trim_end_matches('/');
        let below = at.strip_prefix(path)?;
        if below.is_empty() && mount["name"] == wanted["name"] {
            return Some(Obstacle::Ours);
        }
        (below.is_empty() || below.starts_with('/')).then(|| Obstacle::Mount(path.to_owned()))
    })
}

/// Whole members are replaced, so the patch does not depend on how many there are of what.
fn difference(old: &Value, new: &Value) -> Vec<Value> {
    let members =
        ["/metadata/labels", "/metadata/annotations", "/spec/volumes", "/spec/initContainers", "/spec/containers"];
    let changed = |path: &&str| old.pointer(path) != new.pointer(path);
    let add = |path: &str| json!({"op": "add", "path": path, "value": new.pointer(path)});
    members.iter().filter(|path| changed(path)).map(|path| add(path)).collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn map<'a>(value: &'a mut Value, key: &str) -> Result<&'a mut Map<String, Value>, Malformed> {
    value.get_mut(key).and_then(Value::as_object_mut).ok_or_else(|| Malformed(key.to_owned()))
}

/// A map that is made if it is not there.
fn map_in<'a>(parent: &'a mut Map<String, Value>, key: &str) -> Result<&'a mut Map<String, Value>, Malformed> {
    let there = parent.entry(key).or_insert(Value::Null);
    if there.is_null() {
        *there = json!({});
    }
    there.as_object_mut().ok_or_else(|| Malformed(key.to_owned()))
}

/// A list that is made if it is not there.
fn list<'a>(parent: &'a mut Map<String, Value>, key: &str) -> Result<&'a mut Vec<Value>, Malformed> {
    let there = parent.entry(key).or_insert(Value::Null);
    if there.is_null() {
        *there = json!([]);
    }
    there.as_array_mut().ok_or_else(|| Malformed(key.to_owned()))
}
