// SPDX-License-Identifier: Apache-2.0
/* Replays the calls of flight records on a simulated machine. Between two calls a rank computes as
 * long as the record says. A call begins when its last rank is there, and takes as long as the
 * simulation says. */
#include "sim_replay.h"

#include "output.h"
#include "sim.h"
#include "sim_record.h"
#include "util/escape.h"
#include "util/grow.h"

#include <stdlib.h>
#include <string.h>

struct replay_row { /* calls that are alike */
    enum kolo_coll coll;
    int nranks, root, ncalls;
    size_t bytes;
    const struct kolo_algo *algo;
    double us;          /* of one call, as simulated */
    double recorded_us; /* of all of them together, each by its shortest rank: the last to come */
};

struct replay_ranks { /* a communicator's, on the machine */
    struct kolo_sim_place place;
    struct kolo_chooser *chooser;
    int *host;
    int nranks;
    bool open;
};

struct replay_rank { /* on its way through the record */
    int at;          /* the next call */
    double us;       /* since its first call */
    double end_us;   /* of the call before, by the record's clock */
    double first_us;
};

struct replay {
    const struct sim_replay_options *options;
    struct sim_records records;
    struct replay_ranks *group; /* [records.ngroups] */
    struct replay_rank *rank;   /* [records.nrecords] */
    struct replay_row *row;
    int nrows, cap;
    double compute_us, wait_us; /* of all ranks together, as predicted */
    double call_us;             /* of all calls, as predicted */
    int ncalls, overlapping;
};

/* ---- what a call takes ---- */

static kolo_status open_ranks(struct replay *r, int group, int nranks)
{
    struct replay_ranks *ranks = &r->group[group];
    if (ranks->open) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_sim_place_open(r->options->machine, nranks, &ranks->place));
    ranks->open = true;
    ranks->nranks = nranks;
    return sim_chooser_open(&ranks->place, &ranks->host, &ranks->chooser);
}

static void close_ranks(struct replay_ranks *ranks)
{
    if (ranks->open) {
        kolo_chooser_destroy(ranks->chooser);
        free(ranks->host);
        kolo_sim_place_close(&ranks->place);
    }
}

static kolo_status simulate(const struct replay *r, struct replay_ranks *ranks,
                            struct replay_row *row)
{
    struct kolo_pick pick = {0};
    struct kolo_sim_result result;
    const size_t bytes = row->bytes / sizeof(float) * sizeof(float);
    KOLO_TRY(kolo_choose(ranks->chooser, row->coll, row->root, bytes, KOLO_FLOAT32, &pick));
    const struct kolo_sim_options options = {.algo = pick.algo,
                                             .machine = r->options->machine,
                                             .nranks = ranks->nranks,
                                             .root = row->root,
                                             .bytes = bytes,
                                             .seed = r->options->seed,
                                             .fold = true};
    KOLO_TRY(kolo_sim_run(&options, &result));
    row->algo = pick.algo;
    row->us = result.total_us;
    kolo_sim_result_free(&result);
    return KOLO_OK;
}

/* The row of calls like this one. */
static kolo_status find_row(struct replay *r, const struct sim_call *call, struct replay_row **out)
{
    struct replay_ranks *ranks = &r->group[call->group];
    const int root = kolo_coll_rooted(call->coll) && call->root < ranks->nranks ? call->root : 0;
    for (int i = 0; i < r->nrows; i++) {
        struct replay_row *row = &r->row[i];
        if (row->coll == call->coll && row->bytes == call->bytes && row->root == root &&
            row->nranks == ranks->nranks) {
            *out = row;
            return KOLO_OK;
        }
    }
    struct replay_row *grown = kolo_grow(r->row, r->nrows, &r->cap, sizeof *grown);
    if (grown == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the results");
    }
    r->row = grown;
    *out = &r->row[r->nrows];
    **out = (struct replay_row){
        .coll = call->coll, .nranks = ranks->nranks, .root = root, .bytes = call->bytes};
    KOLO_TRY(simulate(r, ranks, *out));
    r->nrows++;
    return KOLO_OK;
}

