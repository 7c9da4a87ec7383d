/* Large transfers that return before they are done, and what is enqueued, released or written right behind them. */
#include "common.h"

enum { WORDS = 16 << 20, SIZE = WORDS * 4 };

/* What word `i` of the content `which` is. */
static cl_uint word(cl_uint which, size_t i) { return (cl_uint)i * 2654435761u + which; }

static cl_uint *filled(cl_uint which) {
    cl_uint *words = malloc(SIZE);
    for (size_t i = 0; i < WORDS; i++) words[i] = word(which, i);
    return words;
}

/* Memory whose pages are there, so that a read has nothing else to wait for. */
static cl_uint *target(void) { return memset(malloc(SIZE), 0xee, SIZE); }

static void check_content(const char *what, const cl_uint *words, cl_uint which) {
    size_t wrong = 0, first = 0;
    for (size_t i = WORDS; i-- > 0;) {
        if (words[i] != word(which, i)) wrong++, first = i;
    }
    say("%s: %zu words wrong", what, wrong);
    CHECK(wrong == 0, "word %zu is %08x, not %08x", first, words[first], word(which, first));
}

/* A device, and a buffer with content 1. */
static cl_mem open_with_content(void) {
    open_device();
    cl_uint *content = filled(1);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, SIZE, NULL);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, SIZE, content, 0, NULL, NULL));
    free(content);
    return buffer;
}

static cl_command_queue out_of_order(void) {
    cl_command_queue_properties can = INFO(cl_command_queue_properties, clGetDeviceInfo, device, CL_DEVICE_QUEUE_PROPERTIES);
    if (!(can & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)) SKIP("queues are in order only");
    return MADE(clCreateCommandQueue(context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &err));
}

static cl_kernel overwriter(cl_mem buffer, cl_uint which) {
    cl_kernel kernel = kernel_of("kernel void overwrite(global uint *a, uint which) {"
                                 "  size_t i = get_global_id(0); a[i] = (uint)i * 2654435761u + which; }", "overwrite");
    set_arg(kernel, 0, sizeof buffer, &buffer);
    set_arg(kernel, 1, sizeof which, &which);
    return kernel;
}

static void overwrite(cl_command_queue on, cl_kernel kernel, cl_uint count, const cl_event *waits) {
    size_t items = WORDS;
    OK(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &items, NULL, count, waits, NULL));
}

static void read_later(cl_command_queue on, cl_mem buffer, cl_uint *into, const cl_event *gate, cl_event *event) {
    OK(clEnqueueReadBuffer(on, buffer, CL_FALSE, 0, SIZE, into, gate ? 1 : 0, gate, event));
}

static cl_event closed_gate(void) { return MADE(clCreateUserEvent(context, &err)); }

/* The read that was enqueued first has the old content, and the buffer the new one. */
static void check_old_and_new(cl_mem buffer, const cl_uint *read) {
    cl_uint *now = target();
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, SIZE, now, 0, NULL, NULL));
    check_content("read before the kernel", read, 1);
    check_content("read after the kernel", now, 2);
}

CASE(a_read_has_what_was_there_before_the_kernel_behind_it) {
    cl_mem buffer = open_with_content();
    cl_kernel kernel = overwriter(buffer, 2);
    cl_uint *read = target();
    read_later(queue, buffer, read, NULL, NULL);
    overwrite(queue, kernel, 0, NULL);
    OK(clFinish(queue));
    check_old_and_new(buffer, read);
}

CASE(a_kernel_that_waits_for_a_read_comes_after_it_in_an_out_of_order_queue) {
    cl_mem buffer = open_with_content();
    cl_command_queue free_queue = out_of_order();
    cl_kernel kernel = overwriter(buffer, 2);
    cl_uint *read = target();
    cl_event done;
    read_later(free_queue, buffer, read, NULL, &done);
    overwrite(free_queue, kernel, 1, &done);
    OK(clFinish(free_queue));
    check_old_and_new(buffer, read);
}

CASE(a_kernel_of_another_queue_that_waits_for_a_read_comes_after_it) {
    cl_mem buffer = open_with_content();
    cl_command_queue other = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_kernel kernel = overwriter(buffer, 2);
    cl_uint *read = target();
    cl_event done;
    read_later(queue, buffer, read, NULL, &done);
    OK(clFlush(queue));
    overwrite(other, kernel, 1, &done);
    OK(clFinish(other));
    check_old_and_new(buffer, read);
}

