// SPDX-License-Identifier: Apache-2.0
/* Reading and writing a board. Readers of a record look at how far its rank is before and after, so
 * what was written over meanwhile is not taken for what was there. */
#include "core/board/board.h"

#include <stdio.h>
#include <string.h>

/* ---- records ---- */

/* From the moment when its rank sat down to this one. */
struct kolo_rate kolo_board_slot_rate(const struct kolo_board_slot *slot)
{
    struct kolo_rate rate = {
        .from = atomic_load_explicit(&slot->ticks, memory_order_relaxed),
        .from_us = (double)atomic_load_explicit(&slot->ticks_us, memory_order_relaxed)};
    double now_us = 0;
    const uint64_t passed = kolo_ticks_moment(&now_us) - rate.from;
    rate.tick_us = passed > 0 ? (now_us - rate.from_us) / (double)passed : 0;
    return rate;
}

bool kolo_record_find(const struct kolo_board_slot *slot, uint64_t number,
                      struct kolo_recorded *out)
{
    const struct kolo_record *r = kolo_record_at(slot, number);
    const uint64_t begun = atomic_load_explicit(&slot->begun, memory_order_acquire);
    if (number == 0 || number > begun) {
        return false;
    }
    const uint64_t key = atomic_load_explicit(&r->key, memory_order_relaxed);
    const uint64_t count = atomic_load_explicit(&r->count, memory_order_relaxed);
    const uint64_t end = kolo_ticks_read(&r->end), start = kolo_ticks_read(&r->start);
    atomic_thread_fence(memory_order_acquire);
    const uint64_t now = atomic_load_explicit(&slot->begun, memory_order_relaxed);
    if (now - number >= KOLO_RECORDS - 1) { /* the oldest may be being written over */
        return false;
    }
    *out = (struct kolo_recorded){.number = number,
                                  .key = key,
                                  .count = count,
                                  .start = start,
                                  .end = end,
                                  .over = end >= start};
    return true;
}

struct kolo_call_sign kolo_record_sign(const struct kolo_board_slot *slot, uint64_t number,
                                       uint64_t key, uint64_t count)
{
    struct kolo_recorded before = {0};
    (void)kolo_record_find(slot, number - 1, &before);
    return (struct kolo_call_sign){.key = key,
                                   .count = count,
                                   .key_before = before.key,
                                   .count_before = before.count,
                                   .number = (uint32_t)number};
}

static bool is_v(const struct kolo_recorded *call)
{
    return (call->key & KOLO_KEY_V) != 0;
}

bool kolo_record_agree(const struct kolo_recorded *a, const struct kolo_recorded *b)
{
    const enum kolo_coll coll = kolo_record_coll(a);
    if (coll != kolo_record_coll(b) || kolo_record_root(a) != kolo_record_root(b) ||
        kolo_record_codec(a) != kolo_record_codec(b)) {
        return false;
    }
    if (kolo_coll_reduces(coll) &&
        (kolo_record_type(a) != kolo_record_type(b) || kolo_record_op(a) != kolo_record_op(b))) {
        return false;
    }
    if (is_v(a) || is_v(b) || coll == KOLO_COLL_BARRIER) {
        return is_v(a) == is_v(b) || coll == KOLO_COLL_BARRIER; /* the root has the lengths */
    }
    return a->count * kolo_type_bytes(kolo_record_type(a)) ==
           b->count * kolo_type_bytes(kolo_record_type(b));
}

uint64_t kolo_record_differ(const struct kolo_board_slot *a, const struct kolo_board_slot *b)
{
    const uint64_t begun_a = atomic_load_explicit(&a->begun, memory_order_acquire);
    const uint64_t begun_b = atomic_load_explicit(&b->begun, memory_order_acquire);
    const uint64_t most = kolo_max(begun_a, begun_b), last = kolo_min(begun_a, begun_b);
    for (uint64_t n = most > KOLO_RECORDS ? most - KOLO_RECORDS : 1; n <= last; n++) {
        struct kolo_recorded mine, other;
        if (kolo_record_find(a, n, &mine) && kolo_record_find(b, n, &other) &&
            !kolo_record_agree(&mine, &other)) {
            return n;
        }
    }
    return 0;
}

void kolo_record_text(const struct kolo_recorded *call, char *out, size_t room)
{
    char root[32] = "", op[48] = "", codec[24] = "";
    const enum kolo_coll coll = kolo_record_coll(call);
    if (coll == KOLO_COLL_BARRIER) {
        (void)snprintf(out, room, "%s", kolo_coll_name(coll));
        return;
    }
    if (kolo_coll_rooted(coll)) {
        (void)snprintf(root, sizeof root, ", root %d", kolo_record_root(call));
    }
    if (kolo_coll_reduces(coll)) {
        (void)snprintf(op, sizeof op, ", %s", kolo_op_name(kolo_record_op(call)));
    }
    if (is_v(call) && !kolo_coll_rooted(coll) && kolo_record_root(call) != 0) {
        (void)snprintf(root, sizeof root, ", counts #%08x", (unsigned)kolo_record_root(call));
    }
    if (kolo_record_codec(call) != KOLO_CODEC_NONE) {
        (void)snprintf(codec, sizeof codec, ", codec %s", kolo_codec_name(kolo_record_codec(call)));
    }
    (void)snprintf(out, room, "%s%s of %llu %s%s%s%s", kolo_coll_name(coll), is_v(call) ? "v" : "",
                   (unsigned long long)call->count, kolo_type_name(kolo_record_type(call)), op,
                   root, codec);
}

/* ---- verdicts ---- */

/* Whoever sees the number of fates sees the fates. */
void kolo_fate_note(struct kolo_board *board, struct kolo_board_slot *slot, enum kolo_fate fate)
{
    uint32_t none = KOLO_FATE_NONE;
    if (atomic_compare_exchange_strong(&slot->fate, &none, (uint32_t)fate)) {
        atomic_fetch_add_explicit(&board->fates, 1, memory_order_release);
    }
}

bool kolo_verdict_write(struct kolo_board *board, const struct kolo_verdict *verdict)
{
    uint32_t none = 0;
    struct kolo_verdict *at = &board->verdict;
    if (!atomic_compare_exchange_strong(&at->state, &none, 1)) {
        return false;
    }
    at->status = verdict->status;
    at->rank = verdict->rank;
    at->seen_by = verdict->seen_by;
    at->end = verdict->end;
    at->call = verdict->call;
    (void)snprintf(at->text, sizeof at->text, "%s", verdict->text);
    atomic_store_explicit(&at->state, 2, memory_order_release);
    return true;
}

bool kolo_verdict_read(const struct kolo_board *board, struct kolo_verdict *out)
{
    const struct kolo_verdict *at = &board->verdict;
    if (atomic_load_explicit(&at->state, memory_order_acquire) != 2) {
        return false;
    }
    atomic_store_explicit(&out->state, 2, memory_order_relaxed);
    out->status = at->status;
    out->rank = at->rank;
    out->seen_by = at->seen_by;
    out->end = at->end;
    out->call = at->call;
    memcpy(out->text, at->text, sizeof out->text);
    out->text[sizeof out->text - 1] = '\0';
    return true;
}
