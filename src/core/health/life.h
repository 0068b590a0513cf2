// SPDX-License-Identifier: Apache-2.0
/* A socket that ends with its process, in whatever PID namespace the process is.
 *
 * Each process with communicators listens on an abstract UNIX socket with a random name, and never
 * accepts. A process that watches it connects, and its connection stays in the queue of the
 * listener. The kernel ends the connection when the listener goes: when its process ends, becomes
 * another program by exec(), or has no communicator any more. A process ID means nothing in another
 * PID namespace; the connection also tells which ID the process has here. */
#ifndef KOLO_CORE_HEALTH_LIFE_H
#define KOLO_CORE_HEALTH_LIFE_H

#include <stdbool.h>
#include <stdint.h>

enum { KOLO_LIFE_NAME = 16 };

/* Listen until kolo_life_end() has been called as often as this. `name` gets the name of the
 * socket, or zeros if there is none because the process has no descriptor left. */
bool kolo_life_begin(unsigned char name[KOLO_LIFE_NAME]);
void kolo_life_end(void);

struct kolo_life { /* of another process */
    int fd;        /* readable once it has ended; -1: not known */
    int pidfd;     /* the same, even if a forked child holds its socket; -1: none */
    int pid;       /* its ID in this process's PID namespace, 0: it has none here */
    bool gone;     /* it does not listen (any more) */
};

/* Connect to the process with this name. `pid` is its ID in its own PID namespace; `same_space`:
 * this process is in that namespace, too. */
void kolo_life_watch(const unsigned char name[KOLO_LIFE_NAME], int pid, bool same_space,
                     struct kolo_life *out);
/* Let an epoll of kolo tell once of its end, by `token`. A descriptor that has no place there (-1:
 * there is no epoll) is closed. */
void kolo_life_poll(struct kolo_life *life_of, int epoll, uint64_t token);
void kolo_life_end_poll(struct kolo_life *life_of, int epoll);
/* Whether a descriptor tells of its end, or /proc where there is none. */
bool kolo_life_is_over(struct kolo_life *life_of);
/* Its socket has ended. A process that ends closes its socket a moment before. One that closes its
 * descriptors, or becomes another program, goes on: true. */
bool kolo_life_goes_on(const struct kolo_life *life_of);

#endif
