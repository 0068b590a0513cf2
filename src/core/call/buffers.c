// SPDX-License-Identifier: Apache-2.0
/* Entry lines: what each rank's buffers of a call offer to the others.
 *
 * Both ends of a link must lower alike, so in a call with entries every rank waits for everybody's
 * line. That is a round of flags, and useless while nobody has memory to share. So entries begin
 * when the first rank of a communicator has some: it says in its head from which tile on, far
 * enough ahead that every rank sees it before it gets there. A rank is at most KOLO_DEPTH + 1 tiles
 * ahead of one that it met in a tile (it waits for what it reads, and before it writes a line again
 * for those who read it KOLO_DEPTH tiles before), and so at most n-1 times that ahead of anybody:
 * one edge of each tile's plan crosses from those known to have come so far to the others. (Tiles
 * of messages prove nothing and do not count.) Where ranks are threads, or sit on several hosts, or
 * some rank cannot map another, entries are there from the start. */
#include "core/call/memo.h"
#include "core/call/parts.h"
#include "core/link/links.h"
#include "exec/cpu/region.h"
#include "exec/lower/program.h"
#include "memory/segment.h"

#include <stddef.h>
#include <string.h>

/* ---- from when on ---- */

static uint32_t far_ahead(const struct kolo_comm *c)
{
    return (KOLO_DEPTH + 4) * ((uint32_t)c->ranks.nranks + 1);
}

/* 0 means nothing was said, so what is said is odd. */
static void announce(struct kolo_comm *c)
{
    if (!c->programs.announced && kolo_mem_allocs() > 0) {
        const uint32_t from = c->links.exec_env.met + far_ahead(c);
        atomic_store_explicit(&c->links.exec_env.region[c->ranks.rank]->head.shares, from | 1,
                              memory_order_release);
        c->programs.announced = true;
    }
}

bool kolo_comm_must_ask(const struct kolo_comm *c)
{
    if (!c->programs.announced && kolo_mem_allocs() > 0) {
        return true;
    }
    for (int q = 0; q < c->ranks.nranks; q++) {
        const struct kolo_region *region = c->links.exec_env.region[q];
        if (region == NULL ||
            atomic_load_explicit(&region->head.shares, memory_order_relaxed) != 0) {
            return true;
        }
    }
    return false;
}

static kolo_status shares_by_now(struct kolo_comm *c, bool *out)
{
    *out = false;
    announce(c);
    for (int q = 0; q < c->ranks.nranks; q++) {
        pthread_mutex_lock(&c->links.lock);
        const kolo_status st = q == c->ranks.rank ? KOLO_OK : kolo_links_reach(c, q);
        pthread_mutex_unlock(&c->links.lock);
        KOLO_TRY(st);
        const struct kolo_region *region = c->links.exec_env.region[q];
        const uint32_t from =
            region != NULL ? atomic_load_explicit(&region->head.shares, memory_order_acquire) : 0;
        *out = *out || (from != 0 && (int32_t)(c->links.exec_env.met - from) >= 0);
    }
    return KOLO_OK;
}

bool kolo_call_may_have_entries(const struct kolo_call *call)
{
    return call->base.comm->ranks.nranks <= KOLO_WHOLE_PLAN_RANKS && !call->extent.by_messages &&
           call->extent.bytes >= KOLO_ENTRY_BYTES && call->base.comm->links.mapper != NULL;
}

kolo_status kolo_call_decide_entries(struct kolo_call *call)
{
    struct kolo_comm *c = call->base.comm;
    if (!kolo_call_may_have_entries(call)) {
        return KOLO_OK;
    }
    if (!c->programs.sharing) {
        KOLO_TRY(shares_by_now(c, &c->programs.sharing));
        if (c->programs.sharing) {
            kolo_memo_forget(c, NULL);
        }
    }
    call->uses_entries = c->programs.sharing;
    return KOLO_OK;
}

/* ---- lines ---- */

static bool is_apart(const struct kolo_call *call)
{
    const uintptr_t in = (uintptr_t)kolo_call_run_in(call);
    const uintptr_t out = (uintptr_t)kolo_call_run_out(call);
    return !call->extent.has_in || !call->extent.has_out ||
           in >= out + kolo_call_run_elems(call, call->extent.out_elems) * call->run_elem ||
           out >= in + kolo_call_run_elems(call, call->extent.in_elems) * call->run_elem;
}

static uint16_t share(const struct kolo_comm *c, const void *at, size_t bytes,
                      unsigned char handle[32])
{
    struct kolo_mem mem = {0};
    uint32_t id = 0;
    uint64_t offset = 0;
    void *ptr = (void *)(uintptr_t)at;
    if (at == NULL || bytes == 0 || !kolo_segment_find(ptr, bytes, &id, &offset) ||
        c->links.mapper->transport->map(c->links.mapper->endpoint, ptr, bytes, &mem) != KOLO_OK) {
        return 0;
    }
    memcpy(handle, mem.handle, 32);
    return 1;
}

