// SPDX-License-Identifier: Apache-2.0
/* Rankings that the choosers of one process share, and prices that the processes of a host share.
 * Ranks that are threads choose alike, from equal facts: the first of them prices the candidates, the
 * others take its ranking. Otherwise the first call of many threads would price the same plans once
 * for each. */
#include "chooser.h"
#include "prices.h"
#include "topology/machine/host.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEPT = 64 };

struct kept {
    uint64_t key;
    struct kolo_candidate *candidate;
    int count;
};

static struct {
    pthread_mutex_t lock;
    struct kept kept[KEPT]; /* a ring */
    unsigned next, choosers;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void)
{
    pthread_mutex_lock(&shared.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&shared.lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

void kolo_ranking_join(struct kolo_chooser *c)
{
    pthread_mutex_lock(&shared.lock);
    shared.choosers++;
    pthread_mutex_unlock(&shared.lock);
    c->shares = true;
}

void kolo_ranking_leave(struct kolo_chooser *c)
{
    if (!c->shares) {
        return;
    }
    pthread_mutex_lock(&shared.lock);
    shared.choosers--;
    for (int i = 0; i < KEPT && shared.choosers == 0; i++) {
        free(shared.kept[i].candidate);
        shared.kept[i] = (struct kept){0};
    }
    pthread_mutex_unlock(&shared.lock);
    c->shares = false;
}

static uint64_t add(uint64_t key, const void *array, size_t bytes)
{
    return array != NULL ? kolo_hash(key, array, bytes) : kolo_hash(key, &bytes, sizeof bytes);
}

/* All that a price depends on. */
uint64_t kolo_chooser_facts(const struct kolo_chooser *c)
{
    const struct kolo_chooser_options *o = &c->options;
    const size_t n = (size_t)o->nranks;
    const int64_t numbers[] = {o->nranks, o->nhosts,  c->model.npools, o->nrings,
                               o->ntrees, o->nlevels, o->by_messages,  o->max_phases};
    uint64_t key = add(0, numbers, sizeof numbers);
    key = add(key, &o->costs, sizeof o->costs);
    key = add(key, c->order, (size_t)(o->nrings > 1 ? o->nrings : 1) * n * sizeof *c->order);
    key = add(key, c->tree, (size_t)o->ntrees * n * sizeof *c->tree);
    key = add(key, c->group, (size_t)o->nlevels * n * sizeof *c->group);
    key = add(key, c->place, n * sizeof *c->place);
    return add(key, c->host, n * sizeof *c->host);
}

uint64_t kolo_call_facts(const struct kolo_chooser *c, enum kolo_coll coll,
                         const struct kolo_asking *about)
{
    const uint64_t call[] = {(uint64_t)coll, about->bytes, about->mapped};
    return add(c->facts, call, sizeof call);
}

/* A key of the facts, of the class of the call, and of the algorithms in the present catalogue. */
static uint64_t key_of(const struct kolo_chooser *c, enum kolo_coll coll,
                       const struct kolo_asking *about)
{
    uint64_t key = kolo_call_facts(c, coll, about);
    for (int i = 0; i < c->options.algo_count(); i++) {
        const struct kolo_algo *algo = c->options.algo_at(i);
        key = add(key, &algo, sizeof algo);
    }
    return key;
}

/* Under the lock. */
static const struct kept *find_ranking(uint64_t key)
{
    for (int i = 0; i < KEPT; i++) {
        if (shared.kept[i].key == key && shared.kept[i].candidate != NULL) {
            return &shared.kept[i];
        }
    }
    return NULL;
}

/* Under the lock. If there is no memory, the ranking is priced again the next time. */
static void keep_ranking(uint64_t key, const struct kolo_ranking *ranking)
{
    struct kept *oldest = &shared.kept[shared.next % KEPT];
    const size_t bytes = (size_t)ranking->count * sizeof *ranking->candidate;
    struct kolo_candidate *copy = malloc(bytes + 1);
    if (copy == NULL) {
        return;
    }
    memcpy(copy, ranking->candidate, bytes);
    free(oldest->candidate);
    *oldest = (struct kept){key, copy, ranking->count};
    shared.next++;
}

kolo_status kolo_ranking_share(struct kolo_chooser *c, struct kolo_ranking *ranking,
                               enum kolo_coll coll, const struct kolo_asking *about)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint64_t key = key_of(c, coll, about);
    kolo_status st = KOLO_OK;
    (void)pthread_once(&once, watch_forks);
    pthread_mutex_lock(&shared.lock);
    const struct kept *found = find_ranking(key);
    if (found != NULL) {
        ranking->count = found->count;
        memcpy(ranking->candidate, found->candidate,
               (size_t)found->count * sizeof *found->candidate);
    } else {
        st = kolo_ranking_price(c, ranking, coll, about);
        if (st == KOLO_OK) {
            keep_ranking(key, ranking);
        }
    }
    pthread_mutex_unlock(&shared.lock);
    return st;
}

/* ---- prices that the processes of a host share ---- */

/* All ranks price the same candidates from the same facts. If many processes share few cores, that
 * is most of the time of a first call. So each process takes the candidates that nobody has begun,
 * and the prices of the others. A price that does not come in time, or finds no place, is made by
 * each process for itself: results do not depend on who made a price. */
enum { PENDING, PRICED, REFUSED, FAILED }; /* states */

uint64_t kolo_price_key(uint64_t call, int index, const struct kolo_algo *algo)
{
    const uint64_t place = (uint64_t)index;
    const uint64_t key =
        kolo_hash(kolo_hash(call, &place, sizeof place), algo->base.name, strlen(algo->base.name));
    return key != 0 ? key : 1;
}

static struct kolo_shared_price *entry_of(struct kolo_prices *prices, uint64_t key)
{
    return &prices->price[key % KOLO_PRICES];
}

/* A failure (no memory) is its process's own: others try for themselves. */
static enum kolo_offer read_entry(const struct kolo_shared_price *e, struct kolo_priced *out)
{
    switch (atomic_load_explicit(&e->state, memory_order_acquire)) {
    case PENDING:
        return KOLO_OFFER_PENDING;
    case PRICED:
        *out = (struct kolo_priced){KOLO_OK, {.us = e->us, .phases = e->phases}};
        return KOLO_OFFER_TAKEN;
    case REFUSED:
        out->status = KOLO_ERR_UNSUPPORTED;
        return KOLO_OFFER_TAKEN;
    default:
        return KOLO_OFFER_MINE;
    }
}

enum kolo_offer kolo_price_claim(struct kolo_prices *prices, uint64_t key, struct kolo_priced *out)
{
    struct kolo_shared_price *e = entry_of(prices, key);
    uint64_t there = 0;
    if (atomic_compare_exchange_strong(&e->key, &there, key) || there != key) {
        return KOLO_OFFER_MINE;
    }
    return read_entry(e, out);
}

/* A place that another key has stays as it is. So does a failure. */
void kolo_price_tell(struct kolo_prices *prices, uint64_t key, const struct kolo_priced *priced)
{
    struct kolo_shared_price *e = entry_of(prices, key);
    if (atomic_load(&e->key) != key || atomic_load(&e->state) != PENDING) {
        return;
    }
    e->us = priced->forecast.us;
    e->phases = priced->forecast.phases;
    const kolo_status st = priced->status;
    const bool refused = st == KOLO_ERR_UNSUPPORTED || st == KOLO_ERR_INVALID;
    atomic_store_explicit(&e->state,
                          (uint32_t)(st == KOLO_OK ? PRICED
                                     : refused     ? REFUSED
                                                   : FAILED),
                          memory_order_release);
}

bool kolo_price_await(struct kolo_prices *prices, uint64_t key, double until_us,
                      struct kolo_priced *out)
{
    enum { NAP_NS = 500000, NAP_MAX_NS = 8000000 };
    struct timespec nap = {.tv_nsec = NAP_NS};
    enum kolo_offer offer = read_entry(entry_of(prices, key), out);
    while (offer == KOLO_OFFER_PENDING && kolo_now_us() < until_us) {
        (void)nanosleep(&nap, NULL); /* those that price need the cores that wakes would take */
        nap.tv_nsec = nap.tv_nsec < NAP_MAX_NS ? 2 * nap.tv_nsec : NAP_MAX_NS;
        offer = read_entry(entry_of(prices, key), out);
    }
    return offer == KOLO_OFFER_TAKEN;
}
