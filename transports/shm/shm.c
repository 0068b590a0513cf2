// SPDX-License-Identifier: Apache-2.0
/* shm: the transport between ranks on one host, both threads and processes.
 *
 * Threads use each other's memory directly. Processes map each other's segments. The owner's
 * service (memory/serve.h) hands out the descriptor at the first use of a segment. Messages go
 * through rings in the sender's region (message.c). */
#include "transports/shm/shm.h"

#include "transports/futex.h"
#include "util/grow.h"

#include <stdlib.h>

static uint64_t first_half(const struct kolo_shm_identity *identity)
{
    uint64_t half = 0;
    memcpy(&half, identity->name, sizeof half);
    return half;
}

static kolo_status shm_open_endpoint(const struct kolo_env *env, struct kolo_endpoint **out)
{
    struct kolo_endpoint *ep = calloc(1, sizeof *ep);
    kolo_status status = KOLO_ERR_SYSTEM;
    if (ep == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: out of memory for an endpoint");
    }
    ep->env = *env;
    KOLO_TRY_GOTO(status, kolo_service_identity(&ep->identity), err_free);
    KOLO_TRY_GOTO(status, kolo_segment_create(kolo_shm_region_bytes(env->nranks), &ep->region),
                  err_free);
    KOLO_TRY_GOTO(status, kolo_shm_region_prepare(ep->region, env->nranks), err_drop);
    ep->process = first_half(&ep->identity);
    *out = ep;
    return KOLO_OK;

err_drop:
    kolo_segment_drop(ep->region);
err_free:
    free(ep);
    return status;
}

static void shm_close(struct kolo_endpoint *ep)
{
    if (ep->serves) {
        kolo_service_stop();
    }
    kolo_segment_drop(ep->region);
    free(ep);
}

/* Start the service if the peer is another process: it will ask for our segments. */
static kolo_status serve_peer(struct kolo_endpoint *ep, const struct kolo_peer *peer)
{
    if (ep->serves || peer->process == ep->env.self->process) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_service_start());
    ep->serves = true;
    return KOLO_OK;
}

static kolo_status shm_probe(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                             struct kolo_reach *out)
{
    struct kolo_reach reach = {.size = sizeof reach,
                               .latency_us = 0.2,
                               .bandwidth_gbs = 10.0,
                               .score = 100,
                               .via = "SHM/direct"};
    if (peer->host == ep->env.self->host) {
        KOLO_TRY(serve_peer(ep, peer));
        reach.caps = KOLO_CAP_HOST | KOLO_CAP_MAP | KOLO_CAP_MESSAGE;
    }
    *out = reach;
    return KOLO_OK;
}

static kolo_status shm_address(struct kolo_endpoint *ep, void *buf, size_t *len)
{
    const struct kolo_own_fd *file = kolo_segment_file(ep->region);
    const struct kolo_shm_address address = {.magic = KOLO_SHM_MAGIC,
                                             .region = kolo_segment_id(ep->region),
                                             .region_bytes = kolo_shm_region_bytes(ep->env.nranks),
                                             .identity = ep->identity,
                                             .device = file->device,
                                             .inode = file->inode,
                                             .fd = file->fd};
    if (*len < sizeof address) {
        return kolo_fail(KOLO_ERR_INVALID, "shared memory: an address takes %zu bytes",
                         sizeof address);
    }
    memcpy(buf, &address, sizeof address);
    *len = sizeof address;
    return KOLO_OK;
}

/* ---- views: the segments that a link holds ---- */

