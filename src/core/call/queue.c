// SPDX-License-Identifier: Apache-2.0
/* Who runs a call, and when.
 *
 * A blocking call on an idle communicator runs at once in its thread. Else calls stand in their
 * communicator's queue (call order) and, on a stream, in that stream's queue too; one is run when
 * it heads both. Any thread that waits runs whatever heads the queue it waits on; streams are
 * served by one progress thread of the process, started by the first of them and asleep when there
 * is nothing.
 */
#include "core/call/call.h"
#include "core/call/fast_path.h"
#include "core/health/watchdog.h"
#include "exec/cpu/region.h"
#include "exec/cpu/wait.h"
#include "gpu/path.h"

#include <stdlib.h>
#include <string.h>

struct kolo_stream_queue {
    pthread_mutex_t lock;
    struct kolo_call *head, *tail;
    _Atomic int pending;
    kolo_status error;
    char error_text[512];
    _Atomic int timeout_ms; /* of calls that are queued from now on; 0: the communicator's */
    uint64_t open_group;    /* not 0: all that is queued is messages of this group, started */
    struct kolo_stream_queue *next; /* in the progress thread's list */
    bool listed;
};

/* Every call looks at it: not worth a call of the dynamic linker's. */
__attribute__((tls_model("initial-exec"))) _Thread_local int kolo_group_depth;

static _Thread_local struct {
    uint64_t number;               /* of the group that is open */
    struct kolo_call *head, *tail; /* by comm_next */
} group;

/* ---- the end of a call ---- */

/* Take the call that heads its stream off it. What waits for the stream goes on. */
static void leave_stream(struct kolo_call *call)
{
    struct kolo_stream_queue *s = call->stream;
    pthread_mutex_lock(&s->lock);
    s->head = call->stream_next;
    s->tail = s->head == NULL ? NULL : s->tail;
    pthread_mutex_unlock(&s->lock);
    free(call->error_text);
    free(call);
    atomic_fetch_sub_explicit(&s->pending, 1, memory_order_release);
}

static void finish(struct kolo_call *call, kolo_status st)
{
    if (st == KOLO_OK) {
        kolo_call_record_end(call);
    }
    if (st < 0) {
        if (st <= KOLO_ERR_MISMATCH) {
            (void)kolo_comm_fail(call->comm, st);
            kolo_call_take_back(call);
        }
        call->error_text = strdup(kolo_error_text());
    }
    kolo_call_close(call);
    if (call->stream != NULL) {
        struct kolo_stream_queue *s = call->stream;
        pthread_mutex_lock(&s->lock);
        if (st < 0 && s->error == KOLO_OK) {
            s->error = st;
            strncpy(s->error_text, kolo_error_text(), sizeof s->error_text - 1);
        }
        pthread_mutex_unlock(&s->lock);
        leave_stream(call);
        return;
    }
    atomic_store_explicit(&call->status, (int)st, memory_order_release);
}

static kolo_status start_p2p(struct kolo_call *call)
{
    if (!call->started) {
        KOLO_TRY(kolo_comm_usable(call->comm));
        KOLO_TRY(kolo_p2p_start(call->message));
        call->started = true;
    }
    return KOLO_OK;
}

/* A message is p2p's until it has a status, whatever happened to the communicator. */
static kolo_status run_p2p(struct kolo_call *call, bool turns)
{
    KOLO_TRY(start_p2p(call));
    if (turns) {
        (void)kolo_p2p_progress(call->comm);
    }
    if (atomic_load_explicit(&call->message->status, memory_order_acquire) == KOLO_INPROGRESS) {
        return KOLO_INPROGRESS;
    }
    const kolo_status st = kolo_p2p_result(call->message);
    if (st == KOLO_OK && call->info != NULL) {
        const uint32_t size = call->info->size;
        *call->info = call->message->info;
        call->info->size = size;
    }
    return st;
}

