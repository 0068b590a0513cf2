// SPDX-License-Identifier: Apache-2.0
/* Links to peers and their memory, made when first needed; and how a failure is passed on. */
#include "core/health/flight_recorder.h"
#include "core/health/watchdog.h"
#include "core/setup/join.h"
#include "gpu/hier/hier_path.h"
#include "gpu/path.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* ---- links, when first needed ---- */

/* Whoever fails after this tells the new link; whoever failed before is seen here. */
static kolo_status check_failure(const struct kolo_comm *c)
{
    const int error = atomic_load(&c->error);
    return error == KOLO_OK ? KOLO_OK : kolo_fail((kolo_status)error, "%s", c->error_text);
}

kolo_status kolo_comm_connect(struct kolo_comm *c, int q)
{
    struct kolo_member *m = &c->member[q];
    if (m->link != NULL) {
        return KOLO_OK;
    }
    KOLO_TRY(m->transport->connect(m->device, &m->peer, &m->link));
    c->wires.link[q] = m->link;
    atomic_store(&m->told_link, m->link);
    return check_failure(c);
}

kolo_status kolo_comm_reach(struct kolo_comm *c, int q)
{
    struct kolo_member *m = &c->member[q];
    void *region = NULL;
    size_t len = 0;
    KOLO_TRY(kolo_comm_connect(c, q));
    if (!m->maps || c->wires.region[q] != NULL) {
        return KOLO_OK;
    }
    KOLO_TRY(m->transport->attach(m->link, m->region, &region, &len));
    if (len < kolo_region_bytes(c->wires.phases)) {
        return kolo_fail(KOLO_ERR_INTERNAL, "the region of rank %d has %zu bytes", q, len);
    }
    c->wires.region[q] = region;
    atomic_store(&m->told_region, c->wires.region[q]);
    return check_failure(c);
}

static size_t outbox_bytes(const struct kolo_comm *c)
{
    return kolo_outbox_bytes(c->wires.slot_bytes, c->wires.short_slot_bytes);
}

kolo_status kolo_comm_make_slots(struct kolo_comm *c)
{
    struct kolo_head *head = &c->wires.region[c->rank]->head;
    if (c->slots.ptr != NULL || c->mapper == NULL) {
        return KOLO_OK;
    }
    KOLO_TRY(c->mapper->transport->map(c->mapper->device, NULL, outbox_bytes(c), &c->slots));
    (void)madvise(c->slots.ptr, c->slots.len, MADV_HUGEPAGE);
    c->wires.slots[c->rank] = c->slots.ptr;
    memcpy(head->slots, c->slots.handle, sizeof head->slots);
    atomic_store_explicit(&head->slots_ready, 1, memory_order_release);
    kolo_wake(head);
    KOLO_LOG(INFO, EXEC, "comm %p rank %d outbox %zu bytes", (void *)c, c->rank, c->slots.len);
    return KOLO_OK;
}

kolo_status kolo_comm_map_slots(struct kolo_comm *c, int q)
{
    struct kolo_member *m = &c->member[q];
    void *slots = NULL;
    size_t len = 0;
    if (m->in_slots) {
        return KOLO_OK;
    }
    struct kolo_head *head = &c->wires.region[q]->head;
    if (!kolo_reached(&head->slots_ready, 1)) {
        return KOLO_INPROGRESS;
    }
    KOLO_TRY(m->transport->attach(m->link, head->slots, &slots, &len));
    if (len < outbox_bytes(c)) {
        return kolo_fail(KOLO_ERR_INTERNAL, "the outbox of rank %d has %zu bytes", q, len);
    }
    c->wires.slots[q] = slots;
    m->in_slots = true;
    return KOLO_OK;
}

/* ---- errors ---- */

kolo_status kolo_comm_usable(const struct kolo_comm *comm)
{
    if (KOLO_UNLIKELY(comm == NULL)) {
        return kolo_fail(KOLO_ERR_INVALID, "comm is NULL");
    }
    if (KOLO_UNLIKELY(comm->fork_generation != kolo_fork_generation())) {
        return kolo_fail(KOLO_ERR_FORKED, "this communicator belongs to the parent process");
    }
    const kolo_status error = kolo_comm_error(comm);
    if (KOLO_UNLIKELY(error != KOLO_OK)) {
        const struct kolo_board *board = comm->board;
        const bool own = atomic_load(&comm->error) != KOLO_OK;
        const bool there = board != NULL && atomic_load(&board->verdict.state) == 2;
        return kolo_fail(error, "this communicator has failed: %s",
                         own     ? comm->error_text
                         : there ? board->verdict.text
                                 : "another rank failed or was aborted");
    }
    return KOLO_OK;
}

/* A status in the low 8 bits, negated, and 1 + the rank at fault above. */
int32_t kolo_comm_reason(void *comm)
{
    const struct kolo_comm *c = comm;
    const bool ended = atomic_load(&c->error) != KOLO_OK; /* else a link only, and this is why */
    const int rank = ended ? c->verdict.rank + 1 : atomic_load(&c->heard.rank);
    const int status = ended ? c->verdict.status : KOLO_ERR_LINK;
    return (int32_t)(((uint32_t)rank << 8) | (uint8_t)-status);
}

