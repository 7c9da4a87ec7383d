/* Every clGet*Info function: the value, the size it needs, and what it refuses. */
#include "common.h"

struct query {
    const char *text;
    cl_uint name;
    enum { SHOW, SIZE_ONLY, HIDE } value; /* whether the value, only its size, or neither is the same everywhere */
};
#define Q(name) {#name, name, SHOW}
#define Q_SIZE(name) {#name, name, SIZE_ONLY}
#define Q_HIDE(name) {#name, name, HIDE}

typedef cl_int (*getter)(void *object, cl_uint name, size_t size, void *value, size_t *needed);

static char large[1 << 16];

/* Asks for size, value, too small a size and an unknown name, in the way all clGet*Info functions share. */
static void ask_all(getter get, void *object, const struct query *queries, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct query *q = &queries[i];
        size_t size = 0, again = 0;
        cl_int status = get(object, q->name, 0, NULL, &size);
        printf("%s: %s", q->text, error_name(status));
        if (status != CL_SUCCESS) {
            putchar('\n');
            continue;
        }
        memset(large, 0xee, sizeof large);
        cl_int full = get(object, q->name, sizeof large, large, &again);
        if (q->value != HIDE) printf(", %zu bytes", size);
        if (q->value == SHOW && size <= 8) {
            printf(", ");
            for (size_t b = 0; b < size; b++) printf("%02x", (unsigned char)large[b]);
        } else if (q->value == SHOW) {
            printf(", digest %016llx", (unsigned long long)digest(large, size));
        }
        putchar('\n');
        CHECK(full == CL_SUCCESS && again == size, "%s: %s and %zu bytes", q->text, error_name(full), again);
        CHECK(size == sizeof large || large[size] == (char)0xee, "%s: wrote past its size", q->text);
        if (size > 0) {
            CHECK(get(object, q->name, size - 1, large, NULL) == CL_INVALID_VALUE, "%s: took a size too small", q->text);
            CHECK(get(object, q->name, size, large, NULL) == CL_SUCCESS, "%s: refused the exact size", q->text);
        }
    }
    EXPECT(CL_INVALID_VALUE, get(object, 0x7fff1234, sizeof large, large, NULL));
}
#define ASK(get, object, queries) ask_all(get, object, queries, sizeof queries / sizeof *queries)

static cl_int get_platform(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetPlatformInfo(o, n, s, v, r); }
static cl_int get_device(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetDeviceInfo(o, n, s, v, r); }
static cl_int get_context(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetContextInfo(o, n, s, v, r); }
static cl_int get_queue(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetCommandQueueInfo(o, n, s, v, r); }
static cl_int get_mem(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetMemObjectInfo(o, n, s, v, r); }
static cl_int get_image(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetImageInfo(o, n, s, v, r); }
static cl_int get_sampler(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetSamplerInfo(o, n, s, v, r); }
static cl_int get_program(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetProgramInfo(o, n, s, v, r); }
static cl_int get_build(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetProgramBuildInfo(o, device, n, s, v, r); }
static cl_int get_kernel(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetKernelInfo(o, n, s, v, r); }
static cl_int get_arg(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetKernelArgInfo(o, 0, n, s, v, r); }
static cl_int get_group(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetKernelWorkGroupInfo(o, device, n, s, v, r); }
static cl_int get_event(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetEventInfo(o, n, s, v, r); }
static cl_int get_profile(void *o, cl_uint n, size_t s, void *v, size_t *r) { return clGetEventProfilingInfo(o, n, s, v, r); }

