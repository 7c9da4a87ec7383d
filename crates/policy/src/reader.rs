//! From the text of a file to a policy, collecting everything that is wrong on the way.

use std::path::Path;

use telecl_config::{in_file_order, line_at, nearest};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::check;
use crate::device::DevicePattern;
use crate::glob::{self, Glob};
use crate::grant::{Limits, Room};
use crate::policy::{DeviceRule, Pattern, Policy, TenantRule, User, Who};
use crate::problem::{Problem, Severity};
use crate::tenant::{Tenant, is_name_character};
use crate::value::wrong;

const TABLES: [&str; 5] = ["service", "device", "users", "defaults", "tenant"];

/// Reads a whole file. With errors among the problems, the policy is not to be used.
pub(crate) fn read(path: &Path, text: &str) -> (Policy, Vec<Problem>) {
    let mut reader = Reader { path, text, problems: Vec::new() };
    let mut policy = Policy::default();
    match DeTable::parse(text) {
        Ok(top) => reader.top(top.get_ref(), &mut policy),
        Err(error) => {
            let line = line_at(text.as_bytes(), error.span().map_or(0, |span| span.start));
            reader.error(line, "", format!("not valid TOML: {}", error.message().replace('\n', ", ")));
        }
    }
    check::patterns(&policy, &mut reader);
    // Values that could not be read would make others look contradictory.
    if reader.problems.is_empty() {
        check::values(&policy, &mut reader);
    }
    reader.problems.sort_by_key(|problem| problem.line);
    (policy, reader.problems)
}

pub(crate) struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    pub(crate) fn error(&mut self, line: usize, key: &str, reason: String) {
        self.problem(Severity::Error, line, key, reason);
    }

    pub(crate) fn warning(&mut self, line: usize, key: &str, reason: String) {
        self.problem(Severity::Warning, line, key, reason);
    }

    fn problem(&mut self, severity: Severity, line: usize, key: &str, reason: String) {
        self.problems.push(Problem { severity, path: self.path.to_owned(), line, key: key.to_owned(), reason });
    }

    fn line<T>(&self, item: &Spanned<T>) -> usize {
        line_at(self.text.as_bytes(), item.span().start)
    }

    fn top(&mut self, top: &DeTable<'_>, policy: &mut Policy) {
        for (key, value) in in_file_order(top) {
            let line = self.line(key);
            match key.get_ref().as_ref() {
                "service" => {
                    policy.service_line = line;
                    policy.service = self.room("service", value);
                }
                "device" => {
                    for (line, table) in self.tables("device", value) {
                        if let Some(rule) = self.device(line, table) {
                            policy.devices.push(rule);
                        }
                    }
                }
                "users" => policy.users = self.users(value),
                "defaults" => {
                    policy.defaults_line = line;
                    policy.defaults = self.defaults(value);
                }
                "tenant" => {
                    for (line, table) in self.tables("tenant", value) {
                        if let Some(rule) = self.tenant(line, table) {
                            policy.tenants.push(rule);
                        }
                    }
                }
                name => self.unknown("", name, line),
            }
        }
    }

    /// The table `[name]`.
    fn table<'v, 'i>(&mut self, name: &str, value: &'v Spanned<DeValue<'i>>) -> Option<&'v DeTable<'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(table),
            DeValue::Array(_) => {
                self.error(
                    self.line(value),
                    name,
                    format!("there can be one only; write [{name}], with single brackets"),
                );
                None
            }
            other => {
                self.error(self.line(value), name, wrong(other, &format!("a table: [{name}], and its keys below")));
                None
            }
        }
    }

    /// The tables `[[name]]`, with their lines.
    fn tables<'v, 'i>(&mut self, name: &str, value: &'v Spanned<DeValue<'i>>) -> Vec<(usize, &'v DeTable<'i>)> {
        let advice = format!("write [[{name}]], with double brackets, once for each rule");
        let DeValue::Array(items) = value.get_ref() else {
            self.error(self.line(value), name, format!("is not a list of rules; {advice}"));
            return Vec::new();
        };
        let mut found = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::Table(table) => found.push((self.line(item), table)),
                _ => self.error(self.line(item), name, format!("holds something that is not a rule; {advice}")),
            }
        }
        found
    }

    fn defaults(&mut self, value: &Spanned<DeValue<'_>>) -> Limits {
        let mut limits = Limits::default();
        for (key, value) in self.table("defaults", value).into_iter().flat_map(in_file_order) {
            self.key("defaults", key, value, |name, line, value| limits.set(name, line, value));
        }
        limits
    }

    fn room(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Room {
        let mut room = Room::default();
        for (key, value) in self.table(name, value).into_iter().flat_map(in_file_order) {
            self.key(name, key, value, |name, line, value| room.set(name, line, value));
        }
        room
    }

    fn tenant(&mut self, line: usize, table: &DeTable<'_>) -> Option<TenantRule> {
        let mut limits = Limits::default();
        let patterns =
            self.rule("tenant", line, table, tenant_pattern, |name, line, value| limits.set(name, line, value))?;
        Some(TenantRule { patterns, limits, line })
    }

    fn device(&mut self, line: usize, table: &DeTable<'_>) -> Option<DeviceRule> {
        let mut room = Room::default();
        let patterns =
            self.rule("device", line, table, DevicePattern::parse, |name, line, value| room.set(name, line, value))?;
        Some(DeviceRule { patterns, room, line })
    }

    /// A rule: `match`, and what it sets. `None` if it matches nothing.
    fn rule<T>(
        &mut self,
        name: &str,
        line: usize,
        table: &DeTable<'_>,
        pattern: impl Fn(&str) -> Result<T, String>,
        mut set: impl FnMut(&str, usize, &DeValue<'_>) -> Result<bool, String>,
    ) -> Option<Vec<Pattern<T>>> {
        let mut patterns = None;
        for (key, value) in in_file_order(table) {
            if key.get_ref() == "match" {
                patterns = Some(self.patterns(name, value, &pattern));
            } else {
                self.key(name, key, value, &mut set);
            }
        }
        if patterns.is_none() {
            self.error(line, name, "has no match; write match = \"NAME\", or a list of names, below it".to_owned());
        }
        patterns
    }

    /// One pattern or several.
    fn patterns<T>(
        &mut self,
        table: &str,
        value: &Spanned<DeValue<'_>>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<Pattern<T>> {
        let key = format!("{table}.match");
        let example = if table == "tenant" { "team-*" } else { "*H200*" };
        let expected = format!("a text such as \"{example}\", or a list of texts");
        let items: Vec<&Spanned<DeValue<'_>>> = match value.get_ref() {
            DeValue::Array(items) if items.is_empty() => {
                self.error(
                    self.line(value),
                    &key,
                    format!("is an empty list, which matches nothing; write {expected}"),
                );
                return Vec::new();
            }
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![value],
        };
        let mut found = Vec::new();
        for item in items {
            let line = self.line(item);
            let DeValue::String(text) = item.get_ref() else {
                self.error(line, &key, wrong(item.get_ref(), &expected));
                continue;
            };
            match parse(text) {
                Ok(means) => found.push(Pattern { text: text.trim().to_owned(), line, means }),
                Err(reason) => self.error(line, &key, reason),
            }
        }
        found
    }

    /// Any other key of a table.
    fn key(
        &mut self,
        table: &str,
        key: &Spanned<DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
        set: impl FnOnce(&str, usize, &DeValue<'_>) -> Result<bool, String>,
    ) {
        let name = key.get_ref().as_ref();
        match set(name, self.line(key), value.get_ref()) {
            Ok(true) => {}
            Ok(false) => self.unknown(table, name, self.line(key)),
            Err(reason) => self.error(self.line(value), &format!("{table}.{name}"), reason),
        }
    }

    fn users(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<User> {
        let mut users = Vec::new();
        for (key, value) in self.table("users", value).into_iter().flat_map(in_file_order) {
            let (name, line) = (key.get_ref().as_ref(), self.line(key));
            let full = format!("users.{}", name.escape_debug());
            let who = match user(name) {
                Ok(who) => who,
                Err(reason) => {
                    self.error(line, &full, reason);
                    continue;
                }
            };
            let DeValue::String(text) = value.get_ref() else {
                self.error(line, &full, wrong(value.get_ref(), "the name of a tenant such as \"team-red\""));
                continue;
            };
            match Tenant::parse(text) {
                Ok(tenant) => users.push(User { who, tenant, line }),
                Err(error) => self.error(line, &full, format!("{text:?}: {error}; write a name such as \"team-red\"")),
            }
        }
        users
    }

    fn unknown(&mut self, table: &str, name: &str, line: usize) {
        let full = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
        self.error(line, "", format!("unknown key {full:?}{}", hint(table, name)));
    }
}

/// A key of `[users]`: a number, or a name.
fn user(name: &str) -> Result<Who, String> {
    if name.trim().is_empty() || name.contains(char::is_control) {
        return Err("a user has a name or a number; write alice = \"team-red\", or 1000 = \"team-red\"".to_owned());
    }
    if !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Who::Name(name.to_owned()));
    }
    // The largest number means "no user" to the system.
    let number = name.parse::<u32>().ok().filter(|number| *number != u32::MAX);
    let number = number.ok_or_else(|| format!("{name} is no user's number; write one from 0 to {}", u32::MAX - 1))?;
    if number.to_string() != name {
        return Err(format!("{name} has zeros in front; write {number}"));
    }
    Ok(Who::Number(number))
}

