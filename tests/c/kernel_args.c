/* Kernel arguments of every kind, and the arguments that are refused. */
#include "common.h"

CASE(local_memory_arguments_are_sizes) {
    open_device();
    cl_kernel kernel = kernel_of(
        "kernel void turn(global int *a, local int *scratch) { size_t i = get_local_id(0), n = get_local_size(0);"
        "  scratch[i] = a[get_global_id(0)]; barrier(CLK_LOCAL_MEM_FENCE); a[get_global_id(0)] = scratch[n - 1 - i]; }", "turn");
    cl_int values[16];
    for (int i = 0; i < 16; i++) values[i] = i;
    cl_mem buffer = buffer_of(0, sizeof values, values);
    set_arg(kernel, 0, sizeof buffer, &buffer);
    set_arg(kernel, 1, 8 * sizeof(cl_int), NULL);
    size_t global = 16, local = 8;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    read_all(buffer, values, sizeof values);
    show_ints("turned by eights", values, 16);
    for (int i = 0; i < 16; i++) CHECK(values[i] == i / 8 * 8 + 7 - i % 8, "element %d is %d", i, values[i]);
}

struct mixed {
    cl_char small;
    cl_int whole;
    cl_double wide;
    cl_short few[3];
};

CASE(structs_go_by_value) {
    open_device();
    cl_kernel kernel = kernel_of(
        "typedef struct { char small; int whole; double wide; short few[3]; } mixed;"
        "kernel void take(mixed m, global double *out) { out[0] = m.small; out[1] = m.whole; out[2] = m.wide; out[3] = m.few[2]; }", "take");
    struct mixed m = {-5, 123456789, 2.5, {1, 2, -3}};
    cl_double out[4];
    cl_mem buffer = buffer_of(0, sizeof out, NULL);
    set_arg(kernel, 0, sizeof m, &m);
    set_arg(kernel, 1, sizeof buffer, &buffer);
    run_kernel(kernel, 1);
    read_all(buffer, out, sizeof out);
    say("%.1f %.1f %.1f %.1f", out[0], out[1], out[2], out[3]);
    CHECK(out[0] == -5 && out[1] == 123456789 && out[2] == 2.5 && out[3] == -3, "the struct arrived otherwise");
}

CASE(scalars_and_vectors_of_every_width_arrive) {
    open_device();
    cl_kernel kernel = kernel_of(
        "kernel void take(char c, ushort s, int i, ulong l, float f, double d, char3 c3, float16 f16, global double *out) {"
        "  out[0] = c; out[1] = s; out[2] = i; out[3] = l; out[4] = f; out[5] = d; out[6] = c3.z; out[7] = f16.sf; }", "take");
    cl_char c = -1;
    cl_ushort s = 65535;
    cl_int i = -70000;
    cl_ulong l = 1ull << 40;
    cl_float f = 0.5f;
    cl_double d = 0.125, out[8];
    cl_char4 c3 = {{1, 2, 3, 0}};
    cl_float16 f16 = {{0}};
    f16.s[15] = 15;
    cl_mem buffer = buffer_of(0, sizeof out, NULL);
    set_arg(kernel, 0, sizeof c, &c);
    set_arg(kernel, 1, sizeof s, &s);
    set_arg(kernel, 2, sizeof i, &i);
    set_arg(kernel, 3, sizeof l, &l);
    set_arg(kernel, 4, sizeof f, &f);
    set_arg(kernel, 5, sizeof d, &d);
    set_arg(kernel, 6, sizeof c3, &c3);
    set_arg(kernel, 7, sizeof f16, &f16);
    set_arg(kernel, 8, sizeof buffer, &buffer);
    run_kernel(kernel, 1);
    read_all(buffer, out, sizeof out);
    const cl_double wanted[8] = {-1, 65535, -70000, 1099511627776.0, 0.5, 0.125, 3, 15};
    for (int at = 0; at < 8; at++) {
        say("%.3f", out[at]);
        CHECK(out[at] == wanted[at], "argument %d arrived as %f", at, out[at]);
    }
}

