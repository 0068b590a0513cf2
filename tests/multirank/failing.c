// SPDX-License-Identifier: Apache-2.0
/* Preloaded: makes one of the allocations, or of the system calls, that libkolo makes fail, and
 * counts what it has not given back at the end. What others call, libc among them, goes through.
 *
 * KOLO_TEST_FAIL="alloc N" or "call N": the N-th (from 1) fails, and says so. So does the N-th call
 * of one function with "send N", for example. At the end
 *   left A F of M N
 * is said: A allocations of libkolo that are not freed, F open descriptors, M allocations and N
 * calls made in all; nothing where the thread of a meeting point that failed is still there, as it
 * is for half a minute. KOLO_TEST_LEFT="A F" waits for a second until it is no more than that. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

enum { PLACES = 1 << 18, WAIT_MS = 1000, HUB_MS = 100 };
enum kind { ALLOC, CALL, NAMED, KINDS };

static uintptr_t begin, end; /* of libkolo's code */
static char named[32];
static long fail_at[KINDS], most_left[2] = {-1, -1};
static _Atomic long count[KINDS];

/* ---- whose call it is, and whether it fails ---- */

static int find_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size, (void)arg;
    if (strstr(info->dlpi_name, "libkolo.so") == NULL) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            begin = info->dlpi_addr + part->p_vaddr;
            end = begin + part->p_memsz;
        }
    }
    return 1;
}

static bool is_kolo(const void *caller)
{
    return (uintptr_t)caller >= begin && (uintptr_t)caller < end;
}

static bool fails(enum kind kind, const char *name, const void *caller)
{
    const int error = errno;
    char text[64];
    if (!is_kolo(caller)) {
        return false;
    }
    const bool chosen = atomic_fetch_add(&count[kind], 1) + 1 == fail_at[kind];
    const bool by_name =
        strcmp(name, named) == 0 && atomic_fetch_add(&count[NAMED], 1) + 1 == fail_at[NAMED];
    if (!chosen && !by_name) {
        return false;
    }
    const int len = snprintf(text, sizeof text, "failed %s\n", name);
    if (write(STDOUT_FILENO, text, (size_t)len) < 0) {
        errno = error;
    }
    return true;
}

/* ---- what is not given back ---- */

static struct {
    atomic_flag lock;
    void *at[PLACES];
    long count;
} left = {.lock = ATOMIC_FLAG_INIT};

static size_t place_of(const void *p)
{
    size_t i = ((uintptr_t)p >> 4) * 0x9E3779B97F4A7C15u >> 46;
    while (left.at[i] != NULL && left.at[i] != p) {
        i = (i + 1) % PLACES;
    }
    return i;
}

static void lock(void)
{
    while (atomic_flag_test_and_set(&left.lock)) {
    }
}

static void *keep(void *p, const void *caller)
{
    if (p != NULL && is_kolo(caller)) {
        lock();
        left.at[place_of(p)] = p;
        left.count++;
        atomic_flag_clear(&left.lock);
    }
    return p;
}

/* Those behind it move up, so that no search ends early. */
static void forget(const void *p)
{
    if (p == NULL) {
        return;
    }
    lock();
    size_t i = place_of(p);
    if (left.at[i] != NULL) {
        left.at[i] = NULL;
        left.count--;
        for (i = (i + 1) % PLACES; left.at[i] != NULL; i = (i + 1) % PLACES) {
            void *moved = left.at[i];
            left.at[i] = NULL;
            left.at[place_of(moved)] = moved;
        }
    }
    atomic_flag_clear(&left.lock);
}

static long open_files(void)
{
    long files = -1; /* the folder itself */
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && readdir(dir) != NULL) {
        files++;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return files - 2; /* . and .. */
}

