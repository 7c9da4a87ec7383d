//! Finding the services: connect, introduce ourselves, learn what they offer.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use telecl_config::{CredentialFiles, DriverConfig};
use telecl_identity::{CredentialError, Credentials, IntroduceError};
use telecl_net::{
    Address, Compression, ConnectError, FrameReceiver, FrameSender, Progress, ReceiveError, Terms, boot_id,
};
use telecl_wire::handshake::{DeviceLoad, Handshake, Hello, MAGIC};
use telecl_wire::info::Info;
use telecl_wire::{DecodeError, PROTOCOL_VERSION};

use super::callbacks::spawn;
use super::streams::Ticket;
use super::{Account, Agreed, Session};
use crate::log;

/// A service that answered, with what it offers.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) address: Address,
    /// What it was configured as, if that is a name with several addresses.
    pub(crate) known_as: Option<String>,
    pub(crate) name: String,
    /// Of the machine, if the service was told; else empty.
    pub(crate) node_address: String,
    pub(crate) round_trip: Duration,
    pub(crate) same_node: bool,
    /// The path of the service's Unix socket; empty if it has none.
    pub(crate) socket: String,
    /// Tells one run of a service from all others.
    pub(crate) instance: u64,
    /// Whom the service takes this program for.
    pub(crate) tenant: String,
    /// Sessions for each device, in thousandths; 0 if programs are not to spread by it.
    pub(crate) load: u64,
    pub(crate) platforms: Vec<NodePlatform>,
}

#[derive(Debug)]
pub(crate) struct NodePlatform {
    pub(crate) index: u32,
    pub(crate) info: InfoTable,
    pub(crate) devices: Vec<NodeDevice>,
}

#[derive(Debug)]
pub(crate) struct NodeDevice {
    pub(crate) id: u64,
    pub(crate) info: InfoTable,
}

/// Answers to `clGet*Info` queries that came with the handshake.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InfoTable(pub(crate) HashMap<u32, Result<Vec<u8>, i32>>);

impl InfoTable {
    pub(crate) fn new(entries: &[Info<'_>]) -> InfoTable {
        let answer = |info: &Info<'_>| if info.status == 0 { Ok(info.value.to_vec()) } else { Err(info.status) };
        InfoTable(entries.iter().map(|info| (info.param, answer(info))).collect())
    }

    pub(crate) fn bytes(&self, param: u32) -> Option<&[u8]> {
        self.0.get(&param)?.as_deref().ok()
    }

    /// A number of up to eight bytes; 0 where the vendor gives none.
    pub(crate) fn number(&self, param: u32) -> u64 {
        let bytes = self.bytes(param).unwrap_or_default();
        let mut wide = [0; 8];
        let n = bytes.len().min(8);
        wide[..n].copy_from_slice(&bytes[..n]);
        u64::from_le_bytes(wide)
    }

    /// Text without its final NUL.
    pub(crate) fn text(&self, param: u32) -> String {
        let bytes = self.bytes(param).unwrap_or_default();
        String::from_utf8_lossy(bytes.split(|&b| b == 0).next().unwrap_or_default()).into_owned()
    }
}

/// Why a service is not used.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    Connect(ConnectError),
    Receive(ReceiveError),
    Refused(String),
    /// What says who we are cannot be read.
    Credentials(CredentialError),
    /// The service cannot show who it is.
    Unproven(IntroduceError),
    Silent,
}

impl HandshakeError {
    /// Whether the user must do something about it, although other services may do.
    pub(crate) fn is_for_user(&self) -> bool {
        match self {
            HandshakeError::Refused(_) | HandshakeError::Credentials(_) | HandshakeError::Unproven(_) => true,
            HandshakeError::Connect(error) => {
                matches!(error, ConnectError::Tls { cause, .. } if !cause.is_timeout())
                    || matches!(error, ConnectError::Plain { .. })
            }
            HandshakeError::Receive(_) | HandshakeError::Silent => false,
        }
    }
}

