/* The program in the fault tests (tests/faults.rs). It prints a line at each point the test waits for. */
#include "common.h"
#include "../../include/telecl.h"

#include <signal.h>

CASE_TELECL_ONLY(count_platforms) {
    cl_uint count = 0;
    cl_int status = clGetPlatformIDs(0, NULL, &count);
    say("%s, %u platforms", error_name(status), count);
}

CASE_TELECL_ONLY(use_once) {
    open_device();
    cl_int value = 4711, result = 0;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, NULL);
    cl_kernel kernel = kernel_of("kernel void twice(global int *a) { *a *= 2; }", "twice");
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    set_arg(kernel, 0, sizeof buffer, &buffer);
    run_kernel(kernel, 1);
    read_all(buffer, &result, 4);
    NEED(result == 9422, "the kernel gave %d", result);
    say("served");
}

static int told;

static void CL_CALLBACK hear(const char *text, const void *info, size_t size, void *nothing) {
    (void)info, (void)size, (void)nothing;
    say("told: %s", text);
    tally_add(&told);
}

/* Makes a context if it can, and computes; otherwise says why not. */
CASE_TELECL_ONLY(use_or_be_told) {
    cl_int err;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = clCreateContext(NULL, 1, &device, hear, NULL, &err);
    say("clCreateContext: %s", error_name(err));
    if (err != CL_SUCCESS) {
        tally_await(&told, 1, "reasons");
        return;
    }
    queue = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_int value = 4711, result = 0;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, &value);
    read_all(buffer, &result, 4);
    NEED(result == 4711, "it has %d", result);
    say("served");
}

/* Lists devices, sits until it is sent SIGUSR1, and computes then. */
CASE_TELECL_ONLY(list_then_use) {
    sigset_t wanted;
    int signal;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    NEED(sigprocmask(SIG_BLOCK, &wanted, NULL) == 0, "cannot block a signal");
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    say("listed");
    NEED(sigwait(&wanted, &signal) == 0, "cannot wait for a signal");
    open_device();
    cl_int value = 4711, result = 0;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, &value);
    read_all(buffer, &result, 4);
    NEED(result == 4711, "it has %d", result);
    say("served");
}

/* Has a device until it is killed. */
CASE_TELECL_ONLY(hold_device) {
    open_device();
    OK(clFinish(queue));
    say("held");
    for (;;) pause();
}

/* A known amount of work (tests/monitoring.rs counts it), and then nothing until it is killed. */
CASE_TELECL_ONLY(work_and_stay) {
    enum { SIZE = 3 << 20, WRITES = 4, RUNS = 7, READS = 2 };
    static unsigned char data[SIZE];
    open_device();
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, SIZE, NULL);
    cl_kernel kernel = kernel_of("kernel void next(global int *a) { a[get_global_id(0)]++; }", "next");
    set_arg(kernel, 0, sizeof buffer, &buffer);
    size_t items = 16;
    for (int i = 0; i < WRITES; i++)
        OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, SIZE, data, 0, NULL, NULL));
    for (int i = 0; i < RUNS; i++)
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
    for (int i = 0; i < READS; i++) read_all(buffer, data, SIZE);
    const char *wrong = "kernel void wrong() { this is no C; }";
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &wrong, NULL, &err));
    cl_int status = clBuildProgram(program, 1, &device, "", NULL, NULL);
    NEED(status == CL_BUILD_PROGRAM_FAILURE, "the build gave %d", status);
    say("worked");
    for (;;) pause();
}

/* Computes for two seconds, as much as it may. */
CASE_TELECL_ONLY(compute_for_two_seconds) {
    open_device();
    cl_ulong zero = 0, steps = 200000;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof zero, &zero);
    cl_kernel kernel = kernel_of(
        "kernel void steps(global volatile ulong *a, ulong n) { for (ulong i = 0; i < n; i++) *a += i; }", "steps");
    set_arg(kernel, 0, sizeof buffer, &buffer);
    set_arg(kernel, 1, sizeof steps, &steps);
    size_t one = 1;
    for (long end = milliseconds() + 2000; milliseconds() < end;) {
        for (int i = 0; i < 16; i++)
            OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
        OK(clFinish(queue));
    }
    say("computed");
}

/* Does nothing until its session ends, and then begins another. */
CASE_TELECL_ONLY(do_nothing_until_told) {
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = MADE(clCreateContext(NULL, 1, &device, hear, NULL, &err));
    queue = MADE(clCreateCommandQueue(context, device, 0, &err));
    OK(clFinish(queue));
    tally_await(&told, 1, "reasons");
    say("clFinish: %s", error_name(clFinish(queue)));
    open_device();
    OK(clFinish(queue));
    say("begun again");
}

