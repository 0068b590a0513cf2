// SPDX-License-Identifier: Apache-2.0
/* A rank's place on a board (core/board/board.h), for C++, which does not know C's atomics. */
#ifndef KOLO_TESTS_RECORD_SLOT_H
#define KOLO_TESTS_RECORD_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLOT_RECORDS = 256 };

struct slot;
struct slot_call {
    uint64_t number, count;
    double start_us, end_us;
    bool over;
};

struct slot *slot_create(void);
void slot_destroy(struct slot *slot);
void slot_begin(struct slot *slot, uint64_t key, uint64_t count);
void slot_end(struct slot *slot); /* of the call that was begun last */
bool slot_find(const struct slot *slot, uint64_t number, struct slot_call *out);
uint64_t slot_differ(const struct slot *a, const struct slot *b);
/* kolo_flight_recorder_path() of rank 3, process 4711, communicator abc. */
void slot_path(const char *pattern, char *out, size_t room);

#endif
