//! The agent beside each service: keeps the service's policy, reviews tokens for it, and reports what it is used for.
//!
//! It shares a directory with the service. There it writes `policy.toml`, anew whenever an object changes and by renaming,
//! so that the service reads it as a whole, and listens at `review.sock`. It needs no rights on the node, and the service
//! needs none in the cluster.

mod kept;
mod report;
mod review;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::events::{Events, Kind};
use crate::objects::{AcceleratorPolicy, AcceleratorPool, AcceleratorQuota, PolicyStatus};
use crate::render::{Labels, Outcome, Rendered, World, render};

/// What `telecl-kube agent` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The directory that it shares with the service
    #[arg(long, value_name = "DIR", default_value = "/run/telecl-agent")]
    directory: PathBuf,
    /// The node that they run on
    #[arg(long, value_name = "NAME", env = "NODE_NAME", default_value = "")]
    node: String,
    /// Where the service offers its metrics
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9701")]
    metrics: String,
    /// The service is outside of the cluster: what --node names is no node of it
    #[arg(long)]
    outside: bool,
    /// A label that pools select such a service by; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", requires = "outside", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Say whether the agent in that directory is ready, and end
    #[arg(long)]
    check: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

const POLICY: &str = "policy.toml";
const SOCKET: &str = "review.sock";

/// Changes that come together make one policy.
const TOGETHER: Duration = Duration::from_millis(100);

/// How often the node's own labels are read, of which nobody tells.
const LABELS: Duration = Duration::from_secs(60);

/// How long a request to the API server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What watchers keep up to date.
#[derive(Clone)]
struct Stores {
    pools: Store<AcceleratorPool>,
    policies: Store<AcceleratorPolicy>,
    quotas: Store<AcceleratorQuota>,
    namespaces: Store<PartialObjectMeta<Namespace>>,
}

/// What the parts of the agent share.
struct Shared {
    options: Options,
    client: Client,
    stores: Stores,
    events: Arc<Events>,
    /// The policy in force.
    rendered: RwLock<Arc<Rendered>>,
    labels: RwLock<Labels>,
}

