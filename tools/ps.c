// SPDX-License-Identifier: Apache-2.0
/* `kolo ps`: the boards of running communicators (core/board/board.h), read from outside.
 *
 * Every memory that a process offers to its peers is one of its descriptors. Memory that begins
 * with a board's magic is mapped here for reading. Nothing is written, and no rank notices. Two
 * looks, a little apart, separate lasting waits from momentary ones. */
#include "tools/ps.h"

#include "core/failure/flight_recorder.h"
#include "tools/output.h"
#include "util/escape.h"

#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BETWEEN_LOOKS_MS = 150 };

struct seen { /* a slot at the first look */
    uint64_t begun;
    int32_t waits_for;
};

struct found {
    struct found *next;
    ino_t inode;
    const struct kolo_board *board;
    size_t bytes;
    struct seen *seen;
    bool chosen;
};

/* ---- finding ---- */

static bool is_known(const struct found *all, ino_t inode)
{
    while (all != NULL && all->inode != inode) {
        all = all->next;
    }
    return all != NULL;
}

/* Whether each slot leads to records of this board. */
static bool has_records(const struct kolo_board *board)
{
    const int nslots = (int)board->nslots;
    int i = 0;
    while (i < nslots && (const char *)kolo_record_at(&board->slot[i], 0) ==
                             (const char *)board + kolo_board_records_at(nslots, i)) {
        i++;
    }
    return i == nslots;
}

/* Map a descriptor's memory, if it is a board of a layout that this program knows. */
static struct found *map_board(int fd, const struct stat *info)
{
    struct kolo_board head;
    const size_t bytes = (size_t)info->st_size;
    if (bytes < sizeof head || pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        head.magic != KOLO_BOARD_MAGIC || head.version != KOLO_BOARD_VERSION ||
        head.nslots > bytes / sizeof(struct kolo_board_slot) ||
        kolo_board_bytes((int)head.nslots) > bytes) {
        return NULL;
    }
    struct found *f = calloc(1, sizeof *f);
    void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (f == NULL || at == MAP_FAILED || !has_records(at)) {
        free(f);
        if (at != MAP_FAILED) {
            (void)munmap(at, bytes);
        }
        return NULL;
    }
    f->inode = info->st_ino;
    f->board = at;
    f->bytes = bytes;
    return f;
}

static void look_at_descriptor(const char *path, struct found **all)
{
    char target[64] = "";
    struct stat info;
    if (readlink(path, target, sizeof target - 1) < 0 ||
        strncmp(target, "/memfd:kolo", strlen("/memfd:kolo")) != 0) {
        return;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (fstat(fd, &info) == 0 && !is_known(*all, info.st_ino)) {
        struct found *f = map_board(fd, &info);
        if (f != NULL) {
            f->next = *all;
            *all = f;
        }
    }
    close(fd);
}

/* Map the boards of a process. False: its descriptors cannot be read. */
static bool look_at_process(const char *pid, struct found **all)
{
    char path[64 + 256];
    (void)snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return false;
    }
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        (void)snprintf(path, sizeof path, "/proc/%s/fd/%s", pid, e->d_name);
        look_at_descriptor(path, all);
    }
    closedir(dir);
    return true;
}

static struct found *find_boards(void)
{
    struct found *all = NULL;
    DIR *dir = opendir("/proc");
    for (const struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir)) {
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9') {
            (void)look_at_process(e->d_name, &all);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return all;
}

static void free_boards(struct found *all)
{
    while (all != NULL) {
        struct found *next = all->next;
        munmap((void *)(uintptr_t)all->board, all->bytes);
        free(all->seen);
        free(all);
        all = next;
    }
}

/* ---- reading ---- */

static bool first_look(struct found *f)
{
    f->seen = calloc(f->board->nslots + 1, sizeof *f->seen);
    for (uint32_t i = 0; f->seen != NULL && i < f->board->nslots; i++) {
        f->seen[i] = (struct seen){atomic_load(&f->board->slot[i].begun),
                                   atomic_load(&f->board->slot[i].waits_for)};
    }
    return f->seen != NULL;
}

static bool is_stopped(const struct kolo_board_slot *slot)
{
    return strcmp(kolo_board_slot_state(slot), "stopped") == 0;
}

/* The rank + 1 that slot i waits for, in the same call at both looks; 0: none. A stopped process
 * waits for no rank, whatever call it had begun. */
static int waits_for(const struct found *f, uint32_t i)
{
    const struct kolo_board_slot *slot = &f->board->slot[i];
    const int32_t now = atomic_load(&slot->waits_for);
    const bool same = now == f->seen[i].waits_for && atomic_load(&slot->begun) == f->seen[i].begun;
    return same && !is_stopped(slot) ? now : 0;
}

