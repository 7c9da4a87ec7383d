//! A worker confines itself, as its broker has planned it, before it loads a vendor's library.

use std::{env, io};

use telecl_confine::{Plan, Report};
use tracing::{info, warn};

use super::start::die_with_broker;
use crate::environment;

/// For ever, and for all threads that come later. There must be none yet.
pub(super) fn confine() -> io::Result<Report> {
    let plan = env::var(environment::PLAN).map_err(io::Error::other)?;
    let plan: Plan = serde_json::from_str(&plan)?;
    let report = telecl_confine::apply(&plan).map_err(io::Error::other)?;
    // The kernel forgets it when a process becomes somebody else.
    die_with_broker()?;
    Ok(report)
}

/// Logs what came of it: once in the life of a service, when it asks what the node has.
pub(super) fn tell(report: &Report) {
    if report.parts.is_empty() {
        return info!("workers are not confined: whoever has a session on a CPU device can do what this user can");
    }
    let missing = report.missing();
    if !missing.is_empty() {
        warn!(missing, "workers are not fully confined; confine = \"require\" would refuse to start");
    }
    info!(%report, "workers are confined");
}
