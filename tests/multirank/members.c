// SPDX-License-Identifier: Apache-2.0
/* Ranks are killed, stopped, or stopped for a moment, in every phase of a communicator: its start,
 * calls of all kinds and sizes, no calls, agreeing, shrinking, growing, reconfiguring, its end.
 *
 * usage: members TRIALS SEED kill|stop|pause[:OPERATION] [NAMESPACE=ADDRESS ...]
 *
 * Each trial starts 2 to 8 old ranks and up to 2 new ones, as processes, and draws an operation, the
 * victims, and for each the moment after the operation has begun. With network namespaces, each rank
 * is in one of them, which is a host of its own. All that a rank is told it writes into memory that
 * this program shares with it. Afterwards:
 *  - every survivor ended within its time-outs, and all its results are right;
 *  - all that ever got the result of an agreement got the same, also ranks that died later;
 *  - no survivor was taken for dead;
 *  - either all survivors have the new communicator, or none;
 *  - the verdicts on what ended the first communicator name a victim: these are counted.
 * A stopped rank goes on after the others, and must then be told that they have gone on. Ranks of
 * several hosts, or over TCP, have given up an agreement instead, have named it, and have left.
 * Nobody may notice a pause. */
#include "members.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMEOUT_MS = 6000, SHORT_MS = 2500, LIMIT_MS = 5 * TIMEOUT_MS + 10000 };
enum { LONGEST_US = 12000, START_US = 25000, END_US = 4000, JOIN_US = 3000, PAUSE_MS = 300 };
enum { MOST_HOSTS = 4, FIRST_PORT = 10000, PORTS = 20000 };

struct shared *shared;
struct trial trial;

static struct host {
    char name[64], address[64];
} hosts[MOST_HOSTS];
static int nhosts; /* 0: all ranks are on this one */

bool takes_part(int rank)
{
    bool is = trial.operation != RECONFIGURE || rank >= trial.nold;
    for (int i = 0; i < trial.nmembers; i++) {
        is = is || trial.members[i] == rank;
    }
    return is;
}

/* ---- trials ---- */

static unsigned long long state;
static int draw(int below)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((state >> 33) % (unsigned)below);
}

static void draw_members(void)
{
    /* Not rank 0: who leaves ends, and its process serves the id. */
    const int leaves = trial.nold > 2 && draw(2) == 0 ? 1 + draw(trial.nold - 1) : -1;
    trial.nmembers = 0;
    for (int i = 0; i < trial.nold + trial.nnew; i++) {
        if (i != leaves) {
            const int at = draw(trial.nmembers + 1);
            trial.members[trial.nmembers] = trial.members[at];
            trial.members[at] = i < trial.nold ? i : -1;
            trial.nmembers++;
        }
    }
}

static int only = -1; /* the operation of all trials; -1: any */

static enum operation draw_operation(enum fault fault)
{
    /* Nobody notices a stop between calls; shrinking excludes whoever its caller says. */
    static const enum operation of_stop[] = {AGREE, RECONFIGURE, CALLS};
    const enum operation any = fault == STOP ? of_stop[draw(3)] : (enum operation)draw(OPERATIONS);
    return only >= 0 ? (enum operation)only : any;
}

static int draw_moment(void)
{
    switch (trial.operation) {
    case START:
        return draw(START_US);
    case DESTROY:
        return draw(END_US);
    default:
        return draw(LONGEST_US) / (1 + draw(4));
    }
}

static void draw_victims(void)
{
    const bool may_be_new = trial.fault != STOP;
    const int two = trial.nold > 2 && trial.fault == KILL ? draw(2) : 0;
    const int none =
        trial.operation == GROW && draw(3) == 0 ? 1 : 0; /* for the time that it takes */
    for (int i = none; i <= two && !(none && two); i++) {
        const bool any = may_be_new && (trial.operation == RECONFIGURE || draw(4) == 0);
        const int victim = draw(trial.nold + (any ? trial.nnew : 0));
        /* Nobody can know of a new rank that dies before it has come. */
        trial.victim_us[victim] = draw_moment() + (victim >= trial.nold ? JOIN_US : 0);
    }
}

static void draw_trial(enum fault fault)
{
    trial = (struct trial){.operation = draw_operation(fault), .fault = fault};
    const bool grows = trial.operation == GROW || trial.operation == RECONFIGURE;
    const bool waits_long = trial.operation == START || (fault == STOP && trial.operation == CALLS);
    trial.timeout_ms = waits_long && fault != PAUSE ? SHORT_MS : TIMEOUT_MS;
    trial.seed = (uint64_t)draw(1 << 30);
    trial.tcp = nhosts == 0 && draw(4) == 0;
    trial.nold = 2 + draw(MOST_OLD - 1);
    trial.nnew = grows && fault != STOP ? draw(MOST_NEW + 1) : 0;
    draw_members();
    for (int i = 0; i < MOST; i++) {
        trial.victim_us[i] = -1;
        trial.host[i] = nhosts > 0 ? draw(nhosts) : 0;
    }
    if (nhosts > 1) { /* the first two never share a host */
        trial.host[1] = (trial.host[0] + 1 + draw(nhosts - 1)) % nhosts;
    }
    draw_victims();
}

