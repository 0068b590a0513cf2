// SPDX-License-Identifier: Apache-2.0
/* verbs where the build found no headers of libibverbs: it says so when it is asked for. */
#include "transports/transports.h"

static kolo_status none_open(const struct kolo_env *env, struct kolo_device **out)
{
    (void)out;
    return env->fail(KOLO_ERR_UNSUPPORTED,
                     "verbs: this kolo was built without infiniband/verbs.h (libibverbs-dev)");
}

static void none_close(struct kolo_device *dev)
{
    (void)dev;
}

static kolo_status none_probe(struct kolo_device *dev, const struct kolo_peer *peer,
                              struct kolo_reach *out)
{
    (void)dev;
    (void)peer;
    *out = (struct kolo_reach){.size = sizeof *out, .via = "NET/IB"};
    return KOLO_OK;
}

static kolo_status none_address(struct kolo_device *dev, void *buf, size_t *len)
{
    (void)dev;
    (void)buf;
    *len = 0;
    return KOLO_OK;
}

static kolo_status none_connect(struct kolo_device *dev, const struct kolo_peer *peer,
                                struct kolo_link **out)
{
    (void)dev;
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
    .caps = KOLO_CAP_HOST | KOLO_CAP_MESSAGE | KOLO_CAP_SAY,
    .open = none_open,
    .close = none_close,
    .probe = none_probe,
    .address = none_address,
    .connect = none_connect,
    .disconnect = none_disconnect,
};
