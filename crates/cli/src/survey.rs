//! Asking services what they offer, and how far away they are.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use telecl_identity::IntroduceError;
use telecl_net::{Address, ConnectError, Frame, FrameReceiver, FrameSender, Progress, ReceiveError};
use telecl_opencl::info;
use telecl_sys::*;
use telecl_wire::PROTOCOL_VERSION;
use telecl_wire::handshake::{Compression, Handshake, Hello, MAGIC, Ping, Welcome};
use telecl_wire::info::Info;

use crate::credentials;

/// How often the distance is measured; the shortest counts, for it has the least waiting in it.
const PINGS: u64 = 3;

/// What a service answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) address: Address,
    pub(crate) node: String,
    pub(crate) version: String,
    pub(crate) round_trip: Duration,
    pub(crate) same_node: bool,
    /// Whom the service takes us for.
    pub(crate) tenant: String,
    pub(crate) devices: Vec<Device>,
}

/// A device as a table shows it.
#[derive(Debug)]
pub(crate) struct Device {
    /// The service's number for it.
    pub(crate) number: u64,
    pub(crate) platform: String,
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) memory: u64,
    pub(crate) compute_units: u64,
    pub(crate) version: String,
    /// Sessions that use it, and how many may.
    pub(crate) sessions: u32,
    pub(crate) most_sessions: Option<u32>,
}

/// A service that gave no answer.
#[derive(Debug)]
pub(crate) struct Silence {
    pub(crate) address: Address,
    pub(crate) reason: String,
    pub(crate) advice: String,
}

/// Asks all services at once; the answers come in the order of `addresses`.
pub(crate) fn ask_all(addresses: &[Address], timeout: Duration) -> Vec<Result<Answer, Silence>> {
    each(addresses, timeout, ask)
}

/// Has all services asked at once by `ask`; what it returns comes in the order of `addresses`.
pub(crate) fn each<T: Send + 'static>(
    addresses: &[Address],
    timeout: Duration,
    ask: fn(&Address, Duration) -> Result<T, Silence>,
) -> Vec<Result<T, Silence>> {
    // Resolving a name cannot be interrupted, so each service has a thread that may be left behind.
    let asked: Vec<_> = addresses
        .iter()
        .map(|address| {
            let (sender, receiver) = mpsc::channel();
            let asked = address.clone();
            let started = thread::Builder::new().name("telecl-ask".into()).spawn(move || {
                // The receiver has gone if this took too long.
                let _ = sender.send(ask(&asked, timeout));
            });
            (address, started.map(|_| receiver))
        })
        .collect();
    let deadline = Instant::now() + timeout + Duration::from_millis(500);
    asked
        .into_iter()
        .map(|(address, receiver)| match receiver {
            Ok(receiver) => receiver
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
                .unwrap_or_else(|_| Err(silence(address, format!("no answer within {timeout:?}"), &slow(address)))),
            Err(error) => Err(silence(address, format!("cannot start a thread: {error}"), "Try again")),
        })
        .collect()
}

/// Introduces itself to one service and measures the round trip: the shortest counts.
fn ask(address: &Address, timeout: Duration) -> Result<Answer, Silence> {
    let (mut answer, mut link) = greet(address, timeout)?;
    for number in 0..PINGS {
        answer.round_trip = answer.round_trip.min(link.ping(number)?);
    }
    Ok(answer)
}

/// The mean of `count` round trips to a service.
pub(crate) fn round_trip(address: &Address, count: u32, timeout: Duration) -> Result<Duration, Silence> {
    let (_, mut link) = greet(address, timeout)?;
    link.ping(0)?;
    let start = Instant::now();
    for number in 0..count {
        link.ping(number.into())?;
    }
    Ok(start.elapsed() / count.max(1))
}

/// A connection to a service that has answered.
struct Link<'a> {
    address: &'a Address,
    timeout: Duration,
    sender: FrameSender,
    receiver: FrameReceiver,
}

impl Link<'_> {
    /// One round trip.
    fn ping(&mut self, number: u64) -> Result<Duration, Silence> {
        let start = Instant::now();
        self.sender.send(&Ping { number }, &[]).map_err(|error| lost(self.address, &error))?;
        match receive(&mut self.receiver, self.address, self.timeout)? {
            Handshake::Pong(pong) if pong.number == number => Ok(start.elapsed()),
            other => Err(silence(self.address, format!("answered Ping with {}", other.name()), &restart())),
        }
    }
}

