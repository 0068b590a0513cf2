// SPDX-License-Identifier: Apache-2.0
/* The progress thread, which serves host streams, and threads that wait for a stream meanwhile.
 *
 * The first stream of a process starts the thread, and the end of the last one ends it. A thread that
 * waits for a stream serves all in its place: its call ends without a switch of threads.
 *
 * A short call is first tried by the thread that makes it, and by each query of its stream. Calls
 * in close succession, each with a waiter, need no server. So the progress thread stands by after its
 * last work, and while only short messages are next: it looks now and then, and is not woken.
 *
 * Between two rounds the serving thread pauses (core/pauses.h): a waiting thread polls first, the
 * progress thread gives its core away at once, because the application may need it. Both nap in the
 * end, longer and longer. A new call ends the nap. If all next calls are messages of a communicator
 * whose peers ring, a waiting thread sleeps on its bell instead, with more ranks than cores at once. */
#include "core/call/progress.h"

#include "core/doorbell.h"
#include "util/threads.h"

#include <sched.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work;   /* the progress thread waits for it, or for the end of a nap */
    pthread_cond_t helped; /* helpers wait for it during their naps */
    pthread_t thread;
    struct kolo_stream_queue *streams;
    unsigned number; /* of the thread; one with another number ends */
    bool running;
    bool stands_by;      /* the thread looks by itself, soon */
    _Atomic int wanted;  /* threads that wait for the lock: queries leave it alone */
    _Atomic int helpers; /* threads that wait for a stream and serve meanwhile: the thread rests */
    unsigned submitted;  /* counts calls that did not end at once */
    unsigned looks;      /* of the thread since it saw `seen` calls */
    unsigned seen;
    unsigned doubled; /* how often the time between two of these looks has been doubled */
    unsigned generation;
    struct kolo_sleeper *sleepers; /* helpers that sleep on a bell */
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- serving ---- */

/* Messages of one group start together, though the stream ends them in order. A message that cannot
 * start reports the error when its turn comes. */
static void start_companions(struct kolo_stream_queue *s, const struct kolo_queued *head)
{
    pthread_mutex_lock(&s->lock);
    struct kolo_queued *call = head->stream_next;
    pthread_mutex_unlock(&s->lock);
    while (kolo_queued_is_message(call) && call->group == head->group) {
        if (kolo_message_start(kolo_message_of(call)) < 0) {
            return;
        }
        pthread_mutex_lock(&s->lock);
        call = call->stream_next;
        pthread_mutex_unlock(&s->lock);
    }
}

void kolo_progress_lock(void)
{
    if (pthread_mutex_trylock(&progress.lock) != 0) {
        atomic_fetch_add(&progress.wanted, 1);
        pthread_mutex_lock(&progress.lock);
        atomic_fetch_sub(&progress.wanted, 1);
    }
}

void kolo_progress_unlock(void)
{
    pthread_mutex_unlock(&progress.lock);
}

bool kolo_progress_trylock(void)
{
    if (atomic_load_explicit(&progress.wanted, memory_order_relaxed) > 0 ||
        pthread_mutex_trylock(&progress.lock) != 0) {
        return false;
    }
    if (progress.generation != kolo_fork_generation()) { /* the streams are the parent's */
        pthread_mutex_unlock(&progress.lock);
        return false;
    }
    return true;
}

static void serve_message(struct kolo_stream_queue *s, struct kolo_message_call *call)
{
    if (call->base.group != 0 && !call->started) {
        start_companions(s, &call->base);
    }
    kolo_message_drive(call, true);
}

