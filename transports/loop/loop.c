// SPDX-License-Identifier: Apache-2.0
/* loop: ranks that are threads of one process. The transport to read first, and to copy.
 *
 * All links and all named memory lie in one table under one lock (shm is the fast one). Two links
 * that face each other hold the requests of their ends; whoever posts the second of a matching
 * pair copies the bytes. Only the owner's progress() sets a request's status, because the owner
 * reads it without the lock. A memory handle is a number, as a handle is no pointer. */
#include "transports/bytes.h"
#include "transports/fifo.h"
#include "transports/futex.h"
#include "transports/transports.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct kolo_device {
    struct kolo_env env;
};

struct kolo_link {
    struct kolo_link *next;
    struct kolo_device *dev;
    int peer;
    bool gone;                     /* the other end was there and left */
    struct kolo_link *other;       /* the other end, or NULL */
    struct kolo_fifo sends, recvs; /* posted, and nothing at the other end matches */
    struct kolo_fifo done;         /* matched; the owner does not know yet */
    atomic_int why;                /* abort()'s status, or 0; any thread */
};

struct region {
    struct region *next;
    uint64_t id, comm;
    void *ptr;
    size_t len;
    bool ours;     /* from map(NULL) */
    bool unmapped; /* but kept until no link of its communicator can look at it */
};

static struct {
    pthread_mutex_t lock;
    struct kolo_link *links;
    struct region *regions;
    uint64_t last_id;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static kolo_status loop_open(const struct kolo_env *env, struct kolo_device **out)
{
    struct kolo_device *dev = calloc(1, sizeof *dev);
    if (dev == NULL) {
        return env->fail(KOLO_ERR_SYSTEM, "loop: no memory for a device");
    }
    dev->env = *env;
    *out = dev;
    return KOLO_OK;
}

static void loop_close(struct kolo_device *dev)
{
    free(dev);
}

static kolo_status loop_probe(struct kolo_device *dev, const struct kolo_peer *peer,
                              struct kolo_reach *out)
{
    const bool here = peer->process == dev->env.self->process;
    *out = (struct kolo_reach){
        .size = sizeof *out, .latency_us = 0.3, .bandwidth_gbs = 8.0, .score = 50, .via = "LOOP"};
    out->caps = here ? KOLO_CAP_HOST | KOLO_CAP_MAP | KOLO_CAP_MESSAGE : 0;
    return KOLO_OK;
}

/* Nothing to tell: the communicator and the rank are enough to meet. */
static kolo_status loop_address(struct kolo_device *dev, void *buf, size_t *len)
{
    (void)dev;
    (void)buf;
    *len = 0;
    return KOLO_OK;
}

/* ---- messages ---- */

static kolo_status post(struct kolo_link *link, bool sends, const struct kolo_bytes *data,
                        struct kolo_req *req)
{
    const kolo_status why = (kolo_status)atomic_load(&link->why);
    if (why != KOLO_OK || req->channel >= KOLO_CHANNELS) {
        return link->dev->env.fail(why != KOLO_OK ? why : KOLO_ERR_INVALID,
                                   why != KOLO_OK ? "loop: aborted"
                                                  : "loop: there is no such channel");
    }
    req->status = KOLO_INPROGRESS;
    req->bytes = kolo_bytes_total(data);
    req->moved = 0;
    req->data = *data;
    pthread_mutex_lock(&table.lock);
    struct kolo_link *other = link->other;
    struct kolo_req *match =
        other != NULL ? kolo_fifo_take(sends ? &other->recvs : &other->sends, req->channel) : NULL;
    if (match != NULL) {
        const bool equal = req->bytes == match->bytes;
        if (equal) {
            kolo_bytes_copy(sends ? &match->data : &req->data, sends ? &req->data : &match->data);
        }
        req->moved = match->moved = equal ? req->bytes : SIZE_MAX;
        kolo_fifo_push(&other->done, match);
    }
    kolo_fifo_push(match != NULL ? &link->done : (sends ? &link->sends : &link->recvs), req);
    pthread_mutex_unlock(&table.lock);
    return KOLO_OK;
}

static kolo_status loop_send(struct kolo_link *link, const struct kolo_bytes *src,
                             struct kolo_req *req)
{
    return post(link, true, src, req);
}

static kolo_status loop_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                             struct kolo_req *req)
{
    return post(link, false, dst, req);
}

