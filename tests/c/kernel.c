/* Kernels: what they say about themselves, how they run, and what they print. */
#include "common.h"

static char *arg_text(cl_kernel kernel, cl_uint index, cl_kernel_arg_info name) {
    static char text[100];
    OK(clGetKernelArgInfo(kernel, index, name, sizeof text, text, NULL));
    return text;
}

CASE(argument_information_is_that_of_the_source) {
    open_device();
    cl_program program = program_of(
        "typedef struct { int a; float b; } pair;\n"
        "kernel void many(global const int *in, global float *restrict out, local char *scratch, constant uint *table,\n"
        "  uint4 vector, pair by_value, read_only image2d_t image, sampler_t sampler, volatile global long *counter) {}",
        "-cl-kernel-arg-info");
    cl_kernel kernel = MADE(clCreateKernel(program, "many", &err));
    cl_uint count = INFO(cl_uint, clGetKernelInfo, kernel, CL_KERNEL_NUM_ARGS);
    say("%u arguments", count);
    CHECK(count == 9, "%u arguments", count);
    for (cl_uint i = 0; i < count; i++) {
        cl_kernel_arg_address_qualifier address = 0;
        cl_kernel_arg_access_qualifier access = 0;
        cl_kernel_arg_type_qualifier type = 0;
        OK(clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL));
        OK(clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof access, &access, NULL));
        OK(clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof type, &type, NULL));
        printf("%u: %s ", i, arg_text(kernel, i, CL_KERNEL_ARG_NAME));
        say("%s, address %#x access %#x type %#llx", arg_text(kernel, i, CL_KERNEL_ARG_TYPE_NAME), address, access, (unsigned long long)type);
    }
    CHECK(strcmp(arg_text(kernel, 2, CL_KERNEL_ARG_NAME), "scratch") == 0, "the name of argument 2");
    CHECK(strcmp(arg_text(kernel, 4, CL_KERNEL_ARG_TYPE_NAME), "uint4") == 0, "the type of argument 4");
    char text[2];
    EXPECT(CL_INVALID_ARG_INDEX, clGetKernelArgInfo(kernel, 9, CL_KERNEL_ARG_NAME, sizeof text, text, NULL));
    EXPECT(CL_INVALID_VALUE, clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_TYPE_NAME, sizeof text, text, NULL));
    EXPECT(CL_INVALID_VALUE, clGetKernelArgInfo(kernel, 0, 0x7fff1234, sizeof text, text, NULL));
    EXPECT(CL_INVALID_KERNEL, clGetKernelArgInfo(NULL, 0, CL_KERNEL_ARG_NAME, sizeof text, text, NULL));
}

CASE(a_kernel_describes_itself) {
    open_device();
    cl_program program = program_of("kernel __attribute__((reqd_work_group_size(8, 2, 1))) void fixed(global int *a, local int *b) { b[0] = 1; a[0] = b[0]; }", "");
    cl_kernel kernel = MADE(clCreateKernel(program, "fixed", &err));
    char name[20] = "";
    OK(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
    say("%s, %u arguments", name, INFO(cl_uint, clGetKernelInfo, kernel, CL_KERNEL_NUM_ARGS));
    CHECK(strcmp(name, "fixed") == 0, "the name is %s", name);
    CHECK(INFO(cl_context, clGetKernelInfo, kernel, CL_KERNEL_CONTEXT) == context, "the context");
    CHECK(INFO(cl_program, clGetKernelInfo, kernel, CL_KERNEL_PROGRAM) == program, "the program");
    size_t required[3] = {0}, largest = 0, multiple = 0;
    cl_ulong local_size = 0, private_size = 0;
    OK(clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof required, required, NULL));
    OK(clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof largest, &largest, NULL));
    OK(clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof multiple, &multiple, NULL));
    OK(clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local_size, &local_size, NULL));
    OK(clGetKernelWorkGroupInfo(kernel, NULL, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof private_size, &private_size, NULL));
    say("required %zu %zu %zu, largest %zu, multiple %zu, local %llu, private %llu", required[0], required[1], required[2], largest, multiple, (unsigned long long)local_size, (unsigned long long)private_size);
    CHECK(required[0] == 8 && required[1] == 2 && required[2] == 1, "the required size");
    CHECK(largest > 0, "the largest work-group");
    cl_int scratch_bytes = 512;
    OK(clSetKernelArg(kernel, 1, (size_t)scratch_bytes, NULL));
    OK(clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local_size, &local_size, NULL));
    say("local after setting 512 bytes: %llu", (unsigned long long)local_size);
    size_t sizes[3];
    say("global work size of a plain kernel: %s", error_name(clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_GLOBAL_WORK_SIZE, sizeof sizes, sizes, NULL)));
    EXPECT(CL_INVALID_VALUE, clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(size_t), sizes, NULL));
    EXPECT(CL_INVALID_VALUE, clGetKernelWorkGroupInfo(kernel, device, 0x7fff1234, sizeof sizes, sizes, NULL));
}

