// SPDX-License-Identifier: Apache-2.0
/* One collective call, from its arguments to its result: choose, lower, bind, run.
 *
 * A call is a small state machine that never blocks in kolo_call_step() unless it may (`block`), so
 * that streams, groups and several ranks of one thread can interleave calls. */
#ifndef KOLO_CORE_CALL_CALL_H
#define KOLO_CORE_CALL_CALL_H

#include "core/call/queue.h"
#include "exec/cpu/exec.h"
#include "plan/coll.h"

enum kolo_call_state {
    KOLO_CALL_CHOOSE,
    KOLO_CALL_ENTRIES,
    KOLO_CALL_LOWER,
    KOLO_CALL_SLOTS,
    KOLO_CALL_RUN
};

struct kolo_call {
    struct kolo_queued base;
    struct kolo_coll_args args;     /* v.all: owned */
    struct kolo_coll_extent extent; /* of args, from kolo_call_check() on */

    enum kolo_call_state state;
    bool uses_entries, wide, started;
    enum kolo_codec codec; /* it runs on units of this codec; args.codec was asked for */
    const struct kolo_algo *algo;
    const struct kolo_prog *prog;
    struct kolo_bound *bound;
    struct kolo_cached_bound *cached; /* whose `bound` is, unless it is own_bound */
    struct kolo_bound *own_bound;     /* not in the cache: freed with the call */
    struct kolo_exec exec;
    int next; /* rank to ask next, in ENTRIES and SLOTS */
    /* PREMULSUM; deterministic sums in the accumulator type, or units of the codec. */
    void *scaled, *wide_in, *wide_out;
    size_t run_elem, tile_bytes;
    uint64_t signature;

    uint64_t number; /* of its record on the board; 0: none */
};

static inline struct kolo_call *kolo_call_of(struct kolo_queued *queued)
{
    assert(queued->kind == KOLO_QUEUED_COLLECTIVE);
    return (struct kolo_call *)queued;
}

/* Check arguments that need no other rank, and take the operation's factor. Errors: INVALID,
 * UNSUPPORTED, FORKED, or comm's error. */
kolo_status kolo_call_check(struct kolo_call *call);
/* The call as the board and messages tell it to other ranks: kolo_memo_key() of the arguments on
 * which all ranks must agree, and the number of this rank's elements. */
uint64_t kolo_call_key(const struct kolo_call *call);
size_t kolo_call_count(const struct kolo_call *call);
/* Whether the next step is like one of an earlier call: it neither chooses an algorithm, nor
 * connects to a rank, nor waits for a lock. The caller holds comm->busy. */
bool kolo_call_is_known(struct kolo_call *call);
/* Advance; the caller holds comm->busy. OK: done. INPROGRESS unless `block`. */
kolo_status kolo_call_step(struct kolo_call *call, bool block);
void kolo_call_close(struct kolo_call *call);
/* It went well: so its record says, if it is still there. */
void kolo_call_record_end(const struct kolo_call *call);
/* It failed, and its communicator with it: its output is the caller's again. */
void kolo_call_take_back(const struct kolo_call *call);

/* All of a public call but making *call: check it, note it, submit it. Takes what it owns. */
kolo_status kolo_call_run(struct kolo_call *call, kolo_stream stream);
struct kolo_message { /* a send or a receive, as a public call says it */
    void *buf;
    size_t count;
    enum kolo_type type;
    int peer, tag; /* tag KOLO_UNTAGGED: none */
    bool is_send;
    struct kolo_recv_info *info;
    struct kolo_p2p_gdr *gdr; /* of a proxy's; or NULL */
};
/* All of such a call. */
kolo_status kolo_message_run(const struct kolo_message *m, struct kolo_comm *comm,
                             kolo_stream stream);
/* Run, queue or collect a call: by its stream, an open group, and what is queued before it. Takes
 * what `call` owns. */
kolo_status kolo_call_submit(struct kolo_call *call, kolo_stream stream);
kolo_status kolo_message_submit(struct kolo_message_call *call, kolo_stream stream);
/* Wait until the communicator's queue is empty and what this rank sent is taken. */
void kolo_call_drain(struct kolo_comm *comm);
/* Run every later call of this algorithm's collective by it, in tiles of so many bytes (0: the
 * default), on all ranks alike; NULL: as it would be. For measuring: nobody may be calling. */
void kolo_call_force(struct kolo_comm *comm, const struct kolo_algo *algo, size_t tile_bytes);
/* Free plans and programs. */
void kolo_call_forget(struct kolo_comm *comm);
/* exec_env.resolve: addresses of rank q's buffers of this call, from its entry line. */
kolo_status kolo_call_resolve(struct kolo_exec_env *env, int q, const struct kolo_entry *entry);

#endif
