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
use telecl_net::{FrameSender, Stream, answer_not_resumed};
use telecl_policy::{DeviceOrder, Origin, Overrun, Tenant};
use telecl_wire::PROTOCOL_VERSION;
use telecl_wire::handshake::{DeviceMemory, Join, Refused, Resume, Welcome};
use tracing::{debug, info, warn};

use super::accounts::Who;
use super::admission::{Claim, Place};
use super::counters::Failure;
use super::greeting::{Caller, First, Introduction, Unwelcome, read_introduction, wait_for_request};
use super::peer::{self, User};
use super::registry::Joins;
use super::{Broker, farewell, inspect, launch, memory};
use crate::channel::{Begin, Limits, MemoryLimit};
use crate::process::round_trip;

/// How many connections may be about to introduce themselves. Each costs a thread for at most the handshake timeout.
const MOST_STRANGERS: usize = 256;

/// Attends to a new connection in a thread of its own.
pub(crate) fn begin(broker: &Arc<Broker>, stream: Stream, peer: String) {
    let stranger = Stranger::new(broker);
    broker.counters.connections.fetch_add(1, Ordering::Relaxed);
    if broker.strangers.load(Ordering::Relaxed) > MOST_STRANGERS {
        warn!(peer, "connection refused: too many others have not introduced themselves");
        broker.counters.failed(Failure::Crowded);
        refuse(stream, "the service has too many connections; try again", Duration::from_millis(100));
        return;
    }
    // A peer that vanished with its node would otherwise hold its devices for ever.
    keep_alive(&stream);
    let thread = thread::Builder::new().name("telecl-session".into()).stack_size(512 << 10);
    if let Err(error) = thread.spawn(move || attend(stream, peer, stranger)) {
        warn!(%error, "cannot start a thread for a connection");
    }
}

/// Counts a connection until it has introduced itself.
struct Stranger(Arc<Broker>);

impl Stranger {
    fn new(broker: &Arc<Broker>) -> Stranger {
        broker.strangers.fetch_add(1, Ordering::Relaxed);
        Stranger(Arc::clone(broker))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.strangers.fetch_sub(1, Ordering::Relaxed);
    }
}

fn attend(stream: Stream, peer: String, stranger: Stranger) {
    let broker = Arc::clone(&stranger.0);
    let timeout = broker.settings.handshake_timeout;
    let caller = match read_introduction(&stream, timeout) {
        Ok(Introduction::Hello(caller)) => caller,
        Ok(Introduction::Join(wanted)) => return join(&broker, stream, &peer, &wanted),
        Ok(Introduction::Resume(wanted)) => return resume(&broker, stream, &peer, &wanted),
        Ok(Introduction::Inspect) => return inspect::inspect(&broker, stream),
        Ok(Introduction::EndSession(session)) => return inspect::end_session(&broker, stream, session),
        // Health checks and port scans do this all day.
        Err(reason @ Unwelcome::Left) => {
            broker.counters.failed(Failure::from(&reason));
            return debug!(peer, "connection closed without a word");
        }
        Err(reason) => {
            broker.counters.failed(Failure::from(&reason));
            warn!(peer, %reason, "connection refused");
            if reason.is_driver() {
                refuse(stream, &reason.to_string(), timeout);
            }
            return;
        }
    };
    let read = Instant::now();
    drop(stranger);
    let admitted = match Admitted::find(&broker, &stream) {
        Ok(admitted) => admitted,
        Err((tenant, reason)) => {
            broker.counters.failed(Failure::NoDevice);
            warn!(%tenant, peer, program = caller.program, pid = caller.pid, reason, "session refused");
            return refuse(stream, &reason, timeout);
        }
    };
    let (tenant, user) = (admitted.tenant.clone(), admitted.user.clone());
    let session = broker.next_session.fetch_add(1, Ordering::Relaxed);
    let entered = telecl_net::random_secret().and_then(|secret| {
        let joins = broker.sessions.enter(session, stream.try_clone()?, secret)?;
        let compression = caller.compression.and(broker.settings.compression);
        let Admitted { tenant, devices, limits, memory, limited, .. } = admitted;
        let begin = Begin { session, compression, terms: broker.settings.terms, limits, devices, memory };
        Ok(Conversation { broker: &broker, tenant, limited, begin, secret, joins, pid: caller.pid })
    });
    let conversation = match entered {
        Ok(conversation) => conversation,
        Err(error) => {
            broker.counters.failed(Failure::Unable);
            warn!(session, %tenant, %error, "cannot keep a session");
            return refuse(stream, &error.to_string(), timeout);
        }
    };
    let Caller { program, pid, version, .. } = caller;
    info!(session, %tenant, peer, program, pid, version, "session opened");
    let (begun, since) = (SystemTime::now(), read);
    let (tenant_of, program_of) = (tenant.clone(), program.clone());
    broker.accounts.open(Who { session, tenant: tenant_of, user, peer, program: program_of, pid, begun, since });
    let ended = conversation.hold(stream, read);
    // A driver that is told so may leave before its worker does, which then knows of nothing else.
    let ended = broker.sessions.is_ending(session).map_or(ended, |wish| Ok(wish.how().to_owned()));
    if let Some(seen) = broker.accounts.close(session, ended.is_ok()) {
        broker.accounting.write(&seen, &broker.offer, SystemTime::now(), &ended);
    }
    // Last: the service may stop when no session is left.
    broker.sessions.leave(session);
    let duration = read.elapsed();
    match ended {
        Ok(ended) => info!(session, %tenant, program, ?duration, ended, "session closed"),
        Err(ended) => warn!(session, %tenant, program, ?duration, ended, "session closed"),
    }
}