CASE(platform_information) {
    open_device();
    /* telecl adds the node to the name and masks extensions. */
    const struct query queries[] = {
        Q(CL_PLATFORM_PROFILE), Q(CL_PLATFORM_VERSION), Q_HIDE(CL_PLATFORM_NAME), Q(CL_PLATFORM_VENDOR), Q_HIDE(CL_PLATFORM_EXTENSIONS),
        Q_SIZE(CL_PLATFORM_HOST_TIMER_RESOLUTION), Q(CL_PLATFORM_NUMERIC_VERSION), Q_HIDE(CL_PLATFORM_EXTENSIONS_WITH_VERSION),
        Q_HIDE(CL_PLATFORM_ICD_SUFFIX_KHR)};
    ASK(get_platform, platform, queries);
    CHECK(clGetPlatformInfo(platform, CL_PLATFORM_NAME, 0, NULL, NULL) == CL_SUCCESS, "a query for nothing is allowed");
}

CASE(device_information) {
    open_device();
    const struct query queries[] = {
        Q(CL_DEVICE_TYPE), Q(CL_DEVICE_VENDOR_ID), Q(CL_DEVICE_MAX_COMPUTE_UNITS), Q(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS),
        Q(CL_DEVICE_MAX_WORK_GROUP_SIZE), Q(CL_DEVICE_MAX_WORK_ITEM_SIZES), Q(CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR),
        Q(CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT), Q(CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT), Q(CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG),
        Q(CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT), Q(CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE), Q(CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF),
        Q(CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR), Q(CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT), Q(CL_DEVICE_NATIVE_VECTOR_WIDTH_INT),
        Q(CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG), Q(CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT), Q(CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE),
        Q(CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF), Q_SIZE(CL_DEVICE_MAX_CLOCK_FREQUENCY), Q(CL_DEVICE_ADDRESS_BITS), Q(CL_DEVICE_MAX_READ_IMAGE_ARGS),
        Q(CL_DEVICE_MAX_WRITE_IMAGE_ARGS), Q(CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS), Q(CL_DEVICE_MAX_MEM_ALLOC_SIZE), Q(CL_DEVICE_IMAGE2D_MAX_WIDTH),
        Q(CL_DEVICE_IMAGE2D_MAX_HEIGHT), Q(CL_DEVICE_IMAGE3D_MAX_WIDTH), Q(CL_DEVICE_IMAGE3D_MAX_HEIGHT), Q(CL_DEVICE_IMAGE3D_MAX_DEPTH),
        Q(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE), Q(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE), Q(CL_DEVICE_IMAGE_SUPPORT), Q(CL_DEVICE_MAX_PARAMETER_SIZE),
        Q(CL_DEVICE_MAX_SAMPLERS), Q(CL_DEVICE_IMAGE_PITCH_ALIGNMENT), Q(CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT), Q(CL_DEVICE_MEM_BASE_ADDR_ALIGN),
        Q(CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE), Q(CL_DEVICE_SINGLE_FP_CONFIG), Q(CL_DEVICE_DOUBLE_FP_CONFIG), Q(CL_DEVICE_GLOBAL_MEM_CACHE_TYPE),
        Q(CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE), Q(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE), Q(CL_DEVICE_GLOBAL_MEM_SIZE), Q(CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE),
        Q(CL_DEVICE_MAX_CONSTANT_ARGS), Q(CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE), Q(CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE),
        Q(CL_DEVICE_LOCAL_MEM_TYPE), Q(CL_DEVICE_LOCAL_MEM_SIZE), Q(CL_DEVICE_ERROR_CORRECTION_SUPPORT), Q(CL_DEVICE_PROFILING_TIMER_RESOLUTION),
        Q(CL_DEVICE_ENDIAN_LITTLE), Q(CL_DEVICE_AVAILABLE), Q(CL_DEVICE_COMPILER_AVAILABLE), Q(CL_DEVICE_LINKER_AVAILABLE),
        Q(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES), Q(CL_DEVICE_BUILT_IN_KERNELS), Q(CL_DEVICE_NAME), Q(CL_DEVICE_VENDOR), Q(CL_DRIVER_VERSION),
        Q(CL_DEVICE_PROFILE), Q(CL_DEVICE_VERSION), Q(CL_DEVICE_NUMERIC_VERSION), Q(CL_DEVICE_OPENCL_C_VERSION), Q(CL_DEVICE_OPENCL_C_ALL_VERSIONS),
        Q(CL_DEVICE_OPENCL_C_FEATURES), Q(CL_DEVICE_PRINTF_BUFFER_SIZE), Q(CL_DEVICE_PREFERRED_INTEROP_USER_SYNC), Q_SIZE(CL_DEVICE_PARENT_DEVICE),
        Q(CL_DEVICE_PARTITION_MAX_SUB_DEVICES), Q(CL_DEVICE_PARTITION_PROPERTIES), Q(CL_DEVICE_PARTITION_AFFINITY_DOMAIN), Q(CL_DEVICE_PARTITION_TYPE),
        Q(CL_DEVICE_REFERENCE_COUNT), Q_SIZE(CL_DEVICE_PLATFORM), Q(CL_DEVICE_IL_VERSION), Q(CL_DEVICE_ILS_WITH_VERSION),
        Q(CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION), Q(CL_DEVICE_MAX_NUM_SUB_GROUPS), Q(CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS),
        Q(CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES), Q(CL_DEVICE_ATOMIC_FENCE_CAPABILITIES), Q(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT),
        Q(CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE), Q(CL_DEVICE_WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT), Q(CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT),
        Q(CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED), Q(CL_DEVICE_HOST_UNIFIED_MEMORY), Q(CL_DEVICE_PREFERRED_PLATFORM_ATOMIC_ALIGNMENT),
        Q(CL_DEVICE_PREFERRED_GLOBAL_ATOMIC_ALIGNMENT), Q(CL_DEVICE_PREFERRED_LOCAL_ATOMIC_ALIGNMENT), Q(CL_DEVICE_PIPE_SUPPORT), Q(CL_DEVICE_MAX_PIPE_ARGS),
        Q(CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS), Q(CL_DEVICE_PIPE_MAX_PACKET_SIZE), Q(CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES),
        Q(CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE), Q(CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE), Q(CL_DEVICE_MAX_ON_DEVICE_QUEUES),
        Q(CL_DEVICE_MAX_ON_DEVICE_EVENTS), Q(CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES),
        /* telecl masks what it does not forward: extensions, SVM, native kernels. */
        Q_HIDE(CL_DEVICE_EXTENSIONS), Q_HIDE(CL_DEVICE_EXTENSIONS_WITH_VERSION), Q_SIZE(CL_DEVICE_SVM_CAPABILITIES), Q_SIZE(CL_DEVICE_EXECUTION_CAPABILITIES)};
    ASK(get_device, device, queries);
    CHECK(INFO(cl_platform_id, clGetDeviceInfo, device, CL_DEVICE_PLATFORM) == platform, "the device is of another platform");
    CHECK(INFO(cl_device_id, clGetDeviceInfo, device, CL_DEVICE_PARENT_DEVICE) == NULL, "a root device has a parent");
}

