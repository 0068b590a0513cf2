// SPDX-License-Identifier: Apache-2.0
/* Point to point: the life of operations, and the turns that advance them.
 *
 * Starting an operation only puts it into the inbox, which has its own lock. So it never waits for
 * a thread that connects or moves bytes. The thread that gets links.lock empties the inbox,
 * and advances the operations of all threads.
 *
 * After an error the links are aborted. An operation goes back to its owner as soon as no transport
 * uses its memory. */
#include "core/p2p/p2p.h"

#include "core/health/gone.h"
#include "core/p2p/inner.h"
#include "exec/cpu/region.h"

#include <sched.h>
#include <stdlib.h>

enum { IDLE_TURNS = 32, CLOSE_TURNS = 1000, DEVICE_BUDGET = 256 };

/* The first thread makes comm->p2p. All threads read it without a lock. */
static struct kolo_p2p *p2p_of(const struct kolo_comm *comm)
{
    return __atomic_load_n(&comm->p2p, __ATOMIC_ACQUIRE);
}

static kolo_status error_of(const struct kolo_comm *comm)
{
    return (kolo_status)atomic_load_explicit(&comm->failure.error, memory_order_acquire);
}

/* ---- open and start ---- */

static void p2p_free(struct kolo_p2p *p2p)
{
    for (int q = 0; p2p->peer != NULL && q < p2p->comm->ranks.nranks; q++) {
        if (p2p->peer[q] != NULL) {
            free(p2p->peer[q]->coming);
        }
        free(p2p->peer[q]);
    }
    pthread_mutex_destroy(&p2p->inbox_lock);
    free(p2p->peer);
    free(p2p->opened);
    free(p2p);
}

/* Make the state. The first start calls it, too. Any thread may call. Errors: SYSTEM. */
static kolo_status open_state(struct kolo_comm *comm)
{
    if (p2p_of(comm) != NULL) {
        return KOLO_OK;
    }
    const size_t n = (size_t)comm->ranks.nranks;
    struct kolo_p2p *none = NULL;
    struct kolo_p2p *p2p = calloc(1, sizeof *p2p);
    if (p2p == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "no memory for sends and receives");
    }
    p2p->comm = comm;
    pthread_mutex_init(&p2p->inbox_lock, NULL);
    p2p->peer = calloc(n, sizeof(struct kolo_p2p_peer *));
    p2p->opened = calloc(n, sizeof(int));
    if (p2p->peer == NULL || p2p->opened == NULL) {
        p2p_free(p2p);
        return kolo_fail(KOLO_ERR_SYSTEM, "no memory for messages with %d ranks",
                         comm->ranks.nranks);
    }
    if (!__atomic_compare_exchange_n(&comm->p2p, &none, p2p, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        p2p_free(p2p); /* another thread was first */
    }
    return KOLO_OK;
}

kolo_status kolo_p2p_check(const struct kolo_comm *comm, bool is_send, int peer, int tag)
{
    const bool any = !is_send && tag != KOLO_UNTAGGED;
    KOLO_TRY(kolo_comm_usable(comm));
    if ((peer < 0 || peer >= comm->ranks.nranks) && !(any && peer == KOLO_ANY_SOURCE)) {
        return kolo_fail(KOLO_ERR_INVALID, "peer is %d; it must be 0 to %d%s", peer,
                         comm->ranks.nranks - 1, any ? ", or KOLO_ANY_SOURCE" : "");
    }
    if (tag < 0 && tag != KOLO_UNTAGGED && !(any && tag == KOLO_ANY_TAG)) {
        return kolo_fail(KOLO_ERR_INVALID, "tag is %d; it must be 0 or more%s", tag,
                         any ? ", or KOLO_ANY_TAG" : "");
    }
    return KOLO_OK;
}

