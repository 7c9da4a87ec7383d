//! Two tenants of a private service with a policy of its own.

use std::path::Path as FilePath;
use std::process::Stdio;

use rustix::process::geteuid;

use crate::bench::path::{Path, Private};
use crate::exit::Failure;

/// The users that the tenants are, if the bench may become them. Nobody has them, as a rule.
const USERS: [u32; 2] = [60_001, 60_002];

/// Their names, unless the first one comes over TCP.
const NAMES: [&str; 2] = ["bench-one", "bench-two"];

#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) one: Path,
    pub(crate) two: Path,
    /// Who they are.
    pub(crate) about: String,
}

impl Pair {
    /// A new service; `rules` are the lines of each tenant's rule.
    pub(crate) fn start(driver: Option<&FilePath>, rules: [&str; 2]) -> Result<Pair, Failure> {
        // Whether the bench may become other users is known only when the service is there; the policy has both cases.
        let own = geteuid().as_raw();
        let policy = policy(own, rules);
        let mut private = Private::start(driver, Some(&policy), true)?;
        if geteuid().is_root() && private.open_to_all().is_ok() {
            let users = USERS.map(|user| private.shared_memory().for_user(user, private.executable()));
            if users.iter().all(can_start) {
                let [one, two] = users;
                return Ok(Pair { one, two, about: format!("users {} and {}", USERS[0], USERS[1]) });
            }
        }
        let two = private.shared_memory();
        let one = private.over_tcp().unwrap_or_else(|| two.clone());
        Ok(Pair { one, two, about: format!("anonymous over TCP, and user {own}") })
    }
}

fn policy(own: u32, rules: [&str; 2]) -> String {
    let [one, two] = NAMES;
    let mut users = vec![(USERS[0], one), (USERS[1], two)];
    if !USERS.contains(&own) {
        users.push((own, two));
    }
    let users: String = users.iter().map(|(user, tenant)| format!("{user} = \"{tenant}\"\n")).collect();
    let [first, second] = rules;
    format!(
        "[users]\n{users}\n[[tenant]]\nmatch = [\"{one}\", \"anonymous\"]\n{first}\n\n\
         [[tenant]]\nmatch = \"{two}\"\n{second}\n"
    )
}

/// Whether a process of this path starts: its user must be able to reach the executable.
fn can_start(path: &Path) -> bool {
    let started = path.command().and_then(|mut command| {
        command.arg("--help").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
    });
    started.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use telecl_policy::{Policy, Tenant};

    use super::*;

    #[test]
    fn both_tenants_have_their_rule_whoever_they_are() {
        for own in [0, 1000, USERS[0]] {
            let policy = Policy::parse(FilePath::new("p"), &policy(own, ["weight = 2", "weight = 5"])).unwrap();
            let weight = |tenant: &Tenant| policy.for_tenant(tenant).weight.value;
            let users = USERS.map(|user| weight(&policy.tenant_of_user(user, None)));
            assert_eq!(users[0], weight(&Tenant::anonymous()));
            assert_ne!(users[0], users[1]);
            if own != USERS[0] {
                assert_eq!(weight(&policy.tenant_of_user(own, None)), users[1]);
            }
        }
    }
}
