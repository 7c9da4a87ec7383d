//! The broker: listens, welcomes, starts workers, keeps built programs, and outlives whatever happens to them.
//!
//! Threads: the caller of [`serve`] accepts connections and looks after the policy's file; one watches them until they have said what they are; each connection has a thread of its own, which later answers
//! the connection's worker and waits for its end; a few answer requests for metrics; one takes what sensors say; the spawner starts all workers (PR_SET_PDEATHSIG fires when the
//! *thread* ends that started a process, so this one lives as long as the broker).
#![forbid(unsafe_code)]

mod accounting;
mod accounts;
mod admission;
mod adopt;
mod audit;
mod cache;
mod confinement;
mod counters;
mod credentials;
mod drain;
mod farewell;
mod figures;
mod greeting;
mod half_open;
mod homes;
mod http;
mod inspect;
mod launch;
mod listen;
mod mailbox;
mod memory;
mod metrics;
mod offer;
mod origin;
mod overview;
mod peer;
mod placement;
mod pool;
mod records;
mod registry;
mod review;
mod room;
mod rules;
mod scratch;
mod sensors;
mod session;
mod stop;
mod token_uses;
mod turns;
mod users;

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use telecl_config::ServiceCredentialFiles;
use telecl_confine::Unconfined;
use telecl_net::{Address, Compression, Terms};
use telecl_policy::PolicyError;
use tracing::{info, warn};

use self::accounting::Accounting;
use self::accounts::Accounts;
use self::admission::Admission;
use self::audit::Audit;
use self::cache::Cache;
pub use self::confinement::Confinement;
use self::counters::Counters;
use self::credentials::Credentials;
use self::drain::{Drain, Next};
#[cfg(feature = "fuzzing")]
pub(crate) use self::greeting::introduce;
use self::half_open::HalfOpen;
use self::homes::Homes;
use self::listen::Listeners;
use self::memory::Memory;
use self::offer::Offer;
use self::placement::Placement;
use self::pool::Pool;
use self::records::Records;
use self::registry::Registry;
use self::room::{Room, Seats};
use self::rules::Rules;
use self::scratch::Scratch;
use self::sensors::Readings;
use self::stop::{Signals, Told};
use self::token_uses::TokenUses;
use self::turns::Turns;

/// What a service is told at its start.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    pub listen: Vec<Address>,
    /// Listen at a Unix socket of our own choice too, unless `listen` has one.
    pub local_socket: bool,
    /// Parts of the names of the platforms to offer, in any case; all if empty.
    pub platforms: Vec<String>,
    /// Likewise for devices.
    pub devices: Vec<String>,
    /// How long a connection may take to introduce itself.
    pub handshake_timeout: Duration,
    /// How many workers are started ahead.
    pub warm_workers: usize,
    /// Where built programs are kept; `None` keeps them in memory only.
    pub cache_dir: Option<PathBuf>,
    /// How many bytes of them.
    pub cache_size: u64,
    /// The file that says who may use how much; without one, everybody may use everything.
    pub policy: Option<PathBuf>,
    /// Where Prometheus finds metrics; nowhere if `None`.
    pub metrics: Option<Address>,
    /// The file that gets a line for each session at its end.
    pub accounting: Option<PathBuf>,
    /// What is shown to drivers, and by what they are known.
    pub credentials: ServiceCredentialFiles,
    /// Where a line goes for everybody who wants something; nowhere if `None`.
    pub audit: Option<telecl_config::Audit>,
    /// Whether bulk data is compressed on its way, if it is for us to say.
    pub compression: Compression,
    pub confinement: Confinement,
    /// How long sessions may go on when the service is told to stop.
    pub drain_grace: Duration,
    /// How sessions go on when the service does not; `None` ends them with it.
    pub survival: Option<Survival>,
    /// When a driver is taken for dead, and how long a session is kept whose connection is lost, if it is for us to say.
    pub terms: Terms,
    /// What the node is called, if not by the system's host name, and its address.
    pub node_name: Option<String>,
    pub node_address: Option<String>,
    pub worker: WorkerCommand,
}

/// How sessions outlive a service that is killed, until the next one takes them over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survival {
    /// Where the next service finds them; `None` leaves it to where the service listens.
    pub state_dir: Option<PathBuf>,
    /// How long they wait for it.
    pub grace: Duration,
}

impl ServeSettings {
    /// All devices, five seconds to say hello, no worker ahead, and no file outlives the service.
    pub fn new(listen: Vec<Address>, worker: WorkerCommand) -> ServeSettings {
        ServeSettings {
            listen,
            local_socket: true,
            platforms: Vec::new(),
            devices: Vec::new(),
            handshake_timeout: Duration::from_secs(5),
            warm_workers: 0,
            cache_dir: None,
            cache_size: 1 << 30,
            policy: None,
            metrics: None,
            accounting: None,
            credentials: ServiceCredentialFiles::default(),
            audit: None,
            compression: Compression::Auto,
            confinement: Confinement::default(),
            drain_grace: Duration::ZERO,
            survival: None,
            terms: Terms::default(),
            node_name: None,
            node_address: None,
            worker,
        }
    }
}

