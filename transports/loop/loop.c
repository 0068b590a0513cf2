// SPDX-License-Identifier: Apache-2.0
/* loop: ranks that are threads of one process. The transport to read first, and to copy.
 *
 * Everything lies in one table under one lock (shm is the fast one): the devices, one for a rank
 * of a communicator, their links, and the memory they named. Two links that face each other hold
 * the requests of their ends; whoever posts the second of a matching pair copies the bytes. Only
 * the owner's progress() sets a request's status, because the owner reads it without the lock. */
#include "transports/bytes.h"
#include "transports/transports.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct fifo {
    struct kolo_req *first, *last;
};

struct kolo_link {
    struct kolo_link *next;
    struct kolo_device *dev;
    int peer;
    bool gone;                /* the other end was there and left */
    struct kolo_link *other;  /* the other end, or NULL */
    struct fifo sends, recvs; /* posted, and nothing at the other end matches */
    struct fifo done;         /* matched; the owner does not know yet */
    atomic_int why;           /* abort()'s status, or 0; any thread */
};

struct kolo_device {
    struct kolo_device *next;
    struct kolo_env env;
    struct kolo_link *links;
};

/* Memory that map() named: the handle is its number. */
struct region {
    struct region *next;
    uint64_t id, comm;
    void *ptr;
    size_t len;
    bool ours; /* from map(NULL): kept until all ranks have closed, since peers may look at it */
};

