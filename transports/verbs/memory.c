// SPDX-License-Identifier: Apache-2.0
/* Registration of memory that is read or written in place.
 *
 * The registration of lasting memory (src/memory/lasting.h) is kept: at most KEPT registrations and
 * KOLO_IB_PINNED bytes. The least recently used registration goes first.
 *
 * For other memory, each message registers its buffer, and gives the registration back at its end.
 * A registration outlives the mapping at its address. A kept one would later write to pages that no
 * longer belong to the buffer.
 *
 * map() registers the memory of a GPU before its messages are posted. Messages find it here. */
#include "memory/lasting.h"
#include "transports/verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { KEPT = 64 };

struct kolo_verbs_hold {
    struct ibv_mr *mr[KOLO_VERBS_RAILS];
    struct kolo_lasting of;       /* name 0: for one message (no range), or GPU memory (a range) */
    struct kolo_verbs_hold *next; /* among GPU memory */
    int users;
    uint64_t used; /* the keeper's turn of the last use */
};

struct kolo_verbs_keeper {
    struct kolo_verbs_hold *hold[KEPT];
    int count;
    size_t bytes, most;
    uint64_t turns, gone; /* gone: kolo_lasting_gone() at the last sweep */
    struct kolo_verbs_hold *of_gpu;
};

kolo_status kolo_verbs_memory_open(struct kolo_endpoint *ep)
{
    const char *text = kolo_env("KOLO_IB_PINNED");
    size_t most = SIZE_MAX;
    if (text != NULL && !kolo_parse_bytes(text, &most)) {
        return kolo_fail(KOLO_ERR_INVALID, "KOLO_IB_PINNED is \"%.40s\"; it is bytes, such as 4G",
                         text);
    }
    ep->keeper = calloc(1, sizeof *ep->keeper);
    if (ep->keeper == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "verbs: out of memory for registrations");
    }
    ep->keeper->most = most;
    (void)kolo_lasting_keepers(1);
    return KOLO_OK;
}

kolo_status kolo_verbs_memory_refused(const struct kolo_verbs_rail *rail, size_t len, int error)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY || (error != ENOMEM && error != EAGAIN)) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s registers no %zu bytes: %s", rail->name, len,
                         kolo_why(error));
    }
    return kolo_fail(
        KOLO_ERR_SYSTEM,
        "%s registers no %zu bytes: this process may lock %llu KiB of memory; set "
        "\"ulimit -l unlimited\" where it starts (LimitMEMLOCK=infinity for a service, "
        "--ulimit memlock=-1 for a container)",
        rail->name, len, (unsigned long long)limit.rlim_cur >> 10);
}

static void release_hold(const struct kolo_endpoint *ep, struct kolo_verbs_hold *hold)
{
    for (int i = 0; i < ep->nrails; i++) {
        if (hold->mr[i] != NULL) {
            (void)ep->lib->dereg_mr(hold->mr[i]);
        }
    }
    free(hold);
}

/* Register at all rails. NULL: *rail_out and errno get the rail that refuses, and why. */
static struct kolo_verbs_hold *register_range(struct kolo_endpoint *ep, void *at, size_t len,
                                              int access, int *rail_out)
{
    struct kolo_verbs_hold *hold = calloc(1, sizeof *hold);
    *rail_out = 0;
    for (int i = 0; hold != NULL && i < ep->nrails; i++) {
        errno = 0;
        hold->mr[i] = ep->lib->reg_mr(ep->rail[i].pd, at, len, access);
        if (hold->mr[i] == NULL) {
            const int error = errno;
            release_hold(ep, hold);
            *rail_out = i;
            errno = error;
            return NULL;
        }
    }
    return hold;
}

/* ---- kept registrations ---- */

static void forget_kept(struct kolo_endpoint *ep, int at)
{
    struct kolo_verbs_keeper *k = ep->keeper;
    struct kolo_verbs_hold *hold = k->hold[at];
    k->hold[at] = k->hold[--k->count];
    k->bytes -= hold->of.len;
    hold->of.name = 0; /* the last user releases it */
    if (hold->users == 0) {
        release_hold(ep, hold);
    }
}

