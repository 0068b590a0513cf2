// SPDX-License-Identifier: Apache-2.0
/* Agreement of ranks on several hosts: the state machine of consensus.h, with links.h.
 *
 * That a rank is gone is never a guess. The kernel of its host says so: it ends the connections of
 * a process that has ended, and refuses new ones. A rank that lives and does not come may still be
 * about to, and would then come to another result. So it cannot be left out, as on a board: then all
 * give up, with the same error, which names it.
 *
 * Who gives up tells all, and who is told gives up, too. A rank that has decided in that moment
 * keeps its decision. Everybody goes on to the next agreement alike.
 *
 * A rank that has decided may return while another does not know the decision. It has told all, and
 * its watchdog answers who asks again. */
#include "core/agree/inner.h"
#include "core/agree/links.h"
#include "core/failure/failure.h"
#include "core/health/gone.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { YIELDS = 100, WAIT_MS = 1, CLEAR_US = 100 * 1000, SLACK_MS = 1000 };

struct vote {
    const struct kolo_agreement *a;
    struct kolo_agree_links *links;
    struct kolo_consensus machine;
    struct kolo_agree_frame *frame; /* that is made at the moment */
    kolo_status status;             /* below OK: it is given up */
    int at_fault;
};

/* ---- what goes out ---- */

static void send_to_all(const struct vote *v, uint32_t kind)
{
    v->frame->kind = kind;
    for (int q = 0; q < v->machine.nranks; q++) {
        const struct kolo_voter *voter = &v->machine.voter[q];
        if (q != v->machine.rank && !voter->out && !voter->gone) {
            kolo_agree_links_send(v->links, q, v->frame);
        }
    }
}

static void say(const struct vote *v, struct kolo_says says)
{
    v->frame->word = v->machine.word;
    memcpy(v->frame->seen, v->machine.seen, (size_t)v->machine.nranks);
    for (uint32_t kind = KOLO_BALLOT_CAME; kind <= KOLO_BALLOT_DECIDED; kind++) {
        if ((says.to_all >> kind & 1) != 0) {
            send_to_all(v, kind);
        }
    }
    if (says.accepts >= 0) {
        v->frame->kind = KOLO_BALLOT_ACCEPTED;
        kolo_agree_links_send(v->links, says.accepts, v->frame);
    }
}

static void give_up(struct vote *v, kolo_status status, int at_fault)
{
    v->status = status;
    v->at_fault = at_fault;
    v->frame->status = (int32_t)status;
    v->frame->at_fault = at_fault;
    send_to_all(v, KOLO_AGREE_GAVE_UP);
}

/* To a frame of an agreement that this rank has ended. */
static void answer_old(struct kolo_agree_links *l, int q, const struct kolo_agree_frame *frame)
{
    const bool asks = frame->kind == KOLO_BALLOT_CAME || frame->kind == KOLO_BALLOT_PROPOSED;
    if (asks && kolo_agree_is_left_out(l->comm, q)) {
        struct kolo_agree_frame *answer = kolo_agree_links_frame(l);
        if (answer != NULL) {
            answer->kind = KOLO_AGREE_LEFT_OUT;
            kolo_agree_links_send(l, q, answer);
        }
        free(answer);
    } else if (asks && l->has_decided && frame->number == l->decision->number) {
        kolo_agree_links_send(l, q, l->decision);
    }
}

/* ---- what comes ---- */

static void take_frame(struct vote *v, int q, const struct kolo_agree_frame *frame)
{
    if (frame->kind <= KOLO_BALLOT_DECIDED) {
        say(v, kolo_consensus_take(&v->machine, q, (enum kolo_ballot)frame->kind, frame->word,
                                   frame->seen));
    } else if (frame->kind == KOLO_AGREE_GAVE_UP && !v->machine.voter[q].out) {
        const bool is_status = frame->status < KOLO_OK && frame->status >= KOLO_ERR_INTERNAL;
        const bool is_rank = frame->at_fault >= 0 && frame->at_fault < v->machine.nranks;
        give_up(v, is_status ? (kolo_status)frame->status : KOLO_ERR_ABORTED,
                is_rank ? frame->at_fault : -1);
    }
}

