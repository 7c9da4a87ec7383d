//! The life of one connection, from accept to the end of its worker.

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use telecl_identity::TokenError;
use telecl_net::{FrameSender, Stream, answer_not_resumed};
use telecl_policy::{DeviceOrder, Origin, Overrun, Tenant};
use telecl_wire::handshake::{DeviceMemory, Join, Refused, Resume, Welcome};
use telecl_wire::{PROTOCOL_VERSION, program_in_job, split_job};
use tracing::{debug, info, warn};

use super::accounts::Who;
use super::admission::{Claim, Place};
use super::audit::{Outcome, Subject, Wanted};
use super::counters::Failure;
use super::greeting::{
    Arrival, Caller, First, Introduction, Shown, Unwelcome, read_introduction, secure, wait_for_request,
};
use super::peer::{Identity, IdentityKind, Refusal};
use super::registry::Joins;
use super::room::Stranger;
use super::{Broker, drain, farewell, inspect, launch, memory};
use crate::channel::{Begin, Limits, MemoryLimit};
use crate::process::round_trip;

/// Attends to a connection whose first words are here, in a thread of its own.
pub(crate) fn begin(stranger: Stranger, stream: Stream, peer: String) {
    // A peer that vanished with its node would otherwise hold its devices for ever.
    keep_alive(&stream);
    let thread = thread::Builder::new().name("telecl-session".into()).stack_size(512 << 10);
    if let Err(error) = thread.spawn(move || attend(stream, peer, stranger)) {
        warn!(%error, "cannot start a thread for a connection");
    }
}

fn attend(stream: Stream, peer: String, stranger: Stranger) {
    let broker = Arc::clone(stranger.broker());
    let timeout = broker.settings.handshake_timeout;
    let deadline = Instant::now() + stranger.patience();
    let (arrival, introduction) = match introduced(&broker, stream, &peer, deadline) {
        Ok(introduced) => introduced,
        Err(Some((stream, reason))) => return refuse(stream, &reason, timeout),
        Err(None) => return,
    };
    let (mut caller, shown) = match introduction {
        Introduction::Hello(caller, shown) => (caller, shown),
        Introduction::Join(wanted) => return join(&broker, arrival, &peer, &wanted),
        Introduction::Resume(wanted) => return resume(&broker, arrival.stream, &peer, &wanted),
        Introduction::Inspect(shown) => return inspect::inspect(&broker, arrival, &peer, &shown),
        Introduction::EndSession(session, shown) => {
            // It may take a while.
            drop(stranger);
            return inspect::end_session(&broker, arrival, &peer, session, &shown);
        }
        Introduction::Drain(mode, grace) => {
            drop(stranger);
            return drain::attend(&broker, arrival, &peer, mode, grace);
        }
    };
    let read = Instant::now();
    let program = Some((caller.program.as_str(), caller.pid));
    if let Some(reason) = broker.drain.refusal() {
        broker.counters.failed(Failure::Draining);
        info!(peer, program = caller.program, pid = caller.pid, "session refused: the service is draining");
        let subject = Subject { peer: &peer, link: arrival.link(), identity: None, program };
        let refusal = Refusal { code: "draining", text: reason.to_owned() };
        broker.audit.write(Wanted::Session, &subject, Outcome::Refused(&refusal), &broker.offer);
        return refuse(arrival.stream, reason, timeout);
    }
    let found = identify(&broker, &arrival, &shown, deadline);
    drop(stranger);
    let link = arrival.link();
    let (identity, admitted) = match found {
        Ok(identity) => {
            let admitted = Admitted::find(&broker, &arrival.stream, &identity);
            (Some(identity), admitted)
        }
        Err(refusal) => (None, Err(refusal)),
    };
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => {
            broker.counters.failed(if identity.is_some() { Failure::NoDevice } else { Failure::Credential });
            let tenant = identity.as_ref().map_or("unknown", |identity| identity.tenant.as_str());
            let Refusal { code, text } = &refusal;
            warn!(%tenant, peer, program = caller.program, pid = caller.pid, reason = text, code, "session refused");
            let subject = Subject { peer: &peer, link, identity: identity.as_ref(), program };
            broker.audit.write(Wanted::Session, &subject, Outcome::Refused(&refusal), &broker.offer);
            return refuse(arrival.stream, text, timeout);
        }
    };
    let stream = arrival.stream;
    let identity = admitted.identity.clone();
    if let Some(job) = identity.claims.as_ref().and_then(|claims| claims.job.as_deref()) {
        caller.program = program_in_job(split_job(&caller.program).0, Some(job));
    }
    let program = Some((caller.program.as_str(), caller.pid));
    let (tenant, user, pod) = (identity.tenant.clone(), identity.user.clone(), identity.pod.clone());
    let devices = admitted.devices.clone();
    let session = broker.next_session.fetch_add(1, Ordering::Relaxed);
    let entered = telecl_net::random_secret().and_then(|secret| {
        let joins = broker.sessions.enter(session, stream.try_clone()?, secret)?;
        let compression = caller.compression.and(broker.settings.compression);
        let Admitted { identity, account, devices, limits, memory, limited } = admitted;
        let begin = Begin { session, compression, terms: broker.settings.terms, limits, devices, memory };
        Ok(Conversation { broker: &broker, identity, account, limited, begin, secret, joins, pid: caller.pid })
    });
    let conversation = match entered {
        Ok(conversation) => conversation,
        Err(error) => {
            broker.counters.failed(Failure::Unable);
            warn!(session, %tenant, %error, "cannot keep a session");
            return refuse(stream, &error.to_string(), timeout);
        }
    };
    let subject = Subject { peer: &peer, link, identity: Some(&identity), program };
    let accepted = Outcome::Accepted { session: Some(session), devices: &devices };
    broker.audit.write(Wanted::Session, &subject, accepted, &broker.offer);
    let Caller { program, pid, version, .. } = caller;
    info!(session, %tenant, known_by = identity.kind.name(), peer, link, program, pid, version, "session opened");
    let (begun, since) = (SystemTime::now(), read);
    let (tenant_of, program_of) = (tenant.clone(), program.clone());
    let peer_of = peer.clone();
    broker.accounts.open(Who {
        session,
        tenant: tenant_of,
        user,
        pod,
        peer: peer_of,
        program: program_of,
        pid,
        begun,
        since,
    });
    let subject = Subject { peer: &peer, link, identity: Some(&identity), program: Some((program.as_str(), pid)) };
    let ended = conversation.hold(stream, read, &subject);
    close(&broker, session, &tenant, &program, read, ended);
}