CASE(all_kernels_of_a_program_are_created_at_once) {
    open_device();
    cl_program program = program_of("kernel void a(int x) {} kernel void b(int x, int y) {} kernel void c(void) {}", "");
    cl_uint count = 0;
    EXPECT(CL_SUCCESS, clCreateKernelsInProgram(program, 0, NULL, &count));
    say("%u kernels", count);
    CHECK(count == 3, "%u kernels", count);
    cl_kernel kernels[3] = {NULL};
    EXPECT(CL_SUCCESS, clCreateKernelsInProgram(program, 3, kernels, NULL));
    for (int i = 0; i < 3; i++) {
        char name[10] = "";
        OK(clGetKernelInfo(kernels[i], CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
        say("%s with %u arguments", name, INFO(cl_uint, clGetKernelInfo, kernels[i], CL_KERNEL_NUM_ARGS));
    }
    EXPECT(CL_INVALID_VALUE, clCreateKernelsInProgram(program, 2, kernels, NULL));
    EXPECT(CL_INVALID_PROGRAM, clCreateKernelsInProgram(NULL, 0, NULL, &count));
}

CASE(wrong_kernel_names_are_refused) {
    open_device();
    cl_program program = program_of("kernel void good(void) {} void helper(void) {}", "");
    EXPECT_CREATE(CL_INVALID_KERNEL_NAME, clCreateKernel(program, "missing", &err));
    EXPECT_CREATE(CL_INVALID_KERNEL_NAME, clCreateKernel(program, "helper", &err));
    EXPECT_CREATE(CL_INVALID_KERNEL_NAME, clCreateKernel(program, "", &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateKernel(program, NULL, &err));
    EXPECT_CREATE(CL_INVALID_PROGRAM, clCreateKernel(NULL, "good", &err));
}

CASE(a_kernel_outlives_its_program) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void put(global int *a) { a[get_global_id(0)] = 3; }", "put");
    cl_int result[4];
    cl_mem buffer = buffer_of(0, sizeof result, NULL);
    set_arg(kernel, 0, sizeof buffer, &buffer);
    run_kernel(kernel, 4);
    read_all(buffer, result, sizeof result);
    show_ints("result", result, 4);
    char name[10] = "";
    OK(clGetProgramInfo(INFO(cl_program, clGetKernelInfo, kernel, CL_KERNEL_PROGRAM), CL_PROGRAM_KERNEL_NAMES, sizeof name, name, NULL));
    say("kernel names of its program: %s", name);
    CHECK(result[3] == 3 && strcmp(name, "put") == 0, "the program is gone");
}

CASE(printf_comes_out_before_finish_returns) {
    open_device();
    cl_kernel kernel = kernel_of(
        "kernel void speak(int n, float x, global int *a) { for (int i = 0; i < n; i++) printf(\"line %d: %4.2f %s %v4hld 0x%08x %%\\n\", i, x * i, \"text\", (int4)(i, 2, 3, 4), a[0]); }", "speak");
    cl_int three = 3, word = 0x1234abcd;
    float x = 1.25f;
    cl_mem buffer = buffer_of(0, 4, &word);
    set_arg(kernel, 0, sizeof three, &three);
    set_arg(kernel, 1, sizeof x, &x);
    set_arg(kernel, 2, sizeof buffer, &buffer);
    say("before the kernel");
    size_t one = 1;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    OK(clFinish(queue));
    say("after finish");
    cl_event event;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    say("after wait");
}

CASE(printf_of_many_kernels_keeps_their_order) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void speak(int n) { printf(\"kernel %d\\n\", n); }", "speak");
    size_t one = 1;
    for (cl_int i = 0; i < 40; i++) {
        set_arg(kernel, 0, sizeof i, &i);
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    }
    OK(clFinish(queue));
    say("all said");
}

/* Some drivers have whoever waits for a kernel run a part of it, private memory and all. */
CASE(a_kernel_with_much_private_memory_can_be_waited_for) {
    open_device();
    cl_kernel kernel = kernel_of(
        "kernel void spread(global uint *sums, uint seed) {\n"
        "  uint all[4096];\n"
        "  for (uint i = 0; i < 4096; i++) all[i] = i * seed + get_global_id(0);\n"
        "  uint sum = 0;\n"
        "  for (uint i = 0; i < 4096; i++) sum += all[(i * 7 + sum) & 4095];\n"
        "  sums[get_global_id(0)] = sum;\n"
        "}", "spread");
    size_t count = 256;
    cl_mem sums = MADE(clCreateBuffer(context, CL_MEM_READ_WRITE, 4 * count, NULL, &err));
    cl_uint seed = 3, first[2] = {0, 0};
    set_arg(kernel, 0, sizeof sums, &sums);
    set_arg(kernel, 1, sizeof seed, &seed);
    for (int round = 0; round < 2; round++) {
        cl_event event = NULL;
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, &event));
        OK(round ? clFinish(queue) : clWaitForEvents(1, &event));
        OK(clEnqueueReadBuffer(queue, sums, CL_TRUE, 0, 4, &first[round], 0, NULL, NULL));
        OK(clReleaseEvent(event));
    }
    say("%u", first[0]);
    CHECK(first[0] != 0 && first[0] == first[1], "%u and %u", first[0], first[1]);
}