impl std::fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HandshakeError::Connect(error) => error.fmt(f),
            HandshakeError::Receive(error) => write!(f, "it does not answer as a telecl service: {error}"),
            HandshakeError::Refused(reason) => write!(f, "it refused: {reason}"),
            HandshakeError::Credentials(error) => write!(f, "credentials cannot be used: {error}"),
            HandshakeError::Unproven(error) => error.fmt(f),
            HandshakeError::Silent => f.write_str("it did not answer in time"),
        }
    }
}

impl From<ReceiveError> for HandshakeError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Io(io)
                if matches!(io.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
            {
                HandshakeError::Silent
            }
            other => HandshakeError::Receive(other),
        }
    }
}

impl From<IntroduceError> for HandshakeError {
    fn from(error: IntroduceError) -> Self {
        match error {
            IntroduceError::Receive(error) => error.into(),
            other => HandshakeError::Unproven(other),
        }
    }
}

/// How services are asked.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) timeout: Duration,
    pub(crate) compression: Compression,
    pub(crate) credentials: CredentialFiles,
    pub(crate) node_address: Option<String>,
}

impl Asking {
    pub(crate) fn of(config: &DriverConfig) -> Asking {
        let DriverConfig { connect_timeout, compression, credentials, node_address, .. } = config.clone();
        Asking { timeout: connect_timeout, compression, credentials, node_address }
    }
}

/// Where a service is, and the name in its certificate, if the address does not say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: Address,
    pub(crate) known_as: Option<String>,
}

impl From<&Address> for Place {
    fn from(address: &Address) -> Place {
        Place { address: address.clone(), known_as: None }
    }
}

/// No name stands for more services than this.
const MOST_PLACES: usize = 64;

/// The services that an address stands for: a name may have several addresses, each of which is one. May take its time.
pub(crate) fn places(address: &Address) -> Vec<Place> {
    let alone = vec![Place::from(address)];
    let Address::Tcp { host, port, security } = address else { return alone };
    if is_numeric(address) {
        return alone;
    }
    // What cannot be resolved is an error of whoever connects.
    let Ok(found) = (host.as_str(), *port).to_socket_addrs() else { return alone };
    let mut hosts: Vec<IpAddr> = found.map(|found| found.ip()).collect();
    hosts.sort();
    hosts.dedup();
    // Of one machine, whatever its addresses are.
    if hosts.len() < 2 || hosts.iter().all(IpAddr::is_loopback) {
        return alone;
    }
    let place = |ip: IpAddr| {
        let address = Address::Tcp { host: ip.to_string(), port: *port, security: *security };
        Place { address, known_as: Some(host.clone()) }
    };
    hosts.into_iter().take(MOST_PLACES).map(place).collect()
}

/// What a service offers, and the session with it.
type Connected = (Node, Arc<Session>);

/// Connects to all services at once and waits no longer than it may for the slowest.
/// The result has the order of `addresses`.
///
/// A name with several addresses has a result for each; of those that turn out to be one service, the first counts.
pub(crate) fn connect_all(addresses: &[Address], asking: &Asking) -> Vec<(Address, Result<Connected, HandshakeError>)> {
    if let [address] = addresses {
        // No thread for the common case, unless a name must be resolved, which knows no deadline.
        if is_numeric(address) {
            return vec![(address.clone(), connect(&Place::from(address), asking))];
        }
    }
    let (results, arrivals) = mpsc::channel();
    for (number, address) in addresses.iter().enumerate() {
        let (results, address, asking) = (results.clone(), address.clone(), asking.clone());
        // A service whose thread does not start counts as one that did not answer.
        let _ = spawn("telecl-connect", 256 << 10, move || {
            let mut all = places(&address).into_iter().enumerate();
            let first = all.next();
            for (nth, place) in all {
                let (results, asking) = (results.clone(), asking.clone());
                let _ = spawn("telecl-connect", 256 << 10, move || attempt(&results, (number, nth), &place, &asking));
            }
            if let Some((nth, place)) = first {
                attempt(&results, (number, nth), &place, &asking);
            }
        });
    }
    drop(results);
    let deadline = Instant::now() + asking.timeout;
    let mut found = Vec::new();
    while let Ok(arrived) = arrivals.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        found.push(arrived);
    }
    for (number, address) in addresses.iter().enumerate() {
        if !found.iter().any(|((of, _), ..)| *of == number) {
            found.push(((number, 0), address.clone(), Err(HandshakeError::Silent)));
        }
    }
    found.sort_by_key(|(order, ..)| *order);
    let mut named: HashSet<(usize, u64)> = HashSet::new();
    found.retain(|((number, _), _, result)| match result {
        Ok((node, _)) if node.known_as.is_some() => named.insert((*number, node.instance)),
        _ => true,
    });
    found.into_iter().map(|(_, address, result)| (address, result)).collect()
}

