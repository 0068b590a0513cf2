// SPDX-License-Identifier: Apache-2.0
/* What a thread block of a peer kernel does: C++ for the GPU and the host alike. See peer.h.
 *
 * Called by every thread of a block; on the host one thread plays them all, one after the other
 * between two barriers of the block, and a block is a thread. A word that is waited for is polled
 * by one thread, with acquire; a barrier of the block then orders the data behind it for the
 * others. A signal comes after such a barrier, with release, so that it covers what they stored.
 * Every wait looks at the abort word and the clock from time to time, and gives up with a record.
 */
#ifndef KOLO_EXEC_PEER_BODY_H
#define KOLO_EXEC_PEER_BODY_H

#include "exec/fused_body.h"
#include "exec/peer_layout.h"

#if !defined(__CUDACC__)
#include "exec/peer_host.h"
#endif

namespace kolo_gpu
{

/* ---- what differs between the GPU and the host ---- */

struct Threads { /* of a block, that this one plays: first, first + step, ... */
    uint32_t first, step, count;
};

#if defined(__CUDA_ARCH__)
KOLO_GPU uint64_t load_word(const uint64_t *at)
{
    uint64_t x;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(x) : "l"(at) : "memory");
    return x;
}
KOLO_GPU void store_word(uint64_t *at, uint64_t x)
{
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(at), "l"(x) : "memory");
}
KOLO_GPU uint32_t load_flag(const uint32_t *at)
{
    uint32_t x;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
    return x;
}
KOLO_GPU void store_flag(uint32_t *at, uint32_t x)
{
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
}
KOLO_GPU uint64_t now_ns()
{
    uint64_t x;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(x));
    return x;
}
KOLO_GPU void pause(uint32_t) {}
/* Whether this is the first to claim it, of the threads of a block. */
KOLO_GPU bool claim(uint32_t *at)
{
    return atomicExch(at, 1u) == 0;
}
/* A barrier of the block; whether `x` holds for any of its threads. */
KOLO_GPU bool any(bool x)
{
    return __syncthreads_or(x) != 0;
}
#elif defined(__CUDACC__) /* its pass over the host's half, which runs nothing of this */
KOLO_GPU uint64_t load_word(const uint64_t *at)
{
    return *at;
}
KOLO_GPU void store_word(uint64_t *, uint64_t) {}
KOLO_GPU uint32_t load_flag(const uint32_t *at)
{
    return *at;
}
KOLO_GPU void store_flag(uint32_t *, uint32_t) {}
KOLO_GPU uint64_t now_ns()
{
    return 0;
}
KOLO_GPU void pause(uint32_t) {}
KOLO_GPU bool claim(uint32_t *)
{
    return false;
}
KOLO_GPU bool any(bool x)
{
    return x;
}
#endif

/* ---- the slab ---- */

KOLO_GPU kolo_peer_slice *slice_of(const kolo_peer_launch &l, uint32_t rank, uint32_t slice)
{
    return (kolo_peer_slice *)(uintptr_t)l.ends.slab[rank] + slice;
}
/* The slot of `writer` in `reader`'s slab. */
KOLO_GPU uint64_t slot_of(const kolo_peer_launch &l, uint32_t reader, uint32_t writer,
                          uint32_t slice, uint32_t epoch)
{
    const uint64_t slot =
        ((uint64_t)slice * l.room.nranks + writer) * KOLO_PEER_DEPTH + epoch % KOLO_PEER_DEPTH;
    return l.ends.slab[reader] + l.room.slices * sizeof(kolo_peer_slice) + slot * l.room.slot_bytes;
}
KOLO_GPU uint64_t scratch_of(const kolo_peer_launch &l, uint32_t slice, uint32_t tile)
{
    const uint64_t slots = (uint64_t)l.room.slices * l.room.nranks * KOLO_PEER_DEPTH;
    const uint64_t copy = (uint64_t)slice * KOLO_PEER_COPIES + tile % KOLO_PEER_COPIES;
    return l.ends.slab[l.me] + l.room.slices * sizeof(kolo_peer_slice) + slots * l.room.slot_bytes +
           copy * l.room.scratch_bytes;
}

