// SPDX-License-Identifier: Apache-2.0
/* Lines of NCCL's log, versions 2.4 to 2.30, RCCL's, and ours, whatever a launcher or torch put
 * before them: the line begins for us behind " NCCL INFO " (or RCCL, KOLO; WARN), the host is what
 * stands before ":pid:tid [". The forms of one line differ by version:
 *   Trees [0] up->rank->d/d/d            2.4
 *   Trees [0] d/d/d->rank->up|up->rank->d/d/d   2.5 to 2.7
 *   Trees [0] d/d/d->rank->up            since 2.8
 *   Channel 00 : 3[8a000] -> 0[1a000] via P2P/IPC     bus id in hexadecimal to 2.17, no "/0"
 * to 2.11 Ring 00 : 0[0] -> 1[1] via P2P/IPC   2.4 Forms: NCCL src/graph/{rings,trees,connect}.cc
 * and src/transport over its tags. */
#include "log.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { RANK_MAX = 1 << 24, CHANNEL_MAX = 4096, NAME = 128 };

struct line {
    const char *at, *end; /* what follows "INFO " */
    char host[NAME];      /* "" unknown */
    bool warn;
};

static kolo_status full(const struct kolo_log *log)
{
    return kolo_fail(KOLO_ERR_INVALID, "%s: tells more than a log of its size can: over %zu bytes",
                     log->path, log->job.limit);
}

/* ---- small parsers; each moves `at` only where it matched ---- */

static bool skip(struct line *l, const char *text)
{
    const size_t len = strlen(text);
    if ((size_t)(l->end - l->at) < len || memcmp(l->at, text, len) != 0) {
        return false;
    }
    l->at += len;
    return true;
}

static void blanks(struct line *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t')) {
        l->at++;
    }
}

static bool number(struct line *l, int most, int *out)
{
    const char *at = l->at;
    const bool minus = at < l->end && *at == '-';
    long value = 0;
    at += minus;
    if (at >= l->end || !isdigit((unsigned char)*at)) {
        return false;
    }
    for (; at < l->end && isdigit((unsigned char)*at); at++) {
        value = value * 10 + (*at - '0');
        if (value > most) {
            return false;
        }
    }
    if (minus && value != 1) {
        return false; /* -1 is the only one there is */
    }
    *out = minus ? -1 : (int)value;
    l->at = at;
    return true;
}

