// SPDX-License-Identifier: Apache-2.0
/* One rank of one method. It starts alike for all methods, on the core rank mod cores, and answers
 * the driver's commands. While another method runs, it sleeps in a read and takes no CPU time. */
#include "worker.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { WARM_UPS = 2, FIND_NS = 1000000, FIND_CALLS_MAX = 1 << 20, PAGE = 4096 };

struct worker {
    const struct compare_method *method;
    struct compare_team team;
    struct compare_point point;
    bool open;
    int driver; /* socket */
    FILE *commands;
};

/* ---- start ---- */

/* The number in the first set variable. The variables are those of Open MPI, of MPICH, and of
 * `kolo run` and the driver. */
static int number_of(const char *const names[3])
{
    for (int i = 0; i < 3; i++) {
        const char *text = getenv(names[i]);
        if (text != NULL) {
            return atoi(text);
        }
    }
    return -1;
}

/* Pin rank r to core r mod cores, counting the allowed cores, before the method starts threads.
 * With KOLO_COMPARE_FREE the system places the ranks, for a library with threads of its own. */
static void pin(struct compare_team *team)
{
    cpu_set_t allowed, one;
    team->cores = 1;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return;
    }
    team->cores = CPU_COUNT(&allowed);
    if (getenv("KOLO_COMPARE_FREE") != NULL) {
        return;
    }
    int skip = team->rank % team->cores;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && skip-- == 0) {
            CPU_SET(cpu, &one);
        }
    }
    (void)sched_setaffinity(0, sizeof one, &one);
}

static void say(struct worker *w, const char *text)
{
    if (send(w->driver, text, strlen(text), MSG_NOSIGNAL) < 0) {
        exit(1); /* the driver is gone */
    }
}

/* Receive the descriptor that comes with one byte; -1: none came. */
static int receive_memory(int from)
{
    char byte = 0;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1) {
        return -1;
    }
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int memory = -1;
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        memcpy(&memory, CMSG_DATA(header), sizeof memory);
    }
    return memory;
}

static bool meet_driver(struct worker *w)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "KOLO_RANK"};
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "KOLO_NRANKS"};
    const char *path = getenv("KOLO_COMPARE_SOCKET"), *name = getenv("KOLO_COMPARE_METHOD");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char hello[128];
    w->team.rank = number_of(ranks);
    w->team.nranks = number_of(sizes);
    if (path == NULL || name == NULL || strlen(path) >= sizeof address.sun_path ||
        w->team.rank < 0 || w->team.rank >= w->team.nranks || w->team.nranks > COMPARE_RANKS_MAX) {
        fprintf(stderr, "compare: a worker is started by compare.py\n");
        return false;
    }
    strcpy(address.sun_path, path);
    pin(&w->team);
    w->driver = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->driver < 0 ||
        connect(w->driver, (const struct sockaddr *)&address, sizeof address) != 0) {
        perror("compare: connecting to the driver");
        return false;
    }
    snprintf(hello, sizeof hello, "hello %s %d %d\n", name, w->team.rank, (int)getpid());
    say(w, hello);
    const int memory = receive_memory(w->driver);
    w->commands = fdopen(w->driver, "r");
    return memory >= 0 && w->commands != NULL && compare_team_join(&w->team, memory);
}

/* ---- a point ---- */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The bytes between a private buffer and the page before it. */
static size_t behind_page(void)
{
    const char *text = getenv("KOLO_COMPARE_BEHIND");
    return text != NULL ? (size_t)atoi(text) % PAGE : 0;
}

static size_t rounded(size_t bytes)
{
    return (behind_page() + bytes + PAGE) / PAGE * PAGE; /* at least one page */
}

