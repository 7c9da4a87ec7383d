// An OpenCL loader for images with musl that have none: libOpenCL.so.1 of the driver's image, the last place where musl looks.
//
// It loads the drivers that the files in /etc/OpenCL/vendors name, and passes every call on: each OpenCL object begins with a pointer
// to the table of its driver's functions. It is small because it need not be more: an image's own loader comes first wherever there is one.
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl_icd.h>
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define VENDORS "/etc/OpenCL/vendors"
#define CL_PLATFORM_NOT_FOUND_KHR -1001

enum { MOST_PLATFORMS = 64, MOST_DRIVERS = 32 };

typedef cl_int (*platforms_t)(cl_uint, cl_platform_id *, cl_uint *);
typedef void *(*address_t)(const char *);

static cl_platform_id platforms[MOST_PLATFORMS];
static cl_uint platform_count;
static address_t addresses[MOST_DRIVERS];
static unsigned driver_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

// Takes up the platforms of a driver. One that cannot be loaded is left out, as every loader does.
static void load_driver(const char *library) {
    void *driver = dlopen(library, RTLD_NOW);
    address_t address = driver ? (address_t)dlsym(driver, "clGetExtensionFunctionAddress") : 0;
    platforms_t find = address ? (platforms_t)address("clIcdGetPlatformIDsKHR") : 0;
    cl_uint found = 0, room = MOST_PLATFORMS - platform_count;
    if (!find || driver_count == MOST_DRIVERS || room == 0 || find(room, platforms + platform_count, &found) != CL_SUCCESS)
        return;
    platform_count += found < room ? found : room;
    addresses[driver_count++] = address;
}

static void load_drivers(void) {
    DIR *vendors = opendir(VENDORS);
    if (!vendors)
        return;
    for (struct dirent *entry; (entry = readdir(vendors));) {
        char path[512], library[512];
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".icd") != 0)
            continue;
        snprintf(path, sizeof path, VENDORS "/%s", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(library, sizeof library, file)) {
            library[strcspn(library, "\r\n")] = 0;
            load_driver(library);
        }
        if (file)
            fclose(file);
    }
    closedir(vendors);
}

static const cl_icd_dispatch *table_of(const void *object) {
    return *(const cl_icd_dispatch *const *)object;
}

// The calls whose first argument does not say whose they are.

cl_int CL_API_CALL clGetPlatformIDs(cl_uint room, cl_platform_id *out, cl_uint *count) {
    // CL_INVALID_VALUE if num_entries is equal to zero and platforms is not NULL or if both are NULL.
    if ((room == 0 && out) || (!out && !count))
        return CL_INVALID_VALUE;
    pthread_once(&once, load_drivers);
    if (count)
        *count = platform_count;
    for (cl_uint number = 0; out && number < room && number < platform_count; number++)
        out[number] = platforms[number];
    return platform_count ? CL_SUCCESS : CL_PLATFORM_NOT_FOUND_KHR;
}

static cl_platform_id platform_in(const cl_context_properties *properties) {
    for (; properties && properties[0]; properties += 2)
        if (properties[0] == CL_CONTEXT_PLATFORM)
            return (cl_platform_id)properties[1];
    pthread_once(&once, load_drivers);
    return platform_count ? platforms[0] : NULL;
}

cl_context CL_API_CALL clCreateContext(const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
                                       void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *error) {
    // CL_INVALID_VALUE if devices is NULL or if num_devices is equal to zero.
    if (!devices || count == 0 || !devices[0]) {
        if (error)
            *error = devices && count ? CL_INVALID_DEVICE : CL_INVALID_VALUE;
        return NULL;
    }
    return table_of(devices[0])->clCreateContext(properties, count, devices, notify, data, error);
}

cl_context CL_API_CALL clCreateContextFromType(const cl_context_properties *properties, cl_device_type type,
                                               void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *error) {
    cl_platform_id platform = platform_in(properties);
    if (!platform) {
        if (error)
            *error = CL_INVALID_PLATFORM;
        return NULL;
    }
    return table_of(platform)->clCreateContextFromType(properties, type, notify, data, error);
}

cl_int CL_API_CALL clWaitForEvents(cl_uint count, const cl_event *events) {
    // CL_INVALID_VALUE if num_events is zero or event_list is NULL.
    if (count == 0 || !events)
        return CL_INVALID_VALUE;
    return events[0] ? table_of(events[0])->clWaitForEvents(count, events) : CL_INVALID_EVENT;
}

