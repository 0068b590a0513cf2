// SPDX-License-Identifier: Apache-2.0
/* Store kinds: how a call stores into memory that peers read.
 *
 * An ordinary store to a line that a far core holds waits for that core: 2 MiB take 855 us between
 * two L3 caches of an EPYC 9004, and 75 us with stores past the caches. Within an L3 the answer
 * depends on the collective, and the cores of a virtual machine move between the two. So kolo
 * measures. One rank of a host, the leader of the call, times its calls. From time to time it asks
 * all ranks for the other kind, for some calls, and keeps the faster one.
 *
 * The kind is no part of the protocol. Ranks that store in different kinds get the same result. */
#ifndef KOLO_EXEC_CPU_STORES_H
#define KOLO_EXEC_CPU_STORES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kolo_bound;
struct kolo_exec_env;

enum { KOLO_STORE_BYTES = 2048 }; /* shorter moves are always stored in the ordinary way */

enum kolo_store { KOLO_STORE_UNKNOWN, KOLO_STORE_ORDINARY, KOLO_STORE_PAST };

/* The leaders' choices, in memory of all ranks of a host: enum kolo_store, by hash of the call. Two
 * calls at one place displace each other, so there are many more places than calls of a program. */
enum { KOLO_STORE_PLACES = 4096 };
struct kolo_store_choices {
    _Atomic uint8_t kind[KOLO_STORE_PLACES];
};

struct kolo_store_use { /* of a bound program */
    bool matters;       /* a move of KOLO_STORE_BYTES or more goes into memory that peers read */
    bool starts_past;   /* the kind until a leader has chosen */
    bool leads;         /* this rank is the leader */
    uint8_t settle;     /* calls until a new kind shows in the leader's time */
    uint16_t refill;    /* calls that write each place of the slots once */
    uint64_t key;       /* hash of the call, equal on every rank */
};

struct kolo_lessons; /* measurements of a leader */

/* Find the use of store kinds in `bound`, whose operands and lengths are known. */
void kolo_store_bind(struct kolo_bound *bound, const struct kolo_exec_env *env);
/* The kind of the call that begins. */
bool kolo_store_is_past(const struct kolo_exec_env *env, const struct kolo_store_use *use);
/* Whether the leader times the call that begins. */
bool kolo_store_times(struct kolo_exec_env *env, const struct kolo_store_use *use);
/* The leader learns from a call that it timed, between these two times of kolo_now_us(). */
void kolo_store_learn(struct kolo_exec_env *env, const struct kolo_bound *bound, double began_us,
                      double now_us);
void kolo_lessons_free(struct kolo_lessons *lessons);
/* "ordinary", "past" or "measured" (UNKNOWN). False: another text. */
bool kolo_store_parse(const char *text, enum kolo_store *out);

#endif
