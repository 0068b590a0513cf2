// SPDX-License-Identifier: Apache-2.0
/* The marks that all pictures of a job share: a dot for each rank, or for each host of a large job,
 * and a look for each carrier of an edge. */
#include "topology/draw/picture_parts.h"

#include <stdlib.h>

const struct kolo_look *kolo_look_of(enum kolo_job_carrier carrier)
{
    static const struct kolo_look looks[KOLO_CARRIERS] = {
        {"#009e73", "N", "NVLink or xgmi"},
        {"#56b4e9", "P", "P2P (PCI, or NVLink in a log)"},
        {"#f0e442", "S", "shared memory"},
        {"#e69f00", "I", "network with GPUDirect RDMA"},
        {"#d55e00", "i", "network through host memory"},
        {"#cc79a7", "T", "TCP"},
        {"#cccccc", "o", "other"},
    };
    return &looks[carrier];
}

bool kolo_dots_make(const struct kolo_job *job, struct kolo_dots *out)
{
    struct kolo_dots dots = {.count = job->nranks};
    if (dots.count > KOLO_PICTURE_RANKS) {
        dots.hosts = true;
        dots.count = job->nhosts;
    }
    if (dots.count < 1 || dots.count > KOLO_PICTURE_HOSTS) {
        return false;
    }
    dots.host_of = calloc((size_t)dots.count, sizeof *dots.host_of);
    if (dots.host_of == NULL) {
        return false;
    }
    for (int i = 0; i < dots.count; i++) {
        dots.host_of[i] = dots.hosts ? i : kolo_job_host_of(job, i);
    }
    *out = dots;
    return true;
}

void kolo_dots_free(struct kolo_dots *dots)
{
    free(dots->host_of);
}

int kolo_dot_of(const struct kolo_job *job, const struct kolo_dots *dots, int rank)
{
    const int dot = dots->hosts ? kolo_job_host_of(job, rank) : rank;
    return dot < dots->count ? dot : -1;
}
