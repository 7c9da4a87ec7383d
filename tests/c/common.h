/* What every case uses: registration, the printing of results, and the few lines of OpenCL set-up.
 *
 * A case is a function that prints what it observes and asserts what the specification demands. The
 * runner starts it on the vendor's driver and through telecl, and compares the outputs; so a
 * case prints nothing that may differ from run to run: no pointers, no times, no names of devices.
 *
 *   ./buffer_map --list        one case per line; " telecl-only" follows those not run on the vendor's driver
 *   ./buffer_map CASE          runs it; exit code 0 right, 1 wrong, 77 not possible on this device
 */
#ifndef TELECL_TESTS_COMMON_H
#define TELECL_TESTS_COMMON_H

#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS

#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "errors.h"

/* ---- cases ------------------------------------------------------------------------------------- */

struct test_case {
    const char *name;
    void (*run)(void);
    int telecl_only;
};

static struct test_case cases[64];
static int case_count;
static int wrong_count;

static inline void add_case(const char *name, void (*run)(void), int telecl_only) {
    cases[case_count++] = (struct test_case){name, run, telecl_only};
}

#define CASE_(name, telecl_only)                                                                      \
    static void name(void);                                                                           \
    __attribute__((constructor)) static void register_##name(void) { add_case(#name, name, telecl_only); } \
    static void name(void)

/* A case that runs on both sides. */
#define CASE(name) CASE_(name, 0)
/* A case about telecl's own behaviour, or about what the vendor's driver cannot do; it says which. */
#define CASE_TELECL_ONLY(name) CASE_(name, 1)

/* ---- observing and asserting ------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    /* Callbacks speak on threads of their own: a line stays one. */
    flockfile(stdout);
    vprintf(format, args);
    putchar('\n');
    funlockfile(stdout);
    va_end(args);
}

/* The case goes on after a wrong answer, so that one run shows all of them. */
#define CHECK(condition, ...)                                                                         \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            printf("WRONG (%s:%d): ", __FILE__, __LINE__);                                            \
            say(__VA_ARGS__);                                                                         \
            wrong_count++;                                                                            \
        }                                                                                             \
    } while (0)

/* Like CHECK, for what the rest of the case stands on. */
#define NEED(condition, ...)                                                                          \
    do {                                                                                              \
        CHECK(condition, __VA_ARGS__);                                                                \
        if (wrong_count) exit(1);                                                                     \
    } while (0)

