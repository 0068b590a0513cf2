// SPDX-License-Identifier: Apache-2.0
/* Arrays that grow. */
#ifndef KOLO_UTIL_GROW_H
#define KOLO_UTIL_GROW_H

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

/* Make room for one more element in an array of `count` elements with room for *cap. Returns the
 * array, which may have moved. NULL: out of memory; the array is unchanged. */
static inline void *kolo_grow(void *array, int count, int *cap, size_t each)
{
    if (count < *cap) {
        return array;
    }
    const size_t larger = *cap == 0 ? 16 : 2 * (size_t)*cap;
    void *grown = larger <= INT_MAX ? realloc(array, larger * each) : NULL;
    *cap = grown != NULL ? (int)larger : *cap;
    return grown;
}

#endif
