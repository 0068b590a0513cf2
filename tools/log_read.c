// SPDX-License-Identifier: Apache-2.0
/* Reads the messages of NCCL's log (versions 2.4 to 2.30), RCCL's and kolo's: rings, trees,
 * connections and communicators. The forms of one message differ by version:
 *   Trees [0] up->rank->d/d/d                           2.4
 *   Trees [0] d/d/d->rank->up|up->rank->d/d/d           2.5 to 2.7
 *   Trees [0] d/d/d->rank->up                           since 2.8
 *   Channel 00 : 3[8a000] -> 0[1a000] via P2P/IPC       to 2.17: bus id in hexadecimal
 *   Channel 00 : 3[8a000] -> ..., without "/0"          to 2.11
 *   Ring 00 : 0[0] -> 1[1] via P2P/IPC                  2.4
 * Forms: NCCL src/graph/{rings,trees,connect}.cc and src/transport in its tags. */
#include "log_line.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { RANK_MAX = 1 << 24, CHANNEL_MAX = 4096 };

static kolo_status fail_full(const struct kolo_log *log)
{
    return kolo_fail(KOLO_ERR_INVALID,
                     "%s: describes more than a log of its size can: over %zu bytes", log->path,
                     log->job.limit);
}

static void add_value(struct kolo_log_values *values, int a, int b)
{
    for (int i = 0; i < values->count; i++) {
        if (values->value[i][0] == a && values->value[i][1] == b) {
            return;
        }
    }
    if (values->count < KOLO_LOG_VALUES) {
        values->value[values->count][0] = a;
        values->value[values->count++][1] = b;
    }
}

static kolo_status add_member(struct kolo_log *log, const struct kolo_log_line *l, int rank)
{
    if (l->host[0] == '\0' || rank < 0) {
        return KOLO_OK;
    }
    const int host = kolo_job_host(&log->job, l->host);
    return host >= 0 && kolo_job_add_member(&log->job, rank, host) ? KOLO_OK : fail_full(log);
}

/* ---- the lines ---- */

/* " 0 1 2 ...": the ranks of a ring. "..." marks a cut ring. */
static kolo_status take_ring(struct kolo_log *log, struct kolo_log_line *l, int channel)
{
    int count = 0, rank = 0;
    const size_t most = (size_t)(l->end - l->at) / 2 + 1;
    int *ranks = malloc(most * sizeof *ranks);
    if (ranks == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", log->path);
    }
    for (kolo_line_skip_blanks(l); kolo_line_number(l, RANK_MAX, &rank) && rank >= 0;
         kolo_line_skip_blanks(l)) {
        ranks[count++] = rank;
    }
    const struct kolo_job_ring *there = kolo_job_find_ring(&log->job, channel);
    const bool is_new = count > 0 && (there == NULL || there->count < count);
    const kolo_status st =
        !is_new || kolo_job_add_ring(&log->job, channel, ranks, count) ? KOLO_OK : fail_full(log);
    free(ranks);
    return st;
}

/* Digits between slashes are the NIC: "NET/IB/0(3)/GDRDMA" becomes "NET/IB/N/GDRDMA". */
static void find_net(const char *via, char out[KOLO_LOG_NAME], int *net)
{
    size_t len = 0;
    *net = -1;
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
            out[len++] = 'N';
            at = rest;
        } else {
            out[len++] = *at++;
        }
    }
    out[len] = '\0';
}

/* "3[8a000]": the rank. The brackets hold a bus or a device, which is not needed. */
static bool take_end(struct kolo_log_line *l, int *rank)
{
    if (!kolo_line_number(l, RANK_MAX, rank) || *rank < 0 || !kolo_line_skip(l, "[")) {
        return false;
    }
    while (l->at < l->end && *l->at != ']') {
        l->at++;
    }
    return kolo_line_skip(l, "]");
}

/* The text behind "Channel 00/0 : ", such as "0[0] -> 1[1] [send] via NET/IB/0/GDRDMA". */
static kolo_status take_edge(struct kolo_log *log, struct kolo_log_line *l, int channel,
                             int connection)
{
    struct kolo_job_edge edge = {.channel = channel, .way = ' ', .collective = connection <= 0};
    char via[KOLO_LOG_NAME], plain[KOLO_LOG_NAME];
    if (!take_end(l, &edge.from) || !kolo_line_skip(l, " -> ") || !take_end(l, &edge.to)) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    edge.way = kolo_line_skip(l, "[send]") ? 's' : kolo_line_skip(l, "[receive]") ? 'r' : ' ';
    kolo_line_skip_blanks(l);
    if (!kolo_line_skip(l, "via ")) {
        return KOLO_OK;
    }
    size_t len = (size_t)(l->end - l->at);
    while (len > 0 && isspace((unsigned char)l->at[len - 1])) {
        len--;
    }
    len = len < KOLO_LOG_NAME - 1 ? len : KOLO_LOG_NAME - 1;
    memcpy(via, l->at, len);
    via[len] = '\0';
    /* RCCL adds "comm 0x... nRanks 04" and the like. */
    char *suffix = strstr(via, " comm ");
    if (suffix != NULL) {
        *suffix = '\0';
    }
    find_net(via, plain, &edge.net);
    edge.via = kolo_job_via(&log->job, plain);
    if (edge.via < 0 || !kolo_job_add_edge(&log->job, &edge)) {
        return fail_full(log);
    }
    return add_member(log, l, edge.way == 'r' ? edge.to : edge.from);
}

