// SPDX-License-Identifier: Apache-2.0
/* Created operations: a list of each communicator, under its queue's lock. */
#include "core/call/op.h"

#include "core/comm.h"
#include "exec/reduce/reduce.h"

#include <stdlib.h>
#include <string.h>

kolo_status kolo_op_create_premulsum(const void *factor, enum kolo_type type,
                                     struct kolo_comm *comm, kolo_op *out)
{
    static _Atomic uint32_t next = KOLO_OPS + 1000;
    KOLO_TRY(kolo_comm_usable(comm));
    if (factor == NULL || out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is NULL", factor == NULL ? "factor" : "out");
    }
    if (!kolo_op_valid(type, KOLO_AVG)) {
        return kolo_fail(KOLO_ERR_INVALID, "type is %s; a premulsum takes integers and floats",
                         kolo_type_name(type));
    }
    struct kolo_premulsum *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for an operation");
    }
    p->op = atomic_fetch_add(&next, 1);
    p->type = type;
    memcpy(p->factor, factor, kolo_type_bytes(type));
    pthread_mutex_lock(&comm->queue_lock);
    p->next = comm->premulsums;
    comm->premulsums = p;
    pthread_mutex_unlock(&comm->queue_lock);
    *out = p->op;
    return KOLO_OK;
}

void kolo_op_destroy(kolo_op op, struct kolo_comm *comm)
{
    if (comm == NULL) {
        return;
    }
    pthread_mutex_lock(&comm->queue_lock);
    for (struct kolo_premulsum **at = &comm->premulsums; *at != NULL; at = &(*at)->next) {
        if ((*at)->op == op) {
            struct kolo_premulsum *found = *at;
            *at = found->next;
            free(found);
            break;
        }
    }
    pthread_mutex_unlock(&comm->queue_lock);
}

kolo_status kolo_op_find(struct kolo_comm *comm, kolo_op op, enum kolo_type type,
                         uint64_t *factor_out)
{
    enum kolo_type made_for = type;
    pthread_mutex_lock(&comm->queue_lock);
    const struct kolo_premulsum *p = comm->premulsums;
    while (p != NULL && p->op != op) {
        p = p->next;
    }
    if (p != NULL) {
        made_for = p->type;
        memcpy(factor_out, p->factor, sizeof *factor_out);
    }
    pthread_mutex_unlock(&comm->queue_lock);
    if (p == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "op is %u, which was not created on this communicator",
                         op);
    }
    if (made_for != type) {
        return kolo_fail(KOLO_ERR_INVALID, "op is a premulsum of %s, type is %s",
                         kolo_type_name(made_for), kolo_type_name(type));
    }
    return KOLO_OK;
}

void kolo_op_forget(struct kolo_comm *comm)
{
    while (comm->premulsums != NULL) {
        struct kolo_premulsum *next = comm->premulsums->next;
        free(comm->premulsums);
        comm->premulsums = next;
    }
}
