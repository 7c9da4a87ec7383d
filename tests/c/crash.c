/* Mistakes for which PoCL 3.1 ends the process (or hangs); telecl answers them itself, and goes on. */
#include "common.h"

static const char *source = "kernel void nothing(void) {}";

/* The session must still be good after each refusal. */
static void still_works(void) {
    cl_int value = 5, result = 0;
    cl_mem buffer = buffer_of(0, 4, &value);
    read_all(buffer, &result, 4);
    CHECK(result == 5, "the session does not work any more");
    OK(clReleaseMemObject(buffer));
}

CASE_TELECL_ONLY(programs_without_sources_or_devices_are_refused) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    const unsigned char garbage[] = "x", *binaries = garbage;
    size_t size = 1;
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithSource(context, 1, NULL, NULL, &err));
    EXPECT(CL_INVALID_DEVICE, clBuildProgram(program, 1, (cl_device_id[]){NULL}, "", NULL, NULL));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithBinary(context, 1, &device, &size, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_DEVICE, clCreateProgramWithBinary(context, 1, (cl_device_id[]){NULL}, &size, &binaries, NULL, &err));
    EXPECT(CL_INVALID_VALUE, clCompileProgram(program, 1, &device, "", 1, NULL, NULL, NULL, NULL));
    EXPECT_CREATE(CL_INVALID_PROGRAM, clLinkProgram(context, 1, &device, "", 1, (cl_program[]){NULL}, NULL, NULL, &err));
    still_works();
}

CASE_TELECL_ONLY(images_with_mip_levels_are_refused) {
    open_device();
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc levels = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4, .num_mip_levels = 2};
    cl_image_desc samples = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4, .num_samples = 2};
    EXPECT_CREATE(CL_INVALID_IMAGE_DESCRIPTOR, clCreateImage(context, 0, &format, &levels, NULL, &err));
    EXPECT_CREATE(CL_INVALID_IMAGE_DESCRIPTOR, clCreateImage(context, 0, &format, &samples, NULL, &err));
    still_works();
}

CASE_TELECL_ONLY(a_device_without_device_queues_refuses_them) {
    open_device();
    if (INFO(cl_device_device_enqueue_capabilities, clGetDeviceInfo, device, CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES)) SKIP("the device has queues of its own");
    cl_queue_properties on_device[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_ON_DEVICE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 0};
    EXPECT_CREATE(CL_INVALID_QUEUE_PROPERTIES, clCreateCommandQueueWithProperties(context, device, on_device, &err));
    EXPECT(CL_INVALID_OPERATION, clSetDefaultDeviceCommandQueue(context, device, queue));
    still_works();
}

CASE_TELECL_ONLY(a_blocking_read_behind_a_failed_event_fails) {
    open_device();
    cl_int word;
    cl_mem buffer = buffer_of(0, 64, NULL);
    cl_event failed = MADE(clCreateUserEvent(context, &err));
    OK(clSetUserEventStatus(failed, -5));
    EXPECT(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &word, 1, &failed, NULL));
    still_works();
}

CASE_TELECL_ONLY(commands_without_kernels_or_buffers_are_refused) {
    open_device();
    cl_mem buffer = buffer_of(0, 64, NULL);
    const size_t zero[3] = {0, 0, 0}, region[3] = {8, 1, 1};
    size_t one = 1;
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueCopyBufferRect(queue, buffer, NULL, zero, zero, region, 0, 0, 0, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueCopyBufferRect(queue, NULL, buffer, zero, zero, region, 0, 0, 0, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_KERNEL, clEnqueueNDRangeKernel(queue, NULL, 1, NULL, &one, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_KERNEL, clEnqueueTask(queue, NULL, 0, NULL, NULL));
    still_works();
}

/* PoCL 3.1 looks at the wait lists of all commands but kernels. */
CASE_TELECL_ONLY(the_wait_list_of_a_kernel_is_checked) {
    open_device();
    cl_kernel kernel = kernel_of(source, "nothing");
    cl_context stranger = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &err));
    cl_event foreign = MADE(clCreateUserEvent(stranger, &err));
    size_t one = 1;
    EXPECT(CL_INVALID_CONTEXT, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 1, &foreign, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 1, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, &foreign, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 1, (cl_event[]){NULL}, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueTask(queue, kernel, 1, NULL, NULL));
    still_works();
}

/* A kernel that ends its process ends one worker; the calls after it answer, and do not hang. */
CASE_TELECL_ONLY(a_kernel_that_kills_its_process_is_an_error_of_the_program) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void wild(ulong address) { *(global int *)address = 1; }", "wild");
    cl_ulong address = 16;
    size_t one = 1;
    set_arg(kernel, 0, sizeof address, &address);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    cl_int status = clFinish(queue);
    CHECK(status < 0, "clFinish answered %s", error_name(status));
    cl_int word = 0;
    cl_mem buffer = clCreateBuffer(context, 0, 4, NULL, NULL);
    status = buffer ? clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &word, 0, NULL, NULL) : CL_OUT_OF_RESOURCES;
    CHECK(status < 0, "a read on the lost session answered %s", error_name(status));
}
