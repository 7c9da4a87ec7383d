/* OpenCL inside a real process: threads, fork, exit, signals, a loader that comes and goes. */
#include "common.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>

enum { THREADS = 16, ROUNDS = 20, COUNT = 512 };

static cl_program shared_program;
static int thread_wrong[THREADS];

/* A queue, a kernel and buffers of its own; every round is checked. */
static void *thread_work(void *number) {
    cl_int me = (cl_int)(intptr_t)number, values[COUNT], result[COUNT];
    cl_command_queue own = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_kernel kernel = MADE(clCreateKernel(shared_program, "blend", &err));
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof values, NULL);
    size_t count = COUNT;
    for (cl_int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++) values[i] = me * 1000 + i;
        OK(clEnqueueWriteBuffer(own, buffer, CL_FALSE, 0, sizeof values, values, 0, NULL, NULL));
        set_arg(kernel, 0, sizeof buffer, &buffer);
        set_arg(kernel, 1, sizeof round, &round);
        OK(clEnqueueNDRangeKernel(own, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(own, buffer, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL));
        for (int i = 0; i < COUNT; i++) thread_wrong[me] += result[i] != values[i] * 3 + round;
    }
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(kernel));
    OK(clReleaseCommandQueue(own));
    return NULL;
}

CASE(sixteen_threads_with_a_queue_each_get_their_own_results) {
    open_device();
    shared_program = program_of("kernel void blend(global int *a, int round) { size_t i = get_global_id(0); a[i] = a[i] * 3 + round; }", "");
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) NEED(pthread_create(&threads[i], NULL, thread_work, (void *)i) == 0, "no thread");
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) CHECK(thread_wrong[i] == 0, "thread %d saw %d wrong values", i, thread_wrong[i]);
    say("%d threads, %d rounds", THREADS, ROUNDS);
    close_device();
}

static void *thread_life(void *unused) {
    cl_int value = 4, result = 0;
    cl_context own = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &err));
    cl_command_queue own_queue = MADE(clCreateCommandQueue(own, device, 0, &err));
    cl_mem buffer = MADE(clCreateBuffer(own, CL_MEM_COPY_HOST_PTR, 4, &value, &err));
    OK(clEnqueueReadBuffer(own_queue, buffer, CL_TRUE, 0, 4, &result, 0, NULL, NULL));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(own_queue));
    OK(clReleaseContext(own));
    if (result == 4) tally_add(unused);
    return NULL;
}

CASE(threads_make_and_release_contexts_at_once) {
    open_device();
    int right = 0;
    pthread_t threads[8];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) NEED(pthread_create(&threads[i], NULL, thread_life, &right) == 0, "no thread");
        for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    }
    say("%d contexts right", right);
    CHECK(right == 32, "%d of 32 contexts right", right);
}

static void *first_use(void *done) {
    cl_platform_id found;
    cl_device_id found_device;
    OK(clGetPlatformIDs(1, &found, NULL));
    OK(clGetDeviceIDs(found, CL_DEVICE_TYPE_ALL, 1, &found_device, NULL));
    tally_add(done);
    return NULL;
}

/* PoCL 3.1 shows no device to some of the threads. */
CASE_TELECL_ONLY(the_first_use_may_come_from_many_threads) {
    int done = 0;
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) NEED(pthread_create(&threads[i], NULL, first_use, &done) == 0, "no thread");
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    say("%d threads", done);
    CHECK(done == 8, "%d of 8 threads found a device", done);
}

static cl_int write_and_read(cl_int value) {
    cl_int result = 0;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, NULL);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    read_all(buffer, &result, 4);
    OK(clReleaseMemObject(buffer));
    return result;
}

/* Waits at most twenty seconds, so that a child that hangs is a failure and not a hang. */
static int exit_code_of(pid_t child) {
    int status = 0;
    for (int i = 0; i < 2000; i++) {
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

CASE(a_child_forked_before_the_first_use_and_its_parent_both_work) {
    pid_t child = fork();
    if (child == 0) {
        open_device();
        _exit(write_and_read(11) == 11 ? 0 : 1);
    }
    open_device();
    CHECK(write_and_read(22) == 22, "the parent read something else");
    int code = exit_code_of(child);
    say("the child exited with %d", code);
    CHECK(code == 0, "the child exited with %d", code);
}

/* PoCL's threads do not survive a fork. */
CASE_TELECL_ONLY(a_child_forked_after_the_first_use_opens_a_session_of_its_own) {
    open_device();
    CHECK(write_and_read(1) == 1, "the parent before the fork");
    pid_t child = fork();
    if (child == 0) {
        open_device();
        _exit(write_and_read(11) == 11 ? 0 : 1);
    }
    CHECK(write_and_read(22) == 22, "the parent after the fork");
    int code = exit_code_of(child);
    say("the child exited with %d", code);
    CHECK(code == 0, "the child exited with %d", code);
    CHECK(write_and_read(33) == 33, "the parent after the child's end");
}

CASE_TELECL_ONLY(objects_from_before_a_fork_answer_with_errors_in_the_child) {
    open_device();
    cl_mem buffer = buffer_of(0, 4, NULL);
    pid_t child = fork();
    if (child == 0) {
        cl_int word = 0, status = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &word, 0, NULL, NULL);
        clReleaseMemObject(buffer);
        _exit(status < 0 ? 0 : 1);
    }
    int code = exit_code_of(child);
    say("the child exited with %d", code);
    CHECK(code == 0, "an old object neither failed nor returned: %d", code);
    CHECK(write_and_read(44) == 44, "the parent lost its session to the child");
}

CASE(a_child_that_only_execs_leaves_the_parent_alone) {
    open_device();
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(9);
    }
    int code = exit_code_of(child);
    CHECK(code == 0, "the child exited with %d", code);
    CHECK(write_and_read(5) == 5, "the parent lost its session");
    say("the child exited with %d, the parent goes on", code);
}