/// Which address it is, and which of the services that stand behind it.
type Order = (usize, usize);

fn attempt(
    results: &Sender<(Order, Address, Result<Connected, HandshakeError>)>,
    order: Order,
    place: &Place,
    asking: &Asking,
) {
    // Nobody listens any more if this took too long.
    let _ = results.send((order, place.address.clone(), connect(place, asking)));
}

/// Connects to a service again that was greeted before. Behind a name it may have another address by now: then it is the
/// one on the same node.
pub(crate) fn connect_again(known: &Node, asking: &Asking) -> Result<Connected, HandshakeError> {
    let place = Place { address: known.address.clone(), known_as: known.known_as.clone() };
    let error = match connect(&place, asking) {
        Err(error) => error,
        connected => return connected,
    };
    let (Some(host), Address::Tcp { port, security, .. }) = (&known.known_as, &known.address) else {
        return Err(error);
    };
    let named = Address::Tcp { host: host.clone(), port: *port, security: *security };
    let is_same = |node: &Node| node.name == known.name && node.node_address == known.node_address;
    let found = connect_all(&[named], asking).into_iter().filter_map(|(_, result)| result.ok());
    found.into_iter().find(|(node, _)| is_same(node)).ok_or(error)
}

fn is_numeric(address: &Address) -> bool {
    match address {
        Address::Tcp { host, .. } => host.parse::<std::net::IpAddr>().is_ok(),
        Address::Unix(_) => true,
    }
}

