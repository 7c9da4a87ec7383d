/* An OpenCL that computes nothing and forgives nothing: it knows every object it has given out, checks every argument
 * against what a correct caller may pass, and aborts where a vendor's driver might crash, or corrupt memory, in silence.
 * What a vendor has to refuse by a status, because only it can know, it refuses by that status.
 *
 * Two devices, one of which is no processor. Commands run on a thread of their own, as a device's do, in the order that
 * their queues and wait lists ask for. Objects are never freed: a handle that was released is known for ever. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define LARGEST (16u << 20)
#define MANY 65536

enum kind { PLATFORM = 1, DEVICE, CONTEXT, QUEUE, MEMORY, SAMPLER, PROGRAM, KERNEL, EVENT };
static const char *const names[] = {"", "platform", "device", "context", "queue", "memory object", "sampler", "program", "kernel", "event"};

struct callback {
    struct callback *next;
    void (CL_CALLBACK *call)(cl_event, cl_int, void *);
    cl_int at;
    void *data;
};

struct destructor {
    struct destructor *next;
    void (CL_CALLBACK *call)(cl_mem, void *);
    void *data;
};

/* Everything. One struct for all kinds keeps this short. */
struct object {
    enum kind kind;
    long refs;
    struct object *context;
    /* Of what it is a part. */
    struct object *parent;
    /* Memory: where its bytes are, how many. Programs: their text. */
    unsigned char *bytes;
    size_t size;
    /* Images. */
    int is_image;
    size_t element, extent[3];
    cl_mem_object_type type;
    cl_mem_flags flags;
    unsigned uses;
    struct destructor *destructors;
    /* Devices and queues. */
    struct object *device;
    cl_device_type device_type;
    cl_command_queue_properties properties;
    struct object *fence;
    /* Programs and kernels. */
    cl_build_status built;
    cl_program_binary_type binary;
    char name[32];
    struct object *arg;
    unsigned char value[4];
    int is_set[3];
    /* Events. */
    cl_int status;
    int is_user;
    struct object *queue;
    struct callback *callbacks;
};

