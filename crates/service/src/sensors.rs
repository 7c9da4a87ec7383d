//! What devices' own sensors say, between the process that asks them and the broker: a line of JSON now and then.

use serde::{Deserialize, Serialize};

/// One device. What its sensors do not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// 32 hexadecimal digits, as OpenCL's UUID of the device; empty if there is none.
    pub(crate) uuid: String,
    /// Domain, bus and device in hexadecimal digits: `0:3b:0`.
    pub(crate) bus: String,
    pub(crate) celsius: Option<u32>,
    pub(crate) milliwatts: Option<u32>,
    pub(crate) core_mhz: Option<u32>,
    pub(crate) memory_mhz: Option<u32>,
    pub(crate) busy_percent: Option<u32>,
    pub(crate) memory_used: Option<u64>,
}

/// How a device's place on the PCI bus is written.
pub(crate) fn bus(domain: u32, bus: u32, device: u32) -> String {
    format!("{domain:x}:{bus:x}:{device:x}")
}
