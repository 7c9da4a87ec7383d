//! A service's policy, made of what people have written into the cluster.
//!
//! [`render`] is a function of the objects, of the namespaces with their labels, and of the labels of the service's node:
//! the same objects make the same file, to the byte. What it makes is read by `telecl_policy` before anybody gets it.
//!
//! Which policy counts: one for the service account before one for the namespace by its name, that before one that
//! selects the namespace by labels, and that before one for everybody. Between policies that are equally near, the one
//! with the higher precedence counts, and then the one whose name comes first; the other one's status says so.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use telecl_policy::{DevicePattern, Policy, Tenant, parse_size};

use crate::objects::{
    AcceleratorPolicy, AcceleratorPool, AcceleratorQuota, Conflict, Limits, Locality, Order, Priority, Profile,
};

/// Labels of a namespace or a node.
pub type Labels = BTreeMap<String, String>;

/// Beyond so many namespaces, those for which nobody has written anything share the rules for everybody.
const MOST_NAMESPACES: usize = 1000;

/// As many conflicts are named in a policy's status; all of them are counted.
const MOST_CONFLICTS: usize = 10;

/// Everything that a service's policy is made of.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub pools: Vec<AcceleratorPool>,
    pub policies: Vec<AcceleratorPolicy>,
    pub quotas: Vec<AcceleratorQuota>,
    /// With their labels.
    pub namespaces: BTreeMap<String, Labels>,
    /// Of the node that the service runs on.
    pub node: Labels,
}

/// What was made of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rendered {
    /// The policy's file.
    pub toml: String,
    /// What became of each policy.
    pub policies: BTreeMap<String, Outcome>,
    /// By whom: `namespace/serviceaccount`, `namespace`, or nothing for everybody else.
    subjects: BTreeMap<String, Subject>,
}

/// What became of a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Namespaces for which it counts.
    pub namespaces: BTreeSet<String>,
    pub conflicts: Vec<Conflict>,
    pub conflict_count: u32,
    /// What it names and is not there.
    pub problems: Vec<String>,
}

/// What is to be known of those who show a token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    pub policy: String,
    pub profiles: BTreeSet<String>,
    pub requires_node: bool,
}

impl Rendered {
    /// What holds for a service account.
    pub fn subject(&self, namespace: &str, account: &str) -> Option<&Subject> {
        let own = self.subjects.get(&format!("{namespace}/{account}"));
        own.or_else(|| self.subjects.get(namespace)).or_else(|| self.subjects.get(""))
    }
}

/// How near a policy is to a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Nearness {
    Everybody,
    Selected,
    Named,
}

/// Makes the policy; an error is what `telecl_policy` has against it.
pub fn render(world: &World) -> Result<Rendered, String> {
    let mut maker = Maker::new(world);
    maker.devices();
    maker.service_accounts();
    maker.namespaces();
    maker.everybody();
    let Maker { text, rendered, .. } = maker;
    let head = "# Made by telecl-kube agent of the objects of telecl.dev. What is changed here is lost.\n";
    let toml = format!("{head}{text}");
    match Policy::parse(Path::new("policy.toml"), &toml) {
        Ok(_) => Ok(Rendered { toml, ..rendered }),
        Err(problems) => Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    }
}

struct Maker<'w> {
    world: &'w World,
    /// Those that count first come first.
    policies: Vec<&'w AcceleratorPolicy>,
    /// Pools that this node belongs to.
    pools: Vec<&'w AcceleratorPool>,
    /// For everybody for whom nobody has written one.
    common: Option<&'w AcceleratorPolicy>,
    text: String,
    rendered: Rendered,
}