/* What a queue has been given. */
struct command {
    struct command *next;
    struct object *queue, *event;
    struct object **waits;
    unsigned count;
    /* What comes after a barrier waits for it; it, or a marker, waits for all before if there is no list. */
    int is_submitted, is_barrier, waits_for_all;
    void (*run)(struct command *);
    struct object *from, *to;
    unsigned char *host;
    size_t a[3], b[3], region[3], a_row, a_slice, b_row, b_slice;
    unsigned char pattern[128];
    size_t pattern_size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct command *first, **last = &first;
static struct object *known[MANY];
static unsigned count_known;
static int has_thread;
static struct object platform, devices[2];
static unsigned long now = 1;

static void die(const char *function, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "fake OpenCL: %s: ", function);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static unsigned place_of(const void *handle) {
    return (unsigned)(((size_t)handle >> 4) * 2654435761u) % MANY;
}

static void remember(struct object *object) {
    if (++count_known > MANY / 2) die("remember", "more objects than anybody needs");
    unsigned place = place_of(object);
    while (known[place]) place = (place + 1) % MANY;
    known[place] = object;
}

static void set_up(void) {
    if (platform.kind) return;
    platform = (struct object){.kind = PLATFORM, .refs = 1};
    remember(&platform);
    for (int i = 0; i < 2; i++) {
        devices[i] = (struct object){.kind = DEVICE, .refs = 1, .device_type = i ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU};
        remember(&devices[i]);
    }
}

/* The object behind a handle, which must be alive and of this kind. */
static struct object *check(const char *function, const void *handle, enum kind kind) {
    if (!handle) die(function, "a null %s", names[kind]);
    for (unsigned place = place_of(handle); known[place]; place = (place + 1) % MANY)
        if (known[place] == handle) {
            struct object *object = known[place];
            if (object->kind != kind) die(function, "a %s in place of a %s", names[object->kind], names[kind]);
            if (object->refs <= 0) die(function, "a %s that was released", names[kind]);
            return object;
        }
    die(function, "%p is no %s", handle, names[kind]);
    return NULL;
}

static struct object *make(enum kind kind, struct object *context) {
    struct object *object = calloc(1, sizeof *object);
    if (!object) die("make", "no memory");
    object->kind = kind;
    object->refs = 1;
    object->context = context;
    remember(object);
    return object;
}

static void *fail(cl_int *status, cl_int code) {
    if (status) *status = code;
    return NULL;
}

static void *good(cl_int *status, void *made) {
    if (status) *status = CL_SUCCESS;
    return made;
}

#define ENTER pthread_mutex_lock(&lock); set_up()
#define LEAVE pthread_mutex_unlock(&lock)

static cl_int retain(const char *function, void *handle, enum kind kind) {
    ENTER;
    check(function, handle, kind)->refs++;
    LEAVE;
    return CL_SUCCESS;
}

static void destroy_if_unused(struct object *memory);

static cl_int release(const char *function, void *handle, enum kind kind) {
    ENTER;
    struct object *object = check(function, handle, kind);
    /* Devices that nobody has made cannot be given back. */
    if (kind != DEVICE || object->parent) object->refs--;
    if (kind == QUEUE && !object->refs)
        for (struct command *command = first; command; command = command->next)
            if (command->queue == object) command->is_submitted = 1;
    pthread_cond_broadcast(&changed);
    LEAVE;
    if (kind == MEMORY) destroy_if_unused(object);
    return CL_SUCCESS;
}

#define COUNTED(Name, type, kind) \
    EXPORT cl_int clRetain##Name(type handle) { return retain("clRetain" #Name, handle, kind); } \
    EXPORT cl_int clRelease##Name(type handle) { return release("clRelease" #Name, handle, kind); }
COUNTED(Device, cl_device_id, DEVICE)
COUNTED(Context, cl_context, CONTEXT)
COUNTED(CommandQueue, cl_command_queue, QUEUE)
COUNTED(MemObject, cl_mem, MEMORY)
COUNTED(Sampler, cl_sampler, SAMPLER)
COUNTED(Program, cl_program, PROGRAM)
COUNTED(Kernel, cl_kernel, KERNEL)
COUNTED(Event, cl_event, EVENT)

/* ---- Information ---- */

static cl_int tell(const char *function, const void *answer, size_t length, size_t size, void *value, size_t *size_ret) {
    if (size && !value) die(function, "room of %zu bytes at null", size);
    if (value) {
        if (size < length) return CL_INVALID_VALUE;
        memcpy(value, answer, length);
    }
    if (size_ret) *size_ret = length;
    return CL_SUCCESS;
}

#define TELL(x) tell(__func__, &(x), sizeof(x), size, value, size_ret)
#define TELL_TEXT(x) tell(__func__, x, strlen(x) + 1, size, value, size_ret)

EXPORT cl_int clGetPlatformIDs(cl_uint room, cl_platform_id *found, cl_uint *count) {
    ENTER;
    LEAVE;
    if (found && room) *found = (cl_platform_id)&platform;
    if (count) *count = 1;
    return CL_SUCCESS;
}

EXPORT cl_int clGetPlatformInfo(cl_platform_id id, cl_platform_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    check(__func__, id, PLATFORM);
    LEAVE;
    switch (name) {
    case CL_PLATFORM_NAME: return TELL_TEXT("Fake");
    case CL_PLATFORM_VERSION: return TELL_TEXT("OpenCL 3.0 Fake");
    case CL_PLATFORM_VENDOR: case CL_PLATFORM_PROFILE: case CL_PLATFORM_EXTENSIONS: return TELL_TEXT("");
    }
    return CL_INVALID_VALUE;
}

EXPORT cl_int clGetDeviceIDs(cl_platform_id id, cl_device_type type, cl_uint room, cl_device_id *found, cl_uint *count) {
    ENTER;
    check(__func__, id, PLATFORM);
    LEAVE;
    (void)type;
    for (cl_uint i = 0; found && i < room && i < 2; i++) found[i] = (cl_device_id)&devices[i];
    if (count) *count = 2;
    return CL_SUCCESS;
}

EXPORT cl_int clGetDeviceInfo(cl_device_id id, cl_device_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    struct object *device = check(__func__, id, DEVICE);
    LEAVE;
    cl_ulong memory = 64u << 20, largest = LARGEST;
    switch (name) {
    case CL_DEVICE_TYPE: return TELL(device->device_type);
    case CL_DEVICE_NAME: case CL_DEVICE_VENDOR: case CL_DRIVER_VERSION: return TELL_TEXT("Fake");
    case CL_DEVICE_VERSION: return TELL_TEXT("OpenCL 3.0 Fake");
    case CL_DEVICE_GLOBAL_MEM_SIZE: return TELL(memory);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE: return TELL(largest);
    }
    return CL_INVALID_VALUE;
}

EXPORT cl_int clCreateSubDevices(cl_device_id id, const cl_device_partition_property *properties, cl_uint room, cl_device_id *made, cl_uint *count) {
    ENTER;
    struct object *device = check(__func__, id, DEVICE);
    if (!properties) die(__func__, "no properties");
    cl_int status = CL_INVALID_VALUE;
    if (properties[0] == CL_DEVICE_PARTITION_EQUALLY && properties[1] > 0) {
        for (cl_uint i = 0; made && i < room && i < 2; i++) {
            struct object *part = make(DEVICE, NULL);
            part->parent = device;
            part->device_type = device->device_type;
            made[i] = (cl_device_id)part;
        }
        if (count) *count = 2;
        status = CL_SUCCESS;
    }
    LEAVE;
    return status;
}

EXPORT cl_int clGetContextInfo(cl_context id, cl_context_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    cl_uint refs = (cl_uint)check(__func__, id, CONTEXT)->refs;
    LEAVE;
    return name == CL_CONTEXT_REFERENCE_COUNT ? TELL(refs) : CL_INVALID_VALUE;
}

EXPORT cl_int clGetCommandQueueInfo(cl_command_queue id, cl_command_queue_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    struct object *queue = check(__func__, id, QUEUE);
    LEAVE;
    return name == CL_QUEUE_PROPERTIES ? TELL(queue->properties) : CL_INVALID_VALUE;
}

EXPORT cl_int clGetMemObjectInfo(cl_mem id, cl_mem_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    struct object *memory = check(__func__, id, MEMORY);
    LEAVE;
    switch (name) {
    case CL_MEM_SIZE: return TELL(memory->size);
    case CL_MEM_TYPE: return TELL(memory->type);
    case CL_MEM_FLAGS: return TELL(memory->flags);
    }
    return CL_INVALID_VALUE;
}

EXPORT cl_int clGetImageInfo(cl_mem id, cl_image_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    struct object *image = check(__func__, id, MEMORY);
    LEAVE;
    if (!image->is_image) return CL_INVALID_MEM_OBJECT;
    size_t array = image->type == CL_MEM_OBJECT_IMAGE2D_ARRAY ? image->extent[2] : image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? image->extent[1] : 0;
    switch (name) {
    case CL_IMAGE_ELEMENT_SIZE: return TELL(image->element);
    case CL_IMAGE_WIDTH: return TELL(image->extent[0]);
    case CL_IMAGE_HEIGHT: return TELL(image->extent[1]);
    case CL_IMAGE_DEPTH: return TELL(image->extent[2]);
    case CL_IMAGE_ARRAY_SIZE: return TELL(array);
    }
    return CL_INVALID_VALUE;
}

EXPORT cl_int clGetPipeInfo(cl_mem id, cl_pipe_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    check(__func__, id, MEMORY);
    LEAVE;
    (void)name, (void)size, (void)value, (void)size_ret;
    return CL_INVALID_MEM_OBJECT;
}

EXPORT cl_int clGetSamplerInfo(cl_sampler id, cl_sampler_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    cl_uint refs = (cl_uint)check(__func__, id, SAMPLER)->refs;
    LEAVE;
    return name == CL_SAMPLER_REFERENCE_COUNT ? TELL(refs) : CL_INVALID_VALUE;
}

/* ---- Contexts, queues, memory ---- */

EXPORT cl_context clCreateContext(const cl_context_properties *properties, cl_uint count, const cl_device_id *list, void (CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *status) {
    (void)notify, (void)data;
    ENTER;
    struct object *context = NULL;
    if (properties && properties[0] == CL_CONTEXT_PLATFORM) check(__func__, (void *)properties[1], PLATFORM);
    if (count && !list) die(__func__, "no list of %u devices", count);
    for (cl_uint i = 0; i < count; i++) check(__func__, list[i], DEVICE);
    if (count) context = make(CONTEXT, NULL);
    LEAVE;
    return context ? good(status, context) : fail(status, CL_INVALID_VALUE);
}

EXPORT cl_context clCreateContextFromType(const cl_context_properties *properties, cl_device_type type, void (CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *status) {
    (void)properties, (void)type, (void)notify, (void)data;
    return fail(status, CL_DEVICE_NOT_FOUND);
}

static cl_command_queue make_queue(const char *function, cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *status) {
    ENTER;
    struct object *queue = make(QUEUE, check(function, context, CONTEXT));
    queue->device = check(function, device, DEVICE);
    queue->properties = properties;
    LEAVE;
    return good(status, queue);
}

EXPORT cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *status) {
    return make_queue(__func__, context, device, properties, status);
}

EXPORT cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device, const cl_queue_properties *list, cl_int *status) {
    cl_command_queue_properties properties = 0;
    for (size_t i = 0; list && list[i]; i += 2) {
        if (list[i] != CL_QUEUE_PROPERTIES) return fail(status, CL_INVALID_QUEUE_PROPERTIES);
        properties = list[i + 1];
    }
    return make_queue(__func__, context, device, properties, status);
}

EXPORT cl_mem clCreateBuffer(cl_context id, cl_mem_flags flags, size_t size, void *host, cl_int *status) {
    ENTER;
    struct object *context = check(__func__, id, CONTEXT), *buffer = NULL;
    int uses = flags & CL_MEM_USE_HOST_PTR ? 1 : 0, copies = flags & CL_MEM_COPY_HOST_PTR ? 1 : 0;
    if ((uses || copies) && !host) die(__func__, "no host memory");
    /* What is used in place is the worker's own. */
    if (size && (size <= LARGEST || uses)) {
        buffer = make(MEMORY, context);
        buffer->type = CL_MEM_OBJECT_BUFFER;
        buffer->flags = flags;
        buffer->size = size;
        buffer->bytes = uses ? host : calloc(1, size);
        if (!buffer->bytes) die(__func__, "no memory");
        if (copies) memcpy(buffer->bytes, host, size);
    }
    LEAVE;
    return buffer ? good(status, buffer) : fail(status, CL_INVALID_BUFFER_SIZE);
}

EXPORT cl_mem clCreateSubBuffer(cl_mem id, cl_mem_flags flags, cl_buffer_create_type type, const void *info, cl_int *status) {
    ENTER;
    struct object *parent = check(__func__, id, MEMORY), *buffer = NULL;
    const cl_buffer_region *part = info;
    if (type != CL_BUFFER_CREATE_TYPE_REGION || !part) die(__func__, "no region");
    if (parent->is_image) die(__func__, "a part of an image");
    if (part->origin > parent->size || part->size > parent->size - part->origin) die(__func__, "bytes %zu to %zu of %zu", part->origin, part->origin + part->size, parent->size);
    if (part->size && !parent->parent) {
        buffer = make(MEMORY, parent->context);
        buffer->parent = parent;
        parent->uses++;
        buffer->type = CL_MEM_OBJECT_BUFFER;
        buffer->flags = flags;
        buffer->size = part->size;
        buffer->bytes = parent->bytes + part->origin;
    }
    LEAVE;
    return buffer ? good(status, buffer) : fail(status, CL_INVALID_VALUE);
}

EXPORT cl_mem clCreateImage(cl_context id, cl_mem_flags flags, const cl_image_format *format, const cl_image_desc *desc, void *host, cl_int *status) {
    ENTER;
    struct object *context = check(__func__, id, CONTEXT), *image = NULL, *parent = NULL;
    if (!format || !desc) die(__func__, "no format or description");
    if (desc->mem_object) parent = check(__func__, desc->mem_object, MEMORY);
    size_t element = format->image_channel_order == CL_RGBA && format->image_channel_data_type == CL_UNSIGNED_INT8 ? 4 : format->image_channel_order == CL_R && format->image_channel_data_type == CL_FLOAT ? 4 : format->image_channel_order == CL_RGBA && format->image_channel_data_type == CL_FLOAT ? 16 : 0;
    size_t extent[3] = {desc->image_width, 1, 1};
    switch (desc->image_type) {
    case CL_MEM_OBJECT_IMAGE1D: case CL_MEM_OBJECT_IMAGE1D_BUFFER: break;
    case CL_MEM_OBJECT_IMAGE1D_ARRAY: extent[1] = desc->image_array_size; break;
    case CL_MEM_OBJECT_IMAGE2D: extent[1] = desc->image_height; break;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY: extent[1] = desc->image_height, extent[2] = desc->image_array_size; break;
    case CL_MEM_OBJECT_IMAGE3D: extent[1] = desc->image_height, extent[2] = desc->image_depth; break;
    default: element = 0;
    }
    int fits = element && !desc->num_mip_levels && !desc->num_samples && !desc->image_row_pitch && !desc->image_slice_pitch;
    for (int i = 0; i < 3; i++) fits = fits && extent[i] >= 1 && extent[i] <= 256;
    size_t size = fits ? element * extent[0] * extent[1] * extent[2] : 0;
    if (parent) fits = fits && !parent->is_image && !parent->parent && size <= parent->size && parent->context == context && !host;
    if (flags & CL_MEM_COPY_HOST_PTR && !host) die(__func__, "no host memory");
    if (fits && size <= LARGEST) {
        image = make(MEMORY, context);
        image->is_image = 1;
        image->type = desc->image_type;
        image->flags = flags;
        image->element = element;
        memcpy(image->extent, extent, sizeof extent);
        image->size = size;
        image->parent = parent;
        if (parent) parent->uses++;
        image->bytes = parent ? parent->bytes : calloc(1, size);
        if (!image->bytes) die(__func__, "no memory");
        if (flags & CL_MEM_COPY_HOST_PTR) memcpy(image->bytes, host, size);
    }
    LEAVE;
    return image ? good(status, image) : fail(status, CL_INVALID_IMAGE_DESCRIPTOR);
}

EXPORT cl_int clGetSupportedImageFormats(cl_context id, cl_mem_flags flags, cl_mem_object_type type, cl_uint room, cl_image_format *formats, cl_uint *count) {
    ENTER;
    check(__func__, id, CONTEXT);
    LEAVE;
    (void)flags, (void)type;
    if (formats && room) *formats = (cl_image_format){CL_RGBA, CL_UNSIGNED_INT8};
    if (count) *count = 1;
    return CL_SUCCESS;
}

EXPORT cl_int clSetMemObjectDestructorCallback(cl_mem id, void (CL_CALLBACK *call)(cl_mem, void *), void *data) {
    ENTER;
    struct object *memory = check(__func__, id, MEMORY);
    struct destructor *destructor = malloc(sizeof *destructor);
    *destructor = (struct destructor){memory->destructors, call, data};
    memory->destructors = destructor;
    LEAVE;
    return CL_SUCCESS;
}

/* Calls the destructors of a memory object that nobody uses any more, and of what it was a part of. */
static void destroy_if_unused(struct object *memory) {
    while (memory) {
        pthread_mutex_lock(&lock);
        struct destructor *destructors = NULL;
        struct object *parent = NULL;
        if (memory->refs <= 0 && !memory->uses && memory->bytes) {
            destructors = memory->destructors;
            memory->destructors = NULL;
            if (!memory->parent && !(memory->flags & CL_MEM_USE_HOST_PTR)) free(memory->bytes);
            memory->bytes = NULL;
            parent = memory->parent;
            if (parent) parent->uses--;
        }
        pthread_mutex_unlock(&lock);
        for (struct destructor *next; destructors; destructors = next) {
            next = destructors->next;
            destructors->call((cl_mem)memory, destructors->data);
            free(destructors);
        }
        memory = parent;
    }
}

EXPORT cl_sampler clCreateSampler(cl_context id, cl_bool normalized, cl_addressing_mode mode, cl_filter_mode filter, cl_int *status) {
    (void)normalized, (void)mode, (void)filter;
    ENTER;
    struct object *sampler = make(SAMPLER, check(__func__, id, CONTEXT));
    LEAVE;
    return good(status, sampler);
}

EXPORT cl_sampler clCreateSamplerWithProperties(cl_context id, const cl_sampler_properties *list, cl_int *status) {
    for (size_t i = 0; list && list[i]; i += 2)
        if (list[i] < CL_SAMPLER_NORMALIZED_COORDS || list[i] > CL_SAMPLER_FILTER_MODE) return fail(status, CL_INVALID_VALUE);
    return clCreateSampler(id, 0, 0, 0, status);
}

/* ---- Programs and kernels ---- */

static struct object *make_program(struct object *context, const void *text, size_t size) {
    struct object *program = make(PROGRAM, context);
    program->bytes = malloc(size + 1);
    if (!program->bytes) die("make_program", "no memory");
    memcpy(program->bytes, text, size);
    program->bytes[size] = 0;
    program->size = size;
    program->built = CL_BUILD_NONE;
    return program;
}

EXPORT cl_program clCreateProgramWithSource(cl_context id, cl_uint count, const char **strings, const size_t *lengths, cl_int *status) {
    ENTER;
    struct object *context = check(__func__, id, CONTEXT), *program = NULL;
    if (count != 1 || !strings || !strings[0]) die(__func__, "no source");
    program = make_program(context, strings[0], lengths && lengths[0] ? lengths[0] : strlen(strings[0]));
    LEAVE;
    return good(status, program);
}

EXPORT cl_program clCreateProgramWithBinary(cl_context id, cl_uint count, const cl_device_id *list, const size_t *lengths, const unsigned char **binaries, cl_int *statuses, cl_int *status) {
    ENTER;
    struct object *context = check(__func__, id, CONTEXT), *program = NULL;
    if (count && (!list || !lengths || !binaries)) die(__func__, "no lists for %u devices", count);
    int fits = count > 0;
    for (cl_uint i = 0; i < count; i++) {
        check(__func__, list[i], DEVICE);
        int is_ours = binaries[i] && lengths[i] >= 4 && !memcmp(binaries[i], "FAKE", 4);
        if (statuses) statuses[i] = is_ours ? CL_SUCCESS : CL_INVALID_BINARY;
        fits = fits && is_ours;
    }
    if (fits) program = make_program(context, binaries[0] + 4, lengths[0] - 4);
    LEAVE;
    return program ? good(status, program) : fail(status, CL_INVALID_BINARY);
}

static cl_int build(const char *function, cl_program id, cl_uint count, const cl_device_id *list, const char *options, cl_program_binary_type binary) {
    ENTER;
    struct object *program = check(function, id, PROGRAM);
    if (count && !list) die(function, "no list of %u devices", count);
    for (cl_uint i = 0; i < count; i++) check(function, list[i], DEVICE);
    if (options && strlen(options) > 1 << 22) die(function, "options without end");
    int fails = strstr((char *)program->bytes, "error") != NULL;
    program->built = fails ? CL_BUILD_ERROR : CL_BUILD_SUCCESS;
    program->binary = fails ? CL_PROGRAM_BINARY_TYPE_NONE : binary;
    LEAVE;
    return fails ? CL_BUILD_PROGRAM_FAILURE : CL_SUCCESS;
}

EXPORT cl_int clBuildProgram(cl_program id, cl_uint count, const cl_device_id *list, const char *options, void (CL_CALLBACK *notify)(cl_program, void *), void *data) {
    (void)notify, (void)data;
    return build(__func__, id, count, list, options, CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
}

EXPORT cl_int clCompileProgram(cl_program id, cl_uint count, const cl_device_id *list, const char *options, cl_uint headers, const cl_program *programs, const char **names_of, void (CL_CALLBACK *notify)(cl_program, void *), void *data) {
    (void)notify, (void)data;
    ENTER;
    if (headers && (!programs || !names_of)) die(__func__, "no list of %u headers", headers);
    for (cl_uint i = 0; i < headers; i++) {
        check(__func__, programs[i], PROGRAM);
        if (!names_of[i]) die(__func__, "a header without a name");
    }
    LEAVE;
    return build(__func__, id, count, list, options, CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT);
}

EXPORT cl_program clLinkProgram(cl_context id, cl_uint count, const cl_device_id *list, const char *options, cl_uint inputs, const cl_program *programs, void (CL_CALLBACK *notify)(cl_program, void *), void *data, cl_int *status) {
    (void)options, (void)notify, (void)data;
    ENTER;
    struct object *context = check(__func__, id, CONTEXT), *program = NULL;
    if (inputs && !programs) die(__func__, "no list of %u programs", inputs);
    for (cl_uint i = 0; i < count; i++) check(__func__, list[i], DEVICE);
    int fits = inputs > 0;
    for (cl_uint i = 0; i < inputs; i++) fits = check(__func__, programs[i], PROGRAM)->binary == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT && fits;
    if (fits) {
        struct object *input = (struct object *)programs[0];
        program = make_program(context, input->bytes, input->size);
        program->built = CL_BUILD_SUCCESS;
        program->binary = CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
    }
    LEAVE;
    return program ? good(status, program) : fail(status, CL_LINK_PROGRAM_FAILURE);
}

/* Kernels f and g, whose arguments are known, and u, of whose arguments nothing is known. */
static const char KERNELS[] = "f;g;u";

EXPORT cl_int clGetProgramInfo(cl_program id, cl_program_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    struct object *program = check(__func__, id, PROGRAM);
    LEAVE;
    size_t kernels = 3, length = 4 + program->size;
    cl_uint one = 1;
    switch (name) {
    case CL_PROGRAM_KERNEL_NAMES: return program->binary == CL_PROGRAM_BINARY_TYPE_EXECUTABLE ? TELL_TEXT(KERNELS) : CL_INVALID_PROGRAM_EXECUTABLE;
    case CL_PROGRAM_NUM_KERNELS: return TELL(kernels);
    case CL_PROGRAM_NUM_DEVICES: return TELL(one);
    case CL_PROGRAM_BINARY_SIZES: return TELL(length);
    case CL_PROGRAM_SOURCE: return TELL_TEXT((char *)program->bytes);
    case CL_PROGRAM_BINARIES:
        if (!value) return tell(__func__, NULL, sizeof(void *), 0, NULL, size_ret);
        if (size < sizeof(void *)) return CL_INVALID_VALUE;
        if (*(unsigned char **)value) {
            memcpy(*(unsigned char **)value, "FAKE", 4);
            memcpy(*(unsigned char **)value + 4, program->bytes, program->size);
        }
        return CL_SUCCESS;
    }
    return CL_INVALID_VALUE;
}

EXPORT cl_int clGetProgramBuildInfo(cl_program id, cl_device_id device, cl_program_build_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    struct object *program = check(__func__, id, PROGRAM);
    check(__func__, device, DEVICE);
    LEAVE;
    switch (name) {
    case CL_PROGRAM_BUILD_STATUS: return TELL(program->built);
    case CL_PROGRAM_BUILD_LOG: case CL_PROGRAM_BUILD_OPTIONS: return TELL_TEXT("");
    case CL_PROGRAM_BINARY_TYPE: return TELL(program->binary);
    }
    return CL_INVALID_VALUE;
}

static struct object *make_kernel(struct object *program, const char *name) {
    struct object *kernel = make(KERNEL, program->context);
    kernel->parent = program;
    snprintf(kernel->name, sizeof kernel->name, "%s", name);
    return kernel;
}

EXPORT cl_kernel clCreateKernel(cl_program id, const char *name, cl_int *status) {
    ENTER;
    struct object *program = check(__func__, id, PROGRAM), *kernel = NULL;
    if (!name) die(__func__, "no name");
    int exists = program->binary == CL_PROGRAM_BINARY_TYPE_EXECUTABLE && strlen(name) == 1 && strchr("fgu", *name);
    if (exists) kernel = make_kernel(program, name);
    LEAVE;
    return kernel ? good(status, kernel) : fail(status, CL_INVALID_KERNEL_NAME);
}

EXPORT cl_int clCreateKernelsInProgram(cl_program id, cl_uint room, cl_kernel *kernels, cl_uint *count) {
    ENTER;
    struct object *program = check(__func__, id, PROGRAM);
    for (cl_uint i = 0; kernels && i < room && i < 3; i++) kernels[i] = (cl_kernel)make_kernel(program, i == 0 ? "f" : i == 1 ? "g" : "u");
    if (count) *count = 3;
    LEAVE;
    return CL_SUCCESS;
}

EXPORT cl_kernel clCloneKernel(cl_kernel id, cl_int *status) {
    ENTER;
    struct object *source = check(__func__, id, KERNEL), *kernel = make_kernel(source->parent, source->name);
    kernel->arg = source->arg;
    memcpy(kernel->is_set, source->is_set, sizeof kernel->is_set);
    LEAVE;
    return good(status, kernel);
}

EXPORT cl_int clSetKernelArg(cl_kernel id, cl_uint index, size_t size, const void *value) {
    ENTER;
    struct object *kernel = check(__func__, id, KERNEL);
    cl_int status = CL_SUCCESS;
    int is_unknown = kernel->name[0] == 'u';
    if (index >= 3) status = CL_INVALID_ARG_INDEX;
    else if (index == 0 && size != sizeof(cl_mem)) status = CL_INVALID_ARG_SIZE;
    else if (index == 0 && is_unknown) {
        /* A vendor would look whether this is one of its handles, and it is allowed to be anything. */
        volatile const unsigned char *bytes = value;
        for (size_t i = 0; bytes && i < size; i++) (void)bytes[i];
    } else if (index == 0) {
        if (!value) die(__func__, "no place for a memory object");
        kernel->arg = *(void **)value ? check(__func__, *(void **)value, MEMORY) : NULL;
    } else if (index == 1 && (size != 4 || !value)) status = value ? CL_INVALID_ARG_SIZE : CL_INVALID_ARG_VALUE;
    else if (index == 1) memcpy(kernel->value, value, 4);
    else if (value) status = is_unknown ? CL_SUCCESS : CL_INVALID_ARG_VALUE;
    else if (!size) status = CL_INVALID_ARG_SIZE;
    if (!status) kernel->is_set[index] = 1;
    LEAVE;
    return status;
}

EXPORT cl_int clGetKernelInfo(cl_kernel id, cl_kernel_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    struct object *kernel = check(__func__, id, KERNEL);
    LEAVE;
    cl_uint args = 3;
    switch (name) {
    case CL_KERNEL_FUNCTION_NAME: return TELL_TEXT(kernel->name);
    case CL_KERNEL_NUM_ARGS: return TELL(args);
    case CL_KERNEL_ATTRIBUTES: return TELL_TEXT("");
    }
    return CL_INVALID_VALUE;
}

EXPORT cl_int clGetKernelArgInfo(cl_kernel id, cl_uint index, cl_kernel_arg_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    struct object *kernel = check(__func__, id, KERNEL);
    LEAVE;
    if (kernel->name[0] == 'u') return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
    if (index >= 3) return CL_INVALID_ARG_INDEX;
    cl_kernel_arg_address_qualifier address = index == 0 ? CL_KERNEL_ARG_ADDRESS_GLOBAL : index == 1 ? CL_KERNEL_ARG_ADDRESS_PRIVATE : CL_KERNEL_ARG_ADDRESS_LOCAL;
    cl_kernel_arg_access_qualifier access = CL_KERNEL_ARG_ACCESS_NONE;
    cl_kernel_arg_type_qualifier type = 0;
    switch (name) {
    case CL_KERNEL_ARG_ADDRESS_QUALIFIER: return TELL(address);
    case CL_KERNEL_ARG_ACCESS_QUALIFIER: return TELL(access);
    case CL_KERNEL_ARG_TYPE_QUALIFIER: return TELL(type);
    case CL_KERNEL_ARG_TYPE_NAME: return TELL_TEXT(index == 1 ? "int" : "int*");
    case CL_KERNEL_ARG_NAME: return TELL_TEXT("a");
    }
    return CL_INVALID_VALUE;
}

EXPORT cl_int clGetKernelWorkGroupInfo(cl_kernel id, cl_device_id device, cl_kernel_work_group_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    check(__func__, id, KERNEL);
    if (device) check(__func__, device, DEVICE);
    LEAVE;
    size_t group = 64;
    return name == CL_KERNEL_WORK_GROUP_SIZE ? TELL(group) : CL_INVALID_VALUE;
}

/* ---- Commands ---- */

static int is_done(const struct object *event) {
    return event->status <= CL_COMPLETE;
}

/* Whether a command may run: it was handed over, and what it waits for has ended. */
static int is_ready(const struct command *command) {
    if (!command->is_submitted) return 0;
    for (unsigned i = 0; i < command->count; i++)
        if (!is_done(command->waits[i])) return 0;
    int in_order = !(command->queue->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    for (const struct command *other = first; other != command; other = other->next)
        if (other->queue == command->queue && (in_order || other->is_barrier || command->waits_for_all)) return 0;
    return 1;
}

/* An event has reached a status. Called with the lock, which it gives back while it calls others. */
static void reach(struct object *event, cl_int status) {
    event->status = status;
    struct callback **place = &event->callbacks, *due = NULL;
    while (*place) {
        struct callback *callback = *place;
        if (status <= callback->at) {
            *place = callback->next;
            callback->next = due;
            due = callback;
        } else place = &callback->next;
    }
    pthread_cond_broadcast(&changed);
    while (due) {
        struct callback *callback = due;
        due = callback->next;
        pthread_mutex_unlock(&lock);
        callback->call((cl_event)event, status < 0 ? status : callback->at, callback->data);
        pthread_mutex_lock(&lock);
        free(callback);
    }
}

static void unuse(struct object *memory) {
    if (!memory) return;
    memory->uses--;
    pthread_mutex_unlock(&lock);
    destroy_if_unused(memory);
    pthread_mutex_lock(&lock);
}

/* The device. */
static void *work(void *nothing) {
    (void)nothing;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct command *command = first;
        while (command && !is_ready(command)) command = command->next;
        if (!command) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        cl_int status = CL_COMPLETE;
        for (unsigned i = 0; i < command->count; i++)
            if (command->waits[i]->status < 0) status = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        if (!status) {
            reach(command->event, CL_RUNNING);
            if (command->run) command->run(command);
        }
        for (struct command **place = &first; *place; place = &(*place)->next)
            if (*place == command) {
                *place = command->next;
                if (!*place) last = place;
                break;
            }
        now++;
        unuse(command->from);
        unuse(command->to);
        reach(command->event, status);
        free(command->waits);
        free(command);
    }
    return NULL;
}

static void submit(struct object *queue) {
    for (struct command *command = first; command; command = command->next)
        if (command->queue == queue && !command->is_submitted) {
            command->is_submitted = 1;
            if (command->event->status > CL_SUBMITTED) command->event->status = CL_SUBMITTED;
        }
    if (!has_thread) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL)) die("submit", "no thread");
        has_thread = 1;
    }
    pthread_cond_broadcast(&changed);
}

