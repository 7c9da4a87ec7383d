/* Buffers made with host memory, and the flags that restrict the host. */
#include "common.h"

enum { COUNT = 32 };

static cl_kernel increment(cl_mem buffer) {
    cl_kernel kernel = kernel_of("kernel void increment(global int *a) { a[get_global_id(0)] += 1; }", "increment");
    set_arg(kernel, 0, sizeof buffer, &buffer);
    return kernel;
}

CASE(a_use_host_ptr_buffer_maps_to_the_host_pointer_itself) {
    open_device();
    static cl_int memory[COUNT] __attribute__((aligned(4096)));
    for (int i = 0; i < COUNT; i++) memory[i] = 10 * i;
    cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_USE_HOST_PTR, sizeof memory, memory, &err));
    run_kernel(increment(buffer), COUNT);
    cl_int *mapped = MADE(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 8 * sizeof(cl_int),
                                             8 * sizeof(cl_int), 0, NULL, NULL, &err));
    say("the map is host_ptr + offset: %s", mapped == memory + 8 ? "yes" : "no");
    CHECK(mapped == memory + 8, "the map must be host_ptr + offset");
    show_ints("mapped", mapped, 8);
    for (int i = 0; i < 8; i++) CHECK(mapped[i] == 10 * (8 + i) + 1, "element %d is %d", 8 + i, mapped[i]);
    mapped[0] = -5;
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    run_kernel(increment(buffer), COUNT);
    cl_int result[COUNT];
    read_all(buffer, result, sizeof result);
    show_ints("after", result, COUNT);
    CHECK(result[8] == -4, "the host's change is lost: %d", result[8]);
    CHECK(result[31] == 312, "the kernel's changes are lost: %d", result[31]);
}

CASE(a_use_host_ptr_buffer_answers_its_host_pointer) {
    open_device();
    static cl_int memory[COUNT] __attribute__((aligned(4096)));
    cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_USE_HOST_PTR, sizeof memory, memory, &err));
    CHECK(INFO(void *, clGetMemObjectInfo, buffer, CL_MEM_HOST_PTR) == memory, "CL_MEM_HOST_PTR is another pointer");
    CHECK(INFO(cl_mem_flags, clGetMemObjectInfo, buffer, CL_MEM_FLAGS) & CL_MEM_USE_HOST_PTR, "the flag is lost");
    cl_mem plain = buffer_of(CL_MEM_READ_WRITE, 64, NULL);
    CHECK(INFO(void *, clGetMemObjectInfo, plain, CL_MEM_HOST_PTR) == NULL, "a plain buffer has a host pointer");
    say("flags of a buffer made with 0: %#llx",
        (unsigned long long)INFO(cl_mem_flags, clGetMemObjectInfo, plain, CL_MEM_FLAGS));
}

CASE(a_sub_buffer_of_host_memory_answers_and_maps_into_it) {
    open_device();
    static cl_int memory[1024] __attribute__((aligned(4096)));
    for (int i = 0; i < 1024; i++) memory[i] = i;
    cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_USE_HOST_PTR, sizeof memory, memory, &err));
    cl_buffer_region region = {2048, 1024};
    cl_mem part = MADE(clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
    CHECK(INFO(void *, clGetMemObjectInfo, part, CL_MEM_HOST_PTR) == memory + 512, "CL_MEM_HOST_PTR of the part");
    cl_int *mapped = MADE(clEnqueueMapBuffer(queue, part, CL_TRUE, CL_MAP_READ, 4, 16, 0, NULL, NULL, &err));
    CHECK(mapped == memory + 513, "the map must be the parent's host_ptr + both offsets");
    show_ints("mapped", mapped, 4);
    OK(clEnqueueUnmapMemObject(queue, part, mapped, 0, NULL, NULL));
    OK(clFinish(queue));
}

CASE(a_use_host_ptr_buffer_reads_into_its_own_memory_after_the_kernel) {
    open_device();
    static cl_int memory[COUNT] __attribute__((aligned(4096)));
    for (int i = 0; i < COUNT; i++) memory[i] = i;
    cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_USE_HOST_PTR, sizeof memory, memory, &err));
    run_kernel(increment(buffer), COUNT);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof memory, memory, 0, NULL, NULL));
    show_ints("memory", memory, COUNT);
    CHECK(memory[0] == 1 && memory[31] == 32, "the kernel's result did not arrive");
}

CASE(alloc_host_ptr_memory_is_the_same_while_it_is_mapped) {
    open_device();
    cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR, COUNT * sizeof(cl_int), NULL, &err));
    cl_int *mapped = MADE(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, COUNT * sizeof(cl_int), 0, NULL,
                                             NULL, &err));
    for (int i = 0; i < COUNT; i++) mapped[i] = i * i;
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    run_kernel(increment(buffer), COUNT);
    cl_int *again = MADE(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, COUNT * sizeof(cl_int), 0, NULL,
                                            NULL, &err));
    show_ints("mapped again", again, COUNT);
    for (int i = 0; i < COUNT; i++) CHECK(again[i] == i * i + 1, "element %d is %d", i, again[i]);
    OK(clEnqueueUnmapMemObject(queue, buffer, again, 0, NULL, NULL));
    OK(clFinish(queue));
}

CASE(alloc_and_copy_host_ptr_together_start_with_the_content) {
    open_device();
    cl_int content[4] = {9, 8, 7, 6};
    cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR, sizeof content, content, &err));
    cl_int result[4];
    read_all(buffer, result, sizeof result);
    show_ints("content", result, 4);
    CHECK(memcmp(result, content, sizeof result) == 0, "the content is lost");
}

CASE(copy_host_ptr_takes_the_content_at_the_call) {
    open_device();
    cl_int content[4] = {1, 2, 3, 4};
    cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof content, content, &err));
    memset(content, 0xff, sizeof content);
    cl_int result[4];
    read_all(buffer, result, sizeof result);
    show_ints("content", result, 4);
    for (int i = 0; i < 4; i++) CHECK(result[i] == i + 1, "a later change of the source came through");
}

CASE(a_host_no_access_buffer_refuses_every_host_transfer) {
    open_device();
    char bytes[16] = {0};
    size_t zero[3] = {0, 0, 0}, region[3] = {4, 1, 1};
    cl_mem buffer = buffer_of(CL_MEM_HOST_NO_ACCESS, 16, NULL);
    EXPECT(CL_INVALID_OPERATION, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 16, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 16, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT_CREATE(CL_INVALID_OPERATION, clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 16, 0, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_OPERATION, clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, 16, 0, NULL, NULL, &err));
}

CASE(a_host_read_only_buffer_refuses_host_writes) {
    open_device();
    char bytes[16] = {0};
    size_t zero[3] = {0, 0, 0}, region[3] = {4, 1, 1};
    cl_mem buffer = buffer_of(CL_MEM_HOST_READ_ONLY, 16, bytes);
    EXPECT(CL_SUCCESS, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 16, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 16, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT_CREATE(CL_INVALID_OPERATION, clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, 16, 0, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_OPERATION, clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, 16, 0, NULL, NULL, &err));
}

CASE(a_host_write_only_buffer_refuses_host_reads) {
    open_device();
    char bytes[16] = {0};
    size_t zero[3] = {0, 0, 0}, region[3] = {4, 1, 1};
    cl_mem buffer = buffer_of(CL_MEM_HOST_WRITE_ONLY, 16, NULL);
    EXPECT(CL_SUCCESS, clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 16, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 16, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT_CREATE(CL_INVALID_OPERATION, clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 16, 0, NULL, NULL, &err));
}