impl<'w> Maker<'w> {
    fn new(world: &'w World) -> Maker<'w> {
        let mut policies: Vec<&AcceleratorPolicy> = world.policies.iter().collect();
        policies.sort_by_key(|policy| (Reverse(policy.spec.precedence.unwrap_or(0)), policy.name_any()));
        let mut pools: Vec<&AcceleratorPool> = world.pools.iter().collect();
        pools.retain(|pool| pool.spec.node_selector.iter().all(|(key, value)| world.node.get(key) == Some(value)));
        pools.sort_by_key(|pool| pool.name_any());
        let common: Vec<&AcceleratorPolicy> =
            policies.iter().copied().filter(|policy| policy.spec.subjects.is_empty()).collect();
        let outcomes = policies.iter().map(|policy| (policy.name_any(), Outcome::default())).collect();
        let rendered = Rendered { policies: outcomes, ..Rendered::default() };
        let mut maker =
            Maker { world, policies, pools, common: common.first().copied(), text: String::new(), rendered };
        for other in common.iter().skip(1) {
            maker.conflict("everybody", common[0], other);
        }
        maker.look_for_problems();
        maker
    }

    /// What policies name and nobody has made.
    fn look_for_problems(&mut self) {
        let pools: BTreeSet<String> = self.world.pools.iter().map(ResourceExt::name_any).collect();
        for policy in self.policies.clone() {
            let mut problems = Vec::new();
            for pool in policy.spec.pools.iter().filter(|pool| !pools.contains(*pool)) {
                problems.push(format!("there is no AcceleratorPool {pool}"));
            }
            if let Some(profile) = &policy.spec.profile
                && self.profile(policy, profile).is_none()
            {
                problems
                    .push(format!("there is no profile {profile}, neither in this policy nor in one without subjects"));
            }
            self.outcome(policy).problems = problems;
        }
    }

    fn outcome(&mut self, policy: &AcceleratorPolicy) -> &mut Outcome {
        self.rendered.policies.entry(policy.name_any()).or_default()
    }

    /// `winner` counts for a subject, and `loser` is as near.
    fn conflict(&mut self, subject: &str, winner: &AcceleratorPolicy, loser: &AcceleratorPolicy) {
        let precedence = |policy: &AcceleratorPolicy| policy.spec.precedence.unwrap_or(0);
        let reason = match precedence(winner).cmp(&precedence(loser)) {
            std::cmp::Ordering::Greater => format!("its precedence, {}, is higher", precedence(winner)),
            _ => "its name comes first, and their precedence is the same".to_owned(),
        };
        let conflict = Conflict { subject: subject.to_owned(), policy: winner.name_any(), reason };
        let outcome = self.outcome(loser);
        outcome.conflict_count += 1;
        if outcome.conflicts.len() < MOST_CONFLICTS {
            outcome.conflicts.push(conflict);
        }
    }

    /// `[service]` and `[[device]]`.
    fn devices(&mut self) {
        if self.pools.iter().any(|pool| pool.spec.sharing.order == Some(Order::Load)) {
            self.text += "\n[service]\norder = \"load\"\n";
        }
        let mut before: Vec<DevicePattern> = Vec::new();
        for pool in self.pools.clone() {
            let sharing = &pool.spec.sharing;
            if sharing.sessions_per_device.is_none() && sharing.admission_wait.is_none() {
                continue;
            }
            // What a pool before it has, it does not get.
            let mut own = Vec::new();
            for pattern in patterns(pool) {
                if !before.iter().any(|wide| wide.covers(&pattern)) {
                    own.push(quoted(pattern.as_str()));
                    before.push(pattern);
                }
            }
            if own.is_empty() {
                continue;
            }
            let _ = writeln!(self.text, "\n# pool {}\n[[device]]\nmatch = [{}]", pool.name_any(), own.join(", "));
            if let Some(sessions) = sharing.sessions_per_device {
                let _ = writeln!(self.text, "sessions_per_device = {sessions}");
            }
            if let Some(wait) = &sharing.admission_wait {
                let _ = writeln!(self.text, "admission_wait = {}", quoted(wait));
            }
        }
    }

    /// Rules for service accounts that a policy names.
    fn service_accounts(&mut self) {
        let mut found: BTreeMap<(String, String), Vec<&'w AcceleratorPolicy>> = BTreeMap::new();
        for policy in &self.policies {
            for account in policy.spec.subjects.iter().filter_map(|subject| subject.service_account.as_ref()) {
                let all = found.entry((account.namespace.clone(), account.name.clone())).or_default();
                if !all.iter().any(|there| there.name_any() == policy.name_any()) {
                    all.push(policy);
                }
            }
        }
        for ((namespace, account), policies) in found {
            let subject = format!("{namespace}/{account}");
            let winner = policies[0];
            policies[1..].iter().for_each(|loser| self.conflict(&subject, winner, loser));
            self.outcome(winner).namespaces.insert(namespace.clone());
            let name = |profile: Option<&str>| Tenant::of_service_account(&namespace, &account, profile).ok();
            let quota = self.quota(&namespace);
            // By itself, unless all of the namespace have something together.
            let own = match name(None) {
                Some(tenant) if quota == Quota::default() => tenant.as_str().to_owned(),
                _ => format!("{namespace}/"),
            };
            for (profile, limits) in self.profiles(winner) {
                if let Some(tenant) = name(Some(profile.as_str())) {
                    self.rule(&[tenant.as_str()], Some(&own), winner, &quota.narrow(&limits));
                }
            }
            if let Some(tenant) = name(None) {
                let all = format!("{tenant}@*");
                let limits = self.default_limits(winner);
                self.rule(&[tenant.as_str(), &all], Some(&own), winner, &quota.narrow(&limits));
            }
            self.remember(subject, winner);
        }
    }

    /// Rules for namespaces.
    fn namespaces(&mut self) {
        let many = self.world.namespaces.len() > MOST_NAMESPACES;
        for (namespace, labels) in &self.world.namespaces {
            let mut near: Vec<(Nearness, &'w AcceleratorPolicy)> = self
                .policies
                .iter()
                .filter_map(|policy| Some((nearness(policy, namespace, labels)?, *policy)))
                .collect();
            // The order of those that are equally near stays.
            near.sort_by_key(|(nearness, _)| Reverse(*nearness));
            let winner = near.first().copied();
            for (_, loser) in
                near.iter().skip(1).filter(|(nearness, _)| winner.is_some_and(|(own, _)| own == *nearness))
            {
                if let Some((Nearness::Selected | Nearness::Named, winner)) = winner {
                    self.conflict(namespace, winner, loser);
                }
            }
            let quota = self.quota(namespace);
            let nothing = AcceleratorPolicy::new("", crate::objects::PolicySpec::default());
            let policy = match winner {
                Some((Nearness::Everybody, policy)) => {
                    self.outcome(policy).namespaces.insert(namespace.clone());
                    if many && quota == Quota::default() {
                        continue;
                    }
                    policy
                }
                Some((_, policy)) => {
                    self.outcome(policy).namespaces.insert(namespace.clone());
                    policy
                }
                None if quota == Quota::default() => continue,
                None => &nothing,
            };
            let account = format!("{namespace}/");
            for (profile, limits) in self.profiles(policy) {
                let pattern = format!("{namespace}/*@{profile}");
                self.rule(&[&pattern], Some(&account), policy, &quota.narrow(&limits));
            }
            let limits = self.default_limits(policy);
            self.rule(&[&format!("{namespace}/*")], Some(&account), policy, &quota.narrow(&limits));
            self.remember(namespace.clone(), policy);
        }
    }

    /// Rules for whoever is left: namespaces that came a moment ago, or of which there are too many.
    fn everybody(&mut self) {
        let Some(policy) = self.common else { return };
        for (profile, limits) in self.profiles(policy) {
            self.rule(&[&format!("*/*@{profile}")], None, policy, &limits);
        }
        let limits = self.default_limits(policy);
        self.rule(&["*/*"], None, policy, &limits);
        self.remember(String::new(), policy);
    }

    fn remember(&mut self, subject: String, policy: &AcceleratorPolicy) {
        let profiles = self.profiles(policy).into_iter().map(|(name, _)| name).collect();
        let requires_node = policy.spec.locality == Some(Locality::RequireNode);
        self.rendered.subjects.insert(subject, Subject { policy: policy.name_any(), profiles, requires_node });
    }

    /// A profile of the policy, or of one for everybody.
    fn profile(&self, policy: &'w AcceleratorPolicy, name: &str) -> Option<&'w Profile> {
        let own = policy.spec.profiles.iter().find(|profile| profile.name == name);
        own.or_else(|| self.catalogue().find(|profile| profile.name == name))
    }

    fn catalogue(&self) -> impl Iterator<Item = &'w Profile> {
        let common: Vec<&'w AcceleratorPolicy> =
            self.policies.iter().copied().filter(|policy| policy.spec.subjects.is_empty()).collect();
        common.into_iter().flat_map(|policy| &policy.spec.profiles)
    }

    /// The profiles that those under the policy may name, and what each means for them.
    fn profiles(&self, policy: &AcceleratorPolicy) -> Vec<(String, Limits)> {
        let mut all: BTreeMap<&str, &Limits> = BTreeMap::new();
        for profile in policy.spec.profiles.iter().chain(self.catalogue()) {
            all.entry(&profile.name).or_insert(&profile.limits);
        }
        all.into_iter().map(|(name, limits)| (name.to_owned(), over(limits, &policy.spec.limits))).collect()
    }

    /// For those whose pods name none.
    fn default_limits(&self, policy: &AcceleratorPolicy) -> Limits {
        let own = policy.spec.profile.as_deref();
        let found = own.and_then(|name| self.profiles(policy).into_iter().find(|(profile, _)| profile == name));
        found.map_or_else(|| policy.spec.limits.clone(), |(_, limits)| limits)
    }

    fn quota(&self, namespace: &str) -> Quota {
        let own = self.world.quotas.iter().filter(|quota| quota.namespace().as_deref() == Some(namespace));
        own.fold(Quota::default(), |sum, quota| Quota {
            memory: least(sum.memory.as_deref(), quota.spec.device_memory.as_deref(), smaller),
            share: least(sum.share.as_deref(), quota.spec.device_share.as_deref(), smaller),
            sessions: [sum.sessions, quota.spec.sessions].into_iter().flatten().min(),
        })
    }

    /// Writes a `[[tenant]]`.
    fn rule(&mut self, matches: &[&str], account: Option<&str>, policy: &AcceleratorPolicy, limits: &Limits) {
        let matches: Vec<String> = matches.iter().map(|pattern| quoted(pattern)).collect();
        let text = &mut self.text;
        match policy.name_any().as_str() {
            "" => text.push_str("\n# quota alone"),
            name => _ = write!(text, "\n# policy {name}"),
        }
        let _ = writeln!(text, "\n[[tenant]]\nmatch = [{}]", matches.join(", "));
        if let Some(account) = account {
            let _ = writeln!(text, "account = {}", quoted(account));
        }
        let pools: Vec<&&AcceleratorPool> = self
            .pools
            .iter()
            .filter(|pool| policy.spec.pools.is_empty() || policy.spec.pools.contains(&pool.name_any()))
            .collect();
        if !policy.spec.pools.is_empty() {
            let mut own: Vec<String> =
                pools.iter().flat_map(|pool| patterns(pool)).map(|pattern| quoted(pattern.as_str())).collect();
            own.sort();
            own.dedup();
            let _ = writeln!(text, "devices = [{}]", own.join(", "));
        }
        if pools.iter().any(|pool| pool.spec.sharing.oversubscribe == Some(true)) {
            text.push_str("oversubscribe = true\n");
        }
        let Limits { weight, cap, priority, device_memory, session_memory, sessions, longest_idle } = limits;
        let device_memory = device_memory.as_deref().map(size);
        let session_memory = session_memory.as_deref().map(size);
        // One program cannot have more than all of them.
        let session_memory = match (session_memory, &device_memory) {
            (Some(one), Some(all)) => Some(smaller(&one, all).unwrap_or(&one).to_owned()),
            (one, _) => one,
        };
        let priority = priority.map(|priority| match priority {
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
        });
        for (key, value) in [
            ("weight", weight.map(|weight| weight.to_string())),
            ("cap", cap.as_deref().map(quoted)),
            ("priority", priority.map(quoted)),
            ("device_memory", device_memory.as_deref().map(quoted)),
            ("session_memory", session_memory.as_deref().map(quoted)),
            ("sessions", sessions.map(|sessions| sessions.to_string())),
            ("longest_idle", longest_idle.as_deref().map(quoted)),
        ] {
            if let Some(value) = value {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
    }
}

/// What all pods of a namespace may have together.
#[derive(Clone, Debug, Default, PartialEq)]
struct Quota {
    memory: Option<String>,
    share: Option<String>,
    sessions: Option<u32>,
}

impl Quota {
    fn narrow(&self, limits: &Limits) -> Limits {
        Limits {
            device_memory: least(self.memory.as_deref(), limits.device_memory.as_deref(), smaller),
            cap: least(self.share.as_deref(), limits.cap.as_deref(), smaller),
            sessions: [self.sessions, limits.sessions].into_iter().flatten().min(),
            ..limits.clone()
        }
    }
}

/// How near a policy is to a namespace as a whole.
fn nearness(policy: &AcceleratorPolicy, namespace: &str, labels: &Labels) -> Option<Nearness> {
    let subjects = &policy.spec.subjects;
    if subjects.is_empty() {
        return Some(Nearness::Everybody);
    }
    if subjects.iter().any(|subject| subject.namespace.as_deref() == Some(namespace)) {
        return Some(Nearness::Named);
    }
    let selected = subjects.iter().filter_map(|subject| subject.namespace_selector.as_ref());
    selected.into_iter().any(|selector| selects(selector, labels)).then_some(Nearness::Selected)
}

/// As Kubernetes reads a selector; an operator that it does not have selects nothing.
fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let exact = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let expressions = selector.match_expressions.iter().flatten();
    exact
        && expressions.into_iter().all(|expression| {
            let value = labels.get(&expression.key);
            let listed = || value.is_some_and(|value| expression.values.iter().flatten().any(|one| one == value));
            match expression.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

fn patterns(pool: &AcceleratorPool) -> Vec<DevicePattern> {
    let all = ["*".to_owned()];
    let texts = if pool.spec.devices.is_empty() { &all[..] } else { &pool.spec.devices };
    texts.iter().filter_map(|text| DevicePattern::parse(text).ok()).collect()
}

/// What `first` says, and for the rest what `second` does.
fn over(first: &Limits, second: &Limits) -> Limits {
    let text = |first: &Option<String>, second: &Option<String>| first.clone().or_else(|| second.clone());
    Limits {
        weight: first.weight.or(second.weight),
        cap: text(&first.cap, &second.cap),
        priority: first.priority.or(second.priority),
        device_memory: text(&first.device_memory, &second.device_memory),
        session_memory: text(&first.session_memory, &second.session_memory),
        sessions: first.sessions.or(second.sessions),
        longest_idle: text(&first.longest_idle, &second.longest_idle),
    }
}

/// The less of two; the first if they cannot be compared.
fn least<'a>(
    first: Option<&'a str>,
    second: Option<&'a str>,
    smaller: impl Fn(&'a str, &'a str) -> Option<&'a str>,
) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) => Some(smaller(first, second).unwrap_or(first).to_owned()),
        (one, other) => one.or(other).map(str::to_owned),
    }
}

/// The smaller of two sizes or of two parts; `None` if that depends on the device.
fn smaller<'a>(first: &'a str, second: &'a str) -> Option<&'a str> {
    let percent = |text: &str| text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let less = match (percent(first), percent(second)) {
        (Some(one), Some(other)) => one <= other,
        (None, None) => parse_size(&size(first)).ok()? <= parse_size(&size(second)).ok()?,
        _ => return None,
    };
    Some(if less { first } else { second })
}

/// `4Gi` as the policy writes it, `4 GiB`; parts stay.
pub(crate) fn size(text: &str) -> String {
    let text = text.trim();
    if text.ends_with('%') {
        return text.to_owned();
    }
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[digits.len()..].trim().trim_end_matches('B');
    format!("{digits} {unit}B")
}

/// A text in quotes. JSON's are TOML's, too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, spec: Value) -> AcceleratorPolicy {
        AcceleratorPolicy::new(name, serde_json::from_value(spec).unwrap())
    }

