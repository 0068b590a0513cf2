// SPDX-License-Identifier: Apache-2.0
/* What the files of this folder share: one agreement, and the two ways to come to it. */
#ifndef KOLO_CORE_AGREE_INNER_H
#define KOLO_CORE_AGREE_INNER_H

#include "core/agree/agree.h"

struct kolo_agreement {
    struct kolo_comm *comm;
    const bool *take_part;
    int limit_ms;
    double deadline_us;
    unsigned aborts;
};

bool kolo_agree_is_left_out(const struct kolo_comm *c, int q);
void kolo_agree_leave_out(const struct kolo_comm *c, int q);
/* Rank q takes no part. */
bool kolo_agree_is_out(const struct kolo_agreement *a, int q);
/* ABORTED if kolo_comm_abort() was called since the agreement began. */
KOLO_CHECK kolo_status kolo_agree_may_go_on(const struct kolo_agreement *a);

/* Bring *word, and get the decision. Errors: PEER (this rank is left out), ABORTED, SYSTEM; over
 * links also TIMEOUT and LINK. */
KOLO_CHECK kolo_status kolo_agree_on_board(const struct kolo_agreement *a, uint64_t *word,
                                           unsigned char *seen);
KOLO_CHECK kolo_status kolo_agree_over_links(const struct kolo_agreement *a, uint64_t *word,
                                             unsigned char *seen);

#endif
