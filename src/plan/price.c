// SPDX-License-Identifier: Apache-2.0
/* Seconds along a walk.
 *
 * Each step becomes an event with an end and the event that it waited for last; following these
 * from the last end is the critical path. The walk goes round-robin over the lanes, which is close
 * to the order of time, so ports and cores are given to events in that order.
 */
#include "plan/price.h"

#include "plan/price_inner.h"

#include <stdlib.h>
#include <string.h>

/* ---- the result ---- */

static int rank_of(const struct kolo_order *o, int number)
{
    int low = 0;
    int high = o->plan->shape.nranks;
    while (high - low > 1) { /* base[low] <= number < base[high] */
        const int middle = (low + high) / 2;
        *(o->base[middle] <= number ? &low : &high) = middle;
    }
    return low;
}

/* From the last moment back along the causes; the first time counts, the second writes. */
static void follow_path(const struct kolo_pricer *p, struct kolo_price *out)
{
    const struct kolo_order *o = p->order;
    int left = out->hops;
    int rank_after = -1;
    for (int at = p->last; at >= 0; at = p->moment[at].cause) {
        const int number = at % o->steps;
        const int rank = rank_of(o, number);
        if (out->hop != NULL) {
            out->hop[--left] = (struct kolo_hop){rank, number - o->base[rank], at / o->steps,
                                                 p->moment[at].end_us};
            continue;
        }
        out->hops++;
        out->messages += rank_after >= 0 && rank_after != rank &&
                         p->plan->rank[rank].step[number - o->base[rank]].op == KOLO_SEND;
        rank_after = rank;
    }
}

static double busiest_us(const struct kolo_pricer *p)
{
    double most = 0;
    for (int i = 0; i < 2 * p->plan->shape.nranks; i++) {
        most = p->busy[i] > most ? p->busy[i] : most;
    }
    return most;
}

static kolo_status summarise(const struct kolo_pricer *p, int walked, bool path,
                             struct kolo_price *out)
{
    double most = 0;
    assert(p->sent != NULL && p->received != NULL);
    for (int r = 0; r < p->plan->shape.nranks; r++) {
        most = p->sent[r] > most ? p->sent[r] : most;
        most = p->received[r] > most ? p->received[r] : most;
    }
    *out = (struct kolo_price){.tiles = p->tiles,
                               .bytes_moved = (size_t)(most / walked * p->tiles + 0.5),
                               .piece_bytes =
                                   (p->chunk_bytes + (size_t)p->tiles - 1) / (size_t)p->tiles};
    if (p->last < 0) { /* no steps: one rank may have nothing to do */
        return KOLO_OK;
    }
    out->total_us = p->moment[p->last].end_us;
    if (walked >
        1) { /* slots come round every KOLO_PRICE_SLOTS tiles, SCRATCH and drift every two */
        const int back = walked - 1 < KOLO_PRICE_SLOTS ? walked - 1 : KOLO_PRICE_SLOTS;
        out->tile_us = (p->tile_end_us[walked - 1] - p->tile_end_us[walked - 1 - back]) / back;
        /* Ranks that share a port may run ahead by the tiles walked, but not for long. */
        const double port_us = busiest_us(p) / walked;
        out->tile_us = port_us > out->tile_us ? port_us : out->tile_us;
        out->total_us += out->tile_us * (p->tiles - walked);
    }
    for (int r = 0; r < p->plan->shape.nranks; r++) {
        const double work_us = p->core[r].work_us / walked * p->tiles;
        out->work_us = work_us > out->work_us ? work_us : out->work_us;
    }
    follow_path(p, out);
    if (path) {
        out->hop = malloc((size_t)out->hops * sizeof *out->hop);
        if (out->hop == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", p->plan->algo->base.name);
        }
        follow_path(p, out);
    }
    out->hops = path ? out->hops : 0;
    return KOLO_OK;
}

/* ---- binding and running ---- */