/* Multiplies a number on the first device of every platform. */
CASE_TELECL_ONLY(use_every_platform) {
    cl_platform_id all[8];
    cl_uint count = 0;
    OK(clGetPlatformIDs(8, all, &count));
    for (cl_uint i = 0; i < count; i++) {
        cl_device_id device;
        OK(clGetDeviceIDs(all[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL));
        cl_context context = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &err));
        cl_command_queue queue = MADE(clCreateCommandQueue(context, device, 0, &err));
        cl_int value = 21 * ((cl_int)i + 1), result = 0;
        cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, 4, &value, &err));
        const char *source = "kernel void twice(global int *a) { *a *= 2; }";
        cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
        OK(clBuildProgram(program, 1, &device, "", NULL, NULL));
        cl_kernel kernel = MADE(clCreateKernel(program, "twice", &err));
        OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
        size_t one = 1;
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &result, 0, NULL, NULL));
        say("platform %u: %d", i, result);
    }
}

/* Where the first device is, by the queries of include/telecl.h. */
CASE_TELECL_ONLY(tell_node) {
    open_device();
    char name[256], address[256], node[256], extensions[4096];
    cl_uint port;
    cl_ulong round_trip;
    cl_bool same;
    OK(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_TELECL_ADDRESS, sizeof address, address, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_TELECL_PORT, sizeof port, &port, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_TELECL_ROUND_TRIP_NS, sizeof round_trip, &round_trip, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_TELECL_SAME_NODE, sizeof same, &same, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_TELECL_NODE_NAME, sizeof node, node, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof extensions, extensions, NULL));
    CHECK(strstr(extensions, CL_TELECL_NODE_EXTENSION_NAME), "the extension is not listed");
    CHECK(round_trip > 0 && round_trip < 1000000000, "a round trip of %llu ns", (unsigned long long)round_trip);
    CHECK(node[0], "the node has no name");
    const char *at = strstr(name, " @ ");
    say("%s%s port %u, %s", address, at ? at : " plain", port, same ? "same node" : "another node");
}

/* Ends when somebody sets `a[0]`, which nobody does. */
static const char *endless =
    "kernel void spin(global volatile int *a) { while (a[0] == 0) for (int i = 0; i < 1000; i++) a[1] = i; }";

static void answer(const char *what, cl_int status) {
    say("%s: %s", what, error_name(status));
    CHECK(status == CL_DEVICE_NOT_AVAILABLE || status == CL_OUT_OF_RESOURCES, "%s must say that the session is lost", what);
}

/* Every call on a lost session returns, and a blocked one comes back. */
CASE_TELECL_ONLY(run_endless_kernel) {
    open_device();
    cl_int zeros[2] = {0, 0};
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros);
    cl_kernel kernel = kernel_of(endless, "spin");
    set_arg(kernel, 0, sizeof buffer, &buffer);
    size_t one = 1;
    cl_event event;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &event));
    OK(clFlush(queue));
    cl_command_queue other = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_mem small = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros);
    OK(clEnqueueReadBuffer(other, small, CL_TRUE, 0, sizeof zeros, zeros, 0, NULL, NULL));
    say("running");
    answer("clFinish", clFinish(queue));
    answer("clEnqueueReadBuffer", clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof zeros, zeros, 0, NULL, NULL));
    CHECK(INFO(cl_int, clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS) < 0, "the kernel's event did not fail");
    cl_int waited = clWaitForEvents(1, &event);
    say("clWaitForEvents: %s", error_name(waited));
    CHECK(waited < 0, "a wait for a lost kernel succeeded");
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(kernel));
    OK(clReleaseEvent(event));
    close_device();
    say("left in order");
}

static int called;

static void CL_CALLBACK on_end(cl_event event, cl_int status, void *data) {
    (void)event;
    *(cl_int *)data = status;
    tally_add(&called);
}

CASE_TELECL_ONLY(wait_for_callback_of_endless_kernel) {
    open_device();
    cl_int zeros[2] = {0, 0}, status = 1;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros);
    cl_kernel kernel = kernel_of(endless, "spin");
    set_arg(kernel, 0, sizeof buffer, &buffer);
    size_t one = 1;
    cl_event event;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &event));
    OK(clSetEventCallback(event, CL_COMPLETE, on_end, &status));
    OK(clFlush(queue));
    say("running");
    tally_await(&called, 1, "callback of a lost event");
    CHECK(status < 0, "the callback got %s", event_state_name(status));
    say("called back");
}

