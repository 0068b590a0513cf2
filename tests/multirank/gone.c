// SPDX-License-Identifier: Apache-2.0
/* A rank of a job whose members die, leave or abort at a moment that the test chooses. Ranks are
 * named by their number in the first communicator, whatever their number in the present one.
 *
 * usage: gone WHAT [ARGUMENTS]     (gone_test.py says what each does) */
#include "sum.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MOST = 16, TIMEOUT_MS = 20000, LATE_MS = 700, CHILD_MS = 3000, ROUNDS = 50 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int say(const char *what, kolo_status st, double since)
{
    (void)printf("%s %s %.0f %s\n", what, kolo_status_name(st), now_ms() - since,
                 st == KOLO_OK ? "" : kolo_error_text());
    (void)fflush(stdout);
    return 0;
}

/* ---- deaths and shrinks ---- */

struct plan { /* "SHRINK:US": this rank dies US after it has begun that shrink; 0: at work */
    int shrink;
    int us; /* -1: it leaves instead of that shrink */
};

static void *die_later(void *arg)
{
    (void)usleep((useconds_t) * (const int *)arg);
    (void)raise(SIGKILL);
    return NULL;
}

static void keep_to(struct plan *plan, int shrinks)
{
    pthread_t thread;
    if (plan->shrink == shrinks && plan->us == 0) {
        (void)raise(SIGKILL);
    } else if (plan->shrink == shrinks && plan->us > 0 &&
               pthread_create(&thread, NULL, die_later, &plan->us) == 0) {
        (void)pthread_detach(thread);
    }
}

static void say_without(const char *what, const int *names, const int *failed, int count)
{
    char line[256];
    int len = snprintf(line, sizeof line, "%s", what);
    for (int i = 0; i < count; i++) {
        len += snprintf(line + len, sizeof line - (size_t)len, " %d", names[failed[i]]);
    }
    (void)puts(line);
    (void)fflush(stdout);
}

/* The names of those that are left. */
static void drop_names(int *names, int n, const int *failed, int count)
{
    int kept = 0;
    for (int q = 0; q < n; q++) {
        bool is_out = false;
        for (int i = 0; i < count; i++) {
            is_out = is_out || failed[i] == q;
        }
        names[kept] = names[q];
        kept += !is_out;
    }
}

static bool holds_all(const int *list, int n, const int *wanted, int nwanted)
{
    int found = 0;
    for (int i = 0; i < nwanted; i++) {
        for (int k = 0; k < n; k++) {
            found += list[k] == wanted[i];
        }
    }
    return found == nwanted;
}

/* What the old communicator lists after a shrink: the ranks that were excluded, and maybe one that
 * has died since. */
static kolo_status say_lost(struct kolo_comm *comm, const int *names, const int *excluded,
                            int count)
{
    int lost[RANKS_MOST], nlost = 0;
    const kolo_status st = kolo_comm_failed_ranks(comm, lost, RANKS_MOST, &nlost);
    const bool more = st == KOLO_OK && holds_all(lost, nlost, excluded, count);
    say_without("lost", names, more ? excluded : lost, more ? count : nlost);
    return st;
}

/* Shrink until it succeeds or the reason is no death. */
static kolo_status go_on(struct kolo_comm **comm, int *names, struct plan *plan, int *shrinks)
{
    struct kolo_comm *rest = NULL;
    kolo_status st = KOLO_ERR_PEER;
    while (st == KOLO_ERR_PEER) {
        int failed[RANKS_MOST], count = 0;
        ++*shrinks;
        if (kolo_comm_failed_ranks(*comm, failed, RANKS_MOST, &count) != KOLO_OK) {
            return KOLO_ERR_INVALID;
        }
        say_without("failed", names, failed, count);
        if (plan->shrink == *shrinks && plan->us < 0) {
            kolo_comm_destroy(*comm);
            (void)usleep(LATE_MS * 1000); /* it is its leaving that counts, not its end */
            exit(0);
        }
        keep_to(plan, *shrinks);
        const double since = now_ms();
        st = kolo_comm_shrink(*comm, failed, count, NULL, &rest);
        (void)say("shrink", st, since);
        if (st == KOLO_OK) {
            if (say_lost(*comm, names, failed, count) != KOLO_OK) {
                return KOLO_ERR_INVALID;
            }
            (void)sum(rest); /* until then, nobody has left the old one; a failure stays */
            drop_names(names, kolo_comm_size(*comm), failed, count);
        }
    }
    if (st == KOLO_OK) {
        kolo_comm_destroy(*comm);
        *comm = rest;
    }
    return st;
}