static kolo_status check_op(const struct kolo_p2p_op *op)
{
    const struct kolo_comm *comm = op->comm;
    KOLO_TRY(kolo_p2p_check(comm, op->is_send, op->peer, op->tag));
    if (op->peer >= 0 && op->peer != comm->ranks.rank &&
        (comm->member[op->peer].reach.caps & KOLO_CAP_MESSAGE) == 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "rank %d is reached by %s, which has no messages",
                         op->peer, comm->member[op->peer].transport->base.name);
    }
    return open_state(op->comm);
}

kolo_status kolo_p2p_start(struct kolo_p2p_op *op)
{
    const kolo_status status = check_op(op);
    op->end = KOLO_OK;
    op->req[0] = op->req[1] = (struct kolo_req){0};
    op->info.bytes = 0;
    atomic_store_explicit(&op->status, (int)(status < 0 ? status : KOLO_INPROGRESS),
                          memory_order_relaxed);
    KOLO_TRY(status);
    struct kolo_p2p *p2p = p2p_of(op->comm);
    atomic_fetch_add_explicit(&p2p->active, 1, memory_order_relaxed);
    pthread_mutex_lock(&p2p->inbox_lock);
    kolo_p2p_push(&p2p->inbox, op);
    atomic_store_explicit(&p2p->filled, true, memory_order_relaxed);
    pthread_mutex_unlock(&p2p->inbox_lock);
    return KOLO_OK;
}

kolo_status kolo_p2p_result(const struct kolo_p2p_op *op)
{
    const kolo_status status = (kolo_status)atomic_load_explicit(&op->status, memory_order_acquire);
    if (status == KOLO_ERR_INVALID && op->info.bytes > op->bytes) {
        return kolo_fail(status, "rank %d sent %zu bytes; the receive has room for %zu",
                         op->info.source, op->info.bytes, op->bytes);
    }
    if (status < 0) {
        (void)kolo_comm_usable(op->comm); /* sets the error text */
    }
    return status;
}

/* ---- a turn, under links.lock ---- */

/* Open every peer that is not gone, so that a receive from any source gets messages from all ranks.
 * A rank may go at any moment, also now. */
static kolo_status hear_all(struct kolo_p2p *p2p)
{
    const struct kolo_comm *comm = p2p->comm;
    for (int q = 0; !p2p->hears_all && q < comm->ranks.nranks; q++) {
        struct kolo_p2p_peer *peer = p2p->peer[q];
        const bool reached = (comm->member[q].reach.caps & KOLO_CAP_MESSAGE) != 0;
        if (q != comm->ranks.rank && reached && (peer == NULL || !peer->gone) &&
            !kolo_gone_is(comm, q)) {
            const kolo_status st = kolo_p2p_peer_open(p2p, q, &peer);
            KOLO_TRY(st < 0 && kolo_gone_is(comm, q) ? KOLO_OK : st);
        }
    }
    p2p->hears_all = true;
    return KOLO_OK;
}

static kolo_status begin_recv(struct kolo_p2p *p2p, struct kolo_p2p_op *op)
{
    const bool any = op->peer == KOLO_ANY_SOURCE;
    struct kolo_p2p_peer *peer = any ? NULL : kolo_p2p_peer_get(p2p, op->peer);
    struct kolo_p2p_kept *kept = any || peer != NULL ? kolo_p2p_take_kept(p2p, op) : NULL;
    op->order = p2p->clock++;
    if (!any && peer == NULL) {
        op->end = KOLO_ERR_SYSTEM;
        kolo_p2p_push(&p2p->flying, op);
        return op->end;
    }
    if (kept != NULL) {
        kolo_p2p_push(&p2p->flying, op);
        return kolo_p2p_deliver(p2p, op, kept);
    }
    kolo_p2p_push(any ? &p2p->any : &peer->posted, op);
    return any ? hear_all(p2p) : kolo_p2p_peer_open(p2p, op->peer, &peer);
}

static void append(struct kolo_p2p_fifo *to, struct kolo_p2p_fifo *from)
{
    if (from->first != NULL) {
        *(to->first == NULL ? &to->first : &to->last->next) = from->first;
        to->last = from->last;
        *from = (struct kolo_p2p_fifo){0};
    }
}

