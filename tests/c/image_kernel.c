/* Kernels that read and write images, with and without samplers. */
#include "common.h"

static const size_t origin[3] = {0, 0, 0};

static cl_mem image_2d(cl_mem_flags flags, cl_channel_order order, cl_channel_type type, size_t width, size_t height, void *content) {
    cl_image_format format = {order, type};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width, .image_height = height};
    return MADE(clCreateImage(context, flags | (content ? CL_MEM_COPY_HOST_PTR : 0), &format, &desc, content, &err));
}

static cl_sampler sampler_of(cl_bool normalized, cl_addressing_mode addressing, cl_filter_mode filter) {
    return MADE(clCreateSampler(context, normalized, addressing, filter, &err));
}

CASE(a_kernel_reads_an_image_through_a_sampler_argument) {
    open_device();
    unsigned char content[4 * 4 * 4];
    for (int i = 0; i < 64; i++) content[i] = (unsigned char)i;
    cl_mem image = image_2d(CL_MEM_READ_ONLY, CL_RGBA, CL_UNSIGNED_INT8, 4, 4, content);
    cl_mem out = buffer_of(CL_MEM_WRITE_ONLY, 6 * 4 * sizeof(cl_uint), NULL);
    cl_kernel kernel = kernel_of(
        "kernel void sample(read_only image2d_t image, sampler_t sampler, global uint4 *out)"
        "{ int x = get_global_id(0); out[x] = read_imageui(image, sampler, (int2)(x - 1, 1)); }", "sample");
    const struct { const char *name; cl_addressing_mode mode; } modes[] = {
        {"clamp", CL_ADDRESS_CLAMP}, {"clamp to edge", CL_ADDRESS_CLAMP_TO_EDGE}};
    for (int m = 0; m < 2; m++) {
        cl_sampler sampler = sampler_of(CL_FALSE, modes[m].mode, CL_FILTER_NEAREST);
        set_arg(kernel, 0, sizeof image, &image);
        set_arg(kernel, 1, sizeof sampler, &sampler);
        set_arg(kernel, 2, sizeof out, &out);
        run_kernel(kernel, 6);
        cl_uint result[24];
        read_all(out, result, sizeof result);
        show_ints(modes[m].name, (cl_int *)result, 24);
        CHECK(result[4] == 16 && result[19] == 31, "%s: the row is not the second", modes[m].name);
        CHECK(result[0] == (m == 0 ? 0 : 16), "%s: left of the image is %u", modes[m].name, result[0]);
        OK(clReleaseSampler(sampler));
    }
}

CASE(a_kernel_reads_normalised_values_of_a_float_image) {
    open_device();
    float content[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    cl_mem image = image_2d(CL_MEM_READ_ONLY, CL_RGBA, CL_FLOAT, 2, 1, content);
    cl_mem out = buffer_of(CL_MEM_WRITE_ONLY, 4 * 16, NULL);
    cl_kernel kernel = kernel_of(
        "kernel void sample(read_only image2d_t image, sampler_t sampler, global float4 *out)"
        "{ int x = get_global_id(0); out[x] = read_imagef(image, sampler, (float2)((x + 0.5f) / 4, 0.5f)); }", "sample");
    cl_sampler sampler = sampler_of(CL_TRUE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST);
    set_arg(kernel, 0, sizeof image, &image);
    set_arg(kernel, 1, sizeof sampler, &sampler);
    set_arg(kernel, 2, sizeof out, &out);
    run_kernel(kernel, 4);
    float result[16];
    read_all(out, result, sizeof result);
    for (int i = 0; i < 4; i++) say("%.3f %.3f %.3f %.3f", result[4 * i], result[4 * i + 1], result[4 * i + 2], result[4 * i + 3]);
    CHECK(result[0] == 0 && result[4] == 0 && result[8] == 4 && result[15] == 7, "the samples are wrong");
}

CASE(a_kernel_reads_an_image_through_a_sampler_of_its_own) {
    open_device();
    float content[4] = {0.25f, 0.5f, 0.75f, 1};
    cl_mem image = image_2d(CL_MEM_READ_ONLY, CL_RGBA, CL_FLOAT, 1, 1, content);
    cl_mem out = buffer_of(CL_MEM_WRITE_ONLY, 16, NULL);
    cl_kernel kernel = kernel_of(
        "constant sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;"
        "kernel void sample(read_only image2d_t image, global float4 *out) { *out = read_imagef(image, s, (int2)(5, 5)); }",
        "sample");
    set_arg(kernel, 0, sizeof image, &image);
    set_arg(kernel, 1, sizeof out, &out);
    run_kernel(kernel, 1);
    float result[4];
    read_all(out, result, sizeof result);
    say("%.3f %.3f %.3f %.3f", result[0], result[1], result[2], result[3]);
    CHECK(memcmp(result, content, sizeof result) == 0, "the sample is wrong");
}

CASE(a_kernel_writes_an_image) {
    open_device();
    cl_mem image = image_2d(CL_MEM_WRITE_ONLY, CL_RGBA, CL_UNSIGNED_INT32, 5, 3, NULL);
    cl_kernel kernel = kernel_of(
        "kernel void paint(write_only image2d_t image)"
        "{ int x = get_global_id(0), y = get_global_id(1); write_imageui(image, (int2)(x, y), (uint4)(x, y, x * y, 9)); }", "paint");
    set_arg(kernel, 0, sizeof image, &image);
    size_t global[2] = {5, 3}, region[3] = {5, 3, 1};
    OK(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, global, NULL, 0, NULL, NULL));
    cl_uint result[60];
    OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, result, 0, NULL, NULL));
    show_ints("pixels", (cl_int *)result, 60);
    for (cl_uint i = 0; i < 15; i++)
        CHECK(result[4 * i] == i % 5 && result[4 * i + 1] == i / 5 && result[4 * i + 2] == (i % 5) * (i / 5), "pixel %u", i);
}