/* Puts a command into its queue. Called with the lock. `waiting` blocks until it has ended. */
static cl_int enqueue(const char *function, struct object *queue, struct command command, cl_uint count, const cl_event *waits, cl_event *event, int waiting) {
    if ((count == 0) != (waits == NULL)) die(function, "%u events at %p", count, (const void *)waits);
    struct command *made = malloc(sizeof *made);
    *made = command;
    made->queue = queue;
    made->count = count;
    made->waits = count ? malloc(count * sizeof *made->waits) : NULL;
    made->next = NULL;
    for (cl_uint i = 0; i < count; i++) {
        made->waits[i] = check(function, waits[i], EVENT);
        if (made->waits[i]->context != queue->context) {
            free(made->waits);
            free(made);
            return CL_INVALID_CONTEXT;
        }
    }
    made->event = make(EVENT, queue->context);
    made->event->queue = queue;
    made->event->status = CL_QUEUED;
    if (made->from) made->from->uses++;
    if (made->to) made->to->uses++;
    struct object *own = made->event;
    if (!event) own->refs = 0;
    *last = made;
    last = &made->next;
    if (event) *event = (cl_event)own;
    if (waiting) {
        submit(queue);
        while (!is_done(own)) pthread_cond_wait(&changed, &lock);
        return own->status < 0 ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
    }
    return CL_SUCCESS;
}

