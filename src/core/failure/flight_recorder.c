// SPDX-License-Identifier: Apache-2.0
/* The calls that the board holds of each rank, written as a file. A reader of PyTorch's form
 * matches calls of equal number and group by name, sizes, types and state; so lengths in which
 * ranks may differ (of v-forms) are left out, and the name's first half is a library that every
 * version of the reader knows. */
#include "core/failure/flight_recorder.h"

#include "core/failure/failure.h"
#include "util/escape.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- state ---- */

const char *kolo_board_slot_state(const struct kolo_board_slot *slot)
{
    const uint32_t presence = atomic_load(&slot->presence);
    const uint64_t space = atomic_load(&slot->pid_space);
    const bool here = space == kolo_pid_space() && space != 0;
    const char process = here ? kolo_process_state(atomic_load(&slot->pid)) : '?';
    if (presence != KOLO_PRESENCE_HERE) {
        return presence == KOLO_PRESENCE_LEFT ? "left" : "comes";
    }
    if (process == 0 || process == 'Z' || process == 'X') {
        return "dead";
    }
    if (process == 'T' || process == 't') {
        return "stopped";
    }
    return atomic_load(&slot->waits_for) > 0 ? "waits" : "runs";
}

/* ---- JSON ---- */

static void add_string(struct kolo_text *out, const char *text)
{
    kolo_text_add(out, "\"");
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            kolo_text_add(out, "\\u%04x", (unsigned)(unsigned char)*c);
        } else {
            kolo_text_add(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
        }
    }
    kolo_text_add(out, "\"");
}

struct source { /* of one dump: a moment has one time in all of it */
    const struct kolo_board *board;
    const struct kolo_board_slot *slot;
    struct kolo_rate rate;
    double epoch_us; /* of kolo_now_us() 0 */
};

static struct source source_of(const struct kolo_board *board, const struct kolo_board_slot *slot)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (struct source){.board = board,
                           .slot = slot,
                           .rate = kolo_board_slot_rate(slot),
                           .epoch_us = (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3 -
                                       kolo_now_us()};
}

static void add_ns(struct kolo_text *out, const struct source *s, double now_us)
{
    kolo_text_add(out, "%.0f", (s->epoch_us + now_us) * 1e3);
}

static const char *name_of(const struct kolo_recorded *call)
{
    static const char *const names[KOLO_COLLS] = {[KOLO_COLL_ALL_REDUCE] = "all_reduce",
                                                  [KOLO_COLL_REDUCE] = "reduce",
                                                  [KOLO_COLL_BROADCAST] = "broadcast",
                                                  [KOLO_COLL_GATHER] = "gather",
                                                  [KOLO_COLL_SCATTER] = "scatter",
                                                  [KOLO_COLL_ALL_GATHER] = "all_gather",
                                                  [KOLO_COLL_REDUCE_SCATTER] = "reduce_scatter",
                                                  [KOLO_COLL_ALL_TO_ALL] = "all_to_all",
                                                  [KOLO_COLL_BARRIER] = "barrier"};
    const unsigned coll = (unsigned)kolo_record_coll(call);
    return coll < KOLO_COLLS && names[coll] != NULL ? names[coll] : "unknown";
}

/* Blocks of `count` that a rank gives, or gets. */
static uint64_t blocks(enum kolo_coll coll, bool in, int nranks)
{
    const bool one = in ? coll == KOLO_COLL_GATHER || coll == KOLO_COLL_ALL_GATHER
                        : coll == KOLO_COLL_SCATTER || coll == KOLO_COLL_REDUCE_SCATTER;
    return one || kolo_coll_flat(coll) ? 1 : (uint64_t)nranks;
}

