/* Images of every kind: written, read, copied, filled and mapped, with pitches. */
#include "common.h"

/* One kind of image, small and with sides that cannot be mistaken for each other. */
struct kind {
    const char *name;
    cl_mem_object_type type;
    size_t width, height, depth; /* what a region of the whole image counts in each dimension */
};

static const struct kind kinds[] = {
    {"1D", CL_MEM_OBJECT_IMAGE1D, 13, 1, 1},
    {"1D array", CL_MEM_OBJECT_IMAGE1D_ARRAY, 13, 5, 1},
    {"2D", CL_MEM_OBJECT_IMAGE2D, 13, 7, 1},
    {"2D array", CL_MEM_OBJECT_IMAGE2D_ARRAY, 13, 7, 3},
    {"3D", CL_MEM_OBJECT_IMAGE3D, 13, 7, 3},
};
enum { KINDS = sizeof kinds / sizeof *kinds, MOST = 13 * 7 * 3 };

static const cl_image_format rgba8 = {CL_RGBA, CL_UNSIGNED_INT8};
static const size_t origin[3] = {0, 0, 0};

static cl_image_desc describe(const struct kind *kind) {
    cl_image_desc desc = {.image_type = kind->type, .image_width = kind->width};
    switch (kind->type) {
        case CL_MEM_OBJECT_IMAGE1D_ARRAY: desc.image_array_size = kind->height; break;
        case CL_MEM_OBJECT_IMAGE2D: desc.image_height = kind->height; break;
        case CL_MEM_OBJECT_IMAGE2D_ARRAY: desc.image_height = kind->height, desc.image_array_size = kind->depth; break;
        case CL_MEM_OBJECT_IMAGE3D: desc.image_height = kind->height, desc.image_depth = kind->depth; break;
    }
    return desc;
}

static cl_mem image_of(const struct kind *kind, void *content) {
    cl_image_desc desc = describe(kind);
    return MADE(clCreateImage(context, content ? CL_MEM_COPY_HOST_PTR : CL_MEM_READ_WRITE, &rgba8, &desc, content, &err));
}

static size_t pixels(const struct kind *kind) { return kind->width * kind->height * kind->depth; }

static void number(cl_uint *content, size_t count) {
    for (size_t i = 0; i < count; i++) content[i] = (cl_uint)(i * 0x01030507u + 11);
}

CASE(what_is_written_to_an_image_is_read_back) {
    open_device();
    for (int k = 0; k < KINDS; k++) {
        const struct kind *kind = &kinds[k];
        size_t region[3] = {kind->width, kind->height, kind->depth};
        cl_uint content[MOST], result[MOST] = {0};
        number(content, MOST);
        cl_mem image = image_of(kind, NULL);
        OK(clEnqueueWriteImage(queue, image, CL_TRUE, origin, region, 0, 0, content, 0, NULL, NULL));
        OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, result, 0, NULL, NULL));
        say("%s: digest %016llx", kind->name, (unsigned long long)digest(result, pixels(kind) * 4));
        CHECK(memcmp(content, result, pixels(kind) * 4) == 0, "%s came back changed", kind->name);
        OK(clReleaseMemObject(image));
    }
}

CASE(an_image_starts_with_the_content_it_was_made_from) {
    open_device();
    for (int k = 0; k < KINDS; k++) {
        const struct kind *kind = &kinds[k];
        size_t region[3] = {kind->width, kind->height, kind->depth};
        cl_uint content[MOST], result[MOST] = {0};
        number(content, MOST);
        cl_mem image = image_of(kind, content);
        OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, result, 0, NULL, NULL));
        say("%s: digest %016llx", kind->name, (unsigned long long)digest(result, pixels(kind) * 4));
        CHECK(memcmp(content, result, pixels(kind) * 4) == 0, "%s has other content", kind->name);
    }
}

CASE(an_image_is_made_from_content_with_pitches) {
    open_device();
    cl_uint content[16 * 8 * 3], result[13 * 7 * 3];
    number(content, 16 * 8 * 3);
    cl_image_desc desc = describe(&kinds[4]);
    desc.image_row_pitch = 16 * 4;
    desc.image_slice_pitch = 16 * 4 * 8;
    cl_mem image = MADE(clCreateImage(context, CL_MEM_COPY_HOST_PTR, &rgba8, &desc, content, &err));
    size_t region[3] = {13, 7, 3};
    OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, result, 0, NULL, NULL));
    for (size_t z = 0; z < 3; z++)
        for (size_t y = 0; y < 7; y++)
            CHECK(memcmp(result + (z * 7 + y) * 13, content + (z * 8 + y) * 16, 13 * 4) == 0, "row %zu of slice %zu", y, z);
    say("digest %016llx", (unsigned long long)digest(result, sizeof result));
}

