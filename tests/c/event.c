/* Events: states, user events, failure, information and profiling. */
#include "common.h"

static cl_int state_of(cl_event event) { return INFO(cl_int, clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS); }

CASE(a_user_event_is_submitted_until_it_is_set) {
    open_device();
    cl_event event = MADE(clCreateUserEvent(context, &err));
    say("new: %s", event_state_name(state_of(event)));
    CHECK(state_of(event) == CL_SUBMITTED, "a new user event is %s", event_state_name(state_of(event)));
    CHECK(INFO(cl_command_type, clGetEventInfo, event, CL_EVENT_COMMAND_TYPE) == CL_COMMAND_USER, "the command type");
    CHECK(INFO(cl_command_queue, clGetEventInfo, event, CL_EVENT_COMMAND_QUEUE) == NULL, "a user event has a queue");
    CHECK(INFO(cl_context, clGetEventInfo, event, CL_EVENT_CONTEXT) == context, "the context");
    EXPECT(CL_INVALID_VALUE, clSetUserEventStatus(event, CL_RUNNING));
    EXPECT(CL_SUCCESS, clSetUserEventStatus(event, CL_COMPLETE));
    say("set: %s", event_state_name(state_of(event)));
    CHECK(state_of(event) == CL_COMPLETE, "a set user event is %s", event_state_name(state_of(event)));
    EXPECT(CL_INVALID_OPERATION, clSetUserEventStatus(event, CL_COMPLETE));
    EXPECT(CL_SUCCESS, clReleaseEvent(event));
}

CASE(a_command_waits_for_its_user_event) {
    open_device();
    cl_int content = 1, later = 2, result = 0;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, &content);
    cl_event gate = MADE(clCreateUserEvent(context, &err)), write;
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, 4, &later, 1, &gate, &write));
    OK(clFlush(queue));
    CHECK(state_of(write) > CL_COMPLETE, "the write did not wait");
    cl_command_queue other = MADE(clCreateCommandQueue(context, device, 0, &err));
    OK(clEnqueueReadBuffer(other, buffer, CL_TRUE, 0, 4, &result, 0, NULL, NULL));
    say("before the gate opens: %d", result);
    CHECK(result == 1, "the write ran before its gate opened");
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &write));
    OK(clEnqueueReadBuffer(other, buffer, CL_TRUE, 0, 4, &result, 0, NULL, NULL));
    say("after: %d", result);
    CHECK(result == 2, "the write did not run");
}

static void *open_gate(void *gate) {
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    return NULL;
}

CASE(a_user_event_set_from_another_thread_releases_a_blocked_wait) {
    open_device();
    cl_event gate = MADE(clCreateUserEvent(context, &err)), marker;
    OK(clEnqueueMarkerWithWaitList(queue, 1, &gate, &marker));
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, open_gate, gate) == 0, "no thread");
    EXPECT(CL_SUCCESS, clWaitForEvents(1, &marker));
    pthread_join(thread, NULL);
}

CASE(a_failed_user_event_fails_what_depends_on_it) {
    open_device();
    cl_int content = 1, later = 2, result = 0;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, &content);
    cl_event gate = MADE(clCreateUserEvent(context, &err)), write, marker;
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, 4, &later, 1, &gate, &write));
    OK(clEnqueueMarkerWithWaitList(queue, 1, &write, &marker));
    OK(clFlush(queue));
    EXPECT(CL_SUCCESS, clSetUserEventStatus(gate, -4711));
    say("the gate: %s", event_state_name(state_of(gate)));
    CHECK(state_of(gate) == -4711, "the gate does not keep its status");
    EXPECT(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, clWaitForEvents(1, &write));
    EXPECT(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, clWaitForEvents(1, &marker));
    DEVIATES(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, state_of(write));
    DEVIATES(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, state_of(marker));
    CHECK(state_of(write) < 0 && state_of(marker) < 0, "a dependent did not fail");
    cl_command_queue other = MADE(clCreateCommandQueue(context, device, 0, &err));
    OK(clEnqueueReadBuffer(other, buffer, CL_TRUE, 0, 4, &result, 0, NULL, NULL));
    say("the buffer: %d", result);
    CHECK(result == 1, "a command ran although its wait list failed");
}

CASE(waiting_for_a_failed_user_event_says_so) {
    open_device();
    cl_event gate = MADE(clCreateUserEvent(context, &err));
    OK(clSetUserEventStatus(gate, -1));
    EXPECT(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, clWaitForEvents(1, &gate));
}

