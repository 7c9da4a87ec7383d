// Keeps a device busy with short kernels, several of them on their way at any time, and looks at every result: spin SECONDS (0: until it is
// killed). A program that waited for each one would leave the device to others in between, whatever its share.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ITEMS = 64, STEPS = 300000, FLYING = 8 };

static const char *source = "kernel void spin(global uint *out, uint steps) {\n"
                            "    uint x = (uint)get_global_id(0);\n"
                            "    for (uint i = 0; i < steps; i++) x = x * 1664525u + 1013904223u;\n"
                            "    out[get_global_id(0)] = x;\n"
                            "}\n";

static void check(const char *what, cl_int code) {
    if (code != CL_SUCCESS) {
        printf("%s: error %d\n", what, code);
        exit(3);
    }
}

int main(int count, char **words) {
    int seconds = count > 1 ? atoi(words[1]) : 0;
    cl_platform_id platform;
    cl_device_id device;
    cl_int code;
    check("clGetPlatformIDs", clGetPlatformIDs(1, &platform, NULL));
    check("clGetDeviceIDs", clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check("clCreateContext", code);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    check("clCreateCommandQueue", code);
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    check("clCreateProgramWithSource", code);
    check("clBuildProgram", clBuildProgram(program, 1, &device, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "spin", &code);
    check("clCreateKernel", code);
    cl_mem out = clCreateBuffer(context, CL_MEM_WRITE_ONLY, ITEMS * sizeof(cl_uint), NULL, &code);
    check("clCreateBuffer", code);
    cl_uint steps = STEPS;
    check("clSetKernelArg", clSetKernelArg(kernel, 0, sizeof out, &out));
    check("clSetKernelArg", clSetKernelArg(kernel, 1, sizeof steps, &steps));

    cl_uint expected = ITEMS - 1;
    for (cl_uint i = 0; i < STEPS; i++)
        expected = expected * 1664525u + 1013904223u;
    time_t end = time(NULL) + seconds;
    unsigned turns = 0;
    cl_uint results[FLYING][ITEMS];
    cl_event read[FLYING];
    for (unsigned turn = 0; !seconds || time(NULL) < end; turn++) {
        unsigned slot = turn % FLYING;
        if (turn >= FLYING) {
            check("clWaitForEvents", clWaitForEvents(1, &read[slot]));
            clReleaseEvent(read[slot]);
            if (results[slot][ITEMS - 1] != expected) {
                printf("a result is wrong\n");
                return 4;
            }
            turns++;
        }
        size_t items = ITEMS;
        check("clEnqueueNDRangeKernel", clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
        check("clEnqueueReadBuffer",
              clEnqueueReadBuffer(queue, out, CL_FALSE, 0, sizeof results[slot], results[slot], 0, NULL, &read[slot]));
        check("clFlush", clFlush(queue));
    }
    check("clFinish", clFinish(queue));
    printf("%u results, all right\n", turns);
    return 0;
}
