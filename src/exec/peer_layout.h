// SPDX-License-Identifier: Apache-2.0
/* What the peer kernels take, and the memory that they share: valid C and CUDA C++, with the same
 * layout in both. Includes nothing of kolo, as fused_layout.h. See peer.h. */
#ifndef KOLO_EXEC_PEER_LAYOUT_H
#define KOLO_EXEC_PEER_LAYOUT_H

#include <stdint.h>

enum {
    KOLO_PEER_RANKS = 16,
    KOLO_PEER_SLICES = 32,   /* thread blocks of a rank */
    KOLO_PEER_THREADS = 512, /* of a block */
    KOLO_PEER_DEPTH = 4,     /* copies of a slot: tiles ahead of one's readers */
    KOLO_PEER_COPIES = 4,    /* of scratch */
    KOLO_PEER_SIGNALS = 32,  /* words of one writer: its `done`, then its signals, */
    KOLO_PEER_MET = 32,      /* then that it has come with its buffers, */
    KOLO_PEER_OVER = 33,     /* and that it leaves the others' alone again */
    KOLO_PEER_WORDS = 34,
    KOLO_PEER_OPS = 88,
    KOLO_PEER_SIDES = 40, /* sources and destinations of a move */
    KOLO_PEER_OPERANDS = 256,
    KOLO_PEER_STAGES = 3
};

/* Codes of ops. DIRECT: a MOVE between the users' buffers, beside the program. */
enum { KOLO_PEER_WAIT, KOLO_PEER_MOVE, KOLO_PEER_SIGNAL, KOLO_PEER_DONE, KOLO_PEER_DIRECT };

struct kolo_peer_op {
    uint8_t code, last, nsrc, ndst; /* last: the reduction is complete here */
    uint16_t first;                 /* operand: sources, then destinations */
    uint16_t word;                  /* SIGNAL: which */
    uint64_t bytes;                 /* MOVE: of the whole chunk */
};

/* An operand is kind << 56 | rank << 48 | where; `where` is in bytes but of a WAIT, which has the
 * number of a word. Slots lie at their readers: FROM is mine, of writer `rank`; TO is `rank`'s, of
 * mine. */
enum { KOLO_PEER_IN, KOLO_PEER_OUT, KOLO_PEER_SCRATCH, KOLO_PEER_FROM, KOLO_PEER_TO };

/* A rank's memory that the others map, its *slab*: slices, then slots by slice, writer and tile,
 * then scratch by slice and tile, then what low_layout.h says. A word has one writer. */
struct kolo_peer_place { /* of a rank's buffers; `in` 0: the others do not reach them */
    uint64_t in, out, factor, unused;
};
struct kolo_peer_slice {
    /* Its block's alone: tiles that it has run; the readers of the tile in each slot, a bit a rank;
     * whether a thread has given up. */
    uint32_t epoch, readers[KOLO_PEER_DEPTH], failed;
    uint32_t left[KOLO_PEER_RANKS]; /* of the first slice: not 0, that rank stores no more here */
    uint32_t low;                   /* calls that it has run of the low-latency kernels */
    uint32_t met;                   /* calls in which ranks have said where their buffers are */
    uint32_t unused[8];
    struct kolo_peer_place place[KOLO_PEER_RANKS];   /* by writer, ahead of its word */
    uint64_t word[KOLO_PEER_RANKS][KOLO_PEER_WORDS]; /* signature << 32 | 1 + epoch */
};
struct kolo_peer_room { /* of a slab; alike on all ranks of a communicator */
    uint32_t nranks, slices;
    uint32_t slot_bytes, scratch_bytes; /* of a tile, multiples of 128 */
};

/* Pinned memory of the host's. */
struct kolo_peer_record { /* why a block gave up */
    uint32_t status;      /* KOLO_PEER_FAILED; written last */
    uint32_t rank, step;  /* which it waited for, in which step of the plan */
    uint32_t epoch;       /* of the tile, */
    uint64_t seen;        /* what the word was */
    uint64_t wanted;      /* and what it was waited for to become */
};
enum { KOLO_PEER_FINE, KOLO_PEER_TIMEOUT, KOLO_PEER_MISMATCH, KOLO_PEER_ABORTED };
struct kolo_peer_control {
    uint32_t abort; /* not 0: whoever waits gives up */
    uint32_t unused[31];
    struct kolo_peer_record record[KOLO_PEER_SLICES];
};

struct kolo_peer_ends {       /* what a call of any form has that was not known before it */
    uint64_t in, out, factor; /* factor: the bits of PREMULSUM's */
    uint64_t timeout_ns, control;
    uint32_t signature, unused; /* of the call, equal on all ranks; not 0 */
    uint64_t slab[KOLO_PEER_RANKS];
};

struct kolo_peer_launch { /* a kernel's one argument, by value: graphs keep it as it is */
    struct kolo_peer_ends ends;
    struct kolo_peer_room room;
    uint32_t me, divisor;      /* divisor above 1: of the total */
    uint32_t readers, sources; /* bits: ranks that read my words and slots; whose I read */
    uint32_t tiles;
    uint32_t meets, reached; /* it may be DIRECT, by op[nops]; this rank's buffers allow it */
    uint32_t unused;
    uint64_t part, piece; /* bytes of each chunk that a slice takes; that a tile of it takes */
    uint64_t in_at, out_at, direct_part; /* DIRECT: where in each buffer; bytes of a slice */
    /* What a rank adds to the addresses of this one's buffers, to reach them. */
    uint64_t in_shift[KOLO_PEER_RANKS], out_shift[KOLO_PEER_RANKS];
    uint8_t nops, nstages;
    uint8_t stage[KOLO_PEER_STAGES + 1]; /* bounds of pipeline stages */
    uint8_t padding[2];
    struct kolo_peer_op op[KOLO_PEER_OPS];
    uint64_t at[KOLO_PEER_OPERANDS];
};

#ifdef __cplusplus
#define KOLO_PEER_ASSERT static_assert
#else
#define KOLO_PEER_ASSERT _Static_assert
#endif
KOLO_PEER_ASSERT(sizeof(struct kolo_peer_slice) ==
                         128 + 8 * KOLO_PEER_RANKS * (4 + KOLO_PEER_WORDS) &&
                     sizeof(struct kolo_peer_record) == 32 && sizeof(struct kolo_peer_op) == 16,
                 "the same layout on the host and the GPU");
KOLO_PEER_ASSERT(sizeof(struct kolo_peer_launch) == 3984, "arguments of a kernel: 4096 at most");
#endif
