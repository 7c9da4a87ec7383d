//! The vendor's `libOpenCL`: found, opened once, and every function looked up by its name.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::sync::OnceLock;

use telecl_sys::*;

/// Names a library that is used instead of the system's `libOpenCL.so.1`.
const OVERRIDE: &str = "TELECL_OPENCL_LIBRARY";

/// Why there is no OpenCL to use.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot open the OpenCL library {name:?}")]
    Open {
        name: OsString,
        #[source]
        cause: libloading::Error,
    },
    #[error("the OpenCL library {library:?} has no function {function}")]
    Incomplete {
        library: OsString,
        function: &'static str,
        #[source]
        cause: libloading::Error,
    },
}

macro_rules! library {
    (required { $($required:ident: $required_t:ty,)* } optional { $($optional:ident: $optional_t:ty,)* }) => {
        /// The functions of a loaded OpenCL.
        ///
        /// Those of OpenCL 1.0 that no version has dropped are always there; any other may be missing.
        #[allow(non_snake_case)]
        pub struct Library {
            name: OsString,
            $(pub $required: $required_t,)*
            $(pub $optional: Option<$optional_t>,)*
        }

        impl Library {
            fn resolve(name: OsString, library: &libloading::Library) -> Result<Self, LoadError> {
                Ok(Self {
                    $($required: {
                        let symbol = concat!(stringify!($required), "\0").as_bytes();
                        // SAFETY: the symbol is the function of that name in the OpenCL ABI, which has this type.
                        match unsafe { library.get::<$required_t>(symbol) } {
                            Ok(function) => *function,
                            Err(cause) => {
                                let function = stringify!($required);
                                return Err(LoadError::Incomplete { library: name, function, cause });
                            }
                        }
                    },)*
                    $($optional: {
                        let symbol = concat!(stringify!($optional), "\0").as_bytes();
                        // SAFETY: the symbol is the function of that name in the OpenCL ABI, which has this type.
                        unsafe { library.get::<$optional_t>(symbol) }.ok().map(|function| *function)
                    },)*
                    name,
                })
            }
        }
    };
}

