/* The program in the tests of sessions that are moved out to host memory (tests/moving.rs): what the device holds at once
 * is in TELECL_TEST_MOST, in bytes. */
#include "common.h"
#include "../../include/telecl.h"

#include <signal.h>

static size_t most(void) {
    size_t most = setting("TELECL_TEST_MOST", 0);
    NEED(most, "TELECL_TEST_MOST is not set");
    return most;
}

static const char *source =
    "__kernel void advance(__global uint *a, uint add) {\n"
    "    size_t i = get_global_id(0);\n"
    "    a[i] = a[i] * 1664525u + 1013904223u + add;\n"
    "}\n"
    "__kernel void combine(__global uint *a, __global uint *b, __global uint *c) {\n"
    "    size_t i = get_global_id(0);\n"
    "    c[i] = a[i] ^ b[i];\n"
    "}\n"
    "__kernel void inspect(__read_only image2d_t image, __read_only image1d_buffer_t line, __global uint *out) {\n"
    "    const sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;\n"
    "    int x = get_global_id(0), y = get_global_id(1);\n"
    "    uint4 pixel = read_imageui(image, nearest, (int2)(x, y));\n"
    "    uint4 beside = read_imageui(line, x);\n"
    "    out[y * get_global_size(0) + x] = pixel.x + 256 * pixel.y + 65536 * pixel.z + 16777216 * pixel.w + beside.x;\n"
    "}\n";

static void begin(void) {
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &err));
    queue = MADE(clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &err));
}

static uint32_t seed;

static uint32_t draw(uint32_t *state) { return *state = *state * 747796405u + 2891336453u; }

static void fill(void *to, size_t size) {
    uint32_t state = seed++ * 2654435761u + (uint32_t)setting("TELECL_TEST_SEED", 1);
    for (size_t i = 0; i < size / 4; i++) ((uint32_t *)to)[i] = draw(&state);
    for (size_t i = size / 4 * 4; i < size; i++) ((unsigned char *)to)[i] = (unsigned char)draw(&state);
}

struct image {
    cl_mem object;
    size_t region[3], size;
    void *content;
};

static struct image make_image(cl_mem_object_type type, cl_channel_order order, cl_channel_type data, size_t pixel,
                               size_t width, size_t height, size_t layers) {
    cl_image_format format = {order, data};
    cl_image_desc desc = {.image_type = type, .image_width = width, .image_height = height};
    desc.image_depth = type == CL_MEM_OBJECT_IMAGE3D ? layers : 0;
    desc.image_array_size = type == CL_MEM_OBJECT_IMAGE1D_ARRAY || type == CL_MEM_OBJECT_IMAGE2D_ARRAY ? layers : 0;
    struct image image = {.object = MADE(clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &err))};
    image.region[0] = width, image.region[1] = height ? height : layers, image.region[2] = height ? layers : 1;
    if (!image.region[1]) image.region[1] = 1;
    if (!image.region[2]) image.region[2] = 1;
    image.size = image.region[0] * image.region[1] * image.region[2] * pixel;
    fill(image.content = malloc(image.size), image.size);
    size_t origin[3] = {0};
    OK(clEnqueueWriteImage(queue, image.object, CL_TRUE, origin, image.region, 0, 0, image.content, 0, NULL, NULL));
    return image;
}

static void check_image(const struct image *image, int which, int round) {
    size_t origin[3] = {0};
    void *now = malloc(image->size);
    OK(clEnqueueReadImage(queue, image->object, CL_TRUE, origin, image->region, 0, 0, now, 0, NULL, NULL));
    NEED(!memcmp(now, image->content, image->size), "round %d: image %d has changed", round, which);
    free(now);
}

static void check_buffer(cl_mem buffer, size_t offset, const void *wanted, size_t size, const char *what, int round) {
    void *now = malloc(size);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, offset, size, now, 0, NULL, NULL));
    NEED(!memcmp(now, wanted, size), "round %d: %s has changed", round, what);
    free(now);
}

/* Has 60 % of what the device holds, in objects of many kinds, and uses them for a few seconds. Everything was set up in
 * the beginning: whatever is moved meanwhile must not be noticed. */
