// SPDX-License-Identifier: Apache-2.0
/* Descriptors that the program may close, and descriptors beside a message.
 *
 * A program may close all descriptors, for example by closefrom(3), and open files of its own at
 * the same numbers. So kolo keeps a descriptor that outlives a call with the identity of its file,
 * and looks at it before it closes it, or writes to it outside of the path of messages.
 *
 * Every socket and every memory file has an inode of its own. Eventfds and epolls all share one.
 * So a bell is a pair of sockets, and an epoll is known by a socket that it watches. */
#ifndef KOLO_UTIL_DESCRIPTOR_H
#define KOLO_UTIL_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* The longest wait of a thread that has no other limit. After it the thread sees that its
 * descriptors were closed. */
enum { KOLO_FD_LOOK_MS = 1000 };

/* poll() of one descriptor, whose news is expected at once: for some microseconds the thread gives
 * its core away instead of sleeping. Waking a core that sleeps takes longer than a short answer. */
int kolo_poll_soon(int fd, short events, int timeout_ms);

/* ---- descriptors of kolo ---- */

struct kolo_own_fd { /* a socket, a file or memory */
    int fd;          /* -1: none */
    uint64_t device, inode;
};

#define KOLO_NO_FD ((struct kolo_own_fd){.fd = -1})

/* `fd` has just been opened; -1: none. */
struct kolo_own_fd kolo_own_fd(int fd);
/* Whether the number still means kolo's file. False, with errno EBADF: no, or there is none. */
bool kolo_own_fd_is(const struct kolo_own_fd *own);
/* Close it, unless it is not kolo's any more. Then there is none. */
void kolo_own_fd_close(struct kolo_own_fd *own);

/* Whether `epoll` is still the one to which `watched` was added with `event`. */
bool kolo_epoll_is_own(int epoll, const struct kolo_own_fd *watched, struct epoll_event event);
/* Take `fd` out of an epoll of kolo, and close it. Neither if the epoll does not watch it: then the
 * number is not kolo's any more. */
void kolo_epoll_close(int epoll, int fd);

/* ---- a bell: it wakes a thread that polls ---- */

struct kolo_bell {
    struct kolo_own_fd heard; /* readable once it was rung, or lost */
    struct kolo_own_fd rung;
};

/* False: see errno. */
bool kolo_bell_open(struct kolo_bell *out);
void kolo_bell_ring(const struct kolo_bell *bell);
/* Make it silent again. False: the program has closed it. */
bool kolo_bell_hush(const struct kolo_bell *bell);
void kolo_bell_close(struct kolo_bell *bell);

/* ---- one descriptor beside a message over a unix socket: SCM_RIGHTS, unix(7) and cmsg(3) ---- */

/* Room for the control message. It must live as long as the message's header. */
union kolo_fd_room {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr aligned;
};

/* Before sendmsg(): attach `fd` to the message. */
void kolo_fd_attach(struct msghdr *message, union kolo_fd_room *room, int fd);

/* After recvmsg() with a room as control buffer: the attached descriptor, or -1. */
int kolo_fd_attached(struct msghdr *message);

#endif