static void hear(struct vote *v, int q)
{
    const struct kolo_agree_frame *frame = NULL;
    while (!v->machine.decided && v->status == KOLO_OK &&
           (frame = kolo_agree_links_look(v->links, q)) != NULL &&
           frame->number <= v->links->number) {
        if (frame->kind == KOLO_AGREE_LEFT_OUT) {
            kolo_agree_leave_out(v->a->comm, v->machine.rank);
        } else if (frame->number == v->links->number && v->machine.voter[q].out) {
            return; /* the watchdog answers it, once all have decided that it is out */
        } else if (frame->number == v->links->number) {
            take_frame(v, q, frame);
        } else {
            answer_old(v->links, q, frame);
        }
        kolo_agree_links_drop(v->links, q);
    }
}

static bool is_gone(const struct vote *v, int q)
{
    return v->links->line[q].gone || kolo_gone_is(v->a->comm, q);
}

static void look_around(struct vote *v)
{
    kolo_agree_links_progress(v->links);
    for (int q = 0; q < v->machine.nranks; q++) {
        if (q != v->machine.rank) {
            hear(v, q);
        }
    }
    for (int q = 0; q < v->machine.nranks && !v->machine.decided && v->status == KOLO_OK; q++) {
        const struct kolo_voter *voter = &v->machine.voter[q];
        if (q != v->machine.rank && !voter->out && !voter->gone && is_gone(v, q)) {
            say(v, kolo_consensus_lose(&v->machine, q));
        }
    }
}

/* Who leads sees best who is missing, so its word goes first; also before it has proposed anything,
 * when a rank to which all have come waits for the leader alone. */
static void look_for_reasons_to_end(struct vote *v)
{
    const int q = kolo_consensus_waits_for(&v->machine);
    const int slack_ms = kolo_consensus_leads(&v->machine) ? 0
                         : v->a->limit_ms / 4 < SLACK_MS   ? v->a->limit_ms / 4
                                                           : SLACK_MS;
    if (kolo_agree_may_go_on(v->a) != KOLO_OK) {
        give_up(v, KOLO_ERR_ABORTED, v->machine.rank);
    } else if (q >= 0 && v->links->line[q].broken != 0) {
        give_up(v, KOLO_ERR_LINK, q);
    } else if (kolo_now_us() >= v->a->deadline_us + slack_ms * 1e3) {
        give_up(v, KOLO_ERR_TIMEOUT, q);
    }
}

/* ---- one agreement ---- */

static void wait_a_little(const struct vote *v, unsigned round)
{
    struct pollfd news = {.fd = v->links->transport->wait_fd(v->links->endpoint), .events = POLLIN};
    if (round < YIELDS) {
        sched_yield();
    } else {
        (void)poll(&news, 1, WAIT_MS);
    }
}

/* What this rank has said must be on its way before it returns. A rank that does not take it, or is
 * not there yet, gets it from the watchdog. */
static void send_rest(const struct vote *v)
{
    const double until_us = kolo_now_us() + CLEAR_US;
    for (unsigned round = 0; !kolo_agree_links_are_clear(v->links) && kolo_now_us() < until_us;
         round++) {
        wait_a_little(v, round);
        kolo_agree_links_progress(v->links);
        for (int q = 0; q < v->machine.nranks; q++) {
            v->links->line[q].gone = v->links->line[q].gone || kolo_gone_is(v->a->comm, q);
        }
    }
}

/* What a rank said before it left is heard before it counts as gone, and is read before anything is
 * written to it, which may find its connection closed: it may have given up this agreement. */
static void begin(struct vote *v, uint64_t word)
{
    kolo_agree_links_progress(v->links);
    v->links->number++;
    v->frame->number = v->links->number;
    for (int q = 0; q < v->machine.nranks; q++) {
        struct kolo_voter *voter = &v->machine.voter[q];
        voter->out = kolo_agree_is_out(v->a, q);
        if (q != v->machine.rank && !voter->out && !is_gone(v, q)) {
            kolo_agree_links_meet(v->links, q);
        }
    }
    say(v, kolo_consensus_begin(&v->machine, word));
}

static kolo_status say_why(const struct vote *v)
{
    const int q = v->at_fault;
    if (q == v->machine.rank && v->status != KOLO_ERR_ABORTED) {
        return kolo_fail(KOLO_ERR_PEER,
                         "the other ranks have given up an agreement, because this "
                         "rank, %d, did not come in time, or is not reached",
                         q);
    }
    switch (v->status) {
    case KOLO_ERR_TIMEOUT:
        return kolo_fail(v->status,
                         "rank %d lives, but did not come to an agreement in time, or "
                         "stopped in it",
                         q);
    case KOLO_ERR_LINK:
        return kolo_fail(v->status, "rank %d is not reached any more, and may live", q);
    default:
        return kolo_fail(v->status, "rank %d has ended an agreement%s", q,
                         v->status == KOLO_ERR_ABORTED ? ": kolo_comm_abort() was called" : "");
    }
}

