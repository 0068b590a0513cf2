// SPDX-License-Identifier: Apache-2.0
/* The thread that watches over a process's communicators.
 *
 * It watches some of the other processes of this host that are members (ring.h). Each of these has
 * a connection here, which ends when that process ends or becomes another program (life.h), and a
 * pidfd, which tells of its end whatever its forked children hold. Where both are denied the thread
 * looks into /proc. It notes each end on the boards. Ten times a second it looks at the boards that
 * have changed: what others found, and whether they make the same calls. The end of a process of
 * another host comes over a connection; while no call looks there, the thread sleeps on these, too.
 *
 * If the program closes the descriptors, the others see this process end. So its communicators with
 * others end here, too, and the thread goes on without descriptors. */
#include "core/health/watchdog.h"

#include "core/failure/failure.h"
#include "core/health/life.h"
#include "core/health/look.h"
#include "core/health/ring.h"
#include "core/health/waits.h"
#include "util/descriptor.h"
#include "util/threads.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { TICK_MS = 100, IDLE_TICK_MS = 500, IDLE_TICKS = 20, EVENTS = 32 };

struct watched { /* a process */
    struct watched *next;
    uint64_t process;
    struct kolo_life life;
    unsigned char name[KOLO_LIFE_NAME]; /* of the socket that `life` watches */
    uint64_t token;                     /* of the events that tell of its end */
    bool lives;                         /* and yet its socket has ended */
    unsigned users;
};

struct watcher { /* the thread */
    pthread_t thread;
    struct kolo_bell wake;
    int epoll; /* of it, and of what tells of processes, by their tokens; -1: closed by the program */
    bool stop;
};

static struct {
    pthread_mutex_t lock; /* of all below */
    struct kolo_comm *comms;
    struct watched *processes;
    struct watcher *watcher;
    uint64_t tokens; /* given out */
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- processes ---- */

/* The process that an event tells of. NULL: the wake-up; or it is not watched that way any more. */
static struct watched *find_told(uint64_t token)
{
    struct watched *p = watch.processes;
    while (p != NULL && p->token != token) {
        p = p->next;
    }
    return p;
}

static struct watched *find_process(uint64_t process)
{
    struct watched *p = watch.processes;
    while (p != NULL && p->process != process) {
        p = p->next;
    }
    return p;
}

static const struct epoll_event woken = {.events = EPOLLIN};

/* Whether the program has left the thread's descriptors alone. */
static bool is_whole(const struct watcher *w)
{
    return kolo_epoll_is_own(w->epoll, &w->wake.heard, woken);
}

/* -1: there is none, or none that is kolo's any more. */
static int whole_epoll(void)
{
    return is_whole(watch.watcher) ? watch.watcher->epoll : -1;
}

/* Find out how the process can be watched, and do it. */
static void watch_process(struct watched *p, const struct kolo_member *m)
{
    p->token = ++watch.tokens;
    memcpy(p->name, m->life, sizeof p->name);
    kolo_life_watch(m->life, m->peer.pid, m->pid_here > 0, &p->life);
    kolo_life_poll(&p->life, whole_epoll(), p->token);
    if (p->life.fd < 0 && p->life.pidfd < 0 && !p->life.gone) {
        KOLO_LOG(INFO, INIT,
                 "no descriptor tells of the end of process %d: it is looked for in /proc",
                 m->peer.pid);
    }
}

static kolo_status add_process(struct kolo_member *m)
{
    struct watched *p = find_process(m->peer.process);
    if (p == NULL) {
        p = calloc(1, sizeof *p);
        if (p == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory to watch rank %d", m->peer.rank);
        }
        p->process = m->peer.process;
        watch_process(p, m);
        p->next = watch.processes;
        watch.processes = p;
    } else if (memcmp(p->name, m->life, sizeof p->name) != 0) { /* it had left all communicators */
        kolo_life_end_poll(&p->life, whole_epoll());
        watch_process(p, m);
    }
    atomic_store(&m->pid_here, p->life.pid);
    m->watched = true;
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
                kolo_life_end_poll(&p->life, whole_epoll());
                free(p);
            }
            return;
        }
    }
}

