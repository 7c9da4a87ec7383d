/* Command-queues: the order of commands, markers, barriers, several queues at once. */
#include "common.h"

static const char *steps =
    "kernel void set(global int *a, int value) { a[get_global_id(0)] = value; }\n"
    "kernel void times(global int *to, global const int *from, int factor)"
    "{ size_t i = get_global_id(0); to[i] = from[i] * factor; }\n"
    "kernel void add(global int *to, global const int *a, global const int *b)"
    "{ size_t i = get_global_id(0); to[i] = a[i] + b[i]; }\n";

enum { COUNT = 1024 };

static cl_kernel with_buffers(cl_program program, const char *name, cl_uint count, cl_mem *buffers, const cl_int *value) {
    cl_kernel kernel = MADE(clCreateKernel(program, name, &err));
    for (cl_uint i = 0; i < count; i++) set_arg(kernel, i, sizeof(cl_mem), &buffers[i]);
    if (value) set_arg(kernel, count, sizeof *value, value);
    return kernel;
}

static void enqueue(cl_command_queue on, cl_kernel kernel, cl_uint waits, const cl_event *wait_list, cl_event *event) {
    size_t count = COUNT;
    OK(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &count, NULL, waits, wait_list, event));
}

static cl_command_queue out_of_order(void) {
    if (!(INFO(cl_command_queue_properties, clGetDeviceInfo, device, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES) & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE))
        SKIP("the device has no out-of-order queues");
    return MADE(clCreateCommandQueue(context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &err));
}

static cl_mem ints(void) { return buffer_of(CL_MEM_READ_WRITE, COUNT * sizeof(cl_int), NULL); }

CASE(an_in_order_queue_runs_commands_one_after_the_other) {
    open_device();
    cl_program program = program_of(steps, "");
    cl_mem buffers[2] = {ints(), ints()};
    cl_mem turned[2] = {buffers[1], buffers[0]};
    cl_int one = 1, two = 2, result[COUNT];
    enqueue(queue, with_buffers(program, "set", 1, buffers, &one), 0, NULL, NULL);
    cl_kernel there = with_buffers(program, "times", 2, turned, &two), back = with_buffers(program, "times", 2, buffers, &two);
    for (int i = 0; i < 15; i++) enqueue(queue, i % 2 ? back : there, 0, NULL, NULL);
    read_all(buffers[1], result, sizeof result);
    say("2 to the 15: %d", result[COUNT - 1]);
    for (int i = 0; i < COUNT; i++) CHECK(result[i] == 1 << 15, "element %d is %d", i, result[i]);
}

CASE(a_diamond_of_dependencies_holds_in_an_out_of_order_queue) {
    open_device();
    cl_command_queue free_queue = out_of_order();
    cl_program program = program_of(steps, "");
    cl_mem top = ints(), left = ints(), right = ints(), bottom = ints();
    cl_int seven = 7, two = 2, three = 3, result[COUNT];
    cl_kernel set = with_buffers(program, "set", 1, &top, &seven);
    cl_kernel twice = with_buffers(program, "times", 2, (cl_mem[]){left, top}, &two);
    cl_kernel thrice = with_buffers(program, "times", 2, (cl_mem[]){right, top}, &three);
    cl_kernel add = with_buffers(program, "add", 3, (cl_mem[]){bottom, left, right}, NULL);
    for (int round = 0; round < 20; round++) {
        cl_event start, sides[2], end;
        enqueue(free_queue, set, 0, NULL, &start);
        enqueue(free_queue, twice, 1, &start, &sides[0]);
        enqueue(free_queue, thrice, 1, &start, &sides[1]);
        enqueue(free_queue, add, 2, sides, &end);
        OK(clEnqueueReadBuffer(free_queue, bottom, CL_TRUE, 0, sizeof result, result, 1, &end, NULL));
        for (int i = 0; i < COUNT; i++) CHECK(result[i] == 35, "round %d, element %d is %d", round, i, result[i]);
        OK(clReleaseEvent(start));
        OK(clReleaseEvent(sides[0]));
        OK(clReleaseEvent(sides[1]));
        OK(clReleaseEvent(end));
    }
    say("bottom of the diamond: %d", result[0]);
}

CASE(a_barrier_divides_an_out_of_order_queue) {
    open_device();
    cl_command_queue free_queue = out_of_order();
    cl_program program = program_of(steps, "");
    cl_mem from = ints(), to = ints();
    cl_int four = 4, five = 5, result[COUNT];
    enqueue(free_queue, with_buffers(program, "set", 1, &from, &four), 0, NULL, NULL);
    OK(clEnqueueBarrierWithWaitList(free_queue, 0, NULL, NULL));
    enqueue(free_queue, with_buffers(program, "times", 2, (cl_mem[]){to, from}, &five), 0, NULL, NULL);
    EXPECT(CL_SUCCESS, clEnqueueBarrier(free_queue));
    OK(clEnqueueReadBuffer(free_queue, to, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL));
    say("after the barriers: %d", result[3]);
    for (int i = 0; i < COUNT; i++) CHECK(result[i] == 20, "element %d is %d", i, result[i]);
}

