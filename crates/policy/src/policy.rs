//! A policy that is right.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::device::{DeviceFacts, DevicePattern};
use crate::glob::Glob;
use crate::grant::{DeviceGrant, Grant, Limits, Origin, Room};
use crate::problem::{PolicyError, Problem, Severity};
use crate::reader;
use crate::tenant::Tenant;
use crate::value::Plain;

/// Who gets what. Made of a file as a whole, and replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub(crate) service: Room,
    pub(crate) service_line: usize,
    pub(crate) devices: Vec<DeviceRule>,
    pub(crate) users: Vec<User>,
    pub(crate) defaults: Limits,
    pub(crate) defaults_line: usize,
    pub(crate) tenants: Vec<TenantRule>,
    pub(crate) warnings: Vec<Problem>,
}

/// A `[[tenant]]` of the file.
#[derive(Clone, Debug)]
pub struct TenantRule {
    pub(crate) patterns: Vec<Pattern<Glob>>,
    pub(crate) limits: Limits,
    pub(crate) line: usize,
}

/// A `[[device]]` of the file.
#[derive(Clone, Debug)]
pub struct DeviceRule {
    pub(crate) patterns: Vec<Pattern<DevicePattern>>,
    pub(crate) room: Room,
    pub(crate) line: usize,
}

/// A pattern of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Pattern<T> {
    pub(crate) text: String,
    pub(crate) line: usize,
    pub(crate) means: T,
}

/// An entry of `[users]`.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) who: Who,
    pub(crate) tenant: Tenant,
    pub(crate) line: usize,
}

/// A local user, by number or by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Number(u32),
    Name(String),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Number(number) => write!(f, "{number}"),
            Who::Name(name) => f.write_str(name),
        }
    }
}

impl Policy {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Policy, PolicyError> {
        let text = telecl_config::read_text(path)?;
        Policy::parse(path, &text).map_err(PolicyError::Wrong)
    }

    /// Checks the text of a file; `path` is for the messages. The problems come in the order of the file.
    pub fn parse(path: &Path, text: &str) -> Result<Policy, Vec<Problem>> {
        let (mut policy, problems) = reader::read(path, text);
        if problems.iter().any(|problem| problem.severity == Severity::Error) {
            return Err(problems);
        }
        policy.warnings = problems;
        Ok(policy)
    }

    /// What is probably not meant as it is written.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// What a tenant gets: from the first rule with a pattern that matches its name, for what that does not say from
    /// `[defaults]`, and for what those do not say what is built in.
    pub fn for_tenant(&self, tenant: &Tenant) -> Grant {
        let hits = self.tenants.iter().filter_map(|rule| {
            let pattern = rule.patterns.iter().find(|pattern| pattern.means.matches(tenant.as_str()))?;
            Some((rule, pattern))
        });
        let hit = hits.into_iter().next();
        let origin = hit.map(|(rule, pattern)| origin("tenant", &pattern.text, rule.line));
        let rule = hit.map(|(rule, _)| &rule.limits).zip(origin.as_ref());
        let defaults = Origin::Table { name: "defaults", line: self.defaults_line };
        let matched = hit.map(|(rule, pattern)| (pattern.text.clone(), rule.line));
        Grant::new(tenant.clone(), matched, rule, (&self.defaults, &defaults))
    }

    /// What a device takes: from the first `[[device]]` that means it, then from `[service]`.
    pub fn for_device(&self, device: &DeviceFacts<'_>) -> DeviceGrant {
        let hit = self.devices.iter().find_map(|rule| {
            let pattern = rule.patterns.iter().find(|pattern| pattern.means.matches(device))?;
            Some((&rule.room, origin("device", &pattern.text, rule.line)))
        });
        let service = Origin::Table { name: "service", line: self.service_line };
        DeviceGrant::new(hit.as_ref().map(|(room, origin)| (*room, origin)), (&self.service, &service))
    }

    /// How many sessions any device takes for which there is no rule, and how long a session waits for room.
    pub fn for_devices(&self) -> DeviceGrant {
        let service = Origin::Table { name: "service", line: self.service_line };
        DeviceGrant::new(None, (&self.service, &service))
    }

    /// Whose session a local user's is: what `[users]` says for the number, then for the name; otherwise
    /// [`Tenant::of_user`].
    pub fn tenant_of_user(&self, uid: u32, name: Option<&str>) -> Tenant {
        let by_number = || self.users.iter().find(|user| user.who == Who::Number(uid));
        let by_name =
            || self.users.iter().find(|user| matches!(&user.who, Who::Name(own) if Some(own.as_str()) == name));
        by_number().or_else(by_name).map_or_else(|| Tenant::of_user(uid, name), |user| user.tenant.clone())
    }

    /// The rules for tenants, in the order in which they are tried.
    pub fn tenant_rules(&self) -> &[TenantRule] {
        &self.tenants
    }

    /// The rules for devices, in the order in which they are tried.
    pub fn device_rules(&self) -> &[DeviceRule] {
        &self.devices
    }

    /// The users that have a tenant of their own, by name or number.
    pub fn users(&self) -> BTreeMap<String, &Tenant> {
        self.users.iter().map(|user| (user.who.to_string(), &user.tenant)).collect()
    }

    /// What `[defaults]` sets, and its line; `None` if the file has no such table.
    pub fn defaults(&self) -> Option<(usize, Vec<(&'static str, Plain)>)> {
        (self.defaults_line > 0).then(|| (self.defaults_line, self.defaults.said()))
    }

    /// What `[service]` sets, and its line; `None` if the file has no such table.
    pub fn service(&self) -> Option<(usize, Vec<(&'static str, Plain)>)> {
        (self.service_line > 0).then(|| (self.service_line, self.service.said()))
    }
}

fn origin(table: &'static str, pattern: &str, line: usize) -> Origin {
    Origin::Rule { table, pattern: pattern.to_owned(), line }
}

impl TenantRule {
    /// The line it begins on.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Its patterns.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|pattern| pattern.text.as_str())
    }

    /// What it sets.
    pub fn sets(&self) -> Vec<(&'static str, Plain)> {
        self.limits.said()
    }
}

impl DeviceRule {
    /// The line it begins on.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Its patterns.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|pattern| pattern.text.as_str())
    }

    /// What it sets.
    pub fn sets(&self) -> Vec<(&'static str, Plain)> {
        self.room.said()
    }
}
