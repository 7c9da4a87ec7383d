/* Mapping and unmapping of buffers. */
#include "common.h"

enum { COUNT = 64 };

static void number(cl_int *values, cl_int first) {
    for (int i = 0; i < COUNT; i++) values[i] = first + i;
}

static cl_mem numbered_buffer(void) {
    cl_int values[COUNT];
    number(values, 0);
    return buffer_of(CL_MEM_READ_WRITE, sizeof values, values);
}

static cl_int *map(cl_mem buffer, cl_map_flags flags, size_t first, size_t count) {
    return MADE(clEnqueueMapBuffer(queue, buffer, CL_TRUE, flags, first * sizeof(cl_int), count * sizeof(cl_int), 0, NULL,
                                   NULL, &err));
}

static void unmap(cl_mem buffer, void *pointer) {
    OK(clEnqueueUnmapMemObject(queue, buffer, pointer, 0, NULL, NULL));
}

static cl_uint map_count(cl_mem buffer) { return INFO(cl_uint, clGetMemObjectInfo, buffer, CL_MEM_MAP_COUNT); }

CASE(a_read_map_shows_what_a_kernel_wrote) {
    open_device();
    cl_mem buffer = numbered_buffer();
    cl_kernel kernel = kernel_of("kernel void triple(global int *a) { a[get_global_id(0)] *= 3; }", "triple");
    set_arg(kernel, 0, sizeof buffer, &buffer);
    size_t count = COUNT;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
    cl_int *mapped = map(buffer, CL_MAP_READ, 8, 8);
    show_ints("mapped", mapped, 8);
    for (int i = 0; i < 8; i++) CHECK(mapped[i] == 3 * (8 + i), "element %d is %d", 8 + i, mapped[i]);
    unmap(buffer, mapped);
    OK(clFinish(queue));
    close_device();
}

CASE(what_is_written_through_a_write_map_arrives_and_the_rest_stays) {
    open_device();
    cl_mem buffer = numbered_buffer();
    cl_int *mapped = map(buffer, CL_MAP_WRITE, 16, 16);
    for (int i = 0; i < 16; i += 2) mapped[i] = -100 - i;
    unmap(buffer, mapped);
    cl_int result[COUNT];
    read_all(buffer, result, sizeof result);
    show_ints("after", result, COUNT);
    for (int i = 0; i < COUNT; i++) {
        int written = i >= 16 && i < 32 && i % 2 == 0;
        CHECK(result[i] == (written ? -100 - (i - 16) : i), "element %d is %d", i, result[i]);
    }
}

CASE(a_write_map_leaves_the_rest_of_a_buffer_that_the_host_only_writes) {
    open_device();
    cl_int values[COUNT], result[COUNT];
    number(values, 0);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE | CL_MEM_HOST_WRITE_ONLY, sizeof values, values);
    cl_mem readable = buffer_of(CL_MEM_READ_WRITE, sizeof values, NULL);
    EXPECT(CL_INVALID_OPERATION, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL));
    EXPECT_CREATE(CL_INVALID_OPERATION, clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &err));
    cl_int *mapped = map(buffer, CL_MAP_WRITE, 16, 16);
    for (int i = 0; i < 16; i += 2) mapped[i] = -100 - i;
    unmap(buffer, mapped);
    OK(clEnqueueCopyBuffer(queue, buffer, readable, 0, 0, sizeof values, 0, NULL, NULL));
    read_all(readable, result, sizeof result);
    show_ints("after", result, COUNT);
    for (int i = 0; i < COUNT; i++) {
        int written = i >= 16 && i < 32 && i % 2 == 0;
        CHECK(result[i] == (written ? -100 - (i - 16) : i), "element %d is %d", i, result[i]);
    }
}

CASE(a_read_write_map_shows_the_content_and_takes_changes) {
    open_device();
    cl_mem buffer = numbered_buffer();
    cl_int *mapped = map(buffer, CL_MAP_READ | CL_MAP_WRITE, 0, COUNT);
    for (int i = 0; i < COUNT; i++) mapped[i] += 1000 * mapped[i];
    unmap(buffer, mapped);
    cl_int result[COUNT];
    read_all(buffer, result, sizeof result);
    show_ints("after", result, COUNT);
    for (int i = 0; i < COUNT; i++) CHECK(result[i] == 1001 * i, "element %d is %d", i, result[i]);
}