/// A session is over, and whatever there was of it.
pub(crate) fn close(
    broker: &Broker,
    session: u64,
    tenant: &Tenant,
    program: &str,
    since: Instant,
    ended: Result<String, String>,
) {
    // A driver that is told so may leave before its worker does, which then knows of nothing else.
    let ended = broker.sessions.is_ending(session).map_or(ended, |wish| Ok(wish.how().to_owned()));
    if let Some(seen) = broker.accounts.close(session, ended.is_ok()) {
        broker.accounting.write(&seen, &broker.offer, SystemTime::now(), &ended);
    }
    broker.memory.forget(session);
    // Last: the service may stop when no session is left.
    broker.sessions.leave(session);
    let duration = since.elapsed();
    match ended {
        Ok(ended) => info!(session, %tenant, program, ?duration, ended, "session closed"),
        Err(ended) => warn!(session, %tenant, program, ?duration, ended, "session closed"),
    }
}

/// Has a connection secured, and reads its first words. An error is a connection that is of no use, and has been noted;
/// with a reason if it can be told one.
fn introduced(
    broker: &Broker,
    stream: Stream,
    peer: &str,
    deadline: Instant,
) -> Result<(Arrival, Introduction), Option<(Stream, String)>> {
    let unwelcome = |reason: Unwelcome, link, stream: Option<Stream>| {
        broker.counters.failed(Failure::from(&reason));
        if let Unwelcome::Left = reason {
            // Health checks and port scans do this all day.
            debug!(peer, "connection closed without a word");
            return None;
        }
        warn!(peer, %reason, "connection refused");
        let refusal = Refusal { code: reason.code(), text: reason.to_string() };
        let link = if matches!(reason, Unwelcome::Tls(_)) { "tls" } else { link };
        let subject = Subject { peer, link, identity: None, program: None };
        broker.audit.write(Wanted::Unknown, &subject, Outcome::Refused(&refusal), &broker.offer);
        stream.filter(|_| reason.is_driver()).map(|stream| (stream, refusal.text))
    };
    let link = if stream.is_unix() { "unix" } else { "tcp" };
    let tls = broker.credentials.current();
    let arrival = secure(tls.tls.as_ref(), stream, deadline).map_err(|reason| unwelcome(reason, link, None))?;
    let link = arrival.link();
    match read_introduction(&arrival.stream, deadline) {
        Ok(introduction) => Ok((arrival, introduction)),
        Err(reason) => Err(unwelcome(reason, link, Some(arrival.stream))),
    }
}