/* The thread of a meeting point that failed stays for those who still come. */
static bool has_hub(void)
{
    bool found = false;
    DIR *dir = opendir("/proc/self/task");
    const struct dirent *e = NULL;
    while (dir != NULL && !found && (e = readdir(dir)) != NULL) {
        char path[300], name[16] = "";
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *file = fopen(path, "re");
        if (file != NULL) {
            found = fgets(name, sizeof name, file) != NULL && strcmp(name, "kolo-hub\n") == 0;
            (void)fclose(file);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return found;
}

static __attribute__((constructor)) void start(void)
{
    const char *fail = getenv("KOLO_TEST_FAIL"), *most = getenv("KOLO_TEST_LEFT");
    (void)dl_iterate_phdr(find_library, NULL);
    if (fail != NULL && sscanf(fail, "alloc %ld", &fail_at[ALLOC]) != 1 &&
        sscanf(fail, "call %ld", &fail_at[CALL]) != 1) {
        (void)sscanf(fail, "%31s %ld", named, &fail_at[NAMED]);
    }
    if (most != NULL) {
        (void)sscanf(most, "%ld %ld", &most_left[0], &most_left[1]);
    }
}

static __attribute__((destructor)) void stop(void)
{
    char text[64];
    for (int ms = 0; ms < HUB_MS && has_hub(); ms++) {
        (void)usleep(1000);
    }
    if (has_hub()) {
        return;
    }
    for (int ms = 0; ms < WAIT_MS && most_left[0] >= 0 &&
                     (left.count > most_left[0] || open_files() > most_left[1]);
         ms++) { /* threads that end */
        (void)usleep(1000);
    }
    if (has_hub()) { /* it had no name yet */
        return;
    }
    const int len = snprintf(text, sizeof text, "left %ld %ld of %ld %ld\n", left.count,
                             open_files(), count[ALLOC], count[CALL]);
    (void)!write(STDOUT_FILENO, text, (size_t)len);
}

/* ---- allocations ---- */

#define HERE __builtin_return_address(0)

void *malloc(size_t bytes)
{
    return fails(ALLOC, "malloc", HERE) ? (errno = ENOMEM, NULL) : keep(__libc_malloc(bytes), HERE);
}

void *calloc(size_t n, size_t bytes)
{
    return fails(ALLOC, "calloc", HERE) ? (errno = ENOMEM, NULL)
                                        : keep(__libc_calloc(n, bytes), HERE);
}

void *realloc(void *p, size_t bytes)
{
    if (fails(ALLOC, "realloc", HERE)) {
        errno = ENOMEM;
        return NULL;
    }
    forget(p);
    return keep(__libc_realloc(p, bytes), HERE);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(ALLOC, "aligned_alloc", HERE) ? (errno = ENOMEM, NULL)
                                               : keep(__libc_memalign(alignment, bytes), HERE);
}

char *strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = fails(ALLOC, "strdup", HERE) ? NULL : __libc_malloc(bytes);
    return keep(copy != NULL ? memcpy(copy, text, bytes) : (errno = ENOMEM, NULL), HERE);
}

void free(void *p)
{
    forget(p);
    __libc_free(p);
}

/* ---- system calls ---- */

#define WRAP(type, name, params, args, error, value)                                               \
    type name params                                                                               \
    {                                                                                              \
        static type(*real) params;                                                                 \
        if (fails(CALL, #name, HERE)) {                                                            \
            errno = (error);                                                                       \
            return value;                                                                          \
        }                                                                                          \
        if (real == NULL) {                                                                        \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                             \
        }                                                                                          \
        return real args;                                                                          \
    }

/* These take one more argument, or none. */
#define WRAP_OPEN(type, name, params, args, last, error)                                           \
    type name params                                                                               \
    {                                                                                              \
        static type(*real) params;                                                                 \
        va_list more;                                                                              \
        va_start(more, last);                                                                      \
        const long extra = va_arg(more, long);                                                     \
        va_end(more);                                                                              \
        if (fails(CALL, #name, HERE)) {                                                            \
            errno = (error);                                                                       \
            return -1;                                                                             \
        }                                                                                          \
        if (real == NULL) {                                                                        \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                             \
        }                                                                                          \
        return real args;                                                                          \
    }

WRAP_OPEN(int, open64, (const char *path, int flags, ...), (path, flags, extra), flags, EMFILE)
WRAP_OPEN(int, fcntl64, (int fd, int command, ...), (fd, command, extra), command, EMFILE)
WRAP(FILE *, fopen64, (const char *path, const char *mode), (path, mode), EMFILE, NULL)
WRAP(int, socket, (int family, int type, int protocol), (family, type, protocol), EMFILE, -1)
WRAP(int, accept4, (int fd, __SOCKADDR_ARG a, socklen_t *len, int flags), (fd, a, len, flags),
     EMFILE, -1)
WRAP(int, bind, (int fd, __CONST_SOCKADDR_ARG a, socklen_t len), (fd, a, len), EACCES, -1)
WRAP(int, connect, (int fd, __CONST_SOCKADDR_ARG a, socklen_t len), (fd, a, len), EACCES, -1)
WRAP(int, listen, (int fd, int backlog), (fd, backlog), EACCES, -1)
WRAP(int, getsockname, (int fd, __SOCKADDR_ARG a, socklen_t *len), (fd, a, len), ENOBUFS, -1)
WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *len),
     (fd, level, name, value, len), ENOBUFS, -1)
WRAP(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t len),
     (fd, level, name, value, len), ENOBUFS, -1)
WRAP(int, getifaddrs, (struct ifaddrs * *out), (out), ENOMEM, -1)
WRAP(ssize_t, recv, (int fd, void *to, size_t len, int flags), (fd, to, len, flags), ECONNRESET, -1)
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags), ECONNRESET, -1)
WRAP(ssize_t, send, (int fd, const void *data, size_t len, int flags), (fd, data, len, flags),
     ECONNRESET, -1)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), ECONNRESET, -1)
WRAP(int, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms), ENOMEM, -1)
WRAP(int, epoll_create1, (int flags), (flags), EMFILE, -1)
WRAP(int, epoll_ctl, (int fd, int op, int other, struct epoll_event *e), (fd, op, other, e), ENOMEM,
     -1)
WRAP(int, epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms), EINTR, -1)
WRAP(int, eventfd, (unsigned value, int flags), (value, flags), EMFILE, -1)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), EMFILE, -1)
WRAP(int, ftruncate64, (int fd, off64_t len), (fd, len), ENOSPC, -1)
WRAP(int, fallocate64, (int fd, int mode, off64_t at, off64_t len), (fd, mode, at, len), ENOSPC, -1)
WRAP(int, fstat64, (int fd, struct stat64 *out), (fd, out), EIO, -1)
WRAP(int, madvise, (void *at, size_t len, int advice), (at, len, advice), EINVAL, -1)
WRAP(void *, mmap64, (void *at, size_t len, int prot, int flags, int fd, off64_t from),
     (at, len, prot, flags, fd, from), ENOMEM, MAP_FAILED)
WRAP(ssize_t, getrandom, (void *to, size_t len, unsigned flags), (to, len, flags), ENOSYS, -1)
WRAP(int, pthread_create,
     (pthread_t * out, const pthread_attr_t *how, void *(*run)(void *), void *arg),
     (out, how, run, arg), EAGAIN, EAGAIN)

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(more, long);
    }
    va_end(more);
    if (fails(CALL, "syscall", HERE)) {
        errno = EPERM;
        return -1;
    }
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
