// SPDX-License-Identifier: Apache-2.0
/* What the watchdog finds when it looks at one communicator. */
#include "core/health/look.h"

#include "core/board/text.h"
#include "core/failure/failure.h"
#include "core/health/calls.h"
#include "core/link/links.h"
#include "core/path.h"

enum { COMPARED = 8, STILL_US = 2500 * 1000 };

bool kolo_look_has_rank(const struct kolo_comm *c, int q)
{
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    return !atomic_load(&c->member[q].lost) && slot != NULL &&
           atomic_load(&slot->presence) == KOLO_PRESENCE_HERE;
}

void kolo_look_lose_rank(struct kolo_comm *c, int q, bool lives)
{
    char who[48], call[128];
    const bool is_here = kolo_look_has_rank(c, q);
    struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    if (slot != NULL) { /* first: the others know it even if this process dies before it fails */
        kolo_fate_note(c->health.board, slot, lives ? KOLO_FATE_CLOSED : KOLO_FATE_DIED);
    }
    const bool was_lost = atomic_exchange(&c->member[q].lost, true);
    atomic_fetch_add(&c->health.ends, was_lost ? 0 : 1);
    if (was_lost || !is_here) {
        return; /* it has left, or may have left, or never came, which the rendezvous reports */
    }
    const uint64_t begun = atomic_load(&slot->begun);
    kolo_say_rank(c, q, who, sizeof who);
    kolo_say_call(c, q, begun, call, sizeof call);
    (void)kolo_fail(KOLO_ERR_PEER, "%s %s; %s%s", who,
                    lives ? "is gone: its process lives, but has closed the descriptors of kolo or "
                            "become another program"
                          : "died: its process ended without kolo_comm_destroy()",
                    begun > 0 ? "the last that it had begun was " : "it had begun ", call);
    (void)kolo_failure_end(c, KOLO_ERR_PEER, q);
}

void kolo_look_fates(struct kolo_comm *c)
{
    const struct kolo_board *board = c->health.board;
    const uint32_t fates =
        board != NULL ? atomic_load_explicit(&board->fates, memory_order_acquire) : 0;
    for (int q = 0; fates != c->health.seen_fates && q < c->ranks.nranks; q++) {
        const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
        const uint32_t fate = slot != NULL ? atomic_load(&slot->fate) : KOLO_FATE_NONE;
        if (fate != KOLO_FATE_NONE && q != c->ranks.rank) {
            kolo_look_lose_rank(c, q, fate == KOLO_FATE_CLOSED);
        }
    }
    c->health.seen_fates = fates;
}

void kolo_look_lose_descriptors(struct kolo_comm *c)
{
    const int me = c->ranks.rank;
    bool alone = true;
    for (int q = 0; q < c->ranks.nranks; q++) {
        alone = alone && c->member[q].peer.process == c->member[me].peer.process;
    }
    if (!alone && atomic_load(&c->failure.error) == KOLO_OK) {
        (void)kolo_failure_end(c, kolo_say_closed(c), me);
    }
}

/* Of this rank and of those that it is compared with. */
static uint64_t calls_seen(const struct kolo_comm *c)
{
    uint64_t sum = 0;
    for (int i = 0; i <= COMPARED && i < c->ranks.nranks; i++) {
        const struct kolo_board_slot *slot =
            kolo_comm_slot(c, (c->ranks.rank + i) % c->ranks.nranks);
        sum += slot != NULL ? atomic_load_explicit(&slot->begun, memory_order_relaxed) : 0;
    }
    return sum;
}

/* Whether the communicator has peers of which only connections tell. */
static bool has_far_peers(const struct kolo_comm *c)
{
    return c->ranks.nranks > 1 && (c->ranks.nhosts > 1 || c->links.mapper == NULL);
}

void kolo_look_contact(void *comm, int rank)
{
    struct kolo_comm *c = comm;
    atomic_store(&c->member[rank].calls_on, true);
    atomic_store(&c->health.contacts, true);
}

/* Connect to the ranks that have connected to this one. They may ask whom this rank waits for. */
static void answer_contacts(struct kolo_comm *c)
{
    if (!atomic_exchange(&c->health.contacts, false)) {
        return;
    }
    for (int q = 0; q < c->ranks.nranks; q++) {
        if (atomic_exchange(&c->member[q].calls_on, false) && c->member[q].transport != NULL &&
            (c->member[q].transport->caps & KOLO_CAP_MAP) == 0) {
            (void)kolo_links_connect(c, q);
        }
    }
}

void kolo_look_listen(struct kolo_comm *c)
{
    for (int i = 0; i < c->links.nopened; i++) {
        const struct kolo_opened *o = &c->links.opened[i];
        if ((o->transport->caps & KOLO_CAP_MAP) == 0) {
            (void)o->transport->progress(o->endpoint, 16);
        }
    }
    answer_contacts(c);
}

/* What came over connections while no call looks. */
static void listen_to_peers(struct kolo_comm *c)
{
    if (has_far_peers(c)) {
        kolo_calls_tell(c);
    }
    if (has_far_peers(c) && pthread_mutex_trylock(&c->links.lock) == 0) {
        kolo_look_listen(c);
        kolo_calls_compare(c);
        pthread_mutex_unlock(&c->links.lock);
    }
}

/* End the communicator if a kernel of its path has given up. */
static bool learn_of_path(struct kolo_comm *c)
{
    int rank = -1;
    const kolo_status st = kolo_path_poll(c, &rank);
    if (st != KOLO_OK) {
        (void)kolo_failure_end(c, st, rank);
    }
    return st != KOLO_OK;
}

