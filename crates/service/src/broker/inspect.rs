//! Those who look after the service: what they may see, and the sessions that they end.
//!
//! Root and the service's own user, at the Unix socket, see everything and may end every session. Others see and end the
//! sessions of their own tenant; of a device that they may use they see the figures of all its sessions together, and no
//! names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telecl_net::{FrameSender, Stream};
use telecl_policy::Tenant;
use telecl_wire::MAX_BODY;
use telecl_wire::status::{Counts, DeviceStatus, DeviceUse, SessionEnded, SessionStatus, Stage, Status, TenantStatus};
use tracing::{info, warn};

use super::Broker;
use super::accounts::Seen;
use super::audit::{Outcome, Subject, Wanted};
use super::counters::Failure;
use super::figures::Figures;
use super::greeting::{Arrival, Shown};
use super::overview::{DeviceView, Overview};
use super::peer::User;
use super::review::Pod;
use super::session::{identify, refuse};
use crate::board::{Count, DeviceCount, Wish};

/// More sessions than this do not fit into an answer.
const MOST_SESSIONS: usize = 2000;

/// Somebody who asks.
pub(super) struct Viewer {
    user: Option<User>,
    tenant: Tenant,
    pub(super) operator: bool,
}

impl Viewer {
    /// `None` for somebody who may not ask, and has been told so.
    pub(super) fn find(
        broker: &Broker,
        arrival: Arrival,
        peer: &str,
        shown: &Shown,
        wanted: Wanted,
    ) -> Option<(Viewer, Stream)> {
        let timeout = broker.settings.handshake_timeout;
        let link = arrival.link();
        match identify(broker, &arrival, shown, Instant::now() + timeout) {
            Ok(identity) => {
                // Whoever watches asks once a second.
                if wanted != Wanted::Status {
                    let subject = Subject { peer, link, identity: Some(&identity), program: None };
                    let accepted = Outcome::Accepted { session: None, devices: &[] };
                    broker.audit.write(wanted, &subject, accepted, &broker.offer);
                }
                let operator = identity.is_operator();
                Some((Viewer { operator, tenant: identity.tenant, user: identity.user }, arrival.stream))
            }
            Err(refusal) => {
                broker.counters.failed(Failure::Credential);
                warn!(peer, reason = refusal.text, code = refusal.code, "refused to say how the service is");
                let subject = Subject { peer, link, identity: None, program: None };
                broker.audit.write(wanted, &subject, Outcome::Refused(&refusal), &broker.offer);
                refuse(arrival.stream, &refusal.text, timeout);
                None
            }
        }
    }

    /// For the log.
    pub(super) fn name(&self) -> String {
        self.user.as_ref().map_or_else(|| self.tenant.to_string(), ToString::to_string)
    }

    fn sees(&self, tenant: &Tenant) -> bool {
        self.operator || *tenant == self.tenant
    }
}

/// Says how the service is.
pub(crate) fn inspect(broker: &Arc<Broker>, arrival: Arrival, peer: &str, shown: &Shown) {
    let Some((viewer, stream)) = Viewer::find(broker, arrival, peer, shown, Wanted::Status) else { return };
    broker.sensors.want();
    let Overview { mut devices, mut sessions, tenants, .. } = Overview::take(broker);
    if !viewer.operator {
        let policy = broker.rules.current();
        let allowed = broker.offer.allowed(&policy.for_tenant(&viewer.tenant).devices.value);
        devices.retain(|view| allowed.contains(&view.device.id));
    }
    sessions.retain(|seen| viewer.sees(&seen.who.tenant));
    let all = sessions.len();
    // The youngest are the least likely to be missed.
    sessions.truncate(MOST_SESSIONS);
    let users: Vec<String> = sessions.iter().map(|seen| seen.who.user_name().unwrap_or_default()).collect();
    let pods: Vec<String> =
        sessions.iter().map(|seen| seen.who.pod.as_ref().map(Pod::path).unwrap_or_default()).collect();
    let named = users.iter().zip(&pods);
    let mut status = Status {
        version: env!("CARGO_PKG_VERSION"),
        node: &broker.node,
        socket: &broker.socket,
        instance: broker.instance,
        boot_id: broker.boot_id,
        tenant: viewer.tenant.as_str(),
        operator: viewer.operator,
        draining: broker.drain.is_on(),
        uptime_ns: nanoseconds(broker.started.elapsed()),
        devices: devices.iter().map(device).collect(),
        tenants: tenants
            .iter()
            .filter(|(tenant, _)| viewer.sees(tenant))
            .map(|(tenant, account)| TenantStatus {
                name: tenant.as_str(),
                sessions: account.present,
                refused: account.refused,
                counts: counts(&account.figures),
                devices: uses(&account.figures),
            })
            .collect(),
        sessions: sessions.iter().zip(named).map(|(seen, (user, pod))| session(seen, user, pod)).collect(),
        left_out: (all - sessions.len()) as u64,
    };
    fit(&mut status, MAX_BODY);
    let _ = stream.set_send_timeout(Some(broker.settings.handshake_timeout));
    // Whoever has left needs no answer.
    let _ = FrameSender::new(stream).send(&status, &[]);
}

