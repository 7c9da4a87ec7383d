//! What `kubectl describe` and `kubectl events` show: Events about pods, their owners, and telecl's objects.
//!
//! An Event is news, never state: what holds stands in the status of an object. So it is told in the background, the same
//! is not told twice within [`QUIET`], and nothing waits for it or fails because of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

/// How long the same is not told again.
const QUIET: Duration = Duration::from_secs(600);
/// So much is remembered of what was told; beyond it the oldest is forgotten.
const MOST_TOLD: usize = 4096;
/// Events that may be under way; more are dropped, because the API server has more important things to do.
const AT_ONCE: usize = 16;
/// What the API server takes.
const LONGEST_NOTE: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(10);
/// Where Events about objects without a namespace go, as Kubernetes' own do.
const DEFAULT_NAMESPACE: &str = "default";

/// How an Event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Normal,
    Warning,
}

/// Tells the cluster what happens.
#[allow(missing_debug_implementations)] // the client has none
pub struct Events {
    client: Client,
    /// Who tells: a program, and which of its replicas.
    component: &'static str,
    instance: String,
    told: Mutex<Told>,
    places: Arc<Semaphore>,
}

/// When something was told last, by the object's uid, the reason and the note.
type Told = HashMap<(String, &'static str, String), Instant>;

impl Events {
    pub fn new(client: Client, component: &'static str, instance: &str) -> Arc<Self> {
        let (told, places) = (Mutex::default(), Arc::new(Semaphore::new(AT_ONCE)));
        Arc::new(Self { client, component, instance: instance.to_owned(), told, places })
    }

    /// Tells of an object, unless that was told a moment ago.
    pub fn tell(&self, about: ObjectReference, kind: Kind, reason: &'static str, note: &str) {
        let key = (about.uid.clone().unwrap_or_default(), reason, note.to_owned());
        if !is_new(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner), key, Instant::now()) {
            return;
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            debug!(reason, note, "too many Events at once; one is dropped");
            return;
        };
        let event = self.event(about, kind, reason, note);
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        tokio::spawn(async move {
            match tokio::time::timeout(PATIENCE, api.create(&PostParams::default(), &event)).await {
                Ok(Ok(_)) => {}
                // A namespace that is being deleted takes none.
                Ok(Err(kube::Error::Api(cause))) if [403, 404].contains(&cause.code) => {
                    debug!(reason, %cause, "an Event was not taken");
                }
                Ok(Err(cause)) => warn!(reason, %cause, "cannot write an Event"),
                Err(_) => warn!(reason, "writing an Event takes too long"),
            }
            drop(place);
        });
    }

    fn event(&self, about: ObjectReference, kind: Kind, reason: &str, note: &str) -> Event {
        let now = Timestamp::now();
        let name = format!("{}.{:x}", about.name.as_deref().unwrap_or(self.component), now.as_nanosecond());
        let namespace = about.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        let kind = match kind {
            Kind::Normal => "Normal",
            Kind::Warning => "Warning",
        };
        Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
            event_time: Some(MicroTime(now)),
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            // The API server wants one; it says in one word what was done.
            action: Some(reason.to_owned()),
            note: Some(shortened(note)),
            regarding: Some(about),
            reporting_controller: Some(format!("telecl.dev/{}", self.component)),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

/// Whether this was not told within [`QUIET`]; it counts as told then.
fn is_new(told: &mut Told, key: (String, &'static str, String), now: Instant) -> bool {
    if told.get(&key).is_some_and(|then| now.duration_since(*then) < QUIET) {
        return false;
    }
    if told.len() >= MOST_TOLD {
        told.retain(|_, then| now.duration_since(*then) < QUIET);
    }
    if told.len() >= MOST_TOLD
        && let Some(oldest) = told.iter().min_by_key(|(_, then)| **then).map(|(key, _)| key.clone())
    {
        told.remove(&oldest);
    }
    told.insert(key, now);
    true
}

fn shortened(note: &str) -> String {
    match note.char_indices().nth(LONGEST_NOTE) {
        None => note.to_owned(),
        Some((end, _)) => format!("{}…", &note[..end]),
    }
}

/// A pod, as an Event refers to it.
pub fn pod(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_again_after_a_while_and_something_else_at_once() {
        let mut told = Told::new();
        let key = |uid: &str, note: &str| (uid.to_owned(), "Refused", note.to_owned());
        let begin = Instant::now();
        assert!(is_new(&mut told, key("a", "x"), begin));
        assert!(!is_new(&mut told, key("a", "x"), begin + QUIET / 2));
        assert!(is_new(&mut told, key("a", "y"), begin));
        assert!(is_new(&mut told, key("b", "x"), begin));
        assert!(is_new(&mut told, key("a", "x"), begin + QUIET));
    }

    #[test]
    fn what_is_remembered_does_not_grow_without_end() {
        let mut told = Told::new();
        let begin = Instant::now();
        for number in 0..MOST_TOLD as u64 + 10 {
            let now = begin + Duration::from_millis(number);
            assert!(is_new(&mut told, (number.to_string(), "Refused", String::new()), now));
        }
        assert_eq!(told.len(), MOST_TOLD);
        assert!(!told.contains_key(&("0".to_owned(), "Refused", String::new())));
    }

    #[test]
    fn notes_are_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"é".repeat(LONGEST_NOTE + 1)).chars().count(), LONGEST_NOTE + 1);
    }
}