/* Whether this process is on the rank's host now, and knows where the ranks meet. */
static bool go_to_host(int rank)
{
    char text[160];
    (void)snprintf(text, sizeof text, "/run/netns/%s", hosts[trial.host[rank]].name);
    const int fd = open(text, O_RDONLY | O_CLOEXEC);
    const bool there = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)snprintf(text, sizeof text, "%s:%d", hosts[trial.host[0]].address,
                   FIRST_PORT + (int)(trial.seed % PORTS));
    (void)setenv("KOLO_ROOT", text, 1);
    (void)setenv("KOLO_SECRET", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
                 1);
    return there;
}

static pid_t start_rank(int rank, int number)
{
    char text[64];
    const pid_t pid = fork();
    if (pid == 0) {
        if (nhosts > 0 && !go_to_host(rank)) {
            _exit(1);
        }
        (void)snprintf(text, sizeof text, "members-%d-%d", (int)getppid(), number);
        setenv("KOLO_JOB", text, 1);
        (void)snprintf(text, sizeof text, "%d", rank);
        setenv("KOLO_RANK", text, 1);
        (void)snprintf(text, sizeof text, "%d", trial.nold);
        setenv("KOLO_NRANKS", text, 1);
        if (trial.tcp) {
            setenv("KOLO_TRANSPORT", "tcp", 1);
        }
        run_rank(rank);
    }
    return pid;
}

/* Those whose pause is over go on. */
static void end_pauses(const pid_t pid[], int n)
{
    for (int i = 0; i < n && trial.fault == PAUSE; i++) {
        struct report *r = &shared->report[i];
        if (pid[i] != 0 && r->hit_ms > 0 &&
            now_ms() - r->hit_ms > (double)(trial.seed % PAUSE_MS)) {
            (void)kill(pid[i], SIGCONT);
        }
    }
}

/* Wait until all have ended, but those that stopped. False: some have not in time. */
static bool wait_for_end(pid_t pid[], int n, bool also_stopped)
{
    const double limit = now_ms() + LIMIT_MS;
    for (int i = 0; i < n;) {
        int status = 0;
        if (pid[i] == 0 || (!also_stopped && trial.fault == STOP && trial.victim_us[i] >= 0)) {
            i++;
        } else if (waitpid(pid[i], &status, WNOHANG) == pid[i]) {
            pid[i] = 0;
        } else if (now_ms() > limit) {
            return false;
        } else {
            end_pauses(pid, n);
            (void)usleep(500);
        }
    }
    return true;
}

static void run_trial(int number, enum fault fault)
{
    pid_t pid[MOST];
    draw_trial(fault);
    memset(shared, 0, sizeof *shared);
    const int n = trial.nold + trial.nnew;
    for (int i = 0; i < n; i++) {
        pid[i] = start_rank(i, number);
    }
    bool ended = wait_for_end(pid, n, false);
    for (int i = 0; i < n; i++) {
        if (fault == STOP && pid[i] != 0) {
            (void)kill(pid[i], SIGCONT);
        }
    }
    ended = ended && wait_for_end(pid, n, true);
    for (int i = 0; i < n; i++) {
        if (pid[i] != 0) {
            (void)kill(pid[i], SIGKILL);
            (void)waitpid(pid[i], NULL, 0);
        }
    }
    if (ended) {
        check_trial(number);
    } else {
        complain_of_hang(number);
    }
}

/* Arguments are NAMESPACE=ADDRESS. */
static bool read_hosts(int count, char **arguments)
{
    for (nhosts = 0; nhosts < count && nhosts < MOST_HOSTS; nhosts++) {
        struct host *host = &hosts[nhosts];
        if (sscanf(arguments[nhosts], "%63[^=]=%63s", host->name, host->address) != 2) {
            return false;
        }
    }
    return nhosts == count;
}

/* The place in names[count] of the `len` bytes at `name`; -1: none. */
static int find_name(const char *const names[], int count, const char *name, size_t len)
{
    int i = count - 1;
    while (i >= 0 && (strncmp(names[i], name, len) != 0 || names[i][len] != '\0')) {
        i--;
    }
    return i;
}

int main(int argc, char **argv)
{
    static const char *const faults[] = {"kill", "stop", "pause"};
    if (argc < 4 || !read_hosts(argc - 4, argv + 4)) {
        return 2;
    }
    const int trials = atoi(argv[1]);
    const size_t len = strcspn(argv[3], ":");
    const int fault = find_name(faults, 3, argv[3], len);
    if (argv[3][len] == ':') {
        only = find_name(operation_names, OPERATIONS, argv[3] + len + 1, strlen(argv[3] + len + 1));
    }
    if (fault < 0 || (argv[3][len] == ':' && only < 0)) {
        return 2;
    }
    state = strtoull(argv[2], NULL, 10);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return 3;
    }
    for (int i = 0; i < trials; i++) {
        run_trial(i, (enum fault)fault);
    }
    return print_findings(trials) > 0;
}
