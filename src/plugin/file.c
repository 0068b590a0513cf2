// SPDX-License-Identifier: Apache-2.0
/* Which files may be loaded as plug-ins. Loading runs a file's code, so only root and this user may
 * be able to change the file.
 *
 * The directories are resolved first, and checked from the root down. If all of them are safe, no
 * other user can exchange the file between this check and dlopen(). */
#include "plugin/load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Check that only root and this user can change the file or directory of `info`. */
static kolo_status check_owner(const char *path, const struct stat *info)
{
    if (info->st_uid != 0 && info->st_uid != geteuid()) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "plug-in refused: %s belongs to user %u, not to root or to user %u", path,
                         info->st_uid, geteuid());
    }
    const bool sticky = S_ISDIR(info->st_mode) && (info->st_mode & S_ISVTX) != 0;
    if ((info->st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "plug-in refused: %s can be written by others (mode %04o)", path,
                         info->st_mode & 07777);
    }
    return KOLO_OK;
}

/* Check every directory from / down to the last slash of `path`. None is a symbolic link. */
static kolo_status check_directories(char *path)
{
    for (char *slash = path; slash != NULL; slash = strchr(slash + 1, '/')) {
        struct stat info;
        const char kept = slash[1];
        slash[1] = '\0'; /* "/" and "/a/b/" */
        const kolo_status status =
            stat(path, &info) != 0
                ? kolo_fail(KOLO_ERR_SYSTEM, "plug-in refused: %s: %s", path, strerror(errno))
                : check_owner(path, &info);
        slash[1] = kept;
        KOLO_TRY(status);
    }
    return KOLO_OK;
}

static kolo_status check_file(const char *path)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        const char *why = errno == ELOOP ? "it is a symbolic link" : strerror(errno);
        return kolo_fail(errno == ELOOP ? KOLO_ERR_INVALID : KOLO_ERR_SYSTEM,
                         "plug-in refused: %s: %s", path, why);
    }
    kolo_status status = KOLO_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = kolo_fail(KOLO_ERR_INVALID, "plug-in refused: %s is not a regular file", path);
    } else {
        status = check_owner(path, &info);
    }
    close(fd);
    return status;
}

/* The path without symbolic links in its directories. The caller frees it. The file itself may
 * still be a symbolic link. */
static kolo_status resolve_path(const char *path, char **out)
{
    if (path[0] != '/') {
        return kolo_fail(KOLO_ERR_INVALID, "plug-in refused: %s is not an absolute path", path);
    }
    char *copy = strdup(path);
    if (copy == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the path of a plug-in");
    }
    char *slash = strrchr(copy, '/');
    *slash = '\0';
    char *folder = realpath(slash == copy ? "/" : copy, NULL);
    struct kolo_text full = {0};
    if (folder != NULL) {
        kolo_text_add(&full, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, slash + 1);
    }
    const int failed = errno;
    free(folder);
    free(copy);
    if (full.chars == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "plug-in refused: %s: %s", path, strerror(failed));
    }
    *out = full.chars;
    return KOLO_OK;
}

kolo_status kolo_plugin_path_check(const char *path, char **real)
{
    char *resolved = NULL;
    KOLO_TRY(resolve_path(path, &resolved));
    kolo_status status = check_directories(resolved);
    if (status == KOLO_OK) {
        status = check_file(resolved);
    }
    if (status < 0) {
        free(resolved);
        return status;
    }
    *real = resolved;
    return KOLO_OK;
}