void kolo_comm_told(void *comm, int rank, int32_t reason)
{
    struct kolo_comm *c = comm;
    if (atomic_load(&c->heard.teller) == 0) {
        atomic_store(&c->heard.reason, reason);
        atomic_store(&c->heard.teller, rank + 1);
    }
}

void kolo_comm_gone(void *comm, int rank, const char *what, int error)
{
    struct kolo_comm *c = comm;
    KOLO_LOG(INFO, NET, "comm %p rank %d: rank %d %s%s%s", comm, c->rank, rank, what,
             error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
    if (atomic_load(&c->heard.rank) == 0) {
        (void)snprintf(c->heard.what, sizeof c->heard.what, "%s", what);
        atomic_store(&c->heard.error, error);
        atomic_store(&c->heard.rank, rank + 1);
    }
}

/* What a peer told, else what was seen here: in this thread's error. */
static bool say_heard(struct kolo_comm *c, kolo_status *status, int *rank)
{
    char who[48];
    const int teller = atomic_load(&c->heard.teller) - 1, lost = atomic_load(&c->heard.rank) - 1;
    const int error = atomic_load(&c->heard.error);
    if (teller >= 0) {
        const int32_t reason = atomic_load(&c->heard.reason);
        *status = (kolo_status)(0 - (reason & 0xff));
        *rank =
            (reason >> 8) - 1 < c->nranks + atomic_load(&c->ranks_above) ? (reason >> 8) - 1 : -1;
        *status = *status < KOLO_OK ? *status : KOLO_ERR_ABORTED;
        if (*rank < c->nranks) {
            kolo_comm_say_rank(c, *rank >= 0 ? *rank : teller, who, sizeof who);
        } else {
            (void)snprintf(who, sizeof who, "rank %d of that above it", *rank - c->nranks);
        }
        kolo_fail(*status, "rank %d ended this communicator (%s): %s %s", teller,
                  kolo_status_name(*status), who,
                  *status == KOLO_ERR_PEER ? "died" : "is the one it is about");
        return true;
    }
    if (lost >= 0 && error == EBADMSG) {
        *status = KOLO_ERR_LINK;
        *rank = lost;
        kolo_comm_say_rank(c, lost, who, sizeof who);
        kolo_fail(*status, "%s %s", who, c->heard.what);
        return true;
    }
    if (lost >= 0) {
        const bool closed = error == 0 || error == ECONNRESET || error == EPIPE;
        *status = closed ? KOLO_ERR_PEER : KOLO_ERR_LINK;
        *rank = lost;
        kolo_comm_say_rank(c, lost, who, sizeof who);
        kolo_fail(*status,
                  closed ? "%s died: its connection ended without a good-bye%s%s"
                         : "%s is not reached any more%s%s",
                  who, error != 0 ? ": " : "", error != 0 ? kolo_why(error) : "");
        return true;
    }
    return false;
}

bool kolo_comm_learn(struct kolo_comm *c)
{
    kolo_status status = KOLO_OK;
    int rank = -1;
    if (atomic_load(&c->error) != KOLO_OK || !say_heard(c, &status, &rank)) {
        return false;
    }
    (void)kolo_comm_fail_of(c, status, rank);
    return true;
}

static void tell_peers(struct kolo_comm *c, kolo_status why)
{
    for (int q = 0; c->member != NULL && q < c->nranks; q++) {
        struct kolo_link *link = atomic_load(&c->member[q].told_link);
        struct kolo_region *region = atomic_load(&c->member[q].told_region);
        int32_t none = 0;
        if (link != NULL) {
            c->member[q].transport->abort(link, why);
        }
        if (region != NULL) {
            atomic_compare_exchange_strong(&region->head.abort, &none, (int32_t)why);
        }
    }
    for (int q = 0; c->member != NULL && q < c->nranks; q++) { /* each sleeps on some other's */
        struct kolo_region *region = atomic_load(&c->member[q].told_region);
        if (region != NULL) {
            kolo_ring(&region->head);
        }
    }
}

/* Transports that carry messages tell their peers when they get a turn. Who holds the lock gives
 * them one soon. */
static void send_news(struct kolo_comm *c)
{
    if (pthread_mutex_trylock(&c->device_lock) == 0) {
        for (int i = 0; i < c->nopened; i++) {
            (void)c->opened[i].transport->progress(c->opened[i].device, 64);
        }
        pthread_mutex_unlock(&c->device_lock);
    }
}

/* This rank was told of another's failure, which says nothing of the reason. */
static bool was_told(const struct kolo_comm *c, kolo_status status)
{
    const struct kolo_region *mine = c->wires.region != NULL ? c->wires.region[c->rank] : NULL;
    return mine != NULL && atomic_load(&mine->head.abort) == (int32_t)status;
}

/* What ended the communicator: what this host's members have agreed on, which is what the first of
 * them wrote; else what this one says. */
static void find_verdict(struct kolo_comm *c, kolo_status status, int rank)
{
    struct kolo_verdict *own = &c->verdict;
    own->status = (int32_t)status;
    own->rank = rank;
    own->seen_by = c->rank;
    own->call = c->post != NULL ? kolo_comm_calls(c) : 0;
    (void)snprintf(own->text, sizeof own->text, "%s",
                   was_told(c, status) ? "another rank failed or was aborted" : kolo_error_text());
    if (c->board != NULL && !kolo_verdict_write(c->board, own)) {
        for (int i = 0; i < 1000 && !kolo_verdict_read(c->board, own); i++) {
            sched_yield(); /* it is being written, by one who may die at it */
        }
    }
    if (own->seen_by == c->rank) {
        (void)snprintf(c->error_text, sizeof c->error_text, "%s", own->text);
    } else {
        (void)snprintf(c->error_text, sizeof c->error_text, "rank %d: %s", own->seen_by, own->text);
    }
}

kolo_status kolo_comm_fail_of(struct kolo_comm *c, kolo_status status, int rank)
{
    pthread_mutex_lock(&c->error_lock);
    kolo_status first = (kolo_status)atomic_load(&c->error);
    const bool is_first = first == KOLO_OK;
    if (is_first) {
        find_verdict(c, status, rank);
        first = (kolo_status)c->verdict.status;
        atomic_store_explicit(&c->error, (int)first, memory_order_release);
        KOLO_LOG(INFO, INIT, "comm %p rank %d failed: %s: %s", (void *)c, c->rank,
                 kolo_status_name(first), c->error_text);
        tell_peers(c, KOLO_ERR_ABORTED);
        send_news(c);
        kolo_device_abort(c);
    }
    pthread_mutex_unlock(&c->error_lock);
    if (is_first && c->above != NULL) {
        kolo_layers_tell(c);
    } else if (is_first) {
        kolo_dump_failed(c);
    }
    kolo_error_set(c->error_text);
    return first;
}

kolo_status kolo_comm_fail(struct kolo_comm *c, kolo_status status)
{
    int q = c->wires.blamed;
    if (status == KOLO_ERR_LINK || status == KOLO_ERR_ABORTED) {
        (void)say_heard(c, &status, &q); /* what is behind it */
    }
    if (status == KOLO_ERR_MISMATCH && q >= 0 && atomic_load(&c->error) == KOLO_OK) {
        (void)kolo_comm_say_mismatch(c, q);
    }
    return kolo_comm_fail_of(c, status, q);
}

void kolo_comm_abort(struct kolo_comm *comm)
{
    if (comm == NULL || comm->fork_generation != kolo_fork_generation()) {
        return;
    }
    kolo_error_set("kolo_comm_abort() was called");
    (void)kolo_comm_fail_of(comm, KOLO_ERR_ABORTED, comm->rank);
}

/* What this rank found, else what another rank told it. */
kolo_status kolo_comm_error(const struct kolo_comm *comm)
{
    if (comm == NULL) {
        return KOLO_ERR_INVALID;
    }
    const int own = atomic_load_explicit(&comm->error, memory_order_acquire);
    const struct kolo_head *head = &comm->wires.region[comm->rank]->head;
    if (own == KOLO_OK && comm->board != NULL &&
        atomic_load_explicit(&comm->board->verdict.state, memory_order_acquire) == 2) {
        return (kolo_status)comm->board->verdict.status;
    }
    return (kolo_status)(own != KOLO_OK ? own
                                        : atomic_load_explicit(&head->abort, memory_order_acquire));
}

kolo_status kolo_comm_failure(struct kolo_comm *comm, struct kolo_failure *out)
{
    if (comm == NULL || out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is NULL", comm == NULL ? "comm" : "out");
    }
    const struct kolo_failure none = {.rank = -1, .seen_by = -1};
    const uint32_t size = out->size;
    struct kolo_failure found = none;
    const kolo_status error = kolo_comm_error(comm);
    if (error != KOLO_OK) {
        if (atomic_load_explicit(&comm->error, memory_order_acquire) == KOLO_OK) {
            kolo_error_set("another rank failed or was aborted");
            (void)kolo_comm_fail_of(comm, error, -1); /* learn what it is */
        }
        pthread_mutex_lock(&comm->error_lock);
        found.status = (kolo_status)comm->verdict.status;
        found.rank = comm->verdict.rank;
        found.seen_by = comm->verdict.seen_by;
        found.call = comm->verdict.call;
        memcpy(found.text, comm->error_text, kolo_min(sizeof found.text, sizeof comm->error_text));
        found.text[sizeof found.text - 1] = '\0';
        pthread_mutex_unlock(&comm->error_lock);
    }
    if (size < sizeof found.size || size > sizeof found) {
        return kolo_fail(KOLO_ERR_INVALID, "out->size is %u; it must be at most %zu", size,
                         sizeof found);
    }
    found.size = size;
    memcpy(out, &found, size);
    return KOLO_OK;
}

int kolo_comm_rank(const struct kolo_comm *comm)
{
    return comm != NULL ? comm->rank : -1;
}

int kolo_comm_size(const struct kolo_comm *comm)
{
    return comm != NULL ? comm->nranks : -1;
}