fn tenant_pattern(text: &str) -> Result<Glob, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("is an empty pattern, which matches nothing; write a name, or \"*\" for all".to_owned());
    }
    if let Some(c) = text.chars().find(|c| !is_name_character(*c) && !"*?".contains(*c)) {
        return Err(format!(
            "{text:?} has {c:?}, which no tenant's name has; write letters, digits, . _ - : / @ + and the wildcards * ?"
        ));
    }
    if text.len() > glob::MAX_LEN {
        return Err(format!("{text:?} is too long; write a pattern of {} characters at most", glob::MAX_LEN));
    }
    Ok(Glob::new(text))
}

/// What was probably meant by an unknown key.
fn hint(table: &str, name: &str) -> String {
    let of_tenants = |name| Limits::KEYS.contains(&name);
    let of_devices = |name| Room::KEYS.contains(&name);
    let home = match table {
        "tenant" | "defaults" if of_devices(name) => Some("[service] or [[device]]"),
        "service" | "device" | "" if of_tenants(name) => Some("[defaults] or [[tenant]]"),
        "" if of_devices(name) => Some("[service] or [[device]]"),
        "defaults" | "service" if name == "match" => Some("[[tenant]] or [[device]]"),
        _ => None,
    };
    if let Some(home) = home {
        return format!(" ({name} belongs to {home})");
    }
    let known: Vec<&str> = match table {
        "" => TABLES.to_vec(),
        "tenant" => Limits::KEYS.iter().copied().chain(["match"]).collect(),
        "device" => Room::KEYS.iter().copied().chain(["match"]).collect(),
        "defaults" => Limits::KEYS.to_vec(),
        _ => Room::KEYS.to_vec(),
    };
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!(" (did you mean {meant:?}?)"),
        None => format!("; write one of {}", known.join(", ")),
    }
}
