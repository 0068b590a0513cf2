// SPDX-License-Identifier: Apache-2.0
/* The time to lose a rank, and to go on: recovery [-n RANKS] [-r ROUNDS] [-c] [NAMESPACE=ADDRESS ...]
 *
 * In each round a rank that works like the others kills itself at a random moment. Then
 *  - detect: from the kill until the last of the others has an error from a call;
 *  - shrink: from then until the last of them has a right all-reduce on a communicator without it;
 *  - grow: from the call of kolo_comm_grow() until the last of all has a right all-reduce on a
 *    communicator with a new process in its place. With -c calls go on meanwhile, in a thread of each
 *    old rank. The new process has made nothing of kolo before.
 * It prints medians, 99th percentiles and the longest times of all rounds. No option of kolo is set.
 *
 * The ranks are processes that this program forks: on this host, or in turn in the network
 * namespaces, which are hosts of their own. The last N processes wait for their round. */
#include <kolo/kolo.h>

#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_KOLO = 3, RANKS_MAX = 1024, ROUNDS_MAX = 1000, LONGEST_US = 20000, PORT = 21007 };

struct round {
    int victim, after_us; /* its rank */
    struct kolo_id id;    /* of the grown communicator */
    _Atomic int is_open;  /* there is an id */
    /* Milliseconds of CLOCK_MONOTONIC: when it was hit; the first of the ranks that began to grow;
     * the last that knew, had gone on, and had grown. */
    double hit;
    _Atomic double known, back, begun, grown;
    _Atomic long calls; /* of rank 0 while it grew */
};

static struct round *rounds; /* [nrounds], of all processes */
static int nranks = 8, nrounds = 20;
static bool calls_go_on;

static double now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void take_last(_Atomic double *at, double ms)
{
    double was = atomic_load(at);
    while (ms > was && !atomic_compare_exchange_weak(at, &was, ms)) {
    }
}

static void take_first(_Atomic double *at, double ms)
{
    double was = atomic_load(at);
    while ((was == 0 || ms < was) && !atomic_compare_exchange_weak(at, &was, ms)) {
    }
}

/* ---- a rank ---- */

static void must(kolo_status st, const char *what)
{
    if (st != KOLO_OK) {
        fprintf(stderr, "recovery: %s: %s\n", what, kolo_error_text());
        _exit(EXIT_KOLO);
    }
}

/* A right all-reduce, or the status that it ends with. */
static kolo_status sum(struct kolo_comm *comm)
{
    const int n = kolo_comm_size(comm);
    int32_t mine = kolo_comm_rank(comm) + 1, all = 0;
    const kolo_status st = kolo_all_reduce(&mine, &all, 1, KOLO_INT32, KOLO_SUM, comm, NULL);
    if (st == KOLO_OK && all != n * (n + 1) / 2) {
        fprintf(stderr, "recovery: a wrong sum\n");
        _exit(EXIT_KOLO);
    }
    return st;
}

static void *be_hit(void *arg)
{
    struct round *r = arg;
    (void)usleep((useconds_t)r->after_us);
    r->hit = now_ms();
    (void)kill(getpid(), SIGKILL);
    return NULL;
}

static struct kolo_comm *shrink(struct round *r, struct kolo_comm *comm)
{
    pthread_t thread;
    struct kolo_comm *rest = NULL;
    int lost[RANKS_MAX], nlost = 0;
    kolo_status st = kolo_barrier(comm, NULL); /* the rank may be hit before all are through it */
    if (kolo_comm_rank(comm) == r->victim && pthread_create(&thread, NULL, be_hit, r) != 0) {
        _exit(EXIT_KOLO);
    }
    while (st == KOLO_OK) {
        st = sum(comm);
    }
    take_last(&r->known, now_ms());
    must(kolo_comm_failed_ranks(comm, lost, RANKS_MAX, &nlost), "the failed ranks");
    must(kolo_comm_shrink(comm, lost, nlost, NULL, &rest), "shrink");
    must(sum(rest), "the first call of the survivors");
    take_last(&r->back, now_ms());
    kolo_comm_destroy(comm);
    return rest;
}

struct calls {
    struct kolo_comm *comm;
    _Atomic int grown; /* this rank has */
    long made;
};

/* Until all have grown. */
static void *make_calls(void *arg)
{
    struct calls *c = arg;
    int32_t all = 0;
    while (all == 0 && calls_go_on) {
        int32_t mine = atomic_load(&c->grown);
        must(kolo_all_reduce(&mine, &all, 1, KOLO_INT32, KOLO_MIN, c->comm, NULL), "a call");
        c->made++;
    }
    return NULL;
}

static void use_grown(struct round *r, struct kolo_comm *grown)
{
    must(sum(grown), "the first call of all");
    take_last(&r->grown, now_ms());
}

static struct kolo_comm *grow(struct round *r, struct kolo_comm *comm)
{
    pthread_t thread;
    struct calls calls = {.comm = comm};
    struct kolo_comm *grown = NULL;
    if (kolo_comm_rank(comm) == 0) {
        must(kolo_id_create(&r->id), "an id");
    }
    must(kolo_barrier(comm, NULL), "the barrier before growing");
    atomic_store(&r->is_open, 1);
    if (pthread_create(&thread, NULL, make_calls, &calls) != 0) {
        _exit(EXIT_KOLO);
    }
    take_first(&r->begun, now_ms());
    must(kolo_comm_grow(comm, &r->id, nranks, kolo_comm_rank(comm), NULL, &grown), "grow");
    use_grown(r, grown);
    atomic_store(&calls.grown, 1);
    (void)pthread_join(thread, NULL);
    if (kolo_comm_rank(comm) == 0) {
        atomic_store(&r->calls, calls.made);
    }
    kolo_comm_destroy(comm);
    return grown;
}

