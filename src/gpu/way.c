// SPDX-License-Identifier: Apache-2.0
/* The choice among the four ways of inner.h for each call, and what the hierarchical way asks of
 * its layers. */
#include "core/failure/failure.h"
#include "gpu/inner.h"

kolo_status kolo_gpu_path_poll(struct kolo_comm_path *path, int *rank_out)
{
    const struct kolo_gpu_path *p = (struct kolo_gpu_path *)(void *)path;
    return p->p2p != NULL ? kolo_p2p_path_learn(p->p2p, rank_out) : KOLO_OK;
}

/* End the communicator if one of its kernels has given up. False: none has. */
static bool has_failed(struct kolo_gpu_path *p)
{
    int rank = -1;
    const kolo_status st = kolo_gpu_path_poll(&p->base, &rank);
    if (st != KOLO_OK) {
        (void)kolo_failure_end(p->comm, st, rank);
    }
    return st != KOLO_OK;
}

kolo_status kolo_gpu_path_enqueue(struct kolo_gpu_path *p, const struct kolo_gpu_call *call,
                                  struct kolo_counts *v)
{
    if (p->fused != NULL) {
        const struct kolo_gpu_call *all[KOLO_FUSED_RANKS] = {NULL};
        all[p->comm->ranks.rank] = call;
        return kolo_fused_path_meet(p->fused, all, p->comm->options.timeout_ms);
    }
    if (p->p2p != NULL && !kolo_coll_by_messages(&call->args)) {
        return has_failed(p) ? kolo_comm_usable(p->comm) : kolo_p2p_path_enqueue(p->p2p, call);
    }
    if (p->hier != NULL && kolo_hier_path_take(p->hier, call)) {
        return kolo_hier_path_enqueue(&(struct kolo_hier_part){p->hier, call}, 1);
    }
    KOLO_TRY(kolo_p2p_path_follow(p->p2p, call->stream));
    KOLO_TRY(kolo_proxy_enqueue(p->proxy, call, v));
    return kolo_p2p_path_note(p->p2p, call->stream);
}

kolo_status kolo_gpu_path_enqueue_messages(struct kolo_gpu_path *p, const struct kolo_message *m,
                                           int n, kolo_stream stream)
{
    KOLO_TRY(kolo_p2p_path_follow(p->p2p, stream));
    KOLO_TRY(kolo_proxy_enqueue_messages(p->proxy, m, n, stream));
    return kolo_p2p_path_note(p->p2p, stream);
}

/* ---- layers of the hierarchical way ---- */

/* In graphs the threads of a layer do not meet. */
static kolo_status enqueue_in_layer(struct kolo_comm *layer, const struct kolo_gpu_call *call,
                                    struct kolo_counts *v)
{
    struct kolo_gpu_path *p = kolo_gpu_path_of(layer);
    return p->fused != NULL ? kolo_fused_path_enqueue(p->fused, layer->ranks.rank, call)
                            : kolo_gpu_path_enqueue(p, call, v);
}

static kolo_status meet_in_layer(struct kolo_comm *const *layer,
                                 const struct kolo_gpu_call *const *call, int n)
{
    const struct kolo_gpu_call *all[KOLO_FUSED_RANKS] = {NULL};
    struct kolo_fused_path *fused = kolo_gpu_path_of(layer[0])->fused;
    for (int i = 0; i < n; i++) {
        all[layer[i]->ranks.rank] = call[i];
    }
    kolo_status st = kolo_fused_path_meet(fused, all, layer[0]->options.timeout_ms);
    for (int i = 0; i < n; i++) { /* the text of the layer names the layer's ranks */
        st = kolo_gpu_path_ended(layer[i], st);
    }
    return st;
}

static enum kolo_hier_way way_of_layer(const struct kolo_comm *layer)
{
    const struct kolo_gpu_path *p = kolo_gpu_path_of(layer);
    return p->fused != NULL  ? KOLO_HIER_FUSED
           : p->p2p != NULL  ? KOLO_HIER_P2P
           : p->hier != NULL ? KOLO_HIER_HIER
                             : KOLO_HIER_PROXY;
}

static void widen_layer(struct kolo_comm *layer, int ranks)
{
    const struct kolo_gpu_path *p = kolo_gpu_path_of(layer);
    if (p->proxy != NULL) {
        kolo_proxy_widen(p->proxy, ranks);
    }
}

const struct kolo_hier_calls kolo_gpu_hier_calls = {
    .enqueue = enqueue_in_layer,
    .meet = meet_in_layer,
    .way = way_of_layer,
    .widen = widen_layer,
};
