/* A program of an image with musl, for which Debian has no OpenCL loader: it loads the driver that OCL_ICD_VENDORS names, as a loader
 * does, and doubles some numbers on each of its devices. */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 1000

static const char *source = "kernel void twice(global int *n) { n[get_global_id(0)] *= 2; }";

/* The driver's library, by its ICD file. */
static void *load(void)
{
    char path[512], library[512];
    snprintf(path, sizeof path, "%s/telecl.icd", getenv("OCL_ICD_VENDORS"));
    FILE *file = fopen(path, "r");
    if (!file || !fgets(library, sizeof library, file)) {
        printf("cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    library[strcspn(library, "\n")] = 0;
    void *driver = dlopen(library, RTLD_NOW);
    if (!driver) {
        printf("cannot load it: %s\n", dlerror());
        exit(1);
    }
    return driver;
}

static void must(const char *what, cl_int error)
{
    if (error != CL_SUCCESS) {
        printf("%s: %d\n", what, error);
        exit(1);
    }
}

static void use(const cl_icd_dispatch *cl, cl_device_id device)
{
    static int numbers[COUNT];
    size_t count = COUNT;
    char name[256];
    cl_int error;
    for (int i = 0; i < COUNT; i++) numbers[i] = i;
    must("clGetDeviceInfo", cl->clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL));
    cl_context context = cl->clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    must("clCreateContext", error);
    cl_command_queue queue = cl->clCreateCommandQueue(context, device, 0, &error);
    must("clCreateCommandQueue", error);
    cl_mem buffer = cl->clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof numbers, numbers, &error);
    must("clCreateBuffer", error);
    cl_program program = cl->clCreateProgramWithSource(context, 1, &source, NULL, &error);
    must("clCreateProgramWithSource", error);
    must("clBuildProgram", cl->clBuildProgram(program, 1, &device, "", NULL, NULL));
    cl_kernel kernel = cl->clCreateKernel(program, "twice", &error);
    must("clCreateKernel", error);
    must("clSetKernelArg", cl->clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    must("clEnqueueNDRangeKernel", cl->clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
    must("clEnqueueReadBuffer", cl->clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof numbers, numbers, 0, NULL, NULL));
    for (int i = 0; i < COUNT; i++) {
        if (numbers[i] != 2 * i) must("twice", -1);
    }
    printf("Device #: %s computes\n", name);
    must("clReleaseContext", cl->clReleaseContext(context));
}

int main(void)
{
    typedef cl_int (*platforms_t)(cl_uint, cl_platform_id *, cl_uint *);
    typedef void *(*address_t)(const char *);
    address_t address = (address_t)dlsym(load(), "clGetExtensionFunctionAddress");
    platforms_t find = address ? (platforms_t)address("clIcdGetPlatformIDsKHR") : NULL;
    cl_platform_id platforms[8];
    cl_device_id devices[8];
    cl_uint platform_count = 0, device_count = 0;
    if (!find) must("clIcdGetPlatformIDsKHR", -1);
    must("clIcdGetPlatformIDsKHR", find(8, platforms, &platform_count));
    for (cl_uint i = 0; i < platform_count && i < 8; i++) {
        /* Every object of OpenCL begins with a pointer to its driver's functions. */
        const cl_icd_dispatch *cl = *(const cl_icd_dispatch **)platforms[i];
        must("clGetDeviceIDs", cl->clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 8, devices, &device_count));
        for (cl_uint j = 0; j < device_count && j < 8; j++) use(cl, devices[j]);
    }
    return 0;
}
