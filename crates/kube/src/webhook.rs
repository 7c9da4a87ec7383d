//! The admission webhook: the API server asks what to change in a pod, over HTTPS.
//!
//! Every replica answers, whether it leads or not. Certificate, CA and services can change at any time: a connection has the certificate of
//! its beginning, because the API server keeps connections for long, and an answer what holds when it is asked for. A second, plain
//! port is for probes and metrics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::core::v1::ObjectReference;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use crate::certificates::Pair;
use crate::events::{Events, Kind};
use crate::inject::Injection;

/// The path the API server asks at.
pub const PATH: &str = "/inject";

/// A pod has at most 1.5 MiB, as etcd stores it.
const LARGEST_REVIEW: usize = 4 << 20;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The API server opens a few and keeps them.
const MOST_CONNECTIONS: usize = 512;
/// How long answers under way may take when the webhook stops.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// What answers are made of.
#[derive(Clone, Debug)]
pub struct Served {
    pub tls: Arc<ServerConfig>,
    pub injection: Arc<Injection>,
}

/// What was answered so far.
#[derive(Debug, Default)]
pub struct Metrics {
    changed: AtomicU64,
    unchanged: AtomicU64,
    refused: AtomicU64,
    microseconds: AtomicU64,
    /// Set while this replica does the controller's work.
    leading: AtomicU64,
    certificates: AtomicU64,
}

impl Metrics {
    pub fn set_leading(&self, leading: bool) {
        self.leading.store(leading.into(), Ordering::Relaxed);
    }

    pub fn count_certificates(&self) {
        self.certificates.fetch_add(1, Ordering::Relaxed);
    }

    fn text(&self) -> String {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = Duration::from_micros(read(&self.microseconds)).as_secs_f64();
        let (changed, unchanged, refused) = (read(&self.changed), read(&self.unchanged), read(&self.refused));
        let count = changed + unchanged + refused;
        let (leading, certificates) = (read(&self.leading), read(&self.certificates));
        format!(
            "# HELP telecl_injections Pods that the webhook was asked about.\n\
             # TYPE telecl_injections counter\n\
             telecl_injections_total{{result=\"changed\"}} {changed}\n\
             telecl_injections_total{{result=\"unchanged\"}} {unchanged}\n\
             telecl_injections_total{{result=\"refused\"}} {refused}\n\
             # HELP telecl_injection_seconds Time that answers took.\n\
             # TYPE telecl_injection_seconds summary\n\
             telecl_injection_seconds_count {count}\n\
             telecl_injection_seconds_sum {seconds}\n\
             # HELP telecl_controller_leading Whether this replica does the controller's work.\n\
             # TYPE telecl_controller_leading gauge\n\
             telecl_controller_leading {leading}\n\
             # HELP telecl_controller_certificates Times that the webhook took up another certificate, CA or list of services.\n\
             # TYPE telecl_controller_certificates counter\n\
             telecl_controller_certificates_total {certificates}\n\
             # EOF\n"
        )
    }
}

/// How TLS is spoken with this certificate.
pub fn tls(pair: &Pair) -> anyhow::Result<Arc<ServerConfig>> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
        .collect::<Result<_, _>>()
        .context("reading the webhook's certificate")?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).context("reading the webhook's key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .context("using the webhook's certificate")?;
    Ok(Arc::new(config))
}

/// Answers the API server until `stop` is set.
pub async fn serve(
    address: SocketAddr,
    served: watch::Receiver<Option<Served>>,
    metrics: Arc<Metrics>,
    events: Arc<Events>,
    mut stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening at {address}"))?;
    info!(address = %listener.local_addr()?, "webhook listens");
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(cause) => {
                    // Too many open files, as a rule: others will be closed.
                    warn!(%cause, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = stopped(&mut stop) => break,
        };
        let Ok(place) = room.clone().try_acquire_owned() else {
            warn!("too many connections");
            continue;
        };
        let Some(Served { tls, .. }) = served.borrow().clone() else { continue };
        let (served, metrics, events, stop) = (served.clone(), metrics.clone(), events.clone(), stop.clone());
        tokio::spawn(async move {
            let handshake = TlsAcceptor::from(tls).accept(stream);
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
                Ok(Ok(stream)) => {
                    speak(stream, stop, move |request| {
                        let now = served.borrow().as_ref().map(|now| now.injection.clone());
                        let (metrics, events) = (metrics.clone(), events.clone());
                        async move {
                            match now {
                                Some(injection) => review(request, &injection, &metrics, &events).await,
                                None => plain(StatusCode::SERVICE_UNAVAILABLE, "no certificate yet\n"),
                            }
                        }
                    })
                    .await
                }
                Ok(Err(cause)) => debug!(%cause, "no TLS handshake"),
                Err(_) => debug!("no TLS handshake in time"),
            }
            drop(place);
        });
    }
    // All places are free when the last answer is given.
    let all = u32::try_from(MOST_CONNECTIONS).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(LAST_ANSWERS, room.acquire_many(all)).await;
    Ok(())
}

