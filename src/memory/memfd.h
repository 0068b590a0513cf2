// SPDX-License-Identifier: Apache-2.0
/* Files in memory that have no name. A segment is made of one. */
#ifndef KOLO_MEMORY_MEMFD_H
#define KOLO_MEMORY_MEMFD_H

#include <kolo/kolo.h>

#include <stddef.h>

/* Check that this host has `len` bytes of memory and swap. Errors: SYSTEM. */
kolo_status kolo_memfd_check(size_t len);
/* Open a file of `len` bytes, sealed against growing and shrinking if it is a memfd. No page is
 * reserved yet. Errors: SYSTEM. */
kolo_status kolo_memfd_open(size_t len, int *out);
/* Reserve pages [at, at+len), which nobody uses yet: their bytes may become 0. Errors: SYSTEM. */
kolo_status kolo_memfd_reserve(int fd, size_t at, size_t len);
/* Give pages [at, at+len) back to the system. */
void kolo_memfd_release(int fd, size_t at, size_t len);

#endif