/* ---- what is found ---- */

/* Whether rank q is of this life of the process, which may have left all communicators, and have come
 * back to others. */
static bool is_of(const struct kolo_comm *c, int q, const struct watched *p)
{
    return c->member[q].peer.process == p->process && kolo_ring_has(c, q) &&
           memcmp(c->member[q].life, p->name, sizeof p->name) == 0;
}

/* Whether a communicator loses a rank with this process. */
static bool is_missed(const struct watched *p)
{
    for (const struct kolo_comm *c = watch.comms; c != NULL; c = c->health.next) {
        for (int q = 0; q < c->ranks.nranks; q++) {
            if (is_of(c, q, p) && kolo_look_has_rank(c, q)) {
                return true;
            }
        }
    }
    return false;
}

static void tell_of_process(const struct watched *p)
{
    for (struct kolo_comm *c = watch.comms; c != NULL; c = c->health.next) {
        for (int q = 0; q < c->ranks.nranks; q++) {
            if (is_of(c, q, p)) {
                kolo_look_lose_rank(c, q, p->lives);
            }
        }
    }
}

bool kolo_watchdog_crossed(struct kolo_comm *c, int q, bool stuck, bool warns)
{
    struct kolo_crossed other = {.comm = NULL};
    pthread_mutex_lock(&watch.lock);
    const bool crossed = (stuck || warns) && kolo_waits_cross(watch.comms, c, q, &other);
    const bool proven = crossed && stuck && other.stuck;
    if (proven) {
        (void)kolo_failure_end(other.comm, KOLO_ERR_MISMATCH, other.rank);
    } else if (crossed && warns) {
        KOLO_LOG(WARN, COLL, "%s, unless another thread makes the call", kolo_error_text());
    }
    pthread_mutex_unlock(&watch.lock);
    return proven;
}

static bool any_thread_calls(const struct kolo_comm *c)
{
    pthread_mutex_lock(&watch.lock);
    const struct kolo_comm *d = watch.comms;
    while (d != NULL &&
           (d == c || d->ranks.id != c->ranks.id || atomic_load(&d->queue.busy) == 0)) {
        d = d->health.next;
    }
    pthread_mutex_unlock(&watch.lock);
    return d != NULL;
}

void kolo_watchdog_await_threads(const struct kolo_comm *c)
{
    const double limit_us = kolo_now_us() + 1e6;
    while (c->ranks.threads && any_thread_calls(c) && kolo_now_us() < limit_us) {
        (void)usleep(50);
    }
}

/* The program has closed the thread's descriptors. The communicators end here. They end in the other
 * processes, too, because this one has no socket any more that shows that it lives. */
static void lose_descriptors(struct watcher *w)
{
    KOLO_LOG(WARN, INIT, "the program has closed descriptors of kolo");
    w->epoll = -1;
    for (struct watched *p = watch.processes; p != NULL; p = p->next) {
        p->life.fd = p->life.pidfd = -1;
    }
    for (struct kolo_comm *c = watch.comms; c != NULL; c = c->health.next) {
        kolo_look_lose_descriptors(c);
    }
}

static void check_descriptors(struct watcher *w)
{
    if (w != NULL && w->epoll >= 0 && !is_whole(w)) {
        lose_descriptors(w);
    }
}

static void tell_if_gone(const struct kolo_comm *c, int q)
{
    const struct watched *p = find_process(c->member[q].peer.process);
    if (p != NULL && p->life.gone) {
        tell_of_process(p);
    }
}

/* Watch the next processes of each ring in place of those that have ended or left. Those that have
 * ended already are told of at once, and do not count. Without memory, the others watch. */
static void watch_more(void)
{
    for (struct kolo_comm *c = watch.comms; c != NULL; c = c->health.next) {
        int q = kolo_ring_next(c);
        while (q >= 0 && add_process(&c->member[q]) == KOLO_OK) {
            tell_if_gone(c, q);
            q = kolo_ring_next(c);
        }
    }
}