static const char *state_of(const struct found *f, uint32_t i)
{
    const char *state = kolo_board_slot_state(&f->board->slot[i]);
    return strcmp(state, "waits") == 0 && waits_for(f, i) <= 0 ? "runs" : state;
}

static uint32_t slot_of(const struct kolo_board *board, int rank)
{
    uint32_t i = 0;
    while (i < board->nslots && (atomic_load(&board->slot[i].rank) != rank ||
                                 atomic_load(&board->slot[i].presence) == KOLO_PRESENCE_ABSENT)) {
        i++;
    }
    return i;
}

/* ---- printing ---- */

static void print_slot(const struct found *f, uint32_t i)
{
    struct kolo_recorded last;
    char call[96] = "-", wait[80] = "";
    const struct kolo_board_slot *slot = &f->board->slot[i];
    const struct kolo_rate rate = kolo_board_slot_rate(slot);
    const uint64_t begun = atomic_load(&slot->begun);
    const int whom = waits_for(f, i) - 1;
    if (begun > 0 && kolo_record_find(slot, begun, &last)) {
        kolo_record_text(&last, call, sizeof call);
        const double since_us = kolo_ticks_us(&rate, last.over ? last.end : last.start);
        (void)snprintf(wait, sizeof wait, last.over ? " - ended %.1f s ago" : " - since %.1f s",
                       (kolo_now_us() - since_us) / 1e6);
    }
    if (whom >= 0) {
        (void)snprintf(wait, sizeof wait, " - for rank %d since %.1f s", whom,
                       (kolo_now_us() - (double)atomic_load(&slot->since_us)) / 1e6);
    }
    (void)printf("%6d %8d  %-8s %10llu  %s%s\n", atomic_load(&slot->rank), atomic_load(&slot->pid),
                 state_of(f, i), (unsigned long long)begun, call, wait);
}

/* Print the rank at the end of the chains of waits, if all waiting ranks wait for the same one. */
static void print_culprit(const struct found *f)
{
    const struct kolo_board *board = f->board;
    uint32_t last = board->nslots, waiting = 0;
    for (uint32_t i = 0; i < board->nslots; i++) {
        uint32_t at = i;
        if (waits_for(f, i) <= 0) {
            continue;
        }
        for (uint32_t steps = 0; steps < board->nslots && at < board->nslots; steps++) {
            const int next = waits_for(f, at) - 1;
            if (next < 0) {
                break;
            }
            at = slot_of(board, next);
        }
        if (at >= board->nslots || waits_for(f, at) > 0 || (waiting > 0 && at != last)) {
            return;
        }
        last = at;
        waiting++;
    }
    if (waiting > 0) {
        const struct kolo_board_slot *slot = &board->slot[last];
        (void)printf(
            "  %u wait%s in the end for rank %d (pid %d: %s), which has begun %llu calls\n",
            waiting, waiting == 1 ? "s" : "", atomic_load(&slot->rank), atomic_load(&slot->pid),
            state_of(f, last), (unsigned long long)atomic_load(&slot->begun));
    }
}

static void print_board(const struct found *f)
{
    struct kolo_verdict verdict;
    const struct kolo_board *board = f->board;
    char name[sizeof board->name + 1], shown[4 * sizeof name];
    (void)snprintf(name, sizeof name, "%.*s", (int)sizeof board->name, board->name);
    kolo_escape_line(name, shown, sizeof shown);
    (void)printf("communicator %llx (%s): %u of %d ranks are on this host\n",
                 (unsigned long long)board->comm, shown, board->nslots, board->nranks);
    (void)printf("%6s %8s  %-8s %10s  %s\n", "rank", "pid", "state", "calls", "the last");
    for (uint32_t i = 0; i < board->nslots; i++) {
        print_slot(f, i);
    }
    if (kolo_verdict_read(board, &verdict)) {
        char text[4 * sizeof verdict.text];
        kolo_escape_line(verdict.text, text, sizeof text);
        (void)printf("  ended by %s, seen by rank %d: %s\n",
                     kolo_status_name((kolo_status)verdict.status), verdict.seen_by, text);
    } else {
        print_culprit(f);
    }
}

/* ---- choice of communicators ---- */

static bool has_process(const struct found *f, int pid)
{
    uint32_t i = 0;
    while (i < f->board->nslots && atomic_load(&f->board->slot[i].pid) != pid) {
        i++;
    }
    return i < f->board->nslots;
}

