//! Services outside the cluster, made findable inside it.
//!
//! Pods find services by the name of a headless Service. Addresses that an `AcceleratorPool` lists as `external` are added to it by
//! EndpointSlices of our own, one for each pool and family of addresses. Names are looked up here, again and again. The name of a
//! Service has one port. A service at another one is told to new pods by its own address, beside that name.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{INTERVAL, MANAGER, Options};
use crate::events::{Events, Kind};
use crate::objects::AcceleratorPool;

/// Says who made an EndpointSlice, so that Kubernetes' own controller leaves it alone.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const POOL: &str = "telecl.dev/pool";
/// The condition of a pool that says whether its external services can be found.
const CONDITION: &str = "ExternalServicesFound";
/// Changes come in groups.
const SETTLE: Duration = Duration::from_millis(300);
/// What an EndpointSlice may hold.
const MOST_ENDPOINTS: usize = 1000;

/// Keeps the EndpointSlices as the pools say.
pub(super) async fn keep(client: &Client, options: &Options, owner: Option<&OwnerReference>, news: &Events) {
    let pools: Api<AcceleratorPool> = Api::all(client.clone());
    let (store, writer) = reflector::store();
    let events = watcher(pools, watcher::Config::default()).default_backoff().reflect(writer).touched_objects();
    let mut events = std::pin::pin!(events);
    let keeper = Slices { client, options, owner };
    let mut known = false;
    loop {
        // The first look waits for all pools, so that no slice is removed for want of knowing.
        let wait = if known { INTERVAL } else { Duration::MAX };
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(_)) => {}
                Some(Err(cause)) => {
                    warn!(%cause, "cannot watch pools");
                    continue;
                }
                None => return,
            },
            ready = store.wait_until_ready(), if !known => known = ready.is_ok(),
            () = tokio::time::sleep(wait) => {}
        }
        if !known {
            continue;
        }
        drain(&mut events).await;
        if let Err(cause) = keeper.set(&store.state(), news).await {
            warn!(cause = format!("{cause:#}"), "cannot keep the services outside the cluster");
        }
    }
}

/// Tells the addresses of services that have a port of their own, whenever there are others.
pub(super) async fn follow_own_ports(client: Client, port: u16, own: watch::Sender<Vec<String>>) {
    let pools: Api<AcceleratorPool> = Api::all(client);
    let (store, writer) = reflector::store();
    let events = watcher(pools, watcher::Config::default()).default_backoff().reflect(writer).touched_objects();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        if let Err(cause) = event {
            warn!(%cause, "cannot watch pools");
        }
        let pools = store.state();
        let mut now: Vec<String> = pools
            .iter()
            .flat_map(|pool| &pool.spec.external)
            .filter_map(|external| match place(&external.address, port) {
                Ok(Place::OwnPort(address)) => Some(address),
                _ => None,
            })
            .collect();
        now.sort();
        now.dedup();
        own.send_if_modified(|before| {
            if *before == now {
                false
            } else {
                *before = now;
                true
            }
        });
    }
}

/// Takes what else has come, until nothing comes for a moment.
async fn drain<S: futures::Stream + Unpin>(events: &mut S) {
    while tokio::time::timeout(SETTLE, events.next()).await.is_ok_and(|event| event.is_some()) {}
}

struct Slices<'a> {
    client: &'a Client,
    options: &'a Options,
    owner: Option<&'a OwnerReference>,
}

