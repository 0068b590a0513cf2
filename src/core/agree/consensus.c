// SPDX-License-Identifier: Apache-2.0
#include "core/agree/consensus.h"

#include <string.h>

static bool is_awaited(const struct kolo_consensus *c, int q)
{
    return !c->voter[q].out && !c->voter[q].gone;
}

static int leader(const struct kolo_consensus *c)
{
    int q = 0;
    while (q != c->rank && !is_awaited(c, q)) {
        q++;
    }
    return q;
}

/* The first awaited rank that has not come, or not accepted; -1: none. */
static int find_missing(const struct kolo_consensus *c, bool accepted)
{
    int q = 0;
    while (q < c->nranks &&
           (!is_awaited(c, q) || (accepted ? c->voter[q].accepted : c->voter[q].came))) {
        q++;
    }
    return q < c->nranks ? q : -1;
}

/* A rank that came, and is gone, still counts with its word. */
static void make_proposal(struct kolo_consensus *c)
{
    c->word = ~UINT64_C(0);
    for (int q = 0; q < c->nranks; q++) {
        const struct kolo_voter *v = &c->voter[q];
        c->seen[q] = v->out ? KOLO_SEEN_OUT : v->gone ? KOLO_SEEN_GONE : KOLO_SEEN_HERE;
        c->word &= v->came && !v->out ? v->word : ~UINT64_C(0);
    }
}

/* Do what is due, in addition to what `says` has already. */
static struct kolo_says advance(struct kolo_consensus *c, struct kolo_says says)
{
    if (c->decided || !kolo_consensus_leads(c)) {
        return says;
    }
    if (c->proposer != c->rank) {
        if (c->proposer < 0 && find_missing(c, false) >= 0) {
            return says;
        }
        if (c->proposer < 0) {
            make_proposal(c);
        }
        c->proposer = c->rank;
        c->voter[c->rank].accepted = true;
        says.to_all |= 1u << KOLO_BALLOT_PROPOSED;
    }
    if (find_missing(c, true) < 0) {
        c->decided = true;
        says.to_all |= 1u << KOLO_BALLOT_DECIDED;
    }
    return says;
}

static void adopt(struct kolo_consensus *c, int from, uint64_t word, const unsigned char *seen)
{
    c->proposer = from;
    c->word = word;
    memcpy(c->seen, seen, (size_t)c->nranks);
}

struct kolo_says kolo_consensus_begin(struct kolo_consensus *c, uint64_t word)
{
    c->proposer = -1;
    c->word = c->voter[c->rank].word = word;
    c->voter[c->rank].came = true;
    return advance(c, (struct kolo_says){1u << KOLO_BALLOT_CAME, -1});
}

struct kolo_says kolo_consensus_take(struct kolo_consensus *c, int from, enum kolo_ballot ballot,
                                     uint64_t word, const unsigned char *seen)
{
    struct kolo_voter *v = &c->voter[from];
    struct kolo_says says = {0, -1};
    if (c->decided || v->out || from == c->rank) {
        return says;
    }
    switch (ballot) {
    case KOLO_BALLOT_CAME:
        v->came = true;
        v->word = word;
        break;
    case KOLO_BALLOT_PROPOSED:
        if (from > c->proposer) {
            adopt(c, from, word, seen);
            says.accepts = from;
        }
        break;
    case KOLO_BALLOT_ACCEPTED:
        v->accepted = true; /* none comes but for what this rank has proposed */
        break;
    case KOLO_BALLOT_DECIDED:
        adopt(c, from, word, seen);
        c->decided = true;
        says.to_all = 1u << KOLO_BALLOT_DECIDED;
        break;
    default:
        break;
    }
    return advance(c, says);
}

struct kolo_says kolo_consensus_lose(struct kolo_consensus *c, int q)
{
    c->voter[q].gone = true;
    return advance(c, (struct kolo_says){0, -1});
}

bool kolo_consensus_leads(const struct kolo_consensus *c)
{
    return leader(c) == c->rank;
}

int kolo_consensus_waits_for(const struct kolo_consensus *c)
{
    const int first = leader(c);
    const int missing = find_missing(c, c->proposer == c->rank);
    return c->decided                                               ? -1
           : missing >= 0 && missing != c->rank && first == c->rank ? missing
           : c->proposer < 0 && missing >= 0                        ? missing
                                                                    : first;
}
