//! What the whole-system tests share: the C programs, the vendor's driver, a running service, and processes that are
//! waited for with a limit.
//!
//! Everything that is started here is stopped by its own handle, also when a test fails.
#![forbid(unsafe_code)]

mod artifacts;
mod bench;
mod compare;
mod http;
mod link;
mod process;
mod programs;
mod proxy;
mod service;
mod vendor;

pub use artifacts::Artifacts;
pub use bench::{Bench, SOON};
pub use compare::diff;
pub use http::{get, metric, metrics_address};
pub use link::Link;
pub use process::{Ended, Running, run, wait_until};
pub use programs::Programs;
pub use proxy::{Cut, Proxy};
pub use service::{Service, is_alive};
pub use vendor::Vendor;
