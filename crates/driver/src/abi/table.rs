//! The one list of entry points: it makes the dispatch table, the lookup by name and the coverage page,
//! so that they cannot disagree.

use std::ffi::{c_char, c_void};

use telecl_sys::*;

use super::exported::{clGetExtensionFunctionAddress, clIcdGetPlatformIDsKHR};
use super::{context, device, event, image, kernel, memory, pointer, program, queue, sampler, transfer, unsupported};

macro_rules! entry_points {
    ($($name:ident => $function:path, $what:literal;)*) => {
        /// What loaders call: every slot of OpenCL 3.0, filled.
        pub static DISPATCH: DispatchTable = DispatchTable { $($name: $function,)* };

        /// Every entry point and what it does, in slot order; `docs/opencl-coverage.md` is made of it.
        pub const COVERAGE: &[(&str, &str)] = &[$((stringify!($name), $what),)*];

        fn core_function(name: &[u8]) -> Option<*mut c_void> {
            $(if name == stringify!($name).as_bytes() {
                return Some($function as *mut c_void);
            })*
            None
        }
    };
}

entry_points! {
    clGetPlatformIDs => device::clGetPlatformIDs, "platforms of all configured services, nearest first";
    clGetPlatformInfo => device::clGetPlatformInfo, "cached from the handshake; the name carries the address; unknown queries are forwarded";
    clGetDeviceIDs => device::clGetDeviceIDs, "cached";
    clGetDeviceInfo => device::clGetDeviceInfo, "cached; unknown queries are forwarded; SVM and native kernels are masked";
    clCreateContext => context::clCreateContext, "one-way";
    clCreateContextFromType => context::clCreateContextFromType, "one-way";
    clRetainContext => context::clRetainContext, "local";
    clReleaseContext => context::clReleaseContext, "local; the last release is one-way";
    clGetContextInfo => context::clGetContextInfo, "local";
    clCreateCommandQueue => queue::clCreateCommandQueue, "one-way";
    clRetainCommandQueue => queue::clRetainCommandQueue, "local";
    clReleaseCommandQueue => queue::clReleaseCommandQueue, "local; the last release is one-way";
    clGetCommandQueueInfo => queue::clGetCommandQueueInfo, "local; vendor queries are forwarded";
    clSetCommandQueueProperty => queue::clSetCommandQueueProperty, "CL_INVALID_OPERATION (deprecated in OpenCL 1.1)";
    clCreateBuffer => memory::clCreateBuffer, "one-way, with its content";
    clCreateImage2D => image::clCreateImage2D, "one-way, with its content";
    clCreateImage3D => image::clCreateImage3D, "one-way, with its content";
    clRetainMemObject => memory::clRetainMemObject, "local";
    clReleaseMemObject => memory::clReleaseMemObject, "local; the last release is one-way";
    clGetSupportedImageFormats => image::clGetSupportedImageFormats, "asked once per kind of image";
    clGetMemObjectInfo => memory::clGetMemObjectInfo, "local";
    clGetImageInfo => memory::clGetImageInfo, "local";
    clCreateSampler => sampler::clCreateSampler, "one-way";
    clRetainSampler => sampler::clRetainSampler, "local";
    clReleaseSampler => sampler::clReleaseSampler, "local; the last release is one-way";
    clGetSamplerInfo => sampler::clGetSamplerInfo, "local";
    clCreateProgramWithSource => program::clCreateProgramWithSource, "one-way";
    clCreateProgramWithBinary => program::clCreateProgramWithBinary, "waits for the statuses";
    clRetainProgram => program::clRetainProgram, "local";
    clReleaseProgram => program::clReleaseProgram, "local; the last release is one-way";
    clBuildProgram => program::clBuildProgram, "waits, or calls back; sends include files";
    clUnloadCompiler => device::clUnloadCompiler, "a hint, ignored";
    clGetProgramInfo => program::clGetProgramInfo, "local; binaries are fetched";
    clGetProgramBuildInfo => program::clGetProgramBuildInfo, "local, from the build";
    clCreateKernel => kernel::clCreateKernel, "one-way";
    clCreateKernelsInProgram => kernel::clCreateKernelsInProgram, "one-way";
    clRetainKernel => kernel::clRetainKernel, "local";
    clReleaseKernel => kernel::clReleaseKernel, "local; the last release is one-way";
    clSetKernelArg => kernel::clSetKernelArg, "local; travels with the next run";
    clGetKernelInfo => kernel::clGetKernelInfo, "local, from the build";
    clGetKernelWorkGroupInfo => kernel::clGetKernelWorkGroupInfo, "local, from the build; memory sizes are asked for";
    clWaitForEvents => event::clWaitForEvents, "waits locally for completions";
    clGetEventInfo => event::clGetEventInfo, "local";
    clRetainEvent => event::clRetainEvent, "local";
    clReleaseEvent => event::clReleaseEvent, "local; the last release is one-way";
    clGetEventProfilingInfo => event::clGetEventProfilingInfo, "local: the device's own times";
    clFlush => queue::clFlush, "one-way";
    clFinish => queue::clFinish, "waits";
    clEnqueueReadBuffer => transfer::clEnqueueReadBuffer, "one-way; a blocking one waits for its data";
    clEnqueueWriteBuffer => transfer::clEnqueueWriteBuffer, "one-way; blocking ones too, once the data is sent";
    clEnqueueCopyBuffer => transfer::clEnqueueCopyBuffer, "one-way";
    clEnqueueReadImage => transfer::clEnqueueReadImage, "one-way; a blocking one waits for its data";
    clEnqueueWriteImage => transfer::clEnqueueWriteImage, "one-way; blocking ones too, once the data is sent";
    clEnqueueCopyImage => transfer::clEnqueueCopyImage, "one-way";
    clEnqueueCopyImageToBuffer => transfer::clEnqueueCopyImageToBuffer, "one-way";
    clEnqueueCopyBufferToImage => transfer::clEnqueueCopyBufferToImage, "one-way";
    clEnqueueMapBuffer => transfer::clEnqueueMapBuffer, "memory of this machine at once; a reading map fetches";
    clEnqueueMapImage => transfer::clEnqueueMapImage, "memory of this machine at once; a reading map fetches";
    clEnqueueUnmapMemObject => transfer::clEnqueueUnmapMemObject, "one-way; sends what may have been written";
    clEnqueueNDRangeKernel => kernel::clEnqueueNDRangeKernel, "one-way";
    clEnqueueTask => kernel::clEnqueueTask, "one-way";
    clEnqueueNativeKernel => unsupported::clEnqueueNativeKernel, "CL_INVALID_OPERATION: native kernels are not offered";
    clEnqueueMarker => queue::clEnqueueMarker, "one-way";
    clEnqueueWaitForEvents => queue::clEnqueueWaitForEvents, "one-way";
    clEnqueueBarrier => queue::clEnqueueBarrier, "one-way";
    clGetExtensionFunctionAddress => clGetExtensionFunctionAddress, "local";
    clCreateFromGLBuffer => unsupported::clCreateFromGLBuffer, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateFromGLTexture2D => unsupported::clCreateFromGLTexture2D, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateFromGLTexture3D => unsupported::clCreateFromGLTexture3D, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateFromGLRenderbuffer => unsupported::clCreateFromGLRenderbuffer, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clGetGLObjectInfo => unsupported::clGetGLObjectInfo, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clGetGLTextureInfo => unsupported::clGetGLTextureInfo, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clEnqueueAcquireGLObjects => unsupported::clEnqueueAcquireGLObjects, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clEnqueueReleaseGLObjects => unsupported::clEnqueueReleaseGLObjects, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clGetGLContextInfoKHR => unsupported::clGetGLContextInfoKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clGetDeviceIDsFromD3D10KHR => unsupported::clGetDeviceIDsFromD3D10KHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateFromD3D10BufferKHR => unsupported::clCreateFromD3D10BufferKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateFromD3D10Texture2DKHR => unsupported::clCreateFromD3D10Texture2DKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateFromD3D10Texture3DKHR => unsupported::clCreateFromD3D10Texture3DKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clEnqueueAcquireD3D10ObjectsKHR => unsupported::clEnqueueAcquireD3D10ObjectsKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clEnqueueReleaseD3D10ObjectsKHR => unsupported::clEnqueueReleaseD3D10ObjectsKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clSetEventCallback => event::clSetEventCallback, "local; CL_SUBMITTED and CL_RUNNING are watched for";
    clCreateSubBuffer => memory::clCreateSubBuffer, "one-way";
    clSetMemObjectDestructorCallback => memory::clSetMemObjectDestructorCallback, "local";
    clCreateUserEvent => event::clCreateUserEvent, "one-way";
    clSetUserEventStatus => event::clSetUserEventStatus, "one-way";
    clEnqueueReadBufferRect => transfer::clEnqueueReadBufferRect, "one-way; a blocking one waits for its data";
    clEnqueueWriteBufferRect => transfer::clEnqueueWriteBufferRect, "one-way; blocking ones too, once the data is sent";
    clEnqueueCopyBufferRect => transfer::clEnqueueCopyBufferRect, "one-way";
    clCreateSubDevicesEXT => device::clCreateSubDevicesEXT, "CL_INVALID_OPERATION (cl_ext_device_fission is not offered)";
    clRetainDeviceEXT => device::clRetainDevice, "local";
    clReleaseDeviceEXT => device::clReleaseDevice, "local; the last release is one-way";
    clCreateEventFromGLsyncKHR => unsupported::clCreateEventFromGLsyncKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateSubDevices => device::clCreateSubDevices, "waits for the answer";
    clRetainDevice => device::clRetainDevice, "local";
    clReleaseDevice => device::clReleaseDevice, "local; the last release is one-way";
    clCreateImage => image::clCreateImage, "one-way, with its content";
    clCreateProgramWithBuiltInKernels => program::clCreateProgramWithBuiltInKernels, "waits for the answer";
    clCompileProgram => program::clCompileProgram, "waits, or calls back; sends include files";
    clLinkProgram => program::clLinkProgram, "waits, or calls back";
    clUnloadPlatformCompiler => device::clUnloadPlatformCompiler, "a hint, ignored";
    clGetKernelArgInfo => kernel::clGetKernelArgInfo, "local, from the build";
    clEnqueueFillBuffer => transfer::clEnqueueFillBuffer, "one-way";
    clEnqueueFillImage => transfer::clEnqueueFillImage, "one-way";
    clEnqueueMigrateMemObjects => queue::clEnqueueMigrateMemObjects, "one-way";
    clEnqueueMarkerWithWaitList => queue::clEnqueueMarkerWithWaitList, "one-way";
    clEnqueueBarrierWithWaitList => queue::clEnqueueBarrierWithWaitList, "one-way";
    clGetExtensionFunctionAddressForPlatform => clGetExtensionFunctionAddressForPlatform, "local";
    clCreateFromGLTexture => unsupported::clCreateFromGLTexture, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clGetDeviceIDsFromD3D11KHR => unsupported::clGetDeviceIDsFromD3D11KHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateFromD3D11BufferKHR => unsupported::clCreateFromD3D11BufferKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateFromD3D11Texture2DKHR => unsupported::clCreateFromD3D11Texture2DKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateFromD3D11Texture3DKHR => unsupported::clCreateFromD3D11Texture3DKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateFromDX9MediaSurfaceKHR => unsupported::clCreateFromDX9MediaSurfaceKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clEnqueueAcquireD3D11ObjectsKHR => unsupported::clEnqueueAcquireD3D11ObjectsKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clEnqueueReleaseD3D11ObjectsKHR => unsupported::clEnqueueReleaseD3D11ObjectsKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clGetDeviceIDsFromDX9MediaAdapterKHR => unsupported::clGetDeviceIDsFromDX9MediaAdapterKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clEnqueueAcquireDX9MediaSurfacesKHR => unsupported::clEnqueueAcquireDX9MediaSurfacesKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clEnqueueReleaseDX9MediaSurfacesKHR => unsupported::clEnqueueReleaseDX9MediaSurfacesKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateFromEGLImageKHR => unsupported::clCreateFromEGLImageKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clEnqueueAcquireEGLObjectsKHR => unsupported::clEnqueueAcquireEGLObjectsKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clEnqueueReleaseEGLObjectsKHR => unsupported::clEnqueueReleaseEGLObjectsKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateEventFromEGLSyncKHR => unsupported::clCreateEventFromEGLSyncKHR, "CL_INVALID_OPERATION: sharing with graphics is not offered";
    clCreateCommandQueueWithProperties => queue::clCreateCommandQueueWithProperties, "one-way";
    clCreatePipe => memory::clCreatePipe, "one-way";
    clGetPipeInfo => memory::clGetPipeInfo, "local";
    clSVMAlloc => unsupported::clSVMAlloc, "returns NULL: devices report no SVM";
    clSVMFree => unsupported::clSVMFree, "does nothing: there is nothing to free";
    clEnqueueSVMFree => unsupported::clEnqueueSVMFree, "CL_INVALID_OPERATION: devices report no SVM";
    clEnqueueSVMMemcpy => unsupported::clEnqueueSVMMemcpy, "CL_INVALID_OPERATION: devices report no SVM";
    clEnqueueSVMMemFill => unsupported::clEnqueueSVMMemFill, "CL_INVALID_OPERATION: devices report no SVM";
    clEnqueueSVMMap => unsupported::clEnqueueSVMMap, "CL_INVALID_OPERATION: devices report no SVM";
    clEnqueueSVMUnmap => unsupported::clEnqueueSVMUnmap, "CL_INVALID_OPERATION: devices report no SVM";
    clCreateSamplerWithProperties => sampler::clCreateSamplerWithProperties, "one-way";
    clSetKernelArgSVMPointer => unsupported::clSetKernelArgSVMPointer, "CL_INVALID_OPERATION: devices report no SVM";
    clSetKernelExecInfo => unsupported::clSetKernelExecInfo, "CL_INVALID_OPERATION: devices report no SVM";
    clGetKernelSubGroupInfoKHR => kernel::clGetKernelSubGroupInfo, "waits for the answer";
    clCloneKernel => kernel::clCloneKernel, "one-way";
    clCreateProgramWithIL => program::clCreateProgramWithIL, "waits for the answer";
    clEnqueueSVMMigrateMem => unsupported::clEnqueueSVMMigrateMem, "CL_INVALID_OPERATION: devices report no SVM";
    clGetDeviceAndHostTimer => device::clGetDeviceAndHostTimer, "waits for the answer; the host time is this machine's";
    clGetHostTimer => device::clGetHostTimer, "local";
    clGetKernelSubGroupInfo => kernel::clGetKernelSubGroupInfo, "waits for the answer";
    clSetDefaultDeviceCommandQueue => queue::clSetDefaultDeviceCommandQueue, "waits for the answer";
    clSetProgramReleaseCallback => program::clSetProgramReleaseCallback, "local";
    clSetProgramSpecializationConstant => program::clSetProgramSpecializationConstant, "waits for the answer";
    clCreateBufferWithProperties => memory::clCreateBufferWithProperties, "one-way, with its content";
    clCreateImageWithProperties => image::clCreateImageWithProperties, "one-way, with its content";
    clSetContextDestructorCallback => context::clSetContextDestructorCallback, "local";
}