/// Leaves out what is too much for one body: half of the sessions, and half of those, and so on; then tenants likewise.
fn fit(status: &mut Status<'_>, most: usize) {
    while telecl_wire::encode(status).len() > most {
        let half = status.sessions.len() / 2;
        if status.sessions.is_empty() {
            if status.tenants.is_empty() {
                return;
            }
            status.tenants.truncate(status.tenants.len() / 2);
        }
        status.left_out += (status.sessions.len() - half) as u64;
        status.sessions.truncate(half);
    }
}

/// Ends a session, and says so when it is gone.
pub(crate) fn end_session(broker: &Arc<Broker>, arrival: Arrival, peer: &str, session: u64, shown: &Shown) {
    let wanted = Wanted::EndSession(session);
    let Some((viewer, stream)) = Viewer::find(broker, arrival, peer, shown, wanted) else { return };
    let timeout = broker.settings.handshake_timeout;
    let found = broker.accounts.find(session).filter(|(who, _)| viewer.sees(&who.tenant));
    let Some((who, board)) = found else {
        // Which of the two it is, others need not know.
        let whose = if viewer.operator { String::new() } else { format!(" of tenant {}", viewer.tenant) };
        return refuse(stream, &format!("there is no session {session}{whose}"), timeout);
    };
    let by = viewer.name();
    info!(session, tenant = %who.tenant, program = who.program, by, "somebody ends the session");
    let wish = if viewer.operator { Wish::EndedByOperator } else { Wish::EndedByTenant };
    if broker.sessions.end(session, wish, board.as_deref()) {
        let _ = stream.set_send_timeout(Some(timeout));
        let _ = FrameSender::new(stream).send(&SessionEnded { session }, &[]);
    } else {
        warn!(session, "the session does not end");
        refuse(stream, &format!("session {session} does not end; the service's log may say why"), timeout);
    }
}

fn device(view: &DeviceView) -> DeviceStatus<'_> {
    let DeviceView { device, used, promised, sessions, busy_ns, sensors } = view;
    DeviceStatus {
        id: device.id,
        name: &device.name,
        platform: &device.platform,
        memory: device.memory,
        used: *used,
        promised: *promised,
        sessions: *sessions,
        busy_ns: *busy_ns,
        sensors: sensors.clone(),
    }
}

fn session<'s>(seen: &'s Seen, user: &'s str, pod: &'s str) -> SessionStatus<'s> {
    let who = &seen.who;
    SessionStatus {
        id: who.session,
        tenant: who.tenant.as_str(),
        user,
        pod,
        peer: &who.peer,
        program: &who.program,
        pid: who.pid,
        stage: if seen.works { Stage::Working } else { Stage::Connected },
        age_ns: nanoseconds(who.since.elapsed()),
        counts: counts(&seen.figures),
        devices: uses(&seen.figures),
    }
}

fn counts(figures: &Figures) -> Counts {
    Counts {
        bytes_in: figures.get(Count::BytesIn),
        bytes_out: figures.get(Count::BytesOut),
        commands: figures.get(Count::Commands),
        failures: figures.get(Count::Failures),
        builds: figures.get(Count::Builds),
        cache_hits: figures.get(Count::CacheHits),
    }
}

fn uses(figures: &Figures) -> Vec<DeviceUse> {
    let use_of = |(device, figures): (u64, &super::figures::DeviceFigures)| DeviceUse {
        device,
        memory: figures.get(DeviceCount::Memory),
        peak_memory: figures.get(DeviceCount::PeakMemory),
        busy_ns: figures.get(DeviceCount::Busy),
        waited_ns: figures.get(DeviceCount::Waited),
    };
    figures.devices().map(use_of).collect()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_too_long_has_fewer_sessions_and_says_how_many() {
        let figures = Figures::default();
        let one = |id| SessionStatus {
            id,
            tenant: "t",
            user: "",
            pod: "",
            peer: "",
            program: "p",
            pid: 1,
            stage: Stage::Working,
            age_ns: 0,
            counts: counts(&figures),
            devices: Vec::new(),
        };
        let tenant =
            |name| TenantStatus { name, sessions: 1, refused: 0, counts: counts(&figures), devices: Vec::new() };
        let mut status = Status {
            version: "1",
            node: "n",
            socket: "",
            instance: 1,
            boot_id: [0; 16],
            tenant: "t",
            operator: true,
            draining: false,
            uptime_ns: 1,
            devices: Vec::new(),
            tenants: vec![tenant("a"), tenant("b")],
            sessions: (0..100).map(one).collect(),
            left_out: 5,
        };
        fit(&mut status, 5000);
        assert!(telecl_wire::encode(&status).len() <= 5000);
        assert!(status.sessions.len() > 20 && status.tenants.len() == 2);
        assert_eq!(status.left_out + status.sessions.len() as u64, 105);
        fit(&mut status, 0);
        assert!(status.sessions.is_empty() && status.tenants.is_empty() && status.left_out == 105);
    }
}