/* ---- waiting ---- */

struct Block { /* what it gives up by */
    kolo_peer_slice *mine;
    kolo_peer_control *control;
    uint64_t timeout_ns;
    uint32_t slice;
};

struct Want { /* what a wait waits for */
    uint32_t rank, word, epoch, step;
    uint32_t signature; /* 0: any */
};

/* The first of a block's threads writes the record. Returns false. */
KOLO_GPU bool give_up(const Block &block, const Want &want, uint64_t seen, uint32_t status)
{
    kolo_peer_record *record = &block.control->record[block.slice];
    if (!claim(&block.mine->failed)) {
        return false;
    }
    record->rank = want.rank;
    record->step = want.step;
    record->epoch = want.epoch;
    record->seen = seen;
    record->wanted = (uint64_t)want.signature << 32 | want.epoch;
    store_flag(&record->status, status);
    return false;
}

struct Patience {
    uint32_t polls;
    uint64_t since;
};

/* It is time to look at more than what is waited for. */
KOLO_GPU bool looks(const Patience &patience)
{
    enum { LOOK = 1024 };
    return patience.polls % LOOK == 0;
}

/* After a poll in vain: KOLO_PEER_FINE to go on, else with what to give up. */
KOLO_GPU uint32_t after_poll(const Block &block, Patience *patience)
{
    pause(++patience->polls);
    if (!looks(*patience)) {
        return KOLO_PEER_FINE;
    }
    const uint64_t now = now_ns();
    patience->since = patience->since == 0 ? now : patience->since;
    if (load_flag(&block.control->abort) != 0 || load_flag(&block.mine->failed) != 0) {
        return KOLO_PEER_ABORTED;
    }
    return now - patience->since > block.timeout_ns ? KOLO_PEER_TIMEOUT : KOLO_PEER_FINE;
}

struct Tile {
    const kolo_peer_launch *launch;
    Block block;
    uint32_t t, epoch;
    uint64_t at, most; /* of each chunk: the first byte, how many at most */
};

KOLO_GPU kolo_peer_control *control_of(const kolo_peer_launch &l)
{
    return (kolo_peer_control *)(uintptr_t)l.ends.control;
}

/* Until the word has come to want.epoch. A word that has gone past it may be another call's. */
KOLO_GPU bool wait_word(const Tile &tile, const Want &want)
{
    const uint64_t *word = &tile.block.mine->word[want.rank][want.word];
    Patience patience = {0, 0};
    uint64_t seen = load_word(word);
    while ((int32_t)((uint32_t)seen - want.epoch) < 0) {
        const uint32_t status = after_poll(tile.block, &patience);
        if (status != KOLO_PEER_FINE) {
            return give_up(tile.block, want, seen, status);
        }
        seen = load_word(word);
    }
    if (want.signature != 0 && (uint32_t)seen == want.epoch &&
        (uint32_t)(seen >> 32) != want.signature) {
        return give_up(tile.block, want, seen, KOLO_PEER_MISMATCH);
    }
    return true;
}

/* Whether slots of this tile may be written: who read what the tile before in them held is done
 * with it. */
KOLO_GPU bool take_slots(const Tile &tile, const Threads &threads)
{
    const kolo_peer_launch &l = *tile.launch;
    uint32_t *readers = &tile.block.mine->readers[tile.epoch % KOLO_PEER_DEPTH];
    const uint32_t before = *readers;
    bool failed = false;
    for (uint32_t q = threads.first; q < l.room.nranks; q += threads.step) {
        const Want want = {q, 0, tile.epoch + 1 - KOLO_PEER_DEPTH, 0, 0};
        failed = failed || ((before >> q & 1) != 0 && !wait_word(tile, want));
    }
    failed = any(failed);
    if (threads.first == 0) {
        *readers = l.readers;
    }
    return !failed;
}