static void add_shape(struct kolo_text *out, const struct kolo_recorded *call, int nranks, bool in)
{
    const enum kolo_coll coll = kolo_record_coll(call);
    const char *what = in ? "input" : "output";
    if (coll == KOLO_COLL_BARRIER) {
        kolo_text_add(out, ", \"%s_sizes\": [[]], \"%s_dtypes\": []", what, what);
    } else if ((call->key & KOLO_KEY_V) != 0) {
        kolo_text_add(out, ", \"%s_sizes\": [[]], \"%s_dtypes\": [\"%s\"]", what, what,
                      kolo_type_name(kolo_record_type(call)));
    } else {
        kolo_text_add(out, ", \"%s_sizes\": [[%llu]], \"%s_dtypes\": [\"%s\"]", what,
                      (unsigned long long)(call->count * blocks(coll, in, nranks)), what,
                      kolo_type_name(kolo_record_type(call)));
    }
}

static void add_times(struct kolo_text *out, const struct source *s,
                      const struct kolo_recorded *call, bool queued)
{
    const double start_us = kolo_ticks_us(&s->rate, call->start);
    const double end_us = kolo_ticks_us(&s->rate, call->end);
    kolo_text_add(out, ", \"time_created_ns\": ");
    add_ns(out, s, start_us);
    kolo_text_add(out, ", \"time_discovered_started_ns\": ");
    if (queued) {
        kolo_text_add(out, "null");
    } else {
        add_ns(out, s, start_us);
    }
    if (call->over) {
        kolo_text_add(out, ", \"duration_ms\": %.6f, \"time_discovered_completed_ns\": ",
                      (end_us - start_us) / 1e3);
        add_ns(out, s, end_us);
    } else {
        kolo_text_add(out, ", \"duration_ms\": null, \"time_discovered_completed_ns\": null");
    }
}

static void add_entry(struct kolo_text *out, const struct source *s,
                      const struct kolo_recorded *call)
{
    const bool queued =
        atomic_load(&s->slot->device) != KOLO_HOST; /* its stream tells of the end */
    const unsigned long long number = call->number;
    char text[96];
    kolo_record_text(call, text, sizeof text);
    kolo_text_add(out, "{\"record_id\": %llu, \"pg_id\": 0, \"process_group\": [\"%llx\", ",
                  number - 1, (unsigned long long)s->board->comm);
    add_string(out, s->board->name);
    kolo_text_add(out,
                  "], \"collective_seq_id\": %llu, \"p2p_seq_id\": 0, \"op_id\": %llu, \"is_p2p\": "
                  "false, \"profiling_name\": \"nccl:%s\"",
                  number, number, name_of(call));
    add_shape(out, call, s->board->nranks, true);
    add_shape(out, call, s->board->nranks, false);
    kolo_text_add(out, ", \"state\": \"%s\", \"retired\": %s, \"timeout_ms\": %d",
                  call->over ? "completed"
                  : queued   ? "scheduled"
                             : "started",
                  call->over ? "true" : "false", atomic_load(&s->slot->timeout_ms));
    add_times(out, s, call, queued);
    kolo_text_add(out, ", \"frames\": [], \"kolo\": {\"call\": ");
    add_string(out, text);
    kolo_text_add(out, ", \"root\": %d, \"bytes\": %llu}}",
                  kolo_coll_rooted(kolo_record_coll(call)) ? kolo_record_root(call) : 0,
                  (unsigned long long)(call->count * kolo_type_bytes(kolo_record_type(call))));
}

/* All that are known, the oldest first. Returns the last that is over. */
static uint64_t add_entries(struct kolo_text *out, const struct source *s)
{
    uint64_t over = 0;
    const char *comma = "";
    const uint64_t begun = atomic_load(&s->slot->begun);
    for (uint64_t n = begun > KOLO_RECORDS ? begun - KOLO_RECORDS : 1; n <= begun; n++) {
        struct kolo_recorded call;
        if (kolo_record_find(s->slot, n, &call)) {
            kolo_text_add(out, "%s\n", comma);
            add_entry(out, s, &call);
            over = call.over ? n : over;
            comma = ",";
        }
    }
    return over;
}