static void *private_memory(size_t bytes)
{
    void *base =
        mmap(NULL, rounded(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return base == MAP_FAILED ? NULL : (char *)base + behind_page();
}

static void free_private(void *at, size_t bytes)
{
    munmap((char *)at - behind_page(), rounded(bytes));
}

static bool allocate(struct worker *w)
{
    struct compare_point *p = &w->point;
    if (p->shared && w->method->share != NULL) {
        return w->method->share(p);
    }
    p->shared = false;
    p->recv = private_memory(p->recv_elems * p->elem_bytes);
    p->send = p->collective == COMPARE_BROADCAST ? p->recv
                                                 : private_memory(p->send_elems * p->elem_bytes);
    return p->recv != NULL && p->send != NULL;
}

static void release(struct worker *w)
{
    struct compare_point *p = &w->point;
    if (p->shared) {
        w->method->unshare(p);
    } else {
        free_private(p->recv, p->recv_elems * p->elem_bytes);
        if (p->send != p->recv) {
            free_private(p->send, p->send_elems * p->elem_bytes);
        }
    }
    w->open = false;
}

static bool repeat(const struct worker *w, uint64_t calls)
{
    const struct compare_point *p = &w->point;
    bool good = true;
    for (uint64_t i = 0; i < calls && good; i++) {
        if (p->rewritten) {
            compare_point_rewrite(p);
        }
        good = w->method->call(p);
    }
    return good;
}

/* Time calls that all ranks begin together, by this rank's clock at both ends. */
static bool timed(struct worker *w, uint64_t calls, int64_t *begin, int64_t *end)
{
    compare_team_barrier(&w->team);
    *begin = now_ns();
    const bool good = repeat(w, calls);
    *end = now_ns();
    return good && (w->method->settle == NULL || w->method->settle());
}

/* Find the nanoseconds of a call on rank 0, from a batch of a millisecond or one call. */
static bool find_speed(struct worker *w, uint64_t *out)
{
    uint64_t calls = 1;
    for (;;) {
        int64_t begin, end;
        if (!timed(w, calls, &begin, &end)) {
            return false;
        }
        const uint64_t ns = compare_team_decide(&w->team, (uint64_t)(end - begin));
        if (ns >= FIND_NS || calls >= FIND_CALLS_MAX) {
            *out = ns / calls;
            return true;
        }
        calls *= ns < FIND_NS / 16 ? 8 : 2;
    }
}

/* Set the point "COLLECTIVE BYTES TYPE SHARED REWRITTEN". Returns NULL, or the reason why it cannot
 * be run. */
static const char *set_point(struct worker *w, const char *arguments)
{
    char collective[32], type[32];
    unsigned long bytes = 0;
    int shared = 0, rewritten = 0;
    struct compare_point *p = &w->point;
    *p = (struct compare_point){.rank = w->team.rank, .nranks = w->team.nranks};
    if (sscanf(arguments, "%31s %lu %31s %d %d", collective, &bytes, type, &shared, &rewritten) !=
            5 ||
        !compare_point_parse(collective, type, bytes, p)) {
        return "what was asked for is unknown";
    }
    p->shared = shared != 0;
    p->rewritten = rewritten != 0;
    return w->method->prepare(p);
}

/* Make one call on known inputs, and count the wrong elements. */
static bool prove(struct worker *w, uint64_t *out)
{
    compare_point_fill(&w->point);
    compare_team_barrier(&w->team);
    const bool good = repeat(w, 1) && (w->method->settle == NULL || w->method->settle());
    *out = good ? compare_point_wrong(&w->point) : 0;
    compare_team_barrier(&w->team);
    return good;
}

static void open_point(struct worker *w, const char *arguments)
{
    char text[160];
    uint64_t wrong = 0, ns = 0;
    const char *refused = set_point(w, arguments);
    if (refused != NULL) {
        snprintf(text, sizeof text, "unsupported %s\n", refused);
        say(w, text);
        return;
    }
    if (!allocate(w)) {
        say(w, "failed no memory\n");
        return;
    }
    w->open = true;
    const bool good = prove(w, &wrong) && find_speed(w, &ns);
    snprintf(text, sizeof text, good ? "opened %llu %llu\n" : "failed a call failed\n",
             (unsigned long long)wrong, (unsigned long long)ns);
    say(w, text);
}

/* Nanoseconds that this thread was ready but did not run; 0: the kernel does not tell. */
static long long kept_waiting_ns(void)
{
    long long ran = 0, waited = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    if (file == NULL || fscanf(file, "%lld %lld", &ran, &waited) != 2) {
        waited = 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return waited;
}

static void run_point(struct worker *w, const char *arguments)
{
    char text[120];
    int64_t begin = 0, end = 0;
    const uint64_t calls = strtoull(arguments, NULL, 10);
    bool good = w->open && repeat(w, WARM_UPS);
    const long long before = kept_waiting_ns();
    good = good && timed(w, calls, &begin, &end);
    if (good) {
        snprintf(text, sizeof text, "time %lld %lld %lld\n", (long long)begin, (long long)end,
                 kept_waiting_ns() - before);
        say(w, text);
    } else {
        say(w, "failed a call failed\n");
    }
}

/* ---- the conversation ---- */

static void obey(struct worker *w)
{
    char line[256];
    while (fgets(line, sizeof line, w->commands) != NULL && strncmp(line, "quit", 4) != 0) {
        if (strncmp(line, "open ", 5) == 0) {
            open_point(w, line + 5);
        } else if (strncmp(line, "run ", 4) == 0) {
            run_point(w, line + 4);
        } else if (strncmp(line, "close", 5) == 0) {
            if (w->open) {
                release(w);
            }
            say(w, "closed\n");
        }
    }
    if (w->open) {
        release(w);
    }
}

int compare_worker(const struct compare_method *method)
{
    static struct worker w;
    char version[96] = "", text[128];
    w.method = method;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!meet_driver(&w) || !method->start(&w.team, version, sizeof version)) {
        return 1;
    }
    snprintf(text, sizeof text, "ready %s\n", version);
    say(&w, text);
    obey(&w);
    method->stop();
    return 0;
}
