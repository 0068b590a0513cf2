// SPDX-License-Identifier: Apache-2.0
#include "agree_ask.h"

#include "core/agree/agree.h"
#include "core/agree/links.h"

#include <stdlib.h>

kolo_status kolo_test_ask_standing(struct kolo_comm *comm, uint64_t *word)
{
    unsigned char *seen = calloc((size_t)comm->ranks.nranks, 1);
    pthread_mutex_lock(&comm->agree_links->lock);
    comm->agree_links->number = 0;
    comm->agree_links->has_decided = false;
    pthread_mutex_unlock(&comm->agree_links->lock);
    *word = 0;
    const kolo_status st = kolo_agree_among(comm, NULL, comm->options.timeout_ms, 0, word, seen);
    free(seen);
    return st;
}
