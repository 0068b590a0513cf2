// SPDX-License-Identifier: Apache-2.0
/* What a test of agreements needs of a communicator's inside. */
#ifndef KOLO_TESTS_UNIT_AGREE_ASK_H
#define KOLO_TESTS_UNIT_AGREE_ASK_H

#include <kolo/kolo.h>

/* As a rank that has not heard that all others are ready: ask whether `comm` stands. *word is not 0
 * if it does. The caller is the only thread that agrees on `comm`. */
kolo_status kolo_test_ask_standing(struct kolo_comm *comm, uint64_t *word);

#endif