/* Time without an end; tiles that go by do not count as an end. */
static kolo_status check_deadline(struct kolo_call *call)
{
    if (call->spins++ % 256 != 255) {
        return KOLO_OK;
    }
    struct kolo_comm *c = call->comm;
    const double now = kolo_now_us();
    const int limit_ms = call->timeout_ms > 0 ? call->timeout_ms : c->timeout_ms;
    if (call->deadline <= 0) {
        call->deadline = now + limit_ms * 1e3;
    }
    const int peer = call->p2p ? call->message->peer : c->wires.stuck_at;
    if (now > call->deadline) {
        return kolo_comm_late(c, peer, limit_ms, call->p2p);
    }
    if (now - call->asked_us > 1e5) {
        call->asked_us = now;
        return kolo_comm_ask(c, peer, now - (call->deadline - limit_ms * 1e3), call->p2p);
    }
    return KOLO_OK;
}

/* ---- a communicator's queue ---- */

static void enqueue(struct kolo_call *call)
{
    struct kolo_comm *c = call->comm;
    pthread_mutex_lock(&c->queue_lock);
    call->queued = true;
    call->comm_next = NULL;
    if (c->tail != NULL) {
        c->tail->comm_next = call;
    } else {
        atomic_store(&c->head, call);
    }
    c->tail = call;
    pthread_mutex_unlock(&c->queue_lock);
}

static void pop(struct kolo_comm *c)
{
    pthread_mutex_lock(&c->queue_lock);
    struct kolo_call *next = atomic_load(&c->head)->comm_next;
    atomic_store(&c->head, next);
    c->tail = next == NULL ? NULL : c->tail;
    pthread_mutex_unlock(&c->queue_lock);
}

static struct kolo_call *first(struct kolo_comm *c)
{
    return atomic_load_explicit(&c->head, memory_order_acquire);
}

static bool heads_stream(struct kolo_call *call)
{
    if (call->stream == NULL) {
        return true;
    }
    pthread_mutex_lock(&call->stream->lock);
    const bool heads = call->stream->head == call;
    pthread_mutex_unlock(&call->stream->lock);
    return heads;
}

/* Advance the call that heads the queue, if it may run and nobody else runs one. */
static void drive(struct kolo_comm *c)
{
    if (atomic_exchange_explicit(&c->busy, 1, memory_order_acquire) != 0) {
        return;
    }
    struct kolo_call *call = first(c);
    if (call != NULL && heads_stream(call)) {
        kolo_status st = kolo_comm_usable(c);
        st = st == KOLO_OK ? kolo_call_step(call, false) : st;
        if (st == KOLO_INPROGRESS) {
            const kolo_status late = check_deadline(call);
            st = late < 0 ? late : st;
        }
        if (st != KOLO_INPROGRESS) {
            pop(c);
            finish(call, st);
        }
    }
    atomic_store_explicit(&c->busy, 0, memory_order_release);
}

/* Give the core away. False: others wanted it for long, now or just before. Who yields gets it back
 * when they have had their slices, who sleeps when he wakes: then sleep. */
static bool give_core(void)
{
    enum { LONG_US = 250, BELIEVED_US = 20 * 1000 };
    static __attribute__((tls_model("initial-exec"))) _Thread_local double wanted_us;
    const double before = kolo_now_us();
    if (before - wanted_us < BELIEVED_US) {
        return false;
    }
    sched_yield();
    const double after = kolo_now_us();
    const bool brief = after - before < LONG_US;
    wanted_us = brief ? wanted_us : after;
    return brief;
}

/* `polls` times nothing: where nobody else wants the core, to yield costs more than to look again.
 */
static void pause_a_little(unsigned *spins, unsigned polls)
{
    enum { YIELDS = 1000, NAP_NS = 20 * 1000 };
    const unsigned n = ++*spins;
    if (n > polls && (n >= polls + YIELDS || !give_core())) {
        const struct timespec nap = {0, NAP_NS};
        nanosleep(&nap, NULL);
    }
}

/* `turns`: all messages of its communicator move, else only its own state is looked at. */
static void drive_p2p(struct kolo_call *call, bool turns)
{
    const kolo_status st = run_p2p(call, turns);
    if (st != KOLO_INPROGRESS) {
        finish(call, st);
    } else if (kolo_comm_error(call->comm) == KOLO_OK) {
        const kolo_status late = check_deadline(call);
        if (late < 0) {
            (void)kolo_comm_fail(call->comm, late); /* ends the message, too */
        }
    }
}

static unsigned polls_of(const struct kolo_call *call)
{
    enum { POLLS = 200 };
    return call->p2p && !call->comm->wires.crowded ? POLLS : 0;
}

