// SPDX-License-Identifier: Apache-2.0
/* How the members of a host come to their board, and leave it. */
#ifndef KOLO_CORE_LINK_BOARD_JOIN_H
#define KOLO_CORE_LINK_BOARD_JOIN_H

#include "core/comm.h"

struct kolo_board_offer { /* what the maker of a board tells the others */
    uint32_t has_board;
    unsigned char handle[KOLO_HANDLE_BYTES];
};

/* The rank that makes the board of this host: the lowest one. */
int kolo_board_maker(const struct kolo_comm *c);
/* Make the board, if this rank is the maker. `out` is zero. Errors: SYSTEM. */
kolo_status kolo_board_make(struct kolo_comm *c, struct kolo_board_offer *out);
/* Map the board that the maker has offered; or use one of this rank's own. Errors: those of
 * attaching. */
kolo_status kolo_board_take(struct kolo_comm *c, const struct kolo_board_offer *offer);
void kolo_board_leave(struct kolo_comm *c);

#endif
