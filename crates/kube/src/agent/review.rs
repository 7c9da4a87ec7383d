//! Whose a token is: asked by the service, one line of JSON in and one out, and known by the API server's TokenReview.
//!
//! Whose it is is kept for a while; what the policy says of its owner is looked up each time.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::Api;
use kube::api::PostParams;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{info, warn};

use super::Shared;
use super::kept::Kept;
use crate::events::{self, Kind};
use crate::objects::AUDIENCE;
use crate::render::Subject;

/// How long the API server may take; the service waits a little longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// How many are asked for at once.
const AT_ONCE: usize = 64;

/// No question is longer.
const LONGEST: u64 = 64 << 10;

#[derive(Debug, Deserialize)]
struct Question {
    token: String,
    #[serde(default)]
    profile: Option<String>,
}

/// What the service is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Answer {
    Known {
        namespace: String,
        service_account: String,
        pod: Option<String>,
        pod_uid: Option<String>,
        profile: Option<String>,
    },
    Refused {
        refused: &'static str,
        message: String,
    },
}

/// Whose a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    namespace: String,
    account: String,
    pod: Option<String>,
    pod_uid: Option<String>,
    node: Option<String>,
}

fn refused(reason: &'static str, message: impl Into<String>) -> Answer {
    Answer::Refused { refused: reason, message: message.into() }
}

/// Answers at the socket until the task is dropped.
pub(super) fn listen(shared: Arc<Shared>, path: PathBuf) -> io::Result<JoinHandle<()>> {
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o660))?;
    let desk = Arc::new(Desk { shared, kept: Kept::new(), places: Semaphore::new(AT_ONCE) });
    Ok(tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let desk = Arc::clone(&desk);
                    tokio::spawn(async move {
                        // Whoever has left needs no answer.
                        let _ = timeout(PATIENCE * 2, desk.attend(stream)).await;
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a question about a token");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }))
}

struct Desk {
    shared: Arc<Shared>,
    kept: Kept<Owner>,
    places: Semaphore,
}

impl Desk {
    async fn attend(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut line = String::new();
        BufReader::new((&mut stream).take(LONGEST)).read_line(&mut line).await?;
        let answer = match serde_json::from_str::<Question>(&line) {
            Ok(question) => self.answer(&question).await,
            Err(_) => refused("invalid", "the question about your token was none"),
        };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        stream.write_all(&text).await
    }

    async fn answer(&self, question: &Question) -> Answer {
        let token = &question.token;
        let owner = match self.kept.find(token, Instant::now()) {
            Some(owner) => owner,
            None => match self.review(token).await {
                Ok(owner) => {
                    let good_for = expiry(token).and_then(|expires| expires.duration_since(SystemTime::now()).ok());
                    self.kept.keep(token, owner.clone(), good_for.unwrap_or_default(), Instant::now());
                    owner
                }
                Err(answer) => {
                    info!(answer = ?answer, "token refused");
                    return answer;
                }
            },
        };
        let rendered = self.shared.rendered();
        let subject = rendered.subject(&owner.namespace, &owner.account);
        let answer = admit(owner.clone(), subject, &self.shared.options.node, question.profile.as_deref());
        self.tell(&owner, &answer);
        answer
    }

    /// An Event about the pod. There is none about tokens that are not good: they say themselves whose they are.
    fn tell(&self, owner: &Owner, answer: &Answer) {
        let (Some(pod), Some(uid)) = (&owner.pod, &owner.pod_uid) else { return };
        let (kind, reason, note) = news(&self.shared.options.node, answer);
        self.shared.events.tell(events::pod(&owner.namespace, pod, uid), kind, reason, &note);
    }

    async fn review(&self, token: &str) -> Result<Owner, Answer> {
        let unreachable = |what: &str| {
            warn!(what, "cannot have a token reviewed");
            refused(
                "unreachable",
                "nobody could check your Kubernetes token: the API server does not answer the service's agent; try again",
            )
        };
        let _place = self.places.acquire().await.map_err(|_| unreachable("stopping"))?;
        let api: Api<TokenReview> = Api::all(self.shared.client.clone());
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![AUDIENCE.to_owned()]) };
        let wanted = TokenReview { spec, ..TokenReview::default() };
        let status = match timeout(PATIENCE, api.create(&PostParams::default(), &wanted)).await {
            Ok(Ok(review)) => review.status.unwrap_or_default(),
            Ok(Err(error)) => return Err(unreachable(&error.to_string())),
            Err(_) => return Err(unreachable("it takes too long")),
        };
        owner(&status).ok_or_else(|| explain(token, &status))
    }
}