library! {
    required {
        clGetPlatformIDs: clGetPlatformIDs_t,
        clGetPlatformInfo: clGetPlatformInfo_t,
        clGetDeviceIDs: clGetDeviceIDs_t,
        clGetDeviceInfo: clGetDeviceInfo_t,
        clCreateContext: clCreateContext_t,
        clCreateContextFromType: clCreateContextFromType_t,
        clRetainContext: clRetainContext_t,
        clReleaseContext: clReleaseContext_t,
        clGetContextInfo: clGetContextInfo_t,
        clRetainCommandQueue: clRetainCommandQueue_t,
        clReleaseCommandQueue: clReleaseCommandQueue_t,
        clGetCommandQueueInfo: clGetCommandQueueInfo_t,
        clCreateBuffer: clCreateBuffer_t,
        clRetainMemObject: clRetainMemObject_t,
        clReleaseMemObject: clReleaseMemObject_t,
        clGetSupportedImageFormats: clGetSupportedImageFormats_t,
        clGetMemObjectInfo: clGetMemObjectInfo_t,
        clGetImageInfo: clGetImageInfo_t,
        clRetainSampler: clRetainSampler_t,
        clReleaseSampler: clReleaseSampler_t,
        clGetSamplerInfo: clGetSamplerInfo_t,
        clCreateProgramWithSource: clCreateProgramWithSource_t,
        clCreateProgramWithBinary: clCreateProgramWithBinary_t,
        clRetainProgram: clRetainProgram_t,
        clReleaseProgram: clReleaseProgram_t,
        clBuildProgram: clBuildProgram_t,
        clGetProgramInfo: clGetProgramInfo_t,
        clGetProgramBuildInfo: clGetProgramBuildInfo_t,
        clCreateKernel: clCreateKernel_t,
        clCreateKernelsInProgram: clCreateKernelsInProgram_t,
        clRetainKernel: clRetainKernel_t,
        clReleaseKernel: clReleaseKernel_t,
        clSetKernelArg: clSetKernelArg_t,
        clGetKernelInfo: clGetKernelInfo_t,
        clGetKernelWorkGroupInfo: clGetKernelWorkGroupInfo_t,
        clWaitForEvents: clWaitForEvents_t,
        clGetEventInfo: clGetEventInfo_t,
        clRetainEvent: clRetainEvent_t,
        clReleaseEvent: clReleaseEvent_t,
        clGetEventProfilingInfo: clGetEventProfilingInfo_t,
        clFlush: clFlush_t,
        clFinish: clFinish_t,
        clEnqueueReadBuffer: clEnqueueReadBuffer_t,
        clEnqueueWriteBuffer: clEnqueueWriteBuffer_t,
        clEnqueueCopyBuffer: clEnqueueCopyBuffer_t,
        clEnqueueReadImage: clEnqueueReadImage_t,
        clEnqueueWriteImage: clEnqueueWriteImage_t,
        clEnqueueCopyImage: clEnqueueCopyImage_t,
        clEnqueueCopyImageToBuffer: clEnqueueCopyImageToBuffer_t,
        clEnqueueCopyBufferToImage: clEnqueueCopyBufferToImage_t,
        clEnqueueMapBuffer: clEnqueueMapBuffer_t,
        clEnqueueMapImage: clEnqueueMapImage_t,
        clEnqueueUnmapMemObject: clEnqueueUnmapMemObject_t,
        clEnqueueNDRangeKernel: clEnqueueNDRangeKernel_t,
    }
    optional {
        clCreateCommandQueue: clCreateCommandQueue_t,
        clSetCommandQueueProperty: clSetCommandQueueProperty_t,
        clCreateImage2D: clCreateImage2D_t,
        clCreateImage3D: clCreateImage3D_t,
        clCreateSampler: clCreateSampler_t,
        clUnloadCompiler: clUnloadCompiler_t,
        clEnqueueTask: clEnqueueTask_t,
        clEnqueueNativeKernel: clEnqueueNativeKernel_t,
        clEnqueueMarker: clEnqueueMarker_t,
        clEnqueueWaitForEvents: clEnqueueWaitForEvents_t,
        clEnqueueBarrier: clEnqueueBarrier_t,
        clGetExtensionFunctionAddress: clGetExtensionFunctionAddress_t,
        clSetEventCallback: clSetEventCallback_t,
        clCreateSubBuffer: clCreateSubBuffer_t,
        clSetMemObjectDestructorCallback: clSetMemObjectDestructorCallback_t,
        clCreateUserEvent: clCreateUserEvent_t,
        clSetUserEventStatus: clSetUserEventStatus_t,
        clEnqueueReadBufferRect: clEnqueueReadBufferRect_t,
        clEnqueueWriteBufferRect: clEnqueueWriteBufferRect_t,
        clEnqueueCopyBufferRect: clEnqueueCopyBufferRect_t,
        clCreateSubDevices: clCreateSubDevices_t,
        clRetainDevice: clRetainDevice_t,
        clReleaseDevice: clReleaseDevice_t,
        clCreateImage: clCreateImage_t,
        clCreateProgramWithBuiltInKernels: clCreateProgramWithBuiltInKernels_t,
        clCompileProgram: clCompileProgram_t,
        clLinkProgram: clLinkProgram_t,
        clUnloadPlatformCompiler: clUnloadPlatformCompiler_t,
        clGetKernelArgInfo: clGetKernelArgInfo_t,
        clEnqueueFillBuffer: clEnqueueFillBuffer_t,
        clEnqueueFillImage: clEnqueueFillImage_t,
        clEnqueueMigrateMemObjects: clEnqueueMigrateMemObjects_t,
        clEnqueueMarkerWithWaitList: clEnqueueMarkerWithWaitList_t,
        clEnqueueBarrierWithWaitList: clEnqueueBarrierWithWaitList_t,
        clGetExtensionFunctionAddressForPlatform: clGetExtensionFunctionAddressForPlatform_t,
        clCreateCommandQueueWithProperties: clCreateCommandQueueWithProperties_t,
        clCreatePipe: clCreatePipe_t,
        clGetPipeInfo: clGetPipeInfo_t,
        clSVMAlloc: clSVMAlloc_t,
        clSVMFree: clSVMFree_t,
        clEnqueueSVMFree: clEnqueueSVMFree_t,
        clEnqueueSVMMemcpy: clEnqueueSVMMemcpy_t,
        clEnqueueSVMMemFill: clEnqueueSVMMemFill_t,
        clEnqueueSVMMap: clEnqueueSVMMap_t,
        clEnqueueSVMUnmap: clEnqueueSVMUnmap_t,
        clCreateSamplerWithProperties: clCreateSamplerWithProperties_t,
        clSetKernelArgSVMPointer: clSetKernelArgSVMPointer_t,
        clSetKernelExecInfo: clSetKernelExecInfo_t,
        clCloneKernel: clCloneKernel_t,
        clCreateProgramWithIL: clCreateProgramWithIL_t,
        clEnqueueSVMMigrateMem: clEnqueueSVMMigrateMem_t,
        clGetDeviceAndHostTimer: clGetDeviceAndHostTimer_t,
        clGetHostTimer: clGetHostTimer_t,
        clGetKernelSubGroupInfo: clGetKernelSubGroupInfo_t,
        clSetDefaultDeviceCommandQueue: clSetDefaultDeviceCommandQueue_t,
        clSetProgramReleaseCallback: clSetProgramReleaseCallback_t,
        clSetProgramSpecializationConstant: clSetProgramSpecializationConstant_t,
        clCreateBufferWithProperties: clCreateBufferWithProperties_t,
        clCreateImageWithProperties: clCreateImageWithProperties_t,
        clSetContextDestructorCallback: clSetContextDestructorCallback_t,
    }
}

