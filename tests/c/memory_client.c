/* The program in the tests of memory limits (tests/memory.rs): what it may have is in TELECL_TEST_MOST, in bytes. */
#include "common.h"
#include "../../include/telecl.h"

#include <signal.h>

static size_t most(void) {
    const char *text = getenv("TELECL_TEST_MOST");
    NEED(text, "TELECL_TEST_MOST is not set");
    return strtoull(text, NULL, 10);
}

static cl_int told;

static void CL_CALLBACK hear(const char *text, const void *info, size_t size, void *nothing) {
    (void)info, (void)size, (void)nothing;
    fprintf(stderr, "told: %s\n", text);
    tally_add(&told);
}

static void open_and_listen(void) {
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = MADE(clCreateContext(NULL, 1, &device, hear, NULL, &err));
    queue = MADE(clCreateCommandQueue(context, device, 0, &err));
}

static cl_mem try_buffer(size_t size, cl_int *status) { return clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, status); }

static cl_ulong used(void) { return INFO(cl_ulong, clGetDeviceInfo, device, CL_DEVICE_TELECL_MEMORY_USED); }

/* At once, or as soon as the vendor has said what is gone: NVIDIA's driver (580) does so a moment later. */
static int comes_to(cl_ulong bytes) {
    for (int i = 0; i < 1000; i++) {
        if (used() == bytes) return 1;
        usleep(1000);
    }
    return 0;
}

static cl_mem try_image(cl_mem_object_type type, size_t width, size_t height, size_t layers, cl_int *status) {
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = type, .image_width = width, .image_height = height};
    desc.image_depth = desc.image_array_size = layers;
    return clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, status);
}

/* What the device says it has is what the program may use. */
CASE_TELECL_ONLY(is_told_what_it_may_use) {
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    size_t limit = most();
    CHECK(INFO(cl_ulong, clGetDeviceInfo, device, CL_DEVICE_GLOBAL_MEM_SIZE) == limit, "another size of memory");
    CHECK(INFO(cl_ulong, clGetDeviceInfo, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE) == limit, "another largest allocation");
    CHECK(INFO(cl_ulong, clGetDeviceInfo, device, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE) <= limit, "more constant memory");
    CHECK(INFO(size_t, clGetDeviceInfo, device, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE) <= limit, "larger images of buffers");
    CHECK(INFO(size_t, clGetDeviceInfo, device, CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE) <= limit, "larger variables");
    cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_id part;
    cl_uint parts = 0;
    if (clCreateSubDevices(device, equally, 0, NULL, &parts) == CL_SUCCESS && parts == 1) {
        OK(clCreateSubDevices(device, equally, 1, &part, NULL));
        CHECK(INFO(cl_ulong, clGetDeviceInfo, part, CL_DEVICE_GLOBAL_MEM_SIZE) == limit, "a part has another size");
    }
    say("told");
}

/* All of it, and not a byte more. */
CASE_TELECL_ONLY(uses_all_of_it) {
    open_and_listen();
    size_t limit = most(), half = limit / 2;
    cl_int status;
    EXPECT_CREATE(CL_INVALID_BUFFER_SIZE, try_buffer(limit + 1, &err));
    cl_mem whole = MADE(try_buffer(limit, &err));
    EXPECT_CREATE(CL_MEM_OBJECT_ALLOCATION_FAILURE, try_buffer(1, &err));
    EXPECT_CREATE(CL_MEM_OBJECT_ALLOCATION_FAILURE, try_image(CL_MEM_OBJECT_IMAGE2D, 1, 1, 0, &err));
    tally_await(&told, 2, "refusals");
    /* What is made of it costs nothing, and keeps it. */
    cl_buffer_region region = {0, 4096};
    cl_mem part = MADE(clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
    OK(clReleaseMemObject(whole));
    EXPECT_CREATE(CL_MEM_OBJECT_ALLOCATION_FAILURE, try_buffer(1, &err));
    OK(clReleaseMemObject(part));
    /* The last reference counts. */
    cl_mem first = MADE(try_buffer(half, &err));
    OK(clRetainMemObject(first));
    OK(clReleaseMemObject(first));
    cl_mem second = MADE(try_buffer(limit - half, &err));
    EXPECT_CREATE(CL_MEM_OBJECT_ALLOCATION_FAILURE, try_buffer(1, &err));
    OK(clReleaseMemObject(first));
    /* Content counts once. */
    void *content = calloc(1, half);
    cl_mem copy = MADE(clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, half, content, &err));
    cl_mem lent = clCreateBuffer(context, CL_MEM_USE_HOST_PTR, half, content, &status);
    CHECK(!lent && status == CL_MEM_OBJECT_ALLOCATION_FAILURE, "%s", error_name(status));
    OK(clReleaseMemObject(second));
    OK(clReleaseMemObject(copy));
    /* Images by their pixels, whatever their kind. */
    cl_mem_object_type types[] = {CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE3D,
                                  CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE2D_ARRAY};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t pixels = 13 * (i == 1 || i == 2 || i == 4 ? 7 : 1) * (i >= 2 ? 3 : 1);
        cl_mem rest = MADE(try_buffer(limit - pixels * 4 + 1, &err));
        EXPECT_CREATE(CL_MEM_OBJECT_ALLOCATION_FAILURE, try_image(types[i], 13, 7, 3, &err));
        OK(clReleaseMemObject(rest));
        rest = MADE(try_buffer(limit - pixels * 4, &err));
        cl_mem image = MADE(try_image(types[i], 13, 7, 3, &err));
        EXPECT_CREATE(CL_MEM_OBJECT_ALLOCATION_FAILURE, try_buffer(1, &err));
        CHECK(comes_to(limit), "%llu bytes are used", (unsigned long long)used());
        OK(clReleaseMemObject(image));
        OK(clReleaseMemObject(rest));
    }
    CHECK(comes_to(0), "%llu bytes are used at the end", (unsigned long long)used());
    say("all of it");
}