static bool is_done(const struct kolo_call *call)
{
    return atomic_load_explicit(&call->status, memory_order_acquire) != KOLO_INPROGRESS;
}

static kolo_status wait_call(struct kolo_call *call)
{
    unsigned spins = 0;
    while (!is_done(call)) {
        if (call->p2p) {
            drive_p2p(call, true);
        } else {
            drive(call->comm);
        }
        if (!is_done(call)) {
            pause_a_little(&spins, polls_of(call));
        }
    }
    return (kolo_status)atomic_load(&call->status);
}

static kolo_status take_status(struct kolo_call *call)
{
    const kolo_status st = (kolo_status)atomic_load(&call->status);
    if (st < 0 && call->error_text != NULL) {
        kolo_error_set(call->error_text);
    }
    free(call->error_text);
    call->error_text = NULL;
    return st;
}

/* ---- the progress thread ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    struct kolo_stream_queue *streams;
    bool running, stop;
    int helpers; /* threads that wait for a stream and serve meanwhile: the thread rests */
    unsigned generation;
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

/* Messages of one group start together, though the stream ends them in order. One that cannot start
 * says so when its turn comes. */
static void start_companions(struct kolo_stream_queue *s, const struct kolo_call *head)
{
    pthread_mutex_lock(&s->lock);
    struct kolo_call *call = head->stream_next;
    pthread_mutex_unlock(&s->lock);
    while (call != NULL && call->p2p && call->group == head->group) {
        if (start_p2p(call) < 0) {
            return;
        }
        pthread_mutex_lock(&s->lock);
        call = call->stream_next;
        pthread_mutex_unlock(&s->lock);
    }
}

static bool serve_stream(struct kolo_stream_queue *s)
{
    if (atomic_load_explicit(&s->pending, memory_order_acquire) == 0) {
        return false;
    }
    pthread_mutex_lock(&s->lock);
    struct kolo_call *call = s->head;
    const bool p2p = call != NULL && call->p2p, host = call != NULL && call->host_fn != NULL;
    struct kolo_comm *comm = call != NULL ? call->comm : NULL;
    pthread_mutex_unlock(&s->lock);
    if (call == NULL) {
        return true; /* it is being ended right now */
    }
    if (host) { /* as messages: ended by who serves alone; a collective may be gone by now */
        call->host_fn(call->host_arg);
        leave_stream(call);
    } else if (p2p) {
        if (call->group != 0 && !call->started) {
            start_companions(s, call);
        }
        drive_p2p(call, true);
    } else {
        drive(comm);
    }
    return true;
}

/* One round over all streams, by who holds progress.lock. False: there is nothing to do. */
static bool serve_streams(unsigned *spins)
{
    int waiting = 0, before = 0, after = 0;
    for (struct kolo_stream_queue *s = progress.streams; s != NULL; s = s->next) {
        before += atomic_load(&s->pending);
        waiting += serve_stream(s);
        after += atomic_load(&s->pending);
    }
    *spins = after < before ? 0 : *spins;
    return waiting > 0;
}

static void *serve(void *arg)
{
    unsigned spins = 0;
    (void)arg;
    pthread_mutex_lock(&progress.lock);
    while (!progress.stop) {
        if (progress.helpers > 0 || !serve_streams(&spins)) {
            spins = 0;
            pthread_cond_wait(&progress.work, &progress.lock);
            continue;
        }
        pthread_mutex_unlock(&progress.lock);
        pause_a_little(&spins, 0);
        pthread_mutex_lock(&progress.lock);
    }
    pthread_mutex_unlock(&progress.lock);
    return NULL;
}

static kolo_status list_stream(struct kolo_stream_queue *s)
{
    kolo_status st = KOLO_OK;
    pthread_mutex_lock(&progress.lock);
    if (progress.generation != kolo_fork_generation()) { /* the thread stayed in the parent */
        progress.generation = kolo_fork_generation();
        progress.running = false;
        progress.streams = NULL;
        progress.helpers = 0;
    }
    if (!progress.running) {
        progress.stop = false;
        if (pthread_create(&progress.thread, NULL, serve, NULL) != 0) {
            st = kolo_fail(KOLO_ERR_SYSTEM, "no progress thread can be started");
        }
        progress.running = st == KOLO_OK;
    }
    if (st == KOLO_OK && !s->listed) {
        s->next = progress.streams;
        progress.streams = s;
        s->listed = true;
    }
    pthread_cond_signal(&progress.work);
    pthread_mutex_unlock(&progress.lock);
    return st;
}

