/* Reference counts, objects that hold each other, and handles that are none. */
#include "common.h"

/* Counts are only compared with themselves: drivers hold references of their own. */
#define COUNTS(type, object, info, count_name, retain, release)                                       \
    do {                                                                                              \
        cl_uint before = INFO(cl_uint, info, object, count_name);                                     \
        OK(retain(object));                                                                           \
        OK(retain(object));                                                                           \
        CHECK(INFO(cl_uint, info, object, count_name) == before + 2, type ": two retains");          \
        OK(release(object));                                                                          \
        CHECK(INFO(cl_uint, info, object, count_name) == before + 1, type ": one release");          \
        OK(release(object));                                                                          \
        CHECK(INFO(cl_uint, info, object, count_name) == before, type ": two releases");             \
        say(type ": counted");                                                                        \
    } while (0)

CASE(every_object_counts_its_references) {
    open_device();
    cl_mem buffer = buffer_of(0, 64, NULL);
    cl_sampler sampler = MADE(clCreateSampler(context, CL_FALSE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &err));
    cl_program program = program_of("kernel void nothing(void) {}", "");
    cl_kernel kernel = MADE(clCreateKernel(program, "nothing", &err));
    cl_event event = MADE(clCreateUserEvent(context, &err));
    COUNTS("context", context, clGetContextInfo, CL_CONTEXT_REFERENCE_COUNT, clRetainContext, clReleaseContext);
    COUNTS("queue", queue, clGetCommandQueueInfo, CL_QUEUE_REFERENCE_COUNT, clRetainCommandQueue, clReleaseCommandQueue);
    COUNTS("buffer", buffer, clGetMemObjectInfo, CL_MEM_REFERENCE_COUNT, clRetainMemObject, clReleaseMemObject);
    COUNTS("sampler", sampler, clGetSamplerInfo, CL_SAMPLER_REFERENCE_COUNT, clRetainSampler, clReleaseSampler);
    COUNTS("program", program, clGetProgramInfo, CL_PROGRAM_REFERENCE_COUNT, clRetainProgram, clReleaseProgram);
    COUNTS("kernel", kernel, clGetKernelInfo, CL_KERNEL_REFERENCE_COUNT, clRetainKernel, clReleaseKernel);
    COUNTS("event", event, clGetEventInfo, CL_EVENT_REFERENCE_COUNT, clRetainEvent, clReleaseEvent);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
    OK(clReleaseSampler(sampler));
    OK(clReleaseMemObject(buffer));
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    OK(clReleaseEvent(event));
    close_device();
}

CASE(new_objects_count_one) {
    open_device();
    cl_mem buffer = buffer_of(0, 64, NULL);
    cl_sampler sampler = MADE(clCreateSampler(context, CL_FALSE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &err));
    say("buffer %u, sampler %u, queue %u", INFO(cl_uint, clGetMemObjectInfo, buffer, CL_MEM_REFERENCE_COUNT),
        INFO(cl_uint, clGetSamplerInfo, sampler, CL_SAMPLER_REFERENCE_COUNT), INFO(cl_uint, clGetCommandQueueInfo, queue, CL_QUEUE_REFERENCE_COUNT));
    CHECK(INFO(cl_uint, clGetMemObjectInfo, buffer, CL_MEM_REFERENCE_COUNT) == 1, "a new buffer");
    CHECK(INFO(cl_uint, clGetSamplerInfo, sampler, CL_SAMPLER_REFERENCE_COUNT) == 1, "a new sampler");
}

CASE(a_root_device_may_be_retained_and_released) {
    open_device();
    EXPECT(CL_SUCCESS, clRetainDevice(device));
    EXPECT(CL_SUCCESS, clReleaseDevice(device));
    EXPECT(CL_SUCCESS, clReleaseDevice(device));
    say("count %u", INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_REFERENCE_COUNT));
    CHECK(INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_REFERENCE_COUNT) == 1, "a root device always counts 1");
}

CASE(a_queue_holds_its_context) {
    open_device();
    OK(clReleaseContext(context));
    cl_context held = INFO(cl_context, clGetCommandQueueInfo, queue, CL_QUEUE_CONTEXT);
    CHECK(held == context, "the queue names another context");
    cl_int value = 5, result = 0;
    cl_mem buffer = MADE(clCreateBuffer(held, CL_MEM_COPY_HOST_PTR, 4, &value, &err));
    read_all(buffer, &result, 4);
    say("%u device, read %d", INFO(cl_uint, clGetContextInfo, held, CL_CONTEXT_NUM_DEVICES), result);
    CHECK(result == 5, "the context is gone");
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(queue));
}

CASE(every_object_holds_its_context) {
    open_device();
    cl_mem buffer = buffer_of(0, 64, NULL);
    cl_program program = program_of("kernel void nothing(void) {}", "");
    cl_event event = MADE(clCreateUserEvent(context, &err));
    close_device();
    CHECK(INFO(cl_context, clGetMemObjectInfo, buffer, CL_MEM_CONTEXT) == context, "the buffer's context");
    CHECK(INFO(cl_context, clGetProgramInfo, program, CL_PROGRAM_CONTEXT) == context, "the program's context");
    CHECK(INFO(cl_context, clGetEventInfo, event, CL_EVENT_CONTEXT) == context, "the event's context");
    EXPECT(CL_SUCCESS, clReleaseMemObject(buffer));
    EXPECT(CL_SUCCESS, clReleaseProgram(program));
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    EXPECT(CL_SUCCESS, clReleaseEvent(event));
}

