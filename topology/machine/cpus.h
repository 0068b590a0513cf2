// SPDX-License-Identifier: Apache-2.0
/* Sets of CPUs in the two forms of files: a list "0-19,40-59", and a mask of hexadecimal words of 32
 * bits, the highest first, "0fffff00,000fffff". The nodes of a graph have lists. */
#ifndef KOLO_TOPOLOGY_MACHINE_CPUS_H
#define KOLO_TOPOLOGY_MACHINE_CPUS_H

#include "util/util.h"

#include <hwloc.h>

/* Parse a mask. hwloc's "0xf...f" before it sets all higher bits, and an empty word is 0. False: the
 * text is no mask, has too many words, or there is no memory. */
bool kolo_mask_parse(const char *text, hwloc_bitmap_t out);
/* The list of a mask; the caller calls free(). NULL: the text is no mask, or there is no memory. */
char *kolo_list_of_mask(const char *mask);
/* Add the mask of a list, as the kernel and NCCL write it. False, with nothing added: the text is no
 * list, or there is no memory. */
bool kolo_mask_add(const char *list, struct kolo_text *out);

#endif
