// SPDX-License-Identifier: Apache-2.0
/* Memory as a file without a name: memfds of a sealed size, or files of /dev/shm.
 *
 * Lack of memory must be an error of the call that asks for pages, never a SIGBUS of a later store.
 * So fallocate() or a write reserves the pages. The limits below are checked first, because the
 * kernel kills a process that crosses them. */
#include "memory/memfd.h"

#include "util/util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* A request above the host's memory must fail here, not end in the out-of-memory killer. */
kolo_status kolo_memfd_check(size_t len)
{
    struct sysinfo info;
    if (sysinfo(&info) == 0 && len / info.mem_unit > info.totalram + info.totalswap) {
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: %zu bytes are more than this host has",
                         len);
    }
    return KOLO_OK;
}

/* Growing a file beyond this limit is a SIGXFSZ. */
static kolo_status check_limit(size_t len)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && len > limit.rlim_cur) {
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: %zu bytes exceed the file size limit %zu",
                         len, (size_t)limit.rlim_cur);
    }
    return KOLO_OK;
}

/* If a filter denies memfds, open a file that never has a name. It cannot be sealed. */
static kolo_status open_unnamed(int why, int *out)
{
    *out = open("/dev/shm", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (*out < 0) {
        return kolo_fail(KOLO_ERR_SYSTEM,
                         "shared memory: memfd_create: %s, and a file in /dev/shm: %s",
                         strerror(why), kolo_why(errno));
    }
    KOLO_LOG(INFO, SHM, "memfd_create is denied (%s): memory comes from /dev/shm", strerror(why));
    return KOLO_OK;
}

static kolo_status open_file(int *out, bool *sealable)
{
    *out = memfd_create("kolo", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    *sealable = *out >= 0;
    if (*out < 0 && (errno == EPERM || errno == EACCES || errno == ENOSYS)) {
        return open_unnamed(errno, out);
    }
    return *out >= 0
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM, "shared memory: memfd_create: %s", kolo_why(errno));
}

kolo_status kolo_memfd_open(size_t len, int *out)
{
    int fd = -1;
    bool sealable = false;
    KOLO_TRY(check_limit(len));
    KOLO_TRY(open_file(&fd, &sealable));
    if (ftruncate(fd, (off_t)len) != 0 ||
        (sealable && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        const kolo_status status =
            kolo_fail(KOLO_ERR_SYSTEM, "shared memory: sizing %zu bytes: %s", len, strerror(errno));
        close(fd);
        return status;
    }
    *out = fd;
    return KOLO_OK;
}

/* If a filter denies fallocate(), writing the pages reserves them. Nobody uses them yet, and a
 * write reports a lack of memory as fallocate() does. Returns 0, or an errno. */
static int write_pages(int fd, size_t at, size_t len)
{
    static const char zeros[64 << 10];
    while (len > 0) {
        const ssize_t n = pwrite(fd, zeros, kolo_min(len, sizeof zeros), (off_t)at);
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        if (n > 0) {
            at += (size_t)n;
            len -= (size_t)n;
        }
    }
    return 0;
}

kolo_status kolo_memfd_reserve(int fd, size_t at, size_t len)
{
    int failed = 0;
    KOLO_TRY(kolo_memfd_check(len));
    do {
        failed = fallocate(fd, 0, (off_t)at, (off_t)len) == 0 ? 0 : errno;
    } while (failed == EINTR);
    if (failed == ENOSYS || failed == EOPNOTSUPP || failed == EPERM) {
        failed = write_pages(fd, at, len);
    }
    if (failed != 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: reserving %zu bytes: %s", len,
                         strerror(failed));
    }
    return KOLO_OK;
}

void kolo_memfd_release(int fd, size_t at, size_t len)
{
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)len);
}
