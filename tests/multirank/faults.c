// SPDX-License-Identifier: Apache-2.0
/* A rank of a job in which something goes wrong: it makes calls until one fails, and then prints
 *
 *   <rank> <milliseconds since the epoch> <status> <rank at fault> <text>
 *
 * (status START where it could not even begin)
 *
 * usage: faults WHAT [TIMEOUT_MS]     (faults_test.py says what each does) */
#include <kolo/kolo.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BIG = 1 << 20 };

static float in[BIG], out[BIG];

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void say(const char *line)
{
    (void)fputs(line, stdout);
    (void)fflush(stdout);
}

static int report(struct kolo_comm *comm, kolo_status st)
{
    char line[700];
    struct kolo_failure failure = {.size = sizeof failure};
    const kolo_status told = kolo_comm_failure(comm, &failure);
    (void)snprintf(line, sizeof line, "%d %.3f %s %d %s\n", kolo_comm_rank(comm), now_ms(),
                   kolo_status_name(st), told == KOLO_OK ? failure.rank : -2, failure.text);
    say(line);
    return st == failure.status ? 0 : 1;
}

/* The same where there is no communicator, and so nobody that is known to be at fault. */
static int report_no_start(void)
{
    char line[900];
    (void)snprintf(line, sizeof line, "%s %.3f KOLO_ERR_START -1 %s\n", getenv("KOLO_RANK"),
                   now_ms(), kolo_error_text());
    say(line);
    return 2;
}

