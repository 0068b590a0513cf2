// SPDX-License-Identifier: Apache-2.0
/* Agreement among the survivors of a communicator. */
#ifndef KOLO_CORE_AGREE_AGREE_H
#define KOLO_CORE_AGREE_AGREE_H

#include "core/agree/consensus.h"
#include "core/comm.h"

enum { KOLO_AGREE_STANDING = 1 /* the first agreement: that the communicator stands */ };

/* All members are on one board, so they agree there. */
bool kolo_agree_is_on_board(const struct kolo_comm *comm);
/* They can agree at all: on a board, over links, or because there is only one. */
bool kolo_agree_is_possible(const struct kolo_comm *comm);
/* Errors: UNSUPPORTED (they cannot). */
KOLO_CHECK kolo_status kolo_agree_check_possible(const struct kolo_comm *comm);
/* Agree on the AND of the words of all that come within limit_ms, and on who does not come. All
 * that return OK have the same *word and the same seen[nranks] (enum kolo_seen). take_part[nranks]:
 * for whom to wait, equal on all of these; NULL: for all. Who was not waited for, or did not come,
 * is left out of all later agreements, and is told so: PEER. Over links, a rank that lives and does
 * not come ends the agreement of all: TIMEOUT, or LINK if it is not reached. The end of `comm` ends
 * no agreement; a call of kolo_comm_abort() after the first `aborts` ones does. */
KOLO_CHECK kolo_status kolo_agree_among(struct kolo_comm *comm, const bool *take_part, int limit_ms,
                                        unsigned aborts, uint64_t *word, unsigned char *seen);
/* PEER if the others have agreed to go on without this rank; else OK. */
KOLO_CHECK kolo_status kolo_agree_takes_part(const struct kolo_comm *comm);

/* This rank knows that all have the communicator. Who asks by an agreement on it gets that. */
void kolo_agree_stands(struct kolo_comm *comm);
/* Answer the members that ask for the last decision; the watchdog calls it now and then. */
void kolo_agree_serve(struct kolo_comm *comm);

/* What calls on members check first. `call` is for the text. Errors: INVALID (NULL; inside a group),
 * FORKED. */
KOLO_CHECK kolo_status kolo_check_given(const char *name, const void *pointer);
KOLO_CHECK kolo_status kolo_check_members_call(const struct kolo_comm *comm, const char *call);

#endif
