/* Building programs from source: strings, options, logs, callbacks, includes. */
#include "common.h"

#include <sys/stat.h>

static const char *answer = "kernel void answer(global int *out) { *out = VALUE; }";

/* What the kernel "answer" of the program writes. */
static cl_int run_answer(cl_program program) {
    cl_mem out = buffer_of(CL_MEM_READ_WRITE, 4, NULL);
    cl_kernel kernel = MADE(clCreateKernel(program, "answer", &err));
    set_arg(kernel, 0, sizeof out, &out);
    run_kernel(kernel, 1);
    cl_int result = 0;
    read_all(out, &result, 4);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(out));
    return result;
}

static cl_build_status build_status(cl_program program) {
    cl_build_status status = 1;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    return status;
}

static char *build_text(cl_program program, cl_program_build_info name) {
    size_t size = 0;
    OK(clGetProgramBuildInfo(program, device, name, 0, NULL, &size));
    char *text = calloc(1, size + 1);
    OK(clGetProgramBuildInfo(program, device, name, size, text, NULL));
    return text;
}

CASE(a_program_is_built_with_its_options) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &answer, NULL, &err));
    say("before: status %d", build_status(program));
    CHECK(build_status(program) == CL_BUILD_NONE, "a program that was never built has status %d", build_status(program));
    EXPECT(CL_SUCCESS, clBuildProgram(program, 1, &device, "-D VALUE=42 -cl-fast-relaxed-math", NULL, NULL));
    say("status %d, options \"%s\", answer %d", build_status(program), build_text(program, CL_PROGRAM_BUILD_OPTIONS), run_answer(program));
    CHECK(run_answer(program) == 42, "the option did not arrive");
    CHECK(strstr(build_text(program, CL_PROGRAM_BUILD_OPTIONS), "-D VALUE=42"), "the options are not those given");
    EXPECT(CL_SUCCESS, clBuildProgram(program, 0, NULL, "-DVALUE=43", NULL, NULL));
    say("answer %d", run_answer(program));
    CHECK(run_answer(program) == 43, "the second build did not count");
}

CASE(several_strings_with_and_without_lengths_are_joined) {
    open_device();
    const char *strings[4] = {"kernel void ans-----", "wer(global int *out)", "{ *out = 1", "7; } garbage"};
    size_t lengths[4] = {15, 0, 0, 4};
    cl_program program = MADE(clCreateProgramWithSource(context, 4, strings, lengths, &err));
    OK(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    char source[200] = "";
    OK(clGetProgramInfo(program, CL_PROGRAM_SOURCE, sizeof source, source, NULL));
    say("source \"%s\", answer %d", source, run_answer(program));
    CHECK(strcmp(source, "kernel void answer(global int *out){ *out = 17; }") == 0, "the strings are joined otherwise");
    CHECK(run_answer(program) == 17, "the program does something else");
}

CASE(wrong_sources_are_refused) {
    open_device();
    const char *strings[2] = {answer, NULL};
    EXPECT_CREATE(CL_INVALID_CONTEXT, clCreateProgramWithSource(NULL, 1, &answer, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithSource(context, 0, &answer, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateProgramWithSource(context, 2, strings, NULL, &err));
}

CASE(a_failed_build_has_a_log_that_names_the_mistake) {
    open_device();
    const char *source = "kernel void broken(global int *a) { *a = no_such_name; }";
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    EXPECT(CL_BUILD_PROGRAM_FAILURE, clBuildProgram(program, 1, &device, "", NULL, NULL));
    say("status %d", build_status(program));
    CHECK(build_status(program) == CL_BUILD_ERROR, "the status is %d", build_status(program));
    /* The log itself may hold the name of a temporary file. */
    const char *log = build_text(program, CL_PROGRAM_BUILD_LOG);
    say("the log names the mistake: %s", strstr(log, "no_such_name") ? "yes" : "no");
    CHECK(strstr(log, "no_such_name"), "the log is \"%s\"", log);
    EXPECT_CREATE(CL_INVALID_PROGRAM_EXECUTABLE, clCreateKernel(program, "broken", &err));
}

CASE(a_program_can_be_built_again_after_a_failure) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &answer, NULL, &err));
    EXPECT(CL_BUILD_PROGRAM_FAILURE, clBuildProgram(program, 1, &device, "", NULL, NULL));
    EXPECT(CL_SUCCESS, clBuildProgram(program, 1, &device, "-DVALUE=5", NULL, NULL));
    say("answer %d", run_answer(program));
    CHECK(run_answer(program) == 5, "the second build is wrong");
}