static void choose_process(struct found *all, int pid)
{
    for (struct found *f = all; f != NULL; f = f->next) {
        f->chosen = f->chosen || has_process(f, pid);
    }
}

/* Whether a process is in both communicators. */
static bool shares_process(const struct found *f, const struct found *g)
{
    for (uint32_t i = 0; i < g->board->nslots; i++) {
        if (has_process(f, atomic_load(&g->board->slot[i].pid))) {
            return true;
        }
    }
    return false;
}

/* Choose the communicators that share a process with a chosen one, until none is left. */
static void choose_job(struct found *all)
{
    for (bool more = true; more;) {
        more = false;
        for (struct found *f = all; f != NULL; f = f->next) {
            for (const struct found *g = all; g != NULL && !f->chosen; g = g->next) {
                f->chosen = g->chosen && shares_process(f, g);
                more = more || f->chosen;
            }
        }
    }
}

/* Write a file for each rank of a communicator. */
static bool write_json(const struct found *f, const char *pattern)
{
    bool well = true;
    for (uint32_t i = 0; i < f->board->nslots && well; i++) {
        struct kolo_text path = {0}, text = {0};
        kolo_flight_recorder_path(pattern, f->board, &f->board->slot[i], &path);
        kolo_flight_recorder_text(f->board, &f->board->slot[i], &text);
        well = path.chars != NULL && kolo_flight_recorder_write(path.chars, &text) == KOLO_OK;
        if (well) {
            (void)printf("%s\n", path.chars);
        } else {
            (void)fprintf(stderr, "kolo ps: %s\n", kolo_error_text());
        }
        kolo_text_free(&path);
        kolo_text_free(&text);
    }
    return well;
}

// clang-format off
static const char usage[] =
    "Usage: kolo ps [--job] [--json FILE] [PID...]\n"
    "Show the ranks on this host: of all communicators that this user may read, or of the communicators\n"
    "of these processes.\n"
    "  --job         also show the other communicators of the same job: those that share a process\n"
    "  --json FILE   write each rank's last calls in the form of PyTorch's flight recorder; in the name\n"
    "                %r is the rank, %c the communicator, %p the process, %h the host; without %r and\n"
    "                %p the rank is added to the name\n"
    "  -h, --help    print this help\n"
    "Columns of a rank:\n"
    "  state   runs, waits (for a rank, since when), stopped, dead, left (in order), comes\n"
    "  calls   number of collectives that the rank has started\n"
    "Exit status: 0 if any rank was found, else 1.\n";
// clang-format on

/* Look twice at all communicators. */
static bool look_twice(struct found *all)
{
    for (struct found *f = all; f != NULL; f = f->next) {
        if (!first_look(f)) {
            (void)fprintf(stderr, "kolo ps: out of memory\n");
            return false;
        }
    }
    if (all != NULL) {
        usleep(BETWEEN_LOOKS_MS * 1000);
    }
    return true;
}

static int show_found(const struct found *all, const char *json)
{
    int shown = 0;
    for (const struct found *f = all; f != NULL; f = f->next) {
        if (f->chosen && json != NULL) {
            shown++;
            if (!write_json(f, json)) {
                return 1;
            }
        } else if (f->chosen) {
            (void)printf("%s", shown++ > 0 ? "\n" : "");
            print_board(f);
        }
    }
    if (shown == 0) {
        (void)fprintf(stderr, "kolo ps: no communicator with several ranks is found%s\n",
                      geteuid() == 0 ? "" : " that this user may look at");
    }
    return shown > 0 ? 0 : 1;
}

int kolo_tool_ps(int argc, char **argv)
{
    static const struct option options[] = {{"job", no_argument, NULL, 'j'},
                                            {"json", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int c;
    bool job = false;
    const char *json = NULL;
    optind = 1;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) >= 0) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return 0;
        }
        if (c != 'j' && c != 'o') {
            (void)kolo_option_refuse("kolo ps", argc, argv, c);
            return 2;
        }
        job = job || c == 'j';
        json = c == 'o' ? optarg : json;
    }
    struct found *all = find_boards();
    for (int i = optind; i < argc; i++) {
        long pid;
        if (!kolo_parse_int(argv[i], 1, INT32_MAX, &pid)) {
            (void)fprintf(stderr, "kolo ps: \"%s\" is not a process\n", argv[i]);
            free_boards(all);
            return 2;
        }
        choose_process(all, (int)pid);
    }
    for (struct found *f = all; f != NULL && optind == argc; f = f->next) {
        f->chosen = true;
    }
    if (job) {
        choose_job(all);
    }
    const int status = look_twice(all) ? show_found(all, json) : 1;
    free_boards(all);
    return status;
}
