// SPDX-License-Identifier: Apache-2.0
/* Reads rings and connections. */
#include "tools/log/take.h"

#include "util/grow.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { CUT_AT = 20 /* ranks of a ring, to 2.22 */ };

/* ---- helpers ---- */

kolo_status kolo_log_fail_full(const struct kolo_log *log)
{
    return kolo_fail(KOLO_ERR_INVALID,
                     "%s: describes more than a log of its size can: over %zu bytes", log->path,
                     log->all.limit);
}

kolo_status kolo_log_fail_memory(const struct kolo_log *log)
{
    return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", log->path);
}

/* Note who says element `count` - 1 of a list. */
kolo_status kolo_log_note_speaker(struct kolo_log *log, int **of, int count, int *room, int member)
{
    int *grown = kolo_grow(*of, count - 1, room, sizeof **of);
    if (grown == NULL) {
        return kolo_log_fail_memory(log);
    }
    *of = grown;
    grown[count - 1] = member;
    return KOLO_OK;
}

struct kolo_log_hint kolo_log_hint_of(enum kolo_log_about about)
{
    return (struct kolo_log_hint){.about = about, .rank = -1, .other = -1, .most = -1};
}

/* RCCL adds "comm 0x... nRanks 08 busId c1000" to its lines. */
void kolo_log_take_suffix(struct kolo_log *log, const struct kolo_log_line *l,
                          struct kolo_log_hint *hint)
{
    uint64_t comm = 0;
    int nranks = 0;
    if (kolo_line_named_hex(l, "comm", &comm) &&
        kolo_line_named(l, "nRanks", KOLO_LOG_RANKS, &nranks) && !kolo_line_contains(l, " rank ")) {
        hint->comm = comm;
        hint->nranks = nranks;
        memcpy(log->library, "RCCL", 5);
    }
}

/* ---- rings ---- */

static bool is_whole(const int *ranks, int count)
{
    unsigned char *seen = calloc((size_t)count + 1, 1);
    bool whole = seen != NULL && count > 0;
    for (int i = 0; i < count && whole; i++) {
        whole = ranks[i] < count && seen[ranks[i]] == 0;
        seen[whole ? ranks[i] : 0] = 1;
    }
    free(seen);
    return whole;
}

static kolo_status keep_ring(struct kolo_log *log, const struct kolo_log_line *l, int channel,
                             int channels, const int *ranks, int count)
{
    struct kolo_log_hint hint = kolo_log_hint_of(KOLO_LOG_RING);
    int member = 0;
    hint.rank = 0;
    hint.channel = channel;
    for (int i = 0; i < count; i++) {
        hint.most = kolo_log_larger(hint.most, ranks[i]);
    }
    kolo_log_take_suffix(log, l, &hint);
    KOLO_TRY(kolo_log_member_of(log, l, &hint, &member));
    struct kolo_log_member *m = &log->member[member];
    const bool cut = kolo_line_contains(l, "...") || count == CUT_AT;
    if (m->nranks == 0 && !cut && is_whole(ranks, count)) {
        m->nranks = count;
        m->whole_ring = true;
    }
    m->ring_channels = kolo_log_larger(m->ring_channels, channels);
    if (!kolo_job_add_ring(&log->all, channel, ranks, count)) {
        return kolo_log_fail_full(log);
    }
    return kolo_log_note_speaker(log, &log->ring_of, log->all.nrings, &log->ring_room, member);
}

/* " 0 1 2 ...": the ranks of a ring. "..." marks a cut ring. */
static kolo_status take_ring(struct kolo_log *log, struct kolo_log_line *l, int channel,
                             int channels)
{
    int count = 0, rank = 0;
    const size_t most = (size_t)(l->end - l->at) / 2 + 1;
    int *ranks = malloc(most * sizeof *ranks);
    if (ranks == NULL) {
        return kolo_log_fail_memory(log);
    }
    for (kolo_line_skip_blanks(l); kolo_line_number(l, KOLO_LOG_RANKS, &rank) && rank >= 0;
         kolo_line_skip_blanks(l)) {
        ranks[count++] = rank;
    }
    const kolo_status st = count > 0 ? keep_ring(log, l, channel, channels, ranks, count) : KOLO_OK;
    free(ranks);
    return st;
}

/* Digits between slashes are the NIC: "NET/IB/0(3)/GDRDMA" becomes "NET/IB/N/GDRDMA". "(3)" is the
 * rank whose GPU the NIC is near (PXN). */