/* "Channel 00/02 : 0 1 2", "Channel 00 : 3[a] -> 0[b] via X" or "Channel 00/0 : ...". Version 2.4
 * writes "Ring" for "Channel". */
static kolo_status take_channel(struct kolo_log *log, struct kolo_log_line *l)
{
    int channel = 0, second = -1;
    if (!kolo_line_number(l, CHANNEL_MAX, &channel) || channel < 0) {
        return KOLO_OK;
    }
    if (kolo_line_skip(l, "/") && (!kolo_line_number(l, CHANNEL_MAX, &second) || second < 0)) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    if (!kolo_line_skip(l, ":")) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    struct kolo_log_line look = *l;
    int first = 0;
    if (!kolo_line_number(&look, RANK_MAX, &first)) {
        return KOLO_OK;
    }
    if (look.at < look.end && *look.at == '[') {
        return take_edge(log, l, channel, second);
    }
    if (second > 0) {
        add_value(&log->channels, second, 0);
    }
    return take_ring(log, l, channel);
}

/* "Ring 02 : 1 -> 2 -> 3", or, in 2.4, a connection. */
static kolo_status take_ring_place(struct kolo_log *log, struct kolo_log_line *l)
{
    struct kolo_log_line whole = *l;
    struct kolo_job_edge next = {0};
    int before = 0;
    kolo_line_skip_blanks(l);
    if (!kolo_line_number(l, CHANNEL_MAX, &next.channel) || next.channel < 0) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    if (!kolo_line_skip(l, ":")) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    if (!kolo_line_number(l, RANK_MAX, &before) || !kolo_line_skip(l, " -> ") ||
        !kolo_line_number(l, RANK_MAX, &next.from) || !kolo_line_skip(l, " -> ") ||
        !kolo_line_number(l, RANK_MAX, &next.to)) {
        kolo_line_skip_blanks(&whole);
        return take_channel(log, &whole);
    }
    if (before < 0 || next.from < 0 || next.to < 0) { /* a ring has no end */
        return KOLO_OK;
    }
    if (log->nnext == log->next_room) {
        const int more = log->next_room < 16 ? 16 : log->next_room * 2;
        void *grown = realloc(log->next, (size_t)more * sizeof *log->next);
        if (grown == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", log->path);
        }
        log->next = grown;
        log->next_room = more;
    }
    log->next[log->nnext++] = next;
    return add_member(log, l, next.from);
}

/* "1/2/-1": the children of a rank. Returns their number; 0: another text. */
static int take_downs(struct kolo_log_line *l, int out[3])
{
    int count = 0;
    for (int i = 0; i < 3; i++) {
        out[i] = -1;
    }
    while (count < 3 && kolo_line_number(l, RANK_MAX, &out[count])) {
        count++;
        if (!kolo_line_skip(l, "/")) {
            break;
        }
    }
    return count;
}

/* One rank's place in a tree, written in either direction. */
static bool take_branch(struct kolo_log_line *l, struct kolo_job_branch *out)
{
    int left[3], right[3];
    const int nleft = take_downs(l, left);
    if (nleft == 0 || !kolo_line_skip(l, "->") || !kolo_line_number(l, RANK_MAX, &out->rank) ||
        out->rank < 0 || !kolo_line_skip(l, "->")) {
        return false;
    }
    const int nright = take_downs(l, right);
    if (nright == 0 || (nleft > 1) == (nright > 1)) {
        return false;
    }
    memcpy(out->down, nleft > 1 ? left : right, sizeof left);
    out->up = nleft > 1 ? right[0] : left[0];
    return true;
}

static kolo_status take_trees(struct kolo_log *log, struct kolo_log_line *l)
{
    struct kolo_job_branch branch;
    for (kolo_line_skip_blanks(l); kolo_line_skip(l, "["); kolo_line_skip_blanks(l)) {
        if (!kolo_line_number(l, CHANNEL_MAX, &branch.channel) || branch.channel < 0 ||
            !kolo_line_skip(l, "]")) {
            return KOLO_OK;
        }
        kolo_line_skip_blanks(l);
        if (!take_branch(l, &branch)) {
            return KOLO_OK;
        }
        if (!kolo_job_add_branch(&log->job, &branch)) {
            return fail_full(log);
        }
        while (l->at < l->end && *l->at != '[') { /* "|up->rank->downs": the same again */
            l->at++;
        }
        KOLO_TRY(add_member(log, l, branch.rank));
    }
    return KOLO_OK;
}

