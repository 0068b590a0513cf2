// SPDX-License-Identifier: Apache-2.0
/* The thread that watches over a process's communicators.
 *
 * Each other process of this host that is a member of one has a pidfd here, which becomes readable
 * when that process ends, whatever its forked children hold. Where pidfds are denied the thread
 * looks into /proc instead. Ten times a second it also looks at the boards that have changed: what
 * other members found, and whether they make the same calls. */
#include "core/health/watchdog.h"

#include "gpu/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    TICK_MS = 100,
    IDLE_TICK_MS = 500,
    IDLE_TICKS = 20,
    COMPARED = 8,
    CROSSED_US = 200000,
    EVENTS = 32
};

struct watched { /* a process */
    struct watched *next;
    uint64_t process;
    int pid;
    int pidfd; /* -1: denied */
    unsigned users;
    bool gone;
};

struct watcher { /* the thread */
    pthread_t thread;
    int wake;  /* an eventfd */
    int epoll; /* of it, and of pidfds by their processes' names */
    bool stop;
};

static struct {
    pthread_mutex_t lock; /* of all below */
    struct kolo_comm *comms;
    struct watched *processes;
    struct watcher *watcher;
    unsigned callers; /* threads that make calls, and one more where there are streams */
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- processes ---- */

static bool has_ended(const struct watched *p)
{
    char path[40], line[512];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", p->pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return errno == ENOENT;
    }
    const bool read = fgets(line, sizeof line, file) != NULL;
    (void)fclose(file);
    const char *end = read ? strrchr(line, ')') : NULL;
    return !read || (end != NULL && (end[2] == 'Z' || end[2] == 'X'));
}

static bool shares_host(const struct kolo_comm *c, int q)
{
    const struct kolo_peer *me = &c->member[c->rank].peer, *peer = &c->member[q].peer;
    return peer->host == me->host && peer->process != me->process;
}

static struct watched *find(uint64_t process)
{
    struct watched *p = watch.processes;
    while (p != NULL && p->process != process) {
        p = p->next;
    }
    return p;
}

