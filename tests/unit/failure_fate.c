// SPDX-License-Identifier: Apache-2.0
/* For failure_test.cc: the fate of a rank, as another rank writes it. */
#include "core/board/board.h"
#include "core/comm.h"

bool failure_note_fate(struct kolo_comm *c, int rank);

/* Whoever watches the rank's process has seen its end. False: there is no board to write to. */
bool failure_note_fate(struct kolo_comm *c, int rank)
{
    struct kolo_board_slot *slot = kolo_comm_slot(c, rank);
    if (slot != NULL) {
        kolo_fate_note(c->health.board, slot, KOLO_FATE_DIED);
    }
    return slot != NULL;
}
