// SPDX-License-Identifier: Apache-2.0
/* Processor times of ops, from the costs that kolo measures on a machine. Bytes and lines of a far
 * rank cost more. */
#include "sim/cost.h"

#include <math.h>
#include <stdlib.h>

struct kolo_sim_core *kolo_sim_core_of(const struct kolo_sim *s, int rank)
{
    const int cores = s->place.cores, per_host = s->place.per_host;
    return &s->core[cores > 0 ? rank / per_host * cores + rank % per_host % cores : rank];
}

/* A copy of other ranks' bytes, or into their memory, costs a copy; one of the core's own bytes less.
 * Each further source is an addition; reduce_us_per_byte holds the way of an operand from another
 * core. What a message brought lies in memory, so that an addition takes net_sum_us_per_byte more.
 * Each further destination, or that of a sum, is a store of bytes that are at hand. The lines
 * of a short slot still lie in its readers' caches, so a store there waits for them
 * (exec/cpu/bind.c tells more). */
static double move_us(const struct kolo_sim *s, int rank, const struct kolo_sim_op *op,
                      uint32_t tile)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, rank);
    const double copy = s->costs->copy_us_per_byte, local = s->machine->local_us_per_byte;
    const int stores = op->nsrc > 1 || op->ndst == 0 ? op->ndst : op->ndst - 1;
    double each = op->nsrc > 1    ? s->costs->reduce_us_per_byte * (op->nsrc - 1)
                  : op->nrefs > 0 ? copy
                                  : local;
    each += local * stores + (s->set.in_long ? 0 : copy * op->outs);
    each += op->nsrc > 1 ? s->costs->net_sum_us_per_byte * op->came : 0;
    for (int i = 0; i < op->nrefs; i++) {
        struct kolo_link_price link;
        kolo_sim_near_link(&s->place, kolo_sim_partner(s, rank, p->ref[op->ref + (uint32_t)i].peer),
                           rank, &link);
        each += link.far_us_per_byte;
    }
    return each * (double)kolo_sim_op_bytes(s, op, tile);
}

/* Lines that are waited for together come together: of several far ones the farthest counts. */
static double wait_us(const struct kolo_sim *s, int rank, const struct kolo_sim_op *op)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, rank);
    double far_us = 0;
    for (int i = 0; i < op->nrefs; i++) {
        struct kolo_link_price link;
        kolo_sim_near_link(&s->place, kolo_sim_partner(s, rank, p->ref[op->ref + (uint32_t)i].peer),
                           rank, &link);
        far_us = link.far_step_us > far_us ? link.far_step_us : far_us;
    }
    return op->nrefs * s->costs->step_us + far_us;
}

/* A core's time to take so many bytes of a message. */
static double take_us(const struct kolo_sim *s, int rank, uint64_t bytes)
{
    const struct kolo_sim_machine *m = s->machine;
    const double us = s->costs->net_message_us + (double)bytes * s->costs->net_copy_us_per_byte;
    return us * (rank == m->slow_rank ? m->slow_factor : 1);
}

static double taken_us(const struct kolo_sim *s, int rank, const struct kolo_sim_op *op,
                       uint32_t tile)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, rank);
    double us = 0;
    for (int i = 0; i < op->nrefs; i++) {
        us +=
            take_us(s, rank, kolo_sim_taken_bytes(s, p, p->ref[op->ref + (uint32_t)i].what, tile));
    }
    return us;
}

/* Uniform in (0, 1). */
static double uniform(const uint64_t key[4])
{
    return ((double)(kolo_hash(0, key, 4 * sizeof *key) >> 11) + 0.5) / (double)(1ull << 53);
}

/* Log-normal with median 1, of seed, rank, op and tile alone: the order of events plays no part. */
static double noise_of(const struct kolo_sim *s, int rank, uint32_t pc, uint32_t tile)
{
    const uint64_t place = (uint64_t)pc << 32 | tile;
    const uint64_t one[4] = {s->options->seed, (uint64_t)rank, place, 0};
    const uint64_t two[4] = {s->options->seed, (uint64_t)rank, place, 1};
    const double turn = 2 * acos(-1.0) * uniform(two);
    return exp(s->machine->noise * sqrt(-2 * log(uniform(one))) * cos(turn));
}

