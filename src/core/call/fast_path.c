// SPDX-License-Identifier: Apache-2.0
/* Running calls that the call cache knows and that are more than one exchange. */
#include "core/call/fast_path.h"

#include "core/call/parts.h"
#include "core/health/watchdog.h"
#include "exec/cpu/bound.h"
#include "exec/cpu/region.h"

kolo_status kolo_fast_path_bound(struct kolo_comm *c, const struct kolo_memo *m,
                                 const struct kolo_bound *bound, const void *in, void *out)
{
    struct kolo_exec x;
    x.env = &c->links.exec_env;
    x.bound = bound;
    x.in = in;
    x.out = out;
    x.reduce = m->how.reduce;
    x.divisor = m->how.divisor;
    x.elem = m->elem;
    x.signature = m->how.signature;
    x.chain = kolo_chain(&c->links.exec_env, m->how.signature, (uint32_t)kolo_comm_calls(c));
    x.block = true;
    return kolo_exec_now(&x);
}

/* The entry is published, and somebody's is another than last time. */
static __attribute__((noinline)) kolo_status
go_on_slowly(struct kolo_comm *c, const struct kolo_coll_args *a, const struct kolo_memo *m)
{
    struct kolo_call call = {.base.comm = c,
                             .args = *a,
                             .extent = kolo_coll_extent_of(a, c->ranks.rank, c->ranks.nranks),
                             .algo = m->bound->prog->plan->algo,
                             .run_elem = m->elem,
                             .tile_bytes = m->bound->extents.tile_bytes,
                             .signature = m->how.signature,
                             .number = kolo_comm_calls(c),
                             .started = true,
                             .uses_entries = true,
                             .state = KOLO_CALL_ENTRIES};
    const kolo_status st = kolo_call_step(&call, true);
    kolo_call_close(&call);
    return st;
}

static kolo_status run_shared(struct kolo_comm *c, const struct kolo_coll_args *a,
                              const struct kolo_memo *m, const struct kolo_shared_memo *s)
{
    struct kolo_exec_env *env = &c->links.exec_env;
    bool same = true;
    kolo_entry_publish(env, &s->entry);
    for (int q = 0; q < c->ranks.nranks; q++) {
        if (q == c->ranks.rank || !c->member[q].maps) {
            continue;
        }
        KOLO_TRY(kolo_entry_wait(env, q, true));
        const struct kolo_entry *entry = &env->region[q]->entry[env->entries % KOLO_ENTRY_LINES];
        same = same && entry->buffers == s->peer[q].hash && entry->signature == m->how.signature;
        env->peer_in[q] = s->peer[q].in;
        env->peer_out[q] = s->peer[q].out;
    }
    if (KOLO_UNLIKELY(!same)) {
        return go_on_slowly(c, a, m);
    }
    const kolo_status st = kolo_fast_path_bound(c, m, s->bound, a->in, a->out);
    env->entries += st == KOLO_OK ? 1 : 0;
    return st;
}

static void end_if_well(struct kolo_record *record, kolo_status st)
{
    if (st == KOLO_OK) {
        kolo_record_end(record);
    }
}

/* By who holds comm->busy. False: not a call that is known. */
static bool run_known(struct kolo_comm *c, const struct kolo_coll_args *a, kolo_status *out)
{
    const uint64_t key = kolo_memo_key(a);
    const struct kolo_memo *m = kolo_memo_find(c, key, a->count);
    if (m == NULL || m->steps || !kolo_memo_serves(m, a) || !kolo_comm_is_usable(c)) {
        return false;
    }
    if (!m->entries) {
        if (m->asks && kolo_comm_must_ask(c)) {
            return false;
        }
        struct kolo_record *record = kolo_record_begin(c->health.slot, key, a->count);
        *out = kolo_fast_path_bound(c, m, m->bound, a->in, a->out);
        end_if_well(record, *out);
        return true;
    }
    const struct kolo_shared_memo *s = kolo_memo_find_shared(c, a, key);
    if (s == NULL) {
        return false;
    }
    struct kolo_record *record = kolo_record_begin(c->health.slot, key, a->count);
    *out = run_shared(c, a, m, s);
    end_if_well(record, *out);
    return true;
}

bool kolo_fast_path_run(struct kolo_comm *c, const struct kolo_coll_args *args, kolo_status *out)
{
    kolo_status st = KOLO_OK;
    const bool known = !c->options.logs_calls &&
                       c->options.cuda_ordinal == KOLO_HOST && /* else its buffers are looked at */
                       atomic_load_explicit(&c->queue.head, memory_order_acquire) == NULL &&
                       run_known(c, args, &st);
    if (KOLO_UNLIKELY(st <= KOLO_ERR_MISMATCH)) {
        const struct kolo_coll_extent extent =
            kolo_coll_extent_of(args, c->ranks.rank, c->ranks.nranks);
        st = kolo_comm_fail(c, st);
        kolo_mem_take_back(c, args->out, kolo_coll_out_bytes(args, &extent));
    }
    atomic_store_explicit(&c->queue.busy, 0, memory_order_release);
    if (KOLO_UNLIKELY(st <= KOLO_ERR_MISMATCH)) {
        kolo_watchdog_await_threads(c);
    }
    *out = st;
    return known;
}