static void bind_bytes(struct kolo_pricer *p, size_t tile_bytes)
{
    const struct kolo_plan *plan = p->plan;
    size_t chunks = 1;
    for (int b = KOLO_IN; b <= KOLO_OUT; b++) { /* the root has the largest buffers */
        const int here = kolo_plan_buf_chunks(plan, plan->shape.root, (enum kolo_buf)b);
        chunks = kolo_max(chunks, (size_t)here);
    }
    p->flat = kolo_coll_flat(plan->shape.coll);
    p->chunk_bytes = p->bytes;
    if (p->flat) {
        p->chunk_bytes = kolo_round_up((p->bytes + chunks - 1) / chunks, 64);
    }
    const size_t piece = kolo_max(tile_bytes / chunks / 64 * 64, 64);
    p->tiles = (int)kolo_max((p->chunk_bytes + piece - 1) / piece, 1);
}

static bool pricer_alloc(struct kolo_pricer *p, int walked, void **moments, void **rest)
{
    const size_t n = (size_t)p->plan->shape.nranks;
    const size_t lanes = n * (size_t)p->plan->lanes;
    const size_t resources = lanes + n;
    const size_t channels = (size_t)p->machine->channels;
    const size_t fixed = 6 * n + channels + 2 * n * channels;
    p->moment = malloc(((size_t)walked * (size_t)p->order->steps + 1) * sizeof *p->moment);
    p->lane =
        malloc(resources * sizeof *p->lane + lanes * sizeof *p->newest + fixed * sizeof(double));
    *moments = p->moment;
    *rest = p->lane;
    if (p->moment == NULL || p->lane == NULL) {
        return false;
    }
    p->core = p->lane + lanes;
    p->newest = (struct kolo_price_newest *)(p->core + n);
    p->sent = (double *)(p->newest + lanes);
    p->received = p->sent + n;
    p->out_port = p->received + n;
    p->in_port = p->out_port + n;
    p->busy = p->in_port + n;
    p->channel = p->busy + 2 * n;
    p->crossed = p->channel + channels;
    p->there = p->crossed + n * channels;
    for (size_t i = 0; i < resources; i++) {
        p->lane[i] = (struct kolo_price_resource){0, 0, -1};
    }
    memset(p->newest, 0, lanes * sizeof *p->newest);
    memset(p->sent, 0, fixed * sizeof *p->sent);
    return true;
}

kolo_status kolo_price_plan(const struct kolo_plan *plan, size_t bytes, size_t tile_bytes,
                            const struct kolo_machine *machine, bool path, struct kolo_price *out)
{
    static const struct kolo_visitor visitor = {kolo_price_step};
    struct kolo_order order;
    struct kolo_pricer p = {
        .plan = plan, .machine = machine, .order = &order, .bytes = bytes, .last = -1};
    void *moments = NULL;
    void *rest = NULL;
    KOLO_TRY(kolo_order_create(plan, &order));
    bind_bytes(&p, tile_bytes > 0 ? tile_bytes : KOLO_TILE_BYTES);
    const int walked = p.tiles < KOLO_PRICE_TILES ? p.tiles : KOLO_PRICE_TILES;
    kolo_status status = KOLO_OK;
    struct kolo_price price = {0};
    if (!pricer_alloc(&p, walked, &moments, &rest)) {
        status = kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", plan->algo->base.name);
    } else {
        status = kolo_order_walk(&order, walked, KOLO_PRICE_SLOTS, &visitor, &p);
    }
    if (status == KOLO_OK) {
        status = summarise(&p, walked, path, &price);
    }
    free(moments);
    free(rest);
    kolo_order_destroy(&order);
    if (status == KOLO_OK) {
        *out = price;
    }
    return status;
}

void kolo_price_free(struct kolo_price *price)
{
    if (price != NULL) {
        free(price->hop);
        price->hop = NULL;
        price->hops = 0;
    }
}
