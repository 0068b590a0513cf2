// SPDX-License-Identifier: Apache-2.0
/* Lowered programs: one rank's plan turned into moves, waits and signals for the links it has.
 *
 * Memory. Each rank of a communicator owns a *region* that its peers map: lines with one writer
 * each. A signal is a line: payload of up to 48 bytes, then how many tiles its writer has finished,
 * then the epoch. Lines exist KOLO_DEPTH times, and so do the outbox slots of tiles with few bytes,
 * so that ranks that share a core need not take turns at each call; the slots of longer tiles would
 * leave the cache, and exist KOLO_LONG_DEPTH times. Each is indexed by the tile's epoch, which
 * counts the tiles a communicator has run: the same on every rank, whatever the programs were.
 *
 *   region: | head | done | entries | line[phase][32] ... |   outbox: | long slots x4 | short x32 |
 *
 * Reuse. A rank may write what tile e-32 occupied when those who read it there have finished tile
 * e-32. It knows from every line it waits for (they carry `done`), and looks at their `done` lines
 * only where that is not recent enough. So nothing here depends on a plan being synchronizing. For
 * a long slot those who read the last tile in it must have finished that tile as well; if it is 32
 * tiles ago, they have.
 *
 * Links. MESSAGE: posts. MAP: a message whose source the receiver may load from, and which its
 * sender leaves alone (STABLE), is pulled from user memory, and from IN without a signal: the entry
 * line says that it is there; one without reduction whose destination the sender may store to, and
 * which is FRESH, is pushed into it, unless its sender has more to send than its receiver receives:
 * then that one pulls, too; else it goes through the sender's outbox.
 */
#ifndef KOLO_EXEC_LOWER_PROGRAM_H
#define KOLO_EXEC_LOWER_PROGRAM_H

#include "exec/lower/limits.h"
#include "plan/plan.h"

enum { KOLO_STAGES = 3 };

/* What rank r's link to a peer offers; both ends agree on it. */
enum kolo_link_bits {
    KOLO_LINK_MAP = 1,      /* regions and outboxes are mapped both ways; else messages only */
    KOLO_LINK_PEER_IN = 2,  /* I may load from the peer's IN ... */
    KOLO_LINK_PEER_OUT = 4, /* ... and load and store its OUT */
    KOLO_LINK_MY_IN = 8,    /* the peer may load from my IN ... */
    KOLO_LINK_MY_OUT = 16   /* ... and load and store my OUT */
};

enum kolo_space {
    KOLO_AT_IN, /* own user memory */
    KOLO_AT_OUT,
    KOLO_AT_SCRATCH, /* own private memory, by tile */
    KOLO_AT_STAGE,   /* own private memory for messages, by tile: index is a stage chunk */
    KOLO_AT_PEER_IN, /* user memory of `rank` */
    KOLO_AT_PEER_OUT,
    KOLO_AT_OUTBOX /* outbox of `rank` (which may be me): index is a place, `phase` its line */
};

struct kolo_at { /* a symbolic operand */
    uint8_t space, spare;
    uint16_t count;
    int32_t rank;
    uint32_t index; /* chunk or place */
    uint32_t phase; /* OUTBOX, WAIT, SIGNAL: the line */
};

enum kolo_code {
    KOLO_DO_WAIT,   /* lines {rank, phase} of operands */
    KOLO_DO_MOVE,   /* nsrc sources, in order, reduced into ndst destinations */
    KOLO_DO_SIGNAL, /* own line `phase` */
    KOLO_DO_SEND,   /* post a message: one source operand to `peer` */
    KOLO_DO_RECV,   /* post a receive: one destination operand from `peer` */
    KOLO_DO_TAKEN,  /* wait for the receives of ops [index, index+nsrc) given as operands' index */
    KOLO_DO_AFTER,  /* wait until this rank's `lane` has done its op `index` in this tile */
    KOLO_DO_DONE,   /* this lane has read all it will of this tile; sends are complete */
    KOLO_DO_LEFT    /* wait until the ranks of the operands have finished this tile (they read my
                       memory) */
};

struct kolo_uop {
    uint8_t code, last; /* last: the reduction is complete here */
    uint16_t nsrc, ndst, count;
    int32_t peer;     /* SEND, RECV: the peer; AFTER: lane */
    uint32_t first;   /* first operand: sources, then destinations */
    uint32_t index;   /* AFTER: op of the other lane; SEND, RECV: request number */
    int32_t step;     /* plan step it came from, or -1 */
    uint32_t channel; /* SEND, RECV: messages match in order per channel */
    uint8_t lent;     /* RECV: nobody else uses its memory from the post on, until it is taken */
};

struct kolo_lane_ops {
    uint32_t begin, end;             /* ops */
    uint32_t stage[KOLO_STAGES + 1]; /* bounds of pipeline stages, nstages + 1 entries */
    int nstages;
};

struct kolo_prog {
    const struct kolo_plan *plan; /* of at least this rank; outlives the program */
    int me, nlanes;
    struct kolo_uop *op;
    uint32_t nops;
    struct kolo_at *at;
    uint32_t nats;
    struct kolo_lane_ops lane[KOLO_LANES];
    uint32_t nreqs;        /* message requests */
    uint32_t stage_chunks; /* chunks of KOLO_AT_STAGE */
    int *readers;          /* ranks that read my lines (of signals, of entry) or outbox */
    int nreaders;
    int *sources; /* ranks whose lines (of signals, of entry) or outbox I read */
    int nsources;
    int *entries; /* ranks whose entry line must be there first: I use their user memory */
    int nentries;
    bool uses_outbox;      /* something goes through an outbox (mine or a peer's) */
    bool fills_outbox;     /* mine */
    int depth, long_depth; /* KOLO_DEPTH, KOLO_LONG_DEPTH; tests lower them */
};

/* Lower rank `me` of `plan`; link[q] are the bits of my link to rank q (link[me] unused). Plans
 * with only one rank's steps lower to outboxes and messages alone. Errors: SYSTEM. */
kolo_status kolo_lower(const struct kolo_plan *plan, int me, const uint8_t *link,
                       struct kolo_prog **out);
void kolo_prog_destroy(struct kolo_prog *prog);

/* Text, one op a line. */
void kolo_prog_print(const struct kolo_prog *prog, struct kolo_text *out);

#endif
