//! The controller: two replicas, of which all answer the webhook and one, the leader, does the rest.
//!
//! Each part of the leader's work looks at what there is and makes it what it should be, whenever something has changed and every half
//! minute anyway. Nothing is remembered between two such looks, so nothing is lost when another replica takes over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::certificates::{Certificates, Keeper};
use crate::events::Events;
use crate::inject::{DEFAULT_FILES, File, Injection};
use crate::leader::Candidate;
use crate::webhook::{self, Metrics, Served};

pub mod external;

/// What the controller calls itself where the API server asks.
pub const MANAGER: &str = "telecl-controller";

/// How often everything is looked at, changed or not.
const INTERVAL: Duration = Duration::from_secs(30);
/// How often a replica looks whether its certificate is still the right one.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(10);
/// How long the API server may go on asking a replica that is about to stop: it learns of that from others.
const GOODBYE: Duration = Duration::from_secs(5);

#[derive(clap::Args, Debug)]
pub struct Options {
    /// telecl's own namespace
    #[arg(long, env = "POD_NAMESPACE", default_value = "telecl-system")]
    pub namespace: String,
    /// A name that no other replica has
    #[arg(long, env = "POD_NAME", default_value = "telecl-controller")]
    pub identity: String,
    /// Where the API server asks the webhook (HTTPS)
    #[arg(long, default_value = "0.0.0.0:8443")]
    pub listen: SocketAddr,
    /// Where probes and Prometheus ask (HTTP)
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub health: SocketAddr,
    /// The Service of the webhook
    #[arg(long, default_value = "telecl-webhook")]
    pub webhook_service: String,
    /// The MutatingWebhookConfiguration that gets the CA
    #[arg(long, default_value = "telecl")]
    pub webhook_configuration: String,
    /// The headless Service of the services
    #[arg(long, default_value = "telecl-services")]
    pub services: String,
    /// The port of the services
    #[arg(long, default_value_t = 7701)]
    pub services_port: u16,
    /// The image with the driver, for pods
    #[arg(long)]
    pub driver_image: String,
    /// When kubelets pull it: Always, IfNotPresent or Never
    #[arg(long)]
    pub driver_pull_policy: Option<String>,
    /// A file of the driver and where containers see it; replaces the built-in list
    #[arg(long = "driver-file", value_name = "NAME=PATH")]
    pub driver_files: Vec<File>,
    /// A file with further certificates of those who vouch for services outside the cluster (PEM)
    #[arg(long, value_name = "FILE")]
    pub external_ca: Option<std::path::PathBuf>,
    /// Another name or address for the webhook's certificate
    #[arg(long, value_name = "NAME")]
    pub webhook_name: Vec<String>,
}

impl Options {
    fn injection(&self, ca: &str, own_ports: &[String]) -> anyhow::Result<Injection> {
        let default = || DEFAULT_FILES.iter().filter_map(|file| file.parse().ok()).collect();
        let files = if self.driver_files.is_empty() { default() } else { self.driver_files.clone() };
        let further = match &self.external_ca {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?,
        };
        Ok(Injection {
            image: self.driver_image.clone(),
            pull_policy: self.driver_pull_policy.clone(),
            services: self.all_services(own_ports),
            ca: format!("{ca}{further}"),
            files,
        })
    }

    /// The name that stands for all services, and the addresses of those that have a port of their own.
    fn all_services(&self, own_ports: &[String]) -> String {
        let common = format!("{}.{}.svc:{}", self.services, self.namespace, self.services_port);
        std::iter::once(common).chain(own_ports.iter().cloned()).collect::<Vec<_>>().join(",")
    }

    fn keeper(&self, client: &Client, owner: Option<OwnerReference>) -> Keeper {
        let names = |service: &str| {
            let short = format!("{service}.{}", self.namespace);
            vec![format!("{short}.svc"), format!("{short}.svc.cluster.local"), short]
        };
        let mut webhook_names = names(&self.webhook_service);
        webhook_names.extend(self.webhook_name.iter().cloned());
        Keeper {
            secrets: Api::namespaced(client.clone(), &self.namespace),
            webhook_names,
            service_names: names(&self.services),
            owner,
        }
    }
}

/// Runs a replica until it is told to stop.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let client = Client::try_default().await.context("finding the API server")?;
    let owner = owner(&client, &options).await?;
    let keeper = options.keeper(&client, owner.clone());
    let metrics = Arc::new(Metrics::default());
    let (stop, stopping) = watch::channel(false);
    let (served_now, served) = watch::channel(None);
    let (lead, leading) = watch::channel(false);

    let candidate = Candidate {
        leases: Api::namespaced(client.clone(), &options.namespace),
        name: MANAGER.to_owned(),
        identity: options.identity.clone(),
        owner: owner.clone(),
    };
    let election = tokio::spawn(candidate.run(lead, stopping.clone()));
    let events = Events::new(client.clone(), "controller", &options.identity);
    let answering = webhook::serve(options.listen, served.clone(), metrics.clone(), events.clone(), stopping.clone());
    let answers = tokio::spawn(answering);
    let (goodbye, saying_goodbye) = watch::channel(false);
    let health = tokio::spawn(webhook::serve_health(options.health, served, metrics.clone(), saying_goodbye));
    let options = Arc::new(options);
    let (tell_own_ports, own_ports) = watch::channel(Vec::new());
    let pools = tokio::spawn(external::follow_own_ports(client.clone(), options.services_port, tell_own_ports));
    let changes = Changes { keeper: keeper.clone(), options: options.clone(), own_ports };
    let reading = tokio::spawn(changes.follow(served_now, metrics.clone()));
    let leader = Leader { client, options, keeper, owner, events, metrics };
    let work = tokio::spawn(leader.follow(leading));

    let ended = tokio::select! {
        answers = answers => answers?,
        health = health => health?,
        () = told_to_stop() => {
            info!("told to stop");
            // Probes fail from now on, so that nobody new comes; those who come meanwhile are answered.
            goodbye.send_replace(true);
            tokio::time::sleep(GOODBYE).await;
            Ok(())
        }
    };
    stop.send_replace(true);
    election.await?;
    reading.abort();
    pools.abort();
    work.abort();
    ended
}

