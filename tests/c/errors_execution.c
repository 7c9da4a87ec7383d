/* The documented errors of programs, kernels, queues and events, function by function. */
#include "common.h"

static const size_t one = 1, four = 4;

CASE(errors_of_enqueue_kernel) {
    open_device();
    cl_context stranger = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &err));
    cl_command_queue foreign_queue = MADE(clCreateCommandQueue(stranger, device, 0, &err));
    cl_kernel kernel = kernel_of("kernel void nothing(void) {}", "nothing");
    size_t none = 0, sizes[4] = {1, 1, 1, 1}, with_zero[2] = {4, 0}, three = 3;
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueNDRangeKernel(NULL, kernel, 1, NULL, &four, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueNDRangeKernel(foreign_queue, kernel, 1, NULL, &four, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_WORK_DIMENSION, clEnqueueNDRangeKernel(queue, kernel, 0, NULL, sizes, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_WORK_DIMENSION, clEnqueueNDRangeKernel(queue, kernel, 4, NULL, sizes, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_WORK_GROUP_SIZE, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &four, &three, 0, NULL, NULL));
    /* Since 2.1 an empty range is a command that does nothing. */
    EXPECT(CL_SUCCESS, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &none, NULL, 0, NULL, NULL));
    EXPECT(CL_SUCCESS, clEnqueueNDRangeKernel(queue, kernel, 2, NULL, with_zero, NULL, 0, NULL, NULL));
    OK(clFinish(queue));
}

CASE(an_empty_range_completes_its_event) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void put(global int *a) { *a = 1; }", "put");
    cl_int content = 7, result = 0;
    cl_mem buffer = buffer_of(0, 4, &content);
    set_arg(kernel, 0, sizeof buffer, &buffer);
    size_t none = 0;
    cl_event event;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &none, NULL, 0, NULL, &event));
    EXPECT(CL_SUCCESS, clWaitForEvents(1, &event));
    read_all(buffer, &result, 4);
    say("content %d", result);
    CHECK(result == 7, "a range of nothing wrote %d", result);
}

CASE(errors_of_task) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void put(global int *a) { *a = 1; }", "put");
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueTask(NULL, kernel, 0, NULL, NULL));
    EXPECT(CL_INVALID_KERNEL_ARGS, clEnqueueTask(queue, kernel, 0, NULL, NULL));
}

CASE(errors_of_markers_and_barriers) {
    open_device();
    cl_event event = MADE(clCreateUserEvent(context, &err));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueMarkerWithWaitList(NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueBarrierWithWaitList(NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueBarrierWithWaitList(queue, 1, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueBarrierWithWaitList(queue, 0, &event, NULL));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueMarker(NULL, &event));
    EXPECT(CL_INVALID_VALUE, clEnqueueMarker(queue, NULL));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueBarrier(NULL));
}

CASE(errors_of_create_queue) {
    open_device();
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateCommandQueue(NULL, device, 0, &err));
    EXPECT_CREATE(CL_INVALID_DEVICE, clCreateCommandQueue(context, NULL, 0, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateCommandQueue(context, device, 1u << 30, &err));
}

/* With a queue instead of NULL PoCL 3.1 ends the process; see crash.c. */
CASE(a_device_without_device_queues_has_no_default_queue) {
    open_device();
    if (INFO(cl_device_device_enqueue_capabilities, clGetDeviceInfo, device, CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES)) SKIP("the device has queues of its own");
    EXPECT(CL_INVALID_OPERATION, clSetDefaultDeviceCommandQueue(context, device, NULL));
}

static void CL_CALLBACK on_release(cl_program program, void *data) { (void)program, (void)data; }

CASE(release_callbacks_need_a_device_with_clean_up_kernels) {
    open_device();
    char version[128];
    OK(clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof version, version, NULL));
    if (!strncmp(version, "OpenCL 2.2", 10)) SKIP("the device has clean-up kernels");
    cl_program program = program_of("kernel void nothing(void) {}", "");
    EXPECT(CL_INVALID_OPERATION, clSetProgramReleaseCallback(program, on_release, NULL));
    CHECK(!INFO(cl_bool, clGetProgramInfo, program, CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT), "there are destructors");
}

CASE(errors_of_kernel_information) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void nothing(int a) {}", "nothing");
    char text[64];
    cl_context_properties none[] = {0};
    cl_context same = MADE(clCreateContext(none, 1, &device, NULL, NULL, &err));
    OK(clReleaseContext(same));
    EXPECT(CL_INVALID_ARG_INDEX, clGetKernelArgInfo(kernel, 1, CL_KERNEL_ARG_NAME, sizeof text, text, NULL));
    EXPECT(CL_INVALID_VALUE, clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 2, text, NULL));
    EXPECT(CL_INVALID_VALUE, clGetKernelInfo(kernel, 0x7fff1234, sizeof text, text, NULL));
}

CASE(errors_of_build_information) {
    open_device();
    cl_program program = program_of("kernel void nothing(void) {}", "");
    cl_build_status status;
    EXPECT(CL_INVALID_DEVICE, clGetProgramBuildInfo(program, NULL, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    EXPECT(CL_INVALID_VALUE, clGetProgramBuildInfo(program, device, 0x7fff1234, sizeof status, &status, NULL));
    EXPECT(CL_INVALID_VALUE, clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, 1, &status, NULL));
}

CASE(errors_of_event_information) {
    open_device();
    cl_event event = MADE(clCreateUserEvent(context, &err));
    cl_int state;
    EXPECT(CL_INVALID_VALUE, clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, 1, &state, NULL));
    EXPECT(CL_INVALID_VALUE, clGetEventInfo(event, 0x7fff1234, sizeof state, &state, NULL));
    EXPECT(CL_INVALID_VALUE, clSetUserEventStatus(event, 1));
    EXPECT(CL_INVALID_VALUE, clSetUserEventStatus(event, CL_QUEUED));
    EXPECT(CL_SUCCESS, clSetUserEventStatus(event, -1));
    EXPECT(CL_INVALID_OPERATION, clSetUserEventStatus(event, CL_COMPLETE));
}

CASE(a_refused_command_leaves_the_queue_usable) {
    open_device();
    cl_mem buffer = buffer_of(0, 16, NULL);
    cl_kernel kernel = kernel_of("kernel void put(global int *a) { *a = 31; }", "put");
    cl_int word = 0;
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 20, 4, &word, 0, NULL, NULL));
    EXPECT(CL_INVALID_KERNEL_ARGS, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_ARG_INDEX, clSetKernelArg(kernel, 9, 4, &word));
    set_arg(kernel, 0, sizeof buffer, &buffer);
    run_kernel(kernel, 1);
    read_all(buffer, &word, 4);
    say("read %d", word);
    CHECK(word == 31, "the queue did not go on");
}