/// Whose token it is, if it is good.
fn owner(status: &TokenReviewStatus) -> Option<Owner> {
    let is_ours = status.audiences.iter().flatten().any(|audience| audience == AUDIENCE);
    let user = status.user.as_ref().filter(|_| status.authenticated == Some(true) && is_ours)?;
    let (namespace, account) = user.username.as_deref()?.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let extra = |key: &str| user.extra.as_ref()?.get(&format!("authentication.kubernetes.io/{key}"))?.first().cloned();
    Some(Owner {
        namespace: namespace.to_owned(),
        account: account.to_owned(),
        pod: extra("pod-name"),
        pod_uid: extra("pod-uid"),
        node: extra("node-name"),
    })
}

/// What the policy makes of the owner.
fn admit(owner: Owner, subject: Option<&Subject>, node: &str, profile: Option<&str>) -> Answer {
    let Owner { namespace, account, pod, pod_uid, node: theirs } = owner;
    if subject.is_some_and(|subject| subject.requires_node) && theirs.as_deref() != Some(node) {
        let policy = subject.map(|subject| subject.policy.as_str()).unwrap_or_default();
        return refused(
            "locality",
            format!("policy {policy} lets this pod use services on its own node only, and this one is on {node}"),
        );
    }
    let known = |profile: &&str| subject.is_some_and(|subject| subject.profiles.contains(*profile));
    let profile = profile.filter(known).map(str::to_owned);
    Answer::Known { namespace, service_account: account, pod, pod_uid, profile }
}

/// What there is to tell of an answer.
fn news(node: &str, answer: &Answer) -> (Kind, &'static str, String) {
    match answer {
        Answer::Known { namespace, service_account, profile, .. } => {
            let profile = profile.as_deref().map_or_else(String::new, |profile| format!(", with profile {profile}"));
            let note = format!("known to the service on {node} as {namespace}/{service_account}{profile}");
            (Kind::Normal, "AcceleratorsInReach", note)
        }
        Answer::Refused { message, .. } => {
            (Kind::Warning, "AcceleratorsRefused", format!("refused by the service on {node}: {message}"))
        }
    }
}

/// Why a token is not good. What it says of itself is not checked, but whoever shows it knows that anyway.
fn explain(token: &str, status: &TokenReviewStatus) -> Answer {
    let error = status.error.as_deref().unwrap_or_default();
    let claims = claims(token);
    let is_for_us = claims.as_ref().map(|claims| match &claims["aud"] {
        Value::Array(list) => list.iter().any(|one| one == AUDIENCE),
        one => one == AUDIENCE,
    });
    if error.contains("has been invalidated") {
        return refused(
            "gone",
            "the Kubernetes token is void: the pod or the service account that it was made for is gone",
        );
    }
    if error.contains("expired") || expiry(token).is_some_and(|expires| expires < SystemTime::now()) {
        return refused(
            "expired",
            "the Kubernetes token has expired; the kubelet renews the one in the pod's file, so use that and no copy of it",
        );
    }
    if is_for_us == Some(false) {
        let text = "the Kubernetes token is for another audience: telecl takes those of a projected volume with audience telecl";
        return refused("audience", text);
    }
    refused("invalid", "the Kubernetes token is not one of this cluster's, or it was changed")
}

/// What a token says, unchecked.
fn claims(token: &str) -> Option<Value> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&BASE64.decode(payload).ok()?).ok()
}