/* Forget the registrations of ranges that are gone, so that no message finds them. */
static void sweep_kept(struct kolo_endpoint *ep)
{
    struct kolo_verbs_keeper *k = ep->keeper;
    const uint64_t gone = kolo_lasting_gone();
    for (int i = 0; gone != k->gone && i < k->count;) {
        if (kolo_lasting_is(k->hold[i]->of.name)) {
            i++;
        } else {
            forget_kept(ep, i);
        }
    }
    k->gone = gone;
}

/* Make room for `bytes`. False: every kept registration is in use, or `bytes` exceed the limit. */
static bool make_room(struct kolo_endpoint *ep, size_t bytes)
{
    struct kolo_verbs_keeper *k = ep->keeper;
    while (bytes <= k->most && (k->count == KEPT || k->bytes > k->most - bytes)) {
        int oldest = -1;
        for (int i = 0; i < k->count; i++) {
            const bool older = oldest < 0 || k->hold[i]->used < k->hold[oldest]->used;
            oldest = k->hold[i]->users == 0 && older ? i : oldest;
        }
        if (oldest < 0) {
            return false;
        }
        forget_kept(ep, oldest);
    }
    return bytes <= k->most;
}

/* The registration of the whole range. NULL: there is none, and the message registers its part. */
static struct kolo_verbs_hold *keep_range(struct kolo_endpoint *ep,
                                          const struct kolo_lasting *range)
{
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct kolo_verbs_keeper *k = ep->keeper;
    int rail = 0;
    for (int i = 0; i < k->count; i++) {
        if (k->hold[i]->of.name == range->name) {
            return k->hold[i];
        }
    }
    struct kolo_verbs_hold *hold =
        make_room(ep, range->len) ? register_range(ep, range->at, range->len, access, &rail) : NULL;
    if (hold != NULL) {
        hold->of = *range;
        k->hold[k->count++] = hold;
        k->bytes += range->len;
    }
    return hold;
}

void kolo_verbs_memory_close(struct kolo_endpoint *ep)
{
    while (ep->keeper != NULL && ep->keeper->count > 0) {
        forget_kept(ep, 0);
    }
}

void kolo_verbs_memory_free(struct kolo_endpoint *ep)
{
    if (ep->keeper != NULL) {
        (void)kolo_lasting_keepers(-1);
        free(ep->keeper);
    }
}

/* ---- memory of a GPU ---- */

static struct ibv_mr *register_dma_buf(const struct kolo_endpoint *ep, int rail, void *at,
                                       size_t len, int fd, uint64_t offset)
{
    return ep->lib->reg_dmabuf_mr(ep->rail[rail].pd, offset, len, (uintptr_t)at, fd,
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static kolo_status register_gpu(const struct kolo_endpoint *ep, struct kolo_verbs_hold *hold,
                                void *at, size_t len)
{
    uint64_t offset = 0;
    int fd = -1;
    KOLO_TRY(ep->env.dma_buf(ep->env.owner, at, len, &fd, &offset));
    kolo_status st = KOLO_OK;
    for (int i = 0; i < ep->nrails && st == KOLO_OK; i++) {
        errno = 0;
        hold->mr[i] = register_dma_buf(ep, i, at, len, fd, offset);
        if (hold->mr[i] == NULL) {
            st = kolo_fail(KOLO_ERR_UNSUPPORTED, "%s registers no dma-buf of %zu bytes: %s",
                           ep->rail[i].name, len, kolo_why(errno));
        }
    }
    (void)close(fd); /* the registrations hold their own references */
    return st;
}

kolo_status kolo_verbs_memory_map(struct kolo_endpoint *ep, void *ptr, size_t len,
                                  struct kolo_mem *out)
{
    if (ptr == NULL || ep->env.dma_buf == NULL) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "verbs maps no memory but that of a GPU");
    }
    if (ep->lib->reg_dmabuf_mr == NULL) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34 has)");
    }
    struct kolo_verbs_hold *hold = calloc(1, sizeof *hold);
    if (hold == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "verbs: out of memory for a registration");
    }
    const kolo_status st = register_gpu(ep, hold, ptr, len);
    if (st != KOLO_OK) {
        release_hold(ep, hold);
        return st;
    }
    hold->of = (struct kolo_lasting){.at = ptr, .len = len};
    hold->users = 1;
    hold->next = ep->keeper->of_gpu;
    ep->keeper->of_gpu = hold;
    *out = (struct kolo_mem){.ptr = ptr, .len = len, .own = hold};
    return KOLO_OK;
}

