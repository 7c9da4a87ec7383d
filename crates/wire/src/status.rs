//! What a service tells those who look after it: its devices, tenants and sessions, at one moment.

use crate::codec::{bodies, byte_enums};
use crate::handshake::Credential;

byte_enums! {
    /// How far a session is.
    pub enum Stage {
        /// It has greeted, and asked for nothing else.
        Connected = 0,
        /// It has a worker.
        Working = 1,
    }

    /// What is to become of a service.
    pub enum DrainMode {
        /// It takes no new sessions, and stops when none is left.
        Stop = 0,
        /// It takes no new sessions, and stays.
        Keep = 1,
        /// It takes new sessions again.
        Undo = 2,
    }
}

bodies! {
    /// The first words of somebody who wants to know how the service is. Answered by [`Status`], or by
    /// [`Refused`](crate::handshake::Refused) and the end.
    pub struct Inspect<'a> {
        pub magic: [u8; 8],
        pub protocol: u32,
        pub credential: Credential<'a>,
    }

    /// The first words of somebody who wants a session to end. Answered by [`SessionEnded`], or by
    /// [`Refused`](crate::handshake::Refused) and the end.
    pub struct EndSession<'a> {
        pub magic: [u8; 8],
        pub protocol: u32,
        pub session: u64,
        pub credential: Credential<'a>,
    }

    /// The session is gone.
    pub struct SessionEnded {
        pub session: u64,
    }

    /// The first words of somebody who wants the service to take no new sessions, or to take some again. Answered by
    /// [`DrainProgress`] again and again until nothing is left to wait for, or by
    /// [`Refused`](crate::handshake::Refused) and the end.
    pub struct Drain {
        pub magic: [u8; 8],
        pub protocol: u32,
        pub mode: DrainMode,
        /// How long sessions may go on, in milliseconds; without it, as long as the service is configured for.
        pub grace_ms: Option<u64>,
    }

    /// How far it is.
    pub struct DrainProgress {
        /// That still run.
        pub sessions: u32,
        /// After so many milliseconds those that are left are ended.
        pub left_ms: u64,
        /// Whether the service takes no new sessions.
        pub draining: bool,
        /// Nothing more will be said.
        pub done: bool,
    }

    /// Everything that whoever asked may see. Times are in nanoseconds, sizes in bytes; counters only grow.
    pub struct Status<'a> {
        pub version: &'a str,
        pub node: &'a str,
        /// As in [`Welcome`](crate::handshake::Welcome): where the service is known to know its users.
        pub socket: &'a str,
        pub instance: u64,
        pub boot_id: [u8; 16],
        /// Whom the service takes the asker for.
        pub tenant: &'a str,
        /// Whether that is somebody who sees everything. Others see sessions and figures of their tenant only.
        pub operator: bool,
        /// Whether it takes no new sessions.
        pub draining: bool,
        /// For how long the service has run: two answers are so far apart as their times are.
        pub uptime_ns: u64,
        pub devices: Vec<DeviceStatus<'a>>,
        pub tenants: Vec<TenantStatus<'a>>,
        pub sessions: Vec<SessionStatus<'a>>,
        /// How many more sessions there are than fit.
        pub left_out: u64,
    }

    /// A device, with the figures of all its sessions.
    pub struct DeviceStatus<'a> {
        pub id: u64,
        pub name: &'a str,
        pub platform: &'a str,
        /// All it has, what sessions use of it, and what they may use.
        pub memory: u64,
        pub used: u64,
        pub promised: u64,
        pub sessions: u32,
        pub busy_ns: u64,
        /// What its sensors say, where there are some.
        pub sensors: Option<Sensors>,
    }

    /// What a device's own sensors say; what they do not is `None`.
    pub struct Sensors {
        pub celsius: Option<u32>,
        pub milliwatts: Option<u32>,
        pub core_mhz: Option<u32>,
        pub memory_mhz: Option<u32>,
        /// Of the last moments, how many percent something ran.
        pub busy_percent: Option<u32>,
        /// Memory that is in use, by whomever.
        pub memory_used: Option<u64>,
    }

    pub struct TenantStatus<'a> {
        pub name: &'a str,
        /// That are here.
        pub sessions: u32,
        /// Sessions and contexts that found no room.
        pub refused: u64,
        pub counts: Counts,
        pub devices: Vec<DeviceUse>,
    }

    pub struct SessionStatus<'a> {
        pub id: u64,
        pub tenant: &'a str,
        /// The user at a Unix socket, if known; otherwise empty.
        pub user: &'a str,
        /// `pod` or `pod/container`, if it is known by a Kubernetes token; otherwise empty.
        pub pod: &'a str,
        pub peer: &'a str,
        pub program: &'a str,
        pub pid: u32,
        pub stage: Stage,
        pub age_ns: u64,
        pub counts: Counts,
        /// Those that it uses.
        pub devices: Vec<DeviceUse>,
    }

    /// What a session, or all sessions of a tenant, have done so far.
    pub struct Counts {
        pub bytes_in: u64,
        pub bytes_out: u64,
        pub commands: u64,
        pub failures: u64,
        pub builds: u64,
        pub cache_hits: u64,
    }

    /// … on one device.
    pub struct DeviceUse {
        pub device: u64,
        pub memory: u64,
        pub peak_memory: u64,
        pub busy_ns: u64,
        pub waited_ns: u64,
    }
}
