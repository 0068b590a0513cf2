// SPDX-License-Identifier: Apache-2.0
/* The messages between the thread that hands out descriptors and its clients, and its address. */
#ifndef KOLO_MEMORY_REQUEST_H
#define KOLO_MEMORY_REQUEST_H

#include "memory/serve.h"

#include <assert.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define KOLO_SHM_MAGIC UINT32_C(0x6b6f6c31)

struct kolo_shm_request {
    uint32_t magic;
    uint32_t segment;
    unsigned char token[16];
};
struct kolo_shm_answer {
    uint32_t magic;
    int32_t status;
    uint64_t len;
};
static_assert(sizeof(struct kolo_shm_request) == 24 && sizeof(struct kolo_shm_answer) == 16,
              "no padding");

static inline socklen_t kolo_shm_fill_address(const struct kolo_shm_identity *identity,
                                              struct sockaddr_un *address)
{
    char *at = address->sun_path + 1; /* a leading 0 makes it abstract */
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    at += sprintf(at, "kolo-shm-");
    for (size_t i = 0; i < sizeof identity->name; i++) {
        at += sprintf(at, "%02x", (unsigned)identity->name[i]);
    }
    return (socklen_t)(at - (char *)address);
}

static inline bool kolo_shm_same_user(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

#endif
