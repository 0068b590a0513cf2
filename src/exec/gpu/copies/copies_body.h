// SPDX-License-Identifier: Apache-2.0
/* The work of a thread of the kernel that copies, in C++ for the GPU and the host alike. The blocks
 * take the pieces of all copies in turn. */
#ifndef KOLO_EXEC_GPU_COPIES_COPIES_BODY_H
#define KOLO_EXEC_GPU_COPIES_COPIES_BODY_H

#include "exec/gpu/copies/copies_layout.h"
#include "exec/gpu/fused/fused_body.h"

namespace kolo_gpu
{

KOLO_GPU void copy_piece(const kolo_copy &copy, uint64_t at, const Who &who)
{
    const kolo_fused_rank ends = {copy.from + at, copy.to + at, 0, 0, 0};
    const uint64_t left = copy.bytes - at, most = KOLO_COPIES_PIECE;
    Piece p;
    p.rank = &ends;
    p.from = p.to = {0, 1};
    p.from_at = p.to_at = 0;
    p.count = left < most ? left : most;
    p.divisor = 1;
    fold_piece<Copy<uint8_t>>(p, who);
}

/* `before`: the pieces of the copies before these. Returns those of all. */
KOLO_GPU uint64_t copy_window(const kolo_copy *copy, uint64_t count, uint64_t before,
                              const Who &who)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t pieces = (copy[i].bytes + KOLO_COPIES_PIECE - 1) / KOLO_COPIES_PIECE;
        const uint64_t turn = (who.block + who.blocks - before % who.blocks) % who.blocks;
        for (uint64_t p = turn; p < pieces; p += who.blocks) {
            copy_piece(copy[i], p * KOLO_COPIES_PIECE, who);
        }
        before += pieces;
    }
    return before;
}

} // namespace kolo_gpu

#endif