static void within(const char *function, size_t offset, size_t size, const struct object *buffer) {
    if (buffer->is_image || buffer->type != CL_MEM_OBJECT_BUFFER) die(function, "not a buffer");
    if (offset > buffer->size || size > buffer->size - offset) die(function, "bytes %zu to %zu of a buffer of %zu", offset, offset + size, buffer->size);
}

static void rect_within(const char *function, const size_t *origin, const size_t *region, size_t row, size_t slice, const struct object *buffer) {
    __uint128_t end = (__uint128_t)(origin[2] + (__uint128_t)region[2] - 1) * slice + (__uint128_t)(origin[1] + (__uint128_t)region[1] - 1) * row + origin[0] + region[0];
    if (!region[0] || !region[1] || !region[2]) die(function, "an empty box");
    if (row < region[0] || slice < region[1] * row || end > buffer->size || buffer->is_image) die(function, "a box outside of its buffer of %zu bytes", buffer->size);
}

static int in_image(const char *function, const size_t *origin, const size_t *region, const struct object *image) {
    if (!image->is_image) die(function, "not an image");
    for (int i = 0; i < 3; i++) {
        if (origin[i] > image->extent[i] || region[i] > image->extent[i] - origin[i]) die(function, "pixels %zu to %zu of %zu along axis %d", origin[i], origin[i] + region[i], image->extent[i], i);
        if (!region[i]) return 0;
    }
    return 1;
}

