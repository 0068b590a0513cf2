// SPDX-License-Identifier: Apache-2.0
/* Bootstrap: how the ranks of a job find each other and exchange small data while a communicator is
 * created.
 *
 * A meeting point is a hub: a thread of one process of the job. Every rank holds one connection to
 * it. On the same host that is an abstract UNIX socket, which leaves nothing behind even after
 * SIGKILL. From other hosts it is TCP. */
#ifndef KOLO_BOOT_BOOTSTRAP_H
#define KOLO_BOOT_BOOTSTRAP_H

#include "util/net.h"
#include "util/util.h"

enum {
    KOLO_BOOT_MAX_RANKS = 65536,
    KOLO_BOOT_MAX_BYTES = 64 << 20,
    KOLO_BOOT_SPREAD_BYTES = 1 << 20
};

/* How far a rank is at a meeting: no hub has acknowledged it, the hub has, or all ranks have come. */
enum kolo_meet_step { KOLO_MEET_SEEKING, KOLO_MEET_JOINED, KOLO_MEET_COMPLETE };

/* The communicator that the ranks of a meeting come from. It may know more of the ranks than the
 * meeting does. */
struct kolo_meet_parent {
    /* Whether this rank may go on waiting; an error ends every wait here. It is asked ten times a
     * second, or more often. If the end of a rank is the reason, the function sets at_fault. */
    kolo_status (*may_wait)(struct kolo_meet_parent *parent, enum kolo_meet_step step);
    int at_fault; /* the rank of the meeting whose end has ended it; -1: none is known */
};

/* A meeting point: a name (any text, equal on all ranks) and a secret. A secret of zeros is none:
 * then only the user id of the peer is checked, and TCP is off. */
struct kolo_meet {
    char name[72];
    unsigned char secret[32];
    struct kolo_inet place; /* for ranks of other hosts; family 0: all ranks are on this host */
    int listener;           /* listens at `place` already, and stays its owner's; 0: nothing does */
    struct kolo_meet_parent *parent; /* NULL: the ranks come from no communicator */
    /* [nranks] Ranks for which the hub of this process must not wait; NULL: it waits for all. The
     * others find zeros in their places. Such a rank that comes gets PEER. */
    const bool *absent;
    int limit_ms; /* of this meeting; 0: the time-out of the communicator */
    int epoch;    /* of the communicator that the ranks form, as far as this one knows */
    /* Whether other ranks wait in vain for memory of this process. Then every wait here ends. The
     * pointer may be NULL. */
    bool (*starved)(void);
};

struct kolo_boot;

/* A first exchange, as by kolo_boot_all_gather(). A rank sends its part as soon as it has proved the
 * secret, so the exchange takes no time of its own. */
struct kolo_boot_first {
    const void *mine;
    size_t bytes;
    void *all;
};

/* Join as `rank` of `nranks`. Returns when all ranks have joined, and the first exchange is over
 * (`first` is NULL if there is none). With `host_hub` this process also
 * runs the hub (rank 0 of an environment launch). For an id, its creator runs the hub. Any number
 * of ranks may be threads of one process. `timeout_ms` > 0 bounds this call and each exchange after
 * it.
 *
 * Errors: INVALID ("rank 2 joined twice", different nranks), VERSION, PEER (a rank died), TIMEOUT
 * (the text names the missing ranks), SYSTEM. Every waiting rank gets the same error. A rank with
 * another secret gets INVALID, while the others go on waiting: a process without the secret cannot
 * stop them. The text of their time-out mentions it. */
KOLO_CHECK kolo_status kolo_boot_open(const struct kolo_meet *meet, int nranks, int rank,
                                      bool host_hub, int timeout_ms,
                                      const struct kolo_boot_first *first, struct kolo_boot **out);
/* all[r*bytes ...] = rank r's mine[bytes]; `bytes` equal on all ranks (else MISMATCH), at most
 * KOLO_BOOT_MAX_BYTES / nranks. One thread at a time. An error is final: only close may follow. */
KOLO_CHECK kolo_status kolo_boot_all_gather(struct kolo_boot *boot, const void *mine, size_t bytes,
                                            void *all);
/* data[bytes] becomes rank 0's on every rank; `bytes` equal on all, at most KOLO_BOOT_SPREAD_BYTES.
 * Otherwise as above. */
KOLO_CHECK kolo_status kolo_boot_spread(struct kolo_boot *boot, void *data, size_t bytes);
KOLO_CHECK kolo_status kolo_boot_barrier(struct kolo_boot *boot);
/* Between exchanges: whether the next one will fail because a rank died. */
bool kolo_boot_has_ended(const struct kolo_boot *boot);
/* Between exchanges: whether this rank may wait for others elsewhere. The parent may say no, or the
 * others wait for memory of this process in vain (SYSTEM). */
KOLO_CHECK kolo_status kolo_boot_may_wait(const struct kolo_boot *boot);
/* Between exchanges: this rank misses a peer, which may have left because of another rank. Ask the
 * hub for the cause, for at most a second. INPROGRESS: the hub knows none. */
KOLO_CHECK kolo_status kolo_boot_why(struct kolo_boot *boot);
/* This rank cannot go on: send the others the error of this thread. */
void kolo_boot_give_up(struct kolo_boot *boot, kolo_status status);
/* All ranks have come as far as this one, as it knows from elsewhere. So none of them needs the hub
 * any more, and kolo_boot_close() does not wait for the hub. */
void kolo_boot_is_over(struct kolo_boot *boot);
/* Leave. The process that runs the hub first waits until the hub has delivered all its output. NULL
 * is allowed. */
void kolo_boot_close(struct kolo_boot *boot);

/* Whether a hub listens at the name of the meeting, on this host. */
bool kolo_boot_is_served(const struct kolo_meet *meet);

/* Start a hub in this process for a fresh id: a thread that listens on the name, serves the ranks
 * of one job, then ends. It learns the number of ranks from the first one. With `net` it also
 * listens on the interface of kolo_net_choose(), and sets meet->place. */
KOLO_CHECK kolo_status kolo_boot_serve(struct kolo_meet *meet, bool net);

/* The meeting point that an id of kolo_id_create() names. Errors: INVALID (not such an id),
 * UNSUPPORTED (made on another host). */
KOLO_CHECK kolo_status kolo_meet_from_id(const struct kolo_id *id, struct kolo_meet *out);

/* Whether a process of this host made the id. */
bool kolo_id_is_from_here(const struct kolo_id *id);

/* A number that is equal for processes that can share memory and meet. It is made of the kernel's
 * boot id, the network namespace and the user namespace, never of the host's name. The call reads
 * three files, so the caller should keep the result. */
uint64_t kolo_host_id(void);
/* A number for the running kernel, of its boot id; the containers of a machine share it. 0: not
 * known. */
uint64_t kolo_kernel_id(void);
/* A number for the PID namespace of this process. Processes with the same number see the same
 * process IDs. 0: it is not known, or /proc belongs to another namespace. */
uint64_t kolo_pid_space(void);
/* A random number for each process; a forked child has another. */
uint64_t kolo_process_id(void);

#endif
