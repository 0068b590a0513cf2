// SPDX-License-Identifier: Apache-2.0
/* Links to peers, and the memory of peers: each is made when a call first needs it. */
#include "core/link/links.h"

#include "exec/cpu/wait.h"
#include "memory/segment.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

/* Whoever fails after this tells the new link; whoever failed before is seen here. */
static kolo_status check_failure(const struct kolo_comm *c)
{
    const int error = atomic_load(&c->failure.error);
    return error == KOLO_OK ? KOLO_OK : kolo_fail((kolo_status)error, "%s", c->failure.text);
}

/* The link to rank q, or memory of rank q, cannot be had. Unless there is evidence, rank q is at
 * fault. */
static kolo_status blame(struct kolo_comm *c, int q, kolo_status status)
{
    if (status == KOLO_ERR_PEER || status == KOLO_ERR_LINK) {
        c->links.exec_env.blamed = q;
    }
    return status;
}

kolo_status kolo_links_connect(struct kolo_comm *c, int q)
{
    struct kolo_member *m = &c->member[q];
    assert(KOLO_IS_HELD(&c->links.lock));
    if (m->link != NULL) {
        return KOLO_OK;
    }
    KOLO_TRY(blame(c, q, m->transport->connect(m->device, &m->peer, &m->link)));
    c->links.exec_env.link[q] = m->link;
    atomic_store(&m->abort_link, m->link);
    return check_failure(c);
}

kolo_status kolo_links_reach(struct kolo_comm *c, int q)
{
    struct kolo_member *m = &c->member[q];
    void *region = NULL;
    size_t len = 0;
    KOLO_TRY(kolo_links_connect(c, q));
    if (!m->maps || c->links.exec_env.region[q] != NULL) {
        return KOLO_OK;
    }
    KOLO_TRY(blame(c, q, m->transport->attach(m->link, m->region, &region, &len)));
    if (len < kolo_region_bytes(c->links.exec_env.phases)) {
        return kolo_fail(KOLO_ERR_INTERNAL, "the region of rank %d has %zu bytes", q, len);
    }
    c->links.exec_env.region[q] = region;
    atomic_store(&m->abort_region, c->links.exec_env.region[q]);
    return check_failure(c);
}

static size_t outbox_bytes(const struct kolo_comm *c)
{
    return kolo_outbox_bytes(c->links.exec_env.slot_bytes, c->links.exec_env.short_slot_bytes);
}

static size_t long_bytes(const struct kolo_comm *c)
{
    return KOLO_LONG_DEPTH * c->links.exec_env.slot_bytes;
}

kolo_status kolo_links_make_outbox(struct kolo_comm *c)
{
    struct kolo_head *head = &c->links.exec_env.region[c->ranks.rank]->head;
    assert(KOLO_IS_HELD(&c->links.lock));
    if (c->links.slots.ptr != NULL || c->links.mapper == NULL) {
        return KOLO_OK;
    }
    struct kolo_mem slots;
    const struct kolo_opened *mapper = c->links.mapper;
    KOLO_TRY(mapper->transport->map(mapper->endpoint, NULL, outbox_bytes(c), &slots));
    const kolo_status st =
        kolo_segment_reserve_at((char *)slots.ptr + long_bytes(c), outbox_bytes(c) - long_bytes(c));
    if (st != KOLO_OK) {
        mapper->transport->unmap(mapper->endpoint, &slots);
        return st;
    }
    c->links.slots = slots;
    (void)madvise(c->links.slots.ptr, c->links.slots.len, MADV_HUGEPAGE);
    c->links.exec_env.slots[c->ranks.rank] = c->links.slots.ptr;
    memcpy(head->slots, c->links.slots.handle, sizeof head->slots);
    atomic_store_explicit(&head->slots_ready, 1, memory_order_release);
    kolo_wake(head);
    KOLO_LOG(INFO, EXEC, "comm %p rank %d outbox %zu bytes", (void *)c, c->ranks.rank,
             c->links.slots.len);
    return KOLO_OK;
}

kolo_status kolo_links_reserve_long(struct kolo_comm *c)
{
    if (c->links.slots.ptr == NULL || c->links.reserved_long) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_segment_reserve_at(c->links.slots.ptr, long_bytes(c)));
    c->links.reserved_long = true;
    return KOLO_OK;
}

kolo_status kolo_links_map_outbox(struct kolo_comm *c, int q)
{
    struct kolo_member *m = &c->member[q];
    void *slots = NULL;
    size_t len = 0;
    assert(KOLO_IS_HELD(&c->links.lock));
    if (m->in_slots) {
        return KOLO_OK;
    }
    struct kolo_head *head = &c->links.exec_env.region[q]->head;
    if (!kolo_reached(&head->slots_ready, 1)) {
        return KOLO_INPROGRESS;
    }
    KOLO_TRY(blame(c, q, m->transport->attach(m->link, head->slots, &slots, &len)));
    if (len < outbox_bytes(c)) {
        return kolo_fail(KOLO_ERR_INTERNAL, "the outbox of rank %d has %zu bytes", q, len);
    }
    c->links.exec_env.slots[q] = slots;
    m->in_slots = true;
    return KOLO_OK;
}

/* ---- memory of a device ---- */

void kolo_links_lend_memory(struct kolo_comm *c, const struct kolo_device_memory *memory)
{
    c->links.lent = memory;
}

bool kolo_links_take_memory(const struct kolo_comm *c, int q, size_t bytes)
{
    return c->links.lent != NULL && c->links.lent->endpoint != NULL &&
           bytes >= c->links.lent->least_bytes && c->links.lent->endpoint == c->member[q].device;
}

static kolo_status refuse_memory(void)
{
    return kolo_fail(KOLO_ERR_UNSUPPORTED, "this communicator has no GPU");
}

kolo_status kolo_links_dma_buf(void *comm, const void *at, size_t len, int *fd, uint64_t *offset)
{
    const struct kolo_device_memory *lent = ((const struct kolo_comm *)comm)->links.lent;
    return lent != NULL ? lent->dma_buf(lent->owner, at, len, fd, offset) : refuse_memory();
}

kolo_status kolo_links_copy(void *comm, void *to, const void *from, size_t len, bool to_device)
{
    const struct kolo_device_memory *lent = ((const struct kolo_comm *)comm)->links.lent;
    return lent != NULL ? lent->copy(lent->owner, to, from, len, to_device) : refuse_memory();
}
