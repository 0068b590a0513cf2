// SPDX-License-Identifier: Apache-2.0
/* What a thread block of a peer kernel does: C++ for the GPU and the host alike. See
 * program_kernel.h.
 *
 * Called by every thread of a block; on the host one thread plays them all, one after the other
 * between two barriers of the block, and a block is a thread. A word that is waited for is polled
 * by one thread, with acquire; a barrier of the block then orders the data behind it for the
 * others. A signal comes after such a barrier, with release, so that it covers what they stored.
 * Every wait looks at the abort word and the clock from time to time, and gives up with a record.
 */
#ifndef KOLO_EXEC_GPU_PROGRAM_PROGRAM_BODY_H
#define KOLO_EXEC_GPU_PROGRAM_PROGRAM_BODY_H

#include "exec/gpu/fused/fused_body.h"
#include "exec/gpu/program/program_layout.h"

#if !defined(__CUDACC__)
#include "exec/gpu/program/program_host.h"
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
/* Whether this is the last of `count` blocks of the kernel to count itself; what they did before is
 * there for it. The next count begins anew. */
KOLO_GPU bool is_last(uint32_t *at, uint32_t count)
{
    __threadfence();
    const bool last = atomicInc(at, count - 1) == count - 1;
    __threadfence();
    return last;
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
KOLO_GPU bool is_last(uint32_t *, uint32_t)
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
KOLO_GPU uint64_t inbox_of(const kolo_peer_launch &l, uint32_t rank, uint32_t slice, uint32_t epoch)
{
    const uint64_t inbox = (uint64_t)slice * KOLO_PEER_DEPTH + epoch % KOLO_PEER_DEPTH;
    return l.ends.slab[rank] + l.room.slices * sizeof(kolo_peer_slice) + inbox * l.room.inbox_bytes;
}
/* The lanes of a rank share it: of the slice of lane 0. */
KOLO_GPU uint64_t scratch_of(const kolo_peer_launch &l, uint32_t slice, uint32_t tile)
{
    const uint64_t inboxes = (uint64_t)l.room.slices * KOLO_PEER_DEPTH * l.room.inbox_bytes;
    const uint64_t copy = (uint64_t)(slice % l.slices) * KOLO_PEER_COPIES + tile % KOLO_PEER_COPIES;
    return l.ends.slab[l.me] + l.room.slices * sizeof(kolo_peer_slice) + inboxes +
           copy * l.room.scratch_bytes;
}

/* ---- the program ---- */

struct Shared { /* by the threads of a block */
    uint64_t address[2 * KOLO_PEER_SIDES];
    uint64_t window[KOLO_PEER_WINDOW];
};

struct Window { /* on the program of a lane */
    uint64_t *word;
    uint32_t first, end; /* of the program: the word at hand; the lane's last one */
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

KOLO_GPU void load(const kolo_peer_launch &l, Window *window, uint32_t first,
                   const Threads &threads)
{
    const uint64_t *from = l.program != 0 ? (const uint64_t *)(uintptr_t)l.program : l.word;
    const uint32_t left = window->end - first;
    window->first = first;
    for (uint32_t i = threads.first; i < KOLO_PEER_WINDOW && i < left; i += threads.step) {
        window->word[i] = from[first + i];
    }
}

/* The op at `at`, with all its operands. */
KOLO_GPU const uint64_t *op_at(const kolo_peer_launch &l, Window *window, uint32_t at,
                               const Threads &threads)
{
    enum { LONGEST = 1 + KOLO_PEER_SIDES };
    const uint32_t end = window->first + KOLO_PEER_WINDOW;
    if (at < window->first || (end < window->end && at + LONGEST > end)) {
        (void)any(false); /* nobody looks at what is there */
        load(l, window, at, threads);
        (void)any(false);
    }
    return window->word + (at - window->first);
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
    uint32_t lane;
    uint32_t t, epoch;
    uint64_t at, most; /* of each chunk: the first byte, how many at most */
};

KOLO_GPU kolo_peer_control *control_of(const kolo_peer_launch &l)
{
    return (kolo_peer_control *)(uintptr_t)l.ends.control;
}

/* Until the word has come to want.epoch. A word that has gone past it may be another call's, but no
 * rank is far ahead of another: so one that seems to be was stored long ago, and epochs have
 * wrapped since. */
KOLO_GPU bool wait_word(const Tile &tile, const Want &want)
{
    enum { AHEAD = 1 << 12 };
    const uint64_t *word = &tile.block.mine->word[want.rank][want.word];
    Patience patience = {0, 0};
    uint64_t seen = load_word(word);
    while ((uint32_t)seen - want.epoch >= AHEAD) {
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

KOLO_GPU uint32_t slice_in(const Tile &tile, uint32_t lane)
{
    const uint32_t slices = tile.launch->slices;
    return lane * slices + tile.block.slice % slices;
}

/* Whether inboxes of this tile may be stored to, and its scratch used: those who read what the tile
 * before left there are done with it. */
KOLO_GPU bool take_room(const Tile &tile, const Threads &threads)
{
    const kolo_peer_launch &l = *tile.launch;
    const uint32_t readers = l.lane[tile.lane].readers, lanes = l.joined != 0 ? l.lanes : 0;
    bool failed = false;
    for (uint32_t q = threads.first; q < l.room.nranks; q += threads.step) {
        const Want want = {q, 0, tile.epoch + 1 - KOLO_PEER_DEPTH, 0, 0};
        failed = failed || ((readers >> q & 1) != 0 && !wait_word(tile, want));
    }
    for (uint32_t i = threads.first; i < lanes && tile.t >= KOLO_PEER_COPIES; i += threads.step) {
        const Want want = {l.me, KOLO_PEER_OWN + i, tile.epoch + 1 - KOLO_PEER_COPIES, 0, 0};
        failed = failed || (i != tile.lane && !wait_word(tile, want));
    }
    return !any(failed);
}

KOLO_GPU bool wait_words(const Tile &tile, const uint64_t *op, const Threads &threads)
{
    const uint32_t signature = tile.launch->ends.signature;
    bool failed = false;
    for (uint32_t i = threads.first; i < sources_of(*op); i += threads.step) {
        const uint64_t at = op[1 + i];
        const Want want = {rank_of(at), (uint32_t)at, tile.epoch + 1, value_of(*op), signature};
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

/* The same to this rank in another lane, whose epoch its blocks keep until all lanes are through.
 */
KOLO_GPU void tell_lane(const Tile &tile, uint32_t lane, uint32_t word)
{
    const kolo_peer_launch &l = *tile.launch;
    kolo_peer_slice *slice = slice_of(l, l.me, slice_in(tile, lane));
    store_word(&slice->word[l.me][word],
               (uint64_t)l.ends.signature << 32 | (load_flag(&slice->epoch) + tile.t + 1));
}

KOLO_GPU void mark(const Tile &tile, const uint64_t *op, const Threads &threads)
{
    (void)any(false);
    for (uint32_t i = threads.first; i < sources_of(*op); i += threads.step) {
        tell_lane(tile, rank_of(op[1 + i]), (uint32_t)op[1 + i]);
    }
}

KOLO_GPU uint32_t all_ranks(const kolo_peer_launch &l)
{
    return (uint32_t)((UINT64_C(1) << l.room.nranks) - 1);
}

/* With a tile; of a call's last one everybody hears, so that any rank may store in the next. */
KOLO_GPU void tell_done(const Tile &tile, const Threads &threads)
{
    const kolo_peer_launch &l = *tile.launch;
    const bool last = tile.t + 1 == l.tiles;
    tell(tile, last ? all_ranks(l) : l.lane[tile.lane].sources, 0, threads);
    for (uint32_t i = threads.first; l.joined != 0 && i < l.lanes; i += threads.step) {
        if (i != tile.lane) {
            tell_lane(tile, i, KOLO_PEER_OWN + tile.lane);
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

/* Where a chunk begins in a buffer. */
KOLO_GPU uint64_t offset_of(const kolo_peer_launch &l, uint64_t stride, uint32_t chunk)
{
    return l.varied == 0 ? chunk * stride : stride != 0 ? l.span[chunk].at : 0;
}
KOLO_GPU uint64_t length_of(const kolo_peer_launch &l, uint32_t chunk)
{
    if (chunk == KOLO_PEER_FULL) {
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
    const kolo_peer_launch &l = *tile.launch;
    const uint32_t index = (uint32_t)operand;
    switch (operand >> 56) {
    case KOLO_PEER_IN:
        return l.ends.in + offset_of(l, l.in_stride, index) + tile.at;
    case KOLO_PEER_OUT:
        return l.ends.out + offset_of(l, l.out_stride, index) + tile.at;
    case KOLO_PEER_SCRATCH:
        return scratch_of(l, tile.block.slice, tile.t) + index * l.piece;
    default:
        return inbox_of(l, rank_of(operand), tile.block.slice, tile.epoch) + index * l.piece;
    }
}

/* Not inline: what the interpreter keeps is no concern of its registers. */
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

/* `address` is the block's, of KOLO_PEER_SIDES, and not the last move's. Those of DIRECT are there,
 * and the factors before them: see meet(). */
template <class F>
KOLO_GPU void move(const Tile &tile, const uint64_t *words, uint64_t *address,
                   const Threads &threads)
{
    const kolo_peer_launch &l = *tile.launch;
    const uint64_t op = *words;
    const bool direct = code_of(op) == KOLO_PEER_DIRECT;
    const uint32_t nsrc = sources_of(op), ndst = destinations_of(op);
    for (uint32_t i = threads.first; i < nsrc + ndst && !direct; i += threads.step) {
        address[i] = address_of(tile, words[1 + i]);
    }
    (void)any(false); /* addresses are there, and what the op before has moved */
    typedef typename F::Elem Elem;
    typedef typename UnitOf<(sizeof(Elem) < 4 ? sizeof(Elem) : 4)>::Unit Unit;
    const uint64_t length = direct ? l.direct_bytes : length_of(l, value_of(op));
    const uint64_t left = length > tile.at ? length - tile.at : 0;
    const uint64_t bytes = left < tile.most ? left : tile.most;
    const uint64_t *factors = F::scales && direct ? address - KOLO_PEER_SIDES : 0;
    Sides s = {address, words + 1, factors, nsrc, ndst, l.ends.factor, 0, 0};
    s.divisor = is_complete(op) ? l.divisor : 0;
    const bool scales = F::scales && (direct || words[1] >> 56 == KOLO_PEER_IN);
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

/* ---- straight from buffer to buffer ---- */

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
KOLO_GPU Met meet(const Tile &tile, uint64_t *address, const Threads &threads)
{
    const kolo_peer_launch &l = *tile.launch;
    const uint32_t nsrc = sources_of(l.direct), ndst = destinations_of(l.direct);
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
        if (nsrc > 1 || q == l.me) {
            address[KOLO_PEER_SIDES + (nsrc > 1 ? q : 0)] = theirs.in + l.in_at + tile.at;
        }
        if (ndst > 1 || q == l.me) {
            address[KOLO_PEER_SIDES + nsrc + (ndst > 1 ? q : 0)] = theirs.out + l.out_at + tile.at;
        }
    }
    return any(apart) ? MET_APART : MET_ALL;
}

/* ---- a kernel ---- */

template <class F> struct PeerKernel {
    /* One op; false: the block gave up. */
    KOLO_GPU bool step(const Tile &tile, const uint64_t *op, uint64_t *address,
                       const Threads &threads)
    {
        switch (code_of(*op)) {
        case KOLO_PEER_WAIT:
            return wait_words(tile, op, threads);
        case KOLO_PEER_MOVE:
        case KOLO_PEER_DIRECT:
            move<F>(tile, op, address, threads);
            return true;
        case KOLO_PEER_SIGNAL:
            tell(tile, tile.launch->lane[tile.lane].readers, value_of(*op), threads);
            return true;
        case KOLO_PEER_MARK:
            mark(tile, op, threads);
            return true;
        default:
            tell_done(tile, threads);
            return true;
        }
    }

    /* A pipeline: in iteration i, stage s works on tile i - s, the last stage first, as on the host
     * (exec/cpu/exec.c). DIRECT is one tile of one stage. */
    KOLO_GPU void run(const kolo_peer_launch &l, uint32_t slice, Shared *shared,
                      const Threads &threads)
    {
        Tile tile = {&l,
                     {slice_of(l, l.me, slice), control_of(l), l.ends.timeout_ns, slice},
                     slice / l.slices,
                     0,
                     0,
                     0,
                     0};
        const kolo_peer_lane &lane = l.lane[tile.lane];
        Window window = {shared->window, 0, lane.stage[l.nstages]};
        load(l, &window, lane.stage[0], threads);
        const uint32_t begin = tile.block.mine->epoch, calls = tile.block.mine->met;
        Met met = MET_APART;
        uint32_t moves = 0;
        if (any(threads.first == 0 && load_flag(&control_of(l)->abort) != 0)) {
            return;
        }
        if (l.meets != 0) {
            tile.epoch = calls;
            tile.at = slice * l.direct_part;
            met = meet(tile, shared->address, threads);
        }
        if (met == MET_FAILED) {
            return;
        }
        const bool direct = met == MET_ALL;
        const uint32_t tiles = direct ? 1 : l.tiles, nstages = direct ? 1 : l.nstages;
        const uint64_t part = direct ? l.direct_part : l.part;
        const uint64_t piece = direct ? l.direct_part : l.piece;
        const uint32_t within = slice % l.slices;
        for (uint32_t i = 0; i < tiles + nstages - 1; i++) {
            for (uint32_t stage = nstages; stage-- > 0;) {
                tile.t = i - stage; /* wraps where the pipeline is not full */
                if (tile.t >= tiles) {
                    continue;
                }
                tile.epoch = direct ? calls : begin + tile.t;
                tile.at = within * part + tile.t * piece;
                const uint64_t left = (within + 1) * part - tile.at;
                tile.most = left < piece ? left : piece;
                if (stage == 0 && !direct && !take_room(tile, threads)) {
                    return;
                }
                const uint32_t last = direct ? 1 : lane.stage[stage + 1];
                for (uint32_t at = direct ? 0 : lane.stage[stage]; at < last;) {
                    const uint64_t *op = direct ? &l.direct : op_at(l, &window, at, threads);
                    const uint32_t words = 1 + sources_of(*op) + destinations_of(*op);
                    moves += code_of(*op) == KOLO_PEER_MOVE || direct;
                    if (!step(tile, op, shared->address + moves % 2 * KOLO_PEER_SIDES, threads)) {
                        return;
                    }
                    at += words;
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
            tile.block.mine->met = calls + (l.meets != 0);
            advance(tile, direct ? 0 : tiles);
        }
    }

    /* By one thread of a block. Lanes that tell each other by their epochs advance together. */
    KOLO_GPU void advance(const Tile &tile, uint32_t tiles)
    {
        const kolo_peer_launch &l = *tile.launch;
        if (l.joined == 0) {
            tile.block.mine->epoch += tiles;
        } else if (is_last(&slice_of(l, l.me, slice_in(tile, 0))->through, l.lanes)) {
            for (uint32_t i = 0; i < l.lanes; i++) {
                slice_of(l, l.me, slice_in(tile, i))->epoch += tiles;
            }
        }
    }
};

} // namespace kolo_gpu

#endif
