// SPDX-License-Identifier: Apache-2.0
/* Which way a call goes. */
#include "core/failure/failure.h"
#include "gpu/inner.h"

/* End the communicator if a kernel of its has given up; false if none has. */
static bool has_failed(struct kolo_gpu_path *p)
{
    int rank = -1;
    const kolo_status st = kolo_gpu_path_poll(&p->base, &rank);
    if (st != KOLO_OK) {
        (void)kolo_failure_end(p->comm, st, rank);
    }
    return st != KOLO_OK;
}

kolo_status kolo_gpu_path_enqueue(struct kolo_gpu_path *p, const struct kolo_gpu_call *what,
                                  struct kolo_counts *v)
{
    if (p->team != NULL) {
        return kolo_team_enqueue(p->team, p->comm->rank, what);
    }
    if (p->peers != NULL && !kolo_gpu_call_by_messages(what)) {
        return has_failed(p) ? kolo_comm_usable(p->comm) : kolo_peers_enqueue(p->peers, what);
    }
    if (p->layers != NULL && kolo_layers_take(p->layers, what)) {
        return kolo_layers_enqueue(p->layers, what);
    }
    KOLO_TRY(kolo_peers_follow(p->peers, what->stream));
    KOLO_TRY(kolo_relay_enqueue(p->relay, what, v));
    return kolo_peers_note(p->peers, what->stream);
}

kolo_status kolo_gpu_path_enqueue_messages(struct kolo_gpu_path *p, const struct kolo_message *m,
                                           int n, kolo_stream stream)
{
    KOLO_TRY(kolo_peers_follow(p->peers, stream));
    KOLO_TRY(kolo_relay_enqueue_messages(p->relay, m, n, stream));
    return kolo_peers_note(p->peers, stream);
}

/* ---- layers of the hierarchical way ---- */

static kolo_status enqueue_in_layer(struct kolo_comm *layer, const struct kolo_gpu_call *what,
                                    struct kolo_counts *v)
{
    return kolo_gpu_path_enqueue(kolo_gpu_path_of(layer), what, v);
}

static enum kolo_layer_way way_of_layer(const struct kolo_comm *layer)
{
    const struct kolo_gpu_path *p = kolo_gpu_path_of(layer);
    return p->team != NULL     ? KOLO_LAYER_FUSED
           : p->peers != NULL  ? KOLO_LAYER_P2P
           : p->layers != NULL ? KOLO_LAYER_HIER
                               : KOLO_LAYER_PROXY;
}

static void widen_layer(struct kolo_comm *layer, int ranks)
{
    const struct kolo_gpu_path *p = kolo_gpu_path_of(layer);
    if (p->relay != NULL) {
        kolo_relay_widen(p->relay, ranks);
    }
}

const struct kolo_layer_calls kolo_gpu_layer_calls = {
    .enqueue = enqueue_in_layer,
    .way = way_of_layer,
    .widen = widen_layer,
};
