/* Linked into the driver for containers (.ci/driver-portable), which is to load with any C library: what Rust's library asks
 * of glibc alone. Where glibc is there, it is asked; where it is not (musl), what it would have said.
 *
 * Everything else that the driver needs, musl has too, with the same form: .ci/driver-portable checks it. */
#define _GNU_SOURCE
#include <dlfcn.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Rust asks because resolvers before 2.26 have to be told of changes. That of musl reads its file each time. */
HIDDEN const char *gnu_get_libc_version(void)
{
    const char *(*version)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
    return version ? version() : "2.26";
}

HIDDEN int __res_init(void)
{
    int (*init)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "__res_init");
    return init ? init() : 0;
}