CASE(an_event_holds_its_queue) {
    open_device();
    cl_event event;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event));
    OK(clFinish(queue));
    OK(clReleaseCommandQueue(queue));
    cl_int state = INFO(cl_int, clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS);
    say("%s", event_state_name(state));
    CHECK(state == CL_COMPLETE, "the event lost its state");
    CHECK(INFO(cl_context, clGetEventInfo, event, CL_EVENT_CONTEXT) == context, "the event's context");
    EXPECT(CL_SUCCESS, clReleaseEvent(event));
}

CASE(a_released_queue_still_runs_its_commands) {
    open_device();
    cl_command_queue short_lived = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_int value = 9, result = 0;
    cl_mem buffer = buffer_of(0, 4, NULL);
    cl_event event;
    OK(clEnqueueWriteBuffer(short_lived, buffer, CL_FALSE, 0, 4, &value, 0, NULL, &event));
    OK(clReleaseCommandQueue(short_lived));
    OK(clWaitForEvents(1, &event));
    read_all(buffer, &result, 4);
    say("written %d", result);
    CHECK(result == 9, "the write was lost with its queue");
}

CASE(nothing_is_neither_retained_nor_released) {
    open_device();
    EXPECT(CL_INVALID_DEVICE, clRetainDevice(NULL));
    EXPECT(CL_INVALID_DEVICE, clReleaseDevice(NULL));
    EXPECT(CL_INVALID_CONTEXT, clRetainContext(NULL));
    EXPECT(CL_INVALID_CONTEXT, clReleaseContext(NULL));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clRetainCommandQueue(NULL));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clReleaseCommandQueue(NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clRetainMemObject(NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clReleaseMemObject(NULL));
    EXPECT(CL_INVALID_SAMPLER, clRetainSampler(NULL));
    EXPECT(CL_INVALID_SAMPLER, clReleaseSampler(NULL));
    EXPECT(CL_INVALID_PROGRAM, clRetainProgram(NULL));
    EXPECT(CL_INVALID_PROGRAM, clReleaseProgram(NULL));
    EXPECT(CL_INVALID_KERNEL, clRetainKernel(NULL));
    EXPECT(CL_INVALID_KERNEL, clReleaseKernel(NULL));
    EXPECT(CL_INVALID_EVENT, clRetainEvent(NULL));
    EXPECT(CL_INVALID_EVENT, clReleaseEvent(NULL));
}

/* PoCL 3.1 does not look at the kind of a handle. */
CASE_TELECL_ONLY(a_handle_of_another_kind_is_refused) {
    open_device();
    cl_mem buffer = buffer_of(0, 64, NULL);
    cl_event event = MADE(clCreateUserEvent(context, &err));
    char bytes[64];
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueReadBuffer(queue, (cl_mem)queue, CL_TRUE, 0, 4, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueReadBuffer((cl_command_queue)buffer, buffer, CL_TRUE, 0, 4, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clFinish((cl_command_queue)context));
    EXPECT(CL_INVALID_MEM_OBJECT, clReleaseMemObject((cl_mem)context));
    EXPECT(CL_INVALID_CONTEXT, clReleaseContext((cl_context)queue));
    EXPECT(CL_INVALID_EVENT, clReleaseEvent((cl_event)buffer));
    EXPECT(CL_INVALID_EVENT, clWaitForEvents(1, (cl_event[]){(cl_event)buffer}));
    EXPECT(CL_INVALID_KERNEL, clSetKernelArg((cl_kernel)event, 0, 4, bytes));
    EXPECT(CL_INVALID_PROGRAM, clBuildProgram((cl_program)buffer, 0, NULL, "", NULL, NULL));
    EXPECT(CL_INVALID_DEVICE, clGetDeviceInfo((cl_device_id)context, CL_DEVICE_TYPE, sizeof bytes, bytes, NULL));
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateBuffer((cl_context)queue, 0, 64, NULL, &err));
    /* And all of them still work as what they are. */
    EXPECT(CL_SUCCESS, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, bytes, 0, NULL, NULL));
}

static int destroyed;

static void CL_CALLBACK on_context_destroyed(cl_context gone, void *data) {
    (void)gone, (void)data;
    tally_add(&destroyed);
}

CASE(a_context_destructor_callback_runs_when_the_last_reference_goes) {
    open_device();
    cl_int status = clSetContextDestructorCallback(context, on_context_destroyed, NULL);
    say("registered: %s", error_name(status));
    if (status != CL_SUCCESS) SKIP("no context destructor callbacks");
    OK(clReleaseContext(context));
    CHECK(destroyed == 0, "the queue still holds the context");
    OK(clReleaseCommandQueue(queue));
    tally_await(&destroyed, 1, "context destructor callback");
    say("destroyed once");
}

CASE(a_thousand_objects_come_and_go) {
    open_device();
    for (int i = 0; i < 1000; i++) {
        cl_mem buffer = buffer_of(0, 4096, NULL);
        cl_event event = MADE(clCreateUserEvent(context, &err));
        cl_command_queue other = i % 10 == 0 ? MADE(clCreateCommandQueue(context, device, 0, &err)) : NULL;
        OK(clSetUserEventStatus(event, CL_COMPLETE));
        OK(clReleaseEvent(event));
        OK(clReleaseMemObject(buffer));
        if (other) OK(clReleaseCommandQueue(other));
    }
    say("%u devices left to use", INFO(cl_uint, clGetContextInfo, context, CL_CONTEXT_NUM_DEVICES));
    close_device();
}
