// SPDX-License-Identifier: Apache-2.0
/* The environment of a program that runs: all that the host executor knows about its communicator and its peers. */
#ifndef KOLO_EXEC_CPU_ENV_H
#define KOLO_EXEC_CPU_ENV_H

#include "exec/cpu/stores.h"
#include "exec/lower/limits.h"

#include <kolo/plugin.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kolo_endpoint;
struct kolo_entry;
struct kolo_link;
struct kolo_region;
struct kolo_transport;

struct kolo_readers { /* the ranks that read the lines and slots of a tile */
    const int *list;
    int count;
};

struct kolo_exec_env {
    int me, nranks;
    struct kolo_region **region; /* [nranks], mapped here; NULL where not reached */
    char **slots;                /* [nranks] outbox slots of each rank, mapped here, or NULL */
    size_t slot_bytes;           /* size of a long slot: the most that a tile may take */
    size_t short_slot_bytes;     /* tiles up to this size go into short slots */
    size_t turn_bytes;           /* part of a long slot whose places tiles use by turns; 0: none */
    int phases;                  /* phases for which a region has lines */
    const void **peer_in;        /* [nranks] buffers of the running call */
    void **peer_out;
    struct kolo_link **link;                 /* [nranks] for messages */
    const struct kolo_transport **transport; /* [nranks] */
    struct kolo_endpoint **endpoint;         /* [nranks], its transport's; NULL without messages */
    uint32_t epoch;                          /* tiles run so far */
    uint32_t met;                            /* tiles run so far by programs without messages */
    uint32_t entries;                        /* calls with entry lines so far */
    uint64_t chain;                          /* of all calls so far: kolo_chain() */
    uint32_t *seen_done; /* [nranks] tiles each rank is known to have finished */
    uint32_t all_done;   /* tiles that all ranks are known to have finished */
    struct kolo_readers readers[KOLO_DEPTH]; /* of the newest tile of this parity */
    struct {
        struct kolo_readers readers;
        uint32_t epoch;
    } long_slot[KOLO_LONG_DEPTH];             /* the last tile that this rank put into the slot */
    enum kolo_store store_rule;               /* UNKNOWN: store kinds are measured */
    struct kolo_store_choices *store_choices; /* on the host's board; NULL: nothing is measured */
    struct kolo_lessons *lessons;             /* of this rank as a leader; NULL until it is one */
    int board_low, board_high;                /* the lowest and the highest rank of this host */
    bool *is_far;                /* [nranks] whether a flag to the rank takes long; NULL: none */
    size_t cache_bytes;          /* this rank's part of its L3; 0: unknown */
    bool crowded;                /* more ranks than cores: yield early */
    bool core_is_shared;         /* the last wait that yielded ended at its first yield */
    unsigned hogged_waits, hogs; /* so many waits sleep at once: yields took very long */
    bool membarrier;             /* the asymmetric fence is available */
    double timeout_us;
    _Atomic int *aborted; /* the communicator's error, or 0 */
    /* Find the addresses of rank q's buffers of this call from its entry line. */
    kolo_status (*resolve)(struct kolo_exec_env *env, int q, const struct kolo_entry *entry);
    /* A long wait for rank `peer` (-1: not known) calls this about every 100 ms. An error ends the
     * wait. Past timeout_us the function must return an error. NULL: no such function. */
    kolo_status (*stalled)(struct kolo_exec_env *env, int peer, double waited_us);
    _Atomic int32_t *waits_for;  /* this rank publishes here the rank it waits for, + 1; or NULL */
    int stuck_at;                /* rank of the last wait that was not met, -1: not known */
    _Atomic int blamed;          /* rank that the last error is about, -1: none */
    struct kolo_call_sign came;  /* after MISMATCH: the call of `blamed`, if a message told it */
    double asked_us;             /* when a wait for several words last called `stalled` */
    void (*progress)(void *arg); /* config.progress, for waits that last; or NULL */
    void *progress_arg;
    double progressed_us; /* when the last wait called it */
    void *owner;
    void (*jitter)(void *arg); /* for tests: called before every move and signal */
    void *jitter_arg;
};

/* Add a call to the chain of calls, and return the chain. Two ranks have the same chain only if all
 * their calls so far were alike. Lines carry it instead of the call's own signature. So a call that
 * waits for nobody, for example a broadcast in which both ranks think that they are the root, shows
 * at the next call that waits. `number` is the number of the call. Calls without bytes take no
 * tile, and show in the number alone. */
static inline uint64_t kolo_chain(struct kolo_exec_env *env, uint64_t signature, uint32_t number)
{
    return env->chain = env->chain * 0x3C6EF373 + signature + number;
}

#endif
