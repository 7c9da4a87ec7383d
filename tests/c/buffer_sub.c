/* Sub-buffers: the same memory under another handle. */
#include "common.h"

enum { COUNT = 1024 };

static cl_int values[COUNT];

/* The smallest legal distance between sub-buffer origins, in bytes. */
static size_t alignment(void) { return INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8; }

static cl_mem numbered_buffer(cl_mem_flags flags) {
    for (int i = 0; i < COUNT; i++) values[i] = i;
    return buffer_of(flags, sizeof values, values);
}

static cl_mem part_of(cl_mem parent, size_t origin, size_t size) {
    cl_buffer_region region = {origin, size};
    return MADE(clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
}

CASE(a_sub_buffer_reads_its_part_of_the_parent) {
    open_device();
    size_t origin = alignment();
    cl_mem part = part_of(numbered_buffer(CL_MEM_READ_WRITE), origin, 64);
    cl_int result[16];
    read_all(part, result, sizeof result);
    for (int i = 0; i < 16; i++)
        CHECK(result[i] == (cl_int)(origin / 4) + i, "element %d is %d", i, result[i]);
    say("size %zu, associated with its parent: %s", INFO(size_t, clGetMemObjectInfo, part, CL_MEM_SIZE),
        INFO(cl_mem, clGetMemObjectInfo, part, CL_MEM_ASSOCIATED_MEMOBJECT) ? "yes" : "no");
    CHECK(INFO(size_t, clGetMemObjectInfo, part, CL_MEM_OFFSET) == origin, "the offset is wrong");
}

CASE(writes_to_a_sub_buffer_are_seen_through_the_parent_and_back) {
    open_device();
    size_t origin = alignment();
    cl_mem parent = numbered_buffer(CL_MEM_READ_WRITE), part = part_of(parent, origin, 64);
    cl_int minus = -1, result[COUNT];
    OK(clEnqueueFillBuffer(queue, part, &minus, 4, 8, 16, 0, NULL, NULL));
    read_all(parent, result, sizeof result);
    size_t first = origin / 4 + 2;
    for (size_t i = 0; i < COUNT; i++)
        CHECK(result[i] == (i >= first && i < first + 4 ? -1 : (cl_int)i), "parent element %zu is %d", i, result[i]);
    cl_int seven = 7;
    OK(clEnqueueWriteBuffer(queue, parent, CL_TRUE, origin, 4, &seven, 0, NULL, NULL));
    read_all(part, result, 16 * sizeof(cl_int));
    CHECK(result[0] == 7 && result[2] == -1, "the part shows %d, %d", result[0], result[2]);
    say("part starts with %d, then has %d", result[0], result[2]);
}

CASE(a_kernel_sees_one_memory_through_two_sub_buffers_and_the_parent) {
    open_device();
    size_t step = alignment();
    cl_mem parent = numbered_buffer(CL_MEM_READ_WRITE);
    cl_mem low = part_of(parent, 0, step), high = part_of(parent, step, step);
    cl_kernel move = kernel_of("kernel void move(global int *to, global const int *from)"
                               "{ size_t i = get_global_id(0); to[i] = from[i] + 5000; }", "move");
    set_arg(move, 0, sizeof high, &high);
    set_arg(move, 1, sizeof low, &low);
    run_kernel(move, step / 4);
    cl_int result[COUNT];
    read_all(parent, result, sizeof result);
    for (size_t i = 0; i < step / 4; i++) {
        CHECK(result[i] == (cl_int)i, "the source changed at %zu", i);
        CHECK(result[step / 4 + i] == (cl_int)i + 5000, "element %zu of the target is %d", i, result[step / 4 + i]);
    }
    CHECK(result[2 * step / 4] == (cl_int)(2 * step / 4), "what follows the parts changed");
    say("first of the target: %d", result[step / 4]);
}

CASE(overlapping_sub_buffers_alias) {
    open_device();
    size_t step = alignment();
    cl_mem parent = numbered_buffer(CL_MEM_READ_WRITE);
    cl_mem wide = part_of(parent, 0, 2 * step), narrow = part_of(parent, step, step);
    cl_int mark = 4711, seen = 0;
    OK(clEnqueueWriteBuffer(queue, wide, CL_TRUE, step, 4, &mark, 0, NULL, NULL));
    read_all(narrow, &seen, 4);
    say("seen through the other: %d", seen);
    CHECK(seen == 4711, "the overlap does not alias");
}

CASE(a_copy_between_overlapping_sub_buffers_is_refused) {
    open_device();
    size_t step = alignment();
    cl_mem parent = numbered_buffer(CL_MEM_READ_WRITE);
    cl_mem wide = part_of(parent, 0, 2 * step), narrow = part_of(parent, step, step), apart = part_of(parent, 2 * step, step);
    EXPECT(CL_MEM_COPY_OVERLAP, clEnqueueCopyBuffer(queue, wide, narrow, step, 0, step, 0, NULL, NULL));
    EXPECT(CL_SUCCESS, clEnqueueCopyBuffer(queue, wide, apart, step, 0, step, 0, NULL, NULL));
    OK(clFinish(queue));
}

CASE(a_sub_buffer_outlives_the_release_of_its_parent) {
    open_device();
    cl_mem parent = numbered_buffer(CL_MEM_READ_WRITE), part = part_of(parent, 0, 64);
    OK(clReleaseMemObject(parent));
    cl_int result[16];
    read_all(part, result, sizeof result);
    show_ints("part", result, 16);
    CHECK(result[15] == 15, "the content is lost");
    EXPECT(CL_SUCCESS, clReleaseMemObject(part));
}

CASE(a_sub_buffer_inherits_the_flags_it_does_not_name) {
    open_device();
    cl_mem parent = numbered_buffer(CL_MEM_READ_ONLY | CL_MEM_HOST_READ_ONLY);
    cl_mem part = part_of(parent, 0, 64);
    cl_mem_flags flags = INFO(cl_mem_flags, clGetMemObjectInfo, part, CL_MEM_FLAGS);
    say("read only %d, host read only %d", !!(flags & CL_MEM_READ_ONLY), !!(flags & CL_MEM_HOST_READ_ONLY));
    CHECK(flags & CL_MEM_READ_ONLY, "the parent's CL_MEM_READ_ONLY is not inherited");
    CHECK(flags & CL_MEM_HOST_READ_ONLY, "the parent's CL_MEM_HOST_READ_ONLY is not inherited");
    EXPECT(CL_INVALID_OPERATION, clEnqueueWriteBuffer(queue, part, CL_TRUE, 0, 4, values, 0, NULL, NULL));
}

CASE(wrong_regions_are_refused) {
    open_device();
    cl_mem parent = numbered_buffer(CL_MEM_READ_WRITE);
    cl_buffer_region beyond = {0, sizeof values + 1}, empty = {0, 0}, far = {sizeof values, 4}, good = {0, 64};
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &beyond, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &far, &err));
    EXPECT_CREATE(CL_INVALID_BUFFER_SIZE, clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &empty, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSubBuffer(parent, 0, 0x7fff, &good, &err));
    EXPECT_CREATE(CL_INVALID_MEM_OBJECT, clCreateSubBuffer(NULL, 0, CL_BUFFER_CREATE_TYPE_REGION, &good, &err));
}

