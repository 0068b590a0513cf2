// SPDX-License-Identifier: Apache-2.0
/* Files in memory that have no name: what a segment is made of. */
#ifndef KOLO_MEMORY_MEMFD_H
#define KOLO_MEMORY_MEMFD_H

#include <kolo/kolo.h>

#include <stddef.h>

/* Whether this host can have `len` bytes at all. Errors: SYSTEM. */
kolo_status kolo_memfd_check(size_t len);
/* A file of `len` bytes that can neither grow nor shrink; none of its pages is reserved. Errors:
 * SYSTEM. */
kolo_status kolo_memfd_open(size_t len, int *out);
/* Reserve pages [at, at+len). Errors: SYSTEM. */
kolo_status kolo_memfd_reserve(int fd, size_t at, size_t len);
/* Give pages [at, at+len) back to the system. */
void kolo_memfd_release(int fd, size_t at, size_t len);

#endif
