// SPDX-License-Identifier: Apache-2.0
/* Files that a variable names, to be written: by whoever runs the program, into a place that other
 * users may write to, too, such as /tmp. There another user can lay a link to one of our files, a
 * file of his own, or a pipe that nobody reads. */
#include "util/util.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Open without following a link, unless root or this user made it. Waits for nobody. */
static int open_path(const char *path, int flags)
{
    struct stat link;
    flags |= O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    const int fd = open(path, flags | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == ELOOP && lstat(path, &link) == 0 &&
        (link.st_uid == 0 || link.st_uid == geteuid())) {
        return open(path, flags, 0600);
    }
    return fd;
}

/* NULL, or why nothing may be written there. */
static const char *objection_to(int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return strerror(errno);
    }
    if (!S_ISCHR(info.st_mode) && !S_ISREG(info.st_mode)) {
        return "it is not a file";
    }
    if (S_ISREG(info.st_mode) && info.st_uid != 0 && info.st_uid != geteuid()) {
        return "it belongs to another user";
    }
    if (S_ISREG(info.st_mode) && info.st_nlink > 1) {
        return "it has another name, too";
    }
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0 ? NULL : strerror(errno);
}

int kolo_open_output(const char *path, bool append, const char **why)
{
    const int stream = strcmp(path, "/dev/stdout") == 0   ? STDOUT_FILENO
                       : strcmp(path, "/dev/stderr") == 0 ? STDERR_FILENO
                                                          : -1;
    const int fd =
        stream >= 0 ? fcntl(stream, F_DUPFD_CLOEXEC, 3) : open_path(path, append ? O_APPEND : 0);
    if (fd < 0) {
        *why = errno == ELOOP   ? "it is a symbolic link of another user"
               : errno == ENXIO ? "it is a pipe that nobody reads"
                                : strerror(errno);
        return -1;
    }
    *why = stream >= 0 ? NULL : objection_to(fd);
    if (*why == NULL && stream < 0 && !append && ftruncate(fd, 0) != 0 && errno != EINVAL) {
        *why = strerror(errno);
    }
    if (*why != NULL) {
        close(fd);
        return -1;
    }
    return fd;
}
