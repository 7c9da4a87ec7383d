/* Programs from binaries, from parts that are compiled and linked, from IL, and built-in kernels. */
#include "common.h"

static const char *source = "kernel void answer(global int *out) { *out = 4242; }";

static cl_int run_answer(cl_program program) {
    cl_mem out = buffer_of(CL_MEM_READ_WRITE, 4, NULL);
    cl_kernel kernel = MADE(clCreateKernel(program, "answer", &err));
    set_arg(kernel, 0, sizeof out, &out);
    run_kernel(kernel, 1);
    cl_int result = 0;
    read_all(out, &result, 4);
    return result;
}

static unsigned char *binary_of(cl_program program, size_t *size) {
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof *size, size, NULL));
    unsigned char *binary = malloc(*size);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    return binary;
}

static cl_program_binary_type binary_type(cl_program program) {
    cl_program_binary_type type = 0;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    return type;
}

CASE(a_binary_makes_the_same_program_again) {
    open_device();
    cl_program program = program_of(source, "");
    say("from source: %d", run_answer(program));
    size_t size = 0;
    const unsigned char *binary = binary_of(program, &size);
    CHECK(size > 0, "the binary is empty");
    cl_int status = 1;
    cl_program again = MADE(clCreateProgramWithBinary(context, 1, &device, &size, &binary, &status, &err));
    say("binary status %s", error_name(status));
    CHECK(status == CL_SUCCESS, "the binary status is %s", error_name(status));
    EXPECT(CL_SUCCESS, clBuildProgram(again, 1, &device, "", NULL, NULL));
    say("from binary: %d", run_answer(again));
    CHECK(run_answer(again) == 4242, "the program from the binary does something else");
    size_t source_size = 99;
    OK(clGetProgramInfo(again, CL_PROGRAM_SOURCE, 0, NULL, &source_size));
    say("source of a program from a binary: %zu", source_size);
}

CASE(a_binary_may_leave_the_process) {
    open_device();
    size_t size = 0;
    unsigned char *binary = binary_of(program_of(source, ""), &size);
    close_device();
    /* Another context knows nothing of the first program but these bytes. */
    open_device();
    cl_program again = MADE(clCreateProgramWithBinary(context, 1, &device, &size, (const unsigned char **)&binary, NULL, &err));
    OK(clBuildProgram(again, 1, &device, NULL, NULL, NULL));
    say("from binary: %d", run_answer(again));
    CHECK(run_answer(again) == 4242, "the program from the binary does something else");
}

CASE(a_program_without_build_has_no_binary) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    size_t size = 99;
    DEVIATES(CL_SUCCESS, clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    CHECK(size == 0 || size == 99, "the size is %zu", size);
    say("binary type %#x", binary_type(program));
}

CASE(garbage_is_not_a_binary) {
    open_device();
    const unsigned char garbage[] = "this was never compiled by anybody", *binaries = garbage;
    size_t size = sizeof garbage;
    cl_int status = 1;
    EXPECT_CREATE(CL_INVALID_BINARY, clCreateProgramWithBinary(context, 1, &device, &size, &binaries, &status, &err));
    say("binary status %s", error_name(status));
    CHECK(status == CL_INVALID_BINARY, "the binary status is %s", error_name(status));
}