CASE(a_range_has_its_offset_sizes_and_dimensions) {
    open_device();
    cl_kernel kernel = kernel_of(
        "kernel void where(global int *a) { size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1);"
        "  a[y * get_global_size(0) + x] = 10000 * get_global_id(1) + 100 * get_global_id(0) + 10 * get_local_id(0) + get_group_id(0); }", "where");
    cl_int result[6 * 4];
    cl_mem buffer = buffer_of(0, sizeof result, NULL);
    set_arg(kernel, 0, sizeof buffer, &buffer);
    size_t offset[2] = {5, 7}, global[2] = {6, 4}, local[2] = {3, 2};
    OK(clEnqueueNDRangeKernel(queue, kernel, 2, offset, global, local, 0, NULL, NULL));
    read_all(buffer, result, sizeof result);
    for (int y = 0; y < 4; y++) show_ints("row", result + 6 * y, 6);
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 6; x++)
            CHECK(result[y * 6 + x] == 10000 * (y + 7) + 100 * (x + 5) + 10 * (x % 3) + x / 3, "item %d, %d wrote %d", x, y, result[y * 6 + x]);
}

CASE(work_group_limits_are_enforced) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void nothing(void) {}", "nothing");
    cl_kernel fixed = kernel_of("kernel __attribute__((reqd_work_group_size(4, 1, 1))) void fixed(void) {}", "fixed");
    size_t limit = INFO(size_t, clGetDeviceInfo, device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    size_t sizes[3];
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL));
    size_t large = limit * 2, wide = sizes[0] * 2, ten = 10, three = 3, four = 4, twelve = 12, zero = 0;
    size_t square[2] = {limit, limit};
    EXPECT(CL_INVALID_WORK_GROUP_SIZE, clEnqueueNDRangeKernel(queue, kernel, 2, NULL, square, square, 0, NULL, NULL));
    EITHER(CL_INVALID_WORK_GROUP_SIZE, CL_INVALID_WORK_ITEM_SIZE, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &wide, &wide, 0, NULL, NULL));
    EITHER(CL_INVALID_WORK_GROUP_SIZE, CL_INVALID_WORK_ITEM_SIZE, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &large, &large, 0, NULL, NULL));
    say("ten by three: %s", error_name(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &ten, &three, 0, NULL, NULL)));
    EXPECT(CL_INVALID_WORK_GROUP_SIZE, clEnqueueNDRangeKernel(queue, fixed, 1, NULL, &twelve, &three, 0, NULL, NULL));
    EXPECT(CL_SUCCESS, clEnqueueNDRangeKernel(queue, fixed, 1, NULL, &twelve, &four, 0, NULL, NULL));
    DEVIATES(CL_INVALID_WORK_GROUP_SIZE, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &twelve, &zero, 0, NULL, NULL));
    OK(clFinish(queue));
}