double kolo_sim_work(const struct kolo_sim *s, int rank, uint32_t pc, const struct kolo_sim_op *op,
                     uint32_t tile)
{
    const struct kolo_sim_machine *m = s->machine;
    double us = 0;
    switch ((enum kolo_code)op->code) {
    case KOLO_DO_MOVE:
        us = move_us(s, rank, op, tile);
        break;
    case KOLO_DO_WAIT:
        us = wait_us(s, rank, op);
        break;
    case KOLO_DO_SIGNAL:
        us = s->costs->step_us;
        break;
    case KOLO_DO_SEND:
        us = s->costs->net_message_us +
             (double)kolo_sim_op_bytes(s, op, tile) * s->costs->net_copy_us_per_byte;
        break;
    case KOLO_DO_TAKEN:
        us = taken_us(s, rank, op, tile);
        return m->noise > 0 ? us * noise_of(s, rank, pc, tile) : us;
    default:
        return 0;
    }
    us *= rank == m->slow_rank ? m->slow_factor : 1;
    return m->noise > 0 ? us * noise_of(s, rank, pc, tile) : us;
}

/* A core takes the bytes of a message as they come, in parts. */
enum { PART_BYTES = 16 << 10 };

struct came {                /* a message */
    double first_us, us;     /* its first part and its last one are there */
    double take_us, last_us; /* to take all of it, and its last part */
};

static int compare_came(const void *a, const void *b)
{
    const struct came *left = a, *right = b;
    return (left->us > right->us) - (left->us < right->us);
}

static struct came came_of(const struct kolo_sim *s, const struct kolo_sim_lane *l,
                           const struct kolo_sim_ref *ref, uint32_t tile)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, l->rank);
    const int partner = kolo_sim_partner(s, l->rank, ref->peer);
    const int rank = kolo_sim_stand_in(s, partner);
    const int32_t request = s->set.source[s->set.member[l->rank].source + ref->what];
    const uint64_t bytes = kolo_sim_taken_bytes(s, p, ref->what, tile);
    const uint64_t part = bytes < PART_BYTES ? bytes : PART_BYTES;
    const double sent_us = s->fact[kolo_sim_sent_fact(s, rank, tile, (uint32_t)request)] +
                           kolo_sim_wire_latency(s, partner, l->rank, bytes);
    const double posted_us = s->fact[kolo_sim_posted_fact(s, l->rank, tile, ref->what)] +
                             kolo_sim_posted_us(s, partner, l->rank, bytes);
    const double us = fmax(sent_us, posted_us);
    const double wire_us = fmax(kolo_sim_wire_alone(s, partner, l->rank, bytes - part),
                                (double)(bytes - part) * s->costs->net_copy_us_per_byte);
    return (struct came){.first_us = us - wire_us,
                         .us = us,
                         .take_us = take_us(s, l->rank, bytes),
                         .last_us = take_us(s, l->rank, part)};
}

double kolo_sim_part_left(const struct kolo_sim *s, const struct kolo_sim_lane *l,
                          const struct kolo_sim_op *op, uint32_t tile)
{
    struct came came[512];
    double us = l->before_us, all_us = 0;
    if (op->nrefs > KOLO_LENGTH(came)) {
        return 1;
    }
    for (uint32_t i = 0; i < op->nrefs; i++) {
        came[i] = came_of(s, l, &kolo_sim_prog_at(s, l->rank)->ref[op->ref + i], tile);
        all_us += came[i].take_us;
    }
    qsort(came, op->nrefs, sizeof *came, compare_came);
    for (uint32_t i = 0; i < op->nrefs; i++) {
        us = fmax(fmax(came[i].first_us, us) + came[i].take_us, came[i].us + came[i].last_us);
    }
    const double part = all_us > 0 ? (us - l->ready_us) / all_us : 1;
    return part < 1 ? part : 1;
}