/* `*news` is raised by what has moved in the communicator of the stream's first call. */
static bool serve_stream(struct kolo_stream_queue *s, unsigned *news)
{
    if (atomic_load_explicit(&s->pending, memory_order_acquire) == 0) {
        return false;
    }
    pthread_mutex_lock(&s->lock);
    struct kolo_queued *call = s->head;
    /* Messages and host functions are ended by the serving thread alone. A collective may be gone
     * once the lock is free: another thread may drive its communicator. */
    const enum kolo_queued_kind kind = call != NULL ? call->kind : KOLO_QUEUED_COLLECTIVE;
    struct kolo_comm *comm = call != NULL ? call->comm : NULL;
    pthread_mutex_unlock(&s->lock);
    *news += comm != NULL ? kolo_queue_moves(comm) : 0;
    if (call == NULL) {
        return true; /* another thread is ending the call right now */
    }
    if (kind == KOLO_QUEUED_HOST_FUNC) {
        struct kolo_host_call *host = (struct kolo_host_call *)call;
        host->fn(host->arg);
        kolo_stream_pop(call);
    } else if (kind == KOLO_QUEUED_MESSAGE) {
        serve_message(s, kolo_message_of(call));
    } else {
        kolo_queue_drive(comm);
    }
    return true;
}

bool kolo_progress_try(struct kolo_stream_queue *s)
{
    pthread_mutex_lock(&s->lock);
    struct kolo_queued *call = s->head;
    const bool brief = call != NULL && kolo_queued_is_brief(call);
    const bool message = brief && kolo_queued_is_message(call);
    struct kolo_comm *comm = brief ? call->comm : NULL;
    pthread_mutex_unlock(&s->lock);
    if (message) {
        kolo_message_drive(kolo_message_of(call), true);
    } else if (brief) {
        kolo_queue_try(comm, call);
    }
    if (brief) {
        (void)kolo_sleepers_wake(progress.sleepers, NULL); /* they look again */
    }
    return brief;
}

/* One round over all streams; progress.lock is held. False: there is nothing to do. */
static bool serve_streams(struct kolo_pauses *pauses)
{
    unsigned news = progress.submitted;
    int waiting = 0, before = 0, after = 0;
    for (struct kolo_stream_queue *s = progress.streams; s != NULL; s = s->next) {
        before += atomic_load(&s->pending);
        waiting += serve_stream(s, &news);
        after += atomic_load(&s->pending);
    }
    if (after < before) {
        pauses->count = 0;
        (void)kolo_sleepers_wake(progress.sleepers, NULL); /* they look again */
    }
    kolo_pauses_hear(pauses, news);
    return waiting > 0;
}

/* Who waits for a short message ends it without the progress thread, whose looks take the core, and
 * its caches, from a rank that computes. */
static enum work { NONE, CAN_WAIT, URGENT } find_work(void)
{
    enum work found = NONE;
    for (struct kolo_stream_queue *s = progress.streams; s != NULL && found != URGENT;
         s = s->next) {
        if (atomic_load_explicit(&s->pending, memory_order_acquire) > 0) {
            pthread_mutex_lock(&s->lock);
            const bool waits = s->head == NULL ||
                               (kolo_queued_is_message(s->head) && kolo_queued_is_brief(s->head));
            pthread_mutex_unlock(&s->lock);
            found = waits ? CAN_WAIT : URGENT;
        }
    }
    return found;
}

/* Find what rings when one of the calls can move: all that are next are messages of one
 * communicator. False: there is no such bell. progress.lock is held. */
static bool find_bell(struct kolo_sleeper *out)
{
    const struct kolo_comm *comm = NULL;
    bool common = true;
    for (struct kolo_stream_queue *s = progress.streams; common && s != NULL; s = s->next) {
        pthread_mutex_lock(&s->lock);
        const struct kolo_queued *call = s->head;
        common =
            call == NULL || (kolo_queued_is_message(call) && (comm == NULL || comm == call->comm));
        comm = call != NULL ? call->comm : comm;
        pthread_mutex_unlock(&s->lock);
    }
    *out = (struct kolo_sleeper){comm, common && comm != NULL ? kolo_p2p_bell(comm) : NULL, NULL};
    return out->bell != NULL;
}