static struct {
    pthread_mutex_t lock;
    struct kolo_device *devices;
    struct region *regions;
    uint64_t last_id;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- devices ------------------------------------------------------------------------------- */

static kolo_status loop_open(const struct kolo_env *env, struct kolo_device **out)
{
    struct kolo_device *dev = calloc(1, sizeof *dev);
    if (dev == NULL) {
        return env->fail(KOLO_ERR_SYSTEM, "loop: no memory for a device");
    }
    dev->env = *env;
    pthread_mutex_lock(&table.lock);
    dev->next = table.devices;
    table.devices = dev;
    pthread_mutex_unlock(&table.lock);
    *out = dev;
    return KOLO_OK;
}

static struct kolo_device *find_device(uint64_t comm)
{
    struct kolo_device *dev = table.devices;
    while (dev != NULL && dev->env.comm != comm) {
        dev = dev->next;
    }
    return dev;
}

static void loop_close(struct kolo_device *dev)
{
    struct kolo_device **at = &table.devices;
    pthread_mutex_lock(&table.lock);
    while (*at != dev) {
        at = &(*at)->next;
    }
    *at = dev->next;
    const bool last = find_device(dev->env.comm) == NULL;
    for (struct region **from = &table.regions; last && *from != NULL;) {
        struct region *region = *from;
        if (region->comm == dev->env.comm) {
            *from = region->next;
            free(region->ours ? region->ptr : NULL);
            free(region);
        } else {
            from = &region->next;
        }
    }
    pthread_mutex_unlock(&table.lock);
    free(dev);
}

static kolo_status loop_probe(struct kolo_device *dev, const struct kolo_peer *peer,
                              struct kolo_reach *out)
{
    const bool here = peer->process == dev->env.self->process;
    *out = (struct kolo_reach){sizeof *out, 0, 0.3, 8.0, 50, "LOOP"};
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

/* ---- messages ------------------------------------------------------------------------------ */

static void push(struct fifo *fifo, struct kolo_req *req)
{
    req->next = NULL;
    *(fifo->first == NULL ? &fifo->first : &fifo->last->next) = req;
    fifo->last = req;
}

/* Take out the oldest request of `channel`, or NULL. */
static struct kolo_req *take(struct fifo *fifo, uint32_t channel)
{
    struct kolo_req *before = NULL;
    for (struct kolo_req *req = fifo->first; req != NULL; before = req, req = req->next) {
        if (req->channel == channel) {
            *(before != NULL ? &before->next : &fifo->first) = req->next;
            fifo->last = req->next == NULL ? before : fifo->last;
            return req;
        }
    }
    return NULL;
}

static void copy(struct kolo_req *send, struct kolo_req *recv)
{
    const bool equal = send->bytes == recv->bytes;
    for (size_t at = 0; equal && at < send->bytes;) {
        size_t room = 0;
        const char *from = kolo_bytes_at(&send->data, at, &room);
        kolo_bytes_write(&recv->data, at, from, room);
        at += room;
    }
    send->moved = recv->moved = equal ? send->bytes : SIZE_MAX;
}

static kolo_status post(struct kolo_link *link, bool sends, const struct kolo_bytes *data,
                        struct kolo_req *req)
{
    const kolo_status why = (kolo_status)atomic_load(&link->why);
    if (why != KOLO_OK || req->channel >= KOLO_CHANNELS) {
        return link->dev->env.fail(why != KOLO_OK ? why : KOLO_ERR_INVALID,
                                   why != KOLO_OK ? "loop: aborted" : "loop: channel above 15");
    }
    req->status = KOLO_INPROGRESS;
    req->bytes = kolo_bytes_total(data);
    req->moved = 0;
    req->data = *data;
    pthread_mutex_lock(&table.lock);
    struct kolo_link *other = link->other;
    struct kolo_req *match =
        other != NULL ? take(sends ? &other->recvs : &other->sends, req->channel) : NULL;
    if (match != NULL) {
        copy(sends ? req : match, sends ? match : req);
        push(&other->done, match);
    }
    push(match != NULL ? &link->done : (sends ? &link->sends : &link->recvs), req);
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
static int hand_back(struct fifo *fifo, kolo_status why)
{
    int count = 0;
    for (struct kolo_req *req = fifo->first, *next = NULL; req != NULL; req = next, count++) {
        next = req->next; /* read before the status makes the request its owner's again */
        const kolo_status end = req->moved == req->bytes ? KOLO_OK : KOLO_ERR_MISMATCH;
        req->status = why != KOLO_OK ? why : end;
    }
    *fifo = (struct fifo){0};
    return count;
}

static int advance(struct kolo_link *link, kolo_status why)
{
    int count = hand_back(&link->done, KOLO_OK);
    if (why != KOLO_OK || link->gone) {
        why = why != KOLO_OK ? why : KOLO_ERR_LINK;
        count += hand_back(&link->sends, why) + hand_back(&link->recvs, why);
    }
    return count;
}

static int loop_progress(struct kolo_device *dev, int budget)
{
    int count = 0;
    pthread_mutex_lock(&table.lock);
    for (struct kolo_link *link = dev->links; link != NULL && count < budget; link = link->next) {
        count += advance(link, (kolo_status)atomic_load(&link->why));
    }
    pthread_mutex_unlock(&table.lock);
    return count;
}

static void loop_abort(struct kolo_link *link, kolo_status why)
{
    atomic_store(&link->why, (int)why);
}

/* ---- links --------------------------------------------------------------------------------- */

/* Under the lock: the link of rank `rank` that faces `link` and has no other end yet. */
static struct kolo_link *find_other(const struct kolo_link *link)
{
    for (struct kolo_device *dev = table.devices; dev != NULL; dev = dev->next) {
        const bool there = dev->env.comm == link->dev->env.comm && dev->env.rank == link->peer;
        for (struct kolo_link *at = dev->links; there && at != NULL; at = at->next) {
            if (at->peer == link->dev->env.rank && at->other == NULL && !at->gone) {
                return at;
            }
        }
    }
    return NULL;
}

static kolo_status loop_connect(struct kolo_device *dev, const struct kolo_peer *peer,
                                struct kolo_link **out)
{
    struct kolo_link *link = calloc(1, sizeof *link);
    if (link == NULL) {
        return dev->env.fail(KOLO_ERR_SYSTEM, "loop: no memory for a link");
    }
    link->dev = dev;
    link->peer = peer->rank;
    pthread_mutex_lock(&table.lock);
    link->next = dev->links;
    dev->links = link;
    link->other = find_other(link); /* a rank's link to itself finds itself */
    if (link->other != NULL) {
        link->other->other = link;
    }
    pthread_mutex_unlock(&table.lock);
    *out = link;
    return KOLO_OK;
}

static void loop_disconnect(struct kolo_link *link)
{
    struct kolo_link **at = &link->dev->links;
    pthread_mutex_lock(&table.lock);
    (void)advance(link, KOLO_ERR_ABORTED);
    while (*at != link) {
        at = &(*at)->next;
    }
    *at = link->next;
    if (link->other != NULL) {
        link->other->gone = true;
        link->other->other = NULL;
    }
    pthread_mutex_unlock(&table.lock);
    free(link);
}

/* ---- memory -------------------------------------------------------------------------------- */

static kolo_status loop_map(struct kolo_device *dev, void *ptr, size_t len, struct kolo_mem *out)
{
    struct region *region = calloc(1, sizeof *region);
    void *fresh = ptr == NULL ? aligned_alloc(4096, (len + 4095) / 4096 * 4096) : NULL;
    if (region == NULL || (ptr == NULL && fresh == NULL)) {
        free(region);
        free(fresh);
        return dev->env.fail(KOLO_ERR_SYSTEM, "loop: no memory for a region");
    }
    region->comm = dev->env.comm;
    region->ours = ptr == NULL;
    region->ptr = ptr == NULL ? memset(fresh, 0, len) : ptr;
    region->len = len;
    pthread_mutex_lock(&table.lock);
    region->id = ++table.last_id;
    region->next = table.regions;
    table.regions = region;
    pthread_mutex_unlock(&table.lock);
    *out = (struct kolo_mem){.ptr = region->ptr, .len = len, .own = region};
    memcpy(out->handle, &region->id, sizeof region->id);
    return KOLO_OK;
}

static void loop_unmap(struct kolo_device *dev, struct kolo_mem *mem)
{
    struct region **at = &table.regions;
    (void)dev;
    pthread_mutex_lock(&table.lock);
    while (*at != NULL && *at != mem->own) {
        at = &(*at)->next;
    }
    if (*at != NULL && !(*at)->ours) {
        *at = (*at)->next;
        free(mem->own);
    }
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
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
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
