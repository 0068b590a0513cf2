// SPDX-License-Identifier: Apache-2.0
/* The call cache of a communicator that is never called: all-reduces of float32 are stored there. */
#ifndef KOLO_TESTS_MEMO_CALLS_H
#define KOLO_TESTS_MEMO_CALLS_H

#include <stdbool.h>
#include <stddef.h>

struct calls;
struct calls *calls_create(void);
void calls_destroy(struct calls *calls);
/* The place of a call's memo. */
size_t calls_place(size_t count);
enum { CALLS_BOUND = 4 }; /* programs that the calls may have, from 0 on */
void calls_learn(struct calls *calls, size_t count, int bound);
/* A bound program leaves the cache. */
void calls_unbind(struct calls *calls, int bound);
bool calls_know(const struct calls *calls, size_t count);

#endif
