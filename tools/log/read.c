// SPDX-License-Identifier: Apache-2.0
/* Reads the messages of NCCL's log (versions 2.4 to 2.30), RCCL's and kolo's: rings, trees,
 * connections and communicators. The forms of one message differ by version:
 *   Trees [0] up->rank->d/d/d                           2.4
 *   Trees [0] d/d/d->rank->up|up->rank->d/d/d           2.5 to 2.7
 *   Trees [0] d/d/d->rank->up                           since 2.8
 *   Channel 00 : 3[8a000] -> 0[1a000] via P2P/IPC       to 2.17: bus id in hexadecimal
 *   Channel 00 : 3[8a000] -> ..., without "/0"          to 2.11
 *   Ring 00 : 0[0] -> 1[1] via P2P/IPC                  2.4; between hosts without brackets
 *   Ring 00 : 2 -> 0 -> 1, Tree 0 : up -> rank -> d/d/d GRAPH, since 2.8
 * Forms: NCCL src/graph/{rings,trees,connect}.cc and src/transport in its tags. */
#include "tools/log/take.h"
#include "tools/log/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static kolo_status take_message(struct kolo_log *log, struct kolo_log_line *l, bool *broken)
{
    *broken = false;
    if (kolo_line_skip(l, "Channel ")) {
        return kolo_log_take_channel(log, l, broken);
    }
    if (kolo_line_skip(l, "Ring ")) {
        return kolo_log_take_place(log, l, broken);
    }
    if (kolo_line_skip(l, "Trees")) {
        return kolo_log_take_trees(log, l, broken);
    }
    if (kolo_line_skip(l, "Tree ")) {
        return kolo_log_take_tree(log, l, broken);
    }
    return kolo_log_take_comm(log, l);
}

/* ---- the text ---- */

/* "2.7.8+cuda10.2": digits, points and letters; behind "+cuda" one number, for another line may
 * begin right there. */
static size_t version_length(const char *at, const char *end)
{
    size_t len = 0;
    int points = -1;
    for (; at + len < end && len < 60; len++) {
        const char c = at[len];
        const char next = at + len + 1 < end ? at[len + 1] : ' ';
        const bool is_point = c == '.' && isdigit((unsigned char)next);
        points += points >= 0 && is_point;
        if (points >= 0
                ? (!isdigit((unsigned char)c) && !is_point) || points > 1
                : !isalnum((unsigned char)c) && strchr("-_", c) == NULL && !is_point && c != '+') {
            break;
        }
        if (points < 0 && len > 3 &&
            (memcmp(at + len - 3, "cuda", 4) == 0 || memcmp(at + len - 2, "hip", 3) == 0)) {
            points = 0;
        }
    }
    return len;
}

/* "NCCL version 2.7.8+cuda10.2", on a line of its own or behind the prefix; "RCCL version : ..." */
static void take_version(struct kolo_log *log, const char *begin, const char *end)
{
    static const char *const words[] = {"NCCL version ", "RCCL version ", "kolo version "};
    static const char *const libraries[] = {"NCCL", "RCCL", "KOLO"};
    for (size_t i = 0; i < KOLO_LENGTH(words) && log->version[0] == '\0'; i++) {
        const char *at = memmem(begin, (size_t)(end - begin), words[i], strlen(words[i]));
        at = at != NULL ? at + strlen(words[i]) : end;
        while (at < end && (*at == ' ' || *at == ':')) {
            at++;
        }
        const size_t len = at < end && isdigit((unsigned char)*at) ? version_length(at, end) : 0;
        if (len > 2) {
            memcpy(log->version, at, len);
            log->version[len] = '\0';
            if (log->library[0] == '\0' || i == 1) {
                memcpy(log->library, libraries[i], 5);
            }
        }
    }
}

/* Take the messages of a line. If another process wrote into the first one, its begin waits in
 * `torn` for the next line, which holds its end. */
static kolo_status take_messages(struct kolo_log *log, const char *begin, const char *end,
                                 bool *found)
{
    struct kolo_log_line line;
    const char *at = begin;
    while (at < end && kolo_line_find(log, at, end, &line)) {
        bool broken = false;
        struct kolo_log_line whole = line;
        log->torn_here = line.end < end;
        log->own_lines++;
        KOLO_TRY(kolo_log_take_fault(log, &line));
        KOLO_TRY(take_message(log, &line, &broken));
        const char *from = !*found && whole.begin > begin ? begin : whole.begin;
        const char *to = broken && log->torn_here ? whole.end : whole.begin;
        if (to > from && log->torn == NULL && memchr(from, '[', (size_t)(to - from)) != NULL) {
            log->torn = strndup(from, (size_t)(to - from));
        }
        *found = true;
        at = whole.end;
    }
    log->torn_here = false;
    return KOLO_OK;
}

