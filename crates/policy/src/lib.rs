//! Who may use how much of a service's devices.
//!
//! A policy is one TOML file: `[defaults]`, and `[[tenant]]` rules of which the first that matches a tenant's
//! name counts. [`Policy::for_tenant`] says what a tenant gets, and where each value comes from;
//! [`Policy::for_device`] what a device takes; [`Policy::tenant_of_user`] whose a local session is.
//! `docs/policy.md` lists every key.
//!
//! A file is right or wrong as a whole, and every problem names the file, the line, the key, the value and what
//! to write instead. This crate decides nothing while commands run and prints nothing; the service enforces.
#![forbid(unsafe_code)]

mod check;
mod device;
mod glob;
mod grant;
mod policy;
mod problem;
mod quantity;
mod reader;
mod tenant;
mod value;

pub use device::{DeviceFacts, DevicePattern, Devices};
pub use grant::{DeviceGrant, Grant, Granted, Origin, Row};
pub use policy::{DeviceRule, Policy, TenantRule};
pub use problem::{PolicyError, Problem, Severity};
pub use quantity::{Percent, parse_size, parse_time, show_size};
pub use tenant::{Tenant, TenantError};
pub use value::{DeviceOrder, Memory, Overrun, Plain, Priority};
