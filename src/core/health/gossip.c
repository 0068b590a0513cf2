// SPDX-License-Identifier: Apache-2.0
/* Gossip: what ranks without a common board tell each other beside the data.
 *
 * A death must reach ranks that have no link to the dead rank, or to any rank. So the first rank of
 * each host has links to the first ranks of the hosts 1, 2, 4, ... further on, from the start. A
 * rank that ends the communicator tells it over its links, and the news is everywhere after
 * log2(hosts) steps. On its own host it goes over the board.
 *
 * A rank that has waited for a while asks the rank that it waits for. That rank answers with the
 * rank that its own wait depends on in the end. A rank that gives no answer is the end of the chain
 * of waits. With each word goes the last call of its sender, which calls.c compares. */
#include "core/health/gossip.h"

#include "core/failure/failure.h"
#include "core/health/waits.h"
#include "core/link/links.h"

#include <unistd.h>

enum { STEP_US = 50, LAST_STEPS = 3 };

/* Words: whom the sender waits for in the end, and one; its calls; what is wanted. Never 0. */
#define WORD_ASKS  (UINT64_C(1) << 63)
#define WORD_THERE (UINT64_C(1) << 62)

static uint64_t make_word(const struct kolo_comm *c)
{
    const uint64_t calls = kolo_comm_calls(c) & KOLO_WORD_CALLS;
    return WORD_THERE | calls << 32 | (uint32_t)(kolo_waits_last(c) + 1);
}

static void say_word(struct kolo_comm *c, int q, uint64_t word)
{
    struct kolo_link *link = atomic_load(&c->member[q].abort_link);
    if (link != NULL) {
        c->member[q].transport->notify(link, word);
    }
}

void kolo_gossip_said(void *comm, int rank, uint64_t word)
{
    struct kolo_comm *c = comm;
    struct kolo_member *m = &c->member[rank];
    if ((word & WORD_ASKS) != 0) {
        uint64_t none = 0; /* it is heard; only an answer shows that it hears this rank */
        (void)atomic_compare_exchange_strong(&m->word, &none, word);
        say_word(c, rank, make_word(c));
    } else {
        atomic_store(&m->word, word);
        atomic_store(&m->word_us, (uint64_t)kolo_now_us());
    }
}

void kolo_gossip_ask(struct kolo_comm *c, int q)
{
    if (kolo_comm_slot(c, q) == NULL) {
        say_word(c, q, make_word(c) | WORD_ASKS);
    }
}

void kolo_gossip_tell(struct kolo_comm *c)
{
    const uint64_t word = make_word(c);
    for (int q = 0; q < c->ranks.nranks; q++) {
        if (c->member[q].in_gossip) {
            say_word(c, q, word);
        }
    }
}

/* ---- links from the start ---- */

/* Who speaks for rank q's host: its first rank; without a board each for itself. */
static int speaker(const struct kolo_comm *c, const bool *has_board, int q)
{
    int first = 0;
    while (c->ranks.host_of[first] != c->ranks.host_of[q]) {
        first++;
    }
    return has_board[first] ? first : q;
}

/* This rank's place among the speakers, in the order of ranks, and how many they are. */
static int place_among(const struct kolo_comm *c, const bool *has_board, int *count_out)
{
    int place = -1;
    *count_out = 0;
    for (int q = 0; q < c->ranks.nranks; q++) {
        if (speaker(c, has_board, q) == q) {
            place = q == c->ranks.rank ? *count_out : place;
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
           c->member[q].peer.process != c->member[c->ranks.rank].peer.process;
}

kolo_status kolo_gossip_begin(struct kolo_comm *c, const bool *has_board)
{
    int count = 0, at = 0;
    const int mine = place_among(c, has_board, &count);
    kolo_status st = KOLO_OK;
    pthread_mutex_lock(&c->links.lock);
    for (int q = 0; q < c->ranks.nranks && mine >= 0 && st == KOLO_OK; q++) {
        if (speaker(c, has_board, q) == q && is_neighbour(mine, at++, count) && can_say(c, q)) {
            st = kolo_links_connect(c, q);
            c->member[q].in_gossip = st == KOLO_OK;
            say_word(c, q, make_word(c));
        }
    }
    pthread_mutex_unlock(&c->links.lock);
    return st;
}

static bool wait_step(struct kolo_comm *c)
{
    bool all_there = true;
    pthread_mutex_lock(&c->links.lock);
    for (int i = 0; i < c->links.nopened; i++) {
        if ((c->links.opened[i].transport->caps & KOLO_CAP_NOTIFY) != 0) {
            (void)c->links.opened[i].transport->progress(c->links.opened[i].endpoint, 64);
        }
    }
    pthread_mutex_unlock(&c->links.lock);
    for (int q = 0; q < c->ranks.nranks; q++) {
        all_there = all_there && (!c->member[q].in_gossip || atomic_load(&c->member[q].word) != 0);
    }
    return all_there;
}

/* Who is heard hears what was said to it at the next step, by which the link was up. */
kolo_status kolo_gossip_join(struct kolo_comm *c, const struct kolo_boot *boot)
{
    const double deadline = kolo_now_us() + c->options.timeout_ms * 1e3;
    for (int more = LAST_STEPS; more > 0 && !kolo_boot_has_ended(boot);) {
        more -= wait_step(c);
        KOLO_TRY(kolo_comm_usable(c));
        if (kolo_now_us() > deadline) {
            int q = 0;
            while (q + 1 < c->ranks.nranks &&
                   (!c->member[q].in_gossip || atomic_load(&c->member[q].word) != 0)) {
                q++;
            }
            return kolo_fail(KOLO_ERR_TIMEOUT, "rank %d was not reached over %s in %d ms", q,
                             c->member[q].transport->base.name, c->options.timeout_ms);
        }
        if (more == LAST_STEPS) {
            usleep(STEP_US);
        }
    }
    return KOLO_OK;
}