CASE(wrong_binary_arguments_are_refused) {
    open_device();
    const unsigned char garbage[] = "x", *binaries = garbage, *missing = NULL;
    size_t size = 1, none = 0;
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateProgramWithBinary(NULL, 1, &device, &size, &binaries, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithBinary(context, 0, &device, &size, &binaries, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithBinary(context, 1, NULL, &size, &binaries, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithBinary(context, 1, &device, NULL, &binaries, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithBinary(context, 1, &device, &none, &binaries, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithBinary(context, 1, &device, &size, &missing, NULL, &err));
}

CASE(a_program_is_compiled_with_headers_and_linked) {
    open_device();
    const char *user = "#include \"lib/value.h\"\n#include \"twice.h\"\nkernel void answer(global int *out) { *out = twice(VALUE); }";
    const char *value = "#define VALUE 21\n", *twice = "int twice(int x) { return 2 * x; }\n";
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &user, NULL, &err));
    cl_program headers[2] = {MADE(clCreateProgramWithSource(context, 1, &value, NULL, &err)), MADE(clCreateProgramWithSource(context, 1, &twice, NULL, &err))};
    const char *names[2] = {"lib/value.h", "twice.h"};
    EXPECT(CL_SUCCESS, clCompileProgram(program, 1, &device, "", 2, headers, names, NULL, NULL));
    say("compiled: type %#x", binary_type(program));
    CHECK(binary_type(program) == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, "the type is %#x", binary_type(program));
    cl_program linked = MADE(clLinkProgram(context, 1, &device, "", 1, &program, NULL, NULL, &err));
    say("linked: type %#x, answer %d", binary_type(linked), run_answer(linked));
    CHECK(binary_type(linked) == CL_PROGRAM_BINARY_TYPE_EXECUTABLE, "the type is %#x", binary_type(linked));
    CHECK(run_answer(linked) == 42, "the linked program does something else");
}

CASE(several_compiled_programs_are_linked_together) {
    open_device();
    const char *texts[3] = {"int twice(int x); int one(void); kernel void answer(global int *out) { *out = twice(one()); }",
                            "int twice(int x) { return 2 * x; }", "int one(void) { return 1; }"};
    cl_program parts[3];
    for (int i = 0; i < 3; i++) {
        parts[i] = MADE(clCreateProgramWithSource(context, 1, &texts[i], NULL, &err));
        OK(clCompileProgram(parts[i], 1, &device, "", 0, NULL, NULL, NULL, NULL));
    }
    cl_program linked = MADE(clLinkProgram(context, 1, &device, "", 3, parts, NULL, NULL, &err));
    say("answer %d", run_answer(linked));
    CHECK(run_answer(linked) == 2, "the linked program does something else");
}

CASE(a_library_is_linked_and_used) {
    open_device();
    const char *user = "int twice(int x); kernel void answer(global int *out) { *out = twice(8); }", *text = "int twice(int x) { return 2 * x; }";
    cl_program part = MADE(clCreateProgramWithSource(context, 1, &text, NULL, &err));
    cl_program main_part = MADE(clCreateProgramWithSource(context, 1, &user, NULL, &err));
    OK(clCompileProgram(part, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    OK(clCompileProgram(main_part, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    cl_program library = MADE(clLinkProgram(context, 1, &device, "-create-library", 1, &part, NULL, NULL, &err));
    say("library: type %#x", binary_type(library));
    CHECK(binary_type(library) == CL_PROGRAM_BINARY_TYPE_LIBRARY, "the type is %#x", binary_type(library));
    cl_program linked = MADE(clLinkProgram(context, 1, &device, "", 2, (cl_program[]){main_part, library}, NULL, NULL, &err));
    say("answer %d", run_answer(linked));
    CHECK(run_answer(linked) == 16, "the linked program does something else");
}

CASE(a_compile_error_has_a_log) {
    open_device();
    const char *text = "#include \"missing_header.h\"\n";
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &text, NULL, &err));
    EXPECT(CL_COMPILE_PROGRAM_FAILURE, clCompileProgram(program, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    char log[4096] = "";
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
    say("the log names the header: %s", strstr(log, "missing_header.h") ? "yes" : "no");
    CHECK(strstr(log, "missing_header.h"), "the log is \"%s\"", log);
}

static int linked_count;

static void CL_CALLBACK on_linked(cl_program program, void *data) {
    (void)program, (void)data;
    tally_add(&linked_count);
}

CASE(compile_and_link_call_back) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    EXPECT(CL_SUCCESS, clCompileProgram(program, 1, &device, "", 0, NULL, NULL, on_linked, NULL));
    tally_await(&linked_count, 1, "compile callback");
    cl_program linked = MADE(clLinkProgram(context, 1, &device, "", 1, &program, on_linked, NULL, &err));
    tally_await(&linked_count, 2, "link callback");
    say("answer %d", run_answer(linked));
    CHECK(linked_count == 2, "%d callbacks", linked_count);
}

CASE(wrong_compile_and_link_arguments_are_refused) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    const char *name = "x.h";
    EXPECT(CL_INVALID_PROGRAM, clCompileProgram(NULL, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clCompileProgram(program, 1, NULL, "", 0, NULL, NULL, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clCompileProgram(program, 1, &device, "", 0, NULL, NULL, NULL, &device));
    DEVIATES(CL_INVALID_VALUE, clCompileProgram(program, 1, &device, "", 0, &program, &name, NULL, NULL));
    EXPECT(CL_INVALID_COMPILER_OPTIONS, clCompileProgram(program, 1, &device, "--no-such-option", 0, NULL, NULL, NULL, NULL));
    EXPECT_CREATE(CL_INVALID_CONTEXT, clLinkProgram(NULL, 1, &device, "", 1, &program, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clLinkProgram(context, 1, &device, "", 0, NULL, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clLinkProgram(context, 1, &device, "", 1, NULL, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clLinkProgram(context, 1, NULL, "", 1, &program, NULL, NULL, &err));
    cl_program untouched = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    EXPECT_CREATE(CL_INVALID_OPERATION, clLinkProgram(context, 1, &device, "", 1, &untouched, NULL, NULL, &err));
}

CASE(a_device_without_il_refuses_il) {
    open_device();
    char version[256] = "";
    OK(clGetDeviceInfo(device, CL_DEVICE_IL_VERSION, sizeof version, version, NULL));
    if (version[0]) SKIP("the device takes IL");
    cl_uint words[5] = {0x07230203, 0x00010000, 0, 1, 0};
    DEVIATES_CREATE(CL_INVALID_OPERATION, clCreateProgramWithIL(context, words, sizeof words, &err));
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateProgramWithIL(NULL, words, sizeof words, &err));
}

CASE(a_device_with_il_takes_il_and_refuses_garbage) {
    open_device();
    char version[256] = "";
    OK(clGetDeviceInfo(device, CL_DEVICE_IL_VERSION, sizeof version, version, NULL));
    if (!version[0]) SKIP("the device takes no IL");
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithIL(context, NULL, 20, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithIL(context, "not il", 0, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithIL(context, "these are not words of il", 24, &err));
}

/* SPIR-V 1.0 for OpenCL: `kernel void store(global uint *p) { *p = K; }`, where K is constant number 7 and 5 by
 * default. */
static const cl_uint store_constant[] = {
    0x7230203, 0x10000, 0x70000, 9, 0,                  /* header; ids below 9 */
    0x20011, 4, 0x20011, 6,                             /* OpCapability Addresses, Kernel */
    0x3000e, 2, 2,                                      /* OpMemoryModel Physical64 OpenCL */
    0x5000f, 6, 1, 0x726f7473, 0x65,                    /* OpEntryPoint Kernel %1 "store" */
    0x40047, 2, 1, 7,                                   /* OpDecorate %2 SpecId 7 */
    0x20013, 3, 0x40015, 4, 0x20, 0,                    /* %3 void, %4 uint */
    0x40020, 5, 5, 4, 0x40021, 6, 3, 5,                 /* %5 pointer to uint, %6 function of it */
    0x40032, 4, 2, 5,                                   /* %2 = OpSpecConstant 5 */
    0x50036, 3, 1, 0, 6, 0x30037, 5, 7, 0x200f8, 8,     /* OpFunction, its parameter %7, OpLabel */
    0x5003e, 7, 2, 2, 4, 0x100fd, 0x10038,              /* OpStore %7 %2 Aligned 4, OpReturn, OpFunctionEnd */
};

static cl_uint stored_by(cl_program program) {
    OK(clBuildProgram(program, 1, &device, "", NULL, NULL));
    cl_kernel kernel = MADE(clCreateKernel(program, "store", &err));
    cl_uint result = 0;
    cl_mem buffer = buffer_of(CL_MEM_READ_WRITE, sizeof result, NULL);
    set_arg(kernel, 0, sizeof buffer, &buffer);
    run_kernel(kernel, 1);
    read_all(buffer, &result, sizeof result);
    return result;
}

CASE(a_program_from_il_runs_with_its_constants_as_they_are_set) {
    open_device();
    char version[256] = "";
    OK(clGetDeviceInfo(device, CL_DEVICE_IL_VERSION, sizeof version, version, NULL));
    if (!version[0]) SKIP("the device takes no IL");
    cl_program plain = MADE(clCreateProgramWithIL(context, store_constant, sizeof store_constant, &err));
    cl_uint result = stored_by(plain);
    say("as it is: %u", result);
    CHECK(result == 5, "the constant's default did not arrive");
    size_t size = 0;
    OK(clGetProgramInfo(plain, CL_PROGRAM_IL, 0, NULL, &size));
    CHECK(size == sizeof store_constant, "the program has %zu bytes of IL", size);
    cl_program other = MADE(clCreateProgramWithIL(context, store_constant, sizeof store_constant, &err));
    cl_uint value = 4711;
    OK(clSetProgramSpecializationConstant(other, 7, sizeof value, &value));
    EXPECT(CL_INVALID_SPEC_ID, clSetProgramSpecializationConstant(other, 8, sizeof value, &value));
    EXPECT(CL_INVALID_VALUE, clSetProgramSpecializationConstant(other, 7, sizeof value, NULL));
    result = stored_by(other);
    say("specialized: %u", result);
    CHECK(result == value, "the constant that was set did not arrive");
}

CASE(built_in_kernels_are_those_the_device_names) {
    open_device();
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateProgramWithBuiltInKernels(NULL, 1, &device, "x", &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithBuiltInKernels(context, 1, &device, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithBuiltInKernels(context, 1, &device, "no_such_built_in", &err));
}

CASE(a_program_is_made_of_a_built_in_kernel) {
    open_device();
    char names[4096] = "";
    OK(clGetDeviceInfo(device, CL_DEVICE_BUILT_IN_KERNELS, sizeof names, names, NULL));
    if (!strstr(names, "pocl.add.i8")) SKIP("the device has no pocl.add.i8");
    /* It is not run: Debian's PoCL 3.1 has no source for it. */
    cl_program program = MADE(clCreateProgramWithBuiltInKernels(context, 1, &device, "pocl.add.i8", &err));
    char kernels[100] = "";
    say("kernel names: %s", error_name(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof kernels, kernels, NULL)));
    say("\"%s\"", kernels);
    EXPECT(CL_SUCCESS, clReleaseProgram(program));
}

CASE(a_program_outlives_its_compiler) {
    open_device();
    cl_program program = program_of(source, "");
    cl_int value = 1;
    char il[64] = "";
    OK(clGetDeviceInfo(device, CL_DEVICE_IL_VERSION, sizeof il, il, NULL));
    DEVIATES(*il ? CL_INVALID_PROGRAM : CL_INVALID_OPERATION, clSetProgramSpecializationConstant(program, 0, sizeof value, &value));
    say("unload the compiler: %s", error_name(clUnloadPlatformCompiler(platform)));
    DEVIATES(CL_INVALID_PLATFORM, clUnloadPlatformCompiler(NULL));
    say("answer %d", run_answer(program));
    CHECK(run_answer(program) == 4242, "a program must outlive its compiler");
}
