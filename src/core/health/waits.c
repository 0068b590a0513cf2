// SPDX-License-Identifier: Apache-2.0
/* Which rank waits for which, as far as this rank knows: from the board for ranks of this host,
 * from their last word for the others.
 *
 * A rank may wait for several others at once, so the waits are a graph. The rank that holds the job
 * up waits for nobody, and others wait for it: it is a sink. A short wait is not on the board yet.
 * So a rank must be a sink for a while before it is named (diagnose.c). */
#include "core/health/waits.h"

#include "core/board/text.h"
#include "core/health/look.h"

#include <stdlib.h>

enum { FRESH_LEAST_US = 700 * 1000, FRESH_MOST_US = 3 * 1000 * 1000, ANYBODY = 1 };

/* How old a word or a look may be. A rank that waits renews both ten times a second, unless its
 * host gives it no time; a longer time limit allows for more of that. */
static double fresh_us(const struct kolo_comm *c)
{
    const double third = c->options.timeout_ms * 1e3 / 3;
    return third < FRESH_LEAST_US ? FRESH_LEAST_US : third > FRESH_MOST_US ? FRESH_MOST_US : third;
}

bool kolo_waits_is_stopped(const struct kolo_comm *c, int q)
{
    if (q >= 0 && q < c->ranks.nranks && kolo_look_has_run(c, q)) {
        return false; /* many ranks wait, and ask of many */
    }
    const int pid = q >= 0 && q < c->ranks.nranks ? atomic_load(&c->member[q].pid_here) : 0;
    const char state = pid > 0 ? kolo_process_state(pid) : 0;
    return state == 'T' || state == 't' || (pid == 0 && q >= 0 && kolo_look_is_still(c, q));
}

bool kolo_waits_known(const struct kolo_comm *c, int q, int *waits_for_out, uint64_t *calls_out)
{
    const struct kolo_member *m = &c->member[q];
    const uint64_t word = atomic_load(&m->word);
    if (word == 0 || kolo_now_us() - (double)atomic_load(&m->word_us) > fresh_us(c)) {
        return false;
    }
    *waits_for_out = (int)(uint32_t)word - 1;
    *calls_out = word >> 32 & KOLO_WORD_CALLS; /* of ours, the nearest that ends in these bits */
    *calls_out |= kolo_comm_calls(c) & ~KOLO_WORD_CALLS;
    return true;
}

/* ---- messages ---- */

static uint32_t now_ms(void)
{
    return (uint32_t)(uint64_t)(kolo_now_us() / 1e3);
}

static _Atomic uint64_t *message_place(const struct kolo_comm *c, int peer)
{
    return &c->health.slot->message[peer < 0 ? 0 : peer % KOLO_SLOT_MESSAGES];
}

static uint32_t message_peer(int peer)
{
    return peer < 0 ? ANYBODY : (uint32_t)peer + 2;
}

void kolo_waits_message(struct kolo_comm *c, int peer, bool blocks)
{
    const uint32_t word = message_peer(peer) | (blocks ? KOLO_SLOT_BLOCKS : 0);
    atomic_store_explicit(message_place(c, peer), (uint64_t)now_ms() << 32 | word,
                          memory_order_relaxed);
}

void kolo_waits_message_over(struct kolo_comm *c, int peer)
{
    _Atomic uint64_t *at = message_place(c, peer);
    if (((uint32_t)atomic_load(at) & ~KOLO_SLOT_BLOCKS) == message_peer(peer)) {
        atomic_store(at, 0);
    }
}

/* ---- circles ---- */

/* Whether a slot's word about a message says that the rank waits now. */
static bool is_fresh(const struct kolo_comm *c, uint64_t word)
{
    const uint32_t age_ms = now_ms() - (uint32_t)(word >> 32);
    return word != 0 && age_ms * 1e3 <= fresh_us(c);
}

/* The only rank that rank q waits for. NOBODY: there is none, or several, or rank q may do other
 * work meanwhile, or is on another host. *in_call: the wait is a collective's. */
static int only_next(const struct kolo_comm *c, int q, bool *in_call)
{
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    if (slot == NULL) {
        return KOLO_WAITS_NOBODY;
    }
    int next = atomic_load_explicit(&slot->waits_for, memory_order_relaxed) - 1;
    *in_call = *in_call || next >= 0;
    for (int i = 0; i < KOLO_SLOT_MESSAGES; i++) {
        const uint64_t word = atomic_load_explicit(&slot->message[i], memory_order_relaxed);
        const int peer = (int)((uint32_t)word & ~KOLO_SLOT_BLOCKS) - 2;
        if (!is_fresh(c, word)) {
            continue;
        }
        const bool blocks = ((uint32_t)word & KOLO_SLOT_BLOCKS) != 0;
        if (!blocks || peer < 0 || (next >= 0 && next != peer)) {
            return KOLO_WAITS_NOBODY;
        }
        next = peer;
    }
    return next < c->ranks.nranks && next != q ? next : KOLO_WAITS_NOBODY;
}