/// `clGetExtensionFunctionAddress`: functions of the extensions that we offer, and core functions under
/// their own names.
///
/// # Safety
/// `name` is null or a NUL-terminated string.
pub(super) unsafe fn extension_function(name: *const c_char) -> *mut c_void {
    // SAFETY: by this function's contract.
    match unsafe { pointer::text(name) } {
        b"clIcdGetPlatformIDsKHR" => clIcdGetPlatformIDsKHR as *mut c_void,
        b"clCreateProgramWithILKHR" => program::clCreateProgramWithIL as *mut c_void,
        b"clCreateCommandQueueWithPropertiesKHR" => queue::clCreateCommandQueueWithProperties as *mut c_void,
        name => core_function(name).unwrap_or(std::ptr::null_mut()),
    }
}

unsafe extern "C" fn clGetExtensionFunctionAddressForPlatform(
    platform: cl_platform_id,
    name: *const c_char,
) -> *mut c_void {
    if crate::api::find_platform(platform as usize).is_err() {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's string.
    unsafe { extension_function(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_slot_in_order() {
        let names: Vec<&str> = COVERAGE.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, SLOTS);
    }

    #[test]
    fn functions_are_found_by_name_and_unknown_ones_are_not() {
        // SAFETY: C string literals.
        unsafe {
            assert!(!extension_function(c"clIcdGetPlatformIDsKHR".as_ptr()).is_null());
            assert_eq!(extension_function(c"clFinish".as_ptr()), DISPATCH.clFinish as *mut c_void);
            assert!(extension_function(c"clNoSuchFunction".as_ptr()).is_null());
        }
    }
}