void kolo_verbs_memory_unmap(struct kolo_endpoint *ep, struct kolo_mem *mem)
{
    struct kolo_verbs_hold **at = &ep->keeper->of_gpu;
    while (*at != mem->own) {
        at = &(*at)->next;
    }
    *at = (*at)->next;
    kolo_verbs_memory_drop(ep, mem->own);
}

static struct kolo_verbs_hold *find_gpu(const struct kolo_endpoint *ep, const void *ptr, size_t len)
{
    const uintptr_t from = (uintptr_t)ptr;
    for (struct kolo_verbs_hold *hold = ep->keeper->of_gpu; hold != NULL; hold = hold->next) {
        const uintptr_t begin = (uintptr_t)hold->of.at;
        if (from >= begin && len <= hold->of.len && from - begin <= hold->of.len - len) {
            return hold;
        }
    }
    return NULL;
}

bool kolo_verbs_memory_is_gpu(const struct kolo_endpoint *ep, const void *at, size_t len)
{
    return ep->keeper->of_gpu != NULL && find_gpu(ep, at, len) != NULL;
}

/* ---- for a message ---- */

static void warn_once(struct kolo_endpoint *ep, int rail, size_t len, int error)
{
    if (!ep->warned) {
        ep->warned = true;
        (void)kolo_verbs_memory_refused(&ep->rail[rail], len, error);
        KOLO_LOG(WARN, NET, "NET/IB : %s; messages are copied instead", kolo_error_text());
    }
}

struct kolo_verbs_hold *kolo_verbs_memory_hold(struct kolo_endpoint *ep, void *at, size_t len,
                                               bool written)
{
    const int access = written ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
    struct kolo_lasting range;
    int rail = 0;
    struct kolo_verbs_hold *of_gpu = find_gpu(ep, at, len);
    if (of_gpu != NULL) {
        of_gpu->users++;
        return of_gpu;
    }
    sweep_kept(ep);
    struct kolo_verbs_hold *hold =
        kolo_lasting_find(at, len, &range) ? keep_range(ep, &range) : NULL;
    if (hold == NULL) {
        hold = register_range(ep, at, len, access, &rail);
    }
    if (hold == NULL && make_room(ep, ep->keeper->most)) { /* kept ones may use up the limit */
        hold = register_range(ep, at, len, access, &rail);
    }
    if (hold == NULL) {
        warn_once(ep, rail, len, errno);
        return NULL;
    }
    hold->users++;
    hold->used = ++ep->keeper->turns;
    return hold;
}

void kolo_verbs_memory_drop(struct kolo_endpoint *ep, struct kolo_verbs_hold *hold)
{
    if (hold != NULL && --hold->users == 0 && hold->of.name == 0) {
        release_hold(ep, hold);
    }
}

uint32_t kolo_verbs_memory_lkey(const struct kolo_verbs_hold *hold, const struct kolo_endpoint *ep,
                                const struct kolo_verbs_rail *rail)
{
    return hold->mr[rail - ep->rail]->lkey;
}

uint32_t kolo_verbs_memory_rkey(const struct kolo_verbs_hold *hold, int rail)
{
    return hold->mr[rail]->rkey;
}
