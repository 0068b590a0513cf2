// SPDX-License-Identifier: Apache-2.0
/* Ranks that agree, shrink, grow and reconfigure, while some of them are killed or stopped.
 *
 * usage: members TRIALS SEED kill|stop [NAMESPACE=ADDRESS ...]
 *
 * Each trial starts 2 to 8 old ranks and up to 2 new ones, as processes, and draws an operation, the
 * victims, and for each the moment after the operation has begun. With network namespaces, each rank
 * is in one of them, which is a host of its own. All that a rank is told it writes into memory that
 * this program shares with it. Afterwards:
 *  - every survivor ended within its time-outs;
 *  - all that ever got the result of an agreement got the same, also ranks that died later;
 *  - no survivor was taken for dead;
 *  - either all survivors have the new communicator, or none; and its sums are right.
 * A stopped rank goes on after the others, and must then be told that they have gone on. Over hosts
 * they have given up instead, have named it, and have left. */
#include <kolo/kolo.h>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_OLD = 8, MOST_NEW = 2, MOST = MOST_OLD + MOST_NEW, STEPS = 40, SUMS = 10, ROUNDS = 4 };
enum { TIMEOUT_MS = 6000, LIMIT_MS = 5 * TIMEOUT_MS + 10000, LONGEST_US = 12000, TEXT = 300 };
enum { MOST_HOSTS = 4 };
enum operation { AGREE, SHRINK, GROW, RECONFIGURE, OPERATIONS };
static const char *const names[] = {"agree", "shrink", "grow", "reconfigure"};

struct step { /* an agreement that a rank got the result of */
    int epoch;
    uint64_t word, failed;
};

struct report {
    _Atomic int nsteps;
    struct step step[STEPS];
    _Atomic int done;          /* 1: the members below say how it ended */
    kolo_status changed, last; /* of the operation; of all that followed */
    int size, epoch;
    bool wrong_sum;
    char text[TEXT];
};

struct trial {
    enum operation operation;
    int nold, nnew, nmembers;
    int members[MOST];   /* of reconfigure: ranks, -1 */
    int victim_us[MOST]; /* when it ends; -1: it is none */
    int host[MOST];
    bool stops;
};

struct shared {
    _Atomic int started; /* old ranks; by then there is an id */
    struct kolo_id id;
    struct report report[MOST];
};
static struct shared *shared;
static struct trial trial;
static int me; /* old ranks first */

static struct host {
    char name[64], address[64];
} hosts[MOST_HOSTS];
static int nhosts; /* 0: all ranks are on this one */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- a rank ---- */

static void *end_later(void *arg)
{
    (void)arg;
    (void)usleep((useconds_t)trial.victim_us[me]);
    (void)kill(getpid(), trial.stops ? SIGSTOP : SIGKILL);
    return NULL;
}

static void begin_operation(void)
{
    pthread_t thread;
    if (trial.victim_us[me] >= 0 && pthread_create(&thread, NULL, end_later, NULL) == 0) {
        (void)pthread_detach(thread);
    }
}

static kolo_status sum(struct kolo_comm *comm)
{
    const int n = kolo_comm_size(comm);
    int32_t mine = kolo_comm_rank(comm) + 1, all = 0;
    const kolo_status st = kolo_all_reduce(&mine, &all, 1, KOLO_INT32, KOLO_SUM, comm, NULL);
    shared->report[me].wrong_sum |= st == KOLO_OK && all != n * (n + 1) / 2;
    return st;
}

/* The bit of this rank is missing in its word. failed[] gets the ranks that are gone. */
static kolo_status agree(struct kolo_comm *comm, bool content, int failed[], int *nfailed)
{
    uint64_t word = ~(UINT64_C(1) << kolo_comm_rank(comm)) & (content ? ~UINT64_C(0) : INT64_MAX);
    struct report *to = &shared->report[me];
    const kolo_status st = kolo_comm_agree(comm, &word, failed, MOST, nfailed);
    const int n = atomic_load(&to->nsteps);
    if (st == KOLO_OK && n < STEPS) {
        to->step[n] = (struct step){.epoch = kolo_comm_epoch(comm), .word = word};
        for (int i = 0; i < *nfailed; i++) {
            to->step[n].failed |= UINT64_C(1) << failed[i];
        }
        atomic_store(&to->nsteps, n + 1);
    }
    return st == KOLO_OK && (word >> 63) == 0 ? KOLO_INPROGRESS : st;
}