static void find_net(const char *via, char out[KOLO_LOG_NAME], int *net, bool *pxn)
{
    size_t len = 0;
    *net = -1;
    *pxn = false;
    for (const char *at = via; *at != '\0' && len + 1 < KOLO_LOG_NAME;) {
        const size_t digits = strspn(at, "0123456789");
        const char *rest = at + digits;
        if (*rest == '(') {
            rest += strcspn(rest, ")");
            rest += *rest == ')';
        }
        const bool is_net = at > via && at[-1] == '/' && digits > 0 && digits < 7 &&
                            (*rest == '/' || *rest == '\0') && strncmp(via, "NET", 3) == 0;
        if (is_net) {
            *net = (int)strtol(at, NULL, 10);
            *pxn = at[digits] == '(';
            out[len++] = 'N';
            at = rest;
        } else {
            out[len++] = *at++;
        }
    }
    out[len] = '\0';
}

/* "3[8a000]", or "3" in 2.4: the rank, and the bus or the device. */
static bool take_end(struct kolo_log_line *l, int *rank, struct kolo_log_bracket *gpu)
{
    *gpu = (struct kolo_log_bracket){0};
    if (!kolo_line_number(l, KOLO_LOG_RANKS, rank) || *rank < 0) {
        return false;
    }
    if (!kolo_line_skip(l, "[")) {
        return true;
    }
    gpu->known = kolo_line_hex(l, &gpu->value);
    while (l->at < l->end && *l->at != ']') {
        l->at++;
    }
    return kolo_line_skip(l, "]");
}

/* The name of the carrier, without quotation marks and RCCL's suffix. */
static bool take_via(const struct kolo_log_line *l, char out[KOLO_LOG_NAME])
{
    size_t len = (size_t)(l->end - l->at);
    const char *suffix = memmem(l->at, len, " comm ", 6);
    len = suffix != NULL ? (size_t)(suffix - l->at) : len;
    while (len > 0 && strchr(" \t\"'`|,;\\}*", l->at[len - 1]) != NULL) {
        len--;
    }
    len = len < KOLO_LOG_NAME - 1 ? len : KOLO_LOG_NAME - 1;
    for (size_t i = 0; i < len; i++) {
        out[i] = l->at[i] < ' ' || l->at[i] == 0x7f ? '?' : l->at[i];
    }
    out[len] = '\0';
    return len > 0;
}

static bool is_known_via(const struct kolo_job *job, const char *via)
{
    for (int i = 0; i < job->nvias; i++) {
        if (strcmp(job->via[i], via) == 0) {
            return true;
        }
    }
    return false;
}

static kolo_status keep_edge(struct kolo_log *log, const struct kolo_log_line *l,
                             struct kolo_job_edge *edge, const struct kolo_log_bracket gpu[2],
                             bool pxn)
{
    struct kolo_log_hint hint = kolo_log_hint_of(KOLO_LOG_EDGE);
    int member = 0;
    hint.rank = edge->way == 'r' ? edge->to : edge->from;
    hint.other = edge->way == ' ' ? edge->to : -1;
    hint.most = kolo_log_larger(edge->from, edge->to);
    hint.channel = edge->channel;
    kolo_log_take_suffix(log, l, &hint);
    KOLO_TRY(kolo_log_member_of(log, l, &hint, &member));
    struct kolo_log_member *m = &log->member[member];
    m->uses |= (pxn ? KOLO_LOG_PXN : 0u) |
               (strstr(log->all.via[edge->via], "MNNVL") != NULL ? KOLO_LOG_MNNVL : 0u);
    if (!kolo_job_add_edge(&log->all, edge)) {
        return kolo_log_fail_full(log);
    }
    struct kolo_log_bracket *grown =
        kolo_grow(log->bracket, log->all.nedges - 1, &log->bracket_room, sizeof *log->bracket);
    if (grown == NULL) {
        return kolo_log_fail_memory(log);
    }
    const bool is_to = m->rank == edge->to;
    log->bracket = grown;
    grown[log->all.nedges - 1] = gpu[!is_to];
    m->gpu = gpu[is_to].known ? gpu[is_to] : m->gpu;
    return kolo_log_note_speaker(log, &log->edge_of, log->all.nedges, &log->edge_room, member);
}

