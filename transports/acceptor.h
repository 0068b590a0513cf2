// SPDX-License-Identifier: Apache-2.0
/* The listening side of a transport's TCP connections.
 *
 * A new connection is a guest until it has proved that it comes from a rank of the communicator. A
 * guest changes nothing. It costs one of KOLO_ACCEPTOR_GUESTS descriptors for at most 5 s, and the
 * oldest guest makes room for a new one.
 *
 * A proved guest belongs to the link to its rank. If that link does not exist yet, the guest waits
 * here until kolo_acceptor_claim() asks for it. The transport defines the proof. */
#ifndef KOLO_TRANSPORTS_ACCEPTOR_H
#define KOLO_TRANSPORTS_ACCEPTOR_H

#include "util/descriptor.h"
#include "util/net.h"

#include <kolo/plugin.h>

enum { KOLO_ACCEPTOR_GUESTS = 64 };

struct kolo_guest {  /* the first member of the transport's own struct */
    int fd;          /* -1: the transport has taken it */
    int from;        /* the rank that it has proved to be */
    uint32_t index;  /* the number of the rank's connection; 0 if a rank makes only one */
    double since_us; /* when it was accepted */
};

enum kolo_guest_state {
    KOLO_GUEST_STRANGER = -1, /* its proof is wrong, or its connection ended */
    KOLO_GUEST_PROVING = 0,   /* more bytes must come */
    KOLO_GUEST_PROVED = 1     /* guest->from and guest->index are set */
};

enum kolo_welcome {
    KOLO_WELCOME_DONE,   /* refused, or its descriptor was taken: its record is freed */
    KOLO_WELCOME_WAITING /* no link to its rank exists yet */
};

struct kolo_acceptor_ops {
    const char *name; /* the transport's */
    size_t guest_bytes;
    /* Set the options of a new connection. */
    void (*configure)(const struct kolo_endpoint *ep, int fd);
    /* Read the guest's bytes, and answer. */
    enum kolo_guest_state (*prove)(const struct kolo_endpoint *ep, struct kolo_guest *guest);
    /* Give a proved guest to the link to its rank. */
    enum kolo_welcome (*welcome)(struct kolo_endpoint *ep, struct kolo_guest *guest);
};

struct kolo_acceptor {
    const struct kolo_acceptor_ops *ops;
    struct kolo_endpoint *ep;
    struct kolo_own_fd listener;
    int epoll;
    struct kolo_guest *guest[KOLO_ACCEPTOR_GUESTS]; /* the oldest first */
    int nguests;
    struct kolo_guest **waiting;
    int nwaiting, waiting_cap;
    uint64_t strangers; /* connections that proved nothing */
    double asked_us;    /* when it was last seen whether it is whole */
    bool lost;          /* it was not */
};

/* An acceptor that does not listen; kolo_acceptor_close() accepts it. */
void kolo_acceptor_init(struct kolo_acceptor *a, const struct kolo_acceptor_ops *ops,
                        struct kolo_endpoint *ep);
/* Listen at `at`, and have `epoll` report the listener and the guests with data.ptr NULL. Errors:
 * SYSTEM, INVALID (the address is not of this host). */
KOLO_CHECK kolo_status kolo_acceptor_listen(struct kolo_acceptor *a, struct kolo_interface *at,
                                            int epoll);
/* Accept new connections, and read the bytes of the guests. */
void kolo_acceptor_step(struct kolo_acceptor *a);
/* Whether a proved guest with this rank and index waits. */
bool kolo_acceptor_is_waiting(const struct kolo_acceptor *a, int from, uint32_t index);
/* A waiting guest of `rank`, which the caller frees; NULL: none waits. */
struct kolo_guest *kolo_acceptor_claim(struct kolo_acceptor *a, int rank);
/* Close the guest's connection, unless its descriptor was taken, and free its record. */
void kolo_guest_free(const struct kolo_acceptor *a, struct kolo_guest *guest);
/* Whether the program has left the listener and the epoll alone. If not, then no number of a
 * descriptor in the epoll can be trusted. */
bool kolo_acceptor_is_whole(const struct kolo_acceptor *a);
/* As kolo_acceptor_is_whole(), asked once a millisecond: for each look at the epoll. */
bool kolo_acceptor_seems_whole(struct kolo_acceptor *a);
/* Close a descriptor that the epoll watches, unless it is not the transport's any more. -1: none. */
void kolo_acceptor_drop(const struct kolo_acceptor *a, int fd);
/* Close all guests, the listener and the epoll; log how many connections proved nothing. */
void kolo_acceptor_close(struct kolo_acceptor *a);

#endif
