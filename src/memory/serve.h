// SPDX-License-Identifier: Apache-2.0
/* How a process on this host gets a segment's descriptor from the process that owns it.
 *
 * The owner listens on an abstract UNIX socket with a random name, served by one small thread. A
 * client sends {magic, segment, token}; the answer is {magic, status, length} and the descriptor.
 * Both sides check the other's user. A wrong token or user gets no answer. */
#ifndef KOLO_MEMORY_SERVE_H
#define KOLO_MEMORY_SERVE_H

#include "util/descriptor.h"
#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What identifies a process to its clients. /proc/net/unix shows the name, but not the token. */
struct kolo_shm_identity {
    unsigned char name[16];
    unsigned char token[16];
};

/* The owner that a client asks. The members after the identity serve the client's errors and its
 * wait. */
struct kolo_shm_owner {
    struct kolo_shm_identity identity;
    int rank, pid;
    const int *aborted; /* see struct kolo_env */
    /* on_wait() of struct kolo_env, and its owner. NULL: a wait ends after 5 s. */
    kolo_status (*on_wait)(void *owner, int rank, double waited_us);
    void *owner;
};

/* This process's identity. It stays the same until a fork. Errors: SYSTEM. */
kolo_status kolo_service_identity(struct kolo_shm_identity *out);
/* Start to answer. The service ends when kolo_service_stop() was called as often as this function.
 * Errors: SYSTEM. */
kolo_status kolo_service_start(void);
void kolo_service_stop(void);
/* Whether a client has waited for over 100 ms because this process has no descriptor left to accept
 * it with. The service cannot tell that client. So a wait of this process for it should fail. */
bool kolo_service_starved(void);

/* Open the `file` of the owner without it: Linux shows the descriptors of a process to others of the
 * same user. False: it is not told, or not seen from here, or has been closed. The caller closes
 * *fd. */
bool kolo_service_open(const struct kolo_shm_owner *owner, const struct kolo_own_fd *file, int *fd,
                       uint64_t *len);
/* Ask `owner` for its segment `id`. The caller closes *fd. Errors: PEER (the process or the segment
 * is gone), TIMEOUT, LINK (the owner refuses), SYSTEM, those of on_wait(). After an abort of the
 * communicator: the status of the abort. */
kolo_status kolo_service_fetch(const struct kolo_shm_owner *owner, uint32_t id, int *fd,
                               uint64_t *len);

#ifdef __cplusplus
}
#endif

#endif