/// How a worker is started: it must call [`crate::worker_main`], or [`crate::inventory_main`] if the further argument
/// `--inventory` is given, or [`crate::sensors_main`] if `--sensors` is.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl WorkerCommand {
    /// This executable with the argument `worker`.
    pub fn current_executable() -> io::Result<WorkerCommand> {
        Ok(WorkerCommand { program: std::env::current_exe()?, args: vec!["worker".into()] })
    }
}

/// Why a service did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("no address to listen at; name one, for example 127.0.0.1:{}", telecl_wire::DEFAULT_PORT)]
    NoAddress,
    #[error("cannot listen at {address}: {cause}; {}", listen::advice(cause))]
    Listen { address: Address, cause: io::Error },
    #[error("cannot offer metrics at {address}: {cause}; {}", listen::advice(cause))]
    Metrics { address: Address, cause: io::Error },
    /// Its messages say what to write instead.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("workers cannot get users of their own: {0}; set worker_uids to ids that there are here and nobody uses")]
    Users(io::Error),
    /// Its message says what to do.
    #[error(transparent)]
    Unconfined(#[from] Unconfined),
    #[error("the credentials are wrong: {0}")]
    Credentials(String),
    #[error(
        "other machines can reach {address}, and {missing}. Make credentials (telecl pki init, or telecl secret create FILE \
         for jobs of one user) and name them: --certificate service.pem --key service.key --token-keys token.pub, or \
         --secret FILE; see docs/credentials.md. Those who trust everybody on that network say --insecure"
    )]
    Open { address: Address, missing: &'static str },
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    #[error("cannot make a directory in {place}: {cause}; set TMPDIR to one that you may write to", place = std::env::temp_dir().display())]
    Scratch { cause: io::Error },
    #[error("cannot keep sessions in {}: {cause}; name another directory as state_dir, or \"none\"", directory.display())]
    State { directory: PathBuf, cause: io::Error },
    #[error("cannot start what starts workers: {0}")]
    Spawner(io::Error),
    #[error("cannot start what shares devices: {0}")]
    Turns(io::Error),
    #[error("cannot start what watches new connections: {0}")]
    Room(io::Error),
    #[error("cannot wait for connections: {0}")]
    Wait(io::Error),
}

/// What the threads of a broker share.
#[derive(Debug)]
struct Broker {
    settings: ServeSettings,
    offer: Arc<Offer>,
    rules: Arc<Rules>,
    admission: Admission,
    turns: Arc<Turns>,
    placement: Placement,
    memory: Memory,
    node: String,
    /// The path of the Unix socket; empty if there is none.
    socket: String,
    /// Tells this run of the service from all others.
    instance: u64,
    boot_id: [u8; 16],
    next_session: AtomicU64,
    /// Connections that have not introduced themselves yet, and sessions that have asked for nothing.
    room: Room,
    half_open: HalfOpen,
    started: Instant,
    counters: Counters,
    accounts: Accounts,
    accounting: Accounting,
    credentials: Credentials,
    audit: Audit,
    sensors: Arc<Readings>,
    sessions: Registry,
    drain: Drain,
    pool: Pool,
    cache: Cache,
    homes: Homes,
    scratch: Scratch,
    /// What the next broker finds; `None` if sessions end with this one.
    records: Option<Records>,
    token_uses: TokenUses,
}