/* The place of `id` among the sorted views, or the place to insert it at. */
static int view_place(const struct kolo_link *link, uint32_t id)
{
    int lo = 0;
    int hi = link->nviews;
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (link->views[mid].id < id) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static kolo_status hold_segment(struct kolo_link *link, uint32_t id, const struct kolo_own_fd *file,
                                struct kolo_shm_view *view)
{
    view->id = id;
    if (link->local) {
        view->own = kolo_segment_hold(id, &view->len);
        if (view->own == NULL) {
            return kolo_fail(KOLO_ERR_INVALID, "rank %d has no memory segment %u", link->peer.rank,
                             id);
        }
        view->base = kolo_segment_base(view->own);
        return KOLO_OK;
    }
    void *base = NULL;
    KOLO_TRY(kolo_remote_hold(&link->peer, id, file, &view->remote, &base, &view->len));
    view->base = base;
    return KOLO_OK;
}

/* The link's view of the peer's segment `id`. The first use makes it, disconnect drops it. */
static kolo_status view_segment(struct kolo_link *link, uint32_t id, const struct kolo_own_fd *file,
                                struct kolo_shm_view *out)
{
    const int place = view_place(link, id);
    if (place < link->nviews && link->views[place].id == id) {
        *out = link->views[place];
        return KOLO_OK;
    }
    struct kolo_shm_view *views = kolo_grow(link->views, link->nviews, &link->cap, sizeof *views);
    if (views == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: out of memory for a view");
    }
    link->views = views;
    struct kolo_shm_view view = {0};
    KOLO_TRY(hold_segment(link, id, file, &view));
    memmove(link->views + place + 1, link->views + place,
            (size_t)(link->nviews - place) * sizeof view);
    link->views[place] = view;
    link->nviews++;
    *out = view;
    return KOLO_OK;
}

static void drop_views(struct kolo_link *link)
{
    for (int i = 0; i < link->nviews; i++) {
        if (link->views[i].own != NULL) {
            kolo_segment_drop(link->views[i].own);
        } else {
            kolo_remote_drop(link->views[i].remote);
        }
    }
    free(link->views);
}

/* ---- links ---- */

static kolo_status read_address(const struct kolo_endpoint *ep, const struct kolo_peer *peer,
                                struct kolo_shm_address *out)
{
    if (peer->address_len != sizeof *out) {
        return kolo_fail(KOLO_ERR_VERSION, "rank %d's shared memory address has %zu bytes, not %zu",
                         peer->rank, peer->address_len, sizeof *out);
    }
    memcpy(out, peer->address, sizeof *out);
    if (out->magic != KOLO_SHM_MAGIC ||
        out->region_bytes != kolo_shm_region_bytes(ep->env.nranks)) {
        return kolo_fail(KOLO_ERR_VERSION, "rank %d's shared memory has another layout",
                         peer->rank);
    }
    return KOLO_OK;
}

static kolo_status shm_connect(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                               struct kolo_link **out)
{
    struct kolo_shm_address address;
    struct kolo_shm_view view;
    KOLO_TRY(read_address(ep, peer, &address));
    KOLO_TRY(kolo_check_range("rank", peer->rank, 0, ep->env.nranks - 1));
    KOLO_TRY(serve_peer(ep, peer));
    struct kolo_link *link = calloc(1, sizeof *link);
    if (link == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: out of memory for a link");
    }
    link->ep = ep;
    link->local = peer->process == ep->env.self->process;
    link->peer = (struct kolo_shm_owner){address.identity, peer->rank,      peer->pid,
                                         ep->env.aborted,  ep->env.on_wait, ep->env.owner};
    link->process = first_half(&address.identity);
    const struct kolo_own_fd file = {address.fd, address.device, address.inode};
    kolo_status status = view_segment(link, address.region, &file, &view);
    if (status == KOLO_OK && view.len < address.region_bytes) {
        status = kolo_fail(KOLO_ERR_VERSION, "rank %d's region has %zu bytes, not %zu", peer->rank,
                           view.len, (size_t)address.region_bytes);
    }
    if (status < 0) {
        drop_views(link);
        free(link);
        return status;
    }
    link->region = view.base;
    *out = link;
    return KOLO_OK;
}

static void shm_disconnect(struct kolo_link *link)
{
    kolo_shm_hang_up(link, KOLO_ERR_ABORTED);
    drop_views(link);
    free(link);
}

static void shm_abort(struct kolo_link *link, kolo_status why)
{
    int none = 0;
    (void)atomic_compare_exchange_strong(&link->why, &none, (int)why); /* the first reason stays */
}

/* ---- memory ---- */

static void fill_handle(const struct kolo_endpoint *ep, const struct kolo_segment *segment,
                        struct kolo_mem *mem)
{
    const struct kolo_own_fd *file = kolo_segment_file(segment);
    const struct kolo_shm_handle handle = {.process = ep->process,
                                           .segment = kolo_segment_id(segment),
                                           .fd = file->fd,
                                           .len = mem->len,
                                           .device = file->device,
                                           .inode = file->inode};
    memcpy(mem->handle, &handle, sizeof handle);
}

/* Memory of the caller. The board is told with its file, too: hundreds of ranks ask for it at once. */
static void fill_part(const struct kolo_endpoint *ep, uint32_t id, uint64_t offset,
                      struct kolo_mem *mem)
{
    size_t len = 0;
    struct kolo_segment *segment = offset == 0 ? kolo_segment_hold(id, &len) : NULL;
    const struct kolo_shm_handle handle = {
        .process = ep->process, .segment = id, .fd = -1, .offset = offset, .len = mem->len};
    memcpy(mem->handle, &handle, sizeof handle);
    if (segment != NULL) {
        fill_handle(ep, segment, mem);
        kolo_segment_drop(segment);
    }
}

/* Nothing is reserved here: core does so for the part that it is about to use, which is little of a
 * region in most programs. */
static kolo_status map_own(struct kolo_endpoint *ep, size_t len, struct kolo_mem *out)
{
    struct kolo_segment *segment = NULL;
    KOLO_TRY(kolo_segment_create(len, &segment));
    *out = (struct kolo_mem){.ptr = kolo_segment_base(segment), .len = len, .own = segment};
    fill_handle(ep, segment, out);
    return KOLO_OK;
}

static kolo_status shm_map(struct kolo_endpoint *ep, void *ptr, size_t len, struct kolo_mem *out)
{
    uint32_t id = 0;
    uint64_t offset = 0;
    if (len == 0) {
        return kolo_fail(KOLO_ERR_INVALID, "shared memory: mapping 0 bytes");
    }
    if (ptr == NULL) {
        return map_own(ep, len, out);
    }
    if (!kolo_segment_find(ptr, len, &id, &offset)) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "private memory cannot be mapped by another process; "
                         "memory of kolo_mem_alloc() can");
    }
    *out = (struct kolo_mem){.ptr = ptr, .len = len, .own = NULL};
    fill_part(ep, id, offset, out);
    return KOLO_OK;
}

