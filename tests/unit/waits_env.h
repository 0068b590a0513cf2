// SPDX-License-Identifier: Apache-2.0
/* What a test of long waits needs of a communicator's inside. */
#ifndef KOLO_TESTS_UNIT_WAITS_ENV_H
#define KOLO_TESTS_UNIT_WAITS_ENV_H

#include <kolo/kolo.h>

#include <stdbool.h>

/* Whether this process has membarrier at all. */
bool kolo_test_has_membarrier(void);
/* Whether a long wait of `comm` sleeps until it is woken; else it is a series of naps. */
bool kolo_test_sleeps_until_woken(const struct kolo_comm *comm);
/* Have `comm` wait as with more ranks than cores, however many cores there are. */
void kolo_test_crowd(struct kolo_comm *comm);

#endif
