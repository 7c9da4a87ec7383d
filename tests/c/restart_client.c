/* The program in the tests of services that are restarted (tests/restart.rs): computes for TELECL_TEST_SECONDS, or until
 * there is a file TELECL_TEST_STOP, and checks everything. Whatever happens to the service meanwhile must not be noticed. */
#include "common.h"
#include "../../include/telecl.h"

static uint32_t draw(uint32_t *state) { return *state = *state * 747796405u + 2891336453u; }

static void begin(void) {
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &err));
    queue = MADE(clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &err));
}

static const char *source = "kernel void advance(global uint *a) {\n"
                            "    size_t i = get_global_id(0);\n"
                            "    a[i] = a[i] * FACTOR + 1013904223u;\n"
                            "}\n";

/* A kernel with a factor of its own: another program for the compiler, and for the cache. */
static cl_kernel kernel_with(uint32_t factor) {
    char options[64];
    snprintf(options, sizeof options, "-DFACTOR=%uu", factor);
    cl_program program = program_of(source, options);
    cl_kernel kernel = MADE(clCreateKernel(program, "advance", &err));
    OK(clReleaseProgram(program));
    return kernel;
}

static void advance(uint32_t *a, size_t count, uint32_t factor) {
    for (size_t i = 0; i < count; i++) a[i] = a[i] * factor + 1013904223u;
}

static void check(cl_mem buffer, const uint32_t *model, uint32_t *got, size_t count, const char *what, int round) {
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, count * 4, got, 0, NULL, NULL));
    for (size_t i = 0; i < count; i++)
        NEED(got[i] == model[i], "round %d: %s has %u at %zu, not %u", round, what, got[i], i, model[i]);
}

/* One buffer lives as long as the program; others, of half of TELECL_TEST_BYTES, come and go. */
CASE_TELECL_ONLY(works_for_a_while) {
    uint32_t seed = (uint32_t)setting("TELECL_TEST_SEED", 1), state = seed * 2654435761u;
    size_t count = setting("TELECL_TEST_BYTES", 4 << 20) / 8, few = 4096;
    double length = (double)setting("TELECL_TEST_SECONDS", 10);
    begin();
    uint32_t *model = malloc(count * 4), *kept = malloc(count * 4), *got = malloc(count * 4);
    for (size_t i = 0; i < count; i++) kept[i] = draw(&state);
    cl_mem lasting = MADE(clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, count * 4, kept, &err));
    cl_kernel kernel = kernel_with(1664525u);
    const char *stop = getenv("TELECL_TEST_STOP");
    double until = seconds() + length;
    int round = 0;
    for (; round <= 2 || (stop ? access(stop, F_OK) != 0 : seconds() < until); round++) {
        uint32_t factor = 1664525u + 2 * (uint32_t)(round - round % 5);
        if (round && round % 5 == 0) {
            OK(clReleaseKernel(kernel));
            kernel = kernel_with(factor);
        }
        for (size_t i = 0; i < count; i++) model[i] = draw(&state);
        cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_READ_WRITE, count * 4, NULL, &err));
        OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, count * 4, model, 0, NULL, NULL));
        set_arg(kernel, 0, sizeof buffer, &buffer);
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
        set_arg(kernel, 0, sizeof lasting, &lasting);
        for (int i = 0; i < 3; i++) {
            OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &few, NULL, 0, NULL, NULL));
            advance(kept, few, factor);
        }
        /* As a program that waits for each of its commands. */
        OK(clFinish(queue));
        advance(model, count, factor);
        check(buffer, model, got, count, "a buffer that comes and goes", round);
        check(lasting, kept, got, few, "the lasting buffer", round);
        OK(clReleaseMemObject(buffer));
        if (round == 0) say("ready");
    }
    check(lasting, kept, got, count, "the lasting buffer", round);
    say("right");
}

/* Makes a context before the service is restarted, and computes after it. */
CASE_TELECL_ONLY(computes_when_told) {
    begin();
    OK(clFinish(queue));
    say("ready");
    cl_int value = 4711, result = 0;
    sleep((unsigned)setting("TELECL_TEST_SECONDS", 3));
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, &value);
    cl_kernel kernel = kernel_of("kernel void twice(global int *a) { *a *= 2; }", "twice");
    set_arg(kernel, 0, sizeof buffer, &buffer);
    run_kernel(kernel, 1);
    read_all(buffer, &result, 4);
    NEED(result == 9422, "the kernel gave %d", result);
    say("right");
}

/* Knows a device before the service is restarted, and uses it for the first time after that. */
CASE_TELECL_ONLY(looks_first) {
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    say("ready");
    sleep((unsigned)setting("TELECL_TEST_SECONDS", 3));
    context = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &err));
    queue = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_int value = 4711, result = 0;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, &value);
    read_all(buffer, &result, 4);
    NEED(result == 4711, "it has %d", result);
    say("right");
}

static int told;

static void CL_CALLBACK hear(const char *text, const void *info, size_t size, void *nothing) {
    (void)info, (void)size, (void)nothing;
    say("told: %s", text);
    tally_add(&told);
}

/* Computes until the session is lost; says why. */
CASE_TELECL_ONLY(works_until_it_is_told) {
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = MADE(clCreateContext(NULL, 1, &device, hear, NULL, &err));
    queue = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4096, NULL);
    char bytes[4096] = {0};
    cl_int status;
    for (int i = 0; (status = clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof bytes, bytes, 0, NULL, NULL)) == CL_SUCCESS; i++) {
        if (i == 0) {
            OK(clFinish(queue));
            say("ready");
        }
        usleep(10000);
    }
    tally_await(&told, 1, "reasons");
    say("lost: %s", error_name(status));
}