CASE(an_eight_byte_scalar_that_equals_a_live_handle_stays_a_number) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void take(ulong n, global ulong *out) { *out = n; }", "take");
    cl_mem out = buffer_of(0, 8, NULL), other = buffer_of(0, 8, NULL);
    const cl_ulong numbers[4] = {(cl_ulong)(uintptr_t)other, (cl_ulong)(uintptr_t)out, (cl_ulong)(uintptr_t)queue, (cl_ulong)(uintptr_t)kernel};
    for (int i = 0; i < 4; i++) {
        cl_ulong result = 0;
        set_arg(kernel, 0, sizeof numbers[i], &numbers[i]);
        set_arg(kernel, 1, sizeof out, &out);
        run_kernel(kernel, 1);
        read_all(out, &result, sizeof result);
        say("number %d arrived unchanged: %s", i, result == numbers[i] ? "yes" : "no");
        CHECK(result == numbers[i], "a number was taken for a handle");
    }
}

CASE(a_struct_that_holds_a_handle_by_chance_stays_bytes) {
    open_device();
    cl_kernel kernel = kernel_of("typedef struct { ulong a, b; } two; kernel void take(two t, global ulong *out) { out[0] = t.a; out[1] = t.b; }", "take");
    cl_mem out = buffer_of(0, 16, NULL);
    cl_ulong two[2] = {(cl_ulong)(uintptr_t)out, 7}, result[2] = {0};
    set_arg(kernel, 0, sizeof two, two);
    set_arg(kernel, 1, sizeof out, &out);
    run_kernel(kernel, 1);
    read_all(out, result, sizeof result);
    say("unchanged: %s", memcmp(two, result, sizeof two) == 0 ? "yes" : "no");
    CHECK(memcmp(two, result, sizeof two) == 0, "the bytes were changed");
}

CASE(arguments_are_taken_when_the_kernel_is_enqueued) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void put(global int *a, int at, int value) { a[at] = value; }", "put");
    cl_int result[10];
    cl_mem buffer = buffer_of(0, sizeof result, NULL);
    cl_event gate = MADE(clCreateUserEvent(context, &err));
    set_arg(kernel, 0, sizeof buffer, &buffer);
    size_t one = 1;
    for (cl_int i = 0; i < 10; i++) {
        cl_int value = i * i;
        set_arg(kernel, 1, sizeof i, &i);
        set_arg(kernel, 2, sizeof value, &value);
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, i == 0 ? 1 : 0, i == 0 ? &gate : NULL, NULL));
    }
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    read_all(buffer, result, sizeof result);
    show_ints("squares", result, 10);
    for (int i = 0; i < 10; i++) CHECK(result[i] == i * i, "element %d is %d", i, result[i]);
}

CASE(a_buffer_may_be_released_while_a_kernel_has_it) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void copy(global int *to, global int *from) { *to = *from; }", "copy");
    cl_int value = 8, result = 0;
    cl_mem from = buffer_of(0, 4, &value), to = buffer_of(0, 4, NULL);
    cl_event gate = MADE(clCreateUserEvent(context, &err));
    set_arg(kernel, 0, sizeof to, &to);
    set_arg(kernel, 1, sizeof from, &from);
    size_t one = 1;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 1, &gate, NULL));
    OK(clReleaseMemObject(from));
    OK(clReleaseKernel(kernel));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    read_all(to, &result, 4);
    say("copied %d", result);
    CHECK(result == 8, "the released buffer was gone");
}

