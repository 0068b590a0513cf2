// SPDX-License-Identifier: Apache-2.0
/* A listener and an epoll as a transport has them, of which nothing comes: by them it sees that its
 * descriptors are still its own. All inputs share them. */
#ifndef KOLO_TESTS_FUZZ_WHOLE_H
#define KOLO_TESTS_FUZZ_WHOLE_H

#include "transports/acceptor.h"

#include <stdlib.h>

static inline struct kolo_acceptor whole_acceptor(void)
{
    static struct kolo_acceptor shared = {.listener = {.fd = -1}, .epoll = -1};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (shared.epoll < 0) {
        shared.epoll = epoll_create1(EPOLL_CLOEXEC);
        shared.listener = kolo_own_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (epoll_ctl(shared.epoll, EPOLL_CTL_ADD, shared.listener.fd, &event) != 0) {
            abort();
        }
    }
    return shared;
}

/* The transport closes only the descriptors that its epoll watches. */
static inline void watch_whole(const struct kolo_acceptor *a, int fd, void *owner)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = owner};
    if (epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        abort();
    }
}

#endif