static kolo_status one(const char *what, struct kolo_comm *comm, int i)
{
    const int n = kolo_comm_size(comm), root = i % n;
    const size_t few = 2, many = (size_t)BIG / (size_t)n;
    if (strcmp(what, "small") == 0) {
        return kolo_all_reduce(in, out, few, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    }
    if (strcmp(what, "large") == 0) {
        return kolo_all_reduce(in, out, BIG, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    }
    switch (i % 9) {
    case 0:
        return kolo_broadcast(in, out, many, KOLO_FLOAT32, root, comm, NULL);
    case 1:
        return kolo_reduce(in, out, many, KOLO_FLOAT32, KOLO_SUM, root, comm, NULL);
    case 2:
        return kolo_gather(in, out, many, KOLO_FLOAT32, root, comm, NULL);
    case 3:
        return kolo_scatter(in, out, many, KOLO_FLOAT32, root, comm, NULL);
    case 4:
        return kolo_all_gather(in, out, many, KOLO_FLOAT32, comm, NULL);
    case 5:
        return kolo_reduce_scatter(in, out, many, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    case 6:
        return kolo_all_to_all(in, out, many, KOLO_FLOAT32, comm, NULL);
    case 7:
        return kolo_barrier(comm, NULL);
    default:
        return kolo_all_reduce(in, out, many, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    }
}

/* Calls until one fails. */
static int work(const char *what, struct kolo_comm *comm)
{
    kolo_status st = KOLO_OK;
    for (int i = 0; st == KOLO_OK; i++) {
        st = one(what, comm, i);
        if (i == 50) {
            char line[64];
            (void)snprintf(line, sizeof line, "%d works %d\n", kolo_comm_rank(comm), (int)getpid());
            say(line);
        }
    }
    return report(comm, st);
}

/* Makes no calls: looks at the communicator until it has ended. */
static int idle(struct kolo_comm *comm)
{
    char line[64];
    (void)snprintf(line, sizeof line, "%d works %d\n", kolo_comm_rank(comm), (int)getpid());
    say(line);
    while (kolo_comm_error(comm) == KOLO_OK) {
        usleep(1000);
    }
    return report(comm, kolo_comm_error(comm));
}

/* With a child that holds all that was open, and lives on for a while. */
static int forks(struct kolo_comm *comm)
{
    const pid_t child = fork();
    if (child == 0) {
        sleep(5);
        _exit(0);
    }
    return work("small", comm);
}

/* Two communicators with the same members; the first ends with a member's death, which is not one
 * of the second's. */
static int halves(struct kolo_comm *comm)
{
    struct kolo_comm *half = NULL;
    const int rank = kolo_comm_rank(comm), upper = rank >= kolo_comm_size(comm) / 2;
    if (kolo_comm_split(comm, upper, 0, NULL, &half) != KOLO_OK) {
        return report(comm, kolo_comm_error(comm));
    }
    int result = work("small", comm);
    if (!upper) {
        for (int i = 0; i < 100 && result == 0; i++) {
            const kolo_status st = kolo_all_reduce(in, out, 2, KOLO_FLOAT32, KOLO_SUM, half, NULL);
            result = st == KOLO_OK ? 0 : report(half, st);
        }
        say(result == 0 ? "the other communicator goes on\n" : "");
    }
    kolo_comm_destroy(half);
    return result;
}

/* After a death the survivors go on without that rank, and their sums are right. */
static int go_on(struct kolo_comm *comm)
{
    struct kolo_comm *rest = NULL;
    struct kolo_failure failure = {.size = sizeof failure};
    const int result = work("small", comm);
    if (result != 0 || kolo_comm_failure(comm, &failure) != KOLO_OK) {
        return 1;
    }
    kolo_status st = kolo_comm_shrink(comm, &failure.rank, 1, NULL, &rest);
    const int n = kolo_comm_size(rest);
    float mine = (float)(kolo_comm_rank(rest) + 1), sum = 0;
    for (int i = 0; i < 100 && st == KOLO_OK; i++) {
        st = kolo_all_reduce(&mine, &sum, 1, KOLO_FLOAT32, KOLO_SUM, rest, NULL);
    }
    if (st == KOLO_OK && n == kolo_comm_size(comm) - 1 && sum == (float)(n * (n + 1) / 2)) {
        say("the survivors go on\n");
    } else {
        (void)(rest == NULL ? report_no_start() : report(rest, st));
    }
    kolo_comm_destroy(rest);
    return st == KOLO_OK ? 0 : 1;
}

/* Ranks that make other calls than rank 0. */
static int mismatch(const char *what, struct kolo_comm *comm)
{
    const int rank = kolo_comm_rank(comm), last = kolo_comm_size(comm) - 1;
    kolo_status st = kolo_all_reduce(in, out, 2, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    if (st == KOLO_OK && strcmp(what, "roots") == 0) {
        st = rank == last ? kolo_broadcast(in, out, 4, KOLO_FLOAT32, last, comm, NULL)
                          : kolo_reduce(in, out, 4, KOLO_FLOAT32, KOLO_SUM, last, comm, NULL);
    } else if (st == KOLO_OK && strcmp(what, "count") == 0) {
        st = kolo_all_reduce(in, out, rank == last ? 5 : 4, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    } else if (st == KOLO_OK && strcmp(what, "op") == 0) {
        st = kolo_all_reduce(in, out, 4, KOLO_FLOAT32, rank == last ? KOLO_MAX : KOLO_SUM, comm,
                             NULL);
    } else if (st == KOLO_OK && strcmp(what, "type") == 0) {
        st = kolo_all_reduce(in, out, 4, rank == last ? KOLO_INT32 : KOLO_FLOAT32, KOLO_SUM, comm,
                             NULL);
    } else if (st == KOLO_OK && strcmp(what, "root") == 0) {
        st = kolo_broadcast(in, out, 4, KOLO_FLOAT32, rank == last ? 0 : 1, comm, NULL);
    } else if (st == KOLO_OK && strcmp(what, "zero") == 0) {
        st = kolo_all_reduce(in, out, 0, KOLO_FLOAT32, rank == last ? KOLO_MAX : KOLO_SUM, comm,
                             NULL);
    } else if (st == KOLO_OK) { /* barrier */
        st = rank == last ? kolo_barrier(comm, NULL)
                          : kolo_all_reduce(in, out, 4, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    }
    const double until = now_ms() + 5000;
    while (st == KOLO_OK && now_ms() < until) { /* nobody may have had to wait */
        usleep(1000);
        st = kolo_comm_error(comm);
    }
    return report(comm, st);
}

/* Ranks that use two communicators in another order. */
static int crossed(struct kolo_comm *comm)
{
    struct kolo_comm *other = NULL;
    kolo_status st = kolo_comm_split(comm, 0, 0, NULL, &other);
    const bool first = kolo_comm_rank(comm) == 0;
    for (int i = 0; i < 2 && st == KOLO_OK; i++) {
        struct kolo_comm *c = first == (i == 0) ? comm : other;
        st = kolo_all_reduce(in, out, 2, KOLO_FLOAT32, KOLO_SUM, c, NULL);
        if (st != KOLO_OK) {
            comm = c;
        }
    }
    return report(comm, st);
}

/* The last rank leaves in order after some calls, before the others have made theirs. */
static int leave(struct kolo_comm *comm)
{
    const int last = kolo_comm_size(comm) - 1;
    kolo_status st = KOLO_OK;
    if (kolo_comm_rank(comm) != last) {
        usleep(300 * 1000);
    }
    for (int i = 0; i < 3 && st == KOLO_OK; i++) {
        st = kolo_broadcast(in, out, 100, KOLO_FLOAT32, last, comm, NULL);
    }
    if (kolo_comm_rank(comm) != last) {
        usleep(500 * 1000);
    }
    st = st == KOLO_OK ? kolo_comm_error(comm) : st;
    return st == KOLO_OK ? 0 : report(comm, st);
}

/* The last rank makes no more calls after some, and stays. */
static int stay_away(struct kolo_comm *comm)
{
    char line[64];
    kolo_status st = KOLO_OK;
    for (int i = 0; st == KOLO_OK && i < 300; i++) {
        st = one(i % 2 == 0 ? "small" : "all", comm, 7);
    }
    if (st == KOLO_OK && kolo_comm_rank(comm) == kolo_comm_size(comm) - 1) {
        return idle(comm);
    }
    (void)snprintf(line, sizeof line, "%d works %d\n", kolo_comm_rank(comm), (int)getpid());
    say(line);
    return work("small", comm);
}

int main(int argc, char **argv)
{
    struct kolo_comm *comm = NULL;
    struct kolo_config config = KOLO_CONFIG_INIT;
    const char *what = argc > 1 ? argv[1] : "small";
    config.timeout_ms = argc > 2 ? atoi(argv[2]) : 20000;
    if (kolo_comm_create_env(&config, &comm) != KOLO_OK) {
        return report_no_start();
    }
    const int result = strcmp(what, "idle") == 0       ? idle(comm)
                       : strcmp(what, "halves") == 0   ? halves(comm)
                       : strcmp(what, "forks") == 0    ? forks(comm)
                       : strcmp(what, "crossed") == 0  ? crossed(comm)
                       : strcmp(what, "shrink") == 0   ? go_on(comm)
                       : strcmp(what, "leave") == 0    ? leave(comm)
                       : strcmp(what, "away") == 0     ? stay_away(comm)
                       : strncmp(what, "not-", 4) == 0 ? mismatch(what + 4, comm)
                                                       : work(what, comm);
    kolo_comm_destroy(comm);
    return result;
}
