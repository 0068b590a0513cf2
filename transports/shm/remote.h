// SPDX-License-Identifier: Apache-2.0
/* The cache of other processes' segments that this process maps.
 *
 * Each segment is mapped once. Links hold it, and the last drop unmaps it. Any thread may call. */
#ifndef KOLO_SHM_REMOTE_H
#define KOLO_SHM_REMOTE_H

#include "memory/serve.h"
#include "util/descriptor.h"

struct kolo_remote;

/* Hold segment `id` of `owner`. The first hold maps it: the owner's `file` if this process may open
 * it, else what the owner hands out. Errors: as kolo_service_fetch(). */
kolo_status kolo_remote_hold(const struct kolo_shm_owner *owner, uint32_t id,
                             const struct kolo_own_fd *file, struct kolo_remote **out, void **base,
                             size_t *len);
void kolo_remote_drop(struct kolo_remote *remote);

#endif