/* Use a communicator, and go on without the dead, until all survivors agree that it works. */
static kolo_status use(struct kolo_comm **comm)
{
    int failed[MOST], nfailed = 0;
    for (int round = 0; round < STEPS / 2; round++) {
        kolo_status st = KOLO_OK;
        for (int i = 0; i < SUMS && st == KOLO_OK; i++) {
            st = sum(*comm);
        }
        st = agree(*comm, st == KOLO_OK, failed, &nfailed);
        while (st >= KOLO_OK && nfailed > 0) {
            struct kolo_comm *rest = NULL;
            st = kolo_comm_shrink(*comm, failed, nfailed, NULL, &rest);
            if (st == KOLO_OK) {
                kolo_comm_destroy(*comm);
                *comm = rest;
                nfailed = -1;
            } else if (st == KOLO_ERR_PEER) { /* one more has died: on all ranks alike */
                st = agree(*comm, true, failed, &nfailed);
            }
        }
        if (st != KOLO_INPROGRESS && (st != KOLO_OK || nfailed == 0)) {
            return st;
        }
    }
    return KOLO_ERR_INTERNAL;
}

static kolo_status change(struct kolo_comm *comm, struct kolo_comm **out)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    int failed[MOST], nfailed = 0;
    kolo_status st = KOLO_OK;
    config.timeout_ms = TIMEOUT_MS;
    switch (trial.operation) {
    case GROW:
        return kolo_comm_grow(comm, &shared->id, trial.nold + trial.nnew, me, &config, out);
    case RECONFIGURE:
        if (comm != NULL) {
            return kolo_comm_reconfigure(comm, &shared->id, trial.members, trial.nmembers, NULL,
                                         out);
        }
        for (int i = 0, fresh = trial.nold; i < trial.nmembers; i++) {
            if (trial.members[i] < 0 && fresh++ == me) {
                return kolo_comm_enter(&shared->id, trial.nmembers, i, &config, out);
            }
        }
        return KOLO_ERR_INTERNAL;
    case SHRINK: /* the first victim is dead already */
        while (st == KOLO_OK) {
            st = sum(comm);
        }
        st = KOLO_OK;
        break;
    default:
        for (int i = 0; i < ROUNDS && st >= KOLO_OK; i++) {
            st = agree(comm, true, failed, &nfailed);
        }
        st = st < KOLO_OK ? st : KOLO_OK;
    }
    *out = comm;
    return st;
}

static bool is_member(void)
{
    bool is = trial.operation != RECONFIGURE || me >= trial.nold;
    for (int i = 0; i < trial.nmembers; i++) {
        is = is || trial.members[i] == me;
    }
    return is;
}

static kolo_status start_old(struct kolo_comm **comm)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    config.timeout_ms = TIMEOUT_MS;
    kolo_status st = kolo_comm_create_env(&config, comm);
    if (st == KOLO_OK && me == 0) {
        st = kolo_id_create(&shared->id);
    }
    st = st == KOLO_OK ? kolo_barrier(*comm, NULL) : st;
    atomic_fetch_add(&shared->started, 1);
    return st;
}

static void run_rank(void)
{
    struct report *to = &shared->report[me];
    struct kolo_comm *comm = NULL, *now = NULL;
    kolo_status st = KOLO_OK;
    if (me < trial.nold) {
        st = start_old(&comm);
    }
    while (atomic_load(&shared->started) < trial.nold) {
        (void)usleep(200);
    }
    begin_operation();
    if (st == KOLO_OK && is_member()) {
        to->changed = change(comm, &now);
        to->last = to->changed == KOLO_OK ? use(&now) : to->changed;
        to->size = kolo_comm_size(now);
        to->epoch = kolo_comm_epoch(now);
    } else {
        to->changed = to->last = st;
    }
    (void)snprintf(to->text, sizeof to->text, "%s", kolo_error_text());
    atomic_store(&to->done, 1);
    if (now != NULL && (trial.operation == AGREE || trial.operation == SHRINK)) {
        comm = NULL; /* use() has destroyed it, if it has made another */
    }
    kolo_comm_destroy(now);
    kolo_comm_destroy(comm);
    _exit(0);
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
    const int leaves = trial.nold > 2 && draw(2) == 0 ? draw(trial.nold) : -1;
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

static void draw_trial(bool stops)
{
    trial = (struct trial){.operation = (enum operation)draw(OPERATIONS), .stops = stops};
    if (stops) { /* shrinking excludes whoever its caller says, and growing ends */
        trial.operation = draw(2) == 0 ? AGREE : RECONFIGURE;
    }
    const bool grows = trial.operation == GROW || trial.operation == RECONFIGURE;
    trial.nold = 2 + draw(MOST_OLD - 1);
    trial.nnew = grows && !stops ? draw(MOST_NEW + 1) : 0;
    draw_members();
    for (int i = 0; i < MOST; i++) {
        trial.victim_us[i] = -1;
        trial.host[i] = nhosts > 0 ? draw(nhosts) : 0;
    }
    if (nhosts > 1) { /* the first two never share a host */
        trial.host[1] = (trial.host[0] + 1 + draw(nhosts - 1)) % nhosts;
    }
    const int two = trial.nold > 2 && !stops ? draw(2) : 0;
    for (int i = 0; i <= two; i++) {
        const bool any = !stops && (trial.operation == RECONFIGURE || draw(4) == 0);
        const int victim = draw(trial.nold + (any ? trial.nnew : 0));
        /* Nobody can know of a new rank that dies before it has come. */
        trial.victim_us[victim] =
            draw(LONGEST_US) / (1 + draw(4)) + (victim >= trial.nold ? 3000 : 0);
    }
}

/* Whether this process is on the rank's host now, and knows where the ranks meet. */
static bool go_to_host(int rank, int number)
{
    char text[160];
    (void)snprintf(text, sizeof text, "/run/netns/%s", hosts[trial.host[rank]].name);
    const int fd = open(text, O_RDONLY | O_CLOEXEC);
    const bool there = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)snprintf(text, sizeof text, "%s:%d", hosts[trial.host[0]].address,
                   10000 + (int)getppid() % 20 * 1000 + number % 1000);
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
        me = rank;
        if (nhosts > 0 && !go_to_host(rank, number)) {
            _exit(1);
        }
        (void)snprintf(text, sizeof text, "members-%d-%d", (int)getppid(), number);
        setenv("KOLO_JOB", text, 1);
        (void)snprintf(text, sizeof text, "%d", rank);
        setenv("KOLO_RANK", text, 1);
        (void)snprintf(text, sizeof text, "%d", trial.nold);
        setenv("KOLO_NRANKS", text, 1);
        run_rank();
    }
    return pid;
}

