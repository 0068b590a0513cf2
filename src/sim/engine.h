// SPDX-License-Identifier: Apache-2.0
/* State of a simulation. engine.c runs lanes, wire.c moves messages, run.c opens and ends it.
 *
 * Ranks tell each other facts: a line was signalled, a message has left, a tile is done. A fact is
 * a time; INFINITY: not yet. A lane that needs a fact which is not there waits in the list of the
 * rank that will tell it.
 *
 * A rank with one lane and a core of its own goes on by itself until it needs a fact that is not
 * there: nobody else changes what its ops take. Other lanes take turns on the core in the order of
 * time, by events.
 */
#ifndef KOLO_SIM_ENGINE_H
#define KOLO_SIM_ENGINE_H

#include "sim/events.h"
#include "sim/flows.h"
#include "sim/sim.h"

struct kolo_sim_lane {
    int rank;
    uint32_t iter, slot, pc, tile; /* tile: the first that this lane has not done */
    bool begun, finished;
    bool parked;      /* it waits in a rank's list */
    bool met, worked; /* the op: all that it waits for is there; it had the core */
    uint32_t sub;     /* operands of the op that are known */
    double now_us;    /* the lane has done all before pc by then */
    double before_us; /* and all before the op at pc */
    double ready_us;  /* of the op at pc, so far */
    size_t wants;     /* the fact that it waits for in a rank's list; PROGRESS: any of its lanes */
    int next_waiter;  /* in this list, or -1 */
    int last, cause;  /* moments: the newest of the lane; what the op waited for last */
    double latency_us, wire_us; /* from the cause to this lane: see struct kolo_sim_moment */
};

#define KOLO_SIM_PROGRESS SIZE_MAX

/* A rank keeps its core until it waits for a fact that is not there. */
struct kolo_sim_core {
    double free_us, work_us;
    int owner, last_rank; /* or -1 */
    int first, last;      /* lanes that wait for the core, or -1 */
};

/* A NIC works on so many messages at a time, in turns; others wait in its queue. */
enum { KOLO_SIM_NIC_MESSAGES = 16 };

struct kolo_sim_nic {
    double free_us;  /* its gap after the newest message ends */
    int working;     /* messages that it sends now */
    int first, last; /* of its queue, or -1 */
};

struct kolo_sim_message {
    int from, to; /* ranks */
    uint32_t request, tile;
    double bytes;
    double copied_us; /* the sender's core has given all bytes */
    uint32_t connection;
    int next;   /* of the connection, or -1 */
    int behind; /* in the NIC's queue, or -1 */
    int flow;
};

struct kolo_sim {
    const struct kolo_sim_options *options;
    const struct kolo_sim_machine *machine;
    const struct kolo_costs *costs; /* those of the model: copies may take longer on shared cores */
    struct kolo_sim_place place;
    struct kolo_sim_set set;
    int n;     /* ranks that are simulated; they stand for all */
    int lanes; /* of a rank, at most */
    uint32_t tiles;
    double now_us;
    struct kolo_sim_lane *lane; /* [n * lanes] */
    struct kolo_sim_core *core; /* [n] or cores of all hosts */
    struct kolo_sim_nic *nic;   /* [nnics] */
    int nnics;                  /* host by host */
    size_t *fact_first;         /* [n] */
    double *fact;
    int *by;         /* the moments that told the facts, or NULL */
    int *waiters;    /* [n]: first lane of the rank's list, or -1 */
    int *connection; /* for each partner of each rank: newest message under way, or -1 */
    struct kolo_sim_message *message;
    int nmessages, message_cap, unused;
    int *ready; /* lanes that may go on now */
    int nready, ready_cap;
    struct kolo_sim_events events;
    struct kolo_sim_flows flows;
    size_t nevents;
    struct kolo_sim_moment *moment;
    int nmoments, moment_cap;
    bool failed; /* out of memory */
};

static inline const struct kolo_sim_prog *kolo_sim_prog_at(const struct kolo_sim *s, int rank)
{
    return s->set.prog[s->set.member[rank].prog];
}

/* ---- facts: for each tile the lines, the requests, and the tile's end ---- */

static inline size_t kolo_sim_fact(const struct kolo_sim *s, int rank, uint32_t tile, uint32_t at)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, rank);
    return s->fact_first[rank] + (size_t)tile * (size_t)(p->nphases + p->nreqs + 1) + at;
}
static inline size_t kolo_sim_line_fact(const struct kolo_sim *s, int rank, uint32_t tile,
                                        uint32_t phase)
{
    return kolo_sim_fact(s, rank, tile, phase);
}
static inline size_t kolo_sim_sent_fact(const struct kolo_sim *s, int rank, uint32_t tile,
                                        uint32_t request)
{
    return kolo_sim_fact(s, rank, tile, (uint32_t)kolo_sim_prog_at(s, rank)->nphases + request);
}
static inline size_t kolo_sim_done_fact(const struct kolo_sim *s, int rank, uint32_t tile)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, rank);
    return kolo_sim_fact(s, rank, tile, (uint32_t)(p->nphases + p->nreqs));
}

/* Of a receive: when it was posted. */
static inline size_t kolo_sim_posted_fact(const struct kolo_sim *s, int rank, uint32_t tile,
                                          uint32_t request)
{
    return kolo_sim_sent_fact(s, rank, tile, request);
}

/* Tell a fact of `rank`, and let the lanes that wait for the rank look again. `moment`: what told
 * it, or -1. */
void kolo_sim_tell(struct kolo_sim *s, int rank, size_t fact, double us, int moment);

/* The real partner `peer` of a rank, and the simulated rank that stands for it. */
static inline int kolo_sim_partner(const struct kolo_sim *s, int rank, int peer)
{
    return s->set.peer[s->set.member[rank].peer + (uint32_t)peer];
}
static inline int kolo_sim_stand_in(const struct kolo_sim *s, int partner)
{
    return partner % s->n;
}

/* Run all lanes to their ends. Errors: INVALID (all wait for ever), SYSTEM. */
KOLO_CHECK kolo_status kolo_sim_engine(struct kolo_sim *s);

/* ---- wire.c ---- */

bool kolo_sim_wire_open(struct kolo_sim *s);
/* A message of this op: its first byte may leave `rank` at first_us, its last one at copied_us. */
void kolo_sim_wire_send(struct kolo_sim *s, int rank, const struct kolo_sim_op *op, uint32_t tile,
                        double first_us, double copied_us);
void kolo_sim_wire_leave(struct kolo_sim *s, const struct kolo_sim_event *event);
void kolo_sim_wire_end(struct kolo_sim *s, const struct kolo_sim_event *event);
/* Find the rates of flows before time goes on. */
void kolo_sim_wire_settle(struct kolo_sim *s);
/* From the last byte out to the last byte in, of a message of `bytes`; and from the first byte out to
 * the last byte out, if no other message uses the links. */
double kolo_sim_wire_latency(const struct kolo_sim *s, int from, int to, uint64_t bytes);
double kolo_sim_wire_alone(const struct kolo_sim *s, int from, int to, uint64_t bytes);
/* From the post of a receive to its message, if this one waits for the receive; else 0. */
double kolo_sim_posted_us(const struct kolo_sim *s, int from, int to, uint64_t bytes);

#endif
