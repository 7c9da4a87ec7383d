/* The program in the tests of policies from objects (tests/kube/agent): keeps its device busy, and takes memory when it is told to.
 * A line "alloc BYTES" on stdin is answered by the status of clCreateBuffer, a line "node" by the node's address. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include "../../include/telecl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cl_device_id device;
static cl_context context;

static const char *source =
    "__kernel void spin(__global uint *out, uint rounds) {"
    "  uint x = get_global_id(0) + 1;"
    "  for (uint i = 0; i < rounds; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; }"
    "  out[get_global_id(0)] = x;"
    "}";

static void need(cl_int status, const char *what) {
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s: %d\n", what, status);
        exit(1);
    }
}

static void *keep_busy(void *nothing) {
    (void)nothing;
    cl_int status;
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    need(status, "queue");
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
    need(status, "program");
    need(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
    cl_kernel kernel = clCreateKernel(program, "spin", &status);
    need(status, "kernel");
    size_t size = 64;
    cl_mem out = clCreateBuffer(context, CL_MEM_READ_WRITE, 4 * size, NULL, &status);
    need(status, "buffer");
    cl_uint rounds = 2000000;
    need(clSetKernelArg(kernel, 0, sizeof out, &out), "argument");
    need(clSetKernelArg(kernel, 1, sizeof rounds, &rounds), "argument");
    for (;;) {
        need(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &size, NULL, 0, NULL, NULL), "run");
        need(clFinish(queue), "finish");
    }
    return NULL;
}

int main(int argc, char **argv) {
    cl_platform_id platform;
    cl_int status;
    need(clGetPlatformIDs(1, &platform, NULL), "platform");
    need(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    need(status, "context");
    pthread_t thread;
    if (argc > 1 && !strcmp(argv[1], "busy") && pthread_create(&thread, NULL, keep_busy, NULL)) return 1;
    printf("ready\n");
    fflush(stdout);
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long bytes;
        char text[200] = "";
        if (sscanf(line, "alloc %llu", &bytes) == 1) {
            clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &status);
            printf("%d\n", status);
        } else if (!strncmp(line, "node", 4)) {
            clGetDeviceInfo(device, CL_DEVICE_TELECL_NODE_ADDRESS, sizeof text, text, NULL);
            printf("%s\n", text);
        }
        fflush(stdout);
    }
    return 0;
}