CASE(a_read_behind_a_gate_has_what_was_there_before_the_kernel_behind_it) {
    cl_mem buffer = open_with_content();
    cl_kernel kernel = overwriter(buffer, 2);
    cl_uint *read = target();
    cl_event gate = closed_gate(), done;
    read_later(queue, buffer, read, &gate, &done);
    overwrite(queue, kernel, 0, NULL);
    OK(clFlush(queue));
    CHECK(INFO(cl_int, clGetEventInfo, done, CL_EVENT_COMMAND_EXECUTION_STATUS) > CL_COMPLETE, "it did not wait");
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(queue));
    check_old_and_new(buffer, read);
}

CASE(a_read_behind_a_gate_comes_before_what_waits_for_it_in_an_out_of_order_queue) {
    cl_mem buffer = open_with_content();
    cl_command_queue free_queue = out_of_order();
    cl_kernel kernel = overwriter(buffer, 2);
    cl_uint *read = target();
    cl_event gate = closed_gate(), done;
    read_later(free_queue, buffer, read, &gate, &done);
    overwrite(free_queue, kernel, 1, &done);
    OK(clFlush(free_queue));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(free_queue));
    check_old_and_new(buffer, read);
}

CASE(a_read_has_what_was_there_before_the_write_behind_it) {
    cl_mem buffer = open_with_content();
    cl_uint *read = target(), *later = filled(2);
    read_later(queue, buffer, read, NULL, NULL);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, SIZE, later, 0, NULL, NULL));
    OK(clFinish(queue));
    check_old_and_new(buffer, read);
}

CASE(a_rectangle_has_what_was_there_before_the_kernel_behind_it) {
    cl_mem buffer = open_with_content();
    cl_kernel kernel = overwriter(buffer, 2);
    cl_uint *read = target();
    size_t origin[3] = {0, 0, 0}, region[3] = {4096, SIZE / 4096 / 16, 16};
    OK(clEnqueueReadBufferRect(queue, buffer, CL_FALSE, origin, origin, region, 0, 0, 0, 0, read, 0, NULL, NULL));
    overwrite(queue, kernel, 0, NULL);
    OK(clFinish(queue));
    check_old_and_new(buffer, read);
}

CASE(finish_right_behind_a_read_waits_for_all_of_it) {
    cl_mem buffer = open_with_content();
    cl_uint *read = target();
    read_later(queue, buffer, read, NULL, NULL);
    OK(clFinish(queue));
    check_content("after clFinish", read, 1);
}

CASE(the_event_of_a_read_may_be_released_at_once) {
    cl_mem buffer = open_with_content();
    cl_kernel kernel = overwriter(buffer, 2);
    cl_uint *read = target();
    cl_event done;
    read_later(queue, buffer, read, NULL, &done);
    OK(clReleaseEvent(done));
    overwrite(queue, kernel, 0, NULL);
    OK(clFinish(queue));
    check_old_and_new(buffer, read);
}

CASE(the_buffer_of_a_read_may_be_released_at_once) {
    cl_mem buffer = open_with_content();
    cl_uint *read = target();
    cl_event done;
    read_later(queue, buffer, read, NULL, &done);
    OK(clReleaseMemObject(buffer));
    /* Something that may take the memory of the one before. */
    cl_uint *content = filled(3);
    buffer_of(CL_MEM_READ_WRITE, SIZE, content);
    OK(clWaitForEvents(1, &done));
    check_content("after the release", read, 1);
}

/* PoCL 3.1 destroys a queue whose commands have not ended. */
CASE_TELECL_ONLY(everything_about_a_read_may_be_released_at_once) {
    cl_mem buffer = open_with_content();
    cl_uint *read = target();
    cl_event gate = closed_gate(), done;
    read_later(queue, buffer, read, &gate, &done);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(queue));
    OK(clReleaseContext(context));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clReleaseEvent(gate));
    OK(clWaitForEvents(1, &done));
    OK(clReleaseEvent(done));
    check_content("after all releases", read, 1);
}

CASE(reads_of_two_queues_at_once_are_both_whole) {
    cl_mem one = open_with_content(), two = buffer_of(CL_MEM_READ_WRITE, SIZE, NULL);
    cl_command_queue other = MADE(clCreateCommandQueue(context, device, 0, &err));
    overwrite(queue, overwriter(two, 2), 0, NULL);
    OK(clFinish(queue));
    cl_uint *first = target(), *second = target();
    for (int round = 0; round < 2; round++) {
        memset(first, 0xee, SIZE);
        memset(second, 0xee, SIZE);
        read_later(queue, one, first, NULL, NULL);
        read_later(other, two, second, NULL, NULL);
        OK(clFinish(other));
        check_content("second", second, 2);
        OK(clFinish(queue));
        check_content("first", first, 1);
    }
}

