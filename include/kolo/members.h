// SPDX-License-Identifier: Apache-2.0
/* Communicators that are made of others: parts, survivors, and old ranks with new ones.
 *
 * kolo/kolo.h includes this file. */
#ifndef KOLO_MEMBERS_H
#define KOLO_MEMBERS_H

#include "kolo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- members ---- */

/* Split a communicator into parts. All ranks call it. The ranks of equal `color` (>= 0) form a new
 * communicator, ordered by `key`, then by rank. A rank with KOLO_NO_COLOR gets NULL. `config` NULL:
 * the options of the parent. Errors: INVALID (also inside a group), TIMEOUT, PEER, SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_split(struct kolo_comm *comm, int color, int key,
                                       const struct kolo_config *config, struct kolo_comm **out);

/* Form a communicator of some ranks of `comm`, in any order. members[i] is the number in `comm` of
 * the rank that becomes rank i. Only the members call it, all with the same list and the same `tag`:
 * any text, a new one for each call with this list. Several threads may make groups at once. `comm`
 * may have failed. All its ranks must be on one host; else every member gets UNSUPPORTED. If a
 * member dies or leaves `comm` meanwhile, the others get PEER. `config` NULL: the options of `comm`.
 * Errors: INVALID (also inside a group), UNSUPPORTED, PEER, TIMEOUT, ABORTED (kolo_comm_abort()
 * meanwhile), SYSTEM.
 * Source: MPI_Comm_create_group() of MPI 4.1, section 7.4.2. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_create_group(struct kolo_comm *comm, const int members[],
                                              int nranks, const char *tag,
                                              const struct kolo_config *config,
                                              struct kolo_comm **out);

/* Go on without the ranks that failed. Only the survivors call it, all with the same ranks in
 * exclude[nexclude]. The new communicator has the other ranks of `comm`, in the old order. `comm`
 * may have failed; it must still be destroyed. `config` NULL: the options of `comm`. If one more
 * rank dies or leaves, the call ends with PEER, and kolo_comm_failed_ranks() of `comm` lists it.
 * Errors: INVALID (also inside a group), PEER, TIMEOUT, ABORTED (kolo_comm_abort() meanwhile), SYSTEM.
 */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_shrink(struct kolo_comm *comm, const int *exclude, int nexclude,
                                        const struct kolo_config *config, struct kolo_comm **out);
/* List the ranks that a failed communicator has lost, for kolo_comm_shrink(): the dead, the ranks
 * that left, and the rank at fault. The list grows when more ranks die. ranks[room] gets the lowest
 * of them, ascending, and `count_out` their number. Any thread may call it. Errors: INVALID. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_failed_ranks(struct kolo_comm *comm, int ranks[], int room,
                                              int *count_out);

/* Take in new ranks, while other threads may go on calling on `comm`. All ranks of `comm` call it,
 * and keep their numbers: `rank` is their own. A new rank passes NULL for `comm`, and a number from
 * the old size up to nranks - 1. All pass the same `id`: a new one of kolo_id_create() for each
 * attempt, which new ranks may get from a store or a file. `comm` stays as it is, and must still be
 * destroyed. `config` NULL: the options of `comm`. If a rank of `comm` dies or leaves, or a new one
 * dies after it has joined, the call ends with PEER on all ranks. Errors: as kolo_comm_create();
 * INVALID also inside a group; what has ended `comm`. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_grow(struct kolo_comm *comm, const struct kolo_id *id, int nranks,
                                      int rank, const struct kolo_config *config,
                                      struct kolo_comm **out);

/* Agree among the survivors on the bitwise AND of their words, and on the ranks that have failed.
 * All ranks of `comm` that live call it; it may have failed. Every rank that gets OK gets the same
 * *word and the same failed[room], ascending, with their number in `count_out` (which may be NULL),
 * also if ranks die meanwhile. No rank waits for one that has ended. A rank that has not come after
 * the time-out of `comm` counts as failed, and gets PEER if it comes later. If the ranks are on
 * several hosts, it cannot be left out: then all others get TIMEOUT, or LINK if it is not reached,
 * which name it. If it comes after the others have destroyed `comm`, it agrees alone: it gets OK, and
 * all others as failed.
 * Errors: INVALID (also inside a group), PEER (the others go on without this rank, or have given up
 * because of it), TIMEOUT, LINK, ABORTED (kolo_comm_abort() meanwhile; over several hosts on any
 * rank), UNSUPPORTED (no TCP between the ranks, and no shared memory), SYSTEM.
 * Cost: over several hosts 4 messages one after the other, and several for each pair of ranks; the
 * first agreement makes a connection for each pair. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_agree(struct kolo_comm *comm, uint64_t *word, int failed[],
                                       int room, int *count_out);

/* Form a communicator of any old and new ranks, in any order. members[i] is the number in `comm` of
 * the rank that becomes rank i, or -1 for a new rank, which calls kolo_comm_enter(). The old ranks
 * in the list call this, all with the same list; the others are left out of later agreements of
 * `comm`. All pass the same `id`: a new one of kolo_id_create() for each call. Other threads may go
 * on calling on `comm`, and it must still be destroyed; it may have failed.
 *
 * If members die meanwhile, the others try again without them: those behind move up. So the size
 * may be smaller than asked for; with kolo_comm_failed_ranks() or new numbers the caller finds out
 * who is missing. Either all survivors get the new communicator, or none does. If the old ranks are
 * on several hosts, and there are new ones, a death ends the call with PEER on all: the caller may
 * call again, with a new id. `config` NULL: the options of `comm`. Errors: INVALID (also inside a
 * group, and if the lists differ), UNSUPPORTED (as kolo_comm_agree()), PEER (the others go on without
 * this rank; no rank is left), TIMEOUT, LINK, ABORTED (kolo_comm_abort() meanwhile), SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_reconfigure(struct kolo_comm *comm, const struct kolo_id *id,
                                             const int members[], int nranks,
                                             const struct kolo_config *config,
                                             struct kolo_comm **out);
/* Enter a communicator that old ranks form by kolo_comm_reconfigure(), as its rank `rank` of
 * `nranks`. If members die meanwhile, numbers may be smaller than these. Errors: INVALID, PEER (the
 * others go on without this rank, or a member of several hosts has died), TIMEOUT, LINK, SYSTEM. */
KOLO_EXPORT
KOLO_CHECK kolo_status kolo_comm_enter(const struct kolo_id *id, int nranks, int rank,
                                       const struct kolo_config *config, struct kolo_comm **out);
/* How many changes of its members have led to this communicator: 0 after a creation, one more than
 * the old communicator's after kolo_comm_shrink(), kolo_comm_grow() and kolo_comm_reconfigure(). The
 * same on all ranks. -1 for NULL. */
KOLO_EXPORT
int kolo_comm_epoch(const struct kolo_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
