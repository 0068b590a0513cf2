// SPDX-License-Identifier: Apache-2.0
/* Agreement among the survivors of a communicator. */
#ifndef KOLO_CORE_SETUP_AGREE_H
#define KOLO_CORE_SETUP_AGREE_H

#include "core/board/agreement.h"
#include "core/comm.h"

/* All members are on one board, so they can agree. A communicator of one rank agrees with itself. */
bool kolo_agree_is_possible(const struct kolo_comm *comm);
/* Agree on the AND of the words of all that come within limit_ms, and on who does not come. All
 * that return OK have the same *word and the same seen[nranks] (enum kolo_seen). take_part[nranks]:
 * for whom to wait, equal on all of these; NULL: for all. Who was not waited for, or did not come,
 * is left out of all later agreements, and is told so: PEER. The end of `comm` ends no agreement;
 * a call of kolo_comm_abort() after the first `aborts` ones does. */
kolo_status kolo_agree_among(struct kolo_comm *comm, const bool *take_part, int limit_ms,
                             unsigned aborts, uint64_t *word, unsigned char *seen);
/* PEER if the others have agreed to go on without this rank; else OK. */
kolo_status kolo_agree_takes_part(const struct kolo_comm *comm);

#endif
