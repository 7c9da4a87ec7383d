//! `cl_icd.h`: the type of every entry point, and the table through which a loader calls a driver.
//!
//! Made once from the Khronos header, in slot order. The order is ABI: slots are never moved, only added. The
//! Direct3D and DX9 slots, which are `void *` in the header outside Windows, have their Windows signatures.

use core::ffi::{c_char, c_void};

use crate::types::*;

// OpenCL 1.0
pub type clGetPlatformIDs_t =
    unsafe extern "C" fn(num_entries: cl_uint, platforms: *mut cl_platform_id, num_platforms: *mut cl_uint) -> cl_int;
pub type clGetPlatformInfo_t = unsafe extern "C" fn(
    platform: cl_platform_id,
    param_name: cl_platform_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clGetDeviceIDs_t = unsafe extern "C" fn(
    platform: cl_platform_id,
    device_type: cl_device_type,
    num_entries: cl_uint,
    devices: *mut cl_device_id,
    num_devices: *mut cl_uint,
) -> cl_int;
pub type clGetDeviceInfo_t = unsafe extern "C" fn(
    device: cl_device_id,
    param_name: cl_device_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clCreateContext_t = unsafe extern "C" fn(
    properties: *const cl_context_properties,
    num_devices: cl_uint,
    devices: *const cl_device_id,
    pfn_notify: Option<ContextNotify>,
    user_data: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_context;
pub type clCreateContextFromType_t = unsafe extern "C" fn(
    properties: *const cl_context_properties,
    device_type: cl_device_type,
    pfn_notify: Option<ContextNotify>,
    user_data: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_context;
pub type clRetainContext_t = unsafe extern "C" fn(context: cl_context) -> cl_int;
pub type clReleaseContext_t = unsafe extern "C" fn(context: cl_context) -> cl_int;
pub type clGetContextInfo_t = unsafe extern "C" fn(
    context: cl_context,
    param_name: cl_context_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clCreateCommandQueue_t = unsafe extern "C" fn(
    context: cl_context,
    device: cl_device_id,
    properties: cl_command_queue_properties,
    errcode_ret: *mut cl_int,
) -> cl_command_queue;
pub type clRetainCommandQueue_t = unsafe extern "C" fn(command_queue: cl_command_queue) -> cl_int;
pub type clReleaseCommandQueue_t = unsafe extern "C" fn(command_queue: cl_command_queue) -> cl_int;
pub type clGetCommandQueueInfo_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    param_name: cl_command_queue_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clSetCommandQueueProperty_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    properties: cl_command_queue_properties,
    enable: cl_bool,
    old_properties: *mut cl_command_queue_properties,
) -> cl_int;
pub type clCreateBuffer_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    size: usize,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateImage2D_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_width: usize,
    image_height: usize,
    image_row_pitch: usize,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateImage3D_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_width: usize,
    image_height: usize,
    image_depth: usize,
    image_row_pitch: usize,
    image_slice_pitch: usize,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clRetainMemObject_t = unsafe extern "C" fn(memobj: cl_mem) -> cl_int;
pub type clReleaseMemObject_t = unsafe extern "C" fn(memobj: cl_mem) -> cl_int;
pub type clGetSupportedImageFormats_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    image_type: cl_mem_object_type,
    num_entries: cl_uint,
    image_formats: *mut cl_image_format,
    num_image_formats: *mut cl_uint,
) -> cl_int;
pub type clGetMemObjectInfo_t = unsafe extern "C" fn(
    memobj: cl_mem,
    param_name: cl_mem_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clGetImageInfo_t = unsafe extern "C" fn(
    image: cl_mem,
    param_name: cl_image_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clCreateSampler_t = unsafe extern "C" fn(
    context: cl_context,
    normalized_coords: cl_bool,
    addressing_mode: cl_addressing_mode,
    filter_mode: cl_filter_mode,
    errcode_ret: *mut cl_int,
) -> cl_sampler;
pub type clRetainSampler_t = unsafe extern "C" fn(sampler: cl_sampler) -> cl_int;
pub type clReleaseSampler_t = unsafe extern "C" fn(sampler: cl_sampler) -> cl_int;
pub type clGetSamplerInfo_t = unsafe extern "C" fn(
    sampler: cl_sampler,
    param_name: cl_sampler_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clCreateProgramWithSource_t = unsafe extern "C" fn(
    context: cl_context,
    count: cl_uint,
    strings: *mut *const c_char,
    lengths: *const usize,
    errcode_ret: *mut cl_int,
) -> cl_program;
pub type clCreateProgramWithBinary_t = unsafe extern "C" fn(
    context: cl_context,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    lengths: *const usize,
    binaries: *mut *const cl_uchar,
    binary_status: *mut cl_int,
    errcode_ret: *mut cl_int,
) -> cl_program;
pub type clRetainProgram_t = unsafe extern "C" fn(program: cl_program) -> cl_int;
pub type clReleaseProgram_t = unsafe extern "C" fn(program: cl_program) -> cl_int;
pub type clBuildProgram_t = unsafe extern "C" fn(
    program: cl_program,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    options: *const c_char,
    pfn_notify: Option<ProgramNotify>,
    user_data: *mut c_void,
) -> cl_int;
pub type clUnloadCompiler_t = unsafe extern "C" fn() -> cl_int;
pub type clGetProgramInfo_t = unsafe extern "C" fn(
    program: cl_program,
    param_name: cl_program_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clGetProgramBuildInfo_t = unsafe extern "C" fn(
    program: cl_program,
    device: cl_device_id,
    param_name: cl_program_build_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clCreateKernel_t =
    unsafe extern "C" fn(program: cl_program, kernel_name: *const c_char, errcode_ret: *mut cl_int) -> cl_kernel;
pub type clCreateKernelsInProgram_t = unsafe extern "C" fn(
    program: cl_program,
    num_kernels: cl_uint,
    kernels: *mut cl_kernel,
    num_kernels_ret: *mut cl_uint,
) -> cl_int;
pub type clRetainKernel_t = unsafe extern "C" fn(kernel: cl_kernel) -> cl_int;
pub type clReleaseKernel_t = unsafe extern "C" fn(kernel: cl_kernel) -> cl_int;
pub type clSetKernelArg_t =
    unsafe extern "C" fn(kernel: cl_kernel, arg_index: cl_uint, arg_size: usize, arg_value: *const c_void) -> cl_int;
pub type clGetKernelInfo_t = unsafe extern "C" fn(
    kernel: cl_kernel,
    param_name: cl_kernel_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clGetKernelWorkGroupInfo_t = unsafe extern "C" fn(
    kernel: cl_kernel,
    device: cl_device_id,
    param_name: cl_kernel_work_group_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clWaitForEvents_t = unsafe extern "C" fn(num_events: cl_uint, event_list: *const cl_event) -> cl_int;
pub type clGetEventInfo_t = unsafe extern "C" fn(
    event: cl_event,
    param_name: cl_event_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clRetainEvent_t = unsafe extern "C" fn(event: cl_event) -> cl_int;
pub type clReleaseEvent_t = unsafe extern "C" fn(event: cl_event) -> cl_int;
pub type clGetEventProfilingInfo_t = unsafe extern "C" fn(
    event: cl_event,
    param_name: cl_profiling_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clFlush_t = unsafe extern "C" fn(command_queue: cl_command_queue) -> cl_int;
pub type clFinish_t = unsafe extern "C" fn(command_queue: cl_command_queue) -> cl_int;
pub type clEnqueueReadBuffer_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking_read: cl_bool,
    offset: usize,
    cb: usize,
    ptr: *mut c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueWriteBuffer_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking_write: cl_bool,
    offset: usize,
    cb: usize,
    ptr: *const c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueCopyBuffer_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    src_buffer: cl_mem,
    dst_buffer: cl_mem,
    src_offset: usize,
    dst_offset: usize,
    cb: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueReadImage_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    image: cl_mem,
    blocking_read: cl_bool,
    origin: *const usize,
    region: *const usize,
    row_pitch: usize,
    slice_pitch: usize,
    ptr: *mut c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueWriteImage_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    image: cl_mem,
    blocking_write: cl_bool,
    origin: *const usize,
    region: *const usize,
    input_row_pitch: usize,
    input_slice_pitch: usize,
    ptr: *const c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueCopyImage_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    src_image: cl_mem,
    dst_image: cl_mem,
    src_origin: *const usize,
    dst_origin: *const usize,
    region: *const usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueCopyImageToBuffer_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    src_image: cl_mem,
    dst_buffer: cl_mem,
    src_origin: *const usize,
    region: *const usize,
    dst_offset: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueCopyBufferToImage_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    src_buffer: cl_mem,
    dst_image: cl_mem,
    src_offset: usize,
    dst_origin: *const usize,
    region: *const usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueMapBuffer_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking_map: cl_bool,
    map_flags: cl_map_flags,
    offset: usize,
    cb: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
    errcode_ret: *mut cl_int,
) -> *mut c_void;
pub type clEnqueueMapImage_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    image: cl_mem,
    blocking_map: cl_bool,
    map_flags: cl_map_flags,
    origin: *const usize,
    region: *const usize,
    image_row_pitch: *mut usize,
    image_slice_pitch: *mut usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
    errcode_ret: *mut cl_int,
) -> *mut c_void;
pub type clEnqueueUnmapMemObject_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    memobj: cl_mem,
    mapped_ptr: *mut c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueNDRangeKernel_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    kernel: cl_kernel,
    work_dim: cl_uint,
    global_work_offset: *const usize,
    global_work_size: *const usize,
    local_work_size: *const usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueTask_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    kernel: cl_kernel,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueNativeKernel_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    user_func: Option<NativeKernel>,
    args: *mut c_void,
    cb_args: usize,
    num_mem_objects: cl_uint,
    mem_list: *const cl_mem,
    args_mem_loc: *mut *const c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueMarker_t = unsafe extern "C" fn(command_queue: cl_command_queue, event: *mut cl_event) -> cl_int;
pub type clEnqueueWaitForEvents_t =
    unsafe extern "C" fn(command_queue: cl_command_queue, num_events: cl_uint, event_list: *const cl_event) -> cl_int;
pub type clEnqueueBarrier_t = unsafe extern "C" fn(command_queue: cl_command_queue) -> cl_int;
pub type clGetExtensionFunctionAddress_t = unsafe extern "C" fn(function_name: *const c_char) -> *mut c_void;
pub type clCreateFromGLBuffer_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    bufobj: cl_GLuint,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateFromGLTexture2D_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    target: cl_GLenum,
    miplevel: cl_GLint,
    texture: cl_GLuint,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateFromGLTexture3D_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    target: cl_GLenum,
    miplevel: cl_GLint,
    texture: cl_GLuint,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateFromGLRenderbuffer_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    renderbuffer: cl_GLuint,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clGetGLObjectInfo_t = unsafe extern "C" fn(
    memobj: cl_mem,
    gl_object_type: *mut cl_gl_object_type,
    gl_object_name: *mut cl_GLuint,
) -> cl_int;
pub type clGetGLTextureInfo_t = unsafe extern "C" fn(
    memobj: cl_mem,
    param_name: cl_gl_texture_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clEnqueueAcquireGLObjects_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_objects: cl_uint,
    mem_objects: *const cl_mem,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueReleaseGLObjects_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_objects: cl_uint,
    mem_objects: *const cl_mem,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clGetGLContextInfoKHR_t = unsafe extern "C" fn(
    properties: *const cl_context_properties,
    param_name: cl_gl_context_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
// cl_khr_d3d10_sharing
pub type clGetDeviceIDsFromD3D10KHR_t = unsafe extern "C" fn(
    platform: cl_platform_id,
    d3d_device_source: cl_d3d10_device_source_khr,
    d3d_object: *mut c_void,
    d3d_device_set: cl_d3d10_device_set_khr,
    num_entries: cl_uint,
    devices: *mut cl_device_id,
    num_devices: *mut cl_uint,
) -> cl_int;
pub type clCreateFromD3D10BufferKHR_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    resource: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateFromD3D10Texture2DKHR_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    resource: *mut c_void,
    subresource: cl_uint,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateFromD3D10Texture3DKHR_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    resource: *mut c_void,
    subresource: cl_uint,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clEnqueueAcquireD3D10ObjectsKHR_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_objects: cl_uint,
    mem_objects: *const cl_mem,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueReleaseD3D10ObjectsKHR_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_objects: cl_uint,
    mem_objects: *const cl_mem,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
// OpenCL 1.1
pub type clSetEventCallback_t = unsafe extern "C" fn(
    event: cl_event,
    command_exec_callback_type: cl_int,
    pfn_notify: Option<EventNotify>,
    user_data: *mut c_void,
) -> cl_int;
pub type clCreateSubBuffer_t = unsafe extern "C" fn(
    buffer: cl_mem,
    flags: cl_mem_flags,
    buffer_create_type: cl_buffer_create_type,
    buffer_create_info: *const c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clSetMemObjectDestructorCallback_t =
    unsafe extern "C" fn(memobj: cl_mem, pfn_notify: Option<MemDestructor>, user_data: *mut c_void) -> cl_int;
pub type clCreateUserEvent_t = unsafe extern "C" fn(context: cl_context, errcode_ret: *mut cl_int) -> cl_event;
pub type clSetUserEventStatus_t = unsafe extern "C" fn(event: cl_event, execution_status: cl_int) -> cl_int;
pub type clEnqueueReadBufferRect_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking_read: cl_bool,
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row_pitch: usize,
    buffer_slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    ptr: *mut c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueWriteBufferRect_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking_read: cl_bool,
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row_pitch: usize,
    buffer_slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    ptr: *const c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueCopyBufferRect_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    src_buffer: cl_mem,
    dst_buffer: cl_mem,
    src_origin: *const usize,
    dst_origin: *const usize,
    region: *const usize,
    src_row_pitch: usize,
    src_slice_pitch: usize,
    dst_row_pitch: usize,
    dst_slice_pitch: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
// cl_ext_device_fission
pub type clCreateSubDevicesEXT_t = unsafe extern "C" fn(
    in_device: cl_device_id,
    partition_properties: *const cl_device_partition_property_ext,
    num_entries: cl_uint,
    out_devices: *mut cl_device_id,
    num_devices: *mut cl_uint,
) -> cl_int;
pub type clRetainDeviceEXT_t = unsafe extern "C" fn(device: cl_device_id) -> cl_int;
pub type clReleaseDeviceEXT_t = unsafe extern "C" fn(device: cl_device_id) -> cl_int;
// cl_khr_gl_event
pub type clCreateEventFromGLsyncKHR_t =
    unsafe extern "C" fn(context: cl_context, sync: cl_GLsync, errcode_ret: *mut cl_int) -> cl_event;
// OpenCL 1.2
pub type clCreateSubDevices_t = unsafe extern "C" fn(
    in_device: cl_device_id,
    partition_properties: *const cl_device_partition_property,
    num_entries: cl_uint,
    out_devices: *mut cl_device_id,
    num_devices: *mut cl_uint,
) -> cl_int;
pub type clRetainDevice_t = unsafe extern "C" fn(device: cl_device_id) -> cl_int;
pub type clReleaseDevice_t = unsafe extern "C" fn(device: cl_device_id) -> cl_int;
pub type clCreateImage_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_desc: *const cl_image_desc,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateProgramWithBuiltInKernels_t = unsafe extern "C" fn(
    context: cl_context,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    kernel_names: *const c_char,
    errcode_ret: *mut cl_int,
) -> cl_program;
pub type clCompileProgram_t = unsafe extern "C" fn(
    program: cl_program,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    options: *const c_char,
    num_input_headers: cl_uint,
    input_headers: *const cl_program,
    header_include_names: *mut *const c_char,
    pfn_notify: Option<ProgramNotify>,
    user_data: *mut c_void,
) -> cl_int;
pub type clLinkProgram_t = unsafe extern "C" fn(
    context: cl_context,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    options: *const c_char,
    num_input_programs: cl_uint,
    input_programs: *const cl_program,
    pfn_notify: Option<ProgramNotify>,
    user_data: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_program;
pub type clUnloadPlatformCompiler_t = unsafe extern "C" fn(platform: cl_platform_id) -> cl_int;
pub type clGetKernelArgInfo_t = unsafe extern "C" fn(
    kernel: cl_kernel,
    arg_indx: cl_uint,
    param_name: cl_kernel_arg_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clEnqueueFillBuffer_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    pattern: *const c_void,
    pattern_size: usize,
    offset: usize,
    cb: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueFillImage_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    image: cl_mem,
    fill_color: *const c_void,
    origin: *const usize,
    region: *const usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueMigrateMemObjects_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_mem_objects: cl_uint,
    mem_objects: *const cl_mem,
    flags: cl_mem_migration_flags,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueMarkerWithWaitList_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueBarrierWithWaitList_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clGetExtensionFunctionAddressForPlatform_t =
    unsafe extern "C" fn(platform: cl_platform_id, function_name: *const c_char) -> *mut c_void;
pub type clCreateFromGLTexture_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    target: cl_GLenum,
    miplevel: cl_GLint,
    texture: cl_GLuint,
    errcode_ret: *mut cl_int,
) -> cl_mem;
// cl_khr_d3d11_sharing
pub type clGetDeviceIDsFromD3D11KHR_t = unsafe extern "C" fn(
    platform: cl_platform_id,
    d3d_device_source: cl_d3d11_device_source_khr,
    d3d_object: *mut c_void,
    d3d_device_set: cl_d3d11_device_set_khr,
    num_entries: cl_uint,
    devices: *mut cl_device_id,
    num_devices: *mut cl_uint,
) -> cl_int;
pub type clCreateFromD3D11BufferKHR_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    resource: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateFromD3D11Texture2DKHR_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    resource: *mut c_void,
    subresource: cl_uint,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateFromD3D11Texture3DKHR_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    resource: *mut c_void,
    subresource: cl_uint,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateFromDX9MediaSurfaceKHR_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    adapter_type: cl_dx9_media_adapter_type_khr,
    surface_info: *mut c_void,
    plane: cl_uint,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clEnqueueAcquireD3D11ObjectsKHR_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_objects: cl_uint,
    mem_objects: *const cl_mem,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueReleaseD3D11ObjectsKHR_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_objects: cl_uint,
    mem_objects: *const cl_mem,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
// cl_khr_dx9_media_sharing
pub type clGetDeviceIDsFromDX9MediaAdapterKHR_t = unsafe extern "C" fn(
    platform: cl_platform_id,
    num_media_adapters: cl_uint,
    media_adapters_type: *mut cl_dx9_media_adapter_type_khr,
    media_adapters: *mut c_void,
    media_adapter_set: cl_dx9_media_adapter_set_khr,
    num_entries: cl_uint,
    devices: *mut cl_device_id,
    num_devices: *mut cl_uint,
) -> cl_int;
pub type clEnqueueAcquireDX9MediaSurfacesKHR_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_objects: cl_uint,
    mem_objects: *const cl_mem,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueReleaseDX9MediaSurfacesKHR_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_objects: cl_uint,
    mem_objects: *const cl_mem,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
// cl_khr_egl_image
pub type clCreateFromEGLImageKHR_t = unsafe extern "C" fn(
    context: cl_context,
    display: CLeglDisplayKHR,
    image: CLeglImageKHR,
    flags: cl_mem_flags,
    properties: *const cl_egl_image_properties_khr,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clEnqueueAcquireEGLObjectsKHR_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_objects: cl_uint,
    mem_objects: *const cl_mem,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueReleaseEGLObjectsKHR_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_objects: cl_uint,
    mem_objects: *const cl_mem,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
// cl_khr_egl_event
pub type clCreateEventFromEGLSyncKHR_t = unsafe extern "C" fn(
    context: cl_context,
    sync: CLeglSyncKHR,
    display: CLeglDisplayKHR,
    errcode_ret: *mut cl_int,
) -> cl_event;
// OpenCL 2.0
pub type clCreateCommandQueueWithProperties_t = unsafe extern "C" fn(
    context: cl_context,
    device: cl_device_id,
    properties: *const cl_queue_properties,
    errcode_ret: *mut cl_int,
) -> cl_command_queue;
pub type clCreatePipe_t = unsafe extern "C" fn(
    context: cl_context,
    flags: cl_mem_flags,
    pipe_packet_size: cl_uint,
    pipe_max_packets: cl_uint,
    properties: *const cl_pipe_properties,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clGetPipeInfo_t = unsafe extern "C" fn(
    pipe: cl_mem,
    param_name: cl_pipe_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clSVMAlloc_t =
    unsafe extern "C" fn(context: cl_context, flags: cl_svm_mem_flags, size: usize, alignment: cl_uint) -> *mut c_void;
pub type clSVMFree_t = unsafe extern "C" fn(context: cl_context, svm_pointer: *mut c_void);
pub type clEnqueueSVMFree_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_svm_pointers: cl_uint,
    svm_pointers: *mut *mut c_void,
    pfn_free_func: Option<SvmFree>,
    user_data: *mut c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueSVMMemcpy_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    blocking_copy: cl_bool,
    dst_ptr: *mut c_void,
    src_ptr: *const c_void,
    size: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueSVMMemFill_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    svm_ptr: *mut c_void,
    pattern: *const c_void,
    pattern_size: usize,
    size: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueSVMMap_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    blocking_map: cl_bool,
    map_flags: cl_map_flags,
    svm_ptr: *mut c_void,
    size: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clEnqueueSVMUnmap_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    svm_ptr: *mut c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clCreateSamplerWithProperties_t = unsafe extern "C" fn(
    context: cl_context,
    sampler_properties: *const cl_sampler_properties,
    errcode_ret: *mut cl_int,
) -> cl_sampler;
pub type clSetKernelArgSVMPointer_t =
    unsafe extern "C" fn(kernel: cl_kernel, arg_index: cl_uint, arg_value: *const c_void) -> cl_int;
pub type clSetKernelExecInfo_t = unsafe extern "C" fn(
    kernel: cl_kernel,
    param_name: cl_kernel_exec_info,
    param_value_size: usize,
    param_value: *const c_void,
) -> cl_int;
// cl_khr_sub_groups
pub type clGetKernelSubGroupInfoKHR_t = unsafe extern "C" fn(
    in_kernel: cl_kernel,
    in_device: cl_device_id,
    param_name: cl_kernel_sub_group_info,
    input_value_size: usize,
    input_value: *const c_void,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
// OpenCL 2.1
pub type clCloneKernel_t = unsafe extern "C" fn(source_kernel: cl_kernel, errcode_ret: *mut cl_int) -> cl_kernel;
pub type clCreateProgramWithIL_t =
    unsafe extern "C" fn(context: cl_context, il: *const c_void, length: usize, errcode_ret: *mut cl_int) -> cl_program;
pub type clEnqueueSVMMigrateMem_t = unsafe extern "C" fn(
    command_queue: cl_command_queue,
    num_svm_pointers: cl_uint,
    svm_pointers: *mut *const c_void,
    sizes: *const usize,
    flags: cl_mem_migration_flags,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int;
pub type clGetDeviceAndHostTimer_t = unsafe extern "C" fn(
    device: cl_device_id,
    device_timestamp: *mut cl_ulong,
    host_timestamp: *mut cl_ulong,
) -> cl_int;
pub type clGetHostTimer_t = unsafe extern "C" fn(device: cl_device_id, host_timestamp: *mut cl_ulong) -> cl_int;
pub type clGetKernelSubGroupInfo_t = unsafe extern "C" fn(
    kernel: cl_kernel,
    device: cl_device_id,
    param_name: cl_kernel_sub_group_info,
    input_value_size: usize,
    input_value: *const c_void,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int;
pub type clSetDefaultDeviceCommandQueue_t =
    unsafe extern "C" fn(context: cl_context, device: cl_device_id, command_queue: cl_command_queue) -> cl_int;
// OpenCL 2.2
pub type clSetProgramReleaseCallback_t =
    unsafe extern "C" fn(program: cl_program, pfn_notify: Option<ProgramNotify>, user_data: *mut c_void) -> cl_int;
pub type clSetProgramSpecializationConstant_t =
    unsafe extern "C" fn(program: cl_program, spec_id: cl_uint, spec_size: usize, spec_value: *const c_void) -> cl_int;
// OpenCL 3.0
pub type clCreateBufferWithProperties_t = unsafe extern "C" fn(
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: cl_mem_flags,
    size: usize,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clCreateImageWithProperties_t = unsafe extern "C" fn(
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_desc: *const cl_image_desc,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem;
pub type clSetContextDestructorCallback_t =
    unsafe extern "C" fn(context: cl_context, pfn_notify: Option<ContextDestructor>, user_data: *mut c_void) -> cl_int;

/// `cl_icd_dispatch`: what the first pointer of every handle points to.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DispatchTable {
    // OpenCL 1.0
    pub clGetPlatformIDs: clGetPlatformIDs_t,
    pub clGetPlatformInfo: clGetPlatformInfo_t,
    pub clGetDeviceIDs: clGetDeviceIDs_t,
    pub clGetDeviceInfo: clGetDeviceInfo_t,
    pub clCreateContext: clCreateContext_t,
    pub clCreateContextFromType: clCreateContextFromType_t,
    pub clRetainContext: clRetainContext_t,
    pub clReleaseContext: clReleaseContext_t,
    pub clGetContextInfo: clGetContextInfo_t,
    pub clCreateCommandQueue: clCreateCommandQueue_t,
    pub clRetainCommandQueue: clRetainCommandQueue_t,
    pub clReleaseCommandQueue: clReleaseCommandQueue_t,
    pub clGetCommandQueueInfo: clGetCommandQueueInfo_t,
    pub clSetCommandQueueProperty: clSetCommandQueueProperty_t,
    pub clCreateBuffer: clCreateBuffer_t,
    pub clCreateImage2D: clCreateImage2D_t,
    pub clCreateImage3D: clCreateImage3D_t,
    pub clRetainMemObject: clRetainMemObject_t,
    pub clReleaseMemObject: clReleaseMemObject_t,
    pub clGetSupportedImageFormats: clGetSupportedImageFormats_t,
    pub clGetMemObjectInfo: clGetMemObjectInfo_t,
    pub clGetImageInfo: clGetImageInfo_t,
    pub clCreateSampler: clCreateSampler_t,
    pub clRetainSampler: clRetainSampler_t,
    pub clReleaseSampler: clReleaseSampler_t,
    pub clGetSamplerInfo: clGetSamplerInfo_t,
    pub clCreateProgramWithSource: clCreateProgramWithSource_t,
    pub clCreateProgramWithBinary: clCreateProgramWithBinary_t,
    pub clRetainProgram: clRetainProgram_t,
    pub clReleaseProgram: clReleaseProgram_t,
    pub clBuildProgram: clBuildProgram_t,
    pub clUnloadCompiler: clUnloadCompiler_t,
    pub clGetProgramInfo: clGetProgramInfo_t,
    pub clGetProgramBuildInfo: clGetProgramBuildInfo_t,
    pub clCreateKernel: clCreateKernel_t,
    pub clCreateKernelsInProgram: clCreateKernelsInProgram_t,
    pub clRetainKernel: clRetainKernel_t,
    pub clReleaseKernel: clReleaseKernel_t,
    pub clSetKernelArg: clSetKernelArg_t,
    pub clGetKernelInfo: clGetKernelInfo_t,
    pub clGetKernelWorkGroupInfo: clGetKernelWorkGroupInfo_t,
    pub clWaitForEvents: clWaitForEvents_t,
    pub clGetEventInfo: clGetEventInfo_t,
    pub clRetainEvent: clRetainEvent_t,
    pub clReleaseEvent: clReleaseEvent_t,
    pub clGetEventProfilingInfo: clGetEventProfilingInfo_t,
    pub clFlush: clFlush_t,
    pub clFinish: clFinish_t,
    pub clEnqueueReadBuffer: clEnqueueReadBuffer_t,
    pub clEnqueueWriteBuffer: clEnqueueWriteBuffer_t,
    pub clEnqueueCopyBuffer: clEnqueueCopyBuffer_t,
    pub clEnqueueReadImage: clEnqueueReadImage_t,
    pub clEnqueueWriteImage: clEnqueueWriteImage_t,
    pub clEnqueueCopyImage: clEnqueueCopyImage_t,
    pub clEnqueueCopyImageToBuffer: clEnqueueCopyImageToBuffer_t,
    pub clEnqueueCopyBufferToImage: clEnqueueCopyBufferToImage_t,
    pub clEnqueueMapBuffer: clEnqueueMapBuffer_t,
    pub clEnqueueMapImage: clEnqueueMapImage_t,
    pub clEnqueueUnmapMemObject: clEnqueueUnmapMemObject_t,
    pub clEnqueueNDRangeKernel: clEnqueueNDRangeKernel_t,
    pub clEnqueueTask: clEnqueueTask_t,
    pub clEnqueueNativeKernel: clEnqueueNativeKernel_t,
    pub clEnqueueMarker: clEnqueueMarker_t,
    pub clEnqueueWaitForEvents: clEnqueueWaitForEvents_t,
    pub clEnqueueBarrier: clEnqueueBarrier_t,
    pub clGetExtensionFunctionAddress: clGetExtensionFunctionAddress_t,
    pub clCreateFromGLBuffer: clCreateFromGLBuffer_t,
    pub clCreateFromGLTexture2D: clCreateFromGLTexture2D_t,
    pub clCreateFromGLTexture3D: clCreateFromGLTexture3D_t,
    pub clCreateFromGLRenderbuffer: clCreateFromGLRenderbuffer_t,
    pub clGetGLObjectInfo: clGetGLObjectInfo_t,
    pub clGetGLTextureInfo: clGetGLTextureInfo_t,
    pub clEnqueueAcquireGLObjects: clEnqueueAcquireGLObjects_t,
    pub clEnqueueReleaseGLObjects: clEnqueueReleaseGLObjects_t,
    pub clGetGLContextInfoKHR: clGetGLContextInfoKHR_t,
    // cl_khr_d3d10_sharing
    pub clGetDeviceIDsFromD3D10KHR: clGetDeviceIDsFromD3D10KHR_t,
    pub clCreateFromD3D10BufferKHR: clCreateFromD3D10BufferKHR_t,
    pub clCreateFromD3D10Texture2DKHR: clCreateFromD3D10Texture2DKHR_t,
    pub clCreateFromD3D10Texture3DKHR: clCreateFromD3D10Texture3DKHR_t,
    pub clEnqueueAcquireD3D10ObjectsKHR: clEnqueueAcquireD3D10ObjectsKHR_t,
    pub clEnqueueReleaseD3D10ObjectsKHR: clEnqueueReleaseD3D10ObjectsKHR_t,
    // OpenCL 1.1
    pub clSetEventCallback: clSetEventCallback_t,
    pub clCreateSubBuffer: clCreateSubBuffer_t,
    pub clSetMemObjectDestructorCallback: clSetMemObjectDestructorCallback_t,
    pub clCreateUserEvent: clCreateUserEvent_t,
    pub clSetUserEventStatus: clSetUserEventStatus_t,
    pub clEnqueueReadBufferRect: clEnqueueReadBufferRect_t,
    pub clEnqueueWriteBufferRect: clEnqueueWriteBufferRect_t,
    pub clEnqueueCopyBufferRect: clEnqueueCopyBufferRect_t,
    // cl_ext_device_fission
    pub clCreateSubDevicesEXT: clCreateSubDevicesEXT_t,
    pub clRetainDeviceEXT: clRetainDeviceEXT_t,
    pub clReleaseDeviceEXT: clReleaseDeviceEXT_t,
    // cl_khr_gl_event
    pub clCreateEventFromGLsyncKHR: clCreateEventFromGLsyncKHR_t,
    // OpenCL 1.2
    pub clCreateSubDevices: clCreateSubDevices_t,
    pub clRetainDevice: clRetainDevice_t,
    pub clReleaseDevice: clReleaseDevice_t,
    pub clCreateImage: clCreateImage_t,
    pub clCreateProgramWithBuiltInKernels: clCreateProgramWithBuiltInKernels_t,
    pub clCompileProgram: clCompileProgram_t,
    pub clLinkProgram: clLinkProgram_t,
    pub clUnloadPlatformCompiler: clUnloadPlatformCompiler_t,
    pub clGetKernelArgInfo: clGetKernelArgInfo_t,
    pub clEnqueueFillBuffer: clEnqueueFillBuffer_t,
    pub clEnqueueFillImage: clEnqueueFillImage_t,
    pub clEnqueueMigrateMemObjects: clEnqueueMigrateMemObjects_t,
    pub clEnqueueMarkerWithWaitList: clEnqueueMarkerWithWaitList_t,
    pub clEnqueueBarrierWithWaitList: clEnqueueBarrierWithWaitList_t,
    pub clGetExtensionFunctionAddressForPlatform: clGetExtensionFunctionAddressForPlatform_t,
    pub clCreateFromGLTexture: clCreateFromGLTexture_t,
    // cl_khr_d3d11_sharing
    pub clGetDeviceIDsFromD3D11KHR: clGetDeviceIDsFromD3D11KHR_t,
    pub clCreateFromD3D11BufferKHR: clCreateFromD3D11BufferKHR_t,
    pub clCreateFromD3D11Texture2DKHR: clCreateFromD3D11Texture2DKHR_t,
    pub clCreateFromD3D11Texture3DKHR: clCreateFromD3D11Texture3DKHR_t,
    pub clCreateFromDX9MediaSurfaceKHR: clCreateFromDX9MediaSurfaceKHR_t,
    pub clEnqueueAcquireD3D11ObjectsKHR: clEnqueueAcquireD3D11ObjectsKHR_t,
    pub clEnqueueReleaseD3D11ObjectsKHR: clEnqueueReleaseD3D11ObjectsKHR_t,
    // cl_khr_dx9_media_sharing
    pub clGetDeviceIDsFromDX9MediaAdapterKHR: clGetDeviceIDsFromDX9MediaAdapterKHR_t,
    pub clEnqueueAcquireDX9MediaSurfacesKHR: clEnqueueAcquireDX9MediaSurfacesKHR_t,
    pub clEnqueueReleaseDX9MediaSurfacesKHR: clEnqueueReleaseDX9MediaSurfacesKHR_t,
    // cl_khr_egl_image
    pub clCreateFromEGLImageKHR: clCreateFromEGLImageKHR_t,
    pub clEnqueueAcquireEGLObjectsKHR: clEnqueueAcquireEGLObjectsKHR_t,
    pub clEnqueueReleaseEGLObjectsKHR: clEnqueueReleaseEGLObjectsKHR_t,
    // cl_khr_egl_event
    pub clCreateEventFromEGLSyncKHR: clCreateEventFromEGLSyncKHR_t,
    // OpenCL 2.0
    pub clCreateCommandQueueWithProperties: clCreateCommandQueueWithProperties_t,
    pub clCreatePipe: clCreatePipe_t,
    pub clGetPipeInfo: clGetPipeInfo_t,
    pub clSVMAlloc: clSVMAlloc_t,
    pub clSVMFree: clSVMFree_t,
    pub clEnqueueSVMFree: clEnqueueSVMFree_t,
    pub clEnqueueSVMMemcpy: clEnqueueSVMMemcpy_t,
    pub clEnqueueSVMMemFill: clEnqueueSVMMemFill_t,
    pub clEnqueueSVMMap: clEnqueueSVMMap_t,
    pub clEnqueueSVMUnmap: clEnqueueSVMUnmap_t,
    pub clCreateSamplerWithProperties: clCreateSamplerWithProperties_t,
    pub clSetKernelArgSVMPointer: clSetKernelArgSVMPointer_t,
    pub clSetKernelExecInfo: clSetKernelExecInfo_t,
    // cl_khr_sub_groups
    pub clGetKernelSubGroupInfoKHR: clGetKernelSubGroupInfoKHR_t,
    // OpenCL 2.1
    pub clCloneKernel: clCloneKernel_t,
    pub clCreateProgramWithIL: clCreateProgramWithIL_t,
    pub clEnqueueSVMMigrateMem: clEnqueueSVMMigrateMem_t,
    pub clGetDeviceAndHostTimer: clGetDeviceAndHostTimer_t,
    pub clGetHostTimer: clGetHostTimer_t,
    pub clGetKernelSubGroupInfo: clGetKernelSubGroupInfo_t,
    pub clSetDefaultDeviceCommandQueue: clSetDefaultDeviceCommandQueue_t,
    // OpenCL 2.2
    pub clSetProgramReleaseCallback: clSetProgramReleaseCallback_t,
    pub clSetProgramSpecializationConstant: clSetProgramSpecializationConstant_t,
    // OpenCL 3.0
    pub clCreateBufferWithProperties: clCreateBufferWithProperties_t,
    pub clCreateImageWithProperties: clCreateImageWithProperties_t,
    pub clSetContextDestructorCallback: clSetContextDestructorCallback_t,
}

/// The C names of the slots, in order.
pub const SLOTS: &[&str] = &[
    "clGetPlatformIDs",
    "clGetPlatformInfo",
    "clGetDeviceIDs",
    "clGetDeviceInfo",
    "clCreateContext",
    "clCreateContextFromType",
    "clRetainContext",
    "clReleaseContext",
    "clGetContextInfo",
    "clCreateCommandQueue",
    "clRetainCommandQueue",
    "clReleaseCommandQueue",
    "clGetCommandQueueInfo",
    "clSetCommandQueueProperty",
    "clCreateBuffer",
    "clCreateImage2D",
    "clCreateImage3D",
    "clRetainMemObject",
    "clReleaseMemObject",
    "clGetSupportedImageFormats",
    "clGetMemObjectInfo",
    "clGetImageInfo",
    "clCreateSampler",
    "clRetainSampler",
    "clReleaseSampler",
    "clGetSamplerInfo",
    "clCreateProgramWithSource",
    "clCreateProgramWithBinary",
    "clRetainProgram",
    "clReleaseProgram",
    "clBuildProgram",
    "clUnloadCompiler",
    "clGetProgramInfo",
    "clGetProgramBuildInfo",
    "clCreateKernel",
    "clCreateKernelsInProgram",
    "clRetainKernel",
    "clReleaseKernel",
    "clSetKernelArg",
    "clGetKernelInfo",
    "clGetKernelWorkGroupInfo",
    "clWaitForEvents",
    "clGetEventInfo",
    "clRetainEvent",
    "clReleaseEvent",
    "clGetEventProfilingInfo",
    "clFlush",
    "clFinish",
    "clEnqueueReadBuffer",
    "clEnqueueWriteBuffer",
    "clEnqueueCopyBuffer",
    "clEnqueueReadImage",
    "clEnqueueWriteImage",
    "clEnqueueCopyImage",
    "clEnqueueCopyImageToBuffer",
    "clEnqueueCopyBufferToImage",
    "clEnqueueMapBuffer",
    "clEnqueueMapImage",
    "clEnqueueUnmapMemObject",
    "clEnqueueNDRangeKernel",
    "clEnqueueTask",
    "clEnqueueNativeKernel",
    "clEnqueueMarker",
    "clEnqueueWaitForEvents",
    "clEnqueueBarrier",
    "clGetExtensionFunctionAddress",
    "clCreateFromGLBuffer",
    "clCreateFromGLTexture2D",
    "clCreateFromGLTexture3D",
    "clCreateFromGLRenderbuffer",
    "clGetGLObjectInfo",
    "clGetGLTextureInfo",
    "clEnqueueAcquireGLObjects",
    "clEnqueueReleaseGLObjects",
    "clGetGLContextInfoKHR",
    "clGetDeviceIDsFromD3D10KHR",
    "clCreateFromD3D10BufferKHR",
    "clCreateFromD3D10Texture2DKHR",
    "clCreateFromD3D10Texture3DKHR",
    "clEnqueueAcquireD3D10ObjectsKHR",
    "clEnqueueReleaseD3D10ObjectsKHR",
    "clSetEventCallback",
    "clCreateSubBuffer",
    "clSetMemObjectDestructorCallback",
    "clCreateUserEvent",
    "clSetUserEventStatus",
    "clEnqueueReadBufferRect",
    "clEnqueueWriteBufferRect",
    "clEnqueueCopyBufferRect",
    "clCreateSubDevicesEXT",
    "clRetainDeviceEXT",
    "clReleaseDeviceEXT",
    "clCreateEventFromGLsyncKHR",
    "clCreateSubDevices",
    "clRetainDevice",
    "clReleaseDevice",
    "clCreateImage",
    "clCreateProgramWithBuiltInKernels",
    "clCompileProgram",
    "clLinkProgram",
    "clUnloadPlatformCompiler",
    "clGetKernelArgInfo",
    "clEnqueueFillBuffer",
    "clEnqueueFillImage",
    "clEnqueueMigrateMemObjects",
    "clEnqueueMarkerWithWaitList",
    "clEnqueueBarrierWithWaitList",
    "clGetExtensionFunctionAddressForPlatform",
    "clCreateFromGLTexture",
    "clGetDeviceIDsFromD3D11KHR",
    "clCreateFromD3D11BufferKHR",
    "clCreateFromD3D11Texture2DKHR",
    "clCreateFromD3D11Texture3DKHR",
    "clCreateFromDX9MediaSurfaceKHR",
    "clEnqueueAcquireD3D11ObjectsKHR",
    "clEnqueueReleaseD3D11ObjectsKHR",
    "clGetDeviceIDsFromDX9MediaAdapterKHR",
    "clEnqueueAcquireDX9MediaSurfacesKHR",
    "clEnqueueReleaseDX9MediaSurfacesKHR",
    "clCreateFromEGLImageKHR",
    "clEnqueueAcquireEGLObjectsKHR",
    "clEnqueueReleaseEGLObjectsKHR",
    "clCreateEventFromEGLSyncKHR",
    "clCreateCommandQueueWithProperties",
    "clCreatePipe",
    "clGetPipeInfo",
    "clSVMAlloc",
    "clSVMFree",
    "clEnqueueSVMFree",
    "clEnqueueSVMMemcpy",
    "clEnqueueSVMMemFill",
    "clEnqueueSVMMap",
    "clEnqueueSVMUnmap",
    "clCreateSamplerWithProperties",
    "clSetKernelArgSVMPointer",
    "clSetKernelExecInfo",
    "clGetKernelSubGroupInfoKHR",
    "clCloneKernel",
    "clCreateProgramWithIL",
    "clEnqueueSVMMigrateMem",
    "clGetDeviceAndHostTimer",
    "clGetHostTimer",
    "clGetKernelSubGroupInfo",
    "clSetDefaultDeviceCommandQueue",
    "clSetProgramReleaseCallback",
    "clSetProgramSpecializationConstant",
    "clCreateBufferWithProperties",
    "clCreateImageWithProperties",
    "clSetContextDestructorCallback",
];

const _: () = assert!(size_of::<DispatchTable>() == SLOTS.len() * size_of::<usize>());
