/* Transfers of many sizes at the same time: contents stay whole, and in their order. */
#include "common.h"

enum { LARGE = 9 << 20 };

/* What byte `i` of the content `which` is. */
static unsigned char byte(unsigned which, size_t i) { return (unsigned char)((i * 2654435761u >> 13) + which * 77); }

static void fill(unsigned char *bytes, size_t size, unsigned which) {
    for (size_t i = 0; i < size; i++) bytes[i] = byte(which, i);
}

static size_t wrong_bytes(const unsigned char *bytes, size_t size, unsigned which) {
    size_t wrong = 0;
    for (size_t i = 0; i < size; i++) wrong += bytes[i] != byte(which, i);
    return wrong;
}

static cl_mem large_with(unsigned which) {
    unsigned char *content = malloc(LARGE);
    fill(content, LARGE, which);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, LARGE, content);
    free(content);
    return buffer;
}

CASE(a_buffer_has_all_of_the_large_content_it_was_made_from) {
    open_device();
    for (unsigned which = 0; which < 4; which++) {
        cl_mem buffer = large_with(which);
        unsigned char *back = malloc(LARGE);
        read_all(buffer, back, LARGE);
        CHECK(wrong_bytes(back, LARGE, which) == 0, "content %u is not the same", which);
        OK(clReleaseMemObject(buffer));
        free(back);
    }
}

CASE(two_reads_into_the_same_memory_end_in_their_order) {
    open_device();
    cl_mem first = large_with(1), second = large_with(2);
    unsigned char *back = malloc(LARGE);
    for (int round = 0; round < 12; round++) {
        /* Of other lengths, so that their parts do not lie over each other. */
        size_t size = LARGE - (size_t)round * 300000;
        OK(clEnqueueReadBuffer(queue, first, CL_FALSE, 0, LARGE, back, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, second, CL_FALSE, 0, size, back, 0, NULL, NULL));
        OK(clFinish(queue));
        size_t wrong = wrong_bytes(back, size, 2);
        for (size_t i = size; i < LARGE; i++) wrong += back[i] != byte(1, i);
        CHECK(wrong == 0, "round %d: %zu bytes are wrong", round, wrong);
    }
}

enum { ROW = 3000, PITCH = 4096, ROWS = 3000 };

CASE(large_rectangles_with_gaps_come_back_whole_and_the_gaps_stay) {
    open_device();
    size_t size = (size_t)PITCH * ROWS;
    unsigned char *there = malloc(size), *back = malloc(size);
    fill(there, size, 3);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, size, NULL);
    size_t zero[3] = {0, 0, 0}, shift[3] = {7, 0, 0}, region[3] = {ROW, ROWS, 1};
    for (int blocking = 0; blocking < 2; blocking++) {
        memset(back, 0xee, size);
        OK(clEnqueueWriteBufferRect(queue, buffer, blocking, shift, zero, region, PITCH, 0, PITCH, 0, there, 0, NULL, NULL));
        OK(clEnqueueReadBufferRect(queue, buffer, blocking, shift, zero, region, PITCH, 0, PITCH, 0, back, 0, NULL, NULL));
        OK(clFinish(queue));
        size_t wrong = 0;
        for (size_t i = 0; i < size; i++) wrong += back[i] != (i % PITCH < ROW ? there[i] : 0xee);
        CHECK(wrong == 0, "%zu bytes are wrong", wrong);
    }
}

CASE(rectangles_side_by_side_are_read_at_the_same_time) {
    open_device();
    cl_mem buffer = large_with(4);
    unsigned char *back = calloc(1, LARGE);
    size_t half = 1024, rows = LARGE / 2048;
    for (size_t side = 0; side < 2; side++) {
        size_t origin[3] = {side * half, 0, 0}, region[3] = {half, rows, 1};
        OK(clEnqueueReadBufferRect(queue, buffer, CL_FALSE, origin, origin, region, 2048, 0, 2048, 0, back, 0, NULL, NULL));
    }
    OK(clFinish(queue));
    CHECK(wrong_bytes(back, LARGE, 4) == 0, "the halves are not the whole");
}