impl Shared {
    fn rendered(&self) -> Arc<Rendered> {
        Arc::clone(&self.rendered.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn labels(&self) -> Labels {
        self.labels.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn world(&self) -> World {
        let Stores { pools, policies, quotas, namespaces } = &self.stores;
        let labels = |namespace: &PartialObjectMeta<Namespace>| (namespace.name_any(), namespace.labels().clone());
        World {
            pools: pools.state().iter().map(|pool| (**pool).clone()).collect(),
            policies: policies.state().iter().map(|policy| (**policy).clone()).collect(),
            quotas: quotas.state().iter().map(|quota| (**quota).clone()).collect(),
            namespaces: namespaces.state().iter().map(|namespace| labels(namespace)).collect(),
            node: self.labels(),
        }
    }
}

/// Runs until it is told to stop.
pub async fn run(options: Options) -> anyhow::Result<()> {
    if options.check {
        return check(&options.directory);
    }
    if options.node.is_empty() {
        bail!("the agent must know its node: set NODE_NAME from the pod's spec.nodeName, or say --node NAME");
    }
    let client = Client::try_default().await.context("no way to the API server")?;
    let changed = Arc::new(Notify::new());
    let stores = Stores {
        pools: watch(Api::all(client.clone()), &changed),
        policies: watch(Api::all(client.clone()), &changed),
        quotas: watch(Api::all(client.clone()), &changed),
        namespaces: watch(Api::all(client.clone()), &changed),
    };
    let labels = RwLock::new(match options.outside {
        true => options.labels.iter().cloned().collect(),
        false => node_labels(&client, &options.node).await,
    });
    let events = Events::new(client.clone(), "agent", &options.node);
    let shared = Arc::new(Shared { options, client, stores, events, rendered: RwLock::default(), labels });
    let review = review::listen(Arc::clone(&shared), shared.options.directory.join(SOCKET))?;
    let Stores { pools, policies, quotas, namespaces } = &shared.stores;
    pools.wait_until_ready().await?;
    policies.wait_until_ready().await?;
    quotas.wait_until_ready().await?;
    namespaces.wait_until_ready().await?;
    info!(node = shared.options.node, directory = %shared.options.directory.display(), "agent started");
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        () = keep_policy(&shared, &changed) => {}
        () = report::keep(&shared) => {}
        () = refresh_labels(&shared, &changed) => {}
        ended = review => warn!(?ended, "nobody reviews tokens any more"),
        _ = terminate.recv() => info!("agent stopped"),
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}

/// Whether there is a policy, and somebody who reviews tokens.
fn check(directory: &Path) -> anyhow::Result<()> {
    let policy = directory.join(POLICY);
    if !policy.exists() {
        bail!("there is no {} yet", policy.display());
    }
    let socket = directory.join(SOCKET);
    UnixStream::connect(&socket).with_context(|| format!("nobody listens at {}", socket.display()))?;
    Ok(())
}

/// Keeps all objects of a kind, and says when one has changed.
fn watch<K>(api: Api<K>, changed: &Arc<Notify>) -> Store<K>
where
    K: Resource + Clone + Debug + Send + Sync + DeserializeOwned + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let (store, writer) = reflector::store();
    let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    tokio::spawn(follow(events, Arc::clone(changed)));
    store
}

async fn follow<T>(
    events: impl futures::Stream<Item = Result<T, watcher::Error>> + Send + 'static,
    changed: Arc<Notify>,
) {
    let note = |error: watcher::Error| warn!(%error, "cannot watch objects; trying again");
    let mut events = std::pin::pin!(events.map_err(note));
    while let Some(event) = events.next().await {
        if event.is_ok() {
            changed.notify_one();
        }
    }
}

async fn node_labels(client: &Client, node: &str) -> Labels {
    let api: Api<Node> = Api::all(client.clone());
    match timeout(PATIENCE, api.get_metadata(node)).await {
        Ok(Ok(found)) => found.labels().clone(),
        Ok(Err(error)) => {
            warn!(node, %error, "cannot read the labels of the node; pools that select nodes do not have it");
            Labels::new()
        }
        Err(_) => Labels::new(),
    }
}

async fn refresh_labels(shared: &Shared, changed: &Notify) {
    loop {
        sleep(LABELS).await;
        if shared.options.outside {
            continue;
        }
        let found = node_labels(&shared.client, &shared.options.node).await;
        if !found.is_empty() && found != shared.labels() {
            *shared.labels.write().unwrap_or_else(PoisonError::into_inner) = found;
            changed.notify_one();
        }
    }
}

/// Writes the policy whenever an object has changed.
async fn keep_policy(shared: &Shared, changed: &Notify) {
    let mut written = String::new();
    loop {
        let world = shared.world();
        match render(&world) {
            Ok(rendered) => {
                let rendered = Arc::new(rendered);
                *shared.rendered.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&rendered);
                if rendered.toml != written {
                    match write(&shared.options.directory, &rendered.toml).await {
                        Ok(()) => {
                            info!(bytes = rendered.toml.len(), "policy written");
                            written.clone_from(&rendered.toml);
                        }
                        Err(error) => {
                            warn!(%error, directory = %shared.options.directory.display(), "cannot write the policy");
                        }
                    }
                }
                tell(shared, &world.policies, &rendered.policies).await;
            }
            // The one before it stays in force.
            Err(reason) => warn!(reason, "the objects make no policy"),
        }
        changed.notified().await;
        sleep(TOGETHER).await;
    }
}

/// Puts the policy in its place as a whole.
async fn write(directory: &Path, text: &str) -> std::io::Result<()> {
    let new = directory.join(".policy.toml.new");
    tokio::fs::write(&new, text).await?;
    tokio::fs::rename(&new, directory.join(POLICY)).await
}

/// Says in the status of policies what became of them.
async fn tell(shared: &Shared, policies: &[AcceleratorPolicy], outcomes: &BTreeMap<String, Outcome>) {
    let api: Api<AcceleratorPolicy> = Api::all(shared.client.clone());
    for policy in policies {
        let Some(outcome) = outcomes.get(&policy.name_any()) else { continue };
        let before = policy.status.clone().unwrap_or_default();
        let (ready, reason, message) = match (outcome.problems.is_empty(), outcome.conflict_count) {
            (false, _) => (false, "NotFound", outcome.problems.join("; ")),
            (true, 0) => (true, "InForce", "the services enforce it".to_owned()),
            (true, count) => (true, "Overruled", format!("another policy counts for {count} of its subjects")),
        };
        let status = PolicyStatus {
            namespaces: u32::try_from(outcome.namespaces.len()).unwrap_or(u32::MAX),
            conflict_count: outcome.conflict_count,
            conflicts: outcome.conflicts.clone(),
            conditions: vec![condition(&before.conditions, policy.metadata.generation, ready, reason, message.clone())],
        };
        // All agents find the same: the one that writes it tells of it.
        if status != before && set_status(&api, policy, &status).await && is_news(&before.conditions, reason, &message)
        {
            let kind = if reason == "InForce" { Kind::Normal } else { Kind::Warning };
            shared.events.tell(policy.object_ref(&()), kind, reason, &message);
        }
    }
}

/// A condition `Ready` that changes its time only if it changes.
fn condition(before: &[Condition], generation: Option<i64>, ready: bool, reason: &str, message: String) -> Condition {
    let status = if ready { "True" } else { "False" };
    let same = before.iter().find(|condition| condition.type_ == "Ready" && condition.status == status);
    Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: same.map_or_else(|| Time(Timestamp::now()), |same| same.last_transition_time.clone()),
    }
}

/// Whether the condition `Ready` did not say so already.
fn is_news(before: &[Condition], reason: &str, message: &str) -> bool {
    !before.iter().any(|one| one.type_ == "Ready" && one.reason == reason && one.message == message)
}

/// Sets an object's status, unless somebody has changed it since it was read: then the change brings us back to it.
/// Says whether it was set.
async fn set_status<K>(api: &Api<K>, object: &K, status: &impl Serialize) -> bool
where
    K: Resource + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let name = object.name_any();
    // Lists are replaced as a whole, and what is no longer there is taken away.
    let patch = json!({"metadata": {"resourceVersion": object.resource_version()}, "status": status});
    let set = async { api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await };
    match timeout(PATIENCE, set).await {
        Ok(Ok(_)) => return true,
        Ok(Err(kube::Error::Api(error))) if error.code == 409 || error.code == 404 => {
            debug!(name, "somebody was faster");
        }
        Ok(Err(error)) => warn!(name, %error, "cannot set the status of an object"),
        Err(_) => warn!(name, "setting the status of an object takes too long"),
    }
    false
}
