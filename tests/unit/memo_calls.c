// SPDX-License-Identifier: Apache-2.0
#include "memo_calls.h"

#include "core/call/memo.h"
#include "core/comm.h"
#include "exec/cpu/bound.h"

#include <stdlib.h>

struct calls {
    struct kolo_comm *comm;
    struct kolo_prog prog;
    struct kolo_bound bound;
    struct kolo_cached_bound cached[CALLS_BOUND];
};

static struct kolo_coll_args args_of(size_t count)
{
    return (struct kolo_coll_args){
        .coll = KOLO_COLL_ALL_REDUCE, .type = KOLO_FLOAT32, .op = KOLO_SUM, .count = count};
}

struct calls *calls_create(void)
{
    struct calls *calls = calloc(1, sizeof *calls);
    struct kolo_comm *comm = aligned_alloc(_Alignof(struct kolo_comm), sizeof *comm);
    if (calls == NULL || comm == NULL) {
        abort();
    }
    memset(comm, 0, sizeof *comm);
    comm->ranks.nranks = 2;
    comm->programs.sharing = true;
    if (!kolo_memo_create(comm)) {
        abort();
    }
    calls->comm = comm;
    return calls;
}

void calls_destroy(struct calls *calls)
{
    kolo_memo_destroy(calls->comm);
    free(calls->comm->programs.bounds);
    free(calls->comm);
    free(calls);
}

size_t calls_place(size_t count)
{
    const struct kolo_coll_args args = args_of(count);
    return kolo_memo_place(kolo_memo_key(&args), count);
}

void calls_learn(struct calls *calls, size_t count, int bound)
{
    const struct kolo_coll_args args = args_of(count);
    struct kolo_call call = {.base.comm = calls->comm,
                             .args = args,
                             .extent = kolo_coll_extent_of(&args, 0, 2),
                             .prog = &calls->prog,
                             .bound = &calls->bound,
                             .cached = &calls->cached[bound]};
    kolo_memo_learn(&call);
}

void calls_unbind(struct calls *calls, int bound)
{
    kolo_memo_forget(calls->comm, &calls->cached[bound]);
}

bool calls_know(const struct calls *calls, size_t count)
{
    const struct kolo_coll_args args = args_of(count);
    const struct kolo_memo *memo = kolo_memo_find(calls->comm, kolo_memo_key(&args), count);
    return memo != NULL && memo->count == count;
}