cl_int CL_API_CALL clUnloadCompiler(void) {
    return CL_SUCCESS;
}

void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
    pthread_once(&once, load_drivers);
    for (unsigned number = 0; name && number < driver_count; number++) {
        void *found = addresses[number](name);
        if (found)
            return found;
    }
    return NULL;
}

// All others: name, and what it answers if there is no object. What they return and take besides stays where it is, in registers
// and on the stack, so one jump serves them all. (Functions that return an object answer NULL.)
#define CALLS(X) \
    X(clGetPlatformInfo, CL_INVALID_PLATFORM) \
    X(clGetDeviceIDs, CL_INVALID_PLATFORM) \
    X(clUnloadPlatformCompiler, CL_INVALID_PLATFORM) \
    X(clGetDeviceInfo, CL_INVALID_DEVICE) \
    X(clCreateSubDevicesEXT, CL_INVALID_DEVICE) \
    X(clRetainDeviceEXT, CL_INVALID_DEVICE) \
    X(clReleaseDeviceEXT, CL_INVALID_DEVICE) \
    X(clCreateSubDevices, CL_INVALID_DEVICE) \
    X(clRetainDevice, CL_INVALID_DEVICE) \
    X(clReleaseDevice, CL_INVALID_DEVICE) \
    X(clGetDeviceAndHostTimer, CL_INVALID_DEVICE) \
    X(clGetHostTimer, CL_INVALID_DEVICE) \
    X(clRetainContext, CL_INVALID_CONTEXT) \
    X(clReleaseContext, CL_INVALID_CONTEXT) \
    X(clGetContextInfo, CL_INVALID_CONTEXT) \
    X(clGetSupportedImageFormats, CL_INVALID_CONTEXT) \
    X(clSetDefaultDeviceCommandQueue, CL_INVALID_CONTEXT) \
    X(clSetContextDestructorCallback, CL_INVALID_CONTEXT) \
    X(clCreateCommandQueue, 0) \
    X(clCreateBuffer, 0) \
    X(clCreateImage2D, 0) \
    X(clCreateImage3D, 0) \
    X(clCreateSampler, 0) \
    X(clCreateProgramWithSource, 0) \
    X(clCreateProgramWithBinary, 0) \
    X(clCreateKernel, 0) \
    X(clEnqueueMapBuffer, 0) \
    X(clEnqueueMapImage, 0) \
    X(clCreateFromGLBuffer, 0) \
    X(clCreateFromGLTexture2D, 0) \
    X(clCreateFromGLTexture3D, 0) \
    X(clCreateFromGLRenderbuffer, 0) \
    X(clCreateSubBuffer, 0) \
    X(clCreateUserEvent, 0) \
    X(clCreateEventFromGLsyncKHR, 0) \
    X(clCreateImage, 0) \
    X(clCreateProgramWithBuiltInKernels, 0) \
    X(clLinkProgram, 0) \
    X(clGetExtensionFunctionAddressForPlatform, 0) \
    X(clCreateFromGLTexture, 0) \
    X(clCreateFromEGLImageKHR, 0) \
    X(clCreateEventFromEGLSyncKHR, 0) \
    X(clCreateCommandQueueWithProperties, 0) \
    X(clCreatePipe, 0) \
    X(clSVMAlloc, 0) \
    X(clSVMFree, 0) \
    X(clCreateSamplerWithProperties, 0) \
    X(clCloneKernel, 0) \
    X(clCreateProgramWithIL, 0) \
    X(clCreateBufferWithProperties, 0) \
    X(clCreateImageWithProperties, 0) \
    X(clRetainCommandQueue, CL_INVALID_COMMAND_QUEUE) \
    X(clReleaseCommandQueue, CL_INVALID_COMMAND_QUEUE) \
    X(clGetCommandQueueInfo, CL_INVALID_COMMAND_QUEUE) \
    X(clSetCommandQueueProperty, CL_INVALID_COMMAND_QUEUE) \
    X(clFlush, CL_INVALID_COMMAND_QUEUE) \
    X(clFinish, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueReadBuffer, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueWriteBuffer, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueCopyBuffer, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueReadImage, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueWriteImage, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueCopyImage, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueCopyImageToBuffer, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueCopyBufferToImage, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueUnmapMemObject, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueNDRangeKernel, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueTask, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueNativeKernel, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueMarker, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueWaitForEvents, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueBarrier, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueAcquireGLObjects, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueReleaseGLObjects, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueReadBufferRect, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueWriteBufferRect, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueCopyBufferRect, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueFillBuffer, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueFillImage, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueMigrateMemObjects, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueMarkerWithWaitList, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueBarrierWithWaitList, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueAcquireEGLObjectsKHR, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueReleaseEGLObjectsKHR, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueSVMFree, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueSVMMemcpy, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueSVMMemFill, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueSVMMap, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueSVMUnmap, CL_INVALID_COMMAND_QUEUE) \
    X(clEnqueueSVMMigrateMem, CL_INVALID_COMMAND_QUEUE) \
    X(clRetainMemObject, CL_INVALID_MEM_OBJECT) \
    X(clReleaseMemObject, CL_INVALID_MEM_OBJECT) \
    X(clGetMemObjectInfo, CL_INVALID_MEM_OBJECT) \
    X(clGetImageInfo, CL_INVALID_MEM_OBJECT) \
    X(clGetGLObjectInfo, CL_INVALID_MEM_OBJECT) \
    X(clGetGLTextureInfo, CL_INVALID_MEM_OBJECT) \
    X(clSetMemObjectDestructorCallback, CL_INVALID_MEM_OBJECT) \
    X(clGetPipeInfo, CL_INVALID_MEM_OBJECT) \
    X(clRetainSampler, CL_INVALID_SAMPLER) \
    X(clReleaseSampler, CL_INVALID_SAMPLER) \
    X(clGetSamplerInfo, CL_INVALID_SAMPLER) \
    X(clRetainProgram, CL_INVALID_PROGRAM) \
    X(clReleaseProgram, CL_INVALID_PROGRAM) \
    X(clBuildProgram, CL_INVALID_PROGRAM) \
    X(clGetProgramInfo, CL_INVALID_PROGRAM) \
    X(clGetProgramBuildInfo, CL_INVALID_PROGRAM) \
    X(clCreateKernelsInProgram, CL_INVALID_PROGRAM) \
    X(clCompileProgram, CL_INVALID_PROGRAM) \
    X(clSetProgramReleaseCallback, CL_INVALID_PROGRAM) \
    X(clSetProgramSpecializationConstant, CL_INVALID_PROGRAM) \
    X(clRetainKernel, CL_INVALID_KERNEL) \
    X(clReleaseKernel, CL_INVALID_KERNEL) \
    X(clSetKernelArg, CL_INVALID_KERNEL) \
    X(clGetKernelInfo, CL_INVALID_KERNEL) \
    X(clGetKernelWorkGroupInfo, CL_INVALID_KERNEL) \
    X(clGetKernelArgInfo, CL_INVALID_KERNEL) \
    X(clSetKernelArgSVMPointer, CL_INVALID_KERNEL) \
    X(clSetKernelExecInfo, CL_INVALID_KERNEL) \
    X(clGetKernelSubGroupInfoKHR, CL_INVALID_KERNEL) \
    X(clGetKernelSubGroupInfo, CL_INVALID_KERNEL) \
    X(clGetEventInfo, CL_INVALID_EVENT) \
    X(clRetainEvent, CL_INVALID_EVENT) \
    X(clReleaseEvent, CL_INVALID_EVENT) \
    X(clGetEventProfilingInfo, CL_INVALID_EVENT) \
    X(clSetEventCallback, CL_INVALID_EVENT) \
    X(clSetUserEventStatus, CL_INVALID_EVENT)

#define FORWARD(call, none)                                                                     \
    void forward_##call(void) __asm__(#call);                                                   \
    __attribute__((naked)) void forward_##call(void) {                                          \
        __asm__("test %%rdi, %%rdi\n\tjz 1f\n\tmov (%%rdi), %%rax\n\tjmp *%c0(%%rax)\n"         \
                "1:\tmov %1, %%rax\n\tret" ::"i"(offsetof(cl_icd_dispatch, call)), "i"(none)); \
    }
CALLS(FORWARD)