CASE(a_command_event_describes_its_command) {
    open_device();
    cl_int word = 1;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 64, NULL);
    cl_kernel kernel = kernel_of("kernel void nothing(void) {}", "nothing");
    size_t one = 1;
    cl_event events[6];
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 4, &word, 0, NULL, &events[0]));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &word, 0, NULL, &events[1]));
    OK(clEnqueueCopyBuffer(queue, buffer, buffer, 0, 32, 4, 0, NULL, &events[2]));
    OK(clEnqueueFillBuffer(queue, buffer, &word, 4, 0, 64, 0, NULL, &events[3]));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &events[4]));
    OK(clEnqueueMigrateMemObjects(queue, 1, &buffer, 0, 0, NULL, &events[5]));
    OK(clFinish(queue));
    const cl_command_type wanted[6] = {CL_COMMAND_WRITE_BUFFER, CL_COMMAND_READ_BUFFER, CL_COMMAND_COPY_BUFFER, CL_COMMAND_FILL_BUFFER, CL_COMMAND_NDRANGE_KERNEL, CL_COMMAND_MIGRATE_MEM_OBJECTS};
    for (int i = 0; i < 6; i++) {
        cl_command_type type = INFO(cl_command_type, clGetEventInfo, events[i], CL_EVENT_COMMAND_TYPE);
        say("type %#x, %s", type, event_state_name(state_of(events[i])));
        CHECK(type == wanted[i], "event %d has type %#x", i, type);
        CHECK(INFO(cl_command_queue, clGetEventInfo, events[i], CL_EVENT_COMMAND_QUEUE) == queue, "event %d: the queue", i);
        CHECK(INFO(cl_context, clGetEventInfo, events[i], CL_EVENT_CONTEXT) == context, "event %d: the context", i);
        CHECK(state_of(events[i]) == CL_COMPLETE, "event %d after finish", i);
    }
}

CASE(maps_unmaps_images_and_rectangles_have_command_types_of_their_own) {
    open_device();
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 64, NULL);
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
    cl_mem image = MADE(clCreateImage(context, 0, &format, &desc, NULL, &err));
    size_t zero[3] = {0, 0, 0}, region[3] = {4, 4, 1}, half[3] = {4, 2, 1}, lower[3] = {0, 2, 0}, row;
    cl_uint host[16] = {0};
    cl_event events[11];
    void *mapped = MADE(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 64, 0, NULL, &events[0], &err));
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, &events[1]));
    mapped = MADE(clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, zero, region, &row, NULL, 0, NULL, &events[2], &err));
    OK(clEnqueueUnmapMemObject(queue, image, mapped, 0, NULL, &events[3]));
    OK(clEnqueueWriteImage(queue, image, CL_TRUE, zero, region, 0, 0, host, 0, NULL, &events[4]));
    OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, region, 0, 0, host, 0, NULL, &events[5]));
    OK(clEnqueueCopyImage(queue, image, image, zero, lower, half, 0, NULL, &events[6]));
    OK(clEnqueueCopyImageToBuffer(queue, image, buffer, zero, region, 0, 0, NULL, &events[7]));
    OK(clEnqueueCopyBufferToImage(queue, buffer, image, 0, zero, region, 0, NULL, &events[8]));
    OK(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 0, 0, 0, 0, host, 0, NULL, &events[9]));
    OK(clEnqueueFillImage(queue, image, host, zero, region, 0, NULL, &events[10]));
    OK(clFinish(queue));
    const cl_command_type wanted[11] = {CL_COMMAND_MAP_BUFFER, CL_COMMAND_UNMAP_MEM_OBJECT, CL_COMMAND_MAP_IMAGE, CL_COMMAND_UNMAP_MEM_OBJECT,
        CL_COMMAND_WRITE_IMAGE, CL_COMMAND_READ_IMAGE, CL_COMMAND_COPY_IMAGE, CL_COMMAND_COPY_IMAGE_TO_BUFFER, CL_COMMAND_COPY_BUFFER_TO_IMAGE,
        CL_COMMAND_READ_BUFFER_RECT, CL_COMMAND_FILL_IMAGE};
    for (int i = 0; i < 11; i++) {
        cl_command_type type = INFO(cl_command_type, clGetEventInfo, events[i], CL_EVENT_COMMAND_TYPE);
        say("type %#x", type);
        CHECK(type == wanted[i], "event %d has type %#x, not %#x", i, type, wanted[i]);
    }
}

static void check_times(const char *what, cl_event event) {
    cl_ulong queued = INFO(cl_ulong, clGetEventProfilingInfo, event, CL_PROFILING_COMMAND_QUEUED);
    cl_ulong submit = INFO(cl_ulong, clGetEventProfilingInfo, event, CL_PROFILING_COMMAND_SUBMIT);
    cl_ulong start = INFO(cl_ulong, clGetEventProfilingInfo, event, CL_PROFILING_COMMAND_START);
    cl_ulong end = INFO(cl_ulong, clGetEventProfilingInfo, event, CL_PROFILING_COMMAND_END);
    int ordered = queued && queued <= submit && submit <= start && start <= end;
    say("%s: 0 < queued <= submit <= start <= end: %s", what, ordered ? "yes" : "no");
    CHECK(ordered, "%s: %llu %llu %llu %llu", what, (unsigned long long)queued, (unsigned long long)submit, (unsigned long long)start, (unsigned long long)end);
}