/* A number behind `name` and a blank, anywhere in the rest of the line. */
static bool named(const struct line *l, const char *name, int most, int *out)
{
    const size_t len = strlen(name);
    for (const char *at = l->at; (size_t)(l->end - at) > len; at++) {
        if (memcmp(at, name, len) == 0 && at[len] == ' ' && at > l->at && at[-1] == ' ') {
            struct line rest = *l;
            rest.at = at + len + 1;
            return number(&rest, most, out) && *out >= 0;
        }
    }
    return false;
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

/* ---- who ---- */

static bool is_host_char(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

/* "host:123:456 [0]" right before " NCCL INFO ": the host, or "". */
static void find_host(const char *begin, const char *end, char out[NAME])
{
    const char *at = end;
    int numbers = 0;
    out[0] = '\0';
    while (at > begin && at[-1] == ' ') {
        at--;
    }
    if (at > begin && at[-1] == ']') { /* [device] */
        while (at > begin && at[-1] != '[') {
            at--;
        }
        at -= at > begin;
        while (at > begin && at[-1] == ' ') {
            at--;
        }
    }
    for (; numbers < 2; numbers++) { /* :pid:tid */
        const char *digits = at;
        while (digits > begin && isdigit((unsigned char)digits[-1])) {
            digits--;
        }
        if (digits == at || digits == begin || digits[-1] != ':') {
            return;
        }
        at = digits - 1;
    }
    const char *name = at;
    while (name > begin && is_host_char(name[-1])) {
        name--;
    }
    const size_t len = (size_t)(at - name);
    if (len > 0 && len < NAME) {
        memcpy(out, name, len);
        out[len] = '\0';
    }
}

/* Cut a line of the file to what the library says; false: another's line. */
static bool find_message(struct kolo_log *log, const char *begin, const char *end, struct line *out)
{
    static const char *const libraries[] = {"NCCL", "RCCL", "KOLO"};
    for (const char *at = begin; end - at > 10; at++) {
        if (*at != ' ') {
            continue;
        }
        for (size_t i = 0; i < KOLO_LENGTH(libraries); i++) {
            const bool info = memcmp(at + 5, " INFO ", 6) == 0;
            const bool warn = memcmp(at + 5, " WARN ", 6) == 0;
            if (memcmp(at + 1, libraries[i], 4) == 0 && (info || warn)) {
                out->at = at + 11;
                out->end = end;
                out->warn = warn;
                find_host(begin, at, out->host);
                memcpy(log->library, libraries[i], 5);
                return true;
            }
        }
    }
    return false;
}

static kolo_status add_member(struct kolo_log *log, const struct line *l, int rank)
{
    if (l->host[0] == '\0' || rank < 0) {
        return KOLO_OK;
    }
    const int host = kolo_job_host(&log->job, l->host);
    return host >= 0 && kolo_job_add_member(&log->job, rank, host) ? KOLO_OK : full(log);
}

/* ---- the lines ---- */

/* " 0 1 2 ...": the ranks of a ring; "..." says that it was cut. */
static kolo_status take_ring(struct kolo_log *log, struct line *l, int channel)
{
    int count = 0, rank = 0;
    const size_t most = (size_t)(l->end - l->at) / 2 + 1;
    int *ranks = malloc(most * sizeof *ranks);
    if (ranks == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", log->path);
    }
    for (blanks(l); number(l, RANK_MAX, &rank) && rank >= 0; blanks(l)) {
        ranks[count++] = rank;
    }
    const struct kolo_job_ring *there = kolo_job_find_ring(&log->job, channel);
    const bool is_new = count > 0 && (there == NULL || there->count < count);
    const kolo_status st =
        !is_new || kolo_job_add_ring(&log->job, channel, ranks, count) ? KOLO_OK : full(log);
    free(ranks);
    return st;
}

/* Digits between slashes are the NIC: "NET/IB/0(3)/GDRDMA" becomes "NET/IB/N/GDRDMA". */
static void find_net(const char *via, char out[NAME], int *net)
{
    size_t len = 0;
    *net = -1;
    for (const char *at = via; *at != '\0' && len + 1 < NAME;) {
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

/* "3[8a000]": the rank; what is in brackets is a bus or a device, which we do not need. */
static bool take_end(struct line *l, int *rank)
{
    if (!number(l, RANK_MAX, rank) || *rank < 0 || !skip(l, "[")) {
        return false;
    }
    while (l->at < l->end && *l->at != ']') {
        l->at++;
    }
    return skip(l, "]");
}

/* "0[0] -> 1[1] [send] via NET/IB/0/GDRDMA", behind "Channel 00/0 : ". */
static kolo_status take_edge(struct kolo_log *log, struct line *l, int channel, int connection)
{
    struct kolo_job_edge edge = {.channel = channel, .way = ' ', .collective = connection <= 0};
    char via[NAME], plain[NAME];
    if (!take_end(l, &edge.from) || !skip(l, " -> ") || !take_end(l, &edge.to)) {
        return KOLO_OK;
    }
    blanks(l);
    edge.way = skip(l, "[send]") ? 's' : skip(l, "[receive]") ? 'r' : ' ';
    blanks(l);
    if (!skip(l, "via ")) {
        return KOLO_OK;
    }
    size_t len = (size_t)(l->end - l->at);
    while (len > 0 && isspace((unsigned char)l->at[len - 1])) {
        len--;
    }
    len = len < NAME - 1 ? len : NAME - 1;
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
        return full(log);
    }
    return add_member(log, l, edge.way == 'r' ? edge.to : edge.from);
}

/* "Channel 00/02 : 0 1 2", "Channel 00 : 3[a] -> 0[b] via X", "Channel 00/0 : ...", with the same
 * behind "Ring" in 2.4. */
static kolo_status take_channel(struct kolo_log *log, struct line *l)
{
    int channel = 0, second = -1;
    if (!number(l, CHANNEL_MAX, &channel) || channel < 0) {
        return KOLO_OK;
    }
    if (skip(l, "/") && (!number(l, CHANNEL_MAX, &second) || second < 0)) {
        return KOLO_OK;
    }
    blanks(l);
    if (!skip(l, ":")) {
        return KOLO_OK;
    }
    blanks(l);
    struct line look = *l;
    int first = 0;
    if (!number(&look, RANK_MAX, &first)) {
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
static kolo_status take_ring_place(struct kolo_log *log, struct line *l)
{
    struct line whole = *l;
    struct kolo_job_edge next = {0};
    int before = 0;
    blanks(l);
    if (!number(l, CHANNEL_MAX, &next.channel) || next.channel < 0) {
        return KOLO_OK;
    }
    blanks(l);
    if (!skip(l, ":")) {
        return KOLO_OK;
    }
    blanks(l);
    if (!number(l, RANK_MAX, &before) || !skip(l, " -> ") || !number(l, RANK_MAX, &next.from) ||
        !skip(l, " -> ") || !number(l, RANK_MAX, &next.to)) {
        blanks(&whole);
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

/* "1/2/-1": how many there are; 0: something else. */
static int take_downs(struct line *l, int out[3])
{
    int count = 0;
    for (int i = 0; i < 3; i++) {
        out[i] = -1;
    }
    while (count < 3 && number(l, RANK_MAX, &out[count])) {
        count++;
        if (!skip(l, "/")) {
            break;
        }
    }
    return count;
}

/* One tree, in whichever direction it is written. */
static bool take_branch(struct line *l, struct kolo_job_branch *out)
{
    int left[3], right[3];
    const int nleft = take_downs(l, left);
    if (nleft == 0 || !skip(l, "->") || !number(l, RANK_MAX, &out->rank) || out->rank < 0 ||
        !skip(l, "->")) {
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

static kolo_status take_trees(struct kolo_log *log, struct line *l)
{
    struct kolo_job_branch branch;
    for (blanks(l); skip(l, "["); blanks(l)) {
        if (!number(l, CHANNEL_MAX, &branch.channel) || branch.channel < 0 || !skip(l, "]")) {
            return KOLO_OK;
        }
        blanks(l);
        if (!take_branch(l, &branch)) {
            return KOLO_OK;
        }
        if (!kolo_job_add_branch(&log->job, &branch)) {
            return full(log);
        }
        while (l->at < l->end && *l->at != '[') { /* "|up->rank->downs": the same again */
            l->at++;
        }
        KOLO_TRY(add_member(log, l, branch.rank));
    }
    return KOLO_OK;
}

/* "comm 0x... rank 3 nranks 16 ...", in its many forms. */
static kolo_status take_comm(struct kolo_log *log, const struct line *l)
{
    int rank = -1, nranks = 0, nodes = 0, local = 0;
    if (!named(l, "rank", RANK_MAX, &rank)) {
        return KOLO_OK;
    }
    if (named(l, "nranks", RANK_MAX, &nranks) || named(l, "nRanks", RANK_MAX, &nranks)) {
        add_value(&log->nranks, nranks, 0);
        log->job.nranks = nranks > log->job.nranks ? nranks : log->job.nranks;
    }
    if (named(l, "nNodes", RANK_MAX, &nodes) && named(l, "localRanks", RANK_MAX, &local)) {
        add_value(&log->nodes, nodes, local);
    }
    return nranks > 0 ? add_member(log, l, rank) : KOLO_OK;
}

static kolo_status take_head(struct kolo_log *log, struct line *l)
{
    int channel = 0, rank = 0;
    blanks(l);
    if (!number(l, CHANNEL_MAX, &channel) || !(blanks(l), skip(l, ":"))) {
        return KOLO_OK;
    }
    for (blanks(l); number(l, RANK_MAX, &rank); blanks(l)) {
        add_value(&log->heads, channel, rank);
    }
    return KOLO_OK;
}

static bool contains(const struct line *l, const char *text)
{
    return memmem(l->at, (size_t)(l->end - l->at), text, strlen(text)) != NULL;
}

static kolo_status take_line(struct kolo_log *log, struct line *l)
{
    struct line first = *l;
    int count = 0;
    log->warn_lines += l->warn;
    if (skip(l, "Channel ")) {
        return take_channel(log, l);
    }
    if (skip(l, "Ring ")) {
        return take_ring_place(log, l);
    }
    if (skip(l, "Trees")) {
        return take_trees(log, l);
    }
    if (skip(l, "NVLS Head")) {
        return take_head(log, l);
    }
    if (number(&first, CHANNEL_MAX, &count) && skip(&first, " coll channels")) {
        add_value(&log->coll_channels, count, 0);
        return KOLO_OK;
    }
    if (contains(l, "comm ")) {
        log->init_complete += contains(l, "Init COMPLETE");
        return take_comm(log, l);
    }
    return KOLO_OK;
}

/* "NCCL version 2.7.8+cuda10.2", on a line by itself or behind the prefix. */
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
        struct line line;
        log->lines++;
        take_version(log, at, line_end);
        if (find_message(log, at, line_end, &line)) {
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