/* Set-up that must succeed and is not worth a line of output. */
#define OK(call)                                                                                      \
    do {                                                                                              \
        cl_int ok_status = (call);                                                                    \
        if (ok_status != CL_SUCCESS) {                                                                \
            printf("WRONG (%s:%d): %s answered %s\n", __FILE__, __LINE__, #call, error_name(ok_status)); \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

/* The value of a create call that must succeed; the call names `&err` as its last argument. */
#define MADE(call)                                                                                    \
    ({                                                                                                \
        cl_int err = 1;                                                                               \
        __typeof__(call) made = (call);                                                               \
        if (err != CL_SUCCESS || made == NULL) {                                                      \
            printf("WRONG (%s:%d): %s answered %s\n", __FILE__, __LINE__, #call, error_name(err));    \
            exit(1);                                                                                  \
        }                                                                                             \
        made;                                                                                         \
    })

static inline void expect_status(const char *file, int line, const char *call, cl_int wanted, cl_int got) {
    say("%s: %s", call, error_name(got));
    if (got != wanted) {
        say("WRONG (%s:%d): the specification demands %s", file, line, error_name(wanted));
        wrong_count++;
    }
}

/* Prints the status of `call`, which the specification says is `wanted`. */
#define EXPECT(wanted, call) expect_status(__FILE__, __LINE__, #call, wanted, (call))

/* The status of a create call that names `&err`; an object and an error together are wrong. */
#define CREATION(call)                                                                                \
    ({                                                                                                \
        cl_int err = 1;                                                                               \
        __typeof__(call) made = (call);                                                               \
        CHECK((made != NULL) == (err == CL_SUCCESS), "%s gave %s object and %s", #call,               \
              made ? "an" : "no", error_name(err));                                                   \
        err;                                                                                          \
    })

/* The same for calls of which PoCL 3.1 returns an object beside the error. */
#define STATUS(call)                                                                                  \
    ({                                                                                                \
        cl_int err = 1;                                                                               \
        (void)(call);                                                                                 \
        err;                                                                                          \
    })

#define EXPECT_CREATE(wanted, call) expect_status(__FILE__, __LINE__, #call, wanted, CREATION(call))

/* Where PoCL 3.1 answers otherwise than the specification: nothing is asserted here, and the runner
 * lets telecl answer either what the vendor's driver answers or what the specification says. */
#define DEVIATES(specified, call) say("~ %s: %s (specification: %s)", #call, error_name(call), error_name(specified))
#define DEVIATES_CREATE(specified, call)                                                              \
    say("~ %s: %s (specification: %s)", #call, error_name(CREATION(call)), error_name(specified))

/* Where the specification, or one revision of it and another, allows two answers. */
#define EITHER(first, second, call)                                                                   \
    say("~ %s: %s (specification: %s or %s)", #call, error_name(call), error_name(first), error_name(second))
#define EITHER_CREATE(first, second, call)                                                            \
    say("~ %s: %s (specification: %s or %s)", #call, error_name(CREATION(call)), error_name(first), error_name(second))

/* Leaves the case as "not possible on this device". */
#define SKIP(reason)                                                                                  \
    do {                                                                                              \
        say("skipped: %s", reason);                                                                   \
        exit(77);                                                                                     \
    } while (0)

/* One value of a clGet*Info function with the usual five arguments. */
#define INFO(type, function, object, name)                                                            \
    ({                                                                                                \
        type info_value;                                                                              \
        memset(&info_value, 0, sizeof info_value);                                                    \
        OK(function(object, name, sizeof info_value, &info_value, NULL));                             \
        info_value;                                                                                   \
    })

static inline void show_ints(const char *what, const cl_int *values, size_t count) {
    printf("%s:", what);
    for (size_t i = 0; i < count; i++) printf(" %d", values[i]);
    putchar('\n');
}

static inline void show_bytes(const char *what, const void *bytes, size_t count) {
    printf("%s:", what);
    for (size_t i = 0; i < count; i++) printf(" %02x", ((const unsigned char *)bytes)[i]);
    putchar('\n');
}

/* FNV-1a, so that much data becomes one line. */
static inline uint64_t digest(const void *data, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}

/* ---- settings and time ------------------------------------------------------------------------- */

/* The number in a variable of the environment. */
static inline size_t setting(const char *name, size_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static inline long milliseconds(void) { return (long)(seconds() * 1000); }

/* ---- waiting for callbacks --------------------------------------------------------------------- */

static pthread_mutex_t tally_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t tally_changed = PTHREAD_COND_INITIALIZER;

static inline void tally_add(int *tally) {
    pthread_mutex_lock(&tally_lock);
    ++*tally;
    pthread_cond_broadcast(&tally_changed);
    pthread_mutex_unlock(&tally_lock);
}

/* Waits until `*tally` reaches `wanted`; twenty seconds without that are a failure. */
static inline void tally_await(int *tally, int wanted, const char *what) {
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 20;
    int timed_out = 0;
    pthread_mutex_lock(&tally_lock);
    while (*tally < wanted && !timed_out) timed_out = pthread_cond_timedwait(&tally_changed, &tally_lock, &limit);
    int reached = *tally;
    pthread_mutex_unlock(&tally_lock);
    NEED(reached >= wanted, "%s: %d of %d came within 20 s", what, reached, wanted);
}

/* ---- OpenCL set-up ------------------------------------------------------------------------------ */

static cl_platform_id platform __attribute__((unused));
static cl_device_id device __attribute__((unused));
static cl_context context __attribute__((unused));
static cl_command_queue queue __attribute__((unused));

/* The first device of the first platform, a context for it and an in-order queue, in the globals above. */
static inline void open_device(void) {
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &err));
    queue = MADE(clCreateCommandQueue(context, device, 0, &err));
}

static inline void close_device(void) {
    OK(clReleaseCommandQueue(queue));
    OK(clReleaseContext(context));
}

static inline cl_mem buffer_of(cl_mem_flags flags, size_t size, const void *content) {
    return MADE(clCreateBuffer(context, flags | (content ? CL_MEM_COPY_HOST_PTR : 0), size, (void *)content, &err));
}

static inline void read_all(cl_mem buffer, void *into, size_t size) {
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, into, 0, NULL, NULL));
}

static inline void print_build_log(cl_program program) {
    size_t size = 0;
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    char *log = calloc(1, size + 1);
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log, NULL);
    say("build log: %s", log);
    free(log);
}

static inline cl_program program_of(const char *source, const char *options) {
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    cl_int status = clBuildProgram(program, 1, &device, options, NULL, NULL);
    if (status != CL_SUCCESS) print_build_log(program);
    OK(status);
    return program;
}

static inline cl_kernel kernel_of(const char *source, const char *name) {
    cl_program program = program_of(source, "");
    cl_kernel kernel = MADE(clCreateKernel(program, name, &err));
    OK(clReleaseProgram(program));
    return kernel;
}

static inline void set_arg(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
    OK(clSetKernelArg(kernel, index, size, value));
}

/* One dimension, `count` work-items, waits. */
static inline void run_kernel(cl_kernel kernel, size_t count) {
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
    OK(clFinish(queue));
}

int main(int argc, char **argv) {
    /* Kernel printf and ours share the file descriptor, and the order of the lines is compared. */
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < case_count; i++) say("%s%s", cases[i].name, cases[i].telecl_only ? " telecl-only" : "");
        return 0;
    }
    for (int i = 0; argc == 2 && i < case_count; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return wrong_count ? 1 : 0;
        }
    }
    fprintf(stderr, "usage: %s --list | CASE\n", argv[0]);
    return 2;
}

#endif