    fn pool(name: &str, spec: Value) -> AcceleratorPool {
        AcceleratorPool::new(name, serde_json::from_value(spec).unwrap())
    }

    fn quota(namespace: &str, spec: Value) -> AcceleratorQuota {
        let mut quota = AcceleratorQuota::new("quota", serde_json::from_value(spec).unwrap());
        quota.metadata.namespace = Some(namespace.to_owned());
        quota
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn world() -> World {
        let namespaces = [("red", "research"), ("blue", "research"), ("other", "none")];
        World {
            namespaces: namespaces.map(|(name, team)| (name.to_owned(), labels(&[("team", team)]))).into(),
            node: labels(&[("gpu", "h200")]),
            ..World::default()
        }
    }

    fn granted(rendered: &Rendered, tenant: &str) -> BTreeMap<&'static str, String> {
        let policy = Policy::parse(Path::new("p"), &rendered.toml).unwrap();
        let grant = policy.for_tenant(&Tenant::parse(tenant).unwrap());
        grant.rows().iter().map(|row| (row.key, row.value.to_string())).collect()
    }

    #[test]
    fn nothing_makes_a_policy_that_allows_everything() {
        let rendered = render(&World::default()).unwrap();
        assert_eq!(granted(&rendered, "a/b")["device_memory"], "none");
        assert_eq!(rendered.subject("a", "b"), None);
    }

