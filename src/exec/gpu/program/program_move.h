// SPDX-License-Identifier: Apache-2.0
/* Moves of a thread block: the addresses and lengths of an op's chunks, and the fold of its sources
 * into its destinations. */
#ifndef KOLO_EXEC_GPU_PROGRAM_PROGRAM_MOVE_H
#define KOLO_EXEC_GPU_PROGRAM_PROGRAM_MOVE_H

#include "exec/gpu/program/program_wait.h"

namespace kolo_gpu
{

struct Sides {               /* as fold_piece() takes it; see Piece */
    const uint64_t *address; /* sources, then destinations */
    const uint64_t *operand;
    const uint64_t *factors; /* DIRECT: of the sources' ranks; else NULL */
    uint32_t nsrc, ndst;
    uint64_t factor;
    uint64_t count;
    uint32_t divisor;
    uint32_t start; /* the destination to which this rank stores first */
};
KOLO_GPU const char *source(const Sides &s, uint32_t q)
{
    return (const char *)global(s.address[q]);
}
KOLO_GPU char *destination(const Sides &s, uint32_t q)
{
    return (char *)global(s.address[s.nsrc + q]);
}
/* Each rank begins at another one, so that all links are in use. */
KOLO_GPU uint32_t first_destination(const Sides &s)
{
    return s.start;
}
KOLO_GPU uint32_t sources(const Sides &s)
{
    return s.nsrc;
}
KOLO_GPU uint32_t destinations(const Sides &s)
{
    return s.ndst;
}
/* A source in IN is scaled here, once, so the other ranks get it scaled. */
KOLO_GPU Factor factor(const Sides &s, uint32_t q)
{
    if (s.factors != 0) {
        const Factor theirs = {s.factors[q], true};
        return theirs;
    }
    const Factor by = {s.factor, s.operand[q] >> 56 == KOLO_PROGRAM_IN};
    return by;
}

/* Where a chunk begins in a buffer. */
KOLO_GPU uint64_t offset_of(const kolo_program_launch &l, uint64_t stride, uint32_t chunk)
{
    return l.varied == 0 ? chunk * stride : stride != 0 ? l.span[chunk].at : 0;
}
KOLO_GPU uint64_t length_of(const kolo_program_launch &l, uint32_t chunk)
{
    if (chunk == KOLO_PROGRAM_FULL) {
        return l.full;
    }
    if (l.varied != 0) {
        return l.span[chunk].bytes;
    }
    const uint64_t before = chunk * l.full, left = before < l.total ? l.total - before : 0;
    return left < l.full ? left : l.full;
}

KOLO_GPU uint64_t address_of(const Tile &tile, uint64_t operand)
{
    const kolo_program_launch &l = *tile.launch;
    const uint32_t index = (uint32_t)operand;
    switch (operand >> 56) {
    case KOLO_PROGRAM_IN:
        return l.ends.in + offset_of(l, l.in_stride, index) + tile.at;
    case KOLO_PROGRAM_OUT:
        return l.ends.out + offset_of(l, l.out_stride, index) + tile.at;
    case KOLO_PROGRAM_SCRATCH:
        return scratch_of(l, tile.block.slice, tile.t) + index * l.piece;
    default:
        return inbox_of(l, rank_of(operand), tile.block.slice, tile.epoch) + index * l.piece;
    }
}

/* Not inline, so that the interpreter's variables take none of its registers. */
template <class F> KOLO_GPU_CALL void fold_sides(const Sides s, const Who who)
{
    fold_piece<F>(s, who);
}
template <size_t bytes> struct UnitOf;
template <> struct UnitOf<1> {
    typedef uint8_t Unit;
};
template <> struct UnitOf<2> {
    typedef uint16_t Unit;
};
template <> struct UnitOf<4> {
    typedef uint32_t Unit;
};

/* `address` has KOLO_PROGRAM_SIDES places of the block, which the last move no longer uses. For
 * DIRECT the addresses are already there, and the factors before them: see meet(). */
template <class F>
KOLO_GPU void move(const Tile &tile, const uint64_t *words, uint64_t *address,
                   const Threads &threads)
{
    const kolo_program_launch &l = *tile.launch;
    const uint64_t op = *words;
    const bool direct = code_of(op) == KOLO_PROGRAM_DIRECT;
    const uint32_t nsrc = sources_of(op), ndst = destinations_of(op);
    for (uint32_t i = threads.first; i < nsrc + ndst && !direct; i += threads.step) {
        address[i] = address_of(tile, words[1 + i]);
    }
    (void)any(false); /* a barrier: the addresses, and the data of the previous op, are complete */
    typedef typename F::Elem Elem;
    typedef typename UnitOf<(sizeof(Elem) < 4 ? sizeof(Elem) : 4)>::Unit Unit;
    const uint64_t length = direct ? l.direct_bytes : length_of(l, value_of(op));
    const uint64_t left = length > tile.at ? length - tile.at : 0;
    const uint64_t bytes = left < tile.most ? left : tile.most;
    const uint64_t *factors = F::scales && direct ? address - KOLO_PROGRAM_SIDES : 0;
    Sides s = {address, words + 1, factors, nsrc, ndst, l.ends.factor, 0, 0, 0};
    s.divisor = is_complete(op) ? l.divisor : 0;
    s.start = ndst > 1 ? l.me % ndst : 0;
    const bool scales = F::scales && (direct || words[1] >> 56 == KOLO_PROGRAM_IN);
    const bool folds = F::folds && (nsrc > 1 || s.divisor > 1 || scales);
    s.count = bytes / (folds ? sizeof(Elem) : sizeof(Unit));
    for (uint32_t t = threads.first; t < threads.count; t += threads.step) {
        const Who who = {tile.block.slice, l.room.slices, t, threads.count};
        if (folds) {
            fold_sides<F>(s, who);
        } else if (ndst > 1 || address[0] != address[1]) {
            fold_sides<Copy<Unit>>(s, who);
        }
    }
}

} // namespace kolo_gpu

#endif
