// SPDX-License-Identifier: Apache-2.0
/* Defaults for the slots that a plug-in leaves empty, because it is older than this header or has
 * fewer abilities. The tables are positional, so that the compiler warns of a new slot without a
 * default. */
#include "plugin/load.h"

#include <string.h>

static kolo_status lacks_slot(const char *what)
{
    return kolo_fail(KOLO_ERR_UNSUPPORTED, "this transport has no %s", what);
}

static kolo_status no_map(struct kolo_endpoint *ep, void *ptr, size_t len, struct kolo_mem *out)
{
    (void)ep;
    (void)ptr;
    (void)len;
    (void)out;
    return lacks_slot("map");
}

static void no_unmap(struct kolo_endpoint *ep, struct kolo_mem *mem)
{
    (void)ep;
    (void)mem;
}

static kolo_status no_send(struct kolo_link *link, const struct kolo_bytes *src,
                           struct kolo_req *req)
{
    (void)link;
    (void)src;
    (void)req;
    return lacks_slot("send");
}

static kolo_status no_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                           struct kolo_req *req)
{
    (void)link;
    (void)dst;
    (void)req;
    return lacks_slot("recv");
}

static int no_progress(struct kolo_endpoint *ep, int budget)
{
    (void)ep;
    (void)budget;
    return 0;
}

static void no_abort(struct kolo_link *link, kolo_status why)
{
    (void)link;
    (void)why;
}

static kolo_status no_attach(struct kolo_link *link, const void *handle, void **out, size_t *len)
{
    (void)link;
    (void)handle;
    (void)out;
    (void)len;
    return lacks_slot("attach");
}

static void no_wake(struct kolo_link *link, uint32_t *word)
{
    (void)link;
    (void)word;
}

static int no_wait_fd(struct kolo_endpoint *ep)
{
    (void)ep;
    return -1;
}

static void no_notify(struct kolo_link *link, uint64_t word)
{
    (void)link;
    (void)word;
}

static struct kolo_doorbell *no_bell(struct kolo_endpoint *ep)
{
    (void)ep;
    return NULL;
}

static void no_ring(struct kolo_endpoint *ep)
{
    (void)ep;
}

static bool all_shapes(const struct kolo_shape *shape)
{
    (void)shape;
    return true;
}

/* The first six slots after caps are required, so they have no default. */
static const struct kolo_transport transport_defaults = {
    {0, 0, NULL}, 0,       NULL,       NULL,      NULL,    NULL,        NULL,
    NULL,         no_map,  no_unmap,   no_send,   no_recv, no_progress, no_abort,
    no_attach,    no_wake, no_wait_fd, no_notify, no_bell, no_ring};
static const struct kolo_algo algo_defaults = {
    {0, 0, NULL}, (enum kolo_coll)0, NULL, all_shapes, NULL};

/* In the copy, slots beyond the size of `given` are NULL, like slots that it left NULL itself. */
static void copy_known(const struct kolo_plugin *given, void *out, size_t ours)
{
    memset(out, 0, ours);
    memcpy(out, given, kolo_min(given->size, ours));
    ((struct kolo_plugin *)out)->size = (uint32_t)ours;
}

void kolo_transport_overlay(const struct kolo_transport *given, struct kolo_transport *out)
{
    const struct kolo_transport *rest = &transport_defaults;
    copy_known(&given->base, out, sizeof *out);
    out->map = out->map != NULL ? out->map : rest->map;
    out->unmap = out->unmap != NULL ? out->unmap : rest->unmap;
    out->send = out->send != NULL ? out->send : rest->send;
    out->recv = out->recv != NULL ? out->recv : rest->recv;
    out->progress = out->progress != NULL ? out->progress : rest->progress;
    out->abort = out->abort != NULL ? out->abort : rest->abort;
    out->attach = out->attach != NULL ? out->attach : rest->attach;
    out->wake = out->wake != NULL ? out->wake : rest->wake;
    out->wait_fd = out->wait_fd != NULL ? out->wait_fd : rest->wait_fd;
    out->notify = out->notify != NULL ? out->notify : rest->notify;
    out->bell = out->bell != NULL ? out->bell : rest->bell;
    out->ring = out->ring != NULL ? out->ring : rest->ring;
}

void kolo_algo_overlay(const struct kolo_algo *given, struct kolo_algo *out)
{
    copy_known(&given->base, out, sizeof *out);
    out->supports = out->supports != NULL ? out->supports : algo_defaults.supports;
}
