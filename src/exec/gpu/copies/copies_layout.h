// SPDX-License-Identifier: Apache-2.0
/* The argument of the kernel that copies, and the batch that it reads. Valid C and CUDA C++, with
 * the same layout in both. Like fused_layout.h it includes no other file of kolo. */
#ifndef KOLO_EXEC_GPU_COPIES_COPIES_LAYOUT_H
#define KOLO_EXEC_GPU_COPIES_COPIES_LAYOUT_H

#include <stdint.h>

#define KOLO_COPIES_NAME "kolo_copies"

enum {
    KOLO_COPIES_THREADS = 512,    /* of a block */
    KOLO_COPIES_BLOCKS = 16,      /* at most: enough loads in flight for a link to the host */
    KOLO_COPIES_PIECE = 16 << 10, /* bytes that a block copies at once; a multiple of 16 */
    KOLO_COPIES_WINDOW = 64       /* copies that a block knows at once */
};

struct kolo_copy { /* addresses as the GPU has them */
    uint64_t from, to, bytes;
};
struct kolo_copy_batch { /* pinned; the copies follow */
    uint64_t count, unused;
};
struct kolo_copies_launch { /* by value, so that a graph keeps it */
    uint64_t stop;          /* a word of 32 bits; not 0: do nothing */
    uint64_t batch;         /* struct kolo_copy_batch */
};

#endif
