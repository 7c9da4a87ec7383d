//! The first frames of a session.
//!
//! The driver sends [`Hello`]; the broker answers [`Welcome`] or [`Refused`]. Every other frame
//! belongs to the worker. A [`Ping`] is answered by broker and worker alike. On a further connection of the same session
//! the driver sends [`Join`], and the worker answers [`Joined`]: after that it carries payloads, and nothing else. With
//! [`Lasting`] it lets the session outlast its connections: on one that takes the place of another the driver sends
//! [`Resume`]. Those who look after a service begin with [`Inspect`] or [`EndSession`], and get one answer, or with [`Drain`].
//! Whoever wants to be known by a secret is first answered by [`Challenge`], and sends [`Response`].

use crate::codec::{bodies, byte_enums, messages};
use crate::info::Platform;
pub use crate::status::{Drain, DrainProgress, EndSession, Inspect, SessionEnded, Status};

/// First bytes of whatever a connection begins with: tells our drivers from anything else that may connect.
pub const MAGIC: [u8; 8] = *b"telecl\r\n";

byte_enums! {
    /// Whether bulk data is compressed on its way. What is sent to others is a side's wish; what both follow is what the
    /// two wishes come to.
    pub enum Compression {
        /// Where it is faster, which each sender finds out for itself.
        Auto = 0,
        Off = 1,
        /// Whatever gets shorter by it.
        Always = 2,
    }
}

impl Compression {
    /// What two wishes come to: whoever wants none gets none, and otherwise whoever insists gets it.
    #[must_use]
    pub fn and(self, other: Compression) -> Compression {
        match (self, other) {
            (Compression::Off, _) | (_, Compression::Off) => Compression::Off,
            (Compression::Always, _) | (_, Compression::Always) => Compression::Always,
            (Compression::Auto, Compression::Auto) => Compression::Auto,
        }
    }
}

byte_enums! {
    /// By what somebody wants to be known.
    pub enum CredentialKind {
        /// By the connection alone: the user at a Unix socket, or the certificate of a TLS connection.
        None = 0,
        /// By a signed token.
        Token = 1,
        /// By a secret that both sides have: answered by [`Challenge`].
        Secret = 2,
    }
}

