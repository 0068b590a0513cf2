// SPDX-License-Identifier: Apache-2.0
/* The time to create communicators, to make their first call, and to destroy them: startup [-t
 * THREADS | -c PROCESSES] [-n TIMES].
 *
 * The ranks are the launcher's processes, or with -t the threads of this process, which meet by an
 * id as processes do. The time of a step is from the first rank's begin to the last rank's end. The
 * first call is an all-reduce of 4 bytes, which opens the links; its time begins with the last
 * rank's begin. With processes, the first row includes the launcher, since ranks wait for the last
 * started one. -c runs this program itself for a curve: with 2 processes, 4, and so on up to that
 * number. A rank's log shows its parts of the time (KOLO_DEBUG=INFO, "Init timings"). */
#include <kolo/kolo.h>

#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_KOLO = 3, RANKS_MAX = 4096 };

struct rank {
    const struct kolo_id *id; /* NULL: the launcher's */
    int nranks, rank;
    struct kolo_comm *comm;
    /* Seconds of CLOCK_MONOTONIC, which all processes of a host share. */
    double begin, ready, called, end;
    kolo_status status;
};

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *come_and_go(void *arg)
{
    struct rank *r = arg;
    double span[3] = {0};
    float one = 1;
    r->begin = now_s();
    r->status = r->id != NULL ? kolo_comm_create(r->id, r->nranks, r->rank, NULL, &r->comm)
                              : kolo_comm_create_env(NULL, &r->comm);
    r->ready = now_s();
    if (r->status == KOLO_OK) {
        r->status = kolo_all_reduce(&one, &one, 1, KOLO_FLOAT32, KOLO_SUM, r->comm, NULL);
        span[0] = -r->begin;
        span[1] = r->ready;
        span[2] = now_s();
        r->nranks = kolo_comm_size(r->comm);
        r->rank = kolo_comm_rank(r->comm);
    }
    if (r->status == KOLO_OK) {
        r->status = kolo_all_reduce(span, span, 3, KOLO_FLOAT64, KOLO_MAX, r->comm, NULL);
        r->begin = -span[0];
        r->ready = span[1];
        r->called = span[2];
    }
    if (r->status != KOLO_OK) {
        fprintf(stderr, "startup: rank %d: %s\n", r->rank, kolo_error_text());
    }
    r->end = now_s();
    kolo_comm_destroy(r->comm);
    r->end = now_s() - r->end;
    return NULL;
}

/* Run all ranks as threads. `out` gets rank 0's result. */
static kolo_status by_threads(int nranks, struct rank *out)
{
    static struct rank ranks[RANKS_MAX];
    static pthread_t threads[RANKS_MAX];
    struct kolo_id id;
    int started = 0;
    kolo_status status = kolo_id_create(&id);
    while (status == KOLO_OK && started < nranks) {
        ranks[started] = (struct rank){.id = &id, .nranks = nranks, .rank = started};
        if (pthread_create(&threads[started], NULL, come_and_go, &ranks[started]) != 0) {
            fprintf(stderr, "startup: no thread for rank %d\n", started);
            exit(EXIT_KOLO); /* the other ranks would wait for it */
        }
        started++;
    }
    for (int r = 0; r < started; r++) {
        (void)pthread_join(threads[r], NULL);
        status = status == KOLO_OK ? ranks[r].status : status;
    }
    *out = ranks[0];
    return status;
}

static int usage(void)
{
    fprintf(stderr, "usage: startup [-t THREADS | -c PROCESSES (up to %d)] [-n TIMES]\n",
            RANKS_MAX);
    return 2;
}

/* In a new process: this program as a rank. */
static void become_rank(int nranks, int rank, long times)
{
    char text[32];
    char name[] = "startup", option[] = "-n";
    char *argv[] = {name, option, text, NULL};
    (void)snprintf(text, sizeof text, "%d", rank);
    (void)setenv("KOLO_RANK", text, 1);
    (void)snprintf(text, sizeof text, "%d", nranks);
    (void)setenv("KOLO_NRANKS", text, 1);
    (void)snprintf(text, sizeof text, "startup-%d-%d", (int)getppid(), nranks);
    (void)setenv("KOLO_JOB", text, 1);
    (void)snprintf(text, sizeof text, "%ld", times);
    (void)execv("/proc/self/exe", argv);
    _exit(EXIT_KOLO);
}

static int by_processes(int nranks, long times)
{
    int failed = 0, status = 0;
    for (int rank = 0; rank < nranks; rank++) {
        const pid_t pid = fork();
        if (pid == 0) {
            become_rank(nranks, rank, times);
        }
        failed += pid < 0; /* the others name it after the time-out */
    }
    while (wait(&status) > 0) {
        failed += status != 0;
    }
    return failed;
}

static int curve(long processes, long times)
{
    int failed = 0;
    for (int n = 2; n <= processes && failed == 0; n *= 2) {
        failed = by_processes(n, times);
    }
    return failed == 0 ? 0 : EXIT_KOLO;
}

static void print(const struct rank *r, bool first, bool threads)
{
    if (r->rank != 0) {
        return;
    }
    if (first) {
        printf("# ranks  as         create (ms)  first call (ms)  destroy of rank 0 (ms)\n");
    }
    printf("%7d  %-9s %12.1f %16.1f %23.1f\n", r->nranks, threads ? "threads" : "processes",
           1e3 * (r->ready - r->begin), 1e3 * (r->called - r->ready), 1e3 * r->end);
    (void)fflush(stdout);
}

static int time_ranks(long threads, long times)
{
    for (long i = 0; i < times; i++) {
        struct rank r = {0};
        kolo_status status = KOLO_OK;
        if (threads > 0) {
            status = by_threads((int)threads, &r);
        } else {
            come_and_go(&r);
            status = r.status;
        }
        if (status != KOLO_OK) {
            return EXIT_KOLO;
        }
        print(&r, i == 0, threads > 0);
    }
    return 0;
}

int main(int argc, char **argv)
{
    long threads = 0, processes = 0, times = 3;
    for (int option; (option = getopt(argc, argv, "t:c:n:")) != -1;) {
        long *value = option == 't' ? &threads : option == 'c' ? &processes : &times;
        *value = option == '?' ? -1 : strtol(optarg, NULL, 10);
    }
    if (optind != argc || threads < 0 || threads > RANKS_MAX || processes < 0 ||
        processes > RANKS_MAX || (threads > 0 && processes > 0) || times < 1) {
        return usage();
    }
    return processes > 0 ? curve(processes, times) : time_ranks(threads, times);
}