/* Writes a gibibyte again and again, until the session is lost; a test that has seen the second line is in the middle. */
CASE_TELECL_ONLY(write_gibibytes) {
    open_device();
    size_t size = 1u << 30;
    void *memory = calloc(1, size);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, size, NULL);
    cl_int status = CL_SUCCESS;
    while (status == CL_SUCCESS) {
        say("writing");
        status = clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, size, memory, 0, NULL, NULL);
    }
    answer("clEnqueueWriteBuffer", status);
}

/* Reads a gibibyte again and again, until the session is lost. */
CASE_TELECL_ONLY(read_gibibytes) {
    open_device();
    size_t size = 1u << 30;
    void *memory = malloc(size);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, size, NULL);
    cl_int status = CL_SUCCESS;
    while (status == CL_SUCCESS) {
        say("reading");
        status = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, memory, 0, NULL, NULL);
    }
    answer("clEnqueueReadBuffer", status);
}

/* Reads until the session is lost. What it has heard of the end, nobody may touch its memory any more. */
CASE_TELECL_ONLY(read_until_lost_and_look) {
    open_device();
    size_t size = 64u << 20;
    unsigned char *memory = malloc(size);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, size, NULL);
    cl_uchar five = 5;
    OK(clEnqueueFillBuffer(queue, buffer, &five, 1, 0, size, 0, NULL, NULL));
    cl_int status = CL_SUCCESS;
    while (status == CL_SUCCESS) {
        say("reading");
        cl_event event;
        status = clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, size, memory, 0, NULL, &event);
        if (status == CL_SUCCESS) status = clWaitForEvents(1, &event);
    }
    memset(memory, 17, size);
    usleep(300000);
    CHECK(memory[0] == 17 && memcmp(memory, memory + 1, size - 1) == 0, "the memory was written after the end");
    say("left alone");
}

enum { WORKERS = 8, PIECE = 3 << 20 };

static int at_work, lost;

/* Large and small transfers on a queue of its own, until the session is lost. */
static void *work_until_lost(void *number) {
    cl_command_queue own = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, PIECE, NULL);
    char *there = memset(malloc(PIECE), (int)(intptr_t)number, PIECE), *back = malloc(PIECE);
    cl_int status = CL_SUCCESS;
    for (int round = 0; status == CL_SUCCESS; round++) {
        status = clEnqueueWriteBuffer(own, buffer, CL_FALSE, 0, PIECE, there, 0, NULL, NULL);
        if (status == CL_SUCCESS) status = clEnqueueReadBuffer(own, buffer, round % 2, 0, PIECE, back, 0, NULL, NULL);
        if (status == CL_SUCCESS) status = clFinish(own);
        if (status == CL_SUCCESS) NEED(memcmp(there, back, PIECE) == 0, "other data came back");
        if (round == 1) tally_add(&at_work);
    }
    if (status == CL_DEVICE_NOT_AVAILABLE) tally_add(&lost);
    return NULL;
}

static void start_work(void) {
    open_device();
    pthread_t thread;
    for (intptr_t i = 0; i < WORKERS; i++) NEED(pthread_create(&thread, NULL, work_until_lost, (void *)i) == 0, "no thread");
    tally_await(&at_work, WORKERS, "threads at work");
    say("all at work");
}

CASE_TELECL_ONLY(work_in_many_threads) {
    start_work();
    tally_await(&lost, WORKERS, "threads that were told");
    say("all lost");
}

CASE_TELECL_ONLY(exit_while_threads_work) {
    start_work();
    say("leaving");
    exit(0);
}

/* The child does nothing, and stays. */
CASE_TELECL_ONLY(fork_and_stay) {
    open_device();
    cl_int word = 1;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, &word);
    read_all(buffer, &word, 4);
    if (fork() != 0) say("forked");
    for (;;) pause();
}