void kolo_call_make_entry(const struct kolo_call *call, struct kolo_entry *out)
{
    const struct kolo_comm *c = call->base.comm;
    *out = (struct kolo_entry){.signature = call->signature, .apart = is_apart(call)};
    if (c->ranks.threads) {
        out->in_at = (uintptr_t)kolo_call_run_in(call);
        out->out_at = (uintptr_t)kolo_call_run_out(call);
    }
    if (call->extent.has_in) {
        out->in_shared =
            share(c, kolo_call_run_in(call),
                  kolo_call_run_elems(call, call->extent.in_elems) * call->run_elem, out->in);
    }
    if (call->extent.has_out) {
        out->out_shared =
            share(c, kolo_call_run_out(call),
                  kolo_call_run_elems(call, call->extent.out_elems) * call->run_elem, out->out);
    }
    out->buffers = kolo_hash(0, out, offsetof(struct kolo_entry, buffers));
}

void kolo_call_publish_entry(const struct kolo_call *call)
{
    struct kolo_entry mine;
    kolo_call_make_entry(call, &mine);
    kolo_entry_publish(&call->base.comm->links.exec_env, &mine);
}

kolo_status kolo_call_wait_entries(struct kolo_call *call, bool block)
{
    struct kolo_comm *c = call->base.comm;
    for (; call->next < c->ranks.nranks; call->next++) {
        const int q = call->next;
        if (q == c->ranks.rank || !c->member[q].maps) {
            continue;
        }
        pthread_mutex_lock(&c->links.lock);
        kolo_status st = kolo_links_reach(c, q);
        pthread_mutex_unlock(&c->links.lock);
        KOLO_TRY(st);
        st = kolo_entry_wait(&c->links.exec_env, q, block);
        if (st != KOLO_OK) {
            return st;
        }
    }
    call->next = 0;
    return KOLO_OK;
}

/* What rank q brings. */
static bool brings_mapped(const struct kolo_call *call, int q)
{
    const struct kolo_exec_env *env = &call->base.comm->links.exec_env;
    const bool to_root = call->args.coll == KOLO_COLL_REDUCE || call->args.coll == KOLO_COLL_GATHER;
    const bool from_root =
        call->args.coll == KOLO_COLL_BROADCAST || call->args.coll == KOLO_COLL_SCATTER;
    const struct kolo_entry *entry = &env->region[q]->entry[env->entries % KOLO_ENTRY_LINES];
    return (entry->in_shared || (from_root && q != call->args.root)) &&
           (entry->out_shared || (to_root && q != call->args.root));
}

bool kolo_call_is_mapped(const struct kolo_call *call)
{
    const struct kolo_comm *c = call->base.comm;
    bool threads = true, mapped = c->ranks.nhosts == 1; /* of one host all regions are mapped */
    for (int q = 0; q < c->ranks.nranks && mapped; q++) {
        threads = threads && c->member[q].peer.process == c->member[0].peer.process;
        mapped = c->links.exec_env.region[q] != NULL;
    }
    for (int q = 0; q < c->ranks.nranks && mapped && !threads; q++) {
        mapped = brings_mapped(call, q);
    }
    return mapped;
}

static kolo_status resolve_one(struct kolo_comm *c, int q, uint32_t shared,
                               const unsigned char handle[32], void **out)
{
    unsigned char whole[KOLO_HANDLE_BYTES] = {0};
    size_t len = 0;
    if (!shared) {
        *out = NULL;
        return KOLO_OK;
    }
    memcpy(whole, handle, 32);
    pthread_mutex_lock(&c->links.lock);
    const kolo_status st = c->member[q].transport->attach(c->member[q].link, whole, out, &len);
    pthread_mutex_unlock(&c->links.lock);
    return st;
}

kolo_status kolo_call_resolve(struct kolo_exec_env *env, int q, const struct kolo_entry *entry)
{
    struct kolo_comm *c = env->owner;
    void *in = (void *)(uintptr_t)entry->in_at, *out = (void *)(uintptr_t)entry->out_at;
    if (c->member[q].peer.process != c->member[c->ranks.rank].peer.process) {
        KOLO_TRY(resolve_one(c, q, entry->in_shared, entry->in, &in));
        KOLO_TRY(resolve_one(c, q, entry->out_shared, entry->out, &out));
    }
    env->peer_in[q] = in;
    env->peer_out[q] = out;
    return KOLO_OK;
}
