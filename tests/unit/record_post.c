// SPDX-License-Identifier: Apache-2.0
#include "record_post.h"

#include "core/failure/flight_recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)POST_RECORDS == (int)KOLO_RECORDS, "the test counts on it");

struct post {
    struct kolo_post it;
    struct kolo_record *last;
};

struct post *post_create(void)
{
    struct post *post = aligned_alloc(_Alignof(struct post), sizeof *post);
    memset(post, 0, sizeof *post);
    atomic_store(&post->it.ticks, kolo_ticks_now());
    atomic_store(&post->it.ticks_us, (uint64_t)kolo_now_us());
    return post;
}

void post_destroy(struct post *post)
{
    free(post);
}

void post_begin(struct post *post, uint64_t what, uint64_t count)
{
    post->last = kolo_record_begin(&post->it, what, count);
}

void post_end(struct post *post)
{
    kolo_record_end(post->last);
}

bool post_find(const struct post *post, uint64_t number, struct post_call *out)
{
    struct kolo_recorded call;
    const struct kolo_rate rate = kolo_post_rate(&post->it);
    if (!kolo_record_find(&post->it, number, &call)) {
        return false;
    }
    *out = (struct post_call){.number = call.number,
                              .count = call.count,
                              .start_us = kolo_ticks_us(&rate, call.start),
                              .end_us = kolo_ticks_us(&rate, call.end),
                              .over = call.over};
    return true;
}

uint64_t post_differ(const struct post *a, const struct post *b)
{
    return kolo_record_differ(&a->it, &b->it);
}

void post_path(const char *pattern, char *out, size_t room)
{
    const struct kolo_board board = {.comm = 0xabc};
    struct post *post = post_create();
    struct kolo_text text = {0};
    atomic_store(&post->it.rank, 3);
    atomic_store(&post->it.pid, 4711);
    kolo_flight_recorder_path(pattern, &board, &post->it, &text);
    (void)snprintf(out, room, "%s", text.chars);
    kolo_text_free(&text);
    post_destroy(post);
}
