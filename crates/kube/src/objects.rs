//! The custom resources of `telecl.dev/v1alpha1`: pools of devices, policies for those who use them, and quotas of
//! namespaces.
//!
//! What a field may hold is said here once: in the schema that the API server checks, with a message for each rule that
//! says what to write instead. [`render`](crate::render) makes the service's policy of them, and [`crate::agent`] fills
//! in what their status shows.

// What makes the schemas repeats each struct inside of a function, with its visibility.
#![allow(unreachable_pub)]
// Columns of one type are no mistake.
#![allow(clippy::duplicated_attributes)]

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The group of all of them.
pub const GROUP: &str = "telecl.dev";

/// What tokens of pods must be for.
pub const AUDIENCE: &str = "telecl";

/// The definitions of all of them, in the order of their names.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![AcceleratorPolicy::crd(), AcceleratorPool::crd(), AcceleratorQuota::crd()]
}

const SIZE_OR_PART: &str = r"self.matches('^([1-9][0-9]{0,8} ?(Ki|Mi|Gi|Ti)B?|(100(\\.00?)?|[0-9]{1,2}(\\.[0-9]{1,2})?) ?%)$') && !self.matches('^0?0(\\.00?)? ?%$')";
const SIZE_OR_PART_MESSAGE: &str =
    "write a size such as 4Gi or 512MiB, or a part of the device such as 25 %, more than 0 % and at most 100 %";
const PART: &str =
    r"self.matches('^(100(\\.00?)?|[0-9]{1,2}(\\.[0-9]{1,2})?) ?%$') && !self.matches('^0?0(\\.00?)? ?%$')";
const PART_MESSAGE: &str = "write a part of the device such as 25 %, more than 0 % and at most 100 %";
const TIME: &str = r"self.matches('^[0-9]{1,9} ?(ms|s|m|h|d)$')";
const TIME_MESSAGE: &str = "write a whole number with its unit, such as 500ms, 30s, 5m, 1h or 7d";
const DEVICES: &str = r"self.all(one, one.matches('^(platform:)?[^:\\x00-\\x1f]+$') || one.matches('^name:.+$') || one.matches('^number:[1-9][0-9]{0,8}$') || one.matches('^uuid:[0-9a-fA-F-]{32,36}$'))";
const DEVICES_MESSAGE: &str = "a pattern is a name such as *H200* or name:*H200*, or platform:NVIDIA*, number:1 or uuid:…, as docs/policy.md has them";
const LABEL: &str = r"self.matches('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$')";
const PROFILE_MESSAGE: &str = "a profile's name has small letters, digits and -, and begins and ends with a letter or a digit, because pods name it in a label";
const NAMESPACE_MESSAGE: &str =
    "a namespace's name has small letters, digits and -, and begins and ends with a letter or a digit";
const ACCOUNT: &str = r"self.matches('^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$')";
const ACCOUNT_MESSAGE: &str = "write the name of a service account, such as default";
const ADDRESS: &str = r"self.matches('^((tcp|tls)://)?(\\[[0-9a-fA-F:.]+\\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)(:[1-9][0-9]{0,4})?$')";
const ADDRESS_MESSAGE: &str =
    "write a host, perhaps with a port, such as gpu7.example.org:7701, or tls://10.0.0.7:7701";
const ONE_SUBJECT: &str =
    "[has(self.namespace), has(self.namespaceSelector), has(self.serviceAccount)].filter(said, said).size() == 1";
const ONE_SUBJECT_MESSAGE: &str =
    "a subject is one of namespace, namespaceSelector and serviceAccount; write several subjects for several of them";
const ONE_NAME: &str = "self.all(one, self.exists_one(other, other.name == one.name))";

