// SPDX-License-Identifier: Apache-2.0
/* Reads the lines that name a communicator, and those of its start that name no rank. */
#include "tools/log/take.h"
#include "util/grow.h"

#include <string.h>

static enum kolo_log_about about_comm(const struct kolo_log_line *l)
{
    return kolo_line_contains(l, "Init START")         ? KOLO_LOG_BEGIN
           : kolo_line_contains(l, "Init COMPLETE")    ? KOLO_LOG_END
           : kolo_line_contains(l, " - COMPLETE")      ? KOLO_LOG_END /* to 2.3 */
           : kolo_line_contains(l, "Destroy COMPLETE") ? KOLO_LOG_GONE
           : kolo_line_contains(l, "Abort COMPLETE")   ? KOLO_LOG_GONE
                                                       : KOLO_LOG_NAMED;
}

/* "comm 0x... rank 3 nranks 16 ...", which has many forms. */
static kolo_status take_comm(struct kolo_log *log, const struct kolo_log_line *l)
{
    struct kolo_log_hint hint = kolo_log_hint_of(about_comm(l));
    int member = 0, rank = -1, value = 0;
    const bool has_rank = kolo_line_named(l, "rank", KOLO_LOG_RANKS, &rank);
    if (!kolo_line_named_hex(l, "comm", &hint.comm) || hint.comm == 0 ||
        (!kolo_line_named(l, "nranks", KOLO_LOG_RANKS, &hint.nranks) &&
         !kolo_line_named(l, "nRanks", KOLO_LOG_RANKS, &hint.nranks)) ||
        rank >= hint.nranks) {
        return KOLO_OK;
    }
    hint.rank = has_rank ? rank : -1;
    (void)kolo_line_named_hex(l, "commId", &hint.id);
    if (!has_rank) {
        kolo_log_take_suffix(log, l, &hint);
    }
    KOLO_TRY(kolo_log_member_of(log, l, &hint, &member));
    struct kolo_log_member *m = &log->member[member];
    if (kolo_line_named(l, "nNodes", KOLO_LOG_RANKS, &value) && value > 0) {
        m->nodes = value;
    }
    (void)kolo_line_named(l, "localRanks", KOLO_LOG_RANKS, &m->local);
    (void)kolo_line_named(l, "color", KOLO_LOG_RANKS, &m->colour);
    if (kolo_line_named(l, "MNNVL", 1, &value) && value == 1) {
        m->uses |= KOLO_LOG_MNNVL;
    }
    return KOLO_OK;
}

/* The member of a line of a start that names no rank. */
static kolo_status take_part(struct kolo_log *log, const struct kolo_log_line *l, int nranks,
                             int *member)
{
    struct kolo_log_hint hint = kolo_log_hint_of(KOLO_LOG_PART);
    hint.nranks = nranks;
    kolo_log_take_suffix(log, l, &hint);
    return kolo_log_member_of(log, l, &hint, member);
}

static kolo_status take_head(struct kolo_log *log, struct kolo_log_line *l)
{
    int channel = 0, rank = 0, member = 0;
    kolo_line_skip_blanks(l);
    if (!kolo_line_number(l, KOLO_LOG_CHANNELS, &channel) ||
        !(kolo_line_skip_blanks(l), kolo_line_skip(l, ":"))) {
        return KOLO_OK;
    }
    KOLO_TRY(take_part(log, l, 0, &member));
    log->member[member].uses |= KOLO_LOG_NVLS;
    for (kolo_line_skip_blanks(l); kolo_line_number(l, KOLO_LOG_RANKS, &rank) && rank >= 0;
         kolo_line_skip_blanks(l)) {
        struct kolo_log_next *grown =
            kolo_grow(log->head, log->nheads, &log->head_room, sizeof *log->head);
        if (grown == NULL) {
            return kolo_log_fail_memory(log);
        }
        log->head = grown;
        log->head[log->nheads++] =
            (struct kolo_log_next){{.channel = channel, .from = rank}, member};
        log->member[member].most = kolo_log_larger(log->member[member].most, rank);
    }
    return KOLO_OK;
}

/* "CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA", "Coll 00 : ..." to 2.18 */
static kolo_status take_collnet(struct kolo_log *log, const struct kolo_log_line *l)
{
    int member = 0;
    KOLO_TRY(take_part(log, l, 0, &member));
    log->member[member].uses |= KOLO_LOG_COLLNET;
    return KOLO_OK;
}

/* "4 coll channels, 0 collnet channels, 0 nvls channels, ..." */
static kolo_status take_channels(struct kolo_log *log, const struct kolo_log_line *l, int count)
{
    int member = 0;
    KOLO_TRY(take_part(log, l, 0, &member));
    log->member[member].coll_channels = count;
    const char *nvls = memmem(l->at, (size_t)(l->end - l->at), " nvls channels", 14);
    if (nvls != NULL && nvls > l->at + 2 && memcmp(nvls - 2, " 0", 2) != 0) {
        log->member[member].uses |= KOLO_LOG_NVLS;
    }
    return KOLO_OK;
}

/* "NET/OFI Tuner init: comm with 8 ranks and 2 nodes." */
static kolo_status take_tuner(struct kolo_log *log, const struct kolo_log_line *l, const char *at)
{
    struct kolo_log_line rest = *l;
    int nranks = 0, nodes = 0, member = 0;
    rest.at = at;
    if (!kolo_line_number(&rest, KOLO_LOG_RANKS, &nranks) ||
        !kolo_line_skip(&rest, " ranks and ") || !kolo_line_number(&rest, KOLO_LOG_RANKS, &nodes) ||
        nranks < 1 || nodes < 1) {
        return KOLO_OK;
    }
    KOLO_TRY(take_part(log, l, nranks, &member));
    log->member[member].nodes = nodes;
    return KOLO_OK;
}

kolo_status kolo_log_take_comm(struct kolo_log *log, struct kolo_log_line *l)
{
    struct kolo_log_line first = *l;
    const char *at = NULL;
    int count = 0;
    if (kolo_line_skip(l, "NVLS Head")) {
        return take_head(log, l);
    }
    if (kolo_line_contains(l, "via COLLNET/")) {
        return take_collnet(log, l);
    }
    if (kolo_line_number(&first, KOLO_LOG_CHANNELS, &count) && count > 0 &&
        kolo_line_skip(&first, " coll channels")) {
        return take_channels(log, l, count);
    }
    if ((at = kolo_line_behind(l, "Tuner init: comm with ")) != NULL) {
        return take_tuner(log, l, at);
    }
    return kolo_line_contains(l, "comm ") ? take_comm(log, l) : KOLO_OK;
}