impl Slices<'_> {
    async fn set(&self, pools: &[std::sync::Arc<AcceleratorPool>], events: &Events) -> anyhow::Result<()> {
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.options.namespace);
        let ours = ListParams::default().labels(&format!("{MANAGED_BY}={MANAGER}"));
        let there = slices.list(&ours).await.context("listing EndpointSlices")?;
        let mut there: BTreeMap<String, EndpointSlice> =
            there.items.into_iter().map(|slice| (slice.name_any(), slice)).collect();
        for pool in pools {
            let mut found = Found::default();
            for external in &pool.spec.external {
                found.add(&external.address, self.options.services_port).await;
            }
            for slice in self.wanted(&pool.name_any(), &found.addresses) {
                let name = slice.name_any();
                if !there.remove(&name).is_some_and(|old| same(&old, &slice)) {
                    let apply = PatchParams::apply(MANAGER).force();
                    let applied = slices.patch(&name, &apply, &Patch::Apply(&slice)).await;
                    applied.with_context(|| format!("writing the EndpointSlice {name}"))?;
                    info!(slice = name, "services outside the cluster changed");
                }
            }
            self.report(pool, &found, events).await?;
        }
        for name in there.keys() {
            match slices.delete(name, &DeleteParams::default()).await {
                Ok(_) => info!(slice = name, "services outside the cluster removed"),
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(cause) => return Err(cause).with_context(|| format!("deleting the EndpointSlice {name}")),
            }
        }
        Ok(())
    }

    /// One slice for each family that there are addresses of.
    fn wanted(&self, pool: &str, addresses: &[IpAddr]) -> Vec<EndpointSlice> {
        let families = [("IPv4", IpAddr::is_ipv4 as fn(&IpAddr) -> bool), ("IPv6", IpAddr::is_ipv6)];
        let own = families.map(|(family, is_it)| {
            let addresses: Vec<_> = addresses.iter().copied().filter(is_it).take(MOST_ENDPOINTS).collect();
            (!addresses.is_empty()).then(|| self.slice(pool, family, &addresses))
        });
        own.into_iter().flatten().collect()
    }

    fn slice(&self, pool: &str, family: &str, addresses: &[IpAddr]) -> EndpointSlice {
        let labels = [(MANAGED_BY, MANAGER), (SERVICE_NAME, &self.options.services), (POOL, pool)];
        let ready = EndpointConditions { ready: Some(true), ..EndpointConditions::default() };
        let endpoint = |address: &IpAddr| Endpoint {
            addresses: vec![address.to_string()],
            conditions: Some(ready.clone()),
            ..Endpoint::default()
        };
        EndpointSlice {
            metadata: ObjectMeta {
                name: Some(format!("telecl-external-{pool}-{}", family.to_lowercase())),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                owner_references: self.owner.map(|owner| vec![owner.clone()]),
                ..ObjectMeta::default()
            },
            address_type: family.to_owned(),
            endpoints: addresses.iter().map(endpoint).collect(),
            ports: Some(vec![EndpointPort {
                name: Some("telecl".to_owned()),
                port: Some(self.options.services_port.into()),
                protocol: Some("TCP".to_owned()),
                ..EndpointPort::default()
            }]),
        }
    }

    /// Says in the pool's status what was not found.
    async fn report(&self, pool: &AcceleratorPool, found: &Found, events: &Events) -> anyhow::Result<()> {
        let before = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let old = before.iter().find(|condition| condition.type_ == CONDITION);
        if pool.spec.external.is_empty() && old.is_none() {
            return Ok(());
        }
        let (status, reason, message) = found.summary();
        if old.is_some_and(|old| old.status == status && old.message == message) {
            return Ok(());
        }
        let since = old.filter(|old| old.status == status).map(|old| old.last_transition_time.clone());
        let new = Condition {
            type_: CONDITION.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.clone(),
            last_transition_time: since.unwrap_or_else(|| Time(Timestamp::now())),
            observed_generation: pool.metadata.generation,
        };
        let others = before.iter().filter(|condition| condition.type_ != CONDITION).cloned();
        let conditions: Vec<Condition> = others.chain([new]).collect();
        let name = pool.name_any();
        // An agent may have changed the status meanwhile: then this fails, and the next look does it.
        let patch =
            json!({"metadata": {"resourceVersion": pool.resource_version()}, "status": {"conditions": conditions}});
        let pools: Api<AcceleratorPool> = Api::all(self.client.clone());
        match pools.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {
                let (kind, reason) = match status {
                    "True" => (Kind::Normal, "ExternalServicesFound"),
                    _ => (Kind::Warning, "ExternalServicesNotFound"),
                };
                events.tell(pool.object_ref(&()), kind, reason, &message);
                Ok(())
            }
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(cause) => Err(cause).with_context(|| format!("writing the status of the pool {name}")),
        }
    }
}

/// Whether a slice says already what it should.
fn same(old: &EndpointSlice, new: &EndpointSlice) -> bool {
    let addresses = |slice: &EndpointSlice| -> Vec<String> {
        slice.endpoints.iter().flat_map(|endpoint| endpoint.addresses.clone()).collect()
    };
    let port = |slice: &EndpointSlice| slice.ports.as_ref().and_then(|ports| ports.first()?.port);
    addresses(old) == addresses(new) && port(old) == port(new) && old.metadata.labels == new.metadata.labels
}

/// What a pool's external addresses come to.
#[derive(Debug, Default)]
struct Found {
    addresses: Vec<IpAddr>,
    problems: Vec<String>,
}

impl Found {
    async fn add(&mut self, address: &str, port: u16) {
        match look_up(address, port).await {
            Ok(found) => {
                self.addresses.extend(found);
                self.addresses.sort();
                self.addresses.dedup();
            }
            Err(problem) => self.problems.push(problem),
        }
    }

    fn summary(&self) -> (&'static str, &'static str, String) {
        match self.problems.as_slice() {
            [] => ("True", "Found", format!("{} addresses behind the common name", self.addresses.len())),
            problems => ("False", "NotFound", problems.join("; ")),
        }
    }
}

/// How pods find a service outside the cluster.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// By the name of all services, which stands for this `host:port` too.
    CommonPort(String),
    /// By this address.
    OwnPort(String),
}