void kolo_watchdog_watch(struct kolo_comm *c, int q)
{
    if (pthread_mutex_trylock(&watch.lock) != 0) {
        return; /* the caller may hold other locks, and asks again */
    }
    if (c->health.watched && kolo_ring_has(c, q) && !c->member[q].watched &&
        add_process(&c->member[q]) == KOLO_OK) {
        tell_if_gone(c, q);
    }
    pthread_mutex_unlock(&watch.lock);
}

void kolo_watchdog_look(void)
{
    pthread_mutex_lock(&watch.lock);
    check_descriptors(watch.watcher);
    for (struct watched *p = watch.processes; p != NULL; p = p->next) {
        if (kolo_life_is_over(&p->life)) {
            tell_of_process(p);
        }
    }
    watch_more();
    for (struct kolo_comm *c = watch.comms; c != NULL; c = c->health.next) {
        kolo_look_fates(c);
    }
    pthread_mutex_unlock(&watch.lock);
}

/* ---- the thread ---- */

/* Mark the processes that have ended: news by `event`, or what /proc says where no descriptor does.
 */
static bool find_ended(const struct epoll_event *event, int n)
{
    bool news = false;
    for (int i = 0; i < n; i++) {
        struct watched *p = find_told(event[i].data.u64);
        if (p != NULL) {
            /* That waits. A process that has left all communicators has closed its socket, too. */
            p->lives = is_missed(p) && kolo_life_goes_on(&p->life);
            p->life.gone = news = true;
        }
    }
    for (struct watched *p = watch.processes; p != NULL; p = p->next) {
        if (p->life.fd < 0 && p->life.pidfd < 0 && !p->life.gone && kolo_life_is_over(&p->life)) {
            news = true;
        }
    }
    return news;
}

static bool look_around(const struct epoll_event *event, int n)
{
    bool changed = find_ended(event, n);
    check_descriptors(watch.watcher); /* that may have waited */
    for (const struct watched *p = watch.processes; p != NULL; p = p->next) {
        if (p->life.gone) {
            tell_of_process(p); /* again, if communicators came since */
        }
    }
    watch_more();
    for (struct kolo_comm *c = watch.comms; c != NULL; c = c->health.next) {
        changed = kolo_look_at(c) || changed;
    }
    return changed;
}

static void *run_watchdog(void *arg)
{
    struct watcher *self = arg;
    unsigned idle = 0;
    double look_us = 0; /* when to look next */
    bool heard = false;
    kolo_thread_begin();
    pthread_mutex_lock(&watch.lock);
    while (!self->stop) {
        struct epoll_event event[EVENTS];
        struct kolo_ears ears = {.count = 2};
        /* The bell is polled itself: an epoll says nothing of what was closed. */
        ears.on[0] =
            (struct pollfd){.fd = self->epoll >= 0 ? self->wake.heard.fd : -1, .events = POLLIN};
        ears.on[1] = (struct pollfd){.fd = self->epoll, .events = POLLIN};
        const double left_ms = (look_us - kolo_now_us()) / 1e3;
        kolo_look_ears_prepare(watch.comms, heard, left_ms > 0 ? (int)left_ms + 1 : 0, &ears);
        pthread_mutex_unlock(&watch.lock);
        (void)poll(ears.on, (nfds_t)ears.count, ears.ms);
        pthread_mutex_lock(&watch.lock);
        check_descriptors(self);
        const int n = self->epoll >= 0 ? epoll_wait(self->epoll, event, EVENTS, 0) : 0;
        (void)kolo_bell_hush(&self->wake);
        heard = kolo_look_ears_have(&ears, 2, ears.count);
        if (self->stop || kolo_look_ears_have(&ears, 0, 2) || n > 0 || kolo_now_us() >= look_us) {
            idle = !self->stop && look_around(event, n) ? 0 : idle + 1;
            const bool often = idle < IDLE_TICKS || kolo_look_ears_any(watch.comms) ||
                               kolo_ring_relies(watch.comms);
            look_us = kolo_now_us() + (often ? TICK_MS : IDLE_TICK_MS) * 1e3;
        } else if (kolo_look_ears_hear(watch.comms)) {
            idle = 0;
            look_us = 0;
        }
    }
    pthread_mutex_unlock(&watch.lock);
    kolo_thread_end();
    return NULL;
}

