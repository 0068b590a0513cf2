// SPDX-License-Identifier: Apache-2.0
/* The work of a thread block of a program kernel, in C++ for the GPU and the host alike.
 *
 * Every thread of a block calls it. On the host a block is a thread: one thread plays all threads,
 * one after the other between two barriers of the block. program_words.h has the layout of memory,
 * program_wait.h the waits between blocks, program_move.h the moves of bytes.
 */
#ifndef KOLO_EXEC_GPU_PROGRAM_PROGRAM_BODY_H
#define KOLO_EXEC_GPU_PROGRAM_PROGRAM_BODY_H

#include "exec/gpu/program/program_move.h"

namespace kolo_gpu
{

/* ---- straight from buffer to buffer ---- */

KOLO_GPU bool wait_all(const Tile &tile, uint32_t word, const Threads &threads)
{
    const kolo_program_launch &l = *tile.launch;
    bool failed = false;
    for (uint32_t q = threads.first; q < l.room.nranks; q += threads.step) {
        const Want want = {q, word, tile.epoch + 1, 0, l.ends.signature};
        failed = failed || !wait_word(tile, want);
    }
    return !any(failed);
}

enum Met { MET_APART, MET_ALL, MET_FAILED };

/* Tell every rank where it has this rank's buffers, if it reaches them, and wait for the same from
 * every rank. If all buffers are reached, the sides of the move are in address[KOLO_PROGRAM_SIDES]
 * and behind, and the factors in address[0] and behind.
 *
 * A rank writes its place here again only in its next such call. Before that call it has received a
 * signal that this rank sent after it read the place. */
KOLO_GPU Met meet(const Tile &tile, uint64_t *address, const Threads &threads)
{
    const kolo_program_launch &l = *tile.launch;
    const uint32_t nsrc = sources_of(l.direct), ndst = destinations_of(l.direct);
    bool apart = false;
    for (uint32_t q = threads.first; q < l.room.nranks; q += threads.step) {
        const kolo_program_place place = {l.reached != 0 ? l.ends.in + l.in_shift[q] : 0,
                                          l.ends.out + l.out_shift[q], l.ends.factor, 0};
        slice_of(l, q, tile.block.slice)->place[l.me] = place;
    }
    tell(tile, all_ranks(l), KOLO_PROGRAM_MET, threads);
    if (!wait_all(tile, KOLO_PROGRAM_MET, threads)) {
        return MET_FAILED;
    }
    for (uint32_t q = threads.first; q < l.room.nranks; q += threads.step) {
        const kolo_program_place theirs = tile.block.mine->place[q];
        apart = apart || theirs.in == 0;
        address[q] = theirs.factor;
        if (nsrc > 1 || q == l.me) {
            address[KOLO_PROGRAM_SIDES + (nsrc > 1 ? q : 0)] = theirs.in + l.in_at + tile.at;
        }
        if (ndst > 1 || q == l.me) {
            address[KOLO_PROGRAM_SIDES + nsrc + (ndst > 1 ? q : 0)] =
                theirs.out + l.out_at + tile.at;
        }
    }
    return any(apart) ? MET_APART : MET_ALL;
}

/* ---- a kernel ---- */

template <class F> struct ProgramKernel {
    /* Run one op. False: the block gave up. */
    KOLO_GPU bool step(const Tile &tile, const uint64_t *op, uint64_t *address,
                       const Threads &threads)
    {
        switch (code_of(*op)) {
        case KOLO_PROGRAM_WAIT:
            return wait_words(tile, op, threads);
        case KOLO_PROGRAM_MOVE:
        case KOLO_PROGRAM_DIRECT:
            move<F>(tile, op, address, threads);
            return true;
        case KOLO_PROGRAM_SIGNAL:
            tell(tile, tile.launch->lane[tile.lane].readers, value_of(*op), threads);
            return true;
        case KOLO_PROGRAM_MARK:
            mark(tile, op, threads);
            return true;
        default:
            tell_done(tile, threads);
            return true;
        }
    }

    /* Run the program as a pipeline: in iteration i, stage s works on tile i - s, the last stage
     * first, as on the host (exec/cpu/exec.c). DIRECT is one tile of one stage. */
    KOLO_GPU void run(const kolo_program_launch &l, uint32_t slice, Shared *shared,
                      const Threads &threads)
    {
        Tile tile = {&l,
                     {slice_of(l, l.me, slice), control_of(l), l.ends.timeout_ns, slice},
                     slice / l.slices,
                     0,
                     0,
                     0,
                     0};
        const kolo_program_lane &lane = l.lane[tile.lane];
        Window window = {shared->window, 0, lane.stage[l.nstages]};
        load(l, &window, lane.stage[0], threads);
        const uint32_t begin = tile.block.mine->epoch, calls = tile.block.mine->met;
        Met met = MET_APART;
        uint32_t moves = 0;
        /* The word is in the host's memory, and its load takes about a microsecond. Ranks that meet
         * look at it while they wait for each other. */
        if (l.meets == 0 && any(threads.first == 0 && load_flag(&control_of(l)->abort) != 0)) {
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
                tile.t = i - stage; /* wraps around while the pipeline is not full */
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
                    moves += code_of(*op) == KOLO_PROGRAM_MOVE || direct;
                    if (!step(tile, op, shared->address + moves % 2 * KOLO_PROGRAM_SIDES,
                              threads)) {
                        return;
                    }
                    at += words;
                }
            }
        }
        if (direct) {
            tell(tile, all_ranks(l), KOLO_PROGRAM_OVER, threads);
            if (!wait_all(tile, KOLO_PROGRAM_OVER, threads)) {
                return;
            }
        }
        (void)any(false); /* all have read the epochs */
        if (threads.first == 0) {
            tile.block.mine->met = calls + (l.meets != 0);
            advance(tile, direct ? 0 : tiles);
        }
    }

    /* Advance the epoch; one thread of a block calls this. Lanes that wait for each other advance
     * together. */
    KOLO_GPU void advance(const Tile &tile, uint32_t tiles)
    {
        const kolo_program_launch &l = *tile.launch;
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