fn place(address: &str, port: u16) -> Result<Place, String> {
    let plain = address.trim_start_matches("tls://");
    if plain.starts_with("tcp://") {
        return Err(format!("{address} would not be encrypted; write it without tcp://"));
    }
    let (host, own) = match plain.parse::<IpAddr>() {
        Ok(ip) => return Ok(Place::CommonPort(SocketAddr::new(ip, port).to_string())),
        Err(_) => match plain.rsplit_once(':') {
            Some((host, text)) if !text.contains(']') => {
                (host, text.parse::<u16>().map_err(|_| format!("{address} has no port that there is"))?)
            }
            _ => (plain, port),
        },
    };
    if own == port {
        Ok(Place::CommonPort(format!("{host}:{port}")))
    } else {
        Ok(Place::OwnPort(format!("tls://{host}:{own}")))
    }
}

/// The addresses of a service that the common name is to stand for, or why pods cannot use it.
async fn look_up(address: &str, port: u16) -> Result<Vec<IpAddr>, String> {
    let with_port = match place(address, port)? {
        Place::OwnPort(_) => return Ok(Vec::new()),
        Place::CommonPort(with_port) => with_port,
    };
    let found = tokio::time::timeout(Duration::from_secs(5), tokio::net::lookup_host(&with_port)).await;
    match found {
        Ok(Ok(found)) => usable(address, found.map(|found| found.ip()).collect()),
        Ok(Err(cause)) => Err(format!("{address} is not found: {cause}")),
        Err(_) => Err(format!("{address} is not found: no answer in time")),
    }
}

/// The API server takes no such addresses in an EndpointSlice.
fn usable(address: &str, found: Vec<IpAddr>) -> Result<Vec<IpAddr>, String> {
    let local = |ip: &IpAddr| match ip {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified() || v4.is_multicast(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast(),
    };
    match found.iter().find(|ip| local(ip)) {
        Some(ip) => Err(format!("{address} is {ip}, which means something else on every node")),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_taken_as_people_write_them() {
        let one = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
        assert_eq!(look_up("10.0.0.7", 7701).await, Ok(one("10.0.0.7")));
        assert_eq!(look_up("10.0.0.7:7701", 7701).await, Ok(one("10.0.0.7")));
        assert_eq!(look_up("tls://[fd00::7]:7701", 7701).await, Ok(one("fd00::7")));
        assert_eq!(look_up("[fd00::7]", 7701).await, Ok(one("fd00::7")));
    }

    #[tokio::test]
    async fn a_port_of_its_own_is_told_by_address() {
        let own = |address: &str| Ok(Place::OwnPort(address.to_owned()));
        assert_eq!(place("gpu7.example.org:9000", 7701), own("tls://gpu7.example.org:9000"));
        assert_eq!(place("tls://[fd00::7]:9000", 7701), own("tls://[fd00::7]:9000"));
        assert_eq!(place("gpu7.example.org", 7701), Ok(Place::CommonPort("gpu7.example.org:7701".to_owned())));
        assert_eq!(look_up("10.0.0.7:9000", 7701).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn what_cannot_be_used_says_why() {
        for (address, why) in [
            ("tcp://10.0.0.7", "not be encrypted"),
            ("10.0.0.7:99999", "no port that there is"),
            ("127.0.0.1", "something else on every node"),
            ("no-such-host.invalid", "is not found"),
        ] {
            let problem = look_up(address, 7701).await.unwrap_err();
            assert!(problem.contains(why) && problem.contains(address), "{problem}");
        }
    }

    #[tokio::test]
    async fn a_pool_has_a_slice_for_each_family() {
        use clap::Parser;

        #[derive(Parser)]
        struct Arguments {
            #[command(flatten)]
            options: Options,
        }
        let options = Arguments::parse_from(["test", "--driver-image", "driver:1"]).options;
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let slices = Slices { client: &client, options: &options, owner: None };
        let mut found = Found::default();
        for address in ["10.0.0.8", "10.0.0.7", "10.0.0.8:7701", "fd00::7", "tcp://10.0.0.9"] {
            found.add(address, 7701).await;
        }
        let wanted = slices.wanted("edge", &found.addresses);
        assert_eq!(
            wanted.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
            ["telecl-external-edge-ipv4", "telecl-external-edge-ipv6"]
        );
        assert_eq!(wanted[0].endpoints.len(), 2, "twice the same is once");
        assert_eq!(wanted[0].metadata.labels.as_ref().unwrap()[SERVICE_NAME], "telecl-services");
        assert!(same(&wanted[0], &wanted[0].clone()));
        assert!(!same(&wanted[0], &wanted[1]));
        assert_eq!(found.summary().0, "False");
        assert!(slices.wanted("edge", &[]).is_empty());
    }
}