CASE(a_part_is_written_and_read_with_host_pitches) {
    open_device();
    cl_uint zero[MOST] = {0}, host[6 * 5 * 2], result[6 * 5 * 2];
    cl_mem image = image_of(&kinds[4], zero);
    number(host, 60);
    memset(result, 0, sizeof result);
    size_t at[3] = {3, 2, 1}, region[3] = {5, 4, 2};
    OK(clEnqueueWriteImage(queue, image, CL_TRUE, at, region, 6 * 4, 6 * 5 * 4, host, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, image, CL_TRUE, at, region, 6 * 4, 6 * 5 * 4, result, 0, NULL, NULL));
    for (size_t z = 0; z < 2; z++)
        for (size_t y = 0; y < 4; y++)
            CHECK(memcmp(result + z * 30 + y * 6, host + z * 30 + y * 6, 20) == 0, "row %zu of slice %zu", y, z);
    CHECK(result[5] == 0 && result[29] == 0, "the gaps of the host memory were written");
    cl_uint whole[MOST];
    size_t all[3] = {13, 7, 3};
    OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, all, 0, 0, whole, 0, NULL, NULL));
    int set = 0;
    for (int i = 0; i < MOST; i++) set += whole[i] != 0;
    say("%d pixels set, digest %016llx", set, (unsigned long long)digest(whole, sizeof whole));
    CHECK(set == 40, "a part of 40 pixels set %d", set);
}

CASE(a_part_is_copied_between_images_of_every_kind) {
    open_device();
    for (int k = 0; k < KINDS; k++) {
        const struct kind *kind = &kinds[k];
        cl_uint content[MOST], result[MOST], zero[MOST] = {0};
        number(content, MOST);
        cl_mem from = image_of(kind, content), to = image_of(kind, zero);
        size_t source[3] = {2, kind->height > 1 ? 1 : 0, kind->depth > 1 ? 1 : 0}, target[3] = {5, 0, 0};
        size_t region[3] = {6, kind->height > 1 ? 4 : 1, kind->depth > 1 ? 2 : 1}, all[3] = {kind->width, kind->height, kind->depth};
        OK(clEnqueueCopyImage(queue, from, to, source, target, region, 0, NULL, NULL));
        OK(clEnqueueReadImage(queue, to, CL_TRUE, origin, all, 0, 0, result, 0, NULL, NULL));
        for (size_t z = 0; z < region[2]; z++)
            for (size_t y = 0; y < region[1]; y++)
                CHECK(memcmp(result + (z * kind->height + y) * 13 + 5,
                             content + ((z + source[2]) * kind->height + y + source[1]) * 13 + 2, 24) == 0,
                      "%s: row %zu of slice %zu", kind->name, y, z);
        CHECK(result[0] == 0, "%s: a pixel outside the part changed", kind->name);
        say("%s: digest %016llx", kind->name, (unsigned long long)digest(result, pixels(kind) * 4));
    }
}

CASE(a_part_of_every_kind_is_filled_with_a_colour) {
    open_device();
    cl_uint4 colour = {{1, 2, 3, 255}};
    for (int k = 0; k < KINDS; k++) {
        const struct kind *kind = &kinds[k];
        cl_uint zero[MOST] = {0}, result[MOST];
        cl_mem image = image_of(kind, zero);
        size_t at[3] = {3, 0, 0}, region[3] = {4, kind->height, kind->depth}, all[3] = {kind->width, kind->height, kind->depth};
        OK(clEnqueueFillImage(queue, image, &colour, at, region, 0, NULL, NULL));
        OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, all, 0, 0, result, 0, NULL, NULL));
        for (size_t i = 0; i < pixels(kind); i++)
            CHECK(result[i] == (i % 13 >= 3 && i % 13 < 7 ? 0xff030201u : 0), "%s: pixel %zu is %08x", kind->name, i, result[i]);
        say("%s: digest %016llx", kind->name, (unsigned long long)digest(result, pixels(kind) * 4));
    }
}

