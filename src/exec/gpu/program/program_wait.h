// SPDX-License-Identifier: Apache-2.0
/* Waits and signals of a thread block.
 *
 * One thread polls the word, with acquire. A barrier of the block then orders the data behind the
 * word for the other threads. A signal comes after another such barrier, with release, so that it
 * covers the stores of all threads. Every wait looks at the abort word and the clock from time to
 * time, and gives up with a record.
 */
#ifndef KOLO_EXEC_GPU_PROGRAM_PROGRAM_WAIT_H
#define KOLO_EXEC_GPU_PROGRAM_PROGRAM_WAIT_H

#include "exec/gpu/program/program_words.h"

namespace kolo_gpu
{

/* ---- waiting ---- */

struct Block { /* what a block needs to wait and to give up */
    kolo_program_slice *mine;
    kolo_program_control *control;
    uint64_t timeout_ns;
    uint32_t slice;
};

struct Want { /* the goal of a wait */
    uint32_t rank, word, epoch, step;
    uint32_t signature; /* 0: any */
};

/* The first of a block's threads writes the record. Returns false. */
KOLO_GPU bool give_up(const Block &block, const Want &want, uint64_t seen, uint32_t status)
{
    kolo_program_record *record = &block.control->record[block.slice];
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

/* Whether it is time to look at more than the awaited word. */
KOLO_GPU bool looks(const Patience &patience)
{
    return patience.polls % POLLS_A_LOOK == 0;
}

/* Call after a poll in vain. KOLO_PROGRAM_FINE: go on; otherwise the status to give up with. */
KOLO_GPU uint32_t after_poll(const Block &block, Patience *patience)
{
    pause(++patience->polls);
    if (!looks(*patience)) {
        return KOLO_PROGRAM_FINE;
    }
    const uint64_t now = now_ns();
    patience->since = patience->since == 0 ? now : patience->since;
    if (load_flag(&block.control->abort) != 0 || load_flag(&block.mine->failed) != 0) {
        return KOLO_PROGRAM_ABORTED;
    }
    return now - patience->since > block.timeout_ns ? KOLO_PROGRAM_TIMEOUT : KOLO_PROGRAM_FINE;
}

struct Tile {
    const kolo_program_launch *launch;
    Block block;
    uint32_t lane;
    uint32_t t, epoch;
    uint64_t at, most; /* of each chunk: the first byte, how many at most */
};

KOLO_GPU kolo_program_control *control_of(const kolo_program_launch &l)
{
    return (kolo_program_control *)(uintptr_t)l.ends.control;
}

/* Wait until the word has come to want.epoch. A word beyond it may be another call's, but no rank
 * is far ahead of another. So a word that seems far ahead was stored long ago, and epochs have
 * wrapped since. */
KOLO_GPU bool wait_word(const Tile &tile, const Want &want)
{
    enum { AHEAD = 1 << 12 };
    const uint64_t *word = &tile.block.mine->word[want.rank][want.word];
    Patience patience = {0, 0};
    uint64_t seen = load_word(word);
    while ((uint32_t)seen - want.epoch >= AHEAD) {
        const uint32_t status = after_poll(tile.block, &patience);
        if (status != KOLO_PROGRAM_FINE) {
            return give_up(tile.block, want, seen, status);
        }
        seen = load_word(word);
    }
    if (want.signature != 0 && (uint32_t)seen == want.epoch &&
        (uint32_t)(seen >> 32) != want.signature) {
        return give_up(tile.block, want, seen, KOLO_PROGRAM_MISMATCH);
    }
    return true;
}

KOLO_GPU uint32_t slice_in(const Tile &tile, uint32_t lane)
{
    const uint32_t slices = tile.launch->slices;
    return lane * slices + tile.block.slice % slices;
}

/* Wait until this tile's inboxes may be stored to and its scratch used: the readers of the tile
 * before in them are done with it. */
KOLO_GPU bool take_room(const Tile &tile, const Threads &threads)
{
    const kolo_program_launch &l = *tile.launch;
    const uint32_t readers = l.lane[tile.lane].readers, lanes = l.joined != 0 ? l.lanes : 0;
    bool failed = false;
    for (uint32_t q = threads.first; q < l.room.nranks; q += threads.step) {
        const Want want = {q, 0, tile.epoch + 1 - KOLO_PROGRAM_DEPTH, 0, 0};
        failed = failed || ((readers >> q & 1) != 0 && !wait_word(tile, want));
    }
    for (uint32_t i = threads.first; i < lanes && tile.t >= KOLO_PROGRAM_COPIES;
         i += threads.step) {
        const Want want = {l.me, KOLO_PROGRAM_OWN + i, tile.epoch + 1 - KOLO_PROGRAM_COPIES, 0, 0};
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

/* ---- telling ---- */

/* Store to word `word` of mine at all ranks of a set. */
KOLO_GPU void tell(const Tile &tile, uint32_t ranks, uint32_t word, const Threads &threads)
{
    const kolo_program_launch &l = *tile.launch;
    (void)any(false); /* a barrier: all threads have done their loads and stores */
    for (uint32_t q = threads.first; q < l.room.nranks; q += threads.step) {
        if ((ranks >> q & 1) != 0) {
            store_word(&slice_of(l, q, tile.block.slice)->word[l.me][word],
                       (uint64_t)l.ends.signature << 32 | (tile.epoch + 1));
        }
    }
}

/* Store to a word of this rank in another lane. The blocks of that lane keep its epoch until all
 * lanes have ended the call. */
KOLO_GPU void tell_lane(const Tile &tile, uint32_t lane, uint32_t word)
{
    const kolo_program_launch &l = *tile.launch;
    kolo_program_slice *slice = slice_of(l, l.me, slice_in(tile, lane));
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

KOLO_GPU uint32_t all_ranks(const kolo_program_launch &l)
{
    return (uint32_t)((UINT64_C(1) << l.room.nranks) - 1);
}

/* Tell that a tile is done. All ranks are told of a call's last tile, so that any rank may store in
 * the next call. */
KOLO_GPU void tell_done(const Tile &tile, const Threads &threads)
{
    const kolo_program_launch &l = *tile.launch;
    const bool last = tile.t + 1 == l.tiles;
    tell(tile, last ? all_ranks(l) : l.lane[tile.lane].sources, 0, threads);
    for (uint32_t i = threads.first; l.joined != 0 && i < l.lanes; i += threads.step) {
        if (i != tile.lane) {
            tell_lane(tile, i, KOLO_PROGRAM_OWN + tile.lane);
        }
    }
}

} // namespace kolo_gpu

#endif