CASE(a_null_buffer_argument_is_a_null_pointer) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void test(global int *maybe, global int *out) { *out = maybe == 0 ? 1 : 2; }", "test");
    cl_int result = 0;
    cl_mem out = buffer_of(0, 4, NULL), none = NULL;
    EXPECT(CL_SUCCESS, clSetKernelArg(kernel, 0, sizeof(cl_mem), &none));
    set_arg(kernel, 1, sizeof out, &out);
    run_kernel(kernel, 1);
    read_all(out, &result, 4);
    say("with a handle of NULL: %d", result);
    CHECK(result == 1, "the kernel saw a pointer");
    EXPECT(CL_SUCCESS, clSetKernelArg(kernel, 0, sizeof(cl_mem), NULL));
    run_kernel(kernel, 1);
    read_all(out, &result, 4);
    say("with no value: %d", result);
    CHECK(result == 1, "the kernel saw a pointer");
}

CASE(constant_memory_arguments_arrive) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void look(constant int *table, global int *out) { size_t i = get_global_id(0); out[i] = table[3 - i]; }", "look");
    cl_int table[4] = {1, 10, 100, 1000}, result[4];
    cl_mem in = buffer_of(CL_MEM_READ_ONLY, sizeof table, table), out = buffer_of(0, sizeof result, NULL);
    set_arg(kernel, 0, sizeof in, &in);
    set_arg(kernel, 1, sizeof out, &out);
    run_kernel(kernel, 4);
    read_all(out, result, sizeof result);
    show_ints("looked up", result, 4);
    CHECK(result[0] == 1000 && result[3] == 1, "the table is wrong");
}

CASE(wrong_arguments_are_refused) {
    open_device();
    cl_kernel kernel = kernel_of(
        "kernel void k(global int *a, int b, local int *c, sampler_t s, read_only image2d_t i) {"
        "  a[0] = b + read_imagei(i, s, (int2)(0, 0)).x + c[0]; }", "k");
    cl_mem buffer = buffer_of(0, 16, NULL);
    cl_sampler sampler = MADE(clCreateSampler(context, CL_FALSE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &err));
    cl_int word = 1;
    EXPECT(CL_INVALID_KERNEL, clSetKernelArg(NULL, 0, sizeof buffer, &buffer));
    EXPECT(CL_INVALID_ARG_INDEX, clSetKernelArg(kernel, 5, sizeof word, &word));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 1, 8, &word));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 1, 2, &word));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 0, 4, &buffer));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 2, 0, NULL));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 3, 4, &sampler));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 4, 4, &buffer));
    EXPECT(CL_INVALID_ARG_VALUE, clSetKernelArg(kernel, 1, sizeof word, NULL));
    EXPECT(CL_INVALID_ARG_VALUE, clSetKernelArg(kernel, 2, 16, &word));
    DEVIATES(CL_INVALID_SAMPLER, clSetKernelArg(kernel, 3, sizeof sampler, (cl_sampler[]){NULL}));
}

CASE(a_kernel_with_missing_arguments_is_not_enqueued) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void put(global int *a, int value) { *a = value; }", "put");
    cl_mem buffer = buffer_of(0, 4, NULL);
    size_t one = 1;
    cl_int five = 5, result = 0;
    EXPECT(CL_INVALID_KERNEL_ARGS, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    set_arg(kernel, 0, sizeof buffer, &buffer);
    EXPECT(CL_INVALID_KERNEL_ARGS, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    set_arg(kernel, 1, sizeof five, &five);
    EXPECT(CL_SUCCESS, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    read_all(buffer, &result, 4);
    say("result %d", result);
}

CASE(a_failed_argument_leaves_the_old_value) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void put(global int *a, int value) { *a = value; }", "put");
    cl_mem buffer = buffer_of(0, 4, NULL);
    cl_int five = 5, result = 0;
    set_arg(kernel, 0, sizeof buffer, &buffer);
    set_arg(kernel, 1, sizeof five, &five);
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 1, 2, &five));
    run_kernel(kernel, 1);
    read_all(buffer, &result, 4);
    say("result %d", result);
    CHECK(result == 5, "the old value is lost");
}
