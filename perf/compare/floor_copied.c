// SPDX-License-Identifier: Apache-2.0
/* Copied floor: single copies between private buffers by the system, process_vm_readv(2) and
 * process_vm_writev(2). Each rank tells where its buffers are (entered), and returns when no rank
 * uses them any more (left).
 *
 * - The reader copies a block from the input of its owner into its own output.
 * - With halves, reader and owner copy half of a block each, at the same time.
 *
 * A rank that sums reads a part of each input into a scratch block first. A reader of all ranks'
 * sums takes the shares of the others from their outputs. */
#include "floor.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LINE = 64, SHORTEST = 4096, PAGE = 4096 };

typedef ssize_t copy_fn(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                        unsigned long, unsigned long);

/* ---- single copies ---- */

static bool copied(copy_fn *copy, const struct floor *f, int rank, char *own, char *remote,
                   size_t bytes)
{
    while (bytes > 0) {
        const struct iovec here = {.iov_base = own, .iov_len = bytes};
        const struct iovec there = {.iov_base = remote, .iov_len = bytes};
        const ssize_t done = copy(f->area->buffers[rank].pid, &here, 1, &there, 1, 0);
        if (done <= 0) {
            return false;
        }
        own += done;
        remote += done;
        bytes -= (size_t)done;
    }
    return true;
}

static void copy_or_exit(copy_fn *copy, const struct floor *f, int rank, char *own, char *remote,
                         size_t bytes)
{
    if (!copied(copy, f, rank, own, remote, bytes)) {
        perror("compare_floor: a copy between two processes");
        exit(1);
    }
}

bool floor_copied_start(struct floor *f)
{
    static char mark;
    struct floor_buffers *own = &f->area->buffers[f->rank];
    char read = 0;
    bool forbidden = false;
    /* Yama, where it runs, lets only ancestors read a process that does not ask for more. */
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    mark = 1;
    own->pid = getpid();
    own->in = &mark;
    compare_team_barrier(f->team);
    for (int q = 0; q < f->nranks; q++) {
        const bool good =
            copied(process_vm_readv, f, q, &read, f->area->buffers[q].in, 1) && read == 1;
        own->forbidden = own->forbidden || !good;
    }
    compare_team_barrier(f->team);
    for (int q = 0; q < f->nranks; q++) {
        forbidden = forbidden || f->area->buffers[q].forbidden;
    }
    compare_team_barrier(f->team); /* before a call tells other addresses */
    return !forbidden;
}

const char *floor_copied_refuse(const struct floor *f, const struct compare_point *p)
{
    if (p->collective >= COMPARE_BARRIER) {
        return "moves nothing";
    }
    if (!f->can_copy) {
        return "is forbidden here";
    }
    if (p->count * p->elem_bytes < SHORTEST) {
        return "is too short for a system call";
    }
    return f->two && compare_reduces(p->collective) ? "is summed by one rank" : NULL;
}

/* ---- blocks that only move ---- */

/* Whether rank `from` has a block for rank `to`, and where the block lies at both ends. */
static bool moves(const struct compare_point *p, int from, int to, size_t *in_at, size_t *out_at)
{
    const size_t bytes = p->count * p->elem_bytes;
    const enum compare_collective c = p->collective;
    const bool picks = c == COMPARE_ALL_TO_ALL || c == COMPARE_SCATTER;
    const bool single = c == COMPARE_BROADCAST || c == COMPARE_SCATTER;
    *in_at = picks ? (size_t)to * bytes : 0;
    *out_at = single ? 0 : (size_t)from * bytes;
    return (!single || from == p->root) && (c != COMPARE_GATHER || to == p->root);
}

static size_t first_half(const struct floor *f, size_t bytes)
{
    return f->two ? bytes / 2 / PAGE * PAGE : bytes;
}

