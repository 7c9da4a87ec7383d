//! The types of `cl.h` and `cl_platform.h`: scalars, handles, and the few structs that cross the ABI.
//!
//! Made once from the Khronos headers of Debian (`opencl-c-headers` 3.0); names keep their C spelling.

use core::ffi::{c_char, c_void};
use core::ptr;

/// Signed 8-bit integer.
pub type cl_char = i8;
/// Unsigned 8-bit integer.
pub type cl_uchar = u8;
/// Signed 16-bit integer.
pub type cl_short = i16;
/// Unsigned 16-bit integer.
pub type cl_ushort = u16;
/// Signed 32-bit integer; also the type of every status code.
pub type cl_int = i32;
/// Unsigned 32-bit integer.
pub type cl_uint = u32;
/// Signed 64-bit integer.
pub type cl_long = i64;
/// Unsigned 64-bit integer.
pub type cl_ulong = u64;
/// Half-precision float, as its bits.
pub type cl_half = u16;
/// Single-precision float.
pub type cl_float = f32;
/// Double-precision float.
pub type cl_double = f64;

macro_rules! handles {
    ($($(#[$doc:meta])* $handle:ident = $object:ident;)*) => {$(
        /// What the handle of the same name points to. Only its owner knows what is inside.
        #[repr(C)]
        #[derive(Debug)]
        pub struct $object {
            _opaque: [u8; 0],
        }
        $(#[$doc])*
        pub type $handle = *mut $object;
    )*};
}

handles! {
    /// Handle of a platform.
    cl_platform_id = _cl_platform_id;
    /// Handle of a device.
    cl_device_id = _cl_device_id;
    /// Handle of a context.
    cl_context = _cl_context;
    /// Handle of a command queue.
    cl_command_queue = _cl_command_queue;
    /// Handle of a memory object (buffer, image or pipe).
    cl_mem = _cl_mem;
    /// Handle of a program.
    cl_program = _cl_program;
    /// Handle of a kernel.
    cl_kernel = _cl_kernel;
    /// Handle of an event.
    cl_event = _cl_event;
    /// Handle of a sampler.
    cl_sampler = _cl_sampler;
}

pub type cl_bool = cl_uint;
pub type cl_bitfield = cl_ulong;
pub type cl_properties = cl_ulong;
pub type cl_device_type = cl_bitfield;
pub type cl_platform_info = cl_uint;
pub type cl_device_info = cl_uint;
pub type cl_device_fp_config = cl_bitfield;
pub type cl_device_mem_cache_type = cl_uint;
pub type cl_device_local_mem_type = cl_uint;
pub type cl_device_exec_capabilities = cl_bitfield;
pub type cl_device_svm_capabilities = cl_bitfield;
pub type cl_command_queue_properties = cl_bitfield;
pub type cl_device_partition_property = isize;
pub type cl_device_affinity_domain = cl_bitfield;
pub type cl_context_properties = isize;
pub type cl_context_info = cl_uint;
pub type cl_queue_properties = cl_properties;
pub type cl_command_queue_info = cl_uint;
pub type cl_channel_order = cl_uint;
pub type cl_channel_type = cl_uint;
pub type cl_mem_flags = cl_bitfield;
pub type cl_svm_mem_flags = cl_bitfield;
pub type cl_mem_object_type = cl_uint;
pub type cl_mem_info = cl_uint;
pub type cl_mem_migration_flags = cl_bitfield;
pub type cl_image_info = cl_uint;
pub type cl_buffer_create_type = cl_uint;
pub type cl_addressing_mode = cl_uint;
pub type cl_filter_mode = cl_uint;
pub type cl_sampler_info = cl_uint;
pub type cl_map_flags = cl_bitfield;
pub type cl_pipe_properties = isize;
pub type cl_pipe_info = cl_uint;
pub type cl_program_info = cl_uint;
pub type cl_program_build_info = cl_uint;
pub type cl_program_binary_type = cl_uint;
pub type cl_build_status = cl_int;
pub type cl_kernel_info = cl_uint;
pub type cl_kernel_arg_info = cl_uint;
pub type cl_kernel_arg_address_qualifier = cl_uint;
pub type cl_kernel_arg_access_qualifier = cl_uint;
pub type cl_kernel_arg_type_qualifier = cl_bitfield;
pub type cl_kernel_work_group_info = cl_uint;
pub type cl_kernel_sub_group_info = cl_uint;
pub type cl_event_info = cl_uint;
pub type cl_command_type = cl_uint;
pub type cl_profiling_info = cl_uint;
pub type cl_sampler_properties = cl_properties;
pub type cl_kernel_exec_info = cl_uint;
pub type cl_device_atomic_capabilities = cl_bitfield;
pub type cl_device_device_enqueue_capabilities = cl_bitfield;
pub type cl_khronos_vendor_id = cl_uint;
pub type cl_mem_properties = cl_properties;
pub type cl_version = cl_uint;
pub type cl_image_properties = cl_mem_properties;

// Extension types that the dispatch table mentions. GL, EGL and Direct3D objects are opaque here.
pub type cl_GLint = i32;
pub type cl_GLuint = u32;
pub type cl_GLenum = u32;
pub type cl_GLsync = *mut c_void;
pub type cl_gl_object_type = cl_uint;
pub type cl_gl_texture_info = cl_uint;
pub type cl_gl_platform_info = cl_uint;
pub type cl_gl_context_info = cl_uint;
pub type cl_device_partition_property_ext = cl_ulong;
pub type CLeglImageKHR = *mut c_void;
pub type CLeglDisplayKHR = *mut c_void;
pub type CLeglSyncKHR = *mut c_void;
pub type cl_egl_image_properties_khr = isize;
pub type cl_d3d10_device_source_khr = cl_uint;
pub type cl_d3d10_device_set_khr = cl_uint;
pub type cl_d3d11_device_source_khr = cl_uint;
pub type cl_d3d11_device_set_khr = cl_uint;
pub type cl_dx9_media_adapter_type_khr = cl_uint;
pub type cl_dx9_media_adapter_set_khr = cl_uint;

/// `pfn_notify` of `clCreateContext`: message, vendor's private bytes and their number, user data.
pub type ContextNotify = unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void);
/// `pfn_notify` of `clSetContextDestructorCallback`.
pub type ContextDestructor = unsafe extern "C" fn(cl_context, *mut c_void);
/// `pfn_notify` of `clBuildProgram`, `clCompileProgram`, `clLinkProgram` and `clSetProgramReleaseCallback`.
pub type ProgramNotify = unsafe extern "C" fn(cl_program, *mut c_void);
/// `pfn_notify` of `clSetEventCallback`.
pub type EventNotify = unsafe extern "C" fn(cl_event, cl_int, *mut c_void);
/// `pfn_notify` of `clSetMemObjectDestructorCallback`.
pub type MemDestructor = unsafe extern "C" fn(cl_mem, *mut c_void);
/// `user_func` of `clEnqueueNativeKernel`.
pub type NativeKernel = unsafe extern "C" fn(*mut c_void);
/// `pfn_free_func` of `clEnqueueSVMFree`.
pub type SvmFree = unsafe extern "C" fn(cl_command_queue, cl_uint, *mut *mut c_void, *mut c_void);

/// Channel order and channel type of an image.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct cl_image_format {
    pub image_channel_order: cl_channel_order,
    pub image_channel_data_type: cl_channel_type,
}