static void free_watcher(struct watcher *w)
{
    if (is_whole(w)) {
        close(w->epoll);
    }
    kolo_bell_close(&w->wake);
    free(w);
}

static kolo_status start_thread(struct watcher **out)
{
    struct watcher *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a thread that watches peers");
    }
    struct epoll_event event = woken;
    const bool has_bell = kolo_bell_open(&w->wake);
    w->epoll = has_bell ? epoll_create1(EPOLL_CLOEXEC) : -1;
    if (w->epoll < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake.heard.fd, &event) != 0) {
        const kolo_status st =
            kolo_fail(KOLO_ERR_SYSTEM, "a descriptor to watch peers: %s", kolo_why(errno));
        if (w->epoll >= 0) {
            close(w->epoll);
        }
        w->epoll = -1;
        free_watcher(w);
        return st;
    }
    const int failed = pthread_create(&w->thread, NULL, run_watchdog, w);
    if (failed != 0) {
        free_watcher(w);
        return kolo_fail(KOLO_ERR_SYSTEM, "a thread to watch peers: %s", strerror(failed));
    }
    *out = w;
    return KOLO_OK;
}

static void before_fork(void)
{
    pthread_mutex_lock(&watch.lock);
}

/* The child has no watcher, and its communicators are the parent's: nobody gets to run on them. Its
 * copy of a listener would outlive the parent, which others would take for alive. */
static void after_fork(bool child)
{
    for (struct kolo_comm *c = watch.comms; c != NULL && child; c = c->health.next) {
        atomic_store(&c->queue.busy, 1);
        c->health.watched = false;
        kolo_own_fd_close(&c->rendezvous.reserved_fd);
    }
    if (child) {
        watch.comms = NULL;
        watch.processes = NULL;
        watch.watcher = NULL;
    }
    pthread_mutex_unlock(&watch.lock);
}

static void in_parent(void)
{
    after_fork(false);
}

static void in_child(void)
{
    after_fork(true);
}

static void register_fork(void)
{
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

static void drop_processes(struct kolo_comm *c)
{
    for (int q = 0; q < c->ranks.nranks; q++) {
        if (c->member[q].watched) {
            c->member[q].watched = false;
            drop_process(c->member[q].peer.process);
        }
    }
}

static kolo_status add_processes(struct kolo_comm *c)
{
    for (int q = kolo_ring_next(c); q >= 0; q = kolo_ring_next(c)) {
        KOLO_TRY(add_process(&c->member[q]));
    }
    return KOLO_OK;
}

kolo_status kolo_watchdog_add(struct kolo_comm *c)
{
    static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&fork_once, register_fork);
    pthread_mutex_lock(&watch.lock);
    kolo_status st = KOLO_OK;
    if (watch.watcher == NULL && c->ranks.nranks > 1) {
        st = start_thread(&watch.watcher);
    }
    st = st == KOLO_OK ? add_processes(c) : st;
    if (st != KOLO_OK) {
        drop_processes(c);
    } else {
        c->health.next = watch.comms;
        watch.comms = c;
        c->health.watched = true;
        if (watch.watcher != NULL) {
            kolo_bell_ring(&watch.watcher->wake);
        }
    }
    pthread_mutex_unlock(&watch.lock);
    return st;
}

void kolo_watchdog_remove(struct kolo_comm *c)
{
    struct watcher *last = NULL;
    pthread_mutex_lock(&watch.lock);
    for (struct kolo_comm **at = &watch.comms; *at != NULL && c->health.watched;
         at = &(*at)->health.next) {
        if (*at == c) {
            *at = c->health.next;
            drop_processes(c);
            break;
        }
    }
    c->health.watched = false;
    if (watch.comms == NULL && watch.watcher != NULL) {
        last = watch.watcher;
        watch.watcher = NULL;
        last->stop = true;
        kolo_bell_ring(&last->wake);
    }
    pthread_mutex_unlock(&watch.lock);
    if (last != NULL) {
        pthread_join(last->thread, NULL);
        free_watcher(last);
    }
}