/* The lowest rank of the circle that the wait for `peer` leads to; NOBODY: there is none. */
static int find_circle(const struct kolo_comm *c, int peer, bool *in_call)
{
    int q = peer;
    for (int i = 0; i < c->ranks.nranks && q >= 0; i++) { /* then it is in the circle */
        q = only_next(c, q, in_call);
    }
    int lowest = q;
    *in_call = false;
    for (int i = 0; i < c->ranks.nranks && q >= 0; i++) { /* once round, or more often */
        q = only_next(c, q, in_call);
        lowest = q < lowest ? q : lowest;
    }
    return lowest >= 0 ? lowest : KOLO_WAITS_NOBODY;
}

int kolo_waits_circle(const struct kolo_comm *c, int peer, int *out, int most)
{
    bool in_call = false;
    const int first = find_circle(c, peer, &in_call);
    int n = 0;
    for (int q = first; q >= 0 && n < c->ranks.nranks && (n == 0 || q != first); n++) {
        if (n < most) {
            out[n] = q;
        }
        q = only_next(c, q, &in_call);
        n = q < 0 ? -1 : n; /* it has gone on meanwhile */
    }
    return n > 1 ? n : 0;
}

/* ---- the search ---- */

struct search {
    const struct kolo_comm *comm;
    bool *seen;
    int *open; /* ranks that were reached and not looked at */
    int nopen;
    int sink, stopped; /* NOBODY: none yet; UNKNOWN: several */
    bool unsure;       /* a rank may do other work while its messages are under way */
};

static void reach_rank(struct search *s, int q)
{
    if (q >= 0 && q < s->comm->ranks.nranks && !s->seen[q]) { /* else it is not known which */
        s->seen[q] = true;
        s->open[s->nopen++] = q;
    }
}

static void add_one(int *one, int q)
{
    *one = *one == KOLO_WAITS_NOBODY || *one == q ? q : KOLO_WAITS_UNKNOWN;
}

/* Reach rank `next`, for which the rank of `slot` waits. If `next` is on another host, only the
 * rank that waits for it asks it. Then reach the rank with which it answered: the end of the chain.
 */
static void follow_wait(struct search *s, const struct kolo_board_slot *slot, int next)
{
    const bool here = kolo_comm_slot(s->comm, next) != NULL || next == s->comm->ranks.rank;
    const int last = atomic_load_explicit(&slot->waits_for_last, memory_order_relaxed) - 1;
    const bool asks = here || slot == s->comm->health.slot || last == KOLO_WAITS_NOBODY;
    reach_rank(s, asks ? next : last);
}

/* Reach the ranks that the rank of this slot waits for. False: it waits for nobody. */
static bool follow_slot(struct search *s, const struct kolo_board_slot *slot)
{
    const int next = atomic_load_explicit(&slot->waits_for, memory_order_relaxed) - 1;
    bool waits = next >= 0, blocks = waits;
    if (waits) {
        follow_wait(s, slot, next);
    }
    for (int i = 0; i < KOLO_SLOT_MESSAGES; i++) {
        const uint64_t word = atomic_load_explicit(&slot->message[i], memory_order_relaxed);
        if (is_fresh(s->comm, word)) {
            follow_wait(s, slot, (int)((uint32_t)word & ~KOLO_SLOT_BLOCKS) - 2);
            blocks = blocks || ((uint32_t)word & KOLO_SLOT_BLOCKS) != 0;
            waits = true;
        }
    }
    s->unsure = s->unsure || (waits && !blocks);
    return waits;
}

/* Look at a rank that was reached. */
static void look_at(struct search *s, int q)
{
    const struct kolo_comm *c = s->comm;
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    int next = KOLO_WAITS_NOBODY;
    uint64_t calls = 0;
    if (q == c->ranks.rank) {
        return; /* it waits; otherwise there would be no search */
    }
    if (kolo_waits_is_stopped(c, q)) {
        add_one(&s->stopped, q);
    } else if (slot != NULL) {
        if (!follow_slot(s, slot)) {
            add_one(&s->sink, q);
        }
    } else if (!kolo_waits_known(c, q, &next, &calls) || next == KOLO_WAITS_NOBODY || next == q) {
        add_one(&s->sink, q); /* silent, or it says that it waits for nobody */
    } else {
        reach_rank(s, next);
    }
}

static void run_search(struct search *s)
{
    while (s->nopen > 0) {
        look_at(s, s->open[--s->nopen]);
    }
}

/* The chains lead round in a circle, or the wait is for any rank. Reach all ranks if the board has
 * all. */
