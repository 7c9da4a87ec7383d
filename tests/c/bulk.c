/* Large transfers of every kind whose bytes repeat themselves, as compressors like it, with some that do not in between. */
#include "common.h"

enum { SIZE = (5 << 20) + 12345 };

/* Text with a number in it now and then, and sixteen KiB without any order in each MiB. */
static unsigned char *content_of(size_t size, unsigned seed) {
    static const char text[] = "what is said twice, is said for nothing; ";
    unsigned char *bytes = malloc(size);
    for (size_t i = 0; i < size; i++) {
        unsigned noise = (unsigned)i * 2654435761u + seed;
        noise ^= noise >> 15;
        noise *= 2246822519u;
        bytes[i] = i % (1 << 20) < 16 << 10 ? noise >> 24 : (unsigned char)(text[i % (sizeof text - 1)] + i / 100000 + seed);
    }
    return bytes;
}

static void check_same(const char *what, const void *wanted, const void *got, size_t size) {
    say("%s: digest %016llx", what, (unsigned long long)digest(got, size));
    CHECK(memcmp(wanted, got, size) == 0, "%s: other bytes came", what);
}

/* Changes every byte, so that what comes back has been on the device. */
static void invert(cl_mem buffer, unsigned char *content, size_t size) {
    cl_kernel kernel = kernel_of("kernel void invert(global uchar *a) { size_t i = get_global_id(0); a[i] = ~a[i]; }", "invert");
    set_arg(kernel, 0, sizeof buffer, &buffer);
    run_kernel(kernel, size);
    for (size_t i = 0; i < size; i++) content[i] = (unsigned char)~content[i];
}

CASE(a_buffer_is_written_and_read) {
    open_device();
    unsigned char *content = content_of(SIZE, 1), *result = malloc(SIZE);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, SIZE, NULL);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, SIZE, content, 0, NULL, NULL));
    OK(clFinish(queue));
    invert(buffer, content, SIZE);
    read_all(buffer, result, SIZE);
    check_same("all", content, result, SIZE);
    for (size_t size = 16 << 10; size <= 64 << 10; size += 16 << 10) {
        for (int more = -1; more <= 1; more++) {
            memset(result, 0, SIZE);
            read_all(buffer, result, size + more);
            check_same("a part", content, result, size + more);
        }
    }
}

CASE(a_buffer_begins_with_its_content) {
    open_device();
    unsigned char *content = content_of(SIZE, 2), *result = malloc(SIZE);
    for (size_t size = SIZE; size > 4 << 10; size /= 8) {
        cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, size, content);
        read_all(buffer, result, size);
        check_same("content", content, result, size);
        OK(clReleaseMemObject(buffer));
    }
}

CASE(a_rectangle_has_pitches_on_both_sides) {
    open_device();
    enum { WIDTH = 3001, ROWS = 211, SLICES = 5, HOST_ROW = 3072, HOST_SLICE = HOST_ROW * 220, ROW = 4096, SLICE = ROW * 256 };
    size_t host_size = (size_t)HOST_SLICE * SLICES, size = (size_t)SLICE * SLICES;
    unsigned char *content = content_of(host_size, 3), *result = memset(malloc(host_size), 0xee, host_size);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, size, content_of(size, 4));
    size_t at[3] = {7, 3, 0}, host_at[3] = {5, 2, 0}, region[3] = {WIDTH, ROWS, SLICES};
    OK(clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, at, host_at, region, ROW, SLICE, HOST_ROW, HOST_SLICE, content, 0, NULL, NULL));
    OK(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, at, host_at, region, ROW, SLICE, HOST_ROW, HOST_SLICE, result, 0, NULL, NULL));
    size_t wrong = 0;
    for (size_t z = 0; z < SLICES; z++) {
        for (size_t y = 0; y < HOST_SLICE / HOST_ROW; y++) {
            for (size_t x = 0; x < HOST_ROW; x++) {
                size_t i = z * HOST_SLICE + y * HOST_ROW + x;
                int inside = x >= 5 && x < 5 + WIDTH && y >= 2 && y < 2 + ROWS;
                wrong += result[i] != (inside ? content[i] : 0xee);
            }
        }
    }
    CHECK(wrong == 0, "%zu bytes are wrong", wrong);
    unsigned char *all = malloc(size);
    read_all(buffer, all, size);
    say("the buffer: digest %016llx", (unsigned long long)digest(all, size));
}

CASE(an_image_is_made_written_read_and_mapped_with_pitches) {
    open_device();
    if (!INFO(cl_bool, clGetDeviceInfo, device, CL_DEVICE_IMAGE_SUPPORT)) SKIP("no images");
    enum { WIDTH = 1003, HEIGHT = 707, ROW = 1024 * 4 };
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WIDTH, .image_height = HEIGHT, .image_row_pitch = ROW};
    size_t size = (size_t)ROW * HEIGHT, origin[3] = {0, 0, 0}, region[3] = {WIDTH, HEIGHT, 1}, row_pitch = 0;
    unsigned char *content = content_of(size, 5), *result = memset(malloc(size), 0xee, size);
    cl_mem image = MADE(clCreateImage(context, CL_MEM_COPY_HOST_PTR, &format, &desc, content, &err));
    for (int round = 0; round < 2; round++) {
        OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, ROW, 0, result, 0, NULL, NULL));
        unsigned char *mapped = MADE(clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, origin, region, &row_pitch, NULL, 0, NULL, NULL, &err));
        for (size_t y = 0; y < HEIGHT; y++) {
            NEED(memcmp(content + y * ROW, result + y * ROW, WIDTH * 4) == 0, "round %d: row %zu is wrong", round, y);
            NEED(memcmp(content + y * ROW, mapped + y * row_pitch, WIDTH * 4) == 0, "round %d: mapped row %zu is wrong", round, y);
        }
        OK(clEnqueueUnmapMemObject(queue, image, mapped, 0, NULL, NULL));
        free(content);
        content = content_of(size, 6);
        OK(clEnqueueWriteImage(queue, image, CL_TRUE, origin, region, ROW, 0, content, 0, NULL, NULL));
    }
    say("digest %016llx", (unsigned long long)digest(result, size));
}

CASE(a_mapped_part_is_seen_and_changed) {
    open_device();
    unsigned char *content = content_of(SIZE, 7), *result = malloc(SIZE);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, SIZE, content);
    size_t first = 300001, size = 3 << 20;
    unsigned char *mapped =
        MADE(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, first, size, 0, NULL, NULL, &err));
    check_same("mapped", content + first, mapped, size);
    for (size_t i = 0; i < size; i++) content[first + i] = mapped[i] ^= 0x5a;
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    read_all(buffer, result, SIZE);
    check_same("all", content, result, SIZE);
}

CASE(a_program_of_three_mebibytes_is_built) {
    open_device();
    size_t size = 3 << 20;
    char *source = malloc(size), *end = source;
    for (int line = 0; end < source + size - 200; line++) end += sprintf(end, "/* Line %d of many that say nothing. */\n", line);
    strcpy(end, "kernel void number(global int *a) { a[0] = 4711; }");
    cl_kernel kernel = kernel_of(source, "number");
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof(cl_int), NULL);
    set_arg(kernel, 0, sizeof buffer, &buffer);
    run_kernel(kernel, 1);
    cl_int number = 0;
    read_all(buffer, &number, sizeof number);
    say("the number is %d", number);
    CHECK(number == 4711, "another program ran");
}
