/* A library for LD_PRELOAD that makes file operations below one folder fail, as a broken or full disk does.

   IO_FAULTS_BELOW        the folder; nothing fails outside of it
   IO_FAULTS_CALLS        which calls, by comma: open write fsync mkdir rename ftruncate fallocate unlink
   IO_FAULTS_ERRNO        the error's number
   IO_FAULTS_AT           the n-th of these calls fails, counted from 1
   IO_FAULTS_FROM         the n-th and all later ones fail
   IO_FAULTS_PROBABILITY  each fails with this probability
   IO_FAULTS_SEED         start of the pseudo-random numbers
   IO_FAULTS_SWITCH       a file: nothing fails, and nothing is counted, unless it exists

   Opening counts where a file is opened for writing; with EMFILE, any opening. The fields are read at the first call.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static const char *below, *calls, *switched_by;
static int number;
static long at, from;
static double probability;
static atomic_long counted;
static atomic_ulong state;
static atomic_int ready;

static long integer(const char *name) { const char *v = getenv(name); return v ? atol(v) : 0; }

static void configure(void) {
    if (atomic_load(&ready)) return;
    below = getenv("IO_FAULTS_BELOW");
    calls = getenv("IO_FAULTS_CALLS");
    switched_by = getenv("IO_FAULTS_SWITCH");
    number = (int)integer("IO_FAULTS_ERRNO");
    at = integer("IO_FAULTS_AT");
    from = integer("IO_FAULTS_FROM");
    probability = getenv("IO_FAULTS_PROBABILITY") ? atof(getenv("IO_FAULTS_PROBABILITY")) : 0;
    atomic_store(&state, (unsigned long)integer("IO_FAULTS_SEED") * 2654435761UL + 1);
    atomic_store(&ready, 1);
}

/* For the program itself, by ctypes: count from 0 again, and let these calls fail. */
void io_faults_plan(const char *new_calls, int new_number, long new_at, long new_from) {
    configure();
    calls = NULL;
    number = new_number, at = new_at, from = new_from;
    atomic_store(&counted, 0);
    calls = *new_calls ? strdup(new_calls) : NULL;
}

static int listed(const char *call) {
    size_t length = strlen(call);
    for (const char *p = calls; p && (p = strstr(p, call)); p += length)
        if ((p == calls || p[-1] == ',') && (p[length] == 0 || p[length] == ',')) return 1;
    return 0;
}

static int drawn(void) {
    unsigned long x = atomic_fetch_add(&state, 0x9E3779B97F4A7C15UL) + 0x9E3779B97F4A7C15UL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9UL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBUL;
    return (double)((x ^ (x >> 31)) >> 11) / 9007199254740992.0 < probability;
}

static int fails(const char *call, const char *path) {
    configure();
    if (!below || !path || !listed(call) || strncmp(path, below, strlen(below))) return 0;
    if (switched_by && access(switched_by, F_OK)) return 0;
    long n = atomic_fetch_add(&counted, 1) + 1;
    if (n == at || (from && n >= from) || (probability > 0 && drawn())) { errno = number; return 1; }
    return 0;
}

static int path_fails(const char *call, int folder, const char *path) {
    if (!path || path[0] == '/') return fails(call, path);
    char link[64], full[PATH_MAX * 2];
    ssize_t n;
    if (folder == AT_FDCWD) n = getcwd(full, PATH_MAX) ? (ssize_t)strlen(full) : -1;
    else { snprintf(link, sizeof link, "/proc/self/fd/%d", folder); n = readlink(link, full, PATH_MAX); }
    if (n < 0) return 0;
    snprintf(full + n, sizeof full - (size_t)n, "/%s", path);
    return fails(call, full);
}

static int fd_fails(const char *call, int fd) {
    configure();
    if (!below || !listed(call)) return 0;
    char link[64], full[PATH_MAX];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, full, sizeof full - 1);
    errno = before;
    if (n < 0) return 0;
    full[n] = 0;
    return fails(call, full);
}

#define REAL(name) ({ static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name); real; })

static int opening_counts(int flags) { configure(); return number == EMFILE || (flags & (O_WRONLY | O_RDWR | O_CREAT)); }

#define OPEN(name)                                                                          \
    int name(const char *path, int flags, ...) {                                            \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        if (opening_counts(flags) && path_fails("open", AT_FDCWD, path)) return -1;         \
        return REAL(name)(path, flags, mode);                                               \
    }
#define OPENAT(name)                                                                        \
    int name(int folder, const char *path, int flags, ...) {                                \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        if (opening_counts(flags) && path_fails("open", folder, path)) return -1;           \
        return REAL(name)(folder, path, flags, mode);                                       \
    }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
    return fd_fails("write", fd) ? -1 : REAL(write)(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return fd_fails("write", fd) ? -1 : REAL(pwrite)(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    return fd_fails("write", fd) ? -1 : REAL(pwrite64)(fd, data, size, offset);
}
ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t size, unsigned flags) {
    return fd_fails("write", out) ? -1 : REAL(copy_file_range)(in, in_at, out, out_at, size, flags);
}
int fsync(int fd) { return fd_fails("fsync", fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fd_fails("fsync", fd) ? -1 : REAL(fdatasync)(fd); }
int ftruncate(int fd, off_t size) { return fd_fails("ftruncate", fd) ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { return fd_fails("ftruncate", fd) ? -1 : REAL(ftruncate64)(fd, size); }
int posix_fallocate(int fd, off_t at_byte, off_t size) {
    int before = errno, failed = fd_fails("fallocate", fd);
    errno = before;
    return failed ? number : REAL(posix_fallocate)(fd, at_byte, size);
}
int posix_fallocate64(int fd, off64_t at_byte, off64_t size) {
    int before = errno, failed = fd_fails("fallocate", fd);
    errno = before;
    return failed ? number : REAL(posix_fallocate64)(fd, at_byte, size);
}
int mkdir(const char *path, mode_t mode) {
    return path_fails("mkdir", AT_FDCWD, path) ? -1 : REAL(mkdir)(path, mode);
}
int mkdirat(int folder, const char *path, mode_t mode) {
    return path_fails("mkdir", folder, path) ? -1 : REAL(mkdirat)(folder, path, mode);
}
int rename(const char *old, const char *new) {
    return path_fails("rename", AT_FDCWD, new) ? -1 : REAL(rename)(old, new);
}
int renameat(int from_folder, const char *old, int to_folder, const char *new) {
    return path_fails("rename", to_folder, new) ? -1 : REAL(renameat)(from_folder, old, to_folder, new);
}
int unlink(const char *path) { return path_fails("unlink", AT_FDCWD, path) ? -1 : REAL(unlink)(path); }
int unlinkat(int folder, const char *path, int flags) {
    return path_fails("unlink", folder, path) ? -1 : REAL(unlinkat)(folder, path, flags);
}
int rmdir(const char *path) { return path_fails("unlink", AT_FDCWD, path) ? -1 : REAL(rmdir)(path); }