/* A child that outlives this process, and has copies of all its descriptors but these. */
static void leave_child(void)
{
    if (fork() == 0) {
        (void)close(STDOUT_FILENO);
        (void)close(STDERR_FILENO);
        (void)usleep(CHILD_MS * 1000);
        _exit(0);
    }
}

/* Sums until a rank fails, then again on those that are left, until there are `end`. */
static int shrink(struct kolo_comm *comm, int end, const char *text, bool forks)
{
    int names[RANKS_MOST], shrinks = 0;
    struct plan plan = {-1, 0};
    kolo_status st = KOLO_OK;
    const double since = now_ms();
    (void)sscanf(text, "%d:%d", &plan.shrink, &plan.us);
    for (int q = 0; q < RANKS_MOST; q++) {
        names[q] = q;
    }
    if (forks) {
        leave_child();
    }
    (void)puts("works");
    (void)fflush(stdout);
    keep_to(&plan, 0);
    while (st == KOLO_OK && kolo_comm_size(comm) > end) {
        while (st == KOLO_OK) {
            st = sum(comm);
        }
        st = st == KOLO_ERR_PEER ? go_on(&comm, names, &plan, &shrinks) : st;
        if (st == KOLO_OK && plan.shrink > 0 && kolo_comm_rank(comm) == 0 &&
            kolo_comm_size(comm) > end) {
            (void)raise(SIGKILL); /* some that died before came together: it is this one's turn */
        }
    }
    for (int i = 0; i < ROUNDS && st == KOLO_OK; i++) {
        st = sum(comm);
    }
    (void)say("done", st, since);
    kolo_comm_destroy(comm);
    return 0;
}

/* Exclude ranks that are all alive, and one that died not: what the call answers. */
static int refuse(struct kolo_comm *comm)
{
    struct kolo_comm *rest = NULL;
    int failed[2], count = -1;
    const double since = now_ms();
    (void)say("negative", kolo_comm_shrink(comm, NULL, -1, NULL, &rest), since);
    const kolo_status none = kolo_comm_failed_ranks(comm, failed, 2, &count);
    (void)printf("none %s %d\n", kolo_status_name(none), count);
    (void)say("null", kolo_comm_failed_ranks(comm, NULL, 2, &count), since);
    (void)say("room", kolo_comm_failed_ranks(comm, failed, -1, &count), since);
    (void)say("sum", sum(comm), since);
    kolo_comm_destroy(comm);
    return 0;
}

/* ---- threads ---- */

struct late {
    struct kolo_comm *comm;
    int after_ms, peer;
    kolo_status st;
    void (*act)(struct late *late);
};

static void *run_late(void *arg)
{
    struct late *late = arg;
    (void)usleep((useconds_t)late->after_ms * 1000);
    late->act(late);
    return NULL;
}

static void act_sum(struct late *late)
{
    late->st = sum(late->comm);
}

static void act_send(struct late *late)
{
    const int32_t word = 5;
    late->st = kolo_send_tag(&word, 1, KOLO_INT32, late->peer, 3, late->comm, NULL);
}

static void act_abort(struct late *late)
{
    kolo_comm_abort(late->comm);
    late->st = KOLO_OK;
}

static pthread_t start_late(struct late *late)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_late, late) != 0) {
        exit(4);
    }
    return thread;
}

