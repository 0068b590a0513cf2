// SPDX-License-Identifier: Apache-2.0
/* Each rank is a program that makes calls and waits for them; each communicator makes its calls in
 * order. The ranks go on in turn until all wait for a call that cannot begin. */
#include "tools/sim/timeline.h"

#include "util/escape.h"

#include <math.h>
#include <stdlib.h>

struct walk_event { /* of a rank's program: it makes a call, or waits for one */
    double at_us;   /* by the record's clock */
    int call;
    bool waits;
};

struct walk_rank {
    const struct sim_record *record;
    struct walk_event *event; /* [2 * record->ncalls], in order */
    int nevents, at;
    double us;               /* since the first call */
    double clock_us;         /* the same moment by the record's clock */
    double *ready_us;        /* [record->ncalls], when the rank made the call; NAN: not yet */
    double *over_us;         /* the same, when it was over */
    struct sim_price *price; /* [record->ncalls] */
    int *next;               /* [records->ngroups], the first call that has not begun */
};

struct walk {
    const struct sim_records *records;
    sim_cost cost;
    void *context;
    struct walk_rank *rank;
    double *idle_us; /* [records->ngroups], when the last call of the communicator was over */
    struct sim_timeline *out;
};

/* ---- the program of a rank ---- */

static int by_time(const void *a, const void *b)
{
    const struct walk_event *x = a, *y = b;
    if (x->at_us != y->at_us) {
        return x->at_us > y->at_us ? 1 : -1;
    }
    return x->call != y->call ? x->call - y->call : (int)x->waits - (int)y->waits;
}

static kolo_status open_rank(const struct walk *w, int i)
{
    struct walk_rank *rank = &w->rank[i];
    const struct sim_record *record = &w->records->record[i];
    const size_t n = (size_t)record->ncalls;
    rank->record = record;
    rank->event = calloc(2 * n + 1, sizeof *rank->event);
    rank->ready_us = malloc((n + 1) * sizeof *rank->ready_us);
    rank->over_us = malloc((n + 1) * sizeof *rank->over_us);
    rank->price = calloc(n + 1, sizeof *rank->price);
    rank->next = calloc((size_t)w->records->ngroups + 1, sizeof *rank->next);
    if (rank->event == NULL || rank->ready_us == NULL || rank->over_us == NULL ||
        rank->price == NULL || rank->next == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d calls", record->ncalls);
    }
    for (int c = 0; c < record->ncalls; c++) {
        const struct sim_call *call = &record->call[c];
        rank->ready_us[c] = rank->over_us[c] = NAN;
        rank->event[rank->nevents++] = (struct walk_event){.at_us = call->begin_us, .call = c};
        if (call->waited_us < INFINITY) {
            rank->event[rank->nevents++] =
                (struct walk_event){.at_us = call->waited_us, .call = c, .waits = true};
        }
    }
    qsort(rank->event, (size_t)rank->nevents, sizeof *rank->event, by_time);
    return KOLO_OK;
}

/* The rank waits for a call that goes on since before: the call's processor time until now was not
 * there for computation. */
static double lost_us(const struct walk_rank *rank, int c)
{
    const struct sim_price *price = &rank->price[c];
    const double since_us = rank->us - (rank->over_us[c] - price->us);
    if (!(since_us > 0 && price->us > 0)) {
        return 0;
    }
    return price->core_us * fmin(1, since_us / price->us);
}

