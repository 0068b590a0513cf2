// SPDX-License-Identifier: Apache-2.0
/* Lowered programs: one rank's plan turned into moves, waits and signals for the links it has.
 *
 * Memory. Each rank of a communicator owns a *region* that its peers map. A region consists of
 * lines with one writer each. A signal is a line: a payload of up to 48 bytes, then the number of
 * tiles that its writer has finished, then the epoch.
 *
 * Each line has KOLO_DEPTH copies, and so has the outbox slot of a tile with few bytes. Ranks that
 * share a core therefore need not take turns at each call. The slot of a longer tile has only
 * KOLO_LONG_DEPTH copies. A tile need not fill its slot: tiles of one slot use several places in it
 * by turns (bind_turns() says why). The tile's epoch selects the copy and the place. It counts the
 * tiles that a communicator has run, so it is the same on every rank, whatever the programs were.
 *
 *   region: | head | done | entries | line[phase][32] ... |   outbox: | long slots x4 | short x32 |
 *
 * Reuse. A rank may write the memory of tile e-32 when its readers have finished tile e-32. Every
 * line that the rank waits for carries `done`, its writer's count of finished tiles. The rank looks
 * at the readers' `done` lines only if these counts are not recent enough. So nothing here depends
 * on a plan being synchronizing. Before a rank fills a long slot, the readers of the slot's last
 * tile must have finished that tile as well. If that tile is 32 tiles ago, they have.
 *
 * Links. Without MAP, a message is posted to the transport. With MAP, the first rule that fits
 * decides. Nobody writes the IN of a rank whose buffers lie APART, so there it is always STABLE:
 * 1. The receiver pulls from IN if it may load there, the sender leaves the source alone (STABLE),
 *    and the sender has more messages and copies than the receiver. A broadcast to one rank, in
 *    place, does so with odd chunks only.
 * 2. The sender pushes into OUT if it may store there, the message is not reduced, and the
 *    destination is FRESH.
 * 3. The receiver pulls from IN or OUT if it may load there and the source is STABLE.
 * 4. The message goes through the sender's outbox.
 * A pull from IN needs no signal, because the entry line says that the data is there.
 */
#ifndef KOLO_EXEC_LOWER_PROGRAM_H
#define KOLO_EXEC_LOWER_PROGRAM_H

#include "exec/lower/limits.h"
#include "plan/plan.h"

enum { KOLO_STAGES = 3 };

/* The abilities of a rank's link to a peer. Both ends agree on them. */
enum kolo_link_bits {
    KOLO_LINK_MAP = 1,         /* regions and outboxes are mapped both ways; else messages only */
    KOLO_LINK_PEER_IN = 2,     /* I may load from the peer's IN ... */
    KOLO_LINK_PEER_OUT = 4,    /* ... and load and store its OUT */
    KOLO_LINK_MY_IN = 8,       /* the peer may load from my IN ... */
    KOLO_LINK_MY_OUT = 16,     /* ... and load and store my OUT */
    KOLO_LINK_PEER_APART = 32, /* the peer's IN is no part of its OUT */
    KOLO_LINK_MY_APART = 64    /* my IN is no part of my OUT */
};

enum kolo_space {
    KOLO_AT_IN, /* own user memory */
    KOLO_AT_OUT,
    KOLO_AT_SCRATCH, /* own private memory, by tile */
    KOLO_AT_STAGE,   /* own private memory for messages, by tile; index is a stage chunk */
    KOLO_AT_PEER_IN, /* user memory of `rank` */
    KOLO_AT_PEER_OUT,
    KOLO_AT_OUTBOX /* outbox of `rank`, or my own; index is a place, `phase` its line */
};

struct kolo_at { /* a symbolic operand */
    uint8_t space, pad;
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
    KOLO_DO_TAKEN,  /* wait for nsrc receives; each operand's index is a request number */
    KOLO_DO_AFTER,  /* wait until this rank's `lane` has done its op `index` in this tile */
    KOLO_DO_DONE,   /* this lane has read all that it needs of this tile; its sends are complete */
    KOLO_DO_LEFT    /* wait until the ranks of the operands have finished this tile (they read my
                       memory) */
};

struct kolo_uop {
    uint8_t code, last; /* last: this op completes the reduction */
    uint16_t nsrc, ndst, count;
    int32_t peer;     /* SEND, RECV: the peer; AFTER: lane */
    uint32_t first;   /* first operand: sources, then destinations */
    uint32_t index;   /* AFTER: op of the other lane; SEND, RECV: request number */
    int32_t step;     /* plan step it came from, or -1 */
    uint32_t channel; /* SEND, RECV: messages match in order per channel */
    uint8_t lent;     /* RECV: only the transport uses its memory, from the post until TAKEN */
};

struct kolo_lane_ops {
    uint32_t begin, end;             /* ops */
    uint32_t stage[KOLO_STAGES + 1]; /* bounds of pipeline stages, nstages + 1 entries */
    int nstages;
};

struct kolo_prog {
    const struct kolo_plan *plan; /* has at least this rank's steps; outlives the program */
    int me, nlanes;
    struct kolo_uop *op;
    uint32_t nops;
    struct kolo_at *at;
    uint32_t nats;
    struct kolo_lane_ops lane[KOLO_LANES];
    uint32_t nreqs;        /* message requests */
    uint32_t stage_chunks; /* chunks of KOLO_AT_STAGE */
    int *readers;          /* ranks that read my signal lines, my entry line or my outbox */
    int nreaders;
    int *sources; /* ranks whose signal lines, entry line or outbox I read */
    int nsources;
    int *entries; /* ranks whose entry line I need first, because I use their user memory */
    int nentries;
    bool apart;            /* peers rely on it that IN is no part of OUT */
    bool uses_outbox;      /* a message goes through an outbox (mine or a peer's) */
    bool fills_outbox;     /* a message goes through my outbox */
    int depth, long_depth; /* KOLO_DEPTH, KOLO_LONG_DEPTH; tests lower them */
};

/* Lower rank `me` of `plan`. link[q] holds the bits of my link to rank q (link[me] is unused). A
 * plan with only one rank's steps lowers to outboxes and messages alone. Errors: SYSTEM. */
kolo_status kolo_lower(const struct kolo_plan *plan, int me, const uint8_t *link,
                       struct kolo_prog **out);
void kolo_prog_destroy(struct kolo_prog *prog);

#endif