/* Moves boxes of bytes; `a` is where they come from. */
static void copy_box(unsigned char *from, size_t from_row, size_t from_slice, unsigned char *to, size_t to_row, size_t to_slice, const size_t *region) {
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++) memmove(to + z * to_slice + y * to_row, from + z * from_slice + y * from_row, region[0]);
}

static void run_read(struct command *c) { memcpy(c->host, c->from->bytes + c->a[0], c->region[0]); }
static void run_write(struct command *c) { memcpy(c->to->bytes + c->b[0], c->host, c->region[0]); }
static void run_box(struct command *c) {
    unsigned char *from = c->from ? c->from->bytes : c->host, *to = c->to ? c->to->bytes : c->host;
    copy_box(from + c->a[2] * c->a_slice + c->a[1] * c->a_row + c->a[0], c->a_row, c->a_slice, to + c->b[2] * c->b_slice + c->b[1] * c->b_row + c->b[0], c->b_row, c->b_slice, c->region);
}
static void run_fill(struct command *c) {
    for (size_t i = 0; i + c->pattern_size <= c->region[0]; i += c->pattern_size) memcpy(c->to->bytes + c->b[0] + i, c->pattern, c->pattern_size);
}
static void run_kernel(struct command *c) {
    if (c->to && c->to->size >= 4) memcpy(c->to->bytes, c->pattern, 4);
}