/* Refuses by itself: the test keeps the service from answering meanwhile. */
CASE_TELECL_ONLY(is_refused_without_the_service) {
    sigset_t go;
    sigemptyset(&go);
    sigaddset(&go, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &go, NULL);
    open_and_listen();
    cl_mem whole = MADE(try_buffer(most(), &err));
    OK(clFinish(queue));
    say("full");
    int signal;
    sigwait(&go, &signal);
    for (int i = 0; i < 1000; i++) {
        cl_int status;
        cl_mem more = try_buffer(1, &status);
        NEED(!more && status == CL_MEM_OBJECT_ALLOCATION_FAILURE, "%s", error_name(status));
    }
    OK(clReleaseMemObject(whole));
    MADE(try_buffer(most(), &err));
    say("refused");
}

/* Takes what it may have until it is killed, or says that it cannot. */
CASE_TELECL_ONLY(takes_it_and_holds_it) {
    open_and_listen();
    cl_int status;
    cl_mem all = try_buffer(most(), &status);
    say("%s", error_name(status));
    if (!all) return;
    OK(clFinish(queue));
    for (;;) pause();
}

/* Takes what it may have and ends. */
CASE_TELECL_ONLY(takes_it) {
    open_and_listen();
    cl_int status;
    cl_mem all = try_buffer(most(), &status);
    if (!all) tally_await(&told, 1, "reasons");
    say("%s", error_name(status));
}

static uint64_t state = 0x5EED;

static uint64_t draw(uint64_t end) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % end;
}

/* The service counts what the program has, to the byte, after each of a thousand allocations and releases. */
CASE_TELECL_ONLY(allocates_and_releases_a_thousand_times) {
    open_device();
    size_t limit = most(), counted = 0, count = 0, refused = 0;
    struct { cl_mem object; size_t size; } live[1000];
    for (int step = 0; step < 1000; step++) {
        if (count && draw(5) < 2) {
            size_t which = draw(count);
            OK(clReleaseMemObject(live[which].object));
            counted -= live[which].size;
            live[which] = live[--count];
        } else {
            cl_int status;
            size_t width = 1 + draw(255), height = 1 + draw(255), size = 1 + draw(200000);
            int flat = draw(4) == 0;
            if (flat) size = width * height * 4;
            cl_mem made = flat ? try_image(CL_MEM_OBJECT_IMAGE2D, width, height, 0, &status) : try_buffer(size, &status);
            NEED((counted + size <= limit) == (status == CL_SUCCESS), "step %d: %s", step, error_name(status));
            if (made) live[count].object = made, live[count++].size = size, counted += size;
            else refused++;
        }
        NEED(comes_to(counted), "step %d: %llu bytes, not %zu", step, (unsigned long long)used(), counted);
    }
    CHECK(refused > 10 && count > 10, "%zu refused, %zu live", refused, count);
    while (count) OK(clReleaseMemObject(live[--count].object));
    NEED(comes_to(0), "%llu bytes are left", (unsigned long long)used());
    say("counted");
}
