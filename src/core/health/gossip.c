// SPDX-License-Identifier: Apache-2.0
/* What ranks without a common board tell each other beside the data.
 *
 * A death must reach ranks that have no link to who died, or to anybody. So the first rank of each
 * host holds links to those of the hosts 1, 2, 4, ... further on, from the start: whoever ends the
 * communicator tells its links, and the news is everywhere after log2(hosts) of them. On its own
 * host it goes over the board.
 * A rank that has waited for a while asks whom it waits for, who in turn answers whom that one
 * waits for in the end. Who gives no answer is where the chain of waits ends. */
#include "core/health/watchdog.h"
#include "core/setup/join.h"

#include <unistd.h>

enum { FRESH_US = 700 * 1000, STEP_US = 50, LAST_STEPS = 3 };

/* Words: whom the sender waits for in the end, and one; its calls; what is wanted. Never 0. */
#define WORD_ASKS  (UINT64_C(1) << 63)
#define WORD_THERE (UINT64_C(1) << 62)
#define WORD_CALLS ((UINT64_C(1) << 30) - 1)

static uint64_t make_word(const struct kolo_comm *c)
{
    const uint64_t calls = kolo_comm_calls(c) & WORD_CALLS;
    return WORD_THERE | calls << 32 | (uint32_t)(kolo_comm_waits_for_last(c) + 1);
}

static void say(struct kolo_comm *c, int q, uint64_t word)
{
    struct kolo_link *link = atomic_load(&c->member[q].told_link);
    if (link != NULL) {
        c->member[q].transport->notify(link, word);
    }
}

void kolo_comm_said(void *comm, int rank, uint64_t word)
{
    struct kolo_comm *c = comm;
    struct kolo_member *m = &c->member[rank];
    atomic_store(&m->word, word);
    atomic_store(&m->word_us, (uint64_t)kolo_now_us());
    if ((word & WORD_ASKS) != 0) {
        say(c, rank, make_word(c));
    }
}

void kolo_mesh_ask(struct kolo_comm *c, int q)
{
    if (kolo_comm_post(c, q) == NULL) {
        say(c, q, make_word(c) | WORD_ASKS);
    }
}

bool kolo_mesh_knows(const struct kolo_comm *c, int q, int *waits_for_out, uint64_t *calls_out)
{
    const struct kolo_member *m = &c->member[q];
    const uint64_t word = atomic_load(&m->word);
    if (word == 0 || kolo_now_us() - (double)atomic_load(&m->word_us) > FRESH_US) {
        return false;
    }
    *waits_for_out = (int)(uint32_t)word - 1;
    *calls_out = word >> 32 & WORD_CALLS; /* of ours, the nearest that ends in these bits */
    *calls_out |= kolo_comm_calls(c) & ~WORD_CALLS;
    return true;
}

/* ---- links from the start ---- */

/* Who speaks for rank q's host: its first rank; without a board each for itself. */
static int speaker(const struct kolo_comm *c, const struct kolo_ready *all, int q)
{
    int first = 0;
    while (c->host_of[first] != c->host_of[q]) {
        first++;
    }
    return all[first].has_board ? first : q;
}

/* This rank's place among the speakers, in the order of ranks, and how many they are. */
static int place_among(const struct kolo_comm *c, const struct kolo_ready *all, int *count_out)
{
    int place = -1;
    *count_out = 0;
    for (int q = 0; q < c->nranks; q++) {
        if (speaker(c, all, q) == q) {
            place = q == c->rank ? *count_out : place;
            ++*count_out;
        }
    }
    return place;
}

static bool is_neighbour(int a, int b, int count)
{
    const int ahead = (b - a + count) % count, behind = count - ahead;
    return a != b && ((ahead & (ahead - 1)) == 0 || (behind & (behind - 1)) == 0);
}

static bool can_say(const struct kolo_comm *c, int q)
{
    return c->member[q].transport != NULL &&
           (c->member[q].transport->caps & KOLO_CAP_NOTIFY) != 0 &&
           c->member[q].peer.process != c->member[c->rank].peer.process;
}

kolo_status kolo_mesh_begin(struct kolo_comm *c, const struct kolo_ready *all)
{
    int count = 0, at = 0;
    const int mine = place_among(c, all, &count);
    kolo_status st = KOLO_OK;
    pthread_mutex_lock(&c->device_lock);
    for (int q = 0; q < c->nranks && mine >= 0 && st == KOLO_OK; q++) {
        if (speaker(c, all, q) == q && is_neighbour(mine, at++, count) && can_say(c, q)) {
            st = kolo_comm_connect(c, q);
            c->member[q].in_mesh = st == KOLO_OK;
            say(c, q, make_word(c));
        }
    }
    pthread_mutex_unlock(&c->device_lock);
    return st;
}

static bool step(struct kolo_comm *c)
{
    bool all_there = true;
    pthread_mutex_lock(&c->device_lock);
    for (int i = 0; i < c->nopened; i++) {
        if ((c->opened[i].transport->caps & KOLO_CAP_NOTIFY) != 0) {
            (void)c->opened[i].transport->progress(c->opened[i].device, 64);
        }
    }
    pthread_mutex_unlock(&c->device_lock);
    for (int q = 0; q < c->nranks; q++) {
        all_there = all_there && (!c->member[q].in_mesh || atomic_load(&c->member[q].word) != 0);
    }
    return all_there;
}

/* Who is heard hears what was said to it at the next step, by which the link was up. */
kolo_status kolo_mesh_join(struct kolo_comm *c, const struct kolo_boot *boot)
{
    const double deadline = kolo_now_us() + c->timeout_ms * 1e3;
    for (int more = LAST_STEPS; more > 0 && !kolo_boot_has_ended(boot);) {
        more -= step(c);
        KOLO_TRY(kolo_comm_usable(c));
        if (kolo_now_us() > deadline) {
            int q = 0;
            while (q + 1 < c->nranks &&
                   (!c->member[q].in_mesh || atomic_load(&c->member[q].word) != 0)) {
                q++;
            }
            return kolo_fail(KOLO_ERR_TIMEOUT, "rank %d was not reached over %s in %d ms", q,
                             c->member[q].transport->base.name, c->timeout_ms);
        }
        if (more == LAST_STEPS) {
            usleep(STEP_US);
        }
    }
    return KOLO_OK;
}