static void add_groups(struct kolo_text *out, const struct kolo_board *board)
{
    kolo_text_add(out, "\"pg_config\": {\"%llx\": {\"name\": \"%llx\", \"desc\": ",
                  (unsigned long long)board->comm, (unsigned long long)board->comm);
    add_string(out, board->name);
    kolo_text_add(out, ", \"ranks\": \"[");
    for (int r = 0; r < board->nranks; r++) {
        kolo_text_add(out, r > 0 ? ", %d" : "%d", r);
    }
    kolo_text_add(out, "]\"}}");
}

static void add_rank(struct kolo_text *out, int waits_for)
{
    if (waits_for > 0) {
        kolo_text_add(out, "%d", waits_for - 1);
    } else {
        kolo_text_add(out, "null");
    }
}

static void add_failure(struct kolo_text *out, const struct kolo_board *board)
{
    struct kolo_verdict verdict;
    if (!kolo_verdict_read(board, &verdict)) {
        kolo_text_add(out, "null");
        return;
    }
    kolo_text_add(out,
                  "{\"status\": \"%s\", \"rank\": %d, \"seen_by\": %d, \"call\": %llu, \"text\": ",
                  kolo_status_name((kolo_status)verdict.status), verdict.rank, verdict.seen_by,
                  (unsigned long long)verdict.call);
    add_string(out, verdict.text);
    kolo_text_add(out, "}");
}

static void add_own(struct kolo_text *out, const struct source *s)
{
    const struct kolo_board_slot *slot = s->slot;
    const int waits_for = atomic_load(&slot->waits_for);
    kolo_text_add(out, "\"kolo\": {\"rank\": %d, \"nranks\": %d, \"pid\": %d, \"host\": ",
                  atomic_load(&slot->rank), s->board->nranks, atomic_load(&slot->pid));
    add_string(out, kolo_host_name());
    kolo_text_add(out, ", \"state\": \"%s\", \"calls\": %llu, \"waits_for\": ",
                  kolo_board_slot_state(slot), (unsigned long long)atomic_load(&slot->begun));
    add_rank(out, waits_for);
    kolo_text_add(out, ", \"waits_for_last\": ");
    add_rank(out, waits_for > 0 ? atomic_load(&slot->waits_for_last) : 0);
    kolo_text_add(out, ", \"waits_since_ns\": ");
    if (waits_for > 0) {
        add_ns(out, s, (double)atomic_load(&slot->since_us));
    } else {
        kolo_text_add(out, "null");
    }
    kolo_text_add(out, ", \"failure\": ");
    add_failure(out, s->board);
    kolo_text_add(out, "}");
}

void kolo_flight_recorder_text(const struct kolo_board *board, const struct kolo_board_slot *slot,
                               struct kolo_text *out)
{
    const struct source s = source_of(board, slot);
    kolo_text_add(out, "{\"version\": \"2.4\",\n");
    add_groups(out, board);
    kolo_text_add(out, ",\n\"entries\": [");
    const uint64_t over = add_entries(out, &s);
    const unsigned long long begun = atomic_load(&slot->begun);
    kolo_text_add(out,
                  "],\n\"pg_status\": {\"0\": {\"last_enqueued_collective\": %llu, "
                  "\"last_started_collective\": %llu, \"last_completed_collective\": %llu}},\n",
                  begun, begun, (unsigned long long)over);
    add_own(out, &s);
    kolo_text_add(out, "}\n");
}

/* ---- files ---- */

void kolo_flight_recorder_path(const char *pattern, const struct kolo_board *board,
                               const struct kolo_board_slot *slot, struct kolo_text *out)
{
    bool told_apart = false;
    for (const char *c = pattern; *c != '\0'; c++) {
        const char key = c[0] == '%' ? c[1] : '\0';
        told_apart = told_apart || key == 'p' || key == 'r';
        c += key == 'h' || key == 'p' || key == 'r' || key == 'c';
        switch (key) {
        case 'h':
            kolo_text_add(out, "%s", kolo_host_name());
            break;
        case 'p':
            kolo_text_add(out, "%d", atomic_load(&slot->pid));
            break;
        case 'r':
            kolo_text_add(out, "%d", atomic_load(&slot->rank));
            break;
        case 'c':
            kolo_text_add(out, "%llx", (unsigned long long)board->comm);
            break;
        default:
            kolo_text_add(out, "%c", *c);
            break;
        }
    }
    if (!told_apart) {
        kolo_text_add(out, "%d", atomic_load(&slot->rank));
    }
}

