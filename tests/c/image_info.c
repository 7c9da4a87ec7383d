/* What images say about themselves, what formats there are, and which descriptions are refused. */
#include "common.h"

static const cl_image_format rgba8 = {CL_RGBA, CL_UNSIGNED_INT8};
static const size_t origin[3] = {0, 0, 0};

static cl_mem image_2d(size_t width, size_t height) {
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width, .image_height = height};
    return MADE(clCreateImage(context, CL_MEM_READ_WRITE, &rgba8, &desc, NULL, &err));
}

static void show_image(const char *name, cl_mem image) {
    cl_image_format format = INFO(cl_image_format, clGetImageInfo, image, CL_IMAGE_FORMAT);
    say("%s: order %#x type %#x element %zu row %zu slice %zu width %zu height %zu depth %zu array %zu levels %u samples %u", name,
        format.image_channel_order, format.image_channel_data_type, INFO(size_t, clGetImageInfo, image, CL_IMAGE_ELEMENT_SIZE),
        INFO(size_t, clGetImageInfo, image, CL_IMAGE_ROW_PITCH), INFO(size_t, clGetImageInfo, image, CL_IMAGE_SLICE_PITCH),
        INFO(size_t, clGetImageInfo, image, CL_IMAGE_WIDTH), INFO(size_t, clGetImageInfo, image, CL_IMAGE_HEIGHT),
        INFO(size_t, clGetImageInfo, image, CL_IMAGE_DEPTH), INFO(size_t, clGetImageInfo, image, CL_IMAGE_ARRAY_SIZE),
        INFO(cl_uint, clGetImageInfo, image, CL_IMAGE_NUM_MIP_LEVELS), INFO(cl_uint, clGetImageInfo, image, CL_IMAGE_NUM_SAMPLES));
}

CASE(every_kind_of_image_describes_itself) {
    open_device();
    const struct { const char *name; cl_image_desc desc; } wanted[] = {
        {"1D", {.image_type = CL_MEM_OBJECT_IMAGE1D, .image_width = 20}},
        {"1D array", {.image_type = CL_MEM_OBJECT_IMAGE1D_ARRAY, .image_width = 20, .image_array_size = 4}},
        {"2D", {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 20, .image_height = 10}},
        {"2D array", {.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY, .image_width = 20, .image_height = 10, .image_array_size = 3}},
        {"3D", {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 20, .image_height = 10, .image_depth = 5}},
    };
    for (int i = 0; i < 5; i++) {
        cl_mem image = MADE(clCreateImage(context, CL_MEM_READ_WRITE, &rgba8, &wanted[i].desc, NULL, &err));
        show_image(wanted[i].name, image);
        CHECK(INFO(cl_mem_object_type, clGetMemObjectInfo, image, CL_MEM_TYPE) == wanted[i].desc.image_type, "%s: the type", wanted[i].name);
        CHECK(INFO(size_t, clGetImageInfo, image, CL_IMAGE_WIDTH) == 20, "%s: the width", wanted[i].name);
        CHECK(INFO(size_t, clGetImageInfo, image, CL_IMAGE_ELEMENT_SIZE) == 4, "%s: the element size", wanted[i].name);
        CHECK(INFO(size_t, clGetImageInfo, image, CL_IMAGE_ROW_PITCH) >= 80, "%s: the row pitch", wanted[i].name);
        CHECK(INFO(cl_context, clGetMemObjectInfo, image, CL_MEM_CONTEXT) == context, "%s: the context", wanted[i].name);
        CHECK(INFO(cl_mem, clGetMemObjectInfo, image, CL_MEM_ASSOCIATED_MEMOBJECT) == NULL, "%s: associated", wanted[i].name);
        CHECK(INFO(size_t, clGetMemObjectInfo, image, CL_MEM_SIZE) > 0, "%s: the size", wanted[i].name);
    }
}

CASE(the_deprecated_calls_make_2d_and_3d_images) {
    open_device();
    cl_mem flat = MADE(clCreateImage2D(context, CL_MEM_READ_WRITE, &rgba8, 9, 8, 0, NULL, &err));
    cl_mem deep = MADE(clCreateImage3D(context, CL_MEM_READ_WRITE, &rgba8, 9, 8, 7, 0, 0, NULL, &err));
    show_image("2D", flat);
    show_image("3D", deep);
    CHECK(INFO(size_t, clGetImageInfo, flat, CL_IMAGE_HEIGHT) == 8, "the height of the 2D image");
    CHECK(INFO(size_t, clGetImageInfo, deep, CL_IMAGE_DEPTH) == 7, "the depth of the 3D image");
}

