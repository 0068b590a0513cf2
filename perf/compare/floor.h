// SPDX-License-Identifier: Apache-2.0
/* The floors: the time of the simplest loop that does the work of a collective, in the same run. A
 * library for everybody checks arguments, picks an algorithm and survives dead ranks. The floors do
 * not. So they bound the speed of a library, until a better loop is found.
 *
 *   floor.c         the variants, flags, waiting, the hand-over between ranks of one core
 *   floor_inline.c  payloads of up to 48 bytes in the flag's own cache line
 *   floor_slots.c   private buffers: through a ring of slots that all ranks map
 *   floor_mapped.c  buffers that all ranks map: single copies
 *   floor_copied.c  private buffers: single copies by the system
 *
 * A flag has one writer. It holds a number that only grows, and is compared by distance. */
#ifndef KOLO_COMPARE_FLOOR_H
#define KOLO_COMPARE_FLOOR_H

#include "sum.h"
#include "worker.h"

#include <sched.h>
#include <string.h>

enum { FLOOR_DEPTH = 8, FLOOR_SLOT_MAX = 131072, FLOOR_INLINE = 48, FLOOR_BLOCK = 32768 };

/* Off a power of two, so that slots do not compete for the same sets of a cache. */
enum { FLOOR_SLOT_STRIDE = FLOOR_SLOT_MAX + 4096 + 128 };
/* With turns a rank's slots are this large together, more than an L2 holds. */
enum { FLOOR_RING_BYTES = 2 * FLOOR_DEPTH * FLOOR_SLOT_STRIDE };

struct floor_line { /* payload first: a line and its flag arrive together */
    _Alignas(COMPARE_LINE_BYTES) unsigned char data[FLOOR_INLINE];
    _Atomic uint32_t epoch;
};

struct floor_buffers { /* of a rank, as it sees them; written before it enters a call */
    _Alignas(COMPARE_LINE_BYTES) char *in;
    char *out;
    int pid;
    bool forbidden; /* this rank may not copy from some other */
};

/* The memory that the ranks share. Flags are indexed by the rank that writes them. */
struct floor_area {
    struct compare_flag bell[COMPARE_RANKS_MAX];          /* ranks sleep on it; many writers */
    _Alignas(COMPARE_LINE_BYTES) _Atomic uint64_t asleep; /* a bit per rank */
    struct compare_flag filled[COMPARE_RANKS_MAX];        /* tiles copied into my slots */
    struct compare_flag reduced[COMPARE_RANKS_MAX];       /* tiles with my share reduced */
    struct compare_flag done[COMPARE_RANKS_MAX];          /* tiles, or calls, that I finished */
    struct compare_flag entered[COMPARE_RANKS_MAX];       /* calls: my buffers may be used */
    struct compare_flag left[COMPARE_RANKS_MAX]; /* calls: I use no peer's buffers any more */
    struct floor_buffers buffers[COMPARE_RANKS_MAX];
    struct floor_line line[COMPARE_RANKS_MAX][FLOOR_DEPTH];
};

struct floor {
    struct compare_team *team;
    int rank, nranks;
    bool crowded;  /* more ranks than cores: yield soon, then sleep */
    int yields;    /* number before a sleep */
    bool two;      /* slots: reduce in two phases; mapped: push instead of pull; copied: halves */
    bool past;     /* slots are written past the caches */
    bool can_copy; /* copied: the system permits it */
    bool streamed; /* user buffers are written past the caches */
    bool turns;    /* slots: a ring as large as FLOOR_RING_BYTES */
    struct floor_area *area;
    char *slots;           /* [rank][zone][FLOOR_RING_BYTES] */
    uint32_t ring_mask;    /* tile t has slot t & ring_mask of this ring ... */
    size_t ring_stride;    /* ... and slots are this many bytes apart */
    size_t slot_bytes;     /* used bytes of a slot */
    uint32_t tiles, calls; /* so far, the same on every rank */
    uint32_t credit;       /* tiles that all my readers are known to have finished */
    compare_sum_fn *sum;
    char *in[COMPARE_RANKS_MAX], *out[COMPARE_RANKS_MAX]; /* mapped: all ranks' buffers */
};

/* ---- waiting and copying, in every loop ---- */

static inline bool floor_is_at(const struct compare_flag *flag, uint32_t want)
{
    return (int32_t)(atomic_load_explicit(&flag->word, memory_order_acquire) - want) >= 0;
}

/* Wake the sleeping ranks. */
void floor_ring(const struct floor *f);
/* Yield, and in the end sleep. */
void floor_relax_crowded(const struct floor *f, unsigned *polls);

static inline void floor_store(const struct floor *f, _Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    if (f->crowded) {
        atomic_signal_fence(memory_order_seq_cst); /* the sleeper's membarrier does the rest */
        if (atomic_load_explicit(&f->area->asleep, memory_order_relaxed) != 0) {
            floor_ring(f);
        }
    }
}

static inline void floor_set(const struct floor *f, struct compare_flag *flag, uint32_t value)
{
    floor_store(f, &flag->word, value);
}

/* Relax between polls. The caller polls once more after each call. *polls is 0 before the first. */
static inline void floor_relax(const struct floor *f, unsigned *polls)
{
    if (f->crowded) {
        floor_relax_crowded(f, polls);
        return;
    }
#ifdef __x86_64__
    _mm_pause(); /* leaves the line to the rank that is about to write it */
#endif
}

static inline void floor_await(const struct floor *f, const struct compare_flag *flag,
                               uint32_t want)
{
    for (unsigned polls = 0; !floor_is_at(flag, want);) {
        floor_relax(f, &polls);
    }
}

/* Copy: by `rep movsb`, which writes lines that another core read last without loading them first,
 * but by a loop where the destination lies 1 to 63 bytes behind the source, pages left out. */
void floor_copy(void *dst, const void *src, size_t bytes);
/* The same, but past the caches if `streamed` is set. */
void floor_copy_out(void *dst, const void *src, size_t bytes, bool streamed);

/* ---- the loops: one call of point->collective ---- */

const char *floor_inline_refuse(const struct compare_point *point);
void floor_inline_call(struct floor *f, const struct compare_point *point);
const char *floor_slots_refuse(const struct floor *f, const struct compare_point *point);
/* Lay out the ring for this point. */
void floor_slots_prepare(struct floor *f, const struct compare_point *point);
void floor_slots_call(struct floor *f, const struct compare_point *point);
const char *floor_mapped_refuse(const struct floor *f, const struct compare_point *point);
void floor_mapped_call(struct floor *f, const struct compare_point *point);
/* Whether every rank may copy from every other. Collective. */
bool floor_copied_start(struct floor *f);
const char *floor_copied_refuse(const struct floor *f, const struct compare_point *point);
void floor_copied_call(struct floor *f, const struct compare_point *point);

#endif
