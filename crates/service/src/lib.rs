//! The service: what `telecl serve` does on a node with accelerators.
//!
//! A *broker* process listens, welcomes drivers and tells them what the node has; it never loads a vendor's OpenCL. A
//! *worker* process per session owns the real OpenCL objects, because an OpenCL driver runs its users' code: a kernel
//! that takes the process down ends one session and nothing else. The session's socket is handed from the one to the
//! other when the first request arrives, so a program that only lists devices costs no worker. Workers are started
//! ahead, and the programs they build are kept by the broker for all sessions.
//!
//! The command line uses [`serve`], [`worker_main`], [`inventory_main`] and [`sensors_main`]; everything else is private.
#![deny(unsafe_code)]

mod board;
mod broker;
mod channel;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod process;
mod sensors;
mod turn;
mod worker;

pub use broker::{Confinement, ServeError, ServeSettings, Survival, WorkerCommand, serve};
pub use telecl_confine::{Mode, survey};
pub use worker::{Clearing, inventory_main, sensors_main, worker_main};

/// Environment variables between a broker and its children.
mod environment {
    /// Set for every child: a telecl driver that finds it offers nothing, so that no service serves itself.
    pub(crate) const INSIDE: &str = "TELECL_INSIDE_SERVICE";
    /// What a driver is configured with; not inherited by children.
    pub(crate) const SERVICES: &str = "TELECL_SERVICES";
    /// Process id of the broker.
    pub(crate) const BROKER: &str = "TELECL_BROKER";
    /// How the process is to confine itself.
    pub(crate) const PLAN: &str = "TELECL_CONFINEMENT_PLAN";
    /// The worker's own directory.
    pub(crate) const SCRATCH: &str = "TELECL_SCRATCH";
}