CASE(an_image_of_every_kind_is_mapped_with_pitches_that_reach_every_pixel) {
    open_device();
    for (int k = 0; k < KINDS; k++) {
        const struct kind *kind = &kinds[k];
        cl_uint content[MOST], result[MOST];
        number(content, MOST);
        cl_mem image = image_of(kind, content);
        size_t region[3] = {kind->width, kind->height, kind->depth}, row = 0, slice = 0;
        char *mapped = MADE(clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, origin, region, &row,
                                              &slice, 0, NULL, NULL, &err));
        size_t line = kind->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? slice : row;
        CHECK(row >= 13 * 4, "%s: a row pitch of %zu is too small", kind->name, row);
        for (size_t z = 0; z < kind->depth; z++)
            for (size_t y = 0; y < kind->height; y++) {
                cl_uint *pixel = (cl_uint *)(mapped + y * line + z * slice), *wanted = content + (z * kind->height + y) * 13;
                CHECK(memcmp(pixel, wanted, 13 * 4) == 0, "%s: row %zu of slice %zu", kind->name, y, z);
                for (int x = 0; x < 13; x++) pixel[x] = ~wanted[x];
            }
        OK(clEnqueueUnmapMemObject(queue, image, mapped, 0, NULL, NULL));
        OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, result, 0, NULL, NULL));
        for (size_t i = 0; i < pixels(kind); i++) CHECK(result[i] == ~content[i], "%s: pixel %zu was not changed", kind->name, i);
        say("%s: digest %016llx", kind->name, (unsigned long long)digest(result, pixels(kind) * 4));
    }
}

CASE(a_mapped_part_of_an_image_changes_only_that_part) {
    open_device();
    cl_uint zero[MOST] = {0}, result[MOST];
    cl_mem image = image_of(&kinds[2], zero);
    size_t at[3] = {4, 2, 0}, region[3] = {3, 2, 1}, all[3] = {13, 7, 1}, row = 0;
    char *mapped = MADE(clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, at, region, &row, NULL, 0,
                                          NULL, NULL, &err));
    for (size_t y = 0; y < 2; y++)
        for (size_t x = 0; x < 3; x++) ((cl_uint *)(mapped + y * row))[x] = 77;
    OK(clEnqueueUnmapMemObject(queue, image, mapped, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, all, 0, 0, result, 0, NULL, NULL));
    for (size_t i = 0; i < 13 * 7; i++) {
        size_t x = i % 13, y = i / 13;
        CHECK(result[i] == (x >= 4 && x < 7 && y >= 2 && y < 4 ? 77 : 0), "pixel %zu, %zu is %u", x, y, result[i]);
    }
    say("digest %016llx", (unsigned long long)digest(result, 13 * 7 * 4));
}

CASE(a_write_map_leaves_the_rest_of_an_image_that_the_host_only_writes) {
    open_device();
    cl_uint content[13 * 7], result[13 * 7];
    number(content, 13 * 7);
    cl_image_desc desc = describe(&kinds[2]);
    cl_mem image = MADE(clCreateImage(context, CL_MEM_COPY_HOST_PTR | CL_MEM_HOST_WRITE_ONLY, &rgba8, &desc, content, &err));
    cl_mem readable = image_of(&kinds[2], NULL);
    size_t at[3] = {4, 2, 0}, region[3] = {3, 2, 1}, all[3] = {13, 7, 1}, row = 0;
    EXPECT(CL_INVALID_OPERATION, clEnqueueReadImage(queue, image, CL_TRUE, origin, all, 0, 0, result, 0, NULL, NULL));
    char *mapped = MADE(clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_WRITE, at, region, &row, NULL, 0, NULL, NULL, &err));
    *(cl_uint *)mapped = 77;
    OK(clEnqueueUnmapMemObject(queue, image, mapped, 0, NULL, NULL));
    OK(clEnqueueCopyImage(queue, image, readable, origin, origin, all, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, readable, CL_TRUE, origin, all, 0, 0, result, 0, NULL, NULL));
    content[2 * 13 + 4] = 77;
    CHECK(memcmp(content, result, sizeof result) == 0, "the map changed more than was written");
    say("digest %016llx", (unsigned long long)digest(result, sizeof result));
}

CASE(an_image_is_copied_to_a_buffer_and_back) {
    open_device();
    for (int k = 0; k < KINDS; k++) {
        const struct kind *kind = &kinds[k];
        cl_uint content[MOST], zero[MOST] = {0}, result[MOST];
        number(content, MOST);
        size_t region[3] = {kind->width, kind->height, kind->depth}, size = pixels(kind) * 4;
        cl_mem from = image_of(kind, content), to = image_of(kind, zero), buffer = buffer_of(CL_MEM_READ_WRITE, size + 8, NULL);
        OK(clEnqueueCopyImageToBuffer(queue, from, buffer, origin, region, 8, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 8, size, result, 0, NULL, NULL));
        CHECK(memcmp(result, content, size) == 0, "%s: the buffer has other content", kind->name);
        OK(clEnqueueCopyBufferToImage(queue, buffer, to, 8, origin, region, 0, NULL, NULL));
        memset(result, 0, sizeof result);
        OK(clEnqueueReadImage(queue, to, CL_TRUE, origin, region, 0, 0, result, 0, NULL, NULL));
        CHECK(memcmp(result, content, size) == 0, "%s: the second image has other content", kind->name);
        say("%s: digest %016llx", kind->name, (unsigned long long)digest(result, size));
    }
}

