//! The broker: listens, welcomes, starts workers, keeps built programs, and outlives whatever happens to them.
//!
//! Threads: the caller of [`serve`] accepts connections and looks after the policy's file; each connection has a thread of its own, which later answers
//! the connection's worker and waits for its end; a few answer requests for metrics; one takes what sensors say; the spawner starts all workers (PR_SET_PDEATHSIG fires when the
//! *thread* ends that started a process, so this one lives as long as the broker).
#![forbid(unsafe_code)]

mod accounting;
mod accounts;
mod admission;
mod cache;
mod counters;
mod farewell;
mod figures;
mod greeting;
mod http;
mod inspect;
mod launch;
mod listen;
mod mailbox;
mod memory;
mod metrics;
mod offer;
mod overview;
mod peer;
mod placement;
mod pool;
mod registry;
mod rules;
mod scratch;
mod sensors;
mod session;
mod stop;
mod turns;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use telecl_net::{Address, Compression, Terms};
use telecl_policy::PolicyError;
use tracing::{info, warn};

use self::accounting::Accounting;
use self::accounts::Accounts;
use self::admission::Admission;
use self::cache::Cache;
use self::counters::Counters;
use self::listen::Listeners;
use self::memory::Memory;
use self::offer::Offer;
use self::placement::Placement;
use self::pool::Pool;
use self::registry::Registry;
use self::rules::Rules;
use self::scratch::Scratch;
use self::sensors::Readings;
use self::stop::Signals;
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
    /// Whether bulk data is compressed on its way, if it is for us to say.
    pub compression: Compression,
    /// When a driver is taken for dead, and how long a session is kept whose connection is lost, if it is for us to say.
    pub terms: Terms,
    pub worker: WorkerCommand,
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
            compression: Compression::Auto,
            terms: Terms::default(),
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
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    #[error("cannot make a directory in {place}: {cause}; set TMPDIR to one that you may write to", place = std::env::temp_dir().display())]
    Scratch { cause: io::Error },
    #[error("cannot start what starts workers: {0}")]
    Spawner(io::Error),
    #[error("cannot start what shares devices: {0}")]
    Turns(io::Error),
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
    /// Connections that have not introduced themselves yet.
    strangers: AtomicUsize,
    started: Instant,
    counters: Counters,
    accounts: Accounts,
    accounting: Accounting,
    sensors: Arc<Readings>,
    sessions: Registry,
    pool: Pool,
    cache: Cache,
    scratch: Scratch,
}

/// Serves until SIGTERM or SIGINT, then ends the workers it started. `ready` is called once, with the real addresses,
/// when drivers can connect.
pub fn serve(settings: ServeSettings, ready: impl FnOnce(&[Address])) -> Result<(), ServeError> {
    // First, so that a wrong one costs nothing else.
    let rules = Arc::new(Rules::load(settings.policy.clone())?);
    let signals = Signals::install(rules.has_file()).map_err(ServeError::Signals)?;
    let listeners = Listeners::bind(&settings.listen, settings.local_socket)?;
    let page = settings.metrics.as_ref().map(http::Page::bind).transpose()?;
    let scratch = Scratch::new().map_err(|cause| ServeError::Scratch { cause })?;
    let offer = Arc::new(offer::take_inventory(&settings));
    let directory = settings.cache_dir.as_ref().map(|directory| directory.join("programs"));
    let broker = Arc::new(Broker {
        admission: Admission::new(Arc::clone(&rules), Arc::clone(&offer)),
        turns: Arc::new(Turns::new(offer.device_ids())),
        memory: Memory::new(&offer),
        rules,
        accounting: Accounting::new(settings.accounting.clone()),
        sensors: Arc::new(Readings::new(&settings.worker, &offer)),
        offer,
        placement: Placement::default(),
        pool: Pool::new().map_err(ServeError::Spawner)?,
        cache: Cache::new(directory.as_deref(), settings.cache_size),
        settings,
        node: telecl_net::host_name(),
        socket: listeners.socket(),
        instance: telecl_net::random_number(),
        boot_id: telecl_net::boot_id(),
        next_session: AtomicU64::new(1),
        strangers: AtomicUsize::new(0),
        started: Instant::now(),
        counters: Counters::default(),
        accounts: Accounts::default(),
        sessions: Registry::default(),
        scratch,
    });
    pool::start(&broker).map_err(ServeError::Spawner)?;
    broker.turns.start().map_err(ServeError::Turns)?;
    if let Some(page) = &page {
        page.serve(&broker).map_err(ServeError::Spawner)?;
    }
    let addresses = listeners.addresses();
    let listening = addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(" ");
    info!(
        listening,
        platforms = broker.offer.platforms.len(),
        devices = broker.offer.device_count(),
        "service started"
    );
    ready(addresses);
    let result = listeners.accept_until(
        &signals,
        |stream, peer| session::begin(&broker, stream, peer),
        |told| {
            if broker.rules.look(told) {
                broker.admission.reconsider();
                broker.turns.reconsider(&broker.rules.current());
            }
        },
    );
    // Nobody new comes in while the rest leaves.
    drop(listeners);
    drop(page);
    let left = broker.sessions.end_all();
    if left > 0 {
        warn!(sessions = left, "some sessions did not end in time");
    }
    broker.pool.stop();
    // Not left to the last thread that drops the broker: the process may end before.
    broker.scratch.remove();
    info!("service stopped");
    result.map_err(ServeError::Wait)
}
