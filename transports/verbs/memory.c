// SPDX-License-Identifier: Apache-2.0
/* Registration of memory that is read or written in place.
 *
 * Each message that is long enough registers its memory, and gives it back when it is done. */
#include "transports/verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

struct kolo_verbs_hold {
    struct ibv_mr *mr[KOLO_VERBS_RAILS];
};

kolo_status kolo_verbs_memory_refused(const struct kolo_verbs_rail *rail, size_t len, int error)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY || (error != ENOMEM && error != EAGAIN)) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s registers no %zu bytes: %s", rail->name, len,
                         kolo_why(error));
    }
    return kolo_fail(
        KOLO_ERR_SYSTEM,
        "%s registers no %zu bytes: this process may lock %llu KiB of memory; set "
        "\"ulimit -l unlimited\" where it starts (LimitMEMLOCK=infinity for a service, "
        "--ulimit memlock=-1 for a container)",
        rail->name, len, (unsigned long long)limit.rlim_cur >> 10);
}

void kolo_verbs_memory_drop(struct kolo_device *dev, struct kolo_verbs_hold *hold)
{
    for (int i = 0; hold != NULL && i < dev->nrails; i++) {
        if (hold->mr[i] != NULL) {
            (void)dev->lib->dereg_mr(hold->mr[i]);
        }
    }
    free(hold);
}

struct kolo_verbs_hold *kolo_verbs_memory_hold(struct kolo_device *dev, void *at, size_t len,
                                               bool written)
{
    const int access = written ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
    struct kolo_verbs_hold *hold = calloc(1, sizeof *hold);
    for (int i = 0; hold != NULL && i < dev->nrails; i++) {
        errno = 0;
        hold->mr[i] = dev->lib->reg_mr(dev->rail[i].pd, at, len, access);
        if (hold->mr[i] == NULL) {
            if (!dev->warned) { /* once: from here on such messages are copied */
                dev->warned = true;
                (void)kolo_verbs_memory_refused(&dev->rail[i], len, errno);
                KOLO_LOG(WARN, NET, "NET/IB : %s; messages are copied instead", kolo_error_text());
            }
            kolo_verbs_memory_drop(dev, hold);
            return NULL;
        }
    }
    return hold;
}

uint32_t kolo_verbs_memory_lkey(const struct kolo_verbs_hold *hold, const struct kolo_device *dev,
                                const struct kolo_verbs_rail *rail)
{
    return hold->mr[rail - dev->rail]->lkey;
}

uint32_t kolo_verbs_memory_rkey(const struct kolo_verbs_hold *hold, int rail)
{
    return hold->mr[rail] != NULL ? hold->mr[rail]->rkey : 0;
}
