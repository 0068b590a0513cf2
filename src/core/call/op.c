// SPDX-License-Identifier: Apache-2.0
/* Operations that an application creates: sums of values that are multiplied by a factor first. */
#include "core/call/call.h"

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
