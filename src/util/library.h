// SPDX-License-Identifier: Apache-2.0
/* Code from outside: which files may be loaded, and libraries that a variable may name.
 *
 * This part uses nothing but libc, so that libnccl has it, too. */
#ifndef KOLO_UTIL_LIBRARY_H
#define KOLO_UTIL_LIBRARY_H

#include <kolo/kolo.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { KOLO_WHY_BYTES = 512 };

/* Check that only root and this user can change the code in the file `path`. `path` must be
 * absolute, the file a regular one. No other user may own or write it or a directory above it,
 * except for sticky directories. `links`: the file may be a symbolic link of root or this user;
 * then all these rules hold for the link's target, too. *real gets the path without symbolic links;
 * the caller frees it. Errors: INVALID (a rule is broken), SYSTEM; `why` says which. */
kolo_status kolo_code_path(const char *path, bool links, char **real, char why[KOLO_WHY_BYTES]);

/* Load the library that the environment variable names, if kolo_code_path() allows it, or else
 * `usual`, which the dynamic linker finds. A set-user-id program ignores the variable. NULL: `why`
 * has the reason. */
void *kolo_library_open(const char *variable, const char *usual, char why[KOLO_WHY_BYTES]);

/* The path of a file of code that an environment variable names; NULL: it names none, or this is a
 * set-user-id program. */
const char *kolo_code_variable(const char *variable);

#ifdef __cplusplus
}
#endif

#endif