/* Wait until all have ended, but those that stopped. False: some have not in time. */
static bool wait_for_end(pid_t pid[], int n, bool also_stopped)
{
    const double limit = now_ms() + LIMIT_MS;
    for (int i = 0; i < n;) {
        int status = 0;
        if (pid[i] == 0 || (!also_stopped && trial.stops && trial.victim_us[i] >= 0)) {
            i++;
        } else if (waitpid(pid[i], &status, WNOHANG) == pid[i]) {
            pid[i] = 0;
        } else if (now_ms() > limit) {
            return false;
        } else {
            (void)usleep(500);
        }
    }
    return true;
}

static int bad;
static void __attribute__((format(printf, 2, 3))) complain(int number, const char *format, ...)
{
    va_list args;
    if (bad++ > 20) {
        return;
    }
    (void)printf("trial %d (%s, %d and %d ranks", number, names[trial.operation], trial.nold,
                 trial.nnew);
    for (int i = 0; i < trial.nold + trial.nnew && nhosts > 0; i++) {
        (void)printf("%s%d", i == 0 ? " on hosts " : ",", trial.host[i]);
    }
    for (int i = 0; i < MOST; i++) {
        if (trial.victim_us[i] >= 0) {
            (void)printf(", rank %d %s after %d us", i, trial.stops ? "stops" : "dies",
                         trial.victim_us[i]);
        }
    }
    (void)printf("): ");
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\n");
}

static bool takes_part(int rank)
{
    me = rank;
    return is_member();
}

/* In the first communicator, ranks have the numbers of the trial. */
static void check_names(int number, int rank)
{
    const struct report *r = &shared->report[rank];
    const bool comes_last = trial.stops && nhosts > 0 && trial.victim_us[rank] >= 0;
    for (int i = 0; i < atomic_load(&r->nsteps) && !comes_last; i++) {
        for (int q = 0; q < trial.nold && r->step[i].epoch == 0; q++) {
            if ((r->step[i].failed >> q & 1) != 0 && trial.victim_us[q] < 0 && takes_part(q)) {
                complain(number, "rank %d was told that rank %d has failed, which lives", rank, q);
            }
        }
    }
}

/* Communicators differ by their epoch: every change makes one more, the same for all. */
static void check_steps(int number, int n)
{
    for (int i = 0; i < n; i++) {
        const struct report *a = &shared->report[i];
        check_names(number, i);
        for (int j = 0; j < i; j++) {
            const struct report *b = &shared->report[j];
            int at[2] = {0, 0}; /* new ranks have no steps of the first communicator */
            const int na = atomic_load(&a->nsteps), nb = atomic_load(&b->nsteps);
            while (at[0] < na && at[1] < nb && a->step[at[0]].epoch != b->step[at[1]].epoch) {
                at[a->step[at[0]].epoch > b->step[at[1]].epoch]++;
            }
            for (; at[0] < na && at[1] < nb; at[0]++, at[1]++) {
                const struct step *x = &a->step[at[0]], *y = &b->step[at[1]];
                if (x->epoch != y->epoch || x->word != y->word || x->failed != y->failed) {
                    complain(number, "ranks %d and %d agreed on %d %llx %llx and %d %llx %llx", i,
                             j, x->epoch, (unsigned long long)x->word,
                             (unsigned long long)x->failed, y->epoch, (unsigned long long)y->word,
                             (unsigned long long)y->failed);
                    return;
                }
            }
        }
    }
}

