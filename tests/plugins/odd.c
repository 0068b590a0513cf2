// SPDX-License-Identifier: Apache-2.0
/* Plug-ins with one thing wrong (or unusual) each, by macro: what the loader must tell apart. */
#include <kolo/plugin.h>

#include <stddef.h> /* offsetof, for sizes on the command line */

#ifdef TUNER_NAME
static kolo_status open_tuner(const struct kolo_env *env, void **out)
{
    (void)env;
    *out = NULL;
    return KOLO_OK;
}

static void close_tuner(void *self)
{
    (void)self;
}

__attribute__((unused)) static kolo_status choose(const void *self, const struct kolo_query *query,
                                                  struct kolo_choice *out)
{
    (void)self;
    (void)query;
    out->index = -1;
    return KOLO_OK;
}

#ifndef TUNER_ABI
#define TUNER_ABI KOLO_PLUGIN_ABI
#endif
#ifndef TUNER_SIZE
#define TUNER_SIZE sizeof(struct kolo_tuner)
#endif
#ifndef TUNER_CHOOSE
#define TUNER_CHOOSE choose
#endif

KOLO_EXPORT
extern const struct kolo_tuner kolo_tuner_v1;
const struct kolo_tuner kolo_tuner_v1 = {
    {TUNER_ABI, (uint32_t)(TUNER_SIZE), TUNER_NAME}, open_tuner, close_tuner, TUNER_CHOOSE};
#endif

#ifdef TRANSPORT_NAME
static kolo_status open_endpoint(const struct kolo_env *env, struct kolo_endpoint **out)
{
    (void)out;
    return env->fail(KOLO_ERR_UNSUPPORTED, "odd: nothing to open");
}
static void close_endpoint(struct kolo_endpoint *ep)
{
    (void)ep;
}
static kolo_status probe(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                         struct kolo_reach *out)
{
    (void)ep;
    (void)peer;
    out->caps = 0;
    return KOLO_OK;
}
static kolo_status address(struct kolo_endpoint *ep, void *buf, size_t *len)
{
    (void)ep;
    (void)buf;
    *len = 0;
    return KOLO_OK;
}
static kolo_status connect_link(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                                struct kolo_link **out)
{
    (void)ep;
    (void)peer;
    (void)out;
    return KOLO_ERR_UNSUPPORTED;
}
static void disconnect(struct kolo_link *link)
{
    (void)link;
}
static kolo_status move(struct kolo_link *link, const struct kolo_bytes *data, struct kolo_req *req)
{
    (void)link;
    (void)data;
    (void)req;
    return KOLO_ERR_UNSUPPORTED;
}
static int progress(struct kolo_endpoint *ep, int budget)
{
    (void)ep;
    return budget > 1000 ? 17 : 0; /* recognisable */
}
static void abort_link(struct kolo_link *link, kolo_status why)
{
    (void)link;
    (void)why;
}
#ifndef TRANSPORT_CAPS
#define TRANSPORT_CAPS KOLO_CAP_HOST | KOLO_CAP_MESSAGE
#endif
#ifndef TRANSPORT_SIZE
#define TRANSPORT_SIZE sizeof(struct kolo_transport)
#endif
KOLO_EXPORT
extern const struct kolo_transport kolo_transport_v1;
const struct kolo_transport kolo_transport_v1 = {
    .base = {KOLO_PLUGIN_ABI, (uint32_t)(TRANSPORT_SIZE), TRANSPORT_NAME},
    .caps = TRANSPORT_CAPS,
    .open = open_endpoint,
    .close = close_endpoint,
    .probe = probe,
    .address = address,
    .connect = connect_link,
    .disconnect = disconnect,
    .send = move,
    .recv = move,
    .progress = progress,
    .abort = abort_link,
};
#endif

#ifdef ALGO_NAME
static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    (void)shape;
    kolo_refuse(b, "odd");
}
#ifndef ALGO_SOURCE
#define ALGO_SOURCE "tests"
#endif
KOLO_EXPORT
extern const struct kolo_algo kolo_algo_v1;
const struct kolo_algo kolo_algo_v1 = {{KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), ALGO_NAME},
                                       KOLO_COLL_ALL_REDUCE,
                                       ALGO_SOURCE,
                                       NULL,
                                       build};
#endif

#ifdef STUB_BYTES
KOLO_EXPORT
extern const struct kolo_plugin kolo_tuner_v1;
const struct kolo_plugin kolo_tuner_v1 = {KOLO_PLUGIN_ABI, STUB_BYTES, "stub"};
#endif

#ifdef TINY
KOLO_EXPORT
extern const uint32_t kolo_tuner_v1;
const uint32_t kolo_tuner_v1 = KOLO_PLUGIN_ABI;
#endif

#if !defined STUB_BYTES && !defined TINY && !defined TUNER_NAME && !defined TRANSPORT_NAME &&      \
    !defined ALGO_NAME
KOLO_EXPORT
extern const int kolo_none_v1;
const int kolo_none_v1 = 1;
#endif