bodies! {
    /// Who the driver wants to be known as.
    pub struct Credential<'a> {
        pub kind: CredentialKind,
        /// The token; empty for other kinds.
        pub token: &'a str,
        /// Of a secret's proof: what the service has to prove it for. Zeros for other kinds.
        pub nonce: [u8; 32],
    }

    /// The service has the secret, and wants to know whether the driver has it too.
    pub struct Challenge {
        pub nonce: [u8; 32],
        /// Of the service, for both nonces and this connection.
        pub proof: [u8; 32],
    }

    /// The driver has the secret. Answered as if it had come with the first words.
    pub struct Response {
        pub proof: [u8; 32],
    }

    /// The driver introduces itself.
    pub struct Hello<'a> {
        pub magic: [u8; 8],
        pub protocol: u32,
        /// Version of the driver, for the log.
        pub version: &'a str,
        /// Name and process id of the program, for the log.
        pub program: &'a str,
        pub pid: u32,
        /// What the driver wishes.
        pub compression: Compression,
        pub credential: Credential<'a>,
    }

    /// How many use a device.
    pub struct DeviceLoad {
        /// Its number.
        pub device: u64,
        /// Sessions that have made a context there.
        pub sessions: u32,
        /// How many there may be; 0 for any number.
        pub most: u32,
    }

    /// The service takes the session and says what it offers.
    pub struct Welcome<'a> {
        pub session: u64,
        /// Who knows it may [`Join`] the session.
        pub secret: [u8; 16],
        pub version: &'a str,
        /// Host name of the node.
        pub node: &'a str,
        /// The node's own address, where the service was told it; else empty.
        pub node_address: &'a str,
        /// Where a driver on the same node finds the service's Unix socket, if it has one; else empty.
        pub socket: &'a str,
        /// A number that only this run of the service has: whoever answers with it at `socket` is the same.
        pub instance: u64,
        /// Boot id of the node: equal on both sides means that driver and service share a kernel.
        pub boot_id: [u8; 16],
        /// Where the service sees the driver, as `address:port`; empty at a Unix socket. If it is not where the driver sees
        /// itself, somebody stands between them.
        pub seen_at: &'a str,
        /// Time the service spent between reading `Hello` and sending this; not part of the round trip.
        pub took_ns: u64,
        /// What both sides do.
        pub compression: Compression,
        /// After how many milliseconds of silence the service takes a driver for dead; 0 if it does not.
        pub heartbeat_ms: u32,
        /// For how many milliseconds the service keeps a session whose connection is lost.
        pub grace_ms: u32,
        /// Whom the session is accounted to.
        pub tenant: &'a str,
        /// Whether a context may have to wait for room, or be refused: the driver then waits for the worker's word on it.
        pub limited: bool,
        /// Whether programs are to spread by load: the devices of a platform are in that order, and of services that are
        /// equally near the one that is used least comes first.
        pub by_load: bool,
        /// Of all devices below.
        pub loads: Vec<DeviceLoad>,
        /// Of those devices whose memory is limited.
        pub memory: Vec<DeviceMemory>,
        /// Those that the tenant may use.
        pub platforms: Vec<Platform<'a>>,
    }

    /// How much of a device's memory the session may use.
    pub struct DeviceMemory {
        pub device: u64,
        /// In bytes: the driver refuses more by itself.
        pub most: u64,
        /// Whether other sessions of the tenant take from the same: there may be less than `most`, which only the service
        /// knows. The driver then waits for the worker's word on each memory object.
        pub shared: bool,
    }

    /// The service does not take the session; the connection closes after this.
    pub struct Refused<'a> {
        pub reason: &'a str,
        /// The protocol version the service speaks.
        pub protocol: u32,
    }

    /// Asks for a [`Pong`] with the same number.
    pub struct Ping {
        pub number: u64,
    }

    pub struct Pong {
        pub number: u64,
    }

    /// Comes with the descriptor of a memory segment, on a Unix socket, before all requests: from now on frames go through
    /// its rings, and the socket is left to bytes that wake the other side.
    pub struct ShareMemory {
    }

    /// The first words on a further connection: it is to carry payloads of this session. Answered by [`Joined`], or by
    /// [`Refused`] and its end.
    pub struct Join {
        pub magic: [u8; 8],
        pub protocol: u32,
        pub session: u64,
        /// From the session's [`Welcome`].
        pub secret: [u8; 16],
        /// By which number frames name the stream.
        pub stream: u32,
    }

    /// The worker has the stream. Payloads follow, in both directions.
    pub struct Joined {
        pub stream: u32,
    }

    /// Comes before all requests, over TCP: from now on bytes travel in records, in both directions, and the session
    /// outlasts its connection. On streams that join later they do so from the start.
    pub struct Lasting {
        /// What the driver makes of its own wish and what [`Welcome`] says.
        pub heartbeat_ms: u32,
        pub grace_ms: u32,
    }

    /// The first words on a connection that is to take the place of one which was lost. Answered by [`Resumed`], or by
    /// [`NotResumed`] and its end.
    pub struct Resume {
        pub magic: [u8; 8],
        pub protocol: u32,
        pub session: u64,
        /// From the session's [`Welcome`].
        pub secret: [u8; 16],
        /// Which stream of the session it was; all ones for the session's own connection.
        pub stream: u32,
        /// How many bytes of data the driver has received there.
        pub received: u64,
    }

    /// The worker goes on with the connection. Records follow, in both directions, beginning with what the other side has
    /// not received.
    pub struct Resumed {
        /// How many bytes of data the worker has received.
        pub received: u64,
    }

    /// The connection is of no use.
    pub struct NotResumed<'a> {
        pub reason: &'a str,
        /// Whether another attempt may succeed; otherwise the session has ended.
        pub again: bool,
    }
}

messages! {
    /// What passes before the worker takes over.
    pub enum Handshake<'a> {
        1 => Hello<'a>,
        2 => Welcome<'a>,
        3 => Refused<'a>,
        4 => Ping,
        5 => Pong,
        6 => ShareMemory,
        7 => Join,
        8 => Joined,
        9 => Inspect<'a>,
        10 => Status<'a>,
        11 => EndSession<'a>,
        12 => SessionEnded,
        13 => Challenge,
        14 => Response,
        15 => Drain,
        16 => DrainProgress,
        17 => Lasting,
        18 => Resume,
        19 => Resumed,
        20 => NotResumed<'a>,
    }
}

impl Credential<'_> {
    /// None but the connection.
    pub const NONE: Credential<'static> = Credential { kind: CredentialKind::None, token: "", nonce: [0; 32] };
}

#[cfg(test)]
mod tests {
    use super::Compression::{Always, Auto, Off};

    #[test]
    fn either_side_can_switch_compression_off_and_either_can_insist_on_it() {
        for (a, b, both) in
            [(Auto, Auto, Auto), (Auto, Off, Off), (Off, Always, Off), (Auto, Always, Always), (Always, Always, Always)]
        {
            assert_eq!((a.and(b), b.and(a)), (both, both), "{a:?} {b:?}");
        }
    }
}