/* The text behind "Channel 00/0 : ", such as "0[0] -> 1[1] [send] via NET/IB/0/GDRDMA". */
static kolo_status take_edge(struct kolo_log *log, struct kolo_log_line *l, int channel,
                             int connection, bool *broken)
{
    struct kolo_job_edge edge = {.channel = channel, .way = ' ', .collective = connection <= 0};
    char via[KOLO_LOG_NAME], plain[KOLO_LOG_NAME];
    struct kolo_log_bracket gpu[2];
    bool pxn = false;
    *broken = true;
    if (!take_end(l, &edge.from, &gpu[0]) || !kolo_line_skip(l, " -> ") ||
        !take_end(l, &edge.to, &gpu[1])) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    edge.way = kolo_line_skip(l, "[send]") ? 's' : kolo_line_skip(l, "[receive]") ? 'r' : ' ';
    kolo_line_skip_blanks(l);
    if (!kolo_line_skip(l, "via ") || !take_via(l, via)) {
        return KOLO_OK;
    }
    find_net(via, plain, &edge.net, &pxn);
    if (log->torn_here && !is_known_via(&log->all, plain)) {
        return KOLO_OK;
    }
    *broken = false;
    edge.via = kolo_job_via(&log->all, plain);
    return edge.via < 0 ? kolo_log_fail_full(log) : keep_edge(log, l, &edge, gpu, pxn);
}

/* "Channel 00/02 : 0 1 2", "Channel 00 : 3[a] -> 0[b] via X" or "Channel 00/0 : ...". Version 2.4
 * writes "Ring" for "Channel". */
kolo_status kolo_log_take_channel(struct kolo_log *log, struct kolo_log_line *l, bool *broken)
{
    int channel = 0, second = -1;
    *broken = true;
    if (!kolo_line_number(l, KOLO_LOG_CHANNELS, &channel) || channel < 0) {
        return KOLO_OK;
    }
    if (kolo_line_skip(l, "/") &&
        (!kolo_line_number(l, KOLO_LOG_CHANNELS, &second) || second < 0)) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    if (!kolo_line_skip(l, ":")) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    struct kolo_log_line look = *l;
    int first = 0;
    if (!kolo_line_number(&look, KOLO_LOG_RANKS, &first)) {
        return KOLO_OK;
    }
    if (look.at < look.end && (*look.at == '[' || kolo_line_skip(&look, " ->"))) {
        return take_edge(log, l, channel, second, broken);
    }
    *broken = log->torn_here;
    return *broken ? KOLO_OK : take_ring(log, l, channel, second > 0 ? second : 0);
}

static kolo_status add_next(struct kolo_log *log, int member, int channel, int from, int to)
{
    struct kolo_log_next *grown =
        kolo_grow(log->next, log->nnext, &log->next_room, sizeof *log->next);
    if (grown == NULL) {
        return kolo_log_fail_memory(log);
    }
    log->next = grown;
    grown[log->nnext++] =
        (struct kolo_log_next){{.channel = channel, .from = from, .to = to}, member};
    return KOLO_OK;
}

static kolo_status keep_place(struct kolo_log *log, const struct kolo_log_line *l, int channel,
                              const int rank[3])
{
    struct kolo_log_hint hint = kolo_log_hint_of(KOLO_LOG_PLACE);
    int member = 0;
    hint.rank = rank[1];
    hint.most = kolo_log_larger(rank[0], kolo_log_larger(rank[1], rank[2]));
    hint.channel = channel;
    kolo_log_take_suffix(log, l, &hint);
    KOLO_TRY(kolo_log_member_of(log, l, &hint, &member));
    KOLO_TRY(add_next(log, member, channel, rank[0], rank[1]));
    return add_next(log, member, channel, rank[1], rank[2]);
}

/* "Ring 02 : 1 -> 2 -> 3", or, in 2.4, a connection. */
kolo_status kolo_log_take_place(struct kolo_log *log, struct kolo_log_line *l, bool *broken)
{
    struct kolo_log_line whole = *l;
    int channel = 0, rank[3];
    kolo_line_skip_blanks(l);
    if (!kolo_line_number(l, KOLO_LOG_CHANNELS, &channel) || channel < 0) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    if (!kolo_line_skip(l, ":")) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    if (!kolo_line_number(l, KOLO_LOG_RANKS, &rank[0]) || !kolo_line_skip(l, " -> ") ||
        !kolo_line_number(l, KOLO_LOG_RANKS, &rank[1]) || !kolo_line_skip(l, " -> ") ||
        !kolo_line_number(l, KOLO_LOG_RANKS, &rank[2])) {
        kolo_line_skip_blanks(&whole);
        return kolo_log_take_channel(log, &whole, broken);
    }
    if (rank[0] < 0 || rank[1] < 0 || rank[2] < 0) { /* a ring has no end */
        return KOLO_OK;
    }
    return keep_place(log, l, channel, rank);
}
