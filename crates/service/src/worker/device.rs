//! Sub-devices and the devices' clocks.

use telecl_opencl::{ClError, ClResult};
use telecl_sys::*;
use telecl_wire::FIRST_DRIVER_ID;
use telecl_wire::info;
use telecl_wire::reply::{SubDevices, Timers};
use telecl_wire::request::{CreateSubDevices, DeviceTimers};

use super::inventory::device_answers;
use super::report::DeviceIds;
use super::session::Session;

impl Session {
    pub(super) fn create_sub_devices(&mut self, request: &CreateSubDevices<'_>) {
        let made = self.make_sub_devices(request);
        self.link.answer("CreateSubDevices", request.call, &made);
    }

    fn make_sub_devices(&mut self, request: &CreateSubDevices<'_>) -> ClResult<Vec<u8>> {
        // The properties are signed in C and travel as they are.
        let properties: Vec<isize> = request.properties.iter().map(|value| value as isize).collect();
        let devices = self.devices.get(request.device)?.create_sub_devices(&properties)?;
        let room = u64::from(request.room);
        if devices.len() as u64 > room || request.first_id < FIRST_DRIVER_ID || request.first_id > u64::MAX - room {
            return Err(ClError(CL_OUT_OF_RESOURCES));
        }
        let answers: Vec<_> = (request.first_id..).zip(devices.iter().map(device_answers)).collect();
        let described = answers.iter().map(|(id, answers)| info::Device { id: *id, info: answers.wire() }).collect();
        let encoded = telecl_wire::encode(&SubDevices { devices: described });
        let root = self.root_of(request.device).unwrap_or(request.device);
        for (id, device) in (request.first_id..).zip(devices) {
            self.devices.insert(id, Ok(device));
            self.roots.insert(id, root);
        }
        Ok(encoded)
    }

    /// The root device that a device is, or is a part of.
    pub(super) fn root_of(&self, id: u64) -> Option<u64> {
        self.devices.get(id).ok()?;
        Some(self.roots.get(&id).copied().unwrap_or(id))
    }

    pub(super) fn device_timers(&self, request: &DeviceTimers) {
        let timers = self.devices.get(request.device).and_then(|device| device.device_and_host_timer());
        let timers = timers.map(|(device_ns, host_ns)| Timers { device_ns, host_ns });
        self.link.answer_with("DeviceTimers", request.call, timers);
    }

    /// All devices of the session, to find out which one a handle of the vendor's means.
    pub(super) fn device_ids(&self) -> DeviceIds {
        DeviceIds(self.devices.iter().map(|(id, device)| (id, device.clone())).collect())
    }
}
