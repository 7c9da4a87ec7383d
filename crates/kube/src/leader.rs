//! Which of the controllers does the work: the one that holds a Lease.
//!
//! Whoever finds the Lease unheld, or not renewed for its whole duration as seen by the own clock, takes it. A holder that could
//! not renew it in time stops its work before another one can begin.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use tokio::sync::watch;
use tracing::{info, warn};

/// How long a Lease holds without being renewed.
const DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew for so long stops working.
const PATIENCE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(3);

/// One who wants to lead.
#[derive(Debug)]
pub struct Candidate {
    pub leases: Api<Lease>,
    /// The Lease's name.
    pub name: String,
    /// Its own name, which no other candidate has.
    pub identity: String,
    pub owner: Option<OwnerReference>,
}

/// What was last seen of the Lease, and since when.
#[derive(Debug)]
struct Seen {
    renewed: Option<MicroTime>,
    holder: String,
    since: Instant,
}

impl Candidate {
    /// Tells `leading` what holds, until nobody listens or `stop` is set; then gives the Lease back.
    pub async fn run(self, leading: watch::Sender<bool>, mut stop: watch::Receiver<bool>) {
        let mut seen = None;
        let mut renewed = Instant::now();
        loop {
            match self.attempt(&mut seen).await {
                Ok(true) => {
                    renewed = Instant::now();
                    self.tell(&leading, true);
                }
                Ok(false) => self.tell(&leading, false),
                Err(cause) => {
                    warn!(%cause, lease = self.name, "cannot renew the lease");
                    if renewed.elapsed() > PATIENCE {
                        self.tell(&leading, false);
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                _ = stop.changed() => break,
            }
        }
        if *leading.borrow() {
            self.tell(&leading, false);
            self.release().await;
        }
    }

    fn tell(&self, leading: &watch::Sender<bool>, now: bool) {
        let changed = leading.send_if_modified(|before| std::mem::replace(before, now) != now);
        if changed {
            info!(identity = self.identity, leading = now, "leadership changed");
        }
    }

    /// Takes or renews the Lease if it may be.
    async fn attempt(&self, seen: &mut Option<Seen>) -> kube::Result<bool> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            return conflict_is_no(self.leases.create(&PostParams::default(), &self.lease(None)).await);
        };
        if !self.may_take(lease.spec.as_ref(), seen, Instant::now()) {
            return Ok(false);
        }
        conflict_is_no(self.leases.replace(&self.name, &PostParams::default(), &self.lease(Some(&lease))).await)
    }

    fn may_take(&self, spec: Option<&LeaseSpec>, seen: &mut Option<Seen>, now: Instant) -> bool {
        let holder = spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        if holder.is_empty() || holder == self.identity {
            return true;
        }
        let renewed = spec.and_then(|spec| spec.renew_time.clone());
        match seen {
            Some(seen) if seen.renewed == renewed && seen.holder == holder => now.duration_since(seen.since) > DURATION,
            _ => {
                *seen = Some(Seen { renewed, holder, since: now });
                false
            }
        }
    }

    fn lease(&self, old: Option<&Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let before = old.and_then(|old| old.spec.as_ref());
        let mine = before.is_some_and(|before| before.holder_identity.as_ref() == Some(&self.identity));
        let transitions = before.and_then(|before| before.lease_transitions).unwrap_or(0);
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                resource_version: old.and_then(|old| old.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                acquire_time: if mine { before.and_then(|b| b.acquire_time.clone()) } else { Some(now.clone()) },
                renew_time: Some(now),
                lease_transitions: Some(if mine { transitions } else { transitions + 1 }),
                ..LeaseSpec::default()
            }),
        }
    }

    /// The next one need not wait.
    async fn release(&self) {
        let Ok(Some(mut lease)) = self.leases.get_opt(&self.name).await else { return };
        if let Some(spec) = lease.spec.as_mut().filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity)) {
            spec.holder_identity = Some(String::new());
            let released = self.leases.replace(&self.name, &PostParams::default(), &lease).await;
            if let Err(cause) = released {
                warn!(%cause, lease = self.name, "cannot give the lease back");
            }
        }
    }
}

/// Somebody else was faster: that is an answer.
fn conflict_is_no<T>(result: kube::Result<T>) -> kube::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(cause) => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(identity: &str) -> Candidate {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let leases = Api::namespaced(client, "telecl-system");
        Candidate { leases, name: "telecl-controller".to_owned(), identity: identity.to_owned(), owner: None }
    }

    #[tokio::test]
    async fn a_lease_is_taken_when_it_is_free_ours_or_was_not_renewed_for_its_whole_duration() {
        let a = candidate("a");
        let b = candidate("b");
        let now = Instant::now();
        let held = a.lease(None).spec;
        let mut seen = None;
        assert!(b.may_take(None, &mut seen, now));
        assert!(a.may_take(held.as_ref(), &mut seen, now));
        assert!(!b.may_take(held.as_ref(), &mut seen, now));
        assert!(!b.may_take(held.as_ref(), &mut seen, now + DURATION));
        let renewed = a.lease(None).spec;
        assert!(!b.may_take(renewed.as_ref(), &mut seen, now + DURATION + INTERVAL));
        assert!(!b.may_take(renewed.as_ref(), &mut seen, now + DURATION + INTERVAL + DURATION));
        assert!(b.may_take(renewed.as_ref(), &mut seen, now + DURATION + INTERVAL + DURATION + INTERVAL));
    }

    #[tokio::test]
    async fn transitions_are_counted_and_the_time_of_taking_is_kept() {
        let a = candidate("a");
        let b = candidate("b");
        let first = a.lease(None);
        let again = a.lease(Some(&first)).spec.unwrap();
        assert_eq!(again.acquire_time, first.spec.as_ref().unwrap().acquire_time);
        assert_eq!(again.lease_transitions, Some(1));
        assert_eq!(b.lease(Some(&first)).spec.unwrap().lease_transitions, Some(2));
    }
}