CASE(reads_and_writes_at_the_same_time_do_not_hold_each_other_up) {
    cl_mem one = open_with_content(), two = buffer_of(CL_MEM_READ_WRITE, SIZE, NULL);
    cl_command_queue other = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_uint *first = target(), *second = filled(2), *back = target();
    for (int round = 0; round < 3; round++) {
        read_later(queue, one, first, NULL, NULL);
        OK(clEnqueueWriteBuffer(other, two, CL_FALSE, 0, SIZE, second, 0, NULL, NULL));
        read_later(other, two, back, NULL, NULL);
    }
    OK(clFinish(queue));
    OK(clFinish(other));
    check_content("read", first, 1);
    check_content("written and read", back, 2);
}

/* What waits at a gate keeps memory of the link for as long as the program likes. */
CASE(transfers_behind_a_gate_do_not_hold_up_another_queue) {
    cl_mem one = open_with_content(), two = buffer_of(CL_MEM_READ_WRITE, SIZE, NULL), three = buffer_of(CL_MEM_READ_WRITE, SIZE, NULL);
    cl_command_queue other = MADE(clCreateCommandQueue(context, device, 0, &err)), third = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_uint *first = target(), *second = filled(2), *content = filled(3), *back = target();
    cl_event gate = closed_gate();
    read_later(queue, one, first, &gate, NULL);
    OK(clEnqueueWriteBuffer(other, two, CL_FALSE, 0, SIZE, second, 1, &gate, NULL));
    OK(clEnqueueWriteBuffer(third, three, CL_TRUE, 0, SIZE, content, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(third, three, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    check_content("past the gate", back, 3);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(queue));
    check_content("read at the gate", first, 1);
    OK(clEnqueueReadBuffer(other, two, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    check_content("written at the gate", back, 2);
}

/* About the order on telecl's links; a device may well do one after the other. */
CASE_TELECL_ONLY(a_small_command_does_not_wait_for_a_large_read_of_another_queue) {
    open_device();
    size_t size = 1u << 30;
    if (INFO(cl_ulong, clGetDeviceInfo, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE) < size) SKIP("no buffer of that size");
    cl_mem large = buffer_of(CL_MEM_READ_WRITE, size, NULL), small = buffer_of(CL_MEM_READ_WRITE, 4, NULL);
    cl_command_queue other = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_kernel kernel = kernel_of("kernel void twice(global int *a) { *a *= 2; }", "twice");
    set_arg(kernel, 0, sizeof small, &small);
    cl_int zero = 0, value = 21, result = 0;
    OK(clEnqueueFillBuffer(queue, large, &zero, 4, 0, size, 0, NULL, NULL));
    OK(clEnqueueNDRangeKernel(other, kernel, 1, NULL, &(size_t){1}, NULL, 0, NULL, NULL));
    OK(clFinish(other));
    OK(clFinish(queue));
    void *memory = memset(malloc(size), 0xee, size);
    cl_event done;
    double begin = seconds();
    OK(clEnqueueReadBuffer(queue, large, CL_FALSE, 0, size, memory, 0, NULL, &done));
    OK(clFlush(queue));
    OK(clEnqueueWriteBuffer(other, small, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    OK(clEnqueueNDRangeKernel(other, kernel, 1, NULL, &(size_t){1}, NULL, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(other, small, CL_TRUE, 0, 4, &result, 0, NULL, NULL));
    double small_took = seconds() - begin;
    cl_int state = INFO(cl_int, clGetEventInfo, done, CL_EVENT_COMMAND_EXECUTION_STATUS);
    OK(clWaitForEvents(1, &done));
    double both_took = seconds() - begin;
    CHECK(result == 42, "the kernel gave %d", result);
    CHECK(state > CL_COMPLETE, "the large read ended before");
    CHECK(small_took < both_took / 2, "the small command took %.0f ms, the large read %.0f", small_took * 1e3, both_took * 1e3);
    CHECK(((char *)memory)[0] == 0 && memcmp(memory, (char *)memory + 1, size - 1) == 0, "the large read is wrong");
}
