// SPDX-License-Identifier: Apache-2.0
/* verbs without the headers of libibverbs at build time: open() fails, and says so. */
#include "transports/transports.h"
#include "util/util.h"

static kolo_status none_open(const struct kolo_env *env, struct kolo_endpoint **out)
{
    (void)env;
    (void)out;
    (void)env;
    return kolo_fail(KOLO_ERR_UNSUPPORTED,
                     "verbs: this kolo was built without infiniband/verbs.h (libibverbs-dev)");
}

static void none_close(struct kolo_endpoint *ep)
{
    (void)ep;
}

static kolo_status none_probe(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                              struct kolo_reach *out)
{
    (void)ep;
    (void)peer;
    *out = (struct kolo_reach){.size = sizeof *out, .via = "NET/IB"};
    return KOLO_OK;
}

static kolo_status none_address(struct kolo_endpoint *ep, void *buf, size_t *len)
{
    (void)ep;
    (void)buf;
    *len = 0;
    return KOLO_OK;
}

static kolo_status none_connect(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                                struct kolo_link **out)
{
    (void)ep;
    (void)peer;
    (void)out;
    return KOLO_ERR_UNSUPPORTED;
}

static void none_disconnect(struct kolo_link *link)
{
    (void)link;
}

const struct kolo_transport kolo_transport_verbs = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_transport), "verbs"},
    .caps = KOLO_CAP_HOST | KOLO_CAP_MESSAGE | KOLO_CAP_NOTIFY,
    .open = none_open,
    .close = none_close,
    .probe = none_probe,
    .address = none_address,
    .connect = none_connect,
    .disconnect = none_disconnect,
};