/* The last stream takes the thread with it, so that nothing runs on in an idle process. */
static void unlist_stream(struct kolo_stream_queue *s)
{
    pthread_t thread;
    bool join = false;
    pthread_mutex_lock(&progress.lock);
    for (struct kolo_stream_queue **at = &progress.streams; *at != NULL; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            break;
        }
    }
    if (progress.streams == NULL && progress.running &&
        progress.generation == kolo_fork_generation()) {
        progress.stop = true;
        progress.running = false;
        thread = progress.thread;
        join = true;
        pthread_cond_signal(&progress.work);
    }
    pthread_mutex_unlock(&progress.lock);
    if (join) {
        pthread_join(thread, NULL);
    }
}

/* ---- submitting ---- */

/* Messages match in the order of their calls, whatever their streams. So one that need not wait for
 * its stream starts here, not when the streams happen to be served. One that cannot start says so
 * when its turn comes. */
static void start_in_order(struct kolo_call *call, struct kolo_stream_queue *s)
{
    pthread_mutex_lock(&s->lock);
    const bool may =
        call->p2p && (s->head == NULL || (call->group != 0 && call->group == s->open_group));
    pthread_mutex_unlock(&s->lock);
    const bool started = may && start_p2p(call) == KOLO_OK;
    pthread_mutex_lock(&s->lock);
    s->open_group = started ? call->group : 0;
    pthread_mutex_unlock(&s->lock);
}

static kolo_status to_stream(struct kolo_call *call, struct kolo_stream_queue *s)
{
    KOLO_TRY(list_stream(s));
    start_in_order(call, s);
    call->stream = s;
    call->stream_next = NULL;
    call->timeout_ms = atomic_load_explicit(&s->timeout_ms, memory_order_relaxed);
    /* A message or a host function may be over, and freed, once it is in the stream. */
    const bool collective = call->comm != NULL && !call->p2p;
    atomic_fetch_add(&s->pending, 1);
    pthread_mutex_lock(&s->lock);
    if (s->tail != NULL) {
        s->tail->stream_next = call;
    } else {
        s->head = call;
    }
    s->tail = call;
    pthread_mutex_unlock(&s->lock);
    if (collective) {
        enqueue(call);
    }
    pthread_mutex_lock(&progress.lock);
    pthread_cond_signal(&progress.work);
    pthread_mutex_unlock(&progress.lock);
    return KOLO_OK;
}

static struct kolo_call *keep(const struct kolo_call *call)
{
    struct kolo_call *kept = malloc(sizeof *kept);
    if (kept != NULL) {
        memcpy(kept, call, sizeof *kept);
        atomic_store(&kept->status, KOLO_INPROGRESS);
    }
    return kept;
}

static kolo_status run_now(struct kolo_call *call)
{
    struct kolo_comm *c = call->comm;
    kolo_status st;
    if (call->p2p) {
        atomic_store(&call->status, KOLO_INPROGRESS);
        wait_call(call);
        return take_status(call);
    }
    if (atomic_exchange_explicit(&c->busy, 1, memory_order_acquire) == 0) {
        if (first(c) == NULL) {
            st = kolo_call_step(call, true);
            if (KOLO_UNLIKELY(st < 0)) {
                st = st <= KOLO_ERR_MISMATCH ? kolo_comm_fail(c, st) : st;
            }
            if (KOLO_UNLIKELY(st <= KOLO_ERR_MISMATCH)) {
                kolo_call_take_back(call);
            } else if (st == KOLO_OK) {
                kolo_call_record_end(call);
            }
            kolo_call_close(call);
            atomic_store_explicit(&c->busy, 0, memory_order_release);
            return st;
        }
        atomic_store_explicit(&c->busy, 0, memory_order_release);
    }
    atomic_store(&call->status, KOLO_INPROGRESS);
    enqueue(call);
    wait_call(call);
    return take_status(call);
}

