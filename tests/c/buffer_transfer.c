/* Reading, writing, filling and copying buffers, whole and by rectangle. */
#include "common.h"

enum { SIDE = 8, CELLS = SIDE * SIDE * SIDE };

static unsigned char cube[CELLS];

static cl_mem numbered_cube(void) {
    for (int i = 0; i < CELLS; i++) cube[i] = (unsigned char)(i * 7 + i / 256);
    return buffer_of(CL_MEM_READ_WRITE, sizeof cube, cube);
}

static size_t cell(size_t x, size_t y, size_t z) { return x + y * SIDE + z * SIDE * SIDE; }

CASE(offsets_address_bytes_of_the_buffer) {
    open_device();
    cl_mem buffer = numbered_cube();
    unsigned char result[5] = {0};
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 101, 5, result, 0, NULL, NULL));
    show_bytes("read", result, 5);
    CHECK(memcmp(result, cube + 101, 5) == 0, "the read is not at the offset");
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 507, 5, "write", 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 507, 5, result, 0, NULL, NULL));
    CHECK(memcmp(result, "write", 5) == 0, "the write is not at the offset");
}

CASE(a_rectangle_is_read_from_buffer_pitches_into_host_pitches) {
    open_device();
    cl_mem buffer = numbered_cube();
    size_t from[3] = {2, 1, 3}, to[3] = {1, 1, 1}, region[3] = {3, 4, 2};
    unsigned char host[5 * 30];
    memset(host, 0xee, sizeof host);
    OK(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, from, to, region, SIDE, SIDE * SIDE, 5, 30, host, 0, NULL, NULL));
    show_bytes("host", host, sizeof host);
    for (size_t z = 0; z < 2; z++)
        for (size_t y = 0; y < 4; y++)
            CHECK(memcmp(host + 1 + (1 + y) * 5 + (1 + z) * 30, cube + cell(2, 1 + y, 3 + z), 3) == 0, "row %zu of slice %zu", y, z);
    int untouched = 0;
    for (size_t i = 0; i < sizeof host; i++) untouched += host[i] == 0xee;
    CHECK(untouched >= (int)sizeof host - 24, "bytes outside the rectangle were written");
}

CASE(a_rectangle_is_written_and_the_rest_stays) {
    open_device();
    cl_mem buffer = numbered_cube();
    size_t to[3] = {1, 2, 0}, from[3] = {0, 0, 0}, region[3] = {4, 3, 2};
    unsigned char host[24], result[CELLS];
    memset(host, 0x99, sizeof host);
    /* Host pitches of 0 mean "closely packed". */
    OK(clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, to, from, region, SIDE, SIDE * SIDE, 0, 0, host, 0, NULL, NULL));
    read_all(buffer, result, sizeof result);
    for (size_t z = 0; z < 2; z++)
        for (size_t y = 0; y < 3; y++) memset(cube + cell(1, 2 + y, z), 0x99, 4);
    CHECK(memcmp(result, cube, sizeof cube) == 0, "the buffer is not what the rectangle makes it");
    show_bytes("slice 0", result, SIDE * SIDE);
}

CASE(a_rectangle_is_copied_between_buffers_of_different_pitch) {
    open_device();
    cl_mem from = numbered_cube(), to = buffer_of(CL_MEM_READ_WRITE, 200, NULL);
    unsigned char zero = 0, result[200], wanted[200] = {0};
    OK(clEnqueueFillBuffer(queue, to, &zero, 1, 0, 200, 0, NULL, NULL));
    size_t source[3] = {3, 0, 2}, target[3] = {2, 1, 0}, region[3] = {4, 5, 2};
    OK(clEnqueueCopyBufferRect(queue, from, to, source, target, region, SIDE, SIDE * SIDE, 10, 80, 0, NULL, NULL));
    read_all(to, result, sizeof result);
    for (size_t z = 0; z < 2; z++)
        for (size_t y = 0; y < 5; y++) memcpy(wanted + 2 + (1 + y) * 10 + z * 80, cube + cell(3, y, 2 + z), 4);
    show_bytes("target", result, sizeof result);
    CHECK(memcmp(result, wanted, sizeof wanted) == 0, "the copy is wrong");
}