CASE(a_misaligned_origin_is_refused) {
    open_device();
    if (alignment() < 2) SKIP("every origin is aligned");
    cl_mem parent = numbered_buffer(CL_MEM_READ_WRITE);
    cl_buffer_region misaligned = {1, 64};
    EXPECT_CREATE(CL_MISALIGNED_SUB_BUFFER_OFFSET,
                  clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &misaligned, &err));
}

CASE(a_sub_buffer_has_no_sub_buffers) {
    open_device();
    cl_mem part = part_of(numbered_buffer(CL_MEM_READ_WRITE), 0, 256);
    cl_buffer_region region = {0, 64};
    EXPECT_CREATE(CL_INVALID_MEM_OBJECT, clCreateSubBuffer(part, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
}

CASE(flags_that_contradict_the_parents_are_refused) {
    open_device();
    cl_mem read_only = numbered_buffer(CL_MEM_READ_ONLY), write_only = numbered_buffer(CL_MEM_WRITE_ONLY);
    cl_mem host_none = buffer_of(CL_MEM_HOST_NO_ACCESS, 256, NULL);
    cl_buffer_region region = {0, 64};
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSubBuffer(read_only, CL_MEM_WRITE_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSubBuffer(read_only, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSubBuffer(write_only, CL_MEM_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSubBuffer(host_none, CL_MEM_HOST_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSubBuffer(read_only, CL_MEM_USE_HOST_PTR, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateSubBuffer(read_only, CL_MEM_COPY_HOST_PTR, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
}