/// Devices of a cluster that are alike to those who use them, and how they may be shared.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "telecl.dev",
    version = "v1alpha1",
    kind = "AcceleratorPool",
    plural = "acceleratorpools",
    shortname = "apool",
    category = "telecl",
    status = "PoolStatus",
    derive = "PartialEq",
    printcolumn(name = "Services", type_ = "integer", json_path = ".status.services"),
    printcolumn(name = "Devices", type_ = "integer", json_path = ".status.devices"),
    printcolumn(name = "Sessions", type_ = "string", json_path = ".spec.sharing.sessionsPerDevice"),
    printcolumn(name = "Order", type_ = "string", json_path = ".spec.sharing.order"),
    printcolumn(name = "External", type_ = "string", json_path = ".spec.external[*].address", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpec {
    /// Services on nodes with all of these labels belong to the pool; without any, those on every node do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,

    /// Which devices of those services belong to it: patterns as in the service's policy. Without any, all do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 100)))]
    #[x_kube(validation = Rule::new(DEVICES).message(DEVICES_MESSAGE))]
    pub devices: Vec<String>,

    /// How they may be shared.
    #[serde(default)]
    pub sharing: Sharing,

    /// Services outside of the cluster. Pods with the driver find them after those of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub external: Vec<External>,
}

/// How devices may be shared.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Sharing {
    /// Sessions that use one device at once, of all tenants. Without it there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000))]
    pub sessions_per_device: Option<u32>,

    /// How long a session waits for room before it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(TIME).message(TIME_MESSAGE))]
    pub admission_wait: Option<String>,

    /// In which order programs find the devices of a service: by its number, or those first that fewest sessions use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,

    /// Whether the memory of those who use the pool may go to host memory while others run, so that more of them fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oversubscribe: Option<bool>,
}

/// In which order programs find devices.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As the vendor numbers them.
    Number,
    /// Those first that fewest sessions use.
    Load,
}

/// A service outside of the cluster.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct External {
    /// Where it is: a host, perhaps with a port. A name may have several addresses, each a service of its own.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new(ADDRESS).message(ADDRESS_MESSAGE))]
    pub address: String,
}

/// What is known of a pool.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Services of the cluster that have devices of the pool.
    #[serde(default)]
    pub services: u32,
    /// Their devices that belong to it.
    #[serde(default)]
    pub devices: u32,
    /// Those services, each by its own agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<PoolMember>,
    /// What is right, and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A service with devices of a pool.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PoolMember {
    /// The node it runs on.
    pub node: String,
    /// Its devices that belong to the pool.
    pub devices: Vec<PoolDevice>,
    /// When its agent said so, in seconds since 1970.
    pub seen: i64,
}

/// A device of a pool.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PoolDevice {
    /// The service's number for it.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// Its memory in bytes.
    pub memory: u64,
}

/// What those who use accelerators get.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "telecl.dev",
    version = "v1alpha1",
    kind = "AcceleratorPolicy",
    plural = "acceleratorpolicies",
    shortname = "apolicy",
    category = "telecl",
    status = "PolicyStatus",
    derive = "PartialEq",
    printcolumn(name = "Profile", type_ = "string", json_path = ".spec.profile"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight"),
    printcolumn(name = "Cap", type_ = "string", json_path = ".spec.cap"),
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "Memory", type_ = "string", json_path = ".spec.deviceMemory"),
    printcolumn(name = "Namespaces", type_ = "integer", json_path = ".status.namespaces"),
    printcolumn(name = "Conflicts", type_ = "integer", json_path = ".status.conflictCount"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new("!has(self.sessionMemory) || !has(self.deviceMemory) || self.sessionMemory.contains('%') == self.deviceMemory.contains('%')").message("sessionMemory and deviceMemory are both sizes or both parts of the device, so that the smaller one is known"))]
#[serde(rename_all = "camelCase")]
pub struct PolicySpec {
    /// Whom it is for. Without any, it is for everybody for whom no other policy is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub subjects: Vec<Subject>,

    /// Between policies that are for the same and say it alike, the one with the higher precedence counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1000, max = 1000))]
    pub precedence: Option<i32>,

    /// The profile of those whose pods name none: one of this policy, or of a policy for everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new(LABEL).message(PROFILE_MESSAGE))]
    pub profile: Option<String>,

    /// The pools whose devices they may use. Without any, those of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    pub pools: Vec<String>,

    /// Whether pods may use services on other nodes than their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,

    /// What they get, where the profile does not say it.
    #[serde(flatten)]
    pub limits: Limits,

    /// Profiles that pods may name with the label `telecl.dev/profile`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new(ONE_NAME).message("a profile is there twice; give each a name of its own"))]
    pub profiles: Vec<Profile>,
}