CASE(a_marker_completes_after_what_was_enqueued_before_it) {
    open_device();
    cl_command_queue free_queue = out_of_order();
    cl_program program = program_of(steps, "");
    cl_mem buffer = ints();
    cl_int nine = 9, result[COUNT];
    cl_event work, marker;
    enqueue(free_queue, with_buffers(program, "set", 1, &buffer, &nine), 0, NULL, &work);
    EXPECT(CL_SUCCESS, clEnqueueMarkerWithWaitList(free_queue, 0, NULL, &marker));
    OK(clWaitForEvents(1, &marker));
    cl_int state = INFO(cl_int, clGetEventInfo, work, CL_EVENT_COMMAND_EXECUTION_STATUS);
    say("work before the marker: %s", event_state_name(state));
    CHECK(state == CL_COMPLETE, "the marker came first");
    EXPECT(CL_SUCCESS, clEnqueueMarker(free_queue, &marker));
    OK(clEnqueueReadBuffer(free_queue, buffer, CL_TRUE, 0, sizeof result, result, 1, &marker, NULL));
    CHECK(result[5] == 9, "the buffer has %d", result[5]);
}

/* PoCL 3.1 ends the process in clEnqueueWaitForEvents; a barrier with a wait list does the same work. */
CASE_TELECL_ONLY(the_deprecated_wait_holds_later_commands_back) {
    open_device();
    cl_command_queue free_queue = out_of_order();
    cl_event gate = MADE(clCreateUserEvent(context, &err)), marker;
    EXPECT(CL_SUCCESS, clEnqueueWaitForEvents(free_queue, 1, &gate));
    OK(clEnqueueMarkerWithWaitList(free_queue, 0, NULL, &marker));
    OK(clFlush(free_queue));
    CHECK(INFO(cl_int, clGetEventInfo, marker, CL_EVENT_COMMAND_EXECUTION_STATUS) > CL_COMPLETE, "the marker did not wait");
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    EXPECT(CL_SUCCESS, clWaitForEvents(1, &marker));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueWaitForEvents(NULL, 1, &gate));
    EXPECT(CL_INVALID_VALUE, clEnqueueWaitForEvents(free_queue, 0, NULL));
}

CASE(a_marker_with_a_wait_list_waits_for_that_list) {
    open_device();
    cl_event gate = MADE(clCreateUserEvent(context, &err)), marker, barrier;
    cl_command_queue free_queue = out_of_order();
    OK(clEnqueueMarkerWithWaitList(free_queue, 1, &gate, &marker));
    OK(clEnqueueBarrierWithWaitList(free_queue, 1, &gate, &barrier));
    OK(clFlush(free_queue));
    CHECK(INFO(cl_int, clGetEventInfo, marker, CL_EVENT_COMMAND_EXECUTION_STATUS) > CL_COMPLETE, "the marker did not wait");
    CHECK(INFO(cl_int, clGetEventInfo, barrier, CL_EVENT_COMMAND_EXECUTION_STATUS) > CL_COMPLETE, "the barrier did not wait");
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    EXPECT(CL_SUCCESS, clWaitForEvents(2, (cl_event[]){marker, barrier}));
    say("command types %#x, %#x", INFO(cl_command_type, clGetEventInfo, marker, CL_EVENT_COMMAND_TYPE),
        INFO(cl_command_type, clGetEventInfo, barrier, CL_EVENT_COMMAND_TYPE));
}

CASE(events_join_work_of_several_queues) {
    open_device();
    cl_program program = program_of(steps, "");
    cl_command_queue queues[4];
    cl_mem buffers[4], sum = ints();
    cl_event events[4];
    for (cl_int i = 0; i < 4; i++) {
        queues[i] = MADE(clCreateCommandQueue(context, device, 0, &err));
        buffers[i] = ints();
        enqueue(queues[i], with_buffers(program, "set", 1, &buffers[i], &i), 0, NULL, &events[i]);
        OK(clFlush(queues[i]));
    }
    enqueue(queue, with_buffers(program, "add", 3, (cl_mem[]){sum, buffers[2], buffers[3]}, NULL), 4, events, NULL);
    cl_int result[COUNT];
    read_all(sum, result, sizeof result);
    say("2 + 3 over queues: %d", result[9]);
    CHECK(result[9] == 5, "the sum is %d", result[9]);
    EXPECT(CL_SUCCESS, clWaitForEvents(4, events));
}