static int built;
static cl_program built_program;
static void *built_data;

static void CL_CALLBACK on_built(cl_program program, void *data) {
    built_program = program;
    built_data = data;
    tally_add(&built);
}

CASE(a_build_with_a_callback_calls_it_once_when_done) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &answer, NULL, &err));
    EXPECT(CL_SUCCESS, clBuildProgram(program, 1, &device, "-DVALUE=6", on_built, &built));
    tally_await(&built, 1, "build callback");
    CHECK(built_program == program && built_data == &built, "the callback got other values");
    say("status %d, answer %d", build_status(program), run_answer(program));
    CHECK(build_status(program) == CL_BUILD_SUCCESS && run_answer(program) == 6, "the build is wrong");
    CHECK(built == 1, "%d callbacks", built);
}

CASE(a_failing_build_calls_its_callback_too) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &answer, NULL, &err));
    cl_int status = clBuildProgram(program, 1, &device, "", on_built, NULL);
    /* The call may already know of the failure, or may not. */
    CHECK(status == CL_SUCCESS || status == CL_BUILD_PROGRAM_FAILURE, "the call answered %s", error_name(status));
    tally_await(&built, 1, "build callback");
    say("status %d", build_status(program));
    CHECK(build_status(program) == CL_BUILD_ERROR, "the status is %d", build_status(program));
}

CASE(wrong_builds_are_refused) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &answer, NULL, &err));
    EXPECT(CL_INVALID_PROGRAM, clBuildProgram(NULL, 0, NULL, "", NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clBuildProgram(program, 1, NULL, "", NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clBuildProgram(program, 0, &device, "", NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clBuildProgram(program, 1, &device, "-DVALUE=1", NULL, &built));
    EXPECT(CL_INVALID_BUILD_OPTIONS, clBuildProgram(program, 1, &device, "-DVALUE=1 --no-such-option", NULL, NULL));
}

CASE(a_build_while_kernels_live_is_refused) {
    open_device();
    cl_program program = program_of(answer, "-DVALUE=7");
    cl_kernel kernel = MADE(clCreateKernel(program, "answer", &err));
    EXPECT(CL_INVALID_OPERATION, clBuildProgram(program, 1, &device, "-DVALUE=8", NULL, NULL));
    OK(clReleaseKernel(kernel));
    EXPECT(CL_SUCCESS, clBuildProgram(program, 1, &device, "-DVALUE=8", NULL, NULL));
    say("answer %d", run_answer(program));
}

CASE(a_program_describes_itself) {
    open_device();
    cl_program program = program_of("kernel void one(void) {} kernel void two(int a) {}", "");
    CHECK(INFO(cl_context, clGetProgramInfo, program, CL_PROGRAM_CONTEXT) == context, "the context");
    CHECK(INFO(cl_uint, clGetProgramInfo, program, CL_PROGRAM_NUM_DEVICES) == 1, "the number of devices");
    CHECK(INFO(cl_device_id, clGetProgramInfo, program, CL_PROGRAM_DEVICES) == device, "the device");
    char names[100] = "";
    OK(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof names, names, NULL));
    say("%zu kernels: %s", INFO(size_t, clGetProgramInfo, program, CL_PROGRAM_NUM_KERNELS), names);
    CHECK(INFO(size_t, clGetProgramInfo, program, CL_PROGRAM_NUM_KERNELS) == 2, "the number of kernels");
    CHECK(strstr(names, "one") && strstr(names, "two"), "the names");
    cl_program_binary_type type = 0;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    say("binary type %#x", type);
    CHECK(type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE, "the binary type is %#x", type);
}

CASE(a_program_that_is_not_built_has_no_kernels) {
    open_device();
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &answer, NULL, &err));
    size_t count;
    EXPECT(CL_INVALID_PROGRAM_EXECUTABLE, clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof count, &count, NULL));
    EXPECT_CREATE(CL_INVALID_PROGRAM_EXECUTABLE, clCreateKernel(program, "answer", &err));
}