/// Introduces itself to one service.
fn greet(address: &Address, timeout: Duration) -> Result<(Answer, Link<'_>), Silence> {
    let start = Instant::now();
    let credentials = credentials::load(address)?;
    let stream =
        credentials.dialer().connect(address, start + timeout).map_err(|error| unreachable(address, &error))?;
    let connect = start.elapsed();
    let lost = |error: std::io::Error| lost(address, &error);
    stream.set_receive_timeout(Some(timeout)).map_err(lost)?;
    stream.set_send_timeout(Some(timeout)).map_err(lost)?;
    let presented = credentials.present(&stream).map_err(lost)?;
    let mut sender = FrameSender::new(stream.try_clone().map_err(lost)?);
    let mut receiver = FrameReceiver::new(stream);

    let hello = Hello {
        magic: MAGIC,
        protocol: PROTOCOL_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        program: "telecl",
        pid: std::process::id(),
        compression: Compression::Off,
        credential: presented.credential.clone(),
    };
    let start = Instant::now();
    let introduced = presented.introduce(&hello, &mut sender, &mut receiver);
    let answer = match answer(introduced, &mut receiver, address, timeout)? {
        Handshake::Welcome(welcome) => {
            let greeting = start.elapsed().saturating_sub(Duration::from_nanos(welcome.took_ns));
            // Connecting over TCP is a round trip of the network. A Unix socket connects without its peer.
            let distance = if matches!(address, Address::Tcp { .. }) { connect.min(greeting) } else { greeting };
            describe(address, &welcome, distance)
        }
        other => return Err(unexpected(address, "Hello", &other)),
    };
    Ok((answer, Link { address, timeout, sender, receiver }))
}

/// A service that refuses, or says what does not belong here.
pub(crate) fn unexpected(address: &Address, asked: &str, answer: &Handshake<'_>) -> Silence {
    let Handshake::Refused(refused) = answer else {
        return silence(address, format!("answered {asked} with {}", answer.name()), &restart());
    };
    let advice = if refused.protocol == PROTOCOL_VERSION {
        "Ask whoever runs that service".to_owned()
    } else {
        format!(
            "It speaks protocol {}, this telecl speaks {PROTOCOL_VERSION}: install the same version on both sides",
            refused.protocol
        )
    };
    silence(address, format!("refused: {}", refused.reason), &advice)
}

/// What a service says to the first words.
pub(crate) fn answer<'r>(
    introduced: Result<Progress, IntroduceError>,
    receiver: &'r mut FrameReceiver,
    address: &Address,
    timeout: Duration,
) -> Result<Handshake<'r>, Silence> {
    match introduced {
        Ok(Progress::Ready) => understood(Ok(Some(receiver.frame())), address, timeout),
        Ok(_) => understood(Ok(None), address, timeout),
        Err(IntroduceError::Receive(error)) => understood(Err(error), address, timeout),
        Err(error) => Err(silence(address, error.to_string(), "Ask whoever runs that service for its secret file")),
    }
}

pub(crate) fn receive<'r>(
    receiver: &'r mut FrameReceiver,
    address: &Address,
    timeout: Duration,
) -> Result<Handshake<'r>, Silence> {
    understood(receiver.next_frame(), address, timeout)
}

fn understood<'r>(
    received: Result<Option<Frame<'r>>, ReceiveError>,
    address: &Address,
    timeout: Duration,
) -> Result<Handshake<'r>, Silence> {
    match received {
        Ok(Some(frame)) if Handshake::OPCODES.contains(&frame.opcode) => Handshake::decode(frame.opcode, frame.body)
            .map_err(|error| silence(address, format!("broke the protocol: {error}"), &other_program())),
        Ok(Some(frame)) => {
            Err(silence(address, format!("sent message {} out of turn", frame.opcode), &other_program()))
        }
        Ok(None) => Err(silence(address, "closed the connection".to_owned(), &other_program())),
        Err(ReceiveError::Io(error)) if is_timeout(&error) => {
            Err(silence(address, format!("no answer within {timeout:?}"), &slow(address)))
        }
        Err(ReceiveError::Io(error)) => Err(silence(address, format!("connection failed: {error}"), &other_program())),
        Err(ReceiveError::Protocol(error)) => {
            Err(silence(address, format!("is not a telecl service ({error})"), &other_program()))
        }
    }
}

/// What the tenant may use of a device's memory.
fn most_memory(welcome: &Welcome<'_>, device: u64) -> u64 {
    welcome.memory.iter().find(|limit| limit.device == device).map_or(u64::MAX, |limit| limit.most)
}