/* A turn that finds nothing costs no lock. A thread sees its own operations, and those of others
 * now or in a later turn. */
static void empty_inbox(struct kolo_p2p *p2p)
{
    if (!atomic_load_explicit(&p2p->filled, memory_order_relaxed)) {
        return;
    }
    pthread_mutex_lock(&p2p->inbox_lock);
    append(&p2p->started, &p2p->inbox);
    atomic_store_explicit(&p2p->filled, false, memory_order_relaxed);
    pthread_mutex_unlock(&p2p->inbox_lock);
}

static kolo_status begin_started(struct kolo_p2p *p2p)
{
    empty_inbox(p2p);
    while (p2p->started.first != NULL) {
        struct kolo_p2p_op *op = p2p->started.first;
        p2p->started.first = op->next;
        KOLO_TRY(op->is_send ? kolo_p2p_send(p2p, op) : begin_recv(p2p, op));
    }
    return KOLO_OK;
}

static kolo_status progress_devices(struct kolo_p2p *p2p)
{
    kolo_status first = KOLO_OK;
    for (int i = 0; i < p2p->ndevices; i++) {
        const struct kolo_p2p_device *d = &p2p->device[i];
        const int moved = d->transport->progress(d->device, DEVICE_BUDGET);
        first = moved < 0 && first == KOLO_OK ? (kolo_status)moved : first;
        if (moved > 0) {
            atomic_fetch_add_explicit(&p2p->comm->queue.moves, 1, memory_order_relaxed);
        }
    }
    return first;
}

static bool in_flight(const struct kolo_p2p_op *op)
{
    return op->req[0].status == KOLO_INPROGRESS || op->req[1].status == KOLO_INPROGRESS;
}

static kolo_status worst(const struct kolo_p2p_op *op)
{
    const kolo_status first = op->req[0].status;
    return first < 0 ? first : op->req[1].status;
}

/* Give back operations that are done. A failed one stays: it gets the communicator's status, and
 * the communicator must have its text first. Of thousands a turn looks at a few, and later ones at
 * the others. */
static kolo_status land(struct kolo_p2p *p2p, kolo_status ended)
{
    enum { LOOKS = 64 };
    struct kolo_p2p_fifo left = {0};
    struct kolo_p2p_op *op = p2p->flying.first;
    kolo_status status = KOLO_OK;
    for (int looks = 0; op != NULL && looks < LOOKS; looks++) {
        const bool flies = in_flight(op);
        const kolo_status bad = flies ? KOLO_OK : worst(op);
        struct kolo_p2p_op *next = op->next; /* before the status gives `op` back to its owner */
        if (flies || (bad < 0 && ended == KOLO_OK)) {
            kolo_p2p_push(&left, op);
        } else {
            kolo_p2p_finish(p2p, op, bad < 0 ? ended : op->end);
        }
        if (bad < 0 && ended == KOLO_OK && status == KOLO_OK) {
            status = kolo_fail(bad, "a message of %zu bytes with rank %d failed: %s", op->bytes,
                               op->is_send ? op->peer : op->info.source, kolo_status_name(bad));
        }
        op = next;
    }
    p2p->flying.first = op;
    append(&p2p->flying, &left);
    return status;
}

/* Check whether a peer has ended the communicator: it writes that into this rank's region. */
static kolo_status told_to_stop(const struct kolo_comm *comm)
{
    const struct kolo_region *own =
        comm->links.exec_env.region != NULL ? comm->links.exec_env.region[comm->ranks.rank] : NULL;
    const int32_t told =
        own != NULL ? atomic_load_explicit(&own->head.abort, memory_order_relaxed) : 0;
    return told == 0 ? KOLO_OK
                     : kolo_fail((kolo_status)told, "another rank ended this communicator");
}

