// SPDX-License-Identifier: Apache-2.0
/* Max-min rates by filling: the link that can give its flows the least fixes their rates; then the
 * others share what is left. */
#include "sim/flows.h"

#include "util/grow.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

bool kolo_sim_flows_open(struct kolo_sim_flows *flows, int nlinks)
{
    *flows = (struct kolo_sim_flows){.nlinks = nlinks, .unused = -1};
    flows->link = calloc((size_t)nlinks + 1, sizeof *flows->link);
    flows->links = calloc((size_t)nlinks + 1, sizeof *flows->links);
    for (int i = 0; flows->link != NULL && i < nlinks; i++) {
        flows->link[i].first = -1;
    }
    return flows->link != NULL && flows->links != NULL;
}

void kolo_sim_flows_close(struct kolo_sim_flows *flows)
{
    free(flows->link);
    free(flows->links);
    free(flows->flow);
    free(flows->part);
    free(flows->dirty);
}

/* ---- which flow is on which link ---- */

static int slot_of(const struct kolo_sim_flow *f, int link)
{
    int slot = 0;
    while (f->link[slot] != link) {
        slot++;
    }
    return slot;
}

static void mark_dirty(struct kolo_sim_flows *flows, int link)
{
    int *grown = kolo_grow(flows->dirty, flows->ndirty, &flows->dirty_cap, sizeof *grown);
    if (grown == NULL) {
        flows->failed = true;
        return;
    }
    flows->dirty = grown;
    flows->dirty[flows->ndirty++] = link;
}

static void join_link(struct kolo_sim_flows *flows, int flow, int slot)
{
    struct kolo_sim_flow *f = &flows->flow[flow];
    struct kolo_sim_link *l = &flows->link[f->link[slot]];
    f->next[slot] = l->first;
    f->before[slot] = -1;
    if (l->first >= 0) {
        struct kolo_sim_flow *other = &flows->flow[l->first];
        other->before[slot_of(other, f->link[slot])] = flow;
    }
    l->first = flow;
    l->count++;
    mark_dirty(flows, f->link[slot]);
}

static void leave_link(struct kolo_sim_flows *flows, int flow, int slot)
{
    struct kolo_sim_flow *f = &flows->flow[flow];
    const int link = f->link[slot];
    struct kolo_sim_link *l = &flows->link[link];
    if (f->before[slot] >= 0) {
        struct kolo_sim_flow *other = &flows->flow[f->before[slot]];
        other->next[slot_of(other, link)] = f->next[slot];
    } else {
        l->first = f->next[slot];
    }
    if (f->next[slot] >= 0) {
        struct kolo_sim_flow *other = &flows->flow[f->next[slot]];
        other->before[slot_of(other, link)] = f->before[slot];
    }
    if (--l->count > 0) {
        mark_dirty(flows, link);
    }
}

static int take_flow(struct kolo_sim_flows *flows)
{
    if (flows->unused >= 0) {
        const int flow = flows->unused;
        flows->unused = flows->flow[flow].message;
        return flow;
    }
    struct kolo_sim_flow *grown = kolo_grow(flows->flow, flows->nflows, &flows->cap, sizeof *grown);
    if (grown == NULL) {
        return -1;
    }
    flows->flow = grown;
    flows->flow[flows->nflows] = (struct kolo_sim_flow){0};
    return flows->nflows++;
}

int kolo_sim_flow_begin(struct kolo_sim_flows *flows, const int link[KOLO_SIM_FLOW_LINKS],
                        double bytes, double now_us)
{
    const int flow = take_flow(flows);
    if (flow < 0) {
        flows->failed = true;
        return -1;
    }
    struct kolo_sim_flow *f = &flows->flow[flow];
    const uint32_t version = f->version + 1, mark = f->mark;
    *f = (struct kolo_sim_flow){
        .left = bytes, .since_us = now_us, .version = version, .mark = mark, .end_us = INFINITY};
    for (int i = 0; i < KOLO_SIM_FLOW_LINKS; i++) {
        f->link[i] = link[i];
        if (link[i] >= 0) {
            join_link(flows, flow, i);
            flows->link[link[i]].bytes += bytes;
        }
    }
    return flow;
}

void kolo_sim_flow_end(struct kolo_sim_flows *flows, int flow)
{
    struct kolo_sim_flow *f = &flows->flow[flow];
    for (int i = 0; i < KOLO_SIM_FLOW_LINKS; i++) {
        if (f->link[i] >= 0) {
            leave_link(flows, flow, i);
        }
    }
    f->version++;
    f->message = flows->unused;
    flows->unused = flow;
}