/* Told once; what has ended stays so. */
static bool poll_for(const struct watcher *w, int fd, uint64_t name)
{
    struct epoll_event event = {.events = EPOLLIN | (name != 0 ? EPOLLONESHOT : 0),
                                .data.u64 = name};
    return epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static kolo_status add_process(const struct kolo_peer *peer)
{
    struct watched *p = find(peer->process);
    if (p == NULL) {
        p = calloc(1, sizeof *p);
        if (p == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory to watch rank %d", peer->rank);
        }
        p->process = peer->process;
        p->pid = peer->pid;
        p->pidfd = (int)syscall(SYS_pidfd_open, peer->pid, 0);
        p->gone = p->pidfd < 0 && errno == ESRCH;
        if (p->pidfd < 0 && !p->gone) {
            KOLO_LOG(INFO, INIT, "no pidfd of process %d (%s): its end is looked for in /proc",
                     p->pid, strerror(errno));
        }
        if (p->pidfd >= 0 && !poll_for(watch.watcher, p->pidfd, p->process)) {
            close(p->pidfd);
            p->pidfd = -1;
        }
        p->next = watch.processes;
        watch.processes = p;
    }
    p->users++;
    return KOLO_OK;
}

static void drop_process(uint64_t process)
{
    for (struct watched **at = &watch.processes; *at != NULL; at = &(*at)->next) {
        struct watched *p = *at;
        if (p->process == process) {
            if (--p->users == 0) {
                *at = p->next;
                if (p->pidfd >= 0) { /* a forked child may hold it, too, so closing is not enough */
                    (void)epoll_ctl(watch.watcher->epoll, EPOLL_CTL_DEL, p->pidfd, NULL);
                    close(p->pidfd);
                }
                free(p);
            }
            return;
        }
    }
}

/* ---- what is found ---- */

static void lost(struct kolo_comm *c, int q)
{
    char who[48], call[128];
    struct kolo_member *m = &c->member[q];
    const struct kolo_post *post = kolo_comm_post(c, q);
    if (m->lost || post == NULL || atomic_load(&post->presence) == KOLO_POST_LEFT) {
        return; /* without a board it cannot be told from one that has left */
    }
    m->lost = true;
    kolo_comm_say_rank(c, q, who, sizeof who);
    kolo_comm_say_call(c, q, atomic_load(&post->begun), call, sizeof call);
    (void)kolo_fail(KOLO_ERR_PEER,
                    "%s died: its process ended without kolo_comm_destroy(); the last that it had "
                    "begun was %s",
                    who, call);
    (void)kolo_comm_fail_of(c, KOLO_ERR_PEER, q);
}

static void tell_of_process(const struct watched *p)
{
    for (struct kolo_comm *c = watch.comms; c != NULL; c = c->watched_next) {
        for (int q = 0; q < c->nranks; q++) {
            if (c->member[q].peer.process == p->process && shares_host(c, q)) {
                lost(c, q);
            }
        }
    }
}

/* Of this rank and of those that it is compared with. */
static uint64_t calls_seen(const struct kolo_comm *c)
{
    uint64_t sum = 0;
    for (int i = 0; i <= COMPARED && i < c->nranks; i++) {
        const struct kolo_post *post = kolo_comm_post(c, (c->rank + i) % c->nranks);
        sum += post != NULL ? atomic_load_explicit(&post->begun, memory_order_relaxed) : 0;
    }
    return sum;
}

/* It has peers that only connections tell of. */
static bool listens(const struct kolo_comm *c)
{
    return c->nranks > 1 && (c->nhosts > 1 || c->mapper == NULL);
}

static bool any_listens(void)
{
    const struct kolo_comm *c = watch.comms;
    while (c != NULL && (!listens(c) || atomic_load(&c->error) != KOLO_OK)) {
        c = c->watched_next;
    }
    return c != NULL;
}

/* What came over connections while no call looks. */
static void listen_to_peers(struct kolo_comm *c)
{
    if (listens(c) && pthread_mutex_trylock(&c->device_lock) == 0) {
        for (int i = 0; i < c->nopened; i++) {
            const struct kolo_opened *o = &c->opened[i];
            if ((o->transport->caps & KOLO_CAP_MAP) == 0) {
                (void)o->transport->progress(o->device, 16);
            }
        }
        pthread_mutex_unlock(&c->device_lock);
    }
}

/* True if something has changed since the last look. */
static bool look_at_board(struct kolo_comm *c)
{
    struct kolo_verdict verdict;
    if (atomic_load(&c->error) != KOLO_OK) {
        return false;
    }
    listen_to_peers(c);
    if (kolo_comm_learn(c) || kolo_device_learn(c)) {
        return true;
    }
    if (c->board == NULL) {
        return false;
    }
    if (kolo_verdict_read(c->board, &verdict)) {
        kolo_error_set(verdict.text);
        (void)kolo_comm_fail_of(c, (kolo_status)verdict.status, verdict.rank);
        return true;
    }
    const uint64_t calls = calls_seen(c);
    if (calls == c->seen_calls) {
        return false;
    }
    c->seen_calls = calls;
    for (int i = 1; i <= COMPARED && i < c->nranks; i++) { /* what differs, differs from these */
        const int q = (c->rank + i) % c->nranks;
        if (kolo_comm_say_mismatch(c, q)) {
            (void)kolo_comm_fail_of(c, KOLO_ERR_MISMATCH, q);
        }
    }
    return true;
}

/* Rank `r` of `d` waits there for this rank, in a call that this rank has not made. */
static bool waits_in(const struct kolo_comm *d, int r)
{
    const struct kolo_post *post = kolo_comm_post(d, r);
    return post != NULL && post->waits_for == d->rank + 1 && kolo_comm_calls(d) < post->begun &&
           kolo_now_us() - (double)post->since_us > CROSSED_US;
}

static void end_crossed(struct kolo_comm *c, int q, struct kolo_comm *d, int r)
{
    char mine[128], other[128];
    kolo_comm_say_call(c, c->rank, kolo_comm_calls(c), mine, sizeof mine);
    kolo_comm_say_call(d, r, kolo_comm_post(d, r)->begun, other, sizeof other);
    (void)kolo_fail(KOLO_ERR_MISMATCH,
                    "rank %d waits in %s of %s (%llx) for rank %d, and that one in %s of %s (%llx) "
                    "for the other: the communicators are used in another order",
                    c->rank, mine, c->name, (unsigned long long)c->id, q, other, d->name,
                    (unsigned long long)d->id);
    (void)kolo_comm_fail_of(d, KOLO_ERR_MISMATCH, r);
}

bool kolo_watch_crossed(struct kolo_comm *c, int q)
{
    bool crossed = false;
    const struct kolo_post *post = kolo_comm_post(c, q);
    if (post == NULL || post->begun >= kolo_comm_calls(c) || post->callers != 1 ||
        c->post->callers != 1) { /* another thread may still make the call */
        return false;
    }
    pthread_mutex_lock(&watch.lock);
    for (struct kolo_comm *d = watch.comms; d != NULL && !crossed; d = d->watched_next) {
        for (int r = 0; r < d->nranks && d != c && !crossed; r++) {
            crossed = d->member[r].peer.process == c->member[q].peer.process && waits_in(d, r);
            if (crossed) {
                end_crossed(c, q, d, r);
            }
        }
    }
    pthread_mutex_unlock(&watch.lock);
    return crossed;
}

/* ---- the thread ---- */

/* Mark the processes that have ended: news by `event`, or what /proc says where there is no pidfd.
 */
static bool find_ended(const struct epoll_event *event, int n)
{
    bool news = false;
    for (int i = 0; i < n; i++) {
        struct watched *p = find(event[i].data.u64); /* NULL: the wake-up, or dropped meanwhile */
        if (p != NULL) {
            p->gone = news = true;
        }
    }
    for (struct watched *p = watch.processes; p != NULL; p = p->next) {
        if (p->pidfd < 0 && !p->gone && has_ended(p)) {
            p->gone = news = true;
        }
    }
    return news;
}

static bool look(const struct epoll_event *event, int n)
{
    bool changed = find_ended(event, n);
    for (const struct watched *p = watch.processes; p != NULL; p = p->next) {
        if (p->gone) {
            tell_of_process(p); /* again, if communicators came since */
        }
    }
    for (struct kolo_comm *c = watch.comms; c != NULL; c = c->watched_next) {
        changed = look_at_board(c) || changed;
    }
    return changed;
}

static void *run(void *arg)
{
    struct watcher *self = arg;
    unsigned idle = 0;
    pthread_mutex_lock(&watch.lock);
    while (!self->stop) {
        uint64_t count;
        struct epoll_event event[EVENTS];
        const bool often = idle < IDLE_TICKS || any_listens();
        pthread_mutex_unlock(&watch.lock);
        const int n = epoll_wait(self->epoll, event, EVENTS, often ? TICK_MS : IDLE_TICK_MS);
        (void)!read(self->wake, &count, sizeof count);
        pthread_mutex_lock(&watch.lock);
        idle = !self->stop && look(event, n) ? 0 : idle + 1;
    }
    pthread_mutex_unlock(&watch.lock);
    return NULL;
}

static void wake_thread(const struct watcher *watcher)
{
    const uint64_t one = 1;
    (void)!write(watcher->wake, &one, sizeof one);
}

static void free_watcher(struct watcher *w)
{
    if (w->wake >= 0) {
        close(w->wake);
    }
    if (w->epoll >= 0) {
        close(w->epoll);
    }
    free(w);
}

static kolo_status start(struct watcher **out)
{
    struct watcher *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a thread that watches peers");
    }
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (w->wake < 0 || w->epoll < 0 || !poll_for(w, w->wake, 0)) {
        const kolo_status st =
            kolo_fail(KOLO_ERR_SYSTEM, "a descriptor to watch peers: %s", kolo_why(errno));
        free_watcher(w);
        return st;
    }
    const int failed = pthread_create(&w->thread, NULL, run, w);
    if (failed != 0) {
        free_watcher(w);
        return kolo_fail(KOLO_ERR_SYSTEM, "a thread to watch peers: %s", strerror(failed));
    }
    *out = w;
    return KOLO_OK;
}

