// SPDX-License-Identifier: Apache-2.0
/* How the ranks of a job find each other and exchange small data while a communicator comes up.
 *
 * A *meeting point* is a hub that some process of the job runs as a thread; every rank holds one
 * connection to it (a star): on its host by an abstract UNIX socket, which leaves nothing behind
 * even by SIGKILL, from other hosts by TCP. */
#ifndef KOLO_BOOT_BOOTSTRAP_H
#define KOLO_BOOT_BOOTSTRAP_H

#include "util/net.h"
#include "util/util.h"

enum {
    KOLO_BOOT_MAX_RANKS = 65536,
    KOLO_BOOT_MAX_BYTES = 64 << 20,
    KOLO_BOOT_SPREAD_BYTES = 1 << 20
};

/* Where to meet: a name (any text; equal on all ranks) and a secret (all zero: none; then only the
 * peer's user id is checked, and nobody can come by TCP). */
struct kolo_meet {
    char name[72];
    unsigned char secret[32];
    struct kolo_inet place; /* for ranks of other hosts; family 0: all are on this one */
    /* Of the communicator that the ranks come from: not 0 once it has failed, after which nobody
     * waits here any more; NULL: there is none. */
    const int *parent_failed;
    /* Whether others wait in vain for what this process serves, which then waits no more; NULL. */
    bool (*starved)(void);
};

struct kolo_boot;

/* Join as `rank` of `nranks`; returns when all have. With `host_hub` this process also runs the hub
 * (rank 0 of an environment launch); for an id its creator does. Any number of ranks may be threads
 * of one process. `timeout_ms` > 0 bounds this call and each exchange after it.
 * Errors: INVALID ("rank 2 joined twice", differing nranks), VERSION, PEER (one died), TIMEOUT
 * (naming the ranks that had not come), SYSTEM: the same on every rank that waits. A rank with
 * another secret gets INVALID, the others go on waiting: whoever lacks the secret cannot stop them,
 * but their time-out's text tells of it. */
KOLO_CHECK kolo_status kolo_boot_open(const struct kolo_meet *meet, int nranks, int rank,
                                      bool host_hub, int timeout_ms, struct kolo_boot **out);
/* all[r*bytes ...] = rank r's mine[bytes]; `bytes` equal on all ranks (else MISMATCH), at most
 * KOLO_BOOT_MAX_BYTES / nranks. One thread at a time. An error is final: only close may follow. */
KOLO_CHECK kolo_status kolo_boot_all_gather(struct kolo_boot *boot, const void *mine, size_t bytes,
                                            void *all);
/* data[bytes] becomes rank 0's on every rank; `bytes` equal on all, at most KOLO_BOOT_SPREAD_BYTES.
 * Otherwise as above. */
KOLO_CHECK kolo_status kolo_boot_spread(struct kolo_boot *boot, void *data, size_t bytes);
KOLO_CHECK kolo_status kolo_boot_barrier(struct kolo_boot *boot);
/* Between exchanges: whether the next one will fail, because somebody died. */
bool kolo_boot_has_ended(const struct kolo_boot *boot);
/* Between exchanges: this rank misses a peer, which may have gone because of another. What the hub
 * says of it, within a second; INPROGRESS: nothing. */
KOLO_CHECK kolo_status kolo_boot_why(struct kolo_boot *boot);
/* This rank cannot go on, for what its thread's error says: the others are told that. */
void kolo_boot_give_up(struct kolo_boot *boot, kolo_status status);
/* Local but for the process that runs the hub, which first lets it deliver what others still wait
 * for. NULL is allowed. */
void kolo_boot_close(struct kolo_boot *boot);

/* Start a hub in this process for a fresh id: a thread that listens on the name, serves the ranks
 * of one job (it learns from the first how many they are), then ends. With `net` it also listens
 * on the interface of kolo_net_choose(), and meet->place says where. */
KOLO_CHECK kolo_status kolo_boot_serve(struct kolo_meet *meet, bool net);

/* The meeting point that an id of kolo_id_create() names. Errors: INVALID (not such an id),
 * UNSUPPORTED (made on another host). */
KOLO_CHECK kolo_status kolo_meet_from_id(const struct kolo_id *id, struct kolo_meet *out);

/* Equal for processes that can share memory and meet: boot id of the kernel, network and user
 * namespace; never the host's name. Reads three files: keep it. */
uint64_t kolo_host_id(void);
/* Random, one per process; a forked child has another. */
uint64_t kolo_process_id(void);

#endif
