// SPDX-License-Identifier: Apache-2.0
/* Ranks and calls, as error texts name them. */
#include "core/board/text.h"

#include <stdio.h>

void kolo_say_rank(const struct kolo_comm *c, int q, char *out, size_t room)
{
    (void)snprintf(out, room, "rank %d (pid %d)", q, c->member[q].peer.pid);
}

kolo_status kolo_say_closed(const struct kolo_comm *c)
{
    char who[48];
    kolo_say_rank(c, c->ranks.rank, who, sizeof who);
    return kolo_fail(
        KOLO_ERR_PEER,
        "%s is lost to the others: its process has closed the descriptors of kolo, for "
        "example by closefrom()",
        who);
}

void kolo_say_call(const struct kolo_comm *c, int q, uint64_t number, char *out, size_t room)
{
    struct kolo_recorded recorded;
    char what[96];
    const struct kolo_board_slot *slot = q == c->ranks.rank ? c->health.slot : kolo_comm_slot(c, q);
    if (number == 0) {
        (void)snprintf(out, room, "no call");
    } else if (slot != NULL && kolo_record_find(slot, number, &recorded)) {
        kolo_record_text(&recorded, what, sizeof what);
        (void)snprintf(out, room, "call %llu, %s", (unsigned long long)number, what);
    } else {
        (void)snprintf(out, room, "call %llu", (unsigned long long)number);
    }
}

kolo_status kolo_say_left(const struct kolo_comm *c, int q, bool message)
{
    char who[48] = "a rank", mine[128] = "a message that is waited for";
    if (q >= 0) {
        kolo_say_rank(c, q, who, sizeof who);
    }
    if (!message) {
        kolo_say_call(c, c->ranks.rank, kolo_comm_calls(c), mine, sizeof mine);
    }
    return kolo_fail(KOLO_ERR_PEER, "%s left: it destroyed its communicator before %s", who, mine);
}

bool kolo_say_mismatch(const struct kolo_comm *c, int q)
{
    char mine[128], other[128];
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    const uint64_t number = slot != NULL ? kolo_record_differ(c->health.slot, slot) : 0;
    if (number > 0) {
        kolo_say_call(c, c->ranks.rank, number, mine, sizeof mine);
        kolo_say_call(c, q, number, other, sizeof other);
        (void)kolo_fail(KOLO_ERR_MISMATCH, "ranks %d and %d are in different calls: %s, and %s",
                        c->ranks.rank, q, mine, other);
    }
    return number > 0;
}

/* ---- calls that messages tell ---- */

/* The call that a message told, as a record. Its number is the nearest to this rank's last one. */
static struct kolo_recorded told_call(const struct kolo_comm *c, const struct kolo_call_sign *told)
{
    const uint64_t last = kolo_comm_calls(c);
    const int32_t ahead = (int32_t)(told->number - (uint32_t)last);
    return (struct kolo_recorded){
        .number = last + (uint64_t)(int64_t)ahead, .key = told->key, .count = told->count};
}

bool kolo_told_differs(const struct kolo_comm *c, const struct kolo_call_sign *told,
                       struct kolo_recorded *mine_out, struct kolo_recorded *theirs_out)
{
    *theirs_out = told_call(c, told);
    struct kolo_recorded before = *theirs_out;
    before.number--;
    before.key = told->key_before;
    before.count = told->count_before;
    if ((before.key | before.count) != 0 &&
        kolo_record_find(c->health.slot, before.number, mine_out) &&
        !kolo_record_agree(mine_out, &before)) {
        *theirs_out = before;
        return true;
    }
    return kolo_record_find(c->health.slot, theirs_out->number, mine_out) &&
           !kolo_record_agree(mine_out, theirs_out);
}

static void say_record(const struct kolo_recorded *call, char *out, size_t room)
{
    char what[96];
    kolo_record_text(call, what, sizeof what);
    (void)snprintf(out, room, "call %llu, %s", (unsigned long long)call->number, what);
}

/* The told facts are equal, and yet the calls differ. */
static const char *why_alike(const struct kolo_recorded *mine)
{
    return (mine->key & KOLO_KEY_V) != 0
               ? ": they give each other different lengths"
               : ": an earlier call was another one, or they chose differently";
}

void kolo_say_told(const struct kolo_comm *c, int q, const struct kolo_call_sign *told)
{
    char mine[128], other[128];
    struct kolo_recorded own, theirs;
    if (kolo_say_mismatch(c, q) || told->number == 0) {
        return; /* the text that stays says that the calls differ */
    }
    const bool differs = kolo_told_differs(c, told, &own, &theirs);
    const bool known = kolo_record_find(c->health.slot, theirs.number, &own) ||
                       kolo_record_find(c->health.slot, kolo_comm_calls(c), &own);
    if (!known) {
        return;
    }
    say_record(&own, mine, sizeof mine);
    if (kolo_comm_slot(c, q) != NULL) {
        kolo_say_call(c, q, theirs.number, other, sizeof other);
    } else {
        say_record(&theirs, other, sizeof other);
    }
    (void)kolo_fail(KOLO_ERR_MISMATCH, "ranks %d and %d are in different calls: %s, and %s%s",
                    c->ranks.rank, q, mine, other,
                    differs || own.number != theirs.number ? "" : why_alike(&own));
}
