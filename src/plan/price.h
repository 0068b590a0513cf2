// SPDX-License-Identifier: Apache-2.0
/* The price of a plan: the time that it takes in a model.
 *
 * The model is alpha-beta (Hockney 1994, doi:10.1016/S0167-8191(06)80021-9) with ports and cores:
 * - A message leaves after the earlier messages of its rank. Its first byte comes latency_us later.
 * - The bytes of messages enter the receiver one message after another.
 * - Reductions and copies are serial on a core.
 * If only links have a cost, the price is exact for ring, direct, binomial and chain (tests/plan).
 */
#ifndef KOLO_PRICE_H
#define KOLO_PRICE_H

#include "plan.h"

struct kolo_link_price {
    double latency_us;  /* alpha: first byte out to first byte in */
    double us_per_byte; /* 1 / beta */
    bool by_core;       /* mapped memory: the receiver's core moves the bytes, not a NIC */
    /* By core, for links that are farther than others: the extra cost of the lines of messages that
     * a core waits for together, and of each byte, beyond step_us, us_per_byte and
     * reduce_us_per_byte. The receiver's core pays it. For bytes that the sender puts into their
     * destination, the sender's core pays. */
    double far_step_us, far_us_per_byte;
    /* Not by core: a core's time for a message, at either end, beyond step_us. */
    double message_us;
    /* Not by core: a core's time for each byte, at either end, while the message travels. */
    double copy_us_per_byte;
    /* Not by core: the extra cost of each byte of a message that is added. A message lies in
     * memory, while reduce_us_per_byte is for operands in a cache. */
    double sum_us_per_byte;
    /* Not by core: a message of so many bytes or more is sent one latency after its receive is
     * posted, or later. 0: no message waits. */
    double rendezvous_bytes;
    /* By core: links of one channel (1 to the machine's channels; 0: none) take turns in it. A
     * message of one rank to several ranks beyond a channel crosses it once. Each further receiver
     * gets it turn_us after the one before. */
    int channel;
    double channel_us_per_byte, turn_us;
};

struct kolo_machine {
    struct kolo_link_price link; /* of every pair, unless link_of is set */
    void (*link_of)(const void *ctx, int from, int to, struct kolo_link_price *out);
    /* Links not by core: the port (below the number of ranks) by which a rank sends and receives.
     * NULL: each rank has its own. */
    int (*port_of)(const void *ctx, int rank);
    const void *ctx;
    double copy_us_per_byte;   /* COPY */
    double reduce_us_per_byte; /* REDUCE and RECV_REDUCE, beyond the link's */
    double step_us;            /* a core's time for every SEND and receive */
    double local_step_us;      /* and for COPY and REDUCE, beside their bytes */
    double stage_us_per_byte;  /* not by core: a copy to or from where a message waits */
    double joined_us_per_byte; /* by core: a copy into the outbox of what the step before wrote */
    double switch_us;          /* a switch to a rank that waited while its core was shared */
    int cores;                 /* rank r computes on core r mod cores; 0: each rank has its own */
    int channels;              /* numbered from 1 */
    /* Links by core are lowered as for private memory. The sender's core copies into its outbox,
     * once for all receivers of a place. A lane's consecutive additions into one slice are one
     * pass. Each further source of a pass costs only reduce_us_per_byte, and the copy of its result
     * out of SCRATCH is free. */
    bool outboxes;
    bool whole_passes; /* with outboxes: a pass begins when all its sources are there */
    /* With outboxes: all user memory is mapped. Every rank has told the others so; that round of
     * flags is not counted. A message then travels as exec lowers it: its receiver takes it from
     * its source (STABLE; from IN at once), or its sender puts it into its destination (FRESH). */
    bool mapped;
};

struct kolo_hop { /* a step of the critical path, first to last */
    int rank, step, tile;
    double end_us;
};

struct kolo_price {
    double total_us;
    double tile_us;     /* time of one more tile in the steady state; 0 for one tile */
    double work_us;     /* work of the busiest core, over all tiles; waiting is no work */
    size_t bytes_moved; /* the most that a rank sends or receives, over all tiles */
    size_t piece_bytes; /* of a chunk, in a tile */
    int tiles;
    int messages; /* on the critical path of the tiles that were walked */
    int hops;
    struct kolo_hop *hop; /* the critical path, or NULL without `path`; kolo_price_free() */
};

#define KOLO_TILE_BYTES ((size_t)256 << 10)

/* Price a whole plan for `bytes` per rank (as in struct kolo_query), cut into tiles of `tile_bytes`
 * (0: KOLO_TILE_BYTES) over all chunks. The walk covers up to 6 tiles with 4 slots a link. Further
 * tiles continue the steady state. `path`: record the critical path too. Errors: INVALID (the plan
 * does not walk), SYSTEM. */
KOLO_CHECK kolo_status kolo_price_plan(const struct kolo_plan *plan, size_t bytes,
                                       size_t tile_bytes, const struct kolo_machine *machine,
                                       bool path, struct kolo_price *out);
void kolo_price_free(struct kolo_price *price);

#endif
