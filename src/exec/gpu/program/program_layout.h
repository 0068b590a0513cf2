// SPDX-License-Identifier: Apache-2.0
/* The arguments of the peer kernels, and the memory that they share. Valid C and CUDA C++, with the
 * same layout in both. Like fused_layout.h it includes no other file of kolo. */
#ifndef KOLO_EXEC_GPU_PROGRAM_PROGRAM_LAYOUT_H
#define KOLO_EXEC_GPU_PROGRAM_PROGRAM_LAYOUT_H

#include <stdint.h>

enum {
    KOLO_PROGRAM_RANKS = 32,
    KOLO_PROGRAM_SLICES = 32,   /* thread blocks of a rank */
    KOLO_PROGRAM_THREADS = 512, /* of a block */
    KOLO_PROGRAM_LANES = 16,    /* KOLO_LANES */
    KOLO_PROGRAM_DEPTH = 4,     /* copies of an inbox: tiles that a rank may run ahead */
    KOLO_PROGRAM_COPIES = 4,    /* copies of scratch */
    KOLO_PROGRAM_SIGNALS = 64,  /* words of one writer: its `done`, then its signals, */
    KOLO_PROGRAM_MET = 64,      /* then a word that says that it has come with its buffers, */
    KOLO_PROGRAM_OVER = 65,     /* and one that says that it is done with the others' buffers */
    KOLO_PROGRAM_WORDS = 66,
    /* Words that the rank itself writes: `done` of its lanes, and then marks. A mark says that a
     * lane has come to a point for which another lane waits. */
    KOLO_PROGRAM_OWN = 1,
    KOLO_PROGRAM_MARKS = 17,
    KOLO_PROGRAM_SIDES = 64, /* sources and destinations of a move */
    KOLO_PROGRAM_STAGES = 3,
    KOLO_PROGRAM_HELD = 256,  /* words of a program that its launch carries */
    KOLO_PROGRAM_WINDOW = 512 /* words of a program that a block has in shared memory */
};

/* A program consists of words of 8 bytes. Each lane has one run of words, one lane after another.
 * An op comes first, then its operands, sources first. */
enum {
    KOLO_PROGRAM_WAIT,          /* for words of this rank; `value` is the step of the plan */
    KOLO_PROGRAM_MOVE,          /* `value`: the number of a chunk of the length to move, */
    KOLO_PROGRAM_FULL = 0xffff, /* or this: the length of the longest chunk */
    KOLO_PROGRAM_SIGNAL = 2,    /* stores to word `value` at all readers */
    KOLO_PROGRAM_DONE,          /* tells that this tile is done */
    KOLO_PROGRAM_MARK,          /* stores to words of this rank for which its lanes wait */
    KOLO_PROGRAM_DIRECT         /* a MOVE between the users' buffers, outside the program */
};
#define KOLO_PROGRAM_OP(code, last, nsrc, ndst, value)                                             \
    ((uint64_t)(code) | (uint64_t)(last) << 8 | (uint64_t)(nsrc) << 16 | (uint64_t)(ndst) << 24 |  \
     (uint64_t)(value) << 32) /* last: the reduction is complete here */

/* An operand is kind << 56 | rank << 48 | index. The index is of a chunk of IN, OUT or scratch, or
 * of a place in the inbox of `rank`. For WAIT it is of a word that `rank` writes, for MARK of a
 * word of this rank in lane `rank`. */
enum { KOLO_PROGRAM_IN, KOLO_PROGRAM_OUT, KOLO_PROGRAM_SCRATCH, KOLO_PROGRAM_INBOX };
#define KOLO_PROGRAM_OPERAND(kind, rank, index)                                                    \
    ((uint64_t)(kind) << 56 | (uint64_t)(rank) << 48 | (uint64_t)(index))

/* The *slab* of a rank is the memory that the other ranks map: slices, then inboxes by slice and
 * tile, then scratch by slice and tile, then the slots of exec/gpu/ll/ll_layout.h. Each slice
 * belongs to one block; the slices of a lane follow one another. The plan says which rank stores to
 * which place of an inbox. A word has one writer. */
