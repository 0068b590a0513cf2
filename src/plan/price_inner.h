// SPDX-License-Identifier: Apache-2.0
/* The state of a walk that is priced: the end of each step, and what is busy until when. */
#ifndef KOLO_PLAN_PRICE_INNER_H
#define KOLO_PLAN_PRICE_INNER_H

#include "plan/price.h"
#include "plan/walk.h"

enum { KOLO_PRICE_TILES = 6, KOLO_PRICE_SLOTS = 4 }; /* tiles that are walked; slots of a link */

struct kolo_price_moment { /* the end of one step of one tile */
    double end_us;
    double arrives_us; /* of a SEND: by core the first byte, else the last */
    int cause;         /* the moment that it waited for last, or -1 */
};

struct kolo_price_resource { /* a lane or a core: busy until the end of a moment */
    double free_us;
    double work_us; /* of a core */
    int last;
};

struct kolo_price_pass { /* that more sources will join */
    int count;           /* of sources so far */
    int last;            /* the moment that sent the one that arrives last */
    double first_us;     /* the first one arrives */
    double wait_us, us;  /* work of waiting for them, and of the pass itself */
    double newest_us;    /* of waiting for the newest one */
};

struct kolo_price_newest { /* step of a lane, as far as the next one may join it */
    const struct kolo_step *step;
    int tile;
    double begun_us;        /* the lane began the tile */
    bool waited;            /* and nothing was sent since */
    double far_us;          /* that these waits took longer, as their lines came from far */
    double sum_us_per_byte; /* of the link of the lane's newest message */
    struct kolo_price_pass pass;
    int planned; /* so many messages of the lane that come next share the port already */
};

struct kolo_pricer {
    const struct kolo_plan *plan;
    const struct kolo_machine *machine;
    const struct kolo_order *order;
    size_t bytes, chunk_bytes; /* of the whole call, per rank */
    int tiles;
    bool flat;
    struct kolo_price_moment *moment; /* [walked * steps] */
    struct kolo_price_resource *lane, *core;
    struct kolo_price_newest *newest; /* [nranks * lanes] */
    double *out_port, *in_port;       /* [nranks]: free from then on */
    double *busy;                     /* [2 * nranks]: how long they were used, out and in */
    double *channel;                  /* [channels]: free from then on */
    double *crossed; /* [nranks * channels]: what a rank sent last through a channel */
    double *there;   /* and when the next reader beyond it can have that */
    double *sent;    /* [nranks]: bytes, over all tiles walked */
    double *received;
    double tile_end_us[KOLO_PRICE_TILES];
    int last; /* the moment that ends last */
};

struct kolo_price_flow {              /* of a message through its sender's port */
    double begin_us, left_us, end_us; /* end_us < 0: not yet */
};

/* Find the ends of flows that begin one after another, on a port that is free from free_us on. */
void kolo_price_share_port(struct kolo_price_flow *flow, int count, double free_us);

/* How the message of a SEND or a receive travels by core: through the sender's outbox, from its source
 * or from IN, which is there when the call begins, or put into its destination by the sender. */
enum kolo_price_way { KOLO_BY_OUTBOX, KOLO_BY_PULL, KOLO_FROM_IN, KOLO_BY_PUSH };
enum kolo_price_way kolo_price_way(const struct kolo_pricer *p, const struct kolo_event *e);

/* A callback of the walk: the end of one step. `ctx` is a struct kolo_pricer. */
kolo_status kolo_price_step(void *ctx, const struct kolo_event *e);

#endif
