// SPDX-License-Identifier: Apache-2.0
/* The work of a thread block of a low-latency kernel, in C++ for the GPU and the host alike.
 *
 * As in exec/gpu/program/program_body.h every thread of a block calls it. On the host one thread
 * plays all threads. A thread handles the same packs when it sends and when it takes, and reads a
 * pack before it writes there. So calls may be in place.
 *
 * A line is two words of 8 bytes, each with 4 bytes of data below the flag of the call. The memory
 * model guarantees that a word of 8 bytes is whole, and no more. So each word has a flag, and the
 * load that finds the flag has the data. No release, acquire or fence is needed.
 *
 * Two slots suffice, by turns, and no rank announces that it has read one. Proof: let A store the
 * lines of call e over the lines of e - 2. A's call e - 1 is over, so A has B's lines of e - 1,
 * because every rank sends every other at least the head of a slot in every call. B stored these
 * lines after its call e - 2 was over, thus after it had loaded all lines of A's e - 2. A load that
 * has returned cannot see a later store.
 *
 * Flags are numbers of calls and wrap. A line that only long calls use could still have the flag of
 * 2^32 calls ago, and look new. So in two of every KOLO_LL_REFRESH calls, one for each turn, all
 * lines are stored. */
#ifndef KOLO_EXEC_GPU_LL_LL_BODY_H
#define KOLO_EXEC_GPU_LL_LL_BODY_H

#include "exec/gpu/ll/ll_layout.h"
#include "exec/gpu/program/program_body.h"

namespace kolo_gpu
{

struct alignas(16) Words { /* a pack: the bytes that a thread moves at a time */
    uint32_t word[4];
};
struct alignas(16) Line {
    uint64_t half[2]; /* flag << 32 | data */
};

#if defined(__CUDA_ARCH__)
KOLO_GPU Line load_line(const Line *at)
{
    Line x;
    asm volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%2];"
                 : "=l"(x.half[0]), "=l"(x.half[1])
                 : "l"(at)
                 : "memory");
    return x;
}
KOLO_GPU void store_line(Line *at, Line x)
{
    asm volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(x.half[0]), "l"(x.half[1])
                 : "memory");
}
#elif defined(__CUDACC__) /* as in exec/gpu/program/program_body.h */
KOLO_GPU Line load_line(const Line *at)
{
    return *at;
}
KOLO_GPU void store_line(Line *, Line) {}
#else
KOLO_GPU Line load_line(const Line *at)
{
    const Line x = {{__atomic_load_n(&at->half[0], __ATOMIC_RELAXED),
                     __atomic_load_n(&at->half[1], __ATOMIC_RELAXED)}};
    return x;
}
KOLO_GPU void store_line(Line *at, Line x)
{
    __atomic_store_n(&at->half[0], x.half[0], __ATOMIC_RELAXED);
    __atomic_store_n(&at->half[1], x.half[1], __ATOMIC_RELAXED);
}
#endif

KOLO_GPU Line line_with(uint32_t flag, uint32_t first, uint32_t second)
{
    const Line line = {{(uint64_t)flag << 32 | first, (uint64_t)flag << 32 | second}};
    return line;
}
KOLO_GPU bool has_flag(const Line &line, uint32_t flag)
{
    return (uint32_t)(line.half[0] >> 32) == flag && (uint32_t)(line.half[1] >> 32) == flag;
}

/* ---- a slice of a call ---- */

struct LlPart {
    const kolo_ll_launch *launch;
    Block block;
    uint32_t flag;
    bool refreshes;
    uint64_t slots;     /* of this slice and turn, in every slab: one for each writer */
    uint64_t at, bytes; /* this slice of the bytes that one rank sends another */
    uint32_t packs;
};

