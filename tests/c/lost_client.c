/* The program in the tests of lost links (tests/lost.rs). Everything it reads, it has computed itself: what is lost on the
 * way, or done twice, shows. */
#include "common.h"

#include <stdatomic.h>

enum { THREADS = 2, BUFFERS = 4, COMMANDS = 24 };

/* The size of a buffer; TEST_SIZE says another. */
static size_t size = 3 << 20;

static const char *source =
    "kernel void stir(global uint *a, uint first, uint n) {\n"
    "    uint i = get_global_id(0);\n"
    "    if (i < n) a[first + i] = a[first + i] * 3u + 1u;\n"
    "}\n";

static cl_program program;
static atomic_int due, called, rounds;

static uint32_t draw(uint64_t *seed) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return (uint32_t)(*seed >> 16);
}

/* Mostly little, now and then much. */
static uint32_t draw_size(uint64_t *seed, uint32_t most) {
    uint32_t size = draw(seed) % 8 ? draw(seed) % 600 + 1 : draw(seed) % most + 1;
    return size < most ? size : most;
}

static void CL_CALLBACK on_end(cl_event event, cl_int status, void *nothing) {
    (void)event, (void)nothing;
    if (status != CL_COMPLETE) say("WRONG: a command ended with %s", error_name(status));
    atomic_fetch_add(&called, 1);
}

/* One of several threads: its buffers, and what must be in them. */
struct one {
    uint64_t seed;
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem buffers[BUFFERS];
    uint32_t *expected[BUFFERS];
};

static void watch(cl_event event) {
    atomic_fetch_add(&due, 1);
    OK(clSetEventCallback(event, CL_COMPLETE, on_end, NULL));
    OK(clReleaseEvent(event));
}

/* Some commands in a row, then everything that was read is compared. */
static void work(struct one *one) {
    const uint32_t words = size / 4;
    uint32_t *memory[COMMANDS], *copies[COMMANDS], lengths[COMMANDS];
    int pending = 0;
    for (int i = 0; i < COMMANDS; i++) {
        int which = draw(&one->seed) % BUFFERS;
        uint32_t n = draw_size(&one->seed, words), first = draw(&one->seed) % (words - n + 1);
        uint32_t *expected = one->expected[which] + first;
        cl_event event, *wanted = draw(&one->seed) % 4 ? NULL : &event;
        switch (draw(&one->seed) % 4) {
        case 0: {
            size_t items = n;
            OK(clSetKernelArg(one->kernel, 0, sizeof(cl_mem), &one->buffers[which]));
            OK(clSetKernelArg(one->kernel, 1, 4, &first));
            OK(clSetKernelArg(one->kernel, 2, 4, &n));
            OK(clEnqueueNDRangeKernel(one->queue, one->kernel, 1, NULL, &items, NULL, 0, NULL, wanted));
            for (uint32_t k = 0; k < n; k++) expected[k] = expected[k] * 3u + 1u;
            break;
        }
        case 1: {
            cl_bool blocking = draw(&one->seed) % 2 ? CL_TRUE : CL_FALSE;
            uint32_t *data = malloc(4 * (size_t)n);
            for (uint32_t k = 0; k < n; k++) data[k] = expected[k] = draw(&one->seed);
            OK(clEnqueueWriteBuffer(one->queue, one->buffers[which], blocking, 4 * (size_t)first, 4 * (size_t)n, data, 0, NULL, wanted));
            if (blocking) {
                /* It is ours again. */
                memset(data, 0xee, 4 * (size_t)n);
                free(data);
            } else {
                memory[pending] = data, copies[pending] = NULL, lengths[pending++] = n;
            }
            break;
        }
        default: {
            uint32_t *copy = malloc(4 * (size_t)n);
            memcpy(copy, expected, 4 * (size_t)n);
            memory[pending] = malloc(4 * (size_t)n), copies[pending] = copy, lengths[pending++] = n;
            OK(clEnqueueReadBuffer(one->queue, one->buffers[which], CL_FALSE, 4 * (size_t)first, 4 * (size_t)n, memory[pending - 1], 0, NULL, wanted));
        }
        }
        if (wanted) watch(event);
    }
    OK(clFinish(one->queue));
    for (int i = 0; i < pending; i++) {
        if (copies[i]) NEED(memcmp(memory[i], copies[i], 4 * (size_t)lengths[i]) == 0, "a read of %u words brought others", lengths[i]);
        free(memory[i]), free(copies[i]);
    }
    atomic_fetch_add(&rounds, 1);
}

static void *thread_main(void *number) {
    struct one one = {.seed = 88172645463325252u + (uintptr_t)number};
    one.queue = MADE(clCreateCommandQueue(context, device, 0, &err));
    one.kernel = MADE(clCreateKernel(program, "stir", &err));
    for (int i = 0; i < BUFFERS; i++) {
        one.expected[i] = malloc(size);
        for (int k = 0; (size_t)k < size / 4; k++) one.expected[i][k] = draw(&one.seed);
        one.buffers[i] = MADE(clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, size, one.expected[i], &err));
    }
    const char *stop = getenv("TEST_STOP_FILE");
    while (access(stop, F_OK) != 0) work(&one);
    /* All of it, once more. */
    uint32_t *content = malloc(size);
    for (int i = 0; i < BUFFERS; i++) {
        OK(clEnqueueReadBuffer(one.queue, one.buffers[i], CL_TRUE, 0, size, content, 0, NULL, NULL));
        NEED(memcmp(content, one.expected[i], size) == 0, "buffer %d has another content at the end", i);
    }
    free(content);
    return NULL;
}