static kolo_status join_torn(struct kolo_log *log, const char *begin, const char *end)
{
    struct kolo_text joined = {0};
    bool found = false;
    kolo_text_add(&joined, "%s%.*s", log->torn, (int)(end - begin), begin);
    free(log->torn);
    log->torn = NULL;
    const kolo_status st = joined.chars != NULL
                               ? take_messages(log, joined.chars, joined.chars + joined.len, &found)
                               : KOLO_OK;
    kolo_text_free(&joined);
    free(log->torn);
    log->torn = NULL;
    return st;
}

static kolo_status take_text(void *context, const char *begin, const char *end)
{
    struct kolo_log *log = context;
    char *torn = log->torn;
    bool found = false;
    log->lines++;
    log->torn = NULL;
    take_version(log, begin, end);
    kolo_status st = take_messages(log, begin, end, &found);
    if (st == KOLO_OK && !found) {
        st = kolo_log_take_foreign(log, begin, end);
        if (st == KOLO_OK && torn != NULL) {
            log->torn = torn;
            return join_torn(log, begin, end);
        }
    }
    free(torn);
    return st;
}

static void note_line(void *context, long line)
{
    struct kolo_log *log = context;
    log->line = line;
}

kolo_status kolo_log_read(struct kolo_log *log, const char *path, const char *bytes, size_t len)
{
    const long own = log->own_lines;
    const bool had_version = log->version[0] != '\0';
    log->path = log->path != NULL ? log->path : path;
    log->file = path;
    log->files++;
    log->all.limit += (512u << 10) + 8 * len;
    KOLO_TRY(kolo_log_text(bytes, len, take_text, note_line, log));
    free(log->torn);
    log->torn = NULL;
    if (log->own_lines == own) {
        const char *kind = !had_version && log->version[0] != '\0'
                               ? "has the version and no other line: run with NCCL_DEBUG=INFO"
                               : kolo_log_kind(bytes, len);
        kolo_log_text_safe(&log->kinds, path, strlen(path));
        kolo_text_add(&log->kinds, " %s\n", kind);
    }
    return KOLO_OK;
}

/* ---- the end of the log ---- */

static bool is_digits(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0' && strlen(text) < 9;
}

/* The communicator that `wanted` names. */
static kolo_status choose(struct kolo_log *log)
{
    if (log->wanted == NULL || log->ncomms == 0) {
        return KOLO_OK;
    }
    const struct kolo_log_line word = {.at = log->wanted, .end = log->wanted + strlen(log->wanted)};
    struct kolo_log_line rest = word;
    uint64_t id = 0;
    const int place = is_digits(log->wanted) ? atoi(log->wanted) : 0;
    const bool is_id = kolo_line_hex(&rest, &id) && rest.at == rest.end && id != 0;
    log->shown = place >= 1 && place <= log->ncomms ? place - 1 : -1;
    for (int i = 0; i < log->nmembers && log->shown < 0 && is_id; i++) {
        if (log->member[i].id == id || log->member[i].comm == id) {
            log->shown = log->member[i].set;
        }
    }
    return log->shown >= 0
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INVALID, "%s: no communicator %s among the %d in the log",
                           log->path, log->wanted, log->ncomms);
}

kolo_status kolo_log_finish(struct kolo_log *log)
{
    KOLO_TRY(kolo_log_group(log));
    log->shown = log->ncomms > 0 ? 0 : -1;
    KOLO_TRY(choose(log));
    struct kolo_log_comm *comm = kolo_log_shown(log);
    if (comm != NULL && comm->nranks_exact) {
        KOLO_TRY(kolo_log_rebuild(comm));
    }
    kolo_log_check(log);
    return KOLO_OK;
}

struct kolo_log_comm *kolo_log_shown(const struct kolo_log *log)
{
    return log->shown >= 0 && log->shown < log->ncomms ? &log->comm[log->shown] : NULL;
}

bool kolo_log_is_useful(const struct kolo_log *log)
{
    return log->own_lines > 0;
}

void kolo_log_free(struct kolo_log *log)
{
    for (int i = 0; i < log->ncomms; i++) {
        kolo_job_free(&log->comm[i].job);
        free(log->comm[i].next);
    }
    free(log->comm);
    kolo_job_free(&log->all);
    free(log->branch_of);
    free(log->ring_of);
    free(log->edge_of);
    free(log->bracket);
    free(log->next);
    free(log->head);
    free(log->torn);
    kolo_log_members_free(log);
    kolo_log_faults_free(log);
    kolo_text_free(&log->kinds);
    kolo_text_free(&log->issues);
    *log = (struct kolo_log){0};
}
