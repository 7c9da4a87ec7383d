/* The program in the tests of confinement (tests/confine.rs): its kernel is native code that makes system calls in the
 * worker. What it is to get at is in TELECL_TEST_TARGET. Each attempt is a line of output: its name, and the result, or the
 * number of the error with a minus sign. */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>

/* A call: its number, six arguments, and which of them are places in `data`. The result replaces the number. */
static const char *source =
    "long call(long n, long a, long b, long c, long d, long e, long f) {\n"
    "    long result;\n"
    "    __asm__ volatile(\"movq %5, %%r10; movq %6, %%r8; movq %7, %%r9; syscall\"\n"
    "        : \"=a\"(result) : \"0\"(n), \"D\"(a), \"S\"(b), \"d\"(c), \"g\"(d), \"g\"(e), \"g\"(f)\n"
    "        : \"rcx\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\");\n"
    "    return result;\n"
    "}\n"
    "kernel void make_call(global long *args, global char *data) {\n"
    "    long a[6];\n"
    "    for (int i = 0; i < 6; i++) a[i] = args[i + 1] + (args[7] & (1L << i) ? (long)data : 0);\n"
    "    args[0] = call(args[0], a[0], a[1], a[2], a[3], a[4], a[5]);\n"
    "}\n"
    /* A process that stays: the child never returns from here, and leaves the worker's session if it can. */
    "kernel void leave_behind(global long *args, global char *data) {\n"
    "    long child = call(57, 0, 0, 0, 0, 0, 0);\n"
    "    if (child == 0) call(112, 0, 0, 0, 0, 0, 0);\n"
    "    while (child == 0) call(34, 0, 0, 0, 0, 0, 0);\n"
    "    args[0] = child;\n"
    "}\n"
    "kernel void tell_place(global long *args, global char *data) { args[0] = (long)data; }\n";

enum { SIZE = 1 << 16 };
static cl_program program;
static cl_mem arguments, data;
static char bytes[SIZE];

static const char *target(void) {
    const char *text = getenv("TELECL_TEST_TARGET");
    NEED(text, "TELECL_TEST_TARGET is not set");
    return text;
}

static void begin(void) {
    open_device();
    program = program_of(source, "");
    arguments = buffer_of(CL_MEM_READ_WRITE, 8 * sizeof(cl_long), NULL);
    data = buffer_of(CL_MEM_READ_WRITE, SIZE, NULL);
}

static long run_with(const char *name, cl_long args[8]) {
    OK(clEnqueueWriteBuffer(queue, arguments, CL_TRUE, 0, 8 * sizeof(cl_long), args, 0, NULL, NULL));
    OK(clEnqueueWriteBuffer(queue, data, CL_TRUE, 0, SIZE, bytes, 0, NULL, NULL));
    cl_kernel kernel = MADE(clCreateKernel(program, name, &err));
    set_arg(kernel, 0, sizeof arguments, &arguments);
    set_arg(kernel, 1, sizeof data, &data);
    run_kernel(kernel, 1);
    read_all(arguments, args, 8 * sizeof(cl_long));
    read_all(data, bytes, SIZE);
    OK(clReleaseKernel(kernel));
    return args[0];
}

/* Makes a call in the worker; the bits of `places` say which arguments are offsets in `bytes`. */
static long make(long number, int places, long a, long b, long c, long d, long e) {
    cl_long args[8] = {number, a, b, c, d, e, 0, places};
    return run_with("make_call", args);
}

static void put(const char *text) { snprintf(bytes, SIZE, "%s", text); }

static long opens(const char *path, int flags) {
    put(path);
    return make(SYS_openat, 2, AT_FDCWD, 0, flags, 0600, 0);
}

/* What is in a file, or why not. */
static void show_file(const char *path) {
    long file = opens(path, O_RDONLY);
    if (file >= 0) {
        memset(bytes, 0, SIZE);
        long got = make(SYS_read, 2, file, 0, 256, 0, 0);
        make(SYS_close, 0, file, 0, 0, 0, 0);
        say("file: %s", got < 0 ? "cannot be read" : bytes);
    } else {
        say("file: %ld", file);
    }
}

CASE_TELECL_ONLY(reads_a_file) {
    begin();
    show_file(target());
}

CASE_TELECL_ONLY(changes_a_file) {
    begin();
    say("write: %ld", opens(target(), O_WRONLY) >= 0 ? 0 : opens(target(), O_WRONLY));
    put(target());
    say("chmod: %ld", make(SYS_chmod, 1, 0, 0644, 0, 0, 0));
    put(target());
    say("unlink: %ld", make(SYS_unlink, 1, 0, 0, 0, 0, 0));
}

CASE_TELECL_ONLY(lists_a_directory) {
    begin();
    long place = opens(target(), O_RDONLY | O_DIRECTORY);
    say("list: %ld", place < 0 ? place : 0);
}

