//! Memory that processes on one node share: between driver and worker two byte rings and some slots for bulk data, and
//! between broker and worker a [`Board`] of counters.
//!
//! A [`Segment`] is one sealed memfd of [`SEGMENT`] bytes. One side creates it and passes the descriptor to the other over
//! their Unix socket. For each direction it has
//!
//! | part | size | what it is |
//! |---|---|---|
//! | control | a few cache lines | `tail`, written by the producer; `head`, written by the consumer; `sleeping`; a state for each slot |
//! | ring | [`RING`] | the stream of bytes, mapped twice back to back, so that no run of bytes is cut at its end |
//! | slots | [`SLOTS`] × [`SLOT`] | bulk data; which slot, and how much of it, the frames in the ring say |
//!
//! Control comes first in the memfd, then both rings, then all slots, and first each time what the driver fills. Every part
//! begins at a multiple of 64 KiB, the largest page of the machines we know.
//!
//! # Rules
//!
//! - **The peer may be hostile.** All of the memory can change at any time. Each side keeps its own counters in private
//!   memory and only stores them for the peer. What it loads from the peer is loaded once and checked; nonsense is
//!   [`Corrupt`], after which the link should be given up. Contents are bytes, and mean something only once they have been
//!   copied to private memory.
//! - **The memfd cannot shrink.** [`Segment::open`] insists on the seals, so no peer can make an access fail with SIGBUS.
//! - **Every `side` is the caller's own**: `endpoint(Side::Driver)` is what a driver calls.
//! - **Nobody sleeps here.** A consumer that wants to sleep calls [`Consumer::prepare_sleep`] and then waits for the
//!   doorbell, a byte on the socket; a producer calls [`Producer::needs_doorbell`] after [`Producer::publish`] and rings if
//!   told to. No wake-up is lost, but a doorbell may come late, for a sleep that was called off: whoever hears it looks
//!   at the ring and may find nothing. A producer that waits for space has no flag, and must look again by itself.
//! - **A slot has one owner.** It belongs to the [`Slot`] that its filler took, then, after [`Slot::send`], to the
//!   [`ReceivedSlot`] that the peer makes of the index, and is free when that is dropped.
//! - **A forked child does not have the memory** (MADV_DONTFORK). It must neither use nor drop anything of this crate that
//!   it inherited.

mod board;
mod mapping;
mod ring;
mod segment;
mod slots;
mod stream;

pub use board::{Board, Shape};
pub use mapping::{RING, SEGMENT, SLOT, SLOTS};
pub use ring::{Consumer, Corrupt, Producer};
pub use segment::{OpenError, Segment, Side};
pub use slots::{ReceivedSlot, Slot, SlotPool};