    #[test]
    fn the_nearest_policy_counts_and_what_it_does_not_say_comes_from_its_profile() {
        let mut world = world();
        world.policies = vec![
            policy("all", json!({"weight": 1, "profiles": [{"name": "small", "sessionMemory": "1Gi", "weight": 2}]})),
            policy(
                "research",
                json!({"subjects": [{"namespaceSelector": {"matchLabels": {"team": "research"}}}],
                "weight": 3, "profile": "small", "priority": "High", "locality": "RequireNode"}),
            ),
            policy("red", json!({"subjects": [{"namespace": "red"}], "weight": 5})),
            policy(
                "runner",
                json!({"subjects": [{"serviceAccount": {"namespace": "red", "name": "runner"}}], "weight": 9}),
            ),
        ];
        let rendered = render(&world).unwrap();
        let weight = |tenant: &str| granted(&rendered, tenant)["weight"].clone();
        for (tenant, expected) in [
            ("red/runner", "9"),
            ("red/runner@unknown", "9"),
            ("red/runner@small", "2"),
            ("red/default", "5"),
            ("red/default@small", "2"),
            // Its profile's.
            ("blue/default", "2"),
            ("other/default", "1"),
            // It came a moment ago.
            ("new/default", "1"),
        ] {
            assert_eq!(weight(tenant), expected, "{tenant}\n{}", rendered.toml);
        }
        let blue = granted(&rendered, "blue/default");
        assert_eq!((blue["session_memory"].as_str(), blue["priority"].as_str()), ("1 GiB", "high"));
        assert_eq!(granted(&rendered, "red/runner@small")["account"], "red/runner");
        assert_eq!((blue["account"].as_str(), granted(&rendered, "new/x")["account"].as_str()), ("blue/", "none"));
        let subject = rendered.subject("blue", "default").unwrap();
        assert!(subject.requires_node && subject.profiles.contains("small") && subject.policy == "research");
        assert_eq!(rendered.subject("red", "runner").unwrap().policy, "runner");
        assert_eq!(rendered.subject("new", "x").unwrap().policy, "all");
        // A nearer policy is no conflict.
        assert!(rendered.policies.values().all(|outcome| outcome.conflict_count == 0), "{:?}", rendered.policies);
        assert_eq!(rendered.policies["research"].namespaces, BTreeSet::from(["blue".to_owned()]));
    }

