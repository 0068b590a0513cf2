// SPDX-License-Identifier: Apache-2.0
/* The memory of a thread block: the parts of the slab, and the words of its program, which it reads
 * through a window. */
#ifndef KOLO_EXEC_GPU_PROGRAM_PROGRAM_WORDS_H
#define KOLO_EXEC_GPU_PROGRAM_PROGRAM_WORDS_H

#include "exec/gpu/fused/fused_body.h"
#include "exec/gpu/program/program_layout.h"

#if defined(__CUDACC__)
#include "exec/gpu/program/program_device.h"
#else
#include "exec/gpu/program/program_host.h"
#endif

namespace kolo_gpu
{

struct Threads { /* the threads of a block that this thread plays: first, first + step, ... */
    uint32_t first, step, count;
};

/* ---- the slab ---- */

KOLO_GPU kolo_program_slice *slice_of(const kolo_program_launch &l, uint32_t rank, uint32_t slice)
{
    return (kolo_program_slice *)(uintptr_t)l.ends.slab[rank] + slice;
}
KOLO_GPU uint64_t inbox_of(const kolo_program_launch &l, uint32_t rank, uint32_t slice,
                           uint32_t epoch)
{
    const uint64_t inbox = (uint64_t)slice * KOLO_PROGRAM_DEPTH + epoch % KOLO_PROGRAM_DEPTH;
    return l.ends.slab[rank] + l.room.slices * sizeof(kolo_program_slice) +
           inbox * l.room.inbox_bytes;
}
/* The lanes of a rank share the scratch of lane 0's slice. */
KOLO_GPU uint64_t scratch_of(const kolo_program_launch &l, uint32_t slice, uint32_t tile)
{
    const uint64_t inboxes = (uint64_t)l.room.slices * KOLO_PROGRAM_DEPTH * l.room.inbox_bytes;
    const uint64_t copy =
        (uint64_t)(slice % l.slices) * KOLO_PROGRAM_COPIES + tile % KOLO_PROGRAM_COPIES;
    return l.ends.slab[l.me] + l.room.slices * sizeof(kolo_program_slice) + inboxes +
           copy * l.room.scratch_bytes;
}

/* ---- the program ---- */

struct Shared { /* by the threads of a block */
    uint64_t address[2 * KOLO_PROGRAM_SIDES];
    uint64_t window[KOLO_PROGRAM_WINDOW];
};

struct Window { /* on the program of a lane */
    uint64_t *word;
    uint32_t first, end; /* of the program: the window's first word; the end of the lane */
};

KOLO_GPU uint32_t field(uint64_t op, uint32_t shift)
{
    return (uint32_t)(op >> shift) & 0xff;
}
KOLO_GPU uint32_t code_of(uint64_t op)
{
    return field(op, 0);
}
KOLO_GPU bool is_complete(uint64_t op)
{
    return field(op, 8) != 0;
}
KOLO_GPU uint32_t sources_of(uint64_t op)
{
    return field(op, 16);
}
KOLO_GPU uint32_t destinations_of(uint64_t op)
{
    return field(op, 24);
}
KOLO_GPU uint32_t value_of(uint64_t op)
{
    return (uint32_t)(op >> 32);
}
KOLO_GPU uint32_t rank_of(uint64_t operand)
{
    return field(operand, 48);
}

KOLO_GPU void load(const kolo_program_launch &l, Window *window, uint32_t first,
                   const Threads &threads)
{
    const uint64_t *from = l.program != 0 ? (const uint64_t *)(uintptr_t)l.program : l.word;
    const uint32_t left = window->end - first;
    window->first = first;
    for (uint32_t i = threads.first; i < KOLO_PROGRAM_WINDOW && i < left; i += threads.step) {
        window->word[i] = from[first + i];
    }
}

/* Load the op at `at`, with all its operands. */
KOLO_GPU const uint64_t *op_at(const kolo_program_launch &l, Window *window, uint32_t at,
                               const Threads &threads)
{
    enum { LONGEST = 1 + KOLO_PROGRAM_SIDES };
    const uint32_t end = window->first + KOLO_PROGRAM_WINDOW;
    if (at < window->first || (end < window->end && at + LONGEST > end)) {
        (void)any(false); /* a barrier: no thread reads the old window any more */
        load(l, window, at, threads);
        (void)any(false);
    }
    return window->word + (at - window->first);
}

} // namespace kolo_gpu

#endif
