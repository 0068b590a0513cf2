// SPDX-License-Identifier: Apache-2.0
/* A tuner as a plug-in: libkolo_tuner_least.so. It takes the candidate that the built-in model
 * predicts to be the fastest, and the first of equal candidates. For a single byte it does not
 * choose. */
#include <kolo/plugin.h>

static kolo_status open_tuner(const struct kolo_env *env, void **out)
{
    (void)env;
    *out = NULL; /* no state: choose() must be pure */
    return KOLO_OK;
}

static void close_tuner(void *self)
{
    (void)self;
}

static kolo_status choose(const void *self, const struct kolo_query *query, struct kolo_choice *out)
{
    (void)self;
    *out = (struct kolo_choice){sizeof *out, query->ncandidates > 0 ? 0 : -1};
    for (int i = 1; i < query->ncandidates; i++) {
        if (query->predicted_us[i] < query->predicted_us[out->index]) {
            out->index = i;
        }
    }
    if (query->bytes <= 1) {
        out->index = -1;
    }
    return KOLO_OK;
}

KOLO_EXPORT
extern const struct kolo_tuner kolo_tuner_v1;
const struct kolo_tuner kolo_tuner_v1 = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_tuner), "least"},
    .open = open_tuner,
    .close = close_tuner,
    .choose = choose,
};
