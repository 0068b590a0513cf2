// SPDX-License-Identifier: Apache-2.0
/* How a process on this host gets a segment's descriptor from the process that owns it.
 *
 * The owner listens on an abstract UNIX socket with a random name, served by one small thread. A
 * client sends {magic, segment, token}; the answer is {magic, status, length} and the descriptor.
 * Both sides check the other's user. A wrong token or user gets no answer. */
#ifndef KOLO_MEMORY_SERVE_H
#define KOLO_MEMORY_SERVE_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A process to those that may ask it. The name can be seen in /proc/net/unix; the token cannot. */
struct kolo_shm_identity {
    unsigned char name[16];
    unsigned char token[16];
};

/* Whom a client asks, for its errors and deadline. */
struct kolo_shm_owner {
    struct kolo_shm_identity identity;
    int rank, pid;
    const int *aborted; /* see struct kolo_env */
};

/* This process's identity; the same until a fork. Errors: SYSTEM. */
kolo_status kolo_service_identity(struct kolo_shm_identity *out);
/* Answer from now on, until as many kolo_service_stop(). Errors: SYSTEM. */
kolo_status kolo_service_start(void);
void kolo_service_stop(void);
/* Whether some client has waited for 100 ms since no descriptor is left to hear it by: it cannot be
 * told, so whoever waits for it here should fail. */
bool kolo_service_starved(void);

/* Ask `owner` for its segment `id`; the caller closes *fd. Waits for at most 5 s. Errors: PEER (the
 * process is gone), TIMEOUT, LINK (it refuses), INVALID (no such segment), SYSTEM; the status of
 * the communicator where that was aborted. */
kolo_status kolo_service_fetch(const struct kolo_shm_owner *owner, uint32_t id, int *fd,
                               uint64_t *len);

#ifdef __cplusplus
}
#endif

#endif
