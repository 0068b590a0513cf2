// SPDX-License-Identifier: Apache-2.0
/* Arrays that grow. */
#ifndef KOLO_UTIL_GROW_H
#define KOLO_UTIL_GROW_H

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

/* Room for one more in an array of `count` elements that has *cap: the array, moved if need be.
 * NULL: there is no memory, and it is where it was. */
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