/// Whom a policy is for.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(validation = Rule::new(ONE_SUBJECT).message(ONE_SUBJECT_MESSAGE))]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// All pods of a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new(LABEL).message(NAMESPACE_MESSAGE))]
    pub namespace: Option<String>,

    /// All pods of the namespaces with such labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,

    /// The pods of a service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountName>,
}

/// A service account.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountName {
    /// Its namespace.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new(LABEL).message(NAMESPACE_MESSAGE))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new(ACCOUNT).message(ACCOUNT_MESSAGE))]
    pub name: String,
}

/// A share of memory and compute with a name.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// What pods write in the label `telecl.dev/profile`.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new(LABEL).message(PROFILE_MESSAGE))]
    pub name: String,

    /// What it says; for the rest what the policy says holds.
    #[serde(flatten)]
    pub limits: Limits,
}

/// How much of the devices somebody may use.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Their part of a device's time, against the weights of others that want it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: Option<u32>,

    /// The most of a device's time, also if nobody else wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(PART).message(PART_MESSAGE))]
    pub cap: Option<String>,

    /// Who goes first on a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,

    /// The memory of each device that all of them together may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(SIZE_OR_PART).message(SIZE_OR_PART_MESSAGE))]
    pub device_memory: Option<String>,

    /// The memory of each device that one program may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(SIZE_OR_PART).message(SIZE_OR_PART_MESSAGE))]
    pub session_memory: Option<String>,

    /// Programs at once at each service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000))]
    pub sessions: Option<u32>,

    /// A program that does nothing for so long loses its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(TIME).message(TIME_MESSAGE))]
    pub longest_idle: Option<String>,
}

/// Who goes first on a device.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// After all others, but never without a turn for long.
    Low,
    /// As most do.
    Normal,
    /// Before all others.
    High,
}

/// Whether pods may use services on other nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// They may; those on their own node come first.
    PreferNode,
    /// They may not.
    RequireNode,
}

/// What is known of a policy.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// Namespaces for which it counts, wholly or for some of their service accounts.
    #[serde(default)]
    pub namespaces: u32,
    /// Subjects for which another policy counts.
    #[serde(default)]
    pub conflict_count: u32,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// What is right, and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A subject for which another policy counts.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    /// A namespace, or `namespace/serviceaccount`.
    pub subject: String,
    /// The policy that counts for it.
    pub policy: String,
    /// Why that one does.
    pub reason: String,
}

/// What all pods of a namespace may use together.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "telecl.dev",
    version = "v1alpha1",
    kind = "AcceleratorQuota",
    plural = "acceleratorquotas",
    shortname = "aquota",
    category = "telecl",
    namespaced,
    status = "QuotaStatus",
    derive = "PartialEq",
    printcolumn(name = "Memory", type_ = "string", json_path = ".spec.deviceMemory"),
    printcolumn(name = "Share", type_ = "string", json_path = ".spec.deviceShare"),
    printcolumn(name = "Sessions", type_ = "integer", json_path = ".spec.sessions"),
    printcolumn(name = "Used-Memory", type_ = "string", json_path = ".status.used.memory"),
    printcolumn(name = "Used-Sessions", type_ = "integer", json_path = ".status.used.sessions"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new("has(self.deviceMemory) || has(self.deviceShare) || has(self.sessions)").message("a quota limits something: write deviceMemory, deviceShare or sessions"))]
#[serde(rename_all = "camelCase")]
pub struct QuotaSpec {
    /// The memory of each device that all pods of the namespace together may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(SIZE_OR_PART).message(SIZE_OR_PART_MESSAGE))]
    pub device_memory: Option<String>,

    /// The most of each device's time that they get together, also if nobody else wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(PART).message(PART_MESSAGE))]
    pub device_share: Option<String>,

    /// Programs at once at each service, of all pods together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000))]
    pub sessions: Option<u32>,
}

/// What a namespace uses.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct QuotaStatus {
    /// Of all services together.
    #[serde(default)]
    pub used: Used,
    /// Of each service on which the namespace has sessions, by its own agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceUse>,
    /// What is right, and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What is used of devices.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Used {
    /// Sessions.
    #[serde(default)]
    pub sessions: u32,
    /// Memory of devices, for people.
    #[serde(default)]
    pub memory: String,
    /// Memory of devices in bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// How much of one device's time, in percent of it, in the last interval.
    #[serde(default)]
    pub device_percent: u32,
}