/* ---- the part of the records that all ranks have ---- */

static bool has_group(const struct sim_record *record, int group, uint64_t *first, uint64_t *last)
{
    bool found = false;
    for (int i = 0; i < record->ncalls; i++) {
        if (record->call[i].group == group) {
            const uint64_t number = record->call[i].number;
            *first = !found || number < *first ? number : *first;
            *last = !found || number > *last ? number : *last;
            found = true;
        }
    }
    return found;
}

/* Leave out the calls of a communicator that are not in the record of each of its ranks: a record
 * has only the last calls. The time of a call that is left out counts as computation. */
static void cut_group(struct replay *r, int group)
{
    uint64_t from = 0, to = UINT64_MAX, first, last;
    for (int i = 0; i < r->records.nrecords; i++) {
        if (has_group(&r->records.record[i], group, &first, &last)) {
            from = first > from ? first : from;
            to = last < to ? last : to;
        }
    }
    for (int i = 0; i < r->records.nrecords; i++) {
        struct sim_record *record = &r->records.record[i];
        int kept = 0;
        for (int k = 0; k < record->ncalls; k++) {
            const struct sim_call call = record->call[k];
            if (call.group != group || (call.number >= from && call.number <= to)) {
                record->call[kept++] = call;
            }
        }
        record->ncalls = kept;
    }
}

/* ---- the timeline ---- */

static const struct sim_call *next_call(const struct replay *r, int rank)
{
    const struct sim_record *record = &r->records.record[rank];
    const int at = r->rank[rank].at;
    return at < record->ncalls ? &record->call[at] : NULL;
}

/* Whether this record has the communicator from its next call on. */
static bool comes_to(const struct replay *r, int rank, int group)
{
    const struct sim_record *record = &r->records.record[rank];
    for (int i = r->rank[rank].at; i < record->ncalls; i++) {
        if (record->call[i].group == group) {
            return true;
        }
    }
    return false;
}

/* Whether all ranks of the communicator come to this call next. */
static bool all_there(const struct replay *r, const struct sim_call *call)
{
    for (int i = 0; i < r->records.nrecords; i++) {
        const struct sim_call *other = next_call(r, i);
        const bool here = other != NULL && other->group == call->group;
        const bool alike = here && other->number == call->number && other->coll == call->coll;
        if (here ? !alike : comes_to(r, i, call->group)) {
            return false;
        }
    }
    return true;
}

/* What the rank computes before its next call. */
static double compute_us(struct replay *r, int rank)
{
    const struct replay_rank *at = &r->rank[rank];
    const double us = next_call(r, rank)->begin_us - at->end_us;
    if (at->at == 0) {
        return 0;
    }
    r->overlapping += us < 0;
    return us > 0 ? us : 0;
}

static kolo_status make_call(struct replay *r, const struct sim_call *call)
{
    double begin_us = 0, shortest_us = -1;
    struct replay_row *row = NULL;
    int members = 0;
    KOLO_TRY(find_row(r, call, &row));
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < r->records.nrecords; i++) {
            struct replay_rank *rank = &r->rank[i];
            const struct sim_call *own = next_call(r, i);
            if (own == NULL || own->group != call->group || own->number != call->number) {
                continue;
            }
            if (pass == 0) {
                const double us = compute_us(r, i);
                rank->us += us;
                r->compute_us += us;
                begin_us = rank->us > begin_us ? rank->us : begin_us;
                const double took_us = own->end_us - own->begin_us;
                shortest_us = members == 0 || took_us < shortest_us ? took_us : shortest_us;
                members++;
                rank->first_us = rank->at == 0 ? own->begin_us : rank->first_us;
                continue;
            }
            r->wait_us += begin_us - rank->us;
            rank->us = begin_us + row->us;
            rank->end_us = own->end_us;
            rank->at++;
        }
    }
    r->call_us += row->us * members;
    row->recorded_us += shortest_us;
    row->ncalls++;
    r->ncalls++;
    return KOLO_OK;
}