CASE(a_1d_image_over_a_buffer_shares_its_memory) {
    open_device();
    cl_uint content[16], result[16];
    number(content, 16);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof content, content);
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 16, .buffer = buffer};
    cl_mem image = MADE(clCreateImage(context, CL_MEM_READ_WRITE, &rgba8, &desc, NULL, &err));
    size_t at[3] = {2, 0, 0}, region[3] = {16, 1, 1}, one[3] = {1, 1, 1};
    OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, result, 0, NULL, NULL));
    CHECK(memcmp(result, content, sizeof result) == 0, "the image does not show the buffer");
    cl_uint mark = 0x01020304;
    OK(clEnqueueWriteImage(queue, image, CL_TRUE, at, one, 0, 0, &mark, 0, NULL, NULL));
    read_all(buffer, result, sizeof result);
    say("pixel 2 in the buffer: %08x", result[2]);
    CHECK(result[2] == mark, "the buffer does not show the image's change");
    CHECK(INFO(cl_mem, clGetMemObjectInfo, image, CL_MEM_ASSOCIATED_MEMOBJECT) == buffer, "associated with another object");
    CHECK(INFO(cl_mem, clGetImageInfo, image, CL_IMAGE_BUFFER) == buffer, "CL_IMAGE_BUFFER is another object");
    OK(clReleaseMemObject(buffer));
    OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, result, 0, NULL, NULL));
    CHECK(result[2] == mark, "the image must keep its buffer alive");
}

CASE(a_2d_image_over_a_buffer_shares_its_memory) {
    open_device();
    char extensions[8192] = "";
    OK(clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof extensions, extensions, NULL));
    if (!strstr(extensions, "cl_khr_image2d_from_buffer")) SKIP("the device has no images over buffers");
    cl_uint pitch = INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_IMAGE_PITCH_ALIGNMENT);
    size_t row = (pitch > 16 ? pitch : 16);
    cl_uint *content = calloc(row * 4, 4), result[16 * 4];
    number(content, row * 4);
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, row * 16, content);
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 16, .image_height = 4, .image_row_pitch = row * 4, .buffer = buffer};
    cl_mem image = MADE(clCreateImage(context, CL_MEM_READ_WRITE, &rgba8, &desc, NULL, &err));
    size_t region[3] = {16, 4, 1};
    OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, result, 0, NULL, NULL));
    for (size_t y = 0; y < 4; y++) CHECK(memcmp(result + y * 16, content + y * row, 64) == 0, "row %zu", y);
}

CASE(a_device_without_2d_images_over_buffers_refuses_them) {
    open_device();
    if (INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_IMAGE_PITCH_ALIGNMENT)) SKIP("the device has images over buffers");
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 256, NULL);
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8, .buffer = buffer};
    EXPECT_CREATE(CL_INVALID_OPERATION, clCreateImage(context, CL_MEM_READ_WRITE, &rgba8, &desc, NULL, &err));
}

CASE(a_use_host_ptr_image_maps_to_the_host_pointer_itself) {
    open_device();
    static cl_uint memory[13 * 7] __attribute__((aligned(4096)));
    number(memory, 13 * 7);
    cl_image_desc desc = describe(&kinds[2]);
    cl_mem image = MADE(clCreateImage(context, CL_MEM_USE_HOST_PTR, &rgba8, &desc, memory, &err));
    size_t at[3] = {2, 3, 0}, region[3] = {4, 2, 1}, row = 0;
    void *mapped = MADE(clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, at, region, &row, NULL, 0, NULL, NULL, &err));
    CHECK((char *)mapped == (char *)memory + 3 * row + 2 * 4, "the map is not inside the host memory");
    CHECK(INFO(void *, clGetMemObjectInfo, image, CL_MEM_HOST_PTR) == memory, "CL_MEM_HOST_PTR is another pointer");
    say("row pitch %zu", row);
    OK(clEnqueueUnmapMemObject(queue, image, mapped, 0, NULL, NULL));
    OK(clFinish(queue));
}