/// Serves until SIGTERM, and then until its sessions have ended or the time for that is over; or until SIGINT. Then ends
/// the workers it started; but at SIGUSR1 it leaves its sessions to the next service. `ready` is called once, with the real addresses,
/// when drivers can connect.
pub fn serve(settings: ServeSettings, ready: impl FnOnce(&[Address])) -> Result<(), ServeError> {
    // First, so that a wrong one costs nothing else.
    let rules = Arc::new(Rules::load(settings.policy.clone())?);
    let owner = peer::tenant_of_owner(&rules.current());
    let credentials = Credentials::load(settings.credentials.clone(), owner).map_err(ServeError::Credentials)?;
    let reloads = rules.has_file() || credentials.has_files();
    let signals = Signals::install(reloads).map_err(ServeError::Signals)?;
    let listeners = Listeners::bind(&settings.listen, settings.local_socket)?;
    listeners.check(&credentials)?;
    let page = settings.metrics.as_ref().map(http::Page::bind).transpose()?;
    let descriptors = raise_descriptors();
    let records = open_records(&settings, listeners.addresses())?;
    let mut scratch = Scratch::new(&settings.confinement).map_err(|cause| ServeError::Scratch { cause })?;
    confinement::check(&settings.confinement, &mut scratch)?;
    confinement::make_device_files(&settings.confinement);
    let offer = Arc::new(offer::take_inventory(&settings, &scratch));
    confinement::look_for_missing(&settings, &offer);
    let directory = settings.cache_dir.as_ref().map(|directory| directory.join("programs"));
    let broker = Arc::new(Broker {
        admission: Admission::new(Arc::clone(&rules), Arc::clone(&offer)),
        turns: Arc::new(Turns::new(offer.known())),
        memory: Memory::new(&offer),
        rules,
        accounting: Accounting::new(settings.accounting.clone()),
        audit: Audit::new(settings.audit.clone()),
        credentials,
        sensors: Arc::new(Readings::new(&settings.worker, &offer)),
        offer,
        placement: Placement::default(),
        pool: Pool::new().map_err(ServeError::Spawner)?,
        cache: Cache::new(directory.as_deref(), settings.cache_size),
        homes: confinement::homes(&settings.confinement, &scratch).map_err(|cause| ServeError::Scratch { cause })?,
        node: settings.node_name.clone().unwrap_or_else(telecl_net::host_name),
        settings,
        socket: listeners.socket(),
        instance: telecl_net::random_number(),
        boot_id: telecl_net::boot_id(),
        next_session: AtomicU64::new(1),
        room: Room::new(Seats::for_descriptors(descriptors)).map_err(ServeError::Room)?,
        half_open: HalfOpen::for_descriptors(descriptors),
        started: Instant::now(),
        counters: Counters::default(),
        accounts: Accounts::default(),
        sessions: Registry::default(),
        drain: Drain::new().map_err(ServeError::Signals)?,
        scratch,
        token_uses: TokenUses::open(records.as_ref().map(Records::token_uses)),
        records,
    });
    pool::start(&broker).map_err(ServeError::Spawner)?;
    broker.turns.start().map_err(ServeError::Turns)?;
    room::start(&broker).map_err(ServeError::Room)?;
    if let Some(page) = &page {
        page.serve(&broker).map_err(ServeError::Spawner)?;
    }
    // Before anybody is accepted: who names one of these sessions waits for a moment.
    adopt::adopt_all(&broker);
    let addresses = listeners.addresses();
    let listening = addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(" ");
    info!(
        listening,
        platforms = broker.offer.platforms.len(),
        devices = broker.offer.device_count(),
        "service started"
    );
    ready(addresses);
    let leaves = Cell::new(false);
    let result = listeners.accept_until(
        &signals,
        &broker.drain,
        |told| pace(&broker, told, &leaves),
        |stream, peer| broker.room.enter(&broker, stream, peer),
        || broker.room.make_room(&broker),
        |told| {
            broker.credentials.look(told);
            if broker.rules.look(told) {
                broker.admission.reconsider();
                let policy = broker.rules.current();
                broker.turns.reconsider(&policy);
                broker.memory.reconsider(&policy, &broker.offer);
            }
        },
    );
    // Nobody new comes in while the rest leaves.
    drop(listeners);
    drop(page);
    broker.room.close();
    if leaves.get() {
        broker.pool.stop();
        info!(sessions = broker.sessions.running_ids().len(), "service stopped; its sessions wait for the next one");
        return result.map_err(ServeError::Wait);
    }
    let left = broker.sessions.end_all();
    if left > 0 {
        warn!(sessions = left, "some sessions did not end in time");
    }
    broker.pool.stop();
    // Not left to the last thread that drops the broker: the process may end before.
    broker.scratch.remove();
    if let Some(records) = &broker.records {
        records.leave();
    }
    info!("service stopped");
    result.map_err(ServeError::Wait)
}

/// Has as many descriptors as the system allows, and says how many that is: each session needs some, and those who only
/// connect should not use them up.
fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised,
        Err(error) => {
            warn!(%error, "cannot raise the limit on open files; a crowd of connections may use them up");
            limit
        }
    };
    limit.current.unwrap_or(u64::MAX)
}

/// What to do after such signals: for how long to wait for connections, if at all.
fn pace(broker: &Arc<Broker>, told: Told, leaves: &Cell<bool>) -> ControlFlow<(), Option<Duration>> {
    // Who cannot leave sessions behind lets them end.
    let told = if told == Told::Leave && broker.records.is_none() { Told::Stop } else { told };
    let running = || broker.sessions.running_ids().len();
    let grace = broker.settings.drain_grace;
    if told == Told::Stop {
        info!(sessions = running(), ?grace, "told to stop: no new sessions");
    }
    match broker.drain.next(told, grace, running) {
        Next::Serve(wait) => ControlFlow::Continue(wait),
        Next::EndSessions => {
            drain::end_sessions(broker);
            ControlFlow::Continue(None)
        }
        Next::Stop => ControlFlow::Break(()),
        Next::Leave => {
            leaves.set(true);
            ControlFlow::Break(())
        }
    }
}

/// The place where the next broker finds the sessions of this one. A service that was not told of one goes on without.
fn open_records(settings: &ServeSettings, listening: &[Address]) -> Result<Option<Records>, ServeError> {
    let Some(survival) = &settings.survival else { return Ok(None) };
    let configured = survival.state_dir.as_deref();
    let Some(directory) = Records::place(configured, listening) else {
        info!("sessions end with this service: there is no runtime directory, and no state_dir is configured");
        return Ok(None);
    };
    match Records::open(&directory) {
        Ok(records) => Ok(Some(records)),
        Err(cause) if configured.is_some() => Err(ServeError::State { directory, cause }),
        Err(error) => {
            warn!(directory = %directory.display(), %error, "sessions end with this service: no place to keep them");
            Ok(None)
        }
    }
}