struct kolo_program_place { /* of a rank's buffers; `in` 0: the other ranks do not reach them */
    uint64_t in, out, factor, unused;
};
struct kolo_program_slice {
    /* Only its block uses these: the tiles that it has run; whether a thread has given up. */
    uint32_t epoch, failed;
    uint32_t through;  /* in lane 0, if lanes are joined: the lanes that have ended the call */
    uint32_t ll_calls; /* calls of LL kernels that it has run */
    uint32_t met;      /* calls in which the ranks have told where their buffers are */
    uint32_t unused[27];
    /* In the first slice; not 0: that rank stores no more here. */
    uint32_t left[KOLO_PROGRAM_RANKS];
    struct kolo_program_place place[KOLO_PROGRAM_RANKS];   /* by writer, stored before its word */
    uint64_t word[KOLO_PROGRAM_RANKS][KOLO_PROGRAM_WORDS]; /* signature << 32 | 1 + epoch */
};
struct kolo_program_room { /* the sizes of a slab; the same on all ranks of a communicator */
    uint32_t nranks, slices;
    uint32_t inbox_bytes, scratch_bytes; /* of a tile, multiples of 128 */
};

/* Pinned host memory. */
struct kolo_program_record { /* why a block gave up */
    uint32_t status;         /* KOLO_PROGRAM_FAILED; written last */
    uint32_t rank, step;     /* the rank for which it waited, and the step of the plan */
    uint32_t epoch;          /* of the tile */
    uint64_t seen;           /* the value of the word */
    uint64_t wanted;         /* the value for which it waited */
};
enum { KOLO_PROGRAM_FINE, KOLO_PROGRAM_TIMEOUT, KOLO_PROGRAM_MISMATCH, KOLO_PROGRAM_ABORTED };
struct kolo_program_control {
    uint32_t abort; /* not 0: every wait gives up */
    uint32_t unused[31];
    struct kolo_program_record record[KOLO_PROGRAM_SLICES];
};

struct kolo_program_ends {    /* the values that only the call itself knows, in every form */
    uint64_t in, out, factor; /* factor: the bits of PREMULSUM's factor */
    uint64_t timeout_ns, control;
    uint32_t signature, unused; /* of the call, equal on all ranks; not 0 */
    uint64_t slab[KOLO_PROGRAM_RANKS];
};

struct kolo_program_lane {
    uint32_t readers, sources; /* bits: the ranks that read from this rank; those it reads from */
    uint32_t stage[KOLO_PROGRAM_STAGES + 1]; /* bounds of pipeline stages, in words */
};
struct kolo_program_span { /* of a rank's block, for blocks of different lengths */
    uint64_t at, bytes;
};

struct kolo_program_launch { /* a kernel's one argument, by value, so that a graph keeps a copy */
    struct kolo_program_ends ends;
    struct kolo_program_room room;
    uint32_t me, divisor;   /* divisor above 1: of the total */
    uint32_t lanes, slices; /* blocks: slices of a lane */
    uint32_t nstages, tiles;
    uint32_t joined;         /* lanes wait for each other */
    uint32_t meets, reached; /* the call may be `direct`; this rank's buffers allow it */
    uint32_t varied;         /* `span` has the lengths, and the offsets where a stride is not 0 */
    uint64_t part, piece;    /* bytes of each chunk for a slice; for a tile of the slice */
    uint64_t full, total;    /* the longest chunk; chunk c has the rest of total behind c * full */
    uint64_t in_stride, out_stride;      /* between chunks of IN, of OUT */
    uint64_t direct, direct_bytes;       /* an op, and the bytes that it moves */
    uint64_t in_at, out_at, direct_part; /* offsets in each buffer; bytes of a slice */
    /* Rank q reaches this rank's buffers at their addresses plus shift[q]. */
    uint64_t in_shift[KOLO_PROGRAM_RANKS], out_shift[KOLO_PROGRAM_RANKS];
    uint64_t program; /* address of the pinned words; 0: `word` has them */
    struct kolo_program_lane lane[KOLO_PROGRAM_LANES];
    struct kolo_program_span span[KOLO_PROGRAM_RANKS];
    uint64_t word[KOLO_PROGRAM_HELD];
};

#ifdef __cplusplus
#define KOLO_PROGRAM_ASSERT static_assert
#else
#define KOLO_PROGRAM_ASSERT _Static_assert
#endif
KOLO_PROGRAM_ASSERT(sizeof(struct kolo_program_slice) ==
                            128 + KOLO_PROGRAM_RANKS * (36 + 8 * KOLO_PROGRAM_WORDS) &&
                        sizeof(struct kolo_program_slice) % 128 == 0 &&
                        sizeof(struct kolo_program_record) == 32,
                    "the same layout on the host and the GPU");
KOLO_PROGRAM_ASSERT(sizeof(struct kolo_program_launch) == 3912,
                    "arguments of a kernel: 4096 at most");
#endif
