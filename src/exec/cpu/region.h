// SPDX-License-Identifier: Apache-2.0
/* A rank's region: the memory that its peers map, made of lines. Every field has one writer, except
 * doorbell, asleep and abort. exec/lower/program.h says how tiles use it. */
#ifndef KOLO_EXEC_CPU_REGION_H
#define KOLO_EXEC_CPU_REGION_H

#include "exec/lower/limits.h"

#include <kolo/plugin.h>

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct kolo_line { /* a signal */
    _Alignas(KOLO_LINE_BYTES) char data[KOLO_INLINE_BYTES];
    uint64_t chain;         /* of its writer's calls: kolo_chain() */
    uint32_t done;          /* tiles that its writer had finished when it signalled */
    _Atomic uint32_t epoch; /* 1 + epoch of the newest tile that signalled */
};
static_assert(sizeof(struct kolo_line) == KOLO_LINE_BYTES, "one line a signal");

struct kolo_entry {                                 /* a rank's buffers of a call */
    _Alignas(KOLO_LINE_BYTES) unsigned char in[32]; /* handles, where shared */
    unsigned char out[32];
    uint64_t in_at, out_at;         /* addresses in the rank's process */
    uint16_t in_shared, out_shared; /* the handles are valid */
    uint32_t apart;                 /* the buffers have no byte in common */
    uint64_t buffers;               /* hash of the fields above: equal buffers, equal hash */
    uint64_t signature;
    _Atomic uint32_t number; /* 1 + number of earlier calls with entries */
};
static_assert(sizeof(struct kolo_entry) == KOLO_LINE_BYTES, "one line an entry");

struct kolo_head {
    _Alignas(KOLO_LINE_BYTES) _Atomic uint32_t doorbell; /* the futex that waiters sleep on */
    _Atomic uint32_t asleep; /* number of ranks that sleep until this rank stores a word */
    _Atomic int32_t abort;   /* a status once aborted */
    _Atomic uint32_t shares; /* 1 + tiles met when entries begin, or 0 */
    _Alignas(KOLO_LINE_BYTES) _Atomic uint32_t done; /* tiles finished */
    _Alignas(KOLO_LINE_BYTES) _Atomic uint32_t slots_ready;
    unsigned char slots[KOLO_HANDLE_BYTES]; /* handle of the outbox slots */
};

struct kolo_region {
    struct kolo_head head;
    struct kolo_entry entry[KOLO_ENTRY_LINES];
    struct kolo_line line[]; /* [phase][KOLO_DEPTH] */
};

static inline size_t kolo_region_bytes(int phases)
{
    return sizeof(struct kolo_region) + (size_t)phases * KOLO_DEPTH * sizeof(struct kolo_line);
}

/* A gap between short slots, so that they do not compete for the same sets of a cache. */
enum { KOLO_SLOT_SKEW = 128 };
static inline size_t kolo_outbox_bytes(size_t slot_bytes, size_t short_slot_bytes)
{
    return KOLO_LONG_DEPTH * slot_bytes + KOLO_DEPTH * (short_slot_bytes + KOLO_SLOT_SKEW);
}

#endif