CASE(an_invalidating_map_that_is_written_whole_arrives_whole) {
    open_device();
    cl_mem buffer = numbered_buffer();
    cl_int *mapped = map(buffer, CL_MAP_WRITE_INVALIDATE_REGION, 4, 8);
    for (int i = 0; i < 8; i++) mapped[i] = 7 * i;
    unmap(buffer, mapped);
    cl_int result[COUNT];
    read_all(buffer, result, sizeof result);
    show_ints("after", result, COUNT);
    for (int i = 0; i < COUNT; i++)
        CHECK(result[i] == (i >= 4 && i < 12 ? 7 * (i - 4) : i), "element %d is %d", i, result[i]);
}

CASE(two_overlapping_read_maps_show_the_same_bytes) {
    open_device();
    cl_mem buffer = numbered_buffer();
    cl_int *low = map(buffer, CL_MAP_READ, 0, 40);
    cl_int *high = map(buffer, CL_MAP_READ, 24, 40);
    show_ints("low tail", low + 24, 16);
    show_ints("high head", high, 16);
    CHECK(memcmp(low + 24, high, 16 * sizeof(cl_int)) == 0, "the common part differs");
    unmap(buffer, low);
    CHECK(high[39] == 63, "the second map must survive the first's unmap");
    unmap(buffer, high);
    OK(clFinish(queue));
}

CASE(two_disjoint_write_maps_do_not_overwrite_each_other) {
    open_device();
    cl_mem buffer = numbered_buffer();
    cl_int *low = map(buffer, CL_MAP_WRITE, 0, 8);
    cl_int *high = map(buffer, CL_MAP_WRITE, 8, 8);
    for (int i = 0; i < 8; i++) low[i] = -1, high[i] = -2;
    unmap(buffer, high);
    unmap(buffer, low);
    cl_int result[COUNT];
    read_all(buffer, result, sizeof result);
    show_ints("after", result, 20);
    for (int i = 0; i < 20; i++)
        CHECK(result[i] == (i < 8 ? -1 : i < 16 ? -2 : i), "element %d is %d", i, result[i]);
}

CASE(the_data_of_a_non_blocking_map_is_there_when_its_event_is) {
    open_device();
    cl_mem buffer = numbered_buffer();
    cl_event mapped_event;
    cl_int *mapped = MADE(clEnqueueMapBuffer(queue, buffer, CL_FALSE, CL_MAP_READ, 0, COUNT * sizeof(cl_int), 0, NULL,
                                             &mapped_event, &err));
    OK(clWaitForEvents(1, &mapped_event));
    show_ints("mapped", mapped, COUNT);
    for (int i = 0; i < COUNT; i++) CHECK(mapped[i] == i, "element %d is %d", i, mapped[i]);
    unmap(buffer, mapped);
    OK(clFinish(queue));
    OK(clReleaseEvent(mapped_event));
}

CASE(an_unmap_straight_after_a_non_blocking_map_leaves_the_content) {
    open_device();
    cl_mem buffer = numbered_buffer();
    void *mapped = MADE(clEnqueueMapBuffer(queue, buffer, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                           COUNT * sizeof(cl_int), 0, NULL, NULL, &err));
    EXPECT(CL_SUCCESS, clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    cl_int result[COUNT];
    read_all(buffer, result, sizeof result);
    show_ints("after", result, COUNT);
    for (int i = 0; i < COUNT; i++) CHECK(result[i] == i, "element %d is %d", i, result[i]);
}

CASE(a_non_blocking_map_waits_for_its_wait_list) {
    open_device();
    cl_mem buffer = numbered_buffer();
    cl_event gate = MADE(clCreateUserEvent(context, &err));
    cl_event done;
    cl_int *mapped = MADE(clEnqueueMapBuffer(queue, buffer, CL_FALSE, CL_MAP_READ, 0, COUNT * sizeof(cl_int), 1, &gate,
                                             &done, &err));
    OK(clFlush(queue));
    cl_int state = INFO(cl_int, clGetEventInfo, done, CL_EVENT_COMMAND_EXECUTION_STATUS);
    CHECK(state > CL_COMPLETE, "a map behind an open gate is %s", event_state_name(state));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &done));
    show_ints("mapped", mapped, 8);
    CHECK(mapped[7] == 7, "element 7 is %d", mapped[7]);
    unmap(buffer, mapped);
    OK(clFinish(queue));
}

