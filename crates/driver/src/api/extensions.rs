//! Which of a vendor's extensions a program may see.
//!
//! Extensions that only change kernels or add query values work through telecl as they are. Those
//! that need functions of their own, or memory and handles of this machine, cannot, and are taken out
//! of the text *and* of the list with versions.

/// Extensions that cannot be used from another machine, or that we do not forward; a final `*`
/// stands for any ending.
const MASKED: &[&str] = &[
    "cl_khr_gl_*",
    "cl_APPLE_gl_sharing",
    "cl_khr_egl_*",
    "cl_khr_d3d10_sharing",
    "cl_khr_d3d11_sharing",
    "cl_khr_dx9_media_sharing",
    "cl_khr_external_memory*",
    "cl_khr_external_semaphore*",
    "cl_khr_semaphore",
    "cl_khr_command_buffer*",
    "cl_khr_suggested_local_work_size",
    "cl_khr_terminate_context",
    "cl_ext_buffer_device_address",
    "cl_ext_device_fission",
    "cl_ext_migrate_memobject",
    "cl_ext_image_requirements_info",
    "cl_ext_cxx_for_opencl_svm",
    "cl_nv_d3d*",
    "cl_nv_create_buffer",
    "cl_nv_kernel_attribute",
    "cl_nv_gl_*",
    "cl_intel_unified_shared_memory*",
    "cl_intel_d3d*",
    "cl_intel_dx9_media_sharing",
    "cl_intel_va_api_media_sharing",
    "cl_intel_accelerator",
    "cl_intel_create_buffer_with_properties",
    "cl_intel_exec_by_local_thread",
    "cl_intel_mem_alloc_buffer_location",
    "cl_intel_mem_channel_property",
    "cl_intel_sharing_format_query",
    "cl_intel_variable_eu_thread_count",
    "cl_arm_import_memory*",
    "cl_arm_shared_virtual_memory",
    "cl_arm_protected_memory_allocation",
    "cl_arm_printf",
    "cl_amd_*_semaphore",
    "cl_amd_svm",
    "cl_amd_bus_addressable_memory",
    "cl_amd_event_callback",
    "cl_qcom_*host_ptr",
    "cl_img_use_gralloc_ptr",
    "cl_pocl_content_size",
    "cl_pocl_svm_rect",
    "cl_pocl_command_buffer*",
];

/// Whether programs may see the extension.
pub(super) fn is_offered(name: &str) -> bool {
    !MASKED.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => match pattern.split_once('*') {
            Some((start, end)) => name.starts_with(start) && name.ends_with(end),
            None => name == *pattern,
        },
    })
}

/// A vendor's extension text without what cannot be offered, and with what we add.
pub(super) fn offered_text(vendor: &str, added: &[&str]) -> String {
    let mut names: Vec<&str> = vendor.split_ascii_whitespace().filter(|name| is_offered(name)).collect();
    for name in added {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names.join(" ")
}

/// Bytes of a `cl_name_version`: a version and a name of 64 characters.
const NAME_VERSION: usize = 4 + 64;

/// The list with versions, treated like the text; `added` extensions have version 1.0.0.
pub(super) fn offered_list(vendor: &[u8], added: &[&str]) -> Vec<u8> {
    let name_of = |entry: &[u8]| -> String {
        String::from_utf8_lossy(entry[4..].split(|&b| b == 0).next().unwrap_or_default()).into_owned()
    };
    let mut list = Vec::with_capacity(vendor.len());
    let mut seen = Vec::new();
    for entry in vendor.chunks_exact(NAME_VERSION) {
        let name = name_of(entry);
        if is_offered(&name) {
            list.extend_from_slice(entry);
            seen.push(name);
        }
    }
    for name in added.iter().filter(|name| !seen.iter().any(|s| s == *name)) {
        let mut entry = [0; NAME_VERSION];
        entry[..4].copy_from_slice(&(1u32 << 22).to_ne_bytes());
        entry[4..4 + name.len()].copy_from_slice(name.as_bytes());
        list.extend_from_slice(&entry);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_extensions_disappear_and_ours_are_added_once() {
        let text = offered_text(
            "cl_khr_icd cl_khr_gl_sharing cl_khr_fp64 cl_khr_external_memory_opaque_fd",
            &["cl_khr_icd", "cl_telecl_node"],
        );
        assert_eq!(text, "cl_khr_icd cl_khr_fp64 cl_telecl_node");
    }

    #[test]
    fn the_list_with_versions_loses_the_same_names() {
        let entry = |name: &str| {
            let mut bytes = vec![0; NAME_VERSION];
            bytes[4..4 + name.len()].copy_from_slice(name.as_bytes());
            bytes
        };
        let vendor = [entry("cl_khr_gl_event"), entry("cl_khr_fp64")].concat();
        let list = offered_list(&vendor, &["cl_telecl_node"]);
        assert_eq!(list.len(), 2 * NAME_VERSION);
        assert!(list[4..].starts_with(b"cl_khr_fp64\0"));
        assert!(list[NAME_VERSION + 4..].starts_with(b"cl_telecl_node\0"));
    }
}
