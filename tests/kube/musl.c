// A program of an image with musl: it loads every driver in /etc/OpenCL/vendors as an OpenCL loader does, and lists their devices.
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define VENDORS "/etc/OpenCL/vendors"

typedef int (*find_t)(unsigned, void **, unsigned *);
typedef void *(*address_t)(const char *);
typedef int (*devices_t)(void *, unsigned long, unsigned, void **, unsigned *);
typedef int (*info_t)(void *, unsigned, unsigned long, void *, unsigned long *);

enum { PLATFORM_NAME = 0x0902, DEVICE_NAME = 0x102B };

// The functions of a platform are at fixed places in the table that every OpenCL object begins with.
enum { GET_PLATFORM_INFO = 1, GET_DEVICE_IDS = 2, GET_DEVICE_INFO = 3 };

static int list(const char *library) {
    void *driver = dlopen(library, RTLD_NOW);
    if (!driver) {
        printf("%s: %s\n", library, dlerror());
        return 1;
    }
    address_t address = (address_t)dlsym(driver, "clGetExtensionFunctionAddress");
    find_t find = address ? (find_t)address("clIcdGetPlatformIDsKHR") : 0;
    void *platforms[8];
    unsigned platform_count = 0;
    if (!find || find(8, platforms, &platform_count) != 0)
        return 1;
    for (unsigned i = 0; i < platform_count && i < 8; i++) {
        void **table = *(void ***)platforms[i];
        char name[256] = "?";
        ((info_t)table[GET_PLATFORM_INFO])(platforms[i], PLATFORM_NAME, sizeof name, name, 0);
        printf("Platform: %s\n", name);
        void *devices[8];
        unsigned device_count = 0;
        ((devices_t)table[GET_DEVICE_IDS])(platforms[i], 0xFFFFFFFF, 8, devices, &device_count);
        for (unsigned j = 0; j < device_count && j < 8; j++) {
            ((info_t)table[GET_DEVICE_INFO])(devices[j], DEVICE_NAME, sizeof name, name, 0);
            printf("Device: %s\n", name);
        }
    }
    return 0;
}

int main(void) {
    DIR *vendors = opendir(VENDORS);
    if (!vendors) {
        printf("there is no driver\n");
        return 0;
    }
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(vendors));) {
        char path[512], library[512];
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".icd") != 0)
            continue;
        snprintf(path, sizeof path, VENDORS "/%s", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(library, sizeof library, file)) {
            library[strcspn(library, "\n")] = 0;
            failed |= list(library);
        }
        if (file)
            fclose(file);
    }
    closedir(vendors);
    return failed;
}
