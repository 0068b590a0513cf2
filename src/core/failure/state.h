// SPDX-License-Identifier: Apache-2.0
/* What ended a communicator, and who is told of it. */
#ifndef KOLO_CORE_FAILURE_STATE_H
#define KOLO_CORE_FAILURE_STATE_H

#include "core/board/board.h"

#include <pthread.h>
#include <stdatomic.h>

enum { KOLO_OBSERVERS = 4 };

struct kolo_observer { /* see failure.h */
    void (*ended)(void *owner, const struct kolo_verdict *why);
    void *owner;
};

struct kolo_evidence {       /* of a peer's failure, as transports reported it */
    _Atomic int rank, error; /* 1 + the first rank that a transport lost, 0: none; its errno */
    char what[200];          /* what it is, where error is EBADMSG; before `rank` */
    _Atomic int reporter;    /* 1 + the first rank that told of a failure, 0: none */
    _Atomic int32_t reason;
    char text[KOLO_VERDICT_TEXT]; /* of that reason, if it told one; before `reporter` */
};

struct kolo_failure_state {
    _Atomic int error;       /* the status that ended the communicator */
    _Atomic unsigned aborts; /* calls of kolo_comm_abort(), also after it has ended */
    pthread_mutex_t lock;    /* of text, verdict, observer */
    char text[512];
    struct kolo_verdict verdict;                   /* for kolo_comm_failure() */
    struct kolo_observer observer[KOLO_OBSERVERS]; /* told in this order */
    int nobservers;
    /* Ranks of the communicator above that a verdict may name, behind this one's own. */
    _Atomic int ranks_above;
    _Atomic bool is_part; /* of another communicator, which records the failure of both */
    struct kolo_evidence evidence;
};

#endif