/// Kind and extent of an image.
///
/// `mem_object` is C's anonymous union of `buffer` (1.2) and `mem_object` (2.0), which are one pointer.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct cl_image_desc {
    pub image_type: cl_mem_object_type,
    pub image_width: usize,
    pub image_height: usize,
    pub image_depth: usize,
    pub image_array_size: usize,
    pub image_row_pitch: usize,
    pub image_slice_pitch: usize,
    pub num_mip_levels: cl_uint,
    pub num_samples: cl_uint,
    pub mem_object: cl_mem,
}

impl Default for cl_image_desc {
    fn default() -> Self {
        Self {
            image_type: 0,
            image_width: 0,
            image_height: 0,
            image_depth: 0,
            image_array_size: 0,
            image_row_pitch: 0,
            image_slice_pitch: 0,
            num_mip_levels: 0,
            num_samples: 0,
            mem_object: ptr::null_mut(),
        }
    }
}

/// The part of a buffer that a sub-buffer covers.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct cl_buffer_region {
    pub origin: usize,
    pub size: usize,
}

/// Bytes of [`cl_name_version::name`], with its NUL.
pub const CL_NAME_VERSION_MAX_NAME_SIZE: usize = 64;

/// A name and a version: one element of the `*_WITH_VERSION` queries.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct cl_name_version {
    pub version: cl_version,
    /// NUL-terminated.
    pub name: [c_char; CL_NAME_VERSION_MAX_NAME_SIZE],
}

impl Default for cl_name_version {
    fn default() -> Self {
        Self { version: 0, name: [0; CL_NAME_VERSION_MAX_NAME_SIZE] }
    }
}

const _: () = assert!(size_of::<cl_image_format>() == 8);
const _: () = assert!(size_of::<cl_image_desc>() == 72);
const _: () = assert!(size_of::<cl_buffer_region>() == 16);
const _: () = assert!(size_of::<cl_name_version>() == 68);
