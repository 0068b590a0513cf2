// SPDX-License-Identifier: Apache-2.0
/* Ranks and calls, as error texts name them. */
#include "core/board/text.h"

#include <stdio.h>

void kolo_say_rank(const struct kolo_comm *c, int q, char *out, size_t room)
{
    (void)snprintf(out, room, "rank %d (pid %d)", q, c->member[q].peer.pid);
}

void kolo_say_call(const struct kolo_comm *c, int q, uint64_t number, char *out, size_t room)
{
    struct kolo_recorded recorded;
    char what[96];
    const struct kolo_post *post = q == c->ranks.rank ? c->health.post : kolo_comm_post(c, q);
    if (number == 0) {
        (void)snprintf(out, room, "no call");
    } else if (post != NULL && kolo_record_find(post, number, &recorded)) {
        kolo_record_text(&recorded, what, sizeof what);
        (void)snprintf(out, room, "call %llu, %s", (unsigned long long)number, what);
    } else {
        (void)snprintf(out, room, "call %llu", (unsigned long long)number);
    }
}

bool kolo_say_mismatch(const struct kolo_comm *c, int q)
{
    char mine[128], other[128];
    const struct kolo_post *post = kolo_comm_post(c, q);
    const uint64_t number = post != NULL ? kolo_record_differ(c->health.post, post) : 0;
    if (number > 0) {
        kolo_say_call(c, c->ranks.rank, number, mine, sizeof mine);
        kolo_say_call(c, q, number, other, sizeof other);
        (void)kolo_fail(KOLO_ERR_MISMATCH, "ranks %d and %d are in different calls: %s, and %s",
                        c->ranks.rank, q, mine, other);
    }
    return number > 0;
}
