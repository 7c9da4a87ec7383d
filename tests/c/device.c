/* Platforms, devices, sub-devices, contexts, versions and timers. */
#include "common.h"

CASE(platforms_and_devices_are_counted_and_listed) {
    cl_uint platforms = 0, devices = 0;
    cl_platform_id list[1];
    EXPECT(CL_SUCCESS, clGetPlatformIDs(0, NULL, &platforms));
    say("%u platform", platforms);
    CHECK(platforms == 1, "%u platforms", platforms);
    EXPECT(CL_SUCCESS, clGetPlatformIDs(1, list, &platforms));
    EXPECT(CL_INVALID_VALUE, clGetPlatformIDs(0, list, NULL));
    EXPECT(CL_INVALID_VALUE, clGetPlatformIDs(0, NULL, NULL));
    open_device();
    EXPECT(CL_SUCCESS, clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &devices));
    say("%u device", devices);
    EXPECT(CL_SUCCESS, clGetDeviceIDs(platform, CL_DEVICE_TYPE_DEFAULT, 0, NULL, &devices));
    cl_device_type type = INFO(cl_device_type, clGetDeviceInfo, device, CL_DEVICE_TYPE);
    EXPECT(CL_SUCCESS, clGetDeviceIDs(platform, type, 0, NULL, &devices));
    EXPECT(CL_DEVICE_NOT_FOUND, clGetDeviceIDs(platform, CL_DEVICE_TYPE_CUSTOM, 0, NULL, &devices));
    EXPECT(CL_INVALID_VALUE, clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, &device, NULL));
    EXPECT(CL_INVALID_VALUE, clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, NULL));
    DEVIATES(CL_INVALID_DEVICE_TYPE, clGetDeviceIDs(platform, 1u << 20, 1, &device, NULL));
}

CASE(the_same_device_has_the_same_handle_every_time) {
    open_device();
    cl_device_id again;
    cl_platform_id platform_again;
    OK(clGetPlatformIDs(1, &platform_again, NULL));
    OK(clGetDeviceIDs(platform_again, CL_DEVICE_TYPE_ALL, 1, &again, NULL));
    say("same platform %d, same device %d", platform_again == platform, again == device);
    CHECK(platform_again == platform && again == device, "handles changed");
}

static int has_word(const char *words, const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return 1;
    return 0;
}

CASE(the_platform_says_it_is_for_icd_loaders) {
    open_device();
    static char extensions[8192], suffix[64];
    OK(clGetPlatformInfo(platform, CL_PLATFORM_EXTENSIONS, sizeof extensions, extensions, NULL));
    OK(clGetPlatformInfo(platform, CL_PLATFORM_ICD_SUFFIX_KHR, sizeof suffix, suffix, NULL));
    say("cl_khr_icd %d, suffix %s", has_word(extensions, "cl_khr_icd"), suffix[0] ? "there" : "empty");
    CHECK(has_word(extensions, "cl_khr_icd"), "cl_khr_icd is missing");
    CHECK(suffix[0], "the suffix is empty");
}

CASE(the_extension_list_and_string_agree) {
    open_device();
    static char text[16384];
    static cl_name_version list[256];
    size_t size = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof text, text, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS_WITH_VERSION, sizeof list, list, &size));
    size_t words = 0, count = size / sizeof *list;
    for (size_t i = 0; i < count; i++) CHECK(has_word(text, list[i].name), "%s is only in the list", list[i].name);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) words++;
    CHECK(words == count, "%zu words and %zu entries", words, count);
}