async fn told_to_stop() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// What the controller makes belongs to the Service of the services, and goes with it.
async fn owner(client: &Client, options: &Options) -> anyhow::Result<Option<OwnerReference>> {
    let services: Api<Service> = Api::namespaced(client.clone(), &options.namespace);
    let service = services.get_opt(&options.services).await.context("reading the Service of the services")?;
    if service.is_none() {
        let (name, namespace) = (&options.services, &options.namespace);
        warn!(name, namespace, "no such Service: what the controller makes will have no owner");
    }
    Ok(service.and_then(|service| {
        let owner = service.owner_ref(&())?;
        Some(OwnerReference { controller: None, block_owner_deletion: None, ..owner })
    }))
}

/// What answers depend on, and what may change while a replica runs.
struct Changes {
    keeper: Keeper,
    options: Arc<Options>,
    own_ports: watch::Receiver<Vec<String>>,
}

impl Changes {
    /// Takes up certificates and services when there are others.
    async fn follow(mut self, served: watch::Sender<Option<Served>>, metrics: Arc<Metrics>) {
        let mut now: Option<(Certificates, Vec<String>)> = None;
        loop {
            let own_ports = self.own_ports.borrow_and_update().clone();
            match self.keeper.read().await {
                Ok(Some(certificates)) => {
                    let new = (certificates, own_ports);
                    if now.as_ref() != Some(&new) {
                        match self.take_up(&new.0, &new.1) {
                            Ok(serve) => {
                                served.send_replace(Some(serve));
                                metrics.count_certificates();
                                info!("certificate and services taken up");
                                now = Some(new);
                            }
                            Err(cause) => warn!(cause = format!("{cause:#}"), "cannot use the certificate"),
                        }
                    }
                }
                Ok(None) => {}
                Err(cause) => warn!(cause = format!("{cause:#}"), "cannot read the certificates"),
            }
            let wait = if now.is_some() { CERTIFICATE_INTERVAL } else { Duration::from_millis(500) };
            if let Ok(Err(_)) = tokio::time::timeout(wait, self.own_ports.changed()).await {
                // Nobody follows the pools any more: that must not make this loop a busy one.
                tokio::time::sleep(wait).await;
            }
        }
    }

    fn take_up(&self, certificates: &Certificates, own_ports: &[String]) -> anyhow::Result<Served> {
        let injection = self.options.injection(&certificates.ca, own_ports)?;
        Ok(Served { tls: webhook::tls(&certificates.webhook)?, injection: Arc::new(injection) })
    }
}

/// What one replica does for all.
struct Leader {
    client: Client,
    options: Arc<Options>,
    keeper: Keeper,
    owner: Option<OwnerReference>,
    events: Arc<Events>,
    metrics: Arc<Metrics>,
}

impl Leader {
    /// Works while this replica leads.
    async fn follow(self, mut leading: watch::Receiver<bool>) {
        loop {
            if leading.wait_for(|leading| *leading).await.is_err() {
                return;
            }
            self.metrics.set_leading(true);
            tokio::select! {
                () = keep_certificates(&self.client, &self.options, &self.keeper) => {}
                () = external::keep(&self.client, &self.options, self.owner.as_ref(), &self.events) => {}
                _ = leading.wait_for(|leading| !*leading) => {}
            }
            self.metrics.set_leading(false);
        }
    }
}

async fn keep_certificates(client: &Client, options: &Options, keeper: &Keeper) {
    loop {
        let kept = async {
            keeper.keep(SystemTime::now()).await?;
            match keeper.read().await? {
                Some(certificates) => publish(client, &options.webhook_configuration, &certificates.ca).await,
                None => Ok(()),
            }
        };
        let wait = match kept.await {
            Ok(()) => INTERVAL,
            Err(cause) => {
                warn!(cause = format!("{cause:#}"), "cannot keep the certificates");
                Duration::from_secs(2)
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Tells the API server whom to trust when it asks the webhook.
async fn publish(client: &Client, name: &str, ca: &str) -> anyhow::Result<()> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let found =
        configurations.get_opt(name).await.with_context(|| format!("reading the webhook configuration {name}"))?;
    let Some(found) = found else {
        warn!(name, "no such MutatingWebhookConfiguration: nobody asks the webhook");
        return Ok(());
    };
    let hooks = found.webhooks.unwrap_or_default();
    let told = |bundle: Option<&k8s_openapi::ByteString>| bundle.is_some_and(|bundle| bundle.0 == ca.as_bytes());
    if hooks.iter().all(|hook| told(hook.client_config.ca_bundle.as_ref())) {
        return Ok(());
    }
    let bundle = k8s_openapi::ByteString(ca.as_bytes().to_vec());
    let hooks: Vec<_> =
        hooks.iter().map(|hook| json!({"name": hook.name, "clientConfig": {"caBundle": bundle}})).collect();
    let patch = Patch::Strategic(json!({"webhooks": hooks}));
    configurations
        .patch(name, &PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }, &patch)
        .await
        .with_context(|| format!("writing the CA to the webhook configuration {name}"))?;
    info!(name, "the API server knows the CA");
    Ok(())
}
