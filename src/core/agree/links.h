// SPDX-License-Identifier: Apache-2.0
/* Links over which members of several hosts agree.
 *
 * They are apart from the links of calls, which end with the communicator: survivors agree after
 * that. Each rank has an endpoint of the tcp transport for them alone, which proves, encrypts and
 * finds ends as for calls. Links are made at the first agreement, and last as long as the
 * communicator. So what a rank has told before it returned reaches the others later.
 *
 * A frame is for one numbered agreement. A frame of a later one than this rank's waits in its link:
 * its sender sends no more of the earlier one. */
#ifndef KOLO_CORE_AGREE_LINKS_H
#define KOLO_CORE_AGREE_LINKS_H

#include "core/agree/consensus.h"
#include "core/comm.h"

enum { KOLO_AGREE_ADDRESS_BYTES = 60 };

struct kolo_agree_address { /* of a rank's endpoint; len 0: it has none */
    uint32_t len;
    unsigned char bytes[KOLO_AGREE_ADDRESS_BYTES];
};

/* Beside enum kolo_ballot. GAVE_UP: the sender ends this agreement with a status, and so does who
 * gets it. LEFT_OUT: the others have agreed to go on without the receiver. */
enum { KOLO_AGREE_GAVE_UP = 8, KOLO_AGREE_LEFT_OUT = 9 };

struct kolo_agree_frame {
    uint64_t number, word;
    uint32_t kind;
    int32_t status, at_fault; /* GAVE_UP */
    uint32_t unused;
    unsigned char seen[]; /* [nranks] */
};

struct kolo_agree_post; /* a frame on its way */

struct kolo_agree_line { /* to a rank */
    struct kolo_link *link;
    struct kolo_req req;
    struct kolo_agree_frame *frame; /* the next one from there */
    struct kolo_agree_post *first, *last;
    bool posted; /* `frame` is being received, or has come */
    bool calls;  /* the rank has connected; this one has not yet */
    bool gone;   /* for good: it has ended, or has destroyed its communicator */
    int broken; /* errno: it is not reached, and may live; the next agreement tries a link that ended */
    bool ended; /* the transport has ended the link */
    struct kolo_agree_address address;
};

struct kolo_agree_links {
    pthread_mutex_t lock; /* of all below */
    struct kolo_comm *comm;
    const struct kolo_transport *transport;
    struct kolo_endpoint *endpoint;
    struct kolo_env env;
    struct kolo_agree_line *line; /* [nranks] */
    uint64_t number;              /* of the last agreement that this rank has come to */
    /* The last one, with its number: who asks for it gets it, also while the next one goes on. */
    bool has_decided;
    struct kolo_agree_frame *decision;
};

/* Whether members of this communicator may need such links: not all of them can share a board. */
bool kolo_agree_links_are_needed(const struct kolo_comm *c);
/* Open this rank's endpoint, and fill in its address. Errors: those of the transport. */
KOLO_CHECK kolo_status kolo_agree_links_open(struct kolo_comm *c, struct kolo_agree_address *out);
void kolo_agree_links_close(struct kolo_comm *c);

/* Under the lock, all of these. */

/* Be ready to hear from rank q, and to send to it. */
void kolo_agree_links_meet(struct kolo_agree_links *l, int q);
/* Send a frame to rank q, unless it is gone. The frame is copied. */
void kolo_agree_links_send(struct kolo_agree_links *l, int q, const struct kolo_agree_frame *frame);
/* Move what can be moved. */
void kolo_agree_links_progress(struct kolo_agree_links *l);
/* The next frame from rank q; NULL: none has come. It stays until kolo_agree_links_drop(). */
const struct kolo_agree_frame *kolo_agree_links_look(struct kolo_agree_links *l, int q);
void kolo_agree_links_drop(struct kolo_agree_links *l, int q);
/* All frames are on their way, but those to ranks that are gone or not reached. */
bool kolo_agree_links_are_clear(const struct kolo_agree_links *l);
struct kolo_agree_frame *kolo_agree_links_frame(const struct kolo_agree_links *l);

#endif