/* A new directory with `name` in it, whose path needs no quotes. */
static const char *directory_with(const char *name, const char *content) {
    static char directory[64];
    strcpy(directory, "/tmp/telecl-case-XXXXXX");
    NEED(mkdtemp(directory), "no temporary directory");
    char path[200];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    NEED(file, "cannot write %s", path);
    fputs(content, file);
    fclose(file);
    return directory;
}

static void remove_directory(const char *directory, const char *name) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    unlink(path);
    rmdir(directory);
}

CASE(an_include_directory_of_the_client_is_found) {
    open_device();
    const char *directory = directory_with("value.h", "#define VALUE 1234\n");
    const char *source = "#include \"value.h\"\nkernel void answer(global int *out) { *out = VALUE; }";
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    char options[200];
    const char *forms[] = {"-I %s", "-I%s"};
    for (int i = 0; i < 2; i++) {
        snprintf(options, sizeof options, forms[i], directory);
        cl_int status = clBuildProgram(program, 1, &device, options, NULL, NULL);
        if (status != CL_SUCCESS) print_build_log(program);
        say("%s: %s, answer %d", forms[i], error_name(status), run_answer(program));
        CHECK(run_answer(program) == 1234, "the header was not found by %s", forms[i]);
    }
    remove_directory(directory, "value.h");
}

CASE(a_changed_header_makes_another_program) {
    open_device();
    const char *source = "#include \"value.h\"\nkernel void answer(global int *out) { *out = VALUE; }";
    for (int i = 1; i <= 2; i++) {
        const char *directory = directory_with("value.h", i == 1 ? "#define VALUE 1\n" : "#define VALUE 2\n");
        char options[200];
        snprintf(options, sizeof options, "-I %s", directory);
        cl_program program = program_of(source, options);
        say("answer %d", run_answer(program));
        CHECK(run_answer(program) == i, "an old program was taken for the new one");
        remove_directory(directory, "value.h");
    }
}

/* The way hashcat does it: no -I, the directory is inside a macro. */
CASE(an_include_through_a_macro_that_holds_a_path_is_found) {
    open_device();
    const char *directory = directory_with("inc_value.h", "#define VALUE 4321\n");
    const char *source = "#define S2S(x) #x\n#define M2S(x) S2S(x)\n#include M2S(INCLUDE_PATH/inc_value.h)\n"
                         "kernel void answer(global int *out) { *out = VALUE; }";
    cl_program program = MADE(clCreateProgramWithSource(context, 1, &source, NULL, &err));
    char options[200];
    snprintf(options, sizeof options, "-D KERNEL_STATIC -D INCLUDE_PATH=%s -D XM2S(x)=#x", directory);
    cl_int status = clBuildProgram(program, 1, &device, options, NULL, NULL);
    if (status != CL_SUCCESS) print_build_log(program);
    say("%s, answer %d", error_name(status), run_answer(program));
    CHECK(run_answer(program) == 4321, "the header was not found");
    remove_directory(directory, "inc_value.h");
}

CASE(a_header_that_includes_its_neighbour_is_found) {
    open_device();
    const char *directory = directory_with("outer.h", "#include \"deep/inner.h\"\n");
    char path[200];
    snprintf(path, sizeof path, "%s/deep", directory);
    NEED(mkdir(path, 0700) == 0, "no directory");
    snprintf(path, sizeof path, "%s/deep/inner.h", directory);
    FILE *file = fopen(path, "w");
    fputs("#define VALUE 99\n", file);
    fclose(file);
    char options[200];
    snprintf(options, sizeof options, "-I %s", directory);
    cl_program program = program_of("#include <outer.h>\nkernel void answer(global int *out) { *out = VALUE; }", options);
    say("answer %d", run_answer(program));
    CHECK(run_answer(program) == 99, "the inner header was not found");
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
    remove_directory(directory, "outer.h");
}
