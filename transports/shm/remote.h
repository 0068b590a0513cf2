// SPDX-License-Identifier: Apache-2.0
/* Other processes' segments as this process has them mapped: each once, held by the links that use
 * it, unmapped when the last of those lets go. Any thread. */
#ifndef KOLO_SHM_REMOTE_H
#define KOLO_SHM_REMOTE_H

#include "memory/serve.h"

struct kolo_remote;

/* Hold segment `id` of `owner`, mapping it if nobody has. Errors: as kolo_service_fetch(). */
kolo_status kolo_remote_hold(const struct kolo_shm_owner *owner, uint32_t id,
                             struct kolo_remote **out, void **base, size_t *len);
void kolo_remote_drop(struct kolo_remote *remote);

#endif