CASE(context_information) {
    open_device();
    const struct query queries[] = {Q_SIZE(CL_CONTEXT_REFERENCE_COUNT), Q(CL_CONTEXT_NUM_DEVICES), Q_SIZE(CL_CONTEXT_DEVICES), Q_SIZE(CL_CONTEXT_PROPERTIES)};
    ASK(get_context, context, queries);
    CHECK(INFO(cl_device_id, clGetContextInfo, context, CL_CONTEXT_DEVICES) == device, "the context is of another device");
}

CASE(queue_information) {
    open_device();
    const struct query queries[] = {Q_SIZE(CL_QUEUE_CONTEXT), Q_SIZE(CL_QUEUE_DEVICE), Q_SIZE(CL_QUEUE_REFERENCE_COUNT), Q(CL_QUEUE_PROPERTIES),
                                    Q(CL_QUEUE_PROPERTIES_ARRAY), Q(CL_QUEUE_SIZE), Q(CL_QUEUE_DEVICE_DEFAULT)};
    ASK(get_queue, queue, queries);
}

CASE(memory_and_image_information) {
    open_device();
    const struct query queries[] = {Q(CL_MEM_TYPE), Q(CL_MEM_FLAGS), Q(CL_MEM_SIZE), Q(CL_MEM_HOST_PTR), Q(CL_MEM_MAP_COUNT), Q_SIZE(CL_MEM_REFERENCE_COUNT),
                                    Q_SIZE(CL_MEM_CONTEXT), Q(CL_MEM_ASSOCIATED_MEMOBJECT), Q(CL_MEM_OFFSET), Q(CL_MEM_USES_SVM_POINTER), Q(CL_MEM_PROPERTIES)};
    cl_mem buffer = buffer_of(CL_MEM_READ_ONLY | CL_MEM_HOST_WRITE_ONLY, 4711, NULL);
    ASK(get_mem, buffer, queries);
    cl_image_format format = {CL_RGBA, CL_FLOAT};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 5, .image_height = 6, .image_depth = 7};
    cl_mem image = MADE(clCreateImage(context, CL_MEM_READ_ONLY, &format, &desc, NULL, &err));
    ASK(get_mem, image, queries);
    const struct query image_queries[] = {Q(CL_IMAGE_FORMAT), Q(CL_IMAGE_ELEMENT_SIZE), Q(CL_IMAGE_ROW_PITCH), Q(CL_IMAGE_SLICE_PITCH), Q(CL_IMAGE_WIDTH),
                                          Q(CL_IMAGE_HEIGHT), Q(CL_IMAGE_DEPTH), Q(CL_IMAGE_ARRAY_SIZE), Q(CL_IMAGE_BUFFER), Q(CL_IMAGE_NUM_MIP_LEVELS), Q(CL_IMAGE_NUM_SAMPLES)};
    ASK(get_image, image, image_queries);
}