/* Two communicators in another order, which a thread that comes late puts right. */
static int threads(struct kolo_comm *comm)
{
    struct kolo_comm *other = NULL;
    const double since = now_ms();
    kolo_status st = kolo_comm_split(comm, 0, 0, NULL, &other);
    const bool first = kolo_comm_rank(comm) == 0;
    struct late late = {.comm = first ? other : comm, .after_ms = LATE_MS, .act = act_sum};
    const pthread_t thread = start_late(&late);
    st = st == KOLO_OK ? sum(first ? comm : other) : st;
    (void)pthread_join(thread, NULL);
    (void)say("first", st, since);
    (void)say("late", late.st, since);
    kolo_comm_destroy(other);
    kolo_comm_destroy(comm);
    return 0;
}

/* ---- leaving ---- */

static kolo_status receive_any(struct kolo_comm *comm, int32_t *word)
{
    return kolo_recv_tag(word, 1, KOLO_INT32, KOLO_ANY_SOURCE, KOLO_ANY_TAG, NULL, comm, NULL);
}

/* Rank 1 leaves without a receive, and stays alive; rank 0 has sent it a word before, and leaves
 * later. */
static int send_left(struct kolo_comm *comm)
{
    const int32_t word = 5;
    if (kolo_comm_rank(comm) != 0) {
        (void)usleep(LATE_MS * 1000 / 2);
        kolo_comm_destroy(comm);
        (void)usleep(3 * LATE_MS * 1000);
        return 0;
    }
    double since = now_ms();
    (void)say("send", kolo_send(&word, 1, KOLO_INT32, 1, comm, NULL), since);
    (void)usleep(LATE_MS * 1000);
    since = now_ms();
    kolo_comm_destroy(comm);
    return say("destroy", KOLO_OK, since);
}

/* All but rank 0, which receives from any source, leave. */
static int any_left(struct kolo_comm *comm)
{
    int32_t word = 0;
    if (kolo_comm_rank(comm) != 0) {
        (void)usleep((useconds_t)kolo_comm_rank(comm) * 100 * 1000);
        kolo_comm_destroy(comm);
        (void)usleep(3 * LATE_MS * 1000);
        return 0;
    }
    const double since = now_ms();
    (void)say("any", receive_any(comm, &word), since);
    kolo_comm_destroy(comm);
    return 0;
}

/* The last leaves; rank 1 sends late. */
static int any_some(struct kolo_comm *comm)
{
    int32_t word = 0;
    const int rank = kolo_comm_rank(comm);
    if (rank == 2) {
        kolo_comm_destroy(comm);
        (void)usleep(3 * LATE_MS * 1000);
        return 0;
    }
    (void)usleep(LATE_MS * 1000 / 2);
    const double since = now_ms();
    if (rank == 1) {
        struct late late = {.comm = comm, .after_ms = LATE_MS, .act = act_send};
        (void)run_late(&late);
        (void)say("sent", late.st, since);
    } else {
        (void)say("any", receive_any(comm, &word), since);
    }
    kolo_comm_destroy(comm);
    return 0;
}

/* All others leave; this rank's own thread sends late. */
static int any_self(struct kolo_comm *comm)
{
    int32_t word = 0;
    if (kolo_comm_rank(comm) != 0) {
        kolo_comm_destroy(comm);
        return 0;
    }
    const double since = now_ms();
    struct late late = {.comm = comm, .after_ms = LATE_MS, .act = act_send};
    const pthread_t thread = start_late(&late);
    (void)say("any", receive_any(comm, &word), since);
    (void)pthread_join(thread, NULL);
    (void)say("sent", late.st, since);
    kolo_comm_destroy(comm);
    return 0;
}

/* Nobody else ever comes: a communicator of one rank. */
static int any_alone(struct kolo_comm *comm)
{
    int32_t word = 0;
    const double since = now_ms();
    (void)say("any", receive_any(comm, &word), since);
    kolo_comm_destroy(comm);
    return 0;
}

/* ---- aborts from another thread ---- */

