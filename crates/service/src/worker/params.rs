//! What is asked about platforms and devices in advance.
//!
//! Whole ranges, because a refusal is an answer too: the driver passes on only what was not asked here, and passing on
//! costs a worker. The ranges are those in which Khronos and the vendors have numbered their queries.

use std::ops::RangeInclusive;

use telecl_sys::*;

const PLATFORM: &[RangeInclusive<u32>] = &[
    CL_PLATFORM_PROFILE..=0x090F,
    // Suffix, and whether the driver can be unloaded.
    CL_PLATFORM_ICD_SUFFIX_KHR..=0x0921,
    CL_PLATFORM_SEMAPHORE_TYPES_KHR..=CL_PLATFORM_SEMAPHORE_TYPES_KHR,
    CL_PLATFORM_SEMAPHORE_IMPORT_HANDLE_TYPES_KHR..=CL_PLATFORM_SEMAPHORE_IMPORT_HANDLE_TYPES_KHR,
    CL_PLATFORM_SEMAPHORE_EXPORT_HANDLE_TYPES_KHR..=CL_PLATFORM_SEMAPHORE_EXPORT_HANDLE_TYPES_KHR,
    CL_PLATFORM_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES_KHR..=CL_PLATFORM_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES_KHR,
];

const DEVICE: &[RangeInclusive<u32>] = &[
    // OpenCL 1.0 to 3.0 and what Khronos' extensions added to them: UUIDs, dot products, clocks.
    CL_DEVICE_TYPE..=0x107F,
    CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR..=CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR,
    CL_DEVICE_TERMINATE_CAPABILITY_KHR..=CL_DEVICE_TERMINATE_CAPABILITY_KHR,
    CL_DEVICE_MAX_NAMED_BARRIER_COUNT_KHR..=CL_DEVICE_MAX_NAMED_BARRIER_COUNT_KHR,
    // External memory and semaphores.
    0x204C..=0x2052,
    // NVIDIA.
    CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV..=0x400F,
    // AMD.
    0x4030..=0x4051,
    // Device fission.
    CL_DEVICE_PARENT_DEVICE_EXT..=CL_DEVICE_PARTITION_STYLE_EXT,
    // Qualcomm.
    CL_DEVICE_EXT_MEM_PADDING_IN_BYTES_QCOM..=CL_DEVICE_PAGE_SIZE_QCOM,
    // ARM.
    CL_DEVICE_SVM_CAPABILITIES_ARM..=CL_DEVICE_SVM_CAPABILITIES_ARM,
    CL_DEVICE_COMPUTE_UNITS_BITFIELD_ARM..=CL_DEVICE_COMPUTE_UNITS_BITFIELD_ARM,
    0x41E0..=0x41FF,
    CL_DEVICE_SPIR_VERSIONS..=CL_DEVICE_SPIR_VERSIONS,
    // Intel, and the PCI bus.
    CL_DEVICE_ME_VERSION_INTEL..=CL_DEVICE_ME_VERSION_INTEL,
    0x4100..=CL_DEVICE_PCI_BUS_INFO_KHR,
    CL_DEVICE_PLANAR_YUV_MAX_WIDTH_INTEL..=CL_DEVICE_PLANAR_YUV_MAX_HEIGHT_INTEL,
    CL_DEVICE_QUEUE_FAMILY_PROPERTIES_INTEL..=CL_DEVICE_QUEUE_FAMILY_PROPERTIES_INTEL,
    CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL..=CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL,
    CL_DEVICE_IP_VERSION_INTEL..=CL_DEVICE_FEATURE_CAPABILITIES_INTEL,
    // C++ for OpenCL, and floating-point atomics.
    CL_DEVICE_CXX_FOR_OPENCL_NUMERIC_VERSION_EXT..=0x4233,
];

/// Not asked: handles, which the driver answers itself, and a value that changes.
const LEFT_OUT: &[u32] =
    &[CL_DEVICE_PLATFORM, CL_DEVICE_PARENT_DEVICE, CL_DEVICE_PARENT_DEVICE_EXT, CL_DEVICE_GLOBAL_FREE_MEMORY_AMD];

pub(crate) fn platform() -> impl Iterator<Item = u32> {
    PLATFORM.iter().cloned().flatten()
}

pub(crate) fn device() -> impl Iterator<Item = u32> {
    DEVICE.iter().cloned().flatten().filter(|param| !LEFT_OUT.contains(param))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_is_asked_once_and_the_list_stays_small() {
        for params in [platform().collect::<Vec<_>>(), device().collect()] {
            assert_eq!(params.iter().collect::<HashSet<_>>().len(), params.len());
            assert!(params.len() < 400);
        }
    }

    #[test]
    fn what_programs_ask_for_is_there_and_handles_are_not() {
        let all: HashSet<u32> = device().collect();
        for param in [
            CL_DEVICE_NAME,
            CL_DRIVER_VERSION,
            CL_DEVICE_HALF_FP_CONFIG,
            CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED,
            CL_DEVICE_UUID_KHR,
            CL_DEVICE_NODE_MASK_KHR,
            CL_DEVICE_PCI_BUS_ID_NV,
            CL_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT_NV,
            CL_DEVICE_TOPOLOGY_AMD,
            CL_DEVICE_BOARD_NAME_AMD,
            CL_DEVICE_WAVEFRONT_WIDTH_AMD,
            CL_DEVICE_SUB_GROUP_SIZES_INTEL,
            CL_DEVICE_ME_VERSION_INTEL,
            CL_DEVICE_JOB_SLOTS_ARM,
            CL_DEVICE_PCI_BUS_INFO_KHR,
            CL_DEVICE_INTEGER_DOT_PRODUCT_CAPABILITIES_KHR,
        ] {
            assert!(all.contains(&param), "{param:#x}");
        }
        assert!(!all.contains(&CL_DEVICE_PLATFORM) && !all.contains(&CL_DEVICE_PARENT_DEVICE));
    }
}