KOLO_GPU LlPart part_of(const kolo_ll_launch &l, uint32_t slice)
{
    kolo_program_slice *mine = (kolo_program_slice *)(uintptr_t)l.ends.slab[l.me] + slice;
    kolo_program_control *control = (kolo_program_control *)(uintptr_t)l.ends.control;
    const uint32_t call = mine->ll_calls;
    const uint64_t at = slice * l.part, left = l.bytes > at ? l.bytes - at : 0;
    LlPart part = {&l, {mine, control, l.ends.timeout_ns, slice}, call + 1, false, 0, at, 0, 0};
    part.refreshes = call % KOLO_LL_REFRESH < KOLO_LL_TURNS;
    part.slots = l.slots +
                 ((uint64_t)slice * KOLO_LL_TURNS + call % KOLO_LL_TURNS) * l.nranks * KOLO_LL_SLOT;
    part.bytes = left < l.part ? left : l.part;
    part.packs = (uint32_t)((part.bytes + KOLO_LL_PACK - 1) / KOLO_LL_PACK);
    return part;
}

KOLO_GPU Line *head_of(const LlPart &part, uint32_t reader, uint32_t writer)
{
    return (Line *)(uintptr_t)(part.launch->ends.slab[reader] + part.slots +
                               (uint64_t)writer * KOLO_LL_SLOT);
}
/* The two lines of a pack. */
KOLO_GPU Line *lines_of(const LlPart &part, uint32_t reader, uint32_t writer, uint32_t pack)
{
    return head_of(part, reader, writer) + KOLO_LL_HEAD / sizeof(Line) + 2 * (uint64_t)pack;
}

/* ---- the user's buffers, which are aligned as their elements ---- */

KOLO_GPU Words get(uint64_t at, uint32_t bytes)
{
    Words x = {{0, 0, 0, 0}};
    if (at % sizeof x == 0 && bytes == sizeof x) {
        return *(const Words *)(uintptr_t)at;
    }
    if ((at | bytes) % 4 == 0) {
        KOLO_UNROLL
        for (uint32_t w = 0; w < 4; w++) {
            x.word[w] = 4 * w < bytes ? ((const uint32_t *)(uintptr_t)at)[w] : 0;
        }
        return x;
    }
    KOLO_UNROLL
    for (uint32_t b = 0; b < 16; b++) {
        const uint32_t byte = b < bytes ? ((const uint8_t *)(uintptr_t)at)[b] : 0;
        x.word[b / 4] |= byte << b % 4 * 8;
    }
    return x;
}

KOLO_GPU void put(uint64_t at, uint32_t bytes, const Words &x)
{
    if (at % sizeof x == 0 && bytes == sizeof x) {
        *(Words *)(uintptr_t)at = x;
        return;
    }
    const bool words = (at | bytes) % 4 == 0;
    KOLO_UNROLL
    for (uint32_t w = 0; w < 4; w++) {
        if (words && 4 * w < bytes) {
            ((uint32_t *)(uintptr_t)at)[w] = x.word[w];
        }
    }
    KOLO_UNROLL
    for (uint32_t b = 0; b < 16; b++) {
        if (!words && b < bytes) {
            ((uint8_t *)(uintptr_t)at)[b] = (uint8_t)(x.word[b / 4] >> b % 4 * 8);
        }
    }
}

KOLO_GPU uint64_t offset_of(const LlPart &part, uint32_t pack)
{
    return part.at + (uint64_t)pack * KOLO_LL_PACK;
}
KOLO_GPU uint32_t bytes_of(const LlPart &part, uint32_t pack)
{
    const uint64_t left = part.bytes - (uint64_t)pack * KOLO_LL_PACK;
    return left < KOLO_LL_PACK ? (uint32_t)left : (uint32_t)KOLO_LL_PACK;
}

/* This rank's data for rank q. */
template <class Kind> KOLO_GPU Words own_pack(const LlPart &part, uint32_t q, uint32_t pack)
{
    const kolo_ll_launch &l = *part.launch;
    return Kind::scaled(
        l, get(l.ends.in + q * l.in_stride + offset_of(part, pack), bytes_of(part, pack)));
}
KOLO_GPU void put_pack(const LlPart &part, uint32_t q, uint32_t pack, const Words &x)
{
    const kolo_ll_launch &l = *part.launch;
    put(l.ends.out + q * l.out_stride + offset_of(part, pack), bytes_of(part, pack), x);
}

/* ---- sending ---- */

KOLO_GPU void send_heads(const LlPart &part, const Threads &threads)
{
    const kolo_ll_launch &l = *part.launch;
    for (uint32_t q = threads.first; q < l.nranks; q += threads.step) {
        if (q != l.me) {
            store_line(head_of(part, q, l.me), line_with(part.flag, l.ends.signature, 0));
        }
    }
}