CASE(work_on_two_queues_alternates_by_events) {
    open_device();
    cl_program program = program_of(steps, "");
    cl_command_queue other = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_mem buffers[2] = {ints(), ints()};
    cl_int one = 1, two = 2, result[COUNT];
    cl_kernel there = with_buffers(program, "times", 2, (cl_mem[]){buffers[1], buffers[0]}, &two);
    cl_kernel back = with_buffers(program, "times", 2, buffers, &two);
    cl_event last, next;
    enqueue(queue, with_buffers(program, "set", 1, buffers, &one), 0, NULL, &last);
    for (int i = 0; i < 20; i++) {
        cl_command_queue on = i % 2 ? queue : other, before = i % 2 ? other : queue;
        OK(clFlush(before));
        enqueue(on, i % 2 ? back : there, 1, &last, &next);
        OK(clReleaseEvent(last));
        last = next;
    }
    OK(clEnqueueReadBuffer(queue, buffers[0], CL_TRUE, 0, sizeof result, result, 1, &last, NULL));
    say("2 to the 20: %d", result[100]);
    CHECK(result[100] == 1 << 20, "the chain gave %d", result[100]);
}

CASE(a_wait_list_of_another_context_is_refused) {
    open_device();
    cl_context stranger = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &err));
    cl_event foreign = MADE(clCreateUserEvent(stranger, &err)), own = MADE(clCreateUserEvent(context, &err));
    cl_mem buffer = ints();
    cl_int value = 0;
    EXPECT(CL_INVALID_CONTEXT, clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, 4, &value, 1, &foreign, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, 4, &value, 1, &foreign, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueMarkerWithWaitList(queue, 1, &foreign, NULL));
    EXPECT(CL_INVALID_CONTEXT, clWaitForEvents(2, (cl_event[]){own, foreign}));
}

CASE(a_task_is_a_range_of_one_work_item) {
    open_device();
    cl_program program = program_of(steps, "");
    cl_mem buffer = ints();
    cl_int zero = 0, six = 6, result[COUNT];
    OK(clEnqueueFillBuffer(queue, buffer, &zero, 4, 0, sizeof result, 0, NULL, NULL));
    EXPECT(CL_SUCCESS, clEnqueueTask(queue, with_buffers(program, "set", 1, &buffer, &six), 0, NULL, NULL));
    read_all(buffer, result, sizeof result);
    show_ints("first three", result, 3);
    CHECK(result[0] == 6 && result[1] == 0, "the task ran over %d, %d", result[0], result[1]);
}

CASE(migrations_leave_the_content) {
    open_device();
    cl_int content[4] = {4, 3, 2, 1}, result[4];
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof content, content);
    EXPECT(CL_SUCCESS, clEnqueueMigrateMemObjects(queue, 1, &buffer, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL));
    EXPECT(CL_SUCCESS, clEnqueueMigrateMemObjects(queue, 1, &buffer, 0, 0, NULL, NULL));
    read_all(buffer, result, sizeof result);
    show_ints("content", result, 4);
    CHECK(memcmp(content, result, sizeof result) == 0, "the content changed");
    EXPECT(CL_SUCCESS, clEnqueueMigrateMemObjects(queue, 1, &buffer, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueMigrateMemObjects(queue, 0, &buffer, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueMigrateMemObjects(queue, 1, NULL, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueMigrateMemObjects(queue, 1, &buffer, 1u << 20, 0, NULL, NULL));
    OK(clFinish(queue));
}

CASE(flush_and_finish_take_queues_only) {
    open_device();
    EXPECT(CL_SUCCESS, clFlush(queue));
    EXPECT(CL_SUCCESS, clFinish(queue));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clFlush(NULL));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clFinish(NULL));
}

CASE(finish_waits_for_everything_on_its_queue) {
    open_device();
    cl_program program = program_of(steps, "");
    cl_mem buffer = ints();
    cl_int result[COUNT];
    cl_event events[30];
    for (cl_int i = 0; i < 30; i++) enqueue(queue, with_buffers(program, "set", 1, &buffer, &i), 0, NULL, &events[i]);
    OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, sizeof result, result, 0, NULL, NULL));
    OK(clFinish(queue));
    for (int i = 0; i < 30; i++)
        CHECK(INFO(cl_int, clGetEventInfo, events[i], CL_EVENT_COMMAND_EXECUTION_STATUS) == CL_COMPLETE, "event %d is not complete", i);
    say("last value %d", result[0]);
    CHECK(result[0] == 29 && result[COUNT - 1] == 29, "the read has %d", result[0]);
}

CASE(a_queue_describes_itself) {
    open_device();
    cl_command_queue profiled = MADE(clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &err));
    CHECK(INFO(cl_context, clGetCommandQueueInfo, queue, CL_QUEUE_CONTEXT) == context, "the context");
    CHECK(INFO(cl_device_id, clGetCommandQueueInfo, queue, CL_QUEUE_DEVICE) == device, "the device");
    say("properties %#llx, %#llx",
        (unsigned long long)INFO(cl_command_queue_properties, clGetCommandQueueInfo, queue, CL_QUEUE_PROPERTIES),
        (unsigned long long)INFO(cl_command_queue_properties, clGetCommandQueueInfo, profiled, CL_QUEUE_PROPERTIES));
    CHECK(INFO(cl_command_queue_properties, clGetCommandQueueInfo, profiled, CL_QUEUE_PROPERTIES) == CL_QUEUE_PROFILING_ENABLE, "the properties");
    OK(clReleaseCommandQueue(profiled));
}
