// SPDX-License-Identifier: Apache-2.0
/* Agreement of the members of a host, through their board.
 *
 * A decision that a rank tells the others is lost with that rank. So it lies on the board, where
 * every survivor finds it: each rank that knows enough proposes, and one compare-and-swap takes one
 * proposal for all. No rank waits for the rank that won.
 *
 * Agreements are numbered from 1, and a rank comes to one after the other. All functions may be
 * called by several ranks at once. */
#ifndef KOLO_CORE_BOARD_AGREEMENT_H
#define KOLO_CORE_BOARD_AGREEMENT_H

#include "core/board/board.h"

enum kolo_outcome { KOLO_OUTCOME_OPEN, KOLO_OUTCOME_DECIDED, KOLO_OUTCOME_PASSED };

/* The member in this slot comes to agreement `number` with a word. */
void kolo_agreement_come(struct kolo_board *board, int slot, uint64_t number, uint64_t word);
/* Whether it has; then *word_out is what it brought. */
bool kolo_agreement_has_come(const struct kolo_board *board, int slot, uint64_t number,
                             uint64_t *word_out);
/* Propose a word and what is seen[] of each slot, a byte. The first proposal becomes the decision. */
void kolo_agreement_propose(struct kolo_board *board, int slot, uint64_t number, uint64_t word,
                            const unsigned char *seen);
/* Read the decision: OPEN while there is none. PASSED: the others have gone on to a later one. */
enum kolo_outcome kolo_agreement_read(const struct kolo_board *board, uint64_t number,
                                      uint64_t *word_out, unsigned char *seen_out);

/* A communicator has come up, or not, on all ranks that share its board. A rank that has heard of
 * the end of the last exchange knows that all have the board: then it says OK. A rank whose last
 * exchange failed says so. What was said first holds for all: the status, and in *at_fault the rank
 * at fault, -1 if none is known. */
kolo_status kolo_standing_settle(struct kolo_board *board, kolo_status status, int *at_fault);

#endif