CASE(a_cloned_kernel_has_arguments_of_its_own) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void put(global int *a, int value) { a[0] = value; }", "put");
    cl_mem buffer = buffer_of(0, 4, NULL);
    cl_int one = 1, two = 2, result = 0;
    set_arg(kernel, 0, sizeof buffer, &buffer);
    set_arg(kernel, 1, sizeof one, &one);
    cl_kernel clone = MADE(clCloneKernel(kernel, &err));
    set_arg(kernel, 1, sizeof two, &two);
    run_kernel(clone, 1);
    read_all(buffer, &result, 4);
    say("the clone wrote %d", result);
    CHECK(result == 1, "the clone shares its arguments");
    run_kernel(kernel, 1);
    read_all(buffer, &result, 4);
    say("the original wrote %d", result);
    CHECK(result == 2, "the original lost its arguments");
    OK(clReleaseKernel(kernel));
    set_arg(clone, 1, sizeof two, &two);
    run_kernel(clone, 1);
    EXPECT(CL_SUCCESS, clReleaseKernel(clone));
    EXPECT_CREATE(CL_INVALID_KERNEL, clCloneKernel(NULL, &err));
}

CASE(sub_group_queries_answer_as_the_device_does) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void nothing(void) {}", "nothing");
    size_t local[1] = {16}, result = 12345;
    const cl_kernel_sub_group_info names[] = {CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE, CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE};
    for (int i = 0; i < 2; i++) {
        cl_int status = clGetKernelSubGroupInfo(kernel, device, names[i], sizeof local, local, sizeof result, &result, NULL);
        say("%#x: %s %zu", names[i], error_name(status), status == CL_SUCCESS ? result : 0);
    }
    cl_uint most = INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_MAX_NUM_SUB_GROUPS);
    say("most sub-groups: %u", most);
    cl_int status = clGetKernelSubGroupInfo(kernel, device, CL_KERNEL_MAX_NUM_SUB_GROUPS, 0, NULL, sizeof result, &result, NULL);
    CHECK(most == 0 || status == CL_SUCCESS, "a device with sub-groups answers %s", error_name(status));
}

CASE(a_null_local_size_lets_the_driver_choose) {
    open_device();
    cl_kernel kernel = kernel_of("kernel void count(global int *a) { atomic_inc(a); }", "count");
    cl_int total = 0;
    cl_mem buffer = buffer_of(0, 4, &total);
    set_arg(kernel, 0, sizeof buffer, &buffer);
    size_t odd[3] = {7, 11, 13};
    OK(clEnqueueNDRangeKernel(queue, kernel, 3, NULL, odd, NULL, 0, NULL, NULL));
    read_all(buffer, &total, 4);
    say("%d work-items", total);
    CHECK(total == 1001, "%d work-items ran", total);
}