/* Store to one rank after the other. Each rank begins with the rank behind itself, so that no link
 * carries all the traffic. */
template <class Kind> KOLO_GPU void send_packs(const LlPart &part, const Threads &threads)
{
    const kolo_ll_launch &l = *part.launch;
    const uint32_t all = KOLO_LL_BYTES / KOLO_LL_PACK, packs = part.refreshes ? all : part.packs;
    for (uint32_t i = threads.first; i < packs; i += threads.step) {
        Words x = {{0, 0, 0, 0}};
        if (i < part.packs && l.to != 0) {
            x = own_pack<Kind>(part, l.me, i);
        }
        for (uint32_t k = 1; k < l.nranks; k++) {
            const uint32_t q = l.me + k < l.nranks ? l.me + k : l.me + k - l.nranks;
            const bool gets = i < part.packs && (l.to >> q & 1) != 0;
            if (gets && l.in_stride != 0) {
                x = own_pack<Kind>(part, q, i);
            }
            if (gets || part.refreshes) {
                Line *lines = lines_of(part, q, l.me, i);
                store_line(lines, line_with(part.flag, x.word[0], x.word[1]));
                store_line(lines + 1, line_with(part.flag, x.word[2], x.word[3]));
            }
        }
    }
}

/* ---- taking ---- */

/* The word of rank q if it is in a call of exec/gpu/program/program_kernel.h that this rank has not
 * made; else 0. */
KOLO_GPU uint64_t other_call(const LlPart &part, uint32_t q)
{
    const kolo_program_slice &mine = *part.block.mine;
    const uint64_t tile = load_word(&mine.word[q][1]),
                   met = load_word(&mine.word[q][KOLO_PROGRAM_MET]);
    return (int32_t)((uint32_t)tile - mine.epoch) > 0 ? tile
           : (int32_t)((uint32_t)met - mine.met) > 0  ? met
                                                      : 0;
}

/* A rank that has made another call first stored all its lines of this call, and then told of the
 * other call. So if a head is still missing then, it never comes. */
KOLO_GPU bool take_head(const LlPart &part, uint32_t q)
{
    const kolo_ll_launch &l = *part.launch;
    const Want want = {q, 0, part.flag, 0, l.ends.signature};
    const Line *at = head_of(part, l.me, q);
    Patience patience = {0, 0};
    Line head = load_line(at);
    while (!has_flag(head, part.flag)) {
        const uint32_t status = after_poll(part.block, &patience);
        if (status != KOLO_PROGRAM_FINE) {
            return give_up(part.block, want, head.half[0] >> 32, status);
        }
        const uint64_t other = looks(patience) ? other_call(part, q) : 0;
        head = load_line(at);
        if (other != 0 && !has_flag(head, part.flag)) {
            return give_up(part.block, want, other, KOLO_PROGRAM_MISMATCH);
        }
    }
    if ((uint32_t)head.half[0] != l.ends.signature) {
        const uint64_t seen = (uint64_t)(uint32_t)head.half[0] << 32 | part.flag;
        return give_up(part.block, want, seen, KOLO_PROGRAM_MISMATCH);
    }
    return true;
}

enum { LL_AHEAD = 4 }; /* ranks whose lines are loaded at once */

/* Take a pack of each of the ranks from `first` on that are in l.from, except this rank. All loads
 * are issued before the first one is examined. */
