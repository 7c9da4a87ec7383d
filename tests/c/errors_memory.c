/* The documented errors of the calls on buffers, function by function, in the specification's order. */
#include "common.h"

static char bytes[256];
static const size_t zero[3] = {0, 0, 0}, one_row[3] = {8, 1, 1};

/* A context that has nothing to do with the first, and a buffer and an event of it. */
static cl_context stranger;
static cl_mem foreign_buffer;
static cl_event foreign_event;

static void open_two_contexts(void) {
    open_device();
    stranger = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &err));
    foreign_buffer = MADE(clCreateBuffer(stranger, CL_MEM_READ_WRITE, 64, NULL, &err));
    foreign_event = MADE(clCreateUserEvent(stranger, &err));
}

CASE(errors_of_create_buffer) {
    open_device();
    cl_ulong limit = INFO(cl_ulong, clGetDeviceInfo, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateBuffer(NULL, 0, 16, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateBuffer(context, 1ull << 40, 16, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_READ_ONLY, 16, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateBuffer(context, CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY, 16, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateBuffer(context, CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, 16, bytes, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateBuffer(context, CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, 16, bytes, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateBuffer(context, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY, 16, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateBuffer(context, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS, 16, NULL, &err));
    EXPECT_CREATE(CL_INVALID_BUFFER_SIZE, clCreateBuffer(context, 0, 0, NULL, &err));
    EXPECT_CREATE(CL_INVALID_BUFFER_SIZE, clCreateBuffer(context, 0, limit + 1, NULL, &err));
    EXPECT_CREATE(CL_INVALID_BUFFER_SIZE, clCreateBuffer(context, 0, SIZE_MAX, NULL, &err));
    EXPECT_CREATE(CL_INVALID_HOST_PTR, clCreateBuffer(context, CL_MEM_USE_HOST_PTR, 16, NULL, &err));
    EXPECT_CREATE(CL_INVALID_HOST_PTR, clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, 16, NULL, &err));
    EXPECT_CREATE(CL_INVALID_HOST_PTR, clCreateBuffer(context, 0, 16, bytes, &err));
}

CASE(a_create_call_may_go_without_a_place_for_its_error) {
    open_device();
    cl_mem good = clCreateBuffer(context, 0, 16, NULL, NULL), bad = clCreateBuffer(context, 0, 0, NULL, NULL);
    say("good %s, bad %s", good ? "made" : "not made", bad ? "made" : "not made");
    CHECK(good && !bad, "an unwanted error was not just left out");
}

CASE(errors_of_read_buffer) {
    open_two_contexts();
    cl_mem buffer = buffer_of(0, 64, NULL);
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueReadBuffer(NULL, buffer, CL_TRUE, 0, 4, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueReadBuffer(queue, foreign_buffer, CL_TRUE, 0, 4, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, 4, bytes, 1, &foreign_event, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueReadBuffer(queue, NULL, CL_TRUE, 0, 4, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 61, 4, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 65, 1, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 65, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBuffer(queue, buffer, CL_TRUE, SIZE_MAX, 2, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 2, SIZE_MAX, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, NULL, 0, NULL, NULL));
    EXPECT(CL_SUCCESS, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, bytes, 1, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, bytes, 0, &foreign_event, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, bytes, 1, (cl_event[]){NULL}, NULL));
    EXPECT(CL_SUCCESS, clEnqueueReadBuffer(queue, buffer, CL_TRUE, 60, 4, bytes, 0, NULL, NULL));
}

CASE(errors_of_write_buffer) {
    open_two_contexts();
    cl_mem buffer = buffer_of(0, 64, NULL);
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueWriteBuffer(NULL, buffer, CL_TRUE, 0, 4, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueWriteBuffer(queue, foreign_buffer, CL_TRUE, 0, 4, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, 4, bytes, 1, &foreign_event, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueWriteBuffer(queue, NULL, CL_TRUE, 0, 4, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 61, 4, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 2, SIZE_MAX, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 4, NULL, 0, NULL, NULL));
    EXPECT(CL_SUCCESS, clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 4, bytes, 1, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 4, bytes, 0, &foreign_event, NULL));
}

CASE(errors_of_read_and_write_buffer_rect) {
    open_two_contexts();
    cl_mem buffer = buffer_of(0, 64, NULL);
    const size_t none[3] = {8, 0, 1}, wide[3] = {65, 1, 1}, rows[3] = {8, 9, 1}, two_slices[3] = {4, 2, 2}, late[3] = {60, 0, 0};
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueReadBufferRect(NULL, buffer, CL_TRUE, zero, zero, one_row, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueReadBufferRect(queue, foreign_buffer, CL_TRUE, zero, zero, one_row, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueReadBufferRect(queue, NULL, CL_TRUE, zero, zero, one_row, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, wide, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, rows, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, late, zero, one_row, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, none, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, one_row, 4, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, one_row, 0, 0, 4, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, two_slices, 4, 7, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, two_slices, 0, 0, 4, 9, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, one_row, 0, 0, 0, 0, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, one_row, 0, 0, 0, 0, bytes, 1, NULL, NULL));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueWriteBufferRect(NULL, buffer, CL_TRUE, zero, zero, one_row, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueWriteBufferRect(queue, foreign_buffer, CL_TRUE, zero, zero, one_row, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueWriteBufferRect(queue, NULL, CL_TRUE, zero, zero, one_row, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, zero, zero, rows, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, zero, zero, none, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, zero, zero, one_row, 4, 0, 0, 0, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, zero, zero, one_row, 0, 0, 0, 0, NULL, 0, NULL, NULL));
}

CASE(errors_of_copy_buffer_and_rect) {
    open_two_contexts();
    cl_mem from = buffer_of(0, 64, NULL), to = buffer_of(0, 64, NULL);
    const size_t rows[3] = {8, 9, 1}, none[3] = {0, 1, 1};
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueCopyBuffer(NULL, from, to, 0, 0, 4, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueCopyBuffer(queue, from, foreign_buffer, 0, 0, 4, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueCopyBuffer(queue, foreign_buffer, to, 0, 0, 4, 0, NULL, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueCopyBuffer(queue, NULL, to, 0, 0, 4, 0, NULL, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueCopyBuffer(queue, from, NULL, 0, 0, 4, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyBuffer(queue, from, to, 61, 0, 4, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyBuffer(queue, from, to, 0, 61, 4, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyBuffer(queue, from, to, 0, 0, 65, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyBuffer(queue, from, to, 1, 0, SIZE_MAX, 0, NULL, NULL));
    DEVIATES(CL_SUCCESS, clEnqueueCopyBuffer(queue, from, to, 0, 0, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueCopyBuffer(queue, from, to, 0, 0, 4, 1, NULL, NULL));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueCopyBufferRect(NULL, from, to, zero, zero, one_row, 0, 0, 0, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueCopyBufferRect(queue, from, foreign_buffer, zero, zero, one_row, 0, 0, 0, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyBufferRect(queue, from, to, zero, zero, rows, 0, 0, 0, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyBufferRect(queue, from, to, zero, zero, none, 0, 0, 0, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyBufferRect(queue, from, to, zero, zero, one_row, 4, 0, 0, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyBufferRect(queue, from, to, zero, zero, one_row, 0, 0, 4, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyBufferRect(queue, from, from, zero, zero, one_row, 8, 0, 16, 0, 0, NULL, NULL));
}

CASE(errors_of_fill_buffer) {
    open_two_contexts();
    cl_mem buffer = buffer_of(0, 64, NULL);
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueFillBuffer(NULL, buffer, bytes, 4, 0, 16, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueFillBuffer(queue, foreign_buffer, bytes, 4, 0, 16, 0, NULL, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueFillBuffer(queue, NULL, bytes, 4, 0, 16, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, buffer, bytes, 4, 64, 4, 0, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueFillBuffer(queue, buffer, bytes, 4, 0, 16, 1, NULL, NULL));
}

CASE(errors_of_map_buffer_and_unmap) {
    open_two_contexts();
    cl_mem buffer = buffer_of(0, 64, NULL);
    EXPECT_CREATE(CL_INVALID_COMMAND_QUEUE, clEnqueueMapBuffer(NULL, buffer, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_CONTEXT, clEnqueueMapBuffer(queue, foreign_buffer, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_MEM_OBJECT, clEnqueueMapBuffer(queue, NULL, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 61, 4, 0, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 1, SIZE_MAX, 0, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 0, 0, NULL, NULL, &err));
    DEVIATES_CREATE(CL_INVALID_VALUE, clEnqueueMapBuffer(queue, buffer, CL_TRUE, 1u << 20, 0, 4, 0, NULL, NULL, &err));
    DEVIATES_CREATE(CL_INVALID_VALUE, clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION, 0, 4, 0, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_EVENT_WAIT_LIST, clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 4, 1, NULL, NULL, &err));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueUnmapMemObject(NULL, buffer, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueUnmapMemObject(queue, NULL, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueUnmapMemObject(queue, foreign_buffer, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueUnmapMemObject(queue, buffer, NULL, 0, NULL, NULL));
}

CASE(errors_of_migrate_and_of_destructor_callbacks) {
    open_two_contexts();
    cl_mem buffer = buffer_of(0, 64, NULL);
    EXPECT(CL_INVALID_COMMAND_QUEUE, clEnqueueMigrateMemObjects(NULL, 1, &buffer, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT, clEnqueueMigrateMemObjects(queue, 1, &foreign_buffer, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueMigrateMemObjects(queue, 1, &buffer, 0, 1, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clSetMemObjectDestructorCallback(buffer, NULL, NULL));
}