static bool write_all(int fd, const char *from, size_t len)
{
    while (len > 0) {
        const ssize_t n = write(fd, from, len);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        from += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Under another name first, which nobody else can have laid there; rename() follows no link. */
kolo_status kolo_flight_recorder_write(const char *path, const struct kolo_text *text)
{
    struct kolo_text part = {0};
    kolo_text_add(&part, "%s.%d.part", path, (int)gettid());
    if (part.chars == NULL || text->chars == NULL) {
        kolo_text_free(&part);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a record of calls");
    }
    kolo_status st = KOLO_OK;
    const int fd = open(part.chars, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool written = fd >= 0 && write_all(fd, text->chars, text->len);
    if (fd < 0 || (close(fd) != 0 && errno != EINTR) || !written || rename(part.chars, path) != 0) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "the calls of a rank cannot be written to %s: %s", path,
                       kolo_why(errno));
        if (fd >= 0) {
            (void)unlink(part.chars);
        }
    }
    kolo_text_free(&part);
    return st;
}

static void write_slot(const struct kolo_board *board, const struct kolo_board_slot *slot,
                       const char *pattern)
{
    struct kolo_text path = {0}, text = {0};
    kolo_flight_recorder_path(pattern, board, slot, &path);
    kolo_flight_recorder_text(board, slot, &text);
    if (path.chars != NULL && kolo_flight_recorder_write(path.chars, &text) == KOLO_OK) {
        KOLO_LOG(INFO, COLL, "the last calls of rank %d are in %s", atomic_load(&slot->rank),
                 path.chars);
    } else {
        KOLO_LOG(WARN, COLL, "%s", kolo_error_text());
    }
    kolo_text_free(&path);
    kolo_text_free(&text);
}

static void write_failed(void *owner, const struct kolo_verdict *why)
{
    const struct kolo_comm *c = owner;
    const char *pattern = kolo_env("KOLO_RECORD_FILE");
    const struct kolo_board *board = c->health.board;
    if (pattern == NULL || board == NULL || atomic_load(&c->failure.is_part)) {
        return;
    }
    write_slot(board, c->health.slot, pattern);
    for (uint32_t i = 0; i < board->nslots && why->seen_by == c->ranks.rank; i++) {
        const struct kolo_board_slot *slot = &board->slot[i];
        if (slot != c->health.slot && strcmp(kolo_board_slot_state(slot), "dead") == 0) {
            write_slot(board, slot, pattern);
        }
    }
}

/* Complain of a folder that is not there now, not when the record is lost. Once a process. */
static void check_folder(const struct kolo_comm *c, const char *pattern)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    struct kolo_text path = {0};
    char shown[1024];
    kolo_flight_recorder_path(pattern, c->health.board, c->health.slot, &path);
    char *slash = path.chars != NULL ? strrchr(path.chars, '/') : NULL;
    if (slash != NULL && slash != path.chars) {
        *slash = '\0';
        if (access(path.chars, W_OK | X_OK) != 0 && !atomic_flag_test_and_set(&told)) {
            const char *why = kolo_why(errno);
            kolo_escape_line(path.chars, shown, sizeof shown);
            (void)fprintf(stderr, "kolo: KOLO_RECORD_FILE: no record can be written into %s: %s\n",
                          shown, why);
        }
    }
    kolo_text_free(&path);
}

void kolo_flight_recorder_start(struct kolo_comm *c)
{
    const char *pattern = kolo_env("KOLO_RECORD_FILE");
    if (pattern != NULL && c->health.board != NULL) {
        check_folder(c, pattern);
    }
    kolo_failure_observe(c, write_failed, c);
}
