// SPDX-License-Identifier: Apache-2.0
/* How a communicator ends: which cause counts, and who is told of it.
 *
 * The first cause wins. Among the ranks of a host the board decides which cause was first. The rank
 * then tells its peers over the links that it has, and its observers. */
#include "core/failure/failure.h"

#include "core/board/text.h"
#include "exec/cpu/wait.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* The text of rank `seen_by`, which found the cause, as this rank tells it. Who found the cause is
 * said unless the text begins with it, as "rank 1 waited ..." does. */
static void say_cause(const struct kolo_comm *c, int seen_by, const char *text, char *out,
                      size_t room)
{
    char begin[32], teller[32] = "";
    const int len = snprintf(begin, sizeof begin, "rank %d ", seen_by);
    if (seen_by != c->ranks.rank && strncmp(text, begin, (size_t)len) != 0) {
        (void)snprintf(teller, sizeof teller, "rank %d says: ", seen_by);
    }
    (void)snprintf(out, room, "%s%s", teller, text);
}

kolo_status kolo_comm_usable(const struct kolo_comm *comm)
{
    if (KOLO_UNLIKELY(comm == NULL)) {
        return kolo_fail(KOLO_ERR_INVALID, "comm is NULL");
    }
    if (KOLO_UNLIKELY(comm->ranks.fork_generation != kolo_fork_generation())) {
        return kolo_fail(KOLO_ERR_FORKED, "this communicator belongs to the parent process");
    }
    const kolo_status error = kolo_comm_error(comm);
    if (KOLO_UNLIKELY(error != KOLO_OK)) {
        const struct kolo_board *board = comm->health.board;
        const bool own = atomic_load(&comm->failure.error) != KOLO_OK;
        const bool there = board != NULL && atomic_load(&board->verdict.state) == 2;
        char told[sizeof comm->failure.text] = "another rank failed or was aborted";
        if (there) {
            say_cause(comm, board->verdict.seen_by, board->verdict.text, told, sizeof told);
        }
        return kolo_fail(error, "this communicator has failed: %s",
                         own ? comm->failure.text : told);
    }
    return KOLO_OK;
}

/* A status in the low 6 bits, negated; enum kolo_end; and 1 + the rank at fault above. */
enum { REASON_STATUS = 0x3f, REASON_END_AT = 6, REASON_END = 3, REASON_RANK_AT = 8 };

int32_t kolo_failure_reason(void *comm)
{
    const struct kolo_comm *c = comm;
    const bool ended =
        atomic_load(&c->failure.error) != KOLO_OK; /* else a link only, and this is why */
    const int rank = ended ? c->failure.verdict.rank + 1 : atomic_load(&c->failure.evidence.rank);
    const int status = ended ? c->failure.verdict.status : KOLO_ERR_LINK;
    const unsigned end = ended ? (unsigned)c->failure.verdict.end & REASON_END : 0;
    return (int32_t)((unsigned)rank << REASON_RANK_AT | end << REASON_END_AT |
                     ((unsigned)-status & REASON_STATUS));
}

void kolo_failure_peer_failed(void *comm, int rank, int32_t reason)
{
    struct kolo_comm *c = comm;
    if (atomic_load(&c->failure.evidence.reporter) == 0) {
        atomic_store(&c->failure.evidence.reason, reason);
        atomic_store(&c->failure.evidence.reporter, rank + 1);
    }
}

static void note_end(struct kolo_comm *c, int rank, int end)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&c->member[rank].end, &none, end + 1)) {
        atomic_fetch_add(&c->health.ends, 1);
    }
}

static bool has_left(const struct kolo_comm *c, int rank)
{
    return rank >= 0 && rank < c->ranks.nranks &&
           atomic_load(&c->member[rank].end) == KOLO_END_LEFT + 1;
}

void kolo_failure_peer_left(struct kolo_comm *c, int rank)
{
    note_end(c, rank, KOLO_END_LEFT);
}

void kolo_failure_text(void *comm, char *out, size_t room)
{
    const struct kolo_comm *c = comm;
    if (atomic_load(&c->failure.error) != KOLO_OK) {
        (void)snprintf(out, room, "%s", c->failure.verdict.text);
    }
}

void kolo_failure_peer_text(void *comm, int rank, const char *text)
{
    struct kolo_comm *c = comm;
    (void)rank;
    if (atomic_load(&c->failure.evidence.reporter) == 0) {
        (void)snprintf(c->failure.evidence.text, sizeof c->failure.evidence.text, "%s", text);
    }
}

