// SPDX-License-Identifier: Apache-2.0
/* Rank 1 greets a rank 0 that a test plays, over the loopback. */
#ifndef KOLO_TESTS_UNIT_TCP_GREET_ASK_H
#define KOLO_TESTS_UNIT_TCP_GREET_ASK_H

#ifdef __cplusplus
extern "C" {
#endif

/* Rank 0 refuses the connection, since its own is preferred, and dies. What rank 1 reports of it
 * within 5 s: an errno; 0: nothing; -1: they did not come so far. */
int greet_one_who_refuses_and_dies(void);

#ifdef __cplusplus
}
#endif

#endif
