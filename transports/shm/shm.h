// SPDX-License-Identifier: Apache-2.0
/* The types that the files of the shm transport share: a rank's region, its links, its messages.
 *
 * An endpoint owns one region, a segment that its peers map when they connect:
 *
 *   bell                   one line: this rank's threads sleep on it
 *   ready[rank][channel]   96 bytes a rank: whether that ring exists
 *   ring[rank][channel]    only address space until the first message, which reserves its pages
 *
 * The ring of (rank, channel) carries this rank's messages to that rank. */
#ifndef KOLO_SHM_SHM_H
#define KOLO_SHM_SHM_H

#include "memory/segment.h"
#include "memory/serve.h"
#include "transports/bytes.h"
#include "transports/shm/remote.h"
#include "transports/transports.h"
#include "util/util.h"

#include <assert.h>
#include <stdatomic.h>

/* The address that address() returns. */
struct kolo_shm_address {
    uint32_t magic;
    uint32_t region; /* segment of the endpoint */
    uint64_t region_bytes;
    struct kolo_shm_identity identity;
    uint64_t device, inode; /* of the segment's file */
    int32_t fd, unused;     /* the owner's descriptor of it */
};
#define KOLO_SHM_MAGIC UINT32_C(0x6b6f6c34)
static_assert(sizeof(struct kolo_shm_address) == 72, "goes over the wire");

/* The content of a kolo_mem's handle. An entry line has only its first 32 bytes; then inode is 0. */
struct kolo_shm_handle {
    uint64_t process; /* the first half of the owner's name */
    uint32_t segment;
    int32_t fd; /* the owner's descriptor of the segment */
    uint64_t offset, len;
    uint64_t device, inode; /* of the segment's file; inode 0: not told */
};
static_assert(sizeof(struct kolo_shm_handle) == 48 &&
                  offsetof(struct kolo_shm_handle, device) == 32,
              "fits a handle, and an entry line without its end");

struct kolo_endpoint {
    struct kolo_env env;
    struct kolo_shm_identity identity;
    uint64_t process; /* the first half of identity.name */
    struct kolo_segment *region;
    bool serves;              /* this endpoint uses the service */
    struct kolo_link *active; /* links with unfinished messages, in the order of their turns */
    struct kolo_link *active_last;
    struct kolo_link *to_ring; /* links whose peers have news; linked by next_to_ring */
};

/* A segment that a link holds: one of this process, or one of the peer's process. */
struct kolo_shm_view {
    uint32_t id;
    char *base;
    size_t len;
    struct kolo_segment *own;
    struct kolo_remote *remote;
};

struct kolo_shm_pipe; /* both directions of one channel; see message.c */

struct kolo_link {
    struct kolo_endpoint *ep;
    bool local; /* the peer is in this process */
    struct kolo_shm_owner peer;
    uint64_t process;            /* the same number as in the peer's handles */
    char *region;                /* the peer's, mapped here */
    struct kolo_shm_view *views; /* sorted by id */
    int nviews, cap;
    struct kolo_link *next_active;
    struct kolo_link *next_to_ring;
    bool rings;       /* it is in ep->to_ring */
    uint32_t pending; /* bit c: channel c has unfinished messages; nonzero: in ep->active */
    atomic_int why;   /* abort()'s status, or 0; any thread */
    struct kolo_shm_pipe *pipe[KOLO_CHANNELS];
};

/* Size of the region of an endpoint with `nranks` ranks. */
size_t kolo_shm_region_bytes(int nranks);
/* Reserve the ready flags of a new region. */
kolo_status kolo_shm_region_prepare(struct kolo_segment *region, int nranks);

kolo_status kolo_shm_send(struct kolo_link *link, const struct kolo_bytes *src,
                          struct kolo_req *req);
kolo_status kolo_shm_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                          struct kolo_req *req);
int kolo_shm_progress(struct kolo_endpoint *ep, int budget);
struct kolo_doorbell *kolo_shm_bell(struct kolo_endpoint *ep);
void kolo_shm_ring(struct kolo_endpoint *ep);
/* End unfinished requests with `why` and free the pipes. */
void kolo_shm_hang_up(struct kolo_link *link, kolo_status why);

#endif