CASE(a_rectangle_is_copied_within_one_buffer) {
    open_device();
    cl_mem buffer = numbered_cube();
    size_t source[3] = {0, 0, 0}, target[3] = {4, 4, 4}, region[3] = {4, 4, 4};
    OK(clEnqueueCopyBufferRect(queue, buffer, buffer, source, target, region, SIDE, SIDE * SIDE, SIDE, SIDE * SIDE, 0, NULL, NULL));
    unsigned char result[CELLS];
    read_all(buffer, result, sizeof result);
    for (size_t z = 0; z < 4; z++)
        for (size_t y = 0; y < 4; y++)
            CHECK(memcmp(result + cell(4, 4 + y, 4 + z), cube + cell(0, y, z), 4) == 0, "row %zu of slice %zu", y, z);
    say("digest %016llx", (unsigned long long)digest(result, sizeof result));
}

CASE(an_overlapping_copy_is_refused) {
    open_device();
    cl_mem buffer = numbered_cube();
    EXPECT(CL_MEM_COPY_OVERLAP, clEnqueueCopyBuffer(queue, buffer, buffer, 0, 8, 16, 0, NULL, NULL));
    EXPECT(CL_MEM_COPY_OVERLAP, clEnqueueCopyBuffer(queue, buffer, buffer, 8, 0, 16, 0, NULL, NULL));
    EXPECT(CL_MEM_COPY_OVERLAP, clEnqueueCopyBuffer(queue, buffer, buffer, 8, 8, 16, 0, NULL, NULL));
    EXPECT(CL_SUCCESS, clEnqueueCopyBuffer(queue, buffer, buffer, 0, 16, 16, 0, NULL, NULL));
    size_t here[3] = {0, 0, 0}, near[3] = {1, 1, 0}, region[3] = {3, 3, 1};
    EXPECT(CL_MEM_COPY_OVERLAP, clEnqueueCopyBufferRect(queue, buffer, buffer, here, near, region, SIDE, 0, SIDE, 0, 0, NULL, NULL));
    OK(clFinish(queue));
}

CASE(a_copy_moves_bytes_between_buffers) {
    open_device();
    cl_mem from = numbered_cube(), to = buffer_of(CL_MEM_READ_WRITE, 64, NULL);
    unsigned char result[20];
    OK(clEnqueueCopyBuffer(queue, from, to, 33, 11, 20, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, to, CL_TRUE, 11, 20, result, 0, NULL, NULL));
    show_bytes("copied", result, 20);
    CHECK(memcmp(result, cube + 33, 20) == 0, "the copy is wrong");
}

CASE(a_fill_repeats_a_pattern_of_every_size) {
    open_device();
    unsigned char pattern[128], result[512];
    for (int i = 0; i < 128; i++) pattern[i] = (unsigned char)(i + 1);
    for (size_t size = 1; size <= 128; size *= 2) {
        cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof result, memset(result, 0, sizeof result));
        OK(clEnqueueFillBuffer(queue, buffer, pattern, size, 128, 256, 0, NULL, NULL));
        read_all(buffer, result, sizeof result);
        int right = 1;
        for (size_t i = 0; i < sizeof result; i++)
            right &= result[i] == (i >= 128 && i < 384 ? pattern[(i - 128) % size] : 0);
        say("pattern of %zu: %s, digest %016llx", size, right ? "right" : "wrong", (unsigned long long)digest(result, sizeof result));
        CHECK(right, "the fill with %zu bytes is wrong", size);
        OK(clReleaseMemObject(buffer));
    }
}

CASE(a_fill_refuses_sizes_that_do_not_fit_the_pattern) {
    open_device();
    cl_mem buffer = numbered_cube();
    char pattern[256] = {0};
    EXPECT(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, buffer, pattern, 3, 0, 12, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, buffer, pattern, 256, 0, 256, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, buffer, pattern, 0, 0, 16, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, buffer, NULL, 4, 0, 16, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, buffer, pattern, 4, 2, 16, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, buffer, pattern, 4, 0, 18, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, buffer, pattern, 4, 0, CELLS + 4, 0, NULL, NULL));
}