KOLO_GPU bool take_packs(const LlPart &part, uint32_t first, uint32_t pack, Words *x)
{
    const kolo_ll_launch &l = *part.launch;
    Patience patience = {0, 0};
    for (;;) {
        Line line[LL_AHEAD][2];
        uint32_t late = l.nranks;
        uint64_t seen = 0;
        KOLO_UNROLL
        for (uint32_t a = 0; a < LL_AHEAD; a++) {
            const uint32_t q = first + a < l.nranks ? first + a : l.me;
            line[a][0] = load_line(lines_of(part, l.me, q, pack));
            line[a][1] = load_line(lines_of(part, l.me, q, pack) + 1);
        }
        KOLO_UNROLL
        for (uint32_t a = 0; a < LL_AHEAD; a++) {
            const uint32_t q = first + a;
            const bool awaited = q < l.nranks && q != l.me && (l.from >> q & 1) != 0;
            if (awaited && !(has_flag(line[a][0], part.flag) && has_flag(line[a][1], part.flag))) {
                late = q;
                seen = line[a][0].half[0] >> 32;
            }
            const Words words = {{(uint32_t)line[a][0].half[0], (uint32_t)line[a][0].half[1],
                                  (uint32_t)line[a][1].half[0], (uint32_t)line[a][1].half[1]}};
            x[a] = words;
        }
        if (late == l.nranks) {
            return true;
        }
        const uint32_t status = after_poll(part.block, &patience);
        if (status != KOLO_PROGRAM_FINE) {
            const Want want = {late, 0, part.flag, 0, l.ends.signature};
            return give_up(part.block, want, seen, status);
        }
    }
}

/* ---- kinds: the folds of the packs of all ranks ---- */

/* Of the ranks from `first` on, in their order. */
template <class F>
KOLO_GPU void fold_words(const Words *x, uint32_t first, uint32_t nranks, typename F::Acc *sum)
{
    typedef Pack<typename F::Type> Packs;
    const Factor none = {0, false};
    KOLO_UNROLL
    for (uint32_t a = 0; a < LL_AHEAD; a++) {
        const Packs pack = bits_as<Packs>(x[a]);
        KOLO_UNROLL
        for (int e = 0; e < Packs::count && first + a < nranks; e++) {
            const typename F::Acc y = F::load(pack.elem[e], none);
            sum[e] = first + a == 0 ? y : F::join(sum[e], y);
        }
    }
}

template <class TypeOf> struct LlPairs {
    typedef TypeOf Type;
    typedef typename Type::Acc Acc;
    KOLO_GPU Words scaled(const kolo_ll_launch &, const Words &x)
    {
        return x;
    }
    KOLO_GPU void fold(const kolo_ll_launch &l, const Words *x, uint32_t first, Acc *sum)
    {
        if (l.op == KOLO_LL_MIN) {
            fold_words<Fold<Type, Min>>(x, first, l.nranks, sum);
        } else {
            fold_words<Fold<Type, Max>>(x, first, l.nranks, sum);
        }
    }
};

template <class TypeOf> struct LlSigned : LlPairs<TypeOf> {
    typedef TypeOf Type;
    typedef typename Type::Acc Acc;
    KOLO_GPU void fold(const kolo_ll_launch &l, const Words *x, uint32_t first, Acc *sum)
    {
        if (l.op == KOLO_LL_SUM) {
            fold_words<Fold<Type, Sum>>(x, first, l.nranks, sum);
        } else {
            LlPairs<Type>::fold(l, x, first, sum);
        }
    }
};

template <class TypeOf> struct LlNumbers : LlSigned<TypeOf> {
    typedef TypeOf Type;
    typedef typename Type::Acc Acc;
    KOLO_GPU Words scaled(const kolo_ll_launch &l, const Words &x)
    {
        typedef Pack<Type> Packs;
        const Factor factor = {l.ends.factor, true};
        Packs pack = bits_as<Packs>(x);
        KOLO_UNROLL
        for (int e = 0; e < Packs::count && l.op == KOLO_LL_SCALED; e++) {
            pack.elem[e] = Type::store(Scaled<Type>::load(pack.elem[e], factor));
        }
        return bits_as<Words>(pack);
    }
    KOLO_GPU void fold(const kolo_ll_launch &l, const Words *x, uint32_t first, Acc *sum)
    {
        if (l.op == KOLO_LL_SUM || l.op == KOLO_LL_SCALED) {
            fold_words<Fold<Type, Sum>>(x, first, l.nranks, sum);
        } else if (l.op == KOLO_LL_PROD) {
            fold_words<Fold<Type, Prod>>(x, first, l.nranks, sum);
        } else {
            LlPairs<Type>::fold(l, x, first, sum);
        }
    }
};

