//! How the service is at one moment: what metrics and those who look after it are told.

use std::collections::BTreeMap;
use std::sync::Arc;

use telecl_policy::{Policy, Tenant};
use telecl_wire::status::Sensors;

use super::Broker;
use super::accounts::{Account, Seen, Snapshot};
use super::offer::Known;
use crate::board::DeviceCount;

/// Everything there is to know.
#[derive(Debug)]
pub(crate) struct Overview {
    pub(crate) devices: Vec<DeviceView>,
    pub(crate) sessions: Vec<Seen>,
    pub(crate) tenants: BTreeMap<Tenant, Account>,
    /// What tenants came to who left long ago.
    pub(crate) others: Option<Account>,
}

/// A device, and what all its sessions come to.
#[derive(Debug)]
pub(crate) struct DeviceView {
    pub(crate) device: Arc<Known>,
    pub(crate) used: u64,
    /// What the sessions there may use, if they use all they may.
    pub(crate) promised: u64,
    pub(crate) sessions: u32,
    pub(crate) busy_ns: u64,
    pub(crate) sensors: Option<Sensors>,
}

impl Overview {
    pub(crate) fn take(broker: &Broker) -> Overview {
        let snapshot = broker.accounts.snapshot();
        let policy = broker.rules.current();
        let view = |device: &Arc<Known>| {
            let sum = |count| {
                let accounts = snapshot.tenants.values().chain(&snapshot.others);
                accounts.fold(0u64, |sum, account| sum.saturating_add(account.figures.device(device.id).get(count)))
            };
            let on_it = snapshot.sessions.iter().filter(|seen| seen.devices.contains(&device.id));
            DeviceView {
                device: Arc::clone(device),
                used: sum(DeviceCount::Memory),
                promised: promised(&policy, device, on_it.clone()),
                sessions: u32::try_from(on_it.count()).unwrap_or(u32::MAX),
                busy_ns: sum(DeviceCount::Busy),
                sensors: broker.sensors.of(device),
            }
        };
        let devices = broker.offer.known().iter().map(view).collect();
        let Snapshot { sessions, tenants, others } = snapshot;
        Overview { devices, sessions, tenants, others }
    }
}

/// A tenant's sessions may use what each may, and no more than the tenant may. Who has no limit may use the device.
fn promised<'s>(policy: &Policy, device: &Known, sessions: impl Iterator<Item = &'s Seen>) -> u64 {
    let mut tenants: BTreeMap<&Tenant, u64> = BTreeMap::new();
    for seen in sessions {
        *tenants.entry(&seen.who.tenant).or_default() += 1;
    }
    tenants.into_iter().fold(0, |sum: u64, (tenant, count)| {
        let grant = policy.for_tenant(tenant);
        let limit =
            |limit: Option<telecl_policy::Memory>| limit.map_or(device.memory, |limit| limit.on_device(device.memory));
        let of_sessions = limit(grant.session_memory.value).saturating_mul(count);
        sum.saturating_add(of_sessions.min(limit(grant.device_memory.value)))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Instant, SystemTime};

    use super::*;
    use crate::broker::accounts::Who;
    use crate::broker::figures::Figures;

    fn seen(tenant: &str) -> Seen {
        let who = Who {
            session: 1,
            tenant: Tenant::parse(tenant).unwrap(),
            user: None,
            pod: None,
            peer: String::new(),
            program: String::new(),
            pid: 1,
            begun: SystemTime::now(),
            since: Instant::now(),
        };
        Seen { who: Arc::new(who), works: true, devices: vec![1], figures: Figures::default() }
    }

    #[test]
    fn what_is_promised_is_what_sessions_may_use_and_no_more_than_their_tenants_may() {
        let policy = "[defaults]\ndevice_memory = \"50 %\"\nsession_memory = \"20 %\"\n[[tenant]]\nmatch = \"free\"\n\
                      device_memory = \"none\"\nsession_memory = \"none\"\n";
        let policy = Policy::parse(Path::new("policy.toml"), policy).unwrap();
        let device = Known { memory: 1000, ..Known::default() };
        let promised = |tenants: &[&str]| {
            let sessions: Vec<Seen> = tenants.iter().map(|tenant| seen(tenant)).collect();
            promised(&policy, &device, sessions.iter())
        };
        assert_eq!(promised(&[]), 0);
        assert_eq!(promised(&["a", "a"]), 400);
        assert_eq!(promised(&["a", "a", "a"]), 500);
        assert_eq!(promised(&["a", "b", "free", "free"]), 1400);
    }
}