/// Who has connected; an error for those who must not, or cannot show it.
pub(crate) fn identify(
    broker: &Broker,
    arrival: &Arrival,
    shown: &Shown,
    deadline: Instant,
) -> Result<Identity, Refusal> {
    let credentials = &broker.credentials;
    if !arrival.stream.is_encrypted() && !arrival.stream.is_loopback() && !credentials.is_insecure() {
        let text = "this service speaks TLS to other machines: write its address without tcp://, and set ca or secret";
        return Err(Refusal { code: "plain_refused", text: text.to_owned() });
    }
    let identity = Identity::find(credentials, &broker.rules.current(), &broker.node, arrival, shown, deadline)?;
    match &identity.claims {
        Some(claims) if broker.token_uses.is_used_up(claims) => Err(TokenError::Replayed.into()),
        _ => Ok(identity),
    }
}

/// What the policy says about whoever has connected.
struct Admitted {
    identity: Identity,
    /// Whom its memory and its sessions are counted for.
    account: Tenant,
    devices: Vec<u64>,
    limits: Limits,
    memory: Vec<MemoryLimit>,
    /// Whether it may have to wait, or be refused, when it wants to compute.
    limited: bool,
}

impl Admitted {
    /// An error for a tenant that may use nothing.
    fn find(broker: &Broker, stream: &Stream, identity: &Identity) -> Result<Admitted, Refusal> {
        let policy = broker.rules.current();
        let tenant = &identity.tenant;
        let grant = policy.for_tenant(tenant);
        let mut devices = broker.offer.allowed(&grant.devices.value);
        let allowed = devices.len();
        let mut narrowed = None;
        if let Some(claims) = &identity.claims {
            let meant = claims.devices(&broker.node)?;
            devices.retain(|id| broker.offer.facts(*id).is_some_and(|facts| meant.has(&facts)));
            narrowed = claims.memory;
        }
        // A service without devices is no refusal: nobody has decided so.
        if devices.is_empty() && broker.offer.device_count() > 0 {
            let by = match &grant.devices.origin {
                _ if allowed > 0 => " (devices, token)".to_owned(),
                Origin::BuiltIn => String::new(),
                origin => format!(" (devices, policy: {origin})"),
            };
            let advice = match broker.socket.as_str() {
                socket if !socket.is_empty() && identity.kind == IdentityKind::Anonymous && !stream.is_unix() => {
                    format!("; programs on this node are known by their user at unix:{socket}")
                }
                _ => String::new(),
            };
            let text = format!("tenant {tenant} may use no device of this service{by}{advice}");
            return Err(Refusal { code: "no_device", text });
        }
        let places = devices.iter().map(|id| Place::Device(*id)).chain([Place::Tenant(grant.account().clone())]);
        let limited = broker.admission.is_limited(&policy, places);
        let limits = Limits {
            longest_idle: grant.longest_idle.value,
            commands: grant.commands.value.map_or(u32::MAX, NonZeroU32::get),
            longest_build: grant.longest_build.value,
            longest_kernel: grant.longest_kernel.value,
            overrun_ends: grant.kernel_overrun.value == Overrun::End,
        };
        let memory = memory::limits(&grant, narrowed, &devices, &broker.offer);
        let account = grant.account().clone();
        Ok(Admitted { identity: identity.clone(), account, devices, limits, memory, limited })
    }
}