/* The target is a port of this machine, and the path of a socket. */
CASE_TELECL_ONLY(uses_the_network) {
    begin();
    static const int families[] = {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK};
    static const char *names[] = {"inet", "inet6", "unix", "netlink"};
    for (int i = 0; i < 4; i++) {
        long made = make(SYS_socket, 0, families[i], SOCK_DGRAM, 0, 0, 0);
        say("%s: %ld", names[i], made < 0 ? made : 0);
    }
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(target()))};
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    long made = make(SYS_socket, 0, AF_INET, SOCK_STREAM, 0, 0, 0);
    memcpy(bytes, &there, sizeof there);
    say("connect: %ld", made < 0 ? made : make(SYS_connect, 2, made, 0, sizeof there, 0, 0));
    const char *path = strchr(target(), ' ');
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    snprintf(local.sun_path, sizeof local.sun_path, "%s", path ? path + 1 : "/none");
    long socket = make(SYS_socket, 0, AF_UNIX, SOCK_STREAM, 0, 0, 0);
    memcpy(bytes, &local, sizeof local);
    say("service: %ld", make(SYS_connect, 2, socket, 0, sizeof local, 0, 0));
    /* The session's own sockets must not be turned into others. */
    int turned = 0;
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    memcpy(bytes, &nowhere, sizeof nowhere);
    for (int i = 3; i < 64 && made < 0; i++) turned += make(SYS_connect, 2, i, 0, sizeof nowhere, 0, 0) == 0;
    say("turned: %d", turned);
}

/* The target is a process. Signal 0 asks whether one could be sent. */
CASE_TELECL_ONLY(signals_a_process) {
    begin();
    long process = atol(target());
    say("kill: %ld", make(SYS_kill, 0, process, 0, 0, 0, 0));
    say("tgkill: %ld", make(SYS_tgkill, 0, process, process, 0, 0, 0));
    long handle = make(SYS_pidfd_open, 0, process, 0, 0, 0, 0);
    say("pidfd: %ld", handle < 0 ? handle : make(SYS_pidfd_send_signal, 0, handle, 0, 0, 0, 0));
    memcpy(bytes, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}, sizeof(struct rlimit));
    say("prlimit: %ld", make(SYS_prlimit64, 4, process, RLIMIT_CPU, 0, 0, 0));
    say("itself: %ld", make(SYS_kill, 0, make(SYS_getpid, 0, 0, 0, 0, 0, 0), 0, 0, 0, 0));
}

/* A session whose memory others want; it stays until it is killed. */
CASE_TELECL_ONLY(has_a_secret) {
    begin();
    cl_long nothing[8] = {0};
    long place = run_with("tell_place", nothing);
    long process = make(SYS_getpid, 0, 0, 0, 0, 0, 0);
    put("the secret of a session");
    OK(clEnqueueWriteBuffer(queue, data, CL_TRUE, 0, SIZE, bytes, 0, NULL, NULL));
    say("secret: %ld %ld", process, place);
    pause();
}

/* The target is a process and a place in its memory. */
CASE_TELECL_ONLY(reads_anothers_memory) {
    begin();
    long process, place;
    NEED(sscanf(target(), "%ld %ld", &process, &place) == 2, "no process and place");
    struct iovec there = {(void *)place, 23};
    cl_long nothing[8] = {0};
    struct iovec here = {(char *)run_with("tell_place", nothing) + 4096, 23};
    memset(bytes, 0, SIZE);
    memcpy(bytes, &here, sizeof here);
    memcpy(bytes + sizeof here, &there, sizeof there);
    long got = make(SYS_process_vm_readv, 2 | 8, process, 0, 1, sizeof here, 1);
    say("process_vm_readv: %s", got == 23 ? bytes + 4096 : got == -EPERM || got == -EACCES ? "denied" : "failed");
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/mem", process);
    long memory = opens(path, O_RDONLY);
    memset(bytes, 0, SIZE);
    got = memory < 0 ? memory : make(SYS_pread64, 2, memory, 0, 23, place, 0);
    say("mem: %s", got == 23 ? bytes : got == -EPERM || got == -EACCES ? "denied" : "failed");
    snprintf(path, sizeof path, "/proc/%ld/environ", process);
    long environment = opens(path, O_RDONLY);
    say("environ: %ld", environment < 0 ? environment : 0);
    long traced = make(SYS_ptrace, 0, PTRACE_SEIZE, process, 0, 0, 0);
    say("ptrace: %ld", traced);
}

/* What a thread of the vendor's is bound by, and whose it is. */
CASE_TELECL_ONLY(tells_who_it_is) {
    begin();
    say("user: %ld", make(SYS_getuid, 0, 0, 0, 0, 0, 0));
    say("unshare: %ld", make(SYS_unshare, 0, CLONE_SYSVSEM, 0, 0, 0, 0));
    long pair = make(SYS_socketpair, 8, AF_UNIX, SOCK_DGRAM, 0, 0, 0);
    say("socketpair: %ld", pair);
    long size = 3L << 30;
    long memory = make(SYS_mmap, 0, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    say("3 GiB: %ld", memory < 0 && memory > -4096 ? memory : 0);
}

/* Its session ends, and a process that it has started stays. */
CASE_TELECL_ONLY(leaves_a_process_behind) {
    begin();
    cl_long nothing[8] = {0};
    say("child: %ld", run_with("leave_behind", nothing));
    pause();
}