/// Connects to one service in time and shakes hands. Credentials are read each time: they may have been renewed.
pub(crate) fn connect(place: &Place, asking: &Asking) -> Result<Connected, HandshakeError> {
    let Place { address, known_as } = place;
    let Asking { timeout, compression, ref credentials, ref node_address } = *asking;
    let credentials = Credentials::load(credentials).map_err(HandshakeError::Credentials)?;
    let begin = Instant::now();
    let deadline = begin + timeout;
    let stream =
        credentials.dialer().connect_as(address, known_as.as_deref(), deadline).map_err(HandshakeError::Connect)?;
    let connected = begin.elapsed();
    let io = |error| HandshakeError::Receive(ReceiveError::Io(error));
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_receive_timeout(Some(left)).map_err(io)?;
    let presented = credentials.present(&stream).map_err(io)?;
    let mut sender = FrameSender::new(stream.try_clone().map_err(io)?);
    let mut receiver = FrameReceiver::new(stream.try_clone().map_err(io)?);

    let hello_sent = Instant::now();
    let program = program_name();
    let hello = Hello {
        magic: MAGIC,
        protocol: PROTOCOL_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        program: &program,
        pid: std::process::id(),
        compression,
        credential: presented.credential.clone(),
    };
    if presented.introduce(&hello, &mut sender, &mut receiver)? != Progress::Ready {
        return Err(io(std::io::ErrorKind::UnexpectedEof.into()));
    }
    let (node, agreed, ticket) = {
        let frame = receiver.frame();
        let answered = hello_sent.elapsed();
        match Handshake::decode(frame.opcode, frame.body).map_err(ReceiveError::Protocol)? {
            Handshake::Welcome(welcome) => {
                let node = Node {
                    address: address.clone(),
                    known_as: known_as.clone(),
                    name: welcome.node.to_owned(),
                    node_address: welcome.node_address.to_owned(),
                    round_trip: answered
                        .saturating_sub(Duration::from_nanos(welcome.took_ns))
                        .min(connected.max(answered / 2)),
                    same_node: match node_address {
                        Some(ours) if !welcome.node_address.is_empty() => ours == welcome.node_address,
                        _ => welcome.boot_id != [0; 16] && welcome.boot_id == boot_id(),
                    },
                    socket: welcome.socket.to_owned(),
                    instance: welcome.instance,
                    tenant: welcome.tenant.to_owned(),
                    load: if welcome.by_load { mean_load(&welcome.loads) } else { 0 },
                    platforms: welcome
                        .platforms
                        .iter()
                        .map(|platform| NodePlatform {
                            index: platform.index,
                            info: InfoTable::new(&platform.info),
                            devices: platform
                                .devices
                                .iter()
                                .map(|device| NodeDevice { id: device.id, info: InfoTable::new(&device.info) })
                                .collect(),
                        })
                        .collect(),
                };
                log::debug(format_args!("{address} takes this program for tenant {}", welcome.tenant));
                let ticket = Ticket { session: welcome.session, secret: welcome.secret };
                let (compression, limited) = (welcome.compression, welcome.limited);
                // Only the end of one of the processes can cut such a connection, and nothing brings that back.
                let uncut = node.same_node && stream.is_within_loopback(welcome.seen_at);
                let terms = match uncut {
                    true => Terms::NOTHING,
                    false => Terms::from_millis(welcome.heartbeat_ms, welcome.grace_ms),
                };
                (node, Agreed { compression, terms, limited, account: Account::new(welcome.memory) }, ticket)
            }
            Handshake::Refused(refused) => {
                let mut reason = refused.reason.to_owned();
                if refused.protocol != PROTOCOL_VERSION {
                    let theirs = refused.protocol;
                    reason += &format!(" (it speaks protocol {theirs}, this driver {PROTOCOL_VERSION})");
                }
                return Err(HandshakeError::Refused(reason));
            }
            _ => return Err(ReceiveError::Protocol(DecodeError::BadValue).into()),
        }
    };
    stream.set_receive_timeout(None).map_err(io)?;
    sender.set_compression(agreed.compression);
    let session = Session::new(address.to_string(), receiver, sender, stream, ticket, agreed).map_err(io)?;
    Ok((node, session))
}

/// Sessions for each device, in thousandths.
fn mean_load(loads: &[DeviceLoad]) -> u64 {
    let sessions: u64 = loads.iter().map(|load| u64::from(load.sessions)).sum();
    sessions.saturating_mul(1000).checked_div(loads.len() as u64).unwrap_or(0)
}

fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // The accounts of a cluster are by job.
    telecl_wire::program_in_job(&name, std::env::var("SLURM_JOB_ID").ok().as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_this_machine_is_one_service_and_an_address_is_what_it_says() {
        for text in ["localhost:7701", "127.0.0.1", "[::1]:7701", "unix:/run/telecl.sock", "no-such-host.invalid:1"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(places(&address), [Place::from(&address)], "{text}");
        }
    }

    #[test]
    fn a_service_is_as_loaded_as_its_devices_are_on_average() {
        let load = |sessions| DeviceLoad { device: 1, sessions, most: 0 };
        assert_eq!(mean_load(&[]), 0);
        assert_eq!(mean_load(&[load(3), load(0)]), 1500);
        assert!(mean_load(&[0; 8].map(|_| load(8))) < mean_load(&[load(9)]));
        assert_eq!(mean_load(&[0; 3].map(|_| load(u32::MAX))), u64::from(u32::MAX) * 1000);
    }
}