void kolo_failure_peer_lost(void *comm, int rank, const char *what, int error)
{
    struct kolo_comm *c = comm;
    if (error == ENOLINK && atomic_load(&c->member[rank].lost)) {
        what = "closed its connection"; /* the watchdog knows that the process is gone */
        error = ECONNRESET;
    }
    KOLO_LOG(INFO, NET, "comm %p rank %d: rank %d %s%s%s", comm, c->ranks.rank, rank, what,
             error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
    if (error == 0 || error == ECONNRESET || error == EPIPE || error == ECONNREFUSED) {
        atomic_store(&c->member[rank].lost, true); /* not if a connection alone is lost: it lives */
        atomic_fetch_add(&c->health.ends, 1);
    }
    if (error == ESHUTDOWN) { /* that ends the communicator only if somebody needs the rank */
        kolo_failure_peer_left(c, rank);
    } else if (atomic_load(&c->failure.evidence.rank) == 0) {
        (void)snprintf(c->failure.evidence.what, sizeof c->failure.evidence.what, "%s", what);
        atomic_store(&c->failure.evidence.error, error);
        atomic_store(&c->failure.evidence.rank, rank + 1);
    }
}

/* ---- evidence: it becomes this thread's error ---- */

static void say_told(struct kolo_comm *c, int reporter, kolo_status *status, int *rank)
{
    char who[48];
    const int32_t reason = atomic_load(&c->failure.evidence.reason);
    const int about = (reason >> REASON_RANK_AT) - 1;
    const int end = reason >> REASON_END_AT & REASON_END;
    *status = (kolo_status)(0 - (reason & REASON_STATUS));
    const int known = c->ranks.nranks + atomic_load(&c->failure.ranks_above);
    *rank = about >= 0 && about < known ? about : -1;
    *status = *status < KOLO_OK ? *status : KOLO_ERR_ABORTED;
    const char *text = c->failure.evidence.text;
    if (*status == KOLO_ERR_MISMATCH && text[0] != '\0') {
        kolo_fail(*status, "%s", text); /* it names both calls */
        return;
    }
    if (*rank >= c->ranks.nranks) {
        (void)snprintf(who, sizeof who, "rank %d of the communicator above",
                       *rank - c->ranks.nranks);
    } else if (*rank >= 0) {
        kolo_say_rank(c, *rank, who, sizeof who);
        if (*status == KOLO_ERR_PEER) {
            note_end(c, *rank, end);
        }
    } else {
        (void)snprintf(who, sizeof who, "the rank at fault");
    }
    if (*status != KOLO_ERR_PEER && text[0] != '\0') {
        kolo_fail(*status, "rank %d ended this communicator (%s): %s", reporter,
                  kolo_status_name(*status), text);
        return;
    }
    kolo_fail(*status, "rank %d ended this communicator (%s): %s %s", reporter,
              kolo_status_name(*status), who,
              *status != KOLO_ERR_PEER ? *rank >= 0 ? "is at fault" : "is not known"
              : end == KOLO_END_LEFT   ? "left: it destroyed its communicator"
              : end == KOLO_END_GONE   ? "is gone"
                                       : "died");
}

static kolo_status say_lost(struct kolo_comm *c, int lost, int *rank)
{
    char who[48];
    const int error = atomic_load(&c->failure.evidence.error);
    const int me = c->ranks.rank;
    *rank = lost;
    kolo_say_rank(c, lost, who, sizeof who);
    switch (error) {
    case EBADMSG:
        return kolo_fail(KOLO_ERR_LINK, "%s %s", who, c->failure.evidence.what);
    case ENOLINK: /* both ends find this, and name the same one */
        *rank = lost > me ? lost : me;
        return kolo_fail(KOLO_ERR_LINK,
                         "the connection of ranks %d and %d was lost, though both live",
                         lost > me ? me : lost, *rank);
    case EBADF:
    case ENOTSOCK:
        *rank = me;
        return kolo_say_closed(c);
    case ECONNREFUSED:
        note_end(c, lost, KOLO_END_GONE);
        return kolo_fail(KOLO_ERR_PEER, "%s is gone: nobody listens at its address any more", who);
    case 0:
    case ECONNRESET:
    case EPIPE:
        return kolo_fail(KOLO_ERR_PEER, "%s died: its connection ended without a good-bye%s%s", who,
                         error != 0 ? ": " : "", error != 0 ? kolo_why(error) : "");
    default:
        return kolo_fail(KOLO_ERR_LINK, "%s is not reached any more: %s", who, kolo_why(error));
    }
}

/* The rank that made a call fail when it left: rank q, or the only rank that has left. -1: several
 * ranks have left; -2: none. */
static int find_left(const struct kolo_comm *c, int q)
{
    int found = -2;
    for (int p = 0; p < c->ranks.nranks && !has_left(c, q); p++) {
        found = !has_left(c, p) ? found : found == -2 ? p : -1;
    }
    return has_left(c, q) ? q : found;
}

/* Take the evidence in this order: the reason that a peer told; the loss that this rank saw; if a
 * call has failed (`failing`) because of *rank (-1: not known), a rank that left before. False:
 * there is no evidence. */
static bool say_evidence(struct kolo_comm *c, bool failing, kolo_status *status, int *rank)
{
    const int reporter = atomic_load(&c->failure.evidence.reporter) - 1,
              lost = atomic_load(&c->failure.evidence.rank) - 1;
    const bool is_gone = lost >= 0 && atomic_load(&c->failure.evidence.error) == ECONNREFUSED;
    if (reporter >= 0) {
        say_told(c, reporter, status, rank);
    } else if (lost >= 0 && !(is_gone && has_left(c, lost))) {
        *status = say_lost(c, lost, rank);
    } else if (lost >= 0 || (failing && find_left(c, *rank) != -2)) {
        *rank = lost >= 0 ? lost : find_left(c, *rank);
        *status = kolo_say_left(c, *rank, kolo_comm_calls(c) == 0);
    } else {
        return false;
    }
    return true;
}

bool kolo_failure_learn(struct kolo_comm *c)
{
    kolo_status status = KOLO_OK;
    int rank = -1;
    if (atomic_load(&c->failure.error) != KOLO_OK || !say_evidence(c, false, &status, &rank)) {
        return false;
    }
    (void)kolo_failure_end(c, status, rank);
    return true;
}

static void tell_peers(struct kolo_comm *c, kolo_status why)
{
    for (int q = 0; c->member != NULL && q < c->ranks.nranks; q++) {
        struct kolo_link *link = atomic_load(&c->member[q].abort_link);
        struct kolo_region *region = atomic_load(&c->member[q].abort_region);
        int32_t none = 0;
        if (link != NULL) {
            c->member[q].transport->abort(link, why);
        }
        if (region != NULL) {
            atomic_compare_exchange_strong(&region->head.abort, &none, (int32_t)why);
        }
    }
    for (int q = 0; c->member != NULL && q < c->ranks.nranks;
         q++) { /* each sleeps on some other's */
        struct kolo_region *region = atomic_load(&c->member[q].abort_region);
        if (region != NULL) {
            kolo_ring(&region->head);
        }
    }
}

/* Transports that carry messages tell their peers when they get a turn. Who holds the lock gives
 * them one soon. */
static void send_news(struct kolo_comm *c)
{
    if (pthread_mutex_trylock(&c->links.lock) == 0) {
        for (int i = 0; i < c->links.nopened; i++) {
            (void)c->links.opened[i].transport->progress(c->links.opened[i].endpoint, 64);
        }
        pthread_mutex_unlock(&c->links.lock);
    }
}

/* This rank was told of another's failure, which says nothing of the reason. */
static bool was_told(const struct kolo_comm *c, kolo_status status)
{
    const struct kolo_region *mine =
        c->links.exec_env.region != NULL ? c->links.exec_env.region[c->ranks.rank] : NULL;
    return mine != NULL && atomic_load(&mine->head.abort) == (int32_t)status;
}

/* What ended the communicator: what this host's members have agreed on, which is what the first of
 * them wrote; else what this one says. */
static void find_verdict(struct kolo_comm *c, kolo_status status, int rank)
{
    struct kolo_verdict *own = &c->failure.verdict;
    own->status = (int32_t)status;
    own->rank = rank;
    own->seen_by = c->ranks.rank;
    own->end = rank >= 0 && rank < c->ranks.nranks ? atomic_load(&c->member[rank].end) : 0;
    own->end = own->end > 0 ? own->end - 1 : KOLO_END_DIED;
    own->call = c->health.slot != NULL ? kolo_comm_calls(c) : 0;
    (void)snprintf(own->text, sizeof own->text, "%s",
                   was_told(c, status) ? "another rank failed or was aborted" : kolo_error_text());
    if (c->health.board != NULL && !kolo_verdict_write(c->health.board, own)) {
        for (int i = 0; i < 1000 && !kolo_verdict_read(c->health.board, own); i++) {
            sched_yield(); /* another rank writes it, and may die meanwhile */
        }
    }
    say_cause(c, own->seen_by, own->text, c->failure.text, sizeof c->failure.text);
}

kolo_status kolo_failure_end(struct kolo_comm *c, kolo_status status, int rank)
{
    pthread_mutex_lock(&c->failure.lock);
    kolo_status first = (kolo_status)atomic_load(&c->failure.error);
    const bool is_first = first == KOLO_OK;
    if (is_first) {
        find_verdict(c, status, rank);
        first = (kolo_status)c->failure.verdict.status;
        atomic_store_explicit(&c->failure.error, (int)first, memory_order_release);
        KOLO_LOG(INFO, INIT, "comm %p rank %d failed: %s: %s", (void *)c, c->ranks.rank,
                 kolo_status_name(first), c->failure.text);
        tell_peers(c, KOLO_ERR_ABORTED);
        send_news(c);
    }
    const int observers = is_first ? c->failure.nobservers : 0;
    pthread_mutex_unlock(&c->failure.lock);
    for (int i = 0; i < observers; i++) {
        c->failure.observer[i].ended(c->failure.observer[i].owner, &c->failure.verdict);
    }
    kolo_error_set(c->failure.text);
    return first;
}

void kolo_failure_observe(struct kolo_comm *c,
                          void (*ended)(void *owner, const struct kolo_verdict *why), void *owner)
{
    pthread_mutex_lock(&c->failure.lock);
    const bool is_over = atomic_load(&c->failure.error) != KOLO_OK;
    if (!is_over) {
        assert(c->failure.nobservers < KOLO_OBSERVERS);
        c->failure.observer[c->failure.nobservers++] = (struct kolo_observer){ended, owner};
    }
    pthread_mutex_unlock(&c->failure.lock);
    if (is_over) {
        ended(owner, &c->failure.verdict);
    }
}

kolo_status kolo_comm_fail(struct kolo_comm *c, kolo_status status)
{
    KOLO_UNCANCELLED;
    int q = c->links.exec_env.blamed;
    if (status == KOLO_ERR_LINK || status == KOLO_ERR_ABORTED) {
        (void)say_evidence(c, true, &status, &q); /* what is behind it */
    }
    if (status == KOLO_ERR_MISMATCH && q >= 0 && atomic_load(&c->failure.error) == KOLO_OK) {
        kolo_say_told(c, q, &c->links.exec_env.came);
    }
    return kolo_failure_end(c, status, q);
}

void kolo_comm_abort(struct kolo_comm *comm)
{
    KOLO_UNCANCELLED;
    if (comm == NULL || comm->ranks.fork_generation != kolo_fork_generation()) {
        return;
    }
    kolo_error_set("kolo_comm_abort() was called");
    (void)kolo_failure_end(comm, KOLO_ERR_ABORTED, comm->ranks.rank);
    /* Whose wait ends by this may leave at once, and others then look for the reason. */
    atomic_fetch_add(&comm->failure.aborts, 1);
}

/* What this rank found, else what another rank told it. */
kolo_status kolo_comm_error(const struct kolo_comm *comm)
{
    if (comm == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "comm is NULL");
    }
    const int own = atomic_load_explicit(&comm->failure.error, memory_order_acquire);
    const struct kolo_head *head = &comm->links.exec_env.region[comm->ranks.rank]->head;
    if (own == KOLO_OK && comm->health.board != NULL &&
        atomic_load_explicit(&comm->health.board->verdict.state, memory_order_acquire) == 2) {
        return (kolo_status)comm->health.board->verdict.status;
    }
    return (kolo_status)(own != KOLO_OK ? own
                                        : atomic_load_explicit(&head->abort, memory_order_acquire));
}