/// What the policy says about whoever has connected.
struct Admitted {
    tenant: Tenant,
    user: Option<User>,
    devices: Vec<u64>,
    limits: Limits,
    memory: Vec<MemoryLimit>,
    /// Whether it may have to wait, or be refused, when it wants to compute.
    limited: bool,
}

impl Admitted {
    /// An error for a tenant that may use nothing, with the reason.
    fn find(broker: &Broker, stream: &Stream) -> Result<Admitted, (Tenant, String)> {
        let policy = broker.rules.current();
        let user = peer::user_of(stream);
        let tenant = peer::tenant_of(user.as_ref(), &policy);
        let grant = policy.for_tenant(&tenant);
        let devices = broker.offer.allowed(&grant.devices.value);
        // A service without devices is no refusal: nobody has decided so.
        if devices.is_empty() && broker.offer.device_count() > 0 {
            let by = match &grant.devices.origin {
                Origin::BuiltIn => String::new(),
                origin => format!(" (devices, policy: {origin})"),
            };
            let advice = match broker.socket.as_str() {
                socket if !socket.is_empty() && !stream.is_unix() => {
                    format!("; programs on this node are known by their user at unix:{socket}")
                }
                _ => String::new(),
            };
            return Err((tenant.clone(), format!("tenant {tenant} may use no device of this service{by}{advice}")));
        }
        let places = devices.iter().map(|id| Place::Device(*id)).chain([Place::Tenant(tenant.clone())]);
        let limited = broker.admission.is_limited(&policy, places);
        let limits = Limits {
            longest_idle: grant.longest_idle.value,
            commands: grant.commands.value.map_or(u32::MAX, NonZeroU32::get),
            longest_build: grant.longest_build.value,
            longest_kernel: grant.longest_kernel.value,
            overrun_ends: grant.kernel_overrun.value == Overrun::End,
        };
        let memory = memory::limits(&grant, &devices, &broker.offer);
        Ok(Admitted { tenant, user, devices, limits, memory, limited })
    }
}

/// Gives the connection to the session that it belongs to.
fn join(broker: &Broker, stream: Stream, peer: &str, wanted: &Join) {
    let session = wanted.session;
    match broker.sessions.join(wanted, stream) {
        Ok(()) => debug!(session, peer, stream = wanted.stream, "a stream joins the session"),
        Err((stream, reason)) => {
            let refused = broker.counters.failed(Failure::Join);
            warn!(session, peer, %reason, refused, "a stream may not join");
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
    tenant: Tenant,
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
    fn hold(self, stream: Stream, read: Instant) -> Result<String, String> {
        let Conversation { broker, tenant, limited, begin, secret, joins, pid } = self;
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
        let mut welcome = Welcome {
            session,
            secret,
            version: env!("CARGO_PKG_VERSION"),
            node: &broker.node,
            socket: &broker.socket,
            instance: broker.instance,
            boot_id: broker.boot_id,
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
        let lasts = match wait_for_request(&stream, &mut sender, timeout) {
            Ok(First::Request) => false,
            Ok(First::Lasting) => true,
            Ok(First::Left) => return Ok("driver closed the connection".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok("connection reset".to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        stream.set_send_timeout(None).map_err(failed)?;
        drop(sender);
        broker.counters.round_trip(round_trip(&stream));
        // Held until the worker has ended.
        let claim = broker.admission.claim(vec![Place::Tenant(tenant.clone())]).map_err(failed)?;
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
