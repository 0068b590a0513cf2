// SPDX-License-Identifier: Apache-2.0
/* What the caller or the environment asked for; checked by kolo_comm_configure(). */
#ifndef KOLO_CORE_OPTIONS_H
#define KOLO_CORE_OPTIONS_H

#include "exec/cpu/stores.h"
#include "tune/tune.h"

#include <stdbool.h>

struct kolo_options {
    int deterministic, timeout_ms;
    int cuda_ordinal; /* KOLO_HOST, or the ordinal of a GPU */
    char *algo_text, *transport_text;
    char *groups_text; /* "": as ranks are bound */
    bool logs_calls;
    void (*progress)(void *arg); /* NULL: none */
    void *progress_arg;
    enum kolo_store store_rule; /* UNKNOWN: store kinds are measured */
    enum kolo_codec_rule codec_rule;
    int verifies; /* 1: each plan is proved before its first use */
};

#endif
