/* The with-properties calls of 2.0 and 3.0, pipes, and SVM, which telecl does not offer. */
#include "common.h"

CASE(a_queue_is_made_with_properties) {
    open_device();
    cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0}, kept[8] = {0};
    cl_command_queue made = MADE(clCreateCommandQueueWithProperties(context, device, properties, &err));
    say("properties %#llx", (unsigned long long)INFO(cl_command_queue_properties, clGetCommandQueueInfo, made, CL_QUEUE_PROPERTIES));
    CHECK(INFO(cl_command_queue_properties, clGetCommandQueueInfo, made, CL_QUEUE_PROPERTIES) == CL_QUEUE_PROFILING_ENABLE, "the properties");
    size_t size = 0;
    OK(clGetCommandQueueInfo(made, CL_QUEUE_PROPERTIES_ARRAY, sizeof kept, kept, &size));
    say("%zu values kept", size / sizeof *kept);
    CHECK(size == sizeof properties && memcmp(kept, properties, size) == 0, "the array is not the one given");
    cl_command_queue plain = MADE(clCreateCommandQueueWithProperties(context, device, NULL, &err));
    OK(clGetCommandQueueInfo(plain, CL_QUEUE_PROPERTIES_ARRAY, sizeof kept, kept, &size));
    say("%zu values without properties", size / sizeof *kept);
    CHECK(size == 0, "no array was given");
    cl_int value = 3, result = 0;
    cl_mem buffer = buffer_of(0, 4, &value);
    OK(clEnqueueReadBuffer(made, buffer, CL_TRUE, 0, 4, &result, 0, NULL, NULL));
    CHECK(result == 3, "the queue read %d", result);
}

CASE(queues_with_wrong_properties_are_refused) {
    open_device();
    cl_queue_properties unknown[] = {0x7fff, 1, 0}, bad_bits[] = {CL_QUEUE_PROPERTIES, 1u << 20, 0};
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateCommandQueueWithProperties(context, device, unknown, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateCommandQueueWithProperties(context, device, bad_bits, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateCommandQueue(context, device, 1u << 20, &err));
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateCommandQueueWithProperties(NULL, device, NULL, &err));
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateCommandQueue(NULL, device, 0, &err));
    EXPECT_CREATE(CL_INVALID_DEVICE, clCreateCommandQueueWithProperties(context, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_DEVICE, clCreateCommandQueue(context, NULL, 0, &err));
}

CASE(a_sampler_is_made_with_properties) {
    open_device();
    cl_sampler_properties properties[] = {CL_SAMPLER_NORMALIZED_COORDS, CL_FALSE, CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, 0}, kept[8] = {0};
    cl_sampler sampler = MADE(clCreateSamplerWithProperties(context, properties, &err));
    size_t size = 0;
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_PROPERTIES, sizeof kept, kept, &size));
    say("normalized %u addressing %#x filter %#x, %zu values kept", INFO(cl_bool, clGetSamplerInfo, sampler, CL_SAMPLER_NORMALIZED_COORDS),
        INFO(cl_addressing_mode, clGetSamplerInfo, sampler, CL_SAMPLER_ADDRESSING_MODE), INFO(cl_filter_mode, clGetSamplerInfo, sampler, CL_SAMPLER_FILTER_MODE), size / sizeof *kept);
    CHECK(INFO(cl_addressing_mode, clGetSamplerInfo, sampler, CL_SAMPLER_ADDRESSING_MODE) == CL_ADDRESS_CLAMP, "the default addressing mode is clamp");
    CHECK(INFO(cl_filter_mode, clGetSamplerInfo, sampler, CL_SAMPLER_FILTER_MODE) == CL_FILTER_LINEAR, "the filter mode");
    DEVIATES_CREATE(CL_SUCCESS, clCreateSamplerWithProperties(context, NULL, &err));
}

CASE(samplers_with_wrong_properties_are_refused) {
    open_device();
    cl_sampler_properties unknown[] = {0x7fff, 1, 0}, twice[] = {CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, 0};
    cl_sampler_properties bad_mode[] = {CL_SAMPLER_ADDRESSING_MODE, 0x7fff, 0};
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSamplerWithProperties(context, unknown, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSamplerWithProperties(context, twice, &err));
    DEVIATES_CREATE(CL_INVALID_VALUE, clCreateSamplerWithProperties(context, bad_mode, &err));
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateSamplerWithProperties(NULL, NULL, &err));
    DEVIATES_CREATE(CL_INVALID_VALUE, clCreateSampler(context, CL_TRUE, 0x7fff, CL_FILTER_LINEAR, &err));
    DEVIATES_CREATE(CL_INVALID_VALUE, clCreateSampler(context, CL_TRUE, CL_ADDRESS_CLAMP, 0x7fff, &err));
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateSampler(NULL, CL_TRUE, CL_ADDRESS_CLAMP, CL_FILTER_LINEAR, &err));
}

CASE(a_buffer_is_made_with_properties) {
    open_device();
    cl_mem_properties none[] = {0}, unknown[] = {0x7fff, 1, 0}, kept[4];
    cl_int value = 12, result = 0;
    size_t size = 99;
    cl_mem buffer = MADE(clCreateBufferWithProperties(context, none, CL_MEM_COPY_HOST_PTR, 4, &value, &err));
    read_all(buffer, &result, 4);
    OK(clGetMemObjectInfo(buffer, CL_MEM_PROPERTIES, sizeof kept, kept, &size));
    say("read %d, %zu values kept", result, size / sizeof *kept);
    CHECK(result == 12, "the buffer has %d", result);
    buffer = MADE(clCreateBufferWithProperties(context, NULL, CL_MEM_READ_WRITE, 4, NULL, &err));
    OK(clGetMemObjectInfo(buffer, CL_MEM_PROPERTIES, sizeof kept, kept, &size));
    say("%zu values without properties", size / sizeof *kept);
    EXPECT_CREATE(CL_INVALID_PROPERTY, clCreateBufferWithProperties(context, unknown, CL_MEM_READ_WRITE, 4, NULL, &err));
    EXPECT_CREATE(CL_INVALID_BUFFER_SIZE, clCreateBufferWithProperties(context, NULL, CL_MEM_READ_WRITE, 0, NULL, &err));
}