kolo_status kolo_call_submit(struct kolo_call *call, kolo_stream stream)
{
    struct kolo_stream_queue *s = stream;
    if (kolo_group_depth == 0 && s == NULL) {
        return run_now(call);
    }
    struct kolo_call *kept = keep(call);
    if (kept == NULL) {
        kolo_call_close(call);
        return kolo_comm_fail(call->comm, kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a call"));
    }
    if (kolo_group_depth > 0) {
        kept->stream = s;
        kept->group = group.number;
        kept->comm_next = NULL;
        if (group.tail != NULL) {
            group.tail->comm_next = kept;
        } else {
            group.head = kept;
        }
        group.tail = kept;
        return KOLO_OK;
    }
    const kolo_status st = to_stream(kept, s);
    if (st != KOLO_OK) {
        kolo_call_close(kept);
        free(kept);
    }
    return st;
}

/* Lines or slots of the last tiles. */
static bool reads_of_me(const struct kolo_wires *w, int q)
{
    bool reads = false;
    for (int parity = 0; parity < KOLO_DEPTH; parity++) {
        for (int i = 0; i < w->readers[parity].count; i++) {
            reads = reads || w->readers[parity].list[i] == q;
        }
    }
    return reads;
}

void kolo_call_drain(struct kolo_comm *c)
{
    unsigned spins = 0;
    while (first(c) != NULL) {
        drive(c);
        pause_a_little(&spins, 0);
    }
    pthread_mutex_lock(&progress.lock); /* held while streams are served: nobody is in c any more */
    pthread_mutex_unlock(&progress.lock);
    const double deadline = kolo_now_us() + c->timeout_ms * 1e3;
    while (kolo_p2p_pending(c) && kolo_comm_error(c) == KOLO_OK &&
           kolo_p2p_progress(c) == KOLO_OK && kolo_now_us() < deadline) {
        pause_a_little(&spins, 0);
    }
    for (int q = 0; q < c->nranks; q++) { /* what it reads of me in my last call has been read */
        if (c->wires.region[q] != NULL && (c->wires.entries > 0 || reads_of_me(&c->wires, q)) &&
            kolo_comm_error(c) == KOLO_OK) {
            (void)kolo_wait(&c->wires, &c->wires.region[q]->head.done, c->wires.epoch, q);
        }
    }
}

/* ---- groups ---- */

kolo_status kolo_group_begin(void)
{
    static _Atomic uint64_t groups;
    if (kolo_group_depth++ == 0) {
        group.number = 1 + atomic_fetch_add(&groups, 1);
    }
    return KOLO_OK;
}

/* All of a group's calls stand in their queues before the first one runs. */
static kolo_status start_group(struct kolo_call *calls, struct kolo_call **waiting)
{
    struct kolo_call **tail = waiting;
    kolo_status first_error = KOLO_OK;
    while (calls != NULL) {
        struct kolo_call *call = calls;
        calls = call->comm_next;
        call->comm_next = NULL;
        if (call->stream != NULL) {
            const kolo_status st = to_stream(call, call->stream);
            if (st != KOLO_OK) {
                first_error = first_error == KOLO_OK ? st : first_error;
                kolo_call_close(call);
                free(call);
            }
            continue;
        }
        call->stream_next = NULL;
        *tail = call;
        tail = &call->stream_next;
        if (call->p2p) {
            (void)start_p2p(call); /* what went wrong is found again when it is driven */
        } else {
            enqueue(call);
        }
    }
    return first_error;
}

kolo_status kolo_group_end(void)
{
    struct kolo_call *waiting = NULL;
    unsigned spins = 0, polls = 0;
    if (kolo_group_depth == 0) {
        return kolo_fail(KOLO_ERR_INVALID, "kolo_group_end() without kolo_group_begin()");
    }
    if (--kolo_group_depth > 0) {
        return KOLO_OK;
    }
    struct kolo_call *calls = group.head;
    group.head = group.tail = NULL;
    const kolo_status on_devices = kolo_device_group_end();
    kolo_status first_error = start_group(calls, &waiting);
    first_error = first_error == KOLO_OK ? on_devices : first_error;
    for (bool done = false; !done;) {
        const struct kolo_comm *turned = NULL;
        done = true;
        for (struct kolo_call *call = waiting; call != NULL; call = call->stream_next) {
            if (!is_done(call)) {
                if (call->p2p) {
                    drive_p2p(call, call->comm != turned);
                    turned = call->comm;
                } else {
                    drive(call->comm);
                }
                polls = polls_of(call);
                done = done && is_done(call);
            }
        }
        if (!done) {
            pause_a_little(&spins, polls);
        }
    }
    while (waiting != NULL) {
        struct kolo_call *next = waiting->stream_next;
        char *text = waiting->error_text;
        const kolo_status st = (kolo_status)atomic_load(&waiting->status);
        if (st < 0 && first_error == KOLO_OK) {
            first_error = st;
            kolo_error_set(text != NULL ? text : "");
        }
        free(text);
        free(waiting);
        waiting = next;
    }
    return first_error;
}

/* ---- streams ---- */

kolo_status kolo_stream_create(kolo_stream *out)
{
    if (out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "out is NULL");
    }
    struct kolo_stream_queue *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a stream");
    }
    pthread_mutex_init(&s->lock, NULL);
    kolo_watch_caller(); /* the progress thread */
    *out = s;
    return KOLO_OK;
}