/* Others count on this communicator's failure to name the rank. */
static kolo_status end_without_decision(const struct vote *v)
{
    KOLO_TRY(kolo_agree_takes_part(v->a->comm));
    const kolo_status st = say_why(v);
    if (st == KOLO_ERR_TIMEOUT || st == KOLO_ERR_LINK) {
        char text[256];
        strncpy(text, kolo_error_text(), sizeof text - 1);
        text[sizeof text - 1] = '\0';
        (void)kolo_failure_end(v->a->comm, st, v->at_fault);
        return kolo_fail(st, "%s", text);
    }
    return st;
}

static kolo_status vote(struct vote *v, uint64_t *word, unsigned char *seen)
{
    const size_t n = (size_t)v->machine.nranks;
    begin(v, *word);
    for (unsigned round = 0; !v->machine.decided && v->status == KOLO_OK; round++) {
        look_around(v);
        if (kolo_agree_is_left_out(v->a->comm, v->machine.rank)) {
            return kolo_agree_takes_part(v->a->comm);
        }
        if (!v->machine.decided && v->status == KOLO_OK) {
            look_for_reasons_to_end(v);
            wait_a_little(v, round);
        }
    }
    if (v->machine.decided) {
        v->frame->kind = KOLO_BALLOT_DECIDED;
        v->frame->word = v->machine.word;
        memcpy(v->frame->seen, v->machine.seen, n);
        memcpy(v->links->decision, v->frame, sizeof *v->frame + n);
        v->links->has_decided = true;
    }
    send_rest(v);
    if (!v->machine.decided) {
        return end_without_decision(v);
    }
    *word = v->machine.word;
    memcpy(seen, v->machine.seen, n);
    return KOLO_OK;
}

kolo_status kolo_agree_over_links(const struct kolo_agreement *a, uint64_t *word,
                                  unsigned char *seen)
{
    struct kolo_agree_links *l = a->comm->agree_links;
    const int n = a->comm->ranks.nranks;
    struct vote v = {.a = a,
                     .links = l,
                     .machine = {.nranks = n, .rank = a->comm->ranks.rank, .proposer = -1},
                     .at_fault = -1};
    v.machine.voter = calloc((size_t)n, sizeof *v.machine.voter);
    v.machine.seen = calloc((size_t)n, 1);
    v.frame = kolo_agree_links_frame(l);
    kolo_status st = v.machine.voter != NULL && v.machine.seen != NULL && v.frame != NULL
                         ? KOLO_OK
                         : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", n);
    if (st == KOLO_OK) {
        pthread_mutex_lock(&l->lock);
        st = vote(&v, word, seen);
        pthread_mutex_unlock(&l->lock);
    }
    free(v.machine.voter);
    free(v.machine.seen);
    free(v.frame);
    return st;
}

/* ---- between agreements ---- */

void kolo_agree_serve(struct kolo_comm *c)
{
    struct kolo_agree_links *l = c->agree_links;
    if (l == NULL || pthread_mutex_trylock(&l->lock) != 0) {
        return;
    }
    kolo_agree_links_progress(l);
    for (int q = 0; q < c->ranks.nranks; q++) {
        const struct kolo_agree_frame *frame = NULL;
        while ((frame = kolo_agree_links_look(l, q)) != NULL && frame->number <= l->number) {
            answer_old(l, q, frame);
            kolo_agree_links_drop(l, q);
        }
    }
    pthread_mutex_unlock(&l->lock);
}

void kolo_agree_stands(struct kolo_comm *c)
{
    struct kolo_agree_links *l = c->agree_links;
    if (l == NULL) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->number = l->decision->number = KOLO_AGREE_STANDING;
    l->decision->kind = KOLO_BALLOT_DECIDED;
    l->decision->word = ~UINT64_C(0);
    l->has_decided = true; /* and all ranks are KOLO_SEEN_HERE, which is 0 */
    pthread_mutex_unlock(&l->lock);
}
