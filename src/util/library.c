// SPDX-License-Identifier: Apache-2.0
/* Which files may be loaded as code. Loading runs a file's code, so only root and this user may be
 * able to change the file.
 *
 * The directories are resolved first, and checked from the root down. If all of them are safe, no
 * other user can exchange the file between this check and dlopen(). */
#include "util/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static kolo_status refuse(kolo_status status, char *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static kolo_status refuse(kolo_status status, char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, KOLO_WHY_BYTES, format, args);
    va_end(args);
    return status;
}

static kolo_status check_owner(const char *path, const struct stat *info, char *why)
{
    return info->st_uid == 0 || info->st_uid == geteuid()
               ? KOLO_OK
               : refuse(KOLO_ERR_INVALID, why, "%s belongs to user %u, not to root or to user %u",
                        path, info->st_uid, geteuid());
}

/* Check that only root and this user can change the file or directory of `info`. */
static kolo_status check_writers(const char *path, const struct stat *info, char *why)
{
    const kolo_status status = check_owner(path, info, why);
    const bool sticky = S_ISDIR(info->st_mode) && (info->st_mode & S_ISVTX) != 0;
    if (status == KOLO_OK && (info->st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky) {
        return refuse(KOLO_ERR_INVALID, why, "%s can be written by others (mode %04o)", path,
                      info->st_mode & 07777);
    }
    return status;
}

/* Check every directory from / down to the last slash of `path`. None is a symbolic link. */
static kolo_status check_directories(char *path, char *why)
{
    kolo_status status = KOLO_OK;
    for (char *slash = path; slash != NULL && status == KOLO_OK; slash = strchr(slash + 1, '/')) {
        struct stat info;
        const char kept = slash[1];
        slash[1] = '\0'; /* "/" and "/a/b/" */
        status = stat(path, &info) != 0
                     ? refuse(KOLO_ERR_SYSTEM, why, "%s: %s", path, strerror(errno))
                     : check_writers(path, &info, why);
        slash[1] = kept;
    }
    return status;
}

static kolo_status check_file(const char *path, char *why)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        const bool link = errno == ELOOP;
        return refuse(link ? KOLO_ERR_INVALID : KOLO_ERR_SYSTEM, why, "%s: %s", path,
                      link ? "it is a symbolic link" : strerror(errno));
    }
    const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    close(fd);
    return regular ? check_writers(path, &info, why)
                   : refuse(KOLO_ERR_INVALID, why, "%s is not a regular file", path);
}

/* The path without symbolic links in its directories. The caller frees it. The file itself may
 * still be a symbolic link. */
static kolo_status resolve_directories(const char *path, char **out, char *why)
{
    char *full = NULL;
    char *copy = strdup(path);
    char *slash = copy != NULL ? strrchr(copy, '/') : NULL;
    if (slash != NULL) {
        *slash = '\0';
        char *folder = realpath(slash == copy ? "/" : copy, NULL);
        if (folder != NULL &&
            asprintf(&full, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, slash + 1) < 0) {
            full = NULL;
        }
        free(folder);
    }
    const int failed = errno;
    free(copy);
    *out = full;
    return full != NULL ? KOLO_OK : refuse(KOLO_ERR_SYSTEM, why, "%s: %s", path, strerror(failed));
}

/* If *path is a symbolic link of root or this user, *path becomes the target of the link. */
static kolo_status follow_link(char **path, char *why)
{
    struct stat info;
    if (lstat(*path, &info) != 0 || !S_ISLNK(info.st_mode)) {
        return KOLO_OK; /* check_file() finds what is wrong */
    }
    kolo_status status = check_owner(*path, &info, why);
    if (status != KOLO_OK) {
        return status;
    }
    char *target = realpath(*path, NULL);
    if (target == NULL) {
        return refuse(KOLO_ERR_SYSTEM, why, "%s: %s", *path, strerror(errno));
    }
    free(*path);
    *path = target;
    return check_directories(target, why);
}

kolo_status kolo_code_path(const char *path, bool links, char **real, char why[KOLO_WHY_BYTES])
{
    char *resolved = NULL;
    if (path[0] != '/') {
        return refuse(KOLO_ERR_INVALID, why, "%s is not an absolute path", path);
    }
    kolo_status status = resolve_directories(path, &resolved, why);
    status = status == KOLO_OK ? check_directories(resolved, why) : status;
    status = status == KOLO_OK && links ? follow_link(&resolved, why) : status;
    status = status == KOLO_OK ? check_file(resolved, why) : status;
    if (status != KOLO_OK) {
        free(resolved);
        return status;
    }
    *real = resolved;
    return KOLO_OK;
}

const char *kolo_code_variable(const char *variable)
{
    /* secure_getenv: the user of a set-user-id program must not choose its code. */
    const char *path = secure_getenv(variable);
    return path != NULL && path[0] != '\0' ? path : NULL;
}

void *kolo_library_open(const char *variable, const char *usual, char why[KOLO_WHY_BYTES])
{
    char reason[KOLO_WHY_BYTES];
    char *real = NULL;
    const char *path = kolo_code_variable(variable);
    if (path != NULL && kolo_code_path(path, true, &real, reason) != KOLO_OK) {
        (void)refuse(KOLO_ERR_INVALID, why, "%s refused: %.400s", variable, reason);
        return NULL;
    }
    void *library = dlopen(real != NULL ? real : usual, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *error = dlerror();
        (void)refuse(KOLO_ERR_SYSTEM, why, "%s", error != NULL ? error : usual);
    }
    free(real);
    return library;
}
