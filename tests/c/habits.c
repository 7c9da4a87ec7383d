/* Programs that do the same again and again: what the driver foresees must be what they would have got. */
#include "common.h"

static const char count_up[] = "kernel void count(global int *a, global int *b, int by) { a[0] += by; b[3] = 7 * a[0]; }";

static cl_kernel counter(cl_mem a, cl_mem b) {
    cl_kernel kernel = MADE(clCreateKernel(program_of(count_up, ""), "count", &err));
    OK(clSetKernelArg(kernel, 0, sizeof a, &a));
    OK(clSetKernelArg(kernel, 1, sizeof b, &b));
    return kernel;
}

/* Runs the kernel and waits for it. */
static void run(cl_command_queue in, cl_kernel kernel, cl_int by) {
    const size_t one = 1;
    cl_event done;
    OK(clSetKernelArg(kernel, 2, sizeof by, &by));
    OK(clEnqueueNDRangeKernel(in, kernel, 1, NULL, &one, NULL, 0, NULL, &done));
    OK(clWaitForEvents(1, &done));
    OK(clReleaseEvent(done));
}

static cl_int int_at(cl_command_queue in, cl_mem buffer, size_t index) {
    cl_int value = -1;
    OK(clEnqueueReadBuffer(in, buffer, CL_TRUE, 4 * index, 4, &value, 0, NULL, NULL));
    return value;
}

CASE(what_is_read_after_each_kernel_is_what_that_kernel_made) {
    open_device();
    const cl_int zeros[4] = {0};
    cl_mem a = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros), b = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros);
    cl_kernel kernel = counter(a, b);
    cl_int sum = 0, wrong = 0;
    for (cl_int i = 1; i <= 100; i++) {
        run(queue, kernel, i);
        sum += i;
        wrong += int_at(queue, a, 0) != sum;
        wrong += int_at(queue, b, 3) != 7 * sum;
        wrong += int_at(queue, a, 1) != 0;
    }
    say("sum %d, wrong %d", sum, wrong);
    CHECK(wrong == 0, "%d values are of another time", wrong);
}

CASE(the_same_with_finish_instead_of_an_event) {
    open_device();
    const cl_int zeros[4] = {0};
    cl_mem a = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros), b = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros);
    cl_kernel kernel = counter(a, b);
    const size_t one = 1;
    cl_int wrong = 0, by = 1;
    OK(clSetKernelArg(kernel, 2, sizeof by, &by));
    for (cl_int i = 1; i <= 100; i++) {
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
        OK(clFinish(queue));
        wrong += int_at(queue, a, 0) != i;
    }
    CHECK(wrong == 0, "%d values are of another time", wrong);
}

CASE(a_write_after_the_wait_is_seen_by_the_read) {
    open_device();
    const cl_int zeros[4] = {0};
    cl_mem a = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros), b = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros);
    cl_kernel kernel = counter(a, b);
    cl_int expected = 0, wrong = 0;
    for (cl_int i = 1; i <= 120; i++) {
        run(queue, kernel, 1);
        expected += 1;
        if (i % 5 == 0) { /* Now and then, when the habit is firm. */
            expected = 1000 * i;
            OK(clEnqueueWriteBuffer(queue, a, CL_FALSE, 0, 4, &expected, 0, NULL, NULL));
        } else if (i % 7 == 0) {
            const cl_int pattern = expected = 2000 * i;
            OK(clEnqueueFillBuffer(queue, a, &pattern, 4, 0, 4, 0, NULL, NULL));
        } else if (i % 11 == 0) {
            cl_int *mapped = MADE(clEnqueueMapBuffer(queue, a, CL_TRUE, CL_MAP_WRITE, 0, 4, 0, NULL, NULL, &err));
            *mapped = expected = 3000 * i;
            OK(clEnqueueUnmapMemObject(queue, a, mapped, 0, NULL, NULL));
        }
        wrong += int_at(queue, a, 0) != expected;
    }
    CHECK(wrong == 0, "%d values are older than the write", wrong);
}

CASE(what_another_queue_has_done_is_seen) {
    open_device();
    const cl_int zeros[4] = {0};
    cl_mem a = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros), b = buffer_of(CL_MEM_READ_WRITE, sizeof zeros, zeros);
    cl_kernel kernel = counter(a, b);
    cl_int expected = 0, wrong = 0;
    for (int i = 0; i < 20; i++) {
        run(queue, kernel, 1);
        wrong += int_at(queue, a, 0) != ++expected;
    }
    cl_command_queue other = MADE(clCreateCommandQueue(context, device, 0, &err));
    for (int i = 0; i < 20; i++) {
        run(queue, kernel, 1);
        run(other, kernel, 1);
        expected += 2;
        wrong += int_at(queue, a, 0) != expected;
    }
    CHECK(wrong == 0, "%d values are of another time", wrong);
    OK(clReleaseCommandQueue(other));
}

static int notified;

static void CL_CALLBACK note(const char *text, const void *private_info, size_t size, void *user) {
    (void)text, (void)private_info, (void)size, (void)user;
    tally_add(&notified);
}

CASE(a_buffer_that_is_gone_is_not_missed) {
    open_device();
    cl_context own = MADE(clCreateContext(NULL, 1, &device, note, NULL, &err));
    cl_command_queue in = MADE(clCreateCommandQueue(own, device, 0, &err));
    const char *source = count_up;
    cl_program program = MADE(clCreateProgramWithSource(own, 1, &source, NULL, &err));
    OK(clBuildProgram(program, 1, &device, "", NULL, NULL));
    cl_kernel kernel = MADE(clCreateKernel(program, "count", &err));
    cl_int zeros[4] = {0}, wrong = 0;
    for (int round = 0; round < 6; round++) {
        cl_mem a = MADE(clCreateBuffer(own, CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros, &err));
        cl_mem b = MADE(clCreateBuffer(own, CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros, &err));
        OK(clSetKernelArg(kernel, 0, sizeof a, &a));
        OK(clSetKernelArg(kernel, 1, sizeof b, &b));
        for (int i = 1; i <= 10; i++) {
            run(in, kernel, 1);
            wrong += int_at(in, a, 0) != i;
            wrong += int_at(in, b, 3) != 7 * i;
        }
        OK(clReleaseMemObject(a));
        OK(clReleaseMemObject(b));
    }
    OK(clFinish(in));
    CHECK(wrong == 0, "%d values are of another buffer", wrong);
    CHECK(notified == 0, "%d errors were reported", notified);
    OK(clReleaseCommandQueue(in));
    OK(clReleaseContext(own));
}

static cl_mem shared;
static volatile int stop;

static void *write_numbers(void *arg) {
    (void)arg;
    for (cl_int i = 1; i <= 300; i++) {
        OK(clEnqueueWriteBuffer(queue, shared, CL_TRUE, 0, 4, &i, 0, NULL, NULL));
    }
    stop = 1;
    return NULL;
}

CASE(numbers_that_another_thread_writes_never_go_back) {
    open_device();
    const cl_int zero = 0;
    shared = buffer_of(CL_MEM_READ_WRITE, 4, &zero);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, write_numbers, NULL) == 0, "no thread");
    cl_int last = 0, wrong = 0;
    while (!stop) {
        OK(clFinish(queue));
        cl_int now = int_at(queue, shared, 0);
        wrong += now < last;
        last = now;
    }
    pthread_join(thread, NULL);
    CHECK(wrong == 0, "%d times a number was followed by a smaller one", wrong);
    CHECK(int_at(queue, shared, 0) == 300, "the last number is missing");
}