static void move_blocks(const struct floor *f, const struct compare_point *p)
{
    const size_t bytes = p->count * p->elem_bytes, half = first_half(f, bytes);
    const struct floor_buffers *buffers = f->area->buffers;
    size_t in_at, out_at;
    char *in = p->send, *out = p->recv;
    for (int d = 0; d < f->nranks; d++) {
        const int q = (f->rank + d) % f->nranks;
        const bool takes = moves(p, q, f->rank, &in_at, &out_at);
        if (q == f->rank) {
            if (takes && in + in_at != out + out_at) {
                floor_copy(out + out_at, in + in_at, bytes);
            }
            continue;
        }
        if (takes) {
            floor_await(f, &f->area->entered[q], f->calls);
            copy_or_exit(process_vm_readv, f, q, out + out_at, buffers[q].in + in_at, half);
        }
        if (f->two && moves(p, f->rank, q, &in_at, &out_at)) {
            floor_await(f, &f->area->entered[q], f->calls);
            copy_or_exit(process_vm_writev, f, q, in + in_at + half, buffers[q].out + out_at + half,
                         bytes - half);
        }
    }
    floor_set(f, &f->area->left[f->rank], f->calls);
    for (int q = 0; q < f->nranks; q++) {
        if (q != f->rank && (moves(p, f->rank, q, &in_at, &out_at) ||
                             (f->two && moves(p, q, f->rank, &in_at, &out_at)))) {
            floor_await(f, &f->area->left[q], f->calls);
        }
    }
}

/* ---- sums ---- */

static void await_all(const struct floor *f, const struct compare_flag *flags)
{
    for (int q = 0; q < f->nranks; q++) {
        if (q != f->rank) {
            floor_await(f, &flags[q], f->calls);
        }
    }
}

/* Sum [at, at + bytes) of all inputs into `out`. */
static void sum_inputs(const struct floor *f, const struct compare_point *p, size_t at,
                       size_t bytes, char *out)
{
    static _Alignas(LINE) char scratch[COMPARE_RANKS_MAX][FLOOR_BLOCK];
    const void *src[COMPARE_RANKS_MAX];
    for (size_t done = 0; done < bytes; done += FLOOR_BLOCK) {
        const size_t block = bytes - done < FLOOR_BLOCK ? bytes - done : FLOOR_BLOCK;
        for (int q = 0; q < f->nranks; q++) {
            src[q] = scratch[q];
            if (q == f->rank) {
                src[q] = (char *)p->send + at + done;
            } else {
                copy_or_exit(process_vm_readv, f, q, scratch[q], f->area->buffers[q].in + at + done,
                             block);
            }
        }
        f->sum(out + done, src, f->nranks, block, false);
    }
}

static size_t share_of(const struct floor *f, size_t bytes, int rank, size_t *at)
{
    const size_t n = (size_t)f->nranks;
    const size_t share = ((bytes + n - 1) / n + LINE - 1) / LINE * LINE;
    *at = (size_t)rank * share;
    if (*at >= bytes) {
        return 0;
    }
    return bytes - *at < share ? bytes - *at : share;
}

static void sum_shares(const struct floor *f, const struct compare_point *p, size_t bytes)
{
    size_t at;
    char *out = p->recv;
    const size_t own = share_of(f, bytes, f->rank, &at);
    sum_inputs(f, p, at, own, out + at);
    floor_set(f, &f->area->reduced[f->rank], f->calls);
    for (int d = 1; d < f->nranks; d++) {
        const int q = (f->rank + d) % f->nranks;
        const size_t its = share_of(f, bytes, q, &at);
        floor_await(f, &f->area->reduced[q], f->calls);
        copy_or_exit(process_vm_readv, f, q, out + at, f->area->buffers[q].out + at, its);
    }
}

static void sum(const struct floor *f, const struct compare_point *p)
{
    const size_t bytes = p->count * p->elem_bytes;
    if (p->collective == COMPARE_REDUCE && f->rank != p->root) {
        floor_await(f, &f->area->left[p->root], f->calls);
        floor_set(f, &f->area->left[f->rank], f->calls);
        return;
    }
    await_all(f, f->area->entered);
    if (p->collective == COMPARE_ALL_REDUCE) {
        sum_shares(f, p, bytes);
    } else {
        const size_t at = p->collective == COMPARE_REDUCE ? 0 : (size_t)f->rank * bytes;
        sum_inputs(f, p, at, bytes, p->recv);
    }
    floor_set(f, &f->area->left[f->rank], f->calls);
    if (p->collective != COMPARE_REDUCE) {
        await_all(f, f->area->left);
    }
}

void floor_copied_call(struct floor *f, const struct compare_point *p)
{
    struct floor_buffers *own = &f->area->buffers[f->rank];
    own->in = p->send;
    own->out = p->recv;
    f->calls++;
    floor_set(f, &f->area->entered[f->rank], f->calls);
    if (compare_reduces(p->collective)) {
        sum(f, p);
    } else {
        move_blocks(f, p);
    }
}