KOLO_GPU bool wait_words(const Tile &tile, const kolo_peer_op &op, const Threads &threads)
{
    const kolo_peer_launch &l = *tile.launch;
    bool failed = false;
    for (uint32_t i = threads.first; i < op.nsrc; i += threads.step) {
        const uint64_t at = l.at[op.first + i];
        const Want want = {(uint32_t)(at >> 48) & 0xff, (uint32_t)at, tile.epoch + 1, op.word,
                           l.ends.signature};
        failed = failed || !wait_word(tile, want);
    }
    return !any(failed);
}

/* Store to word `word` of mine at all ranks of a set. */
KOLO_GPU void tell(const Tile &tile, uint32_t ranks, uint32_t word, const Threads &threads)
{
    const kolo_peer_launch &l = *tile.launch;
    (void)any(false); /* all threads have loaded and stored what they had to */
    for (uint32_t q = threads.first; q < l.room.nranks; q += threads.step) {
        if ((ranks >> q & 1) != 0) {
            store_word(&slice_of(l, q, tile.block.slice)->word[l.me][word],
                       (uint64_t)l.ends.signature << 32 | (tile.epoch + 1));
        }
    }
}

/* ---- moving ---- */

struct Sides {               /* as fold_piece() takes it; see Piece */
    const uint64_t *address; /* sources, then destinations */
    const uint64_t *operand;
    const uint64_t *factors; /* DIRECT: of the sources' ranks; else NULL */
    uint32_t nsrc, ndst;
    uint64_t factor;
    uint64_t count;
    uint32_t divisor;
};
KOLO_GPU const char *source(const Sides &s, uint32_t q)
{
    return (const char *)(uintptr_t)s.address[q];
}
KOLO_GPU char *destination(const Sides &s, uint32_t q)
{
    return (char *)(uintptr_t)s.address[s.nsrc + q];
}
KOLO_GPU uint32_t sources(const Sides &s)
{
    return s.nsrc;
}
KOLO_GPU uint32_t destinations(const Sides &s)
{
    return s.ndst;
}
/* What comes from IN is scaled, as nothing was before; so peers get it scaled. */
KOLO_GPU Factor factor(const Sides &s, uint32_t q)
{
    if (s.factors != 0) {
        const Factor theirs = {s.factors[q], true};
        return theirs;
    }
    const Factor by = {s.factor, s.operand[q] >> 56 == KOLO_PEER_IN};
    return by;
}

KOLO_GPU uint64_t address_of(const Tile &tile, uint64_t operand)
{
    const kolo_peer_launch &l = *tile.launch;
    const uint32_t rank = (uint32_t)(operand >> 48) & 0xff;
    const uint64_t where = operand & 0xffffffffffffu;
    switch (operand >> 56) {
    case KOLO_PEER_IN:
        return l.ends.in + where + tile.at;
    case KOLO_PEER_OUT:
        return l.ends.out + where + tile.at;
    case KOLO_PEER_SCRATCH:
        return scratch_of(l, tile.block.slice, tile.t) + where;
    case KOLO_PEER_FROM:
        return slot_of(l, l.me, rank, tile.block.slice, tile.epoch) + where;
    default:
        return slot_of(l, rank, l.me, tile.block.slice, tile.epoch) + where;
    }
}

