// SPDX-License-Identifier: Apache-2.0
/* Agreement of ranks that share no memory, as a state machine without input and output.
 *
 * Each rank has one of these. It is told what has come and who is gone, and says what to send. The
 * lowest rank that lives leads. It waits for the words of all that live, and proposes their AND and
 * who is gone. A rank that gets a proposal accepts it, unless it has accepted one of a higher
 * leader. Once all that live have accepted, the leader has decided. It tells all, and whoever is
 * told tells all in turn. If a leader dies, the next one proposes what it has accepted; only if that
 * is nothing, it makes a proposal of its own.
 *
 * Why no two ranks decide differently, dead ones included:
 *  - A leader decides only when every rank that is not gone has accepted its proposal.
 *  - So each later leader, which was not gone then, has accepted it, and proposes the same.
 *  - A proposal of an earlier leader can come late. It is not accepted any more: the later leader's
 *    number is higher. An earlier leader that was not accepted by a later one has not decided.
 *
 * Why no survivor waits for ever: it waits only for ranks that live. One that has decided waits for
 * nobody, but has told all. Its word stands before anything else that it sends, or it is gone.
 *
 * That a rank is gone must be true: it takes no part any more, in this agreement. What it sent
 * before may be lost in part, from any point on. tests/unit/consensus_test.cc goes through all
 * orders of messages, losses and deaths of few ranks.
 *
 * Source: Cachin, Guerraoui, Rodrigues, "Introduction to Reliable and Secure Distributed
 * Programming", 2011, section 5.2 (hierarchical uniform consensus). */
#ifndef KOLO_CORE_AGREE_CONSENSUS_H
#define KOLO_CORE_AGREE_CONSENSUS_H

#include "util/util.h"

/* What an agreement says of a rank. LATE: it has not come, and is not known to have ended. OUT: an
 * earlier agreement, or all that take part, leave it out. */
enum kolo_seen { KOLO_SEEN_HERE, KOLO_SEEN_GONE, KOLO_SEEN_LATE, KOLO_SEEN_OUT };

enum kolo_ballot { /* all of these carry the sender's word and seen[] */
                   KOLO_BALLOT_CAME,
                   KOLO_BALLOT_PROPOSED,
                   KOLO_BALLOT_ACCEPTED,
                   KOLO_BALLOT_DECIDED
};

struct kolo_voter { /* what is known of a rank */
    uint64_t word;
    bool out; /* it takes no part */
    bool gone, came, accepted;
};

struct kolo_consensus {
    int nranks, rank;
    int proposer; /* whose proposal is accepted; -1: none yet */
    bool decided;
    uint64_t word;            /* of this rank; then of the proposal */
    unsigned char *seen;      /* [nranks] of the proposal: enum kolo_seen */
    struct kolo_voter *voter; /* [nranks] */
};

/* What to send now: to all ranks that take part and are not gone, a ballot for each bit (1 <<
 * kind), the lowest first; and ACCEPTED to rank `accepts`, -1: to none. */
struct kolo_says {
    unsigned to_all;
    int accepts;
};

/* Begin: seen[nranks] and voter[nranks] are the caller's memory; `out` is set in those that take no
 * part, and `gone` in those known to be gone, all else is 0. */
struct kolo_says kolo_consensus_begin(struct kolo_consensus *c, uint64_t word);
/* A ballot has come. */
struct kolo_says kolo_consensus_take(struct kolo_consensus *c, int from, enum kolo_ballot ballot,
                                     uint64_t word, const unsigned char *seen);
/* Rank q is gone. What it sent before may still come. */
struct kolo_says kolo_consensus_lose(struct kolo_consensus *c, int q);
/* Whether this rank leads: as far as it knows, all before it are gone, or take no part. */
bool kolo_consensus_leads(const struct kolo_consensus *c);
/* For whom this rank waits: a rank that has not come, or not accepted; else the leader. -1: none. */
int kolo_consensus_waits_for(const struct kolo_consensus *c);

#endif
