// SPDX-License-Identifier: Apache-2.0
/* The lowered programs of all ranks, as far as time depends on them.
 *
 * exec/lower makes them, from the plan and for the links that the executor would use. Here an op
 * keeps its bytes, and the partners that it waits for or reaches, numbered within the rank. So many
 * ranks have equal programs, and each program is kept once.
 *
 * Each receive knows the send that it matches: messages match in order per (from, to, channel).
 */
#ifndef KOLO_SIM_PROGRAM_H
#define KOLO_SIM_PROGRAM_H

#include "exec/lower/program.h"
#include "sim/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As in core/comm.h: from more ranks on, a rank builds its own plan only, without facts and
 * stages; sizes of outbox slots. */
enum { KOLO_SIM_WHOLE_RANKS = 64, KOLO_SIM_SLOT_BYTES = 1 << 20, KOLO_SIM_SHORT_BYTES = 4 << 10 };

struct kolo_sim_ref { /* what an op has to do with another rank */
    int32_t peer;     /* index into the rank's partners; -1: itself */
    uint32_t what;    /* WAIT: line; TAKEN: request (peer: the sender) */
};

struct kolo_sim_op {
    uint8_t code, outs; /* enum kolo_code; outs: destinations in my outbox */
    uint16_t nsrc, ndst, nrefs;
    uint32_t ref;               /* the first of nrefs; SEND, RECV: the channel */
    uint32_t index;             /* SIGNAL: line; SEND, RECV: request; AFTER: op of the other lane */
    int32_t peer;               /* SEND, RECV: partner; AFTER: lane */
    uint32_t came;              /* MOVE: sources that messages brought */
    uint64_t bytes, last_bytes; /* MOVE, SEND, TAKEN (per request): of a tile, of the last tile */
};

struct kolo_sim_prog {
    int nlanes, nops, nrefs, npeers, nreqs, nphases, nreaders;
    bool fills_outbox;
    struct kolo_lane_ops lane[KOLO_LANES];
    struct kolo_sim_op *op;
    struct kolo_sim_ref *ref;
    uint64_t *taken_bytes; /* [2 * nreqs]: of a tile, then of the last tile */
    int *reader;           /* [nreaders]: partners that read my lines or outbox */
};

struct kolo_sim_member { /* one rank */
    int prog;
    uint32_t peer, source; /* its first entries in the arrays below */
};

struct kolo_sim_set {
    int nranks, nprogs;
    uint32_t tiles;
    bool in_long; /* tiles go into long slots */
    size_t steps; /* of the plan */
    struct kolo_sim_prog **prog;
    struct kolo_sim_member *member; /* [nranks] */
    int *peer;                      /* partners of all ranks */
    int32_t *source; /* for each request of all ranks: the sender's request; -1: it is a send */
};

/* Build, lower and match the programs of all ranks for `bytes` (as in struct kolo_query).
 * Errors: UNSUPPORTED (the algorithm refuses the shape), INVALID, SYSTEM. */
KOLO_CHECK kolo_status kolo_sim_set_make(const struct kolo_algo *algo,
                                         const struct kolo_sim_place *place, int root, size_t bytes,
                                         size_t tile_bytes, struct kolo_sim_set *out);
void kolo_sim_set_free(struct kolo_sim_set *set);

static inline const struct kolo_sim_prog *kolo_sim_prog_of(const struct kolo_sim_set *set, int rank)
{
    return set->prog[set->member[rank].prog];
}

#ifdef __cplusplus
}
#endif
#endif