/* Hand the requests of `fifo` back: as they ended, or with the status `why`. */
static int hand_back(struct kolo_fifo *fifo, kolo_status why)
{
    int count = 0;
    for (struct kolo_req *req; (req = kolo_fifo_pop(fifo)) != NULL; count++) {
        const kolo_status end = req->moved == req->bytes ? KOLO_OK : KOLO_ERR_MISMATCH;
        req->status = why != KOLO_OK ? why : end;
    }
    return count;
}

static int advance(struct kolo_link *link)
{
    const kolo_status why = (kolo_status)atomic_load(&link->why);
    const kolo_status end = why == KOLO_OK && link->gone ? KOLO_ERR_LINK : why;
    int count = hand_back(&link->done, KOLO_OK);
    if (end != KOLO_OK) {
        count += hand_back(&link->sends, end) + hand_back(&link->recvs, end);
    }
    return count;
}

static int loop_progress(struct kolo_device *dev, int budget)
{
    int count = 0;
    pthread_mutex_lock(&table.lock);
    for (struct kolo_link *at = table.links; at != NULL && count < budget; at = at->next) {
        count += at->dev == dev ? advance(at) : 0;
    }
    pthread_mutex_unlock(&table.lock);
    return count;
}

static void loop_abort(struct kolo_link *link, kolo_status why)
{
    atomic_store(&link->why, (int)why);
}

/* ---- memory ---- */

static kolo_status loop_map(struct kolo_device *dev, void *ptr, size_t len, struct kolo_mem *out)
{
    const bool ours = ptr == NULL;
    struct region *region = calloc(1, sizeof *region);
    void *bytes = ours ? aligned_alloc(4096, (len + 4095) / 4096 * 4096) : ptr;
    if (region == NULL || bytes == NULL) {
        free(region);
        free(ours ? bytes : NULL);
        return dev->env.fail(KOLO_ERR_SYSTEM, "loop: no memory for a region");
    }
    memset(bytes, 0, ours ? len : 0);
    pthread_mutex_lock(&table.lock);
    *region =
        (struct region){table.regions, ++table.last_id, dev->env.comm, bytes, len, ours, false};
    table.regions = region;
    pthread_mutex_unlock(&table.lock);
    *out = (struct kolo_mem){.ptr = bytes, .len = len, .own = region};
    memcpy(out->handle, &region->id, sizeof region->id);
    return KOLO_OK;
}

/* Under the lock: free what was unmapped; our own memory only when no link is left. */
static void sweep(uint64_t comm)
{
    const struct kolo_link *link = table.links;
    while (link != NULL && link->dev->env.comm != comm) {
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

static void loop_unmap(struct kolo_device *dev, struct kolo_mem *mem)
{
    struct region *region = mem->own;
    pthread_mutex_lock(&table.lock);
    region->unmapped = true;
    sweep(dev->env.comm);
    pthread_mutex_unlock(&table.lock);
}

static kolo_status loop_attach(struct kolo_link *link, const void *handle, void **out, size_t *len)
{
    uint64_t id = 0;
    memcpy(&id, handle, sizeof id);
    pthread_mutex_lock(&table.lock);
    const struct region *region = table.regions;
    while (region != NULL && (region->id != id || region->comm != link->dev->env.comm)) {
        region = region->next;
    }
    if (region != NULL) {
        *out = region->ptr;
        *len = region->len;
    }
    pthread_mutex_unlock(&table.lock);
    return region != NULL ? KOLO_OK : link->dev->env.fail(KOLO_ERR_INVALID, "loop: bad handle");
}

static void loop_wake(struct kolo_link *link, uint32_t *word)
{
    (void)link;
    kolo_futex_wake(word);
}

static kolo_status loop_connect(struct kolo_device *dev, const struct kolo_peer *peer,
                                struct kolo_link **out)
{
    const struct kolo_env *env = &dev->env;
    struct kolo_link *link = calloc(1, sizeof *link);
    if (link == NULL) {
        return env->fail(KOLO_ERR_SYSTEM, "loop: no memory for a link");
    }
    link->dev = dev;
    link->peer = peer->rank;
    pthread_mutex_lock(&table.lock);
    link->next = table.links;
    table.links = link;
    for (struct kolo_link *at = link; at != NULL && link->other == NULL; at = at->next) {
        const struct kolo_env *its = &at->dev->env;
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
    (void)advance(link);
    while (*at != link) {
        at = &(*at)->next;
    }
    *at = link->next;
    if (link->other != NULL) {
        link->other->gone = true;
        link->other->other = NULL;
    }
    sweep(link->dev->env.comm);
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