kolo_status kolo_comm_failure(struct kolo_comm *comm, struct kolo_failure *out)
{
    KOLO_UNCANCELLED;
    if (comm == NULL || out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is NULL", comm == NULL ? "comm" : "out");
    }
    const struct kolo_failure none = {.rank = -1, .seen_by = -1};
    const uint32_t size = out->size;
    struct kolo_failure found = none;
    const kolo_status error = kolo_comm_error(comm);
    if (error != KOLO_OK) {
        if (atomic_load_explicit(&comm->failure.error, memory_order_acquire) == KOLO_OK) {
            kolo_error_set("another rank failed or was aborted");
            (void)kolo_failure_end(comm, error, -1); /* learn what it is */
        }
        pthread_mutex_lock(&comm->failure.lock);
        found.status = (kolo_status)comm->failure.verdict.status;
        found.rank = comm->failure.verdict.rank;
        found.seen_by = comm->failure.verdict.seen_by;
        found.call = comm->failure.verdict.call;
        memcpy(found.text, comm->failure.text,
               kolo_min(sizeof found.text, sizeof comm->failure.text));
        found.text[sizeof found.text - 1] = '\0';
        pthread_mutex_unlock(&comm->failure.lock);
    }
    if (size < sizeof found.size || size > sizeof found) {
        return kolo_fail(KOLO_ERR_INVALID, "out->size is %u; it must be at most %zu", size,
                         sizeof found);
    }
    found.size = size;
    memcpy(out, &found, size);
    return KOLO_OK;
}
