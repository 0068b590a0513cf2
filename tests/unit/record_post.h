// SPDX-License-Identifier: Apache-2.0
/* A rank's place on a board (core/board/board.h), for C++, which does not know C's atomics. */
#ifndef KOLO_TESTS_RECORD_POST_H
#define KOLO_TESTS_RECORD_POST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { POST_RECORDS = 256 };

struct post;
struct post_call {
    uint64_t number, count;
    double start_us, end_us;
    bool over;
};

struct post *post_create(void);
void post_destroy(struct post *post);
void post_begin(struct post *post, uint64_t what, uint64_t count);
void post_end(struct post *post); /* of the call that was begun last */
bool post_find(const struct post *post, uint64_t number, struct post_call *out);
uint64_t post_differ(const struct post *a, const struct post *b);
/* kolo_dump_path() of rank 3, process 4711, communicator abc. */
void post_path(const char *pattern, char *out, size_t room);

#endif