static void shm_unmap(struct kolo_endpoint *ep, struct kolo_mem *mem)
{
    (void)ep;
    if (mem->own != NULL) {
        kolo_segment_drop(mem->own);
    }
}

static kolo_status shm_attach(struct kolo_link *link, const void *bytes, void **out, size_t *len)
{
    struct kolo_shm_handle handle;
    struct kolo_shm_view view;
    memcpy(&handle, bytes, sizeof handle);
    if (handle.process != link->process) {
        return kolo_fail(KOLO_ERR_INVALID, "the handle is not of rank %d", link->peer.rank);
    }
    const struct kolo_own_fd file = {handle.fd, handle.device, handle.inode};
    KOLO_TRY(view_segment(link, handle.segment, &file, &view));
    if (handle.offset > view.len || handle.len > view.len - handle.offset) {
        return kolo_fail(KOLO_ERR_INVALID, "the handle of rank %d exceeds its segment",
                         link->peer.rank);
    }
    *out = view.base + handle.offset;
    *len = handle.len;
    return KOLO_OK;
}

static void shm_wake(struct kolo_link *link, uint32_t *word)
{
    (void)link;
    kolo_futex_wake(word);
}

const struct kolo_transport kolo_transport_shm = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_transport), "shm"},
    .caps = KOLO_CAP_HOST | KOLO_CAP_MAP | KOLO_CAP_MESSAGE,
    .open = shm_open_endpoint,
    .close = shm_close,
    .probe = shm_probe,
    .address = shm_address,
    .connect = shm_connect,
    .disconnect = shm_disconnect,
    .map = shm_map,
    .unmap = shm_unmap,
    .send = kolo_shm_send,
    .recv = kolo_shm_recv,
    .progress = kolo_shm_progress,
    .abort = shm_abort,
    .attach = shm_attach,
    .wake = shm_wake,
    .bell = kolo_shm_bell,
    .ring = kolo_shm_ring,
};
