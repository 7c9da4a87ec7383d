//! Addresses, sockets and frames. Knows how bytes travel, not what they mean in OpenCL.
//!
//! Connections that leave the machine are encrypted: `tls.rs` makes the handshake, `record.rs` seals and opens what follows.
//!
//! Sending uses `sendmsg` with MSG_NOSIGNAL throughout: std's `write_vectored` would end the host
//! program with SIGPIPE when the peer has gone away, and its signal handlers are not ours to change.
#![forbid(unsafe_code)]

mod address;
mod bell;
mod compress;
mod decision;
mod deferred;
mod idle;
mod jobs;
mod lasting;
mod line;
mod link;
mod listener;
mod node;
mod receive;
mod record;
mod send;
mod shared;
mod stream;
#[cfg(test)]
mod testing;
mod tls;

pub use address::{Address, AddressError, Security};
pub use bell::Bell;
pub use compress::Compressor;
pub use deferred::{Coming, Deferred, Due};
pub use idle::{Idle, LearningSpin, Sleep, Spin, processors, processors_are_few};
pub use jobs::StreamJobs;
pub use lasting::{Cause, Health, Home, Lasting, MAIN_LINE, Terms, Transport, answer_not_resumed};
pub use line::Line;
pub use link::{accept, begin_to_last, join, share_memory};
pub use listener::Listener;
pub use node::{boot_id, host_name, random_number, random_secret};
pub use receive::{Frame, FrameReceiver, Payload, Progress, ReceiveError};
pub use send::FrameSender;
pub use stream::{ConnectError, Redial, Stream};
pub use telecl_wire::handshake::Compression;
pub use tls::{Accepted, Authority, Certificate, ClientCertificate, Dialer, TlsError, TlsServer};

pub use telecl_shm::{ReceivedSlot, Slot, SlotPool};
pub use telecl_wire::MAX_STREAMS;