CASE(the_supported_formats_are_listed) {
    open_device();
    const cl_mem_object_type types[] = {CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_BUFFER, CL_MEM_OBJECT_IMAGE1D_ARRAY,
                                        CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D};
    const cl_mem_flags flags[] = {CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY, CL_MEM_READ_WRITE, CL_MEM_KERNEL_READ_AND_WRITE};
    for (int t = 0; t < 6; t++)
        for (int f = 0; f < 4; f++) {
            cl_uint count = 0;
            cl_int status = clGetSupportedImageFormats(context, flags[f], types[t], 0, NULL, &count);
            printf("type %#x flags %#llx: %s, %u formats", types[t], (unsigned long long)flags[f], error_name(status), count);
            if (status == CL_SUCCESS && count) {
                cl_image_format *formats = calloc(count, sizeof *formats);
                OK(clGetSupportedImageFormats(context, flags[f], types[t], count, formats, NULL));
                for (cl_uint i = 0; i < count; i++)
                    printf(" %x/%x", formats[i].image_channel_order, formats[i].image_channel_data_type);
                free(formats);
            }
            say(".");
        }
    cl_uint count = 0;
    OK(clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count));
    CHECK(count > 0, "a device with images must have formats");
}

CASE(format_queries_with_wrong_arguments_are_refused) {
    open_device();
    cl_image_format format;
    cl_uint count;
    EXPECT(CL_INVALID_CONTEXT, clGetSupportedImageFormats(NULL, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count));
    EXPECT(CL_INVALID_VALUE, clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_BUFFER, 0, NULL, &count));
    EXPECT(CL_INVALID_VALUE, clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0, &format, &count));
}

CASE(unsupported_formats_are_refused) {
    open_device();
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
    cl_image_format no_order = {0x7fff, CL_UNSIGNED_INT8}, no_type = {CL_RGBA, 0x7fff}, mixed = {CL_RGB, CL_UNSIGNED_INT8};
    DEVIATES_CREATE(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, clCreateImage(context, 0, &no_order, &desc, NULL, &err));
    DEVIATES_CREATE(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, clCreateImage(context, 0, &no_type, &desc, NULL, &err));
    EXPECT_CREATE(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, clCreateImage(context, 0, NULL, &desc, NULL, &err));
    EITHER_CREATE(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, CL_IMAGE_FORMAT_NOT_SUPPORTED, clCreateImage(context, 0, &mixed, &desc, NULL, &err));
}

CASE(wrong_descriptions_are_refused) {
    open_device();
    cl_image_desc flat = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4}, thin = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_height = 4};
    cl_image_desc shallow = {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 4, .image_height = 4};
    cl_image_desc buffer_type = {.image_type = CL_MEM_OBJECT_BUFFER, .image_width = 4};
    cl_image_desc no_buffer = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 4};
    cl_image_desc pitched = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4, .image_row_pitch = 32};
    EXPECT_CREATE(CL_INVALID_IMAGE_DESCRIPTOR, clCreateImage(context, 0, &rgba8, NULL, NULL, &err));
    EITHER_CREATE(CL_INVALID_IMAGE_SIZE, CL_INVALID_IMAGE_DESCRIPTOR, clCreateImage(context, 0, &rgba8, &flat, NULL, &err));
    EITHER_CREATE(CL_INVALID_IMAGE_SIZE, CL_INVALID_IMAGE_DESCRIPTOR, clCreateImage(context, 0, &rgba8, &thin, NULL, &err));
    EITHER_CREATE(CL_INVALID_IMAGE_SIZE, CL_INVALID_IMAGE_DESCRIPTOR, clCreateImage(context, 0, &rgba8, &shallow, NULL, &err));
    DEVIATES_CREATE(CL_INVALID_IMAGE_DESCRIPTOR, clCreateImage(context, 0, &rgba8, &buffer_type, NULL, &err));
    DEVIATES_CREATE(CL_INVALID_IMAGE_DESCRIPTOR, clCreateImage(context, 0, &rgba8, &no_buffer, NULL, &err));
    /* num_mip_levels != 0 is left out: PoCL 3.1 ends the process. */
    DEVIATES_CREATE(CL_INVALID_IMAGE_DESCRIPTOR, clCreateImage(context, 0, &rgba8, &pitched, NULL, &err));
}

CASE(images_larger_than_the_device_allows_are_refused) {
    open_device();
    size_t width = INFO(size_t, clGetDeviceInfo, device, CL_DEVICE_IMAGE2D_MAX_WIDTH);
    size_t depth = INFO(size_t, clGetDeviceInfo, device, CL_DEVICE_IMAGE3D_MAX_DEPTH);
    size_t layers = INFO(size_t, clGetDeviceInfo, device, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE);
    cl_image_desc wide = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width + 1, .image_height = 1};
    cl_image_desc deep = {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 1, .image_height = 1, .image_depth = depth + 1};
    cl_image_desc many = {.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY, .image_width = 1, .image_height = 1, .image_array_size = layers + 1};
    DEVIATES_CREATE(CL_INVALID_IMAGE_SIZE, clCreateImage(context, 0, &rgba8, &wide, NULL, &err));
    DEVIATES_CREATE(CL_INVALID_IMAGE_SIZE, clCreateImage(context, 0, &rgba8, &deep, NULL, &err));
    DEVIATES_CREATE(CL_INVALID_IMAGE_SIZE, clCreateImage(context, 0, &rgba8, &many, NULL, &err));
}

