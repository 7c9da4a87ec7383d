//! What the node has, and everything that can be asked about it in advance.

use telecl_opencl::{ClResult, Device, Library, Platform};
use telecl_sys::*;
use telecl_wire::info::{self, Info, Inventory};
use tracing::warn;

use super::params;

/// All platforms with their root devices. Devices are numbered from 1 over all platforms, so that everybody who counts
/// on this node comes to the same numbers.
pub(crate) fn enumerate(library: &'static Library) -> Vec<(Platform, Vec<(u64, Device)>)> {
    let platforms = library.platforms().unwrap_or_else(|error| {
        warn!(%error, "cannot list the platforms of this node");
        Vec::new()
    });
    let mut ids = 1..telecl_wire::FIRST_DRIVER_ID;
    let devices_of = |platform: &Platform| match platform.devices(CL_DEVICE_TYPE_ALL) {
        Ok(devices) => devices,
        Err(error) => {
            let platform = platform.info_string(CL_PLATFORM_NAME).unwrap_or_default();
            warn!(%error, platform, "cannot list the devices of a platform");
            Vec::new()
        }
    };
    platforms.into_iter().map(|platform| (platform, ids.by_ref().zip(devices_of(&platform)).collect())).collect()
}

/// The encoded [`Inventory`] of this node; empty without an OpenCL library.
pub(crate) fn encoded() -> Vec<u8> {
    let found = match Library::load() {
        Ok(library) => enumerate(library),
        Err(error) => {
            warn!(%error, "no OpenCL on this node");
            Vec::new()
        }
    };
    type Answered = (Answers, Vec<(u64, Answers)>);
    let answers: Vec<Answered> = found
        .iter()
        .map(|(platform, devices)| {
            let devices = devices.iter().map(|(id, device)| (*id, device_answers(device))).collect();
            (Answers::ask(params::platform(), |param| platform.info(param)), devices)
        })
        .collect();
    let platforms = answers
        .iter()
        .zip(0..)
        .map(|((platform, devices), index)| info::Platform {
            index,
            info: platform.wire(),
            devices: devices.iter().map(|(id, device)| info::Device { id: *id, info: device.wire() }).collect(),
        })
        .collect();
    telecl_wire::encode(&Inventory { platforms })
}

/// Everything about a device.
pub(crate) fn device_answers(device: &Device) -> Answers {
    Answers::ask(params::device(), |param| device.info(param))
}

/// Owns what a list of [`Info`] refers to.
#[derive(Debug)]
pub(crate) struct Answers(Vec<(u32, ClResult<Vec<u8>>)>);

impl Answers {
    fn ask(params: impl Iterator<Item = u32>, ask: impl Fn(u32) -> ClResult<Vec<u8>>) -> Answers {
        Answers(params.map(|param| (param, ask(param))).collect())
    }

    pub(crate) fn wire(&self) -> Vec<Info<'_>> {
        self.0
            .iter()
            .map(|(param, answer)| match answer {
                Ok(value) => Info { param: *param, status: CL_SUCCESS, value },
                Err(error) => Info { param: *param, status: error.code(), value: &[] },
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inventory_names_its_devices_from_one() {
        let bytes = encoded();
        let inventory: Inventory<'_> = telecl_wire::decode(&bytes).unwrap();
        let devices: Vec<_> = inventory.platforms.iter().flat_map(|platform| &platform.devices).collect();
        for (device, id) in devices.iter().zip(1..) {
            assert_eq!(device.id, id);
            let name = device.info.iter().find(|info| info.param == CL_DEVICE_NAME).unwrap();
            assert!(name.status == CL_SUCCESS && !name.value.is_empty());
            assert!(!device.info.iter().any(|info| info.param == CL_DEVICE_PLATFORM));
        }
    }
}