/* A helper sleeps until messages move, or a call is queued or ends; progress.lock is held. */
static void sleep_as(struct kolo_sleeper *self, const struct kolo_stream_queue *s,
                     struct kolo_pauses *pauses)
{
    enum { LONGEST_NS = 4000 * 1000 };
    const uint32_t heard = kolo_sleeper_listen(&progress.sleepers, self);
    (void)serve_streams(pauses);
    if (atomic_load_explicit(&s->pending, memory_order_acquire) > 0) {
        pthread_mutex_unlock(&progress.lock);
        kolo_sleeper_sleep(self, heard, LONGEST_NS);
        kolo_progress_lock();
    }
    kolo_sleeper_get_up(&progress.sleepers, self);
}

/* One pause between two rounds; progress.lock is held. A new call ends a nap. `s`: a helper waits
 * for it. In a crowd it sleeps soon. */
static void pause_round(struct kolo_pauses *pauses, unsigned polls, pthread_cond_t *news,
                        const struct kolo_stream_queue *s)
{
    enum { YIELDS_IN_CROWD = 2 };
    const unsigned submitted = progress.submitted;
    const bool soon = s != NULL && polls == 0 && pauses->count >= YIELDS_IN_CROWD;
    struct kolo_sleeper self;
    bool sleeps = soon && find_bell(&self);
    long nap = 1;
    if (!sleeps) {
        pthread_mutex_unlock(&progress.lock);
        nap = kolo_pauses_nap(pauses, polls);
        kolo_progress_lock();
        sleeps = s != NULL && nap > 0 && find_bell(&self);
    }
    if (nap > 0 && submitted == progress.submitted) {
        if (sleeps) {
            sleep_as(&self, s, pauses);
        } else {
            kolo_pauses_doze(news, &progress.lock, nap);
        }
    }
}

/* The progress thread has no work, or (`works`) only work that can wait; progress.lock is held. A wake-up
 * costs the caller more than a short call, and takes the core from it if there is no idle core. So
 * looks become rare while calls end without this thread, and while nothing is queued. */
static void stand_by(bool works)
{
    enum { LOOK_NS = 200 * 1000, LOOKS = 10, DOUBLED = 2, RARE = 4 };
    progress.looks = progress.seen == progress.submitted ? progress.looks + 1 : 0;
    progress.seen = progress.submitted;
    if (progress.looks > LOOKS && !works) {
        pthread_cond_wait(&progress.work, &progress.lock);
        return;
    }
    const unsigned doubled = progress.looks > LOOKS ? RARE : progress.doubled;
    progress.stands_by = doubled < RARE; /* else a new call wakes the thread */
    kolo_pauses_doze(&progress.work, &progress.lock, (long)LOOK_NS << doubled);
    progress.stands_by = false;
    const bool rarely = progress.helpers > 0 || find_work() != URGENT;
    progress.doubled += rarely ? progress.doubled < DOUBLED : -(progress.doubled > 0);
}

void kolo_progress_wake(bool brief)
{
    progress.submitted++;
    if (progress.helpers > 0) {
        pthread_cond_broadcast(&progress.helped);
        (void)kolo_sleepers_wake(progress.sleepers, NULL); /* they look again */
    } else if (!brief || !progress.stands_by) {
        pthread_cond_signal(&progress.work);
    }
}

static void *run_progress(void *arg)
{
    const unsigned number = (unsigned)(uintptr_t)arg;
    struct kolo_pauses pauses = {0};
    kolo_thread_begin();
    kolo_progress_lock();
    while (number == progress.number) {
        const bool works = progress.helpers == 0 && serve_streams(&pauses);
        if (!works || find_work() != URGENT) {
            pauses = (struct kolo_pauses){0};
            stand_by(works);
        } else {
            pause_round(&pauses, 0, &progress.work, NULL);
        }
    }
    pthread_mutex_unlock(&progress.lock);
    kolo_thread_end();
    return NULL;
}

