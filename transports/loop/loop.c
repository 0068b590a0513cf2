// SPDX-License-Identifier: Apache-2.0
/* loop: ranks that are threads of one process. The transport to read first, and to copy.
 *
 * All links and all mapped memory are in one table under one lock (shm is the fast transport). Two
 * links that face each other hold the requests of their ends. The thread that posts the second of a
 * matching pair copies the bytes. Only the owner's progress() sets the status of a request, because
 * the owner reads it without the lock. A memory handle is a number, because it may hold no pointer.
 */
#include "transports/bytes.h"
#include "transports/fifo.h"
#include "transports/futex.h"
#include "transports/transports.h"
#include "util/util.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct kolo_endpoint {
    struct kolo_env env;
};

struct kolo_link {
    struct kolo_link *next;
    struct kolo_endpoint *ep;
    int peer;
    bool gone;                         /* the other end existed and left */
    struct kolo_link *other;           /* the other end, or NULL */
    struct kolo_req_fifo sends, recvs; /* posted; no match at the other end yet */
    struct kolo_req_fifo done;         /* matched; progress() has not reported it yet */
    atomic_int why;                    /* abort()'s status, or 0; any thread */
};

struct region {
    struct region *next;
    uint64_t id, comm;
    void *ptr;
    size_t len;
    bool ours;     /* from map(NULL) */
    bool unmapped; /* kept until no link of its communicator is left */
};

static struct {
    pthread_mutex_t lock;
    struct kolo_link *links;
    struct region *regions;
    uint64_t last_id;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static kolo_status loop_open(const struct kolo_env *env, struct kolo_endpoint **out)
{
    struct kolo_endpoint *ep = calloc(1, sizeof *ep);
    if (ep == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "loop: out of memory for an endpoint");
    }
    ep->env = *env;
    *out = ep;
    return KOLO_OK;
}

static void loop_close(struct kolo_endpoint *ep)
{
    free(ep);
}

static kolo_status loop_probe(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                              struct kolo_reach *out)
{
    const bool here = peer->process == ep->env.self->process;
    *out = (struct kolo_reach){
        .size = sizeof *out, .latency_us = 0.3, .bandwidth_gbs = 8.0, .score = 50, .via = "LOOP"};
    out->caps = here ? KOLO_CAP_HOST | KOLO_CAP_MAP | KOLO_CAP_MESSAGE : 0;
    return KOLO_OK;
}

/* The address is empty: communicator and rank are enough to find a link. */
static kolo_status loop_address(struct kolo_endpoint *ep, void *buf, size_t *len)
{
    (void)ep;
    (void)buf;
    *len = 0;
    return KOLO_OK;
}

/* ---- messages ---- */

static kolo_status post_request(struct kolo_link *link, bool sends, const struct kolo_bytes *data,
                                struct kolo_req *req)
{
    const kolo_status why = (kolo_status)atomic_load(&link->why);
    if (why != KOLO_OK || req->channel >= KOLO_CHANNELS) {
        return kolo_fail(why != KOLO_OK ? why : KOLO_ERR_INVALID,
                         why != KOLO_OK ? "loop: aborted" : "loop: there is no such channel");
    }
    req->status = KOLO_INPROGRESS;
    req->bytes = kolo_bytes_total(data);
    req->moved = 0;
    req->data = *data;
    pthread_mutex_lock(&table.lock);
    struct kolo_link *other = link->other;
    struct kolo_req *match =
        other != NULL ? kolo_req_fifo_take(sends ? &other->recvs : &other->sends, req->channel)
                      : NULL;
    if (match != NULL) {
        const bool equal = req->bytes == match->bytes;
        if (equal) {
            kolo_bytes_copy(sends ? &match->data : &req->data, sends ? &req->data : &match->data);
        }
        if (sends) {
            match->call = req->call;
        } else {
            req->call = match->call;
        }
        req->moved = match->moved = equal ? req->bytes : SIZE_MAX;
        kolo_req_fifo_push(&other->done, match);
    }
    kolo_req_fifo_push(match != NULL ? &link->done : (sends ? &link->sends : &link->recvs), req);
    pthread_mutex_unlock(&table.lock);
    return KOLO_OK;
}

static kolo_status loop_send(struct kolo_link *link, const struct kolo_bytes *src,
                             struct kolo_req *req)
{
    return post_request(link, true, src, req);
}

static kolo_status loop_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                             struct kolo_req *req)
{
    return post_request(link, false, dst, req);
}

/* Finish the requests of `fifo`: as they ended, or with the status `why`. */
static int hand_back(struct kolo_req_fifo *fifo, kolo_status why)
{
    int count = 0;
    for (struct kolo_req *req; (req = kolo_req_fifo_pop(fifo)) != NULL; count++) {
        const kolo_status end = req->moved == req->bytes ? KOLO_OK : KOLO_ERR_MISMATCH;
        req->status = why != KOLO_OK ? why : end;
    }
    return count;
}

static int advance_link(struct kolo_link *link)
{
    const kolo_status why = (kolo_status)atomic_load(&link->why);
    const kolo_status end = why == KOLO_OK && link->gone ? KOLO_ERR_LINK : why;
    int count = hand_back(&link->done, KOLO_OK);
    if (end != KOLO_OK) {
        count += hand_back(&link->sends, end) + hand_back(&link->recvs, end);
    }
    return count;
}

