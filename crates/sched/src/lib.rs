//! Whose turn it is on a device that several sessions share.
//!
//! One [`Scheduler`] stands for one device. It is told which sessions have something to run
//! ([`Scheduler::wants`]) and how much device time their commands took ([`Scheduler::charge`],
//! [`Scheduler::done`]); [`Scheduler::next`] says who may submit, and for how much device time. Tenants
//! get the device in proportion to their weights, hold to their caps, and go before others by level.
//! A session that nobody competes with runs without limit. `docs/scheduling.md` explains how.
//!
//! This crate has no threads, does no I/O and reads no clock: time comes in as an argument. No sequence
//! of calls makes it panic; sessions it does not know are passed over.
#![forbid(unsafe_code)]

mod bucket;
mod choice;
mod scheduler;
mod settings;
mod share;
mod tenant;
mod virtual_time;

pub use scheduler::{Decision, Rest, Scheduler, SessionId, TenantId, Turn};
pub use settings::Settings;
pub use share::{Cap, Share};
pub use tenant::{Usage, Waits};