template <class TypeOf> struct LlUnsigned : LlNumbers<TypeOf> {
    typedef TypeOf Type;
    typedef typename Type::Acc Acc;
    typedef Truth<typename Type::Elem> True;
    KOLO_GPU void fold(const kolo_ll_launch &l, const Words *x, uint32_t first, Acc *sum)
    {
        switch (l.op) {
        case KOLO_LL_BAND:
            return fold_words<Fold<Type, And>>(x, first, l.nranks, sum);
        case KOLO_LL_BOR:
            return fold_words<Fold<Type, Or>>(x, first, l.nranks, sum);
        case KOLO_LL_BXOR:
            return fold_words<Fold<Type, Xor>>(x, first, l.nranks, sum);
        case KOLO_LL_LAND:
            return fold_words<Fold<True, And>>(x, first, l.nranks, sum);
        case KOLO_LL_LOR:
            return fold_words<Fold<True, Or>>(x, first, l.nranks, sum);
        case KOLO_LL_LXOR:
            return fold_words<Fold<True, Xor>>(x, first, l.nranks, sum);
        default:
            return LlNumbers<Type>::fold(l, x, first, sum);
        }
    }
};

/* Make one pack of the result from the packs of all ranks. False: gave up. */
template <class Kind> struct LlFold {
    KOLO_GPU Words scaled(const kolo_ll_launch &l, const Words &x)
    {
        return Kind::scaled(l, x);
    }
    KOLO_GPU bool take(const LlPart &part, uint32_t pack)
    {
        typedef Pack<typename Kind::Type> Packs;
        const kolo_ll_launch &l = *part.launch;
        typename Kind::Acc sum[Packs::count] = {};
        const Words own = own_pack<Kind>(part, l.me, pack);
        for (uint32_t first = 0; first < l.nranks; first += LL_AHEAD) {
            Words x[LL_AHEAD];
            if (!take_packs(part, first, pack, x)) {
                return false;
            }
            KOLO_UNROLL
            for (uint32_t a = 0; a < LL_AHEAD; a++) {
                x[a] = first + a == l.me ? own : x[a];
            }
            Kind::fold(l, x, first, sum);
        }
        Packs result;
        KOLO_UNROLL
        for (int e = 0; e < Packs::count; e++) {
            result.elem[e] = Fold<typename Kind::Type, Sum>::finish(sum[e], l.divisor);
        }
        put_pack(part, 0, pack, bits_as<Words>(result));
        return true;
    }
};

/* Store each rank's pack in its own place. */
struct LlCopy {
    KOLO_GPU Words scaled(const kolo_ll_launch &, const Words &x)
    {
        return x;
    }
    KOLO_GPU bool take(const LlPart &part, uint32_t pack)
    {
        const kolo_ll_launch &l = *part.launch;
        if ((l.from >> l.me & 1) != 0) {
            put_pack(part, l.me, pack, own_pack<LlCopy>(part, l.me, pack));
        }
        for (uint32_t first = 0; first < l.nranks; first += LL_AHEAD) {
            Words x[LL_AHEAD];
            if (!take_packs(part, first, pack, x)) {
                return false;
            }
            KOLO_UNROLL
            for (uint32_t a = 0; a < LL_AHEAD; a++) {
                const uint32_t q = first + a;
                if (q < l.nranks && q != l.me && (l.from >> q & 1) != 0) {
                    put_pack(part, q, pack, x[a]);
                }
            }
        }
        return true;
    }
};

/* ---- a call ---- */

template <class Kind> struct LlKernel {
    /* A block that gave up once does not try again: the communicator has failed. */
    KOLO_GPU void run(const kolo_ll_launch &l, uint32_t slice, const Threads &threads)
    {
        const LlPart part = part_of(l, slice);
        if (any(part.block.mine->failed != 0)) {
            return;
        }
        send_heads(part, threads);
        send_packs<Kind>(part, threads);
        bool failed = false;
        for (uint32_t q = threads.first; q < l.nranks && !failed; q += threads.step) {
            failed = q != l.me && !take_head(part, q);
        }
        for (uint32_t i = threads.first; i < part.packs && l.from != 0 && !failed;
             i += threads.step) {
            failed = !Kind::take(part, i);
        }
        if (!any(failed) && threads.first == 0) {
            part.block.mine->ll_calls = part.flag;
        }
    }
};

} // namespace kolo_gpu

#endif
