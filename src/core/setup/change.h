// SPDX-License-Identifier: Apache-2.0
/* A change of members, and one attempt at it: two meetings of those that take part. */
#ifndef KOLO_CORE_SETUP_CHANGE_H
#define KOLO_CORE_SETUP_CHANGE_H

#include "core/setup/create.h"
#include "core/setup/probe.h"

struct kolo_change {
    struct kolo_meet_parent parent; /* first: the meeting sees only this member */
    struct kolo_comm *comm;         /* NULL: this is a new rank */
    const int *members;             /* [nranks] of old ranks; NULL: this is a new rank */
    int nranks, seat;
    struct kolo_meet id;
    bool over_hosts;         /* the old ranks share no board */
    struct kolo_inet second; /* where the second meeting is; family 0: on this host */
    struct kolo_probe probe; /* of old ranks on other hosts */
    struct kolo_boot *first; /* kept during the second meeting: it tells who ends before it comes */
    int attempt;
    int timeout_ms;
    double deadline_us;
    unsigned aborts;
    bool *absent; /* [nranks] seats */
    /* Who takes part in the present meeting: numbers in comm, or -1, and seats. */
    int *ranks, *seats; /* [nranks] */
    int count;
};

/* Errors: INVALID, SYSTEM. kolo_change_end() is due in any case. */
KOLO_CHECK kolo_status kolo_change_begin(struct kolo_change *g, const struct kolo_id *id,
                                         int nranks, int timeout_ms);
void kolo_change_end(struct kolo_change *g);
int kolo_change_left_ms(const struct kolo_change *g);
/* Try to form the communicator without those that are absent. Errors: those of meetings. */
KOLO_CHECK kolo_status kolo_change_try(struct kolo_change *g, int limit_ms,
                                       const struct kolo_config *config, struct kolo_comm **out);
/* After such an error another attempt makes sense. */
bool kolo_change_may_retry(kolo_status st);
/* The first later attempt whose first meeting is served on this host; -1: none. */
int kolo_change_served_after(struct kolo_change *g, int attempt);

#endif