static kolo_status refuse_order(const struct replay *r)
{
    struct kolo_text text = {0};
    for (int i = 0; i < r->records.nrecords; i++) {
        const struct sim_call *call = next_call(r, i);
        if (call != NULL) {
            kolo_text_add(&text, "%s%s comes to call %llu of \"%s\"", text.len > 0 ? ", " : "",
                          r->records.record[i].path, (unsigned long long)call->number,
                          r->records.group[call->group].name);
        }
    }
    const kolo_status st = kolo_fail(KOLO_ERR_INVALID, "the records do not fit together: %.800s",
                                     text.chars != NULL ? text.chars : "");
    kolo_text_free(&text);
    return st;
}

static kolo_status walk(struct replay *r)
{
    for (;;) {
        const struct sim_call *call = NULL;
        bool over = true;
        for (int i = 0; i < r->records.nrecords && call == NULL; i++) {
            const struct sim_call *next = next_call(r, i);
            over = over && next == NULL;
            call = next != NULL && all_there(r, next) ? next : NULL;
        }
        if (call == NULL) {
            return over ? KOLO_OK : refuse_order(r);
        }
        const struct sim_call copy = *call;
        KOLO_TRY(make_call(r, &copy));
    }
}

/* ---- results ---- */

struct replay_totals { /* milliseconds */
    double recorded, predicted, compute, calls, waits;
};

static struct replay_totals totals_of(const struct replay *r)
{
    struct replay_totals t = {0};
    const double n = r->records.nrecords * 1e3;
    for (int i = 0; i < r->records.nrecords; i++) {
        const struct replay_rank *rank = &r->rank[i];
        const double recorded = (rank->end_us - rank->first_us) / 1e3;
        t.recorded = recorded > t.recorded ? recorded : t.recorded;
        t.predicted = rank->us / 1e3 > t.predicted ? rank->us / 1e3 : t.predicted;
    }
    t.compute = r->compute_us / n;
    t.calls = r->call_us / n;
    t.waits = r->wait_us / n;
    return t;
}

static void print_notes(const struct replay *r)
{
    int unfinished = 0, unknown = 0, largest = 0;
    for (int i = 0; i < r->records.nrecords; i++) {
        unfinished += r->records.record[i].unfinished;
        unknown += r->records.record[i].unknown;
    }
    for (int i = 0; i < r->records.ngroups; i++) {
        largest = r->records.group[i].nranks > largest ? r->records.group[i].nranks : largest;
    }
    if (r->records.nrecords < largest) {
        (void)printf("# records of %d of %d ranks: waits for the others count as calls\n",
                     r->records.nrecords, largest);
    }
    if (r->overlapping > 0) {
        (void)printf(
            "# %d calls begin before the one before them is over; the replay takes them one "
            "after the other\n",
            r->overlapping);
    }
    if (unfinished > 0) {
        (void)printf("# %d calls are not over in the records, and left out\n", unfinished);
    }
    if (unknown > 0) {
        (void)printf("# %d entries are messages or no known collective; their time counts as "
                     "computation\n",
                     unknown);
    }
}

static void print_results(const struct replay *r)
{
    const struct replay_totals t = totals_of(r);
    int most = 0;
    for (int i = 0; i < r->nrows; i++) {
        most = r->row[i].nranks > most ? r->row[i].nranks : most;
    }
    (void)printf("# kolo sim --replay: %d calls of %d records, machine: %s\n", r->ncalls,
                 r->records.nrecords, r->options->machine_name);
    sim_print_error(r->options->machine, most, stdout);
    print_notes(r);
    (void)printf("#%15s %12s %6s %7s %13s %13s  %s\n", "collective", "bytes", "ranks", "calls",
                 "recorded(us)", "predicted(us)", "algorithm");
    for (int i = 0; i < r->nrows; i++) {
        const struct replay_row *row = &r->row[i];
        (void)printf("%16s %12zu %6d %7d %13.2f %13.2f  %s\n", kolo_coll_name(row->coll),
                     row->bytes, row->nranks, row->ncalls, row->recorded_us / row->ncalls, row->us,
                     kolo_algo_word(row->algo));
    }
    (void)printf("# recorded:  %.3f ms\n", t.recorded);
    (void)printf(
        "# predicted: %.3f ms, %.2f times as long; a rank computes %.3f ms, is in calls for "
        "%.3f ms, and waits for the last rank for %.3f ms\n",
        t.predicted, t.recorded > 0 ? t.predicted / t.recorded : 0, t.compute, t.calls, t.waits);
}