/* "comm 0x... rank 3 nranks 16 ...", which has many forms. */
static kolo_status take_comm(struct kolo_log *log, const struct kolo_log_line *l)
{
    int rank = -1, nranks = 0, nodes = 0, local = 0;
    if (!kolo_line_named(l, "rank", RANK_MAX, &rank)) {
        return KOLO_OK;
    }
    if (kolo_line_named(l, "nranks", RANK_MAX, &nranks) ||
        kolo_line_named(l, "nRanks", RANK_MAX, &nranks)) {
        add_value(&log->nranks, nranks, 0);
        log->job.nranks = nranks > log->job.nranks ? nranks : log->job.nranks;
    }
    if (kolo_line_named(l, "nNodes", RANK_MAX, &nodes) &&
        kolo_line_named(l, "localRanks", RANK_MAX, &local)) {
        add_value(&log->nodes, nodes, local);
    }
    return nranks > 0 ? add_member(log, l, rank) : KOLO_OK;
}

static kolo_status take_head(struct kolo_log *log, struct kolo_log_line *l)
{
    int channel = 0, rank = 0;
    kolo_line_skip_blanks(l);
    if (!kolo_line_number(l, CHANNEL_MAX, &channel) ||
        !(kolo_line_skip_blanks(l), kolo_line_skip(l, ":"))) {
        return KOLO_OK;
    }
    for (kolo_line_skip_blanks(l); kolo_line_number(l, RANK_MAX, &rank); kolo_line_skip_blanks(l)) {
        add_value(&log->heads, channel, rank);
    }
    return KOLO_OK;
}

static kolo_status take_line(struct kolo_log *log, struct kolo_log_line *l)
{
    struct kolo_log_line first = *l;
    int count = 0;
    log->warn_lines += l->warn;
    if (kolo_line_skip(l, "Channel ")) {
        return take_channel(log, l);
    }
    if (kolo_line_skip(l, "Ring ")) {
        return take_ring_place(log, l);
    }
    if (kolo_line_skip(l, "Trees")) {
        return take_trees(log, l);
    }
    if (kolo_line_skip(l, "NVLS Head")) {
        return take_head(log, l);
    }
    if (kolo_line_number(&first, CHANNEL_MAX, &count) && kolo_line_skip(&first, " coll channels")) {
        add_value(&log->coll_channels, count, 0);
        return KOLO_OK;
    }
    if (kolo_line_contains(l, "comm ")) {
        log->init_complete += kolo_line_contains(l, "Init COMPLETE");
        return take_comm(log, l);
    }
    return KOLO_OK;
}

/* "NCCL version 2.7.8+cuda10.2", on a line of its own or behind the prefix. */
static void take_version(struct kolo_log *log, const char *begin, const char *end)
{
    static const char *const words[] = {"NCCL version ", "RCCL version ", "kolo version "};
    for (size_t i = 0; i < KOLO_LENGTH(words) && log->version[0] == '\0'; i++) {
        const char *at = memmem(begin, (size_t)(end - begin), words[i], strlen(words[i]));
        size_t len = 0;
        at = at != NULL ? at + strlen(words[i]) : NULL;
        while (at != NULL && at + len < end && !isspace((unsigned char)at[len]) &&
               len + 1 < sizeof log->version) {
            len++;
        }
        if (at != NULL && len > 0 && isdigit((unsigned char)at[0])) {
            memcpy(log->version, at, len);
            log->version[len] = '\0';
        }
    }
}

kolo_status kolo_log_read(struct kolo_log *log, const char *path, const char *bytes, size_t len)
{
    const char *end = bytes + len;
    log->path = log->path != NULL ? log->path : path;
    log->job.limit += (512u << 10) + 8 * len;
    for (const char *at = bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = stop != NULL ? stop : end;
        struct kolo_log_line line;
        log->lines++;
        take_version(log, at, line_end);
        if (kolo_line_find(log, at, line_end, &line)) {
            log->own_lines++;
            KOLO_TRY(take_line(log, &line));
        }
        at = stop != NULL ? stop + 1 : end;
    }
    return KOLO_OK;
}

kolo_status kolo_log_finish(struct kolo_log *log)
{
    const struct kolo_job *job = &log->job;
    for (int i = 0; i < job->nrings && log->nranks.count == 0; i++) {
        log->job.nranks = job->ring[i].count > job->nranks ? job->ring[i].count : job->nranks;
    }
    for (int i = 0; i < log->channels.count; i++) {
        const int count = log->channels.value[i][0];
        log->job.nchannels = count > job->nchannels ? count : job->nchannels;
    }
    kolo_job_sort(&log->job);
    KOLO_TRY(kolo_log_rebuild(log));
    kolo_log_check(log);
    return KOLO_OK;
}

void kolo_log_free(struct kolo_log *log)
{
    kolo_job_free(&log->job);
    kolo_text_free(&log->issues);
    free(log->next);
    *log = (struct kolo_log){0};
}