static kolo_status advance(struct kolo_p2p *p2p)
{
    KOLO_TRY(told_to_stop(p2p->comm));
    KOLO_TRY(begin_started(p2p));
    KOLO_TRY(progress_devices(p2p));
    for (int i = 0; i < p2p->nopened; i++) {
        KOLO_TRY(kolo_p2p_poll(p2p, p2p->peer[p2p->opened[i]]));
    }
    return land(p2p, KOLO_OK);
}

/* ---- after an error ---- */

static void condemn(struct kolo_p2p *p2p, struct kolo_p2p_fifo *fifo, kolo_status status)
{
    for (struct kolo_p2p_op *op = fifo->first; op != NULL; op = op->next) {
        op->end = status;
    }
    append(&p2p->flying, fifo);
}

static void abort_links(struct kolo_p2p *p2p, kolo_status status)
{
    for (int i = 0; !p2p->aborted && i < p2p->nopened; i++) {
        struct kolo_p2p_peer *peer = p2p->peer[p2p->opened[i]];
        peer->transport->abort(peer->link, status);
    }
    p2p->aborted = true;
}

/* Give each operation the status as soon as no transport uses its memory. */
static void give_up(struct kolo_p2p *p2p, kolo_status status)
{
    abort_links(p2p, status);
    (void)progress_devices(p2p);
    empty_inbox(p2p);
    condemn(p2p, &p2p->started, status);
    condemn(p2p, &p2p->any, status);
    for (int q = 0; q < p2p->comm->ranks.nranks; q++) {
        struct kolo_p2p_peer *peer = p2p->peer[q];
        if (peer == NULL) {
            continue;
        }
        condemn(p2p, &peer->posted, status);
        condemn(p2p, &peer->waiting, status);
        if (peer->target != NULL && peer->req.status != KOLO_INPROGRESS) {
            peer->target->end = status;
            kolo_p2p_push(&p2p->flying, peer->target);
            peer->target = NULL;
        }
    }
    (void)land(p2p, status);
}

/* ---- turns ---- */

/* Returns a new failure, for kolo_comm_fail(). Before that call no operation is given back, because
 * its owner asks the communicator for the cause. */
static kolo_status take_turn(struct kolo_p2p *p2p)
{
    const kolo_status error = error_of(p2p->comm);
    if (error != KOLO_OK) {
        give_up(p2p, error);
        return KOLO_OK;
    }
    if (p2p->failure == KOLO_OK) {
        const kolo_status status = advance(p2p);
        p2p->failure = status < 0 ? status : KOLO_OK;
        return p2p->failure;
    }
    return KOLO_OK;
}

/* Whether kolo_p2p_progress() has work: see kolo_p2p_leaves_behind(). */
static bool has_work(const struct kolo_p2p *p2p)
{
    return p2p != NULL && (atomic_load_explicit(&p2p->active, memory_order_relaxed) > 0 ||
                           atomic_load_explicit(&p2p->unheard, memory_order_relaxed) > 0);
}

bool kolo_p2p_leaves_behind(struct kolo_comm *comm)
{
    struct kolo_p2p *p2p = p2p_of(comm);
    if (p2p != NULL && pthread_mutex_trylock(&comm->links.lock) == 0) {
        for (int i = 0; i < p2p->nopened; i++) {
            if (kolo_gone_is(comm, p2p->opened[i])) {
                kolo_p2p_hear(p2p, p2p->peer[p2p->opened[i]]);
            }
        }
        pthread_mutex_unlock(&comm->links.lock);
    }
    return has_work(p2p);
}

static bool is_open(const struct kolo_p2p *p2p, int peer)
{
    return peer == KOLO_ANY_SOURCE ? p2p->hears_all
                                   : p2p->peer[peer] != NULL && p2p->peer[peer]->open;
}

/* Whether the peers of all started messages are connected. */
static bool all_open(struct kolo_p2p *p2p)
{
    empty_inbox(p2p);
    bool open = true;
    for (const struct kolo_p2p_op *op = p2p->started.first; open && op != NULL; op = op->next) {
        open = is_open(p2p, op->peer);
    }
    return open;
}