fn expiry(token: &str) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(claims(token)?["exp"].as_u64()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn token(claims: &Value) -> String {
        format!("eyJhbGciOiJub25lIn0.{}.c2ln", BASE64.encode(claims.to_string()))
    }

    fn status(value: Value) -> TokenReviewStatus {
        serde_json::from_value(value).unwrap()
    }

    fn good() -> TokenReviewStatus {
        status(json!({"authenticated": true, "audiences": ["telecl"], "user": {
            "username": "system:serviceaccount:red:default",
            "extra": {"authentication.kubernetes.io/pod-name": ["train-0"], "authentication.kubernetes.io/pod-uid": ["u-1"],
                      "authentication.kubernetes.io/node-name": ["node7"]}}}))
    }

    #[test]
    fn an_owner_is_a_service_account_with_a_token_for_us() {
        let found = owner(&good()).unwrap();
        assert_eq!((found.namespace.as_str(), found.account.as_str()), ("red", "default"));
        assert_eq!((found.pod.as_deref(), found.node.as_deref()), (Some("train-0"), Some("node7")));
        for wrong in [
            json!({"authenticated": false, "user": {"username": "system:serviceaccount:a:b"}}),
            json!({"authenticated": true, "audiences": ["other"], "user": {"username": "system:serviceaccount:a:b"}}),
            json!({"authenticated": true, "user": {"username": "system:serviceaccount:a:b"}}),
            json!({"authenticated": true, "audiences": ["telecl"], "user": {"username": "alice"}}),
            json!({}),
        ] {
            assert_eq!(owner(&status(wrong.clone())), None, "{wrong}");
        }
    }

    #[test]
    fn who_must_stay_on_its_node_is_refused_elsewhere_and_unknown_profiles_are_none() {
        let subject =
            Subject { policy: "near".to_owned(), profiles: BTreeSet::from(["small".to_owned()]), requires_node: true };
        let ask = |node: &str, profile| admit(owner(&good()).unwrap(), Some(&subject), node, profile);
        assert!(matches!(ask("node8", None), Answer::Refused { refused: "locality", .. }));
        let (kind, reason, note) = news("node8", &ask("node8", None));
        assert_eq!((kind, reason), (Kind::Warning, "AcceleratorsRefused"));
        assert!(note.contains("policy near lets this pod use services on its own node only"), "{note}");
        let (kind, _, note) = news("node7", &ask("node7", Some("small")));
        assert_eq!(
            (kind, note.as_str()),
            (Kind::Normal, "known to the service on node7 as red/default, with profile small")
        );
        let profile_of = |answer| match answer {
            Answer::Known { profile, .. } => profile,
            Answer::Refused { message, .. } => panic!("{message}"),
        };
        assert_eq!(profile_of(ask("node7", Some("small"))).as_deref(), Some("small"));
        assert_eq!(profile_of(ask("node7", Some("huge"))), None);
        assert_eq!(profile_of(admit(owner(&good()).unwrap(), None, "x", Some("small"))), None);
    }

    #[test]
    fn every_reason_has_its_word() {
        let reason = |token: &str, error: &str| match explain(token, &status(json!({"error": error}))) {
            Answer::Refused { refused, .. } => refused,
            Answer::Known { .. } => "known",
        };
        let later = 4_000_000_000_u64;
        let ours = token(&json!({"aud": ["telecl"], "exp": later}));
        assert_eq!(reason(&token(&json!({"aud": ["telecl"], "exp": 5})), ""), "expired");
        assert_eq!(reason(&ours, "[invalid bearer token, service account token has expired]"), "expired");
        assert_eq!(reason(&token(&json!({"aud": "https://api", "exp": later})), "x"), "audience");
        assert_eq!(reason(&ours, "[invalid bearer token, service account token has been invalidated]"), "gone");
        assert_eq!(reason(&ours, "invalid bearer token"), "invalid");
        assert_eq!(reason("nonsense", ""), "invalid");
    }
}
