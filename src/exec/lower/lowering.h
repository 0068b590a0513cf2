// SPDX-License-Identifier: Apache-2.0
/* Declarations that the files of the lowering share: its state, the emission of ops and operands,
 * and the rule by which a message travels. lower.c says how the files work together. */
#ifndef KOLO_EXEC_LOWER_LOWERING_H
#define KOLO_EXEC_LOWER_LOWERING_H

#include "exec/lower/program.h"

enum kolo_travel { KOLO_BY_OUTBOX, KOLO_BY_PULL, KOLO_BY_PUSH, KOLO_BY_MESSAGE };

struct kolo_lowering {
    struct kolo_prog *prog;
    const struct kolo_plan *plan;
    const struct kolo_rank_plan *mine;
    const uint8_t *link;
    struct kolo_match *match; /* NULL when the plan has one rank only */
    uint32_t op_cap, at_cap;
    uint32_t *step_op; /* first op after each step, for dep */
    bool *reader, *source, *entry, *pulled_by;
    int top_level;
    int *count; /* [nranks], for counting */
    /* Which chunks of OUT and SCRATCH the first `marked` steps use; those of IN that may be the
     * same memory as OUT count as such. */
    bool *used[KOLO_BUFS];
    int chunks[KOLO_BUFS];
    int marked;
    bool failed;
};

enum {
    KOLO_RUN_ROOM = 512, /* sources, lines and requests that a run can hold */
    KOLO_RUN_MOST = 500  /* from this number on, no further step joins the run */
};
static_assert(KOLO_RUN_MOST + 2 <= KOLO_RUN_ROOM, "the first step of a run brings two sources");

struct kolo_run {   /* consecutive steps into one slice */
    int begin, end; /* steps; the steps of other lanes in between do not count */
    struct kolo_at src[KOLO_RUN_ROOM];
    struct kolo_at line[KOLO_RUN_ROOM]; /* lines to wait for */
    uint32_t taken[KOLO_RUN_ROOM];      /* receive requests to wait for */
    int nsrc, nlines, ntaken;
    bool last, moves;
};

/* ---- operands ---- */

static inline struct kolo_at kolo_at_slice(struct kolo_slice s)
{
    return (struct kolo_at){.space = s.buf == KOLO_IN    ? KOLO_AT_IN
                                     : s.buf == KOLO_OUT ? KOLO_AT_OUT
                                                         : KOLO_AT_SCRATCH,
                            .count = s.count,
                            .rank = -1,
                            .index = s.first};
}

static inline struct kolo_at kolo_at_peer(int rank, struct kolo_slice s)
{
    return (struct kolo_at){.space = s.buf == KOLO_IN ? KOLO_AT_PEER_IN : KOLO_AT_PEER_OUT,
                            .count = s.count,
                            .rank = rank,
                            .index = s.first};
}

static inline struct kolo_at kolo_at_outbox(int rank, const struct kolo_step *s)
{
    return (struct kolo_at){.space = KOLO_AT_OUTBOX,
                            .count = s->src.count,
                            .rank = rank,
                            .index = s->place,
                            .phase = s->phase};
}

static inline struct kolo_at kolo_at_line(int rank, uint32_t phase)
{
    return (struct kolo_at){.space = KOLO_AT_OUTBOX, .rank = rank, .phase = phase};
}

static inline bool kolo_slice_same(struct kolo_slice a, struct kolo_slice b)
{
    return a.buf == b.buf && a.first == b.first && a.count == b.count;
}

static inline bool kolo_slice_overlap(struct kolo_slice a, struct kolo_slice b)
{
    return a.buf == b.buf && a.first < b.first + b.count && b.first < a.first + a.count;
}

/* The first step of the lane from step `i` on; the number of steps if there is none. */
static inline int kolo_lowering_next_step(const struct kolo_lowering *l, int i, int lane)
{
    while (i < l->mine->count && l->mine->step[i].lane != lane) {
        i++;
    }
    return i;
}

/* ---- emit.c: ops, operands, and how a message travels ---- */

/* Append an op that step `step` (-1: none) asks for. */
struct kolo_uop *kolo_lowering_emit(struct kolo_lowering *l, enum kolo_code code, int step);
/* Append an operand to the newest op. */
void kolo_lowering_operand(struct kolo_lowering *l, struct kolo_at at);
/* How a message travels. Both ends get the same answer. `sends`: this rank is the sender. */
enum kolo_travel kolo_lowering_how(const struct kolo_lowering *l, const struct kolo_step *s,
                                   bool sends, bool reduce);
/* Whether the receiving step of this rank's SEND `i` reduces. Without the whole plan the answer is
 * false. That is harmless, because then no message is pushed. */
bool kolo_lowering_send_reduces(const struct kolo_lowering *l, int i);

/* ---- sends.c, runs.c, stages.c, posts.c ---- */

/* Lower all sends of one signal, from step `i` on. Returns the first step behind them. */
int kolo_lower_sends(struct kolo_lowering *l, uint32_t lane_begin, int i, int lane);
/* Lower one run, from step `i` on, and the copy of its result that follows. Returns the first step
 * behind them. */
int kolo_lower_run(struct kolo_lowering *l, struct kolo_run *run, int i, int lane);
/* Drop stores into scratch that nobody loads. */
void kolo_lower_dead(struct kolo_lowering *l);
/* Cut the ops of every lane into pipeline stages. Every rank has the same number of stages, some
 * perhaps empty. */
void kolo_lower_stages(struct kolo_lowering *l);
/* Move the receives of each stage before its first wait, where nobody else uses their memory. */
void kolo_lower_posts(struct kolo_lowering *l);

#endif