/* What telecl cannot do over a network must not be offered. */
CASE_TELECL_ONLY(extensions_that_cannot_be_remoted_are_masked) {
    open_device();
    static char text[16384];
    const char *masked[] = {"cl_khr_gl_sharing", "cl_khr_gl_event", "cl_khr_egl_image", "cl_khr_d3d10_sharing", "cl_khr_external_memory",
                            "cl_khr_external_semaphore", "cl_khr_command_buffer", "cl_intel_va_api_media_sharing"};
    OK(clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof text, text, NULL));
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++) CHECK(!has_word(text, masked[i]), "%s is offered", masked[i]);
    CHECK(!(INFO(cl_device_exec_capabilities, clGetDeviceInfo, device, CL_DEVICE_EXECUTION_CAPABILITIES) & CL_EXEC_NATIVE_KERNEL), "native kernels are offered");
    EXPECT(CL_INVALID_OPERATION, clEnqueueNativeKernel(queue, (void(CL_CALLBACK *)(void *))abort, NULL, 0, 0, NULL, NULL, 0, NULL, NULL));
}

CASE(numeric_versions_agree_with_the_strings) {
    open_device();
    char text[256];
    unsigned major = 0, minor = 0;
    OK(clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof text, text, NULL));
    NEED(sscanf(text, "OpenCL %u.%u", &major, &minor) == 2, "the version is \"%s\"", text);
    cl_version version = INFO(cl_version, clGetPlatformInfo, platform, CL_PLATFORM_NUMERIC_VERSION);
    say("platform %u.%u", CL_VERSION_MAJOR(version), CL_VERSION_MINOR(version));
    CHECK(CL_VERSION_MAJOR(version) == major && CL_VERSION_MINOR(version) == minor, "the string says %u.%u", major, minor);
    OK(clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof text, text, NULL));
    NEED(sscanf(text, "OpenCL %u.%u", &major, &minor) == 2, "the version is \"%s\"", text);
    version = INFO(cl_version, clGetDeviceInfo, device, CL_DEVICE_NUMERIC_VERSION);
    say("device %u.%u", CL_VERSION_MAJOR(version), CL_VERSION_MINOR(version));
    CHECK(CL_VERSION_MAJOR(version) == major && CL_VERSION_MINOR(version) == minor, "the string says %u.%u", major, minor);
}

CASE(extension_functions_are_found_by_name_or_not_at_all) {
    open_device();
    say("unknown: %s", clGetExtensionFunctionAddressForPlatform(platform, "clNoSuchFunctionTELECL") ? "found" : "not found");
    CHECK(!clGetExtensionFunctionAddressForPlatform(platform, "clNoSuchFunctionTELECL"), "an unknown function was found");
}

CASE(host_and_device_timers_answer_as_the_platform_does) {
    open_device();
    cl_ulong host = 0, device_time = 0, later = 0;
    cl_int status = clGetDeviceAndHostTimer(device, &device_time, &host);
    say("both: %s, host only: %s", error_name(status), error_name(clGetHostTimer(device, &later)));
    if (status == CL_SUCCESS) CHECK(host > 0 && device_time > 0 && later >= host, "the timers go backwards");
    cl_ulong resolution = INFO(cl_ulong, clGetPlatformInfo, platform, CL_PLATFORM_HOST_TIMER_RESOLUTION);
    CHECK((status == CL_SUCCESS) == (resolution != 0), "the resolution is %llu", (unsigned long long)resolution);
}

