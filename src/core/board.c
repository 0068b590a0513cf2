// SPDX-License-Identifier: Apache-2.0
/* Reading and writing a board. Readers of a trail look at how far it is before and after, so what
 * was written over meanwhile is not taken for what was there. */
#include "core/board.h"

#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

/* ---- trails ---- */

static void copy_trail(const struct kolo_trail *from, struct kolo_trail *out)
{
    out->first = atomic_load_explicit(&from->first, memory_order_relaxed);
    out->what = atomic_load_explicit(&from->what, memory_order_relaxed);
    out->count = atomic_load_explicit(&from->count, memory_order_relaxed);
    out->when_us = atomic_load_explicit(&from->when_us, memory_order_relaxed);
}

void kolo_trail_note(struct kolo_post *post, uint64_t what, uint64_t count)
{
    const uint64_t n = atomic_load_explicit(&post->trails, memory_order_relaxed);
    const struct kolo_trail *last = &post->trail[(n + KOLO_TRAIL - 1) % KOLO_TRAIL];
    struct kolo_trail *next = &post->trail[n % KOLO_TRAIL];
    if (n > 0 && last->what == what && last->count == count) {
        return;
    }
    next->first = atomic_load_explicit(&post->begun, memory_order_relaxed) + 1;
    next->what = what;
    next->count = count;
    next->when_us = (uint64_t)kolo_now_us();
    atomic_store_explicit(&post->trails, n + 1, memory_order_release);
}

/* Entry `at` of a trail, if it is still there. */
static bool entry(const struct kolo_post *post, uint64_t at, struct kolo_trail *out)
{
    copy_trail(&post->trail[at % KOLO_TRAIL], out);
    atomic_thread_fence(memory_order_acquire);
    const uint64_t n = atomic_load_explicit(&post->trails, memory_order_acquire);
    return at < n && n < at + KOLO_TRAIL; /* the oldest may be being written over */
}

bool kolo_trail_find(const struct kolo_post *post, uint64_t number, struct kolo_trail *out)
{
    const uint64_t n = atomic_load_explicit(&post->trails, memory_order_acquire);
    for (uint64_t at = n; at-- > 0 && at + KOLO_TRAIL > n;) {
        if (!entry(post, at, out)) {
            return false;
        }
        if (out->first <= number) {
            return true;
        }
    }
    return false;
}

static enum kolo_coll coll_of(const struct kolo_trail *t)
{
    return (enum kolo_coll)(t->what & 0x7f);
}

static enum kolo_type type_of(const struct kolo_trail *t)
{
    return (enum kolo_type)(t->what >> 8 & 0xff);
}

static kolo_op op_of(const struct kolo_trail *t)
{
    return (kolo_op)(t->what >> 16 & 0xffff);
}

static int root_of(const struct kolo_trail *t)
{
    return (int)(t->what >> 32);
}

static bool is_v(const struct kolo_trail *t)
{
    return (t->what & KOLO_WHAT_V) != 0;
}

static bool reduces(const struct kolo_trail *t)
{
    return coll_of(t) == KOLO_COLL_ALL_REDUCE || coll_of(t) == KOLO_COLL_REDUCE ||
           coll_of(t) == KOLO_COLL_REDUCE_SCATTER;
}

bool kolo_trail_agrees(const struct kolo_trail *a, const struct kolo_trail *b)
{
    if (coll_of(a) != coll_of(b) || root_of(a) != root_of(b)) {
        return false;
    }
    if (reduces(a) && (type_of(a) != type_of(b) || op_of(a) != op_of(b))) {
        return false;
    }
    if (is_v(a) || is_v(b) || coll_of(a) == KOLO_COLL_BARRIER) {
        return true; /* lengths of v-forms may differ */
    }
    return a->count * kolo_type_bytes(type_of(a)) == b->count * kolo_type_bytes(type_of(b));
}

/* A call of `a`'s trail that `b` has made as another; numbers up to `last`. */
static uint64_t differs_from(const struct kolo_post *a, const struct kolo_post *b, uint64_t last)
{
    const uint64_t n = atomic_load_explicit(&a->trails, memory_order_acquire);
    for (uint64_t at = n; at-- > 0 && at + KOLO_TRAIL > n;) {
        struct kolo_trail mine, other;
        if (!entry(a, at, &mine)) {
            return 0;
        }
        if (mine.first <= last && kolo_trail_find(b, mine.first, &other) &&
            !kolo_trail_agrees(&mine, &other)) {
            return mine.first;
        }
    }
    return 0;
}

uint64_t kolo_trail_differ(const struct kolo_post *a, const struct kolo_post *b)
{
    const uint64_t begun_a = atomic_load_explicit(&a->begun, memory_order_acquire);
    const uint64_t begun_b = atomic_load_explicit(&b->begun, memory_order_acquire);
    const uint64_t last = kolo_min(begun_a, begun_b);
    const uint64_t by_a = differs_from(a, b, last), by_b = differs_from(b, a, last);
    return by_a == 0 ? by_b : by_b == 0 ? by_a : kolo_min(by_a, by_b);
}

void kolo_trail_text(const struct kolo_trail *trail, char *out, size_t room)
{
    char root[32] = "", op[48] = "";
    const enum kolo_coll coll = coll_of(trail);
    if (coll == KOLO_COLL_BARRIER) {
        (void)snprintf(out, room, "%s", kolo_coll_name(coll));
        return;
    }
    if (kolo_coll_rooted(coll)) {
        (void)snprintf(root, sizeof root, ", root %d", root_of(trail));
    }
    if (reduces(trail)) {
        (void)snprintf(op, sizeof op, ", %s", kolo_op_name(op_of(trail)));
    }
    (void)snprintf(out, room, "%s%s of %llu %s%s%s", kolo_coll_name(coll), is_v(trail) ? "v" : "",
                   (unsigned long long)trail->count, kolo_type_name(type_of(trail)), op, root);
}

/* ---- verdicts ---- */

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
    out->call = at->call;
    memcpy(out->text, at->text, sizeof out->text);
    out->text[sizeof out->text - 1] = '\0';
    return true;
}
