/* The program in the tests of the program cache (tests/cache.rs). What it prints must not depend on whether the compiler
 * ran. Variables: SEED makes the program one that nobody has built before (PoCL has a cache of its own), STAY keeps the
 * session open in the end, ASK makes `build_slowly` ask for its binary. */
#include "common.h"

static const char *text_of(const char *name) {
    const char *value = getenv(name);
    return value ? value : "0";
}

static void stay(void) {
    say("done");
    if (getenv("STAY")) pause();
}

static const char *source =
    "#include \"cache_client.h\"\n"
    "#warning \"to be seen in the log\"\n"
    "typedef struct { float x; char c; int y[3]; } thing;\n"
    "constant int table[4] = {1, 2, 3, SEED};\n"
    "kernel void scale(global int *out, constant int *in, int by, thing t, local float4 *space) {\n"
    "    out[get_global_id(0)] = in[get_global_id(0)] * by + table[get_global_id(0) % 4] + FROM_HEADER + t.y[2];\n"
    "}\n"
    "kernel __attribute__((reqd_work_group_size(4, 2, 1))) void sized(read_only image2d_t image, sampler_t s) {}\n";

static char *options(void) {
    static char text[4096];
    snprintf(text, sizeof text, "-cl-kernel-arg-info -D SEED=%s -I %s", text_of("SEED"), text_of("HEADERS"));
    return text;
}

static void show_log(cl_program program) {
    size_t size = 0;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size));
    char *log = calloc(1, size + 1);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log, NULL));
    say("log: %s", log);
    cl_program_binary_type type = 0;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    say("type %u", type);
    free(log);
}

static void show_binary(const char *what, cl_program program) {
    size_t size = INFO(size_t, clGetProgramInfo, program, CL_PROGRAM_BINARY_SIZES);
    unsigned char *binary = malloc(size);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    say("%s: %zu bytes, %016llx", what, size, (unsigned long long)digest(binary, size));
    free(binary);
}

static void show_kernels(cl_program program) {
    char names[256];
    OK(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof names, names, NULL));
    say("kernels: %s", names);
    cl_kernel kernels[8];
    cl_uint count = 0;
    OK(clCreateKernelsInProgram(program, 8, kernels, &count));
    for (cl_uint i = 0; i < count; i++) {
        char name[128], type[128];
        OK(clGetKernelInfo(kernels[i], CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
        cl_uint args = INFO(cl_uint, clGetKernelInfo, kernels[i], CL_KERNEL_NUM_ARGS);
        size_t most, multiple, sizes[3];
        cl_ulong local, private;
        OK(clGetKernelWorkGroupInfo(kernels[i], device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL));
        OK(clGetKernelWorkGroupInfo(kernels[i], device, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof multiple,
                                    &multiple, NULL));
        OK(clGetKernelWorkGroupInfo(kernels[i], device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof sizes, sizes, NULL));
        OK(clGetKernelWorkGroupInfo(kernels[i], device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, NULL));
        OK(clGetKernelWorkGroupInfo(kernels[i], device, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof private, &private, NULL));
        say("%s: %u arguments, at most %zu by %zu, made for %zu %zu %zu, %llu local, %llu private", name, args, most, multiple,
            sizes[0], sizes[1], sizes[2], (unsigned long long)local, (unsigned long long)private);
        for (cl_uint a = 0; a < args; a++) {
            cl_uint address, access;
            cl_int status = clGetKernelArgInfo(kernels[i], a, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, NULL);
            if (status != CL_SUCCESS) {
                say("  %u: %s", a, error_name(status));
                continue;
            }
            OK(clGetKernelArgInfo(kernels[i], a, CL_KERNEL_ARG_NAME, sizeof name, name, NULL));
            OK(clGetKernelArgInfo(kernels[i], a, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL));
            OK(clGetKernelArgInfo(kernels[i], a, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof access, &access, NULL));
            say("  %u: %s %s, %x, %x", a, type, name, address, access);
        }
        OK(clReleaseKernel(kernels[i]));
    }
}

static void compute(cl_program program) {
    struct { cl_float x; cl_char c; cl_int y[3]; } thing = {0, 0, {0, 0, 1000}};
    cl_int in[4] = {10, 20, 30, 40}, out[4], by = 2;
    cl_mem from = buffer_of(CL_MEM_READ_ONLY, sizeof in, in), to = buffer_of(CL_MEM_READ_WRITE, sizeof out, NULL);
    cl_kernel kernel = MADE(clCreateKernel(program, "scale", &err));
    set_arg(kernel, 0, sizeof to, &to);
    set_arg(kernel, 1, sizeof from, &from);
    set_arg(kernel, 2, sizeof by, &by);
    set_arg(kernel, 3, sizeof thing, &thing);
    OK(clSetKernelArg(kernel, 4, 64, NULL));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 0, 4, &to));
    EXPECT(CL_INVALID_ARG_INDEX, clSetKernelArg(kernel, 5, 4, &by));
    run_kernel(kernel, 4);
    read_all(to, out, sizeof out);
    show_ints("computed", out, 4);
    OK(clReleaseKernel(kernel));
}