    #[test]
    fn of_two_that_are_equally_near_the_one_with_the_higher_precedence_counts_and_the_other_says_so() {
        let mut world = world();
        let spec = |weight: u32, precedence: i32| json!({"subjects": [{"namespace": "red"}], "weight": weight, "precedence": precedence});
        world.policies = vec![policy("a", spec(1, 0)), policy("b", spec(2, 0)), policy("c", spec(3, 7))];
        let rendered = render(&world).unwrap();
        assert_eq!(granted(&rendered, "red/x")["weight"], "3");
        let conflict = |name: &str| rendered.policies[name].conflicts[0].clone();
        assert_eq!((conflict("a").policy.as_str(), conflict("a").subject.as_str()), ("c", "red"));
        assert!(conflict("b").reason.contains("precedence, 7"), "{:?}", conflict("b"));
        assert!(rendered.policies["c"].conflicts.is_empty());
        // Without it, the name decides.
        world.policies.pop();
        let rendered = render(&world).unwrap();
        assert_eq!(granted(&rendered, "red/x")["weight"], "1");
        assert!(rendered.policies["b"].conflicts[0].reason.contains("name comes first"));
    }

    #[test]
    fn a_quota_narrows_what_a_policy_gives_and_holds_alone() {
        let mut world = world();
        world.policies = vec![policy(
            "red",
            json!({"subjects": [{"namespace": "red"}], "deviceMemory": "8Gi",
            "sessionMemory": "6GiB", "cap": "50 %", "sessions": 4}),
        )];
        world.quotas = vec![
            quota("red", json!({"deviceMemory": "4Gi", "deviceShare": "75%", "sessions": 8})),
            quota("blue", json!({"deviceMemory": "25 %"})),
        ];
        let rendered = render(&world).unwrap();
        let red = granted(&rendered, "red/default");
        for (key, expected) in
            [("device_memory", "4 GiB"), ("session_memory", "4 GiB"), ("cap", "50 %"), ("sessions", "4")]
        {
            assert_eq!(red[key], expected, "{key}");
        }
        let blue = granted(&rendered, "blue/x");
        assert_eq!((blue["device_memory"].as_str(), blue["account"].as_str()), ("25 %", "blue/"));
        assert_eq!(granted(&rendered, "other/x")["device_memory"], "none");
    }

