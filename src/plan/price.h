// SPDX-License-Identifier: Apache-2.0
/* What a plan costs: seconds for symbols.
 *
 * The model is alpha-beta (Hockney 1994, doi:10.1016/S0167-8191(06)80021-9) with ports and cores: a
 * message of S bytes leaves after those its rank sent before it, its first byte comes latency_us
 * later, its bytes enter the receiver one message after another; reductions and copies are serial
 * on a core. Exact for ring, direct, binomial and chain where nothing but links costs; see
 * tests/plan.
 */
#ifndef KOLO_PRICE_H
#define KOLO_PRICE_H

#include "plan.h"

struct kolo_link_price {
    double latency_us;  /* alpha: first byte out to first byte in */
    double us_per_byte; /* 1 / beta */
    bool by_core;       /* mapped memory: the receiver's core moves the bytes, not a NIC */
    /* By core, and farther than others: what the lines of messages that are waited for together,
     * and each byte, cost the receiver's core (bytes that are put where they shall be: the
     * sender's) beyond step_us, us_per_byte and reduce_us_per_byte. */
    double far_step_us, far_us_per_byte;
    /* By core: links of one channel (1 to the machine's channels; 0: none) take turns in it. What
     * one rank sends to several beyond a channel crosses it once, and is then there for each of the
     * others turn_us after the one before. */
    int channel;
    double channel_us_per_byte, turn_us;
};

struct kolo_machine {
    struct kolo_link_price link; /* of every pair, unless link_of is set */
    void (*link_of)(const void *ctx, int from, int to, struct kolo_link_price *out);
    /* Links not by core: the port (below the number of ranks) that a rank sends and receives by;
     * NULL: each has its own. */
    int (*port_of)(const void *ctx, int rank);
    const void *ctx;
    double copy_us_per_byte;   /* COPY */
    double reduce_us_per_byte; /* REDUCE and RECV_REDUCE, beyond the link's */
    double step_us;            /* of a core, for every step */
    double switch_us;          /* to a rank that waited while its core was shared */
    int cores;                 /* rank r computes on core r mod cores; 0: each rank has its own */
    int channels;              /* numbered from 1 */
    /* Links by core are lowered as for private memory: the sender's core copies into its outbox,
     * once for all receivers of a place; what a lane adds to one slice in consecutive steps is one
     * pass, in which each further source costs reduce_us_per_byte alone, and whose result is copied
     * out of SCRATCH for nothing. */
    bool outboxes;
    /* With outboxes: all user memory is mapped, which every rank has told every other (that round
     * of flags is not counted), so that a message goes as exec lowers it then: its
     * receiver takes it from where it is (STABLE; from IN at once), or its sender puts it where it
     * shall be (FRESH). */
    bool mapped;
};

struct kolo_hop { /* a step of the critical path, first to last */
    int rank, step, tile;
    double end_us;
};

struct kolo_price {
    double total_us;
    double tile_us;     /* of one more tile in the steady state; 0 for one tile */
    double work_us;     /* of the core that works most, over all tiles; waiting is no work */
    size_t bytes_moved; /* the most that a rank sends or receives, over all tiles */
    size_t piece_bytes; /* of a chunk, in a tile */
    int tiles;
    int messages; /* on the critical path of the tiles that were walked */
    int hops;
    struct kolo_hop *hop; /* the critical path; NULL unless asked for; kolo_price_free() */
};

#define KOLO_TILE_BYTES ((size_t)256 << 10)

/* Price a whole plan for `bytes` per rank (as in struct kolo_query), cut into tiles of `tile_bytes`
 * (0: KOLO_TILE_BYTES) over all chunks. Up to 6 tiles are walked with 4 slots a link; more continue
 * the steady state. `path`: record the critical path too. Errors: INVALID (it does not walk),
 * SYSTEM. */
KOLO_CHECK kolo_status kolo_price_plan(const struct kolo_plan *plan, size_t bytes,
                                       size_t tile_bytes, const struct kolo_machine *machine,
                                       bool path, struct kolo_price *out);
void kolo_price_free(struct kolo_price *price);

#endif