static kolo_status take_stream_error(struct kolo_stream_queue *s)
{
    pthread_mutex_lock(&s->lock);
    const kolo_status st = s->error;
    if (st != KOLO_OK) {
        kolo_error_set(s->error_text);
    }
    s->error = KOLO_OK;
    pthread_mutex_unlock(&s->lock);
    return st;
}

kolo_status kolo_stream_query(kolo_stream stream)
{
    struct kolo_stream_queue *s = stream;
    if (s == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "stream is NULL");
    }
    if (atomic_load_explicit(&s->pending, memory_order_acquire) > 0) {
        return KOLO_INPROGRESS;
    }
    return take_stream_error(s);
}

/* Who waits serves all streams, in the progress thread's place: what it waits for comes without a
 * switch of threads. */
static void help_until_idle(struct kolo_stream_queue *s)
{
    unsigned spins = 0;
    bool waiting = true;
    pthread_mutex_lock(&progress.lock);
    progress.helpers++;
    while (atomic_load_explicit(&s->pending, memory_order_acquire) > 0) {
        waiting = serve_streams(&spins);
        if (atomic_load_explicit(&s->pending, memory_order_acquire) > 0) {
            pthread_mutex_unlock(&progress.lock);
            pause_a_little(&spins, 0);
            pthread_mutex_lock(&progress.lock);
        }
    }
    if (--progress.helpers == 0 && waiting) {
        pthread_cond_signal(&progress.work); /* perhaps there is more, for others */
    }
    pthread_mutex_unlock(&progress.lock);
}

kolo_status kolo_stream_sync(kolo_stream stream)
{
    struct kolo_stream_queue *s = stream;
    if (s == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "stream is NULL");
    }
    if (atomic_load_explicit(&s->pending, memory_order_acquire) > 0) {
        help_until_idle(s);
    }
    return take_stream_error(s);
}

kolo_status kolo_stream_set_timeout(kolo_stream stream, int timeout_ms)
{
    struct kolo_stream_queue *s = stream;
    if (s == NULL || timeout_ms < 0) {
        return s == NULL ? kolo_fail(KOLO_ERR_INVALID, "stream is NULL")
                         : kolo_fail(KOLO_ERR_INVALID,
                                     "timeout_ms is %d; it must be positive, or 0 for that of the "
                                     "communicator",
                                     timeout_ms);
    }
    atomic_store(&s->timeout_ms, timeout_ms);
    return KOLO_OK;
}

kolo_status kolo_stream_host_func(kolo_stream stream, void (*fn)(void *arg), void *arg)
{
    if (stream == NULL || fn == NULL || kolo_group_depth > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "%s",
                         stream == NULL ? "stream is NULL"
                         : fn == NULL   ? "fn is NULL"
                                        : "kolo_stream_host_func() inside a group");
    }
    struct kolo_call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a call");
    }
    call->host_fn = fn;
    call->host_arg = arg;
    const kolo_status st = to_stream(call, stream);
    if (st != KOLO_OK) {
        free(call);
    }
    return st;
}

void kolo_stream_destroy(kolo_stream stream)
{
    struct kolo_stream_queue *s = stream;
    if (s == NULL) {
        return;
    }
    const kolo_status ignored = kolo_stream_sync(stream);
    (void)ignored;
    if (s->listed) {
        unlist_stream(s);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}