CASE_TELECL_ONLY(keeps_everything) {
    begin();
    cl_program program = program_of(source, "");
    size_t limit = most(), side = 64, count = limit / 10 * 5 / 4 / 1024 * 1024, bytes = count * 4;
    uint32_t *model = malloc(bytes);
    fill(model, bytes);
    cl_mem large = MADE(clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, model, &err));
    /* A part of it, and parts of buffers that the program has released. */
    cl_buffer_region region = {65536, 65536};
    cl_mem part = MADE(clCreateSubBuffer(large, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
    size_t second_size = limit / 100;
    uint32_t *second_model = malloc(second_size);
    fill(second_model, second_size);
    cl_mem second = MADE(clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS | CL_MEM_COPY_HOST_PTR, second_size, second_model, &err));
    cl_buffer_region tail = {4096, 8192};
    cl_mem kept = MADE(clCreateSubBuffer(second, 0, CL_BUFFER_CREATE_TYPE_REGION, &tail, &err));
    OK(clReleaseMemObject(second));
    /* An image of a buffer that the program has released. */
    uint32_t line_model[64];
    fill(line_model, sizeof line_model);
    cl_mem line_buffer = MADE(clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof line_model, line_model, &err));
    cl_image_format line_format = {CL_R, CL_UNSIGNED_INT32};
    cl_image_desc line_desc = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 64, .mem_object = line_buffer};
    cl_mem line = MADE(clCreateImage(context, CL_MEM_READ_ONLY, &line_format, &line_desc, NULL, &err));
    OK(clReleaseMemObject(line_buffer));
    struct image images[] = {
        make_image(CL_MEM_OBJECT_IMAGE2D, CL_RGBA, CL_UNSIGNED_INT8, 4, side, side, 0),
        make_image(CL_MEM_OBJECT_IMAGE3D, CL_RGBA, CL_FLOAT, 16, 13, 7, 5),
        make_image(CL_MEM_OBJECT_IMAGE1D, CL_RGBA, CL_UNSIGNED_INT16, 8, 33, 0, 0),
        make_image(CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_RGBA, CL_UNSIGNED_INT8, 4, 33, 0, 3),
        make_image(CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_RGBA, CL_UNSIGNED_INT32, 16, 13, 7, 3),
    };
    int image_count = sizeof images / sizeof *images;
    /* Memory of an odd length, which is written by a fill, and not touched again. */
    cl_mem untouched = MADE(clCreateBuffer(context, CL_MEM_READ_WRITE, 100003, NULL, &err));
    char *filled = memset(malloc(100003), 0x5A, 100003);
    OK(clEnqueueFillBuffer(queue, untouched, filled, 1, 0, 100003, 0, NULL, NULL));
    cl_mem out = MADE(clCreateBuffer(context, CL_MEM_READ_WRITE, side * side * 4, NULL, &err));
    cl_mem mixed = MADE(clCreateBuffer(context, CL_MEM_READ_WRITE, 8192, NULL, &err));
    /* Arguments are set once. */
    cl_kernel step = MADE(clCreateKernel(program, "advance", &err)), look = MADE(clCreateKernel(program, "inspect", &err));
    cl_kernel mix = MADE(clCreateKernel(program, "combine", &err));
    cl_uint add = 7;
    OK(clSetKernelArg(step, 0, sizeof large, &large));
    OK(clSetKernelArg(step, 1, sizeof add, &add));
    OK(clSetKernelArg(mix, 0, sizeof part, &part));
    OK(clSetKernelArg(mix, 1, sizeof kept, &kept));
    OK(clSetKernelArg(mix, 2, sizeof mixed, &mixed));
    OK(clSetKernelArg(look, 0, sizeof images[0].object, &images[0].object));
    OK(clSetKernelArg(look, 1, sizeof line, &line));
    OK(clSetKernelArg(look, 2, sizeof out, &out));
    cl_int cloned_status;
    cl_kernel clone = clCloneKernel(step, &cloned_status);
    /* A region that stays mapped, and an event that stays alive. */
    cl_mem lent = MADE(clCreateBuffer(context, CL_MEM_READ_WRITE, 8192, NULL, &err));
    uint32_t *mapped = MADE(clEnqueueMapBuffer(queue, lent, CL_TRUE, CL_MAP_WRITE | CL_MAP_READ, 1024, 4096, 0, NULL, NULL, &err));
    cl_event first;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &first));
    OK(clFinish(queue));
    say("ready");
    double until = seconds() + (double)setting("TELECL_TEST_SECONDS", 3);
    int round = 0;
    for (; seconds() < until; round++) {
        OK(clEnqueueNDRangeKernel(queue, round % 2 && clone ? clone : step, 1, NULL, &count, NULL, 0, NULL, NULL));
        for (size_t i = 0; i < count; i++) model[i] = model[i] * 1664525u + 1013904223u + add;
        size_t few = 2048, area[2] = {side, side};
        OK(clEnqueueNDRangeKernel(queue, mix, 1, NULL, &few, NULL, 0, NULL, NULL));
        OK(clEnqueueNDRangeKernel(queue, look, 2, NULL, area, NULL, 0, NULL, NULL));
        uint32_t wanted[2048], *seen = malloc(side * side * 4);
        for (size_t i = 0; i < few; i++) wanted[i] = model[65536 / 4 + i] ^ second_model[4096 / 4 + i];
        check_buffer(mixed, 0, wanted, sizeof wanted, "what parts were mixed to", round);
        for (size_t i = 0; i < side * side; i++) seen[i] = ((uint32_t *)images[0].content)[i] + line_model[i % side];
        check_buffer(out, 0, seen, side * side * 4, "what images looked like", round);
        free(seen);
        check_buffer(part, 4096, (char *)model + 65536 + 4096, 8192, "a part", round);
        check_buffer(untouched, 0, filled, 100003, "untouched memory", round);
        check_image(&images[round % image_count], round % image_count, round);
        if (round % 4 == 0) check_buffer(large, 0, model, bytes, "the large buffer", round);
        mapped[round % 1024] = (uint32_t)round;
        usleep(20000);
    }
    OK(clEnqueueUnmapMemObject(queue, lent, mapped, 0, NULL, NULL));
    uint32_t last = (uint32_t)round - 1;
    check_buffer(lent, 1024 + last % 1024 * 4, &last, 4, "what was written to the mapped region", round);
    for (int i = 0; i < image_count; i++) check_image(&images[i], i, round);
    check_buffer(large, 0, model, bytes, "the large buffer", round);
    CHECK(INFO(cl_int, clGetEventInfo, first, CL_EVENT_COMMAND_EXECUTION_STATUS) == CL_COMPLETE, "the event has changed");
    CHECK(INFO(size_t, clGetMemObjectInfo, kept, CL_MEM_SIZE) == 8192, "a part has another size");
    say("kept");
}