    #[test]
    fn pools_of_this_node_say_which_devices_and_how_they_are_shared() {
        let mut world = world();
        world.pools = vec![
            pool("far", json!({"nodeSelector": {"gpu": "mi300"}, "devices": ["*MI300*"]})),
            pool(
                "near",
                json!({"nodeSelector": {"gpu": "h200"}, "devices": ["*H200*", "odd:thing"],
                "sharing": {"sessionsPerDevice": 8, "admissionWait": "10s", "order": "Load"}}),
            ),
            pool("near-too", json!({"devices": ["*H200*"], "sharing": {"sessionsPerDevice": 2}})),
        ];
        world.policies = vec![
            policy("red", json!({"subjects": [{"namespace": "red"}], "pools": ["near"]})),
            policy(
                "blue",
                json!({"subjects": [{"namespace": "blue"}], "pools": ["far", "missing"], "profile": "none"}),
            ),
        ];
        let rendered = render(&world).unwrap();
        assert_eq!(granted(&rendered, "red/x")["devices"], "*H200*");
        assert_eq!(granted(&rendered, "blue/x")["devices"], "[]");
        let policy = Policy::parse(Path::new("p"), &rendered.toml).unwrap();
        assert_eq!(policy.for_devices().order.value, telecl_policy::DeviceOrder::Load);
        let device = telecl_policy::DeviceFacts { number: 1, name: "NVIDIA H200", platform: "CUDA", uuid: None };
        assert_eq!(policy.for_device(&device).sessions_per_device.value.map(u32::from), Some(8));
        let problems = &rendered.policies["blue"].problems;
        assert!(problems[0].contains("missing") && problems[1].contains("profile none"), "{problems:?}");
    }