CASE(a_device_is_partitioned_equally) {
    open_device();
    cl_uint units = INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_MAX_COMPUTE_UNITS);
    if (INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES) < 2 || units < 2) SKIP("the device cannot be divided");
    cl_device_partition_property each_one[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_uint count = 0;
    EXPECT(CL_SUCCESS, clCreateSubDevices(device, each_one, 0, NULL, &count));
    CHECK(count == units, "%u sub-devices of %u units", count, units);
    cl_device_id *parts = calloc(count, sizeof *parts);
    EXPECT(CL_SUCCESS, clCreateSubDevices(device, each_one, count, parts, NULL));
    for (cl_uint i = 0; i < count; i++) {
        CHECK(INFO(cl_device_id, clGetDeviceInfo, parts[i], CL_DEVICE_PARENT_DEVICE) == device, "part %u has another parent", i);
        CHECK(INFO(cl_uint, clGetDeviceInfo, parts[i], CL_DEVICE_MAX_COMPUTE_UNITS) == 1, "part %u is larger", i);
    }
    cl_context of_part = MADE(clCreateContext(NULL, 1, &parts[0], NULL, NULL, &err));
    cl_command_queue on_part = MADE(clCreateCommandQueue(of_part, parts[0], 0, &err));
    cl_int value = 6, result = 0;
    cl_mem buffer = MADE(clCreateBuffer(of_part, CL_MEM_COPY_HOST_PTR, 4, &value, &err));
    OK(clEnqueueReadBuffer(on_part, buffer, CL_TRUE, 0, 4, &result, 0, NULL, NULL));
    say("read on a sub-device: %d", result);
    CHECK(result == 6, "the sub-device read %d", result);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(on_part));
    OK(clReleaseContext(of_part));
    for (cl_uint i = 0; i < count; i++) EXPECT(CL_SUCCESS, clReleaseDevice(parts[i]));
}

