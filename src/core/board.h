// SPDX-License-Identifier: Apache-2.0
/* The board of a communicator: what its members on one host tell each other beside the data.
 *
 * One segment of shared memory, made by the lowest of them and mapped by all: who is here and who
 * has left, which calls each has made, for whom it waits, and what ended the communicator. It lives
 * as long as one of them, so what a dead rank last said can still be read, also by `kolo ps`. A
 * rank without peers to share it with writes to a post of its own. */
#ifndef KOLO_CORE_BOARD_H
#define KOLO_CORE_BOARD_H

#include "util/util.h"

#include <stdatomic.h>

enum { KOLO_TRAIL = 64, KOLO_BOARD_VERSION = 2, KOLO_VERDICT_TEXT = 384 };
#define KOLO_BOARD_MAGIC UINT64_C(0x6472616f626f6c6b) /* "kloboard" */

enum { KOLO_WHAT_V = 0x80 };

/* Calls are numbered from 1. Those from `first` on, until the next trail's, were this. */
struct kolo_trail {
    _Atomic uint64_t first;
    _Atomic uint64_t what; /* kolo_memo_what(), and KOLO_WHAT_V of a v-form */
    _Atomic uint64_t count;
    _Atomic uint64_t when_us; /* kolo_now_us() of the first */
};

enum kolo_presence { KOLO_POST_ABSENT, KOLO_POST_HERE, KOLO_POST_LEFT };

struct kolo_post {                        /* a rank's place on the board */
    _Alignas(128) _Atomic uint64_t begun; /* collectives so far */
    _Atomic uint64_t trails;              /* entries so far; the last KOLO_TRAIL are kept */
    _Atomic int32_t waits_for;            /* rank + 1, once that takes long; 0: nobody */
    _Atomic int32_t waits_for_last;       /* who that waits for in the end, as last known */
    _Atomic uint32_t callers;  /* threads of its process that make calls; streams count as one */
    _Atomic uint64_t since_us; /* kolo_now_us() when it began to wait */
    _Atomic int32_t rank, pid;
    _Atomic uint32_t presence; /* enum kolo_presence */
    struct kolo_trail trail[KOLO_TRAIL];
};

/* What ended the communicator first; written once. */
struct kolo_verdict {
    _Atomic uint32_t state; /* 0 none, 1 being written, 2 there */
    int32_t status;
    int32_t rank;    /* whom it is about, -1: not known */
    int32_t seen_by; /* who found it */
    uint64_t call;   /* that rank's number of the call, 0: none */
    char text[KOLO_VERDICT_TEXT];
};

struct kolo_board {
    uint64_t magic;
    uint32_t version, nposts;
    int32_t nranks;
    uint64_t comm; /* its id */
    char name[32];
    struct kolo_verdict verdict;
    struct kolo_post post[];
};

static inline size_t kolo_board_bytes(int nposts)
{
    return sizeof(struct kolo_board) + (size_t)nposts * sizeof(struct kolo_post);
}

/* Say that the next calls are this; nothing if the last ones were, too. */
void kolo_trail_note(struct kolo_post *post, uint64_t what, uint64_t count);
/* What call `number` of that rank was; false if it is not known (any more). */
bool kolo_trail_find(const struct kolo_post *post, uint64_t number, struct kolo_trail *out);
/* A call that two ranks number alike and that is not the same on both: its number, else 0. */
uint64_t kolo_trail_differ(const struct kolo_post *a, const struct kolo_post *b);
/* "all_reduce of 1024 float32, sum"; `room` of 96 always suffices. */
void kolo_trail_text(const struct kolo_trail *trail, char *out, size_t room);
/* Whether these are the same call, as far as ranks must agree. */
bool kolo_trail_agrees(const struct kolo_trail *a, const struct kolo_trail *b);

/* Write the verdict, unless there is one. */
bool kolo_verdict_write(struct kolo_board *board, const struct kolo_verdict *verdict);
bool kolo_verdict_read(const struct kolo_board *board, struct kolo_verdict *out);

#endif