CASE(exit_without_releases_ends_at_once) {
    open_device();
    static cl_int words[1 << 18];
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof words, NULL);
    for (int i = 0; i < 10; i++) OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof words, words, 0, NULL, NULL));
    OK(clFinish(queue));
    MADE(clCreateUserEvent(context, &err));
    say("leaving");
    exit(0);
}

CASE(exit_with_commands_behind_a_closed_gate_ends_too) {
    open_device();
    cl_event gate = MADE(clCreateUserEvent(context, &err));
    OK(clEnqueueMarkerWithWaitList(queue, 1, &gate, NULL));
    OK(clFlush(queue));
    say("leaving");
    exit(0);
}

static cl_mem kept_buffer;

static void release_all(void) {
    say("at exit: buffer %s, queue %s, context %s", error_name(clReleaseMemObject(kept_buffer)), error_name(clReleaseCommandQueue(queue)), error_name(clReleaseContext(context)));
}

CASE(an_atexit_handler_may_release) {
    open_device();
    kept_buffer = buffer_of(0, 64, NULL);
    atexit(release_all);
    say("leaving");
}

static int release_in_destructor;

/* What a C++ program's static objects do, after main has returned. */
__attribute__((destructor)) static void like_a_static_object(void) {
    if (release_in_destructor) release_all();
}

CASE(a_static_destructor_may_release) {
    open_device();
    kept_buffer = buffer_of(0, 64, NULL);
    release_in_destructor = 1;
    say("leaving");
}

CASE(quick_exit_from_a_thread_of_the_program_works) {
    open_device();
    CHECK(write_and_read(6) == 6, "the read");
    say("leaving");
    _exit(0);
}

CASE(the_loader_may_be_opened_and_closed_at_run_time) {
    for (int round = 0; round < 3; round++) {
        void *loader = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
        NEED(loader, "no loader: %s", dlerror());
        cl_int (*get_platforms)(cl_uint, cl_platform_id *, cl_uint *) = (cl_int(*)(cl_uint, cl_platform_id *, cl_uint *))dlsym(loader, "clGetPlatformIDs");
        cl_uint count = 0;
        OK(get_platforms(0, NULL, &count));
        say("round %d: %u platform", round, count);
        CHECK(count == 1, "%u platforms", count);
        dlclose(loader);
    }
    open_device();
    CHECK(write_and_read(7) == 7, "the read");
}

CASE(the_handler_of_sigpipe_stays_as_the_program_set_it) {
    struct sigaction after;
    signal(SIGPIPE, SIG_DFL);
    open_device();
    CHECK(write_and_read(8) == 8, "the read");
    sigaction(SIGPIPE, NULL, &after);
    say("the default handler: %s", after.sa_handler == SIG_DFL ? "yes" : "no");
    CHECK(after.sa_handler == SIG_DFL, "the handler of SIGPIPE changed");
}

/* The compiler inside PoCL takes over SIGINT and others. */
CASE_TELECL_ONLY(no_signal_handler_and_no_signal_mask_changes) {
    struct sigaction before[65], after;
    for (int number = 1; number <= 64; number++) sigaction(number, NULL, &before[number]);
    open_device();
    CHECK(write_and_read(8) == 8, "the read");
    kernel_of("kernel void nothing(void) {}", "nothing");
    for (int number = 1; number <= 64; number++)
        if (sigaction(number, NULL, &after) == 0)
            CHECK(after.sa_handler == before[number].sa_handler, "the handler of signal %d changed", number);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int number = 1; number <= 64; number++) CHECK(sigismember(&mask, number) != 1, "signal %d is blocked", number);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number) {
    (void)number;
    alarms++;
}

CASE(signals_that_interrupt_system_calls_do_not_disturb_transfers) {
    open_device();
    struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
    sigaction(SIGALRM, &action, NULL);
    timer_t timer;
    struct itimerspec every = {{0, 500000}, {0, 500000}};
    NEED(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0 && timer_settime(timer, 0, &every, NULL) == 0, "no timer");
    size_t size = 8u << 20;
    unsigned char *content = malloc(size), *result = malloc(size);
    for (size_t i = 0; i < size; i++) content[i] = (unsigned char)(i * 31 >> 5);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, size, NULL);
    for (int round = 0; round < 4; round++) {
        OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, size, content, 0, NULL, NULL));
        memset(result, 0, size);
        read_all(buffer, result, size);
        CHECK(memcmp(content, result, size) == 0, "round %d came back changed", round);
    }
    timer_delete(timer);
    CHECK(alarms > 0, "no signal came");
    say("transfers right under signals");
}

CASE_TELECL_ONLY(the_driver_prints_nothing_of_its_own) {
    /* The runner compares stdout and stderr with what is printed here, which is one line. */
    open_device();
    CHECK(write_and_read(3) == 3, "the read");
    close_device();
    say("only this line");
}