static int write_json(const struct replay *r)
{
    struct kolo_text json = {0};
    const struct replay_totals t = totals_of(r);
    kolo_text_add(&json, "{\"machine\": \"");
    kolo_text_json(&json, r->options->machine_name);
    kolo_text_add(&json,
                  "\", \"recorded_ms\": %.9g, \"predicted_ms\": %.9g, \"compute_ms\": %.9g, "
                  "\"calls_ms\": %.9g, \"waits_ms\": %.9g, \"overlapping\": %d, \"calls\": [",
                  t.recorded, t.predicted, t.compute, t.calls, t.waits, r->overlapping);
    for (int i = 0; i < r->nrows; i++) {
        const struct replay_row *row = &r->row[i];
        kolo_text_add(&json,
                      "%s\n {\"collective\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"root\": %d, "
                      "\"calls\": %d, \"recorded_us\": %.9g, \"predicted_us\": %.9g, "
                      "\"algorithm\": \"%s\"}",
                      i > 0 ? "," : "", kolo_coll_name(row->coll), row->bytes, row->nranks,
                      row->root, row->ncalls, row->recorded_us / row->ncalls, row->us,
                      row->algo->base.name);
    }
    kolo_text_add(&json, "\n]}\n");
    const int status = kolo_output_write("kolo sim", r->options->json, &json);
    kolo_text_free(&json);
    return status;
}

/* ---- the command ---- */

static kolo_status open_groups(struct replay *r)
{
    int largest = 0;
    for (int i = 0; i < r->records.ngroups; i++) {
        largest = r->records.group[i].nranks > largest ? r->records.group[i].nranks : largest;
    }
    for (int i = 0; i < r->records.ngroups; i++) {
        const int recorded = r->records.group[i].nranks;
        const bool scaled = r->options->nranks > 0 && recorded == largest;
        const int nranks = scaled ? r->options->nranks : recorded;
        if (nranks < 1) {
            return kolo_fail(KOLO_ERR_INVALID, "%s: pg_config does not tell the ranks of \"%s\"",
                             r->options->path[0], r->records.group[i].name);
        }
        KOLO_TRY(open_ranks(r, i, nranks));
        cut_group(r, i);
    }
    return KOLO_OK;
}

static kolo_status run(struct replay *r)
{
    KOLO_TRY(sim_records_read(r->options->path, r->options->npaths, &r->records));
    r->group = calloc((size_t)r->records.ngroups + 1, sizeof *r->group);
    r->rank = calloc((size_t)r->records.nrecords, sizeof *r->rank);
    if (r->group == NULL || r->rank == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d records", r->records.nrecords);
    }
    KOLO_TRY(open_groups(r));
    KOLO_TRY(walk(r));
    return r->ncalls > 0
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INVALID, "no call is in the records of all its ranks");
}

int sim_replay(const struct sim_replay_options *options)
{
    struct replay r = {.options = options};
    int status = 0;
    if (run(&r) != KOLO_OK) {
        (void)fprintf(stderr, "kolo sim: %s\n", kolo_error_text());
        status = 1;
    } else {
        if (options->json == NULL || strcmp(options->json, "-") != 0) {
            print_results(&r);
        }
        status = options->json != NULL ? write_json(&r) : 0;
    }
    for (int i = 0; i < r.records.ngroups && r.group != NULL; i++) {
        close_ranks(&r.group[i]);
    }
    free(r.group);
    free(r.rank);
    free(r.row);
    sim_records_free(&r.records);
    return status;
}
