//! What travels between a driver and a service.
//!
//! A link carries frames in both directions. A frame is a [`Header`], a *body* (the fields of one
//! message, little-endian, without padding) and a *payload* (bulk bytes that neither side copies on
//! the way). The driver names every object and event with a 64-bit id; requests are executed by the
//! worker in the order in which they arrive, and only those that carry a `call` number are answered
//! with a [`reply::Reply`].
//!
//! This crate does no I/O, reads no clock and makes no OpenCL call; `net` owns the sockets. A decoder
//! takes no more memory than a small multiple of the bytes it was given and never panics.
#![forbid(unsafe_code)]

mod codec;
mod header;

mod batch;
pub mod handshake;
pub mod info;
pub mod region;
pub mod reply;
pub mod request;
pub mod status;

pub use batch::{is_job, program_in_job, split_job};
pub use codec::{DecodeError, Field, Ids, Reader, decode, encode};
pub use header::{Header, MAX_BODY, MAX_PAYLOAD};
pub use request::Request;

/// Changes with every incompatible change of a message. Both sides must have the same one.
pub const PROTOCOL_VERSION: u32 = 5;

/// The port a service listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 7701;

/// Ids below this belong to the service (its root devices); ids from here on are the driver's.
pub const FIRST_DRIVER_ID: u64 = 1 << 16;

/// How many bytes of bulk data one frame carries. Large transfers are cut into such pieces, so that
/// network and device copies overlap and a small command is not stuck behind a large transfer.
pub const CHUNK: usize = 1 << 20;

/// How many further streams for bulk data a session may have.
pub const MAX_STREAMS: usize = 8;

/// A little-endian id as it stands in a frame.
pub type WireId = zerocopy::little_endian::U64;
