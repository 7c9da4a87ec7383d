/* Keeps a device busy for as many seconds as it is told, and says with which error it ended, if with one.
 * It builds no kernel, so it begins at once. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static char data[1 << 20];

static int failed(const char *what, cl_int error)
{
    if (error != CL_SUCCESS) {
        printf("%s: %d\n", what, error);
        fflush(stdout);
        /* Callbacks come from another thread. */
        struct timespec pause = {1, 0};
        nanosleep(&pause, NULL);
    }
    return error != CL_SUCCESS;
}

static void CL_CALLBACK told(const char *info, const void *more, size_t size, void *user)
{
    (void)more, (void)size, (void)user;
    printf("told: %s\n", info);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
    cl_platform_id platform;
    cl_device_id device;
    cl_int error = clGetPlatformIDs(1, &platform, NULL);
    if (failed("clGetPlatformIDs", error)) return 1;
    error = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    if (failed("clGetDeviceIDs", error)) return 1;
    cl_context context = clCreateContext(NULL, 1, &device, told, NULL, &error);
    if (failed("clCreateContext", error)) return 1;
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    if (failed("clCreateCommandQueue", error)) return 1;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof data, NULL, &error);
    if (failed("clCreateBuffer", error)) return 1;
    puts("begun");
    fflush(stdout);
    while (time(NULL) < end) {
        error = clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof data, data, 0, NULL, NULL);
        if (failed("clEnqueueWriteBuffer", error)) return 1;
        error = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof data, data, 0, NULL, NULL);
        if (failed("clEnqueueReadBuffer", error)) return 1;
        struct timespec pause = {0, 20 * 1000 * 1000};
        nanosleep(&pause, NULL);
    }
    puts("done");
    return 0;
}