void kolo_look_say_runs(struct kolo_comm *c)
{
    atomic_store_explicit(&c->health.slot->ran_ms, (uint32_t)(uint64_t)(kolo_now_us() / 1e3),
                          memory_order_relaxed);
}

bool kolo_look_has_run(const struct kolo_comm *c, int q)
{
    enum { JUST_NOW_MS = 250 };
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    const uint32_t now_ms = (uint32_t)(uint64_t)(kolo_now_us() / 1e3);
    return slot != NULL &&
           now_ms - atomic_load_explicit(&slot->ran_ms, memory_order_relaxed) < JUST_NOW_MS;
}

/* Processes that this one cannot see in /proc show on the board that they run. */
static void watch_beats(struct kolo_comm *c)
{
    atomic_fetch_add_explicit(&c->health.slot->beats, 1, memory_order_relaxed);
    kolo_look_say_runs(c);
    bool sees_all = true;
    for (int q = 0; q < c->ranks.nranks && !c->health.sees_all; q++) {
        struct kolo_member *m = &c->member[q];
        const struct kolo_board_slot *slot =
            atomic_load(&m->pid_here) == 0 ? kolo_comm_slot(c, q) : NULL;
        const uint32_t beats =
            slot != NULL ? atomic_load_explicit(&slot->beats, memory_order_relaxed) : m->beats;
        if (beats != m->beats) {
            m->beats = beats;
            atomic_store(&m->beats_us, (uint64_t)kolo_now_us());
        }
        sees_all = sees_all && slot == NULL;
    }
    c->health.sees_all = sees_all;
}

bool kolo_look_is_still(const struct kolo_comm *c, int q)
{
    const uint64_t then = atomic_load(&c->member[q].beats_us);
    return then != 0 && kolo_now_us() - (double)then > STILL_US;
}

bool kolo_look_at(struct kolo_comm *c)
{
    struct kolo_verdict verdict;
    watch_beats(c);
    kolo_look_fates(c);
    if (c->health.serve != NULL) {
        c->health.serve(c);
    }
    if (atomic_load(&c->failure.error) != KOLO_OK) {
        return false;
    }
    listen_to_peers(c);
    if (kolo_calls_learn(c) || kolo_failure_learn(c) || learn_of_path(c)) {
        return true;
    }
    if (c->health.board == NULL) {
        return false;
    }
    if (kolo_verdict_read(c->health.board, &verdict)) {
        kolo_error_set(verdict.text);
        (void)kolo_failure_end(c, (kolo_status)verdict.status, verdict.rank);
        return true;
    }
    const uint64_t calls = calls_seen(c);
    if (calls == c->health.seen_calls) {
        return false;
    }
    c->health.seen_calls = calls;
    /* A rank in another call differs from some of these, or they differ from others. */
    for (int i = 1; i <= COMPARED && i < c->ranks.nranks; i++) {
        const int q = (c->ranks.rank + i) % c->ranks.nranks;
        if (kolo_say_mismatch(c, q)) {
            (void)kolo_failure_end(c, KOLO_ERR_MISMATCH, q);
        }
    }
    return true;
}

/* ---- the connections that the watchdog sleeps on ---- */

enum { HEAR_MS = 10 /* a busy connection is heard so often */ };

static bool listens(const struct kolo_comm *c)
{
    return has_far_peers(c) && atomic_load(&c->failure.error) == KOLO_OK;
}

bool kolo_look_ears_any(const struct kolo_comm *comms)
{
    const struct kolo_comm *c = comms;
    while (c != NULL && c->health.serve == NULL && !listens(c)) {
        c = c->health.next;
    }
    return c != NULL;
}

static bool hear(struct kolo_comm *c)
{
    if (!listens(c) || pthread_mutex_trylock(&c->links.lock) != 0) {
        return false;
    }
    kolo_look_listen(c);
    pthread_mutex_unlock(&c->links.lock);
    return kolo_failure_learn(c);
}

/* None while a call runs, which looks itself. Calls open and close links under the lock. */
static int find_ears(struct kolo_comm *c, struct pollfd *out, int room)
{
    int count = 0;
    if (!listens(c) || atomic_load(&c->queue.busy) != 0 ||
        pthread_mutex_trylock(&c->links.lock) != 0) {
        return 0;
    }
    for (int i = 0; i < c->links.nopened && count < room; i++) {
        const struct kolo_opened *o = &c->links.opened[i];
        const bool maps = (o->transport->caps & KOLO_CAP_MAP) != 0;
        const int fd = maps ? -1 : o->transport->wait_fd(o->endpoint);
        if (fd >= 0) {
            out[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
    pthread_mutex_unlock(&c->links.lock);
    return count;
}

void kolo_look_ears_prepare(struct kolo_comm *comms, bool heard, int left_ms, struct kolo_ears *out)
{
    bool is_deaf = heard;
    for (struct kolo_comm *c = comms; c != NULL && !heard; c = c->health.next) {
        const int found = find_ears(c, &out->on[out->count], KOLO_EARS - out->count);
        is_deaf = is_deaf || (found == 0 && listens(c));
        out->count += found;
    }
    /* A call may end meanwhile, after which nobody looks. */
    out->ms = is_deaf && left_ms > HEAR_MS ? HEAR_MS : left_ms;
}

bool kolo_look_ears_have(const struct kolo_ears *ears, int from, int end)
{
    while (from < end && ears->on[from].revents == 0) {
        from++;
    }
    return from < end;
}

bool kolo_look_ears_hear(struct kolo_comm *comms)
{
    bool changed = false;
    for (struct kolo_comm *c = comms; c != NULL; c = c->health.next) {
        changed = hear(c) || changed;
    }
    return changed;
}