CASE(sampler_information) {
    open_device();
    cl_sampler sampler = MADE(clCreateSampler(context, CL_TRUE, CL_ADDRESS_REPEAT, CL_FILTER_LINEAR, &err));
    const struct query queries[] = {Q_SIZE(CL_SAMPLER_REFERENCE_COUNT), Q_SIZE(CL_SAMPLER_CONTEXT), Q(CL_SAMPLER_NORMALIZED_COORDS), Q(CL_SAMPLER_ADDRESSING_MODE), Q(CL_SAMPLER_FILTER_MODE), Q(CL_SAMPLER_PROPERTIES)};
    ASK(get_sampler, sampler, queries);
}

CASE(program_information) {
    open_device();
    cl_program program = program_of("kernel void one(int a) {} kernel void two(void) {}", "-DX=1");
    /* A binary is the vendor's, and telecl's carries a prefix. */
    const struct query queries[] = {Q_SIZE(CL_PROGRAM_REFERENCE_COUNT), Q_SIZE(CL_PROGRAM_CONTEXT), Q(CL_PROGRAM_NUM_DEVICES), Q_SIZE(CL_PROGRAM_DEVICES), Q(CL_PROGRAM_SOURCE),
                                    Q_SIZE(CL_PROGRAM_BINARY_SIZES), Q(CL_PROGRAM_NUM_KERNELS), Q(CL_PROGRAM_KERNEL_NAMES), Q(CL_PROGRAM_IL),
                                    Q(CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT), Q(CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT)};
    ASK(get_program, program, queries);
    const struct query build_queries[] = {Q(CL_PROGRAM_BUILD_STATUS), Q(CL_PROGRAM_BUILD_OPTIONS), Q_HIDE(CL_PROGRAM_BUILD_LOG), Q(CL_PROGRAM_BINARY_TYPE),
                                          Q(CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE)};
    ASK(get_build, program, build_queries);
}