void kolo_progress_rest(const struct kolo_comm *comm)
{
    kolo_progress_lock(); /* the serving thread holds it, unless it sleeps */
    /* A forked child has none of its parent's threads. */
    while (progress.generation == kolo_fork_generation() &&
           kolo_sleepers_wake(progress.sleepers, comm)) {
        pthread_mutex_unlock(&progress.lock);
        sched_yield();
        kolo_progress_lock();
    }
    pthread_mutex_unlock(&progress.lock);
}

/* A helper that found links.lock taken is listed before it looks, and its membarrier comes between. */
void kolo_progress_rouse(void)
{
    if (atomic_load(&progress.helpers) > 0) {
        kolo_progress_lock();
        (void)kolo_sleepers_wake(progress.sleepers, NULL);
        pthread_mutex_unlock(&progress.lock);
    }
}

void kolo_progress_help(struct kolo_stream_queue *s)
{
    struct kolo_pauses pauses = {0};
    kolo_progress_lock();
    progress.helpers++;
    while (atomic_load_explicit(&s->pending, memory_order_acquire) > 0) {
        (void)serve_streams(&pauses);
        if (atomic_load_explicit(&s->pending, memory_order_acquire) > 0) {
            pause_round(&pauses, atomic_load(&s->polls), &progress.helped, s);
        }
    }
    if (--progress.helpers == 0 && find_work() > (progress.stands_by ? CAN_WAIT : NONE)) {
        pthread_cond_signal(&progress.work);
    }
    pthread_mutex_unlock(&progress.lock);
}

/* ---- its list of streams ---- */

/* Conditions on the clock that nobody sets. */
static void init_conditions(void)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&progress.work, &attr);
    pthread_cond_init(&progress.helped, &attr);
    pthread_condattr_destroy(&attr);
}

kolo_status kolo_progress_list(struct kolo_stream_queue *s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const unsigned stamp = kolo_fork_generation() + 1;
    kolo_status st = KOLO_OK;
    if (atomic_load_explicit(&s->listed, memory_order_acquire) == stamp) {
        return KOLO_OK; /* and so the thread runs */
    }
    pthread_once(&once, init_conditions);
    kolo_progress_lock();
    if (progress.generation != kolo_fork_generation()) { /* the thread stayed in the parent */
        progress.generation = kolo_fork_generation();
        progress.running = false;
        progress.streams = NULL;
        progress.stands_by = false;
        progress.helpers = 0;
        progress.sleepers = NULL;
        progress.wanted = 0;
    }
    if (!progress.running) {
        void *number = (void *)(uintptr_t)progress.number;
        if (pthread_create(&progress.thread, NULL, run_progress, number) != 0) {
            st = kolo_fail(KOLO_ERR_SYSTEM, "no progress thread can be started");
        }
        progress.running = st == KOLO_OK;
    }
    if (st == KOLO_OK && atomic_load(&s->listed) != stamp) {
        s->next = progress.streams;
        progress.streams = s;
        atomic_store(&s->listed, stamp);
    }
    pthread_mutex_unlock(&progress.lock);
    return st;
}

void kolo_progress_unlist(struct kolo_stream_queue *s)
{
    pthread_t thread;
    bool join = false;
    kolo_progress_lock();
    for (struct kolo_stream_queue **at = &progress.streams; *at != NULL; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            break;
        }
    }
    if (progress.streams == NULL && progress.running &&
        progress.generation == kolo_fork_generation()) {
        progress.number++;
        progress.submitted++; /* ends a nap */
        progress.running = false;
        thread = progress.thread;
        join = true;
        pthread_cond_broadcast(&progress.work); /* the next thread may wait there already */
    }
    pthread_mutex_unlock(&progress.lock);
    if (join) {
        pthread_join(thread, NULL);
    }
}
