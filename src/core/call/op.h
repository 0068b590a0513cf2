// SPDX-License-Identifier: Apache-2.0
/* Operations that users create: PREMULSUM, a sum of inputs that are scaled first. */
#ifndef KOLO_CORE_CALL_OP_H
#define KOLO_CORE_CALL_OP_H

#include <kolo/kolo.h>

struct kolo_premulsum {
    struct kolo_premulsum *next;
    kolo_op op;
    enum kolo_type type;
    unsigned char factor[16];
};

/* Check that `op` was created on this communicator for `type`, and copy its factor's bits. The copy
 * is needed because the operation may be destroyed before a queued call starts. Errors: INVALID. */
kolo_status kolo_op_find(struct kolo_comm *comm, kolo_op op, enum kolo_type type,
                         uint64_t *factor_out);
/* Free all operations of a communicator. */
void kolo_op_forget(struct kolo_comm *comm);

#endif