fn describe(address: &Address, welcome: &Welcome<'_>, round_trip: Duration) -> Answer {
    let boot_id = telecl_net::boot_id();
    let devices = welcome.platforms.iter().flat_map(|platform| {
        let platform_name = text(&platform.info, CL_PLATFORM_NAME);
        platform.devices.iter().map(move |device| {
            let load = welcome.loads.iter().find(|load| load.device == device.id);
            Device {
                number: device.id,
                platform: platform_name.clone(),
                name: text(&device.info, CL_DEVICE_NAME),
                kind: kind(number(&device.info, CL_DEVICE_TYPE)),
                memory: number(&device.info, CL_DEVICE_GLOBAL_MEM_SIZE).min(most_memory(welcome, device.id)),
                compute_units: number(&device.info, CL_DEVICE_MAX_COMPUTE_UNITS),
                version: text(&device.info, CL_DEVICE_VERSION),
                sessions: load.map_or(0, |load| load.sessions),
                most_sessions: load.map(|load| load.most).filter(|most| *most > 0),
            }
        })
    });
    Answer {
        address: address.clone(),
        node: printable(welcome.node),
        version: printable(welcome.version),
        round_trip,
        same_node: boot_id != [0; 16] && welcome.boot_id == boot_id,
        tenant: printable(welcome.tenant),
        devices: devices.collect(),
    }
}

fn value<'i>(list: &'i [Info<'_>], param: u32) -> Option<&'i [u8]> {
    list.iter().find(|info| info.param == param && info.status == CL_SUCCESS).map(|info| info.value)
}

fn text(list: &[Info<'_>], param: u32) -> String {
    printable(&info::string(value(list, param).unwrap_or_default()))
}

fn number(list: &[Info<'_>], param: u32) -> u64 {
    value(list, param).and_then(info::number).unwrap_or_default()
}

/// Names come from the other side and go to a terminal: no escape sequences, no line breaks.
pub(crate) fn printable(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn kind(bits: u64) -> &'static str {
    match bits {
        bits if bits & CL_DEVICE_TYPE_GPU != 0 => "GPU",
        bits if bits & CL_DEVICE_TYPE_ACCELERATOR != 0 => "accelerator",
        bits if bits & CL_DEVICE_TYPE_CPU != 0 => "CPU",
        bits if bits & CL_DEVICE_TYPE_CUSTOM != 0 => "custom",
        _ => "unknown",
    }
}

pub(crate) fn silence(address: &Address, reason: String, advice: &str) -> Silence {
    Silence { address: address.clone(), reason: printable(&reason), advice: advice.to_owned() }
}

pub(crate) fn unreachable(address: &Address, error: &ConnectError) -> Silence {
    match error {
        ConnectError::Resolve { cause, .. } => {
            silence(address, format!("the name cannot be resolved: {cause}"), "Check the host name for typing errors")
        }
        ConnectError::Unreachable { cause, .. } if is_timeout(cause) => {
            silence(address, "no answer in time".to_owned(), &slow(address))
        }
        ConnectError::Tls { cause, .. } if cause.is_timeout() => {
            silence(address, "no TLS handshake in time".to_owned(), &slow(address))
        }
        ConnectError::Tls { cause, .. } => {
            silence(address, format!("no TLS: {cause}"), "docs/credentials.md says what each side needs")
        }
        ConnectError::Plain { .. } => silence(address, error.to_string(), ""),
        ConnectError::Unreachable { cause, .. } => {
            silence(address, cause.to_string(), &format!("Is the service running there? Start it: {}", start(address)))
        }
    }
}

pub(crate) fn lost(address: &Address, error: &std::io::Error) -> Silence {
    silence(address, format!("connection failed: {error}"), &restart())
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock)
}

fn start(address: &Address) -> String {
    format!("telecl serve --listen {address}")
}

fn slow(address: &Address) -> String {
    match address {
        Address::Tcp { port, .. } => {
            format!("Is a firewall in the way of port {port}? A longer wait may help too: --timeout 10s")
        }
        Address::Unix(_) => "The service may be stuck: restart it".to_owned(),
    }
}

fn restart() -> String {
    "Try again; if it happens again, look at the log of the service".to_owned()
}

fn other_program() -> String {
    "Does another program listen there? telecl serve listens at 127.0.0.1:7701 unless told otherwise".to_owned()
}