/// Gives the connection to the session that it belongs to.
fn join(broker: &Broker, arrival: Arrival, peer: &str, wanted: &Join) {
    let (session, link) = (wanted.session, arrival.link());
    match broker.sessions.join(wanted, arrival.stream) {
        Ok(()) => debug!(session, peer, stream = wanted.stream, "a stream joins the session"),
        Err((stream, reason)) => {
            let refused = broker.counters.failed(Failure::Join);
            warn!(session, peer, %reason, refused, "a stream may not join");
            let refusal = Refusal { code: "join", text: reason.to_string() };
            let subject = Subject { peer, link, identity: None, program: None };
            broker.audit.write(Wanted::Stream, &subject, Outcome::Refused(&refusal), &broker.offer);
            refuse(stream, &reason.to_string(), broker.settings.handshake_timeout);
        }
    }
}

/// Gives the connection to the session that has lost one.
fn resume(broker: &Broker, stream: Stream, peer: &str, wanted: &Resume) {
    let session = wanted.session;
    match broker.sessions.resume(wanted, stream) {
        Ok(()) => debug!(session, peer, stream = wanted.stream, "a driver resumes its session"),
        Err(stream) => {
            debug!(session, peer, "a driver cannot resume its session, which has ended");
            answer_not_resumed(&stream, "the session has ended", false);
        }
    }
}

/// A session that has been entered.
struct Conversation<'b> {
    broker: &'b Broker,
    identity: Identity,
    account: Tenant,
    limited: bool,
    begin: Begin,
    secret: [u8; 16],
    joins: Arc<Joins>,
    /// The program, as it says.
    pid: u32,
}