/* The operation is not tried again without a rank that died in it. */
static bool ends_with_a_rank(void)
{
    return trial.operation == GROW ||
           (trial.operation == RECONFIGURE && nhosts > 0 && trial.nnew > 0);
}

static void check_reports(int number, int n)
{
    const struct report *first = NULL;
    int nsurvivors = 0;
    bool any_old = false; /* else new ranks wait in vain */
    for (int i = 0; i < trial.nold; i++) {
        any_old = any_old || (trial.victim_us[i] < 0 && takes_part(i));
    }
    for (int i = 0; i < n; i++) {
        const struct report *r = &shared->report[i];
        if (trial.victim_us[i] >= 0 || !takes_part(i)) {
            continue;
        }
        nsurvivors++;
        first = first == NULL ? r : first;
        if ((r->changed == KOLO_OK) != (first->changed == KOLO_OK)) {
            complain(number, "rank %d: %s (%s), another %s (%s)", i, kolo_status_name(r->changed),
                     r->text, kolo_status_name(first->changed), first->text);
        } else if (r->last != KOLO_OK && any_old &&
                   (!ends_with_a_rank() || r->changed == KOLO_OK)) {
            complain(number, "rank %d: %s %s", i, kolo_status_name(r->last), r->text);
        } else if (r->size != first->size || r->epoch != first->epoch) {
            complain(number, "rank %d is one of %d in epoch %d, another of %d in %d", i, r->size,
                     r->epoch, first->size, first->epoch);
        }
        if (r->wrong_sum) {
            complain(number, "rank %d got a wrong sum", i);
        }
    }
    if (first != NULL && first->changed == KOLO_OK && first->size < nsurvivors) {
        complain(number, "%d survivors, but only %d have gone on", nsurvivors, first->size);
    }
    for (int i = 0; trial.stops && i < n; i++) {
        const struct report *r = &shared->report[i];
        if (trial.victim_us[i] >= 0 && takes_part(i) && r->last == KOLO_OK && first != NULL &&
            first->size < nsurvivors + 1) {
            complain(number, "rank %d stopped, and was not told that the others have gone on", i);
        }
    }
}

/* Over hosts, nobody goes on without a rank that lives: all give up, and name it. By the time when it
 * goes on they have left, so it may agree alone. */
static void check_given_up(int number, int n)
{
    for (int i = 0; i < n; i++) {
        const struct report *r = &shared->report[i];
        char name[32] = "";
        const bool in_new = trial.operation == RECONFIGURE && r->changed == KOLO_OK;
        for (int k = 0; k < (in_new ? trial.nmembers : n); k++) {
            const int q = in_new ? trial.members[k] : k;
            if (q >= 0 && trial.victim_us[q] >= 0) {
                (void)snprintf(name, sizeof name, "rank %d", k);
            }
        }
        if (trial.victim_us[i] < 0 && takes_part(i) && r->last != KOLO_OK &&
            (r->last != KOLO_ERR_TIMEOUT || strstr(r->text, name) == NULL)) {
            complain(number, "rank %d: %s %s", i, kolo_status_name(r->last), r->text);
        }
    }
}

static void run_trial(int number, bool stops)
{
    pid_t pid[MOST];
    draw_trial(stops);
    memset(shared, 0, sizeof *shared);
    const int n = trial.nold + trial.nnew;
    for (int i = 0; i < n; i++) {
        pid[i] = start_rank(i, number);
    }
    bool ended = wait_for_end(pid, n, false);
    for (int i = 0; i < n; i++) {
        if (stops && pid[i] != 0) {
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
    if (!ended) {
        complain(number, "hung");
        return;
    }
    check_steps(number, n);
    if (stops && nhosts > 0) {
        check_given_up(number, n);
    } else {
        check_reports(number, n);
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

int main(int argc, char **argv)
{
    if (argc < 4 || !read_hosts(argc - 4, argv + 4)) {
        return 2;
    }
    const int trials = atoi(argv[1]);
    int killed = 0, done[OPERATIONS] = {0};
    state = strtoull(argv[2], NULL, 10);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return 3;
    }
    for (int i = 0; i < trials; i++) {
        run_trial(i, strcmp(argv[3], "stop") == 0);
        done[trial.operation]++;
        for (int k = 0; k < MOST; k++) {
            killed += trial.victim_us[k] >= 0;
        }
    }
    (void)printf("%d trials, %d victims, %d wrong:", trials, killed, bad);
    for (int i = 0; i < OPERATIONS; i++) {
        (void)printf(" %s %d", names[i], done[i]);
    }
    (void)printf("\n");
    return bad > 0;
}