static int aborted(struct kolo_comm *comm, const char *state)
{
    int32_t word = 0, two[2] = {0};
    struct kolo_comm *rest = NULL;
    kolo_status st = KOLO_OK;
    const bool waits = kolo_comm_rank(comm) == 0;
    struct late late = {.comm = comm, .after_ms = LATE_MS / 2, .act = act_abort};
    const double since = now_ms();
    if (!waits) { /* it never makes the call */
        while (kolo_comm_error(comm) == KOLO_OK && now_ms() - since < 3 * LATE_MS) {
            (void)usleep(1000);
        }
        kolo_comm_destroy(comm);
        return 0;
    }
    const pthread_t thread = start_late(&late);
    if (strcmp(state, "collective") == 0) {
        st = kolo_all_reduce(two, two, 2, KOLO_INT32, KOLO_SUM, comm, NULL);
    } else if (strcmp(state, "any") == 0) {
        st = receive_any(comm, &word);
    } else if (strcmp(state, "split") == 0) {
        st = kolo_comm_split(comm, 0, 0, NULL, &rest);
    } else if (strcmp(state, "shrink") == 0) {
        st = kolo_comm_shrink(comm, NULL, 0, NULL, &rest);
    } else if (strcmp(state, "destroy") == 0) {
        st = kolo_send(&word, 1, KOLO_INT32, 1, comm, NULL);
    }
    (void)say(state, st, since);
    (void)pthread_join(thread, NULL);
    (void)say("error", kolo_comm_error(comm), since);
    kolo_comm_destroy(comm);
    return say("destroyed", KOLO_OK, since);
}

/* Rank 1 aborts while the others are in calls. All go on together, in a new communicator. */
static int abort_and_shrink(struct kolo_comm *comm)
{
    struct kolo_comm *rest = NULL;
    struct late late = {.comm = comm, .after_ms = LATE_MS / 2, .act = act_abort};
    kolo_status st = sum(comm);
    int failed[RANKS_MOST], count = -1;
    double since = now_ms();
    if (kolo_comm_rank(comm) == 1) {
        (void)pthread_join(start_late(&late), NULL);
    }
    while (st == KOLO_OK) {
        st = sum(comm);
    }
    (void)say("ended", st, since);
    st = kolo_comm_failed_ranks(comm, failed, RANKS_MOST, &count);
    (void)printf("lost %s %d\n", kolo_status_name(st), count);
    since = now_ms();
    st = kolo_comm_shrink(comm, NULL, 0, NULL, &rest);
    (void)say("shrink", st, since);
    st = st == KOLO_OK ? sum(rest) : st;
    (void)say("sum", st, since);
    kolo_comm_destroy(comm);
    kolo_comm_destroy(rest);
    return 0;
}

int main(int argc, char **argv)
{
    struct kolo_comm *comm = NULL;
    struct kolo_config config = KOLO_CONFIG_INIT;
    const char *what = argc > 1 ? argv[1] : "refuse";
    config.timeout_ms = TIMEOUT_MS;
    const kolo_status st = kolo_comm_create_env(&config, &comm);
    if (st != KOLO_OK) {
        return say("start", st, now_ms());
    }
    return strcmp(what, "shrink") == 0 && argc > 3  ? shrink(comm, atoi(argv[2]), argv[3], argc > 4)
           : strcmp(what, "threads") == 0           ? threads(comm)
           : strcmp(what, "send-left") == 0         ? send_left(comm)
           : strcmp(what, "any-left") == 0          ? any_left(comm)
           : strcmp(what, "any-some") == 0          ? any_some(comm)
           : strcmp(what, "any-self") == 0          ? any_self(comm)
           : strcmp(what, "any-alone") == 0         ? any_alone(comm)
           : strcmp(what, "revoke") == 0            ? abort_and_shrink(comm)
           : strcmp(what, "abort") == 0 && argc > 2 ? aborted(comm, argv[2])
                                                    : refuse(comm);
}