/// What a namespace uses of one service.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ServiceUse {
    /// The node that the service runs on.
    pub node: String,
    /// Sessions.
    pub sessions: u32,
    /// Memory of its devices in bytes.
    pub memory_bytes: u64,
    /// How much of one device's time, in percent of it, in the last interval.
    pub device_percent: u32,
    /// When its agent said so, in seconds since 1970.
    pub seen: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn schema(definition: &CustomResourceDefinition) -> Value {
        let version = serde_json::to_value(&definition.spec.versions[0]).unwrap();
        version["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
    }

    #[test]
    fn there_are_three_kinds_with_status_columns_and_rules() {
        let all = definitions();
        let names: Vec<_> = all.iter().filter_map(|one| one.metadata.name.as_deref()).collect();
        assert_eq!(
            names,
            ["acceleratorpolicies.telecl.dev", "acceleratorpools.telecl.dev", "acceleratorquotas.telecl.dev"]
        );
        let scopes: Vec<_> = all.iter().map(|one| one.spec.scope.as_str()).collect();
        assert_eq!(scopes, ["Cluster", "Cluster", "Namespaced"]);
        for one in &all {
            assert_eq!(one.spec.group, GROUP);
            let version = &one.spec.versions[0];
            assert_eq!(version.name, "v1alpha1");
            assert!(version.subresources.as_ref().is_some_and(|sub| sub.status.is_some()), "{one:?}");
            assert!(version.additional_printer_columns.as_ref().is_some_and(|columns| columns.len() > 4));
            assert!(schema(one).to_string().contains("x-kubernetes-validations"));
        }
    }

    #[test]
    fn every_rule_says_what_to_write() {
        fn rules<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
            match value {
                Value::Object(map) => map.iter().for_each(|(key, value)| match (key.as_str(), value) {
                    ("x-kubernetes-validations", Value::Array(list)) => found.extend(list),
                    (_, value) => rules(value, found),
                }),
                Value::Array(list) => list.iter().for_each(|value| rules(value, found)),
                _ => {}
            }
        }
        for one in definitions() {
            let schema = schema(&one);
            let mut found = Vec::new();
            rules(&schema, &mut found);
            assert!(found.len() >= 3, "{}", one.spec.names.kind);
            assert!(found.iter().all(|rule| rule["message"].as_str().is_some_and(|text| text.len() > 20)), "{found:?}");
        }
    }

    #[test]
    fn limits_are_fields_of_a_policy_and_of_its_profiles() {
        let policy = schema(&AcceleratorPolicy::crd());
        let profile = &policy["properties"]["profiles"]["items"]["properties"];
        for limits in [&policy["properties"], profile] {
            assert_eq!(limits["weight"]["maximum"], json!(1000.0), "{limits}");
            assert!(limits["cap"]["x-kubernetes-validations"].is_array(), "{limits}");
            assert_eq!(limits["priority"]["enum"], json!(["Low", "Normal", "High"]), "{limits}");
        }
    }

    #[test]
    fn an_object_is_read_as_people_write_it() {
        let policy: AcceleratorPolicy = serde_json::from_value(json!({
            "apiVersion": "telecl.dev/v1alpha1", "kind": "AcceleratorPolicy", "metadata": {"name": "research"},
            "spec": {
                "subjects": [{"namespaceSelector": {"matchLabels": {"team": "red"}}},
                             {"serviceAccount": {"namespace": "batch", "name": "runner"}}],
                "weight": 3, "cap": "50 %", "priority": "High", "deviceMemory": "8Gi", "locality": "RequireNode",
                "profiles": [{"name": "small", "sessionMemory": "1Gi", "weight": 1}]
            }
        }))
        .unwrap();
        assert_eq!(policy.spec.limits.weight, Some(3));
        assert_eq!(policy.spec.profiles[0].limits.session_memory.as_deref(), Some("1Gi"));
        assert_eq!(policy.spec.locality, Some(Locality::RequireNode));
        assert_eq!(policy.spec.subjects.len(), 2);
    }
}