CASE(large_images_with_gaps_come_back_whole) {
    open_device();
    if (!INFO(cl_bool, clGetDeviceInfo, device, CL_DEVICE_IMAGE_SUPPORT)) SKIP("no images");
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 1500, .image_height = 1200};
    cl_mem image = MADE(clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &err));
    size_t pitch = 6400, size = pitch * 1200, origin[3] = {0, 0, 0}, region[3] = {1500, 1200, 1};
    unsigned char *there = malloc(size), *back = memset(malloc(size), 0xee, size);
    fill(there, size, 5);
    OK(clEnqueueWriteImage(queue, image, CL_FALSE, origin, region, pitch, 0, there, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, image, CL_FALSE, origin, region, pitch, 0, back, 0, NULL, NULL));
    OK(clFinish(queue));
    size_t wrong = 0;
    for (size_t i = 0; i < size; i++) wrong += back[i] != (i % pitch < 6000 ? there[i] : 0xee);
    CHECK(wrong == 0, "%zu bytes are wrong", wrong);
}

CASE(maps_of_many_mebibytes_are_whole_in_both_directions) {
    open_device();
    cl_mem buffer = large_with(6);
    for (unsigned which = 6; which < 9; which++) {
        cl_map_flags flags = CL_MAP_READ | CL_MAP_WRITE;
        unsigned char *mapped = MADE(clEnqueueMapBuffer(queue, buffer, CL_TRUE, flags, 0, LARGE, 0, NULL, NULL, &err));
        CHECK(wrong_bytes(mapped, LARGE, which) == 0, "map %u has other content", which);
        fill(mapped, LARGE, which + 1);
        OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    }
    OK(clFinish(queue));
}

/* More than OpenCL demands: when a call that writes has returned, its source may change. */
CASE_TELECL_ONLY(the_source_of_a_write_may_change_when_the_call_has_returned) {
    open_device();
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, LARGE, NULL);
    unsigned char *source = malloc(LARGE), *back = malloc(LARGE);
    for (unsigned which = 0; which < 8; which++) {
        fill(source, LARGE, which);
        OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, LARGE, source, 0, NULL, NULL));
        memset(source, 0xee, LARGE);
        read_all(buffer, back, LARGE);
        CHECK(wrong_bytes(back, LARGE, which) == 0, "content %u came late", which);
    }
}

static size_t drawn(unsigned *state, size_t below) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* A queue and a buffer of its own, and what the buffer must hold; writes, kernels and reads of all sizes. */
static int whole;

static void *mix(void *seed) {
    static const size_t sizes[] = {1, 100, 5000, 70000, 524287, 524288, 1 << 20, (1 << 20) + 1, 3 << 20, LARGE};
    unsigned state = (unsigned)(uintptr_t)seed;
    cl_command_queue own = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, LARGE, memset(malloc(LARGE), 0, LARGE));
    unsigned char *model = calloc(1, LARGE), *back = malloc(LARGE), *source = malloc(LARGE);
    int right = 1;
    for (int round = 0; round < 60; round++) {
        size_t size = sizes[drawn(&state, sizeof sizes / sizeof *sizes)];
        size_t at = drawn(&state, LARGE - size + 1);
        cl_bool blocking = drawn(&state, 2) == 0;
        switch (drawn(&state, 3)) {
            case 0:
                fill(source, size, (unsigned)round);
                memcpy(model + at, source, size);
                OK(clEnqueueWriteBuffer(own, buffer, CL_TRUE, at, size, source, 0, NULL, NULL));
                break;
            case 1: {
                cl_uchar value = (cl_uchar)round;
                memset(model + at, value, size);
                OK(clEnqueueFillBuffer(own, buffer, &value, 1, at, size, 0, NULL, NULL));
                break;
            }
            default: {
                cl_event event;
                OK(clEnqueueReadBuffer(own, buffer, blocking, at, size, back, 0, NULL, &event));
                OK(clWaitForEvents(1, &event));
                OK(clReleaseEvent(event));
                right &= memcmp(back, model + at, size) == 0;
            }
        }
    }
    OK(clEnqueueReadBuffer(own, buffer, CL_TRUE, 0, LARGE, back, 0, NULL, NULL));
    if (right && memcmp(back, model, LARGE) == 0) tally_add(&whole);
    return NULL;
}

CASE(threads_with_queues_of_their_own_do_not_mix_up_their_data) {
    enum { THREADS = 3 };
    open_device();
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) NEED(pthread_create(&threads[i], NULL, mix, (void *)(i + 1)) == 0, "no thread");
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK(whole == THREADS, "only %d of %d have their own data", whole, THREADS);
}
