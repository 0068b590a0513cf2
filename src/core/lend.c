// SPDX-License-Identifier: Apache-2.0
/* See lend.h. */
#include "core/lend.h"

#include "core/call_parts.h"

#include <stdlib.h>
#include <string.h>

struct lent {    /* a buffer */
    uint64_t at; /* 0: none */
    uint64_t base, bytes, id;
    struct kolo_cuda_ipc handle;
};

struct offer { /* what a rank tells all */
    uint64_t what, factor;
    uint64_t usable;
    struct lent in, out;
};

enum outcome { DONE = 0, CANNOT_OPEN = 1 }; /* else a status */

/* ---- offering ---- */

static bool lend(const struct kolo_cuda *cuda, const void *ptr, struct lent *out)
{
    const kolo_cuda_address at = (uintptr_t)ptr;
    kolo_cuda_address base = 0;
    unsigned long long id = 0;
    unsigned able = 0; /* a bool of the driver's */
    size_t bytes = 0;
    out->at = at;
    if (ptr == NULL) {
        return true;
    }
    const bool known =
        cuda->pointer_get_attribute(&able, KOLO_CUDA_POINTER_IPC, at) == KOLO_CUDA_OK &&
        (able & 0xff) != 0 &&
        cuda->pointer_get_attribute(&id, KOLO_CUDA_POINTER_ID, at) == KOLO_CUDA_OK &&
        cuda->mem_get_address_range(&base, &bytes, at) == KOLO_CUDA_OK &&
        cuda->ipc_get_mem_handle(&out->handle, base) == KOLO_CUDA_OK;
    out->base = base;
    out->bytes = bytes;
    out->id = id;
    return known;
}

static struct offer make_offer(const struct kolo_lend *l, const struct kolo_gpu_call *call)
{
    const struct kolo_call as_host = {.comm = l->host, .coll = call->coll, .root = call->root};
    struct offer offer = {.what = kolo_gpu_call_what(call, l->host->nranks),
                          .factor = call->factor};
    const bool in = lend(l->gpu->cuda, kolo_call_has_in(&as_host) ? call->in : NULL, &offer.in);
    const bool out = lend(l->gpu->cuda, kolo_call_has_out(&as_host) ? call->out : NULL, &offer.out);
    offer.usable = in && out;
    return offer;
}

/* ---- opening ---- */

static void close_mapping(struct kolo_lend *l, struct kolo_lend_mapping *m)
{
    if (m->at != 0) {
        (void)l->gpu->cuda->ipc_close_mem_handle(m->at);
        m->at = 0;
    }
}

void kolo_lend_close(struct kolo_lend *l)
{
    for (int i = 0; i < KOLO_LEND_MAPPINGS; i++) {
        close_mapping(l, &l->mapping[i]);
    }
}

/* The mapping of rank q's allocation, or the one that makes room for it, closed. What overlaps it
 * and is another allocation is gone there. */
static struct kolo_lend_mapping *find_mapping(struct kolo_lend *l, int q, const struct lent *lent)
{
    struct kolo_lend_mapping *oldest = &l->mapping[0];
    for (int i = 0; i < KOLO_LEND_MAPPINGS; i++) {
        struct kolo_lend_mapping *m = &l->mapping[i];
        const bool overlaps = m->at != 0 && m->rank == q && m->base < lent->base + lent->bytes &&
                              lent->base < m->base + m->bytes;
        if (overlaps && m->base == lent->base && m->bytes == lent->bytes && m->id == lent->id) {
            return m;
        }
        if (overlaps) {
            close_mapping(l, m);
        }
        oldest = oldest->at == 0 || (m->at != 0 && m->used >= oldest->used) ? oldest : m;
    }
    close_mapping(l, oldest);
    return oldest;
}

static bool open_lent(struct kolo_lend *l, int q, const struct lent *lent, uint64_t *out)
{
    const uint64_t process = l->host->member[l->host->rank].peer.process;
    enum { LAZY_PEER_ACCESS = 1 };
    if (lent->at == 0 || l->host->member[q].peer.process == process) {
        *out = lent->at;
        return true;
    }
    struct kolo_lend_mapping *m = find_mapping(l, q, lent);
    if (m->at == 0) {
        kolo_cuda_address at = 0;
        if (l->gpu->cuda->ipc_open_mem_handle(&at, lent->handle, LAZY_PEER_ACCESS) !=
            KOLO_CUDA_OK) {
            return false;
        }
        *m = (struct kolo_lend_mapping){q, lent->base, lent->bytes, lent->id, at, 0};
    }
    m->used = ++l->uses;
    *out = m->at + (lent->at - lent->base);
    return true;
}

/* ---- running ---- */

static int32_t lead(struct kolo_lend *l, const struct kolo_gpu_call *call,
                    const struct offer *offer)
{
    struct kolo_fused_launch argument = {.table = 0};
    const int n = l->host->nranks;
    for (int q = 0; q < n; q++) {
        argument.rank[q].factor = offer[q].factor;
        if (!open_lent(l, q, &offer[q].in, &argument.rank[q].in) ||
            !open_lent(l, q, &offer[q].out, &argument.rank[q].out)) {
            return CANNOT_OPEN;
        }
    }
    const kolo_status st = kolo_gpu_launch(l->gpu, n, call, &argument);
    return st != KOLO_OK ? (int32_t)st
                         : (int32_t)KOLO_CUDA(l->gpu, "cuStreamSynchronize",
                                              stream_synchronize(call->stream));
}

static kolo_status check_same(const struct kolo_lend *l, const struct offer *offer)
{
    for (int q = 1; q < l->host->nranks; q++) {
        if (offer[q].what != offer[0].what) {
            return kolo_fail(KOLO_ERR_MISMATCH,
                             "ranks 0 and %d are in different calls on memory of their GPU", q);
        }
    }
    return KOLO_OK;
}

static kolo_status run_offers(struct kolo_lend *l, const struct kolo_gpu_call *call,
                              const struct offer *offer, bool *done_out)
{
    int32_t outcome = DONE;
    KOLO_TRY(check_same(l, offer));
    for (int q = 0; q < l->host->nranks; q++) {
        outcome = offer[q].usable ? outcome : CANNOT_OPEN;
    }
    if (outcome == CANNOT_OPEN) {
        *done_out = false;
        return KOLO_OK;
    }
    if (l->host->rank == 0) {
        outcome = lead(l, call, offer);
    }
    const int32_t mine = outcome;
    KOLO_TRY(kolo_broadcast(&mine, &outcome, 1, KOLO_INT32, 0, l->host, NULL));
    if (outcome < 0) {
        return l->host->rank == 0
                   ? (kolo_status)outcome
                   : kolo_fail((kolo_status)outcome, "rank 0 could not run a kernel for all ranks");
    }
    *done_out = outcome == DONE;
    return KOLO_OK;
}

kolo_status kolo_lend_run(struct kolo_lend *l, const struct kolo_gpu_call *call, bool *done_out)
{
    const struct offer mine = make_offer(l, call);
    struct offer *all = calloc((size_t)l->host->nranks, sizeof *all);
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", l->host->nranks);
    }
    kolo_status st = kolo_all_gather(&mine, all, sizeof mine, KOLO_UINT8, l->host, NULL);
    st = st == KOLO_OK ? run_offers(l, call, all, done_out) : st;
    free(all);
    return st;
}