/* ---- rates ---- */

static void add_link(struct kolo_sim_flows *flows, int link)
{
    struct kolo_sim_link *l = &flows->link[link];
    if (l->mark != flows->mark) {
        l->mark = flows->mark;
        l->free = l->rate > 0 ? l->rate : INFINITY;
        l->open = l->count;
        flows->links[flows->nfound++] = link;
    }
}

/* Find all flows and links that share with `link`. */
static void find_part(struct kolo_sim_flows *flows, int link)
{
    flows->nparts = flows->nfound = 0;
    add_link(flows, link);
    for (int i = 0; i < flows->nfound; i++) {
        const int at = flows->links[i];
        for (int flow = flows->link[at].first; flow >= 0;) {
            struct kolo_sim_flow *f = &flows->flow[flow];
            if (f->mark != flows->mark) {
                f->mark = flows->mark;
                int *grown = kolo_grow(flows->part, flows->nparts, &flows->part_cap, sizeof *grown);
                if (grown == NULL) {
                    flows->failed = true;
                    return;
                }
                flows->part = grown;
                flows->part[flows->nparts++] = flow;
                for (int k = 0; k < KOLO_SIM_FLOW_LINKS; k++) {
                    if (f->link[k] >= 0) {
                        add_link(flows, f->link[k]);
                    }
                }
            }
            flow = f->next[slot_of(f, at)];
        }
    }
}

/* The least that a link with open flows can give each of them. */
static double least_share(const struct kolo_sim_flows *flows)
{
    double least = INFINITY;
    for (int i = 0; i < flows->nfound; i++) {
        const struct kolo_sim_link *l = &flows->link[flows->links[i]];
        if (l->open > 0 && l->free / l->open < least) {
            least = l->free / l->open;
        }
    }
    return least;
}

static void set_rate(struct kolo_sim_flows *flows, struct kolo_sim_flow *f, double rate)
{
    for (int k = 0; k < KOLO_SIM_FLOW_LINKS; k++) {
        if (f->link[k] >= 0) {
            struct kolo_sim_link *l = &flows->link[f->link[k]];
            l->free -= rate;
            l->open--;
        }
    }
}

/* Whether one of the flow's links can give no more than `share` to each of its open flows. */
static bool is_bound(const struct kolo_sim_flows *flows, const struct kolo_sim_flow *f,
                     double share)
{
    static const double same = 1 + 1e-12; /* equal links differ by rounding */
    for (int k = 0; k < KOLO_SIM_FLOW_LINKS; k++) {
        if (f->link[k] >= 0) {
            const struct kolo_sim_link *l = &flows->link[f->link[k]];
            if (l->free <= share * same * l->open) {
                return true;
            }
        }
    }
    return false;
}

static void change_rate(struct kolo_sim_flow *f, double rate, double now_us)
{
    if (f->end_us < INFINITY) {
        f->left -= (now_us - f->since_us) * f->rate;
        f->left = f->left > 0 ? f->left : 0;
    }
    f->since_us = now_us;
    f->rate = rate;
    f->end_us = now_us + (isinf(rate) ? 0 : f->left / rate);
    f->version++;
}

static void fill_part(struct kolo_sim_flows *flows, double now_us,
                      void (*changed)(void *ctx, int flow), void *ctx)
{
    int open = flows->nparts;
    while (open > 0) {
        const double share = least_share(flows);
        const int before = open;
        for (int i = 0; i < open;) {
            const int flow = flows->part[i];
            struct kolo_sim_flow *f = &flows->flow[flow];
            if (!isinf(share) && !is_bound(flows, f, share)) {
                i++;
                continue;
            }
            set_rate(flows, f, isinf(share) ? 0 : share);
            if (f->rate != share || f->end_us == INFINITY) {
                change_rate(f, share, now_us);
                changed(ctx, flow);
            }
            flows->part[i] = flows->part[--open];
        }
        assert(open < before);
        (void)before;
    }
}

void kolo_sim_flows_settle(struct kolo_sim_flows *flows, double now_us,
                           void (*changed)(void *ctx, int flow), void *ctx)
{
    if (flows->ndirty == 0) {
        return;
    }
    flows->mark++;
    for (int i = 0; i < flows->ndirty; i++) {
        const int link = flows->dirty[i];
        if (flows->link[link].mark != flows->mark && flows->link[link].count > 0) {
            find_part(flows, link);
            fill_part(flows, now_us, changed, ctx);
        }
    }
    flows->ndirty = 0;
}