static void reach_all(struct search *s)
{
    const struct kolo_comm *c = s->comm;
    for (int q = 0; q < c->ranks.nranks; q++) {
        const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
        if (slot == NULL) {
            s->nopen = 0;
            return;
        }
        if (atomic_load(&slot->presence) == KOLO_PRESENCE_HERE) {
            reach_rank(s, q);
        }
    }
}

static bool has_found(const struct search *s)
{
    return s->stopped != KOLO_WAITS_NOBODY || s->sink != KOLO_WAITS_NOBODY;
}

/* `peer`: the rank that this one waits for; NOBODY: any, or several. A rank of a collective may
 * wait for more ranks than its slot says. So a circle of messages only is certain before all ranks
 * were looked at. */
static int find_sink(struct search *s, int peer)
{
    bool in_call = false;
    run_search(s);
    const bool circle =
        peer >= 0 && !has_found(s) && !s->unsure && find_circle(s->comm, peer, &in_call) >= 0;
    if (!has_found(s) && !(circle && !in_call)) {
        reach_all(s);
        run_search(s);
    }
    if (circle && !has_found(s) && !s->unsure) {
        return KOLO_WAITS_CIRCLE;
    }
    const int sink = s->unsure ? KOLO_WAITS_UNKNOWN : s->sink;
    const int found = s->stopped != KOLO_WAITS_NOBODY ? s->stopped : sink;
    return found >= 0 ? found : KOLO_WAITS_UNKNOWN;
}

/* Search from `peer`, or, with `all`, from every rank that this rank waits for. */
static int search_from(const struct kolo_comm *c, int peer, bool all)
{
    const size_t n = (size_t)c->ranks.nranks;
    struct search s = {.comm = c,
                       .seen = calloc(n, sizeof(bool)),
                       .open = calloc(n, sizeof(int)),
                       .sink = KOLO_WAITS_NOBODY,
                       .stopped = KOLO_WAITS_NOBODY};
    int found = KOLO_WAITS_UNKNOWN;
    if (s.seen != NULL && s.open != NULL) {
        s.seen[c->ranks.rank] = true;
        if (!all) {
            reach_rank(&s, peer);
        }
        found = all && !follow_slot(&s, c->health.slot) ? KOLO_WAITS_NOBODY : find_sink(&s, peer);
    }
    free(s.seen);
    free(s.open);
    return found;
}

int kolo_waits_end(const struct kolo_comm *c, int peer)
{
    return search_from(c, peer, false);
}

int kolo_waits_last(const struct kolo_comm *c)
{
    return search_from(c, KOLO_WAITS_NOBODY, true);
}

/* ---- two communicators ---- */

enum { CROSSED_US = 200000 };

/* Rank `r` of `d` waits there for this rank, in a call that this rank has not made. */
static bool waits_in(const struct kolo_comm *d, int r)
{
    const struct kolo_board_slot *slot = kolo_comm_slot(d, r);
    return slot != NULL && slot->waits_for == d->ranks.rank + 1 &&
           kolo_comm_calls(d) < slot->begun && kolo_now_us() - (double)slot->since_us > CROSSED_US;
}

/* Whether all threads of rank r's process wait in its last call. The number of the call tells this
 * wait from earlier ones. */
static bool is_stuck(const struct kolo_comm *d, int r)
{
    const struct kolo_board_slot *slot = kolo_comm_slot(d, r);
    return slot != NULL && atomic_load_explicit(&slot->stuck, memory_order_acquire) == slot->begun;
}

static void say_crossed(const struct kolo_comm *c, int q, const struct kolo_comm *d, int r)
{
    char mine[128], other[128];
    kolo_say_call(c, c->ranks.rank, kolo_comm_calls(c), mine, sizeof mine);
    kolo_say_call(d, r, kolo_comm_slot(d, r)->begun, other, sizeof other);
    (void)kolo_fail(KOLO_ERR_MISMATCH,
                    "rank %d waits in %s of %s (%llx) for rank %d, and that one in %s of %s (%llx) "
                    "for the other: the communicators are used in another order",
                    c->ranks.rank, mine, c->ranks.name, (unsigned long long)c->ranks.id, q, other,
                    d->ranks.name, (unsigned long long)d->ranks.id);
}

bool kolo_waits_cross(struct kolo_comm *comms, const struct kolo_comm *c, int q,
                      struct kolo_crossed *out)
{
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    if (slot == NULL || slot->begun >= kolo_comm_calls(c)) {
        return false;
    }
    for (struct kolo_comm *d = comms; d != NULL; d = d->health.next) {
        for (int r = 0; r < d->ranks.nranks && d != c; r++) {
            if (d->member[r].peer.process != c->member[q].peer.process) {
                continue;
            }
            const bool stuck = is_stuck(d, r); /* first, so that both are of the same wait */
            if (waits_in(d, r)) {
                *out = (struct kolo_crossed){d, r, stuck};
                say_crossed(c, q, d, r);
                return true;
            }
        }
    }
    return false;
}
