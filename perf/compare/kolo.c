// SPDX-License-Identifier: Apache-2.0
/* kolo as a method of compare, through its public interface. Shared buffers come from
 * kolo_mem_alloc(). */
#include "worker.h"

#include <kolo/kolo.h>

#include <stdio.h>

static struct kolo_comm *comm;

static const enum kolo_type kolo_types[COMPARE_TYPES] = {
    KOLO_FLOAT32, KOLO_FLOAT64, KOLO_FLOAT16, KOLO_BFLOAT16, KOLO_INT8, KOLO_INT32, KOLO_INT64};

static bool good(kolo_status status)
{
    if (status < 0) {
        fprintf(stderr, "compare_kolo: %s: %s\n", kolo_status_name(status), kolo_error_text());
    }
    return status >= 0;
}

static bool start(struct compare_team *team, char *version, size_t cap)
{
    const int number = kolo_version();
    (void)team;
    snprintf(version, cap, "kolo %d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    return good(kolo_comm_create_env(NULL, &comm));
}

static const char *prepare(const struct compare_point *p)
{
    return p->collective == COMPARE_HANDOVER ? "is no collective" : NULL;
}

static bool share_buffers(struct compare_point *p)
{
    const size_t recv = p->recv_elems * p->elem_bytes, send = p->send_elems * p->elem_bytes;
    if (!good(kolo_mem_alloc(recv > 0 ? recv : 1, &p->recv))) {
        return false;
    }
    if (p->collective == COMPARE_BROADCAST) {
        p->send = p->recv;
        return true;
    }
    return good(kolo_mem_alloc(send > 0 ? send : 1, &p->send));
}

static void unshare_buffers(struct compare_point *p)
{
    if (p->send != p->recv) {
        kolo_mem_free(p->send);
    }
    kolo_mem_free(p->recv);
}

static bool call(const struct compare_point *p)
{
    const enum kolo_type t = kolo_types[p->type];
    const size_t n = p->count;
    switch (p->collective) {
    case COMPARE_ALL_REDUCE:
        return good(kolo_all_reduce(p->send, p->recv, n, t, KOLO_SUM, comm, NULL));
    case COMPARE_REDUCE:
        return good(kolo_reduce(p->send, p->recv, n, t, KOLO_SUM, p->root, comm, NULL));
    case COMPARE_BROADCAST:
        return good(kolo_broadcast(p->send, p->recv, n, t, p->root, comm, NULL));
    case COMPARE_ALL_GATHER:
        return good(kolo_all_gather(p->send, p->recv, n, t, comm, NULL));
    case COMPARE_REDUCE_SCATTER:
        return good(kolo_reduce_scatter(p->send, p->recv, n, t, KOLO_SUM, comm, NULL));
    case COMPARE_ALL_TO_ALL:
        return good(kolo_all_to_all(p->send, p->recv, n, t, comm, NULL));
    case COMPARE_GATHER:
        return good(kolo_gather(p->send, p->recv, n, t, p->root, comm, NULL));
    case COMPARE_SCATTER:
        return good(kolo_scatter(p->send, p->recv, n, t, p->root, comm, NULL));
    default:
        return good(kolo_barrier(comm, NULL));
    }
}

static void stop(void)
{
    kolo_comm_destroy(comm);
}

int main(void)
{
    static const struct compare_method kolo_method = {.start = start,
                                                      .prepare = prepare,
                                                      .share = share_buffers,
                                                      .unshare = unshare_buffers,
                                                      .call = call,
                                                      .stop = stop};
    return compare_worker(&kolo_method);
}