CASE_TELECL_ONLY(build) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    OK(clBuildProgram(program, 1, &device, options(), NULL, NULL));
    /* PoCL's binary is kept because of this. */
    show_binary("binary", program);
    show_log(program);
    show_kernels(program);
    compute(program);
    stay();
}

/* Built anew with other options, it is another program; and then the first one again. */
CASE_TELECL_ONLY(build_again) {
    open_device();
    char other[4200];
    snprintf(other, sizeof other, "%s -D FROM_HEADER=5000", options());
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    for (int i = 0; i < 2; i++) {
        OK(clBuildProgram(program, 1, &device, options(), NULL, NULL));
        compute(program);
        show_binary("binary", program);
        OK(clBuildProgram(program, 1, &device, other, NULL, NULL));
        compute(program);
        EXPECT(CL_BUILD_PROGRAM_FAILURE, clBuildProgram(program, 1, &device, "-D SEED=nonsense", NULL, NULL));
        EXPECT(CL_INVALID_PROGRAM_EXECUTABLE, CREATION(clCreateKernel(program, "scale", &err)));
        OK(clCompileProgram(program, 1, &device, options(), 0, NULL, NULL, NULL, NULL));
        show_binary("compiled", program);
    }
    stay();
}

/* Does not ask for arguments, and does not see them. */
CASE_TELECL_ONLY(build_without_arguments) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    OK(clBuildProgram(program, 1, &device, options() + strlen("-cl-kernel-arg-info "), NULL, NULL));
    show_kernels(program);
    compute(program);
    show_binary("binary", program);
    stay();
}

CASE_TELECL_ONLY(compile_and_link) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    OK(clCompileProgram(program, 1, &device, options(), 0, NULL, NULL, NULL, NULL));
    show_log(program);
    cl_program linked = MADE(clLinkProgram(context, 1, &device, NULL, 1, &program, NULL, NULL, &err));
    show_log(linked);
    show_kernels(linked);
    compute(linked);
    show_binary("binary", linked);
    stay();
}

/* Needs what was compiled, not only what was linked. */
CASE_TELECL_ONLY(link_twice) {
    open_device();
    const char *helper = "int helper(int x) { return x + 1; }";
    const char *user = "int helper(int x); kernel void use(global int *a) { a[0] = helper(a[0]); }";
    char seed[64];
    snprintf(seed, sizeof seed, "-D SEED=%s", text_of("SEED"));
    cl_program programs[2] = {MADE(clCreateProgramWithSource(context, 1, &helper, NULL, &err)),
                              MADE(clCreateProgramWithSource(context, 1, &user, NULL, &err))};
    for (int i = 0; i < 2; i++) OK(clCompileProgram(programs[i], 1, &device, seed, 0, NULL, NULL, NULL, NULL));
    cl_int value = 41, result = 0;
    for (int i = 0; i < 2; i++) {
        cl_program linked = MADE(clLinkProgram(context, 1, &device, "", 2, programs, NULL, NULL, &err));
        cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, &value);
        cl_kernel kernel = MADE(clCreateKernel(linked, "use", &err));
        set_arg(kernel, 0, sizeof buffer, &buffer);
        run_kernel(kernel, 1);
        read_all(buffer, &result, 4);
        say("%d", result);
    }
    stay();
}

/* Takes a compiler a while. */
CASE_TELECL_ONLY(build_slowly) {
    open_device();
    size_t room = 1 << 20, length = 0;
    char *text = malloc(room);
    length += snprintf(text, room, "#include \"cache_client.h\"\n");
    for (int k = 0; k < 12; k++) {
        length += snprintf(text + length, room - length, "kernel void k%d(global float *a, int n) {\n float x = a[n];\n", k);
        for (int i = 0; i < 40; i++)
            length += snprintf(text + length, room - length, " x = pow(sin(x + %d.%sf), cos(x * %d.0f)) + atan2(x, %d.0f);\n", i,
                               text_of("SEED"), k + 1, i);
        length += snprintf(text + length, room - length, " a[n] = x;\n}\n");
    }
    length += snprintf(text + length, room - length, "kernel void last(global int *a) { a[0] = 42; }\n");
    const char *slow = text;
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &slow, NULL, &err));
    say("building");
    OK(clBuildProgram(program, 1, &device, options(), NULL, NULL));
    if (getenv("ASK")) NEED(INFO(size_t, clGetProgramInfo, program, CL_PROGRAM_BINARY_SIZES) > 0, "no binary");
    cl_int result = 0;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, 4, &result);
    cl_kernel kernel = MADE(clCreateKernel(program, "last", &err));
    set_arg(kernel, 0, sizeof buffer, &buffer);
    run_kernel(kernel, 1);
    read_all(buffer, &result, 4);
    say("%d", result);
    stay();
}