#define OR_LOST(call)                                                                                 \
    do {                                                                                              \
        cl_int status = (call);                                                                       \
        if (status == CL_DEVICE_NOT_AVAILABLE) {                                                      \
            say("lost");                                                                              \
            exit(0);                                                                                  \
        }                                                                                             \
        NEED(status == CL_SUCCESS, "%s answered %s", #call, error_name(status));                      \
    } while (0)

/* Computes a little and rests for TEST_REST_MS, again and again for TEST_LIFE_MS; a lost session is no failure. */
CASE_TELECL_ONLY(come_and_go) {
    enum { COUNT = 1024 };
    cl_int err, numbers[COUNT];
    long end = milliseconds() + atol(getenv("TEST_LIFE_MS")), rest = atol(getenv("TEST_REST_MS"));
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
    OR_LOST(err);
    queue = clCreateCommandQueue(context, device, 0, &err);
    OR_LOST(err);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof numbers, NULL, &err);
    OR_LOST(err);
    const char *source = "kernel void add(global int *a, int b) { a[get_global_id(0)] += b; }";
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &err);
    OR_LOST(err);
    OR_LOST(clBuildProgram(program, 1, &device, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "add", &err);
    OR_LOST(err);
    OR_LOST(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    size_t count = COUNT;
    for (cl_int round = 0; round == 0 || milliseconds() < end; round++) {
        cl_int own = round * 1000 + getpid();
        for (int i = 0; i < COUNT; i++) numbers[i] = i;
        OR_LOST(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof numbers, numbers, 0, NULL, NULL));
        OR_LOST(clSetKernelArg(kernel, 1, sizeof own, &own));
        OR_LOST(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
        OR_LOST(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof numbers, numbers, 0, NULL, NULL));
        for (int i = 0; i < COUNT; i++) NEED(numbers[i] == i + own, "%d instead of %d", numbers[i], i + own);
        if (round == 0) say("at work");
        usleep(rest * 1000);
    }
    say("served");
}

/* As use_once, with a megabyte there and back, and a lost session is no failure. */
CASE_TELECL_ONLY(use_or_lose) {
    cl_int err, value = 21;
    cl_int *numbers = malloc(1 << 20);
    size_t count = 1 << 18;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
    OR_LOST(err);
    queue = clCreateCommandQueue(context, device, 0, &err);
    OR_LOST(err);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 1 << 20, NULL, &err);
    OR_LOST(err);
    for (size_t i = 0; i < count; i++) numbers[i] = value;
    OR_LOST(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 1 << 20, numbers, 0, NULL, NULL));
    const char *source = "kernel void twice(global int *a) { a[get_global_id(0)] *= 2; }";
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &err);
    OR_LOST(err);
    OR_LOST(clBuildProgram(program, 1, &device, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "twice", &err);
    OR_LOST(err);
    set_arg(kernel, 0, sizeof buffer, &buffer);
    OR_LOST(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
    OR_LOST(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 1 << 20, numbers, 0, NULL, NULL));
    for (size_t i = 0; i < count; i++) NEED(numbers[i] == 42, "number %zu is %d", i, numbers[i]);
    say("served");
}

/* A value of /proc/self/status in KiB. */
static long own_status(const char *name) {
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, strlen(name)) == 0) value = atol(line + strlen(name));
    }
    NEED(value >= 0, "no %s in /proc/self/status", name);
    fclose(file);
    return value;
}

/* 256 MiB there and back; what the program needs for it beyond its own memory is little. */
CASE_TELECL_ONLY(measure_transfers) {
    open_device();
    size_t size = 256u << 20;
    unsigned char *there = malloc(size), *back = memset(malloc(size), 0xee, size);
    for (size_t i = 0; i < size; i++) there[i] = (unsigned char)(i * 2654435761u >> 24);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, size, NULL);
    OK(clFinish(queue));
    long before = own_status("VmRSS:");
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, size, there, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, back, 0, NULL, NULL));
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, size, there, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, size, back, 0, NULL, NULL));
    OK(clFinish(queue));
    long grown = own_status("VmHWM:") - before;
    CHECK(memcmp(there, back, size) == 0, "other data came back");
    say("the program grew by %ld KiB", grown);
    CHECK(grown < 16 << 10, "more than 16 MiB");
}

/* Waits for SIGUSR1 before it reads, so that a test can look at the worker before and after. */
CASE_TELECL_ONLY(read_a_gibibyte_when_told) {
    sigset_t told;
    int signal;
    sigemptyset(&told);
    sigaddset(&told, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &told, NULL);
    open_device();
    size_t size = 1u << 30;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, size, NULL);
    cl_uchar five = 5;
    OK(clEnqueueFillBuffer(queue, buffer, &five, 1, 0, size, 0, NULL, NULL));
    OK(clFinish(queue));
    char *memory = memset(malloc(size), 0xee, size);
    say("ready");
    sigwait(&told, &signal);
    cl_event done;
    OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, size, memory, 0, NULL, &done));
    OK(clWaitForEvents(1, &done));
    CHECK(memory[0] == 5 && memcmp(memory, memory + 1, size - 1) == 0, "other data came");
    say("read");
    sigwait(&told, &signal);
}