void kolo_watch_before_fork(void)
{
    pthread_mutex_lock(&watch.lock);
}

/* The child has no watcher, and its communicators are the parent's: nobody gets to run on them. */
void kolo_watch_after_fork(bool child)
{
    for (struct kolo_comm *c = watch.comms; c != NULL && child; c = c->watched_next) {
        atomic_store(&c->busy, 1);
        c->watched = false;
    }
    if (child) {
        watch.comms = NULL;
        watch.processes = NULL;
        watch.watcher = NULL;
        watch.callers = 0;
    }
    pthread_mutex_unlock(&watch.lock);
}

/* Those of the first `n` ranks. */
static void drop_processes(const struct kolo_comm *c, int n)
{
    for (int q = 0; q < n; q++) {
        if (shares_host(c, q)) {
            drop_process(c->member[q].peer.process);
        }
    }
}

static kolo_status add_processes(const struct kolo_comm *c)
{
    for (int q = 0; q < c->nranks; q++) {
        const kolo_status st = shares_host(c, q) ? add_process(&c->member[q].peer) : KOLO_OK;
        if (st != KOLO_OK) {
            drop_processes(c, q);
            return st;
        }
    }
    return KOLO_OK;
}

kolo_status kolo_watch(struct kolo_comm *c)
{
    pthread_mutex_lock(&watch.lock);
    kolo_status st = KOLO_OK;
    if (watch.watcher == NULL && c->nranks > 1) {
        st = start(&watch.watcher);
    }
    st = st == KOLO_OK ? add_processes(c) : st;
    if (st == KOLO_OK) {
        atomic_store(&c->post->callers, watch.callers);
        c->watched_next = watch.comms;
        watch.comms = c;
        c->watched = true;
        if (watch.watcher != NULL) {
            wake_thread(watch.watcher);
        }
    }
    pthread_mutex_unlock(&watch.lock);
    return st;
}

void kolo_unwatch(struct kolo_comm *c)
{
    struct watcher *last = NULL;
    pthread_mutex_lock(&watch.lock);
    for (struct kolo_comm **at = &watch.comms; *at != NULL && c->watched;
         at = &(*at)->watched_next) {
        if (*at == c) {
            *at = c->watched_next;
            drop_processes(c, c->nranks);
            break;
        }
    }
    c->watched = false;
    if (watch.comms == NULL && watch.watcher != NULL) {
        last = watch.watcher;
        watch.watcher = NULL;
        last->stop = true;
        wake_thread(last);
    }
    pthread_mutex_unlock(&watch.lock);
    if (last != NULL) {
        pthread_join(last->thread, NULL);
        free_watcher(last);
    }
}

void kolo_watch_caller(void)
{
    pthread_mutex_lock(&watch.lock);
    watch.callers++;
    for (const struct kolo_comm *c = watch.comms; c != NULL; c = c->watched_next) {
        atomic_store(&c->post->callers, watch.callers);
    }
    pthread_mutex_unlock(&watch.lock);
}