/* Go on to the first wait for a call that is not over. Returns whether anything was done. */
static bool advance(struct walk *w, struct walk_rank *rank)
{
    const int from = rank->at;
    for (; rank->at < rank->nevents; rank->at++) {
        const struct walk_event *e = &rank->event[rank->at];
        if (e->waits && isnan(rank->over_us[e->call])) {
            break;
        }
        double us = rank->at == 0 ? 0 : e->at_us - rank->clock_us;
        w->out->overlapping += us < 0 && !e->waits;
        us = us > 0 ? us : 0;
        rank->us += us;
        if (e->waits) {
            const double lost = lost_us(rank, e->call);
            rank->us += lost;
            us += lost;
        }
        w->out->compute += us;
        rank->clock_us = rank->at == 0 ? e->at_us : fmax(rank->clock_us, e->at_us);
        if (e->waits) {
            rank->us = fmax(rank->us, rank->over_us[e->call]);
            rank->clock_us = fmax(rank->clock_us, rank->record->call[e->call].end_us);
        } else {
            rank->ready_us[e->call] = rank->us;
        }
    }
    return rank->at > from;
}

/* ---- the calls of a communicator ---- */

/* The rank's next call of the communicator, -1 if there is none. */
static int next_of(struct walk_rank *rank, int group)
{
    int c = rank->next[group];
    while (c < rank->record->ncalls && rank->record->call[c].group != group) {
        c++;
    }
    rank->next[group] = c;
    return c < rank->record->ncalls ? c : -1;
}

static kolo_status price(struct walk *w, const struct sim_call *call, double recorded_us,
                         struct sim_price *out)
{
    w->out->ncalls++;
    return w->cost(w->context, call, recorded_us, out);
}

/* Begin the next call, if all ranks are there. */
static kolo_status begin_call(struct walk *w, int group, bool *began)
{
    const struct sim_call *first = NULL;
    struct sim_price took = {0};
    double last_us = 0, shortest_us = INFINITY;
    for (int i = 0; i < w->records->nrecords; i++) {
        const int c = next_of(&w->rank[i], group);
        if (c < 0) {
            continue;
        }
        const struct sim_call *call = &w->rank[i].record->call[c];
        first = first != NULL ? first : call;
        if (isnan(w->rank[i].ready_us[c]) || call->number != first->number ||
            call->coll != first->coll) {
            return KOLO_OK;
        }
        last_us = fmax(last_us, w->rank[i].ready_us[c]);
        shortest_us = fmin(shortest_us, call->end_us - call->begin_us);
    }
    if (first == NULL) {
        return KOLO_OK;
    }
    KOLO_TRY(price(w, first, shortest_us, &took));
    w->idle_us[group] = fmax(last_us, w->idle_us[group]) + took.us;
    for (int i = 0; i < w->records->nrecords; i++) {
        struct walk_rank *rank = &w->rank[i];
        const int c = next_of(rank, group);
        if (c >= 0) {
            w->out->waits += last_us - rank->ready_us[c];
            w->out->calls += took.us;
            rank->over_us[c] = w->idle_us[group];
            rank->price[c] = took;
            rank->next[group]++;
        }
    }
    *began = true;
    return KOLO_OK;
}

/* ---- messages ---- */

/* When the message has left; NAN: it has not. 0 without a record of its sender. */
static double arrival_us(const struct walk *w, const struct sim_call *receive)
{
    for (int i = 0; i < w->records->nrecords; i++) {
        const struct sim_record *record = w->rank[i].record;
        for (int c = 0; c < record->ncalls; c++) {
            const struct sim_call *call = &record->call[c];
            if (call->group == receive->group && call->number == receive->number && call->sends) {
                return w->rank[i].over_us[c];
            }
        }
    }
    return 0;
}

/* Send or receive the next message of a rank, if it can be. */
static kolo_status begin_message(struct walk *w, struct walk_rank *rank, int group, bool *began)
{
    const int c = next_of(rank, group);
    if (c < 0 || isnan(rank->ready_us[c])) {
        return KOLO_OK;
    }
    const struct sim_call *call = &rank->record->call[c];
    if (call->sends) {
        KOLO_TRY(price(w, call, call->end_us - call->begin_us, &rank->price[c]));
        rank->over_us[c] = fmax(rank->ready_us[c], w->idle_us[group]) + rank->price[c].us;
        w->idle_us[group] = rank->over_us[c];
        w->out->calls += rank->price[c].us;
    } else {
        const double there_us = arrival_us(w, call);
        if (isnan(there_us)) {
            return KOLO_OK;
        }
        rank->over_us[c] = fmax(rank->ready_us[c], there_us);
        w->out->waits += rank->over_us[c] - rank->ready_us[c];
    }
    rank->next[group]++;
    *began = true;
    return KOLO_OK;
}