#define WAITS cl_uint count, const cl_event *waits, cl_event *event
#define ENQUEUE(queue, waiting, ...) enqueue(__func__, queue, (struct command){__VA_ARGS__}, count, waits, event, waiting)

EXPORT cl_int clEnqueueReadBuffer(cl_command_queue q, cl_mem b, cl_bool blocking, size_t offset, size_t size, void *host, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *buffer = check(__func__, b, MEMORY);
    within(__func__, offset, size, buffer);
    if (!host) die(__func__, "no host memory");
    cl_int status = queue->context != buffer->context ? CL_INVALID_CONTEXT : !size ? CL_INVALID_VALUE : ENQUEUE(queue, blocking, .run = run_read, .from = buffer, .host = host, .a = {offset}, .region = {size});
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueWriteBuffer(cl_command_queue q, cl_mem b, cl_bool blocking, size_t offset, size_t size, const void *host, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *buffer = check(__func__, b, MEMORY);
    within(__func__, offset, size, buffer);
    if (!host) die(__func__, "no host memory");
    cl_int status = queue->context != buffer->context ? CL_INVALID_CONTEXT : !size ? CL_INVALID_VALUE : ENQUEUE(queue, blocking, .run = run_write, .to = buffer, .host = (void *)host, .b = {offset}, .region = {size});
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueReadBufferRect(cl_command_queue q, cl_mem b, cl_bool blocking, const size_t *origin, const size_t *host_origin, const size_t *region, size_t row, size_t slice, size_t host_row, size_t host_slice, void *host, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *buffer = check(__func__, b, MEMORY);
    rect_within(__func__, origin, region, row, slice, buffer);
    if (!host || host_row < region[0] || host_slice < region[1] * host_row) die(__func__, "host memory that is no box");
    cl_int status = queue->context != buffer->context ? CL_INVALID_CONTEXT : ENQUEUE(queue, blocking, .run = run_box, .from = buffer, .host = host, .a = {origin[0], origin[1], origin[2]}, .a_row = row, .a_slice = slice, .b = {host_origin[0], host_origin[1], host_origin[2]}, .b_row = host_row, .b_slice = host_slice, .region = {region[0], region[1], region[2]});
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueWriteBufferRect(cl_command_queue q, cl_mem b, cl_bool blocking, const size_t *origin, const size_t *host_origin, const size_t *region, size_t row, size_t slice, size_t host_row, size_t host_slice, const void *host, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *buffer = check(__func__, b, MEMORY);
    rect_within(__func__, origin, region, row, slice, buffer);
    if (!host || host_row < region[0] || host_slice < region[1] * host_row) die(__func__, "host memory that is no box");
    cl_int status = queue->context != buffer->context ? CL_INVALID_CONTEXT : ENQUEUE(queue, blocking, .run = run_box, .to = buffer, .host = (void *)host, .b = {origin[0], origin[1], origin[2]}, .b_row = row, .b_slice = slice, .a = {host_origin[0], host_origin[1], host_origin[2]}, .a_row = host_row, .a_slice = host_slice, .region = {region[0], region[1], region[2]});
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueCopyBuffer(cl_command_queue q, cl_mem f, cl_mem t, size_t from_offset, size_t to_offset, size_t size, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *from = check(__func__, f, MEMORY), *to = check(__func__, t, MEMORY);
    within(__func__, from_offset, size, from);
    within(__func__, to_offset, size, to);
    cl_int status = queue->context != from->context || queue->context != to->context ? CL_INVALID_CONTEXT : ENQUEUE(queue, 0, .run = run_box, .from = from, .to = to, .a = {from_offset}, .b = {to_offset}, .region = {size, 1, 1});
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueCopyBufferRect(cl_command_queue q, cl_mem f, cl_mem t, const size_t *a, const size_t *b, const size_t *region, size_t a_row, size_t a_slice, size_t b_row, size_t b_slice, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *from = check(__func__, f, MEMORY), *to = check(__func__, t, MEMORY);
    rect_within(__func__, a, region, a_row, a_slice, from);
    rect_within(__func__, b, region, b_row, b_slice, to);
    cl_int status = queue->context != from->context || queue->context != to->context ? CL_INVALID_CONTEXT : ENQUEUE(queue, 0, .run = run_box, .from = from, .to = to, .a = {a[0], a[1], a[2]}, .a_row = a_row, .a_slice = a_slice, .b = {b[0], b[1], b[2]}, .b_row = b_row, .b_slice = b_slice, .region = {region[0], region[1], region[2]});
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueFillBuffer(cl_command_queue q, cl_mem b, const void *pattern, size_t length, size_t offset, size_t size, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *buffer = check(__func__, b, MEMORY);
    within(__func__, offset, size, buffer);
    if (!pattern || !length || length > 128 || length & (length - 1)) die(__func__, "a pattern of %zu bytes", length);
    struct command command = {.run = run_fill, .to = buffer, .b = {offset}, .region = {size}, .pattern_size = length};
    memcpy(command.pattern, pattern, length);
    cl_int status = queue->context != buffer->context ? CL_INVALID_CONTEXT : size % length || offset % length ? CL_INVALID_VALUE : enqueue(__func__, queue, command, count, waits, event, 0);
    LEAVE;
    return status;
}

/* Pixels as boxes of bytes. */
static struct command image_box(const struct object *image, const size_t *origin, const size_t *region, int is_source) {
    struct command command = {.run = run_box, .region = {region[0] * image->element, region[1], region[2]}};
    size_t place[3] = {origin[0] * image->element, origin[1], origin[2]}, row = image->extent[0] * image->element, slice = row * image->extent[1];
    memcpy(is_source ? command.a : command.b, place, sizeof place);
    *(is_source ? &command.a_row : &command.b_row) = row;
    *(is_source ? &command.a_slice : &command.b_slice) = slice;
    *(is_source ? &command.b_row : &command.a_row) = region[0] * image->element;
    *(is_source ? &command.b_slice : &command.a_slice) = region[0] * image->element * region[1];
    return command;
}

EXPORT cl_int clEnqueueReadImage(cl_command_queue q, cl_mem i, cl_bool blocking, const size_t *origin, const size_t *region, size_t row, size_t slice, void *host, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *image = check(__func__, i, MEMORY);
    int some = in_image(__func__, origin, region, image);
    if (!host || row || slice) die(__func__, "host memory with pitches, or none");
    struct command command = image_box(image, origin, region, 1);
    command.from = image, command.host = host;
    cl_int status = queue->context != image->context ? CL_INVALID_CONTEXT : !some ? CL_INVALID_VALUE : enqueue(__func__, queue, command, count, waits, event, blocking);
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueWriteImage(cl_command_queue q, cl_mem i, cl_bool blocking, const size_t *origin, const size_t *region, size_t row, size_t slice, const void *host, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *image = check(__func__, i, MEMORY);
    int some = in_image(__func__, origin, region, image);
    if (!host || row || slice) die(__func__, "host memory with pitches, or none");
    struct command command = image_box(image, origin, region, 0);
    command.to = image, command.host = (void *)host;
    cl_int status = queue->context != image->context ? CL_INVALID_CONTEXT : !some ? CL_INVALID_VALUE : enqueue(__func__, queue, command, count, waits, event, blocking);
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueCopyImage(cl_command_queue q, cl_mem f, cl_mem t, const size_t *a, const size_t *b, const size_t *region, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *from = check(__func__, f, MEMORY), *to = check(__func__, t, MEMORY);
    int some = in_image(__func__, a, region, from) && in_image(__func__, b, region, to);
    struct command command = image_box(from, a, region, 1), target = image_box(to, b, region, 0);
    memcpy(command.b, target.b, sizeof command.b);
    command.b_row = target.b_row, command.b_slice = target.b_slice, command.from = from, command.to = to;
    cl_int status = queue->context != from->context || queue->context != to->context ? CL_INVALID_CONTEXT : from->element != to->element ? CL_IMAGE_FORMAT_MISMATCH : !some ? CL_INVALID_VALUE : enqueue(__func__, queue, command, count, waits, event, 0);
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueCopyImageToBuffer(cl_command_queue q, cl_mem f, cl_mem t, const size_t *origin, const size_t *region, size_t offset, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *from = check(__func__, f, MEMORY), *to = check(__func__, t, MEMORY);
    int some = in_image(__func__, origin, region, from);
    within(__func__, offset, region[0] * region[1] * region[2] * from->element, to);
    struct command command = image_box(from, origin, region, 1);
    command.from = from, command.to = to, command.b[0] = offset;
    cl_int status = queue->context != from->context || queue->context != to->context ? CL_INVALID_CONTEXT : !some ? CL_INVALID_VALUE : enqueue(__func__, queue, command, count, waits, event, 0);
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueCopyBufferToImage(cl_command_queue q, cl_mem f, cl_mem t, size_t offset, const size_t *origin, const size_t *region, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *from = check(__func__, f, MEMORY), *to = check(__func__, t, MEMORY);
    int some = in_image(__func__, origin, region, to);
    within(__func__, offset, region[0] * region[1] * region[2] * to->element, from);
    struct command command = image_box(to, origin, region, 0);
    command.from = from, command.to = to, command.a[0] = offset;
    cl_int status = queue->context != from->context || queue->context != to->context ? CL_INVALID_CONTEXT : !some ? CL_INVALID_VALUE : enqueue(__func__, queue, command, count, waits, event, 0);
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueFillImage(cl_command_queue q, cl_mem i, const void *color, const size_t *origin, const size_t *region, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *image = check(__func__, i, MEMORY);
    int some = in_image(__func__, origin, region, image);
    if (!color) die(__func__, "no colour");
    cl_int status = queue->context != image->context ? CL_INVALID_CONTEXT : !some ? CL_INVALID_VALUE : ENQUEUE(queue, 0, .to = image);
    LEAVE;
    return status;
}

EXPORT void *clEnqueueMapBuffer(cl_command_queue q, cl_mem b, cl_bool blocking, cl_map_flags flags, size_t offset, size_t size, WAITS, cl_int *status) {
    (void)flags;
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *buffer = check(__func__, b, MEMORY);
    within(__func__, offset, size, buffer);
    cl_int code = ENQUEUE(queue, blocking, .to = buffer);
    void *mapped = buffer->bytes + offset;
    LEAVE;
    return code ? fail(status, code) : good(status, mapped);
}

EXPORT void *clEnqueueMapImage(cl_command_queue q, cl_mem i, cl_bool blocking, cl_map_flags flags, const size_t *origin, const size_t *region, size_t *row, size_t *slice, WAITS, cl_int *status) {
    (void)q, (void)i, (void)blocking, (void)flags, (void)origin, (void)region, (void)row, (void)slice, (void)count, (void)waits, (void)event;
    return fail(status, CL_MAP_FAILURE);
}

EXPORT cl_int clEnqueueUnmapMemObject(cl_command_queue q, cl_mem m, void *mapped, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *memory = check(__func__, m, MEMORY);
    if (!mapped) die(__func__, "nothing was mapped");
    cl_int status = ENQUEUE(queue, 0, .to = memory);
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueMigrateMemObjects(cl_command_queue q, cl_uint number, const cl_mem *objects, cl_mem_migration_flags flags, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE);
    cl_int status = number && objects ? CL_SUCCESS : CL_INVALID_VALUE;
    if (flags & ~(cl_mem_migration_flags)3) status = CL_INVALID_VALUE;
    for (cl_uint i = 0; objects && i < number; i++)
        if (check(__func__, objects[i], MEMORY)->context != queue->context) status = CL_INVALID_CONTEXT;
    if (!status) status = ENQUEUE(queue, 0, .run = NULL);
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueMarkerWithWaitList(cl_command_queue q, WAITS) {
    ENTER;
    cl_int status = ENQUEUE(check(__func__, q, QUEUE), 0, .waits_for_all = count == 0);
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueBarrierWithWaitList(cl_command_queue q, WAITS) {
    ENTER;
    cl_int status = ENQUEUE(check(__func__, q, QUEUE), 0, .is_barrier = 1, .waits_for_all = count == 0);
    LEAVE;
    return status;
}

EXPORT cl_int clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dimensions, const size_t *offset, const size_t *global, const size_t *local, WAITS) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE), *kernel = check(__func__, k, KERNEL);
    (void)offset, (void)local;
    if (dimensions < 1 || dimensions > 3 || !global) die(__func__, "%u dimensions", dimensions);
    if (kernel->arg) check(__func__, kernel->arg, MEMORY);
    cl_int status = kernel->is_set[0] && kernel->is_set[1] && kernel->is_set[2] ? CL_SUCCESS : CL_INVALID_KERNEL_ARGS;
    for (cl_uint i = 0; i < dimensions; i++)
        if (!global[i]) status = CL_INVALID_GLOBAL_WORK_SIZE;
    if (queue->context != kernel->context) status = CL_INVALID_CONTEXT;
    if (!status) {
        struct command command = {.run = run_kernel, .to = kernel->arg};
        memcpy(command.pattern, kernel->value, 4);
        status = enqueue(__func__, queue, command, count, waits, event, 0);
    }
    LEAVE;
    return status;
}

EXPORT cl_int clFlush(cl_command_queue q) {
    ENTER;
    submit(check(__func__, q, QUEUE));
    LEAVE;
    return CL_SUCCESS;
}

EXPORT cl_int clFinish(cl_command_queue q) {
    ENTER;
    struct object *queue = check(__func__, q, QUEUE);
    submit(queue);
    for (;;) {
        struct command *command = first;
        while (command && command->queue != queue) command = command->next;
        if (!command) break;
        pthread_cond_wait(&changed, &lock);
    }
    LEAVE;
    return CL_SUCCESS;
}

/* ---- Events ---- */

EXPORT cl_event clCreateUserEvent(cl_context id, cl_int *status) {
    ENTER;
    struct object *event = make(EVENT, check(__func__, id, CONTEXT));
    event->is_user = 1;
    event->status = CL_SUBMITTED;
    LEAVE;
    return good(status, event);
}

EXPORT cl_int clSetUserEventStatus(cl_event id, cl_int value) {
    ENTER;
    struct object *event = check(__func__, id, EVENT);
    cl_int status = !event->is_user ? CL_INVALID_EVENT : value > CL_COMPLETE ? CL_INVALID_VALUE : is_done(event) ? CL_INVALID_OPERATION : CL_SUCCESS;
    if (!status) reach(event, value);
    LEAVE;
    return status;
}

EXPORT cl_int clWaitForEvents(cl_uint count, const cl_event *list) {
    ENTER;
    if (!count || !list) die(__func__, "%u events at %p", count, (const void *)list);
    cl_int status = CL_SUCCESS;
    for (cl_uint i = 0; i < count; i++) {
        struct object *event = check(__func__, list[i], EVENT);
        if (event->queue) submit(event->queue);
        while (!is_done(event)) pthread_cond_wait(&changed, &lock);
        if (event->status < 0) status = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    }
    LEAVE;
    return status;
}

EXPORT cl_int clGetEventInfo(cl_event id, cl_event_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    struct object *event = check(__func__, id, EVENT);
    cl_int status = event->status;
    cl_uint refs = (cl_uint)event->refs;
    LEAVE;
    switch (name) {
    case CL_EVENT_COMMAND_EXECUTION_STATUS: return TELL(status);
    case CL_EVENT_REFERENCE_COUNT: return TELL(refs);
    }
    return CL_INVALID_VALUE;
}

EXPORT cl_int clGetEventProfilingInfo(cl_event id, cl_profiling_info name, size_t size, void *value, size_t *size_ret) {
    ENTER;
    struct object *event = check(__func__, id, EVENT);
    int fits = event->queue && event->queue->properties & CL_QUEUE_PROFILING_ENABLE && event->status == CL_COMPLETE;
    cl_ulong time = now;
    LEAVE;
    (void)name;
    return fits ? TELL(time) : CL_PROFILING_INFO_NOT_AVAILABLE;
}

EXPORT cl_int clSetEventCallback(cl_event id, cl_int at, void (CL_CALLBACK *call)(cl_event, cl_int, void *), void *data) {
    ENTER;
    struct object *event = check(__func__, id, EVENT);
    if (!call) die(__func__, "nobody to call");
    if (at < CL_COMPLETE || at > CL_SUBMITTED) {
        LEAVE;
        return CL_INVALID_VALUE;
    }
    struct callback *callback = malloc(sizeof *callback);
    *callback = (struct callback){event->callbacks, call, at, data};
    event->callbacks = callback;
    if (event->status <= at) reach(event, event->status);
    LEAVE;
    return CL_SUCCESS;
}