impl Library {
    /// The node's OpenCL, opened by the first call and kept until the process ends.
    ///
    /// The first call lists all devices, so it takes as long as the drivers take to start, and starts their threads: call
    /// it in the process that uses it, not before a fork. It is never closed: drivers leave threads and exit handlers behind in their own text.
    pub fn load() -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<&'static Library> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(library);
        }
        let library = Self::open()?;
        Ok(LOADED.get_or_init(|| {
            let library: &'static Self = Box::leak(Box::new(library));
            library.wake_platforms();
            library
        }))
    }

    /// Asks every platform for its devices once, while no other thread can.
    ///
    /// PoCL 3.1 sets its devices up in the first `clGetDeviceIDs`, and answers CL_DEVICE_NOT_FOUND to any other thread
    /// that asks meanwhile.
    fn wake_platforms(&'static self) {
        for platform in self.platforms().unwrap_or_default() {
            // A platform that fails here says so again to whoever uses it.
            let _ = platform.devices(CL_DEVICE_TYPE_ALL);
        }
    }

    /// The name under which the library was found.
    pub fn name(&self) -> &OsString {
        &self.name
    }

    fn open() -> Result<Self, LoadError> {
        let (name, opened) = match env::var_os(OVERRIDE) {
            Some(name) => (name.clone(), open(&name)?),
            None => {
                let name = OsString::from("libOpenCL.so.1");
                match open(&name) {
                    Ok(opened) => (name, opened),
                    Err(first) => {
                        let fallback = OsString::from("libOpenCL.so");
                        // The error of the name that ought to exist says more than that of the fallback.
                        let opened = open(&fallback).map_err(|_| first)?;
                        (fallback, opened)
                    }
                }
            }
        };
        let library = Self::resolve(name, &opened)?;
        // Never closed, so the function pointers that were copied out stay valid.
        std::mem::forget(opened);
        Ok(library)
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The function, or `CL_INVALID_OPERATION` if the loaded OpenCL is too old to have it.
pub(crate) fn need<F: Copy>(function: Option<F>) -> ClResult<F> {
    function.ok_or(ClError(CL_INVALID_OPERATION))
}

fn open(name: &OsString) -> Result<libloading::Library, LoadError> {
    // SAFETY: runs the initialisers of the system's OpenCL loader and nothing else: the name is fixed, or given by the
    // operator in the environment of the service.
    unsafe { libloading::Library::new(name) }.map_err(|cause| LoadError::Open { name: name.clone(), cause })
}