bool kolo_p2p_is_open(struct kolo_comm *comm, int peer)
{
    struct kolo_p2p *p2p = p2p_of(comm);
    if (p2p == NULL || pthread_mutex_trylock(&comm->links.lock) != 0) {
        return false;
    }
    const bool open = is_open(p2p, peer) && all_open(p2p);
    pthread_mutex_unlock(&comm->links.lock);
    return open;
}

struct kolo_doorbell *kolo_p2p_bell(const struct kolo_comm *comm)
{
    struct kolo_p2p *p2p = p2p_of(comm);
    return p2p != NULL ? atomic_load(&p2p->bell) : NULL;
}

static void ring_peers(const struct kolo_p2p *p2p)
{
    for (int i = 0; i < p2p->ndevices; i++) {
        p2p->device[i].transport->ring(p2p->device[i].device);
    }
}

static bool all_done(struct kolo_p2p *p2p)
{
    return atomic_load_explicit(&p2p->active, memory_order_acquire) == 0;
}

/* One turn, unless another thread takes one now. `connects`: it may connect to a peer. */
static void try_turn(struct kolo_p2p *p2p, bool connects)
{
    struct kolo_comm *comm = p2p->comm;
    if (pthread_mutex_trylock(&comm->links.lock) != 0) {
        return;
    }
    const kolo_status failure = connects || all_open(p2p) ? take_turn(p2p) : KOLO_OK;
    ring_peers(p2p);
    pthread_mutex_unlock(&comm->links.lock);
    if (failure < 0) {
        (void)kolo_comm_fail(comm, failure);
    }
}

kolo_status kolo_p2p_progress(struct kolo_comm *comm)
{
    struct kolo_p2p *p2p = p2p_of(comm);
    const kolo_status error = error_of(comm);
    if (p2p == NULL || (error != KOLO_OK && all_done(p2p))) {
        return error;
    }
    /* Without pending operations, still take a turn now and then for messages of other ranks. */
    if (!has_work(p2p) &&
        atomic_fetch_add_explicit(&p2p->idle, 1, memory_order_relaxed) % IDLE_TURNS != 0) {
        return KOLO_OK;
    }
    try_turn(p2p, true);
    return all_done(p2p) ? error_of(comm) : KOLO_OK;
}

kolo_status kolo_p2p_attempt(struct kolo_p2p_op *op)
{
    KOLO_TRY(kolo_p2p_start(op));
    try_turn(p2p_of(op->comm), false);
    return KOLO_OK;
}

/* ---- close ---- */

static bool lets_go(const struct kolo_p2p *p2p)
{
    for (int i = 0; i < p2p->nopened; i++) {
        const struct kolo_p2p_peer *peer = p2p->peer[p2p->opened[i]];
        if (peer->req.status == KOLO_INPROGRESS || peer->note_req.status == KOLO_INPROGRESS) {
            return false;
        }
    }
    return true;
}

void kolo_p2p_close(struct kolo_comm *comm)
{
    struct kolo_p2p *p2p = p2p_of(comm);
    if (p2p == NULL) {
        return;
    }
    pthread_mutex_lock(&comm->links.lock);
    for (int turn = 0; turn < CLOSE_TURNS && !lets_go(p2p); turn++) {
        abort_links(p2p, KOLO_ERR_ABORTED);
        (void)progress_devices(p2p);
        sched_yield();
    }
    comm->p2p = NULL;
    pthread_mutex_unlock(&comm->links.lock);
    if (!lets_go(p2p)) {
        KOLO_LOG(WARN, NET,
                 "comm %p rank %d: a transport keeps messages after abort; their "
                 "memory is not freed",
                 (void *)comm, comm->ranks.rank);
        return;
    }
    kolo_p2p_forget(p2p);
    p2p_free(p2p);
}
