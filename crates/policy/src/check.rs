//! What is wrong with a file whose parts are right: rules that never count, values that contradict each other.

use telecl_config::nearest;

use crate::glob::Glob;
use crate::grant::Limits;
use crate::policy::{Pattern, Policy};
use crate::reader::Reader;
use crate::value::Value;

/// Patterns that are there twice, or that can never be reached.
pub(crate) fn patterns(policy: &Policy, reader: &mut Reader<'_>) {
    let tenants = policy.tenants.iter().flat_map(|rule| &rule.patterns);
    shadowed("tenant.match", tenants, Glob::covers, reader);
    let devices = policy.devices.iter().flat_map(|rule| &rule.patterns);
    shadowed("device.match", devices, |wide, narrow| wide.covers(narrow), reader);
}

fn shadowed<'p, T: 'p>(
    key: &str,
    patterns: impl Iterator<Item = &'p Pattern<T>>,
    covers: impl Fn(&T, &T) -> bool,
    reader: &mut Reader<'_>,
) {
    let mut before: Vec<&Pattern<T>> = Vec::new();
    for pattern in patterns {
        let text = &pattern.text;
        if let Some(same) = before.iter().find(|other| other.text == *text) {
            let reason = format!("\"{text}\" is on line {} already; write it once", same.line);
            reader.error(pattern.line, key, reason);
        } else if let Some(wide) = before.iter().find(|other| covers(&other.means, &pattern.means)) {
            let reason = format!(
                "\"{text}\" never counts, because \"{}\" on line {} comes first and matches all that it does; \
                 write it before that one, or remove it",
                wide.text, wide.line
            );
            reader.error(pattern.line, key, reason);
        }
        before.push(pattern);
    }
}

/// Values that cannot be meant together.
pub(crate) fn values(policy: &Policy, reader: &mut Reader<'_>) {
    let none = Limits::default();
    table("defaults", &policy.defaults, &none, reader);
    for rule in &policy.tenants {
        table("tenant", &rule.limits, &policy.defaults, reader);
    }
    for order in policy.devices.iter().filter_map(|rule| rule.room.order.as_ref()) {
        let reason = "is about all devices of the service; write it below [service]".to_owned();
        reader.error(order.line, "device.order", reason);
    }
    users(policy, reader);
}

/// Checks what one table says, with the defaults behind it.
fn table(name: &str, own: &Limits, defaults: &Limits, reader: &mut Reader<'_>) {
    let session = own.session_memory.as_ref().or(defaults.session_memory.as_ref());
    let device = own.device_memory.as_ref().or(defaults.device_memory.as_ref());
    let said_here = own.session_memory.is_some() || own.device_memory.is_some();
    if let (true, Some(session), Some(device)) = (said_here, session, device)
        && let (Some(one), Some(all)) = (session.value, device.value)
        && one.exceeds(all) == Some(true)
    {
        let (one, all) = (one.plain(), all.plain());
        if own.session_memory.is_some() {
            let reason = format!(
                "\"{one}\" is more than device_memory, \"{all}\" on line {}, lets all sessions of the tenant have \
                 together; write \"{all}\" or less",
                device.line
            );
            reader.error(session.line, &format!("{name}.session_memory"), reason);
        } else {
            let reason = format!(
                "\"{all}\" for all sessions of the tenant is less than session_memory, \"{one}\" on line {}, lets one \
                 have; write \"{one}\" or more, or a session_memory for this rule",
                session.line
            );
            reader.error(device.line, &format!("{name}.device_memory"), reason);
        }
    }
    let kernel = own.longest_kernel.as_ref().or(defaults.longest_kernel.as_ref());
    if let Some(overrun) = &own.kernel_overrun
        && kernel.is_none_or(|kernel| kernel.value.is_none())
    {
        let reason = format!(
            "\"{}\" has no effect, because kernels may take as long as they like; write longest_kernel = \"30 s\" or \
             the like beside it, or remove it",
            overrun.value.plain()
        );
        reader.warning(overrun.line, &format!("{name}.kernel_overrun"), reason);
    }
}

/// A user whose tenant no rule is for was probably meant for one of them.
fn users(policy: &Policy, reader: &mut Reader<'_>) {
    let names = || policy.tenants.iter().flat_map(|rule| rule.patterns()).filter(|name| !name.contains(['*', '?']));
    for user in &policy.users {
        let tenant = user.tenant.as_str();
        let mut patterns = policy.tenants.iter().flat_map(|rule| &rule.patterns);
        if policy.tenants.is_empty() || patterns.any(|pattern| pattern.means.matches(tenant)) {
            continue;
        }
        let meant = nearest(tenant, names()).map(|name| format!(" (did you mean \"{name}\"?)")).unwrap_or_default();
        let reason = format!("no [[tenant]] matches \"{tenant}\", so it gets the defaults{meant}");
        reader.warning(user.line, &format!("users.{}", user.who), reason);
    }
}