CASE(what_is_built_for_a_device_runs_on_its_sub_devices) {
    open_device();
    if (INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES) < 2) SKIP("the device cannot be divided");
    cl_device_partition_property counts[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1, CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl_device_id both[2] = {NULL, device};
    OK(clCreateSubDevices(device, counts, 1, both, NULL));
    close_device();
    context = MADE(clCreateContext(NULL, 2, both, NULL, NULL, &err));
    queue = MADE(clCreateCommandQueue(context, both[0], 0, &err));
    cl_kernel kernel = kernel_of("kernel void put(global int *a) { a[0] = 19; }", "put"); /* built for `device` only */
    cl_program program = INFO(cl_program, clGetKernelInfo, kernel, CL_KERNEL_PROGRAM);
    cl_build_status status = 1;
    EXPECT(CL_SUCCESS, clGetProgramBuildInfo(program, both[0], CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    CHECK(status == CL_BUILD_SUCCESS, "the status is %d", status);
    size_t one = 1, most = 0;
    EXPECT(CL_SUCCESS, clGetKernelWorkGroupInfo(kernel, both[0], CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL));
    CHECK(most > 0, "no work-group fits");
    cl_int result = 0;
    cl_mem buffer = buffer_of(0, sizeof result, NULL);
    set_arg(kernel, 0, sizeof buffer, &buffer);
    EXPECT(CL_SUCCESS, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    read_all(buffer, &result, sizeof result);
    say("the sub-device wrote %d", result);
    CHECK(result == 19, "the kernel did not run");
}

CASE(a_kernel_runs_on_a_sub_device) {
    open_device();
    if (INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES) < 2) SKIP("the device cannot be divided");
    cl_device_partition_property counts[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1, CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl_uint count = 0;
    cl_device_id part;
    EXPECT(CL_SUCCESS, clCreateSubDevices(device, counts, 1, &part, &count));
    say("%u sub-device", count);
    close_device();
    device = part;
    context = MADE(clCreateContext(NULL, 1, &part, NULL, NULL, &err));
    queue = MADE(clCreateCommandQueue(context, part, 0, &err));
    cl_kernel kernel = kernel_of("kernel void put(global int *a) { a[get_global_id(0)] = get_global_id(0) * 2; }", "put");
    cl_int result[4];
    cl_mem buffer = buffer_of(0, sizeof result, NULL);
    set_arg(kernel, 0, sizeof buffer, &buffer);
    run_kernel(kernel, 4);
    read_all(buffer, result, sizeof result);
    show_ints("result", result, 4);
    CHECK(result[3] == 6, "the kernel wrote %d", result[3]);
}

CASE(impossible_partitions_are_refused) {
    open_device();
    cl_uint units = INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_MAX_COMPUTE_UNITS), count;
    if (INFO(cl_uint, clGetDeviceInfo, device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES) < 2) SKIP("the device cannot be divided");
    cl_device_partition_property unknown[] = {0x7fff, 1, 0}, too_large[] = {CL_DEVICE_PARTITION_EQUALLY, units + 1, 0};
    cl_device_partition_property too_many[] = {CL_DEVICE_PARTITION_BY_COUNTS, units, 1, CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl_device_partition_property each_one[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_id one;
    EXPECT(CL_INVALID_DEVICE, clCreateSubDevices(NULL, each_one, 0, NULL, &count));
    EXPECT(CL_INVALID_VALUE, clCreateSubDevices(device, NULL, 0, NULL, &count));
    EXPECT(CL_INVALID_VALUE, clCreateSubDevices(device, unknown, 0, NULL, &count));
    DEVIATES(CL_DEVICE_PARTITION_FAILED, clCreateSubDevices(device, too_large, 0, NULL, &count));
    EXPECT(CL_INVALID_DEVICE_PARTITION_COUNT, clCreateSubDevices(device, too_many, 0, NULL, &count));
    if (units > 1) EXPECT(CL_INVALID_VALUE, clCreateSubDevices(device, each_one, 1, &one, NULL));
}

CASE(a_context_is_made_from_a_type) {
    open_device();
    cl_device_type type = INFO(cl_device_type, clGetDeviceInfo, device, CL_DEVICE_TYPE);
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_context typed = MADE(clCreateContextFromType(properties, type, NULL, NULL, &err));
    CHECK(INFO(cl_device_id, clGetContextInfo, typed, CL_CONTEXT_DEVICES) == device, "the context has another device");
    cl_context_properties kept[8] = {0};
    size_t size = 0;
    OK(clGetContextInfo(typed, CL_CONTEXT_PROPERTIES, sizeof kept, kept, &size));
    say("%zu properties", size / sizeof *kept);
    CHECK(size == sizeof properties && memcmp(kept, properties, size) == 0, "the properties are not those given");
    EXPECT(CL_SUCCESS, clReleaseContext(typed));
    EXPECT(CL_DEVICE_NOT_FOUND, STATUS(clCreateContextFromType(properties, CL_DEVICE_TYPE_CUSTOM, NULL, NULL, &err)));
    DEVIATES(CL_INVALID_DEVICE_TYPE, STATUS(clCreateContextFromType(properties, 1u << 20, NULL, NULL, &err)));
}

static void CL_CALLBACK on_error(const char *what, const void *data, size_t size, void *user) { (void)what, (void)data, (void)size, (void)user; }

CASE(wrong_contexts_are_refused) {
    open_device();
    cl_context_properties no_platform[] = {CL_CONTEXT_PLATFORM, 0, 0}, unknown[] = {0x7fff, 1, 0};
    cl_context_properties twice[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateContext(NULL, 0, &device, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateContext(NULL, 1, NULL, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_VALUE, clCreateContext(NULL, 1, &device, NULL, &device, &err));
    EXPECT_CREATE(CL_INVALID_DEVICE, clCreateContext(NULL, 1, (cl_device_id[]){NULL}, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_PLATFORM, clCreateContext(no_platform, 1, &device, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_PROPERTY, clCreateContext(unknown, 1, &device, NULL, NULL, &err));
    EXPECT_CREATE(CL_INVALID_PROPERTY, clCreateContext(twice, 1, &device, NULL, NULL, &err));
    EXPECT_CREATE(CL_SUCCESS, clCreateContext(NULL, 1, &device, on_error, &device, &err));
}

CASE(a_device_named_twice_is_in_the_context_once) {
    open_device();
    cl_device_id both[2] = {device, device};
    cl_context doubled = MADE(clCreateContext(NULL, 2, both, NULL, NULL, &err));
    say("%u device", INFO(cl_uint, clGetContextInfo, doubled, CL_CONTEXT_NUM_DEVICES));
    CHECK(INFO(cl_uint, clGetContextInfo, doubled, CL_CONTEXT_NUM_DEVICES) == 1, "it is there twice");
}