impl Conversation<'_> {
    /// Welcomes, waits for the first request, and leaves the rest to a worker. Both results say how the session ended; an
    /// error is one that an operator may want to know about.
    fn hold(self, stream: Stream, read: Instant, subject: &Subject<'_>) -> Result<String, String> {
        let Conversation { broker, identity, account, limited, begin, secret, joins, pid } = self;
        let tenant = identity.tenant;
        let narrows = identity.claims.is_some();
        let session = begin.session;
        let timeout = broker.settings.handshake_timeout;
        let failed = |error: io::Error| error.to_string();
        let mut sender = FrameSender::new(stream.try_clone().map_err(failed)?);
        stream.set_send_timeout(Some(timeout)).map_err(failed)?;
        let policy = broker.rules.current();
        let by_load = policy.for_devices().order.value == DeviceOrder::Load;
        let loads = broker.admission.loads(&policy, &begin.devices);
        let mut platforms = broker.offer.with_devices(&begin.devices);
        if by_load {
            broker.placement.order(&mut platforms, &loads, pid, Instant::now());
        }
        let (heartbeat_ms, grace_ms) = begin.terms.millis();
        let seen_at = stream.peer().map_or_else(|_| String::new(), |peer| peer.to_string());
        let mut welcome = Welcome {
            session,
            secret,
            version: env!("CARGO_PKG_VERSION"),
            node: &broker.node,
            node_address: broker.settings.node_address.as_deref().unwrap_or_default(),
            socket: &broker.socket,
            instance: broker.instance,
            boot_id: broker.boot_id,
            seen_at: &seen_at,
            took_ns: 0,
            compression: begin.compression,
            heartbeat_ms,
            grace_ms,
            tenant: tenant.as_str(),
            limited,
            memory: begin.memory.iter().map(told).collect(),
            by_load,
            loads,
            platforms,
        };
        welcome.took_ns = u64::try_from(read.elapsed().as_nanos()).unwrap_or(u64::MAX);
        sender.send(&welcome, &[]).map_err(failed)?;
        let half_open = broker.half_open.enter(session, &tenant, &broker.sessions);
        let lasts = match wait_for_request(&stream, &mut sender, timeout) {
            Ok(First::Request) => false,
            Ok(First::Lasting) => true,
            Ok(First::Left) => return Ok("driver closed the connection".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok("connection reset".to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        drop(half_open);
        stream.set_send_timeout(None).map_err(failed)?;
        drop(sender);
        broker.counters.round_trip(round_trip(&stream));
        // Not before: those who only look use nothing up.
        if let Err(error) = identity.claims.map_or(Ok(()), |claims| broker.token_uses.use_once_more(&claims)) {
            // Somebody else has used it since this one was let in.
            let refusal = Refusal::from(error);
            broker.counters.failed(Failure::Credential);
            broker.audit.write(Wanted::Session, subject, Outcome::Refused(&refusal), &broker.offer);
            broker.sessions.hand_over(session);
            farewell::close(stream, &refusal.text, true);
            return Err(format!("refused: {}", refusal.text));
        }
        // Held until the worker has ended.
        let claim = broker.admission.claim(vec![Place::Tenant(account)]).map_err(failed)?;
        let began = Instant::now();
        let driver = Driver { stream: &stream, returns: lasts.then_some(&joins) };
        let room = await_room(claim, driver, session, &tenant);
        broker.accounts.waited(&tenant, began.elapsed(), !matches!(room, Err(NoRoom::Refused(_))));
        let _room = match room {
            Ok(claim) => claim,
            Err(NoRoom::Left) => return Ok("driver closed the connection while it waited for room".to_owned()),
            Err(NoRoom::Refused(reason)) => {
                broker.sessions.hand_over(session);
                farewell::close(stream, &reason, true);
                return Err(format!("refused: {reason}"));
            }
        };
        if let Some(reason) = broker.drain.refusal() {
            broker.sessions.hand_over(session);
            farewell::close(stream, reason, true);
            return Ok("refused: the service is draining".to_owned());
        }
        // What a token of ours allows does not change with the policy.
        if !narrows {
            broker.memory.follow(session, &tenant);
        }
        launch::work(broker, &begin, &tenant, launch::Socket { stream, lasts }, &joins)
    }
}

/// What a driver gets to know of a limit. Where sessions are moved to make room, it need not wait for the worker's word.
fn told(limit: &MemoryLimit) -> DeviceMemory {
    DeviceMemory { device: limit.device, most: limit.most, shared: limit.together.is_some() && !limit.moves }
}

/// Why a session has no place.
enum NoRoom {
    Left,
    Refused(String),
}

/// A driver that waits.
struct Driver<'s> {
    stream: &'s Stream,
    /// Where it comes back, if it does so when it has lost its connection.
    returns: Option<&'s Joins>,
}

/// How long a driver may take to come back.
const RETURN: Duration = Duration::from_secs(5);

/// Waits for its turn, as long as the policy says and the driver is there.
fn await_room<'b>(
    mut claim: Claim<'b>,
    driver: Driver<'_>,
    session: u64,
    tenant: &Tenant,
) -> Result<Claim<'b>, NoRoom> {
    if claim.is_admitted() {
        return Ok(claim);
    }
    info!(session, %tenant, at_most = ?claim.patience().unwrap_or_default(), "session waits for room");
    let mut gone: Option<Instant> = None;
    let mut is_back = false;
    while let Some(left) = claim.patience() {
        let left = gone.map_or(left, |gone| left.min(RETURN.saturating_sub(gone.elapsed())));
        let left = Timespec::try_from(left).unwrap_or_default();
        // Errors and hang-ups are reported unasked.
        let mut polled = vec![PollFd::new(&claim, PollFlags::IN)];
        match (gone, driver.returns) {
            _ if is_back => {}
            (Some(_), Some(returns)) => polled.push(PollFd::new(returns, PollFlags::IN)),
            _ => polled.push(PollFd::new(driver.stream, PollFlags::RDHUP)),
        }
        match poll(&mut polled, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(NoRoom::Refused(format!("cannot wait for room: {error}"))),
        }
        let something = polled.get(1).is_some_and(|polled| !polled.revents().is_empty());
        match gone {
            None if something && driver.returns.is_some() => gone = Some(Instant::now()),
            None if something => return Err(NoRoom::Left),
            None => {}
            // Its worker will see to it.
            Some(_) if something => (gone, is_back) = (None, true),
            Some(since) if since.elapsed() >= RETURN => return Err(NoRoom::Left),
            Some(_) => {}
        }
        if claim.is_admitted() {
            return Ok(claim);
        }
    }
    Err(NoRoom::Refused(claim.refusal()))
}

pub(crate) fn refuse(stream: Stream, reason: &str, timeout: Duration) {
    // A refusal that does not arrive changes nothing.
    let _ = stream.set_send_timeout(Some(timeout));
    let _ = FrameSender::new(stream).send(&Refused { reason, protocol: PROTOCOL_VERSION }, &[]);
}

fn keep_alive(stream: &Stream) {
    // Unix sockets have no such options, and need none.
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(30));
    let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10));
    let _ = sockopt::set_tcp_keepcnt(stream, 3);
}