/// Answers probes and Prometheus, until the process ends.
pub async fn serve_health(
    address: SocketAddr,
    served: watch::Receiver<Option<Served>>,
    metrics: Arc<Metrics>,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening at {address}"))?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (served, metrics, stop) = (served.clone(), metrics.clone(), stop.clone());
        let stopping = stop.clone();
        tokio::spawn(speak(stream, stop, move |request| {
            let ready = served.borrow().is_some() && !*stopping.borrow();
            let answer = health(&request, ready, &metrics);
            async move { answer }
        }));
    }
}

/// Speaks HTTP on a connection.
async fn speak<S, F, A>(stream: S, mut stop: watch::Receiver<bool>, answer: F)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Request<Incoming>) -> A,
    A: Future<Output = Response<Full<Bytes>>>,
{
    let service = service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(cause) = ended {
        debug!(%cause, "connection ended");
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Nobody who could set it any more: that is the end, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn health(request: &Request<Incoming>, ready: bool, metrics: &Metrics) -> Response<Full<Bytes>> {
    match request.uri().path() {
        "/healthz" => plain(StatusCode::OK, "ok\n"),
        "/readyz" if ready => plain(StatusCode::OK, "ok\n"),
        "/readyz" => plain(StatusCode::SERVICE_UNAVAILABLE, "no certificate yet, or about to stop\n"),
        "/metrics" => {
            let mut response = plain(StatusCode::OK, metrics.text());
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(kind));
            response
        }
        _ => plain(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics\n"),
    }
}

async fn review(
    request: Request<Incoming>,
    injection: &Injection,
    metrics: &Metrics,
    events: &Events,
) -> Response<Full<Bytes>> {
    let begin = Instant::now();
    if request.method() != Method::POST || request.uri().path() != PATH {
        return plain(StatusCode::NOT_FOUND, "there is POST /inject\n");
    }
    let Ok(body) = Limited::new(request.into_body(), LARGEST_REVIEW).collect().await else {
        return plain(StatusCode::BAD_REQUEST, "the review is too large, or was cut off\n");
    };
    let Ok(review) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
        return plain(StatusCode::BAD_REQUEST, "the review is not JSON\n");
    };
    let Some(answer) = answer(&review, injection, metrics) else {
        return plain(StatusCode::BAD_REQUEST, "this is no AdmissionReview of admission.k8s.io/v1\n");
    };
    if let Some((about, kind, reason, note)) = news(&review["request"], &answer["response"]) {
        events.tell(about, kind, reason, &note);
    }
    let taken = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
    metrics.microseconds.fetch_add(taken, Ordering::Relaxed);
    let mut response = plain(StatusCode::OK, answer.to_string());
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    response
}

/// The answer to a review, if it is one.
fn answer(review: &Value, injection: &Injection, metrics: &Metrics) -> Option<Value> {
    let request = review.get("request")?;
    let uid = request.get("uid")?.as_str()?;
    let is_pod = request.pointer("/resource/resource").and_then(Value::as_str) == Some("pods");
    let creates = request.get("operation").and_then(Value::as_str) == Some("CREATE");
    let mut response = json!({"uid": uid, "allowed": true});
    let change = if is_pod && creates { injection.change(&request["object"]) } else { Ok(Default::default()) };
    let counter = match change {
        Ok(change) => {
            let counter = if change.patch.is_empty() { &metrics.unchanged } else { &metrics.changed };
            if !change.patch.is_empty() {
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(BASE64_STANDARD.encode(Value::Array(change.patch).to_string()));
            }
            if !change.warnings.is_empty() {
                response["warnings"] = json!(change.warnings);
            }
            counter
        }
        Err(cause) => {
            response["allowed"] = json!(false);
            response["status"] = json!({"code": 422, "message": cause.to_string()});
            &metrics.refused
        }
    };
    counter.fetch_add(1, Ordering::Relaxed);
    Some(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// What there is to tell of an answer. The pod has no identity yet, and often no name: it is told of whoever makes it, such as a Job.
/// Whoever makes a pod by hand reads the answer itself.
fn news(request: &Value, response: &Value) -> Option<(ObjectReference, Kind, &'static str, String)> {
    if request["dryRun"] == json!(true) {
        return None;
    }
    let owners = request.pointer("/object/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == json!(true))?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let about = ObjectReference {
        api_version: text(&owner["apiVersion"]),
        kind: text(&owner["kind"]),
        name: text(&owner["name"]),
        uid: text(&owner["uid"]),
        namespace: text(&request["namespace"]),
        ..ObjectReference::default()
    };
    if response["allowed"] == json!(false) {
        return Some((about, Kind::Warning, "NotInjected", text(&response["status"]["message"])?));
    }
    if let Some(warnings) = response["warnings"].as_array() {
        let all: Vec<&str> = warnings.iter().filter_map(Value::as_str).collect();
        return Some((about, Kind::Warning, "PartlyInjected", all.join("; ")));
    }
    response.get("patch")?;
    Some((about, Kind::Normal, "Injected", "telecl's driver is put into its pods".to_owned()))
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn injection() -> Injection {
        let (image, services) = ("driver:1".to_owned(), "s:7701".to_owned());
        Injection { image, pull_policy: None, services, ca: "PEM".to_owned(), files: Vec::new() }
    }

    fn review(operation: &str, object: Value) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "7", "operation": operation, "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": object,
        }})
    }

    #[test]
    fn a_new_pod_is_changed_by_a_json_patch() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main"}]}});
        let metrics = Metrics::default();
        let answer = answer(&review("CREATE", pod), &injection(), &metrics).unwrap();
        let response = &answer["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("7"), &json!(true)));
        assert_eq!(response["patchType"], "JSONPatch");
        let patch = BASE64_STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
        assert!(patch.iter().any(|operation| operation["path"] == "/spec/containers"));
        assert!(metrics.text().contains("telecl_injections_total{result=\"changed\"} 1\n"), "{}", metrics.text());
    }

    #[test]
    fn whoever_makes_a_pod_is_told_what_became_of_it() {
        let metrics = Metrics::default();
        let tell = |pod: Value, dry: bool| {
            let mut review = review("CREATE", pod);
            review["request"]["namespace"] = json!("red");
            review["request"]["dryRun"] = json!(dry);
            let answer = answer(&review, &injection(), &metrics).unwrap();
            news(&review["request"], &answer["response"])
        };
        let owners =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j-1", "controller": true}]);
        let pod =
            |containers: Value| json!({"metadata": {"ownerReferences": owners}, "spec": {"containers": containers}});
        let (about, kind, reason, _) = tell(pod(json!([{"name": "main"}])), false).unwrap();
        assert_eq!((about.kind.as_deref(), about.namespace.as_deref()), (Some("Job"), Some("red")));
        assert_eq!((kind, reason), (Kind::Normal, "Injected"));
        let own = json!([{"name": "main", "volumeMounts": [{"name": "mine", "mountPath": "/opt/telecl"}]}]);
        let (_, kind, reason, note) = tell(pod(own), false).unwrap();
        assert_eq!((kind, reason), (Kind::Warning, "PartlyInjected"));
        assert!(note.contains("container main mounts something at /opt/telecl"), "{note}");
        let (_, kind, reason, note) = tell(pod(json!([1])), false).unwrap();
        assert_eq!((kind, reason), (Kind::Warning, "NotInjected"));
        assert!(note.contains("a container"), "{note}");
        // Nothing is told of what is only tried, of what stays as it is, and of pods that nobody owns.
        assert!(tell(pod(json!([{"name": "main"}])), true).is_none());
        let mut out = pod(json!([{"name": "main"}]));
        out["metadata"]["labels"] = json!({"telecl.dev/inject": "false"});
        assert!(tell(out, false).is_none());
        assert!(tell(json!({"metadata": {}, "spec": {"containers": [{"name": "main"}]}}), false).is_none());
    }

    #[test]
    fn other_requests_pass_and_nonsense_is_refused_with_a_reason() {
        let metrics = Metrics::default();
        let deleted = answer(&review("DELETE", Value::Null), &injection(), &metrics).unwrap();
        assert_eq!(deleted["response"], json!({"uid": "7", "allowed": true}));
        let wrong = answer(&review("CREATE", json!({"metadata": 1})), &injection(), &metrics).unwrap();
        assert_eq!(wrong["response"]["allowed"], false);
        assert!(wrong["response"]["status"]["message"].as_str().unwrap().contains("metadata"));
        assert!(answer(&json!({"kind": "Pod"}), &injection(), &metrics).is_none());
    }
}