CASE(kernel_information) {
    open_device();
    cl_program program = program_of("kernel void named(global int *first, int second) { *first = second; }", "-cl-kernel-arg-info");
    cl_kernel kernel = MADE(clCreateKernel(program, "named", &err));
    const struct query queries[] = {Q(CL_KERNEL_FUNCTION_NAME), Q(CL_KERNEL_NUM_ARGS), Q_SIZE(CL_KERNEL_REFERENCE_COUNT), Q_SIZE(CL_KERNEL_CONTEXT), Q_SIZE(CL_KERNEL_PROGRAM), Q(CL_KERNEL_ATTRIBUTES)};
    ASK(get_kernel, kernel, queries);
    const struct query arg_queries[] = {Q(CL_KERNEL_ARG_ADDRESS_QUALIFIER), Q(CL_KERNEL_ARG_ACCESS_QUALIFIER), Q(CL_KERNEL_ARG_TYPE_NAME), Q(CL_KERNEL_ARG_TYPE_QUALIFIER), Q(CL_KERNEL_ARG_NAME)};
    ASK(get_arg, kernel, arg_queries);
    const struct query group_queries[] = {Q(CL_KERNEL_WORK_GROUP_SIZE), Q(CL_KERNEL_COMPILE_WORK_GROUP_SIZE), Q(CL_KERNEL_LOCAL_MEM_SIZE), Q(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE), Q(CL_KERNEL_PRIVATE_MEM_SIZE)};
    ASK(get_group, kernel, group_queries);
}

CASE(event_information) {
    open_device();
    cl_command_queue profiled = MADE(clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &err));
    cl_event event;
    OK(clEnqueueMarkerWithWaitList(profiled, 0, NULL, &event));
    OK(clFinish(profiled));
    const struct query queries[] = {Q_SIZE(CL_EVENT_COMMAND_QUEUE), Q(CL_EVENT_COMMAND_TYPE), Q_SIZE(CL_EVENT_REFERENCE_COUNT), Q(CL_EVENT_COMMAND_EXECUTION_STATUS), Q_SIZE(CL_EVENT_CONTEXT)};
    ASK(get_event, event, queries);
    const struct query times[] = {Q_SIZE(CL_PROFILING_COMMAND_QUEUED), Q_SIZE(CL_PROFILING_COMMAND_SUBMIT), Q_SIZE(CL_PROFILING_COMMAND_START), Q_SIZE(CL_PROFILING_COMMAND_END), Q_SIZE(CL_PROFILING_COMMAND_COMPLETE)};
    ASK(get_profile, event, times);
}

CASE(queries_of_nothing_are_refused) {
    open_device();
    EXPECT(CL_INVALID_DEVICE, clGetDeviceInfo(NULL, CL_DEVICE_TYPE, sizeof large, large, NULL));
    EXPECT(CL_INVALID_CONTEXT, clGetContextInfo(NULL, CL_CONTEXT_NUM_DEVICES, sizeof large, large, NULL));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clGetCommandQueueInfo(NULL, CL_QUEUE_PROPERTIES, sizeof large, large, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clGetMemObjectInfo(NULL, CL_MEM_SIZE, sizeof large, large, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clGetImageInfo(NULL, CL_IMAGE_WIDTH, sizeof large, large, NULL));
    EXPECT(CL_INVALID_SAMPLER, clGetSamplerInfo(NULL, CL_SAMPLER_FILTER_MODE, sizeof large, large, NULL));
    EXPECT(CL_INVALID_PROGRAM, clGetProgramInfo(NULL, CL_PROGRAM_SOURCE, sizeof large, large, NULL));
    EXPECT(CL_INVALID_PROGRAM, clGetProgramBuildInfo(NULL, device, CL_PROGRAM_BUILD_STATUS, sizeof large, large, NULL));
    EXPECT(CL_INVALID_KERNEL, clGetKernelInfo(NULL, CL_KERNEL_NUM_ARGS, sizeof large, large, NULL));
    EXPECT(CL_INVALID_KERNEL, clGetKernelWorkGroupInfo(NULL, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof large, large, NULL));
    EXPECT(CL_INVALID_EVENT, clGetEventInfo(NULL, CL_EVENT_COMMAND_TYPE, sizeof large, large, NULL));
}