static kolo_status begin_messages(struct walk *w, int group, bool *began)
{
    for (int i = 0; i < w->records->nrecords; i++) {
        KOLO_TRY(begin_message(w, &w->rank[i], group, began));
    }
    return KOLO_OK;
}

/* ---- all together ---- */

static kolo_status refuse(const struct walk *w)
{
    struct kolo_text text = {0};
    for (int i = 0; i < w->records->nrecords; i++) {
        const struct walk_rank *rank = &w->rank[i];
        if (rank->at < rank->nevents) {
            const struct sim_call *call = &rank->record->call[rank->event[rank->at].call];
            kolo_text_add(&text, "%s%s comes to call %llu of \"%s\"", text.len > 0 ? ", " : "",
                          rank->record->path, (unsigned long long)call->number,
                          w->records->group[call->group].name);
        }
    }
    const kolo_status st = kolo_fail(KOLO_ERR_INVALID, "the records do not fit together: %.800s",
                                     text.chars != NULL ? text.chars : "");
    kolo_text_free(&text);
    return st;
}

static kolo_status walk(struct walk *w)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < w->records->nrecords; i++) {
            moved = advance(w, &w->rank[i]) || moved;
        }
        for (int g = 0; g < w->records->ngroups; g++) {
            const bool messages = w->records->group[g].messages;
            bool began = false;
            KOLO_TRY(messages ? begin_messages(w, g, &began) : begin_call(w, g, &began));
            moved = moved || began;
        }
    }
    for (int i = 0; i < w->records->nrecords; i++) {
        if (w->rank[i].at < w->rank[i].nevents) {
            return refuse(w);
        }
    }
    return KOLO_OK;
}

static void total(struct walk *w)
{
    for (int i = 0; i < w->records->nrecords; i++) {
        const struct walk_rank *rank = &w->rank[i];
        const struct sim_call *call = rank->record->call;
        double end_us = 0, over_us = rank->us;
        for (int c = 0; c < rank->record->ncalls; c++) {
            end_us = fmax(end_us, call[c].end_us);
            over_us = fmax(over_us, isnan(rank->over_us[c]) ? 0 : rank->over_us[c]);
        }
        if (rank->record->ncalls > 0) {
            w->out->recorded = fmax(w->out->recorded, end_us - call[0].begin_us);
            w->out->predicted = fmax(w->out->predicted, over_us);
        }
    }
}

static kolo_status open_and_walk(struct walk *w)
{
    w->rank = calloc((size_t)w->records->nrecords + 1, sizeof *w->rank);
    w->idle_us = calloc((size_t)w->records->ngroups + 1, sizeof *w->idle_us);
    if (w->rank == NULL || w->idle_us == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d records", w->records->nrecords);
    }
    for (int i = 0; i < w->records->nrecords; i++) {
        KOLO_TRY(open_rank(w, i));
    }
    return walk(w);
}

kolo_status sim_timeline_walk(const struct sim_records *records, sim_cost cost, void *context,
                              struct sim_timeline *out)
{
    struct walk w = {.records = records, .cost = cost, .context = context, .out = out};
    *out = (struct sim_timeline){0};
    const kolo_status st = open_and_walk(&w);
    if (st == KOLO_OK) {
        total(&w);
    }
    for (int i = 0; i < records->nrecords && w.rank != NULL; i++) {
        free(w.rank[i].event);
        free(w.rank[i].ready_us);
        free(w.rank[i].over_us);
        free(w.rank[i].price);
        free(w.rank[i].next);
    }
    free(w.rank);
    free(w.idle_us);
    return st;
}