CASE(forty_eight_mebibytes_arrive_whole_and_come_back_whole) {
    open_device();
    size_t words = 12u << 20, size = words * 4;
    cl_uint *content = malloc(size), *result = malloc(size);
    for (size_t i = 0; i < words; i++) content[i] = (cl_uint)(i * 2654435761u ^ i >> 7);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, size, NULL);
    cl_mem sums = buffer_of(CL_MEM_READ_WRITE, 256 * sizeof(cl_uint), NULL);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, size, content, 0, NULL, NULL));
    cl_kernel sum = kernel_of("kernel void sum(global uint *a, global uint *sums, uint per) {"
                              "  uint s = 0; size_t g = get_global_id(0);"
                              "  for (uint i = 0; i < per; i++) { size_t at = g * per + i; s = s * 31 + a[at]; a[at] ^= 0xa5a5a5a5; }"
                              "  sums[g] = s; }", "sum");
    cl_uint per = (cl_uint)(words / 256), partial[256];
    set_arg(sum, 0, sizeof buffer, &buffer);
    set_arg(sum, 1, sizeof sums, &sums);
    set_arg(sum, 2, sizeof per, &per);
    run_kernel(sum, 256);
    OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, size, result, 0, NULL, NULL));
    read_all(sums, partial, sizeof partial);
    say("digest of the sums %016llx", (unsigned long long)digest(partial, sizeof partial));
    for (int g = 0; g < 256; g++) {
        cl_uint s = 0;
        for (cl_uint i = 0; i < per; i++) s = s * 31 + content[g * per + i];
        CHECK(s == partial[g], "the device saw other data in part %d", g);
    }
    size_t different = 0;
    for (size_t i = 0; i < words; i++) different += result[i] != (content[i] ^ 0xa5a5a5a5u);
    CHECK(different == 0, "%zu words came back wrong", different);
}

CASE(many_small_writes_keep_their_order) {
    open_device();
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4096, NULL);
    static cl_int sources[2000];
    for (int i = 0; i < 2000; i++) {
        sources[i] = i;
        OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, (size_t)(i % 16) * 4, 4, &sources[i], 0, NULL, NULL));
    }
    cl_int result[16];
    read_all(buffer, result, sizeof result);
    show_ints("last writers", result, 16);
    for (int i = 0; i < 16; i++) CHECK(result[i] == 1984 + i, "slot %d has %d", i, result[i]);
}

static int destroyed_order[3], destroyed;

static void CL_CALLBACK on_destroyed(cl_mem buffer, void *which) {
    (void)buffer;
    destroyed_order[destroyed] = (int)(intptr_t)which;
    tally_add(&destroyed);
}

CASE(destructor_callbacks_run_in_reverse_order) {
    open_device();
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 64, NULL);
    for (intptr_t i = 0; i < 3; i++) EXPECT(CL_SUCCESS, clSetMemObjectDestructorCallback(buffer, on_destroyed, (void *)i));
    OK(clRetainMemObject(buffer));
    OK(clReleaseMemObject(buffer));
    CHECK(destroyed == 0, "a destructor ran before the last release");
    OK(clReleaseMemObject(buffer));
    tally_await(&destroyed, 3, "destructor callbacks");
    show_ints("order", destroyed_order, 3);
    CHECK(destroyed_order[0] == 2 && destroyed_order[2] == 0, "the order is not the reverse of registration");
    EXPECT(CL_INVALID_MEM_OBJECT, clSetMemObjectDestructorCallback(NULL, on_destroyed, NULL));
}

CASE(a_destructor_callback_runs_after_the_commands_that_use_the_buffer) {
    open_device();
    static cl_int host[4] = {1, 2, 3, 4};
    cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_USE_HOST_PTR, sizeof host, host, &err));
    OK(clSetMemObjectDestructorCallback(buffer, on_destroyed, NULL));
    cl_event gate = MADE(clCreateUserEvent(context, &err));
    cl_int result[4];
    OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, sizeof result, result, 1, &gate, NULL));
    OK(clReleaseMemObject(buffer));
    CHECK(destroyed == 0, "the buffer was destroyed under a waiting command");
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(queue));
    tally_await(&destroyed, 1, "destructor callback");
    show_ints("read", result, 4);
    CHECK(result[3] == 4, "the read got %d", result[3]);
}