/* Until there is a file TEST_STOP_FILE. */
CASE_TELECL_ONLY(compute_and_compare) {
    if (getenv("TEST_SIZE")) size = strtoul(getenv("TEST_SIZE"), NULL, 10);
    open_device();
    program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    OK(clBuildProgram(program, 1, &device, "", NULL, NULL));
    OK(clFinish(queue));
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) NEED(pthread_create(&threads[i], NULL, thread_main, (void *)i) == 0, "no thread");
    say("computing");
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2000 && atomic_load(&called) < atomic_load(&due); i++) usleep(5000);
    NEED(atomic_load(&called) == atomic_load(&due), "%d callbacks for %d events", atomic_load(&called), atomic_load(&due));
    fprintf(stderr, "rounds %d\n", atomic_load(&rounds));
    say("all right");
}

/* ---- no way back ------------------------------------------------------------------------------- */

static const char *endless = "kernel void spin(global volatile int *stop) { while (!*stop) {} }";

static int ended, finished, waited, read_back;
static cl_event awaited;
static cl_mem spinning;

static void CL_CALLBACK on_loss(cl_event event, cl_int status, void *nothing) {
    (void)event, (void)nothing;
    CHECK(status < 0, "the callback got %d", status);
    tally_add(&ended);
}

static void *finish(void *nothing) {
    CHECK(clFinish(queue) == CL_DEVICE_NOT_AVAILABLE, "clFinish did not fail");
    tally_add(&finished);
    return nothing;
}

static void *await(void *nothing) {
    cl_int status = clWaitForEvents(1, &awaited);
    CHECK(status == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST || status == CL_DEVICE_NOT_AVAILABLE, "clWaitForEvents: %s", error_name(status));
    tally_add(&waited);
    return nothing;
}

static void *read_it(void *nothing) {
    cl_int word;
    cl_int status = clEnqueueReadBuffer(queue, spinning, CL_TRUE, 0, 4, &word, 0, NULL, NULL);
    CHECK(status == CL_DEVICE_NOT_AVAILABLE || status == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, "the read: %s", error_name(status));
    tally_add(&read_back);
    return nothing;
}

/* Calls of all kinds wait for a kernel that never ends. */
CASE_TELECL_ONLY(wait_in_vain) {
    open_device();
    cl_int zeros[2] = {0, 0};
    spinning = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros);
    cl_kernel kernel = kernel_of(endless, "spin");
    set_arg(kernel, 0, sizeof spinning, &spinning);
    size_t one = 1;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &awaited));
    OK(clSetEventCallback(awaited, CL_COMPLETE, on_loss, NULL));
    OK(clFlush(queue));
    void *(*waits[])(void *) = {finish, await, read_it};
    pthread_t thread;
    for (int i = 0; i < 3; i++) NEED(pthread_create(&thread, NULL, waits[i], NULL) == 0, "no thread");
    usleep(200000);
    say("waiting");
    long begin = milliseconds();
    tally_await(&finished, 1, "clFinish");
    tally_await(&waited, 1, "clWaitForEvents");
    tally_await(&read_back, 1, "a read");
    tally_await(&ended, 1, "a callback");
    fprintf(stderr, "lost after %ld ms\n", milliseconds() - begin);
    cl_int status = INFO(cl_int, clGetEventInfo, awaited, CL_EVENT_COMMAND_EXECUTION_STATUS);
    CHECK(status < 0, "the event has %d", status);
    say("all told");
}

/* Computes until it is told that its session is lost, and says how long after the kill. */
CASE_TELECL_ONLY(compute_until_lost) {
    open_device();
    cl_int zero = 0;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, &zero);
    cl_kernel kernel = kernel_of("kernel void next(global int *a) { ++*a; }", "next");
    set_arg(kernel, 0, sizeof buffer, &buffer);
    static char bulk[1 << 20];
    cl_mem large = buffer_of(CL_MEM_READ_WRITE, sizeof bulk, NULL);
    size_t one = 1;
    say("computing");
    for (cl_int count = 0, value;; count++) {
        cl_int status = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
        if (status == CL_SUCCESS) status = clEnqueueWriteBuffer(queue, large, CL_FALSE, 0, sizeof bulk, bulk, 0, NULL, NULL);
        if (status == CL_SUCCESS) status = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL);
        if (status != CL_SUCCESS) {
            NEED(status == CL_DEVICE_NOT_AVAILABLE || status == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, "lost with %s", error_name(status));
            break;
        }
        NEED(value == count + 1, "%d runs counted as %d", count + 1, value);
    }
    say("lost");
}