CASE(profiling_times_are_ordered) {
    open_device();
    cl_command_queue profiled = MADE(clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &err));
    static cl_int words[1 << 16];
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof words, NULL);
    cl_kernel kernel = kernel_of("kernel void work(global int *a) { int s = 0; for (int i = 0; i < 2000; i++) s = s * 3 + a[i & 255]; a[get_global_id(0)] = s; }", "work");
    set_arg(kernel, 0, sizeof buffer, &buffer);
    size_t count = 4096;
    cl_event events[3];
    OK(clEnqueueWriteBuffer(profiled, buffer, CL_FALSE, 0, sizeof words, words, 0, NULL, &events[0]));
    OK(clEnqueueNDRangeKernel(profiled, kernel, 1, NULL, &count, NULL, 0, NULL, &events[1]));
    OK(clEnqueueReadBuffer(profiled, buffer, CL_FALSE, 0, sizeof words, words, 0, NULL, &events[2]));
    OK(clFinish(profiled));
    check_times("write", events[0]);
    check_times("kernel", events[1]);
    check_times("read", events[2]);
    cl_ulong start = INFO(cl_ulong, clGetEventProfilingInfo, events[1], CL_PROFILING_COMMAND_START);
    cl_ulong end = INFO(cl_ulong, clGetEventProfilingInfo, events[1], CL_PROFILING_COMMAND_END);
    CHECK(end > start && end - start < 60000000000ull, "the kernel took %llu ns", (unsigned long long)(end - start));
    CHECK(start >= INFO(cl_ulong, clGetEventProfilingInfo, events[0], CL_PROFILING_COMMAND_END), "the kernel started before the write ended");
}

CASE(profiling_information_needs_a_profiled_queue_and_a_finished_command) {
    open_device();
    cl_command_queue profiled = MADE(clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &err));
    cl_event plain, user = MADE(clCreateUserEvent(context, &err)), waiting;
    cl_ulong time;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &plain));
    OK(clFinish(queue));
    EXPECT(CL_PROFILING_INFO_NOT_AVAILABLE, clGetEventProfilingInfo(plain, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL));
    EXPECT(CL_PROFILING_INFO_NOT_AVAILABLE, clGetEventProfilingInfo(user, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL));
    OK(clEnqueueMarkerWithWaitList(profiled, 1, &user, &waiting));
    EXPECT(CL_PROFILING_INFO_NOT_AVAILABLE, clGetEventProfilingInfo(waiting, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL));
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    OK(clFinish(profiled));
    EXPECT(CL_SUCCESS, clGetEventProfilingInfo(waiting, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL));
    EXPECT(CL_INVALID_VALUE, clGetEventProfilingInfo(waiting, CL_PROFILING_COMMAND_END, 4, &time, NULL));
    EXPECT(CL_INVALID_VALUE, clGetEventProfilingInfo(waiting, 0x7fff1234, sizeof time, &time, NULL));
    EXPECT(CL_INVALID_EVENT, clGetEventProfilingInfo(NULL, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL));
    size_t size = 0;
    EXPECT(CL_SUCCESS, clGetEventProfilingInfo(waiting, CL_PROFILING_COMMAND_END, 0, NULL, &size));
    say("size %zu", size);
}

CASE(wrong_waits_are_refused) {
    open_device();
    cl_event event = MADE(clCreateUserEvent(context, &err));
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    EXPECT(CL_INVALID_VALUE, clWaitForEvents(0, NULL));
    EXPECT(CL_INVALID_VALUE, clWaitForEvents(1, NULL));
    EXPECT(CL_INVALID_VALUE, clWaitForEvents(0, &event));
    EXPECT(CL_INVALID_EVENT, clWaitForEvents(2, (cl_event[]){event, NULL}));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueMarkerWithWaitList(queue, 1, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueMarkerWithWaitList(queue, 0, &event, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueMarkerWithWaitList(queue, 1, (cl_event[]){NULL}, NULL));
    EXPECT(CL_INVALID_CONTEXT, STATUS(clCreateUserEvent(NULL, &err)));
    EXPECT(CL_INVALID_EVENT, clSetUserEventStatus(NULL, CL_COMPLETE));
    cl_event marker;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker));
    EXPECT(CL_INVALID_EVENT, clSetUserEventStatus(marker, CL_COMPLETE));
}

CASE(an_event_may_be_released_before_its_command_has_run) {
    open_device();
    cl_int word = 77, result = 0;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, NULL);
    cl_event gate = MADE(clCreateUserEvent(context, &err)), write;
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, 4, &word, 1, &gate, &write));
    OK(clReleaseEvent(write));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clReleaseEvent(gate));
    read_all(buffer, &result, 4);
    say("written: %d", result);
    CHECK(result == 77, "the command was lost with its event");
}