CASE(a_kernel_copies_a_3d_image_slice_by_slice) {
    open_device();
    cl_uint content[3 * 2 * 4 * 4];
    for (int i = 0; i < 96; i++) content[i] = (cl_uint)(i * i);
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT32};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 3, .image_height = 2, .image_depth = 4};
    cl_mem image = MADE(clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &desc, content, &err));
    cl_mem out = buffer_of(CL_MEM_WRITE_ONLY, sizeof content, NULL);
    cl_kernel kernel = kernel_of(
        "constant sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_NONE | CLK_FILTER_NEAREST;"
        "kernel void flatten(read_only image3d_t image, global uint4 *out) {"
        "  int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);"
        "  out[x + 3 * (y + 2 * z)] = read_imageui(image, s, (int4)(x, y, z, 0)); }", "flatten");
    set_arg(kernel, 0, sizeof image, &image);
    set_arg(kernel, 1, sizeof out, &out);
    size_t global[3] = {3, 2, 4};
    OK(clEnqueueNDRangeKernel(queue, kernel, 3, NULL, global, NULL, 0, NULL, NULL));
    cl_uint result[96];
    read_all(out, result, sizeof result);
    say("digest %016llx", (unsigned long long)digest(result, sizeof result));
    CHECK(memcmp(result, content, sizeof result) == 0, "the flattened image differs");
}

CASE(a_kernel_asks_an_image_for_its_sides_and_format) {
    open_device();
    cl_mem image = image_2d(CL_MEM_READ_ONLY, CL_RGBA, CL_UNSIGNED_INT8, 21, 34, NULL);
    cl_mem out = buffer_of(CL_MEM_WRITE_ONLY, 4 * sizeof(cl_int), NULL);
    cl_kernel kernel = kernel_of(
        "kernel void ask(read_only image2d_t image, global int *out) {"
        "  out[0] = get_image_width(image); out[1] = get_image_height(image);"
        "  out[2] = get_image_channel_data_type(image) == CLK_UNSIGNED_INT8;"
        "  out[3] = get_image_channel_order(image) == CLK_RGBA; }", "ask");
    set_arg(kernel, 0, sizeof image, &image);
    set_arg(kernel, 1, sizeof out, &out);
    run_kernel(kernel, 1);
    cl_int result[4];
    read_all(out, result, sizeof result);
    show_ints("width, height, type, order", result, 4);
    CHECK(result[0] == 21 && result[1] == 34 && result[2] && result[3], "the kernel sees another image");
}

/* Reads only: a kernel that writes an image1d_buffer_t ends the process in PoCL 3.1. */
CASE(a_kernel_reads_a_1d_image_over_a_buffer) {
    open_device();
    cl_int content[32], result[32];
    for (int i = 0; i < 32; i++) content[i] = 5 * i;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof content, content), out = buffer_of(CL_MEM_READ_WRITE, sizeof result, NULL);
    cl_image_format format = {CL_RGBA, CL_SIGNED_INT32};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 8, .buffer = buffer};
    cl_mem image = MADE(clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &err));
    cl_kernel kernel = kernel_of(
        "kernel void turn(read_only image1d_buffer_t image, global int4 *out)"
        "{ int x = get_global_id(0); out[x] = read_imagei(image, 7 - x); }", "turn");
    set_arg(kernel, 0, sizeof image, &image);
    set_arg(kernel, 1, sizeof out, &out);
    run_kernel(kernel, 8);
    read_all(out, result, sizeof result);
    show_ints("turned", result, 32);
    for (int i = 0; i < 32; i++) CHECK(result[i] == content[(7 - i / 4) * 4 + i % 4], "element %d is %d", i, result[i]);
}

CASE(a_kernel_reads_a_2d_image_array_by_layer) {
    open_device();
    cl_uint content[2 * 2 * 3 * 4];
    for (int i = 0; i < 48; i++) content[i] = (cl_uint)(1000 + i);
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT32};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY, .image_width = 2, .image_height = 2, .image_array_size = 3};
    cl_mem image = MADE(clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &desc, content, &err));
    cl_mem out = buffer_of(CL_MEM_WRITE_ONLY, sizeof content, NULL);
    cl_kernel kernel = kernel_of(
        "constant sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_NONE | CLK_FILTER_NEAREST;"
        "kernel void flatten(read_only image2d_array_t image, global uint4 *out) {"
        "  int i = get_global_id(0); out[i] = read_imageui(image, s, (int4)(i % 2, i / 2 % 2, i / 4, 0)); }", "flatten");
    set_arg(kernel, 0, sizeof image, &image);
    set_arg(kernel, 1, sizeof out, &out);
    run_kernel(kernel, 12);
    cl_uint result[48];
    read_all(out, result, sizeof result);
    show_ints("layers", (cl_int *)result, 48);
    CHECK(memcmp(result, content, sizeof result) == 0, "the flattened array differs");
}