template <class Unit> KOLO_GPU_CALL void copy_piece(const Sides &s, const Who &who)
{
    fold_piece<Copy<Unit>>(s, who);
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

/* `address` is the block's, of KOLO_PEER_SIDES, and not the last move's. Those of DIRECT are there,
 * and the factors before them: see meet(). */
template <class F>
KOLO_GPU void move(const Tile &tile, const kolo_peer_op &op, uint64_t *address,
                   const Threads &threads)
{
    const kolo_peer_launch &l = *tile.launch;
    const bool direct = op.code == KOLO_PEER_DIRECT;
    const uint32_t sides = direct ? 0 : (uint32_t)op.nsrc + op.ndst;
    for (uint32_t i = threads.first; i < sides; i += threads.step) {
        address[i] = address_of(tile, l.at[op.first + i]);
    }
    (void)any(false); /* addresses are there, and what the op before has moved */
    typedef typename F::Elem Elem;
    typedef typename UnitOf<(sizeof(Elem) < 4 ? sizeof(Elem) : 4)>::Unit Unit;
    const uint64_t left = op.bytes > tile.at ? op.bytes - tile.at : 0;
    const uint64_t bytes = left < tile.most ? left : tile.most;
    const uint64_t *factors = F::scales && direct ? address - KOLO_PEER_SIDES : 0;
    Sides s = {address, &l.at[op.first], factors, op.nsrc, op.ndst, l.ends.factor, 0, 0};
    s.divisor = op.last ? l.divisor : 0;
    const bool scales = F::scales && (direct || l.at[op.first] >> 56 == KOLO_PEER_IN);
    const bool folds = F::folds && (op.nsrc > 1 || s.divisor > 1 || scales);
    s.count = bytes / (folds ? sizeof(Elem) : sizeof(Unit));
    for (uint32_t t = threads.first; t < threads.count; t += threads.step) {
        const Who who = {tile.block.slice, l.room.slices, t, threads.count};
        if (folds) {
            fold_piece<F>(s, who);
        } else if (op.ndst > 1 || address[0] != address[1]) {
            copy_piece<Unit>(s, who);
        }
    }
}

/* ---- straight from buffer to buffer ---- */

KOLO_GPU uint32_t all_ranks(const kolo_peer_launch &l)
{
    return (uint32_t)((UINT64_C(1) << l.room.nranks) - 1);
}

KOLO_GPU bool wait_all(const Tile &tile, uint32_t word, const Threads &threads)
{
    const kolo_peer_launch &l = *tile.launch;
    bool failed = false;
    for (uint32_t q = threads.first; q < l.room.nranks; q += threads.step) {
        const Want want = {q, word, tile.epoch + 1, 0, l.ends.signature};
        failed = failed || !wait_word(tile, want);
    }
    return !any(failed);
}

enum Met { MET_APART, MET_ALL, MET_FAILED };

/* Tell all where they have this rank's buffers, if they reach them, and hear it of all. If all are
 * reached, the sides of the move are there, from address[KOLO_PEER_SIDES] on, and the factors, from
 * address[0] on. A place is written again in the next such call, which its writer only makes after
 * this one, thus after it has heard of this rank something that came behind what is read here. */
KOLO_GPU Met meet(const Tile &tile, const kolo_peer_op &op, uint64_t *address,
                  const Threads &threads)
{
    const kolo_peer_launch &l = *tile.launch;
    bool apart = false;
    for (uint32_t q = threads.first; q < l.room.nranks; q += threads.step) {
        const kolo_peer_place place = {l.reached != 0 ? l.ends.in + l.in_shift[q] : 0,
                                       l.ends.out + l.out_shift[q], l.ends.factor, 0};
        slice_of(l, q, tile.block.slice)->place[l.me] = place;
    }
    tell(tile, all_ranks(l), KOLO_PEER_MET, threads);
    if (!wait_all(tile, KOLO_PEER_MET, threads)) {
        return MET_FAILED;
    }
    for (uint32_t q = threads.first; q < l.room.nranks; q += threads.step) {
        const kolo_peer_place theirs = tile.block.mine->place[q];
        apart = apart || theirs.in == 0;
        address[q] = theirs.factor;
        if (op.nsrc > 1 || q == l.me) {
            address[KOLO_PEER_SIDES + (op.nsrc > 1 ? q : 0)] = theirs.in + l.in_at + tile.at;
        }
        if (op.ndst > 1 || q == l.me) {
            address[KOLO_PEER_SIDES + op.nsrc + (op.ndst > 1 ? q : 0)] =
                theirs.out + l.out_at + tile.at;
        }
    }
    return any(apart) ? MET_APART : MET_ALL;
}

/* ---- the program ---- */

template <class F> struct PeerKernel {
    /* One op; false: the block gave up. */
    KOLO_GPU bool step(const Tile &tile, const kolo_peer_op &op, uint64_t *address,
                       const Threads &threads)
    {
        switch (op.code) {
        case KOLO_PEER_WAIT:
            return wait_words(tile, op, threads);
        case KOLO_PEER_MOVE:
        case KOLO_PEER_DIRECT:
            move<F>(tile, op, address, threads);
            return true;
        case KOLO_PEER_SIGNAL:
            tell(tile, tile.launch->readers, op.word, threads);
            return true;
        default:
            tell(tile, tile.launch->sources, 0, threads);
            return true;
        }
    }

    /* `address` is the block's: 2 * KOLO_PEER_SIDES. A pipeline: in iteration i, stage s works on
     * tile i - s, the last stage first, as on the host (cpu.c). DIRECT is one tile of one stage. */
    KOLO_GPU void run(const kolo_peer_launch &l, uint32_t slice, uint64_t *address,
                      const Threads &threads)
    {
        Tile tile = {
            &l, {slice_of(l, l.me, slice), control_of(l), l.ends.timeout_ns, slice}, 0, 0, 0, 0};
        const uint32_t begin = tile.block.mine->epoch, calls = tile.block.mine->met;
        Met met = MET_APART;
        uint32_t moves = 0;
        if (any(threads.first == 0 && load_flag(&control_of(l)->abort) != 0)) {
            return;
        }
        if (l.meets != 0) {
            tile.epoch = calls;
            tile.at = slice * l.direct_part;
            met = meet(tile, l.op[l.nops], address, threads);
        }
        if (met == MET_FAILED) {
            return;
        }
        const bool direct = met == MET_ALL;
        const uint32_t tiles = direct ? 1 : l.tiles, nstages = direct ? 1 : l.nstages;
        const uint64_t part = direct ? l.direct_part : l.part;
        const uint64_t piece = direct ? l.direct_part : l.piece;
        for (uint32_t i = 0; i < tiles + nstages - 1; i++) {
            for (uint32_t stage = nstages; stage-- > 0;) {
                tile.t = i - stage; /* wraps where the pipeline is not full */
                if (tile.t >= tiles) {
                    continue;
                }
                tile.epoch = direct ? calls : begin + tile.t;
                tile.at = slice * part + tile.t * piece;
                const uint64_t left = (slice + 1) * part - tile.at;
                tile.most = left < piece ? left : piece;
                if (stage == 0 && !direct && !take_slots(tile, threads)) {
                    return;
                }
                const uint32_t last = direct ? l.nops + 1u : l.stage[stage + 1];
                for (uint32_t at = direct ? l.nops : l.stage[stage]; at < last; at++) {
                    moves += l.op[at].code == KOLO_PEER_MOVE || direct;
                    if (!step(tile, l.op[at], address + moves % 2 * KOLO_PEER_SIDES, threads)) {
                        return;
                    }
                }
            }
        }
        if (direct) {
            tell(tile, all_ranks(l), KOLO_PEER_OVER, threads);
            if (!wait_all(tile, KOLO_PEER_OVER, threads)) {
                return;
            }
        }
        (void)any(false); /* all have read the epochs */
        if (threads.first == 0) {
            tile.block.mine->epoch = begin + (direct ? 0 : tiles);
            tile.block.mine->met = calls + (l.meets != 0);
        }
    }
};

} // namespace kolo_gpu

#endif