static struct kolo_comm *enter(struct round *r)
{
    struct kolo_comm *grown = NULL;
    while (atomic_load(&r->is_open) == 0) {
        (void)usleep(500);
    }
    must(kolo_comm_grow(NULL, &r->id, nranks, nranks - 1, NULL, &grown), "a new rank");
    use_grown(r, grown);
    return grown;
}

static void run_process(int number)
{
    struct kolo_comm *comm = NULL;
    int i = 0;
    if (number < nranks) {
        must(kolo_comm_create_env(NULL, &comm), "start");
    } else {
        i = number - nranks + 1;
        comm = enter(&rounds[i - 1]);
    }
    for (; i < nrounds; i++) {
        comm = grow(&rounds[i], shrink(&rounds[i], comm));
    }
    kolo_comm_destroy(comm);
    _exit(0);
}

/* ---- all of them ---- */

static void set_number(const char *name, int value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%d", value);
    (void)setenv(name, text, 1);
}

/* The process goes to a host of its own, named NAMESPACE=ADDRESS, and meets the others at the first. */
static bool go_to_host(const char *host, const char *first)
{
    char text[160];
    (void)snprintf(text, sizeof text, "/run/netns/%.*s", (int)strcspn(host, "="), host);
    const int fd = open(text, O_RDONLY | O_CLOEXEC);
    const bool there = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    (void)snprintf(text, sizeof text, "%s:%d", first + strcspn(first, "=") + 1, PORT);
    (void)setenv("KOLO_ROOT", text, 1);
    return there && close(fd) == 0;
}

static pid_t start(int number, char **hosts, int nhosts)
{
    const pid_t pid = fork();
    if (pid == 0) {
        char job[32];
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)snprintf(job, sizeof job, "recovery-%d", (int)getppid());
        (void)setenv("KOLO_JOB", job, 1);
        set_number("KOLO_RANK", number);
        set_number("KOLO_NRANKS", nranks);
        if (nhosts > 0 && !go_to_host(hosts[number % nhosts], hosts[0])) {
            perror("recovery: network namespace");
            _exit(2);
        }
        run_process(number);
    }
    return pid;
}

/* Returns 0 once all have ended, by themselves or by their kill. */
static int run_all(char **hosts, int nhosts)
{
    static pid_t pid[RANKS_MAX + ROUNDS_MAX];
    const int n = nranks + nrounds;
    int status = 0, bad = 0;
    for (int i = 0; i < n; i++) {
        pid[i] = start(i, hosts, nhosts);
    }
    for (int i = 0; i < n && bad == 0; i++) {
        (void)wait(&status);
        bad = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    }
    for (int i = 0; i < n && bad != 0; i++) {
        (void)kill(pid[i], SIGKILL);
    }
    return bad;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *what, double ms[])
{
    qsort(ms, (size_t)nrounds, sizeof ms[0], compare);
    printf("%-8s %10.1f %10.1f %10.1f\n", what, ms[nrounds / 2], ms[nrounds * 99 / 100],
           ms[nrounds - 1]);
}

static void print_all(void)
{
    static double detect[ROUNDS_MAX], shrunk[ROUNDS_MAX], grown[ROUNDS_MAX];
    long calls = 0;
    for (int i = 0; i < nrounds; i++) {
        const struct round *r = &rounds[i];
        detect[i] = r->known - r->hit;
        shrunk[i] = r->back - r->known;
        grown[i] = r->grown - r->begun;
        calls += r->calls;
    }
    printf("# %d ranks, %d rounds\n# ms         median        99 %%    longest\n", nranks, nrounds);
    print_times("detect", detect);
    print_times("shrink", shrunk);
    print_times("grow", grown);
    if (calls_go_on) {
        printf("# %ld calls of rank 0 while the communicator grew\n", calls);
    }
}

int main(int argc, char **argv)
{
    bool right = true;
    for (int option; (option = getopt(argc, argv, "n:r:c")) != -1;) {
        if (option == 'c') {
            calls_go_on = true;
        } else if (option == 'n' || option == 'r') {
            *(option == 'n' ? &nranks : &nrounds) = (int)strtol(optarg, NULL, 10);
        } else {
            right = false;
        }
    }
    if (!right || nranks < 3 || nranks > RANKS_MAX || nrounds < 1 || nrounds > ROUNDS_MAX) {
        fprintf(stderr,
                "usage: recovery [-n RANKS (3 to %d)] [-r ROUNDS (up to %d)] [-c] "
                "[NAMESPACE=ADDRESS ...]\n",
                RANKS_MAX, ROUNDS_MAX);
        return 2;
    }
    rounds = mmap(NULL, (size_t)nrounds * sizeof *rounds, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rounds == MAP_FAILED) {
        perror("recovery: memory");
        return 2;
    }
    srand((unsigned)getpid());
    for (int i = 0; i < nrounds; i++) {
        rounds[i].victim = rand() % nranks;
        rounds[i].after_us = rand() % LONGEST_US;
    }
    const int status = run_all(argv + optind, argc - optind);
    if (status == 0) {
        print_all();
    }
    return status;
}