CASE(an_image_is_made_with_properties) {
    open_device();
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 2, .image_height = 2};
    cl_mem_properties none[] = {0}, unknown[] = {0x7fff, 1, 0};
    cl_uint content[4] = {1, 2, 3, 4}, result[4];
    size_t zero[3] = {0, 0, 0}, region[3] = {2, 2, 1};
    cl_mem image = MADE(clCreateImageWithProperties(context, none, CL_MEM_COPY_HOST_PTR, &format, &desc, content, &err));
    OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, region, 0, 0, result, 0, NULL, NULL));
    show_ints("pixels", (cl_int *)result, 4);
    CHECK(memcmp(content, result, sizeof result) == 0, "the image has other content");
    EXPECT_CREATE(CL_INVALID_PROPERTY, clCreateImageWithProperties(context, unknown, CL_MEM_READ_WRITE, &format, &desc, NULL, &err));
}

CASE(packets_travel_through_a_pipe) {
    open_device();
    if (!INFO(cl_bool, clGetDeviceInfo, device, CL_DEVICE_PIPE_SUPPORT)) SKIP("the device has no pipes");
    EXPECT_CREATE(CL_INVALID_PIPE_SIZE, clCreatePipe(context, 0, 0, 16, NULL, &err));
    EXPECT_CREATE(CL_INVALID_PIPE_SIZE, clCreatePipe(context, 0, 4, 0, NULL, &err));
    cl_mem pipe = MADE(clCreatePipe(context, CL_MEM_HOST_NO_ACCESS, sizeof(cl_int), 16, NULL, &err));
    say("packets of %u bytes, room for %u", INFO(cl_uint, clGetPipeInfo, pipe, CL_PIPE_PACKET_SIZE),
        INFO(cl_uint, clGetPipeInfo, pipe, CL_PIPE_MAX_PACKETS));
    cl_program program = program_of(
        "kernel void put(write_only pipe int p) { int v = get_global_id(0) + 1; write_pipe(p, &v); }"
        "kernel void get(read_only pipe int p, global int *sum) {"
        "    int v = 0; if (read_pipe(p, &v) == 0) atomic_add(sum, v); }",
        "-cl-std=CL2.0");
    cl_kernel put = MADE(clCreateKernel(program, "put", &err)), get = MADE(clCreateKernel(program, "get", &err));
    cl_int sum = 0;
    cl_mem result = buffer_of(CL_MEM_READ_WRITE, sizeof sum, &sum);
    set_arg(put, 0, sizeof pipe, &pipe);
    set_arg(get, 0, sizeof pipe, &pipe);
    set_arg(get, 1, sizeof result, &result);
    run_kernel(put, 8);
    run_kernel(get, 8);
    read_all(result, &sum, sizeof sum);
    say("sum %d", sum);
    CHECK(sum == 36, "packets were lost");
}

CASE(a_device_without_pipes_refuses_them) {
    open_device();
    if (INFO(cl_bool, clGetDeviceInfo, device, CL_DEVICE_PIPE_SUPPORT)) SKIP("the device has pipes");
    EXPECT_CREATE(CL_INVALID_OPERATION, clCreatePipe(context, 0, 4, 16, NULL, &err));
    cl_uint value;
    cl_mem buffer = buffer_of(0, 16, NULL);
    EXPECT(CL_INVALID_MEM_OBJECT, clGetPipeInfo(buffer, CL_PIPE_PACKET_SIZE, sizeof value, &value, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clGetPipeInfo(NULL, CL_PIPE_PACKET_SIZE, sizeof value, &value, NULL));
}

/* OpenCL 3.0 lets a device have no SVM; PoCL's has. */
CASE_TELECL_ONLY(svm_is_absent) {
    open_device();
    cl_device_svm_capabilities svm = INFO(cl_device_svm_capabilities, clGetDeviceInfo, device, CL_DEVICE_SVM_CAPABILITIES);
    say("capabilities %#llx", (unsigned long long)svm);
    CHECK(svm == 0, "SVM is offered");
    void *memory = clSVMAlloc(context, CL_MEM_READ_WRITE, 64, 0);
    CHECK(memory == NULL, "clSVMAlloc gave memory");
    clSVMFree(context, NULL);
    char bytes[64] = {0};
    void *pointers[1] = {bytes};
    cl_kernel kernel = kernel_of("kernel void take(global int *a) { *a = 1; }", "take");
    EXPECT(CL_INVALID_OPERATION, clEnqueueSVMMemcpy(queue, CL_TRUE, bytes, bytes + 32, 16, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueSVMMemFill(queue, bytes, "x", 1, 16, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, bytes, 16, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueSVMUnmap(queue, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueSVMFree(queue, 1, pointers, NULL, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueSVMMigrateMem(queue, 1, (const void **)pointers, NULL, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clSetKernelArgSVMPointer(kernel, 0, bytes));
    EXPECT(CL_INVALID_OPERATION, clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof pointers, pointers));
}