CASE(the_map_count_follows_maps_and_unmaps) {
    open_device();
    cl_mem buffer = numbered_buffer();
    CHECK(map_count(buffer) == 0, "a new buffer has map count %u", map_count(buffer));
    cl_int *first = map(buffer, CL_MAP_READ, 0, 8);
    cl_int *second = map(buffer, CL_MAP_READ, 16, 8);
    say("mapped twice: %u", map_count(buffer));
    CHECK(map_count(buffer) == 2, "two maps must count 2");
    unmap(buffer, first);
    OK(clFinish(queue));
    say("unmapped once: %u", map_count(buffer));
    CHECK(map_count(buffer) == 1, "one unmap must leave 1");
    unmap(buffer, second);
    OK(clFinish(queue));
    say("unmapped twice: %u", map_count(buffer));
    CHECK(map_count(buffer) == 0, "the second unmap must leave 0");
}

CASE(unmap_refuses_a_pointer_that_no_map_returned) {
    open_device();
    cl_mem buffer = numbered_buffer();
    cl_int other;
    EXPECT(CL_INVALID_VALUE, clEnqueueUnmapMemObject(queue, buffer, &other, 0, NULL, NULL));
    cl_int *mapped = map(buffer, CL_MAP_READ, 0, 8);
    EXPECT(CL_SUCCESS, clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    OK(clFinish(queue));
    EXPECT(CL_INVALID_VALUE, clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
}

CASE(the_same_region_can_be_mapped_again_and_again) {
    open_device();
    cl_mem buffer = numbered_buffer();
    for (int round = 0; round < 50; round++) {
        cl_int *mapped = map(buffer, CL_MAP_READ | CL_MAP_WRITE, 0, COUNT);
        CHECK(mapped[5] == 5 + round, "round %d shows %d", round, mapped[5]);
        for (int i = 0; i < COUNT; i++) mapped[i]++;
        unmap(buffer, mapped);
    }
    cl_int result[COUNT];
    read_all(buffer, result, sizeof result);
    show_ints("after", result, 8);
}

CASE(a_map_of_a_sub_buffer_is_a_map_of_its_part) {
    open_device();
    cl_int values[256];
    for (int i = 0; i < 256; i++) values[i] = i;
    cl_mem parent = buffer_of(CL_MEM_READ_WRITE, sizeof values, values);
    cl_uint bits = INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_MEM_BASE_ADDR_ALIGN);
    cl_buffer_region region = {bits / 8, 64};
    cl_int first = (cl_int)(bits / 8 / sizeof(cl_int));
    cl_mem part = MADE(clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
    cl_int *mapped = map(part, CL_MAP_READ | CL_MAP_WRITE, 2, 4);
    for (int i = 0; i < 4; i++) {
        CHECK(mapped[i] == first + 2 + i, "element %d of the map is %d", i, mapped[i]);
        mapped[i] = -mapped[i];
    }
    unmap(part, mapped);
    cl_int result[256];
    read_all(parent, result, sizeof result);
    int changed = 0;
    for (int i = 0; i < 256; i++) changed += result[i] != i;
    say("%d elements of the parent changed", changed);
    CHECK(changed == 4 && result[first + 2] == -(first + 2), "only the mapped part may change");
}

CASE(a_large_map_carries_every_byte_both_ways) {
    open_device();
    size_t size = (5u << 20) + 12345;
    unsigned char *content = malloc(size);
    for (size_t i = 0; i < size; i++) content[i] = (unsigned char)(i * 2654435761u >> 13);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, size, content);
    unsigned char *mapped = MADE(
        clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, size, 0, NULL, NULL, &err));
    CHECK(memcmp(mapped, content, size) == 0, "the map does not show the content");
    for (size_t i = 0; i < size; i++) content[i] = mapped[i] ^= 0x5a;
    unmap(buffer, mapped);
    unsigned char *result = malloc(size);
    read_all(buffer, result, size);
    say("digest %016llx", (unsigned long long)digest(result, size));
    CHECK(memcmp(result, content, size) == 0, "the changes did not arrive");
}
