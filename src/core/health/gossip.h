// SPDX-License-Identifier: Apache-2.0
/* Words between ranks without a common board, and the links that carry news from host to host. */
#ifndef KOLO_CORE_HEALTH_GOSSIP_H
#define KOLO_CORE_HEALTH_GOSSIP_H

#include "boot/bootstrap.h"
#include "core/comm.h"

/* Connect to the first ranks of some other hosts. These links tell of deaths while nobody calls.
 * has_board[q]: the host of rank q has a board, if rank q is its first rank. Errors: those of
 * connecting. */
kolo_status kolo_gossip_begin(struct kolo_comm *c, const bool *has_board);
/* Wait until these links stand on both sides, or the meeting has ended, which says why at its next
 * exchange. Errors: PEER, TIMEOUT, and what has ended the communicator. */
kolo_status kolo_gossip_join(struct kolo_comm *c, const struct kolo_boot *boot);
/* Ask rank q, which has no slot on our board, whom it waits for. */
void kolo_gossip_ask(struct kolo_comm *c, int q);
/* Tell the neighbours of gossip what this rank does; its last call goes with it. */
void kolo_gossip_tell(struct kolo_comm *c);
/* kolo_env.on_notify: rank `rank` said `word`. */
void kolo_gossip_said(void *comm, int rank, uint64_t word);

#endif