CASE(flags_and_host_pointers_that_do_not_fit_are_refused) {
    open_device();
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
    char memory[64] = {0};
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateImage(NULL, 0, &rgba8, &desc, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, &rgba8, &desc, NULL, &err));
    EXPECT_CREATE(CL_INVALID_HOST_PTR, clCreateImage(context, CL_MEM_USE_HOST_PTR, &rgba8, &desc, NULL, &err));
    EXPECT_CREATE(CL_INVALID_HOST_PTR, clCreateImage(context, 0, &rgba8, &desc, memory, &err));
}

CASE(transfers_outside_the_image_are_refused) {
    open_device();
    cl_mem image = image_2d(8, 4);
    cl_uint host[64];
    size_t all[3] = {8, 4, 1}, wide[3] = {9, 4, 1}, tall[3] = {8, 5, 1}, deep[3] = {8, 4, 2}, none[3] = {0, 4, 1}, at[3] = {1, 0, 0};
    EXPECT(CL_INVALID_VALUE, clEnqueueReadImage(queue, image, CL_TRUE, origin, wide, 0, 0, host, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadImage(queue, image, CL_TRUE, origin, tall, 0, 0, host, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadImage(queue, image, CL_TRUE, origin, deep, 0, 0, host, 0, NULL, NULL));
    DEVIATES(CL_INVALID_VALUE, clEnqueueReadImage(queue, image, CL_TRUE, origin, none, 0, 0, host, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadImage(queue, image, CL_TRUE, at, all, 0, 0, host, 0, NULL, NULL));
    DEVIATES(CL_INVALID_VALUE, clEnqueueReadImage(queue, image, CL_TRUE, origin, all, 16, 0, host, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadImage(queue, image, CL_TRUE, origin, all, 0, 0, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueWriteImage(queue, image, CL_TRUE, at, all, 0, 0, host, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueWriteImage(queue, image, CL_TRUE, origin, all, 0, 0, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillImage(queue, image, host, at, all, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillImage(queue, image, NULL, origin, all, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyImage(queue, image, image_2d(4, 4), origin, origin, all, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyImageToBuffer(queue, image, buffer_of(0, 64, NULL), origin, all, 0, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueCopyBufferToImage(queue, buffer_of(0, 64, NULL), image, 0, origin, all, 0, NULL, NULL));
}

CASE(copies_between_formats_and_over_themselves_are_refused) {
    open_device();
    cl_image_format other = {CL_RGBA, CL_FLOAT};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    cl_mem image = image_2d(8, 8), floats = MADE(clCreateImage(context, 0, &other, &desc, NULL, &err));
    size_t region[3] = {4, 4, 1}, near[3] = {2, 2, 0}, far[3] = {4, 4, 0};
    EXPECT(CL_IMAGE_FORMAT_MISMATCH, clEnqueueCopyImage(queue, image, floats, origin, origin, region, 0, NULL, NULL));
    EXPECT(CL_MEM_COPY_OVERLAP, clEnqueueCopyImage(queue, image, image, origin, near, region, 0, NULL, NULL));
    EXPECT(CL_SUCCESS, clEnqueueCopyImage(queue, image, image, origin, far, region, 0, NULL, NULL));
    OK(clFinish(queue));
}

CASE(image_maps_need_a_place_for_the_row_pitch) {
    open_device();
    cl_mem image = image_2d(8, 4);
    size_t all[3] = {8, 4, 1}, wide[3] = {9, 4, 1}, row, slice;
    EXPECT_CREATE(CL_INVALID_VALUE, clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, origin, all, NULL, &slice, 0, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, origin, wide, &row, &slice, 0, NULL, NULL, &err));
}

CASE(buffers_and_images_are_not_taken_for_each_other) {
    open_device();
    cl_mem image = image_2d(4, 4), buffer = buffer_of(CL_MEM_READ_WRITE, 64, NULL);
    size_t region[3] = {4, 4, 1};
    char bytes[64];
    EXPECT(CL_INVALID_MEM_OBJECT, clEnqueueReadImage(queue, buffer, CL_TRUE, origin, region, 0, 0, bytes, 0, NULL, NULL));
    DEVIATES(CL_INVALID_MEM_OBJECT, clEnqueueReadBuffer(queue, image, CL_TRUE, 0, 16, bytes, 0, NULL, NULL));
    DEVIATES(CL_INVALID_MEM_OBJECT, clGetImageInfo(buffer, CL_IMAGE_WIDTH, sizeof bytes, bytes, NULL));
}
