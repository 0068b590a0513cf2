// SPDX-License-Identifier: Apache-2.0
/* The work of a thread of a fused kernel, in C++ for the GPU and the host alike.
 *
 * Every thread of every block calls it. Threads share no data and never wait, so they may run in
 * any order. If all buffers of a piece have the same offset from a multiple of 16 bytes, the middle
 * of the piece goes in packs of 16, several of them in flight from each source. Else the packs of
 * copies have 8 or 4 bytes, if the offsets from a multiple of that are the same. Else the piece goes
 * element by element.
 */
#ifndef KOLO_EXEC_GPU_FUSED_FUSED_BODY_H
#define KOLO_EXEC_GPU_FUSED_FUSED_BODY_H

#include "exec/gpu/element.h"
#include "exec/gpu/fused/fused_layout.h"

namespace kolo_gpu
{

/* A pointer to memory, as all buffers are. Loads and stores need not find out then whether it
 * points to shared or local memory. */
KOLO_GPU void *global(uint64_t address)
{
    void *at = (void *)(uintptr_t)address;
#if defined(__CUDA_ARCH__)
    __builtin_assume(__isGlobal(at));
#endif
    return at;
}

struct Who { /* a thread */
    uint32_t block, blocks, thread, threads;
};

struct Cut { /* a piece of a move */
    uint32_t move;
    uint64_t first, count; /* elements */
};

/* Piece p of those that lie one after the other, `pieces` a move or as first_piece says. */
KOLO_GPU Cut cut_of(const kolo_fused &f, uint32_t p)
{
    Cut cut;
    uint32_t within;
    if (f.swaps) {
        cut.move = p / f.first_piece[1];
        within = p % f.first_piece[1];
    } else {
        cut.move = 0;
        while (p >= f.first_piece[cut.move + 1]) {
            cut.move++;
        }
        within = p - f.first_piece[cut.move];
    }
    const uint64_t len = f.len[f.swaps ? 0 : cut.move];
    cut.first = within * f.piece;
    cut.count = len - cut.first < f.piece ? len - cut.first : f.piece;
    return cut;
}

/* The ranks on one side of a move. */
struct Side {
    uint32_t first, count;
};
KOLO_GPU Side side_of(int32_t who, uint32_t move, int32_t nranks)
{
    Side side = {(uint32_t)who, 1};
    if (who == KOLO_FUSED_ALL) {
        side.first = 0;
        side.count = (uint32_t)nranks;
    } else if (who == KOLO_FUSED_EACH) {
        side.first = move;
    }
    return side;
}

template <class T, int bytes = 16> struct alignas(bytes) Pack {
    enum { count = bytes / sizeof(typename T::Elem) };
    typename T::Elem elem[count];
};

/* ---- folding ---- */

struct Factor { /* of one source */
    uint64_t bits;
    bool scales;
};

template <class TypeOf, class Op> struct Fold {
    typedef TypeOf Type;
    typedef typename Type::Elem Elem;
    typedef typename Type::Acc Acc;
    enum { folds = 1, scales = 0 };
    KOLO_GPU Acc load(Elem x, Factor)
    {
        return Type::load(x);
    }
    KOLO_GPU Acc join(Acc a, Acc b)
    {
        return Op::template apply<Type>(a, b);
    }
    KOLO_GPU Elem finish(Acc x, uint32_t divisor)
    {
        return Type::store(divisor > 1 ? Type::divide(x, divisor) : x);
    }
};

/* A sum whose inputs are first multiplied by their rank's factor, rounded in their type. */
template <class TypeOf> struct Scaled : Fold<TypeOf, Sum> {
    typedef typename TypeOf::Elem Elem;
    typedef typename TypeOf::Acc Acc;
    enum { scales = 1 };
    KOLO_GPU Acc load(Elem x, Factor by)
    {
        Elem factor;
        if (!by.scales) {
            return TypeOf::load(x);
        }
        memcpy(&factor, &by.bits, sizeof factor);
        return TypeOf::load(TypeOf::store(TypeOf::multiply(TypeOf::load(x), TypeOf::load(factor))));
    }
};

/* Movement: bytes in units of the element, whatever their type. */
template <class Unit> struct Copy {
    struct Type {
        typedef Unit Elem;
    };
    typedef Unit Elem;
    typedef Unit Acc;
    enum { folds = 0, scales = 0 };
    KOLO_GPU Acc load(Elem x, Factor)
    {
        return x;
    }
    KOLO_GPU Acc join(Acc a, Acc)
    {
        return a;
    }
    KOLO_GPU Elem finish(Acc x, uint32_t)
    {
        return x;
    }
};

struct Piece { /* one piece, as its threads see it; offsets in bytes */
    const kolo_fused_rank *rank;
    Side from, to;
    uint64_t from_at, to_at, count; /* count in units of the functor */
    uint32_t divisor;
};

KOLO_GPU const char *source(const Piece &p, uint32_t q)
{
    return (const char *)global(p.rank[p.from.first + q].in + p.from_at);
}
KOLO_GPU char *destination(const Piece &p, uint32_t q)
{
    return (char *)global(p.rank[p.to.first + q].out + p.to_at);
}
/* The destination to which a thread stores first: all of them are memory of one GPU. */
KOLO_GPU uint32_t first_destination(const Piece &)
{
    return 0;
}
KOLO_GPU uint32_t sources(const Piece &p)
{
    return p.from.count;
}
KOLO_GPU uint32_t destinations(const Piece &p)
{
    return p.to.count;
}
KOLO_GPU Factor factor(const Piece &p, uint32_t q)
{
    const Factor by = {p.rank[p.from.first + q].factor, true};
    return by;
}

/* P, here and below, is a Piece or a type with the same functions, count and divisor. */
template <class F, class P> KOLO_GPU void fold_one(const P &p, uint64_t i)
{
    typedef typename F::Elem Elem;
    typename F::Acc sum = F::load(((const Elem *)source(p, 0))[i], factor(p, 0));
    for (uint32_t q = 1; q < sources(p); q++) {
        sum = F::join(sum, F::load(((const Elem *)source(p, q))[i], factor(p, q)));
    }
    const Elem result = F::finish(sum, p.divisor);
    for (uint32_t d = 0; d < destinations(p); d++) {
        ((Elem *)destination(p, d))[i] = result;
    }
}

/* `unroll` packs, `stride` packs apart, the first at element `head` + i packs. All loads come
 * before all stores, as a destination may be one of the sources. */
template <class F, int bytes, int unroll, class P>
KOLO_GPU void fold_packs(const P &p, uint64_t head_bytes, uint64_t i, uint64_t stride)
{
    typedef Pack<typename F::Type, bytes> Packs;
    typename F::Acc sum[unroll][Packs::count] = {};
    KOLO_UNROLL_4
    for (uint32_t q = 0; q < sources(p); q++) {
        const Packs *src = (const Packs *)(source(p, q) + head_bytes) + i;
        const Factor by = factor(p, q);
        Packs x[unroll];
        KOLO_UNROLL
        for (int u = 0; u < unroll; u++) {
            x[u] = src[(uint64_t)u * stride];
        }
        KOLO_UNROLL
        for (int u = 0; u < unroll; u++) {
            KOLO_UNROLL
            for (int e = 0; e < Packs::count; e++) {
                const typename F::Acc y = F::load(x[u].elem[e], by);
                sum[u][e] = q == 0 ? y : F::join(sum[u][e], y);
            }
        }
    }
    Packs result[unroll];
    KOLO_UNROLL
    for (int u = 0; u < unroll; u++) {
        KOLO_UNROLL
        for (int e = 0; e < Packs::count; e++) {
            result[u].elem[e] = F::finish(sum[u][e], p.divisor);
        }
    }
    uint32_t d = first_destination(p);
    for (uint32_t left = destinations(p); left > 0; left--) {
        Packs *dst = (Packs *)(destination(p, d) + head_bytes) + i;
        KOLO_UNROLL
        for (int u = 0; u < unroll; u++) {
            dst[(uint64_t)u * stride] = result[u];
        }
        d = d + 1 < destinations(p) ? d + 1 : 0;
    }
}

/* Units before the first pack of `bytes`, or all `count` units if no unit begins at a multiple of
 * that: the GPU takes a pack only there. A pair lies where its members may. */
template <class Elem>
KOLO_GPU uint64_t units_before_packs(uint64_t first, uint64_t count, uint32_t bytes)
{
    const uint64_t head = (bytes - first % bytes) % bytes / sizeof(Elem);
    return (first + head * sizeof(Elem)) % bytes != 0 || head > count ? count : head;
}

/* The bytes of a pack: the most at whose multiples all addresses can be at once. `differ`: the bits
 * in which they differ. */
KOLO_GPU uint32_t pack_bytes(uint64_t differ)
{
    return differ % 16 == 0 ? 16 : differ % 8 == 0 ? 8 : differ % 4 == 0 ? 4 : 1;
}

template <class P> KOLO_GPU uint64_t differences(const P &p)
{
    const uint64_t first = (uint64_t)(uintptr_t)source(p, 0);
    uint64_t differ = 0;
    for (uint32_t q = 1; q < sources(p); q++) {
        differ |= first ^ (uint64_t)(uintptr_t)source(p, q);
    }
    for (uint32_t d = 0; d < destinations(p); d++) {
        differ |= first ^ (uint64_t)(uintptr_t)destination(p, d);
    }
    return differ;
}

/* Packs in flight from each source: as many as keep their accumulators in registers. One of those
 * that are less than 16 bytes: their code should be short, as it is seldom used. */
template <class F, int bytes> struct Unroll {
    enum {
        packs = bytes < 16 ? 1 : 16 / (int)Pack<typename F::Type, bytes>::count,
        value = packs > 4   ? 4
                : packs < 1 ? 1
                            : packs
    };
};

/* The packs of a piece, and the units before and behind them; all units if the buffers do not lie
 * alike. */
template <class F, int bytes, class P>
KOLO_GPU void fold_in_packs(const P &p, uint64_t differ, const Who &who)
{
    typedef typename F::Elem Elem;
    enum { unroll = Unroll<F, bytes>::value, in_pack = Pack<typename F::Type, bytes>::count };
    const uint64_t first = (uint64_t)(uintptr_t)source(p, 0);
    const uint64_t head =
        differ % bytes != 0 ? p.count : units_before_packs<Elem>(first, p.count, bytes);
    const uint64_t packs = (p.count - head) / in_pack, tail = head + packs * in_pack;
    const uint64_t stride = who.threads, head_bytes = head * sizeof(Elem);
    uint64_t i = who.thread;
    if constexpr (unroll > 1) {
        for (; i + (unroll - 1) * stride < packs; i += unroll * stride) {
            fold_packs<F, bytes, unroll>(p, head_bytes, i, stride);
        }
    }
    for (; i < packs; i += stride) {
        fold_packs<F, bytes, 1>(p, head_bytes, i, stride);
    }
    for (i = who.thread; i < head; i += stride) {
        fold_one<F>(p, i);
    }
    for (i = tail + who.thread; i < p.count; i += stride) {
        fold_one<F>(p, i);
    }
}

/* Narrow packs are for copies alone: kernels that fold have no registers left for them. */
template <class F, class P> KOLO_GPU void fold_piece(const P &p, const Who &who)
{
    const uint64_t differ = differences(p);
    if constexpr (F::folds == 0 && sizeof(typename F::Elem) < 8) {
        if (pack_bytes(differ) == 8) {
            fold_in_packs<F, 8>(p, differ, who);
            return;
        }
    }
    if constexpr (F::folds == 0 && sizeof(typename F::Elem) < 4) {
        if (pack_bytes(differ) == 4) {
            fold_in_packs<F, 4>(p, differ, who);
            return;
        }
    }
    fold_in_packs<F, 16>(p, differ, who);
}

/* A kernel for moves. Units: elements of more than 8 bytes are copied as several. */
template <class F> struct FoldKernel {
    typedef F Functor;
    KOLO_GPU void run(const kolo_fused &f, const kolo_fused_rank *rank, const Who &who)
    {
        const uint64_t units = f.elem / sizeof(typename F::Elem);
        for (uint32_t at = who.block; at < f.npieces; at += who.blocks) {
            const Cut cut = cut_of(f, at);
            Piece p;
            p.rank = rank;
            p.from = side_of(f.from, cut.move, f.nranks);
            p.to = side_of(f.to, cut.move, f.nranks);
            p.from_at = (cut.first + (f.from_at ? f.at[cut.move] : 0)) * f.elem;
            p.to_at = (cut.first + (f.to_at ? f.at[cut.move] : 0)) * f.elem;
            p.count = cut.count * units;
            p.divisor = f.divisor;
            fold_piece<F>(p, who);
        }
    }
};

/* ---- swapping ---- */

struct Swap {
    const char *a_in, *b_in; /* what goes from a to b, from b to a */
    char *a_out, *b_out;
    uint64_t count; /* units */
};

template <class Unit> KOLO_GPU void swap_one(const Swap &s, uint64_t at)
{
    const Unit to_b = *(const Unit *)(s.a_in + at), to_a = *(const Unit *)(s.b_in + at);
    *(Unit *)(s.b_out + at) = to_b;
    *(Unit *)(s.a_out + at) = to_a;
}

template <int bytes> struct alignas(bytes) Bytes {
    uint32_t word[bytes / 4];
};

/* `unroll` packs, `stride` packs apart, the first at byte `at`. All loads come before all stores:
 * in place, a store is to where one of the loads of the same pack was. */
template <int bytes, int unroll>
KOLO_GPU void swap_packs(const Swap &s, uint64_t at, uint64_t stride)
{
    typedef Bytes<bytes> Packs;
    Packs to_a[unroll], to_b[unroll];
    KOLO_UNROLL
    for (int u = 0; u < unroll; u++) {
        to_b[u] = ((const Packs *)(s.a_in + at))[(uint64_t)u * stride];
        to_a[u] = ((const Packs *)(s.b_in + at))[(uint64_t)u * stride];
    }
    KOLO_UNROLL
    for (int u = 0; u < unroll; u++) {
        ((Packs *)(s.b_out + at))[(uint64_t)u * stride] = to_b[u];
        ((Packs *)(s.a_out + at))[(uint64_t)u * stride] = to_a[u];
    }
}

template <class Unit, int bytes> KOLO_GPU void swap_in_packs(const Swap &s, const Who &who)
{
    enum { unroll = 4 };
    const uint64_t head = units_before_packs<Unit>((uint64_t)(uintptr_t)s.a_in, s.count, bytes);
    const uint64_t packs = (s.count - head) * sizeof(Unit) / bytes;
    const uint64_t tail = head + packs * bytes / sizeof(Unit);
    const uint64_t stride = who.threads, head_bytes = head * sizeof(Unit);
    uint64_t at = who.thread;
    for (; at + (unroll - 1) * stride < packs; at += unroll * stride) {
        swap_packs<bytes, unroll>(s, head_bytes + at * bytes, stride);
    }
    for (; at < packs; at += stride) {
        swap_packs<bytes, 1>(s, head_bytes + at * bytes, stride);
    }
    for (uint64_t i = who.thread; i < head; i += who.threads) {
        swap_one<Unit>(s, i * sizeof(Unit));
    }
    for (uint64_t i = tail + who.thread; i < s.count; i += who.threads) {
        swap_one<Unit>(s, i * sizeof(Unit));
    }
}

template <class Unit> KOLO_GPU void swap_piece(const Swap &s, const Who &who)
{
    const uint64_t first = (uint64_t)(uintptr_t)s.a_in;
    const uint32_t bytes =
        pack_bytes((first ^ (uint64_t)(uintptr_t)s.b_in) | (first ^ (uint64_t)(uintptr_t)s.a_out) |
                   (first ^ (uint64_t)(uintptr_t)s.b_out));
    if (bytes == 16) {
        swap_in_packs<Unit, 16>(s, who);
        return;
    }
    if constexpr (sizeof(Unit) < 8) {
        if (bytes == 8) {
            swap_in_packs<Unit, 8>(s, who);
            return;
        }
    }
    if constexpr (sizeof(Unit) < 4) {
        if (bytes >= 4) {
            swap_in_packs<Unit, 4>(s, who);
            return;
        }
    }
    for (uint64_t i = who.thread; i < s.count; i += who.threads) {
        swap_one<Unit>(s, i * sizeof(Unit));
    }
}

/* A kernel for all-to-all: move m is the m-th of the pairs (0,0) (0,1) (1,1) (0,2) ... of ranks.
 * The two bytes of a swap lie in one place on each side if that side is in place, and a thread
 * reads both before it writes. */
template <class Unit> struct SwapKernel {
    KOLO_GPU void run(const kolo_fused &f, const kolo_fused_rank *rank, const Who &who)
    {
        const uint64_t block = f.len[0] * f.elem;
        for (uint32_t at = who.block; at < f.npieces; at += who.blocks) {
            const Cut cut = cut_of(f, at);
            uint32_t b = 0, first = 0;
            while (first + b + 1 <= cut.move) {
                first += ++b;
            }
            const uint32_t a = cut.move - first;
            const uint64_t within = cut.first * f.elem;
            Swap s;
            s.a_in = (const char *)global(rank[a].in + b * block + within);
            s.b_in = (const char *)global(rank[b].in + a * block + within);
            s.a_out = (char *)global(rank[a].out + b * block + within);
            s.b_out = (char *)global(rank[b].out + a * block + within);
            s.count = cut.count * (f.elem / sizeof(Unit));
            swap_piece<Unit>(s, who);
        }
    }
};

} // namespace kolo_gpu

#endif