    #[test]
    fn the_order_of_the_objects_changes_nothing() {
        let mut world = world();
        world.policies = ["c", "a", "b"]
            .map(|name| policy(name, json!({"subjects": [{"namespaceSelector": {}}], "weight": 2})))
            .to_vec();
        world.quotas = vec![quota("red", json!({"sessions": 1})), quota("blue", json!({"sessions": 2}))];
        let first = render(&world).unwrap();
        world.policies.reverse();
        world.quotas.reverse();
        assert_eq!(render(&world).unwrap(), first);
    }

    #[test]
    fn selectors_are_read_as_kubernetes_reads_them() {
        let selector = |value: Value| serde_json::from_value::<LabelSelector>(value).unwrap();
        let own = labels(&[("team", "red"), ("tier", "1")]);
        let expression = |operator: &str, key: &str, values: &[&str]| {
            selector(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        assert!(selects(&selector(json!({})), &own));
        assert!(selects(&expression("In", "team", &["red", "blue"]), &own));
        assert!(!selects(&expression("In", "size", &["red"]), &own));
        assert!(
            selects(&expression("NotIn", "size", &["red"]), &own)
                && !selects(&expression("NotIn", "team", &["red"]), &own)
        );
        assert!(
            selects(&expression("Exists", "tier", &[]), &own)
                && !selects(&expression("DoesNotExist", "tier", &[]), &own)
        );
        assert!(!selects(&expression("Gt", "tier", &["0"]), &own));
    }

    #[test]
    fn many_namespaces_share_the_rules_for_everybody() {
        let world = World {
            namespaces: (0..MOST_NAMESPACES + 1).map(|n| (format!("ns-{n}"), Labels::new())).collect(),
            policies: vec![policy("all", json!({"weight": 2}))],
            quotas: vec![quota("ns-7", json!({"sessions": 1}))],
            ..World::default()
        };
        let rendered = render(&world).unwrap();
        assert_eq!(rendered.toml.matches("[[tenant]]").count(), 2, "{}", rendered.toml);
        assert_eq!(granted(&rendered, "ns-9/x")["weight"], "2");
        assert_eq!(rendered.policies["all"].namespaces.len(), MOST_NAMESPACES + 1);
    }
}