static int loop_progress(struct kolo_endpoint *ep, int budget)
{
    int count = 0;
    pthread_mutex_lock(&table.lock);
    for (struct kolo_link *at = table.links; at != NULL && count < budget; at = at->next) {
        count += at->ep == ep ? advance_link(at) : 0;
    }
    pthread_mutex_unlock(&table.lock);
    return count;
}

static void loop_abort(struct kolo_link *link, kolo_status why)
{
    atomic_store(&link->why, (int)why);
}

/* ---- memory ---- */

static kolo_status loop_map(struct kolo_endpoint *ep, void *ptr, size_t len, struct kolo_mem *out)
{
    const bool ours = ptr == NULL;
    struct region *region = calloc(1, sizeof *region);
    void *bytes = ours ? aligned_alloc(4096, (len + 4095) / 4096 * 4096) : ptr;
    if (region == NULL || bytes == NULL) {
        free(region);
        free(ours ? bytes : NULL);
        return kolo_fail(KOLO_ERR_SYSTEM, "loop: out of memory for a region");
    }
    memset(bytes, 0, ours ? len : 0);
    pthread_mutex_lock(&table.lock);
    *region =
        (struct region){table.regions, ++table.last_id, ep->env.comm, bytes, len, ours, false};
    table.regions = region;
    pthread_mutex_unlock(&table.lock);
    *out = (struct kolo_mem){.ptr = bytes, .len = len, .own = region};
    memcpy(out->handle, &region->id, sizeof region->id);
    return KOLO_OK;
}

/* Under the lock: free unmapped regions; memory of map(NULL) only when no link is left. */
static void free_unmapped(uint64_t comm)
{
    const struct kolo_link *link = table.links;
    while (link != NULL && link->ep->env.comm != comm) {
        link = link->next;
    }
    for (struct region **at = &table.regions; *at != NULL;) {
        struct region *region = *at;
        if (region->comm == comm && region->unmapped && (link == NULL || !region->ours)) {
            *at = region->next;
            free(region->ours ? region->ptr : NULL);
            free(region);
        } else {
            at = &region->next;
        }
    }
}

static void loop_unmap(struct kolo_endpoint *ep, struct kolo_mem *mem)
{
    struct region *region = mem->own;
    pthread_mutex_lock(&table.lock);
    region->unmapped = true;
    free_unmapped(ep->env.comm);
    pthread_mutex_unlock(&table.lock);
}

static kolo_status loop_attach(struct kolo_link *link, const void *handle, void **out, size_t *len)
{
    uint64_t id = 0;
    memcpy(&id, handle, sizeof id);
    pthread_mutex_lock(&table.lock);
    const struct region *region = table.regions;
    while (region != NULL && (region->id != id || region->comm != link->ep->env.comm)) {
        region = region->next;
    }
    if (region != NULL) {
        *out = region->ptr;
        *len = region->len;
    }
    pthread_mutex_unlock(&table.lock);
    return region != NULL ? KOLO_OK : kolo_fail(KOLO_ERR_INVALID, "loop: bad handle");
}

static void loop_wake(struct kolo_link *link, uint32_t *word)
{
    (void)link;
    kolo_futex_wake(word);
}

static kolo_status loop_connect(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                                struct kolo_link **out)
{
    const struct kolo_env *env = &ep->env;
    struct kolo_link *link = calloc(1, sizeof *link);
    if (link == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "loop: out of memory for a link");
    }
    link->ep = ep;
    link->peer = peer->rank;
    pthread_mutex_lock(&table.lock);
    link->next = table.links;
    table.links = link;
    for (struct kolo_link *at = link; at != NULL && link->other == NULL; at = at->next) {
        const struct kolo_env *its = &at->ep->env;
        if (its->comm == env->comm && its->rank == peer->rank && at->peer == env->rank &&
            at->other == NULL && !at->gone) {
            link->other = at; /* a rank's link to itself finds itself */
            at->other = link;
        }
    }
    pthread_mutex_unlock(&table.lock);
    *out = link;
    return KOLO_OK;
}

static void loop_disconnect(struct kolo_link *link)
{
    struct kolo_link **at = &table.links;
    pthread_mutex_lock(&table.lock);
    loop_abort(link, KOLO_ERR_ABORTED);
    (void)advance_link(link);
    while (*at != link) {
        at = &(*at)->next;
    }
    *at = link->next;
    if (link->other != NULL) {
        link->other->gone = true;
        link->other->other = NULL;
    }
    free_unmapped(link->ep->env.comm);
    pthread_mutex_unlock(&table.lock);
    free(link);
}

const struct kolo_transport kolo_transport_loop = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_transport), "loop"},
    .caps = KOLO_CAP_HOST | KOLO_CAP_MAP | KOLO_CAP_MESSAGE,
    .open = loop_open,
    .close = loop_close,
    .probe = loop_probe,
    .address = loop_address,
    .connect = loop_connect,
    .disconnect = loop_disconnect,
    .map = loop_map,
    .unmap = loop_unmap,
    .send = loop_send,
    .recv = loop_recv,
    .progress = loop_progress,
    .abort = loop_abort,
    .attach = loop_attach,
    .wake = loop_wake,
};
