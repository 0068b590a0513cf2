// SPDX-License-Identifier: Apache-2.0
#include "record_slot.h"

#include "core/failure/flight_recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)SLOT_RECORDS == (int)KOLO_RECORDS, "the test counts on it");

struct slot {
    struct kolo_lone_slot lone;
    struct kolo_record *last;
};

struct slot *slot_create(void)
{
    struct slot *slot = aligned_alloc(_Alignof(struct slot), sizeof *slot);
    memset(slot, 0, sizeof *slot);
    slot->lone.it.records_at = offsetof(struct kolo_lone_slot, record);
    double now_us = 0;
    atomic_store(&slot->lone.it.ticks, kolo_ticks_moment(&now_us));
    atomic_store(&slot->lone.it.ticks_us, (uint64_t)now_us);
    return slot;
}

void slot_destroy(struct slot *slot)
{
    free(slot);
}

void slot_begin(struct slot *slot, uint64_t key, uint64_t count)
{
    slot->last = kolo_record_begin(&slot->lone.it, key, count);
}

void slot_end(struct slot *slot)
{
    kolo_record_end(slot->last);
}

bool slot_find(const struct slot *slot, uint64_t number, struct slot_call *out)
{
    struct kolo_recorded call;
    const struct kolo_rate rate = kolo_board_slot_rate(&slot->lone.it);
    if (!kolo_record_find(&slot->lone.it, number, &call)) {
        return false;
    }
    *out = (struct slot_call){.number = call.number,
                              .count = call.count,
                              .start_us = kolo_ticks_us(&rate, call.start),
                              .end_us = kolo_ticks_us(&rate, call.end),
                              .over = call.over};
    return true;
}

uint64_t slot_differ(const struct slot *a, const struct slot *b)
{
    return kolo_record_differ(&a->lone.it, &b->lone.it);
}

void slot_path(const char *pattern, char *out, size_t room)
{
    const struct kolo_board board = {.comm = 0xabc};
    struct slot *slot = slot_create();
    struct kolo_text text = {0};
    atomic_store(&slot->lone.it.rank, 3);
    atomic_store(&slot->lone.it.pid, 4711);
    kolo_flight_recorder_path(pattern, &board, &slot->lone.it, &text);
    (void)snprintf(out, room, "%s", text.chars);
    kolo_text_free(&text);
    slot_destroy(slot);
}
