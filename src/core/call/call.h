// SPDX-License-Identifier: Apache-2.0
/* One collective call, from its arguments to its result: choose, lower, bind, run.
 *
 * A call is a small state machine. kolo_call_step() blocks only if the caller allows it (`block`).
 * So streams, groups and several ranks of one thread can interleave calls. */
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
    struct kolo_coll_args args;     /* the call owns v.all */
    struct kolo_coll_extent extent; /* of args; kolo_call_check() sets it */

    enum kolo_call_state state;
    bool uses_entries, wide, started;
    const struct kolo_algo *algo;
    const struct kolo_prog *prog;
    struct kolo_bound *bound;
    struct kolo_bound *own_bound; /* a bound program outside the cache: freed with the call */
    struct kolo_exec exec;
    int next;                          /* the rank to wait for next, in ENTRIES and SLOTS */
    void *scaled, *wide_in, *wide_out; /* PREMULSUM; deterministic sums in the accumulator type */
    size_t run_elem, tile_bytes;
    uint64_t signature;

    uint64_t number; /* the number of its record on the board; 0: none */
};

static inline struct kolo_call *kolo_call_of(struct kolo_queued *queued)
{
    assert(queued->kind == KOLO_QUEUED_COLLECTIVE);
    return (struct kolo_call *)queued;
}

/* Check arguments that need no other rank, and take the operation's factor. Errors: INVALID,
 * UNSUPPORTED, FORKED, or comm's error. */
kolo_status kolo_call_check(struct kolo_call *call);
/* Advance the call. The caller holds comm->busy. OK: done. INPROGRESS: not yet, only without
 * `block`. */
kolo_status kolo_call_step(struct kolo_call *call, bool block);
void kolo_call_close(struct kolo_call *call);
/* The call succeeded: mark its record, if the board still has it. */
void kolo_call_record_end(const struct kolo_call *call);
/* The call failed, and its communicator with it: give the output buffer back to the caller. */
void kolo_call_take_back(const struct kolo_call *call);

/* All steps of a public call after *call is filled in: check it, record it, submit it. Takes over
 * the memory that `call` owns. */
kolo_status kolo_call_run(struct kolo_call *call, kolo_stream stream);
struct kolo_message { /* the arguments of a public send or receive */
    void *buf;
    size_t count;
    enum kolo_type type;
    int peer, tag; /* tag KOLO_UNTAGGED: none */
    bool is_send;
    struct kolo_recv_info *info;
    struct kolo_p2p_direct *direct; /* set by a relay, else NULL */
};
/* All steps of a public send or receive. */
kolo_status kolo_message_run(const struct kolo_message *m, struct kolo_comm *comm,
                             kolo_stream stream);
/* Run a call, queue it, or add it to a group. That depends on its stream, an open group, and the
 * calls queued before it. Takes over the memory that `call` owns. */
kolo_status kolo_call_submit(struct kolo_call *call, kolo_stream stream);
kolo_status kolo_message_submit(struct kolo_message_call *call, kolo_stream stream);
/* Wait until the communicator's queue is empty, and the peers have taken this rank's data. */
void kolo_call_drain(struct kolo_comm *comm);
/* Run every later call of this algorithm's collective by this algorithm. NULL: by the normal
 * choice. `tile_bytes` 0: the default. All ranks must set the same. For measurements: no call may
 * be running. */
void kolo_call_force(struct kolo_comm *comm, const struct kolo_algo *algo, size_t tile_bytes);
/* Free plans and programs. */
void kolo_call_forget(struct kolo_comm *comm);
/* wires.resolve: find the addresses of rank q's buffers of this call by its entry line. */
kolo_status kolo_call_resolve(struct kolo_wires *w, int q, const struct kolo_entry *entry);

#endif
