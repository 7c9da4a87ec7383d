//! What a service says about its devices, tenants and sessions, and how much of it happened since the time before.

use std::time::{Duration, Instant};

use serde::Serialize;
use telecl_config::{DriverConfig, ServeConfig};
use telecl_identity::{Credentials, IntroduceError, Presented};
use telecl_net::{Address, FrameReceiver, FrameSender, Stream};
use telecl_wire::PROTOCOL_VERSION;
use telecl_wire::handshake::{Handshake, MAGIC};
use telecl_wire::request::Message;
use telecl_wire::status::{self, Drain, DrainMode, DrainProgress, EndSession, Inspect, Stage, Status};

use crate::credentials;
use crate::exit::{Exit, Failure};
use crate::survey::{self, Silence};

/// A service may give a session a few seconds to end before it is killed.
const ENDING: Duration = Duration::from_secs(15);

/// One service, as it was when it answered.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Service {
    /// Where it was asked; the Unix socket of a service on this node, if that can be reached.
    #[serde(serialize_with = "as_text")]
    pub(crate) address: Address,
    pub(crate) node: String,
    pub(crate) version: String,
    /// Whom the service takes us for, and whether that is somebody who sees everything.
    pub(crate) tenant: String,
    pub(crate) operator: bool,
    /// Whether it takes no new sessions.
    pub(crate) draining: bool,
    pub(crate) uptime_seconds: f64,
    pub(crate) devices: Vec<Device>,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) sessions: Vec<Session>,
    /// Sessions that did not fit into the answer.
    pub(crate) left_out: u64,
    #[serde(skip)]
    instance: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Device {
    pub(crate) device: u64,
    pub(crate) name: String,
    pub(crate) platform: String,
    pub(crate) memory: u64,
    pub(crate) memory_used: u64,
    pub(crate) memory_promised: u64,
    pub(crate) sessions: u32,
    pub(crate) busy_seconds: f64,
    /// Of the time since the answer before, the part in which sessions had commands there.
    pub(crate) busy: Option<f64>,
    pub(crate) sensors: Option<Sensors>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sensors {
    pub(crate) celsius: Option<u32>,
    pub(crate) watts: Option<f64>,
    pub(crate) core_mhz: Option<u32>,
    pub(crate) memory_mhz: Option<u32>,
    pub(crate) utilization: Option<f64>,
    pub(crate) memory_used: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tenant {
    pub(crate) tenant: String,
    pub(crate) sessions: u32,
    pub(crate) refused: u64,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Session {
    pub(crate) session: u64,
    pub(crate) tenant: String,
    pub(crate) user: Option<String>,
    /// `pod` or `pod/container`, of a session that is known by a Kubernetes token.
    pub(crate) pod: Option<String>,
    pub(crate) peer: String,
    pub(crate) program: String,
    /// The batch job that it is part of, as it says.
    pub(crate) job: Option<String>,
    pub(crate) pid: u32,
    /// Whether it has a worker; otherwise it only looks around.
    pub(crate) working: bool,
    pub(crate) age_seconds: f64,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

/// What a session, or all of a tenant's, have come to. The last three are since the answer before.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) commands: u64,
    pub(crate) failures: u64,
    pub(crate) builds: u64,
    pub(crate) cache_hits: u64,
    pub(crate) devices: Vec<Use>,
    /// Seconds of device time per second: two devices that are busy all the time make 2.
    pub(crate) busy: Option<f64>,
    /// Likewise of waiting for a turn.
    pub(crate) waiting: Option<f64>,
    pub(crate) bytes_per_second: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Use {
    pub(crate) device: u64,
    pub(crate) memory: u64,
    pub(crate) peak_memory: u64,
    pub(crate) busy_seconds: f64,
    pub(crate) waited_seconds: f64,
}

impl Figures {
    pub(crate) fn memory(&self) -> u64 {
        self.devices.iter().fold(0, |sum, one| sum.saturating_add(one.memory))
    }

    fn busy_seconds(&self) -> f64 {
        self.devices.iter().map(|one| one.busy_seconds).sum()
    }

    fn waited_seconds(&self) -> f64 {
        self.devices.iter().map(|one| one.waited_seconds).sum()
    }

    fn bytes(&self) -> f64 {
        self.bytes_in as f64 + self.bytes_out as f64
    }

    fn since(&mut self, before: Option<&Figures>, seconds: f64) {
        // What was not there before has done all of it since.
        let rate = |now: f64, then: fn(&Figures) -> f64| Some(((now - before.map_or(0.0, then)) / seconds).max(0.0));
        self.busy = rate(self.busy_seconds(), Figures::busy_seconds);
        self.waiting = rate(self.waited_seconds(), Figures::waited_seconds);
        self.bytes_per_second = rate(self.bytes(), Figures::bytes);
    }
}

impl Service {
    /// Works out what has happened since the answer before, if that came from the same run of the service.
    pub(crate) fn since(&mut self, before: &Service) {
        let seconds = self.uptime_seconds - before.uptime_seconds;
        if before.instance != self.instance || seconds <= 0.0 {
            return;
        }
        for device in &mut self.devices {
            if let Some(then) = before.devices.iter().find(|then| then.device == device.device) {
                device.busy = Some(((device.busy_seconds - then.busy_seconds) / seconds).max(0.0));
            }
        }
        for tenant in &mut self.tenants {
            let then = before.tenants.iter().find(|then| then.tenant == tenant.tenant);
            tenant.figures.since(then.map(|then| &then.figures), seconds);
        }
        for session in &mut self.sessions {
            let then = before.sessions.iter().find(|then| then.session == session.session);
            session.figures.since(then.map(|then| &then.figures), seconds);
        }
    }

    pub(crate) fn device_name(&self, id: u64) -> &str {
        self.devices.iter().find(|device| device.device == id).map_or("", |device| &device.name)
    }
}

/// The services to look at: those of the command line, otherwise the configured ones, otherwise that of this node.
pub(crate) fn services(on: &[Address], timeout: Option<Duration>) -> Result<(Vec<Address>, Duration), Failure> {
    let config = DriverConfig::load()?;
    let timeout = timeout.unwrap_or(config.connect_timeout);
    if !on.is_empty() {
        return Ok((on.to_vec(), timeout));
    }
    if !config.services.is_empty() {
        return Ok((config.services, timeout));
    }
    let listens = ServeConfig::load()?.listen;
    let one = listens.into_iter().find(|address| !matches!(address, Address::Tcp { port: 0, .. }));
    match one {
        Some(address) => Ok((vec![address], timeout)),
        None => Err(Failure::new(Exit::Usage, "no service is configured", "Name one: --on HOST:PORT")),
    }
}

/// Asks all services at once; the answers come in the order of `addresses`.
pub(crate) fn ask_all(addresses: &[Address], timeout: Duration) -> Vec<Result<Service, Silence>> {
    survey::each(addresses, timeout, ask)
}

/// Asks one service; one on this node at its Unix socket, if that can be reached, because there it knows who we are.
fn ask(address: &Address, timeout: Duration) -> Result<Service, Silence> {
    let (service, socket) = inspect(address, timeout)?;
    if let Some(socket) = socket
        && let Ok((local, _)) = inspect(&socket, timeout)
        && local.instance == service.instance
    {
        return Ok(local);
    }
    Ok(service)
}

/// What a service says, and where else on this node it can be asked.
fn inspect(address: &Address, timeout: Duration) -> Result<(Service, Option<Address>), Silence> {
    let (credentials, stream) = open(address, timeout, timeout)?;
    let presented = credentials.present(&stream).map_err(|error| survey::lost(address, &error))?;
    let credential = presented.credential.clone();
    let inspect = Inspect { magic: MAGIC, protocol: PROTOCOL_VERSION, credential };
    let (introduced, mut receiver) = introduce(&presented, &inspect, stream, address)?;
    match survey::answer(introduced, &mut receiver, address, timeout)? {
        Handshake::Status(status) => {
            let here = telecl_net::boot_id();
            let same_node = here != [0; 16] && status.boot_id == here;
            let elsewhere = same_node && matches!(address, Address::Tcp { .. }) && !status.socket.is_empty();
            let socket = elsewhere.then(|| Address::Unix(status.socket.into()));
            Ok((own(address, &status), socket))
        }
        other => Err(survey::unexpected(address, "Inspect", &other)),
    }
}

/// Ends a session of a service that has answered before. Says what went wrong, if it has not ended.
pub(crate) fn end(address: &Address, session: u64, timeout: Duration) -> Result<(), Silence> {
    let (credentials, stream) = open(address, timeout, timeout.max(ENDING))?;
    let presented = credentials.present(&stream).map_err(|error| survey::lost(address, &error))?;
    let credential = presented.credential.clone();
    let end = EndSession { magic: MAGIC, protocol: PROTOCOL_VERSION, session, credential };
    let (introduced, mut receiver) = introduce(&presented, &end, stream, address)?;
    match survey::answer(introduced, &mut receiver, address, timeout.max(ENDING))? {
        Handshake::SessionEnded(ended) if ended.session == session => Ok(()),
        other => Err(survey::unexpected(address, "EndSession", &other)),
    }
}

/// How far a service is that takes no new sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// That still run.
    pub(crate) sessions: u32,
    /// After that, those that are left are ended.
    pub(crate) left: Duration,
    pub(crate) draining: bool,
    /// There is nothing more to wait for.
    pub(crate) done: bool,
}

/// Has a service that has answered before drain, or take sessions again, and waits for it. Says what went wrong, if it did.
pub(crate) fn drain(
    address: &Address,
    mode: DrainMode,
    grace: Option<Duration>,
    timeout: Duration,
    mut tell: impl FnMut(Progress),
) -> Result<(), Silence> {
    let grace_ms = grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
    let drain = Drain { magic: MAGIC, protocol: PROTOCOL_VERSION, mode, grace_ms };
    // It says something every second.
    let patience = timeout.max(ENDING);
    let (_, stream) = open(address, timeout, patience)?;
    let lost = |error: std::io::Error| survey::lost(address, &error);
    FrameSender::new(stream.try_clone().map_err(lost)?).send(&drain, &[]).map_err(lost)?;
    let mut receiver = FrameReceiver::new(stream);
    let mut last = None;
    loop {
        match survey::receive(&mut receiver, address, patience) {
            Ok(Handshake::DrainProgress(progress)) => {
                let DrainProgress { sessions, left_ms, draining, done } = progress;
                let progress = Progress { sessions, left: Duration::from_millis(left_ms), draining, done };
                tell(progress);
                if done {
                    return Ok(());
                }
                last = Some(progress);
            }
            Ok(other) => return Err(survey::unexpected(address, "Drain", &other)),
            // It has ended the last of them, and itself, before it could say so.
            Err(_) if mode == DrainMode::Stop && last.is_some() => {
                tell(Progress { sessions: 0, left: Duration::ZERO, draining: true, done: true });
                return Ok(());
            }
            Err(silence) => return Err(silence),
        }
    }
}

/// Connects, with what says who we are.
fn open(address: &Address, timeout: Duration, patience: Duration) -> Result<(Credentials, Stream), Silence> {
    let credentials = credentials::load(address)?;
    let deadline = Instant::now() + timeout;
    let stream =
        credentials.dialer().connect(address, deadline).map_err(|error| survey::unreachable(address, &error))?;
    let lost = |error: std::io::Error| survey::lost(address, &error);
    stream.set_receive_timeout(Some(patience)).map_err(lost)?;
    stream.set_send_timeout(Some(timeout)).map_err(lost)?;
    Ok((credentials, stream))
}

/// Sends one message, and waits for its answer.
fn introduce<'m>(
    presented: &Presented<'_>,
    message: &impl Message<'m>,
    stream: Stream,
    address: &Address,
) -> Result<(Result<telecl_net::Progress, IntroduceError>, FrameReceiver), Silence> {
    let clone = stream.try_clone().map_err(|error| survey::lost(address, &error))?;
    let (mut sender, mut receiver) = (FrameSender::new(clone), FrameReceiver::new(stream));
    let introduced = presented.introduce(message, &mut sender, &mut receiver);
    Ok((introduced, receiver))
}

/// Everything that comes from the other side and goes to a terminal is made printable here.
fn own(address: &Address, status: &Status<'_>) -> Service {
    let text = survey::printable;
    Service {
        address: address.clone(),
        node: text(status.node),
        version: text(status.version),
        tenant: text(status.tenant),
        operator: status.operator,
        draining: status.draining,
        uptime_seconds: seconds(status.uptime_ns),
        devices: status.devices.iter().map(own_device).collect(),
        tenants: status
            .tenants
            .iter()
            .map(|tenant| Tenant {
                tenant: text(tenant.name),
                sessions: tenant.sessions,
                refused: tenant.refused,
                figures: figures(&tenant.counts, &tenant.devices),
            })
            .collect(),
        sessions: status
            .sessions
            .iter()
            .map(|session| Session {
                session: session.id,
                tenant: text(session.tenant),
                user: Some(text(session.user)).filter(|user| !user.is_empty()),
                pod: Some(text(session.pod)).filter(|pod| !pod.is_empty()),
                peer: text(session.peer),
                program: text(telecl_wire::split_job(session.program).0),
                job: telecl_wire::split_job(session.program).1.map(str::to_owned),
                pid: session.pid,
                working: session.stage == Stage::Working,
                age_seconds: seconds(session.age_ns),
                figures: figures(&session.counts, &session.devices),
            })
            .collect(),
        left_out: status.left_out,
        instance: status.instance,
    }
}

fn own_device(device: &status::DeviceStatus<'_>) -> Device {
    Device {
        device: device.id,
        name: survey::printable(device.name),
        platform: survey::printable(device.platform),
        memory: device.memory,
        memory_used: device.used,
        memory_promised: device.promised,
        sessions: device.sessions,
        busy_seconds: seconds(device.busy_ns),
        busy: None,
        sensors: device.sensors.as_ref().map(|sensors| Sensors {
            celsius: sensors.celsius,
            watts: sensors.milliwatts.map(|power| f64::from(power) / 1000.0),
            core_mhz: sensors.core_mhz,
            memory_mhz: sensors.memory_mhz,
            utilization: sensors.busy_percent.map(|percent| f64::from(percent) / 100.0),
            memory_used: sensors.memory_used,
        }),
    }
}

fn figures(counts: &status::Counts, devices: &[status::DeviceUse]) -> Figures {
    let status::Counts { bytes_in, bytes_out, commands, failures, builds, cache_hits } = *counts;
    let devices = devices
        .iter()
        .map(|one| Use {
            device: one.device,
            memory: one.memory,
            peak_memory: one.peak_memory,
            busy_seconds: seconds(one.busy_ns),
            waited_seconds: seconds(one.waited_ns),
        })
        .collect();
    let (busy, waiting, bytes_per_second) = (None, None, None);
    Figures { bytes_in, bytes_out, commands, failures, builds, cache_hits, devices, busy, waiting, bytes_per_second }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn as_text<S: serde::Serializer>(address: &Address, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(address)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A service with a device, two tenants and so many sessions of each.
    pub(crate) fn example(uptime: u64, busy: u64, sessions: u64) -> Service {
        const SECOND: u64 = 1_000_000_000;
        let counts = |n: u64| status::Counts {
            bytes_in: n << 20,
            bytes_out: n << 10,
            commands: 40 * n,
            failures: 0,
            builds: 1,
            cache_hits: 2,
        };
        let uses = |n: u64| {
            vec![status::DeviceUse {
                device: 1,
                memory: n << 20,
                peak_memory: n << 21,
                busy_ns: n * SECOND,
                waited_ns: 0,
            }]
        };
        let session = |id, tenant| status::SessionStatus {
            id,
            tenant,
            user: "alice",
            pod: "train-0/main",
            peer: "10.0.0.9:1234",
            program: "hash\x1bcat",
            pid: 4711,
            stage: Stage::Working,
            age_ns: 75 * SECOND,
            counts: counts(busy),
            devices: uses(busy),
        };
        let tenant =
            |name| status::TenantStatus { name, sessions: 1, refused: 0, counts: counts(busy), devices: uses(busy) };
        let status = Status {
            version: "0.1.0",
            node: "node7",
            socket: "",
            instance: 5,
            boot_id: [0; 16],
            tenant: "user:root",
            operator: true,
            draining: false,
            uptime_ns: uptime * SECOND,
            devices: vec![status::DeviceStatus {
                id: 1,
                name: "NVIDIA H200 NVL of some length",
                platform: "NVIDIA CUDA",
                memory: 141 << 30,
                used: 35 << 30,
                promised: 70 << 30,
                sessions: 2,
                busy_ns: 2 * busy * SECOND,
                sensors: Some(status::Sensors {
                    celsius: Some(61),
                    milliwatts: Some(512_300),
                    core_mhz: Some(1980),
                    memory_mhz: None,
                    busy_percent: Some(97),
                    memory_used: None,
                }),
            }],
            tenants: vec![tenant("team-red"), tenant("team-blue")],
            sessions: (0..sessions)
                .flat_map(|n| [session(2 * n + 1, "team-red"), session(2 * n + 2, "team-blue")])
                .collect(),
            left_out: 0,
        };
        own(&Address::tcp("node7", 7701), &status)
    }

    #[test]
    fn rates_are_what_happened_since_the_answer_before() {
        let (before, mut now) = (example(10, 1, 1), example(14, 3, 2));
        assert_eq!(now.devices[0].busy, None);
        now.since(&before);
        assert_eq!(now.devices[0].busy, Some(1.0));
        assert_eq!(now.tenants[0].figures.busy, Some(0.5));
        assert_eq!(now.sessions[0].figures.bytes_per_second, Some((2.0 * 1_048_576.0 + 2.0 * 1024.0) / 4.0));
        // New since then.
        assert_eq!(now.sessions[2].figures.busy, Some(0.75));
        assert_eq!(now.sessions[0].program, "hash?cat", "nothing reaches a terminal that it would obey");
        // Another run of the service.
        let mut other = example(20, 9, 1);
        other.instance += 1;
        other.since(&now);
        assert_eq!(other.devices[0].busy, None);
    }
}
