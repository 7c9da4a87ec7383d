//! Entry points that no remote device can serve. Each answers with the error that the specification
//! names for a device or platform without the feature; none pretends to have done its work.

use std::ffi::c_void;

use telecl_sys::*;

use super::pointer;

// Native kernels are functions of this machine; devices do not offer CL_EXEC_NATIVE_KERNEL.

pub(super) unsafe extern "C" fn clEnqueueNativeKernel(
    _command_queue: cl_command_queue,
    _user_func: Option<NativeKernel>,
    _args: *mut c_void,
    _cb_args: usize,
    _num_mem_objects: cl_uint,
    _mem_list: *const cl_mem,
    _args_mem_loc: *mut *const c_void,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

// OpenGL: no context of this machine can be shared with a device of another.

pub(super) unsafe extern "C" fn clCreateFromGLBuffer(
    _context: cl_context,
    _flags: cl_mem_flags,
    _bufobj: cl_GLuint,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clCreateFromGLTexture2D(
    _context: cl_context,
    _flags: cl_mem_flags,
    _target: cl_GLenum,
    _miplevel: cl_GLint,
    _texture: cl_GLuint,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clCreateFromGLTexture3D(
    _context: cl_context,
    _flags: cl_mem_flags,
    _target: cl_GLenum,
    _miplevel: cl_GLint,
    _texture: cl_GLuint,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clCreateFromGLRenderbuffer(
    _context: cl_context,
    _flags: cl_mem_flags,
    _renderbuffer: cl_GLuint,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clGetGLObjectInfo(
    _memobj: cl_mem,
    _gl_object_type: *mut cl_gl_object_type,
    _gl_object_name: *mut cl_GLuint,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clGetGLTextureInfo(
    _memobj: cl_mem,
    _param_name: cl_gl_texture_info,
    _param_value_size: usize,
    _param_value: *mut c_void,
    _param_value_size_ret: *mut usize,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueAcquireGLObjects(
    _command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueReleaseGLObjects(
    _command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clGetGLContextInfoKHR(
    _properties: *const cl_context_properties,
    _param_name: cl_gl_context_info,
    _param_value_size: usize,
    _param_value: *mut c_void,
    _param_value_size_ret: *mut usize,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clCreateEventFromGLsyncKHR(
    _context: cl_context,
    _sync: cl_GLsync,
    error: *mut cl_int,
) -> cl_event {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clCreateFromGLTexture(
    _context: cl_context,
    _flags: cl_mem_flags,
    _target: cl_GLenum,
    _miplevel: cl_GLint,
    _texture: cl_GLuint,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

// Direct3D and DX9: not on this system.

pub(super) unsafe extern "C" fn clGetDeviceIDsFromD3D10KHR(
    _platform: cl_platform_id,
    _d3d_device_source: cl_d3d10_device_source_khr,
    _d3d_object: *mut c_void,
    _d3d_device_set: cl_d3d10_device_set_khr,
    _num_entries: cl_uint,
    _devices: *mut cl_device_id,
    _num_devices: *mut cl_uint,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clCreateFromD3D10BufferKHR(
    _context: cl_context,
    _flags: cl_mem_flags,
    _resource: *mut c_void,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clCreateFromD3D10Texture2DKHR(
    _context: cl_context,
    _flags: cl_mem_flags,
    _resource: *mut c_void,
    _subresource: cl_uint,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clCreateFromD3D10Texture3DKHR(
    _context: cl_context,
    _flags: cl_mem_flags,
    _resource: *mut c_void,
    _subresource: cl_uint,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clEnqueueAcquireD3D10ObjectsKHR(
    _command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueReleaseD3D10ObjectsKHR(
    _command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clGetDeviceIDsFromD3D11KHR(
    _platform: cl_platform_id,
    _d3d_device_source: cl_d3d11_device_source_khr,
    _d3d_object: *mut c_void,
    _d3d_device_set: cl_d3d11_device_set_khr,
    _num_entries: cl_uint,
    _devices: *mut cl_device_id,
    _num_devices: *mut cl_uint,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clCreateFromD3D11BufferKHR(
    _context: cl_context,
    _flags: cl_mem_flags,
    _resource: *mut c_void,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clCreateFromD3D11Texture2DKHR(
    _context: cl_context,
    _flags: cl_mem_flags,
    _resource: *mut c_void,
    _subresource: cl_uint,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clCreateFromD3D11Texture3DKHR(
    _context: cl_context,
    _flags: cl_mem_flags,
    _resource: *mut c_void,
    _subresource: cl_uint,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clCreateFromDX9MediaSurfaceKHR(
    _context: cl_context,
    _flags: cl_mem_flags,
    _adapter_type: cl_dx9_media_adapter_type_khr,
    _surface_info: *mut c_void,
    _plane: cl_uint,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clEnqueueAcquireD3D11ObjectsKHR(
    _command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueReleaseD3D11ObjectsKHR(
    _command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clGetDeviceIDsFromDX9MediaAdapterKHR(
    _platform: cl_platform_id,
    _num_media_adapters: cl_uint,
    _media_adapters_type: *mut cl_dx9_media_adapter_type_khr,
    _media_adapters: *mut c_void,
    _media_adapter_set: cl_dx9_media_adapter_set_khr,
    _num_entries: cl_uint,
    _devices: *mut cl_device_id,
    _num_devices: *mut cl_uint,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueAcquireDX9MediaSurfacesKHR(
    _command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueReleaseDX9MediaSurfacesKHR(
    _command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

// EGL.

pub(super) unsafe extern "C" fn clCreateFromEGLImageKHR(
    _context: cl_context,
    _display: CLeglDisplayKHR,
    _image: CLeglImageKHR,
    _flags: cl_mem_flags,
    _properties: *const cl_egl_image_properties_khr,
    error: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clEnqueueAcquireEGLObjectsKHR(
    _command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueReleaseEGLObjectsKHR(
    _command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clCreateEventFromEGLSyncKHR(
    _context: cl_context,
    _sync: CLeglSyncKHR,
    _display: CLeglDisplayKHR,
    error: *mut cl_int,
) -> cl_event {
    // SAFETY: the caller's out-parameter.
    unsafe { pointer::store(error, CL_INVALID_OPERATION) };
    std::ptr::null_mut()
}

// Shared virtual memory: devices report CL_DEVICE_SVM_CAPABILITIES as 0, and for such devices OpenCL 3.0 says CL_INVALID_OPERATION.

pub(super) unsafe extern "C" fn clSVMAlloc(
    _context: cl_context,
    _flags: cl_svm_mem_flags,
    _size: usize,
    _alignment: cl_uint,
) -> *mut c_void {
    std::ptr::null_mut()
}

pub(super) unsafe extern "C" fn clSVMFree(_context: cl_context, _svm_pointer: *mut c_void) {
    // There is nothing that clSVMAlloc could have returned.
}

pub(super) unsafe extern "C" fn clEnqueueSVMFree(
    _command_queue: cl_command_queue,
    _num_svm_pointers: cl_uint,
    _svm_pointers: *mut *mut c_void,
    _pfn_free_func: Option<SvmFree>,
    _user_data: *mut c_void,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueSVMMemcpy(
    _command_queue: cl_command_queue,
    _blocking_copy: cl_bool,
    _dst_ptr: *mut c_void,
    _src_ptr: *const c_void,
    _size: usize,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueSVMMemFill(
    _command_queue: cl_command_queue,
    _svm_ptr: *mut c_void,
    _pattern: *const c_void,
    _pattern_size: usize,
    _size: usize,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueSVMMap(
    _command_queue: cl_command_queue,
    _blocking_map: cl_bool,
    _map_flags: cl_map_flags,
    _svm_ptr: *mut c_void,
    _size: usize,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueSVMUnmap(
    _command_queue: cl_command_queue,
    _svm_ptr: *mut c_void,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clSetKernelArgSVMPointer(
    _kernel: cl_kernel,
    _arg_index: cl_uint,
    _arg_value: *const c_void,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clSetKernelExecInfo(
    _kernel: cl_kernel,
    _param_name: cl_kernel_exec_info,
    _param_value_size: usize,
    _param_value: *const c_void,
) -> cl_int {
    CL_INVALID_OPERATION
}

pub(super) unsafe extern "C" fn clEnqueueSVMMigrateMem(
    _command_queue: cl_command_queue,
    _num_svm_pointers: cl_uint,
    _svm_pointers: *mut *const c_void,
    _sizes: *const usize,
    _flags: cl_mem_migration_flags,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> cl_int {
    CL_INVALID_OPERATION
}