/* Has a quarter of what the device holds and computes on all of it, again and again. */
CASE_TELECL_ONLY(computes) {
    begin();
    cl_program program = program_of(source, "");
    size_t count = most() / 4 / 4, bytes = count * 4;
    int rounds = (int)setting("TELECL_TEST_ROUNDS", 40);
    uint32_t *model = malloc(bytes), *got = malloc(bytes);
    fill(model, bytes);
    cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &err));
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, bytes, model, 0, NULL, NULL));
    OK(clFinish(queue));
    cl_kernel step = MADE(clCreateKernel(program, "advance", &err));
    OK(clSetKernelArg(step, 0, sizeof buffer, &buffer));
    say("ready");
    for (int round = 0; round < rounds; round++) {
        cl_uint add = (cl_uint)round;
        OK(clSetKernelArg(step, 1, sizeof add, &add));
        for (int i = 0; i < 4; i++) OK(clEnqueueNDRangeKernel(queue, step, 1, NULL, &count, NULL, 0, NULL, NULL));
        OK(clFinish(queue));
        for (size_t i = 0; i < count; i++)
            for (int j = 0; j < 4; j++) model[i] = model[i] * 1664525u + 1013904223u + add;
    }
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, got, 0, NULL, NULL));
    NEED(!memcmp(got, model, bytes), "wrong results");
    say("right");
}

static void wait_for_signal(void) {
    sigset_t go;
    sigemptyset(&go);
    sigaddset(&go, SIGUSR1);
    int signal;
    sigwait(&go, &signal);
}

/* Has 60 % of what the device holds, and commands that wait for an event which is set when the test says so. */
CASE_TELECL_ONLY(waits_for_its_event) {
    sigset_t go;
    sigemptyset(&go);
    sigaddset(&go, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &go, NULL);
    begin();
    size_t bytes = most() / 10 * 6 / 4 * 4;
    char *model = malloc(bytes), *got = malloc(bytes);
    fill(model, bytes);
    cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, bytes, model, &err));
    /* Creates do not wait: now it is there. */
    OK(clFinish(queue));
    cl_event event = MADE(clCreateUserEvent(context, &err));
    cl_uint pattern = 0x12345678;
    OK(clEnqueueFillBuffer(queue, buffer, &pattern, 4, 0, 4096, 1, &event, NULL));
    OK(clFlush(queue));
    say("waiting");
    wait_for_signal();
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    OK(clFinish(queue));
    say("set");
    wait_for_signal();
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, got, 0, NULL, NULL));
    for (size_t i = 0; i < 4096; i += 4) memcpy(model + i, &pattern, 4);
    NEED(!memcmp(got, model, bytes), "it has changed");
    say("kept");
}

/* Wants 60 % of what the device holds, and says what comes of it. */
CASE_TELECL_ONLY(wants_the_same) {
    begin();
    size_t bytes = most() / 10 * 6;
    cl_int status;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &status);
    cl_uint pattern = 1;
    if (buffer) status = clEnqueueFillBuffer(queue, buffer, &pattern, 4, 0, 4096, 0, NULL, NULL);
    if (buffer && status == CL_SUCCESS) status = clFinish(queue);
    if (buffer && status == CL_SUCCESS) {
        cl_uint got = 0;
        status = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &got, 0, NULL, NULL);
        CHECK(status != CL_SUCCESS || got == pattern, "wrong content");
    }
    say("%s", error_name(status));
}
